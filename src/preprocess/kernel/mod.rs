//! The arithmetic of the pass, for each instruction set. All do the same steps:
//!
//! 1. **Down.** The rows of a plane that an output row shows are blended or averaged into one line of samples: 16-bit
//!    integers of 1/128 of a step of 0..=255, in the order of the row's bytes.
//! 2. **Sort.** What is interleaved in another way becomes a line of the first component and a line of pairs of the second
//!    and third, as `NV12` has them. A sample of 1/128 is exact to a hundredth of a step after everything that follows.
//! 3. **Across and colour.** Of both lines, neighbouring samples are multiplied by 14-bit weights and added in 32-bit
//!    integers; three numbers come of it, and of those, in floats, the model's three channels, normalised.
//! 4. **Store**, where the slot does not hold rows of floats.
//!
//! Blending down comes first because it needs no gathering: it is 16 samples at a time, and for what is gathered after it
//! there is one line instead of two rows. Nothing uses the processor's gather instructions: where they were measured (Xeon
//! of 2023) loads of neighbours together took the same time to 5 %, and on processors that need a mend against "Downfall"
//! gathers are several times slower.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
mod taps;

pub(super) use taps::{GROUP, Line, Taps};

/// Bits of a line's sample behind the point.
const SAMPLE_BITS: u32 = 7;

/// Bits of a weight across.
const WEIGHT_BITS: u32 = 14;

/// What a step of 0..=255 is worth in the sums of samples times weights.
pub(super) const STEP: f64 = (1_u64 << (SAMPLE_BITS + WEIGHT_BITS)) as f64;

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Set);

/// `Avx2` is made only where the processor has AVX2 and FMA, `Neon` only where it has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// How three components become the model's three channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix(pub(super) [Channel; 3]);

/// One channel: the sum of gains times components and of the offset, within the bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    /// Of each component.
    pub gains: [f32; 3],
    /// Added.
    pub offset: f32,
    /// The least that comes out.
    pub low: f32,
    /// The most.
    pub high: f32,
}

/// Rows of bytes one below the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// From the first byte of the first row; reaches to the last byte of the last row at least.
    pub bytes: &'a [u8],
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of a row.
    pub len: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn row(self, index: usize) -> &'a [u8] {
        &self.bytes[index * self.stride..][..self.len]
    }
}

/// Calls a step of the kernel that was chosen.
macro_rules! on {
    ($kernel:expr, $step:ident $(::<$number:ident>)? ($($argument:expr),*)) => {
        match $kernel.0 {
            Set::Plain => plain::$step $(::<$number>)? ($($argument),*),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: whoever has made a `Set::Avx2` has seen that the processor has the features of these functions.
            Set::Avx2 => unsafe { avx2::$step $(::<$number>)? ($($argument),*) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: whoever has made a `Set::Neon` has seen that the processor has the features of these functions.
            Set::Neon => unsafe { neon::$step $(::<$number>)? ($($argument),*) },
        }
    };
}

#[expect(
    unsafe_code,
    reason = "the step was compiled for the instruction set that this machine was seen to have"
)]
impl Kernel {
    /// Every kernel that this machine can run, the fastest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            kernels.push(Self(Set::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            kernels.push(Self(Set::Neon));
        }
        kernels.push(Self(Set::Plain));
        kernels
    }

    /// The fastest that this machine can run.
    #[must_use]
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "AVX2",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "NEON",
        }
    }

    /// The line between two rows, `weight / 32768` of the way from the near to the far one.
    pub(super) fn blend(self, near: &[u8], far: &[u8], weight: i16, line: &mut [i16]) {
        on!(self, blend(near, far, weight, line));
    }

    /// The weighted mean of as many rows as there are weights, whose sum is 1.
    pub(super) fn average(self, rows: Rows<'_>, weights: &[f32], line: &mut [i16]) {
        on!(self, average(rows, weights, line));
    }

    /// Two lines as one of pairs.
    pub(super) fn zip(self, first: &[i16], second: &[i16], pairs: &mut [i16]) {
        on!(self, zip(first, second, pairs));
    }

    /// Every other sample of a line, and the ones between.
    pub(super) fn unzip(self, line: &[i16], even: &mut [i16], odd: &mut [i16]) {
        on!(self, unzip(line, even, odd));
    }

    /// The first of each `N` samples, and the two that follow it as pairs.
    pub(super) fn split<const N: usize>(self, line: &[i16], first: &mut [i16], pairs: &mut [i16]) {
        on!(self, split::<N>(line, first, pairs));
    }

    /// A row of each channel, from the line of the first component and that of the pairs.
    pub(super) fn resample(self, first: Line<'_>, pairs: Line<'_>, mix: &Mix, rows: [&mut [f32]; 3]) {
        on!(self, resample(first, pairs, mix, rows));
    }

    /// Three rows of channels as one of pixels.
    pub(super) fn interleave(self, rows: [&[f32]; 3], pixels: &mut [f32]) {
        on!(self, interleave(rows, pixels));
    }

    /// The nearest integers of values that are in range.
    pub(super) fn round_u8(self, values: &[f32], elements: &mut [u8]) {
        on!(self, round_u8(values, elements));
    }

    /// The nearest integers of values that are in range.
    pub(super) fn round_i8(self, values: &[f32], elements: &mut [i8]) {
        on!(self, round_i8(values, elements));
    }
}
