//! Draws detections on pictures: boxes, labels, scores, legible on any background.
//!
//! Boxes are lines of their class's colour between two dark ones, so that they show on a bright part and on a dark belt
//! alike; labels stand on a filled ground. Sizes follow the picture's, and everything stays inside of it.

use font8x8::legacy::{BASIC_LEGACY, GREEK_LEGACY, HIRAGANA_LEGACY, LATIN_LEGACY};
use image::{Rgb, RgbImage};

use crate::backend::tensor::{ElementType, ElementsMut};
use crate::frame::Frame;
use crate::postprocess::bbox::BBox;
use crate::preprocess::host::{Held, Preprocessor};
use crate::preprocess::letterbox::RegionConfig;
use crate::preprocess::{
    Align, ColorOrder, Filter, InputSpec, Layout, PreprocessError, Quantization, Resize,
};

/// What to draw of one detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Annotation<'a> {
    /// Index of its class; it decides the colour.
    pub class_id: u32,
    /// Its name.
    pub label: &'a str,
    /// Its score, 0..=1.
    pub score: f32,
    /// Where it is, in pixels of the picture. What lies outside of the picture is not drawn.
    pub bbox: BBox,
}

/// Colours that are told apart by most eyes, on a screen and in print, also side by side; the first four differ most in
/// brightness too. A model with more classes uses them again, and the label tells those apart.
const PALETTE: [[u8; 3]; 20] = [
    [255, 225, 25],
    [67, 150, 255],
    [245, 110, 40],
    [240, 50, 200],
    [60, 200, 75],
    [70, 240, 240],
    [230, 25, 75],
    [170, 110, 255],
    [210, 245, 60],
    [250, 190, 212],
    [0, 160, 150],
    [220, 190, 255],
    [190, 120, 40],
    [255, 250, 200],
    [175, 30, 60],
    [170, 255, 195],
    [150, 150, 20],
    [255, 215, 180],
    [80, 90, 220],
    [200, 200, 200],
];

const DARK: Rgb<u8> = Rgb([0, 0, 0]);
const LIGHT: Rgb<u8> = Rgb([255, 255, 255]);

/// Side of a letter before it is scaled.
const LETTER: i64 = 8;

/// The picture of a frame, at its full size, in whatever format it is.
///
/// # Errors
/// When the frame cannot be converted; every format of [`PixelFormat`](crate::frame::PixelFormat) can.
pub fn picture(frame: &Frame) -> Result<RgbImage, PreprocessError> {
    let (width, height) = (frame.geometry().width, frame.geometry().height);
    let mut image = RgbImage::new(width, height);
    let as_it_is = InputSpec {
        width,
        height,
        element_type: ElementType::U8,
        quantization: Quantization::NONE,
        layout: Layout::Nhwc,
        color: ColorOrder::Rgb,
        mean: [0.0; 3],
        std: [1.0; 3],
        resize: Resize::Stretch,
        filter: Filter::Bilinear,
        pad: 0,
        align: Align::TopLeft,
    };
    Preprocessor::new(as_it_is).write(
        frame,
        RegionConfig::default(),
        ElementsMut::U8(&mut image),
        &mut Held::default(),
    )?;
    Ok(image)
}

