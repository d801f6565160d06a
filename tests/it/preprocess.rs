//! The fused pass against a plain reference in `f64`, written from the definition and not from the code: every kernel that
//! this machine can run, each format, each kind of input.

mod memory;
mod random;
mod reference;

use std::time::{Duration, Instant};

use gantry::backend::tensor::{ElementType, Elements, ElementsMut};
use gantry::frame::clock::{CaptureClock, Captured};
use gantry::frame::{
    CameraId, ColorMatrix, ColorRange, Frame, FrameTimes, Geometry, LentMemory, Memory, PixelFormat, Plane,
};
use gantry::preprocess::host::{Held, KINDS_MAX, Preprocessor};
use gantry::preprocess::kernel::Kernel;
use gantry::preprocess::letterbox::{Letterbox, RegionConfig};
use gantry::preprocess::{
    Align, ColorOrder, Filter, InputSpec, Layout, PreprocessError, Quantization, Resize,
};
use zerocopy::IntoBytes;

/// What integers on the way may cost, in steps of 0..=255. Half a step would do for any model.
const TOLERANCE: f64 = 0.1;

const MATRICES: [ColorMatrix; 3] = [ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020];
const RANGES: [ColorRange; 2] = [ColorRange::Limited, ColorRange::Full];

fn spec(width: u32, height: u32) -> InputSpec {
    InputSpec { std: [1.0; 3], ..super::postprocess::input(width, height) }
}

/// A frame of these bytes.
pub(crate) fn frame(geometry: Geometry, bytes: Vec<u8>) -> Frame {
    frame_in(geometry, Memory::Lent(LentMemory::new(bytes)))
}

