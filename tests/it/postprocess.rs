//! Decoders: golden cases computed in float64 by `scripts/models/make_decoder_goldens.py`, what random outputs may never
//! do, and what is said of outputs that do not fit.

use std::path::{Path, PathBuf};

use gantry::backend::tensor::{ElementType, Elements, ElementsMut, Shape, TensorSpec, TensorView};
use gantry::frame::{ColorMatrix, ColorRange, Geometry, PixelFormat};
use gantry::postprocess::nms::CANDIDATES_MAX;
use gantry::postprocess::{DecodeError, Decoder, Detection, Family, OutputSpec, Suppression, guess};
use gantry::preprocess::host::{Held, Preprocessor};
use gantry::preprocess::letterbox::{Letterbox, Region, RegionConfig};
use gantry::preprocess::{Align, ColorOrder, Filter, InputSpec, Layout, Quantization, Resize};
use proptest::prelude::*;
use serde::Deserialize;

/// How far a box may be from the reference, in pixels.
const PIXELS: f64 = 0.01;
/// How far a score may be.
const SCORE: f64 = 1e-5;

/// What the shipped models want of a picture.
pub(crate) fn input(width: u32, height: u32) -> InputSpec {
    InputSpec {
        width,
        height,
        element_type: ElementType::F32,
        quantization: Quantization::NONE,
        layout: Layout::Nchw,
        color: ColorOrder::Rgb,
        mean: [0.0; 3],
        std: [255.0; 3],
        resize: Resize::Letterbox,
        filter: Filter::Bilinear,
        pad: 114,
        align: Align::Center,
    }
}

/// A picture that is the input itself.
fn as_it_is(size: u32) -> Letterbox {
    Letterbox::new(size, size, &input(size, size))
}

fn output_spec(family: Family, shape: &[i64], classes: usize) -> OutputSpec {
    let tensor =
        TensorSpec { name: "output0".to_owned(), element_type: ElementType::F32, shape: Shape::new(shape) };
    OutputSpec { family, tensor, classes, iou: 0.45, suppression: Suppression::PerClass }
}

fn decode(
    decoder: &mut dyn Decoder,
    shape: &[usize],
    elements: &[f32],
    back: &Letterbox,
    score_min: f32,
) -> Vec<Detection> {
    let (view, mut found) = (TensorView { shape, elements: Elements::F32(elements) }, Vec::new());
    decoder.decode(&view, 0, back, score_min, &mut found).unwrap();
    found
}

// Golden cases.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    family: String,
    classes: usize,
    picture: (u32, u32),
    input: (u32, u32),
    resize: String,
    align: String,
    suppression: String,
    iou: f32,
    score_min: f32,
    slot: usize,
    shape: Vec<usize>,
    output: Vec<Number>,
    expect: Vec<Expected>,
}

