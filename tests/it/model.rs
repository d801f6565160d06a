//! Model bundles: what is wrong with one is told, all of it, with its place and its cure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gantry::backend::onnx;
use gantry::backend::tensor::{ElementType, Shape, TensorSpec};
use gantry::backend::{BackendError, BackendKind, Device, LoadOptions, ModelFile, ModelFormat, Session};
use gantry::cli::model as cli;
use gantry::model::pack::{Outcome, pack};
use gantry::model::{FileProblem, Model, ModelError, bundle};
use gantry::postprocess::{Family, Suppression};
use gantry::preprocess::{Align, ColorOrder, Layout, Resize};
use proptest::prelude::*;
use tempfile::TempDir;

use super::manifest::MANIFEST;
use super::support::copy_dir;

const LABELS: &str = "nut\nwasher\nbolt\ndefect\n";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn detector() -> Vec<u8> {
    fs::read(repository("models/line-parts/1.0.0/factory_tiny.onnx")).unwrap()
}

/// A bundle with these texts, not packed.
fn unpacked_in(dir: &Path, manifest: &str, labels: &str) {
    fs::create_dir_all(dir.join("golden")).unwrap();
    fs::write(dir.join("model.yaml"), manifest).unwrap();
    fs::write(dir.join("labels.txt"), labels).unwrap();
    fs::write(dir.join("golden/a.png"), b"a picture").unwrap();
    fs::write(dir.join("parts.onnx"), detector()).unwrap();
}

fn packed_in(dir: &Path, manifest: &str) {
    unpacked_in(dir, manifest, LABELS);
    pack(dir).unwrap();
}

fn packed() -> TempDir {
    let dir = TempDir::new().unwrap();
    packed_in(dir.path(), MANIFEST);
    dir
}

/// What is wrong with the files of a bundle.
fn faults(dir: &Path) -> Vec<FileProblem> {
    match bundle::open(dir) {
        Err(ModelError::Files { problems, .. }) => problems,
        other => panic!("{other:?}"),
    }
}

fn sha256(dir: &Path, file: &str) -> String {
    let text = fs::read_to_string(dir.join("model.yaml")).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{file}:"))).unwrap();
    line.split("sha256: ").nth(1).unwrap()[..64].to_owned()
}

#[test]
fn a_manifest_is_read_as_it_is_written() {
    let dir = packed();
    let model = bundle::open(dir.path()).unwrap();
    assert_eq!(model.title(), "parts 1.0.0");
    assert_eq!(model.labels.to_vec(), ["nut", "washer", "bolt", "defect"]);
    let input = &model.input;
    assert_eq!((input.width, input.height, input.element_type), (256, 256, ElementType::F32));
    assert_eq!((input.layout, input.color), (Layout::Nchw, ColorOrder::Rgb));
    assert_eq!((input.mean, input.std), ([0.0; 3], [255.0; 3]));
    assert_eq!((input.resize, input.pad, input.align), (Resize::Letterbox, 114, Align::Center));
    assert_eq!(model.input_tensor.to_string(), "images f32 [-1, 3, 256, 256]");
    assert_eq!((model.output.family, model.output.classes), (Family::YoloV8, 4));
    assert_eq!(model.output.suppression, Suppression::PerClass);
    assert_eq!((model.score_min, model.output.iou), (0.25, 0.5));
    assert_eq!(model.variants.len(), 1);
    assert_eq!((model.variants[0].format, model.variants[0].backend), (ModelFormat::Onnx, None));
    assert_eq!(model.variants[0].read().unwrap(), detector());
    assert_eq!(model.golden[0].image, dir.path().join("golden/a.png"));
    assert_eq!(model.golden[0].expect[0].bbox.y, 2.5);
}

#[test]
fn an_error_names_the_manifest_and_every_mistake_in_it() {
    let dir = packed();
    let path = dir.path().join("model.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("rgb", "rbg")).unwrap();
    let error = bundle::open(dir.path()).unwrap_err().to_string();
    let rest = "has 1 mistake: 18:10: input.color: must be one of rgb, bgr, not `rbg`; did you mean `rgb`?";
    assert_eq!(error, format!("{} {rest}", path.display()));
    fs::write(&path, text.replace("rgb", "rbg").replace("f32", "f31")).unwrap();
    let error = bundle::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("has 2 mistakes:\n  16:9: "), "{error}");
}

