//! The scheduler in virtual time: what it promises, over random cameras, models and devices.

mod simulator;
mod steps;

use std::time::Duration;

use gantry::scheduler::plan::{Engine, RouteSpec};
use gantry::scheduler::{Late, Quality};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use simulator::{Camera, LaneModel, MS, Report, Simulator, route};

const SECOND: Duration = Duration::from_secs(1);

fn engine() -> impl Strategy<Value = Engine> {
    prop_oneof![Just(Engine::Blocking), Just(Engine::Asynchronous)]
}

fn quality() -> impl Strategy<Value = Quality> {
    proptest::sample::select(Quality::ALL.to_vec())
}

fn micros(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_micros)
}

fn lane() -> impl Strategy<Value = LaneModel> {
    let sizes = prop_oneof![Just(Vec::new()), Just(vec![1, 2, 4, 8]), Just(vec![4]), Just(vec![1, 8])];
    (micros(0..20_000), micros(100..5000), sizes, 1_usize..9, micros(0..2000), micros(0..1000)).prop_map(
        |(run, each, sizes, most, preprocess, postprocess)| LaneModel {
            run,
            each,
            sizes,
            most,
            preprocess,
            postprocess,
        },
    )
}

/// A camera of one of `lanes` models; with deadlines or without.
fn camera(lanes: usize, deadlines: bool) -> impl Strategy<Value = Camera> {
    let deadline =
        if deadlines { proptest::option::of(micros(5000..200_000)).boxed() } else { Just(None).boxed() };
    let times = (micros(2000..200_000), micros(0..100_000), micros(0..5000));
    (0..lanes, quality(), 1_u32..5, deadline, times).prop_map(
        |(lane, quality, weight, deadline, (period, phase, jitter))| {
            let spec = RouteSpec { lane, quality, weight, deadline, late: Late::Drop, rate_max: None };
            Camera::periodic(spec, (period, phase), jitter, SECOND)
        },
    )
}

fn world(deadlines: bool) -> impl Strategy<Value = (Engine, Duration, Vec<LaneModel>, Vec<Camera>)> {
    (1_usize..4).prop_flat_map(move |lanes| {
        let cameras = proptest::collection::vec(camera(lanes, deadlines), 1..20);
        (engine(), micros(0..10_000), proptest::collection::vec(lane(), lanes), cameras)
    })
}

