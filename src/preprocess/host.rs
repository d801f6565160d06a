//! The fused pass on the CPU: picture planes to model tensor.
//!
//! # What is computed
//!
//! Of every element of the input tensor, exactly this (and `tests/it/preprocess.rs` computes it again, in `f64`):
//!
//! 1. **Place.** Input pixel `(x, y)` shows the picture at [`Letterbox::to_picture`] of its centre `(x + 0.5, y + 0.5)`,
//!    which in indices of picture pixels is that less 0.5. This is bilinear resizing with half-pixel centres, without a
//!    low-pass filter before it: OpenCV's `INTER_LINEAR`, which is what detectors are usually trained and exported with.
//! 2. **Sample.** Each plane is interpolated bilinearly at that place, in its own resolution, and clamped at its own
//!    edges. Luma, and every component of an RGB picture, sits at the pixel. Chroma is taken to be cosited with the left
//!    luma sample of its pair, and, where it has half the rows (4:2:0), half-way between its two rows: the default of
//!    H.264, H.265 and MPEG-2 (chroma location 0, "left"), and of YUY2 and UYVY. A JPEG has its chroma in the middle; it
//!    is read in the same way, which moves its colours, and nothing else, by half a picture pixel.
//! 3. **Convert.** YCbCr becomes R'G'B' after interpolation, by the coefficients of ITU-R BT.601, BT.709 or BT.2020
//!    (non-constant luminance) and the range of ITU-T H.273: limited (luma 16..=235, chroma 16..=240) or full. The result
//!    is clamped to 0..=255 and not rounded. `GRAY8` is luma, and its range counts too. Alpha is ignored.
//! 4. **Normalise.** `(value - mean) / std` for each channel in the model's order. For an input of `u8` the result is
//!    rounded to the nearest integer (a tie to the even one) and saturated.
//!
//! All around the picture lies [`InputSpec::pad`], normalised alike. It is written once for each slot and placement, not for
//! each frame: [`Held`] remembers where the picture lay that the slot got last.
//!
//! # How
//!
//! Rows are the unit: no picture lies between the planes and the slot. A picture row is resampled across into a line of
//! floats, two such lines are blended down into the row that the output wants, and that is converted, normalised and
//! stored while it is in the first-level cache. A line stays for as long as output rows want it, so enlarging reads each
//! picture row once. Everything but the resampling across (a gather) is plain loops over slices, which the compiler
//! vectorises; there is no `unsafe`.
//!
//! Nothing is allocated for a frame whose format and size are among the last [`GEOMETRIES_MAX`] that were seen.

use super::color::Conversion;
use super::letterbox::Letterbox;
use super::{InputSpec, Layout, PreprocessError};
use crate::backend::tensor::{ElementType, ElementsMut};
use crate::frame::{Frame, Geometry, PixelFormat};

/// How many different formats and sizes of pictures keep their tables. Cameras of more kinds than this may share a model,
/// but then tables are made anew for each change.
pub const GEOMETRIES_MAX: usize = 16;

/// Distance from a whole pixel, in pixels, below which a place counts as being there. It saves the second tap where the
/// sizes divide, and is too small to show in a float.
const WHOLE_PIXEL: f64 = 1e-9;

/// Where the picture lies that a slot of a batch got last, so that the padding around it is not written again. Each slot
/// has its own, which begins as [`Held::default`] whenever somebody else may have written there.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Origin and content of its letterbox.
    placement: Option<[(u32, u32); 2]>,
}

/// Writes pictures into a model's input. It keeps tables and scratch memory, so there is one for each session.
#[derive(Debug)]
pub struct Preprocessor {
    spec: InputSpec,
    /// The most recently used first.
    plans: Vec<Plan>,
    scratch: Scratch,
}

impl Preprocessor {
    /// A preprocessor for this input. Its sizes must be at least 1 and no `std` may be 0, as the manifest's check sees to.
    #[must_use]
    pub fn new(spec: InputSpec) -> Self {
        let scratch = Scratch::new(spec.width as usize);
        Self { spec, plans: Vec::with_capacity(GEOMETRIES_MAX), scratch }
    }

    /// What the input is.
    #[must_use]
    pub fn spec(&self) -> &InputSpec {
        &self.spec
    }

