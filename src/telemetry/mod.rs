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
mod words;

use std::sync::Arc;
use std::time::Instant;

pub use camera::{CameraSnapshot, CameraTelemetry};
pub use counter::Counter;
pub use device::{BatchSize, BatchSnapshot, BatchTelemetry, DeviceSnapshot, DeviceTelemetry};
pub use histogram::Quantiles;
pub use log::init_logging;
pub use pool::{CopyReason, PoolSnapshot, PoolTelemetry};
pub use process::resident_bytes;
pub use realtime::RealtimeSnapshot;
pub use route::{DropReason, RouteQuantiles, RouteReadings, RouteSnapshot, RouteTelemetry, Stages};
use serde::Serialize;
pub use sink::{SinkQuantiles, SinkSnapshot, SinkTelemetry};
pub use words::{error_chain, is_tried_again, printable};

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
}

impl Telemetry {
    /// Lets time pass for what is told of the last minute. Call it at least every [`histogram::SLOT`].
    pub fn turn(&self, now: Instant) {
        self.routes.iter().for_each(|route| route.turn(now));
        self.sinks.iter().for_each(|sink| sink.turn(now));
    }

    /// All counters at the moment `now`.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot {
            cameras: self.cameras.iter().map(|camera| camera.snapshot()).collect(),
            routes: self.routes.iter().map(|route| route.snapshot(now)).collect(),
            devices: self.devices.iter().map(|device| device.snapshot()).collect(),
            sinks: self.sinks.iter().map(|sink| sink.snapshot(now)).collect(),
            memory_resident_bytes: resident_bytes(),
            realtime: RealtimeSnapshot::take(),
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
}
