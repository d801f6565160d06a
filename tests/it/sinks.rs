//! The MQTT sink on a thread of its own, with a producer and a log that can be read.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use gantry::publish::encode::{Identity, TopicSequence, Topics};
use gantry::publish::mqtt::{self, MqttHandle};
use gantry::publish::{Made, MqttConfig, Outbox, SinkEnd, SinkShared, WhenFull, sink_queue};
use gantry::telemetry::{SinkSnapshot, SinkTelemetry, Telemetry};
use gantry::threads::{ThreadKind, ThreadSpec, Threads};
use tracing_subscriber::fmt::MakeWriter;

use crate::broker::{LIMIT, pause, wait_until};

/// The topic of a rig's events.
pub const DETECTIONS: &str = "gantry/line-7/camera/press-1/detections";

/// An event that is made now.
pub fn made() -> Made {
    Made { at: Instant::now(), publish: Arc::default() }
}

/// The MQTT sink on a thread and runtime of its own, with a producer.
pub struct Rig {
    pub handle: MqttHandle,
    pub outbox: Outbox,
    pub sequence: TopicSequence,
    pub telemetry: Arc<SinkTelemetry>,
    pub shared: Arc<SinkShared>,
    pub identity: Identity,
    pub topics: Topics,
    pub log: Log,
    pub ended: Receiver<SinkEnd>,
    pub abandon: Arc<tokio::sync::Notify>,
}

impl Rig {
    pub fn start(config: &MqttConfig) -> Self {
        let config = config.clone();
        let telemetry = Arc::new(SinkTelemetry::new("mqtt"));
        let (queue, inbox) = sink_queue(bounded(config.queue), Arc::clone(&telemetry));
        let (handle, control) = mqtt::control();
        let (identity, topics) = (Identity::new("line-7"), Topics::new(&config.prefix, "line-7"));
        let (log, (tx, ended)) = (Log::default(), bounded(1));
        let abandon = Arc::new(tokio::sync::Notify::new());
        let shared = Arc::clone(&inbox.shared);
        let body = {
            let (identity, topics, log, abandon) =
                (identity.clone(), topics.clone(), log.clone(), Arc::clone(&abandon));
            move |_| {
                let subscriber = tracing_subscriber::fmt().with_writer(log).with_ansi(false).finish();
                let _guard = tracing::subscriber::set_default(subscriber);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let end = runtime.block_on(async {
                    tokio::select! {
                        end = mqtt::run(&config, &identity, &topics, &inbox, &control) => Some(end),
                        () = abandon.notified() => None,
                    }
                });
                runtime.shutdown_background();
                end.into_iter().for_each(|end| tx.send(end).unwrap_or(()));
            }
        };
        let spec = ThreadSpec { name: "io".into(), kind: ThreadKind::Io, limit: LIMIT };
        Threads::new().spawn(spec, body, |_| ()).unwrap();
        Self {
            handle,
            outbox: Outbox::new(vec![queue]),
            sequence: TopicSequence::new(DETECTIONS.into()),
            telemetry,
            shared,
            identity,
            topics,
            log,
            ended,
            abandon,
        }
    }

    pub fn push(&self, count: u64, when_full: WhenFull) {
        for _ in 0..count {
            let encode = |seq| Bytes::from(format!("{{\"seq\":{seq},\"padding\":\"{:>60}\"}}", ""));
            self.sequence.publish(&self.outbox, when_full, made(), || (), encode);
        }
    }

    pub fn await_connected(&self) {
        wait_until("connected", || self.shared.delivering.load(Ordering::Acquire));
    }

    pub fn await_log(&self, text: &str) {
        let begun = Instant::now();
        while !self.log.text().contains(text) {
            assert!(begun.elapsed() < LIMIT, "the log never says {text:?}:\n{}", self.log.text());
            pause();
        }
    }

    pub fn stop(&self) -> SinkEnd {
        self.handle.stop(mqtt::STOP_WITHIN);
        self.ended.recv_timeout(LIMIT).expect("the sink ends when it is told to")
    }

    pub fn counts(&self) -> SinkSnapshot {
        let telemetry = Telemetry { sinks: vec![Arc::clone(&self.telemetry)], ..Telemetry::default() };
        telemetry.snapshot(Instant::now()).sinks.remove(0)
    }
}

/// What a thread logged.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub fn count(&self, text: &str) -> usize {
        self.text().matches(text).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A config whose port is to be set.
pub fn absent() -> MqttConfig {
    MqttConfig {
        host: "127.0.0.1".into(),
        port: 0,
        tls: false,
        ca_file: None,
        cert_file: None,
        key_file: None,
        username: None,
        password: None,
        client_id: "gantry-line-7".into(),
        qos: 1,
        prefix: "gantry".into(),
        queue: 100,
    }
}
