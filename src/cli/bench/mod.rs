//! `gantry bench`: the daemon's own pipeline, measured while it runs.
//!
//! `setup` makes the config, `measure` runs it and looks twice, `report` says what was between the two looks.

mod measure;
mod report;
mod setup;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Exit, Format, print_problem, print_report, run};
use crate::backend::BackendChoice;
use crate::memory::allocations::{self, Trace};
use crate::source::{Rate, Replay};
use crate::telemetry::error_chain;
use crate::threads::ThreadKind;
use measure::{BenchError, Plan};

/// Where this command's own allocations are counted, so that those of libraries' threads, which joined no group, stand by
/// themselves.
const MAIN_GROUP: usize = allocations::GROUPS - 1;

/// Arguments of `gantry bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Measure this config, with its cameras, devices and broker, instead of what the options say.
    #[arg(
        short = 'c',
        long = "config",
        value_name = "FILE",
        conflicts_with_all = ["model", "models", "cameras", "source", "size", "rate", "device", "device_threads", "batch"]
    )]
    config: Option<PathBuf>,
    /// The model: a name in the models directory, `name@version`, or the path of a bundle.
    #[arg(long, value_name = "NAME", required_unless_present = "config")]
    model: Option<String>,
    /// The directory that holds models [default: ./models, else /var/lib/gantry/models].
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// How many cameras there are.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cameras: u16,
    /// What each camera sees: a test pattern, a file that is played again and again, or any address that a config takes.
    #[arg(long, value_name = "ADDRESS", default_value = "test://pattern?size=1280x720&rate=max")]
    source: String,
    /// Another size of the test pattern.
    #[arg(long, value_name = "WxH", value_parser = size)]
    size: Option<(u32, u32)>,
    /// Frames a second of each camera, whether they are taken or not; `max`: as many as are taken, and none is lost; `own`:
    /// a file's own times [default: the test pattern's own rate, `max` for a file].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<Replay>,
    /// The runtime: auto, embedded, onnxruntime, or fake, which takes no time and finds nothing.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = super::detect::backend)]
    device: BackendChoice,
    /// Threads of the runtime.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    device_threads: u16,
    /// The most frames in a batch.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// For how many seconds is measured.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// For how many seconds everything runs before that.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    warm_up: Duration,
    /// Also show where our own code allocated memory while it was measured: the first N places. It slows down what
    /// allocates.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    trace_allocations: usize,
    #[command(flatten)]
    format: Format,
}

/// Runs, measures, reports.
#[must_use]
pub fn main(args: &BenchArgs) -> Exit {
    let config = match &args.config {
        Some(file) => crate::config::load(file).map_err(|errors| (Exit::Config, errors.to_string())),
        None => setup::config(args).map_err(|problem| (Exit::Usage, problem)),
    };
    let config = match config {
        Ok(config) => config,
        Err((exit, problem)) => {
            print_problem(&problem);
            return exit;
        }
    };
    allocations::join(MAIN_GROUP);
    allocations::count();
    let plan = Plan { warm_up: args.warm_up, time: args.seconds, traces: args.trace_allocations };
    match measure::run(config, plan) {
        Ok((report, traces)) => {
            print_report(&report, args.format);
            traces.iter().for_each(print_trace);
            Exit::Ok
        }
        Err(error) => {
            print_problem(&error_chain(&error));
            exit(&error)
        }
    }
}

fn exit(error: &BenchError) -> Exit {
    match error {
        BenchError::Start(error) => run::start_failure(error),
        BenchError::Refused(_) => Exit::Config,
        BenchError::Cameras(_) | BenchError::Late { .. } | BenchError::NoFrame | BenchError::Output(_) => {
            Exit::Temporary
        }
        BenchError::Panicked(_) => Exit::Internal,
    }
}

fn print_trace(trace: &Trace) {
    let kind = ThreadKind::ALL.into_iter().find(|kind| kind.allocation_group() == trace.group);
    let kind = kind.map_or("other", ThreadKind::name);
    print_problem(&format_args!("{} bytes on a {kind} thread\n{}", trace.bytes, trace.backtrace));
}

fn size(text: &str) -> Result<(u32, u32), String> {
    crate::config::address::size(text)
        .ok_or_else(|| "width and height from 1 to 8192, as in 640x480".to_owned())
}

fn rate(text: &str) -> Result<Replay, String> {
    if text == "own" {
        return Ok(Replay::OwnPace);
    }
    let rate: Option<Rate> = crate::config::address::rate(text);
    rate.map(Replay::Rate).ok_or_else(|| "frames a second from 0.01 to 1000, `max` or `own`".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "seconds from 0.1 to 86400".to_owned())
}
