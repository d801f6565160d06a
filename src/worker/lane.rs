//! A model on a device: its session, its cameras, and the batches between them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{Shared, WorkerError};
use crate::backend::{BackendError, Device, LoadOptions, ModelFile, Session};
use crate::frame::mailbox::Mailbox;
use crate::frame::{Frame, FrameRef};
use crate::memory::allocations::{self, Scope};
use crate::model::{Model, bundle};
use crate::postprocess::{Decoder, Detection};
use crate::preprocess::host::{Held, Preprocessor};
use crate::preprocess::letterbox::{Letterbox, RegionConfig};
use crate::publish::encode::{DetectionEncoder, EventTime, TopicSequence};
use crate::publish::event::ModelRef;
use crate::publish::{Made, WhenFull};
use crate::scheduler::batcher::{Batcher, Poll};
use crate::scheduler::{BatchingConfig, Turns};
use crate::telemetry::{BatchTelemetry, DropReason, RouteTelemetry, Stages, error_chain};
use crate::threads::Heartbeat;

/// Batch buffers a session has: one fills while one runs.
const BATCHES: usize = 2;

/// A model and the cameras that it looks at.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// The model.
    pub model: Arc<Model>,
    /// Its cameras.
    pub routes: Vec<Route>,
    /// Counts its batches.
    pub telemetry: Arc<BatchTelemetry>,
}

/// One camera of a lane.
#[derive(Clone, Debug)]
pub struct Route {
    /// Where its newest frame waits.
    pub mailbox: Arc<Mailbox<FrameRef>>,
    /// Its counters for this model.
    pub telemetry: Arc<RouteTelemetry>,
    /// A result must be made within this time of the frame's arrival.
    pub deadline: Option<Duration>,
    /// The part of its pictures that the model sees.
    pub region: RegionConfig,
    /// Detections below this score are not reported.
    pub score_min: f32,
    /// What happens when a sink's queue is full.
    pub when_full: WhenFull,
    /// The topic of its detections.
    pub topic: Arc<TopicSequence>,
}

/// A loaded model with its batches.
#[derive(Debug)]
pub struct Lane {
    model: Arc<Model>,
    encoder: DetectionEncoder,
    session: Box<dyn Session>,
    output: usize,
    decoder: Box<dyn Decoder>,
    preprocessor: Preprocessor,
    routes: Vec<Route>,
    turns: Turns,
    batcher: Batcher,
    /// The frames of each batch buffer, in the order of its slots.
    batches: Vec<VecDeque<Pending>>,
    /// What the slots of each batch buffer hold.
    held: Vec<Vec<Held>>,
    /// The batch buffer being filled.
    open: usize,
    /// Submitted batch buffers, oldest first, and when each was submitted.
    in_flight: VecDeque<(usize, Instant)>,
    /// When the newest finished batch was.
    finished: Instant,
    detections: Vec<Detection>,
    /// Whether the last frame could not be used, so that a camera which sends nothing usable is told once.
    told: bool,
    telemetry: Arc<BatchTelemetry>,
    shared: Arc<Shared>,
}

/// How far a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The device has it.
    Submitted,
    /// Its events are made.
    Finished,
}

/// A frame in a batch.
#[derive(Debug)]
struct Pending {
    route: usize,
    frame: FrameRef,
    back: Letterbox,
    taken: Instant,
    written: Instant,
}

impl Lane {
    /// Loads a model on an opened device and compares it with its manifest.
    ///
    /// # Errors
    /// When the device cannot run any of the model's files, or the loaded model is not what its manifest says.
    pub fn load(
        device: &mut dyn Device,
        device_id: &str,
        config: &LaneConfig,
        batching: &BatchingConfig,
        shared: &Arc<Shared>,
    ) -> Result<Self, WorkerError> {
        let model = &config.model;
        let loaded = load(device, device_id, model, batching.size_max)?;
        let cameras = config.routes.len();
        let batches = loaded.session.batches();
        let session_max = loaded.session.batch_size_max();
        let version = model.version.to_string();
        let names = ModelRef { name: &model.name, version: &version, device: device_id };
        Ok(Self {
            model: Arc::clone(model),
            encoder: DetectionEncoder::new(Arc::clone(&shared.identity), names, Arc::clone(&model.labels)),
            session: loaded.session,
            output: loaded.output,
            decoder: loaded.decoder,
            preprocessor: Preprocessor::new(model.input.clone()),
            routes: config.routes.clone(),
            turns: Turns::new(cameras),
            batcher: Batcher::new(batching, session_max, cameras),
            batches: (0..batches).map(|_| VecDeque::with_capacity(session_max)).collect(),
            held: vec![vec![Held::default(); session_max]; batches],
            open: 0,
            in_flight: VecDeque::with_capacity(batches),
            finished: Instant::now(),
            detections: Vec::new(),
            told: false,
            telemetry: Arc::clone(&config.telemetry),
            shared: Arc::clone(shared),
        })
    }

