//! Addresses of cameras and brokers.
//!
//! User name and password may stand in an address; they are taken out of it. What an error shows of an address therefore
//! goes through [`redacted`], since a mistyped address may hold a password too.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use url::Url;

use crate::frame::PixelFormat;
use crate::secret::{self, Secret};
use crate::source::{Address, Rate, TestPattern};
use crate::yaml::{concealed, nearest};

/// A camera's address with what stood in it besides.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraAddress {
    /// Where it is; a file's path is as written.
    pub address: Address,
    /// User name that stood in it.
    pub username: Option<String>,
    /// Password that stood in it.
    pub password: Option<Secret>,
}

/// A broker's address with what stood in it besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Broker {
    /// Host name or address; an IPv6 address in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether it is `mqtts://`.
    pub tls: bool,
    /// User name that stood in it.
    pub username: Option<String>,
    /// Password that stood in it.
    pub password: Option<Secret>,
}

/// The forms of a camera's address, for errors.
const FORMS: &str =
    "rtsp://host/path, rtsps://host/path, v4l2:///dev/video0, file://video.mp4 or test://pattern";

const CAMERA_SCHEMES: [&str; 5] = ["rtsp", "rtsps", "v4l2", "file", "test"];
const BROKER_SCHEMES: [&str; 2] = ["mqtt", "mqtts"];

/// The endings by which a bare name is known to be a file and no mistyped address.
const FILE_ENDINGS: [&str; 16] = [
    "mp4", "mkv", "avi", "mov", "webm", "ts", "mpg", "mpeg", "m4v", "mjpg", "h264", "h265", "png", "jpg",
    "jpeg", "y4m",
];

/// What a path inside an address cannot hold as it is.
const PATH_ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

impl CameraAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it and what to write instead, without user name and password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return bare_path(text).map(|path| Self::without_user(Address::File(path)));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "rtsp" | "rtsps" => {
                let (url, user) = network_url(text, "rtsp://10.0.0.7/stream1")?;
                Ok(Self { address: Address::Rtsp(url), username: user.name, password: user.password })
            }
            "v4l2" => v4l2_path(rest).map(|path| Self::without_user(Address::V4l2(path))),
            "file" => file_path(rest).map(|path| Self::without_user(Address::File(path))),
            "test" => test_pattern(rest).map(|pattern| Self::without_user(Address::Test(pattern))),
            _ => Err(unknown_scheme(scheme, &CAMERA_SCHEMES, FORMS)),
        }
    }

    fn without_user(address: Address) -> Self {
        Self { address, username: None, password: None }
    }
}

impl Broker {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it and what to write instead, without user name and password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let forms = "mqtt://host:1883 or mqtts://host:8883";
        let Some((scheme, _)) = text.split_once("://") else {
            return Err(format!("{} is no address of a broker; write {forms}", redacted(text)));
        };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(unknown_scheme(scheme, &BROKER_SCHEMES, forms)),
        };
        let (url, user) = network_url(text, "mqtts://broker:8883")?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            let shown = redacted(text);
            return Err(format!(
                "{shown} goes on after host and port; write {forms} (topics begin with `prefix`)"
            ));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port().unwrap_or(if tls { 8883 } else { 1883 });
        Ok(Self { host, port, tls, username: user.name, password: user.password })
    }
}

/// An address as an error may show it: nothing up to the last `@` and nothing after `?`.
#[must_use]
pub fn redacted(text: &str) -> String {
    let shown: String = concealed(text).chars().flat_map(char::escape_debug).collect();
    if shown.chars().count() > 120 { shown.chars().take(120).chain(['…']).collect() } else { shown }
}

