//! Bad input, through the binary: each is told by name and with its cure, nothing panics, and what can go on goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Running, SOON, copy_dir, eventually, gantry, path};

/// A config without a mistake.
const GOOD: &str = "node: line-7
models: {dir: $MODELS}
devices: [{id: cpu0, backend: embedded}]
cameras:
  - {id: press-1, source: 'test://pattern?size=320x240&rate=25', detect: [{model: line-parts}]}
publish: {detections: every_frame, stdout: true}
";

/// An exit code, and all that was written.
struct Answer {
    code: Option<i32>,
    text: String,
}

impl Answer {
    fn of(output: &Output) -> Self {
        let text =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap()).concat();
        assert!(!text.contains("panicked"), "{text}");
        Self { code: output.status.code(), text }
    }

    #[track_caller]
    fn has(&self, code: i32, words: &[&str]) {
        for word in words {
            assert!(self.text.contains(word), "{word:?} is not in: {}", self.text);
        }
        assert_eq!(self.code, Some(code), "{}", self.text);
    }
}

fn config_in(dir: &Path, config: &[u8]) -> PathBuf {
    let file = dir.join("gantry.yaml");
    fs::write(&file, config).unwrap();
    file
}

fn with_models(config: &str, models: &Path) -> String {
    config.replace("$MODELS", models.to_str().unwrap())
}

/// `run` and `check` both refuse this config with these words and 78.
#[track_caller]
fn refused(config: &[u8], words: &[&str]) {
    let dir = TempDir::new().unwrap();
    refused_file(&config_in(dir.path(), config), words);
}

#[track_caller]
fn refused_file(file: &Path, words: &[&str]) {
    let file = file.to_str().unwrap();
    for command in ["run", "check"] {
        let answer = Answer::of(&gantry(&[command, "-c", file]));
        answer.has(78, words);
        assert!(answer.text.contains(file), "{command} names the file: {}", answer.text);
    }
}

/// What is changed in the good config, and the words of the refusal.
#[track_caller]
fn changed_is_refused(from: &str, to: &str, words: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    refused(with_models(&GOOD.replace(from, to), &path("models")).as_bytes(), words);
}

#[test]
fn the_config_that_the_others_spoil_is_right() {
    let dir = TempDir::new().unwrap();
    let file = config_in(dir.path(), with_models(GOOD, &path("models")).as_bytes());
    Answer::of(&gantry(&["check", "-c", file.to_str().unwrap()])).has(0, &["is right"]);
}

#[test]
fn an_unreadable_config() {
    let dir = TempDir::new().unwrap();
    refused_file(dir.path(), &["the file cannot be read", "Is a directory"]);
    refused_file(&dir.path().join("none.yaml"), &["the file cannot be read", "No such file"]);
    refused(b"", &["the file is empty", "cameras and publish"]);
    refused(b"\xff\xfen\x00o\x00", &["UTF-16", "save it as UTF-8"]);
    refused(b"node: line-\xe4\n", &["1:", "UTF-8"]);
}

#[test]
fn a_half_written_config() {
    let whole = with_models(GOOD, &path("models"));
    let middle = whole.find(", detect:").unwrap();
    refused(&whole.as_bytes()[..middle], &["this is not YAML", "never closed"]);
    // Cut between two lines it is YAML, and something is missing.
    let before = whole.find("publish:").unwrap();
    refused(&whole.as_bytes()[..before], &["publish: results go nowhere", "stdout: true"]);
}

#[test]
fn wrong_types() {
    changed_is_refused("line-7", "[line-7]", &[":1:7: node:"]);
    changed_is_refused("backend: embedded", "threads: two", &[":3:31: devices[0].threads:", "two"]);
    changed_is_refused("stdout: true", "stdout: 7", &["publish.stdout:", "7"]);
    changed_is_refused("detect: [{model: line-parts}]", "detect: line-parts", &["cameras[0].detect:"]);
}

#[test]
fn unknown_keys() {
    changed_is_refused("detect:", "detects:", &["detects: unknown key", "did you mean detect?"]);
    changed_is_refused("node:", "nod:", &[":1:1: nod: unknown key", "did you mean node?"]);
}

#[test]
fn duplicate_ids() {
    let camera = "  - {id: press-1, source: 'test://pattern', detect: [{model: line-parts}]}\npublish";
    changed_is_refused(
        "publish",
        camera,
        &[":6:10: cameras[1].id: press-1 is already the id of cameras[0]", "give each camera its own"],
    );
    changed_is_refused(
        "embedded}]",
        "embedded}, {id: cpu0}]",
        &["devices[1].id: cpu0 is already the id of devices[0]", "give each device its own"],
    );
}

#[test]
fn a_url_without_a_host() {
    changed_is_refused(
        "test://pattern?size=320x240&rate=25",
        "rtsp:///stream1",
        &["cameras[0].source: rtsp:///stream1 has no host", "write an address such as rtsp://"],
    );
    changed_is_refused(
        "stdout: true",
        "mqtt: {broker: 'mqtts://'}",
        &["publish.mqtt.broker: mqtts:// has no host", "write an address such as mqtts://"],
    );
}

