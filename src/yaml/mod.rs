//! A YAML file as written: a tree of nodes, each with its place, and what is wrong with it.
//!
//! The config and the models' manifests are read with it. A manifest is untrusted, so YAML is read as events: every key
//! keeps its place, the depth is bounded before a stack is, an alias cannot grow the tree without end, and a duplicate key
//! or a tag is told without hiding what else is wrong. Scalars stay text: what `10` or `yes` means is decided by the key
//! that it is written for.

mod nearest;
mod problem;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

pub use nearest::nearest;
pub use problem::{Place, Problem, Problems, concealed, join, shown};

/// The largest file that is read. A config of a thousand cameras needs a fifth of it, a manifest of a hundred files 1%.
pub const SIZE_MAX: usize = 1 << 20;

/// How deep lists and maps may be nested. The config needs six, a manifest four.
pub const DEPTH_MAX: usize = 32;

/// How many nodes all aliases together may add.
const ALIASED_NODES_MAX: usize = 10_000;

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it begins; for nothing at all, where it should be.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Text, number or boolean.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file; keys differ.
    Map(Vec<Entry>),
}

/// A scalar as written. Its `Debug` hides what its `Display` hides.
#[derive(Clone, PartialEq, Eq)]
pub struct Scalar {
    /// Its text, without quotes and with escapes resolved.
    pub text: String,
    /// Whether it was quoted or a block, and is therefore text and no number.
    pub quoted: bool,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is written.
    pub place: Place,
    /// The last line that belongs to the key or its value.
    pub last_line: usize,
    /// What it is set to.
    pub node: Node,
}

/// Reads the bytes of a file, which is to be a `what`: `config` or `manifest`. Nothing (no bytes, or only comments) is a
/// [`Value::Null`]. Mistakes that do not keep the rest from being understood (a duplicate key, a tag, a key that is no text)
/// are added to `problems`; with any other there is no tree.
#[must_use]
pub fn read(bytes: &[u8], what: &str, problems: &mut Problems) -> Option<Node> {
    let outcome = text(bytes, what).and_then(|text| {
        let mut builder = Builder::new(what, problems);
        builder.read(text)?;
        Ok(builder.root)
    });
    match outcome {
        Ok(root) => Some(root.unwrap_or(Node { place: Place { line: 1, column: 1 }, value: Value::Null })),
        Err(fault) => {
            problems.tell(fault.place, "", fault.message);
            None
        }
    }
}

/// `text` as a YAML scalar on one line: bare where every reader of YAML takes that as the same text, quoted elsewhere.
#[must_use]
pub fn quoted(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_./@+-".contains(c);
    let begins = |c: char| c.is_ascii_alphabetic() || c == '/';
    let other = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if text.starts_with(begins)
        && text.chars().all(bare)
        && !other.contains(&text.to_ascii_lowercase().as_str())
    {
        return text.to_owned();
    }
    // A JSON string is a YAML string.
    serde_json::Value::from(text).to_string()
}

impl Value {
    /// What to call it in an error.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl fmt::Display for Scalar {
    /// As an error may show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = shown(&self.text);
        if self.quoted { write!(f, "\"{text}\"") } else { f.write_str(&text) }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A mistake after which there is no tree.
struct Fault {
    place: Place,
    message: String,
}

/// The bytes as text, or why they are none.
fn text<'b>(bytes: &'b [u8], what: &str) -> Result<&'b str, Fault> {
    if bytes.len() > SIZE_MAX {
        let message = format!("the file has more than {SIZE_MAX} bytes; is this the {what}?");
        return Err(Fault { place: Place { line: 1, column: 1 }, message });
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let message = "the file is UTF-16; save it as UTF-8".to_owned();
        return Err(Fault { place: Place { line: 1, column: 1 }, message });
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (good, bad) = bytes.split_at(error.valid_up_to());
        let good = String::from_utf8_lossy(good);
        let byte = bad.first().copied().unwrap_or_default();
        Fault {
            place: place_after(&good),
            message: format!("the byte 0x{byte:02x} here is not UTF-8; save the file as UTF-8"),
        }
    })?;
    // The reader takes a NUL for the end, so a file that a power cut left full of zeros would look whole.
    let forbidden = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}');
    if let Some(at) = text.find(forbidden) {
        let code = text[at..].chars().next().map_or(0, u32::from);
        return Err(Fault {
            place: place_after(&text[..at]),
            message: format!("the character U+{code:04X} here belongs into no YAML file; remove it"),
        });
    }
    Ok(text)
}

