//! Every key: its kind, its default, its meaning.
//!
//! This table is the only list of keys. The checks, the nearest-key hints, the JSON Schema and the test of the reference
//! file are made from it.

mod picture;
mod publish;
mod realtime;
mod usb;

use std::time::Duration;

use crate::source::integrity::OnLoss;
use crate::source::thinning::VideoDecode;

/// A key of a section.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is when it is not written.
    pub presence: Presence,
    /// A value that could be written, as YAML; empty for a section and where there is a default.
    pub example: &'static str,
    /// What it means, in one line.
    pub meaning: &'static str,
}

/// What a key takes.
#[derive(Debug)]
pub enum Kind {
    /// Text without control characters, not empty.
    Text,
    /// A name that is one segment of an MQTT topic.
    Segment,
    /// Such names, joined by `/`.
    Segments,
    /// A file or directory; relative to the config file's directory.
    Path,
    /// The name of an environment variable.
    Variable,
    /// `true` or `false`.
    Boolean,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number from the first to the second.
    Integer(u64, u64),
    /// A number from the first to the second.
    Number(f64, f64),
    /// A time with its unit, from the first to the second.
    Duration(Duration, Duration),
    /// Width and height in pixels, `640x480`.
    Size,
    /// A control of a USB camera and its value, `brightness=128`.
    Control,
    /// A time with its unit, from the first to the second, or `off`.
    Limit(Duration, Duration),
    /// A camera's address.
    Address,
    /// A broker's address.
    Broker,
    /// A model: `name` or `name@version`.
    Model,
    /// How a thread shares its CPUs: `normal`, `nice 5`, `fifo 20` or `rr 20`.
    Scheduling,
    /// An address and port of this machine, or `off`.
    Listen,
    /// A section: these keys.
    Map(&'static [Key]),
    /// A list of such values.
    List(&'static Kind),
}

/// What a key is when it is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be written.
    Required,
    /// This, as YAML; of a section, that each of its keys is its own default.
    Default(&'static str),
    /// What these words say.
    Computed(&'static str),
    /// Nothing.
    Optional,
}

/// A key somewhere in the table.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The section that it belongs to, as `cameras[].detect[]`; empty for the top.
    pub section: String,
    /// The key.
    pub key: &'static Key,
}

/// The top of the file.
pub static ROOT: &[Key] = &[
    Key {
        name: "node",
        kind: Kind::Segment,
        presence: Presence::Computed("the host name"),
        example: "line-7",
        meaning: "name of this machine, one segment of each MQTT topic; the host name when not given",
    },
    Key {
        name: "devices",
        kind: Kind::List(&Kind::Map(DEVICE)),
        presence: Presence::Computed(
            "one device cpu0 with backend auto and a thread for each CPU, at most 4",
        ),
        example: "[{id: cpu0}]",
        meaning: "what runs the models; when not given, one device cpu0 with a thread for each CPU, at most 4",
    },
    Key {
        name: "models",
        kind: Kind::Map(MODELS),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "the models on this machine",
    },
    Key {
        name: "cameras",
        kind: Kind::List(&Kind::Map(CAMERA)),
        presence: Presence::Required,
        example: r#"[{id: press-1, source: "rtsp://10.0.0.7/stream1", detect: [{model: line-parts}]}]"#,
        meaning: "the cameras and the models that look at them; at least one",
    },
    Key {
        name: "batching",
        kind: Kind::Map(BATCHING),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "how frames are put together for one run of a model",
    },
    Key {
        name: "realtime",
        kind: Kind::Map(realtime::REALTIME),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "what keeps Gantry on time while the machine is busy; `gantry probe` tells what this machine grants",
    },
    Key {
        name: "publish",
        kind: Kind::Map(publish::PUBLISH),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "where results go: to standard output, to a broker, or to both",
    },
    Key {
        name: "admin",
        kind: Kind::Map(ADMIN),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "the daemon's own HTTP server: /metrics, /live, /ready, /status",
    },
];

/// An entry of `devices`.
pub static DEVICE: &[Key] = &[
    Key {
        name: "id",
        kind: Kind::Segment,
        presence: Presence::Required,
        example: "cpu0",
        meaning: "name of the device; stands in each message",
    },
    Key {
        name: "backend",
        kind: Kind::Choice(&["auto", "embedded", "onnxruntime", "fake"]),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "what runs models on it: auto (the fastest that is there), embedded, onnxruntime, fake",
    },
    Key {
        name: "threads",
        kind: Kind::Integer(1, 256),
        presence: Presence::Default("1"),
        example: "",
        meaning: "threads that one run of a model may use, 1 to 256",
    },
    Key {
        name: "cpus",
        kind: Kind::List(&realtime::CPU),
        presence: Presence::Computed("those of realtime.cpus.infer"),
        example: "[2, 3]",
        meaning: "the CPUs for its thread and those of its runtime; those of realtime.cpus.infer when not given",
    },
    Key {
        name: "library",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/opt/onnxruntime/lib/libonnxruntime.so",
        meaning: "ONNX Runtime's library, when it is not at one of the usual places",
    },
    Key {
        name: "fake",
        kind: Kind::Map(FAKE),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "what the backend `fake` does, for trials",
    },
];

/// `devices[].fake`.
pub static FAKE: &[Key] = &[
    Key {
        name: "run_time",
        kind: Kind::Duration(Duration::ZERO, Duration::from_secs(60)),
        presence: Presence::Default("0ms"),
        example: "",
        meaning: "how long each batch takes",
    },
    Key {
        name: "run_time_per_frame",
        kind: Kind::Duration(Duration::ZERO, Duration::from_secs(60)),
        presence: Presence::Default("0ms"),
        example: "",
        meaning: "how much longer it takes for each frame in it",
    },
    Key {
        name: "batch_sizes",
        kind: Kind::List(&Kind::Integer(1, 64)),
        presence: Presence::Optional,
        example: "[1, 2, 4, 8]",
        meaning: "the only batch sizes that run, 1 to 64 each, as of an engine that was built for them; any when not given",
    },
    Key {
        name: "fail_every",
        kind: Kind::Integer(1, u32::MAX as u64),
        presence: Presence::Optional,
        example: "100",
        meaning: "of so many batches one fails",
    },
    Key {
        name: "fail_after",
        kind: Kind::Integer(0, u32::MAX as u64),
        presence: Presence::Optional,
        example: "1000",
        meaning: "after so many batches every one fails; those of the warm-up count",
    },
    Key {
        name: "hang_after",
        kind: Kind::Integer(0, u32::MAX as u64),
        presence: Presence::Optional,
        example: "1000",
        meaning: "after so many batches the next one never returns; those of the warm-up count",
    },
    Key {
        name: "outputs",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "outputs.f32",
        meaning: "little-endian 32-bit floats that its models give: for each frame all outputs in turn, then from the start; zeros when not given",
    },
];

/// `models`.
pub static MODELS: &[Key] = &[Key {
    name: "dir",
    kind: Kind::Path,
    presence: Presence::Default("../models"),
    example: "",
    meaning: "where they are: <dir>/<name>/<version>/model.yaml",
}];

/// An entry of `cameras`.
pub static CAMERA: &[Key] = &[
    Key {
        name: "id",
        kind: Kind::Segment,
        presence: Presence::Required,
        example: "press-1",
        meaning: "name of the camera, one segment of its MQTT topics",
    },
    Key {
        name: "source",
        kind: Kind::Address,
        presence: Presence::Required,
        example: "rtsp://10.0.0.7/stream1",
        meaning: "rtsp://host/…, rtsps://host/…, v4l2:///dev/video0, file://video.mp4, or test://pattern?size=640x480&rate=25",
    },
    Key {
        name: "enabled",
        kind: Kind::Boolean,
        presence: Presence::Default("true"),
        example: "",
        meaning: "whether it is used; one that is not is told as `disabled`",
    },
    Key {
        name: "username",
        kind: Kind::Text,
        presence: Presence::Optional,
        example: "viewer",
        meaning: "user name of an RTSP camera",
    },
    Key {
        name: "password_file",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/run/credentials/gantry.service/press-1",
        meaning: "file that holds its password and nothing else",
    },
    Key {
        name: "password_env",
        kind: Kind::Variable,
        presence: Presence::Optional,
        example: "PRESS_1_PASSWORD",
        meaning: "environment variable that holds its password, in place of password_file",
    },
    Key {
        name: "ca_file",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/etc/gantry/press-1.pem",
        meaning: "certificates to trust for an rtsps camera, PEM: its own or its authority's; the system's when not given",
    },
    Key {
        name: "transport",
        kind: Kind::Choice(&["tcp", "udp", "auto"]),
        presence: Presence::Default("tcp"),
        example: "",
        meaning: "how an RTSP camera's pictures come: tcp, udp, or auto (udp, and tcp where none come)",
    },
    Key {
        name: "udp_buffer",
        kind: Kind::Integer(65_536, 268_435_456),
        presence: Presence::Default("2097152"),
        example: "",
        meaning: "bytes of the kernel's buffer for an RTSP camera's datagrams, 65536 to 268435456; net.core.rmem_max is its limit",
    },
    Key {
        name: "stale_after",
        kind: Kind::Duration(Duration::from_millis(500), Duration::from_secs(600)),
        presence: Presence::Default("3s"),
        example: "",
        meaning: "a live camera without a good frame for so long is `stale`, and opened anew, 500ms to 10m",
    },
    Key {
        name: "damaged_max",
        kind: Kind::Number(0.01, 1.0),
        presence: Presence::Default("0.2"),
        example: "",
        meaning: "a camera of whose pictures a larger share is damaged, over 5 s, is `corrupt`, 0.01 to 1",
    },
    Key {
        name: "cpus",
        kind: Kind::List(&realtime::CPU),
        presence: Presence::Computed("those of realtime.cpus.source"),
        example: "[0, 1]",
        meaning: "the CPUs for its threads and those of its video decoder; those of realtime.cpus.source when not given",
    },
    Key {
        name: "video_decode",
        kind: Kind::Choice(&VideoDecode::NAMES),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "which pictures are decoded: all, keyframes, or auto (key frames only, where each of its models has a rate_max that they suffice for)",
    },
    Key {
        name: "usb",
        kind: Kind::Map(usb::USB),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "how a USB camera is set up; what it cannot do is told, and the nearest is taken",
    },
    Key {
        name: "on_loss",
        kind: Kind::Choice(&OnLoss::NAMES),
        presence: Presence::Default("skip"),
        example: "",
        meaning: "pictures after a loss, until the next key frame: skip them, as they may be smeared, or infer on them all the same",
    },
    Key {
        name: "late_after",
        kind: Kind::Duration(Duration::from_millis(50), Duration::from_secs(600)),
        presence: Presence::Default("500ms"),
        example: "",
        meaning: "an RTSP camera's pictures that come so much later than its fastest ones are skipped, 50ms to 10m",
    },
    Key {
        name: "picture",
        kind: Kind::Map(picture::PICTURE),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "when there is nothing to see in its pictures",
    },
    Key {
        name: "region",
        kind: Kind::Map(REGION),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "the part of its picture that the models see; boxes are told in pixels of the whole picture",
    },
    Key {
        name: "detect",
        kind: Kind::List(&Kind::Map(DETECT)),
        presence: Presence::Required,
        example: "[{model: line-parts}]",
        meaning: "the models that look at it; at least one",
    },
];

/// The largest side of a picture that a region may be in.
const SIDE_MAX: u64 = 65_535;

/// `cameras[].region`.
pub static REGION: &[Key] = &[
    Key {
        name: "x",
        kind: Kind::Integer(0, SIDE_MAX),
        presence: Presence::Default("0"),
        example: "",
        meaning: "its left edge, in pixels from the picture's",
    },
    Key {
        name: "y",
        kind: Kind::Integer(0, SIDE_MAX),
        presence: Presence::Default("0"),
        example: "",
        meaning: "its top edge, in pixels from the picture's",
    },
    Key {
        name: "width",
        kind: Kind::Integer(1, SIDE_MAX),
        presence: Presence::Computed("up to the right edge"),
        example: "1280",
        meaning: "its width in pixels; up to the right edge when not given",
    },
    Key {
        name: "height",
        kind: Kind::Integer(1, SIDE_MAX),
        presence: Presence::Computed("up to the bottom edge"),
        example: "720",
        meaning: "its height in pixels; up to the bottom edge when not given",
    },
];

/// An entry of `cameras[].detect`.
pub static DETECT: &[Key] = &[
    Key {
        name: "model",
        kind: Kind::Model,
        presence: Presence::Required,
        example: "line-parts",
        meaning: "name of a model in models.dir, or name@version; its newest version when none is given",
    },
    Key {
        name: "devices",
        kind: Kind::List(&Kind::Text),
        presence: Presence::Computed("the first device"),
        example: "[cpu0]",
        meaning: "ids of the devices that may run it; the first device when not given",
    },
    Key {
        name: "rate_max",
        kind: Kind::Number(0.01, 1000.0),
        presence: Presence::Optional,
        example: "10",
        meaning: "at most so many frames a second, 0.01 to 1000; every frame when not given",
    },
    Key {
        name: "deadline",
        kind: Kind::Duration(Duration::from_millis(1), Duration::from_secs(600)),
        presence: Presence::Optional,
        example: "80ms",
        meaning: "a result later than this after its frame's arrival is not made, 1ms to 10m; any when not given",
    },
    Key {
        name: "publish_late",
        kind: Kind::Boolean,
        presence: Presence::Default("false"),
        example: "",
        meaning: "whether a result after its deadline is made all the same, and marked as late",
    },
    Key {
        name: "quality",
        kind: Kind::Choice(&["realtime", "standard", "best_effort"]),
        presence: Presence::Default("standard"),
        example: "",
        meaning: "who comes first on the device: realtime (deadlines are kept), standard, best_effort (what is left)",
    },
    Key {
        name: "weight",
        kind: Kind::Integer(1, 100),
        presence: Presence::Default("1"),
        example: "",
        meaning: "its share of a busy device among those of its quality, 1 to 100: 2 gets twice as many frames as 1",
    },
    Key {
        name: "score_min",
        kind: Kind::Number(0.0, 1.0),
        presence: Presence::Optional,
        example: "0.4",
        meaning: "detections below this score are not reported, 0 to 1; the model's own threshold when not given",
    },
];

/// `batching`.
pub static BATCHING: &[Key] = &[
    Key {
        name: "size_max",
        kind: Kind::Integer(1, 64),
        presence: Presence::Default("8"),
        example: "",
        meaning: "the most frames in one batch, 1 to 64",
    },
    Key {
        name: "queue_delay_max",
        kind: Kind::Duration(Duration::ZERO, Duration::from_secs(1)),
        presence: Presence::Default("5ms"),
        example: "",
        meaning: "the longest that a batch's first frame waits for others, 0ms to 1s",
    },
];

/// `admin`.
pub static ADMIN: &[Key] = &[Key {
    name: "listen",
    kind: Kind::Listen,
    presence: Presence::Computed("127.0.0.1:9464, if that is free"),
    example: "127.0.0.1:9464",
    meaning: "address and port that it listens on (port 0: any that is free), or off; it asks for no password, and only this machine reaches 127.0.0.1; 127.0.0.1:9464 if that is free when not given",
}];

/// Every key of the table, a section before what is in it.
#[must_use]
pub fn all() -> Vec<Placed> {
    let mut keys = Vec::new();
    collect(ROOT, "", &mut keys);
    keys
}

/// The key of this name in a section.
#[must_use]
pub fn find(keys: &'static [Key], name: &str) -> Option<&'static Key> {
    keys.iter().find(|key| key.name == name)
}

impl Kind {
    /// The keys of a section, or of each section of a list.
    #[must_use]
    pub fn keys(&self) -> Option<&'static [Key]> {
        match self {
            Self::Map(keys) => Some(keys),
            Self::List(item) => item.keys(),
            _ => None,
        }
    }

    /// Whether it is a section or a list.
    #[must_use]
    pub fn is_container(&self) -> bool {
        matches!(self, Self::Map(_) | Self::List(_))
    }
}

impl Placed {
    /// Its path, as `cameras[].detect[].model`.
    #[must_use]
    pub fn path(&self) -> String {
        crate::yaml::join(&self.section, self.key.name)
    }
}

fn collect(keys: &'static [Key], section: &str, into: &mut Vec<Placed>) {
    for key in keys {
        let placed = Placed { section: section.to_owned(), key };
        let path = placed.path();
        into.push(placed);
        match &key.kind {
            Kind::Map(keys) => collect(keys, &path, into),
            Kind::List(Kind::Map(keys)) => collect(keys, &format!("{path}[]"), into),
            _ => {}
        }
    }
}
