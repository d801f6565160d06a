//! Whose packets are taken, of the senders in one stream: a pure decider.
//!
//! Each RTP packet names its sender (SSRC). A stream should have one. Some cameras take another name while they go on, and
//! some send packets of a second name among their own. Who came first is listened to. Another one's first packet is held
//! until the one before speaks again, which makes it a stranger, or has been silent for so long that it takes over, without
//! a packet lost.

use std::time::{Duration, Instant};

/// For so long at least a sender must have been silent before another one takes over.
const SILENCE_MIN: Duration = Duration::from_millis(300);

/// And for so long at most: by then the camera is as good as gone.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Which sender is listened to.
#[derive(Debug)]
pub(super) struct Senders {
    chosen: usize,
    /// When its newest packet came; none before the first.
    newest: Option<Instant>,
    /// How long it pauses between two packets, at most, of late; while little is known of it, rather too long.
    pause: Duration,
    /// Another one that spoke, and the newest packet of the chosen one then.
    other: Option<(usize, Instant)>,
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    /// It is of the one that is listened to.
    Listen,
    /// It is of the one that is listened to from now on.
    TakeOver,
    /// It is of a stranger.
    Ignore,
    /// Nobody knows yet. It is asked about again when the chosen one has spoken, and at this time.
    HoldUntil(Instant),
}

impl Default for Senders {
    fn default() -> Self {
        Self { chosen: 0, newest: None, pause: SILENCE_MAX / 2, other: None }
    }
}

impl Senders {
    /// A packet of the sender `number` (the first one is 0) is there at `now`.
    pub(super) fn heard(&mut self, number: usize, now: Instant) -> Hearing {
        let Some(newest) = self.newest else { return self.take_over(number, now) };
        if number == self.chosen {
            self.pause = now.saturating_duration_since(newest).max(self.pause - self.pause / 16);
            self.newest = Some(now);
            return Hearing::Listen;
        }
        let until = newest + (2 * self.pause).clamp(SILENCE_MIN, SILENCE_MAX);
        if now >= until {
            return self.take_over(number, now);
        }
        match self.other {
            Some((other, then)) if other == number && then != newest => Hearing::Ignore,
            _ => {
                self.other = Some((number, newest));
                Hearing::HoldUntil(until)
            }
        }
    }

    fn take_over(&mut self, number: usize, now: Instant) -> Hearing {
        *self = Self { chosen: number, newest: Some(now), pause: self.pause, other: None };
        Hearing::TakeOver
    }
}

#[cfg(test)]
mod tests {
    use super::Hearing::{HoldUntil, Ignore, Listen, TakeOver};
    use super::*;

    /// What is done with packets of these senders at these times; a time to hold one until is told from the first packet.
    fn heard(packets: impl IntoIterator<Item = (usize, u64)>) -> Vec<Hearing> {
        let (start, mut senders) = (Instant::now(), Senders::default());
        let at = |ms| start + Duration::from_millis(ms);
        packets.into_iter().map(|(number, ms)| senders.heard(number, at(ms))).collect()
    }

    #[test]
    fn a_stranger_among_the_packets_of_a_camera_is_never_listened_to() {
        // Five pictures a second, and a packet of the stranger's behind each.
        let seen = heard((0..100).flat_map(|n| [(0, n * 200), (1, n * 200 + 1)]));
        assert_eq!(seen[0], TakeOver);
        assert!(matches!(seen[1], HoldUntil(_)));
        assert!(seen[2..].chunks(2).all(|pair| pair == [Listen, Ignore]), "{seen:?}");
    }

    #[test]
    fn a_stranger_does_not_get_into_the_pauses_of_a_slow_camera() {
        let seen = heard((0..20).flat_map(|n| [(0, n * 1000), (0, n * 1000 + 1), (1, n * 1000 + 900)]));
        assert!(!seen[1..].contains(&TakeOver), "{seen:?}");
    }

    #[test]
    fn a_camera_that_goes_on_under_another_name_loses_no_packet() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut senders = Senders::default();
        let mut heard = |number, ms| senders.heard(number, at(ms));
        assert_eq!(heard(0, 0), TakeOver);
        assert!((1..=100).all(|n| heard(0, n * 40) == Listen));
        assert_eq!(heard(1, 4040), HoldUntil(at(4300)), "its first packet waits");
        assert_eq!([heard(1, 4300), heard(1, 4301), heard(1, 4302)], [TakeOver, Listen, Listen]);
        assert!(matches!(heard(0, 4340), HoldUntil(_)), "and back again");
        assert_eq!(heard(1, 4342), Listen);
        assert_eq!(heard(0, 4343), Ignore, "it was only late");
    }
}
