//! Logs and counts: the log's set-up, every counter there is, and their names.
//!
//! Counters and histograms are atomics that the frame path adds to: no lock, no allocation, no system call. Everything
//! else (quantiles, the last minute, what the kernel knows of the process) is made by whoever reads, on its own time.
//! [`Telemetry::snapshot`] is the one picture of all of it: the `health` message, the dump at USR1 and the summary at the
//! end are made from it.

mod camera;
mod counter;
mod device;
pub mod histogram;
mod log;
mod pool;
pub mod process;
mod realtime;
mod route;
mod sink;
mod stream;
pub mod warning;
mod words;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub use camera::{CameraSnapshot, CameraTelemetry, FailureCause, SkipReason};
pub use counter::Counter;
pub use device::{BatchSize, BatchSnapshot, BatchTelemetry, DeviceSnapshot, DeviceTelemetry};
pub use histogram::Quantiles;
pub use log::init_logging;
pub use pool::{CopyReason, PoolSnapshot, PoolTelemetry};
pub use process::resident_bytes;
use process::{Available, KindUsage, Memory, ThreadReader};
pub use realtime::RealtimeSnapshot;
pub use route::{
    DropReason, RouteCounts, RouteQuantiles, RouteReadings, RouteSnapshot, RouteTelemetry, Stages,
};
use serde::Serialize;
pub use sink::{SinkQuantiles, SinkSnapshot, SinkTelemetry};
pub use stream::{StreamSnapshot, StreamTelemetry};
pub use warning::Warning;
use warning::{Look, Warnings};
pub use words::{error_chain, is_tried_again, printable};

use crate::memory;

/// All counters of a running daemon.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// One for each camera.
    pub cameras: Vec<Arc<CameraTelemetry>>,
    /// One for each camera and model.
    pub routes: Vec<Arc<RouteTelemetry>>,
    /// One for each device.
    pub devices: Vec<Arc<DeviceTelemetry>>,
    /// One for each sink.
    pub sinks: Vec<Arc<SinkTelemetry>>,
    /// What whoever reads remembers.
    pub watch: Watch,
}

/// What whoever reads counters remembers between two looks. The frame path knows nothing of it.
#[derive(Debug, Default)]
pub struct Watch(Mutex<(ThreadReader, Warnings)>);

impl Telemetry {
    /// Lets time pass for what is told of the last minute, and looks for what is going wrong: gives each warning that was
    /// not there before, with its cure. Call it every [`histogram::SLOT`].
    #[must_use]
    pub fn turn(&self, now: Instant) -> Vec<String> {
        self.routes.iter().for_each(|route| route.turn(now));
        self.sinks.iter().for_each(|sink| sink.turn(now));
        let look = Look {
            now,
            resident_bytes: resident_bytes(),
            available: process::available(),
            pools: self.cameras.iter().map(|camera| camera.pool_look()).collect(),
        };
        let mut watch = self.watch.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (threads, warnings) = &mut *watch;
        threads.read();
        warnings.look(&look)
    }

    /// All counters at the moment `now`.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let memory = process::memory();
        let mut watch = self.watch.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (threads, warnings) = &mut *watch;
        let threads =
            threads.read().iter().map(|(&kind, threads)| ThreadsSnapshot::new(kind, threads)).collect();
        Snapshot {
            cameras: self.cameras.iter().map(|camera| camera.snapshot(now)).collect(),
            routes: self.routes.iter().map(|route| route.snapshot(now)).collect(),
            devices: self.devices.iter().map(|device| device.snapshot()).collect(),
            sinks: self.sinks.iter().map(|sink| sink.snapshot(now)).collect(),
            memory_resident_bytes: memory.resident_bytes,
            realtime: RealtimeSnapshot::take(),
            memory: memory::account(),
            process: ProcessSnapshot { memory, machine: process::available(), threads },
            warnings: warnings.holding(),
        }
    }
}

/// All counters at one moment. Field names are part of the `health` message.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Cameras in the order of the config.
    pub cameras: Vec<CameraSnapshot>,
    /// Each camera's models in the order of the config.
    pub routes: Vec<RouteSnapshot>,
    /// Devices in the order of the config.
    pub devices: Vec<DeviceSnapshot>,
    /// Sinks.
    pub sinks: Vec<SinkSnapshot>,
    /// Memory of the process that is in RAM.
    pub memory_resident_bytes: u64,
    /// What the kernel has granted of `realtime`.
    pub realtime: RealtimeSnapshot,
    /// What was made beforehand for frames and batches.
    pub memory: memory::Account,
    /// What the kernel knows of the process.
    pub process: ProcessSnapshot,
    /// What is going wrong.
    pub warnings: Vec<Warning>,
}

/// What the kernel knows of the process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSnapshot {
    /// Its memory.
    #[serde(flatten)]
    pub memory: Memory,
    /// Memory that can still be had.
    pub machine: Option<Available>,
    /// Its threads, by kind.
    pub threads: Vec<ThreadsSnapshot>,
}

/// The threads of one kind: how many live, and what they and those before them have used.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented in process::Usage")]
pub struct ThreadsSnapshot {
    pub kind: &'static str,
    pub alive: u64,
    pub cpu_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl ThreadsSnapshot {
    fn new(kind: &'static str, threads: &KindUsage) -> Self {
        let KindUsage { alive, usage } = *threads;
        Self {
            kind,
            alive,
            cpu_s: usage.cpu.as_secs_f64(),
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
        }
    }
}
