//! From a model's output tensors to detections in the camera's picture.
//!
//! A [`Decoder`] walks an output once, threshold first, maps the surviving boxes back through the letterbox, suppresses,
//! and clips: a box at the edge is cut, never dropped, and one that lies wholly in the padding is no detection. It is made by [`OutputSpec::decoder`] from what the manifest says and checked against the real output
//! shapes when the model is loaded.

pub mod bbox;
pub mod nms;
pub mod yolo;

use crate::backend::tensor::{Shape, TensorSpec, TensorView};
use crate::preprocess::letterbox::Letterbox;
use bbox::BBox;

/// One found object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Index into the model's labels.
    pub class_id: u32,
    /// Confidence, 0..=1.
    pub score: f32,
    /// Where, in pixels of the camera's picture, clipped to it.
    pub bbox: BBox,
}

/// Decoder families: the value of `output.family` in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `[N, 4 + C, A]` or, transposed, `[N, A, 4 + C]`: centre and size in input pixels, then one score a class.
    YoloV8,
    /// `[N, A, 5 + C]` or, transposed, `[N, 5 + C, A]`: the same with objectness before the classes.
    YoloV5,
    /// `[N, K, 6]`: corners in input pixels, score, class; suppression is in the graph.
    YoloEndToEnd,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 3] = [Self::YoloV8, Self::YoloV5, Self::YoloEndToEnd];

    /// The name in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::YoloV8 => "yolov8",
            Self::YoloV5 => "yolov5",
            Self::YoloEndToEnd => "yolo_end_to_end",
        }
    }
}

/// What a model's output is: the `output` section of a manifest, with the number of labels and the thresholds.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// How the numbers are to be read.
    pub family: Family,
    /// The output tensor.
    pub tensor: TensorSpec,
    /// Number of classes: of labels.
    pub classes: usize,
    /// Boxes that overlap more than this are one object, unless suppression is in the graph.
    pub iou: f32,
    /// Whether boxes of different classes suppress each other.
    pub suppression: Suppression,
}

/// Which boxes suppress each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppression {
    /// Those of one class.
    PerClass,
    /// All.
    Agnostic,
}

/// Reads one frame's detections out of a batch's outputs.
pub trait Decoder: std::fmt::Debug + Send {
    /// Appends the detections of frame `slot` whose score is at least `score_min` to `into`, best first; equal scores
    /// in the order of the output. All numbers are finite, every box has an area and lies inside the picture. Of
    /// candidates for suppression the best [`nms::CANDIDATES_MAX`] count. Scratch memory is kept between calls.
    ///
    /// # Errors
    /// When the output is not what the decoder was made for; `into` is as it was.
    fn decode(
        &mut self,
        output: &TensorView<'_>,
        slot: usize,
        back: &Letterbox,
        score_min: f32,
        into: &mut Vec<Detection>,
    ) -> Result<(), DecodeError>;
}

impl OutputSpec {
    /// The decoder for this output.
    ///
    /// # Errors
    /// When the type or shape does not fit the family and the number of classes; the error names all of them.
    pub fn decoder(&self) -> Result<Box<dyn Decoder>, DecodeError> {
        yolo::decoder(self)
    }
}

/// The family that an output of this shape most likely belongs to, and its number of classes where the shape tells it (it
/// does not in [`Family::YoloEndToEnd`]). `classes`, where it is known, decides between shapes that two families have.
///
/// `None` when no family has such an output, or none with so many classes.
#[must_use]
pub fn guess(output: &Shape, classes: Option<usize>) -> Option<(Family, Option<usize>)> {
    yolo::guess(output, classes)
}

/// Why an output cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The shape does not fit.
    #[error("output {output} does not fit {family} with {classes} classes, which needs {expected}")]
    Shape {
        /// The output as it is.
        output: String,
        /// The family.
        family: &'static str,
        /// Number of labels.
        classes: usize,
        /// The shapes that would fit, and with how many labels this one would.
        expected: String,
    },
    /// The tensor that came is not the one that was promised.
    #[error("the output is not a tensor of floats that holds frame {slot}")]
    Tensor {
        /// Index of the frame in its batch.
        slot: usize,
    },
}
