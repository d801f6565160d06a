//! Which frames run next on a device, and when. Pure: deciders take `now`, and allocate only when they are made.
//!
//! [`plan`] is the decider: one [`plan::Scheduler`] a device, over all its models and cameras. It asks [`fairness`] who is
//! first, [`batcher`] when a batch is sealed, [`run_time`] what a batch costs and how frames are best split into batches,
//! [`arrivals`] when a camera delivers next, `foresight` what must not be begun for that, `filling` which frame joins a batch in
//! whose place, and [`admission`] whether realtime cameras ask for more than the device can do.
//!
//! # Quality
//!
//! `realtime` comes before `standard`, and `standard` before `best_effort`: strictly, so under overload `best_effort` gives
//! way first and may get nothing, then `standard` gives way evenly by weight. A better frame waits for at most the one batch
//! that runs. For a realtime frame with a `deadline` not even for that, if its camera is periodic: what could delay it too
//! much is not begun. A realtime frame without a `deadline` comes first all the same, and nothing is held back for it, since
//! nobody said by when it must be done.

pub mod admission;
pub mod arrivals;
pub mod batcher;
pub mod fairness;
mod filling;
mod foresight;
pub mod plan;
pub mod run_time;

use std::time::Duration;

use plan::RouteSpec;

/// One entry of a camera's `detect` list: a model that looks at the camera.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectConfig {
    /// The model's name, or `name@version`.
    pub model: String,
    /// Ids of the devices that may run it; the first is used. Empty: the first device of the config.
    pub devices: Vec<String>,
    /// At most so many frames a second, evenly spaced.
    pub rate_max: Option<f64>,
    /// A result is wanted within this time of the frame's arrival.
    pub deadline: Option<Duration>,
    /// What becomes of a result that comes later.
    pub late: Late,
    /// Who comes first.
    pub quality: Quality,
    /// Its share among those of its quality, at least 1.
    pub weight: u32,
    /// Detections below this score are not reported; the model's own threshold, when none.
    pub score_min: Option<f32>,
}

impl DetectConfig {
    /// How its frames are scheduled, in the first lane.
    #[must_use]
    pub fn route(&self) -> RouteSpec {
        RouteSpec {
            lane: 0,
            quality: self.quality,
            weight: self.weight,
            deadline: self.deadline,
            late: self.late,
            rate_max: self.rate_max,
        }
    }
}

/// Who comes first, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quality {
    /// First; deadlines are kept as long as the device alone could.
    Realtime,
    /// Then these, evenly by weight.
    #[default]
    Standard,
    /// What is left.
    BestEffort,
}

impl Quality {
    /// Every quality, best first.
    pub const ALL: [Self; 3] = [Self::Realtime, Self::Standard, Self::BestEffort];

    /// The name in configs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::Standard => "standard",
            Self::BestEffort => "best_effort",
        }
    }
}

/// What becomes of a frame whose result would come after its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// It gets no result.
    #[default]
    Drop,
    /// Its result is published and marked as late.
    Publish,
}

/// The `batching` section of a config.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchingConfig {
    /// The most frames in a batch.
    pub size_max: usize,
    /// The longest that the first frame of a batch waits for others.
    pub queue_delay_max: Duration,
}