/// The longest time between two results of a route, or from its first frame to its first result.
fn longest_gap(report: &Report, route: usize) -> Option<Duration> {
    let mut at: Vec<_> = report.done.iter().filter(|done| done.route == route).map(|done| done.at).collect();
    at.sort();
    at.windows(2).map(|pair| pair[1] - pair[0]).max()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_better_frame_waits_for_at_most_the_batch_that_runs((engine, delay, lanes, cameras) in world(true)) {
        let report = Simulator::new(engine, delay, lanes, cameras).with_noise(0.1).run(2 * SECOND);
        prop_assert!(report.inversions.is_empty(), "{:?}", report.inversions);
    }

    #[test]
    fn the_device_is_never_idle_while_a_frame_has_waited_for_its_delay((engine, delay, lanes, cameras) in world(false)) {
        let report = Simulator::new(engine, delay, lanes, cameras).with_noise(0.1).run(2 * SECOND);
        prop_assert!(report.idle.is_empty(), "{:?}", report.idle);
    }

    #[test]
    fn every_frame_gets_one_end((engine, delay, lanes, cameras) in world(true)) {
        let offered: Vec<_> = cameras.iter().map(|camera| camera.ready.len()).collect();
        let report = Simulator::new(engine, delay, lanes, cameras).run(100 * SECOND);
        prop_assert_eq!(report.ran.iter().map(|ran| ran.frames).sum::<usize>(), report.done.len());
        for (route, offered) in offered.into_iter().enumerate() {
            prop_assert_eq!(report.kept(route) + report.missed(route), offered, "route {}", route);
        }
    }

    #[test]
    fn nobody_starves_within_a_quality(
        engine in engine(), lane in lane(), cameras in proptest::collection::vec((1_u32..5, micros(1000..50_000), proptest::option::of(micros(50_000..500_000))), 2..24),
    ) {
        // All of one quality, and many more frames than the device can do.
        let count = cameras.len();
        let one = |(index, (weight, period, deadline)): (usize, (u32, Duration, Option<Duration>))| {
            let spec = RouteSpec { weight, late: Late::Publish, ..route(0, Quality::Standard, deadline) };
            Camera::periodic(spec, (period, MS * u32::try_from(index).unwrap()), MS, 4 * SECOND)
        };
        let cameras: Vec<_> = cameras.into_iter().enumerate().map(one).collect();
        let longest = cameras.iter().map(|camera| SECOND * 4 / u32::try_from(camera.ready.len()).unwrap()).max().unwrap();
        let batch = lane.cost(lane.most) + (lane.preprocess + lane.postprocess) * u32::try_from(lane.most).unwrap();
        // In each round each of the others is served as its weight says, and as far ahead as deadlines may bring it.
        let bound = longest + batch * u32::try_from(count * (5 + 4 + 4)).unwrap();
        let report = Simulator::new(engine, 5 * MS, vec![lane], cameras).run(4 * SECOND);
        for route in 0..count {
            if bound < 2 * SECOND {
                let gap = longest_gap(&report, route);
                prop_assert!(gap.is_some_and(|gap| gap <= bound), "route {route}: {gap:?}, at most {bound:?}");
            }
        }
    }

    #[test]
    fn under_overload_each_gets_its_share_within_five_percent(
        engine in engine(), weights in proptest::collection::vec(1_u32..6, 2..10), most in 1_usize..3, with_deadlines in any::<bool>(),
    ) {
        // More cameras than slots, each with a frame always waiting, so that every slot is contended.
        let one = |(index, weight): (usize, &u32)| {
            let deadline = (with_deadlines && index % 2 == 0).then_some(SECOND);
            let spec = RouteSpec { weight: *weight, ..route(0, Quality::Standard, deadline) };
            Camera::periodic(spec, (MS, MS * u32::try_from(index).unwrap() / 10), Duration::ZERO, 60 * SECOND)
        };
        let cameras: Vec<_> = weights.iter().enumerate().map(one).collect();
        let most = most.min(weights.len() - 1);
        let report = Simulator::new(engine, 5 * MS, vec![LaneModel::affine(most)], cameras).run(60 * SECOND);
        let total: u32 = weights.iter().sum();
        let served = report.done.len() as f64;
        // A camera has one frame in a batch, so none can have more than a whole slot.
        let fits = weights.iter().all(|weight| *weight as usize * most <= total as usize);
        for (route, weight) in weights.iter().enumerate().filter(|_| fits) {
            let (got, due) = (report.kept(route) as f64, served * f64::from(*weight) / f64::from(total));
            prop_assert!((got - due).abs() <= due * 0.05 + 1.0, "{weights:?}: route {route} got {got} of {due}");
        }
    }

    #[test]
    fn deadlines_that_any_order_keeps_are_kept(
        engine in engine(), run in 0_u32..20, each in 1_u32..5, most in 1_usize..5, deadlines in proptest::collection::vec(1_u32..120, 1..9),
    ) {
        // All frames are there at once. Then the earliest deadline first is best, in batches of neighbours; which, is tried.
        let lane = LaneModel { run: MS * run, each: MS * each, ..LaneModel::affine(most) };
        let mut sorted: Vec<_> = deadlines.iter().map(|deadline| MS * *deadline).collect();
        sorted.sort();
        let at_once = |deadline: &u32| Camera {
            spec: route(0, Quality::Realtime, Some(MS * *deadline)), ready: [Duration::ZERO].into(), decode: Duration::ZERO,
        };
        let cameras: Vec<_> = deadlines.iter().map(at_once).collect();
        if feasible(&lane, &sorted, Duration::ZERO) {
            let report = Simulator::new(engine, 5 * MS, vec![lane], cameras).run(SECOND);
            prop_assert!((0..deadlines.len()).all(|route| report.kept(route) == 1), "{:?}", report.ran);
        }
    }

    #[test]
    fn deadlines_that_the_earliest_first_keeps_are_kept(
        engine in engine(), jobs in proptest::collection::vec((0_u64..200, 1_u64..80, 0_usize..3), 1..12),
    ) {
        // One frame a batch, models of different cost, frames that come at any time: the plain rule as the oracle.
        let costs = [4, 7, 11].map(|cost| MS * cost);
        let lane = |cost: &Duration| LaneModel { run: *cost, each: Duration::ZERO, ..LaneModel::affine(1) };
        let lanes: Vec<_> = costs.iter().map(lane).collect();
        let jobs: Vec<_> = jobs.into_iter().map(|(ready, left, lane)| {
            (Duration::from_millis(ready), Duration::from_millis(left), lane)
        }).collect();
        let camera = |(ready, left, lane): &(Duration, Duration, usize)| Camera {
            spec: route(*lane, Quality::Realtime, Some(*left)), ready: [*ready].into(), decode: Duration::ZERO,
        };
        let cameras: Vec<_> = jobs.iter().map(camera).collect();
        if earliest_first_keeps_all(&jobs, &costs) {
            let report = Simulator::new(engine, Duration::ZERO, lanes, cameras).run(SECOND);
            prop_assert!((0..jobs.len()).all(|route| report.kept(route) == 1), "{:?}", report.ran);
        }
    }
}

