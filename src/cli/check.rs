//! `gantry check`: everything that `run` would refuse, and nothing started.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{ConfigFile, Exit, Format, print_report};
use crate::backend::{self, DeviceConfig};
use crate::config::Config;
use crate::daemon;
use crate::model::Model;
use crate::pipeline;
use crate::source;
use crate::telemetry::error_chain;
use crate::worker::lane;
use crate::yaml::Problem;

/// Arguments of `gantry check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    format: Format,
}

/// What a check found.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Whether `gantry run` would start.
    pub ok: bool,
    /// The config file.
    pub file: PathBuf,
    /// Mistakes in the config, each with its place.
    pub errors: Vec<Problem>,
    /// Models and devices that cannot be used.
    pub failures: Vec<String>,
    /// What was loaded: `model on device: runtime`.
    pub loaded: Vec<String>,
}

/// Checks a config and loads its models.
#[must_use]
pub fn main(args: &CheckArgs) -> Exit {
    let report = check(&args.config.file);
    let ok = report.ok;
    print_report(&report, args.format);
    if ok { Exit::Ok } else { Exit::Config }
}

/// Checks a config and, when it has no mistake, loads each model on each device that runs it.
#[must_use]
pub fn check(file: &Path) -> CheckReport {
    let mut report = CheckReport {
        ok: false,
        file: file.to_owned(),
        errors: Vec::new(),
        failures: Vec::new(),
        loaded: Vec::new(),
    };
    match crate::config::load(file) {
        Ok(config) => load(&config, &mut report),
        Err(errors) => report.errors = errors.problems,
    }
    report.ok = report.errors.is_empty() && report.failures.is_empty();
    report
}

fn load(config: &Config, report: &mut CheckReport) {
    report.failures.extend(daemon::refused(&config.realtime).iter().map(|error| error_chain(error)));
    for camera in &config.cameras {
        // Nothing is opened yet, but a part of GStreamer that is not there is found.
        if let Err(error) = source::open(&camera.source) {
            report.failures.push(format!("camera {}: {}", camera.source.id, error_chain(&error)));
        }
    }
    let models = match daemon::models(&config.models_dir, daemon::model_names(config)) {
        Ok(models) => models,
        Err(errors) => {
            report.failures.extend(errors.iter().map(|error| error_chain(error)));
            return;
        }
    };
    for (index, device) in config.devices.iter().enumerate() {
        let mut names: Vec<_> = config
            .cameras
            .iter()
            .flat_map(|camera| &camera.detect)
            .filter(|detect| pipeline::device_of(config, &detect.devices) == index)
            .map(|detect| detect.model.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        if !names.is_empty() {
            let wanted: Vec<&Model> = names.iter().map(|name| models[*name].as_ref()).collect();
            try_device(device, &wanted, config.batching.size_max, report);
        }
    }
}

fn try_device(device: &DeviceConfig, models: &[&Model], batch_size_max: usize, report: &mut CheckReport) {
    let mut opened = match backend::open(device) {
        Ok(opened) => opened,
        Err(error) => {
            report.failures.push(format!("device {}: {}", device.id, error_chain(&error)));
            return;
        }
    };
    for model in models {
        match lane::load(opened.as_mut(), &device.id, model, batch_size_max) {
            Ok(_) => report.loaded.push(format!("{} on {}: {}", model.title(), device.id, opened.describe())),
            Err(error) => report.failures.push(error_chain(&error)),
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.errors {
            let space = if problem.place.is_some() { "" } else { " " };
            writeln!(f, "{}:{space}{problem}", self.file.display())?;
        }
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        for loaded in &self.loaded {
            writeln!(f, "loaded {loaded}")?;
        }
        match self.errors.len() + self.failures.len() {
            0 => write!(f, "{} is right", self.file.display()),
            1 => write!(f, "1 mistake"),
            n => write!(f, "{n} mistakes"),
        }
    }
}
