//! Logs and counts: the log's set-up, every counter there is, and their names.
//!
//! Counters are atomics that the frame path adds to; histograms are touched by one worker each and read now and then.
//! [`Telemetry::snapshot`] is the one picture of all of it: the `health` message, the dump at USR1 and the summary at
//! the end are made from it.

mod log;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
pub use log::init_logging;
use serde::Serialize;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Release);
    }

    /// The sum so far. Whoever sees an addition also sees every addition that came before it, so an end that is counted
    /// here has its beginning counted too.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a frame that reached us got no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A newer frame of the same camera took its place before a device was free.
    Stale,
    /// The camera's `rate_max` lets fewer frames through.
    Rate,
    /// Its deadline had passed.
    Late,
    /// The device reported an error for its batch.
    Failed,
    /// The daemon was ending.
    Stopped,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Stale, Self::Rate, Self::Late, Self::Failed, Self::Stopped];

    /// The value of the label `reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Rate => "rate",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// The stages between a picture's data entering the video decoder and its event. They add up to that time exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stages<T> {
    /// In the video decoder.
    pub video_decode: T,
    /// Waiting in the mailbox.
    pub queue: T,
    /// Being written into the batch.
    pub preprocess: T,
    /// In the batch, waiting for it to be full or due.
    pub batch_wait: T,
    /// On the device.
    pub infer: T,
    /// Decoding the output, suppression, making the event.
    pub postprocess: T,
}

impl<T: Copy> Stages<T> {
    /// The same stages, each changed by `f`.
    pub fn map<R>(&self, mut f: impl FnMut(T) -> R) -> Stages<R> {
        Stages {
            video_decode: f(self.video_decode),
            queue: f(self.queue),
            preprocess: f(self.preprocess),
            batch_wait: f(self.batch_wait),
            infer: f(self.infer),
            postprocess: f(self.postprocess),
        }
    }
}

/// Counts of one camera.
#[derive(Debug)]
pub struct CameraTelemetry {
    /// The camera's id.
    pub camera: String,
    /// Encoded pictures that entered the video decoder.
    pub encoded: Counter,
    /// Decoded frames that reached us.
    pub frames: Counter,
    /// Frames that came in a format which had to be converted first.
    pub converted: Counter,
    /// Frames whose memory made no sense and were thrown away.
    pub unusable: Counter,
    /// Pictures that were not made because all memory of the camera's pool was in use.
    pub exhausted: Counter,
    /// Connections that delivered at least one frame.
    pub connects: Counter,
    /// Attempts that failed, and connections that broke.
    pub failures: Counter,
    /// The camera's state in one word, for people.
    state: Mutex<String>,
}

impl CameraTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(camera: &str) -> Self {
        Self {
            camera: camera.to_owned(),
            encoded: Counter::default(),
            frames: Counter::default(),
            converted: Counter::default(),
            unusable: Counter::default(),
            exhausted: Counter::default(),
            connects: Counter::default(),
            failures: Counter::default(),
            state: Mutex::new("connecting".to_owned()),
        }
    }

    /// Notes the camera's state.
    pub fn set_state(&self, state: &str) {
        state.clone_into(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The state noted last.
    #[must_use]
    pub fn state(&self) -> String {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts of one camera's frames on their way through one model.
/// `offered = published + empty + dropped + in flight`, always.
#[derive(Debug)]
pub struct RouteTelemetry {
    /// The camera's id.
    pub camera: String,
    /// The model's name.
    pub model: String,
    /// Frames that the source offered.
    pub offered: Counter,
    /// Events handed to the sinks.
    pub published: Counter,
    /// Results without a detection that were not published.
    pub empty: Counter,
    /// Detections in all events.
    pub detections: Counter,
    dropped: [Counter; DropReason::ALL.len()],
    latency: Mutex<Latency>,
}

impl RouteTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(camera: &str, model: &str) -> Self {
        Self {
            camera: camera.to_owned(),
            model: model.to_owned(),
            offered: Counter::default(),
            published: Counter::default(),
            empty: Counter::default(),
            detections: Counter::default(),
            dropped: Default::default(),
            latency: Mutex::new(Latency::new()),
        }
    }

    /// Counts a frame that gets no result.
    pub fn dropped(&self, reason: DropReason) {
        self.dropped[reason as usize].add(1);
    }

    /// How many frames got no result for `reason`.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].get()
    }

    /// Notes how long each stage took and how old the picture is now, if it has an age.
    pub fn observe(&self, stages: &Stages<Duration>, age: Option<Duration>) {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).record(stages, age);
    }

    /// Frames that were offered and have not ended yet.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let dropped: u64 = DropReason::ALL.into_iter().map(|reason| self.drops(reason)).sum();
        let ended = self.published.get() + self.empty.get() + dropped;
        self.offered.get().saturating_sub(ended)
    }

    fn snapshot(&self) -> RouteSnapshot {
        let dropped: BTreeMap<_, _> =
            DropReason::ALL.into_iter().map(|reason| (reason.name(), self.drops(reason))).collect();
        // Ends before beginnings, so that a frame which moves on meanwhile is in flight and never below zero.
        let (published, empty) = (self.published.get(), self.empty.get());
        let ended = published + empty + dropped.values().sum::<u64>();
        let offered = self.offered.get();
        let latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        RouteSnapshot {
            camera: self.camera.clone(),
            model: self.model.clone(),
            offered,
            published,
            empty,
            detections: self.detections.get(),
            dropped,
            in_flight: offered.saturating_sub(ended),
            age_ms: latency.age.quantiles(),
            stage_ms: latency.stages(),
        }
    }
}

