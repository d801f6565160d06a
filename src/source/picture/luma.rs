//! The brightness of a picture: samples of it, and sums of all of it.

use crate::frame::{ColorRange, Frame, PixelFormat};

/// So many groups of samples down and across a picture.
const SAMPLE_ROWS: usize = 24;
const SAMPLE_COLUMNS: usize = 16;

/// So many neighbouring pixels are one group of samples, less in a small picture. Neighbours share a cache line.
const SAMPLE_RUN: usize = 16;

/// A cell has at least so many pixels each way: two digits of the smallest clock that can be read are no smaller.
const CELL_MIN: usize = 8;

/// The most cells across a picture, and down.
const CELLS_ACROSS: usize = 120;
const CELLS_DOWN: usize = 90;

/// One part in so many of the rows, at the top and at the bottom, is where cameras write their name and a clock.
const RIM: usize = 12;

/// Where the luma of a picture is. Of a format without luma it is the green.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    bytes: &'a [u8],
    shape: Shape,
    range: ColorRange,
}

/// What the places of samples follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    width: usize,
    height: usize,
    stride: usize,
    /// Bytes from one pixel to the next.
    step: usize,
}

/// The samples: groups of neighbouring pixels, one at a chance place in each part of the picture, the same ones each time.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    shape: Option<Shape>,
    /// Where each group begins.
    places: Vec<usize>,
    run: usize,
    samples: Vec<u8>,
}

/// All of a picture, in cells.
#[derive(Debug, Default)]
pub(super) struct Luma {
    /// Pixels of a cell each way; those at the right and at the bottom have the rest, too.
    cell: usize,
    columns: usize,
    /// The sum of each cell.
    sums: Vec<u32>,
    /// The number of pixels of each cell.
    areas: Vec<u32>,
    /// How many pixels off the rim are brighter than the first level, darker than the second.
    bright: u64,
    shaded: u64,
    /// All pixels off the rim.
    pixels: u64,
}

/// Levels that pixels are counted by, as bytes of luma. Each has a lax form, for a picture that was beyond the strict one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    /// What is brighter is counted as bright.
    pub(super) bright: u8,
    /// What is darker is counted as shaded.
    pub(super) shaded: u8,
}

impl<'a> View<'a> {
    pub(super) fn of(frame: &'a Frame) -> Self {
        let geometry = frame.geometry();
        let (step, first) = match geometry.format {
            PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8 => (1, 0),
            PixelFormat::Yuy2 => (2, 0),
            PixelFormat::Uyvy => (2, 1),
            PixelFormat::Rgb | PixelFormat::Bgr => (3, 1),
            PixelFormat::Rgba | PixelFormat::Bgra => (4, 1),
        };
        let range = if step > 2 { ColorRange::Full } else { geometry.range };
        let (width, height) = (geometry.width as usize, geometry.height as usize);
        let shape = Shape { width, height, stride: geometry.planes[0].stride, step };
        Self { bytes: &frame.plane(0)[first..], shape, range }
    }

    /// The byte that stands for so many percent of white.
    pub(super) fn level(&self, percent: f64) -> u8 {
        let level = match self.range {
            ColorRange::Limited => 16.0 + percent * 2.19,
            ColorRange::Full => percent * 2.55,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let level = level.round().clamp(0.0, 255.0) as u8;
        level
    }

    /// The luma of a row's pixels, with what lies between them.
    fn row(&self, y: usize) -> &'a [u8] {
        let begin = y * self.shape.stride;
        // The last pixel of packed formats may end before the step does.
        let end = begin + (self.shape.width - 1) * self.shape.step + 1;
        &self.bytes[begin..end]
    }
}

impl Sampler {
    /// Whether the pictures have another shape now, for which places are made.
    pub(super) fn prepare(&mut self, view: &View<'_>) -> bool {
        if self.shape == Some(view.shape) {
            return false;
        }
        let Shape { width, height, stride, step } = view.shape;
        let (rows, columns) = (SAMPLE_ROWS.min(height), SAMPLE_COLUMNS.min(width));
        self.run = SAMPLE_RUN.min(width / columns);
        self.places.clear();
        let mut chance: u32 = 1;
        for index in 0..rows * columns {
            // Numerical Recipes' generator; its upper half is good enough to miss the raster of an encoder's blocks.
            let mut below = |count: usize| {
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (chance >> 16) as usize % count
            };
            let (row, column) = (index / columns, index % columns);
            let (top, bottom) = (row * height / rows, (row + 1) * height / rows);
            let (left, right) = (column * width / columns, (column + 1) * width / columns);
            let y = top + below(bottom - top);
            let x = left + below(right - left - self.run + 1);
            self.places.push(y * stride + x * step);
        }
        self.samples.resize(self.places.len() * self.run, 0);
        self.shape = Some(view.shape);
        true
    }

    /// Prepares anew for the next picture, whatever its shape.
    pub(super) fn forget(&mut self) {
        self.shape = None;
    }

    /// How many samples are taken of a picture.
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The samples of a picture of the shape that was prepared for.
    pub(super) fn take(&mut self, view: &View<'_>) -> &[u8] {
        let step = view.shape.step;
        for (run, place) in self.samples.chunks_exact_mut(self.run).zip(&self.places) {
            if step == 1 {
                run.copy_from_slice(&view.bytes[*place..*place + run.len()]);
            } else {
                for (sample, byte) in run.iter_mut().zip(view.bytes[*place..].iter().step_by(step)) {
                    *sample = *byte;
                }
            }
        }
        &self.samples
    }
}

