//! Whether there is something to see in a camera's pictures: a pure decider.
//!
//! A camera that has hung often goes on sending: the same picture for ever, or a black one. Nothing on the wire says so; only
//! the pictures do. [`PictureWatch`] sees each one: of most it takes a few thousand samples of luma, and a few times a second
//! it looks at the whole picture. `frozen.rs` says whether the picture changes, `blind.rs` whether there is anything in it.

mod blind;
mod frozen;
mod luma;
mod newest;

use std::time::{Duration, Instant};

use super::thinning::Picture;
use super::{Address, CameraConfig, synthetic};
use crate::frame::Frame;
use blind::BlindWatch;
use frozen::FrozenWatch;
use luma::{Luma, Sampler, View};
pub use newest::NewestSight;

/// How far apart the looks at a whole picture are: 4 a second, and what is told within so many seconds is late by no more
/// than this.
const LOOK_EVERY: Duration = Duration::from_millis(240);

/// When there is nothing to see in a camera's pictures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureConfig {
    /// Whether its pictures are watched.
    pub watch: Watching,
    /// Pictures that have not changed for so long are frozen; none where that is not watched.
    pub frozen_after: Option<Duration>,
    /// Pictures in which there has been nothing to see for so long are dark, washed out or uniform.
    pub blind_after: Duration,
    /// A picture in which nothing is brighter than this, in percent of white, is dark; 0 where that is not watched.
    pub dark_below: f64,
    /// A picture in which nothing is darker than this, in percent of white, is washed out; 100 where that is not watched.
    pub washed_out_above: f64,
    /// A picture whose neighbouring parts differ nowhere by more than this, in percent of white, is uniform; 0 where that is
    /// not watched.
    pub uniform_below: f64,
}

/// Whether a camera's pictures are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// Where they come from a camera, or from a video that is played as if it were one.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What there is to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// A picture.
    #[default]
    Good,
    /// The same picture again and again.
    Frozen,
    /// Nothing that is brighter than black.
    Dark,
    /// Nothing that is darker than white.
    WashedOut,
    /// One colour, without anything in it.
    Uniform,
}

/// What is known of a picture as it came to the video decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// How many bytes it had.
    pub bytes: u32,
    /// Whether it can be decoded by itself.
    pub kind: Picture,
}

/// Decides for one camera.
#[derive(Debug)]
pub struct PictureWatch {
    sampler: Sampler,
    luma: Luma,
    next_look: Option<Instant>,
    frozen: Option<FrozenWatch>,
    blind: BlindWatch,
    sight: Sight,
}

impl Default for PictureConfig {
    fn default() -> Self {
        Self {
            watch: Watching::Auto,
            frozen_after: Some(Duration::from_secs(4)),
            blind_after: Duration::from_secs(2),
            dark_below: 12.0,
            washed_out_above: 90.0,
            uniform_below: 3.0,
        }
    }
}

impl Watching {
    /// Every value, as the config names it.
    pub const NAMES: [&str; 3] = ["auto", "on", "off"];

    /// The config's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The value that the config names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Auto, Self::On, Self::Off].into_iter().find(|value| value.name() == name)
    }
}

impl Sight {
    /// Every value.
    pub const ALL: [Self; 5] = [Self::Good, Self::Frozen, Self::Dark, Self::WashedOut, Self::Uniform];

    /// The name in messages and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Frozen => "frozen",
            Self::Dark => "dark",
            Self::WashedOut => "washed_out",
            Self::Uniform => "uniform",
        }
    }
}

impl CameraConfig {
    /// Whether it is watched what there is to see in its pictures. One picture that is shown again and again does not change,
    /// and neither it nor a pattern tells anything about a camera.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        match (self.picture.watch, &self.address) {
            (Watching::On, _) | (Watching::Auto, Address::Rtsp(_) | Address::V4l2(_)) => true,
            (Watching::Auto, Address::File(path)) => {
                self.replay.is_some() && !self.is_lossless() && !synthetic::reads_picture(path)
            }
            (Watching::Auto, Address::Test(_)) | (Watching::Off, _) => false,
        }
    }
}

impl PictureWatch {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn new(config: &PictureConfig) -> Self {
        Self {
            sampler: Sampler::default(),
            luma: Luma::default(),
            next_look: None,
            frozen: config.frozen_after.map(FrozenWatch::new),
            blind: BlindWatch::new(config),
            sight: Sight::Good,
        }
    }

    /// Whether the next picture is looked at as a whole.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next_look.is_none_or(|due| now >= due)
    }

    /// The newest picture is this one, and came to the video decoder like this (none: it came as it is). Takes a fixed number
    /// of its samples, and all of them when [`PictureWatch::is_due`]. Allocates only when the size of the pictures changes.
    pub fn see(&mut self, now: Instant, frame: &Frame, encoded: Option<Encoded>) -> Sight {
        let view = View::of(frame);
        if self.sampler.prepare(&view) {
            self.luma.prepare(&view);
            self.next_look = None;
            self.blind.restart();
            if let Some(frozen) = &mut self.frozen {
                frozen.restart(self.sampler.len(), self.luma.sums().len());
            }
        }
        let is_due = self.is_due(now);
        if let Some(frozen) = &mut self.frozen {
            frozen.picture(now, self.sampler.take(&view), encoded);
        }
        if is_due {
            self.next_look = Some(now + LOOK_EVERY);
            self.luma.look(&view, self.blind.levels(&view));
            let is_frozen = self.frozen.as_mut().is_some_and(|frozen| frozen.look(now, &self.luma));
            let blind = self.blind.look(now, &self.luma);
            // Of a black picture that is also the same each time, the first says more.
            self.sight = blind.unwrap_or(if is_frozen { Sight::Frozen } else { Sight::Good });
        }
        self.sight
    }

    /// Another connection begins: what was seen before says nothing about it. What was learned of the camera's way to encode
    /// is kept.
    pub fn restart(&mut self) {
        self.sampler.forget();
        self.sight = Sight::Good;
    }
}
