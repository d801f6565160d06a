//! Where a source delivers its frames: one mailbox for each model that looks at the camera.
//!
//! The outlet is the only way from a source into the data plane, so the policy for a full mailbox and the count of what
//! it costs are here, once, for every kind of source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::FrameRef;
use super::doorbell::Ringer;
use super::mailbox::Mailbox;
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
    pub mailbox: Arc<Mailbox<FrameRef>>,
    /// Tells the device's worker.
    pub ringer: Ringer,
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

    /// The most frames that are under way at once: on each route one in the mailbox and one in each of the two batches of
    /// its session, and the one that is being delivered.
    #[must_use]
    pub fn frames_in_flight(&self) -> usize {
        3 * self.routes.len() + 1
    }

    /// How far apart the frames are that the fastest model wants; none where one wants all there are, and where there is no
    /// model.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        let periods = self.routes.iter().map(|route| route.pace.as_ref().map(Pace::period));
        periods.reduce(|a, b| a.zip(b).map(|(a, b)| a.min(b))).flatten()
    }

    /// Waits until `due`.
    ///
    /// # Errors
    /// [`Stopped`] when the end has begun.
    pub fn wait_until(&self, due: Instant) -> Result<(), Stopped> {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() && self.shutdown.wait(left) { Err(Stopped) } else { Ok(()) }
    }

    /// Delivers a frame. A lossless source is held back here; `waiting` is called before each wait. `spacing` is how far
    /// apart frames come where the source already keeps to the rate, and else zero.
    ///
    /// # Errors
    /// [`Stopped`] when the end has begun; the frame is counted as dropped for that reason where it was not delivered.
    pub fn send(
        &mut self,
        frame: FrameRef,
        spacing: Duration,
        mut waiting: impl FnMut(),
    ) -> Result<(), Stopped> {
        self.telemetry.frames.add(1);
        let ending = self.shutdown.begun();
        // The last route that takes the frame gets this holder itself, the ones before get one more each.
        let mut last: Option<&mut Route> = None;
        for route in &mut self.routes {
            route.telemetry.offered.add(1);
            if ending {
                // Nobody may be there any more to take it.
                route.telemetry.dropped(DropReason::Stopped);
            } else if !route.pace.as_mut().is_none_or(|pace| pace.admit(frame.times.paced_at(), spacing)) {
                route.telemetry.dropped(DropReason::Rate);
            } else if let Some(before) = last.replace(route) {
                before.put(frame.clone(), self.delivery, &self.shutdown, &mut waiting);
            }
        }
        if let Some(last) = last {
            last.put(frame, self.delivery, &self.shutdown, &mut waiting);
        }
        if self.shutdown.begun() { Err(Stopped) } else { Ok(()) }
    }
}

impl Route {
    fn put(&self, frame: FrameRef, delivery: Delivery, shutdown: &Shutdown, waiting: &mut impl FnMut()) {
        let times = frame.times;
        match delivery {
            Delivery::NewestWins => {
                if self.mailbox.put(frame).is_some() {
                    self.telemetry.dropped(DropReason::Stale);
                }
            }
            Delivery::Lossless => {
                if self.mailbox.put_waiting(frame, shutdown, waiting).is_err() {
                    self.telemetry.dropped(DropReason::Stopped);
                }
            }
        }
        self.ringer.ring(&times);
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
        Self::every(Duration::from_secs_f64(1.0 / per_second))
    }

    /// At most one frame each `period`.
    #[must_use]
    pub fn every(period: Duration) -> Self {
        Self { period, due: None }
    }

