//! Integration tests: one binary over real parts.
#![expect(unreachable_pub, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod admin;
mod allocations;
mod architecture;
mod backend;
mod bad_input;
#[cfg(feature = "gstreamer")]
mod belt;
mod bench;
mod broker;
#[cfg(feature = "gstreamer")]
mod camera;
mod cli;
mod config;
mod detect;
mod drain;
mod examples;
mod golden;
#[cfg(feature = "gstreamer")]
mod live;
mod manifest;
mod model;
mod pipeline;
mod postprocess;
mod preprocess;
mod proxy;
mod publish;
mod quality;
mod realtime;
#[cfg(feature = "gstreamer")]
mod rig;
mod scheduler;
mod sinks;
mod source;
#[cfg_attr(not(feature = "gstreamer"), expect(dead_code, reason = "some helpers are for streams"))]
mod support;
mod systemd;
