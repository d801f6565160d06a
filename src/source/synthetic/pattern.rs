//! `test://pattern`: a camera that Gantry makes, for trials without a camera.
//!
//! The bars are painted once; each frame is a copy of them with a square that moves and changes its colour, so no two
//! neighbouring frames are equal, down to a picture of one pixel. Frames come at a camera's pace and are never late to
//! make up for a pause; or as fast as they are taken, and none is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lease;
use crate::frame::clock::{CaptureClock, Captured};
use crate::frame::{ColorMatrix, ColorRange, FrameTimes, Geometry, Memory, PixelFormat};
use crate::source::{End, Intake, Rate, Source, SourceError, TestPattern};
use crate::threads::{Heartbeat, Shutdown};

/// Slabs to spare, beyond those of the frames that are under way.
pub(super) const SPARE: usize = 2;

/// How long to wait at most between two heartbeats.
const BEAT: Duration = Duration::from_millis(200);

/// White, yellow, cyan, green, magenta, red, blue, black.
const BARS: [[u8; 3]; 8] = [
    [255, 255, 255],
    [255, 255, 0],
    [0, 255, 255],
    [0, 255, 0],
    [255, 0, 255],
    [255, 0, 0],
    [0, 0, 255],
    [0, 0, 0],
];

/// The source.
#[derive(Debug)]
pub(super) struct Pattern {
    pattern: TestPattern,
}

impl Pattern {
    pub(super) fn new(pattern: TestPattern) -> Self {
        Self { pattern }
    }
}

impl Source for Pattern {
    fn run_once(
        &mut self,
        intake: &Arc<Intake>,
        shutdown: &Shutdown,
        heartbeat: &Heartbeat,
    ) -> Result<End, SourceError> {
        let geometry = geometry(&self.pattern);
        let Geometry { width, height, .. } = geometry;
        let pool = intake.slabs(geometry.len(), SPARE).map_err(|source| SourceError::Memory {
            width,
            height,
            source,
        })?;
        let bars = bars(&geometry);
        let (start, mut due) = (Instant::now(), Instant::now());
        for number in 0..self.pattern.frames.unwrap_or(u64::MAX) {
            if wait_until(due, shutdown, heartbeat) {
                return Ok(End::Stopped);
            }
            let slab = match self.pattern.rate {
                Rate::PerSecond(rate) => {
                    let (now, period) = (Instant::now(), Duration::from_secs_f64(1.0 / rate));
                    due = if now > due + period { now } else { due } + period;
                    pool.lease()
                }
                Rate::Max => lease(&pool, shutdown, heartbeat),
            };
            // Without one, a frame is not made, or the end has begun.
            let Some(mut slab) = slab else { continue };
            let taken = Instant::now();
            slab.copy_from_slice(&bars);
            paint_square(&mut slab, &geometry, number);
            let times = FrameTimes {
                pts: Some(taken - start),
                captured: Captured {
                    error: Some(Duration::ZERO),
                    ..Captured::new(CaptureClock::Test, taken)
                },
                received: taken,
                ready: Instant::now(),
            };
            if intake.deliver(times, geometry, Memory::Slab(slab.share()), || heartbeat.idle()).is_err() {
                return Ok(End::Stopped);
            }
        }
        Ok(End::EndOfStream)
    }
}

/// Waits until `due`; true when the daemon is ending.
fn wait_until(due: Instant, shutdown: &Shutdown, heartbeat: &Heartbeat) -> bool {
    loop {
        heartbeat.beat();
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return shutdown.begun();
        }
        if shutdown.wait(left.min(BEAT)) {
            return true;
        }
    }
}

pub(super) fn geometry(pattern: &TestPattern) -> Geometry {
    let range = match pattern.format {
        PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Yuy2 | PixelFormat::Uyvy => ColorRange::Limited,
        _ => ColorRange::Full,
    };
    Geometry::packed(pattern.format, pattern.width, pattern.height, ColorMatrix::Bt601, range)
}

fn bars(geometry: &Geometry) -> Vec<u8> {
    let mut bytes = vec![0; geometry.len()];
    let (width, height) = (geometry.width as usize, geometry.height as usize);
    for y in 0..height {
        for x in 0..width {
            put(&mut bytes, geometry, (x, y), BARS[x * BARS.len() / width]);
        }
    }
    bytes
}

/// A square of a quarter of the picture's shorter side, moving along its diagonal, with a colour that differs from the
/// frame's before in every channel.
fn paint_square(bytes: &mut [u8], geometry: &Geometry, number: u64) {
    let (width, height) = (geometry.width as usize, geometry.height as usize);
    let side = (width.min(height) / 4).max(1);
    let step = usize::try_from(number % 1_000_000).expect("below a million") * (side / 8).max(1);
    let (left, top) = (step % (width - side + 1), step % (height - side + 1));
    // 31 is odd, so the shade takes each value of a byte before it repeats.
    let shade = u8::try_from((number * 31) % 256).expect("below 256");
    for y in top..top + side {
        for x in left..left + side {
            put(bytes, geometry, (x, y), [shade, shade, shade]);
        }
    }
}

