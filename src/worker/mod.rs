//! One thread a device: it pulls frames, fills batches, runs them, and makes events.
//!
//! The worker owns the device and its sessions; nothing of a runtime leaves its thread. [`run`] opens the device, loads
//! and warms every model that it runs, and serves; when batches fail again and again it starts from nothing. A model on a
//! device is a [`lane::Lane`].

pub mod lane;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::backend::{self, BackendError, DeviceConfig};
use crate::frame::Frame;
use crate::frame::doorbell::{self, Doorbell};
use crate::model::{Model, ModelError};
use crate::postprocess::{DecodeError, Detection};
use crate::publish::encode::Identity;
use crate::publish::{Outbox, Publish};
use crate::scheduler::BatchingConfig;
use crate::scheduler::admission::Overcommitted;
use crate::scheduler::arrivals::Arrival;
use crate::scheduler::plan::{Engine, RouteSpec, Scheduler, Step, Take, Verdict};
use crate::telemetry::{DeviceTelemetry, DropReason, error_chain};
use crate::threads::{Heartbeat, Shutdown};
use lane::{Lane, LaneConfig};

/// So many batches in a row that fail make the worker open its device anew.
const FAILURES_MAX: u32 = 3;
/// The wait before a device is opened anew, doubling up to [`REOPEN_MAX`].
const REOPEN_FIRST: Duration = Duration::from_millis(500);
const REOPEN_MAX: Duration = Duration::from_secs(30);
/// How often the realtime demand is compared with what the device can do.
const LOAD_EVERY: Duration = Duration::from_secs(1);
/// A device that served for this long begins with the first wait again.
const REOPEN_RESET_AFTER: Duration = Duration::from_secs(60);

/// What a worker needs.
pub struct WorkerConfig {
    /// The device.
    pub device: DeviceConfig,
    /// The models that it runs, each with its cameras.
    pub lanes: Vec<LaneConfig>,
    /// How batches are made.
    pub batching: BatchingConfig,
    /// Rings when a frame was put into a mailbox.
    pub doorbell: Arc<Doorbell>,
    /// Where everything that all lanes share goes.
    pub shared: Arc<Shared>,
    /// Each change of the device's state is given to it; it must not block.
    pub report: Box<dyn Fn(DeviceState) + Send>,
}

/// What every lane of a device needs.
pub struct Shared {
    /// Who we are, in every message.
    pub identity: Arc<Identity>,
    /// Where messages go.
    pub outbox: Outbox,
    /// Which results become a message.
    pub publish: Publish,
    /// The device's counters.
    pub telemetry: Arc<DeviceTelemetry>,
    /// Sees every result together with its picture.
    pub tap: Option<Arc<dyn Tap>>,
}

/// Sees every result together with its picture, on the worker's thread: `gantry detect` draws them.
pub trait Tap: Send + Sync {
    /// A model found this in a frame. The worker waits for the return.
    fn result(&self, frame: &Frame, model: &Model, detections: &[Detection]);
}

/// What a device is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// Being opened; models are being loaded and warmed.
    Opening,
    /// Serving.
    Ready {
        /// The runtime, its version, where its library is.
        runtime: String,
        /// What its realtime cameras ask for, if that is more than it can do.
        overcommitted: Option<String>,
    },
    /// It could not be opened, or a model could not be loaded, at the first try: a mistake that a person must mend.
    Refused {
        /// Why, in words.
        reason: String,
    },
    /// It failed while serving and is opened anew.
    Reopening {
        /// Why, in words.
        reason: String,
    },
}

impl DeviceState {
    /// The name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Ready { .. } => "ready",
            Self::Refused { .. } => "refused",
            Self::Reopening { .. } => "reopening",
        }
    }

    /// The runtime that serves, or why none does.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Opening => None,
            Self::Ready { runtime, .. } => Some(runtime),
            Self::Refused { reason } | Self::Reopening { reason } => Some(reason),
        }
    }
}

/// Why a device does not serve.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The runtime refused.
    #[error("device {device}")]
    Backend {
        /// The device's id.
        device: String,
        /// What it said.
        #[source]
        source: BackendError,
    },
    /// The model has no file that this device's runtime reads.
    #[error(
        "model {model} has no file for device {device}, which runs {backend}; its variants are {variants}"
    )]
    NoVariant {
        /// The model.
        model: String,
        /// The device's id.
        device: String,
        /// Its backend.
        backend: &'static str,
        /// The files that the model has.
        variants: String,
    },
    /// The model is not what its manifest says.
    #[error("model {model} on device {device}")]
    Model {
        /// The model.
        model: String,
        /// The device's id.
        device: String,
        /// What is wrong.
        #[source]
        source: Box<ModelError>,
    },
    /// The model's output cannot be read.
    #[error("model {model}")]
    Decoder {
        /// The model.
        model: String,
        /// What is wrong.
        #[source]
        source: DecodeError,
    },
}

