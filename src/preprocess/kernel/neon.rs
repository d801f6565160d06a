//! The steps for 64-bit ARM processors: all have NEON.

#![expect(
    unsafe_code,
    reason = "vector loads and stores, and loads of neighbouring samples without a check for each"
)]

use std::arch::aarch64::{
    float32x4_t, int16x8_t, int32x4_t, vaddq_s16, vaddq_s32, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s16,
    vdupq_n_s32, vfmaq_f32, vget_low_s16, vget_low_u8, vld1q_s16, vld1q_s32, vld1q_s64, vld1q_u8, vmaxq_f32,
    vminq_f32, vmovl_high_u8, vmovl_u8, vmull_high_s16, vmull_s16, vpaddq_s32, vqrdmulhq_s16, vqtbl1q_s8,
    vreinterpretq_s8_s16, vreinterpretq_s16_s8, vreinterpretq_s16_s32, vreinterpretq_s16_s64,
    vreinterpretq_s16_u16, vreinterpretq_s32_s16, vshlq_n_u16, vst1q_f32, vst1q_s16, vsubq_s16, vuzp1q_f32,
    vuzp2q_f32, vzip1q_s32, vzip2q_s32,
};

use super::{GROUP, Line, Mix, Rows, SAMPLE_BITS, plain};

/// Lanes of a register of floats; a group is two of them.
const LANES: usize = 4;

#[target_feature(enable = "neon")]
pub(super) fn blend(near: &[u8], far: &[u8], weight: i16, line: &mut [i16]) {
    let (near_blocks, near_rest) = near.as_chunks::<16>();
    let (far_blocks, far_rest) = far.as_chunks::<16>();
    let (line_blocks, line_rest) = line[..near.len()].as_chunks_mut::<16>();
    if weight == 0 {
        for (near, into) in near_blocks.iter().zip(line_blocks) {
            store(into, samples(near));
        }
    } else {
        let factor = vdupq_n_s16(weight);
        for ((near, far), into) in near_blocks.iter().zip(far_blocks).zip(line_blocks) {
            let (near, far) = (samples(near), samples(far));
            let blended = |half: usize| {
                let way = vqrdmulhq_s16(vsubq_s16(far[half], near[half]), factor);
                vaddq_s16(near[half], way)
            };
            store(into, [blended(0), blended(1)]);
        }
    }
    plain::blend(near_rest, far_rest, weight, line_rest);
}

#[target_feature(enable = "neon")]
pub(super) fn resample(first: Line<'_>, pairs: Line<'_>, mix: &Mix, rows: [&mut [f32]; 3]) {
    if first.taps().twos() == 1 && pairs.taps().twos() == 1 {
        resample_by::<1>(first, pairs, mix, rows);
    } else {
        resample_by::<0>(first, pairs, mix, rows);
    }
}

#[target_feature(enable = "neon")]
fn resample_by<const TWOS: usize>(first: Line<'_>, pairs: Line<'_>, mix: &Mix, rows: [&mut [f32]; 3]) {
    let mix = Vectors::of(mix);
    let len = first.len();
    let [a, b, c] = rows.map(|row| row[..len].as_chunks_mut::<GROUP>());
    let mut group = 0;
    for ((a, b), c) in a.0.iter_mut().zip(b.0).zip(c.0) {
        for half in 0..2 {
            let channels =
                mix.channels(single::<TWOS>(&first, group, half), double::<TWOS>(&pairs, group, half));
            for (into, channel) in [&mut *a, &mut *b, &mut *c].into_iter().zip(channels) {
                store_floats(&mut into.as_chunks_mut::<LANES>().0[half], channel);
            }
        }
        group += 1;
    }
    if !a.1.is_empty() {
        let mut values = [[0.0; GROUP]; 3];
        for half in 0..2 {
            let channels =
                mix.channels(single::<TWOS>(&first, group, half), double::<TWOS>(&pairs, group, half));
            for (values, channel) in values.iter_mut().zip(channels) {
                store_floats(&mut values.as_chunks_mut::<LANES>().0[half], channel);
            }
        }
        for (into, values) in [a.1, b.1, c.1].into_iter().zip(values) {
            into.copy_from_slice(&values[..into.len()]);
        }
    }
}

/// [`Mix`], each number in all lanes.
struct Vectors([[float32x4_t; 6]; 3]);

