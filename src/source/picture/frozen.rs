//! Whether the picture changes. Pure.
//!
//! Pictures that come as they are, or each as a JPEG, are frozen when they are the same, byte for byte: the noise of a sensor
//! never is. Of a video (H.264, H.265, …) that says nothing. An encoder at a low rate skips what little changes, so that single
//! pictures of a noisy scene are the same; and one that must keep to a rate has bits to spend while the scene is frozen, so it
//! goes on refining the picture, and falls back at each key frame: no two pictures are the same, and the sizes are those of
//! before. (x264 at a constant rate does so for ever; that was measured.)
//!
//! What differs is the way that the picture takes:
//!
//! - *Refining* goes straight to one goal. What it changes from picture to picture, as energies, adds up to what lies between
//!   the first and the last: [`Sums::path`] is about [`Sums::drift`]. Noise goes back and forth: the path is longer.
//! - At a key frame it falls back, and then comes to the same goal again: what lies between the ends of two groups of pictures
//!   ([`Sums::apart`]) is little of what lies between a group's beginning and end ([`Sums::gain`]). In noise it is all of it.
//!
//! Where something moves, be it a digit of a clock, the mean of some cell of the picture changes by more than either does.

use std::time::{Duration, Instant};

use super::Encoded;
use super::luma::Luma;
use crate::source::thinning::Picture;

/// A cell whose mean has changed by so many levels shows something else. Refining moves a cell of 8x8 pixels by up to 6 at
/// 300 kbit/s (640x480, H.264); a digit of a clock that is 15 pixels high, by 30 and more.
const MOVED: u32 = 12;

/// Pictures that stand for themselves may differ by so many bytes in size and be the same: the number of a key frame in its
/// header has a length of its own.
const SAME_SIZE: u32 = 2;

/// A part of a group of pictures is measured that is so long at least, and has so many steps.
const PIECE_LEN: Duration = Duration::from_secs(1);
const PIECE_STEPS: u32 = 4;

/// One with fewer steps (a short group) says nothing of its way.
const PIECE_STEPS_MIN: u32 = 3;

/// Path by drift: what refining has at most (measured: 1.05), what noise has in any case, and what refining has at least: less
/// is a fade.
const PATH_FROZEN: f64 = 1.07;
const PATH_ALIVE: f64 = 1.15;
const PATH_FADING: f64 = 0.35;

/// The same where changes by a single level count, too: refining at a high rate comes to 1.4, faint noise to 2 and more.
const FINE_PATH_FROZEN: f64 = 1.7;
const FINE_PATH_ALIVE: f64 = 2.0;

/// Apart by gain, and so many times what path by drift is beyond 1 (or below it, down to the least).
const PATH_WEIGHT: f64 = 4.0;
const PATH_LEAST: f64 = 0.97;

/// What that comes to, at most, when the picture is frozen, and more than what it is alive. Measured at 300 kbit/s for 640x480,
/// with a key frame each second, at 10 to 25 frames a second: refining has 0.2 to 0.7; noise has 0.7 where its σ is 0.3, 0.8
/// where it is 0.5, 1.2 where it is 1, and more with more bits. The longer a group lasts, the further both come: of groups of
/// 2 seconds, refining has 0.1 to 0.2 and noise 0.4 and more.
const RETURN: (f64, f64) = (0.6, 0.95);

/// The longest time of groups, in seconds, that this is reckoned for.
const GROUP_TIME_MAX: f64 = 3.0;

/// The same of groups with less than so many steps, at 5 frames a second: refining comes less far, and has 0.5 to 1; noise has
/// 1 where its σ is 0.5, and 1.3 where it is 1.
const RETURN_OF_FEW: (f64, f64) = (0.8, 1.25);
const FEW: u32 = 8;

/// Without key frames so many steps are wanted: the ways of few pictures are alike.
const MANY: u32 = 24;

/// Where an encoder sends next to nothing between key frames, these differ in size by less than one part in so many if nothing
/// but noise differs, and by more while the encoder still looks for the quality that fits its rate, which says nothing.
const SIZE_OF_NOISE: u32 = 25;

/// A mean square of coarse changes, in levels, that is as good as nothing over a piece or a group.
const NOTHING: f64 = 0.02;

/// The same of fine changes, in each step: what an encoder goes on changing when there is nothing left to refine.
const NOTHING_FINE: f64 = 0.03;

