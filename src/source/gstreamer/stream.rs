//! One connection to a camera, from opening to closing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use gst::prelude::*;
use tracing::{debug, info, warn};

use super::fault::{self, Context, Fault, Missing, Progress};
use super::graph;
use super::launch::Launch;
use super::log;
use super::network::{self, Answer};
use super::tap::Tap;
use super::trust;
use super::usb as modes;
use crate::source::usb::{self, Chosen};
use crate::source::watch::FIRST_FRAME_LIMIT;
use crate::source::{Address, CameraConfig, End, Intake, Source, SourceError, controls, local};
use crate::telemetry::FailureCause;
use crate::threads::{Heartbeat, Shutdown};

/// How often the watching thread looks around.
const POLL: Duration = Duration::from_millis(200);

/// How long a pipeline may take to come down before it is left behind.
const TAKE_DOWN_LIMIT: Duration = Duration::from_secs(3);

/// The same while the daemon is ending, which gives a source a second.
const TAKE_DOWN_LIMIT_AT_END: Duration = Duration::from_millis(700);

/// How long asking the network why a camera cannot be opened may take.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The source for an RTSP, USB or file address.
///
/// # Errors
/// When GStreamer cannot be initialised.
pub fn open(config: &CameraConfig) -> Result<Box<dyn Source>, SourceError> {
    graph::init()?;
    log::keep_secret(config);
    network::tell_small_buffer(config);
    Ok(Box::new(Stream { config: config.clone() }))
}

#[derive(Debug)]
struct Stream {
    config: CameraConfig,
}

/// What was seen on the bus, and what to make of it once the connection has failed.
#[derive(Debug, Default)]
struct Seen {
    /// The first error, which is the cause; the ones after it are its consequences.
    error: Option<Fault>,
    /// The newest warning.
    warning: Option<Fault>,
    /// What a stream needs and is not installed.
    missing: Option<Missing>,
    /// Whether rtspsrc says that the camera has gone quiet.
    timed_out: bool,
}

/// How watching a connection ended.
#[derive(Debug)]
enum Outcome {
    Ended(End),
    Failed,
    NoVideo,
    Stale(SourceError),
}

impl Source for Stream {
    fn run_once(
        &mut self,
        intake: &Arc<Intake>,
        shutdown: &Shutdown,
        heartbeat: &Heartbeat,
    ) -> Result<End, SourceError> {
        let launch = self.launch()?;
        let tap = Tap::new(Arc::clone(intake), launch.clock, &self.config);
        let pipeline = graph::build(&launch, &self.config.id, &tap)?;
        let mut seen = Seen::default();
        let mut watch = Watch { config: &self.config, tap: &tap, intake, shutdown, heartbeat };
        let outcome = watch.run(&pipeline, &mut seen);
        let answer = watch.ask(&pipeline, &outcome, &seen);
        if matches!(outcome, Outcome::Ended(End::EndOfStream)) && self.config.address.ends() {
            tell_if_cut_off(&pipeline, &self.config, tap.position());
        }
        tap.close();
        take_down(&pipeline, intake, shutdown, heartbeat);
        let (progress, missing) = (tap.progress(), seen.missing.as_ref());
        let context = Context { config: &self.config, progress, missing, answer };
        match outcome {
            Outcome::Ended(End::EndOfStream) => self.end_of_stream(&seen, &context),
            Outcome::Ended(end) => Ok(end),
            Outcome::Failed => Err(match tap.distrusted() {
                Some(flags) => trust::refused(flags, &self.config),
                None => fault::explain(&seen.cause(), &context),
            }),
            Outcome::NoVideo => Err(fault::no_video(&context)),
            Outcome::Stale(error) => Err(error),
        }
    }
}