    /// Writes `frame` into its place in a batch, and answers where the picture lies there. `held` is the slot's own.
    ///
    /// # Errors
    /// When `slot` is not a place for one frame of this input; nothing is written then.
    pub fn write(
        &mut self,
        frame: &Frame,
        slot: ElementsMut<'_>,
        held: &mut Held,
    ) -> Result<Letterbox, PreprocessError> {
        let wanted = 3 * self.spec.width as usize * self.spec.height as usize;
        match slot {
            ElementsMut::F32(slot) if self.spec.element_type == ElementType::F32 && slot.len() == wanted => {
                Ok(self.write_elements(frame, slot, held))
            }
            ElementsMut::U8(slot) if self.spec.element_type == ElementType::U8 && slot.len() == wanted => {
                Ok(self.write_elements(frame, slot, held))
            }
            other => {
                let (got, got_type) = match &other {
                    ElementsMut::F32(slot) => (slot.len(), ElementType::F32),
                    ElementsMut::U8(slot) => (slot.len(), ElementType::U8),
                };
                let (wanted_type, got_type) = (self.spec.element_type.name(), got_type.name());
                Err(PreprocessError::Slot { wanted, wanted_type, got, got_type })
            }
        }
    }

    fn write_elements<T: Element>(&mut self, frame: &Frame, slot: &mut [T], held: &mut Held) -> Letterbox {
        let picture = Picture::new(frame);
        self.select_plan(picture.geometry);
        let plan = &self.plans[0];
        let conversion = Conversion::new(picture.geometry);
        let mut target = Target::new(&self.spec, &plan.letterbox, conversion.channels(self.spec.color), slot);
        let placement = Some([plan.letterbox.origin, plan.letterbox.content]);
        if held.placement != placement {
            target.pad();
            held.placement = placement;
        }
        self.scratch.forget();
        for y in 0..plan.whole.down.len() {
            self.scratch.sample(&picture, plan, y);
            let mut rows = self.scratch.rows(plan.whole.across.len());
            conversion.apply(&mut rows);
            target.put(y, &rows);
        }
        plan.letterbox
    }

    /// Puts the plan for `geometry` first, making it if it is not there. The memory of the one that was longest unused
    /// is used again.
    fn select_plan(&mut self, geometry: &Geometry) {
        let key = PlanKey { format: geometry.format, width: geometry.width, height: geometry.height };
        let place = self.plans.iter().position(|plan| plan.key == key);
        let place = place.unwrap_or_else(|| {
            let mut plan = if self.plans.len() < GEOMETRIES_MAX { None } else { self.plans.pop() }
                .unwrap_or_else(|| Plan::empty(key, &self.spec));
            plan.make(key, &self.spec);
            self.plans.push(plan);
            self.plans.len() - 1
        });
        self.plans[..=place].rotate_right(1);
    }
}

/// An element of the input tensor.
trait Element: Copy {
    /// The element nearest to a normalised value.
    fn from_value(value: f32) -> Self;
}

impl Element for f32 {
    fn from_value(value: f32) -> Self {
        value
    }
}

impl Element for u8 {
    fn from_value(value: f32) -> Self {
        // Added to 2^23, whose neighbours are 1 apart, a float rounds to an integer in its lowest bits. Unlike `as`, that
        // compiles to two vector instructions on every processor.
        const TWO_TO_23: f32 = 8_388_608.0;
        (value.clamp(0.0, 255.0) + TWO_TO_23).to_bits().to_le_bytes()[0]
    }
}

/// The bytes of a frame by plane and row.
struct Picture<'a> {
    geometry: &'a Geometry,
    planes: [&'a [u8]; 3],
}

impl<'a> Picture<'a> {
    fn new(frame: &'a Frame) -> Self {
        let geometry = frame.geometry();
        let planes =
            std::array::from_fn(
                |plane| {
                    if plane < geometry.format.planes() { frame.plane(plane) } else { &[] }
                },
            );
        Self { geometry, planes }
    }

    /// The visible bytes of a row, and none of the padding after it.
    fn row(&self, plane: usize, row: u32) -> &'a [u8] {
        let Geometry { format, width, height, planes, .. } = self.geometry;
        let (len, _) = format.plane_size(plane, *width as usize, *height as usize);
        &self.planes[plane][row as usize * planes[plane].stride..][..len]
    }
}

/// Two neighbouring samples and how much of the far one to take.
#[derive(Clone, Copy, Debug)]
struct Tap {
    near: u32,
    far: u32,
    weight: f32,
}

