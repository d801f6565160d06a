//! What the system says about its memory: read once for a region, never while a frame waits.

use std::fs;
use std::sync::OnceLock;

/// What does not change while the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    /// Bytes of a page.
    pub(super) page: usize,
    /// Bytes of a huge page; none where the kernel has none.
    pub(super) huge_page: Option<usize>,
    /// Whether memory may be put on huge pages that nobody reserved.
    pub(super) transparent: bool,
}

/// What this system is like.
pub(super) fn system() -> System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    *SYSTEM.get_or_init(|| System {
        page: rustix::param::page_size(),
        huge_page: huge_page(&read("/proc/meminfo")),
        transparent: is_allowed(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
    })
}

/// Bytes that the machine can give without swapping; none where it does not tell.
pub(super) fn available() -> Option<u64> {
    field(&read("/proc/meminfo"), "MemAvailable:")
}

/// Bytes of this process that lie on huge pages which nobody reserved.
pub(super) fn on_transparent_huge_pages() -> u64 {
    field(&read("/proc/self/smaps_rollup"), "AnonHugePages:").unwrap_or(0)
}

/// A file of the kernel's; empty where it has none.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn huge_page(meminfo: &str) -> Option<usize> {
    let bytes = field(meminfo, "Hugepagesize:").and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| bytes.is_power_of_two())
}

/// The value of a line such as `MemAvailable:   23 kB`, in bytes.
fn field(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// `always [madvise] never`: the one in brackets counts.
fn is_allowed(enabled: &str) -> bool {
    enabled.contains("[always]") || enabled.contains("[madvise]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_kernel_are_read_in_bytes() {
        let meminfo = "MemTotal:       24056324 kB\nMemAvailable:   23 kB\nHugePages_Free:        0\n\
                       Hugepagesize:       2048 kB\n";
        assert_eq!(field(meminfo, "MemAvailable:"), Some(23 * 1024));
        assert_eq!(field(meminfo, "HugePages_Free:"), None, "it has no unit");
        assert_eq!(field(meminfo, "SwapFree:"), None);
        assert_eq!(huge_page(meminfo), Some(2 << 20));
        assert_eq!(huge_page(""), None);
        assert!(is_allowed("always [madvise] never") && is_allowed("[always] madvise never"));
        assert!(!is_allowed("always madvise [never]") && !is_allowed(""));
    }

    #[test]
    fn this_system_tells_what_it_has() {
        assert!(system().page >= 4096 && system().page.is_power_of_two());
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
