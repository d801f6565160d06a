//! Builds a camera's pipeline and links its pads as they come.

use std::sync::{Arc, Once};

use gst::prelude::*;
use tracing::{debug, info, warn};

use super::launch::{ElementSpec, Launch, Property, SourcePads};
use super::tap::Tap;
use super::{allocation, decoder_probe, fault, log, packets, rtsp, trust};
use crate::frame::{CameraId, PixelFormat};
use crate::memory::allocations;
use crate::source::SourceError;
use crate::telemetry::error_chain;
use crate::threads::ThreadKind;
use crate::threads::place::Place;

/// Initialises GStreamer, once for the process. Its own log goes to standard error, where `GST_DEBUG` asks for one.
///
/// # Errors
/// When GStreamer cannot be initialised, such as for a broken installation.
pub(super) fn init() -> Result<(), SourceError> {
    gst::init().map_err(|error| SourceError::MissingElement {
        element: "core".to_owned(),
        cure: format!("it says: {error}; install libgstreamer1.0-0 anew"),
    })?;
    static RANKED: Once = Once::new();
    RANKED.call_once(prefer_libav);
    log::take_over();
    Ok(())
}

/// Builds the pipeline for a camera, ready to be played.
///
/// # Errors
/// When an element is not installed or does not take a property.
pub(super) fn build(
    launch: &Launch,
    camera: &CameraId,
    tap: &Arc<Tap>,
) -> Result<gst::Pipeline, SourceError> {
    debug!(%camera, "{launch}");
    let pipeline = gst::Pipeline::new();
    decoder_probe::watch(&pipeline, tap);
    let source = make(&launch.source)?;
    let decodebin = make(&launch.decodebin)?;
    let sink = make(&launch.sink)?;
    let sink = sink.downcast::<gst_app::AppSink>().expect("the factory `appsink` makes an AppSink");
    answer_allocation(&sink, tap);
    tap.connect(&sink);
    let added = pipeline.add_many([&source, &decodebin, sink.upcast_ref()]);
    added.expect("elements that were just made have no parent, and their names are unique");
    match launch.source_pads {
        SourcePads::Always => match &launch.filter {
            Some(spec) => {
                let filter = make(spec)?;
                pipeline.add(&filter).expect("an element that was just made has no parent");
                gst::Element::link_many([&source, &filter, &decodebin]).map_err(|_| SourceError::Broken {
                    reason: format!("the camera does not take {spec}"),
                })?;
            }
            None => source.link(&decodebin).expect("both ends were just made and take any caps"),
        },
        SourcePads::Sometimes => {
            packets::watch(&decodebin, tap);
            packets::listen_to_reports(&source, tap);
            link_streams(&pipeline, &source, &decodebin, tap)?;
        }
    }
    leave_undecoded(&decodebin);
    let joint = Joint { sink, tap: Arc::clone(tap), camera: camera.clone() };
    // A weak pipeline: it owns decodebin, which owns this closure.
    let weak = pipeline.downgrade();
    decodebin.connect_pad_added(move |_, pad| {
        if let Some(pipeline) = weak.upgrade() {
            joint.link(&pipeline, pad);
        }
    });
    let complete = Arc::clone(tap);
    decodebin.connect_no_more_pads(move |_| complete.pads_complete());
    name_threads(&pipeline, camera);
    Ok(pipeline)
}

/// Links what decodebin finds.
struct Joint {
    sink: gst_app::AppSink,
    tap: Arc<Tap>,
    camera: CameraId,
}

impl Joint {
    fn link(&self, pipeline: &gst::Pipeline, pad: &gst::Pad) {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        let is_video = caps.structure(0).is_some_and(|structure| structure.name() == "video/x-raw");
        if !is_video || !self.tap.claim_video() {
            debug!(camera = %self.camera, %caps, "a stream that is not looked at");
            discard(pipeline, pad);
            return;
        }
        let sink_pad = self.sink.static_pad("sink").expect("an appsink has a sink pad");
        let linked = if is_taken(&caps) {
            pad.link(&sink_pad).map(drop).map_err(|error| error.to_string())
        } else {
            info!(camera = %self.camera, %caps, "each frame is converted, which costs a copy");
            self.link_through_converter(pipeline, pad, &sink_pad)
        };
        if let Err(error) = linked {
            // The streaming thread then finds a pad that leads nowhere, which ends the connection with its own error.
            warn!(camera = %self.camera, %caps, "the decoded video cannot be taken: {error}");
        }
    }

