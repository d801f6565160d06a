//! `cameras[].usb`: how a USB camera is set up.

use super::{Key, Kind, Presence};
use crate::source::usb::UsbFormat;

/// `cameras[].usb`.
pub(super) static USB: &[Key] = &[
    Key {
        name: "format",
        kind: Kind::Choice(&UsbFormat::NAMES),
        presence: Presence::Default("auto"),
        example: "",
        meaning: "how it sends its pictures: nv12, yuyv, uyvy, grey, mjpg, h264, or auto (not compressed, where that is fast enough)",
    },
    Key {
        name: "size",
        kind: Kind::Size,
        presence: Presence::Computed("the largest up to 1920x1080 that is fast enough"),
        example: "1280x720",
        meaning: "width and height; the largest up to 1920x1080 that is fast enough when not given",
    },
    Key {
        name: "rate",
        kind: Kind::Number(0.01, 1000.0),
        presence: Presence::Computed("the highest, of modes that reach 25"),
        example: "30",
        meaning: "frames a second; the highest, of modes that reach 25, when not given",
    },
    Key {
        name: "controls",
        kind: Kind::List(&Kind::Control),
        presence: Presence::Optional,
        example: "[auto_exposure=1, exposure_time_absolute=150]",
        meaning: "what its controls are set to, in this order; `v4l2-ctl --list-ctrls` shows their names",
    },
];