/// A number, or the name of one that JSON does not have.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(f32),
    Named(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    class_id: u32,
    score: f64,
    #[serde(rename = "box")]
    bbox: Side4,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Side4 {
    x: f64,
    y: f64,
    w: f64,
    h: f64,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn family(&self) -> Family {
        Family::ALL.into_iter().find(|family| family.name() == self.family).unwrap()
    }

    fn elements(&self) -> Vec<f32> {
        let value = |number: &Number| match number {
            Number::Plain(value) => *value,
            Number::Named(name) => name.parse().unwrap(),
        };
        self.output.iter().map(value).collect()
    }

    fn letterbox(&self) -> Letterbox {
        let resize = match self.resize.as_str() {
            "letterbox" => Resize::Letterbox,
            "stretch" => Resize::Stretch,
            other => panic!("{other}"),
        };
        let align = match self.align.as_str() {
            "center" => Align::Center,
            "top_left" => Align::TopLeft,
            other => panic!("{other}"),
        };
        let input = InputSpec { resize, align, ..input(self.input.0, self.input.1) };
        Letterbox::new(self.picture.0, self.picture.1, &input)
    }

    /// The decoder, made for the shape as it is, and for one whose number of frames and of anchors is open.
    fn decoders(&self) -> [Box<dyn Decoder>; 2] {
        let whole: Vec<i64> = self.shape.iter().map(|&size| i64::try_from(size).unwrap()).collect();
        let suppression = match self.suppression.as_str() {
            "per_class" => Suppression::PerClass,
            "agnostic" => Suppression::Agnostic,
            other => panic!("{other}"),
        };
        let make = |shape: &[i64]| {
            let spec = output_spec(self.family(), shape, self.classes);
            OutputSpec { iou: self.iou, suppression, ..spec }.decoder().unwrap()
        };
        [make(&whole), make(&[-1, -1, -1])]
    }

    fn check(&self, decoder: &mut dyn Decoder, name: &str) {
        let elements = self.elements();
        let view = TensorView { shape: &self.shape, elements: Elements::F32(&elements) };
        // What is there already stays there.
        let before = Detection {
            class_id: 99,
            score: 2.0,
            bbox: gantry::postprocess::bbox::BBox { x: 1.0, y: 2.0, w: 3.0, h: 4.0 },
        };
        let mut found = vec![before];
        decoder.decode(&view, self.slot, &self.letterbox(), self.score_min, &mut found).unwrap();
        assert_eq!(found.remove(0), before, "{name}");
        assert_eq!(found.len(), self.expect.len(), "{name}: {found:#?}");
        for (found, expected) in found.iter().zip(&self.expect) {
            let bbox = &expected.bbox;
            let numbers = [
                (found.bbox.x, bbox.x, PIXELS),
                (found.bbox.y, bbox.y, PIXELS),
                (found.bbox.w, bbox.w, PIXELS),
                (found.bbox.h, bbox.h, PIXELS),
                (found.score, expected.score, SCORE),
            ];
            let close =
                numbers.iter().all(|&(got, wanted, within)| (f64::from(got) - wanted).abs() <= within);
            assert!(close && found.class_id == expected.class_id, "{name}: {found:?} instead of {numbers:?}");
        }
    }
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/decoders");
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    entries(&root).iter().flat_map(|family| entries(family)).collect()
}

#[test]
fn every_golden_case_comes_out_as_computed_in_float64() {
    let cases = cases();
    for family in Family::ALL {
        let of_family = cases.iter().filter(|path| Case::read(path).family() == family).count();
        assert!(of_family >= 5, "{} has only {of_family} golden cases", family.name());
    }
    for path in cases {
        let (case, name) = (Case::read(&path), path.display().to_string());
        for mut decoder in case.decoders() {
            // Twice, since scratch memory is kept.
            case.check(decoder.as_mut(), &name);
            case.check(decoder.as_mut(), &name);
        }
    }
}

// Numbers of candidates.

/// An output of `[1, 5, A]` with `count` boxes of 1x1 on a grid of `side` columns, 2 apart, the last one the best.
fn grid(count: u16, side: u16) -> Vec<f32> {
    let channel = |of: fn(u16, u16) -> f32| (0..count).map(move |index| of(index, side));
    let column = channel(|index, side| f32::from(index % side) * 2.0 + 0.5);
    let row = channel(|index, side| f32::from(index / side) * 2.0 + 0.5);
    let one = channel(|_, _| 1.0);
    let score = channel(|index, _| 0.3 + f32::from(index) / 65_536.0);
    column.chain(row).chain(one.clone()).chain(one).chain(score).collect()
}

#[test]
fn ten_thousand_boxes_that_do_not_overlap_are_all_found_best_first() {
    let count = u16::try_from(CANDIDATES_MAX).unwrap();
    let mut decoder = output_spec(Family::YoloV8, &[1, 5, i64::from(count)], 1).decoder().unwrap();
    let found =
        decode(decoder.as_mut(), &[1, 5, usize::from(count)], &grid(count, 128), &as_it_is(256), 0.25);
    assert_eq!(found.len(), usize::from(count));
    for (place, detection) in (0..count).zip(&found) {
        let index = count - 1 - place;
        assert!((detection.bbox.x - f32::from(index % 128) * 2.0).abs() < 0.01, "{detection:?}");
        assert!((detection.bbox.y - f32::from(index / 128) * 2.0).abs() < 0.01, "{detection:?}");
    }
}

#[test]
fn ten_thousand_doubles_are_one_object_and_none_are_none() {
    let count = 10_000_u16;
    let same: Vec<f32> = [30.0, 40.0, 10.0, 20.0, 0.5]
        .into_iter()
        .flat_map(|value| std::iter::repeat_n(value, usize::from(count)))
        .collect();
    let shape = [1, 5, usize::from(count)];
    let mut decoder = output_spec(Family::YoloV8, &[-1, 5, -1], 1).decoder().unwrap();
    let found = decode(decoder.as_mut(), &shape, &same, &as_it_is(256), 0.25);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].bbox.x, found[0].bbox.y, found[0].bbox.w, found[0].bbox.h),
        (25.0, 30.0, 10.0, 20.0)
    );
    assert!(decode(decoder.as_mut(), &shape, &same, &as_it_is(256), 0.51).is_empty());
    assert!(decode(decoder.as_mut(), &[1, 5, 0], &[], &as_it_is(256), 0.0).is_empty());
    let mut end_to_end = output_spec(Family::YoloEndToEnd, &[1, -1, 6], 1).decoder().unwrap();
    assert!(decode(end_to_end.as_mut(), &[1, 0, 6], &[], &as_it_is(256), 0.0).is_empty());
}

