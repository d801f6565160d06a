//! Which pictures are whole: what GStreamer knows of a picture, for the decider in [`crate::source::integrity`].

use super::complaints;
use super::decoder_probe::Arrival;
use crate::source::bitstream::{Form, Framing, Kind, Look, Reader, jpeg_has_end};
use crate::source::integrity::{Encoded, Integrity, Missing, OnLoss, Verdict};
use crate::source::rtp::Received;
use crate::source::thinning::Picture;
use crate::telemetry::SkipReason;

/// Whether the pictures are taken as they come, rather than read. What a file lacks is no loss of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Live,
    Read,
}

/// Judges the pictures of one connection.
#[derive(Debug)]
pub(super) struct Judge {
    liveness: Liveness,
    form: Form,
    integrity: Integrity,
    /// The video decoder flags whatever it began with in the middle of a stream, whole or not.
    flags_say_nothing: bool,
}

/// What is to be said of an encoded picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// Whether it can be decoded by itself.
    pub(super) picture: Picture,
    /// Whether it is whole.
    pub(super) verdict: Verdict,
    /// Whether there is nothing yet that it could be decoded from.
    pub(super) has_no_beginning: bool,
    /// Whether it is a key frame that does not say that nothing before it is shown after it.
    pub(super) is_open_key: bool,
}

impl Judge {
    pub(super) fn new(on_loss: OnLoss, liveness: Liveness) -> Self {
        let integrity = Integrity::new(on_loss);
        Self { liveness, form: Form::Other, integrity, flags_say_nothing: false }
    }

    /// The encoded pictures that follow have these caps.
    pub(super) fn caps(&mut self, caps: &gst::CapsRef) {
        self.form = form(caps);
    }

    /// An encoded picture comes to the video decoder, with what is known of its packets.
    pub(super) fn encoded(&mut self, buffer: &gst::BufferRef, received: Option<&Received>) -> Judged {
        self.heed_complaints();
        let look = look(self.form, buffer);
        let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        let pts = buffer.pts().map(gst::ClockTime::nseconds);
        let missing = match self.liveness {
            Liveness::Live => missing(self.form, buffer, received),
            Liveness::Read => Missing::Nothing,
        };
        let verdict = self.integrity.encoded(&Encoded { look, is_key, pts, missing });
        let picture = if is_key && look.kind != Some(Kind::Inter) { Picture::Key } else { Picture::Delta };
        let is_open_key = matches!(look.kind, Some(Kind::Open | Kind::Intra));
        let has_no_beginning = self.integrity.waits_for_a_beginning();
        Judged { picture, verdict, has_no_beginning, is_open_key }
    }

    /// A picture has come out of the video decoder, which is known to have entered it so; `newest` is the number of the
    /// last one that did. Returns why it is skipped, if it is.
    pub(super) fn decoded(
        &mut self,
        buffer: &gst::BufferRef,
        arrival: Option<&Arrival>,
        newest: u64,
    ) -> Option<SkipReason> {
        let complained = self.heed_complaints();
        let is_flagged =
            self.liveness == Liveness::Live && buffer.flags().contains(gst::BufferFlags::CORRUPTED);
        // libav trusts no key frame but one that nothing is shown before, and flags all until it gets such a one.
        self.flags_say_nothing &= is_flagged;
        self.flags_say_nothing |= is_flagged && arrival.is_some_and(|arrival| arrival.is_open_key);
        let is_corrupt = is_flagged && !self.flags_say_nothing;
        let Some(arrival) = arrival else { return is_corrupt.then_some(SkipReason::Damaged) };
        match arrival.verdict {
            Err(reason) => Some(reason),
            Ok(generation) if is_corrupt => {
                self.integrity.damaged(generation);
                Some(SkipReason::Damaged)
            }
            Ok(_) if complained && arrival.number == newest => Some(SkipReason::Damaged),
            Ok(generation) if !self.integrity.is_whole(generation) => Some(SkipReason::AfterLoss),
            Ok(_) => arrival.is_late.then_some(SkipReason::Late),
        }
    }

    /// The video decoder may have complained of the newest picture since the last look.
    fn heed_complaints(&mut self) -> bool {
        let complained = complaints::take() && self.liveness == Liveness::Live;
        if complained {
            self.integrity.newest_is_damaged();
        }
        complained
    }
}

fn missing(form: Form, buffer: &gst::BufferRef, received: Option<&Received>) -> Missing {
    // V4L2 flags a picture that its driver took for damaged.
    if buffer.flags().contains(gst::BufferFlags::CORRUPTED) || lacks_its_end(form, buffer) {
        return Missing::Within;
    }
    match received.and_then(|received| received.missing) {
        // Its packets were seen themselves.
        Some(missing) => missing,
        None if buffer.flags().contains(gst::BufferFlags::DISCONT) => Missing::Before,
        None => Missing::Nothing,
    }
}

fn form(caps: &gst::CapsRef) -> Form {
    let Some(structure) = caps.structure(0) else { return Form::Other };
    let framing = |length_at: usize| match structure.get::<&str>("stream-format").ok()? {
        "byte-stream" => Some(Framing::ByteStream),
        "avc" | "avc3" | "hvc1" | "hev1" => {
            let description = structure.get::<gst::Buffer>("codec_data").ok();
            let description = description.as_ref().and_then(|description| description.map_readable().ok());
            let length = description.and_then(|bytes| bytes.get(length_at).copied());
            Some(Framing::Length(length.map_or(4, |length| usize::from(length & 3) + 1)))
        }
        _ => None,
    };
    match structure.name().as_str() {
        "video/x-h264" => framing(4).map_or(Form::Other, Form::H264),
        "video/x-h265" => framing(21).map_or(Form::Other, Form::H265),
        "image/jpeg" => Form::Jpeg,
        _ => Form::Other,
    }
}

