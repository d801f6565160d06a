//! What there is to see in encoded pictures: made by real encoders, read by a real decoder, as fast as that goes. The clock is
//! the videos' own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry::source::picture::{PictureConfig, Sight, Watching};
use gantry::source::{Address, CameraConfig};

use super::{Camera, PATIENCE, camera, ffmpeg};
use crate::rig::{RtspServer, data, skip};
use crate::support::eventually;

/// A scene from the belt that does not move. (What repeats a picture does not give all encoders the times that they want.)
const STILL: &str = "loop=loop=-1:size=1:start=0,setpts=N,scale=640:480";

/// Something of 8x12 pixels that changes each second, as the last digit of a clock does.
const CLOCK: &str = "drawbox=x=40:y=12:w=8:h=12:color=white:t=fill:enable='lt(mod(t,2),1)'";

/// How a video is encoded.
#[derive(Clone, Copy, Debug)]
struct Encoder {
    name: &'static str,
    options: &'static [&'static str],
}

/// H.264 as a camera makes it, with these options for its rate.
macro_rules! h264 {
    ($name:literal, $($rate:literal),+) => {
        Encoder {
            name: $name,
            options: &[
                "-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency", $($rate,)+ "-threads", "1",
            ],
        }
    };
}

/// As `rtspcam.py` and many cameras do: the rate is kept, whatever is to be seen.
const H264_300K: Encoder = h264!("h264 300k", "-b:v", "300k", "-maxrate", "300k", "-bufsize", "180k");
const H264_1M: Encoder = h264!("h264 1M", "-b:v", "1M", "-maxrate", "1M", "-bufsize", "600k");
const H264_2M: Encoder = h264!("h264 2M", "-b:v", "2M", "-maxrate", "2M", "-bufsize", "1200k");
/// The quality is kept: a still scene costs nothing between key frames.
const H264_QUIET: Encoder = h264!("h264 quiet", "-qp", "36");
const H265_300K: Encoder = Encoder {
    name: "h265 300k",
    options: &[
        "-c:v",
        "libx265",
        "-preset",
        "ultrafast",
        "-tune",
        "zerolatency",
        "-b:v",
        "300k",
        "-x265-params",
        "pools=1:frame-threads=1:log-level=0:vbv-maxrate=300:vbv-bufsize=180",
    ],
};
const MJPEG: Encoder = Encoder { name: "mjpeg", options: &["-c:v", "mjpeg", "-q:v", "4"] };

