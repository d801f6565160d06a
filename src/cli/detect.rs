//! `gantry detect`: a model tried on pictures or videos, without a config. It is the daemon's own pipeline, fed with
//! files, whose results are also shown here and drawn.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use tracing::error;

use super::annotate::Annotation;
use super::{Exit, Format, annotate, print_line, print_problem, run};
use crate::backend::fake::FakeScript;
use crate::backend::{BackendChoice, BackendKind, DeviceConfig};
use crate::config::leaf::clean_segment;
use crate::config::{AdminConfig, Camera, Config, Listen, Realtime};
use crate::daemon::{self, Outcome};
use crate::frame::{CameraId, Frame};
use crate::memory::{Policy, Wish};
use crate::model::Model;
use crate::pipeline::CameraOrder;
use crate::postprocess::Detection;
use crate::preprocess::letterbox::RegionConfig;
use crate::publish::{Publish, PublishConfig};
use crate::scheduler::{BatchingConfig, DetectConfig, Late, Quality};
use crate::source::{Address, CameraConfig};
use crate::telemetry::error_chain;
use crate::worker::Tap;

/// Arguments of `gantry detect`.
#[derive(Clone, Debug, Args)]
pub struct DetectArgs {
    /// Pictures (.png, .jpg) or videos.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The model: a name in the models directory, `name@version`, or the path of a bundle.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// The directory that holds models [default: ./models, else /var/lib/gantry/models].
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Write annotated pictures into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Of a video, annotate every n-th frame, beginning with the first.
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Report detections from this score on [default: the model's own].
    #[arg(long, value_name = "SCORE", value_parser = score)]
    score: Option<f32>,
    /// The runtime: auto, embedded or onnxruntime.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend)]
    backend: BackendChoice,
    #[command(flatten)]
    format: Format,
}

/// Runs the model on the files, one after the other, and shows what it finds.
#[must_use]
pub fn main(args: &DetectArgs) -> Exit {
    let config = config(args);
    let shown = Arc::new(Shown::new(args, &config));
    if let Err(problem) = shown.prepare() {
        print_problem(&problem);
        return Exit::Usage;
    }
    let tap: Arc<dyn Tap> = shown.clone();
    match daemon::run(config, CameraOrder::InTurn, Some(tap)) {
        Ok(outcome) => match (run::exit(&outcome.ended), shown.finish(&outcome)) {
            (Exit::Ok, exit) => exit,
            (exit, _) => exit,
        },
        Err(error) => {
            error!("{}", error_chain(&error));
            run::start_failure(&error)
        }
    }
}

/// The config that feeds these files to the model.
fn config(args: &DetectArgs) -> Config {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4);
    let device = DeviceConfig {
        id: "cpu0".to_owned(),
        backend: args.backend,
        threads,
        library: None,
        fake: FakeScript::default(),
    };
    let mut ids = BTreeMap::new();
    let camera = |file: &PathBuf| Camera {
        enabled: true,
        source: CameraConfig::new(camera_id(file, &mut ids), Address::File(file.clone())),
        region: RegionConfig::default(),
        detect: vec![DetectConfig {
            model: args.model.clone(),
            devices: Vec::new(),
            rate_max: None,
            deadline: None,
            late: Late::Drop,
            quality: Quality::Standard,
            weight: 1,
            score_min: args.score,
        }],
    };
    Config {
        node: "detect".to_owned(),
        devices: vec![device],
        models_dir: args.models.clone().unwrap_or_else(daemon::default_models_dir),
        cameras: args.files.iter().map(camera).collect(),
        batching: BatchingConfig { size_max: 1, queue_delay_max: std::time::Duration::ZERO },
        publish: PublishConfig { detections: Publish::EveryFrame, stdout: args.format.json, mqtt: None },
        // A trial is not the time to hold memory for years.
        realtime: Realtime {
            memory: Policy { lock: Wish::Off, huge_pages: Wish::Auto },
            ..Realtime::default()
        },
        admin: AdminConfig { listen: Listen::Off },
    }
}

