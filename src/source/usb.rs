//! Which of the modes that a USB camera offers is used, and which device it is. Pure, but for looking into a folder.
//!
//! A mode is a format, a size, and the rates that go with them. What the config leaves open is chosen: a picture that comes
//! 25 times a second rather than a larger one that does not, then the largest up to 1920x1080, then one that needs no decoding.

use std::fmt;
use std::path::{Path, PathBuf};

use super::controls::ControlConfig;
use super::local::NO_SUCH_DEVICE;

/// How a USB camera is set up. What is none is chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsbConfig {
    /// How it encodes its pictures.
    pub format: Option<UsbFormat>,
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
    /// Frames a second.
    pub rate: Option<f64>,
    /// What its controls are set to, in this order.
    pub controls: Vec<ControlConfig>,
}

/// How a USB camera encodes its pictures. The names are V4L2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsbFormat {
    /// Luma and interleaved chroma at half size, not compressed.
    Nv12,
    /// Y U Y V, not compressed.
    Yuyv,
    /// U Y V Y, not compressed.
    Uyvy,
    /// Luma only, not compressed.
    Grey,
    /// Motion JPEG.
    Mjpg,
    /// H.264.
    H264,
}

impl UsbFormat {
    /// Every format, the ones that need no decoding first.
    pub const ALL: [Self; 6] = [Self::Nv12, Self::Yuyv, Self::Uyvy, Self::Grey, Self::Mjpg, Self::H264];

    /// Every name, and `auto` for what is chosen.
    pub const NAMES: [&str; 7] = ["auto", "nv12", "yuyv", "uyvy", "grey", "mjpg", "h264"];

    /// The config's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[1 + self as usize]
    }

    /// The format that the config names so; none for `auto`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// A rate as drivers tell it: so many frames in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// Frames.
    pub frames: u32,
    /// Seconds.
    pub seconds: u32,
}

impl Fraction {
    fn per_second(self) -> f64 {
        f64::from(self.frames) / f64::from(self.seconds.max(1))
    }
}

/// A format and a size that a camera offers, at these rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The format.
    pub format: UsbFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The rates.
    pub rates: Vec<Fraction>,
}

/// The mode that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The format.
    pub format: UsbFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The rate.
    pub rate: Fraction,
    /// Whether it is all that was asked for.
    pub is_exact: bool,
}

/// A picture that comes so often is good enough where no rate is asked for.
const RATE_WANTED: f64 = 25.0;

/// The most pixels that are chosen where no size is asked for.
const PIXELS_MAX: u64 = 1920 * 1080;

/// The mode that comes nearest to what is asked for; none when there is no mode.
///
/// The format that is asked for comes first, then the size: the one itself, else the smallest that is larger in both, else
/// the largest there is. Of its rates it is the one itself, else the next above, else the highest.
#[must_use]
pub fn choose(modes: &[Mode], wish: &UsbConfig) -> Option<Chosen> {
    let of_format = |mode: &&Mode| wish.format.is_none_or(|format| mode.format == format);
    let some_of_format = modes.iter().any(|mode| of_format(&mode));
    let candidates = modes.iter().filter(|mode| !some_of_format || of_format(mode));
    let chosen = candidates.flat_map(|mode| {
        mode.rates.iter().map(move |&rate| Chosen {
            format: mode.format,
            width: mode.width,
            height: mode.height,
            rate,
            is_exact: false,
        })
    });
    let chosen = chosen.min_by(|one, other| worse(one, wish).total_cmp(&worse(other, wish)))?;
    let is_exact = wish.format.is_none_or(|format| chosen.format == format)
        && wish.size.is_none_or(|size| (chosen.width, chosen.height) == size)
        && wish.rate.is_none_or(|rate| (chosen.rate.per_second() - rate).abs() < 0.01 * rate);
    Some(Chosen { is_exact, ..chosen })
}

/// How far from what is asked for, as numbers that count one after the other.
#[derive(Debug)]
struct Worse([f64; 4]);

