//! The rules between values: ids that differ, references that exist, keys that exclude or need each other.
//!
//! A value that is wrong by itself was told already, so a rule that needs it says nothing.

mod placement;

use std::collections::BTreeMap;
use std::path::Path;

use super::check::{Found, Item, Section};
use super::leaf::Leaf;
use super::mend::Strays;
use super::validate::{KnownModels, Surroundings};
use crate::source::Address;
use crate::yaml::{Problems, nearest, shown};

/// Id of the device that there is when none is written.
pub const DEFAULT_DEVICE: &str = "cpu0";

/// Tells every broken rule.
pub fn check(root: &Section, around: &Surroundings<'_>, strays: &mut Strays, problems: &mut Problems) {
    differing_ids(root, "devices", "device", problems);
    differing_ids(root, "cameras", "camera", problems);
    devices_exist(root, strays, problems);
    placement::check(root, around.allowed, strays, problems);
    models_exist(root, around, problems);
    for camera in root.list("cameras").filter_map(Item::section) {
        let address = camera.address("source");
        let inside = address.map(|address| (address.username.is_some(), address.password.is_some()));
        credentials(camera, "source", inside, problems);
        trusted(camera, problems);
    }
    if let Some(publish) = root.inner("publish") {
        if let Some(mqtt) = publish.inner("mqtt") {
            let inside =
                mqtt.broker("broker").map(|broker| (broker.username.is_some(), broker.password.is_some()));
            credentials(mqtt, "broker", inside, problems);
            encryption(mqtt, problems);
        }
        has_a_sink(root, publish, strays, problems);
    }
}

fn differing_ids(root: &Section, list: &str, noun: &str, problems: &mut Problems) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for section in root.list(list).filter_map(Item::section) {
        let id = section.item("id");
        let Some(text) = id.text() else { continue };
        match first.get(text) {
            Some(other) => {
                let message = format!("{text} is already the id of {other}; give each {noun} its own");
                problems.tell(id.place, &id.path, message);
            }
            None => drop(first.insert(text, &section.path)),
        }
    }
}

fn devices_exist(root: &Section, strays: &Strays, problems: &mut Problems) {
    // Where the devices were written in the wrong place or shape, nobody knows which there are.
    if strays.touch("devices") {
        return;
    }
    let (mut known, mut mistaken, mut nameless) = (Vec::new(), Vec::new(), 0);
    match &root.item("devices").found {
        Found::List(devices) => {
            for device in devices {
                match device.section().map(|section| &section.item("id").found) {
                    Some(Found::Leaf(Leaf::Text(id))) => known.push(id.as_str()),
                    // A device whose id is wrong is meant all the same.
                    Some(Found::Bad(Some(id))) => mistaken.push(id.text.as_str()),
                    _ => nameless += 1,
                }
            }
        }
        Found::Absent => known.push(DEFAULT_DEVICE),
        Found::Bad(_) | Found::Leaf(_) | Found::Section(_) => return,
    }
    let cameras = root.list("cameras").filter_map(Item::section);
    for detect in cameras.flat_map(|camera| camera.list("detect")).filter_map(Item::section) {
        let mut named: Vec<&str> = Vec::new();
        for device in detect.list("devices") {
            let Some(id) = device.text() else { continue };
            if named.contains(&id) {
                let message = format!("{id} is named twice; remove one");
                problems.tell(device.place, &device.path, message);
            } else if !known.contains(&id) && nearest(id, mistaken.iter().copied()).is_none() {
                if nameless > 0 {
                    // Probably the device whose id is missing.
                    nameless -= 1;
                    mistaken.push(id);
                } else {
                    problems.tell(device.place, &device.path, unknown("device", id, &known, "devices"));
                }
            }
            named.push(id);
        }
    }
}

fn models_exist(root: &Section, around: &Surroundings<'_>, problems: &mut Problems) {
    let Some(models) = root.inner("models") else { return };
    let dir = models.item("dir");
    let Some(Leaf::Path(written)) = dir.leaf() else { return };
    let cameras = root.list("cameras").filter_map(Item::section);
    let detects = cameras.flat_map(|camera| camera.list("detect")).filter_map(Item::section);
    let references: Vec<&Item> = detects.map(|detect| detect.item("model")).collect();
    let Some(first) = references.iter().find(|item| item.leaf().is_some()) else { return };
    let known = match (around.models)(&around.dir.join(written)) {
        Ok(known) => known,
        Err(reason) => {
            let place = if dir.is_written() { dir.place } else { first.place };
            problems.tell(
                place,
                "models.dir",
                format!("{reason}; write where the models are, as models: {{dir: …}}"),
            );
            return;
        }
    };
    for item in references {
        if let Some(Leaf::Model { name, version }) = item.leaf()
            && let Err(message) = model_exists(name, version.as_deref(), &known, written)
        {
            problems.tell(item.place, &item.path, message);
        }
    }
}

