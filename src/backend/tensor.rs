//! Shapes, element types and views: what a session's inputs and outputs look like from outside.

use std::fmt;
use std::ops::RangeInclusive;

use half::{bf16, f16};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 32-bit float.
    F32,
    /// 16-bit float of IEEE 754.
    F16,
    /// 16-bit float with the exponent of a 32-bit one.
    Bf16,
    /// 8-bit unsigned integer.
    U8,
    /// 8-bit signed integer.
    I8,
}

impl ElementType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::U8, Self::I8];

    /// The name in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::U8 => "u8",
            Self::I8 => "i8",
        }
    }

    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 | Self::I8 => 1,
        }
    }

    /// The integers that an element can hold, if it holds integers.
    #[must_use]
    pub fn integers(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => None,
            Self::U8 => Some(0..=255),
            Self::I8 => Some(-128..=127),
        }
    }
}

/// One dimension of a shape as a model declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Always this many.
    Fixed(usize),
    /// Known when a batch runs; written `-1`.
    Dynamic,
}

impl Dim {
    /// Whether a tensor with `size` here would fit.
    #[must_use]
    pub fn accepts(self, size: usize) -> bool {
        self == Self::Dynamic || self == Self::Fixed(size)
    }
}

/// A shape as a model declares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// A shape of these sizes, where a negative one is dynamic.
    #[must_use]
    pub fn new(dims: &[i64]) -> Self {
        Self(dims.iter().map(|&dim| usize::try_from(dim).map_or(Dim::Dynamic, Dim::Fixed)).collect())
    }

    /// Whether `other` can be the same tensor: as many dimensions, and equal wherever both are fixed.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(a, b)| match (a, b) {
                (Dim::Fixed(a), Dim::Fixed(b)) => a == b,
                _ => true,
            })
    }

    /// The shape with `batch` frames, when nothing but the first dimension is dynamic.
    #[must_use]
    pub fn with_batch(&self, batch: usize) -> Option<Vec<usize>> {
        let (first, rest) = self.0.split_first()?;
        first.accepts(batch).then_some(())?;
        let rest = rest.iter().map(|dim| match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Dynamic => None,
        });
        std::iter::once(Some(batch)).chain(rest).collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dim) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match dim {
                Dim::Fixed(size) => write!(f, "{comma}{size}")?,
                Dim::Dynamic => write!(f, "{comma}-1")?,
            }
        }
        f.write_str("]")
    }
}

/// Name, type and shape of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// Type of its elements.
    pub element_type: ElementType,
    /// Its shape.
    pub shape: Shape,
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.element_type.name(), self.shape)
    }
}

/// Elements to read.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 16-bit floats.
    F16(&'a [f16]),
    /// 16-bit floats with a long exponent.
    Bf16(&'a [bf16]),
    /// 8-bit unsigned integers.
    U8(&'a [u8]),
    /// 8-bit signed integers.
    I8(&'a [i8]),
}

/// Elements to write.
#[derive(Debug)]
pub enum ElementsMut<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// 16-bit floats.
    F16(&'a mut [f16]),
    /// 16-bit floats with a long exponent.
    Bf16(&'a mut [bf16]),
    /// 8-bit unsigned integers.
    U8(&'a mut [u8]),
    /// 8-bit signed integers.
    I8(&'a mut [i8]),
}

impl<'a> Elements<'a> {
    /// The elements of a type that `bytes` hold.
    ///
    /// # Panics
    /// When the bytes are not aligned for the type, or are no whole number of elements.
    #[must_use]
    pub fn of(element_type: ElementType, bytes: &'a [u8]) -> Self {
        match element_type {
            ElementType::F32 => Self::F32(cast(bytes)),
            ElementType::F16 => Self::F16(cast(bytes)),
            ElementType::Bf16 => Self::Bf16(cast(bytes)),
            ElementType::U8 => Self::U8(bytes),
            ElementType::I8 => Self::I8(cast(bytes)),
        }
    }
}

impl<'a> ElementsMut<'a> {
    /// The elements of a type that `bytes` hold.
    ///
    /// # Panics
    /// When the bytes are not aligned for the type, or are no whole number of elements.
    #[must_use]
    pub fn of(element_type: ElementType, bytes: &'a mut [u8]) -> Self {
        match element_type {
            ElementType::F32 => Self::F32(cast_mut(bytes)),
            ElementType::F16 => Self::F16(cast_mut(bytes)),
            ElementType::Bf16 => Self::Bf16(cast_mut(bytes)),
            ElementType::U8 => Self::U8(bytes),
            ElementType::I8 => Self::I8(cast_mut(bytes)),
        }
    }

    /// What they are.
    #[must_use]
    pub fn element_type(&self) -> ElementType {
        match self {
            Self::F32(_) => ElementType::F32,
            Self::F16(_) => ElementType::F16,
            Self::Bf16(_) => ElementType::Bf16,
            Self::U8(_) => ElementType::U8,
            Self::I8(_) => ElementType::I8,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(all) => all.len(),
            Self::F16(all) => all.len(),
            Self::Bf16(all) => all.len(),
            Self::U8(all) => all.len(),
            Self::I8(all) => all.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn cast<T: FromBytes + Immutable>(bytes: &[u8]) -> &[T] {
    FromBytes::ref_from_bytes(bytes)
        .expect("aligned, and a whole number of elements, as the caller has to see to")
}

fn cast_mut<T: FromBytes + IntoBytes>(bytes: &mut [u8]) -> &mut [T] {
    FromBytes::mut_from_bytes(bytes)
        .expect("aligned, and a whole number of elements, as the caller has to see to")
}

/// A tensor to read. Elements lie in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Its sizes; the first is the number of frames in the batch.
    pub shape: &'a [usize],
    /// Its elements, as many as the product of the sizes.
    pub elements: Elements<'a>,
}

impl<'a> TensorView<'a> {
    /// The elements of frame `slot` of the batch as floats, and the sizes of the rest of the shape. `None` for a tensor
    /// of another type, or with fewer frames.
    #[must_use]
    pub fn frame_f32(&self, slot: usize) -> Option<(&'a [usize], &'a [f32])> {
        let Elements::F32(all) = self.elements else { return None };
        let (&frames, rest) = self.shape.split_first()?;
        let len: usize = rest.iter().product();
        let start = slot.checked_mul(len)?;
        (slot < frames).then(|| all.get(start..start + len).map(|elements| (rest, elements)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_agree_where_both_are_fixed() {
        let declared = Shape::new(&[-1, 3, 256, 256]);
        assert!(declared.agrees_with(&Shape::new(&[1, 3, 256, 256])));
        assert!(!declared.agrees_with(&Shape::new(&[1, 3, 320, 256])));
        assert!(!declared.agrees_with(&Shape::new(&[3, 256, 256])));
        assert_eq!(declared.to_string(), "[-1, 3, 256, 256]");
        assert_eq!(declared.with_batch(4), Some(vec![4, 3, 256, 256]));
        assert_eq!(Shape::new(&[1, 3]).with_batch(2), None);
        assert_eq!(Shape::new(&[-1, -1]).with_batch(2), None);
    }

    #[test]
    fn a_frame_of_a_batch_is_its_own_slice() {
        let data: Vec<f32> = (0..12u8).map(f32::from).collect();
        let view = TensorView { shape: &[2, 3, 2], elements: Elements::F32(&data) };
        let (shape, second) = view.frame_f32(1).unwrap();
        assert_eq!((shape, second[0]), (&[3, 2][..], 6.0));
        assert!(view.frame_f32(2).is_none());
    }
}
