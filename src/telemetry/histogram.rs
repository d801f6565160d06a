//! How long things take, counted so that the frame path can afford it.
//!
//! A [`Histogram`] is an array of counters, one for each range of values whose ends are less than 2 % apart (64 ranges for
//! each doubling, the layout of HDR histograms), so a value is told to 1 %. Noting one is two relaxed additions: no lock,
//! no allocation, no system call. What a reader wants beside (the last minute, quantiles, sums over ranges) it makes
//! from what the counters have grown by, on its own side: see [`Distribution`].
//!
//! A histogram takes 6.5 KB, and what its reader keeps about 16 bytes for each range that was ever hit and for each that
//! was hit in one of the last six slots of 10 s: some KB more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Ranges for each doubling, as a power of two.
const RANGE_BITS: u32 = 6;
/// Values are below this, in microseconds, as a power of two: 18 minutes.
const MAX_BITS: u32 = 30;
/// Ranges in all. The first 128 hold one microsecond each.
const RANGES: usize = ((MAX_BITS - RANGE_BITS + 1) as usize) << RANGE_BITS;

/// The last minute is told to this.
pub const SLOT: Duration = Duration::from_secs(10);
/// What "the last minute" means.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The ends of the coarse ranges that metrics are exposed with, in microseconds: from a preprocess pass to a stalled
/// broker, close where deadlines are.
pub const BOUNDS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// Counts of durations, from a microsecond to 18 minutes, each told to 1 %. Any number of threads may add.
#[derive(Debug)]
pub struct Histogram {
    /// These may wrap: a reader only looks how far they went since it last looked.
    ranges: Box<[AtomicU32]>,
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { ranges: (0..RANGES).map(|_| AtomicU32::new(0)).collect(), sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Notes one value; one that is longer than 18 minutes counts as that.
    pub fn record(&self, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX).min((1 << MAX_BITS) - 1);
        self.ranges[range_of(micros)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// The range that a value of less than `1 << MAX_BITS` is in.
fn range_of(micros: u64) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(RANGE_BITS + 1);
    let range = (u64::from(shift) << RANGE_BITS) + (micros >> shift);
    usize::try_from(range).expect("there are 1600 ranges")
}

/// The middle of a range, in microseconds.
fn middle_of(range: usize) -> u64 {
    let shift = (range >> RANGE_BITS).saturating_sub(1);
    let first = (range - (shift << RANGE_BITS)) as u64;
    (first << shift) + ((1 << shift) >> 1)
}

/// How many values were in each range: of a distribution, of several together, or what came between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![0; RANGES])
    }
}

impl Counts {
    /// Adds all that a distribution holds.
    pub fn add(&mut self, distribution: &Distribution) {
        let memory = distribution.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let held = Self::of([&memory.before, &memory.news(&distribution.histogram)]);
        self.0.iter_mut().zip(held.0).for_each(|(count, more)| *count += more);
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// The quantiles, if there is any value.
    #[must_use]
    pub fn quantiles(&self) -> Option<Quantiles> {
        self.count_and_quantiles().1
    }

    fn of<'a>(parts: impl IntoIterator<Item = &'a Hits>) -> Self {
        let mut counts = vec![0; RANGES];
        for &(range, count) in parts.into_iter().flat_map(|hits| &hits.0) {
            counts[usize::from(range)] += count;
        }
        Self(counts)
    }

    fn hits(&self) -> Hits {
        Hits((0_u16..).zip(self.0.iter().copied()).filter(|(_, count)| *count > 0).collect())
    }

    fn at_most(&self) -> [u64; BOUNDS_US.len()] {
        let (mut range, mut count) = (0, 0);
        BOUNDS_US.map(|bound| {
            while range < RANGES && middle_of(range) <= bound {
                count += self.0[range];
                range += 1;
            }
            count
        })
    }

    /// How many values there are, and their quantiles.
    fn count_and_quantiles(&self) -> (u64, Option<Quantiles>) {
        let count: u64 = self.0.iter().sum();
        if count == 0 {
            return (0, None);
        }
        // Ranks count from 1; the last one is the largest value.
        let ranks = [50, 95, 99, 100].map(|percent| (count * percent).div_ceil(100));
        let (mut range, mut seen) = (0, self.0[0]);
        let [p50, p95, p99, max] = ranks.map(|rank| {
            while seen < rank {
                range += 1;
                seen += self.0[range];
            }
            ms(middle_of(range))
        });
        (count, Some(Quantiles { p50, p95, p99, max }))
    }
}

