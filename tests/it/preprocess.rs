//! The fused pass against a plain reference in `f64`, written from the definition and not from the code.

use std::time::{Duration, Instant};

use gantry::backend::tensor::{ElementType, ElementsMut};
use gantry::frame::clock::{CaptureClock, Captured};
use gantry::frame::{
    CameraId, ColorMatrix, ColorRange, Frame, FrameTimes, Geometry, LentMemory, Memory, PixelFormat, Plane,
};
use gantry::preprocess::host::{GEOMETRIES_MAX, Held, Preprocessor};
use gantry::preprocess::letterbox::Letterbox;
use gantry::preprocess::{Align, ColorOrder, InputSpec, Layout, PreprocessError, Resize};
use proptest::prelude::*;

/// What floats may cost, in steps of 0..=255.
const TOLERANCE: f64 = 5e-4;

const MATRICES: [ColorMatrix; 3] = [ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020];
const RANGES: [ColorRange; 2] = [ColorRange::Limited, ColorRange::Full];

fn spec(width: u32, height: u32) -> InputSpec {
    InputSpec { std: [1.0; 3], ..super::postprocess::input(width, height) }
}

/// A frame of these bytes.
pub(crate) fn frame(geometry: Geometry, bytes: Vec<u8>) -> Frame {
    let now = Instant::now();
    let captured = Captured { clock: CaptureClock::Test, at: now };
    let times = FrameTimes { pts: Some(Duration::ZERO), captured, received: now, ready: now };
    Frame::new(CameraId::new("test"), 1, times, geometry, Memory::Lent(LentMemory::new(bytes))).unwrap()
}

/// A picture of noise, with `gap` bytes before each plane and `slack` bytes after each row but the last of the memory.
/// What does not belong to the picture is `poison`.
fn noise(base: Geometry, seed: u64, gap: usize, slack: usize, poison: u8) -> Frame {
    let (mut geometry, mut offset) = (base, 0);
    // The last plane comes first in memory, so that nothing can rely on their order.
    for index in (0..base.format.planes()).rev() {
        let (row, rows) = base.format.plane_size(index, base.width as usize, base.height as usize);
        geometry.planes[index] = Plane { offset: offset + gap, stride: row + slack };
        offset += gap + (row + slack) * rows;
    }
    let mut bytes = vec![poison; geometry.len()];
    let mut random = fastrand::Rng::with_seed(seed);
    for index in 0..base.format.planes() {
        let (row, rows) = base.format.plane_size(index, base.width as usize, base.height as usize);
        for y in 0..rows {
            let start = geometry.planes[index].offset + y * geometry.planes[index].stride;
            bytes[start..start + row].fill_with(|| random.u8(..));
        }
    }
    frame(geometry, bytes)
}

fn run_f32(preprocessor: &mut Preprocessor, frame: &Frame) -> (Letterbox, Vec<f32>) {
    let spec = preprocessor.spec();
    let mut slot = vec![f32::NAN; 3 * (spec.width * spec.height) as usize];
    let letterbox = preprocessor.write(frame, ElementsMut::F32(&mut slot), &mut Held::default()).unwrap();
    (letterbox, slot)
}

fn run_u8(preprocessor: &mut Preprocessor, frame: &Frame) -> Vec<u8> {
    let spec = preprocessor.spec();
    let mut slot = vec![0xa5; 3 * (spec.width * spec.height) as usize];
    preprocessor.write(frame, ElementsMut::U8(&mut slot), &mut Held::default()).unwrap();
    slot
}

mod reference {
    //! One input pixel at a time, in `f64`, straight from the definition.

    use super::*;

    /// One component of a picture.
    struct Component {
        plane: usize,
        step: usize,
        byte: usize,
        width: i64,
        height: i64,
    }

