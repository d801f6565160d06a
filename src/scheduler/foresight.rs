//! What the scheduler does for frames that have not come yet: cameras are periodic, so much of the near future is known.

use std::time::{Duration, Instant};

use super::plan::{Engine, Route, Scheduler};

/// So many batches ahead a busy device is looked at.
const BATCHES_AHEAD: usize = 32;

/// A realtime camera with a deadline, at a moment that is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    lane: usize,
    /// The deadline of its frame that waits.
    waits: Option<Instant>,
    /// Its next frame, once it is known when that comes.
    next: Option<Next>,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    ready: Instant,
    deadline: Instant,
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
        let (mut misses, is_blocking) = (0, self.engine() == Engine::Blocking);
        for _ in 0..BATCHES_AHEAD {
            misses += self.arrive(free);
            let Some((deadline, lane)) = self.first() else {
                let ready = self.ahead.iter().filter_map(|ahead| ahead.next).map(|next| next.ready).min();
                match ready {
                    Some(ready) if ready < until => free = ready,
                    _ => break,
                }
                continue;
            };
            let batcher = &self.lanes[lane].batcher;
            let ends = |frames: usize| {
                free + batcher.preprocess(if is_blocking { frames } else { 1 }) + batcher.service(frames)
            };
            let together =
                self.ahead.iter().filter(|ahead| ahead.lane == lane && ahead.waits.is_some()).count();
            let most = together.min(batcher.times().most());
            match (1..=most).rev().find(|&frames| ends(frames) <= deadline) {
                Some(frames) => {
                    // The events of an asynchronous device are made while it runs the next batch.
                    free = if is_blocking { ends(frames) } else { free + batcher.times().slow(frames) };
                    (0..frames).for_each(|_| self.leaves(lane));
                }
                None => {
                    misses += 1;
                    self.leaves(lane);
                }
            }
        }
        misses
    }

    /// Realtime frames that wait now, and the next one of each camera.
    fn foresee(&mut self, lane: usize, now: Instant) {
        self.ahead.clear();
        for &index in &self.timed {
            let Route { spec, arrivals, waiting, slot, .. } = &self.routes[index];
            let Some(allowed) = spec.deadline else { continue };
            let written = slot.filter(|_| spec.lane != lane);
            let written =
                written.and_then(|slot| self.lanes[spec.lane].batcher.written()[slot].rank.deadline);
            let waits = waiting.map(|waiting| waiting.received + allowed).or(written);
            let expected = arrivals.expected(now).zip(arrivals.period().filter(|period| !period.is_zero()));
            let next = expected.map(|(expected, period)| Next {
                ready: expected.ready,
                deadline: expected.received + allowed,
                period,
            });
            self.ahead.push(Ahead { lane: spec.lane, waits, next });
        }
    }

    /// Lets everything come that is there by then, and says how many frames a newer one displaced: also while the others
    /// are written, by a device that does nothing else meanwhile.
    fn arrive(&mut self, by: Instant) -> usize {
        let (mut displaced, mut written) = (0, by);
        for ahead in &mut self.ahead {
            while let Some(next) = ahead.next.as_mut().filter(|next| next.ready <= by) {
                displaced += usize::from(ahead.waits.is_some());
                ahead.waits = Some(next.deadline);
                next.ready += next.period;
                next.deadline += next.period;
            }
            if ahead.waits.is_some() {
                written += self.lanes[ahead.lane].batcher.preprocess(1);
            }
        }
        if self.engine() == Engine::Blocking {
            let is_displaced = |ahead: &&Ahead| {
                let taken = written - self.lanes[ahead.lane].batcher.preprocess(1);
                ahead.waits.is_some() && ahead.next.is_some_and(|next| next.ready < taken)
            };
            displaced += self.ahead.iter().filter(is_displaced).count();
        }
        displaced
    }

    /// The earliest deadline of those that wait, and its lane.
    fn first(&self) -> Option<(Instant, usize)> {
        self.ahead.iter().filter_map(|ahead| Some((ahead.waits?, ahead.lane))).min()
    }

    /// The frame of this lane with the earliest deadline waits no longer.
    fn leaves(&mut self, lane: usize) {
        let waits = self.ahead.iter_mut().filter(|ahead| ahead.lane == lane && ahead.waits.is_some());
        if let Some(ahead) = waits.min_by_key(|ahead| ahead.waits) {
            ahead.waits = None;
        }
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
