//! `gantry camera probe` on real streams.

use serde_json::Value;

use crate::rig::{RtspServer, Stamp, data, skip};
use crate::support::gantry;

fn probed(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = gantry(&[&["camera", "probe", "--json", "--seconds", "3"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let report = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error} in {text}{}", String::from_utf8_lossy(&output.stderr));
    });
    (output.status.code(), report)
}

#[test]
fn what_a_camera_sends_is_told_and_its_picture_is_kept() {
    let server = match RtspServer::start(&["--video", "pattern:ball", "--gop", "10", "--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip("what_a_camera_sends_is_told_and_its_picture_is_kept", &reason),
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.png");
    let (code, report) = probed(&[server.url("/cam1").as_str(), "--snapshot", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["failure"], Value::Null);
    assert_eq!(report["stream"]["tracks"], serde_json::json!(["video H264"]));
    let codec = report["stream"]["codec"].as_str().unwrap();
    assert!(codec.starts_with("H.264 main"), "{codec}");
    assert_eq!((&report["stream"]["width"], &report["stream"]["height"]), (&640.into(), &480.into()));
    let interval = report["stream"]["key_frame_interval_s"].as_f64().unwrap();
    assert!((interval - 0.4).abs() < 0.1, "10 pictures of 25 a second, not {interval} s");
    let pictures = &report["pictures"];
    assert_eq!((&pictures["width"], &pictures["height"]), (&640.into(), &480.into()));
    let rate = pictures["rate"].as_f64().unwrap();
    assert!((15.0..=30.0).contains(&rate), "{rate}");
    assert!(report["packets"].as_u64() > Some(50), "{report}");
    let picture = image::open(&file).unwrap().into_luma8();
    assert!(Stamp::read(&picture, 640, 640).is_some(), "the picture's stamp is valid");
}

#[test]
fn why_a_camera_cannot_be_opened_is_told() {
    let (code, report) = probed(&["v4l2:///dev/video-not-there"]);
    assert_eq!(code, Some(75), "{report}");
    assert!(report["failure"].as_str().unwrap().contains("there is no such device"), "{report}");
    assert_eq!(report["pictures"], Value::Null);
    let output = gantry(&["camera", "probe", "rstp://camera/1"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8(output.stderr).unwrap().contains("did you mean rtsp://"));
}

#[test]
fn a_file_is_told_too() {
    let (code, report) = probed(&[data("belt.mp4").to_str().unwrap()]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["pictures"]["clock"], "file");
    assert_eq!(report["pictures"]["age_ms"], Value::Null);
    assert!(report["stream"]["codec"].as_str().unwrap().starts_with("H.264"), "{report}");
}
