//! Which pictures of a stream are whole: a pure decider.
//!
//! A video decoder makes a picture of whatever comes: grey ones where a connection begins between two key frames, smeared
//! ones after a lost packet, half ones of half the data, and mostly says nothing. What is inferred on such a picture is a
//! lie. So each encoded picture is judged as it goes into the video decoder: it is whole when nothing of it is missing and
//! neither is anything of what it needs. What it needs goes back to the last *key frame*, or in a stream without those to
//! where a *recovery point* says that all has been refreshed.
//!
//! What is only seen as a picture comes out again (the decoder flags it, or complains) spoils all that go back to the same
//! key frame, of which there is one *generation* between two key frames.

use super::bitstream::{Kind, Look};
use crate::telemetry::SkipReason;

/// What becomes of the pictures after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// They are skipped until the next key frame or recovery point.
    Skip,
    /// They are inferred on, but for those that are damaged themselves.
    Infer,
}

impl OnLoss {
    /// Every value, as the config names it.
    pub const NAMES: [&str; 2] = ["skip", "infer"];

    /// The config's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The value that the config names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Skip, Self::Infer].into_iter().find(|value| value.name() == name)
    }
}

/// What is known of an encoded picture before it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    /// What it says of itself.
    pub look: Look,
    /// Whether GStreamer takes it for one that can be decoded by itself; believed where it does not say.
    pub is_key: bool,
    /// When it is shown, in nanoseconds.
    pub pts: Option<u64>,
    /// What is missing.
    pub missing: Missing,
}

/// What is missing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// Nothing that is known of.
    Nothing,
    /// Something between the picture before and this one.
    Before,
    /// A part of this picture.
    Within,
}

/// Pictures that go back to the same key frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// A picture is whole, or it is skipped for a reason.
pub type Verdict = Result<Generation, SkipReason>;

/// Decides for one connection to a camera.
#[derive(Debug)]
pub struct Integrity {
    on_loss: OnLoss,
    state: State,
    generation: Generation,
    /// The newest generation of which a picture turned out to be damaged.
    spoiled: Option<Generation>,
    /// The stream has recovery points; then a picture that can be decoded by itself is none unless it says so.
    has_recovery_points: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What comes needs what is not there.
    Broken(SkipReason),
    /// After so many more pictures that others refer to, all is refreshed.
    Recovering(u32, SkipReason),
    Whole,
    /// Whole since a key frame; what is shown before it, at this time, needs what is not there.
    WholeFrom(u64, SkipReason),
}

impl Integrity {
    /// Nothing has come yet.
    #[must_use]
    pub fn new(on_loss: OnLoss) -> Self {
        Self {
            on_loss,
            state: State::Broken(SkipReason::BeforeKeyFrame),
            generation: Generation(0),
            spoiled: None,
            has_recovery_points: false,
        }
    }

    /// Whether the video decoder has nothing to begin with yet.
    #[must_use]
    pub fn waits_for_a_beginning(&self) -> bool {
        self.state == State::Broken(SkipReason::BeforeKeyFrame)
    }

    /// An encoded picture comes, in the order in which they are decoded.
    ///
    /// # Errors
    /// The reason to skip it.
    pub fn encoded(&mut self, picture: &Encoded) -> Verdict {
        self.has_recovery_points |= picture.look.recovery.is_some();
        let entry = self.entry(picture);
        let was_whole = self.goes_on();
        if picture.missing != Missing::Nothing && self.on_loss == OnLoss::Skip {
            self.state = match self.state {
                // Before the first key frame nothing can be lost.
                State::Broken(reason) | State::Recovering(_, reason) => State::Broken(reason),
                State::Whole | State::WholeFrom(..) => State::Broken(SkipReason::AfterLoss),
            };
        }
        if picture.missing == Missing::Within {
            return Err(if was_whole { SkipReason::Damaged } else { self.reason() });
        }
        match entry {
            Entry::Key => self.begin(State::Whole),
            Entry::OpenKey if self.goes_on() => self.begin(State::Whole),
            Entry::OpenKey => {
                let reason = self.reason();
                self.begin(picture.pts.map_or(State::Whole, |pts| State::WholeFrom(pts, reason)));
            }
            Entry::Recovery(count) => {
                if let State::Broken(reason) = self.state {
                    self.recover(count, reason);
                }
            }
            Entry::Delta => match self.state {
                State::Recovering(left, reason) if picture.look.is_reference => {
                    self.recover(left.saturating_sub(1), reason);
                }
                // Those that are shown before the key frame come right after it.
                State::WholeFrom(first, _) if picture.pts.is_none_or(|pts| pts >= first) => {
                    self.state = State::Whole;
                }
                _ => {}
            },
        }
        match self.state {
            State::Broken(reason) | State::Recovering(_, reason) => Err(reason),
            State::WholeFrom(first, reason) if picture.pts.is_some_and(|pts| pts < first) => Err(reason),
            State::Whole | State::WholeFrom(..) => Ok(self.generation),
        }
    }

