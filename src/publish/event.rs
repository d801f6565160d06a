//! The wire contract: every message that Gantry publishes, and its topic.
//!
//! JSON Schemas are in `config/schema/`; a test holds real messages against them. Numbers are finite: a NaN never reaches
//! a message. Times are RFC 3339, UTC, with exactly six decimals. [`super::encode`] makes the messages.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::postprocess::Detection;
use crate::telemetry::{Snapshot, Stages};

/// `gantry.detections/1`: what one model saw in one frame. Topic `<prefix>/<node>/camera/<id>/detections`.
///
/// Over MQTT with QoS 1 or 2 a message that the broker had not acknowledged when a connection broke is sent again on the
/// next one, so a subscriber may get it twice; `boot_id`, the topic and `seq` name it.
#[derive(Clone, Debug, Serialize)]
pub struct DetectionEvent<'a> {
    /// `gantry.detections/1`.
    pub schema: &'static str,
    /// The machine.
    pub node: &'a str,
    /// The camera.
    pub camera: &'a str,
    /// New at each start of the daemon.
    pub boot_id: &'a str,
    /// Number of the message on its topic since the start, from 1. A gap is a proven loss.
    pub seq: u64,
    /// When the picture was taken.
    pub captured_at: Stamp,
    /// Whose clock says so.
    pub capture_clock: &'static str,
    /// How many milliseconds `captured_at` may be off if that clock is right; null where nothing tells.
    pub capture_error_ms: Option<f64>,
    /// When the picture's data entered the video decoder.
    pub received_at: Stamp,
    /// Milliseconds from `captured_at` to the event; null for a file, whose pictures have no age.
    pub age_ms: Option<f64>,
    /// Whether it came after its deadline; only where `publish_late` asks for those.
    pub late: bool,
    /// The state that the camera was in when the picture came: what is seen in a frozen picture is no news.
    pub camera_state: &'static str,
    /// Who looked.
    pub model: ModelRef<'a>,
    /// The picture.
    pub frame: FrameRef,
    /// What was found, best first.
    pub detections: DetectionList<'a>,
    /// How long each stage took, in milliseconds to the microsecond. Their sum is the time from `received_at` to the
    /// event.
    pub stage_ms: Stages<f64>,
}

/// The model in a [`DetectionEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelRef<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The device that ran it.
    pub device: &'a str,
}

/// The picture in a [`DetectionEvent`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FrameRef {
    /// The camera's frame number since the start, from 1.
    pub id: u64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// The objects in a [`DetectionEvent`]: an array of [`DetectionEntry`]. One with a number that is not finite is left out,
/// since a message can neither hold it nor replace it by an honest one.
#[derive(Clone, Copy, Debug)]
pub struct DetectionList<'a> {
    /// What was found.
    pub detections: &'a [Detection],
    /// Names of the classes.
    pub labels: &'a [String],
}

/// One object in a [`DetectionEvent`].
#[derive(Clone, Debug, Serialize)]
pub struct DetectionEntry<'a> {
    /// Name of its class.
    pub label: Label<'a>,
    /// Index of its class.
    pub class_id: u32,
    /// Confidence, 0..=1.
    pub score: f32,
    /// Where.
    pub r#box: BoxEntry,
}

/// The name of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// As the model has it.
    Named(&'a str),
    /// `class_<id>`, where the model has no name for it.
    Numbered(u32),
}

/// A box in pixels of the camera's picture, origin top left; no number is negative.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BoxEntry {
    /// Left edge.
    pub x: f32,
    /// Top edge.
    pub y: f32,
    /// Width.
    pub w: f32,
    /// Height.
    pub h: f32,
}

/// `gantry.status/1`: whether the daemon is there. Topic `<prefix>/<node>/status`, retained; the will is one of these.
#[derive(Clone, Debug, Serialize)]
pub struct StatusEvent<'a> {
    /// `gantry.status/1`.
    pub schema: &'static str,
    /// The machine.
    pub node: &'a str,
    /// New at each start of the daemon.
    pub boot_id: &'a str,
    /// Whether it is there.
    pub status: Status,
    /// Why.
    pub reason: StatusReason,
    /// Gantry's version.
    pub version: &'a str,
    /// Since when. A will is written before it is needed: it has the time when its connection was made.
    pub since: Stamp,
}

/// Whether the daemon is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is connected to the broker.
    Online,
    /// It is not.
    Offline,
}

/// Why a daemon is online or offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusReason {
    /// Online: the first connection since the daemon's start.
    Started,
    /// Online: a later connection of the same run.
    Reconnected,
    /// Offline: the daemon was told to stop.
    Stopped,
    /// Offline: the broker found the connection gone and published the will.
    #[serde(rename = "connection lost")]
    ConnectionLost,
}

