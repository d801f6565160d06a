//! The config: the report of mistakes, the reference file, the examples, and what must never panic.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not foresee")]

mod bad;
mod load;
mod mistakes;
mod random;
mod reference;
mod support;
mod yaml;
