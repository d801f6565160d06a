//! Sources that need no GStreamer.

use std::time::{Duration, Instant};

use gantry::frame::PixelFormat;
use gantry::frame::clock::CaptureClock;
use gantry::source::state::CameraState;
use gantry::source::{Address, Rate, TestPattern};

use super::{Camera, all_frames, camera, file, scratch};

fn pattern(format: PixelFormat, size: (u32, u32), frames: Option<u64>) -> Address {
    Address::Test(TestPattern { width: size.0, height: size.1, rate: Rate::PerSecond(200.0), frames, format })
}

#[test]
fn a_pattern_comes_in_every_format_moves_and_ends_after_its_frames() {
    for format in PixelFormat::ALL {
        let mut camera = Camera::start(camera(pattern(format, (33, 17), Some(20))));
        let mut last: Option<Vec<u8>> = None;
        while let Some(frame) = camera.next() {
            assert_eq!(frame.geometry().format, format);
            assert_eq!(frame.times.captured.clock, CaptureClock::Test);
            let bytes = frame.plane(0).to_vec();
            assert_ne!(Some(&bytes), last.as_ref(), "the picture moves");
            last = Some(bytes);
        }
        assert_eq!(camera.states(), [CameraState::Live, CameraState::Ended]);
        assert_eq!(camera.telemetry.frames.get() + camera.telemetry.exhausted.get(), 20);
        camera.stop();
    }
}

#[test]
fn a_pattern_without_free_memory_drops_frames_counts_them_and_goes_on() {
    let mut camera = Camera::start(camera(pattern(PixelFormat::Rgb, (8, 8), None)));
    let mut held = camera.frames(3);
    while camera.telemetry.exhausted.get() == 0 {
        held.extend(camera.mailbox.take());
        camera.wait(Instant::now() + Duration::from_millis(10));
    }
    drop(held);
    let frames = camera.frames(3);
    assert!(frames[0].id < frames[1].id && frames[1].id < frames[2].id);
    camera.stop();
}

#[test]
fn a_picture_is_one_rgb_frame_down_to_one_pixel() {
    let folder = tempfile::tempdir().unwrap();
    for (name, size) in [("a.png", (1, 1)), ("b.png", (853, 479)), ("c.JPG", (31, 7))] {
        let path = folder.path().join(name);
        let image = image::RgbImage::from_fn(size.0, size.1, |x, y| {
            image::Rgb([u8::try_from(x % 256).unwrap(), u8::try_from(y % 256).unwrap(), 7])
        });
        image.save(&path).unwrap();
        let seen = all_frames(&mut file(&path), |frame| (*frame.geometry(), frame.plane(0).to_vec()));
        assert_eq!(seen.len(), 1);
        let (geometry, bytes) = &seen[0];
        assert_eq!((geometry.format, geometry.width, geometry.height), (PixelFormat::Rgb, size.0, size.1));
        if name.ends_with("png") {
            assert_eq!(bytes, image.as_raw());
        }
    }
}

#[test]
fn a_picture_that_is_none_is_told_with_its_cause() {
    let png = {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(64, 64).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    };
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty.png", b"", "empty (0 bytes)"),
        ("page.jpg", b"<!DOCTYPE html><html><body>log in</body></html>", "HTML page"),
        ("text.png", b"this is no picture at all", "neither a PNG nor a JPEG"),
        ("cut.png", &png[..png.len() / 2], "damaged or was cut off"),
        ("anim.jpeg", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", "PNG and JPEG are"),
    ];
    for (name, content, expected) in cases {
        let (_folder, path) = scratch(name, content);
        let mut camera = file(&path);
        let reason = camera.failure();
        assert!(reason.contains(expected) && reason.contains(name), "{name}: {reason}");
        assert!(camera.states().last().unwrap().is_final());
        camera.stop();
    }
}

#[test]
fn raw_frames_come_whole_in_order_and_byte_for_byte() {
    let mut content = b"YUV4MPEG2 W5 H3 F25:1 Ip C420jpeg\n".to_vec();
    let frame_bytes = |number: u8| vec![number; 5 * 3 + 2 * 3 * 2];
    for number in 0..60 {
        content.extend(b"FRAME\n");
        content.extend(frame_bytes(number));
    }
    let (_folder, path) = scratch("raw.y4m", &content);
    let seen = all_frames(&mut file(&path), |frame| {
        assert_eq!(frame.times.captured.clock, CaptureClock::File);
        (frame.times.pts.unwrap(), [0, 1, 2].map(|plane| frame.plane(plane)[0]), frame.plane(0).len())
    });
    let expected: Vec<_> = (0..60)
        .map(|number| (Duration::from_millis(u64::from(number) * 40), [number; 3], frame_bytes(0).len()))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn raw_frames_that_were_cut_off_are_told_with_the_frame_after_all_whole_ones() {
    let mut content = b"YUV4MPEG2 W2 H2 F25:1\n".to_vec();
    content.extend(b"FRAME\nabcdefFRAME\nabc");
    let (_folder, path) = scratch("cut.y4m", &content);
    let mut camera = file(&path);
    assert!(camera.next().is_some());
    assert!(camera.next().is_none());
    let reason = camera.failure();
    assert!(reason.contains("cut off within frame 1 (from 0): it has 3 of its 6 bytes"), "{reason}");
    camera.stop();
}
