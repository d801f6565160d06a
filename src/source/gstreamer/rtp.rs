//! RTP packets that break the rules, mended before anything else reads them. Pure.
//!
//! The marker bit says that a picture ends with its packet (RFC 6184, RFC 7798). Some cameras set it on parameter sets and
//! on SEI, too, which are no picture: GStreamer's depayloader then takes them for one, and the picture that follows has no
//! time.

use crate::source::rtp::Packet;

/// What a stream's packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    /// H.264.
    H264,
    /// H.265.
    H265,
}

/// The byte of a packet that holds the marker bit, and the bit.
const MARKER: (usize, u8) = (1, 0x80);

impl Codec {
    /// The codec that the SDP names so.
    pub(super) fn from_encoding_name(name: &str) -> Option<Self> {
        match name {
            "H264" => Some(Self::H264),
            "H265" => Some(Self::H265),
            _ => None,
        }
    }

    /// Whether a packet says that a picture ends with it, and holds nothing of a picture.
    pub(super) fn ends_no_picture(self, packet: &[u8]) -> bool {
        Packet::parse(packet).is_some_and(|packet| packet.marker && self.is_company(packet.payload))
    }

    /// Whether a payload is only what keeps a picture company.
    fn is_company(self, payload: &[u8]) -> bool {
        let Some(kind) = self.kind(payload) else { return false };
        if !self.is_aggregate(kind) {
            return self.keeps_company(kind);
        }
        let mut units = &payload[self.head()..];
        while let Some((size, rest)) = units.split_first_chunk::<2>() {
            let Some((unit, rest)) = rest.split_at_checked(usize::from(u16::from_be_bytes(*size))) else {
                return false;
            };
            if !self.kind(unit).is_some_and(|kind| self.keeps_company(kind)) {
                return false;
            }
            units = rest;
        }
        true
    }

    /// The type of a NAL unit.
    fn kind(self, unit: &[u8]) -> Option<u8> {
        let first = unit.first()?;
        Some(match self {
            Self::H264 => first & 0x1f,
            Self::H265 => first >> 1 & 0x3f,
        })
    }

    /// SEI, parameter sets, delimiters.
    fn keeps_company(self, kind: u8) -> bool {
        match self {
            Self::H264 => (6..=9).contains(&kind),
            Self::H265 => (32..=35).contains(&kind) || (39..=40).contains(&kind),
        }
    }

    /// Several units in one packet.
    fn is_aggregate(self, kind: u8) -> bool {
        match self {
            Self::H264 => kind == 24,
            Self::H265 => kind == 48,
        }
    }

    /// Bytes before the first unit of an aggregate.
    fn head(self) -> usize {
        match self {
            Self::H264 => 1,
            Self::H265 => 2,
        }
    }
}

/// Takes the marker bit off a packet.
pub(super) fn unmark(packet: &mut [u8]) {
    if let Some(byte) = packet.get_mut(MARKER.0) {
        *byte &= !MARKER.1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: u8, marker: bool, between: &[u8], payload: &[u8]) -> Vec<u8> {
        let head = [first, u8::from(marker) << 7 | 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        [&head, between, payload].concat()
    }

    #[test]
    fn a_marker_on_what_is_no_picture_is_found_and_taken_off() {
        let sei = [6, 5, 1, 2];
        assert!(Codec::H264.ends_no_picture(&packet(0x80, true, &[], &sei)));
        assert!(!Codec::H264.ends_no_picture(&packet(0x80, false, &[], &sei)));
        for unit in [0x65, 0x41, 0x7c] {
            assert!(!Codec::H264.ends_no_picture(&packet(0x80, true, &[], &[unit, 1])), "{unit:x}");
        }
        let mut marked = packet(0x80, true, &[], &sei);
        unmark(&mut marked);
        assert_eq!(marked, packet(0x80, false, &[], &sei));
        // Type 39 is an SEI of H.265, type 19 a key picture.
        assert!(Codec::H265.ends_no_picture(&packet(0x80, true, &[], &[39 << 1, 1, 5])));
        assert!(!Codec::H265.ends_no_picture(&packet(0x80, true, &[], &[19 << 1, 1, 5])));
    }

    #[test]
    fn the_payload_is_found_behind_contributors_and_an_extension() {
        let sei = [6, 5];
        assert!(Codec::H264.ends_no_picture(&packet(0x82, true, &[0x65; 8], &sei)));
        let extension = [0xbe, 0xde, 0, 1, 0x65, 0x65, 0x65, 0x65];
        assert!(Codec::H264.ends_no_picture(&packet(0x90, true, &extension, &sei)));
    }

    #[test]
    fn an_aggregate_is_no_picture_only_where_none_of_its_units_is() {
        let sets = [24, 0, 2, 0x67, 1, 0, 2, 0x68, 1];
        assert!(Codec::H264.ends_no_picture(&packet(0x80, true, &[], &sets)));
        let with_picture = [&sets[..], &[0, 2, 0x65, 1]].concat();
        assert!(!Codec::H264.ends_no_picture(&packet(0x80, true, &[], &with_picture)));
        assert!(!Codec::H264.ends_no_picture(&packet(0x80, true, &[], &sets[..8])), "cut off");
    }

    #[test]
    fn what_is_cut_off_or_no_rtp_is_left_alone() {
        let whole = packet(0x91, true, &[0, 0, 0, 0, 0xbe, 0xde, 0, 0], &[6]);
        assert!(Codec::H264.ends_no_picture(&whole));
        for length in 0..whole.len() {
            assert!(!Codec::H264.ends_no_picture(&whole[..length]), "{length} bytes");
        }
        assert!(!Codec::H264.ends_no_picture(&packet(0x00, true, &[], &[6])));
    }
}