/// Draws detections, given best first: of two that cover each other the better one is on top. A label goes where it covers
/// the fewest others.
pub fn annotate(image: &mut RgbImage, annotations: &[Annotation<'_>]) {
    let size = Size::of(image);
    for annotation in annotations.iter().rev() {
        draw_box(image, annotation, size);
    }
    let mut taken = Vec::with_capacity(annotations.len());
    let labels: Vec<(Rect, &Annotation<'_>)> = annotations
        .iter()
        .map(|annotation| {
            let place = label_place(image, annotation, size, &taken);
            taken.push(place);
            (place, annotation)
        })
        .collect();
    for (place, annotation) in labels.iter().rev() {
        draw_label(image, annotation, *place, size);
    }
}

/// How thick and large things are drawn, in pixels.
#[derive(Clone, Copy, Debug)]
struct Size {
    line: i64,
    outline: i64,
    /// Pixels of the picture for one of a letter.
    letter: i64,
    /// From the edge of a label to its letters.
    margin: i64,
}

/// Pixels from the first corner to before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rect {
    x0: i64,
    y0: i64,
    x1: i64,
    y1: i64,
}

impl Size {
    fn of(image: &RgbImage) -> Self {
        let side = i64::from(image.width().min(image.height()));
        let line = (side / 240).clamp(2, 12);
        let (outline, letter) = ((line + 1) / 3, (side / 360).clamp(1, 12));
        Self { line, outline, letter, margin: outline + 2 * letter }
    }
}

impl Rect {
    fn of(bbox: &BBox) -> Self {
        let pixel = |value: f32| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "limited to what any picture has; NaN becomes 0"
            )]
            let pixel = value.clamp(-1e6, 1e6).round() as i64;
            pixel
        };
        Self { x0: pixel(bbox.x), y0: pixel(bbox.y), x1: pixel(bbox.x + bbox.w), y1: pixel(bbox.y + bbox.h) }
    }

    fn grown(self, by: i64) -> Self {
        Self { x0: self.x0 - by, y0: self.y0 - by, x1: self.x1 + by, y1: self.y1 + by }
    }

    /// What of it lies in the picture.
    fn within(self, image: &RgbImage) -> Self {
        let (width, height) = (i64::from(image.width()), i64::from(image.height()));
        let (x0, y0) = (self.x0.clamp(0, width), self.y0.clamp(0, height));
        Self { x0, y0, x1: self.x1.clamp(x0, width), y1: self.y1.clamp(y0, height) }
    }

    /// Moved into the picture as far as it fits, the left and top first.
    fn moved_into(self, image: &RgbImage) -> Self {
        let (width, height) = (self.x1 - self.x0, self.y1 - self.y0);
        let x0 = self.x0.min(i64::from(image.width()) - width).max(0);
        let y0 = self.y0.min(i64::from(image.height()) - height).max(0);
        Self { x0, y0, x1: x0 + width, y1: y0 + height }
    }

    fn common(self, other: Self) -> i64 {
        let width = self.x1.min(other.x1) - self.x0.max(other.x0);
        let height = self.y1.min(other.y1) - self.y0.max(other.y0);
        width.max(0) * height.max(0)
    }

    fn fill(self, image: &mut RgbImage, color: Rgb<u8>) {
        let part = self.within(image);
        for y in part.y0..part.y1 {
            for x in part.x0..part.x1 {
                image.put_pixel(coordinate(x), coordinate(y), color);
            }
        }
    }

    /// Draws its edge, inwards.
    fn edge(self, image: &mut RgbImage, thickness: i64, color: Rgb<u8>) {
        let inner_top = (self.y0 + thickness).min(self.y1);
        let inner_bottom = (self.y1 - thickness).max(inner_top);
        let (left, right) = ((self.x0 + thickness).min(self.x1), (self.x1 - thickness).max(self.x0));
        Self { y1: inner_top, ..self }.fill(image, color);
        Self { y0: inner_bottom, ..self }.fill(image, color);
        Self { x1: left, y0: inner_top, y1: inner_bottom, ..self }.fill(image, color);
        Self { x0: right, y0: inner_top, y1: inner_bottom, ..self }.fill(image, color);
    }
}

fn draw_box(image: &mut RgbImage, annotation: &Annotation<'_>, size: Size) {
    let Size { line, outline, .. } = size;
    // The line lies around the object. It is moved in at the picture's edge, where it would not be seen.
    let whole = Rect::of(&annotation.bbox).grown(line / 2 + outline).within(image);
    whole.edge(image, outline, DARK);
    whole.grown(-outline).edge(image, line, color(annotation.class_id));
    whole.grown(-outline - line).edge(image, outline, DARK);
}

fn text(annotation: &Annotation<'_>) -> String {
    format!("{} {:.2}", annotation.label, annotation.score)
}

