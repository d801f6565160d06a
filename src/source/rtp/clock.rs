//! When a picture was taken and how late it came, from when its packets came and what the camera says: pure.
//!
//! A stream's time stamps tell how far apart pictures were taken, and not when. But a packet never comes before its picture
//! was taken, and some come with nothing in their way: the smallest difference between arrival and time stamp stands for
//! those, and what a packet has more than that is its *lateness*. The camera's clock runs a little faster or slower than
//! ours (at most [`DRIFT_PPM`]), so a difference that was the smallest one may grow by that much before it is doubted, and
//! it is forgotten after [`WINDOW`] seconds.
//!
//! Where a camera tells its wall clock too, in sender reports, and that agrees with ours as well as a picture's way through
//! camera and network lets one expect, it says when a picture was taken.

use std::time::{Duration, Instant};

use super::SenderReport;
use crate::frame::clock::{CaptureClock, Captured};

/// No clock of a camera runs faster or slower than that, in parts per million.
pub const DRIFT_PPM: i64 = 500;

/// For how many seconds the smallest difference is remembered.
pub const WINDOW: usize = 30;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

/// How far time stamps go back where pictures are shown in another order than they are sent, at the most.
const REORDER_MAX: i64 = 2 * SECOND;

/// A picture that seems to be taken so much later than any before it has another clock.
const AHEAD_MAX: i64 = SECOND;

/// After so many seconds in which the differences grew steadily, the stream's clock runs slower than it says.
const STEADY: usize = 3;

/// Growth in a second that is more than what a network does.
const STEADY_MIN: i64 = 5 * MS;

/// The longest that a picture is on its way by a camera's wall clock, for that to be believed. (The way through a camera's
/// encoder takes a few hundred ms in slow ones.)
const WAY_MAX: i64 = SECOND;

/// How far a camera's wall clock may be before ours. Both are set over the network, each within some ms.
const CLOCK_AHEAD_MAX: i64 = 50 * MS;

/// A sender report says nothing any more after this time. Cameras send one each few seconds.
const REPORT_MAX_AGE: i64 = 60 * SECOND;

/// The clock of one stream, by what is seen of it.
#[derive(Debug)]
pub struct Clock {
    origin: Instant,
    /// Ticks of a time stamp in a second.
    rate: i64,
    newest: Option<Newest>,
    /// The smallest difference in each of the newest seconds, by their number; the newest one is still growing.
    seconds: [Option<Smallest>; WINDOW],
    /// Those before this one do not count any more.
    since: i64,
    /// The smallest of them, with drift.
    base: i64,
    /// How far it may be off.
    doubt: i64,
    report: Option<Report>,
}

/// A moment of the stream: its time stamp in nanoseconds from some beginning, without wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTime(i64);

#[derive(Clone, Copy, Debug)]
struct Newest {
    timestamp: u32,
    ticks: i64,
    time: StreamTime,
    second: i64,
}

#[derive(Clone, Copy, Debug)]
struct Smallest {
    second: i64,
    difference: i64,
}

/// A sender report, and what has come of those before.
#[derive(Clone, Copy, Debug)]
struct Report {
    time: StreamTime,
    wall_ns: i64,
    /// When that was by the camera's wall clock, on our monotonic one, where both wall clocks agree.
    taken: Option<i64>,
    at: i64,
    /// How far the one before was off.
    error: i64,
    /// The stream's clock ran as fast as it says since the one before.
    is_at_rate: bool,
}

impl Clock {
    /// A clock of so many ticks a second, of which nothing is known. Times are counted from `origin`.
    #[must_use]
    pub fn new(rate: u32, origin: Instant) -> Self {
        /// Video has 90,000. What counts no milliseconds is none.
        const RATE_MIN: u32 = 1000;
        Self {
            origin,
            rate: i64::from(rate.max(RATE_MIN)),
            newest: None,
            seconds: [None; WINDOW],
            since: 0,
            base: 0,
            doubt: 0,
            report: None,
        }
    }

