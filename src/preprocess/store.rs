//! The slot: its padding, and how rows of values are put there as elements.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::kernel::Kernel;
use super::{InputSpec, Layout};

/// An element of the input tensor.
pub(super) trait Element: Copy {
    /// The rows themselves, when their elements are floats.
    fn as_floats(rows: [&mut [Self]; 3]) -> Result<[&mut [f32]; 3], [&mut [Self]; 3]> {
        Err(rows)
    }

    /// Puts values, which are in the type's range, as the nearest elements.
    fn put(kernel: Kernel, values: &[f32], elements: &mut [Self]);
}

impl Element for f32 {
    fn as_floats(rows: [&mut [Self]; 3]) -> Result<[&mut [f32]; 3], [&mut [Self]; 3]> {
        Ok(rows)
    }

    fn put(_: Kernel, values: &[f32], elements: &mut [Self]) {
        elements.copy_from_slice(values);
    }
}

impl Element for f16 {
    fn put(_: Kernel, values: &[f32], elements: &mut [Self]) {
        elements.convert_from_f32_slice(values);
    }
}

impl Element for bf16 {
    fn put(_: Kernel, values: &[f32], elements: &mut [Self]) {
        elements.convert_from_f32_slice(values);
    }
}

impl Element for u8 {
    fn put(kernel: Kernel, values: &[f32], elements: &mut [Self]) {
        kernel.round_u8(values, elements);
    }
}

impl Element for i8 {
    fn put(kernel: Kernel, values: &[f32], elements: &mut [Self]) {
        kernel.round_i8(values, elements);
    }
}

/// Rows of values on their way to the slot.
#[derive(Debug)]
pub(super) struct Scratch {
    rows: [Vec<f32>; 3],
    pixels: Vec<f32>,
}

impl Scratch {
    pub(super) fn new(width: usize) -> Self {
        Self { rows: std::array::from_fn(|_| vec![0.0; width]), pixels: vec![0.0; 3 * width] }
    }
}

/// A slot, and where in it the picture lies.
pub(super) struct Target<'a, T> {
    slot: &'a mut [T],
    layout: Layout,
    size: (usize, usize),
    columns: Range<usize>,
    rows: Range<usize>,
}

impl<'a, T: Element> Target<'a, T> {
    pub(super) fn new(spec: &InputSpec, visible: &[Range<u32>; 2], slot: &'a mut [T]) -> Self {
        let size = (spec.width as usize, spec.height as usize);
        let [columns, rows] =
            [0, 1].map(|side: usize| visible[side].start as usize..visible[side].end as usize);
        Self { slot, layout: spec.layout, size, columns, rows }
    }

    /// Pads all around the picture.
    pub(super) fn pad(&mut self, kernel: Kernel, spec: &InputSpec) {
        let values = spec.affine().map(|(gain, offset)| {
            let (least, most) = spec.element_type.integers().map_or((f64::MIN, f64::MAX), |integers| {
                (f64::from(*integers.start()), f64::from(*integers.end()))
            });
            #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose, after the last step")]
            let value = (f64::from(spec.pad) * gain + offset).clamp(least, most) as f32;
            value
        });
        let mut pad = [self.slot[0]; 3];
        T::put(kernel, &values, &mut pad);
        let (width, height) = self.size;
        let (columns, rows) = (self.columns.clone(), self.rows.clone());
        match self.layout {
            Layout::Nchw => {
                for (plane, pad) in self.slot.chunks_exact_mut(width * height).zip(pad) {
                    surround(plane, width, &columns, &rows, pad);
                }
            }
            Layout::Nhwc => surround(self.slot.as_chunks_mut::<3>().0, width, &columns, &rows, pad),
        }
    }

    /// Puts row `y` of the picture, of which `make` makes the values of three channels.
    pub(super) fn put(
        &mut self,
        kernel: Kernel,
        y: usize,
        scratch: &mut Scratch,
        make: impl FnOnce([&mut [f32]; 3]),
    ) {
        let (width, height) = self.size;
        let len = self.columns.len();
        let start = (self.rows.start + y) * width + self.columns.start;
        let values = scratch.rows.each_mut().map(|row| &mut row[..len]);
        match self.layout {
            Layout::Nchw => {
                let (first, rest) = self.slot.split_at_mut(width * height);
                let (second, third) = rest.split_at_mut(width * height);
                let rows = [first, second, third].map(|plane| &mut plane[start..start + len]);
                match T::as_floats(rows) {
                    Ok(rows) => make(rows),
                    Err(rows) => {
                        make(values);
                        for (row, values) in rows.into_iter().zip(&scratch.rows) {
                            T::put(kernel, &values[..len], row);
                        }
                    }
                }
            }
            Layout::Nhwc => {
                make(values);
                let pixels = &mut scratch.pixels[..3 * len];
                kernel.interleave(scratch.rows.each_ref().map(|row| &row[..len]), pixels);
                T::put(kernel, pixels, &mut self.slot[3 * start..][..3 * len]);
            }
        }
    }
}

/// Fills all that is not in these columns and rows.
fn surround<T: Copy>(plane: &mut [T], width: usize, columns: &Range<usize>, rows: &Range<usize>, pad: T) {
    let (first, last) = (rows.start * width, rows.end * width);
    plane[..first].fill(pad);
    plane[last..].fill(pad);
    for row in plane[first..last].chunks_exact_mut(width) {
        row[..columns.start].fill(pad);
        row[columns.end..].fill(pad);
    }
}