/// The file's name as a camera id, unique among these files.
fn camera_id(file: &Path, ids: &mut BTreeMap<String, u32>) -> CameraId {
    let name = file.file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy());
    CameraId::new(&unique(&clean_segment(&name), ids))
}

/// The name, with a number where it was given before.
fn unique(name: &str, given: &mut BTreeMap<String, u32>) -> String {
    let mut unique = name.to_owned();
    while given.contains_key(&unique) {
        let count = given.entry(name.to_owned()).or_insert(1);
        *count += 1;
        unique = format!("{name}-{count}");
    }
    given.insert(unique.clone(), 1);
    unique
}

/// Shows results as a table and draws them.
struct Shown {
    out: Option<PathBuf>,
    every: u64,
    table: bool,
    files: BTreeMap<CameraId, InputFile>,
    sums: Mutex<Sums>,
}

/// A file of the command line.
struct InputFile {
    path: PathBuf,
    is_picture: bool,
    /// What the names of its annotated pictures begin with; no other file's do.
    stem: String,
}

/// What was found so far.
#[derive(Default)]
struct Sums {
    labels: BTreeMap<String, u64>,
    frames: u64,
    /// Annotated pictures that could not be written.
    unwritten: u64,
    /// Whether the reader of standard output has gone.
    unread: bool,
}

impl Shown {
    fn new(args: &DetectArgs, config: &Config) -> Self {
        let mut stems = BTreeMap::new();
        let file = |(camera, path): (&Camera, &PathBuf)| {
            let stem = path.file_stem().map_or_else(|| "file".into(), |stem| stem.to_string_lossy());
            let is_picture = crate::source::synthetic::reads_picture(path);
            let file = InputFile { path: path.clone(), is_picture, stem: unique(&stem, &mut stems) };
            (camera.source.id.clone(), file)
        };
        Self {
            out: args.out.clone(),
            every: args.every,
            table: !args.format.json,
            files: config.cameras.iter().zip(&args.files).map(file).collect(),
            sums: Mutex::default(),
        }
    }

    /// Makes the directory for annotated pictures, and makes sure that none of them takes the place of what is read.
    fn prepare(&self) -> Result<(), String> {
        let Some(out) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(out).map_err(|error| format!("{} cannot be made: {error}", out.display()))?;
        for file in self.files.values().filter(|file| file.is_picture) {
            let written = out.join(file.picture_name(1));
            let Ok(there) = written.canonicalize() else { continue };
            if self.files.values().any(|read| read.path.canonicalize().is_ok_and(|read| read == there)) {
                let written = written.display();
                return Err(format!(
                    "the annotated picture would take the place of {written}; give another --out"
                ));
            }
        }
        Ok(())
    }

    /// Prints the sums, if every frame has come, and says whether all pictures were written.
    fn finish(&self, outcome: &Outcome) -> Exit {
        if !outcome.abandoned.is_empty() {
            // The reader of our standard output does not read, and would be waited for here too.
            return Exit::Temporary;
        }
        let sums = self.sums();
        if self.table && sums.frames > 0 {
            let labels: Vec<_> =
                sums.labels.iter().map(|(label, count)| format!("{count} {label}")).collect();
            let found = if labels.is_empty() { "nothing".to_owned() } else { labels.join(", ") };
            let frames = if sums.frames == 1 { "frame" } else { "frames" };
            print_line(&format_args!("{} {frames}: {found}", sums.frames));
        }
        if sums.unwritten == 0 { Exit::Ok } else { Exit::Temporary }
    }

