//! Where a thread runs and how it is scheduled, taken by the thread itself as it starts.
//!
//! A thread that a library starts takes over the place of the thread that started it: those of a video decoder the place
//! of its camera's streaming thread, those of ONNX Runtime the place of its device's thread.

use std::fmt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::cpus::Cpus;

/// The priorities that `fifo` and `rr` take. 99 is left to the kernel's own threads.
pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=98;
/// The values that `nice` takes.
pub const NICES: std::ops::RangeInclusive<i8> = -20..=19;

/// How a thread shares its CPUs with others. `Display` writes it as a config does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// As the process was started.
    #[default]
    Normal,
    /// Fairly, with this weight: -20 gets the most, 19 the least.
    Nice(i8),
    /// `SCHED_FIFO`: before every thread of a lower priority, for as long as it likes.
    Fifo(u8),
    /// `SCHED_RR`: before every thread of a lower priority, in turn with those of the same.
    RoundRobin(u8),
}

/// Where a thread runs and how it is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The CPUs that it may run on; those that the process was started on, when none.
    pub cpus: Option<Cpus>,
    /// How it shares them.
    pub scheduling: Scheduling,
}

/// The place of each kind of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Cameras: their threads, GStreamer's, and those of video decoders.
    pub source: Place,
    /// Devices: their threads, and those of the runtimes on them.
    pub infer: Place,
    /// All else.
    pub io: Place,
}

/// Whether Gantry starts where the kernel refuses what [`Places`] ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grant {
    /// It does not.
    Require,
    /// It goes on without, and says so.
    #[default]
    Auto,
}

/// Why a thread is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The kernel refuses these CPUs.
    #[error("the kernel refuses the CPUs {cpus}; were they taken offline, or from the control group?")]
    Cpus {
        /// The CPUs.
        cpus: Cpus,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
    /// The kernel refuses this scheduling.
    #[error("the kernel refuses `{scheduling}`; {cure}")]
    Scheduling {
        /// What was asked for.
        scheduling: Scheduling,
        /// What to do.
        cure: String,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
}

impl Scheduling {
    /// Whether it goes before every ordinary thread.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::RoundRobin(_))
    }

    /// Whether the kernel grants it: the calling thread tries, and goes back. Soft limits are raised to the hard ones first,
    /// which anybody may.
    ///
    /// # Errors
    /// [`PlaceError::Scheduling`], with the cure.
    pub fn try_out(self) -> Result<(), PlaceError> {
        raise(Resource::Rtprio);
        raise(Resource::Nice);
        let before = native::get();
        match (self, before) {
            // Nobody is refused a smaller weight, and the way back might be.
            (Self::Nice(nice), Self::Nice(own)) if nice >= own => return Ok(()),
            (Self::Normal, _) | (Self::Nice(_), Self::Fifo(_) | Self::RoundRobin(_)) => return Ok(()),
            _ => {}
        }
        self.take()?;
        before.take()
    }

    /// Gives it to the calling thread, and to the threads that it starts.
    fn take(self) -> Result<(), PlaceError> {
        let refused = |source| PlaceError::Scheduling { scheduling: self, cure: self.cure(), source };
        native::set(self).map_err(refused)
    }

    /// What has the kernel grant it.
    fn cure(self) -> String {
        let capability =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
        let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
        match self {
            Self::Fifo(priority) | Self::RoundRobin(priority) => {
                if capability || limit(Resource::Rtprio) >= u64::from(priority) {
                    "the limits allow it, so the unit has RestrictRealtime=yes, or its control group has nothing in \
                     cpu.rt_runtime_us: take away the one or give the other"
                        .to_owned()
                } else {
                    format!("write LimitRTPRIO={priority} into the unit, or give the capability CAP_SYS_NICE")
                }
            }
            Self::Nice(nice) => {
                format!("write LimitNICE={nice} into the unit, or give the capability CAP_SYS_NICE")
            }
            Self::Normal => "start Gantry with the scheduling that it shall have".to_owned(),
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("normal"),
            Self::Nice(nice) => write!(f, "nice {nice}"),
            Self::Fifo(priority) => write!(f, "fifo {priority}"),
            Self::RoundRobin(priority) => write!(f, "rr {priority}"),
        }
    }
}

impl Place {
    /// Where the calling thread is now.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self { cpus: Cpus::of_this_thread().ok(), scheduling: native::get() }
    }

    /// Puts the calling thread there, and the threads that it starts. What it leaves open is taken from `base`. Nothing is
    /// asked of the kernel where the thread is there already.
    ///
    /// # Errors
    /// What the kernel refuses. The one is taken even if the other is refused.
    pub fn take(&self, base: &Self) -> Result<(), PlaceError> {
        let now = Self::of_this_thread();
        let cpus = self.cpus.as_ref().or(base.cpus.as_ref());
        let placed = match cpus.filter(|cpus| now.cpus.as_ref() != Some(cpus)) {
            Some(cpus) => cpus.take().map_err(|source| PlaceError::Cpus { cpus: cpus.clone(), source }),
            None => Ok(()),
        };
        let scheduling = match self.scheduling {
            Scheduling::Normal => base.scheduling,
            own => own,
        };
        // Of nothing that was ever asked for, there is nothing to be taken.
        let is_there = scheduling == Scheduling::Normal || now.scheduling == scheduling;
        if is_there { placed } else { placed.and(scheduling.take()) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cpus {
            Some(cpus) => write!(f, "CPUs {cpus}, {}", self.scheduling),
            None => write!(f, "every CPU, {}", self.scheduling),
        }
    }
}

