//! `model.yaml`: what a bundle says about its model.
//!
//! [`parse`] is pure: it reads the bytes and nothing else, and tells every mistake with its line, column and key path. What
//! needs the bundle's other files (hashes, number of labels) is [`bundle`](super::bundle)'s. It does not use a
//! deserialiser, because those stop at the first mistake and know no places for what a value means (a shape with three
//! channels, a path that leaves the bundle).
//!
//! A manifest is untrusted: its size and nesting are bounded, its paths stay inside the bundle, its shapes are small enough
//! to be multiplied, its numbers are finite.

mod input;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::reader::{Field, Fields, Reader};
use super::{Golden, GoldenObject};
use crate::backend::tensor::{ElementType, Shape, TensorSpec};
use crate::backend::{BackendKind, ModelFormat};
use crate::postprocess::bbox::BBox;
use crate::postprocess::{Family, Suppression};
use crate::preprocess::{Align, ColorOrder, Filter, InputSpec, Layout, Resize};
use crate::yaml::{self, Node, Place, Problem, Problems, Value, shown};

/// The file's name in a bundle.
pub const FILE_NAME: &str = "model.yaml";

/// The value of `schema`.
pub const SCHEMA: &str = "gantry.model/1";

/// The most elements that one frame may have in the input or in an output: 256 MiB of floats.
const ELEMENTS_MAX: u64 = 1 << 26;

/// The largest batch that a shape may fix.
const BATCH_MAX: i64 = 1024;

/// The words for [`Layout`].
pub const LAYOUTS: [(&str, Layout); 2] = [("nchw", Layout::Nchw), ("nhwc", Layout::Nhwc)];

/// The words for [`ColorOrder`].
pub const COLORS: [(&str, ColorOrder); 2] = [("rgb", ColorOrder::Rgb), ("bgr", ColorOrder::Bgr)];

/// The words for [`Resize`].
pub const RESIZES: [(&str, Resize); 3] =
    [("letterbox", Resize::Letterbox), ("stretch", Resize::Stretch), ("crop", Resize::Crop)];

/// The words for [`Filter`].
pub const FILTERS: [(&str, Filter); 3] =
    [("bilinear", Filter::Bilinear), ("area", Filter::Area), ("auto", Filter::Auto)];

/// The words for [`Align`].
pub const ALIGNS: [(&str, Align); 2] = [("center", Align::Center), ("top_left", Align::TopLeft)];

/// The words for [`Suppression`].
pub const SUPPRESSIONS: [(&str, Suppression); 2] =
    [("per_class", Suppression::PerClass), ("agnostic", Suppression::Agnostic)];

/// A manifest, checked for all that it can be checked for by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The model's name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Its version.
    pub version: semver::Version,
    /// Every other file of the bundle, by its path in the bundle with `/` between folders.
    pub files: BTreeMap<String, FileEntry>,
    /// Its artefacts, in order of preference; at least one.
    pub variants: Vec<VariantEntry>,
    /// What the input wants to be.
    pub input: InputSpec,
    /// The input tensor; its height, width and channels are fixed.
    pub input_tensor: TensorSpec,
    /// What the output is.
    pub output: OutputEntry,
    /// The labels' file, in the bundle.
    pub labels: String,
    /// Detections below this score are not reported, unless a camera says otherwise.
    pub score: f32,
    /// Boxes that overlap more than this are one object.
    pub iou: f32,
    /// What the model must find. Paths are in the bundle.
    pub golden: Vec<Golden>,
}

/// What the manifest knows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// SHA-256 of its bytes: 64 small hex digits.
    pub sha256: String,
    /// Their number.
    pub size: u64,
}

/// An artefact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantEntry {
    /// What the file is.
    pub format: ModelFormat,
    /// The one backend that it is for, or `None` for every backend that reads the format.
    pub backend: Option<BackendKind>,
    /// The file, in the bundle.
    pub file: String,
}

/// The `output` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputEntry {
    /// How the numbers are to be read.
    pub family: Family,
    /// The tensor.
    pub tensor: TensorSpec,
    /// Which boxes suppress each other.
    pub suppression: Suppression,
}

/// The manifest's word for a value of one of the tables above.
#[must_use]
pub fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

/// Reads a manifest.
///
/// # Errors
/// Every mistake in it, in the order of their places; when it is no YAML, what was noticed of that.
pub fn parse(bytes: &[u8]) -> Result<Manifest, Vec<Problem>> {
    read(bytes, FileHashes::Required)
}

