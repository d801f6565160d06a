//! ONNX Runtime, opened at run time: the normal engine on CPUs, 2 to 7 times as fast as the one in this binary (see the
//! table in [`super::embedded`]).
//!
//! Which library: see `library.rs` beside this file. It is first opened by hand, and asked for its version and for the
//! oldest API that the crate `ort` can use, because `ort` itself panics on a library that answers in an unexpected way.
//!
//! One process has one ONNX Runtime: its environment is made by the first device and never ends, because the library
//! must not be unloaded while one of its threads may still be inside. A second device that names another library is
//! refused.
//!
//! A run is sequential, on as many threads as the config says (the device's own is one of them), and none of them spins
//! while it waits. It reads the batch buffer in place. Outputs stay in the memory that the runtime gave them, from its
//! arena, and are read there: nothing is copied on either side.

use std::ffi::CStr;
use std::fmt::{self, Debug};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::SessionOutputs;
use ort::value::{DynValue, PrimitiveTensorElementType, TensorRef};

use super::layout::{Buffer, Layout, output_spec, short};
use super::library::{self, Library, Location, Surroundings};
use super::onnx::{self, DeclaredOutput};
use super::tensor::{Elements, ElementsMut, TensorView};
use super::{BackendError, BackendKind, Device, DeviceConfig, LoadOptions, ModelFile, Session};

const LIBRARY: Library =
    Library { runtime: "onnxruntime", file: "libonnxruntime.so", variable: "GANTRY_ORT_LIB" };

/// The library of this process, once a device has opened it.
static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// A library that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usable {
    /// The file, without links.
    pub path: PathBuf,
    /// What it says its version is.
    pub version: String,
}

/// Opens the device.
///
/// # Errors
/// [`BackendError::Missing`] when the library is nowhere; [`BackendError::Unusable`] when it is no ONNX Runtime, is too
/// old, or another one is already in this process.
pub fn open(config: &DeviceConfig) -> Result<Box<dyn Device>, BackendError> {
    let usable = look(config.library.as_deref())?;
    let environment = environment(&usable)?;
    Ok(Box::new(OrtDevice { threads: config.threads.max(1), usable, environment }))
}

/// Finds the library and checks that it can be used. `configured` is the path that the config names, if it does.
pub(super) fn look(configured: Option<&Path>) -> Result<Usable, BackendError> {
    let around = Surroundings::of_process(LIBRARY);
    let path = match library::find(LIBRARY, configured, &around) {
        Location::At(path) => path,
        Location::Nowhere(looked) => {
            return Err(BackendError::Missing {
                backend: BackendKind::OnnxRuntime.name(),
                library: LIBRARY.file,
                looked,
                cure: format!(
                    "run `scripts/fetch-runtime onnxruntime`, or name the file in the device's `library` or in {}",
                    LIBRARY.variable
                ),
            });
        }
    };
    let path = path.canonicalize().map_err(|error| unusable(&path, &error.to_string()))?;
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    match loaded.as_ref() {
        Some(loaded) => loaded.usable_as(&path).cloned(),
        None => check(&path).map_err(|reason| unusable(&path, &reason)),
    }
}

/// The ONNX Runtime of this process.
#[derive(Debug)]
struct Loaded {
    usable: Usable,
    environment: Environment,
}

impl Loaded {
    /// The library, if it is the one at `path`.
    fn usable_as(&self, path: &Path) -> Result<&Usable, BackendError> {
        if self.usable.path == path {
            return Ok(&self.usable);
        }
        Err(BackendError::Unusable {
            backend: BackendKind::OnnxRuntime.name(),
            path: path.display().to_string(),
            reason: format!("this process already runs {}", self.usable.path.display()),
            cure: "name the same `library` in all devices".to_owned(),
        })
    }
}

#[derive(Debug)]
struct OrtDevice {
    threads: usize,
    usable: Usable,
    environment: Environment,
}

impl Device for OrtDevice {
    fn backend(&self) -> BackendKind {
        BackendKind::OnnxRuntime
    }

    fn describe(&self) -> String {
        format!("ONNX Runtime {}, {}", self.usable.version, self.usable.path.display())
    }

    fn load(
        &mut self,
        model: &ModelFile<'_>,
        options: LoadOptions,
    ) -> Result<Box<dyn Session>, BackendError> {
        let session = OrtSession::load(self, model, options);
        session
            .map(|session| Box::new(session) as _)
            .map_err(|reason| model.bad(BackendKind::OnnxRuntime, &reason))
    }
}