    /// A packet with this time stamp comes at `at`. Returns its moment of the stream.
    pub fn packet(&mut self, timestamp: u32, at: Instant) -> StreamTime {
        let at = self.nanos(at);
        let second = at.div_euclid(SECOND);
        let (mut ticks, mut time) = self.extend(timestamp);
        let jumped = self.newest.is_none_or(|newest| {
            newest.time.0 - time.0 > REORDER_MAX || self.base - (at - time.0) > AHEAD_MAX
        });
        if jumped {
            ticks = i64::from(timestamp);
            time = self.moment(ticks);
        }
        let difference = at - time.0;
        if jumped {
            (self.seconds, self.since) = ([None; WINDOW], second);
            (self.base, self.doubt, self.report) = (difference, MS, None);
        } else if self.newest.is_some_and(|newest| newest.second != second) {
            self.turn(second);
        }
        self.newest = Some(Newest { timestamp, ticks, time, second });
        let place = &mut self.seconds[Self::place(second)];
        match place {
            Some(smallest) if smallest.second == second => {
                smallest.difference = smallest.difference.min(difference);
            }
            _ => *place = Some(Smallest { second, difference }),
        }
        if difference <= self.base {
            (self.base, self.doubt) = (difference, MS);
        }
        time
    }

    /// A sender report comes at `at`, when our wall clock showed `wall_ns`.
    pub fn report(&mut self, report: &SenderReport, at: Instant, wall_ns: i64) {
        let Some(_) = self.newest else { return };
        let at = self.nanos(at);
        let (_, time) = self.extend(report.timestamp);
        // The distance to now is the same on both of our clocks.
        let taken = at.checked_sub(wall_ns.saturating_sub(report.wall_ns));
        let taken = taken.filter(|taken| self.is_plausible(time, *taken));
        let before = self.report;
        let error = match (before.and_then(|before| before.taken.map(|taken| (before, taken))), taken) {
            (Some((before, was_taken)), Some(taken)) => (was_taken + (time.0 - before.time.0) - taken).abs(),
            _ => 0,
        };
        let is_at_rate = before.is_some_and(|before| {
            let (stream, wall) = (time.0 - before.time.0, report.wall_ns.saturating_sub(before.wall_ns));
            stream > 0
                && stream.saturating_sub(wall).saturating_abs() <= STEADY_MIN * (stream / SECOND).max(1)
        });
        self.report = Some(Report { time, wall_ns: report.wall_ns, taken, at, error, is_at_rate });
    }

    /// How late a packet of this moment is that came at `at`.
    #[must_use]
    pub fn lateness(&self, time: StreamTime, at: Instant) -> Duration {
        nanos(self.nanos(at) - (time.0 + self.base))
    }

    /// When the picture of this moment was taken, if it is here at `at`: never after that.
    #[must_use]
    pub fn captured(&self, time: StreamTime, at: Instant) -> Captured {
        let at_best = time.0 + self.base;
        let here = self.nanos(at);
        let by_report = self.report.and_then(|report| {
            let taken = report.taken? + (time.0 - report.time.0);
            let believed = here - report.at <= REPORT_MAX_AGE && self.is_plausible(time, taken);
            let drift = (time.0 - report.time.0).abs() / 1_000_000 * DRIFT_PPM;
            believed.then_some((CaptureClock::Rtcp, taken, report.error + drift + MS))
        });
        let (clock, taken, error) = by_report.unwrap_or((CaptureClock::Arrival, at_best, self.doubt));
        Captured { clock, at: self.instant(taken.min(here)), error: Some(nanos(error)) }
    }

    /// Whether a picture of this moment that was taken then was on its way for as long as may be.
    fn is_plausible(&self, time: StreamTime, taken: i64) -> bool {
        let way = (time.0 + self.base).saturating_sub(taken);
        (-CLOCK_AHEAD_MAX..=WAY_MAX).contains(&way)
    }

    /// The nearest moment with this time stamp to the newest one.
    fn extend(&self, timestamp: u32) -> (i64, StreamTime) {
        let ticks = self.newest.map_or(i64::from(timestamp), |newest| {
            newest.ticks + i64::from(timestamp.wrapping_sub(newest.timestamp).cast_signed())
        });
        (ticks, self.moment(ticks))
    }

    fn moment(&self, ticks: i64) -> StreamTime {
        // In two steps: the whole would not fit after a few weeks.
        let (seconds, rest) = (ticks.div_euclid(self.rate), ticks.rem_euclid(self.rate));
        StreamTime(seconds * SECOND + rest * SECOND / self.rate)
    }

