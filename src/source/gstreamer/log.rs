//! GStreamer's own log, as `GST_DEBUG` asks for it, without what is secret.
//!
//! From level 5 on GStreamer writes whole addresses, in messages also with backslashes in them, and cameras take passwords in
//! the query or the path. (User name and password it does not write where they are properties, nor the header that it makes
//! of them: so it was seen of 1.22 at level 9. What else might is kept out all the same.) So where `GST_DEBUG` is set, this
//! takes the place of the function that writes its log.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::secret;
use crate::source::{Address, CameraConfig};

/// What no line may show.
static SECRETS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What follows this in a line, in whatever case, is a login.
const HEADER: &[u8] = b"authorization";

/// Takes over GStreamer's log, once for the process, if it was asked for one.
pub(super) fn take_over() {
    static TAKEN: Once = Once::new();
    TAKEN.call_once(|| {
        let asked = ["GST_DEBUG", "GST_DEBUG_FILE"].map(|name| std::env::var(name).unwrap_or_default());
        if !asked[0].is_empty() {
            gst::log::remove_default_log_function();
            write_to(sink(&asked[1]));
        }
    });
}

/// Keeps a camera's secrets out of the log from now on.
pub(super) fn keep_secret(config: &CameraConfig) {
    let mut secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    secrets.extend(secrets_of(config));
    secrets.sort_unstable();
    secrets.dedup();
    // What is a part of another one comes after it.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
}

fn secrets_of(config: &CameraConfig) -> Vec<String> {
    let mut secrets = Vec::new();
    if let Some(password) = &config.password {
        let password = password.reveal();
        let user = config.username.as_deref().unwrap_or_default();
        secrets.push(password.to_owned());
        secrets.push(utf8_percent_encode(password, NON_ALPHANUMERIC).to_string());
        secrets.push(base64(format!("{user}:{password}").as_bytes()));
    }
    if let Address::Rtsp(url) = &config.address {
        let parts = secret::parts(url);
        let decoded = parts.iter().map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned());
        secrets.extend(decoded.collect::<Vec<_>>());
        secrets.extend(parts.into_iter().map(str::to_owned));
    }
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

fn sink(file: &str) -> Box<dyn Write + Send> {
    match file {
        "" => Box::new(io::stderr()),
        "-" => Box::new(io::stdout()),
        // GStreamer has made it anew.
        file => match File::options().append(true).create(true).open(file) {
            Ok(file) => Box::new(file),
            Err(_) => Box::new(io::stderr()),
        },
    }
}

fn write_to(sink: Box<dyn Write + Send>) {
    let (sink, begun) = (Mutex::new(sink), Instant::now());
    gst::log::add_log_function(move |category, level, file, function, line, object, message| {
        // Some of its own code comes here without having asked.
        if level > category.threshold() {
            return;
        }
        let at = begun.elapsed().as_secs_f64();
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let object = object.map(|object| format!("<{object}>")).unwrap_or_default();
        let text = message.get();
        let text = redacted(text.as_deref().map_or("", |text| text.as_str()));
        let file = file.rsplit('/').next().unwrap_or_default();
        let category = category.name();
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody could be told of a log that cannot be written.
        writeln!(
            sink,
            "{at:12.6} {thread} {} {category} {file}:{line}:{function}:{object} {text}",
            level.name()
        )
        .ok();
    });
}

/// A line without secrets.
fn redacted(text: &str) -> String {
    let secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    without(text, &secrets)
}

fn without(text: &str, secrets: &[String]) -> String {
    let mut text = secrets.iter().fold(text.to_owned(), |text, secret| secret::hide(&text, secret));
    let header = text.as_bytes().windows(HEADER.len()).position(|window| window.eq_ignore_ascii_case(HEADER));
    if let Some(at) = header {
        // The name is ASCII, so this is between two letters.
        text.truncate(at + HEADER.len());
        text.push_str(" …");
    }
    text
}

/// RFC 4648, as HTTP's basic scheme has it.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_usize, |word, byte| word << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = char::from(LETTERS[word >> (18 - 6 * place) & 0x3f]);
            text.push(if place <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::CameraId;
    use crate::secret::Secret;

    #[test]
    fn base64_is_as_its_standard_says() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in known {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn a_line_shows_no_form_of_a_cameras_secrets() {
        let config = CameraConfig {
            username: Some("viewer".into()),
            password: Some(Secret::new("p@ss/w".into())),
            ..CameraConfig::new(
                CameraId::new("press-1"),
                Address::Rtsp("rtsp://cam/user=a_password=hunter2?token=hunter%203#hunter4".parse().unwrap()),
            )
        };
        let secrets = secrets_of(&config);
        for (line, shown) in [
            ("set p@ss/w", "set …"),
            ("rtsp://viewer:p%40ss%2Fw@cam/1", "rtsp://viewer:…@cam/1"),
            ("it is dmlld2VyOnBAc3Mvdw==", "it is …"),
            ("rtsp://cam/user=a_password=hunter2/track1?x", "rtsp://cam/user=a_password=…/track1?x"),
            ("value hunter 3", "value hunter 3"),
            ("query token=hunter 3, hunter4", "query …, …"),
            (
                r"details=Connecting\ to\ rtsp://cam\?token\=hunter\%203",
                r"details=Connecting\ to\ rtsp://cam\?…",
            ),
            ("key: 'AUTHORIZATION', value: 'Digest response=\"1f\"'", "key: 'AUTHORIZATION …"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without(line, &secrets), shown);
        }
    }
}
