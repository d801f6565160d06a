//! One decoded picture, its memory and its times.
//!
//! A [`Frame`] is immutable once made and is shared by [`FrameRef`]: a camera with several models decodes once. Its memory
//! is either a slab of a [`slab::SlabPool`] or memory that a video decoder lent us, read in place through its real strides
//! and offsets. Which of the two it is matters to nobody downstream.

pub mod clock;
pub mod doorbell;
mod handle;
pub mod mailbox;
pub mod outlet;
pub mod slab;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clock::{CaptureClock, Captured};
pub use handle::{FramePool, FrameRef};
use slab::SharedSlab;

/// A camera's configured name: one MQTT topic segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CameraId(Arc<str>);

impl CameraId {
    /// Wraps a name that the config has already checked.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CameraId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The pixel formats that Gantry takes as they come. Names are GStreamer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// 8-bit luma plane, then one plane of interleaved U and V at half size.
    Nv12,
    /// 8-bit luma plane, then U and V planes at half size.
    I420,
    /// Packed Y0 U Y1 V.
    Yuy2,
    /// Packed U Y0 V Y1.
    Uyvy,
    /// 8-bit luma only.
    Gray8,
    /// Packed R G B.
    Rgb,
    /// Packed B G R.
    Bgr,
    /// Packed R G B A.
    Rgba,
    /// Packed B G R A.
    Bgra,
}

impl PixelFormat {
    /// Every format, in the order in which they are offered to a video decoder.
    pub const ALL: [Self; 9] = [
        Self::Nv12,
        Self::I420,
        Self::Yuy2,
        Self::Uyvy,
        Self::Gray8,
        Self::Rgb,
        Self::Bgr,
        Self::Rgba,
        Self::Bgra,
    ];

    /// GStreamer's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nv12 => "NV12",
            Self::I420 => "I420",
            Self::Yuy2 => "YUY2",
            Self::Uyvy => "UYVY",
            Self::Gray8 => "GRAY8",
            Self::Rgb => "RGB",
            Self::Bgr => "BGR",
            Self::Rgba => "RGBA",
            Self::Bgra => "BGRA",
        }
    }

    /// The format with this GStreamer name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Number of planes.
    #[must_use]
    pub fn planes(self) -> usize {
        match self {
            Self::I420 => 3,
            Self::Nv12 => 2,
            _ => 1,
        }
    }

    /// Visible bytes of one row and number of rows of `plane`, for a picture of `width` x `height` pixels.
    /// Odd sizes round the chroma planes up.
    #[must_use]
    pub fn plane_size(self, plane: usize, width: usize, height: usize) -> (usize, usize) {
        let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
        match (self, plane) {
            (Self::Nv12, 1) => (half_width * 2, half_height),
            (Self::I420, 1 | 2) => (half_width, half_height),
            (Self::Nv12 | Self::I420 | Self::Gray8, _) => (width, height),
            (Self::Yuy2 | Self::Uyvy, _) => (half_width * 4, height),
            (Self::Rgb | Self::Bgr, _) => (width * 3, height),
            (Self::Rgba | Self::Bgra, _) => (width * 4, height),
        }
    }
}

/// The coefficients that turn YCbCr into RGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorMatrix {
    /// ITU-R BT.601: what cameras up to standard definition, and JPEG, use.
    Bt601,
    /// ITU-R BT.709: high definition.
    Bt709,
    /// ITU-R BT.2020, non-constant luminance.
    Bt2020,
}

/// How the 8-bit values map to black and white.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorRange {
    /// Luma 16..=235, chroma 16..=240: video.
    Limited,
    /// 0..=255: JPEG, and every RGB format.
    Full,
}

/// Where a plane begins in the frame's memory and how far its rows are apart, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// Offset of the first pixel.
    pub offset: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
}

/// What the bytes of a frame mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Pixel format.
    pub format: PixelFormat,
    /// Width in pixels, at least 1.
    pub width: u32,
    /// Height in pixels, at least 1.
    pub height: u32,
    /// Real offsets and strides; the first [`PixelFormat::planes`] count.
    pub planes: [Plane; 3],
    /// YCbCr coefficients; of no meaning for RGB formats.
    pub matrix: ColorMatrix,
    /// Value range; of no meaning for RGB formats.
    pub range: ColorRange,
}

impl Geometry {
    /// A picture whose planes follow one another without gaps.
    #[must_use]
    pub fn packed(
        format: PixelFormat,
        width: u32,
        height: u32,
        matrix: ColorMatrix,
        range: ColorRange,
    ) -> Self {
        let (mut planes, mut offset) = ([Plane::default(); 3], 0);
        for (index, plane) in planes.iter_mut().enumerate().take(format.planes()) {
            let (row, rows) = format.plane_size(index, width as usize, height as usize);
            *plane = Plane { offset, stride: row };
            offset += row * rows;
        }
        Self { format, width, height, planes, matrix, range }
    }

