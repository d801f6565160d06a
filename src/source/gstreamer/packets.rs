//! Sees the RTP packets of a camera's video, and its sender reports, as they pass.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gst::prelude::*;

use super::tap::Tap;
use crate::source::rtp::{Packet, Payload, Receiver, SenderReport};

/// Looks at each packet that `decodebin` gets from rtspsrc, which is after its jitter buffer: in order, without doubles.
pub(super) fn watch(decodebin: &gst::Element, tap: &Arc<Tap>) {
    let pad = decodebin.static_pad("sink").expect("decodebin has a sink pad");
    let tap = Arc::clone(tap);
    let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST;
    pad.add_probe(kinds, move |pad, info| {
        let now = Instant::now();
        match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => packet(&tap, pad, buffer, now),
            Some(gst::PadProbeData::BufferList(list)) => {
                list.iter().for_each(|buffer| packet(&tap, pad, buffer, now));
            }
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
}

/// Hears the sender reports that `source`, an rtspsrc, gets. Its jitter buffers pass them on.
pub(super) fn listen_to_reports(source: &gst::Element, tap: &Arc<Tap>) {
    let tap = Arc::clone(tap);
    source.connect("new-manager", false, move |values| {
        let manager = values.get(1)?.get::<gst::Element>().ok()?;
        let tap = Arc::clone(&tap);
        manager.connect("new-jitterbuffer", false, move |values| {
            let buffer = values.get(1)?.get::<gst::Element>().ok()?;
            let tap = Arc::clone(&tap);
            buffer.connect("handle-sync", false, move |values| {
                let sync = values.get(1)?.get::<gst::Structure>().ok()?;
                report(&tap, &sync);
                None
            });
            None
        });
        None
    });
}

fn packet(tap: &Tap, pad: &gst::Pad, buffer: &gst::BufferRef, now: Instant) {
    if buffer.n_memory() == 0 {
        return;
    }
    let Ok(bytes) = buffer.peek_memory(0).map_readable() else { return };
    let Some(packet) = Packet::parse(&bytes) else { return };
    let pts = buffer.pts().map(gst::ClockTime::nseconds);
    let lost = tap.with_receiver(|receiver| {
        receiver.get_or_insert_with(|| receiver_for(pad, now)).packet(&packet, pts, now)
    });
    let counts = tap.intake().telemetry();
    counts.packets.add(1);
    if lost > 0 {
        counts.packets_lost.add(lost);
    }
}

fn report(tap: &Tap, sync: &gst::StructureRef) {
    let Ok(buffer) = sync.get::<gst::Buffer>("sr-buffer") else { return };
    let Ok(bytes) = buffer.map_readable() else { return };
    let Some(report) = SenderReport::parse(&bytes) else { return };
    let (now, wall) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
    // A wall clock that is before 1970 says nothing.
    let Some(wall_ns) = wall.ok().and_then(|wall| i64::try_from(wall.as_nanos()).ok()) else { return };
    tap.with_receiver(|receiver| {
        if let Some(receiver) = receiver {
            receiver.report(&report, now, wall_ns);
        }
    });
}

fn receiver_for(pad: &gst::Pad, now: Instant) -> Receiver {
    let caps = pad.current_caps();
    let structure = caps.as_ref().and_then(|caps| caps.structure(0));
    let name = structure.and_then(|structure| structure.get::<&str>("encoding-name").ok());
    let rate = structure.and_then(|structure| structure.get::<i32>("clock-rate").ok());
    // All video has this rate.
    let rate = rate.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(90_000);
    Receiver::new(name.map_or(Payload::Other, Payload::from_encoding_name), rate, now)
}
