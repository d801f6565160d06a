//! The frame path allocates nothing once it is warm: from a source's callback to the queues of the sinks, as the binary
//! counts it itself. What an engine allocates within its calls is told apart; GStreamer is C, and is never counted.

use std::fmt::Write;

use serde_json::Value;

use crate::support::{gantry, path};

/// The threads that a frame goes through: a camera's, with those of GStreamer that stream it; others of GStreamer's, such
/// as a video decoder's own; a device's.
const KINDS: [&str; 3] = ["source", "other", "device"];

/// What a steady state is measured over, at least.
const FRAMES: u64 = 200;

/// Measures this config; fails with the places where our own code allocated, if it did.
fn nothing_is_allocated(config: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gantry.yaml");
    let outputs = dir.path().join("outputs.f32");
    std::fs::write(&outputs, detections()).unwrap();
    let config =
        config.replace("$ROOT", path("").to_str().unwrap()).replace("$OUTPUTS", outputs.to_str().unwrap());
    std::fs::write(&file, config).unwrap();
    // The shortest time that has enough frames on this machine. The warm-up lets a queue that nobody empties fill, and with it
    // the memory for payloads grow to what it holds.
    for seconds in ["2", "12", "60"] {
        let options = ["--json", "--seconds", seconds, "--warm-up", "3", "--trace-allocations", "3"];
        let output = gantry(&[&["bench", "-c", file.to_str().unwrap()], &options[..]].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let results = report["frames"]["results"].as_u64().unwrap();
        if results < FRAMES {
            continue;
        }
        for kind in KINDS {
            let own = report["threads"][kind]["allocations_own"].as_u64().unwrap_or(0);
            assert_eq!(own, 0, "allocations on {kind} threads over {results} frames, such as\n{told}");
        }
        return report;
    }
    panic!("a minute is too short for {FRAMES} frames");
}

/// Outputs of `line-parts` for two frames: one with 3 detections, of which a double is suppressed, and one with 40.
fn detections() -> Vec<u8> {
    const CHANNELS: usize = 8;
    const ANCHORS: usize = 1344;
    let mut floats = Vec::new();
    for found in [4, 40] {
        let mut table = vec![0.0_f32; CHANNELS * ANCHORS];
        for object in 0..found {
            // The last one of the first frame lies on the one before it.
            let place = if object == 3 { 2 } else { object };
            let (x, y) = ((place % 8 * 30 + 20) as f32, (place / 8 * 30 + 40) as f32);
            let anchor = object * 17;
            for (channel, value) in [x, y, 20.0, 20.0].into_iter().enumerate() {
                table[channel * ANCHORS + anchor] = value;
            }
            table[(4 + place % 4) * ANCHORS + anchor] = 0.9 - object as f32 / 100.0;
        }
        floats.extend(table);
    }
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}

fn config(device: &str, cameras: &str, more: &str) -> String {
    format!("models: {{dir: $ROOT/models}}\ndevices: [{device}]\ncameras:\n{cameras}\n{more}\n")
}

/// So many test patterns at this rate, looked at by `line-parts` and watched as cameras are.
fn patterns(count: usize, rate: u32) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let address = format!("test://pattern?size=320x240&rate={rate}");
        writeln!(text, "  - {{id: c{number}, source: '{address}', picture: {{watch: on}}, detect: [{{model: line-parts}}]}}")
            .unwrap();
        text
    })
}

const FAKE: &str = "{id: fake0, backend: fake, fake: {run_time: 1ms, outputs: $OUTPUTS}}";

#[test]
fn live_cameras_with_detections_on_a_device_of_their_own_pace() {
    let publish = "publish: {detections: every_frame, stdout: true}";
    let report = nothing_is_allocated(&config(FAKE, &patterns(4, 50), publish));
    assert!(report["frames"]["detections"].as_u64().unwrap() > 1000, "{:#}", report["frames"]);
}

#[test]
fn a_device_that_is_too_slow_and_a_camera_that_is_paced() {
    let slow = FAKE.replace("1ms", "6ms");
    let cameras =
        patterns(3, 200).replace("model: line-parts", "model: line-parts, rate_max: 90, deadline: 50ms");
    let report = nothing_is_allocated(&config(&slow, &cameras, "publish: {stdout: true}"));
    assert!(report["frames"]["dropped"]["rate"].as_u64().unwrap() > 0, "{:#}", report["frames"]);
}

#[test]
fn events_for_a_broker_that_is_away_until_its_queue_is_full_and_beyond() {
    // Port 9 of this machine is nobody's.
    let publish = "publish: {detections: every_frame, mqtt: {broker: 'mqtt://127.0.0.1:9', queue: 100}}";
    let report = nothing_is_allocated(&config(FAKE, &patterns(2, 100), publish));
    assert!(report["frames"]["published"].as_u64().unwrap() > 200, "{:#}", report["frames"]);
}

#[test]
fn the_built_in_engine_with_its_own_allocations_told_apart() {
    let device = "{id: cpu0, backend: embedded, threads: 1}";
    let publish = "publish: {detections: every_frame, stdout: true}";
    let report = nothing_is_allocated(&config(device, &patterns(1, 1000), publish));
    let engine = report["threads"]["device"]["allocations_engine_per_frame"].as_f64().unwrap();
    assert!(engine > 1.0, "tract allocates its intermediate tensors: {engine}");
}

#[cfg(feature = "gstreamer")]
#[test]
fn h264_from_a_file() {
    if !crate::rig::has_program("ffmpeg") {
        return crate::rig::skip("h264_from_a_file", "ffmpeg is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let video = dir.path().join("long.mp4");
    // Longer than it is measured at this pace, so that it does not begin anew meanwhile.
    let made = std::process::Command::new("ffmpeg")
        .args(["-loglevel", "error", "-stream_loop", "40", "-i"])
        .arg(path("tests/data/belt.mp4"))
        .args(["-c", "copy"])
        .arg(&video)
        .status()
        .unwrap();
    assert!(made.success());
    let cameras =
        format!("  - {{id: a, source: 'file://{}', detect: [{{model: line-parts}}]}}", video.display());
    let slow = FAKE.replace("1ms", "4ms");
    nothing_is_allocated(&config(&slow, &cameras, "publish: {detections: every_frame, stdout: true}"));
}
