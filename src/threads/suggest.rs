//! Where a config could put the threads of each kind, from what CPUs there are; pure.
//!
//! Gantry itself pins nothing that no config pins. On CPUs that are alike the kernel's own choice is hard to beat, as it
//! follows the load; and CPUs that are kept free were kept free for somebody, who need not be Gantry.

use std::fmt;

use serde::Serialize;

use super::cpus::Cpus;
use super::topology::{Cpu, Topology};

/// A CPU is strong when it does at least so many quarters of the work of the strongest.
const STRONG_QUARTERS: u32 = 3;
/// With fewer cores than this, whatever is pinned takes from the others more than it gives.
const CORES_MIN: usize = 4;

/// What could be written into a config, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The CPUs for each kind of work; none where nothing should be pinned.
    pub cpus: Option<Split>,
    /// Why, for people.
    pub reason: String,
}

/// `realtime.cpus`. `Display` writes it as a config does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Split {
    /// For cameras and video decoders.
    pub source: Cpus,
    /// For models.
    pub infer: Cpus,
    /// For all else.
    pub io: Cpus,
}

/// A placement for this machine, of which Gantry may use `allowed`.
#[must_use]
pub fn suggest(topology: &Topology, allowed: &Cpus) -> Suggestion {
    let usable = topology.online().and(allowed);
    if usable.is_empty() {
        let reason = "the kernel does not tell what CPUs there are".to_owned();
        return Suggestion { cpus: None, reason };
    }
    let (free, ordinary) = (topology.isolated.and(&usable), usable.minus(&topology.isolated));
    if !free.is_empty() && !ordinary.is_empty() {
        return Suggestion {
            reason: format!(
                "the kernel keeps {free} free of other threads, which suits inference if no other program has them; \
                 write a device with threads: 1 for each, because the kernel spreads no threads over them by itself"
            ),
            cpus: Some(split(ordinary, first_of_cores(topology, &free))),
        };
    }
    let strong = strong(topology, &usable);
    let weak = usable.minus(&strong);
    if !weak.is_empty() {
        return Suggestion {
            reason: format!(
                "{strong} are stronger than {weak}; where video is decoded in software by many cameras, leave out source"
            ),
            cpus: Some(split(weak, strong)),
        };
    }
    let cores = first_of_cores(topology, &usable);
    if cores.len() < CORES_MIN {
        return Suggestion {
            reason: format!(
                "{} are alike: the kernel places threads better than a config could",
                count(cores.len(), "core")
            ),
            cpus: None,
        };
    }
    // A quarter for video decoding is a start. What is right depends on the cameras and on the model.
    let source: Cpus = cores.iter().take(cores.len() / 4).collect();
    let infer = cores.minus(&source);
    let siblings = usable.len() > cores.len();
    let source = if siblings { whole_cores(topology, &source).and(&usable) } else { source };
    let more = if siblings { ", one thread of each core, whose other would take turns with it" } else { "" };
    Suggestion {
        reason: format!(
            "a start, to be measured: a quarter of the cores for video, the others for inference{more}"
        ),
        cpus: Some(split(source, infer)),
    }
}

fn split(source: Cpus, infer: Cpus) -> Split {
    Split { io: source.clone(), source, infer }
}

fn strong(topology: &Topology, usable: &Cpus) -> Cpus {
    let cpus = || topology.cpus.iter().filter(|cpu| usable.contains(cpu.number));
    let most = cpus().map(|cpu| cpu.capacity).max().unwrap_or(0);
    cpus().filter(|cpu| cpu.capacity * 4 >= most * STRONG_QUARTERS).map(|cpu| cpu.number).collect()
}

/// Of each core that has some of these CPUs, the first.
fn first_of_cores(topology: &Topology, cpus: &Cpus) -> Cpus {
    let first = |cpu: &&Cpu| cpu.core.and(cpus).iter().next() == Some(cpu.number);
    topology.cpus.iter().filter(first).map(|cpu| cpu.number).collect()
}

fn whole_cores(topology: &Topology, cpus: &Cpus) -> Cpus {
    let of_core = |cpu: &&Cpu| !cpu.core.and(cpus).is_empty();
    topology.cpus.iter().filter(of_core).map(|cpu| cpu.number).collect()
}

fn count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |cpus: &Cpus| cpus.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(", ");
        let (source, infer, io) = (list(&self.source), list(&self.infer), list(&self.io));
        write!(f, "realtime: {{cpus: {{source: [{source}], infer: [{infer}], io: [{io}]}}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::fixtures::{self, Machine};
    use super::*;

    fn cpus(list: &str) -> Cpus {
        Cpus::parse(list).unwrap()
    }

    /// What is suggested on a machine for source and infer; io goes with source.
    fn placed(machine: &Machine, allowed: &str) -> Option<(String, String)> {
        let split = suggest(&machine.read(), &cpus(allowed)).cpus?;
        assert_eq!(split.source, split.io);
        assert!(split.source.and(&split.infer).is_empty(), "{split}");
        Some((split.source.to_string(), split.infer.to_string()))
    }

    fn some(source: &str, infer: &str) -> Option<(String, String)> {
        Some((source.to_owned(), infer.to_owned()))
    }

    #[test]
    fn large_cores_run_models_and_small_ones_the_rest() {
        assert_eq!(placed(&fixtures::rk3588(), "0-7"), some("0-3", "4-7"));
        assert_eq!(placed(&fixtures::rk3588(), "4-7"), some("4", "5-7"), "in a container of large cores");
        assert_eq!(placed(&fixtures::rk3588(), "2-4"), some("2-3", "4"));
    }

    #[test]
    fn cores_that_are_alike_are_parted() {
        assert_eq!(placed(&fixtures::orin(), "0-11"), some("0-2", "3-11"));
    }

    #[test]
    fn of_a_core_with_two_threads_one_runs_models() {
        assert_eq!(placed(&fixtures::smt(), "0-15"), some("0-1,8-9", "2-7"));
        assert_eq!(placed(&fixtures::smt(), "0-3,8"), some("0,8", "1-3"));
    }

    #[test]
    fn two_cpus_are_left_to_the_kernel() {
        assert_eq!(placed(&fixtures::small(), "0-1"), None);
        assert_eq!(placed(&fixtures::orin(), "3-5"), None, "in a container of three");
        let reason = suggest(&fixtures::small().read(), &cpus("0-1")).reason;
        assert!(reason.starts_with("2 cores are alike"), "{reason}");
    }

    #[test]
    fn cpus_that_are_kept_free_run_models() {
        let mut machine = fixtures::smt();
        machine.isolated = "6-7,14-15";
        assert_eq!(placed(&machine, "0-15"), some("0-5,8-13", "6-7"));
        assert_eq!(placed(&machine, "0-5,8-13"), some("0,8", "1-5"), "the control group has none of them");
        assert_eq!(placed(&machine, "6-7"), None, "there is no other");
    }

    #[test]
    fn a_suggestion_can_be_pasted_into_a_config() {
        let split = suggest(&fixtures::rk3588().read(), &cpus("0-7")).cpus.unwrap();
        let line = "realtime: {cpus: {source: [0, 1, 2, 3], infer: [4, 5, 6, 7], io: [0, 1, 2, 3]}}";
        assert_eq!(split.to_string(), line);
    }

    #[test]
    fn a_machine_that_tells_nothing_gets_no_suggestion() {
        assert_eq!(suggest(&Topology::default(), &cpus("0-7")).cpus, None);
    }
}
