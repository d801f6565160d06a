//! What the scheduler does for frames that have not come yet: cameras are periodic, so much of the near future is known.

use std::time::{Duration, Instant};

use super::plan::{Engine, Route, Scheduler};

/// So many batches ahead a busy device is looked at.
const BATCHES_AHEAD: usize = 32;

/// A realtime frame that waits, at a moment that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    deadline: Instant,
    lane: usize,
    route: usize,
}

/// A realtime camera's next frame, after that moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    ready: Instant,
    due: Due,
    period: Duration,
}

impl Scheduler {
    /// Whether more realtime frames miss their deadlines if a batch of this lane runs until `end` than if the device is
    /// free at `before`: of those that wait and of those that are expected until it has caught up.
    pub(super) fn delays_realtime(
        &mut self,
        lane: usize,
        before: Instant,
        end: Instant,
        now: Instant,
    ) -> bool {
        if self.timed.is_empty() {
            return false;
        }
        let misses = self.misses(lane, end, end, now);
        misses > 0 && misses > self.misses(lane, before, end, now)
    }

    /// How many realtime frames miss their deadlines if the device does nothing but those from `free` on, until it has
    /// nothing to do any more after `until`. What is in the lane's open batch is not counted.
    fn misses(&mut self, lane: usize, mut free: Instant, until: Instant, now: Instant) -> usize {
        self.foresee(lane, now);
        let mut misses = 0;
        for _ in 0..BATCHES_AHEAD {
            misses += self.arrive(free);
            let Some(&first) = self.due.first() else {
                match self.coming.iter().map(|coming| coming.ready).min() {
                    Some(ready) if ready < until => free = ready,
                    _ => break,
                }
                continue;
            };
            let batcher = &self.lanes[first.lane].batcher;
            let is_blocking = self.engine() == Engine::Blocking;
            let ends = |frames: usize| {
                free + batcher.preprocess(if is_blocking { frames } else { 1 }) + batcher.service(frames)
            };
            let together = self.due.iter().filter(|due| due.lane == first.lane).count();
            let most = together.min(batcher.times().most());
            let Some(frames) = (1..=most).rev().find(|&frames| ends(frames) <= first.deadline) else {
                misses += 1;
                self.due.remove(0);
                continue;
            };
            // The events of an asynchronous device are made while it runs the next batch.
            free = if is_blocking { ends(frames) } else { free + batcher.times().slow(frames) };
            let mut left = frames;
            self.due.retain(|due| {
                let runs = due.lane == first.lane && left > 0;
                left -= usize::from(runs);
                !runs
            });
        }
        misses
    }

    /// Realtime frames that wait now, and the next one of each camera.
    fn foresee(&mut self, lane: usize, now: Instant) {
        self.due.clear();
        self.coming.clear();
        for &index in &self.timed {
            let Route { spec, arrivals, waiting, slot, .. } = &self.routes[index];
            let Some(allowed) = spec.deadline else { continue };
            let due = |deadline| Due { deadline, lane: spec.lane, route: index };
            let written = slot.filter(|_| spec.lane != lane);
            let written =
                written.and_then(|slot| self.lanes[spec.lane].batcher.written()[slot].rank.deadline);
            let waits = waiting.map(|waiting| waiting.received + allowed);
            self.due.extend(waits.or(written).map(due));
            if let (Some(expected), Some(period)) = (arrivals.expected(now), arrivals.period()) {
                let due = due(expected.received + allowed);
                self.coming.push(Coming { ready: expected.ready, due, period });
            }
        }
    }

    /// Lets everything come that is there by then, and says how many frames a newer one displaced: also while the frames
    /// before them are written, of a device that does nothing else meanwhile.
    fn arrive(&mut self, by: Instant) -> usize {
        let mut displaced = 0;
        for coming in &mut self.coming {
            while coming.ready <= by && !coming.period.is_zero() {
                match self.due.iter_mut().find(|due| due.route == coming.due.route) {
                    Some(due) => {
                        *due = coming.due;
                        displaced += 1;
                    }
                    None => self.due.push(coming.due),
                }
                coming.ready += coming.period;
                coming.due.deadline += coming.period;
            }
        }
        self.due.sort_unstable();
        if self.engine() == Engine::Blocking {
            let mut taken = by;
            for due in &self.due {
                let next = self.coming.iter().find(|coming| coming.due.route == due.route);
                displaced += usize::from(next.is_some_and(|next| next.ready < taken));
                taken += self.lanes[due.lane].batcher.preprocess(1);
            }
        }
        displaced
    }

    /// When that may change which keeps frames from beginning, if any are kept.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        if !self.lanes.iter().any(|lane| lane.view.held) {
            return None;
        }
        let expected = self.timed.iter().filter_map(|&route| self.routes[route].arrivals.expected(now));
        expected.map(|expected| if expected.ready > now { expected.ready } else { expected.expires }).min()
    }

    /// Whether a frame may come until then for the lane's open batch.
    pub(super) fn more_may_come(&self, lane: usize, until: Instant, now: Instant) -> bool {
        let outside = |route: &&Route| route.waiting.is_none() && route.slot.is_none();
        let mut outside = self.lanes[lane].routes.iter().map(|&route| &self.routes[route]).filter(outside);
        outside.any(|route| route.arrivals.may_come_by(until, now))
    }
}
