//! What a camera's stream says of itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// What the newest connection's stream says of itself. The frame path only stores a number here.
#[derive(Debug, Default)]
pub struct StreamTelemetry {
    told: Mutex<StreamSnapshot>,
    /// Microseconds between its newest two key frames; 0 before the second.
    key_interval: AtomicU64,
}

/// See [`StreamTelemetry`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamSnapshot {
    /// The tracks that an RTSP camera offers, in its order: `video H264`, `audio PCMA`.
    pub tracks: Vec<String>,
    /// The video's codec, with profile and level where it has those.
    pub codec: Option<String>,
    /// Width in pixels, as announced.
    pub width: Option<u32>,
    /// Height in pixels, as announced.
    pub height: Option<u32>,
    /// Frames a second, as announced.
    pub rate: Option<f64>,
    /// Seconds between its newest two key frames.
    pub key_frame_interval_s: Option<f64>,
}

impl StreamTelemetry {
    /// A connection is being made, of which nothing is known.
    pub fn begin(&self) {
        self.update(|told| *told = StreamSnapshot::default());
        self.key_interval.store(0, Ordering::Relaxed);
    }

    /// Something new is known. Not for the frame path.
    pub fn update(&self, update: impl FnOnce(&mut StreamSnapshot)) {
        update(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A key frame came so long after the one before.
    pub fn key_frame(&self, interval: Duration) {
        self.key_interval.store(u64::try_from(interval.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// All that is known now.
    #[must_use]
    pub fn snapshot(&self) -> StreamSnapshot {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let interval = self.key_interval.load(Ordering::Relaxed);
        let interval = (interval > 0).then(|| Duration::from_micros(interval).as_secs_f64());
        StreamSnapshot { key_frame_interval_s: interval, ..told }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_knows_nothing_of_the_one_before() {
        let stream = StreamTelemetry::default();
        stream.update(|told| told.codec = Some("H.264".to_owned()));
        stream.key_frame(Duration::from_millis(1500));
        let known = stream.snapshot();
        assert_eq!((known.codec.as_deref(), known.key_frame_interval_s), (Some("H.264"), Some(1.5)));
        stream.begin();
        assert_eq!(stream.snapshot(), StreamSnapshot::default());
    }
}