/// Reads a manifest whose `files` are still to be filled in: that section may be missing or wrong, and is empty in the
/// result.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_before_packing(bytes: &[u8]) -> Result<Manifest, Vec<Problem>> {
    read(bytes, FileHashes::Ignored)
}

/// What is to be done with the `files` section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileHashes {
    Required,
    Ignored,
}

fn read(bytes: &[u8], hashes: FileHashes) -> Result<Manifest, Vec<Problem>> {
    let mut reader = Reader { problems: Problems::default() };
    let root = yaml::read(bytes, "manifest", &mut reader.problems);
    let files_lines = root.as_ref().and_then(files_lines);
    let manifest = root.and_then(|root| match root.value {
        Value::Null => {
            reader.problem(root.place, "", "the file is empty");
            None
        }
        _ => reader.manifest(&Field { node: &root, path: String::new() }, hashes),
    });
    let mut problems = reader.problems.into_sorted();
    if let (FileHashes::Ignored, Some(lines)) = (hashes, files_lines) {
        // Of what will be written anew only what the tree's reader told is known here.
        problems.retain(|problem| {
            let inside = problem.place.is_some_and(|place| lines.contains(&place.line));
            !(inside && problem.path.starts_with("files"))
        });
    }
    match manifest {
        Some(manifest) if problems.is_empty() => Ok(manifest),
        _ => Err(problems),
    }
}

const KEYS: [&str; 11] = [
    "schema",
    "name",
    "version",
    "task",
    "files",
    "variants",
    "input",
    "output",
    "labels",
    "thresholds",
    "golden",
];

/// Each section is read whole before any `?` ends the reading, so that no mistake hides another.
impl Reader {
    fn manifest(&mut self, root: &Field<'_>, hashes: FileHashes) -> Option<Manifest> {
        let fields = self.map(root, &KEYS)?;
        let schema = fields.required(self, "schema").and_then(|f| self.choice(&f, &[(SCHEMA, ())]));
        let name = fields.required(self, "name").and_then(|f| self.name(&f));
        let version = fields.required(self, "version").and_then(|f| self.version(&f));
        let task = fields.required(self, "task").and_then(|f| self.choice(&f, &[("detect", ())]));
        let files = match hashes {
            FileHashes::Required => self.files(&fields),
            FileHashes::Ignored => Some(BTreeMap::new()),
        };
        let names = match hashes {
            FileHashes::Required => listed_names(&fields),
            FileHashes::Ignored => None,
        };
        let listed = names.as_ref();
        let variants = fields.required(self, "variants").and_then(|f| self.variants(&f, listed));
        let input = fields.required(self, "input").and_then(|f| self.input(&f));
        let output = fields.required(self, "output").and_then(|f| self.output(&f));
        let labels = fields.required(self, "labels").and_then(|f| self.file(&f, listed));
        let thresholds = fields.required(self, "thresholds").and_then(|f| {
            let suppressed_in_graph =
                output.as_ref().is_some_and(|output| output.family == Family::YoloEndToEnd);
            self.thresholds(&f, suppressed_in_graph)
        });
        let golden = match fields.optional("golden") {
            Some(field) => self.golden(&field, listed),
            None => Some(Vec::new()),
        };
        let ((), ()) = (schema?, task?);
        let (input, input_tensor) = input?;
        let (score, iou) = thresholds?;
        Some(Manifest {
            name: name?,
            version: version?,
            files: files?,
            variants: variants?,
            input,
            input_tensor,
            output: output?,
            labels: labels?,
            score,
            iou,
            golden: golden?,
        })
    }

    fn name(&mut self, field: &Field<'_>) -> Option<String> {
        let name = self.text(field)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.len() <= 64
            && name.chars().all(allowed)
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        {
            return Some(name.to_owned());
        }
        let kind = field.kind();
        self.wrong(
            field,
            format!("must be at most 64 letters, digits, `.`, `_` and `-`, the first a letter or digit, not {kind}"),
        )
    }

    fn version(&mut self, field: &Field<'_>) -> Option<semver::Version> {
        let text = self.text(field)?;
        match semver::Version::parse(text) {
            Ok(version) if text.len() <= 64 => Some(version),
            Ok(_) => self.wrong(field, "must have at most 64 characters"),
            Err(error) => {
                let kind = field.kind();
                self.wrong(field, format!("must be three numbers such as 1.4.0, not {kind}: {error}"))
            }
        }
    }

