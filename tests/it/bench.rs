//! `gantry bench`: its figures add up, and bad input is told. What it says of allocations is the subject of
//! `allocations.rs`.

use serde_json::Value;

use crate::support::gantry;

const STEPS: [&str; 8] =
    ["age", "batch_wait", "infer", "postprocess", "preprocess", "publish", "queue", "video_decode"];

/// The report of `gantry bench` with these options.
pub fn bench(options: &[&str]) -> Value {
    let output = gantry(&[&["bench", "--json"], options].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What must hold of every report.
fn check(report: &Value) {
    let frames = &report["frames"];
    let count = |name: &str| frames[name].as_u64().unwrap();
    let dropped: u64 =
        frames["dropped"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    let came = count("offered") + count("in_flight_before");
    assert_eq!(came, count("results") + dropped + count("in_flight_after"), "{frames}");
    assert_eq!(count("results"), count("published") + count("empty"), "{frames}");
    assert!(count("results") > 0, "{frames}");
    let per_second = number(&frames["per_second"]) * number(&report["seconds"]);
    assert!((per_second - number(&frames["results"])).abs() < 0.01, "{frames}");
    // A batch that runs at either look is counted before its frames are.
    let batched: f64 = report["batches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| number(&b["size"]) * number(&b["batches"]))
        .sum();
    assert!((batched - number(&frames["results"])).abs() <= 16.0, "{report:#}");
    let latency = report["latency_ms"].as_object().unwrap();
    let mut steps: Vec<_> = latency.keys().map(String::as_str).collect();
    steps.sort_unstable();
    assert_eq!(steps, STEPS);
    for (step, quantiles) in latency.iter().filter(|(_, quantiles)| !quantiles.is_null()) {
        let values = ["p50", "p95", "p99", "max"].map(|name| number(&quantiles[name]));
        assert!(values.is_sorted(), "{step}: {quantiles}");
    }
    let threads = report["threads"].as_object().unwrap();
    for figure in ["cpu_ms_per_frame", "allocations_own_per_frame", "voluntary_switches_per_frame", "alive"] {
        let parts: f64 =
            threads.iter().filter(|(kind, _)| *kind != "all").map(|(_, of)| number(&of[figure])).sum();
        assert!((parts - number(&threads["all"][figure])).abs() < 1e-6, "{figure}: {threads:?}");
    }
    assert!(number(&threads["all"]["cpu_ms_per_frame"]) > 0.0);
    assert!(number(&report["memory"]["resident_peak_bytes"]) >= number(&report["memory"]["resident_bytes"]));
}

#[test]
fn live_cameras_are_measured_and_every_frame_is_accounted_for() {
    let report = bench(&[
        "--model",
        "line-parts",
        "--device",
        "fake",
        "--cameras",
        "2",
        "--size",
        "160x120",
        "--rate",
        "50",
        "--seconds",
        "1",
        "--warm-up",
        "0.2",
    ]);
    check(&report);
    assert_eq!(report["setting"]["cameras"], 2);
    assert_eq!(report["threads"]["source"]["alive"], 2);
    assert_eq!(report["threads"]["device"]["alive"], 1);
    assert_eq!(report["frames"]["empty"], 0, "every frame becomes an event");
}

#[test]
fn as_fast_as_they_are_taken_no_frame_is_lost() {
    let report = bench(&[
        "--model",
        "line-parts",
        "--device",
        "fake",
        "--cameras",
        "3",
        "--size",
        "64x64",
        "--seconds",
        "0.5",
        "--warm-up",
        "0.1",
    ]);
    check(&report);
    let frames = &report["frames"];
    assert_eq!(frames["dropped"]["stale"], 0, "{frames}");
    assert!(number(&frames["per_second"]) > 300.0, "more than a camera's pace: {frames}");
}

#[test]
fn a_raw_file_is_played_again_and_again_as_fast_as_it_is_taken_or_at_a_pace() {
    let dir = tempfile::tempdir().unwrap();
    let file = crate::support::raw_frames(dir.path(), 5);
    let run = |rate: &str| {
        bench(&[
            "--model",
            "line-parts",
            "--device",
            "fake",
            "--source",
            &file,
            "--rate",
            rate,
            "--seconds",
            "1",
            "--warm-up",
            "0.2",
        ])
    };
    let (fast, paced) = (run("max"), run("own"));
    check(&fast);
    check(&paced);
    assert!(fast["frames"]["results"].as_u64().unwrap() > 100, "more often than once: {fast:#}");
    let paced = number(&paced["frames"]["per_second"]);
    assert!(paced > 5.0 && paced < 30.0, "it has 25 frames a second: {paced}");
}

#[cfg(feature = "gstreamer")]
#[test]
fn a_video_is_played_again_and_again() {
    let report = bench(&[
        "--model",
        "line-parts",
        "--device",
        "fake",
        "--source",
        "tests/data/belt.mp4",
        "--seconds",
        "3",
        "--warm-up",
        "0.2",
    ]);
    check(&report);
    let results = report["frames"]["results"].as_u64().unwrap();
    assert!(results > 260, "it has 250 frames: {results}");
}

#[test]
fn a_config_is_measured_as_it_is_but_prints_nothing_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gantry.yaml");
    let text = "
models: {dir: $ROOT/models}
devices: [{id: fake0, backend: fake, fake: {run_time: 5ms}}]
cameras:
  - {id: a, source: 'test://pattern?size=64x48&rate=400', detect: [{model: line-parts}]}
publish: {stdout: true}
";
    std::fs::write(&file, text.replace("$ROOT", crate::support::root().to_str().unwrap())).unwrap();
    let report = bench(&["-c", file.to_str().unwrap(), "--seconds", "1", "--warm-up", "0.2"]);
    check(&report);
    let frames = &report["frames"];
    assert_eq!(frames["published"], 0, "a fake finds nothing: {frames}");
    assert!(frames["dropped"]["stale"].as_u64().unwrap() > 0, "it is faster than the device: {frames}");
    assert!(number(&report["latency_ms"]["infer"]["p50"]) >= 4.9, "{report:#}");
}

#[test]
fn people_get_a_table() {
    let output = gantry(&[
        "bench",
        "--model",
        "line-parts",
        "--device",
        "fake",
        "--size",
        "64x64",
        "--rate",
        "100",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.1",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in
        ["1 x test://pattern?size=64x64&rate=100", "frames a second", "preprocess", "device", "batches: "]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn what_cannot_be_measured_is_told() {
    for (options, code, word) in [
        (&["--model", "no-such-model", "--device", "fake"][..], 78, "no-such-model"),
        (&["--model", "line-parts", "--device", "nonsense"], 64, "fake"),
        (&["--model", "line-parts", "--device", "fake", "--source", "/no/such.y4m"], 75, "no such file"),
        (
            &[
                "--model",
                "line-parts",
                "--device",
                "fake",
                "--source",
                "test://pattern?frames=3&rate=100",
                "--warm-up",
                "1",
            ],
            75,
            "more frames",
        ),
        (&["-c", "/no/such.yaml"], 78, "/no/such.yaml"),
        (&[], 64, "--model"),
    ] {
        let output = gantry(&[&["bench"], options].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {told}");
        assert!(told.contains(word), "{options:?}: {told}");
        assert!(output.stdout.is_empty());
    }
}
