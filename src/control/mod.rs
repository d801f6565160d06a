//! What an operator can ask of a running daemon, and who does it.
//!
//! Signals (later also MQTT) become a [`Command`], and HTTP requests an [`admin::Question`]; the [`supervisor`] does one at
//! a time on the main thread, which also watches the [`Board`](crate::pipeline::Board), tells systemd and publishes states
//! and health.

pub mod admin;
pub mod notify;
pub mod report;
pub mod summary;
pub mod supervisor;

/// One thing that an operator can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Finish what is inside, say goodbye, end. From SIGTERM and SIGINT.
    Stop,
    /// Write all states and counters to the log. From SIGUSR1.
    Dump,
}
