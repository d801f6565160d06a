//! What every backend does before its runtime sees a model: settle the sizes of the input, refuse what Gantry cannot
//! feed or read, and make the batch buffers.

use super::tensor::{Dim, ElementType, Elements, ElementsMut, Shape, TensorSpec};
use super::{BackendError, BackendKind, LoadOptions, ModelFile};
use crate::memory;
use crate::telemetry::error_chain;

/// No batch of pictures is as large as this; a model file that says so is broken.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// The longest text of a runtime that goes into an error.
const REASON_CHARS_MAX: usize = 300;

/// What was settled when a session was loaded: its tensors and their sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The input, as the model file declares it.
    pub(super) input: TensorSpec,
    /// The outputs, as the model file declares them; none before a trial run has shown their sizes.
    pub(super) outputs: Vec<TensorSpec>,
    /// Type of one element of the input.
    pub(super) element_type: ElementType,
    /// Shape of one frame: the input's without its first dimension.
    pub(super) frame: Vec<usize>,
    /// Elements of one frame.
    pub(super) frame_len: usize,
    /// The only batch sizes that run, ascending; empty where any does.
    pub(super) batch_sizes: Vec<usize>,
    /// The most frames in one batch.
    pub(super) batch_size_max: usize,
    /// Number of batch buffers.
    pub(super) batches: usize,
}

impl Layout {
    /// Settles the sizes of `input`, which is what the model file declares. What it leaves open, the manifest's
    /// declaration fills in; where both say something, they must agree.
    pub(super) fn new(
        input: &TensorSpec,
        manifest: Option<&TensorSpec>,
        options: LoadOptions,
    ) -> Result<Self, String> {
        if let Some(manifest) = manifest
            && (manifest.element_type != input.element_type || !manifest.shape.agrees_with(&input.shape))
        {
            return Err(format!("its input is `{input}`, and the manifest says `{manifest}`"));
        }
        let Some((first, rest)) = input.shape.0.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Err(format!("its input `{input}` has no room for a batch of pictures"));
        };
        let mut frame = Vec::with_capacity(rest.len());
        for (index, &dim) in rest.iter().enumerate() {
            let filled = match dim {
                Dim::Dynamic => manifest.and_then(|manifest| manifest.shape.0.get(index + 1)).copied(),
                Dim::Fixed(_) => Some(dim),
            };
            let Some(Dim::Fixed(size)) = filled else {
                return Err(format!(
                    "its input `{input}` leaves size {} open; write it in the manifest's `input: shape`",
                    index + 1
                ));
            };
            frame.push(size);
        }
        let batch_size_fixed = match *first {
            Dim::Fixed(size) => Some(size),
            Dim::Dynamic => None,
        };
        let frames = batch_size_fixed.unwrap_or(options.batch_size_max.max(1));
        let layout = Self {
            input: input.clone(),
            outputs: Vec::new(),
            element_type: input.element_type,
            frame_len: elements(&frame).unwrap_or(usize::MAX),
            frame,
            batch_sizes: batch_size_fixed.into_iter().collect(),
            batch_size_max: frames.min(options.batch_size_max.max(1)),
            batches: options.batches.max(2),
        };
        let bytes =
            layout.frame_len.checked_mul(frames).and_then(|len| len.checked_mul(layout.element_type.size()));
        match bytes {
            Some(0) => Err(format!("its input `{input}` has no elements")),
            Some(bytes) if bytes <= BATCH_BYTES_MAX => Ok(layout),
            _ => Err(format!("a batch of {frames} for its input `{input}` would take more than 1 GiB")),
        }
    }

    /// Frames that the model runs at once, if only one number does.
    pub(super) fn batch_size_fixed(&self) -> Option<usize> {
        if let [size] = *self.batch_sizes { Some(size) } else { None }
    }

    /// The size that runs so many frames.
    pub(super) fn batch_size_of(&self, frames: usize) -> usize {
        self.batch_sizes.iter().copied().find(|size| *size >= frames).unwrap_or(frames)
    }

    /// Frames that one batch buffer holds: all slots of the largest batch that runs.
    pub(super) fn batch_size_held(&self) -> usize {
        self.batch_size_of(self.batch_size_max)
    }

    /// Why `frames` frames of buffer `batch` cannot be run, if they cannot.
    pub(super) fn refusal(&self, batch: usize, frames: usize) -> Option<String> {
        if batch >= self.batches {
            return Some(format!("there is no batch buffer {batch}; there are {}", self.batches));
        }
        (frames == 0 || frames > self.batch_size_max)
            .then(|| format!("a batch has 1 to {} frames", self.batch_size_max))
    }

    /// The shape of a tensor of `frames` frames.
    pub(super) fn shape(&self, frames: usize) -> Vec<usize> {
        std::iter::once(frames).chain(self.frame.iter().copied()).collect()
    }
}

