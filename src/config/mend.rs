//! Keys that are not in the table and sections of the wrong shape: told, and put right where it is clear what was meant.
//!
//! Putting them right is what keeps the report exact. A misspelt key is checked as the key that it stands for, so that what
//! is wrong inside is told as well, and so that nobody hears that the right key is missing. A key of another section is
//! remembered as a [`Stray`] for the same reason.

use super::address::{Broker, CameraAddress};
use super::schema::{self, Key, Kind, Placed, Presence};
use crate::yaml::{Entry, Node, Place, Problems, Scalar, Value, join, nearest, shown};

/// A key that was written in a section where it does not belong.
#[derive(Clone, Debug)]
pub struct Stray {
    /// Where it would belong.
    targets: Vec<Placed>,
    /// Whether it already explained that something is missing.
    spent: bool,
    /// What it holds, to be checked where it is a section or list and there is one place for it.
    pub content: Option<Content>,
}

/// A section or list that was written in the wrong place.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its path as written.
    pub path: String,
    /// What it is.
    pub kind: &'static Kind,
    /// Its value.
    pub node: Node,
}

/// Every key that was written in a section where it does not belong.
#[derive(Clone, Debug, Default)]
pub struct Strays(Vec<Stray>);

impl Strays {
    /// Whether what is missing at `pattern` (as `cameras[].source`) was written elsewhere. Each stray explains one thing.
    pub fn explain(&mut self, pattern: &str) -> bool {
        let inside = |path: &str| {
            path.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
        };
        let explains = |placed: &Placed| {
            let path = placed.path();
            path == pattern || (placed.key.presence == Presence::Required && inside(&path))
        };
        let found = self.0.iter_mut().find(|stray| !stray.spent && stray.targets.iter().any(explains));
        found.map(|stray| stray.spent = true).is_some()
    }

    /// Whether anything that belongs to `pattern` was written elsewhere.
    #[must_use]
    pub fn touch(&self, pattern: &str) -> bool {
        self.0.iter().flat_map(|stray| &stray.targets).any(|placed| placed.path() == pattern)
    }

    /// Takes the sections and lists that were written in the wrong place.
    pub fn take_contents(&mut self) -> Vec<Content> {
        self.0.iter_mut().filter_map(|stray| stray.content.take()).collect()
    }
}

/// Puts the whole file right, as far as it is clear what was meant. `root` is a map.
pub fn mend(root: &mut Node, problems: &mut Problems) -> Strays {
    let mut mender = Mender { table: schema::all(), problems, strays: Strays::default() };
    if let Value::Map(entries) = &mut root.value {
        mender.section(schema::ROOT, entries, "");
    }
    mender.strays
}

/// Whether a wrong shape is a mistake of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Told,
    /// Its key was wrong already: `device: gpu0` is one mistake.
    Excused,
}

/// What an unknown key probably is.
enum Meant {
    /// A key of this section.
    Here(&'static Key, String),
    /// A key of another.
    Elsewhere(Vec<Placed>, String),
    /// Nobody knows.
    Unknown(String),
}

struct Mender<'p> {
    table: Vec<Placed>,
    problems: &'p mut Problems,
    strays: Strays,
}

