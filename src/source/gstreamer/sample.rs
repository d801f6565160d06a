//! What the bytes of a GStreamer buffer mean: its real strides and offsets, and its colours.

use crossbeam_channel::{Receiver, Sender, bounded};
use gst_video::{VideoColorMatrix, VideoColorRange};

use crate::frame::{ColorMatrix, ColorRange, Geometry, Lender, LentMemory, PixelFormat, Plane};

/// The geometry of a buffer with these caps: from its video meta where it has one, else as GStreamer lays such a
/// picture out by default.
///
/// # Errors
/// When the format is none of ours or the numbers make no sense, in words.
pub(super) fn geometry(info: &gst_video::VideoInfo, buffer: &gst::BufferRef) -> Result<Geometry, String> {
    let name = info.name();
    let format = PixelFormat::from_name(name).ok_or_else(|| format!("the format {name} is not taken"))?;
    let meta = buffer.meta::<gst_video::VideoMeta>();
    let (width, height) =
        meta.as_ref().map_or((info.width(), info.height()), |meta| (meta.width(), meta.height()));
    let (offsets, strides) = match &meta {
        Some(meta) => (meta.offset(), meta.stride()),
        None => (info.offset(), info.stride()),
    };
    if offsets.len() < format.planes() {
        return Err(format!("{name} with {} planes makes no sense", offsets.len()));
    }
    let mut planes = [Plane::default(); 3];
    for (plane, (&offset, &stride)) in
        planes.iter_mut().zip(offsets.iter().zip(strides)).take(format.planes())
    {
        let stride =
            usize::try_from(stride).map_err(|_| format!("a stride of {stride} bytes is not taken"))?;
        *plane = Plane { offset, stride };
    }
    let colorimetry = info.colorimetry();
    let (matrix, range) = colors(colorimetry.matrix(), colorimetry.range(), format, height);
    Ok(Geometry { format, width, height, planes, matrix, range })
}

/// Lends frames the memory of buffers that are not ours, read in place for as long as the frame lives, without an
/// allocation for each.
#[derive(Debug)]
pub(super) struct Mappings {
    free: Receiver<Box<Mapping>>,
    home: Sender<Box<Mapping>>,
}

/// A mapped buffer, and where its box goes when the frame lets go of it; neither in a box that waits.
struct Mapping(Option<(gst::MappedBuffer<gst::buffer::Readable>, Sender<Box<Mapping>>)>);

impl Mappings {
    /// Boxes are kept for as many frames as are under way at once.
    pub(super) fn new(frames_in_flight: usize) -> Self {
        let (home, free) = bounded(frames_in_flight);
        Self { free, home }
    }

    /// The buffer's bytes.
    ///
    /// # Errors
    /// When the buffer cannot be mapped for reading, in words.
    pub(super) fn lend(&self, buffer: gst::Buffer) -> Result<LentMemory, String> {
        let mapped = buffer.into_mapped_buffer_readable();
        let mapped = mapped.map_err(|_| "its memory cannot be read".to_owned())?;
        let mut lent = self.free.try_recv().unwrap_or_else(|_| Box::new(Mapping(None)));
        lent.0 = Some((mapped, self.home.clone()));
        Ok(LentMemory::from_lender(lent))
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(mapped, _)| mapped.as_slice())
    }
}

impl Lender for Mapping {
    fn take_back(mut self: Box<Self>) {
        if let Some((_, home)) = self.0.take() {
            // Where enough boxes wait, or the connection is gone, it is freed.
            home.try_send(self).ok();
        }
    }
}

