//! When the frames of a file that is played as if it were a camera are due. Pure.

use std::time::{Duration, Instant};

use super::{Rate, Replay};

/// The distance of two frames where a file does not tell it: of a first frame to the one before, and of one without a
/// time.
const STEP: Duration = Duration::from_millis(40);

/// Says when each frame is due.
#[derive(Debug)]
pub(super) struct Metronome {
    /// The distance of all frames; as their times say, when none.
    period: Option<Duration>,
    /// When the frame before was due.
    due: Option<Instant>,
    /// Where the frame before was in the file.
    position: Option<Duration>,
    step: Duration,
}

impl Metronome {
    /// A metronome for a file that is played like this; none where frames come as they are taken.
    pub(super) fn new(replay: Replay) -> Option<Self> {
        let period = match replay {
            Replay::OwnPace => None,
            Replay::Rate(Rate::PerSecond(rate)) => Some(Duration::from_secs_f64(1.0 / rate)),
            Replay::Rate(Rate::Max) => return None,
        };
        Some(Self { period, due: None, position: None, step: STEP })
    }

    /// When the next frame is due, which is at this position in the file and was there to be delivered at `now`. A file
    /// that fell behind makes no burst to catch up.
    pub(super) fn due(&mut self, now: Instant, position: Option<Duration>) -> Instant {
        let since = position.zip(self.position).and_then(|(this, last)| this.checked_sub(last));
        // Where the file begins again its times do, too: the last distance goes on.
        self.step = self.period.or(since.filter(|since| !since.is_zero())).unwrap_or(self.step);
        self.position = position;
        let due = self.due.map_or(now, |due| due + self.step);
        let due = if now > due + self.step { now } else { due };
        self.due = Some(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn frames_come_at_the_rate_and_make_no_burst_after_a_pause() {
        let (start, mut metronome) =
            (Instant::now(), Metronome::new(Replay::Rate(Rate::PerSecond(100.0))).unwrap());
        let mut due = |now: u32| metronome.due(start + now * MS, None).duration_since(start).as_millis();
        assert_eq!([due(0), due(1), due(2), due(33)], [0, 10, 20, 30]);
        assert_eq!([due(1000), due(1001), due(1012)], [1000, 1010, 1020]);
    }

    #[test]
    fn a_file_keeps_its_own_pace_also_where_it_begins_again() {
        let (start, mut metronome) = (Instant::now(), Metronome::new(Replay::OwnPace).unwrap());
        let positions = [0, 20, 60, 80, 0, 20, 60];
        let due = positions.map(|ms| metronome.due(start, Some(ms * MS)).duration_since(start).as_millis());
        assert_eq!(due, [0, 20, 60, 80, 100, 120, 160]);
    }

    #[test]
    fn a_file_that_is_played_as_fast_as_it_is_taken_needs_none() {
        assert!(Metronome::new(Replay::Rate(Rate::Max)).is_none());
    }
}
