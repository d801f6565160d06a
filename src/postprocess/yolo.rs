//! The YOLO family as one parametrised decoder.
//!
//! An output is a table of anchors and channels: four numbers for the box, in some families one for objectness, then one
//! score a class; or, end to end, of boxes that are already chosen. Families differ in what the channels mean, exports in
//! which of the two runs fastest in memory. Which one it is, is read from the shape: the dimension that is the box plus
//! the classes is the channels. Where both dimensions are (or could be), it is the one that the family usually has.
//!
//! Each anchor has one class: the one with the highest score, of equal ones the first. A number that is not finite is not
//! a score and not a box. Scores are taken as they come; a model whose graph ends before the sigmoid is not recognised.

use super::bbox::BBox;
use super::nms::{CANDIDATES_MAX, Candidate, Nms, keep_best};
use super::{DecodeError, Decoder, Detection, Family, OutputSpec};
use crate::backend::tensor::{Dim, ElementType, Shape, TensorView};
use crate::preprocess::letterbox::Letterbox;

/// Numbers of a box: centre and size, or two corners.
const BOX: usize = 4;

/// Channels of the end-to-end layout: two corners, score, class.
const END_TO_END: usize = 6;

/// The most boxes that an end-to-end output is taken to have, when the layout has to be guessed. Exports have 100 to 300;
/// a head without suppression has more anchors than this from inputs of 224 pixels on.
const END_TO_END_MAX: usize = 1000;

/// Anchors of which the classes are looked up together: the floats of one cache line.
const BLOCK: usize = 16;

/// The most anchors for which memory is made beforehand, so that a manifest with an absurd shape costs nothing.
const RESERVED_MAX: usize = 1 << 17;

pub(super) fn decoder(spec: &OutputSpec) -> Result<Box<dyn Decoder>, DecodeError> {
    let channels = channels(spec.family, spec.classes);
    let order = Order::of(spec.family, channels, &spec.tensor.shape.0);
    let Some(order) = order.filter(|_| spec.classes > 0 && spec.tensor.element_type == ElementType::F32)
    else {
        return Err(misfit(spec.family, spec.classes, spec.tensor.to_string(), &spec.tensor.shape));
    };
    let anchors = match (order, &spec.tensor.shape.0[..]) {
        (Order::AnchorsLast, [_, _, Dim::Fixed(anchors)])
        | (Order::ChannelsLast, [_, Dim::Fixed(anchors), _]) => *anchors,
        _ => 0,
    };
    let anchors = anchors.min(RESERVED_MAX);
    let mut nms = Nms::new(spec.iou, spec.suppression);
    if spec.family != Family::YoloEndToEnd {
        nms.reserve(anchors);
    }
    Ok(Box::new(Yolo {
        family: spec.family,
        classes: spec.classes,
        channels,
        order,
        order_from: OrderFrom::of(channels, &spec.tensor.shape.0),
        name: spec.tensor.name.clone(),
        nms,
        best: Vec::with_capacity(anchors),
        candidates: Vec::with_capacity(anchors),
    }))
}

pub(super) fn guess(shape: &Shape, classes: Option<usize>) -> Option<(Family, Option<usize>)> {
    let [_, first, second] = shape.0[..] else { return None };
    let (last, middle) = ((second, first, Order::ChannelsLast), (first, second, Order::AnchorsLast));
    // There are more anchors than channels, and the number of anchors is what a graph leaves open.
    let likely = match (first, second) {
        (Dim::Fixed(a), Dim::Fixed(b)) if a < b => [middle, last],
        (Dim::Fixed(_), Dim::Dynamic) => [middle, last],
        _ => [last, middle],
    };
    // Only a known number of classes can prove that it is the other way round.
    let tried = &likely[..if classes.is_some() { 2 } else { 1 }];
    tried.iter().find_map(|&(channels, anchors, order)| {
        let Dim::Fixed(channels) = channels else { return None };
        let few = match anchors {
            Dim::Fixed(anchors) => anchors <= END_TO_END_MAX,
            Dim::Dynamic => true,
        };
        if order == Order::ChannelsLast && channels == END_TO_END && few {
            return Some((Family::YoloEndToEnd, classes));
        }
        // Transposed, YOLOv5 has the shape of YOLOv8 with one label more, which is a mistake oftener than an export.
        let families = match order {
            Order::AnchorsLast => &[Family::YoloV8][..],
            Order::ChannelsLast => &[Family::YoloV5, Family::YoloV8],
        };
        families.iter().find_map(|&family| {
            let found = channels.checked_sub(self::channels(family, 0)).filter(|&found| found > 0)?;
            classes.is_none_or(|classes| classes == found).then_some((family, Some(found)))
        })
    })
}

