//! The data plane over synthetic cameras and a scripted device: what is dropped, what is counted, what adds up.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, SOON, eventually, pause, raw_frames};

/// A config with these cameras on one scripted device.
fn config(fake: &str, cameras: &str, batching: &str) -> String {
    format!(
        "
models: {{dir: $ROOT/models}}
devices: [{{id: fake0, backend: fake, fake: {{{fake}}}}}]
cameras:
{cameras}
batching: {{{batching}}}
publish: {{detections: every_frame, stdout: true}}
"
    )
}

fn camera(id: &str, rate: u32, frames: Option<u32>, detect: &str) -> String {
    let frames = frames.map_or(String::new(), |frames| format!("&frames={frames}"));
    format!(
        "  - {{id: {id}, source: 'test://pattern?size=160x120&rate={rate}{frames}', \
         detect: [{{model: line-parts{detect}}}]}}"
    )
}

/// The numbers of the route's line in the last summary: offered and each part of the sum.
fn accounts(log: &str, camera: &str) -> (u64, Vec<(String, u64)>) {
    let line = log.lines().rfind(|line| line.contains(&format!("{camera} → "))).unwrap();
    let sum = line.split(": ").nth(1).unwrap().split(';').next().unwrap();
    let (offered, parts) = sum.split_once(" frames = ").unwrap();
    let part = |part: &str| {
        let (count, name) = part.trim().split_once(' ').unwrap();
        (name.to_owned(), count.parse().unwrap())
    };
    (offered.trim().parse().unwrap(), parts.split('+').map(part).collect())
}

fn count(parts: &[(String, u64)], name: &str) -> u64 {
    parts.iter().find(|(part, _)| part == name).map_or(0, |(_, count)| *count)
}