    fn link_through_converter(
        &self,
        pipeline: &gst::Pipeline,
        pad: &gst::Pad,
        sink_pad: &gst::Pad,
    ) -> Result<(), String> {
        let make = || -> Result<(), gst::glib::BoolError> {
            let converter = gst::ElementFactory::make("videoconvert").build()?;
            pipeline.add(&converter)?;
            let entry = converter.static_pad("sink").expect("videoconvert has a sink pad");
            let exit = converter.static_pad("src").expect("videoconvert has a source pad");
            count_converted(&entry, &self.tap);
            exit.link(sink_pad).map_err(|error| gst::glib::bool_error!("{error}"))?;
            converter.sync_state_with_parent()?;
            pad.link(&entry).map_err(|error| gst::glib::bool_error!("{error}"))?;
            Ok(())
        };
        make().map_err(|error| error.to_string())
    }
}

/// Among software decoders for H.264, libav's: openh264dec yields no frames on RTSP streams with several slices.
fn prefer_libav() {
    let find = |name| gst::ElementFactory::find(name);
    if let (Some(libav), Some(openh264)) = (find("avdec_h264"), find("openh264dec"))
        && openh264.rank() >= libav.rank()
    {
        openh264.set_rank(libav.rank() - 1);
    }
}

fn make(spec: &ElementSpec) -> Result<gst::Element, SourceError> {
    let element =
        gst::ElementFactory::make(spec.factory).build().map_err(|_| fault::missing_element(spec.factory))?;
    for (name, value) in &spec.properties {
        match value {
            Property::Parsed(text) => element.set_property_from_str(name, text),
            Property::Text(text) => element.set_property(name, text.as_str()),
            Property::Url(url) => element.set_property(name, url.as_str()),
            Property::Secret(secret) => element.set_property(name, secret.reveal()),
            Property::Authorities(file) => {
                let authorities = trust::authorities(file).map_err(|reason| spec.refused(reason))?;
                element.set_property(name, authorities);
            }
        }
    }
    Ok(element)
}

/// rtspsrc's pads come one by one, and more than one for the same stream where a camera breaks the rules.
fn link_streams(
    pipeline: &gst::Pipeline,
    source: &gst::Element,
    decodebin: &gst::Element,
    tap: &Arc<Tap>,
) -> Result<(), SourceError> {
    const SELECTOR: &str = "input-selector";
    let selector = gst::ElementFactory::make(SELECTOR).property("sync-streams", false).build();
    let selector = selector.map_err(|_| fault::missing_element(SELECTOR))?;
    pipeline.add(&selector).expect("an element that was just made has no parent");
    selector.link(decodebin).expect("both ends were just made and take any caps");
    rtsp::begin_once(&selector.static_pad("src").expect("an input-selector has a source pad"));
    rtsp::connect(source, &selector, tap);
    trust::watch(source, tap);
    Ok(())
}

/// Sound, subtitles and metadata are passed on as they are: decoding them would cost time, and a missing decoder for
/// them is nobody's fault.
fn leave_undecoded(decodebin: &gst::Element) {
    decodebin.connect("autoplug-continue", false, |values| {
        let caps = values.get(2).and_then(|value| value.get::<gst::Caps>().ok())?;
        let name = caps.structure(0).map(|structure| structure.name().as_str().to_owned())?;
        let looked_at = !["audio/", "text/x-raw", "subpicture/", "subtitle/", "application/x-onvif-metadata"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        Some(looked_at.to_value())
    });
}

pub(super) fn discard(pipeline: &gst::Pipeline, pad: &gst::Pad) {
    let end = gst::ElementFactory::make("fakesink")
        .property("sync", false)
        .property("async", false)
        .property("enable-last-sample", false)
        .build();
    let Ok(end) = end else { return };
    let entry = end.static_pad("sink").expect("a fakesink has a sink pad");
    let linked =
        pipeline.add(&end).is_ok() && end.sync_state_with_parent().is_ok() && pad.link(&entry).is_ok();
    if !linked {
        warn!(pad = %pad.name(), "a stream that is not looked at could not be led away");
    }
}

/// Whether frames of these caps are taken as they come: one of our formats in system memory.
pub(super) fn is_taken(caps: &gst::CapsRef) -> bool {
    let in_system_memory = caps
        .features(0)
        .is_none_or(|features| features.is_equal(gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY.as_ref()));
    let format = caps.structure(0).and_then(|structure| structure.get::<&str>("format").ok());
    in_system_memory && format.and_then(PixelFormat::from_name).is_some()
}

/// Counts what is really converted: the stream may change to a format that passes through.
fn count_converted(entry: &gst::Pad, tap: &Arc<Tap>) {
    let tap = Arc::clone(tap);
    entry.add_probe(gst::PadProbeType::BUFFER, move |pad, _| {
        if pad.current_caps().is_some_and(|caps| !is_taken(&caps)) {
            tap.converted();
        }
        gst::PadProbeReturn::Ok
    });
}

/// Answers what memory pictures may be written to.
fn answer_allocation(sink: &gst_app::AppSink, tap: &Arc<Tap>) {
    let pad = sink.static_pad("sink").expect("an appsink has a sink pad");
    let tap = Arc::clone(tap);
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM, move |pad, info| {
        let Some(query) = info.query_mut() else { return gst::PadProbeReturn::Ok };
        if let gst::QueryViewMut::Allocation(query) = query.view_mut() {
            allocation::answer(pad, query, &tap);
            return gst::PadProbeReturn::Handled;
        }
        gst::PadProbeReturn::Ok
    });
}

