//! YCbCr to R'G'B' by the ITU's formulas, and on to the values that the model wants, as one sum of products. Pure.

use super::kernel::{Channel, Mix, STEP};
use super::{ColorOrder, InputSpec};
use crate::frame::{ColorMatrix, ColorRange, Geometry, PixelFormat};

/// A colour as a sum: of what is multiplied with each component, and of the last.
type Sum = [f64; 4];

/// How a picture's components become the model's channels.
#[expect(clippy::cast_possible_truncation, reason = "rounded on purpose, after the last step")]
pub(super) fn mix(geometry: &Geometry, spec: &InputSpec) -> Mix {
    let [red, green, blue] = colors(geometry);
    let channels = match spec.color {
        ColorOrder::Rgb => [red, green, blue],
        ColorOrder::Bgr => [blue, green, red],
    };
    let (least, most) = match spec.element_type.integers() {
        Some(integers) => (f64::from(*integers.start()), f64::from(*integers.end())),
        None => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let mut affine = spec.affine().into_iter();
    Mix(channels.map(|[first, second, third, offset]| {
        let (gain, zero) = affine.next().expect("there are three of both");
        Channel {
            gains: [first, second, third].map(|factor| (factor * gain / STEP) as f32),
            offset: (offset * gain + zero) as f32,
            low: zero.clamp(least, most) as f32,
            high: (255.0 * gain + zero).clamp(least, most) as f32,
        }
    }))
}

/// R, G and B of 0..=255, beyond which they are clamped.
fn colors(geometry: &Geometry) -> [Sum; 3] {
    // H.273: E' = (Y - 16) / 219 and E'PB = (Cb - 128) / 224, or in full range (Y / 255) and (Cb - 128) / 255.
    let (black, gain, chroma_gain) = match geometry.range {
        ColorRange::Limited => (16.0, 255.0 / 219.0, 255.0 / 224.0),
        ColorRange::Full => (0.0, 1.0, 1.0),
    };
    // Luma is kr R + (1 - kr - kb) G + kb B, and Cb = (B - Y) / (2 - 2 kb), Cr = (R - Y) / (2 - 2 kr).
    let (kr, kb) = match geometry.matrix {
        ColorMatrix::Bt601 => (0.299, 0.114),
        ColorMatrix::Bt709 => (0.2126, 0.0722),
        ColorMatrix::Bt2020 => (0.2627, 0.0593),
    };
    let kg: f64 = 1.0 - kr - kb;
    let (red_cr, blue_cb) = (2.0 * (1.0 - kr) * chroma_gain, 2.0 * (1.0 - kb) * chroma_gain);
    let ycc = |cb: f64, cr: f64| [gain, cb, cr, -gain * black - 128.0 * (cb + cr)];
    let (first, second, third) = ([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]);
    match geometry.format {
        PixelFormat::Rgb | PixelFormat::Rgba => [first, second, third],
        PixelFormat::Bgr | PixelFormat::Bgra => [third, second, first],
        PixelFormat::Gray8 => [ycc(0.0, 0.0); 3],
        PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Yuy2 | PixelFormat::Uyvy => {
            [ycc(0.0, red_cr), ycc(-blue_cb * kb / kg, -red_cr * kr / kg), ycc(blue_cb, 0.0)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R, G and B, rounded, of one pixel.
    fn rgb(matrix: ColorMatrix, range: ColorRange, ycc: [u8; 3]) -> [f64; 3] {
        let geometry = Geometry::packed(PixelFormat::I420, 1, 1, matrix, range);
        colors(&geometry).map(|[first, second, third, offset]| {
            let [y, cb, cr] = ycc.map(f64::from);
            (first * y + second * cb + third * cr + offset).clamp(0.0, 255.0).round()
        })
    }

    fn assert_close(got: [f64; 3], wanted: [u8; 3], what: &str) {
        // The published code is itself rounded, which is worth up to two steps of R, G or B.
        let far = got.iter().zip(wanted).any(|(got, wanted)| (got - f64::from(wanted)).abs() > 2.0);
        assert!(!far, "{what}: {got:?} instead of {wanted:?}");
    }

    /// The bars of ITU-R BT.601 (EBU, 100/0/75/0) and BT.709 as 8-bit codes: white, yellow, cyan, green, magenta, red,
    /// blue, black, at 75 %.
    #[test]
    fn seventy_five_percent_bars_have_their_published_codes() {
        let rgb_75: [[u8; 3]; 8] = [
            [191, 191, 191],
            [191, 191, 0],
            [0, 191, 191],
            [0, 191, 0],
            [191, 0, 191],
            [191, 0, 0],
            [0, 0, 191],
            [0, 0, 0],
        ];
        let bt601 = [
            [180, 128, 128],
            [162, 44, 142],
            [131, 156, 44],
            [112, 72, 58],
            [84, 184, 198],
            [65, 100, 212],
            [35, 212, 114],
            [16, 128, 128],
        ];
        let bt709 = [
            [180, 128, 128],
            [168, 44, 136],
            [145, 147, 44],
            [133, 63, 52],
            [63, 193, 204],
            [51, 109, 212],
            [28, 212, 120],
            [16, 128, 128],
        ];
        for (codes, matrix) in [(bt601, ColorMatrix::Bt601), (bt709, ColorMatrix::Bt709)] {
            for (code, wanted) in codes.into_iter().zip(rgb_75) {
                let got = rgb(matrix, ColorRange::Limited, code);
                assert_close(got, wanted, &format!("{matrix:?} {code:?}"));
            }
        }
    }

    #[test]
    fn pure_colours_have_their_published_codes() {
        let cases = [
            (ColorMatrix::Bt601, ColorRange::Limited, [[81, 90, 240], [145, 54, 34], [41, 240, 110]]),
            (ColorMatrix::Bt709, ColorRange::Limited, [[63, 102, 240], [173, 42, 26], [32, 240, 118]]),
            (ColorMatrix::Bt2020, ColorRange::Limited, [[74, 97, 240], [164, 47, 25], [29, 240, 119]]),
            // JFIF 1.02, the conversion to YCbCr.
            (ColorMatrix::Bt601, ColorRange::Full, [[76, 85, 255], [150, 44, 21], [29, 255, 107]]),
        ];
        for (matrix, range, codes) in cases {
            for (code, wanted) in codes.into_iter().zip([[255, 0, 0], [0, 255, 0], [0, 0, 255]]) {
                assert_close(rgb(matrix, range, code), wanted, &format!("{matrix:?} {range:?} {code:?}"));
            }
        }
    }

    #[test]
    fn black_and_white_are_exact_and_what_lies_beyond_is_clamped() {
        for matrix in [ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020] {
            assert_eq!(rgb(matrix, ColorRange::Limited, [16, 128, 128]), [0.0; 3]);
            assert_eq!(rgb(matrix, ColorRange::Limited, [235, 128, 128]), [255.0; 3]);
            assert_eq!(rgb(matrix, ColorRange::Limited, [1, 128, 128]), [0.0; 3]);
            assert_eq!(rgb(matrix, ColorRange::Limited, [254, 128, 128]), [255.0; 3]);
            assert_eq!(rgb(matrix, ColorRange::Full, [0, 128, 128]), [0.0; 3]);
            assert_eq!(rgb(matrix, ColorRange::Full, [255, 128, 128]), [255.0; 3]);
            assert_eq!(rgb(matrix, ColorRange::Full, [100, 128, 128]), [100.0; 3]);
        }
    }
}