/// Above the box, below it, inside at the top, or farther off in a crowd: whichever covers the least of the labels that are there.
fn label_place(image: &RgbImage, annotation: &Annotation<'_>, size: Size, taken: &[Rect]) -> Rect {
    let around = Rect::of(&annotation.bbox).grown(size.line / 2 + size.outline).within(image);
    let letters = i64::try_from(text(annotation).chars().count()).unwrap_or(i64::from(u16::MAX));
    let width = letters * LETTER * size.letter + 2 * size.margin;
    let height = LETTER * size.letter + 2 * size.margin;
    let at = |x0: i64, y0: i64| Rect { x0, y0, x1: x0 + width, y1: y0 + height };
    // The outlines of box and label lie on one another.
    let above = at(around.x0, around.y0 - height + size.outline);
    let below = at(around.x0, around.y1 - size.outline);
    let right = at(around.x1 - width, above.y0);
    let inside = at(around.x0, around.y0);
    // In a crowd they pile up.
    let piled = (1..=3).flat_map(|step| {
        let away = step * (height - size.outline);
        [at(above.x0, above.y0 - away), at(below.x0, below.y0 + away)]
    });
    [above, right, below, inside]
        .into_iter()
        .chain(piled)
        .map(|wanted| {
            let place = wanted.moved_into(image);
            let covered: i64 = taken.iter().map(|other| place.common(*other)).sum();
            let moved = (place.x0 - wanted.x0).abs() + (place.y0 - wanted.y0).abs();
            (covered, moved, place)
        })
        .min_by_key(|(covered, moved, _)| (*covered, *moved))
        .map_or(above, |(_, _, place)| place)
}

fn draw_label(image: &mut RgbImage, annotation: &Annotation<'_>, place: Rect, size: Size) {
    let ground = color(annotation.class_id);
    place.fill(image, DARK);
    place.grown(-size.outline).fill(image, ground);
    let Rgb([red, green, blue]) = ground;
    let brightness = 299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue);
    let ink = if brightness < 110_000 { LIGHT } else { DARK };
    let mut x = place.x0 + size.margin;
    for letter in text(annotation).chars() {
        draw_letter(image, letter, (x, place.y0 + size.margin), size.letter, ink);
        x += LETTER * size.letter;
    }
}

fn draw_letter(image: &mut RgbImage, letter: char, at: (i64, i64), scale: i64, ink: Rgb<u8>) {
    for (row, bits) in (0..).zip(glyph(letter)) {
        for column in (0..LETTER).filter(|column| bits >> column & 1 == 1) {
            let (x0, y0) = (at.0 + column * scale, at.1 + row * scale);
            Rect { x0, y0, x1: x0 + scale, y1: y0 + scale }.fill(image, ink);
        }
    }
}

/// The letter's picture, a byte a row, its left pixel in the lowest bit. A letter that the font lacks is a question mark.
fn glyph(letter: char) -> [u8; 8] {
    let code = letter as usize;
    let from =
        |table: &[[u8; 8]], first: usize| code.checked_sub(first).and_then(|at| table.get(at).copied());
    from(&BASIC_LEGACY, 0)
        .or_else(|| from(&LATIN_LEGACY, 0xA0))
        .or_else(|| from(&GREEK_LEGACY, 0x390))
        .or_else(|| from(&HIRAGANA_LEGACY, 0x3040))
        .unwrap_or(BASIC_LEGACY[usize::from(b'?')])
}

fn color(class_id: u32) -> Rgb<u8> {
    Rgb(PALETTE[class_id as usize % PALETTE.len()])
}

