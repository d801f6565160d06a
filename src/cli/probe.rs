//! `gantry probe`: what this machine has, what is missing, and how to get it.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::{Exit, Format, print_report};
use crate::backend::probe::{self, AutoChoice, Found, FoundState};
use crate::source::gstreamer;
use crate::source::video::VideoProbe;

/// Arguments of `gantry probe`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    format: Format,
}

/// What this machine has.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Gantry's version.
    pub gantry: &'static str,
    /// Processors that this process may use.
    pub processors: usize,
    /// Every runtime that Gantry knows.
    pub backends: Vec<Found>,
    /// Which of them `backend: auto` takes, and why.
    pub auto: AutoChoice,
    /// GStreamer and its video decoders.
    pub video: VideoProbe,
}

/// Looks and tells.
#[must_use]
pub fn main(args: &ProbeArgs) -> Exit {
    let backends = probe::probe(None);
    let auto = probe::auto_choice(&backends);
    let report = ProbeReport {
        gantry: env!("CARGO_PKG_VERSION"),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        backends,
        auto,
        video: gstreamer::probe(),
    };
    print_report(&report, args.format);
    Exit::Ok
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "gantry {}, {} processors", self.gantry, self.processors)?;
        writeln!(f, "\nruntimes")?;
        for backend in &self.backends {
            let name = backend.backend;
            match &backend.state {
                FoundState::Ready { version, library: None } => writeln!(f, "  {name}: {version}")?,
                FoundState::Ready { version, library: Some(library) } => {
                    writeln!(f, "  {name}: {version}, {}", library.display())?;
                }
                FoundState::Missing { library, looked, cure } => {
                    writeln!(f, "  {name}: missing; {cure}")?;
                    writeln!(f, "    {library} was looked for in {}", looked.join(", "))?;
                }
                FoundState::Unusable { library, reason, cure } => {
                    writeln!(f, "  {name}: {library} cannot be used: {reason}; {cure}")?;
                }
            }
        }
        writeln!(f, "  `backend: auto` takes {}: {}", self.auto.backend, self.auto.reason)?;
        write!(f, "\nvideo\n{}", self.video)
    }
}
