//! Why there is no connection, in the words of somebody who can do something about it.
//!
//! The texts do not change from one try to the next while the cause stays the same, so that it is told once.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use rumqttc::v5::mqttbytes::Error as PacketError;
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode as Refusal, DisconnectReasonCode as Farewell};
use rumqttc::v5::{ConnectionError, StateError, TlsError};
use rustls::CertificateError;

use crate::publish::MqttConfig;

/// Why there is no connection to the broker. No variant holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MqttError {
    /// A file for TLS is no good.
    #[error("{key} {} {reason}", path.display())]
    TlsFile {
        /// The key in the config.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody to trust.
    #[error("this system has no CA store; install ca-certificates, or set ca_file to the CA of the broker")]
    NoSystemRoots,
    /// The client cannot check a certificate for such an address.
    #[error("TLS to the address {host} is not possible; give the broker a name that its certificate has")]
    TlsToAddress {
        /// The address.
        host: String,
    },
    /// No connection could be made.
    #[error("{0}")]
    Unreachable(String),
    /// TLS could not be agreed on.
    #[error("{0}")]
    Tls(String),
    /// The broker answered and refused us.
    #[error("the broker refuses the connection: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("{0}")]
    Lost(String),
    /// The connection is there and nothing comes.
    #[error("the broker does not answer any more; the network or the broker hangs")]
    Silent,
}

/// What a failure means while a connection is being made.
pub(super) fn explain_connect(error: &ConnectionError, config: &MqttConfig) -> MqttError {
    match error {
        ConnectionError::Io(error) => unreachable_because(error, config),
        ConnectionError::Timeout(_) => MqttError::Unreachable(
            "no answer within 5 s; is the address right, and does a firewall let the port through?"
                .to_owned(),
        ),
        ConnectionError::Tls(error) => tls(error, config),
        ConnectionError::ConnectionRefused(code) => MqttError::Refused(refusal(*code, config)),
        ConnectionError::MqttState(StateError::ConnectionAborted) => MqttError::Lost(no_answer(config)),
        ConnectionError::MqttState(StateError::Deserialization(PacketError::Io(error))) => {
            tls_alert(error, config).unwrap_or_else(|| MqttError::Lost(no_answer(config)))
        }
        ConnectionError::MqttState(StateError::Deserialization(_)) | ConnectionError::NotConnAck(_) => {
            MqttError::Lost(format!("what answers is no MQTT 5 broker{}", tls_hint(config)))
        }
        other => MqttError::Lost(other.to_string()),
    }
}

/// What a failure means once a connection was made.
pub(super) fn explain_break(error: &ConnectionError, config: &MqttConfig) -> MqttError {
    let ConnectionError::MqttState(error) = error else {
        return explain_connect(error, config);
    };
    match error {
        StateError::ConnectionAborted => MqttError::Lost(format!(
            "the broker closed the connection without saying why; if it does so again and again, another client may be \
             using the client id {}",
            config.client_id
        )),
        StateError::AwaitPingResp => MqttError::Silent,
        StateError::Io(error) | StateError::Deserialization(PacketError::Io(error)) => {
            tls_alert(error, config)
                .unwrap_or_else(|| MqttError::Lost(format!("the connection broke: {error}")))
        }
        StateError::ServerDisconnect { reason_code, reason_string } => {
            MqttError::Lost(farewell(*reason_code, reason_string.as_deref(), config))
        }
        other => MqttError::Lost(format!("the connection broke: {other}")),
    }
}

fn unreachable_because(error: &io::Error, config: &MqttConfig) -> MqttError {
    let text = error.to_string();
    MqttError::Unreachable(match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nothing listens there; is the broker running, and is the port right?".to_owned()
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("there is no way to it: {text}; is the network up, and is the address right?")
        }
        _ if text.starts_with("failed to lookup address") => {
            format!(
                "the name {} is not known: {text}; is it spelt right, and does the name server answer?",
                config.host
            )
        }
        _ => text,
    })
}

fn no_answer(config: &MqttConfig) -> String {
    format!(
        "the broker closed the connection instead of answering; it may be no broker, or may not speak MQTT 5, which Gantry needs (mosquitto \
         does since 1.6){}",
        tls_hint(config)
    )
}

