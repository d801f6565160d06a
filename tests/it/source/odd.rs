//! RTSP cameras that break the rules, each as real ones do: their pictures come all the same.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry::frame::{Frame, FrameRef};
use gantry::source::state::CameraState;
use gantry::source::{Address, CameraConfig, Transport};
use gantry::telemetry::SkipReason;

use super::{Camera, PATIENCE, camera};
use crate::broker::make_certificates;
use crate::rig::{BadCam, RtspServer, Stamp, film, skip};
use crate::support::{Running, eventually};

/// Pictures of a film, all of them stamped 1, 2, 3, …
const PICTURES: u32 = 45;

/// The films that the cameras of a test show.
struct Films {
    folder: tempfile::TempDir,
}

impl Films {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn make(&self, name: &str, arguments: &[&str]) -> Result<PathBuf, String> {
        let path = self.folder.path().join(name);
        film(&path, &[&["--pictures", &PICTURES.to_string()], arguments].concat()).map(|()| path)
    }
}

/// The film that most of them show, or the end of a test that cannot have one.
macro_rules! film {
    ($test:expr, $films:expr, $($argument:literal),*) => {
        match $films.make(concat!("film", $($argument),*), &[$($argument),*]) {
            Ok(film) => film,
            Err(reason) => return skip($test, &reason),
        }
    };
}

/// What was seen of a camera.
struct Watched {
    what: String,
    camera: Camera,
    begun: Instant,
    /// After how long it came, when it was ready, and when its picture was taken.
    first: Option<(Duration, Instant, Instant)>,
    /// Its number, and the same.
    last: Option<(u64, Instant, Instant)>,
    gap: Duration,
    stamps: Vec<Stamp>,
    unstamped: usize,
    sizes: BTreeSet<(u32, u32)>,
}

impl Watched {
    fn start(what: impl Into<String>, config: CameraConfig) -> Self {
        Self {
            what: what.into(),
            camera: Camera::start(config),
            begun: Instant::now(),
            first: None,
            last: None,
            gap: Duration::ZERO,
            stamps: Vec::new(),
            unstamped: 0,
            sizes: BTreeSet::new(),
        }
    }

    /// Takes what is there, if anything is.
    fn look(&mut self) {
        if let Some(frame) = self.camera.mailbox.take() {
            self.note(&frame);
        }
    }

    fn note(&mut self, frame: &FrameRef) {
        let times = frame.times;
        assert!(times.received <= times.ready, "{self}");
        let taken = times.captured.at;
        self.first.get_or_insert((self.begun.elapsed(), times.ready, taken));
        if let Some((id, ready, _)) = self.last.replace((frame.id, times.ready, taken)) {
            assert!(frame.id > id && times.ready >= ready, "{self}");
            self.gap = self.gap.max(times.ready - ready);
        }
        self.sizes.insert((frame.geometry().width, frame.geometry().height));
        match stamp(frame) {
            Some(stamp) => self.stamps.push(stamp),
            None => self.unstamped += 1,
        }
    }

    fn has_reconnected(&self) -> bool {
        self.camera.states().iter().any(|state| *state != CameraState::Live)
    }

    /// How many frames came, taken or not.
    fn frames(&self) -> u64 {
        self.camera.telemetry.frames.get()
    }

    /// Each picture came once, in order, readable, at the time that its own clock says, and nothing was ever wrong.
    fn is_whole(&self) {
        assert_eq!(self.camera.states(), [CameraState::Live], "{self}");
        assert_eq!(self.unstamped, 0, "{self}");
        for pair in self.stamps.windows(2) {
            let step = (pair[1].number + PICTURES - pair[0].number) % PICTURES;
            assert!((1..PICTURES / 2).contains(&step), "{} after {}: {self}", pair[1].number, pair[0].number);
        }
        let ((_, begun, first), (_, ended, last)) = (self.first.unwrap(), self.last.unwrap());
        // Whatever its stream's own time does, it is known when a picture was taken.
        let (clock, taken) = (ended - begun, last.saturating_duration_since(first));
        assert!(clock.abs_diff(taken) < Duration::from_secs(2), "{clock:?} {taken:?}: {self}");
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, taken, unstamped) = (self.frames(), self.stamps.len(), self.unstamped);
        let first = self.first.map_or(Duration::MAX, |(after, ..)| after).as_secs_f64();
        let gap = self.gap.as_secs_f64();
        write!(
            f,
            "{}: {frames} frames, {taken} read, {unstamped} unreadable, first after {first:.2} s, ",
            self.what
        )?;
        write!(f, "longest gap {gap:.2} s, {:?}, {:?}", self.sizes, self.camera.states())
    }
}

