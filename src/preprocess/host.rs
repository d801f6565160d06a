//! The fused pass on the CPU: picture planes to model tensor.
//!
//! # What is computed
//!
//! Of every element of the input tensor, exactly this (and `tests/it/preprocess.rs` computes it again, in `f64`):
//!
//! 1. **Place.** Input pixel `(x, y)` shows the picture at [`Letterbox::to_picture`] of its centre `(x + 0.5, y + 0.5)`,
//!    which in indices of picture pixels is that less 0.5.
//! 2. **Sample.** Each plane is interpolated bilinearly at that place, in its own resolution, and clamped at the edges of
//!    the camera's region in it. This is without a low-pass filter before it: OpenCV's `INTER_LINEAR`. Where
//!    [`InputSpec::filter`] says so, it is instead the mean of the samples that the input pixel covers, each by how much of
//!    it is covered: `INTER_AREA`. Luma, and every component of an RGB picture, sits at the pixel. Chroma is taken to be
//!    cosited with the left luma sample of its pair, and, where it has half the rows (4:2:0), half-way between its two rows:
//!    the default of H.264, H.265 and MPEG-2 (chroma location 0, "left"), and of YUY2 and UYVY. A JPEG has its chroma in
//!    the middle; it is read in the same way, which moves its colours, and nothing else, by half a picture pixel.
//! 3. **Convert.** YCbCr becomes R'G'B' after interpolation, by the coefficients of ITU-R BT.601, BT.709 or BT.2020
//!    (non-constant luminance) and the range of ITU-T H.273: limited (luma 16..=235, chroma 16..=240) or full. The result
//!    is clamped to 0..=255 and not rounded; it is right to a tenth of a step. `GRAY8` is luma, and its range counts too.
//!    Alpha is ignored.
//! 4. **Normalise.** `(value - mean) / std` for each channel in the model's order, and for integers then `/ scale +
//!    zero_point`. The result is rounded to the nearest element (a tie to the even one), and an integer is saturated.
//!
//! All around the picture lies [`InputSpec::pad`], normalised alike. It is written once for each slot and placement, not for
//! each frame: [`Held`] remembers where the picture lay that the slot got last.
//!
//! # How
//!
//! Rows are the unit: no picture lies between the planes and the slot. For each row of the input, the rows of each plane
//! that it shows become one line, and two lines become a row of each channel, straight in the slot where that holds floats
//! in planes; everything on the way stays in the first-level cache. The steps and why they are in this order: [`kernel`].
//!
//! Nothing is allocated for a frame whose kind (format, size and region) is among the last [`KINDS_MAX`] that were seen.
//!
//! [`kernel`]: super::kernel

use std::ops::Range;

use super::kernel::Kernel;
use super::letterbox::{Letterbox, RegionConfig};
use super::plan::{Plan, PlanKey};
use super::planes::{Lines, Picture};
use super::store::{Element, Scratch, Target};
use super::{InputSpec, PreprocessError, color};
use crate::backend::tensor::ElementsMut;
use crate::frame::{Frame, Geometry};

/// How many different kinds of pictures keep their tables. Cameras of more kinds than this may share a model, but then
/// tables are made anew for each change.
pub const KINDS_MAX: usize = 64;

/// Where the picture lies that a slot of a batch got last, so that the padding around it is not written again. Each slot
/// has its own, which begins as [`Held::default`] whenever somebody else may have written there.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The columns and the rows that show it.
    visible: Option<[Range<u32>; 2]>,
}

/// Writes pictures into a model's input. It keeps tables and scratch memory, so there is one for each session.
#[derive(Debug)]
pub struct Preprocessor {
    spec: InputSpec,
    kernel: Kernel,
    /// The most recently used first.
    plans: Vec<Plan>,
    lines: Lines,
    scratch: Scratch,
}

