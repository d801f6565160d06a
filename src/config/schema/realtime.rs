//! The keys of `realtime`.

use super::{Key, Kind, Presence};
use crate::threads::cpus;

/// The number of a CPU.
pub(super) static CPU: Kind = Kind::Integer(0, cpus::NUMBER_MAX as u64);

/// `realtime`.
pub(super) static REALTIME: &[Key] = &[
    Key {
        name: "lock_memory",
        kind: Kind::Choice(&["require", "auto", "off"]),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "all memory locked in RAM: require (it does not start without), auto (where the limits allow it), off",
    },
    Key {
        name: "huge_pages",
        kind: Kind::Choice(&["require", "auto", "off"]),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "frames and tensors on huge pages: require (it does not start without), auto (where there are some), off",
    },
    Key {
        name: "cpus",
        kind: Kind::Map(CPUS),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "the CPUs for each kind of thread; `gantry probe` suggests some",
    },
    Key {
        name: "scheduling",
        kind: Kind::Map(SCHEDULING),
        presence: Presence::Default("{}"),
        example: "",
        meaning: "how each kind of thread shares its CPUs: normal, nice N (-20 gets the most of them, 19 the least), fifo P or rr P (before all others; P is 1 to 98)",
    },
];

/// `realtime.cpus`.
static CPUS: &[Key] = &[
    Key {
        name: "source",
        kind: Kind::List(&CPU),
        presence: Presence::Computed("those that Gantry was started on"),
        example: "[0, 1]",
        meaning: "for cameras and video decoders; those that Gantry was started on when not given",
    },
    Key {
        name: "infer",
        kind: Kind::List(&CPU),
        presence: Presence::Computed("those that Gantry was started on"),
        example: "[2, 3]",
        meaning: "for devices and the runtimes on them; those that Gantry was started on when not given",
    },
    Key {
        name: "io",
        kind: Kind::List(&CPU),
        presence: Presence::Computed("those that Gantry was started on"),
        example: "[0]",
        meaning: "for all else: MQTT, standard output, supervision; those that Gantry was started on when not given",
    },
];

/// `realtime.scheduling`.
static SCHEDULING: &[Key] = &[
    Key {
        name: "source",
        kind: Kind::Scheduling,
        presence: Presence::Default("normal"),
        example: "",
        meaning: "for cameras and video decoders",
    },
    Key {
        name: "infer",
        kind: Kind::Scheduling,
        presence: Presence::Default("normal"),
        example: "",
        meaning: "for devices and the runtimes on them; fifo and rr only where no model runs on the CPU, or with force_infer",
    },
    Key {
        name: "io",
        kind: Kind::Scheduling,
        presence: Presence::Default("normal"),
        example: "",
        meaning: "for all else",
    },
    Key {
        name: "force_infer",
        kind: Kind::Boolean,
        presence: Presence::Default("false"),
        example: "",
        meaning: "whether a model on the CPU may have fifo or rr; no video is decoded on its CPUs while it works",
    },
    Key {
        name: "grant",
        kind: Kind::Choice(&["require", "auto"]),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "when the kernel refuses any of these: require (Gantry does not start), auto (it goes on without, and says so)",
    },
];
