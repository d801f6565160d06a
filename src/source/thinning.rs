//! Which encoded pictures are worth decoding: a pure decider.
//!
//! Most pictures of a stream can only be decoded after the ones before them; a *key frame* can be decoded by itself. A camera
//! of which every model wants one frame a second, and whose key frames come each second, needs nothing else decoded. In
//! Motion JPEG every picture is a key frame, so there any rate will do.
//!
//! [`VideoDecode::Auto`] decodes key frames only while they come as often as the fastest model wants frames, and only where
//! a key frame leaves the video decoder before the next picture goes in: in a stream with B-frames a decoder holds each
//! picture back until another one came, which would make every frame as old as the time between two key frames.

use std::time::{Duration, Instant};

use crate::frame::outlet::Pace;

/// What a camera's video decoder is given to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoDecode {
    /// Every picture.
    All,
    /// Key frames only.
    Keyframes,
    /// Key frames only where that is enough.
    Auto,
}

impl VideoDecode {
    /// Every value, as the config names it.
    pub const NAMES: [&str; 3] = ["all", "keyframes", "auto"];

    /// The config's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The value that the config names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::All, Self::Keyframes, Self::Auto].into_iter().find(|value| value.name() == name)
    }
}

/// What kind of encoded picture it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// It can be decoded by itself.
    Key,
    /// It needs the ones before it.
    Delta,
}

/// What to do with an encoded picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The video decoder gets it.
    Decode,
    /// It does not.
    Skip,
}

/// So many times in a row must key frames come soon enough before they are relied on.
const STEADY: u32 = 3;

/// Decides for one connection to a camera.
#[derive(Debug)]
pub struct Thinning {
    mode: VideoDecode,
    /// How often the fastest model wants a frame; none where one wants all there are.
    period: Option<Duration>,
    state: State,
    /// Which of many key frames are decoded.
    pace: Option<Pace>,
    newest_key: Option<Instant>,
    /// How long after the one before the newest key frame came.
    interval: Duration,
    /// How many key frames in a row came soon enough.
    steady: u32,
    /// The number of a key frame that went into the video decoder and has not come out.
    inside: Option<u64>,
    /// The video decoder holds key frames back.
    held_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Everything,
    KeysOnly,
    /// Key frames have become too rare. What comes before the next one cannot be decoded.
    WaitingForKey,
}

impl Thinning {
    /// Nothing is known of the stream yet. `period` is how often the fastest model wants a frame, none where one wants all.
    #[must_use]
    pub fn new(mode: VideoDecode, period: Option<Duration>) -> Self {
        let state = if mode == VideoDecode::Keyframes { State::KeysOnly } else { State::Everything };
        Self {
            mode,
            period,
            state,
            pace: period.map(Pace::every),
            newest_key: None,
            interval: Duration::ZERO,
            steady: 0,
            inside: None,
            held_back: false,
        }
    }

    /// What the config asks for.
    #[must_use]
    pub fn mode(&self) -> VideoDecode {
        self.mode
    }

    /// An encoded picture of the stream's time `at` comes.
    pub fn encoded(&mut self, picture: Picture, at: Instant) -> Verdict {
        if self.inside.take().is_some() {
            self.held_back = true;
            if self.mode == VideoDecode::Auto && self.state == State::KeysOnly {
                self.state = State::WaitingForKey;
            }
        }
        match picture {
            Picture::Key => self.key(at),
            Picture::Delta => self.delta(at),
        }
    }

    /// A key frame goes into the video decoder, as its picture `number`; told where it matters whether it comes out before
    /// the next picture goes in.
    pub fn key_goes_in(&mut self, number: u64) {
        self.inside = Some(number);
    }

    /// The picture `number` has come out of the video decoder.
    pub fn comes_out(&mut self, number: u64) {
        if self.inside == Some(number) {
            self.inside = None;
        }
    }

