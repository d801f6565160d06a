//! The wall between Gantry and the runtimes that run models.
//!
//! A [`Device`] is opened on its worker's thread and never leaves it (neither it nor its [`Session`]s are `Send`).
//! A session owns its batch buffers, at least two of them, so that one can fill while one runs: the caller writes frame `k`
//! into [`Session::slot`], then [`Session::submit`]s the batch and [`Session::wait`]s for it. A runtime that blocks runs in
//! `submit`.
//!
//! A backend whose library is missing keeps its name: [`open`] says which library, where it looked, and how to get it.

pub mod embedded;
pub mod fake;
mod layout;
mod library;
pub mod onnx;
pub mod onnxruntime;
pub mod probe;
pub mod tensor;

use std::fmt;
use std::path::{Path, PathBuf};

use fake::FakeScript;
use layout::Layout;
use tensor::{TensorSpec, TensorView};

/// The runtimes that Gantry knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// The engine in this binary.
    Embedded,
    /// ONNX Runtime, opened at run time.
    OnnxRuntime,
    /// Scripted time, outputs, hangs and errors, for trials and tests.
    Fake,
}

impl BackendKind {
    /// Every backend.
    pub const ALL: [Self; 3] = [Self::Embedded, Self::OnnxRuntime, Self::Fake];

    /// The name in configs and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::OnnxRuntime => "onnxruntime",
            Self::Fake => "fake",
        }
    }

    /// Whether its models run on the CPU, where they compete with the decoding of video.
    #[must_use]
    pub fn runs_on_cpu(self) -> bool {
        match self {
            Self::Embedded | Self::OnnxRuntime => true,
            // It only waits.
            Self::Fake => false,
        }
    }

    /// Whether this backend runs a model file of `format`.
    #[must_use]
    pub fn reads(self, format: ModelFormat) -> bool {
        match (self, format) {
            (Self::Embedded | Self::OnnxRuntime | Self::Fake, ModelFormat::Onnx) => true,
        }
    }
}

/// Which backend a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// The fastest that is there.
    Auto,
    /// This one.
    Named(BackendKind),
}

/// A device as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Its name.
    pub id: String,
    /// What drives it.
    pub backend: BackendChoice,
    /// Threads that the runtime may use for one batch, at least 1.
    pub threads: usize,
    /// Where ONNX Runtime's library is, if not at one of the usual places.
    pub library: Option<PathBuf>,
    /// What the fake backend does.
    pub fake: FakeScript,
}

/// What is in a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelFormat {
    /// ONNX.
    Onnx,
}

/// A model to load.
#[derive(Clone, Copy, Debug)]
pub struct ModelFile<'a> {
    /// What to call it in errors: `line-parts 1.0.0`.
    pub name: &'a str,
    /// Where its bytes came from, for errors.
    pub path: &'a Path,
    /// Its bytes, already checked against the manifest's hash.
    pub bytes: &'a [u8],
    /// What they are.
    pub format: ModelFormat,
    /// The input that the manifest declares, if there is a manifest. Its height and width stand in for those that the
    /// file leaves open.
    pub input: Option<&'a TensorSpec>,
    /// The outputs that the manifest declares. [`BackendKind::Fake`] has no others.
    pub outputs: &'a [TensorSpec],
}

/// How to load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// The most frames in one batch. A session whose model has a fixed batch size may have less.
    pub batch_size_max: usize,
    /// Number of batch buffers, at least 2.
    pub batches: usize,
}

/// The batch sizes that a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSizes<'a> {
    /// Every number of frames up to the most.
    Any,
    /// Only these, ascending. The largest may be more than the most that a batch was asked to have.
    Fixed(&'a [usize]),
}

/// An opened accelerator or CPU set. It stays on the thread that opened it.
pub trait Device: fmt::Debug {
    /// What drives it.
    fn backend(&self) -> BackendKind;

    /// The runtime's version and where its library is, for people.
    fn describe(&self) -> String;

    /// Loads a model and makes its batch buffers.
    ///
    /// # Errors
    /// [`BackendError::BadModel`] when the file is not what it should be.
    fn load(&mut self, model: &ModelFile<'_>, options: LoadOptions)
    -> Result<Box<dyn Session>, BackendError>;
}

/// A model loaded on a device, with its batch buffers. It stays on the device's thread.
pub trait Session: fmt::Debug {
    /// What was settled when it was loaded; the methods below tell it.
    fn layout(&self) -> &Layout;