impl Luma {
    /// Makes the cells for pictures of this shape.
    pub(super) fn prepare(&mut self, view: &View<'_>) {
        let Shape { width, height, .. } = view.shape;
        self.cell = CELL_MIN.max(width.div_ceil(CELLS_ACROSS)).max(height.div_ceil(CELLS_DOWN));
        let (columns, rows) = ((width / self.cell).max(1), (height / self.cell).max(1));
        self.columns = columns;
        let side = |index: usize, count: usize, len: usize| {
            if index + 1 == count { len - index * self.cell } else { self.cell }
        };
        self.areas.clear();
        self.areas.extend((0..rows * columns).map(|index| {
            let area = side(index % columns, columns, width) * side(index / columns, rows, height);
            u32::try_from(area).expect("the sides of a cell are at most a few hundred pixels")
        }));
        self.sums.clear();
        self.sums.resize(rows * columns, 0);
    }

    /// Takes in all of a picture.
    pub(super) fn look(&mut self, view: &View<'_>, levels: Levels) {
        match view.shape.step {
            1 => self.look_at::<1>(view, levels),
            2 => self.look_at::<2>(view, levels),
            3 => self.look_at::<3>(view, levels),
            _ => self.look_at::<4>(view, levels),
        }
    }

    fn look_at<const STEP: usize>(&mut self, view: &View<'_>, levels: Levels) {
        let height = view.shape.height;
        let rows = self.sums.len() / self.columns;
        let rim = height / RIM;
        self.sums.fill(0);
        (self.bright, self.shaded, self.pixels) = (0, 0, 0);
        for y in 0..height {
            let row = view.row(y);
            let first = (y / self.cell).min(rows - 1) * self.columns;
            let sums = &mut self.sums[first..first + self.columns];
            let (body, rest) = row.split_at((self.columns - 1) * self.cell * STEP);
            for (sum, pixels) in sums.iter_mut().zip(body.chunks_exact(self.cell * STEP)) {
                *sum += add::<STEP>(pixels);
            }
            sums[self.columns - 1] += add::<STEP>(rest);
            if y >= rim && y < height - rim {
                self.bright += count::<STEP>(row, |pixel| pixel > levels.bright);
                self.shaded += count::<STEP>(row, |pixel| pixel < levels.shaded);
                self.pixels += view.shape.width as u64;
            }
        }
    }

    /// The sum of each cell.
    pub(super) fn sums(&self) -> &[u32] {
        &self.sums
    }

    /// Whether a cell's mean differs by more than `levels` from what it was.
    pub(super) fn differs(&self, before: &[u32], levels: u32) -> bool {
        let cells = self.sums.iter().zip(before).zip(&self.areas);
        cells.fold(false, |any, ((now, then), area)| any | (now.abs_diff(*then) > levels * area))
    }

    /// Which part of the pixels off the rim is brighter than the first level.
    pub(super) fn bright(&self) -> f64 {
        self.bright as f64 / self.pixels.max(1) as f64
    }

    /// Which part of the pixels off the rim is darker than the second level.
    pub(super) fn shaded(&self) -> f64 {
        self.shaded as f64 / self.pixels.max(1) as f64
    }

    /// By how much neighbouring cells off the rim differ at most, and any two of them, in bytes of luma.
    pub(super) fn contrast(&self) -> (f64, f64) {
        let (rows, columns) = (self.sums.len() / self.columns, self.columns);
        let rim = rows.div_ceil(RIM);
        let inner = if rows > 2 * rim { rim..rows - rim } else { 0..rows };
        let mean = |index: usize| f64::from(self.sums[index]) / f64::from(self.areas[index]);
        let (mut apart, mut least, mut most) = (0.0_f64, f64::MAX, 0.0_f64);
        for row in inner.clone() {
            for column in 0..columns {
                let index = row * columns + column;
                let here = mean(index);
                (least, most) = (least.min(here), most.max(here));
                if column > 0 {
                    apart = apart.max((here - mean(index - 1)).abs());
                }
                if row > inner.start {
                    apart = apart.max((here - mean(index - columns)).abs());
                }
            }
        }
        (apart, most - least)
    }
}

/// The sum of pixels that are `STEP` bytes apart.
fn add<const STEP: usize>(pixels: &[u8]) -> u32 {
    if STEP == 1 {
        pixels.iter().map(|pixel| u32::from(*pixel)).sum()
    } else {
        pixels.iter().step_by(STEP).map(|pixel| u32::from(*pixel)).sum()
    }
}

/// How many of the pixels that are `STEP` bytes apart are wanted.
fn count<const STEP: usize>(pixels: &[u8], wanted: impl Fn(u8) -> bool) -> u64 {
    // In parts, so that each is counted in bytes, which makes vectors of it.
    pixels
        .chunks(128 * STEP)
        .map(|part| {
            let count = part.iter().step_by(STEP).fold(0_u8, |count, pixel| count + u8::from(wanted(*pixel)));
            u64::from(count)
        })
        .sum()
}
