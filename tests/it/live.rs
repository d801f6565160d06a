//! Live cameras and a real broker, the whole daemon between them: the accounts add up, memory stays, and what goes away
//! comes back.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::broker::{Broker, BrokerOptions};
use crate::rig::{RtspServer, skip};
use crate::support::{Running, SOON, eventually, pause};

const BELT: [&str; 7] = ["--video", "tests/data/belt.mp4", "--loop", "--fps", "25", "--no-stamp", "--path"];

/// `GANTRY_TEST_LONG=1` gives the first time, for a thorough look, and else the second.
fn long_or_short(long: u64, short: u64) -> Duration {
    let is_long = std::env::var_os("GANTRY_TEST_LONG").is_some();
    Duration::from_secs(if is_long { long } else { short })
}

fn camera(server: &RtspServer, id: &str) -> String {
    format!(
        "  - {{id: {id}, source: '{}', detect: [{{model: line-parts}}]}}\n",
        server.url(&format!("/{id}"))
    )
}

/// The last event of a camera, if there is one.
fn newest(lines: &[Value], camera: &str) -> Option<u64> {
    lines.iter().rev().find(|event| event["camera"] == camera).and_then(|event| event["seq"].as_u64())
}

/// The number before `what` in the summary's line that holds `line`.
fn number(log: &str, line: &str, what: &str) -> u64 {
    let line = log.lines().rfind(|text| text.contains(line)).unwrap();
    let before = line.split(what).next().unwrap();
    assert_ne!(before, line, "{what} is not in {line}");
    before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn four_cameras_go_on_publishing_their_accounts_add_up_and_memory_stays() {
    let ids = ["cam1", "cam2", "cam3", "cam4"];
    let mut arguments = BELT[..6].to_vec();
    let paths = ids.map(|id| format!("/{id}"));
    for path in &paths {
        arguments.extend(["--path", path]);
    }
    let server = match RtspServer::start(&arguments) {
        Ok(server) => server,
        Err(reason) => return skip("four_cameras", &reason),
    };
    let cameras: String = ids.iter().map(|id| camera(&server, id)).collect();
    let config = format!(
        "models: {{dir: $ROOT/models}}\ndevices: [{{id: cpu0}}]\ncameras:\n{cameras}\
         publish: {{detections: nonempty, stdout: true}}\n"
    );
    let mut gantry = Running::start(&config);
    eventually("all four are seen", SOON, || {
        let lines = gantry.lines();
        ids.iter().all(|id| newest(&lines, id).is_some())
    });
    let (early, late) = (long_or_short(20, 6), long_or_short(60, 14));
    let started = Instant::now();
    pause(early);
    let (resident, before) = (gantry.resident(), gantry.lines());
    pause(late.saturating_sub(started.elapsed()));
    let (grown, after) = (gantry.resident(), gantry.lines());
    for id in ids {
        assert!(newest(&after, id) > newest(&before, id), "{id} goes on");
    }
    println!("resident {resident} → {grown} bytes");
    assert!(grown.abs_diff(resident) * 50 <= resident, "resident {resident} → {grown} bytes");
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
    let log = gantry.log();
    for id in ids {
        let frames = number(&log, &format!("camera {id}:"), " frames out");
        let encoded = number(&log, &format!("camera {id}:"), " encoded in");
        let sent = server.frames_sent(&format!("/{id}"));
        println!("{id}: sent {sent}, encoded {encoded}, frames {frames}");
        assert!(
            frames <= encoded && encoded <= sent,
            "{id}: sent {sent}, encoded {encoded}, frames {frames}"
        );
        // What the server put into the connection after we asked to end it, and what was on its way.
        assert!(sent - frames <= 15, "{id}: sent {sent}, encoded {encoded}, frames {frames}");
        let route = format!("{id} → line-parts:");
        let line = log.lines().rfind(|line| line.contains(&route)).unwrap();
        let sum = line.split(&route).nth(1).unwrap().split(';').next().unwrap();
        let (offered, parts) = sum.split_once(" frames = ").unwrap();
        let parts: u64 = parts
            .split('+')
            .map(|part| part.split_whitespace().next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(offered.trim().parse::<u64>().unwrap(), parts, "{line}");
        assert_eq!(parts, frames, "{line}");
        assert!(line.contains("+ 0 in flight"), "{line}");
    }
}

#[test]
fn a_camera_that_was_killed_and_comes_back_is_seen_again() {
    let arguments = [&BELT[..], &["/cam1"]].concat();
    let mut server = match RtspServer::start(&arguments) {
        Ok(server) => server,
        Err(reason) => return skip("a_camera_that_was_killed", &reason),
    };
    let config = format!(
        "models: {{dir: $ROOT/models}}\ndevices: [{{id: cpu0}}]\ncameras:\n{}publish: {{stdout: true}}\n",
        camera(&server, "cam1")
    );
    let gantry = Running::start(&config);
    eventually("the camera is seen", SOON, || gantry.lines().len() > 10);
    server.kill();
    eventually("its loss is told", SOON, || gantry.log().contains("is tried again until it comes back"));
    pause(Duration::from_secs(10));
    let before = newest(&gantry.lines(), "cam1");
    let _server = RtspServer::start_on(server.port(), &arguments).unwrap();
    let back = Instant::now();
    eventually("detections go on", SOON, || newest(&gantry.lines(), "cam1") > before);
    println!("seen again {:.1} s after the return", back.elapsed().as_secs_f64());
}

#[test]
fn a_broker_that_goes_away_slows_no_frame_and_gets_everything_when_it_is_back() {
    let Some(mut broker) = Broker::start("a_broker_that_goes_away", BrokerOptions::default()) else { return };
    let config = format!(
        "node: line-7
models: {{dir: $ROOT/models}}
devices: [{{id: fake0, backend: fake, fake: {{run_time: 1ms}}}}]
cameras:
  - {{id: press-1, source: 'test://pattern?size=320x240&rate=25', detect: [{{model: line-parts}}]}}
publish: {{detections: every_frame, stdout: true, mqtt: {{broker: 'mqtt://127.0.0.1:{}'}}}}
",
        broker.port
    );
    let subscriber = broker.subscribe();
    let mut gantry = Running::start(&config);
    assert_eq!(subscriber.next_on("press-1/detections").field("seq"), 1);
    broker.stop();
    let before = gantry.lines().len();
    let away = long_or_short(30, 3);
    pause(away);
    let during = gantry.lines().len();
    // 25 frames a second, on a machine that may be busy.
    let frames = usize::try_from(away.as_secs()).unwrap() * 13;
    assert!(during >= before + frames, "frames go on while the broker is away: {before} → {during}");
    broker.start_again();
    let subscriber = broker.subscribe();
    let resumed = subscriber.next_on("press-1/detections");
    println!("after the outage the first message seen is {}", resumed.field("seq"));
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
    loop {
        let status = subscriber.next_on("line-7/status");
        if status.field("status") == "offline" {
            assert_eq!(status.field("reason"), "stopped");
            return;
        }
    }
}
