//! Each value by itself: the mended tree against the table.
//!
//! What comes out has every default filled in, and says of every key whether it is there, not there, or wrong and told
//! already. The rules between values ([`super::rules`]) work on that, so that nothing is told twice.

use std::path::Path;
use std::time::Duration;

use super::address::{Broker, CameraAddress};
use super::leaf::{self, Leaf};
use super::mend::{Strays, pattern};
use super::schema::{Key, Kind, Presence};
use crate::threads::cpus::Cpus;
use crate::threads::place::Scheduling;
use crate::yaml::{Node, Place, Problems, Scalar, Value, join};

/// A section whose values were each checked.
#[derive(Clone, Debug)]
pub struct Section {
    /// Where it begins.
    pub place: Place,
    /// Its path.
    pub path: String,
    items: Vec<(&'static str, Item)>,
}

/// A value that was checked.
#[derive(Clone, Debug)]
pub struct Item {
    /// Where it is; the section's place when it was not written.
    pub place: Place,
    /// Its path.
    pub path: String,
    /// Whether the file has it.
    pub origin: Origin,
    /// What came of it.
    pub found: Found,
}

/// What came of a value.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is not written and has no default.
    Absent,
    /// It is wrong or missing, and that was told. As it is written, if it is a single value.
    Bad(Option<Scalar>),
    /// A value.
    Leaf(Leaf),
    /// A list.
    List(Vec<Item>),
    /// A section.
    Section(Section),
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file.
    Written,
    /// The table; also of what is not there at all.
    Default,
}

/// Checks every value of a section. A missing key that a stray explains is not told.
pub fn section(
    keys: &'static [Key],
    node: &Node,
    path: &str,
    strays: &mut Strays,
    problems: &mut Problems,
) -> Section {
    let mut checker = Checker { strays, problems };
    checker.section(keys, node, path)
}

/// Checks a value for its own sake: a section that was written in the wrong place.
pub fn content(kind: &'static Kind, node: &Node, path: &str, strays: &mut Strays, problems: &mut Problems) {
    let mut checker = Checker { strays, problems };
    checker.value(kind, node, path);
}

impl Section {
    /// The item of a key.
    ///
    /// # Panics
    /// When the table has no such key in this section.
    #[must_use]
    pub fn item(&self, name: &str) -> &Item {
        let found = self.items.iter().find(|(key, _)| *key == name);
        found.map(|(_, item)| item).expect("the table has every key that is asked for")
    }

    /// A section inside it that is there and was no mistake.
    #[must_use]
    pub fn inner(&self, name: &str) -> Option<&Section> {
        self.item(name).section()
    }

    /// The sections of a list inside it; none when there is no list, or a wrong one.
    pub fn list(&self, name: &str) -> impl Iterator<Item = &Item> {
        match &self.item(name).found {
            Found::List(items) => items.as_slice(),
            _ => &[],
        }
        .iter()
    }

    /// A key's text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.item(name).text()
    }

    /// A key's whole number.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<u64> {
        self.item(name)
            .leaf()
            .and_then(|leaf| if let Leaf::Integer(value) = leaf { Some(*value) } else { None })
    }

    /// A key's number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.item(name)
            .leaf()
            .and_then(|leaf| if let Leaf::Number(value) = leaf { Some(*value) } else { None })
    }

    /// A key's boolean.
    #[must_use]
    pub fn boolean(&self, name: &str) -> Option<bool> {
        self.item(name)
            .leaf()
            .and_then(|leaf| if let Leaf::Boolean(value) = leaf { Some(*value) } else { None })
    }

    /// A key's time.
    #[must_use]
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.item(name)
            .leaf()
            .and_then(|leaf| if let Leaf::Duration(value) = leaf { Some(*value) } else { None })
    }

    /// A key's path, as written.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&Path> {
        let leaf = self.item(name).leaf()?;
        if let Leaf::Path(path) = leaf { Some(path) } else { None }
    }

    /// A key's camera address.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<&CameraAddress> {
        let leaf = self.item(name).leaf()?;
        if let Leaf::Address(address) = leaf { Some(address) } else { None }
    }

    /// A key's scheduling.
    #[must_use]
    pub fn scheduling(&self, name: &str) -> Option<Scheduling> {
        let leaf = self.item(name).leaf()?;
        if let Leaf::Scheduling(scheduling) = leaf { Some(*scheduling) } else { None }
    }

    /// A list of CPUs; none when it is not written.
    #[must_use]
    pub fn cpus(&self, name: &str) -> Option<Cpus> {
        let Found::List(items) = &self.item(name).found else { return None };
        Some(items.iter().filter_map(Item::index).collect())
    }

    /// A key's broker address.
    #[must_use]
    pub fn broker(&self, name: &str) -> Option<&Broker> {
        let leaf = self.item(name).leaf()?;
        if let Leaf::Broker(broker) = leaf { Some(broker) } else { None }
    }
}

impl Item {
    /// The value, if it is one and right.
    #[must_use]
    pub fn leaf(&self) -> Option<&Leaf> {
        if let Found::Leaf(leaf) = &self.found { Some(leaf) } else { None }
    }

    /// The text, if it is one and right.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Leaf::Text(text) = self.leaf()? { Some(text) } else { None }
    }

    /// The whole number as an index, if it is one and right.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        if let Leaf::Integer(number) = self.leaf()? { usize::try_from(*number).ok() } else { None }
    }

    /// The section, if it is one.
    #[must_use]
    pub fn section(&self) -> Option<&Section> {
        if let Found::Section(section) = &self.found { Some(section) } else { None }
    }

    /// Whether the file has it, right or wrong.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.origin == Origin::Written
    }
}