/// `frozen_after` has so many parts, of which so many are looked at: a group of pictures that began before the picture froze
/// comes out in time.
const PARTS: u32 = 16;
const PARTS_SEEN: usize = 12;

/// Decides for one camera.
#[derive(Debug)]
pub(super) struct FrozenWatch {
    after: Duration,
    /// Samples of the newest picture, of the first one of its group, and of its piece; of the last one of the group before.
    newest: Vec<u8>,
    key: Vec<u8>,
    begin: Vec<u8>,
    end: Vec<u8>,
    has_end: bool,
    /// The newest picture's size, and that of the newest two key frames.
    bytes: u32,
    key_bytes: [u32; 2],
    /// When this group began.
    begun: Option<Instant>,
    /// Pictures of this group; none before the first picture.
    group: u32,
    /// The group before had one picture, too: each stands for itself.
    stands_alone: bool,
    /// Something moved in this group.
    is_moved: bool,
    piece: Piece,
    window: Window,
    /// What each cell had when something moved last.
    cells: Vec<u32>,
    /// Since when nothing moved.
    still_since: Option<Instant>,
    is_frozen: bool,
    /// The noise of a still scene was seen between key frames.
    lives_between_keys: bool,
    /// A still scene was seen to be alive by its key frames only: that nothing comes between them says nothing.
    is_quiet: bool,
}

/// A part of a group of pictures.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    since: Option<Instant>,
    steps: u32,
    path: Energy,
}

/// What lies between two pictures, as sums of squares over all samples.
#[derive(Clone, Copy, Debug, Default)]
struct Energy {
    /// Of all changes.
    fine: u64,
    /// Of changes by more than one level.
    coarse: u64,
}

/// What was measured in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// From picture to picture.
    path: Energy,
    /// From the first to the last picture of a piece.
    drift: Energy,
    pieces: u32,
    steps: u32,
    /// From the last picture of one group to that of the next.
    apart: u64,
    /// From the first to the last picture of a group, or from the end of the group before to its first, whichever is less.
    gain: u64,
    groups: u32,
    /// How long the groups lasted.
    time: Duration,
}

/// The newest part of the time, in slots.
#[derive(Debug)]
struct Window {
    slot: Duration,
    begin: Option<Instant>,
    newest: u128,
    slots: [Sums; PARTS_SEEN],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Frozen,
    Alive,
    /// What was said before holds.
    Unclear,
}

impl FrozenWatch {
    pub(super) fn new(after: Duration) -> Self {
        Self {
            after,
            newest: Vec::new(),
            key: Vec::new(),
            begin: Vec::new(),
            end: Vec::new(),
            has_end: false,
            bytes: 0,
            key_bytes: [0; 2],
            begun: None,
            group: 0,
            stands_alone: false,
            is_moved: false,
            piece: Piece::default(),
            window: Window::new(after / PARTS),
            cells: Vec::new(),
            still_since: None,
            is_frozen: false,
            lives_between_keys: false,
            is_quiet: false,
        }
    }

    /// Pictures come from now on of which so many samples are taken, and that have so many cells.
    pub(super) fn restart(&mut self, samples: usize, cells: usize) {
        for buffer in [&mut self.newest, &mut self.key, &mut self.begin, &mut self.end] {
            buffer.resize(samples, 0);
        }
        self.cells.resize(cells, 0);
        (self.group, self.stands_alone, self.has_end) = (0, false, false);
        (self.still_since, self.is_frozen) = (None, false);
        self.window.clear();
    }

    /// Samples of the next picture.
    pub(super) fn picture(&mut self, now: Instant, samples: &[u8], encoded: Option<Encoded>) {
        let is_first = self.group == 0;
        let begins = is_first || encoded.is_none_or(|encoded| encoded.kind == Picture::Key);
        let bytes = encoded.map_or(0, |encoded| encoded.bytes);
        let step = between(samples, &self.newest);
        if begins {
            let stood_alone = self.group == 1;
            if !is_first {
                self.end_group(now);
            }
            self.key.copy_from_slice(samples);
            self.key_bytes = [bytes, self.key_bytes[0]];
            self.begun = Some(now);
            (self.group, self.is_moved, self.stands_alone) = (1, false, stood_alone);
            self.begin_piece(now, samples);
        } else {
            (self.group, self.stands_alone) = (self.group + 1, false);
            self.piece.steps += 1;
            self.piece.path.add(step);
            let is_long =
                self.piece.since.is_some_and(|since| now.saturating_duration_since(since) >= PIECE_LEN);
            if is_long && self.piece.steps >= PIECE_STEPS {
                let drift = between(samples, &self.begin);
                self.end_piece(now, drift);
                self.begin_piece(now, samples);
            }
        }
        let is_another = step.fine > 0 || bytes.abs_diff(self.bytes) > SAME_SIZE;
        self.newest.copy_from_slice(samples);
        self.bytes = bytes;
        if self.stands_alone && is_another {
            self.moved(now);
        }
    }

