//! The engine in this binary: tract, in Rust, always there.
//!
//! # Why tract
//!
//! Milliseconds a picture on one thread: the median of 30 runs on one random picture after 10 to warm up, and in brackets
//! the same for a batch of 4, divided by 4. On a shared 2-core x86-64 machine with AVX-512; for each engine a release
//! build of a program of 20 lines that loads the file, runs it, and writes the output, which is compared with that of ONNX
//! Runtime (its Python wheel on 1 thread that does not spin). CPU to build is that of the program with all that the
//! engine needs.
//!
//! | engine | factory_tiny | factory_tiny_int8 | factory_tiny_e2e | coco_ssdlite | binary | CPU to build | licence |
//! |---|---|---|---|---|---|---|---|
//! | tract-onnx 0.23.9 | 6.2 (8.8) | 9.3 (12.8) | 5.8 (9.0) | 42 (103) | 28.9 MB | 473 s | MIT or Apache-2.0 |
//! | rten 0.27.0 | 5.2 (5.3) | 5.3 (5.6) | 5.4 (5.5) | refused | 6.6 MB | 77 s | MIT or Apache-2.0 |
//! | candle-onnx 0.11.1 | 18.6 (12.5) | refused | refused | 779 (532) | 6.2 MB | 232 s, `protoc` | MIT or Apache-2.0 |
//! | ONNX Runtime 1.32.0 | 2.6 (2.7) | 1.3 (1.3) | 2.6 (2.7) | 19.5 (22.5) | 35 MB library | | MIT |
//!
//! Outputs: tract's are ONNX Runtime's to 2e-4. For int8, whose rounding is each engine's own, tract and rten agree to
//! 3e-5, and their scores are ONNX Runtime's to 0.001. rten lost one box (of score 0.07) of 400 in a batch of 4 of
//! factory_tiny_e2e. rten refuses coco_ssdlite ("expected 2 dilation values"), candle an empty constant of the int8 model
//! and `NonMaxSuppression`; wonnx is no longer kept, and burn turns a model into Rust when it is built.
//!
//! So only tract runs every model. rten before tract, for what it can run, would save 1 ms of 6 (4 of 9 with int8), and
//! cost 6 MB and a second engine's faults; whoever wants speed has ONNX Runtime.
//!
//! # How it is used
//!
//! The table shows that tract is slower a picture in batches, so a model with an open batch size is planned once, at load,
//! for one frame, and a batch runs frame after frame. A run therefore never plans, and any number of frames runs at its
//! true cost. A model with a fixed batch size is planned for that.
//!
//! It runs on its device's thread alone, whatever `threads` says: with tract's `multithread-mm` two threads took 6.0 ms
//! where one took 5.7 (`factory_tiny`), 12.0 for 10.4 (int8) and 55 for 75 (`coco_ssdlite`; the least of 50 runs each,
//! on cores that had other work too). A second device uses a second core better.
//!
//! A slot of a batch is the very tensor that the engine reads; outputs are copied once, from the engine's tensor to the
//! batch's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use half::f16;
use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::{
    Arc, Datum, DatumType, Framework, InferenceFact, InferenceModelExt, IntoRunnable, IntoTValue, Tensor,
    TractResult, TypedRunnableModel, TypedSimpleState, tvec,
};

use super::layout::{Layout, elements, output_spec, reserve};
use super::onnx::{self, DeclaredOutput};
use super::tensor::{ElementType, Elements, ElementsMut, TensorSpec, TensorView};
use super::{BackendError, BackendKind, Device, DeviceConfig, LoadOptions, ModelFile, Session};
use crate::memory;

/// The engine and its version, as Cargo.lock has it.
pub(super) const ENGINE: &str = "tract 0.23.9";

/// Opens the engine. It needs nothing from the machine, so this does not fail.
///
/// # Errors
/// None today; the signature is every backend's.
pub fn open(config: &DeviceConfig) -> Result<Box<dyn Device>, BackendError> {
    if config.threads > 1 {
        tracing::debug!(
            device = config.id,
            threads = config.threads,
            "the embedded engine runs on one thread; onnxruntime would use more"
        );
    }
    Ok(Box::new(EmbeddedDevice))
}

#[derive(Debug)]
struct EmbeddedDevice;

impl Device for EmbeddedDevice {
    fn backend(&self) -> BackendKind {
        BackendKind::Embedded
    }

    fn describe(&self) -> String {
        format!("{ENGINE}, in this binary")
    }

