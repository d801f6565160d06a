//! Only what is needed is decoded.

use std::path::PathBuf;
use std::time::Duration;

use gantry::source::thinning::VideoDecode;
use gantry::source::{Address, CameraConfig};
use gantry::telemetry::SkipReason;

use super::{Camera, PATIENCE, all_frames, camera, ffmpeg};
use crate::rig::{RtspServer, data, skip};
use crate::support::eventually;

/// The belt video, 10 s, with a key frame each second and this many B-frames between others.
fn with_key_frames(b_frames: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.mp4");
    let belt = data("belt.mp4");
    let encoder =
        ["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-sc_threshold", "0", "-bf", b_frames];
    ffmpeg(&[&["-i", belt.to_str().unwrap()], &encoder[..], &[path.to_str().unwrap()]].concat())?;
    Some((folder, path))
}

fn decoding(video_decode: VideoDecode, address: Address) -> CameraConfig {
    CameraConfig { video_decode, ..camera(address) }
}

/// Pictures that nobody wanted decoded.
fn unwanted(camera: &Camera) -> u64 {
    camera.telemetry.skips(SkipReason::Unwanted)
}

fn seconds(camera: &mut Camera) -> Vec<Duration> {
    let mut seen = Vec::new();
    while let Some(frame) = camera.next() {
        seen.push(frame.times.pts.unwrap());
    }
    camera.stop();
    seen
}

#[test]
fn one_frame_a_second_of_a_stream_with_a_key_frame_each_second_decodes_only_those() {
    const TEST: &str = "one_frame_a_second_of_a_stream_with_a_key_frame_each_second_decodes_only_those";
    let each_second: Vec<_> = (4..10).map(Duration::from_secs).collect();
    for b_frames in ["0", "2"] {
        let Some((_folder, path)) = with_key_frames(b_frames) else {
            return skip(TEST, "ffmpeg is not installed");
        };
        let config = decoding(VideoDecode::Auto, Address::File(path));
        let mut camera = Camera::paced(config, Some(1.0));
        let seen = seconds(&mut camera);
        assert_eq!((seen.len(), &seen[4..]), (10, &each_second[..]), "{b_frames} B-frames: {seen:?}");
        let (encoded, skipped) = (camera.telemetry.encoded.get(), unwanted(&camera));
        assert_eq!(encoded + skipped, 250);
        // Three times in a row a key frame must have come in time; with B-frames some pictures come after a later one.
        assert!((70..=90).contains(&encoded), "{encoded}");
        assert_eq!(camera.telemetry.frames.get(), encoded, "what is decoded reaches us");
    }
}

#[test]
fn key_frames_only_decodes_those_and_counts_the_others_as_skipped() {
    const TEST: &str = "key_frames_only_decodes_those_and_counts_the_others_as_skipped";
    let Some((_folder, path)) = with_key_frames("0") else { return skip(TEST, "ffmpeg is not installed") };
    let mut camera = Camera::start(decoding(VideoDecode::Keyframes, Address::File(path)));
    let seen = all_frames(&mut camera, |frame| frame.times.pts.unwrap());
    assert_eq!(seen, (0..10).map(Duration::from_secs).collect::<Vec<_>>());
    assert_eq!((camera.telemetry.encoded.get(), unwanted(&camera)), (10, 240));
}

#[test]
fn all_pictures_are_decoded_where_that_is_asked_for_or_a_model_wants_more_than_key_frames() {
    const TEST: &str =
        "all_pictures_are_decoded_where_that_is_asked_for_or_a_model_wants_more_than_key_frames";
    let cases = [(VideoDecode::All, Some(1.0)), (VideoDecode::Auto, Some(2.0)), (VideoDecode::Auto, None)];
    let Some((_folder, path)) = with_key_frames("0") else { return skip(TEST, "ffmpeg is not installed") };
    for (video_decode, rate_max) in cases {
        let mut camera = Camera::paced(decoding(video_decode, Address::File(path.clone())), rate_max);
        let seen = seconds(&mut camera).len();
        assert_eq!((camera.telemetry.encoded.get(), unwanted(&camera)), (250, 0), "{video_decode:?}");
        // A frame that is a little early passes, so that there is one more at the end.
        let (least, most) = rate_max.map_or((250, 250), |rate| if rate > 1.0 { (20, 21) } else { (10, 11) });
        assert!((least..=most).contains(&seen), "{video_decode:?} {rate_max:?}: {seen}");
    }
}

#[test]
fn of_motion_jpeg_only_as_many_pictures_are_decoded_as_are_wanted() {
    let config = decoding(VideoDecode::Auto, Address::File(data("belt_mjpg.avi")));
    let mut camera = Camera::paced(config, Some(5.0));
    let seen = seconds(&mut camera);
    assert!((14..=16).contains(&seen.len()), "3 s at 5 a second: {seen:?}");
    assert!(unwanted(&camera) > 50, "{}", unwanted(&camera));
}

#[test]
fn a_live_camera_whose_key_frames_suffice_is_neither_stale_nor_late() {
    const TEST: &str = "a_live_camera_whose_key_frames_suffice_is_neither_stale_nor_late";
    let arguments = ["--video", "pattern:ball", "--gop", "12", "--fps", "25", "--path", "/cam1"];
    let server = match RtspServer::start(&arguments) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    // A key frame each 0.48 s, of which each second one is wanted.
    let config = CameraConfig {
        stale_after: Duration::from_millis(700),
        ..decoding(VideoDecode::Auto, Address::Rtsp(server.url("/cam1")))
    };
    let mut camera = Camera::paced(config, Some(1.0));
    eventually("only key frames are decoded", PATIENCE, || unwanted(&camera) > 25);
    let encoded = camera.telemetry.encoded.get();
    let frames = camera.frames(4);
    // The first one may have been waiting since before.
    for pair in frames[1..].windows(2) {
        let apart = pair[1].times.pts.unwrap() - pair[0].times.pts.unwrap();
        // On a busy machine the simulator's stamps are not as even as a camera's.
        assert!((550..1500).contains(&apart.as_millis()), "{apart:?}");
        let decode = pair[1].times.ready - pair[1].times.received;
        assert!(
            decode < Duration::from_millis(480),
            "it left the decoder before the next key frame came: {decode:?}"
        );
    }
    assert!(camera.telemetry.encoded.get() - encoded < 10, "{encoded}");
    assert_eq!(camera.telemetry.failures(), 0, "{:?}", camera.states());
    camera.stop();
}