/// Which dimension runs fastest in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// `[N, channels, A]`.
    AnchorsLast,
    /// `[N, A, channels]`.
    ChannelsLast,
}

impl Order {
    fn usual(family: Family) -> Self {
        match family {
            Family::YoloV8 => Self::AnchorsLast,
            Family::YoloV5 | Family::YoloEndToEnd => Self::ChannelsLast,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::AnchorsLast => Self::ChannelsLast,
            Self::ChannelsLast => Self::AnchorsLast,
        }
    }

    /// The dimension that holds the channels.
    fn channel_dim<D: Copy>(self, dims: &[D]) -> Option<D> {
        match (self, dims) {
            (Self::AnchorsLast, &[_, channels, _]) | (Self::ChannelsLast, &[_, _, channels]) => {
                Some(channels)
            }
            _ => None,
        }
    }

    /// The order in which a shape has the channels: where it says so, else where it may.
    fn of(family: Family, channels: usize, dims: &[Dim]) -> Option<Self> {
        let usual = Self::usual(family);
        let orders = [usual, usual.other()];
        let orders = &orders[..if family == Family::YoloEndToEnd { 1 } else { 2 }];
        let says = |order: &&Self| order.channel_dim(dims) == Some(Dim::Fixed(channels));
        let may = |order: &&Self| order.channel_dim(dims).is_some_and(|dim| dim.accepts(channels));
        orders.iter().find(says).or_else(|| orders.iter().find(may)).copied()
    }
}

/// What tells the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderFrom {
    /// The shape that the model declares.
    Model,
    /// Each tensor's own, since the declared one is open.
    Tensor,
}

impl OrderFrom {
    fn of(channels: usize, dims: &[Dim]) -> Self {
        let orders = [Order::AnchorsLast, Order::ChannelsLast];
        let says = |order: &Order| order.channel_dim(dims) == Some(Dim::Fixed(channels));
        if orders.iter().any(says) { Self::Model } else { Self::Tensor }
    }
}

/// Number of channels of a family with so many classes.
fn channels(family: Family, classes: usize) -> usize {
    match family {
        Family::YoloV8 => BOX.saturating_add(classes),
        Family::YoloV5 => (BOX + 1).saturating_add(classes),
        Family::YoloEndToEnd => END_TO_END,
    }
}

/// The error for an output that is not the family's, with what would be, and how many classes it would have.
fn misfit(family: Family, classes: usize, output: String, shape: &Shape) -> DecodeError {
    let channels = self::channels(family, classes);
    let mut expected = match family {
        Family::YoloV8 => format!("f32 [N, {channels}, A] or f32 [N, A, {channels}]"),
        Family::YoloV5 => format!("f32 [N, A, {channels}] or f32 [N, {channels}, A]"),
        Family::YoloEndToEnd => format!("f32 [N, K, {END_TO_END}]"),
    };
    if classes == 0 {
        expected.push_str(" and at least one label");
    } else if family != Family::YoloEndToEnd
        && let [_, Dim::Fixed(a), Dim::Fixed(b)] = shape.0[..]
        && let Some(found) = a.min(b).checked_sub(self::channels(family, 0)).filter(|&found| found > 0)
        && found != classes
    {
        expected.push_str(&format!(
            "; its shape is that of {found} classes, so it needs {found} labels, not {classes}"
        ));
    }
    DecodeError::Shape { output, family: family.name(), classes, expected }
}

