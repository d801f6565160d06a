//! Whether there is anything in the pictures: dark, washed out, uniform. Pure.
//!
//! What cameras write into their pictures, a name and a clock, does not count: the rim at the top and at the bottom is left
//! out. A few lamps at night do count, and so does any edge.

use std::time::{Duration, Instant};

use super::luma::{Levels, Luma, View};
use super::{PictureConfig, Sight};

/// A picture is dark while no more than this part of it is brighter: specks, 15 pixels of 640x480. Four lamps of 4x4 pixels
/// are more.
const BRIGHT_MAX: f64 = 1.0 / 20_000.0;

/// A picture is washed out while no more than this part of it is darker.
const SHADED_MAX: f64 = 1.0 / 2_000.0;

/// All of a uniform picture differs by no more than so many times what neighbours may differ by: a lens that is covered has a
/// little more light on one side.
const SPAN: f64 = 4.0;

/// What was told holds for so many times the limit.
const LEEWAY: f64 = 4.0;

/// The same of a level or a contrast.
const LEEWAY_OF_LEVEL: f64 = 1.3;

/// What was told is over after so long.
const OVER_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct BlindWatch {
    config: PictureConfig,
    /// What the pictures are like, and since when.
    near: Option<(Sight, Instant)>,
    is_told: bool,
    /// Since when they are no more like that.
    over: Option<Instant>,
    /// What neighbours may differ by in a uniform picture, in bytes of luma.
    contrast: f64,
}

impl BlindWatch {
    pub(super) fn new(config: &PictureConfig) -> Self {
        Self { config: *config, near: None, is_told: false, over: None, contrast: 0.0 }
    }

    /// Nothing has been seen yet.
    pub(super) fn restart(&mut self) {
        (self.near, self.is_told, self.over) = (None, false, None);
    }

    /// By which levels the next picture's pixels are counted.
    pub(super) fn levels(&mut self, view: &View<'_>) -> Levels {
        let (dark, white) = (self.config.dark_below, self.config.washed_out_above);
        let dark = if self.is_near(Sight::Dark) { dark * LEEWAY_OF_LEVEL } else { dark };
        let white =
            if self.is_near(Sight::WashedOut) { 100.0 - (100.0 - white) * LEEWAY_OF_LEVEL } else { white };
        self.contrast = f64::from(view.level(self.config.uniform_below) - view.level(0.0));
        Levels { bright: view.level(dark), shaded: view.level(white) }
    }

    /// A picture whose pixels were counted by those levels: says what is told, if anything.
    pub(super) fn look(&mut self, now: Instant, luma: &Luma) -> Option<Sight> {
        let Some((sight, since)) = self.near else {
            let seen = [Sight::Dark, Sight::WashedOut, Sight::Uniform];
            self.near = seen.into_iter().find(|sight| self.holds(*sight, luma)).map(|sight| (sight, now));
            return None;
        };
        if self.holds(sight, luma) {
            self.over = None;
            self.is_told |= now.saturating_duration_since(since) >= self.config.blind_after;
        } else if !self.is_told || now.saturating_duration_since(*self.over.get_or_insert(now)) >= OVER_AFTER
        {
            self.restart();
        }
        self.is_told.then_some(sight)
    }

    fn holds(&self, sight: Sight, luma: &Luma) -> bool {
        let (limit, level) = if self.is_near(sight) { (LEEWAY, LEEWAY_OF_LEVEL) } else { (1.0, 1.0) };
        match sight {
            Sight::Dark => self.config.dark_below > 0.0 && luma.bright() <= BRIGHT_MAX * limit,
            Sight::WashedOut => self.config.washed_out_above < 100.0 && luma.shaded() <= SHADED_MAX * limit,
            Sight::Uniform => {
                let (apart, span) = luma.contrast();
                let most = self.contrast * level;
                self.config.uniform_below > 0.0 && apart <= most && span <= most * SPAN
            }
            Sight::Good | Sight::Frozen => false,
        }
    }

    fn is_near(&self, sight: Sight) -> bool {
        self.near.is_some_and(|(near, _)| near == sight)
    }
}