    fn load(
        &mut self,
        model: &ModelFile<'_>,
        options: LoadOptions,
    ) -> Result<Box<dyn Session>, BackendError> {
        let session = EmbeddedSession::load(model, options);
        session
            .map(|session| Box::new(session) as _)
            .map_err(|reason| model.bad(BackendKind::Embedded, &reason))
    }
}

struct EmbeddedSession {
    plan: Arc<TypedRunnableModel>,
    state: TypedSimpleState,
    layout: Layout,
    /// Frames that one run of the plan takes.
    step: usize,
    batches: Vec<Batch>,
}

/// One batch buffer.
struct Batch {
    /// What the engine reads, `step` frames each. It takes tensors of its own making only, which are not in our pools;
    /// `realtime.lock_memory` locks them with everything else.
    inputs: Vec<Arc<Tensor>>,
    outputs: Vec<Output>,
}

/// One output of one batch.
struct Output {
    /// The first size is the number of frames that ran.
    shape: Vec<usize>,
    frame_len: usize,
    data: memory::Buffer<f32>,
}

impl EmbeddedSession {
    fn load(model: &ModelFile<'_>, options: LoadOptions) -> Result<Self, String> {
        let (proto, signature) = onnx::load(model.bytes)?;
        let mut layout = Layout::new(&signature.input, model.input, options)?;
        let step = layout.batch_size_fixed().unwrap_or(1);
        let input = InferenceFact::dt_shape(datum_type(&layout)?, layout.shape(step));
        let plan = guarded(|| plan(&proto, input))?;
        drop(proto);
        let mut state = guarded(|| plan.spawn())?;
        let outputs = trial(&mut state, &layout, step, &signature.outputs)?;
        let batch = || Batch::new(&layout, step, &outputs);
        let batches = (0..layout.batches).map(|_| batch()).collect::<Result<_, String>>()?;
        layout.outputs = outputs.into_iter().map(|output| output.spec).collect();
        Ok(Self { plan, state, layout, step, batches })
    }

    fn run(&mut self, batch: usize, frames: usize) -> Result<(), String> {
        let Self { plan, state, step, .. } = self;
        let Batch { inputs, outputs } = &mut self.batches[batch];
        for (index, input) in inputs.iter().take(frames.div_ceil(*step)).enumerate() {
            let results = match guarded(|| state.run(tvec!(Arc::clone(input).into_tvalue()))) {
                Ok(results) => results,
                Err(reason) => {
                    // What a run left half done must not reach the next one.
                    *state = guarded(|| plan.spawn())?;
                    return Err(reason);
                }
            };
            for (output, result) in outputs.iter_mut().zip(&results) {
                let elements = guarded(|| plain_f32(result))?;
                let len = output.frame_len * *step;
                let place = &mut output.data[index * len..(index + 1) * len];
                if place.len() != elements.len() {
                    return Err(format!(
                        "an output has the shape {:?} and had another before",
                        result.shape()
                    ));
                }
                place.copy_from_slice(elements);
            }
        }
        for output in outputs {
            output.shape[0] = frames;
        }
        Ok(())
    }
}

impl Session for EmbeddedSession {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn slot(&mut self, batch: usize, slot: usize) -> ElementsMut<'_> {
        assert!(slot < self.layout.batch_size_max, "slot {slot} of {}", self.layout.batch_size_max);
        let len = self.layout.frame_len;
        let start = slot % self.step * len;
        // The engine holds no reference between runs, so this never copies.
        let tensor = Arc::make_mut(&mut self.batches[batch].inputs[slot / self.step]);
        match self.layout.element_type {
            ElementType::F32 => ElementsMut::F32(&mut plain_mut(tensor)[start..start + len]),
            ElementType::F16 => ElementsMut::F16(&mut plain_mut(tensor)[start..start + len]),
            ElementType::Bf16 => unreachable!("`datum_type` has refused it at load"),
            ElementType::U8 => ElementsMut::U8(&mut plain_mut(tensor)[start..start + len]),
            ElementType::I8 => ElementsMut::I8(&mut plain_mut(tensor)[start..start + len]),
        }
    }

    fn submit(&mut self, batch: usize, frames: usize) -> Result<(), BackendError> {
        let refusal = self.layout.refusal(batch, frames);
        refusal
            .map_or_else(|| self.run(batch, frames), Err)
            .map_err(|reason| BackendKind::Embedded.failed(frames, &reason))
    }

    fn wait(&mut self, _batch: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn output(&self, batch: usize, index: usize) -> TensorView<'_> {
        let output = &self.batches[batch].outputs[index];
        let len = output.frame_len * output.shape[0];
        TensorView { shape: &output.shape, elements: Elements::F32(&output.data[..len]) }
    }
}

