//! Gantry watches a factory line through its cameras. Start reading here.
//!
//! # The map
//!
//! Data goes downstream, and so does reading:
//!
//! ```text
//! source ─▶ frame ─▶ scheduler ─▶ worker ─▶ (preprocess ▸ backend ▸ postprocess) ─▶ publish
//! ```
//!
//! | room | what is in it |
//! |---|---|
//! | [`frame`] | one decoded picture, its memory and its times; mailboxes and doorbells; the outlet into the data plane |
//! | [`source`] | cameras: what opens them, their states, when they are tried again |
//! | [`preprocess`] | letterbox geometry; picture planes to model tensor |
//! | [`backend`] | the wall around the runtimes that run models |
//! | [`postprocess`] | output tensors to detections |
//! | [`model`] | bundles, manifests, labels, hashes |
//! | [`scheduler`] | which frames run next and when a batch is sealed; pure |
//! | [`worker`] | one thread a device: pulls, preprocesses, runs, decodes, makes the event |
//! | [`publish`] | the wire contract and the sinks |
//! | [`config`] | the config file: as written, checked, typed |
//! | [`pipeline`] | the data plane on one page: every channel, every thread |
//! | [`control`] | commands, and the supervisor that executes them one at a time |
//! | [`daemon`] | the process's life: load, build, run, drain |
//! | [`cli`] | the command line |
//! | [`yaml`] | a leaf: a YAML file as a tree with places, and its mistakes; for config and manifests |
//! | [`memory`] | a leaf: memory that is made, touched and locked before a frame needs it |
//! | [`threads`], [`telemetry`], [`secret`] | leaves that every room may import |
//!
//! # Invariants
//!
//! 1. A frame never crosses to the tokio runtime; only encoded messages do.
//! 2. Every queue has a capacity, a policy for being full, and a count of what it drops.
//! 3. Every thread starts in [`threads`], every channel of the data plane is made in [`pipeline`].
//! 4. What a runtime returns lives and dies on its device's thread; the compiler enforces it.
//! 5. Deciders take `now`: batcher, back-off, camera state and pace read no clock.
//! 6. `unsafe` is only where `tests/it/architecture.rs` lists it; so are the imports between rooms.
//! 7. For every camera and model: offered = published + empty + dropped (by reason) + in flight.

pub mod backend;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod frame;
pub mod memory;
pub mod model;
pub mod pipeline;
pub mod postprocess;
pub mod preprocess;
pub mod publish;
pub mod scheduler;
pub mod secret;
pub mod source;
pub mod telemetry;
pub mod threads;
pub mod worker;
pub mod yaml;