    /// Bytes from the start of the memory to the last visible one.
    #[must_use]
    pub fn len(&self) -> usize {
        let end = |index: usize| {
            let (row, rows) = self.format.plane_size(index, self.width as usize, self.height as usize);
            self.planes[index].offset + self.planes[index].stride * (rows - 1) + row
        };
        (0..self.format.planes()).map(end).max().unwrap_or(0)
    }

    /// Whether the picture has no bytes; it never has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    fn check(&self, memory: usize) -> Result<(), FrameError> {
        if self.width == 0 || self.height == 0 {
            return Err(FrameError::NoPixels { width: self.width, height: self.height });
        }
        for index in 0..self.format.planes() {
            let (row, _) = self.format.plane_size(index, self.width as usize, self.height as usize);
            let stride = self.planes[index].stride;
            if stride < row {
                return Err(FrameError::StrideTooSmall { plane: index, stride, row });
            }
        }
        let needed = self.len();
        if needed > memory { Err(FrameError::MemoryTooSmall { needed, memory }) } else { Ok(()) }
    }
}

/// Memory that somebody else owns, such as a mapped GStreamer buffer. It goes back by [`Lender::take_back`] when the frame
/// lets go of it.
pub struct LentMemory(Option<Box<dyn Lender>>);

/// What memory is lent by.
pub trait Lender: AsRef<[u8]> + Send + Sync {
    /// The frame does not need the memory any more. The box may be kept, to lend the next memory without an allocation.
    fn take_back(self: Box<Self>) {}
}

impl LentMemory {
    /// Memory that is simply dropped when it is not needed any more.
    #[must_use]
    pub fn new(memory: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        struct Owned<T>(T);
        impl<T: AsRef<[u8]>> AsRef<[u8]> for Owned<T> {
            fn as_ref(&self) -> &[u8] {
                self.0.as_ref()
            }
        }
        impl<T: AsRef<[u8]> + Send + Sync> Lender for Owned<T> {}
        Self(Some(Box::new(Owned(memory))))
    }

    /// Memory that goes back to whoever lends it.
    #[must_use]
    pub fn from_lender(lender: Box<dyn Lender>) -> Self {
        Self(Some(lender))
    }
}

impl AsRef<[u8]> for LentMemory {
    fn as_ref(&self) -> &[u8] {
        (**self.0.as_ref().expect("it is there until it is dropped")).as_ref()
    }
}

impl fmt::Debug for LentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentMemory({} bytes)", self.as_ref().len())
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        if let Some(lender) = self.0.take() {
            lender.take_back();
        }
    }
}

/// Where a frame's bytes are.
pub enum Memory {
    /// In our own pool.
    Slab(SharedSlab),
    /// In the video decoder's memory, lent for as long as the frame lives.
    Lent(LentMemory),
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Slab(slab) => slab,
            Self::Lent(lent) => lent.as_ref(),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Slab(_) => "Slab",
            Self::Lent(_) => "Lent",
        };
        write!(f, "{kind}({} bytes)", self.bytes().len())
    }
}

/// When things happened to a frame. All are monotonic.
#[derive(Clone, Copy, Debug)]
pub struct FrameTimes {
    /// Presentation time in its stream.
    pub pts: Option<Duration>,
    /// When the picture was taken, and by whose clock.
    pub captured: Captured,
    /// When the picture's data entered the video decoder.
    pub received: Instant,
    /// When the decoded picture reached us.
    pub ready: Instant,
}

impl FrameTimes {
    /// The time that counts for a rate: of a live camera when the picture reached us, of a file where it is in the video,
    /// however fast that is read.
    #[must_use]
    pub fn paced_at(&self) -> Instant {
        let in_the_video = self.captured.clock == CaptureClock::File && self.pts.is_some();
        if in_the_video { self.captured.at } else { self.ready }
    }
}

/// One decoded picture.
#[derive(Debug)]
pub struct Frame {
    /// The camera that saw it.
    pub camera: CameraId,
    /// The camera's frame number, from 1 at the daemon's start, never reused.
    pub id: u64,
    /// When things happened to it.
    pub times: FrameTimes,
    /// The state that its camera was in when it came.
    pub camera_state: &'static str,
    geometry: Geometry,
    /// There as long as anybody holds the frame.
    memory: Option<Memory>,
}

impl Frame {
    /// Makes a frame of memory that holds a picture of `geometry`.
    ///
    /// # Errors
    /// When the picture has no pixels, a stride is smaller than its row, or the memory ends before the last pixel.
    pub fn new(
        camera: CameraId,
        id: u64,
        times: FrameTimes,
        geometry: Geometry,
        memory: Memory,
    ) -> Result<Self, FrameError> {
        geometry.check(memory.bytes().len())?;
        Ok(Self { camera, id, times, camera_state: "live", geometry, memory: Some(memory) })
    }

