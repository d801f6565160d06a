//! A model on a device: its session, its cameras, and the batches between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{Shared, WorkerError};
use crate::backend::{BackendError, BatchSizes, Device, LoadOptions, ModelFile, Session};
use crate::frame::mailbox::Mailbox;
use crate::frame::{Frame, FrameRef};
use crate::memory::allocations::{self, Scope};
use crate::model::{Model, bundle};
use crate::postprocess::{Decoder, Detection};
use crate::preprocess::host::{Held, Preprocessor};
use crate::preprocess::letterbox::{Letterbox, RegionConfig};
use crate::publish::encode::{DetectionEncoder, EventTime, Punctuality, TopicSequence};
use crate::publish::event::ModelRef;
use crate::publish::{Made, WhenFull};
use crate::scheduler::plan::RouteSpec;
use crate::scheduler::run_time::{RunTimes, Sizes};
use crate::scheduler::{BatchingConfig, Late};
use crate::telemetry::{BatchTelemetry, DropReason, RouteTelemetry, Stages, error_chain};
use crate::threads::Heartbeat;

/// Batch buffers a session has: one fills while one runs.
const BATCHES: usize = 2;
/// A run that took less than this may have set something up, so it is measured again.
const MEASURED_TWICE_BELOW: Duration = Duration::from_millis(200);

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
    /// Its number among the routes of the device, which it rings with.
    pub number: usize,
    /// Where its newest frame waits.
    pub mailbox: Arc<Mailbox<FrameRef>>,
    /// Its counters for this model.
    pub telemetry: Arc<RouteTelemetry>,
    /// How it is scheduled; the lane is filled in by the worker.
    pub spec: RouteSpec,
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
    /// The most frames in one batch.
    most: usize,
    /// The frames of each batch buffer, by slot.
    batches: Vec<Vec<Pending>>,
    /// What the slots of each batch buffer hold.
    held: Vec<Vec<Held>>,
    /// The batch buffer being filled.
    open: usize,
    /// The batch buffer that the device runs or has run, until its events are made.
    running: Option<Running>,
    detections: Vec<Detection>,
    /// Whether the last frame could not be used, so that a camera which sends nothing usable is told once.
    told: bool,
    telemetry: Arc<BatchTelemetry>,
    shared: Arc<Shared>,
}

/// A submitted batch.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    batch: usize,
    submitted: Instant,
    /// When it had run.
    inferred: Instant,
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

/// What the batches of a model with so many cameras take, in bytes; none where its manifest leaves sizes open.
#[must_use]
pub fn batch_bytes(model: &Model, routes: usize, batching: &BatchingConfig) -> Option<u64> {
    let tensor = &model.input_tensor;
    let shape = tensor.shape.with_batch(batch_size_max(routes, batching))?;
    let frame = shape.iter().try_fold(tensor.element_type.size(), |bytes, size| bytes.checked_mul(*size))?;
    u64::try_from(frame.checked_mul(BATCHES)?).ok()
}