impl Stream {
    /// What to build, after what can be told without GStreamer, more exactly than by it.
    fn launch(&self) -> Result<Launch, SourceError> {
        let (config, address) = (&self.config, &self.config.address);
        let launch = |config: &CameraConfig| {
            Launch::new(config)
                .expect("`source::open` gives this source the addresses that GStreamer opens, and no other")
        };
        match address {
            Address::File(path) => {
                local::check(path).map_err(|reason| address.refused(FailureCause::Unusable, reason))?;
            }
            Address::V4l2(path) => {
                let device =
                    usb::device(path).map_err(|reason| address.refused(FailureCause::Unreachable, reason))?;
                local::check_device(&device).map_err(|(cause, reason)| address.refused(cause, reason))?;
                let chosen = self.mode(&device);
                for trouble in controls::set(&device, &config.usb.controls) {
                    warn!(camera = %config.id, "{trouble}");
                }
                let launch = launch(&CameraConfig { address: Address::V4l2(device), ..config.clone() });
                return Ok(match chosen {
                    Some(chosen) => launch.asking(modes::caps(&chosen)),
                    None => launch,
                });
            }
            Address::Rtsp(_) | Address::Test(_) => {}
        }
        Ok(launch(config))
    }

    /// The mode that a USB camera is asked for; none where it tells none.
    fn mode(&self, device: &Path) -> Option<Chosen> {
        let (camera, wish) = (&self.config.id, &self.config.usb);
        let offered = modes::modes(device);
        let chosen = usb::choose(&offered, wish)?;
        if chosen.is_exact {
            info!(%camera, "of its {} modes it is asked for {chosen}", offered.len());
        } else {
            warn!(%camera, "it has no mode of {wish}; it is asked for {chosen}; it has {}", usb::list(&offered));
        }
        Some(chosen)
    }

    /// A file's end is its end, if there was anything in it. A live camera that ends has broken where a warning says so.
    fn end_of_stream(&self, seen: &Seen, context: &Context<'_>) -> Result<End, SourceError> {
        match (&seen.warning, context.progress) {
            (Some(warning), _) if !self.config.address.ends() => Err(fault::explain(warning, context)),
            _ if seen.timed_out => {
                Err(SourceError::Broken { reason: "the camera has stopped sending".to_owned() })
            }
            (_, Progress::Opening | Progress::Offered) if self.config.address.ends() => {
                Err(fault::no_video(context))
            }
            _ => Ok(End::EndOfStream),
        }
    }
}

