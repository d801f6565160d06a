//! The modes of a USB camera, as its driver tells them to GStreamer, and the caps of one.

use std::path::Path;

use gst::prelude::*;

use crate::source::usb::{Chosen, Fraction, Mode, UsbFormat};

/// The modes of the camera behind a device; none where it cannot be opened, which opening it for good tells better.
pub(super) fn modes(device: &Path) -> Vec<Mode> {
    let Ok(source) =
        gst::ElementFactory::make("v4l2src").property("device", device.display().to_string()).build()
    else {
        return Vec::new();
    };
    let is_open = source.set_state(gst::State::Ready).is_ok();
    let caps = source.static_pad("src").filter(|_| is_open).map(|pad| pad.query_caps(None));
    // Closing what was opened for a look cannot be refused.
    source.set_state(gst::State::Null).ok();
    caps.map(|caps| caps.iter().filter_map(mode).collect()).unwrap_or_default()
}

/// What to ask the camera for.
pub(super) fn caps(chosen: &Chosen) -> String {
    let Chosen { format, width, height, rate: Fraction { frames, seconds }, .. } = chosen;
    let media = match format {
        UsbFormat::Nv12 => "video/x-raw,format=NV12",
        UsbFormat::Yuyv => "video/x-raw,format=YUY2",
        UsbFormat::Uyvy => "video/x-raw,format=UYVY",
        UsbFormat::Grey => "video/x-raw,format=GRAY8",
        UsbFormat::Mjpg => "image/jpeg",
        UsbFormat::H264 => "video/x-h264",
    };
    format!("{media},width={width},height={height},framerate={frames}/{seconds}")
}

/// A mode whose size is fixed. Drivers that take any size in a range are asked for the range's largest.
fn mode(structure: &gst::StructureRef) -> Option<Mode> {
    let format = match (structure.name().as_str(), structure.get::<&str>("format").ok()) {
        ("image/jpeg", _) => UsbFormat::Mjpg,
        ("video/x-h264", _) => UsbFormat::H264,
        ("video/x-raw", Some("NV12")) => UsbFormat::Nv12,
        ("video/x-raw", Some("YUY2")) => UsbFormat::Yuyv,
        ("video/x-raw", Some("UYVY")) => UsbFormat::Uyvy,
        ("video/x-raw", Some("GRAY8")) => UsbFormat::Grey,
        _ => return None,
    };
    let side = |name| {
        let fixed = structure.get::<i32>(name).ok();
        let largest = || structure.get::<gst::IntRange<i32>>(name).ok().map(|range| range.max());
        fixed.or_else(largest).and_then(|side| u32::try_from(side).ok())
    };
    let (width, height) = (side("width")?, side("height")?);
    let rates = rates(structure);
    (!rates.is_empty()).then_some(Mode { format, width, height, rates })
}

fn rates(structure: &gst::StructureRef) -> Vec<Fraction> {
    let rate = |fraction: gst::Fraction| {
        let (frames, seconds) =
            (u32::try_from(fraction.numer()).ok()?, u32::try_from(fraction.denom()).ok()?);
        (frames > 0 && seconds > 0).then_some(Fraction { frames, seconds })
    };
    if let Ok(fixed) = structure.get::<gst::Fraction>("framerate") {
        return rate(fixed).into_iter().collect();
    }
    if let Ok(list) = structure.get::<gst::List>("framerate") {
        let fractions = list.iter().filter_map(|value| value.get::<gst::Fraction>().ok());
        return fractions.filter_map(rate).collect();
    }
    let range = structure.get::<gst::FractionRange>("framerate");
    range.ok().and_then(|range| rate(range.max())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn read(caps: &str) -> Vec<Mode> {
        gst::init().unwrap();
        gst::Caps::from_str(caps).unwrap().iter().filter_map(mode).collect()
    }

    #[test]
    fn modes_are_read_in_each_form_that_drivers_have() {
        let modes = read(
            "image/jpeg,width=1280,height=720,framerate={30/1,15/1}; video/x-raw,format=YUY2,width=640,height=480,framerate=30000/1001; \
             video/x-raw,format=GRAY8,width=[16,640],height=[16,480],framerate=[1/1,60/1]; video/x-raw,format=BGR,width=1,height=1,framerate=1/1",
        );
        let told = crate::source::usb::list(&modes);
        assert_eq!(
            told,
            "mjpg 1280x720 at 30.0000 or 15.0000, yuyv 640x480 at 29.9700, grey 640x480 at 60.0000"
        );
    }

    #[test]
    fn what_is_asked_for_is_caps_that_gstreamer_reads() {
        gst::init().unwrap();
        for format in UsbFormat::ALL {
            let rate = Fraction { frames: 30, seconds: 1 };
            let chosen = Chosen { format, width: 640, height: 480, rate, is_exact: true };
            let caps = gst::Caps::from_str(&caps(&chosen)).unwrap();
            assert!(caps.is_fixed(), "{caps}");
        }
    }
}