    /// The newest picture as a whole: says whether the pictures are frozen.
    pub(super) fn look(&mut self, now: Instant, luma: &Luma) -> bool {
        let Some(still_since) = self.still_since else {
            self.cells.copy_from_slice(luma.sums());
            self.still_since = Some(now);
            return false;
        };
        let levels = if self.stands_alone { 0 } else { MOVED };
        if luma.differs(&self.cells, levels) {
            self.cells.copy_from_slice(luma.sums());
            self.moved(now);
            return false;
        }
        let sums = self.window.sums(now);
        match self.verdict(&sums) {
            Verdict::Frozen => self.is_frozen |= now.saturating_duration_since(still_since) >= self.after,
            Verdict::Alive => {
                let is_heard = self.is_alive_between_keys(&sums);
                self.lives_between_keys |= is_heard;
                self.is_quiet |= !is_heard;
                if self.is_frozen {
                    self.moved(now);
                }
            }
            Verdict::Unclear => {}
        }
        self.is_frozen
    }

    fn verdict(&self, sums: &Sums) -> Verdict {
        if self.stands_alone {
            return Verdict::Frozen;
        }
        let samples = self.newest.len() as f64;
        let (frozen, alive) = sums.limits();
        let score = sums.returns(samples) + PATH_WEIGHT * (sums.way(samples).max(PATH_LEAST) - 1.0);
        if self.is_alive_between_keys(sums) || sums.groups > 0 && score > alive {
            return Verdict::Alive;
        }
        let refines = !sums.goes_back_and_forth(samples, PATH_FROZEN, FINE_PATH_FROZEN);
        let returns = match sums.groups {
            // A fade of the whole picture ends elsewhere in each group; without groups only its way tells.
            0 => !(sums.is_coarse(samples) && sums.way(samples) < PATH_FADING),
            _ => score <= frozen,
        };
        // What lies between key frames is enough only of a camera whose noise is always seen there, and if there is enough of it.
        // Short groups, of which the ways say nothing, must have come back a few times.
        let is_enough =
            self.lives_between_keys && !self.is_quiet && (sums.steps >= MANY || !sums.is_coarse(samples));
        let keys_wanted = if sums.pieces == 0 { 3 } else { u32::from(!is_enough) };
        if refines && returns && sums.groups >= keys_wanted { Verdict::Frozen } else { Verdict::Unclear }
    }

    /// Whether what changes between key frames goes back and forth, without doubt.
    fn is_alive_between_keys(&self, sums: &Sums) -> bool {
        sums.goes_back_and_forth(self.newest.len() as f64, PATH_ALIVE, FINE_PATH_ALIVE)
    }

    /// Something is another than before.
    fn moved(&mut self, now: Instant) {
        self.window.clear();
        (self.still_since, self.is_frozen, self.is_moved) = (Some(now), false, true);
        self.begin.copy_from_slice(&self.newest);
        self.piece = Piece { since: Some(now), ..Piece::default() };
    }

    fn begin_piece(&mut self, now: Instant, samples: &[u8]) {
        self.begin.copy_from_slice(samples);
        self.piece = Piece { since: Some(now), ..Piece::default() };
    }

    fn end_piece(&mut self, now: Instant, drift: Energy) {
        if self.piece.steps < PIECE_STEPS_MIN {
            return;
        }
        let sums = self.window.slot(now);
        sums.path.add(self.piece.path);
        sums.drift.add(drift);
        sums.pieces += 1;
        sums.steps += self.piece.steps;
    }

    /// The newest picture is the last one of its group.
    fn end_group(&mut self, now: Instant) {
        if self.group > 1 {
            let drift = between(&self.newest, &self.begin);
            self.end_piece(now, drift);
            if self.has_end && !self.is_moved {
                self.count_group(now);
            }
        }
        self.end.copy_from_slice(&self.newest);
        self.has_end = true;
    }

