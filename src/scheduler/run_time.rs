//! How long a run takes, learned for each batch size of a lane, and what follows from it: how many of the frames that
//! wait run first, and whether waiting for one more pays.

use std::time::Duration;

/// A batch that is cheaper by less than this part is not worth the time that its frames wait for each other.
const WORTH: f64 = 0.97;
/// Of one run that takes longer than the last ones, so much is believed at once: the rest may be a hiccup.
const HICCUP: f64 = 2.0;
/// No run takes less, so that a ratio of two times is always a number.
const LEAST: f64 = 1e-6;

/// The batch sizes that a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes<'a> {
    /// Any number of frames costs what it costs.
    Any,
    /// Only these, ascending; a batch runs at the smallest that holds it, its other slots filled with anything.
    Fixed(&'a [usize]),
}

/// What runs take, for every number of frames from one to [`RunTimes::most`].
#[derive(Clone, Debug)]
pub struct RunTimes {
    /// What a run of so many frames typically takes, in seconds; entry 0 is one frame.
    typical: Vec<f64>,
    /// The size that runs so many frames.
    size: Vec<usize>,
    /// Of so many frames that wait, these run first.
    first: Vec<usize>,
    /// What it takes to run so many frames, in the best order of batches. Scratch.
    total: Vec<f64>,
    /// By how much the slowest and the fastest run of late differed from the typical one.
    slowest: f64,
    fastest: f64,
}

impl RunTimes {
    /// The frame counts that are worth measuring before the first frame comes: every fixed size, or for any size the
    /// powers of two; and the largest that is used.
    #[must_use]
    pub fn worth_measuring(sizes: Sizes<'_>, most: usize) -> Vec<usize> {
        let smaller = |size: &usize| *size < most;
        let mut counts: Vec<usize> = match sizes {
            Sizes::Any => std::iter::successors(Some(1), |size| Some(size * 2)).take_while(smaller).collect(),
            Sizes::Fixed(sizes) => sizes.iter().copied().filter(smaller).collect(),
        };
        counts.push(most);
        counts
    }

    /// What is known after `measured`: pairs of a number of frames, ascending, and what its run took. A lane never runs
    /// more than `most` frames at once. What was not measured is taken to lie on the line between its neighbours.
    #[must_use]
    pub fn new(sizes: Sizes<'_>, most: usize, measured: &[(usize, Duration)]) -> Self {
        let most = most.max(1);
        let size = |frames: usize| match sizes {
            Sizes::Any => frames,
            Sizes::Fixed(sizes) => sizes.iter().copied().find(|size| *size >= frames).unwrap_or(frames),
        };
        let mut times = Self {
            typical: (1..=most).map(|frames| on_the_line(measured, size(frames).min(most))).collect(),
            size: (1..=most).map(size).collect(),
            first: vec![1; most],
            total: vec![0.0; most + 1],
            slowest: 1.0,
            fastest: 1.0,
        };
        times.split();
        times
    }

    /// The most frames in one batch.
    #[must_use]
    pub fn most(&self) -> usize {
        self.typical.len()
    }

    /// What a run of so many frames takes as a rule.
    #[must_use]
    pub fn typical(&self, frames: usize) -> Duration {
        Duration::from_secs_f64(self.of(frames))
    }

    /// Not less than what it takes, as far as recent runs tell. For deadlines.
    #[must_use]
    pub fn slow(&self, frames: usize) -> Duration {
        Duration::from_secs_f64(self.of(frames) * self.slowest)
    }

    /// Not more than what it takes, as far as recent runs tell. For looking again.
    #[must_use]
    pub fn fast(&self, frames: usize) -> Duration {
        Duration::from_secs_f64(self.of(frames) * self.fastest)
    }

    /// The largest batch of at most `frames` that no slot of a fixed size is wasted on; `frames` if the smallest size is
    /// larger.
    #[must_use]
    pub fn whole(&self, frames: usize) -> usize {
        let frames = frames.clamp(1, self.most());
        (1..=frames).rev().find(|&count| self.size[count - 1] == count).unwrap_or(frames)
    }

