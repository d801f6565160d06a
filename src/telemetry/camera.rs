//! What is counted of a camera.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::warning::PoolLook;
use super::{CopyReason, Counter, PoolSnapshot, PoolTelemetry, StreamSnapshot, StreamTelemetry};

/// Why a connection could not be made, or ended, as far as the next try depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The machine is there and does not listen.
    Refused,
    /// User name or password are missing or wrong. Cameras lock out who tries too often.
    Unauthorized,
    /// The camera does not know the path.
    NotFound,
    /// Nothing answers, or there is no way to it.
    Unreachable,
    /// It answers, and not as it should.
    Protocol,
    /// What it offers cannot be used here: no video, a format that nothing here decodes, no camera at all.
    Unusable,
    /// It was open, and broke or ended.
    Broken,
    /// It was open, and no picture came.
    Stale,
    /// This machine lacks something: memory, a plug-in.
    Local,
}

impl FailureCause {
    /// Every cause.
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::Unauthorized,
        Self::NotFound,
        Self::Unreachable,
        Self::Protocol,
        Self::Unusable,
        Self::Broken,
        Self::Stale,
        Self::Local,
    ];

    /// The value of the label `cause`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::Unreachable => "unreachable",
            Self::Protocol => "protocol",
            Self::Unusable => "unusable",
            Self::Broken => "broken",
            Self::Stale => "stale",
            Self::Local => "local",
        }
    }
}

/// Why a camera's picture is not given to any model. None of these is a drop: a skipped picture was never offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Nobody wants it: key frames suffice for the rates that the models have.
    Unwanted,
    /// The connection began in the middle, and no key frame has come yet that it could be decoded from.
    BeforeKeyFrame,
    /// It needs pictures that were lost or damaged.
    AfterLoss,
    /// A part of it is missing, or its video decoder says that it is damaged.
    Damaged,
    /// It came so late that it shows what was, and not what is.
    Late,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::Unwanted, Self::BeforeKeyFrame, Self::AfterLoss, Self::Damaged, Self::Late];

    /// The value of the label `reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwanted => "unwanted",
            Self::BeforeKeyFrame => "before_key_frame",
            Self::AfterLoss => "after_loss",
            Self::Damaged => "damaged",
            Self::Late => "late",
        }
    }

    /// Whether there is something wrong with the picture itself.
    #[must_use]
    pub fn is_damage(self) -> bool {
        matches!(self, Self::AfterLoss | Self::Damaged)
    }
}

/// Counts of one camera.
#[derive(Debug)]
pub struct CameraTelemetry {
    /// The camera's id.
    pub camera: String,
    /// RTP packets of its video that came, in order and without doubles.
    pub packets: Counter,
    /// RTP packets between them that never came, or came too late.
    pub packets_lost: Counter,
    /// Encoded pictures that entered the video decoder.
    pub encoded: Counter,
    /// Pictures that no model was given, by reason. Some were not even decoded.
    skipped: [Counter; SkipReason::ALL.len()],
    /// Decoded frames that the models were offered.
    pub frames: Counter,
    /// Frames whose memory made no sense and were thrown away.
    pub unusable: Counter,
    /// Times that all memory of the camera's pool was in use: a picture was not made, or the pool grew for it.
    pub exhausted: Counter,
    /// What its stream says of itself.
    pub stream: StreamTelemetry,
    /// The memory that its frames are in.
    pub pool: PoolTelemetry,
    /// Connections that delivered at least one frame.
    pub connects: Counter,
    /// Pipelines that did not come down in time and were left behind.
    pub abandoned: Counter,
    /// Attempts that failed, and connections that broke, by cause.
    failures: [Counter; FailureCause::ALL.len()],
    /// When the picture of the newest good frame was taken, in nanoseconds since `origin`, plus 1; 0 before the first.
    newest: AtomicU64,
    origin: Instant,
    /// The camera's state in one word, for people.
    state: Mutex<String>,
}

/// See [`CameraTelemetry`].
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in CameraTelemetry")]
pub struct CameraSnapshot {
    pub camera: String,
    pub state: String,
    pub packets: u64,
    pub packets_lost: u64,
    pub encoded: u64,
    pub skipped: BTreeMap<&'static str, u64>,
    pub frames: u64,
    pub converted: u64,
    pub unusable: u64,
    pub exhausted: u64,
    pub stream: StreamSnapshot,
    pub pool: PoolSnapshot,
    /// Milliseconds since the picture of the newest good frame was taken; none before the first.
    pub frame_age_ms: Option<f64>,
    pub connects: u64,
    pub abandoned: u64,
    pub failures: BTreeMap<&'static str, u64>,
}