/// Serves until `shutdown` begins and everything that waited has been processed, or until the first try to open the
/// device or to load a model fails.
pub fn run(config: WorkerConfig, shutdown: &Shutdown, heartbeat: &Heartbeat) {
    let mut worker = Worker { config, ready_since: None };
    let mut retry_in = REOPEN_FIRST;
    loop {
        (worker.config.report)(DeviceState::Opening);
        // Opening a device and loading models takes as long as it takes; only serving is watched.
        heartbeat.idle();
        let opened = Instant::now();
        let outcome = worker.run_once(shutdown, heartbeat);
        let Err(error) = outcome else { return };
        let ready_since = worker.ready_since.filter(|since| *since >= opened);
        if ready_since.is_some_and(|since| since.elapsed() >= REOPEN_RESET_AFTER) {
            retry_in = REOPEN_FIRST;
        }
        let reason = error_chain(&error);
        if worker.ready_since.is_none() {
            (worker.config.report)(DeviceState::Refused { reason });
            return;
        }
        warn!(device = %worker.config.device.id, ?retry_in, "{reason}; the device is opened anew");
        (worker.config.report)(DeviceState::Reopening { reason });
        heartbeat.idle();
        if shutdown.wait(retry_in) {
            return;
        }
        retry_in = (retry_in * 2).min(REOPEN_MAX);
    }
}

struct Worker {
    config: WorkerConfig,
    /// When the device last became ready. Once it was, a failure is worth another try.
    ready_since: Option<Instant>,
}

impl Worker {
    fn run_once(&mut self, shutdown: &Shutdown, heartbeat: &Heartbeat) -> Result<(), WorkerError> {
        let mut server = open(&self.config)?;
        self.ready_since = Some(Instant::now());
        server.serve(shutdown, heartbeat)
    }
}

/// Opens the device, and loads and warms every model.
fn open(config: &WorkerConfig) -> Result<Server<'_>, WorkerError> {
    let id = &config.device.id;
    let mut device = backend::open(&config.device)
        .map_err(|source| WorkerError::Backend { device: id.clone(), source })?;
    let (mut lanes, mut times) = (Vec::new(), Vec::new());
    for lane in &config.lanes {
        let mut lane = Lane::load(device.as_mut(), id, lane, &config.batching, &config.shared)?;
        let learned = lane.warm().map_err(|source| WorkerError::Backend { device: id.clone(), source })?;
        lane.tell_deadlines(id, &learned);
        times.push(learned);
        lanes.push(lane);
    }
    let runtime = device.describe();
    info!(device = %id, "ready: {runtime}");
    let engine = match lanes.iter().any(Lane::is_asynchronous) {
        true => Engine::Asynchronous,
        false => Engine::Blocking,
    };
    let places = places(&lanes);
    let specs: Vec<_> = places
        .iter()
        .map(|place| RouteSpec { lane: place.lane, ..lanes[place.lane].routes()[place.route].spec })
        .collect();
    let mut scheduler = Scheduler::new(engine, config.batching.queue_delay_max, times, &specs);
    // Whoever rang while a device that failed was served is not heard again.
    (0..specs.len()).for_each(|route| scheduler.look_for(route, Instant::now()));
    let mut server = Server {
        config,
        lanes,
        places,
        scheduler,
        failures: 0,
        runtime,
        overcommitted: Overcommitted::No,
        load_due: Instant::now(),
    };
    server.report(None);
    server.watch_load(Instant::now());
    Ok(server)
}

/// Where a route of the device is.
#[derive(Clone, Copy, Debug)]
struct Place {
    lane: usize,
    /// Its index in the lane.
    route: usize,
}

/// Where each route of the device is, by its number.
fn places(lanes: &[Lane]) -> Vec<Place> {
    let mut places = Vec::new();
    for (lane, loaded) in lanes.iter().enumerate() {
        for (route, config) in loaded.routes().iter().enumerate() {
            places.push((config.number, Place { lane, route }));
        }
    }
    places.sort_unstable_by_key(|(number, _)| *number);
    places.into_iter().map(|(_, place)| place).collect()
}

/// An opened device that serves.
struct Server<'a> {
    config: &'a WorkerConfig,
    lanes: Vec<Lane>,
    places: Vec<Place>,
    scheduler: Scheduler,
    /// Batches in a row that have failed.
    failures: u32,
    runtime: String,
    overcommitted: Overcommitted,
    load_due: Instant,
}

