//! What stands here in a build without the feature `gstreamer`: a camera that needs GStreamer is refused by name.

use crate::source::video::VideoProbe;
use crate::source::{CameraConfig, Source, SourceError};

/// The source for an RTSP, USB or file address.
///
/// # Errors
/// Always [`SourceError::NoGstreamer`]: this build has no GStreamer.
pub fn open(config: &CameraConfig) -> Result<Box<dyn Source>, SourceError> {
    Err(SourceError::NoGstreamer { address: config.address.to_string() })
}

/// Nothing: this build has no GStreamer.
#[must_use]
pub fn probe() -> VideoProbe {
    let missing = "this build of Gantry has no GStreamer; build with the feature `gstreamer`".to_owned();
    VideoProbe { gstreamer: None, codecs: Vec::new(), missing: vec![missing] }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::frame::CameraId;
    use crate::source::Address;

    #[test]
    fn a_stream_is_refused_by_name_and_a_picture_is_not() {
        let config =
            |path: &str| CameraConfig::new(CameraId::new("press-1"), Address::File(PathBuf::from(path)));
        let error = crate::source::open(&config("/data/belt.mp4")).unwrap_err().to_string();
        assert!(
            error.starts_with("file:///data/belt.mp4 needs GStreamer, and this build has none"),
            "{error}"
        );
        assert!(crate::source::open(&config("/data/belt.png")).is_ok());
    }
}
