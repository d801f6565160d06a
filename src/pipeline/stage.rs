//! The end of the data plane, stage by stage: threads that end together.

use std::sync::Arc;
use std::time::Instant;

use crate::frame::doorbell::Doorbell;
use crate::threads::{ShutdownSource, Thread};

/// Threads that end together.
#[derive(Debug)]
pub(super) struct Stage {
    pub threads: Vec<Thread>,
    pub shutdown: Option<StageShutdown>,
}

/// Begins the end of a stage when it is dropped, and wakes those that wait at a doorbell.
#[derive(Debug)]
pub(super) struct StageShutdown {
    source: Option<ShutdownSource>,
    doorbells: Vec<Arc<Doorbell>>,
}

impl Drop for StageShutdown {
    fn drop(&mut self) {
        drop(self.source.take());
        for doorbell in &self.doorbells {
            doorbell.wake();
        }
    }
}

impl StageShutdown {
    /// Over this source.
    pub(super) fn new(source: ShutdownSource, doorbells: Vec<Arc<Doorbell>>) -> Self {
        Self { source: Some(source), doorbells }
    }
}

impl Stage {
    pub(super) fn end(self, deadline: Instant, abandoned: &mut Vec<String>) {
        drop(self.shutdown);
        for thread in self.threads {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(thread) = thread.join_timeout(left) {
                abandoned.push(thread.name().to_owned());
            }
        }
    }
}
