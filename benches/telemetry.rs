//! What counting costs the frame path: one value noted, beside an HDR histogram that every thread shares behind a lock;
//! and what reading costs whoever reads.
//!
//! `cargo bench --bench telemetry`

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use gantry::telemetry::histogram::{Distribution, SLOT};
use gantry::telemetry::process::ThreadReader;
use gantry::telemetry::{RouteTelemetry, Stages};
use hdrhistogram::Histogram;

/// Times between 100 µs and 50 ms, as stages take.
fn times() -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..4096).map(|_| Duration::from_nanos(random.u64(100_000..50_000_000))).collect()
}

fn record(criterion: &mut Criterion) {
    let (times, mut group) = (times(), criterion.benchmark_group("record"));
    let distribution = Distribution::default();
    let mut turn = 0;
    let mut next = || {
        turn = (turn + 1) % times.len();
        black_box(times[turn])
    };
    group.bench_function("ours", |bencher| {
        bencher.iter(|| distribution.record(next()));
    });
    let locked =
        Mutex::new(Histogram::<u64>::new_with_bounds(1, 600_000_000, 2).expect("the bounds are valid"));
    group.bench_function("hdrhistogram behind a lock", |bencher| {
        bencher.iter(|| {
            let micros = u64::try_from(next().as_micros()).unwrap_or(u64::MAX);
            locked.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
        });
    });
    let route = RouteTelemetry::new("press-1", "line-parts");
    group.bench_function("a frame: six stages and the age", |bencher| {
        bencher.iter(|| {
            let time = next();
            route.observe(&Stages::default().map(|()| time), Some(time));
        });
    });
    group.finish();
}

fn read(criterion: &mut Criterion) {
    let (times, mut group) = (times(), criterion.benchmark_group("read"));
    let distribution = Distribution::default();
    let mut now = Instant::now();
    for chunk in times.chunks(250) {
        chunk.iter().for_each(|time| distribution.record(*time));
        distribution.turn(now);
        now += SLOT;
    }
    group.bench_function("a distribution", |bencher| bencher.iter(|| distribution.read(black_box(now))));
    let mut threads = ThreadReader::default();
    group.bench_function("the threads of this process", |bencher| bencher.iter(|| threads.read().len()));
    group.finish();
}

criterion_group!(benches, record, read);
criterion_main!(benches);
