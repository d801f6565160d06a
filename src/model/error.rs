//! Why a model cannot be used, in sentences.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::files::{DEPTH_MAX, FILES_MAX};
use super::manifest;
use crate::telemetry::printable;
use crate::yaml::Problem;

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The directory has no manifest.
    #[error(
        "{} is no model bundle: it has no {}; `gantry model inspect FILE.onnx` prints one to start from",
        dir.display(), manifest::FILE_NAME
    )]
    NoManifest {
        /// The directory.
        dir: PathBuf,
    },
    /// The manifest has mistakes.
    #[error("{} has {}:{}", path.display(), count(problems.len(), "mistake"), lines(problems))]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// All of them.
        problems: Vec<Problem>,
    },
    /// The files are not what the manifest says.
    #[error("the model bundle {} has {}:{}", dir.display(), count(problems.len(), "fault"), lines(problems))]
    Files {
        /// The bundle.
        dir: PathBuf,
        /// All that is wrong.
        problems: Vec<FileProblem>,
    },
    /// A bundle is in the wrong place.
    #[error("{} holds {title}; its place is {expected}", dir.display())]
    Misplaced {
        /// Where it is.
        dir: PathBuf,
        /// What it calls itself.
        title: String,
        /// Its place in the directory of models.
        expected: String,
    },
    /// There is no such model.
    #[error("no model {wanted} in {}; {}{}", dir.display(), hint(nearest.as_deref()), there_is(there))]
    NotFound {
        /// What was asked for: `name` or `name@version`.
        wanted: String,
        /// Where it was looked for.
        dir: PathBuf,
        /// The name that was perhaps meant.
        nearest: Option<String>,
        /// Everything that is there, as `name@version`.
        there: Vec<String>,
    },
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The manifest cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not the one that was checked.
    #[error("{} has changed since its bundle was checked; restore the file, or pack the bundle again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A model file is not what its name says.
    #[error("{} is not a usable ONNX file: {reason}; export the model again, then pack the bundle", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The model file does not have the tensors that the manifest declares.
    #[error(
        "model {model}: {} declares the {what} `{declared}`, but the model file has `{real}`; correct {what} in the manifest",
        manifest::FILE_NAME
    )]
    Mismatch {
        /// The model.
        model: String,
        /// `input` or `output`.
        what: &'static str,
        /// As the manifest has it.
        declared: String,
        /// As the model file has it.
        real: String,
    },
}

/// One thing that is wrong with a bundle's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileProblem {
    /// A listed file is not there.
    Missing(String),
    /// A file that the manifest speaks of is not there.
    Absent(String),
    /// It is a folder, a device, or something else without bytes of its own.
    NoFile(String),
    /// It is a link to something outside of the bundle.
    Outside(String),
    /// It has another size than the manifest says.
    Size {
        /// The file.
        file: String,
        /// Bytes that it has.
        real: u64,
        /// Bytes that the manifest says.
        listed: u64,
    },
    /// It has another hash than the manifest says.
    Hash {
        /// The file.
        file: String,
        /// Its SHA-256.
        real: String,
        /// The one in the manifest.
        listed: String,
    },
    /// It is there and not listed.
    Unlisted(String),
    /// The bundle has too many files or folders within folders.
    TooMany,
    /// It cannot be read.
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// The labels do not fit.
    Labels {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A golden object has a label that the model does not have.
    GoldenLabel {
        /// Index of the golden picture in the manifest.
        index: usize,
        /// The label.
        label: String,
        /// The label that was perhaps meant.
        nearest: Option<String>,
    },
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PACK: &str = "if that is the file you want, `gantry model pack` lists it anew";
        match self {
            Self::Missing(file) => write!(f, "{file} is listed but not there; restore it"),
            Self::Absent(file) => {
                write!(f, "the manifest speaks of {file}, which is not there; add it, or correct the name")
            }
            Self::NoFile(file) => write!(f, "{file} is not an ordinary file; remove it"),
            Self::Outside(file) => {
                write!(f, "{file} is a link to something outside of the bundle; put the file itself there")
            }
            Self::Size { file, real, listed } => {
                write!(f, "{file} has {real} bytes, but {listed} are listed; {PACK}")
            }
            Self::Hash { file, real, listed } => {
                write!(f, "{file} has the SHA-256 {real}, but {listed} is listed; {PACK}")
            }
            Self::Unlisted(file) => {
                write!(f, "{file} is there but not listed; remove it, or list it with `gantry model pack`")
            }
            Self::TooMany => {
                write!(f, "it has more than {FILES_MAX} files, or folders more than {DEPTH_MAX} deep")
            }
            Self::Unreadable { file, reason } => write!(f, "{file} cannot be read: {reason}"),
            Self::Labels { file, reason } => write!(f, "{file} {reason}"),
            Self::GoldenLabel { index, label, nearest } => {
                write!(f, "golden[{index}] expects `{label}`, which is none of the labels; ")?;
                match nearest {
                    Some(nearest) => write!(f, "did you mean `{nearest}`?"),
                    None => write!(f, "correct it or add the label"),
                }
            }
        }
    }
}

impl FileProblem {
    /// Whether the walk has already told why this file cannot be had.
    pub(super) fn is_about(&self, path: &str) -> bool {
        matches!(self, Self::NoFile(file) | Self::Outside(file) | Self::Unreadable { file, .. } if file == path)
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// One alone goes on in its sentence; several are a line each. Names in them are the bundle's, so none may command the
/// terminal.
fn lines<T: fmt::Display>(items: &[T]) -> String {
    match items {
        [only] => format!(" {}", printable(&only.to_string())),
        items => items.iter().map(|item| format!("\n  {}", printable(&item.to_string()))).collect(),
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("did you mean {name}? ")).unwrap_or_default()
}

fn there_is(there: &[String]) -> String {
    match there {
        [] => "there is no model bundle at all (<name>/<version>/model.yaml)".to_owned(),
        there => format!("there is {}", there.join(", ")),
    }
}
