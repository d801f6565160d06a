//! Runs the pipeline and looks at it twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::MAIN_GROUP;
use super::report::Report;
use crate::config::Config;
use crate::daemon::{self, DaemonError};
use crate::frame::mailbox::waker;
use crate::memory::allocations::{self, Counts, Trace};
use crate::pipeline::{CameraOrder, Lines, Parts, Pipeline};
use crate::publish::SinkEnd;
use crate::publish::encode::{self, Identity};
use crate::publish::event::Stamp;
use crate::source::state::CameraState;
use crate::telemetry::process::{KindUsage, ThreadReader};
use crate::telemetry::{RouteCounts, Snapshot, Telemetry};
use crate::worker::DeviceState;

/// How long devices and cameras may take to be ready, in seconds.
const READY_WITHIN_S: u64 = 60;
/// How often is looked whether all goes well.
const POLL: Duration = Duration::from_millis(50);
/// How long the end may take.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// How long is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) warm_up: Duration,
    pub(super) time: Duration,
    /// How many allocations of our own are shown.
    pub(super) traces: usize,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Start(#[from] DaemonError),
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
    #[error("{}", .0.join("\n"))]
    Cameras(Vec<String>),
    #[error("not ready within {READY_WITHIN_S} s: {what}")]
    Late { what: String },
    #[error("no frame had a result while it was measured; measure for longer with --seconds")]
    NoFrame,
    #[error("{0}")]
    Output(String),
    #[error("{}, which is a bug in Gantry", .0.join("\n"))]
    Panicked(Vec<String>),
}

/// All there is to see at one moment.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) counters: Snapshot,
    pub(super) times: RouteCounts,
    pub(super) threads: BTreeMap<&'static str, KindUsage>,
    pub(super) allocations: Counts,
}

/// Runs the config and measures it. The traces are those of our own allocations.
///
/// # Errors
/// When something does not start, breaks, or nothing happens.
pub(super) fn run(config: Config, plan: Plan) -> Result<(Report, Vec<Trace>), BenchError> {
    let started = Instant::now();
    let threads = daemon::prepare(&config.realtime).map_err(DaemonError::Realtime)?;
    let models =
        daemon::models(&config.models_dir, daemon::model_names(&config)).map_err(DaemonError::Models)?;
    let identity = Arc::new(Identity::new(&config.node));
    let (wake, woken) = waker();
    let order = CameraOrder::Together;
    let parts = Parts { config, models, identity, tap: None, order, lines: Lines::Nowhere };
    let pipeline = Pipeline::start(&parts, &threads, wake, None).map_err(DaemonError::Pipeline)?;
    let outcome = Bench { pipeline: &pipeline, woken, reader: ThreadReader::default() }.measure(plan);
    let runtimes = runtimes(&pipeline);
    let health = |telemetry: &Telemetry| {
        let counters = telemetry.snapshot(Instant::now());
        encode::health(&parts.identity, Stamp::now(), started.elapsed(), &counters)
    };
    pipeline.drain(DRAIN_WITHIN, health);
    let (before, after, traces) = outcome?;
    let report = Report::new(&parts, runtimes, &before, &after).ok_or(BenchError::NoFrame)?;
    Ok((report, traces))
}

struct Bench<'a> {
    pipeline: &'a Pipeline,
    woken: Receiver<()>,
    reader: ThreadReader,
}

