//! A device with cameras in virtual time: it does what the scheduler says, as the worker does, and writes down everything.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gantry::scheduler::arrivals::Arrival;
use gantry::scheduler::plan::{Engine, RouteSpec, Scheduler, Step, Verdict};
use gantry::scheduler::run_time::{RunTimes, Sizes};
use gantry::scheduler::{Late, Quality};

/// One millisecond.
pub const MS: Duration = Duration::from_millis(1);

/// A model on the device.
#[derive(Clone, Debug)]
pub struct LaneModel {
    /// A run takes this.
    pub run: Duration,
    /// And this for each frame of its size.
    pub each: Duration,
    /// The sizes that it runs; any, when none are given.
    pub sizes: Vec<usize>,
    /// The most frames in a batch.
    pub most: usize,
    /// What writing a frame takes.
    pub preprocess: Duration,
    /// What making its event takes.
    pub postprocess: Duration,
}

/// A camera and what is wanted of its frames.
#[derive(Clone)]
pub struct Camera {
    /// The route.
    pub spec: RouteSpec,
    /// When its frames are there, after the start, in order.
    pub ready: VecDeque<Duration>,
    /// How long before that they were received.
    pub decode: Duration,
}

/// A frame that got a result.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub route: usize,
    pub at: Instant,
    pub late: bool,
}

/// A batch that ran.
#[derive(Clone, Debug)]
pub struct Ran {
    pub lane: usize,
    pub from: Instant,
    pub until: Instant,
    pub frames: usize,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Report {
    pub done: Vec<Done>,
    pub ran: Vec<Ran>,
    /// Frames that a newer one displaced, or that gave way in an open batch, by route.
    pub stale: Vec<usize>,
    /// Frames that were dropped since they could not be done in time, by route.
    pub hopeless: Vec<usize>,
    /// Times at which a batch began while a better frame waited that could have had its place.
    pub inversions: Vec<String>,
    /// Times at which the device did nothing although a frame had waited for longer than the delay.
    pub idle: Vec<String>,
}

impl Report {
    /// Frames of a route that got a result in time.
    pub fn kept(&self, route: usize) -> usize {
        self.done.iter().filter(|done| done.route == route && !done.late).count()
    }

    /// Frames of a route that got none, or a late one.
    pub fn missed(&self, route: usize) -> usize {
        let late = self.done.iter().filter(|done| done.route == route && done.late).count();
        late + self.hopeless[route] + self.stale[route]
    }
}

/// The world.
pub struct Simulator {
    engine: Engine,
    delay: Duration,
    lanes: Vec<LaneModel>,
    cameras: Vec<Camera>,
    scheduler: Scheduler,
    start: Instant,
    now: Instant,
    mailboxes: Vec<Option<Frame>>,
    counts: Vec<u64>,
    open: Vec<Vec<Frame>>,
    running: Option<(Ran, Vec<Frame>)>,
    /// How much a run may differ from what it takes, as a part of it.
    noise: f64,
    random: fastrand::Rng,
    report: Report,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    route: usize,
    ready: Instant,
    received: Instant,
    waits_since: Instant,
}

impl Simulator {
    pub fn new(engine: Engine, delay: Duration, lanes: Vec<LaneModel>, cameras: Vec<Camera>) -> Self {
        let start = Instant::now() + Duration::from_secs(1000);
        let times = |lane: &LaneModel| {
            let sizes = if lane.sizes.is_empty() { Sizes::Any } else { Sizes::Fixed(&lane.sizes) };
            let counts = RunTimes::worth_measuring(sizes, lane.most);
            let measured: Vec<_> = counts.into_iter().map(|frames| (frames, lane.cost(frames))).collect();
            RunTimes::new(sizes, lane.most, &measured)
        };
        let specs: Vec<_> = cameras.iter().map(|camera| camera.spec).collect();
        let scheduler = Scheduler::new(engine, delay, lanes.iter().map(times).collect(), &specs);
        let (routes, count) = (cameras.len(), lanes.len());
        Self {
            engine,
            delay,
            lanes,
            cameras,
            scheduler,
            start,
            now: start,
            mailboxes: vec![None; routes],
            counts: vec![0; routes],
            open: vec![Vec::new(); count],
            running: None,
            noise: 0.0,
            random: fastrand::Rng::with_seed(7),
            report: Report { stale: vec![0; routes], hopeless: vec![0; routes], ..Report::default() },
        }
    }

