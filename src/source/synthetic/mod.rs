//! Sources that need no GStreamer: patterns, pictures, raw frames.

mod pattern;
mod picture;
mod y4m;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Address, Source, TestPattern};
use crate::frame::slab::{Slab, SlabPool};
use crate::threads::{Heartbeat, Shutdown};

/// How long to wait at most for a slab between two looks at the end.
const POLL: Duration = Duration::from_millis(50);

/// A picture that Gantry makes: a moving square over colour bars, at a live camera's pace.
#[must_use]
pub fn pattern(pattern: TestPattern) -> Box<dyn Source> {
    Box::new(pattern::Pattern::new(pattern))
}

/// Whether [`file()`] reads this file, by its name: `.png`, `.jpg`, `.jpeg`, `.y4m`, in any case.
#[must_use]
pub fn reads(path: &Path) -> bool {
    is_raw(path) || reads_picture(path)
}

/// Whether the file is one picture, by its name: `.png`, `.jpg`, `.jpeg`, in any case.
#[must_use]
pub fn reads_picture(path: &Path) -> bool {
    has_extension(path, &["png", "jpg", "jpeg"])
}

/// A picture (one frame) or raw frames, losslessly.
#[must_use]
pub fn file(path: PathBuf) -> Box<dyn Source> {
    if is_raw(&path) { Box::new(y4m::RawVideo::new(path)) } else { Box::new(picture::Picture::new(path)) }
}

/// What a synthetic camera's memory takes for so many frames in flight, in bytes; none where only opening it tells.
#[must_use]
pub fn slab_bytes(address: &Address, frames_in_flight: usize) -> Option<u64> {
    let Address::Test(pattern) = address else { return None };
    let bytes = pattern::geometry(pattern).len().checked_mul(frames_in_flight + pattern::SPARE)?;
    u64::try_from(bytes).ok()
}

/// A slab, as soon as one is free; none when the daemon is ending.
fn lease(pool: &SlabPool, shutdown: &Shutdown, heartbeat: &Heartbeat) -> Option<Slab> {
    loop {
        heartbeat.beat();
        if shutdown.begun() {
            return None;
        }
        if let Some(slab) = pool.lease_within(POLL) {
            return Some(slab);
        }
    }
}

fn is_raw(path: &Path) -> bool {
    has_extension(path, &["y4m"])
}

fn has_extension(path: &Path, wanted: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| wanted.iter().any(|wanted| extension.eq_ignore_ascii_case(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_and_raw_frames_are_known_by_their_names() {
        for name in ["a.png", "/data/b.JPG", "c.x.jpeg", "d.Y4M"] {
            assert!(reads(Path::new(name)), "{name}");
        }
        for name in ["a.mp4", "png", ".png", "a.png.mp4", "a.gif"] {
            assert!(!reads(Path::new(name)), "{name}");
        }
    }
}