fn stamp(frame: &Frame) -> Option<Stamp> {
    let geometry = frame.geometry();
    Stamp::read(frame.plane(0), geometry.planes[0].stride, usize::try_from(geometry.width).unwrap())
}

/// The rules are broken every other second, and some of that looks like a loss: what is whole is seen by the stamps.
fn rtsp(url: url::Url) -> CameraConfig {
    CameraConfig { damaged_max: 1.0, ..camera(Address::Rtsp(url)) }
}

/// Watches all of them until each has delivered so many frames.
fn watch(watched: &mut [Watched], frames: u64) {
    eventually("enough frames of each", PATIENCE * 2, || {
        watched.iter_mut().for_each(Watched::look);
        watched.iter().all(|watched| watched.frames() >= frames)
            || watched.iter().any(|watched| watched.begun.elapsed() > PATIENCE)
    });
    for watched in watched {
        eprintln!("{watched}");
        watched.camera.stop();
    }
}

#[test]
fn streams_that_break_the_rules_come_whole_and_without_a_break() {
    const TEST: &str = "streams_that_break_the_rules_come_whole_and_without_a_break";
    let films = Films::new();
    let (film, sliced) = (film!(TEST, films,), film!(TEST, films, "--slices", "8"));
    let cases = [
        "",
        "--sdp-no-o-line",
        "--sdp-trailing-blank",
        "--sdp-no-o-line --sdp-trailing-blank",
        "--sprop none",
        "--sprop garbage",
        "--sprop cut",
        "--metadata-track",
        "--audio-track",
        "--audio-track --metadata-track --extra-first",
        "--foreign-ssrc header",
        "--foreign-ssrc midway",
        "--junk channel",
        "--seq-jump 50",
        "--seq-jump 5000",
        "--seq-jump -5000",
        "--seq-jump -500",
        "--ts-jump 10",
        "--ts-jump -10",
        "--ts-jump 3600",
        "--sr-step 30",
        "--sr-step -30",
        "--sr-skew 86400",
        "--sei-marker",
        "--twice",
        "slices",
    ];
    let start = |case: &&str| {
        let (film, options) = if *case == "slices" { (&sliced, "") } else { (&film, *case) };
        let options: Vec<_> = options.split_whitespace().chain(["--event-every", "25"]).collect();
        let server = BadCam::start(&[film], &options);
        let watched = Watched::start(*case, rtsp(server.url()));
        (server, watched)
    };
    let (servers, mut watched): (Vec<_>, Vec<_>) = cases.iter().map(start).unzip();
    // Two events of each.
    watch(&mut watched, 70);
    drop(servers);
    for watched in &watched {
        watched.is_whole();
        // One encoded picture makes one frame, or one that is skipped since some before it seem to be lost.
        let (encoded, counts) = (watched.camera.telemetry.encoded.get(), &watched.camera.telemetry);
        let skipped = counts.skips(SkipReason::AfterLoss) + counts.skips(SkipReason::Damaged);
        let frames = watched.frames() + skipped;
        assert!((frames..frames + 5).contains(&encoded), "{encoded} encoded, {skipped} skipped: {watched}");
    }
}

/// Who speaks first in such a stream may be the stranger, whose packets are no video: then it is opened once more.
#[test]
fn a_stranger_in_a_cameras_stream_is_not_listened_to() {
    const TEST: &str = "a_stranger_in_a_cameras_stream_is_not_listened_to";
    let films = Films::new();
    let film = film!(TEST, films,);
    let server = BadCam::start(&[&film], &["--foreign-ssrc", "mixed"]);
    let mut watched = [Watched::start("mixed", rtsp(server.url()))];
    watch(&mut watched, 90);
    let [watched] = &watched;
    assert_eq!(watched.camera.states().last(), Some(&CameraState::Live), "{watched}");
    assert_eq!((watched.unstamped, watched.camera.telemetry.connects.get()), (0, 1), "{watched}");
}

#[test]
fn a_camera_that_goes_on_as_another_sender_is_followed_without_a_break() {
    const TEST: &str = "a_camera_that_goes_on_as_another_sender_is_followed_without_a_break";
    let films = Films::new();
    let film = film!(TEST, films,);
    let server = BadCam::start(&[&film], &["--foreign-ssrc", "change", "--event-every", "40"]);
    let mut watched = [Watched::start("change", rtsp(server.url()))];
    watch(&mut watched, 130);
    let [watched] = &watched;
    assert_eq!(watched.camera.states(), [CameraState::Live], "{watched}");
    assert_eq!(watched.unstamped, 0, "{watched}");
}