    /// A picture of this generation turned out to be damaged.
    pub fn damaged(&mut self, generation: Generation) {
        if self.on_loss == OnLoss::Infer {
            return;
        }
        self.spoiled = self.spoiled.max(Some(generation));
        if generation == self.generation && self.goes_on() {
            self.state = State::Broken(SkipReason::AfterLoss);
        }
    }

    /// The picture that came last turned out to be damaged.
    pub fn newest_is_damaged(&mut self) {
        if self.goes_on() {
            self.damaged(self.generation);
        }
    }

    /// Whether pictures of this generation are still taken for whole as they come out of the video decoder.
    #[must_use]
    pub fn is_whole(&self, generation: Generation) -> bool {
        self.spoiled.is_none_or(|spoiled| generation > spoiled)
    }

    fn entry(&self, picture: &Encoded) -> Entry {
        match (picture.look.kind, picture.look.recovery) {
            (Some(Kind::Closed), _) => Entry::Key,
            (Some(Kind::Open), _) | (Some(Kind::Intra), Some(0)) => Entry::OpenKey,
            (_, Some(count)) => Entry::Recovery(count),
            // Encoders make such pictures at a change of scene too, which are no beginning; but where nothing better ever
            // comes, they are all there is.
            (Some(Kind::Intra), None) if !self.has_recovery_points => Entry::OpenKey,
            (Some(_), None) => Entry::Delta,
            (None, None) if picture.is_key => Entry::Key,
            (None, None) => Entry::Delta,
        }
    }

    /// Whether what comes next is whole when nothing of it is missing.
    fn goes_on(&self) -> bool {
        matches!(self.state, State::Whole | State::WholeFrom(..))
    }

    fn begin(&mut self, state: State) {
        (self.state, self.generation) = (state, Generation(self.generation.0 + 1));
    }

    fn recover(&mut self, left: u32, reason: SkipReason) {
        if left == 0 {
            self.begin(State::Whole);
        } else {
            self.state = State::Recovering(left, reason);
        }
    }

    fn reason(&self) -> SkipReason {
        match self.state {
            State::Broken(reason) | State::Recovering(_, reason) | State::WholeFrom(_, reason) => reason,
            State::Whole => SkipReason::AfterLoss,
        }
    }
}

