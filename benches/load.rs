//! The whole data plane on scripted devices and synthetic cameras, each figure beside what it could be at best:
//! what batches bring, what realtime misses at three times what the device can do, and what a camera costs from 1 to 64.
//!
//! `cargo bench --bench load` takes about two minutes; `-- batches`, `-- overload` and `-- cameras` run one of the three.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry::config;
use gantry::daemon;
use gantry::frame::mailbox::waker;
use gantry::pipeline::{CameraOrder, Lines, Parts, Pipeline};
use gantry::publish::encode::Identity;
use gantry::telemetry::{RouteSnapshot, Snapshot};
use gantry::threads::Threads;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    for (name, measure) in [("batches", batches as fn()), ("overload", overload), ("cameras", cameras)] {
        if is_wanted(name) {
            measure();
        }
    }
}

/// 16 cameras on a device that takes 10 ms a run and 1 ms a frame.
fn batches() {
    for (size_max, best) in [(1, 1e3 / 11.0), (8, 8e3 / 18.0), (16, 16e3 / 26.0)] {
        let text = format!(
            "{}batching: {{size_max: {size_max}}}\n",
            text("run_time: 10ms, run_time_per_frame: 1ms", &camera_list("a", 16, 60, ""))
        );
        let run = measure_run(&text, Duration::from_secs(10));
        let rate = run.results("a") / run.span.as_secs_f64();
        show(&format!(
            "batches of {size_max}: {rate:.1} frames a second of {best:.1}, {:.1} %",
            rate / best * 100.0
        ));
    }
}

/// 8 realtime and 24 best-effort cameras ask for 320 frames a second of a device that does 107 in batches of 8.
fn overload() {
    let all = camera_list("rt", 8, 10, ", quality: realtime, deadline: 200ms")
        + &camera_list("be", 24, 10, ", quality: best_effort");
    let run = measure_run(&text("run_time: 35ms, run_time_per_frame: 5ms", &all), Duration::from_secs(60));
    let missed = run.sum("rt", |route| route.dropped["late"] + route.dropped["stale"]);
    let (realtime, rest, span) = (run.results("rt"), run.results("be"), run.span);
    show(&format!(
        "overload: realtime missed {missed} of {}, {:.3} %; the others got {:.1} frames a second of the {:.1} that are left",
        realtime + missed,
        missed / (realtime + missed) * 100.0,
        rest / span.as_secs_f64(),
        (8e3 / 75.0) - realtime / span.as_secs_f64(),
    ));
}

/// What a camera costs: 1, 8 and 64 cameras of 20 frames a second, three times each, in turn.
fn cameras() {
    let mut costs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for _ in 0..3 {
        for count in [1, 8, 64] {
            let text = text("run_time: 0ms", &camera_list("a", count, 20, ""));
            let run = measure_run(&text, Duration::from_secs(8));
            costs.entry(count).or_default().push(run.processor.as_secs_f64() * 1e6 / run.results("a"));
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let costs: Vec<_> = costs.iter_mut().map(|(count, values)| (*count, median(values))).collect();
    for (count, cost) in &costs {
        show(&format!(
            "{count} cameras: {cost:.0} us of processor time a frame, {:.2} of one's",
            cost / costs[0].1
        ));
    }
}

fn text(fake: &str, cameras: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    format!(
        "models: {{dir: {}}}\ndevices: [{{id: fake0, backend: fake, fake: {{{fake}}}}}]\ncameras:\n{cameras}\
         publish: {{mqtt: {{broker: 'mqtt://127.0.0.1:1', queue: 1}}}}\n",
        models.display()
    )
}

fn camera_list(name: &str, count: u32, rate: u32, detect: &str) -> String {
    let camera = |n: u32| {
        format!(
            "  - {{id: {name}{n}, source: 'test://pattern?size=160x120&rate={rate}', \
             detect: [{{model: line-parts{detect}}}]}}\n"
        )
    };
    (0..count).map(camera).collect()
}

/// What was counted in a while.
struct Run {
    before: Snapshot,
    after: Snapshot,
    span: Duration,
    processor: Duration,
}

impl Run {
    /// What all routes of the cameras whose name begins so have counted.
    fn sum(&self, name: &str, count: impl Fn(&RouteSnapshot) -> u64) -> f64 {
        let of = |snapshot: &Snapshot| {
            let routes = snapshot.routes.iter().filter(|route| route.camera.starts_with(name));
            routes.map(&count).sum::<u64>()
        };
        #[expect(clippy::cast_precision_loss, reason = "few frames come in a while")]
        let sum = (of(&self.after) - of(&self.before)) as f64;
        sum
    }

    fn results(&self, name: &str) -> f64 {
        self.sum(name, |route| route.published + route.empty)
    }
}

/// Runs this config for a while, after two seconds in which it comes up.
fn measure_run(text: &str, span: Duration) -> Run {
    let file = tempfile::NamedTempFile::new().expect("there is room for a small file");
    std::fs::write(file.path(), text).expect("there is room for a small file");
    let config = config::load(file.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let models = daemon::models(&config.models_dir, daemon::model_names(&config)).expect("they are shipped");
    let identity = Arc::new(Identity::new("bench"));
    let parts =
        Parts { config, models, identity, tap: None, order: CameraOrder::Together, lines: Lines::Stdout };
    let pipeline = Pipeline::start(&parts, &Threads::new(), waker().0, None).expect("it starts");
    pass(Duration::from_secs(2));
    let (before, processor, began) =
        (pipeline.telemetry().snapshot(Instant::now()), processor_time(), Instant::now());
    pass(span);
    let (after, used, span) =
        (pipeline.telemetry().snapshot(Instant::now()), processor_time(), began.elapsed());
    drop(pipeline.drain(Duration::from_secs(10), |_| bytes::Bytes::new()));
    Run { before, after, span, processor: used - processor }
}

fn pass(time: Duration) {
    crossbeam_channel::after(time).recv().expect("a timer fires");
}

/// Processor time of all threads, to the nanosecond.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux tells its threads");
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of).sum())
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn show(line: &str) {
    println!("{line}");
}