fn tls_hint(config: &MqttConfig) -> &'static str {
    if config.tls { "" } else { ", or it wants TLS on this port (mqtts://)" }
}

fn tls(error: &TlsError, config: &MqttConfig) -> MqttError {
    match error {
        TlsError::TLS(error) => MqttError::Tls(tls_words(error, config)),
        TlsError::Io(error) => tls_alert(error, config).unwrap_or_else(|| {
            MqttError::Tls(format!(
                "the TLS handshake broke off: {error}; does the broker speak TLS on this port?"
            ))
        }),
        TlsError::DNSName(_) => MqttError::TlsToAddress { host: config.host.clone() },
        other => MqttError::Tls(other.to_string()),
    }
}

fn tls_alert(error: &io::Error, config: &MqttConfig) -> Option<MqttError> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(MqttError::Tls(tls_words(inner, config)))
}

fn tls_words(error: &rustls::Error, config: &MqttConfig) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(error) => certificate_words(error, config),
        rustls::Error::InvalidMessage(_) => {
            "what answers does not speak TLS; use mqtt://, or the broker's TLS port (usually 8883)".to_owned()
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure)
            if config.cert_file.is_none() =>
        {
            "the broker wants a certificate of ours; set cert_file and key_file".to_owned()
        }
        rustls::Error::AlertReceived(
            alert @ (Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate),
        ) => format!(
            "the broker does not accept our certificate ({alert:?}); check cert_file and the broker's CA"
        ),
        other => format!("TLS could not be agreed on: {other}"),
    }
}

fn certificate_words(error: &CertificateError, config: &MqttConfig) -> String {
    let host = &config.host;
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature if config.ca_file.is_some() => {
            "the broker's certificate is not from the CA in ca_file; set ca_file to the CA that signed it"
                .to_owned()
        }
        CertificateError::UnknownIssuer => {
            "the broker's certificate is from a CA that this system does not know; set ca_file to that CA's \
             certificate"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the broker's certificate is not for the name {host}; use the name that it has as the broker's host"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the broker's certificate has expired, or this machine's clock is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the broker's certificate is not valid yet; this machine's clock may be wrong".to_owned()
        }
        CertificateError::Revoked => "the broker's certificate was revoked".to_owned(),
        other => format!("the broker's certificate is no good: {other}"),
    }
}

fn refusal(code: Refusal, config: &MqttConfig) -> String {
    match code {
        Refusal::RefusedProtocolVersion | Refusal::UnsupportedProtocolVersion => {
            "it does not speak MQTT 5, which Gantry needs; use a broker that does (mosquitto does since 1.6)".to_owned()
        }
        Refusal::BadUserNamePassword | Refusal::NotAuthorized if config.username.is_none() => {
            "it lets in nobody without a user name; set username and password".to_owned()
        }
        Refusal::BadUserNamePassword | Refusal::NotAuthorized => {
            "it does not accept the user name or the password, or does not allow this user in; check username and \
             password, and the broker's access list"
                .to_owned()
        }
        Refusal::BadClientId | Refusal::ClientIdentifierNotValid => {
            format!("it does not accept the client id {}; set another client_id", config.client_id)
        }
        Refusal::Banned => format!("it has banned the client {}", config.client_id),
        Refusal::ServiceUnavailable | Refusal::ServerUnavailable => "it is not available now".to_owned(),
        Refusal::ServerBusy | Refusal::ConnectionRateExceeded => "it is busy".to_owned(),
        Refusal::QuotaExceeded => "a quota of this user or client is used up".to_owned(),
        Refusal::TopicNameInvalid => format!("it does not accept topics under {}; check prefix and node", config.prefix),
        Refusal::RetainNotSupported => {
            "it keeps no retained messages, which Gantry's status needs; allow them, or use another broker".to_owned()
        }
        Refusal::QoSNotSupported => {
            "it does not support QoS 1, which Gantry's status needs; allow it, or use another broker".to_owned()
        }
        Refusal::UseAnotherServer | Refusal::ServerMoved => "it says to use another server; change the address".to_owned(),
        other => format!("{other:?}"),
    }
}

