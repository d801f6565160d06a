//! GStreamer: opens and decodes everything that is a stream.
//!
//! `launch` says, as data, which elements a camera needs; `graph` builds them; `allocation`, `held` and `pool` have the video
//! decoder write into our memory; `tap` and `sample` turn what arrives at the appsink into frames; `decoder_probe` tells
//! when a picture's data entered the video decoder; `packets` sees its RTP packets before, `judge` says whether it is whole, with
//! what libav has to complain of (`complaints`); `rtsp`, `senders`, `rtp`, `turns`, `repeats` and `trust` are about RTSP cameras, and those
//! that break the rules; `usb` reads what modes a USB camera has; `describe` puts what a stream says of itself
//! into words; `log` keeps secrets out of GStreamer's own log; `stream` is one
//! connection from opening to closing; `fault` and `network` put GStreamer's errors into the words
//! of a line engineer. This is the only place of Gantry that knows GStreamer. Nothing of it needs more than 1.20.

#[cfg(feature = "gstreamer")]
mod allocation;
#[cfg(feature = "gstreamer")]
mod complaints;
#[cfg(feature = "gstreamer")]
mod decoder_probe;
#[cfg(feature = "gstreamer")]
mod describe;
#[cfg(not(feature = "gstreamer"))]
mod disabled;
#[cfg(feature = "gstreamer")]
mod fault;
#[cfg(feature = "gstreamer")]
mod graph;
#[cfg(feature = "gstreamer")]
mod held;
#[cfg(feature = "gstreamer")]
mod judge;
#[cfg(feature = "gstreamer")]
mod launch;
#[cfg(feature = "gstreamer")]
mod log;
#[cfg(feature = "gstreamer")]
mod network;
#[cfg(feature = "gstreamer")]
mod packets;
#[cfg(feature = "gstreamer")]
mod pool;
#[cfg(feature = "gstreamer")]
mod probe;
#[cfg(feature = "gstreamer")]
mod repeats;
#[cfg(feature = "gstreamer")]
mod rtp;
#[cfg(feature = "gstreamer")]
mod rtsp;
#[cfg(feature = "gstreamer")]
mod sample;
#[cfg(feature = "gstreamer")]
mod senders;
#[cfg(feature = "gstreamer")]
mod stream;
#[cfg(feature = "gstreamer")]
mod tap;
#[cfg(feature = "gstreamer")]
mod trust;
#[cfg(feature = "gstreamer")]
mod turns;
#[cfg(feature = "gstreamer")]
mod usb;

#[cfg(not(feature = "gstreamer"))]
pub use disabled::{open, probe};
#[cfg(feature = "gstreamer")]
pub use probe::probe;
#[cfg(feature = "gstreamer")]
pub use stream::open;
