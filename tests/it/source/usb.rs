//! USB cameras: what is no camera, and a simulated one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gantry::frame::PixelFormat;
use gantry::frame::clock::CaptureClock;
use gantry::source::controls::ControlConfig;
use gantry::source::state::CameraState;
use gantry::source::usb::{UsbConfig, UsbFormat};
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

/// What the test does when the library is loaded: the camera appears, changes and goes as `device` is written and removed.
fn with_a_simulated_camera(device: &Path) {
    every_format_is_read(device);
    what_is_asked_for_is_taken_or_told(device);
    controls_are_set(device);
    it_stalls_is_unplugged_and_comes_back(device);
}

fn what_is_asked_for_is_taken_or_told(device: &Path) {
    std::fs::write(device, "640x480,1280x720@30 YUYV,MJPG live").unwrap();
    let asking = |usb: UsbConfig| {
        let mut camera = Camera::start(CameraConfig { usb, ..self::usb(device) });
        let frames = camera.frames(3);
        let geometry = *frames[2].geometry();
        drop(frames);
        camera.stop();
        (geometry.format, geometry.width)
    };
    let wish = |format, size| UsbConfig { format, size, ..UsbConfig::default() };
    assert_eq!(asking(UsbConfig::default()), (PixelFormat::Yuy2, 1280), "the largest, not compressed");
    assert_eq!(asking(wish(Some(UsbFormat::Mjpg), Some((640, 480)))), (PixelFormat::I420, 640));
    // What it has not is told in the log, and the nearest is taken.
    assert_eq!(asking(wish(Some(UsbFormat::Nv12), Some((800, 600)))), (PixelFormat::Yuy2, 1280));
    // A part of its name will do.
    let name = device.file_name().unwrap().to_str().unwrap();
    let part = device.with_file_name(format!("*{}", &name[1..]));
    let mut camera = Camera::start(usb(&part));
    camera.frames(1);
    camera.stop();
}

fn controls_are_set(device: &Path) {
    std::fs::write(device, "640x480@30 GREY live").unwrap();
    let mean = |value: i32| {
        let controls = vec![
            ControlConfig { name: "brightness".to_owned(), value },
            // Told in the log, and no reason to see nothing.
            ControlConfig { name: "brightness".to_owned(), value: 256 },
            ControlConfig { name: "zoom".to_owned(), value: 1 },
        ];
        let usb = UsbConfig { controls, ..UsbConfig::default() };
        let mut camera = Camera::start(CameraConfig { usb, ..self::usb(device) });
        let frames = camera.frames(2);
        let luma = &frames[1].plane(0)[640 * 100..640 * 400];
        let mean = luma.iter().map(|&byte| u64::from(byte)).sum::<u64>() / luma.len() as u64;
        drop(frames);
        camera.stop();
        mean
    };
    let (dark, bright) = (mean(0), mean(200));
    assert!(bright > dark + 90, "{dark} and {bright}");
}

fn it_stalls_is_unplugged_and_comes_back(device: &Path) {
    let plug = |text: &str| std::fs::write(device, text).unwrap();
    plug("640x480@30 YUYV live");
    let mut camera = Camera::start(CameraConfig { stale_after: Duration::from_secs(1), ..usb(device) });
    camera.frames(3);
    // On a busy machine the camera before may still have had the device as this one was first tried.
    let told = camera.states().len();
    plug("640x480@30 YUYV stall");
    let since = || camera.states()[told..].iter().find_map(|state| state.reason().map(str::to_owned));
    eventually("it is told", PATIENCE, || since().is_some());
    let reason = since().unwrap();
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

fn every_format_is_read(device: &Path) {
    let formats = [
        ("YUYV", PixelFormat::Yuy2),
        ("UYVY", PixelFormat::Uyvy),
        ("NV12", PixelFormat::Nv12),
        ("GREY", PixelFormat::Gray8),
        ("MJPG", PixelFormat::I420),
    ];
    for (name, format) in formats {
        std::fs::write(device, format!("640x480@30 {name} live")).unwrap();
        let mut camera = Camera::start(usb(device));
        let mut last = None;
        for frame in camera.frames(20) {
            let geometry = frame.geometry();
            assert_eq!((geometry.format, geometry.width, geometry.height), (format, 640, 480));
            let stride = geometry.planes[0].stride;
            let packed = |first| frame.plane(0).iter().copied().skip(first).step_by(2).collect();
            let (luma, stride): (Vec<u8>, _) = match format {
                PixelFormat::Yuy2 => (packed(0), stride / 2),
                PixelFormat::Uyvy => (packed(1), stride / 2),
                _ => (frame.plane(0).to_vec(), stride),
            };
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
}