impl Bench<'_> {
    fn measure(mut self, plan: Plan) -> Result<(Look, Look, Vec<Trace>), BenchError> {
        self.wait(Duration::from_secs(READY_WITHIN_S), Self::is_ready)?;
        if !self.is_ready() {
            return Err(BenchError::Late { what: self.late() });
        }
        self.wait(plan.warm_up, |_| false)?;
        if self.has_ended() {
            let problem = "all cameras have ended before it was measured; give them more frames, or a shorter --warm-up";
            return Err(BenchError::Cameras(vec![problem.to_owned()]));
        }
        // The first look makes the reader's memory, which is not to be counted.
        self.reader.read();
        allocations::trace(0..MAIN_GROUP, plan.traces);
        let before = self.look();
        self.wait(plan.time, Self::has_ended)?;
        let after = self.look();
        Ok((before, after, allocations::traces()))
    }

    /// Waits for so long, or until there is no need to wait any more.
    ///
    /// # Errors
    /// When something has broken.
    fn wait(&self, limit: Duration, is_over: impl Fn(&Self) -> bool) -> Result<(), BenchError> {
        let end = Instant::now() + limit;
        loop {
            self.trouble()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over(self) {
                return Ok(());
            }
            // Woken or not, the next look tells.
            self.woken.recv_timeout(left.min(POLL)).ok();
        }
    }

    fn look(&mut self) -> Look {
        let telemetry = self.pipeline.telemetry();
        let mut times = RouteCounts::default();
        telemetry.routes.iter().for_each(|route| times.add(route));
        let at = Instant::now();
        Look {
            at,
            allocations: allocations::counts(),
            counters: telemetry.snapshot(at),
            times,
            threads: self.reader.read().clone(),
        }
    }

    fn trouble(&self) -> Result<(), BenchError> {
        let board = self.pipeline.board();
        let panics = board.panics.get().0;
        if !panics.is_empty() {
            let told = panics.iter().map(|(thread, message)| format!("{thread} panicked: {message}"));
            return Err(BenchError::Panicked(told.collect()));
        }
        let refused = board.devices.iter().filter_map(|device| match device.get().0 {
            DeviceState::Refused { reason } => Some(reason),
            DeviceState::Opening | DeviceState::Ready { .. } | DeviceState::Reopening { .. } => None,
        });
        let refused: Vec<_> = refused.collect();
        if !refused.is_empty() {
            return Err(BenchError::Refused(refused));
        }
        let failed = board.cameras.iter().filter_map(|camera| match camera.get().0 {
            CameraState::Failed { reason, .. } => Some(format!("{}: {reason}", camera.name)),
            _ => None,
        });
        let failed: Vec<_> = failed.collect();
        if !failed.is_empty() {
            return Err(BenchError::Cameras(failed));
        }
        let closed = board.sinks.iter().find_map(|sink| match sink.get().0 {
            Some(SinkEnd::Closed(reason)) => Some(reason),
            Some(SinkEnd::Drained) | None => None,
        });
        closed.map_or(Ok(()), |reason| Err(BenchError::Output(reason)))
    }

    fn is_ready(&self) -> bool {
        let board = self.pipeline.board();
        board.devices.iter().all(|device| matches!(device.get().0, DeviceState::Ready { .. }))
            && board
                .cameras
                .iter()
                .all(|camera| matches!(camera.get().0, CameraState::Live | CameraState::Ended))
    }

    /// What is not ready, in words.
    fn late(&self) -> String {
        let board = self.pipeline.board();
        let cameras = board.cameras.iter().filter_map(|camera| match camera.get().0 {
            CameraState::Live | CameraState::Ended => None,
            state => Some(match state.reason() {
                Some(reason) => format!("{}: {reason}", camera.name),
                None => format!("{} is {}", camera.name, state.name()),
            }),
        });
        let devices = board.devices.iter().filter_map(|device| match device.get().0 {
            DeviceState::Ready { .. } => None,
            DeviceState::Reopening { reason } => Some(format!("{}: {reason}", device.name)),
            DeviceState::Opening | DeviceState::Refused { .. } => {
                Some(format!("{} is being opened", device.name))
            }
        });
        devices.chain(cameras).collect::<Vec<_>>().join("; ")
    }

    fn has_ended(&self) -> bool {
        self.pipeline.board().cameras.iter().all(|camera| camera.get().0.is_final())
    }
}

/// Each device and the runtime that drives it.
fn runtimes(pipeline: &Pipeline) -> BTreeMap<String, String> {
    let runtime = |device: &crate::pipeline::Cell<DeviceState>| match device.get().0 {
        DeviceState::Ready { runtime, .. } => Some((device.name.clone(), runtime)),
        _ => None,
    };
    pipeline.board().devices.iter().filter_map(runtime).collect()
}