#[derive(Debug)]
struct Yolo {
    family: Family,
    classes: usize,
    channels: usize,
    order: Order,
    order_from: OrderFrom,
    name: String,
    nms: Nms,
    /// The best score of each anchor.
    best: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl Decoder for Yolo {
    fn decode(
        &mut self,
        output: &TensorView<'_>,
        slot: usize,
        back: &Letterbox,
        score_min: f32,
        into: &mut Vec<Detection>,
    ) -> Result<(), DecodeError> {
        let (dims, elements) = output.frame_f32(slot).ok_or(DecodeError::Tensor { slot })?;
        let table = self.table(dims, elements).ok_or_else(|| self.wrong_tensor(output.shape))?;
        self.candidates.clear();
        let mut collect = Collect { table, back, score_min, candidates: &mut self.candidates };
        match (self.family, table.order) {
            (Family::YoloEndToEnd, _) => collect.chosen(self.classes),
            (Family::YoloV8, Order::AnchorsLast) => collect.by_channel(BOX, None, &mut self.best),
            (Family::YoloV5, Order::AnchorsLast) => collect.by_channel(BOX + 1, Some(BOX), &mut self.best),
            (Family::YoloV8, Order::ChannelsLast) => collect.by_anchor(BOX, None),
            (Family::YoloV5, Order::ChannelsLast) => collect.by_anchor(BOX + 1, Some(BOX)),
        }
        if self.family == Family::YoloEndToEnd {
            keep_best(&mut self.candidates, CANDIDATES_MAX);
            self.candidates.sort_unstable_by(Candidate::rank);
        } else {
            self.nms.suppress(&mut self.candidates);
        }
        into.extend(self.candidates.iter().filter_map(|Candidate { detection, .. }| {
            Some(Detection { bbox: detection.bbox.clip(&back.region)?, ..*detection })
        }));
        Ok(())
    }
}

impl Yolo {
    /// The frame's part of the tensor, if it has the channels where they should be.
    fn table<'a>(&self, dims: &[usize], elements: &'a [f32]) -> Option<Table<'a>> {
        let &[first, second] = dims else { return None };
        let order = match self.order_from {
            OrderFrom::Model => self.order,
            OrderFrom::Tensor => {
                let dims = [Dim::Dynamic, Dim::Fixed(first), Dim::Fixed(second)];
                Order::of(self.family, self.channels, &dims)?
            }
        };
        let (channels, anchors) = match order {
            Order::AnchorsLast => (first, second),
            Order::ChannelsLast => (second, first),
        };
        (channels == self.channels).then_some(Table { elements, order, channels, anchors })
    }

    fn wrong_tensor(&self, shape: &[usize]) -> DecodeError {
        let shape = Shape(shape.iter().map(|&size| Dim::Fixed(size)).collect());
        misfit(self.family, self.classes, format!("{} f32 {shape}", self.name), &shape)
    }
}

/// One frame's output.
#[derive(Clone, Copy, Debug)]
struct Table<'a> {
    elements: &'a [f32],
    order: Order,
    channels: usize,
    anchors: usize,
}

impl Table<'_> {
    fn at(&self, anchor: usize, channel: usize) -> f32 {
        self.elements[match self.order {
            Order::AnchorsLast => channel * self.anchors + anchor,
            Order::ChannelsLast => anchor * self.channels + channel,
        }]
    }

    /// All anchors' numbers of a channel, where they lie together.
    fn channel(&self, channel: usize) -> &[f32] {
        &self.elements[channel * self.anchors..][..self.anchors]
    }

    /// The best class of each of `len` anchors, channel by channel: one anchor's channels are far apart in memory, and it
    /// costs nothing to look at its neighbours with it.
    fn top_of_block(&self, start: usize, len: usize, first_class: usize) -> [Top; BLOCK] {
        let (mut scores, mut classes) = ([f32::NEG_INFINITY; BLOCK], [0; BLOCK]);
        for (this, channel) in (0_u32..).zip(first_class..self.channels) {
            let values = &self.channel(channel)[start..start + len];
            for ((score, class), &value) in scores.iter_mut().zip(&mut classes).zip(values) {
                let better = value > *score && value < f32::INFINITY;
                *score = if better { value } else { *score };
                *class = if better { this } else { *class };
            }
        }
        std::array::from_fn(|offset| Top { class: classes[offset], score: scores[offset] })
    }

    fn numbers(&self, anchor: usize) -> [f64; BOX] {
        std::array::from_fn(|channel| f64::from(self.at(anchor, channel)))
    }
}

/// An anchor's best class and its score; minus infinity when no score was a number.
#[derive(Clone, Copy, Debug)]
struct Top {
    class: u32,
    score: f32,
}

/// Collects an output's candidates.
#[derive(Debug)]
struct Collect<'a> {
    table: Table<'a>,
    back: &'a Letterbox,
    score_min: f32,
    candidates: &'a mut Vec<Candidate>,
}