impl Preprocessor {
    /// A preprocessor for this input. Its sizes must be at least 1 and no `std` may be 0, as the manifest's check sees to.
    #[must_use]
    pub fn new(spec: InputSpec) -> Self {
        Self::with_kernel(spec, Kernel::best())
    }

    /// A preprocessor for this input that computes with this kernel.
    #[must_use]
    pub fn with_kernel(spec: InputSpec, kernel: Kernel) -> Self {
        let scratch = Scratch::new(spec.width as usize);
        Self { spec, kernel, plans: Vec::with_capacity(KINDS_MAX), lines: Lines::default(), scratch }
    }

    /// What the input is.
    #[must_use]
    pub fn spec(&self) -> &InputSpec {
        &self.spec
    }

    /// Writes the region of `frame` into its place in a batch, and answers where it lies there. `held` is the slot's own.
    ///
    /// # Errors
    /// When `slot` is not a place for one frame of this input, or the region is not in the picture; nothing is written then.
    pub fn write(
        &mut self,
        frame: &Frame,
        region: RegionConfig,
        slot: ElementsMut<'_>,
        held: &mut Held,
    ) -> Result<Letterbox, PreprocessError> {
        let wanted = 3 * self.spec.width as usize * self.spec.height as usize;
        let (got, got_type) = (slot.len(), slot.element_type());
        if got != wanted || got_type != self.spec.element_type {
            let (wanted_type, got_type) = (self.spec.element_type.name(), got_type.name());
            return Err(PreprocessError::Slot { wanted, wanted_type, got, got_type });
        }
        self.select_plan(frame.geometry(), region)?;
        Ok(match slot {
            ElementsMut::F32(slot) => self.write_elements(frame, slot, held),
            ElementsMut::F16(slot) => self.write_elements(frame, slot, held),
            ElementsMut::Bf16(slot) => self.write_elements(frame, slot, held),
            ElementsMut::U8(slot) => self.write_elements(frame, slot, held),
            ElementsMut::I8(slot) => self.write_elements(frame, slot, held),
        })
    }

    /// Writes by the first plan.
    fn write_elements<T: Element>(&mut self, frame: &Frame, slot: &mut [T], held: &mut Held) -> Letterbox {
        let Self { spec, kernel, plans, lines, scratch } = self;
        let (kernel, plan) = (*kernel, &plans[0]);
        let picture = Picture::new(frame, kernel);
        let mix = color::mix(frame.geometry(), spec);
        let mut target = Target::new(spec, &plan.visible, slot);
        if held.visible.as_ref() != Some(&plan.visible) {
            target.pad(kernel, spec);
            held.visible = Some(plan.visible.clone());
        }
        for y in 0..plan.visible[1].len() {
            lines.fill(&picture, plan, y);
            let [first, pairs] = lines.resampled(plan);
            target.put(kernel, y, scratch, |rows| kernel.resample(first, pairs, &mix, rows));
        }
        plan.letterbox
    }

    /// Puts the plan for this kind of picture first, making it if it is not there. The memory of the one that was longest
    /// unused is used again.
    fn select_plan(&mut self, geometry: &Geometry, region: RegionConfig) -> Result<(), PreprocessError> {
        let picture = (geometry.width, geometry.height);
        let region = region.of(picture).ok_or(PreprocessError::Region { region, picture })?;
        let key = PlanKey { format: geometry.format, picture, region };
        let place = match self.plans.iter().position(|plan| plan.key == key) {
            Some(place) => place,
            None => {
                let letterbox = Letterbox::of_region(picture, region, &self.spec);
                let mut plan = if self.plans.len() < KINDS_MAX { None } else { self.plans.pop() }
                    .unwrap_or_else(|| Plan::empty(key, letterbox));
                plan.make(key, letterbox, &self.spec);
                self.lines.reserve(&plan);
                self.plans.push(plan);
                self.plans.len() - 1
            }
        };
        self.plans[..=place].rotate_right(1);
        Ok(())
    }
}