/// Counts of one device.
#[derive(Debug)]
pub struct DeviceTelemetry {
    /// The device's id.
    pub device: String,
    /// Batches that ran.
    pub batches: Counter,
    /// Frames in them.
    pub frames: Counter,
    /// Batches that failed.
    pub errors: Counter,
}

impl DeviceTelemetry {
    /// All zero.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            batches: Counter::default(),
            frames: Counter::default(),
            errors: Counter::default(),
        }
    }
}

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
    acknowledged: Mutex<Distribution>,
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
            acknowledged: Mutex::new(Distribution::new()),
        }
    }

    /// Notes how long after its making an event was acknowledged by the other side.
    pub fn observe_acknowledged(&self, after: Duration) {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).record(after);
    }

    fn acknowledged(&self) -> Option<Quantiles> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).quantiles()
    }
}

/// All counters of a running daemon.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// One for each camera.
    pub cameras: Vec<Arc<CameraTelemetry>>,
    /// One for each camera and model.
    pub routes: Vec<Arc<RouteTelemetry>>,
    /// One for each device.
    pub devices: Vec<Arc<DeviceTelemetry>>,
    /// One for each sink.
    pub sinks: Vec<Arc<SinkTelemetry>>,
}

impl Telemetry {
    /// All counters at one moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let camera = |camera: &Arc<CameraTelemetry>| CameraSnapshot {
            camera: camera.camera.clone(),
            state: camera.state(),
            encoded: camera.encoded.get(),
            frames: camera.frames.get(),
            converted: camera.converted.get(),
            unusable: camera.unusable.get(),
            exhausted: camera.exhausted.get(),
            connects: camera.connects.get(),
            failures: camera.failures.get(),
        };
        let device = |device: &Arc<DeviceTelemetry>| DeviceSnapshot {
            device: device.device.clone(),
            batches: device.batches.get(),
            frames: device.frames.get(),
            errors: device.errors.get(),
        };
        let sink = |sink: &Arc<SinkTelemetry>| {
            let (delivered, dropped) = (sink.delivered.get(), sink.dropped.get());
            let queued = sink.queued.get();
            SinkSnapshot {
                sink: sink.sink.clone(),
                queued,
                delivered,
                dropped,
                waiting: queued.saturating_sub(delivered + dropped),
                connects: sink.connects.get(),
                failures: sink.failures.get(),
                ack_ms: sink.acknowledged(),
            }
        };
        Snapshot {
            cameras: self.cameras.iter().map(camera).collect(),
            routes: self.routes.iter().map(|route| route.snapshot()).collect(),
            devices: self.devices.iter().map(device).collect(),
            sinks: self.sinks.iter().map(sink).collect(),
            memory_resident_bytes: resident_bytes(),
        }
    }
}

/// All counters at one moment. Field names are part of the `health` message.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Cameras in the order of the config.
    pub cameras: Vec<CameraSnapshot>,
    /// Each camera's models in the order of the config.
    pub routes: Vec<RouteSnapshot>,
    /// Devices in the order of the config.
    pub devices: Vec<DeviceSnapshot>,
    /// Sinks.
    pub sinks: Vec<SinkSnapshot>,
    /// Memory of the process that is in RAM.
    pub memory_resident_bytes: u64,
}

/// See [`CameraTelemetry`].
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in CameraTelemetry")]
pub struct CameraSnapshot {
    pub camera: String,
    pub state: String,
    pub encoded: u64,
    pub frames: u64,
    pub converted: u64,
    pub unusable: u64,
    pub exhausted: u64,
    pub connects: u64,
    pub failures: u64,
}

