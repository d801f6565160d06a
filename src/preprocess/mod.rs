//! From a decoded picture to one frame's place in a batch tensor.
//!
//! [`letterbox`] is the geometry, there and back; [`host`] does the work on the CPU, in one pass, and says exactly what
//! is computed.

mod color;
pub mod host;
pub mod letterbox;

use crate::backend::tensor::ElementType;

/// What a model wants its input to be: the `input` section of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Type of its elements. For [`ElementType::U8`] `mean` is 0 and `std` 1, which the manifest's check enforces.
    pub element_type: ElementType,
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
    /// Grey value around a letterboxed picture, 0..=255, before `mean` and `std`.
    pub pad: u8,
    /// Where a letterboxed picture lies.
    pub align: Align,
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
}

/// Where a letterboxed picture lies in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// In the middle; an odd pixel of padding goes to the right and bottom.
    Center,
    /// At the top left; all padding is at the right and bottom.
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
}
