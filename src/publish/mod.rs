//! Events and where they go.
//!
//! [`event`] is the wire contract, and [`encode`] writes it, into the memory of [`payload`]. The worker encodes an event
//! once, and [`encode::TopicSequence::publish`] numbers it and puts it into every sink's bounded queue. [`jsonl`] writes
//! standard output on its own thread; [`mqtt`] runs on the `io` thread.
//!
//! A sink counts every event exactly once more: `queued = delivered + dropped + waiting`, and `waiting` is zero once the
//! sink has ended.

pub mod encode;
pub mod event;
pub mod jsonl;
pub mod mqtt;
pub mod payload;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TryRecvError};

use crate::secret::Secret;
use crate::telemetry::SinkTelemetry;
use crate::telemetry::histogram::Distribution;

/// The `publish` section of a config.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishConfig {
    /// Which results become a message.
    pub detections: Publish,
    /// Whether each message is also written to standard output, one JSON object a line.
    pub stdout: bool,
    /// The broker, if there is one.
    pub mqtt: Option<MqttConfig>,
}

/// Which results become a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Those with at least one detection.
    Nonempty,
    /// All.
    EveryFrame,
}

/// The `publish.mqtt` section of a config.
#[derive(Clone, Debug, PartialEq)]
pub struct MqttConfig {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether the connection is TLS (`mqtts://`).
    pub tls: bool,
    /// Certificates to trust, PEM; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// Our certificate, PEM, where the broker asks for one.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// Client id; `gantry-<node>` unless given.
    pub client_id: String,
    /// 0, 1 or 2, for detections.
    pub qos: u8,
    /// First segments of every topic.
    pub prefix: String,
    /// Messages that wait while the broker is away; then the oldest is dropped.
    pub queue: usize,
}

/// An encoded message for every sink.
#[derive(Clone, Debug)]
pub struct Message {
    /// Full topic.
    pub topic: Arc<str>,
    /// JSON, one line without its end.
    pub payload: Bytes,
    /// When the event was made.
    pub made: Made,
}

/// When an event was made. What follows is timed from here.
#[derive(Clone, Debug)]
pub struct Made {
    /// On the monotonic clock.
    pub at: Instant,
    /// Where the time until a sink has written it, or handed it to the client that sends it, is noted.
    pub publish: Arc<Distribution>,
}

impl Made {
    /// Notes that a sink has written the event, or handed it over, at `now`.
    pub fn handed_over(&self, now: Instant) {
        self.publish.record(now.saturating_duration_since(self.at));
    }
}

/// How a producer deals with a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The oldest message is dropped and counted. Live cameras.
    DropOldest,
    /// The producer waits while the sink is able to deliver, and drops the oldest otherwise. Lossless sources.
    Wait,
}

/// The producer's end of one sink's queue.
#[derive(Clone, Debug)]
pub struct SinkQueue {
    queue: Sender<Message>,
    oldest: Receiver<Message>,
    shared: Producer,
}

/// What a producer shares with the sink. It comes after the queue, so that a sink which is woken by its drop sees that the
/// producer has gone.
#[derive(Clone, Debug)]
struct Producer(Arc<SinkShared>);

impl Drop for Producer {
    fn drop(&mut self) {
        self.0.wake_thread();
    }
}

/// What a sink and its producers share.
#[derive(Debug)]
pub struct SinkShared {
    /// Counts.
    pub telemetry: Arc<SinkTelemetry>,
    /// Whether the sink is able to deliver now: a broker is connected, a pipe is open.
    pub delivering: AtomicBool,
    /// Wakes a sink that is a task.
    pub filled: tokio::sync::Notify,
    /// Whether a sink that is a thread sleeps, or is about to, and wants to be woken.
    asleep: AtomicBool,
    /// That thread.
    thread: OnceLock<Thread>,
    /// Whether the sink takes nothing any more, for good.
    ended: AtomicBool,
}

/// The sink's end of its queue.
#[derive(Debug)]
pub struct SinkInbox {
    /// Messages, oldest first.
    pub queue: Receiver<Message>,
    /// What it shares with its producers.
    pub shared: Arc<SinkShared>,
}

