//! Single values: text to what a key takes, or what is wrong with it and what to write instead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::address::{Broker, CameraAddress, size};
use super::schema::Kind;
use crate::source::controls::ControlConfig;
use crate::threads::place::{NICES, PRIORITIES, Scheduling};
use crate::yaml::{Scalar, nearest, shown};

/// A topic segment's most bytes.
pub const SEGMENT_BYTES_MAX: usize = 64;

/// Longest text of any other kind, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// Text, name, choice or variable.
    Text(String),
    /// A whole number.
    Integer(u64),
    /// A number.
    Number(f64),
    /// A boolean.
    Boolean(bool),
    /// A time.
    Duration(Duration),
    /// A time; none for `off`.
    Limit(Option<Duration>),
    /// A path as written.
    Path(PathBuf),
    /// Width and height in pixels.
    Size(u32, u32),
    /// A control of a USB camera and its value.
    Control(ControlConfig),
    /// A camera's address.
    Address(CameraAddress),
    /// A broker's address.
    Broker(Broker),
    /// A model and, where given, its version.
    Model {
        /// Its name.
        name: String,
        /// Its version.
        version: Option<String>,
    },
    /// How a thread shares its CPUs.
    Scheduling(Scheduling),
    /// Where to listen; none for `off`.
    Listen(Option<SocketAddr>),
}

/// Reads one value.
///
/// # Errors
/// What is wrong with it and what to write instead; without the key, and without anything that may be a password.
pub fn parse(kind: &Kind, scalar: &Scalar) -> Result<Leaf, String> {
    let text = scalar.text.as_str();
    match kind {
        Kind::Text => plain_text(text).map(Leaf::Text),
        Kind::Segment => segment(text).map(Leaf::Text),
        Kind::Segments => segments(text).map(Leaf::Text),
        Kind::Path => plain_text(text).map(|path| Leaf::Path(path.into())),
        Kind::Variable => variable(text).map(Leaf::Text),
        Kind::Boolean => boolean(scalar).map(Leaf::Boolean),
        Kind::Choice(words) => choice(words, scalar).map(Leaf::Text),
        Kind::Integer(least, most) => integer(scalar, *least, *most).map(Leaf::Integer),
        Kind::Number(least, most) => number(scalar, *least, *most).map(Leaf::Number),
        Kind::Duration(least, most) => duration(scalar, *least, *most).map(Leaf::Duration),
        Kind::Size => size(text).map(|(width, height)| Leaf::Size(width, height)).ok_or_else(|| {
            format!("{} is no size; write width and height from 1 to 8192, as in 640x480", shown(text))
        }),
        Kind::Control => control(text).map(Leaf::Control),
        Kind::Limit(least, most) => limit(scalar, *least, *most).map(Leaf::Limit),
        Kind::Address => CameraAddress::parse(text).map(Leaf::Address),
        Kind::Broker => Broker::parse(text).map(Leaf::Broker),
        Kind::Model => model(text),
        Kind::Scheduling => scheduling(scalar).map(Leaf::Scheduling),
        Kind::Listen => listen(text).map(Leaf::Listen),
        Kind::Map(_) | Kind::List(_) => Err("a single value is written where a section is wanted".to_owned()),
    }
}

/// Makes a topic segment of any text, such as a host name: what is not allowed becomes `-`.
#[must_use]
pub fn clean_segment(text: &str) -> String {
    let allowed = |c: char| if c.is_control() || "/+#".contains(c) { '-' } else { c };
    let mut clean: String = text.trim().trim_start_matches('$').chars().map(allowed).collect();
    while clean.len() > SEGMENT_BYTES_MAX {
        clean.pop();
    }
    if clean.is_empty() { "node".to_owned() } else { clean }
}

/// A time in the config's form: the largest unit that makes it a whole number.
#[must_use]
pub fn duration_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    let units = [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000)];
    let whole = units.iter().find(|(_, nanos_each)| nanos > 0 && nanos.is_multiple_of(*nanos_each));
    match whole {
        Some((unit, nanos_each)) => format!("{}{unit}", nanos / nanos_each),
        None if nanos == 0 => "0ms".to_owned(),
        None => format!("{}us", nanos as f64 / 1000.0),
    }
}