impl Mender<'_> {
    fn section(&mut self, keys: &'static [Key], entries: &mut Vec<Entry>, path: &str) {
        let mut kept: Vec<(Entry, Shape)> = Vec::with_capacity(entries.len());
        let mut unknown = Vec::new();
        for entry in std::mem::take(entries) {
            match schema::find(keys, &entry.key) {
                Some(_) => kept.push((entry, Shape::Told)),
                None => unknown.push(entry),
            }
        }
        for mut entry in unknown {
            let free: Vec<&'static Key> =
                keys.iter().filter(|key| kept.iter().all(|(kept, _)| kept.key != key.name)).collect();
            let meant = self.meant(keys, &free, path, &entry);
            let written = join(path, &entry.key);
            match meant {
                Meant::Here(key, message) => {
                    self.problems.tell(entry.place, &written, message);
                    if free.iter().any(|free| free.name == key.name) {
                        entry.key = key.name.to_owned();
                        kept.push((entry, Shape::Excused));
                    }
                }
                Meant::Elsewhere(targets, message) => {
                    self.problems.tell(entry.place, &written, message);
                    self.stray(targets, entry, written);
                }
                Meant::Unknown(message) => self.problems.tell(entry.place, &written, message),
            }
        }
        for (mut entry, shape) in kept {
            if let Some(key) = schema::find(keys, &entry.key) {
                self.value(&key.kind, &mut entry.node, &join(path, key.name), shape);
            }
            entries.push(entry);
        }
    }

    fn meant(&self, keys: &'static [Key], free: &[&'static Key], path: &str, entry: &Entry) -> Meant {
        let name = entry.key.as_str();
        let names = || keys.iter().map(|key| key.name);
        if name == "<<" {
            return Meant::Unknown("merge keys are not taken; write the keys out".to_owned());
        }
        if name == "password" && schema::find(keys, "password_file").is_some() {
            let cure = "a password does not stand in the config; put it into a file and name that in password_file, \
                        or into an environment variable and name that in password_env";
            return Meant::Unknown(cure.to_owned());
        }
        let near = nearest(name, names()).and_then(|near| schema::find(keys, near));
        let elsewhere = self.named(name);
        if let Some(near) = near
            && (elsewhere.is_empty()
                || (fits(&near.kind, &entry.node)
                    && !elsewhere.iter().any(|placed| fits(&placed.key.kind, &entry.node))))
        {
            return Meant::Here(near, format!("unknown key; did you mean {}?", near.name));
        }
        if !elsewhere.is_empty() {
            let hint = near.map(|near| format!("; or did you mean {}?", near.name)).unwrap_or_default();
            let message =
                format!("{} does not belong {}; it belongs {}{hint}", name, here(path), sections(&elsewhere));
            return Meant::Elsewhere(elsewhere, message);
        }
        // A camera's `url:` or a broker's `host:` is known by what it holds.
        if let Some(key) =
            free.iter().find(|key| key.presence == Presence::Required && takes_address(key, &entry.node))
        {
            return Meant::Here(key, format!("unknown key; did you mean {}?", key.name));
        }
        let all = self.table.iter().map(|placed| placed.key.name);
        if let Some(near) = nearest(name, all) {
            let targets = self.named(near);
            let message = format!("unknown key; did you mean {near}? It belongs {}", sections(&targets));
            return Meant::Elsewhere(targets, message);
        }
        let known = names().collect::<Vec<_>>().join(", ");
        Meant::Unknown(format!("unknown key; known here are {known}"))
    }

    fn named(&self, name: &str) -> Vec<Placed> {
        self.table.iter().filter(|placed| placed.key.name == name).cloned().collect()
    }

    fn stray(&mut self, targets: Vec<Placed>, mut entry: Entry, path: String) {
        let mut fitting = targets.iter().filter(|placed| fits(&placed.key.kind, &entry.node));
        let kind = match (fitting.next(), fitting.next()) {
            (Some(placed), None) if placed.key.kind.is_container() => Some(&placed.key.kind),
            _ => None,
        };
        let content = kind.map(|kind| {
            self.value(kind, &mut entry.node, &path, Shape::Excused);
            Content { path, kind, node: entry.node }
        });
        self.strays.0.push(Stray { targets, spent: false, content });
    }

    fn value(&mut self, kind: &'static Kind, node: &mut Node, path: &str, shape: Shape) {
        if let Some((value, message)) = reshaped(kind, node) {
            if shape == Shape::Told {
                self.problems.tell(node.place, path, message);
            }
            node.value = value;
        }
        match (kind, &mut node.value) {
            (Kind::Map(keys), Value::Map(entries)) => self.section(keys, entries, path),
            (Kind::List(item), Value::List(nodes)) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    self.value(item, node, &format!("{path}[{index}]"), Shape::Told);
                }
            }
            _ => {}
        }
    }
}

