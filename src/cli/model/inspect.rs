//! What an ONNX file is, for somebody who is about to make a bundle of it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{TensorReport, classes, file_name, starter, table};
use crate::backend::onnx::{self, Onnx, OnnxDim, OnnxTensor};
use crate::backend::tensor::{Dim, Shape, TensorSpec};
use crate::backend::{BackendError, Device, LoadOptions, ModelFile, ModelFormat};
use crate::model::ModelError;
use crate::postprocess::guess;
use crate::telemetry::error_chain;

/// What an ONNX file is.
#[derive(Debug, Serialize)]
pub struct FileInspection {
    /// The file.
    pub file: PathBuf,
    /// Its bytes.
    pub size: u64,
    /// What wrote it.
    pub producer: String,
    /// Version of the standard operators.
    pub opset: i64,
    /// Number of operations.
    pub operations: usize,
    /// Its inputs.
    pub inputs: Vec<TensorReport>,
    /// Its outputs.
    pub outputs: Vec<TensorReport>,
    /// Names of its classes, if it has them.
    pub labels: Option<Vec<String>>,
    /// What its output probably is.
    pub guess: Option<GuessReport>,
    /// Whether the engine in this binary runs it.
    pub engine: EngineReport,
    /// A manifest to start from.
    pub manifest: String,
}

/// What an output probably is.
#[derive(Debug, Serialize)]
pub struct GuessReport {
    /// The output.
    pub output: String,
    /// The decoder.
    pub family: &'static str,
    /// Number of classes, where the shape or the names tell.
    pub classes: Option<usize>,
}

/// What an engine made of a file.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    /// The engine, in words.
    pub engine: String,
    /// Why it cannot run the file, if it cannot.
    pub refused: Option<String>,
    #[serde(skip)]
    outputs: Vec<TensorSpec>,
}

/// What the ONNX file at `path` is, and whether the device that `open` gives can load it.
///
/// # Errors
/// When the file is no ONNX model.
pub fn inspect_file(
    path: &Path,
    open: impl FnOnce() -> Result<Box<dyn Device>, BackendError>,
) -> Result<FileInspection, ModelError> {
    let bytes = fs::read(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
    let onnx = onnx::read(&bytes).map_err(|reason| ModelError::BadFile { path: path.to_owned(), reason })?;
    let engine = match open() {
        Ok(mut device) => try_engine(device.as_mut(), path, &bytes, &onnx),
        Err(error) => {
            EngineReport { engine: String::new(), refused: Some(error_chain(&error)), outputs: Vec::new() }
        }
    };
    // What the file leaves unsaid of its outputs, the engine has worked out.
    let outputs: Vec<OnnxTensor> = onnx.outputs.iter().map(|output| engine.complete(output)).collect();
    let names = onnx.names.as_ref().map(Vec::len);
    let guess = outputs.iter().find_map(|output| {
        let (family, classes) = guess(&output.shape(), names).or_else(|| guess(&output.shape(), None))?;
        Some((output, family, classes))
    });
    let guess_report = guess.map(|(output, family, classes)| GuessReport {
        output: output.name.clone(),
        family: family.name(),
        classes,
    });
    let guess = guess.map(|(output, family, _)| (output, family));
    Ok(FileInspection {
        file: path.to_owned(),
        size: bytes.len() as u64,
        producer: onnx.producer.clone(),
        opset: onnx.opset,
        operations: onnx.nodes,
        inputs: onnx.inputs.iter().map(TensorReport::of_file).collect(),
        outputs: outputs.iter().map(TensorReport::of_file).collect(),
        guess: guess_report,
        engine,
        manifest: starter::manifest(path, &onnx, &outputs, guess),
        labels: onnx.names,
    })
}

impl EngineReport {
    /// The output with the sizes that the file left open and the engine knows.
    fn complete(&self, output: &OnnxTensor) -> OnnxTensor {
        let mut output = output.clone();
        if let Some(known) = self.outputs.iter().find(|known| known.name == output.name) {
            let Shape(known) = &known.shape;
            if output.dims.is_empty() {
                output.dims = vec![OnnxDim::Open(String::new()); known.len()];
            }
            for (dim, known) in output.dims.iter_mut().zip(known) {
                if let (OnnxDim::Open(_), Dim::Fixed(size)) = (&dim, known) {
                    *dim = OnnxDim::Fixed(*size);
                }
            }
        }
        output
    }
}

impl fmt::Display for FileInspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let by =
            if self.producer.is_empty() { String::new() } else { format!(", written by {}", self.producer) };
        let about = format!("{} bytes, opset {}, {} operations{by}", self.size, self.opset, self.operations);
        let mut rows = vec![row("file", self.file.display().to_string()), row("onnx", about)];
        rows.extend(self.inputs.iter().map(|input| row("input", input.to_string())));
        rows.extend(self.outputs.iter().map(|output| row("output", output.to_string())));
        let unnamed = || "the file does not name them".to_owned();
        rows.push(row("classes", self.labels.as_deref().map_or_else(unnamed, classes)));
        let guess = match &self.guess {
            Some(GuessReport { output, family, classes: Some(classes) }) => {
                format!("{output} is probably {family} with {classes} classes")
            }
            Some(GuessReport { output, family, classes: None }) => format!("{output} is probably {family}"),
            None => "no output looks like one of a known detector".to_owned(),
        };
        rows.push(row("decoder", guess));
        let engine = match &self.engine.refused {
            None => format!("{}: loads it", self.engine.engine),
            Some(reason) => reason.clone(),
        };
        rows.push(row("engine", engine));
        table(f, rows)?;
        write!(
            f,
            "\n\nA manifest to start from. Save it as model.yaml beside the file, check what is marked, "
        )?;
        write!(
            f,
            "add labels.txt (one class a line), and run `gantry model pack DIR`:\n\n{}",
            self.manifest.trim_end()
        )?;
        if let Some(labels) = &self.labels {
            write!(f, "\n\nIts labels.txt:\n\n{}", labels.join("\n"))?;
        }
        Ok(())
    }
}

impl TensorReport {
    fn of_file(tensor: &OnnxTensor) -> Self {
        let dim = |dim: &OnnxDim| match dim {
            OnnxDim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            OnnxDim::Open(_) => -1,
        };
        Self {
            name: tensor.name.clone(),
            element_type: tensor.element,
            shape: tensor.dims.iter().map(dim).collect(),
        }
    }
}

fn try_engine(device: &mut dyn Device, path: &Path, bytes: &[u8], onnx: &Onnx) -> EngineReport {
    let engine = device.describe();
    let specs = |tensors: &[OnnxTensor]| tensors.iter().map(OnnxTensor::spec).collect::<Result<Vec<_>, _>>();
    let (input, outputs) = match (starter::input(onnx), specs(&onnx.outputs)) {
        (Ok(input), Ok(outputs)) => (input, outputs),
        (Err(reason), _) | (_, Err(reason)) => {
            return EngineReport { engine, refused: Some(reason), outputs: Vec::new() };
        }
    };
    let name = file_name(path);
    let file = ModelFile {
        name: &name,
        path,
        bytes,
        format: ModelFormat::Onnx,
        input: Some(&input),
        outputs: &outputs,
    };
    match device.load(&file, LoadOptions { batch_size_max: 1, batches: 2 }) {
        Ok(session) => EngineReport { engine, refused: None, outputs: session.outputs().to_vec() },
        Err(error) => EngineReport { engine, refused: Some(error_chain(&error)), outputs: Vec::new() },
    }
}
