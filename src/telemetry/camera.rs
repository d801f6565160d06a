//! What is counted of a camera.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::warning::PoolLook;
use super::{CopyReason, Counter, PoolSnapshot, PoolTelemetry};

/// Counts of one camera.
#[derive(Debug)]
pub struct CameraTelemetry {
    /// The camera's id.
    pub camera: String,
    /// Encoded pictures that entered the video decoder.
    pub encoded: Counter,
    /// Encoded pictures that nobody wants and that were therefore not decoded.
    pub skipped: Counter,
    /// Decoded frames that reached us.
    pub frames: Counter,
    /// Frames whose memory made no sense and were thrown away.
    pub unusable: Counter,
    /// Times that all memory of the camera's pool was in use: a picture was not made, or the pool grew for it.
    pub exhausted: Counter,
    /// The memory that its frames are in.
    pub pool: PoolTelemetry,
    /// Connections that delivered at least one frame.
    pub connects: Counter,
    /// Attempts that failed, and connections that broke.
    pub failures: Counter,
    /// The camera's state in one word, for people.
    state: Mutex<String>,
}

/// See [`CameraTelemetry`].
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in CameraTelemetry")]
pub struct CameraSnapshot {
    pub camera: String,
    pub state: String,
    pub encoded: u64,
    pub skipped: u64,
    pub frames: u64,
    pub converted: u64,
    pub unusable: u64,
    pub exhausted: u64,
    pub pool: PoolSnapshot,
    pub connects: u64,
    pub failures: u64,
}

impl CameraTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(camera: &str) -> Self {
        Self {
            camera: camera.to_owned(),
            encoded: Counter::default(),
            skipped: Counter::default(),
            frames: Counter::default(),
            unusable: Counter::default(),
            exhausted: Counter::default(),
            pool: PoolTelemetry::default(),
            connects: Counter::default(),
            failures: Counter::default(),
            state: Mutex::new("connecting".to_owned()),
        }
    }

    /// Notes the camera's state.
    pub fn set_state(&self, state: &str) {
        state.clone_into(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The state noted last.
    #[must_use]
    pub fn state(&self) -> String {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn pool_look(&self) -> PoolLook<'_> {
        PoolLook {
            camera: &self.camera,
            exhausted: self.exhausted.get(),
            high_water: self.pool.high_water(),
            slabs: self.pool.slabs(),
            runs_short: self.pool.runs_short(),
        }
    }

    pub(super) fn snapshot(&self) -> CameraSnapshot {
        CameraSnapshot {
            camera: self.camera.clone(),
            state: self.state(),
            encoded: self.encoded.get(),
            skipped: self.skipped.get(),
            frames: self.frames.get(),
            converted: self.pool.copies(CopyReason::Format),
            unusable: self.unusable.get(),
            exhausted: self.exhausted.get(),
            pool: self.pool.snapshot(self.exhausted.get()),
            connects: self.connects.get(),
            failures: self.failures.get(),
        }
    }
}
