//! Which elements a camera needs, and with which properties: pure data, printed as `gst-launch-1.0` would read it.

use std::fmt;
use std::path::PathBuf;

use crate::frame::PixelFormat;
use crate::frame::clock::CaptureClock;
use crate::secret::Secret;
use crate::source::{self, Address, CameraConfig, SourceError, Transport};
use crate::telemetry::FailureCause;

/// How long the jitter buffer waits for a packet that is missing. Packets that come in order pass at once, so this adds
/// no delay to a healthy stream; over UDP it is the time that a reordered packet gets. 100 ms is more than any switched
/// network reorders by, and less than a line notices.
const JITTER_BUFFER_MS: u32 = 100;

/// Pictures get the times that their time stamps say, and no others: in every other mode the jitter buffer moves them as packets
/// arrive, and gives those of a burst one and the same, so that it is not known any more which of them is which (seen of 1.22).
const BUFFER_MODE: &str = "none";

/// How long connecting, and waiting for the first datagram, may take, in microseconds.
const NETWORK_TIMEOUT_US: u64 = 5_000_000;

/// A pipeline: `source ! decodebin ! appsink`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Launch {
    /// Reads the camera.
    pub(super) source: ElementSpec,
    /// Whether its pads are there from the start.
    pub(super) source_pads: SourcePads,
    /// Lets through what is asked of a USB camera.
    pub(super) filter: Option<ElementSpec>,
    /// Finds and runs the video decoder.
    pub(super) decodebin: ElementSpec,
    /// Hands the frames to us.
    pub(super) sink: ElementSpec,
    /// Whose clock tells when a picture was taken.
    pub(super) clock: CaptureClock,
}

/// When an element's source pads come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourcePads {
    /// One, from the start.
    Always,
    /// While playing, one for each stream.
    Sometimes,
}

/// An element and its properties.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ElementSpec {
    /// The factory's name.
    pub(super) factory: &'static str,
    /// Properties that differ from the element's own defaults.
    pub(super) properties: Vec<(&'static str, Property)>,
}

/// The value of a property. `Display` and `Debug` show what a log may show of it.
#[derive(Clone, PartialEq)]
pub(super) enum Property {
    /// A number, flag, enum or caps, as GStreamer parses it.
    Parsed(String),
    /// A string, taken as it is.
    Text(String),
    /// An address, of which the query, which may hold a password, is never printed.
    Url(url::Url),
    /// A string that is never printed.
    Secret(Secret),
    /// A file of certificates to trust.
    Authorities(PathBuf),
}

impl Launch {
    /// The pipeline for a camera; none for an address that GStreamer does not open.
    pub(super) fn new(config: &CameraConfig) -> Option<Self> {
        let (source, source_pads, clock) = match &config.address {
            Address::Rtsp(url) => (rtspsrc(config, url), SourcePads::Sometimes, CaptureClock::Arrival),
            Address::V4l2(path) => {
                let device = Property::Text(path.display().to_string());
                (element("v4l2src", vec![("device", device)]), SourcePads::Always, CaptureClock::V4l2)
            }
            Address::File(path) => {
                let location = Property::Text(path.display().to_string());
                (element("filesrc", vec![("location", location)]), SourcePads::Always, CaptureClock::File)
            }
            Address::Test(_) => return None,
        };
        Some(Self {
            source,
            source_pads,
            filter: None,
            decodebin: element("decodebin", Vec::new()),
            sink: appsink(),
            clock,
        })
    }
}

impl Launch {
    /// Asks the source for this, as caps.
    pub(super) fn asking(self, caps: String) -> Self {
        let filter = element("capsfilter", vec![("caps", Property::Parsed(caps))]);
        Self { filter: Some(filter), ..self }
    }
}

/// The caps of all formats that are taken as they come, in system memory.
pub(super) fn caps() -> String {
    format!("video/x-raw,format={{{}}}", PixelFormat::ALL.map(PixelFormat::name).join(","))
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ! ", self.source)?;
        if let Some(filter) = &self.filter {
            write!(f, "{filter} ! ")?;
        }
        write!(f, "{} ! {}", self.decodebin, self.sink)
    }
}

impl ElementSpec {
    /// That what this element reads cannot be opened.
    pub(super) fn refused(&self, reason: String) -> SourceError {
        let location = self.properties.iter().find_map(|(_, value)| match value {
            Property::Url(url) => Some(source::shown(url)),
            _ => None,
        });
        let address = location.unwrap_or_else(|| self.factory.to_owned());
        SourceError::Open { address, cause: FailureCause::Local, reason }
    }
}

impl fmt::Display for ElementSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.factory)?;
        for (name, value) in &self.properties {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parsed(text) => f.write_str(text),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Url(url) => write!(f, "{:?}", source::shown(url)),
            Self::Secret(_) => f.write_str("(secret)"),
            Self::Authorities(file) => write!(f, "(certificates of {:?})", file.display().to_string()),
        }
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn rtspsrc(config: &CameraConfig, url: &url::Url) -> ElementSpec {
    let protocols = match config.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Auto => "udp+tcp",
    };
    let mut properties = vec![
        ("location", Property::Url(source::without_credentials(url))),
        ("protocols", Property::Parsed(protocols.to_owned())),
        ("latency", Property::Parsed(JITTER_BUFFER_MS.to_string())),
        ("drop-on-latency", Property::Parsed("false".to_owned())),
        ("buffer-mode", Property::Parsed(BUFFER_MODE.to_owned())),
        ("tcp-timeout", Property::Parsed(NETWORK_TIMEOUT_US.to_string())),
        ("timeout", Property::Parsed(NETWORK_TIMEOUT_US.to_string())),
    ];
    if config.transport != Transport::Tcp {
        properties.push(("udp-buffer-size", Property::Parsed(config.udp_buffer.to_string())));
    }
    if let Some(file) = &config.ca_file {
        properties.push(("tls-database", Property::Authorities(file.clone())));
    }
    if let Some(username) = &config.username {
        properties.push(("user-id", Property::Text(username.clone())));
    }
    if let Some(password) = &config.password {
        properties.push(("user-pw", Property::Secret(password.clone())));
    }
    element("rtspsrc", properties)
}

