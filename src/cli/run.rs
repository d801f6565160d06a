//! `gantry run`.

use clap::Args;
use tracing::error;

use super::{ConfigFile, Exit};
use crate::control::supervisor::Ended;
use crate::daemon::{self, DaemonError};
use crate::pipeline::{CameraOrder, PipelineError};
use crate::telemetry::error_chain;

/// Arguments of `gantry run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigFile,
}

/// Checks the config, then runs the daemon.
#[must_use]
pub fn main(args: &RunArgs) -> Exit {
    let config = match crate::config::load(&args.config.file) {
        Ok(config) => config,
        Err(errors) => {
            // Each mistake with its place is a line of its own, an error also to whoever filters the journal.
            for line in errors.to_string().lines() {
                error!("{line}");
            }
            return Exit::Config;
        }
    };
    match daemon::run(config, CameraOrder::Together, None) {
        Ok(outcome) => exit(&outcome.ended),
        Err(error) => {
            let exit = start_failure(&error);
            error!("{}", error_chain(&error));
            exit
        }
    }
}

/// The exit code of a daemon that could not start.
#[must_use]
pub fn start_failure(error: &DaemonError) -> Exit {
    match error {
        // A limit does not pass by itself either.
        DaemonError::Models(_)
        | DaemonError::Realtime(_)
        | DaemonError::Pipeline(PipelineError::Source { .. }) => Exit::Config,
        // Whoever has the port or the memory may go, as a Gantry that is ending does.
        DaemonError::Admin(_)
        | DaemonError::Pipeline(PipelineError::Thread { .. } | PipelineError::Memory(_)) => Exit::Temporary,
        DaemonError::Signals(_) => Exit::Internal,
    }
}

/// The exit code of a daemon that ran, after saying why it ended if that is a fault.
#[must_use]
pub fn exit(ended: &Ended) -> Exit {
    match ended {
        Ended::Stopped | Ended::CamerasEnded => Exit::Ok,
        // Each was told when it happened.
        Ended::CamerasFailed(_) => Exit::Temporary,
        Ended::DevicesRefused(reasons) => {
            for reason in reasons {
                error!("{reason}");
            }
            Exit::Config
        }
        Ended::OutputClosed(reason) => {
            error!("standard output was closed: {reason}");
            Exit::Temporary
        }
        Ended::Panicked(panics) => {
            for (thread, message) in panics {
                error!(%thread, "panicked, which is a bug in Gantry: {message}");
            }
            Exit::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_must_mend_a_refused_device_and_time_may_mend_a_file() {
        assert_eq!(exit(&Ended::DevicesRefused(vec!["no".into()])), Exit::Config);
        assert_eq!(exit(&Ended::CamerasFailed(vec![("a".into(), "b".into())])), Exit::Temporary);
        assert_eq!(exit(&Ended::CamerasEnded), Exit::Ok);
        assert_eq!(exit(&Ended::Panicked(vec![("a".into(), "b".into())])), Exit::Internal);
    }
}
