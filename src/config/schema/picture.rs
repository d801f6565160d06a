//! `cameras[].picture`: when there is nothing to see.

use std::time::Duration;

use super::{Key, Kind, Presence};
use crate::source::picture::Watching;

/// `cameras[].picture`.
pub(super) static PICTURE: &[Key] = &[
    Key {
        name: "watch",
        kind: Kind::Choice(&Watching::NAMES),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "whether its pictures are watched: auto (those of a camera, and of a video that is played as if it were one), on, off",
    },
    Key {
        name: "frozen_after",
        kind: Kind::Limit(Duration::from_secs(2), Duration::from_secs(600)),
        presence: Presence::Default("4s"),
        example: "",
        meaning: "a camera whose picture does not change for so long is frozen, 2s to 10m, or off; the noise of a sensor is a change",
    },
    Key {
        name: "blind_after",
        kind: Kind::Duration(Duration::ZERO, Duration::from_secs(600)),
        presence: Presence::Default("2s"),
        example: "",
        meaning: "a camera whose picture is dark, washed out or uniform for so long is told to be, 0ms to 10m",
    },
    Key {
        name: "dark_below",
        kind: Kind::Number(0.0, 100.0),
        presence: Presence::Default("12"),
        example: "",
        meaning: "dark: nothing in the picture is brighter than so many percent of white; 0: never",
    },
    Key {
        name: "washed_out_above",
        kind: Kind::Number(0.0, 100.0),
        presence: Presence::Default("90"),
        example: "",
        meaning: "washed out: nothing in the picture is darker than so many percent of white; 100: never",
    },
    Key {
        name: "uniform_below",
        kind: Kind::Number(0.0, 100.0),
        presence: Presence::Default("3"),
        example: "",
        meaning: "uniform: nowhere does the picture differ from what is beside it by more than so many percent of white; 0: never",
    },
];
