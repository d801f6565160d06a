//! What can be told about a local file more exactly than by the library that would open it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::telemetry::FailureCause;

/// What is said of a USB camera that is not there.
pub(super) const NO_SUCH_DEVICE: &str =
    "there is no such device; is the camera plugged in? `ls /dev/v4l/by-id` shows those that are";

/// Enough of a file's beginning to know a web page.
const HEAD: u64 = 512;

/// Looks whether a file can be read and holds anything but a web page (what a download behind a log-in page leaves).
///
/// # Errors
/// Why it is no video or picture, in words.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(|error| trouble(&error))?;
    file.take(HEAD).read_to_end(&mut head).map_err(|error| trouble(&error))?;
    if head.is_empty() {
        return Err("it is empty (0 bytes); was it copied or recorded to its end?".to_owned());
    }
    if is_web_page(&head) {
        return Err(
            "it is an HTML page, not a video or picture; was it downloaded without logging in?".to_owned()
        );
    }
    Ok(())
}

/// Looks whether a camera's device is there and may be used.
///
/// # Errors
/// Why it cannot be used.
#[cfg_attr(not(feature = "gstreamer"), expect(dead_code, reason = "only GStreamer opens devices"))]
pub(super) fn check_device(path: &Path) -> Result<(), (FailureCause, String)> {
    let (cause, reason) = match File::options().read(true).write(true).open(path) {
        Ok(device) => match device.metadata() {
            Ok(found) if !found.file_type().is_char_device() => {
                (FailureCause::Unusable, "it is a file, not a device")
            }
            _ => return Ok(()),
        },
        Err(error) => match error.kind() {
            ErrorKind::NotFound => (FailureCause::Unreachable, NO_SUCH_DEVICE),
            ErrorKind::PermissionDenied => (
                FailureCause::Local,
                "there is no permission to use it; add the user that runs Gantry to the group `video`",
            ),
            // Such as a camera that is used by another program. GStreamer says it in its own way.
            _ => return Ok(()),
        },
    };
    Err((cause, reason.to_owned()))
}

/// Whether these first bytes are a web page's.
pub(super) fn is_web_page(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<body"].iter().any(|start| text.starts_with(start))
}

/// Why a file cannot be read, in words.
pub(super) fn trouble(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::IsADirectory => "it is a folder, not a file".to_owned(),
        ErrorKind::PermissionDenied => "there is no permission to read it".to_owned(),
        _ => format!("it cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn checked(content: &[u8]) -> Result<(), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        check(file.path())
    }

    #[test]
    fn files_that_hold_nothing_to_see_are_told_apart() {
        assert_eq!(checked(b"YUV4MPEG2 W1 H1"), Ok(()));
        assert!(checked(b"").unwrap_err().contains("0 bytes"));
        assert!(checked(b"\xef\xbb\xbf\n<!DOCTYPE html><html>").unwrap_err().contains("HTML page"));
        assert_eq!(check(Path::new("/nowhere/a.mp4")), Err("there is no such file".to_owned()));
        assert_eq!(check(Path::new("/")), Err("it is a folder, not a file".to_owned()));
    }
}
