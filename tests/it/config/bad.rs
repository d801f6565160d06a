//! Files with mistakes, and exactly what is said of each.
//!
//! A file's first line says how many mistakes it has; the `.txt` beside it is what is told of them. Run with
//! `GANTRY_BLESS=1` to write the `.txt` files anew, and read what changed.

use std::fs;

use super::support::{check, root};

/// The number that the file's first line gives.
fn mistakes(bytes: &[u8]) -> usize {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
    let line = std::str::from_utf8(line).unwrap();
    line.strip_prefix("# mistakes: ").unwrap().parse().unwrap()
}

#[test]
fn every_bad_file_gives_exactly_its_mistakes_each_with_its_place_and_cure() {
    let folder = root().join("tests/data/config/bad");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() > 20, "the bad files are there");
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = fs::read(&path).unwrap();
        let (validated, problems) = check(&bytes);
        assert!(validated.is_none_or(|validated| validated.config.is_none()), "{name} gave a config");
        let told: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        assert!(!told.contains("hunter2"), "{name} shows a password:\n{told}");
        assert!(
            problems.iter().all(|problem| problem.place.is_some()),
            "{name}: a place is missing:\n{told}"
        );
        if problems.len() != mistakes(&bytes) {
            wrong.push(format!(
                "{name} has {} mistakes, told are {}:\n{told}",
                mistakes(&bytes),
                problems.len()
            ));
        }
        let golden = path.with_extension("txt");
        if std::env::var_os("GANTRY_BLESS").is_some() {
            fs::write(&golden, &told).unwrap();
        }
        if fs::read_to_string(&golden).unwrap_or_default() != told {
            wrong.push(format!("{name} is told otherwise than in its .txt:\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