fn coordinate(value: i64) -> u32 {
    u32::try_from(value).expect("a clipped coordinate lies in the picture")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::frame::clock::{CaptureClock, Captured};
    use crate::frame::{
        CameraId, ColorMatrix, ColorRange, FrameTimes, Geometry, LentMemory, Memory, PixelFormat,
    };

    fn at(x: f32, y: f32, w: f32, h: f32) -> Annotation<'static> {
        Annotation { class_id: 0, label: "nut", score: 0.5, bbox: BBox { x, y, w, h } }
    }

    fn has(image: &RgbImage, color: Rgb<u8>) -> bool {
        image.pixels().any(|pixel| *pixel == color)
    }

    #[test]
    fn a_box_is_drawn_around_its_object_in_its_class_color_between_dark_lines() {
        let mut image = RgbImage::from_pixel(400, 300, Rgb([90, 90, 90]));
        annotate(&mut image, &[at(100.0, 100.0, 80.0, 60.0)]);
        let across: Vec<Rgb<u8>> = (95..106).map(|x| *image.get_pixel(x, 130)).collect();
        let first = across.iter().position(|pixel| *pixel == DARK).unwrap();
        assert_eq!(across[first..first + 4], [DARK, color(0), color(0), DARK]);
        assert_eq!(*image.get_pixel(140, 130), Rgb([90, 90, 90]), "the object itself stays as it was");
    }

    #[test]
    fn everything_stays_legible_at_the_edge_of_the_picture() {
        for bbox in [(0.0, 0.0, 30.0, 30.0), (370.0, 270.0, 30.0, 30.0), (-9.0, 290.0, 500.0, 20.0)] {
            let mut image = RgbImage::from_pixel(400, 300, Rgb([90, 90, 90]));
            let annotation = at(bbox.0, bbox.1, bbox.2, bbox.3);
            annotate(&mut image, &[annotation]);
            let place = label_place(&image, &annotation, Size::of(&image), &[]);
            assert_eq!(place, place.within(&image), "{bbox:?}: the label is whole");
            assert!(has(&image, color(0)) && has(&image, DARK), "{bbox:?}");
        }
    }

    #[test]
    fn no_picture_or_box_is_too_small_or_too_odd() {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e30, 0.0, 0.4];
        for (width, height) in [(1, 1), (1, 50), (50, 1), (7, 5), (0, 0)] {
            for side in odd {
                let mut image = RgbImage::new(width, height);
                annotate(&mut image, &[at(side, side, 1.0, 1.0), at(0.0, 0.0, side, side)]);
            }
        }
    }

    #[test]
    fn labels_of_neighbours_do_not_cover_each_other_where_there_is_room() {
        let image = RgbImage::new(640, 480);
        let (size, mut taken) = (Size::of(&image), Vec::new());
        for annotation in
            [at(200.0, 200.0, 60.0, 60.0), at(210.0, 203.0, 60.0, 60.0), at(205.0, 206.0, 50.0, 50.0)]
        {
            let place = label_place(&image, &annotation, size, &taken);
            assert!(taken.iter().all(|other| place.common(*other) == 0), "{place:?} {taken:?}");
            taken.push(place);
        }
    }

    #[test]
    fn letters_beyond_ascii_are_drawn_and_unknown_ones_are_question_marks() {
        assert_eq!(glyph('A'), BASIC_LEGACY[65]);
        assert_eq!(glyph('ü'), LATIN_LEGACY[0xFC - 0xA0]);
        assert_eq!(glyph('螺'), glyph('?'));
    }

    #[test]
    fn a_frame_becomes_a_picture_of_its_own_size() {
        // One red pixel, in limited BT.601: Y 81, U 90, V 240.
        let (format, size) = (PixelFormat::I420, (3, 1));
        let geometry = Geometry::packed(format, size.0, size.1, ColorMatrix::Bt601, ColorRange::Limited);
        let bytes: Vec<u8> = [vec![81; 3], vec![90; 2], vec![240; 2]].concat();
        let now = Instant::now();
        let captured = Captured::new(CaptureClock::Test, now);
        let times = FrameTimes { pts: None, captured, received: now, ready: now };
        let memory = Memory::Lent(LentMemory::new(bytes));
        let frame = Arc::new(Frame::new(CameraId::new("c"), 1, times, geometry, memory).unwrap());
        let image = picture(&frame).unwrap();
        assert_eq!(image.dimensions(), (3, 1));
        for pixel in image.pixels() {
            let Rgb([red, green, blue]) = *pixel;
            assert!(red >= 253 && green <= 2 && blue <= 2, "{pixel:?}");
        }
    }
}
