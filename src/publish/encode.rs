//! Makes messages: who we are, where they go, their numbers, their bytes.
//!
//! Encoding writes straight into the payload that all sinks share. The detections of a frame are written into memory that
//! is used again ([`super::payload`]), so making them allocates nothing.

use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use jiff::Timestamp;
use serde::Serialize;
use tracing::error;

use super::event::{
    CameraEvent, DetectionEvent, DetectionList, FrameRef, HealthEvent, ModelRef, Stamp, StatusEvent,
    StatusReason, is_finite,
};
use super::payload::Payloads;
use super::{Made, Message, Outbox, WhenFull};
use crate::frame::clock::wall_time;
use crate::frame::{CameraId, Frame};
use crate::postprocess::Detection;
use crate::telemetry::{Snapshot, Stages};

/// Who speaks: the same in every message of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The machine.
    pub node: String,
    /// A random UUID, new at each start.
    pub boot_id: String,
    /// Gantry's version.
    pub version: String,
}

impl Identity {
    /// The identity of this run of the daemon.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            boot_id: uuid::Uuid::new_v4().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Where messages go: `<prefix>/<node>/…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    base: String,
    /// `<prefix>/<node>/status`.
    pub status: Arc<str>,
    /// `<prefix>/<node>/health`.
    pub health: Arc<str>,
}

impl Topics {
    /// The topics under `prefix` (one or more segments) and `node` (one segment), which the config has checked.
    #[must_use]
    pub fn new(prefix: &str, node: &str) -> Self {
        let base = format!("{prefix}/{node}");
        Self { status: format!("{base}/status").into(), health: format!("{base}/health").into(), base }
    }

    /// `<prefix>/<node>/camera/<id>/state`.
    #[must_use]
    pub fn camera_state(&self, camera: &CameraId) -> Arc<str> {
        format!("{}/camera/{camera}/state", self.base).into()
    }

    /// `<prefix>/<node>/camera/<id>/detections`.
    #[must_use]
    pub fn detections(&self, camera: &CameraId) -> Arc<str> {
        format!("{}/camera/{camera}/detections", self.base).into()
    }
}

/// One topic's numbers. There is one for each topic of numbered messages, shared by every worker that publishes to it.
#[derive(Debug)]
pub struct TopicSequence {
    topic: Arc<str>,
    last: Mutex<u64>,
}

impl TopicSequence {
    /// The numbers of `topic`, from 1.
    #[must_use]
    pub fn new(topic: Arc<str>) -> Self {
        Self { topic, last: Mutex::new(0) }
    }

    /// Takes the next number, encodes an event with it, and puts it into every sink's queue. The topic is locked
    /// meanwhile, so that the order of numbers is the order in the queues even when two workers publish to one topic.
    /// `made` says when the event was; `waiting` is called before each wait for a sink. Returns the number.
    pub fn publish(
        &self,
        outbox: &Outbox,
        when_full: WhenFull,
        made: Made,
        waiting: impl FnMut(),
        encode: impl FnOnce(u64) -> Bytes,
    ) -> u64 {
        // After a panic inside `encode` the number was not used, so the counter is as it should be.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = *last + 1;
        let payload = encode(seq);
        *last = seq;
        outbox.push(&Message { topic: Arc::clone(&self.topic), payload, made }, when_full, waiting);
        seq
    }
}

/// The moment of an event on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct EventTime {
    /// On the monotonic clock.
    pub now: Instant,
    /// On the wall.
    pub wall: Timestamp,
    /// Whether it comes in time.
    pub punctuality: Punctuality,
}

/// Whether an event comes in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Punctuality {
    /// Before its deadline, or it has none.
    InTime,
    /// After its deadline.
    Late,
}

impl EventTime {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self { now: Instant::now(), wall: Timestamp::now(), punctuality: Punctuality::InTime }
    }
}

/// Encodes the detections of one model on one device.
#[derive(Debug)]
pub struct DetectionEncoder {
    identity: Arc<Identity>,
    model: String,
    version: String,
    device: String,
    labels: Arc<[String]>,
    /// The most that the names take which are the same in every message.
    names_bytes: usize,
    /// The longest that a label can be in a message, with its quotation marks.
    label_bytes: usize,
    payloads: Payloads,
}

impl DetectionEncoder {
    /// An encoder for what `model` finds; `labels` are the names of its classes.
    #[must_use]
    pub fn new(identity: Arc<Identity>, model: ModelRef<'_>, labels: Arc<[String]>) -> Self {
        let names = [&identity.node, &identity.boot_id, model.name, model.version, model.device];
        let names_bytes = names.into_iter().map(escaped_bytes).sum();
        let label_bytes = labels.iter().map(|label| escaped_bytes(label)).max().unwrap_or(0);
        Self {
            identity,
            model: model.name.to_owned(),
            version: model.version.to_owned(),
            device: model.device.to_owned(),
            labels,
            names_bytes,
            label_bytes: label_bytes.max(NUMBERED_LABEL_BYTES),
            payloads: Payloads::new(),
        }
    }

