//! `model.yaml` is read strictly: every mistake is told, with its place and its cure, and no text does harm.

use gantry::backend::BackendKind;
use gantry::backend::tensor::ElementType;
use gantry::model::manifest;
use gantry::preprocess::{Align, ColorOrder, Quantization};
use gantry::yaml::{self, Place};
use proptest::prelude::*;

/// A manifest without files; `pack` fills them in.
pub(crate) const MANIFEST: &str = "\
# A detector for tests.
schema: gantry.model/1
name: parts
version: 1.0.0
task: detect
# What runs it.
variants:
  - {backend: onnx, file: parts.onnx}
input:
  name: images
  shape: [-1, 3, 256, 256]
  type: f32
  layout: nchw
  color: rgb
  mean: 0
  std: [255, 255, 255]
  resize: letterbox
output:
  family: yolov8
  name: output0
  shape: [-1, 8, 1344]
labels: labels.txt
thresholds: {score: 0.25, iou: 0.5}
golden:
  - image: golden/a.png
    expect: [{label: nut, box: {x: 1, y: 2.5, w: 30, h: 40}, score_min: 0.5}]
    iou_min: 0.5
";

/// An image's path of 256 bytes.
const LONG_IMAGE: &str = "image: \
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// A change to a whole manifest, and the mistake that it makes.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    ("schema: gantry.model/1", "schema: gantry.model/2",
        "2:9: schema: must be `gantry.model/1`, not `gantry.model/2`; did you mean `gantry.model/1`?"),
    ("name: parts\n", "",
        "2:1: `name` is missing"),
    ("name: parts\n", "name: a b\n",
        "3:7: name: must be at most 64 letters, digits, `.`, `_` and `-`, the first a letter or digit, not `a b`"),
    ("name: parts\n", "name:\n",
        "3:1: name: must be a text, not nothing"),
    ("name: parts\n", "name: ''\n",
        "3:7: name: must not be empty"),
    ("name: parts\n", "name: parts\nname: other\n",
        "4:1: name: this key is already given in line 3; remove one of the two"),
    ("version: 1.0.0", "version: 1.0",
        "4:10: version: must be three numbers such as 1.4.0, not `1.0`: unexpected end of input while parsing minor version number"),
    ("task: detect", "task: dettect",
        "5:7: task: must be `detect`, not `dettect`; did you mean `detect`?"),
    ("task: detect", "tasks: detect",
        "5:1: `tasks` is not a known key; did you mean `task`?"),
    ("backend: onnx,", "backend: onxruntime,",
        "11:15: variants[0].backend: must be one of onnx, embedded, onnxruntime, fake, not `onxruntime`; did you mean `onnxruntime`?"),
    ("  - {backend: onnx, file: parts.onnx}", "  []",
        "11:3: variants: is empty, so the model has no file to run"),
    ("file: parts.onnx", "file: part.onnx",
        "11:27: variants[0].file: `part.onnx` is not in the `files` map; `gantry model pack` puts it there"),
    ("file: parts.onnx", "file: ../parts.onnx",
        "11:27: variants[0].file: `../parts.onnx` has an empty part, `.` or `..`; write it as it is inside the bundle"),
    ("  labels.txt: {", "  /etc/passwd: {",
        "8:3: files: `/etc/passwd` is absolute; write it as it is inside the bundle"),
    ("  labels.txt: {", "  a\\b: {",
        "8:3: files: `a\\\\b` has a backslash or a control character; folders are divided by `/`"),
    ("  labels.txt: {", "  model.yaml: {",
        "8:3: files: `model.yaml` is the manifest itself"),
    ("size: 1}", "size: -1}",
        "7:98: files.parts.onnx.size: must be a number of bytes, not -1"),
    ("size: 1}", "size: 1, mode: 7}",
        "7:101: files.parts.onnx: `mode` is not a known key; the keys here are sha256, size"),
    ("sha256: \"00", "sha256: \"xyz",
        "7:24: files.parts.onnx.sha256: must be the 64 hex digits that sha256sum prints, not `xyz00000000000000000000000000000000000000000000000000000000000000`"),
    ("[-1, 3, 256, 256]", "[-1, 256, 256, 3]",
        "14:10: input.shape: must be [batch, 3, height, width] for this layout, not [-1, 256, 256, 3]"),
    ("[-1, 3, 256, 256]", "[-1, 3, -1, 256]",
        "14:10: input.shape: must have a height and width in pixels, not [-1, 3, -1, 256]; only the batch may be -1"),
    ("[-1, 3, 256, 256]", "[-1, 3, 9223372036854775807, 9223372036854775807]",
        "14:10: input.shape: [-1, 3, 9223372036854775807, 9223372036854775807] has more than the 67108864 numbers that one frame may take"),
    ("[-1, 3, 256, 256]", "[1025, 3, 256, 256]",
        "14:10: input.shape: has a batch of more than 1024"),
    ("[-1, 3, 256, 256]", "[0, 3, 256, 256]",
        "14:10: input.shape: must be at most 8 sizes of 1 and more, or -1 for one that is known when it runs"),
    ("[-1, 3, 256, 256]", "[a, 3, 256, 256]",
        "14:11: input.shape[0]: must be a whole number, not `a`"),
    ("[-1, 3, 256, 256]", "256",
        "14:10: input.shape: must be a list, not `256`"),
    ("type: f32", "type: float",
        "15:9: input.type: must be one of f32, f16, bf16, u8, i8, not `float`"),
    ("type: f32", "type: u8",
        "19:8: input.std: must be 1 or absent for an input of type u8 without a scale"),
    ("type: f32", "type: f16\n  scale: 0.5",
        "16:10: input.scale: has a meaning for inputs of type u8 and i8 only; remove it"),
    ("type: f32", "type: i8\n  scale: 0.5",
        "13:3: input: `zero_point` is missing"),
    ("type: f32", "type: i8\n  scale: 0\n  zero_point: 0",
        "16:10: input.scale: must be more than 0"),
    ("type: f32", "type: i8\n  scale: 0.5\n  zero_point: 128",
        "17:15: input.zero_point: must be a number from -128 to 127, not 128"),
    ("type: f32", "type: u8\n  scale: 0.5\n  zero_point: -1",
        "17:15: input.zero_point: must be a number from 0 to 255, not -1"),
    ("mean: 0", "mean: .nan",
        "18:9: input.mean: must be a number, not `.nan`"),
    ("mean: 0", "mean: 1e99",
        "18:9: input.mean: must be a number, not `1e99`"),
    ("mean: 0", "mean: '0'",
        "18:9: input.mean: must be a number, not `0`"),
    ("std: [255, 255, 255]", "std: 0",
        "19:8: input.std: must be more than 0, because pictures are divided by it"),
    ("std: [255, 255, 255]", "std: [1, 2]",
        "19:8: input.std: must be one number or three, not 2"),
    ("resize: letterbox", "resize: letterbox\n  pad: 256",
        "21:8: input.pad: must be a grey value from 0 to 255, not 256"),
    ("resize: letterbox", "resize: letterbx",
        "20:11: input.resize: must be one of letterbox, stretch, crop, not `letterbx`; did you mean `letterbox`?"),
    ("resize: letterbox", "resize: letterbox\n  filter: linear",
        "21:11: input.filter: must be one of bilinear, area, auto, not `linear`; did you mean `bilinear`?"),
    ("family: yolov8", "family: yolo8",
        "22:11: output.family: must be one of yolov8, yolov5, yolo_end_to_end, not `yolo8`; did you mean `yolov8`?"),
    ("[-1, 8, 1344]", "[-1, 8]",
        "24:10: output.shape: must be [batch, 4 + classes, boxes] or [batch, boxes, 4 + classes] for this family, not [-1, 8]"),
    ("score: 0.25", "score: 25",
        "26:21: thresholds.score: must be a number from 0 to 1, not 25"),
    (", iou: 0.5}", "}",
        "26:13: thresholds: `iou` is missing"),
    ("labels: labels.txt", "labels: {}",
        "25:9: labels: must be a text, not a map"),
    ("w: 30", "w: 0",
        "29:50: golden[0].expect[0].box.w: must be more than 0 pixels, not 0"),
    ("x: 1,", "x: inf,",
        "29:36: golden[0].expect[0].box.x: must be a number, not `inf`"),
    ("image: golden/a.png", LONG_IMAGE,
        "28:12: golden[0].image: `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…` is longer than 255 bytes"),
    ("schema: gantry.model/1", "- schema",
        "2:1: must be a map of keys and values, not a list"),
    ("task: detect", "task: [detect",
        "6:6: this is not YAML: illegal placement of ':' indicator; a bracket or brace that was opened is never closed"),
    ("task: detect", "task: !!str detect",
        "5:7: task: the tag tag:yaml.org,2002:!str means nothing here; remove it"),
];

