//! What a machine can decode, as a report.

use std::fmt;

use serde::Serialize;

/// GStreamer and its video decoders on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VideoProbe {
    /// GStreamer's version; none when it cannot be used, or this build has none.
    pub gstreamer: Option<String>,
    /// What it can decode.
    pub codecs: Vec<CodecFound>,
    /// What is missing, each with its cure.
    pub missing: Vec<String>,
}

/// The decoders of one codec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CodecFound {
    /// The codec.
    pub codec: &'static str,
    /// GStreamer's elements, in the order in which they are tried; the first is used.
    pub decoders: Vec<String>,
}

impl fmt::Display for VideoProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.gstreamer {
            Some(version) => write!(f, "  GStreamer {version}")?,
            None => write!(f, "  no GStreamer: only test patterns, pictures and raw frames can be read")?,
        }
        for CodecFound { codec, decoders } in &self.codecs {
            match decoders.as_slice() {
                [] => write!(f, "\n  {codec}: no decoder")?,
                decoders => write!(f, "\n  {codec}: {}", decoders.join(", "))?,
            }
        }
        for missing in &self.missing {
            write!(f, "\n  missing: {missing}")?;
        }
        Ok(())
    }
}
