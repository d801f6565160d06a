//! A region cut into equal slabs that are lent again and again, without an allocation.
//!
//! A [`Slab`] has one owner, who writes. Shared, it is only read, by as many as hold it, and goes home when the last of
//! them lets go: a frame and a video decoder that still looks back at the picture hold the same slab.
#![expect(unsafe_code, reason = "the slabs of a region, each with its own count of holders")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{ALIGNMENT, MemoryError, Region};

/// A fixed number of equal slabs. Clones are the same arena; it lives until the last slab is home.
#[derive(Clone)]
pub struct Arena {
    ground: Arc<Ground>,
    free: Receiver<usize>,
}

struct Ground {
    region: Region,
    /// Bytes of a slab.
    len: usize,
    /// Bytes from one slab to the next.
    pitch: usize,
    /// How many hold each slab; 0 for one that is home.
    holders: Box<[AtomicUsize]>,
    /// Where the numbers of slabs go that nobody holds. It has room for all.
    home: Sender<usize>,
}

impl Arena {
    /// `count` slabs of `len` bytes, each aligned to [`ALIGNMENT`], by the process's policy.
    ///
    /// # Errors
    /// When the machine has not that much left, or cannot give what the policy requires.
    pub fn new(len: usize, count: usize) -> Result<Self, MemoryError> {
        let pitch = len.max(1).checked_next_multiple_of(ALIGNMENT);
        let whole = pitch.and_then(|pitch| pitch.checked_mul(count)).unwrap_or(usize::MAX);
        let region = Region::new(whole)?;
        let pitch = pitch.expect("no machine has a region of all the memory that can be addressed");
        let (home, free) = bounded(count);
        for number in 0..count {
            home.try_send(number).expect("the channel has room for every slab");
        }
        let holders = (0..count).map(|_| AtomicUsize::new(0)).collect();
        Ok(Self { ground: Arc::new(Ground { region, len, pitch, holders, home }), free })
    }

    /// A slab to write into, or `None` when all are out.
    #[must_use]
    pub fn lease(&self) -> Option<Slab> {
        self.free.try_recv().ok().map(|number| self.lend(number))
    }

    /// A slab as soon as one is free, or `None` when none came home within `timeout`.
    #[must_use]
    pub fn lease_within(&self, timeout: Duration) -> Option<Slab> {
        self.free.recv_timeout(timeout).ok().map(|number| self.lend(number))
    }

    /// Bytes of a slab.
    #[must_use]
    pub fn slab_len(&self) -> usize {
        self.ground.len
    }

    /// How many slabs there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ground.holders.len()
    }

    /// How many slabs are out.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.count() - self.free.len()
    }

    fn lend(&self, number: usize) -> Slab {
        self.ground.holders[number].store(1, Ordering::Relaxed);
        Slab(SharedSlab { ground: Arc::clone(&self.ground), number })
    }
}

/// One slab and its only holder, who may write.
pub struct Slab(SharedSlab);

impl Slab {
    /// From here on it is only read, by this holder and its clones.
    #[must_use]
    pub fn share(self) -> SharedSlab {
        self.0
    }
}

impl Deref for Slab {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.0.start(), self.0.ground.len);
        // SAFETY: the slab's bytes are within the region, which the slab keeps alive; they were initialised by the system.
        // There is no other holder, since a `Slab` is no clone and has none, and this one is borrowed alone.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }
}

/// A slab that is only read; a clone is another holder of the same.
pub struct SharedSlab {
    ground: Arc<Ground>,
    number: usize,
}

impl SharedSlab {
    /// Whether nobody else holds it. Nobody else can begin to, as long as this holder does not let them.
    #[must_use]
    pub fn is_only_holder(&self) -> bool {
        self.holders().load(Ordering::Acquire) == 1
    }

    /// The first byte, for who lends the slab to a foreign library.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        let ground = &self.ground;
        // SAFETY: `number` is below the count of slabs, and the region has room for that many of `pitch` bytes.
        unsafe { ground.region.start().add(self.number * ground.pitch) }
    }

    fn holders(&self) -> &AtomicUsize {
        &self.ground.holders[self.number]
    }
}

impl Deref for SharedSlab {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slab's bytes are within the region, which the slab keeps alive; they were initialised by the system.
        // While it is shared nobody writes: who lends it to a foreign library answers for that library.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.ground.len) }
    }
}

