//! What is counted of a device, and of a model on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::Counter;

/// Counts of one device.
#[derive(Debug)]
pub struct DeviceTelemetry {
    /// The device's id.
    pub device: String,
    /// Batches that ran.
    pub batches: Counter,
    /// Frames in them.
    pub frames: Counter,
    /// Batches that failed.
    pub errors: Counter,
    /// Thousandths of what it can do that its realtime cameras ask for; above 1000 it is overcommitted.
    realtime_permille: AtomicU64,
    /// One for each model that it runs.
    pub models: Vec<Arc<BatchTelemetry>>,
}

/// How large the batches are that a device runs of one model.
#[derive(Debug)]
pub struct BatchTelemetry {
    /// The model's name.
    pub model: String,
    /// At its index: batches with so many frames; at the last one also those with more.
    sizes: Vec<Counter>,
}

/// See [`DeviceTelemetry`].
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in DeviceTelemetry")]
pub struct DeviceSnapshot {
    pub device: String,
    pub batches: u64,
    pub frames: u64,
    pub errors: u64,
    pub realtime_load: f64,
    pub models: Vec<BatchSnapshot>,
}

/// See [`BatchTelemetry`].
#[derive(Clone, Debug, Serialize)]
pub struct BatchSnapshot {
    /// The model's name.
    pub model: String,
    /// The sizes that occurred, smallest first.
    pub batch_sizes: Vec<BatchSize>,
}

/// Batches of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BatchSize {
    /// Frames in each.
    pub size: u64,
    /// How many there were.
    pub batches: u64,
}

impl DeviceTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(device: &str, models: Vec<Arc<BatchTelemetry>>) -> Self {
        Self {
            device: device.to_owned(),
            batches: Counter::default(),
            frames: Counter::default(),
            errors: Counter::default(),
            realtime_permille: AtomicU64::new(0),
            models,
        }
    }

    /// Notes what part of what it can do its realtime cameras ask for.
    pub fn set_realtime_load(&self, share: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates"
        )]
        self.realtime_permille.store((share * 1e3).round() as u64, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> DeviceSnapshot {
        DeviceSnapshot {
            device: self.device.clone(),
            batches: self.batches.get(),
            frames: self.frames.get(),
            errors: self.errors.get(),
            #[expect(clippy::cast_precision_loss, reason = "few digits are shown")]
            realtime_load: self.realtime_permille.load(Ordering::Relaxed) as f64 / 1e3,
            models: self.models.iter().map(|model| model.snapshot()).collect(),
        }
    }
}

impl BatchTelemetry {
    /// All zero, for batches of at most `size_max` frames.
    #[must_use]
    pub fn new(model: &str, size_max: usize) -> Self {
        Self { model: model.to_owned(), sizes: (0..=size_max).map(|_| Counter::default()).collect() }
    }

    /// Notes a batch that ran.
    pub fn ran(&self, frames: usize) {
        self.sizes[frames.min(self.sizes.len() - 1)].add(1);
    }

    fn snapshot(&self) -> BatchSnapshot {
        let sizes = (0..).zip(&self.sizes).map(|(size, count)| BatchSize { size, batches: count.get() });
        BatchSnapshot {
            model: self.model.clone(),
            batch_sizes: sizes.filter(|size| size.batches > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_their_size_and_model() {
        let model = Arc::new(BatchTelemetry::new("line-parts", 8));
        let device = DeviceTelemetry::new("cpu0", vec![Arc::clone(&model)]);
        [1, 8, 8, 3, 9].into_iter().for_each(|frames| model.ran(frames));
        let seen = device.snapshot().models.remove(0);
        assert_eq!(seen.model, "line-parts");
        let sizes: Vec<_> = seen.batch_sizes.iter().map(|size| (size.size, size.batches)).collect();
        assert_eq!(sizes, [(1, 1), (3, 1), (8, 3)]);
    }
}
