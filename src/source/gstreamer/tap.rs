//! Where frames leave GStreamer: what one connection's streaming threads share with the thread that watches it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use tracing::{debug, warn};

use super::decoder_probe::{Arrival, Arrivals};
use super::describe;
use super::fault::Progress;
use super::judge::{Judge, Judged, Liveness};
use super::pool::{self, IsAlias};
use super::sample::{self, Mappings};
use crate::frame::clock::{CaptureClock, Captured};
use crate::frame::{FrameTimes, Geometry, Memory};
use crate::source::picture::Encoded;
use crate::source::rtp::Receiver;
use crate::source::thinning::{Picture, Thinning, Verdict, VideoDecode};
use crate::source::{CameraConfig, Intake};
use crate::telemetry::{CopyReason, SkipReason};

/// A driver's stamp that says more than this is taken for nonsense, and arrival counts instead.
const OLDEST_CAPTURE: Duration = Duration::from_secs(10);

/// One connection's way out of GStreamer.
pub(super) struct Tap {
    /// When each encoded picture came.
    arrivals: Mutex<Arrivals>,
    /// Which of them are decoded.
    thinning: Mutex<Thinning>,
    /// Which of them are whole.
    judge: Mutex<Judge>,
    /// Sees their packets, once some have come.
    receiver: Mutex<Option<Receiver>>,
    late_after: Duration,
    intake: Arc<Intake>,
    mappings: Mappings,
    clock: CaptureClock,
    opened: Instant,
    /// Who asked for memory last, and the number of the newest picture then.
    maker: Mutex<(Maker, u64)>,
    encoded: AtomicU64,
    /// Where the newest frame is in the stream, in nanoseconds.
    position: AtomicU64,
    /// Set when the connection is given up: a pipeline that does not come down delivers no more.
    closed: AtomicBool,
    /// Set when the camera tells that it has a video stream.
    offered: AtomicBool,
    /// Set when a pad with decoded video was linked.
    video: AtomicBool,
    /// Set when all pads are known and none had video.
    no_video: AtomicBool,
    /// What is wrong with the camera's certificate.
    distrusted: OnceLock<gio::TlsCertificateFlags>,
}

/// Who makes the pictures that come here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Maker {
    /// A decoder of libav's, which has decoded pictures before it asks for memory, and may have copied them out of its own.
    Libav,
    /// Any other element.
    #[default]
    Other,
}

/// The newest caps and what they say, so that they are read once and not with every frame.
#[derive(Default)]
struct Layout(Option<(gst::Caps, gst_video::VideoInfo)>);

impl Tap {
    pub(super) fn new(intake: Arc<Intake>, clock: CaptureClock, config: &CameraConfig) -> Arc<Self> {
        let liveness = if clock == CaptureClock::File { Liveness::Read } else { Liveness::Live };
        Arc::new(Self {
            arrivals: Mutex::default(),
            thinning: Mutex::new(Thinning::new(config.video_decode, intake.period())),
            judge: Mutex::new(Judge::new(config.on_loss, liveness)),
            receiver: Mutex::default(),
            late_after: config.late_after,
            mappings: Mappings::new(intake.frames_in_flight()),
            intake,
            clock,
            opened: Instant::now(),
            maker: Mutex::default(),
            encoded: AtomicU64::new(0),
            position: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            video: AtomicBool::new(false),
            no_video: AtomicBool::new(false),
            distrusted: OnceLock::new(),
        })
    }

