//! A lane's open batch: the frames that are written into it and wait for it to run.

use std::time::{Duration, Instant};

use super::fairness::Rank;
use super::run_time::RunTimes;

/// A batch is sealed so much before its deadline forces it, for the time that waking up takes.
const WAKING: Duration = Duration::from_micros(500);
/// Of work that takes longer than before, at most so many times what it took is believed at once.
const HICCUP: u32 = 2;

/// A frame in an open batch.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Its route.
    pub route: usize,
    /// Its place among all frames that wait.
    pub rank: Rank,
    /// In which turn of the device it was written.
    pub turn: u64,
}

/// A lane's open batch, and what its frames cost.
#[derive(Clone, Debug)]
pub struct Batcher {
    times: RunTimes,
    written: Vec<Written>,
    /// What it takes to write a frame, and to make its event of the output: not less, as far as recent ones tell.
    preprocess: Learned,
    postprocess: Learned,
}

/// When the open batch is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Now.
    Now,
    /// Then, if nothing else happens.
    At(Instant),
}

impl Batcher {
    /// An empty batch of a lane with these run times.
    #[must_use]
    pub fn new(times: RunTimes) -> Self {
        let written = Vec::with_capacity(times.most());
        Self { times, written, preprocess: Learned::default(), postprocess: Learned::default() }
    }

    /// The run times.
    #[must_use]
    pub fn times(&self) -> &RunTimes {
        &self.times
    }

    /// The frames in it, by slot.
    #[must_use]
    pub fn written(&self) -> &[Written] {
        &self.written
    }

    /// What writing so many frames takes.
    #[must_use]
    pub fn preprocess(&self, frames: usize) -> Duration {
        self.preprocess.times(frames)
    }

    /// From the start of a run of so many frames to the last of its events, if it is slow.
    #[must_use]
    pub fn service(&self, frames: usize) -> Duration {
        self.times.slow(frames) + self.postprocess.times(frames)
    }

    /// The same, typically, for a device that blocks: with the time in which frames are written and events made.
    #[must_use]
    pub fn best_per_frame(&self, frames: usize) -> Duration {
        self.times.best_per_frame(frames) + self.preprocess.0 + self.postprocess.0
    }

    /// The slot with the frame that gives way first.
    #[must_use]
    pub fn last(&self) -> Option<usize> {
        (0..self.written.len()).max_by_key(|&slot| self.written[slot].rank)
    }

    /// The best place of a frame in it.
    #[must_use]
    pub fn head(&self) -> Option<Rank> {
        self.written.iter().map(|written| written.rank).min()
    }

    /// The earliest deadline in it that a run from `start` keeps.
    #[must_use]
    pub fn tightest(&self, start: Instant) -> Option<Instant> {
        let end = start + self.service(self.written.len());
        self.written
            .iter()
            .filter_map(|written| written.rank.deadline)
            .filter(|deadline| *deadline >= end)
            .min()
    }

    /// When it must run for the sake of its frames: the earliest deadline, or the oldest frame of those that wait for it
    /// has waited for `delay_max`.
    #[must_use]
    pub fn seal(&self, oldest: Instant, delay_max: Duration, now: Instant) -> Seal {
        if self.written.len() >= self.times.most() || !self.times.gains(self.written.len()) {
            return Seal::Now;
        }
        let mut at = oldest + delay_max;
        if let Some(deadline) = self.tightest(now) {
            at = at.min(deadline.checked_sub(self.service(self.written.len()) + WAKING).unwrap_or(now));
        }
        if at <= now { Seal::Now } else { Seal::At(at) }
    }

    /// Puts a frame into this slot: the next one, or one whose frame gives way.
    pub fn put(&mut self, slot: usize, written: Written, took: Duration) {
        self.preprocess.learn(took);
        match self.written.get_mut(slot) {
            Some(place) => *place = written,
            None => self.written.push(written),
        }
    }

    /// Takes the frame out of the last slot.
    pub fn pop(&mut self) -> Option<Written> {
        self.written.pop()
    }

    /// Takes all frames out and says how many there were.
    pub fn take(&mut self) -> usize {
        let frames = self.written.len();
        self.written.clear();
        frames
    }

    /// Notes what a run of so many frames took.
    pub fn ran(&mut self, frames: usize, time: Duration) {
        self.times.ran(frames, time);
    }

    /// Notes what it took to make the events of so many frames.
    pub fn concluded(&mut self, frames: usize, took: Duration) {
        self.postprocess.learn(took / u32::try_from(frames.max(1)).unwrap_or(u32::MAX));
    }
}

/// A time that rises at once and falls slowly.
#[derive(Clone, Copy, Debug, Default)]
struct Learned(Duration);

impl Learned {
    fn learn(&mut self, took: Duration) {
        let believed = if self.0.is_zero() { took } else { took.min(self.0 * HICCUP) };
        self.0 = believed.max((self.0 * 7 + believed) / 8);
    }

    fn times(self, frames: usize) -> Duration {
        self.0 * u32::try_from(frames).unwrap_or(u32::MAX)
    }
}
