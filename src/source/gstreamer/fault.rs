//! GStreamer's errors in the words of a line engineer, with the cure. Pure.

use std::fmt;

use gst::glib;
use gst::{CoreError, ResourceError, StreamError};

use super::network::{self, Answer, Scheme};
use crate::secret;
use crate::source::{Address, CameraConfig, SourceError};
use crate::telemetry::FailureCause;

/// What is said of an RTSP camera of which only sound or metadata can be had.
const NO_VIDEO_STREAM: &str =
    "the camera offers no video stream under this path; look up the path in its manual";

/// An error or a warning that an element posted.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Its domain, code and sentence.
    pub(super) error: glib::Error,
    /// What the element adds, without the place in GStreamer's source.
    pub(super) detail: String,
}

/// A decoder, demuxer or the like that a stream needs and that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// In words, such as "H.265 (Main Profile) decoder".
    pub(super) name: String,
    /// The stream's type, such as `video/x-h265`.
    pub(super) media: String,
}

/// What else is known when a connection has failed.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// The camera.
    pub(super) config: &'a CameraConfig,
    /// Whether it had delivered frames.
    pub(super) progress: Progress,
    /// A plug-in that was found missing meanwhile.
    pub(super) missing: Option<&'a Missing>,
    /// What answers at the camera's address, where it was asked.
    pub(super) answer: Option<Answer>,
}

/// How far a connection had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is known of a video.
    Opening,
    /// It had told that it has a video stream.
    Offered,
    /// It had delivered frames.
    Live,
}

impl Fault {
    /// Of an error or warning message.
    pub(super) fn new(error: glib::Error, debug: Option<&str>) -> Self {
        // "../gst/rtsp/gstrtspsrc.c(6794): gst_rtspsrc_send (): /GstPipeline:pipeline0/GstRTSPSrc:rtspsrc0:\nDetail"
        let debug = debug.unwrap_or_default();
        let detail = debug.split_once(":\n").map_or("", |(_, detail)| detail).trim().replace('\n', ", ");
        Self { error, detail }
    }

    /// Whether the camera refuses the login.
    pub(super) fn is_a_refused_login(&self) -> bool {
        self.error.matches(ResourceError::NotAuthorized)
    }

    /// Whether asking the network can tell more than GStreamer did.
    pub(super) fn is_about_the_network(&self) -> bool {
        self.error.is::<ResourceError>()
            && !self.error.matches(ResourceError::NotAuthorized)
            && !self.error.matches(ResourceError::NotFound)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = self.error.message().trim_end_matches('.');
        if self.detail.is_empty() || self.detail == sentence {
            f.write_str(sentence)
        } else {
            write!(f, "{sentence}: {}", self.detail.trim_end_matches('.'))
        }
    }
}

/// Why a connection failed, in words.
pub(super) fn explain(fault: &Fault, context: &Context<'_>) -> SourceError {
    if let Some(missing) = context.missing
        && is_about_plugins(fault)
    {
        return missing_plugin(missing);
    }
    let address = &context.config.address;
    if context.progress == Progress::Live {
        return SourceError::Broken { reason: address.conceal(&broken(fault, address)) };
    }
    let (cause, reason) = match address {
        Address::Rtsp(url) => rtsp(fault, url, context),
        Address::V4l2(_) => device(fault),
        Address::File(_) | Address::Test(_) => (FailureCause::Unusable, file(fault)),
    };
    address.refused(cause, address.conceal(&reason))
}

/// A stream in which nothing is a picture.
pub(super) fn no_video(context: &Context<'_>) -> SourceError {
    if let Some(missing) = context.missing {
        return missing_plugin(missing);
    }
    let reason = match &context.config.address {
        Address::Rtsp(_) => NO_VIDEO_STREAM,
        _ => "there is no video in it",
    };
    context.config.address.refused(FailureCause::Unusable, reason)
}

/// A file from which nothing comes, without any error.
pub(super) fn no_beginning(config: &CameraConfig) -> SourceError {
    let reason = "no picture comes out of it; it is damaged or was cut off; copy it anew";
    config.address.refused(FailureCause::Unusable, reason)
}

/// An element that Gantry itself asks for.
pub(super) fn missing_element(element: &str) -> SourceError {
    let package = match element {
        "rtspsrc" | "v4l2src" => "gstreamer1.0-plugins-good",
        "decodebin" | "videoconvert" | "appsink" => "gstreamer1.0-plugins-base",
        _ => "libgstreamer1.0-0",
    };
    SourceError::MissingElement { element: element.to_owned(), cure: format!("install {package}") }
}