    /// Runs a batch of one and a full batch, so that the first real frame finds everything in place.
    ///
    /// # Errors
    /// When the runtime fails.
    pub fn warm(&mut self) -> Result<(), BackendError> {
        for frames in [1, self.session.batch_size_max()] {
            let started = Instant::now();
            engine(|| self.session.submit(0, frames))?;
            engine(|| self.session.wait(0))?;
            self.batcher.ran(started.elapsed());
        }
        Ok(())
    }

    /// Takes frames out of the mailboxes into the open batch, until it is full or none is waiting.
    pub fn fill(&mut self) {
        if self.in_flight.iter().any(|&(batch, _)| batch == self.open) {
            return;
        }
        while !self.batcher.is_full() {
            let routes = &self.routes;
            let Some(index) = self.turns.next(|route| routes[route].mailbox.peek(|_| ()).is_some()) else {
                return;
            };
            if let Some(frame) = self.routes[index].mailbox.take() {
                self.write(index, frame);
            }
        }
    }

    /// What to do with the open batch.
    #[must_use]
    pub fn poll(&self, now: Instant) -> Poll {
        if self.in_flight.len() < self.batches.len() { self.batcher.poll(now) } else { Poll::Empty }
    }

    /// When the open batch got its first frame.
    #[must_use]
    pub fn open_since(&self) -> Option<Instant> {
        self.batcher.open_since()
    }

    /// When the oldest batch that is not finished was submitted, if there is one.
    #[must_use]
    pub fn in_flight_since(&self) -> Option<Instant> {
        self.in_flight.front().map(|&(_, submitted)| submitted)
    }

    /// Until when frames for the next batch may be waited for while the device runs one; none when there is no batch in
    /// flight, or no buffer for another.
    #[must_use]
    pub fn busy_until(&self) -> Option<Instant> {
        let has_room = self.in_flight.len() < self.batches.len();
        let submitted = self.in_flight_since().filter(|_| has_room)?;
        Some(self.batcher.busy_until(submitted.max(self.finished)))
    }

    /// Submits the open batch. A runtime that blocks has run it when this returns, so it is finished at once.
    ///
    /// # Errors
    /// When the runtime fails; the batch's frames are counted.
    pub fn submit(&mut self, heartbeat: &Heartbeat) -> Result<Progress, BackendError> {
        let (batch, frames) = (self.open, self.batcher.seal());
        let submitted = Instant::now();
        if let Err(error) = engine(|| self.session.submit(batch, frames)) {
            self.fail(batch);
            return Err(error);
        }
        self.in_flight.push_back((batch, submitted));
        self.open = (batch + 1) % self.batches.len();
        if self.session.is_asynchronous() { Ok(Progress::Submitted) } else { self.finish(heartbeat) }
    }

    /// Waits for the oldest batch in flight and makes its events.
    ///
    /// # Errors
    /// When the run failed; the batch's frames are counted.
    pub fn finish(&mut self, heartbeat: &Heartbeat) -> Result<Progress, BackendError> {
        let Some((batch, submitted)) = self.in_flight.pop_front() else { return Ok(Progress::Finished) };
        if let Err(error) = engine(|| self.session.wait(batch)) {
            self.fail(batch);
            return Err(error);
        }
        let inferred = Instant::now();
        self.batcher.ran(inferred - submitted.max(self.finished));
        self.finished = inferred;
        self.shared.telemetry.batches.add(1);
        self.shared.telemetry.frames.add(self.batches[batch].len() as u64);
        self.telemetry.ran(self.batches[batch].len());
        for slot in 0.. {
            let Some(pending) = self.batches[batch].pop_front() else { break };
            self.conclude(batch, slot, &pending, (submitted, inferred), heartbeat);
        }
        Ok(Progress::Finished)
    }

    /// Writes a frame into the open batch.
    fn write(&mut self, index: usize, frame: FrameRef) {
        let route = &self.routes[index];
        let taken = Instant::now();
        let deadline = route.deadline.map(|deadline| frame.times.received + deadline);
        if deadline.is_some_and(|deadline| deadline <= taken) {
            route.telemetry.dropped(DropReason::Late);
            return;
        }
        let slot = self.batches[self.open].len();
        let held = &mut self.held[self.open][slot];
        match self.preprocessor.write(&frame, route.region, self.session.slot(self.open, slot), held) {
            Ok(back) => {
                self.batcher.push(taken, deadline);
                let written = Instant::now();
                self.batches[self.open].push_back(Pending { route: index, frame, back, taken, written });
            }
            Err(error) => {
                route.telemetry.dropped(DropReason::Failed);
                self.tell(&frame, &error);
            }
        }
    }