fn control(text: &str) -> Result<ControlConfig, String> {
    let read = || {
        let (name, value) = text.split_once('=')?;
        let (name, value) = (name.trim(), value.trim().parse().ok()?);
        let is_name = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        (is_name && !name.is_empty()).then(|| ControlConfig { name: name.to_owned(), value })
    };
    read().ok_or_else(|| {
        format!(
            "{} is no control; write its name in lower case and a whole number, as in brightness=128",
            shown(text)
        )
    })
}

fn plain_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("is empty; write a value or remove the key".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("holds a line break or another control character; remove it".to_owned());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("has {} bytes; at most {TEXT_BYTES_MAX} are taken", text.len()));
    }
    Ok(text.to_owned())
}

fn segment(text: &str) -> Result<String, String> {
    let wrong = if text.trim().is_empty() {
        return Err("is empty; write a name such as press-1".to_owned());
    } else if text.chars().any(char::is_control) {
        "holds a control character"
    } else if text.contains(['/', '+', '#']) {
        "holds one of / + #"
    } else if text.starts_with('$') {
        "begins with $"
    } else if text.len() > SEGMENT_BYTES_MAX {
        "is longer than 64 bytes"
    } else {
        return Ok(text.to_owned());
    };
    // What is shown of an address leaves its password out, which its cleaned form would not.
    let cure = match shown(text) {
        same if same == text => clean_segment(text),
        _ => "a name such as press-1".to_owned(),
    };
    Err(format!("{} is no segment of an MQTT topic, because it {wrong}; write {cure}", shown(text)))
}

fn segments(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text.ends_with('/') || text.contains("//") {
        let clean: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
        let cure = if clean.is_empty() { "gantry".to_owned() } else { clean.join("/") };
        return Err(format!("a segment between the slashes is empty; write {cure}"));
    }
    text.split('/').try_for_each(|part| segment(part).map(drop))?;
    if text.len() > 256 {
        return Err(format!("has {} bytes; at most 256 are taken", text.len()));
    }
    Ok(text.to_owned())
}

fn variable(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if text.is_empty() || !text.chars().all(good) || text.starts_with(|c: char| c.is_ascii_digit()) {
        // Its text is not shown: it may be the password itself.
        return Err("is no name of an environment variable (letters, digits and _ only); \
                    write the variable's name, not the password"
            .to_owned());
    }
    Ok(text.to_owned())
}

fn boolean(scalar: &Scalar) -> Result<bool, String> {
    let lower = scalar.text.to_ascii_lowercase();
    match (scalar.text.as_str(), scalar.quoted) {
        ("true" | "True" | "TRUE", false) => Ok(true),
        ("false" | "False" | "FALSE", false) => Ok(false),
        _ => {
            let cure = match lower.as_str() {
                "true" | "yes" | "on" | "1" => "write true",
                "false" | "no" | "off" | "0" => "write false",
                _ => "write true or false",
            };
            Err(format!("{scalar} is neither true nor false; {cure}"))
        }
    }
}

fn choice(words: &[&str], scalar: &Scalar) -> Result<String, String> {
    let text = scalar.text.as_str();
    if words.contains(&text) {
        return Ok(text.to_owned());
    }
    let list = words.join(", ");
    match nearest(text, words.iter().copied()) {
        Some(near) => Err(format!("{scalar} is none of {list}; did you mean {near}?")),
        None => Err(format!("{scalar} is none of {list}; write one of them")),
    }
}

fn integer(scalar: &Scalar, least: u64, most: u64) -> Result<u64, String> {
    let text = scalar.text.as_str();
    let cure = format!("write a whole number from {least} to {most}");
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{scalar} is no whole number; {cure}"));
    }
    if scalar.quoted {
        return Err(format!("{scalar} is text, because it is quoted; write {text} without quotes"));
    }
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("{scalar} is out of range; {cure}"))
}

fn number(scalar: &Scalar, least: f64, most: f64) -> Result<f64, String> {
    let text = scalar.text.as_str();
    let cure = format!("write a number from {least} to {most}");
    let good = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let value = if text.bytes().all(good) { text.parse::<f64>().ok() } else { None };
    let Some(value) = value else {
        let infinite = [".inf", "+.inf", "-.inf", ".nan"].contains(&text.to_ascii_lowercase().as_str());
        let wrong = if infinite && !scalar.quoted { "is out of range" } else { "is no number" };
        return Err(format!("{scalar} {wrong}; {cure}"));
    };
    if scalar.quoted {
        return Err(format!("{scalar} is text, because it is quoted; write {text} without quotes"));
    }
    if !(least..=most).contains(&value) {
        return Err(format!("{scalar} is out of range; {cure}"));
    }
    Ok(value)
}

