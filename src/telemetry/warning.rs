//! Early warnings: what will go wrong if it goes on like this. Pure: memory, counts and time come in as arguments.
//!
//! | warning | begins | ends |
//! |---|---|---|
//! | `memory_growth` | resident memory grew by more than [`GROWTH_MAX`] an hour in each half of the last [`GROWTH_WINDOW`] | the newer half grows by less than half of that |
//! | `memory_short` | less memory can be had than [`margin`] says | a quarter more than that |
//! | `pool_short` | less than an eighth of a camera's pool was left at some time, or nothing | the camera gets another pool; and after nothing was left, not for [`POOL_CALM`] |
//!
//! Growth is the slope of the least-squares line. It must show in both halves, since one step (a camera that connects, a
//! larger picture) tilts the line through all of a window and only one of the halves.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::process::Available;

/// Resident memory may grow by so many bytes an hour: a leak of this size fills 4 GiB in ten days.
pub const GROWTH_MAX: f64 = 16.0 * 1024.0 * 1024.0;
/// Growth is looked for over this time.
pub const GROWTH_WINDOW: Duration = Duration::from_secs(3600);
/// A pool that sufficed for so long is not short any more.
pub const POOL_CALM: Duration = Duration::from_secs(60);

/// Samples in the window.
const SAMPLES: u32 = 360;

/// What is going wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WarningKind {
    /// The daemon's memory grows and grows.
    MemoryGrowth,
    /// The machine, or the daemon's cgroup, has little memory left.
    MemoryShort,
    /// A camera's pool has too little memory for its pictures.
    PoolShort,
}

impl WarningKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::MemoryGrowth, Self::MemoryShort, Self::PoolShort];

    /// Its name in metrics and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryGrowth => "memory_growth",
            Self::MemoryShort => "memory_short",
            Self::PoolShort => "pool_short",
        }
    }
}

/// A warning that holds now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Its kind's name.
    pub warning: &'static str,
    /// What is wrong, and the cure.
    pub text: String,
}

/// What warnings are made of, at one moment.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// When.
    pub now: Instant,
    /// Memory of the process in RAM, in bytes.
    pub resident_bytes: u64,
    /// Memory that can still be had; none where the kernel does not tell.
    pub available: Option<Available>,
    /// Each camera's pool.
    pub pools: Vec<PoolLook<'a>>,
}

/// What warnings are made of that a camera's pool gives.
#[derive(Clone, Copy, Debug)]
pub struct PoolLook<'a> {
    /// The camera.
    pub camera: &'a str,
    /// How often all of it was in use, since the start.
    pub exhausted: u64,
    /// The most of its slabs that were in use at once.
    pub high_water: u64,
    /// Its slabs.
    pub slabs: u64,
    /// Whether that is too many.
    pub runs_short: bool,
}

/// Everything that is going wrong.
#[derive(Debug, Default)]
pub struct Warnings {
    growth: Growth,
    pools: BTreeMap<String, Pool>,
    /// By kind, and for a pool by camera.
    holding: BTreeMap<(WarningKind, String), Warning>,
}

#[derive(Debug, Default)]
struct Pool {
    exhausted: u64,
    last: Option<Instant>,
}

impl Warnings {
    /// Takes a look; gives the text of each warning that was not there before. Call it at regular times.
    pub fn look(&mut self, look: &Look<'_>) -> Vec<String> {
        self.growth.add(look.now, look.resident_bytes);
        let mut wanted = Vec::new();
        let nobody = String::new();
        let growth = self.growth.halves();
        let holds = self.holding.contains_key(&(WarningKind::MemoryGrowth, nobody.clone()));
        if let Some((_, newer)) =
            growth.filter(
                |(older, newer)| {
                    if holds { *newer > GROWTH_MAX / 2.0 } else { older.min(*newer) > GROWTH_MAX }
                },
            )
        {
            wanted.push((WarningKind::MemoryGrowth, nobody.clone(), growth_text(newer)));
        }
        if let Some(available) = look.available {
            let holds = self.holding.contains_key(&(WarningKind::MemoryShort, nobody.clone()));
            let margin = margin(available.total_bytes);
            if available.bytes < if holds { margin + margin / 4 } else { margin } {
                wanted.push((WarningKind::MemoryShort, nobody, short_text(available, look.resident_bytes)));
            }
        }
        for seen in &look.pools {
            let pool = self.pools.entry(seen.camera.to_owned()).or_default();
            if seen.exhausted > pool.exhausted {
                *pool = Pool { exhausted: seen.exhausted, last: Some(look.now) };
            }
            let is_recent = |last| look.now.saturating_duration_since(last) < POOL_CALM;
            if seen.runs_short || pool.last.is_some_and(is_recent) {
                wanted.push((WarningKind::PoolShort, seen.camera.to_owned(), pool_text(seen)));
            }
        }
        self.hold(wanted)
    }

