//! An RTSP camera's streams: which of them is taken, and what is done about cameras that break the rules.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use tracing::{debug, info, warn};

use super::describe;
use super::graph::discard;
use super::rtp::{self, Codec};
use super::senders::{Hearing, Senders};
use super::tap::Tap;
use super::turns::Turns;
use crate::frame::CameraId;

/// So often somebody who waits looks whether the connection is given up.
const PATIENCE: Duration = Duration::from_millis(100);

/// Has only the first video stream of a camera set up, and leads it to `selector`, of whose inputs one is passed on.
pub(super) fn connect(source: &gst::Element, selector: &gst::Element, tap: &Arc<Tap>) {
    set_up_first_video(source, tap);
    let complete = Arc::clone(tap);
    let inputs = selector.clone();
    source.connect_no_more_pads(move |_| {
        if inputs.num_sink_pads() == 0 {
            complete.pads_complete();
        }
    });
    let voices = Arc::new(Voices::default());
    let (selector, camera) = (selector.downgrade(), tap.intake().camera().clone());
    let shared = Arc::clone(tap);
    let count = AtomicUsize::new(0);
    let turns = Arc::new(Turns::default());
    let made = Arc::clone(&turns);
    source.connect_pad_added(move |source, pad| {
        made.pad_is_there();
        let Some(selector) = selector.upgrade() else { return };
        let number = count.fetch_add(1, Ordering::Relaxed);
        let entry = selector.request_pad_simple("sink_%u").filter(|entry| pad.link(entry).is_ok());
        let Some(entry) = entry else {
            warn!(%camera, pad = %pad.name(), "a stream of the camera could not be taken");
            if let Some(pipeline) = source.parent().and_downcast::<gst::Pipeline>() {
                discard(&pipeline, pad);
            }
            return;
        };
        mend(pad, &camera);
        listen(&entry, number, &voices, &shared);
    });
    source.connect("new-manager", false, move |values| {
        let manager = values.get(1).and_then(|value| value.get::<gst::Element>().ok())?;
        let turns = Arc::clone(&turns);
        manager.connect("new-jitterbuffer", false, move |values| {
            let buffer = values.get(1).and_then(|value| value.get::<gst::Element>().ok())?;
            forget_first_number(&buffer);
            turns.watch(&buffer);
            None
        });
        None
    });
}

/// Sound and metadata are not even asked for.
fn set_up_first_video(source: &gst::Element, tap: &Arc<Tap>) {
    const NONE: u32 = u32::MAX;
    let (chosen, offered) = (AtomicU32::new(NONE), Arc::clone(tap));
    source.connect("select-stream", false, move |values| {
        let number = values.get(1).and_then(|value| value.get::<u32>().ok())?;
        let caps = values.get(2).and_then(|value| value.get::<gst::Caps>().ok())?;
        let media = caps.structure(0).and_then(|structure| structure.get::<&str>("media").ok());
        offered.intake().telemetry().stream.update(|told| describe::track(&caps, number, told));
        if media != Some("video") {
            return Some(false.to_value());
        }
        offered.video_offered();
        // The same stream is asked about again when rtspsrc changes its transport.
        let first = chosen.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Acquire);
        let is_first_video = first.map_or_else(|known| known == number, |_| true);
        Some(is_first_video.to_value())
    });
}

/// The senders of a stream, and who waits for one of them to speak.
#[derive(Debug, Default)]
struct Voices {
    senders: Mutex<(Senders, usize)>,
    spoken: Condvar,
}

impl Voices {
    /// What to do with a packet of the sender `number`. Waits where nobody knows yet, which each sender has a thread for.
    fn hear(&self, number: usize, tap: &Tap) -> Hearing {
        let mut guard = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (senders, waiting) = &mut *guard;
            let now = Instant::now();
            let heard = senders.heard(number, now);
            let Hearing::HoldUntil(until) = heard else {
                if heard == Hearing::Listen && *waiting > 0 {
                    self.spoken.notify_all();
                }
                return heard;
            };
            if tap.is_closed() {
                return Hearing::Ignore;
            }
            *waiting += 1;
            let limit = until.saturating_duration_since(now).min(PATIENCE);
            guard = self.spoken.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0;
            guard.1 -= 1;
        }
    }
}

