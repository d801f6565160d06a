//! Where a source's frames go, and what is known of the camera meanwhile.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::metronome::Metronome;
use super::picture::{Encoded, NewestSight, Sight};
use super::state::CameraState;
use super::watch::{Limits, Seen, Watch};
use super::{CameraConfig, SourceError};
use crate::frame::outlet::{Outlet, Stopped};
use crate::frame::slab::SlabPool;
use crate::frame::{CameraId, Frame, FramePool, FrameTimes, Geometry, Memory};
use crate::memory::MemoryError;
use crate::telemetry::{CameraTelemetry, SkipReason, is_tried_again};

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
    /// What there is to see.
    picture: NewestSight,
    next_id: AtomicU64,
    origin: Instant,
    /// Milliseconds from `origin` to this connection's newest frame, plus 1; 0 for none yet.
    newest_frame: AtomicU64,
    refusal_told: AtomicBool,
    /// What this connection's first frame looked like.
    first: Mutex<Option<Geometry>>,
    /// Decides on the camera's state.
    watch: Mutex<Watch>,
    /// The state's number.
    state: AtomicU8,
    /// There are no pictures in this state, so the next frame is the one that ends it.
    is_awaited: AtomicBool,
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
            picture: NewestSight::new(config.is_watched().then_some(&config.picture)),
            telemetry: Arc::clone(outlet.telemetry()),
            outlet: Mutex::new(outlet),
            frames_in_flight,
            period,
            spacing: AtomicU64::new(0),
            frames: FramePool::new(frames_in_flight),
            slabs: Mutex::new(None),
            next_id: AtomicU64::new(1),
            origin: Instant::now(),
            newest_frame: AtomicU64::new(0),
            refusal_told: AtomicBool::new(false),
            first: Mutex::new(None),
            watch: Mutex::new(Watch::new(Limits {
                // A file is as slow as its frames are taken, and a pattern cannot fail.
                stale_after: config.address.is_a_camera().then_some(config.stale_after),
                damaged_max: config.damaged_max,
            })),
            state: AtomicU8::new(CameraState::Connecting.number()),
            is_awaited: AtomicBool::new(true),
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

    /// How the picture that is delivered next came to the video decoder; none where it came as it is.
    pub fn set_encoded(&self, encoded: Option<Encoded>) {
        self.picture.set_encoded(encoded);
    }

    /// What there is to see in this connection's pictures.
    #[must_use]
    pub fn sight(&self) -> Sight {
        self.picture.get()
    }

    /// A picture came at `at` that no model is given. After one that nobody wants the camera is silent no more than after a
    /// frame; any other is no sign of a camera that sees.
    pub fn skip(&self, reason: SkipReason, at: Instant) {
        self.telemetry.skip(reason);
        if reason == SkipReason::Unwanted && self.newest_frame.load(Ordering::Relaxed) > 0 {
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
        let mut frame = match Frame::new(self.camera.clone(), id, times, geometry, memory) {
            Ok(frame) => frame,
            Err(error) => {
                self.refuse(&error.to_string());
                return Ok(());
            }
        };
        // The position in a video that is played again and again is no time.
        let seen_at = if self.metronome.is_some() { times.ready } else { times.paced_at() };
        self.picture.see(seen_at, &frame);
        self.telemetry
            .frame_taken(times.captured.age(times.ready).map_or(times.ready, |_| times.captured.at));
        let is_first = self.newest_frame.swap(self.stamp(times.ready), Ordering::Relaxed) == 0;
        if is_first {
            self.telemetry.connects.add(1);
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(geometry);
        }
        if is_first || self.is_awaited.load(Ordering::Relaxed) {
            // A frame that came just now is no reason to give the connection up.
            self.look(times.ready, true).ok();
        }
        frame.camera_state = CameraState::NAMES[usize::from(self.state.load(Ordering::Relaxed))];
        let frame = self.frames.fill(frame);
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

    /// Looks at the connection, whether it `is_open` and has told of a video, and what has come of it: several times a
    /// second.
    ///
    /// # Errors
    /// [`SourceError::Stale`] when it is to be given up.
    pub fn look(&self, now: Instant, is_open: bool) -> Result<(), SourceError> {
        let seen = self.seen(is_open);
        self.decide(|watch| watch.look(now, &seen))
    }

    /// How long this connection has been delivering good pictures.
    pub(super) fn live_for(&self, now: Instant) -> Duration {
        self.decide(|watch| watch.live_for(now))
    }

    /// A connection is being made.
    pub(super) fn connecting(&self) {
        self.newest_frame.store(0, Ordering::Relaxed);
        self.refusal_told.store(false, Ordering::Relaxed);
        self.set_spacing(None);
        self.picture.restart();
        self.telemetry.stream.begin();
        let seen = self.seen(false);
        self.decide(|watch| watch.connecting(Instant::now(), &seen));
    }

    /// The connection has ended or could not be made, for this reason, and is tried again.
    pub(super) fn lost(&self, reason: &str, wants_a_person: bool) {
        self.decide(|watch| watch.lost(reason, wants_a_person));
    }

    /// A file has ended, or cannot be read for this reason.
    pub(super) fn ended(&self, reason: Option<String>) {
        self.decide(|watch| watch.ended(reason));
    }

    fn seen(&self, is_open: bool) -> Seen {
        let counts = &self.telemetry;
        let newest = self.newest_frame.load(Ordering::Relaxed).checked_sub(1);
        Seen {
            is_open,
            newest: newest.map(|millis| self.origin + Duration::from_millis(millis)),
            packets: counts.packets.get(),
            encoded: counts.encoded.get(),
            good: counts.frames.get(),
            damaged: counts.skips(SkipReason::AfterLoss) + counts.skips(SkipReason::Damaged),
            before_key: counts.skips(SkipReason::BeforeKeyFrame),
            late: counts.skips(SkipReason::Late),
            sight: self.sight(),
        }
    }

    /// Has the watch decide something, and tells what it changes.
    fn decide<T>(&self, decide: impl FnOnce(&mut Watch) -> T) -> T {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = decide(&mut watch);
        let change = watch.take_change();
        self.state.store(watch.state().number(), Ordering::Relaxed);
        self.is_awaited.store(!watch.state().has_pictures(), Ordering::Relaxed);
        // Told before anybody else can change it again, so that it is told in the right order.
        if let Some(state) = change {
            self.tell(&state);
            self.telemetry.set_state(state.name());
            (self.report)(state);
        }
        drop(watch);
        decided
    }

    fn tell(&self, state: &CameraState) {
        let (camera, name) = (&self.camera, state.name());
        match state {
            CameraState::Disabled | CameraState::Connecting => {}
            CameraState::Prerolling => info!(%camera, "{name}: it is open, and its first picture is awaited"),
            CameraState::Live => {
                let first = *self.first.lock().unwrap_or_else(PoisonError::into_inner);
                let Geometry { format, width, height, .. } = first.expect("the first picture made it live");
                info!(%camera, format = format.name(), "{name}: {width}x{height}");
            }
            CameraState::Ended => info!(%camera, "{name}: the camera's file has ended"),
            CameraState::Stale { reason }
            | CameraState::Frozen { reason }
            | CameraState::Dark { reason }
            | CameraState::Corrupt { reason } => warn!(%camera, "{name}: {reason}"),
            CameraState::Reconnecting { reason } | CameraState::Failed { reason, is_retried: true } => {
                warn!(%camera, "{name}: {}", is_tried_again(reason));
            }
            CameraState::Failed { reason, is_retried: false } => error!(%camera, "{name}: {reason}"),
        }
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