impl fmt::Debug for EmbeddedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedSession").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl Batch {
    fn new(layout: &Layout, step: usize, outputs: &[TrialOutput]) -> Result<Self, String> {
        let runs = layout.batch_size_held() / step;
        let inputs = (0..runs).map(|_| zeros(layout, step).map(Arc::new)).collect::<Result<_, _>>()?;
        let output = |output: &TrialOutput| {
            let frame_len =
                elements(&output.ran[1..]).ok_or("an output has more elements than can be counted")?;
            Ok(Output {
                shape: output.ran.clone(),
                frame_len,
                data: reserve(frame_len.saturating_mul(layout.batch_size_held()))?,
            })
        };
        Ok(Self { inputs, outputs: outputs.iter().map(output).collect::<Result<_, String>>()? })
    }
}

/// An output as a trial run had it.
struct TrialOutput {
    spec: TensorSpec,
    ran: Vec<usize>,
}

/// Plans the model for an input of this type and shape.
fn plan(proto: &ModelProto, input: InferenceFact) -> TractResult<Arc<TypedRunnableModel>> {
    tract_onnx::onnx()
        .model_for_proto_model(proto)?
        .with_input_fact(0, input)?
        .into_optimized()?
        .into_runnable()
}

/// Runs zeros once: the sizes of the outputs are known from here on, and what the engine refuses only when it runs is
/// refused now.
fn trial(
    state: &mut TypedSimpleState,
    layout: &Layout,
    step: usize,
    declared: &[DeclaredOutput],
) -> Result<Vec<TrialOutput>, String> {
    let input = zeros(layout, step)?;
    let results = guarded(|| state.run(tvec!(input.into_tvalue())))?;
    if results.len() != declared.len() {
        return Err(format!("it declares {} outputs and has {}", declared.len(), results.len()));
    }
    let output = |(declared, result): (&DeclaredOutput, _)| {
        let result: &Tensor = result;
        guarded(|| plain_f32(result).map(|_| ()))
            .map_err(|reason| format!("its output `{}`: {reason}", declared.name))?;
        let ran = result.shape().to_vec();
        let fixed = layout.batch_size_fixed();
        let spec = output_spec(&declared.name, declared.shape.as_ref(), &ran, step, fixed)?;
        Ok(TrialOutput { spec, ran })
    };
    declared.iter().zip(results.iter().map(|result| &**result)).map(output).collect()
}

fn datum_type(layout: &Layout) -> Result<DatumType, String> {
    match layout.element_type {
        ElementType::F32 => Ok(f32::datum_type()),
        ElementType::F16 => Ok(f16::datum_type()),
        ElementType::Bf16 => Err(format!(
            "its input `{}` is of bf16, which the embedded engine does not know; run it with onnxruntime, or export it \
             with an input of f32",
            layout.input.name
        )),
        ElementType::U8 => Ok(u8::datum_type()),
        ElementType::I8 => Ok(i8::datum_type()),
    }
}

fn zeros(layout: &Layout, step: usize) -> Result<Tensor, String> {
    let datum_type = datum_type(layout)?;
    guarded(|| Tensor::zero_dt(datum_type, &layout.shape(step)))
}

fn plain_f32(tensor: &Tensor) -> TractResult<&[f32]> {
    tensor.try_as_plain_ram()?.as_slice::<f32>()
}

fn plain_mut<T: Datum>(tensor: &mut Tensor) -> &mut [T] {
    let array = tensor.to_plain_array_view_mut().expect("made by `zeros` with the layout's element type");
    array.into_slice().expect("tract's own tensors are contiguous")
}

/// Calls the engine. A file that is damaged in a way which the engine did not foresee can make it panic; that is an
/// error of the file, and the thread goes on.
fn guarded<T>(call: impl FnOnce() -> TractResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
            Err(format!("the engine gave up: {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_version_is_the_one_that_is_built_in() {
        let lock = include_str!("../../Cargo.lock");
        let (name, version) = ENGINE.split_once(' ').unwrap();
        assert!(lock.contains(&format!("name = \"{name}-onnx\"\nversion = \"{version}\"")));
    }

    #[test]
    fn a_panic_of_the_engine_is_an_error() {
        let error = guarded::<()>(|| panic!("index out of bounds")).unwrap_err();
        assert_eq!(error, "the engine gave up: index out of bounds");
    }
}
