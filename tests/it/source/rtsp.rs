//! RTSP cameras: a real server, and what can go wrong with one.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use gantry::frame::clock::CaptureClock;
use gantry::frame::{Frame, PixelFormat};
use gantry::secret::Secret;
use gantry::source::state::CameraState;
use gantry::source::{Address, CameraConfig, Transport};
use gantry::telemetry::DropReason;
use gantry::threads::{ThreadKind, ThreadSpec, Threads};

use super::{Camera, PATIENCE, camera};
use crate::rig::{RtspServer, Stamp, data, skip};
use crate::support::{SOON, eventually};

/// A running server, or the end of a test that cannot have one.
macro_rules! server {
    ($test:literal, $($start:tt)+) => {
        match RtspServer::$($start)+ {
            Ok(server) => server,
            Err(reason) => return skip($test, &reason),
        }
    };
}

fn rtsp(url: url::Url) -> CameraConfig {
    camera(Address::Rtsp(url))
}

fn stamp(frame: &Frame) -> Stamp {
    let geometry = frame.geometry();
    assert_eq!((geometry.width, geometry.height), (640, 480));
    Stamp::read(frame.plane(0), geometry.planes[0].stride, 640).expect("the picture has a valid stamp")
}

fn is_reconnecting(state: &CameraState) -> Option<()> {
    matches!(state, CameraState::Reconnecting { .. }).then_some(())
}

/// The names of this process's threads.
fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect()
}

#[test]
fn frames_of_a_live_camera_come_in_order_with_true_times_on_named_threads() {
    let server = server!(
        "frames_of_a_live_camera_come_in_order_with_true_times_on_named_threads",
        start(&["--video", "pattern:ball", "--path", "/cam1"])
    );
    let mut camera = Camera::start(CameraConfig {
        id: gantry::frame::CameraId::new("conveyor-north-2"),
        ..rtsp(server.url("/cam1"))
    });
    let mut last: Option<(u64, Duration, u32)> = None;
    for frame in camera.frames(30) {
        let times = frame.times;
        assert!(matches!(times.captured.clock, CaptureClock::Arrival | CaptureClock::Rtcp));
        assert!(times.captured.at <= times.received && times.captured.error.is_some(), "{times:?}");
        assert!(times.received < times.ready, "decoding takes time");
        let stamp = stamp(&frame);
        // Made, encoded, sent, decoded and taken: never before it was made, and not minutes ago.
        assert!((0..30_000).contains(&stamp.age_ms()), "{stamp:?} {}", stamp.age_ms());
        let pts = times.pts.unwrap();
        if let Some((id, earlier, number)) = last {
            assert!(frame.id > id && pts > earlier && stamp.number > number, "{stamp:?} after {last:?}");
        }
        last = Some((frame.id, pts, stamp.number));
    }
    // Linux keeps 15 bytes.
    let named = thread_names().iter().filter(|name| name.trim() == "src/conveyor-no").count();
    assert!(named >= 2, "the source's own thread and at least one of GStreamer's: {:?}", thread_names());
    assert_eq!(camera.states(), [CameraState::Live]);
    camera.stop();
}

#[test]
fn over_tcp_every_frame_that_the_server_sent_arrives() {
    let video = data("belt.mp4").display().to_string();
    let server = server!(
        "over_tcp_every_frame_that_the_server_sent_arrives",
        start(&["--video", &video, "--as-is", "--fps", "100", "--path", "/cam1"])
    );
    let mut camera = Camera::start(rtsp(server.url("/cam1")));
    let mut taken = 0;
    // The file ends, and with it the stream.
    while camera.states().iter().find_map(is_reconnecting).is_none() {
        taken += u64::from(camera.mailbox.take().is_some());
        camera.wait(Instant::now() + PATIENCE);
    }
    taken += u64::from(camera.mailbox.take().is_some());
    camera.stop();
    let arrived = camera.telemetry.frames.get();
    assert_eq!(arrived, server.frames_sent("/cam1"));
    assert!(arrived >= 250, "{arrived}");
    assert_eq!(camera.telemetry.encoded.get(), arrived);
    assert_eq!(camera.route.offered.get(), arrived);
    assert_eq!(taken + camera.route.drops(DropReason::Stale), arrived, "each is taken or counted");
}