/// Each of GStreamer's streaming threads tells the bus as it enters, on that thread. It then takes the name of its task, and
/// the place of its camera's thread, which is the calling one; so do the threads that a video decoder starts from there.
/// (A thread that GStreamer keeps for later stays there until its next stream; what else it may do meanwhile is short.)
/// What our code allocates there is counted as a source's.
fn name_threads(pipeline: &gst::Pipeline, camera: &CameraId) {
    let (name, place, camera) = (thread_name(camera), Place::of_this_thread(), camera.clone());
    let bus = pipeline.bus().expect("a pipeline has a bus");
    bus.set_sync_handler(move |_, message| {
        if let gst::MessageView::StreamStatus(status) = message.view()
            && status.get().0 == gst::StreamStatusType::Enter
        {
            allocations::join(ThreadKind::Source.allocation_group());
            if let Some(task) = status.stream_status_object().and_then(|task| task.get::<gst::Task>().ok()) {
                task.set_property("name", &name);
            }
            if let Err(error) = place.take(&place) {
                warn!(%camera, "a streaming thread goes on where it is: {}", error_chain(&error));
            }
        }
        gst::BusSyncReply::Pass
    });
}

/// `src/<camera>` in at most 15 bytes, which is what Linux keeps.
fn thread_name(camera: &CameraId) -> String {
    let mut name = format!("src/{camera}");
    name.truncate(name.floor_char_boundary(15));
    name
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn our_formats_in_system_memory_are_taken_and_others_are_converted() {
        gst::init().unwrap();
        let taken = |caps: &str| is_taken(&gst::Caps::from_str(caps).unwrap());
        for format in PixelFormat::ALL {
            assert!(taken(&format!("video/x-raw,format={}", format.name())), "{format:?}");
        }
        assert!(taken("video/x-raw(memory:SystemMemory),format=NV12"));
        assert!(!taken("video/x-raw,format=Y42B"));
        assert!(!taken("video/x-raw(memory:DMABuf),format=NV12"));
    }

    #[test]
    fn a_thread_name_is_cut_between_letters() {
        let name = |camera| thread_name(&CameraId::new(camera));
        assert_eq!(name("press-1"), "src/press-1");
        assert_eq!(name("conveyor-belt-north"), "src/conveyor-be");
        assert_eq!(name("förderbandäü"), "src/förderband");
    }

    #[test]
    fn libav_ranks_above_openh264() {
        init().unwrap();
        let rank = |name| gst::ElementFactory::find(name).map(|factory| factory.rank());
        if let (Some(libav), Some(openh264)) = (rank("avdec_h264"), rank("openh264dec")) {
            assert!(libav > openh264);
        } else {
            eprintln!("SKIP libav_ranks_above_openh264: both decoders must be installed");
        }
    }

    #[test]
    fn an_element_that_is_not_there_is_told_with_its_package() {
        gst::init().unwrap();
        let spec = ElementSpec { factory: "nosuchsrc", properties: Vec::new() };
        let error = make(&spec).unwrap_err().to_string();
        assert!(error.starts_with("GStreamer's element nosuchsrc is not installed; "), "{error}");
    }
}
