//! How a picture lies in a model's input, and the exact way back. Pure.

use std::fmt;
use std::ops::Range;

use super::{Align, InputSpec, Resize};

/// A part of a picture, in its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Left edge.
    pub x: u32,
    /// Top edge.
    pub y: u32,
    /// Width, at least 1.
    pub width: u32,
    /// Height, at least 1.
    pub height: u32,
}

impl Region {
    /// All of a picture.
    #[must_use]
    pub fn whole((width, height): (u32, u32)) -> Self {
        Self { x: 0, y: 0, width, height }
    }

    /// Whether a picture of this size has all of it, and it has pixels.
    fn is_in(&self, picture: (u32, u32)) -> bool {
        let fits =
            |start: u32, len: u32, limit| len > 0 && start.checked_add(len).is_some_and(|end| end <= limit);
        fits(self.x, self.width, picture.0) && fits(self.y, self.height, picture.1)
    }
}

/// The part of a camera's picture that models see, as configured. The default is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionConfig {
    /// Left edge.
    pub x: u32,
    /// Top edge.
    pub y: u32,
    /// Width, at least 1; up to the right edge, when none.
    pub width: Option<u32>,
    /// Height, at least 1; up to the bottom edge, when none.
    pub height: Option<u32>,
}

impl RegionConfig {
    /// The region of a picture of this size. Nothing when it is not inside of it.
    #[must_use]
    pub fn of(&self, picture: (u32, u32)) -> Option<Region> {
        let Self { x, y, .. } = *self;
        let width = self.width.unwrap_or(picture.0.saturating_sub(x));
        let height = self.height.unwrap_or(picture.1.saturating_sub(y));
        Some(Region { x, y, width, height }).filter(|region| region.is_in(picture))
    }
}

impl fmt::Display for RegionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x {}, y {}", self.x, self.y)?;
        for (name, size) in [("width", self.width), ("height", self.height)] {
            if let Some(size) = size {
                write!(f, ", {name} {size}")?;
            }
        }
        Ok(())
    }
}

/// Where a picture, or a region of it, lies in a model's input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Letterbox {
    /// Size of the picture in pixels.
    pub picture: (u32, u32),
    /// The part of it that is shown.
    pub region: Region,
    /// Left and top edge of the scaled region in the input, in input pixels; negative where it is cropped.
    pub origin: (i32, i32),
    /// Width and height of the scaled region, in input pixels; at least 1.
    pub content: (u32, u32),
}

impl Letterbox {
    /// Fits a picture of `width` x `height` (at least 1x1) into the input.
    ///
    /// The scaled size is rounded to whole pixels, at least 1. Centred padding is rounded down at the left and top; so is,
    /// when cropped, what is left out there.
    #[must_use]
    pub fn new(width: u32, height: u32, input: &InputSpec) -> Self {
        let picture = (width, height);
        Self::of_region(picture, Region::whole(picture), input)
    }

    /// Fits a region of a picture into the input, as [`Letterbox::new`] does with a picture of its size.
    #[must_use]
    pub fn of_region(picture: (u32, u32), region: Region, input: &InputSpec) -> Self {
        let Region { width, height, .. } = region;
        let across = f64::from(input.width) / f64::from(width);
        let down = f64::from(input.height) / f64::from(height);
        let content = match input.resize {
            Resize::Stretch => (input.width, input.height),
            Resize::Letterbox => {
                let scale = across.min(down);
                (scaled(width, scale).min(input.width), scaled(height, scale).min(input.height))
            }
            Resize::Crop => {
                let scale = across.max(down);
                (scaled(width, scale).max(input.width), scaled(height, scale).max(input.height))
            }
        };
        let origin = match input.align {
            Align::TopLeft => (0, 0),
            Align::Center => (middle(input.width, content.0), middle(input.height, content.1)),
        };
        Self { picture, region, origin, content }
    }

    /// The columns and the rows of the input that show the picture.
    #[must_use]
    pub fn visible(&self, input: &InputSpec) -> [Range<u32>; 2] {
        let seen = |origin: i32, content: u32, limit: u32| {
            let (start, end) = (i64::from(origin), i64::from(origin) + i64::from(content));
            let within = |edge: i64| u32::try_from(edge.max(0)).unwrap_or(u32::MAX).min(limit);
            within(start)..within(end)
        };
        [seen(self.origin.0, self.content.0, input.width), seen(self.origin.1, self.content.1, input.height)]
    }

    /// Input pixels per picture pixel, across and down. They differ a little where the scaled size was rounded, and the
    /// way back uses these, not the common scale, so that it is exact.
    #[must_use]
    pub fn scale(&self) -> (f64, f64) {
        (
            f64::from(self.content.0) / f64::from(self.region.width),
            f64::from(self.content.1) / f64::from(self.region.height),
        )
    }