    /// Lets each run differ by up to this part of what it takes.
    pub fn with_noise(mut self, noise: f64) -> Self {
        self.noise = noise;
        self
    }

    /// Runs for so long, or until nothing is left to do.
    pub fn run(mut self, span: Duration) -> Report {
        let end = self.start + span;
        let (mut last, mut steps) = (self.now, 0);
        while self.now < end {
            if self.now > last {
                (last, steps) = (self.now, 0);
            }
            steps += 1;
            assert!(steps < 10_000, "nothing happens any more at {:?}", self.now - self.start);
            match self.step() {
                Step::Finish(_) => self.finish(),
                step => {
                    if !self.act(step) {
                        break;
                    }
                }
            }
        }
        self.report
    }

    fn step(&mut self) -> Step {
        self.deliver();
        self.scheduler.step(self.now)
    }

    /// Puts what has arrived into the mailboxes, and tells the scheduler.
    fn deliver(&mut self) {
        for route in 0..self.cameras.len() {
            let (mut came, waited) = (false, self.mailboxes[route].map(|frame| frame.waits_since));
            while let Some(ready) = self.cameras[route].ready.front().map(|ready| self.start + *ready)
                && ready <= self.now
            {
                self.cameras[route].ready.pop_front();
                self.counts[route] += 1;
                let received = ready - self.cameras[route].decode;
                let frame = Frame { route, ready, received, waits_since: waited.unwrap_or(ready) };
                self.report.stale[route] += usize::from(self.mailboxes[route].replace(frame).is_some());
                came = true;
            }
            if let (true, Some(frame)) = (came, self.mailboxes[route]) {
                let Frame { received, ready, .. } = frame;
                self.scheduler.arrived(route, Arrival { received, ready, count: self.counts[route] });
            }
        }
    }

    /// Does a step other than [`Step::Finish`]; false when nothing will ever happen again.
    fn act(&mut self, step: Step) -> bool {
        match step {
            Step::Take(take) => {
                let Some(frame) = self.mailboxes[take.route].take() else {
                    panic!("{take:?}: no frame is there")
                };
                if self.scheduler.take(take, frame.received, self.now) == Verdict::TooLate {
                    self.report.hopeless[take.route] += 1;
                    return true;
                }
                self.now += self.lanes[take.lane].preprocess;
                let open = &mut self.open[take.lane];
                match open.get_mut(take.slot) {
                    Some(place) => {
                        self.report.stale[place.route] += 1;
                        *place = frame;
                    }
                    None => {
                        assert_eq!(take.slot, open.len());
                        open.push(frame);
                    }
                }
                assert!(open.len() <= self.lanes[take.lane].most, "a batch has its limit");
                self.deliver();
                self.scheduler.wrote(self.now);
            }
            Step::GiveWay(lane) => {
                let frame = self.open[lane].pop().expect("it has frames");
                self.report.stale[frame.route] += 1;
                self.scheduler.gave_way(lane);
            }
            Step::Submit(lane) => self.submit(lane),
            Step::Finish(_) => unreachable!("the caller does it"),
            Step::Sleep(until) => {
                assert!(until > self.now && self.running.is_some());
                self.now = until;
            }
            Step::Wait(until) => {
                self.check_idle(until);
                let next = self.cameras.iter().filter_map(|camera| camera.ready.front()).min();
                let next = next.map(|ready| self.start + *ready);
                let Some(wake) = until.into_iter().chain(next).min() else { return false };
                self.now = self.now.max(wake);
            }
        }
        true
    }

