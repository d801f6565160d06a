//! The newest state of everything, for the supervisor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::frame::mailbox::Waker;
use crate::publish::SinkEnd;
use crate::source::state::CameraState;
use crate::worker::DeviceState;

/// The newest state of everything that the supervisor watches. Writers never block and never lose the newest state.
#[derive(Debug)]
pub struct Board {
    /// Each camera's state, in the order of the config.
    pub cameras: Vec<Cell<CameraState>>,
    /// Each used device's state.
    pub devices: Vec<Cell<DeviceState>>,
    /// How each sink ended, once it has.
    pub sinks: Vec<Cell<Option<SinkEnd>>>,
    /// Names of threads that panicked, and their messages.
    pub panics: Cell<Vec<(String, String)>>,
    pub(super) waker: Waker,
}

/// One thing's newest state.
#[derive(Debug)]
pub struct Cell<T> {
    /// What it belongs to.
    pub name: String,
    value: Mutex<(T, Instant)>,
    changed: AtomicBool,
}

impl<T: Clone> Cell<T> {
    pub(super) fn new(name: &str, value: T) -> Self {
        Self {
            name: name.to_owned(),
            value: Mutex::new((value, Instant::now())),
            changed: AtomicBool::new(true),
        }
    }

    /// The newest state and since when it is so.
    #[must_use]
    pub fn get(&self) -> (T, Instant) {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest state, if it was set since the last call.
    #[must_use]
    pub fn take_change(&self) -> Option<(T, Instant)> {
        self.changed.swap(false, Ordering::AcqRel).then(|| self.get())
    }

    pub(super) fn set(&self, new: T) {
        self.update(|value| *value = (new, Instant::now()));
    }

    pub(super) fn update(&self, update: impl FnOnce(&mut (T, Instant))) {
        update(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.store(true, Ordering::Release);
    }
}
