//! The scheduler step by step: each rule by itself.

use std::time::Instant;

use gantry::scheduler::arrivals::Arrival;
use gantry::scheduler::plan::{Engine, RouteSpec, Scheduler, Step, Take, Verdict};
use gantry::scheduler::run_time::{RunTimes, Sizes};
use gantry::scheduler::{Late, Quality};

use super::simulator::{MS, route};

/// A scheduler at a time that the test sets.
struct At {
    scheduler: Scheduler,
    start: Instant,
    counts: Vec<u64>,
}

impl At {
    /// Models with runs of 10 ms and 1 ms a frame, in batches of `most`, on one device that waits 5 ms for a batch.
    fn new(engine: Engine, most: &[usize], routes: &[RouteSpec]) -> Self {
        let times = |most: &usize| {
            let measured: Vec<_> =
                (1..=*most).map(|n| (n, 10 * MS + MS * u32::try_from(n).unwrap())).collect();
            RunTimes::new(Sizes::Any, *most, &measured)
        };
        let scheduler = Scheduler::new(engine, 5 * MS, most.iter().map(times).collect(), routes);
        Self { scheduler, start: Instant::now(), counts: vec![0; routes.len()] }
    }

    fn time(&self, ms: u32) -> Instant {
        self.start + MS * ms
    }

    fn arrive(&mut self, route: usize, ms: u32) {
        let at = self.time(ms);
        self.counts[route] += 1;
        self.scheduler.arrived(route, Arrival { received: at, ready: at, count: self.counts[route] });
    }

    fn step(&mut self, ms: u32) -> Step {
        self.scheduler.step(self.time(ms))
    }

    /// Expects that this route's frame is taken into this slot, and writes it.
    fn takes(&mut self, route: usize, slot: usize, ms: u32) {
        let Step::Take(take) = self.step(ms) else { panic!("{:?} at {ms}", self.step(ms)) };
        assert_eq!((take.route, take.slot), (route, slot), "at {ms}");
        assert_eq!(self.scheduler.take(take, self.time(ms), self.time(ms)), Verdict::Write);
        self.scheduler.wrote(self.time(ms));
    }

    fn submits(&mut self, lane: usize, ms: u32) {
        assert_eq!(self.step(ms), Step::Submit(lane), "at {ms}");
        self.scheduler.submitted(lane, self.time(ms));
    }

    fn finishes(&mut self, ms: u32) {
        self.scheduler.finished(self.time(ms - 1), self.time(ms));
    }

    /// Frames of route 0 come at 0, 40 and 80 and are run, so that it is known to be periodic.
    fn serves_three_of_the_first_camera(&mut self) {
        for ms in [0, 40, 80] {
            self.arrive(0, ms);
            self.takes(0, 0, ms);
            self.submits(0, ms);
            self.finishes(ms + 11);
        }
    }

    fn waits(&mut self, until: Option<u32>, ms: u32) {
        let until = until.map(|until| self.time(until));
        assert_eq!(self.step(ms), Step::Wait(until), "at {ms}");
    }
}

const ALONE: Quality = Quality::Standard;

#[test]
fn a_camera_that_is_alone_waits_for_nobody() {
    let mut at = At::new(Engine::Blocking, &[1], &[route(0, ALONE, None)]);
    at.waits(None, 0);
    at.arrive(0, 1);
    at.takes(0, 0, 1);
    at.submits(0, 1);
}

#[test]
fn a_batch_waits_for_a_camera_that_is_expected_and_no_longer_than_the_delay() {
    let mut at = At::new(Engine::Blocking, &[2], &[route(0, ALONE, None), route(0, ALONE, None)]);
    at.arrive(1, 0);
    at.takes(1, 0, 0);
    at.submits(0, 0);
    at.finishes(11);
    at.arrive(0, 40);
    at.takes(0, 0, 40);
    // The other has delivered once, so its next frame may come at any moment.
    at.waits(Some(45), 40);
    at.arrive(1, 43);
    at.takes(1, 1, 43);
    at.submits(0, 43);
    at.finishes(55);
    at.arrive(0, 80);
    at.takes(0, 0, 80);
    // Now it is known to deliver every 43 ms: not before 86.
    at.submits(0, 80);
}

