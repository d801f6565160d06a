//! What the kernel has granted of `realtime`: whether memory is locked, and where the threads are now.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use super::process;
use crate::memory::lock;
use crate::threads::cpus::Cpus;
use crate::threads::place::{Place, Scheduling};

/// What is in force now.
#[derive(Clone, Debug, Serialize)]
pub struct RealtimeSnapshot {
    /// Whether all memory is locked in RAM: `all`, `refused` by the system, or `off`.
    pub memory_lock: &'static str,
    /// Memory that is in RAM and stays there.
    pub memory_locked_bytes: u64,
    /// For each kind of thread, every place that one of its threads has, as `CPUs 0-1, fifo 20`.
    pub places: BTreeMap<&'static str, BTreeSet<String>>,
}

impl RealtimeSnapshot {
    /// Asks the kernel.
    pub(super) fn take() -> Self {
        let mut places: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            // One that ends meanwhile is none.
            if let Some((name, place)) = thread(&task.path()) {
                let first = task.file_name().to_str() == Some(std::process::id().to_string().as_str());
                let kind = if first { "main" } else { process::kind_of(&name) };
                places.entry(kind).or_default().insert(place.to_string());
            }
        }
        Self {
            memory_lock: lock::locked().name(),
            memory_locked_bytes: process::memory().locked_bytes,
            places,
        }
    }
}

/// A thread's name and place.
fn thread(task: &Path) -> Option<(String, Place)> {
    let read = |file: &str| std::fs::read_to_string(task.join(file)).ok();
    let (stat, status) = (read("stat")?, read("status")?);
    // The name is in brackets and may hold anything, also brackets.
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    // The first field after the name is the third of the manual's (man 5 proc_pid_stat).
    let field = |number: usize| fields.get(number - 3).copied();
    let scheduling = match field(41)? {
        "1" => Scheduling::Fifo(field(40)?.parse().ok()?),
        "2" => Scheduling::RoundRobin(field(40)?.parse().ok()?),
        _ => Scheduling::Nice(field(19)?.parse().ok()?),
    };
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Some((name.to_owned(), Place { cpus: cpus.and_then(Cpus::parse), scheduling }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_each_kind_of_thread_is_as_the_kernel_says() {
        let here = Place::of_this_thread();
        let (seen, read) = crossbeam_channel::bounded(1);
        let spec = crate::threads::ThreadSpec {
            name: "out/test".into(),
            kind: crate::threads::ThreadKind::Output,
            limit: std::time::Duration::from_secs(60),
        };
        let body = move |_| seen.send(RealtimeSnapshot::take()).unwrap();
        crate::threads::Threads::new().spawn(spec, body, |_| {}).unwrap();
        let snapshot = read.recv().unwrap();
        assert_eq!(snapshot.memory_lock, "off");
        assert!(snapshot.places["output"].contains(&here.to_string()), "{snapshot:?} has no {here}");
        assert!(snapshot.places.contains_key("main"), "{snapshot:?}");
    }
}