impl Seen {
    fn note(&mut self, message: &gst::MessageRef) {
        match message.view() {
            gst::MessageView::Error(error) => {
                self.error.get_or_insert(Fault::new(error.error(), error.debug().as_deref()));
            }
            gst::MessageView::Warning(warning) => {
                self.warning = Some(Fault::new(warning.error(), warning.debug().as_deref()));
            }
            gst::MessageView::Element(element) => {
                let Some(structure) = element.structure() else { return };
                match structure.name().as_str() {
                    "missing-plugin" => self.missing = missing(structure).or(self.missing.take()),
                    "GstRTSPSrcTimeout" => self.timed_out = true,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn cause(&self) -> Fault {
        self.error.clone().or_else(|| self.warning.clone()).unwrap_or_else(|| {
            let text = "GStreamer refuses to start the stream and does not say why; GST_DEBUG=3 shows more";
            Fault::new(gst::glib::Error::new(gst::CoreError::StateChange, text), None)
        })
    }
}

/// What a connection is watched with.
struct Watch<'a> {
    config: &'a CameraConfig,
    tap: &'a Arc<Tap>,
    intake: &'a Arc<Intake>,
    shutdown: &'a Shutdown,
    heartbeat: &'a Heartbeat,
}

impl Watch<'_> {
    fn run(&mut self, pipeline: &gst::Pipeline, seen: &mut Seen) -> Outcome {
        const KINDS: [gst::MessageType; 4] = [
            gst::MessageType::Error,
            gst::MessageType::Warning,
            gst::MessageType::Eos,
            gst::MessageType::Element,
        ];
        let opened = Instant::now();
        let bus = pipeline.bus().expect("a pipeline has a bus");
        let refused = pipeline.set_state(gst::State::Playing).is_err();
        loop {
            self.heartbeat.beat();
            if self.shutdown.begun() {
                return Outcome::Ended(End::Stopped);
            }
            let message = bus.timed_pop_filtered(gst::ClockTime::try_from(POLL).ok(), &KINDS);
            if let Some(message) = &message {
                let shown = self.config.address.conceal(&format!("{message:?}"));
                debug!(camera = %self.config.id, "from the bus: {shown}");
                seen.note(message);
                match message.type_() {
                    gst::MessageType::Error => return Outcome::Failed,
                    gst::MessageType::Eos if self.begins_again(pipeline) => {}
                    gst::MessageType::Eos => return Outcome::Ended(End::EndOfStream),
                    _ => {}
                }
            } else if refused {
                return Outcome::Failed;
            }
            if self.tap.has_no_video() {
                return Outcome::NoVideo;
            }
            if let Err(error) = self.look(opened, Instant::now()) {
                return Outcome::Stale(error);
            }
        }
    }

    /// Goes back to the beginning of a file that is played again and again, if there was anything in it.
    fn begins_again(&self, pipeline: &gst::Pipeline) -> bool {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT;
        self.config.replay.is_some()
            && self.tap.progress() == Progress::Live
            && pipeline.seek_simple(flags, gst::ClockTime::ZERO).is_ok()
    }

    /// Whether the connection is to be given up. GStreamer itself posts nothing when a camera stops sending.
    fn look(&self, opened: Instant, now: Instant) -> Result<(), SourceError> {
        // Of a file only the beginning is watched: decodebin of 1.22 now and then swallows a demuxer's error, and then
        // nothing ever happens.
        let waited = now.saturating_duration_since(opened);
        if self.config.address.ends()
            && waited >= FIRST_FRAME_LIMIT
            && self.tap.progress() != Progress::Live
            && self.tap.encoded_count() == 0
        {
            return Err(fault::no_beginning(self.config));
        }
        let is_open = self.tap.progress() != Progress::Opening || self.tap.encoded_count() > 0;
        self.intake.look(now, is_open)
    }

    fn ask(&self, pipeline: &gst::Pipeline, outcome: &Outcome, seen: &Seen) -> Option<Answer> {
        let Address::Rtsp(url) = &self.config.address else { return None };
        let cause = seen.cause();
        if !matches!(outcome, Outcome::Failed) || self.tap.progress() == Progress::Live {
            return None;
        }
        // Through TLS it could only be asked by GStreamer.
        let is_refused = cause.is_a_refused_login() && url.scheme() == "rtsp";
        if !is_refused && !cause.is_about_the_network() {
            return None;
        }
        let url = url.clone();
        self.heartbeat.idle();
        let answer = aside(pipeline, self.shutdown, ASK_LIMIT, move || {
            if is_refused {
                return network::ask_login(&url, ASK_LIMIT / 2);
            }
            Some(network::ask(url.host_str()?, network::port(&url), ASK_LIMIT / 2))
        });
        self.heartbeat.beat();
        answer.flatten()
    }
}

fn missing(structure: &gst::StructureRef) -> Option<Missing> {
    let name = structure.get::<String>("name").ok()?;
    let caps = structure.get::<gst::Caps>("detail").ok();
    let media = match &caps {
        Some(caps) => caps.structure(0).map(|structure| structure.name().to_string()),
        // For an element or a URI handler the detail is its name.
        None => structure.get::<String>("detail").ok(),
    };
    Some(Missing { name, media: media.unwrap_or_default() })
}

/// Tells when a file ends long before its own index says: a recording that was cut off ends like any other. The longest
/// of its streams counts as its length, so this is a warning and no failure.
fn tell_if_cut_off(pipeline: &gst::Pipeline, config: &CameraConfig, position: Duration) {
    let length = pipeline.query_duration::<gst::ClockTime>().map(Duration::from);
    if let Some(length) = length.filter(|length| is_cut_off(position, *length)) {
        let (position, length) = (position.as_secs_f64(), length.as_secs_f64());
        warn!(camera = %config.id, "the file is {length:.1} s long and its pictures end after {position:.1} s; was it cut off?");
    }
}

fn is_cut_off(position: Duration, length: Duration) -> bool {
    length.saturating_sub(position) > Duration::from_secs(1).max(length / 20)
}

/// Brings a pipeline down. One that does not come down (a driver that hangs) is left behind rather than waited for.
fn take_down(pipeline: &gst::Pipeline, intake: &Intake, shutdown: &Shutdown, heartbeat: &Heartbeat) {
    let (done, down) = bounded::<()>(1);
    pipeline.call_async(move |pipeline| {
        // Going down cannot be refused, and there would be nothing else to do.
        pipeline.set_state(gst::State::Null).ok();
        drop(done);
    });
    let begun = Instant::now();
    loop {
        heartbeat.beat();
        if down.recv_timeout(POLL) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let limit = if shutdown.begun() { TAKE_DOWN_LIMIT_AT_END } else { TAKE_DOWN_LIMIT };
        if begun.elapsed() >= limit {
            intake.telemetry().abandoned.add(1);
            warn!(camera = %intake.camera(), "its pipeline does not stop within {limit:?} and is left behind");
            return;
        }
    }
}

/// Runs `work` on one of GStreamer's own threads and waits for it, at most `limit` or until the daemon ends.
fn aside<T: Send + 'static>(
    pipeline: &gst::Pipeline,
    shutdown: &Shutdown,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tx, rx) = bounded(1);
    // When nobody waits any more, the answer is not wanted.
    pipeline.call_async(move |_| drop(tx.send(work())));
    crossbeam_channel::select! {
        recv(rx) -> answer => answer.ok(),
        recv(shutdown.receiver()) -> _ => None,
        default(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::frame::CameraId;
    use crate::frame::outlet::{Delivery, Outlet};
    use crate::telemetry::CameraTelemetry;
    use crate::threads::{ShutdownSource, shutdown};

    fn belt() -> CameraConfig {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/belt.mp4");
        CameraConfig::new(CameraId::new("belt"), Address::File(PathBuf::from(file)))
    }

    /// An intake that no model looks at.
    fn intake() -> (Arc<Intake>, ShutdownSource, Shutdown) {
        let (source, token) = shutdown();
        let telemetry = Arc::new(CameraTelemetry::new("belt"));
        let outlet = Outlet::new(Vec::new(), Delivery::Lossless, telemetry, token.clone());
        (Arc::new(Intake::new(&belt(), outlet, Box::new(|_| {}))), source, token)
    }

    #[test]
    fn a_closed_connection_leaves_nothing_of_its_pipeline_behind() {
        graph::init().unwrap();
        let (config, (intake, _source, token), heartbeat) = (belt(), intake(), Heartbeat::unwatched());
        let launch = Launch::new(&config).unwrap();
        let tap = Tap::new(Arc::clone(&intake), launch.clock, &config);
        let pipeline = graph::build(&launch, &config.id, &tap).unwrap();
        let mut watch =
            Watch { config: &config, tap: &tap, intake: &intake, shutdown: &token, heartbeat: &heartbeat };
        let outcome = watch.run(&pipeline, &mut Seen::default());
        assert!(matches!(outcome, Outcome::Ended(End::EndOfStream)), "{outcome:?}");
        // decodebin takes its demuxer and decoder apart as it goes down.
        let elements: Vec<_> = pipeline.iterate_recurse().into_iter().flatten().collect();
        take_down(&pipeline, &intake, &token, &heartbeat);
        assert!(elements.len() >= 5, "source, demuxer, parser, decoder, sink: {elements:?}");
        let mut left: Vec<_> = elements.iter().map(gst::Element::downgrade).collect();
        left.push(pipeline.upcast_ref::<gst::Element>().downgrade());
        drop((elements, pipeline));
        // `take_down` returns as GStreamer's thread is about to drop its own hold on the pipeline.
        for _ in 0..100 {
            left.retain(|element| element.upgrade().is_some());
            if left.is_empty() || token.wait(Duration::from_millis(50)) {
                break;
            }
        }
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(Arc::strong_count(&tap), 1, "no probe or callback holds the tap any more");
    }

    #[test]
    fn a_file_that_ends_well_before_its_index_says_was_cut_off() {
        let seconds = Duration::from_secs;
        assert!(is_cut_off(seconds(5), seconds(10)));
        assert!(
            !is_cut_off(Duration::from_millis(9960), seconds(10)),
            "the last frame begins before the end"
        );
        assert!(!is_cut_off(seconds(97), seconds(100)), "sound may be a little longer");
        assert!(!is_cut_off(seconds(11), seconds(10)));
    }
}
