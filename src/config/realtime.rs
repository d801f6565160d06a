//! The `realtime` section, and the `cpus` of cameras and devices.

use std::collections::BTreeMap;

use super::check::{Item, Section};
use crate::memory::{Policy, Wish};
use crate::threads::cpus::Cpus;
use crate::threads::place::{Grant, Place, Places};

/// What keeps Gantry on time while the machine is busy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Realtime {
    /// How memory is made.
    pub memory: Policy,
    /// Where the threads of each kind run, and how they share their CPUs.
    pub places: Places,
    /// CPUs of cameras that have their own, by their ids.
    pub cameras: BTreeMap<String, Cpus>,
    /// CPUs of devices that have their own, by their ids.
    pub devices: BTreeMap<String, Cpus>,
    /// Whether a model on the CPU may go before the decoding of video.
    pub force_infer: bool,
    /// What to do where the kernel refuses a scheduling.
    pub grant: Grant,
}

/// What a root without a mistake says.
pub(super) fn realtime(root: &Section) -> Option<Realtime> {
    let realtime = root.inner("realtime")?;
    let (cpus, scheduling) = (realtime.inner("cpus")?, realtime.inner("scheduling")?);
    let place = |kind| Some(Place { cpus: cpus.cpus(kind), scheduling: scheduling.scheduling(kind)? });
    let own = |list: &str| {
        let sections = root.list(list).filter_map(Item::section);
        sections.filter_map(|section| Some((section.text("id")?.to_owned(), section.cpus("cpus")?))).collect()
    };
    let wish = |name| {
        Some(match realtime.text(name)? {
            "require" => Wish::Require,
            "off" => Wish::Off,
            _ => Wish::Auto,
        })
    };
    Some(Realtime {
        memory: Policy { lock: wish("lock_memory")?, huge_pages: wish("huge_pages")? },
        places: Places { source: place("source")?, infer: place("infer")?, io: place("io")? },
        cameras: own("cameras"),
        devices: own("devices"),
        force_infer: scheduling.boolean("force_infer")?,
        grant: if scheduling.text("grant")? == "require" { Grant::Require } else { Grant::Auto },
    })
}
