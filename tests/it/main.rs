//! Integration tests: one binary over real parts.
#![expect(unreachable_pub, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod backend;
mod postprocess;
mod preprocess;
