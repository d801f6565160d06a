//! How a device's worker learns that frames wait for it, and whose.
//!
//! A [`Ringer`] is a route's button: it notes the newest frame's times, sets the route's bit and wakes the worker if it
//! sleeps. The worker [`Doorbell::answer`]s: it sees the routes that have rung, and looks at no other. Neither side takes a
//! lock or allocates, and ringing is a system call only where somebody sleeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::FrameTimes;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// A device's doorbell, with a button for each route.
#[derive(Debug)]
pub struct Doorbell {
    origin: Instant,
    /// A bit for each route that has rung since it was last answered.
    rung: Box<[AtomicU64]>,
    newest: Box<[Newest]>,
    /// Whether the worker sleeps, or is about to, and wants to be woken.
    listening: AtomicBool,
    /// Whether it is to be woken although nobody has rung.
    woken: AtomicBool,
    /// The thread that answers.
    worker: OnceLock<Thread>,
}

/// The newest frame of a route; times in nanoseconds from the doorbell's origin.
#[derive(Debug, Default)]
struct Newest {
    received: AtomicU64,
    ready: AtomicU64,
    count: AtomicU64,
}

/// What a route's newest frame told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// When its data entered the video decoder.
    pub received: Instant,
    /// When it reached us.
    pub ready: Instant,
    /// How often this route has rung.
    pub count: u64,
}

/// A route's button.
#[derive(Clone, Debug)]
pub struct Ringer {
    doorbell: Arc<Doorbell>,
    route: usize,
}

impl Doorbell {
    /// A doorbell for so many routes.
    #[must_use]
    pub fn new(routes: usize) -> Self {
        Self {
            origin: Instant::now(),
            rung: (0..routes.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect(),
            newest: (0..routes).map(|_| Newest::default()).collect(),
            listening: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            worker: OnceLock::new(),
        }
    }

    /// The button of a route, `0..routes`.
    #[must_use]
    pub fn ringer(self: &Arc<Self>, route: usize) -> Ringer {
        assert!(route < self.newest.len(), "route {route} of {}", self.newest.len());
        Ringer { doorbell: Arc::clone(self), route }
    }

    /// Tells each route that has rung since the last answer, once, with its newest frame.
    pub fn answer(&self, mut tell: impl FnMut(usize, Rung)) {
        for (index, word) in self.rung.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut left = word.swap(0, Ordering::Acquire);
            while left != 0 {
                let route = index * BITS + left.trailing_zeros() as usize;
                left &= left - 1;
                tell(route, self.newest[route].get(self.origin));
            }
        }
    }

    /// Sleeps until somebody rings, [`Doorbell::wake`] is called, or `until`; at once when somebody has rung. It may return
    /// early. Always called by the same thread.
    pub fn wait(&self, until: Option<Instant>) {
        self.worker.get_or_init(thread::current);
        self.listening.store(true, Ordering::SeqCst);
        // Either we see the bit, or whoever sets it sees that we listen.
        if !self.woken.swap(false, Ordering::SeqCst)
            && self.rung.iter().all(|word| word.load(Ordering::SeqCst) == 0)
        {
            sleep(until);
        }
        self.listening.store(false, Ordering::Relaxed);
    }

    /// Wakes the worker, whether somebody has rung or not. A worker that does not wait does not begin to.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(worker) = self.worker.get() {
            worker.unpark();
        }
    }
}

impl Ringer {
    /// A frame was put into the route's mailbox.
    pub fn ring(&self, times: &FrameTimes) {
        let doorbell = &*self.doorbell;
        let newest = &doorbell.newest[self.route];
        let nanos = |time: Instant| {
            u64::try_from(time.saturating_duration_since(doorbell.origin).as_nanos()).unwrap_or(u64::MAX)
        };
        newest.received.store(nanos(times.received), Ordering::Relaxed);
        newest.ready.store(nanos(times.ready), Ordering::Relaxed);
        newest.count.fetch_add(1, Ordering::Relaxed);
        doorbell.rung[self.route / BITS].fetch_or(1 << (self.route % BITS), Ordering::SeqCst);
        if doorbell.listening.load(Ordering::SeqCst) && doorbell.listening.swap(false, Ordering::SeqCst) {
            doorbell.unpark();
        }
    }
}

impl Newest {
    fn get(&self, origin: Instant) -> Rung {
        let time = |nanos: &AtomicU64| origin + Duration::from_nanos(nanos.load(Ordering::Relaxed));
        Rung {
            received: time(&self.received),
            ready: time(&self.ready),
            count: self.count.load(Ordering::Relaxed),
        }
    }
}

/// Sleeps until then, whoever rings; it may return early.
pub fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
        None => thread::park(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::clock::{CaptureClock, Captured};

    fn times(at: Instant) -> FrameTimes {
        let captured = Captured::new(CaptureClock::Test, at);
        FrameTimes { pts: None, captured, received: at, ready: at + Duration::from_millis(5) }
    }

    #[test]
    fn every_route_that_rang_is_told_once_with_its_newest_frame() {
        let doorbell = Arc::new(Doorbell::new(130));
        let now = Instant::now();
        for (route, after) in [(0, 1), (64, 2), (129, 3), (64, 4)] {
            doorbell.ringer(route).ring(&times(now + Duration::from_millis(after)));
        }
        let mut told = Vec::new();
        doorbell.answer(|route, rung| told.push((route, (rung.received - now).as_millis(), rung.count)));
        assert_eq!(told, [(0, 1, 1), (64, 4, 2), (129, 3, 1)]);
        doorbell.answer(|route, _| panic!("{route} was answered"));
    }

    #[test]
    fn nobody_sleeps_through_a_ring() {
        let doorbell = Arc::new(Doorbell::new(3));
        let rings = 20_000;
        std::thread::scope(|scope| {
            for route in 0..3 {
                let ringer = doorbell.ringer(route);
                scope.spawn(move || (0..rings).for_each(|_| ringer.ring(&times(Instant::now()))));
            }
            let mut counts = [0; 3];
            while counts != [rings; 3] {
                let begun = Instant::now();
                doorbell.wait(Some(begun + Duration::from_secs(30)));
                assert!(begun.elapsed() < Duration::from_secs(20), "{counts:?}");
                doorbell.answer(|route, rung| counts[route] = rung.count);
            }
        });
    }

    #[test]
    fn a_wake_before_the_sleep_is_not_lost() {
        let doorbell = Doorbell::new(1);
        doorbell.wake();
        let begun = Instant::now();
        doorbell.wait(Some(begun + Duration::from_secs(30)));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