/// Of no scheduler that cannot interrupt a batch can it be asked that realtime frames miss nothing beside others where alone
/// they just did not. So there is a quarter of the time to spare, and among a hundred thousand frames few may be missed.
#[test]
fn what_realtime_keeps_alone_it_keeps_beside_others() {
    let realtime = (0_usize..2, 20_u32..200, 0_u32..200, 10_u32..200);
    let worlds = (
        engine(),
        proptest::collection::vec(lane(), 1..3),
        proptest::collection::vec(realtime, 1..6),
        proptest::collection::vec((0_usize..2, 2_u32..100, any::<bool>()), 1..12),
    );
    let (mut runner, mut frames, mut missed, mut others_served) = (TestRunner::deterministic(), 0, 0, 0);
    for _ in 0..1500 {
        let (engine, lanes, realtime, others) = worlds.new_tree(&mut runner).unwrap().current();
        let count = lanes.len();
        let timed = |(lane, period, phase, deadline): &(usize, u32, u32, u32)| {
            let spec = route(lane % count, Quality::Realtime, Some(MS * *deadline));
            Camera::periodic(spec, (MS * *period, MS * *phase), Duration::ZERO, 4 * SECOND)
        };
        let other = |(lane, period, best_effort): &(usize, u32, bool)| {
            let quality = if *best_effort { Quality::BestEffort } else { Quality::Standard };
            // They begin when the realtime cameras are known.
            let spec = route(lane % count, quality, None);
            Camera::periodic(spec, (MS * *period, SECOND), Duration::ZERO, 3 * SECOND)
        };
        let alone: Vec<_> = realtime.iter().map(timed).collect();
        let missed_of =
            |report: &Report| (0..realtime.len()).map(|route| report.missed(route)).sum::<usize>();
        let slower = lanes.iter().map(|lane| lane.slower(1.25)).collect();
        if missed_of(&Simulator::new(engine, 5 * MS, slower, alone.clone()).run(5 * SECOND)) == 0 {
            let all = alone.iter().cloned().chain(others.iter().map(other)).collect();
            let beside = Simulator::new(engine, 5 * MS, lanes, all).run(5 * SECOND);
            frames += alone.iter().map(|camera| camera.ready.len()).sum::<usize>();
            missed += missed_of(&beside);
            let rest = realtime.len()..realtime.len() + others.len();
            others_served += rest.map(|route| beside.kept(route)).sum::<usize>();
        }
    }
    eprintln!("{missed} of {frames} realtime frames missed, beside {others_served} others");
    assert!(frames > 100_000 && others_served > 250_000, "{frames} beside {others_served}");
    assert!(missed * 400 <= frames, "{missed} of {frames}");
}

