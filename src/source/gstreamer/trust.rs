//! Whom an `rtsps://` camera must be certified by, and what is wrong where it is not.

use std::path::Path;
use std::sync::Arc;

use gio::TlsCertificateFlags;
use gst::prelude::*;

use super::tap::Tap;
use crate::source::{Address, CameraConfig, SourceError};
use crate::telemetry::FailureCause;

/// How a certificate begins in a PEM file.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The certificates in a PEM file.
///
/// # Errors
/// Why they cannot be used, in words.
pub(super) fn authorities(file: &Path) -> Result<gio::TlsDatabase, String> {
    // GIO would take a file without any certificate.
    let text = std::fs::read(file)
        .map_err(|error| format!("the certificates in {} cannot be read: {error}", file.display()))?;
    if !text.windows(BEGIN.len()).any(|window| window == BEGIN) {
        return Err(format!(
            "{} holds no certificate; ca_file wants PEM (-----BEGIN CERTIFICATE-----)",
            file.display()
        ));
    }
    // It wants an absolute path, and would trust nobody by another one.
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    gio::TlsFileDatabase::new(absolute)
        .map(Cast::upcast)
        .map_err(|error| format!("the certificates in {} cannot be used: {error}", file.display()))
}

/// Notes what is wrong with the camera's certificate. It stays refused.
pub(super) fn watch(source: &gst::Element, tap: &Arc<Tap>) {
    // Not a strong one: the source belongs to a pipeline whose end the tap's owner waits for.
    let tap = Arc::downgrade(tap);
    source.connect("accept-certificate", false, move |values| {
        let flags = values.get(3).and_then(|value| value.get::<TlsCertificateFlags>().ok());
        if let Some(tap) = tap.upgrade() {
            tap.distrust(flags.unwrap_or(TlsCertificateFlags::GENERIC_ERROR));
        }
        Some(false.to_value())
    });
}

/// A camera whose certificate is refused.
pub(super) fn refused(flags: TlsCertificateFlags, config: &CameraConfig) -> SourceError {
    let file = config.ca_file.as_deref().map(|file| file.display().to_string());
    config.address.refused(FailureCause::Unusable, words(flags, &host(config), file.as_deref()))
}

fn host(config: &CameraConfig) -> String {
    match &config.address {
        Address::Rtsp(url) => url.host_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

fn words(flags: TlsCertificateFlags, host: &str, file: Option<&str>) -> String {
    let has = |flag| flags.contains(flag);
    // Whoever signed it comes first: of an unknown one nothing else is worth a word.
    if has(TlsCertificateFlags::UNKNOWN_CA) {
        return match file {
            Some(file) => format!(
                "the camera's certificate is signed by none of those in {file}; put the camera's own certificate, or that \
                 of the authority that signed it, into ca_file"
            ),
            None => "the camera's certificate is signed by nobody that this machine trusts; write the file of the camera's \
                     own certificate, or of the authority that signed it, into `ca_file`"
                .to_owned(),
        };
    }
    if has(TlsCertificateFlags::BAD_IDENTITY) {
        return format!(
            "the camera's certificate is not for \"{host}\"; use the name or address that it was made for, or give the \
             camera one for this"
        );
    }
    if has(TlsCertificateFlags::EXPIRED) {
        return "the camera's certificate has expired; give it a new one, and see that this machine's clock is right"
            .to_owned();
    }
    if has(TlsCertificateFlags::NOT_ACTIVATED) {
        return "the camera's certificate is not valid yet; is this machine's clock right, and the camera's when it was made?"
            .to_owned();
    }
    if has(TlsCertificateFlags::REVOKED) {
        return "the camera's certificate was revoked; give it a new one".to_owned();
    }
    if has(TlsCertificateFlags::INSECURE) {
        return "the camera's certificate is made with a method that is not safe any more; give it a new one"
            .to_owned();
    }
    "the camera's certificate is not valid".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_distrust_names_its_cure() {
        let told = |flags, file| words(flags, "cam-7", file);
        assert!(told(TlsCertificateFlags::UNKNOWN_CA, None).ends_with("into `ca_file`"));
        assert!(told(TlsCertificateFlags::UNKNOWN_CA, Some("/a.pem")).contains("none of those in /a.pem"));
        let both = TlsCertificateFlags::BAD_IDENTITY | TlsCertificateFlags::EXPIRED;
        assert!(told(both, None).contains("not for \"cam-7\""));
        assert!(told(TlsCertificateFlags::EXPIRED, None).contains("expired"));
        assert!(told(TlsCertificateFlags::NOT_ACTIVATED, None).contains("clock"));
    }

    #[test]
    fn a_file_that_holds_no_certificate_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(authorities(file.path()).unwrap_err().contains("holds no certificate"));
        assert!(authorities(Path::new("/nowhere/ca.pem")).unwrap_err().contains("cannot be read"));
    }
}
