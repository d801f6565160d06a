//! What an encoded picture says of itself: pure, over bytes that anybody may have sent.
//!
//! Of H.264 and H.265 only the first numbers of each unit are read: whether the picture can be decoded by itself, and the
//! *recovery point* that a stream without key frames has in their place (its pictures are refreshed bit by bit; from such
//! a point on so many pictures are needed until all is refreshed). Of JPEG it is read whether its end is there.

/// How encoded pictures are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// H.264.
    H264(Framing),
    /// H.265.
    H265(Framing),
    /// JPEG, each picture by itself.
    Jpeg,
    /// Any other; nothing is read of it.
    #[default]
    Other,
}

/// How the units of a picture are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Start codes.
    ByteStream,
    /// The length comes first, in so many bytes.
    Length(usize),
}

/// What a picture says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// How far it can be decoded by itself; none where that was not found.
    pub kind: Option<Kind>,
    /// After how many more pictures all is refreshed, where this is a recovery point.
    pub recovery: Option<u32>,
    /// Whether a later picture may need it.
    pub is_reference: bool,
}

/// How far a picture can be decoded by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It, and all that come after it.
    Closed,
    /// It, and all that are shown after it.
    Open,
    /// It; whether those after it need what was before is not said.
    Intra,
    /// It needs the ones before it.
    Inter,
}

/// Reads pictures of this form, of which each piece of memory begins with a unit.
#[derive(Debug)]
pub struct Reader {
    form: Form,
    kind: Option<Kind>,
    recovery: Option<u32>,
    is_reference: bool,
    /// More may be found.
    is_open: bool,
}

impl Reader {
    /// Nothing has been read yet.
    #[must_use]
    pub fn new(form: Form) -> Self {
        let is_open = matches!(form, Form::H264(_) | Form::H265(_));
        Self { form, kind: None, recovery: None, is_reference: true, is_open }
    }

    /// Whether the next piece of memory may say more.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.is_open
    }

    /// Reads a piece of memory.
    pub fn read(&mut self, bytes: &[u8]) {
        match self.form {
            Form::H264(framing) | Form::H265(framing) => self.units(framing, bytes),
            Form::Jpeg | Form::Other => {}
        }
    }

    /// What was found.
    #[must_use]
    pub fn look(&self) -> Look {
        Look { kind: self.kind, recovery: self.recovery, is_reference: self.is_reference }
    }

    fn units(&mut self, framing: Framing, mut bytes: &[u8]) {
        while self.is_open {
            let next = match framing {
                Framing::ByteStream => after_start_code(bytes),
                Framing::Length(size) => after_length(bytes, size),
            };
            let Some((unit, rest)) = next else { return };
            bytes = rest;
            match self.form {
                Form::H264(_) => self.h264(unit),
                Form::H265(_) => self.h265(unit),
                Form::Jpeg | Form::Other => return,
            }
        }
    }

    fn h264(&mut self, unit: &[u8]) {
        let [header, rest @ ..] = unit else { return };
        match header & 31 {
            5 => self.slice(Kind::Closed, true),
            1 => {
                let mut bits = Bits::new(rest);
                let (_first, slice_type) = (bits.number(), bits.number());
                // 2 and 4 are I and SI; 5 more says that all slices of the picture are such.
                let is_intra = slice_type.is_some_and(|slice_type| matches!(slice_type % 5, 2 | 4));
                self.slice(if is_intra { Kind::Intra } else { Kind::Inter }, header >> 5 & 3 != 0);
            }
            6 => self.messages(rest),
            _ => {}
        }
    }

    fn h265(&mut self, unit: &[u8]) {
        let [header, _, rest @ ..] = unit else { return };
        match header >> 1 & 63 {
            19 | 20 => self.slice(Kind::Closed, true),
            16..=23 => self.slice(Kind::Open, true),
            // One of its slices says it for all.
            0..=15 => self.slice(Kind::Inter, true),
            39 => self.messages(rest),
            _ => {}
        }
    }

    /// A picture is as dependent as its most dependent slice: some streams are refreshed slice by slice.
    fn slice(&mut self, kind: Kind, is_reference: bool) {
        self.is_reference = is_reference;
        self.kind = Some(match (self.kind, kind) {
            (None, kind) => kind,
            (Some(Kind::Inter), _) | (_, Kind::Inter) => Kind::Inter,
            (Some(Kind::Intra), _) | (_, Kind::Intra) => Kind::Intra,
            (Some(before), _) => before,
        });
        // Messages come before the first slice, and nothing makes a picture independent again.
        self.is_open = self.kind == Some(Kind::Intra);
    }

    /// Looks for a recovery point among supplemental enhancement information.
    fn messages(&mut self, payload: &[u8]) {
        const RECOVERY_POINT: u32 = 6;
        let mut bits = Bits::new(payload);
        while let (Some(kind), Some(size)) = (bits.sum_of_bytes(), bits.sum_of_bytes()) {
            if kind == RECOVERY_POINT {
                let count = bits.number();
                self.recovery = match self.form {
                    // Signed there: 1 is 1, 2 is -1, 3 is 2, and so on.
                    Form::H265(_) => count.map(|code| if code % 2 == 1 { code.div_ceil(2) } else { 0 }),
                    _ => count,
                };
                return;
            }
            if !bits.skip_bytes(size) {
                return;
            }
        }
    }
}