    /// Another second has begun.
    fn turn(&mut self, second: i64) {
        let mut growth = Some((i64::MAX, i64::MIN));
        for back in 1..STEADY {
            let step = self.known(second, back).zip(self.known(second, back + 1));
            growth = growth.zip(step).map(|((least, most), (later, earlier))| {
                let step = later.difference - earlier.difference;
                (least.min(step), most.max(step))
            });
        }
        let is_at_rate = self.report.is_some_and(|report| report.is_at_rate);
        let steady = growth.filter(|(least, most)| !is_at_rate && *least >= STEADY_MIN && *most <= 2 * least);
        if steady.is_some() {
            self.since = second - 1;
        }
        let drifted = |smallest: Smallest| {
            let drift = (second - smallest.second) * (SECOND / 1_000_000 * DRIFT_PPM);
            (smallest.difference + drift, MS + drift)
        };
        let oldest = self.since.max(second - WINDOW as i64 + 1);
        let remembered = self.seconds.iter().flatten().filter(|smallest| smallest.second >= oldest);
        if let Some((base, doubt)) = remembered.map(|smallest| drifted(*smallest)).min() {
            (self.base, self.doubt) = (base, doubt + steady.map_or(0, |(_, most)| most));
        }
    }

    /// The smallest difference of so many seconds ago.
    fn known(&self, second: i64, back: usize) -> Option<Smallest> {
        let wanted = second - i64::try_from(back).expect("a few seconds");
        self.seconds[Self::place(wanted)].filter(|smallest| smallest.second == wanted)
    }

    fn place(second: i64) -> usize {
        usize::try_from(second.rem_euclid(WINDOW as i64)).expect("less than the window")
    }

    fn nanos(&self, at: Instant) -> i64 {
        match at.checked_duration_since(self.origin) {
            Some(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX / 2),
            None => -i64::try_from(self.origin.duration_since(at).as_nanos()).unwrap_or(i64::MAX / 2),
        }
    }

    fn instant(&self, since: i64) -> Instant {
        let at = self.origin.checked_add(nanos(since));
        let at = if since < 0 { self.origin.checked_sub(nanos(since.saturating_neg())) } else { at };
        at.unwrap_or(self.origin)
    }
}