/// How a sink ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEnd {
    /// Everything that it was given is delivered, or was counted as dropped while the sink ran.
    Drained,
    /// It ended early for this reason, in words; what was left is counted as dropped.
    Closed(String),
}

/// Both ends of a sink's queue over this bounded channel. The policy for a full queue is the producer's [`WhenFull`];
/// what it costs is counted in [`SinkTelemetry::dropped`].
#[must_use]
pub fn sink_queue(
    (queue, inbox): (Sender<Message>, Receiver<Message>),
    telemetry: Arc<SinkTelemetry>,
) -> (SinkQueue, SinkInbox) {
    let shared = Arc::new(SinkShared {
        telemetry,
        delivering: AtomicBool::new(false),
        filled: tokio::sync::Notify::new(),
        asleep: AtomicBool::new(false),
        thread: OnceLock::new(),
        ended: AtomicBool::new(false),
    });
    let producer = SinkQueue { queue, oldest: inbox.clone(), shared: Producer(Arc::clone(&shared)) };
    (producer, SinkInbox { queue: inbox, shared })
}

impl SinkQueue {
    fn push(&self, message: &Message, when_full: WhenFull, waiting: &mut dyn FnMut()) {
        let shared = &self.shared.0;
        shared.telemetry.queued.add(1);
        let mut message = message.clone();
        loop {
            if shared.has_ended() {
                shared.telemetry.dropped.add(1);
                return;
            }
            match self.queue.try_send(message) {
                Ok(()) => break,
                Err(refused) => message = refused.into_inner(),
            }
            if when_full == WhenFull::Wait && shared.delivering.load(Ordering::Acquire) {
                waiting();
                // Woken by room, or after a while to see whether the sink still delivers.
                match self.queue.send_timeout(message, Duration::from_millis(50)) {
                    Ok(()) => break,
                    Err(error) => message = error.into_inner(),
                }
            } else if self.oldest.try_recv().is_ok() {
                shared.telemetry.dropped.add(1);
            }
        }
        // A sink that ended just now may have emptied its queue before this message came. Whoever takes the message
        // counts it, so it is counted once.
        if shared.has_ended() {
            shared.discard(&self.oldest);
        }
        shared.filled.notify_one();
        shared.wake_thread();
    }
}

impl SinkShared {
    fn has_ended(&self) -> bool {
        // Pairs with the fence in `SinkInbox::end`: either the producer sees the end, or the sink sees the message.
        fence(Ordering::SeqCst);
        self.ended.load(Ordering::SeqCst)
    }

    /// Wakes the thread that sleeps in [`SinkInbox::wait`], if one does: without a system call, if none does.
    fn wake_thread(&self) {
        // Pairs with the fence in `SinkInbox::wait`: either the sink sees what was done before, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Acquire)
            && self.asleep.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn discard(&self, queue: &Receiver<Message>) -> u64 {
        let count = queue.try_iter().count() as u64;
        self.telemetry.dropped.add(count);
        count
    }
}

impl SinkInbox {
    /// The oldest message, as soon as there is one; none when all producers have gone. For a sink that is a thread, always
    /// the same one: receiving from the queue itself would give the CPU away four times before it sleeps.
    #[must_use]
    pub fn wait(&self) -> Option<Message> {
        let shared = &self.shared;
        shared.thread.get_or_init(thread::current);
        loop {
            shared.asleep.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            let next = self.queue.try_recv();
            if !matches!(next, Err(TryRecvError::Empty)) {
                shared.asleep.store(false, Ordering::Relaxed);
                return next.ok();
            }
            thread::park();
        }
    }

    /// Ends the sink for good: what waits is counted as dropped, and so is all that comes later. Says how many waited.
    pub fn end(&self) -> u64 {
        self.shared.delivering.store(false, Ordering::Release);
        self.shared.ended.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.shared.discard(&self.queue)
    }
}

/// Every sink's queue.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    sinks: Vec<SinkQueue>,
}

impl Outbox {
    /// An outbox to these sinks.
    #[must_use]
    pub fn new(sinks: Vec<SinkQueue>) -> Self {
        Self { sinks }
    }

