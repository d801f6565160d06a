//! Video files through GStreamer.

use std::time::Duration;

use gantry::frame::clock::CaptureClock;
use gantry::frame::{ColorMatrix, ColorRange, PixelFormat};
use gantry::source::state::CameraState;
use gantry::telemetry::CopyReason;

use super::{Camera, all_frames, file, make_video, scratch};
use crate::rig::{data, skip};

#[test]
fn the_belt_video_gives_its_250_frames_in_order_without_a_copy() {
    let mut camera = file(data("belt.mp4"));
    let seen = all_frames(&mut camera, |frame| {
        assert_eq!(frame.times.captured.clock, CaptureClock::File);
        assert_eq!((frame.geometry().width, frame.geometry().height), (640, 480));
        assert_eq!(frame.geometry().format, PixelFormat::I420);
        assert_eq!(
            (frame.geometry().matrix, frame.geometry().range),
            (ColorMatrix::Bt601, ColorRange::Limited)
        );
        frame.times.pts.unwrap()
    });
    let expected: Vec<_> = (0..250).map(|n| Duration::from_millis(n * 40)).collect();
    assert_eq!(seen, expected);
    assert_eq!(camera.telemetry.encoded.get(), 250);
    assert_eq!(camera.telemetry.pool.copies(CopyReason::Format), 0);
    assert_eq!(camera.states(), [CameraState::Live, CameraState::Ended]);
}

#[test]
fn motion_jpeg_gives_its_75_frames_in_full_range() {
    let mut camera = file(data("belt_mjpg.avi"));
    let seen = all_frames(&mut camera, |frame| frame.geometry().range);
    assert_eq!(seen, [ColorRange::Full; 75]);
    assert_eq!(camera.telemetry.encoded.get(), 75);
}

#[test]
fn odd_sizes_keep_their_size_with_b_frames_and_with_conversion() {
    const TEST: &str = "odd_sizes_keep_their_size_with_b_frames_and_with_conversion";
    // H.264 takes odd sizes only at 4:4:4, which is also a format that must be converted; MPEG-4 takes them at 4:2:0.
    let cases = [
        ("odd.mkv", ["-c:v", "libx264", "-bf", "3", "-pix_fmt", "yuv444p"], 25),
        ("odd.avi", ["-c:v", "mpeg4", "-bf", "0", "-pix_fmt", "yuv420p"], 0),
    ];
    for (name, options, converted) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        if !make_video(&path, "testsrc=size=853x479:rate=25", &options) {
            return skip(TEST, "ffmpeg is not installed");
        }
        let mut camera = file(&path);
        let seen = all_frames(&mut camera, |frame| (frame.geometry().width, frame.geometry().height));
        assert_eq!(seen, [(853, 479); 25], "{name}");
        assert_eq!(camera.telemetry.pool.copies(CopyReason::Format), converted, "{name}");
    }
}

#[test]
fn padded_rows_are_read_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("padded.mp4");
    // 330 is no multiple of 4, to which GStreamer pads rows; the picture's left half is black, its right half white.
    let source = "color=c=black:size=330x246:rate=25,drawbox=x=165:y=0:w=165:h=246:color=white:t=fill";
    let options = ["-c:v", "libx264", "-bf", "2", "-pix_fmt", "yuv420p", "-qp", "10"];
    if !make_video(&path, source, &options) {
        return skip("padded_rows_are_read_in_place", "ffmpeg is not installed");
    }
    let mut camera = file(&path);
    let strides = all_frames(&mut camera, |frame| {
        let stride = frame.geometry().planes[0].stride;
        for row in [0, 1, 122, 245] {
            let line = &frame.plane(0)[row * stride..][..330];
            assert!(line[..160].iter().all(|luma| luma.abs_diff(16) < 6), "row {row}: {line:?}");
            assert!(line[170..].iter().all(|luma| luma.abs_diff(235) < 6), "row {row}: {line:?}");
        }
        let chroma = frame.geometry().planes[2].stride;
        for row in [0, 122] {
            let line = &frame.plane(2)[row * chroma..][..165];
            assert!(line.iter().all(|v| v.abs_diff(128) < 6), "row {row}: {line:?}");
        }
        stride
    });
    assert_eq!(strides.len(), 25);
    assert!(strides.iter().all(|stride| *stride > 330), "{strides:?}");
    assert_eq!(camera.telemetry.pool.copies(CopyReason::Format), 0);
}

#[test]
fn sound_beside_the_video_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sound.mkv");
    let options = ["-f", "lavfi", "-i", "sine=duration=1", "-c:v", "mpeg4", "-c:a", "flac"];
    if !make_video(&path, "testsrc2=size=64x48:rate=25", &options) {
        return skip("sound_beside_the_video_does_not_matter", "ffmpeg is not installed");
    }
    assert_eq!(all_frames(&mut file(&path), |_| ()).len(), 25);
}

#[test]
fn a_held_back_file_waits_and_ends_at_once_with_the_daemon() {
    let mut camera = file(data("belt.mp4"));
    let first = camera.next().unwrap();
    assert_eq!(first.id, 1);
    camera.stop();
    assert!(camera.telemetry.frames.get() < 10, "nobody took more frames, so no more came");
}

#[test]
fn a_file_that_is_no_video_is_told_with_its_cause_and_is_final() {
    let whole = std::fs::read(data("belt.mp4")).unwrap();
    // Its index is at its beginning, behind the 32 bytes that say that it is an MP4.
    let no_index = &[&whole[..32], &whole[whole.len() / 2..]].concat();
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty.mp4", b"", "it is empty (0 bytes)"),
        (
            "text.mp4",
            b"This is the manual of the camera.\nIt has several pages.\n",
            "no video that GStreamer knows",
        ),
        ("page.mp4", b"<html><head><title>Login</title></head></html>", "it is an HTML page"),
        ("noise.mp4", &[0x8e, 0x01, 0xfe, 0x37, 0x00, 0xc4].repeat(500), "no video that GStreamer knows"),
        ("noindex.mp4", no_index, "damaged or was cut off"),
    ];
    for (name, content, expected) in cases {
        let (_folder, path) = scratch(name, content);
        let mut camera = file(&path);
        let reason = camera.failure();
        eprintln!("{name}: {reason}");
        assert!(reason.contains(expected) && reason.contains(name), "{name}: {reason}");
        assert!(matches!(camera.states().last(), Some(CameraState::Failed { .. })));
        camera.stop();
    }
}

#[test]
fn a_file_that_is_not_there_or_has_no_picture_in_it_is_told() {
    let mut camera: Camera = file("/nowhere/belt.mp4");
    assert_eq!(camera.failure(), "file:///nowhere/belt.mp4 cannot be opened: there is no such file");
    camera.stop();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sound.wav");
    let header = b"RIFF\x24\x10\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x10\x00\x00";
    std::fs::write(&path, [&header[..], &[0; 4096]].concat()).unwrap();
    let mut camera = file(&path);
    let reason = camera.failure();
    assert!(reason.contains("there is no video in it"), "{reason}");
    camera.stop();
}

#[test]
fn a_video_that_was_cut_off_gives_what_it_holds() {
    let whole = std::fs::read(data("belt.mp4")).unwrap();
    let (_folder, path) = scratch("cut.mp4", &whole[..whole.len() / 2]);
    let count = all_frames(&mut file(&path), |_| ()).len();
    assert!((100..150).contains(&count), "{count}");
}
