//! Cameras: what opens them, and how they are tried again.
//!
//! A [`Source`] makes one connection in [`Source::run_once`] and delivers its frames to an [`Intake`]; [`run`] calls it
//! again and again, with a back-off, until the daemon ends. The [`gstreamer`] source opens everything that is a stream;
//! [`synthetic`] makes patterns and reads pictures and raw frames without GStreamer.

pub mod gstreamer;
mod local;
mod metronome;
pub mod state;
pub mod synthetic;
pub mod thinning;
pub mod video;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};

use crate::frame::outlet::{Outlet, Stopped};
use crate::frame::slab::SlabPool;
use crate::frame::{CameraId, Frame, FramePool, FrameTimes, Geometry, Memory};
use crate::memory::MemoryError;
use crate::secret::Secret;
use crate::telemetry::{CameraTelemetry, error_chain, is_tried_again};
use crate::threads::{Heartbeat, Shutdown};
use metronome::Metronome;
use state::{Backoff, CameraState};
use thinning::VideoDecode;

/// A camera as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraConfig {
    /// Its id.
    pub id: CameraId,
    /// Where it is.
    pub address: Address,
    /// User name, for RTSP.
    pub username: Option<String>,
    /// Password, for RTSP.
    pub password: Option<Secret>,
    /// How RTP comes.
    pub transport: Transport,
    /// A live camera that delivers no frame for this long is opened anew.
    pub stale_after: Duration,
    /// Which of its pictures are decoded.
    pub video_decode: VideoDecode,
    /// How a file is played again and again, as if it were a camera; once and no faster than it is taken, when none.
    pub replay: Option<Replay>,
}

/// Where a camera is. `Display` and `Debug` leave out the query of an RTSP address, since cameras take passwords there.
#[derive(Clone, PartialEq)]
pub enum Address {
    /// `rtsp://` or `rtsps://`, without user name and password.
    Rtsp(url::Url),
    /// `v4l2:///dev/…`: a USB camera's device.
    V4l2(PathBuf),
    /// `file://…`: a video in any container that GStreamer reads, a picture, or raw frames in a `.y4m`.
    File(PathBuf),
    /// `test://pattern?…`: a picture that Gantry makes.
    Test(TestPattern),
}

/// A synthetic camera.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestPattern {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// How fast they come.
    pub rate: Rate,
    /// Ends after so many frames; never, when none.
    pub frames: Option<u64>,
    /// Pixel format of its frames.
    pub format: crate::frame::PixelFormat,
}

/// How fast frames come that nobody's camera sends. `Display` writes it as an address does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// So many a second, evenly spaced, whether they are taken or not; positive and finite.
    PerSecond(f64),
    /// As many as are taken.
    Max,
}

/// How fast a file is played that is played again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Replay {
    /// As its own times say.
    OwnPace,
    /// At this rate.
    Rate(Rate),
}

impl CameraConfig {
    /// A camera whose every other key is the config's default.
    #[must_use]
    pub fn new(id: CameraId, address: Address) -> Self {
        Self {
            id,
            address,
            username: None,
            password: None,
            transport: Transport::Tcp,
            stale_after: Duration::from_secs(3),
            video_decode: VideoDecode::Auto,
            replay: None,
        }
    }

    /// Whether every frame counts: the source is held back rather than a frame dropped.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        match (&self.address, self.replay) {
            (Address::File(_), replay) => matches!(replay, None | Some(Replay::Rate(Rate::Max))),
            (Address::Test(pattern), _) => pattern.rate == Rate::Max,
            (Address::Rtsp(_) | Address::V4l2(_), _) => false,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => write!(f, "{rate}"),
            Self::Max => f.write_str("max"),
        }
    }
}