    fn component(geometry: &Geometry, index: usize) -> Component {
        let (width, height) = (i64::from(geometry.width), i64::from(geometry.height));
        let (half_width, half_height) = ((width + 1) / 2, (height + 1) / 2);
        let whole = |step, byte| Component { plane: 0, step, byte, width, height };
        let packed = |byte| Component { plane: 0, step: 4, byte, width: half_width, height };
        let planar =
            |plane, step, byte| Component { plane, step, byte, width: half_width, height: half_height };
        match (geometry.format, index) {
            (PixelFormat::Nv12 | PixelFormat::I420, 0) | (PixelFormat::Gray8, _) => whole(1, 0),
            (PixelFormat::Nv12, _) => planar(1, 2, index - 1),
            (PixelFormat::I420, _) => planar(index, 1, 0),
            (PixelFormat::Yuy2, 0) => whole(2, 0),
            (PixelFormat::Yuy2, _) => packed(index * 2 - 1),
            (PixelFormat::Uyvy, 0) => whole(2, 1),
            (PixelFormat::Uyvy, _) => packed(index * 2 - 2),
            (PixelFormat::Rgb, _) => whole(3, index),
            (PixelFormat::Bgr, _) => whole(3, 2 - index),
            (PixelFormat::Rgba, _) => whole(4, index),
            (PixelFormat::Bgra, _) => whole(4, 2 - index),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "places in small pictures")]
    fn sample(frame: &Frame, index: usize, x: f64, y: f64) -> f64 {
        let geometry = frame.geometry();
        let component = component(geometry, index);
        let at = |column: i64, row: i64| {
            let column = usize::try_from(column.clamp(0, component.width - 1)).unwrap();
            let row = usize::try_from(row.clamp(0, component.height - 1)).unwrap();
            let place = row * geometry.planes[component.plane].stride + column * component.step;
            f64::from(frame.plane(component.plane)[place + component.byte])
        };
        let (left, top) = (x.floor() as i64, y.floor() as i64);
        let (right_share, bottom_share) = (x - x.floor(), y - y.floor());
        at(left, top) * (1.0 - right_share) * (1.0 - bottom_share)
            + at(left + 1, top) * right_share * (1.0 - bottom_share)
            + at(left, top + 1) * (1.0 - right_share) * bottom_share
            + at(left + 1, top + 1) * right_share * bottom_share
    }

    /// The R'G'B' for which the forward formula of the standard gives this YCbCr.
    fn rgb_of(geometry: &Geometry, y: f64, cb: f64, cr: f64) -> [f64; 3] {
        let (kr, kg, kb) = match geometry.matrix {
            ColorMatrix::Bt601 => (0.299, 0.587, 0.114),
            ColorMatrix::Bt709 => (0.2126, 0.7152, 0.0722),
            ColorMatrix::Bt2020 => (0.2627, 0.678, 0.0593),
        };
        let (luma, pb, pr) = match geometry.range {
            ColorRange::Limited => ((y - 16.0) / 219.0, (cb - 128.0) / 224.0, (cr - 128.0) / 224.0),
            ColorRange::Full => (y / 255.0, (cb - 128.0) / 255.0, (cr - 128.0) / 255.0),
        };
        // PB = (B - Y) / (2 (1 - kb)), PR = (R - Y) / (2 (1 - kr)), Y = kr R + kg G + kb B.
        let (red, blue) = (luma + pr * 2.0 * (1.0 - kr), luma + pb * 2.0 * (1.0 - kb));
        let green = (luma - kr * red - kb * blue) / kg;
        [red, green, blue].map(|value| (value * 255.0).clamp(0.0, 255.0))
    }

    fn rgb_at(frame: &Frame, x: f64, y: f64) -> [f64; 3] {
        let geometry = frame.geometry();
        let (chroma_x, chroma_y) = match geometry.format {
            PixelFormat::Nv12 | PixelFormat::I420 => (x / 2.0, (y - 0.5) / 2.0),
            PixelFormat::Yuy2 | PixelFormat::Uyvy => (x / 2.0, y),
            PixelFormat::Gray8 => {
                return rgb_of(geometry, sample(frame, 0, x, y), 128.0, 128.0);
            }
            _ => return [0, 1, 2].map(|index| sample(frame, index, x, y)),
        };
        let chroma = |index| sample(frame, index, chroma_x, chroma_y);
        rgb_of(geometry, sample(frame, 0, x, y), chroma(1), chroma(2))
    }

    /// Left, top, width and height of the scaled picture.
    fn placement(spec: &InputSpec, picture: (f64, f64)) -> (f64, f64, f64, f64) {
        let (width, height) = (f64::from(spec.width), f64::from(spec.height));
        if spec.resize == Resize::Stretch {
            return (0.0, 0.0, width, height);
        }
        let scale = f64::min(width / picture.0, height / picture.1);
        let content =
            ((picture.0 * scale).round().clamp(1.0, width), (picture.1 * scale).round().clamp(1.0, height));
        match spec.align {
            Align::TopLeft => (0.0, 0.0, content.0, content.1),
            Align::Center => {
                let (left, top) = (((width - content.0) / 2.0).floor(), ((height - content.1) / 2.0).floor());
                (left, top, content.0, content.1)
            }
        }
    }

