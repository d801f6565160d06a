//! Cameras: what opens them, and how they are tried again.
//!
//! A [`Source`] makes one connection in [`Source::run_once`] and delivers its frames to an [`Intake`]; [`run`] calls it
//! again and again, with a back-off, until the daemon ends. The [`gstreamer`] source opens everything that is a stream;
//! [`synthetic`] makes patterns and reads pictures and raw frames without GStreamer.

pub mod backoff;
pub mod bitstream;
pub mod controls;
pub mod gstreamer;
mod intake;
pub mod integrity;
mod local;
mod metronome;
pub mod picture;
pub mod rtp;
pub mod state;
pub mod synthetic;
pub mod thinning;
pub mod usb;
pub mod video;
pub mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backoff::Backoff;
pub use intake::Intake;
use integrity::OnLoss;
use picture::PictureConfig;
use thinning::VideoDecode;
use tracing::debug;
use usb::UsbConfig;

use crate::frame::CameraId;
use crate::memory::MemoryError;
use crate::secret::{self, Secret};
use crate::telemetry::{FailureCause, error_chain};
use crate::threads::{Heartbeat, Shutdown};

/// How often it is looked whether a USB camera was plugged in.
const LOOK_FOR_DEVICE: Duration = Duration::from_millis(250);

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
    /// The certificates that an `rtsps://` camera must be certified by, PEM; those that the machine trusts, when none.
    pub ca_file: Option<PathBuf>,
    /// How RTP comes.
    pub transport: Transport,
    /// The kernel buffer that is asked for its datagrams, in bytes.
    pub udp_buffer: u32,
    /// A live camera that delivers no good frame for this long is stale.
    pub stale_after: Duration,
    /// It is corrupt when more than this share of its pictures is damaged, 0 to 1.
    pub damaged_max: f64,
    /// Which of its pictures are decoded.
    pub video_decode: VideoDecode,
    /// How a USB camera is set up.
    pub usb: UsbConfig,
    /// What becomes of the pictures after a loss.
    pub on_loss: OnLoss,
    /// A picture of an RTSP camera that comes so much later than its fastest ones is skipped.
    pub late_after: Duration,
    /// When there is nothing to see in its pictures.
    pub picture: PictureConfig,
    /// How a file is played again and again, as if it were a camera; once and no faster than it is taken, when none.
    pub replay: Option<Replay>,
}

/// Where a camera is. `Display` and `Debug` leave out the query of an RTSP address, and what follows `password=` in its path,
/// since cameras take passwords there.
#[derive(Clone, PartialEq)]
pub enum Address {
    /// `rtsp://` or `rtsps://`, without user name and password.
    Rtsp(url::Url),
    /// `v4l2:///dev/…`: a USB camera's device; in its last part `*` stands for anything.
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
    /// The default of `udp_buffer`: a key picture of a 4K camera comes as one burst of a megabyte and more.
    pub const UDP_BUFFER: u32 = 2 * 1024 * 1024;

