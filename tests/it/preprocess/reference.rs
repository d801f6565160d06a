//! The tensor, one input pixel at a time, in `f64`, straight from the definition in `src/preprocess/host.rs` and not from
//! its code.

use gantry::frame::{ColorMatrix, ColorRange, Frame, Geometry, PixelFormat};
use gantry::preprocess::letterbox::{Region, RegionConfig};
use gantry::preprocess::{Align, ColorOrder, Filter, InputSpec, Layout, Resize};

/// One component of a picture, and which of its samples belong to the region.
struct Component {
    plane: usize,
    step: usize,
    byte: usize,
    columns: (i64, i64),
    rows: (i64, i64),
    /// Of columns and of rows: what a place in picture pixels is times, and plus, to be one in samples from an edge.
    sites: [(f64, f64); 2],
}

fn component(geometry: &Geometry, region: &Region, index: usize) -> Component {
    let ends = |start: u32, len: u32| (i64::from(start), i64::from(start + len) - 1);
    let (columns, rows) = (ends(region.x, region.width), ends(region.y, region.height));
    let half = |(first, last): (i64, i64)| (first / 2, last / 2);
    let same = (1.0, 0.0);
    let whole = |step, byte| Component { plane: 0, step, byte, columns, rows, sites: [same, same] };
    // Cosited: the middle of chroma sample 0 is at the middle of pixel 0, at 0.5.
    let left = (0.5, 0.25);
    let packed =
        |byte| Component { plane: 0, step: 4, byte, columns: half(columns), rows, sites: [left, same] };
    let planar = |plane, step, byte| {
        // Half-way: the middle of chroma sample 0 is between rows 0 and 1, at 1.0.
        let sites = [left, (0.5, 0.0)];
        Component { plane, step, byte, columns: half(columns), rows: half(rows), sites }
    };
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

/// Samples and their weights in one direction, for an input pixel that covers this of the picture.
#[expect(clippy::cast_possible_truncation, reason = "places in small pictures")]
fn weights(
    filter: Filter,
    covers: (f64, f64),
    site: (f64, f64),
    (first, last): (i64, i64),
) -> Vec<(i64, f64)> {
    let (from, to) = (covers.0 * site.0 + site.1, covers.1 * site.0 + site.1);
    let averaged = match filter {
        Filter::Bilinear => false,
        Filter::Area => to - from > 1.000_000_1,
        Filter::Auto => to - from > 2.000_000_1,
    };
    if averaged {
        let overlap = |sample: i64| {
            let sample = sample as f64;
            f64::max(0.0, f64::min(sample + 1.0, to) - f64::max(sample, from))
        };
        let all: f64 = (first..=last).map(overlap).sum();
        return (first..=last).map(|sample| (sample, overlap(sample) / all)).collect();
    }
    let middle = (from + to) / 2.0 - 0.5;
    let share = middle - middle.floor();
    let near = middle.floor() as i64;
    vec![(near.clamp(first, last), 1.0 - share), ((near + 1).clamp(first, last), share)]
}

fn sample(frame: &Frame, region: &Region, filter: Filter, index: usize, covers: [(f64, f64); 2]) -> f64 {
    let geometry = frame.geometry();
    let component = component(geometry, region, index);
    let columns = weights(filter, covers[0], component.sites[0], component.columns);
    let rows = weights(filter, covers[1], component.sites[1], component.rows);
    let mut sum = 0.0;
    for &(row, down) in &rows {
        for &(column, across) in &columns {
            let (row, column) = (usize::try_from(row).unwrap(), usize::try_from(column).unwrap());
            let place = row * geometry.planes[component.plane].stride + column * component.step;
            sum += f64::from(frame.plane(component.plane)[place + component.byte]) * down * across;
        }
    }
    sum
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

fn rgb_at(frame: &Frame, region: &Region, filter: Filter, covers: [(f64, f64); 2]) -> [f64; 3] {
    let geometry = frame.geometry();
    let component = |index| sample(frame, region, filter, index, covers);
    match geometry.format {
        PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra => {
            [0, 1, 2].map(component)
        }
        PixelFormat::Gray8 => rgb_of(geometry, component(0), 128.0, 128.0),
        _ => rgb_of(geometry, component(0), component(1), component(2)),
    }
}

/// Left, top, width and height of the scaled region in the input.
fn placement(spec: &InputSpec, region: &Region) -> (f64, f64, f64, f64) {
    let (width, height) = (f64::from(spec.width), f64::from(spec.height));
    let (region_width, region_height) = (f64::from(region.width), f64::from(region.height));
    let (across, down) = (width / region_width, height / region_height);
    let scaled =
        |scale: f64| ((region_width * scale).round().max(1.0), (region_height * scale).round().max(1.0));
    let content = match spec.resize {
        Resize::Stretch => (width, height),
        Resize::Letterbox => scaled(f64::min(across, down)),
        Resize::Crop => scaled(f64::max(across, down)),
    };
    let (left, top) = match spec.align {
        Align::TopLeft => (0.0, 0.0),
        Align::Center => (((width - content.0) / 2.0).trunc(), ((height - content.1) / 2.0).trunc()),
    };
    (left, top, content.0, content.1)
}

/// The tensor, not rounded.
pub(super) fn tensor(spec: &InputSpec, frame: &Frame, region: RegionConfig) -> Vec<f64> {
    let (width, height) = (spec.width as usize, spec.height as usize);
    let geometry = frame.geometry();
    let RegionConfig { x, y, width: region_width, height: region_height } = region;
    let region = Region {
        x,
        y,
        width: region_width.unwrap_or(geometry.width - x),
        height: region_height.unwrap_or(geometry.height - y),
    };
    let (left, top, content_width, content_height) = placement(spec, &region);
    let mut tensor = vec![f64::NAN; 3 * width * height];
    for y in 0..spec.height {
        for x in 0..spec.width {
            let (content_x, content_y) = (f64::from(x) - left, f64::from(y) - top);
            let inside =
                (0.0..content_width).contains(&content_x) && (0.0..content_height).contains(&content_y);
            let rgb = if inside {
                let column = |x: f64| f64::from(region.x) + x * f64::from(region.width) / content_width;
                let row = |y: f64| f64::from(region.y) + y * f64::from(region.height) / content_height;
                let covers =
                    [(column(content_x), column(content_x + 1.0)), (row(content_y), row(content_y + 1.0))];
                rgb_at(frame, &region, spec.filter, covers)
            } else {
                [f64::from(spec.pad); 3]
            };
            for channel in 0..3 {
                let source = if spec.color == ColorOrder::Rgb { channel } else { 2 - channel };
                let value = (rgb[source] - f64::from(spec.mean[channel])) / f64::from(spec.std[channel]);
                let value =
                    value / f64::from(spec.quantization.scale) + f64::from(spec.quantization.zero_point);
                let (x, y) = (x as usize, y as usize);
                let place = match spec.layout {
                    Layout::Nchw => (channel * height + y) * width + x,
                    Layout::Nhwc => (y * width + x) * 3 + channel,
                };
                tensor[place] = match spec.element_type.integers() {
                    Some(range) => value.clamp(f64::from(*range.start()), f64::from(*range.end())),
                    None => value,
                };
            }
        }
    }
    tensor
}