/// Each piece of memory is mapped by itself: the whole would be copied together.
fn look(form: Form, buffer: &gst::BufferRef) -> Look {
    let mut reader = Reader::new(form);
    for memory in buffer.iter_memories() {
        if !reader.wants_more() {
            break;
        }
        let Ok(bytes) = memory.map_readable() else { break };
        reader.read(&bytes);
    }
    reader.look()
}

fn lacks_its_end(form: Form, buffer: &gst::BufferRef) -> bool {
    if form != Form::Jpeg || buffer.n_memory() == 0 {
        return false;
    }
    let last = buffer.peek_memory(buffer.n_memory() - 1).map_readable();
    last.is_ok_and(|bytes| !jpeg_has_end(&bytes))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;
    use std::time::Instant;

    use super::*;

    fn form_of(caps: &str) -> Form {
        gst::init().unwrap();
        form(&gst::Caps::from_str(caps).unwrap())
    }

    fn jpeg(bytes: &[u8], flags: gst::BufferFlags) -> gst::Buffer {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::from_slice(bytes.to_vec());
        buffer.get_mut().unwrap().set_flags(flags);
        buffer
    }

    fn judge(on_loss: OnLoss, liveness: Liveness) -> Judge {
        gst::init().unwrap();
        let mut judge = Judge::new(on_loss, liveness);
        judge.caps(&gst::Caps::from_str("image/jpeg").unwrap());
        judge
    }

    const WHOLE: &[u8] = &[0xff, 0xd8, 1, 2, 3, 0xff, 0xd9];
    const HALF: &[u8] = &[0xff, 0xd8, 1, 2, 3];
    const PLAIN: gst::BufferFlags = gst::BufferFlags::empty();

    #[test]
    fn the_form_of_encoded_pictures_is_what_their_caps_say() {
        assert_eq!(form_of("video/x-h264,stream-format=byte-stream"), Form::H264(Framing::ByteStream));
        let avc = "video/x-h264,stream-format=avc,codec_data=(buffer)0142c01efd";
        assert_eq!(form_of(avc), Form::H264(Framing::Length(2)));
        assert_eq!(form_of("video/x-h265,stream-format=hev1"), Form::H265(Framing::Length(4)));
        assert_eq!(form_of("image/jpeg,width=640"), Form::Jpeg);
        assert_eq!(form_of("video/x-h264"), Form::Other, "nothing says how it is written");
        assert_eq!(form_of("video/x-vp8"), Form::Other);
    }

    #[test]
    fn half_a_jpeg_and_one_that_the_driver_flags_are_damaged() {
        let mut judge = judge(OnLoss::Skip, Liveness::Live);
        let mut verdict = |bytes, flags| judge.encoded(&jpeg(bytes, flags), None).verdict.err();
        assert_eq!(verdict(WHOLE, gst::BufferFlags::DISCONT), None);
        assert_eq!(verdict(HALF, PLAIN), Some(SkipReason::Damaged));
        assert_eq!(verdict(WHOLE, PLAIN), None);
        assert_eq!(verdict(WHOLE, gst::BufferFlags::CORRUPTED), Some(SkipReason::Damaged));
    }

    #[test]
    fn what_a_file_lacks_is_decoded_as_it_is() {
        let mut judge = judge(OnLoss::Skip, Liveness::Read);
        assert!(judge.encoded(&jpeg(HALF, PLAIN), None).verdict.is_ok());
    }

    #[test]
    fn a_picture_that_comes_out_with_a_flag_spoils_its_generation() {
        let mut judge = judge(OnLoss::Skip, Liveness::Live);
        let mut entered = || {
            let judged = judge.encoded(&jpeg(WHOLE, PLAIN), None);
            Arrival { verdict: judged.verdict, ..Arrival::at(Instant::now()) }
        };
        let (first, second) = (entered(), entered());
        let plain = gst::Buffer::with_size(1).unwrap();
        let flagged = jpeg(&[], gst::BufferFlags::CORRUPTED);
        assert_eq!(judge.decoded(&flagged, Some(&first), 0), Some(SkipReason::Damaged));
        assert_eq!(judge.decoded(&plain, Some(&first), 0), Some(SkipReason::AfterLoss));
        assert_eq!(judge.decoded(&plain, Some(&second), 0), None);
        let late = Arrival { is_late: true, ..second };
        assert_eq!(judge.decoded(&plain, Some(&late), 0), Some(SkipReason::Late));
        assert_eq!(judge.decoded(&plain, None, 0), None, "raw pictures have no packets");
        assert_eq!(judge.decoded(&flagged, None, 0), Some(SkipReason::Damaged));
    }

    #[test]
    fn a_decoder_that_flags_an_open_key_frame_flags_whatever_comes() {
        let mut judge = judge(OnLoss::Skip, Liveness::Live);
        let verdict = judge.encoded(&jpeg(WHOLE, PLAIN), None).verdict;
        let delta = Arrival { verdict, ..Arrival::at(Instant::now()) };
        let key = Arrival { is_open_key: true, ..delta };
        let (plain, flagged) = (jpeg(&[], PLAIN), jpeg(&[], gst::BufferFlags::CORRUPTED));
        for (arrival, buffer) in [(&key, &flagged), (&delta, &flagged), (&delta, &plain)] {
            assert_eq!(judge.decoded(buffer, Some(arrival), 0), None);
        }
        assert_eq!(
            judge.decoded(&flagged, Some(&delta), 0),
            Some(SkipReason::Damaged),
            "now it says something"
        );
    }
}