fn frame_in(geometry: Geometry, memory: Memory) -> Frame {
    let now = Instant::now();
    let captured = Captured::new(CaptureClock::Test, now);
    let times = FrameTimes { pts: Some(Duration::ZERO), captured, received: now, ready: now };
    Frame::new(CameraId::new("test"), 1, times, geometry, memory).unwrap()
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

/// All of the picture.
fn whole() -> RegionConfig {
    RegionConfig::default()
}

fn run_f32(preprocessor: &mut Preprocessor, frame: &Frame) -> (Letterbox, Vec<f32>) {
    let spec = preprocessor.spec();
    let mut slot = vec![f32::NAN; 3 * (spec.width * spec.height) as usize];
    let letterbox =
        preprocessor.write(frame, whole(), ElementsMut::F32(&mut slot), &mut Held::default()).unwrap();
    (letterbox, slot)
}

/// The tensor, in whatever type its elements are, as numbers.
fn run(preprocessor: &mut Preprocessor, frame: &Frame, region: RegionConfig) -> Vec<f64> {
    fn numbers<T: Copy + Into<f64>>(elements: &[T]) -> Vec<f64> {
        elements.iter().map(|&element| element.into()).collect()
    }
    let spec = preprocessor.spec();
    let (len, element_type) = (3 * (spec.width * spec.height) as usize, spec.element_type);
    // What was there before is no element of any picture.
    let mut words = vec![u64::from_ne_bytes([0xa5; 8]); (len * element_type.size()).div_ceil(8)];
    let bytes = &mut words.as_mut_bytes()[..len * element_type.size()];
    preprocessor.write(frame, region, ElementsMut::of(element_type, bytes), &mut Held::default()).unwrap();
    match Elements::of(element_type, bytes) {
        Elements::F32(all) => numbers(all),
        Elements::F16(all) => numbers(all),
        Elements::Bf16(all) => numbers(all),
        Elements::U8(all) => numbers(all),
        Elements::I8(all) => numbers(all),
    }
}

/// Compares every element with the reference, for each kernel.
fn assert_as_reference(spec: &InputSpec, frame: &Frame, region: RegionConfig) {
    for kernel in Kernel::available() {
        assert_kernel_as_reference(&mut Preprocessor::with_kernel(spec.clone(), kernel), frame, region);
    }
}

fn assert_kernel_as_reference(preprocessor: &mut Preprocessor, frame: &Frame, region: RegionConfig) {
    let spec = preprocessor.spec().clone();
    let wanted = reference::tensor(&spec, frame, region);
    let step = f64::from(spec.std.iter().copied().fold(f32::INFINITY, f32::min) * spec.quantization.scale);
    let got = run(preprocessor, frame, region);
    assert_eq!(got.len(), wanted.len());
    for (place, (got, wanted)) in got.into_iter().zip(wanted).enumerate() {
        let rounding = match spec.element_type {
            ElementType::F32 => 0.0,
            ElementType::F16 => wanted.abs() / 2048.0,
            ElementType::Bf16 => wanted.abs() / 256.0,
            ElementType::U8 | ElementType::I8 => 0.5,
        };
        assert!(
            (got - wanted).abs() <= TOLERANCE / step + rounding,
            "element {place} is {got} instead of {wanted}: {spec:?} {:?} {region:?}",
            frame.geometry()
        );
    }
}

#[test]
fn every_kernel_that_this_machine_can_run_is_tested() {
    let names: Vec<&str> = Kernel::available().into_iter().map(Kernel::name).collect();
    assert_eq!(names.last(), Some(&"plain"));
    // A machine without AVX2 has nothing else to test; every 64-bit ARM processor has NEON.
    #[cfg(target_arch = "x86_64")]
    assert_eq!(names.contains(&"AVX2"), is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"));
    #[cfg(target_arch = "aarch64")]
    assert_eq!(names, ["NEON", "plain"]);
    assert_eq!(Kernel::best().name(), names[0]);
}

#[test]
fn every_format_size_matrix_and_range_gives_the_reference() {
    let sizes = [(1, 1), (3, 2), (2, 3), (37, 23), (64, 48), (130, 96), (853, 479)];
    for (seed, format) in (1u64..).zip(PixelFormat::ALL) {
        for (width, height) in sizes {
            for matrix in MATRICES {
                for range in RANGES {
                    let geometry = Geometry::packed(format, width, height, matrix, range);
                    assert_as_reference(&spec(41, 35), &noise(geometry, seed, 0, 0, 0), whole());
                    assert_as_reference(&spec(41, 35), &noise(geometry, seed + 100, 5, 11, 0xee), whole());
                }
            }
        }
    }
}

#[test]
fn every_layout_order_type_fit_filter_and_normalisation_gives_the_reference() {
    let geometry = Geometry::packed(PixelFormat::Nv12, 61, 35, ColorMatrix::Bt709, ColorRange::Limited);
    let pictures =
        [noise(geometry, 7, 3, 2, 9), noise(Geometry { width: 35, height: 122, ..geometry }, 8, 0, 4, 9)];
    let fits = [
        (Resize::Letterbox, Align::Center),
        (Resize::Letterbox, Align::TopLeft),
        (Resize::Stretch, Align::Center),
        (Resize::Crop, Align::Center),
        (Resize::Crop, Align::TopLeft),
    ];
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for color in [ColorOrder::Rgb, ColorOrder::Bgr] {
            for (resize, align) in fits {
                for filter in [Filter::Bilinear, Filter::Area, Filter::Auto] {
                    let plain = InputSpec { layout, color, resize, align, filter, ..spec(23, 21) };
                    for spec in types(&plain) {
                        for picture in &pictures {
                            assert_as_reference(&spec, picture, whole());
                        }
                    }
                }
            }
        }
    }
}

/// The input in every type of element, with the normalisation that such a model would have.
fn types(plain: &InputSpec) -> Vec<InputSpec> {
    let mean_and_std =
        InputSpec { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], ..plain.clone() };
    let unit = InputSpec { std: [255.0; 3], ..plain.clone() };
    let half = Quantization { scale: 0.0078125, zero_point: -3 };
    vec![
        InputSpec { element_type: ElementType::U8, ..plain.clone() },
        InputSpec {
            element_type: ElementType::U8,
            quantization: Quantization { zero_point: 130, ..half },
            ..mean_and_std.clone()
        },
        InputSpec {
            element_type: ElementType::I8,
            quantization: Quantization { scale: 1.0, zero_point: -128 },
            ..plain.clone()
        },
        InputSpec { element_type: ElementType::I8, quantization: half, ..unit.clone() },
        InputSpec { element_type: ElementType::F16, ..unit.clone() },
        InputSpec { element_type: ElementType::Bf16, ..mean_and_std.clone() },
        mean_and_std,
        unit,
    ]
}

#[test]
fn a_region_gives_what_the_picture_that_it_was_cut_out_of_would() {
    for (seed, format) in (1u64..).zip(PixelFormat::ALL) {
        let geometry = Geometry::packed(format, 90, 70, ColorMatrix::Bt601, ColorRange::Limited);
        let picture = noise(geometry, seed, 0, 3, 7);
        for (x, y, width, height) in
            [(0, 0, 90, 70), (13, 5, 40, 51), (12, 6, 1, 1), (89, 69, 1, 1), (3, 0, 87, 2)]
        {
            let region = RegionConfig { x, y, width: Some(width), height: Some(height) };
            for resize in [Resize::Letterbox, Resize::Stretch, Resize::Crop] {
                assert_as_reference(&InputSpec { resize, ..spec(31, 24) }, &picture, region);
            }
        }
        let corner = RegionConfig { x: 51, y: 22, width: None, height: None };
        assert_as_reference(&spec(31, 24), &picture, corner);
    }
}