    /// Decodes one frame's output and makes its event.
    fn conclude(
        &mut self,
        batch: usize,
        slot: usize,
        pending: &Pending,
        (submitted, inferred): (Instant, Instant),
        heartbeat: &Heartbeat,
    ) {
        let route = &self.routes[pending.route];
        self.detections.clear();
        let output = self.session.output(batch, self.output);
        let decoded =
            self.decoder.decode(&output, slot, &pending.back, route.score_min, &mut self.detections);
        if let Err(error) = decoded {
            route.telemetry.dropped(DropReason::Failed);
            return self.tell(&pending.frame, &error);
        }
        self.told = false;
        if let Some(tap) = &self.shared.tap {
            // It may wait for a person who reads page by page.
            heartbeat.idle();
            tap.result(&pending.frame, &self.model, &self.detections);
            heartbeat.beat();
        }
        let at = EventTime::now();
        let now = at.now;
        let times = pending.frame.times;
        if route.deadline.is_some_and(|deadline| now > times.received + deadline) {
            route.telemetry.dropped(DropReason::Late);
            return;
        }
        let stages = Stages {
            video_decode: times.ready.saturating_duration_since(times.received),
            queue: pending.taken.saturating_duration_since(times.ready),
            preprocess: pending.written - pending.taken,
            batch_wait: submitted - pending.written,
            infer: inferred - submitted,
            postprocess: now - inferred,
        };
        route.telemetry.observe(&stages, times.captured.age(now));
        if self.detections.is_empty() && self.shared.publish == crate::publish::Publish::Nonempty {
            route.telemetry.empty.add(1);
            return;
        }
        let (encoder, detections) = (&mut self.encoder, &self.detections);
        let encode = |seq| encoder.encode(&pending.frame, detections, &stages, at, seq);
        let made = Made { at: now, publish: Arc::clone(&route.telemetry.publish) };
        route.topic.publish(&self.shared.outbox, route.when_full, made, || heartbeat.idle(), encode);
        heartbeat.beat();
        route.telemetry.detections.add(self.detections.len() as u64);
        route.telemetry.published.add(1);
    }

    /// Tells that a frame got no result, once until another one does.
    fn tell(&mut self, frame: &Frame, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.told, true) {
            let error = error_chain(error);
            warn!(camera = %frame.camera, model = %self.model.name, "a frame got no result: {error}");
        }
    }

    /// Counts the frames of a batch that failed.
    fn fail(&mut self, batch: usize) {
        for pending in self.batches[batch].drain(..) {
            self.routes[pending.route].telemetry.dropped(DropReason::Failed);
        }
    }
}

impl Drop for Lane {
    /// A lane that goes away with frames in its batches (its device failed) counts them.
    fn drop(&mut self) {
        for batch in 0..self.batches.len() {
            self.fail(batch);
        }
    }
}

/// Calls an engine: what it allocates is not ours.
fn engine<R>(call: impl FnOnce() -> R) -> R {
    let _inside = allocations::inside(Scope::Engine);
    call()
}

/// A model on a device, compared with its manifest.
#[derive(Debug)]
pub struct Loaded {
    /// The session.
    pub session: Box<dyn Session>,
    /// The output that the decoder reads.
    pub output: usize,
    /// The decoder.
    pub decoder: Box<dyn Decoder>,
}

/// Loads the model's file for this device and compares it with the manifest. `gantry check` uses it too.
///
/// # Errors
/// When the device cannot run any of the model's files, or the loaded model is not what its manifest says.
pub fn load(
    device: &mut dyn Device,
    device_id: &str,
    model: &Model,
    batch_size_max: usize,
) -> Result<Loaded, WorkerError> {
    let backend = device.backend();
    let Some(variant) = model.variant_for(backend) else {
        let variants: Vec<_> =
            model.variants.iter().map(|variant| variant.path.display().to_string()).collect();
        return Err(WorkerError::NoVariant {
            model: model.title(),
            device: device_id.to_owned(),
            backend: backend.name(),
            variants: variants.join(", "),
        });
    };
    let wrong = |source| WorkerError::Model {
        model: model.title(),
        device: device_id.to_owned(),
        source: Box::new(source),
    };
    let bytes = variant.read().map_err(wrong)?;
    let title = model.title();
    let file = ModelFile {
        name: &title,
        path: &variant.path,
        bytes: &bytes,
        format: variant.format,
        input: Some(&model.input_tensor),
        outputs: std::slice::from_ref(&model.output.tensor),
    };
    let session = device
        .load(&file, LoadOptions { batch_size_max, batches: BATCHES })
        .map_err(|source| WorkerError::Backend { device: device_id.to_owned(), source })?;
    let output = bundle::check_loaded(model, session.input(), session.outputs()).map_err(wrong)?;
    let decoder =
        model.output.decoder().map_err(|source| WorkerError::Decoder { model: model.title(), source })?;
    Ok(Loaded { session, output, decoder })
}
