//! `gantry model pack | verify | list | inspect`.
//!
//! Each is a plain function that returns a report: `Display` is for people, `Serialize` for `--json`.

mod inspect;
mod starter;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
pub use inspect::{EngineReport, FileInspection, GuessReport, inspect_file};
use serde::Serialize;

use super::{Exit, Format, print_line, print_problem, print_report};
use crate::backend::tensor::TensorSpec;
use crate::backend::{self, BackendChoice, BackendKind, DeviceConfig};
use crate::daemon;
use crate::model::manifest::{self, word};
use crate::model::pack::{self, Outcome};
use crate::model::{Model, ModelError, bundle};
use crate::postprocess::Family;
use crate::telemetry::error_chain;

/// Commands of `gantry model`.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    /// Show what is in an ONNX file, with a manifest to start from, or what is in a bundle.
    #[command(after_help = "Example:\n  gantry model inspect detector.onnx")]
    Inspect {
        /// An ONNX file, or the directory of a bundle.
        path: PathBuf,
        /// For people or for machines.
        #[command(flatten)]
        format: Format,
    },
    /// List a bundle's files in its manifest, each with its size and SHA-256.
    #[command(after_help = "Example:\n  gantry model pack models/parts/1.0.0")]
    Pack {
        /// The directory of a bundle, with a `model.yaml`.
        dir: PathBuf,
        /// For people or for machines.
        #[command(flatten)]
        format: Format,
    },
    /// Check a bundle whole: manifest, files, hashes, labels, shapes.
    #[command(after_help = "Example:\n  gantry model verify models/parts/1.0.0")]
    Verify {
        /// The directory of a bundle.
        dir: PathBuf,
        /// For people or for machines.
        #[command(flatten)]
        format: Format,
    },
    /// List the bundles of a directory of models.
    #[command(after_help = "Example:\n  gantry model list models")]
    List {
        /// The directory that holds models.
        #[arg(default_value_os_t = daemon::default_models_dir())]
        dir: PathBuf,
        /// For people or for machines.
        #[command(flatten)]
        format: Format,
    },
}

/// Does what a command of `gantry model` asks.
#[must_use]
pub fn main(command: &ModelCommand) -> Exit {
    match command {
        ModelCommand::Inspect { path, format } => show(inspect(path), *format),
        ModelCommand::Pack { dir, format } => show(pack(dir), *format),
        ModelCommand::Verify { dir, format } => show(verify(dir), *format),
        ModelCommand::List { dir, format } => match list(dir) {
            Ok(report) => {
                print_report(&report, *format);
                if report.all_usable() { Exit::Ok } else { Exit::Config }
            }
            Err(error) => refuse(&error, *format),
        },
    }
}

fn show<R: fmt::Display + Serialize>(outcome: Result<R, ModelError>, format: Format) -> Exit {
    match outcome {
        Ok(report) => {
            print_report(&report, format);
            Exit::Ok
        }
        Err(error) => refuse(&error, format),
    }
}

/// Says what is wrong: to people on standard error, to machines as `{"error": "…"}` where they look for the report.
fn refuse(error: &ModelError, format: Format) -> Exit {
    let error = error_chain(error);
    if format.json {
        print_line(&serde_json::json!({ "error": error }));
    } else {
        print_problem(&error);
    }
    Exit::Config
}

/// `gantry model pack DIR`: lists the bundle's files in its manifest.
///
/// # Errors
/// Everything else that is wrong with the bundle; nothing is written then.
pub fn pack(dir: &Path) -> Result<PackReport, ModelError> {
    let packed = pack::pack(dir)?;
    let file = |(name, entry): (String, manifest::FileEntry)| FileReport {
        file: name,
        size: entry.size,
        sha256: entry.sha256,
    };
    Ok(PackReport {
        model: packed.model.title(),
        manifest: dir.join(manifest::FILE_NAME),
        written: packed.outcome == Outcome::Written,
        files: packed.files.into_iter().map(file).collect(),
    })
}

/// `gantry model verify DIR`: checks the bundle whole, its model files against its manifest too.
///
/// # Errors
/// Everything that is wrong with it.
pub fn verify(dir: &Path) -> Result<BundleReport, ModelError> {
    let model = bundle::open(dir)?;
    bundle::verify(&model)?;
    Ok(BundleReport::new(&model))
}

