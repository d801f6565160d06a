//! When a picture's data entered the video decoder.
//!
//! decodebin makes its video decoder by itself, so it is recognised as it is added; a probe on its sink pad counts the
//! encoded pictures, notes when each came and whether it is whole, and keeps back those that are not decoded. A decoded
//! frame is matched by its presentation time, because a stream with B-frames leaves the decoder in another order than it
//! entered.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::complaints;
use super::repeats::Repeats;
use super::tap::Tap;
use crate::source::integrity;
use crate::source::picture::Encoded;
use crate::source::rtp::Received;
use crate::source::thinning::{Picture, Verdict};
use crate::telemetry::SkipReason;

/// More pictures than any decoder holds back: H.264 and H.265 reorder at most 16, and libav's frame threads add one
/// picture each.
const REMEMBERED: usize = 64;

/// When the newest encoded pictures came.
#[derive(Debug)]
pub(super) struct Arrivals {
    ring: [Option<(Option<u64>, Arrival)>; REMEMBERED],
    next: usize,
    newest: u64,
}

/// How an encoded picture came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The time.
    pub(super) at: Instant,
    /// The how manieth of its connection it was, from 1.
    pub(super) number: u64,
    /// How far apart pictures come of which only those are decoded that are wanted; none where all are decoded.
    pub(super) spacing: Option<Duration>,
    /// Whether it is whole.
    pub(super) verdict: integrity::Verdict,
    /// Whether it came too late.
    pub(super) is_late: bool,
    /// Whether it is a key frame that does not say that nothing before it is shown after it.
    pub(super) is_open_key: bool,
    /// What its packets told, where it came in such.
    pub(super) received: Option<Received>,
    /// What it was like.
    pub(super) encoded: Encoded,
}

impl Arrival {
    /// Of a whole picture, of which nothing else is known.
    pub(super) fn at(at: Instant) -> Self {
        Self {
            at,
            number: 0,
            spacing: None,
            verdict: Ok(integrity::Generation::default()),
            is_late: false,
            is_open_key: false,
            received: None,
            encoded: Encoded { bytes: 0, kind: Picture::Key },
        }
    }
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { ring: [None; REMEMBERED], next: 0, newest: 0 }
    }
}

impl Arrivals {
    /// Notes that the picture with this presentation time, in nanoseconds, came so, and gives it its number.
    pub(super) fn note(&mut self, pts: Option<u64>, arrival: Arrival) {
        self.newest += 1;
        self.ring[self.next] = Some((pts, Arrival { number: self.newest, ..arrival }));
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// The number of the newest picture; 0 before the first.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// When the picture with this presentation time came, which comes out once. Where no such picture is known (a decoder
    /// that changes times, also where they go back and it has them stand still; a stream without them) it is the newest
    /// picture's time: that one pushed this frame out. None where no picture came at all, as with a camera that sends raw
    /// frames.
    pub(super) fn take(&mut self, pts: Option<u64>) -> Option<Arrival> {
        let newest_first = (1..=REMEMBERED).map(|back| (self.next + REMEMBERED - back) % REMEMBERED);
        let mut newest = None;
        for place in newest_first {
            let Some((known, arrival)) = &mut self.ring[place] else { continue };
            if pts.is_some() && *known == pts {
                *known = None;
                return Some(*arrival);
            }
            newest = newest.or(Some(*arrival));
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
            keep_to_our_processors(element);
            complaints::listen();
            probe(&pad, &tap);
        }
    });
}

/// The most threads that a decoder decodes with: one for each processor that we may use, 16 as in libav.
pub(super) fn threads() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get().min(16))
}

/// libav's decoders count the processors of the machine. Where we may use one of them, decoding a file with a thread each
/// (1080p H.264) took 9 % more CPU, and 14 context switches a picture, for nothing. Otherwise its choice stands, since it
/// was measured to be right: several pictures at once of a file, and of a live stream, where that would make each picture
/// late, the slices of one picture, which took as much CPU as a single thread within 1 %, with one slice a picture as with
/// four.
fn keep_to_our_processors(decoder: &gst::Element) {
    const PROPERTY: &str = "max-threads";
    let has_threads =
        decoder.find_property(PROPERTY).is_some_and(|property| property.value_type() == i32::static_type());
    if has_threads && threads() == 1 {
        decoder.set_property(PROPERTY, 1);
    }
}