/// A video made of the belt.
struct Video {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Video {
    /// So many seconds of what `filters` make of the belt; none where ffmpeg is not installed.
    fn make(encoder: Encoder, filters: &str, fps: u32, gop: u32, seconds: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("video.mkv");
        let filters = format!("settb=1/{fps},setpts=N,{filters},format=yuv420p");
        let (fps, gop, frames) = (fps.to_string(), gop.to_string(), (seconds * fps).to_string());
        let input = ["-i".to_owned(), data("belt.mp4").display().to_string()];
        let input: Vec<&str> = input.iter().map(String::as_str).collect();
        let output = ["-r", &fps, "-g", &gop, "-an", "-frames:v", &frames, path.to_str().unwrap()];
        ffmpeg(&[&input[..], &["-vf", &filters][..], encoder.options, &output[..]].concat())?;
        Some(Self { _folder: folder, path })
    }
}

/// What is told when, in seconds of the video: each change.
fn told(path: &Path) -> Vec<(f64, Sight)> {
    let config = camera(Address::File(path.to_path_buf()));
    let picture = PictureConfig { watch: Watching::On, ..config.picture };
    let mut camera = Camera::start(CameraConfig { picture, ..config });
    let mut told = Vec::new();
    while let Some(frame) = camera.next() {
        // It may be that of a later frame: few of them are under way.
        let sight = camera.intake.sight();
        if told.last().is_none_or(|(_, last)| *last != sight) {
            told.push((frame.times.pts.unwrap().as_secs_f64(), sight));
        }
    }
    camera.stop();
    told
}

fn noise(strength: u32) -> String {
    // ffmpeg's strength is σ times the root of 3.
    format!("{STILL},noise=c0s={strength}:c0f=t")
}

/// `GANTRY_TEST_LONG=1` gives the first number of seconds, and else the second.
fn seconds(long: u32, short: u32) -> u32 {
    if std::env::var_os("GANTRY_TEST_LONG").is_some() { long } else { short }
}

/// The video freezes after 6 s for 12 s and goes on.
fn is_found(test: &str, encoder: Encoder, scene: &str, fps: u32, gop: u32) {
    let filters = format!("{scene},loop=loop={}:size=1:start={},setpts=N", 12 * fps, 6 * fps);
    let Some(video) = Video::make(encoder, &filters, fps, gop, 24) else {
        return skip(test, "ffmpeg is not installed");
    };
    let told = told(&video.path);
    let what = format!("{} of {scene} at {fps} a second, {gop} a group: {told:?}", encoder.name);
    assert_eq!(
        told.iter().map(|(_, sight)| *sight).collect::<Vec<_>>(),
        [Sight::Good, Sight::Frozen, Sight::Good],
        "{what}"
    );
    assert!((8.0..=11.0).contains(&told[1].0), "within 5 s: {what}");
    assert!((17.5..=21.5).contains(&told[2].0), "and over when it moves again: {what}");
    eprintln!("{what}");
}

fn is_never_told(test: &str, encoder: Encoder, filters: &str, (fps, gop): (u32, u32), seconds: u32) {
    let Some(video) = Video::make(encoder, filters, fps, gop, seconds) else {
        return skip(test, "ffmpeg is not installed");
    };
    let told = told(&video.path);
    assert_eq!(told.len(), 1, "{} of {filters} at {fps} a second, {gop} a group: {told:?}", encoder.name);
    assert_eq!(told[0].1, Sight::Good);
}

#[test]
fn a_moving_scene_that_freezes_is_found_whatever_the_encoder_does() {
    const TEST: &str = "a_moving_scene_that_freezes_is_found_whatever_the_encoder_does";
    for encoder in [H264_300K, H264_1M, H264_QUIET, H265_300K, MJPEG] {
        is_found(TEST, encoder, "scale=640:480", 15, 15);
    }
}

#[test]
fn a_noisy_scene_that_freezes_is_found_though_it_costs_as_many_bits_as_before() {
    const TEST: &str = "a_noisy_scene_that_freezes_is_found_though_it_costs_as_many_bits_as_before";
    for (encoder, fps, gop) in [(H264_300K, 15, 15), (H264_1M, 15, 30), (H264_2M, 25, 25), (MJPEG, 15, 15)] {
        is_found(TEST, encoder, &noise(4), fps, gop);
    }
}

#[test]
fn a_scene_that_freezes_is_found_before_its_next_key_frame() {
    const TEST: &str = "a_scene_that_freezes_is_found_before_its_next_key_frame";
    is_found(TEST, H264_1M, &noise(4), 15, 300);
}

#[test]
fn a_still_scene_on_a_noisy_sensor_is_never_frozen_at_300_kbit_a_second() {
    const TEST: &str = "a_still_scene_on_a_noisy_sensor_is_never_frozen_at_300_kbit_a_second";
    for strength in [2, 4, 7] {
        is_never_told(TEST, H264_300K, &noise(strength), (15, 15), seconds(600, 30));
    }
    is_never_told(TEST, H264_300K, &noise(4), (25, 50), seconds(600, 20));
    is_never_told(TEST, H264_300K, &noise(4), (5, 5), seconds(600, 60));
    is_never_told(TEST, H265_300K, &noise(4), (15, 15), seconds(600, 20));
}

#[test]
fn a_still_scene_on_a_noisy_sensor_is_never_frozen_at_2_mbit_a_second() {
    const TEST: &str = "a_still_scene_on_a_noisy_sensor_is_never_frozen_at_2_mbit_a_second";
    for strength in [2, 7] {
        is_never_told(TEST, H264_2M, &noise(strength), (15, 15), seconds(600, 20));
    }
}

#[test]
fn a_still_scene_of_which_nothing_but_key_frames_is_sent_is_never_frozen() {
    const TEST: &str = "a_still_scene_of_which_nothing_but_key_frames_is_sent_is_never_frozen";
    for (strength, gop) in [(2, 15), (4, 30), (4, 150)] {
        is_never_told(TEST, H264_QUIET, &noise(strength), (15, gop), seconds(600, 40));
    }
}

#[test]
fn a_still_scene_in_which_only_a_clock_moves_is_never_frozen() {
    const TEST: &str = "a_still_scene_in_which_only_a_clock_moves_is_never_frozen";
    for encoder in [H264_300K, H264_QUIET, H265_300K, MJPEG] {
        is_never_told(TEST, encoder, &format!("{STILL},{CLOCK}"), (15, 15), seconds(600, 20));
    }
    is_never_told(TEST, H264_300K, &format!("{STILL},{CLOCK}"), (15, 300), seconds(600, 40));
}

#[test]
fn the_belt_and_a_real_surveillance_video_always_show_something() {
    const TEST: &str = "the_belt_and_a_real_surveillance_video_always_show_something";
    for belt in ["belt.mp4", "belt_mjpg.avi"] {
        let told = told(&data(belt));
        assert_eq!((told.len(), told[0].1), (1, Sight::Good), "{belt}: {told:?}");
    }
    let surveillance = Path::new("/usr/share/doc/opencv-doc/examples/data/vtest.avi");
    if !surveillance.exists() {
        return skip(TEST, "apt package opencv-doc, which has vtest.avi, is not installed");
    }
    let told = told(surveillance);
    assert_eq!((told.len(), told[0].1), (1, Sight::Good), "{told:?}");
}

#[test]
fn black_white_and_grey_pictures_are_told_for_what_they_are() {
    const TEST: &str = "black_white_and_grey_pictures_are_told_for_what_they_are";
    for (color, sight) in [("black", Sight::Dark), ("white", Sight::WashedOut), ("gray", Sight::Uniform)] {
        for encoder in [H264_300K, MJPEG] {
            let filters = format!(
                "scale=640:480,drawbox=w=640:h=480:color={color}:t=fill:enable='between(t,4,14)',noise=c0s=3:c0f=t"
            );
            let Some(video) = Video::make(encoder, &filters, 15, 15, 20) else {
                return skip(TEST, "ffmpeg is not installed");
            };
            let told = told(&video.path);
            let sights: Vec<_> = told.iter().map(|(_, sight)| *sight).collect();
            assert_eq!(sights, [Sight::Good, sight, Sight::Good], "{} {color}: {told:?}", encoder.name);
            assert!((5.5..=9.0).contains(&told[1].0) && (13.5..=17.0).contains(&told[2].0), "{told:?}");
        }
    }
}

#[test]
fn a_camera_that_freezes_is_told_and_so_is_that_it_moves_again() {
    const TEST: &str = "a_camera_that_freezes_is_told_and_so_is_that_it_moves_again";
    let video = data("belt.mp4").display().to_string();
    let arguments = [
        "--video", &video, "--loop", "--fps", "15", "--path", "/h264", "--path", "/mjpeg", "--codec", "mjpeg",
    ];
    let server = match RtspServer::start(&arguments) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    for path in ["/h264", "/mjpeg"] {
        let mut camera = Camera::start(camera(Address::Rtsp(server.url(path))));
        camera.frames(20);
        assert_eq!(camera.intake.sight(), Sight::Good);
        server.tell(&format!("freeze {path}"));
        let frozen = std::time::Instant::now();
        eventually("it is told to be frozen", PATIENCE, || camera.intake.sight() == Sight::Frozen);
        eprintln!("{path}: told after {:?}", frozen.elapsed());
        server.tell(&format!("resume {path}"));
        eventually("it is told to move", PATIENCE, || camera.intake.sight() == Sight::Good);
        camera.stop();
    }
}

#[test]
fn what_was_seen_of_a_connection_is_forgotten_with_it() {
    const TEST: &str = "what_was_seen_of_a_connection_is_forgotten_with_it";
    let server = match RtspServer::start(&[
        "--video",
        "pattern:black",
        "--no-stamp",
        "--fps",
        "10",
        "--path",
        "/cam1",
    ]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let mut camera = Camera::start(CameraConfig {
        stale_after: Duration::from_secs(1),
        ..camera(Address::Rtsp(server.url("/cam1")))
    });
    eventually("it is dark", PATIENCE, || camera.intake.sight() == Sight::Dark);
    server.tell("down /cam1");
    eventually("nothing is seen any more", PATIENCE, || camera.intake.sight() == Sight::Good);
    camera.stop();
}
