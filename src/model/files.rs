//! The files of a bundle: which there are, their hashes, the labels.
//!
//! A bundle may come from anywhere, so the walk is bounded, follows no link out of the directory, and opens nothing but
//! ordinary files (opening a pipe would wait for ever).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::FileProblem;
use super::manifest::{self, FileEntry};

/// The most files that a bundle may have.
pub(super) const FILES_MAX: usize = 10_000;

/// Folders within one another.
pub(super) const DEPTH_MAX: usize = 8;

/// The most bytes that a labels file may have, and the most in one label.
const LABELS_SIZE_MAX: u64 = 1024 * 1024;
const LABEL_LEN_MAX: usize = 256;

/// Every file of a bundle with its size but the manifest, and what is wrong with the others.
pub(super) fn walk(dir: &Path) -> (BTreeMap<String, u64>, Vec<FileProblem>) {
    let mut walk = Walk { root: fs::canonicalize(dir).ok(), files: BTreeMap::new(), problems: Vec::new() };
    walk.folder(dir, "", 0);
    walk.files.remove(manifest::FILE_NAME);
    (walk.files, walk.problems)
}

/// SHA-256 of a file, in small hex digits.
pub(super) fn hash(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// SHA-256 of bytes, in small hex digits.
pub(super) fn hash_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Compares a file with what is listed of it.
pub(super) fn compare(dir: &Path, file: &str, size: u64, listed: &FileEntry) -> Result<(), FileProblem> {
    let file = file.to_owned();
    if size != listed.size {
        return Err(FileProblem::Size { file, real: size, listed: listed.size });
    }
    match hash(&dir.join(&file)) {
        Ok(real) if real == listed.sha256 => Ok(()),
        Ok(real) => Err(FileProblem::Hash { file, real, listed: listed.sha256.clone() }),
        Err(error) => Err(FileProblem::Unreadable { file, reason: error.to_string() }),
    }
}

/// One label a line. Two classes may have the same label, which is how a model merges them for its readers.
pub(super) fn read_labels(path: &Path) -> Result<Vec<String>, String> {
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(LABELS_SIZE_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let bytes = read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > LABELS_SIZE_MAX {
        return Err(format!("has more than the {LABELS_SIZE_MAX} bytes that labels may take"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        format!("is not UTF-8 from byte {} on; save it as UTF-8", error.utf8_error().valid_up_to())
    })?;
    let text = text.trim_start_matches('\u{feff}').trim_end();
    if text.is_empty() {
        return Err("has no labels; write one a line, in the order of the classes".to_owned());
    }
    let label = |(index, line): (usize, &str)| {
        let label = line.trim();
        let wrong = |what: &str| Err(format!("line {} {what}", index + 1));
        if label.is_empty() {
            wrong("is empty; write one label a line, in the order of the classes")
        } else if label.len() > LABEL_LEN_MAX {
            wrong("has a label of more than 256 bytes")
        } else if label.chars().any(char::is_control) {
            wrong("has a control character in its label")
        } else {
            Ok(label.to_owned())
        }
    };
    text.split('\n').enumerate().map(label).collect()
}

struct Walk {
    root: Option<PathBuf>,
    files: BTreeMap<String, u64>,
    problems: Vec<FileProblem>,
}

impl Walk {
    fn folder(&mut self, dir: &Path, inside: &str, depth: usize) {
        let unreadable =
            |error: &io::Error, file: String| FileProblem::Unreadable { file, reason: error.to_string() };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => return self.problems.push(unreadable(&error, inside.to_owned())),
        };
        for entry in entries {
            if self.files.len() + self.problems.len() >= FILES_MAX || depth >= DEPTH_MAX {
                return self.problems.push(FileProblem::TooMany);
            }
            let kind = entry.and_then(|entry| Ok((entry.file_name(), entry.path(), entry.file_type()?)));
            let (name, path, kind) = match kind {
                Ok(entry) => entry,
                Err(error) => return self.problems.push(unreadable(&error, inside.to_owned())),
            };
            let name = name.to_string_lossy();
            let file = if inside.is_empty() { name.into_owned() } else { format!("{inside}/{name}") };
            if kind.is_dir() {
                self.folder(&path, &file, depth + 1);
            } else {
                self.file(&path, file);
            }
        }
    }

    fn file(&mut self, path: &Path, file: String) {
        // A link is followed only to an ordinary file inside of the bundle.
        let real = fs::canonicalize(path).and_then(|real| Ok((fs::metadata(&real)?, real)));
        match real {
            Err(error) => self.problems.push(FileProblem::Unreadable { file, reason: error.to_string() }),
            Ok((_, real)) if !self.root.as_ref().is_some_and(|root| real.starts_with(root)) => {
                self.problems.push(FileProblem::Outside(file));
            }
            Ok((metadata, _)) if !metadata.is_file() => self.problems.push(FileProblem::NoFile(file)),
            Ok((metadata, _)) => {
                self.files.insert(file, metadata.len());
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