#[test]
fn every_fault_of_the_files_is_told_at_once() {
    let dir = packed();
    let whole = fs::read(dir.path().join("parts.onnx")).unwrap();
    let listed = sha256(dir.path(), "parts.onnx");
    let mut other = whole.clone();
    other[1000] ^= 1;
    fs::write(dir.path().join("parts.onnx"), other).unwrap();
    fs::write(dir.path().join("golden/a.png"), b"a longer picture").unwrap();
    fs::write(dir.path().join("notes.txt"), b"of mine").unwrap();
    fs::remove_file(dir.path().join("labels.txt")).unwrap();
    let error = bundle::open(dir.path()).unwrap_err().to_string();
    let pack = "if that is the file you want, `gantry model pack` lists it anew";
    for part in [
        "has 4 faults:".to_owned(),
        "labels.txt is listed but not there; restore it".to_owned(),
        format!("golden/a.png has 16 bytes, but 9 are listed; {pack}"),
        format!("but {listed} is listed; {pack}"),
        "notes.txt is there but not listed; remove it, or list it with `gantry model pack`".to_owned(),
    ] {
        assert!(error.contains(&part), "{part}:\n{error}");
    }
}

#[test]
fn a_files_name_does_not_command_the_terminal() {
    let dir = packed();
    fs::write(dir.path().join("\u{1b}[2Jgone"), b"").unwrap();
    let error = bundle::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}[2Jgone is there but not listed"), "{error}");
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn a_link_out_of_the_bundle_is_refused_and_one_inside_is_a_file() {
    let (dir, outside) = (packed(), TempDir::new().unwrap());
    let labels = dir.path().join("labels.txt");
    fs::write(outside.path().join("labels.txt"), LABELS).unwrap();
    fs::remove_file(&labels).unwrap();
    std::os::unix::fs::symlink(outside.path().join("labels.txt"), &labels).unwrap();
    assert_eq!(faults(dir.path()), [FileProblem::Outside("labels.txt".into())]);

    fs::remove_file(&labels).unwrap();
    fs::write(dir.path().join("real.txt"), LABELS).unwrap();
    std::os::unix::fs::symlink("real.txt", &labels).unwrap();
    assert_eq!(faults(dir.path()), [FileProblem::Unlisted("real.txt".into())]);
    pack(dir.path()).unwrap();
    assert!(bundle::open(dir.path()).is_ok());
}

#[test]
fn what_is_no_ordinary_file_is_refused_and_never_opened() {
    let dir = packed();
    // Opening a pipe that nobody writes to would wait for ever.
    let made = Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("golden", dir.path().join("more")).unwrap();
    let mut faults = faults(dir.path());
    faults.sort_by_key(ToString::to_string);
    assert_eq!(faults, [FileProblem::NoFile("more".into()), FileProblem::NoFile("pipe".into())]);
}

#[test]
fn a_bundle_without_a_manifest_says_how_to_get_one() {
    let dir = TempDir::new().unwrap();
    let error = bundle::open(dir.path()).unwrap_err();
    assert!(matches!(error, ModelError::NoManifest { .. }), "{error}");
    assert!(error.to_string().contains("gantry model inspect"), "{error}");
    let error = bundle::open(&dir.path().join("absent")).unwrap_err();
    assert!(matches!(error, ModelError::Read { .. }), "{error}");
}

#[test]
fn labels_are_counted_against_the_classes() {
    let dir = TempDir::new().unwrap();
    let manifest = MANIFEST.replace("[-1, 8, 1344]", "[-1, 84, 8400]").replace("label: nut", "label: c1");
    let labels: String = (1..80).map(|n| format!("c{n}\n")).collect();
    unpacked_in(dir.path(), &manifest, &labels);
    let Err(ModelError::Files { problems, .. }) = pack(dir.path()) else { panic!() };
    assert_eq!(
        problems[0].to_string(),
        "labels.txt has 79 labels; output output0 f32 [-1, 84, 8400] does not fit yolov8 with 79 classes, which needs \
         f32 [N, 83, A] or f32 [N, A, 83]; its shape is that of 80 classes, so it needs 80 labels, not 79"
    );
}

#[test]
fn labels_that_are_no_labels_are_refused() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "has no labels"),
        (b"\n\n", "has no labels"),
        (b"nut\n\nbolt\ndefect\n", "line 2 is empty"),
        (b"nut\nwash\xe9r\nbolt\ndefect", "is not UTF-8 from byte 8 on"),
        (b"nut\nwasher\x1b[2J\nbolt\ndefect", "line 2 has a control character"),
        (&[b'x'; 300], "more than 256 bytes"),
    ];
    for (labels, part) in cases {
        let dir = TempDir::new().unwrap();
        unpacked_in(dir.path(), MANIFEST, LABELS);
        fs::write(dir.path().join("labels.txt"), labels).unwrap();
        let error = pack(dir.path()).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn labels_are_trimmed_and_may_repeat() {
    let dir = TempDir::new().unwrap();
    unpacked_in(dir.path(), MANIFEST, "\u{feff}nut\r\n washer \r\nbolt\r\nbolt\r\n");
    let packed = pack(dir.path()).unwrap();
    assert_eq!(packed.model.labels.to_vec(), ["nut", "washer", "bolt", "bolt"]);
}

#[test]
fn a_golden_object_with_an_unknown_label_is_told() {
    let dir = TempDir::new().unwrap();
    unpacked_in(dir.path(), &MANIFEST.replace("label: nut", "label: nuts"), LABELS);
    let error = pack(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("golden[0] expects `nuts`, which is none of the labels; did you mean `nut`?"),
        "{error}"
    );
}

#[test]
fn packing_fills_in_the_files_and_keeps_the_authors_text() {
    let dir = packed();
    let text = fs::read_to_string(dir.path().join("model.yaml")).unwrap();
    let (before, rest) = MANIFEST.split_once("# What runs it.\n").unwrap();
    assert!(text.starts_with(&format!("{before}files:\n  golden/a.png: {{sha256: ")), "{text}");
    assert!(text.ends_with(&format!("# What runs it.\n{rest}")), "{text}");
    assert!(!dir.path().join("model.yaml.new").exists());
    assert_eq!(pack(dir.path()).unwrap().outcome, Outcome::Unchanged);

    fs::write(dir.path().join("golden/a.png"), b"another picture").unwrap();
    let again = pack(dir.path()).unwrap();
    assert_eq!((again.outcome, again.files["golden/a.png"].size), (Outcome::Written, 15));
    assert!(bundle::open(dir.path()).is_ok());
}

#[test]
fn packing_writes_a_files_section_anew_whatever_is_wrong_with_it() {
    let listed = packed();
    let expected = fs::read_to_string(listed.path().join("model.yaml")).unwrap();
    for wrong in
        ["files: [1]\n", "files:\n  a: 1\n  a: 2\n  [x]: !odd 3\n", "files:\n", "files:\n  &all {}\n"]
    {
        let dir = TempDir::new().unwrap();
        unpacked_in(dir.path(), &MANIFEST.replace("# What", &format!("{wrong}# What")), LABELS);
        pack(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("model.yaml")).unwrap(), expected, "{wrong}");
    }
    // What the rest of the text takes from there must not get lost.
    let text = MANIFEST
        .replace("# What", "files: {a: &side 30}\n# What")
        .replace("w: 30, h: 40", "w: *side, h: *side");
    unpacked_in(listed.path(), &text, LABELS);
    let error = pack(listed.path()).unwrap_err().to_string();
    assert!(error.contains("unknown anchor"), "{error}");
    assert_eq!(fs::read_to_string(listed.path().join("model.yaml")).unwrap(), text);
}

