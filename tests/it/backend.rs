//! What every backend must do: one suite, run on each that is on this machine.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "the helpers of tests are tests too")]

mod library;
mod onnx_file;

use std::path::Path;
use std::process::Command;

use gantry::backend::fake::FakeScript;
use gantry::backend::onnx;
use gantry::backend::tensor::{ElementType, ElementsMut, Shape, TensorSpec};
use gantry::backend::{
    BackendChoice, BackendError, BackendKind, BatchSizes, Device, DeviceConfig, LoadOptions, ModelFile,
    ModelFormat, Session,
};
use gantry::telemetry::resident_bytes;

use onnx_file::{BF16, F16, F32, I8, I64, OnnxFile, U8};

const FACTORY_TINY: &str = "models/line-parts/1.0.0/factory_tiny.onnx";
const INT8: &str = "tests/data/models/line-parts-int8/1.0.0/factory_tiny_int8.onnx";
const E2E: &str = "tests/data/models/line-parts-e2e/1.0.0/factory_tiny_e2e.onnx";
const COCO: &str = "tests/data/models/coco/1.0.0/coco_ssdlite.onnx";
const MODELS: [&str; 6] = [
    FACTORY_TINY,
    "tests/data/models/line-parts-v2/1.0.0/factory_tiny_v2.onnx",
    "tests/data/models/line-parts-bad/1.0.0/factory_tiny_bad.onnx",
    INT8,
    E2E,
    COCO,
];

fn config(backend: BackendKind) -> DeviceConfig {
    DeviceConfig {
        id: "cpu0".into(),
        backend: BackendChoice::Named(backend),
        threads: 1,
        library: None,
        fake: FakeScript::default(),
    }
}

fn options(batch_size_max: usize) -> LoadOptions {
    LoadOptions { batch_size_max, batches: 2 }
}

/// The engines of this machine that run ONNX files. One that is absent is told as a skip of `test`.
fn engines(test: &str) -> Vec<Box<dyn Device>> {
    let mut engines = vec![gantry::backend::open(&config(BackendKind::Embedded)).unwrap()];
    match gantry::backend::open(&config(BackendKind::OnnxRuntime)) {
        Ok(device) => engines.push(device),
        Err(BackendError::Missing { .. }) => {
            eprintln!("SKIP {test}: onnxruntime is not here; scripts/fetch-runtime onnxruntime gets it");
        }
        Err(error) => panic!("{error}"),
    }
    engines
}

