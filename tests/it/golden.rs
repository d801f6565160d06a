//! The shipped model on its golden pictures, through the binary.

use serde_json::Value;

use crate::support::{gantry, iou, objects, path};

#[test]
fn the_golden_pictures_hold_exactly_what_is_expected() {
    let files: Vec<_> =
        ["640x480.png", "800x600.jpg", "640x360.jpg", "480x480.png", "480x640.jpg", "1280x720.jpg"]
            .map(|name| format!("models/line-parts/1.0.0/golden/{name}"))
            .into();
    let mut args = vec!["detect", "--model", "line-parts", "--json"];
    args.extend(files.iter().map(String::as_str));
    let output = gantry(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let model = gantry::model::bundle::find(&path("models"), "line-parts").unwrap();
    assert_eq!(lines.lines().count(), model.golden.len());
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let camera = event["camera"].as_str().unwrap();
        let golden = model.golden.iter().find(|golden| golden.image.file_name().unwrap() == camera).unwrap();
        let found = objects(&event["detections"]);
        assert_eq!(found.len(), golden.expect.len(), "{camera}: {found:?}");
        for wanted in &golden.expect {
            let bbox = [wanted.bbox.x, wanted.bbox.y, wanted.bbox.w, wanted.bbox.h].map(f64::from);
            let hit = found.iter().any(|found| {
                found.label == wanted.label
                    && iou(&found.bbox, &bbox) >= f64::from(golden.iou_min)
                    && found.score >= f64::from(wanted.score_min)
            });
            assert!(hit, "{camera}: {wanted:?} is not in {found:?}");
        }
    }
}
