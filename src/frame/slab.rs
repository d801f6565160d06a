//! A camera's pool of frame memory: made once, leased again and again, counted.
//!
//! A slab that nobody holds any more goes home by itself. When all are out, who can do without asks [`SlabPool::lease`],
//! drops a picture and counts it; a video decoder cannot do without, since a stream breaks where a picture is missing: for
//! it [`SlabPool::lease_or_grow`] makes another slab, up to twice the pool or 32 more. Both are counted as exhaustion, and a
//! pool that runs short is told once, before it comes to that.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::warn;

use crate::memory::Arena;
pub use crate::memory::{MemoryError, SharedSlab, Slab};
use crate::telemetry::CameraTelemetry;

/// A small pool may grow by so many slabs too, more than any stream needs.
const GROWTH: usize = 32;

/// A camera's slabs. Clones are the same pool.
#[derive(Clone)]
pub struct SlabPool {
    arena: Arena,
    /// What the pool grew by: an arena of one slab each time.
    grown: Arc<Mutex<Vec<Arena>>>,
    told: Arc<AtomicBool>,
    telemetry: Arc<CameraTelemetry>,
}

impl SlabPool {
    /// Makes `count` slabs of `len` bytes each, in RAM now, not when the first frame comes.
    ///
    /// # Errors
    /// When the machine has not that much memory left, or cannot give it as it is required.
    pub fn new(len: usize, count: usize, telemetry: Arc<CameraTelemetry>) -> Result<Self, MemoryError> {
        let arena = Arena::new(len, count)?;
        telemetry.pool.made(count, len);
        Ok(Self { arena, grown: Arc::default(), told: Arc::default(), telemetry })
    }

    /// A slab to write a picture into, or `None` when all are out.
    #[must_use]
    pub fn lease(&self) -> Option<Slab> {
        let slab = self.arena.lease();
        self.count(slab.is_some());
        slab
    }

    /// A slab as soon as one is free, or `None` when none came home within `timeout`: for a source that may wait, so that
    /// having none meanwhile is no exhaustion.
    #[must_use]
    pub fn lease_within(&self, timeout: Duration) -> Option<Slab> {
        let slab = self.arena.lease_within(timeout);
        if slab.is_some() {
            self.count(true);
        }
        slab
    }

    /// A slab in any case but one: when all are out, and the pool has already grown as far as it may.
    #[must_use]
    pub fn lease_or_grow(&self) -> Option<Slab> {
        let slab = self.arena.lease();
        self.count(slab.is_some());
        slab.or_else(|| self.grow())
    }

    /// Bytes of each slab.
    #[must_use]
    pub fn slab_len(&self) -> usize {
        self.arena.slab_len()
    }

    /// How many slabs were made at the start.
    #[must_use]
    pub fn slabs(&self) -> usize {
        self.arena.count()
    }

    /// How many slabs are out.
    #[must_use]
    pub fn in_use(&self) -> usize {
        let grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        self.arena.in_use() + grown.iter().map(Arena::in_use).sum::<usize>()
    }

    fn grow(&self) -> Option<Slab> {
        let mut grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slab) = grown.iter().find_map(Arena::lease) {
            return Some(slab);
        }
        if grown.len() >= self.arena.count().max(GROWTH) {
            return None;
        }
        let another = Arena::new(self.arena.slab_len(), 1);
        let refused =
            |error: &MemoryError| warn!(camera = self.telemetry.camera, "its pool cannot grow: {error}");
        let another = another.inspect_err(refused).ok()?;
        let slab = another.lease();
        grown.push(another);
        self.telemetry.pool.grown();
        slab
    }

    fn count(&self, served: bool) {
        let pool = &self.telemetry.pool;
        pool.leased(self.arena.in_use());
        if !served {
            self.telemetry.exhausted.add(1);
        }
        if pool.runs_short() && !self.told.swap(true, Ordering::Relaxed) {
            let (out, slabs) = (pool.high_water(), pool.slabs());
            warn!(
                camera = self.telemetry.camera,
                "its memory runs short: {out} of {slabs} slabs were out at once; are its frames held for too long?"
            );
        }
    }
}

impl fmt::Debug for SlabPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlabPool").field("arena", &self.arena).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(len: usize, count: usize) -> SlabPool {
        SlabPool::new(len, count, Arc::new(CameraTelemetry::new("a"))).unwrap()
    }

    #[test]
    fn leases_are_counted_with_the_most_that_were_out_at_once() {
        let pool = pool(1000, 2);
        let counts = &pool.telemetry.pool;
        let first = pool.lease().unwrap();
        assert_eq!((counts.high_water(), counts.runs_short()), (1, false));
        let second = pool.lease().unwrap();
        assert_eq!((counts.high_water(), counts.runs_short()), (2, true));
        assert_eq!(pool.telemetry.exhausted.get(), 0);
        assert!(pool.lease().is_none(), "all are out");
        assert_eq!((counts.leases.get(), pool.telemetry.exhausted.get(), pool.in_use()), (3, 1, 2));
        drop((first, second));
        assert_eq!((pool.in_use(), counts.high_water()), (0, 2));
    }

    #[test]
    fn who_may_wait_does_not_count_as_exhaustion() {
        let pool = pool(10, 1);
        let only = pool.lease().unwrap();
        assert!(pool.lease_within(Duration::from_millis(1)).is_none());
        drop(only);
        assert!(pool.lease_within(Duration::from_secs(60)).is_some());
        assert_eq!((pool.telemetry.pool.leases.get(), pool.telemetry.exhausted.get()), (2, 0));
    }

    #[test]
    fn who_cannot_do_without_makes_the_pool_grow_so_far_and_no_further() {
        let pool = pool(100, 2);
        let held: Vec<_> = std::iter::from_fn(|| pool.lease_or_grow()).take(100).collect();
        assert_eq!((held.len(), pool.in_use()), (2 + GROWTH, 2 + GROWTH));
        assert!(held.iter().all(|slab| slab.len() == 100));
        let exhausted = pool.telemetry.exhausted.get();
        assert_eq!(exhausted, GROWTH as u64 + 1, "those that it grew for, and one that it did not get");
        assert_eq!(pool.telemetry.pool.slabs(), 2 + GROWTH as u64);
        drop(held);
        let again: Vec<_> = std::iter::from_fn(|| pool.lease_or_grow()).take(100).collect();
        assert_eq!(again.len(), 2 + GROWTH, "what it grew by is used again");
    }
}
