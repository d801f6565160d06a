//! What of GStreamer is on this machine.

use gst::prelude::*;

use super::fault;
use super::graph;
use crate::source::video::{CodecFound, VideoProbe};

/// Elements without which some camera cannot be opened.
const ELEMENTS: [&str; 8] = [
    "rtspsrc",
    "rtph264depay",
    "rtph265depay",
    "rtpjpegdepay",
    "v4l2src",
    "qtdemux",
    "h264parse",
    "videoconvert",
];

/// Codecs that cameras send, as caps.
const CODECS: [(&str, &str); 4] = [
    ("H.264", "video/x-h264, stream-format=byte-stream, alignment=au"),
    ("H.265", "video/x-h265, stream-format=byte-stream, alignment=au"),
    ("Motion JPEG", "image/jpeg"),
    ("AV1", "video/x-av1"),
];

/// Looks for GStreamer, the elements that cameras need, and its video decoders.
#[must_use]
pub fn probe() -> VideoProbe {
    if let Err(error) = graph::init() {
        return VideoProbe { gstreamer: None, codecs: Vec::new(), missing: vec![error.to_string()] };
    }
    let missing = ELEMENTS
        .into_iter()
        .filter(|element| gst::ElementFactory::find(element).is_none())
        .map(|element| fault::missing_element(element).to_string());
    let (major, minor, micro, _) = gst::version();
    VideoProbe {
        gstreamer: Some(format!("{major}.{minor}.{micro}")),
        codecs: CODECS.into_iter().map(codec).collect(),
        missing: missing.collect(),
    }
}

/// The decoders of a codec, in the order in which they are tried.
fn codec((name, caps): (&'static str, &str)) -> CodecFound {
    let caps: gst::Caps = caps.parse().expect("the caps are constant and valid");
    let kind = gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO;
    let mut factories: Vec<_> = gst::ElementFactory::factories_with_type(kind, gst::Rank::MARGINAL)
        .into_iter()
        .filter(|factory| factory.can_sink_any_caps(&caps))
        .collect();
    factories.sort_by_key(|factory| std::cmp::Reverse(factory.rank()));
    let decoder = |factory: gst::ElementFactory| {
        let klass = factory.metadata("klass").unwrap_or_default();
        let way = if klass.contains("Hardware") { "hardware" } else { "software" };
        format!("{} ({way})", factory.name())
    };
    CodecFound { codec: name, decoders: factories.into_iter().map(decoder).collect() }
}