    fn count_group(&mut self, now: Instant) {
        let time = self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
        let apart = between(&self.newest, &self.end).coarse;
        let gained = between(&self.newest, &self.key).coarse;
        let fallen = between(&self.key, &self.end).coarse;
        let gain = gained.min(fallen);
        let [bytes, before] = self.key_bytes;
        let is_settling = apart / 2 > gain && bytes.abs_diff(before) > before / SIZE_OF_NOISE;
        if !is_settling {
            let sums = self.window.slot(now);
            sums.apart += apart;
            sums.gain += gain;
            sums.groups += 1;
            sums.time += time;
        }
    }
}

impl Energy {
    fn add(&mut self, other: Self) {
        self.fine += other.fine;
        self.coarse += other.coarse;
    }
}

impl Sums {
    /// What is frozen at most, and alive at least.
    fn limits(&self) -> (f64, f64) {
        if self.steps < FEW * self.groups {
            return RETURN_OF_FEW;
        }
        let seconds = self.time.as_secs_f64() / f64::from(self.groups.max(1));
        let seconds = seconds.clamp(1.0, GROUP_TIME_MAX);
        (RETURN.0 / seconds, RETURN.1 / seconds)
    }

    /// Something more than nothing changes between key frames.
    fn is_coarse(&self, samples: f64) -> bool {
        self.path.coarse.max(self.drift.coarse) as f64 > NOTHING * samples * f64::from(self.pieces)
    }

    /// Path by drift; 1 where nothing changes.
    fn way(&self, samples: f64) -> f64 {
        if self.is_coarse(samples) { self.path.coarse as f64 / self.drift.coarse.max(1) as f64 } else { 1.0 }
    }

    /// Apart by gain; 0 where nothing changes.
    fn returns(&self, samples: f64) -> f64 {
        let apart = self.apart as f64 - NOTHING * samples * f64::from(self.groups);
        apart.max(0.0) / self.gain.max(1) as f64
    }

    /// What changes between key frames goes back and forth, as only noise and what moves do: path by drift is more than these.
    fn goes_back_and_forth(&self, samples: f64, coarse: f64, fine: f64) -> bool {
        let is_fine = self.path.fine as f64 > NOTHING_FINE * samples * f64::from(self.steps);
        self.way(samples) > coarse || is_fine && self.path.fine as f64 > self.drift.fine as f64 * fine
    }
}

impl Window {
    fn new(slot: Duration) -> Self {
        Self { slot, begin: None, newest: 0, slots: [Sums::default(); PARTS_SEEN] }
    }

    fn clear(&mut self) {
        self.slots = [Sums::default(); PARTS_SEEN];
    }

    /// The slot of this time.
    fn slot(&mut self, now: Instant) -> &mut Sums {
        let begin = *self.begin.get_or_insert(now);
        let number = now.saturating_duration_since(begin).as_nanos() / self.slot.as_nanos().max(1);
        let count = PARTS_SEEN as u128;
        for passed in (self.newest + 1..=number).take(PARTS_SEEN) {
            self.slots[Self::index(passed)] = Sums::default();
        }
        if number > self.newest + count {
            self.clear();
        }
        self.newest = self.newest.max(number);
        &mut self.slots[Self::index(self.newest)]
    }

    /// The sums of all slots.
    fn sums(&mut self, now: Instant) -> Sums {
        self.slot(now);
        self.slots.iter().fold(Sums::default(), |mut all, slot| {
            all.path.add(slot.path);
            all.drift.add(slot.drift);
            all.pieces += slot.pieces;
            all.steps += slot.steps;
            all.apart += slot.apart;
            all.gain += slot.gain;
            all.groups += slot.groups;
            all.time += slot.time;
            all
        })
    }

    fn index(number: u128) -> usize {
        usize::try_from(number % PARTS_SEEN as u128).expect("a remainder is small")
    }
}

/// What lies between two pictures.
fn between(one: &[u8], other: &[u8]) -> Energy {
    let mut energy = Energy::default();
    // In parts whose sums fit 32 bits, which makes vectors of them.
    for (one, other) in one.chunks(4096).zip(other.chunks(4096)) {
        let (mut fine, mut coarse) = (0_u32, 0_u32);
        for (one, other) in one.iter().zip(other) {
            let apart = u32::from(one.abs_diff(*other));
            let square = apart * apart;
            fine += square;
            coarse += if apart > 1 { square } else { 0 };
        }
        energy.add(Energy { fine: fine.into(), coarse: coarse.into() });
    }
    energy
}