impl Server<'_> {
    fn serve(&mut self, shutdown: &Shutdown, heartbeat: &Heartbeat) -> Result<(), WorkerError> {
        loop {
            heartbeat.beat();
            let ending = shutdown.begun();
            if ending {
                self.scheduler.drain();
            }
            match self.next_step() {
                Step::Take(take) => self.take(take),
                Step::GiveWay(lane) => {
                    self.lanes[lane].give_way();
                    self.scheduler.gave_way(lane);
                }
                Step::Submit(lane) => self.submit(lane, heartbeat)?,
                Step::Finish(lane) => self.finish(lane, heartbeat)?,
                Step::Wait(_) if ending => return Ok(()),
                Step::Wait(until) => {
                    heartbeat.idle();
                    self.config.doorbell.wait(self.with_load_due(until));
                }
                Step::Sleep(until) => doorbell::sleep(Some(until)),
            }
            let now = Instant::now();
            if now >= self.load_due {
                self.watch_load(now);
            }
        }
    }

    /// Compares the realtime demand with what the device can do, and tells when it becomes too much or no longer is.
    fn watch_load(&mut self, now: Instant) {
        self.load_due = now + LOAD_EVERY;
        let (load, device) = (self.scheduler.load(now), &self.config.device.id);
        self.config.shared.telemetry.set_realtime_load(load.share);
        match (self.overcommitted, load.is_over(self.overcommitted)) {
            (Overcommitted::No, true) => {
                self.overcommitted = Overcommitted::Yes;
                warn!(
                    %device,
                    "overcommitted: {load}, so deadlines will be missed; give realtime cameras a lower rate_max, or fewer of \
                     them this quality, or the model a faster device"
                );
                self.report(Some(load.to_string()));
            }
            (Overcommitted::Yes, false) => {
                self.overcommitted = Overcommitted::No;
                info!(%device, "no longer overcommitted: {load}");
                self.report(None);
            }
            (Overcommitted::No, false) | (Overcommitted::Yes, true) => {}
        }
    }

    fn report(&self, overcommitted: Option<String>) {
        (self.config.report)(DeviceState::Ready { runtime: self.runtime.clone(), overcommitted });
    }

    /// A device that is overcommitted may be so no longer although no frame comes.
    fn with_load_due(&self, until: Option<Instant>) -> Option<Instant> {
        match self.overcommitted {
            Overcommitted::Yes => Some(until.map_or(self.load_due, |until| until.min(self.load_due))),
            Overcommitted::No => until,
        }
    }

    fn next_step(&mut self) -> Step {
        let scheduler = &mut self.scheduler;
        self.config.doorbell.answer(|route, rung| {
            let arrival = Arrival { received: rung.received, ready: rung.ready, count: rung.count };
            scheduler.arrived(route, arrival);
        });
        scheduler.step(Instant::now())
    }

    /// Takes a route's newest frame and writes it into the open batch of its lane.
    fn take(&mut self, take: Take) {
        let Place { lane, route } = self.places[take.route];
        let lane = &mut self.lanes[lane];
        let Some(frame) = lane.take(route) else { return self.scheduler.skipped(take) };
        let taken = Instant::now();
        if self.scheduler.take(take, frame.times.received, taken) == Verdict::TooLate {
            return lane.drop_frame(route, DropReason::Late);
        }
        match lane.write(route, take.slot, frame, taken) {
            Some(written) => self.scheduler.wrote(written),
            None => self.scheduler.skipped(take),
        }
    }

    /// Submits a lane's batch. A runtime that blocks has run it when this returns, and its events are made.
    fn submit(&mut self, lane: usize, heartbeat: &Heartbeat) -> Result<(), WorkerError> {
        self.scheduler.submitted(lane, Instant::now());
        match self.lanes[lane].submit() {
            Ok(()) if self.scheduler.engine() == Engine::Asynchronous => Ok(()),
            Ok(()) => self.finish(lane, heartbeat),
            Err(error) => self.fail(error),
        }
    }

    /// Waits for the running batch and makes its events; the next batch, if it is ready, is submitted first, so that the
    /// device has something to do meanwhile.
    fn finish(&mut self, index: usize, heartbeat: &Heartbeat) -> Result<(), WorkerError> {
        let asked = Instant::now();
        let ran = match self.lanes[index].finish() {
            Ok(ran) => ran,
            Err(error) => return self.fail(error),
        };
        self.scheduler.finished(asked, Instant::now());
        self.failures = 0;
        if self.scheduler.engine() == Engine::Asynchronous
            && let Step::Submit(next) = self.next_step()
        {
            self.submit(next, heartbeat)?;
        }
        if let Some(ran) = ran {
            let began = Instant::now();
            let frames = self.lanes[index].conclude(ran, heartbeat);
            self.scheduler.concluded(index, frames, began.elapsed());
        }
        Ok(())
    }

    /// Counts a batch that failed.
    fn fail(&mut self, source: BackendError) -> Result<(), WorkerError> {
        let (config, device) = (self.config, &self.config.device.id);
        self.scheduler.failed();
        self.failures += 1;
        config.shared.telemetry.errors.add(1);
        if self.failures >= FAILURES_MAX {
            return Err(WorkerError::Backend { device: device.clone(), source });
        }
        warn!(%device, "{source}");
        Ok(())
    }
}

impl fmt::Debug for WorkerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerConfig").field("device", &self.device.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("publish", &self.publish).finish_non_exhaustive()
    }
}
