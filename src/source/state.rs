//! The states of a camera.
//!
//! ```text
//! connecting ─▶ prerolling ─▶ live ◀─▶ stale, frozen, dark, corrupt
//!                  ▲            └───────────┬─────────┘
//!                  │                        ▼
//!                  └──── reconnecting, failed (a person must mend it)
//! ```
//!
//! A file that is read once is `ended` after its last frame, and `failed` for good when it cannot be read. A camera that the
//! config switches off is `disabled`. [`super::watch`] decides what leads from one to the next.

/// What a camera is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameraState {
    /// The config switches it off.
    Disabled,
    /// Being opened for the first time.
    Connecting,
    /// It is open, and no good picture was decoded yet.
    Prerolling,
    /// Good pictures come.
    Live,
    /// No good picture has come for `stale_after`.
    Stale {
        /// For how long, and what comes instead, in words.
        reason: String,
    },
    /// Pictures come, and they are always the same.
    Frozen {
        /// Since when, in words.
        reason: String,
    },
    /// Pictures come, and there is nothing to see in them.
    Dark {
        /// What they are like, in words.
        reason: String,
    },
    /// Many of the pictures that come are damaged.
    Corrupt {
        /// How many, in words.
        reason: String,
    },
    /// It failed or broke, for this reason, and is tried again and again.
    Reconnecting {
        /// Why, in words, without secrets.
        reason: String,
    },
    /// A file came to its end.
    Ended,
    /// A person must mend it.
    Failed {
        /// Why, in words, with the cure.
        reason: String,
        /// Whether it is tried again all the same, slowly. A file is not.
        is_retried: bool,
    },
}

impl CameraState {
    /// Every name.
    pub const NAMES: [&str; 11] = [
        "disabled",
        "connecting",
        "prerolling",
        "live",
        "stale",
        "frozen",
        "dark",
        "corrupt",
        "reconnecting",
        "ended",
        "failed",
    ];

    /// The name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        Self::NAMES[usize::from(self.number())]
    }

    /// Where its name is among [`Self::NAMES`].
    #[must_use]
    pub fn number(&self) -> u8 {
        match self {
            Self::Disabled => 0,
            Self::Connecting => 1,
            Self::Prerolling => 2,
            Self::Live => 3,
            Self::Stale { .. } => 4,
            Self::Frozen { .. } => 5,
            Self::Dark { .. } => 6,
            Self::Corrupt { .. } => 7,
            Self::Reconnecting { .. } => 8,
            Self::Ended => 9,
            Self::Failed { .. } => 10,
        }
    }

    /// Why, where there is a why.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Stale { reason }
            | Self::Frozen { reason }
            | Self::Dark { reason }
            | Self::Corrupt { reason }
            | Self::Reconnecting { reason }
            | Self::Failed { reason, .. } => Some(reason),
            Self::Disabled | Self::Connecting | Self::Prerolling | Self::Live | Self::Ended => None,
        }
    }

    /// Whether opening the camera has been tried, with whatever outcome.
    #[must_use]
    pub fn is_tried(&self) -> bool {
        !matches!(self, Self::Connecting | Self::Prerolling)
    }

    /// Whether no frame will ever come again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Disabled | Self::Ended | Self::Failed { is_retried: false, .. })
    }

    /// Whether its connection delivers pictures, good ones or not.
    #[must_use]
    pub fn has_pictures(&self) -> bool {
        matches!(self, Self::Live | Self::Frozen { .. } | Self::Dark { .. } | Self::Corrupt { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_name_of_its_own() {
        let reason = String::new;
        let states = [
            CameraState::Disabled,
            CameraState::Connecting,
            CameraState::Prerolling,
            CameraState::Live,
            CameraState::Stale { reason: reason() },
            CameraState::Frozen { reason: reason() },
            CameraState::Dark { reason: reason() },
            CameraState::Corrupt { reason: reason() },
            CameraState::Reconnecting { reason: reason() },
            CameraState::Ended,
            CameraState::Failed { reason: reason(), is_retried: true },
        ];
        let names = states.each_ref().map(CameraState::name);
        assert_eq!(names, CameraState::NAMES);
        assert_eq!(CameraState::Live.name(), "live");
    }
}