impl Vectors {
    #[inline]
    #[target_feature(enable = "neon")]
    fn of(mix: &Mix) -> Self {
        Self(mix.0.map(|channel| {
            let [first, second, third] = channel.gains;
            [first, second, third, channel.offset, channel.low, channel.high]
                .map(|number| vdupq_n_f32(number))
        }))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn channels(&self, one: float32x4_t, [two, three]: [float32x4_t; 2]) -> [float32x4_t; 3] {
        self.0.map(|[first, second, third, offset, low, high]| {
            let value = vfmaq_f32(offset, three, third);
            let value = vfmaq_f32(value, two, second);
            let value = vfmaq_f32(value, one, first);
            vminq_f32(vmaxq_f32(value, low), high)
        })
    }
}

/// The weighted sums of half a group of elements in a line of single samples.
#[inline]
#[target_feature(enable = "neon")]
fn single<const TWOS: usize>(line: &Line<'_>, group: usize, half: usize) -> float32x4_t {
    let starts = &line.taps().starts(group).as_chunks::<LANES>().0[half];
    let mut sums = vdupq_n_s32(0);
    for (two, weights) in line.taps().weights::<TWOS>(group).iter().enumerate() {
        let from = line.samples().as_ptr().wrapping_add(2 * two);
        let samples = starts.map(|start| {
            let place = from.wrapping_add(start as usize).cast::<i32>();
            // SAFETY: a `Line` is as long as its taps reach, and those count two samples for each two after a start.
            unsafe { place.read_unaligned() }
        });
        // SAFETY: four numbers are read, and there are four.
        let samples = vreinterpretq_s16_s32(unsafe { vld1q_s32(samples.as_ptr()) });
        sums = vaddq_s32(sums, multiplied(samples, load_weights(&weights.as_chunks::<LANES>().0[half])));
    }
    vcvtq_f32_s32(sums)
}

/// The weighted sums of half a group of elements in a line of pairs: all of the first of the pairs, and all of the second.
#[inline]
#[target_feature(enable = "neon")]
fn double<const TWOS: usize>(line: &Line<'_>, group: usize, half: usize) -> [float32x4_t; 2] {
    let starts = &line.taps().starts(group).as_chunks::<LANES>().0[half];
    let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
    for (two, weights) in line.taps().weights::<TWOS>(group).iter().enumerate() {
        let from = line.samples().as_ptr().wrapping_add(4 * two);
        let [a, b, c, d] = starts.map(|start| {
            let place = from.wrapping_add(2 * start as usize).cast::<i64>();
            // SAFETY: a `Line` is as long as its taps reach, and those count two pairs for each two after a start.
            unsafe { place.read_unaligned() }
        });
        let weights = vreinterpretq_s32_s16(load_weights(&weights.as_chunks::<LANES>().0[half]));
        low = vaddq_s32(low, multiplied(sorted([a, b]), vreinterpretq_s16_s32(vzip1q_s32(weights, weights))));
        high =
            vaddq_s32(high, multiplied(sorted([c, d]), vreinterpretq_s16_s32(vzip2q_s32(weights, weights))));
    }
    let (low, high) = (vcvtq_f32_s32(low), vcvtq_f32_s32(high));
    [vuzp1q_f32(low, high), vuzp2q_f32(low, high)]
}

/// Products of 16-bit numbers, the two of each 32 bits added.
#[inline]
#[target_feature(enable = "neon")]
fn multiplied(samples: int16x8_t, weights: int16x8_t) -> int32x4_t {
    vpaddq_s32(vmull_s16(vget_low_s16(samples), vget_low_s16(weights)), vmull_high_s16(samples, weights))
}

/// Within each number from a b a' b' to a a' b b'.
#[inline]
#[target_feature(enable = "neon")]
fn sorted(twos: [i64; 2]) -> int16x8_t {
    const ORDER: [i8; 16] = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15];
    // SAFETY: two numbers are read, and there are two.
    let twos = unsafe { vld1q_s64(twos.as_ptr()) };
    // SAFETY: 16 bytes are read, and there are 16.
    let order = unsafe { vld1q_u8(ORDER.as_ptr().cast()) };
    vreinterpretq_s16_s8(vqtbl1q_s8(vreinterpretq_s8_s16(vreinterpretq_s16_s64(twos)), order))
}

/// Bytes as samples.
#[inline]
#[target_feature(enable = "neon")]
fn samples(bytes: &[u8; 16]) -> [int16x8_t; 2] {
    // SAFETY: 16 bytes are read, and there are 16.
    let bytes = unsafe { vld1q_u8(bytes.as_ptr()) };
    [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)]
        .map(|half| vreinterpretq_s16_u16(vshlq_n_u16::<{ SAMPLE_BITS.cast_signed() }>(half)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_weights(weights: &[[i16; 2]; LANES]) -> int16x8_t {
    // SAFETY: eight numbers are read, and there are four times two.
    unsafe { vld1q_s16(weights.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(into: &mut [i16; 16], [low, high]: [int16x8_t; 2]) {
    let (first, second) = into.split_at_mut(8);
    // SAFETY: eight numbers are written, and the half has room for eight.
    unsafe { vst1q_s16(first.as_mut_ptr(), low) };
    // SAFETY: as above.
    unsafe { vst1q_s16(second.as_mut_ptr(), high) };
}

#[inline]
#[target_feature(enable = "neon")]
fn store_floats(into: &mut [f32; LANES], values: float32x4_t) {
    // SAFETY: four floats are written, and there is room for four.
    unsafe { vst1q_f32(into.as_mut_ptr(), values) };
}

#[target_feature(enable = "neon")]
pub(super) fn average(rows: Rows<'_>, weights: &[f32], line: &mut [i16]) {
    plain::average(rows, weights, line);
}

#[target_feature(enable = "neon")]
pub(super) fn zip(first: &[i16], second: &[i16], pairs: &mut [i16]) {
    plain::zip(first, second, pairs);
}

#[target_feature(enable = "neon")]
pub(super) fn unzip(line: &[i16], even: &mut [i16], odd: &mut [i16]) {
    plain::unzip(line, even, odd);
}

#[target_feature(enable = "neon")]
pub(super) fn split<const N: usize>(line: &[i16], first: &mut [i16], pairs: &mut [i16]) {
    plain::split::<N>(line, first, pairs);
}

#[target_feature(enable = "neon")]
pub(super) fn interleave(rows: [&[f32]; 3], pixels: &mut [f32]) {
    plain::interleave(rows, pixels);
}

#[target_feature(enable = "neon")]
pub(super) fn round_u8(values: &[f32], elements: &mut [u8]) {
    plain::round_u8(values, elements);
}

#[target_feature(enable = "neon")]
pub(super) fn round_i8(values: &[f32], elements: &mut [i8]) {
    plain::round_i8(values, elements);
}
