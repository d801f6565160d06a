//! How this machine schedules threads, and what could be better.

use std::fmt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use super::Advice;
use crate::threads::cpus::Cpus;
use crate::threads::place::{PlaceError, Scheduling};
use crate::threads::suggest::{Suggestion, suggest};
use crate::threads::topology::Topology;

/// A priority that is enough for anything that Gantry does.
const PRIORITY: u8 = 50;

/// What the kernel and the limits of this process allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scheduled {
    /// The kernel's release.
    pub kernel: String,
    /// When a thread that wakes may take the CPU from one that is inside the kernel.
    pub preemption: Preemption,
    /// What `fifo` and `rr` threads may use of a second, in microseconds, where the kernel tells; -1 is all.
    pub rt_runtime_us: Option<i64>,
    /// Whether this process has the capability `CAP_SYS_NICE`.
    pub cap_sys_nice: bool,
    /// The highest priority that the limits let this process give; none is any.
    pub rt_priority_limit: Option<u64>,
    /// What would have the kernel grant `fifo` and `rr`; none where it does.
    pub real_time_cure: Option<String>,
    /// The CPUs that a config may name.
    pub cpus: Cpus,
    /// The CPUs that are online.
    pub online: Cpus,
    /// Those that the kernel keeps free of ordinary threads.
    pub isolated: Cpus,
    /// Who sets the clock of which CPUs, where it is told.
    pub governors: Vec<(String, Cpus)>,
    /// Where the threads of each kind could be put.
    pub suggestion: Suggestion,
}

/// How soon a thread that wakes gets the CPU from one that is inside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    /// Nearly at once, also during interrupts.
    RealTime,
    /// At once, but during interrupts and with locks held.
    Full,
    /// At the next tick, or at once for real-time threads.
    Lazy,
    /// Where the kernel offers it.
    Voluntary,
    /// When the other leaves the kernel.
    None,
    /// As chosen at boot, which only root may see.
    ChosenAtBoot,
}

impl Scheduled {
    /// Looks at this machine.
    #[must_use]
    pub fn look() -> Self {
        let topology = Topology::read(Path::new("/sys"));
        let cpus = Cpus::allowed(&topology.isolated);
        let uname = rustix::system::uname();
        let refused = Scheduling::Fifo(PRIORITY).try_out().err();
        Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            preemption: preemption(Path::new("/"), &uname.version().to_string_lossy()),
            rt_runtime_us: read(Path::new("/proc/sys/kernel/sched_rt_runtime_us"))
                .and_then(|text| text.parse().ok()),
            cap_sys_nice: capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE)),
            rt_priority_limit: getrlimit(Resource::Rtprio).current,
            real_time_cure: refused.and_then(|refused| match refused {
                PlaceError::Scheduling { cure, .. } => Some(cure),
                PlaceError::Cpus { .. } => None,
            }),
            online: topology.online(),
            isolated: topology.isolated.clone(),
            governors: topology.governors().into_iter().map(|(name, cpus)| (name.to_owned(), cpus)).collect(),
            suggestion: suggest(&topology, &cpus),
            cpus,
        }
    }

    /// What could be better.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        if let Some(cure) = &self.real_time_cure {
            advice.push(Advice::new(
                "no config can have `fifo` or `rr`, which the defaults do without",
                cure.as_str(),
            ));
        }
        if self.rt_runtime_us == Some(-1) {
            advice.push(Advice::new(
                "a `fifo` or `rr` thread that never waits would stop the machine",
                "sysctl kernel.sched_rt_runtime_us=950000",
            ));
        }
        if matches!(self.preemption, Preemption::None | Preemption::Voluntary) {
            advice.push(Advice::new(
                "a thread that wakes waits for others that are inside the kernel, now and then for milliseconds",
                "boot with preempt=full, or a kernel that is built with CONFIG_PREEMPT",
            ));
        }
        for (governor, cpus) in &self.governors {
            if governor != "performance" {
                advice.push(Advice::new(
                    format!("the governor {governor} clocks the CPUs {cpus} down between frames"),
                    "cpupower frequency-set -g performance",
                ));
            }
        }
        advice
    }
}

