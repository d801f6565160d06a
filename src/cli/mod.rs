//! The command line: one file a command.
//!
//! Human text goes to standard output, `--json` makes it one JSON document; log sentences go to standard error.

pub mod annotate;
pub mod bench;
pub mod camera;
pub mod check;
pub mod config;
pub mod detect;
pub mod model;
pub mod probe;
pub mod run;

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

/// Where the config is when `-c` does not say.
pub const DEFAULT_CONFIG: &str = "/etc/gantry/gantry.yaml";

/// Exit codes, after `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// The command line is wrong.
    Usage = 64,
    /// Something inside went wrong, or hung.
    Internal = 70,
    /// Something outside went wrong that may pass; trying again may help.
    Temporary = 75,
    /// The config or a model is wrong, or a limit is too low for it; only a person can mend it.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Watches cameras, runs detection models, and publishes what it sees over MQTT.
#[derive(Debug, Parser)]
#[command(
    name = "gantry",
    version,
    max_term_width = 100,
    after_help = "Example:\n  gantry detect picture.jpg --model line-parts\n\nExit codes: 0 well, 64 wrong command line, 70 a fault inside, 75 a fault outside that may pass, 78 a config, model \
or limit that a person must mend. GANTRY_LOG=debug logs more."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon until it is asked to stop or all its files have ended.
    #[command(after_help = "Example:\n  gantry run -c config/examples/file.yaml")]
    Run(run::RunArgs),
    /// Check a config and load its models, without opening cameras or the network.
    #[command(after_help = "Example:\n  gantry check -c gantry.yaml --json")]
    Check(check::CheckArgs),
    /// Try a model on pictures or videos, without a config.
    #[command(
        after_help = "Example:\n  gantry detect belt.mp4 --model line-parts --out annotated --every 25"
    )]
    Detect(detect::DetectArgs),
    /// Measure the whole pipeline with test patterns, files, or the cameras of a config.
    #[command(
        after_help = "Examples:\n  gantry bench --model line-parts --cameras 4 --size 1280x720\n  gantry bench --model line-parts \
--source belt.mp4 --rate own --json\n  gantry bench -c gantry.yaml --seconds 60"
    )]
    Bench(Box<bench::BenchArgs>),
    /// Tell what this machine has: runtimes, video decoders, limits.
    #[command(after_help = "Example:\n  gantry probe --json")]
    Probe(probe::ProbeArgs),
    /// Look at a camera: what it offers, what it sends, and how good that is.
    #[command(after_help = "Example:\n  gantry camera probe rtsp://10.0.0.7/stream1 --snapshot now.jpg")]
    Camera {
        #[command(subcommand)]
        command: camera::CameraCommand,
    },
    /// Look at, pack and verify model bundles.
    #[command(after_help = "Example:\n  gantry model inspect detector.onnx")]
    Model {
        #[command(subcommand)]
        command: model::ModelCommand,
    },
    /// Show the effective config, or the schema of all configs.
    #[command(after_help = "Example:\n  gantry config print -c gantry.yaml")]
    Config {
        #[command(subcommand)]
        command: config::ConfigCommand,
    },
}

/// `-c FILE`, as several commands take it.
#[derive(Clone, Debug, Args)]
pub struct ConfigFile {
    /// The config file.
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub file: PathBuf,
}

/// Parses the command line, does what it asks, and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no mistakes. A closed pipe is nobody's fault here.
            drop(error.print());
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    crate::telemetry::init_logging(match cli.command {
        Command::Run(_) => LevelFilter::INFO,
        // Of a command that a person waits for, only what went wrong is of interest.
        _ => LevelFilter::WARN,
    });
    let exit = match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Check(args) => check::main(&args),
        Command::Detect(args) => detect::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Probe(args) => probe::main(&args),
        Command::Camera { command } => camera::main(&command),
        Command::Model { command } => model::main(&command),
        Command::Config { command } => config::main(&command),
    };
    exit.into()
}

/// Whether a report is for people or for machines.
#[derive(Clone, Copy, Debug, Args)]
pub struct Format {
    /// Print JSON, for machines.
    #[arg(long)]
    pub json: bool,
}

/// Prints a report to standard output, for people or as one JSON document. A reader that has gone is ignored.
pub fn print_report<R: Display + Serialize>(report: &R, format: Format) {
    if format.json {
        let text =
            serde_json::to_string_pretty(report).expect("a report has only string keys and finite numbers");
        print_line(&text);
    } else {
        print_line(report);
    }
}

/// Prints one line or block to standard output. A reader that has gone is ignored.
pub fn print_line(text: &dyn Display) {
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}

/// Prints a problem to standard error, for people.
pub fn print_problem(problem: &dyn Display) {
    drop(writeln!(std::io::stderr().lock(), "{problem}"));
}