    /// The tensor, not rounded.
    pub(super) fn tensor(spec: &InputSpec, frame: &Frame) -> Vec<f64> {
        let (width, height) = (spec.width as usize, spec.height as usize);
        let picture = (f64::from(frame.geometry().width), f64::from(frame.geometry().height));
        let (left, top, content_width, content_height) = placement(spec, picture);
        let mut tensor = vec![f64::NAN; 3 * width * height];
        for y in 0..spec.height {
            for x in 0..spec.width {
                let (content_x, content_y) = (f64::from(x) - left, f64::from(y) - top);
                let inside =
                    (0.0..content_width).contains(&content_x) && (0.0..content_height).contains(&content_y);
                let rgb = if inside {
                    let picture_x = (content_x + 0.5) * picture.0 / content_width - 0.5;
                    let picture_y = (content_y + 0.5) * picture.1 / content_height - 0.5;
                    rgb_at(frame, picture_x, picture_y)
                } else {
                    [f64::from(spec.pad); 3]
                };
                for channel in 0..3 {
                    let source = if spec.color == ColorOrder::Rgb { channel } else { 2 - channel };
                    let value = (rgb[source] - f64::from(spec.mean[channel])) / f64::from(spec.std[channel]);
                    let (x, y) = (x as usize, y as usize);
                    let place = match spec.layout {
                        Layout::Nchw => (channel * height + y) * width + x,
                        Layout::Nhwc => (y * width + x) * 3 + channel,
                    };
                    tensor[place] = value;
                }
            }
        }
        tensor
    }
}

/// Compares every element, of floats or of bytes as the spec has it.
fn assert_as_reference(preprocessor: &mut Preprocessor, frame: &Frame) {
    let spec = preprocessor.spec().clone();
    let wanted = reference::tensor(&spec, frame);
    let tolerance = TOLERANCE / f64::from(spec.std.iter().copied().fold(f32::INFINITY, f32::min));
    let got: Vec<f64> = match spec.element_type {
        ElementType::F32 => run_f32(preprocessor, frame).1.into_iter().map(f64::from).collect(),
        ElementType::U8 => run_u8(preprocessor, frame).into_iter().map(f64::from).collect(),
    };
    assert_eq!(got.len(), wanted.len());
    for (place, (got, wanted)) in got.into_iter().zip(wanted).enumerate() {
        let allowed = if spec.element_type == ElementType::U8 { 0.5 + tolerance } else { tolerance };
        let off = (got - wanted).abs();
        assert!(
            off <= allowed,
            "element {place} is {got} instead of {wanted}: {spec:?} {:?}",
            frame.geometry()
        );
    }
}

#[test]
fn every_format_size_matrix_and_range_gives_the_reference() {
    let sizes = [(1, 1), (3, 2), (2, 3), (37, 23), (64, 48), (130, 96), (853, 479)];
    for (seed, format) in (1u64..).zip(PixelFormat::ALL) {
        let mut preprocessor = Preprocessor::new(spec(64, 56));
        for (width, height) in sizes {
            for matrix in MATRICES {
                for range in RANGES {
                    let geometry = Geometry::packed(format, width, height, matrix, range);
                    assert_as_reference(&mut preprocessor, &noise(geometry, seed, 0, 0, 0));
                    assert_as_reference(&mut preprocessor, &noise(geometry, seed + 100, 5, 11, 0xee));
                }
            }
        }
    }
}

#[test]
fn every_layout_order_type_fit_and_normalisation_gives_the_reference() {
    let geometry = Geometry::packed(PixelFormat::Nv12, 61, 35, ColorMatrix::Bt709, ColorRange::Limited);
    let wide = noise(geometry, 7, 3, 2, 9);
    let tall = noise(Geometry { width: 35, height: 62, ..geometry }, 8, 0, 4, 9);
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for color in [ColorOrder::Rgb, ColorOrder::Bgr] {
            for (resize, align) in [
                (Resize::Letterbox, Align::Center),
                (Resize::Letterbox, Align::TopLeft),
                (Resize::Stretch, Align::Center),
            ] {
                let bytes =
                    InputSpec { element_type: ElementType::U8, layout, color, resize, align, ..spec(33, 31) };
                let floats = InputSpec {
                    element_type: ElementType::F32,
                    mean: [123.675, 116.28, 103.53],
                    std: [58.395, 57.12, 57.375],
                    ..bytes.clone()
                };
                let unit = InputSpec { mean: [0.0; 3], std: [255.0; 3], ..floats.clone() };
                for spec in [bytes, floats, unit] {
                    let mut preprocessor = Preprocessor::new(spec);
                    assert_as_reference(&mut preprocessor, &wide);
                    assert_as_reference(&mut preprocessor, &tall);
                }
            }
        }
    }
}