fn place_after(text: &str) -> Place {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Place { line, column }
}

fn place_of(mark: Marker) -> Place {
    Place { line: mark.line().max(1), column: mark.col() + 1 }
}

/// A list or map whose end has not come yet.
struct Open {
    place: Place,
    anchor: usize,
    style: Style,
    /// The last line of what is in it so far.
    last_line: usize,
    inside: Inside,
}

/// How a list or map is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// By indents; the place of its end is that of what comes next.
    Block,
    /// In brackets.
    Flow,
}

enum Inside {
    List(Vec<Node>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<Entry>,
    /// In which line each key is.
    lines: HashMap<String, usize>,
    /// The key whose value comes next.
    key: Option<Key>,
}

/// A key whose value comes next; its text is none when it is no text.
struct Key {
    text: Option<String>,
    place: Place,
}

impl Key {
    fn new(node: Node) -> Self {
        let text = match node.value {
            Value::Scalar(scalar) => Some(scalar.text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        };
        Self { text, place: node.place }
    }
}

impl OpenMap {
    /// Puts an entry, unless its key is none or is already there.
    fn put(&mut self, problems: &mut Problems, path: &str, key: Key, node: Node, last_line: usize) {
        let place = key.place;
        let Some(key) = key.text else {
            problems.tell(place, path, "a key must be a word, as in `key: value`");
            return;
        };
        if let Some(line) = self.lines.get(&key) {
            let message = format!("this key is already given in line {line}; remove one of the two");
            problems.tell(place, path, message);
            return;
        }
        self.lines.insert(key.clone(), place.line);
        // An empty value has no text of its own; what is wrong with it is told at its key.
        let node = if node.value == Value::Null { Node { place, ..node } } else { node };
        self.entries.push(Entry { key, place, last_line: last_line.max(place.line), node });
    }
}

struct Builder<'p> {
    /// What the file is to be.
    what: &'p str,
    problems: &'p mut Problems,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    aliased: usize,
    documents: usize,
    root: Option<Node>,
}

impl<'p> Builder<'p> {
    fn new(what: &'p str, problems: &'p mut Problems) -> Self {
        let (open, anchors) = (Vec::new(), BTreeMap::new());
        Self { what, problems, open, anchors, aliased: 0, documents: 0, root: None }
    }

    fn read(&mut self, text: &str) -> Result<(), Fault> {
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| syntax_fault(text, &error, self.open.last()))?;
            self.event(event, span)?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let place = place_of(span.start);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let message = format!(
                        "a second document begins here; one file holds one {}, so remove the line `---`",
                        self.what
                    );
                    return Err(Fault { place, message });
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), place);
                let quoted = style != ScalarStyle::Plain;
                let value = match text.as_ref() {
                    "" | "~" | "null" | "Null" | "NULL" if !quoted => Value::Null,
                    _ => Value::Scalar(Scalar { text: text.into_owned(), quoted }),
                };
                self.put(Node { place, value }, anchor, last_line(span));
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(span, anchor, tag.as_deref(), Inside::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(span, anchor, tag.as_deref(), Inside::Map(OpenMap::default()))?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { place, anchor, style, last_line, inside }) = self.open.pop() {
                    let value = match inside {
                        Inside::List(nodes) => Value::List(nodes),
                        Inside::Map(map) => Value::Map(map.entries),
                    };
                    let end = if style == Style::Flow { span.start.line() } else { place.line };
                    self.put(Node { place, value }, anchor, last_line.max(end));
                }
            }
            Event::Alias(anchor) => {
                let node = self.alias(anchor, place)?;
                self.put(node, 0, place.line);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn begin(&mut self, span: Span, anchor: usize, tag: Option<&Tag>, inside: Inside) -> Result<(), Fault> {
        let place = place_of(span.start);
        self.refuse_tag(tag, place);
        if self.open.len() >= DEPTH_MAX {
            return Err(self.too_deep(place));
        }
        // Only a bracket has a width.
        let style = if span.is_empty() { Style::Block } else { Style::Flow };
        self.open.push(Open { place, anchor, style, last_line: place.line, inside });
        Ok(())
    }

    fn too_deep(&self, place: Place) -> Fault {
        let what = self.what;
        let message =
            format!("lists and maps are nested more than {DEPTH_MAX} deep here; is this the {what}?");
        Fault { place, message }
    }

    /// The key path of what is being read.
    fn path(&self) -> String {
        self.open.iter().fold(String::new(), |path, open| match &open.inside {
            Inside::List(nodes) => format!("{path}[{}]", nodes.len()),
            Inside::Map(map) => match map.key.as_ref().and_then(|key| key.text.as_deref()) {
                Some(key) => join(&path, key),
                None => path,
            },
        })
    }

    /// Puts a whole node, which ends in `last_line`, where it belongs.
    fn put(&mut self, node: Node, anchor: usize, last_line: usize) {
        let path = self.path();
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        open.last_line = open.last_line.max(last_line);
        match &mut open.inside {
            Inside::List(nodes) => nodes.push(node),
            Inside::Map(map) => match map.key.take() {
                None => map.key = Some(Key::new(node)),
                Some(key) => map.put(self.problems, &path, key, node, last_line),
            },
        }
    }

    /// A copy of what an anchor names. Its places are the anchor's: there the text is that has to be put right.
    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Fault> {
        let Some(node) = self.anchors.get(&anchor) else {
            let message = "this alias stands inside the value that it names; write the value out".to_owned();
            return Err(Fault { place, message });
        };
        self.aliased += count(node);
        if self.aliased > ALIASED_NODES_MAX {
            let message =
                format!("the aliases of this file make more than {ALIASED_NODES_MAX} values; write them out");
            return Err(Fault { place, message });
        }
        if self.open.len() + depth(node) > DEPTH_MAX {
            return Err(self.too_deep(place));
        }
        Ok(node.clone())
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, place: Place) {
        if let Some(tag) = tag {
            let path = self.path();
            self.problems.tell(place, &path, format!("the tag {tag} means nothing here; remove it"));
        }
    }
}