#[test]
fn a_picture_of_another_size_in_the_same_stream_and_after_a_reconnect_comes_whole() {
    const TEST: &str = "a_picture_of_another_size_in_the_same_stream_and_after_a_reconnect_comes_whole";
    let films = Films::new();
    let (large, small) = (film!(TEST, films,), film!(TEST, films, "--size", "320x240"));
    let sizes = BTreeSet::from([(640, 480), (320, 240)]);
    let same = BadCam::start(&[&large, &small], &["--resize", "--event-every", "25"]);
    let next = BadCam::start(&[&large, &small], &["--stop-after", "25"]);
    let config = |server: &BadCam| CameraConfig { stale_after: Duration::from_secs(1), ..rtsp(server.url()) };
    let mut watched = [
        Watched::start("in the same stream", config(&same)),
        Watched::start("after a reconnect", config(&next)),
    ];
    watch(&mut watched, 70);
    for watched in &watched {
        assert_eq!((&watched.sizes, watched.unstamped), (&sizes, 0), "{watched}");
    }
    assert_eq!(watched[0].camera.states(), [CameraState::Live], "{}", watched[0]);
    assert!(watched[1].has_reconnected(), "{}", watched[1]);
}

#[test]
fn every_codec_changes_its_size_in_the_same_stream() {
    const TEST: &str = "every_codec_changes_its_size_in_the_same_stream";
    let paths = ["h264", "h265", "mjpeg"];
    let options =
        paths.map(|codec| ["--path".to_owned(), format!("/{codec}"), "--codec".to_owned(), codec.to_owned()]);
    let options: Vec<_> =
        ["--fps", "10"].into_iter().chain(options.iter().flatten().map(String::as_str)).collect();
    let server = match RtspServer::start(&options) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let mut watched = paths.map(|codec| Watched::start(codec, rtsp(server.url(&format!("/{codec}")))));
    let see = |watched: &mut [Watched], size| {
        eventually("each has the size", PATIENCE, || {
            watched.iter_mut().for_each(Watched::look);
            watched.iter().all(|watched| watched.sizes.contains(&size))
        });
    };
    see(&mut watched, (640, 480));
    for codec in paths {
        server.tell(&format!("size /{codec} 320x240"));
    }
    see(&mut watched, (320, 240));
    for mut watched in watched {
        eprintln!("{watched}");
        assert_eq!(watched.camera.states(), [CameraState::Live], "{watched}");
        watched.camera.stop();
    }
}

#[test]
fn codecs_and_sizes_that_others_trip_over_come_whole() {
    const TEST: &str = "codecs_and_sizes_that_others_trip_over_come_whole";
    let cases = [
        ("/h265", (640, 480), "--codec h265"),
        ("/main10", (640, 480), "--codec h265-main10"),
        ("/mjpeg", (640, 480), "--codec mjpeg"),
        ("/high", (640, 480), "--codec h264-high"),
        ("/slices", (640, 480), "--slices 8"),
        ("/odd1", (854, 480), ""),
        ("/odd2", (1366, 768), "--fps 5"),
        ("/odd3", (642, 362), ""),
        ("/odd4", (642, 362), "--codec h265"),
        // RTP tells the sizes of JPEG in units of 8.
        ("/odd5", (648, 368), "--codec mjpeg --size 642x362"),
        ("/slower", (640, 480), "--fps 25 --pace 21"),
    ];
    let options =
        cases.map(|(path, (width, height), more)| format!("--path {path} --size {width}x{height} {more}"));
    let options: Vec<_> =
        ["--fps", "10"].into_iter().chain(options.iter().flat_map(|text| text.split_whitespace())).collect();
    let server = match RtspServer::start(&options) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let mut watched = cases.map(|(path, ..)| Watched::start(path, rtsp(server.url(path))));
    watch(&mut watched, 25);
    for (watched, (_, size, _)) in watched.iter().zip(cases) {
        assert_eq!(watched.sizes, BTreeSet::from([size]), "{watched}");
        assert_eq!((watched.unstamped, watched.camera.states()), (0, vec![CameraState::Live]), "{watched}");
        assert!(watched.stamps.is_sorted_by(|one, two| one.number < two.number), "{watched}");
        let ((_, begun, first), (_, ended, last)) = (watched.first.unwrap(), watched.last.unwrap());
        let (clock, taken) = (ended - begun, last.saturating_duration_since(first));
        assert!(clock.abs_diff(taken) < Duration::from_secs(2), "{clock:?} {taken:?}: {watched}");
    }
}

