//! MQTT: the only user of the MQTT client.
//!
//! [`run`] is the sink: one future on the `io` thread's runtime that connects, serves the connection (`session`), and
//! connects again, for ever, until it is told to stop. [`MqttHandle`] is what other threads hold: it never blocks and
//! holds at most one message a topic.
//!
//! # What is promised
//!
//! - The will and the birth message are the same `gantry.status/1`, retained, QoS 1. A clean stop publishes `offline`
//!   with the reason `stopped` as its last message.
//! - An event leaves the bounded queue only when the connection has room for it, and is forgotten only when the broker
//!   has acknowledged it (QoS 0: when it is written). When a connection breaks, what was not acknowledged is sent again
//!   first, in its order, on the next one. So nothing is lost that is not counted as dropped, and at QoS 1 *and* 2 a
//!   subscriber may see an event twice across a broken connection; within a connection QoS 2 is exactly once.
//! - The client's own memory of unacknowledged messages is not used: it forgets them when the broker has lost the
//!   session, which is what a broker without a disk does.

mod cause;
mod flight;
mod session;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::encode::{Identity, Topics};
use super::{MqttConfig, SinkEnd, SinkInbox};
use crate::telemetry::is_tried_again;
pub use cause::MqttError;
use session::{Ending, Trouble};

/// How long a stop may take unless the caller says otherwise.
pub const STOP_WITHIN: Duration = Duration::from_secs(5);

/// What the supervisor holds of the MQTT sink. No call blocks. Dropping it stops the sink within [`STOP_WITHIN`].
#[derive(Debug)]
pub struct MqttHandle {
    shared: Arc<Shared>,
}

/// The sink's end of a [`MqttHandle`], for [`run`].
#[derive(Debug)]
pub struct MqttControl {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Notify,
}

/// What other threads want of the sink. The newest message of a topic displaces the one before, so there are at most as
/// many as topics.
#[derive(Debug, Default)]
struct Wanted {
    retained: BTreeMap<Arc<str>, Bytes>,
    /// Topics whose newest message this connection has not sent yet.
    unsent: BTreeSet<Arc<str>>,
    health: Option<Bytes>,
    stop: Option<Stop>,
}

/// When a stop must be over.
#[derive(Clone, Copy, Debug)]
struct Stop {
    asked: Instant,
    /// No event is sent any more from here on, so that the farewell still has time.
    farewell: Instant,
    deadline: Instant,
}

/// Both ends of the control of a MQTT sink.
#[must_use]
pub fn control() -> (MqttHandle, MqttControl) {
    let shared = Arc::new(Shared { wanted: Mutex::default(), changed: Notify::new() });
    (MqttHandle { shared: Arc::clone(&shared) }, MqttControl { shared })
}

/// Publishes what comes through `inbox` and `control` to the broker of `config` until it is told to stop. It connects
/// again whenever it must, for ever; each new cause of a failure is logged once.
///
/// `delivering` is whether a broker is connected. Runs on a current-thread runtime with I/O and time. A broker's name is
/// resolved on the runtime's blocking thread. Dropping the future drops the connection without a farewell, so the broker
/// publishes the will.
pub async fn run(
    config: &MqttConfig,
    identity: &Identity,
    topics: &Topics,
    inbox: &SinkInbox,
    control: &MqttControl,
) -> SinkEnd {
    let telemetry = Arc::clone(&inbox.shared.telemetry);
    let mut broker = session::Broker::new(config, identity, topics, inbox, control);
    let mut backoff = Backoff::default();
    let mut told: Option<String> = None;
    let failed = loop {
        let began = Instant::now();
        let Trouble { connected_for, error } = match broker.run_once().await {
            Ending::Farewell => break None,
            Ending::OutOfTime => break Some("the broker did not take everything in time".to_owned()),
            Ending::Trouble(trouble) => trouble,
        };
        inbox.shared.delivering.store(false, Ordering::Release);
        telemetry.failures.add(1);
        if connected_for > Duration::ZERO {
            told = None;
        }
        let reason = error.to_string();
        let retry_in = backoff.next(connected_for, fastrand::f64());
        let address = format_args!("{}:{}", config.host, config.port);
        if told.as_ref() == Some(&reason) {
            debug!(?retry_in, "MQTT broker {address}: {reason}");
        } else {
            warn!("MQTT broker {address}: {}", is_tried_again(&reason));
        }
        // While stopping, one more try says whether the broker can still be reached.
        if connected_for == Duration::ZERO && control.stop().is_some_and(|stop| stop.asked <= began) {
            break Some(reason);
        }
        told = Some(reason);
        control.stopped_within(retry_in).await;
    };
    let left = broker.backlog.len() as u64;
    telemetry.dropped.add(left);
    let left = left + inbox.end();
    match failed {
        None if left == 0 => {
            info!("the MQTT broker has everything; disconnected");
            SinkEnd::Drained
        }
        failed => {
            let why = failed.unwrap_or_else(|| "there was no time to send them".to_owned());
            let reason = format!("{left} events were not delivered to the MQTT broker: {why}");
            warn!("{reason}");
            SinkEnd::Closed(reason)
        }
    }
}