impl Collect<'_> {
    /// `[channels, A]`: the best score of every anchor, channel by channel as they lie in memory; then, for the few that
    /// reach the threshold, which class it was.
    fn by_channel(&mut self, first_class: usize, objectness: Option<usize>, best: &mut Vec<f32>) {
        let table = self.table;
        best.clear();
        best.resize(table.anchors, f32::NEG_INFINITY);
        for channel in first_class..table.channels {
            raise(best, table.channel(channel));
        }
        if let Some(channel) = objectness {
            for (best, &objectness) in best.iter_mut().zip(table.channel(channel)) {
                *best *= objectness;
            }
        }
        // Infinity times zero is not a number and tells nothing.
        let score_min = self.score_min;
        let may_reach = |best: f32| best >= score_min || best.is_nan();
        for (start, block) in (0..).step_by(BLOCK).zip(best.chunks(BLOCK)) {
            if block.iter().any(|&best| may_reach(best)) {
                let top = table.top_of_block(start, block.len(), first_class);
                for (offset, _) in block.iter().enumerate().filter(|&(_, &best)| may_reach(best)) {
                    self.anchor(start + offset, top[offset], objectness);
                }
            }
        }
    }

    /// `[A, channels]`: one anchor after the other.
    fn by_anchor(&mut self, first_class: usize, objectness: Option<usize>) {
        let table = self.table;
        for (anchor, numbers) in table.elements.chunks_exact(table.channels).enumerate() {
            let scores = &numbers[first_class..];
            let bound = match objectness {
                None => highest(scores),
                Some(channel) => numbers[channel],
            };
            if bound >= self.score_min {
                self.anchor(anchor, top_of(scores), objectness);
            }
        }
    }

    /// An anchor that may reach the threshold. One whose objectness alone does not is none, whatever its classes say: so
    /// the family's own code has it, and it makes no difference to scores that are probabilities.
    fn anchor(&mut self, anchor: usize, top: Top, objectness: Option<usize>) {
        let table = self.table;
        let score = match objectness.map(|channel| table.at(anchor, channel)) {
            None => top.score,
            Some(objectness) if objectness >= self.score_min => objectness * top.score,
            Some(_) => return,
        };
        let [x, y, w, h] = table.numbers(anchor);
        self.push(anchor, top.class, score, [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0]);
    }

    /// `[K, 6]`: boxes that the graph has chosen.
    fn chosen(&mut self, classes: usize) {
        for anchor in 0..self.table.anchors {
            let (score, class) = (self.table.at(anchor, BOX), self.table.at(anchor, BOX + 1));
            if score >= self.score_min
                && let Some(class) = class_of(class, classes)
            {
                self.push(anchor, class, score, self.table.numbers(anchor));
            }
        }
    }

    /// Adds a candidate, if its score reaches the threshold and its box has a part in the picture.
    fn push(&mut self, anchor: usize, class_id: u32, score: f32, corners: [f64; BOX]) {
        let [left, top, right, bottom] = corners;
        let ((left, top), (right, bottom)) =
            (self.back.to_picture(left, top), self.back.to_picture(right, bottom));
        let bbox = BBox::from_corners(left, top, right, bottom);
        let reaches = score >= self.score_min && score.is_finite();
        if reaches && bbox.is_proper() && bbox.clip(&self.back.region).is_some() {
            let index = u32::try_from(anchor)
                .expect("a tensor of 2^32 anchors does not fit the machines that run models");
            self.candidates.push(Candidate { detection: Detection { class_id, score, bbox }, index });
        }
    }
}

/// The class that a float stands for, if there is such a class.
fn class_of(value: f32, classes: usize) -> Option<u32> {
    let rounded = value.round();
    #[expect(clippy::cast_precision_loss, reason = "a model has less than 2^24 classes")]
    let known = rounded >= 0.0 && rounded < classes as f32;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the number of classes"
    )]
    known.then_some(rounded as u32)
}

/// The best of an anchor's scores.
fn top_of(scores: &[f32]) -> Top {
    let mut top = Top { class: 0, score: f32::NEG_INFINITY };
    for (class, &score) in (0_u32..).zip(scores) {
        if score > top.score && score < f32::INFINITY {
            top = Top { class, score };
        }
    }
    top
}

/// Raises each of `best` to the value at its place. A NaN raises nothing.
fn raise(best: &mut [f32], values: &[f32]) {
    for (best, &value) in best.iter_mut().zip(values) {
        *best = if value > *best { value } else { *best };
    }
}

/// The highest of a few values; NaNs do not count.
fn highest(values: &[f32]) -> f32 {
    // Eight at a time, which the compiler turns into vectors; a plain maximum it must do one after the other.
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [f32::NEG_INFINITY; 8];
    for chunk in chunks {
        raise(&mut lanes, chunk);
    }
    raise(&mut lanes, rest);
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}