impl Tap {
    /// The tap at `place`, in indices of samples, among `samples`.
    fn at(place: f64, samples: u32) -> Self {
        let place = if (place - place.round()).abs() < WHOLE_PIXEL { place.round() } else { place };
        let place = place.clamp(0.0, f64::from(samples - 1));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the index of the last sample"
        )]
        let near = place.floor() as u32;
        #[expect(clippy::cast_possible_truncation, reason = "a weight needs no more digits")]
        let weight = (place - place.floor()) as f32;
        Self { near, far: if weight > 0.0 { near + 1 } else { near }, weight }
    }
}

/// The taps of one kind of plane: of each output column and of each output row.
#[derive(Debug, Default)]
struct Axes {
    across: Vec<Tap>,
    down: Vec<Tap>,
}

impl Axes {
    /// Makes the taps anew, for planes of `samples` whose index for a place in picture pixels is given by `site`.
    fn make(
        &mut self,
        letterbox: &Letterbox,
        samples: (u32, u32),
        site: &(impl Fn(f64) -> f64, impl Fn(f64) -> f64),
    ) {
        let (origin, content) = (letterbox.origin, letterbox.content);
        let column = |x| letterbox.to_picture(f64::from(origin.0 + x) + 0.5, 0.0).0 - 0.5;
        let row = |y| letterbox.to_picture(0.0, f64::from(origin.1 + y) + 0.5).1 - 0.5;
        self.across.clear();
        self.across.extend((0..content.0).map(|x| Tap::at(site.0(column(x)), samples.0)));
        self.down.clear();
        self.down.extend((0..content.1).map(|y| Tap::at(site.1(row(y)), samples.1)));
    }
}

/// What decides the tables. Strides, matrix and range do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlanKey {
    format: PixelFormat,
    width: u32,
    height: u32,
}

/// The tables for pictures of one format and size.
#[derive(Debug)]
struct Plan {
    key: PlanKey,
    letterbox: Letterbox,
    /// Of luma, or of all components of an RGB picture.
    whole: Axes,
    /// Of the two chroma components; empty where there are none.
    half: Axes,
}

impl Plan {
    fn empty(key: PlanKey, spec: &InputSpec) -> Self {
        let letterbox = Letterbox::new(key.width, key.height, spec);
        Self { key, letterbox, whole: Axes::default(), half: Axes::default() }
    }

    fn make(&mut self, key: PlanKey, spec: &InputSpec) {
        let PlanKey { format, width, height } = key;
        self.key = key;
        self.letterbox = Letterbox::new(width, height, spec);
        self.whole.make(&self.letterbox, (width, height), &(|x| x, |y| y));
        let half_width = width.div_ceil(2);
        match Kind::of(format) {
            Kind::Ycc420 => {
                let samples = (half_width, height.div_ceil(2));
                self.half.make(&self.letterbox, samples, &(|x| x / 2.0, |y| (y - 0.5) / 2.0));
            }
            Kind::Ycc422 => self.half.make(&self.letterbox, (half_width, height), &(|x| x / 2.0, |y| y)),
            Kind::Luma | Kind::Rgb => {
                self.half.across.clear();
                self.half.down.clear();
            }
        }
    }
}

/// The components of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Luma,
    Rgb,
    Ycc420,
    Ycc422,
}

impl Kind {
    fn of(format: PixelFormat) -> Self {
        match format {
            PixelFormat::Nv12 | PixelFormat::I420 => Self::Ycc420,
            PixelFormat::Yuy2 | PixelFormat::Uyvy => Self::Ycc422,
            PixelFormat::Gray8 => Self::Luma,
            PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra => Self::Rgb,
        }
    }
}

/// Lines of up to three components, as wide as the input.
type Lines = [Vec<f32>; 3];

/// Two neighbouring picture rows, already resampled across.
#[derive(Debug)]
struct Window {
    held: [Option<u32>; 2],
    lines: [Lines; 2],
}

impl Window {
    fn new(width: usize) -> Self {
        let lines = || std::array::from_fn(|_| vec![0.0; width]);
        Self { held: [None; 2], lines: [lines(), lines()] }
    }

