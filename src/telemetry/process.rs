//! What the kernel knows of this process: its memory, and what each kind of its threads has used.
//!
//! All of it is read from `/proc` by whoever asks, never by the frame path. Where `/proc` does not tell, a figure is zero.

use std::collections::{BTreeMap, HashMap};
use std::ops::{AddAssign, Sub};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// Memory of this process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// In RAM.
    pub resident_bytes: u64,
    /// The most that ever was in RAM.
    pub resident_peak_bytes: u64,
    /// Locked, so that it stays in RAM.
    pub locked_bytes: u64,
}

/// Memory that can still be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Available {
    /// So much, without taking any from others: of the machine's, or of what our cgroup may have if that is less.
    #[serde(rename = "memory_available_bytes")]
    pub bytes: u64,
    /// Of so much.
    #[serde(rename = "memory_total_bytes")]
    pub total_bytes: u64,
}

/// What threads have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a CPU.
    pub cpu: Duration,
    /// Pages that were given without reading a disk.
    pub minor_faults: u64,
    /// Pages that had to be read from a disk.
    pub major_faults: u64,
    /// Times that a thread went to wait.
    pub voluntary_switches: u64,
    /// Times that a thread was taken off its CPU.
    pub involuntary_switches: u64,
}

/// The threads of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindUsage {
    /// How many there are now.
    pub alive: u64,
    /// What they and those before them have used. What a thread used after the last look and before its end is missing.
    pub usage: Usage,
}

/// Adds up what threads use, also of those that have ended since.
#[derive(Debug, Default)]
pub struct ThreadReader {
    /// What each living thread had used at the last look, by its id and the time of its start.
    seen: HashMap<(u64, u64), Usage>,
    kinds: BTreeMap<&'static str, KindUsage>,
}

impl ThreadReader {
    /// Looks at every thread of this process. What is told of each kind never shrinks.
    pub fn read(&mut self) -> &BTreeMap<&'static str, KindUsage> {
        self.kinds.values_mut().for_each(|kind| kind.alive = 0);
        let mut seen = HashMap::new();
        for (id, thread) in threads() {
            let key = (id, thread.started);
            let before = self.seen.get(&key).copied().unwrap_or_default();
            let kind = if id == u64::from(std::process::id()) { "main" } else { kind_of(&thread.name) };
            let entry = self.kinds.entry(kind).or_default();
            entry.alive += 1;
            entry.usage += thread.usage - before;
            seen.insert(key, thread.usage);
        }
        self.seen = seen;
        &self.kinds
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.cpu += more.cpu;
        self.minor_faults += more.minor_faults;
        self.major_faults += more.major_faults;
        self.voluntary_switches += more.voluntary_switches;
        self.involuntary_switches += more.involuntary_switches;
    }
}

impl Sub for Usage {
    type Output = Self;

    /// What was used since `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(before.involuntary_switches),
        }
    }
}

/// Memory of this process.
#[must_use]
pub fn memory() -> Memory {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name| field(&status, name).unwrap_or(0) * 1024;
    let resident_bytes = bytes("VmRSS");
    Memory {
        resident_bytes,
        resident_peak_bytes: bytes("VmHWM"),
        // The kernel counts locked addresses, and what is locked as it is used (`memory::lock`) has more of them than pages.
        locked_bytes: bytes("VmLck").min(resident_bytes),
    }
}

/// Memory of this process that is in RAM, in bytes.
#[must_use]
pub fn resident_bytes() -> u64 {
    memory().resident_bytes
}

/// Memory that can still be had on this machine and in this process's cgroup (version 2), whichever is less; none where
/// the kernel does not tell.
#[must_use]
pub fn available() -> Option<Available> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine = Available {
        bytes: field(&meminfo, "MemAvailable")? * 1024,
        total_bytes: field(&meminfo, "MemTotal")? * 1024,
    };
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let above = root.join(own);
    let groups = above.ancestors().take_while(|group| group.starts_with(root));
    Some(groups.filter_map(cgroup_memory).fold(machine, |least, group| Available {
        bytes: least.bytes.min(group.bytes),
        total_bytes: least.total_bytes.min(group.total_bytes),
    }))
}

/// What a cgroup may still have; none where it has no limit. Its file cache can be had back.
fn cgroup_memory(group: &Path) -> Option<Available> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let total_bytes: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat")?;
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(Available {
        bytes: total_bytes.saturating_sub(used.saturating_sub(cache.unwrap_or(0))),
        total_bytes,
    })
}

