//! From the rows of a picture's planes to the two lines that a row of the input is resampled from: one of the first
//! component, one of pairs of the second and third.

use super::kernel::{Kernel, Line, Rows};
use super::plan::{Plan, Tables};
use crate::frame::{Frame, Geometry, PixelFormat};

/// The lines of one row of the input.
#[derive(Debug, Default)]
pub(super) struct Lines {
    first: Vec<i16>,
    pairs: Vec<i16>,
    /// What is to be sorted into the other two.
    mixed: [Vec<i16>; 2],
}

impl Lines {
    /// Makes room for the lines of a plan.
    pub(super) fn reserve(&mut self, plan: &Plan) {
        let whole = plan.whole.line.len().max(plan.whole.across.reach());
        let half = plan.half.line.len().max(plan.half.across.reach());
        grow(&mut self.first, whole);
        grow(&mut self.pairs, 2 * half);
        for mixed in &mut self.mixed {
            grow(mixed, 4 * whole);
        }
    }

    /// Fills the lines for visible row `y`.
    pub(super) fn fill(&mut self, picture: &Picture<'_>, plan: &Plan, y: usize) {
        let kernel = picture.kernel;
        let Self { first, pairs, mixed: [mixed, other] } = self;
        let Plan { whole, half, .. } = plan;
        let down = |plane: usize, step: usize, tables: &Tables, line: &mut [i16]| {
            picture.stack(plane, step, tables, y, line)
        };
        match picture.geometry.format {
            PixelFormat::Gray8 => {
                down(0, 1, whole, first);
            }
            PixelFormat::Nv12 => {
                down(0, 1, whole, first);
                down(1, 2, half, pairs);
            }
            PixelFormat::I420 => {
                down(0, 1, whole, first);
                let len = down(1, 1, half, mixed);
                down(2, 1, half, other);
                kernel.zip(&mixed[..len], &other[..len], pairs);
            }
            PixelFormat::Yuy2 => {
                let len = down(0, 2, whole, mixed);
                kernel.unzip(&mixed[..len], first, pairs);
            }
            PixelFormat::Uyvy => {
                let len = down(0, 2, whole, mixed);
                kernel.unzip(&mixed[..len], pairs, first);
            }
            PixelFormat::Rgb | PixelFormat::Bgr => {
                let len = down(0, 3, whole, mixed);
                kernel.split::<3>(&mixed[..len], first, pairs);
            }
            PixelFormat::Rgba | PixelFormat::Bgra => {
                let len = down(0, 4, whole, mixed);
                kernel.split::<4>(&mixed[..len], first, pairs);
            }
        }
    }

    /// The lines, to be read by a plan's taps.
    pub(super) fn resampled<'a>(&'a self, plan: &'a Plan) -> [Line<'a>; 2] {
        [Line::single(&self.first, &plan.whole.across), Line::pairs(&self.pairs, &plan.half.across)]
    }
}

/// Lines only grow. What is behind the samples of a row has the weight 0.
fn grow(line: &mut Vec<i16>, len: usize) {
    if line.len() < len {
        line.resize(len, 0);
    }
}

/// The bytes of a frame by plane, and what reads them.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    kernel: Kernel,
    geometry: &'a Geometry,
    planes: [&'a [u8]; 3],
}

impl<'a> Picture<'a> {
    pub(super) fn new(frame: &'a Frame, kernel: Kernel) -> Self {
        let geometry = frame.geometry();
        let planes = geometry.format.planes();
        let plane = |plane| if plane < planes { frame.plane(plane) } else { &[] };
        Self { kernel, geometry, planes: std::array::from_fn(plane) }
    }

    /// Puts the rows of a plane that visible row `y` shows into one line, and tells how many samples it has. `step` is the
    /// number of bytes for each of the table's samples.
    fn stack(&self, plane: usize, step: usize, tables: &Tables, y: usize, line: &mut [i16]) -> usize {
        let (first, weights) = tables.down.row(y);
        let stride = self.geometry.planes[plane].stride;
        let (start, len) = (tables.line.start as usize * step, tables.line.len() * step);
        let bytes = &self.planes[plane][first as usize * stride + start..];
        let rows = Rows { bytes, stride, len };
        match *weights {
            [_] => self.kernel.blend(rows.row(0), rows.row(0), 0, line),
            [_, far] => self.kernel.blend(rows.row(0), rows.row(1), fifteen_bits(far), line),
            _ => self.kernel.average(rows, weights, line),
        }
        len
    }
}

/// A weight from 0 to 1 in steps of 1/32768; 1 itself becomes one step less.
fn fifteen_bits(weight: f32) -> i16 {
    #[expect(clippy::cast_possible_truncation, reason = "from 0 to 32768, and a cast saturates")]
    let steps = (weight * 32768.0).round() as i16;
    steps
}
