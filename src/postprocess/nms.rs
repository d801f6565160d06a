//! Suppression of boxes that are one object. Pure.
//!
//! Greedy: the best candidate stays, those that overlap it by more than the threshold go, and so on. Equal scores are
//! ordered by their place in the model's output, so the same output always gives the same detections.

use std::cmp::Ordering;

use super::bbox::BBox;
use super::{Detection, Suppression};

/// The most candidates that are looked at: the best ones. That is ten times what a crowded picture has; it bounds the time
/// that the output of a broken model can cost, which grows with its square when nothing overlaps.
pub const CANDIDATES_MAX: usize = 10_000;

/// A detection that may be another's double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// What was found.
    pub detection: Detection,
    /// Its place in the model's output, which decides between equal scores.
    pub index: u32,
}

impl Candidate {
    /// Best first: the higher score, then the lower index. Total, also over NaN.
    #[must_use]
    pub fn rank(&self, other: &Self) -> Ordering {
        other.detection.score.total_cmp(&self.detection.score).then(self.index.cmp(&other.index))
    }
}

/// Suppresses; it keeps scratch memory between calls.
#[derive(Debug)]
pub struct Nms {
    iou: f32,
    suppression: Suppression,
    kept: Vec<Placed>,
}

impl Nms {
    /// Suppression of boxes that overlap by more than `iou`.
    #[must_use]
    pub fn new(iou: f32, suppression: Suppression) -> Self {
        Self { iou, suppression, kept: Vec::new() }
    }

    /// Makes room for suppressing among `candidates`, so that nothing is allocated later.
    pub fn reserve(&mut self, candidates: usize) {
        self.kept.reserve(candidates.min(CANDIDATES_MAX));
    }

    /// Leaves of `candidates` those that no better one suppresses, best first. Candidates with numbers that are not
    /// finite, or without area, are removed; beyond [`CANDIDATES_MAX`] only the best count.
    ///
    /// Takes time in the order of n log n + kept n, where with [`Suppression::PerClass`] each class counts by itself.
    pub fn suppress(&mut self, candidates: &mut Vec<Candidate>) {
        keep_best(candidates, CANDIDATES_MAX);
        match self.suppression {
            Suppression::Agnostic => candidates.sort_unstable_by(Candidate::rank),
            Suppression::PerClass => candidates.sort_unstable_by(|a, b| {
                a.detection.class_id.cmp(&b.detection.class_id).then_with(|| a.rank(b))
            }),
        }
        self.kept.clear();
        let (mut kept, mut class_id) = (0, None);
        for place in 0..candidates.len() {
            let candidate = candidates[place];
            let detection = candidate.detection;
            if self.suppression == Suppression::PerClass && class_id != Some(detection.class_id) {
                class_id = Some(detection.class_id);
                self.kept.clear();
            }
            let placed = Placed::new(detection.bbox);
            if !self.kept.iter().any(|better| better.overlaps(&placed, self.iou)) {
                self.kept.push(placed);
                candidates[kept] = candidate;
                kept += 1;
            }
        }
        candidates.truncate(kept);
        if self.suppression == Suppression::PerClass {
            candidates.sort_unstable_by(Candidate::rank);
        }
    }
}

/// Leaves the best `most` of the candidates that are numbers, in no order.
pub(super) fn keep_best(candidates: &mut Vec<Candidate>, most: usize) {
    candidates
        .retain(|candidate| candidate.detection.score.is_finite() && candidate.detection.bbox.is_proper());
    if candidates.len() > most {
        candidates.select_nth_unstable_by(most, Candidate::rank);
        candidates.truncate(most);
    }
}

/// A box with its edges at hand: most pairs are apart, which four comparisons tell.
#[derive(Clone, Copy, Debug)]
struct Placed {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    bbox: BBox,
}

impl Placed {
    fn new(bbox: BBox) -> Self {
        let (left, top) = (f64::from(bbox.x), f64::from(bbox.y));
        Self { left, top, right: bbox.right(), bottom: bbox.bottom(), bbox }
    }

