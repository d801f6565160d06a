//! User names and passwords of cameras: every odd one opens its camera, wrong ones are told apart, and none is shown anywhere.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use gantry::secret::Secret;
use gantry::source::{Address, CameraConfig};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Camera, PATIENCE, camera};
use crate::broker::{Broker, BrokerOptions};
use crate::rig::{BadCam, RtspServer, film, skip};
use crate::support::{Running, eventually, pause};

/// Each has a part by which it is found wherever it should not be.
const PASSWORDS: [&str; 12] = [
    "hunter@2",
    "hunter#2",
    "hunter%2",
    "%41hunter/",
    ":hunter:",
    "hunter?2",
    "&hunter",
    "hunter+2",
    "hunteré2",
    "^hunter^",
    "hunter!2",
    "hunter 2 ",
];

/// A password of 200 characters.
fn long() -> String {
    "hunter-2@#".repeat(20)
}

/// All passwords; user `user3` has the fourth.
fn passwords() -> Vec<String> {
    PASSWORDS.into_iter().map(str::to_owned).chain([long()]).collect()
}

/// RFC 4648, as the basic scheme has it, without the last characters, which depend on what follows.
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let word = |three: &[u8]| three.iter().fold(0, |word, byte| word << 8 | usize::from(*byte));
    let letters = |word: usize| [18, 12, 6, 0].map(|shift| char::from(LETTERS[word >> shift & 63]));
    text.as_bytes().chunks_exact(3).flat_map(|three| letters(word(three))).collect()
}

/// Nothing in `text` is a password of ours or can be made one.
fn shows_none(what: &str, text: &str) {
    let needles =
        passwords().into_iter().enumerate().map(|(n, password)| base64(&format!("user{n}:{password}")));
    for needle in needles.chain(["hunter".to_owned()]) {
        if let Some(line) = text.lines().find(|line| line.contains(&needle)) {
            panic!("{what} shows {needle}: {line}");
        }
    }
}