/// See [`RouteTelemetry`].
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in RouteTelemetry")]
pub struct RouteSnapshot {
    pub camera: String,
    pub model: String,
    pub offered: u64,
    pub published: u64,
    pub empty: u64,
    pub detections: u64,
    pub dropped: BTreeMap<&'static str, u64>,
    pub in_flight: u64,
    pub age_ms: Option<Quantiles>,
    pub stage_ms: Stages<Option<Quantiles>>,
}

/// See [`DeviceTelemetry`].
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "each field is documented where it is counted, in DeviceTelemetry")]
pub struct DeviceSnapshot {
    pub device: String,
    pub batches: u64,
    pub frames: u64,
    pub errors: u64,
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
    pub ack_ms: Option<Quantiles>,
}

/// What half, 95 % and 99 % of the values do not exceed, and the largest, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// 95 % do not exceed it.
    pub p95: f64,
    /// 99 % do not exceed it.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
}

#[derive(Debug)]
struct Latency {
    age: Distribution,
    stages: Stages<usize>,
    values: Vec<Distribution>,
}

impl Latency {
    fn new() -> Self {
        let stages =
            Stages { video_decode: 0, queue: 1, preprocess: 2, batch_wait: 3, infer: 4, postprocess: 5 };
        Self { age: Distribution::new(), stages, values: (0..6).map(|_| Distribution::new()).collect() }
    }

    fn record(&mut self, stages: &Stages<Duration>, age: Option<Duration>) {
        let mut index = 0;
        // `map` walks the stages in one fixed order, here and in `new`.
        stages.map(|value| {
            self.values[index].record(value);
            index += 1;
        });
        if let Some(age) = age {
            self.age.record(age);
        }
    }

    fn stages(&self) -> Stages<Option<Quantiles>> {
        self.stages.map(|index| self.values[index].quantiles())
    }
}

/// Durations from 1 µs to 10 minutes with 2 significant digits.
#[derive(Debug)]
struct Distribution(Histogram<u64>);

impl Distribution {
    const MAX_US: u64 = 600_000_000;

    fn new() -> Self {
        Self(Histogram::new_with_bounds(1, Self::MAX_US, 2).expect("the bounds are constant and valid"))
    }

    fn record(&mut self, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(Self::MAX_US);
        self.0.saturating_record(micros.clamp(1, Self::MAX_US));
    }

    fn quantiles(&self) -> Option<Quantiles> {
        #[expect(clippy::cast_precision_loss, reason = "at most 10 minutes in microseconds")]
        let ms = |micros: u64| micros as f64 / 1e3;
        let at = |quantile| ms(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Quantiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: ms(self.0.max()),
        })
    }
}

/// Memory of this process that is in RAM, in bytes; 0 where `/proc` does not tell.
#[must_use]
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// A reason, and that whatever failed is tried again; a reason may end with a question.
#[must_use]
pub fn is_tried_again(reason: &str) -> String {
    let link = if reason.ends_with('?') { " It" } else { "; it" };
    format!("{reason}{link} is tried again until it comes back")
}

/// An error with its causes, in one line. A chain is told once, where it is decided.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Text that somebody else wrote, such as a file's name, without what would command a terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut printable, c| {
        if c.is_control() {
            printable.extend(c.escape_debug());
        } else {
            printable.push(c);
        }
        printable
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offered_frame_is_published_empty_dropped_or_in_flight() {
        let route = RouteTelemetry::new("press-1", "line-parts");
        route.offered.add(10);
        route.published.add(3);
        route.empty.add(2);
        route.dropped(DropReason::Stale);
        route.dropped(DropReason::Late);
        let snapshot = route.snapshot();
        assert_eq!(snapshot.in_flight, 3);
        assert_eq!(snapshot.dropped["stale"], 1);
        assert_eq!(snapshot.dropped["late"], 1);
    }

    #[test]
    fn stages_keep_their_names_in_the_quantiles() {
        let route = RouteTelemetry::new("a", "m");
        let ms = Duration::from_millis;
        let stages = Stages {
            video_decode: ms(1),
            queue: ms(2),
            preprocess: ms(3),
            batch_wait: ms(4),
            infer: ms(5),
            postprocess: ms(6),
        };
        route.observe(&stages, Some(ms(21)));
        let seen = route.snapshot();
        let max = seen.stage_ms.map(|quantiles| quantiles.unwrap().max.round());
        assert_eq!((max.video_decode, max.preprocess, max.postprocess), (1.0, 3.0, 6.0));
        assert_eq!(seen.age_ms.unwrap().p50.round(), 21.0);
    }

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident_bytes() > 1 << 20);
    }
}