/// A directory of models with one of the repository's bundles in it: that directory, and the bundle.
fn models_with(name: &str, from: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let bundle = dir.path().join(name).join("1.0.0");
    copy_dir(&path(from).join(name).join("1.0.0"), &bundle);
    (dir, bundle)
}

/// `run`, `check` and `model verify` refuse the bundle with these words and 78.
#[track_caller]
fn bundle_is_refused(models: &Path, bundle: &Path, words: &[&str]) {
    let name = bundle.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let config = with_models(&GOOD.replace("model: line-parts", &format!("model: {name}")), models);
    let file = config_in(models, config.as_bytes());
    for command in ["run", "check"] {
        Answer::of(&gantry(&[command, "-c", file.to_str().unwrap()])).has(78, words);
    }
    let bundle = bundle.to_str().unwrap();
    Answer::of(&gantry(&["model", "verify", bundle])).has(78, words);
    let json = gantry(&["model", "verify", bundle, "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json["error"].as_str().unwrap().contains(words[0]), "{json}");
}

#[test]
fn a_model_with_a_wrong_hash() {
    let (models, bundle) = models_with("line-parts", "models");
    let onnx = bundle.join("factory_tiny.onnx");
    let mut bytes = fs::read(&onnx).unwrap();
    bytes[1_000_000] ^= 1;
    fs::write(&onnx, bytes).unwrap();
    bundle_is_refused(
        models.path(),
        &bundle,
        &["factory_tiny.onnx has the SHA-256", "`gantry model pack`", bundle.to_str().unwrap()],
    );
}

#[test]
fn a_truncated_onnx_file() {
    let (models, bundle) = models_with("line-parts", "models");
    let onnx = bundle.join("factory_tiny.onnx");
    let bytes = fs::read(&onnx).unwrap();
    fs::write(&onnx, &bytes[..500_000]).unwrap();
    bundle_is_refused(
        models.path(),
        &bundle,
        &["factory_tiny.onnx has 500000 bytes, but 1690984 are listed"],
    );
    let cure = ["factory_tiny.onnx is not a usable ONNX file: it is cut off", "export the model again"];
    Answer::of(&gantry(&["model", "pack", bundle.to_str().unwrap()])).has(78, &cure);
    Answer::of(&gantry(&["model", "inspect", onnx.to_str().unwrap()])).has(78, &cure);
}

#[test]
fn seventy_nine_labels_for_eighty_classes() {
    let (models, bundle) = models_with("coco", "tests/data/models");
    let labels = bundle.join("labels.txt");
    let text = fs::read_to_string(&labels).unwrap();
    fs::write(&labels, text.lines().take(79).collect::<Vec<_>>().join("\n")).unwrap();
    let words = ["labels.txt has 79 labels", "it needs 80 labels, not 79"];
    bundle_is_refused(models.path(), &bundle, &words);
    Answer::of(&gantry(&["model", "pack", bundle.to_str().unwrap()])).has(78, &words);
}

/// The good config with a second camera, `other`, run until `told` is in the log and `press-1` has published after that;
/// then its end at SIGTERM is clean. Gives the log.
fn goes_on_beside(source: &str, told: &str) -> String {
    let camera = format!("  - {{id: other, source: '{source}', detect: [{{model: line-parts}}]}}\npublish");
    let mut gantry = Running::start(&with_models(&GOOD.replace("publish", &camera), &path("models")));
    eventually(told, SOON, || gantry.log().contains(told));
    let before = gantry.lines().len();
    eventually("the good camera goes on", SOON, || gantry.lines().len() > before + 10);
    assert!(gantry.lines().iter().all(|event| event["camera"] == "press-1"));
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
    let log = gantry.log();
    assert!(!log.contains("panicked"), "{log}");
    log
}

fn detect(file: &Path, out: &Path) -> Answer {
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    Answer::of(&gantry(&["detect", file, "--model", "line-parts", "--backend", "embedded", "--out", out]))
}

#[test]
fn a_zero_byte_video() {
    let dir = TempDir::new().unwrap();
    let extensions: &[&str] = if cfg!(feature = "gstreamer") { &["y4m", "mp4", "avi"] } else { &["y4m"] };
    for extension in extensions {
        let file = dir.path().join(format!("zero.{extension}"));
        fs::write(&file, "").unwrap();
        let told = "cannot be opened: it is empty (0 bytes); was it copied or recorded to its end?";
        detect(&file, &dir.path().join("out")).has(75, &[file.to_str().unwrap(), told]);
        let log = goes_on_beside(&format!("file://{}", file.display()), told);
        assert!(log.contains("camera other: failed"), "{log}");
    }
}

/// A video of one grey level, of any size, as raw frames.
fn raw_video(file: &Path, width: usize, height: usize, frames: usize) {
    let mut bytes = format!("YUV4MPEG2 W{width} H{height} F25:1 C420jpeg\n").into_bytes();
    for _ in 0..frames {
        bytes.extend_from_slice(b"FRAME\n");
        let planes = width * height + 2 * width.div_ceil(2) * height.div_ceil(2);
        bytes.resize(bytes.len() + planes, 128);
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_video_of_odd_size() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("odd.y4m");
    raw_video(&file, 853, 479, 3);
    detect(&file, dir.path()).has(0, &["frame 3 at 0.080 s, 853x479:", "3 frames:"]);
    let drawn = image::open(dir.path().join("odd-000001.jpg")).unwrap();
    assert_eq!((drawn.width(), drawn.height()), (853, 479));
}

#[cfg(feature = "gstreamer")]
#[test]
fn a_compressed_video_of_odd_size() {
    if !crate::rig::has_program("ffmpeg") {
        return crate::rig::skip("a_compressed_video_of_odd_size", "ffmpeg is not installed");
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("odd.avi");
    let made = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-t", "0.2", "-i"])
        .arg(path("tests/data/belt.mp4"))
        .args(["-vf", "scale=853:479", "-c:v", "mjpeg", "-pix_fmt", "yuvj422p"])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    // The belt's parts are found in it as in the even one.
    detect(&file, dir.path()).has(0, &["frame 5 at 0.160 s, 853x479:", "washer", "defect", "nut"]);
    let drawn = image::open(dir.path().join("odd-000001.jpg")).unwrap();
    assert_eq!((drawn.width(), drawn.height()), (853, 479));
}

#[test]
fn a_picture_of_one_pixel() {
    let dir = TempDir::new().unwrap();
    for name in ["one.png", "one.jpg"] {
        let file = dir.path().join(name);
        image::RgbImage::from_pixel(1, 1, image::Rgb([200, 10, 10])).save(&file).unwrap();
        detect(&file, &dir.path().join("out")).has(0, &["1x1", "1 frame:"]);
        let drawn = image::open(dir.path().join("out/one.jpg")).unwrap();
        assert_eq!((drawn.width(), drawn.height()), (1, 1));
    }
}

#[test]
fn a_picture_that_was_cut_off() {
    let dir = TempDir::new().unwrap();
    for name in ["480x480.png", "640x360.jpg"] {
        let file = dir.path().join(name);
        let whole = fs::read(path("models/line-parts/1.0.0/golden").join(name)).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        detect(&file, &dir.path().join("out")).has(75, &[file.to_str().unwrap(), "cut off"]);
    }
}

#[test]
fn a_picture_that_is_an_html_page() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("snapshot.jpg");
    fs::write(&file, "<!DOCTYPE html><html><body>Log in</body></html>").unwrap();
    let told = "it is an HTML page, not a video or picture; was it downloaded without logging in?";
    detect(&file, &dir.path().join("out")).has(75, &[file.to_str().unwrap(), told]);
    goes_on_beside(&format!("file://{}", file.display()), told);
}

#[cfg(feature = "gstreamer")]
#[test]
#[expect(clippy::disallowed_methods, reason = "a web server that ends with the test process")]
fn a_camera_that_is_an_html_page() {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // As a web server does: whatever is asked, the answer is a page.
            drop(stream.read(&mut [0; 1024]));
            let page = "<html><body>Welcome to your camera</body></html>";
            drop(write!(
                stream,
                "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            ));
        }
    });
    let told = format!("127.0.0.1:{port} is a web server and answers with an HTML page");
    let log = goes_on_beside(&format!("rtsp://127.0.0.1:{port}/index.html?password=hunter2"), &told);
    assert!(!log.contains("hunter2"), "a password after `?` is not shown: {log}");
    assert!(log.contains("use the camera's RTSP address"), "{log}");
    assert!(log.contains("is tried again until it comes back"), "{log}");
    assert!(log.contains("camera other: failed"), "{log}");
}

#[test]
fn more_memory_than_the_machine_has() {
    let dir = TempDir::new().unwrap();
    // 256 MiB a picture, several pictures a camera, 400 cameras.
    let camera = |n: u32| {
        format!(
            "  - {{id: c{n}, source: 'test://pattern?size=8192x8192&format=BGRA', detect: [{{model: line-parts}}]}}\n"
        )
    };
    let cameras: String = (0..400).map(camera).collect();
    let (before, rest) = GOOD.split_once("  - {id: press-1").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    let text = with_models(&format!("{before}{cameras}{after}"), &path("models"));
    let file = config_in(dir.path(), text.as_bytes());
    Answer::of(&gantry(&["run", "-c", file.to_str().unwrap()])).has(
        75,
        &[
            "frames and batches need",
            "of memory and the machine has",
            "the largest: the pictures of c0 ",
            "smaller",
        ],
    );
}
