//! The whole process in RAM: no page of it is written out, and none that was used is read again while a frame waits.
//!
//! `mlockall` locks what is mapped and what will be, each page when it is first used: without `MCL_ONFAULT` every thread's
//! whole stack would be in RAM (24 idle threads cost 200 MB). Its limit counts addresses, not pages, and a runtime maps far
//! more than it uses; under a limit that is reached later, no thread would start any more and no memory be given. So it is
//! done only where there is no limit.

use std::io;
use std::sync::OnceLock;

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Wish;

/// What became of the wish to have all memory locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It was not wanted.
    Off,
    /// It is.
    All,
    /// The system refused, which was told in the log.
    Refused,
}

/// Why memory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// There is a limit.
    #[error("memory cannot be locked in RAM, because the limit is {} KiB; {LIMIT_CURE}", limit_bytes / 1024)]
    Limit {
        /// How much may be locked.
        limit_bytes: u64,
    },
    /// The kernel refuses.
    #[error("memory cannot be locked in RAM, because the kernel refuses; {KERNEL_CURE}")]
    Kernel(#[source] io::Error),
}

/// What lifts the limit.
const LIMIT_CURE: &str = "write LimitMEMLOCK=infinity into the unit, or in a shell `ulimit -l unlimited` as root, or give the \
                    capability CAP_IPC_LOCK";

/// What lets the kernel be asked.
const KERNEL_CURE: &str = "let @memlock pass in the unit's SystemCallFilter=; Linux 4.4 or later is needed";

/// A process has one memory.
static LOCKED: OnceLock<Locked> = OnceLock::new();

/// Locks what memory the process has and will have, if that is wanted. It counts once, and should come before any thread.
///
/// # Errors
/// When it is required and the system refuses.
pub fn lock(wish: Wish) -> Result<Locked, LockError> {
    let outcome = match wish {
        Wish::Off => Ok(Locked::Off),
        Wish::Auto | Wish::Require => lock_all().map(|()| Locked::All),
    };
    let locked = match outcome {
        Err(error) if wish == Wish::Require => return Err(error),
        Err(error) => {
            tracing::warn!("{}; Gantry goes on without", crate::telemetry::error_chain(&error));
            Locked::Refused
        }
        Ok(locked) => locked,
    };
    Ok(*LOCKED.get_or_init(|| locked))
}

/// What became of it.
#[must_use]
pub fn locked() -> Locked {
    *LOCKED.get().unwrap_or(&Locked::Off)
}

/// Whether the system would let this process lock all its memory; nothing stays locked by the question.
///
/// # Errors
/// When it would not.
pub fn try_out() -> Result<(), LockError> {
    let limit = raised_limit();
    match limit.current {
        None => lock_and_unlock().map_err(LockError::Kernel),
        Some(_) if goes_beyond(limit) => Ok(()),
        Some(limit_bytes) => Err(LockError::Limit { limit_bytes }),
    }
}

impl LockError {
    /// What to do, in one line.
    #[must_use]
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Limit { .. } => LIMIT_CURE,
            Self::Kernel(_) => KERNEL_CURE,
        }
    }
}

impl Locked {
    /// Every name.
    pub const NAMES: [&str; 3] = [Self::Off.name(), Self::All.name(), Self::Refused.name()];

    /// Its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::All => "all",
            Self::Refused => "refused",
        }
    }
}

fn lock_all() -> Result<(), LockError> {
    try_out()?;
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(flags).map_err(|error| LockError::Kernel(error.into()))
}

/// The limit, once the soft one is as high as the hard one, which anybody may have.
fn raised_limit() -> Rlimit {
    let limit = getrlimit(Resource::Memlock);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if setrlimit(Resource::Memlock, raised).is_ok() { raised } else { limit }
}

/// Whether locking goes beyond the limit, by a capability that counts: in a container a process may seem to have it. For
/// the time of the trial the limit is nothing at all.
fn goes_beyond(limit: Rlimit) -> bool {
    if setrlimit(Resource::Memlock, Rlimit { current: Some(0), ..limit }).is_err() {
        return false;
    }
    let tried = lock_and_unlock();
    // It was so a moment ago.
    setrlimit(Resource::Memlock, limit).ok();
    tried.is_ok()
}

fn lock_and_unlock() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?;
    Ok(munlockall()?)
}
