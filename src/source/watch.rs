//! What leads a camera from one state to the next. Pure: time comes in as an argument.
//!
//! GStreamer says nothing of a camera that stops sending, sends the same picture for ever, or sends rubbish, so all of that
//! is found out here, from what was counted of a connection. A connection that delivers nothing is given up after a while
//! and made anew, whatever it seems to be; one that delivers pictures, though frozen or dark ones, is kept.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::SourceError;
use super::picture::Sight;
use super::state::CameraState;

/// How long a first picture may take, even where `stale_after` is shorter: a camera wakes its sensor, its stream may begin
/// between two key frames that are seconds apart, and a file may lie on a slow disk.
pub const FIRST_FRAME_LIMIT: Duration = Duration::from_secs(10);

/// How long it may take while pictures come and a key frame has not: some cameras send one each 20 s.
pub const KEY_FRAME_LIMIT: Duration = Duration::from_secs(45);

/// The time over which damaged pictures are counted against all.
const DAMAGE_WINDOW: Duration = Duration::from_secs(5);

/// A connection of which every picture is damaged, or late, for so long is made anew.
const USELESS_LIMIT: Duration = Duration::from_secs(20);

/// Looks that follow one another faster count as one, so that little has to be remembered.
const LOOK: Duration = Duration::from_millis(100);

/// Of so few pictures no share is told.
const DAMAGE_LEAST: u64 = 5;

/// When a camera is in which state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Without a good picture for so long it is stale; none for one that is as slow as its frames are taken.
    pub stale_after: Option<Duration>,
    /// It is corrupt when more than this share of its pictures is damaged, 0 to 1.
    pub damaged_max: f64,
}

/// What was seen of a camera up to one moment. All counts are since the camera's first connection, and only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether the connection is open and has told of a video.
    pub is_open: bool,
    /// When this connection's newest good picture came.
    pub newest: Option<Instant>,
    /// RTP packets.
    pub packets: u64,
    /// Encoded pictures.
    pub encoded: u64,
    /// Decoded pictures that are good.
    pub good: u64,
    /// Pictures that are damaged, or need ones that did not come.
    pub damaged: u64,
    /// Pictures before a connection's first key frame.
    pub before_key: u64,
    /// Pictures that came too late.
    pub late: u64,
    /// What there is to see.
    pub sight: Sight,
}

/// Decides for one camera.
#[derive(Debug)]
pub struct Watch {
    limits: Limits,
    state: CameraState,
    is_changed: bool,
    connection: Option<Connection>,
    /// A connection was open and ended without a picture: the next one is not told until it has one.
    was_open_in_vain: bool,
}

/// What is remembered of the present connection.
#[derive(Debug)]
struct Connection {
    begun: Instant,
    /// When its first good picture came.
    live: Option<Instant>,
    /// What had been counted when its newest good picture was seen, and that picture's time.
    at_newest: Seen,
    /// Counts of good and damaged pictures over the last few seconds, oldest first.
    window: VecDeque<(Instant, u64, u64)>,
    /// When the newest picture was seen, good or damaged.
    newest_picture: Instant,
    /// Whether too many are damaged.
    is_corrupt: bool,
}

impl Watch {
    /// A camera that was never opened.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: CameraState::Connecting,
            is_changed: false,
            connection: None,
            was_open_in_vain: false,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &CameraState {
        &self.state
    }

    /// The state, if it has changed since the last call.
    pub fn take_change(&mut self) -> Option<CameraState> {
        std::mem::take(&mut self.is_changed).then(|| self.state.clone())
    }

    /// A connection is being made; `seen` is what was counted before.
    pub fn connecting(&mut self, now: Instant, seen: &Seen) {
        self.connection = Some(Connection {
            begun: now,
            live: None,
            at_newest: *seen,
            window: VecDeque::with_capacity(64),
            newest_picture: now,
            is_corrupt: false,
        });
    }

