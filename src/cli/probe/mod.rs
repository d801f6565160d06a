//! `gantry probe`: what this machine has, what is missing, and how to get it.

mod memory;
mod threads;

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::{Exit, Format, print_report};
use memory::Memory;
use threads::Scheduled;

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
    /// Memory, and whether it can be locked in RAM.
    pub memory: Memory,
    /// CPUs, and how threads share them.
    pub threads: Scheduled,
    /// What is not as it should be.
    pub advice: Vec<Advice>,
}

/// Something that is not as it should be, and what makes it so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What is so.
    pub what: String,
    /// What to do, in one line.
    pub cure: String,
}

impl Advice {
    fn new(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { what: what.into(), cure: cure.into() }
    }
}

/// Looks and tells.
#[must_use]
pub fn main(args: &ProbeArgs) -> Exit {
    let backends = probe::probe(None);
    let auto = probe::auto_choice(&backends);
    let (memory, threads) = (Memory::look(), Scheduled::look());
    let report = ProbeReport {
        gantry: env!("CARGO_PKG_VERSION"),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        backends,
        auto,
        video: gstreamer::probe(),
        advice: memory.advice().into_iter().chain(threads.advice()).collect(),
        memory,
        threads,
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
        writeln!(f, "\nvideo\n{}", self.video)?;
        write!(f, "\nmemory\n{}\nthreads\n{}", self.memory, self.threads)?;
        match self.advice.as_slice() {
            [] => write!(f, "\nnothing here keeps Gantry from being on time"),
            advice => {
                write!(f, "\nwhat could be better, under the limits of this shell (a unit has its own)")?;
                advice.iter().try_for_each(|Advice { what, cure }| write!(f, "\n  {what}\n    {cure}"))
            }
        }
    }
}