#[test]
fn packing_refuses_every_other_mistake_and_writes_nothing() {
    let cases: [(&str, &str, &str); 4] = [
        ("color: rgb", "color: rgbb", "15:10: input.color"),
        ("file: parts.onnx", "file: part.onnx", "the manifest speaks of part.onnx, which is not there"),
        (
            "name: images",
            "name: image",
            "declares the input `image f32 [-1, 3, 256, 256]`, but the model file has `images f32",
        ),
        (
            "[-1, 8, 1344]",
            "[-1, 8, 1345]",
            "declares the output `output0 f32 [-1, 8, 1345]`, but the model file has `output0 f32 [-1, 8, 1344]`",
        ),
    ];
    for (from, to, part) in cases {
        let dir = TempDir::new().unwrap();
        // The place that is told is the one in the text as it is, before `files` is put in.
        let text = MANIFEST.replace(from, to).replace("task: detect\n", "task: detect\nfiles: {}\n");
        unpacked_in(dir.path(), &text, LABELS);
        let error = pack(dir.path()).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
        assert_eq!(fs::read_to_string(dir.path().join("model.yaml")).unwrap(), text);
    }
}

#[test]
fn a_truncated_model_file_is_told_though_its_hash_is_right() {
    let dir = TempDir::new().unwrap();
    packed_in(dir.path(), MANIFEST);
    let whole = detector();
    for len in [0, 1, 100, whole.len() / 2, whole.len() - 200] {
        let text = fs::read_to_string(dir.path().join("model.yaml")).unwrap();
        fs::write(dir.path().join("parts.onnx"), &whole[..len]).unwrap();
        let error = pack(dir.path()).unwrap_err().to_string();
        assert!(error.contains("parts.onnx is not a usable ONNX file: it "), "{len}: {error}");
        // The same with a manifest that lists the truncated file.
        let hash = {
            use sha2::Digest;
            let digest = sha2::Sha256::digest(&whole[..len]);
            digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
        };
        let old = sha256(dir.path(), "parts.onnx");
        let listed = text.replace(&old, &hash);
        let size = text.split(&old).nth(1).unwrap().split('}').next().unwrap().to_owned();
        fs::write(dir.path().join("model.yaml"), listed.replacen(&size, &format!(", size: {len}"), 1))
            .unwrap();
        let model = bundle::open(dir.path()).expect("size and hash are right");
        assert!(matches!(bundle::verify(&model), Err(ModelError::BadFile { .. })), "{len}");
        assert!(matches!(cli::verify(dir.path()), Err(ModelError::BadFile { .. })), "{len}");
        fs::write(dir.path().join("model.yaml"), text).unwrap();
    }
}