/// `gantry model list`: every bundle of a directory of models, and what is wrong with those that cannot be used.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(models_dir: &Path) -> Result<ListReport, ModelError> {
    let entries = bundle::list(models_dir)?.into_iter().map(|entry| {
        let (bundle, error) = match entry.model {
            Ok(model) => (Some(BundleReport::new(&model)), None),
            Err(error) => (None, Some(error_chain(&error))),
        };
        ListEntry { name: entry.name, version: entry.version, bundle, error }
    });
    Ok(ListReport { dir: models_dir.to_owned(), models: entries.collect() })
}

/// `gantry model inspect PATH`: what is in a bundle, or in an ONNX file, with a manifest to start from.
///
/// # Errors
/// When the bundle cannot be used, or the file is no ONNX model.
pub fn inspect(path: &Path) -> Result<InspectReport, ModelError> {
    if path.is_dir() {
        return verify(path).map(|bundle| InspectReport::Bundle(Box::new(bundle)));
    }
    let config = DeviceConfig {
        id: "inspect".to_owned(),
        backend: BackendChoice::Named(BackendKind::Embedded),
        threads: 1,
        library: None,
        fake: backend::fake::FakeScript::default(),
    };
    inspect_file(path, || backend::open(&config)).map(|file| InspectReport::File(Box::new(file)))
}

/// What `gantry model pack` did.
#[derive(Debug, Serialize)]
pub struct PackReport {
    /// Name and version.
    pub model: String,
    /// The manifest.
    pub manifest: PathBuf,
    /// Whether it was written; otherwise it already said what is true.
    pub written: bool,
    /// What it lists.
    pub files: Vec<FileReport>,
}

/// A file of a bundle.
#[derive(Debug, Serialize)]
pub struct FileReport {
    /// Its path in the bundle.
    pub file: String,
    /// Its bytes.
    pub size: u64,
    /// Their SHA-256.
    pub sha256: String,
}

/// A bundle that can be used.
#[derive(Debug, Serialize)]
pub struct BundleReport {
    /// The model's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The bundle.
    pub dir: PathBuf,
    /// Whether it is in `<name>/<version>`, where a config's name for it is looked up.
    pub in_place: bool,
    /// Its files, by what reads them.
    pub variants: Vec<VariantReport>,
    /// Its input.
    pub input: InputReport,
    /// Its output.
    pub output: OutputReport,
    /// Names of its classes.
    pub labels: Vec<String>,
    /// Detections below this are not reported.
    pub score_min: f32,
    /// Its golden pictures.
    pub golden: Vec<GoldenReport>,
}

/// A model file of a bundle.
#[derive(Debug, Serialize)]
pub struct VariantReport {
    /// The file.
    pub file: PathBuf,
    /// The backends that can run it.
    pub backends: Vec<&'static str>,
}

/// How pictures go in.
#[derive(Debug, Serialize)]
pub struct InputReport {
    /// The tensor.
    #[serde(flatten)]
    pub tensor: TensorReport,
    /// `nchw` or `nhwc`.
    pub layout: &'static str,
    /// `rgb` or `bgr`.
    pub color: &'static str,
    /// Subtracted from each colour.
    pub mean: [f32; 3],
    /// Then divided by.
    pub std: [f32; 3],
    /// What one step of an integer is worth; 1 for floats and for colours as they are.
    pub scale: f32,
    /// The integer that stands for 0.
    pub zero_point: i32,
    /// `letterbox`, `stretch` or `crop`.
    pub resize: &'static str,
    /// `bilinear`, `area` or `auto`.
    pub filter: &'static str,
    /// Grey value of the padding.
    pub pad: u8,
    /// `center` or `top_left`.
    pub align: &'static str,
}

/// How detections come out.
#[derive(Debug, Serialize)]
pub struct OutputReport {
    /// The tensor.
    #[serde(flatten)]
    pub tensor: TensorReport,
    /// The decoder.
    pub family: &'static str,
    /// `per_class`, `agnostic` or `in_model`.
    pub suppression: &'static str,
    /// Boxes that overlap more than this are one object, unless that is done in the model.
    pub iou: f32,
}

