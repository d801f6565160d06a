//! The process's life: models → pipeline → run → drain.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::config::{Config, Realtime};
use crate::control::Command;
use crate::control::admin::{self, AdminError};
use crate::control::notify::Notifier;
use crate::control::summary;
use crate::control::supervisor::{Ended, Supervisor};
use crate::frame::mailbox::waker;
use crate::memory::lock::LockError;
use crate::memory::{self, Wish};
use crate::model::{Model, ModelError, bundle};
use crate::pipeline::{CameraOrder, IoTask, Lines, Parts, Pipeline, PipelineError};
use crate::publish::encode::{self, Identity, Topics};
use crate::publish::event::Stamp;
use crate::telemetry::{Snapshot, Telemetry, error_chain};
use crate::threads::place::{Grant, PlaceError, Places, Scheduling};
use crate::threads::{ThreadKind, ThreadSpec, Threads};
use crate::worker::Tap;

/// Commands that wait for the supervisor. It executes each at once; one that finds the queue full is not needed twice.
const COMMANDS: usize = 16;
/// What is inside has this long to come out after the first SIGTERM.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// The exit code after a second SIGTERM: the drain was cut short.
const SECOND_SIGNAL_EXIT: i32 = 70;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Why.
    pub ended: Ended,
    /// The counters at the end.
    pub counters: Snapshot,
    /// Threads that did not end in time.
    pub abandoned: Vec<String>,
}

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Models that cameras name cannot be used; all of them.
    #[error("{}", messages(.0))]
    Models(Vec<ModelError>),
    /// The data plane cannot be built.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The system refuses what the config requires of it.
    #[error(transparent)]
    Realtime(#[from] RealtimeError),
    /// The HTTP server cannot listen where the config says.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Signals cannot be caught.
    #[error("signals cannot be caught")]
    Signals(#[source] std::io::Error),
}

/// What the config requires and the system refuses.
#[derive(Debug, thiserror::Error)]
pub enum RealtimeError {
    /// Memory.
    #[error("realtime.lock_memory is require")]
    Memory(#[from] LockError),
    /// A priority.
    #[error("realtime.scheduling.grant is require")]
    Scheduling(#[from] PlaceError),
}

/// Reads the models, starts the pipeline, runs until there is a reason to end, and drains.
///
/// # Errors
/// When a model cannot be used, or the pipeline cannot be started. Nothing runs then.
pub fn run(config: Config, order: CameraOrder, tap: Option<Arc<dyn Tap>>) -> Result<Outcome, DaemonError> {
    let started = Instant::now();
    let threads = prepare(&config.realtime)?;
    let commands = signals(&threads).map_err(DaemonError::Signals)?;
    let models = models(&config.models_dir, model_names(&config)).map_err(DaemonError::Models)?;
    let identity = Arc::new(Identity::new(&config.node));
    let prefix = config.publish.mqtt.as_ref().map_or("gantry", |mqtt| &mqtt.prefix);
    let topics = Topics::new(prefix, &config.node);
    info!(
        node = %config.node, boot_id = %identity.boot_id,
        "gantry {} starts; cameras: {}, models: {}", env!("CARGO_PKG_VERSION"), config.cameras.len(), models.len()
    );
    let (server, questions) = admin::listen(&config.admin)?;
    let serve = server.map(|server| -> IoTask { Box::new(move || Box::pin(server.serve())) });
    let (wake, woken) = waker();
    let mut notifier = Notifier::from_environment();
    let parts = Parts { config, models, identity, tap, order, lines: Lines::Stdout };
    let pipeline = Pipeline::start(&parts, &threads, wake, serve)?;
    let ended = Supervisor::new(&pipeline, &threads, &parts.identity, topics, &mut notifier, started)
        .run(&commands, questions, &woken);
    notifier.stopping();
    info!("stopping: {}", reason(&ended));
    let health = |telemetry: &Telemetry| {
        encode::health(&parts.identity, Stamp::now(), started.elapsed(), &telemetry.snapshot(Instant::now()))
    };
    let (telemetry, abandoned) = pipeline.drain(DRAIN_LIMIT, health);
    for thread in &abandoned {
        warn!(%thread, "did not end in time and is abandoned");
    }
    let counters = telemetry.snapshot(Instant::now());
    info!("{}", summary::text(&counters, started.elapsed()));
    Ok(Outcome { ended, counters, abandoned })
}

/// What the config requires and the system refuses, without any lasting effect.
#[must_use]
pub fn refused(realtime: &Realtime) -> Vec<RealtimeError> {
    let memory = (realtime.memory.lock == Wish::Require).then(|| memory::lock::try_out().err()).flatten();
    let Places { source, infer, io } = &realtime.places;
    let required = [source, infer, io].into_iter().filter(|_| realtime.grant == Grant::Require);
    let scheduling = required.filter_map(|place| place.scheduling.try_out().err());
    memory.map(RealtimeError::from).into_iter().chain(scheduling.map(RealtimeError::from)).collect()
}

/// The places of the config, without the priorities that the kernel refuses where the config lets that be.
///
/// # Errors
/// When the kernel refuses one that the config requires.
fn granted(realtime: &Realtime) -> Result<Places, RealtimeError> {
    let mut places = realtime.places.clone();
    for place in [&mut places.source, &mut places.infer, &mut places.io] {
        match (place.scheduling.try_out(), realtime.grant) {
            (Ok(()), _) => {}
            (Err(error), Grant::Require) => return Err(error.into()),
            (Err(error), Grant::Auto) => {
                warn!("{}; Gantry goes on with normal", error_chain(&error));
                place.scheduling = Scheduling::Normal;
            }
        }
    }
    Ok(places)
}

/// Sets how memory is made and where threads run. Call it before any thread and any pool is made: what they get is locked
/// as it comes.
///
/// # Errors
/// When the system refuses what the config requires.
pub fn prepare(realtime: &Realtime) -> Result<Threads, RealtimeError> {
    if let Err(counts) = memory::set_policy(realtime.memory) {
        warn!("this process has begun to make memory by {counts:?} and goes on so");
    }
    let locked = memory::lock::lock(realtime.memory.lock)?;
    let places = granted(realtime)?;
    let Places { source, infer, io } = &places;
    info!("memory locked in RAM: {}; source: {source}; infer: {infer}; io: {io}", locked.name());
    Ok(Threads::placed(places))
}

/// Finds the models with these names (`name` or `name@version`) and checks each bundle whole.
///
/// # Errors
/// All that is wrong with any of them.
pub fn models<'a>(
    dir: &std::path::Path,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeMap<String, Arc<Model>>, Vec<ModelError>> {
    let (mut models, mut errors) = (BTreeMap::new(), Vec::new());
    for name in names {
        if models.contains_key(name) {
            continue;
        }
        match bundle::find(dir, name) {
            Ok(model) => drop(models.insert(name.to_owned(), Arc::new(model))),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(models) } else { Err(errors) }
}

/// The names under which a config's cameras name models.
pub fn model_names(config: &Config) -> impl Iterator<Item = &str> {
    config.cameras.iter().flat_map(|camera| &camera.detect).map(|detect| detect.model.as_str())
}

/// Turns signals into commands on a thread of their own. A second TERM or INT ends the process at once.
fn signals(threads: &Threads) -> std::io::Result<Receiver<Command>> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, SECOND_SIGNAL_EXIT, Arc::clone(&stopping))?;
        signal_hook::flag::register(signal, Arc::clone(&stopping))?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1])?;
    let (commands, received) = bounded(COMMANDS);
    let spec =
        ThreadSpec { name: "signals".into(), kind: ThreadKind::Signals, limit: Duration::from_secs(10) };
    let body = move |_| {
        for signal in signals.forever() {
            send(&commands, if signal == SIGUSR1 { Command::Dump } else { Command::Stop });
        }
    };
    threads.spawn(spec, body, |_| {})?;
    Ok(received)
}

fn send(commands: &Sender<Command>, command: Command) {
    if commands.try_send(command).is_err() {
        warn!("the command {command:?} came too fast after others and is not executed");
    }
}

fn reason(ended: &Ended) -> String {
    match ended {
        Ended::Stopped => "asked to by a signal".to_owned(),
        Ended::CamerasEnded => "all files have ended".to_owned(),
        Ended::CamerasFailed(failed) => format!("{} could not be read", names(failed)),
        Ended::DevicesRefused(reasons) => reasons.join("; "),
        Ended::OutputClosed(reason) => format!("standard output was closed: {reason}"),
        Ended::Panicked(panics) => format!("{} panicked", names(panics)),
    }
}

fn names(pairs: &[(String, String)]) -> String {
    pairs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

fn messages(errors: &[ModelError]) -> String {
    errors.iter().map(|error| error_chain(error)).collect::<Vec<_>>().join("\n")
}

/// Where models are when no config says so: `models` in the working directory, or `/var/lib/gantry/models`.
#[must_use]
pub fn default_models_dir() -> PathBuf {
    let here = PathBuf::from("models");
    if here.is_dir() { here } else { PathBuf::from("/var/lib/gantry/models") }
}