impl MqttHandle {
    /// Publishes a retained message now and after each connect, until the next one for the same topic. A message equal
    /// to the topic's last one is not sent again.
    pub fn set_retained(&self, topic: Arc<str>, payload: Bytes) {
        self.shared.want(|wanted| {
            if wanted.retained.get(&topic) != Some(&payload) {
                wanted.retained.insert(Arc::clone(&topic), payload);
                wanted.unsent.insert(topic);
            }
        });
    }

    /// Publishes a health message, QoS 0: one that is lost is followed by the next. While no broker is connected only
    /// the newest is kept.
    pub fn health(&self, payload: Bytes) {
        self.shared.want(|wanted| wanted.health = Some(payload));
    }

    /// Asks the sink to deliver what it has, say goodbye and end, all `within` this time. Only the first call counts.
    /// Call it once no more events will come.
    pub fn stop(&self, within: Duration) {
        let asked = Instant::now();
        let stop = Stop { asked, farewell: asked + within.mul_f64(0.8), deadline: asked + within };
        self.shared.want(|wanted| {
            wanted.stop.get_or_insert(stop);
        });
    }
}

impl Drop for MqttHandle {
    fn drop(&mut self) {
        self.stop(STOP_WITHIN);
    }
}

impl Shared {
    fn want<R>(&self, change: impl FnOnce(&mut Wanted) -> R) -> R {
        let result = change(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
        result
    }
}

impl MqttControl {
    fn wanted<R>(&self, look: impl FnOnce(&mut Wanted) -> R) -> R {
        look(&mut self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stop(&self) -> Option<Stop> {
        self.wanted(|wanted| wanted.stop)
    }

    /// Waits so long, or until a stop is asked for.
    async fn stopped_within(&self, wait: Duration) {
        let asked = async {
            while self.stop().is_none() {
                self.shared.changed.notified().await;
            }
        };
        // Either way the caller looks for itself.
        drop(tokio::time::timeout(wait, asked).await);
    }

    /// Waits for the deadline of a stop that may still be to come.
    async fn out_of_time(&self) {
        loop {
            match self.stop() {
                Some(stop) => return tokio::time::sleep_until(stop.deadline.into()).await,
                None => self.shared.changed.notified().await,
            }
        }
    }
}

/// How long to wait before the next try: doubling from [`Backoff::FIRST`] to [`Backoff::MAX`], each time somewhere in the
/// upper half of that, so that a broker which comes back is not met by all nodes at once.
#[derive(Clone, Debug)]
struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

impl Backoff {
    /// The first wait, before chance.
    const FIRST: Duration = Duration::from_millis(200);
    /// The longest wait.
    const MAX: Duration = Duration::from_secs(10);
    /// A connection that held for this long was a good one. Two clients that throw each other out never get so far.
    const RESET_AFTER: Duration = Duration::from_secs(10);

    /// The next wait, after a connection that held for `connected_for`; `chance` is a random number in `0.0..1.0`.
    fn next(&mut self, connected_for: Duration, chance: f64) -> Duration {
        if connected_for >= Self::RESET_AFTER {
            self.next = Self::FIRST;
        }
        let wait = self.next.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        self.next = (self.next * 2).min(Self::MAX);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_cap_and_a_good_connection_resets_them() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(backoff.next(Duration::from_secs(1), 0.0), Duration::from_secs(5), "a short one does not");
        assert_eq!(backoff.next(Duration::from_secs(60), 1.0), Backoff::FIRST);
    }

    #[test]
    fn a_topic_keeps_its_newest_message_and_sends_it_once() {
        let (handle, control) = control();
        for payload in ["1", "2", "2"] {
            handle.set_retained("a/state".into(), Bytes::from(payload));
        }
        let unsent = || control.wanted(|wanted| wanted.unsent.pop_first());
        assert_eq!(unsent().as_deref(), Some("a/state"));
        assert_eq!(control.wanted(|wanted| wanted.retained["a/state"].clone()), "2");
        handle.set_retained("a/state".into(), Bytes::from("2"));
        assert_eq!(unsent(), None, "nothing new");
    }

    #[test]
    fn only_the_first_stop_counts_and_a_dropped_handle_stops() {
        let (handle, control) = control();
        assert!(control.stop().is_none());
        handle.stop(Duration::from_secs(1));
        let first = control.stop().unwrap();
        assert_eq!(first.deadline - first.asked, Duration::from_secs(1));
        drop(handle);
        assert_eq!(control.stop().unwrap().deadline, first.deadline);

        let (handle, control) = super::control();
        drop(handle);
        let stop = control.stop().unwrap();
        assert_eq!(stop.deadline - stop.asked, STOP_WITHIN);
    }
}
