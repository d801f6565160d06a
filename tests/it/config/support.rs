//! What the config tests share.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gantry::config::Config;
use gantry::config::validate::{KnownModels, Surroundings, Validated, validate};
use gantry::threads::cpus::Cpus;
use gantry::yaml::{self, Node, Problem, Problems};

/// The package's directory.
pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The models that the tests say there are.
pub(super) fn models(_dir: &Path) -> Result<KnownModels, String> {
    let versions = |list: &[&str]| list.iter().map(|version| (*version).to_owned()).collect();
    Ok([("line-parts".to_owned(), versions(&["1.0.0", "1.1.0"])), ("seals".to_owned(), versions(&["2.0.0"]))]
        .into())
}

/// The tree of a text that is YAML.
pub(super) fn tree(text: &str) -> Node {
    let mut problems = Problems::default();
    let tree = yaml::read(text.as_bytes(), "config", &mut problems);
    assert!(problems.is_empty(), "{problems:?} in\n{text}");
    tree.unwrap()
}

/// The CPUs that the tests say there are.
static CPUS: LazyLock<Cpus> = LazyLock::new(|| (0..2).collect());

/// A machine of 2 CPUs whose host name has to be cleaned.
pub(super) fn around(models: &dyn Fn(&Path) -> Result<KnownModels, String>) -> Surroundings<'_> {
    Surroundings { dir: Path::new("/etc/gantry"), host_name: "edge/7", cpus: 2, allowed: &CPUS, models }
}

/// What comes of a file's bytes, without touching the outside.
pub(super) fn check(bytes: &[u8]) -> (Option<Validated>, Vec<Problem>) {
    let mut problems = Problems::default();
    let validated = yaml::read(bytes, "config", &mut problems)
        .map(|tree| validate(tree, &around(&models), &mut problems));
    (validated, problems.into_sorted())
}

/// The config of a text that has no mistake.
pub(super) fn good(text: &str) -> Config {
    let (validated, problems) = check(text.as_bytes());
    assert_eq!(problems, [], "in\n{text}");
    validated.unwrap().config.expect("a text without a mistake is a config")
}
