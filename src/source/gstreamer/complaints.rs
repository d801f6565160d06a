//! What libav says of a picture that it could decode only in part.
//!
//! It conceals what it cannot decode and hands the picture out as if it were whole (a truncated slice, of which no packet
//! is missing: seen with GStreamer 1.22, `avdec_h264`). Only its log tells, and GStreamer's log carries that on the thread
//! that decodes. So such complaints are counted by thread; a picture with several slices may be decoded on other threads
//! too, and what is said there is not heard.

use std::cell::Cell;
use std::sync::Once;

/// What libav's H.264 decoder says where a slice ends too early, and its H.265 decoder where a picture is missing that
/// another one needs. (It says much else as an error that does a picture no harm.)
const COMPLAINTS: [&str; 2] = ["error while decoding MB", "Could not find ref with POC"];

thread_local! {
    static HEARD: Cell<bool> = const { Cell::new(false) };
}

/// Listens from now on, whoever decodes. To be called once a decoder of libav's exists.
pub(super) fn listen() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        let Some(libav) = gst::DebugCategory::get("libav") else { return };
        // Without `GST_DEBUG` nobody asked for GStreamer's own log, and what is to be heard is not to be printed.
        if std::env::var_os("GST_DEBUG").is_none() {
            gst::log::remove_default_log_function();
        }
        gst::log::add_log_function(move |category, level, _, _, _, _, message| {
            if category == libav && level == gst::DebugLevel::Error {
                hear(message.get().as_deref().map_or("", |text| text.as_str()));
            }
        });
        if libav.threshold() < gst::DebugLevel::Error {
            libav.set_threshold(gst::DebugLevel::Error);
        }
    });
}

/// Whether there was a complaint on this thread since the last time.
pub(super) fn take() -> bool {
    HEARD.replace(false)
}

fn hear(text: &str) {
    if COMPLAINTS.iter().any(|complaint| text.starts_with(complaint)) {
        HEARD.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_heard_once_and_chatter_is_not() {
        hear("Invalid NAL unit 0, skipping.");
        assert!(!take());
        hear("error while decoding MB 12 7, bytestream -5");
        assert!(take());
        assert!(!take());
    }
}