/// rtspsrc has a pad for each sender of the stream. The selector passes on those packets that are listened to.
fn listen(entry: &gst::Pad, number: usize, voices: &Arc<Voices>, tap: &Arc<Tap>) {
    let camera = tap.intake().camera().clone();
    if number > 0 {
        debug!(%camera, number, "another sender (SSRC) in the camera's stream");
    }
    let (voices, tap) = (Arc::clone(voices), Arc::clone(tap));
    entry.add_probe(gst::PadProbeType::BUFFER, move |entry, _| {
        if voices.hear(number, &tap) == Hearing::TakeOver
            && let Some(selector) = entry.parent_element()
        {
            if number > 0 {
                info!(%camera, "the camera goes on as another sender (SSRC)");
            }
            selector.set_property("active-pad", entry);
        }
        gst::PadProbeReturn::Ok
    });
    // A camera that changes its name again and again leaves none of them behind.
    entry.connect_unlinked(|entry, _| {
        if let Some(selector) = entry.parent_element() {
            selector.release_request_pad(entry);
        }
    });
}

/// Keeps from the video decoder what a new sender's pad says anew though nothing has changed: at each beginning it would
/// forget the pictures that the next ones refer to.
pub(super) fn begin_once(exit: &gst::Pad) {
    let told = Mutex::new((false, None::<gst::Segment>, None::<gst::Caps>));
    exit.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let Some(gst::PadProbeData::Event(event)) = &info.data else { return gst::PadProbeReturn::Ok };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = match event.view() {
            gst::EventView::StreamStart(_) => std::mem::replace(&mut told.0, true),
            gst::EventView::Segment(segment) => {
                let segment = segment.segment();
                told.1.replace(segment.clone()).as_ref() == Some(segment)
            }
            gst::EventView::Caps(caps) => {
                let caps = without_sender(caps.caps());
                told.2.replace(caps.clone()) == Some(caps)
            }
            _ => false,
        };
        if is_known { gst::PadProbeReturn::Handled } else { gst::PadProbeReturn::Ok }
    });
}

/// What a stream is, whoever sends it.
fn without_sender(caps: &gst::CapsRef) -> gst::Caps {
    let mut caps = caps.to_owned();
    if let Some(structure) = caps.make_mut().structure_mut(0) {
        for name in ["ssrc", "clock-base", "seqnum-base"] {
            structure.remove_field(name);
        }
    }
    caps
}

/// Takes marker bits off packets that end no picture.
fn mend(pad: &gst::Pad, camera: &CameraId) {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    let name = caps.structure(0).and_then(|structure| structure.get::<&str>("encoding-name").ok());
    let Some(codec) = name.and_then(Codec::from_encoding_name) else { return };
    let (told, camera) = (std::sync::Once::new(), camera.clone());
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if let Some(gst::PadProbeData::Buffer(buffer)) = &mut info.data
            && buffer.map_readable().is_ok_and(|packet| codec.ends_no_picture(&packet))
        {
            told.call_once(|| debug!(%camera, "it ends pictures with what is no picture; that is mended"));
            let buffer = buffer.make_mut();
            buffer.unset_flags(gst::BufferFlags::MARKER);
            if let Ok(mut packet) = buffer.map_writable() {
                rtp::unmark(&mut packet);
            }
        }
        gst::PadProbeReturn::Ok
    });
}

/// The camera tells the number of its first packet. The jitter buffer of 1.22 throws away, for ever and without a word, what
/// comes with a lower one: all that a camera sends whose numbers jump back. It is only of use where a stream begins
/// somewhere else than before, which a live one does not.
fn forget_first_number(buffer: &gst::Element) {
    let Some(pad) = buffer.static_pad("sink") else { return };
    pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, |_, info| {
        let Some(gst::PadProbeData::Event(event)) = &mut info.data else { return gst::PadProbeReturn::Ok };
        if let gst::EventView::Caps(caps) = event.view()
            && let Some(without) = without_first_number(caps.caps())
        {
            *event = gst::event::Caps::new(&without);
        }
        gst::PadProbeReturn::Ok
    });
}

fn without_first_number(caps: &gst::CapsRef) -> Option<gst::Caps> {
    const FIRST_NUMBER: &str = "seqnum-base";
    caps.structure(0).filter(|structure| structure.has_field(FIRST_NUMBER))?;
    let mut caps = caps.to_owned();
    caps.make_mut().structure_mut(0)?.remove_field(FIRST_NUMBER);
    Some(caps)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn only_the_first_packets_number_is_taken_out_of_what_a_stream_is() {
        gst::init().unwrap();
        let caps = |text| gst::Caps::from_str(text).unwrap();
        let told = caps("application/x-rtp,clock-rate=90000,seqnum-base=(uint)7,clock-base=(uint)9");
        let expected = caps("application/x-rtp,clock-rate=90000,clock-base=(uint)9");
        assert_eq!(without_first_number(&told), Some(expected.clone()));
        assert_eq!(without_first_number(&expected), None);
    }
}