    fn files(&mut self, fields: &Fields<'_>) -> Option<BTreeMap<String, FileEntry>> {
        let Some(field) = fields.optional("files") else {
            let message = "`files` is missing; `gantry model pack` writes it";
            self.problem(Place { line: 1, column: 1 }, "", message);
            return None;
        };
        let entries = self.names(&field)?;
        let mut files = BTreeMap::new();
        for (entry, field) in entries.all() {
            if let Err(message) = check_path(&entry.key) {
                self.problem(entry.place, "files", format!("`{}` {message}", shown(&entry.key)));
            }
            if let Some(file) = self.file_entry(&field) {
                files.insert(entry.key.clone(), file);
            }
        }
        Some(files)
    }

    fn file_entry(&mut self, field: &Field<'_>) -> Option<FileEntry> {
        let fields = self.map(field, &["sha256", "size"])?;
        let sha256 = fields.required(self, "sha256").and_then(|f| {
            let text = self.text(&f)?.to_ascii_lowercase();
            if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Some(text);
            }
            let kind = f.kind();
            self.wrong(&f, format!("must be the 64 hex digits that sha256sum prints, not {kind}"))
        });
        let size = fields.required(self, "size").and_then(|f| {
            let size = self.integer(&f)?;
            u64::try_from(size)
                .ok()
                .or_else(|| self.wrong(&f, format!("must be a number of bytes, not {size}")))
        });
        Some(FileEntry { sha256: sha256?, size: size? })
    }

    /// A path inside the bundle, of a file that is listed where `listed` is known.
    fn file(&mut self, field: &Field<'_>, listed: Option<&BTreeSet<&str>>) -> Option<String> {
        let path = self.text(field)?;
        if let Err(message) = check_path(path) {
            return self.wrong(field, format!("`{}` {message}", shown(path)));
        }
        if listed.is_some_and(|files| !files.contains(path)) {
            let path = shown(path);
            return self.wrong(
                field,
                format!("`{path}` is not in the `files` map; `gantry model pack` puts it there"),
            );
        }
        Some(path.to_owned())
    }

    fn variants(&mut self, field: &Field<'_>, listed: Option<&BTreeSet<&str>>) -> Option<Vec<VariantEntry>> {
        let items = self.items(field)?;
        if items.is_empty() {
            return self.wrong(field, "is empty, so the model has no file to run");
        }
        let mut choices = vec![("onnx", None)];
        choices.extend(BackendKind::ALL.map(|kind| (kind.name(), Some(kind))));
        let mut variants = Vec::new();
        for item in items {
            let Some(fields) = self.map(&item, &["backend", "file"]) else { continue };
            let backend = fields.required(self, "backend").and_then(|f| self.choice(&f, &choices));
            let file = fields.required(self, "file").and_then(|f| self.file(&f, listed));
            if let (Some(backend), Some(file)) = (backend, file) {
                variants.push(VariantEntry { format: ModelFormat::Onnx, backend, file });
            }
        }
        Some(variants)
    }

    fn output(&mut self, field: &Field<'_>) -> Option<OutputEntry> {
        let fields = self.map(field, &["family", "name", "shape", "suppression"])?;
        let families = Family::ALL.map(|family| (family.name(), family));
        let family = fields.required(self, "family").and_then(|f| self.choice(&f, &families));
        let name = fields.required(self, "name").and_then(|f| self.text(&f));
        let shape = fields.required(self, "shape").and_then(|f| self.output_shape(&f, family));
        let suppression = match fields.optional("suppression") {
            Some(f) if family == Some(Family::YoloEndToEnd) => {
                self.wrong(&f, "has no meaning for this family, whose suppression is in the model; remove it")
            }
            Some(f) => self.choice(&f, &SUPPRESSIONS),
            None => Some(Suppression::PerClass),
        };
        let tensor = TensorSpec { name: name?.to_owned(), element_type: ElementType::F32, shape: shape? };
        Some(OutputEntry { family: family?, tensor, suppression: suppression? })
    }

    fn output_shape(&mut self, field: &Field<'_>, family: Option<Family>) -> Option<Shape> {
        let (shape, dims) = self.shape(field)?;
        let (fits, wanted) = match family? {
            Family::YoloV8 => (dims.len() == 3, "[batch, 4 + classes, boxes] or [batch, boxes, 4 + classes]"),
            Family::YoloV5 => (dims.len() == 3, "[batch, boxes, 5 + classes] or [batch, 5 + classes, boxes]"),
            Family::YoloEndToEnd => (dims.len() == 3 && matches!(dims[2], 6 | -1), "[batch, boxes, 6]"),
        };
        if fits {
            Some(shape)
        } else {
            self.wrong(field, format!("must be {wanted} for this family, not {shape}"))
        }
    }

    fn thresholds(&mut self, field: &Field<'_>, suppressed_in_graph: bool) -> Option<(f32, f32)> {
        let fields = self.map(field, &["score", "iou"])?;
        let score = fields.required(self, "score").and_then(|f| self.number_in(&f, 0.0..=1.0));
        let iou = match fields.optional("iou") {
            None if suppressed_in_graph => Some(1.0),
            Some(f) => self.number_in(&f, 0.0..=1.0),
            None => fields.required(self, "iou").and(None),
        };
        Some((score?, iou?))
    }

    fn golden(&mut self, field: &Field<'_>, listed: Option<&BTreeSet<&str>>) -> Option<Vec<Golden>> {
        let mut golden = Vec::new();
        for item in self.items(field)? {
            let Some(fields) = self.map(&item, &["image", "expect", "iou_min"]) else { continue };
            let image = fields.required(self, "image").and_then(|f| self.file(&f, listed));
            let expect = fields.required(self, "expect").and_then(|f| self.objects(&f));
            let iou_min = fields.required(self, "iou_min").and_then(|f| self.number_in(&f, 0.0..=1.0));
            if let (Some(image), Some(expect), Some(iou_min)) = (image, expect, iou_min) {
                golden.push(Golden { image: image.into(), expect, iou_min });
            }
        }
        Some(golden)
    }

    fn objects(&mut self, field: &Field<'_>) -> Option<Vec<GoldenObject>> {
        let mut objects = Vec::new();
        for item in self.items(field)? {
            let Some(fields) = self.map(&item, &["label", "box", "score_min"]) else { continue };
            let label = fields.required(self, "label").and_then(|f| self.text(&f));
            let bbox = fields.required(self, "box").and_then(|f| self.bbox(&f));
            let score_min = fields.required(self, "score_min").and_then(|f| self.number_in(&f, 0.0..=1.0));
            if let (Some(label), Some(bbox), Some(score_min)) = (label, bbox, score_min) {
                objects.push(GoldenObject { label: label.to_owned(), bbox, score_min });
            }
        }
        Some(objects)
    }

    fn bbox(&mut self, field: &Field<'_>) -> Option<BBox> {
        let fields = self.map(field, &["x", "y", "w", "h"])?;
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| {
            let number = fields.required(self, side).and_then(|f| Some((self.number(&f)?, f)));
            let (number, f) = number?;
            if matches!(side, "w" | "h") && number <= 0.0 {
                return self.wrong(&f, format!("must be more than 0 pixels, not {number}"));
            }
            Some(number)
        });
        Some(BBox { x: x?, y: y?, w: w?, h: h? })
    }
}

/// The lines that hold the `files` section.
fn files_lines(root: &Node) -> Option<RangeInclusive<usize>> {
    let Value::Map(entries) = &root.value else { return None };
    let files = entries.iter().find(|entry| entry.key == "files")?;
    Some(files.place.line..=files.last_line)
}

/// The names in `files`, also of entries that are wrong; none when it is no map, which is told by itself.
fn listed_names<'a>(fields: &Fields<'a>) -> Option<BTreeSet<&'a str>> {
    match &fields.optional("files")?.node.value {
        Value::Map(entries) => Some(entries.iter().map(|entry| entry.key.as_str()).collect()),
        _ => None,
    }
}

/// Whether a path stays inside the bundle and names one of its files.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.len() > 255 {
        return Err("is longer than 255 bytes");
    }
    if path.starts_with('/') {
        return Err("is absolute; write it as it is inside the bundle");
    }
    if path.contains('\\') || path.chars().any(char::is_control) {
        return Err("has a backslash or a control character; folders are divided by `/`");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("has an empty part, `.` or `..`; write it as it is inside the bundle");
    }
    if path == FILE_NAME {
        return Err("is the manifest itself");
    }
    Ok(())
}
