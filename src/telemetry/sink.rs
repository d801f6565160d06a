//! What is counted of a sink.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Counter;
use super::histogram::{Distribution, Quantiles, Reading};

/// Counts of one sink.
#[derive(Debug)]
pub struct SinkTelemetry {
    /// The sink's name.
    pub sink: String,
    /// Events put into its queue.
    pub queued: Counter,
    /// Events that it delivered: written, or acknowledged by the broker.
    pub delivered: Counter,
    /// Events that a full queue pushed out, oldest first, that the other side refused, or that were left at the end.
    pub dropped: Counter,
    /// Times that its connection was made.
    pub connects: Counter,
    /// Times that a connection broke or could not be made.
    pub failures: Counter,
    acknowledged: Distribution,
}

/// See [`SinkTelemetry`]; `waiting` is what is queued and neither delivered nor dropped, `ack_ms` the time from the
/// making of an event to its acknowledgement, none where nobody acknowledges (standard output, QoS 0).
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in SinkTelemetry")]
pub struct SinkSnapshot {
    pub sink: String,
    pub queued: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub waiting: u64,
    pub connects: u64,
    pub failures: u64,
    /// Since the start.
    #[serde(flatten)]
    pub since_start: SinkQuantiles,
    /// In the last minute.
    pub minute: SinkQuantiles,
    /// What the quantiles were made of.
    #[serde(skip)]
    pub acknowledged: Reading,
}

/// How long a sink takes, over some time.
#[derive(Clone, Debug, Serialize)]
pub struct SinkQuantiles {
    /// From the making of an event to its acknowledgement.
    pub ack_ms: Option<Quantiles>,
}

impl SinkTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(sink: &str) -> Self {
        Self {
            sink: sink.to_owned(),
            queued: Counter::default(),
            delivered: Counter::default(),
            dropped: Counter::default(),
            connects: Counter::default(),
            failures: Counter::default(),
            acknowledged: Distribution::default(),
        }
    }

    /// Notes how long after its making an event was acknowledged by the other side.
    pub fn observe_acknowledged(&self, after: Duration) {
        self.acknowledged.record(after);
    }

    pub(super) fn turn(&self, now: Instant) {
        self.acknowledged.turn(now);
    }

    pub(super) fn snapshot(&self, now: Instant) -> SinkSnapshot {
        // Ends before beginnings, as for routes.
        let (delivered, dropped) = (self.delivered.get(), self.dropped.get());
        let queued = self.queued.get();
        let acknowledged = self.acknowledged.read(now);
        SinkSnapshot {
            sink: self.sink.clone(),
            queued,
            delivered,
            dropped,
            waiting: queued.saturating_sub(delivered + dropped),
            connects: self.connects.get(),
            failures: self.failures.get(),
            since_start: SinkQuantiles { ack_ms: acknowledged.quantiles },
            minute: SinkQuantiles { ack_ms: acknowledged.minute_quantiles },
            acknowledged,
        }
    }
}