impl StatusReason {
    /// Which status it is a reason for.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Started | Self::Reconnected => Status::Online,
            Self::Stopped | Self::ConnectionLost => Status::Offline,
        }
    }
}

/// `gantry.camera/1`: a camera's state. Topic `<prefix>/<node>/camera/<id>/state`, retained.
#[derive(Clone, Debug, Serialize)]
pub struct CameraEvent<'a> {
    /// `gantry.camera/1`.
    pub schema: &'static str,
    /// The machine.
    pub node: &'a str,
    /// The camera.
    pub camera: &'a str,
    /// New at each start of the daemon.
    pub boot_id: &'a str,
    /// The state's name.
    pub state: &'a str,
    /// Why, in words, where there is a why.
    pub reason: Option<&'a str>,
    /// Since when it is in this state.
    pub since: Stamp,
    /// Milliseconds from when the picture of its newest good frame was taken to this message; null before the first.
    pub frame_age_ms: Option<f64>,
}

/// `gantry.health/1`: every counter. Topic `<prefix>/<node>/health`, every 10 s, QoS 0, not retained.
#[derive(Clone, Debug, Serialize)]
pub struct HealthEvent<'a> {
    /// `gantry.health/1`.
    pub schema: &'static str,
    /// The machine.
    pub node: &'a str,
    /// New at each start of the daemon.
    pub boot_id: &'a str,
    /// Gantry's version.
    pub version: &'a str,
    /// When.
    pub at: Stamp,
    /// Seconds since the start, to the millisecond.
    pub uptime_s: f64,
    /// All counters.
    #[serde(flatten)]
    pub counters: &'a Snapshot,
}

/// A wall-clock time as messages have it: RFC 3339, UTC, six decimals, `Z`. Times before 1970, which only a broken clock
/// tells, become 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(Timestamp);

impl Stamp {
    /// The stamp of `at`, cut to the microsecond.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        Self(at.max(Timestamp::UNIX_EPOCH))
    }

    /// The stamp of this moment.
    #[must_use]
    pub fn now() -> Self {
        Self::new(Timestamp::now())
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Label<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => serializer.serialize_str(name),
            Self::Numbered(class_id) => serializer.collect_str(&format_args!("class_{class_id}")),
        }
    }
}

impl Serialize for DetectionList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

impl<'a> DetectionList<'a> {
    /// The entries, in their order.
    pub fn entries(&self) -> impl Iterator<Item = DetectionEntry<'a>> + use<'a> {
        let labels = self.labels;
        self.detections.iter().filter(|detection| is_finite(detection)).map(move |detection| {
            let index = usize::try_from(detection.class_id).ok();
            let label = index.and_then(|index| labels.get(index));
            let label = label.map_or(Label::Numbered(detection.class_id), |label| Label::Named(label));
            // The decoder has clipped already; this holds the schema's bounds against its rounding, and -0.0.
            let edge = |value: f32| if value > 0.0 { value } else { 0.0 };
            let bbox = detection.bbox;
            DetectionEntry {
                label,
                class_id: detection.class_id,
                score: edge(detection.score.min(1.0)),
                r#box: BoxEntry { x: edge(bbox.x), y: edge(bbox.y), w: edge(bbox.w), h: edge(bbox.h) },
            }
        })
    }
}

/// Whether every number of a detection is finite.
pub(super) fn is_finite(detection: &Detection) -> bool {
    let bbox = detection.bbox;
    [detection.score, bbox.x, bbox.y, bbox.w, bbox.h].into_iter().all(f32::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_six_decimals_and_is_never_before_1970() {
        let at = |text: &str| Stamp::new(text.parse().unwrap()).to_string();
        assert_eq!(at("2026-11-30T21:04:05Z"), "2026-11-30T21:04:05.000000Z");
        assert_eq!(at("2026-11-30T22:04:05.1234569+01:00"), "2026-11-30T21:04:05.123456Z");
        assert_eq!(Stamp::new(Timestamp::MIN).to_string(), "1970-01-01T00:00:00.000000Z");
        assert!(Stamp::new(Timestamp::MAX).to_string().starts_with("9999-12-"));
    }

    #[test]
    fn a_reason_belongs_to_one_status() {
        assert_eq!(StatusReason::Reconnected.status(), Status::Online);
        assert_eq!(StatusReason::ConnectionLost.status(), Status::Offline);
        assert_eq!(serde_json::to_string(&StatusReason::ConnectionLost).unwrap(), "\"connection lost\"");
    }
}