#[test]
fn a_file_that_changes_after_the_check_is_not_loaded() {
    let dir = packed();
    let model = bundle::open(dir.path()).unwrap();
    fs::write(dir.path().join("parts.onnx"), b"something else").unwrap();
    let error = model.variants[0].read().unwrap_err();
    assert!(matches!(error, ModelError::Changed { .. }), "{error}");
}

#[test]
fn the_highest_version_is_found_and_a_broken_one_is_not_passed_over() {
    let root = TempDir::new().unwrap();
    for version in ["1.9.0", "1.10.0", "0.1.0"] {
        packed_in(&root.path().join("parts").join(version), &MANIFEST.replace("1.0.0", version));
    }
    let version = |wanted: &str| bundle::find(root.path(), wanted).map(|model| model.version.to_string());
    assert_eq!(version("parts").unwrap(), "1.10.0");
    assert_eq!(version("parts@1.9.0").unwrap(), "1.9.0");

    let order: Vec<String> =
        bundle::list(root.path()).unwrap().into_iter().map(|entry| entry.version).collect();
    assert_eq!(order, ["0.1.0", "1.9.0", "1.10.0"]);

    fs::create_dir_all(root.path().join("parts/2.0.0")).unwrap();
    assert!(matches!(version("parts"), Err(ModelError::NoManifest { .. })));
    assert_eq!(version("parts@1.10.0").unwrap(), "1.10.0");
}

#[test]
fn a_model_that_is_not_there_is_answered_with_what_is() {
    let root = TempDir::new().unwrap();
    packed_in(&root.path().join("parts/1.0.0"), MANIFEST);
    let told = |wanted: &str| bundle::find(root.path(), wanted).unwrap_err().to_string();
    let dir = root.path().display();
    assert_eq!(told("part"), format!("no model part in {dir}; did you mean parts? there is parts@1.0.0"));
    assert_eq!(told("parts@2.0.0"), format!("no model parts@2.0.0 in {dir}; there is parts@1.0.0"));
    let empty = TempDir::new().unwrap();
    let error = bundle::find(empty.path(), "parts").unwrap_err().to_string();
    assert!(error.ends_with("there is no model bundle at all (<name>/<version>/model.yaml)"), "{error}");
}

