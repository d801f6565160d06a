//! Who holds a frame, without an allocation for each.
//!
//! A [`FrameRef`] is what a mailbox, a batch and a result hold of a frame. When the last one lets go, the frame's memory goes
//! home at once, and the frame's shell to the [`FramePool`] of its camera, to be filled with the next one.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Once};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Frame;

/// A frame, held by one of those who use it.
#[derive(Clone)]
pub struct FrameRef {
    /// There until it is dropped.
    shell: Option<Arc<Frame>>,
    home: Option<Sender<Arc<Frame>>>,
}

/// The shells of a camera's frames. It holds as many as frames are under way at once; more are made, and not kept. All are
/// made with the first frame, so that none is when a busy moment first has that many under way.
#[derive(Debug)]
pub struct FramePool {
    free: Receiver<Arc<Frame>>,
    home: Sender<Arc<Frame>>,
    made: Once,
}

impl FramePool {
    /// A pool that keeps `capacity` shells.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (home, free) = bounded(capacity);
        Self { free, home, made: Once::new() }
    }

    /// Puts a frame into a shell.
    #[must_use]
    pub fn fill(&self, frame: Frame) -> FrameRef {
        self.made.call_once(|| while self.home.try_send(Arc::new(frame.vacant())).is_ok() {});
        let shell = match self.free.try_recv() {
            Ok(mut shell) => {
                *Arc::get_mut(&mut shell).expect("a shell goes home when nobody else holds it") = frame;
                shell
            }
            Err(_) => Arc::new(frame),
        };
        FrameRef { shell: Some(shell), home: Some(self.home.clone()) }
    }
}

impl From<Frame> for FrameRef {
    /// A frame of no pool, for who has only a few.
    fn from(frame: Frame) -> Self {
        Self { shell: Some(Arc::new(frame)), home: None }
    }
}

impl Deref for FrameRef {
    type Target = Frame;
    fn deref(&self) -> &Frame {
        self.shell.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for FrameRef {
    fn drop(&mut self) {
        let (Some(mut shell), Some(home)) = (self.shell.take(), &self.home) else { return };
        // Where two let go at the same moment, neither may see itself as the last. The shell is freed then like any other
        // value, which costs one allocation later.
        if let Some(frame) = Arc::get_mut(&mut shell) {
            frame.vacate();
            // A pool that is full, or gone, has no need for it.
            home.try_send(shell).ok();
        }
    }
}

impl fmt::Debug for FrameRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shell, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::grey;
    use crate::frame::{LentMemory, Memory};
    use crate::memory::allocations::during;

    struct Watched(Arc<[u8; 1]>);

    impl AsRef<[u8]> for Watched {
        fn as_ref(&self) -> &[u8] {
            &*self.0
        }
    }

    fn frame(id: u64, memory: &Arc<[u8; 1]>) -> Frame {
        grey(id, Memory::Lent(LentMemory::new(Watched(Arc::clone(memory)))))
    }

    #[test]
    fn the_memory_goes_home_with_the_last_holder_and_the_shell_is_used_again() {
        let (pool, memory) = (FramePool::new(1), Arc::new([7]));
        let first = pool.fill(frame(1, &memory));
        let shell = std::ptr::from_ref::<Frame>(&first);
        let second = first.clone();
        drop(first);
        assert_eq!((Arc::strong_count(&memory), second.plane(0)[0]), (2, 7));
        drop(second);
        assert_eq!(Arc::strong_count(&memory), 1, "the shell that waits has no memory");
        let next = pool.fill(frame(2, &memory));
        assert!(std::ptr::eq(shell, std::ptr::from_ref::<Frame>(&next)));
        assert_eq!((next.id, next.plane(0)[0]), (2, 7));
    }

    #[test]
    fn after_the_first_frame_none_that_the_pool_has_room_for_is_allocated() {
        let (pool, memory) = (FramePool::new(3), Arc::new([7]));
        drop(pool.fill(frame(1, &memory)));
        let frames = [2, 3, 4].map(|id| frame(id, &memory));
        let (held, allocated) = during(|| frames.map(|frame| pool.fill(frame)));
        assert_eq!((held.map(|frame| frame.id), allocated), ([2, 3, 4], 0));
    }

    #[test]
    fn more_frames_than_the_pool_keeps_are_frames_like_any_other() {
        let (pool, memory) = (FramePool::new(1), Arc::new([7]));
        let held: Vec<_> = (0..3).map(|id| pool.fill(frame(id, &memory))).collect();
        assert_eq!(held.iter().map(|frame| frame.id).collect::<Vec<_>>(), [0, 1, 2]);
        drop(held);
        assert_eq!(Arc::strong_count(&memory), 1);
        let outlives = pool.fill(frame(9, &memory));
        drop(pool);
        assert_eq!(outlives.id, 9);
        drop(outlives);
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn holders_on_many_threads_neither_lose_nor_mix_frames() {
        let (pool, memory) = (FramePool::new(4), Arc::new([7]));
        std::thread::scope(|scope| {
            let (to, from) = bounded::<FrameRef>(2);
            for _ in 0..2 {
                let from = from.clone();
                scope.spawn(move || {
                    for frame in from {
                        assert_eq!((frame.plane(0).len(), frame.clone().plane(0)[0]), (1, 7));
                    }
                });
            }
            for id in 0..2000 {
                let frame = pool.fill(frame(id, &memory));
                to.send(frame.clone()).unwrap();
                assert_eq!(frame.id, id);
            }
            drop(to);
        });
        assert_eq!(Arc::strong_count(&memory), 1);
    }
}
