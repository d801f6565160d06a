//! When a picture's data entered the video decoder.
//!
//! decodebin makes its video decoder by itself, so it is recognised as it is added; a probe on its sink pad counts the
//! encoded pictures and notes when each came. A decoded frame is matched by its presentation time, because a stream with
//! B-frames leaves the decoder in another order than it entered.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use gst::prelude::*;

use super::tap::Tap;

/// More pictures than any decoder holds back: H.264 and H.265 reorder at most 16, and libav's frame threads add one
/// picture each.
const REMEMBERED: usize = 64;

/// When the newest encoded pictures came.
#[derive(Debug)]
pub(super) struct Arrivals {
    ring: [Option<(Option<u64>, Instant)>; REMEMBERED],
    next: usize,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { ring: [None; REMEMBERED], next: 0 }
    }
}

impl Arrivals {
    /// Notes that the picture with this presentation time, in nanoseconds, came at `at`.
    pub(super) fn note(&mut self, pts: Option<u64>, at: Instant) {
        self.ring[self.next] = Some((pts, at));
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// When the picture with this presentation time came. Where no such picture is known (a decoder that changes times,
    /// a stream without them) it is the newest picture's time: that one pushed this frame out. None where no picture
    /// came at all, as with a camera that sends raw frames.
    pub(super) fn of(&self, pts: Option<u64>) -> Option<Instant> {
        let newest_first =
            (1..=REMEMBERED).map(|back| self.ring[(self.next + REMEMBERED - back) % REMEMBERED]);
        let mut newest = None;
        for (known, at) in newest_first.flatten() {
            if pts.is_some() && known == pts {
                return Some(at);
            }
            newest = newest.or(Some(at));
        }
        newest
    }
}

/// Looks for video decoders among the elements that are added to `pipeline` from now on.
pub(super) fn watch(pipeline: &gst::Pipeline, tap: &Arc<Tap>) {
    let tap = Arc::downgrade(tap);
    pipeline.connect_deep_element_added(move |_, _, element| {
        let Some(tap) = tap.upgrade() else { return };
        if is_video_decoder(element)
            && let Some(pad) = element.static_pad("sink")
        {
            probe(&pad, &tap);
        }
    });
}

fn is_video_decoder(element: &gst::Element) -> bool {
    let klass = element.factory().and_then(|factory| factory.metadata("klass").map(str::to_owned));
    // `Generic/Bin/Decoder` is decodebin; a JPEG decoder is `Codec/Decoder/Image`.
    klass.is_some_and(|klass| {
        let has = |word| klass.split('/').any(|part| part == word);
        has("Decoder") && (has("Video") || has("Image"))
    })
}

fn probe(pad: &gst::Pad, tap: &Arc<Tap>) {
    let tap = Arc::clone(tap);
    let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST;
    pad.add_probe(kinds, move |_, info| {
        let now = Instant::now();
        let mut arrivals = tap.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut note = |buffer: &gst::BufferRef| {
            arrivals.note(buffer.pts().map(gst::ClockTime::nseconds), now);
            tap.encoded();
        };
        match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => note(buffer),
            Some(gst::PadProbeData::BufferList(list)) => list.iter().for_each(note),
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reordered_pictures_find_their_own_time() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        let at = |n: u64| start + Duration::from_millis(n);
        // Decoding order of I P B B: presentation times 0 3 1 2.
        for (n, pts) in [0, 3, 1, 2].into_iter().enumerate() {
            arrivals.note(Some(pts), at(n as u64));
        }
        let found: Vec<_> = (0..4).map(|pts| arrivals.of(Some(pts)).unwrap() - start).collect();
        assert_eq!(found, [0, 2, 3, 1].map(Duration::from_millis));
    }

    #[test]
    fn an_unknown_time_is_the_newest_pictures_and_nothing_known_is_none() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        assert_eq!(arrivals.of(Some(1)), None);
        assert_eq!(arrivals.of(None), None);
        arrivals.note(Some(7), start);
        arrivals.note(None, start + Duration::from_millis(1));
        assert_eq!(arrivals.of(Some(9)), Some(start + Duration::from_millis(1)));
        assert_eq!(arrivals.of(None), Some(start + Duration::from_millis(1)));
        assert_eq!(arrivals.of(Some(7)), Some(start));
    }

    #[test]
    fn only_the_newest_pictures_are_remembered() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        let total = REMEMBERED as u64 + 10;
        for n in 0..total {
            arrivals.note(Some(n), start + Duration::from_millis(n));
        }
        let newest = start + Duration::from_millis(total - 1);
        assert_eq!(arrivals.of(Some(9)), Some(newest), "forgotten");
        assert_eq!(arrivals.of(Some(10)), Some(start + Duration::from_millis(10)));
    }

    #[test]
    fn a_repeated_time_finds_the_newest_picture_that_has_it() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        arrivals.note(Some(5), start);
        arrivals.note(Some(5), start + Duration::from_millis(9));
        assert_eq!(arrivals.of(Some(5)), Some(start + Duration::from_millis(9)));
    }

    #[test]
    fn decoders_are_known_by_their_class() {
        gst::init().unwrap();
        let is = |factory: &str| is_video_decoder(&gst::ElementFactory::make(factory).build().unwrap());
        assert!(is("jpegdec"));
        assert!(is("pngdec"));
        assert!(!is("decodebin"));
        assert!(!is("videoconvert"));
        assert!(!is("rtph264depay"));
    }
}