/// An RTSP address without what may be a password in its path or query; none when there is no such thing in it. Where a
/// value was, `…` is.
#[must_use]
pub fn without_secrets(url: &Url) -> Option<String> {
    if let Some(at) = secret::in_path(url.path()) {
        let end = url.as_str().find(url.path()).unwrap_or_default() + at;
        return Some(format!("{}…", &url.as_str()[..end]));
    }
    let without = |parameter: &str| {
        let at = parameter.find(['=', ':']).map_or(parameter.len(), |at| at + 1);
        let name = percent_decode_str(&parameter[..at]).decode_utf8_lossy().to_ascii_lowercase();
        let is_secret = secret::NAMES.iter().any(|secret| name.contains(secret));
        is_secret.then(|| format!("{}…", &parameter[..at]))
    };
    let parameters: Vec<&str> = url.query()?.split('&').collect();
    parameters.iter().copied().find_map(without)?;
    let shown =
        parameters.into_iter().map(|parameter| without(parameter).unwrap_or_else(|| parameter.to_owned()));
    // What follows a # goes too: it is the rest of a password that holds one.
    let before = url.as_str().split('?').next().unwrap_or_default();
    Some(format!("{before}?{}", shown.collect::<Vec<_>>().join("&")))
}

/// A file's address, as the config takes it.
#[must_use]
pub fn file_text(path: &Path) -> String {
    format!("file://{}", percent_encode(path.as_os_str().as_bytes(), PATH_ESCAPED))
}

/// A camera's address, as the config takes it.
#[must_use]
pub fn address_text(address: &Address) -> String {
    match address {
        Address::Rtsp(url) => url.to_string(),
        Address::V4l2(path) => {
            format!("v4l2://{}", percent_encode(path.as_os_str().as_bytes(), PATH_ESCAPED))
        }
        Address::File(path) => file_text(path),
        Address::Test(test) => {
            let frames = test.frames.map(|frames| format!("&frames={frames}")).unwrap_or_default();
            let (width, height, rate, format) = (test.width, test.height, test.rate, test.format.name());
            format!("test://pattern?size={width}x{height}&rate={rate}{frames}&format={format}")
        }
    }
}

struct User {
    name: Option<String>,
    password: Option<Secret>,
}

/// An address with host and perhaps port, without the user name and password that stood in it.
fn network_url(text: &str, example: &str) -> Result<(Url, User), String> {
    let shown = redacted(text);
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!(
            "{shown} holds a space; write an address such as {example}, with %20 for a space"
        ));
    }
    let mut url = Url::parse(text).map_err(|error| match error {
        url::ParseError::InvalidPort => bad_port(&shown),
        url::ParseError::EmptyHost => no_host(&shown, example),
        error => format!("{shown} is no address: {error}; write one such as {example}"),
    })?;
    let host = url.host_str().unwrap_or_default();
    if host.is_empty() {
        return Err(no_host(&shown, example));
    }
    // These schemes take any text as a host; what no name or number can be is found as for a web address.
    let bad_host = |why: &str| format!("{shown} has a bad host: {why}; write an address such as {example}");
    match url::Host::parse(host).map_err(|error| bad_host(&error.to_string()))? {
        url::Host::Ipv4(address) if address.to_string() != host => {
            return Err(bad_host("an IPv4 address has four numbers from 0 to 255"));
        }
        url::Host::Domain(name) if name.trim_end_matches('.').split('.').any(str::is_empty) => {
            return Err(bad_host("nothing stands between two of its points"));
        }
        _ => {}
    }
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    if url.port() == Some(0) || authority.is_some_and(|authority| authority.ends_with(':')) {
        return Err(bad_port(&shown));
    }
    let user = take_user(&mut url).ok_or_else(|| {
        format!("user name or password in {shown} is not UTF-8 after its % escapes; write them under username and password_file")
    })?;
    Ok((url, user))
}

fn take_user(url: &mut Url) -> Option<User> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned());
    let name = decode(url.username())?;
    let password = url.password().map(decode);
    let password = match password {
        Some(password) => Some(Secret::new(password?)),
        None => None,
    };
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(User { name: Some(name).filter(|name| !name.is_empty()), password })
}

fn bad_port(shown: &str) -> String {
    format!("{shown} has a bad port; write a number from 1 to 65535, or leave it out for the usual port")
}

fn no_host(shown: &str, example: &str) -> String {
    format!("{shown} has no host; write an address such as {example}")
}

