//! One device's next step: which frame is written into which batch, which batch runs, how long nothing needs doing.
//!
//! The worker asks [`Scheduler::step`], does it, and tells what came of it. All models and cameras of the device are in one
//! scheduler, so that a batch of one model never comes before a better frame of another.
//!
//! # Rules
//!
//! 1. The lane with the first frame ([`super::fairness`]) leads; its frames are taken in that order, and while it waits for
//!    more of them no other lane runs: if another has work, the leading batch runs at once.
//! 2. A batch is sealed when it is full, when its oldest frame has waited for `queue_delay_max`, when the earliest deadline
//!    forces it, or when waiting cannot pay: no camera of the lane is expected in time, or a larger batch is no cheaper.
//! 3. A frame joins a batch only while the deadlines that the batch keeps are kept, and only so many join as the best split
//!    of those that wait has in its first batch. A frame of better quality takes the place of a worse one, and of a batch that
//!    would be too large for its deadline worse ones give way.
//! 4. A frame that is not realtime is left alone while its run could make a realtime frame miss its deadline: one that waits,
//!    or one that is expected, since cameras are periodic. Frames without a deadline are never planned for, realtime or not.
//! 5. While an asynchronous device runs a batch, nothing is taken before the next batch must be begun for it to be ready in
//!    time. So the newest frames win until then, and the queue in front of a slow device is never longer than one batch.
//! 6. A frame that cannot be done by its deadline is not begun, unless its late result is wanted.

use std::time::{Duration, Instant};

use super::arrivals::{Arrival, Arrivals};
use super::batcher::{Batcher, Seal, Written};
use super::fairness::{Account, Rank, Turns};
use super::foresight::Ahead;
use super::run_time::RunTimes;
use super::{Late, Quality};

/// A wait shorter than this is not begun; the time to fall asleep and to wake is of this order.
const SHORT: Duration = Duration::from_micros(300);
/// A run that was over when it was waited for ended at an unknown time before.
const WAS_OVER: Duration = Duration::from_micros(20);
/// A lane that has not run for so long runs a frame that seems to be too late, to see whether that is still so.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// A camera's frames for one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteSpec {
    /// The model, by its index.
    pub lane: usize,
    /// Who comes first.
    pub quality: Quality,
    /// The route's share among those of its quality, at least 1.
    pub weight: u32,
    /// A result is wanted within this time of the frame's arrival.
    pub deadline: Option<Duration>,
    /// What becomes of a frame that cannot be done by its deadline.
    pub late: Late,
    /// The most frames a second that come.
    pub rate_max: Option<f64>,
}

/// How the device runs a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The thread that submits a batch is busy until it has run.
    Blocking,
    /// The next batch is filled meanwhile.
    Asynchronous,
}

/// What the worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the newest frame of this route and write it into a slot: [`Scheduler::take`], then [`Scheduler::wrote`] or
    /// [`Scheduler::skipped`].
    Take(Take),
    /// Let go of the frame in the last slot of the lane's open batch, so that a better one comes in time:
    /// [`Scheduler::gave_way`].
    GiveWay(usize),
    /// Run the lane's open batch: [`Scheduler::submitted`].
    Submit(usize),
    /// Wait for the running batch, which is this lane's: [`Scheduler::finished`], or [`Scheduler::failed`].
    Finish(usize),
    /// Nothing to do until a frame arrives, or until then.
    Wait(Option<Instant>),
    /// Nothing to do until then, whatever arrives.
    Sleep(Instant),
}

/// A frame to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Whose.
    pub route: usize,
    /// Into which lane's open batch.
    pub lane: usize,
    /// Into which slot: the next one, or one whose frame gives way.
    pub slot: usize,
}

/// Whether a frame is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Write,
    /// It cannot be done by its deadline.
    TooLate,
}

/// Decides for all models and cameras of one device. Allocates only in [`Scheduler::new`].
#[derive(Clone, Debug)]
pub struct Scheduler {
    engine: Engine,
    delay_max: Duration,
    pub(super) lanes: Vec<Lane>,
    pub(super) routes: Vec<Route>,
    /// Routes whose frame waits.
    waiting: Vec<usize>,
    /// Realtime routes with a deadline.
    pub(super) timed: Vec<usize>,
    turns: Turns,
    running: Option<Running>,
    /// The frame that is being written.
    taking: Option<Taking>,
    /// Batches submitted so far.
    turn: u64,
    /// Routes whose frames were in the last one.
    served: Vec<usize>,
    pub(super) draining: bool,
    /// Realtime routes with a deadline, at a moment that is looked at. Scratch.
    pub(super) ahead: Vec<Ahead>,
}

#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) batcher: Batcher,
    pub(super) routes: Vec<usize>,
    ran_at: Option<Instant>,
    pub(super) view: View,
}