fn farewell(code: Farewell, text: Option<&str>, config: &MqttConfig) -> String {
    let text = text.map(|text| format!(" ({text})")).unwrap_or_default();
    match code {
        Farewell::SessionTakenOver => format!(
            "another client has connected with the client id {}{text}; each node needs its own node name or client_id",
            config.client_id
        ),
        Farewell::ServerShuttingDown => format!("the broker is shutting down{text}"),
        Farewell::KeepAliveTimeout => format!("the broker heard nothing of us for too long{text}"),
        Farewell::NotAuthorized => {
            format!("the broker withdrew the permission{text}; check the user and the broker's access list")
        }
        Farewell::AdministrativeAction => format!("somebody closed the connection at the broker{text}"),
        other => format!("the broker closed the connection: {other:?}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> MqttConfig {
        MqttConfig {
            host: "broker".into(),
            port: 1883,
            tls: false,
            ca_file: None,
            cert_file: None,
            key_file: None,
            username: Some("line".into()),
            password: None,
            client_id: "gantry-line-7".into(),
            qos: 1,
            prefix: "gantry".into(),
            queue: 10,
        }
    }

    fn connect(error: &ConnectionError) -> String {
        explain_connect(error, &config()).to_string()
    }

    fn broken(error: StateError) -> String {
        explain_break(&ConnectionError::MqttState(error), &config()).to_string()
    }

    #[test]
    fn a_refusal_names_what_to_change() {
        let refused = |code| connect(&ConnectionError::ConnectionRefused(code));
        let start = "the broker refuses the connection: ";
        for (code, word) in [
            (Refusal::BadUserNamePassword, "check username and password"),
            (Refusal::UnsupportedProtocolVersion, "MQTT 5"),
            (Refusal::ClientIdentifierNotValid, "gantry-line-7; set another client_id"),
            (Refusal::TopicNameInvalid, "check prefix and node"),
            (Refusal::RetainNotSupported, "retained"),
            (Refusal::QoSNotSupported, "QoS 1"),
            (Refusal::ServerBusy, "it is busy"),
            (Refusal::PayloadFormatInvalid, "PayloadFormatInvalid"),
        ] {
            let text = refused(code);
            assert!(text.starts_with(start) && text.contains(word), "{code:?}: {text}");
        }
    }

    #[test]
    fn a_name_that_is_not_known_and_an_unreachable_network_are_told_apart() {
        let lookup = io::Error::other("failed to lookup address information: Name or service not known");
        let text = connect(&ConnectionError::Io(lookup));
        assert!(text.starts_with("the name broker is not known: ") && text.contains("spelt right"), "{text}");
        let text = connect(&ConnectionError::Io(ErrorKind::NetworkUnreachable.into()));
        assert!(text.contains("is the network up"), "{text}");
    }

    #[test]
    fn tls_failures_name_the_file_or_the_name() {
        let failed = |error: rustls::Error| {
            connect(&ConnectionError::Tls(TlsError::Io(io::Error::new(ErrorKind::InvalidData, error))))
        };
        let expired = failed(rustls::Error::InvalidCertificate(CertificateError::Expired));
        assert_eq!(expired, "the broker's certificate has expired, or this machine's clock is wrong");
        let name = failed(rustls::Error::InvalidCertificate(CertificateError::NotValidForName));
        assert!(name.contains("the name broker"), "{name}");
        let wanted = failed(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired));
        assert!(wanted.contains("set cert_file and key_file"), "{wanted}");
        let refused = failed(rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA));
        assert!(refused.contains("check cert_file"), "{refused}");
    }

    #[test]
    fn what_the_broker_says_at_the_end_is_passed_on() {
        let text = broken(StateError::ServerDisconnect {
            reason_code: Farewell::ServerShuttingDown,
            reason_string: Some("upgrade".into()),
        });
        assert_eq!(text, "the broker is shutting down (upgrade)");
        let text = broken(StateError::ServerDisconnect {
            reason_code: Farewell::SessionTakenOver,
            reason_string: None,
        });
        assert!(text.contains("client id gantry-line-7; each node needs its own"), "{text}");
        assert_eq!(broken(StateError::AwaitPingResp), MqttError::Silent.to_string());
    }
}
