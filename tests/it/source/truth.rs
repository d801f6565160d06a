//! Nothing is inferred on a picture that is broken or old: each frame that is delivered has a valid stamp, and is as old as
//! it says.

use std::time::{Duration, Instant};

use gantry::frame::clock::CaptureClock;
use gantry::frame::{Frame, FrameRef};
use gantry::source::integrity::OnLoss;
use gantry::source::{Address, CameraConfig, Transport};
use gantry::telemetry::SkipReason;

use super::{Camera, PATIENCE, camera};
use crate::proxy::Proxy;
use crate::rig::{BadCam, RtspServer, Stamp, film, skip};
use crate::support::eventually;

fn rtsp(url: url::Url) -> CameraConfig {
    camera(Address::Rtsp(url))
}

fn stamp(frame: &Frame) -> Option<Stamp> {
    let geometry = frame.geometry();
    assert_eq!((geometry.width, geometry.height), (640, 480));
    Stamp::read(frame.plane(0), geometry.planes[0].stride, 640)
}

/// A film of 15 pictures a second for the camera that breaks the rules.
fn film_of(arguments: &[&str]) -> Result<(tempfile::TempDir, std::path::PathBuf), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.h264");
    film(&path, arguments)?;
    Ok((folder, path))
}

/// How many of the next frames have no valid stamp.
fn invalid(frames: &[FrameRef]) -> usize {
    frames.iter().filter(|frame| stamp(frame).is_none()).count()
}

/// How old the frame says that it is, in milliseconds.
fn told_age_ms(frame: &Frame) -> i32 {
    let age = frame.times.captured.age(Instant::now()).expect("a camera's picture has an age");
    i32::try_from(age.as_millis()).unwrap()
}

/// Joins a stream that another client has had from its first picture on, which is its only key frame for long.
fn joined_midway(arguments: &[&str]) -> Result<(RtspServer, Camera, Camera), String> {
    let server = RtspServer::start(
        &[&["--shared", "--video", "pattern:ball"], arguments, &["--path", "/cam1"]].concat(),
    )?;
    let first = Camera::start(rtsp(server.url("/cam1")));
    first.frames(15);
    let second = Camera::start(rtsp(server.url("/cam1")));
    Ok((server, first, second))
}

#[test]
fn a_stream_that_is_joined_between_two_key_frames_is_seen_from_the_next_one_on() {
    const TEST: &str = "a_stream_that_is_joined_between_two_key_frames_is_seen_from_the_next_one_on";
    for codec in ["h264", "h265"] {
        let joined = joined_midway(&["--gop", "100", "--codec", codec]);
        let (_server, mut first, mut second) = match joined {
            Ok(joined) => joined,
            Err(reason) => return skip(TEST, &reason),
        };
        let frames = second.frames(25);
        assert_eq!(invalid(&frames), 0, "{codec}");
        let skipped = second.telemetry.skips(SkipReason::BeforeKeyFrame);
        assert!(skipped > 5, "{codec}: it was joined midway: {skipped}");
        assert_eq!(second.telemetry.skips(SkipReason::Damaged), 0, "{codec}");
        second.stop();
        first.stop();
    }
}

#[test]
fn a_stream_without_key_frames_is_seen_once_all_of_it_has_been_refreshed() {
    const TEST: &str = "a_stream_without_key_frames_is_seen_once_all_of_it_has_been_refreshed";
    let (_server, mut first, mut second) = match joined_midway(&["--gop", "25", "--codec", "h264-refresh"]) {
        Ok(joined) => joined,
        Err(reason) => return skip(TEST, &reason),
    };
    let frames = second.frames(50);
    assert_eq!(invalid(&frames), 0);
    let skipped = second.telemetry.skips(SkipReason::BeforeKeyFrame);
    assert!((5..150).contains(&skipped), "{skipped}");
    second.stop();
    first.stop();
}