/// Raises a soft limit to its hard one. Where that is refused, the use of it will be, and is told then.
fn raise(resource: Resource) {
    let limit = getrlimit(resource);
    if limit.current != limit.maximum {
        setrlimit(resource, Rlimit { current: limit.maximum, ..limit }).ok();
    }
}

/// The kernel's calls of which no safe wrapper is in the crates that are here.
mod native {
    use std::io;

    use rustix::process::{getpriority_process, setpriority_process};

    use super::Scheduling;

    /// How the calling thread is scheduled; never [`Scheduling::Normal`].
    #[expect(unsafe_code, reason = "rustix has no sched_getscheduler")]
    pub(super) fn get() -> Scheduling {
        // SAFETY: it takes no pointer; 0 is the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is the calling thread, and the pointer is to a whole `sched_param` that nobody else uses.
        let told = unsafe { libc::sched_getparam(0, &raw mut parameters) } == 0;
        let priority = u8::try_from(parameters.sched_priority).unwrap_or_default();
        match policy {
            libc::SCHED_FIFO if told => Scheduling::Fifo(priority),
            libc::SCHED_RR if told => Scheduling::RoundRobin(priority),
            _ => {
                let nice = getpriority_process(None).unwrap_or_default();
                Scheduling::Nice(i8::try_from(nice).unwrap_or_default())
            }
        }
    }

    /// Gives it to the calling thread.
    pub(super) fn set(scheduling: Scheduling) -> io::Result<()> {
        match scheduling {
            Scheduling::Normal => Ok(()),
            Scheduling::Fifo(priority) => set_policy(libc::SCHED_FIFO, priority),
            Scheduling::RoundRobin(priority) => set_policy(libc::SCHED_RR, priority),
            Scheduling::Nice(nice) => {
                if get().is_real_time() {
                    set_policy(libc::SCHED_OTHER, 0)?;
                }
                Ok(setpriority_process(None, i32::from(nice))?)
            }
        }
    }

    #[expect(unsafe_code, reason = "rustix has no sched_setscheduler")]
    fn set_policy(policy: i32, priority: u8) -> io::Result<()> {
        let parameters = libc::sched_param { sched_priority: i32::from(priority) };
        // SAFETY: 0 is the calling thread, and the pointer is to a whole `sched_param` that the call only reads.
        match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on a thread that nothing else runs on, so that no other test is moved.
    fn aside(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn a_place_is_taken_left_and_read_back() {
        aside(|| {
            let base = Place::of_this_thread();
            let all = base.cpus.clone().unwrap();
            let Scheduling::Nice(nice) = base.scheduling else {
                panic!("tests run as ordinary threads: {base}")
            };
            let first: Cpus = all.iter().take(1).collect();
            let place = Place { cpus: Some(first.clone()), scheduling: Scheduling::Nice(nice + 1) };
            place.take(&base).unwrap();
            assert_eq!(Place::of_this_thread(), place);
            // What is left open is the base's; the weight cannot be had back without a right to it.
            Place { cpus: None, scheduling: Scheduling::Nice(nice + 1) }.take(&base).unwrap();
            assert_eq!(Place::of_this_thread().cpus, Some(all));
        });
    }

    #[test]
    fn cpus_that_are_not_there_are_refused_and_named() {
        aside(|| {
            let base = Place::of_this_thread();
            let place = Place {
                cpus: Some([super::super::cpus::NUMBER_MAX].into_iter().collect()),
                ..Place::default()
            };
            let error = place.take(&base).unwrap_err().to_string();
            assert!(error.starts_with("the kernel refuses the CPUs 1023; "), "{error}");
            assert_eq!(Place::of_this_thread(), base);
        });
    }

    #[test]
    fn a_priority_is_granted_and_given_back_or_refused_with_the_cure() {
        aside(|| {
            let before = Place::of_this_thread();
            match Scheduling::Fifo(7).try_out() {
                Ok(()) => {
                    Scheduling::RoundRobin(3).take().unwrap();
                    assert_eq!(Place::of_this_thread().scheduling, Scheduling::RoundRobin(3));
                    before.take(&before).unwrap();
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.starts_with("the kernel refuses `fifo 7`; "), "{text}");
                    assert!(text.contains("LimitRTPRIO=7") || text.contains("RestrictRealtime"), "{text}");
                }
            }
            assert_eq!(Place::of_this_thread(), before);
            Scheduling::Nice(19).try_out().unwrap();
            assert_eq!(Place::of_this_thread(), before, "not even tried: there might be no way back");
        });
    }
}