fn model_exists(name: &str, version: Option<&str>, known: &KnownModels, dir: &Path) -> Result<(), String> {
    let Some(versions) = known.get(name) else {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        return Err(unknown("model", name, &names, &dir.display().to_string()));
    };
    match version {
        Some(version) if !versions.iter().any(|known| known == version) => {
            let list = versions.join(", ");
            Err(format!(
                "there is no version {version} of model {name} in {}; there is {list}",
                dir.display()
            ))
        }
        _ => Ok(()),
    }
}

fn unknown(noun: &str, name: &str, known: &[&str], place: &str) -> String {
    let shown = shown(name);
    if known.is_empty() {
        return format!("there is no {noun} {shown} in {place}, and no other {noun} is there");
    }
    let list = known.iter().take(20).copied().collect::<Vec<_>>().join(", ");
    let more = if known.len() > 20 { ", …" } else { "" };
    match nearest(name, known.iter().copied()) {
        Some(near) => {
            format!("there is no {noun} {shown} in {place}; did you mean {near}? There is {list}{more}")
        }
        None => format!("there is no {noun} {shown} in {place}; there is {list}{more}"),
    }
}

/// `inside` says whether the address holds a user name and a password; none when it is wrong.
fn credentials(section: &Section, address: &str, inside: Option<(bool, bool)>, problems: &mut Problems) {
    let (username, file, variable) =
        (section.item("username"), section.item("password_file"), section.item("password_env"));
    if file.is_written() && variable.is_written() {
        let message = "the password is already in password_file; remove one of the two";
        problems.tell(variable.place, &variable.path, message);
    }
    let Some((name_inside, password_inside)) = inside else { return };
    if username.is_written() && name_inside {
        let message = format!("{address} holds a user name already; remove one of the two");
        problems.tell(username.place, &username.path, message);
    }
    let Some(password) = [file, variable].into_iter().find(|item| item.is_written()) else { return };
    if password_inside {
        let message = format!("{address} holds a password already; remove it there");
        problems.tell(password.place, &password.path, message);
    } else if !username.is_written() && !name_inside {
        problems.tell(password.place, &password.path, "a password needs a user name; write username too");
    }
}

fn trusted(camera: &Section, problems: &mut Problems) {
    let file = camera.item("ca_file");
    let Some(source) = camera.address("source").filter(|_| file.is_written()) else { return };
    if !matches!(&source.address, Address::Rtsp(url) if url.scheme() == "rtsps") {
        let message =
            "only rtsps:// is encrypted and takes a ca_file; write rtsps:// in source, or remove it";
        problems.tell(file.place, &file.path, message);
    }
}

fn encryption(mqtt: &Section, problems: &mut Problems) {
    let files = ["ca_file", "cert_file", "key_file"].map(|name| (name, mqtt.item(name)));
    let written: Vec<_> = files.into_iter().filter(|(_, item)| item.is_written()).collect();
    if let (Some(broker), Some((_, first))) = (mqtt.broker("broker"), written.first())
        && !broker.tls
    {
        let names = written.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let message =
            format!("mqtt:// is not encrypted and takes no {names}; write mqtts:// in broker, or remove it");
        problems.tell(first.place, &first.path, message);
        return;
    }
    for (one, other) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        let item = mqtt.item(one);
        if item.is_written() && !mqtt.item(other).is_written() {
            problems.tell(item.place, &item.path, format!("{one} needs {other}; write both or none"));
        }
    }
}

fn has_a_sink(root: &Section, publish: &Section, strays: &mut Strays, problems: &mut Problems) {
    let nowhere = publish.boolean("stdout") == Some(false) && !publish.item("mqtt").is_written();
    let written_elsewhere = |pattern: &&str| strays.explain(pattern);
    if nowhere && !["publish", "publish.mqtt", "publish.stdout"].iter().any(written_elsewhere) {
        let place = if root.item("publish").is_written() { publish.place } else { root.place };
        let message = "results go nowhere; write mqtt: {broker: \"mqtts://broker:8883\"}, or stdout: true";
        problems.tell(place, "publish", message);
    }
}
