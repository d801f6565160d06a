//! The steps in plain Rust, for any processor. The compiler turns most of them into vector instructions by itself, and the
//! other kernels compile those anew for their instruction set.

use super::{GROUP, Line, Mix, Rows, SAMPLE_BITS};

/// Added to 1.5 times 2^23, whose neighbours are 1 apart, a small float rounds to an integer in its lowest bits. Unlike
/// `as`, that compiles to two vector instructions on every processor.
const ROUND: f32 = 12_582_912.0;

/// Columns of rows that are averaged together: as many sums as fit into registers.
const COLUMNS: usize = 32;

#[inline(always)]
pub(super) fn blend(near: &[u8], far: &[u8], weight: i16, line: &mut [i16]) {
    for ((sample, &near), &far) in line.iter_mut().zip(near).zip(far) {
        let (near, far) = (i16::from(near) << SAMPLE_BITS, i16::from(far) << SAMPLE_BITS);
        let way = (i32::from(far - near) * i32::from(weight) + (1 << 14)) >> 15;
        #[expect(clippy::cast_possible_truncation, reason = "not more than the difference of two samples")]
        let way = way as i16;
        *sample = near + way;
    }
}

#[inline(always)]
pub(super) fn average(rows: Rows<'_>, weights: &[f32], line: &mut [i16]) {
    let sample = |sum: f32| {
        let [low, high, ..] = (sum * f32::from(1_u8 << SAMPLE_BITS) + ROUND).to_bits().to_le_bytes();
        i16::from_le_bytes([low, high])
    };
    let (blocks, rest) = line[..rows.len].as_chunks_mut::<COLUMNS>();
    let whole = blocks.len() * COLUMNS;
    for (index, block) in blocks.iter_mut().enumerate() {
        let mut sums = [0.0; COLUMNS];
        for (row, &weight) in weights.iter().enumerate() {
            let bytes = &rows.row(row).as_chunks::<COLUMNS>().0[index];
            for (sum, &byte) in sums.iter_mut().zip(bytes) {
                *sum += f32::from(byte) * weight;
            }
        }
        *block = sums.map(sample);
    }
    for (column, into) in rest.iter_mut().enumerate() {
        let bytes = (0..weights.len()).map(|row| rows.row(row)[whole + column]);
        *into = sample(bytes.zip(weights).map(|(byte, weight)| f32::from(byte) * weight).sum());
    }
}

#[inline(always)]
pub(super) fn zip(first: &[i16], second: &[i16], pairs: &mut [i16]) {
    for ((pair, &first), &second) in pairs.as_chunks_mut::<2>().0.iter_mut().zip(first).zip(second) {
        *pair = [first, second];
    }
}

#[inline(always)]
pub(super) fn unzip(line: &[i16], even: &mut [i16], odd: &mut [i16]) {
    for ((&[first, second], even), odd) in line.as_chunks::<2>().0.iter().zip(even).zip(odd) {
        *even = first;
        *odd = second;
    }
}

#[inline(always)]
pub(super) fn split<const N: usize>(line: &[i16], first: &mut [i16], pairs: &mut [i16]) {
    let pairs = pairs.as_chunks_mut::<2>().0;
    for ((samples, first), pair) in line.as_chunks::<N>().0.iter().zip(first).zip(pairs) {
        *first = samples[0];
        *pair = [samples[1], samples[2]];
    }
}

pub(super) fn resample(first: Line<'_>, pairs: Line<'_>, mix: &Mix, rows: [&mut [f32]; 3]) {
    let len = first.len();
    let [a, b, c] = rows.map(|row| row[..len].as_chunks_mut::<GROUP>());
    let mut group = 0;
    for ((a, b), c) in a.0.iter_mut().zip(b.0).zip(c.0) {
        channels(&first, &pairs, group, mix, [a, b, c]);
        group += 1;
    }
    if !a.1.is_empty() {
        let [mut one, mut two, mut three] = [[0.0; GROUP]; 3];
        channels(&first, &pairs, group, mix, [&mut one, &mut two, &mut three]);
        for (into, values) in [a.1, b.1, c.1].into_iter().zip([one, two, three]) {
            into.copy_from_slice(&values[..into.len()]);
        }
    }
}

/// A group of elements of each channel.
#[inline(always)]
fn channels(first: &Line<'_>, pairs: &Line<'_>, group: usize, mix: &Mix, into: [&mut [f32; GROUP]; 3]) {
    let [one] = sums(first, group);
    let [two, three] = sums(pairs, group);
    for (into, channel) in into.into_iter().zip(&mix.0) {
        let [first, second, third] = channel.gains;
        for (lane, into) in into.iter_mut().enumerate() {
            let value = one[lane] * first + two[lane] * second + three[lane] * third + channel.offset;
            // Not `max` and `min`, which would look for a NaN.
            let value = if value > channel.low { value } else { channel.low };
            *into = if value < channel.high { value } else { channel.high };
        }
    }
}

/// The weighted sums of a group of elements, for each of the `N` samples that lie together in a line.
#[inline(always)]
fn sums<const N: usize>(line: &Line<'_>, group: usize) -> [[f32; GROUP]; N] {
    let (samples, _) = line.samples().as_chunks::<N>();
    let starts = line.taps().starts(group);
    let mut sums = [[0_i32; GROUP]; N];
    for (two, weights) in line.taps().weights::<0>(group).iter().enumerate() {
        // First all that must be loaded one by one, so that what follows is done together.
        let mut twos = [[[0; 2]; GROUP]; N];
        for (lane, start) in starts.iter().enumerate() {
            let neighbours = &samples[*start as usize + 2 * two..][..2];
            for (component, twos) in twos.iter_mut().enumerate() {
                twos[lane] = [neighbours[0][component], neighbours[1][component]];
            }
        }
        for (sums, twos) in sums.iter_mut().zip(&twos) {
            for ((sum, samples), weights) in sums.iter_mut().zip(twos).zip(weights) {
                *sum += i32::from(samples[0]) * i32::from(weights[0])
                    + i32::from(samples[1]) * i32::from(weights[1]);
            }
        }
    }
    let mut floats = [[0.0; GROUP]; N];
    for (floats, sums) in floats.iter_mut().zip(&sums) {
        for (float, sum) in floats.iter_mut().zip(sums) {
            // The digits that are lost are far below a step.
            *float = *sum as f32;
        }
    }
    floats
}

#[inline(always)]
pub(super) fn interleave(rows: [&[f32]; 3], pixels: &mut [f32]) {
    let [a, b, c] = rows;
    for (((pixel, &a), &b), &c) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(a).zip(b).zip(c) {
        *pixel = [a, b, c];
    }
}

#[inline(always)]
pub(super) fn round_u8(values: &[f32], elements: &mut [u8]) {
    for (element, &value) in elements.iter_mut().zip(values) {
        *element = (value + ROUND).to_bits().to_le_bytes()[0];
    }
}

#[inline(always)]
pub(super) fn round_i8(values: &[f32], elements: &mut [i8]) {
    for (element, &value) in elements.iter_mut().zip(values) {
        *element = (value + ROUND).to_bits().to_le_bytes()[0].cast_signed();
    }
}