/// The ranges that hold anything, in their order, and how many values: what [`Counts`] says in less memory.
#[derive(Clone, Debug, Default)]
struct Hits(Vec<(u16, u64)>);

/// What half, 95 % and 99 % of the values do not exceed, and the largest, in milliseconds and to 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// 95 % do not exceed it.
    pub p95: f64,
    /// 99 % do not exceed it.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
}

/// A histogram together with what its readers remember, so that they can tell the last minute from all before.
///
/// [`Distribution::turn`] must be called at least every [`SLOT`] for the last minute to be one. Readers share a lock that
/// whoever notes a value never takes.
#[derive(Debug, Default)]
pub struct Distribution {
    histogram: Histogram,
    memory: Mutex<Memory>,
}

/// What readers remember.
#[derive(Debug, Default)]
struct Memory {
    /// All values up to the last turn.
    before: Hits,
    /// What came in each slot, and when that slot ended, oldest first.
    slots: VecDeque<(Instant, Hits)>,
}

/// What a [`Distribution`] holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// How many values there are.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// How many of them are at most as long as each of [`BOUNDS_US`], to 1 %.
    pub at_most: [u64; BOUNDS_US.len()],
    /// Their quantiles, if there is any.
    pub quantiles: Option<Quantiles>,
    /// How many values there are of the last minute and at most one slot before it.
    pub minute_count: u64,
    /// The quantiles of those.
    pub minute_quantiles: Option<Quantiles>,
}

impl Distribution {
    /// Notes one value. Takes no lock and allocates nothing.
    pub fn record(&self, value: Duration) {
        self.histogram.record(value);
    }

    /// Ends a slot at `now` if the last one ended long enough ago. For readers.
    pub fn turn(&self, now: Instant) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.slots.back().is_some_and(|(ended, _)| now.saturating_duration_since(*ended) < SLOT) {
            return;
        }
        let hits = memory.news(&self.histogram);
        memory.before = Counts::of([&memory.before, &hits]).hits();
        memory.slots.push_back((now, hits));
        while memory.slots.front().is_some_and(|(ended, _)| !is_recent(*ended, now)) {
            memory.slots.pop_front();
        }
    }

    /// What it holds at `now`. For readers.
    #[must_use]
    pub fn read(&self, now: Instant) -> Reading {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = Duration::from_micros(self.histogram.sum_us.load(Ordering::Relaxed));
        let news = memory.news(&self.histogram);
        let all = Counts::of([&memory.before, &news]);
        let recent = memory.slots.iter().filter(|(ended, _)| is_recent(*ended, now)).map(|(_, hits)| hits);
        let (minute_count, minute_quantiles) = Counts::of(recent.chain([&news])).count_and_quantiles();
        let (count, quantiles) = all.count_and_quantiles();
        Reading { count, sum, at_most: all.at_most(), quantiles, minute_count, minute_quantiles }
    }
}

impl Memory {
    /// What came since the last turn.
    fn news(&self, histogram: &Histogram) -> Hits {
        let mut before = self.before.0.iter().peekable();
        let grown = |(range, counter): (u16, &AtomicU32)| {
            let known = before.next_if(|(known, _)| *known == range).map_or(0, |(_, count)| *count);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the counter holds the lower half of the count"
            )]
            let count = counter.load(Ordering::Relaxed).wrapping_sub(known as u32);
            (count > 0).then(|| (range, u64::from(count)))
        };
        Hits((0_u16..).zip(&histogram.ranges).filter_map(grown).collect())
    }
}

fn is_recent(ended: Instant, now: Instant) -> bool {
    now.saturating_duration_since(ended) < MINUTE
}