/// Memory of one batch of inputs, there and locked before the first frame.
#[derive(Debug)]
pub(super) struct Buffer {
    element_type: ElementType,
    frame_bytes: usize,
    /// Aligned for every type of element.
    bytes: memory::Buffer<u8>,
}

impl Buffer {
    /// A buffer of zeros for one batch.
    pub(super) fn zeros(layout: &Layout) -> Result<Self, String> {
        let element_type = layout.element_type;
        let frame_bytes = layout.frame_len * element_type.size();
        let bytes = reserve(frame_bytes * layout.batch_size_held())?;
        Ok(Self { element_type, frame_bytes, bytes })
    }

    /// The elements of frame `slot`, to be written.
    pub(super) fn slot(&mut self, slot: usize) -> ElementsMut<'_> {
        let bytes = &mut self.bytes[slot * self.frame_bytes..][..self.frame_bytes];
        ElementsMut::of(self.element_type, bytes)
    }

    /// The elements of the first `frames` frames.
    pub(super) fn elements(&self, frames: usize) -> Elements<'_> {
        Elements::of(self.element_type, &self.bytes[..frames * self.frame_bytes])
    }
}

/// So many zeros of a batch, in memory that is there before the first frame.
pub(super) fn reserve<T: memory::Plain>(len: usize) -> Result<memory::Buffer<T>, String> {
    memory::Buffer::new(len).map_err(|error| format!("its batches: {}", error_chain(&error)))
}

/// The number of elements of a tensor of this shape, if it can be counted.
pub(super) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

/// What an output is, given what the file declares (if it declares a shape) and what a trial run of `frames` frames gave.
pub(super) fn output_spec(
    name: &str,
    declared: Option<&Shape>,
    ran: &[usize],
    frames: usize,
    batch_size_fixed: Option<usize>,
) -> Result<TensorSpec, String> {
    if ran.first() != Some(&frames) {
        return Err(format!(
            "its output `{name}` has the shape {ran:?} for a batch of {frames}; its first size must be the batch"
        ));
    }
    let mut dims: Vec<Dim> = ran.iter().copied().map(Dim::Fixed).collect();
    let shape = match declared {
        Some(declared) => {
            if !declared.agrees_with(&Shape(dims)) {
                return Err(format!(
                    "its output `{name}` is declared as {declared} and is {ran:?} when it runs"
                ));
            }
            declared.clone()
        }
        None => {
            dims[0] = batch_size_fixed.map_or(Dim::Dynamic, Dim::Fixed);
            Shape(dims)
        }
    };
    Ok(TensorSpec { name: name.to_owned(), element_type: ElementType::F32, shape })
}

/// The first words of what a runtime said, on one line.
pub(super) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl BackendKind {
    /// The error that a batch of `frames` frames failed.
    pub(super) fn failed(self, frames: usize, reason: &str) -> BackendError {
        BackendError::Run { backend: self.name(), frames, reason: short(reason) }
    }
}

