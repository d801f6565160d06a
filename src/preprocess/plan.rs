//! The tables of the pass for pictures of one kind: which samples make each row and each column of the input. Pure.

use std::ops::Range;

use super::kernel::Taps;
use super::letterbox::{Letterbox, Region};
use super::{Filter, InputSpec};
use crate::frame::PixelFormat;

/// Distance from a whole sample, in samples, below which a place counts as being there. It saves the second sample where
/// the sizes divide, and is too small to show.
const WHOLE_SAMPLE: f64 = 1e-9;

/// What decides the tables. Strides, matrix and range do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlanKey {
    pub format: PixelFormat,
    pub picture: (u32, u32),
    pub region: Region,
}

/// The tables for pictures of one kind.
#[derive(Debug)]
pub(super) struct Plan {
    pub key: PlanKey,
    pub letterbox: Letterbox,
    /// Columns and rows of the input that show the picture.
    pub visible: [Range<u32>; 2],
    /// Of luma, or of all components of an RGB picture.
    pub whole: Tables,
    /// Of the two chroma components. Where there are none, as `whole`.
    pub half: Tables,
}

/// The tables of one kind of plane.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The samples of a row that a line holds. Taps count from the first of them.
    pub line: Range<u32>,
    /// Of each visible column.
    pub across: Taps,
    /// Of each visible row.
    pub down: Stacks,
}

/// For each row of the input the rows of a plane that it shows.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// The first row, and where the weights of that and the next ones are.
    rows: Vec<(u32, Range<usize>)>,
    weights: Vec<f32>,
}

impl Stacks {
    /// The first row that visible row `y` shows, and the weights of that and the next ones.
    pub(super) fn row(&self, y: usize) -> (u32, &[f32]) {
        let (first, weights) = &self.rows[y];
        (*first, &self.weights[weights.clone()])
    }
}

/// The kinds of formats: where their samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Luma alone.
    Luma,
    /// The components of each pixel, packed.
    Rgb,
    /// Luma, and chroma of half the columns and rows in planes of its own.
    Ycc420,
    /// Luma, and chroma of half the columns, packed.
    Ycc422,
}

impl Kind {
    pub(super) fn of(format: PixelFormat) -> Self {
        match format {
            PixelFormat::Nv12 | PixelFormat::I420 => Self::Ycc420,
            PixelFormat::Yuy2 | PixelFormat::Uyvy => Self::Ycc422,
            PixelFormat::Gray8 => Self::Luma,
            PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra => Self::Rgb,
        }
    }
}

impl Plan {
    /// A plan without tables, to be made.
    pub(super) fn empty(key: PlanKey, letterbox: Letterbox) -> Self {
        Self { key, letterbox, visible: [0..0, 0..0], whole: Tables::default(), half: Tables::default() }
    }

    /// Makes the tables anew, in the memory of the old ones.
    pub(super) fn make(&mut self, key: PlanKey, letterbox: Letterbox, spec: &InputSpec) {
        self.key = key;
        self.letterbox = letterbox;
        self.visible = letterbox.visible(spec);
        let Region { x, y, width, height } = key.region;
        let (columns, rows) = (x..x + width, y..y + height);
        let half = |range: &Range<u32>| range.start / 2..(range.end - 1) / 2 + 1;
        let (half_columns, half_rows) = (half(&columns), half(&rows));
        let column = |edge| letterbox.to_picture(edge, 0.0).0;
        let row = |edge| letterbox.to_picture(0.0, edge).1;
        // Chroma sits at the left one of its pair of pixels. Measured from the edge of a sample, and not from its middle,
        // that is a quarter of a sample before the middle of the pair.
        let half_column = |edge| column(edge) / 2.0 + 0.25;
        let half_row = |edge| row(edge) / 2.0;
        let filter = spec.filter;
        let across = Axis { place: &column, samples: columns.clone(), filter };
        let down = Axis { place: &row, samples: rows.clone(), filter };
        let half_across = Axis { place: &half_column, samples: half_columns.clone(), filter };
        let half_down = Axis { place: &half_row, samples: half_rows, filter };
        match Kind::of(key.format) {
            Kind::Luma | Kind::Rgb => {
                self.whole.make(columns.clone(), &across, &down, &self.visible);
                self.half.make(columns, &across, &down, &self.visible);
            }
            Kind::Ycc420 => {
                self.whole.make(columns, &across, &down, &self.visible);
                self.half.make(half_columns, &half_across, &half_down, &self.visible);
            }
            Kind::Ycc422 => {
                // What is packed together is in lines together.
                let line = 2 * half_columns.start..2 * half_columns.end;
                self.whole.make(line, &across, &down, &self.visible);
                self.half.make(half_columns, &half_across, &down, &self.visible);
            }
        }
    }
}

