//! `gantry model pack`: writes the `files` section of a manifest.
//!
//! The rest of the text is left as its author wrote it, comments and order included; only the lines of `files` are
//! replaced, or put before `variants` when there are none yet.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{FileProblem, ModelError};
use super::manifest::{self, FileEntry, Manifest};
use super::{Model, bundle, files};
use crate::yaml::{self, Problems, Value};

/// Written beside the manifest and then put in its place, so that no half of one is ever there.
const SCRATCH: &str = "model.yaml.new";

/// What packing did.
#[derive(Debug)]
pub struct Packed {
    /// The model, as it can now be opened.
    pub model: Model,
    /// What is listed now.
    pub files: BTreeMap<String, FileEntry>,
    /// Whether the manifest was written.
    pub outcome: Outcome,
}

/// Whether the manifest was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its files were not listed, or not as they are.
    Written,
    /// It already said what is true.
    Unchanged,
}

/// Lists every file of the bundle in `dir` with size and hash in its manifest, if the bundle is right in every other way: its
/// manifest, its labels, and that its model files have the tensors that the manifest declares.
///
/// # Errors
/// Every other mistake, with its place in the text as it is; nothing is written then.
pub fn pack(dir: &Path) -> Result<Packed, ModelError> {
    let bytes = bundle::read_manifest(dir)?;
    let path = dir.join(manifest::FILE_NAME);
    let wrong = |problems| ModelError::Manifest { path: path.clone(), problems };
    let mut manifest = manifest::parse_before_packing(&bytes).map_err(wrong)?;
    let text = String::from_utf8(bytes).expect("a manifest that was read is UTF-8");
    manifest.files = hash_all(dir)?;
    require_listed(dir, &manifest)?;
    let files = manifest.files.clone();
    let packed = replace_files(&text, &files);
    // What is written is what the next reader will read, so it is read here first.
    let again = manifest::parse(packed.as_bytes()).map_err(wrong)?;
    debug_assert_eq!(again.files, files);
    let model = bundle::build(dir, again)?;
    bundle::verify(&model)?;
    if packed == text {
        return Ok(Packed { model, files, outcome: Outcome::Unchanged });
    }
    write(dir, &path, &packed).map_err(|source| ModelError::Write { path, source })?;
    Ok(Packed { model, files, outcome: Outcome::Written })
}

fn hash_all(dir: &Path) -> Result<BTreeMap<String, FileEntry>, ModelError> {
    let (mut there, mut problems) = files::walk(dir);
    there.remove(SCRATCH); // Left by a run that was killed; this one writes it anew.
    let mut hashes = BTreeMap::new();
    for (file, size) in there {
        if let Err(reason) = manifest::check_path(&file) {
            problems.push(FileProblem::Unreadable { file, reason: format!("its name {reason}") });
            continue;
        }
        match files::hash(&dir.join(&file)) {
            Ok(sha256) => drop(hashes.insert(file, FileEntry { sha256, size })),
            Err(error) => problems.push(FileProblem::Unreadable { file, reason: error.to_string() }),
        }
    }
    if problems.is_empty() { Ok(hashes) } else { Err(ModelError::Files { dir: dir.to_owned(), problems }) }
}

/// Whether every file that the manifest speaks of is there.
fn require_listed(dir: &Path, manifest: &Manifest) -> Result<(), ModelError> {
    let images = manifest.golden.iter().map(|golden| golden.image.to_string_lossy());
    let variants = manifest.variants.iter().map(|variant| variant.file.as_str().into());
    let mut missing: Vec<String> = std::iter::once(manifest.labels.as_str().into())
        .chain(variants)
        .chain(images)
        .filter(|file: &std::borrow::Cow<'_, str>| !manifest.files.contains_key(file.as_ref()))
        .map(std::borrow::Cow::into_owned)
        .collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let problems = missing.into_iter().map(FileProblem::Absent).collect();
    Err(ModelError::Files { dir: dir.to_owned(), problems })
}

/// The manifest's text with these files listed.
fn replace_files(text: &str, files: &BTreeMap<String, FileEntry>) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut block = format!("files:{newline}");
    for (file, FileEntry { sha256, size }) in files {
        let file = yaml::quoted(file);
        write!(block, "  {file}: {{sha256: {sha256}, size: {size}}}{newline}").expect("a String takes all");
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (first, last) = place_for(text, &lines);
    let mut packed: String = lines[..first].concat();
    if !packed.is_empty() && !packed.ends_with('\n') {
        packed.push_str(newline);
    }
    packed.push_str(&block);
    packed.push_str(&lines[last..].concat());
    packed
}

/// The lines that the block takes the place of: from the first index to before the second.
fn place_for(text: &str, lines: &[&str]) -> (usize, usize) {
    // The text was read before, and what was wrong with it told.
    let root = yaml::read(text.as_bytes(), "manifest", &mut Problems::default());
    let entries = match root.map(|root| root.value) {
        Some(Value::Map(entries)) => entries,
        _ => Vec::new(),
    };
    let entry = |name: &str| entries.iter().find(|entry| entry.key == name);
    if let Some(files) = entry("files") {
        return (files.place.line - 1, files.last_line.min(lines.len()));
    }
    let before = entry("variants").map_or(lines.len(), |variants| variants.place.line - 1);
    // A remark above `variants` is about `variants`.
    let remarks = lines[..before].iter().rev().take_while(|line| line.starts_with('#')).count();
    (before - remarks, before - remarks)
}

fn write(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let scratch: PathBuf = dir.join(SCRATCH);
    let written = fs::write(&scratch, text)
        .and_then(|()| fs::set_permissions(&scratch, fs::metadata(path)?.permissions()))
        .and_then(|()| fs::File::open(&scratch)?.sync_all())
        .and_then(|()| fs::rename(&scratch, path));
    if written.is_err() {
        // The error that is told is the first one; a scratch file that stays is overwritten by the next run.
        drop(fs::remove_file(&scratch));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(file: &str) -> BTreeMap<String, FileEntry> {
        BTreeMap::from([(file.to_owned(), FileEntry { sha256: "ab".repeat(32), size: 7 })])
    }

    #[test]
    fn only_the_lines_of_the_files_section_change() {
        let hash = "ab".repeat(32);
        let block = format!("files:\n  a.onnx: {{sha256: {hash}, size: 7}}\n");
        let cases = [
            (
                "# top\nname: x\nfiles: {}\n# about variants\nvariants: []\n",
                "# top\nname: x\n",
                "# about variants\nvariants: []\n",
            ),
            (
                "name: x\nfiles:\n  old: {sha256: a,\n    size: 1}\n\n# v\nvariants: []",
                "name: x\n",
                "\n# v\nvariants: []",
            ),
            ("name: x\n# about variants\nvariants: []\n", "name: x\n", "# about variants\nvariants: []\n"),
            ("name: x\nfiles:\nvariants: []\n", "name: x\n", "variants: []\n"),
            ("name: x", "name: x\n", ""),
        ];
        for (text, before, after) in cases {
            assert_eq!(replace_files(text, &one("a.onnx")), format!("{before}{block}{after}"), "{text}");
        }
        let windows = replace_files("name: x\r\nvariants: []\r\n", &one("a.onnx"));
        assert_eq!(windows, format!("name: x\r\n{}variants: []\r\n", block.replace('\n', "\r\n")));
    }
}
