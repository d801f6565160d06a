//! How a picture lies in a model's input, and the exact way back. Pure.

use super::{Align, InputSpec, Resize};

/// Where a picture of one size lies in an input of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Letterbox {
    /// Size of the picture in pixels.
    pub picture: (u32, u32),
    /// Left and top edge of the scaled picture in the input, in input pixels.
    pub origin: (u32, u32),
    /// Width and height of the scaled picture in the input, in input pixels; at least 1.
    pub content: (u32, u32),
}

impl Letterbox {
    /// Fits a picture of `width` x `height` (at least 1x1) into the input.
    ///
    /// The scaled size is rounded to whole pixels, at least 1; centred padding is rounded down at the left and top.
    #[must_use]
    pub fn new(width: u32, height: u32, input: &InputSpec) -> Self {
        let content = match input.resize {
            Resize::Stretch => (input.width, input.height),
            Resize::Letterbox => {
                let scale = (f64::from(input.width) / f64::from(width))
                    .min(f64::from(input.height) / f64::from(height));
                (scaled(width, scale, input.width), scaled(height, scale, input.height))
            }
        };
        let origin = match input.align {
            Align::TopLeft => (0, 0),
            Align::Center => ((input.width - content.0) / 2, (input.height - content.1) / 2),
        };
        Self { picture: (width, height), origin, content }
    }

    /// Input pixels per picture pixel, across and down. They differ a little where the scaled size was rounded, and the
    /// way back uses these, not the common scale, so that it is exact.
    #[must_use]
    pub fn scale(&self) -> (f64, f64) {
        (
            f64::from(self.content.0) / f64::from(self.picture.0),
            f64::from(self.content.1) / f64::from(self.picture.1),
        )
    }

    /// The place in the picture of a point in the input. Points in the padding lie outside of the picture. Both are
    /// measured from the top left corner, so the middle of the first pixel is at 0.5.
    #[must_use]
    pub fn to_picture(&self, x: f64, y: f64) -> (f64, f64) {
        let (scale_x, scale_y) = self.scale();
        ((x - f64::from(self.origin.0)) / scale_x, (y - f64::from(self.origin.1)) / scale_y)
    }

    /// The place in the input of a point in the picture: what [`Letterbox::to_picture`] takes back.
    #[must_use]
    pub fn to_input(&self, x: f64, y: f64) -> (f64, f64) {
        let (scale_x, scale_y) = self.scale();
        (x * scale_x + f64::from(self.origin.0), y * scale_y + f64::from(self.origin.1))
    }
}

fn scaled(size: u32, scale: f64, limit: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and at most `limit`, by the choice of the scale"
    )]
    let rounded = (f64::from(size) * scale).round() as u32;
    rounded.clamp(1, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tensor::ElementType;
    use crate::preprocess::{ColorOrder, Layout};

    fn input(width: u32, height: u32, resize: Resize, align: Align) -> InputSpec {
        InputSpec {
            width,
            height,
            element_type: ElementType::F32,
            layout: Layout::Nchw,
            color: ColorOrder::Rgb,
            mean: [0.0; 3],
            std: [255.0; 3],
            resize,
            pad: 114,
            align,
        }
    }

    fn centred(picture: (u32, u32), size: (u32, u32)) -> ((u32, u32), (u32, u32)) {
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
    fn corners_come_back_where_they_were() {
        for (width, height) in [(640, 480), (853, 479), (1, 1), (10_000, 1), (3, 2), (7680, 4320)] {
            for resize in [Resize::Letterbox, Resize::Stretch] {
                for align in [Align::Center, Align::TopLeft] {
                    let letterbox = Letterbox::new(width, height, &input(256, 320, resize, align));
                    let (right, bottom) = (f64::from(width), f64::from(height));
                    for (x, y) in [(0.0, 0.0), (right, 0.0), (0.0, bottom), (right, bottom)] {
                        let (in_x, in_y) = letterbox.to_input(x, y);
                        let (back_x, back_y) = letterbox.to_picture(in_x, in_y);
                        assert!((back_x - x).abs() < 1e-9 && (back_y - y).abs() < 1e-9, "{letterbox:?}");
                    }
                    let (left, top) = letterbox.origin;
                    let end = (f64::from(left + letterbox.content.0), f64::from(top + letterbox.content.1));
                    let (x, y) = letterbox.to_picture(end.0, end.1);
                    assert!((x - right).abs() < 1e-9 && (y - bottom).abs() < 1e-9, "{letterbox:?}");
                }
            }
        }
    }
}
