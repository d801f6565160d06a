//! What is at the other end, asked after a camera could not be opened.
//!
//! GStreamer says "Failed to connect. (Generic error)" for a name that does not exist, a port that nothing listens on
//! and a cable that is out alike. One plain connection tells them apart, so that the message can name the cure.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::source::local;

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

fn answer_to(mut stream: &TcpStream, question: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(question)?;
    let mut reply = [0; 512];
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
    fn answers_are_recognised_by_their_first_bytes() {
        assert_eq!(recognise(b"RTSP/1.0 200 OK\r\n"), Answer::Rtsp);
        assert_eq!(recognise(b"HTTP/1.1 400 Bad Request\r\n"), Answer::Web);
        assert_eq!(recognise(b"\n <!DOCTYPE HTML PUBLIC"), Answer::Web);
        assert_eq!(recognise(b"SSH-2.0-OpenSSH"), Answer::Connected);
        assert_eq!(recognise(b""), Answer::Connected);
    }
}
