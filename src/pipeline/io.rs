//! The `io` thread: one runtime for the MQTT sink and what is beside it.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::publish::encode::{Identity, Topics};
use crate::publish::mqtt::{self, MqttControl};
use crate::publish::{MqttConfig, SinkEnd, SinkInbox};
use crate::threads::Heartbeat;

/// Work for the `io` thread beside the sink's: it has no end, and is dropped with the thread's.
pub type IoTask = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Infallible>>> + Send>;

/// What the `io` thread is for.
pub(super) struct IoWork {
    /// The MQTT sink, if there is one; the thread ends with it.
    pub(super) mqtt: Option<(MqttConfig, SinkInbox, MqttControl)>,
    /// Other work.
    pub(super) beside: Option<IoTask>,
    /// Where there is no sink the thread ends when the other half of this is dropped.
    pub(super) ended: oneshot::Receiver<()>,
}

impl IoWork {
    /// Works until its end; says how the sink ended.
    pub(super) fn run(self, identity: &Identity, topics: &Topics, heartbeat: &Heartbeat) -> Option<SinkEnd> {
        let Self { mqtt, beside, ended } = self;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .thread_name("io/dns")
            .build()
            .expect("a runtime of the current thread needs nothing that could be missing");
        let sink = async {
            match &mqtt {
                Some((config, inbox, control)) => {
                    Some(mqtt::run(config, identity, topics, inbox, control).await)
                }
                None => {
                    // Nothing is sent: the end of the other half is the message.
                    drop(ended.await);
                    None
                }
            }
        };
        let beside = async {
            match beside {
                Some(task) => task().await,
                None => std::future::pending().await,
            }
        };
        let beat = async {
            let mut tick = tokio::time::interval(Duration::from_secs(1));
            loop {
                tick.tick().await;
                heartbeat.beat();
            }
        };
        let end = runtime.block_on(async {
            tokio::select! {
                end = sink => end,
                never = beside => match never {},
                () = beat => unreachable!("the beat has no end"),
            }
        });
        // A name that is being resolved must not hold up the end.
        runtime.shutdown_background();
        end
    }
}
