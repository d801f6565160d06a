//! From a decoded picture to one frame's place in a batch tensor.
//!
//! [`letterbox`] is the geometry, there and back; [`host`] does the work on the CPU, in one pass, and says exactly what
//! is computed. It is put together of `plan` (which samples make an input pixel), `planes` (where they are), [`kernel`] (the
//! arithmetic, for each instruction set), `color` (its coefficients) and `store` (the slot).

mod color;
pub mod host;
pub mod kernel;
pub mod letterbox;
mod plan;
mod planes;
mod store;

use crate::backend::tensor::ElementType;
use letterbox::RegionConfig;

/// What a model wants its input to be: the `input` section of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Type of its elements.
    pub element_type: ElementType,
    /// What an integer element stands for.
    pub quantization: Quantization,
    /// Order of the dimensions.
    pub layout: Layout,
    /// Order of the colours.
    pub color: ColorOrder,
    /// Subtracted from each channel's 0..=255, in the model's order of colours.
    pub mean: [f32; 3],
    /// Then divided by.
    pub std: [f32; 3],
    /// How a picture of another shape is fitted in.
    pub resize: Resize,
    /// How it is made smaller.
    pub filter: Filter,
    /// Grey value around a letterboxed picture, 0..=255, before `mean` and `std`.
    pub pad: u8,
    /// Where a letterboxed picture lies, and what of a cropped one is seen.
    pub align: Align,
}

impl InputSpec {
    /// Gain and offset of each channel, from a colour's 0..=255 to what is rounded to an element.
    #[must_use]
    pub fn affine(&self) -> [(f64, f64); 3] {
        let Quantization { scale, zero_point } = self.quantization;
        std::array::from_fn(|channel| {
            let gain = 1.0 / (f64::from(self.std[channel]) * f64::from(scale));
            (gain, f64::from(zero_point) - f64::from(self.mean[channel]) * gain)
        })
    }
}

/// What an integer of the input stands for: the normalised value `(integer - zero_point) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization {
    /// More than 0.
    pub scale: f32,
    /// The integer that stands for 0.
    pub zero_point: i32,
}

impl Quantization {
    /// The value itself: of floats, and of bytes that hold colours as they are.
    pub const NONE: Self = Self { scale: 1.0, zero_point: 0 };
}

/// Order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Batch, channel, row, column.
    Nchw,
    /// Batch, row, column, channel.
    Nhwc,
}

/// Order of the colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorOrder {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
}

/// How a picture is fitted into the model's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// Scaled alike in both directions, padded.
    Letterbox,
    /// Scaled to fill, each direction by itself.
    Stretch,
    /// Scaled alike in both directions to fill; what is too much is not seen.
    Crop,
}

/// How a picture is made smaller. Enlarging is bilinear always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Between the two nearest samples, whatever the reduction: OpenCV's `INTER_LINEAR`, with which detectors are usually
    /// trained and exported.
    Bilinear,
    /// The mean of all samples that an input pixel covers: OpenCV's `INTER_AREA`.
    Area,
    /// `Area` in a direction in which an input pixel covers more than two samples, where `Bilinear` would leave some out.
    Auto,
}

/// Where a letterboxed picture lies in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// In the middle; an odd pixel of padding, or of what is cropped, goes to the right and bottom.
    Center,
    /// At the top left; all padding, or all that is cropped, is at the right and bottom.
    TopLeft,
}

/// Why a frame could not be written into a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreprocessError {
    /// The place is not one of this model's input.
    #[error(
        "a frame takes {wanted} elements of {wanted_type} in the model's input, but its place in the batch has {got} of \
         {got_type}; the manifest's input does not describe the model file"
    )]
    Slot {
        /// Elements that the manifest's input has for one frame.
        wanted: usize,
        /// Their type.
        wanted_type: &'static str,
        /// Elements in the place.
        got: usize,
        /// Their type.
        got_type: &'static str,
    },
    /// The camera's region is not in its picture.
    #[error(
        "the camera's region ({region}) is not inside of its picture of {}x{}; correct `region` in the config",
        picture.0, picture.1
    )]
    Region {
        /// The region.
        region: RegionConfig,
        /// The picture's size.
        picture: (u32, u32),
    },
}