struct OrtSession {
    session: ort::session::Session,
    layout: Layout,
    batches: Vec<Batch>,
}

/// One batch buffer.
struct Batch {
    input: Buffer,
    outputs: Vec<Output>,
}

/// One output of one batch.
struct Output {
    /// The first size is the number of frames that ran.
    shape: Vec<usize>,
    /// Shape as the runtime has it; its first size is what the model ran, which may be more.
    ran: Vec<usize>,
    /// The runtime's own tensor.
    value: DynValue,
}

impl OrtSession {
    fn load(device: &OrtDevice, model: &ModelFile<'_>, options: LoadOptions) -> Result<Self, String> {
        let (proto, signature) = onnx::load(model.bytes)?;
        drop(proto);
        let mut layout = Layout::new(&signature.input, model.input, options)?;
        let mut session = build(device, model.bytes).map_err(|error| error.message().to_owned())?;
        // The largest batch, so that the runtime's arena grows now and not among frames.
        let held = layout.batch_size_held();
        let mut batches = Vec::with_capacity(layout.batches);
        for _ in 0..layout.batches {
            let input = Buffer::zeros(&layout)?;
            let outputs = run(&mut session, &layout, &input, held)?;
            if outputs.len() != signature.outputs.len() {
                return Err(format!(
                    "it declares {} outputs and has {}",
                    signature.outputs.len(),
                    outputs.len()
                ));
            }
            let fixed = layout.batch_size_fixed();
            let spec = |(declared, output): (&DeclaredOutput, &Output)| {
                output_spec(&declared.name, declared.shape.as_ref(), &output.ran, held, fixed)
            };
            layout.outputs = signature.outputs.iter().zip(&outputs).map(spec).collect::<Result<_, _>>()?;
            batches.push(Batch { input, outputs });
        }
        Ok(Self { session, layout, batches })
    }

    fn run(&mut self, batch: usize, frames: usize) -> Result<(), String> {
        let Batch { input, outputs } = &mut self.batches[batch];
        let held = self.layout.batch_size_of(frames);
        let mut ran = run(&mut self.session, &self.layout, input, held)?;
        for (index, (new, old)) in ran.iter_mut().zip(outputs.iter()).enumerate() {
            if new.ran.first() != Some(&held) || new.ran.get(1..) != old.ran.get(1..) {
                let name = &self.layout.outputs[index].name;
                return Err(format!(
                    "its output `{name}` has the shape {:?} and had {:?} before",
                    new.ran, old.ran
                ));
            }
            new.shape[0] = frames;
        }
        *outputs = ran;
        Ok(())
    }
}

impl Session for OrtSession {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn slot(&mut self, batch: usize, slot: usize) -> ElementsMut<'_> {
        assert!(slot < self.layout.batch_size_max, "slot {slot} of {}", self.layout.batch_size_max);
        self.batches[batch].input.slot(slot)
    }

    fn submit(&mut self, batch: usize, frames: usize) -> Result<(), BackendError> {
        let refusal = self.layout.refusal(batch, frames);
        refusal
            .map_or_else(|| self.run(batch, frames), Err)
            .map_err(|reason| BackendKind::OnnxRuntime.failed(frames, &reason))
    }

    fn wait(&mut self, _batch: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn output(&self, batch: usize, index: usize) -> TensorView<'_> {
        let output = &self.batches[batch].outputs[index];
        let (_, all) = output.value.try_extract_tensor::<f32>().expect("`run` has extracted the same");
        let len = output.shape.iter().product();
        TensorView { shape: &output.shape, elements: Elements::F32(&all[..len]) }
    }
}

impl fmt::Debug for OrtSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrtSession").field("layout", &self.layout).finish_non_exhaustive()
    }
}

fn build(device: &OrtDevice, bytes: &[u8]) -> ort::Result<ort::session::Session> {
    ort::session::Session::builder(&device.environment)?
        .with_intra_threads(device.threads)?
        .with_inter_threads(1)?
        .with_parallel_execution(false)?
        .with_intra_op_spinning(false)?
        .with_log_level(LogLevel::Warning)?
        .commit_from_memory(bytes)
}

/// Runs `frames` frames of `input`, and gives the outputs with the shapes that they have.
fn run(
    session: &mut ort::session::Session,
    layout: &Layout,
    input: &Buffer,
    frames: usize,
) -> Result<Vec<Output>, String> {
    let shape = layout.shape(frames);
    let results = match input.elements(frames) {
        Elements::F32(all) => feed(session, shape, all),
        Elements::F16(all) => feed(session, shape, all),
        Elements::Bf16(all) => feed(session, shape, all),
        Elements::U8(all) => feed(session, shape, all),
        Elements::I8(all) => feed(session, shape, all),
    };
    let results = results.map_err(|error| error.message().to_owned())?;
    results.into_iter().map(|(name, value)| Output::new(name, value)).collect()
}

