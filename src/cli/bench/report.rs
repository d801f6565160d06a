//! What was between two looks, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::MAIN_GROUP;
use super::measure::Look;
use crate::memory::allocations::{Counts, Scope};
use crate::pipeline::Parts;
use crate::telemetry::process::{self, KindUsage, Memory};
use crate::telemetry::{DeviceSnapshot, Quantiles, RouteCounts, RouteSnapshot, Snapshot};
use crate::threads::ThreadKind;

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Gantry's version.
    pub(super) gantry: &'static str,
    /// What was measured.
    pub(super) setting: Setting,
    /// For how long.
    pub(super) seconds: f64,
    /// What became of the frames, of all cameras and models together.
    pub(super) frames: Frames,
    /// How long each step took, in milliseconds; none where no frame went through it.
    pub(super) latency_ms: BTreeMap<&'static str, Option<Quantiles>>,
    /// What each kind of thread used, and all of them together.
    pub(super) threads: BTreeMap<&'static str, ThreadFigures>,
    /// Batches that ran.
    pub(super) batches: Vec<Batches>,
    /// Memory at the end.
    pub(super) memory: Memory,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// How many cameras.
    pub(super) cameras: usize,
    /// Their addresses, without secrets, each once.
    pub(super) sources: Vec<String>,
    /// The models.
    pub(super) models: Vec<String>,
    /// Each device's runtime.
    pub(super) devices: BTreeMap<String, String>,
}

/// What became of frames: `offered + in_flight_before = results + dropped + in_flight_after`, and a result is published or
/// empty.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Frames {
    /// On their way at the first look.
    pub(super) in_flight_before: u64,
    /// Offered to a model by a camera.
    pub(super) offered: u64,
    /// With a result.
    pub(super) results: u64,
    /// With a result that became an event.
    pub(super) published: u64,
    /// With a result that had no detection and was not published.
    pub(super) empty: u64,
    /// Without a result, by reason.
    pub(super) dropped: BTreeMap<&'static str, u64>,
    /// On their way at the second look.
    pub(super) in_flight_after: u64,
    /// Results a second.
    pub(super) per_second: f64,
    /// What was found in all of them.
    pub(super) detections: u64,
    /// Pictures that were not made, because all memory for them was in use.
    pub(super) exhausted: u64,
}

/// What threads used; a frame is one that had a result.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ThreadFigures {
    /// How many threads there were at the end.
    pub(super) alive: u64,
    /// CPU time, in milliseconds.
    pub(super) cpu_ms_per_frame: f64,
    /// Heap allocations of Rust code outside an engine's calls.
    pub(super) allocations_own: u64,
    /// The same for a frame.
    pub(super) allocations_own_per_frame: f64,
    /// Heap allocations inside an engine's calls.
    pub(super) allocations_engine_per_frame: f64,
    /// Bytes in all of them.
    pub(super) allocated_bytes_per_frame: f64,
    /// Pages that were given without reading a disk.
    pub(super) minor_faults_per_frame: f64,
    /// Pages that had to be read from a disk.
    pub(super) major_faults: u64,
    /// Times that a thread went to wait.
    pub(super) voluntary_switches_per_frame: f64,
    /// Times that a thread was taken off its CPU.
    pub(super) involuntary_switches_per_frame: f64,
}

/// Batches of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Batches {
    /// The device.
    pub(super) device: String,
    /// The model.
    pub(super) model: String,
    /// Frames in each.
    pub(super) size: u64,
    /// How many there were.
    pub(super) batches: u64,
}

impl Report {
    /// What was between two looks; none when no frame had a result.
    pub(super) fn new(
        parts: &Parts,
        devices: BTreeMap<String, String>,
        before: &Look,
        after: &Look,
    ) -> Option<Self> {
        let time = after.at - before.at;
        let frames = Frames::between(&before.counters, &after.counters, time);
        if frames.results == 0 {
            return None;
        }
        let mut sources: Vec<_> =
            parts.config.cameras.iter().map(|camera| camera.source.address.to_string()).collect();
        sources.sort_unstable();
        sources.dedup();
        let setting = Setting {
            cameras: parts.config.cameras.len(),
            sources,
            models: parts.models.values().map(|model| model.title()).collect(),
            devices,
        };
        Some(Self {
            gantry: env!("CARGO_PKG_VERSION"),
            setting,
            seconds: time.as_secs_f64(),
            latency_ms: latency(&after.times.since(&before.times)),
            threads: threads(before, after, frames.results),
            batches: batches(&before.counters.devices, &after.counters.devices),
            memory: process::memory(),
            frames,
        })
    }
}

