//! TLS for MQTT: whom we trust, and who we are.
//!
//! Files are read at each connect, so a certificate that was renewed serves without a restart.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::cause::MqttError;
use crate::publish::MqttConfig;

/// What a TLS connection to the broker is made with.
///
/// # Errors
/// When a file cannot be read or holds nothing of what it should, or the system has no CA store.
pub(super) fn client_config(config: &MqttConfig) -> Result<Arc<ClientConfig>, MqttError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of every version that rustls has")
        .with_root_certificates(roots(config.ca_file.as_deref())?);
    let client = match (&config.cert_file, &config.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| unreadable("key_file", key_file, &error))?;
            builder.with_client_auth_cert(certificates("cert_file", cert_file)?, key).map_err(|error| {
                MqttError::TlsFile {
                    key: "key_file",
                    path: key_file.clone(),
                    reason: format!("does not fit the certificate in {}: {error}", cert_file.display()),
                }
            })?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(client))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, MqttError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        for certificate in certificates("ca_file", path)? {
            roots.add(certificate).map_err(|error| MqttError::TlsFile {
                key: "ca_file",
                path: path.to_owned(),
                reason: format!("has a certificate that cannot be used: {error}"),
            })?;
        }
    } else {
        // Systems keep certificates that nobody can parse; the rest serves.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(MqttError::NoSystemRoots);
        }
    }
    Ok(roots)
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, MqttError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(MqttError::TlsFile {
            key,
            path: path.to_owned(),
            reason: "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)".to_owned(),
        }),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(key, path, &error)),
    }
}

fn unreadable(key: &'static str, path: &Path, error: &rustls::pki_types::pem::Error) -> MqttError {
    MqttError::TlsFile { key, path: path.to_owned(), reason: format!("cannot be read: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::MqttConfig;

    fn config(ca: Option<&Path>, cert: Option<&Path>, key: Option<&Path>) -> MqttConfig {
        let own = |path: Option<&Path>| path.map(Path::to_owned);
        MqttConfig {
            host: "broker".into(),
            port: 8883,
            tls: true,
            ca_file: own(ca),
            cert_file: own(cert),
            key_file: own(key),
            username: None,
            password: None,
            client_id: "gantry-test".into(),
            qos: 1,
            prefix: "gantry".into(),
            queue: 10,
        }
    }

    #[test]
    fn a_file_that_is_absent_or_empty_is_named_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("ca.pem");
        let error = client_config(&config(Some(&absent), None, None)).unwrap_err().to_string();
        assert!(error.starts_with("ca_file ") && error.contains("ca.pem cannot be read: "), "{error}");

        std::fs::write(&absent, "not a certificate\n").unwrap();
        let error = client_config(&config(Some(&absent), None, None)).unwrap_err().to_string();
        assert!(error.contains("holds no certificate in PEM form"), "{error}");
    }
}
