//! A model's directory: its manifest, its files, their hashes.
//!
//! [`open`] reads a bundle and checks it whole; [`find`] and [`list`] do so for a directory of bundles laid out as
//! `<name>/<version>/`. Nothing of a bundle is trusted before its hash was compared, every file of it must be listed, and
//! no file may lie outside of it. [`Variant::read`] compares again when the file is loaded, which may be days later.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::{FileProblem, ModelError};
use super::files;
use super::manifest::{self, Manifest};
use super::{Golden, Model, Variant};
use crate::backend::ModelFormat;
use crate::backend::onnx::{self, OnnxTensor};
use crate::backend::tensor::TensorSpec;
use crate::postprocess::OutputSpec;
use crate::yaml::{self, nearest};

/// One `<name>/<version>/` of a directory of bundles.
#[derive(Debug)]
pub struct Entry {
    /// The name's folder.
    pub name: String,
    /// The version's folder.
    pub version: String,
    /// The bundle.
    pub dir: PathBuf,
    /// The model, or why it cannot be used.
    pub model: Result<Model, ModelError>,
}

/// Reads the bundle in `dir` and checks it: the manifest, that every file is there with its size and hash, that no other
/// file is, and that there are as many labels as classes.
///
/// # Errors
/// Every mistake of the manifest; else everything that is wrong with the files.
pub fn open(dir: &Path) -> Result<Model, ModelError> {
    let bytes = read_manifest(dir)?;
    let path = dir.join(manifest::FILE_NAME);
    let manifest = manifest::parse(&bytes).map_err(|problems| ModelError::Manifest { path, problems })?;
    build(dir, manifest)
}

/// Name and version of every folder that may be a bundle, `<name>/<version>/`, by name and then by version. Folders that are
/// not called like a version come first, so that they are never the highest.
///
/// # Errors
/// When a folder cannot be read.
pub fn places(models_dir: &Path) -> Result<Vec<(String, String)>, ModelError> {
    let mut places = Vec::new();
    for name in folders(models_dir)? {
        for version in folders(&models_dir.join(&name))? {
            places.push((name.clone(), version));
        }
    }
    places.sort_by_cached_key(|(name, version)| {
        (name.clone(), semver::Version::parse(version).ok(), version.clone())
    });
    Ok(places)
}

/// Every bundle below `models_dir`, good or bad, by name and version.
///
/// # Errors
/// When the directory cannot be read. A bundle that cannot be used is an entry that says why.
pub fn list(models_dir: &Path) -> Result<Vec<Entry>, ModelError> {
    let places = places(models_dir)?;
    Ok(places
        .into_iter()
        .map(|(name, version)| {
            let dir = models_dir.join(&name).join(&version);
            let model = open_placed(&dir, &name, &version);
            Entry { name, version, dir, model }
        })
        .collect())
}

/// The model `name` in its highest version, or `name@version`. Versions are ordered as semver does, so 1.10.0 is above
/// 1.9.0, and 2.0.0-rc.1 above both. A version that cannot be used is an error; no older one is taken in its place.
///
/// # Errors
/// When there is no such model or version, with what there is; when the bundle cannot be used.
pub fn find(models_dir: &Path, wanted: &str) -> Result<Model, ModelError> {
    let places = places(models_dir)?;
    let (name, version) = match wanted.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (wanted, None),
    };
    let found = places.iter().rfind(|(its_name, its_version)| {
        its_name == name && version.is_none_or(|wanted| wanted == its_version)
    });
    let Some((name, version)) = found else {
        let names: BTreeSet<&str> = places.iter().map(|(name, _)| name.as_str()).collect();
        let nearest = nearest(name, names.iter().copied().filter(|other| *other != name));
        return Err(ModelError::NotFound {
            wanted: wanted.to_owned(),
            dir: models_dir.to_owned(),
            nearest: nearest.map(str::to_owned),
            there: places.iter().map(|(name, version)| format!("{name}@{version}")).collect(),
        });
    };
    open_placed(&models_dir.join(name).join(version), name, version)
}

