//! Frame memory that is made once and used again.
//!
//! A [`SlabPool`] holds a fixed number of equal, 64-byte aligned slabs. A lease that is dropped goes home by itself. When
//! all are out, [`SlabPool::lease`] answers `None`: the caller drops a frame and counts it; the pool never grows.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

/// Alignment of each slab, in bytes: a cache line, and enough for AVX-512.
pub const ALIGNMENT: usize = 64;

/// A fixed number of equal slabs.
#[derive(Clone, Debug)]
pub struct SlabPool {
    free: Receiver<Block>,
    home: Sender<Block>,
    out: Arc<AtomicUsize>,
    len: usize,
}

impl SlabPool {
    /// Makes `count` slabs of `len` bytes each. Every page is touched now, not when the first frame comes.
    #[must_use]
    pub fn new(len: usize, count: usize) -> Self {
        let (home, free) = bounded(count);
        for _ in 0..count {
            home.try_send(Block::new(len)).expect("the channel holds as many as there are slabs");
        }
        Self { free, home, out: Arc::default(), len }
    }

    /// A slab to write a picture into, or `None` when all are out.
    #[must_use]
    pub fn lease(&self) -> Option<Slab> {
        self.free.try_recv().ok().map(|block| self.lend(block))
    }

    /// A slab as soon as one is free, or `None` when none came home within `timeout`: for a source that may wait.
    #[must_use]
    pub fn lease_within(&self, timeout: Duration) -> Option<Slab> {
        self.free.recv_timeout(timeout).ok().map(|block| self.lend(block))
    }

    /// Bytes of each slab.
    #[must_use]
    pub fn slab_len(&self) -> usize {
        self.len
    }

    /// How many slabs are out.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.out.load(Ordering::Relaxed)
    }

    fn lend(&self, block: Block) -> Slab {
        self.out.fetch_add(1, Ordering::Relaxed);
        Slab { block: Some(block), home: self.home.clone(), out: Arc::clone(&self.out) }
    }
}

/// One slab on loan; it goes home when it is dropped.
pub struct Slab {
    block: Option<Block>,
    home: Sender<Block>,
    out: Arc<AtomicUsize>,
}

impl Deref for Slab {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.block.as_ref().expect("a slab has its block until it is dropped").bytes()
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.block.as_mut().expect("a slab has its block until it is dropped").bytes_mut()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.out.fetch_sub(1, Ordering::Relaxed);
            // When the pool itself is gone, so is the need for the slab.
            drop(self.home.try_send(block));
        }
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({} bytes)", self.len())
    }
}

struct Block {
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Block {
    fn new(len: usize) -> Self {
        // A fill, not `vec![0; n]`, which would leave the pages untouched until the first frame.
        let mut memory = Vec::with_capacity(len + ALIGNMENT);
        memory.resize(len + ALIGNMENT, 0x5a);
        let memory = memory.into_boxed_slice();
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_aligned_and_come_home_when_dropped() {
        let pool = SlabPool::new(1000, 2);
        let (first, second) = (pool.lease().unwrap(), pool.lease().unwrap());
        assert_eq!(first.as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(second.len(), 1000);
        assert!(pool.lease().is_none(), "all are out");
        assert_eq!(pool.in_use(), 2);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.lease().unwrap().as_ptr(), address, "the same memory again");
    }

    #[test]
    fn who_may_wait_gets_a_slab_when_one_comes_home() {
        let pool = SlabPool::new(10, 1);
        let only = pool.lease().unwrap();
        assert!(pool.lease_within(Duration::from_millis(1)).is_none());
        drop(only);
        assert!(pool.lease_within(Duration::from_secs(60)).is_some());
    }

    #[test]
    fn a_slab_may_outlive_its_pool() {
        let pool = SlabPool::new(10, 1);
        let mut slab = pool.lease().unwrap();
        drop(pool);
        slab[9] = 1;
        assert_eq!(slab[9], 1);
    }
}
