//! Rectangles. Pure.
//!
//! Coordinates are `f32`, as models give and messages carry them; whatever is computed from them is computed in `f64`, in
//! which the sum of a corner and a size is exact, so that neither a far corner nor a tiny box loses digits.

use crate::preprocess::letterbox::Region;

/// A rectangle in pixels, origin top left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BBox {
    /// Left edge.
    pub x: f32,
    /// Top edge.
    pub y: f32,
    /// Width.
    pub w: f32,
    /// Height.
    pub h: f32,
}

impl BBox {
    /// The rectangle from `(left, top)` to `(right, bottom)`. Corners that are the wrong way round give a negative size,
    /// which [`BBox::is_proper`] tells.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a coordinate has as many digits as f32 holds")]
    pub fn from_corners(left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self { x: left as f32, y: top as f32, w: (right - left) as f32, h: (bottom - top) as f32 }
    }

    /// Right edge.
    #[must_use]
    pub fn right(&self) -> f64 {
        f64::from(self.x) + f64::from(self.w)
    }

    /// Bottom edge.
    #[must_use]
    pub fn bottom(&self) -> f64 {
        f64::from(self.y) + f64::from(self.h)
    }

    /// Width times height.
    #[must_use]
    pub fn area(&self) -> f64 {
        f64::from(self.w) * f64::from(self.h)
    }

    /// Whether all numbers are finite and both sizes positive.
    #[must_use]
    pub fn is_proper(&self) -> bool {
        self.x.is_finite()
            && self.y.is_finite()
            && self.w > 0.0
            && self.w.is_finite()
            && self.h > 0.0
            && self.h.is_finite()
    }

    /// The part of this box that lies in a region of a picture, or `None` when there is none or the box is not proper. The
    /// far edges of what comes back are at most the region's, exactly, also when summed in `f64`.
    #[must_use]
    pub fn clip(&self, region: &Region) -> Option<Self> {
        // First, since the lesser and the greater of two numbers ignore a NaN.
        if !self.is_proper() {
            return None;
        }
        let (x, w) = clip_side(self.x, self.w, (region.x, region.width))?;
        let (y, h) = clip_side(self.y, self.h, (region.y, region.height))?;
        Some(Self { x, y, w, h })
    }

    /// Area of the intersection over area of the union: 0 for boxes that do not overlap, 1 for equal ones.
    #[must_use]
    pub fn iou(&self, other: &Self) -> f32 {
        let across = self.right().min(other.right()) - f64::from(self.x.max(other.x));
        let down = self.bottom().min(other.bottom()) - f64::from(self.y.max(other.y));
        if across > 0.0 && down > 0.0 {
            let intersection = across * down;
            ratio(intersection, self.area() + other.area() - intersection)
        } else {
            0.0
        }
    }
}

/// `part / whole` rounded to `f32`. Two boxes whose true overlap is the number that a threshold in `f32` was rounded from
/// therefore compare equal to it.
#[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
fn ratio(part: f64, whole: f64) -> f32 {
    (part / whole) as f32
}