impl ModelFile<'_> {
    /// The error that this file cannot be loaded by `backend`.
    pub(super) fn bad(&self, backend: BackendKind, reason: &str) -> BackendError {
        BackendError::BadModel {
            model: self.name.to_owned(),
            path: self.path.display().to_string(),
            backend: backend.name(),
            reason: short(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: LoadOptions = LoadOptions { batch_size_max: 4, batches: 2 };

    fn spec(dims: &[i64]) -> TensorSpec {
        TensorSpec { name: "images".into(), element_type: ElementType::F32, shape: Shape::new(dims) }
    }

    #[test]
    fn what_the_file_leaves_open_comes_from_the_manifest() {
        let file = spec(&[-1, 3, -1, -1]);
        let layout = Layout::new(&file, Some(&spec(&[-1, 3, 48, 64])), OPTIONS).unwrap();
        assert_eq!((layout.frame, layout.frame_len, layout.batch_size_max), (vec![3, 48, 64], 9216, 4));
        let open = Layout::new(&file, None, OPTIONS).unwrap_err();
        assert!(open.contains("leaves size 2 open"), "{open}");
        let half = Layout::new(&file, Some(&spec(&[-1, 3, 48, -1])), OPTIONS).unwrap_err();
        assert!(half.contains("leaves size 3 open"), "{half}");
    }

    #[test]
    fn a_manifest_that_disagrees_is_told_with_both_shapes() {
        let error =
            Layout::new(&spec(&[-1, 3, 256, 256]), Some(&spec(&[-1, 3, 320, 320])), OPTIONS).unwrap_err();
        assert!(error.contains("[-1, 3, 256, 256]") && error.contains("[-1, 3, 320, 320]"), "{error}");
    }

    #[test]
    fn a_fixed_batch_is_held_whole_and_offered_up_to_the_most_that_was_asked_for() {
        let small = Layout::new(&spec(&[2, 3, 8, 8]), None, OPTIONS).unwrap();
        assert_eq!((small.batch_size_max, small.batch_size_held()), (2, 2));
        let large = Layout::new(&spec(&[8, 3, 8, 8]), None, OPTIONS).unwrap();
        assert_eq!((large.batch_size_max, large.batch_size_held()), (4, 8));
        assert!(large.refusal(0, 4).is_none());
        assert!(
            large.refusal(0, 5).is_some() && large.refusal(0, 0).is_some() && large.refusal(2, 1).is_some()
        );
    }

    #[test]
    fn an_absurd_size_is_refused_before_memory_is_asked_for() {
        for dims in [&[-1, 3, 1 << 40, 1 << 40][..], &[1 << 30, 3, 64, 64], &[-1, 3, 20_000, 20_000]] {
            let error = Layout::new(&spec(dims), None, OPTIONS).unwrap_err();
            assert!(error.contains("more than 1 GiB"), "{error}");
        }
        assert!(Layout::new(&spec(&[-1]), None, OPTIONS).is_err());
        assert!(Layout::new(&spec(&[]), None, OPTIONS).is_err());
        assert!(Layout::new(&spec(&[-1, 0]), None, OPTIONS).is_err());
    }

    #[test]
    fn an_output_without_a_declared_shape_gets_the_one_that_it_had() {
        let spec = output_spec("boxes", None, &[2, 8, 21], 2, None).unwrap();
        assert_eq!(spec.to_string(), "boxes f32 [-1, 8, 21]");
        assert!(output_spec("boxes", None, &[7, 6], 2, None).unwrap_err().contains("must be the batch"));
        let declared = Shape::new(&[-1, 9, 21]);
        assert!(
            output_spec("boxes", Some(&declared), &[2, 8, 21], 2, None).unwrap_err().contains("[-1, 9, 21]")
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short("a\n  b\tc"), "a b c");
        assert_eq!(short(&"é".repeat(1000)).chars().count(), REASON_CHARS_MAX + 1);
    }
}