    /// How many of `waiting` frames run first, if all are to be done soonest.
    #[must_use]
    pub fn first(&self, waiting: usize) -> usize {
        self.first[waiting.clamp(1, self.most()) - 1]
    }

    /// Whether one frame more is cheaper in a batch of `frames` than in a run of its own.
    #[must_use]
    pub fn gains(&self, frames: usize) -> bool {
        frames < self.most() && self.of(frames + 1) < WORTH * (self.of(frames) + self.of(1))
    }

    /// The least that one frame costs in a batch of at most `frames`.
    #[must_use]
    pub fn best_per_frame(&self, frames: usize) -> Duration {
        let frames = frames.clamp(1, self.most());
        #[expect(clippy::cast_precision_loss, reason = "a batch has few frames")]
        let least = (1..=frames).map(|count| self.of(count) / count as f64).fold(f64::INFINITY, f64::min);
        Duration::from_secs_f64(least)
    }

    /// Notes what a run of so many frames took. What is planned with for deadlines rises at once and falls slowly, and
    /// the other way round for looking again; what is typical follows slowly, for this size fully and for the others,
    /// since most of what makes a device slower makes it slower for all, by half.
    pub fn ran(&mut self, frames: usize, time: Duration) {
        let ratio = (time.as_secs_f64() / self.of(frames)).clamp(1.0 / HICCUP, HICCUP);
        self.slowest = ratio.max(1.0 + (self.slowest - 1.0) * 7.0 / 8.0);
        self.fastest = ratio.min(1.0 + (self.fastest - 1.0) * 7.0 / 8.0);
        let (own, others) = (1.0 + (ratio - 1.0) / 8.0, 1.0 + (ratio - 1.0) / 16.0);
        let size = self.size[frames.clamp(1, self.most()) - 1];
        for (typical, of) in self.typical.iter_mut().zip(&self.size) {
            *typical = (*typical * if *of == size { own } else { others }).max(LEAST);
        }
        self.split();
    }

    fn of(&self, frames: usize) -> f64 {
        self.typical[frames.clamp(1, self.most()) - 1]
    }

    /// Finds for each number of waiting frames the batch to begin with: of all that lead to (about) the least total time
    /// the one whose frames cost least each, and of those the smallest, whose results are there soonest.
    fn split(&mut self) {
        for waiting in 1..=self.most() {
            let total = |batch: usize| self.of(batch) + self.total[waiting - batch];
            let least = (1..=waiting).map(total).fold(f64::INFINITY, f64::min);
            let mut best = (1, f64::INFINITY);
            for batch in 1..=waiting {
                #[expect(clippy::cast_precision_loss, reason = "a batch has few frames")]
                let each = self.of(batch) / batch as f64;
                if total(batch) * WORTH <= least && each < best.1 * WORTH {
                    best = (batch, each);
                }
            }
            (self.total[waiting], self.first[waiting - 1]) = (least, best.0);
        }
    }
}