/// What a look at all that waits has found for a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// The first of its frames that wait, and its route.
    pub(super) best: Option<(Rank, usize)>,
    /// Frames that wait and are not replacements of frames in the open batch.
    pub(super) waiting: usize,
    /// Since when the oldest of those that wait or are in the open batch waits.
    oldest: Option<Instant>,
    /// Whether a route with a frame in the open batch has a newer one.
    outrun: bool,
    /// Whether it must not begin for the sake of realtime frames.
    pub(super) held: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) spec: RouteSpec,
    pub(super) arrivals: Arrivals,
    account: Account,
    pub(super) waiting: Option<Waiting>,
    /// Its slot in the open batch of its lane.
    pub(super) slot: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    since: Instant,
    pub(super) received: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    lane: usize,
    frames: usize,
    submitted: Instant,
    /// When the next batch must be begun.
    fill_at: Instant,
    /// Until when more frames are looked for, rather than the batch waited for.
    look_until: Instant,
    /// When it ends, if it is slow.
    free_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Taking {
    take: Take,
    rank: Rank,
    since: Instant,
}

impl Scheduler {
    /// A scheduler for these lanes, each with its run times, and these routes. `delay_max` is how long a frame waits for
    /// others.
    #[must_use]
    pub fn new(engine: Engine, delay_max: Duration, lanes: Vec<RunTimes>, routes: &[RouteSpec]) -> Self {
        let of = |lane: usize| (0..routes.len()).filter(|route| routes[*route].lane == lane).collect();
        let lane = |(index, times)| Lane {
            batcher: Batcher::new(times),
            routes: of(index),
            ran_at: None,
            view: View::default(),
        };
        let route = |spec: &RouteSpec| Route {
            spec: *spec,
            arrivals: Arrivals::default(),
            account: Account::new(spec.quality, spec.weight),
            waiting: None,
            slot: None,
        };
        let timed =
            |route: &usize| routes[*route].quality == Quality::Realtime && routes[*route].deadline.is_some();
        Self {
            engine,
            delay_max,
            lanes: lanes.into_iter().enumerate().map(lane).collect(),
            routes: routes.iter().map(route).collect(),
            waiting: Vec::with_capacity(routes.len()),
            timed: (0..routes.len()).filter(timed).collect(),
            turns: Turns::default(),
            running: None,
            taking: None,
            turn: 0,
            served: Vec::with_capacity(routes.len()),
            draining: false,
            ahead: Vec::with_capacity(routes.len()),
        }
    }

    /// A frame of this route was delivered; it has taken the place of the one before, if that was not taken.
    pub fn arrived(&mut self, index: usize, arrival: Arrival) {
        let route = &mut self.routes[index];
        let came = route.arrivals.note(arrival);
        let is_displaced = came > 1 || route.waiting.is_some();
        match &mut route.waiting {
            Some(waiting) => waiting.received = arrival.received,
            None => {
                self.turns.wait(&mut route.account);
                route.waiting = Some(Waiting { since: arrival.ready, received: arrival.received });
                self.waiting.push(index);
            }
        }
        if is_displaced {
            route.account.lose();
        }
    }

    /// A frame of this route may be waiting since before this scheduler was made.
    pub fn look_for(&mut self, index: usize, now: Instant) {
        let route = &mut self.routes[index];
        self.turns.wait(&mut route.account);
        if route.waiting.replace(Waiting { since: now, received: now }).is_none() {
            self.waiting.push(index);
        }
    }

    /// From here on no more frames come: what is there is done without waiting for others.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// What to do at `now`.
    #[must_use]
    pub fn step(&mut self, now: Instant) -> Step {
        self.look(now);
        match self.running {
            Some(running) => self.while_running(running, now),
            None => self.while_idle(now),
        }
    }

    /// The frame of a [`Step::Take`] was taken; its data was `received` then.
    pub fn take(&mut self, take: Take, received: Instant, now: Instant) -> Verdict {
        let index = take.route;
        let since = self.leave(index).map_or(now, |waiting| waiting.since);
        // A frame in the place of an older one of its camera has waited as long as that.
        let older =
            self.routes[index].slot.map(|slot| self.lanes[take.lane].batcher.written()[slot].rank.since);
        let since = older.map_or(since, |older| older.min(since));
        let deadline = self.deadline(index, received, now);
        let route = &mut self.routes[index];
        if matches!(deadline, Deadline::Hopeless(_)) {
            route.account.lose();
            return Verdict::TooLate;
        }
        let rank = self.turns.rank(&route.account, deadline.ranked(), since);
        self.turns.serve(&mut route.account);
        self.taking = Some(Taking { take, rank, since: now });
        Verdict::Write
    }

