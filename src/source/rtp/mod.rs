//! What RTP and RTCP packets say: pure, over bytes that anybody may have sent.
//!
//! A [`Receiver`] sees each packet of a camera's video, in order, and knows of each picture what is missing of it and when
//! it was taken; its [`clock`] tells how late it came.

pub mod clock;
mod receiver;

pub use receiver::{Received, Receiver};

/// An RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Set on a picture's last packet, by cameras that keep to the rules.
    pub marker: bool,
    /// Its number, which wraps.
    pub sequence: u16,
    /// When its picture was taken, in ticks of the stream's clock, which wraps.
    pub timestamp: u32,
    /// Who sends it.
    pub ssrc: u32,
    /// A part of a picture.
    pub payload: &'a [u8],
}

/// What a camera tells from time to time: which moment of its wall clock is which of the stream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderReport {
    /// Who sends it.
    pub ssrc: u32,
    /// Nanoseconds since 1970.
    pub wall_ns: i64,
    /// The same moment in ticks of the stream's clock.
    pub timestamp: u32,
}

/// How a picture is put into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// RFC 6184.
    H264,
    /// RFC 7798.
    H265,
    /// RFC 2435.
    Jpeg,
    /// Any other.
    Other,
}

/// The version of RTP and RTCP, in the top bits of a packet.
const VERSION: u8 = 2;

impl<'a> Packet<'a> {
    /// Reads a packet; none where it is no RTP.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<12>()?;
        if header[0] >> 6 != VERSION {
            return None;
        }
        let sources = usize::from(header[0] & 15) * 4;
        let mut payload = rest.get(sources..)?;
        if header[0] & 0x10 != 0 {
            let (extension, rest) = payload.split_first_chunk::<4>()?;
            payload = rest.get(usize::from(u16::from_be_bytes([extension[2], extension[3]])) * 4..)?;
        }
        Some(Self {
            marker: header[1] & 0x80 != 0,
            sequence: u16::from_be_bytes([header[2], header[3]]),
            timestamp: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            ssrc: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            payload,
        })
    }
}

impl SenderReport {
    /// The first sender report in a compound packet.
    #[must_use]
    pub fn parse(mut bytes: &[u8]) -> Option<Self> {
        const SENDER_REPORT: u8 = 200;
        loop {
            let (header, _) = bytes.split_first_chunk::<4>()?;
            if header[0] >> 6 != VERSION {
                return None;
            }
            let words = usize::from(u16::from_be_bytes([header[2], header[3]])) + 1;
            if header[1] == SENDER_REPORT {
                let word = |index: usize| {
                    let (word, _) = bytes.get(index * 4..)?.split_first_chunk::<4>()?;
                    Some(u32::from_be_bytes(*word))
                };
                let (seconds, fraction) = (word(2)?, word(3)?);
                return Some(Self {
                    ssrc: word(1)?,
                    wall_ns: wall_ns(seconds, fraction),
                    timestamp: word(4)?,
                });
            }
            bytes = bytes.get(words * 4..)?;
        }
    }
}

impl Payload {
    /// By the name that a session description has for it.
    #[must_use]
    pub fn from_encoding_name(name: &str) -> Self {
        match name {
            "H264" => Self::H264,
            "H265" => Self::H265,
            "JPEG" => Self::Jpeg,
            _ => Self::Other,
        }
    }

    /// Whether a picture certainly begins with this packet, so that nothing of it was lost before.
    #[must_use]
    pub fn begins_picture(self, payload: &[u8]) -> bool {
        /// The first bit of a slice says that it is the first one.
        const FIRST_SLICE: u8 = 0x80;
        /// The bit of a fragment that begins a unit.
        const FIRST_FRAGMENT: u8 = 0x80;
        let at = |index: usize| payload.get(index).copied().unwrap_or(0);
        match self {
            Self::H264 => match at(0) & 31 {
                1 | 5 => at(1) & FIRST_SLICE != 0,
                // What comes before the slices, alone or several of them together.
                6..=9 | 24 => true,
                28 => at(1) & FIRST_FRAGMENT != 0 && (at(1) & 31 > 5 || at(2) & FIRST_SLICE != 0),
                _ => false,
            },
            Self::H265 => match at(0) >> 1 & 63 {
                0..=31 => at(2) & FIRST_SLICE != 0,
                32..=35 | 39 | 48 => true,
                49 => at(2) & FIRST_FRAGMENT != 0 && (at(2) & 63 > 31 || at(3) & FIRST_SLICE != 0),
                _ => false,
            },
            // The offset of the fragment.
            Self::Jpeg => payload.len() >= 8 && at(1) | at(2) | at(3) == 0,
            Self::Other => false,
        }
    }
}

