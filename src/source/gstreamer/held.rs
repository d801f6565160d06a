//! How many pictures a video decoder keeps for itself at most: pure arithmetic on what the stream says of itself.

/// What the caps of an encoded stream tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoded<'a> {
    /// The media type, such as `video/x-h264`.
    pub(super) media: &'a str,
    /// The level, as GStreamer writes it: `4.1`, `1b`.
    pub(super) level: Option<&'a str>,
    /// Width in pixels.
    pub(super) width: u32,
    /// Height in pixels.
    pub(super) height: u32,
}

/// H.264 and H.265 keep 16 pictures at most, whatever the level.
const DECODED_PICTURES_MAX: usize = 16;

/// Beyond the pictures that it refers to: the one that is being decoded, the one that is being handed over, and the one
/// that libav keeps to hide a loss behind.
const AT_WORK: usize = 3;

/// The most pictures that the decoder of this stream holds, when `threads` threads each decode a picture of their own: those
/// that the standard lets a stream refer to or hold back, and those it is at work on.
///
/// A stream that claims a lower level than it needs makes the pool grow, which is counted.
pub(super) fn pictures(stream: &Encoded<'_>, threads: usize) -> usize {
    decoded_pictures(stream) + AT_WORK + threads
}

fn decoded_pictures(stream: &Encoded<'_>) -> usize {
    match stream.media {
        "image/jpeg" | "image/png" => 0,
        "video/x-h264" => h264(stream),
        "video/x-h265" => h265(stream),
        "video/x-vp8" => 3,
        "video/x-vp9" | "video/x-av1" => 8,
        // MPEG-1, -2 and -4 refer to one picture before and one behind.
        "video/mpeg" => 2,
        _ => DECODED_PICTURES_MAX,
    }
}

/// ITU-T H.264, table A-1: the decoded picture buffer in macroblocks of 16x16.
fn h264(stream: &Encoded<'_>) -> usize {
    let macroblocks = match stream.level {
        Some("1" | "1b") => 396,
        Some("1.1") => 900,
        Some("1.2" | "1.3" | "2") => 2376,
        Some("2.1") => 4752,
        Some("2.2" | "3") => 8100,
        Some("3.1") => 18_000,
        Some("3.2") => 20_480,
        Some("4" | "4.1") => 32_768,
        Some("4.2") => 34_816,
        Some("5") => 110_400,
        Some("5.1" | "5.2") => 184_320,
        Some("6" | "6.1" | "6.2") => 696_320,
        _ => return DECODED_PICTURES_MAX,
    };
    let picture = u64::from(stream.width.div_ceil(16)) * u64::from(stream.height.div_ceil(16));
    at_most_16(macroblocks / picture.max(1)).max(1)
}

/// ITU-T H.265, A.4.2: six pictures of the level's largest size, more of smaller ones.
fn h265(stream: &Encoded<'_>) -> usize {
    let largest: u64 = match stream.level {
        Some("1") => 36_864,
        Some("2") => 122_880,
        Some("2.1") => 245_760,
        Some("3") => 552_960,
        Some("3.1") => 983_040,
        Some("4" | "4.1") => 2_228_224,
        Some("5" | "5.1" | "5.2") => 8_912_896,
        Some("6" | "6.1" | "6.2") => 35_651_584,
        _ => return DECODED_PICTURES_MAX,
    };
    let picture = u64::from(stream.width) * u64::from(stream.height);
    match picture {
        _ if picture <= largest / 4 => 16,
        _ if picture <= largest / 2 => 12,
        _ if picture <= largest * 3 / 4 => 8,
        _ => 6,
    }
}

fn at_most_16(pictures: u64) -> usize {
    usize::try_from(pictures).unwrap_or(DECODED_PICTURES_MAX).min(DECODED_PICTURES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(media: &str, level: Option<&str>, (width, height): (u32, u32)) -> usize {
        decoded_pictures(&Encoded { media, level, width, height })
    }

    #[test]
    fn the_tables_of_the_standards_give_the_known_figures() {
        let hd = (1920, 1080);
        assert_eq!(of("video/x-h264", Some("4"), hd), 4);
        assert_eq!(of("video/x-h264", Some("4.2"), hd), 4);
        assert_eq!(of("video/x-h264", Some("5.1"), hd), 16);
        assert_eq!(of("video/x-h264", Some("3"), (640, 480)), 6);
        assert_eq!(of("video/x-h264", Some("3.1"), (1280, 720)), 5);
        assert_eq!(of("video/x-h265", Some("4"), hd), 6);
        assert_eq!(of("video/x-h265", Some("5.1"), hd), 16);
        assert_eq!(of("video/x-h265", Some("5"), (3840, 2160)), 6);
        assert_eq!(of("image/jpeg", None, hd), 0);
    }

    #[test]
    fn what_a_stream_does_not_tell_is_taken_for_the_most() {
        assert_eq!(of("video/x-h264", None, (1920, 1080)), 16);
        assert_eq!(of("video/x-h264", Some("9"), (64, 64)), 16);
        assert_eq!(of("video/x-theora", None, (64, 64)), 16);
        assert_eq!(of("video/x-h264", Some("4"), (0, 0)), 16);
        assert_eq!(of("video/x-h264", Some("1"), (u32::MAX, u32::MAX)), 1, "the picture itself at least");
    }

    #[test]
    fn threads_add_a_picture_each() {
        let stream = Encoded { media: "video/x-h264", level: Some("4"), width: 1920, height: 1080 };
        assert_eq!(pictures(&stream, 0), 4 + AT_WORK);
        assert_eq!(pictures(&stream, 4), pictures(&stream, 0) + 4);
    }
}
