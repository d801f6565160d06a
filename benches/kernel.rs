//! The preprocess pass by itself, over and over on one picture, for `scripts/bench`, which takes its processor time from
//! outside, as it does for every other program: `kernel nv12|i420 WIDTH HEIGHT SIZE RUNS`.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gantry::backend::tensor::{ElementType, ElementsMut};
use gantry::frame::clock::{CaptureClock, Captured};
use gantry::frame::{
    CameraId, ColorMatrix, ColorRange, Frame, FrameTimes, Geometry, LentMemory, Memory, PixelFormat,
};
use gantry::preprocess::host::{Held, Preprocessor};
use gantry::preprocess::letterbox::RegionConfig;
use gantry::preprocess::{Align, ColorOrder, Filter, InputSpec, Layout, Quantization, Resize};

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` and `cargo test` start every benchmark with options of theirs; this one then has nothing to do.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let [format, width, height, size, runs] = words.as_slice() else { return Ok(()) };
    let format = match format.as_str() {
        "nv12" => PixelFormat::Nv12,
        "i420" => PixelFormat::I420,
        other => {
            return Err(format!("there is no picture format {other} here; there are nv12 and i420").into());
        }
    };
    let frame = frame(format, width.parse()?, height.parse()?)?;
    let size = size.parse()?;
    let mut preprocessor = Preprocessor::new(InputSpec {
        width: size,
        height: size,
        element_type: ElementType::F32,
        layout: Layout::Nchw,
        color: ColorOrder::Rgb,
        mean: [0.0; 3],
        std: [255.0; 3],
        quantization: Quantization::NONE,
        resize: Resize::Letterbox,
        filter: Filter::Bilinear,
        pad: 114,
        align: Align::Center,
    });
    let (mut tensor, mut held) = (vec![0.0; 3 * usize::try_from(size * size)?], Held::default());
    for _ in 0..runs.parse::<u64>()? {
        let (whole, slot) = (RegionConfig::default(), ElementsMut::F32(&mut tensor));
        black_box(preprocessor.write(black_box(&frame), whole, slot, &mut held)?);
    }
    Ok(())
}

/// A picture of noise.
fn frame(format: PixelFormat, width: u32, height: u32) -> Result<Frame, Box<dyn Error>> {
    let geometry = Geometry::packed(format, width, height, ColorMatrix::Bt709, ColorRange::Limited);
    let mut random = fastrand::Rng::with_seed(1);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(geometry.len()).collect();
    let now = Instant::now();
    let captured = Captured::new(CaptureClock::Test, now);
    let times = FrameTimes { pts: Some(Duration::ZERO), captured, received: now, ready: now };
    Ok(Frame::new(CameraId::new("bench"), 1, times, geometry, Memory::Lent(LentMemory::new(bytes)))?)
}