/// The last line of a scalar. The span of a block scalar ends at the start of the line after it.
fn last_line(span: Span) -> usize {
    let (start, end) = (span.start.line(), span.end.line());
    let line = if span.end.col() == 0 && end > start { end - 1 } else { end };
    line.max(start)
}

fn count(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Scalar(_) => 1,
        Value::List(nodes) => 1 + nodes.iter().map(count).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| count(&entry.node)).sum::<usize>(),
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Scalar(_) => 0,
        Value::List(nodes) => 1 + nodes.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.node)).max().unwrap_or(0),
    }
}

/// The reader's own words, with the cure where the cause is a well-known one.
fn syntax_fault(text: &str, error: &ScanError, inside: Option<&Open>) -> Fault {
    let mut place = place_of(*error.marker());
    let lines: Vec<&str> = text.lines().collect();
    // The reader often notices at the next line, or at the end of the file.
    let near = (place.line.saturating_sub(2)..place.line).rev();
    for index in near {
        let Some(line) = lines.get(index) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        if let Some(tab) = indent.find('\t') {
            place = Place { line: index + 1, column: indent[..tab].chars().count() + 1 };
            return Fault {
                place,
                message: "this line is indented with a tab; YAML wants spaces".to_owned(),
            };
        }
    }
    let info = error.info();
    let in_brackets = inside.is_some_and(|open| open.style == Style::Flow);
    let cure = if info.contains("anchor") {
        "; an alias `*name` needs an anchor `&name` before it, and text that begins with `*` needs quotes"
    } else if info.contains("quoted scalar") {
        "; a quote that was opened is never closed"
    } else if info.contains("flow") || (in_brackets && info.contains("':'")) {
        "; a bracket or brace that was opened is never closed"
    } else if info.contains("simple key") || info.contains("':'") {
        "; a key needs a colon and a space after it, as in `key: value`"
    } else if info.contains("block") || info.contains("indent") || info.contains("mapping values") {
        "; look at the indent of this line and the line before, and quote text that holds `: `"
    } else {
        ""
    };
    Fault { place, message: format!("this is not YAML: {info}{cure}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Node {
        let mut problems = Problems::default();
        let tree = read(text.as_bytes(), "config", &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        tree.unwrap()
    }

    /// Every key and every item with its line and column, in the order of the file.
    fn places(node: &Node, into: &mut Vec<(String, usize, usize)>) {
        match &node.value {
            Value::Map(entries) => {
                for entry in entries {
                    into.push((entry.key.clone(), entry.place.line, entry.place.column));
                    places(&entry.node, into);
                }
            }
            Value::List(nodes) => nodes.iter().for_each(|node| places(node, into)),
            Value::Scalar(scalar) => into.push((scalar.text.clone(), node.place.line, node.place.column)),
            Value::Null => into.push(("~".to_owned(), node.place.line, node.place.column)),
        }
    }

    #[test]
    fn keys_and_values_keep_their_places_in_block_and_flow_style_and_with_any_line_ends() {
        let text = "a:\n  - b: ü1\n    c: [x, \"y\"]\nd:\ne: {f: g}\n".to_owned();
        let expected = [
            ("a", 1, 1),
            ("b", 2, 5),
            ("ü1", 2, 8),
            ("c", 3, 5),
            ("x", 3, 9),
            ("y", 3, 12),
            ("d", 4, 1),
            ("~", 4, 1),
            ("e", 5, 1),
            ("f", 5, 5),
            ("g", 5, 8),
        ]
        .map(|(text, line, column)| (text.to_owned(), line, column));
        for text in [text.clone(), text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
            let mut found = Vec::new();
            places(&tree(&text), &mut found);
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn an_alias_is_a_copy_that_keeps_the_places_of_its_anchor() {
        let Value::Map(entries) = tree("a: &x {b: 1}\nc: *x\n").value else { panic!("a map") };
        assert_eq!(entries[0].node, entries[1].node);
        assert_eq!(entries[1].place, Place { line: 2, column: 1 });
    }

    #[test]
    fn every_entry_knows_its_first_and_last_line() {
        let text = "a: {x: 1,\n  y: 2}\nb:\n  c: &d d\n\n# remark\ne: [1,\n 2]\nf: |\n one\n two\ng:\nh: 1\n\
                    i:\n  *d\n? j\n: - 'k\n    l'\n  - m: [1,\n      2]\n\n# end\n";
        let Value::Map(entries) = tree(text).value else { panic!("a map") };
        let lines: Vec<_> =
            entries.iter().map(|entry| (entry.key.as_str(), entry.place.line, entry.last_line)).collect();
        let expected = [("a", 1, 2), ("b", 3, 4), ("e", 7, 8), ("f", 9, 11), ("g", 12, 12), ("h", 13, 13)];
        assert_eq!(lines[..6], expected);
        assert_eq!(lines[6..], [("i", 14, 15), ("j", 16, 20)], "an alias stands where it is written");
    }

    #[test]
    fn what_is_quoted_is_read_as_the_same_text() {
        for text in ["a", "/a/b-c_d.e+f@g", "y"] {
            assert_eq!(quoted(text).starts_with('"'), text == "y", "{text}");
        }
        for text in [
            "it's # one: {x}",
            "- a",
            "a b.onnx",
            "ü",
            "null",
            "Null",
            "~",
            "",
            "1",
            "0x1F",
            "\"\\\t\n",
            "*a",
            "no",
        ] {
            let Value::Map(entries) = tree(&format!("{0}: {0}", quoted(text))).value else {
                panic!("{text}")
            };
            assert_eq!(entries[0].key, text);
            assert_eq!(entries[0].node.value, Value::Scalar(Scalar { text: text.to_owned(), quoted: true }));
        }
    }

    #[test]
    fn a_hostile_file_is_refused_and_never_overflows_the_stack() {
        let aliases = "a: &a [x, x, x, x, x, x, x, x, x, x]\n\
                       b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n\
                       c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n\
                       d: [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n";
        for (text, part) in [
            ("- ".repeat(100_000).as_str(), "nested more than 32 deep here; is this the manifest?"),
            (&"[".repeat(DEPTH_MAX + 1), "nested more than 32 deep"),
            (&"[".repeat(100_000), "recursion limit"),
            (aliases, "make more than 10000 values"),
            ("a: &a [*a]", "inside the value that it names"),
            ("a: 1\n---\nb: 1", "one file holds one manifest"),
            ("a: [1, 2", "not YAML"),
            ("a: \0", "U+0000"),
        ] {
            let mut problems = Problems::default();
            assert_eq!(read(text.as_bytes(), "manifest", &mut problems), None);
            let told = problems.into_sorted();
            assert!(told.len() == 1 && told[0].message.contains(part), "{part}: {told:?}");
        }
    }

    #[test]
    fn only_what_is_bare_is_null() {
        for (text, is_null) in
            [("~", true), ("null", true), ("", true), ("\"\"", false), ("'null'", false), ("none", false)]
        {
            assert_eq!(tree(text).value == Value::Null, is_null, "{text}");
        }
    }
}
