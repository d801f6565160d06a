//! Which frame joins a lane's open batch, in whose place, and whether for its sake the batch becomes smaller.

use std::time::{Duration, Instant};

use super::Quality;
use super::fairness::Rank;
use super::plan::{Engine, Lane, Route, Scheduler, Step, Take};

impl Scheduler {
    /// What is done for the lane's next frame, if it may join its open batch.
    pub(super) fn fill(&mut self, lane: usize, target: usize, start: Instant, now: Instant) -> Option<Step> {
        let Lane { batcher, view, .. } = &self.lanes[lane];
        let (rank, route) = view.best?;
        let take = |slot| Step::Take(Take { route, lane, slot });
        if let Some(slot) = self.routes[route].slot {
            // Its frame was passed over, and a newer one is there.
            return Some(take(slot));
        }
        let slots = batcher.written().len();
        let gives_way = |slot: usize| rank.quality < batcher.written()[slot].rank.quality;
        let last = batcher.last().filter(|&slot| gives_way(slot));
        let most = batcher.times().most();
        let written = start.max(now + batcher.preprocess(1));
        let keeps = |frames: &usize| {
            rank.deadline.is_none_or(|deadline| written + batcher.service(*frames) <= deadline)
        };
        if let Some(last) = last {
            if gives_way(slots - 1) && !keeps(&slots) && keeps(&1) {
                return Some(Step::GiveWay(lane));
            }
            // With one frame more it, or another realtime frame, comes too late.
            let (kept, ends) =
                (keeps(&(slots + 1)), [slots, slots + 1].map(|n| written + batcher.service(n)));
            if !kept || rank.quality == Quality::Realtime && self.delays_realtime(lane, ends[0], ends[1], now)
            {
                return Some(take(last));
            }
        } else if slots > 0 && !keeps(&(slots + 1)) && keeps(&1) {
            return None;
        }
        let target =
            if last.is_some() { most } else { target.min(most - self.reserved(lane, rank, start, now)) };
        if slots < target && self.fits(lane, rank, start, now) { Some(take(slots)) } else { last.map(take) }
    }

    /// Whether one frame more may join a lane's open batch that starts at `start`.
    pub(super) fn fits(&mut self, lane: usize, rank: Rank, start: Instant, now: Instant) -> bool {
        let batcher = &self.lanes[lane].batcher;
        let frames = batcher.written().len();
        let before = if frames > 0 { start + batcher.service(frames) } else { start };
        let written = start.max(now + batcher.preprocess(1));
        let end = written + batcher.service(frames + 1);
        // A deadline that is kept if the batch runs as it is.
        batcher.tightest(start).is_none_or(|deadline| end <= deadline)
            && (rank.quality == Quality::Realtime
                || self.draining
                || !self.delays_realtime(lane, before, end, now))
    }

    /// Slots that better frames will take, which are expected before the batch starts. One always is for the frame.
    fn reserved(&self, lane: usize, rank: Rank, start: Instant, now: Instant) -> usize {
        let Lane { batcher, routes, .. } = &self.lanes[lane];
        let better = |route: &&Route| {
            route.spec.quality < rank.quality && route.waiting.is_none() && route.slot.is_none()
        };
        let routes = routes.iter().map(|&route| &self.routes[route]).filter(better);
        let expected = routes.filter_map(|route| route.arrivals.expected(now));
        expected.filter(|expected| expected.ready < start).count().min(batcher.times().most() - 1)
    }

    /// Whether a frame more is worth that the device does nothing while it is written. A better frame always is.
    pub(super) fn pays_to_fill(&self, lane: usize) -> bool {
        let Lane { batcher, view, .. } = &self.lanes[lane];
        let Some((rank, route)) = view.best else { return false };
        let worst = batcher.last().map(|slot| batcher.written()[slot].rank.quality);
        if self.engine() == Engine::Blocking
            || self.routes[route].slot.is_some()
            || rank.quality == Quality::Realtime
            || worst.is_some_and(|worst| rank.quality < worst)
        {
            return true;
        }
        let (frames, times) = (batcher.written().len(), batcher.times());
        let each = |time: Duration, frames: usize| time / u32::try_from(frames).unwrap_or(u32::MAX);
        each(times.typical(frames + 1) + batcher.preprocess(1), frames + 1)
            < each(times.typical(frames), frames)
    }
}
