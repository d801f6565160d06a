//! Whether a device can do what it has promised: the realtime demand beside its measured capacity.

use std::fmt;
use std::time::Instant;

use super::Quality;
use super::plan::{Engine, Scheduler};

/// The device is told to be overcommitted above the first, and no longer below the second.
const OVER: f64 = 1.0;
const NO_LONGER: f64 = 0.95;

/// What realtime cameras ask of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Realtime frames a second: as they arrive, or as `rate_max` says while none has arrived.
    pub demand: f64,
    /// The part of the device's time that they take in the best batches: above 1 it cannot keep up.
    pub share: f64,
}

impl Load {
    /// Whether the device is overcommitted, given whether it was so far.
    #[must_use]
    pub fn is_over(&self, was: Overcommitted) -> bool {
        self.share > if was == Overcommitted::Yes { NO_LONGER } else { OVER }
    }
}

/// Whether a device was found to be overcommitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommitted {
    /// Its realtime cameras ask for more than it can do.
    Yes,
    /// They do not.
    No,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demand, share } = self;
        write!(
            f,
            "realtime cameras ask for {demand:.1} frames a second, {:.0} % of what it can do",
            share * 100.0
        )
    }
}

impl Scheduler {
    /// What the realtime routes ask of the device, as seen at `now`.
    #[must_use]
    pub fn load(&self, now: Instant) -> Load {
        let mut load = Load::default();
        for lane in &self.lanes {
            let (mut demand, mut cameras) = (0.0, 0);
            let mut deadline = None;
            for route in lane.routes.iter().map(|&route| &self.routes[route]) {
                let rate = route.arrivals.rate(now).or(if route.arrivals.is_new() {
                    route.spec.rate_max
                } else {
                    None
                });
                if let (Quality::Realtime, Some(rate)) = (route.spec.quality, rate) {
                    demand += rate;
                    cameras += 1;
                    deadline = deadline.into_iter().chain(route.spec.deadline).min();
                }
            }
            if cameras > 0 {
                let times = lane.batcher.times();
                let keeps =
                    |frames: &usize| deadline.is_none_or(|deadline| times.typical(*frames) <= deadline);
                let most = (1..=times.most().min(cameras)).rev().find(keeps).unwrap_or(1);
                let each = match self.engine() {
                    Engine::Blocking => lane.batcher.best_per_frame(most),
                    Engine::Asynchronous => times.best_per_frame(most),
                };
                load.demand += demand;
                load.share += demand * each.as_secs_f64();
            }
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scheduler::Late;
    use crate::scheduler::arrivals::Arrival;
    use crate::scheduler::plan::RouteSpec;
    use crate::scheduler::run_time::{RunTimes, Sizes};

    const MS: Duration = Duration::from_millis(1);

    fn scheduler(
        routes: usize,
        quality: Quality,
        rate_max: Option<f64>,
        deadline: Option<Duration>,
    ) -> Scheduler {
        let route = RouteSpec { lane: 0, quality, weight: 1, deadline, late: Late::Drop, rate_max };
        let times = RunTimes::new(Sizes::Any, 8, &[(1, 11 * MS), (8, 18 * MS)]);
        Scheduler::new(Engine::Asynchronous, 5 * MS, vec![times], &vec![route; routes])
    }

    #[test]
    fn before_the_first_frame_rate_max_is_the_demand_and_then_what_arrives() {
        let (start, mut scheduler) = (Instant::now(), scheduler(2, Quality::Realtime, Some(50.0), None));
        let load = scheduler.load(start);
        assert_eq!(load.demand, 100.0);
        assert!((load.share - 0.6).abs() < 1e-3, "two frames in 12 ms, 50 times a second: {load:?}");
        for count in 1..10 {
            let at = start + 100 * MS * u32::try_from(count).unwrap();
            scheduler.arrived(0, Arrival { received: at, ready: at, count });
        }
        assert!((scheduler.load(start + 905 * MS).demand - 60.0).abs() < 1e-6);
    }

    #[test]
    fn only_realtime_counts_and_a_short_deadline_allows_only_small_batches() {
        let now = Instant::now();
        assert_eq!(scheduler(8, Quality::Standard, Some(100.0), None).load(now), Load::default());
        let relaxed = scheduler(8, Quality::Realtime, Some(40.0), None).load(now);
        let pressed = scheduler(8, Quality::Realtime, Some(40.0), Some(12 * MS)).load(now);
        assert!(relaxed.share < 0.8 && pressed.share > 1.5, "{relaxed:?} {pressed:?}");
        assert!(!relaxed.is_over(Overcommitted::No) && pressed.is_over(Overcommitted::No));
    }

    #[test]
    fn a_device_on_the_edge_is_not_told_again_and_again() {
        let edge = Load { demand: 100.0, share: 0.98 };
        assert!(!edge.is_over(Overcommitted::No) && edge.is_over(Overcommitted::Yes));
        assert_eq!(
            edge.to_string(),
            "realtime cameras ask for 100.0 frames a second, 98 % of what it can do"
        );
    }
}