/// Whether the end of a JPEG picture is there: its marker, with nothing but padding after it. Cameras pad with zeros, some
/// with a few bytes of nonsense.
#[must_use]
pub fn jpeg_has_end(last_bytes: &[u8]) -> bool {
    const NONSENSE: usize = 64;
    let padding = last_bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let end = &last_bytes[..last_bytes.len() - padding];
    end[end.len().saturating_sub(NONSENSE)..].windows(2).any(|pair| pair == [0xff, 0xd9])
}

/// The unit after the next start code, with all that follows it, and that again as what is still to be read. (Where it ends
/// is not looked for: only its beginning is read.)
fn after_start_code(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    // The third byte of a start code is 1, and rarely is any other byte.
    while at + 2 < bytes.len() {
        match bytes[at + 2] {
            0 => at += 1,
            1 if bytes[at] == 0 && bytes[at + 1] == 0 => {
                let unit = &bytes[at + 3..];
                return Some((unit, unit));
            }
            _ => at += 3,
        }
    }
    None
}

fn after_length(bytes: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(size).filter(|_| (1..=4).contains(&size))?;
    let length = length.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    // What was cut off is read as far as it goes.
    Some(rest.split_at(length.min(rest.len())))
}

/// Numbers out of a unit's payload, without the bytes that keep start codes from occurring within.
struct Bits<'a> {
    bytes: &'a [u8],
    /// How many zeros came right before.
    zeros: u8,
    byte: u8,
    /// How many bits of `byte` are still to be read.
    left: u8,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, zeros: 0, byte: 0, left: 0 }
    }

    fn next_byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        let mut byte = first;
        self.bytes = rest;
        if self.zeros >= 2 && byte == 3 {
            let [next, rest @ ..] = self.bytes else { return None };
            (byte, self.bytes, self.zeros) = (*next, rest, 0);
        } else if self.zeros >= 2 && byte < 3 {
            // The next start code: the unit ends here.
            self.bytes = &[];
            return None;
        }
        self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        Some(byte)
    }

    fn bit(&mut self) -> Option<u32> {
        if self.left == 0 {
            (self.byte, self.left) = (self.next_byte()?, 8);
        }
        self.left -= 1;
        Some(u32::from(self.byte >> self.left & 1))
    }

    /// An Exp-Golomb code: so many zeros, a one, and so many bits.
    fn number(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.bit()? == 0 {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let mut code = 1_u32;
        for _ in 0..zeros {
            code = code << 1 | self.bit()?;
        }
        Some(code - 1)
    }

    /// Whole bytes that add up, the last one being less than 255.
    fn sum_of_bytes(&mut self) -> Option<u32> {
        let mut sum = 0_u32;
        loop {
            let byte = self.next_byte()?;
            sum = sum.checked_add(u32::from(byte))?;
            if byte < 255 {
                return Some(sum);
            }
        }
    }

    /// False where there are not that many.
    fn skip_bytes(&mut self, count: u32) -> bool {
        (0..count).all(|_| self.next_byte().is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTHS: Framing = Framing::Length(4);

    fn byte_stream(units: &[&[u8]]) -> Vec<u8> {
        units.iter().flat_map(|unit| [&[0, 0, 0, 1], *unit].concat()).collect()
    }

    fn with_lengths(units: &[&[u8]]) -> Vec<u8> {
        let length = |unit: &[u8]| u32::try_from(unit.len()).unwrap().to_be_bytes();
        units.iter().flat_map(|unit| [&length(unit), *unit].concat()).collect()
    }

    fn look(form: Form, bytes: &[u8]) -> Look {
        let mut reader = Reader::new(form);
        reader.read(bytes);
        reader.look()
    }

    /// The same in both framings.
    fn h264(units: &[&[u8]]) -> Look {
        let seen = look(Form::H264(Framing::ByteStream), &byte_stream(units));
        assert_eq!(seen, look(Form::H264(LENGTHS), &with_lengths(units)));
        seen
    }

    fn h265(units: &[&[u8]]) -> Look {
        let seen = look(Form::H265(Framing::ByteStream), &byte_stream(units));
        assert_eq!(seen, look(Form::H265(LENGTHS), &with_lengths(units)));
        seen
    }

    // first_mb_in_slice 0 is `1`, 1 is `010`; slice_type 0 (P) is `1`, 2 (I) `011`, 5 (P, all) `00110`, 7 (I, all) `0001000`.
    const P_SLICE: &[u8] = &[0x41, 0b1100_0000, 0x55];
    const UNUSED_P_SLICE: &[u8] = &[0x01, 0b1001_1000, 0x55];
    const I_SLICE: &[u8] = &[0x41, 0b1000_1000, 0x55];
    const SECOND_P_SLICE: &[u8] = &[0x41, 0b0101_0000, 0x55];
    const IDR_SLICE: &[u8] = &[0x65, 0b1000_1000, 0x55];
    const PARAMETERS: &[u8] = &[0x67, 0x42, 0x00, 0x1e, 0xff];

    #[test]
    fn a_key_frame_of_h264_is_known_by_its_slices() {
        let kind = |units: &[&[u8]]| h264(units).kind;
        assert_eq!(kind(&[PARAMETERS, IDR_SLICE, IDR_SLICE]), Some(Kind::Closed));
        assert_eq!(kind(&[I_SLICE]), Some(Kind::Intra));
        assert_eq!(kind(&[P_SLICE]), Some(Kind::Inter));
        assert_eq!(kind(&[I_SLICE, SECOND_P_SLICE]), Some(Kind::Inter), "one slice of it is refreshed");
        assert_eq!(kind(&[PARAMETERS]), None);
    }

    #[test]
    fn a_picture_that_nothing_refers_to_says_so() {
        assert!(h264(&[P_SLICE]).is_reference);
        assert!(!h264(&[UNUSED_P_SLICE]).is_reference);
    }

    #[test]
    fn a_recovery_point_of_h264_says_after_how_many_pictures() {
        // An unknown message of 300 bytes, then a recovery point: count 3 is `00100`.
        let mut messages = vec![0x06, 200, 255, 45];
        messages.extend([0xaa; 300]);
        messages.extend([6, 1, 0b0010_0100, 0x80]);
        let seen = h264(&[&messages, P_SLICE]);
        assert_eq!((seen.kind, seen.recovery), (Some(Kind::Inter), Some(3)));
        assert_eq!(h264(&[&[0x06, 6, 1, 0xc4, 0x80], I_SLICE]).recovery, Some(0));
        assert_eq!(h264(&[P_SLICE, &messages]).recovery, None, "messages come first");
    }

    #[test]
    fn bytes_that_were_put_in_to_keep_start_codes_out_are_taken_out() {
        // Two zeros and a one in an unknown message of four bytes become 0 0 3 1.
        let messages = [0x06, 200, 4, 0, 0, 3, 1, 9, 6, 1, 0b0010_0100, 0x80];
        assert_eq!(h264(&[&messages, P_SLICE]).recovery, Some(3));
    }

    #[test]
    fn h265_is_known_by_the_types_of_its_units() {
        let unit = |kind: u8| [kind << 1, 1, 0xaf, 0x00];
        let kind = |first: u8| h265(&[&unit(32), &unit(first)]).kind;
        assert_eq!(kind(19), Some(Kind::Closed));
        assert_eq!(kind(20), Some(Kind::Closed));
        assert_eq!(kind(21), Some(Kind::Open), "a clean random access may have leading pictures");
        assert_eq!(kind(1), Some(Kind::Inter));
        // recovery_poc_cnt 2 is the code 3, `00100`; -1 is the code 2, `011`.
        let recovery = |code: u8| h265(&[&[39 << 1, 1, 6, 1, code, 0x80], &unit(1)]).recovery;
        assert_eq!(recovery(0b0010_0100), Some(2));
        assert_eq!(recovery(0b0110_0000), Some(0));
    }

    #[test]
    fn a_picture_in_several_pieces_of_memory_is_read_over_all_of_them() {
        let mut reader = Reader::new(Form::H264(LENGTHS));
        reader.read(&with_lengths(&[PARAMETERS]));
        assert!(reader.wants_more());
        reader.read(&with_lengths(&[P_SLICE]));
        assert!(!reader.wants_more());
        assert_eq!(reader.look().kind, Some(Kind::Inter));
        assert!(!Reader::new(Form::Jpeg).wants_more());
    }

    #[test]
    fn a_jpeg_without_its_end_is_half_a_jpeg() {
        assert!(jpeg_has_end(&[0xff, 0xd8, 1, 2, 0xff, 0xd9]));
        assert!(jpeg_has_end(&[&[0xff, 0xd8, 1, 2, 0xff, 0xd9], &[0; 5000][..]].concat()), "padded");
        assert!(jpeg_has_end(&[0xff, 0xd8, 1, 2, 0xff, 0xd9, b'\r', b'\n']));
        assert!(!jpeg_has_end(&[0xff, 0xd8, 1, 2, 0xff, 0xd0, 7, 8]));
        let of_a_preview = [&[0xff, 0xd8, 0xff, 0xd8, 1, 0xff, 0xd9], &[7; 500][..]].concat();
        assert!(!jpeg_has_end(&of_a_preview), "only the preview ends");
        assert!(!jpeg_has_end(&[]));
        assert!(!jpeg_has_end(&[0; 9]));
    }

    /// Bytes as they come, and bytes that look like a stream.
    fn anything() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                vec![0, 0, 1],
                vec![0, 0, 0, 1],
                vec![0, 0, 3],
                vec![0, 0, 0, 9],
                vec![0x06, 6, 1],
                vec![0x65],
                vec![0x41],
                vec![39 << 1, 1, 6],
                vec![0xff; 40],
                vec![0xff, 0xd9],
            ]),
            prop::collection::vec(any::<u8>(), 0..12),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic_and_to_an_end(bytes in anything(), size in 0_usize..9) {
            for framing in [Framing::ByteStream, Framing::Length(size)] {
                look(Form::H264(framing), &bytes);
                look(Form::H265(framing), &bytes);
            }
            prop_assert!(!jpeg_has_end(&bytes) || bytes.contains(&0xd9));
        }

        #[test]
        fn what_comes_after_the_first_slices_does_not_matter(tail in anything()) {
            let whole = [&byte_stream(&[&[0x06, 6, 1, 0b0010_0100, 0x80], P_SLICE])[..], &tail].concat();
            let seen = look(Form::H264(Framing::ByteStream), &whole);
            prop_assert_eq!((seen.kind, seen.recovery), (Some(Kind::Inter), Some(3)));
        }
    }
}