    /// What the bytes mean.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The bytes from the start of plane `index` to the end of the memory.
    ///
    /// # Panics
    /// When the format has no such plane.
    #[must_use]
    pub fn plane(&self, index: usize) -> &[u8] {
        assert!(index < self.geometry.format.planes(), "{:?} has no plane {index}", self.geometry.format);
        let memory = self.memory.as_ref().expect("a frame that somebody holds has its memory");
        &memory.bytes()[self.geometry.planes[index].offset..]
    }

    /// A frame like this one, without memory.
    fn vacant(&self) -> Self {
        Self { camera: self.camera.clone(), memory: None, ..*self }
    }

    /// Lets go of the memory, when nobody holds the frame any more.
    fn vacate(&mut self) {
        self.memory = None;
    }
}

/// Why bytes are not a picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A side is zero.
    #[error("a picture of {width}x{height} has no pixels")]
    NoPixels {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Rows would overlap.
    #[error("plane {plane} has a stride of {stride} bytes, but one row takes {row}")]
    StrideTooSmall {
        /// Index of the plane.
        plane: usize,
        /// Bytes from one row to the next.
        stride: usize,
        /// Visible bytes of a row.
        row: usize,
    },
    /// The picture would reach beyond the memory.
    #[error("the picture takes {needed} bytes, but its memory has {memory}")]
    MemoryTooSmall {
        /// Bytes that the picture takes.
        needed: usize,
        /// Bytes that are there.
        memory: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of one grey pixel.
    pub(super) fn grey(id: u64, memory: Memory) -> Frame {
        let now = Instant::now();
        let captured = Captured::new(CaptureClock::Test, now);
        let times = FrameTimes { pts: None, captured, received: now, ready: now };
        let geometry = Geometry::packed(PixelFormat::Gray8, 1, 1, ColorMatrix::Bt601, ColorRange::Full);
        Frame::new(CameraId::new("a"), id, times, geometry, memory).unwrap()
    }

    fn geometry(format: PixelFormat, width: u32, height: u32) -> Geometry {
        Geometry::packed(format, width, height, ColorMatrix::Bt601, ColorRange::Limited)
    }

    #[test]
    fn an_odd_size_rounds_its_chroma_up() {
        let nv12 = geometry(PixelFormat::Nv12, 853, 479);
        assert_eq!(nv12.planes[1], Plane { offset: 853 * 479, stride: 854 });
        assert_eq!(nv12.len(), 853 * 479 + 854 * 240);
        assert_eq!(geometry(PixelFormat::I420, 1, 1).len(), 3);
        assert_eq!(geometry(PixelFormat::Yuy2, 3, 2).len(), 16);
    }

    #[test]
    fn a_picture_that_does_not_fit_its_memory_is_refused_with_figures() {
        let whole = geometry(PixelFormat::Rgb, 4, 2);
        assert_eq!(whole.check(24), Ok(()));
        assert_eq!(whole.check(23), Err(FrameError::MemoryTooSmall { needed: 24, memory: 23 }));
        let mut narrow = whole;
        narrow.planes[0].stride = 11;
        assert_eq!(narrow.check(1000), Err(FrameError::StrideTooSmall { plane: 0, stride: 11, row: 12 }));
        let flat = Geometry { height: 0, ..whole };
        assert_eq!(flat.check(1000), Err(FrameError::NoPixels { width: 4, height: 0 }));
    }

    #[test]
    fn lent_memory_goes_back_to_its_lender() {
        struct Lent(Arc<std::sync::Mutex<Vec<Self>>>);
        impl AsRef<[u8]> for Lent {
            fn as_ref(&self) -> &[u8] {
                &[3]
            }
        }
        impl Lender for Lent {
            fn take_back(self: Box<Self>) {
                let home = Arc::clone(&self.0);
                home.lock().unwrap().push(*self);
            }
        }
        let home = Arc::default();
        let frame = grey(1, Memory::Lent(LentMemory::from_lender(Box::new(Lent(Arc::clone(&home))))));
        assert_eq!(frame.plane(0), [3]);
        assert!(home.lock().unwrap().is_empty());
        drop(frame);
        assert_eq!(home.lock().unwrap().drain(..).count(), 1);
    }

    #[test]
    fn names_are_gstreamers_and_come_back() {
        for format in PixelFormat::ALL {
            assert_eq!(PixelFormat::from_name(format.name()), Some(format));
        }
        assert_eq!(PixelFormat::from_name("Y444"), None);
    }
}