/// Our names for GStreamer's colorimetry. What a stream leaves open follows GStreamer's own defaults: BT.601 up to 576
/// lines, BT.709 above; limited range for YCbCr, full for RGB and grey.
fn colors(
    matrix: VideoColorMatrix,
    range: VideoColorRange,
    format: PixelFormat,
    height: u32,
) -> (ColorMatrix, ColorRange) {
    let matrix = match matrix {
        // FCC (old NTSC) and SMPTE 240M (early high definition) are rare; each goes to its nearest of ours.
        VideoColorMatrix::Bt601 | VideoColorMatrix::Fcc => ColorMatrix::Bt601,
        VideoColorMatrix::Bt709 | VideoColorMatrix::Smpte240m => ColorMatrix::Bt709,
        VideoColorMatrix::Bt2020 => ColorMatrix::Bt2020,
        _ if height > 576 => ColorMatrix::Bt709,
        _ => ColorMatrix::Bt601,
    };
    let range = match (range, format) {
        (_, PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra) => ColorRange::Full,
        (VideoColorRange::Range0_255, _) => ColorRange::Full,
        (VideoColorRange::Range16_235, _) => ColorRange::Limited,
        (_, PixelFormat::Gray8) => ColorRange::Full,
        _ => ColorRange::Limited,
    };
    (matrix, range)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn info(caps: &str) -> gst_video::VideoInfo {
        gst::init().unwrap();
        gst_video::VideoInfo::from_caps(&gst::Caps::from_str(caps).unwrap()).unwrap()
    }

    fn geometry_of(caps: &str) -> Geometry {
        geometry(&info(caps), &gst::Buffer::new()).unwrap()
    }

    #[test]
    fn colours_are_taken_from_the_caps_and_else_as_gstreamer_defaults_them() {
        let of = |caps: &str| {
            let geometry = geometry_of(&format!("video/x-raw,{caps}"));
            (geometry.matrix, geometry.range)
        };
        use ColorMatrix::{Bt601, Bt709, Bt2020};
        use ColorRange::{Full, Limited};
        assert_eq!(of("format=I420,width=640,height=480"), (Bt601, Limited));
        assert_eq!(of("format=I420,width=720,height=576"), (Bt601, Limited));
        assert_eq!(of("format=I420,width=1280,height=720"), (Bt709, Limited));
        assert_eq!(of("format=NV12,width=640,height=480,colorimetry=bt709"), (Bt709, Limited));
        assert_eq!(of("format=NV12,width=640,height=480,colorimetry=1:4:0:0"), (Bt601, Full));
        assert_eq!(of("format=NV12,width=640,height=480,colorimetry=bt2020"), (Bt2020, Limited));
        assert_eq!(of("format=I420,width=640,height=480,colorimetry=0:0:0:0"), (Bt601, Limited));
        assert_eq!(of("format=I420,width=1920,height=1080,colorimetry=0:0:0:0"), (Bt709, Limited));
        assert_eq!(of("format=GRAY8,width=640,height=480").1, Full);
        assert_eq!(of("format=RGB,width=640,height=480").1, Full);
    }

    #[test]
    fn without_a_meta_the_layout_is_gstreamers_with_rows_padded_to_four_bytes() {
        let geometry = geometry_of("video/x-raw,format=I420,width=853,height=479");
        assert_eq!((geometry.width, geometry.height), (853, 479));
        assert_eq!(geometry.planes[0], Plane { offset: 0, stride: 856 });
        assert_eq!(geometry.planes[1], Plane { offset: 856 * 480, stride: 428 });
    }

    #[test]
    fn a_meta_overrides_the_default_layout() {
        let info = info("video/x-raw,format=NV12,width=6,height=4");
        let mut buffer = gst::Buffer::with_size(1000).unwrap();
        gst_video::VideoMeta::add_full(
            buffer.get_mut().unwrap(),
            gst_video::VideoFrameFlags::empty(),
            gst_video::VideoFormat::Nv12,
            6,
            4,
            &[64, 600],
            &[64, 128],
        )
        .unwrap();
        let geometry = geometry(&info, &buffer).unwrap();
        assert_eq!(
            geometry.planes[..2],
            [Plane { offset: 64, stride: 64 }, Plane { offset: 600, stride: 128 }]
        );
    }

    #[test]
    fn a_format_that_is_not_ours_is_told() {
        let error =
            geometry(&info("video/x-raw,format=Y444,width=6,height=4"), &gst::Buffer::new()).unwrap_err();
        assert_eq!(error, "the format Y444 is not taken");
    }
}
