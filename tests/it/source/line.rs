//! What the tests of cameras stand on: the line that fails as it is told, and stamps that travel through the whole daemon.

use std::time::Duration;

use crate::rig::{NetFault, RtspServer, Stamp, skip};
use crate::support::{Running, SOON, eventually};

#[test]
fn the_line_between_camera_and_client_fails_as_it_is_told() {
    const TEST: &str = "the_line_between_camera_and_client_fails_as_it_is_told";
    let line = match NetFault::up() {
        Ok(line) => line,
        Err(reason) => return skip(TEST, &reason),
    };
    let server = match RtspServer::start_behind(&line, &["--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let connect = || {
        let program = format!(
            "import socket\ntry: socket.create_connection(('{}', {}), 2); print('ok')\nexcept OSError as e: print(e)",
            NetFault::CAMERA,
            server.port()
        );
        let output = line.beside_the_client("/usr/bin/python3").args(["-c", &program]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(connect(), "ok");
    for (fault, seen) in [("reject", "refused"), ("blackhole", "timed out")] {
        line.tell(&[fault, "on"]);
        assert!(connect().contains(seen), "{fault}");
        line.tell(&[fault, "off"]);
        assert_eq!(connect(), "ok", "{fault}");
    }
    line.tell(&["linkdown"]);
    assert_ne!(connect(), "ok");
    line.tell(&["clean"]);
    // The cable needs a moment.
    eventually("the line is whole again", SOON, || connect() == "ok");
}

#[test]
fn a_stamp_travels_from_the_camera_into_the_message() {
    let server = match RtspServer::start(&["--fps", "10", "--video", "pattern:ball", "--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip("a_stamp_travels_from_the_camera_into_the_message", &reason),
    };
    let config = format!(
        "models: {{dir: $ROOT/tests/data/models}}\ncameras:\n  - {{id: cam1, source: '{}', detect: [{{model: stamp}}]}}\n\
         publish: {{detections: every_frame, stdout: true}}\n",
        server.url("/cam1")
    );
    let gantry = Running::start(&config);
    eventually("twenty frames", SOON, || gantry.lines().len() >= 20);
    let mut last = 0;
    for event in gantry.lines() {
        let found = event["detections"].as_array().unwrap();
        let bits = found.iter().map(|detection| detection["class_id"].as_u64().unwrap());
        let stamp = Stamp::of_bits(bits).unwrap_or_else(|| panic!("{event}"));
        assert!(stamp.number > last, "{} after {last}", stamp.number);
        last = stamp.number;
        let age = Duration::from_millis(stamp.age_ms().try_into().unwrap());
        assert!(age < SOON, "{age:?}");
    }
}
