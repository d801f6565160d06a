//! A still picture: one RGB frame.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use image::error::{ImageError, LimitErrorKind};
use image::{ImageFormat, ImageReader, Limits, RgbImage};

use crate::frame::clock::{CaptureClock, Captured};
use crate::frame::{ColorMatrix, ColorRange, FrameTimes, Geometry, LentMemory, Memory, PixelFormat};
use crate::source::{Address, End, Intake, Source, SourceError, local};
use crate::telemetry::FailureCause;
use crate::threads::{Heartbeat, Shutdown};

/// The longest side that is taken, in pixels.
const SIDE_MAX: u32 = 16_384;

/// Memory that decoding may take, in bytes; a small file can ask for very much.
const MEMORY_MAX: u64 = 1 << 30;

/// The source.
#[derive(Debug)]
pub(super) struct Picture {
    path: PathBuf,
}

impl Picture {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Decodes the picture. Its pixels are taken as they are stored: an EXIF orientation is not applied, and
    /// transparency is dropped.
    fn decode(&self) -> Result<RgbImage, String> {
        local::check(&self.path)?;
        let bytes = std::fs::read(&self.path).map_err(|error| local::trouble(&error))?;
        let reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format();
        let mut reader = reader.map_err(|error| local::trouble(&error))?;
        match reader.format() {
            None => return Err("it is neither a PNG nor a JPEG picture".to_owned()),
            Some(ImageFormat::Jpeg) if is_cut_off(&bytes) => {
                return Err("the picture was cut off (its end is missing); copy it again".to_owned());
            }
            Some(_) => {}
        }
        let mut limits = Limits::default();
        limits.max_image_width = Some(SIDE_MAX);
        limits.max_image_height = Some(SIDE_MAX);
        limits.max_alloc = Some(MEMORY_MAX);
        reader.limits(limits);
        reader.decode().map(|image| image.into_rgb8()).map_err(|error| trouble(&error))
    }
}

impl Source for Picture {
    fn run_once(
        &mut self,
        intake: &Arc<Intake>,
        shutdown: &Shutdown,
        heartbeat: &Heartbeat,
    ) -> Result<End, SourceError> {
        heartbeat.beat();
        let received = Instant::now();
        let image = self
            .decode()
            .map_err(|reason| Address::File(self.path.clone()).refused(FailureCause::Unusable, reason))?;
        let (width, height) = image.dimensions();
        let geometry =
            Geometry::packed(PixelFormat::Rgb, width, height, ColorMatrix::Bt601, ColorRange::Full);
        let times = FrameTimes {
            pts: Some(Duration::ZERO),
            captured: Captured::new(CaptureClock::File, received),
            received,
            ready: Instant::now(),
        };
        // The decoder made this memory for us alone, so it is the frame.
        let memory = Memory::Lent(LentMemory::new(image.into_raw()));
        let delivered = intake.deliver(times, geometry, memory, || heartbeat.idle());
        Ok(if delivered.is_err() || shutdown.begun() { End::Stopped } else { End::EndOfStream })
    }
}

/// Whether a JPEG ends before its end. Its decoder fills what is missing with grey and says nothing.
fn is_cut_off(jpeg: &[u8]) -> bool {
    // In the data of a scan no FF stands before such a byte, so the markers are those of the picture.
    let marker = |byte: u8| jpeg.windows(2).rposition(|pair| pair == [0xff, byte]);
    let (scan, end) = (marker(0xda), marker(0xd9));
    scan.is_some_and(|scan| end.is_none_or(|end| end < scan))
}

fn trouble(error: &ImageError) -> String {
    match error {
        ImageError::Limits(limit) if matches!(limit.kind(), LimitErrorKind::DimensionError) => {
            format!("a side is longer than {SIDE_MAX} pixels")
        }
        ImageError::Limits(_) => format!("decoding it would take more than {} MiB", MEMORY_MAX >> 20),
        ImageError::Unsupported(_) => format!("such pictures are not read ({error}); PNG and JPEG are"),
        _ => format!("the picture is damaged or was cut off ({error})"),
    }
}
