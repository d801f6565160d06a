//! The newest frame of a camera for one model, waiting to be pulled.
//!
//! Capacity one. A live source [`Mailbox::put`]s: a newer frame displaces the older one, which the caller counts. A
//! lossless source [`Mailbox::put_waiting`]s: it blocks until the frame before was taken, so that nothing is lost.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::threads::Shutdown;

/// How often a blocked lossless source looks whether it should end.
const SHUTDOWN_POLL: Duration = Duration::from_millis(50);

/// A slot for one item.
#[derive(Debug)]
pub struct Mailbox<T> {
    slot: Mutex<Option<T>>,
    taken: Condvar,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { slot: Mutex::new(None), taken: Condvar::new() }
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
        self.lock().replace(item)
    }

    /// Waits until the slot is empty, then puts the item. `waiting` is called once before the wait, if there is one.
    ///
    /// # Errors
    /// The item, when `shutdown` began while waiting.
    pub fn put_waiting(&self, item: T, shutdown: &Shutdown, waiting: impl FnOnce()) -> Result<(), T> {
        let mut slot = self.lock();
        if slot.is_some() {
            waiting();
        }
        while slot.is_some() {
            if shutdown.begun() {
                return Err(item);
            }
            slot = self.taken.wait_timeout(slot, SHUTDOWN_POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
        *slot = Some(item);
        Ok(())
    }

    /// Takes the item, if one is there.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        let item = self.lock().take();
        if item.is_some() {
            self.taken.notify_one();
        }
        item
    }

    /// Looks at the item without taking it.
    #[must_use]
    pub fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.lock().as_ref().map(look)
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(mailbox.peek(|item| item + 40), Some(42));
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
    fn many_wake_ups_are_one() {
        let (waker, woken) = waker();
        waker.wake();
        waker.wake();
        assert!(woken.try_recv().is_ok());
        assert!(woken.try_recv().is_err());
    }
}