#[test]
fn the_letterbox_answered_is_where_the_picture_lies() {
    let geometry = Geometry::packed(PixelFormat::Gray8, 640, 480, ColorMatrix::Bt601, ColorRange::Full);
    let white = frame(geometry, vec![255; 640 * 480]);
    let (letterbox, tensor) = run_f32(&mut Preprocessor::new(spec(256, 256)), &white);
    assert_eq!((letterbox.origin, letterbox.content), ((0, 32), (256, 192)));
    for (place, value) in tensor.iter().enumerate() {
        let row = place / 256 % 256;
        let wanted = if (32..224).contains(&row) { 255.0 } else { 114.0 };
        assert!((value - wanted).abs() < 1e-3, "{value} in row {row}");
    }
}

#[test]
fn an_edge_in_the_picture_comes_back_from_the_tensor_at_its_place() {
    // A step from black to white at column 341, found again half-way up the ramp of the resized row.
    let (width, height, edge) = (853_u32, 479_u32, 341_u32);
    let geometry = Geometry::packed(PixelFormat::Gray8, width, height, ColorMatrix::Bt601, ColorRange::Full);
    let row: Vec<u8> = (0..width).map(|x| if x < edge { 0 } else { 255 }).collect();
    let step = frame(geometry, row.repeat(height as usize));
    // Enlarged, so that the ramp is sampled densely.
    let input = spec(2048, 2048);
    let (letterbox, tensor) = run_f32(&mut Preprocessor::new(input), &step);
    let row = &tensor[1024 * 2048..1025 * 2048];
    let first = row.iter().position(|&value| value >= 127.5).unwrap();
    let part = f64::from((127.5 - row[first - 1]) / (row[first] - row[first - 1]));
    let centre = f64::from(u32::try_from(first).unwrap()) - 0.5 + part;
    let (x, _) = letterbox.to_picture(centre, 0.0);
    assert!((x - f64::from(edge)).abs() < 1e-3, "{x}");
}

#[test]
fn a_slot_shows_nothing_of_the_picture_that_was_there_before() {
    let geometry = |width, height| {
        Geometry::packed(PixelFormat::I420, width, height, ColorMatrix::Bt601, ColorRange::Limited)
    };
    let (wide, tall) = (noise(geometry(90, 30), 1, 0, 0, 0), noise(geometry(30, 90), 2, 0, 0, 0));
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let mut preprocessor = Preprocessor::new(InputSpec { layout, ..spec(48, 48) });
        let (mut slot, mut held) = (vec![0.0; 3 * 48 * 48], Held::default());
        for frame in [&wide, &wide, &tall, &tall, &wide] {
            let (_, fresh) = run_f32(&mut preprocessor, frame);
            preprocessor.write(frame, ElementsMut::F32(&mut slot), &mut held).unwrap();
            assert_eq!(slot, fresh);
        }
    }
}

#[test]
fn padding_is_written_once_for_each_slot_and_placement() {
    let geometry = |width, height| {
        Geometry::packed(PixelFormat::Gray8, width, height, ColorMatrix::Bt601, ColorRange::Full)
    };
    let (wide, tall) = (noise(geometry(90, 30), 1, 0, 0, 0), noise(geometry(30, 90), 2, 0, 0, 0));
    let same_place = noise(geometry(180, 60), 3, 0, 0, 0);
    let mut preprocessor = Preprocessor::new(spec(48, 48));
    let (mut slots, mut held) =
        ([vec![0.0; 3 * 48 * 48], vec![0.0; 3 * 48 * 48]], [(); 2].map(|()| Held::default()));
    // The first element is padding in both placements; what is written over it shows who writes it again.
    let mut repads = |slot: usize, frame: &Frame| {
        slots[slot][0] = -1.0;
        preprocessor.write(frame, ElementsMut::F32(&mut slots[slot]), &mut held[slot]).unwrap();
        slots[slot][0] >= 0.0
    };
    assert!(repads(0, &wide) && repads(1, &wide), "each slot has its own");
    assert!(!repads(0, &wide) && !repads(0, &same_place) && !repads(1, &same_place));
    assert!(repads(0, &tall), "another placement");
    assert!(!repads(0, &tall) && !repads(1, &wide));
    assert!(repads(0, &wide), "and the first one again");
}

