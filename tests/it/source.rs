//! Cameras: real servers, real files, real faults. Here is a camera as the tests see it; the tests are by kind of source.

#[cfg(feature = "gstreamer")]
mod credentials;
#[cfg(feature = "gstreamer")]
mod files;
#[cfg(feature = "gstreamer")]
mod keyframes;
#[cfg(feature = "gstreamer")]
mod line;
#[cfg(feature = "gstreamer")]
mod memory;
#[cfg(feature = "gstreamer")]
mod odd;
mod picture;
#[cfg(feature = "gstreamer")]
mod rtsp;
#[cfg(feature = "gstreamer")]
mod sight;
#[cfg(feature = "gstreamer")]
mod states;
mod synthetic;
#[cfg(feature = "gstreamer")]
mod truth;
#[cfg(feature = "gstreamer")]
mod usb;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
#[cfg(feature = "gstreamer")]
use std::{path::Path, process::Command};

use gantry::frame::doorbell::Doorbell;
use gantry::frame::mailbox::Mailbox;
use gantry::frame::outlet::{Delivery, Outlet, Pace, Route};
use gantry::frame::{CameraId, Frame, FrameRef};
use gantry::source::state::CameraState;
use gantry::source::{self, Address, CameraConfig, Intake};
use gantry::telemetry::{CameraTelemetry, DropReason, RouteTelemetry};
use gantry::threads::{ShutdownSource, Thread, ThreadKind, ThreadSpec, Threads, shutdown};

/// Long enough for a loaded machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A camera that runs under `source::run`, and the one model that looks at it: the test itself.
struct Camera {
    mailbox: Arc<Mailbox<FrameRef>>,
    doorbell: Arc<Doorbell>,
    #[cfg(feature = "gstreamer")]
    intake: Arc<Intake>,
    states: Arc<(Mutex<Vec<CameraState>>, Condvar)>,
    telemetry: Arc<CameraTelemetry>,
    route: Arc<RouteTelemetry>,
    shutdown: Option<ShutdownSource>,
    thread: Option<Thread>,
}

impl Camera {
    fn start(config: CameraConfig) -> Self {
        Self::paced(config, None)
    }

    /// The same, with the model wanting at most so many frames a second.
    fn paced(config: CameraConfig, rate_max: Option<f64>) -> Self {
        let doorbell = Arc::new(Doorbell::new(1));
        let mailbox = Arc::new(Mailbox::new());
        let telemetry = Arc::new(CameraTelemetry::new(config.id.as_str()));
        let route = Arc::new(RouteTelemetry::new(config.id.as_str(), "the test"));
        let (source_of_shutdown, token) = shutdown();
        let states = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let delivery = if config.is_lossless() { Delivery::Lossless } else { Delivery::NewestWins };
        let routes = vec![Route {
            mailbox: Arc::clone(&mailbox),
            ringer: doorbell.ringer(0),
            telemetry: Arc::clone(&route),
            pace: rate_max.map(Pace::new),
        }];
        let outlet = Outlet::new(routes, delivery, Arc::clone(&telemetry), token.clone());
        let (told, woken) = (Arc::clone(&states), Arc::clone(&doorbell));
        let report = move |state| {
            told.0.lock().unwrap().push(state);
            told.1.notify_all();
            woken.wake();
        };
        let intake = Arc::new(Intake::new(&config, outlet, Box::new(report)));
        let spec = ThreadSpec {
            name: format!("src/{}", config.id),
            kind: ThreadKind::Source,
            limit: Duration::from_secs(2),
        };
        let delivers = Arc::clone(&intake);
        let body = move |heartbeat| {
            let mut source = source::open(&config).unwrap();
            source::run(&config, source.as_mut(), &delivers, &token, &heartbeat);
        };
        let thread = Threads::new().spawn(spec, body, |_| {}).unwrap();
        Self {
            mailbox,
            doorbell,
            #[cfg(feature = "gstreamer")]
            intake,
            states,
            telemetry,
            route,
            shutdown: Some(source_of_shutdown),
            thread: Some(thread),
        }
    }