    /// Where the frames go.
    pub(super) fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }

    /// Whether its pictures are taken as they come, rather than read.
    pub(super) fn is_live(&self) -> bool {
        self.clock != CaptureClock::File
    }

    /// Notes who asks what memory to write to.
    pub(super) fn note_maker(&self, maker: Maker) {
        let newest = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).newest();
        *self.maker.lock().unwrap_or_else(PoisonError::into_inner) = (maker, newest);
    }

    /// Does something with what sees the packets.
    pub(super) fn with_receiver<T>(&self, f: impl FnOnce(&mut Option<Receiver>) -> T) -> T {
        f(&mut self.receiver.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The encoded pictures that follow have these caps.
    pub(super) fn encoded_caps(&self, caps: &gst::CapsRef) {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner).caps(caps);
        self.intake.telemetry().stream.update(|told| describe::encoded(caps, told));
    }

    /// An encoded picture comes to the video decoder at `now`: says whether it is decoded, and notes and counts it.
    pub(super) fn encoded(&self, buffer: &gst::BufferRef, now: Instant) -> Verdict {
        let pts = buffer.pts().map(gst::ClockTime::nseconds);
        let received = self.with_receiver(|receiver| receiver.as_ref()?.picture(pts));
        let mut judge = self.judge.lock().unwrap_or_else(PoisonError::into_inner);
        let Judged { picture, verdict: whole, has_no_beginning, is_open_key } =
            judge.encoded(buffer, received.as_ref());
        drop(judge);
        // When it would have come if it were not late, where that is known, or else the stream's own time: a burst out of the
        // network's buffers is none there. (After numbers that jumped back the jitter buffer's times stand still.)
        let punctual = received.and_then(|received| now.checked_sub(received.lateness));
        let at = punctual.or(pts.map(|pts| self.opened + Duration::from_nanos(pts))).unwrap_or(now);
        let mut thinning = self.thinning.lock().unwrap_or_else(PoisonError::into_inner);
        let was_held_back = thinning.is_held_back();
        let verdict = thinning.encoded(picture, at);
        if let (Picture::Key, Some(interval)) = (picture, thinning.key_interval()) {
            self.intake.telemetry().stream.key_frame(interval);
        }
        if thinning.is_held_back() && !was_held_back {
            self.tell_held_back(&thinning);
        }
        // What has no beginning would come out grey. After a loss the video decoder goes on, so that it gives back what it
        // holds in time, and can use a recovery point.
        if verdict == Verdict::Skip || has_no_beginning {
            let reason = if has_no_beginning { SkipReason::BeforeKeyFrame } else { SkipReason::Unwanted };
            self.intake.skip(reason, now);
            return Verdict::Skip;
        }
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = received.is_some_and(|received| received.lateness > self.late_after);
        let bytes = u32::try_from(buffer.size()).unwrap_or(u32::MAX);
        arrivals.note(
            pts,
            Arrival {
                spacing: thinning.spacing(),
                verdict: whole,
                is_late,
                is_open_key,
                received,
                encoded: Encoded { bytes, kind: picture },
                ..Arrival::at(now)
            },
        );
        // A file's frames have no age, and libav decodes several of them at once.
        if picture == Picture::Key && self.is_live() {
            thinning.key_goes_in(arrivals.newest());
        }
        self.encoded.fetch_add(1, Ordering::Relaxed);
        self.intake.telemetry().encoded.add(1);
        verdict
    }

    fn tell_held_back(&self, thinning: &Thinning) {
        let camera = self.intake.camera();
        match thinning.mode() {
            VideoDecode::Keyframes => warn!(
                %camera,
                "its video decoder holds each key frame back until another picture comes, so with video_decode: keyframes \
                 every frame is late by one; a stream without B-frames has no such delay"
            ),
            VideoDecode::All | VideoDecode::Auto => {
                debug!(%camera, "its video decoder holds pictures back, so all of them are decoded");
            }
        }
    }

    /// Encoded pictures of this connection.
    pub(super) fn encoded_count(&self) -> u64 {
        self.encoded.load(Ordering::Relaxed)
    }

    /// Where the newest frame is in the stream.
    pub(super) fn position(&self) -> Duration {
        Duration::from_nanos(self.position.load(Ordering::Relaxed))
    }

    /// Counts a frame that has to be converted to one of our formats.
    pub(super) fn converted(&self) {
        self.intake.telemetry().pool.copied(1, CopyReason::Format);
    }

    /// The camera tells that it has a video stream.
    pub(super) fn video_offered(&self) {
        self.offered.store(true, Ordering::Release);
    }

    /// How far the connection has come.
    pub(super) fn progress(&self) -> Progress {
        if self.intake.silent_for(Instant::now()).is_some() {
            Progress::Live
        } else if self.offered.load(Ordering::Acquire) {
            Progress::Offered
        } else {
            Progress::Opening
        }
    }

    /// Whether this is the first pad with decoded video, the one whose frames are taken.
    pub(super) fn claim_video(&self) -> bool {
        !self.video.swap(true, Ordering::AcqRel)
    }

    /// All pads are known now.
    pub(super) fn pads_complete(&self) {
        if !self.video.load(Ordering::Acquire) {
            self.no_video.store(true, Ordering::Release);
        }
    }

    /// Whether all pads are known and none has video.
    pub(super) fn has_no_video(&self) -> bool {
        self.no_video.load(Ordering::Acquire)
    }

    /// The camera's certificate is refused.
    pub(super) fn distrust(&self, flags: gio::TlsCertificateFlags) {
        self.distrusted.get_or_init(|| flags);
    }

    /// What is wrong with the camera's certificate, where it was refused.
    pub(super) fn distrusted(&self) -> Option<gio::TlsCertificateFlags> {
        self.distrusted.get().copied()
    }

    /// Delivers no frame from here on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the connection is given up.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes frames from the appsink, on the streaming thread.
    pub(super) fn connect(self: &Arc<Self>, sink: &gst_app::AppSink) {
        let (tap, mut layout) = (Arc::clone(self), Layout::default());
        let callbacks =
            gst_app::AppSinkCallbacks::builder().new_sample(move |sink| tap.take(sink, &mut layout));
        sink.set_callbacks(callbacks.build());
    }

    fn take(&self, sink: &gst_app::AppSink, layout: &mut Layout) -> Result<gst::FlowSuccess, gst::FlowError> {
        let ready = Instant::now();
        let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        if self.closed.load(Ordering::Acquire) {
            return Err(gst::FlowError::Flushing);
        }
        let (Some(buffer), Some(info)) = (sample.buffer(), layout.of(&sample)) else {
            return Err(gst::FlowError::NotNegotiated);
        };
        let mut arrived = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let arrival = arrived.take(buffer.pts().map(gst::ClockTime::nseconds));
        let newest = arrived.newest();
        drop(arrived);
        self.intake.set_spacing(arrival.and_then(|arrival| arrival.spacing));
        self.intake.set_encoded(arrival.map(|arrival| arrival.encoded));
        if let Some(arrival) = arrival {
            self.thinning.lock().unwrap_or_else(PoisonError::into_inner).comes_out(arrival.number);
        }
        let times = self.times(sink, &sample, buffer, (arrival, ready));
        let position = times.pts.unwrap_or_default().as_nanos();
        self.position.store(u64::try_from(position).unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut judge = self.judge.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = judge.decoded(buffer, arrival.as_ref(), newest);
        drop(judge);
        if let Some(reason) = skipped {
            self.intake.skip(reason, ready);
            return Ok(gst::FlowSuccess::Ok);
        }
        let (geometry, memory) = match self.picture(info, &sample, arrival) {
            Ok(picture) => picture,
            Err(reason) => {
                self.intake.refuse(&reason);
                return Ok(gst::FlowSuccess::Ok);
            }
        };
        // The frame holds what it needs of it. The buffer goes back to its pool now, not when the frame is done with.
        drop(sample);
        // A lossless source waits in here, on GStreamer's thread. The thread that has the heartbeat goes on beside it,
        // so there is nothing to tell before a wait.
        let delivered = self.intake.deliver(times, geometry, memory, || {});
        delivered.map(|()| gst::FlowSuccess::Ok).map_err(|_| gst::FlowError::Flushing)
    }

    /// A sample's picture, where it is.
    fn picture(
        &self,
        info: &gst_video::VideoInfo,
        sample: &gst::Sample,
        arrival: Option<Arrival>,
    ) -> Result<(Geometry, Memory), String> {
        let buffer = sample.buffer_owned().expect("the sample was asked for its buffer before");
        let geometry = sample::geometry(info, &buffer)?;
        let counts = &self.intake.telemetry().pool;
        let (maker, newest_then) = *self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((slab, alias)) = pool::slab(&buffer) {
            counts.in_slab.add(1);
            if alias == IsAlias::Yes {
                counts.aliased.add(1);
            } else if maker == Maker::Libav && arrival.is_some_and(|arrival| arrival.number <= newest_then) {
                counts.copied(1, CopyReason::Opening);
            }
            return Ok((geometry, Memory::Slab(slab)));
        }
        if maker == Maker::Libav && !pool::is_of_a_pool(&buffer) {
            counts.copied(1, CopyReason::Decoder);
        }
        Ok((geometry, Memory::Lent(self.mappings.lend(buffer)?)))
    }

    fn times(
        &self,
        sink: &gst_app::AppSink,
        sample: &gst::Sample,
        buffer: &gst::BufferRef,
        (arrival, ready): (Option<Arrival>, Instant),
    ) -> FrameTimes {
        let pts = buffer.pts();
        let segment = sample.segment().and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
        // Where an edit list or a seek shifts the times, the position in the stream is not the stamp itself.
        let position = segment.zip(pts).and_then(|(segment, pts)| segment.to_stream_time(pts)).or(pts);
        let position = position.map(Duration::from);
        let received = arrival.map_or(ready, |arrival| arrival.at.min(ready));
        let running = segment.zip(pts).and_then(|(segment, pts)| segment.to_running_time(pts));
        let captured = match self.clock {
            CaptureClock::File => {
                Captured::new(CaptureClock::File, self.opened + position.unwrap_or_default())
            }
            CaptureClock::V4l2 => {
                let age =
                    sink.current_running_time().zip(running).and_then(|(now, then)| capture_age(now, then));
                match age.and_then(|age| ready.checked_sub(age)) {
                    Some(at) => Captured::new(CaptureClock::V4l2, at.min(received)),
                    None => Captured::new(CaptureClock::Arrival, received),
                }
            }
            clock @ (CaptureClock::Arrival | CaptureClock::Rtcp | CaptureClock::Test) => {
                let known = arrival.and_then(|arrival| arrival.received).map(|received| received.captured);
                known.unwrap_or(Captured::new(clock, received))
            }
        };
        FrameTimes { pts: position, captured, received, ready }
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("intake", &self.intake).finish_non_exhaustive()
    }
}

impl Layout {
    fn of(&mut self, sample: &gst::Sample) -> Option<&gst_video::VideoInfo> {
        let caps = sample.caps()?;
        let known = self.0.as_ref().is_some_and(|(known, _)| known.as_ptr() == caps.as_ptr());
        if !known {
            let info = gst_video::VideoInfo::from_caps(caps);
            let info = info.inspect_err(|error| warn!("{caps} describes no picture: {error}")).ok()?;
            self.0 = Some((caps.to_owned(), info));
        }
        self.0.as_ref().map(|(_, info)| info)
    }
}

/// How old a picture is whose driver stamped it at running time `then`; none where that makes no sense: in the future,
/// or long ago.
fn capture_age(now: gst::ClockTime, then: gst::ClockTime) -> Option<Duration> {
    now.checked_sub(then).map(Duration::from).filter(|age| *age <= OLDEST_CAPTURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_stamp_in_the_future_or_long_ago_makes_no_sense() {
        let (ms, s) = (gst::ClockTime::from_mseconds, gst::ClockTime::from_seconds);
        assert_eq!(capture_age(ms(140), ms(100)), Some(Duration::from_millis(40)));
        assert_eq!(capture_age(ms(100), ms(101)), None);
        assert_eq!(capture_age(s(100), s(1)), None);
    }
}