/// Whether an element decodes video or pictures.
pub(super) fn is_video_decoder(element: &gst::Element) -> bool {
    let klass = element.factory().and_then(|factory| factory.metadata("klass").map(str::to_owned));
    // `Generic/Bin/Decoder` is decodebin; a JPEG decoder is `Codec/Decoder/Image`.
    klass.is_some_and(|klass| {
        let has = |word| klass.split('/').any(|part| part == word);
        has("Decoder") && (has("Video") || has("Image"))
    })
}

fn probe(pad: &gst::Pad, tap: &Arc<Tap>) {
    let tap = Arc::clone(tap);
    let repeats = Mutex::new(Repeats::default());
    let kinds =
        gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST | gst::PadProbeType::EVENT_DOWNSTREAM;
    pad.add_probe(kinds, move |_, info| {
        let now = Instant::now();
        let is_repeated = |buffer: &gst::Buffer| {
            tap.is_live() && repeats.lock().unwrap_or_else(PoisonError::into_inner).is_repeated(buffer)
        };
        let decoded = match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) if is_repeated(buffer) => {
                tap.intake().skip(SkipReason::Unwanted, now);
                false
            }
            Some(gst::PadProbeData::Buffer(buffer)) => tap.encoded(buffer, now) == Verdict::Decode,
            // A list goes in whole, or not at all.
            Some(gst::PadProbeData::BufferList(list)) => {
                list.iter().filter(|buffer| tap.encoded(buffer, now) == Verdict::Decode).count() > 0
            }
            Some(gst::PadProbeData::Event(event)) => {
                if let gst::EventView::Caps(caps) = event.view() {
                    tap.encoded_caps(caps.caps());
                }
                true
            }
            _ => true,
        };
        // `Drop` would have GStreamer 1.22 free what the binding has freed.
        if decoded { gst::PadProbeReturn::Ok } else { gst::PadProbeReturn::Handled }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_of(arrivals: &mut Arrivals, pts: Option<u64>) -> Option<Instant> {
        arrivals.take(pts).map(|arrival| arrival.at)
    }

    #[test]
    fn reordered_pictures_find_their_own_time() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        let at = |n: u64| start + Duration::from_millis(n);
        // Decoding order of I P B B: presentation times 0 3 1 2.
        for (n, pts) in [0, 3, 1, 2].into_iter().enumerate() {
            arrivals.note(Some(pts), Arrival::at(at(n as u64)));
        }
        let found: Vec<_> = (0..4).map(|pts| arrivals.take(Some(pts)).unwrap().at - start).collect();
        assert_eq!(found, [0, 2, 3, 1].map(Duration::from_millis));
    }

    #[test]
    fn an_unknown_time_is_the_newest_pictures_and_nothing_known_is_none() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        assert!(arrivals.take(Some(1)).is_none());
        assert!(arrivals.take(None).is_none());
        arrivals.note(Some(7), Arrival::at(start));
        arrivals.note(None, Arrival::at(start + Duration::from_millis(1)));
        assert_eq!(time_of(&mut arrivals, Some(9)), Some(start + Duration::from_millis(1)));
        assert_eq!(time_of(&mut arrivals, None), Some(start + Duration::from_millis(1)));
        assert_eq!(time_of(&mut arrivals, Some(7)), Some(start));
    }

    #[test]
    fn only_the_newest_pictures_are_remembered() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        let total = REMEMBERED as u64 + 10;
        for n in 0..total {
            arrivals.note(Some(n), Arrival::at(start + Duration::from_millis(n)));
        }
        let newest = start + Duration::from_millis(total - 1);
        assert_eq!((arrivals.newest(), arrivals.take(Some(10)).unwrap().number), (total, 11));
        assert_eq!(time_of(&mut arrivals, Some(9)), Some(newest), "forgotten");
        assert_eq!(time_of(&mut arrivals, Some(10)), Some(newest), "it has come out");
        assert_eq!(time_of(&mut arrivals, Some(11)), Some(start + Duration::from_millis(11)));
    }

    #[test]
    fn a_time_that_stands_still_is_the_newest_pictures() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        for n in 1..5 {
            let at = start + Duration::from_millis(n);
            // Times went back, and the decoder has them stand still at what came before.
            arrivals.note(Some(if n == 1 { 700 } else { n }), Arrival::at(at));
            assert_eq!(time_of(&mut arrivals, Some(700)), Some(at));
        }
    }

    #[test]
    fn a_repeated_time_finds_the_newest_picture_that_has_it() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        arrivals.note(Some(5), Arrival::at(start));
        arrivals.note(Some(5), Arrival::at(start + Duration::from_millis(9)));
        assert_eq!(time_of(&mut arrivals, Some(5)), Some(start + Duration::from_millis(9)));
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
