//! Which CPUs a config may name, and what shares them how.

use std::collections::BTreeSet;

use super::super::check::{Found, Item, Section};
use super::super::mend::Strays;
use crate::backend::BackendKind;
use crate::threads::cpus::Cpus;
use crate::yaml::Problems;

/// Tells CPUs that are not there, devices with more threads than CPUs, and priorities that would keep video from being
/// decoded.
pub(super) fn check(root: &Section, allowed: &Cpus, strays: &Strays, problems: &mut Problems) {
    let realtime = root.inner("realtime");
    let of_kinds = realtime.and_then(|realtime| realtime.inner("cpus"));
    for kind in ["source", "infer", "io"] {
        if let Some(cpus) = of_kinds {
            exist(cpus, kind, allowed, problems);
        }
    }
    for camera in root.list("cameras").filter_map(Item::section) {
        exist(camera, "cpus", allowed, problems);
    }
    let infer = of_kinds.and_then(|cpus| cpus.cpus("infer"));
    for device in root.list("devices").filter_map(Item::section) {
        exist(device, "cpus", allowed, problems);
        threads_fit(device, infer.as_ref(), problems);
    }
    // Where the devices were written in the wrong place, nobody knows which there are.
    if let Some(scheduling) = realtime.and_then(|realtime| realtime.inner("scheduling"))
        && !strays.touch("devices")
    {
        decoding_goes_on(root, scheduling, problems);
    }
}

fn exist(section: &Section, list: &str, allowed: &Cpus, problems: &mut Problems) {
    let mut named = BTreeSet::new();
    for item in section.list(list) {
        let Some(cpu) = item.index() else { continue };
        if !named.insert(cpu) {
            problems.tell(item.place, &item.path, format!("CPU {cpu} is named twice; remove one"));
        } else if !allowed.contains(cpu) {
            let message = format!("there is no CPU {cpu} that Gantry may use here; there are {allowed}");
            problems.tell(item.place, &item.path, message);
        }
    }
}

/// Threads of one run that share a CPU wait for each other.
fn threads_fit(device: &Section, infer: Option<&Cpus>, problems: &mut Problems) {
    let (threads, own) = (device.item("threads"), device.cpus("cpus"));
    let Some(cpus) = own.as_ref().or(infer) else { return };
    if let Some(count) = threads.index().filter(|count| *count > cpus.len()) {
        let message = format!(
            "{count} threads of one run have {} to share ({cpus}); write threads: {}, or give it more cpus",
            if cpus.len() == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", cpus.len()) },
            cpus.len()
        );
        problems.tell(threads.place, &threads.path, message);
    }
}

fn decoding_goes_on(root: &Section, scheduling: &Section, problems: &mut Problems) {
    let wanted = scheduling.scheduling("infer").filter(|wanted| wanted.is_real_time());
    let Some(wanted) = wanted.filter(|_| scheduling.boolean("force_infer") == Some(false)) else { return };
    let mut devices = root.list("devices").filter_map(Item::section);
    let device = match root.item("devices").found {
        Found::Absent => Some(super::DEFAULT_DEVICE),
        _ => devices.find(|device| runs_on_cpu(device)).and_then(|device| device.text("id")),
    };
    let Some(device) = device else { return };
    let item = scheduling.item("infer");
    let message = format!(
        "device {device} runs its models on the CPU, and with {wanted} no video is decoded there while it works; write \
         nice -5, or give it cpus of its own and write force_infer: true"
    );
    problems.tell(item.place, &item.path, message);
}

/// What `auto` takes runs on the CPU too.
fn runs_on_cpu(device: &Section) -> bool {
    let backend = device.text("backend");
    let named = BackendKind::ALL.into_iter().find(|kind| Some(kind.name()) == backend);
    backend.is_some() && named.is_none_or(BackendKind::runs_on_cpu)
}