// There and back.

#[test]
fn a_box_around_what_preprocessing_drew_comes_back_to_the_picture() {
    // A white rectangle in a black picture of odd size, found in the tensor where it is more than half white.
    let (width, height, left, top, right, bottom) = (853_u32, 479_u32, 200_u32, 101_u32, 520_u32, 333_u32);
    let geometry = Geometry::packed(PixelFormat::Gray8, width, height, ColorMatrix::Bt601, ColorRange::Full);
    let inside = |x, y| (left..right).contains(&x) && (top..bottom).contains(&y);
    let bytes =
        (0..height).flat_map(|y| (0..width).map(move |x| if inside(x, y) { 255 } else { 0 })).collect();
    let spec = InputSpec { pad: 0, ..input(320, 320) };
    let mut tensor = vec![0.0; 3 * 320 * 320];
    let frame = crate::preprocess::frame(geometry, bytes);
    let back = Preprocessor::new(spec)
        .write(&frame, RegionConfig::default(), ElementsMut::F32(&mut tensor), &mut Held::default())
        .unwrap();
    let white = |x: u16, y: u16| tensor[usize::from(y) * 320 + usize::from(x)] > 0.5;
    let columns: Vec<u16> = (0..320).filter(|&x| (0..320).any(|y| white(x, y))).collect();
    let rows: Vec<u16> = (0..320).filter(|&y| (0..320).any(|x| white(x, y))).collect();
    let (x1, x2) = (f32::from(columns[0]), f32::from(*columns.last().unwrap()) + 1.0);
    let (y1, y2) = (f32::from(rows[0]), f32::from(*rows.last().unwrap()) + 1.0);
    let output = [x1, y1, x2, y2, 0.9, 0.0];
    let mut decoder = output_spec(Family::YoloEndToEnd, &[1, 1, 6], 1).decoder().unwrap();
    let found = decode(decoder.as_mut(), &[1, 1, 6], &output, &back, 0.25)[0].bbox;
    // Whole input pixels are 853/320 picture pixels; an edge is known to half of one.
    let half = 853.0 / 320.0 / 2.0 + 0.01;
    let edges =
        [(found.x.into(), left), (found.y.into(), top), (found.right(), right), (found.bottom(), bottom)];
    for (got, wanted) in edges {
        let got: f64 = got;
        assert!((got - f64::from(wanted)).abs() <= half, "{found:?}");
    }
}

// Shapes that do not fit, and guesses.