    /// The place in the picture of a point in the input. Points in the padding lie outside of the region. Both are
    /// measured from the top left corner, so the middle of the first pixel is at 0.5.
    #[must_use]
    pub fn to_picture(&self, x: f64, y: f64) -> (f64, f64) {
        let (scale_x, scale_y) = self.scale();
        (
            (x - f64::from(self.origin.0)) / scale_x + f64::from(self.region.x),
            (y - f64::from(self.origin.1)) / scale_y + f64::from(self.region.y),
        )
    }

    /// The place in the input of a point in the picture: what [`Letterbox::to_picture`] takes back.
    #[must_use]
    pub fn to_input(&self, x: f64, y: f64) -> (f64, f64) {
        let (scale_x, scale_y) = self.scale();
        (
            (x - f64::from(self.region.x)) * scale_x + f64::from(self.origin.0),
            (y - f64::from(self.region.y)) * scale_y + f64::from(self.origin.1),
        )
    }
}

/// The most pixels of a scaled side, of which a crop shows only some.
const SIDE_MAX: f64 = 1e9;

fn scaled(size: u32, scale: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and bounded")]
    let rounded = (f64::from(size) * scale).round().clamp(1.0, SIDE_MAX) as u32;
    rounded
}

/// Where `content` begins when it lies in the middle of `input`; a half is rounded towards 0.
fn middle(input: u32, content: u32) -> i32 {
    let left = (i64::from(input) - i64::from(content)) / 2;
    i32::try_from(left).expect("both are a small fraction of what 64 bits hold")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tensor::ElementType;
    use crate::preprocess::{ColorOrder, Filter, Layout, Quantization};

    fn input(width: u32, height: u32, resize: Resize, align: Align) -> InputSpec {
        InputSpec {
            width,
            height,
            element_type: ElementType::F32,
            quantization: Quantization::NONE,
            layout: Layout::Nchw,
            color: ColorOrder::Rgb,
            mean: [0.0; 3],
            std: [255.0; 3],
            resize,
            filter: Filter::Bilinear,
            pad: 114,
            align,
        }
    }

    fn centred(picture: (u32, u32), size: (u32, u32)) -> ((u32, u32), (i32, i32)) {
        let input = input(size.0, size.1, Resize::Letterbox, Align::Center);
        let letterbox = Letterbox::new(picture.0, picture.1, &input);
        (letterbox.content, letterbox.origin)
    }

    #[test]
    fn a_picture_keeps_its_shape_and_lies_in_the_middle() {
        assert_eq!(centred((640, 480), (256, 256)), ((256, 192), (0, 32)));
        assert_eq!(centred((480, 640), (256, 256)), ((192, 256), (32, 0)));
        assert_eq!(centred((256, 256), (256, 256)), ((256, 256), (0, 0)));
        assert_eq!(centred((1920, 1080), (640, 640)), ((640, 360), (0, 140)));
        assert_eq!(centred((1920, 1080), (640, 384)), ((640, 360), (0, 12)));
        assert_eq!(centred((100, 50), (640, 640)), ((640, 320), (0, 160)), "enlarged as well");
    }

    #[test]
    fn odd_padding_has_its_extra_pixel_at_the_bottom() {
        assert_eq!(centred((853, 479), (256, 256)), ((256, 144), (0, 56)));
        assert_eq!(centred((853, 479), (256, 255)), ((256, 144), (0, 55)));
    }

    #[test]
    fn the_thinnest_pictures_keep_a_pixel() {
        assert_eq!(centred((1, 1), (256, 256)), ((256, 256), (0, 0)));
        assert_eq!(centred((10_000, 1), (256, 256)), ((256, 1), (0, 127)));
        assert_eq!(centred((1, 10_000), (256, 256)), ((1, 256), (127, 0)));
        assert_eq!(centred((u32::MAX, 1), (1, 1)), ((1, 1), (0, 0)));
    }

    #[test]
    fn top_left_pads_only_right_and_below_and_stretch_not_at_all() {
        let top_left = input(256, 256, Resize::Letterbox, Align::TopLeft);
        let letterbox = Letterbox::new(640, 480, &top_left);
        assert_eq!((letterbox.content, letterbox.origin), ((256, 192), (0, 0)));
        for align in [Align::Center, Align::TopLeft] {
            let letterbox = Letterbox::new(853, 479, &input(320, 192, Resize::Stretch, align));
            assert_eq!((letterbox.content, letterbox.origin), ((320, 192), (0, 0)));
            assert_eq!(letterbox.scale(), (320.0 / 853.0, 192.0 / 479.0));
        }
    }

    #[test]
    fn a_cropped_picture_fills_the_input_and_loses_its_sides() {
        let crop = |picture: (u32, u32), size: (u32, u32), align| {
            let input = input(size.0, size.1, Resize::Crop, align);
            let letterbox = Letterbox::new(picture.0, picture.1, &input);
            assert_eq!(letterbox.visible(&input), [0..size.0, 0..size.1]);
            (letterbox.content, letterbox.origin)
        };
        assert_eq!(crop((640, 480), (240, 240), Align::Center), ((320, 240), (-40, 0)));
        assert_eq!(crop((640, 480), (240, 240), Align::TopLeft), ((320, 240), (0, 0)));
        assert_eq!(crop((480, 640), (240, 240), Align::Center), ((240, 320), (0, -40)));
        assert_eq!(
            crop((640, 480), (241, 240), Align::Center),
            ((320, 240), (-39, 0)),
            "an odd one at the right"
        );
        assert_eq!(crop((100, 100), (7, 300), Align::Center), ((300, 300), (-146, 0)));
        assert_eq!(crop((1, u32::MAX), (256, 1), Align::Center).0, (256, 1_000_000_000));
    }

    #[test]
    fn a_region_lies_as_a_picture_of_its_size_would() {
        let (picture, region) = ((1920, 1080), Region { x: 301, y: 200, width: 640, height: 480 });
        for resize in [Resize::Letterbox, Resize::Stretch, Resize::Crop] {
            let input = input(256, 320, resize, Align::Center);
            let whole = Letterbox::new(640, 480, &input);
            let part = Letterbox::of_region(picture, region, &input);
            assert_eq!(
                (part.content, part.origin, part.scale()),
                (whole.content, whole.origin, whole.scale())
            );
            let ((x, y), (part_x, part_y)) = (whole.to_picture(17.5, 200.0), part.to_picture(17.5, 200.0));
            assert_eq!((part_x, part_y), (x + 301.0, y + 200.0));
        }
    }

    #[test]
    fn a_region_that_leaves_the_picture_is_none() {
        let region = |x, y, width, height| {
            RegionConfig { x, y, width: Some(width), height: Some(height) }.of((640, 480)).is_some()
        };
        assert!(region(0, 0, 640, 480) && region(639, 479, 1, 1));
        assert!(!region(1, 0, 640, 480) && !region(0, 1, 640, 480) && !region(640, 0, 1, 1));
        assert!(!region(0, 0, 0, 1) && !region(0, 0, 1, 0) && !region(u32::MAX, 0, u32::MAX, 1));
    }

    #[test]
    fn a_region_without_a_size_goes_up_to_the_edges() {
        assert_eq!(RegionConfig::default().of((640, 480)), Some(Region::whole((640, 480))));
        let corner = RegionConfig { x: 600, y: 470, ..RegionConfig::default() };
        assert_eq!(corner.of((640, 480)), Some(Region { x: 600, y: 470, width: 40, height: 10 }));
        assert_eq!(corner.of((600, 480)), None);
        assert_eq!(corner.to_string(), "x 600, y 470");
        assert_eq!(RegionConfig { height: Some(3), ..corner }.to_string(), "x 600, y 470, height 3");
    }

    #[test]
    fn corners_come_back_where_they_were() {
        for (width, height) in [(640, 480), (853, 479), (1, 1), (10_000, 1), (3, 2), (7680, 4320)] {
            for resize in [Resize::Letterbox, Resize::Stretch, Resize::Crop] {
                for align in [Align::Center, Align::TopLeft] {
                    let letterbox = Letterbox::new(width, height, &input(256, 320, resize, align));
                    let (right, bottom) = (f64::from(width), f64::from(height));
                    for (x, y) in [(0.0, 0.0), (right, 0.0), (0.0, bottom), (right, bottom)] {
                        let (in_x, in_y) = letterbox.to_input(x, y);
                        let (back_x, back_y) = letterbox.to_picture(in_x, in_y);
                        assert!((back_x - x).abs() < 1e-9 && (back_y - y).abs() < 1e-9, "{letterbox:?}");
                    }
                    let Letterbox { origin, content, .. } = letterbox;
                    let end = |origin: i32, content: u32| f64::from(origin) + f64::from(content);
                    let (x, y) = letterbox.to_picture(end(origin.0, content.0), end(origin.1, content.1));
                    assert!((x - right).abs() < 1e-9 && (y - bottom).abs() < 1e-9, "{letterbox:?}");
                }
            }
        }
    }
}
