//! `gantry camera probe`: opens one camera and tells what it sends.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use crossbeam_channel::{Receiver, bounded};
use serde::Serialize;

use super::{Exit, Format, annotate, print_problem, print_report};
use crate::config::address::CameraAddress;
use crate::config::password_in;
use crate::frame::doorbell::Doorbell;
use crate::frame::mailbox::Mailbox;
use crate::frame::outlet::{Delivery, Outlet, Route};
use crate::frame::{CameraId, FrameRef};
use crate::source::state::CameraState;
use crate::source::{self, CameraConfig, Intake, Transport};
use crate::telemetry::{CameraSnapshot, CameraTelemetry, RouteTelemetry, StreamSnapshot, error_chain};
use crate::threads::{ThreadKind, ThreadSpec, Threads, shutdown};

/// How long a camera may take to show its first picture: one with a key frame each 20 s has shown two by then.
const FIRST_WITHIN: Duration = Duration::from_secs(50);

/// So many changes of its state are looked at.
const STATES: usize = 16;

/// A source's thread ends within a second of being told to.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What can be done with a camera.
#[derive(Debug, Subcommand)]
pub enum CameraCommand {
    /// Open a camera and tell what it offers and sends; nothing else runs.
    #[command(
        after_help = "Example:\n  gantry camera probe rtsp://10.0.0.7/stream1 --username viewer --password-file press-1.secret --snapshot a.jpg"
    )]
    Probe(Box<CameraProbeArgs>),
}

/// Arguments of `gantry camera probe`.
#[derive(Clone, Debug, Args)]
pub struct CameraProbeArgs {
    /// Its address, as `source` of the config takes it.
    address: String,
    /// User name of an RTSP camera.
    #[arg(long)]
    username: Option<String>,
    /// File that holds its password and nothing else.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// How an RTSP camera's pictures come.
    #[arg(long, value_enum, default_value_t = Way::Tcp)]
    transport: Way,
    /// How long it is watched after its first picture.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
    /// Writes its newest picture there, as JPEG or PNG.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

/// See [`Transport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Inside the RTSP connection.
    Tcp,
    /// In datagrams.
    Udp,
    /// Datagrams, and TCP where none come.
    Auto,
}

/// What a camera sends.
#[derive(Clone, Debug, Serialize)]
pub struct CameraProbeReport {
    /// Its address, without secrets.
    pub address: String,
    /// Why there was no picture, or why there was none any more.
    pub failure: Option<String>,
    /// What its stream says of itself.
    pub stream: StreamSnapshot,
    /// Its pictures; none when none came.
    pub pictures: Option<Pictures>,
    /// RTP packets, and how many are missing.
    pub packets: u64,
    /// RTP packets between them that never came.
    pub packets_lost: u64,
    /// Pictures that would be given to no model, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Where the newest picture is now.
    pub snapshot: Option<PathBuf>,
}

/// Pictures of a camera.
#[derive(Clone, Debug, Serialize)]
pub struct Pictures {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format after decoding.
    pub format: &'static str,
    /// Seconds from the beginning to the first one.
    pub first_after_s: f64,
    /// How many came.
    pub count: u64,
    /// How many of them a second.
    pub rate: f64,
    /// Whose clock tells when they were taken.
    pub clock: &'static str,
    /// How old the newest one was when it was decoded, by that clock, in milliseconds; none for a file.
    pub age_ms: Option<f64>,
}

/// Does what is asked.
#[must_use]
pub fn main(command: &CameraCommand) -> Exit {
    let CameraCommand::Probe(args) = command;
    let config = match config(args) {
        Ok(config) => config,
        Err(reason) => {
            print_problem(&reason);
            return Exit::Usage;
        }
    };
    let mut report = probe(config, Duration::from_secs(args.seconds), args.snapshot.as_ref());
    let failed = report.failure.is_some();
    if failed {
        report.snapshot = None;
    }
    print_report(&report, args.format);
    if failed { Exit::Temporary } else { Exit::Ok }
}

