//! Answers the question what memory pictures may be written to.
//!
//! Whoever feeds the appsink asks once it knows what its pictures are like. Always it is told that any strides and offsets
//! are read, so that a decoder whose own memory has another layout than GStreamer's default hands that out instead of
//! copying each picture. (AppSink's own callback for this is newer than 1.20.) A video decoder is offered our
//! [`pool`] besides. Any other element is not: one that works in place would write into what the decoder refers to.

use gst::prelude::*;
use tracing::debug;

use super::decoder_probe::{self, is_video_decoder};
use super::graph::is_taken;
use super::held::{self, Encoded};
use super::pool::{self, Copying};
use super::tap::{Maker, Tap};

/// Decoders of libav, whose pictures would be copied, and which never write to one again once it is out. (Those of screen
/// recordings and cartoons, such as `avdec_msrle`, paint the next picture over the last one where nobody stops them.)
const ALIASING: [&str; 6] =
    ["avdec_h264", "avdec_h265", "avdec_mpeg2video", "avdec_mpeg4", "avdec_vp8", "avdec_vp9"];

/// Adds to the query what is to be said on the appsink's `pad`.
pub(super) fn answer(pad: &gst::Pad, query: &mut gst::query::Allocation, tap: &Tap) {
    let decoder = decoder_before(pad);
    let factory = decoder.as_ref().and_then(gst::Element::factory).map(|factory| factory.name());
    let factory = factory.as_ref().map_or("", |name| name.as_str());
    tap.note_maker(if is_libav(factory) { Maker::Libav } else { Maker::Other });
    if let Some(decoder) = &decoder
        && let Some(copying) = copying(factory)
        && let Some(caps) = query.get_owned().0.filter(|caps| is_taken(caps))
    {
        let camera = tap.intake().camera();
        let held = pictures_held(decoder, tap);
        match pool::new(tap.intake(), &caps, held, copying) {
            Ok(pool) => {
                debug!(%camera, factory, held, ?copying, "offered our memory for {caps}");
                let size = pool.config().params().map_or(0, |(_, size, ..)| size);
                query.add_allocation_pool(Some(&pool), size, 0, 0);
            }
            Err(error) => debug!(%camera, factory, "no memory of ours for {caps}: {error}"),
        }
    }
    query.add_allocation_meta::<gst_video::VideoMeta>(None);
}

fn is_libav(factory: &str) -> bool {
    factory.starts_with("avdec_")
}

/// What a decoder gets that wants a copy of a picture of ours; none for one that is better off with its own memory.
fn copying(factory: &str) -> Option<Copying> {
    match factory {
        _ if ALIASING.contains(&factory) => Some(Copying::Alias),
        // It would copy each picture from slab to slab, which is dearer than from its own memory.
        _ if is_libav(factory) => None,
        _ => Some(Copying::Deep),
    }
}

/// The video decoder whose pictures come to the appsink as it made them.
fn decoder_before(pad: &gst::Pad) -> Option<gst::Element> {
    let mut before = pad.peer()?;
    while let Some(ghost) = before.downcast_ref::<gst::GhostPad>() {
        before = ghost.target()?;
    }
    before.parent_element().filter(is_video_decoder)
}

fn pictures_held(decoder: &gst::Element, tap: &Tap) -> usize {
    let caps = decoder.static_pad("sink").and_then(|pad| pad.current_caps());
    let structure = caps.as_ref().and_then(|caps| caps.structure(0));
    let side = |name| structure.and_then(|structure| structure.get::<i32>(name).ok());
    let encoded = Encoded {
        media: structure.map_or("", |structure| structure.name().as_str()),
        level: structure.and_then(|structure| structure.get::<&str>("level").ok()),
        width: side("width").and_then(|side| u32::try_from(side).ok()).unwrap_or(0),
        height: side("height").and_then(|side| u32::try_from(side).ok()).unwrap_or(0),
    };
    // Of a live stream libav decodes one picture at a time.
    let threads = if tap.is_live() { 0 } else { decoder_probe::threads() };
    held::pictures(&encoded, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_for_decoders_that_leave_their_pictures_alone() {
        assert_eq!(copying("avdec_h264"), Some(Copying::Alias));
        assert_eq!(copying("avdec_msrle"), None, "it paints over the picture before");
        assert_eq!(copying("jpegdec"), Some(Copying::Deep));
    }
}