fn unknown_scheme(scheme: &str, known: &[&str], forms: &str) -> String {
    let shown: String = redacted(scheme).chars().take(30).collect();
    match nearest(scheme, known.iter().copied()) {
        Some(near) => format!("the scheme {shown}:// is unknown; did you mean {near}://?"),
        None => format!("the scheme {shown}:// is unknown; write {forms}"),
    }
}

/// A path without a scheme, told from a mistyped address by how it begins or ends.
fn bare_path(text: &str) -> Result<PathBuf, String> {
    let ending = text.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    let begins = ["/", "./", "../"].iter().any(|start| text.starts_with(start));
    let ends = FILE_ENDINGS.contains(&ending.as_str());
    let odd = text.contains("//") || text.contains(['@', '?']) || text.chars().any(char::is_control);
    if !odd && (begins || (ends && !text.contains(':'))) {
        return Ok(PathBuf::from(text));
    }
    if text.trim().is_empty() {
        return Err(format!("is empty; write {FORMS}"));
    }
    let shown = redacted(text);
    let scheme = text.split([':', '/']).next().unwrap_or_default();
    match nearest(scheme, CAMERA_SCHEMES.into_iter()).filter(|_| text.contains([':', '/'])) {
        Some(near) => Err(format!("{shown} is no address; after {near} comes ://, as in {FORMS}")),
        None => Err(format!("{shown} is no address; write {FORMS}, or a path that begins with / or ./")),
    }
}

fn file_path(rest: &str) -> Result<PathBuf, String> {
    let bytes: Vec<u8> = percent_decode_str(rest).collect();
    if bytes.is_empty() || bytes.contains(&0) || bytes.ends_with(b"/") {
        let shown = redacted(rest);
        return Err(format!(
            "file://{shown} names no file; write file:///absolute/path or file://path/beside/the/config"
        ));
    }
    Ok(OsString::from_vec(bytes).into())
}

fn v4l2_path(rest: &str) -> Result<PathBuf, String> {
    let bytes: Vec<u8> = percent_decode_str(rest).collect();
    if !bytes.starts_with(b"/") || bytes.contains(&0) || bytes.ends_with(b"/") {
        let shown = redacted(rest);
        let cure = if rest.starts_with("dev/") {
            format!("v4l2:///{shown}")
        } else {
            "v4l2:///dev/video0".to_owned()
        };
        return Err(format!("v4l2://{shown} is no absolute path of a device; write {cure}"));
    }
    Ok(OsString::from_vec(bytes).into())
}

fn test_pattern(rest: &str) -> Result<TestPattern, String> {
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    if name.trim_end_matches('/') != "pattern" {
        return Err(format!("test://{} is unknown; write test://pattern", redacted(name)));
    }
    let mut pattern = TestPattern {
        width: 640,
        height: 480,
        rate: Rate::PerSecond(25.0),
        frames: None,
        format: PixelFormat::Nv12,
    };
    let mut given: Vec<&str> = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if given.contains(&name) {
            return Err(format!("the parameter {name} is given twice; remove one"));
        }
        given.push(name);
        set_parameter(&mut pattern, name, value)?;
    }
    Ok(pattern)
}

/// A rate as an address has it: frames a second, or `max`.
#[must_use]
pub fn rate(text: &str) -> Option<Rate> {
    if text == "max" {
        return Some(Rate::Max);
    }
    text.parse().ok().filter(|rate| (0.01..=1000.0).contains(rate)).map(Rate::PerSecond)
}

/// A size as an address has it: `640x480`.
#[must_use]
pub fn size(text: &str) -> Option<(u32, u32)> {
    let side = |text: &str| text.parse().ok().filter(|side| (1..=8192).contains(side));
    let (width, height) = text.split_once('x')?;
    Some((side(width)?, side(height)?))
}

