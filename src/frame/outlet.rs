//! Where a source delivers its frames: one mailbox for each model that looks at the camera.
//!
//! The outlet is the only way from a source into the data plane, so the policy for a full mailbox and the count of what
//! it costs are here, once, for every kind of source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Frame;
use super::mailbox::{Mailbox, Waker};
use crate::telemetry::{CameraTelemetry, DropReason, RouteTelemetry};
use crate::threads::Shutdown;

/// What happens to a frame whose mailbox still holds the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A live camera: the newer frame displaces the older one, counted as [`DropReason::Stale`].
    NewestWins,
    /// A file: the source waits, so every frame is processed, in order.
    Lossless,
}

/// One model that looks at the camera.
#[derive(Debug)]
pub struct Route {
    /// Where the frame waits.
    pub mailbox: Arc<Mailbox<Arc<Frame>>>,
    /// Wakes the device's worker.
    pub waker: Waker,
    /// Counts what happens here.
    pub telemetry: Arc<RouteTelemetry>,
    /// Limits how many frames a second are offered.
    pub pace: Option<Pace>,
}

/// The data plane is going away; the source should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// Delivers a camera's frames to its routes.
#[derive(Debug)]
pub struct Outlet {
    routes: Vec<Route>,
    delivery: Delivery,
    telemetry: Arc<CameraTelemetry>,
    shutdown: Shutdown,
}

impl Outlet {
    /// An outlet to these routes.
    #[must_use]
    pub fn new(
        routes: Vec<Route>,
        delivery: Delivery,
        telemetry: Arc<CameraTelemetry>,
        shutdown: Shutdown,
    ) -> Self {
        Self { routes, delivery, telemetry, shutdown }
    }

    /// The camera's counters.
    #[must_use]
    pub fn telemetry(&self) -> &Arc<CameraTelemetry> {
        &self.telemetry
    }

    /// Delivers a frame. A lossless source is held back here; `waiting` is called before each wait.
    ///
    /// # Errors
    /// [`Stopped`] when the end has begun; the frame is counted as dropped for that reason where it was not delivered.
    pub fn send(&mut self, frame: &Arc<Frame>, mut waiting: impl FnMut()) -> Result<(), Stopped> {
        self.telemetry.frames.add(1);
        let ending = self.shutdown.begun();
        for route in &mut self.routes {
            route.telemetry.offered.add(1);
            if ending {
                // Nobody may be there any more to take it.
                route.telemetry.dropped(DropReason::Stopped);
                continue;
            }
            if !route.pace.as_mut().is_none_or(|pace| pace.admit(frame.times.ready)) {
                route.telemetry.dropped(DropReason::Rate);
                continue;
            }
            match self.delivery {
                Delivery::NewestWins => {
                    if route.mailbox.put(Arc::clone(frame)).is_some() {
                        route.telemetry.dropped(DropReason::Stale);
                    }
                }
                Delivery::Lossless => {
                    let put = route.mailbox.put_waiting(Arc::clone(frame), &self.shutdown, &mut waiting);
                    if put.is_err() {
                        route.telemetry.dropped(DropReason::Stopped);
                    }
                }
            }
            route.waker.wake();
        }
        if self.shutdown.begun() { Err(Stopped) } else { Ok(()) }
    }
}

/// Lets through at most so many frames a second, evenly spaced.
#[derive(Clone, Debug)]
pub struct Pace {
    period: Duration,
    due: Option<Instant>,
}

impl Pace {
    /// At most `per_second` frames a second; it must be positive and finite.
    #[must_use]
    pub fn new(per_second: f64) -> Self {
        Self { period: Duration::from_secs_f64(1.0 / per_second), due: None }
    }

    /// Whether a frame that came at `now` may pass. A frame that is early by less than an eighth of the period passes,
    /// so that 25 frames a second limited to 25 all pass in spite of jitter; the next due time keeps to the grid, so
    /// that the average stays below the limit.
    pub fn admit(&mut self, now: Instant) -> bool {
        let due = self.due.unwrap_or(now);
        if now + self.period / 8 < due {
            return false;
        }
        // After a gap the grid starts anew, so that no burst makes up for it.
        self.due = Some(if now > due + self.period { now } else { due } + self.period);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::clock::{CaptureClock, Captured};
    use crate::frame::mailbox::waker;
    use crate::frame::{CameraId, ColorMatrix, ColorRange, FrameTimes, Geometry, Memory, PixelFormat};
    use crate::threads::shutdown;

    fn frame() -> Arc<Frame> {
        let now = Instant::now();
        let captured = Captured { clock: CaptureClock::Test, at: now };
        let times = FrameTimes { pts: None, captured, received: now, ready: now };
        let geometry = Geometry::packed(PixelFormat::Gray8, 1, 1, ColorMatrix::Bt601, ColorRange::Full);
        let memory = Memory::Lent(Box::new(vec![0; 1]));
        Arc::new(Frame::new(CameraId::new("a"), 1, times, geometry, memory).unwrap())
    }

    #[test]
    fn a_frame_that_comes_after_the_end_began_is_counted_and_put_nowhere() {
        for delivery in [Delivery::NewestWins, Delivery::Lossless] {
            let (end, shutdown) = shutdown();
            let (mailbox, telemetry) =
                (Arc::new(Mailbox::new()), Arc::new(RouteTelemetry::new("a", "line-parts")));
            let route = Route {
                mailbox: Arc::clone(&mailbox),
                waker: waker().0,
                telemetry: Arc::clone(&telemetry),
                pace: None,
            };
            let mut outlet =
                Outlet::new(vec![route], delivery, Arc::new(CameraTelemetry::new("a")), shutdown);
            assert_eq!(outlet.send(&frame(), || ()), Ok(()));
            end.begin();
            assert_eq!(outlet.send(&frame(), || panic!("nobody would take it")), Err(Stopped));
            assert_eq!(telemetry.drops(DropReason::Stopped), 1);
            assert_eq!(telemetry.in_flight(), 1, "the one before is still in the mailbox");
            assert!(mailbox.take().is_some());
        }
    }

    fn passed(per_second: f64, arrivals_ms: impl Iterator<Item = u64>) -> Vec<u64> {
        let (start, mut pace) = (Instant::now(), Pace::new(per_second));
        arrivals_ms.filter(|&ms| pace.admit(start + Duration::from_millis(ms))).collect()
    }

    #[test]
    fn a_pace_spaces_frames_evenly_and_keeps_the_average() {
        assert_eq!(passed(5.0, (0..25).map(|n| n * 40)), [0, 200, 400, 600, 800]);
        let ten_of_25 = passed(10.0, (0..250).map(|n| n * 40));
        assert_eq!(ten_of_25.len(), 100);
    }

    #[test]
    fn a_pace_lets_a_jittering_camera_at_its_own_rate_through_whole() {
        let jitter = [0, 3, 1, 4, 0, 2, 4, 1];
        let arrivals = (0..200).map(|n| n * 40 + jitter[usize::try_from(n % 8).unwrap()]);
        assert_eq!(passed(25.0, arrivals).len(), 200);
    }

    #[test]
    fn a_pace_makes_no_burst_after_a_gap() {
        assert_eq!(passed(10.0, [0, 5000, 5010, 5020, 5100].into_iter()), [0, 5000, 5100]);
    }
}
