//! The steps for x86-64 processors with AVX2 and FMA: all since 2013, but for the smallest.

#![expect(
    unsafe_code,
    reason = "vector loads and stores, and loads of neighbouring samples without a check for each"
)]

use std::arch::x86_64::{
    __m256, __m256i, _mm_loadu_si128, _mm256_add_epi16, _mm256_add_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi16, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_max_ps,
    _mm256_min_ps, _mm256_mulhrs_epi16, _mm256_set1_epi16, _mm256_set1_ps, _mm256_setr_epi8,
    _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_shuffle_ps,
    _mm256_slli_epi16, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi16, _mm256_unpackhi_epi32,
    _mm256_unpacklo_epi32,
};

use super::{GROUP, Line, Mix, Rows, SAMPLE_BITS, plain};

#[target_feature(enable = "avx2,fma")]
pub(super) fn blend(near: &[u8], far: &[u8], weight: i16, line: &mut [i16]) {
    let (near_blocks, near_rest) = near.as_chunks::<16>();
    let (far_blocks, far_rest) = far.as_chunks::<16>();
    let (line_blocks, line_rest) = line[..near.len()].as_chunks_mut::<16>();
    if weight == 0 {
        for (near, into) in near_blocks.iter().zip(line_blocks) {
            store(into, samples(near));
        }
    } else {
        let weight = _mm256_set1_epi16(weight);
        for ((near, far), into) in near_blocks.iter().zip(far_blocks).zip(line_blocks) {
            let (near, far) = (samples(near), samples(far));
            let way = _mm256_mulhrs_epi16(_mm256_sub_epi16(far, near), weight);
            store(into, _mm256_add_epi16(near, way));
        }
    }
    plain::blend(near_rest, far_rest, weight, line_rest);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn resample(first: Line<'_>, pairs: Line<'_>, mix: &Mix, rows: [&mut [f32]; 3]) {
    if first.taps().twos() == 1 && pairs.taps().twos() == 1 {
        resample_by::<1>(first, pairs, mix, rows);
    } else {
        resample_by::<0>(first, pairs, mix, rows);
    }
}

#[target_feature(enable = "avx2,fma")]
fn resample_by<const TWOS: usize>(first: Line<'_>, pairs: Line<'_>, mix: &Mix, rows: [&mut [f32]; 3]) {
    let mix = Vectors::of(mix);
    let len = first.len();
    let [a, b, c] = rows.map(|row| row[..len].as_chunks_mut::<GROUP>());
    let mut group = 0;
    for ((a, b), c) in a.0.iter_mut().zip(b.0).zip(c.0) {
        let channels = mix.channels(single::<TWOS>(&first, group), double::<TWOS>(&pairs, group));
        for (into, channel) in [a, b, c].into_iter().zip(channels) {
            store_floats(into, channel);
        }
        group += 1;
    }
    if !a.1.is_empty() {
        let channels = mix.channels(single::<TWOS>(&first, group), double::<TWOS>(&pairs, group));
        for (into, channel) in [a.1, b.1, c.1].into_iter().zip(channels) {
            let mut values = [0.0; GROUP];
            store_floats(&mut values, channel);
            into.copy_from_slice(&values[..into.len()]);
        }
    }
}

/// [`Mix`], each number in all lanes.
struct Vectors([[__m256; 6]; 3]);

impl Vectors {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn of(mix: &Mix) -> Self {
        Self(mix.0.map(|channel| {
            let [first, second, third] = channel.gains;
            [first, second, third, channel.offset, channel.low, channel.high]
                .map(|number| _mm256_set1_ps(number))
        }))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn channels(&self, one: __m256, [two, three]: [__m256; 2]) -> [__m256; 3] {
        self.0.map(|[first, second, third, offset, low, high]| {
            let value = _mm256_fmadd_ps(three, third, offset);
            let value = _mm256_fmadd_ps(two, second, value);
            let value = _mm256_fmadd_ps(one, first, value);
            _mm256_min_ps(_mm256_max_ps(value, low), high)
        })
    }
}

/// The weighted sums of a group of elements in a line of single samples.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn single<const TWOS: usize>(line: &Line<'_>, group: usize) -> __m256 {
    let starts = line.taps().starts(group);
    let mut sums = _mm256_setzero_si256();
    for (two, weights) in line.taps().weights::<TWOS>(group).iter().enumerate() {
        let from = line.samples().as_ptr().wrapping_add(2 * two);
        let at = |lane: usize| {
            let place = from.wrapping_add(starts[lane] as usize).cast::<i32>();
            // SAFETY: a `Line` is as long as its taps reach, and those count two samples for each two after a start.
            unsafe { place.read_unaligned() }
        };
        let samples = _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(samples, load_weights(weights)));
    }
    _mm256_cvtepi32_ps(sums)
}