    /// What is going wrong now.
    #[must_use]
    pub fn holding(&self) -> Vec<Warning> {
        self.holding.values().cloned().collect()
    }

    fn hold(&mut self, wanted: Vec<(WarningKind, String, String)>) -> Vec<String> {
        let mut new = Vec::new();
        let mut holding = BTreeMap::new();
        for (kind, of, text) in wanted {
            // The text stays that of the beginning, so that log, message and status say the same.
            let held = self.holding.remove(&(kind, of.clone())).unwrap_or_else(|| {
                new.push(text.clone());
                Warning { warning: kind.name(), text }
            });
            holding.insert((kind, of), held);
        }
        self.holding = holding;
        new
    }
}

/// The least memory that should be left, of so much in all: 5 %, and at least 64 MiB.
#[must_use]
pub fn margin(total_bytes: u64) -> u64 {
    (total_bytes / 20).max(64 << 20)
}

/// Resident memory over the last [`GROWTH_WINDOW`].
#[derive(Debug, Default)]
struct Growth {
    samples: VecDeque<(Instant, u64)>,
}

impl Growth {
    fn add(&mut self, now: Instant, resident_bytes: u64) {
        let is_soon = |last| now.saturating_duration_since(last) < (GROWTH_WINDOW / SAMPLES).mul_f64(0.9);
        if self.samples.back().is_some_and(|(last, _)| is_soon(*last)) {
            return;
        }
        self.samples.push_back((now, resident_bytes));
        while self.samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > GROWTH_WINDOW) {
            self.samples.pop_front();
        }
    }

    /// The slopes of the older and the newer half, in bytes an hour, once the window is full.
    fn halves(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.samples.front()?.0, self.samples.back()?.0);
        // The last look may have been a little early.
        if last.saturating_duration_since(first) < GROWTH_WINDOW.mul_f64(0.98) {
            return None;
        }
        let middle = first + GROWTH_WINDOW / 2;
        let newer = self.samples.partition_point(|(at, _)| *at < middle);
        Some((slope(self.samples.range(..newer))?, slope(self.samples.range(newer..))?))
    }
}

/// The slope of the least-squares line through these, in bytes an hour; none through fewer than three.
#[expect(clippy::cast_precision_loss, reason = "bytes of memory, far below 2^53")]
fn slope<'a>(samples: impl Iterator<Item = &'a (Instant, u64)> + Clone) -> Option<f64> {
    let (first, base) = *samples.clone().next()?;
    let point = |&(at, bytes): &(Instant, u64)| {
        (at.saturating_duration_since(first).as_secs_f64() / 3600.0, bytes as f64 - base as f64)
    };
    let (mut n, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (hours, bytes) in samples.map(point) {
        n += 1.0;
        x += hours;
        y += bytes;
        xx += hours * hours;
        xy += hours * bytes;
    }
    let spread = n * xx - x * x;
    (n >= 3.0 && spread > 0.0).then(|| (n * xy - x * y) / spread)
}

fn growth_text(bytes_an_hour: f64) -> String {
    format!(
        "memory grows by {:.0} MiB an hour and has for the last hour, as if something leaked; note the figures of /status \
         and report them, and restart at a time that suits before memory runs out",
        bytes_an_hour / f64::from(1 << 20)
    )
}

fn short_text(available: Available, resident_bytes: u64) -> String {
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "only {} of {} MiB of memory can still be had (Gantry has {}); end what else runs here, use fewer or smaller \
         cameras, a smaller batching.size_max or a smaller model, or raise the memory limit (MemoryMax=) where there is one",
        mib(available.bytes),
        mib(available.total_bytes),
        mib(resident_bytes)
    )
}