impl Worse {
    fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
        let pairs = self.0.iter().zip(&other.0);
        pairs
            .map(|(one, other)| one.total_cmp(other))
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of pictures")]
fn worse(mode: &Chosen, wish: &UsbConfig) -> Worse {
    let (rate, pixels) = (mode.rate.per_second(), u64::from(mode.width) * u64::from(mode.height));
    let pixels_off = match wish.size {
        Some((width, height)) => {
            let wanted = (u64::from(width) * u64::from(height)) as f64;
            let covers = mode.width >= width && mode.height >= height;
            // One that is too small is worse than any that is too large.
            if covers { pixels as f64 - wanted } else { 1e12 - pixels as f64 }
        }
        None if pixels <= PIXELS_MAX => -(pixels as f64),
        None => pixels as f64,
    };
    let rate_off = match wish.rate {
        // A hundredth less is the same: 29.97 for 30.
        Some(wanted) if rate >= 0.99 * wanted => rate - wanted,
        Some(wanted) => 1e6 + wanted - rate,
        None => -rate,
    };
    let too_slow = if rate < 0.99 * wish.rate.unwrap_or(RATE_WANTED) { 1.0 } else { 0.0 };
    let decoding = f64::from(mode.format as u8);
    if wish.size.is_some() {
        Worse([pixels_off, too_slow, decoding, rate_off])
    } else {
        Worse([too_slow, pixels_off, decoding, rate_off])
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (format, rate) = (self.format.name(), self.rate.per_second());
        write!(f, "{format} {}x{} at {rate:.4} a second", self.width, self.height)
    }
}

impl fmt::Display for UsbConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = self.format.map(|format| format.name().to_owned());
        let size = self.size.map(|(width, height)| format!("{width}x{height}"));
        let rate = self.rate.map(|rate| format!("{rate} a second"));
        f.write_str(&[format, size, rate].into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// The modes in words, each format and size once.
#[must_use]
pub fn list(modes: &[Mode]) -> String {
    let mode = |mode: &Mode| {
        let rates: Vec<_> = mode.rates.iter().map(|rate| format!("{:.4}", rate.per_second())).collect();
        format!("{} {}x{} at {}", mode.format.name(), mode.width, mode.height, rates.join(" or "))
    };
    modes.iter().map(mode).collect::<Vec<_>>().join(", ")
}

/// The device that a path means, in whose last part `*` stands for anything: `/dev/v4l/by-id/*SERIAL*-video-index0`.
///
/// # Errors
/// In words, when there is none or more than one.
pub fn device(path: &Path) -> Result<PathBuf, String> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(path.to_owned());
    };
    if !name.contains('*') {
        return Ok(path.to_owned());
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut fitting: Vec<_> = names.filter(|entry| fits(name, entry)).collect();
    fitting.sort_unstable();
    match fitting.as_slice() {
        [] => Err(NO_SUCH_DEVICE.to_owned()),
        [one] => Ok(folder.join(one)),
        several => Err(format!(
            "it may be any of {}; write more of the name, or the port under /dev/v4l/by-path",
            several.join(", ")
        )),
    }
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(format: UsbFormat, width: u32, height: u32, rates: &[u32]) -> Mode {
        let rates = rates.iter().map(|&frames| Fraction { frames, seconds: 1 }).collect();
        Mode { format, width, height, rates }
    }

    /// As a common camera on USB 2 has them.
    fn common() -> Vec<Mode> {
        vec![
            mode(UsbFormat::Yuyv, 640, 480, &[30, 15]),
            mode(UsbFormat::Yuyv, 1280, 720, &[10, 5]),
            mode(UsbFormat::Yuyv, 1920, 1080, &[5]),
            mode(UsbFormat::Mjpg, 640, 480, &[30]),
            mode(UsbFormat::Mjpg, 1280, 720, &[60, 30]),
            mode(UsbFormat::Mjpg, 1920, 1080, &[30]),
            mode(UsbFormat::Mjpg, 3840, 2160, &[30]),
        ]
    }

    fn chosen(wish: &UsbConfig) -> (String, bool) {
        let chosen = choose(&common(), wish).unwrap();
        (chosen.to_string(), chosen.is_exact)
    }

    #[test]
    fn what_is_left_open_is_fast_enough_then_large_then_not_compressed() {
        assert_eq!(chosen(&UsbConfig::default()), ("mjpg 1920x1080 at 30.0000 a second".into(), true));
        let small = UsbConfig { size: Some((640, 480)), ..UsbConfig::default() };
        assert_eq!(chosen(&small).0, "yuyv 640x480 at 30.0000 a second");
        let slow = UsbConfig { rate: Some(5.0), ..UsbConfig::default() };
        assert_eq!(chosen(&slow), ("yuyv 1920x1080 at 5.0000 a second".into(), true));
    }

    #[test]
    fn what_is_asked_for_is_taken_or_told_as_not_there() {
        let wish = |format, size, rate| UsbConfig { format, size, rate, controls: Vec::new() };
        let (yuyv, hd) = (Some(UsbFormat::Yuyv), Some((1280, 720)));
        assert_eq!(chosen(&wish(yuyv, hd, None)), ("yuyv 1280x720 at 10.0000 a second".into(), true));
        assert_eq!(chosen(&wish(yuyv, hd, Some(30.0))), ("yuyv 1280x720 at 10.0000 a second".into(), false));
        assert_eq!(chosen(&wish(None, hd, Some(25.0))), ("mjpg 1280x720 at 30.0000 a second".into(), false));
        assert_eq!(chosen(&wish(None, Some((800, 600)), None)).0, "mjpg 1280x720 at 60.0000 a second");
        assert_eq!(chosen(&wish(yuyv, Some((4000, 3000)), None)).0, "yuyv 1920x1080 at 5.0000 a second");
        let (other, is_exact) = chosen(&wish(Some(UsbFormat::H264), None, None));
        assert_eq!((other.as_str(), is_exact), ("mjpg 1920x1080 at 30.0000 a second", false));
        assert_eq!(choose(&[], &UsbConfig::default()), None);
    }

    #[test]
    fn names_come_back_and_auto_is_none() {
        for format in UsbFormat::ALL {
            assert_eq!(UsbFormat::from_name(format.name()), Some(format));
        }
        assert_eq!(UsbFormat::from_name("auto"), None);
    }

    #[test]
    fn a_part_of_a_name_finds_its_device() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["usb-Cam_A1-video-index0", "usb-Cam_A1-video-index1", "usb-Cam_B2-video-index0"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = |pattern: &str| device(&dir.path().join(pattern));
        assert_eq!(found("*B2*"), Ok(dir.path().join("usb-Cam_B2-video-index0")));
        assert_eq!(found("*_A1*index0"), Ok(dir.path().join("usb-Cam_A1-video-index0")));
        assert_eq!(found("usb-*B2-video-index0"), Ok(dir.path().join("usb-Cam_B2-video-index0")));
        let several = found("*A1*").unwrap_err();
        assert!(
            several.starts_with("it may be any of usb-Cam_A1-video-index0, usb-Cam_A1-video-index1;"),
            "{several}"
        );
        assert!(found("*C3*").unwrap_err().starts_with("there is no such device"));
        assert_eq!(found("video0"), Ok(dir.path().join("video0")));
        assert!(fits("a*", "a") && fits("*a", "ba") && !fits("a*a", "a") && !fits("ab", "abc"));
    }
}
