//! The reference file, the examples and the JSON Schema, all against the one table.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gantry::config::schema::{self, Key, Kind, Presence};
use gantry::config::validate::validate;
use gantry::config::{Config, json_schema};
use gantry::source::Address;
use gantry::yaml::{Node, Problems, Value};
use serde_json::json;

use super::support::{around, good, models, root, tree};

fn reference() -> String {
    fs::read_to_string(root().join("config/gantry.yaml")).unwrap()
}

/// The reference with every `#key:` in use, and the lines (from 1) of those keys.
fn uncommented(text: &str) -> (String, BTreeSet<usize>) {
    let mut lines = BTreeSet::new();
    let mut whole = String::new();
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match line[indent..].strip_prefix('#') {
            Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => {
                lines.insert(index + 1);
                whole += &format!("{}{key}\n", &line[..indent]);
            }
            _ => whole += &format!("{line}\n"),
        }
    }
    (whole, lines)
}

/// A value without places, in a form that compares.
fn value(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Scalar(scalar) => scalar.text.clone(),
        Value::List(nodes) => format!("[{}]", nodes.iter().map(value).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |entry: &gantry::yaml::Entry| format!("{}: {}", entry.key, value(&entry.node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

fn compare(keys: &'static [Key], node: &Node, text: &[&str], commented: &BTreeSet<usize>) -> usize {
    let Value::Map(entries) = &node.value else { panic!("{keys:?} is a section") };
    let written: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let known: Vec<&str> = keys.iter().map(|key| key.name).collect();
    assert_eq!(written, known, "the reference has every key of the table, in its order, and no other");
    let mut count = entries.len();
    for (key, entry) in keys.iter().zip(entries) {
        let line = entry.place.line;
        assert_eq!(text[line - 2].trim(), format!("# {}", key.meaning), "line {}: {}", line - 1, key.name);
        let in_use =
            key.kind.keys().is_some() || matches!(key.presence, Presence::Default(_) | Presence::Required);
        assert_eq!(
            !commented.contains(&line),
            in_use,
            "line {line}: {} is commented out or is not",
            key.name
        );
        match (&key.kind, &entry.node.value) {
            (Kind::Map(keys), _) => count += compare(keys, &entry.node, text, commented),
            (Kind::List(Kind::Map(keys)), Value::List(nodes)) => {
                assert_eq!(nodes.len(), 1, "one example of {}", key.name);
                count += compare(keys, &nodes[0], text, commented);
            }
            _ => {
                let shown = match key.presence {
                    Presence::Default(default) => default,
                    Presence::Required | Presence::Computed(_) | Presence::Optional => key.example,
                };
                assert_eq!(value(&entry.node), value(&tree(shown)), "line {line}: {}", key.name);
            }
        }
    }
    count
}

#[test]
fn the_reference_shows_every_key_with_its_default_and_meaning_and_no_other_key() {
    let (whole, commented) = uncommented(&reference());
    let lines: Vec<&str> = whole.lines().collect();
    let count = compare(schema::ROOT, &tree(&whole), &lines, &commented);
    assert_eq!(count, schema::all().len());
}

#[test]
fn the_reference_as_it_is_equals_a_config_that_leaves_every_default_out() {
    let short = "devices: [{id: cpu0}]\n\
                 cameras: [{id: press-1, source: 'rtsp://10.0.0.7/stream1', detect: [{model: line-parts}]}]\n\
                 publish: {mqtt: {broker: 'mqtts://broker:8883'}}\n";
    assert_eq!(good(&reference()), good(short));
}

#[test]
fn every_default_and_example_of_the_table_is_a_value_that_its_key_takes() {
    for placed in schema::all() {
        let key = placed.key;
        let shown = match key.presence {
            Presence::Default("{}") | Presence::Required | Presence::Computed(_) | Presence::Optional => {
                key.example
            }
            Presence::Default(default) => default,
        };
        match &key.kind {
            Kind::Map(_) => assert_eq!(shown, "", "{}", placed.path()),
            Kind::List(_) => assert!(matches!(tree(shown).value, Value::List(_)), "{}", placed.path()),
            kind => {
                let Value::Scalar(scalar) = tree(shown).value else { panic!("{}", placed.path()) };
                gantry::config::leaf::parse(kind, &scalar)
                    .unwrap_or_else(|error| panic!("{}: {error}", placed.path()));
            }
        }
        assert!(!key.meaning.is_empty() && !key.meaning.contains('\n'), "{}", placed.path());
    }
}

fn example(path: &Path) -> Config {
    let text = fs::read_to_string(path).unwrap();
    let mut problems = Problems::default();
    let mut around = around(&models);
    around.dir = path.parent().unwrap();
    let validated = validate(tree(&text), &around, &mut problems);
    assert!(problems.is_empty(), "{}: {problems:?}", path.display());
    validated.config.unwrap()
}

#[test]
fn every_example_is_a_config_without_a_mistake() {
    let folder = root().join("config/examples");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let config = example(&path);
        assert_eq!(config.models_dir, folder.join("../../models"), "{}", path.display());
        names.insert(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    let expected = ["file.yaml", "multi.yaml", "pattern.yaml", "rtsp.yaml", "usb.yaml"];
    assert_eq!(names, expected.into_iter().map(str::to_owned).collect());
    let belt = example(&folder.join("file.yaml"));
    assert_eq!(belt.cameras[0].source.address, Address::File(folder.join("../../tests/data/belt.mp4")));
    assert_eq!(example(&folder.join("multi.yaml")).cameras.len(), 4);
}

/// A tree as the JSON that editors make of it before they apply a schema.
fn as_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => json!(null),
        Value::Scalar(scalar) if scalar.quoted => json!(scalar.text),
        Value::Scalar(scalar) => match serde_json::from_str(&scalar.text) {
            Ok(value @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_))) => value,
            _ => json!(scalar.text),
        },
        Value::List(nodes) => nodes.iter().map(as_json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), as_json(&entry.node))).collect()
        }
    }
}

#[test]
fn the_json_schema_in_the_repository_is_the_one_of_the_table() {
    let path = root().join("config/schema/gantry.config.schema.json");
    let schema = gantry::cli::config::schema();
    if std::env::var_os("GANTRY_BLESS").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), schema, "write it with `gantry config schema`");
}

#[test]
fn the_json_schema_takes_the_reference_and_the_examples_and_refuses_bad_files() {
    let schema = json_schema::json_schema();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let (whole, _) = uncommented(&reference());
    let examples = fs::read_dir(root().join("config/examples")).unwrap();
    let examples = examples.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    for text in examples.chain([reference(), whole]) {
        let instance = as_json(&tree(&text));
        let errors: Vec<String> = validator.iter_errors(&instance).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?} in\n{text}");
    }
    for name in ["twelve", "nested", "shapes", "misplaced", "misspelt", "missing", "numbers", "empty_values"]
    {
        let text = fs::read_to_string(root().join(format!("tests/data/config/bad/{name}.yaml"))).unwrap();
        let mut problems = Problems::default();
        let tree = gantry::yaml::read(text.as_bytes(), "config", &mut problems).unwrap();
        assert!(!validator.is_valid(&as_json(&tree)), "{name}");
    }
}