#[test]
fn batches_bring_what_they_can() {
    for (most, sizes) in [(8, vec![]), (16, vec![]), (8, vec![1, 2, 4, 8])] {
        let lane = LaneModel { sizes, preprocess: MS / 5, postprocess: MS / 20, ..LaneModel::affine(most) };
        let best = 1e3 * most as f64 / (10 + most) as f64;
        let camera = |index| {
            Camera::periodic(route(0, Quality::Standard, None), (16 * MS, MS * index), MS, 10 * SECOND)
        };
        let report = Simulator::new(Engine::Asynchronous, 5 * MS, vec![lane], (0..16).map(camera).collect())
            .run(10 * SECOND);
        let rate = report.done.len() as f64 / 10.0;
        assert!(rate > best * 0.97, "{rate} of {best} frames a second in batches of {most}");
    }
}

/// Whether some partition into batches of neighbours keeps all deadlines, which are sorted.
fn feasible(lane: &LaneModel, deadlines: &[Duration], from: Duration) -> bool {
    deadlines.is_empty()
        || (1..=lane.most.min(deadlines.len())).any(|batch| {
            let end = from + lane.cost(batch);
            end <= deadlines[0] && feasible(lane, &deadlines[batch..], end)
        })
}

/// Whether running, whenever the device is free, the frame with the earliest deadline of those that are there keeps all.
fn earliest_first_keeps_all(jobs: &[(Duration, Duration, usize)], costs: &[Duration; 3]) -> bool {
    let (mut left, mut now) = (jobs.to_vec(), Duration::ZERO);
    while !left.is_empty() {
        let there = (0..left.len()).filter(|&job| left[job].0 <= now);
        match there.min_by_key(|&job| left[job].0 + left[job].1) {
            Some(job) => {
                let (ready, deadline, lane) = left.swap_remove(job);
                now += costs[lane];
                if now > ready + deadline {
                    return false;
                }
            }
            None => now = left.iter().map(|job| job.0).min().unwrap(),
        }
    }
    true
}

/// 8 realtime and 24 best-effort cameras of 25 frames a second on a device that does 267 frames a second in batches of 8.
fn overload(engine: Engine, deadline: Duration, seed: u64) -> Report {
    let lane = LaneModel {
        run: 14 * MS,
        each: 2 * MS,
        preprocess: MS / 5,
        postprocess: MS / 20,
        ..LaneModel::affine(8)
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut camera = |index: usize| {
        let spec = if index < 8 {
            route(0, Quality::Realtime, Some(deadline))
        } else {
            route(0, Quality::BestEffort, None)
        };
        let phase = Duration::from_micros(random.u64(0..40_000));
        Camera::periodic(spec, (40 * MS, phase), 2 * MS, 20 * SECOND)
    };
    let cameras = (0..32).map(&mut camera).collect();
    Simulator::new(engine, 5 * MS, vec![lane], cameras).with_noise(0.1).run(20 * SECOND)
}

#[test]
fn at_three_times_what_the_device_can_do_realtime_misses_nothing_and_the_rest_gets_what_is_left() {
    for engine in [Engine::Blocking, Engine::Asynchronous] {
        for seed in 0..10 {
            let report = overload(engine, 100 * MS, seed);
            let missed: Vec<_> = (0..8).map(|route| report.missed(route)).collect();
            assert_eq!(missed, [0; 8], "{engine:?}, seed {seed}");
            let (frames, batches) = (report.done.len(), report.ran.len());
            let rest: Vec<_> = (8..32).map(|route| report.kept(route)).collect();
            eprintln!("{engine:?}, seed {seed}: {frames} frames in {batches} batches, the rest got {rest:?}");
            let mean = rest.iter().sum::<usize>() as f64 / rest.len() as f64;
            assert!(rest.iter().all(|got| (*got as f64 - mean).abs() <= mean * 0.05), "evenly: {rest:?}");
            let busy: Duration = report.ran.iter().map(|ran| ran.until - ran.from).sum();
            assert!(busy > 20 * SECOND * 8 / 10, "{busy:?}");
        }
    }
}