/// Compares what a runtime found in the model file with what the manifest says of it, and returns the index of the output
/// that the decoder reads. Sizes that either leaves open fit.
///
/// # Errors
/// When a name, type or shape differs; the error has both.
pub fn check_loaded(model: &Model, input: &TensorSpec, outputs: &[TensorSpec]) -> Result<usize, ModelError> {
    let mismatch = |what, declared: &TensorSpec, real: &[TensorSpec]| ModelError::Mismatch {
        model: model.title(),
        what,
        declared: declared.to_string(),
        real: match real {
            [] => "nothing".to_owned(),
            real => real.iter().map(TensorSpec::to_string).collect::<Vec<_>>().join(" and "),
        },
    };
    let fits = |declared: &TensorSpec, real: &TensorSpec| {
        declared.name == real.name
            && declared.element_type == real.element_type
            && declared.shape.agrees_with(&real.shape)
    };
    if !fits(&model.input_tensor, input) {
        return Err(mismatch("input", &model.input_tensor, std::slice::from_ref(input)));
    }
    let declared = &model.output.tensor;
    outputs
        .iter()
        .position(|output| fits(declared, output))
        .ok_or_else(|| mismatch("output", declared, outputs))
}

/// Reads every ONNX file of a model and compares what it says of itself with the manifest.
///
/// # Errors
/// When a file has changed, is no ONNX model or is cut off, or when its tensors are not those of the manifest.
pub fn verify(model: &Model) -> Result<(), ModelError> {
    for variant in &model.variants {
        let ModelFormat::Onnx = variant.format;
        let bad = |reason| ModelError::BadFile { path: variant.path.clone(), reason };
        let onnx = onnx::read(&variant.read()?).map_err(bad)?;
        let specs =
            |tensors: &[OnnxTensor]| tensors.iter().map(OnnxTensor::spec).collect::<Result<Vec<_>, _>>();
        let inputs = specs(&onnx.inputs).map_err(bad)?;
        let [input] = inputs.as_slice() else {
            return Err(bad(format!("it has {} inputs, and a detector has one", inputs.len())));
        };
        // An output that is no number for a decoder, such as a count, is nobody's business unless the manifest names it.
        let outputs: Vec<TensorSpec> = onnx
            .outputs
            .iter()
            .filter_map(|output| match output.spec() {
                Err(reason) if output.name == model.output.tensor.name => Some(Err(bad(reason))),
                spec => spec.ok().map(Ok),
            })
            .collect::<Result<_, _>>()?;
        check_loaded(model, input, &outputs)?;
    }
    Ok(())
}

impl Variant {
    /// The file's bytes, if they are still those that the manifest has the hash of.
    ///
    /// # Errors
    /// When the file cannot be read or has changed since the bundle was opened.
    pub fn read(&self) -> Result<Vec<u8>, ModelError> {
        let bytes =
            fs::read(&self.path).map_err(|source| ModelError::Read { path: self.path.clone(), source })?;
        if files::hash_bytes(&bytes) == self.sha256 {
            Ok(bytes)
        } else {
            Err(ModelError::Changed { path: self.path.clone() })
        }
    }
}