/// A decoder or demuxer that a stream asks for.
pub(super) fn missing_plugin(missing: &Missing) -> SourceError {
    let package = match missing.media.as_str() {
        "video/x-av1" | "video/mpegts" => "gstreamer1.0-plugins-bad",
        "video/x-vp8" | "video/x-vp9" | "image/jpeg" | "image/png" | "application/x-rtp"
        | "video/quicktime" | "video/x-matroska" | "video/webm" | "video/x-msvideo" | "video/x-flv" => {
            "gstreamer1.0-plugins-good"
        }
        "video/x-theora" | "application/ogg" => "gstreamer1.0-plugins-base",
        _ => "gstreamer1.0-libav",
    };
    SourceError::MissingElement {
        element: format!("\"{}\" for {}", missing.name, missing.media),
        cure: format!("install {package}"),
    }
}

fn rtsp(fault: &Fault, url: &url::Url, context: &Context<'_>) -> (FailureCause, String) {
    let (host, port) = (url.host_str().unwrap_or_default(), network::port(url));
    if fault.is_a_refused_login() {
        return (FailureCause::Unauthorized, login(context));
    }
    if fault.error.matches(ResourceError::NotFound) {
        let path = secret::in_path(url.path()).map_or(url.path(), |at| &url.path()[..at]);
        let reason = format!(
            "the camera does not know the path \"{path}\" (404); look up the stream's path in its manual or web page"
        );
        return (FailureCause::NotFound, reason);
    }
    if fault.error.matches(StreamError::CodecNotFound) {
        // rtspsrc's word for a session of which no stream could be set up.
        let reason = match context.progress {
            Progress::Offered => "the camera does not send its video this way; set `transport: auto`",
            Progress::Opening | Progress::Live => NO_VIDEO_STREAM,
        };
        return (FailureCause::Unusable, reason.to_owned());
    }
    match &context.answer {
        Some(Answer::NoSuchName) => {
            let reason = format!(
                "no machine is known by the name \"{host}\"; correct the name, or use the camera's IP address"
            );
            (FailureCause::Unreachable, reason)
        }
        Some(Answer::Refused) => {
            let reason =
                format!("nothing listens on {host}:{port}; is the camera on, and is the port right?");
            (FailureCause::Refused, reason)
        }
        Some(Answer::Unreachable(why)) => {
            let reason = format!("there is no way to {host}:{port} ({why}); is the network cable in?");
            (FailureCause::Unreachable, reason)
        }
        Some(Answer::Silent) => {
            let reason = format!(
                "{host}:{port} does not answer; is the camera on, and does a firewall stand between?"
            );
            (FailureCause::Unreachable, reason)
        }
        Some(Answer::Web) => {
            let reason = format!(
                "{host}:{port} is a web server and answers with an HTML page, not a video; use the camera's RTSP \
                 address, mostly port 554"
            );
            (FailureCause::Unusable, reason)
        }
        Some(Answer::Connected) if url.scheme() == "rtsps" => {
            (FailureCause::Protocol, format!("no TLS connection to {host}:{port} comes about ({fault})"))
        }
        Some(Answer::Connected) => {
            let reason = format!("{host}:{port} does not speak RTSP ({fault}); is the port right?");
            (FailureCause::Protocol, reason)
        }
        Some(Answer::Rtsp) if url.scheme() == "rtsps" => {
            let reason = format!(
                "{host}:{port} speaks RTSP without TLS; write rtsp://, or the port on which it has TLS"
            );
            (FailureCause::Unusable, reason)
        }
        Some(Answer::Rtsp | Answer::Login(_)) | None => (FailureCause::Protocol, fault.to_string()),
    }
}

/// A camera that refuses the login, or wants one.
fn login(context: &Context<'_>) -> String {
    let config = context.config;
    if let Some(Answer::Login(schemes)) = &context.answer
        && !schemes.is_empty()
        && !schemes.iter().any(Scheme::is_known)
    {
        let names: Vec<_> = schemes.iter().map(Scheme::to_string).collect();
        return format!(
            "the camera wants a login by {} (401), which GStreamer's RTSP cannot do; allow Digest (MD5) or Basic in the \
             camera's settings",
            names.join(" or ")
        );
    }
    match (&config.username, &config.password) {
        (None, _) => {
            "the camera wants a user name and a password (401); set `username` and `password_file`".to_owned()
        }
        (Some(user), None) => {
            format!("the camera wants a password for the user \"{user}\" (401); set `password_file`")
        }
        (Some(user), Some(_)) => format!(
            "the camera refuses the user \"{user}\" or the password (401); correct `username` and `password_file`"
        ),
    }
}

