//! What CPUs a machine has: cores, their siblings and strengths, which are kept free, how they are clocked.

use std::collections::BTreeMap;
use std::path::Path;

use super::cpus::Cpus;

/// The CPUs of a machine that are online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// In the order of their numbers.
    pub cpus: Vec<Cpu>,
    /// Those that the kernel keeps free of ordinary threads (`isolcpus=`).
    pub isolated: Cpus,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// The CPUs of its core, it among them: more than one where a core runs several threads at once.
    pub core: Cpus,
    /// How much work it does, the strongest of the machine being 1024.
    pub capacity: u32,
    /// Who sets its clock; none where nobody does, or does not tell.
    pub governor: Option<String>,
}

impl Topology {
    /// Reads `/sys`, or a folder that is laid out as it is. What the kernel does not tell is taken as on a plain machine:
    /// a core for each CPU, all equally strong, none kept free.
    #[must_use]
    pub fn read(sys: &Path) -> Self {
        let root = sys.join("devices/system/cpu");
        let list = |name: &str| text(&root.join(name)).and_then(|list| Cpus::parse(&list));
        let online = list("online").unwrap_or_default();
        let mut cpus: Vec<Cpu> =
            online.iter().map(|number| cpu(&root.join(format!("cpu{number}")), number)).collect();
        let capacity =
            |name| online.iter().map(|cpu| number(&root.join(format!("cpu{cpu}/{name}")))).collect();
        // Kernels without an opinion of their own still know how fast each CPU can be clocked.
        let all: Option<Vec<u32>> = capacity("cpu_capacity");
        if let Some(all) = all.or_else(|| capacity("cpufreq/cpuinfo_max_freq")) {
            let most = u64::from(all.iter().copied().max().unwrap_or(1).max(1));
            for (cpu, own) in cpus.iter_mut().zip(all) {
                cpu.capacity = u32::try_from(u64::from(own) * 1024 / most)
                    .expect("no more than the most, which is 1024");
            }
        }
        Self { cpus, isolated: list("isolated").unwrap_or_default().and(&online) }
    }