#[test]
fn a_stream_with_junk_in_it_is_opened_again_and_again() {
    const TEST: &str = "a_stream_with_junk_in_it_is_opened_again_and_again";
    let films = Films::new();
    let film = film!(TEST, films,);
    let server = BadCam::start(&[&film], &["--junk", "bytes", "--event-every", "20"]);
    let mut watched = [Watched::start("junk", rtsp(server.url()))];
    watch(&mut watched, 50);
    let [watched] = &watched;
    assert!(watched.camera.failure().contains("the connection to the camera was lost"), "{watched}");
    assert!(watched.camera.telemetry.connects.get() >= 2, "{watched}");
    assert_eq!(watched.unstamped, 0, "{watched}");
}

#[test]
fn a_camera_that_refuses_datagrams_sends_in_the_connection_or_is_told() {
    const TEST: &str = "a_camera_that_refuses_datagrams_sends_in_the_connection_or_is_told";
    let server = match RtspServer::start(&["--tcp-only", "--path", "/cam1"]) {
        Ok(server) => server,
        Err(reason) => return skip(TEST, &reason),
    };
    let config = |transport| CameraConfig { transport, ..rtsp(server.url("/cam1")) };
    let mut camera = Camera::start(config(Transport::Auto));
    assert!(camera.frames(5).iter().all(|frame| stamp(frame).is_some()));
    assert_eq!(camera.states(), [CameraState::Live]);
    camera.stop();
    let mut camera = Camera::start(config(Transport::Udp));
    let reason = camera.failure();
    assert!(reason.contains("does not send its video this way; set `transport: auto`"), "{reason}");
    camera.stop();
}

#[test]
fn a_buffer_for_datagrams_that_the_kernel_does_not_give_is_told() {
    let config = "devices: [{id: fake0, backend: fake}]\nmodels: {dir: $ROOT/models}\ncameras:\n  - {id: press-1, \
                  source: 'rtsp://127.0.0.1:9/1', transport: udp, udp_buffer: 268435456, detect: [{model: line-parts}]}\n\
                  publish: {stdout: true}\n";
    let gantry = Running::start(config);
    eventually("it is told", PATIENCE, || gantry.log().contains("268435456 are asked for"));
    assert!(gantry.log().contains("sysctl -w net.core.rmem_max=268435456"), "{}", gantry.log());
}

/// The certificates of `make_certificates` are for `localhost`.
#[test]
fn a_camera_behind_tls_opens_with_its_authority_and_every_other_trust_is_refused_in_words() {
    const TEST: &str =
        "a_camera_behind_tls_opens_with_its_authority_and_every_other_trust_is_refused_in_words";
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_certificates(ours.path());
    make_certificates(others.path());
    let file = |name: &str| ours.path().join(name).display().to_string();
    let server =
        match RtspServer::start(&["--tls", &file("server.pem"), &file("server.key"), "--path", "/cam1"]) {
            Ok(server) => server,
            Err(reason) => return skip(TEST, &reason),
        };
    let url = |host| {
        let mut url = server.url("/cam1");
        url.set_host(Some(host)).unwrap();
        assert_eq!(url.scheme(), "rtsps");
        url
    };
    let config = |host, ca_file: Option<&Path>| CameraConfig {
        ca_file: ca_file.map(Path::to_owned),
        ..rtsp(url(host))
    };
    let (ca, own) = (ours.path().join("ca.pem"), ours.path().join("server.pem"));
    for trusted in [&ca, &own] {
        let mut camera = Camera::start(config("localhost", Some(trusted)));
        assert!(camera.frames(3).iter().all(|frame| stamp(frame).is_some()));
        camera.stop();
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    let plain = RtspServer::start(&["--path", "/cam1"]).unwrap();
    let mut unencrypted = plain.url("/cam1");
    // The type of an address that has a port of its own may change.
    unencrypted = unencrypted.as_str().replace("rtsp://", "rtsps://").parse().unwrap();
    for (config, expected) in [
        (config("localhost", None), "signed by nobody that this machine trusts"),
        (config("localhost", Some(&others.path().join("ca.pem"))), "signed by none of those in"),
        (config("127.0.0.1", Some(&ca)), "certificate is not for \"127.0.0.1\""),
        (config("localhost", Some(empty.path())), "holds no certificate"),
        (config("localhost", Some(Path::new("/nowhere/ca.pem"))), "cannot be read"),
        (rtsp(unencrypted), "speaks RTSP without TLS; write rtsp://"),
    ] {
        let mut camera = Camera::start(config);
        let reason = camera.failure();
        assert!(reason.contains(expected), "{expected}: {reason}");
        camera.stop();
    }
}
