//! Which samples of a line make each element of a row, and how much of each.

use std::slice;

use super::WEIGHT_BITS;

/// Elements that a kernel makes together.
pub(in super::super) const GROUP: usize = 8;

/// For each element of a row the same number of neighbouring samples and their weights, which add up to 1.
///
/// Elements are in groups of [`GROUP`], the last of which is filled up. Samples come in twos, since that is how they are
/// multiplied; a sample that is one too many has the weight 0.
#[derive(Debug, Default)]
pub(in super::super) struct Taps {
    /// Elements.
    len: usize,
    /// Twos of samples for each element.
    twos: usize,
    /// The first sample of each element.
    starts: Vec<[u32; GROUP]>,
    /// For each group, and in it for each two, the weights of each element.
    weights: Vec<[[i16; 2]; GROUP]>,
    /// Samples that a line must have.
    reach: usize,
}

impl Taps {
    /// Makes the taps anew, in the memory of the old ones. `spans` has for each of `len` elements the first sample and the
    /// weights of that and the next ones, at most `most` of them; they add up to 1.
    pub(in super::super) fn make(
        &mut self,
        len: usize,
        most: usize,
        spans: impl Iterator<Item = (u32, Vec<f64>)>,
    ) {
        self.len = len;
        self.twos = most.div_ceil(2).max(1);
        // What fills the last group up reads from the first sample.
        self.reach = 2 * self.twos;
        self.starts.clear();
        self.starts.resize(len.div_ceil(GROUP), [0; GROUP]);
        self.weights.clear();
        self.weights.resize(self.starts.len() * self.twos, [[0; 2]; GROUP]);
        for (element, (start, weights)) in spans.take(len).enumerate() {
            let (group, lane) = (element / GROUP, element % GROUP);
            self.starts[group][lane] = start;
            self.reach = self.reach.max(start as usize + 2 * self.twos);
            for (index, weight) in whole_weights(&weights).enumerate() {
                self.weights[group * self.twos + index / 2][lane][index % 2] = weight;
            }
        }
    }

    /// Samples that a line must have.
    pub(in super::super) fn reach(&self) -> usize {
        self.reach
    }

    /// The first sample of each element of a group. That and the `2 * twos - 1` after it are below `reach`.
    pub(super) fn starts(&self, group: usize) -> &[u32; GROUP] {
        &self.starts[group]
    }

    /// The weights of a group: for each two of samples those of each element. `TWOS` is [`Taps::twos`] where that is 1,
    /// which it mostly is, so that there is no loop then, and else 0.
    pub(super) fn weights<const TWOS: usize>(&self, group: usize) -> &[[[i16; 2]; GROUP]] {
        if TWOS == 1 {
            slice::from_ref(&self.weights[group])
        } else {
            &self.weights[group * self.twos..][..self.twos]
        }
    }

    /// Twos of samples for each element.
    pub(super) fn twos(&self) -> usize {
        self.twos
    }
}

/// A line and the taps that read it. A line of pairs has two samples where the taps count one.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Line<'a> {
    samples: &'a [i16],
    taps: &'a Taps,
}

impl<'a> Line<'a> {
    /// A line of single samples.
    ///
    /// # Panics
    /// When the line is shorter than the taps reach.
    pub(in super::super) fn single(samples: &'a [i16], taps: &'a Taps) -> Self {
        assert!(
            samples.len() >= taps.reach,
            "a line of {} for taps that reach {}",
            samples.len(),
            taps.reach
        );
        Self { samples, taps }
    }

    /// A line of pairs.
    ///
    /// # Panics
    /// When the line is shorter than the taps reach.
    pub(in super::super) fn pairs(samples: &'a [i16], taps: &'a Taps) -> Self {
        assert!(
            samples.len() / 2 >= taps.reach,
            "{} pairs for taps that reach {}",
            samples.len(),
            taps.reach
        );
        Self { samples, taps }
    }

    pub(super) fn samples(&self) -> &'a [i16] {
        self.samples
    }

    pub(super) fn taps(&self) -> &'a Taps {
        self.taps
    }

    /// Elements that the taps make.
    pub(super) fn len(&self) -> usize {
        self.taps.len
    }
}

/// Weights as integers that add up to 1 exactly: each is the difference of two rounded sums.
fn whole_weights(weights: &[f64]) -> impl Iterator<Item = i16> + '_ {
    let (mut sum, mut before) = (0.0, 0);
    weights.iter().map(move |weight| {
        sum += weight;
        #[expect(clippy::cast_possible_truncation, reason = "a sum is from 0 to 1")]
        let after = (sum * f64::from(1 << WEIGHT_BITS)).round() as i16;
        let whole = after - before;
        before = after;
        whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_to_one_exactly_however_many_there_are() {
        for count in 1..200_u32 {
            let weights = vec![1.0 / f64::from(count); count as usize];
            let whole: Vec<i32> = whole_weights(&weights).map(i32::from).collect();
            assert_eq!(whole.iter().sum::<i32>(), 1 << WEIGHT_BITS, "{count}");
            let (least, most) = (whole.iter().min().unwrap(), whole.iter().max().unwrap());
            assert!(most - least <= 1, "{whole:?}");
        }
    }

    #[test]
    fn a_line_must_reach_as_far_as_its_taps() {
        let mut taps = Taps::default();
        taps.make(3, 3, [0, 5, 2].into_iter().map(|start| (start, vec![0.25, 0.5, 0.25])));
        assert_eq!(taps.reach(), 9, "three samples from 5 are read as two twos");
        assert_eq!(taps.weights::<0>(0)[1][1], [4096, 0]);
        assert_eq!(Line::single(&[0; 9], &taps).len(), 3);
        assert_eq!(Line::pairs(&[0; 18], &taps).len(), 3);
        assert!(std::panic::catch_unwind(|| Line::single(&[0; 8], &taps)).is_err());
        assert!(std::panic::catch_unwind(|| Line::pairs(&[0; 17], &taps)).is_err());
    }
}
