//! Half-written files, hostile files, bytes and trees without sense: an error or a config, and never a panic.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;

use gantry::config::print;
use gantry::config::schema::{self, Kind};
use gantry::config::validate::validate;
use gantry::yaml::{Entry, Node, Place, Problems, Scalar, Value};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::support::{around, check, models, root};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        assert_told_or_config(&bytes);
    }

    #[test]
    fn random_text_of_yaml_pieces_never_panics(
        pieces in proptest::collection::vec(select(PIECES), 0..60),
    ) {
        assert_told_or_config(pieces.concat().as_bytes());
    }
}

#[test]
fn a_random_tree_gives_errors_or_a_config_that_prints_and_loads_again() {
    let configs = Cell::new(0);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&random_tree(), |tree| {
        let mut problems = Problems::default();
        let validated = validate(tree, &around(&models), &mut problems);
        prop_assert_eq!(problems.is_empty(), validated.config.is_some());
        if let Some(config) = validated.config {
            configs.set(configs.get() + 1);
            let printed = print(&config);
            let (again, problems) = check(printed.as_bytes());
            prop_assert_eq!(problems, [], "{}", printed);
            prop_assert_eq!(again.and_then(|again| again.config), Some(config), "{}", printed);
        }
        Ok(())
    });
    outcome.unwrap();
    let configs = configs.get();
    assert!(
        (20..230).contains(&configs),
        "of 256 trees, {configs} were configs: the trees are too right or too wrong"
    );
}

/// No panic, and either a mistake or a config.
fn assert_told_or_config(bytes: &[u8]) {
    let (validated, problems) = check(bytes);
    let has_config = validated.is_some_and(|validated| validated.config.is_some());
    assert_eq!(has_config, problems.is_empty(), "{:?} {problems:?}", String::from_utf8_lossy(bytes));
}

const PIECES: &[&str] = &[
    "\n",
    "\n",
    "\n  ",
    "\n    ",
    "\n  - ",
    "\n- ",
    "\t",
    " ",
    ": ",
    ":",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "'",
    "\"",
    "|\n",
    ">\n",
    "&a ",
    "*a",
    "!t ",
    "---\n",
    "...\n",
    "# c\n",
    "%YAML 1.2\n",
    "~",
    "<<: ",
    "\\",
    "\u{feff}",
    "é",
    "\r\n",
    "\0",
    "node",
    "devices",
    "cameras",
    "publish",
    "mqtt",
    "broker",
    "id",
    "source",
    "detect",
    "model",
    "test://pattern",
    "rtsp://u:p@h",
    "mqtt://b",
    "line-parts",
    "3s",
    "3",
    "true",
    "1e9",
    "-0",
    ".nan",
];

/// A tree of the table's own keys with values that are right, nearly right or senseless.
fn random_tree() -> impl Strategy<Value = Node> {
    section(schema::ROOT).prop_map(|value| Node { place: Place { line: 1, column: 1 }, value })
}

fn section(keys: &'static [schema::Key]) -> BoxedStrategy<Value> {
    let node = |value| Node { place: Place { line: 1, column: 1 }, value };
    let one = |key: &'static schema::Key| {
        let default = match key.presence {
            schema::Presence::Default(text) => text,
            _ => key.example,
        };
        let needed = key.presence == schema::Presence::Required;
        let right = match key.kind {
            Kind::Map(_) | Kind::List(_) => of_kind(&key.kind),
            // So that ids differ as a rule.
            Kind::Segment if needed => "[a-z]{4}".prop_map(|id| text(&id)).boxed(),
            _ => Just(text(default)).boxed(),
        };
        let often = needed || ["publish", "mqtt"].contains(&key.name);
        let written = prop::bool::weighted(if often { 0.99 } else { 0.15 });
        let name = prop_oneof![200 => Just(key.name.to_owned()), 1 => "[a-z_]{1,9}", 1 => Just(format!("{}s", key.name))];
        let value = prop_oneof![150 => right, 1 => senseless()];
        (written, name, value).prop_map(|(written, name, value)| written.then_some((name, value)))
    };
    let all: Vec<_> = keys.iter().map(one).collect();
    all.prop_map(move |found| {
        let mut seen = BTreeSet::new();
        let found = found.into_iter().flatten().filter(|(key, _)| seen.insert(key.clone()));
        let entry = |(key, value)| Entry {
            key,
            place: Place { line: 1, column: 1 },
            last_line: 1,
            node: node(value),
        };
        Value::Map(found.map(entry).collect())
    })
    .boxed()
}