/// Every frame is handed over on the streaming thread at once: `sync=false` does not hold a frame back to its time,
/// `drop=false` and one buffer lose none, and no last sample keeps a picture of the decoder's from going home.
fn appsink() -> ElementSpec {
    let parsed = |name, value: &str| (name, Property::Parsed(value.to_owned()));
    let mut properties = vec![parsed("caps", &caps())];
    properties.extend([
        parsed("sync", "false"),
        parsed("drop", "false"),
        parsed("max-buffers", "1"),
        parsed("qos", "false"),
        parsed("enable-last-sample", "false"),
    ]);
    element("appsink", properties)
}

fn element(factory: &'static str, properties: Vec<(&'static str, Property)>) -> ElementSpec {
    ElementSpec { factory, properties }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::CameraId;

    const SINK: &str = "decodebin ! appsink caps=video/x-raw,format={NV12,I420,YUY2,UYVY,GRAY8,RGB,BGR,RGBA,BGRA} \
                        sync=false drop=false max-buffers=1 qos=false enable-last-sample=false";

    fn config(address: Address) -> CameraConfig {
        CameraConfig::new(CameraId::new("press-1"), address)
    }

    fn rtsp(url: &str) -> CameraConfig {
        config(Address::Rtsp(url.parse().unwrap()))
    }

    fn text(config: &CameraConfig) -> String {
        Launch::new(config).unwrap().to_string()
    }

    #[test]
    fn an_rtsp_camera_is_opened_with_bounded_waits() {
        let golden = "rtspsrc location=\"rtsp://10.0.0.7:8554/stream1\" protocols=tcp latency=100 \
                      drop-on-latency=false buffer-mode=none tcp-timeout=5000000 timeout=5000000";
        assert_eq!(text(&rtsp("rtsp://10.0.0.7:8554/stream1")), format!("{golden} ! {SINK}"));
    }

    #[test]
    fn certificates_and_the_buffer_for_datagrams_are_properties() {
        let config = CameraConfig {
            ca_file: Some("/etc/gantry/ca.pem".into()),
            transport: Transport::Udp,
            udp_buffer: 65_536,
            ..rtsp("rtsps://cam/1")
        };
        let text = text(&config);
        let expected = " udp-buffer-size=65536 tls-database=(certificates of \"/etc/gantry/ca.pem\") !";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn each_transport_has_its_protocols() {
        let protocols = |transport| {
            let config = CameraConfig { transport, ..rtsp("rtsp://cam/1") };
            text(&config).split(' ').find(|part| part.starts_with("protocols")).unwrap().to_owned()
        };
        assert_eq!(protocols(Transport::Tcp), "protocols=tcp");
        assert_eq!(protocols(Transport::Udp), "protocols=udp");
        assert_eq!(protocols(Transport::Auto), "protocols=udp+tcp");
    }

    #[test]
    fn user_name_and_password_are_properties_and_the_password_is_not_printed() {
        let config = CameraConfig {
            username: Some("viewer".into()),
            password: Some(Secret::new("p@ss#%/:?&".into())),
            ..rtsp("rtsps://other:word@cam/1")
        };
        let launch = Launch::new(&config).unwrap();
        let text = launch.to_string();
        assert!(text.contains("location=\"rtsps://cam/1\""), "{text}");
        assert!(text.contains(" user-id=\"viewer\" user-pw=(secret) "), "{text}");
        assert!(!format!("{text}{launch:?}").contains("p@ss"), "{launch:?}");
        assert!(!format!("{text}{launch:?}").contains("word"), "{launch:?}");
    }

    #[test]
    fn the_query_of_an_address_reaches_the_camera_and_is_not_printed() {
        let config = rtsp("rtsp://u:er3@cam:8554/1?user=u&password=hunter2#er4");
        let launch = Launch::new(&config).unwrap();
        let opened: url::Url = "rtsp://cam:8554/1?user=u&password=hunter2#er4".parse().unwrap();
        assert_eq!(launch.source.properties[0], ("location", Property::Url(opened)));
        for shown in [launch.to_string(), format!("{launch:?}"), format!("{:?}", launch.source)] {
            assert!(shown.contains("\"rtsp://cam:8554/1?…\""), "{shown}");
            assert!(!["hunter2", "er3", "er4"].iter().any(|secret| shown.contains(secret)), "{shown}");
        }
    }

    #[test]
    fn files_and_devices_are_read_as_they_are_named() {
        let file = config(Address::File(PathBuf::from("/data/a \"b\".mp4")));
        assert_eq!(text(&file), format!("filesrc location=\"/data/a \\\"b\\\".mp4\" ! {SINK}"));
        let usb = config(Address::V4l2(PathBuf::from("/dev/v4l/by-id/usb-cam")));
        assert_eq!(text(&usb), format!("v4l2src device=\"/dev/v4l/by-id/usb-cam\" ! {SINK}"));
        assert_eq!(Launch::new(&usb).unwrap().clock, CaptureClock::V4l2);
        assert_eq!(Launch::new(&file).unwrap().source_pads, SourcePads::Always);
    }
}
