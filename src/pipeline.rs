//! The data plane on one page: every channel is made here, every thread is asked for here.
//!
//! | queue | made of | capacity | when full |
//! |---|---|---|---|
//! | source → worker, one a camera and model | [`Mailbox`] | 1 | live: the newer frame displaces the older, `stale`; file: the source waits |
//! | worker wake-up, one a device | [`Doorbell`] | 1 a route | a route that rings again has its newest frame told |
//! | worker → standard output | `bounded` | [`STDOUT_QUEUE`] | live: the oldest is dropped; file: the worker waits |
//! | worker → MQTT | `bounded` | `publish.mqtt.queue` | the oldest is dropped; file: the worker waits while the broker is connected |
//! | cameras, devices, sinks → supervisor | [`Board`] | newest state of each | the newer state replaces the older |
//!
//! Every drop is counted. Threads: `src/<camera>` (one `src` for all files of a trial), `dev/<device>`, `out/stdout`, and `io`
//! for MQTT and the HTTP server.

mod board;
mod budget;
mod io;
mod stage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use board::{Board, Cell};
use bytes::Bytes;
use crossbeam_channel::bounded;
pub use io::IoTask;
use io::IoWork;
use tokio::sync::oneshot;

use crate::config::{Camera, Config};
use crate::frame::FrameRef;
use crate::frame::doorbell::Doorbell;
use crate::frame::mailbox::{Mailbox, Waker};
use crate::frame::outlet::{Delivery, Outlet, Pace, Route as OutletRoute};
use crate::model::Model;
use crate::publish::encode::{Identity, TopicSequence, Topics};
use crate::publish::mqtt::{self, MqttHandle};
use crate::publish::{Outbox, SinkInbox, SinkQueue, WhenFull, jsonl, sink_queue};
use crate::scheduler::DetectConfig;
use crate::source::state::CameraState;
use crate::source::{self, CameraConfig, Intake, Source, SourceError};
use crate::telemetry::{
    BatchTelemetry, CameraTelemetry, DeviceTelemetry, DropReason, RouteTelemetry, SinkTelemetry, Telemetry,
    process,
};
use crate::threads::{Heartbeat, Shutdown, Thread, ThreadEnd, ThreadKind, ThreadSpec, Threads, shutdown};
use crate::worker::lane::{self, LaneConfig, Route};
use crate::worker::{self, DeviceState, Shared, Tap, WorkerConfig};
use budget::{Budget, TooMuch};
use stage::{Stage, StageShutdown};

/// Messages that wait for a slow reader of standard output.
pub const STDOUT_QUEUE: usize = 256;
/// A worker with work whose heartbeat has not moved for this long is stuck: no batch may take longer.
pub const WORKER_LIMIT: Duration = Duration::from_secs(5);
/// A source's thread looks at its camera several times a second; opening one may take a while.
pub const SOURCE_LIMIT: Duration = Duration::from_secs(30);
/// The `io` thread never blocks.
pub const IO_LIMIT: Duration = Duration::from_secs(10);

/// How often the next of cameras that run in turn looks whether the one before is through.
const IN_TURN_POLL: Duration = Duration::from_millis(1);

/// What a pipeline is made of.
#[derive(Clone)]
pub struct Parts {
    /// The config.
    pub config: Config,
    /// The models that its cameras name, by the name that they use.
    pub models: BTreeMap<String, Arc<Model>>,
    /// Who we are.
    pub identity: Arc<Identity>,
    /// Sees every result together with its picture.
    pub tap: Option<Arc<dyn Tap>>,
    /// How the cameras are run.
    pub order: CameraOrder,
    /// Where the lines go that `publish.stdout` asks for.
    pub lines: Lines,
}

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// To standard output.
    Stdout,
    /// To nowhere, on the same way: for measuring.
    Nowhere,
}

/// How cameras are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameraOrder {
    /// All together, each on its own thread.
    Together,
    /// One after the other in the order of the config, on one thread: the next one begins when the last frame of the one
    /// before has its result. For files, however many.
    InTurn,
}

/// The running data plane.
#[derive(Debug)]
pub struct Pipeline {
    telemetry: Telemetry,
    board: Arc<Board>,
    mqtt: Option<MqttHandle>,
    mailboxes: Vec<Waiting>,
    sources: Stage,
    workers: Stage,
    sinks: Stage,
    /// Ends an `io` thread that has no sink.
    io_end: oneshot::Sender<()>,
}

/// A mailbox, and where its frame is counted if nobody takes it any more.
type Waiting = (Arc<Mailbox<FrameRef>>, Arc<RouteTelemetry>);