/// A tensor.
#[derive(Debug, Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub element_type: &'static str,
    /// Its sizes; -1 is known when it runs.
    pub shape: Vec<i64>,
}

/// A golden picture.
#[derive(Debug, Serialize)]
pub struct GoldenReport {
    /// The picture.
    pub image: PathBuf,
    /// Objects that must be found in it.
    pub objects: usize,
}

/// The bundles of a directory of models.
#[derive(Debug, Serialize)]
pub struct ListReport {
    /// The directory.
    pub dir: PathBuf,
    /// Its bundles, by name and version.
    pub models: Vec<ListEntry>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub struct ListEntry {
    /// The name's folder.
    pub name: String,
    /// The version's folder.
    pub version: String,
    /// What it is, if it can be used.
    pub bundle: Option<BundleReport>,
    /// Why not, if it cannot.
    pub error: Option<String>,
}

/// What `gantry model inspect` found.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InspectReport {
    /// A bundle.
    Bundle(Box<BundleReport>),
    /// A model file.
    File(Box<FileInspection>),
}

impl ListReport {
    /// Whether every bundle can be used.
    #[must_use]
    pub fn all_usable(&self) -> bool {
        self.models.iter().all(|model| model.error.is_none())
    }
}

impl BundleReport {
    fn new(model: &Model) -> Self {
        let (input, output) = (&model.input, &model.output);
        let variants = model.variants.iter().map(|variant| VariantReport {
            file: variant.path.clone(),
            backends: BackendKind::ALL
                .into_iter()
                .filter(|kind| kind.reads(variant.format) && variant.backend.is_none_or(|only| only == *kind))
                .filter(|kind| *kind != BackendKind::Fake || variant.backend == Some(BackendKind::Fake))
                .map(BackendKind::name)
                .collect(),
        });
        Self {
            name: model.name.clone(),
            version: model.version.to_string(),
            dir: model.dir.clone(),
            in_place: std::fs::canonicalize(&model.dir).is_ok_and(|dir| dir.ends_with(model_path(model))),
            variants: variants.collect(),
            input: InputReport {
                tensor: TensorReport::of_spec(&model.input_tensor),
                layout: word(&manifest::LAYOUTS, &input.layout),
                color: word(&manifest::COLORS, &input.color),
                mean: input.mean,
                std: input.std,
                scale: input.quantization.scale,
                zero_point: input.quantization.zero_point,
                resize: word(&manifest::RESIZES, &input.resize),
                filter: word(&manifest::FILTERS, &input.filter),
                pad: input.pad,
                align: word(&manifest::ALIGNS, &input.align),
            },
            output: OutputReport {
                tensor: TensorReport::of_spec(&output.tensor),
                family: output.family.name(),
                suppression: match output.family {
                    Family::YoloEndToEnd => "in_model",
                    _ => word(&manifest::SUPPRESSIONS, &output.suppression),
                },
                iou: output.iou,
            },
            labels: model.labels.to_vec(),
            score_min: model.score_min,
            golden: model
                .golden
                .iter()
                .map(|golden| GoldenReport { image: golden.image.clone(), objects: golden.expect.len() })
                .collect(),
        }
    }
}

impl TensorReport {
    fn of_spec(spec: &TensorSpec) -> Self {
        let dim = |dim: &backend::tensor::Dim| match dim {
            backend::tensor::Dim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            backend::tensor::Dim::Dynamic => -1,
        };
        Self {
            name: spec.name.clone(),
            element_type: spec.element_type.name(),
            shape: spec.shape.0.iter().map(dim).collect(),
        }
    }
}

impl fmt::Display for PackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (manifest, files) = (self.manifest.display(), self.files.len());
        if self.written {
            writeln!(f, "{manifest} now lists the {files} files of {}:", self.model)?;
        } else {
            writeln!(f, "{manifest} already lists the {files} files of {} as they are:", self.model)?;
        }
        let row = |file: &FileReport| vec![file.file.clone(), file.size.to_string(), file.sha256.clone()];
        table(
            f,
            std::iter::once(["FILE", "BYTES", "SHA-256"].map(str::to_owned).to_vec())
                .chain(self.files.iter().map(row)),
        )
    }
}

