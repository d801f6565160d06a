//! The states of a camera, and when it is tried again. Pure: time and chance come in as arguments.

use std::time::Duration;

/// What a camera is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameraState {
    /// Being opened; no frame yet.
    Connecting,
    /// Frames come.
    Live,
    /// It failed or broke, for this reason, and is tried again and again.
    Reconnecting {
        /// Why, in words, without secrets.
        reason: String,
    },
    /// A file came to its end.
    Ended,
    /// A file could not be read to its end, for this reason. It is not tried again.
    Failed {
        /// Why, in words.
        reason: String,
    },
}

impl CameraState {
    /// Every name.
    pub const NAMES: [&str; 5] = ["connecting", "live", "reconnecting", "ended", "failed"];

    /// The name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Reconnecting { .. } => "reconnecting",
            Self::Ended => "ended",
            Self::Failed { .. } => "failed",
        }
    }

    /// Why, where there is a why.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Reconnecting { reason, .. } | Self::Failed { reason } => Some(reason),
            Self::Connecting | Self::Live | Self::Ended => None,
        }
    }

    /// Whether opening the camera has been tried, with whatever outcome.
    #[must_use]
    pub fn is_tried(&self) -> bool {
        *self != Self::Connecting
    }

    /// Whether no frame will ever come again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Ended | Self::Failed { .. })
    }
}

/// How long to wait before the next try: doubling from [`Backoff::FIRST`] to [`Backoff::MAX`], each time somewhere in the
/// upper half of that, so that cameras behind one switch do not come back in step. A camera that was live is likely to
/// come back soon (a restart, a cable): for the first [`Backoff::HOPE`] of an outage it waits at most
/// [`Backoff::MAX_IN_HOPE`].
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    /// How long it is still hoped for.
    hope: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: Self::FIRST, hope: Duration::ZERO }
    }
}

impl Backoff {
    /// The first wait, before chance.
    pub const FIRST: Duration = Duration::from_millis(200);
    /// The longest wait.
    pub const MAX: Duration = Duration::from_secs(30);
    /// A camera that was live for this long begins with the first wait again.
    pub const RESET_AFTER: Duration = Duration::from_secs(60);
    /// The sum of the waits in which a camera that was live is hoped to come back soon.
    pub const HOPE: Duration = Duration::from_secs(60);
    /// The longest wait in that time.
    pub const MAX_IN_HOPE: Duration = Duration::from_secs(2);

    /// The next wait. `live` is how long the connection that just ended had delivered frames, `chance` a random number
    /// in `0.0..1.0`.
    pub fn next(&mut self, live: Duration, chance: f64) -> Duration {
        if live > Duration::ZERO {
            self.hope = Self::HOPE;
        }
        if live >= Self::RESET_AFTER {
            self.next = Self::FIRST;
        }
        let max = if self.hope.is_zero() { Self::MAX } else { Self::MAX_IN_HOPE };
        self.next = self.next.min(max);
        let wait = self.next.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        self.hope = self.hope.saturating_sub(wait);
        self.next = (self.next * 2).min(Self::MAX);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_cap_and_chance_takes_at_most_half() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..10).map(|_| backoff.next(Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(backoff.next(Duration::ZERO, 0.0), Duration::from_secs(15));
    }

    #[test]
    fn a_camera_that_was_live_is_tried_again_soon() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.next(Duration::ZERO, 1.0);
        }
        assert_eq!(backoff.next(Duration::from_secs(5), 1.0), Backoff::MAX_IN_HOPE);
        assert_eq!(backoff.next(Duration::from_secs(600), 1.0), Backoff::FIRST);
    }

    #[test]
    fn a_camera_that_was_live_waits_at_most_two_seconds_for_a_minute_and_then_ever_longer() {
        let mut backoff = Backoff::default();
        let mut outage = backoff.next(Duration::from_secs(5), 1.0);
        while outage < Duration::from_secs(60) {
            let wait = backoff.next(Duration::ZERO, 1.0);
            assert!(wait <= Backoff::MAX_IN_HOPE, "{wait:?} after {outage:?}");
            outage += wait;
        }
        let waits: Vec<_> = (0..5).map(|_| backoff.next(Duration::ZERO, 1.0).as_secs()).collect();
        assert_eq!(waits, [4, 8, 16, 30, 30]);
    }
}
