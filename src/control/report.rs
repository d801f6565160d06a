//! Everything that is known of the running daemon at one moment: what `/status` shows.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::frame::clock::wall_time;
use crate::memory;
use crate::pipeline::{Board, Cell};
use crate::publish::SinkEnd;
use crate::publish::encode::{EventTime, Identity};
use crate::publish::event::Stamp;
use crate::source::state::CameraState;
use crate::telemetry::{
    CameraSnapshot, DeviceSnapshot, ProcessSnapshot, RealtimeSnapshot, RouteSnapshot, SinkSnapshot, Snapshot,
    Warning,
};
use crate::threads::Stuck;
use crate::worker::DeviceState;

/// `gantry.report/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `gantry.report/1`.
    pub schema: &'static str,
    /// The machine.
    pub node: String,
    /// New at each start of the daemon.
    pub boot_id: String,
    /// Gantry's version.
    pub version: String,
    /// When this was so.
    pub at: Stamp,
    /// Seconds since the daemon's start.
    pub uptime_s: f64,
    /// One sentence, the same that `systemctl status` shows.
    pub status: String,
    /// Threads that have work and make no progress; none as it should be.
    pub stuck: Vec<StuckThread>,
    /// Why the daemon does not serve (yet), in words; none as it should be.
    pub not_ready: Vec<String>,
    /// What is going wrong; none as it should be.
    pub warnings: Vec<Warning>,
    /// Cameras in the order of the config.
    pub cameras: Vec<CameraReport>,
    /// Each camera's models in the order of the config.
    pub routes: Vec<RouteSnapshot>,
    /// Devices in the order of the config.
    pub devices: Vec<DeviceReport>,
    /// Sinks.
    pub sinks: Vec<SinkReport>,
    /// What the kernel knows of the process.
    pub process: ProcessSnapshot,
    /// What the kernel has granted of `realtime`.
    pub realtime: RealtimeSnapshot,
    /// What was made beforehand for frames and batches.
    pub memory: memory::Account,
}

/// A thread that has work and makes no progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StuckThread {
    /// The thread's name.
    pub thread: String,
    /// Seconds since it last made progress.
    pub since_s: f64,
}

/// A camera: its counts, why it is in its state and since when.
#[derive(Clone, Debug, Serialize)]
pub struct CameraReport {
    /// Its counts, with its state.
    #[serde(flatten)]
    pub counts: CameraSnapshot,
    /// Why it is in this state, where there is a why.
    pub reason: Option<String>,
    /// Since when it is.
    pub since: Stamp,
}

/// A device: its counts and its state.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Its counts.
    #[serde(flatten)]
    pub counts: DeviceSnapshot,
    /// What it is doing, in one word.
    pub state: &'static str,
    /// The runtime that serves, or why none does.
    pub detail: Option<String>,
    /// Since when it is in this state.
    pub since: Stamp,
}

/// A sink: its counts, and how it ended if it has.
#[derive(Clone, Debug, Serialize)]
pub struct SinkReport {
    /// Its counts.
    #[serde(flatten)]
    pub counts: SinkSnapshot,
    /// Why it takes nothing any more; none while it does.
    pub ended: Option<String>,
}

/// What a report is made of besides the counts.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Who we are.
    pub identity: &'a Identity,
    /// The newest states.
    pub board: &'a Board,
    /// Since the daemon's start.
    pub uptime: Duration,
    /// One sentence.
    pub status: String,
    /// Threads that make no progress.
    pub stuck: Vec<Stuck>,
    /// Whether READY was said.
    pub is_ready: bool,
}

impl Report {
    /// The report of this moment. `counters` and the board have the same cameras, devices and sinks, in the same order.
    #[must_use]
    pub fn new(facts: Facts<'_>, counters: Snapshot) -> Self {
        let Facts { identity, board, uptime, status, stuck, is_ready } = facts;
        // Each field by its name, so that a new one is not forgotten here.
        let Snapshot {
            cameras,
            routes,
            devices,
            sinks,
            memory_resident_bytes: _,
            realtime,
            memory,
            process,
            warnings,
        } = counters;
        let at = EventTime::now();
        let stamp = |since: Instant| Stamp::new(wall_time(since, at.now, at.wall));
        let camera = |(cell, counts): (&Cell<CameraState>, CameraSnapshot)| {
            let (state, since) = cell.get();
            let counts = CameraSnapshot { state: state.name().to_owned(), ..counts };
            CameraReport { counts, reason: state.reason().map(str::to_owned), since: stamp(since) }
        };
        let device = |(cell, counts): (&Cell<DeviceState>, DeviceSnapshot)| {
            let (state, since) = cell.get();
            DeviceReport {
                counts,
                state: state.name(),
                detail: state.detail().map(str::to_owned),
                since: stamp(since),
            }
        };
        let sink = |(cell, counts): (&Cell<Option<SinkEnd>>, SinkSnapshot)| {
            let ended = cell.get().0.map(|end| match end {
                SinkEnd::Drained => "everything is delivered".to_owned(),
                SinkEnd::Closed(reason) => reason,
            });
            SinkReport { counts, ended }
        };
        let stuck = stuck
            .into_iter()
            .map(|stuck| StuckThread { thread: stuck.name, since_s: stuck.since.as_secs_f64() });
        Self {
            schema: "gantry.report/1",
            node: identity.node.clone(),
            boot_id: identity.boot_id.clone(),
            version: identity.version.clone(),
            at: Stamp::new(at.wall),
            uptime_s: uptime.as_secs_f64(),
            status,
            stuck: stuck.collect(),
            not_ready: not_ready(board, is_ready),
            warnings,
            cameras: board.cameras.iter().zip(cameras).map(camera).collect(),
            routes,
            devices: board.devices.iter().zip(devices).map(device).collect(),
            sinks: board.sinks.iter().zip(sinks).map(sink).collect(),
            process,
            realtime,
            memory,
        }
    }
}

/// Why the daemon does not serve, in words. Once it was ready, a camera that is away is no reason.
fn not_ready(board: &Board, is_ready: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    for cell in &board.devices {
        let device = &cell.name;
        match cell.get().0 {
            DeviceState::Ready { .. } => {}
            DeviceState::Opening => reasons.push(format!("device {device} is loading its models")),
            DeviceState::Refused { reason } => {
                reasons.push(format!("device {device} cannot be used: {reason}"));
            }
            DeviceState::Reopening { reason } => reasons.push(format!("device {device} was lost: {reason}")),
        }
    }
    if !is_ready {
        for cell in board.cameras.iter().filter(|cell| !cell.get().0.is_tried()) {
            reasons.push(format!("camera {} is being opened for the first time", cell.name));
        }
        if reasons.is_empty() {
            reasons.push("it is starting".to_owned());
        }
    }
    reasons
}
