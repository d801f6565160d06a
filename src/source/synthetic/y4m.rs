//! `.y4m`: raw frames in a file, as `ffmpeg -pix_fmt yuv420p out.y4m` and mjpegtools write them.
//!
//! `YUV4MPEG2 W640 H480 F25:1 C420jpeg`, a line feed, then each frame as `FRAME`, a line feed and its planes. Taken are
//! 8-bit 4:2:0 and grey; anything else is refused by name. Every frame is delivered, in order, as fast as it is taken.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lease;
use crate::frame::clock::{CaptureClock, Captured};
use crate::frame::{ColorMatrix, ColorRange, FrameTimes, Geometry, Memory, PixelFormat};
use crate::source::{Address, End, Intake, Source, SourceError, local};
use crate::telemetry::FailureCause;
use crate::threads::{Heartbeat, Shutdown};

/// Slabs beyond those of the frames that are under way: the one that is being read into.
const READING: usize = 1;

/// The longest header that is read, in bytes.
const LINE_MAX: u64 = 4096;

/// The longest side that is taken, in pixels.
const SIDE_MAX: u32 = 16_384;

/// The source.
#[derive(Debug)]
pub(super) struct RawVideo {
    path: PathBuf,
}

/// What the first line says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Header {
    geometry: Geometry,
    /// Frames a second as a fraction, where the file knows it.
    rate: Option<(u32, u32)>,
}

/// Why the file is not taken, in words.
type Reason = String;

impl RawVideo {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn open(&self) -> Result<(BufReader<File>, Header), Reason> {
        local::check(&self.path)?;
        let file = File::open(&self.path).map_err(|error| local::trouble(&error))?;
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let line = read_line(&mut reader)?.unwrap_or_default();
        let header = Header::parse(&line)?;
        Ok((reader, header))
    }
}

impl Source for RawVideo {
    fn run_once(
        &mut self,
        intake: &Arc<Intake>,
        shutdown: &Shutdown,
        heartbeat: &Heartbeat,
    ) -> Result<End, SourceError> {
        let address = Address::File(self.path.clone());
        let refuse = |reason| address.refused(FailureCause::Unusable, reason);
        let (mut reader, header) = self.open().map_err(refuse)?;
        let Geometry { width, height, .. } = header.geometry;
        let pool = intake.slabs(header.geometry.len(), READING).map_err(|source| SourceError::Memory {
            width,
            height,
            source,
        })?;
        let opened = Instant::now();
        for number in 0.. {
            let Some(mut slab) = lease(&pool, shutdown, heartbeat) else { return Ok(End::Stopped) };
            let received = Instant::now();
            match read_frame(&mut reader, number, &mut slab) {
                Ok(true) => {}
                Ok(false) if number == 0 => return Err(refuse("it has a header and no frame".to_owned())),
                Ok(false) => return Ok(End::EndOfStream),
                Err(reason) if number == 0 => return Err(refuse(reason)),
                Err(reason) => return Err(SourceError::Broken { reason }),
            }
            let pts = header.position(number);
            let times = FrameTimes {
                pts,
                captured: Captured::new(CaptureClock::File, opened + pts.unwrap_or_default()),
                received,
                ready: Instant::now(),
            };
            let memory = Memory::Slab(slab.share());
            if intake.deliver(times, header.geometry, memory, || heartbeat.idle()).is_err() {
                return Ok(End::Stopped);
            }
        }
        unreachable!("the numbers of frames do not end")
    }
}