fn config(args: &CameraProbeArgs) -> Result<CameraConfig, String> {
    let CameraAddress { address, username, password } = CameraAddress::parse(&args.address)?;
    let password = match &args.password_file {
        Some(file) => Some(password_in(file)?),
        None => password,
    };
    let transport = match args.transport {
        Way::Tcp => Transport::Tcp,
        Way::Udp => Transport::Udp,
        Way::Auto => Transport::Auto,
    };
    let username = args.username.clone().or(username);
    Ok(CameraConfig { username, password, transport, ..CameraConfig::new(CameraId::new("camera"), address) })
}

/// One camera that runs, and what comes of it.
struct Watched {
    mailbox: Arc<Mailbox<FrameRef>>,
    doorbell: Arc<Doorbell>,
    states: Receiver<CameraState>,
    telemetry: Arc<CameraTelemetry>,
}

fn probe(config: CameraConfig, watched_for: Duration, snapshot: Option<&PathBuf>) -> CameraProbeReport {
    let address = config.address.to_string();
    let (end, token) = shutdown();
    let telemetry = Arc::new(CameraTelemetry::new(config.id.as_str()));
    let (mailbox, doorbell) = (Arc::new(Mailbox::new()), Arc::new(Doorbell::new(1)));
    let route = Route {
        mailbox: Arc::clone(&mailbox),
        ringer: doorbell.ringer(0),
        telemetry: Arc::new(RouteTelemetry::new(config.id.as_str(), "nothing")),
        pace: None,
    };
    let outlet = Outlet::new(vec![route], Delivery::NewestWins, Arc::clone(&telemetry), token.clone());
    let (told, states) = bounded(STATES);
    let bell = Arc::clone(&doorbell);
    let report = move |state| {
        // The first one with a reason is the last that anybody waits for.
        told.try_send(state).ok();
        bell.wake();
    };
    let intake = Arc::new(Intake::new(&config, outlet, Box::new(report)));
    let camera = Watched { mailbox, doorbell, states, telemetry };
    let opened = source::open(&config).map_err(|error| error_chain(&error));
    let (pictures, newest, mut failure) = match opened {
        Ok(mut source) => {
            let spec =
                ThreadSpec { name: "src/camera".to_owned(), kind: ThreadKind::Source, limit: FIRST_WITHIN };
            let body = move |heartbeat| source::run(&config, source.as_mut(), &intake, &token, &heartbeat);
            match Threads::new().spawn(spec, body, |_| {}) {
                Ok(thread) => {
                    let watched = camera.watch(watched_for);
                    end.begin();
                    // One that hangs is left behind: the process ends soon.
                    drop(thread.join_timeout(END_WITHIN));
                    watched
                }
                Err(error) => (None, None, Some(error.to_string())),
            }
        }
        Err(reason) => (None, None, Some(reason)),
    };
    let saved = newest.zip(snapshot).map(|(frame, path)| save(&frame, path));
    if let Some(Err(reason)) = &saved {
        failure.get_or_insert(reason.clone());
    }
    let CameraSnapshot { stream, packets, packets_lost, skipped, .. } =
        camera.telemetry.snapshot(Instant::now());
    let snapshot = saved.and_then(Result::ok);
    CameraProbeReport { address, failure, stream, pictures, packets, packets_lost, skipped, snapshot }
}