#[test]
fn a_bundle_in_the_wrong_folder_is_told_where_it_belongs() {
    let root = TempDir::new().unwrap();
    packed_in(&root.path().join("parts/1.0.1"), MANIFEST);
    let error = bundle::find(root.path(), "parts").unwrap_err().to_string();
    assert!(error.ends_with("parts/1.0.1 holds parts 1.0.0; its place is parts/1.0.0"), "{error}");
}

#[test]
fn a_loaded_model_is_compared_with_its_manifest() {
    let dir = packed();
    let model = bundle::open(dir.path()).unwrap();
    let spec = |name: &str, dims: &[i64]| TensorSpec {
        name: name.to_owned(),
        element_type: ElementType::F32,
        shape: Shape::new(dims),
    };
    let (images, boxes) = (spec("images", &[1, 3, 256, 256]), spec("output0", &[-1, 8, -1]));
    let other = spec("protos", &[-1, 32, 64, 64]);
    let check = |input: &TensorSpec, outputs: &[TensorSpec]| bundle::check_loaded(&model, input, outputs);
    assert_eq!(check(&images, &[other.clone(), boxes.clone()]).unwrap(), 1);

    let error =
        check(&spec("images", &[-1, 3, 320, 320]), std::slice::from_ref(&boxes)).unwrap_err().to_string();
    assert_eq!(
        error,
        "model parts 1.0.0: model.yaml declares the input `images f32 [-1, 3, 256, 256]`, but the model file has \
         `images f32 [-1, 3, 320, 320]`; correct input in the manifest"
    );
    let bytes = TensorSpec { element_type: ElementType::U8, ..images.clone() };
    assert!(check(&bytes, std::slice::from_ref(&boxes)).is_err());
    let error = check(&images, &[other, spec("output0", &[1, 84, 1344])]).unwrap_err().to_string();
    assert!(error.contains("has `protos f32 [-1, 32, 64, 64] and output0 f32 [1, 84, 1344]`"), "{error}");
    assert!(check(&images, &[]).unwrap_err().to_string().contains("has `nothing`"));
}

#[test]
fn the_bundles_in_the_repository_are_whole_and_agree_with_their_model_files() {
    let shipped = bundle::find(&repository("models"), "line-parts").unwrap();
    assert_eq!(shipped.golden.len(), 6);
    let test_models = bundle::list(&repository("tests/data/models")).unwrap();
    let names: Vec<&str> = test_models.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(
        names,
        ["coco", "line-parts-bad", "line-parts-e2e", "line-parts-int8", "line-parts-v2", "stamp"]
    );
    for model in test_models.into_iter().map(|entry| entry.model.unwrap()).chain([shipped]) {
        bundle::verify(&model).unwrap();
        let file = onnx::read(&model.variants[0].read().unwrap()).unwrap();
        if let Some(names) = file.names {
            assert_eq!(names, model.labels.to_vec(), "{}", model.title());
        }
        for golden in &model.golden {
            let picture = image::open(&golden.image).unwrap().to_rgb8();
            for object in &golden.expect {
                let (x, y) = (object.bbox.x + object.bbox.w, object.bbox.y + object.bbox.h);
                assert!(
                    f64::from(x) <= f64::from(picture.width()) && f64::from(y) <= f64::from(picture.height())
                );
            }
        }
    }
}

#[test]
fn packing_the_shipped_bundles_changes_nothing() {
    for dir in ["models/line-parts/1.0.0", "tests/data/models/line-parts-e2e/1.0.0"] {
        let copy = TempDir::new().unwrap();
        copy_dir(&repository(dir), copy.path());
        assert_eq!(pack(copy.path()).unwrap().outcome, Outcome::Unchanged, "{dir}");
    }
}

/// A device that loads nothing and says why.
#[derive(Debug)]
struct Refuses;

impl Device for Refuses {
    fn backend(&self) -> BackendKind {
        BackendKind::Fake
    }

    fn describe(&self) -> String {
        "an engine for tests".to_owned()
    }

    fn load(&mut self, model: &ModelFile<'_>, _: LoadOptions) -> Result<Box<dyn Session>, BackendError> {
        // What a real engine is told must be whole: a name, an input with fixed sizes, the bytes.
        assert!(model.input.unwrap().shape.with_batch(1).is_some());
        Err(BackendError::BadModel {
            model: model.name.to_owned(),
            path: model.path.display().to_string(),
            backend: "test",
            reason: format!("{} bytes are too many", model.bytes.len()),
        })
    }
}