impl Clone for SharedSlab {
    fn clone(&self) -> Self {
        // Relaxed, as in `Arc`: this holder keeps it from going home meanwhile.
        self.holders().fetch_add(1, Ordering::Relaxed);
        Self { ground: Arc::clone(&self.ground), number: self.number }
    }
}

impl Drop for SharedSlab {
    fn drop(&mut self) {
        if self.holders().fetch_sub(1, Ordering::Release) == 1 {
            // What the others read happens before the next owner writes.
            fence(Ordering::Acquire);
            // When the arena itself is gone, nobody listens, and nobody needs the slab.
            self.ground.home.try_send(self.number).ok();
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} of {} slabs of {} bytes out)", self.in_use(), self.count(), self.slab_len())
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({} bytes)", self.len())
    }
}

impl fmt::Debug for SharedSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSlab({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::account;

    #[test]
    fn slabs_are_aligned_apart_and_come_home_when_dropped() {
        let arena = Arena::new(1000, 2).unwrap();
        let (mut first, mut second) = (arena.lease().unwrap(), arena.lease().unwrap());
        assert!(arena.lease().is_none(), "all are out");
        assert_eq!((arena.in_use(), arena.count(), first.len()), (2, 2, 1000));
        first.fill(1);
        second.fill(2);
        assert!(first.iter().all(|byte| *byte == 1) && second.iter().all(|byte| *byte == 2));
        assert_eq!(first.as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(second.as_ptr().align_offset(ALIGNMENT), 0);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(arena.lease().unwrap().as_ptr(), address, "the same memory again");
    }

    #[test]
    fn a_shared_slab_goes_home_with_its_last_holder() {
        let arena = Arena::new(10, 1).unwrap();
        let first = arena.lease().unwrap().share();
        assert!(first.is_only_holder());
        let second = first.clone();
        assert!(!first.is_only_holder());
        assert_eq!(first.as_ptr(), second.as_ptr());
        drop(first);
        assert!(second.is_only_holder());
        assert!(arena.lease().is_none());
        drop(second);
        assert!(arena.lease().is_some());
    }

    #[test]
    fn a_slab_may_outlive_its_arena_whose_memory_goes_with_it() {
        let arena = Arena::new(100, 3).unwrap();
        let mut slab = arena.lease().unwrap();
        drop(arena);
        slab[99] = 7;
        let shared = slab.share();
        assert_eq!(shared[99], 7);
        assert!(account().mapped_bytes > 0);
    }

    #[test]
    fn who_may_wait_gets_a_slab_when_one_comes_home() {
        let arena = Arena::new(10, 1).unwrap();
        let only = arena.lease().unwrap();
        assert!(arena.lease_within(Duration::from_millis(1)).is_none());
        drop(only);
        assert!(arena.lease_within(Duration::from_secs(60)).is_some());
    }

    #[test]
    fn sizes_beyond_all_memory_are_refused_and_none_at_all_is_fine() {
        for (len, count) in [(usize::MAX, 1), (1 << 40, 1 << 20), (usize::MAX / 2, 3), (usize::MAX - 1, 2)] {
            assert!(Arena::new(len, count).is_err(), "{len} {count}");
        }
        assert!(Arena::new(0, 4).unwrap().lease().unwrap().is_empty());
        assert!(Arena::new(4, 0).unwrap().lease().is_none());
    }

    proptest! {
        #[test]
        fn no_slab_is_lent_twice_or_lost(steps in proptest::collection::vec((0_u8..4, any::<prop::sample::Index>()), 0..200)) {
            let arena = Arena::new(64, 4).unwrap();
            let mut held: Vec<(u8, SharedSlab)> = Vec::new();
            let mut next = 0_u8;
            for (step, pick) in steps {
                match step {
                    0 | 1 => if let Some(mut slab) = arena.lease() {
                        next = next.wrapping_add(1);
                        slab.fill(next);
                        held.push((next, slab.share()));
                    },
                    2 if !held.is_empty() => held.push(held[pick.index(held.len())].clone()),
                    3 if !held.is_empty() => drop(held.swap_remove(pick.index(held.len()))),
                    _ => {}
                }
                prop_assert!(held.iter().all(|(mark, slab)| slab.iter().all(|byte| byte == mark)));
                let mut marks: Vec<_> = held.iter().map(|(mark, _)| *mark).collect();
                marks.sort_unstable();
                marks.dedup();
                prop_assert_eq!(arena.in_use(), marks.len());
            }
        }
    }
}