#[test]
fn every_codec_and_transport_comes_through() {
    let server = server!(
        "every_codec_and_transport_comes_through",
        start(&[
            "--video",
            "pattern:ball",
            "--path",
            "/h264",
            "--path",
            "/h265",
            "--codec",
            "h265",
            "--path",
            "/mjpeg",
            "--codec",
            "mjpeg"
        ])
    );
    let cases = [
        ("/h264", Transport::Tcp),
        ("/h264", Transport::Udp),
        ("/h265", Transport::Auto),
        ("/mjpeg", Transport::Tcp),
    ];
    for (path, transport) in cases {
        let mut camera = Camera::start(CameraConfig { transport, ..rtsp(server.url(path)) });
        let frames = camera.frames(10);
        let numbers: Vec<_> = frames.iter().map(|frame| stamp(frame).number).collect();
        assert!(numbers.is_sorted_by(|one, two| one < two), "{path} {transport:?}: {numbers:?}");
        assert_eq!(frames[0].geometry().format, PixelFormat::I420, "{path}");
        camera.stop();
    }
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_found_again() {
    const TEST: &str = "a_server_that_is_killed_and_comes_back_is_found_again";
    let mut server = match RtspServer::start(&["--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let (port, url) = (server.port(), server.url("/cam1"));
    let mut camera = Camera::start(rtsp(url));
    let before = camera.frames(5).last().unwrap().id;
    server.kill();
    let reason = camera.failure();
    assert!(reason.contains("the camera"), "{reason}");
    // While it is away the cause is that nothing listens.
    let refused = format!("nothing listens on 127.0.0.1:{port}");
    camera.wait_for(|state| state.reason().filter(|reason| reason.contains(&refused)).map(drop));
    let back = Instant::now();
    let server = RtspServer::start_on(port, &["--path", "/cam1"]).unwrap();
    // What is left in the mailbox came before.
    drop(camera.mailbox.take());
    let after = camera.frames(5)[0].id;
    assert!(after > before, "frame numbers go on");
    assert_eq!(camera.telemetry.connects.get(), 2);
    assert_eq!(camera.states().last(), Some(&CameraState::Live));
    eprintln!("frames again {:?} after the return began", back.elapsed());
    camera.stop();
    drop(server);
}

#[test]
fn a_refused_connection_is_told_with_its_cause_and_tried_again() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("rtsp://127.0.0.1:{port}/cam1");
    let mut camera = Camera::start(rtsp(url.parse().unwrap()));
    let cause = format!(
        "{url} cannot be opened: nothing listens on 127.0.0.1:{port}; is the camera on, and is the port right?"
    );
    assert_eq!(camera.failure(), cause);
    eventually("it is tried again", SOON, || camera.telemetry.failures() >= 3);
    let told = camera.states().iter().filter(|state| is_reconnecting(state).is_some()).count();
    assert_eq!(told, 1, "the same cause is no change: {:?}", camera.states());
    camera.stop();
}

#[test]
fn the_log_of_a_refused_connection_shows_no_password_of_the_address() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let source = format!("rtsp://u:hunter2@127.0.0.1:{port}/1?user=u&password=hunter3#hunter4");
    let config = format!(
        "devices: [{{id: fake0, backend: fake}}]\nmodels: {{dir: '{}'}}\n\
         cameras: [{{id: press-1, source: '{source}', detect: [{{model: line-parts}}]}}]\npublish: {{stdout: true}}\n",
        crate::support::path("models").display(),
    );
    let file = dir.path().join("gantry.yaml");
    std::fs::write(&file, config).unwrap();
    let log = dir.path().join("log");
    let mut gantry = std::process::Command::new(env!("CARGO_BIN_EXE_gantry"))
        .args(["run", "-c", file.to_str().unwrap()])
        .env("GANTRY_LOG", "trace")
        .stdout(std::fs::File::create(dir.path().join("stdout")).unwrap())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let read = || std::fs::read_to_string(&log).unwrap();
    eventually("the refusal is logged", PATIENCE, || read().contains("nothing listens on"));
    gantry.kill().unwrap();
    gantry.wait().unwrap();
    let log = read();
    assert!(log.contains("DEBUG") && log.contains("rtspsrc location="), "the pipeline is told: {log}");
    assert!(log.contains(&format!("rtsp://127.0.0.1:{port}/1?… cannot be opened")), "{log}");
    assert!(!log.contains("hunter"), "{log}");
}

#[test]
fn a_wrong_path_is_told() {
    let server = server!("a_wrong_path_is_told", start(&["--path", "/cam1"]));
    let mut camera = Camera::start(rtsp(server.url("/cam2")));
    let reason = camera.failure();
    assert!(reason.contains("the camera does not know the path \"/cam2\" (404)"), "{reason}");
    camera.stop();
}

#[test]
fn a_wrong_password_is_told_without_it_and_the_right_one_opens() {
    for method in ["basic", "digest"] {
        let arguments = ["--login", "viewer", "p@ss#%/:?&", "--auth", method, "--path", "/cam1"];
        let server =
            server!("a_wrong_password_is_told_without_it_and_the_right_one_opens", start(&arguments));
        let login = |username: Option<&str>, password: Option<&str>| CameraConfig {
            username: username.map(str::to_owned),
            password: password.map(|password| Secret::new(password.to_owned())),
            ..rtsp(server.url("/cam1"))
        };
        let mut camera = Camera::start(login(None, None));
        let reason = camera.failure();
        assert!(reason.contains("wants a user name and a password (401)"), "{method}: {reason}");
        camera.stop();
        let mut camera = Camera::start(login(Some("viewer"), Some("s3cret")));
        let reason = camera.failure();
        assert!(reason.contains("refuses the user \"viewer\" or the password (401)"), "{method}: {reason}");
        assert!(!reason.contains("s3cret"), "{reason}");
        camera.stop();
        let mut camera = Camera::start(login(Some("viewer"), Some("p@ss#%/:?&")));
        camera.frames(2);
        camera.stop();
    }
}

#[test]
fn a_camera_that_is_a_web_page_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move |_| {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let page = "<!DOCTYPE html><html><body>Camera login</body></html>";
            let length = page.len();
            write!(stream, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}")
                .ok();
        }
    };
    let spec = ThreadSpec { name: "web".into(), kind: ThreadKind::Io, limit: PATIENCE };
    Threads::new().spawn(spec, serve, |_| {}).unwrap();
    let mut camera = Camera::start(rtsp(format!("rtsp://127.0.0.1:{port}/").parse().unwrap()));
    let reason = camera.failure();
    let expected = format!("127.0.0.1:{port} is a web server and answers with an HTML page, not a video");
    assert!(reason.contains(&expected), "{reason}");
    camera.stop();
}

#[test]
fn a_camera_without_a_picture_is_told() {
    let server =
        server!("a_camera_without_a_picture_is_told", start(&["--codec", "sound", "--path", "/cam1"]));
    let mut camera = Camera::start(rtsp(server.url("/cam1")));
    let reason = camera.failure();
    assert!(reason.contains("offers no video stream"), "{reason}");
    camera.stop();
}

#[test]
fn a_name_that_nobody_knows_is_told() {
    let mut camera = Camera::start(rtsp("rtsp://no-such-camera.invalid/cam1".parse().unwrap()));
    let reason = camera.failure();
    assert!(reason.contains("no machine is known by the name \"no-such-camera.invalid\""), "{reason}");
    camera.stop();
}

#[test]
fn a_camera_that_accepts_and_says_nothing_ends_at_once_with_the_daemon() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsp://{}/", listener.local_addr().unwrap());
    let mut camera = Camera::start(rtsp(url.parse().unwrap()));
    let accepted = listener.accept().unwrap();
    let begun = Instant::now();
    camera.stop();
    assert!(begun.elapsed() < PATIENCE / 3, "{:?}", begun.elapsed());
    drop(accepted);
}