fn refusal(family: Family, shape: &[i64], classes: usize) -> String {
    output_spec(family, shape, classes).decoder().unwrap_err().to_string()
}

#[test]
fn seventy_nine_labels_for_eighty_classes_are_told_with_both_numbers() {
    let text = refusal(Family::YoloV8, &[-1, 84, 8400], 79);
    assert_eq!(
        text,
        "output output0 f32 [-1, 84, 8400] does not fit yolov8 with 79 classes, which needs f32 [N, 83, A] or \
         f32 [N, A, 83]; its shape is that of 80 classes, so it needs 80 labels, not 79"
    );
    let text = refusal(Family::YoloV5, &[1, 25_200, 85], 79);
    assert!(text.contains("f32 [N, A, 84] or f32 [N, 84, A]"), "{text}");
    assert!(text.contains("needs 80 labels, not 79"), "{text}");
}

#[test]
fn shapes_and_types_of_other_families_are_refused() {
    assert!(refusal(Family::YoloEndToEnd, &[1, 100, 7], 80).contains("f32 [N, K, 6]"));
    refusal(Family::YoloEndToEnd, &[1, 6, 100], 80);
    refusal(Family::YoloV8, &[84, 8400], 80);
    refusal(Family::YoloV8, &[1, 1, 84, 8400], 80);
    refusal(Family::YoloV8, &[], 80);
    assert!(refusal(Family::YoloV8, &[1, 4, 8400], 0).contains("at least one label"));
    refusal(Family::YoloV5, &[1, 25_200, 85], usize::MAX);
    let mut bytes = output_spec(Family::YoloV8, &[1, 84, 8400], 80);
    bytes.tensor.element_type = ElementType::U8;
    let text = bytes.decoder().unwrap_err().to_string();
    assert!(text.contains("output0 u8 [1, 84, 8400]") && text.contains("f32 [N, 84, A]"), "{text}");
}

#[test]
fn an_absurd_number_of_anchors_costs_no_memory() {
    for family in [Family::YoloV8, Family::YoloV5] {
        output_spec(family, &[1, i64::MAX, 7], if family == Family::YoloV8 { 3 } else { 2 })
            .decoder()
            .unwrap();
    }
    output_spec(Family::YoloEndToEnd, &[1, i64::MAX, 6], 4).decoder().unwrap();
}

#[test]
fn a_tensor_that_is_not_the_promised_one_is_an_error_and_adds_nothing() {
    let mut decoder = output_spec(Family::YoloV8, &[-1, 6, 3], 2).decoder().unwrap();
    let (back, mut found) = (as_it_is(64), Vec::new());
    let elements = [0.5; 36];
    let mut run = |shape: &[usize], elements: Elements<'_>, slot| {
        decoder.decode(&TensorView { shape, elements }, slot, &back, 0.1, &mut found).unwrap_err()
    };
    assert_eq!(run(&[2, 6, 3], Elements::F32(&elements), 2), DecodeError::Tensor { slot: 2 });
    assert_eq!(run(&[1, 6, 3], Elements::U8(&[0; 18]), 0), DecodeError::Tensor { slot: 0 });
    assert_eq!(run(&[1, 6, 3], Elements::F32(&elements[..17]), 0), DecodeError::Tensor { slot: 0 });
    assert_eq!(run(&[], Elements::F32(&elements), 0), DecodeError::Tensor { slot: 0 });
    let text = run(&[1, 3, 6], Elements::F32(&elements), 0).to_string();
    assert!(text.contains("output0 f32 [1, 3, 6] does not fit yolov8 with 2 classes"), "{text}");
    assert!(matches!(run(&[1, 36], Elements::F32(&elements), 0), DecodeError::Shape { .. }));
    assert!(found.is_empty());
}