fn duration(scalar: &Scalar, least: Duration, most: Duration) -> Result<Duration, String> {
    let text = scalar.text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let range = format!("write a time from {} to {}", duration_text(least), duration_text(most));
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let well_formed = unsigned.starts_with(|c: char| c.is_ascii_digit()) && !unsigned.contains(['-', '+']);
    let Some(value) = digits.parse::<f64>().ok().filter(|value| well_formed && value.is_finite()) else {
        return Err(format!("{scalar} is no time; {range}"));
    };
    let unit = unit.trim_start();
    if unit.starts_with(',') {
        return Err(format!("{scalar} is no time; {range}, with a point as in 1.5s"));
    }
    if unit.is_empty() {
        return Err(format!(
            "{scalar} has no unit; {}",
            with_unit(digits, value, least, most).unwrap_or(range)
        ));
    }
    let Some(nanos_each) = nanos_each(unit) else {
        return Err(format!(
            "{scalar} has no unit that is known; the units are us, ms, s, m, h, as in 1.5s or 80ms"
        ));
    };
    if text.len() != digits.len() + unit.len() {
        return Err(format!("{scalar} has a space before its unit; write {digits}{unit}"));
    }
    let seconds = value * nanos_each / 1e9;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| (least..=most).contains(time));
    time.ok_or_else(|| format!("{scalar} is out of range; {range}"))
}

fn limit(scalar: &Scalar, least: Duration, most: Duration) -> Result<Option<Duration>, String> {
    if scalar.text.trim() == "off" {
        return Ok(None);
    }
    duration(scalar, least, most).map(Some).map_err(|wrong| wrong + ", or off")
}

fn nanos_each(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

/// What a number without a unit may have meant: seconds where those are in range, and always milliseconds if in range.
fn with_unit(digits: &str, value: f64, least: Duration, most: Duration) -> Option<String> {
    let fits =
        |seconds: f64| Duration::try_from_secs_f64(seconds).is_ok_and(|time| (least..=most).contains(&time));
    let millis = value * 1000.0;
    match (fits(value), fits(value / 1000.0)) {
        // Where a number makes sense in either unit, both readings are shown.
        (true, true) if value > 0.0 => Some(format!("write {digits}s or {digits}ms")),
        (true, false) if millis.fract() == 0.0 => Some(format!("write {digits}s or {millis}ms")),
        (true, _) => Some(format!("write {digits}s")),
        (false, true) => Some(format!("write {digits}ms")),
        (false, false) => None,
    }
}

fn model(text: &str) -> Result<Leaf, String> {
    if text.contains("://") {
        return Err("an address is written where a model is wanted; write its name, as line-parts".to_owned());
    }
    let (name, version) = match text.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    let name = segment(name)?;
    if let Some(version) = version
        && semver::Version::parse(version).is_err()
    {
        return Err(format!(
            "{} is no version; write {name} or, for a version, {name}@1.0.0",
            shown(version)
        ));
    }
    Ok(Leaf::Model { name, version: version.map(str::to_owned) })
}

fn scheduling(scalar: &Scalar) -> Result<Scheduling, String> {
    const CURE: &str = "write normal, nice 5, fifo 20 or rr 20";
    let mut words = scalar.text.split_ascii_whitespace();
    let (name, number) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err(format!("{scalar} is no scheduling; {CURE}"));
    }
    if name == "normal" && number.is_none() {
        return Ok(Scheduling::Normal);
    }
    let out_of_range = |least: i32, most: i32| {
        let given = if number.is_none() { "has no number" } else { "has a number out of range" };
        format!("{scalar} {given}; write {name} with a whole number from {least} to {most}")
    };
    match name {
        "nice" => {
            let nice = number.and_then(|number| number.parse().ok()).filter(|nice| NICES.contains(nice));
            let wrong = || out_of_range((*NICES.start()).into(), (*NICES.end()).into());
            nice.map(Scheduling::Nice).ok_or_else(wrong)
        }
        "fifo" | "rr" => {
            let priority = number.and_then(|number| number.parse().ok());
            let priority: Option<u8> = priority.filter(|priority| PRIORITIES.contains(priority));
            let wrong = || out_of_range((*PRIORITIES.start()).into(), (*PRIORITIES.end()).into());
            let policy = if name == "fifo" { Scheduling::Fifo } else { Scheduling::RoundRobin };
            priority.map(policy).ok_or_else(wrong)
        }
        _ => Err(match nearest(name, ["normal", "nice", "fifo", "rr"].into_iter()) {
            Some(near) => format!("{scalar} is no scheduling; did you mean {near}? {}", capital(CURE)),
            None => format!("{scalar} is no scheduling; {CURE}"),
        }),
    }
}