fn device(fault: &Fault) -> (FailureCause, String) {
    if fault.error.matches(ResourceError::Busy) {
        let reason = "another program uses the camera; end that program";
        return (FailureCause::Refused, reason.to_owned());
    }
    if fault.error.matches(ResourceError::NotFound) {
        let reason = "no camera is behind this device; is it plugged in?";
        return (FailureCause::Unreachable, reason.to_owned());
    }
    if fault.to_string().contains("No space left on device") {
        let reason = "its USB bus has no bandwidth left for it; ask for a smaller size, a lower rate or `format: mjpg` \
                      under `usb`, or plug it into another port, not beside another camera on one hub";
        return (FailureCause::Refused, reason.to_owned());
    }
    if fault.error.matches(ResourceError::Settings) {
        let reason = format!("it is no camera, or offers no format that is known ({fault})");
        return (FailureCause::Unusable, reason);
    }
    (FailureCause::Protocol, fault.to_string())
}

fn file(fault: &Fault) -> String {
    if fault.error.matches(StreamError::TypeNotFound) {
        return "it is no video that GStreamer knows".to_owned();
    }
    if fault.error.matches(StreamError::WrongType) {
        return "it is a text file, not a video".to_owned();
    }
    if fault.error.matches(ResourceError::OpenRead) || fault.error.matches(ResourceError::NotFound) {
        return fault.to_string();
    }
    if fault.error.matches(StreamError::Demux) || fault.error.matches(StreamError::Decode) {
        return format!("it is damaged or was cut off ({fault}); copy it anew");
    }
    fault.to_string()
}

fn broken(fault: &Fault, address: &Address) -> String {
    match address {
        Address::V4l2(_) if fault.error.is::<ResourceError>() => {
            format!("the camera was unplugged or has failed ({fault})")
        }
        Address::Rtsp(_) if fault.error.is::<ResourceError>() => {
            format!("the connection to the camera was lost ({fault})")
        }
        _ => fault.to_string(),
    }
}

