//! USB cameras: what is no camera, and a simulated one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gantry::frame::PixelFormat;
use gantry::frame::clock::CaptureClock;
use gantry::source::state::CameraState;
use gantry::source::{Address, CameraConfig};

use super::{Camera, PATIENCE, camera};
use crate::rig::{Stamp, manifest_dir, skip};
use crate::support::eventually;

fn usb(path: &Path) -> CameraConfig {
    camera(Address::V4l2(path.to_owned()))
}

#[test]
fn a_device_that_is_not_there_is_told_and_tried_again() {
    let mut camera = Camera::start(usb(Path::new("/dev/video-not-there")));
    let reason = camera.failure();
    assert!(
        reason.starts_with("v4l2:///dev/video-not-there cannot be opened: there is no such device"),
        "{reason}"
    );
    assert!(matches!(camera.states()[0], CameraState::Reconnecting { .. }));
    camera.stop();
}

#[test]
fn a_device_that_is_no_camera_is_told() {
    let mut camera = Camera::start(usb(Path::new("/dev/null")));
    let reason = camera.failure();
    assert!(reason.contains("it is no camera"), "{reason}");
    camera.stop();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut camera = Camera::start(usb(file.path()));
    let reason = camera.failure();
    assert!(reason.contains("it is a file, not a device"), "{reason}");
    camera.stop();
}

/// The camera is simulated by a library that must be loaded before the program starts, so the test runs itself again in
/// a process of its own.
#[test]
fn a_usb_camera_delivers_stamps_stalls_is_unplugged_and_comes_back() {
    const TEST: &str = "a_usb_camera_delivers_stamps_stalls_is_unplugged_and_comes_back";
    const DEVICES: &str = "FAKEV4L2_DEV";
    if let Some(device) = std::env::var_os(DEVICES) {
        return with_a_simulated_camera(&PathBuf::from(device));
    }
    let scratch = tempfile::tempdir().unwrap();
    let shim = scratch.path().join("libfakev4l2.so");
    let built = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg(manifest_dir().join("tests/rig/fakev4l2.c"))
        .args(["-ljpeg", "-ldl", "-lpthread"])
        .output();
    if !built.is_ok_and(|built| built.status.success()) {
        return skip(
            TEST,
            "a C compiler with the headers of libjpeg (apt: gcc, libjpeg62-turbo-dev) is needed",
        );
    }
    let inner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("source::usb::{TEST}"), "--nocapture"])
        .env("LD_PRELOAD", &shim)
        .env(DEVICES, scratch.path().canonicalize().unwrap().join("video0"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&inner.stdout).into_owned() + &String::from_utf8_lossy(&inner.stderr);
    assert!(inner.status.success() && text.contains("1 passed"), "{text}");
}

fn with_a_simulated_camera(device: &Path) {
    let plug = |text: &str| std::fs::write(device, text).unwrap();
    for (formats, format) in [("YUYV", PixelFormat::Yuy2), ("MJPG", PixelFormat::I420)] {
        plug(&format!("640x480@30 {formats} live"));
        let mut camera = Camera::start(usb(device));
        let mut last = None;
        for frame in camera.frames(20) {
            let geometry = frame.geometry();
            assert_eq!((geometry.format, geometry.width, geometry.height), (format, 640, 480));
            let stride = geometry.planes[0].stride;
            let luma: Vec<u8> = match format {
                PixelFormat::Yuy2 => frame.plane(0).iter().copied().step_by(2).collect(),
                _ => frame.plane(0).to_vec(),
            };
            let stride = if format == PixelFormat::Yuy2 { stride / 2 } else { stride };
            let stamp = Stamp::read(&luma, stride, 640).expect("the picture has a valid stamp");
            let times = frame.times;
            assert_eq!(times.captured.clock, CaptureClock::V4l2);
            assert!(times.captured.at <= times.received && times.received <= times.ready);
            // The driver's stamp and the picture's say the same, each on its own clock.
            let (seen, told) = (stamp.age_ms(), Instant::now() - times.captured.at);
            let told = i32::try_from(told.as_millis()).unwrap();
            assert!((seen - told).abs() < 1000, "{seen} ms by the picture, {told} ms by the driver");
            assert!(last.is_none_or(|last| stamp.number > last));
            last = Some(stamp.number);
        }
        camera.stop();
    }
    plug("640x480@30 YUYV live");
    let mut camera = Camera::start(CameraConfig { stale_after: Duration::from_secs(1), ..usb(device) });
    camera.frames(3);
    plug("640x480@30 YUYV stall");
    let reason = camera.failure();
    assert!(reason.starts_with("no frame for 1.0 s: nothing comes any more"), "{reason}");
    std::fs::remove_file(device).unwrap();
    camera.wait_for(|state| {
        state.reason().filter(|reason| reason.contains("there is no such device")).map(drop)
    });
    plug("320x240@30 YUYV live");
    drop(camera.mailbox.take());
    assert_eq!(camera.frames(3)[2].geometry().width, 320);
    let reasons = camera.states().len();
    std::fs::remove_file(device).unwrap();
    let unplugged =
        |state: &CameraState| state.reason().is_some_and(|reason| reason.contains("was unplugged"));
    eventually("it is told", PATIENCE, || camera.states()[reasons..].iter().any(unplugged));
    camera.stop();
}