#[test]
fn inspecting_a_model_file_gives_a_manifest_that_only_has_to_be_packed() {
    for (file, family, classes) in [
        ("models/line-parts/1.0.0/factory_tiny.onnx", "yolov8", 4),
        ("tests/data/models/line-parts-e2e/1.0.0/factory_tiny_e2e.onnx", "yolo_end_to_end", 4),
        ("tests/data/models/coco/1.0.0/coco_ssdlite.onnx", "yolov8", 80),
    ] {
        let path = repository(file);
        let report = cli::inspect_file(&path, || Ok(Box::new(Refuses))).unwrap();
        let guess = report.guess.as_ref().unwrap();
        assert_eq!((guess.family, guess.classes), (family, Some(classes)), "{file}");
        assert!(report.engine.refused.as_ref().unwrap().contains("bytes are too many"));
        let labels = report.labels.clone().unwrap();
        assert_eq!(labels.len(), classes);

        let dir = TempDir::new().unwrap();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        fs::write(dir.path().join("labels.txt"), labels.join("\n")).unwrap();
        fs::write(dir.path().join("model.yaml"), &report.manifest).unwrap();
        let packed: Model =
            pack(dir.path()).unwrap_or_else(|error| panic!("{error}\n{}", report.manifest)).model;
        assert_eq!(packed.output.family.name(), family);
    }
}

#[test]
fn inspecting_what_is_no_model_says_so() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model.onnx");
    for content in [&b""[..], b"<!DOCTYPE html><html><body>404</body></html>", b"\x08\x08", &[0xff; 64]] {
        fs::write(&path, content).unwrap();
        let error = cli::inspect_file(&path, || Ok(Box::new(Refuses))).unwrap_err();
        assert!(matches!(error, ModelError::BadFile { .. }), "{error}");
    }
}

#[test]
fn reports_are_tables_for_people_and_json_for_machines() {
    let root = TempDir::new().unwrap();
    packed_in(&root.path().join("parts/1.0.0"), MANIFEST);
    packed_in(&root.path().join("parts/1.2.0"), &MANIFEST.replace("1.0.0", "1.2.0"));
    fs::remove_file(root.path().join("parts/1.2.0/labels.txt")).unwrap();
    let list = cli::list(root.path()).unwrap();
    assert!(!list.all_usable());
    let text = list.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "MODEL  VERSION  INPUT                         CLASSES  STATE");
    assert_eq!(lines[1], "parts  1.0.0    images f32 [-1, 3, 256, 256]  4        usable");
    assert_eq!(lines[2], "parts  1.2.0    -                             -        unusable, see below");
    assert!(text.contains("labels.txt is listed but not there"), "{text}");
    let json = serde_json::to_value(&list).unwrap();
    assert_eq!(json["models"][0]["bundle"]["input"]["shape"], serde_json::json!([-1, 3, 256, 256]));
    assert!(json["models"][1]["error"].as_str().unwrap().contains("labels.txt"));

    let bundle = cli::verify(&root.path().join("parts/1.0.0")).unwrap();
    let text = bundle.to_string();
    assert!(text.contains("classes      4: nut, washer, bolt, defect\n"), "{text}");
    assert!(text.contains("pictures     letterbox, center, padded with 114, bilinear\n"), "{text}");
    assert!(text.ends_with("usable: files, labels and shapes are as the manifest says"), "{text}");
    packed_in(&root.path().join("pieces/1"), MANIFEST);
    let misplaced = cli::verify(&root.path().join("pieces/1")).unwrap().to_string();
    assert!(
        misplaced.ends_with("a config finds it only in a folder parts/1.0.0; move it there"),
        "{misplaced}"
    );
    let packed = cli::pack(&root.path().join("parts/1.0.0")).unwrap();
    assert!(!packed.written && packed.to_string().contains("FILE          BYTES    SHA-256\n"), "{packed}");
    let inspected = cli::inspect(&root.path().join("parts/1.0.0")).unwrap();
    assert_eq!(serde_json::to_value(&inspected).unwrap()["kind"], "bundle");
}

proptest! {
    #[test]
    fn no_bytes_make_the_onnx_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(onnx::read(&bytes));
    }
}