    /// Looks at what was seen up to `now`: at least at each connection's first good picture and several times a second.
    ///
    /// # Errors
    /// [`SourceError::Stale`] when the connection is to be given up.
    pub fn look(&mut self, now: Instant, seen: &Seen) -> Result<(), SourceError> {
        let limits = self.limits;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.note(now, seen, limits.damaged_max);
        let Some(newest) = seen.newest else { return self.look_before_the_first(now, seen) };
        connection.live.get_or_insert(newest);
        self.was_open_in_vain = false;
        let (silent, since) = (now.saturating_duration_since(newest), connection.since(seen));
        let share = connection.share();
        let is_over = |since: Duration| limits.stale_after.is_some_and(|limit| since >= limit);
        let is_stale = is_over(silent);
        if connection.is_corrupt && !is_over(now.saturating_duration_since(connection.newest_picture)) {
            let reason = damage(&share, limits.damaged_max);
            self.enter(CameraState::Corrupt { reason });
            let limit = USELESS_LIMIT.max(limits.stale_after.unwrap_or_default());
            return if is_stale && silent >= limit { Err(stale(limit, &since, true)) } else { Ok(()) };
        }
        if let Some(limit) = limits.stale_after.filter(|_| is_stale) {
            let error = stale(limit, &since, true);
            let was_stale = matches!(self.state, CameraState::Stale { .. });
            if !was_stale {
                self.enter(CameraState::Stale { reason: error.to_string() });
                return Ok(());
            }
            // As long as something comes, it may be mended by the next key frame; and what is late catches up.
            let patience = match since {
                Seen { late: 1.., .. } => USELESS_LIMIT.max(limit),
                Seen { packets: 0, encoded: 0, .. } => limit,
                _ => limit * 2,
            };
            return if silent >= patience { Err(error) } else { Ok(()) };
        }
        self.enter(match seen.sight {
            Sight::Good => CameraState::Live,
            Sight::Frozen => CameraState::Frozen { reason: "its pictures are always the same".to_owned() },
            Sight::Dark => CameraState::Dark { reason: "its pictures are black".to_owned() },
            Sight::WashedOut => CameraState::Dark { reason: "its pictures are white".to_owned() },
            Sight::Uniform => CameraState::Dark { reason: "its pictures are of one colour".to_owned() },
        });
        Ok(())
    }

    /// The connection has ended, or could not be made, for this reason; `wants_a_person` when only a person can mend it.
    /// It is tried again.
    pub fn lost(&mut self, reason: &str, wants_a_person: bool) {
        self.connection = None;
        self.was_open_in_vain |= self.state == CameraState::Prerolling;
        let reason = reason.to_owned();
        self.enter(if wants_a_person {
            CameraState::Failed { reason, is_retried: true }
        } else {
            CameraState::Reconnecting { reason }
        });
    }

    /// There is nothing to be tried again: a file has ended, or cannot be read for this reason.
    pub fn ended(&mut self, reason: Option<String>) {
        self.connection = None;
        self.enter(match reason {
            Some(reason) => CameraState::Failed { reason, is_retried: false },
            None => CameraState::Ended,
        });
    }

    /// How long this connection has been delivering good pictures.
    #[must_use]
    pub fn live_for(&self, now: Instant) -> Duration {
        let live = self.connection.as_ref().and_then(|connection| connection.live);
        // Also of a single picture that came just now.
        live.map_or(Duration::ZERO, |live| now.saturating_duration_since(live).max(Duration::from_nanos(1)))
    }

    fn look_before_the_first(&mut self, now: Instant, seen: &Seen) -> Result<(), SourceError> {
        let connection = self.connection.as_ref().expect("the caller has one");
        let (waited, since) = (now.saturating_duration_since(connection.begun), connection.since(seen));
        let is_told_otherwise = self.was_open_in_vain || matches!(self.state, CameraState::Stale { .. });
        if seen.is_open && !is_told_otherwise {
            self.enter(CameraState::Prerolling);
        }
        let Some(stale_after) = self.limits.stale_after else { return Ok(()) };
        let first = if since.before_key > 0 { KEY_FRAME_LIMIT } else { FIRST_FRAME_LIMIT };
        let limit = first.max(stale_after);
        if waited >= limit { Err(stale(limit, &since, false)) } else { Ok(()) }
    }

    fn enter(&mut self, state: CameraState) {
        // The figures in a reason are those of the moment when the state was entered.
        let is_same = match (&self.state, &state) {
            (CameraState::Reconnecting { .. }, CameraState::Reconnecting { .. })
            | (CameraState::Failed { .. }, CameraState::Failed { .. }) => self.state == state,
            (current, new) => current.name() == new.name() && !is_dark_otherwise(current, new),
        };
        if !is_same {
            (self.state, self.is_changed) = (state, true);
        }
    }
}