    fn submit(&mut self, lane: usize) {
        assert!(self.running.is_none(), "the device runs one batch at a time");
        let frames = std::mem::take(&mut self.open[lane]);
        assert!(!frames.is_empty());
        self.check_inversion(lane, &frames);
        self.scheduler.submitted(lane, self.now);
        let noise = 1.0 + self.noise * (self.random.f64() * 2.0 - 1.0);
        let until = self.now + self.lanes[lane].cost(frames.len()).mul_f64(noise);
        self.running = Some((Ran { lane, from: self.now, until, frames: frames.len() }, frames));
        if self.engine == Engine::Blocking {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let Some((ran, frames)) = self.running.take() else { panic!("nothing runs") };
        let asked = self.now;
        self.now = self.now.max(ran.until);
        self.scheduler.finished(asked, self.now);
        if self.engine == Engine::Asynchronous
            && let Step::Submit(lane) = self.step()
        {
            self.submit(lane);
        }
        let began = self.now;
        for frame in &frames {
            self.now += self.lanes[ran.lane].postprocess;
            let spec = self.cameras[frame.route].spec;
            let late = spec.deadline.is_some_and(|deadline| self.now > frame.received + deadline);
            self.report.done.push(Done { route: frame.route, at: self.now, late });
        }
        self.scheduler.concluded(ran.lane, frames.len(), self.now - began);
        self.report.ran.push(ran);
    }

    fn quality(&self, route: usize) -> Quality {
        self.cameras[route].spec.quality
    }

    /// No frame that waits is better than the best one of the batch, nor than the worst one of a batch of its own model.
    fn check_inversion(&mut self, lane: usize, frames: &[Frame]) {
        let qualities = || frames.iter().map(|frame| self.quality(frame.route));
        let (best, worst) = (qualities().min().unwrap(), qualities().max().unwrap());
        // Where realtime deadlines are planned for, a worse frame that is short enough may fit before one that is not.
        let is_timed =
            |camera: &Camera| camera.spec.quality == Quality::Realtime && camera.spec.deadline.is_some();
        let is_planned = self.cameras.iter().any(is_timed);
        let waits = |route: usize| {
            self.mailboxes[route].is_some_and(|frame| frame.ready < self.now)
                && (!is_planned || self.quality(route) == Quality::Realtime)
        };
        let waiting: Vec<_> = (0..self.cameras.len()).filter(|&route| waits(route)).collect();
        for route in waiting {
            let limit = if self.cameras[route].spec.lane == lane { worst } else { best };
            let is_there = frames.iter().any(|frame| frame.route == route);
            if self.quality(route) < limit && !is_there {
                let at = self.now - self.start;
                self.report.inversions.push(format!("{at:?}: {best:?} runs while route {route} waits"));
            }
        }
    }

    /// The device does nothing only while no frame has waited for longer than the delay.
    fn check_idle(&mut self, until: Option<Instant>) {
        if self.running.is_some() {
            return;
        }
        let open = self.open.iter().flatten().map(|frame| frame.waits_since);
        let waiting = self.mailboxes.iter().flatten().map(|frame| frame.waits_since);
        if let Some(oldest) = open.chain(waiting).min()
            && until.is_none_or(|until| until > oldest + self.delay)
        {
            let (oldest, at) = (oldest - self.start, self.now - self.start);
            self.report
                .idle
                .push(format!("{at:?} until {:?}, oldest {oldest:?}", until.map(|until| until - self.start)));
        }
    }
}

impl std::fmt::Debug for Camera {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first: Vec<_> = self.ready.iter().take(4).collect();
        write!(f, "{:?}, {} frames from {first:?}", self.spec, self.ready.len())
    }
}

impl LaneModel {
    /// A model whose runs take 10 ms and 1 ms a frame, with nothing else to do.
    pub fn affine(most: usize) -> Self {
        Self {
            run: 10 * MS,
            each: MS,
            sizes: Vec::new(),
            most,
            preprocess: Duration::ZERO,
            postprocess: Duration::ZERO,
        }
    }

    /// The same on a device that takes this much longer.
    pub fn slower(&self, factor: f64) -> Self {
        let [run, each, preprocess, postprocess] =
            [self.run, self.each, self.preprocess, self.postprocess].map(|time| time.mul_f64(factor));
        Self { run, each, preprocess, postprocess, ..self.clone() }
    }

    /// What a run of so many frames takes.
    pub fn cost(&self, frames: usize) -> Duration {
        let size = self.sizes.iter().copied().find(|size| *size >= frames).unwrap_or(frames);
        self.run + self.each * u32::try_from(size).unwrap()
    }
}

impl Camera {
    /// A camera that delivers every `period` from `phase` on for `span`, off by up to `jitter`.
    pub fn periodic(
        spec: RouteSpec,
        (period, phase): (Duration, Duration),
        jitter: Duration,
        span: Duration,
    ) -> Self {
        let mut random = fastrand::Rng::with_seed(u64::try_from(phase.as_nanos()).unwrap());
        let frames = u32::try_from(span.as_nanos() / period.as_nanos()).unwrap();
        let ready = (0..frames).map(|n| phase + period * n + jitter.mul_f64(random.f64())).collect();
        Self { spec, ready, decode: Duration::ZERO }
    }
}

/// A route with a quality and perhaps a deadline.
pub fn route(lane: usize, quality: Quality, deadline: Option<Duration>) -> RouteSpec {
    RouteSpec { lane, quality, weight: 1, deadline, late: Late::Drop, rate_max: None }
}