#[expect(clippy::cast_precision_loss, reason = "at most 18 minutes in microseconds")]
fn ms(micros: u64) -> f64 {
    micros as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn millis(distribution: &Distribution, count: usize, ms: u64) {
        (0..count).for_each(|_| distribution.record(Duration::from_millis(ms)));
    }

    #[test]
    fn ranges_follow_one_another_without_a_gap_and_are_less_than_2_percent_wide() {
        let mut last = range_of(0);
        for micros in 1..300_000_u64 {
            let range = range_of(micros);
            assert!(range == last || range == last + 1, "{micros}");
            last = range;
        }
        assert_eq!(range_of((1 << MAX_BITS) - 1), RANGES - 1);
        for range in 0..RANGES {
            assert_eq!(range_of(middle_of(range)), range);
        }
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_an_exact_sort_to_1_percent(
            mut micros in prop::collection::vec((0_u32..30).prop_flat_map(|bits| 0_u64..1 << bits), 1..400)
        ) {
            let histogram = Distribution::default();
            micros.iter().for_each(|&value| histogram.record(Duration::from_micros(value)));
            micros.sort_unstable();
            let reading = histogram.read(Instant::now());
            let found = reading.quantiles.unwrap();
            let exact = |part: usize| ms(micros[(micros.len() * part).div_ceil(100).max(1) - 1]);
            for (found, exact) in
                [(found.p50, exact(50)), (found.p95, exact(95)), (found.p99, exact(99)), (found.max, exact(100))]
            {
                prop_assert!((found - exact).abs() <= exact * 0.01, "{found} for {exact}");
            }
            prop_assert_eq!(reading.count, micros.len() as u64);
            prop_assert_eq!(reading.sum, Duration::from_micros(micros.iter().sum()));
        }
    }

    #[test]
    fn the_last_minute_forgets_what_is_older_and_the_start_does_not() {
        let (distribution, start) = (Distribution::default(), Instant::now());
        let mut now = start;
        let mut pass = |seconds: u32| {
            for _ in 0..seconds {
                now += SECOND;
                distribution.turn(now);
            }
            now
        };
        millis(&distribution, 100, 500);
        let now = pass(30);
        assert_eq!(distribution.read(now).minute_count, 100);
        millis(&distribution, 50, 10);
        let now = pass(25);
        assert_eq!(distribution.read(now).minute_count, 150, "all within a minute");
        let now = pass(25);
        let seen = distribution.read(now);
        assert_eq!(seen.minute_count, 50, "the first ones are 80 s old");
        assert!((seen.minute_quantiles.unwrap().max - 10.0).abs() <= 0.1);
        let now = pass(60);
        let seen = distribution.read(now);
        assert_eq!(seen.minute_quantiles, None);
        assert_eq!(seen.count, 150);
        assert!((seen.quantiles.unwrap().max - 500.0).abs() <= 5.0);
    }

    #[test]
    fn what_came_between_two_moments_of_two_distributions_is_told_by_itself() {
        let (one, other) = (Distribution::default(), Distribution::default());
        let look = || {
            let mut counts = Counts::default();
            counts.add(&one);
            counts.add(&other);
            counts
        };
        millis(&one, 100, 500);
        one.turn(Instant::now());
        let before = look();
        assert_eq!(before.since(&before).quantiles(), None);
        millis(&one, 3, 10);
        millis(&other, 1, 40);
        let between = look().since(&before).quantiles().unwrap();
        assert!((between.p50 - 10.0).abs() <= 0.1 && (between.max - 40.0).abs() <= 0.4, "{between:?}");
    }

    #[test]
    fn a_counter_that_wraps_is_no_loss() {
        let distribution = Distribution::default();
        let counter = &distribution.histogram.ranges[7];
        counter.store(u32::MAX - 1, Ordering::Relaxed);
        let start = Instant::now();
        distribution.turn(start);
        (0..5).for_each(|_| distribution.record(Duration::from_micros(7)));
        assert_eq!(counter.load(Ordering::Relaxed), 3);
        distribution.turn(start + SLOT);
        (0..2).for_each(|_| distribution.record(Duration::from_micros(7)));
        let seen = distribution.read(start + SLOT);
        assert_eq!(seen.count, u64::from(u32::MAX) + 6);
    }

    #[test]
    fn a_value_beyond_all_ranges_is_in_the_last_one() {
        let distribution = Distribution::default();
        distribution.record(Duration::MAX);
        let seen = distribution.read(Instant::now());
        assert_eq!(seen.count, 1);
        assert!(seen.quantiles.unwrap().max > 1_000_000.0);
    }

    #[test]
    fn values_are_summed_up_to_each_bound() {
        let distribution = Distribution::default();
        millis(&distribution, 3, 4);
        millis(&distribution, 2, 700);
        distribution.record(Duration::from_secs(90));
        let at_most = distribution.read(Instant::now()).at_most;
        assert_eq!(at_most, [0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 5, 5, 5]);
    }

    #[test]
    fn threads_that_add_at_once_lose_nothing() {
        let distribution = Distribution::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| millis(&distribution, 1000, 3));
            }
            (0..50).for_each(|_| distribution.turn(Instant::now()));
        });
        assert_eq!(distribution.read(Instant::now()).count, 4000);
    }
}
