//! When a batch is sealed. Pure: `now` comes in as an argument.
//!
//! A batch is sealed when it is full, when [`BatchingConfig::queue_delay_max`] has passed since its first frame, or when
//! the earliest deadline in it forces it: the deadline less the time that a run takes. *Full* is the device's largest
//! batch, or one frame of every camera that uses the model: when all have delivered, waiting can only make them late.

use std::time::{Duration, Instant};

use super::BatchingConfig;

/// Decides when one model's open batch is sealed.
#[derive(Debug)]
pub struct Batcher {
    size_max: usize,
    delay_max: Duration,
    /// Not less than what a run takes, for deadlines.
    run_time: Duration,
    /// Not more than what a run takes, for looking again.
    run_time_least: Duration,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    frames: usize,
    first_at: Instant,
    deadline: Option<Instant>,
}

/// What to do with the open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// There is none.
    Empty,
    /// It can wait for more frames until then.
    Wait(Instant),
    /// It runs now.
    Seal,
}

impl Batcher {
    /// A batcher for a session that takes `session_max` frames at most, used by `cameras` cameras.
    #[must_use]
    pub fn new(config: &BatchingConfig, session_max: usize, cameras: usize) -> Self {
        let size_max = config.size_max.min(session_max).min(cameras).max(1);
        Self {
            size_max,
            delay_max: config.queue_delay_max,
            run_time: Duration::ZERO,
            run_time_least: Duration::ZERO,
            open: None,
        }
    }

    /// Adds a frame, which must be done by `deadline` if it has one. Returns its slot.
    ///
    /// # Panics
    /// When the batch is full; ask [`Batcher::is_full`] first.
    pub fn push(&mut self, now: Instant, deadline: Option<Instant>) -> usize {
        let open = self.open.get_or_insert(Open { frames: 0, first_at: now, deadline: None });
        assert!(open.frames < self.size_max, "a full batch is sealed before another frame is pushed");
        open.frames += 1;
        open.deadline = match (open.deadline, deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        open.frames - 1
    }

    /// Whether the batch takes no more frames.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.open.is_some_and(|open| open.frames >= self.size_max)
    }

    /// What to do at `now`.
    #[must_use]
    pub fn poll(&self, now: Instant) -> Poll {
        let Some(open) = self.open else { return Poll::Empty };
        if self.is_full() {
            return Poll::Seal;
        }
        let mut until = open.first_at + self.delay_max;
        if let Some(deadline) = open.deadline {
            until = until.min(deadline.checked_sub(self.run_time).unwrap_or(now));
        }
        if now >= until { Poll::Seal } else { Poll::Wait(until) }
    }

    /// When the open batch got its first frame.
    #[must_use]
    pub fn open_since(&self) -> Option<Instant> {
        self.open.map(|open| open.first_at)
    }

    /// Closes the open batch and returns its number of frames.
    pub fn seal(&mut self) -> usize {
        self.open.take().map_or(0, |open| open.frames)
    }

    /// Until when more frames may be looked for, rather than waited for a batch that began to run at `began`: for three
    /// quarters of what a run takes at least. The last quarter lets the measured time fall when runs become faster.
    #[must_use]
    pub fn busy_until(&self, began: Instant) -> Instant {
        began + self.run_time_least * 3 / 4
    }

    /// Notes how long a batch ran. The guess for deadlines rises at once and falls slowly, so that none is missed for an
    /// optimistic guess; the guess for looking again falls at once and rises slowly, so that no result waits for it.
    pub fn ran(&mut self, time: Duration) {
        let slowly = |guess: Duration| (guess * 7 + time) / 8;
        self.run_time = time.max(slowly(self.run_time));
        self.run_time_least = time.min(slowly(self.run_time_least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn batcher(size_max: usize, session_max: usize, cameras: usize) -> Batcher {
        Batcher::new(&BatchingConfig { size_max, queue_delay_max: 5 * MS }, session_max, cameras)
    }

    #[test]
    fn a_batch_waits_for_the_delay_counted_from_its_first_frame() {
        let (mut batcher, start) = (batcher(8, 8, 8), Instant::now());
        assert_eq!(batcher.poll(start), Poll::Empty);
        assert_eq!(batcher.push(start, None), 0);
        assert_eq!(batcher.push(start + 4 * MS, None), 1);
        assert_eq!(batcher.poll(start + 4 * MS), Poll::Wait(start + 5 * MS));
        assert_eq!(batcher.poll(start + 5 * MS), Poll::Seal);
        assert_eq!(batcher.seal(), 2);
        assert_eq!(batcher.poll(start + 5 * MS), Poll::Empty);
    }

    #[test]
    fn a_batch_is_full_at_the_smallest_of_config_session_and_cameras() {
        for (config, session, cameras) in [(2, 8, 8), (8, 2, 8), (8, 8, 2)] {
            let (mut batcher, now) = (batcher(config, session, cameras), Instant::now());
            batcher.push(now, None);
            assert_ne!(batcher.poll(now), Poll::Seal);
            batcher.push(now, None);
            assert_eq!(batcher.poll(now), Poll::Seal);
        }
    }

    #[test]
    fn the_earliest_deadline_less_the_run_time_forces_a_batch() {
        let (mut batcher, start) = (batcher(8, 8, 8), Instant::now());
        batcher.ran(10 * MS);
        batcher.push(start, Some(start + 50 * MS));
        assert_eq!(batcher.poll(start), Poll::Wait(start + 5 * MS), "the delay comes first");
        batcher.push(start, Some(start + 13 * MS));
        assert_eq!(batcher.poll(start), Poll::Wait(start + 3 * MS));
        batcher.push(start, Some(start + 2 * MS));
        assert_eq!(batcher.poll(start), Poll::Seal, "no time to lose");
    }

    #[test]
    fn the_run_time_rises_at_once_and_falls_slowly() {
        let mut batcher = batcher(8, 8, 8);
        batcher.ran(8 * MS);
        batcher.ran(16 * MS);
        assert_eq!(batcher.run_time, 16 * MS);
        batcher.ran(8 * MS);
        assert_eq!(batcher.run_time, 15 * MS);
    }

    #[test]
    fn a_running_batch_is_left_alone_for_less_than_it_takes() {
        let (mut batcher, start) = (batcher(8, 8, 8), Instant::now());
        assert_eq!(batcher.busy_until(start), start, "nothing is known");
        for _ in 0..100 {
            batcher.ran(80 * MS);
        }
        let until = batcher.busy_until(start) - start;
        assert!(until > 55 * MS && until <= 60 * MS, "{until:?}");
        batcher.ran(8 * MS);
        assert_eq!(batcher.busy_until(start), start + 6 * MS, "falls at once");
    }
}
