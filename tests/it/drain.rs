//! The end, in whatever state it finds the daemon: bounded, told, and with accounts that add up.

use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::broker::{Broker, BrokerOptions};
use crate::support::{Running, SOON, eventually, pause};

/// What a stop may take, and a generous addition for a machine that is busy.
const BOUND: Duration = Duration::from_secs(5 + 10);

fn config(fake: &str, source: &str, publish: &str) -> String {
    format!(
        "
node: line-7
models: {{dir: $ROOT/models}}
devices: [{{id: fake0, backend: fake, fake: {{{fake}}}}}]
cameras: [{{id: press-1, source: '{source}', detect: [{{model: line-parts}}]}}]
publish: {{detections: every_frame, {publish}}}
"
    )
}

const PATTERN: &str = "test://pattern?size=320x240&rate=100";

/// Asks the daemon to stop and waits for its end; says how long it took.
fn stop(gantry: &mut Running) -> Duration {
    let asked = Instant::now();
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(BOUND).code(), Some(0), "{}", gantry.log());
    eprintln!("stopped within {:.1} s", asked.elapsed().as_secs_f64());
    asked.elapsed()
}

#[test]
fn a_device_that_hangs_does_not_keep_the_broker_from_being_told() {
    let Some(broker) = Broker::start("a_device_that_hangs", BrokerOptions::default()) else { return };
    let subscriber = broker.subscribe();
    let mqtt = format!("stdout: true, mqtt: {{broker: 'mqtt://127.0.0.1:{}'}}", broker.port);
    let mut gantry = Running::start(&config("run_time: 1ms, hang_after: 10", PATTERN, &mqtt));
    eventually("events come", SOON, || gantry.lines().len() >= 8);
    // The next frame comes within 10 ms, and its batch hangs.
    pause(Duration::from_millis(200));
    stop(&mut gantry);
    assert!(gantry.log().contains("dev/fake0"), "it is named: {}", gantry.log());
    loop {
        let status = subscriber.next_on("line-7/status");
        if status.field("status") == "offline" {
            assert_eq!(status.field("reason"), "stopped", "from us, not from the broker: {status:?}");
            return;
        }
    }
}

#[test]
fn a_reader_of_standard_output_that_does_not_read_is_not_waited_for() {
    let (mut gantry, mut reader) = Running::start_piped(&config("run_time: 0ms", PATTERN, "stdout: true"));
    let mut first = [0; 1];
    reader.read_exact(&mut first).unwrap();
    eventually("the pipe is full and so is the queue", SOON, || {
        gantry.signal(Signal::USR1);
        crate::support::pause(Duration::from_millis(500));
        gantry
            .log()
            .lines()
            .rfind(|line| line.contains("sink stdout:"))
            .is_some_and(|line| !line.contains(" 0 dropped"))
    });
    stop(&mut gantry);
    let log = gantry.log();
    assert!(log.contains("out/stdout"), "it is named: {log}");
    assert!(log.contains("+ 0 in flight"), "the summary comes: {log}");
    drop(reader);
}

#[test]
fn a_file_that_is_held_back_by_a_reader_that_does_not_read_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let file = crate::support::raw_frames(dir.path(), 3000);
    let source = format!("file://{file}");
    let (mut gantry, mut reader) = Running::start_piped(&config("run_time: 0ms", &source, "stdout: true"));
    let mut first = [0; 1];
    reader.read_exact(&mut first).unwrap();
    let mut before = 0;
    eventually("the file is held back", SOON, || {
        gantry.signal(Signal::USR1);
        crate::support::pause(Duration::from_millis(500));
        let newest = gantry.log().lines().filter(|line| line.contains("press-1 → ")).map(offered).max();
        let held = before > 0 && newest == Some(before);
        before = newest.unwrap_or(0);
        held
    });
    assert!(before < 3000, "back-pressure reaches the file");
    stop(&mut gantry);
    drop(reader);
}

#[test]
fn a_stop_that_is_asked_for_before_the_daemon_is_ready_is_done() {
    let mut gantry = Running::start(&config("run_time: 1ms", PATTERN, "stdout: true"));
    eventually("it catches signals", SOON, || gantry.log().contains("starts; cameras: 1"));
    stop(&mut gantry);
    assert!(gantry.log().contains("press-1 → line-parts"), "the summary comes: {}", gantry.log());
}

#[test]
fn a_broker_that_takes_the_connection_and_says_nothing_does_not_hold_up_the_end() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mqtt = format!("stdout: true, mqtt: {{broker: 'mqtt://{}'}}", silent.local_addr().unwrap());
    let mut gantry = Running::start(&config("run_time: 1ms", PATTERN, &mqtt));
    let (_connection, _) = silent.accept().unwrap();
    eventually("events come", SOON, || gantry.lines().len() >= 8);
    stop(&mut gantry);
    assert!(gantry.log().contains("were not delivered to the MQTT broker"), "{}", gantry.log());
}

#[test]
fn a_second_term_at_once_leaves_at_once() {
    let mut gantry = Running::start(&config("run_time: 1ms, hang_after: 10", PATTERN, "stdout: true"));
    eventually("events come", SOON, || gantry.lines().len() >= 8);
    // The next frame comes within 10 ms, and its batch hangs.
    pause(Duration::from_millis(200));
    gantry.signal(Signal::TERM);
    gantry.signal(Signal::INT);
    assert_eq!(gantry.wait(SOON).code(), Some(70));
}

#[cfg(feature = "gstreamer")]
#[test]
fn a_camera_that_takes_the_connection_and_says_nothing_does_not_hold_up_the_end() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("rtsp://{}/cam", silent.local_addr().unwrap());
    let mut gantry = Running::start(&config("run_time: 1ms", &source, "stdout: true"));
    let (_connection, _) = silent.accept().unwrap();
    let took = stop(&mut gantry);
    assert!(!gantry.log().contains("abandoned"), "after {took:?}: {}", gantry.log());
}

/// The number of frames in a route's line of the summary.
fn offered(line: &str) -> u64 {
    line.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}
