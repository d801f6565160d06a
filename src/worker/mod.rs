//! One thread a device: it pulls frames, fills batches, runs them, and makes events.
//!
//! The worker owns the device and its sessions; nothing of a runtime leaves its thread. [`run`] opens the device, loads
//! and warms every model that it runs, and serves; when batches fail again and again it starts from nothing. A model on a
//! device is a [`lane::Lane`].

pub mod lane;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use tracing::{info, warn};

use crate::backend::{self, BackendError, DeviceConfig};
use crate::frame::Frame;
use crate::model::{Model, ModelError};
use crate::postprocess::{DecodeError, Detection};
use crate::publish::encode::Identity;
use crate::publish::{Outbox, Publish};
use crate::scheduler::BatchingConfig;
use crate::scheduler::batcher::Poll;
use crate::telemetry::{DeviceTelemetry, error_chain};
use crate::threads::{Heartbeat, Shutdown};
use lane::{Lane, LaneConfig, Progress};

/// So many batches in a row that fail make the worker open its device anew.
const FAILURES_MAX: u32 = 3;
/// The wait before a device is opened anew, doubling up to [`REOPEN_MAX`].
const REOPEN_FIRST: Duration = Duration::from_millis(500);
const REOPEN_MAX: Duration = Duration::from_secs(30);
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
    /// Wakes it when a frame was put into a mailbox.
    pub woken: Receiver<()>,
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
            Self::Ready { runtime } => Some(runtime),
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
        let mut lanes = self.open()?;
        self.ready_since = Some(Instant::now());
        serve(&mut lanes, &self.config, shutdown, heartbeat)
    }

    fn open(&mut self) -> Result<Vec<Lane>, WorkerError> {
        let config = &self.config;
        let id = &config.device.id;
        let mut device = backend::open(&config.device)
            .map_err(|source| WorkerError::Backend { device: id.clone(), source })?;
        let mut lanes = Vec::with_capacity(config.lanes.len());
        for lane in &config.lanes {
            let mut lane = Lane::load(device.as_mut(), id, lane, &config.batching, &config.shared)?;
            lane.warm().map_err(|source| WorkerError::Backend { device: id.clone(), source })?;
            lanes.push(lane);
        }
        let runtime = device.describe();
        info!(device = %id, "ready: {runtime}");
        (config.report)(DeviceState::Ready { runtime });
        Ok(lanes)
    }
}

fn serve(
    lanes: &mut [Lane],
    config: &WorkerConfig,
    shutdown: &Shutdown,
    heartbeat: &Heartbeat,
) -> Result<(), WorkerError> {
    let mut failures = 0;
    loop {
        heartbeat.beat();
        let draining = shutdown.begun();
        for lane in &mut *lanes {
            lane.fill();
        }
        let outcome = match next_step(lanes, Instant::now(), draining) {
            Step::Submit(lane) => lanes[lane].submit(heartbeat),
            Step::Finish(lane) => lanes[lane].finish(heartbeat),
            Step::Wait(until) => {
                if draining {
                    return Ok(());
                }
                heartbeat.idle();
                wait(&config.woken, shutdown, until);
                continue;
            }
        };
        match outcome {
            Ok(Progress::Finished) => failures = 0,
            // A device that takes a batch has not yet shown that it runs one.
            Ok(Progress::Submitted) => {}
            Err(source) => {
                failures += 1;
                config.shared.telemetry.errors.add(1);
                if failures >= FAILURES_MAX {
                    return Err(WorkerError::Backend { device: config.device.id.clone(), source });
                }
                warn!(device = %config.device.id, "{source}");
            }
        }
    }
}

enum Step {
    Submit(usize),
    Finish(usize),
    Wait(Option<Instant>),
}

/// A batch that is due is submitted first, the one that has waited longest before the others. While the device is busy
/// with one and there is room for the next, frames are waited for, so that preprocessing overlaps the run; then the
/// oldest batch in flight is finished. Else there is nothing to do until a frame comes or an open batch is due.
fn next_step(lanes: &[Lane], now: Instant, draining: bool) -> Step {
    let mut due: Option<(Instant, usize)> = None;
    let mut until: Option<Instant> = None;
    for (index, lane) in lanes.iter().enumerate() {
        match lane.poll(now) {
            Poll::Empty => {}
            Poll::Wait(at) if !draining => until = Some(until.map_or(at, |soonest| soonest.min(at))),
            Poll::Wait(_) | Poll::Seal => {
                let since = lane.open_since().unwrap_or(now);
                if due.is_none_or(|(oldest, _)| since < oldest) {
                    due = Some((since, index));
                }
            }
        }
    }
    if let Some((_, lane)) = due {
        return Step::Submit(lane);
    }
    let since = |(index, lane): (usize, &Lane)| lane.in_flight_since().map(|since| (since, index));
    let Some((_, oldest)) = lanes.iter().enumerate().filter_map(since).min() else {
        return Step::Wait(until);
    };
    match lanes[oldest].busy_until().filter(|&busy| now < busy && !draining) {
        Some(busy) => Step::Wait(Some(until.map_or(busy, |until| until.min(busy)))),
        None => Step::Finish(oldest),
    }
}

fn wait(woken: &Receiver<()>, shutdown: &Shutdown, until: Option<Instant>) {
    // No time is too far away to be waited for: an end beyond all time is none. A timer channel would be made anew for
    // each wait.
    let timeout = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
    select! {
        recv(woken) -> _ => {}
        recv(shutdown.receiver()) -> _ => {}
        default(timeout) => {}
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
