//! Quality, deadlines and overload on a scripted device, in real time and with tolerance; exactly, they are held in virtual
//! time (`scheduler.rs`).

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, SOON, eventually, pause};

/// A config with these cameras on one scripted device.
fn config(fake: &str, cameras: &str) -> String {
    format!(
        "
models: {{dir: $ROOT/models}}
devices: [{{id: fake0, backend: fake, fake: {{{fake}}}}}]
cameras:
{cameras}
publish: {{detections: every_frame, stdout: true}}
"
    )
}

fn cameras(name: &str, count: u32, rate: u32, detect: &str) -> String {
    let camera = |n: u32| {
        format!(
            "  - {{id: {name}{n}, source: 'test://pattern?size=64x64&rate={rate}', \
             detect: [{{model: line-parts{detect}}}]}}\n"
        )
    };
    (0..count).map(camera).collect()
}

/// Results of the cameras whose name begins so.
fn of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["camera"].as_str().unwrap().starts_with(name)).collect()
}

/// Frames that are counted for this reason, of all cameras whose name begins so.
fn dropped(log: &str, name: &str, reason: &str) -> u64 {
    let line = |line: &&str| line.trim_start().starts_with(name) && line.contains(" → ");
    let last = log.rfind("MiB resident").unwrap();
    let count = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let counted =
            |pair: &&[&str]| pair[1].trim_end_matches(';') == reason && pair[0].parse::<u64>().is_ok();
        words.windows(2).find(counted).map_or(0, |pair| pair[0].parse().unwrap())
    };
    log[last..].lines().filter(line).map(count).sum()
}

#[test]
fn under_overload_realtime_keeps_its_deadlines_and_best_effort_gets_what_is_left() {
    // 320 frames a second for a device that does about 107.
    let fake = "run_time: 35ms, run_time_per_frame: 5ms";
    let all = cameras("rt", 8, 10, ", quality: realtime, deadline: 300ms")
        + &cameras("be", 24, 10, ", quality: best_effort");
    let mut gantry = Running::start(&config(fake, &all));
    // What came while the device was warmed up is not counted.
    eventually("frames come", SOON, || gantry.lines().len() >= 50);
    gantry.signal(Signal::USR1);
    eventually("the first counts come", SOON, || gantry.log().contains("device fake0: "));
    let (events, log) = (gantry.lines(), gantry.log());
    let missed = |log: &str| dropped(log, "rt", "late") + dropped(log, "rt", "stale");
    let before = (missed(&log), of(&events, "rt").len(), of(&events, "be").len());
    eventually("frames come", SOON, || gantry.lines().len() >= 450);
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0));
    let (events, log) = (gantry.lines(), gantry.log());
    let (realtime, rest) = ((of(&events, "rt").len() - before.1) as u64, of(&events, "be").len() - before.2);
    let missed = missed(&log) - before.0;
    eprintln!("{realtime} realtime results, {missed} missed; {rest} of the others");
    // None, on a machine that has nothing else to do (benches/load.rs).
    assert!(missed * 20 <= realtime, "{missed} of {realtime}: {log}");
    assert!(rest > 0 && dropped(&log, "be", "stale") > 0, "{log}");
}

#[test]
fn more_realtime_than_the_device_can_do_is_told_once_with_the_figures() {
    let all = cameras("rt", 4, 50, ", quality: realtime, rate_max: 50");
    let gantry = Running::start(&config("run_time: 20ms, run_time_per_frame: 5ms", &all));
    eventually("it is told", SOON, || gantry.log().contains("overcommitted: realtime cameras ask for 200.0"));
    pause(Duration::from_millis(2500));
    assert_eq!(gantry.log().matches(" overcommitted:").count(), 1, "{}", gantry.log());
}

#[test]
fn a_deadline_shorter_than_the_model_is_told_with_both_figures() {
    let gantry = Running::start(&config("run_time: 50ms", &cameras("a", 1, 10, ", deadline: 20ms")));
    eventually("it is told", SOON, || {
        gantry.log().contains("its deadline is 20.0 ms: every result comes too late")
    });
    assert!(gantry.log().contains("one frame takes 50."), "{}", gantry.log());
}

#[test]
fn a_late_result_that_is_wanted_is_published_marked_and_counted() {
    let all = cameras("a", 1, 10, ", deadline: 20ms, publish_late: true");
    let mut gantry = Running::start(&config("run_time: 50ms", &all));
    eventually("events come", SOON, || gantry.lines().len() >= 5);
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0));
    assert!(gantry.lines().iter().all(|event| event["late"] == true), "{:?}", gantry.lines());
    assert!(gantry.log().contains("of the results late"), "{}", gantry.log());
    assert_eq!(dropped(&gantry.log(), "a0", "late"), 0);
}

#[test]
fn batches_bring_most_of_what_they_can() {
    // 10 ms a run and 1 ms a frame: 8 in 18 ms are 444 a second at best, one by one they are 91.
    let gantry =
        Running::start(&config("run_time: 10ms, run_time_per_frame: 1ms", &cameras("a", 16, 50, "")));
    eventually("events come", SOON, || gantry.lines().len() >= 100);
    let (before, span) = (gantry.lines().len(), Duration::from_secs(3));
    pause(span);
    let rate = (gantry.lines().len() - before) as f64 / span.as_secs_f64();
    eprintln!("{rate:.0} frames a second of 444");
    assert!(rate > 250.0, "{rate} frames a second");
}