    /// Makes `lines[0]` the tap's near row and, where it counts, `lines[1]` its far row; `read` fetches those that are
    /// not there yet.
    fn bring(&mut self, tap: Tap, mut read: impl FnMut(u32, &mut Lines)) {
        if self.held[0] != Some(tap.near) && self.held[1] == Some(tap.near) {
            self.held.swap(0, 1);
            self.lines.swap(0, 1);
        }
        for (place, row) in [tap.near, tap.far].into_iter().enumerate() {
            let counts = place == 0 || tap.weight > 0.0;
            if counts && self.held[place] != Some(row) {
                read(row, &mut self.lines[place]);
                self.held[place] = Some(row);
            }
        }
    }

    /// Blends a component's two lines down.
    fn blend(&self, tap: Tap, component: usize, into: &mut [f32]) {
        let near = &self.lines[0][component][..into.len()];
        if tap.weight > 0.0 {
            let far = &self.lines[1][component][..into.len()];
            for ((value, &near), &far) in into.iter_mut().zip(near).zip(far) {
                *value = near + (far - near) * tap.weight;
            }
        } else {
            into.copy_from_slice(near);
        }
    }
}

#[derive(Debug)]
struct Scratch {
    whole: Window,
    half: Window,
    rows: Lines,
}

impl Scratch {
    fn new(width: usize) -> Self {
        let rows = std::array::from_fn(|_| vec![0.0; width]);
        Self { whole: Window::new(width), half: Window::new(width), rows }
    }

    /// The lines held are of another picture.
    fn forget(&mut self) {
        self.whole.held = [None; 2];
        self.half.held = [None; 2];
    }

    /// Interpolates every component of output row `y` into `rows`.
    fn sample(&mut self, picture: &Picture<'_>, plan: &Plan, y: usize) {
        let width = plan.whole.across.len();
        let tap = plan.whole.down[y];
        self.whole.bring(tap, |row, lines| read_whole(picture, row, &plan.whole.across, lines));
        let components = if Kind::of(plan.key.format) == Kind::Rgb { 3 } else { 1 };
        for component in 0..components {
            self.whole.blend(tap, component, &mut self.rows[component][..width]);
        }
        if let Some(&tap) = plan.half.down.get(y) {
            self.half.bring(tap, |row, lines| read_half(picture, row, &plan.half.across, lines));
            for component in 0..2 {
                self.half.blend(tap, component, &mut self.rows[1 + component][..width]);
            }
        }
    }

    fn rows(&mut self, width: usize) -> [&mut [f32]; 3] {
        self.rows.each_mut().map(|row| &mut row[..width])
    }
}

/// Resamples a row of luma, or of R, G and B, across.
fn read_whole(picture: &Picture<'_>, row: u32, taps: &[Tap], lines: &mut Lines) {
    let bytes = picture.row(0, row);
    let [a, b, c] = lines;
    match picture.geometry.format {
        PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8 => gather(bytes, taps, |&[y]| [y], [a]),
        PixelFormat::Yuy2 => gather(bytes, taps, |&[y, _]| [y], [a]),
        PixelFormat::Uyvy => gather(bytes, taps, |&[_, y]| [y], [a]),
        PixelFormat::Rgb => gather(bytes, taps, |&[r, g, b]| [r, g, b], [a, b, c]),
        PixelFormat::Bgr => gather(bytes, taps, |&[b, g, r]| [r, g, b], [a, b, c]),
        PixelFormat::Rgba => gather(bytes, taps, |&[r, g, b, _]| [r, g, b], [a, b, c]),
        PixelFormat::Bgra => gather(bytes, taps, |&[b, g, r, _]| [r, g, b], [a, b, c]),
    }
}

/// Resamples a row of both chroma components across.
fn read_half(picture: &Picture<'_>, row: u32, taps: &[Tap], lines: &mut Lines) {
    let [cb, cr, _] = lines;
    match picture.geometry.format {
        PixelFormat::Nv12 => gather(picture.row(1, row), taps, |&[u, v]| [u, v], [cb, cr]),
        PixelFormat::I420 => {
            gather(picture.row(1, row), taps, |&[u]| [u], [cb]);
            gather(picture.row(2, row), taps, |&[v]| [v], [cr]);
        }
        PixelFormat::Yuy2 => gather(picture.row(0, row), taps, |&[_, u, _, v]| [u, v], [cb, cr]),
        PixelFormat::Uyvy => gather(picture.row(0, row), taps, |&[u, _, v, _]| [u, v], [cb, cr]),
        PixelFormat::Gray8 | PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra => {}
    }
}