/// The manifest's bytes, or of a file that is too large for one, as many as show that.
pub(super) fn read_manifest(dir: &Path) -> Result<Vec<u8>, ModelError> {
    let path = dir.join(manifest::FILE_NAME);
    let read = fs::metadata(&path).and_then(|metadata| {
        if !metadata.is_file() {
            return Err(io::Error::other("it is not an ordinary file"));
        }
        let mut bytes = Vec::new();
        File::open(&path)?.take(yaml::SIZE_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    read.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if dir.is_dir() => ModelError::NoManifest { dir: dir.to_owned() },
        io::ErrorKind::NotFound => ModelError::Read { path: dir.to_owned(), source },
        _ => ModelError::Read { path, source },
    })
}

/// Checks the files of a bundle against its manifest and makes the model.
pub(super) fn build(dir: &Path, manifest: Manifest) -> Result<Model, ModelError> {
    let (there, mut problems) = files::walk(dir);
    let listed = manifest.files.keys().filter(|file| !there.contains_key(*file));
    // A listed file that the walk has already told about is not told about again.
    let missing: Vec<_> =
        listed.filter(|file| !problems.iter().any(|problem| problem.is_about(file))).collect();
    problems.extend(missing.into_iter().cloned().map(FileProblem::Missing));
    for (file, size) in &there {
        match manifest.files.get(file) {
            Some(entry) => problems.extend(files::compare(dir, file, *size, entry).err()),
            None => problems.push(FileProblem::Unlisted(file.clone())),
        }
    }
    let labels = match there.contains_key(&manifest.labels).then(|| read_labels(dir, &manifest)) {
        Some(Ok(labels)) => {
            problems.extend(unknown_golden_labels(&manifest.golden, &labels));
            labels
        }
        Some(Err(reason)) => {
            problems.push(FileProblem::Labels { file: manifest.labels.clone(), reason });
            Vec::new()
        }
        None => Vec::new(),
    };
    if problems.is_empty() {
        Ok(model(dir, manifest, labels))
    } else {
        Err(ModelError::Files { dir: dir.to_owned(), problems })
    }
}

/// The labels, if there are as many as the model has classes.
fn read_labels(dir: &Path, manifest: &Manifest) -> Result<Vec<String>, String> {
    let labels = files::read_labels(&dir.join(&manifest.labels))?;
    match output_spec(manifest, labels.len()).decoder() {
        Ok(_) => Ok(labels),
        Err(error) => {
            let number = labels.len();
            Err(format!("has {number} {}; {error}", if number == 1 { "label" } else { "labels" }))
        }
    }
}

fn output_spec(manifest: &Manifest, classes: usize) -> OutputSpec {
    let output = &manifest.output;
    OutputSpec {
        family: output.family,
        tensor: output.tensor.clone(),
        classes,
        iou: manifest.iou,
        suppression: output.suppression,
    }
}

fn unknown_golden_labels(golden: &[Golden], labels: &[String]) -> Vec<FileProblem> {
    let known: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
    let expected = |(index, golden): (usize, &Golden)| -> BTreeSet<(usize, String)> {
        golden.expect.iter().map(|object| (index, object.label.clone())).collect()
    };
    golden
        .iter()
        .enumerate()
        .flat_map(expected)
        .filter(|(_, label)| !known.contains(label.as_str()))
        .map(|(index, label)| FileProblem::GoldenLabel {
            index,
            nearest: nearest(&label, known.iter().copied()).map(str::to_owned),
            label,
        })
        .collect()
}

fn model(dir: &Path, manifest: Manifest, labels: Vec<String>) -> Model {
    let output = output_spec(&manifest, labels.len());
    let Manifest { files, variants, golden, .. } = manifest;
    let variants = variants.into_iter().map(|variant| Variant {
        format: variant.format,
        backend: variant.backend,
        sha256: files[&variant.file].sha256.clone(),
        path: dir.join(variant.file),
    });
    Model {
        name: manifest.name,
        version: manifest.version,
        dir: dir.to_owned(),
        variants: variants.collect(),
        input: manifest.input,
        input_tensor: manifest.input_tensor,
        output,
        labels: labels.into(),
        score_min: manifest.score,
        golden: golden.into_iter().map(|g| Golden { image: dir.join(&g.image), ..g }).collect(),
    }
}

/// Names of the folders in a folder, links to folders too; not those that begin with a dot.
fn folders(dir: &Path) -> Result<Vec<String>, ModelError> {
    let failed = |source| ModelError::Read { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().is_dir() {
            names.push(name);
        }
    }
    Ok(names)
}

fn open_placed(dir: &Path, name: &str, version: &str) -> Result<Model, ModelError> {
    let model = open(dir)?;
    if model.name == name && model.version.to_string() == version {
        return Ok(model);
    }
    let expected = format!("{}/{}", model.name, model.version);
    Err(ModelError::Misplaced { dir: dir.to_owned(), title: model.title(), expected })
}