impl Address {
    /// Whether its end is the end, and not a reason to open it again.
    #[must_use]
    pub fn ends(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Test(pattern) => pattern.frames.is_some(),
            Self::Rtsp(_) | Self::V4l2(_) => false,
        }
    }

    /// That it cannot be opened.
    fn refused(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Open { address: self.to_string(), reason: reason.into() }
    }

    /// What somebody else says of a connection to this address, without the part that `Display` leaves out.
    #[cfg_attr(
        not(feature = "gstreamer"),
        expect(dead_code, reason = "only GStreamer opens such an address")
    )]
    fn conceal(&self, text: &str) -> String {
        let Self::Rtsp(url) = self else { return text.to_owned() };
        let hidden = [url.query(), url.fragment()].into_iter().flatten().filter(|part| !part.is_empty());
        hidden.fold(text.to_owned(), |text, part| text.replace(part, "…"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rtsp(url) => f.write_str(&shown(url)),
            Self::V4l2(path) => write!(f, "v4l2://{}", path.display()),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Test(test) => {
                write!(f, "test://pattern?size={}x{}&rate={}", test.width, test.height, test.rate)
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// How RTP comes from an RTSP camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Interleaved in the RTSP connection.
    Tcp,
    /// In datagrams.
    Udp,
    /// Datagrams, and TCP where none come.
    Auto,
}

/// How a connection ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream ended.
    EndOfStream,
    /// The daemon is ending.
    Stopped,
}

/// One kind of camera.
pub trait Source: Send + fmt::Debug {
    /// Opens the camera, delivers its frames to `intake` until the stream ends, and closes it. Calls
    /// `heartbeat.beat()` at least twice a second while it is at work, and returns within a second once
    /// `shutdown` has begun.
    ///
    /// # Errors
    /// When the camera could not be opened, or broke.
    fn run_once(
        &mut self,
        intake: &Arc<Intake>,
        shutdown: &Shutdown,
        heartbeat: &Heartbeat,
    ) -> Result<End, SourceError>;
}

/// The source for a camera.
///
/// # Errors
/// When this build has no source for such an address.
pub fn open(config: &CameraConfig) -> Result<Box<dyn Source>, SourceError> {
    match &config.address {
        Address::Test(pattern) => Ok(synthetic::pattern(*pattern)),
        Address::File(path) if synthetic::reads(path) => Ok(synthetic::file(path.clone())),
        Address::File(_) | Address::Rtsp(_) | Address::V4l2(_) => gstreamer::open(config),
    }
}

/// Runs a camera until `shutdown` begins, a file has ended, or a file has failed. What it does is reported to the
/// intake's owner; each new cause of a failure is logged once.
pub fn run(
    config: &CameraConfig,
    source: &mut dyn Source,
    intake: &Arc<Intake>,
    shutdown: &Shutdown,
    heartbeat: &Heartbeat,
) {
    let camera = &config.id;
    let mut backoff = Backoff::default();
    let mut told: Option<String> = None;
    loop {
        heartbeat.beat();
        intake.connecting();
        let outcome = source.run_once(intake, shutdown, heartbeat);
        if shutdown.begun() {
            return;
        }
        let live = intake.live_for(Instant::now());
        if live > Duration::ZERO {
            told = None;
        }
        let reason = match outcome {
            Ok(End::Stopped) => return,
            // A file without a frame would begin again for ever.
            Ok(End::EndOfStream) if config.replay.is_some() && live > Duration::ZERO => continue,
            Ok(End::EndOfStream) if config.address.ends() => {
                info!(%camera, "the camera's file has ended");
                intake.report(CameraState::Ended);
                return;
            }
            Ok(End::EndOfStream) => "the camera closed the stream".to_owned(),
            Err(error) => error_chain(&error),
        };
        intake.telemetry.failures.add(1);
        if config.address.ends() {
            error!(%camera, "{reason}");
            intake.report(CameraState::Failed { reason });
            return;
        }
        let retry_in = backoff.next(live, fastrand::f64());
        if told.as_ref() == Some(&reason) {
            debug!(%camera, ?retry_in, "{reason}");
        } else {
            warn!(%camera, "{}", is_tried_again(&reason));
            told = Some(reason.clone());
            // Not at each try: that is no change, and who reads the state wants to know since when it is so.
            intake.report(CameraState::Reconnecting { reason });
        }
        heartbeat.idle();
        if shutdown.wait(retry_in) {
            return;
        }
    }
}

/// A URL as a log may show it: `?…` stands for all that follows its path.
fn shown(url: &url::Url) -> String {
    let mut shown = without_credentials(url);
    shown.set_query(None);
    shown.set_fragment(None);
    let more = url.query().or(url.fragment()).is_some();
    format!("{shown}{}", if more { "?…" } else { "" })
}

/// The config keeps user name and password out of the address; were they there, they would not pass.
fn without_credentials(url: &url::Url) -> url::Url {
    let mut url = url.clone();
    // Both refuse only an address that cannot have a user at all, which has none then.
    url.set_username("").ok();
    url.set_password(None).ok();
    url
}

/// Where a source's frames go. It is shared with the threads that GStreamer delivers on.
pub struct Intake {
    camera: CameraId,
    telemetry: Arc<CameraTelemetry>,
    outlet: Mutex<Outlet>,
    frames_in_flight: usize,
    period: Option<Duration>,
    /// How far apart frames come while the source itself keeps to the rate, in nanoseconds; 0 while it does not.
    spacing: AtomicU64,
    frames: FramePool,
    /// The newest pool of the camera's, kept over a broken connection.
    slabs: Mutex<Option<SlabPool>>,
    /// Holds a file back that is played as if it were a camera.
    metronome: Option<Mutex<Metronome>>,
    next_id: AtomicU64,
    origin: Instant,
    /// Milliseconds from `origin` to this connection's first and newest frame, plus 1; 0 for none yet.
    first_frame: AtomicU64,
    newest_frame: AtomicU64,
    refusal_told: AtomicBool,
    report: Box<dyn Fn(CameraState) + Send + Sync>,
}

impl Intake {
    /// An intake for a camera. Each change of the camera's state is given to `report`, which must not block.
    #[must_use]
    pub fn new(
        config: &CameraConfig,
        outlet: Outlet,
        report: Box<dyn Fn(CameraState) + Send + Sync>,
    ) -> Self {
        let (frames_in_flight, period) = (outlet.frames_in_flight(), outlet.period());
        Self {
            camera: config.id.clone(),
            metronome: config.replay.and_then(Metronome::new).map(Mutex::new),
            telemetry: Arc::clone(outlet.telemetry()),
            outlet: Mutex::new(outlet),
            frames_in_flight,
            period,
            spacing: AtomicU64::new(0),
            frames: FramePool::new(frames_in_flight),
            slabs: Mutex::new(None),
            next_id: AtomicU64::new(1),
            origin: Instant::now(),
            first_frame: AtomicU64::new(0),
            newest_frame: AtomicU64::new(0),
            refusal_told: AtomicBool::new(false),
            report,
        }
    }

    /// The camera's id.
    #[must_use]
    pub fn camera(&self) -> &CameraId {
        &self.camera
    }

    /// The camera's counters.
    #[must_use]
    pub fn telemetry(&self) -> &CameraTelemetry {
        &self.telemetry
    }

    /// The most frames of the camera's that are under way at once.
    #[must_use]
    pub fn frames_in_flight(&self) -> usize {
        self.frames_in_flight
    }

    /// How far apart the frames are that the fastest model wants; none where one wants all there are.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// The source itself keeps to the rate with the frame that is delivered next, and its frames come so far apart; or it
    /// does not.
    pub fn set_spacing(&self, spacing: Option<Duration>) {
        let nanos = spacing.map_or(0, |spacing| u64::try_from(spacing.as_nanos()).unwrap_or(u64::MAX));
        self.spacing.store(nanos, Ordering::Relaxed);
    }

    /// A picture came at `at` that nobody wants decoded: the camera is silent no more than with a frame.
    pub fn skip(&self, at: Instant) {
        self.telemetry.skipped.add(1);
        if self.newest_frame.load(Ordering::Relaxed) > 0 {
            self.newest_frame.store(self.stamp(at), Ordering::Relaxed);
        }
    }

    /// Memory for the camera's pictures, of `len` bytes each: for all frames that are under way at once, and for `held`
    /// more that the source holds. It is made here, unless the connection before had the same. A pool of another size is
    /// freed when the last of its frames returns.
    ///
    /// # Errors
    /// When the machine has not that much memory left, or cannot give it as it is required.
    pub fn slabs(&self, len: usize, held: usize) -> Result<SlabPool, MemoryError> {
        let mut newest = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.frames_in_flight + held;
        if let Some(pool) = newest.as_ref().filter(|pool| pool.slab_len() == len && pool.slabs() == count) {
            return Ok(pool.clone());
        }
        // Before the new one is made, so that both are there at once only as far as frames of the old one are under way.
        *newest = None;
        let pool = SlabPool::new(len, count, Arc::clone(&self.telemetry))?;
        Ok(newest.insert(pool).clone())
    }

    /// Delivers a decoded picture. Memory that makes no sense is counted, told once a connection, and is no reason to
    /// end. A lossless source waits here, and so does a file that is played as if it were a camera; `waiting` is called
    /// before each wait.
    ///
    /// # Errors
    /// [`Stopped`] when the daemon is ending.
    pub fn deliver(
        &self,
        mut times: FrameTimes,
        geometry: Geometry,
        memory: Memory,
        mut waiting: impl FnMut(),
    ) -> Result<(), Stopped> {
        let mut outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metronome) = &self.metronome {
            let due = metronome.lock().unwrap_or_else(PoisonError::into_inner).due(times.ready, times.pts);
            waiting();
            outlet.wait_until(due)?;
            // As if it had come only now.
            let held = Instant::now() - times.ready;
            (times.received, times.ready) = (times.received + held, times.ready + held);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = match Frame::new(self.camera.clone(), id, times, geometry, memory) {
            Ok(frame) => self.frames.fill(frame),
            Err(error) => {
                self.refuse(&error.to_string());
                return Ok(());
            }
        };
        let stamp = self.stamp(times.ready);
        self.newest_frame.store(stamp, Ordering::Relaxed);
        if self.first_frame.compare_exchange(0, stamp, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.telemetry.connects.add(1);
            info!(camera = %self.camera, format = geometry.format.name(), "live: {}x{}", geometry.width, geometry.height);
            self.report(CameraState::Live);
        }
        let spacing = Duration::from_nanos(self.spacing.load(Ordering::Relaxed));
        outlet.send(frame, spacing, waiting)
    }

    /// Counts a picture that cannot be made a frame, and tells the first of a connection.
    pub fn refuse(&self, reason: &str) {
        self.telemetry.unusable.add(1);
        if !self.refusal_told.swap(true, Ordering::Relaxed) {
            warn!(camera = %self.camera, "a frame was thrown away: {reason}");
        }
    }

    /// How long ago this connection's newest frame came; none before the first.
    #[must_use]
    pub fn silent_for(&self, now: Instant) -> Option<Duration> {
        let newest = self.newest_frame.load(Ordering::Relaxed);
        (newest > 0).then(|| Duration::from_millis(self.stamp(now).saturating_sub(newest)))
    }

    fn live_for(&self, now: Instant) -> Duration {
        match self.first_frame.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            first => Duration::from_millis(self.stamp(now).saturating_sub(first).max(1)),
        }
    }

    fn connecting(&self) {
        self.first_frame.store(0, Ordering::Relaxed);
        self.newest_frame.store(0, Ordering::Relaxed);
        self.refusal_told.store(false, Ordering::Relaxed);
        self.set_spacing(None);
    }

    fn report(&self, state: CameraState) {
        self.telemetry.set_state(state.name());
        (self.report)(state);
    }

    fn stamp(&self, at: Instant) -> u64 {
        let millis = at.saturating_duration_since(self.origin).as_millis();
        u64::try_from(millis).unwrap_or(u64::MAX - 1) + 1
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("camera", &self.camera).finish_non_exhaustive()
    }
}

/// Why a camera could not be opened, or broke. No variant holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// This build cannot open such a camera.
    #[error("{address} needs GStreamer, and this build has none; build with the feature `gstreamer`")]
    NoGstreamer {
        /// The camera's address.
        address: String,
    },
    /// A part of GStreamer is not installed.
    #[error("GStreamer's element {element} is not installed; {cure}")]
    MissingElement {
        /// The element.
        element: String,
        /// Which package has it.
        cure: String,
    },
    /// It could not be opened.
    #[error("{address} cannot be opened: {reason}")]
    Open {
        /// The camera's address.
        address: String,
        /// Why, in words, with the cure where one is known.
        reason: String,
    },
    /// There is no memory for its frames.
    #[error("there is no memory for its frames of {width}x{height}")]
    Memory {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Why.
        #[source]
        source: MemoryError,
    },
    /// It was open and broke.
    #[error("the stream broke: {reason}")]
    Broken {
        /// Why, in words.
        reason: String,
    },
    /// It was open and no frame came.
    #[error("no frame for {:.1} s{hint}", silent.as_secs_f64())]
    Stale {
        /// For how long.
        silent: Duration,
        /// What did come, if anything is known.
        hint: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_camera_has_no_secret_of_its_address() {
        for (url, display) in [
            ("rtsp://10.0.0.7/1?user=u&password=hunter2", "rtsp://10.0.0.7/1?…"),
            ("rtsps://u:hunter2@cam:322/1?hunter2#hunter2", "rtsps://cam:322/1?…"),
            ("rtsp://cam/1#hunter2", "rtsp://cam/1?…"),
            ("rtsp://cam/1", "rtsp://cam/1"),
        ] {
            let config = CameraConfig {
                password: Some(Secret::new("hunter2".to_owned())),
                ..CameraConfig::new(CameraId::new("press-1"), Address::Rtsp(url.parse().unwrap()))
            };
            assert_eq!(config.address.to_string(), display);
            let debug = format!("{config:?}");
            assert!(debug.contains(display) && !debug.contains("hunter2"), "{debug}");
            let error = format!("{:?}", SourceError::NoGstreamer { address: config.address.to_string() });
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