    fn tabulate(&self, frame: &Frame, model: &Model, detections: &[Detection]) {
        let mut rows = String::new();
        let file = self.files[&frame.camera].path.display();
        let at = frame.times.pts.map_or_else(String::new, |pts| format!(" at {:.3} s", pts.as_secs_f64()));
        let (width, height) = (frame.geometry().width, frame.geometry().height);
        push(&mut rows, format_args!("{file} frame {}{at}, {width}x{height}:", frame.id));
        if detections.is_empty() {
            push(&mut rows, format_args!(" nothing"));
        }
        let widest = model.labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        for Detection { class_id, score, bbox } in detections {
            let label = label(model, *class_id);
            push(
                &mut rows,
                format_args!(
                    "\n  {label:<widest$}  {score:.2}  x {:7.1}  y {:7.1}  w {:6.1}  h {:6.1}",
                    bbox.x, bbox.y, bbox.w, bbox.h
                ),
            );
        }
        let mut sums = self.sums();
        sums.frames += 1;
        for detection in detections {
            *sums.labels.entry(label(model, detection.class_id).to_owned()).or_insert(0) += 1;
        }
        let unread = sums.unread;
        drop(sums);
        rows.push('\n');
        if unread || std::io::stdout().lock().write_all(rows.as_bytes()).is_ok() {
            return;
        }
        self.sums().unread = true;
        if self.out.is_none() {
            // Nobody sees what is left: `gantry detect … | head`. The run ends as at a signal; a second one would cut it
            // short.
            drop(signal_hook::low_level::raise(signal_hook::consts::SIGTERM));
        }
    }

    fn draw(&self, out: &Path, frame: &Frame, model: &Model, detections: &[Detection]) {
        let file = &self.files[&frame.camera];
        if !file.is_picture && !(frame.id - 1).is_multiple_of(self.every) {
            return;
        }
        let path = out.join(file.picture_name(frame.id));
        let annotations: Vec<_> = detections
            .iter()
            .map(|&Detection { class_id, score, bbox }| Annotation {
                class_id,
                label: label(model, class_id),
                score,
                bbox,
            })
            .collect();
        let mut image = match annotate::picture(frame) {
            Ok(image) => image,
            Err(error) => return self.unwritten(&path, &error),
        };
        annotate::annotate(&mut image, &annotations);
        if let Err(error) = image.save(&path) {
            self.unwritten(&path, &error);
        }
    }

    /// Counts a picture that was not written, and tells the first.
    fn unwritten(&self, path: &Path, error: &dyn std::error::Error) {
        let mut sums = self.sums();
        sums.unwritten += 1;
        if sums.unwritten == 1 {
            error!("{} cannot be written: {}", path.display(), error_chain(error));
        }
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InputFile {
    fn picture_name(&self, frame: u64) -> String {
        if self.is_picture { format!("{}.jpg", self.stem) } else { format!("{}-{frame:06}.jpg", self.stem) }
    }
}

impl Tap for Shown {
    fn result(&self, frame: &Frame, model: &Model, detections: &[Detection]) {
        if self.table {
            self.tabulate(frame, model, detections);
        }
        if let Some(out) = &self.out {
            self.draw(out, frame, model, detections);
        }
    }
}

fn label(model: &Model, class_id: u32) -> &str {
    model.labels.get(class_id as usize).map_or("?", String::as_str)
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a string cannot fail");
}

fn score(text: &str) -> Result<f32, String> {
    let score: f32 = text.parse().map_err(|_| "a number from 0 to 1 is wanted".to_owned())?;
    if (0.0..=1.0).contains(&score) { Ok(score) } else { Err("a score is from 0 to 1".to_owned()) }
}

pub(super) fn backend(text: &str) -> Result<BackendChoice, String> {
    if text == "auto" {
        return Ok(BackendChoice::Auto);
    }
    let known = || BackendKind::ALL.map(BackendKind::name).join(", ");
    BackendKind::ALL
        .into_iter()
        .find(|kind| kind.name() == text)
        .map(BackendChoice::Named)
        .ok_or_else(|| format!("there is auto, {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_name_get_different_ids() {
        let mut ids = BTreeMap::new();
        let files = ["a/belt", "b/belt", "belt-2", "c/belt", "c#1.png"];
        let names = files.map(|file| camera_id(Path::new(file), &mut ids).to_string());
        assert_eq!(names, ["belt", "belt-2", "belt-2-2", "belt-3", "c-1.png"]);
    }

    #[test]
    fn a_score_is_from_0_to_1() {
        assert_eq!(score("0.4"), Ok(0.4));
        assert!(score("40").is_err());
        assert!(score("NaN").is_err());
    }
}