#[test]
fn the_family_is_guessed_from_the_shape() {
    use Family::{YoloEndToEnd, YoloV5, YoloV8};
    let guessed = |shape: &[i64], classes| guess(&Shape::new(shape), classes);
    assert_eq!(guessed(&[-1, 84, 8400], None), Some((YoloV8, Some(80))));
    assert_eq!(guessed(&[-1, 8, 1344], Some(4)), Some((YoloV8, Some(4))));
    assert_eq!(guessed(&[1, 84, 1917], Some(80)), Some((YoloV8, Some(80))));
    assert_eq!(guessed(&[1, 84, -1], None), Some((YoloV8, Some(80))));
    assert_eq!(guessed(&[1, 25_200, 85], None), Some((YoloV5, Some(80))));
    assert_eq!(guessed(&[1, -1, 85], Some(80)), Some((YoloV5, Some(80))));
    assert_eq!(guessed(&[1, 8400, 84], Some(80)), Some((YoloV8, Some(80))), "transposed");
    assert_eq!(guessed(&[-1, 100, 6], Some(4)), Some((YoloEndToEnd, Some(4))));
    assert_eq!(guessed(&[1, 300, 6], None), Some((YoloEndToEnd, None)));
    assert_eq!(guessed(&[1, -1, 6], None), Some((YoloEndToEnd, None)));
    assert_eq!(guessed(&[1, 8400, 6], Some(2)), Some((YoloV8, Some(2))), "too many to be chosen boxes");
    assert_eq!(guessed(&[1, 25_200, 6], None), Some((YoloV5, Some(1))));
    assert_eq!(guessed(&[1, 6, 8400], None), Some((YoloV8, Some(2))));
    assert_eq!(guessed(&[1, 84, 21], Some(80)), Some((YoloV8, Some(80))), "fewer anchors than channels");
    assert_eq!(guessed(&[1, 84, 8400], Some(79)), None, "a missing label makes no other family");
    assert_eq!(guessed(&[1, 4, 8400], None), None, "boxes without classes");
    assert_eq!(guessed(&[1, 1000], None), None);
    assert_eq!(guessed(&[-1, -1, -1], Some(80)), None);
    assert_eq!(guessed(&[1, 32, 160, 160], None), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What is guessed can always be decoded.
    #[test]
    fn a_guess_has_a_decoder(first in -1..40_i64, second in -1..40_i64, classes in proptest::option::of(1..40_usize)) {
        let shape = [1, if first == 0 { -1 } else { first }, if second == 0 { -1 } else { second }];
        if let Some((family, found)) = guess(&Shape::new(&shape), classes) {
            let decoder = output_spec(family, &shape, found.unwrap_or(7)).decoder();
            prop_assert!(decoder.is_ok(), "{shape:?}: {family:?} {found:?}: {decoder:?}");
        }
    }
}

// What no output may do.

/// Numbers of a sensible size, and a few that are none.
fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![
        20 => -20.0..120.0_f32,
        20 => 0.0..1.0_f32,
        1 => Just(f32::NAN),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
        1 => any::<f32>(),
    ]
}

#[derive(Debug)]
struct Anything {
    spec: OutputSpec,
    shape: [usize; 3],
    elements: Vec<f32>,
    back: Letterbox,
    score_min: f32,
}

fn anything() -> impl Strategy<Value = Anything> {
    let picture = (1..200_u32, 1..200_u32, 1..120_u32, 1..120_u32, (0..9_u32, 0..9_u32, 0..3_usize));
    let choice = (0..3_usize, any::<bool>(), any::<bool>(), 1..4_usize, 0..30_usize);
    (choice, picture, 0.0..1.0_f32, 0.0..0.9_f32).prop_flat_map(|(choice, picture, iou, score_min)| {
        let (family, transposed, per_class, classes, anchors) = choice;
        let family = Family::ALL[family];
        let channels = match family {
            Family::YoloV8 => 4 + classes,
            Family::YoloV5 => 5 + classes,
            Family::YoloEndToEnd => 6,
        };
        let swap = transposed && family != Family::YoloEndToEnd;
        let shape = if swap { [1, channels, anchors] } else { [1, anchors, channels] };
        let declared = shape.map(|size| i64::try_from(size).unwrap());
        let suppression = if per_class { Suppression::PerClass } else { Suppression::Agnostic };
        let spec = OutputSpec { iou, suppression, ..output_spec(family, &declared, classes) };
        let (width, height, input_width, input_height, (x, y, resize)) = picture;
        let resize = [Resize::Letterbox, Resize::Stretch, Resize::Crop][resize];
        let input = InputSpec { resize, ..input(input_width, input_height) };
        let whole = (width + 2 * x, height + y);
        let back = Letterbox::of_region(whole, Region { x, y, width, height }, &input);
        proptest::collection::vec(any_number(), channels * anchors).prop_map(move |elements| Anything {
            spec: spec.clone(),
            shape,
            elements,
            back,
            score_min,
        })
    })
}

