//! What states a camera tells, and that trying again costs nothing.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use gantry::frame::outlet::{Delivery, Outlet};
use gantry::secret::Secret;
use gantry::source::state::CameraState;
use gantry::source::{self, Address, CameraConfig, Intake};
use gantry::telemetry::{CameraTelemetry, resident_bytes};
use gantry::threads::{Heartbeat, shutdown};
use rustix::process::Signal;

use super::{Camera, camera};
use crate::rig::{RtspServer, Stamp, skip};
use crate::support::{SOON, eventually, pause};

fn rtsp(url: url::Url) -> CameraConfig {
    camera(Address::Rtsp(url))
}

fn names(camera: &Camera) -> Vec<&'static str> {
    camera.states().iter().map(CameraState::name).collect()
}

#[test]
fn a_camera_that_stops_sending_is_stale_and_then_opened_anew() {
    let server = match RtspServer::start(&["--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip("a_camera_that_stops_sending_is_stale_and_then_opened_anew", &reason),
    };
    let mut camera =
        Camera::start(CameraConfig { stale_after: Duration::from_secs(1), ..rtsp(server.url("/cam1")) });
    camera.frames(3);
    assert_eq!(server.tell("stall /cam1"), "ok");
    let reason = "no frame for 1.0 s: nothing comes any more, and the connection seems to be open";
    camera.wait_for(|state| {
        matches!(state, CameraState::Stale { reason: told } if told == reason).then_some(())
    });
    camera.wait_for(|state| {
        matches!(state, CameraState::Reconnecting { reason: told } if told == reason).then_some(())
    });
    server.tell("resume /cam1");
    drop(camera.mailbox.take());
    eventually("it is live again", SOON, || {
        let names = names(&camera);
        names.iter().skip_while(|name| **name != "reconnecting").any(|name| *name == "live")
    });
    camera.frames(3);
    // Trying again while it still stalls is no change.
    assert_eq!(names(&camera), ["live", "stale", "reconnecting", "live"]);
    camera.stop();
}

#[test]
fn a_camera_that_hangs_costs_its_neighbour_no_frame() {
    const TEST: &str = "a_camera_that_hangs_costs_its_neighbour_no_frame";
    let start = || RtspServer::start(&["--video", "pattern:ball", "--path", "/cam1"]);
    let (hanging, healthy) = match (start(), start()) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(reason), _) | (_, Err(reason)) => return skip(TEST, &reason),
    };
    let mut sick =
        Camera::start(CameraConfig { stale_after: Duration::from_secs(1), ..rtsp(hanging.url("/cam1")) });
    let mut well = Camera::start(rtsp(healthy.url("/cam1")));
    sick.frames(3);
    well.frames(3);
    hanging.signal(Signal::STOP);
    let number = |_| {
        let frame = well.next().expect("the other camera goes on");
        let geometry = frame.geometry();
        Stamp::read(frame.plane(0), geometry.planes[0].stride, 640).expect("a valid stamp").number
    };
    let numbers: Vec<_> = (0..100).map(number).collect();
    hanging.signal(Signal::CONT);
    // Of those that the test itself was too slow for the next one is taken; what the camera delivered counts.
    let (offered, spanned) = (well.route.offered.get(), u64::from(numbers[99] - numbers[0]));
    assert!(offered > spanned, "{offered} offered of {spanned} sent: {numbers:?}");
    assert_eq!(well.states().iter().filter(|state| **state == CameraState::Live).count(), 1);
    eventually("the other one was noticed", SOON, || names(&sick).contains(&"reconnecting"));
    eventually("and is live again", SOON, || names(&sick).last() == Some(&"live"));
    sick.stop();
    well.stop();
}

#[test]
fn a_wrong_password_is_failed_and_tried_again_slowly() {
    const TEST: &str = "a_wrong_password_is_failed_and_tried_again_slowly";
    let server = match RtspServer::start(&["--login", "viewer", "right", "--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let mut camera = Camera::start(CameraConfig {
        username: Some("viewer".to_owned()),
        password: Some(Secret::new("wrong".to_owned())),
        ..rtsp(server.url("/cam1"))
    });
    camera.wait_for(|state| matches!(state, CameraState::Failed { is_retried: true, .. }).then_some(()));
    // The first wait is 2.5 s at least.
    pause(Duration::from_secs(1));
    assert_eq!(camera.telemetry.failures(), 1);
    assert_eq!(names(&camera), ["failed"]);
    camera.stop();
}

/// How many there are of what `/proc/self/<what>` lists.
fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

#[test]
fn failed_connects_leave_nothing_behind() {
    let tries = if std::env::var_os("GANTRY_TEST_LONG").is_some() { 10_000 } else { 400 };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = rtsp(format!("rtsp://127.0.0.1:{port}/cam1").parse().unwrap());
    let (_end, token) = shutdown();
    let telemetry = Arc::new(CameraTelemetry::new("press-1"));
    let outlet = Outlet::new(Vec::new(), Delivery::NewestWins, telemetry, token.clone());
    let intake = Arc::new(Intake::new(&config, outlet, Box::new(|_| {})));
    let (mut source, heartbeat) = (source::open(&config).unwrap(), Heartbeat::unwatched());
    let mut attempt = || {
        let error = source.run_once(&intake, &token, &heartbeat).unwrap_err().to_string();
        assert!(error.contains("nothing listens"), "{error}");
    };
    // What GStreamer keeps for good, such as its threads, is there after the first few.
    (0..tries / 4).for_each(|_| attempt());
    let before = (count("fd"), count("task"), resident_bytes());
    (0..tries).for_each(|_| attempt());
    let after = (count("fd"), count("task"), resident_bytes());
    eprintln!("after {tries} more: file descriptors, threads, resident bytes: {before:?} to {after:?}");
    assert!(after.0 <= before.0 + 2, "file descriptors: {before:?} to {after:?}");
    assert!(after.1 <= before.1 + 2, "threads: {before:?} to {after:?}");
    // 10,000 that left a kilobyte each would make 10 MiB.
    assert!(after.2 < before.2 + (4 << 20), "resident bytes: {before:?} to {after:?}");
}
