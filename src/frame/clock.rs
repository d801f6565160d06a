//! Capture time: when a picture was taken, and by whose clock.
//!
//! Inside, times are monotonic ([`Instant`]). A wall-clock time is made only where a message is written, from the
//! distance to now, so a step of the system clock moves the wall time and never an age.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Whose clock tells when a picture was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureClock {
    /// Ours, when the picture's data would have arrived with nothing in its way.
    Arrival,
    /// The camera's wall clock, which agrees with ours as far as can be seen.
    Rtcp,
    /// The camera driver's monotonic stamp.
    V4l2,
    /// Start of the run plus the position in the file: tells order and distance, not age.
    File,
    /// A synthetic source's own.
    Test,
}

impl CaptureClock {
    /// The name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Rtcp => "rtcp",
            Self::V4l2 => "v4l2",
            Self::File => "file",
            Self::Test => "test",
        }
    }
}

/// When a picture was taken.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// Whose clock says so.
    pub clock: CaptureClock,
    /// The time on our monotonic clock; for a file it may lie in the future.
    pub at: Instant,
    /// How far that may be off, if the clock is right; none where nothing tells.
    pub error: Option<Duration>,
}

impl Captured {
    /// A time of which nothing tells how far it may be off.
    #[must_use]
    pub fn new(clock: CaptureClock, at: Instant) -> Self {
        Self { clock, at, error: None }
    }

    /// Age at `now`; none for a file, whose pictures have no age.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        (self.clock != CaptureClock::File).then(|| now.saturating_duration_since(self.at))
    }
}

/// The wall-clock time of the monotonic `at`, given that `wall` and `now` are the same moment. Times outside of what a
/// timestamp can hold (beyond the year 9999) saturate.
#[must_use]
pub fn wall_time(at: Instant, now: Instant, wall: Timestamp) -> Timestamp {
    let shifted = if at <= now { wall.checked_sub(now - at) } else { wall.checked_add(at - now) };
    shifted.unwrap_or(if at <= now { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_keeps_the_distance_to_now_in_both_directions() {
        let now = Instant::now();
        let wall: Timestamp = "2026-11-30T21:04:05.5Z".parse().unwrap();
        let earlier = wall_time(now - Duration::from_millis(1500), now, wall);
        assert_eq!(earlier.to_string(), "2026-11-30T21:04:04Z");
        let later = wall_time(now + Duration::from_millis(500), now, wall);
        assert_eq!(later.to_string(), "2026-11-30T21:04:06Z");
    }

    #[test]
    fn a_file_has_no_age_and_an_age_is_never_negative() {
        let now = Instant::now();
        let live = Captured::new(CaptureClock::Arrival, now + Duration::from_secs(1));
        assert_eq!(live.age(now), Some(Duration::ZERO));
        assert_eq!(Captured::new(CaptureClock::File, now).age(now), None);
    }
}
