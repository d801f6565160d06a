//! What is at the other end, asked after a camera could not be opened.
//!
//! GStreamer says "Failed to connect. (Generic error)" for a name that does not exist, a port that nothing listens on
//! and a cable that is out alike. One plain connection tells them apart, so that the message can name the cure.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tracing::warn;

use crate::source::{Address, CameraConfig, Transport, local};

/// Tells, where the kernel gives less than the buffer that is asked for a camera's datagrams. It says so nowhere itself, and
/// what does not fit into it is lost.
pub(super) fn tell_small_buffer(config: &CameraConfig) {
    const LIMIT: &str = "net.core.rmem_max";
    if config.transport == Transport::Tcp || !matches!(config.address, Address::Rtsp(_)) {
        return;
    }
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u32>().ok());
    if let Some(limit) = limit.filter(|limit| *limit < config.udp_buffer) {
        let asked = config.udp_buffer;
        warn!(
            camera = %config.id,
            "the kernel gives its datagrams a buffer of {limit} bytes, and {asked} are asked for; what does not fit is lost; \
             `sysctl -w {LIMIT}={asked}` allows them, and a smaller `udp_buffer` ends this warning"
        );
    }
}

/// What answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The name is not known.
    NoSuchName,
    /// The machine is there, and nothing listens on the port.
    Refused,
    /// No way to the machine, in the system's words.
    Unreachable(String),
    /// Nothing answered in time.
    Silent,
    /// A web server.
    Web,
    /// An RTSP server.
    Rtsp,
    /// An RTSP server that wants a login, in one of these ways, as it names them.
    Login(Vec<Scheme>),
    /// Something accepts connections, and what it speaks is unknown.
    Connected,
}

/// The port of a camera's address.
pub(super) fn port(url: &url::Url) -> u16 {
    url.port().unwrap_or(if url.scheme() == "rtsps" { 322 } else { 554 })
}

/// Asks `host:port` what it speaks. Takes up to twice `limit`, and longer where the name server is slow.
pub(super) fn ask(host: &str, port: u16, limit: Duration) -> Answer {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let Some(address) = (bare, port).to_socket_addrs().ok().and_then(|mut addresses| addresses.next()) else {
        return Answer::NoSuchName;
    };
    let stream = match TcpStream::connect_timeout(&address, limit) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                ErrorKind::ConnectionRefused => Answer::Refused,
                ErrorKind::TimedOut | ErrorKind::WouldBlock => Answer::Silent,
                _ => Answer::Unreachable(error.to_string()),
            };
        }
    };
    let question = format!("OPTIONS rtsp://{host}:{port}/ RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    answer_to(&stream, question.as_bytes(), limit).map_or(Answer::Connected, |reply| recognise(&reply))
}

/// A way to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// The password itself.
    Basic,
    /// A hash of it by this algorithm; MD5 where none is named.
    Digest(String),
    /// Another one.
    Other(String),
}

impl Scheme {
    /// Whether GStreamer can do it.
    pub(super) fn is_known(&self) -> bool {
        match self {
            Self::Basic => true,
            Self::Digest(algorithm) => algorithm.eq_ignore_ascii_case("MD5"),
            Self::Other(_) => false,
        }
    }

    /// Of the value of a WWW-Authenticate header.
    fn read(header: &str) -> Self {
        let header = header.trim();
        let (name, parameters) = header.split_once(' ').unwrap_or((header, ""));
        if name.eq_ignore_ascii_case("basic") {
            return Self::Basic;
        }
        if !name.eq_ignore_ascii_case("digest") {
            return Self::Other(name.chars().take(40).flat_map(char::escape_debug).collect());
        }
        let algorithm = parameters.split(',').find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("algorithm").then(|| value.trim().trim_matches('"'))
        });
        Self::Digest(algorithm.unwrap_or("MD5").chars().take(40).flat_map(char::escape_debug).collect())
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic => f.write_str("Basic"),
            Self::Digest(algorithm) => write!(f, "Digest {algorithm}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// Asks an RTSP server in which ways one can log in to see what is at this address. Takes up to twice `limit`.
pub(super) fn ask_login(url: &url::Url, limit: Duration) -> Option<Answer> {
    let (host, port) = (url.host_str()?, port(url));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = (bare, port).to_socket_addrs().ok()?.next()?;
    let stream = TcpStream::connect_timeout(&address, limit).ok()?;
    let question = format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n");
    let reply = answer_to(&stream, question.as_bytes(), limit).ok()?;
    logins(&String::from_utf8_lossy(&reply))
}

fn logins(reply: &str) -> Option<Answer> {
    let mut lines = reply.lines();
    lines.next().filter(|status| status.starts_with("RTSP/") && status.contains(" 401"))?;
    let schemes = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("WWW-Authenticate").then(|| Scheme::read(value))
    });
    Some(Answer::Login(schemes.collect()))
}

fn answer_to(mut stream: &TcpStream, question: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(question)?;
    let mut reply = [0; 2048];
    let count = stream.read(&mut reply)?;
    Ok(reply[..count].to_vec())
}

fn recognise(reply: &[u8]) -> Answer {
    if reply.starts_with(b"RTSP/") {
        Answer::Rtsp
    } else if reply.starts_with(b"HTTP/") || local::is_web_page(reply) {
        Answer::Web
    } else {
        Answer::Connected
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn a_port_that_nothing_listens_on_refuses() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(ask("127.0.0.1", port, LIMIT), Answer::Refused);
        assert_eq!(ask("[::1]", port, LIMIT), ask("::1", port, LIMIT));
    }

    #[test]
    fn the_ways_to_log_in_are_read_off_the_refusal() {
        let reply = "RTSP/1.0 401 Unauthorized\r\nCSeq: 1\r\nWWW-Authenticate: Digest realm=\"a\", nonce=\"b\", algorithm=\"SHA-256\"\r\n\
                     www-authenticate:Digest realm=\"a\", nonce=\"b\"\r\nWWW-Authenticate: Basic realm=\"a\"\r\nWWW-Authenticate: Negotiate\r\n\r\n";
        let Some(Answer::Login(schemes)) = logins(reply) else { panic!("{:?}", logins(reply)) };
        let told: Vec<_> = schemes.iter().map(|scheme| (scheme.to_string(), scheme.is_known())).collect();
        let expected =
            [("Digest SHA-256", false), ("Digest MD5", true), ("Basic", true), ("Negotiate", false)];
        assert_eq!(told, expected.map(|(name, known)| (name.to_owned(), known)));
        assert_eq!(logins("RTSP/1.0 200 OK\r\nWWW-Authenticate: Basic\r\n\r\n"), None);
    }

    #[test]
    fn answers_are_recognised_by_their_first_bytes() {
        assert_eq!(recognise(b"RTSP/1.0 200 OK\r\n"), Answer::Rtsp);
        assert_eq!(recognise(b"HTTP/1.1 400 Bad Request\r\n"), Answer::Web);
        assert_eq!(recognise(b"\n <!DOCTYPE HTML PUBLIC"), Answer::Web);
        assert_eq!(recognise(b"SSH-2.0-OpenSSH"), Answer::Connected);
        assert_eq!(recognise(b""), Answer::Connected);
    }
}