/// The value in the shape that is wanted, and what was wrong; none where it is right, or where nobody knows what was meant.
fn reshaped(kind: &Kind, node: &Node) -> Option<(Value, String)> {
    match (kind, &node.value) {
        (Kind::List(Kind::Map(keys)), Value::Map(entries)) => {
            let first = entries.first()?;
            if entries.iter().any(|entry| is_known(keys, &entry.key)) {
                let message = format!(
                    "a map is written where a list is wanted; write `- ` before {}",
                    shown(&first.key)
                );
                return Some((Value::List(vec![node.clone()]), message));
            }
            let nodes = keyed_by_id(keys, entries)?;
            let message =
                format!("a map is written where a list is wanted; write `- id: {}`", shown(&first.key));
            Some((Value::List(nodes), message))
        }
        (Kind::List(item), Value::Scalar(scalar)) if !item.is_container() => {
            let words = scalar.text.split(',').map(str::trim).filter(|word| !word.is_empty());
            let nodes: Vec<Node> = words
                .map(|word| Scalar { text: word.to_owned(), quoted: scalar.quoted })
                .map(|scalar| Node { place: node.place, value: Value::Scalar(scalar) })
                .collect();
            let message = format!("{scalar} is no list; write [{}]", shown(scalar.text.trim()));
            Some((Value::List(nodes), message)).filter(|_| !scalar.text.trim().is_empty())
        }
        (Kind::Map(keys), Value::List(nodes)) => {
            let mut merged: Vec<Entry> = Vec::new();
            for node in nodes {
                let Value::Map(entries) = &node.value else { return None };
                for entry in entries {
                    if merged.iter().any(|known| known.key == entry.key) {
                        return None;
                    }
                    merged.push(entry.clone());
                }
            }
            let known = merged.iter().any(|entry| is_known(keys, &entry.key));
            let message = "a list is written where a map is wanted; remove the dashes".to_owned();
            known.then_some((Value::Map(merged), message))
        }
        _ => None,
    }
}

/// `{gpu0: {…}, cpu0: {…}}` as the list that it should be.
fn keyed_by_id(keys: &'static [Key], entries: &[Entry]) -> Option<Vec<Node>> {
    schema::find(keys, "id")?;
    let item = |entry: &Entry| {
        let Value::Map(inner) = &entry.node.value else { return None };
        let mut inner = inner.clone();
        if inner.iter().all(|inner| inner.key != "id") {
            let id = Value::Scalar(Scalar { text: entry.key.clone(), quoted: false });
            let node = Node { place: entry.place, value: id };
            let id = Entry { key: "id".to_owned(), place: entry.place, last_line: entry.place.line, node };
            inner.insert(0, id);
        }
        Some(Node { place: entry.place, value: Value::Map(inner) })
    };
    entries.iter().map(item).collect()
}

fn is_known(keys: &'static [Key], name: &str) -> bool {
    nearest(name, keys.iter().map(|key| key.name)).is_some()
}

/// Whether a value has the shape that a key takes.
fn fits(kind: &Kind, node: &Node) -> bool {
    match (kind, &node.value) {
        (_, Value::Null) => true,
        (Kind::Map(_), Value::Map(_)) => true,
        (Kind::Map(_), Value::List(_)) => reshaped(kind, node).is_some(),
        (Kind::List(item), Value::List(nodes)) => nodes.iter().all(|node| fits(item, node)),
        (Kind::List(item), _) => fits(item, node),
        (Kind::Map(_), Value::Scalar(_)) => false,
        (_, Value::Scalar(_)) => true,
        (_, Value::List(_) | Value::Map(_)) => false,
    }
}

fn takes_address(key: &Key, node: &Node) -> bool {
    let Value::Scalar(scalar) = &node.value else { return false };
    match key.kind {
        Kind::Address => CameraAddress::parse(&scalar.text).is_ok(),
        Kind::Broker => Broker::parse(&scalar.text).is_ok(),
        _ => false,
    }
}

fn here(path: &str) -> String {
    if path.is_empty() { "at the top".to_owned() } else { format!("under {}", pattern(path)) }
}

fn sections(placed: &[Placed]) -> String {
    let section = |placed: &Placed| match placed.section.as_str() {
        "" => "at the top".to_owned(),
        section => format!("under {section}"),
    };
    placed.iter().map(section).collect::<Vec<_>>().join(" or ")
}

/// A path without its indices: `cameras[].detect[]`.
#[must_use]
pub fn pattern(path: &str) -> String {
    let mut inside = false;
    path.chars()
        .filter(|&c| {
            inside = (inside || c == '[') && c != ']';
            !inside || c == '['
        })
        .collect()
}

/// Where an entry of a map is, for what is missing in it.
#[must_use]
pub fn place_of(entries: &[Entry], otherwise: Place) -> Place {
    entries.first().map_or(otherwise, |entry| entry.place)
}