#[test]
fn a_deadline_that_would_not_be_kept_later_seals_the_batch() {
    let mut at = At::new(Engine::Blocking, &[8], &[route(0, ALONE, Some(14 * MS)), route(0, ALONE, None)]);
    at.arrive(1, 0);
    at.takes(1, 0, 0);
    at.submits(0, 0);
    at.finishes(11);
    at.arrive(0, 20);
    at.takes(0, 0, 20);
    // It must begin at 23, and the time to wake up is half a millisecond.
    assert_eq!(at.step(20), Step::Wait(Some(at.time(22) + MS / 2)));
    at.submits(0, 23);
}

#[test]
fn while_a_batch_runs_nothing_is_taken_before_it_must_be() {
    let mut at = At::new(Engine::Asynchronous, &[2], &[route(0, ALONE, None); 4]);
    at.arrive(0, 0);
    at.arrive(1, 0);
    at.takes(0, 0, 0);
    at.takes(1, 1, 0);
    at.submits(0, 0);
    at.arrive(2, 1);
    let Step::Sleep(until) = at.step(1) else { panic!("{:?}", at.step(1)) };
    // Of 12 ms the last eighth is left to be waited for.
    assert!(until > at.time(10) && until < at.time(11), "{:?}", until - at.start);
    at.takes(2, 0, 11);
    assert_eq!(at.step(11), Step::Finish(0));
    at.finishes(12);
    at.submits(0, 17);
}

#[test]
fn a_better_frame_takes_a_place_in_a_full_batch_and_the_one_that_gave_way_is_next() {
    let specs =
        [Quality::BestEffort, Quality::BestEffort, Quality::Realtime].map(|quality| route(0, quality, None));
    let mut at = At::new(Engine::Blocking, &[2], &specs);
    at.arrive(0, 0);
    at.arrive(1, 0);
    at.takes(0, 0, 0);
    at.takes(1, 1, 0);
    at.arrive(2, 0);
    at.takes(2, 1, 0);
    at.submits(0, 0);
    at.arrive(0, 1);
    at.arrive(1, 2);
    at.finishes(12);
    at.takes(1, 0, 12);
}

#[test]
fn a_frame_whose_batch_was_passed_over_gives_way_to_a_newer_one_of_its_camera() {
    let specs = [
        route(0, Quality::BestEffort, None),
        route(0, Quality::BestEffort, None),
        route(1, Quality::Realtime, None),
    ];
    let mut at = At::new(Engine::Blocking, &[2, 1], &specs);
    at.arrive(1, 0);
    at.takes(1, 0, 0);
    at.submits(0, 0);
    at.finishes(11);
    at.arrive(0, 20);
    at.takes(0, 0, 20);
    at.waits(Some(25), 20);
    at.arrive(2, 21);
    at.takes(2, 0, 21);
    at.submits(1, 21);
    at.finishes(32);
    at.arrive(0, 33);
    at.takes(0, 0, 33);
    at.submits(0, 33);
}

#[test]
fn what_could_make_an_expected_realtime_frame_late_is_not_begun_before_it() {
    let specs = [route(0, Quality::Realtime, Some(15 * MS)), route(1, Quality::BestEffort, None)];
    let mut at = At::new(Engine::Blocking, &[1, 1], &specs);
    at.serves_three_of_the_first_camera();
    // Its next frame comes at 120 and must be begun by 124; a run of the other takes 11 ms.
    at.arrive(1, 100);
    at.takes(1, 0, 100);
    at.submits(1, 100);
    at.finishes(111);
    at.arrive(1, 114);
    at.waits(Some(120), 114);
    at.arrive(0, 120);
    at.takes(0, 0, 120);
    at.submits(0, 120);
    at.finishes(131);
    at.takes(1, 0, 131);
    at.submits(1, 131);
}

#[test]
fn a_camera_that_has_gone_holds_nobody_back() {
    let specs = [route(0, Quality::Realtime, Some(12 * MS)), route(1, Quality::BestEffort, None)];
    let mut at = At::new(Engine::Blocking, &[1, 1], &specs);
    at.serves_three_of_the_first_camera();
    at.arrive(1, 130);
    at.waits(Some(200), 130);
    at.takes(1, 0, 200);
}