impl Connection {
    /// Notes the counts.
    fn note(&mut self, now: Instant, seen: &Seen, damaged_max: f64) {
        if seen.newest != self.at_newest.newest {
            self.at_newest = *seen;
        }
        while self.window.len() > 1
            && self.window.front().is_some_and(|(at, ..)| now.saturating_duration_since(*at) > DAMAGE_WINDOW)
        {
            self.window.pop_front();
        }
        let counts = (now, seen.good, seen.damaged);
        if self.window.back().is_none_or(|(_, good, damaged)| (*good, *damaged) != (counts.1, counts.2)) {
            self.newest_picture = now;
        }
        let before = self.window.iter().nth_back(1);
        if before.is_some_and(|(at, ..)| now.saturating_duration_since(*at) < LOOK) {
            self.window.pop_back();
        }
        self.window.push_back(counts);
        let Share { damaged, all } = self.share();
        if all >= DAMAGE_LEAST {
            let share = ratio(damaged, all);
            // It is over only when it is clearly over, so that the state does not flap.
            self.is_corrupt = share > if self.is_corrupt { damaged_max / 2.0 } else { damaged_max };
        }
    }

    /// What came since the newest good picture.
    fn since(&self, seen: &Seen) -> Seen {
        let then = &self.at_newest;
        Seen {
            packets: seen.packets - then.packets,
            encoded: seen.encoded - then.encoded,
            good: seen.good - then.good,
            damaged: seen.damaged - then.damaged,
            before_key: seen.before_key - then.before_key,
            late: seen.late - then.late,
            ..*seen
        }
    }

    fn share(&self) -> Share {
        let (Some(first), Some(last)) = (self.window.front(), self.window.back()) else {
            return Share { damaged: 0, all: 0 };
        };
        let (good, damaged) = (last.1 - first.1, last.2 - first.2);
        Share { damaged, all: good + damaged }
    }
}

/// How many pictures of the last few seconds are damaged.
#[derive(Clone, Copy, Debug)]
struct Share {
    damaged: u64,
    all: u64,
}

/// Both are dark, and of another kind.
fn is_dark_otherwise(one: &CameraState, other: &CameraState) -> bool {
    matches!((one, other), (CameraState::Dark { reason: one }, CameraState::Dark { reason: other }) if one != other)
}