/// All cameras together fill no larger batch: of each the newest frame waits.
fn batch_size_max(routes: usize, batching: &BatchingConfig) -> usize {
    batching.size_max.min(routes).max(1)
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
        let size_max = batch_size_max(config.routes.len(), batching);
        let loaded = load(device, device_id, model, size_max)?;
        let (batches, most) = (loaded.session.batches(), loaded.session.batch_size_max());
        let version = model.version.to_string();
        let names = ModelRef { name: &model.name, version: &version, device: device_id };
        Ok(Self {
            model: Arc::clone(model),
            encoder: DetectionEncoder::new(Arc::clone(&shared.identity), names, Arc::clone(&model.labels)),
            output: loaded.output,
            decoder: loaded.decoder,
            preprocessor: Preprocessor::new(model.input.clone()),
            routes: config.routes.clone(),
            most,
            batches: (0..batches).map(|_| Vec::with_capacity(most)).collect(),
            held: vec![vec![Held::default(); most]; batches],
            session: loaded.session,
            open: 0,
            running: None,
            detections: Vec::new(),
            told: false,
            telemetry: Arc::clone(&config.telemetry),
            shared: Arc::clone(shared),
        })
    }

    /// Its cameras.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Whether the device runs a batch while the next one is filled.
    #[must_use]
    pub fn is_asynchronous(&self) -> bool {
        self.session.is_asynchronous()
    }

    /// Tells each camera whose deadline is shorter than one run of the model.
    pub fn tell_deadlines(&self, device: &str, times: &RunTimes) {
        let run = times.typical(1);
        for route in &self.routes {
            if let Some(deadline) = route.spec.deadline.filter(|deadline| *deadline < run) {
                let what = match route.spec.late {
                    Late::Drop => "every result comes too late and is dropped",
                    Late::Publish => "every result comes too late",
                };
                warn!(
                    camera = %route.telemetry.camera,
                    model = %self.model.name,
                    %device,
                    "one frame takes {:.1} ms and its deadline is {:.1} ms: {what}; write a longer deadline, or give the \
                     model a faster device",
                    run.as_secs_f64() * 1e3,
                    deadline.as_secs_f64() * 1e3,
                );
            }
        }
    }

    /// Runs a batch of each size that matters and measures it, so that the first real frame finds everything in place and
    /// the scheduler knows what a batch costs.
    ///
    /// # Errors
    /// When the runtime fails.
    pub fn warm(&mut self) -> Result<RunTimes, BackendError> {
        let fixed;
        let sizes = match self.session.batch_sizes() {
            BatchSizes::Any => Sizes::Any,
            BatchSizes::Fixed(sizes) => {
                fixed = sizes.to_vec();
                Sizes::Fixed(&fixed)
            }
        };
        let mut measured = Vec::new();
        for frames in RunTimes::worth_measuring(sizes, self.most) {
            let mut took = self.run(frames)?;
            if took < MEASURED_TWICE_BELOW {
                took = took.min(self.run(frames)?);
            }
            measured.push((frames, took));
        }
        Ok(RunTimes::new(sizes, self.most, &measured))
    }

    fn run(&mut self, frames: usize) -> Result<Duration, BackendError> {
        let started = Instant::now();
        engine(|| self.session.submit(0, frames))?;
        engine(|| self.session.wait(0))?;
        Ok(started.elapsed())
    }

    /// The newest frame of a route, if one is there.
    #[must_use]
    pub fn take(&self, route: usize) -> Option<FrameRef> {
        self.routes[route].mailbox.take()
    }

    /// Counts a frame that was taken and not written.
    pub fn drop_frame(&self, route: usize, reason: DropReason) {
        self.routes[route].telemetry.dropped(reason);
    }

    /// Writes a frame, taken at `taken`, into a slot of the open batch: the next one, or one whose frame gives way. Returns
    /// when it was written; none if it could not be, which is counted and leaves the slot as it was.
    pub fn write(&mut self, route: usize, slot: usize, frame: FrameRef, taken: Instant) -> Option<Instant> {
        let held = &mut self.held[self.open][slot];
        let region = self.routes[route].region;
        match self.preprocessor.write(&frame, region, self.session.slot(self.open, slot), held) {
            Ok(back) => {
                let written = Instant::now();
                let pending = Pending { route, frame, back, taken, written };
                match self.batches[self.open].get_mut(slot) {
                    Some(place) => {
                        let gives_way = std::mem::replace(place, pending);
                        self.drop_frame(gives_way.route, DropReason::Stale);
                    }
                    None => self.batches[self.open].push(pending),
                }
                Some(written)
            }
            Err(error) => {
                self.drop_frame(route, DropReason::Failed);
                self.tell(&frame, &error);
                None
            }
        }
    }

    /// Lets go of the last frame of the open batch, which is counted.
    pub fn give_way(&mut self) {
        if let Some(pending) = self.batches[self.open].pop() {
            self.drop_frame(pending.route, DropReason::Stale);
        }
    }

    /// Submits the open batch; a runtime that blocks has run it when this returns.
    ///
    /// # Errors
    /// When the runtime fails; the batch's frames are counted.
    pub fn submit(&mut self) -> Result<(), BackendError> {
        let (batch, submitted) = (self.open, Instant::now());
        if let Err(error) = engine(|| self.session.submit(batch, self.batches[batch].len())) {
            self.fail(batch);
            return Err(error);
        }
        self.running = Some(Running { batch, submitted, inferred: submitted });
        self.open = (batch + 1) % self.batches.len();
        Ok(())
    }

    /// Waits for the submitted batch, whose events are to be made with [`Lane::conclude`].
    ///
    /// # Errors
    /// When the run failed; the batch's frames are counted.
    pub fn finish(&mut self) -> Result<Option<Running>, BackendError> {
        let Some(running) = self.running.take() else { return Ok(None) };
        if let Err(error) = engine(|| self.session.wait(running.batch)) {
            self.fail(running.batch);
            return Err(error);
        }
        let frames = self.batches[running.batch].len();
        self.shared.telemetry.batches.add(1);
        self.shared.telemetry.frames.add(frames as u64);
        self.telemetry.ran(frames);
        Ok(Some(Running { inferred: Instant::now(), ..running }))
    }

    /// Makes the events of a batch that has run, and says how many frames were in it.
    pub fn conclude(&mut self, ran: Running, heartbeat: &Heartbeat) -> usize {
        let mut batch = std::mem::take(&mut self.batches[ran.batch]);
        let frames = batch.len();
        for (slot, pending) in batch.drain(..).enumerate() {
            self.conclude_frame(slot, &pending, ran, heartbeat);
        }
        self.batches[ran.batch] = batch;
        frames
    }

    /// Decodes one frame's output and makes its event.
    fn conclude_frame(&mut self, slot: usize, pending: &Pending, ran: Running, heartbeat: &Heartbeat) {
        let Running { batch, submitted, inferred } = ran;
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
        let mut at = EventTime::now();
        let now = at.now;
        let times = pending.frame.times;
        if route.spec.deadline.is_some_and(|deadline| now > times.received + deadline) {
            match route.spec.late {
                Late::Drop => return route.telemetry.dropped(DropReason::Late),
                Late::Publish => {
                    route.telemetry.late.add(1);
                    at.punctuality = Punctuality::Late;
                }
            }
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