impl Frames {
    fn between(before: &Snapshot, after: &Snapshot, time: Duration) -> Self {
        let sum = |snapshot: &Snapshot, of: &dyn Fn(&RouteSnapshot) -> u64| {
            snapshot.routes.iter().map(of).sum::<u64>()
        };
        let grown = |of: &dyn Fn(&RouteSnapshot) -> u64| sum(after, of) - sum(before, of);
        let (published, empty) = (grown(&|route| route.published), grown(&|route| route.empty));
        let reasons = after.routes.first().map(|route| route.dropped.keys().copied()).into_iter().flatten();
        let exhausted =
            |snapshot: &Snapshot| snapshot.cameras.iter().map(|camera| camera.exhausted).sum::<u64>();
        Self {
            in_flight_before: sum(before, &|route| route.in_flight),
            offered: grown(&|route| route.offered),
            results: published + empty,
            published,
            empty,
            dropped: reasons.map(|reason| (reason, grown(&|route| route.dropped[reason]))).collect(),
            in_flight_after: sum(after, &|route| route.in_flight),
            per_second: number(published + empty) / time.as_secs_f64(),
            detections: grown(&|route| route.detections),
            exhausted: exhausted(after) - exhausted(before),
        }
    }
}

fn latency(times: &RouteCounts) -> BTreeMap<&'static str, Option<Quantiles>> {
    let stages = times.stages.named().map(|(name, counts)| (name, counts.quantiles()));
    stages
        .into_iter()
        .chain([("age", times.age.quantiles()), ("publish", times.publish.quantiles())])
        .collect()
}

fn threads(before: &Look, after: &Look, frames: u64) -> BTreeMap<&'static str, ThreadFigures> {
    let allocations = after.allocations.since(&before.allocations);
    let mut all = ThreadFigures::default();
    let mut figures = BTreeMap::new();
    for (&kind, now) in &after.threads {
        let then = before.threads.get(kind).copied().unwrap_or_default();
        let these = ThreadFigures::of(kind, (then, *now), &allocations, frames);
        all.add(&these);
        figures.insert(kind, these);
    }
    figures.insert("all", all);
    figures
}

/// The group that counts a kind's allocations; those of libraries' threads are in none of ours.
fn group(kind: &str) -> usize {
    let known = ThreadKind::ALL.into_iter().find(|known| known.name() == kind);
    known.map_or(if kind == "main" { MAIN_GROUP } else { 0 }, ThreadKind::allocation_group)
}

impl ThreadFigures {
    fn of(kind: &str, (then, now): (KindUsage, KindUsage), counts: &Counts, frames: u64) -> Self {
        let used = now.usage - then.usage;
        let per_frame = |count: u64| number(count) / number(frames);
        let of = |scope| counts.of(group(kind), scope);
        let (own, engine) = (of(Scope::Own), of(Scope::Engine));
        Self {
            alive: now.alive,
            cpu_ms_per_frame: used.cpu.as_secs_f64() * 1e3 / number(frames),
            allocations_own: own.allocations,
            allocations_own_per_frame: per_frame(own.allocations),
            allocations_engine_per_frame: per_frame(engine.allocations),
            allocated_bytes_per_frame: per_frame(own.bytes + engine.bytes),
            minor_faults_per_frame: per_frame(used.minor_faults),
            major_faults: used.major_faults,
            voluntary_switches_per_frame: per_frame(used.voluntary_switches),
            involuntary_switches_per_frame: per_frame(used.involuntary_switches),
        }
    }