    fn overlaps(&self, other: &Self, iou: f32) -> bool {
        let apart = self.left >= other.right
            || other.left >= self.right
            || self.top >= other.bottom
            || other.top >= self.bottom;
        !apart && self.bbox.iou(&other.bbox) > iou
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(index: u32, class_id: u32, score: f32, bbox: [f32; 4]) -> Candidate {
        let [x, y, w, h] = bbox;
        Candidate { detection: Detection { class_id, score, bbox: BBox { x, y, w, h } }, index }
    }

    fn kept(iou: f32, suppression: Suppression, mut candidates: Vec<Candidate>) -> Vec<u32> {
        Nms::new(iou, suppression).suppress(&mut candidates);
        candidates.iter().map(|candidate| candidate.index).collect()
    }

    #[test]
    fn the_better_of_two_doubles_stays_and_order_of_arrival_does_not_matter() {
        let good = candidate(0, 0, 0.9, [0.0, 0.0, 10.0, 10.0]);
        let double = candidate(1, 0, 0.8, [1.0, 0.0, 10.0, 10.0]);
        let other = candidate(2, 0, 0.95, [50.0, 0.0, 10.0, 10.0]);
        assert_eq!(kept(0.5, Suppression::PerClass, vec![good, double, other]), [2, 0]);
        assert_eq!(kept(0.5, Suppression::PerClass, vec![double, other, good]), [2, 0]);
    }

    #[test]
    fn what_was_suppressed_suppresses_nothing() {
        let chain = |index: u8| {
            let shift = f32::from(index) * 4.0;
            candidate(u32::from(index), 0, 0.9 - f32::from(index) / 10.0, [shift, 0.0, 10.0, 10.0])
        };
        assert_eq!(kept(0.3, Suppression::PerClass, (0..3).map(chain).collect()), [0, 2]);
    }

    #[test]
    fn classes_suppress_each_other_only_when_told_to() {
        let pair =
            vec![candidate(0, 3, 0.8, [0.0, 0.0, 10.0, 10.0]), candidate(1, 1, 0.9, [0.0, 0.0, 10.0, 10.0])];
        assert_eq!(kept(0.5, Suppression::PerClass, pair.clone()), [1, 0]);
        assert_eq!(kept(0.5, Suppression::Agnostic, pair), [1]);
    }

    #[test]
    fn overlap_of_exactly_the_threshold_stays() {
        let pair =
            vec![candidate(0, 0, 0.9, [0.0, 0.0, 10.0, 10.0]), candidate(1, 0, 0.8, [0.0, 0.0, 10.0, 4.5])];
        assert_eq!(kept(0.45, Suppression::PerClass, pair.clone()), [0, 1]);
        assert_eq!(kept(0.45_f32.next_down(), Suppression::PerClass, pair), [0]);
    }

    #[test]
    fn equal_scores_go_by_their_place_in_the_output() {
        let same = |index| candidate(index, 0, 0.5, [0.0, 0.0, 10.0, 10.0]);
        assert_eq!(kept(0.5, Suppression::PerClass, vec![same(7), same(2), same(5)]), [2]);
        let apart = |index: u8| {
            candidate(u32::from(index), u32::from(index % 3), 0.5, [f32::from(index) * 20.0, 0.0, 10.0, 10.0])
        };
        let backwards = (0..9).rev().map(apart).collect();
        assert_eq!(kept(0.5, Suppression::PerClass, backwards), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn numbers_that_are_none_are_removed_and_harm_nothing() {
        let good = [0.0, 0.0, 10.0, 10.0];
        let mut candidates = vec![candidate(0, 0, 0.5, good)];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            candidates.push(candidate(1, 0, bad, good));
            for place in 0..4 {
                let mut bbox = good;
                bbox[place] = bad;
                candidates.push(candidate(1, 0, 0.9, bbox));
            }
        }
        assert_eq!(kept(0.5, Suppression::PerClass, candidates.clone()), [0]);
        assert_eq!(kept(0.5, Suppression::Agnostic, candidates), [0]);
        assert_eq!(kept(f32::NAN, Suppression::Agnostic, vec![candidate(0, 0, 0.5, good)]), [0]);
        assert_eq!(kept(0.5, Suppression::PerClass, Vec::new()), [0_u32; 0]);
    }

    #[test]
    fn beyond_the_most_candidates_the_best_are_looked_at() {
        let most = u16::try_from(CANDIDATES_MAX).unwrap();
        let candidates = (0..most + 500).map(|index| {
            let (column, row) = (f32::from(index % 128), f32::from(index / 128));
            candidate(u32::from(index), 0, f32::from(index) / 16_384.0, [column * 2.0, row * 2.0, 1.0, 1.0])
        });
        let kept = kept(0.5, Suppression::PerClass, candidates.collect());
        let wanted: Vec<u32> = (500..u32::from(most) + 500).rev().collect();
        assert_eq!(kept, wanted);
    }

    fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let number = || (0..40_u8).prop_map(|steps| f32::from(steps) * 0.75);
        let one = (0..3_u32, 0..8_u8, number(), number(), number(), number());
        proptest::collection::vec(one, 0..60).prop_map(|all| {
            let numbered = (0..).zip(all);
            let candidate = |(index, (class_id, score, x, y, w, h))| {
                candidate(index, class_id, f32::from(score) / 8.0, [x, y, w, h])
            };
            numbered.map(candidate).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The definition: in order of rank, a candidate stays if and only if no better one that stayed overlaps it.
        #[test]
        fn what_stays_is_what_the_definition_says(
            candidates in any_candidates(),
            iou in 0.0..1.0_f32,
            per_class in any::<bool>(),
        ) {
            let suppression = if per_class { Suppression::PerClass } else { Suppression::Agnostic };
            let mut ranked = candidates.clone();
            ranked.retain(|candidate| candidate.detection.bbox.is_proper());
            ranked.sort_by(Candidate::rank);
            let mut wanted: Vec<Candidate> = Vec::new();
            for candidate in ranked {
                let doubled = wanted.iter().any(|better| {
                    let one_kind = !per_class || better.detection.class_id == candidate.detection.class_id;
                    one_kind && better.detection.bbox.iou(&candidate.detection.bbox) > iou
                });
                if !doubled {
                    wanted.push(candidate);
                }
            }
            let mut got = candidates;
            Nms::new(iou, suppression).suppress(&mut got);
            prop_assert_eq!(got, wanted);
        }
    }
}