/// Network time counts from 1900, in seconds and 2^32nds of one.
fn wall_ns(seconds: u32, fraction: u32) -> i64 {
    const UNIX_EPOCH: i64 = 2_208_988_800;
    let nanos = (u64::from(fraction) * 1_000_000_000) >> 32;
    (i64::from(seconds) - UNIX_EPOCH) * 1_000_000_000 + i64::try_from(nanos).expect("less than a second")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(first: u8, payload: &[u8]) -> Vec<u8> {
        [&[first, 0xe0, 0x12, 0x34, 0, 0, 0x56, 0x78, 1, 2, 3, 4], payload].concat()
    }

    #[test]
    fn a_packet_is_read_with_and_without_what_may_come_before_its_payload() {
        let bytes = packet(0x80, &[7, 8, 9]);
        let plain = Packet::parse(&bytes).unwrap();
        let expected = Packet {
            marker: true,
            sequence: 0x1234,
            timestamp: 0x5678,
            ssrc: 0x0102_0304,
            payload: &[7, 8, 9],
        };
        assert_eq!(plain, expected);
        // Two contributing sources, then an extension of one word.
        let bytes = packet(0x92, &[0, 0, 0, 1, 0, 0, 0, 2, 0xbe, 0xde, 0, 1, 5, 5, 5, 5, 7, 8, 9]);
        assert_eq!(Packet::parse(&bytes).unwrap().payload, [7, 8, 9]);
        assert_eq!(Packet::parse(&packet(0x40, &[7])), None, "version 1");
        assert_eq!(Packet::parse(&packet(0x82, &[0; 7])), None, "cut off");
        assert_eq!(Packet::parse(&[0x80; 11]), None);
    }

    fn report(kind: u8, words: &[u32]) -> Vec<u8> {
        let length = u16::try_from(words.len()).unwrap().to_be_bytes();
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        [&[0x80, kind], &length[..], &words].concat()
    }

    #[test]
    fn a_sender_report_is_found_among_others() {
        // 2026-01-01T00:00:00.25Z.
        let (seconds, fraction) = (1_767_225_600 + 2_208_988_800, 1 << 30);
        let sender = report(200, &[0xabcd, seconds, fraction, 90_000, 1, 2]);
        let expected = SenderReport { ssrc: 0xabcd, wall_ns: 1_767_225_600_250_000_000, timestamp: 90_000 };
        assert_eq!(SenderReport::parse(&sender), Some(expected));
        let others = [report(201, &[1]), report(202, &[1, 2, 3]), sender.clone()].concat();
        assert_eq!(SenderReport::parse(&others), Some(expected));
        assert_eq!(SenderReport::parse(&report(201, &[1])), None);
        assert_eq!(SenderReport::parse(&sender[..18]), None, "cut off");
    }

    #[test]
    fn the_first_packet_of_a_picture_is_known_by_its_payload() {
        let first = |payload: Payload, bytes: &[u8]| payload.begins_picture(bytes);
        for bytes in [&[0x67, 1][..], &[0x65, 0x88], &[0x41, 0x9a], &[0x78, 0, 9], &[0x7c, 0x85, 0x88]] {
            assert!(first(Payload::H264, bytes), "{bytes:x?}");
        }
        for bytes in [&[0x41, 0x4a][..], &[0x7c, 0x05, 0x88], &[0x7c, 0x45, 0x88], &[0x7c, 0x81, 0x4a], &[]] {
            assert!(!first(Payload::H264, bytes), "{bytes:x?}");
        }
        for bytes in [&[0x40, 1][..], &[0x26, 1, 0xaf], &[0x62, 1, 0x93, 0xaf], &[0x60, 1]] {
            assert!(first(Payload::H265, bytes), "{bytes:x?}");
        }
        for bytes in [&[0x26, 1, 0x2f][..], &[0x62, 1, 0x13, 0xaf], &[0x62, 1, 0x93, 0x2f]] {
            assert!(!first(Payload::H265, bytes), "{bytes:x?}");
        }
        assert!(first(Payload::Jpeg, &[0, 0, 0, 0, 1, 80, 80, 60]));
        assert!(!first(Payload::Jpeg, &[0, 0, 5, 80, 1, 80, 80, 60]));
        assert!(!first(Payload::Other, &[0; 20]), "it is not known");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            is_version_2 in any::<bool>(),
        ) {
            if let (Some(first), true) = (bytes.first_mut(), is_version_2) {
                *first = *first & 0x3f | 0x80;
            }
            prop_assert!(SenderReport::parse(&bytes).is_none() || bytes.len() >= 20);
            if let Some(packet) = Packet::parse(&bytes) {
                for payload in [Payload::H264, Payload::H265, Payload::Jpeg, Payload::Other] {
                    prop_assert!(!payload.begins_picture(packet.payload) || !packet.payload.is_empty());
                }
            }
        }
    }
}