fn feed<'s, T: PrimitiveTensorElementType + Clone + Debug + 'static>(
    session: &'s mut ort::session::Session,
    shape: Vec<usize>,
    elements: &[T],
) -> ort::Result<SessionOutputs<'s>> {
    let tensor = TensorRef::from_array_view((shape, elements))?;
    session.run(ort::inputs![tensor])
}

impl Output {
    fn new(name: &str, value: DynValue) -> Result<Self, String> {
        let (shape, _) = value
            .try_extract_tensor::<f32>()
            .map_err(|error| format!("its output `{name}`: {}", error.message()))?;
        let ran = shape.iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>();
        let ran = ran.map_err(|_| format!("its output `{name}` has a shape with a negative size"))?;
        Ok(Self { shape: ran.clone(), ran, value })
    }
}

/// The environment of this process, made if it is not there yet.
fn environment(usable: &Usable) -> Result<Environment, BackendError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = loaded.as_ref() {
        return loaded.usable_as(&usable.path).map(|_| loaded.environment.clone());
    }
    let builder = ort::init_from(&usable.path).map_err(|error| unusable(&usable.path, &error.to_string()))?;
    let environment = builder
        .with_name("gantry")
        .with_telemetry(false)
        .with_logger(std::sync::Arc::new(log))
        .build()
        .map_err(|error| unusable(&usable.path, error.message()))?;
    environment.set_log_level(LogLevel::Warning);
    *loaded = Some(Loaded { usable: usable.clone(), environment: environment.clone() });
    Ok(environment)
}

/// What is an error for the runtime comes back as an error of ours too, so none of its lines is above `warn`.
fn log(level: LogLevel, category: &str, _id: &str, place: &str, message: &str) {
    match level {
        LogLevel::Error | LogLevel::Fatal => tracing::warn!(category, place, "onnxruntime: {message}"),
        LogLevel::Verbose | LogLevel::Info | LogLevel::Warning => {
            tracing::debug!(category, place, "onnxruntime: {message}");
        }
    }
}

fn unusable(path: &Path, reason: &str) -> BackendError {
    BackendError::Unusable {
        backend: BackendKind::OnnxRuntime.name(),
        path: path.display().to_string(),
        reason: short(reason),
        cure: format!(
            "`scripts/fetch-runtime onnxruntime` gets one that works (ONNX Runtime 1.{} or newer)",
            ort::MINOR_VERSION
        ),
    }
}

/// Opens the library and asks for its version and its API.
#[expect(
    unsafe_code,
    reason = "a C library's own answers to who it is; the crate `ort` asserts them and panics"
)]
fn check(path: &Path) -> Result<Usable, String> {
    // SAFETY: opening a library runs its initialisers. The file was named by the machine's owner or lies where only the
    // owner can put it, and ONNX Runtime's initialisers ask nothing of the thread that opens it.
    let opened = unsafe { libloading::Library::new(path) };
    let library = opened.map_err(|error| error.to_string())?;
    type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;
    // SAFETY: in every ONNX Runtime the symbol of this name is a function of this type.
    let symbol = unsafe { library.get::<GetApiBase>(b"OrtGetApiBase\0") };
    let get_api_base = *symbol.map_err(|_| "it is a library, and not ONNX Runtime's".to_owned())?;
    // The functions below live in the library, so it stays in memory for ever, as it does once a device uses it.
    mem::forget(library);
    // SAFETY: the function takes nothing, and its library is never unloaded.
    let base = unsafe { get_api_base() };
    // SAFETY: the function returns a pointer to a static table, or null, which `as_ref` checks.
    let base = unsafe { base.as_ref() }.ok_or("it has no API")?;
    // SAFETY: the table's functions are valid for as long as the library is in memory.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err("it does not tell its version".to_owned());
    }
    // SAFETY: the pointer is not null, and the API promises a static string that ends with a zero byte.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
    // SAFETY: as for `GetVersionString`; the API promises null for a version that the library does not know.
    let api = unsafe { (base.GetApi)(ort::sys::ORT_API_VERSION) };
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if api.is_null() || minor.is_none_or(|minor| minor < ort::MINOR_VERSION) {
        return Err(format!("it is ONNX Runtime {version}, which is too old"));
    }
    Ok(Usable { path: path.to_owned(), version })
}