/// Interpolates between samples of `STEP` bytes, of which `pick` takes `N` components.
fn gather<const STEP: usize, const N: usize>(
    bytes: &[u8],
    taps: &[Tap],
    pick: impl Fn(&[u8; STEP]) -> [u8; N],
    mut lines: [&mut Vec<f32>; N],
) {
    let (samples, _) = bytes.as_chunks::<STEP>();
    let mut lines = lines.each_mut().map(|line| &mut line[..taps.len()]);
    for (x, tap) in taps.iter().enumerate() {
        let (near, far) = (pick(&samples[tap.near as usize]), pick(&samples[tap.far as usize]));
        for ((line, near), far) in lines.iter_mut().zip(near).zip(far) {
            let (near, far) = (f32::from(near), f32::from(far));
            line[x] = near + (far - near) * tap.weight;
        }
    }
}

/// The slot, and how rows are put there.
struct Target<'a, T> {
    slot: &'a mut [T],
    layout: Layout,
    size: (usize, usize),
    origin: (usize, usize),
    content: (usize, usize),
    channels: [usize; 3],
    mean: [f32; 3],
    /// 1 / std.
    gain: [f32; 3],
    pad: [T; 3],
}

impl<'a, T: Element> Target<'a, T> {
    fn new(spec: &InputSpec, letterbox: &Letterbox, channels: [usize; 3], slot: &'a mut [T]) -> Self {
        let both = |(a, b): (u32, u32)| (a as usize, b as usize);
        let (mean, gain) = (spec.mean, spec.std.map(|std| 1.0 / std));
        let pad = std::array::from_fn(|c| T::from_value((f32::from(spec.pad) - mean[c]) * gain[c]));
        Self {
            slot,
            layout: spec.layout,
            size: both((spec.width, spec.height)),
            origin: both(letterbox.origin),
            content: both(letterbox.content),
            channels,
            mean,
            gain,
            pad,
        }
    }

    /// Pads all around the picture.
    fn pad(&mut self) {
        let (width, height) = self.size;
        let (left, right) = (self.origin.0, self.origin.0 + self.content.0);
        let (first, last) = (self.origin.1 * width, (self.origin.1 + self.content.1) * width);
        match self.layout {
            Layout::Nchw => {
                for (plane, &pad) in self.slot.chunks_exact_mut(width * height).zip(&self.pad) {
                    plane[..first].fill(pad);
                    plane[last..].fill(pad);
                    for row in plane[first..last].chunks_exact_mut(width) {
                        row[..left].fill(pad);
                        row[right..].fill(pad);
                    }
                }
            }
            Layout::Nhwc => {
                let (pixels, _) = self.slot.as_chunks_mut::<3>();
                pixels[..first].fill(self.pad);
                pixels[last..].fill(self.pad);
                for row in pixels[first..last].chunks_exact_mut(width) {
                    row[..left].fill(self.pad);
                    row[right..].fill(self.pad);
                }
            }
        }
    }

    /// Normalises and stores row `y` of the scaled picture.
    fn put(&mut self, y: usize, rows: &[&mut [f32]; 3]) {
        let (width, height) = self.size;
        let start = (self.origin.1 + y) * width;
        let (left, right) = (self.origin.0, self.origin.0 + self.content.0);
        let rows = self.channels.map(|channel| &*rows[channel]);
        let (mean, gain) = (self.mean, self.gain);
        match self.layout {
            Layout::Nchw => {
                for (channel, plane) in self.slot.chunks_exact_mut(width * height).enumerate() {
                    let row = &mut plane[start..][..width];
                    for (element, &value) in row[left..right].iter_mut().zip(rows[channel]) {
                        *element = T::from_value((value - mean[channel]) * gain[channel]);
                    }
                }
            }
            Layout::Nhwc => {
                let (pixels, _) = self.slot.as_chunks_mut::<3>();
                let row = &mut pixels[start..][..width];
                let values = rows[0].iter().zip(rows[1]).zip(rows[2]);
                for (pixel, ((&a, &b), &c)) in row[left..right].iter_mut().zip(values) {
                    *pixel = [
                        T::from_value((a - mean[0]) * gain[0]),
                        T::from_value((b - mean[1]) * gain[1]),
                        T::from_value((c - mean[2]) * gain[2]),
                    ];
                }
            }
        }
    }
}