impl Header {
    /// Reads the first line, without its line feed.
    fn parse(line: &[u8]) -> Result<Self, Reason> {
        let text = std::str::from_utf8(line).unwrap_or_default();
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        if words.next() != Some("YUV4MPEG2") {
            return Err("it does not begin with YUV4MPEG2, so it holds no raw frames".to_owned());
        }
        let (mut width, mut height, mut rate) = (None, None, None);
        let (mut format, mut range) = (PixelFormat::I420, None);
        for word in words {
            let Some((tag, value)) = word.split_at_checked(1) else {
                return Err(format!("its header has {word:?}, which is no parameter"));
            };
            match tag {
                "W" => width = Some(side("width", value)?),
                "H" => height = Some(side("height", value)?),
                "F" => rate = frame_rate(value)?,
                "C" => format = colourspace(value)?,
                "I" if !matches!(value, "p" | "?") => {
                    return Err(format!(
                        "its frames are interlaced (I{value}), and only whole frames are taken"
                    ));
                }
                "X" if value == "COLORRANGE=FULL" => range = Some(ColorRange::Full),
                "X" if value == "COLORRANGE=LIMITED" => range = Some(ColorRange::Limited),
                "A" | "I" | "X" => {}
                _ => return Err(format!("its header has the unknown parameter {word:?}")),
            }
        }
        let (Some(width), Some(height)) = (width, height) else {
            return Err("its header does not tell width and height".to_owned());
        };
        let matrix = if height > 576 { ColorMatrix::Bt709 } else { ColorMatrix::Bt601 };
        let default_range = match format {
            PixelFormat::Gray8 => ColorRange::Full,
            _ => ColorRange::Limited,
        };
        let range = range.unwrap_or(default_range);
        Ok(Self { geometry: Geometry::packed(format, width, height, matrix, range), rate })
    }