    /// The frame of a [`Step::Take`] was not there, or could not be written; the slot is as it was.
    pub fn skipped(&mut self, take: Take) {
        self.leave(take.route);
        self.taking = None;
    }

    /// The frame that was taken is written.
    pub fn wrote(&mut self, now: Instant) {
        let Some(Taking { take, rank, since }) = self.taking.take() else { return };
        let batcher = &mut self.lanes[take.lane].batcher;
        if let Some(gives_way) = batcher.written().get(take.slot) {
            let route = &mut self.routes[gives_way.route];
            route.slot = None;
            self.turns.refund(&mut route.account);
        }
        let written = Written { route: take.route, rank, turn: self.turn };
        batcher.put(take.slot, written, now.saturating_duration_since(since));
        self.routes[take.route].slot = Some(take.slot);
    }

    /// The frame in the last slot of the lane's open batch is gone.
    pub fn gave_way(&mut self, lane: usize) {
        if let Some(written) = self.lanes[lane].batcher.pop() {
            let route = &mut self.routes[written.route];
            route.slot = None;
            self.turns.refund(&mut route.account);
        }
    }

    /// The lane's open batch was submitted.
    pub fn submitted(&mut self, index: usize, now: Instant) {
        self.served.clear();
        for written in self.lanes[index].batcher.written() {
            self.routes[written.route].slot = None;
            self.served.push(written.route);
        }
        let lane = &mut self.lanes[index];
        let frames = lane.batcher.take();
        lane.ran_at = Some(now);
        self.turn += 1;
        let times = self.lanes[index].batcher.times();
        let look_until = now + times.fast(frames) * 7 / 8;
        let fill = |lane: &Lane| lane.batcher.preprocess(lane.batcher.times().most());
        let fill = self.lanes.iter().map(fill).max().unwrap_or_default() * 5 / 4;
        self.running = Some(Running {
            lane: index,
            frames,
            submitted: now,
            fill_at: look_until.checked_sub(fill).unwrap_or(now),
            look_until,
            free_at: now + times.slow(frames),
        });
    }

    /// The running batch has run. It was waited for from `asked` on.
    pub fn finished(&mut self, asked: Instant, now: Instant) {
        let Some(running) = self.running.take() else { return };
        let batcher = &mut self.lanes[running.lane].batcher;
        let time = now.saturating_duration_since(running.submitted);
        // Nobody knows when a run ended that was over already; only that it took no longer.
        let was_over = self.engine == Engine::Asynchronous && now.saturating_duration_since(asked) < WAS_OVER;
        if !was_over || time < batcher.times().typical(running.frames) {
            batcher.ran(running.frames, time);
        }
    }

    /// The running batch has failed.
    pub fn failed(&mut self) {
        self.running = None;
    }

    /// The events of a batch of so many frames were made.
    pub fn concluded(&mut self, lane: usize, frames: usize, took: Duration) {
        self.lanes[lane].batcher.concluded(frames, took);
    }

    /// How the device runs a batch.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The run times of a lane.
    #[must_use]
    pub fn times(&self, lane: usize) -> &RunTimes {
        self.lanes[lane].batcher.times()
    }

    /// Looks at every frame that waits.
    fn look(&mut self, now: Instant) {
        self.turns.look();
        for index in &self.waiting {
            self.turns.see(&self.routes[*index].account);
        }
        let written = self.lanes.iter().flat_map(|lane| lane.batcher.written()).map(|written| &written.route);
        for index in written.chain(&self.served) {
            let route = &self.routes[*index];
            if route.waiting.is_none() {
                self.turns.see_served(&route.account);
            }
        }
        for lane in &mut self.lanes {
            lane.view = View {
                oldest: lane.batcher.written().iter().map(|written| written.rank.since).min(),
                ..View::default()
            };
        }
        for at in 0..self.waiting.len() {
            let index = self.waiting[at];
            let route = &self.routes[index];
            let Some(Waiting { since, received }) = route.waiting else { continue };
            let deadline = self.deadline(index, received, now).ranked();
            let rank = self.turns.rank(&route.account, deadline, since);
            let lane = &mut self.lanes[route.spec.lane];
            let view = &mut lane.view;
            if let Some(slot) = route.slot {
                view.outrun = true;
                if lane.batcher.written()[slot].turn == self.turn {
                    continue;
                }
            } else {
                view.waiting += 1;
                view.oldest = Some(view.oldest.map_or(since, |oldest| oldest.min(since)));
            }
            if view.best.is_none_or(|(best, _)| rank < best) {
                view.best = Some((rank, index));
            }
        }
    }