/// Sets one pixel. Where neighbours share their colour, the last one painted gives it.
fn put(bytes: &mut [u8], geometry: &Geometry, (x, y): (usize, usize), rgb: [u8; 3]) {
    let at = |plane: usize, column: usize, row: usize| {
        geometry.planes[plane].offset + geometry.planes[plane].stride * row + column
    };
    let [r, g, b] = rgb;
    let [luma, u, v] = to_ycbcr(rgb);
    let pair = at(0, x / 2 * 4, y);
    match geometry.format {
        PixelFormat::Nv12 => {
            bytes[at(0, x, y)] = luma;
            bytes[at(1, x / 2 * 2, y / 2)] = u;
            bytes[at(1, x / 2 * 2 + 1, y / 2)] = v;
        }
        PixelFormat::I420 => {
            bytes[at(0, x, y)] = luma;
            bytes[at(1, x / 2, y / 2)] = u;
            bytes[at(2, x / 2, y / 2)] = v;
        }
        PixelFormat::Yuy2 => {
            bytes[pair + x % 2 * 2] = luma;
            bytes[pair + 1] = u;
            bytes[pair + 3] = v;
        }
        PixelFormat::Uyvy => {
            bytes[pair + 1 + x % 2 * 2] = luma;
            bytes[pair] = u;
            bytes[pair + 2] = v;
        }
        PixelFormat::Gray8 => bytes[at(0, x, y)] = full_range_luma(rgb),
        PixelFormat::Rgb => bytes[at(0, x * 3, y)..][..3].copy_from_slice(&[r, g, b]),
        PixelFormat::Bgr => bytes[at(0, x * 3, y)..][..3].copy_from_slice(&[b, g, r]),
        PixelFormat::Rgba => bytes[at(0, x * 4, y)..][..4].copy_from_slice(&[r, g, b, 255]),
        PixelFormat::Bgra => bytes[at(0, x * 4, y)..][..4].copy_from_slice(&[b, g, r, 255]),
    }
}

/// BT.601, limited range.
fn to_ycbcr([r, g, b]: [u8; 3]) -> [u8; 3] {
    let [r, g, b] = [r, g, b].map(i32::from);
    let byte =
        |value: i32| u8::try_from((value + 128) >> 8).expect("the coefficients keep it within 16..=240");
    [
        byte(66 * r + 129 * g + 25 * b + (16 << 8)),
        byte(-38 * r - 74 * g + 112 * b + (128 << 8)),
        byte(112 * r - 94 * g - 18 * b + (128 << 8)),
    ]
}

fn full_range_luma([r, g, b]: [u8; 3]) -> u8 {
    let [r, g, b] = [r, g, b].map(u32::from);
    u8::try_from((77 * r + 150 * g + 29 * b + 128) >> 8).expect("the coefficients add up to 256")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(format: PixelFormat, (width, height): (u32, u32), number: u64) -> (Geometry, Vec<u8>) {
        let geometry =
            geometry(&TestPattern { width, height, rate: Rate::PerSecond(25.0), frames: None, format });
        let mut bytes = bars(&geometry);
        paint_square(&mut bytes, &geometry, number);
        (geometry, bytes)
    }

    /// The colour of a pixel, read back by the inverse of BT.601.
    fn pixel(geometry: &Geometry, bytes: &[u8], x: usize, y: usize) -> [f64; 3] {
        let at = |plane: usize, column: usize, row: usize| {
            let plane = geometry.planes[plane];
            f64::from(bytes[plane.offset + plane.stride * row + column])
        };
        let yuv = match geometry.format {
            PixelFormat::Nv12 => [at(0, x, y), at(1, x / 2 * 2, y / 2), at(1, x / 2 * 2 + 1, y / 2)],
            PixelFormat::I420 => [at(0, x, y), at(1, x / 2, y / 2), at(2, x / 2, y / 2)],
            PixelFormat::Yuy2 => [at(0, x * 2, y), at(0, x / 2 * 4 + 1, y), at(0, x / 2 * 4 + 3, y)],
            PixelFormat::Uyvy => [at(0, x * 2 + 1, y), at(0, x / 2 * 4, y), at(0, x / 2 * 4 + 2, y)],
            PixelFormat::Gray8 => return [at(0, x, y); 3],
            PixelFormat::Rgb => return [0, 1, 2].map(|c| at(0, x * 3 + c, y)),
            PixelFormat::Bgr => return [2, 1, 0].map(|c| at(0, x * 3 + c, y)),
            PixelFormat::Rgba => return [0, 1, 2].map(|c| at(0, x * 4 + c, y)),
            PixelFormat::Bgra => return [2, 1, 0].map(|c| at(0, x * 4 + c, y)),
        };
        let [luma, u, v] = [1.164 * (yuv[0] - 16.0), yuv[1] - 128.0, yuv[2] - 128.0];
        [luma + 1.596 * v, luma - 0.392 * u - 0.813 * v, luma + 2.017 * u]
    }

    #[test]
    fn every_format_shows_the_same_bars() {
        for format in PixelFormat::ALL {
            let (geometry, bytes) = frame(format, (640, 480), 0);
            for (index, expected) in BARS.into_iter().enumerate() {
                let seen = pixel(&geometry, &bytes, index * 80 + 40, 400);
                let expected = match format {
                    PixelFormat::Gray8 => [full_range_luma(expected); 3],
                    _ => expected,
                };
                for (seen, expected) in seen.into_iter().zip(expected) {
                    assert!(
                        (seen - f64::from(expected)).abs() < 4.0,
                        "{format:?}, bar {index}: {seen} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn neighbouring_frames_differ_in_every_format_and_size() {
        for format in PixelFormat::ALL {
            for size in [(1, 1), (1, 7), (7, 1), (2, 2), (33, 17), (64, 48)] {
                for number in [0, 1, 7, 254, 255, 256, u64::from(u32::MAX)] {
                    let (one, two) = (frame(format, size, number).1, frame(format, size, number + 1).1);
                    assert_ne!(one, two, "{format:?} {size:?} {number}");
                }
            }
        }
    }
}