    /// The input, as the model file declares it.
    fn input(&self) -> &TensorSpec {
        &self.layout().input
    }

    /// The outputs, as the model file declares them.
    fn outputs(&self) -> &[TensorSpec] {
        &self.layout().outputs
    }

    /// The most frames in one batch; slots are `0..batch_size_max`.
    fn batch_size_max(&self) -> usize {
        self.layout().batch_size_max
    }

    /// The batch sizes that run. Fewer frames run at the next size; its unused slots hold what they held before.
    fn batch_sizes(&self) -> BatchSizes<'_> {
        match self.layout().batch_sizes.as_slice() {
            [] => BatchSizes::Any,
            sizes => BatchSizes::Fixed(sizes),
        }
    }

    /// Number of batch buffers; batches are `0..batches`.
    fn batches(&self) -> usize {
        self.layout().batches
    }

    /// Whether `submit` returns before the batch has run, so that another batch can be filled meanwhile.
    fn is_asynchronous(&self) -> bool;

    /// The place of frame `slot` in `batch`, to be written whole: the shape of the input without its first dimension.
    /// The batch must not be in flight.
    fn slot(&mut self, batch: usize, slot: usize) -> tensor::ElementsMut<'_>;

    /// Runs the first `frames` slots of `batch`, or starts to.
    ///
    /// # Errors
    /// When the runtime refuses or fails.
    fn submit(&mut self, batch: usize, frames: usize) -> Result<(), BackendError>;

    /// Returns when the submitted `batch` has run; its outputs can be read until it is submitted again.
    ///
    /// # Errors
    /// When the run failed.
    fn wait(&mut self, batch: usize) -> Result<(), BackendError>;

    /// Output `index` of a batch that was waited for; its first size is the number of frames that ran.
    fn output(&self, batch: usize, index: usize) -> TensorView<'_>;
}

/// Opens the device that `config` asks for, on the calling thread. [`BackendChoice::Auto`] takes ONNX Runtime if it can be
/// used and the embedded engine if not; a library that is there, or that the config names, and cannot be used is told in
/// the log.
///
/// # Errors
/// [`BackendError::Missing`] or [`BackendError::Unusable`] when the named backend's library is not there or not usable.
pub fn open(config: &DeviceConfig) -> Result<Box<dyn Device>, BackendError> {
    match config.backend {
        BackendChoice::Auto => onnxruntime::open(config).or_else(|error| {
            if config.library.is_some() || !matches!(error, BackendError::Missing { .. }) {
                tracing::warn!(device = config.id, "the embedded engine is used, which is slower: {error}");
            }
            embedded::open(config)
        }),
        BackendChoice::Named(BackendKind::Embedded) => embedded::open(config),
        BackendChoice::Named(BackendKind::OnnxRuntime) => onnxruntime::open(config),
        BackendChoice::Named(BackendKind::Fake) => fake::open(config),
    }
}

/// Why a runtime did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The runtime's library is not on this machine.
    #[error("{backend} is not on this machine: {library} was not found in {}; {cure}", looked.join(", "))]
    Missing {
        /// The backend's name.
        backend: &'static str,
        /// The library's file name.
        library: &'static str,
        /// Where it was looked for.
        looked: Vec<String>,
        /// What to do.
        cure: String,
    },
    /// The library is there and cannot be used.
    #[error("{backend}: {path} cannot be used: {reason}; {cure}")]
    Unusable {
        /// The backend's name.
        backend: &'static str,
        /// The library's path.
        path: String,
        /// What the loader or the library said.
        reason: String,
        /// What to do.
        cure: String,
    },
    /// The model file is not what it should be.
    #[error("model {model}: {path} cannot be loaded by {backend}: {reason}")]
    BadModel {
        /// The model.
        model: String,
        /// Its file.
        path: String,
        /// The backend's name.
        backend: &'static str,
        /// What the runtime said, in short.
        reason: String,
    },
    /// A batch failed.
    #[error("{backend}: a batch of {frames} failed: {reason}")]
    Run {
        /// The backend's name.
        backend: &'static str,
        /// Frames in the batch.
        frames: usize,
        /// What the runtime said.
        reason: String,
    },
}