struct Checker<'c> {
    strays: &'c mut Strays,
    problems: &'c mut Problems,
}

impl Checker<'_> {
    fn section(&mut self, keys: &'static [Key], node: &Node, path: &str) -> Section {
        let entries = if let Value::Map(entries) = &node.value { entries.as_slice() } else { &[] };
        let place = super::mend::place_of(entries, node.place);
        let mut items = Vec::with_capacity(keys.len());
        for key in keys {
            let path = join(path, key.name);
            let item = match entries.iter().find(|entry| entry.key == key.name) {
                Some(entry) => {
                    let found = match (&key.kind, &entry.node.value) {
                        (Kind::List(_), Value::Null) => self.empty(key, &entry.node, &path),
                        (Kind::List(_), Value::List(nodes)) if nodes.is_empty() => {
                            self.empty(key, &entry.node, &path)
                        }
                        (kind, _) => self.value(kind, &entry.node, &path),
                    };
                    Item { place: entry.node.place, path, origin: Origin::Written, found }
                }
                None => {
                    let found = self.absent(key, place, &path);
                    Item { place, path, origin: Origin::Default, found }
                }
            };
            items.push((key.name, item));
        }
        Section { place, path: path.to_owned(), items }
    }

    fn empty(&mut self, key: &'static Key, node: &Node, path: &str) -> Found {
        let or = if key.presence == Presence::Required { "" } else { ", or remove the key" };
        self.bad(
            node,
            path,
            &format!("is empty; write at least one entry, as {}: {}{or}", key.name, key.example),
        )
    }

    fn absent(&mut self, key: &'static Key, place: Place, path: &str) -> Found {
        match (key.presence, &key.kind) {
            (Presence::Required, _) => {
                if !self.strays.explain(&pattern(path)) {
                    let message = format!("is missing; write for example {}: {}", key.name, key.example);
                    self.problems.tell(place, path, message);
                }
                Found::Bad(None)
            }
            (Presence::Default(_), Kind::Map(keys)) => {
                Found::Section(self.section(keys, &Node { place, value: Value::Null }, path))
            }
            (Presence::Default(text), kind) => {
                let scalar = Scalar { text: text.to_owned(), quoted: false };
                let leaf = leaf::parse(kind, &scalar).expect("a test reads every default of the table");
                Found::Leaf(leaf)
            }
            (Presence::Computed(_) | Presence::Optional, _) => Found::Absent,
        }
    }

    fn value(&mut self, kind: &'static Kind, node: &Node, path: &str) -> Found {
        match (kind, &node.value) {
            (Kind::Map(keys), Value::Map(_) | Value::Null) => Found::Section(self.section(keys, node, path)),
            (Kind::List(item), Value::List(nodes)) => {
                let elements = nodes.iter().enumerate();
                Found::List(elements.map(|(index, node)| self.element(item, node, path, index)).collect())
            }
            (Kind::Map(keys), value) => {
                let example = keys.first().map(|key| key.name).unwrap_or_default();
                let name = value.kind_name();
                self.bad(
                    node,
                    path,
                    &format!(
                        "{name} is written where a map is wanted; write keys such as {example}: under it"
                    ),
                )
            }
            (Kind::List(item), value) => {
                let name = value.kind_name();
                let cure = if item.is_container() { "begin each entry with `- `" } else { "write [a, b]" };
                self.bad(node, path, &format!("{name} is written where a list is wanted; {cure}"))
            }
            (_, Value::Null) => self.bad(node, path, "is empty; write a value or remove the key"),
            (_, Value::List(_) | Value::Map(_)) => {
                let name = node.value.kind_name();
                self.bad(node, path, &format!("{name} is written where {} is wanted", wanted(kind)))
            }
            (_, Value::Scalar(scalar)) => match leaf::parse(kind, scalar) {
                Ok(leaf) => Found::Leaf(leaf),
                Err(message) => self.bad(node, path, &message),
            },
        }
    }

    fn element(&mut self, kind: &'static Kind, node: &Node, path: &str, index: usize) -> Item {
        let path = format!("{path}[{index}]");
        let found = match &node.value {
            Value::Null => self.bad(node, &path, "is empty; write the entry or remove its dash"),
            _ => self.value(kind, node, &path),
        };
        Item { place: node.place, path, origin: Origin::Written, found }
    }

    fn bad(&mut self, node: &Node, path: &str, message: &str) -> Found {
        self.problems.tell(node.place, path, message);
        Found::Bad(match &node.value {
            Value::Scalar(scalar) => Some(scalar.clone()),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        })
    }
}

fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Boolean => "true or false".to_owned(),
        Kind::Integer(least, most) => format!("a whole number from {least} to {most}"),
        Kind::Number(least, most) => format!("a number from {least} to {most}"),
        Kind::Duration(..) => "a time such as 3s".to_owned(),
        Kind::Limit(..) => "a time such as 3s, or off,".to_owned(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::Control => "a control such as brightness=128".to_owned(),
        Kind::Size => "a size such as 640x480".to_owned(),
        Kind::Address => "an address such as rtsp://10.0.0.7/stream1".to_owned(),
        Kind::Broker => "an address such as mqtts://broker:8883".to_owned(),
        Kind::Listen => "an address such as 127.0.0.1:9464, or off,".to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::Scheduling => "a scheduling such as nice 5 or fifo 20".to_owned(),
        Kind::Text | Kind::Segment | Kind::Segments | Kind::Variable | Kind::Model => "one name".to_owned(),
        Kind::Map(_) | Kind::List(_) => "a section".to_owned(),
    }
}