/// Why the data plane could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// A camera has no source in this build.
    #[error("camera {camera}")]
    Source {
        /// The camera.
        camera: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// The machine has not the memory for it.
    #[error(transparent)]
    Memory(#[from] TooMuch),
    /// The system refuses another thread.
    #[error("the system refuses to start the thread {thread}")]
    Thread {
        /// The thread's name.
        thread: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Pipeline {
    /// Starts sinks, devices and cameras, in this order, so that every frame finds its way open. Every change on the
    /// board wakes `supervisor`. `beside` is what else the `io` thread is for.
    ///
    /// # Errors
    /// When a camera has no source in this build, the machine has not the memory for it, or a thread cannot be started. What
    /// had been started is ended.
    pub fn start(
        parts: &Parts,
        threads: &Threads,
        supervisor: Waker,
        beside: Option<IoTask>,
    ) -> Result<Self, PipelineError> {
        Builder::new(parts, threads, supervisor).build(beside)
    }

    /// All counters.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The newest states.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The MQTT client, if there is one.
    #[must_use]
    pub fn mqtt(&self) -> Option<&MqttHandle> {
        self.mqtt.as_ref()
    }

    /// Ends everything in the order in which data flows, so that whatever is inside comes out: cameras stop, devices
    /// finish what waits, sinks deliver what is queued. `health` makes the last health message, when nothing is in flight
    /// any more.
    ///
    /// All of it takes at most `limit`. Whoever hangs leaves time to those after it: cameras have three tenths of it,
    /// devices have until seven tenths, so the broker is always told. Threads that do not end are abandoned; their names
    /// are returned with the final counters.
    pub fn drain(
        self,
        limit: Duration,
        health: impl FnOnce(&Telemetry) -> Bytes,
    ) -> (Telemetry, Vec<String>) {
        let (begun, mut abandoned) = (Instant::now(), Vec::new());
        let deadline = begun + limit;
        self.sources.end(begun + limit * 3 / 10, &mut abandoned);
        self.workers.end(begun + limit * 7 / 10, &mut abandoned);
        for (mailbox, telemetry) in &self.mailboxes {
            // A device that was refused, lost or wedged left it there.
            if mailbox.take().is_some() {
                telemetry.dropped(DropReason::Stopped);
            }
        }
        if let Some(mqtt) = self.mqtt {
            mqtt.health(health(&self.telemetry));
            // Its thread ends a little later than its connection.
            mqtt.stop(deadline.saturating_duration_since(Instant::now()) * 9 / 10);
        }
        drop(self.io_end);
        // The queue of standard output ended with its last producer, the last worker.
        self.sinks.end(deadline, &mut abandoned);
        (self.telemetry, abandoned)
    }
}

/// Makes a pipeline, downstream first.
struct Builder<'a> {
    parts: &'a Parts,
    threads: &'a Threads,
    board: Arc<Board>,
    topics: Topics,
    telemetry: Telemetry,
    mailboxes: Vec<Waiting>,
}

impl<'a> Builder<'a> {
    fn new(parts: &'a Parts, threads: &'a Threads, waker: Waker) -> Self {
        let config = &parts.config;
        let sinks = config.publish.stdout.then_some("stdout").into_iter();
        let sinks = sinks.chain(config.publish.mqtt.is_some().then_some("mqtt"));
        let prefix = config.publish.mqtt.as_ref().map_or("gantry", |mqtt| &mqtt.prefix);
        let first = |camera: &Camera| {
            let state = if camera.enabled { CameraState::Connecting } else { CameraState::Disabled };
            Cell::new(camera.source.id.as_str(), state)
        };
        let board = Board {
            cameras: config.cameras.iter().map(first).collect(),
            devices: used_devices(config)
                .map(|index| Cell::new(&config.devices[index].id, DeviceState::Opening))
                .collect(),
            sinks: sinks.map(|sink| Cell::new(sink, None)).collect(),
            panics: Cell::new("panics", Vec::new()),
            waker,
        };
        let topics = Topics::new(prefix, &config.node);
        let telemetry = Telemetry::default();
        Self { parts, threads, board: Arc::new(board), topics, telemetry, mailboxes: Vec::new() }
    }

    fn build(mut self, beside: Option<IoTask>) -> Result<Pipeline, PipelineError> {
        let (io_end, ended) = oneshot::channel();
        let (sinks, outbox, mqtt) = self.sinks(beside, ended)?;
        let (sources, workers) = self.devices_and_cameras(&outbox)?;
        let Self { telemetry, board, mailboxes, .. } = self;
        Ok(Pipeline { telemetry, board, mqtt, mailboxes, sources, workers, sinks, io_end })
    }

    fn sinks(
        &mut self,
        beside: Option<IoTask>,
        ended: oneshot::Receiver<()>,
    ) -> Result<(Stage, Outbox, Option<MqttHandle>), PipelineError> {
        let publish = &self.parts.config.publish;
        let (mut threads, mut queues) = (Vec::new(), Vec::new());
        if publish.stdout {
            let inbox = self.sink("stdout", STDOUT_QUEUE, &mut queues);
            threads.push(self.stdout(inbox)?);
        }
        let (mqtt, handle) = match &publish.mqtt {
            Some(config) => {
                let inbox = self.sink("mqtt", config.queue, &mut queues);
                let (mqtt, control) = mqtt::control();
                (Some((config.clone(), inbox, control)), Some(mqtt))
            }
            None => (None, None),
        };
        if mqtt.is_some() || beside.is_some() {
            threads.push(self.io(IoWork { mqtt, beside, ended })?);
        }
        // Sinks end when everything has been put into their queues, not at a signal.
        Ok((Stage { threads, shutdown: None }, Outbox::new(queues), handle))
    }

    fn sink(&mut self, name: &str, capacity: usize, queues: &mut Vec<SinkQueue>) -> SinkInbox {
        let telemetry = Arc::new(SinkTelemetry::new(name));
        let (queue, inbox) = sink_queue(bounded(capacity), Arc::clone(&telemetry));
        self.telemetry.sinks.push(telemetry);
        queues.push(queue);
        inbox
    }

    fn stdout(&self, inbox: SinkInbox) -> Result<Thread, PipelineError> {
        let board = Arc::clone(&self.board);
        let (index, lines) = (self.telemetry.sinks.len() - 1, self.parts.lines);
        self.spawn(self.threads, "out/stdout", ThreadKind::Output, IO_LIMIT, move |heartbeat| {
            let end = match lines {
                Lines::Stdout => jsonl::run(&inbox, std::io::stdout(), &heartbeat),
                Lines::Nowhere => jsonl::run(&inbox, std::io::sink(), &heartbeat),
            };
            board.sinks[index].set(Some(end));
            board.waker.wake();
        })
    }

    fn io(&self, work: IoWork) -> Result<Thread, PipelineError> {
        let (board, sinks) = (Arc::clone(&self.board), self.telemetry.sinks.len());
        let (identity, topics) = (Arc::clone(&self.parts.identity), self.topics.clone());
        self.spawn(self.threads, "io", ThreadKind::Io, IO_LIMIT, move |heartbeat| {
            if let Some(end) = work.run(&identity, &topics, &heartbeat) {
                // MQTT is the last sink.
                board.sinks[sinks - 1].set(Some(end));
                board.waker.wake();
            }
        })
    }

    fn devices_and_cameras(&mut self, outbox: &Outbox) -> Result<(Stage, Stage), PipelineError> {
        let config = &self.parts.config;
        let (source_end, source_token) = shutdown();
        let (worker_end, worker_token) = shutdown();
        let mut loads: BTreeMap<usize, DeviceLoad> =
            used_devices(config).map(|device| (device, DeviceLoad::new(config, device))).collect();
        let mut intakes = Vec::new();
        for (index, camera) in config.cameras.iter().enumerate() {
            let telemetry = Arc::new(CameraTelemetry::new(camera.source.id.as_str()));
            self.telemetry.cameras.push(Arc::clone(&telemetry));
            if camera.enabled {
                let outlet = self.routes(camera, &mut loads, telemetry, &source_token);
                intakes.push((camera, self.intake(index, camera, outlet)));
            } else {
                telemetry.set_state(CameraState::Disabled.name());
            }
        }
        self.budget(&loads, &intakes).check(process::available().map(|available| available.bytes))?;
        let doorbells = loads.values().map(|load| Arc::clone(&load.doorbell)).collect();
        let shutdown = StageShutdown::new(worker_end, doorbells);
        let mut workers = Stage { threads: Vec::new(), shutdown: Some(shutdown) };
        for (cell, (device, load)) in loads.into_iter().enumerate() {
            workers.threads.push(self.worker(cell, device, load, worker_token.clone(), outbox)?);
        }
        let sources = self.cameras(intakes, &source_token)?;
        let shutdown = StageShutdown::new(source_end, Vec::new());
        Ok((Stage { threads: sources, shutdown: Some(shutdown) }, workers))
    }

    /// What is to be made in memory, as far as it is known before the first picture.
    fn budget(&self, loads: &BTreeMap<usize, DeviceLoad<'_>>, intakes: &[(&Camera, Arc<Intake>)]) -> Budget {
        let (config, mut budget) = (&self.parts.config, Budget::default());
        for (device, load) in loads {
            for (name, routes) in &load.lanes {
                let bytes = lane::batch_bytes(&self.parts.models[*name], routes.len(), &config.batching);
                let what = format!("the batches of {name} on {}", config.devices[*device].id);
                budget.add(what, bytes.unwrap_or_default());
            }
        }
        for (camera, intake) in intakes {
            let bytes = source::synthetic::slab_bytes(&camera.source.address, intake.frames_in_flight());
            budget.add(format!("the pictures of {}", camera.source.id), bytes.unwrap_or_default());
        }
        budget
    }

    /// One mailbox for each model of a camera; the worker's end goes to `lanes`.
    fn routes<'c>(
        &mut self,
        camera: &'c Camera,
        loads: &mut BTreeMap<usize, DeviceLoad<'c>>,
        telemetry: Arc<CameraTelemetry>,
        shutdown: &Shutdown,
    ) -> Outlet {
        let id = &camera.source.id;
        let lossless = camera.source.is_lossless();
        let topic = Arc::new(TopicSequence::new(self.topics.detections(id)));
        let mut routes = Vec::new();
        for detect in &camera.detect {
            let model = &self.parts.models[&detect.model];
            let device = device_of(&self.parts.config, &detect.devices);
            let load = loads.get_mut(&device).expect("every device that a camera uses has a load");
            let counts = Arc::new(RouteTelemetry::new(id.as_str(), &model.name));
            self.telemetry.routes.push(Arc::clone(&counts));
            let mailbox = Arc::new(Mailbox::new());
            self.mailboxes.push((Arc::clone(&mailbox), Arc::clone(&counts)));
            let ringer = load.doorbell.ringer(load.routes);
            load.lanes.entry(&detect.model).or_default().push(Route {
                number: load.routes,
                mailbox: Arc::clone(&mailbox),
                telemetry: Arc::clone(&counts),
                spec: detect.route(),
                region: camera.region,
                score_min: detect.score_min.unwrap_or(model.score_min),
                when_full: if lossless { WhenFull::Wait } else { WhenFull::DropOldest },
                topic: Arc::clone(&topic),
            });
            load.routes += 1;
            let pace = detect.rate_max.map(Pace::new);
            routes.push(OutletRoute { mailbox, ringer, telemetry: counts, pace });
        }
        let delivery = if lossless { Delivery::Lossless } else { Delivery::NewestWins };
        Outlet::new(routes, delivery, telemetry, shutdown.clone())
    }

    fn intake(&self, index: usize, camera: &Camera, outlet: Outlet) -> Arc<Intake> {
        let board = Arc::clone(&self.board);
        let report = move |state: CameraState| {
            // Another reason is told, and leaves since when the camera is away.
            board.cameras[index].update(|(current, since)| {
                if current.name() != state.name() {
                    *since = Instant::now();
                }
                *current = state;
            });
            board.waker.wake();
        };
        Arc::new(Intake::new(&camera.source, outlet, Box::new(report)))
    }

    fn worker(
        &mut self,
        cell: usize,
        device: usize,
        load: DeviceLoad<'_>,
        shutdown: Shutdown,
        outbox: &Outbox,
    ) -> Result<Thread, PipelineError> {
        let config = &self.parts.config;
        let device = config.devices[device].clone();
        let lane = |(name, routes): (&str, Vec<Route>)| {
            let model = Arc::clone(&self.parts.models[name]);
            let telemetry = Arc::new(BatchTelemetry::new(&model.name, config.batching.size_max));
            LaneConfig { model, routes, telemetry }
        };
        let lanes: Vec<_> = load.lanes.into_iter().map(lane).collect();
        let batches = lanes.iter().map(|lane| Arc::clone(&lane.telemetry)).collect();
        let telemetry = Arc::new(DeviceTelemetry::new(&device.id, batches));
        self.telemetry.devices.push(Arc::clone(&telemetry));
        let shared = Shared {
            identity: Arc::clone(&self.parts.identity),
            outbox: outbox.clone(),
            publish: config.publish.detections,
            telemetry,
            tap: self.parts.tap.clone(),
        };
        let board = Arc::clone(&self.board);
        let name = format!("dev/{}", device.id);
        let worker = WorkerConfig {
            device,
            lanes,
            batching: config.batching.clone(),
            doorbell: load.doorbell,
            shared: Arc::new(shared),
            report: Box::new(move |state| {
                board.devices[cell].set(state);
                board.waker.wake();
            }),
        };
        let threads = self.threads.on(config.realtime.devices.get(&worker.device.id));
        self.spawn(&threads, &name, ThreadKind::Device, WORKER_LIMIT, move |heartbeat| {
            worker::run(worker, &shutdown, &heartbeat);
        })
    }

    fn cameras(
        &self,
        intakes: Vec<(&Camera, Arc<Intake>)>,
        shutdown: &Shutdown,
    ) -> Result<Vec<Thread>, PipelineError> {
        let mut cameras = Vec::new();
        for (camera, intake) in intakes {
            let config = camera.source.clone();
            let source = source::open(&config)
                .map_err(|source| PipelineError::Source { camera: config.id.to_string(), source })?;
            cameras.push(OpenCamera { config, source, intake });
        }
        let spawn = |name: &str, cameras: Vec<OpenCamera>| {
            let (shutdown, routes) = (shutdown.clone(), self.telemetry.routes.clone());
            let own = &self.parts.config.realtime.cameras;
            let threads =
                self.threads.on(cameras.first().and_then(|camera| own.get(camera.config.id.as_str())));
            self.spawn(&threads, name, ThreadKind::Source, SOURCE_LIMIT, move |heartbeat| {
                run_in_turn(cameras, &routes, &shutdown, &heartbeat);
            })
        };
        match self.parts.order {
            CameraOrder::Together => cameras
                .into_iter()
                .map(|camera| spawn(&format!("src/{}", camera.config.id), vec![camera]))
                .collect(),
            CameraOrder::InTurn => Ok(vec![spawn("src", cameras)?]),
        }
    }

    fn spawn(
        &self,
        threads: &Threads,
        name: &str,
        kind: ThreadKind,
        limit: Duration,
        body: impl FnOnce(Heartbeat) + Send + 'static,
    ) -> Result<Thread, PipelineError> {
        let (board, thread) = (Arc::clone(&self.board), name.to_owned());
        let ended = move |end| {
            if let ThreadEnd::Panicked(message) = end {
                board.panics.update(|(panics, _)| panics.push((thread, message)));
                board.waker.wake();
            }
        };
        let spec = ThreadSpec { name: name.to_owned(), kind, limit };
        threads
            .spawn(spec, body, ended)
            .map_err(|source| PipelineError::Thread { thread: name.to_owned(), source })
    }
}

/// What a device is to do.
struct DeviceLoad<'a> {
    doorbell: Arc<Doorbell>,
    /// Routes so far.
    routes: usize,
    /// Its models, each with its cameras.
    lanes: BTreeMap<&'a str, Vec<Route>>,
}