fn set_parameter(pattern: &mut TestPattern, name: &str, value: &str) -> Result<(), String> {
    let wrong = |wanted: &str| {
        let shown: String = value.chars().take(60).flat_map(char::escape_debug).collect();
        format!("the parameter {name} is {shown}; write {wanted}")
    };
    match name {
        "size" => {
            (pattern.width, pattern.height) =
                size(value).ok_or_else(|| wrong("width and height from 1 to 8192, as in size=640x480"))?;
        }
        "rate" => {
            pattern.rate = rate(value)
                .ok_or_else(|| wrong("frames a second from 0.01 to 1000, as in rate=25, or rate=max"))?;
        }
        "frames" => {
            let frames = value.parse().ok().filter(|frames| *frames > 0);
            pattern.frames =
                Some(frames.ok_or_else(|| wrong("a number of frames from 1, as in frames=100"))?);
        }
        "format" => {
            let names = PixelFormat::ALL.map(PixelFormat::name);
            pattern.format = PixelFormat::from_name(value)
                .ok_or_else(|| wrong(&format!("one of {}", names.join(", "))))?;
        }
        _ => {
            let known = ["size", "rate", "frames", "format"];
            let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
            return Err(match nearest(name, known.into_iter()) {
                Some(near) => format!("the parameter {shown} is unknown; did you mean {near}?"),
                None => format!("the parameter {shown} is unknown; known are {}", known.join(", ")),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_a_password() {
        for (text, shown) in [
            ("rtsp://u:p@h/a", "rtsp://…@h/a"),
            ("rtsp://u:p@ss/w?rd@h/a", "rtsp://…@h/a"),
            ("u:p@h", "…@h"),
            ("http://h/a?user=u&password=p", "http://h/a?…"),
            ("rtsp://h/a", "rtsp://h/a"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn what_may_be_a_password_is_taken_out_of_a_query_and_nothing_else() {
        let without = |text: &str| without_secrets(&text.parse().unwrap());
        for (text, shown) in [
            ("rtsp://h/a?user=u&password=p&channel=1", "rtsp://h/a?user=u&password=…&channel=1"),
            ("rtsp://h/a?PassWd=p#q", "rtsp://h/a?PassWd=…"),
            ("rtsp://h/a?b&user_pwd=p=q&accessToken=r", "rtsp://h/a?b&user_pwd=…&accessToken=…"),
            ("rtsp://h/a?p%61ssword:p", "rtsp://h/a?p%61ssword:…"),
        ] {
            let printed = without(text).unwrap();
            assert_eq!(printed, shown);
            let again = CameraAddress::parse(&printed).expect("what is printed is an address");
            let Address::Rtsp(url) = again.address else { panic!("{printed}") };
            assert_eq!(without_secrets(&url), Some(printed), "and stays what it is");
        }
        let in_path = without("rtsp://h/user=u_password=p_channel=1?password=q").unwrap();
        assert_eq!(in_path, "rtsp://h/user=u_password=…");
        assert!(CameraAddress::parse(&in_path).is_ok(), "what is printed is an address");
        for text in ["rtsp://h/a", "rtsp://h/a?profile=2&channel=1", "rtsp://h/password/1"] {
            assert_eq!(without(text), None);
        }
    }

    #[test]
    fn what_is_printed_of_an_address_is_read_as_the_same_address() {
        for text in [
            "rtsp://10.0.0.7:8554/stream1?channel=1",
            "rtsps://press.local/a",
            "v4l2:///dev/v4l/by-id/usb-50%25",
            "file:///a b%25.mp4",
            "test://pattern?size=1x1&rate=0.5&frames=3&format=GRAY8",
            "test://pattern?rate=max",
        ] {
            let address = CameraAddress::parse(text).unwrap();
            assert_eq!(CameraAddress::parse(&address_text(&address.address)), Ok(address));
        }
    }

    #[test]
    fn user_name_and_password_are_taken_out_and_decoded() {
        let camera = CameraAddress::parse("rtsp://us%65r:p%40ss@10.0.0.7/a").unwrap();
        assert_eq!(
            (camera.username.as_deref(), camera.password),
            (Some("user"), Some(Secret::new("p@ss".into())))
        );
        assert_eq!(camera.address.to_string(), "rtsp://10.0.0.7/a");
        let broker = Broker::parse("mqtts://user@[::1]").unwrap();
        assert_eq!((broker.host.as_str(), broker.port, broker.tls), ("[::1]", 8883, true));
        assert_eq!((broker.username.as_deref(), broker.password), (Some("user"), None));
    }
}
