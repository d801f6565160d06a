//! What is counted of a camera's frames on their way through a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Counter;
use super::histogram::{Counts, Distribution, Quantiles, Reading};

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

impl<T> Stages<T> {
    /// Every stage with its name, in the order in which a frame goes through them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &T); 6] {
        [
            ("video_decode", &self.video_decode),
            ("queue", &self.queue),
            ("preprocess", &self.preprocess),
            ("batch_wait", &self.batch_wait),
            ("infer", &self.infer),
            ("postprocess", &self.postprocess),
        ]
    }

    /// The same stages, each made into something else by `f`, in their order.
    pub fn each<R>(&self, mut f: impl FnMut(&T) -> R) -> Stages<R> {
        Stages {
            video_decode: f(&self.video_decode),
            queue: f(&self.queue),
            preprocess: f(&self.preprocess),
            batch_wait: f(&self.batch_wait),
            infer: f(&self.infer),
            postprocess: f(&self.postprocess),
        }
    }
}

impl<T: Copy> Stages<T> {
    /// The same stages, each changed by `f`, in their order.
    pub fn map<R>(&self, mut f: impl FnMut(T) -> R) -> Stages<R> {
        self.each(|value| f(*value))
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
    /// Results among those that came after their deadline, where late results are wanted. The others are dropped.
    pub late: Counter,
    /// Detections in all events.
    pub detections: Counter,
    /// From the making of an event until a sink had written it or handed it to the client that sends it. Its messages
    /// carry it to the sinks.
    pub publish: Arc<Distribution>,
    dropped: [Counter; DropReason::ALL.len()],
    age: Distribution,
    stages: Stages<Distribution>,
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
    pub late: u64,
    pub detections: u64,
    pub dropped: BTreeMap<&'static str, u64>,
    pub in_flight: u64,
    /// Since the start.
    #[serde(flatten)]
    pub since_start: RouteQuantiles,
    /// In the last minute.
    pub minute: RouteQuantiles,
    /// What the quantiles were made of.
    #[serde(skip)]
    pub readings: RouteReadings,
}

/// How long everything takes on a route, over some time.
#[derive(Clone, Debug, Serialize)]
pub struct RouteQuantiles {
    /// From a picture's capture to its event, where that is known.
    pub age_ms: Option<Quantiles>,
    /// Each stage.
    pub stage_ms: Stages<Option<Quantiles>>,
    /// See [`RouteTelemetry::publish`].
    pub publish_ms: Option<Quantiles>,
}

/// See [`RouteQuantiles`].
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is documented in RouteQuantiles")]
pub struct RouteReadings {
    pub age: Reading,
    pub stages: Stages<Reading>,
    pub publish: Reading,
}

/// The times of several routes together, at one moment or between two. See [`RouteQuantiles`].
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each field is documented in RouteQuantiles")]
pub struct RouteCounts {
    pub age: Counts,
    pub stages: Stages<Counts>,
    pub publish: Counts,
}

impl RouteCounts {
    /// Adds all that a route holds.
    pub fn add(&mut self, route: &RouteTelemetry) {
        self.age.add(&route.age);
        self.publish.add(&route.publish);
        let stages = &mut self.stages;
        stages.video_decode.add(&route.stages.video_decode);
        stages.queue.add(&route.stages.queue);
        stages.preprocess.add(&route.stages.preprocess);
        stages.batch_wait.add(&route.stages.batch_wait);
        stages.infer.add(&route.stages.infer);
        stages.postprocess.add(&route.stages.postprocess);
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut before = earlier.stages.named().into_iter();
        Self {
            age: self.age.since(&earlier.age),
            stages: self.stages.each(|stage| stage.since(before.next().expect("there are as many stages").1)),
            publish: self.publish.since(&earlier.publish),
        }
    }
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
            late: Counter::default(),
            detections: Counter::default(),
            publish: Arc::default(),
            dropped: Default::default(),
            age: Distribution::default(),
            stages: Stages::default(),
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
        for ((_, stage), (_, took)) in self.stages.named().into_iter().zip(stages.named()) {
            stage.record(*took);
        }
        if let Some(age) = age {
            self.age.record(age);
        }
    }

    /// Frames that were offered and have not ended yet.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let dropped: u64 = DropReason::ALL.into_iter().map(|reason| self.drops(reason)).sum();
        let ended = self.published.get() + self.empty.get() + dropped;
        self.offered.get().saturating_sub(ended)
    }

    pub(super) fn turn(&self, now: Instant) {
        self.stages.each(|stage| stage.turn(now));
        self.age.turn(now);
        self.publish.turn(now);
    }

    pub(super) fn snapshot(&self, now: Instant) -> RouteSnapshot {
        let dropped: BTreeMap<_, _> =
            DropReason::ALL.into_iter().map(|reason| (reason.name(), self.drops(reason))).collect();
        // Ends before beginnings, so that a frame which moves on meanwhile is in flight and never below zero.
        let (published, empty) = (self.published.get(), self.empty.get());
        let ended = published + empty + dropped.values().sum::<u64>();
        let offered = self.offered.get();
        let readings = RouteReadings {
            age: self.age.read(now),
            stages: self.stages.each(|stage| stage.read(now)),
            publish: self.publish.read(now),
        };
        RouteSnapshot {
            camera: self.camera.clone(),
            model: self.model.clone(),
            offered,
            published,
            empty,
            late: self.late.get(),
            detections: self.detections.get(),
            dropped,
            in_flight: offered.saturating_sub(ended),
            since_start: readings.quantiles(|reading| reading.quantiles),
            minute: readings.quantiles(|reading| reading.minute_quantiles),
            readings,
        }
    }
}

impl RouteReadings {
    fn quantiles(&self, of: impl Fn(&Reading) -> Option<Quantiles>) -> RouteQuantiles {
        RouteQuantiles {
            age_ms: of(&self.age),
            stage_ms: self.stages.each(&of),
            publish_ms: of(&self.publish),
        }
    }
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
        let snapshot = route.snapshot(Instant::now());
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
        route.publish.record(ms(9));
        let seen = route.snapshot(Instant::now());
        for over in [&seen.since_start, &seen.minute] {
            let max = over.stage_ms.map(|quantiles| quantiles.unwrap().max.round());
            assert_eq!(max.named().map(|(_, max)| *max), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            assert_eq!(over.age_ms.unwrap().p50.round(), 21.0);
            assert_eq!(over.publish_ms.unwrap().p50.round(), 9.0);
        }
    }
}
