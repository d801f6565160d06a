//! Models: bundles on disk, their manifests, and what the data plane needs of them.

pub mod bundle;
pub mod error;
mod files;
pub mod manifest;
pub mod pack;
mod reader;

pub use error::{FileProblem, ModelError};

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::tensor::TensorSpec;
use crate::backend::{BackendKind, ModelFormat};
use crate::postprocess::OutputSpec;
use crate::preprocess::InputSpec;

/// A model that was read from a bundle, checked whole, and can be loaded on a device.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: semver::Version,
    /// The bundle's directory.
    pub dir: PathBuf,
    /// Its artefacts, in the manifest's order of preference.
    pub variants: Vec<Variant>,
    /// What its input wants to be.
    pub input: InputSpec,
    /// The input tensor as the manifest declares it.
    pub input_tensor: TensorSpec,
    /// What its output is.
    pub output: OutputSpec,
    /// Names of its classes.
    pub labels: Arc<[String]>,
    /// Detections below this score are not reported, unless a camera says otherwise.
    pub score_min: f32,
    /// What it must find.
    pub golden: Vec<Golden>,
}

/// One artefact of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What the file is.
    pub format: ModelFormat,
    /// A backend that this file was made for, if not every backend that reads the format.
    pub backend: Option<BackendKind>,
    /// The file, inside the bundle.
    pub path: PathBuf,
    /// Its bytes' SHA-256 as the manifest has it, in hex; checked when the bundle was opened and again at load.
    pub sha256: String,
}

/// A picture and what the model must find in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    /// The picture, inside the bundle.
    pub image: PathBuf,
    /// The objects.
    pub expect: Vec<GoldenObject>,
    /// The least overlap with which an object counts as found.
    pub iou_min: f32,
}

/// An object that the model must find.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenObject {
    /// Its label.
    pub label: String,
    /// Where it is, in pixels of the picture.
    pub bbox: crate::postprocess::bbox::BBox,
    /// The least score.
    pub score_min: f32,
}

impl Model {
    /// `name version`, for messages.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// The first variant that `backend` can run.
    #[must_use]
    pub fn variant_for(&self, backend: BackendKind) -> Option<&Variant> {
        self.variants.iter().find(|variant| {
            backend.reads(variant.format) && variant.backend.is_none_or(|wanted| wanted == backend)
        })
    }
}