/// One side of a box within one of a region, both as start and length. Nothing when no length is left.
#[expect(clippy::cast_possible_truncation, reason = "a coordinate has as many digits as f32 holds")]
fn clip_side(start: f32, length: f32, within: (u32, u32)) -> Option<(f32, f32)> {
    let first = f64::from(within.0);
    let limit = first + f64::from(within.1);
    let end = (f64::from(start) + f64::from(length)).min(limit);
    // The sum turns a negative zero, which would be written "-0.0", into a plain one.
    let start = f64::from(start).max(first) + 0.0;
    let length = end - start;
    if length <= 0.0 {
        return None;
    }
    let mut rounded = length as f32;
    if start + f64::from(rounded) > limit {
        rounded = rounded.next_down();
    }
    (rounded > 0.0).then_some((start as f32, rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners(left: f64, top: f64, right: f64, bottom: f64) -> BBox {
        BBox::from_corners(left, top, right, bottom)
    }

    #[test]
    fn overlap_is_intersection_over_union() {
        let square = corners(0.0, 0.0, 10.0, 10.0);
        assert_eq!(square.iou(&square), 1.0);
        assert_eq!(square.iou(&corners(5.0, 0.0, 15.0, 10.0)), 1.0 / 3.0);
        assert_eq!(square.iou(&corners(0.0, 0.0, 10.0, 4.5)), 0.45, "as the literal rounds");
        assert_eq!(square.iou(&corners(10.0, 0.0, 20.0, 10.0)), 0.0, "touching is not overlapping");
        assert_eq!(square.iou(&corners(20.0, 20.0, 30.0, 30.0)), 0.0);
        let empty = corners(5.0, 5.0, 5.0, 5.0);
        assert_eq!(empty.iou(&empty), 0.0);
    }

    #[test]
    fn far_and_tiny_boxes_keep_their_overlap() {
        let tiny = BBox { x: 7000.25, y: 4000.5, w: 1e-3, h: 1e-3 };
        let half = BBox { w: 5e-4, ..tiny };
        assert!((tiny.iou(&half) - 0.5).abs() < 1e-6);
        let huge = BBox { x: -1e30, y: -1e30, w: 2e30, h: 2e30 };
        assert!((huge.iou(&huge) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_box_that_leaves_the_picture_is_cut_and_one_outside_is_none() {
        let cut = corners(-0.4, 10.0, 20.0, 480.4).clip(&Region::whole((640, 480)));
        assert_eq!(cut, Some(corners(0.0, 10.0, 20.0, 480.0)));
        assert_eq!(
            corners(1.0, 2.0, 3.0, 4.0).clip(&Region::whole((640, 480))),
            Some(corners(1.0, 2.0, 3.0, 4.0))
        );
        assert_eq!(
            corners(-9.0, -9.0, 999.0, 999.0).clip(&Region::whole((640, 480))),
            Some(corners(0.0, 0.0, 640.0, 480.0))
        );
        assert_eq!(corners(640.0, 0.0, 650.0, 10.0).clip(&Region::whole((640, 480))), None);
        assert_eq!(corners(-5.0, 0.0, 0.0, 10.0).clip(&Region::whole((640, 480))), None);
        assert_eq!(corners(5.0, 5.0, 5.0, 9.0).clip(&Region::whole((640, 480))), None, "no width");
        assert_eq!(corners(9.0, 5.0, 5.0, 9.0).clip(&Region::whole((640, 480))), None, "wrong way round");
    }

    #[test]
    fn a_box_is_cut_at_the_edges_of_a_region_that_is_not_the_whole_picture() {
        let region = Region { x: 100, y: 50, width: 40, height: 20 };
        assert_eq!(corners(0.0, 0.0, 640.0, 480.0).clip(&region), Some(corners(100.0, 50.0, 140.0, 70.0)));
        assert_eq!(corners(90.0, 55.0, 110.5, 60.0).clip(&region), Some(corners(100.0, 55.0, 110.5, 60.0)));
        assert_eq!(corners(0.0, 0.0, 100.0, 480.0).clip(&region), None);
        assert_eq!(corners(140.0, 0.0, 200.0, 480.0).clip(&region), None);
    }

    #[test]
    fn improper_numbers_are_told_and_never_clipped_to_something() {
        let good = BBox { x: 1.0, y: 1.0, w: 2.0, h: 2.0 };
        assert!(good.is_proper());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for wrong in [
                BBox { x: bad, ..good },
                BBox { y: bad, ..good },
                BBox { w: bad, ..good },
                BBox { h: bad, ..good },
            ] {
                assert!(!wrong.is_proper(), "{wrong:?}");
            }
            assert_eq!(BBox { x: f32::NAN, ..good }.clip(&Region::whole((10, 10))), None);
            assert_eq!(BBox { w: f32::NAN, ..good }.clip(&Region::whole((10, 10))), None);
        }
        assert!(!BBox { w: 0.0, ..good }.is_proper());
        assert!(!BBox { h: -1.0, ..good }.is_proper());
    }

    #[test]
    fn the_far_edges_of_a_clipped_box_are_never_beyond_the_picture() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let (x, y) = (random.f32() * 900.0 - 30.0, random.f32() * 500.0 - 30.0);
            let whole = BBox { x, y, w: random.f32() * 900.0, h: random.f32() * 500.0 };
            let Some(cut) = whole.clip(&Region::whole((853, 479))) else { continue };
            assert!(cut.is_proper() && cut.x >= 0.0 && cut.y >= 0.0, "{cut:?}");
            assert!(cut.right() <= 853.0 && cut.bottom() <= 479.0, "{cut:?}");
        }
    }
}