    /// The next frame; none when the camera has ended or failed for good, or nothing comes.
    fn next(&self) -> Option<FrameRef> {
        let until = Instant::now() + PATIENCE;
        loop {
            let is_final = self.states.0.lock().unwrap().last().is_some_and(CameraState::is_final);
            if let Some(frame) = self.mailbox.take() {
                return Some(frame);
            }
            if is_final {
                return None;
            }
            if Instant::now() > until {
                return None;
            }
            self.wait(until);
        }
    }

    /// Waits for a frame, or for another state, at most until then.
    fn wait(&self, until: Instant) {
        let mut rang = false;
        self.doorbell.answer(|_, _| rang = true);
        if !rang {
            self.doorbell.wait(Some(until));
        }
    }

    fn frames(&self, count: usize) -> Vec<FrameRef> {
        let frames: Vec<_> = std::iter::from_fn(|| self.next()).take(count).collect();
        assert_eq!(frames.len(), count, "{:?}", self.states());
        frames
    }

    /// What it was told as, but for `prerolling`: whether anybody looks in that short time depends on the machine.
    fn states(&self) -> Vec<CameraState> {
        let states = self.states.0.lock().unwrap();
        states.iter().filter(|state| **state != CameraState::Prerolling).cloned().collect()
    }

    /// Waits for the first state that `pick` picks.
    fn wait_for<T>(&self, mut pick: impl FnMut(&CameraState) -> Option<T>) -> T {
        let (states, changed) = &*self.states;
        let mut seen = states.lock().unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = seen.iter().find_map(&mut pick) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it did not come to that: {seen:?}");
            seen = changed.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// The reason of the first failure.
    fn failure(&self) -> String {
        self.wait_for(|state| state.reason().map(str::to_owned))
    }

    /// Ends it, as the daemon does; it must end in time.
    fn stop(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            thread.join_timeout(Duration::from_secs(10)).expect("the source ends when the daemon does");
        }
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        drop(self.shutdown.take());
    }
}

fn camera(address: Address) -> CameraConfig {
    CameraConfig::new(CameraId::new("press-1"), address)
}

fn file(path: impl Into<PathBuf>) -> Camera {
    Camera::start(camera(Address::File(path.into())))
}

fn scratch(name: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().write_all(content).unwrap();
    (folder, path)
}

/// Makes a video of 25 frames; false where ffmpeg is not installed.
#[cfg(feature = "gstreamer")]
fn make_video(path: &Path, source: &str, options: &[&str]) -> bool {
    let input = ["-f", "lavfi", "-i", source];
    ffmpeg(&[&input, options, &["-frames:v", "25", path.to_str().unwrap()]].concat()).is_some()
}

/// Runs ffmpeg and returns what it writes to its standard output; none where it is not installed.
#[cfg(feature = "gstreamer")]
fn ffmpeg(arguments: &[&str]) -> Option<Vec<u8>> {
    if !crate::rig::has_program("ffmpeg") {
        return None;
    }
    let output = Command::new("ffmpeg").args(["-v", "error", "-y"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// Every frame of a lossless camera, checked for order, with what `look` makes of each.
fn all_frames<T>(camera: &mut Camera, mut look: impl FnMut(&Frame) -> T) -> Vec<T> {
    let (mut seen, mut last) = (Vec::new(), None);
    while let Some(frame) = camera.next() {
        assert_eq!(frame.id, seen.len() as u64 + 1, "frame numbers have no gap");
        assert!(frame.times.received <= frame.times.ready);
        let pts = frame.times.pts;
        assert!(last.is_none() || pts > last, "{pts:?} after {last:?}");
        last = pts;
        seen.push(look(&frame));
    }
    assert_eq!(camera.states().last(), Some(&CameraState::Ended), "{:?}", camera.states());
    assert_eq!(camera.route.offered.get(), seen.len() as u64);
    for reason in DropReason::ALL {
        assert_eq!(camera.route.drops(reason), 0, "{reason:?}");
    }
    camera.stop();
    seen
}