#[test]
fn a_device_that_is_too_slow_drops_stale_frames_counts_them_and_stays_fresh() {
    let cameras = camera("a", 100, Some(200), "");
    let mut gantry = Running::start(&config("run_time: 40ms", &cameras, ""));
    assert!(gantry.wait(SOON * 2).success(), "{}", gantry.log());
    let (offered, parts) = accounts(&gantry.log(), "a");
    let published = count(&parts, "published");
    assert_eq!(published, u64::try_from(gantry.lines().len()).unwrap());
    assert_eq!(offered, parts.iter().map(|(_, count)| count).sum::<u64>(), "{parts:?}");
    assert!(count(&parts, "stale") > 0 && published > 0, "{parts:?}");
    assert_eq!(count(&parts, "in flight"), 0);
    let ids: Vec<_> = gantry.lines().iter().map(|event| event["frame"]["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "in order, none twice");
}

#[test]
fn the_stages_add_up_to_the_time_from_received_to_event() {
    let cameras = camera("a", 25, Some(20), "");
    let mut gantry = Running::start(&config("run_time: 10ms", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    for event in gantry.lines() {
        let sum: f64 = event["stage_ms"].as_object().unwrap().values().map(|ms| ms.as_f64().unwrap()).sum();
        // Of a test camera the picture is taken when it is received, so the age is the same span.
        let age = event["age_ms"].as_f64().unwrap();
        assert!((sum - age).abs() < 0.01, "{event}");
        assert!(event["stage_ms"]["infer"].as_f64().unwrap() >= 10.0, "the script's time is in it: {event}");
    }
}

#[test]
fn frames_of_several_cameras_share_a_batch() {
    let cameras: Vec<_> = ["a", "b", "c", "d"].iter().map(|id| camera(id, 20, Some(40), "")).collect();
    let text = config("run_time: 20ms", &cameras.join("\n"), "queue_delay_max: 40ms");
    let mut gantry = Running::start(&text);
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let log = gantry.log();
    let line = log.lines().rfind(|line| line.contains("device fake0:")).unwrap();
    let numbers: Vec<u64> =
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    let (frames, batches) = (numbers[1], numbers[2]);
    assert!(frames >= batches * 2, "four cameras in step fill batches: {line}");
    for camera in ["a", "b", "c", "d"] {
        let (offered, parts) = accounts(&log, camera);
        assert_eq!(offered, 40);
        assert_eq!(parts.iter().map(|(_, count)| count).sum::<u64>(), 40, "{camera}: {parts:?}");
    }
}

#[test]
fn a_camera_is_offered_no_more_than_its_rate_max() {
    let cameras = camera("a", 50, Some(100), ", rate_max: 5");
    let mut gantry = Running::start(&config("run_time: 1ms", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let (offered, parts) = accounts(&gantry.log(), "a");
    assert_eq!(offered, 100);
    let published = count(&parts, "published");
    assert!((5..=15).contains(&published), "2 s at 5 a second, on a machine that may be busy: {parts:?}");
    assert_eq!(count(&parts, "rate") + published + count(&parts, "stale"), 100);
}

#[test]
fn a_result_after_its_deadline_is_not_published_and_is_counted() {
    let cameras = camera("a", 10, Some(20), ", deadline: 20ms");
    let mut gantry = Running::start(&config("run_time: 50ms", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    assert!(gantry.lines().is_empty());
    let (offered, parts) = accounts(&gantry.log(), "a");
    assert_eq!((offered, count(&parts, "late") + count(&parts, "stale")), (20, 20), "{parts:?}");
}

#[test]
fn boxes_of_a_region_are_told_in_pixels_of_the_whole_picture() {
    // Of 8 channels and 1344 anchors one is a box of 64 x 32 in the middle of the input, of the first class.
    let mut output = vec![0.0_f32; 8 * 1344];
    for (channel, value) in [128.0, 128.0, 64.0, 32.0, 0.9].into_iter().enumerate() {
        output[channel * 1344] = value;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = output.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(file.path(), bytes).unwrap();
    let region = "source: 'test://pattern?size=160x120&rate=20&frames=5', region: {x: 40, y: 30, width: 80, height: 60}";
    let cameras = format!("  - {{id: a, {region}, detect: [{{model: line-parts}}]}}");
    let mut gantry = Running::start(&config(&format!("outputs: {}", file.path().display()), &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let lines = gantry.lines();
    assert!(!lines.is_empty());
    for event in lines {
        // 80 pixels became 256, and 32 rows of padding lie above.
        assert_eq!(
            event["detections"][0]["box"],
            serde_json::json!({"x": 70.0, "y": 55.0, "w": 20.0, "h": 10.0})
        );
        assert_eq!(event["frame"]["width"], 160);
    }
}

#[test]
fn a_region_outside_of_the_picture_is_told_and_its_frames_are_counted() {
    let region = "source: 'test://pattern?size=160x120&rate=20&frames=10', region: {x: 100, width: 100}";
    let cameras = format!("  - {{id: a, {region}, detect: [{{model: line-parts}}]}}");
    let mut gantry = Running::start(&config("run_time: 1ms", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    assert!(gantry.lines().is_empty());
    let (offered, parts) = accounts(&gantry.log(), "a");
    assert_eq!((offered, count(&parts, "failed") + count(&parts, "stale")), (10, 10), "{parts:?}");
    let told = "region (x 100, y 0, width 100) is not inside of its picture of 160x120; correct `region` in the config";
    assert_eq!(gantry.log().matches(told).count(), 1, "{}", gantry.log());
}

#[test]
fn a_batch_that_fails_is_counted_and_the_next_one_runs() {
    let cameras = camera("a", 50, Some(50), "");
    let mut gantry = Running::start(&config("run_time: 1ms, fail_every: 5", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let (_, parts) = accounts(&gantry.log(), "a");
    assert!(count(&parts, "failed") >= 5, "{parts:?}");
    assert!(count(&parts, "published") >= 20, "{parts:?}");
}

#[test]
fn a_device_that_fails_every_batch_is_opened_anew_and_frames_go_on_being_counted() {
    let cameras = camera("a", 50, None, "");
    let mut gantry = Running::start(&config("run_time: 1ms, fail_after: 20", &cameras, ""));
    eventually("the device is opened anew", SOON, || gantry.log().contains("the device is opened anew"));
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0));
    let (offered, parts) = accounts(&gantry.log(), "a");
    assert!(count(&parts, "failed") >= 3, "{parts:?}");
    // A frame that waited for the device when the end came is counted too.
    assert_eq!(count(&parts, "in flight"), 0, "{parts:?}");
    assert_eq!(offered, parts.iter().map(|(_, count)| count).sum::<u64>(), "{parts:?}");
}

#[test]
fn a_device_that_recovers_goes_on_and_its_lossless_camera_loses_only_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let file = raw_frames(dir.path(), 100);
    let cameras = format!("  - {{id: a, source: 'file://{file}', detect: [{{model: line-parts}}]}}");
    let mut gantry = Running::start(&config("run_time: 1ms, fail_after: 40", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    assert!(gantry.log().contains("the device is opened anew"), "{}", gantry.log());
    let (offered, parts) = accounts(&gantry.log(), "a");
    assert_eq!((offered, count(&parts, "in flight")), (100, 0), "{parts:?}");
    let published = count(&parts, "published");
    assert_eq!(published + count(&parts, "failed"), 100, "{parts:?}");
    assert!(published > 60, "{parts:?}");
}

#[test]
fn the_next_frame_is_preprocessed_while_the_device_runs_this_one() {
    let cameras = "  - {id: a, source: 'test://pattern?size=3840x2160&rate=100&frames=150', \
                   detect: [{model: line-parts}]}";
    let mut gantry = Running::start(&config("run_time: 30ms", cameras, ""));
    assert!(gantry.wait(SOON * 2).success(), "{}", gantry.log());
    let events = gantry.lines();
    let ran = |event: &Value| made_at(event) - stage(event, "postprocess");
    let written = |event: &Value| ran(event) - stage(event, "infer") - stage(event, "batch_wait");
    let (pairs, overlapped) = (events.len() - 1, |pair: &&[Value]| written(&pair[1]) < ran(&pair[0]));
    let overlapped = events.windows(2).filter(overlapped).count();
    eprintln!("{overlapped} of {pairs} frames were written while the one before ran");
    assert!(overlapped * 2 > pairs && pairs > 10, "{overlapped} of {pairs}");
}

#[test]
fn a_camera_that_is_alone_waits_for_nobody() {
    let cameras = camera("a", 5, Some(10), "");
    let mut gantry = Running::start(&config("run_time: 1ms", &cameras, "queue_delay_max: 1s"));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let mut waits: Vec<_> = gantry.lines().iter().map(|event| stage(event, "batch_wait")).collect();
    assert_eq!(waits.len(), 10);
    assert!(median(&mut waits) < 500.0, "{waits:?}");
}

#[test]
fn under_overload_every_camera_gets_its_share_in_order() {
    let ids = ["a", "b", "c"];
    let cameras = ids.map(|id| camera(id, if id == "a" { 200 } else { 50 }, None, "")).join("\n");
    let mut gantry = Running::start(&config("run_time: 30ms", &cameras, "size_max: 1"));
    eventually("enough events come", SOON, || gantry.lines().len() >= 90);
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0));
    let events = gantry.lines();
    for id in ids {
        let seen: Vec<_> = events.iter().filter(|event| event["camera"] == id).collect();
        assert!(seen.len() * 4 >= events.len(), "{id} got {} of {}", seen.len(), events.len());
        assert!(seen.is_sorted_by(|a, b| a["frame"]["id"].as_u64() < b["frame"]["id"].as_u64()));
        let (_, parts) = accounts(&gantry.log(), id);
        assert_eq!(count(&parts, "in flight"), 0, "{id}: {parts:?}");
    }
}

#[test]
fn two_devices_that_publish_to_one_topic_number_their_events_without_gap_or_swap() {
    let text = "
models: {dir: $ROOT/models}
devices:
  - {id: fake0, backend: fake, fake: {run_time: 3ms}}
  - {id: fake1, backend: fake, fake: {run_time: 5ms}}
cameras:
  - id: a
    source: 'test://pattern?size=160x120&rate=100&frames=200'
    detect: [{model: line-parts, devices: [fake0]}, {model: line-parts@1.0.0, devices: [fake1]}]
publish: {detections: every_frame, stdout: true}
";
    let mut gantry = Running::start(text);
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let events = gantry.lines();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], index + 1);
    }
    for device in ["fake0", "fake1"] {
        assert!(events.iter().any(|event| event["model"]["device"] == device), "{device}");
    }
}

#[test]
fn a_daemon_with_little_to_do_does_little() {
    let gantry = Running::start(&config("run_time: 1ms", &camera("a", 1, None, ""), ""));
    eventually("events come", SOON, || gantry.lines().len() >= 2);
    let (before, span) = (gantry.cpu_time(), Duration::from_secs(4));
    pause(span);
    let used = gantry.cpu_time() - before;
    eprintln!("{used:?} of processor time in {span:?}");
    assert!(used * 20 < span, "{used:?} of processor time in {span:?}");
}

#[test]
fn frames_leave_nothing_behind_in_memory() {
    let seconds = if std::env::var_os("GANTRY_TEST_LONG").is_some() { 120 } else { 6 };
    // At this rate the source waits for the worker, so every frame goes all the way.
    let cameras =
        "  - {id: a, source: 'test://pattern?size=160x120&rate=max', detect: [{model: line-parts}]}";
    let text = config("run_time: 0ms", cameras, "").replace("every_frame", "nonempty");
    let mut gantry = Running::start(&text);
    eventually("the first frame comes", SOON, || gantry.log().contains("live: 160x120"));
    pause(Duration::from_secs(3));
    let early = gantry.resident();
    pause(Duration::from_secs(seconds));
    let late = gantry.resident();
    gantry.signal(Signal::TERM);
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let (offered, parts) = accounts(&gantry.log(), "a");
    eprintln!("resident {early} → {late} bytes over {offered} frames: {parts:?}");
    // What the stop cut off is all that does not.
    assert!(offered > 500 && offered - count(&parts, "empty") <= 16, "of {offered}: {parts:?}");
    assert!(late < early + (1 << 20), "resident {early} → {late} bytes");
}

/// When an event was made, in milliseconds from anywhere.
fn made_at(event: &Value) -> f64 {
    let captured: jiff::Timestamp = event["captured_at"].as_str().unwrap().parse().unwrap();
    captured.as_microsecond() as f64 / 1e3 + event["age_ms"].as_f64().unwrap()
}

fn stage(event: &Value, name: &str) -> f64 {
    event["stage_ms"][name].as_f64().unwrap()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn an_event_carries_every_field_of_the_contract() {
    let cameras = camera("a", 50, Some(3), "");
    let mut gantry = Running::start(&config("run_time: 1ms", &cameras, ""));
    assert!(gantry.wait(SOON).success(), "{}", gantry.log());
    let event = gantry.lines().remove(0);
    let keys: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "schema",
            "node",
            "camera",
            "boot_id",
            "seq",
            "captured_at",
            "capture_clock",
            "capture_error_ms",
            "received_at",
            "age_ms",
            "late",
            "camera_state",
            "model",
            "frame",
            "detections",
            "stage_ms"
        ]
    );
    assert_eq!(event["schema"], "gantry.detections/1");
    assert_eq!(
        event["model"],
        serde_json::json!({"name": "line-parts", "version": "1.0.0", "device": "fake0"})
    );
    assert_eq!(event["detections"], Value::Array(Vec::new()));
}
