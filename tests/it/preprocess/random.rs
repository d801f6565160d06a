//! Random pictures, regions and inputs.

use gantry::backend::tensor::ElementType;
use gantry::frame::{Geometry, PixelFormat};
use gantry::preprocess::host::Preprocessor;
use gantry::preprocess::kernel::Kernel;
use gantry::preprocess::letterbox::RegionConfig;
use gantry::preprocess::{Align, ColorOrder, Filter, InputSpec, Layout, Resize};
use proptest::prelude::*;

use super::{MATRICES, RANGES, assert_as_reference, noise, run, spec, types};

fn any_spec() -> impl Strategy<Value = InputSpec> {
    let choices = (0..8_usize, 0..2_usize, 0..2_usize, (0..3_usize, 0..3_usize, 0..2_usize), any::<u8>());
    (1..70_u32, 1..70_u32, choices).prop_map(|(width, height, (kind, layout, color, fit, pad))| {
        let resize = [Resize::Letterbox, Resize::Stretch, Resize::Crop][fit.0];
        let filter = [Filter::Bilinear, Filter::Area, Filter::Auto][fit.1];
        let align = [Align::Center, Align::TopLeft][fit.2];
        let (layout, color) =
            ([Layout::Nchw, Layout::Nhwc][layout], [ColorOrder::Rgb, ColorOrder::Bgr][color]);
        types(&InputSpec { layout, color, resize, filter, align, pad, ..spec(width, height) })
            .swap_remove(kind)
    })
}

fn any_geometry() -> impl Strategy<Value = Geometry> {
    (0..PixelFormat::ALL.len(), 1..120_u32, 1..120_u32, 0..3_usize, 0..2_usize).prop_map(
        |(format, width, height, matrix, range)| {
            Geometry::packed(PixelFormat::ALL[format], width, height, MATRICES[matrix], RANGES[range])
        },
    )
}

/// A region of a picture, by fractions of what there is room for; all of it half of the time.
fn region(geometry: &Geometry, fractions: [f64; 4]) -> RegionConfig {
    if fractions[0] < 0.5 {
        return RegionConfig::default();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small number")]
    let part = |fraction: f64, of: u32| (fraction * f64::from(of)) as u32;
    let (x, y) = (part(fractions[0] * 2.0 - 1.0, geometry.width), part(fractions[1], geometry.height));
    let size = |fraction, room: u32| 1 + part(fraction, room - 1);
    let (width, height) = (size(fractions[2], geometry.width - x), size(fractions[3], geometry.height - y));
    RegionConfig { x, y, width: Some(width), height: Some(height) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_region_of_any_picture_with_any_strides_in_any_input_gives_the_reference(
        spec in any_spec(),
        geometry in any_geometry(),
        fractions in [0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0],
        seed in any::<u64>(),
        gap in 0..40_usize,
        slack in 0..40_usize,
    ) {
        assert_as_reference(&spec, &noise(geometry, seed, gap, slack, 0x33), region(&geometry, fractions));
    }

    #[test]
    fn bytes_around_the_picture_are_never_read(
        spec in any_spec(),
        geometry in any_geometry(),
        seed in any::<u64>(),
        gap in 0..40_usize,
        slack in 0..40_usize,
    ) {
        for kernel in Kernel::available() {
            let tensor = |poison| {
                let picture = noise(geometry, seed, gap, slack, poison);
                run(&mut Preprocessor::with_kernel(spec.clone(), kernel), &picture, RegionConfig::default())
            };
            prop_assert_eq!(tensor(0), tensor(255));
        }
    }

    /// Kernels differ by how they round the last digits of a float, and by nothing else.
    #[test]
    fn all_kernels_give_the_same(
        spec in any_spec(),
        geometry in any_geometry(),
        fractions in [0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0],
        seed in any::<u64>(),
    ) {
        let picture = noise(geometry, seed, 0, 0, 0);
        let unit: f64 = match spec.element_type {
            ElementType::F32 | ElementType::F16 | ElementType::Bf16 => 1.0 / 255.0,
            ElementType::U8 | ElementType::I8 => 1.0,
        };
        let tensors: Vec<Vec<f64>> = Kernel::available()
            .into_iter()
            .map(|kernel| {
                let mut preprocessor = Preprocessor::with_kernel(spec.clone(), kernel);
                run(&mut preprocessor, &picture, region(&geometry, fractions))
            })
            .collect();
        for other in &tensors[1..] {
            for (one, other) in tensors[0].iter().zip(other) {
                // A float of 16 bits may fall to the other side of a tie, which is one of its own digits.
                let digit = if spec.element_type == ElementType::Bf16 { one.abs() / 128.0 } else { one.abs() / 1024.0 };
                prop_assert!((one - other).abs() <= unit.max(digit), "{} and {}", one, other);
            }
        }
    }
}