impl fmt::Display for BundleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (input, output) = (&self.input, &self.output);
        let (low, high) = (input.mean.map(|mean| mean.to_string()), input.std.map(|std| std.to_string()));
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let mut rows = vec![
            row("model", format!("{} {}", self.name, self.version)),
            row("bundle", self.dir.display().to_string()),
        ];
        for variant in &self.variants {
            rows.push(row(
                "file",
                format!("{} for {}", file_name(&variant.file), variant.backends.join(", ")),
            ));
        }
        rows.push(row("input", format!("{}, {}, {}", input.tensor, input.layout, input.color)));
        let steps = match (input.scale, input.zero_point) {
            (1.0, 0) => String::new(),
            (scale, zero_point) => format!(", then / {scale} + {zero_point} as an integer"),
        };
        rows.push(row("values", format!("(0..255 - {}) / {}{steps}", same(&low), same(&high))));
        let fit = match input.resize {
            "letterbox" => format!("letterbox, {}, padded with {}", input.align, input.pad),
            "crop" => format!("crop, {}", input.align),
            other => other.to_owned(),
        };
        rows.push(row("pictures", format!("{fit}, {}", input.filter)));
        rows.push(row("output", format!("{}, {}", output.tensor, output.family)));
        let suppression = match output.suppression {
            "in_model" => "in the model".to_owned(),
            other => format!("{other}, above IoU {}", output.iou),
        };
        rows.push(row("suppression", suppression));
        rows.push(row("score", format!("at least {}", self.score_min)));
        rows.push(row("classes", classes(&self.labels)));
        let objects: usize = self.golden.iter().map(|golden| golden.objects).sum();
        rows.push(row("golden", format!("{} pictures with {objects} objects", self.golden.len())));
        let state = if self.in_place {
            "usable: files, labels and shapes are as the manifest says".to_owned()
        } else {
            format!(
                "whole, but a config finds it only in a folder {}/{}; move it there",
                self.name, self.version
            )
        };
        rows.push(row("state", state));
        table(f, rows)
    }
}

impl fmt::Display for ListReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.models.is_empty() {
            return write!(f, "no model bundle in {} (<name>/<version>/model.yaml)", self.dir.display());
        }
        let head = ["MODEL", "VERSION", "INPUT", "CLASSES", "STATE"].map(str::to_owned).to_vec();
        let row = |entry: &ListEntry| {
            let (input, classes, state) = match &entry.bundle {
                Some(bundle) => (bundle.input.tensor.to_string(), bundle.labels.len().to_string(), "usable"),
                None => ("-".to_owned(), "-".to_owned(), "unusable, see below"),
            };
            vec![entry.name.clone(), entry.version.clone(), input, classes, state.to_owned()]
        };
        table(f, std::iter::once(head).chain(self.models.iter().map(row)))?;
        for error in self.models.iter().filter_map(|entry| entry.error.as_ref()) {
            write!(f, "\n\n{error}")?;
        }
        Ok(())
    }
}

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundle(bundle) => bundle.fmt(f),
            Self::File(file) => file.fmt(f),
        }
    }
}

impl fmt::Display for TensorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.element_type, self.shape)
    }
}

/// Where a model is in the directory of models.
fn model_path(model: &Model) -> PathBuf {
    Path::new(&model.name).join(model.version.to_string())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Their number and the first of them.
fn classes(labels: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = match labels.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}: {}{more}", labels.len(), labels[..labels.len().min(SHOWN)].join(", "))
}

/// Three values, or the one that they all are.
fn same(values: &[String; 3]) -> String {
    if values.iter().all(|value| *value == values[0]) {
        values[0].clone()
    } else {
        format!("[{}]", values.join(", "))
    }
}

/// Rows with their columns under one another, two spaces apart; the last line is not ended.
fn table(f: &mut fmt::Formatter<'_>, rows: impl IntoIterator<Item = Vec<String>>) -> fmt::Result {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    f.write_str(&rows.iter().map(line).collect::<Vec<_>>().join("\n"))
}