    /// A camera whose every other key is the config's default.
    #[must_use]
    pub fn new(id: CameraId, address: Address) -> Self {
        Self {
            id,
            address,
            username: None,
            password: None,
            ca_file: None,
            transport: Transport::Tcp,
            udp_buffer: Self::UDP_BUFFER,
            stale_after: Duration::from_secs(3),
            damaged_max: 0.2,
            video_decode: VideoDecode::Auto,
            usb: UsbConfig::default(),
            on_loss: OnLoss::Skip,
            late_after: Duration::from_millis(500),
            picture: PictureConfig::default(),
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

    /// Whether a real camera is there, which can fail as cameras do.
    #[must_use]
    pub fn is_a_camera(&self) -> bool {
        matches!(self, Self::Rtsp(_) | Self::V4l2(_))
    }

    /// That it cannot be opened.
    fn refused(&self, cause: FailureCause, reason: impl Into<String>) -> SourceError {
        SourceError::Open { address: self.to_string(), cause, reason: reason.into() }
    }

    /// What somebody else says of a connection to this address, without the part that `Display` leaves out.
    #[cfg_attr(
        not(feature = "gstreamer"),
        expect(dead_code, reason = "only GStreamer opens such an address")
    )]
    fn conceal(&self, text: &str) -> String {
        let Self::Rtsp(url) = self else { return text.to_owned() };
        secret::parts(url).into_iter().fold(text.to_owned(), |text, part| secret::hide(&text, part))
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

/// Runs a camera until `shutdown` begins, a file has ended, or a file has failed. Each change of its state is logged and
/// reported to the intake's owner, once.
pub fn run(
    config: &CameraConfig,
    source: &mut dyn Source,
    intake: &Arc<Intake>,
    shutdown: &Shutdown,
    heartbeat: &Heartbeat,
) {
    let camera = &config.id;
    let mut backoff = Backoff::default();
    loop {
        heartbeat.beat();
        intake.connecting();
        let outcome = source.run_once(intake, shutdown, heartbeat);
        if shutdown.begun() {
            return;
        }
        let live = intake.live_for(Instant::now());
        let error = match outcome {
            Ok(End::Stopped) => return,
            // A file without a frame would begin again for ever.
            Ok(End::EndOfStream) if config.replay.is_some() && live > Duration::ZERO => continue,
            Ok(End::EndOfStream) if config.address.ends() => return intake.ended(None),
            Ok(End::EndOfStream) => SourceError::Closed,
            Err(error) => error,
        };
        let (cause, reason) = (error.cause(), error_chain(&error));
        intake.telemetry().failed(cause);
        if config.address.ends() {
            return intake.ended(Some(reason));
        }
        let retry_in = backoff.next(cause, live, fastrand::f64());
        debug!(%camera, ?retry_in, "{reason}");
        // What a camera says while it starts again is not its last word.
        intake.lost(&reason, backoff::wants_a_person(cause) && !backoff.has_hope());
        heartbeat.idle();
        if wait(config, retry_in, shutdown) {
            return;
        }
    }
}

/// Waits before the next try, and less long for a USB camera that is plugged in meanwhile. Says whether the daemon is ending.
fn wait(config: &CameraConfig, retry_in: Duration, shutdown: &Shutdown) -> bool {
    let Address::V4l2(path) = &config.address else { return shutdown.wait(retry_in) };
    let is_there = || usb::device(path).is_ok_and(|device| device.exists());
    let (was_there, until) = (is_there(), Instant::now() + retry_in);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if shutdown.wait(left.min(LOOK_FOR_DEVICE)) {
            return true;
        }
        if left <= LOOK_FOR_DEVICE || (!was_there && is_there()) {
            return false;
        }
    }
}

/// A URL as a log may show it: `?…` stands for all that follows its path, `…` for a password in its path and all that
/// follows that.
fn shown(url: &url::Url) -> String {
    let mut shown = without_credentials(url);
    if let Some(at) = secret::in_path(url.path()) {
        shown.set_path(&url.path()[..at]);
        shown.set_query(None);
        shown.set_fragment(None);
        return format!("{shown}…");
    }
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
        /// Why.
        cause: FailureCause,
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
    /// It was open and ended, without a word.
    #[error("the camera closed the stream")]
    Closed,
    /// It was open and no good frame came.
    #[error("no frame for {:.1} s: {hint}", silent.as_secs_f64())]
    Stale {
        /// For how long.
        silent: Duration,
        /// What came instead.
        hint: String,
    },
}

impl SourceError {
    /// Why, as far as the next try depends on it.
    #[must_use]
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::NoGstreamer { .. } | Self::MissingElement { .. } | Self::Memory { .. } => {
                FailureCause::Local
            }
            Self::Open { cause, .. } => *cause,
            Self::Broken { .. } | Self::Closed => FailureCause::Broken,
            Self::Stale { .. } => FailureCause::Stale,
        }
    }
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
            ("rtsp://cam/user=u_password=hunter2_channel=1?a", "rtsp://cam/user=u_password=…"),
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
