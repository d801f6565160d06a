//! What there is to see, as the threads around a camera share it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::{Encoded, PictureConfig, PictureWatch, Sight};
use crate::frame::Frame;
use crate::source::thinning::Picture;

/// The newest sight of a camera: its streaming thread sets it, anyone reads it.
#[derive(Debug)]
pub struct NewestSight {
    /// Locked by the streaming thread for each picture, and once by whoever opens the camera anew. None where pictures are not
    /// watched.
    watch: Option<Mutex<PictureWatch>>,
    /// How the picture that is delivered next came to the video decoder: its bytes times 4, plus 2, plus 1 if it is a key
    /// frame; 0 if nothing is known.
    encoded: AtomicU64,
    sight: AtomicU8,
}

impl NewestSight {
    /// Watches a camera's pictures like this, or not at all.
    #[must_use]
    pub fn new(config: Option<&PictureConfig>) -> Self {
        Self {
            watch: config.map(|config| Mutex::new(PictureWatch::new(config))),
            encoded: AtomicU64::new(0),
            sight: AtomicU8::new(Sight::Good as u8),
        }
    }

    /// What there is to see.
    #[must_use]
    pub fn get(&self) -> Sight {
        Sight::ALL[usize::from(self.sight.load(Ordering::Relaxed))]
    }

    /// How the picture that is seen next came to the video decoder.
    pub fn set_encoded(&self, encoded: Option<Encoded>) {
        let value = encoded
            .map_or(0, |Encoded { bytes, kind }| u64::from(bytes) << 2 | 2 | u64::from(kind == Picture::Key));
        self.encoded.store(value, Ordering::Relaxed);
    }

    /// The newest picture is this one.
    pub fn see(&self, now: Instant, frame: &Frame) {
        let Some(watch) = &self.watch else { return };
        let sight = watch.lock().unwrap_or_else(PoisonError::into_inner).see(now, frame, self.encoded());
        self.sight.store(sight as u8, Ordering::Relaxed);
    }

    /// Another connection begins.
    pub fn restart(&self) {
        if let Some(watch) = &self.watch {
            watch.lock().unwrap_or_else(PoisonError::into_inner).restart();
        }
        self.set_encoded(None);
        self.sight.store(Sight::Good as u8, Ordering::Relaxed);
    }

    fn encoded(&self) -> Option<Encoded> {
        let value = self.encoded.load(Ordering::Relaxed);
        let kind = if value & 1 == 1 { Picture::Key } else { Picture::Delta };
        (value != 0).then(|| Encoded { bytes: u32::try_from(value >> 2).unwrap_or(u32::MAX), kind })
    }
}
