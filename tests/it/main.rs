//! Integration tests: one binary over real parts.
#![expect(unreachable_pub, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod backend;
mod broker;
mod postprocess;
mod preprocess;
mod proxy;
mod publish;
mod sinks;
