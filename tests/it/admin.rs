//! The admin HTTP server of a real daemon: what it shows, that it agrees with everything else, and that nobody can harm
//! the daemon through it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, SOON, eventually, pause};

/// An answer over HTTP.
struct Answer {
    code: u16,
    head: String,
    body: String,
}

fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // A server that has heard enough closes while we still talk.
    drop(stream.write_all(request));
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { code, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: gantry\r\n\r\n").as_bytes())
}

fn config(fake: &str, cameras: &str, listen: &str) -> String {
    format!(
        "
node: line-7
models: {{dir: $ROOT/models}}
devices: [{{id: fake0, backend: fake, fake: {{{fake}}}}}]
cameras: [{cameras}]
publish: {{detections: every_frame, stdout: true}}
admin: {{listen: '{listen}'}}
"
    )
}

fn pattern(id: &str) -> String {
    format!("{{id: {id}, source: 'test://pattern?size=320x240&rate=50', detect: [{{model: line-parts}}]}}")
}

/// A daemon on any free port, and that port.
fn start(config: &str) -> (Running, SocketAddr) {
    let gantry = Running::start(config);
    let mut address = None;
    eventually("it listens", SOON, || {
        let log = gantry.log();
        let told =
            log.lines().find_map(|line| line.split("http://").nth(1)?.split(" has").next()?.parse().ok());
        address = told;
        address.is_some()
    });
    (gantry, address.unwrap())
}

fn status(address: SocketAddr) -> Value {
    serde_json::from_str(&get(address, "/status").body).unwrap()
}

/// Reads the text form of metrics as strictly as Prometheus does, and somewhat more: each family has HELP and TYPE and its
/// samples together, counters end in `_total`, no series is there twice, histograms add up.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let (mut family, mut kind, mut last_bucket) = (String::new(), String::new(), None);
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(words.ends_with('.') && families.insert(name.to_owned()), "{line}");
            assert!(
                name.starts_with("gantry_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{line}"
            );
            (family, kind) = (name.to_owned(), String::new());
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, word) = typed.split_once(' ').unwrap();
            assert!(name == family && kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&word), "{line}");
            assert_eq!(word == "counter", name.ends_with("_total"), "{line}");
            word.clone_into(&mut kind);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let (name, labels) = series.split_once('{').map_or((series, ""), |(name, rest)| {
            (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}")))
        });
        let mut rest = labels;
        while !rest.is_empty() {
            let (key, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
            let (value, after) = quoted.split_once('"').unwrap_or_else(|| panic!("{line}"));
            assert!(!value.is_empty(), "{line}");
            assert!(after.is_empty() || after.starts_with(',') && after.len() > 1, "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} after {family}"));
        match (kind.as_str(), suffix) {
            ("counter" | "gauge", "") | ("histogram", "_sum") => {}
            ("histogram", "_bucket") => {
                assert!(last_bucket.is_none_or(|before| before <= value), "{line}: buckets add up");
                last_bucket = Some(value);
            }
            ("histogram", "_count") => {
                assert_eq!(last_bucket.take(), Some(value), "{line}: +Inf is the last");
            }
            _ => panic!("{line} in a {kind}"),
        }
        assert_eq!(samples.insert(series.to_owned(), value), None, "{line} is there twice");
    }
    samples
}