/// Left, top, right and bottom of the part that was looked at.
fn edges(back: &Letterbox) -> [f64; 4] {
    let Region { x, y, width, height } = back.region;
    [x, y, x + width, y + height].map(f64::from)
}

fn inside(detection: &Detection, back: &Letterbox) -> bool {
    let (bbox, [left, top, right, bottom]) = (detection.bbox, edges(back));
    f64::from(bbox.x) >= left
        && f64::from(bbox.y) >= top
        && bbox.right() <= right
        && bbox.bottom() <= bottom
        && bbox.is_proper()
}

/// Whether an edge of what was looked at may have cut a box.
fn cut(detection: &Detection, back: &Letterbox) -> bool {
    let (bbox, [left, top, right, bottom]) = (detection.bbox, edges(back));
    f64::from(bbox.x) <= left
        || f64::from(bbox.y) <= top
        || bbox.right() >= right - 1e-3
        || bbox.bottom() >= bottom - 1e-3
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_output_is_detections_are_finite_inside_sorted_and_not_doubled(any in anything()) {
        let mut decoder = any.spec.decoder().unwrap();
        let found = decode(decoder.as_mut(), &any.shape, &any.elements, &any.back, any.score_min);
        for detection in &found {
            prop_assert!(detection.score.is_finite() && detection.score >= any.score_min, "{:?}", detection);
            prop_assert!((detection.class_id as usize) < any.spec.classes, "{:?}", detection);
            prop_assert!(inside(detection, &any.back), "{:?}", detection);
        }
        prop_assert!(found.is_sorted_by(|a, b| a.score >= b.score), "{:?}", found);
        if any.spec.family != Family::YoloEndToEnd {
            // Suppression looks at whole boxes, so only those that were not cut can be judged afterwards.
            let whole: Vec<_> = found.iter().filter(|detection| !cut(detection, &any.back)).collect();
            for (place, a) in whole.iter().enumerate() {
                for b in &whole[place + 1..] {
                    let rivals = any.spec.suppression == Suppression::Agnostic || a.class_id == b.class_id;
                    prop_assert!(!rivals || a.bbox.iou(&b.bbox) <= any.spec.iou + 1e-5, "{:?} {:?}", a, b);
                }
            }
        }
    }

    /// The two orders of one table are read alike.
    #[test]
    fn a_transposed_output_gives_the_same_detections(any in anything()) {
        let [_, rows, columns] = any.shape;
        if any.spec.family == Family::YoloEndToEnd || rows == columns {
            return Ok(());
        }
        let turned: Vec<f32> = (0..columns)
            .flat_map(|column| (0..rows).map(move |row| row * columns + column))
            .map(|place| any.elements[place])
            .collect();
        let declared = [1, i64::try_from(columns).unwrap(), i64::try_from(rows).unwrap()];
        let mut other = any.spec.clone();
        other.tensor.shape = Shape::new(&declared);
        let mut decoders = (any.spec.decoder().unwrap(), other.decoder().unwrap());
        let straight = decode(decoders.0.as_mut(), &any.shape, &any.elements, &any.back, any.score_min);
        let turned = decode(decoders.1.as_mut(), &[1, columns, rows], &turned, &any.back, any.score_min);
        prop_assert_eq!(straight, turned);
    }
}
