//! Memory that is there before the first frame needs it.
//!
//! A [`Region`] is a piece of memory from the system: aligned to a page, on huge pages where the system has them, touched
//! and locked now rather than while a frame waits. A [`Buffer`] is one as a slice of numbers, such as a batch tensor; an
//! [`Arena`] is one cut into slabs, such as the frames of a camera. What is asked for is the process's [`Policy`], set once
//! at its start; what came of it is in [`account`]. Whatever is allocated in spite of that is counted by [`allocations`].

pub mod allocations;
mod arena;
mod buffer;
pub mod lock;
mod region;
mod system;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub use arena::{Arena, SharedSlab, Slab};
pub use buffer::{Buffer, Plain};
pub use region::Region;
use serde::Serialize;

/// Alignment that every user of this room may rely on, in bytes: a cache line, and enough for AVX-512.
pub const ALIGNMENT: usize = 64;

/// How much a property of memory is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Without it the memory is refused.
    Require,
    /// Where the system gives it; what it does not give is counted.
    #[default]
    Auto,
    /// Not even tried.
    Off,
}

/// How memory is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether it stays in RAM.
    pub lock: Wish,
    /// Whether regions that are large enough lie on huge pages.
    pub huge_pages: Wish,
}

static POLICY: OnceLock<Policy> = OnceLock::new();

/// Sets how the process makes its memory. It counts for regions that are made afterwards, and once: a process that has
/// begun to make memory one way goes on so.
///
/// # Errors
/// The policy that counts already, when it is another one.
pub fn set_policy(policy: Policy) -> Result<(), Policy> {
    let set = *POLICY.get_or_init(|| policy);
    if set == policy { Ok(()) } else { Err(set) }
}

/// How the process makes its memory; everything `auto` unless it was set.
#[must_use]
pub fn policy() -> Policy {
    *POLICY.get_or_init(Policy::default)
}

/// What the regions of this process come to. Field names are part of the `health` message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Bytes in regions now.
    pub mapped_bytes: u64,
    /// The most there ever were.
    pub mapped_peak_bytes: u64,
    /// Bytes of them that are locked in RAM.
    pub locked_bytes: u64,
    /// Bytes of them that lay on huge pages when they were made.
    pub huge_page_bytes: u64,
    /// Regions that could not be touched beforehand, so that a frame may wait for the system to find a page.
    pub prefault_failures: u64,
    /// Regions that the system refused to lock, for want of a limit or of a capability.
    pub lock_failures: u64,
}

/// What the regions of this process come to at this moment.
#[must_use]
pub fn account() -> Account {
    let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
    Account {
        mapped_bytes: read(&ACCOUNTS.mapped),
        mapped_peak_bytes: read(&ACCOUNTS.mapped_peak),
        locked_bytes: read(&ACCOUNTS.locked),
        huge_page_bytes: read(&ACCOUNTS.huge_pages),
        prefault_failures: read(&ACCOUNTS.prefault_failures),
        lock_failures: read(&ACCOUNTS.lock_failures),
    }
}

/// A process has one memory, so its account is the process's.
static ACCOUNTS: Accounts = Accounts {
    mapped: AtomicU64::new(0),
    mapped_peak: AtomicU64::new(0),
    locked: AtomicU64::new(0),
    huge_pages: AtomicU64::new(0),
    prefault_failures: AtomicU64::new(0),
    lock_failures: AtomicU64::new(0),
};

struct Accounts {
    mapped: AtomicU64,
    mapped_peak: AtomicU64,
    locked: AtomicU64,
    huge_pages: AtomicU64,
    prefault_failures: AtomicU64,
    lock_failures: AtomicU64,
}

/// Why memory was not made.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The machine would have to end something for it.
    #[error("{} of memory are needed and the machine has {} left", mib(*wanted), mib(*available))]
    TooLittle {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that the machine can give without swapping.
        available: u64,
    },
    /// The system refuses.
    #[error("the system refuses {} of memory", mib(*wanted))]
    Refused {
        /// Bytes that were asked for.
        wanted: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It must be locked, and the system refuses.
    #[error(
        "{} of memory cannot be locked in RAM; set LimitMEMLOCK=infinity in the unit (or `ulimit -l unlimited`), give \
         the program CAP_IPC_LOCK, or set realtime.lock_memory to auto",
        mib(*wanted)
    )]
    NotLocked {
        /// Bytes that were to be locked.
        wanted: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It must lie on huge pages, and the system has none.
    #[error(
        "no huge pages for {} of memory; reserve some with `sysctl vm.nr_hugepages={pages}`, allow transparent ones in \
         /sys/kernel/mm/transparent_hugepage/enabled, or set realtime.huge_pages to auto",
        mib(*wanted)
    )]
    NoHugePages {
        /// Bytes that were asked for.
        wanted: u64,
        /// Huge pages that would hold them.
        pages: u64,
    },
}

/// As whole MiB, rounded up, for people.
#[must_use]
pub fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_policy_counts() {
        let first = policy();
        assert_eq!(set_policy(first), Ok(()));
        let other = Policy { lock: Wish::Off, huge_pages: Wish::Require };
        assert_eq!(set_policy(other), Err(first));
        assert_eq!(policy(), first);
    }

    #[test]
    fn an_error_tells_sizes_and_the_cure() {
        let error = MemoryError::NoHugePages { wanted: 5 << 20, pages: 3 };
        let text = error.to_string();
        assert!(text.contains("5 MiB") && text.contains("vm.nr_hugepages=3"), "{text}");
        let error = MemoryError::TooLittle { wanted: (1 << 20) + 1, available: 0 };
        assert_eq!(error.to_string(), "2 MiB of memory are needed and the machine has 0 MiB left");
    }
}