#[test]
fn after_a_lost_packet_nothing_is_seen_until_the_next_key_frame_unless_that_is_asked_for() {
    const TEST: &str =
        "after_a_lost_packet_nothing_is_seen_until_the_next_key_frame_unless_that_is_asked_for";
    let (_folder, path) = match film_of(&["--kbit", "1000"]) {
        Ok(film) => film,
        Err(reason) => return skip(TEST, &reason),
    };
    for on_loss in [OnLoss::Skip, OnLoss::Infer] {
        let server = BadCam::start(&[&path], &["--drop-every", "20"]);
        let mut camera = Camera::start(CameraConfig { on_loss, ..rtsp(server.url()) });
        let frames = camera.frames(60);
        let (invalid, counts) = (invalid(&frames), &camera.telemetry);
        let after_loss = counts.skips(SkipReason::AfterLoss);
        match on_loss {
            OnLoss::Skip => {
                assert_eq!(invalid, 0);
                assert!(after_loss > 10, "{after_loss}");
            }
            // That there is something to guard against.
            OnLoss::Infer => {
                assert!(invalid > 0);
                assert_eq!(after_loss, 0);
            }
        }
        let (packets, lost) = (counts.packets.get(), counts.packets_lost.get());
        // What was lost before the first one came is not counted.
        assert!(lost > 0 && (lost.abs_diff(packets / 19)) <= 2, "{lost} of {packets}");
        camera.stop();
    }
}

#[test]
fn half_a_picture_is_skipped_though_no_packet_is_missing() {
    const TEST: &str = "half_a_picture_is_skipped_though_no_packet_is_missing";
    let (_folder, path) = match film_of(&[]) {
        Ok(film) => film,
        Err(reason) => return skip(TEST, &reason),
    };
    let server = BadCam::start(&[&path], &["--half-picture", "--event-every", "10"]);
    let mut camera = Camera::start(rtsp(server.url()));
    let skips = |reason| camera.telemetry.skips(reason);
    eventually("half pictures are skipped", PATIENCE, || skips(SkipReason::Damaged) >= 3);
    assert!(skips(SkipReason::AfterLoss) > 0, "and what needs them");
    assert!(camera.telemetry.frames.get() > 0, "others are not");
    assert_eq!(camera.telemetry.packets_lost.get(), 0);
    camera.stop();
}

/// What came in the seconds after a hole of 4 s in the network, by how old each picture is and says that it is.
fn after_a_hole(server: &RtspServer, late_after: Duration) -> (Vec<(i32, i32)>, u64) {
    let proxy = Proxy::start(server.port(), &[]);
    let mut url = server.url("/cam1");
    url.set_port(Some(proxy.port)).unwrap();
    let config = CameraConfig { late_after, stale_after: PATIENCE, ..rtsp(url) };
    let mut camera = Camera::start(config);
    // Long enough to know how fast a packet can be.
    camera.frames(25);
    proxy.hold();
    let begun = Instant::now();
    eventually("a hole of 4 s", PATIENCE, || begun.elapsed() > Duration::from_secs(4));
    while camera.mailbox.take().is_some() {}
    proxy.release();
    let mut ages = Vec::new();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let Some(frame) = camera.next() else { break };
        ages.push((stamp(&frame).expect("nothing is lost").age_ms(), told_age_ms(&frame)));
    }
    let late = camera.telemetry.skips(SkipReason::Late);
    camera.stop();
    (ages, late)
}