    /// Encodes one `gantry.detections/1`. `stages` must add up to the time from the frame's `received` to `at`.
    ///
    /// A detection with a number that is not finite is left out, and the first one is told as an error: the decoder
    /// promises that there is none.
    #[must_use]
    pub fn encode(
        &mut self,
        frame: &Frame,
        detections: &[Detection],
        stages: &Stages<Duration>,
        at: EventTime,
        seq: u64,
    ) -> Bytes {
        if !detections.iter().all(is_finite) {
            tell_not_finite(&frame.camera, &self.model);
        }
        let geometry = frame.geometry();
        let stamp = |time: Instant| Stamp::new(wall_time(time, at.now, at.wall));
        let event = DetectionEvent {
            schema: "gantry.detections/1",
            node: &self.identity.node,
            camera: frame.camera.as_str(),
            boot_id: &self.identity.boot_id,
            seq,
            captured_at: stamp(frame.times.captured.at),
            capture_clock: frame.times.captured.clock.name(),
            capture_error_ms: frame.times.captured.error.map(|error| ms(micros(error))),
            received_at: stamp(frame.times.received),
            age_ms: frame.times.captured.age(at.now).map(|age| ms(micros(age))),
            late: at.punctuality == Punctuality::Late,
            camera_state: frame.camera_state,
            model: ModelRef { name: &self.model, version: &self.version, device: &self.device },
            frame: FrameRef { id: frame.id, width: geometry.width, height: geometry.height },
            detections: DetectionList { detections, labels: &self.labels },
            stage_ms: stages_ms(stages),
        };
        let bytes_max = self.bytes_max(frame, detections);
        self.payloads.make(bytes_max, |payload| write_json(&event, payload.writer()))
    }

    fn bytes_max(&self, frame: &Frame, detections: &[Detection]) -> usize {
        let names = self.names_bytes + escaped_bytes(frame.camera.as_str());
        MESSAGE_BYTES + names + (DETECTION_BYTES + self.label_bytes) * detections.len()
    }
}

/// The most bytes of a message without its names and detections: 371 are keys, a state, brackets and the schema's name, and its
/// 21 numbers and times take no more than 27 each.
const MESSAGE_BYTES: usize = 942;

/// The most bytes of a detection without its label: 62 are keys and brackets, 10 the class, and no float takes more than
/// 24.
const DETECTION_BYTES: usize = 192;

/// The most bytes of the label of a class without a name, with its quotation marks.
const NUMBERED_LABEL_BYTES: usize = "\"class_4294967295\"".len();

/// The most bytes that a text takes in JSON: of one byte an escape makes six.
fn escaped_bytes(text: &str) -> usize {
    let escaped = text.bytes().filter(|byte| matches!(byte, 0..0x20 | b'"' | b'\\')).count();
    2 + text.len() + 5 * escaped
}

/// Encodes a `gantry.status/1`.
#[must_use]
pub fn status(identity: &Identity, reason: StatusReason, since: Stamp) -> Bytes {
    let event = StatusEvent {
        schema: "gantry.status/1",
        node: &identity.node,
        boot_id: &identity.boot_id,
        status: reason.status(),
        reason,
        version: &identity.version,
        since,
    };
    json(&event, 256)
}

/// What is told of a camera.
#[derive(Clone, Copy, Debug)]
pub struct CameraTold<'a> {
    /// The state's name.
    pub state: &'a str,
    /// Why, where there is a why, without secrets.
    pub reason: Option<&'a str>,
    /// Since when.
    pub since: Stamp,
    /// How old the picture of its newest good frame is, in milliseconds.
    pub frame_age_ms: Option<f64>,
}

/// Encodes a `gantry.camera/1`.
#[must_use]
pub fn camera_state(identity: &Identity, camera: &CameraId, told: CameraTold<'_>) -> Bytes {
    let CameraTold { state, reason, since, frame_age_ms } = told;
    let event = CameraEvent {
        schema: "gantry.camera/1",
        node: &identity.node,
        camera: camera.as_str(),
        boot_id: &identity.boot_id,
        state,
        reason,
        since,
        frame_age_ms,
    };
    json(&event, 256)
}

/// Encodes a `gantry.health/1`.
#[must_use]
pub fn health(identity: &Identity, at: Stamp, uptime: Duration, counters: &Snapshot) -> Bytes {
    let event = HealthEvent {
        schema: "gantry.health/1",
        node: &identity.node,
        boot_id: &identity.boot_id,
        version: &identity.version,
        at,
        uptime_s: ms(u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)),
        counters,
    };
    json(&event, 4096)
}

fn json(event: &impl Serialize, capacity: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(capacity);
    write_json(event, &mut bytes);
    Bytes::from(bytes)
}

fn write_json(event: &impl Serialize, memory: impl std::io::Write) {
    serde_json::to_writer(memory, event)
        .expect("messages have string keys only, and writing to memory does not fail");
}

fn tell_not_finite(camera: &CameraId, model: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        error!(%camera, model, "a detection with a number that is not finite was left out of its message; told once");
    });
}

/// Each stage in milliseconds to the microsecond. The ends of the stages are rounded, not their lengths, so that the sum
/// is the rounded whole.
fn stages_ms(stages: &Stages<Duration>) -> Stages<f64> {
    let (mut end, mut rounded) = (Duration::ZERO, 0);
    stages.map(|stage| {
        end = end.saturating_add(stage);
        let begin = std::mem::replace(&mut rounded, micros(end));
        ms(rounded - begin)
    })
}

fn micros(duration: Duration) -> u64 {
    let half_up = duration.saturating_add(Duration::from_nanos(500));
    u64::try_from(half_up.as_micros()).unwrap_or(u64::MAX)
}

/// Thousandths as whole ones. The quotient is the double nearest to the decimal, so at most three decimals are printed.
#[expect(clippy::cast_precision_loss, reason = "exact up to 285 years of microseconds")]
fn ms(micros: u64) -> f64 {
    micros as f64 / 1e3
}

#[cfg(test)]
mod tests;
