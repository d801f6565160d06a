//! The belt video from end to end: every frame, in order, and what is on it, on both engines.
#![expect(clippy::print_stdout, reason = "tests print their figures")]

use serde_json::Value;

use crate::support::{Object, SOON, gantry, ground_truth, iou, matches, objects, path};

const CLASSES: [&str; 4] = ["nut", "washer", "bolt", "defect"];

/// Runs the shipped example with this engine and returns its events.
fn run(engine: &str) -> Option<Vec<Value>> {
    let example = std::fs::read_to_string(path("config/examples/file.yaml")).unwrap();
    assert!(example.contains("backend: auto"), "the example leaves the engine to Gantry");
    let dir = tempfile::tempdir_in(path("config")).unwrap();
    let config = dir.path().join("file.yaml");
    let text = example.replace("backend: auto", &format!("backend: {engine}")).replace("../..", "../../..");
    // The copy lies as deep as the example.
    std::fs::write(&config, text.replace("../../..", "../..")).unwrap();
    let output = gantry(&["run", "-c", config.to_str().unwrap()]);
    let log = String::from_utf8(output.stderr).unwrap();
    if engine == "onnxruntime" && log.contains("is not on this machine") {
        eprintln!("SKIP belt on onnxruntime: its library is not on this machine");
        return None;
    }
    assert!(output.status.success(), "{log}");
    Some(
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

fn check(events: &[Value]) {
    assert_eq!(events.len(), 250);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["frame"]["id"], index + 1);
        assert_eq!(event["seq"], index + 1);
        assert_eq!(event["age_ms"], Value::Null, "a file has no age");
        assert_eq!((&event["frame"]["width"], &event["frame"]["height"]), (&640.into(), &480.into()));
    }
    let truth = ground_truth("tests/data/belt.gt.jsonl");
    let (mut hits, mut found, mut there) = (0, 0, 0);
    for class in CLASSES {
        let (mut class_hits, mut class_found, mut class_there) = (0, 0, 0);
        for (event, truth) in events.iter().zip(&truth) {
            let sure: Vec<Object> =
                objects(&event["detections"]).into_iter().filter(|object| object.score >= 0.4).collect();
            let (hit, detections, objects) = matches(&sure, truth, class, 0.5);
            class_hits += hit;
            class_found += detections;
            class_there += objects;
        }
        let (precision, recall) = (ratio(class_hits, class_found), ratio(class_hits, class_there));
        assert!(precision >= 0.92 && recall >= 0.92, "{class}: precision {precision:.3}, recall {recall:.3}");
        hits += class_hits;
        found += class_found;
        there += class_there;
    }
    let (precision, recall) = (ratio(hits, found), ratio(hits, there));
    println!("precision {precision:.4}, recall {recall:.4}");
    assert!(precision >= 0.97 && recall >= 0.97, "precision {precision:.3}, recall {recall:.3}");
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand objects")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[test]
fn every_frame_of_the_belt_is_seen_on_both_engines_and_they_agree() {
    let embedded = run("embedded").unwrap();
    check(&embedded);
    let Some(onnxruntime) = run("onnxruntime") else { return };
    check(&onnxruntime);
    for (a, b) in embedded.iter().zip(&onnxruntime) {
        let (a, b) = (objects(&a["detections"]), objects(&b["detections"]));
        assert_eq!(a.len(), b.len(), "{a:?} {b:?}");
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(a.label, b.label);
            assert!(iou(&a.bbox, &b.bbox) >= 0.95 && (a.score - b.score).abs() <= 0.02, "{a:?} {b:?}");
        }
    }
}

#[test]
fn every_shipped_example_of_a_file_ends_by_itself() {
    let limit = SOON;
    let started = std::time::Instant::now();
    let output = gantry(&["check", "-c", "config/examples/file.yaml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(started.elapsed() < limit);
}