    /// Puts a message into every sink's queue. `waiting` is called before each wait for room.
    pub fn push(&self, message: &Message, when_full: WhenFull, mut waiting: impl FnMut()) {
        for sink in &self.sinks {
            sink.push(message, when_full, &mut waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        let made = Made { at: Instant::now(), publish: Arc::default() };
        Message { topic: "t".into(), payload: Bytes::copy_from_slice(text.as_bytes()), made }
    }

    #[test]
    fn a_full_queue_drops_its_oldest_and_counts_it() {
        let telemetry = Arc::new(SinkTelemetry::new("mqtt"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(2), Arc::clone(&telemetry));
        let outbox = Outbox::new(vec![producer]);
        for text in ["1", "2", "3"] {
            // A sink that cannot deliver is not waited for, even by a lossless source.
            outbox.push(&message(text), WhenFull::Wait, || panic!("nothing to wait for"));
        }
        let kept: Vec<_> = inbox.queue.try_iter().map(|message| message.payload.to_vec()).collect();
        assert_eq!(kept, [b"2", b"3"]);
        assert_eq!((telemetry.queued.get(), telemetry.dropped.get()), (3, 1));
    }

    #[test]
    fn a_sink_that_is_a_thread_sleeps_through_no_message_and_not_through_the_end() {
        let telemetry = Arc::new(SinkTelemetry::new("stdout"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(4), telemetry);
        let outbox = Outbox::new(vec![producer]);
        inbox.shared.delivering.store(true, Ordering::Release);
        let taken = std::thread::scope(|scope| {
            let taken = scope.spawn(|| std::iter::from_fn(|| inbox.wait()).count());
            for _ in 0..2 {
                let outbox = outbox.clone();
                scope.spawn(move || {
                    for round in 0..3000 {
                        outbox.push(&message("x"), WhenFull::Wait, || ());
                        if round % 7 == 0 {
                            // Long enough for the sink to fall asleep.
                            std::thread::park_timeout(Duration::from_micros(50));
                        }
                    }
                });
            }
            drop(outbox);
            taken.join().unwrap()
        });
        assert_eq!(taken, 6000);
    }

    #[test]
    fn a_lossless_source_waits_for_a_sink_that_delivers() {
        let telemetry = Arc::new(SinkTelemetry::new("stdout"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(1), Arc::clone(&telemetry));
        inbox.shared.delivering.store(true, Ordering::Release);
        let outbox = Outbox::new(vec![producer]);
        outbox.push(&message("1"), WhenFull::Wait, || panic!("there is room"));
        let mut taken = None;
        outbox.push(&message("2"), WhenFull::Wait, || taken = inbox.queue.try_recv().ok());
        assert_eq!(taken.map(|message| message.payload.to_vec()), Some(b"1".to_vec()));
        assert_eq!(telemetry.dropped.get(), 0);
        assert_eq!(inbox.queue.len(), 1);
    }

    #[test]
    fn a_sink_that_has_ended_counts_what_waited_and_all_that_comes() {
        let telemetry = Arc::new(SinkTelemetry::new("mqtt"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(8), Arc::clone(&telemetry));
        let outbox = Outbox::new(vec![producer]);
        for text in ["1", "2"] {
            outbox.push(&message(text), WhenFull::DropOldest, || ());
        }
        assert_eq!(inbox.end(), 2);
        outbox.push(&message("3"), WhenFull::Wait, || panic!("a sink that has ended is not waited for"));
        assert_eq!((telemetry.queued.get(), telemetry.dropped.get()), (3, 3));
        assert_eq!(inbox.queue.len(), 0);
    }

    #[test]
    fn two_producers_and_an_ending_sink_count_every_message_once() {
        let telemetry = Arc::new(SinkTelemetry::new("mqtt"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(16), Arc::clone(&telemetry));
        let outbox = Outbox::new(vec![producer]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..2000).for_each(|_| outbox.push(&message("x"), WhenFull::DropOldest, || ()));
                });
            }
            // However many of them are still there to be taken.
            let taken = inbox.queue.try_iter().take(500).count() as u64;
            telemetry.delivered.add(taken);
            inbox.end();
        });
        assert_eq!(telemetry.queued.get(), 4000);
        assert_eq!(telemetry.delivered.get() + telemetry.dropped.get(), 4000);
        assert!(inbox.queue.is_empty());
    }
}