    fn while_idle(&mut self, now: Instant) -> Step {
        let Some(lane) = self.leading(now, now) else { return Step::Wait(self.held_until(now)) };
        let Lane { batcher, view, .. } = &self.lanes[lane];
        let written = batcher.written().len();
        let waiting = written + view.waiting;
        let seal = if written == 0 {
            Seal::At(now)
        } else if self.draining || view.outrun || self.others_wait(lane) {
            Seal::Now
        } else {
            match batcher.seal(view.oldest.unwrap_or(now), self.delay_max, now) {
                Seal::At(at) if !self.more_may_come(lane, at, now) => Seal::Now,
                seal => seal,
            }
        };
        match seal {
            Seal::At(at) => {
                let target = batcher.times().whole(waiting);
                self.fill(lane, target, now, now).unwrap_or(Step::Wait(Some(at)))
            }
            Seal::Now if !self.pays_to_fill(lane) => Step::Submit(lane),
            Seal::Now => {
                let target = batcher.times().first(waiting);
                self.fill(lane, target, now, now).unwrap_or(Step::Submit(lane))
            }
        }
    }

    fn while_running(&mut self, running: Running, now: Instant) -> Step {
        let finish = Step::Finish(running.lane);
        if self.engine == Engine::Blocking {
            return finish;
        }
        if !self.draining && now + SHORT < running.fill_at {
            return Step::Sleep(running.fill_at);
        }
        let start = running.free_at.max(now);
        if let Some(lane) = self.leading(start, now) {
            let Lane { batcher, view, .. } = &self.lanes[lane];
            let target = batcher.times().first(batcher.written().len() + view.waiting);
            if let Some(step) = self.fill(lane, target, start, now) {
                return step;
            }
        }
        if self.draining || now + SHORT >= running.look_until {
            finish
        } else {
            Step::Wait(Some(running.look_until))
        }
    }

    /// The lane whose batch starts at `start`: the one with the first frame of those that may begin.
    fn leading(&mut self, start: Instant, now: Instant) -> Option<usize> {
        loop {
            let head = |lane: &usize| self.head(*lane).map(|head| (head, *lane));
            let (_, lane) = (0..self.lanes.len()).filter_map(|lane| head(&lane)).min()?;
            if self.may_begin(lane, start, now) {
                return Some(lane);
            }
            self.lanes[lane].view.held = true;
        }
    }

    /// Whether the lane's batch, or its first frame, may run from `start` on.
    fn may_begin(&mut self, lane: usize, start: Instant, now: Instant) -> bool {
        let Some(head) = self.head(lane) else { return false };
        let batcher = &self.lanes[lane].batcher;
        let frames = batcher.written().len();
        if frames == 0 {
            return self.fits(lane, head, start, now);
        }
        let end = start + batcher.service(frames);
        head.quality == Quality::Realtime || self.draining || !self.delays_realtime(lane, start, end, now)
    }

    /// The first frame of a lane that may begin.
    fn head(&self, lane: usize) -> Option<Rank> {
        let Lane { batcher, view, .. } = &self.lanes[lane];
        let best = view.best.map(|(rank, _)| rank);
        (!view.held).then(|| batcher.head().into_iter().chain(best).min()).flatten()
    }

    /// Whether another lane has frames that may begin.
    fn others_wait(&self, lane: usize) -> bool {
        (0..self.lanes.len()).any(|other| other != lane && self.head(other).is_some())
    }

    /// The route waits no longer.
    fn leave(&mut self, index: usize) -> Option<Waiting> {
        let waiting = self.routes[index].waiting.take();
        if let Some(at) = self.waiting.iter().position(|waiting| *waiting == index) {
            self.waiting.swap_remove(at);
        }
        waiting
    }

    /// What a frame's deadline is worth.
    fn deadline(&self, index: usize, received: Instant, now: Instant) -> Deadline {
        let Route { spec, .. } = &self.routes[index];
        let Some(deadline) = spec.deadline.map(|deadline| received + deadline) else { return Deadline::None };
        let lane = &self.lanes[spec.lane];
        let start = self.running.map_or(now, |running| running.look_until.max(now));
        let is_quiet =
            || lane.ran_at.is_none_or(|ran_at| now.saturating_duration_since(ran_at) > PROBE_AFTER);
        match spec.late {
            _ if start + lane.batcher.times().fast(1) <= deadline => Deadline::Kept(deadline),
            Late::Publish => Deadline::None,
            Late::Drop if now < deadline && is_quiet() => Deadline::None,
            Late::Drop => Deadline::Hopeless(deadline),
        }
    }
}

/// A frame's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deadline {
    /// There is none, or none that could matter.
    None,
    /// It can be kept.
    Kept(Instant),
    /// It cannot be kept, and the frame is not wanted without.
    Hopeless(Instant),
}

impl Deadline {
    /// What the frame's place depends on. One that is hopeless is looked at soon, and goes.
    fn ranked(self) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::Kept(deadline) | Self::Hopeless(deadline) => Some(deadline),
        }
    }
}