/// A server that lets in `user0`, `user1`, … with their passwords.
fn server(scheme: &str, options: &[&str]) -> Result<RtspServer, String> {
    let logins = passwords().into_iter().enumerate().map(|(n, password)| (format!("user{n}"), password));
    let logins: Vec<_> = logins.flat_map(|(user, password)| ["--login".to_owned(), user, password]).collect();
    let logins = logins.iter().map(String::as_str);
    let options: Vec<_> = logins.chain(["--auth", scheme]).chain(options.iter().copied()).collect();
    RtspServer::start(&options)
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: gantry\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn admin(gantry: &Running) -> SocketAddr {
    let mut address = None;
    eventually("it listens", PATIENCE, || {
        let log = gantry.log();
        address =
            log.lines().find_map(|line| line.split("http://").nth(1)?.split(" has").next()?.parse().ok());
        address.is_some()
    });
    address.unwrap()
}

/// How many cameras have become live.
fn live(log: &str) -> usize {
    log.lines().filter(|line| line.contains("live: 256x128")).count()
}

/// All ways to keep a password, for all passwords, at once.
fn every_password_opens(scheme: &str) {
    const ONE_OF_EACH: usize = 3;
    let test = format!("every_password_opens_its_camera_however_it_is_kept_and_is_shown_nowhere ({scheme})");
    let options = ["--shared", "--size", "256x128", "--fps", "5", "--path", "/cam1"];
    let server = match server(scheme, &options) {
        Ok(server) => server,
        Err(reason) => return skip(&test, &reason),
    };
    let broker = Broker::start(&test, BrokerOptions::default());
    let (folder, url) = (tempfile::tempdir().unwrap(), server.url("/cam1"));
    let (mut cameras, mut variables) = (String::new(), Vec::new());
    for (n, password) in passwords().into_iter().enumerate() {
        let file = folder.path().join(n.to_string());
        // The newline that an editor adds is no part of it.
        std::fs::write(&file, format!("{password}\n")).unwrap();
        let encoded = utf8_percent_encode(&password, NON_ALPHANUMERIC);
        let inside = url.as_str().replace("://", &format!("://user{n}:{encoded}@"));
        let variable = format!("PASSWORD_{n}");
        for (kept, keys) in [
            ("file", format!("source: '{url}', username: user{n}, password_file: '{}'", file.display())),
            ("url", format!("source: '{inside}'")),
            ("variable", format!("source: '{url}', username: user{n}, password_env: {variable}")),
        ] {
            writeln!(cameras, "  - {{id: {kept}{n}, {keys}, detect: [{{model: line-parts, rate_max: 1}}]}}")
                .unwrap();
        }
        variables.push((variable, password));
    }
    let mqtt = broker
        .as_ref()
        .map_or(String::new(), |broker| format!(", mqtt: {{broker: 'mqtt://127.0.0.1:{}'}}", broker.port));
    let config = format!(
        "devices: [{{id: fake0, backend: fake}}]\nmodels: {{dir: $ROOT/models}}\ncameras:\n{cameras}\
         publish: {{detections: every_frame, stdout: true{mqtt}}}\nadmin: {{listen: '127.0.0.1:0'}}\n"
    );
    let subscriber = broker.as_ref().map(Broker::subscribe);
    let mut environment: Vec<_> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    environment.push(("GANTRY_LOG", "trace"));
    let gantry = Running::start_with(&config, &environment);
    let address = admin(&gantry);
    let wanted = passwords().len() * ONE_OF_EACH;
    eventually("all cameras are live", PATIENCE * 2, || {
        live(&gantry.log()) == wanted || gantry.log().contains("(401)")
    });
    let log = gantry.log();
    assert!(!log.contains("(401)"), "{log}");
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log is a long one");
    shows_none("the log", &log);
    for path in ["/status", "/metrics", "/ready"] {
        shows_none(path, &get(address, path));
    }
    shows_none("config print", &gantry.config_print(&environment));
    shows_none("standard output", &gantry.output());
    if let Some(subscriber) = subscriber {
        let mut text = String::new();
        for _ in 0..wanted {
            let received = subscriber.next();
            writeln!(text, "{} {}", received.topic, received.payload).unwrap();
        }
        shows_none("MQTT", &text);
    }
}

#[test]
fn every_password_opens_its_camera_by_basic_and_is_shown_nowhere() {
    every_password_opens("basic");
}

#[test]
fn every_password_opens_its_camera_by_digest_and_is_shown_nowhere() {
    every_password_opens("digest");
}

#[test]
fn gstreamers_own_log_shows_no_password() {
    const TEST: &str = "gstreamers_own_log_shows_no_password";
    let servers = ["basic", "digest"]
        .map(|scheme| server(scheme, &["--size", "256x128", "--fps", "5", "--path", "/cam1"]));
    let mut cameras = String::new();
    for (scheme, server) in ["basic", "digest"].into_iter().zip(&servers) {
        let server = match server {
            Ok(server) => server,
            Err(reason) => return skip(TEST, reason),
        };
        for n in [0, 3, 8, 12] {
            let encoded = utf8_percent_encode(&passwords()[n], NON_ALPHANUMERIC).to_string();
            let url = server.url("/cam1").as_str().replace("://", &format!("://user{n}:{encoded}@"));
            writeln!(cameras, "  - {{id: {scheme}{n}, source: '{url}', detect: [{{model: line-parts}}]}}")
                .unwrap();
        }
        for (id, more) in [
            ("query", "/cam1?user=a&password=hunter2"),
            ("path", "/user=admin_password=hunter2_channel=1.sdp"),
            ("wrong", "/cam1"),
        ] {
            let url = format!("rtsp://user1:hunter9@127.0.0.1:{}{more}", server.port());
            writeln!(cameras, "  - {{id: {scheme}-{id}, source: '{url}', detect: [{{model: line-parts}}]}}")
                .unwrap();
        }
    }
    let config = format!(
        "devices: [{{id: fake0, backend: fake}}]\nmodels: {{dir: $ROOT/models}}\ncameras:\n{cameras}\
         publish: {{detections: every_frame, stdout: true}}\n"
    );
    let gantry = Running::start_with(&config, &[("GST_DEBUG", "6"), ("GANTRY_LOG", "trace")]);
    eventually("all that can be are live, and the others are told", PATIENCE * 2, || {
        let log = gantry.log();
        live(&log) >= 8 && log.matches("or the password (401)").count() >= 6
    });
    pause(std::time::Duration::from_secs(1));
    let log = gantry.log();
    assert!(log.contains("rtspsrc") && log.contains("gst_rtspsrc_"), "GStreamer's own log is there");
    shows_none("GStreamer's log", &log);
    let answers: Vec<_> = log.lines().filter(|line| line.contains("response=\"")).collect();
    assert!(answers.is_empty(), "{answers:?}");
}

#[test]
fn wrong_missing_and_impossible_logins_are_told_apart() {
    const TEST: &str = "wrong_missing_and_impossible_logins_are_told_apart";
    let server = match server("digest", &["--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let film_file = folder.path().join("film.h264");
    if let Err(reason) = film(&film_file, &[]) {
        return skip(TEST, &reason);
    }
    let modern =
        BadCam::start(&[&film_file], &["--user", "user1", "--password", "hunter#2", "--auth", "sha256"]);
    let login = |url: url::Url, user: Option<&str>, password: Option<&str>| CameraConfig {
        username: user.map(str::to_owned),
        password: password.map(|password| Secret::new(password.to_owned())),
        ..camera(Address::Rtsp(url))
    };
    for (config, expected) in [
        (login(server.url("/cam1"), None, None), "the camera wants a user name and a password (401)"),
        (
            login(server.url("/cam1"), Some("user1"), None),
            "the camera wants a password for the user \"user1\" (401)",
        ),
        (
            login(server.url("/cam1"), Some("user1"), Some("hunter9")),
            "the camera refuses the user \"user1\" or the password (401)",
        ),
        (
            login(modern.url(), Some("user1"), Some("hunter#2")),
            "the camera wants a login by Digest SHA-256 (401), which GStreamer's RTSP cannot do",
        ),
    ] {
        let mut camera = Camera::start(config);
        let reason = camera.failure();
        assert!(reason.contains(expected), "{expected}: {reason}");
        shows_none("the reason", &reason);
        camera.stop();
    }
}
