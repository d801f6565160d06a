//! The command line as a person or a script meets it: exit codes, messages, signals.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, SOON, copy_dir, eventually, gantry};

/// A camera that Gantry makes itself, and a device that takes no time.
const PATTERN: &str = "
node: line-7
models: {dir: $ROOT/models}
devices: [{id: fake0, backend: fake, fake: {run_time: 2ms}}]
cameras:
  - {id: press-1, source: 'test://pattern?size=320x240&rate=50', detect: [{model: line-parts}]}
publish: {detections: every_frame, stdout: true}
";

#[test]
fn a_wrong_command_line_ends_with_64_and_help_with_0() {
    let wrong = gantry(&["fly"]);
    assert_eq!(wrong.status.code(), Some(64));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("unrecognized subcommand 'fly'"));
    assert_eq!(gantry(&["run", "--no-such-flag"]).status.code(), Some(64));
    assert_eq!(gantry(&[]).status.code(), Some(64));
    for help in [&["--help"][..], &["run", "--help"], &["detect", "--help"], &["model", "--help"]] {
        let help = gantry(help);
        assert_eq!(help.status.code(), Some(0));
        assert!(String::from_utf8(help.stdout).unwrap().contains("Example:"));
    }
    let version = gantry(&["--version"]);
    assert_eq!(
        String::from_utf8(version.stdout).unwrap().trim(),
        format!("gantry {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_config_that_is_not_there_ends_with_78_and_says_so() {
    let output = gantry(&["run", "-c", "/nonexistent/gantry.yaml"]);
    assert_eq!(output.status.code(), Some(78));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/gantry.yaml"), "{text}");
}

#[test]
fn a_model_with_a_wrong_hash_is_refused_by_run_and_by_check() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("line-parts/1.0.0");
    copy_dir(&crate::support::path("models/line-parts/1.0.0"), &bundle);
    let picture = bundle.join("golden/640x360.jpg");
    let mut bytes = std::fs::read(&picture).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&picture, bytes).unwrap();
    let config = dir.path().join("gantry.yaml");
    std::fs::write(&config, PATTERN.replace("$ROOT/models", dir.path().to_str().unwrap())).unwrap();
    let config = config.to_str().unwrap();
    let run = gantry(&["run", "-c", config]);
    assert_eq!(run.status.code(), Some(78));
    let text = String::from_utf8(run.stderr).unwrap();
    assert!(text.contains("golden/640x360.jpg has the SHA-256"), "{text}");
    let check = gantry(&["check", "-c", config, "--json"]);
    assert_eq!(check.status.code(), Some(78));
    let report: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert!(report["failures"][0].as_str().unwrap().contains("640x360.jpg"), "{report}");
}

#[test]
fn term_ends_with_0_after_everything_inside_has_come_out() {
    let mut gantry = Running::start(PATTERN);
    eventually("events come", SOON, || gantry.lines().len() > 20);
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
    let lines = gantry.lines();
    for (index, event) in lines.iter().enumerate() {
        assert_eq!(event["seq"], index + 1, "no gap");
        assert_eq!(event["node"], "line-7");
        assert_eq!(event["capture_clock"], "test");
    }
    let log = gantry.log();
    assert!(log.contains("stopping: asked to by a signal"), "{log}");
    assert!(log.contains(&format!("{} published", lines.len())), "the summary counts them: {log}");
    assert!(log.contains("0 in flight"), "{log}");
}

#[test]
fn usr1_writes_all_states_and_counters_to_the_log() {
    let gantry = Running::start(PATTERN);
    eventually("events come", SOON, || !gantry.lines().is_empty());
    gantry.signal(Signal::USR1);
    eventually("the dump comes", SOON, || gantry.log().contains("press-1 → line-parts"));
    assert!(gantry.log().contains("camera press-1: live"), "{}", gantry.log());
}

/// Gantry whose device hangs inside a batch. That it does is seen by the frames that displace each other.
fn hanging() -> Running {
    let gantry = Running::start(&PATTERN.replace("run_time: 2ms", "run_time: 2ms, hang_after: 5"));
    // Two of the five warm the device up.
    eventually("events come", SOON, || gantry.lines().len() == 3);
    eventually("the device hangs", SOON, || {
        gantry.signal(Signal::USR1);
        let log = gantry.log();
        let stale = log.rsplit_once(" stale + ").map_or("", |(before, _)| before);
        stale.rsplit(' ').next().and_then(|count| count.parse().ok()).is_some_and(|count: u32| count >= 10)
    });
    gantry
}

#[test]
fn a_second_term_ends_a_drain_that_hangs() {
    let mut gantry = hanging();
    gantry.signal(Signal::TERM);
    eventually("it begins to stop", SOON, || gantry.log().contains("stopping"));
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(70));
}

#[test]
fn a_drain_gives_up_on_a_device_that_hangs_and_names_it() {
    let mut gantry = hanging();
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0));
    assert!(gantry.log().contains("dev/fake0"), "{}", gantry.log());
}

#[test]
fn a_reader_of_standard_output_that_goes_away_ends_the_run() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gantry.yaml");
    let text = PATTERN.replace("$ROOT", crate::support::root().to_str().unwrap());
    std::fs::write(&config, text).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_gantry"))
        .args(["run", "-c", config.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'));
    let mut status = None;
    eventually("gantry ends", SOON, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(75));
}
