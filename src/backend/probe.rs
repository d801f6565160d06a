//! What of the backends is on this machine, and which one `backend: auto` takes.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{BackendError, BackendKind, embedded, onnxruntime};

/// A backend, and whether it can be used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its name in configs.
    pub backend: &'static str,
    /// Whether it can be used.
    #[serde(flatten)]
    pub state: FoundState,
}

/// Whether a backend can be used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FoundState {
    /// It can.
    Ready {
        /// The runtime and its version.
        version: String,
        /// Its library, if it is not in this binary.
        library: Option<PathBuf>,
    },
    /// Its library is not on this machine.
    Missing {
        /// The library's file name.
        library: &'static str,
        /// Where it was looked for.
        looked: Vec<String>,
        /// What to do.
        cure: String,
    },
    /// Its library is there and cannot be used.
    Unusable {
        /// The library.
        library: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        cure: String,
    },
}

/// What `backend: auto` takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AutoChoice {
    /// The backend's name.
    pub backend: &'static str,
    /// Why, for people.
    pub reason: String,
}

/// Looks for every backend. `library` is the ONNX Runtime that a config names, if one does. An ONNX Runtime that is found
/// stays in this process's memory; no device is opened.
#[must_use]
pub fn probe(library: Option<&Path>) -> Vec<Found> {
    let found = |backend: BackendKind| {
        let state = match backend {
            BackendKind::Embedded => {
                FoundState::Ready { version: embedded::ENGINE.to_owned(), library: None }
            }
            BackendKind::OnnxRuntime => state_of(onnxruntime::look(library)),
            BackendKind::Fake => {
                FoundState::Ready { version: "scripted, for trials".to_owned(), library: None }
            }
        };
        Found { backend: backend.name(), state }
    };
    BackendKind::ALL.map(found).into()
}

/// Which backend `backend: auto` takes, given what [`probe`] found. [`super::open`] decides alike.
#[must_use]
pub fn auto_choice(found: &[Found]) -> AutoChoice {
    let onnxruntime = found.iter().find(|found| found.backend == BackendKind::OnnxRuntime.name());
    let (backend, reason) = match onnxruntime.map(|found| &found.state) {
        Some(FoundState::Ready { version, .. }) => (
            BackendKind::OnnxRuntime,
            format!(
                "{version} is here, and measured 2 to 7 times as fast as the embedded engine (a picture of \
                 factory_tiny in 2.6 ms instead of 6.2, of its int8 variant in 1.3 instead of 9.3, of coco_ssdlite \
                 in 19.5 instead of 42)"
            ),
        ),
        Some(FoundState::Unusable { library, reason, .. }) => (
            BackendKind::Embedded,
            format!("ONNX Runtime, which is faster, cannot be used: {library}: {reason}"),
        ),
        Some(FoundState::Missing { cure, .. }) => {
            (BackendKind::Embedded, format!("ONNX Runtime, which is faster, is not on this machine; {cure}"))
        }
        None => (BackendKind::Embedded, "it is always there".to_owned()),
    };
    AutoChoice { backend: backend.name(), reason }
}

fn state_of(looked: Result<onnxruntime::Usable, BackendError>) -> FoundState {
    match looked {
        Ok(usable) => FoundState::Ready {
            version: format!("ONNX Runtime {}", usable.version),
            library: Some(usable.path),
        },
        Err(BackendError::Missing { library, looked, cure, .. }) => {
            FoundState::Missing { library, looked, cure }
        }
        Err(BackendError::Unusable { path, reason, cure, .. }) => {
            FoundState::Unusable { library: path, reason, cure }
        }
        Err(error) => {
            FoundState::Unusable { library: String::new(), reason: error.to_string(), cure: String::new() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn onnxruntime(state: FoundState) -> Vec<Found> {
        vec![Found { backend: BackendKind::OnnxRuntime.name(), state }]
    }

    #[test]
    fn auto_takes_onnxruntime_when_it_can_be_used_and_says_why_when_not() {
        let ready = FoundState::Ready { version: "ONNX Runtime 1.32.0".into(), library: None };
        let choice = auto_choice(&onnxruntime(ready));
        assert_eq!(choice.backend, "onnxruntime");
        assert!(choice.reason.contains("2 to 7 times"), "{}", choice.reason);
        let cure = "run `scripts/fetch-runtime onnxruntime`".to_owned();
        let missing = FoundState::Missing { library: "libonnxruntime.so", looked: vec![], cure };
        let choice = auto_choice(&onnxruntime(missing));
        assert_eq!(choice.backend, "embedded");
        assert!(choice.reason.contains("fetch-runtime"), "{}", choice.reason);
    }

    #[test]
    fn a_machine_reads_the_state_beside_the_name() {
        let ready = FoundState::Ready { version: "tract".into(), library: None };
        let json = serde_json::to_value(&onnxruntime(ready)[0]).unwrap();
        assert_eq!((json["backend"].as_str(), json["state"].as_str()), (Some("onnxruntime"), Some("ready")));
    }
}