fn of_kind(kind: &'static Kind) -> BoxedStrategy<Value> {
    let node = |value| Node { place: Place { line: 1, column: 1 }, value };
    match kind {
        Kind::Map(keys) => section(keys),
        Kind::List(item) => {
            let items = proptest::collection::vec(of_kind(item), 1..3);
            items.prop_map(move |values| Value::List(values.into_iter().map(node).collect())).boxed()
        }
        Kind::Integer(..) => select(&["0", "1"][..]).prop_map(text).boxed(),
        _ => Just(text("cpu0")).boxed(),
    }
}

fn senseless() -> BoxedStrategy<Value> {
    let node = |value| Node { place: Place { line: 1, column: 1 }, value };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<String>().prop_map(|string| text(&string)),
        select(PIECES).prop_map(text)
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let keys = prop_oneof!["[a-z_]{1,9}".boxed(), select(PIECES).prop_map(str::to_owned).boxed()];
        let entry = (keys, inner.clone()).prop_map(move |(key, value)| Entry {
            key,
            place: Place { line: 1, column: 1 },
            last_line: 1,
            node: node(value),
        });
        prop_oneof![
            proptest::collection::vec(inner, 0..3)
                .prop_map(move |values| Value::List(values.into_iter().map(node).collect())),
            proptest::collection::vec(entry, 0..3).prop_map(Value::Map),
        ]
    })
    .boxed()
}

fn text(text: &str) -> Value {
    Value::Scalar(Scalar { text: text.to_owned(), quoted: false })
}

#[test]
fn a_file_cut_at_any_byte_gives_clear_errors_or_a_config() {
    for name in ["config/gantry.yaml", "config/examples/multi.yaml", "tests/data/config/bad/nested.yaml"] {
        let bytes = fs::read(root().join(name)).unwrap();
        for length in 0..bytes.len() {
            assert_told_or_config(&bytes[..length]);
            let (_, problems) = check(&bytes[..length]);
            assert!(problems.iter().all(|problem| !problem.message.is_empty() && problem.place.is_some()));
        }
    }
}

#[test]
fn hostile_files_end_soon_with_one_error() {
    let deep = "[".repeat(100_000);
    let deep_blocks = (0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>();
    let deep_dashes = "- ".repeat(100_000);
    let laughs = (1..9).map(|level| {
        let before = if level == 1 { "x".to_owned() } else { format!("*a{}", level - 1) };
        format!("k{level}: &a{level} [{}]\n", vec![before; 10].join(", "))
    });
    let deep_alias = (1..40).fold("k0: &a0 x\n".to_owned(), |text, level| {
        format!("{text}k{level}: &a{level} [*a{}]\n", level - 1)
    });
    let huge = "a".repeat(2 << 20);
    for (name, text) in [
        ("deep lists", deep),
        ("deep maps", deep_blocks),
        ("deep dashes", deep_dashes),
        ("a billion laughs", laughs.collect()),
        ("deep aliases", deep_alias),
        ("a huge file", huge),
    ] {
        let (validated, problems) = check(text.as_bytes());
        assert!(validated.is_none() && problems.len() == 1, "{name}: {problems:?}");
    }
    let many_keys: String = (0..20_000).map(|key| format!("k{key}:\n")).collect();
    assert_eq!(
        check(many_keys.as_bytes()).1.len(),
        20_002,
        "each key is unknown, and there is no camera and no sink"
    );
}
