//! Shapes, element types and views: what a session's inputs and outputs look like from outside.

use std::fmt;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 32-bit float.
    F32,
    /// 8-bit unsigned integer.
    U8,
}

impl ElementType {
    /// The name in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::U8 => "u8",
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
    /// 8-bit unsigned integers.
    U8(&'a [u8]),
}

/// Elements to write.
#[derive(Debug)]
pub enum ElementsMut<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// 8-bit unsigned integers.
    U8(&'a mut [u8]),
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