fn damage(share: &Share, damaged_max: f64) -> String {
    format!(
        "{} of its last {} pictures are damaged, more than {:.0} %; is the network losing packets?",
        share.damaged,
        share.all,
        damaged_max * 100.0
    )
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// That no good picture came for so long, and what came instead. The limit is told, not the measured time: the same cause
/// must read the same, to be told once.
fn stale(limit: Duration, since: &Seen, was_live: bool) -> SourceError {
    let hint = match (since, was_live) {
        (Seen { before_key: 1.., .. }, _) => {
            "pictures come, and not one of them is a key frame; set the camera's key frame interval (GOP, I-frame interval) to a second or two"
        }
        (Seen { damaged: 1.., .. }, _) => "only damaged pictures come; is the network losing packets?",
        (Seen { late: 1.., .. }, _) => {
            "pictures come, and all of them are too old (`late_after`); is the network too slow for them?"
        }
        (Seen { encoded: 1.., .. }, true) => "encoded pictures come, and none of them can be decoded",
        (Seen { encoded: 1.., .. }, false) => {
            "encoded pictures come, but none of them can be decoded; is the network losing packets?"
        }
        (Seen { packets: 1.., .. }, _) => "RTP packets come, and no whole picture among them",
        (_, true) => "nothing comes any more, and the connection seems to be open",
        (_, false) => "the camera accepts the connection and sends no picture; does another transport help?",
    };
    SourceError::Stale { silent: limit, hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { stale_after: Some(Duration::from_secs(3)), damaged_max: 0.2 };

    /// A camera on a table: time passes in steps of 200 ms, as in a source's thread.
    struct Table {
        watch: Watch,
        now: Instant,
        seen: Seen,
        told: Vec<CameraState>,
    }

    impl Table {
        fn new() -> Self {
            Self::with(LIMITS)
        }

        fn with(limits: Limits) -> Self {
            let mut table = Self {
                watch: Watch::new(limits),
                now: Instant::now(),
                seen: Seen::default(),
                told: Vec::new(),
            };
            table.connect();
            table
        }

        fn connect(&mut self) {
            (self.seen.newest, self.seen.is_open) = (None, false);
            self.watch.connecting(self.now, &self.seen);
        }

        /// So many steps, in each of which `happens` to what is seen; until the connection is given up.
        fn steps(
            &mut self,
            count: u32,
            mut happens: impl FnMut(&mut Seen, Instant),
        ) -> Result<(), SourceError> {
            for _ in 0..count {
                self.now += Duration::from_millis(200);
                happens(&mut self.seen, self.now);
                let outcome = self.watch.look(self.now, &self.seen);
                self.told.extend(self.watch.take_change());
                outcome?;
            }
            Ok(())
        }

        fn lost(&mut self, reason: &str) {
            self.watch.lost(reason, false);
            self.told.extend(self.watch.take_change());
        }

        fn names(&mut self) -> Vec<&'static str> {
            std::mem::take(&mut self.told).iter().map(CameraState::name).collect()
        }

        fn reason(&self) -> &str {
            self.watch.state().reason().unwrap_or_default()
        }
    }

    /// Five good pictures in a step.
    fn good(seen: &mut Seen, now: Instant) {
        seen.is_open = true;
        (seen.packets, seen.encoded, seen.good) = (seen.packets + 20, seen.encoded + 5, seen.good + 5);
        seen.newest = Some(now);
    }

    fn nothing(_: &mut Seen, _: Instant) {}

    fn opened(seen: &mut Seen, _: Instant) {
        seen.is_open = true;
    }

    #[test]
    fn a_camera_is_live_at_its_first_picture_and_not_when_it_is_connected() {
        let mut table = Table::new();
        table.steps(3, nothing).unwrap();
        assert_eq!(table.names(), [""; 0]);
        table.steps(3, opened).unwrap();
        assert_eq!(table.names(), ["prerolling"]);
        table.steps(3, good).unwrap();
        assert_eq!(table.names(), ["live"]);
        assert_eq!(table.watch.live_for(table.now), Duration::from_millis(400));
    }

    #[test]
    fn silence_is_told_after_stale_after_and_then_the_connection_is_given_up() {
        let mut table = Table::new();
        table.steps(5, good).unwrap();
        table.steps(14, nothing).unwrap();
        assert_eq!(table.names(), ["live"]);
        table.steps(1, nothing).unwrap();
        assert_eq!(table.names(), ["stale"]);
        let reason = "no frame for 3.0 s: nothing comes any more, and the connection seems to be open";
        assert_eq!(table.reason(), reason);
        assert_eq!(table.steps(1, nothing).unwrap_err().to_string(), reason);
    }

    #[test]
    fn what_still_comes_is_told_and_gets_as_long_again() {
        let mut table = Table::new();
        table.steps(5, good).unwrap();
        let packets = |seen: &mut Seen, _| seen.packets += 20;
        table.steps(29, packets).unwrap();
        assert_eq!(table.names(), ["live", "stale"]);
        assert!(table.reason().ends_with(": RTP packets come, and no whole picture among them"));
        table.steps(1, packets).unwrap_err();
        let mut table = Table::new();
        table.steps(5, good).unwrap();
        table.steps(20, |seen, _| seen.encoded += 5).unwrap();
        assert!(table.reason().ends_with(": encoded pictures come, and none of them can be decoded"));
        table.steps(1, good).unwrap();
        assert_eq!(table.names(), ["live", "stale", "live"]);
    }

    #[test]
    fn a_connection_without_a_picture_is_given_up_and_told_as_what_it_is() {
        let mut table = Table::new();
        let error = table.steps(60, opened).unwrap_err().to_string();
        assert!(
            error.starts_with("no frame for 10.0 s: the camera accepts the connection and sends no"),
            "{error}"
        );
        table.lost(&error);
        table.connect();
        // It is not told as prerolling each time.
        table.steps(60, opened).unwrap_err();
        table.lost(&error);
        assert_eq!(table.names(), ["prerolling", "reconnecting"]);
        table.connect();
        table.steps(1, good).unwrap();
        assert_eq!(table.names(), ["live"]);
    }

    #[test]
    fn a_stream_with_rare_key_frames_gets_the_time_for_one() {
        let delta = |seen: &mut Seen, _| {
            seen.is_open = true;
            (seen.encoded, seen.before_key) = (seen.encoded + 5, seen.before_key + 5);
        };
        let mut table = Table::new();
        table.steps(100, delta).unwrap();
        table.steps(1, good).unwrap();
        assert_eq!(
            table.names(),
            ["prerolling", "live"],
            "20 s to the first one, and none of those is damage"
        );
        let mut table = Table::new();
        let error = table.steps(300, delta).unwrap_err().to_string();
        assert!(
            error.starts_with("no frame for 45.0 s: pictures come, and not one of them is a key"),
            "{error}"
        );
    }

    #[test]
    fn what_is_to_see_is_the_state_while_pictures_come() {
        let mut table = Table::new();
        for sight in [Sight::Good, Sight::Frozen, Sight::Dark, Sight::WashedOut, Sight::Uniform, Sight::Good]
        {
            let sighted = move |seen: &mut Seen, now| {
                good(seen, now);
                seen.sight = sight;
            };
            table.steps(5, sighted).unwrap();
        }
        assert_eq!(table.names(), ["live", "frozen", "dark", "dark", "dark", "live"]);
        // Of a camera that is away nobody knows what it would show.
        table
            .steps(5, |seen, now| {
                good(seen, now);
                seen.sight = Sight::Frozen;
            })
            .unwrap();
        table.steps(15, nothing).unwrap();
        assert_eq!(table.names(), ["frozen", "stale"]);
    }

    #[test]
    fn many_damaged_pictures_are_told_until_they_are_clearly_fewer() {
        let mut table = Table::new();
        table.steps(30, good).unwrap();
        let mixed = |damaged: u64| {
            move |seen: &mut Seen, now| {
                good(seen, now);
                (seen.damaged, seen.encoded) = (seen.damaged + damaged, seen.encoded + damaged);
            }
        };
        table.steps(50, mixed(1)).unwrap();
        assert_eq!(table.names(), ["live"], "a sixth is no more than a fifth");
        table.steps(50, mixed(2)).unwrap();
        assert_eq!(table.names(), ["corrupt"]);
        assert!(table.reason().contains(" pictures are damaged, more than 20 %"), "{}", table.reason());
        table.steps(50, mixed(1)).unwrap();
        assert_eq!(table.names(), [""; 0]);
        table.steps(50, good).unwrap();
        assert_eq!(table.names(), ["live"]);
    }

    #[test]
    fn a_connection_that_delivers_only_damaged_pictures_is_corrupt_and_given_up_in_the_end() {
        let mut table = Table::new();
        table.steps(30, good).unwrap();
        let damaged =
            |seen: &mut Seen, _| (seen.damaged, seen.encoded) = (seen.damaged + 5, seen.encoded + 5);
        table.steps(50, damaged).unwrap();
        assert_eq!(table.names(), ["live", "corrupt"]);
        let error = table.steps(60, damaged).unwrap_err().to_string();
        assert_eq!(error, "no frame for 20.0 s: only damaged pictures come; is the network losing packets?");
    }

    #[test]
    fn a_corrupt_camera_that_falls_silent_is_stale() {
        let mut table = Table::new();
        table.steps(30, good).unwrap();
        table
            .steps(30, |seen, now| {
                good(seen, now);
                seen.damaged += 5;
            })
            .unwrap();
        table.steps(15, nothing).unwrap();
        assert_eq!(table.names(), ["live", "corrupt", "stale"]);
        table.steps(1, nothing).unwrap_err();
    }

    #[test]
    fn a_file_is_as_slow_as_its_frames_are_taken() {
        let mut table = Table::with(Limits { stale_after: None, ..LIMITS });
        table.steps(5, good).unwrap();
        table.steps(1000, nothing).unwrap();
        table.watch.ended(None);
        table.told.extend(table.watch.take_change());
        assert_eq!(table.names(), ["live", "ended"]);
    }

    #[test]
    fn the_same_cause_is_told_once_and_what_a_person_must_mend_is_failed() {
        let mut table = Table::new();
        table.lost("nothing listens");
        table.connect();
        table.lost("nothing listens");
        table.connect();
        table.lost("there is no way to it");
        assert_eq!(table.names(), ["reconnecting", "reconnecting"]);
        table.watch.lost("the password is wrong", true);
        let failed = CameraState::Failed { reason: "the password is wrong".to_owned(), is_retried: true };
        assert_eq!(table.watch.take_change(), Some(failed));
        assert!(!table.watch.state().is_final());
    }
}