/// A whole manifest, with a listed file, that has `from` replaced by `to`.
fn changed(from: &str, to: &str) -> String {
    let hash = "0".repeat(64);
    let file = |name: &str| format!("  {name}: {{sha256: \"{hash}\", size: 1}}\n");
    let files = ["parts.onnx", "labels.txt", "golden/a.png"].map(file).concat();
    let whole = MANIFEST.replace("# What runs it.\n", &format!("files:\n{files}"));
    assert!(whole.contains(from), "{from}");
    whole.replacen(from, to, 1)
}

fn mistakes(text: &str) -> Vec<String> {
    match manifest::parse(text.as_bytes()) {
        Ok(manifest) => panic!("{manifest:?}"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn bytes_need_no_mean_and_std_and_other_orders_are_read() {
    let text = changed("type: f32", "type: u8")
        .replace("  mean: 0\n  std: [255, 255, 255]\n", "")
        .replace("[-1, 3, 256, 256]", "[4, 320, 640, 3]")
        .replace("nchw", "nhwc")
        .replace("rgb", "bgr")
        .replace("resize: letterbox", "resize: letterbox\n  align: top_left\n  pad: 0");
    let manifest = manifest::parse(text.as_bytes()).unwrap();
    assert_eq!((manifest.input.width, manifest.input.height), (640, 320));
    assert_eq!((manifest.input.mean, manifest.input.std), ([0.0; 3], [1.0; 3]));
    assert_eq!((manifest.input.align, manifest.input.pad), (Align::TopLeft, 0));
    assert_eq!(manifest.input.color, ColorOrder::Bgr);
}

#[test]
fn integers_have_a_scale_and_a_zero_point() {
    let text = changed("type: f32", "type: i8\n  scale: 0.00392156862745098\n  zero_point: -128");
    let input = manifest::parse(text.as_bytes()).unwrap().input;
    assert_eq!(input.element_type, ElementType::I8);
    assert_eq!(input.quantization, Quantization { scale: 1.0 / 255.0, zero_point: -128 });
    assert_eq!((input.mean, input.std), ([0.0; 3], [255.0; 3]));
    let plain = manifest::parse(changed("type: f32", "type: bf16").as_bytes()).unwrap().input;
    assert_eq!((plain.element_type, plain.quantization), (ElementType::Bf16, Quantization::NONE));
}

#[test]
fn a_variant_is_for_every_backend_that_reads_it_or_for_one() {
    let text = changed("backend: onnx,", "backend: embedded,");
    assert_eq!(manifest::parse(text.as_bytes()).unwrap().variants[0].backend, Some(BackendKind::Embedded));
}

#[test]
fn each_mistake_in_a_manifest_is_told_with_its_place_and_its_cure() {
    let mut wrong = Vec::new();
    for (from, to, expected) in MISTAKES {
        let text = if *to == "- schema" { "\n- schema\n".to_owned() } else { changed(from, to) };
        let mistakes = mistakes(&text);
        let told = mistakes.iter().any(|mistake| mistake == expected);
        // A key that is misspelt is missing, and a file that is listed under another name is not listed.
        let number = if to.contains("tasks") || from.contains("labels.txt: {") { 2 } else { 1 };
        if !told || mistakes.len() != number {
            wrong.push(format!("{from} -> {to}\n  wanted {expected}\n  got {mistakes:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_files_section_is_asked_for_with_the_command_that_writes_it() {
    assert_eq!(mistakes(MANIFEST)[0], "1:1: `files` is missing; `gantry model pack` writes it");
}

#[test]
fn anchors_and_a_byte_order_mark_are_taken() {
    let text = changed("w: 30, h: 40", "w: &side 30, h: *side");
    let manifest = manifest::parse(format!("\u{feff}{text}").as_bytes()).unwrap();
    assert_eq!((manifest.golden[0].expect[0].bbox.w, manifest.golden[0].expect[0].bbox.h), (30.0, 30.0));
}

#[test]
fn bytes_that_are_no_text_and_a_file_with_nothing_in_it_are_told() {
    let told = |bytes: &[u8]| manifest::parse(bytes).unwrap_err()[0].to_string();
    assert_eq!(told(b""), "1:1: the file is empty");
    assert_eq!(told(b"# only a remark\n"), "1:1: the file is empty");
    assert_eq!(told(b"\xff\xfen\0a\0"), "1:1: the file is UTF-16; save it as UTF-8");
    assert_eq!(
        told(b"schema: x\nname: \xe9"),
        "2:7: the byte 0xe9 here is not UTF-8; save the file as UTF-8"
    );
}

#[test]
fn a_manifest_of_unreasonable_size_is_not_read() {
    let text = format!("{MANIFEST}#{}", "x".repeat(yaml::SIZE_MAX));
    assert_eq!(mistakes(&text), ["1:1: the file has more than 1048576 bytes; is this the manifest?"]);
}

#[test]
fn every_mistake_is_told_at_once_in_the_order_of_the_file() {
    let text = changed("name: parts", "nam: parts")
        .replace("1.0.0", "one")
        .replace("f32", "f64")
        .replace("score: 0.25", "score: high")
        .replace("box: {x: 1", "box: {q: 1");
    let places: Vec<Place> =
        manifest::parse(text.as_bytes()).unwrap_err().iter().map(|problem| problem.place.unwrap()).collect();
    assert_eq!(places.len(), 7, "{:#?}", mistakes(&text)); // `name` and `x` are also missing.
    assert!(places.is_sorted(), "{places:?}");
}

proptest! {
    #[test]
    fn no_text_makes_the_manifest_reader_panic(text in "\\PC{0,400}|[-\\[\\]{}:,&*!|>'\"%@`#? \n\ta-z0-9.]{0,400}") {
        drop(manifest::parse(text.as_bytes()));
    }

    #[test]
    fn no_change_to_a_manifest_makes_the_reader_panic(
        place in 0..1200_usize,
        len in 0..40_usize,
        insert in "[-\\[\\]{}:,&*!|>'\"%#? \n\ta-z0-9.]{0,12}",
    ) {
        let mut text = changed("task: detect", "task: detect");
        let start = place.min(text.len());
        text.replace_range(start..(start + len).min(text.len()), &insert);
        // A problem always has a place in the text, or right behind it.
        if let Err(problems) = manifest::parse(text.as_bytes()) {
            prop_assert!(!problems.is_empty());
            let lines = text.lines().count() + 1;
            for problem in problems {
                prop_assert!((1..=lines).contains(&problem.place.unwrap().line), "{problem}");
            }
        }
    }
}
