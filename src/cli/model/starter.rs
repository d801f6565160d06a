//! The manifest that `gantry model inspect` offers to start from.
//!
//! What the file says is filled in, what it cannot say is a usual value with a remark to check it, and what cannot be
//! guessed is left open, so that `gantry model pack` asks for it.

use std::path::Path;

use crate::backend::onnx::{Onnx, OnnxDim, OnnxTensor};
use crate::backend::tensor::{Dim, ElementType, TensorSpec};
use crate::model::manifest;
use crate::postprocess::Family;
use crate::preprocess::Layout;
use crate::yaml::quoted;

/// Height and width when neither the input nor the metadata says them: what YOLO exporters use.
const USUAL_SIZE: usize = 640;

/// The input that a manifest for this file declares, with a height and width where the file leaves them open.
///
/// # Errors
/// A sentence, when the file's inputs are not one picture.
pub(super) fn input(onnx: &Onnx) -> Result<TensorSpec, String> {
    let [input] = onnx.inputs.as_slice() else {
        return Err(format!("it has {} inputs, and a detector has one: the picture", onnx.inputs.len()));
    };
    let mut spec = input.spec()?;
    let Some(layout) = layout(input) else {
        return Err(format!("its input {input} is not a picture of three colours"));
    };
    let (height, width) = match layout {
        Layout::Nchw => (2, 3),
        Layout::Nhwc => (1, 2),
    };
    let trained =
        onnx.image_size.map_or((USUAL_SIZE, USUAL_SIZE), |(height, width)| (height as usize, width as usize));
    for (place, size) in [(height, trained.0), (width, trained.1)] {
        if spec.shape.0[place] == Dim::Dynamic {
            spec.shape.0[place] = Dim::Fixed(size);
        }
    }
    Ok(spec)
}

/// A manifest for the file, in words that [`manifest::parse`] reads.
pub(super) fn manifest(
    path: &Path,
    onnx: &Onnx,
    outputs: &[OnnxTensor],
    guess: Option<(&OnnxTensor, Family)>,
) -> String {
    let (name, file) = (model_name(path), path.file_name().unwrap_or_default().to_string_lossy());
    let input = input_section(onnx);
    let output = output_section(outputs, guess);
    let iou = match guess {
        Some((_, Family::YoloEndToEnd)) => "",
        _ => ", iou: 0.5",
    };
    format!(
        "schema: {schema}
name: {name}
version: 1.0.0
task: detect
files: {{}} # `gantry model pack` fills this in
variants:
  - {{backend: onnx, file: {file}}}
{input}{output}labels: labels.txt
thresholds: {{score: 0.25{iou}}} # check
golden: [] # pictures and what must be found in them
",
        schema = manifest::SCHEMA,
        file = quoted(&file),
    )
}

/// Where the three colours are, if it is a picture.
fn layout(input: &OnnxTensor) -> Option<Layout> {
    let three = OnnxDim::Fixed(3);
    match input.dims.as_slice() {
        [_, channels, _, _] if *channels == three => Some(Layout::Nchw),
        [_, _, _, channels] if *channels == three => Some(Layout::Nhwc),
        _ => None,
    }
}

fn input_section(onnx: &Onnx) -> String {
    let (spec, layout) = match (input(onnx), onnx.inputs.first().and_then(layout)) {
        (Ok(spec), Some(layout)) => (spec, layout),
        (Err(reason), _) => return format!("input: # {reason}\n"),
        (Ok(_), None) => return "input:\n".to_owned(),
    };
    let open = onnx.inputs[0].dims.iter().skip(1).any(|dim| matches!(dim, OnnxDim::Open(_)));
    let remark = match (open, onnx.image_size) {
        (false, _) => "",
        (true, Some(_)) => " # height and width as in the file's `imgsz`",
        (true, None) => " # check: the file leaves height and width open",
    };
    let values = match spec.element_type {
        ElementType::F32 | ElementType::F16 | ElementType::Bf16 => {
            "  mean: 0\n  std: 255 # check: pictures go in as 0..1\n"
        }
        ElementType::U8 => "",
        ElementType::I8 => {
            "  mean: 0\n  std: 1 # check: pictures go in as -128..127\n  scale: 1\n  zero_point: -128\n"
        }
    };
    format!(
        "input:
  name: {name}
  shape: {shape}{remark}
  type: {kind}
  layout: {layout}
  color: rgb # check
{values}  resize: letterbox # check: or stretch, or crop
  filter: bilinear # check: area or auto, where it learnt from pictures that were averaged
  pad: 114
  align: center # check: or top_left
",
        name = quoted(&spec.name),
        shape = spec.shape,
        kind = spec.element_type.name(),
        layout = manifest::word(&manifest::LAYOUTS, &layout),
    )
}

fn output_section(outputs: &[OnnxTensor], guess: Option<(&OnnxTensor, Family)>) -> String {
    let families = Family::ALL.map(Family::name).join(", ");
    let (family, output) = match guess {
        Some((output, family)) => (format!("{} # check: one of {families}", family.name()), Some(output)),
        None => (format!("# one of {families}"), outputs.first()),
    };
    let Some(output) = output else { return "output:\n".to_owned() };
    let shape = output.spec().map_or_else(|reason| format!("# {reason}"), |spec| spec.shape.to_string());
    let suppression = match guess {
        Some((_, Family::YoloEndToEnd)) => "",
        _ => "  suppression: per_class # check: or agnostic\n",
    };
    format!("output:\n  family: {family}\n  name: {}\n  shape: {shape}\n{suppression}", quoted(&output.name))
}

/// A name for a model, from its file's.
fn model_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let name: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(64).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "model".to_owned() } else { name.to_owned() }
}