    /// How far apart the frames are that pass.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Whether a frame of the time `now` may pass. A frame that is early by less than an eighth of the period passes, so
    /// that 25 frames a second limited to 25 all pass in spite of jitter; the next due time keeps to the grid, so that the
    /// average stays below the limit.
    ///
    /// `spacing` is how far apart frames come, where that is known, and else zero. Frames that come about as far apart as
    /// they are wanted pass unless they are early by more than half of that, and of those that come more often the nearest to
    /// its due time: the next one may be long in coming.
    pub fn admit(&mut self, now: Instant, spacing: Duration) -> bool {
        let due = self.due.unwrap_or(now);
        let is_at_its_own_pace = spacing >= self.period - self.period / 8;
        let early = due.saturating_duration_since(now);
        // So long before it is due comes nothing, unless the frames' clock went back.
        let has_jumped = early > self.period * 2 + spacing;
        let tolerance = if is_at_its_own_pace { self.period / 2 } else { (self.period / 8).max(spacing / 2) };
        if early > tolerance && !has_jumped {
            return false;
        }
        // After a gap the grid starts anew, so that no burst makes up for it.
        let off_the_grid = now > due + self.period || has_jumped || is_at_its_own_pace;
        self.due = Some(if off_the_grid { now } else { due } + self.period);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::doorbell::Doorbell;
    use crate::frame::tests::grey;
    use crate::frame::{LentMemory, Memory};
    use crate::threads::shutdown;

    fn frame() -> FrameRef {
        grey(1, Memory::Lent(LentMemory::new([0_u8; 1]))).into()
    }

    #[test]
    fn a_frame_that_comes_after_the_end_began_is_counted_and_put_nowhere() {
        for delivery in [Delivery::NewestWins, Delivery::Lossless] {
            let (end, shutdown) = shutdown();
            let (mailbox, telemetry) =
                (Arc::new(Mailbox::new()), Arc::new(RouteTelemetry::new("a", "line-parts")));
            let route = Route {
                mailbox: Arc::clone(&mailbox),
                ringer: Arc::new(Doorbell::new(1)).ringer(0),
                telemetry: Arc::clone(&telemetry),
                pace: None,
            };
            let mut outlet =
                Outlet::new(vec![route], delivery, Arc::new(CameraTelemetry::new("a")), shutdown);
            assert_eq!(outlet.send(frame(), Duration::ZERO, || ()), Ok(()));
            end.begin();
            assert_eq!(outlet.send(frame(), Duration::ZERO, || panic!("nobody would take it")), Err(Stopped));
            assert_eq!(telemetry.drops(DropReason::Stopped), 1);
            assert_eq!(telemetry.in_flight(), 1, "the one before is still in the mailbox");
            assert!(mailbox.take().is_some());
        }
    }

    fn passed(per_second: f64, arrivals_ms: impl Iterator<Item = u64>) -> Vec<u64> {
        let (start, mut pace) = (Instant::now(), Pace::new(per_second));
        arrivals_ms.filter(|&ms| pace.admit(start + Duration::from_millis(ms), Duration::ZERO)).collect()
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
    fn a_pace_lets_every_frame_of_a_source_that_keeps_to_it_through() {
        let (start, mut pace) = (Instant::now(), Pace::new(1.0));
        let mut admit = |ms: u64| pace.admit(start + Duration::from_millis(ms), Duration::from_millis(960));
        // 40 ms less than a second apart, and up to 300 ms off: none may be lost, or the next one is 2 s old.
        let jitter = [0, 300, 20, 150, 0, 290];
        assert!((0..100).all(|n| admit(n * 960 + jitter[usize::try_from(n % 6).unwrap()])));
    }

    #[test]
    fn a_pace_picks_the_frame_nearest_to_its_time_of_those_that_are_far_apart() {
        let (start, mut pace) = (Instant::now(), Pace::new(0.2));
        let mut admit = |ms: u64| pace.admit(start + Duration::from_millis(ms), Duration::from_secs(1));
        let passed: Vec<_> = (0..12).map(|n| n * 1000 - n * n % 7 * 40).filter(|&ms| admit(ms)).collect();
        assert_eq!(passed.len(), 3, "each fifth: {passed:?}");
    }

    #[test]
    fn a_pace_goes_on_after_the_clock_of_the_frames_went_back() {
        assert_eq!(passed(10.0, [5000, 5100, 100, 150, 200].into_iter()), [5000, 5100, 100, 200]);
    }

    #[test]
    fn a_pace_makes_no_burst_after_a_gap() {
        assert_eq!(passed(10.0, [0, 5000, 5010, 5020, 5100].into_iter()), [0, 5000, 5100]);
    }
}