#[test]
fn every_path_answers_and_the_report_fits_its_schema() {
    let (mut gantry, address) = start(&config("run_time: 1ms", &pattern("press-1"), "127.0.0.1:0"));
    eventually("it is ready", SOON, || get(address, "/ready").code == 200);
    eventually("events come", SOON, || gantry.lines().len() > 20);
    let live = get(address, "/live");
    assert_eq!((live.code, live.body.as_str()), (200, "live\n"));
    assert_eq!(get(address, "/ready").body, "ready\n");
    let answer = get(address, "/status");
    assert!(answer.code == 200 && answer.head.contains("content-type: application/json"), "{}", answer.head);
    let report: Value = serde_json::from_str(&answer.body).unwrap();
    let schema = include_str!("../../config/schema/gantry.report.schema.json");
    let schema = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(&report).map(|error| format!("{error}")).collect();
    assert!(errors.is_empty(), "{errors:#?} in {report:#}");
    assert_eq!(report["status"], "1 of 1 cameras live");
    assert_eq!(report["cameras"][0]["state"], "live");
    assert_eq!(report["devices"][0]["state"], "ready");
    let route = &report["routes"][0];
    for over in [route, &route["minute"]] {
        assert!(over["stage_ms"]["infer"]["p50"].as_f64().unwrap() >= 0.99, "{over:#}");
        assert!(over["age_ms"]["p99"].is_f64() && over["publish_ms"]["max"].is_f64(), "{over:#}");
    }
    assert!(report["devices"][0]["models"][0]["batch_sizes"][0]["batches"].as_u64().unwrap() > 0);
    let threads = report["process"]["threads"].as_array().unwrap();
    let kinds: BTreeSet<_> = threads.iter().map(|threads| threads["kind"].as_str().unwrap()).collect();
    assert!(kinds.is_superset(&["device", "io", "main", "output", "signals", "source"].into()), "{kinds:?}");
    let unknown = get(address, "/");
    assert_eq!(unknown.code, 404);
    for path in ["/metrics", "/live", "/ready", "/status"] {
        assert!(unknown.body.contains(path), "{}", unknown.body);
        let posted =
            ask(address, format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").as_bytes());
        assert!(posted.code == 405 && posted.head.contains("allow: get"), "{}", posted.head);
        let head = ask(address, format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!((head.code, head.body.as_str()), (200, ""));
    }
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
    assert!(!gantry.log().contains("abandoned"), "{}", gantry.log());
    assert!(TcpStream::connect(address).is_err(), "nothing listens any more");
}

#[test]
fn metrics_are_well_formed_and_agree_with_the_report_and_with_the_summary_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = crate::support::raw_frames(dir.path(), 40);
    let belt = format!("{{id: belt, source: 'file://{file}', detect: [{{model: line-parts}}]}}");
    let cameras = format!("{}, {belt}", pattern("press-1"));
    let (mut gantry, address) = start(&config("run_time: 1ms", &cameras, "127.0.0.1:0"));
    let state = r#"gantry_camera_state{camera="belt",state="ended"}"#;
    eventually("the file has ended", SOON, || parse(&get(address, "/metrics").body)[state] == 1.0);
    let before = status(address);
    let answer = get(address, "/metrics");
    let after = status(address);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    let metrics = parse(&answer.body);
    for (index, camera) in ["press-1", "belt"].into_iter().enumerate() {
        let labels = format!(r#"{{camera="{camera}",model="line-parts"}}"#);
        for (metric, field) in [("offered", "offered"), ("published", "published"), ("empty", "empty")] {
            let value = |report: &Value| report["routes"][index][field].as_f64().unwrap();
            let seen = metrics[&format!("gantry_frames_{metric}_total{labels}")];
            assert!((value(&before)..=value(&after)).contains(&seen), "{camera} {field}: {seen}");
        }
        assert_eq!(
            metrics[&format!("gantry_age_seconds_count{labels}")] > 0.0,
            camera == "press-1",
            "{camera}"
        );
        let infer = format!(
            r#"gantry_stage_seconds_bucket{{camera="{camera}",model="line-parts",stage="infer",le="0.0005"}}"#
        );
        assert_eq!(metrics[&infer], 0.0, "the fake device takes 1 ms");
    }
    // The batches of one model for two cameras: two buffers of two frames of 3 x 256 x 256 floats.
    let made = metrics[r#"gantry_memory_made_bytes{kind="mapped"}"#];
    assert!(made >= f64::from(2 * 2 * 3 * 256 * 256 * 4), "{made}");
    let lock = ["all", "refused", "off"]
        .map(|state| metrics[&format!(r#"gantry_memory_lock_state{{state="{state}"}}"#)]);
    assert_eq!(lock.iter().sum::<f64>(), 1.0, "{lock:?}");
    assert!(
        metrics.keys().any(|name| name.starts_with(r#"gantry_thread_place_info{kind="device",place="CPUs "#))
    );
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
    let log = gantry.log();
    let line = log.lines().rfind(|line| line.contains("belt → line-parts:")).unwrap();
    let of = |metric: &str| {
        metrics[&format!(r#"gantry_frames_{metric}_total{{camera="belt",model="line-parts"}}"#)]
    };
    let (offered, published, empty) = (of("offered"), of("published"), of("empty"));
    assert!(
        line.contains(&format!(
            "belt → line-parts: {offered} frames = {published} published + {empty} empty"
        )),
        "{line}"
    );
}

#[test]
fn a_device_that_hangs_is_named_and_makes_the_daemon_not_live() {
    let (gantry, address) =
        start(&config("run_time: 1ms, hang_after: 20", &pattern("press-1"), "127.0.0.1:0"));
    eventually("it is stuck", SOON, || get(address, "/live").code == 503);
    let live = get(address, "/live").body;
    assert!(
        live.starts_with("dev/fake0: no progress for ") && live.ends_with(" s with work waiting\n"),
        "{live}"
    );
    let report = status(address);
    assert_eq!(report["stuck"][0]["thread"], "dev/fake0");
    assert_eq!(parse(&get(address, "/metrics").body)["gantry_threads_stuck"], 1.0);
    drop(gantry);
}

#[test]
fn a_device_that_is_lost_makes_the_daemon_not_ready_and_says_why() {
    let (_gantry, address) =
        start(&config("run_time: 1ms, fail_after: 20", &pattern("press-1"), "127.0.0.1:0"));
    let mut words = String::new();
    eventually("the device is lost", SOON, || {
        let ready = get(address, "/ready");
        words = ready.body;
        ready.code == 503 && words.contains("was lost")
    });
    assert!(words.contains("device fake0 was lost: "), "{words}");
}

#[cfg(feature = "gstreamer")]
#[test]
fn it_is_not_ready_before_every_camera_was_tried_and_no_password_is_shown() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let camera = format!(
        "{{id: press-1, source: 'rtsp://viewer:hunter2@{}/cam', detect: [{{model: line-parts}}]}}",
        silent.local_addr().unwrap()
    );
    let (_gantry, address) = start(&config("run_time: 1ms", &camera, "127.0.0.1:0"));
    let (_connection, _) = silent.accept().unwrap();
    let ready = get(address, "/ready");
    assert_eq!(ready.code, 503);
    assert!(ready.body.contains("camera press-1 is being opened for the first time"), "{}", ready.body);
    for path in ["/status", "/metrics", "/live"] {
        let answer = get(address, path);
        assert!(answer.code == 200 && !answer.body.contains("hunter2"), "{}", answer.body);
    }
}

#[test]
fn silent_slow_large_and_senseless_clients_do_no_harm() {
    let (gantry, address) = start(&config("run_time: 1ms", &pattern("press-1"), "127.0.0.1:0"));
    eventually("events come", SOON, || gantry.lines().len() > 5);
    for request in [
        format!("GET /live HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(100_000)),
        format!("GET /live HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(500)),
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100_000)),
        "\u{0}\u{1}\u{2}\r\n\r\n".to_owned(),
        "GET /live HTTP/9.9\r\n\r\n".to_owned(),
    ] {
        let answer = ask(address, request.as_bytes());
        assert!((400..=431).contains(&answer.code), "{}", answer.head);
    }
    // Half a request from each of more clients than are served at a time, and then one who knows what it wants.
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"GET /status HT").unwrap();
            client
        })
        .collect();
    let asked = Instant::now();
    assert_eq!(get(address, "/live").code, 200);
    eprintln!("served after {:.1} s among {} silent clients", asked.elapsed().as_secs_f64(), clients.len());
    let before = gantry.lines().len();
    pause(Duration::from_millis(200));
    eventually("frames went on", SOON, || gantry.lines().len() > before);
}

#[test]
fn an_address_that_is_taken_ends_a_start_that_asked_for_it_and_no_other() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut gantry = Running::start(&config("run_time: 1ms", &pattern("press-1"), &address.to_string()));
    assert_eq!(gantry.wait(SOON).code(), Some(75));
    let why = format!("admin.listen: {address} cannot be listened on: another program does already");
    assert!(gantry.log().contains(&why), "{}", gantry.log());
    // Nobody asked for the usual one. If it cannot be bound here, somebody has it already.
    let _usual = TcpListener::bind((Ipv4Addr::LOCALHOST, 9464));
    let usual = config("run_time: 1ms", &pattern("press-1"), "").replace("{listen: ''}", "");
    let gantry = Running::start(&usual);
    eventually("events come", SOON, || gantry.lines().len() > 5);
    assert!(gantry.log().contains("going on without HTTP"), "{}", gantry.log());
}

#[test]
fn a_check_does_not_listen() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gantry.yaml");
    let listen = taken.local_addr().unwrap().to_string();
    let text = config("run_time: 1ms", &pattern("press-1"), &listen);
    std::fs::write(&file, text.replace("$ROOT", crate::support::root().to_str().unwrap())).unwrap();
    let output = crate::support::gantry(&["check", "-c", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_camera_that_is_switched_off_is_told_as_that_and_costs_nothing() {
    let off = pattern("press-2").replace("source", "enabled: false, source");
    let (gantry, address) = start(&config("", &format!("{}, {off}", pattern("press-1")), "127.0.0.1:0"));
    eventually("it is ready", SOON, || get(address, "/ready").code == 200);
    eventually("frames come", SOON, || status(address)["cameras"][0]["frames"].as_u64() > Some(10));
    let report = status(address);
    assert_eq!(report["cameras"][1]["state"], "disabled");
    assert_eq!(report["cameras"][1]["frame_age_ms"], Value::Null);
    assert!(report["cameras"][0]["frame_age_ms"].as_f64().unwrap() < 10_000.0);
    assert_eq!(report["routes"].as_array().unwrap().len(), 1);
    assert_eq!(report["status"], "1 of 1 cameras live, 1 disabled");
    let metrics = parse(&get(address, "/metrics").body);
    assert_eq!(metrics[r#"gantry_camera_state{camera="press-2",state="disabled"}"#].to_string(), "1");
    assert!(!metrics.contains_key(r#"gantry_camera_frame_age_seconds{camera="press-2"}"#));
    drop(gantry);
}