#[test]
fn the_burst_after_a_hole_in_the_network_is_skipped_until_pictures_are_new_again() {
    const TEST: &str = "the_burst_after_a_hole_in_the_network_is_skipped_until_pictures_are_new_again";
    let server = match RtspServer::start(&["--video", "pattern:ball", "--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let oldest = |ages: &[(i32, i32)]| ages.iter().map(|(age, _)| *age).max().unwrap();
    let (ages, late) = after_a_hole(&server, Duration::from_millis(500));
    assert!(late > 30, "{late}");
    assert!(ages.len() > 10 && oldest(&ages) < 2000, "{ages:?}");
    // Where that is allowed, they come, and say how old they are.
    let (ages, late) = after_a_hole(&server, PATIENCE);
    assert_eq!(late, 0);
    assert!(oldest(&ages) > 2000, "{ages:?}");
    for (age, told) in ages {
        assert!((age - told).abs() < 1000, "{age} ms old, and says {told}");
    }
}

#[test]
fn a_cameras_wall_clock_says_when_a_picture_was_taken() {
    const TEST: &str = "a_cameras_wall_clock_says_when_a_picture_was_taken";
    let cameras = ["--video", "pattern:ball", "--path", "/h264", "--path", "/mjpeg", "--codec", "mjpeg"];
    let server = match RtspServer::start(&cameras) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    for (path, transport) in [
        ("/h264", Transport::Tcp),
        ("/h264", Transport::Udp),
        ("/mjpeg", Transport::Tcp),
        ("/mjpeg", Transport::Udp),
    ] {
        let mut camera = Camera::start(CameraConfig { transport, ..rtsp(server.url(path)) });
        let until = Instant::now() + PATIENCE;
        let mut differences = Vec::new();
        while differences.len() < 25 && Instant::now() < until {
            let Some(frame) = camera.next() else { break };
            if frame.times.captured.clock == CaptureClock::Rtcp {
                assert!(frame.times.captured.at <= frame.times.received);
                let stamp = stamp(&frame).expect("a whole picture");
                differences.push(stamp.age_ms() - told_age_ms(&frame));
            }
        }
        camera.stop();
        assert_eq!(differences.len(), 25, "{path} {transport:?}: a sender report came");
        differences.sort_unstable();
        // One frame interval. The simulator itself takes a moment between the stamp and the stream's time.
        assert!(differences[12].abs() <= 40, "{path} {transport:?}: {differences:?}");
    }
}

#[test]
fn clocks_that_jump_make_no_picture_late_and_no_age_absurd() {
    const TEST: &str = "clocks_that_jump_make_no_picture_late_and_no_age_absurd";
    let (_folder, path) = match film_of(&[]) {
        Ok(film) => film,
        Err(reason) => return skip(TEST, &reason),
    };
    for fault in [
        ["--ts-jump", "-10"],
        ["--ts-jump", "3600"],
        ["--sr-skew", "-3600"],
        ["--sr-skew", "86400"],
        ["--sr-step", "-86400"],
    ] {
        let server = BadCam::start(&[&path], &[&fault[..], &["--event-every", "20"]].concat());
        let mut camera = Camera::start(rtsp(server.url()));
        for frame in camera.frames(60) {
            let age = frame.times.captured.age(frame.times.ready).unwrap();
            assert!(age < Duration::from_secs(2), "{fault:?}: {age:?}");
            if fault[0] == "--sr-skew" {
                assert_eq!(frame.times.captured.clock, CaptureClock::Arrival, "{fault:?}");
            }
        }
        assert_eq!(camera.telemetry.skips(SkipReason::Late), 0, "{fault:?}");
        assert_eq!(camera.telemetry.packets_lost.get(), 0, "{fault:?}");
        camera.stop();
    }
}

#[test]
fn a_stream_whose_clock_is_faster_than_its_pictures_is_not_late() {
    const TEST: &str = "a_stream_whose_clock_is_faster_than_its_pictures_is_not_late";
    let (_folder, path) = match film_of(&[]) {
        Ok(film) => film,
        Err(reason) => return skip(TEST, &reason),
    };
    let server = BadCam::start(&[&path], &["--fps", "25", "--pace", "21"]);
    let mut camera = Camera::start(rtsp(server.url()));
    camera.frames(210);
    let (late, frames) = (camera.telemetry.skips(SkipReason::Late), camera.telemetry.frames.get());
    assert!(late < frames / 10, "{late} late, {frames} in time");
    camera.stop();
}