/// What a picture is to those that come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// All that come after it are whole.
    Key,
    /// All that are shown after it are whole.
    OpenKey,
    /// All are whole after so many more.
    Recovery(u32),
    /// It needs the ones before it.
    Delta,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use SkipReason::{AfterLoss, BeforeKeyFrame, Damaged};

    const KEY: Encoded = of(Some(Kind::Closed), None);
    const OPEN_KEY: Encoded = of(Some(Kind::Intra), Some(0));
    const DELTA: Encoded = of(Some(Kind::Inter), None);
    const JPEG: Encoded = Encoded { is_key: true, ..of(None, None) };

    const fn of(kind: Option<Kind>, recovery: Option<u32>) -> Encoded {
        let look = Look { kind, recovery, is_reference: true };
        Encoded { look, is_key: false, pts: None, missing: Missing::Nothing }
    }

    fn after_a_loss(picture: Encoded) -> Encoded {
        Encoded { missing: Missing::Before, ..picture }
    }

    fn half(picture: Encoded) -> Encoded {
        Encoded { missing: Missing::Within, ..picture }
    }

    fn shown_at(pts: u64, picture: Encoded) -> Encoded {
        Encoded { pts: Some(pts), ..picture }
    }

    fn seen(integrity: &mut Integrity, pictures: &[Encoded]) -> Vec<Option<SkipReason>> {
        pictures.iter().map(|picture| integrity.encoded(picture).err()).collect()
    }

    fn skipping(pictures: &[Encoded]) -> Vec<Option<SkipReason>> {
        seen(&mut Integrity::new(OnLoss::Skip), pictures)
    }

    #[test]
    fn names_come_back() {
        for name in OnLoss::NAMES {
            assert_eq!(OnLoss::from_name(name).map(OnLoss::name), Some(name));
        }
        assert_eq!(OnLoss::from_name("ignore"), None);
    }

    #[test]
    fn nothing_is_whole_before_the_first_key_frame() {
        for on_loss in [OnLoss::Skip, OnLoss::Infer] {
            let mut integrity = Integrity::new(on_loss);
            assert!(integrity.waits_for_a_beginning());
            let pictures = [after_a_loss(DELTA), DELTA, half(KEY), DELTA, after_a_loss(KEY), DELTA];
            let before = Some(BeforeKeyFrame);
            assert_eq!(seen(&mut integrity, &pictures), [before, before, before, before, None, None]);
            assert!(!integrity.waits_for_a_beginning());
        }
    }

    #[test]
    fn after_a_loss_nothing_is_whole_until_the_next_key_frame() {
        let pictures = [KEY, DELTA, after_a_loss(DELTA), DELTA, KEY, DELTA];
        assert_eq!(skipping(&pictures), [None, None, Some(AfterLoss), Some(AfterLoss), None, None]);
        let pictures = [KEY, after_a_loss(KEY), DELTA];
        assert_eq!(skipping(&pictures), [None; 3], "a key frame needs nothing that was lost before it");
    }

    #[test]
    fn a_damaged_picture_and_those_that_need_it_are_skipped() {
        let pictures = [KEY, half(DELTA), DELTA, half(KEY), DELTA, KEY];
        let after = Some(AfterLoss);
        assert_eq!(skipping(&pictures), [None, Some(Damaged), after, after, after, None]);
        assert_eq!(skipping(&[KEY, half(KEY), DELTA]), [None, Some(Damaged), after]);
    }

    #[test]
    fn where_a_loss_is_to_be_inferred_on_only_what_is_damaged_itself_is_skipped() {
        let mut integrity = Integrity::new(OnLoss::Infer);
        let pictures = [KEY, after_a_loss(DELTA), DELTA, half(DELTA), DELTA, after_a_loss(OPEN_KEY)];
        assert_eq!(seen(&mut integrity, &pictures), [None, None, None, Some(Damaged), None, None]);
        let generation = integrity.encoded(&DELTA).unwrap();
        integrity.damaged(generation);
        assert!(integrity.is_whole(generation));
        assert!(integrity.encoded(&DELTA).is_ok());
    }

    #[test]
    fn of_motion_jpeg_only_the_half_pictures_are_skipped() {
        assert_eq!(skipping(&[JPEG, half(JPEG), JPEG, JPEG]), [None, Some(Damaged), None, None]);
    }

    #[test]
    fn a_stream_without_key_frames_is_whole_once_all_has_been_refreshed() {
        let point = of(Some(Kind::Inter), Some(3));
        let unused = Encoded { look: Look { is_reference: false, ..DELTA.look }, ..DELTA };
        let before = Some(BeforeKeyFrame);
        let pictures = [DELTA, point, DELTA, unused, DELTA, DELTA, DELTA, point, DELTA];
        let expected = [before, before, before, before, before, None, None, None, None];
        assert_eq!(skipping(&pictures), expected, "the third that others refer to is whole");
        let again = [point, DELTA, after_a_loss(DELTA), DELTA, DELTA, DELTA, point, DELTA, DELTA, DELTA];
        assert_eq!(skipping(&again).iter().position(Option::is_none), Some(9), "a loss begins it anew");
    }

    #[test]
    fn a_repeated_recovery_point_does_not_put_the_end_off() {
        let point = of(Some(Kind::Inter), Some(3));
        assert_eq!(skipping(&[point, DELTA, point, DELTA]).last(), Some(&Some(BeforeKeyFrame)));
        assert_eq!(skipping(&[point, DELTA, DELTA, DELTA]).last(), Some(&None));
    }

    #[test]
    fn what_is_shown_before_the_first_open_key_frame_needs_what_is_not_there() {
        let pictures = [
            shown_at(300, OPEN_KEY),
            shown_at(100, DELTA),
            shown_at(200, DELTA),
            shown_at(600, DELTA),
            shown_at(400, DELTA),
            // In the middle of a whole stream what comes before is there.
            shown_at(900, OPEN_KEY),
            shown_at(700, DELTA),
            shown_at(1000, after_a_loss(DELTA)),
            shown_at(1300, OPEN_KEY),
            shown_at(1100, DELTA),
            shown_at(1400, DELTA),
        ];
        let (before, after) = (Some(BeforeKeyFrame), Some(AfterLoss));
        let expected = [None, before, before, None, None, None, None, after, None, after, None];
        assert_eq!(skipping(&pictures), expected);
    }

    #[test]
    fn a_picture_that_only_happens_to_be_independent_is_a_beginning_where_there_is_nothing_better() {
        let scene = of(Some(Kind::Intra), None);
        assert_eq!(skipping(&[scene, DELTA]), [None, None]);
        let point = of(Some(Kind::Inter), Some(5));
        let (before, after) = (Some(BeforeKeyFrame), Some(AfterLoss));
        assert_eq!(skipping(&[point, scene, DELTA]), [before; 3]);
        assert_eq!(skipping(&[point, KEY, after_a_loss(DELTA), scene]), [before, None, after, after]);
        let random_access = of(Some(Kind::Open), None);
        assert_eq!(skipping(&[point, random_access]), [before, None], "that one promises it");
    }

    #[test]
    fn damage_that_shows_when_a_picture_comes_out_spoils_what_goes_back_to_its_key_frame() {
        let mut integrity = Integrity::new(OnLoss::Skip);
        let first = integrity.encoded(&KEY).unwrap();
        assert!(integrity.is_whole(first));
        integrity.damaged(first);
        assert!(!integrity.is_whole(first), "those that are still inside too");
        assert_eq!(integrity.encoded(&DELTA), Err(AfterLoss));
        let second = integrity.encoded(&KEY).unwrap();
        assert!(integrity.is_whole(second));
        integrity.damaged(first);
        assert!(integrity.is_whole(second), "one of before that comes out late");
        assert_eq!(integrity.encoded(&DELTA), Ok(second));
    }

    fn anything() -> impl Strategy<Value = Encoded> {
        let kind =
            prop::option::of(prop::sample::select(vec![Kind::Closed, Kind::Open, Kind::Intra, Kind::Inter]));
        let missing = prop::sample::select(vec![
            Missing::Nothing,
            Missing::Nothing,
            Missing::Nothing,
            Missing::Before,
            Missing::Within,
        ]);
        (kind, prop::option::of(0..4_u32), any::<(bool, bool)>(), prop::option::of(0..9_u64), missing)
            .prop_map(|(kind, recovery, (is_reference, is_key), pts, missing)| {
                let look = Look { kind, recovery, is_reference };
                Encoded { look, is_key, pts, missing }
            })
    }

    proptest! {
        #[test]
        fn after_a_loss_the_first_whole_picture_has_a_beginning_before_it(
            pictures in prop::collection::vec(anything(), 0..60),
        ) {
            let mut integrity = Integrity::new(OnLoss::Skip);
            // Whether something that may begin has come since the last loss.
            let mut begun = false;
            for picture in &pictures {
                begun &= picture.missing == Missing::Nothing;
                let may_begin = picture.look.recovery.is_some()
                    || matches!(picture.look.kind, Some(Kind::Closed | Kind::Open | Kind::Intra))
                    || (picture.look.kind.is_none() && picture.is_key);
                begun |= may_begin && picture.missing != Missing::Within;
                let verdict = integrity.encoded(picture);
                prop_assert!(verdict.is_err() || begun, "{picture:?}");
                prop_assert!(verdict.is_err() || picture.missing != Missing::Within);
            }
        }
    }
}