    fn add(&mut self, more: &Self) {
        self.alive += more.alive;
        self.cpu_ms_per_frame += more.cpu_ms_per_frame;
        self.allocations_own += more.allocations_own;
        self.allocations_own_per_frame += more.allocations_own_per_frame;
        self.allocations_engine_per_frame += more.allocations_engine_per_frame;
        self.allocated_bytes_per_frame += more.allocated_bytes_per_frame;
        self.minor_faults_per_frame += more.minor_faults_per_frame;
        self.major_faults += more.major_faults;
        self.voluntary_switches_per_frame += more.voluntary_switches_per_frame;
        self.involuntary_switches_per_frame += more.involuntary_switches_per_frame;
    }
}

fn batches(before: &[DeviceSnapshot], after: &[DeviceSnapshot]) -> Vec<Batches> {
    let mut grown = Vec::new();
    for (then, now) in before.iter().zip(after) {
        for (then, model) in then.models.iter().zip(&now.models) {
            for batches in &model.batch_sizes {
                let size = batches.size;
                let known = then.batch_sizes.iter().find(|then| then.size == size);
                let batches = batches.batches - known.map_or(0, |known| known.batches);
                if batches > 0 {
                    let (device, model) = (now.device.clone(), model.model.clone());
                    grown.push(Batches { device, model, size, batches });
                }
            }
        }
    }
    grown
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

/// In this order they are shown.
const STEPS: [&str; 8] =
    ["video_decode", "queue", "preprocess", "batch_wait", "infer", "postprocess", "publish", "age"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { cameras, sources, models, devices } = &self.setting;
        writeln!(f, "gantry {}, {:.1} s: {cameras} x {}", self.gantry, self.seconds, sources.join(", "))?;
        let runtimes: Vec<_> =
            devices.iter().map(|(device, runtime)| format!("{device} ({runtime})")).collect();
        writeln!(f, "{} on {}\n", models.join(", "), runtimes.join(", "))?;
        self.frames.fmt(f)?;
        writeln!(f, "\nmilliseconds         p50      p95      p99      max")?;
        for step in STEPS {
            if let Some(Some(Quantiles { p50, p95, p99, max })) = self.latency_ms.get(step) {
                writeln!(f, "  {step:<14} {p50:>8.3} {p95:>8.3} {p99:>8.3} {max:>8.3}")?;
            }
        }
        writeln!(
            f,
            "\na frame         threads   CPU ms   allocations: own   engine   page faults   waits   pre-empted"
        )?;
        let (all, kinds): (Vec<_>, Vec<_>) = self.threads.iter().partition(|(kind, _)| **kind == "all");
        for (kind, of) in kinds.into_iter().chain(all) {
            writeln!(
                f,
                "  {kind:<14}{:>7} {:>8.4} {:>18.3} {:>8.1} {:>13.3} {:>7.2} {:>12.3}",
                of.alive,
                of.cpu_ms_per_frame,
                of.allocations_own_per_frame,
                of.allocations_engine_per_frame,
                of.minor_faults_per_frame,
                of.voluntary_switches_per_frame,
                of.involuntary_switches_per_frame
            )?;
        }
        let sizes = self.batches.iter().map(|Batches { device, model, size, batches }| {
            format!("{batches} of {size} ({model} on {device})")
        });
        writeln!(f, "\nbatches: {}", sizes.collect::<Vec<_>>().join(", "))?;
        let mib = |bytes: u64| number(bytes) / f64::from(1 << 20);
        let Memory { resident_bytes, resident_peak_bytes, locked_bytes } = self.memory;
        let major: u64 = self.threads.get("all").map_or(0, |all| all.major_faults);
        write!(
            f,
            "memory: {:.1} MiB resident, {:.1} MiB at most, {:.1} MiB locked; {major} major page faults",
            mib(resident_bytes),
            mib(resident_peak_bytes),
            mib(locked_bytes)
        )
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:.1} frames a second", self.per_second)?;
        write!(f, "  {} offered + {} in flight before = ", self.offered, self.in_flight_before)?;
        write!(f, "{} published + {} empty", self.published, self.empty)?;
        for (reason, count) in self.dropped.iter().filter(|(_, count)| **count > 0) {
            write!(f, " + {count} {reason}")?;
        }
        write!(f, " + {} in flight after; {} detections", self.in_flight_after, self.detections)?;
        if self.exhausted > 0 {
            write!(f, "; {} pictures were not made for want of memory", self.exhausted)?;
        }
        writeln!(f)
    }
}