    /// Where the frame `number`, from 0, is in the video.
    fn position(&self, number: u64) -> Option<Duration> {
        let (frames, seconds) = self.rate?;
        let nanos = u128::from(number) * u128::from(seconds) * 1_000_000_000 / u128::from(frames);
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}

/// Reads one frame; false at the end of the file.
fn read_frame(reader: &mut impl BufRead, number: u64, slab: &mut [u8]) -> Result<bool, Reason> {
    let Some(marker) = read_line(reader)? else { return Ok(false) };
    if marker != b"FRAME" && !marker.starts_with(b"FRAME ") {
        let seen = String::from_utf8_lossy(&marker[..marker.len().min(16)]).into_owned();
        return Err(format!("frame {number} (from 0) does not begin with FRAME but with {seen:?}"));
    }
    let mut filled = 0;
    while filled < slab.len() {
        match reader.read(&mut slab[filled..]) {
            Ok(0) => {
                let whole = slab.len();
                return Err(format!(
                    "the file was cut off within frame {number} (from 0): it has {filled} of its {whole} bytes"
                ));
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(local::trouble(&error)),
        }
    }
    Ok(true)
}

/// One line without its line feed; none at the end of the file.
fn read_line(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>, Reason> {
    let mut line = Vec::new();
    reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).map_err(|error| local::trouble(&error))?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop_if(|byte| *byte == b'\n').is_none() && line.len() as u64 == LINE_MAX {
        return Err(format!("it has a line of more than {LINE_MAX} bytes where a header should be"));
    }
    Ok(Some(line))
}

fn side(name: &str, value: &str) -> Result<u32, Reason> {
    let side = value.parse().ok().filter(|side| (1..=SIDE_MAX).contains(side));
    side.ok_or_else(|| format!("its {name} is {value:?}, not a number from 1 to {SIDE_MAX}"))
}

/// `25:1`; `0:0` says that nobody knows.
fn frame_rate(value: &str) -> Result<Option<(u32, u32)>, Reason> {
    let parts = value
        .split_once(':')
        .and_then(|(frames, seconds)| Some((frames.parse().ok()?, seconds.parse().ok()?)));
    match parts {
        Some((0, 0)) => Ok(None),
        Some((frames, seconds)) if frames > 0 && seconds > 0 => Ok(Some((frames, seconds))),
        _ => Err(format!("its frame rate is {value:?}, not a fraction such as 25:1")),
    }
}

fn colourspace(value: &str) -> Result<PixelFormat, Reason> {
    match value {
        "420" | "420jpeg" | "420mpeg2" | "420paldv" => Ok(PixelFormat::I420),
        "mono" => Ok(PixelFormat::Gray8),
        _ => Err(format!(
            "its colourspace C{value} is not taken; `ffmpeg -i FILE -pix_fmt yuv420p NEW.y4m` makes one that is"
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Result<Header, Reason> {
        Header::parse(line.as_bytes())
    }

    #[test]
    fn the_header_of_ffmpeg_is_read_whole() {
        let header =
            parse("YUV4MPEG2 W853 H479 F30000:1001 Ip A1:1 C420jpeg XYSCSS=420JPEG XCOLORRANGE=FULL")
                .unwrap();
        let geometry = header.geometry;
        assert_eq!((geometry.format, geometry.width, geometry.height), (PixelFormat::I420, 853, 479));
        assert_eq!((geometry.matrix, geometry.range), (ColorMatrix::Bt601, ColorRange::Full));
        assert_eq!(geometry.len(), 853 * 479 + 2 * 427 * 240);
        assert_eq!(header.position(30_000), Some(Duration::from_secs(1001)));
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let header = parse("YUV4MPEG2 W1280 H720").unwrap();
        assert_eq!(header.rate, None);
        assert_eq!(header.position(3), None);
        assert_eq!(
            (header.geometry.matrix, header.geometry.range),
            (ColorMatrix::Bt709, ColorRange::Limited)
        );
        assert_eq!(parse("YUV4MPEG2 W1 H1 Cmono").unwrap().geometry.len(), 1);
        assert_eq!(parse("YUV4MPEG2 W2 H2 F0:0").unwrap().rate, None);
    }

    #[test]
    fn each_mistake_in_the_header_is_told_with_its_value() {
        let cases = [
            ("", "does not begin with YUV4MPEG2"),
            ("RIFF W2 H2", "does not begin with YUV4MPEG2"),
            ("YUV4MPEG2 W640", "width and height"),
            ("YUV4MPEG2 W0 H2", "width is \"0\""),
            ("YUV4MPEG2 W2 H99999", "height is \"99999\""),
            ("YUV4MPEG2 W2 H-2", "height is \"-2\""),
            ("YUV4MPEG2 W2 H2 F25", "frame rate is \"25\""),
            ("YUV4MPEG2 W2 H2 F25:0", "frame rate is \"25:0\""),
            ("YUV4MPEG2 W2 H2 C444", "colourspace C444"),
            ("YUV4MPEG2 W2 H2 C420p10", "colourspace C420p10"),
            ("YUV4MPEG2 W2 H2 It", "interlaced (It)"),
            ("YUV4MPEG2 W2 H2 Q1", "unknown parameter \"Q1\""),
            ("YUV4MPEG2 W2 H2 ü", "no parameter"),
        ];
        for (line, expected) in cases {
            let reason = parse(line).unwrap_err();
            assert!(reason.contains(expected), "{line:?}: {reason}");
        }
    }

    #[test]
    fn a_file_that_was_cut_off_names_the_frame() {
        let mut slab = [0; 6];
        let mut reader = &b"FRAME\nabcdefFRAME Ip\nghijklFRAME\nmno"[..];
        assert_eq!(read_frame(&mut reader, 0, &mut slab), Ok(true));
        assert_eq!(read_frame(&mut reader, 1, &mut slab), Ok(true));
        assert_eq!(&slab, b"ghijkl");
        let reason = read_frame(&mut reader, 2, &mut slab).unwrap_err();
        assert_eq!(reason, "the file was cut off within frame 2 (from 0): it has 3 of its 6 bytes");
        assert_eq!(read_frame(&mut reader, 3, &mut slab), Ok(false));
    }

    #[test]
    fn a_frame_without_its_marker_is_told() {
        let reason = read_frame(&mut &b"FRAMES\nabc"[..], 4, &mut [0; 3]).unwrap_err();
        assert!(reason.contains("frame 4") && reason.contains("FRAMES"), "{reason}");
        let long = vec![b'x'; 5000];
        assert!(read_frame(&mut &long[..], 0, &mut [0; 3]).unwrap_err().contains("more than 4096 bytes"));
    }

    proptest! {
        #[test]
        fn no_header_and_no_frame_makes_it_panic(
            line in "YUV4MPEG2( [WHFCIAX][0-9:a-z=]{0,8}){0,6}",
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(header) = parse(&line) {
                prop_assert!(!header.geometry.is_empty() && header.geometry.width <= SIDE_MAX);
            }
            drop(Header::parse(&bytes));
            drop(read_frame(&mut &bytes[..], 0, &mut [0; 16]));
        }
    }
}
