//! When the next frame of a camera comes: cameras are periodic, and what is periodic can be planned for.

use std::time::{Duration, Instant};

/// A camera that is silent for so many periods has probably gone, and begins anew when it comes back.
const GONE: f64 = 3.0;
const ANEW: f64 = 8.0;
/// A camera that delivered one frame, so many seconds ago at most, may deliver the next one.
const NEW: f64 = 1.0;

/// A frame that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its data entered the video decoder; deadlines count from here.
    pub received: Instant,
    /// When it could be taken.
    pub ready: Instant,
    /// How many frames were delivered so far, this one included.
    pub count: u64,
}

/// When the next frame is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The earliest time at which it can be taken.
    pub ready: Instant,
    /// The earliest time that its deadline counts from.
    pub received: Instant,
    /// The earliest time at which the one after it takes its place.
    pub next: Instant,
    /// When it is no longer expected.
    pub expires: Instant,
}

/// The arrivals of one camera's frames at one model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    last: Option<Arrival>,
    /// Time between two frames as a rule, in seconds; none before the second frame.
    period: Option<f64>,
    /// How far a frame is from its time as a rule, in seconds.
    jitter: f64,
}

impl Arrivals {
    /// Notes the newest frame, and says how many came since the one before: those that it displaced before anybody looked are
    /// in its count.
    pub fn note(&mut self, arrival: Arrival) -> u64 {
        let Some(last) = self.last.replace(arrival) else { return 1 };
        let came = arrival.count.saturating_sub(last.count);
        if came > 0 {
            #[expect(clippy::cast_precision_loss, reason = "few frames come between two looks")]
            let gap = arrival.ready.saturating_duration_since(last.ready).as_secs_f64() / came as f64;
            match &mut self.period {
                // A camera that was away begins anew.
                Some(period) if gap > *period * ANEW => (self.period, self.jitter) = (None, 0.0),
                Some(period) => {
                    let error = gap - *period;
                    self.jitter += (error.abs() - self.jitter) / 8.0;
                    *period += error / 8.0;
                }
                None => self.period = Some(gap),
            }
        }
        came
    }

    /// The frame after the last one, as seen at `now`. None while too little is known, where frames come irregularly, and
    /// when it is so late that the camera has probably gone.
    #[must_use]
    pub fn expected(&self, now: Instant) -> Option<Expected> {
        let (last, period) = (self.last?, self.period?);
        let early = self.jitter * 2.0;
        if early > period / 2.0 {
            return None;
        }
        let expires = last.ready + Duration::from_secs_f64(period * GONE);
        let ready = (last.ready + Duration::from_secs_f64(period - early)).max(now);
        let decoding = last.ready.saturating_duration_since(last.received);
        let received = ready.checked_sub(decoding).unwrap_or(ready);
        let next = ready + Duration::from_secs_f64(period - early);
        (now < expires).then_some(Expected { ready, received, next, expires })
    }

    /// Whether a frame may come until then. Of a camera that never delivered, or not for long, none is expected; one whose
    /// frames come irregularly may deliver at any moment.
    #[must_use]
    pub fn may_come_by(&self, until: Instant, now: Instant) -> bool {
        let Some(last) = self.last else { return false };
        let silent = now.saturating_duration_since(last.ready).as_secs_f64();
        match self.period {
            Some(period) if silent > period * GONE => false,
            None if silent > NEW => false,
            _ => self.expected(now).is_none_or(|expected| expected.ready <= until),
        }
    }

    /// Time between two frames as a rule, once it is known.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.period.map(Duration::from_secs_f64)
    }

    /// Whether its rate is not known yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.period.is_none()
    }

    /// Frames a second, while they come.
    #[must_use]
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let (last, period) = (self.last?, self.period.filter(|period| *period > 0.0)?);
        let silent = now.saturating_duration_since(last.ready).as_secs_f64();
        (silent < period * ANEW).then(|| 1.0 / period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn seen(times: impl IntoIterator<Item = u64>, start: Instant) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for (count, ms) in (1..).zip(times) {
            let ready = start + MS * u32::try_from(ms).unwrap();
            arrivals.note(Arrival { received: ready - 5 * MS, ready, count });
        }
        arrivals
    }

    #[test]
    fn a_periodic_camera_is_expected_a_period_later_with_its_decoding_time() {
        let start = Instant::now() + 100 * MS;
        let expected = seen([0, 40, 80], start).expected(start + 90 * MS).unwrap();
        assert_eq!(expected.ready, start + 120 * MS);
        assert_eq!(expected.received, start + 115 * MS);
        assert!(seen([0], start).expected(start).is_none());
    }

    #[test]
    fn jitter_makes_it_expected_earlier_and_chaos_not_at_all() {
        let start = Instant::now() + 100 * MS;
        let jittery = seen((0..50).map(|n| n * 40 + n % 2 * 4), start);
        let expected = jittery.expected(start + 1965 * MS).unwrap().ready - start;
        assert!(expected < 2000 * MS && expected > 1980 * MS, "{expected:?}");
        assert!(seen((0..50).map(|n| n * 40 + n % 2 * 35), start).expected(start + 2000 * MS).is_none());
    }

    #[test]
    fn an_overdue_frame_may_come_at_any_moment_until_its_camera_has_probably_gone() {
        let start = Instant::now() + 100 * MS;
        let arrivals = seen([0, 40, 80], start);
        let expected = arrivals.expected(start + 150 * MS).unwrap();
        assert_eq!((expected.ready, expected.expires), (start + 150 * MS, start + 200 * MS));
        assert!(arrivals.expected(start + 200 * MS).is_none());
        assert_eq!(arrivals.rate(start + 200 * MS).map(f64::round), Some(25.0));
        assert!(arrivals.rate(start + 600 * MS).is_none());
    }

    #[test]
    fn whoever_may_come_is_waited_for_and_nobody_else() {
        let start = Instant::now() + 100 * MS;
        let at = |ms: u32| start + MS * ms;
        assert!(!Arrivals::default().may_come_by(at(1000), start), "never seen");
        assert!(seen([0], start).may_come_by(at(2), at(1)), "one frame: anything is possible");
        assert!(!seen([0], start).may_come_by(at(3000), at(2000)), "and no more of it for long");
        let periodic = seen([0, 40, 80], start);
        assert!(periodic.may_come_by(at(121), at(81)) && !periodic.may_come_by(at(119), at(81)));
        assert!(!periodic.may_come_by(at(1000), at(300)), "gone");
        assert!(
            seen((0..50).map(|n| n * 40 + n % 2 * 35), start).may_come_by(at(1997), at(1996)),
            "irregular"
        );
    }

    #[test]
    fn frames_that_nobody_saw_count() {
        let start = Instant::now() + 100 * MS;
        let mut arrivals = seen([0, 40], start);
        arrivals.note(Arrival { received: start + 160 * MS, ready: start + 160 * MS, count: 5 });
        assert_eq!(arrivals.expected(start + 170 * MS).unwrap().ready, start + 200 * MS);
    }
}