impl Watched {
    /// Watches until so long after the first picture; the pictures, the newest one of them, and what went wrong.
    fn watch(&self, watched_for: Duration) -> (Option<Pictures>, Option<FrameRef>, Option<String>) {
        let begun = Instant::now();
        let (mut until, mut first, mut newest) = (begun + FIRST_WITHIN, None, None::<FrameRef>);
        let mut failure = None;
        while Instant::now() < until && failure.is_none() {
            if let Some(frame) = self.mailbox.take() {
                if first.is_none() {
                    first = Some(frame.times.ready);
                    until = frame.times.ready + watched_for;
                }
                newest = Some(frame);
                continue;
            }
            for state in self.states.try_iter() {
                match state {
                    CameraState::Ended => until = Instant::now(),
                    // What there is to see in its pictures, the snapshot shows.
                    state if state.has_pictures() => {}
                    state => failure = failure.or(state.reason().map(str::to_owned)),
                }
            }
            let mut rang = false;
            self.doorbell.answer(|_, _| rang = true);
            if failure.is_none() && !rang {
                self.doorbell.wait(Some(until));
            }
        }
        if first.is_none() && failure.is_none() {
            failure = Some(format!("no picture came within {} s", FIRST_WITHIN.as_secs()));
        }
        let count = self.telemetry.frames.get();
        let pictures = first.zip(newest.as_ref()).map(|(first, newest)| {
            let (geometry, times) = (newest.geometry(), newest.times);
            let span = times.ready.saturating_duration_since(first).as_secs_f64();
            Pictures {
                width: geometry.width,
                height: geometry.height,
                format: geometry.format.name(),
                first_after_s: first.saturating_duration_since(begun).as_secs_f64(),
                count,
                rate: if span > 0.0 { rate(count - 1, span) } else { 0.0 },
                clock: times.captured.clock.name(),
                age_ms: times.captured.age(times.ready).map(|age| age.as_secs_f64() * 1000.0),
            }
        });
        (pictures, newest, failure)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand pictures")]
fn rate(count: u64, span: f64) -> f64 {
    count as f64 / span
}

fn save(frame: &FrameRef, path: &PathBuf) -> Result<PathBuf, String> {
    let picture = annotate::picture(frame).map_err(|error| error_chain(&error))?;
    picture
        .save(path)
        .map_err(|error| format!("the picture cannot be written to {}: {error}", path.display()))?;
    Ok(path.clone())
}

impl fmt::Display for CameraProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if !self.stream.tracks.is_empty() {
            write!(f, "\n  tracks: {}", self.stream.tracks.join(", "))?;
        }
        if let Some(codec) = &self.stream.codec {
            write!(f, "\n  video: {codec}")?;
            if let (Some(width), Some(height)) = (self.stream.width, self.stream.height) {
                write!(f, ", {width}x{height}")?;
            }
            if let Some(rate) = self.stream.rate {
                write!(f, ", {rate:.4} a second announced")?;
            }
            match self.stream.key_frame_interval_s {
                Some(interval) => write!(f, ", a key frame each {interval:.1} s")?,
                None => write!(f, ", no two key frames seen")?,
            }
        }
        if let Some(pictures) = &self.pictures {
            let Pictures { width, height, format, first_after_s, count, rate, clock, age_ms } = pictures;
            write!(f, "\n  pictures: {width}x{height} {format}, the first after {first_after_s:.1} s, ")?;
            write!(f, "{count} in all, {rate:.1} a second")?;
            write!(f, "\n  taken by the clock: {clock}")?;
            if let Some(age) = age_ms {
                write!(f, ", {age:.0} ms before they were decoded")?;
            }
        }
        if self.packets > 0 {
            write!(f, "\n  packets: {}, {} lost", self.packets, self.packets_lost)?;
        }
        let skipped: Vec<_> = self.skipped.iter().filter(|(_, count)| **count > 0).collect();
        if !skipped.is_empty() {
            let skipped: Vec<_> = skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            write!(f, "\n  pictures that no model would get: {}", skipped.join(", "))?;
        }
        if let Some(snapshot) = &self.snapshot {
            write!(f, "\n  the newest picture is in {}", snapshot.display())?;
        }
        match &self.failure {
            Some(failure) => write!(f, "\n  FAILED: {failure}"),
            None => Ok(()),
        }
    }
}
