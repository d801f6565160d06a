//! Trees as YAML, with their keys in any order and in any style.

use gantry::yaml::{Entry, Node, Scalar, Value};
use proptest::prelude::*;

/// The order of keys, and how nested things are written.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub(super) order: Vec<usize>,
    pub(super) flow_from: usize,
}

/// Any style.
pub(super) fn style() -> impl Strategy<Value = Style> {
    (proptest::collection::vec(any::<usize>(), 16), 0_usize..6)
        .prop_map(|(order, flow_from)| Style { order, flow_from })
}

/// Puts the keys of every map into the style's order.
pub(super) fn shuffle(node: &mut Node, style: &Style) {
    match &mut node.value {
        Value::Map(entries) => {
            for last in (1..entries.len()).rev() {
                entries.swap(last, style.order[last % style.order.len()] % (last + 1));
            }
            entries.iter_mut().for_each(|entry| shuffle(&mut entry.node, style));
        }
        Value::List(nodes) => nodes.iter_mut().for_each(|node| shuffle(node, style)),
        Value::Null | Value::Scalar(_) => {}
    }
}

fn scalar(scalar: &Scalar) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@?=&$+%".contains(c);
    let safe = scalar.text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_/$.+".contains(c))
        && scalar.text.chars().all(plain)
        && !scalar.text.ends_with(':');
    if safe && !scalar.quoted { scalar.text.clone() } else { json(&scalar.text) }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The tree as YAML: block style down to a depth, flow style below.
pub(super) fn emit(node: &Node, depth: usize, style: &Style, out: &mut String) {
    let indent = "  ".repeat(depth);
    match &node.value {
        Value::Map(entries) if !entries.is_empty() && depth < style.flow_from => {
            for entry in entries {
                *out += &format!("{indent}{}:", json(&entry.key));
                nested(&entry.node, depth, style, out);
            }
        }
        Value::List(nodes) if !nodes.is_empty() && depth < style.flow_from => {
            for node in nodes {
                *out += &format!("{indent}-");
                nested(node, depth, style, out);
            }
        }
        _ => *out += &format!("{indent}{}\n", flow(node)),
    }
}

fn nested(node: &Node, depth: usize, style: &Style, out: &mut String) {
    let is_block = depth + 1 < style.flow_from
        && match &node.value {
            Value::Map(entries) => !entries.is_empty(),
            Value::List(nodes) => !nodes.is_empty(),
            Value::Null | Value::Scalar(_) => false,
        };
    if is_block {
        out.push('\n');
        emit(node, depth + 1, style, out);
    } else {
        *out += &format!(" {}\n", flow(node));
    }
}

fn flow(node: &Node) -> String {
    let join = |parts: Vec<String>| parts.join(", ");
    match &node.value {
        Value::Null => "~".to_owned(),
        Value::Scalar(text) => scalar(text),
        Value::List(nodes) => format!("[{}]", join(nodes.iter().map(flow).collect())),
        Value::Map(entries) => {
            let entry = |entry: &Entry| format!("{}: {}", json(&entry.key), flow(&entry.node));
            format!("{{{}}}", join(entries.iter().map(entry).collect()))
        }
    }
}