#[test]
fn a_frame_that_cannot_be_done_is_not_begun_unless_it_is_wanted_late() {
    for (late, verdict) in [(Late::Drop, Verdict::TooLate), (Late::Publish, Verdict::Write)] {
        let spec = RouteSpec { late, ..route(0, ALONE, Some(20 * MS)) };
        let mut at = At::new(Engine::Blocking, &[1], &[spec]);
        at.arrive(0, 0);
        at.takes(0, 0, 0);
        at.submits(0, 0);
        at.finishes(11);
        at.arrive(0, 20);
        let Step::Take(take) = at.step(35) else { panic!("it is looked at") };
        assert_eq!(at.scheduler.take(take, at.time(20), at.time(35)), verdict);
    }
}

#[test]
fn a_device_that_seems_too_slow_is_tried_again_after_a_while() {
    let mut at = At::new(Engine::Blocking, &[1], &[route(0, ALONE, Some(5 * MS))]);
    let mut tried = Vec::new();
    for ms in (0..2500).step_by(100) {
        at.arrive(0, ms);
        let Step::Take(take) = at.step(ms) else { panic!("{ms}") };
        if at.scheduler.take(take, at.time(ms), at.time(ms)) == Verdict::Write {
            tried.push(ms);
            at.scheduler.wrote(at.time(ms));
            at.submits(0, ms);
            at.finishes(ms + 11);
        }
    }
    assert_eq!(tried, [0, 1100, 2200]);
}

#[test]
fn at_the_end_everything_runs_without_waiting() {
    let specs = [route(0, Quality::BestEffort, None), route(0, Quality::Realtime, Some(12 * MS))];
    let mut at = At::new(Engine::Asynchronous, &[2], &specs);
    at.arrive(1, 0);
    at.arrive(0, 0);
    at.takes(1, 0, 0);
    at.scheduler.drain();
    at.takes(0, 1, 0);
    at.submits(0, 0);
    at.arrive(0, 1);
    at.takes(0, 0, 1);
    assert_eq!(at.step(1), Step::Finish(0));
    at.finishes(12);
    at.submits(0, 12);
    assert_eq!(at.step(12), Step::Finish(0));
    at.finishes(23);
    at.waits(None, 23);
}

#[test]
fn a_frame_that_was_looked_for_in_vain_is_forgotten() {
    let mut at = At::new(Engine::Blocking, &[1], &[route(0, ALONE, None)]);
    at.scheduler.look_for(0, at.start);
    let Step::Take(take) = at.step(0) else { panic!("it is looked for") };
    assert_eq!(take, Take { route: 0, lane: 0, slot: 0 });
    at.scheduler.skipped(take);
    at.waits(None, 0);
}

#[test]
fn nothing_is_planned_for_realtime_without_a_deadline_and_it_comes_first() {
    let specs = [route(0, Quality::Realtime, None), route(1, Quality::BestEffort, None)];
    let mut at = At::new(Engine::Blocking, &[1, 1], &specs);
    at.serves_three_of_the_first_camera();
    at.arrive(1, 119);
    at.takes(1, 0, 119);
    at.submits(1, 119);
    at.arrive(0, 120);
    at.arrive(1, 125);
    at.finishes(130);
    at.takes(0, 0, 130);
    at.submits(0, 130);
}

#[test]
fn frames_of_a_batch_that_is_too_large_for_a_better_one_give_way() {
    // A run takes 10 ms and 1 ms a frame; of three frames one must go, and the better one takes the place of another.
    let specs = [
        route(0, Quality::BestEffort, None),
        route(0, Quality::BestEffort, None),
        route(0, Quality::BestEffort, None),
        route(0, Quality::Realtime, Some(12 * MS)),
    ];
    let mut at = At::new(Engine::Blocking, &[8], &specs);
    for route in 0..3 {
        at.arrive(route, 0);
        at.takes(route, route, 0);
    }
    at.arrive(3, 0);
    assert_eq!(at.step(0), Step::GiveWay(0));
    at.scheduler.gave_way(0);
    at.takes(3, 1, 0);
    at.submits(0, 0);
    at.finishes(12);
    // Whoever gave way comes first.
    at.arrive(0, 12);
    at.arrive(2, 13);
    at.takes(2, 0, 13);
}