impl Tables {
    fn make(&mut self, line: Range<u32>, across: &Axis<'_>, down: &Axis<'_>, visible: &[Range<u32>; 2]) {
        let [columns, rows] = visible;
        let mut weights = Vec::new();
        let most = columns.clone().map(|column| {
            across.span(column, &mut weights);
            weights.len()
        });
        let most = most.max().unwrap_or(0);
        let spans = columns.clone().map(|column| {
            let first = across.span(column, &mut weights);
            (first - line.start, weights.clone())
        });
        self.across.make(columns.len(), most, spans);
        self.down.rows.clear();
        self.down.weights.clear();
        for row in rows.clone() {
            let first = down.span(row, &mut weights);
            let start = self.down.weights.len();
            #[expect(clippy::cast_possible_truncation, reason = "a weight needs no more digits")]
            self.down.weights.extend(weights.iter().map(|&weight| weight as f32));
            self.down.rows.push((first, start..self.down.weights.len()));
        }
        self.line = line;
    }
}

/// One direction of a plane.
struct Axis<'a> {
    /// The place among the samples, from the edge of the first one, of an edge of an input pixel.
    place: &'a dyn Fn(f64) -> f64,
    /// The samples that may be read.
    samples: Range<u32>,
    filter: Filter,
}

impl Axis<'_> {
    /// The first sample that an input pixel shows; `weights` becomes those of that and the next ones. They add up to 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the samples")]
    fn span(&self, pixel: u32, weights: &mut Vec<f64>) -> u32 {
        weights.clear();
        let pixel = f64::from(pixel);
        let (low, high) = (f64::from(self.samples.start), f64::from(self.samples.end));
        let (from, to) = ((self.place)(pixel), (self.place)(pixel + 1.0));
        let averages = match self.filter {
            Filter::Bilinear => false,
            Filter::Area => to - from > 1.0 + WHOLE_SAMPLE,
            Filter::Auto => to - from > 2.0 + WHOLE_SAMPLE,
        };
        if averages {
            let (from, to) = (snapped(from).max(low), snapped(to).min(high));
            let (first, end) = (from.floor() as u32, to.ceil() as u32);
            weights.extend((first..end).map(|sample| {
                let sample = f64::from(sample);
                ((sample + 1.0).min(to) - sample.max(from)) / (to - from)
            }));
            return first;
        }
        let place = snapped((self.place)(pixel + 0.5) - 0.5).clamp(low, high - 1.0);
        let far = place - place.floor();
        weights.push(1.0 - far);
        weights.extend((far > 0.0).then_some(far));
        place.floor() as u32
    }
}

fn snapped(place: f64) -> f64 {
    if (place - place.round()).abs() < WHOLE_SAMPLE { place.round() } else { place }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(filter: Filter, samples: Range<u32>, scale: f64, pixel: u32) -> (u32, Vec<f64>) {
        let place = |edge: f64| edge * scale;
        let mut weights = Vec::new();
        let first = Axis { place: &place, samples, filter }.span(pixel, &mut weights);
        (first, weights)
    }

    #[test]
    fn bilinear_takes_the_two_samples_next_to_the_middle_whatever_the_reduction() {
        assert_eq!(span(Filter::Bilinear, 0..8, 2.0, 1), (2, vec![0.5, 0.5]));
        assert_eq!(span(Filter::Bilinear, 0..9, 3.0, 1), (4, vec![1.0]), "a whole sample is one");
        assert_eq!(span(Filter::Bilinear, 0..8, 0.5, 0), (0, vec![1.0]), "beyond the edge is the edge");
        assert_eq!(span(Filter::Bilinear, 0..8, 0.5, 15), (7, vec![1.0]));
        assert_eq!(span(Filter::Bilinear, 0..8, 0.5, 3), (1, vec![0.75, 0.25]));
    }

    #[test]
    fn area_takes_every_sample_by_how_much_of_it_is_covered() {
        assert_eq!(span(Filter::Area, 0..10, 2.5, 1), (2, vec![0.2, 0.4, 0.4]));
        assert_eq!(span(Filter::Area, 0..9, 3.0, 2), (6, vec![1.0 / 3.0; 3]));
        assert_eq!(span(Filter::Area, 2..5, 3.0, 1), (3, vec![0.5; 2]), "not beyond what may be read");
        assert_eq!(span(Filter::Area, 0..8, 1.0, 3), span(Filter::Bilinear, 0..8, 1.0, 3));
        assert_eq!(span(Filter::Area, 0..8, 0.5, 3), span(Filter::Bilinear, 0..8, 0.5, 3));
    }

    #[test]
    fn auto_averages_where_bilinear_would_leave_samples_out() {
        assert_eq!(span(Filter::Auto, 0..8, 2.0, 1), span(Filter::Bilinear, 0..8, 2.0, 1));
        assert_eq!(span(Filter::Auto, 0..10, 2.5, 1), span(Filter::Area, 0..10, 2.5, 1));
    }
}