    /// All of them.
    #[must_use]
    pub fn online(&self) -> Cpus {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    /// The CPUs of each governor, by its name.
    #[must_use]
    pub fn governors(&self) -> BTreeMap<&str, Cpus> {
        let mut governors: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for cpu in &self.cpus {
            if let Some(governor) = &cpu.governor {
                governors.entry(governor).or_default().push(cpu.number);
            }
        }
        governors.into_iter().map(|(name, cpus)| (name, cpus.into_iter().collect())).collect()
    }
}

fn cpu(dir: &Path, number: usize) -> Cpu {
    // Linux before 5.0 has only the second name.
    let siblings = ["topology/core_cpus_list", "topology/thread_siblings_list"];
    let core = siblings.iter().find_map(|name| Cpus::parse(&text(&dir.join(name))?));
    Cpu {
        number,
        core: core.filter(|core| core.contains(number)).unwrap_or_else(|| [number].into_iter().collect()),
        capacity: 1024,
        governor: text(&dir.join("cpufreq/scaling_governor")),
    }
}

fn text(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

fn number(file: &Path) -> Option<u32> {
    text(file)?.parse().ok()
}

#[cfg(test)]
pub(super) mod fixtures {
    //! Machines as their `/sys` shows them.

    use super::*;

    /// A machine: `online`, `isolated`, and for each CPU its siblings, capacity and highest clock in kHz (0: not told).
    pub(in super::super) struct Machine {
        pub online: &'static str,
        pub isolated: &'static str,
        pub cpus: Vec<(String, u32, u32)>,
    }

    impl Machine {
        /// Writes it as files and reads these.
        pub(in super::super) fn read(&self) -> Topology {
            let sys = tempfile::tempdir().unwrap();
            let root = sys.path().join("devices/system/cpu");
            let write = |name: &str, text: &str| {
                let file = root.join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, format!("{text}\n")).unwrap();
            };
            write("online", self.online);
            write("isolated", self.isolated);
            for (number, (siblings, capacity, clock)) in self.cpus.iter().enumerate() {
                write(&format!("cpu{number}/topology/core_cpus_list"), siblings);
                if *capacity > 0 {
                    write(&format!("cpu{number}/cpu_capacity"), &capacity.to_string());
                }
                if *clock > 0 {
                    write(&format!("cpu{number}/cpufreq/cpuinfo_max_freq"), &clock.to_string());
                    write(&format!("cpu{number}/cpufreq/scaling_governor"), "schedutil");
                }
            }
            Topology::read(sys.path())
        }
    }

    fn alone(count: usize, each: impl Fn(usize) -> (u32, u32)) -> Vec<(String, u32, u32)> {
        (0..count).map(|cpu| (cpu.to_string(), each(cpu).0, each(cpu).1)).collect()
    }

    /// Jetson AGX Orin: 12 cores of one kind.
    pub(in super::super) fn orin() -> Machine {
        Machine { online: "0-11", isolated: "", cpus: alone(12, |_| (1024, 2_201_600)) }
    }

    /// RK3588: 4 small cores and 4 large ones, of which two are clocked a little lower.
    pub(in super::super) fn rk3588() -> Machine {
        let strength = |cpu| match cpu {
            0..4 => (530, 1_800_000),
            4..6 => (1024, 2_400_000),
            _ => (1007, 2_352_000),
        };
        Machine { online: "0-7", isolated: "", cpus: alone(8, strength) }
    }

    /// A PC of 8 cores with two threads each, whose kernel numbers the second threads after the first ones.
    pub(in super::super) fn smt() -> Machine {
        let cpus = (0..16).map(|cpu| (format!("{},{}", cpu % 8, cpu % 8 + 8), 0, 5_100_000)).collect();
        Machine { online: "0-15", isolated: "", cpus }
    }

    /// A virtual machine of 2 CPUs that tells nothing else.
    pub(in super::super) fn small() -> Machine {
        Machine { online: "0-1", isolated: "", cpus: alone(2, |_| (1024, 0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(topology: &Topology) -> Vec<u32> {
        topology.cpus.iter().map(|cpu| cpu.capacity).collect()
    }

    #[test]
    fn small_and_large_cores_are_told_apart() {
        let rk3588 = fixtures::rk3588().read();
        assert_eq!(capacities(&rk3588), [530, 530, 530, 530, 1024, 1024, 1007, 1007]);
        assert_eq!(rk3588.governors(), [("schedutil", Cpus::parse("0-7").unwrap())].into());
    }

    #[test]
    fn a_kernel_that_tells_no_capacity_tells_the_clock() {
        let mut machine = fixtures::rk3588();
        for cpu in &mut machine.cpus {
            cpu.1 = 0;
        }
        assert_eq!(capacities(&machine.read()), [768, 768, 768, 768, 1024, 1024, 1003, 1003]);
    }

    #[test]
    fn threads_of_one_core_are_siblings() {
        let smt = fixtures::smt().read();
        assert_eq!(smt.cpus[3].core, smt.cpus[11].core);
        assert_eq!(smt.cpus[3].core.to_string(), "3,11");
        assert!(fixtures::orin().read().cpus.iter().all(|cpu| cpu.core.len() == 1));
    }

    #[test]
    fn a_folder_without_anything_is_a_machine_without_cpus() {
        assert_eq!(Topology::read(Path::new("/nonexistent")), Topology::default());
    }

    #[test]
    fn this_machine_has_the_cpus_that_this_thread_may_run_on() {
        let topology = Topology::read(Path::new("/sys"));
        let mine = Cpus::of_this_thread().unwrap();
        assert_eq!(mine.minus(&topology.online()), Cpus::default(), "{topology:?}");
    }
}