/// The kind of a thread of this process, by its name; `other` for those of libraries.
#[must_use]
pub fn kind_of(name: &str) -> &'static str {
    match name.split('/').next().unwrap_or(name) {
        "src" => "source",
        "dev" => "device",
        "out" => "output",
        "io" => "io",
        "signals" => "signals",
        // libav's threads decode a camera's video.
        _ if name.starts_with("av:") => "source",
        _ => "other",
    }
}

struct ThreadUsage {
    name: String,
    /// In the kernel's ticks since the machine's start: an id may be given again, but not with the same start.
    started: u64,
    usage: Usage,
}

fn threads() -> impl Iterator<Item = (u64, ThreadUsage)> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        // One that ends meanwhile is none.
        Some((id, thread(&entry.path())?))
    })
}

fn thread(dir: &Path) -> Option<ThreadUsage> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
    let (mut thread, ticks) = parse_stat(&read("stat")?)?;
    let status = read("status")?;
    thread.usage.voluntary_switches = field(&status, "voluntary_ctxt_switches").unwrap_or(0);
    thread.usage.involuntary_switches = field(&status, "nonvoluntary_ctxt_switches").unwrap_or(0);
    // Nanoseconds where the kernel counts them, else ticks of 10 ms.
    let precise = read("schedstat").and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    thread.usage.cpu = precise.map_or_else(
        || Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)),
        Duration::from_nanos,
    );
    Some(thread)
}

/// Name, start and faults from a thread's `stat`, and its CPU time in ticks.
fn parse_stat(stat: &str) -> Option<(ThreadUsage, u64)> {
    // The name is in brackets and may hold anything, also brackets.
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    // The first field after the name is the third of the manual's (man 5 proc).
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let usage = Usage { minor_faults: field(10)?, major_faults: field(12)?, ..Usage::default() };
    let ticks = field(14)? + field(15)?;
    Some((ThreadUsage { name: name.to_owned(), started: field(22)?, usage }, ticks))
}

/// The first number of the line `name:` of a file such as `/proc/self/status`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_memory() {
        let memory = memory();
        assert!(memory.resident_bytes > 1 << 20);
        assert!(memory.resident_peak_bytes >= memory.resident_bytes);
    }

    #[test]
    fn a_thread_with_brackets_and_spaces_in_its_name_is_read() {
        let stat = "21438 (src/a) (b) R 21392 21392 9720 0 -1 4194304 100 0 7 0 30 12 0 0 20 0 1 0 85038 3133440 413";
        let (thread, ticks) = parse_stat(stat).unwrap();
        assert_eq!((thread.name.as_str(), thread.started, ticks), ("src/a) (b", 85038, 42));
        assert_eq!((thread.usage.minor_faults, thread.usage.major_faults), (100, 7));
        assert!(parse_stat("21438 (src/a) R 1").is_none());
    }

    #[test]
    fn memory_can_be_had_here_and_a_limited_cgroup_may_have_less() {
        let here = available().unwrap();
        assert!(here.bytes > 0 && here.bytes <= here.total_bytes, "{here:?}");
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 600\nfile 300\ninactive_file 250\n");
        assert_eq!(cgroup_memory(group.path()), None, "no limit");
        write("memory.max", "1000\n");
        assert_eq!(cgroup_memory(group.path()), Some(Available { bytes: 350, total_bytes: 1000 }));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "VmRSSx:\t1 kB\nVmRSS:\t  2048 kB\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "VmRSS"), Some(2048));
        assert_eq!(field(status, "voluntary_ctxt_switches"), None);
    }

    #[test]
    fn what_a_kind_has_used_stays_when_its_threads_have_ended() {
        let mut reader = ThreadReader::default();
        let (go, wait) = crossbeam_channel::bounded::<()>(0);
        let (worked, done) = crossbeam_channel::bounded(1);
        let busy = move |_| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            worked.send(()).unwrap();
            assert!(wait.recv().is_err(), "nothing is sent");
        };
        let spec = crate::threads::ThreadSpec {
            name: "out/test".into(),
            kind: crate::threads::ThreadKind::Output,
            limit: Duration::from_secs(60),
        };
        let thread = crate::threads::Threads::new().spawn(spec, busy, |_| {}).unwrap();
        done.recv().unwrap();
        let alive = reader.read()["output"];
        assert!(alive.alive >= 1 && alive.usage.cpu > Duration::ZERO, "{alive:?}");
        drop(go);
        thread.join_timeout(Duration::from_secs(60)).unwrap();
        let ended = reader.read()["output"];
        assert!(ended.usage.cpu >= alive.usage.cpu, "{ended:?}");
        assert!(reader.read().contains_key("main"));
    }
}
