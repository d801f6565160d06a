//! The newest frame of a camera for one model, waiting to be pulled.
//!
//! Capacity one. A live source [`Mailbox::put`]s: a newer frame displaces the older one, which the caller counts. A
//! lossless source [`Mailbox::put_waiting`]s: it blocks until the frame before was taken, so that nothing is lost.
//!
//! Neither side waits for the other: of three places the source owns one, the worker one, and the third is between them,
//! exchanged in one step by whoever is done with its own. So a worker with a real-time priority is never held up by a source
//! thread that was interrupted, nor the other way round.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::threads::Shutdown;

/// How often a blocked lossless source looks whether it should end.
const SHUTDOWN_POLL: Duration = Duration::from_millis(50);
/// Beside the index of the place in the middle: that an item lies there which nobody took.
const UNTAKEN: usize = 4;

/// A slot for one item, between one thread that puts and one that takes.
#[derive(Debug)]
pub struct Mailbox<T> {
    /// Each is locked by its owner only, so no lock is ever waited for.
    places: [Mutex<Option<T>>; 3],
    /// Index of the place in the middle, with [`UNTAKEN`].
    middle: AtomicUsize,
    /// Index of the place of whoever puts, and of whoever takes.
    putting: Mutex<usize>,
    taking: Mutex<usize>,
    /// Whether a lossless source sleeps, or is about to, and wants to be woken.
    waits: AtomicBool,
    waiter: Mutex<Option<Thread>>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            places: [const { Mutex::new(None) }; 3],
            middle: AtomicUsize::new(1),
            putting: Mutex::new(0),
            taking: Mutex::new(2),
            waits: AtomicBool::new(false),
            waiter: Mutex::new(None),
        }
    }
}

impl<T> Mailbox<T> {
    /// An empty mailbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts the newest item; returns the one that it displaced.
    #[must_use = "a displaced frame is a drop, and drops are counted"]
    pub fn put(&self, item: T) -> Option<T> {
        // A camera's frames come one after another, so nobody else puts.
        let mut own = self.putting.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchange(*own, Some(item));
        let before = self.middle.swap(*own | UNTAKEN, Ordering::SeqCst);
        *own = before & !UNTAKEN;
        self.exchange(*own, None)
    }

    /// Waits until the slot is empty, then puts the item. `waiting` is called once before the wait, if there is one.
    ///
    /// # Errors
    /// The item, when `shutdown` began while waiting.
    pub fn put_waiting(&self, item: T, shutdown: &Shutdown, waiting: impl FnOnce()) -> Result<(), T> {
        if !self.is_empty() {
            waiting();
            *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        }
        while !self.is_empty() {
            if shutdown.begun() {
                return Err(item);
            }
            self.waits.store(true, Ordering::SeqCst);
            // Either we see that it was taken, or whoever takes it sees that we wait.
            if !self.is_empty() {
                thread::park_timeout(SHUTDOWN_POLL);
            }
        }
        self.waits.store(false, Ordering::SeqCst);
        let displaced = self.put(item);
        debug_assert!(displaced.is_none(), "only one thread puts");
        Ok(())
    }

    /// Takes the item, if one is there and nobody else is taking it.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        let mut own = match self.taking.try_lock() {
            Ok(own) => own,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.is_empty() {
            return None;
        }
        *own = self.middle.swap(*own, Ordering::SeqCst) & !UNTAKEN;
        let item = self.exchange(*own, None);
        if self.waits.swap(false, Ordering::SeqCst)
            && let Some(waiter) = &*self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
        {
            waiter.unpark();
        }
        item
    }

    fn is_empty(&self) -> bool {
        self.middle.load(Ordering::SeqCst) & UNTAKEN == 0
    }

    /// Changes what lies in a place, which is the caller's.
    fn exchange(&self, place: usize, item: Option<T>) -> Option<T> {
        let mut place = self.places[place].lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, item)
    }
}

/// Wakes the thread that pulls from mailboxes. Many wake-ups before it looks are one.
#[derive(Clone, Debug)]
pub struct Waker {
    wake: Sender<()>,
}

/// A waker and the end to wait on.
#[must_use]
pub fn waker() -> (Waker, Receiver<()>) {
    let (wake, woken) = bounded(1);
    (Waker { wake }, woken)
}

impl Waker {
    /// Wakes the puller; when it is already due to wake, nothing needs doing.
    pub fn wake(&self) {
        match self.wake.try_send(()) {
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::shutdown;

    #[test]
    fn the_newest_wins_and_the_displaced_one_comes_back() {
        let mailbox = Mailbox::new();
        assert_eq!(mailbox.put(1), None);
        assert_eq!(mailbox.put(2), Some(1));
        assert_eq!(mailbox.take(), Some(2));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn a_lossless_put_gives_the_item_back_at_shutdown() {
        let mailbox = Mailbox::new();
        let (source, token) = shutdown();
        assert_eq!(mailbox.put_waiting(1, &token, || panic!("the slot is free")), Ok(()));
        source.begin();
        let mut waited = false;
        assert_eq!(mailbox.put_waiting(2, &token, || waited = true), Err(2));
        assert!(waited);
    }

    #[test]
    fn between_two_threads_every_item_is_taken_or_displaced_once_and_in_order() {
        let (mailbox, items) = (Mailbox::new(), 100_000);
        let (mut displaced, mut taken) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let puts = scope.spawn(|| (0..items).filter_map(|item| mailbox.put(item)).collect::<Vec<u32>>());
            while !puts.is_finished() {
                taken.extend(mailbox.take());
            }
            displaced = puts.join().unwrap();
        });
        taken.extend(mailbox.take());
        assert!(taken.is_sorted() && displaced.is_sorted());
        let mut all = [taken, displaced].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..items));
    }

    #[test]
    fn a_lossless_put_is_woken_by_the_take() {
        let (mailbox, items) = (Mailbox::new(), 2000);
        let (_source, token) = shutdown();
        thread::scope(|scope| {
            let puts = scope.spawn(|| {
                (0..items).for_each(|item| mailbox.put_waiting(item, &token, || ()).unwrap());
            });
            let mut next = 0;
            while next < items {
                if let Some(item) = mailbox.take() {
                    assert_eq!(item, next, "none is lost");
                    next += 1;
                }
            }
            puts.join().unwrap();
        });
    }

    #[test]
    fn many_wake_ups_are_one() {
        let (waker, woken) = waker();
        waker.wake();
        waker.wake();
        assert!(woken.try_recv().is_ok());
        assert!(woken.try_recv().is_err());
    }
}