impl CameraTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(camera: &str) -> Self {
        Self {
            camera: camera.to_owned(),
            packets: Counter::default(),
            packets_lost: Counter::default(),
            encoded: Counter::default(),
            skipped: Default::default(),
            frames: Counter::default(),
            unusable: Counter::default(),
            exhausted: Counter::default(),
            stream: StreamTelemetry::default(),
            pool: PoolTelemetry::default(),
            connects: Counter::default(),
            abandoned: Counter::default(),
            failures: Default::default(),
            newest: AtomicU64::new(0),
            origin: Instant::now(),
            state: Mutex::new("connecting".to_owned()),
        }
    }

    /// Counts a picture that no model is given.
    pub fn skip(&self, reason: SkipReason) {
        self.skipped[reason as usize].add(1);
    }

    /// Pictures skipped for this reason.
    #[must_use]
    pub fn skips(&self, reason: SkipReason) -> u64 {
        self.skipped[reason as usize].get()
    }

    /// Notes the camera's state.
    pub fn set_state(&self, state: &str) {
        state.clone_into(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The state noted last.
    #[must_use]
    pub fn state(&self) -> String {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an attempt that failed, or a connection that broke.
    pub fn failed(&self, cause: FailureCause) {
        self.failures[cause as usize].add(1);
    }

    /// Attempts that failed, and connections that broke, for whatever cause.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.iter().map(Counter::get).sum()
    }

    /// A good frame came whose picture was taken `at`.
    pub fn frame_taken(&self, at: Instant) {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        self.newest.store(u64::try_from(nanos).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    /// How long ago the picture of the newest good frame was taken, in milliseconds; none before the first.
    #[must_use]
    pub fn frame_age_ms(&self, now: Instant) -> Option<f64> {
        let newest = self.newest.load(Ordering::Relaxed).checked_sub(1)?;
        let now = u64::try_from(now.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX);
        Some(milliseconds(now.saturating_sub(newest)))
    }

    pub(super) fn pool_look(&self) -> PoolLook<'_> {
        PoolLook {
            camera: &self.camera,
            exhausted: self.exhausted.get(),
            high_water: self.pool.high_water(),
            slabs: self.pool.slabs(),
            runs_short: self.pool.runs_short(),
        }
    }

    /// All of it at the moment `now`.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> CameraSnapshot {
        CameraSnapshot {
            camera: self.camera.clone(),
            state: self.state(),
            packets: self.packets.get(),
            packets_lost: self.packets_lost.get(),
            encoded: self.encoded.get(),
            skipped: SkipReason::ALL.map(|reason| (reason.name(), self.skips(reason))).into(),
            frames: self.frames.get(),
            converted: self.pool.copies(CopyReason::Format),
            unusable: self.unusable.get(),
            exhausted: self.exhausted.get(),
            stream: self.stream.snapshot(),
            pool: self.pool.snapshot(self.exhausted.get()),
            frame_age_ms: self.frame_age_ms(now),
            connects: self.connects.get(),
            abandoned: self.abandoned.get(),
            failures: FailureCause::ALL
                .iter()
                .map(|cause| (cause.name(), self.failures[*cause as usize].get()))
                .collect(),
        }
    }
}

/// To the microsecond, so that messages are not longer than their figures are exact.
#[expect(clippy::cast_precision_loss, reason = "exact up to 285 years")]
fn milliseconds(nanos: u64) -> f64 {
    (nanos / 1000) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_age_of_the_newest_frame_counts_from_when_it_was_taken() {
        let telemetry = CameraTelemetry::new("press-1");
        let now = telemetry.origin + Duration::from_secs(10);
        assert_eq!(telemetry.frame_age_ms(now), None);
        telemetry.frame_taken(now - Duration::from_micros(1500));
        assert_eq!(telemetry.frame_age_ms(now), Some(1.5));
        // A picture of a camera whose clock is ahead is not younger than new.
        telemetry.frame_taken(now + Duration::from_secs(1));
        assert_eq!(telemetry.frame_age_ms(now), Some(0.0));
    }

    #[test]
    fn failures_are_counted_by_cause() {
        let telemetry = CameraTelemetry::new("press-1");
        telemetry.failed(FailureCause::Refused);
        telemetry.failed(FailureCause::Stale);
        telemetry.failed(FailureCause::Stale);
        let failures = telemetry.snapshot(Instant::now()).failures;
        assert_eq!((failures["refused"], failures["stale"], failures["broken"]), (1, 2, 0));
        assert_eq!(telemetry.failures(), 3);
        assert_eq!(failures.len(), FailureCause::ALL.len(), "each cause has a name of its own");
    }
}
