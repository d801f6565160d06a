//! Where decoded pictures lie: in our slabs, uncopied, and unchanged for as long as anybody holds them.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

use gantry::frame::{Frame, FrameRef, PixelFormat};
use gantry::source::state::CameraState;
use gantry::telemetry::CopyReason;

use super::{Camera, ffmpeg, file, make_video};
use crate::rig::{data, skip};

/// So many frames are held at once, while the video decoder goes on.
const HELD: usize = 12;

/// The visible pixels, whatever the strides.
fn hash(frame: &Frame) -> u64 {
    let (geometry, mut hasher) = (frame.geometry(), DefaultHasher::new());
    for index in 0..geometry.format.planes() {
        let size = geometry.format.plane_size(index, geometry.width as usize, geometry.height as usize);
        for row in 0..size.1 {
            hasher.write(&frame.plane(index)[row * geometry.planes[index].stride..][..size.0]);
        }
    }
    hasher.finish()
}

/// The same of every picture of a video as ffmpeg decodes it.
fn hashes_by_ffmpeg(video: &Path, width: usize, height: usize) -> Option<Vec<u64>> {
    let video = video.to_str().unwrap();
    let pictures =
        ffmpeg(&["-i", video, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-"])?;
    let row_by_row = |picture: &[u8]| {
        let (luma, chroma) = picture.split_at(width * height);
        let mut hasher = DefaultHasher::new();
        luma.chunks(width).chain(chroma.chunks(width / 2)).for_each(|row| hasher.write(row));
        hasher.finish()
    };
    Some(pictures.chunks(width * height * 3 / 2).map(row_by_row).collect())
}

/// The hashes of all frames, after seeing that each stayed what it was while the [`HELD`] after it came.
fn hashes_held(camera: &Camera) -> Vec<u64> {
    let (mut held, mut hashes) = (VecDeque::<FrameRef>::new(), Vec::new());
    let check = |frame: &FrameRef, then: &[u64]| {
        let index = usize::try_from(frame.id).unwrap() - 1;
        assert_eq!(hash(frame), then[index], "frame {} changed while it was held", frame.id);
    };
    while let Some(frame) = camera.next() {
        hashes.push(hash(&frame));
        held.push_back(frame);
        if held.len() > HELD {
            check(&held.pop_front().unwrap(), &hashes);
        }
    }
    held.iter().for_each(|frame| check(frame, &hashes));
    assert_eq!(camera.states().last(), Some(&CameraState::Ended), "{:?}", camera.states());
    hashes
}

fn h264_lies_in_our_slabs(
    video: &Path,
    (width, height): (usize, usize),
    pictures: usize,
) -> Result<(), &'static str> {
    let mut camera = file(video);
    let hashes = hashes_held(&camera);
    camera.stop();
    let counts = &camera.telemetry.pool;
    eprintln!(
        "{}x{}: {} of {} slabs at most, {} aliased, {} copied at the beginning",
        width,
        height,
        counts.high_water(),
        counts.slabs(),
        counts.aliased.get(),
        counts.copies(CopyReason::Opening)
    );
    assert_eq!(hashes.len(), pictures);
    assert_eq!(counts.in_slab.get(), pictures as u64, "all of them");
    assert!(
        counts.aliased.get() > pictures as u64 / 4,
        "those that the decoder refers to: {}",
        counts.aliased.get()
    );
    assert_eq!(counts.copies(CopyReason::Decoder), 0);
    assert_eq!(counts.copies(CopyReason::Format), 0);
    // Those that are inside when libav puts out the first one and asks for memory: what it reorders, and one a thread.
    assert!(counts.copies(CopyReason::Opening) <= 16 + 16 + 1, "{}", counts.copies(CopyReason::Opening));
    let expected = hashes_by_ffmpeg(video, width, height).ok_or("ffmpeg is not installed")?;
    assert!(hashes == expected, "the pictures are those that ffmpeg decodes");
    Ok(())
}

#[test]
fn libav_decodes_h264_into_our_slabs_without_a_copy() {
    if let Err(reason) = h264_lies_in_our_slabs(&data("belt.mp4"), (640, 480), 250) {
        skip("libav_decodes_h264_into_our_slabs_without_a_copy", reason);
    }
}

#[test]
fn full_hd_whose_height_is_no_multiple_of_16_lies_in_our_slabs() {
    const TEST: &str = "full_hd_whose_height_is_no_multiple_of_16_lies_in_our_slabs";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("belt1080.mp4");
    let belt = data("belt.mp4");
    let options =
        ["-vf", "scale=1920:1080", "-frames:v", "60", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"];
    let made = ffmpeg(&[&["-i", belt.to_str().unwrap()], &options[..], &[path.to_str().unwrap()]].concat());
    if made.is_none() {
        return skip(TEST, "ffmpeg is not installed");
    }
    h264_lies_in_our_slabs(&path, (1920, 1080), 60).unwrap();
}

#[test]
fn jpeg_pictures_lie_in_our_slabs_and_nothing_refers_to_them() {
    let mut camera = file(data("belt_mjpg.avi"));
    let hashes = hashes_held(&camera);
    camera.stop();
    let counts = &camera.telemetry.pool;
    assert_eq!(hashes.len(), 75);
    assert_eq!((counts.in_slab.get(), counts.aliased.get()), (75, 0));
    for reason in CopyReason::ALL {
        assert_eq!(counts.copies(reason), 0, "{reason:?}");
    }
}

#[test]
fn raw_video_is_read_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw.avi");
    let options = ["-c:v", "rawvideo", "-pix_fmt", "yuv420p"];
    if !make_video(&path, "testsrc2=size=640x360:rate=25", &options) {
        return skip("raw_video_is_read_where_it_is", "ffmpeg is not installed");
    }
    let mut camera = file(&path);
    let hashes = hashes_held(&camera);
    camera.stop();
    let counts = &camera.telemetry.pool;
    assert_eq!((hashes.len(), counts.in_slab.get(), counts.slabs()), (25, 0, 0));
    for reason in CopyReason::ALL {
        assert_eq!(counts.copies(reason), 0, "{reason:?}");
    }
}

#[test]
fn a_stream_that_changes_its_size_gets_another_pool_and_no_frame_is_misread() {
    const TEST: &str = "a_stream_that_changes_its_size_gets_another_pool_and_no_frame_is_misread";
    let folder = tempfile::tempdir().unwrap();
    let (mut both, mut expected) = (Vec::new(), Vec::new());
    let sizes = [(640, 480), (1280, 720), (320, 240)];
    for (width, height) in sizes {
        let path = folder.path().join(format!("{width}.h264"));
        let source = format!("testsrc2=size={width}x{height}:rate=25");
        let options = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "0", "-pix_fmt", "yuv420p"];
        if !make_video(&path, &source, &options) {
            return skip(TEST, "ffmpeg is not installed");
        }
        both.extend(std::fs::read(&path).unwrap());
        expected.extend(hashes_by_ffmpeg(&path, width, height).unwrap());
    }
    let path = folder.path().join("both.h264");
    std::fs::write(&path, both).unwrap();
    let mut camera = file(&path);
    let (mut held, mut seen, mut pools) = (VecDeque::<FrameRef>::new(), Vec::new(), Vec::new());
    while let Some(frame) = camera.next() {
        let geometry = *frame.geometry();
        assert_eq!(geometry.format, PixelFormat::I420);
        seen.push((geometry.width as usize, geometry.height as usize, hash(&frame)));
        pools.push(camera.telemetry.pool.slab_bytes());
        held.push_back(frame);
        if held.len() > HELD {
            let frame = held.pop_front().unwrap();
            let index = usize::try_from(frame.id).unwrap() - 1;
            assert_eq!(hash(&frame), seen[index].2, "frame {} changed while it was held", frame.id);
        }
    }
    camera.stop();
    assert_eq!(camera.states(), [CameraState::Live, CameraState::Ended]);
    let expected: Vec<_> = sizes
        .iter()
        .flat_map(|size| [*size; 25])
        .zip(expected)
        .map(|((width, height), hash)| (width, height, hash))
        .collect();
    assert!(seen == expected, "{} frames, of {} expected", seen.len(), expected.len());
    pools.dedup();
    assert_eq!(pools.len(), 3, "a pool for each size, made once: {pools:?}");
    assert_eq!(camera.telemetry.pool.in_slab.get(), 75);
}

#[test]
fn whoever_holds_all_frames_breaks_the_stream_with_a_count_and_does_not_hang_it() {
    let mut camera = file(data("belt.mp4"));
    let mut held = Vec::new();
    while let Some(frame) = camera.next() {
        held.push(frame);
    }
    let slabs = usize::try_from(camera.telemetry.pool.slabs()).unwrap();
    assert!(held.len() < 250 && held.len() <= slabs, "{} frames in {slabs} slabs", held.len());
    assert!(camera.telemetry.exhausted.get() > 0);
    let reason = camera.failure();
    eprintln!("{} held of {slabs}: {reason}", held.len());
    assert!(reason.contains("memory"), "{reason}");
    camera.stop();
}
