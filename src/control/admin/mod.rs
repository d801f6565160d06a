//! The admin HTTP server: `/metrics`, `/live`, `/ready`, `/status`. The only user of axum and hyper.
//!
//! It runs on the `io` thread and knows nothing itself: each request becomes a [`Question`] that the supervisor answers
//! with a [`Report`], between two of its looks at the daemon. So an answer is of one moment, nothing here touches the frame
//! path, and a supervisor that does not answer is told as what it is.
//!
//! Whoever is on the other end can do no harm: there are at most [`CONNECTIONS_MAX`] connections, each lives for at most
//! [`CONNECTION_LIMIT`], and what it may send is bounded. Nothing that is shown is secret, nothing can be changed, and there
//! is no authentication.

mod metrics;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use crossbeam_channel::{Receiver, Sender, bounded};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::report::Report;
use crate::config::{AdminConfig, Listen};

/// The most connections at a time; more of them wait in the kernel.
pub const CONNECTIONS_MAX: usize = 16;
/// A connection is closed after its answer, and at the latest after this.
pub const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// A request's head must have come within this.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// The most bytes that a request's head may have.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most headers that a request may have.
const HEADERS_MAX: usize = 64;
/// The supervisor answers within this, or is stuck.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Questions that wait for the supervisor; it answers each in a moment.
const QUESTIONS: usize = CONNECTIONS_MAX;
/// How long nothing is accepted after the system had no descriptor or memory for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const PATHS: &str = "/metrics  counters and histograms for Prometheus
/live     200 while every thread that has work makes progress, else 503 and their names
/ready    200 while the daemon serves, else 503 and why not
/status   everything, as JSON
";

/// Somebody wants a report. Whoever answers may find that nobody waits any more.
#[derive(Debug)]
pub struct Question(oneshot::Sender<Report>);

impl Question {
    /// Answers it.
    pub fn answer(self, report: Report) {
        // Whoever asked has gone, or waited too long, and was told so.
        drop(self.0.send(report));
    }
}

/// The server, listening and not yet serving.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    supervisor: Supervisor,
}

/// Why the server cannot be.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("admin.listen: {address} cannot be listened on: {}; write another address, or off", why(.error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
}

/// Listens where the config says. The questions are for the supervisor; without a server none will ever come.
///
/// # Errors
/// When the config names an address and it cannot be listened on.
pub fn listen(config: &AdminConfig) -> Result<(Option<Server>, Receiver<Question>), AdminError> {
    let none = (None, crossbeam_channel::never());
    let address = match config.listen {
        Listen::Off => return Ok(none),
        Listen::IfFree => Listen::DEFAULT,
        Listen::At(address) => address,
    };
    let bound = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = match bound {
        Ok(bound) => bound,
        Err(error) => {
            let error = AdminError::Listen { address, error };
            if config.listen != Listen::IfFree {
                return Err(error);
            }
            warn!("{error}; going on without HTTP");
            return Ok(none);
        }
    };
    info!("http://{address} has /metrics, /live, /ready and /status");
    if !address.ip().is_loopback() {
        warn!(
            "{address} can be reached from other machines and asks for no password; whoever reaches it sees the names of \
             cameras and models and all counts"
        );
    }
    let (questions, asked) = bounded(QUESTIONS);
    Ok((Some(Server { listener, supervisor: Supervisor { questions } }), asked))
}

impl Server {
    /// Serves for ever, on a current-thread runtime with I/O and time. Dropping the future drops every connection.
    pub async fn serve(self) -> Infallible {
        let listener = tokio::net::TcpListener::from_std(self.listener)
            .expect("the listener was set to be non-blocking, and this is a runtime with I/O");
        let router = router(self.supervisor);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(connection(stream, router.clone()))),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Either end may break it, and time does: neither is a fault of ours.
    drop(tokio::time::timeout(CONNECTION_LIMIT, serving).await);
}

fn router(supervisor: Supervisor) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/status", get(status))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(supervisor)
}

type Asked = axum::extract::State<Supervisor>;

async fn metrics(supervisor: Asked) -> Response {
    let report = match supervisor.ask().await {
        Ok(report) => report,
        Err(silent) => return silent.into_response(),
    };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, metrics::text(report)).into_response()
}

async fn live(supervisor: Asked) -> Response {
    let report = match supervisor.ask().await {
        Ok(report) => report,
        Err(silent) => return silent.into_response(),
    };
    let stuck: String = report.stuck.iter().fold(String::new(), |text, stuck| {
        format!("{text}{}: no progress for {:.1} s with work waiting\n", stuck.thread, stuck.since_s)
    });
    if stuck.is_empty() {
        text(StatusCode::OK, "live\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, stuck)
    }
}

async fn ready(supervisor: Asked) -> Response {
    let report = match supervisor.ask().await {
        Ok(report) => report,
        Err(silent) => return silent.into_response(),
    };
    if report.not_ready.is_empty() {
        return text(StatusCode::OK, "ready\n");
    }
    text(StatusCode::SERVICE_UNAVAILABLE, report.not_ready.join("\n") + "\n")
}

async fn status(supervisor: Asked) -> Response {
    let report = match supervisor.ask().await {
        Ok(report) => report,
        Err(silent) => return silent.into_response(),
    };
    let mut json = serde_json::to_string_pretty(&report).expect("a report has string keys only");
    json.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

async fn unknown(uri: Uri) -> Response {
    text(StatusCode::NOT_FOUND, format!("there is no {}; there are\n{PATHS}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, format!("{} takes GET, not {method}\n", uri.path()))
}

fn text(code: StatusCode, text: impl Into<String>) -> Response {
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.into()).into_response()
}

/// The way to the supervisor.
#[derive(Clone, Debug)]
struct Supervisor {
    questions: Sender<Question>,
}

/// Why there is no report.
#[derive(Clone, Copy, Debug)]
enum Silent {
    /// The daemon is ending.
    Stopping,
    /// Too many ask at once.
    Busy,
    /// The supervisor does not answer.
    Stuck,
}

impl Supervisor {
    async fn ask(&self) -> Result<Report, Silent> {
        let (reply, answer) = oneshot::channel();
        self.questions.try_send(Question(reply)).map_err(|error| match error {
            crossbeam_channel::TrySendError::Full(_) => Silent::Busy,
            crossbeam_channel::TrySendError::Disconnected(_) => Silent::Stopping,
        })?;
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(_)) => Err(Silent::Stopping),
            Err(_) => Err(Silent::Stuck),
        }
    }
}

impl IntoResponse for Silent {
    fn into_response(self) -> Response {
        let words = match self {
            Self::Stopping => "the daemon is stopping\n".to_owned(),
            Self::Busy => "too many ask at once; ask again\n".to_owned(),
            Self::Stuck => format!("main: no answer for {} s\n", ANSWER_WITHIN.as_secs()),
        };
        text(StatusCode::SERVICE_UNAVAILABLE, words)
    }
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program does already (ss -ltnp shows which)".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => "this machine does not have this address".to_owned(),
        std::io::ErrorKind::PermissionDenied => "ports below 1024 are for root".to_owned(),
        _ => error.to_string(),
    }
}