fn pool_text(pool: &PoolLook<'_>) -> String {
    let PoolLook { camera, exhausted, high_water, slabs, .. } = pool;
    format!(
        "camera {camera}: {high_water} of {slabs} slabs of its picture pool were in use at once, and {exhausted} times none \
         was left; its frames are held for long: lower its rate, set rate_max, or use a faster model or device"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(now: Instant, resident_bytes: u64) -> Look<'static> {
        Look { now, resident_bytes, available: None, pools: Vec::new() }
    }

    /// Takes a look each 10 s for so many minutes; gives the minutes at which something was said.
    fn watch(
        warnings: &mut Warnings,
        from: Instant,
        minutes: u64,
        resident: impl Fn(f64) -> u64,
    ) -> Vec<u64> {
        let mut said = Vec::new();
        for step in 0..minutes * 6 {
            let seconds = step * 10;
            #[expect(clippy::cast_precision_loss, reason = "some hours")]
            let hours = seconds as f64 / 3600.0;
            let look = look(from + Duration::from_secs(seconds), resident(hours));
            said.extend(warnings.look(&look).iter().map(|_| seconds / 60));
        }
        said
    }

    #[test]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some MiB")]
    fn steady_growth_is_told_once_after_an_hour_and_forgotten_when_it_stops() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        let leak = |hours: f64| 100 * MIB + (hours * 24.0 * MIB as f64) as u64;
        assert_eq!(watch(&mut warnings, start, 180, leak), [58]);
        let held = warnings.holding();
        assert_eq!((held.len(), held[0].warning), (1, "memory_growth"));
        assert!(held[0].text.starts_with("memory grows by 24 MiB an hour"), "{}", held[0].text);
        let later = start + Duration::from_secs(180 * 60);
        assert!(watch(&mut warnings, later, 90, |_| 172 * MIB).is_empty());
        assert_eq!(warnings.holding(), []);
    }

    #[test]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some MiB")]
    fn slow_growth_a_step_and_a_saw_are_no_leak() {
        let start = Instant::now();
        let slow = |hours: f64| 100 * MIB + (hours * 4.0 * MIB as f64) as u64;
        assert!(watch(&mut Warnings::default(), start, 240, slow).is_empty());
        let step = |hours: f64| if hours < 1.2 { 100 * MIB } else { 180 * MIB };
        assert!(watch(&mut Warnings::default(), start, 240, step).is_empty());
        let saw = |hours: f64| 100 * MIB + ((hours * 7.0).fract() * 30.0 * MIB as f64) as u64;
        assert!(watch(&mut Warnings::default(), start, 240, saw).is_empty());
    }

    #[test]
    fn little_memory_is_told_with_what_there_is_and_holds_until_there_is_clearly_more() {
        let (mut warnings, now) = (Warnings::default(), Instant::now());
        let mut look_at = |bytes: u64| {
            let available = Some(Available { bytes, total_bytes: 4096 * MIB });
            warnings.look(&Look { available, ..look(now, 300 * MIB) });
            warnings.holding().pop().map(|warning| warning.text)
        };
        assert_eq!(look_at(1000 * MIB), None);
        let text = look_at(200 * MIB).unwrap();
        assert!(
            text.starts_with("only 200 of 4096 MiB of memory can still be had (Gantry has 300)"),
            "{text}"
        );
        assert!(look_at(240 * MIB).is_some(), "hardly more");
        assert_eq!(look_at(300 * MIB), None);
        assert_eq!(margin(512 * MIB), 64 * MIB);
    }

    #[test]
    fn a_short_pool_is_told_by_its_camera_and_forgotten_when_it_suffices() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        let mut at = |seconds: u64, exhausted: u64, high_water: u64| {
            let pool = |camera, exhausted, high_water| PoolLook {
                camera,
                exhausted,
                high_water,
                slabs: 8,
                runs_short: high_water == 8,
            };
            let pools = vec![pool("press-1", exhausted, high_water), pool("press-2", 0, 3)];
            let new = warnings.look(&Look { pools, ..look(start + Duration::from_secs(seconds), MIB) });
            (new.len(), warnings.holding().len())
        };
        assert_eq!(at(0, 0, 3), (0, 0));
        assert_eq!(at(5, 0, 8), (1, 1), "it nearly was");
        assert_eq!(at(10, 3, 8), (0, 1), "told once");
        assert_eq!(at(20, 9, 8), (0, 1));
        assert_eq!(at(70, 9, 2), (0, 1), "another pool, and soon after");
        assert_eq!(at(90, 9, 2), (0, 0));
        assert_eq!(at(100, 10, 2), (1, 1), "told anew");
        let text = &warnings.holding()[0].text;
        assert!(text.starts_with("camera press-1: 2 of 8 slabs"), "{text}");
    }

    proptest! {
        #[test]
        fn the_slope_of_a_line_is_found_whatever_its_noise_is_around(slope_mib in 0_u64..1000, noise in 0_u64..1000) {
            let start = Instant::now();
            // Noise that is the same forwards and backwards does not tilt the line.
            let samples: Vec<_> = (0..=60_u64)
                .map(|minute| {
                    let wiggle = if minute.abs_diff(30).is_multiple_of(2) { noise } else { 0 };
                    (start + Duration::from_secs(minute * 60), 100 * MIB + minute * slope_mib * MIB / 60 + wiggle)
                })
                .collect();
            #[expect(clippy::cast_precision_loss, reason = "some MiB")]
            let off = slope(samples.iter()).unwrap() - (slope_mib * MIB) as f64;
            prop_assert!(off.abs() < 16.0, "{off}");
        }
    }
}