#[test]
fn more_geometries_than_are_kept_still_give_the_reference() {
    let mut preprocessor = Preprocessor::new(spec(24, 24));
    let kinds = u32::try_from(GEOMETRIES_MAX).unwrap() + 3;
    for _ in 0..2 {
        for size in 1..=kinds {
            let format = PixelFormat::ALL[size as usize % PixelFormat::ALL.len()];
            let geometry =
                Geometry::packed(format, size + 4, 40 - size, ColorMatrix::Bt709, ColorRange::Full);
            assert_as_reference(&mut preprocessor, &noise(geometry, u64::from(size), 1, 1, 3));
        }
    }
}

#[test]
fn a_slot_of_another_model_is_refused_with_both_descriptions() {
    let geometry = Geometry::packed(PixelFormat::Gray8, 4, 4, ColorMatrix::Bt601, ColorRange::Full);
    let grey = frame(geometry, vec![7; 16]);
    let mut preprocessor = Preprocessor::new(spec(8, 8));
    let mut short = vec![1.0; 191];
    let error = preprocessor.write(&grey, ElementsMut::F32(&mut short), &mut Held::default()).unwrap_err();
    assert_eq!(error, PreprocessError::Slot { wanted: 192, wanted_type: "f32", got: 191, got_type: "f32" });
    assert!(short.iter().all(|&value| value.to_bits() == 1.0_f32.to_bits()), "nothing was written");
    let error = preprocessor.write(&grey, ElementsMut::U8(&mut [0; 192]), &mut Held::default()).unwrap_err();
    assert!(error.to_string().contains("192 elements of f32"), "{error}");
    assert!(error.to_string().contains("192 of u8"), "{error}");
}

fn any_spec() -> impl Strategy<Value = InputSpec> {
    let choices = (0..2_usize, 0..2_usize, 0..2_usize, 0..3_usize, any::<u8>());
    (1..70_u32, 1..70_u32, choices).prop_map(|(width, height, (element, layout, color, fit, pad))| {
        let (resize, align) = [
            (Resize::Letterbox, Align::Center),
            (Resize::Letterbox, Align::TopLeft),
            (Resize::Stretch, Align::Center),
        ][fit];
        let element_type = [ElementType::F32, ElementType::U8][element];
        let (layout, color) =
            ([Layout::Nchw, Layout::Nhwc][layout], [ColorOrder::Rgb, ColorOrder::Bgr][color]);
        InputSpec { element_type, layout, color, resize, align, pad, ..spec(width, height) }
    })
}

fn any_geometry() -> impl Strategy<Value = Geometry> {
    (0..PixelFormat::ALL.len(), 1..90_u32, 1..90_u32, 0..3_usize, 0..2_usize).prop_map(
        |(format, width, height, matrix, range)| {
            Geometry::packed(PixelFormat::ALL[format], width, height, MATRICES[matrix], RANGES[range])
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_picture_with_any_strides_in_any_input_gives_the_reference(
        spec in any_spec(),
        geometry in any_geometry(),
        seed in any::<u64>(),
        gap in 0..40_usize,
        slack in 0..40_usize,
    ) {
        assert_as_reference(&mut Preprocessor::new(spec), &noise(geometry, seed, gap, slack, 0x33));
    }

    #[test]
    fn bytes_around_the_picture_are_never_read(
        spec in any_spec(),
        geometry in any_geometry(),
        seed in any::<u64>(),
        gap in 0..40_usize,
        slack in 0..40_usize,
    ) {
        let spec = InputSpec { element_type: ElementType::F32, ..spec };
        let tensor = |poison| {
            let picture = noise(geometry, seed, gap, slack, poison);
            run_f32(&mut Preprocessor::new(spec.clone()), &picture).1
        };
        prop_assert_eq!(tensor(0), tensor(255));
    }
}