impl DeviceLoad<'_> {
    fn new(config: &Config, device: usize) -> Self {
        let routes = used_by(config).filter(|detect| device_of(config, &detect.devices) == device).count();
        Self { doorbell: Arc::new(Doorbell::new(routes)), routes: 0, lanes: BTreeMap::new() }
    }
}

/// A camera with what reads it and where its frames go.
struct OpenCamera {
    config: CameraConfig,
    source: Box<dyn Source>,
    intake: Arc<Intake>,
}

/// Runs cameras one after the other, each until nothing of it is on its way any more.
fn run_in_turn(
    cameras: Vec<OpenCamera>,
    routes: &[Arc<RouteTelemetry>],
    shutdown: &Shutdown,
    heartbeat: &Heartbeat,
) {
    let mut left = cameras.len();
    for OpenCamera { config, mut source, intake } in cameras {
        source::run(&config, source.as_mut(), &intake, shutdown, heartbeat);
        left -= 1;
        heartbeat.idle();
        let mine: Vec<_> = routes.iter().filter(|route| route.camera == config.id.as_str()).collect();
        while left > 0 && mine.iter().any(|route| route.in_flight() > 0) {
            if shutdown.wait(IN_TURN_POLL) {
                return;
            }
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Indices of the devices that some camera uses, in the order of the config.
fn used_devices(config: &Config) -> impl Iterator<Item = usize> {
    let used = |index: &usize| used_by(config).any(|detect| device_of(config, &detect.devices) == *index);
    (0..config.devices.len()).filter(used)
}

/// What the cameras that are used have looked for in their pictures.
fn used_by(config: &Config) -> impl Iterator<Item = &DetectConfig> {
    config.cameras.iter().filter(|camera| camera.enabled).flat_map(|camera| &camera.detect)
}

/// The device that runs a camera's model, by its index: the first of its `devices`, or the first of the config.
#[must_use]
pub fn device_of(config: &Config, devices: &[String]) -> usize {
    let Some(first) = devices.first() else { return 0 };
    let position = config.devices.iter().position(|device| device.id == *first);
    position.expect("the config's check refuses a device that does not exist")
}