/// Nothing where it is negative.
fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: u32 = 90_000;
    /// 2026-12-01T00:00:00Z.
    const WALL: i64 = 1_796_083_200 * SECOND;

    /// A camera whose first time stamp is near its end, seen from some time after `origin` on.
    struct Stream {
        clock: Clock,
        start: Instant,
    }

    impl Stream {
        fn new() -> Self {
            let origin = Instant::now();
            Self { clock: Clock::new(RATE, origin), start: origin + Duration::from_secs(100) }
        }

        fn at(&self, ms: f64) -> Instant {
            self.start + Duration::from_secs_f64(ms / 1000.0)
        }

        /// A picture that the stream says was taken at `taken` ms arrives `way` ms after `real`. How late it is, in ms.
        fn picture(&mut self, taken: f64, real: f64, way: f64) -> f64 {
            let at = self.at(real + way);
            let time = self.clock.packet(timestamp(taken), at);
            assert!(self.clock.captured(time, at).at <= at);
            self.clock.lateness(time, at).as_secs_f64() * 1000.0
        }

        fn report(&mut self, taken: f64, real: f64, skew: i64) {
            let report =
                SenderReport { ssrc: 1, wall_ns: WALL + ms(real) + skew, timestamp: timestamp(taken) };
            let at = self.at(real + 20.0);
            self.clock.report(&report, at, WALL + ms(real + 20.0));
        }

        /// By which clock, how many ms before its arrival, and with which error a picture was taken that arrives then.
        fn captured(&mut self, taken: f64, real: f64, way: f64) -> (CaptureClock, f64, f64) {
            let at = self.at(real + way);
            let time = self.clock.packet(timestamp(taken), at);
            let captured = self.clock.captured(time, at);
            let error = captured.error.unwrap().as_secs_f64() * 1000.0;
            (captured.clock, (at - captured.at).as_secs_f64() * 1000.0, error)
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "some seconds")]
    fn ms(ms: f64) -> i64 {
        (ms * 1e6) as i64
    }

    fn timestamp(taken: f64) -> u32 {
        let ticks = ms(taken) * i64::from(RATE) / SECOND;
        u32::try_from(ticks.rem_euclid(1 << 32)).unwrap().wrapping_sub(200_000)
    }

    /// Of so many pictures, 25 a second, the lateness of each. The way of each is 40 ms and something up to 9 ms.
    fn run(
        stream: &mut Stream,
        pictures: std::ops::Range<u32>,
        seen: impl Fn(f64) -> (f64, f64),
    ) -> Vec<f64> {
        let jitter = |n: u32| f64::from(n * 7 % 10);
        pictures
            .map(|n| {
                let (taken, real) = seen(f64::from(n));
                stream.picture(taken, real, 40.0 + jitter(n))
            })
            .collect()
    }

    fn most(late: &[f64]) -> f64 {
        late.iter().copied().fold(0.0, f64::max)
    }

    #[test]
    fn a_picture_is_late_by_what_its_way_took_longer_than_the_shortest() {
        let mut stream = Stream::new();
        let late = run(&mut stream, 0..2500, |n| (n * 40.0, n * 40.0));
        assert!(most(&late) < 10.0, "over more than a wrap of its time stamps: {}", most(&late));
        let late = stream.picture(100_000.0, 100_000.0, 240.0);
        assert!((199.0..=201.0).contains(&late), "{late}");
    }

    #[test]
    fn a_burst_after_a_hole_is_late_by_the_hole_until_it_has_caught_up() {
        let mut stream = Stream::new();
        run(&mut stream, 0..250, |n| (n * 40.0, n * 40.0));
        // What was taken in 5 s comes within 100 ms.
        let late = run(&mut stream, 250..375, |n| (n * 40.0, 15_000.0 + (n - 250.0) * 0.8));
        assert!((4950.0..5050.0).contains(&late[0]), "{}", late[0]);
        assert!(late.windows(2).all(|pair| pair[1] < pair[0] + 10.0));
        assert!(late[124] < 160.0, "{}", late[124]);
        let late = run(&mut stream, 378..1000, |n| (n * 40.0, n * 40.0));
        assert!(most(&late) < 15.0, "{}", most(&late));
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        for ppm in [-400.0, 400.0] {
            let mut stream = Stream::new();
            let late = run(&mut stream, 0..25 * 600, |n| (n * 40.0, n * 40.0 * (1.0 + ppm / 1e6)));
            assert!(most(&late) < 25.0, "{ppm}: {}", most(&late));
        }
    }

    #[test]
    fn a_stream_that_announces_25_pictures_a_second_and_sends_21_is_not_late() {
        let mut stream = Stream::new();
        let late = run(&mut stream, 0..2100, |n| (n * 40.0, n * 1000.0 / 21.0));
        assert!(most(&late) < 500.0, "{}", most(&late));
        let (_, _, error) = stream.captured(2100.0 * 40.0, 2100.0 * 1000.0 / 21.0, 40.0);
        assert!(error > 100.0, "and its error is told: {error}");
    }

    #[test]
    fn time_stamps_that_jump_are_a_new_beginning() {
        for jump in [-10_000.0, 10_000.0, 3_600_000.0] {
            let mut stream = Stream::new();
            run(&mut stream, 0..250, |n| (n * 40.0, n * 40.0));
            let late = run(&mut stream, 250..500, |n| (n * 40.0 + jump, n * 40.0));
            assert!(most(&late) < 15.0, "{jump}: {}", most(&late));
            // One picture with a wrong stamp, and on as before.
            stream.picture(500.0 * 40.0 - jump, 500.0 * 40.0, 40.0);
            let late = run(&mut stream, 501..700, |n| (n * 40.0 + jump, n * 40.0));
            assert!(most(&late) < 15.0, "{jump}: {}", most(&late));
        }
    }

    #[test]
    fn pictures_in_another_order_than_they_are_shown_are_no_jump() {
        let mut stream = Stream::new();
        // The fourth one comes second.
        let shown = |n: f64| {
            let place = n % 4.0;
            n - place
                + if place < 0.5 {
                    0.0
                } else if place < 1.5 {
                    3.0
                } else {
                    place - 1.0
                }
        };
        let late = run(&mut stream, 0..1000, |n| (shown(n) * 40.0, n * 40.0));
        assert!(most(&late) < 40.0 * 3.0 + 15.0, "{}", most(&late));
    }

    #[test]
    fn a_hole_in_which_nothing_is_taken_makes_nothing_late() {
        let mut stream = Stream::new();
        run(&mut stream, 0..250, |n| (n * 40.0, n * 40.0));
        let late = run(&mut stream, 1250..1500, |n| (n * 40.0, n * 40.0));
        assert!(most(&late) < 40.0, "{}", most(&late));
        let late = run(&mut stream, 25_000..25_250, |n| (n * 40.0, n * 40.0));
        assert!(most(&late) < 40.0, "after a quarter of an hour: {}", most(&late));
    }

    #[test]
    fn a_wall_clock_that_agrees_says_when_a_picture_was_taken() {
        let mut stream = Stream::new();
        assert_eq!(stream.captured(0.0, 0.0, 130.0).0, CaptureClock::Arrival);
        stream.report(0.0, 0.0, 0);
        let (clock, age, error) = stream.captured(40.0, 40.0, 130.0);
        assert_eq!(clock, CaptureClock::Rtcp);
        assert!((129.0..=131.0).contains(&age), "{age}");
        assert!(error < 2.0, "{error}");
        // One that comes late is as old as it is.
        let (clock, age, _) = stream.captured(80.0, 80.0, 330.0);
        assert_eq!(clock, CaptureClock::Rtcp);
        assert!((329.0..=331.0).contains(&age), "{age}");
        // No report for more than a minute.
        assert_eq!(stream.captured(70_000.0, 70_000.0, 130.0).0, CaptureClock::Arrival);
    }

    #[test]
    fn a_wall_clock_that_is_wrong_or_steps_makes_no_age_negative_or_huge() {
        for skew in [-86_400, -3600, -2, 1, 3600, 86_400] {
            let mut stream = Stream::new();
            stream.captured(0.0, 0.0, 130.0);
            stream.report(0.0, 0.0, skew * SECOND);
            let (clock, age, _) = stream.captured(40.0, 40.0, 130.0);
            assert_eq!((clock, age.round()), (CaptureClock::Arrival, 0.0), "{skew}");
            stream.report(40.0, 40.0, 0);
            assert_eq!(stream.captured(80.0, 80.0, 130.0).0, CaptureClock::Rtcp, "{skew}: it was set right");
            stream.report(80.0, 80.0, skew * SECOND);
            assert_eq!(stream.captured(120.0, 120.0, 130.0).0, CaptureClock::Arrival, "{skew}: it stepped");
        }
    }

    #[test]
    fn a_report_that_was_off_is_told_in_the_error() {
        let mut stream = Stream::new();
        stream.captured(0.0, 0.0, 130.0);
        stream.report(0.0, 0.0, 0);
        stream.captured(5000.0, 5000.0, 130.0);
        stream.report(5000.0, 5000.0, 15 * MS);
        let (_, _, error) = stream.captured(5040.0, 5040.0, 130.0);
        assert!((15.0..18.0).contains(&error), "{error}");
    }

    #[test]
    fn where_reports_prove_the_rate_what_gets_later_and_later_is_late() {
        let mut stream = Stream::new();
        let mut late = 0.0;
        for n in 0..300_u32 {
            let taken = f64::from(n) * 40.0;
            if n % 25 == 1 {
                stream.report(taken, taken, 0);
            }
            // A line that carries five sixths of what is sent.
            late = stream.picture(taken, taken, 40.0 + taken / 5.0);
        }
        assert!(late > 1500.0, "{late}");
    }

    proptest! {
        #[test]
        fn whatever_comes_no_age_is_negative_or_absurd(
            packets in prop::collection::vec((any::<u32>(), 0..3000_u64, any::<u32>(), any::<i64>()), 1..60),
            rate in any::<u32>(),
        ) {
            let mut clock = Clock::new(rate, Instant::now());
            let mut at = Instant::now();
            for (timestamp, later, reported, wall_ns) in packets {
                at += Duration::from_millis(later);
                let time = clock.packet(timestamp, at);
                clock.report(&SenderReport { ssrc: 1, wall_ns, timestamp: reported }, at, WALL);
                let captured = clock.captured(time, at);
                let (lateness, age) = (clock.lateness(time, at), captured.age(at).unwrap());
                prop_assert!(captured.at <= at);
                prop_assert!(age <= lateness + Duration::from_millis(1001), "{age:?} {lateness:?}");
            }
        }
    }
}