/// The time of so many frames, on the line through the measured neighbours.
fn on_the_line(measured: &[(usize, Duration)], frames: usize) -> f64 {
    let above = measured.partition_point(|(count, _)| *count < frames);
    let seconds = |at: usize| measured[at].1.as_secs_f64();
    let time = match (above.checked_sub(1), measured.get(above)) {
        (_, Some((count, _))) if *count == frames => seconds(above),
        #[expect(clippy::cast_precision_loss, reason = "a batch has few frames")]
        (Some(below), Some((count, _))) => {
            let part = (frames - measured[below].0) as f64 / (count - measured[below].0) as f64;
            seconds(below) + (seconds(above) - seconds(below)) * part
        }
        (None, Some(_)) => seconds(above),
        (Some(below), None) => seconds(below),
        (None, None) => 0.0,
    };
    time.max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A device that takes 10 ms a run and 1 ms a frame.
    fn affine(sizes: Sizes<'_>, most: usize) -> RunTimes {
        let counts = RunTimes::worth_measuring(sizes, most);
        let cost = |frames: usize| 10 * MS + MS * u32::try_from(frames).unwrap();
        let measured: Vec<_> = counts.into_iter().map(|frames| (frames, cost(frames))).collect();
        RunTimes::new(sizes, most, &measured)
    }

    fn close(a: Duration, b: Duration) -> bool {
        a.abs_diff(b) < MS / 100
    }

    #[test]
    fn the_sizes_that_matter_are_measured_and_the_others_lie_between() {
        assert_eq!(RunTimes::worth_measuring(Sizes::Any, 6), [1, 2, 4, 6]);
        assert_eq!(RunTimes::worth_measuring(Sizes::Any, 1), [1]);
        assert_eq!(RunTimes::worth_measuring(Sizes::Fixed(&[1, 4, 16]), 8), [1, 4, 8]);
        let times = affine(Sizes::Any, 12);
        assert!((1..=12).all(|n| close(times.typical(n), 10 * MS + MS * u32::try_from(n).unwrap())));
    }

    #[test]
    fn a_fixed_size_costs_what_it_costs_however_few_frames_are_in_it() {
        let times = affine(Sizes::Fixed(&[1, 2, 4, 8]), 8);
        assert!(close(times.typical(5), 18 * MS) && close(times.typical(3), 14 * MS));
        assert_eq!([1, 2, 3, 4, 5, 7, 8, 20].map(|n| times.whole(n)), [1, 2, 2, 4, 4, 4, 8, 8]);
    }

    #[test]
    fn the_best_split_follows_the_measured_cost() {
        // One run of 8 for five frames is cheaper than 4 + 1 where a run itself is dear, and dearer where it is not.
        assert_eq!(affine(Sizes::Fixed(&[1, 2, 4, 8]), 8).first(5), 5);
        let per_frame = [(1, 10 * MS), (2, 18 * MS), (4, 34 * MS), (8, 66 * MS)];
        assert_eq!(RunTimes::new(Sizes::Fixed(&[1, 2, 4, 8]), 8, &per_frame).first(5), 4);
        // A device that gains nothing by batches gives each result as soon as it can.
        let linear: Vec<_> = (1..=8).map(|n| (n as usize, 10 * MS * n)).collect();
        let linear = RunTimes::new(Sizes::Any, 8, &linear);
        assert_eq!(linear.first(8), 1);
        assert!(!linear.gains(1));
        let affine = affine(Sizes::Any, 8);
        assert_eq!((affine.first(3), affine.first(8)), (3, 8));
        assert!(affine.gains(7) && !affine.gains(8));
    }

    #[test]
    fn what_is_planned_with_rises_at_once_and_falls_slowly() {
        let mut times = affine(Sizes::Any, 8);
        times.ran(8, 27 * MS);
        assert!(times.slow(8) >= 27 * MS, "{:?}", times.slow(8));
        assert!(times.typical(8) < 20 * MS, "{:?}", times.typical(8));
        times.ran(8, 18 * MS);
        assert!(times.slow(8) > 24 * MS, "{:?}", times.slow(8));
        for _ in 0..200 {
            times.ran(8, 18 * MS);
        }
        assert!(close(times.slow(8), 18 * MS), "{:?}", times.slow(8));
        times.ran(8, 10 * MS);
        assert!(times.fast(8) <= 10 * MS, "falls at once: {:?}", times.fast(8));
    }

    #[test]
    fn a_hiccup_is_believed_in_part_only() {
        let mut times = affine(Sizes::Any, 8);
        times.ran(1, Duration::from_secs(5));
        assert!(times.slow(1) < 26 * MS, "{:?}", times.slow(1));
    }

    #[test]
    fn a_device_that_became_slower_is_slower_for_every_size() {
        let mut times = affine(Sizes::Any, 8);
        for _ in 0..400 {
            times.ran(8, 36 * MS);
        }
        assert!(close(times.typical(8), 36 * MS), "{:?}", times.typical(8));
        assert!(times.typical(1) > 15 * MS, "{:?}", times.typical(1));
    }
}