#[test]
fn a_region_that_is_not_in_the_picture_is_told_with_both() {
    let geometry = Geometry::packed(PixelFormat::Nv12, 64, 48, ColorMatrix::Bt601, ColorRange::Full);
    let picture = noise(geometry, 1, 0, 0, 0);
    let mut preprocessor = Preprocessor::new(spec(8, 8));
    let (mut slot, mut held) = (vec![-1.0; 192], Held::default());
    for (x, y, width, height) in
        [(1, 0, Some(64), None), (0, 48, None, None), (64, 0, None, None), (0, 40, None, Some(9))]
    {
        let region = RegionConfig { x, y, width, height };
        let error = preprocessor.write(&picture, region, ElementsMut::F32(&mut slot), &mut held).unwrap_err();
        assert_eq!(error, PreprocessError::Region { region, picture: (64, 48) });
        let text = error.to_string();
        assert!(text.contains(&region.to_string()) && text.contains("64x48; correct `region`"), "{text}");
    }
    assert!(slot.iter().all(|&value| value.to_bits() == (-1.0_f32).to_bits()), "nothing was written");
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
    let part = RegionConfig { x: 101, y: 50, width: Some(600), height: Some(301) };
    for (resize, region) in [
        (Resize::Letterbox, whole()),
        (Resize::Letterbox, part),
        (Resize::Stretch, part),
        (Resize::Crop, whole()),
        (Resize::Crop, part),
    ] {
        // Enlarged, so that the ramp is sampled densely.
        let mut preprocessor = Preprocessor::new(InputSpec { resize, ..spec(2048, 2048) });
        let (mut tensor, mut held) = (vec![0.0; 3 * 2048 * 2048], Held::default());
        let letterbox = preprocessor.write(&step, region, ElementsMut::F32(&mut tensor), &mut held).unwrap();
        let row = &tensor[1024 * 2048..1025 * 2048];
        // What is left of the picture is padding, which is half bright.
        let left = usize::try_from(letterbox.origin.0.max(0)).unwrap();
        let first = left + row[left..].iter().position(|&value| value >= 127.5).unwrap();
        let part = f64::from((127.5 - row[first - 1]) / (row[first] - row[first - 1]));
        let centre = f64::from(u32::try_from(first).unwrap()) - 0.5 + part;
        let (x, _) = letterbox.to_picture(centre, 0.0);
        assert!((x - f64::from(edge)).abs() < 1e-3, "{x} with {resize:?} and {region}");
    }
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
            preprocessor.write(frame, whole(), ElementsMut::F32(&mut slot), &mut held).unwrap();
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
        preprocessor.write(frame, whole(), ElementsMut::F32(&mut slots[slot]), &mut held[slot]).unwrap();
        slots[slot][0] >= 0.0
    };
    assert!(repads(0, &wide) && repads(1, &wide), "each slot has its own");
    assert!(!repads(0, &wide) && !repads(0, &same_place) && !repads(1, &same_place));
    assert!(repads(0, &tall), "another placement");
    assert!(!repads(0, &tall) && !repads(1, &wide));
    assert!(repads(0, &wide), "and the first one again");
}

#[test]
fn more_kinds_of_pictures_than_are_kept_still_give_the_reference() {
    let mut preprocessor = Preprocessor::new(spec(24, 24));
    let kinds = u32::try_from(KINDS_MAX).unwrap() + 3;
    for _ in 0..2 {
        for size in 1..=kinds {
            let format = PixelFormat::ALL[size as usize % PixelFormat::ALL.len()];
            let geometry =
                Geometry::packed(format, size + 4, 90 - size, ColorMatrix::Bt709, ColorRange::Full);
            let picture = noise(geometry, u64::from(size), 1, 1, 3);
            assert_kernel_as_reference(&mut preprocessor, &picture, whole());
        }
    }
}

#[test]
fn a_slot_of_another_model_is_refused_with_both_descriptions() {
    let geometry = Geometry::packed(PixelFormat::Gray8, 4, 4, ColorMatrix::Bt601, ColorRange::Full);
    let grey = frame(geometry, vec![7; 16]);
    let mut preprocessor = Preprocessor::new(spec(8, 8));
    let mut short = vec![1.0; 191];
    let error =
        preprocessor.write(&grey, whole(), ElementsMut::F32(&mut short), &mut Held::default()).unwrap_err();
    assert_eq!(error, PreprocessError::Slot { wanted: 192, wanted_type: "f32", got: 191, got_type: "f32" });
    assert!(short.iter().all(|&value| value.to_bits() == 1.0_f32.to_bits()), "nothing was written");
    let error =
        preprocessor.write(&grey, whole(), ElementsMut::U8(&mut [0; 192]), &mut Held::default()).unwrap_err();
    assert!(error.to_string().contains("192 elements of f32"), "{error}");
    assert!(error.to_string().contains("192 of u8"), "{error}");
}