fn is_about_plugins(fault: &Fault) -> bool {
    fault.error.matches(CoreError::MissingPlugin) || fault.error.is::<StreamError>()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::frame::CameraId;

    fn config(address: Address) -> CameraConfig {
        CameraConfig {
            username: Some("viewer".into()),
            password: Some(crate::secret::Secret::new("s3cret".into())),
            ..CameraConfig::new(CameraId::new("press-1"), address)
        }
    }

    fn rtsp() -> CameraConfig {
        config(Address::Rtsp("rtsp://cam-7/stream1".parse().unwrap()))
    }

    fn usb() -> CameraConfig {
        config(Address::V4l2(PathBuf::from("/dev/video0")))
    }

    fn fault(code: impl glib::error::ErrorDomain, sentence: &str, detail: &str) -> Fault {
        let debug = format!("../gst/x.c(1): f (): /GstPipeline:pipeline0/GstX:x0:\n{detail}");
        Fault::new(glib::Error::new(code, sentence), Some(&debug))
    }

    fn told(fault: &Fault, config: &CameraConfig, progress: Progress, answer: Option<Answer>) -> String {
        let text = explain(fault, &Context { config, progress, missing: None, answer }).to_string();
        assert!(!text.contains("s3cret"), "{text}");
        text
    }

    #[test]
    fn a_fault_keeps_what_the_element_adds_and_drops_the_place_in_gstreamers_source() {
        let fault =
            fault(ResourceError::OpenRead, "Could not open resource.", "Failed to connect. (Generic error)");
        assert_eq!(fault.to_string(), "Could not open resource: Failed to connect. (Generic error)");
        let bare = Fault::new(glib::Error::new(StreamError::Failed, "Internal data stream error."), None);
        assert_eq!(bare.to_string(), "Internal data stream error");
    }

    #[test]
    fn what_the_network_answers_names_the_cure() {
        let fault =
            fault(ResourceError::OpenRead, "Could not open resource.", "Failed to connect. (Generic error)");
        let cases = [
            (Answer::Refused, "nothing listens on cam-7:554; is the camera on"),
            (Answer::Silent, "cam-7:554 does not answer"),
            (Answer::NoSuchName, "no machine is known by the name \"cam-7\""),
            (Answer::Unreachable("no route".into()), "there is no way to cam-7:554 (no route)"),
            (Answer::Web, "answers with an HTML page, not a video"),
            (Answer::Connected, "does not speak RTSP"),
            (Answer::Rtsp, "Could not open resource: Failed to connect."),
        ];
        for (answer, expected) in cases {
            let text = told(&fault, &rtsp(), Progress::Opening, Some(answer.clone()));
            assert!(text.starts_with("rtsp://cam-7/stream1 cannot be opened: "), "{text}");
            assert!(text.contains(expected), "{answer:?}: {text}");
        }
    }

    #[test]
    fn a_login_that_cannot_work_is_told_apart_from_a_wrong_one() {
        let fault = fault(ResourceError::NotAuthorized, "Unauthorized", "Unauthorized (401)");
        let schemes = |names: &[&str]| {
            let scheme = |name: &&str| match *name {
                "Basic" => Scheme::Basic,
                name => Scheme::Digest(name.to_owned()),
            };
            Some(Answer::Login(names.iter().map(scheme).collect()))
        };
        let told =
            |config: &CameraConfig, names: &[&str]| told(&fault, config, Progress::Opening, schemes(names));
        assert!(told(&rtsp(), &["SHA-256"]).contains("wants a login by Digest SHA-256 (401), which"));
        assert!(
            told(&rtsp(), &["SHA-256", "MD5"]).contains("refuses the user \"viewer\" or the password (401)")
        );
        assert!(told(&rtsp(), &[]).contains("refuses the user"));
        let without =
            |user: Option<&str>| CameraConfig { username: user.map(Into::into), password: None, ..rtsp() };
        assert!(
            told(&without(Some("viewer")), &["Basic"]).contains("wants a password for the user \"viewer\"")
        );
        assert!(told(&without(None), &["Basic"]).contains("wants a user name and a password"));
    }

    #[test]
    fn an_element_that_repeats_the_address_shows_no_password_of_its_query() {
        let url = "rtsp://cam-7/stream1?user=u&password=hunter2";
        let config = config(Address::Rtsp(url.parse().unwrap()));
        let fault = fault(ResourceError::Read, "Could not read.", &format!("Failed to read {url} (timeout)"));
        for progress in [Progress::Opening, Progress::Live] {
            let text = told(&fault, &config, progress, None);
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("Failed to read rtsp://cam-7/stream1?… (timeout)"), "{text}");
        }
    }

    #[test]
    fn a_usb_camera_that_is_busy_or_goes_away_is_told() {
        let busy = fault(ResourceError::Busy, "Device '/dev/video0' is busy", "");
        assert!(told(&busy, &usb(), Progress::Opening, None).contains("another program uses the camera"));
        let gone = fault(ResourceError::Read, "Could not read from resource.", "poll error 1");
        let text = told(&gone, &usb(), Progress::Live, None);
        assert!(text.contains("the stream broke: the camera was unplugged or has failed"), "{text}");
    }

    #[test]
    fn a_stream_that_no_transport_carries_is_told_apart_from_one_without_video() {
        let fault = fault(StreamError::CodecNotFound, "No supported stream was found.", "");
        assert!(told(&fault, &rtsp(), Progress::Opening, None).contains("offers no video stream"));
        assert!(told(&fault, &rtsp(), Progress::Offered, None).contains("set `transport: auto`"));
    }

    #[test]
    fn a_missing_decoder_is_named_with_its_package() {
        let missing = Missing { name: "H.265 (Main Profile) decoder".into(), media: "video/x-h265".into() };
        let config = rtsp();
        let context =
            Context { config: &config, progress: Progress::Offered, missing: Some(&missing), answer: None };
        let expected = "GStreamer's element \"H.265 (Main Profile) decoder\" for video/x-h265 is not installed; \
                        install gstreamer1.0-libav";
        assert_eq!(no_video(&context).to_string(), expected);
        let fault =
            fault(StreamError::CodecNotFound, "Your GStreamer installation is missing a plug-in.", "");
        assert_eq!(explain(&fault, &context).to_string(), expected);
    }
}