impl fmt::Display for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preemption = match self.preemption {
            Preemption::RealTime => "real-time (PREEMPT_RT)",
            Preemption::Full => "full",
            Preemption::Lazy => "lazy",
            Preemption::Voluntary => "voluntary or none",
            Preemption::None => "none",
            Preemption::ChosenAtBoot => "as chosen at boot (root sees it in /sys/kernel/debug/sched/preempt)",
        };
        writeln!(f, "  kernel {}, preemption: {preemption}", self.kernel)?;
        let verdict = match (&self.real_time_cure, self.rt_priority_limit) {
            (None, _) if self.cap_sys_nice => "granted by CAP_SYS_NICE".to_owned(),
            (None, Some(limit)) => format!("granted up to {limit}"),
            (None, None) => "granted, no limit".to_owned(),
            (Some(_), Some(limit)) if !self.cap_sys_nice => {
                format!("refused, limit {limit} and no CAP_SYS_NICE")
            }
            (Some(_), _) => "refused by the kernel".to_owned(),
        };
        let share = match self.rt_runtime_us {
            Some(-1) => "; all of each second is theirs".to_owned(),
            Some(micros) => format!("; {} ms of each second are theirs at most", micros / 1000),
            None => String::new(),
        };
        writeln!(f, "  fifo and rr: {verdict}{share}")?;
        write!(f, "  CPUs {} of {}", self.cpus, self.online)?;
        if !self.isolated.is_empty() {
            write!(f, ", {} kept free by the kernel", self.isolated)?;
        }
        for (governor, cpus) in &self.governors {
            write!(f, ", governor of {cpus}: {governor}")?;
        }
        match &self.suggestion.cpus {
            Some(split) => writeln!(f, "\n  placement: {split}\n    {}", self.suggestion.reason),
            None => writeln!(f, "\n  placement: pin nothing; {}", self.suggestion.reason),
        }
    }
}

/// `root` is `/`, or a folder that is laid out as it is; `version` what the kernel says of how it was built.
fn preemption(root: &Path, version: &str) -> Preemption {
    if version.contains("PREEMPT_RT") || read(&root.join("sys/kernel/realtime")).as_deref() == Some("1") {
        return Preemption::RealTime;
    }
    if !version.contains("PREEMPT_DYNAMIC") {
        // Without the word it is one of the two, and the cure for both is the same.
        return if version.contains("PREEMPT") { Preemption::Full } else { Preemption::Voluntary };
    }
    // The present choice is in brackets, as `none voluntary (full) lazy`.
    let present = read(&root.join("sys/kernel/debug/sched/preempt"));
    let present = present
        .as_deref()
        .and_then(|choices| choices.split_once('(')?.1.split_once(')'))
        .map(|(mode, _)| mode);
    let command = read(&root.join("proc/cmdline")).unwrap_or_default();
    let at_boot =
        command.split_ascii_whitespace().filter_map(|word| word.strip_prefix("preempt=")).next_back();
    match present.or(at_boot) {
        Some("full") => Preemption::Full,
        Some("lazy") => Preemption::Lazy,
        Some("voluntary") => Preemption::Voluntary,
        Some("none") => Preemption::None,
        _ => Preemption::ChosenAtBoot,
    }
}

fn read(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Scheduled {
        let cpus = Cpus::parse("0-3").unwrap();
        Scheduled {
            kernel: "6.1.0".to_owned(),
            preemption: Preemption::Full,
            rt_runtime_us: Some(950_000),
            cap_sys_nice: false,
            rt_priority_limit: Some(50),
            real_time_cure: None,
            cpus: cpus.clone(),
            online: cpus.clone(),
            isolated: Cpus::default(),
            governors: vec![("performance".to_owned(), cpus)],
            suggestion: Suggestion { cpus: None, reason: String::new() },
        }
    }

    #[test]
    fn a_machine_on_which_all_is_well_gets_no_advice() {
        assert_eq!(quiet().advice(), []);
    }

    #[test]
    fn each_thing_that_is_not_as_it_should_be_is_told_with_its_cure() {
        let cpus = Cpus::parse("0-3").unwrap();
        let bad = Scheduled {
            preemption: Preemption::Voluntary,
            rt_runtime_us: Some(-1),
            real_time_cure: Some("write LimitRTPRIO=1".to_owned()),
            governors: vec![("powersave".to_owned(), cpus)],
            ..quiet()
        };
        let cures: Vec<_> = bad.advice().into_iter().map(|advice| advice.cure).collect();
        for (cure, word) in
            cures.iter().zip(["LimitRTPRIO", "sched_rt_runtime_us", "preempt=full", "cpupower"])
        {
            assert!(cure.contains(word), "{cure}");
        }
        assert_eq!(cures.len(), 4);
    }

    #[test]
    fn how_a_kernel_preempts_is_read_where_it_tells() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let of = |version: &str| preemption(root.path(), version);
        assert_eq!(of("#1 SMP PREEMPT_RT Debian"), Preemption::RealTime);
        assert_eq!(of("#1 SMP PREEMPT Tue"), Preemption::Full);
        assert_eq!(of("#1 SMP Debian"), Preemption::Voluntary);
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian";
        assert_eq!(of(dynamic), Preemption::ChosenAtBoot);
        write("proc/cmdline", "quiet preempt=none\n");
        assert_eq!(of(dynamic), Preemption::None);
        write("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy\n");
        assert_eq!(of(dynamic), Preemption::Full, "what is so now counts more");
        write("sys/kernel/realtime", "1\n");
        assert_eq!(of("#1 SMP PREEMPT"), Preemption::RealTime, "an older real-time kernel");
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let here = Scheduled::look();
        assert!(!here.cpus.is_empty() && here.cpus.minus(&here.online).is_empty(), "{here:?}");
    }
}
