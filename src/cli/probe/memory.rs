//! What memory this machine has, and what could be better.

use std::fmt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use super::Advice;
use crate::memory::lock;

/// With less than this free, the next camera may be one too many.
const AVAILABLE_MIN_BYTES: u64 = 256 << 20;

/// The machine's memory, and what of it this process may lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// All there is.
    pub total_bytes: u64,
    /// What programs could get without swapping.
    pub available_bytes: u64,
    /// Disk that stands in for it.
    pub swap_bytes: u64,
    /// Size of a huge page; 0 where there is none.
    pub huge_page_bytes: u64,
    /// Huge pages that are reserved.
    pub huge_pages: u64,
    /// Those of them that nobody uses.
    pub huge_pages_free: u64,
    /// Who gets transparent huge pages: always, madvise (who asks) or never; none where the kernel has none.
    pub transparent_huge_pages: Option<String>,
    /// What this process may lock; none is any.
    pub lock_limit_bytes: Option<u64>,
    /// Whether this process has the capability `CAP_IPC_LOCK`.
    pub cap_ipc_lock: bool,
    /// What would have the system lock all memory of this process; none where it does.
    pub lock_cure: Option<&'static str>,
}

impl Memory {
    /// Looks at this machine.
    #[must_use]
    pub fn look() -> Self {
        let limit = getrlimit(Resource::Memlock).current;
        Self {
            lock_limit_bytes: limit,
            cap_ipc_lock: capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK)),
            lock_cure: lock::try_out().err().map(|error| error.cure()),
            ..Self::read(Path::new("/"))
        }
    }

    /// What the files say; `root` is `/`, or a folder that is laid out as it is.
    fn read(root: &Path) -> Self {
        let text = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let table = text("proc/meminfo");
        let value = |name: &str| {
            let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let mut words = line.unwrap_or_default().split_ascii_whitespace();
            let number: u64 = words.next().and_then(|number| number.parse().ok()).unwrap_or(0);
            if words.next() == Some("kB") { number.saturating_mul(1024) } else { number }
        };
        // `always [madvise] never`: the one in brackets counts.
        let modes = text("sys/kernel/mm/transparent_hugepage/enabled");
        let mode = modes.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Self {
            total_bytes: value("MemTotal"),
            available_bytes: value("MemAvailable"),
            swap_bytes: value("SwapTotal"),
            huge_page_bytes: value("Hugepagesize"),
            huge_pages: value("HugePages_Total"),
            huge_pages_free: value("HugePages_Free"),
            transparent_huge_pages: mode.map(|(mode, _)| mode.to_owned()),
            ..Self::default()
        }
    }

    /// What could be better.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        if let Some(cure) = self.lock_cure {
            let what = "memory cannot be locked in RAM: where it becomes scarce, frames wait for pages from the disk";
            advice.push(Advice::new(what, cure));
        }
        if self.transparent_huge_pages.as_deref() == Some("never") && self.huge_pages_free == 0 {
            advice.push(Advice::new(
                "no huge pages, so that each frame looks up hundreds of small ones",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (transparent_hugepage=madvise at boot)",
            ));
        }
        if self.available_bytes < AVAILABLE_MIN_BYTES {
            advice.push(Advice::new(
                format!("only {} are available", size(self.available_bytes)),
                "end what is not needed, or take smaller pictures or fewer cameras",
            ));
        }
        advice
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let swap = if self.swap_bytes == 0 {
            "no swap".to_owned()
        } else {
            format!("{} of swap", size(self.swap_bytes))
        };
        writeln!(
            f,
            "  {}, of which {} are available; {swap}",
            size(self.total_bytes),
            size(self.available_bytes)
        )?;
        let transparent = match self.transparent_huge_pages.as_deref() {
            Some("always") => "for every program",
            Some("madvise") => "for programs that ask (madvise), as Gantry does",
            Some("never") => "never",
            Some(other) => other,
            None => "not in this kernel",
        };
        let reserved = match self.huge_pages {
            0 => "none reserved".to_owned(),
            pages => {
                format!("{pages} of {} reserved, {} free", size(self.huge_page_bytes), self.huge_pages_free)
            }
        };
        writeln!(f, "  huge pages: {reserved}; transparent ones {transparent}")?;
        let verdict = match (self.lock_cure, self.lock_limit_bytes) {
            (None, None) => "allowed, no limit".to_owned(),
            (None, Some(_)) => "allowed by CAP_IPC_LOCK".to_owned(),
            (Some(_), None) => "refused by the kernel".to_owned(),
            (Some(_), Some(bytes)) => {
                format!("refused, limit {} and no CAP_IPC_LOCK that counts", size(bytes))
            }
        };
        writeln!(f, "  locked in RAM: {verdict}")
    }
}

/// Bytes in the largest unit that leaves at least 1.
fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let in_units = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KiB", bytes / 1024),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", in_units(1 << 30)),
    }
}
