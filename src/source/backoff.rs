//! When a camera is tried again. Pure: chance comes in as an argument.

use std::time::Duration;

use crate::telemetry::FailureCause;

/// How long to wait before the next try: doubling from [`Backoff::FIRST`] to [`Backoff::MAX`], each time somewhere in the
/// upper half of that, so that cameras behind one switch do not come back in step. A camera that was live is likely to
/// come back soon (a restart, a cable): for the first [`Backoff::HOPE`] of an outage it waits at most
/// [`Backoff::MAX_IN_HOPE`]. A cause may want a longer wait than that, such as a wrong password.
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
    pub fn next(&mut self, cause: FailureCause, live: Duration, chance: f64) -> Duration {
        if live > Duration::ZERO {
            self.hope = Self::HOPE;
        }
        if live >= Self::RESET_AFTER {
            self.next = Self::FIRST;
        }
        let max = if self.hope.is_zero() { Self::MAX } else { Self::MAX_IN_HOPE };
        self.next = self.next.min(max).max(least(cause));
        let wait = self.next.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        self.hope = self.hope.saturating_sub(wait);
        self.next = (self.next * 2).min(Self::MAX);
        wait
    }

    /// Whether a camera that was live is still hoped to come back soon, so that a refusal may be part of its restart.
    #[must_use]
    pub fn has_hope(&self) -> bool {
        !self.hope.is_zero()
    }
}

/// Whether waiting does not help: a person must mend it.
#[must_use]
pub fn wants_a_person(cause: FailureCause) -> bool {
    match cause {
        FailureCause::Unauthorized
        | FailureCause::NotFound
        | FailureCause::Unusable
        | FailureCause::Local => true,
        FailureCause::Refused
        | FailureCause::Unreachable
        | FailureCause::Protocol
        | FailureCause::Broken
        | FailureCause::Stale => false,
    }
}

/// The shortest wait after it, before chance. Cameras lock out who tries a wrong password too often.
fn least(cause: FailureCause) -> Duration {
    match cause {
        FailureCause::Unauthorized => Duration::from_secs(5),
        FailureCause::Unusable | FailureCause::Local => Duration::from_secs(2),
        FailureCause::NotFound => Duration::from_millis(500),
        FailureCause::Refused
        | FailureCause::Unreachable
        | FailureCause::Protocol
        | FailureCause::Broken
        | FailureCause::Stale => Backoff::FIRST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_cap_and_chance_takes_at_most_half() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> =
            (0..10).map(|_| backoff.next(FailureCause::Refused, Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(backoff.next(FailureCause::Refused, Duration::ZERO, 0.0), Duration::from_secs(15));
    }

    #[test]
    fn a_camera_that_was_live_is_tried_again_soon() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.next(FailureCause::Refused, Duration::ZERO, 1.0);
        }
        assert_eq!(backoff.next(FailureCause::Refused, Duration::from_secs(5), 1.0), Backoff::MAX_IN_HOPE);
        assert_eq!(backoff.next(FailureCause::Refused, Duration::from_secs(600), 1.0), Backoff::FIRST);
    }

    #[test]
    fn a_camera_that_was_live_waits_at_most_two_seconds_for_a_minute_and_then_ever_longer() {
        let mut backoff = Backoff::default();
        let mut outage = backoff.next(FailureCause::Refused, Duration::from_secs(5), 1.0);
        while outage < Duration::from_secs(60) {
            let wait = backoff.next(FailureCause::Refused, Duration::ZERO, 1.0);
            assert!(wait <= Backoff::MAX_IN_HOPE, "{wait:?} after {outage:?}");
            outage += wait;
        }
        let waits: Vec<_> =
            (0..5).map(|_| backoff.next(FailureCause::Refused, Duration::ZERO, 1.0).as_secs()).collect();
        assert_eq!(waits, [4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_wrong_password_is_tried_slowly_from_the_first_time_on() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> =
            (0..4).map(|_| backoff.next(FailureCause::Unauthorized, Duration::ZERO, 1.0).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 30]);
        let mut restarted = Backoff::default();
        restarted.next(FailureCause::Broken, Duration::from_secs(600), 1.0);
        assert!(restarted.has_hope());
        assert_eq!(restarted.next(FailureCause::Unauthorized, Duration::ZERO, 1.0), Duration::from_secs(5));
        assert_eq!(restarted.next(FailureCause::Refused, Duration::ZERO, 1.0), Backoff::MAX_IN_HOPE);
    }
}