/// The sentence with a capital letter, for the one after a question.
fn capital(sentence: &str) -> String {
    sentence[..1].to_uppercase() + &sentence[1..]
}

fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    let wrong = match text.parse() {
        Ok(address) => return Ok(Some(address)),
        Err(_) => format!("{} is no address and port", shown(text)),
    };
    let bare = text.rsplit("://").next().unwrap_or(text).trim_end_matches('/');
    let (host, port) = bare.rsplit_once(':').unwrap_or(("", bare));
    let cure = match (host, port.parse::<u16>()) {
        (_, Err(_)) => "127.0.0.1:9464".to_owned(),
        ("localhost", Ok(port)) => format!("127.0.0.1:{port}"),
        ("" | "*", Ok(port)) => format!("127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for all"),
        (host, Ok(port)) if host.parse::<std::net::IpAddr>().is_ok() => {
            // An IPv6 address without its brackets, or an address with a scheme before it.
            if host.contains(':') { format!("'[{host}]:{port}'") } else { format!("{host}:{port}") }
        }
        (_, Ok(port)) => format!("an IP address of this machine in place of the name, as 127.0.0.1:{port}"),
    };
    Err(format!("{wrong}; write {cure}, or off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_host_name_becomes_a_topic_segment() {
        let long = "ü".repeat(40);
        for (name, clean) in [
            ("line-7.local", "line-7.local"),
            ("a/b+c#d\n", "a-b-c-d"),
            ("$SYS", "SYS"),
            ("", "node"),
            ("$", "node"),
        ] {
            assert_eq!(clean_segment(name), clean);
        }
        assert_eq!(clean_segment(&long), "ü".repeat(32), "64 bytes, and no half character");
        assert!(segment(&clean_segment(&long)).is_ok());
    }

    #[test]
    fn a_scheduling_is_read_as_it_is_printed_or_refused_with_what_to_write() {
        let read = |text: &str| scheduling(&Scalar { text: text.to_owned(), quoted: false });
        for text in ["normal", "nice -20", "nice 19", "fifo 1", "rr 98"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for (text, message) in [
            ("fifo", "fifo has no number; write fifo with a whole number from 1 to 98"),
            ("rr 99", "rr 99 has a number out of range; write rr with a whole number from 1 to 98"),
            ("nice 20", "nice 20 has a number out of range; write nice with a whole number from -20 to 19"),
            ("fifo 5 5", "fifo 5 5 is no scheduling; write normal, nice 5, fifo 20 or rr 20"),
            ("FIFO 5", "FIFO 5 is no scheduling; did you mean fifo? Write normal, nice 5, fifo 20 or rr 20"),
            ("20", "20 is no scheduling; write normal, nice 5, fifo 20 or rr 20"),
            (
                "normal 1",
                "normal 1 is no scheduling; did you mean normal? Write normal, nice 5, fifo 20 or rr 20",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), message);
        }
    }

    #[test]
    fn a_time_is_read_as_it_is_printed() {
        let (least, most) = (Duration::ZERO, Duration::from_secs(100_000));
        for (text, micros) in [
            ("0ms", 0),
            ("1us", 1),
            ("1500us", 1500),
            ("80ms", 80_000),
            ("90s", 90_000_000),
            ("10m", 600_000_000),
            ("2h", 7_200_000_000),
        ] {
            let scalar = Scalar { text: text.to_owned(), quoted: false };
            let time = Duration::from_micros(micros);
            assert_eq!(duration(&scalar, least, most), Ok(time));
            assert_eq!(duration_text(time), text);
        }
        let limit = |text: &str| {
            let scalar = Scalar { text: text.to_owned(), quoted: false };
            limit(&scalar, Duration::from_secs(2), Duration::from_secs(9))
        };
        assert_eq!((limit("off"), limit("2s")), (Ok(None), Ok(Some(Duration::from_secs(2)))));
        assert_eq!(limit("1s").unwrap_err(), "1s is out of range; write a time from 2s to 9s, or off");
        let half = Scalar { text: "1.5s".to_owned(), quoted: true };
        assert_eq!(duration(&half, least, most), Ok(Duration::from_millis(1500)));
    }
}
