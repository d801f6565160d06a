//! The keys of `publish`.

use super::{Key, Kind, Presence};

/// `publish`.
pub(super) static PUBLISH: &[Key] = &[
    Key {
        name: "detections",
        kind: Kind::Choice(&["nonempty", "every_frame"]),
        presence: Presence::Default("nonempty"),
        example: "",
        meaning: "which results become a message: nonempty (those with a detection) or every_frame",
    },
    Key {
        name: "stdout",
        kind: Kind::Boolean,
        presence: Presence::Default("false"),
        example: "",
        meaning: "whether each message is also a line on standard output",
    },
    Key {
        name: "mqtt",
        kind: Kind::Map(MQTT),
        presence: Presence::Optional,
        example: "",
        meaning: "the broker; no MQTT without this section",
    },
];

/// `publish.mqtt`.
static MQTT: &[Key] = &[
    Key {
        name: "broker",
        kind: Kind::Broker,
        presence: Presence::Required,
        example: "mqtts://broker:8883",
        meaning: "mqtts://host:port (TLS) or mqtt://host:port (not encrypted); port 8883 or 1883 when not given",
    },
    Key {
        name: "ca_file",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/etc/gantry/ca.pem",
        meaning: "certificates to trust, PEM; the system's when not given",
    },
    Key {
        name: "cert_file",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/etc/gantry/client.pem",
        meaning: "our certificate, PEM, where the broker asks for one; needs key_file",
    },
    Key {
        name: "key_file",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/run/credentials/gantry.service/client.key",
        meaning: "its private key, PEM",
    },
    Key {
        name: "username",
        kind: Kind::Text,
        presence: Presence::Optional,
        example: "line-7",
        meaning: "user name at the broker",
    },
    Key {
        name: "password_file",
        kind: Kind::Path,
        presence: Presence::Optional,
        example: "/run/credentials/gantry.service/mqtt",
        meaning: "file that holds the password and nothing else",
    },
    Key {
        name: "password_env",
        kind: Kind::Variable,
        presence: Presence::Optional,
        example: "MQTT_PASSWORD",
        meaning: "environment variable that holds the password, in place of password_file",
    },
    Key {
        name: "client_id",
        kind: Kind::Text,
        presence: Presence::Computed("gantry-<node>"),
        example: "gantry-line-7",
        meaning: "name of this client at the broker, unlike any other's; gantry-<node> when not given",
    },
    Key {
        name: "qos",
        kind: Kind::Integer(0, 2),
        presence: Presence::Default("1"),
        example: "",
        meaning: "how surely a message arrives: 0 (at most once), 1 (at least once), 2 (exactly once)",
    },
    Key {
        name: "prefix",
        kind: Kind::Segments,
        presence: Presence::Default("gantry"),
        example: "",
        meaning: "what each topic begins with: <prefix>/<node>/…; may have several segments",
    },
    Key {
        name: "queue",
        kind: Kind::Integer(1, 1_000_000),
        presence: Presence::Default("1000"),
        example: "",
        meaning: "messages that wait while the broker is away, 1 to 1000000; then the oldest is dropped",
    },
];
