//! The senders of one RTSP stream begin one after the other.
//!
//! rtspsrc of 1.22 keeps the pad that it is making in one place for all senders (SSRC) of a stream. Where the first packets of
//! two come at the same time, on the thread of each, it mixes their pads up and then crashes: seen in one of some ten
//! connections to a camera with a stranger's packets in between ("Padname … is not unique"). So the first packet of each sender
//! waits here until the pad of the one before is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;

/// A pad is there within a few milliseconds, or never.
const LIMIT: Duration = Duration::from_millis(500);

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The sender whose pad is being made.
    whose: Mutex<Option<u64>>,
    free: Condvar,
    senders: AtomicU64,
}

impl Turns {
    /// The first packet of the sender that this jitter buffer is for waits for its turn.
    pub(super) fn watch(self: &Arc<Self>, buffer: &gst::Element) {
        let Some(pad) = buffer.static_pad("src") else { return };
        let (turns, sender) = (Arc::clone(self), self.senders.fetch_add(1, Ordering::Relaxed));
        let has_begun = Mutex::new(false);
        pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST, move |_, _| {
            let mut has_begun = has_begun.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut *has_begun, true) {
                // The first packet is through, whether a pad came of it or not.
                turns.give_back(Some(sender));
                return gst::PadProbeReturn::Remove;
            }
            turns.take(sender);
            gst::PadProbeReturn::Ok
        });
    }

    /// The pad of the sender whose turn it is is there.
    pub(super) fn pad_is_there(&self) {
        self.give_back(None);
    }

    fn take(&self, sender: u64) {
        let until = Instant::now() + LIMIT;
        let mut whose = self.whose.lock().unwrap_or_else(PoisonError::into_inner);
        while whose.is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            whose = self.free.wait_timeout(whose, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *whose = Some(sender);
    }

    /// The turn of this sender is over, or whoever's it is.
    fn give_back(&self, sender: Option<u64>) {
        let mut whose = self.whose.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() || *whose == sender {
            *whose = None;
            self.free.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_begins_when_the_one_before_is_through_and_not_before() {
        let turns = Turns::default();
        turns.take(0);
        // Another one's second packet ends nobody else's turn.
        turns.give_back(Some(7));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.take(1));
            std::thread::park_timeout(Duration::from_millis(30));
            assert!(!waits.is_finished());
            turns.pad_is_there();
            waits.join().unwrap();
        });
        assert_eq!(*turns.whose.lock().unwrap(), Some(1));
    }

    #[test]
    fn one_that_never_comes_to_a_pad_holds_nobody_up_for_long() {
        let turns = Turns::default();
        turns.take(0);
        turns.take(1);
        assert_eq!(*turns.whose.lock().unwrap(), Some(1));
    }
}
