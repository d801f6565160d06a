//! What deciding costs: one frame's way through the scheduler, beside taking it out of a mailbox.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gantry::frame::FrameTimes;
use gantry::frame::clock::{CaptureClock, Captured};
use gantry::frame::doorbell::Doorbell;
use gantry::frame::mailbox::Mailbox;
use gantry::scheduler::arrivals::Arrival;
use gantry::scheduler::plan::{Engine, RouteSpec, Scheduler, Step};
use gantry::scheduler::run_time::{RunTimes, Sizes};
use gantry::scheduler::{Late, Quality};

const MS: Duration = Duration::from_millis(1);

/// A device with so many cameras, a quarter of them realtime, in virtual time.
struct World {
    scheduler: Scheduler,
    now: Instant,
    counts: Vec<u64>,
    cameras: usize,
    next: usize,
}

impl World {
    fn new(cameras: usize) -> Self {
        let spec = |index: usize| RouteSpec {
            lane: 0,
            quality: if index.is_multiple_of(4) { Quality::Realtime } else { Quality::BestEffort },
            weight: 1,
            deadline: index.is_multiple_of(4).then_some(200 * MS),
            late: Late::Drop,
            rate_max: None,
        };
        let specs: Vec<_> = (0..cameras).map(spec).collect();
        let times = RunTimes::new(Sizes::Any, cameras.min(8), &[(1, 11 * MS), (8, 18 * MS)]);
        let scheduler = Scheduler::new(Engine::Blocking, 5 * MS, vec![times], &specs);
        Self { scheduler, now: Instant::now(), counts: vec![0; cameras], cameras, next: 0 }
    }

    /// Lets every camera deliver that has not since the last batch; runs one batch and says how many frames were in it.
    fn batch(&mut self) -> u64 {
        for _ in 0..self.cameras.min(8) {
            self.counts[self.next] += 1;
            let arrival = Arrival { received: self.now, ready: self.now, count: self.counts[self.next] };
            self.scheduler.arrived(self.next, arrival);
            self.next = (self.next + 1) % self.cameras;
        }
        let mut frames = 0;
        loop {
            match self.scheduler.step(self.now) {
                Step::Take(take) => {
                    black_box(self.scheduler.take(take, self.now, self.now));
                    self.now += MS / 10;
                    self.scheduler.wrote(self.now);
                    frames += 1;
                }
                Step::Submit(lane) => {
                    self.scheduler.submitted(lane, self.now);
                    self.now += 10 * MS;
                    self.scheduler.finished(self.now, self.now);
                    return frames;
                }
                Step::Wait(until) => self.now = until.unwrap_or(self.now + MS),
                Step::GiveWay(lane) => self.scheduler.gave_way(lane),
                Step::Finish(_) | Step::Sleep(_) => unreachable!("the engine blocks"),
            }
        }
    }
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler, a frame");
    group.throughput(Throughput::Elements(1));
    for cameras in [1, 8, 64, 256] {
        let mut world = World::new(cameras);
        // All cameras wait from the start, as under overload.
        for _ in 0..cameras {
            black_box(world.batch());
        }
        group.bench_function(format!("{cameras} cameras"), |bencher| {
            bencher.iter_custom(|frames| {
                let (began, mut left) = (Instant::now(), frames);
                while left > 0 {
                    left = left.saturating_sub(world.batch().max(1));
                }
                began.elapsed()
            });
        });
    }
    group.finish();
}

fn hand_off(criterion: &mut Criterion) {
    let (mailbox, doorbell) = (Mailbox::new(), Arc::new(Doorbell::new(64)));
    let (ringer, now, frame) = (doorbell.ringer(17), Instant::now(), Arc::new(0_u64));
    let captured = Captured::new(CaptureClock::Test, now);
    let times = FrameTimes { pts: None, captured, received: now, ready: now };
    criterion.bench_function("mailbox and doorbell, a frame", |bencher| {
        bencher.iter(|| {
            drop(black_box(mailbox.put(Arc::clone(&frame))));
            ringer.ring(&times);
            doorbell.answer(|route, rung| {
                black_box((route, rung));
            });
            mailbox.take()
        });
    });
}

criterion_group!(scheduler, decide, hand_off);
criterion_main!(scheduler);
