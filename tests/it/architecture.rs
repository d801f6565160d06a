//! The rules of the house that no lint can express: who may import whom, which files may hold `unsafe`, how long a file
//! may be, what lies at the top.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Rooms that every room may import.
const LEAVES: [&str; 5] = ["telemetry", "threads", "memory", "secret", "yaml"];

/// Left may import right.
const IMPORTS: &[(&str, &[&str])] = &[
    ("telemetry", &[]),
    ("threads", &[]),
    ("memory", &[]),
    ("secret", &[]),
    ("yaml", &[]),
    ("backend", &[]),
    ("frame", &[]),
    ("source", &["frame"]),
    ("preprocess", &["frame", "backend"]),
    ("postprocess", &["preprocess", "backend"]),
    ("model", &["backend", "preprocess", "postprocess"]),
    ("scheduler", &["frame", "model"]),
    ("worker", &["scheduler", "frame", "backend", "preprocess", "postprocess", "model", "publish"]),
    ("publish", &["postprocess", "frame", "model"]),
    ("config", &["source", "backend", "scheduler", "model", "publish", "preprocess", "frame"]),
    (
        "pipeline",
        &[
            "frame",
            "source",
            "preprocess",
            "backend",
            "postprocess",
            "model",
            "scheduler",
            "worker",
            "publish",
            "config",
        ],
    ),
    ("control", &["config", "pipeline", "model", "publish", "source", "worker", "frame"]),
];

/// Rooms that may import anything.
const ANYTHING: [&str; 4] = ["daemon", "cli", "main", "lib"];

/// The only files that may hold `unsafe`, and why.
const UNSAFE: &[(&str, &str)] = &[
    ("src/backend/onnxruntime.rs", "the C API of ONNX Runtime"),
    ("src/memory/allocations.rs", "an allocator is an unsafe trait"),
    ("src/memory/arena.rs", "the slabs of a region"),
    ("src/memory/buffer.rs", "a region's bytes as numbers"),
    ("src/memory/region.rs", "mapping, touching and locking pages"),
    ("src/source/controls.rs", "the controls of a camera's driver, which no crate here wraps"),
    ("src/source/gstreamer/pool.rs", "an allocator of GStreamer's is a table of C functions"),
    ("src/threads/place.rs", "the scheduling of a thread, which no crate here wraps"),
    (
        "src/preprocess/kernel/mod.rs",
        "calls what is compiled for an instruction set that the machine was seen to have",
    ),
    (
        "src/preprocess/kernel/avx2.rs",
        "vector loads and stores, loads of neighbouring samples without a check for each",
    ),
    ("src/preprocess/kernel/neon.rs", "the same for 64-bit ARM"),
];

/// Crates that only one place may import.
const WALLS: &[(&str, &str)] = &[
    ("gio", "src/source/gstreamer"),
    ("gst", "src/source/gstreamer"),
    ("gst_app", "src/source/gstreamer"),
    ("gst_video", "src/source/gstreamer"),
    ("rumqttc", "src/publish/mqtt"),
    ("ort", "src/backend/onnxruntime.rs"),
    ("sd_notify", "src/control/notify.rs"),
    ("axum", "src/control/admin"),
    ("hyper", "src/control/admin"),
    ("hyper_util", "src/control/admin"),
    ("prometheus_client", "src/control/admin"),
];

const FILE_LINES_MAX: usize = 600;

#[test]
fn rooms_import_only_downstream() {
    let allowed: BTreeMap<_, BTreeSet<_>> =
        IMPORTS.iter().map(|(room, may)| (*room, may.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    for file in sources() {
        let from = room(&file);
        if ANYTHING.contains(&from.as_str()) {
            continue;
        }
        let Some(may) = allowed.get(from.as_str()) else {
            wrong.push(format!("{}: the room {from} is not in the table", file.display()));
            continue;
        };
        for to in imports(&code(&file)) {
            if to != from && !LEAVES.contains(&to.as_str()) && !may.contains(to.as_str()) {
                wrong.push(format!("{}: {from} may not import {to}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_is_only_where_it_is_listed() {
    let listed: BTreeSet<_> = UNSAFE.iter().map(|(file, _)| PathBuf::from(file)).collect();
    for file in sources() {
        let holds = words(&code(&file)).any(|word| word == "unsafe");
        assert!(!holds || listed.contains(&file), "{} holds `unsafe` and is not listed", file.display());
    }
    for file in &listed {
        assert!(root().join(file).exists(), "{} is listed and does not exist", file.display());
    }
}

#[test]
fn a_foreign_crate_is_imported_at_its_wall_only() {
    for file in sources() {
        let code = code(&file);
        for (name, wall) in WALLS {
            let path = format!("{name}::");
            let used = code.match_indices(&path).any(|(at, _)| !code[..at].ends_with(is_name));
            assert!(!used || file.starts_with(wall), "{} imports {name}; only {wall} may", file.display());
        }
    }
}

#[test]
fn no_file_is_longer_than_one_thing() {
    for file in sources().into_iter().chain(rust_files("tests")).chain(rust_files("benches")) {
        let lines = read(&file).lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines; two things live there", file.display());
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for file in sources().into_iter().chain(rust_files("tests")).chain(rust_files("benches")) {
        assert!(read(&file).starts_with("//! "), "{} does not begin with `//! `", file.display());
    }
}

#[test]
fn the_top_level_is_as_agreed() {
    let agreed = [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "config",
        "models",
        "systemd",
        "scripts",
        "tests",
        "benches",
        "README.md",
        "LICENSE",
        "NOTICE",
        "build.rs",
        "target",
    ];
    for entry in std::fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name.starts_with('.') || agreed.contains(&name.as_str()),
            "{name} does not belong at the top"
        );
    }
}

#[test]
fn the_map_in_lib_rs_names_every_room() {
    let map = read(Path::new("src/lib.rs"));
    for file in sources() {
        let room = room(&file);
        if room != "main" && room != "lib" {
            assert!(map.contains(&format!("[`{room}`]")), "src/lib.rs does not name {room}");
        }
    }
}

#[test]
fn no_unfinished_mark_is_left() {
    for file in sources() {
        for mark in ["todo!(", "unimplemented!(", "FIXME", "XXX"] {
            assert!(!read(&file).contains(mark), "{} holds {mark}", file.display());
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// The file without comments.
fn code(file: &Path) -> String {
    read(file).lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn sources() -> Vec<PathBuf> {
    rust_files("src")
}

fn rust_files(dir: &str) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![root().join(dir)]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "there are sources");
    files
}

/// The first folder or file name below `src`.
fn room(file: &Path) -> String {
    let first = file.iter().nth(1).unwrap();
    Path::new(first).file_stem().unwrap().to_str().unwrap().to_owned()
}

/// Rooms named by `crate::room` or in `use crate::{room, …}`.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_i32;
            let mut top = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    _ if depth == 0 => top.push(c),
                    _ => {}
                }
            }
            found.extend(top.split(',').filter_map(|item| words(item).next()));
        } else {
            found.extend(words(rest).next());
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c| !is_name(c)).filter(|word| !word.is_empty()).map(str::to_owned)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn the_import_reader_sees_every_form() {
    let code = "use crate::frame::slab;\nuse crate::{config::{raw, schema}, threads};\nlet x = crate::model::find();";
    let found: Vec<_> = imports(code).into_iter().collect();
    assert_eq!(found, ["config", "frame", "model", "threads"]);
}