    /// How far apart frames come while only key frames are decoded, where the source already keeps to the rate.
    #[must_use]
    pub fn spacing(&self) -> Option<Duration> {
        let period = self.period.unwrap_or_default();
        (self.state == State::KeysOnly).then(|| self.interval.max(period))
    }

    /// How long after the one before the newest key frame came; none before the second.
    #[must_use]
    pub fn key_interval(&self) -> Option<Duration> {
        (!self.interval.is_zero()).then_some(self.interval)
    }

    /// Whether the video decoder was seen to hold key frames back.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.held_back
    }

    fn key(&mut self, at: Instant) -> Verdict {
        if let Some(before) = self.newest_key.replace(at) {
            self.interval = at.saturating_duration_since(before);
            self.steady = if self.is_soon_enough(self.interval) { self.steady + 1 } else { 0 };
        }
        if self.mode == VideoDecode::Auto {
            let enough = self.steady >= STEADY && !self.held_back;
            self.state = if enough { State::KeysOnly } else { State::Everything };
        }
        if self.state == State::KeysOnly
            && let Some(pace) = &mut self.pace
            && !pace.admit(at, self.interval)
        {
            return Verdict::Skip;
        }
        Verdict::Decode
    }

    fn delta(&mut self, at: Instant) -> Verdict {
        let since_key = self.newest_key.map_or(Duration::ZERO, |key| at.saturating_duration_since(key));
        if self.mode == VideoDecode::Auto && self.state == State::KeysOnly && !self.is_soon_enough(since_key)
        {
            (self.state, self.steady) = (State::WaitingForKey, 0);
        }
        if self.state == State::Everything { Verdict::Decode } else { Verdict::Skip }
    }

    /// An eighth later than wanted is soon enough: a camera's clock runs as it likes.
    fn is_soon_enough(&self, interval: Duration) -> bool {
        self.period.is_some_and(|period| interval <= period + period / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of 25 frames a second with a key frame each `keys` frames, for `seconds`; what is decoded of it, by number.
    fn decoded(thinning: &mut Thinning, keys: u64, seconds: u64) -> Vec<u64> {
        let start = Instant::now();
        let verdict = |n: u64, thinning: &mut Thinning| {
            let picture = if n.is_multiple_of(keys) { Picture::Key } else { Picture::Delta };
            thinning.encoded(picture, start + Duration::from_millis(n * 40))
        };
        (0..seconds * 25).filter(|n| verdict(*n, thinning) == Verdict::Decode).collect()
    }

    fn auto(rate_max: f64) -> Thinning {
        Thinning::new(VideoDecode::Auto, Some(Duration::from_secs_f64(1.0 / rate_max)))
    }

    #[test]
    fn names_come_back() {
        for name in VideoDecode::NAMES {
            assert_eq!(VideoDecode::from_name(name).map(VideoDecode::name), Some(name));
        }
        assert_eq!(VideoDecode::from_name("some"), None);
    }

    #[test]
    fn key_frames_each_second_are_enough_for_one_frame_a_second() {
        let seen = decoded(&mut auto(1.0), 25, 10);
        assert_eq!(seen[..76], (0..76).collect::<Vec<_>>(), "until three in a row have come in time");
        assert_eq!(seen[76..], [100, 125, 150, 175, 200, 225]);
    }

    #[test]
    fn key_frames_that_are_rarer_than_frames_are_wanted_change_nothing() {
        assert_eq!(decoded(&mut auto(2.0), 25, 10).len(), 250);
        assert_eq!(decoded(&mut auto(1.0), 250, 30).len(), 750);
    }

    #[test]
    fn who_wants_every_frame_gets_every_picture_decoded() {
        assert_eq!(decoded(&mut Thinning::new(VideoDecode::Auto, None), 25, 10).len(), 250);
        let all = Thinning::new(VideoDecode::All, Some(Duration::from_secs(1)));
        assert_eq!(decoded(&mut { all }, 25, 10).len(), 250);
    }

    #[test]
    fn key_frames_only_is_from_the_first_one_on_and_for_ever() {
        let mut thinning = Thinning::new(VideoDecode::Keyframes, None);
        assert_eq!(decoded(&mut thinning, 50, 10), [0, 50, 100, 150, 200]);
        assert_eq!(thinning.spacing(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn of_motion_jpeg_as_many_pictures_are_decoded_as_are_wanted() {
        let seen = decoded(&mut auto(10.0), 1, 100);
        let last_100 = &seen[seen.len() - 100..];
        let pictures = last_100[99] - last_100[0];
        assert!((247..=248).contains(&pictures), "9.9 s of 25 pictures a second: {pictures}");
    }

    #[test]
    fn when_key_frames_become_rare_everything_is_decoded_from_the_next_one_on() {
        let (start, mut thinning) = (Instant::now(), auto(1.0));
        let at = |ms: u64| start + Duration::from_millis(ms);
        for second in 0..5 {
            assert_eq!(thinning.encoded(Picture::Key, at(second * 1000)), Verdict::Decode);
        }
        assert_eq!(thinning.encoded(Picture::Delta, at(4040)), Verdict::Skip);
        assert_eq!(
            thinning.encoded(Picture::Delta, at(5200)),
            Verdict::Skip,
            "it needs pictures that were skipped"
        );
        assert_eq!(thinning.spacing(), None);
        assert_eq!(thinning.encoded(Picture::Key, at(6000)), Verdict::Decode);
        assert_eq!(thinning.encoded(Picture::Delta, at(6040)), Verdict::Decode);
    }

    #[test]
    fn a_decoder_that_holds_key_frames_back_gets_every_picture() {
        let (start, mut thinning) = (Instant::now(), auto(1.0));
        let at = |ms: u64| start + Duration::from_millis(ms);
        for second in 0..10 {
            assert_eq!(thinning.encoded(Picture::Key, at(second * 1000)), Verdict::Decode);
            thinning.key_goes_in(second);
            thinning.comes_out(second.wrapping_sub(1));
            assert_eq!(thinning.encoded(Picture::Delta, at(second * 1000 + 40)), Verdict::Decode);
        }
        assert!(thinning.is_held_back());
    }

    #[test]
    fn a_decoder_that_begins_to_hold_back_gets_every_picture_from_the_next_key_frame_on() {
        let (start, mut thinning) = (Instant::now(), auto(1.0));
        let at = |ms: u64| start + Duration::from_millis(ms);
        for second in 0..5 {
            thinning.encoded(Picture::Key, at(second * 1000));
            thinning.key_goes_in(second);
            thinning.comes_out(second);
        }
        assert_eq!(thinning.encoded(Picture::Delta, at(4040)), Verdict::Skip);
        thinning.encoded(Picture::Key, at(5000));
        thinning.key_goes_in(5);
        assert_eq!(
            thinning.encoded(Picture::Delta, at(5040)),
            Verdict::Skip,
            "it needs pictures that were skipped"
        );
        assert_eq!(thinning.encoded(Picture::Key, at(6000)), Verdict::Decode);
        assert_eq!(thinning.encoded(Picture::Delta, at(6040)), Verdict::Decode);
    }

    #[test]
    fn a_stream_whose_time_jumps_back_is_decoded_on() {
        let (start, mut thinning) = (Instant::now() + Duration::from_secs(1000), auto(1.0));
        for second in 0..5 {
            thinning.encoded(Picture::Key, start + Duration::from_secs(second));
        }
        let back = start - Duration::from_secs(900);
        let verdicts: Vec<_> =
            (0..5).map(|second| thinning.encoded(Picture::Key, back + Duration::from_secs(second))).collect();
        assert_eq!(verdicts[1..], [Verdict::Decode; 4], "at most one is lost");
    }
}