fn read(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn spec(name: &str, element_type: ElementType, dims: &[i64]) -> TensorSpec {
    TensorSpec { name: name.into(), element_type, shape: Shape::new(dims) }
}

fn file<'a>(bytes: &'a [u8], input: Option<&'a TensorSpec>) -> ModelFile<'a> {
    ModelFile {
        name: "line-parts 1.0.0",
        path: Path::new("models/line-parts/1.0.0/model.onnx"),
        bytes,
        format: ModelFormat::Onnx,
        input,
        outputs: &[],
    }
}

fn load(device: &mut dyn Device, bytes: &[u8], options: LoadOptions) -> Box<dyn Session> {
    device.load(&file(bytes, None), options).unwrap()
}

/// A picture number `n` as a tensor of `len` floats: bright discs and slopes, so that detectors find something to weigh.
fn picture(n: usize, len: usize) -> Vec<f32> {
    let width = if len == 3 * 300 * 300 { 300 } else { 256 };
    let disc = |x: usize, y: usize, k: usize| {
        let (cx, cy) = ((60 + 70 * k + 13 * n) % width, (80 + 50 * k + 29 * n) % width);
        let distance = x.abs_diff(cx).pow(2) + y.abs_diff(cy).pow(2);
        (200..=900).contains(&distance)
    };
    let value = |index: usize| {
        let (channel, y, x) = (index / (width * width), index / width % width, index % width);
        let base = 0.35 + 0.1 * (x as f32 / width as f32) + 0.02 * channel as f32;
        if (0..4).any(|k| disc(x, y, k)) { 0.85 - 0.05 * channel as f32 } else { base }
    };
    (0..len).map(value).collect()
}

fn fill(session: &mut dyn Session, batch: usize, slot: usize, n: usize) {
    match session.slot(batch, slot) {
        ElementsMut::F32(place) if place.len() < 100 => place.fill(f32::from(u8::try_from(n).unwrap())),
        ElementsMut::F32(place) => {
            let len = place.len();
            place.copy_from_slice(&picture(n, len));
        }
        ElementsMut::F16(place) => place.fill(half::f16::from(u8::try_from(n).unwrap())),
        ElementsMut::Bf16(place) => place.fill(half::bf16::from(u8::try_from(n).unwrap())),
        ElementsMut::U8(place) => place.fill(u8::try_from(n).unwrap()),
        ElementsMut::I8(place) => place.fill(i8::try_from(n).unwrap()),
    }
}

/// Runs pictures `numbers` as one batch, and gives output 0 of each.
fn run(session: &mut dyn Session, batch: usize, numbers: &[usize]) -> Vec<Vec<f32>> {
    for (slot, &n) in numbers.iter().enumerate() {
        fill(session, batch, slot, n);
    }
    session.submit(batch, numbers.len()).unwrap();
    session.wait(batch).unwrap();
    frames(session, batch, numbers.len())
}

fn frames(session: &dyn Session, batch: usize, frames: usize) -> Vec<Vec<f32>> {
    let view = session.output(batch, 0);
    assert_eq!(view.shape[0], frames);
    (0..frames).map(|slot| view.frame_f32(slot).unwrap().1.to_vec()).collect()
}

fn assert_close(a: &[f32], b: &[f32], tolerance: f32, what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{what}: values differ by {worst}");
}

fn refusal(result: Result<Box<dyn Session>, BackendError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, BackendError::BadModel { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn names_types_and_shapes_are_as_the_file_says() {
    for mut device in engines("names_types_and_shapes_are_as_the_file_says") {
        for (path, input, output) in [
            (FACTORY_TINY, "images f32 [-1, 3, 256, 256]", "output0 f32 [-1, 8, 1344]"),
            (INT8, "images f32 [-1, 3, 256, 256]", "output0 f32 [-1, 8, 1344]"),
            (E2E, "images f32 [-1, 3, 256, 256]", "detections f32 [-1, 100, 6]"),
            (COCO, "images f32 [-1, 3, 300, 300]", "output0 f32 [-1, 84, 1917]"),
        ] {
            let session = load(&mut *device, &read(path), options(3));
            assert_eq!(session.input().to_string(), input, "{device:?}");
            let outputs: Vec<_> = session.outputs().iter().map(ToString::to_string).collect();
            assert_eq!(outputs, [output], "{device:?}");
            assert_eq!((session.batch_size_max(), session.batches()), (3, 2));
            assert!(session.batch_sizes() == BatchSizes::Any && !session.is_asynchronous());
        }
    }
}

#[test]
fn a_batch_gives_what_its_frames_give_alone() {
    for mut device in engines("a_batch_gives_what_its_frames_give_alone") {
        for path in [FACTORY_TINY, INT8, E2E] {
            let mut session = load(&mut *device, &read(path), options(4));
            let singles: Vec<_> = (0..4).map(|n| run(&mut *session, 0, &[n]).remove(0)).collect();
            assert_ne!(singles[0], singles[1], "the pictures differ, so the outputs do");
            for size in 1..=4 {
                let numbers: Vec<_> = (0..size).collect();
                for (n, output) in run(&mut *session, 1, &numbers).iter().enumerate() {
                    let what = format!("{} {path} frame {n} of {size}", device.describe());
                    assert_close(output, &singles[n], 1e-4, &what);
                }
            }
        }
    }
}

#[test]
fn two_batches_filled_alternately_do_not_touch_each_other() {
    for mut device in engines("two_batches_filled_alternately_do_not_touch_each_other") {
        let mut session = load(&mut *device, &read(FACTORY_TINY), options(2));
        let expected: Vec<_> = (0..6).map(|n| run(&mut *session, 0, &[n]).remove(0)).collect();
        fill(&mut *session, 0, 0, 0);
        fill(&mut *session, 0, 1, 1);
        for round in 0..2 {
            let (batch, first) = (round % 2, 2 * round);
            session.submit(batch, 2).unwrap();
            // The other batch fills while this one runs, or has run.
            fill(&mut *session, 1 - batch, 0, first + 2);
            fill(&mut *session, 1 - batch, 1, first + 3);
            session.wait(batch).unwrap();
            let outputs = frames(&*session, batch, 2);
            assert_close(&outputs[0], &expected[first], 1e-4, "first frame");
            assert_close(&outputs[1], &expected[first + 1], 1e-4, "second frame");
        }
        session.submit(0, 2).unwrap();
        session.wait(0).unwrap();
        let outputs = frames(&*session, 0, 2);
        assert_close(&outputs[1], &expected[5], 1e-4, "last frame");
        assert_close(
            &frames(&*session, 1, 2)[1],
            &expected[3],
            1e-4,
            "the other batch's output is still there",
        );
    }
}

#[test]
fn engines_agree_on_every_model() {
    let mut engines = engines("engines_agree_on_every_model");
    let [embedded, onnxruntime] = &mut engines[..] else { return };
    for path in MODELS {
        let bytes = read(path);
        let mut ours = load(&mut **embedded, &bytes, options(2));
        let mut theirs = load(&mut **onnxruntime, &bytes, options(2));
        assert_eq!((ours.input(), ours.outputs()), (theirs.input(), theirs.outputs()), "{path}");
        let (a, b) = (run(&mut *ours, 0, &[1, 2]), run(&mut *theirs, 0, &[1, 2]));
        assert!(
            a[0].iter().any(|&value| value > 0.1 && value < 0.99),
            "{path}: there is something to compare"
        );
        for (a, b) in a.iter().zip(&b) {
            if path == INT8 {
                // Each engine rounds in its own way; the boxes of anchors that see nothing are noise.
                let scores = 4 * 1344;
                assert_close(&a[scores..], &b[scores..], 0.03, path);
            } else {
                assert_close(a, b, 1e-3, path);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_model_are_refused_with_the_thing_named() {
    let whole = read(FACTORY_TINY);
    let html = b"<!DOCTYPE html><html><body>404 Not Found</body></html>".repeat(40);
    let noise: Vec<u8> = (0..4096u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for mut device in engines("bytes_that_are_no_model_are_refused_with_the_thing_named") {
        for (what, bytes) in [
            ("empty", &[][..]),
            ("one byte", &whole[..1]),
            ("a head", &whole[..100]),
            ("half", &whole[..whole.len() / 2]),
            ("all but a byte", &whole[..whole.len() - 1]),
            ("a web page", &html),
            ("noise", &noise),
            ("zeros", &[0; 4096]),
        ] {
            let error = refusal(device.load(&file(bytes, None), options(1)));
            for part in ["line-parts 1.0.0", "models/line-parts/1.0.0/model.onnx", device.backend().name()] {
                assert!(error.contains(part), "{what}: {error}");
            }
            assert!(error.len() < 500, "{what}: {error}");
        }
        let mut session = load(&mut *device, &whole, options(1));
        assert_eq!(run(&mut *session, 0, &[0]).len(), 1, "the device goes on");
    }
}

#[test]
fn a_damaged_file_is_refused_or_runs_and_never_ends_the_process() {
    let whole = read(FACTORY_TINY);
    // The nodes lie at the front, the inputs' and outputs' names and shapes at the end, weights between.
    let front = 30_000;
    for mut device in engines("a_damaged_file_is_refused_or_runs_and_never_ends_the_process") {
        let mut random = fastrand::Rng::with_seed(11);
        let mut refused = 0;
        for _ in 0..120 {
            let mut bytes = whole.clone();
            let at = if random.bool() {
                random.usize(0..front)
            } else {
                random.usize(whole.len() - 600..whole.len())
            };
            match random.u8(0..3) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random.u8(0..8),
                _ => drop(bytes.drain(at..(at + random.usize(1..40)).min(whole.len()))),
            }
            match device.load(&file(&bytes, None), options(1)) {
                // A name may be damaged without harm.
                Ok(mut session) => drop(session.submit(0, 1)),
                Err(BackendError::BadModel { .. }) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(refused >= 60, "only {refused} of 120 damaged files were refused");
    }
}

#[test]
fn models_that_gantry_cannot_feed_or_read_are_refused_in_words() {
    let base = || OnnxFile::default().input("images", F32, &[-1, 3, 4, 4]);
    let relu = || base().node("Relu", &["images"], "out");
    let out = Some(&[-1, 3, 4, 4][..]);
    let cases = [
        (
            "2 inputs (images, scale)",
            base().input("scale", F32, &[1]).node("Mul", &["images", "scale"], "out"),
        ),
        ("has no input", OnnxFile::default().node("Relu", &["images"], "out")),
        ("`images` is of type float64", OnnxFile::default().input("images", 11, &[-1, 3, 4, 4])),
    ];
    for mut device in engines("models_that_gantry_cannot_feed_or_read_are_refused_in_words") {
        let mut refused = |words: &str, bytes: Vec<u8>| {
            let error = refusal(device.load(&file(&bytes, None), options(2)));
            assert!(error.contains(words), "{words}: {error}");
        };
        for (words, model) in cases.iter().map(|(words, model)| (words, model.clone())) {
            refused(words, model.output("out", F32, out).bytes());
        }
        refused("has no output", relu().bytes());
        refused("`out` is of type int64", relu().output("out", I64, out).bytes());
        refused(
            "NoSuchOperator",
            base().node("NoSuchOperator", &["images"], "out").output("out", F32, out).bytes(),
        );
        let missing = base().node("Relu", &["nowhere"], "out").output("out", F32, out);
        refused("nowhere", missing.bytes());
        refused("makes its output `other`", relu().output("other", F32, out).bytes());
        let reversed = base().node("Transpose", &["images"], "out").output("out", F32, None);
        refused("first size must be the batch", reversed.bytes());
    }
}

#[test]
fn a_file_says_what_it_takes_and_gives_without_an_engine() {
    let file = OnnxFile::default()
        .input("images", F32, &[-1, 3, 0, 4])
        .node("NoSuchOperator", &["images"], "out")
        .output("out", I64, None)
        .bytes();
    let head = onnx::read(&file).unwrap();
    assert_eq!((head.opset, head.nodes, head.producer.as_str()), (17, 1, ""));
    assert_eq!(head.inputs[0].to_string(), "images float32 [open1, 3, ?, 4]");
    assert_eq!(head.inputs[0].spec().unwrap().to_string(), "images f32 [-1, 3, -1, 4]");
    assert_eq!(head.outputs[0].to_string(), "out int64 []");
    let error = head.outputs[0].spec().unwrap_err();
    assert_eq!(
        error,
        "`out` is of type int64, and only float32, float16, bfloat16, uint8 and int8 are known"
    );
    let clear = OnnxFile::default().input("im\u{1b}[2Jages", F32, &[1]).output("out", F32, None).bytes();
    assert!(onnx::read(&clear).unwrap_err().contains("control character"));
}

#[test]
fn a_size_that_the_file_leaves_open_is_the_manifests() {
    let model = OnnxFile::default()
        .input("images", F32, &[-1, 3, -2, -3])
        .node("Neg", &["images"], "out")
        .output("out", F32, None)
        .bytes();
    let declared = spec("images", ElementType::F32, &[-1, 3, 4, 6]);
    for mut device in engines("a_size_that_the_file_leaves_open_is_the_manifests") {
        let error = refusal(device.load(&file(&model, None), options(2)));
        assert!(error.contains("leaves size 2 open"), "{error}");
        let mut session = device.load(&file(&model, Some(&declared)), options(2)).unwrap();
        assert_eq!(session.input().to_string(), "images f32 [-1, 3, -1, -1]");
        let ElementsMut::F32(slot) = session.slot(0, 1) else { panic!("f32 was declared") };
        assert_eq!(slot.len(), 3 * 4 * 6);
        slot.fill(2.5);
        session.submit(0, 2).unwrap();
        session.wait(0).unwrap();
        let output = session.output(0, 0);
        assert_eq!(output.shape, [2, 3, 4, 6]);
        assert_eq!(output.frame_f32(1).unwrap().1, [-2.5; 72]);
    }
}

#[test]
fn a_model_of_another_size_than_the_manifest_says_is_told_with_both_shapes() {
    let bytes = read(FACTORY_TINY);
    let declared = spec("images", ElementType::F32, &[-1, 3, 320, 320]);
    for mut device in engines("a_model_of_another_size_than_the_manifest_says_is_told_with_both_shapes") {
        let error = refusal(device.load(&file(&bytes, Some(&declared)), options(1)));
        assert!(error.contains("[-1, 3, 256, 256]") && error.contains("[-1, 3, 320, 320]"), "{error}");
    }
}

#[test]
fn a_fixed_batch_runs_with_fewer_frames() {
    let model = OnnxFile::default()
        .input("images", F32, &[3, 2, 2, 2])
        .node("Neg", &["images"], "out")
        .output("out", F32, Some(&[3, 2, 2, 2]))
        .bytes();
    for mut device in engines("a_fixed_batch_runs_with_fewer_frames") {
        for asked in [2, 8] {
            let mut session = load(&mut *device, &model, options(asked));
            assert_eq!(session.batch_sizes(), BatchSizes::Fixed(&[3]));
            assert_eq!(session.batch_size_max(), asked.min(3));
            for slot in 0..2u8 {
                let ElementsMut::F32(place) = session.slot(1, slot.into()) else { panic!("f32") };
                place.fill(f32::from(slot) + 1.0);
            }
            session.submit(1, 2).unwrap();
            session.wait(1).unwrap();
            let output = session.output(1, 0);
            assert_eq!(output.shape, [2, 2, 2, 2]);
            assert_eq!(output.frame_f32(1).unwrap().1, [-2.0; 8]);
            assert!(output.frame_f32(2).is_none());
        }
    }
}

#[test]
fn pictures_can_be_of_every_type_that_the_engine_takes() {
    let types = [
        (ElementType::F32, F32),
        (ElementType::F16, F16),
        (ElementType::Bf16, BF16),
        (ElementType::U8, U8),
        (ElementType::I8, I8),
    ];
    for mut device in engines("pictures_can_be_of_every_type_that_the_engine_takes") {
        for (element_type, number) in types {
            let model = OnnxFile::default()
                .input("images", number, &[-1, 2, 2, 3])
                .node_with("Cast", &["images"], "out", &[("to", F32)])
                .output("out", F32, Some(&[-1, 2, 2, 3]))
                .bytes();
            if device.backend() == BackendKind::Embedded && element_type == ElementType::Bf16 {
                let error = refusal(device.load(&file(&model, None), options(2)));
                assert!(
                    error.contains("run it with onnxruntime, or export it with an input of f32"),
                    "{error}"
                );
                continue;
            }
            let mut session = load(&mut *device, &model, options(2));
            assert_eq!(session.input().element_type, element_type);
            assert_eq!(run(&mut *session, 0, &[7, 120]), [[7.0; 12], [120.0; 12]], "{}", device.describe());
        }
    }
}

#[test]
fn a_batch_that_cannot_be_is_an_error_and_not_a_panic() {
    for mut device in engines("a_batch_that_cannot_be_is_an_error_and_not_a_panic") {
        let mut session = load(&mut *device, &read(FACTORY_TINY), options(2));
        for (batch, frames) in [(0, 0), (0, 3), (2, 1)] {
            let error = session.submit(batch, frames).unwrap_err();
            assert!(matches!(error, BackendError::Run { .. }), "{error:?}");
            assert!(error.to_string().contains(device.backend().name()), "{error}");
        }
        assert_eq!(run(&mut *session, 0, &[0]).len(), 1, "the session goes on");
    }
}

#[test]
fn sessions_and_devices_can_be_opened_again() {
    for round in 0..2 {
        for mut device in engines("sessions_and_devices_can_be_opened_again") {
            let bytes = read(FACTORY_TINY);
            let mut first = load(&mut *device, &bytes, options(1));
            let mut second = load(&mut *device, &bytes, options(1));
            let expected = run(&mut *first, 0, &[3]);
            drop(first);
            assert_eq!(run(&mut *second, 0, &[3]), expected, "round {round}");
        }
    }
}

/// Runs the test `name`, with its modules, again in a process of its own, where nothing else moves the memory, unless this is it.
fn is_alone(name: &str) -> bool {
    const MARK: &str = "GANTRY_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let binary = std::env::current_exe().unwrap();
    let arguments = [name, "--exact", "--nocapture", "--test-threads=1"];
    let output = Command::new(binary).args(arguments).env(MARK, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    eprintln!(
        "{}",
        text.lines()
            .filter(|line| line.contains("SKIP") || line.contains("MiB"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    false
}

/// Calls `step` `warm_up` times, then `steps` times, and fails if the process grew by more than `limit_mib` in the latter.
fn assert_flat(what: &str, warm_up: usize, steps: usize, limit_mib: u64, mut step: impl FnMut()) {
    (0..warm_up).for_each(|_| step());
    let before = resident_bytes();
    (0..steps).for_each(|_| step());
    let grown = resident_bytes().saturating_sub(before) >> 20;
    eprintln!("{what}: grew by {grown} MiB in {steps} steps");
    assert!(grown <= limit_mib, "{what}: grew by {grown} MiB in {steps} steps");
}

#[test]
fn memory_is_flat_over_200_loads_and_unloads() {
    if !is_alone("backend::memory_is_flat_over_200_loads_and_unloads") {
        return;
    }
    // One copy of the weights takes 1.6 MiB, so a leak would be 290 MiB at least.
    let bytes = read(FACTORY_TINY);
    for mut device in engines("memory_is_flat_over_200_loads_and_unloads") {
        let what = device.describe();
        assert_flat(&what, 20, 180, 48, || {
            let mut session = load(&mut *device, &bytes, options(2));
            session.submit(0, 1).unwrap();
        });
    }
}

#[test]
fn memory_is_flat_over_1000_runs() {
    if !is_alone("backend::memory_is_flat_over_1000_runs") {
        return;
    }
    // One output takes 42 KiB and one input 768 KiB, so a leak would be 33 MiB at least.
    for mut device in engines("memory_is_flat_over_1000_runs") {
        let mut session = load(&mut *device, &read(FACTORY_TINY), options(1));
        let mut turn = 0;
        assert_flat(&device.describe(), 200, 800, 8, || {
            turn += 1;
            fill_evenly(&mut *session, turn % 2);
            session.submit(turn % 2, 1).unwrap();
            session.wait(turn % 2).unwrap();
        });
    }
}

fn fill_evenly(session: &mut dyn Session, batch: usize) {
    if let ElementsMut::F32(place) = session.slot(batch, 0) {
        place.fill(0.5);
    }
}