/// The weighted sums of a group of elements in a line of pairs: all of the first of the pairs, and all of the second.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn double<const TWOS: usize>(line: &Line<'_>, group: usize) -> [__m256; 2] {
    // Within each 8 bytes from a b a' b' to a a' b b'.
    let sort = _mm256_setr_epi8(
        0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11,
        14, 15,
    );
    let starts = line.taps().starts(group);
    let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for (two, weights) in line.taps().weights::<TWOS>(group).iter().enumerate() {
        let from = line.samples().as_ptr().wrapping_add(4 * two);
        let at = |lane: usize| {
            let place = from.wrapping_add(2 * starts[lane] as usize).cast::<i64>();
            // SAFETY: a `Line` is as long as its taps reach, and those count two pairs for each two after a start.
            unsafe { place.read_unaligned() }
        };
        let weights = load_weights(weights);
        // Unpacking takes its lanes from both halves of a register, so the elements are loaded in that order.
        let samples = _mm256_shuffle_epi8(_mm256_setr_epi64x(at(0), at(1), at(4), at(5)), sort);
        low = _mm256_add_epi32(low, _mm256_madd_epi16(samples, _mm256_unpacklo_epi32(weights, weights)));
        let samples = _mm256_shuffle_epi8(_mm256_setr_epi64x(at(2), at(3), at(6), at(7)), sort);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(samples, _mm256_unpackhi_epi32(weights, weights)));
    }
    let (low, high) = (_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high));
    [_mm256_shuffle_ps::<0b10_00_10_00>(low, high), _mm256_shuffle_ps::<0b11_01_11_01>(low, high)]
}

/// Bytes as samples.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn samples(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: 16 bytes are read, and there are 16; they need not be aligned.
    let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm256_slli_epi16::<{ SAMPLE_BITS.cast_signed() }>(_mm256_cvtepu8_epi16(bytes))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_weights(weights: &[[i16; 2]; GROUP]) -> __m256i {
    // SAFETY: 32 bytes are read, and there are 8 times 4; they need not be aligned.
    unsafe { _mm256_loadu_si256(weights.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store(into: &mut [i16; 16], samples: __m256i) {
    // SAFETY: 32 bytes are written, and there is room for 16 times 2; they need not be aligned.
    unsafe { _mm256_storeu_si256(into.as_mut_ptr().cast(), samples) };
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store_floats(into: &mut [f32; GROUP], values: __m256) {
    // SAFETY: 8 floats are written, and there is room for 8; they need not be aligned.
    unsafe { _mm256_storeu_ps(into.as_mut_ptr(), values) };
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn average(rows: Rows<'_>, weights: &[f32], line: &mut [i16]) {
    plain::average(rows, weights, line);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn zip(first: &[i16], second: &[i16], pairs: &mut [i16]) {
    plain::zip(first, second, pairs);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn unzip(line: &[i16], even: &mut [i16], odd: &mut [i16]) {
    plain::unzip(line, even, odd);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn split<const N: usize>(line: &[i16], first: &mut [i16], pairs: &mut [i16]) {
    plain::split::<N>(line, first, pairs);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn interleave(rows: [&[f32]; 3], pixels: &mut [f32]) {
    plain::interleave(rows, pixels);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn round_u8(values: &[f32], elements: &mut [u8]) {
    plain::round_u8(values, elements);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn round_i8(values: &[f32], elements: &mut [i8]) {
    plain::round_i8(values, elements);
}
