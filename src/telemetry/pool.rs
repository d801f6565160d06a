//! What is counted of the memory that a camera's frames are in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::Counter;

/// Why a picture was copied on its way to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyReason {
    /// It had to be converted to one of our formats.
    Format,
    /// The video decoder had it in memory of its own, and goes on looking at it.
    Decoder,
    /// It was decoded before the video decoder asked for memory: the first few after a stream begins or changes its size.
    Opening,
}

impl CopyReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Format, Self::Decoder, Self::Opening];

    /// The value of the label `reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Decoder => "decoder",
            Self::Opening => "opening",
        }
    }
}

/// Counts of one camera's pool. What is told of its size and use is of the newest pool: a camera that changes its
/// resolution gets another one.
#[derive(Debug, Default)]
pub struct PoolTelemetry {
    slabs: AtomicU64,
    slab_bytes: AtomicU64,
    high_water: AtomicU64,
    /// Slabs that were asked for, got or not.
    pub leases: Counter,
    /// Frames that lie in our slabs.
    pub in_slab: Counter,
    /// Frames that lie in a slab which the video decoder goes on looking at: each is a copy that was not made.
    pub aliased: Counter,
    copied: [Counter; CopyReason::ALL.len()],
}

/// See [`PoolTelemetry`]. `reuse` is the part of all leases that was served from memory made beforehand, none before the
/// first.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in PoolTelemetry")]
pub struct PoolSnapshot {
    pub slabs: u64,
    pub slab_bytes: u64,
    pub high_water: u64,
    pub runs_short: bool,
    pub leases: u64,
    pub reuse: Option<f64>,
    pub in_slab: u64,
    pub aliased: u64,
    pub copied: BTreeMap<&'static str, u64>,
}

impl PoolTelemetry {
    /// A new pool of `slabs` slabs of `slab_bytes` bytes takes the place of the one before.
    pub fn made(&self, slabs: usize, slab_bytes: usize) {
        self.slab_bytes.store(slab_bytes as u64, Ordering::Relaxed);
        self.high_water.store(0, Ordering::Relaxed);
        self.slabs.store(slabs as u64, Ordering::Relaxed);
    }

    /// The pool has one slab more.
    pub fn grown(&self) {
        self.slabs.fetch_add(1, Ordering::Relaxed);
    }

    /// A slab was leased, and `in_use` are out now.
    pub fn leased(&self, in_use: usize) {
        self.leases.add(1);
        self.high_water.fetch_max(in_use as u64, Ordering::Relaxed);
    }

    /// A picture, or several, were copied.
    pub fn copied(&self, pictures: u64, reason: CopyReason) {
        self.copied[reason as usize].add(pictures);
    }

    /// How many pictures were copied for `reason`.
    #[must_use]
    pub fn copies(&self, reason: CopyReason) -> u64 {
        self.copied[reason as usize].get()
    }

    /// The most slabs of the newest pool that were out at once.
    #[must_use]
    pub fn high_water(&self) -> u64 {
        self.high_water.load(Ordering::Relaxed)
    }

    /// Bytes of each slab of the newest pool.
    #[must_use]
    pub fn slab_bytes(&self) -> u64 {
        self.slab_bytes.load(Ordering::Relaxed)
    }

    /// Slabs of the newest pool.
    #[must_use]
    pub fn slabs(&self) -> u64 {
        self.slabs.load(Ordering::Relaxed)
    }

    /// Whether so many slabs were out at once that the pool may soon have none left.
    #[must_use]
    pub fn runs_short(&self) -> bool {
        runs_short(self.high_water(), self.slabs())
    }

    /// All of it at one moment, given how often all slabs were out.
    pub(super) fn snapshot(&self, exhausted: u64) -> PoolSnapshot {
        let leases = self.leases.get();
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact up to 2^53 leases, which take longer than any machine lives"
        )]
        let reuse = (leases > 0).then(|| leases.saturating_sub(exhausted) as f64 / leases as f64);
        PoolSnapshot {
            slabs: self.slabs(),
            slab_bytes: self.slab_bytes(),
            high_water: self.high_water(),
            runs_short: self.runs_short(),
            leases,
            reuse,
            in_slab: self.in_slab.get(),
            aliased: self.aliased.get(),
            copied: CopyReason::ALL.into_iter().map(|reason| (reason.name(), self.copies(reason))).collect(),
        }
    }
}

/// Whether fewer than an eighth of the slabs, and at least one, were left.
fn runs_short(high_water: u64, slabs: u64) -> bool {
    slabs > 0 && high_water + slabs.div_ceil(8) > slabs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_runs_short_when_less_than_an_eighth_is_left() {
        for (high_water, slabs, short) in
            [(0, 0, false), (7, 8, false), (8, 8, true), (28, 32, false), (29, 32, true)]
        {
            assert_eq!(runs_short(high_water, slabs), short, "{high_water} of {slabs}");
        }
    }

    #[test]
    fn reuse_is_the_part_of_leases_that_were_served() {
        let pool = PoolTelemetry::default();
        assert_eq!(pool.snapshot(0).reuse, None);
        pool.made(2, 100);
        for in_use in [1, 2, 2, 2] {
            pool.leased(in_use);
        }
        let seen = pool.snapshot(1);
        assert_eq!((seen.reuse, seen.high_water, seen.slabs), (Some(0.75), 2, 2));
        pool.made(4, 50);
        assert_eq!((pool.high_water(), pool.runs_short()), (0, false), "another pool begins anew");
    }
}
