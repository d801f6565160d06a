//! One connection to the broker: made, served, left.
//!
//! Two futures run side by side in one task and are dropped together. One polls the client's event loop and is never
//! cancelled within a connection (a cancelled poll may lose a packet between its bookkeeping and the socket); the other
//! waits for messages, wishes and deadlines. Both only call [`Session::step`], which never waits: it hands over what the
//! flight has room for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, LastWill, Packet, PubAckReason, PubCompReason, PubRecReason,
};
use rumqttc::v5::mqttbytes::{QoS, valid_topic};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use rumqttc::{NetworkOptions, Outgoing, TlsConfiguration, Transport};
use tracing::{info, warn};

use super::cause::{MqttError, explain_break, explain_connect};
use super::flight::Flight;
use super::{Backoff, MqttControl, tls};
use crate::publish::encode::{self, Identity, Topics};
use crate::publish::event::{Stamp, StatusReason};
use crate::publish::{Message, MqttConfig, SinkInbox};
use crate::secret::Secret;

/// A connection on which nothing is heard for two and a half of these is broken.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// For the connection, TLS and the broker's answer together, in seconds; [`MqttError::Unreachable`] says it in words.
const CONNECT_TIMEOUT_S: u64 = 5;
/// Messages that may be with the client at a time, and so the most that are sent again after a break. A broker may allow
/// fewer: mosquitto allows 20.
const WINDOW: u16 = 100;
/// An event that was alone without an answer when the broker closed the connection, so many times in a row, is given up.
/// Some brokers answer what they do not allow like that, and it would hold up everything behind it for ever.
const TRIES: u32 = 3;
/// So long the broker may take to close after the disconnect.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// Brokers have no reason to send us more than this; it bounds what one can make us allocate.
const MAX_INCOMING_BYTES: u32 = 64 * 1024;

/// The sink's parts that outlive a connection.
#[derive(Debug)]
pub(super) struct Broker<'a> {
    pub(super) config: &'a MqttConfig,
    pub(super) identity: &'a Identity,
    pub(super) topics: &'a Topics,
    pub(super) inbox: &'a SinkInbox,
    pub(super) control: &'a MqttControl,
    /// Events that were handed over and not settled when a connection broke, oldest first; at most a window.
    pub(super) backlog: VecDeque<Message>,
    /// Whether the backlog is sent one event at a time, because the broker closed the last connection soon. A broker that
    /// hangs up at one event takes its answers to those before with it, so only then is it known which event it was.
    pace: Pace,
    /// The event that was alone without an answer when the broker closed the connection, known by where its payload is,
    /// and how many times in a row.
    suspect: Option<(*const u8, u32)>,
    /// The refusal that was told last.
    refusal_told: Option<String>,
}

/// How a connection ended, or why there was none.
#[derive(Debug)]
pub(super) enum Ending {
    /// A stop was asked for and went well.
    Farewell,
    /// A stop was asked for and its deadline has come.
    OutOfTime,
    /// It could not be made, or broke.
    Trouble(Trouble),
}

/// See [`Ending::Trouble`].
#[derive(Debug)]
pub(super) struct Trouble {
    /// Zero when there was no connection.
    pub(super) connected_for: Duration,
    pub(super) error: MqttError,
}

/// What a message in flight is, and what is needed to send it again.
#[derive(Debug)]
enum Sent {
    /// Birth, state or health. Sent anew on the next connection whatever becomes of it.
    Notice,
    Farewell,
    Event(Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The farewell was handed over; nothing follows but the disconnect.
    Leaving,
    /// The disconnect was written, then. The broker reads it and closes; closing first could make the disconnect unread,
    /// and the will would be published after the farewell.
    Left(Instant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Full,
    OneByOne,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retain {
    Yes,
    No,
}

struct Session<'b, 'a> {
    broker: &'b mut Broker<'a>,
    client: AsyncClient,
    flight: Flight<Sent>,
    window: usize,
    /// Refused QoS 2 messages of which the client goes on counting a slot as used.
    lost_slots: usize,
    event_qos: QoS,
    max_packet: usize,
    phase: Phase,
    connected: Instant,
    heard: Instant,
    silence: Duration,
}

impl<'a> Broker<'a> {
    pub(super) fn new(
        config: &'a MqttConfig,
        identity: &'a Identity,
        topics: &'a Topics,
        inbox: &'a SinkInbox,
        control: &'a MqttControl,
    ) -> Self {
        let backlog = VecDeque::new();
        Self {
            config,
            identity,
            topics,
            inbox,
            control,
            backlog,
            pace: Pace::Full,
            suspect: None,
            refusal_told: None,
        }
    }

    /// Makes one connection and serves it until it breaks or a stop is done.
    pub(super) async fn run_once(&mut self) -> Ending {
        let options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ending::Trouble(Trouble { connected_for: Duration::ZERO, error }),
        };
        // Room for every message that may be in flight, and the disconnect: handing over never waits.
        let (client, mut events) = AsyncClient::new(options, usize::from(WINDOW) + 1);
        let answer = tokio::select! {
            answer = events.poll() => answer,
            () = self.control.out_of_time() => return Ending::OutOfTime,
        };
        let connack = match answer {
            Ok(Event::Incoming(Packet::ConnAck(connack))) => connack,
            Ok(other) => {
                let error = MqttError::Lost(format!("what answers is no MQTT 5 broker: {other:?}"));
                return Ending::Trouble(Trouble { connected_for: Duration::ZERO, error });
            }
            Err(error) => {
                let error = explain_connect(&error, self.config);
                return Ending::Trouble(Trouble { connected_for: Duration::ZERO, error });
            }
        };
        self.serve(client, &mut events, &connack).await
    }

    async fn serve(&mut self, client: AsyncClient, events: &mut EventLoop, connack: &ConnAck) -> Ending {
        let (config, control, shared) = (self.config, self.control, &self.inbox.shared);
        let silence = adopt_keep_alive(&mut events.options);
        info!("MQTT broker {}:{}: connected", config.host, config.port);
        let reason = if shared.telemetry.connects.get() == 0 {
            StatusReason::Started
        } else {
            StatusReason::Reconnected
        };
        shared.telemetry.connects.add(1);
        control.wanted(|wanted| wanted.unsent = wanted.retained.keys().cloned().collect());
        let mut session = Session::new(self, client, connack.properties.as_ref(), silence);
        session.send_status(reason, Sent::Notice);
        shared.delivering.store(true, Ordering::Release);

        let session = RefCell::new(session);
        let drive = async {
            loop {
                let ending = match events.poll().await {
                    Ok(event) => session.borrow_mut().on_event(&event, Instant::now()),
                    Err(error) => Some(session.borrow().broken(explain_break(&error, config))),
                };
                if let Some(ending) = ending {
                    return ending;
                }
            }
        };
        let feed = async {
            loop {
                if let Some(ending) = session.borrow_mut().step(Instant::now()) {
                    return ending;
                }
                let wake = session.borrow().wakes_at(Instant::now());
                tokio::select! {
                    () = shared.filled.notified() => (),
                    () = control.shared.changed.notified() => (),
                    () = tokio::time::sleep_until(wake.into()) => (),
                }
            }
        };
        let ending = tokio::select! {
            ending = drive => ending,
            ending = feed => ending,
        };
        session.into_inner().keep_unsettled(&ending);
        ending
    }

    fn options(&self) -> Result<MqttOptions, MqttError> {
        let config = self.config;
        // The client puts host and port together as text.
        let bare = config.host.trim_matches(['[', ']']);
        let is_ipv6 = bare.contains(':');
        if is_ipv6 && config.tls {
            return Err(MqttError::TlsToAddress { host: config.host.clone() });
        }
        let host = if is_ipv6 { format!("[{bare}]") } else { config.host.clone() };
        let mut options = MqttOptions::new(&config.client_id, host, config.port);
        let will = encode::status(self.identity, StatusReason::ConnectionLost, Stamp::now());
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        options
            .set_keep_alive(KEEP_ALIVE)
            .set_connection_timeout(CONNECT_TIMEOUT_S)
            .set_clean_start(true)
            .set_max_packet_size(Some(MAX_INCOMING_BYTES))
            .set_outgoing_inflight_upper_limit(WINDOW)
            .set_network_options(network)
            .set_last_will(LastWill::new(&*self.topics.status, will, QoS::AtLeastOnce, true, None));
        if let Some(username) = &config.username {
            let password = config.password.as_ref().map_or("", Secret::reveal);
            options.set_credentials(username, password);
        }
        if config.tls {
            let client_config = tls::client_config(config)?;
            options.set_transport(Transport::Tls(TlsConfiguration::Rustls(client_config)));
        }
        Ok(options)
    }

    /// Notes that the broker closed the connection while the first event of the backlog, with this `payload`, was alone
    /// without an answer; gives the event up when it is the same again and again.
    fn suspect(&mut self, payload: *const u8) {
        let times = match self.suspect {
            Some((before, times)) if before == payload => times + 1,
            _ => 1,
        };
        self.suspect = Some((payload, times));
        if times >= TRIES
            && let Some(message) = self.backlog.pop_front()
        {
            self.suspect = None;
            self.inbox.shared.telemetry.dropped.add(1);
            let why = format!(
                "it closes the connection whenever it gets an event, which is given up after {TRIES} times; allow the \
                 user to write to {}/{}/#, and messages of this size",
                self.config.prefix, self.identity.node
            );
            self.tell_refusal(&message.topic, why);
        }
    }

    /// Tells that the broker does not take a message, once for each cause in a row.
    fn tell_refusal(&mut self, topic: &str, why: String) {
        if self.refusal_told.as_ref() != Some(&why) {
            warn!(topic, "MQTT broker {}:{}: {why}", self.config.host, self.config.port);
            self.refusal_told = Some(why);
        }
    }
}

impl<'b, 'a> Session<'b, 'a> {
    fn new(
        broker: &'b mut Broker<'a>,
        client: AsyncClient,
        limits: Option<&ConnAckProperties>,
        silence: Duration,
    ) -> Self {
        let window =
            usize::from(limits.and_then(|limits| limits.receive_max).unwrap_or(WINDOW).clamp(1, WINDOW));
        let max_qos = limits.and_then(|limits| limits.max_qos).unwrap_or(2);
        let event_qos = match broker.config.qos.min(max_qos) {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        let max_packet = limits.and_then(|limits| limits.max_packet_size).unwrap_or(u32::MAX);
        let now = Instant::now();
        let mut flight = Flight::new(window);
        if broker.pace == Pace::OneByOne {
            flight.set_window(1);
        }
        Self {
            broker,
            client,
            flight,
            window,
            lost_slots: 0,
            event_qos,
            max_packet: usize::try_from(max_packet).unwrap_or(usize::MAX),
            phase: Phase::Serving,
            connected: now,
            heard: now,
            silence,
        }
    }

    fn on_event(&mut self, event: &Event, now: Instant) -> Option<Ending> {
        match event {
            Event::Incoming(packet) => {
                self.heard = now;
                self.on_packet(packet, now);
            }
            Event::Outgoing(Outgoing::Publish(packet_id)) => {
                if let Some(Sent::Event(_)) = self.flight.written(*packet_id) {
                    self.broker.inbox.shared.telemetry.delivered.add(1);
                }
            }
            Event::Outgoing(Outgoing::Disconnect) => self.phase = Phase::Left(now),
            Event::Outgoing(_) => (),
        }
        self.step(now)
    }

    fn on_packet(&mut self, packet: &Packet, now: Instant) {
        match packet {
            Packet::PubAck(ack) => match ack.reason {
                PubAckReason::Success | PubAckReason::NoMatchingSubscribers => {
                    self.settle(ack.pkid, Ok(()), now);
                }
                reason => self.settle(ack.pkid, Err(format!("{reason:?}")), now),
            },
            Packet::PubComp(ack) if ack.reason == PubCompReason::Success => {
                self.settle(ack.pkid, Ok(()), now);
            }
            Packet::PubComp(ack) => {
                self.lost_slots += 1;
                self.settle(ack.pkid, Err(format!("{:?}", ack.reason)), now);
            }
            Packet::PubRec(ack) => match ack.reason {
                PubRecReason::Success | PubRecReason::NoMatchingSubscribers => (),
                reason => {
                    self.lost_slots += 1;
                    self.settle(ack.pkid, Err(format!("{reason:?}")), now);
                }
            },
            _ => (),
        }
    }

    /// A message is acknowledged, or refused with the broker's word for why.
    fn settle(&mut self, packet_id: u16, answer: Result<(), String>, now: Instant) {
        let Some(sent) = self.flight.acknowledged(packet_id) else { return };
        let telemetry = &self.broker.inbox.shared.telemetry;
        let topic = match &sent {
            Sent::Event(message) => {
                match &answer {
                    Ok(()) => {
                        telemetry.delivered.add(1);
                        telemetry.observe_acknowledged(now.saturating_duration_since(message.made.at));
                    }
                    Err(_) => telemetry.dropped.add(1),
                }
                message.topic.as_ref()
            }
            Sent::Notice => "status or camera state",
            Sent::Farewell => {
                // The channel has a place for it beside the whole window.
                self.client.try_disconnect().expect("the request channel has room for the disconnect");
                self.broker.topics.status.as_ref()
            }
        };
        if let Err(word) = answer {
            let why = format!(
                "it refuses a message ({word}); allow the user to write to {}/{}/#",
                self.broker.config.prefix, self.broker.identity.node
            );
            self.broker.tell_refusal(topic, why);
        }
    }

    /// Hands over what there is room for. Says when the connection is over.
    fn step(&mut self, now: Instant) -> Option<Ending> {
        let stop = self.broker.control.stop();
        if let Phase::Left(at) = self.phase {
            return (now >= at + CLOSE_WITHIN).then_some(Ending::Farewell);
        }
        if stop.is_some_and(|stop| now >= stop.deadline) {
            return Some(Ending::OutOfTime);
        }
        if now.saturating_duration_since(self.heard) >= self.silence {
            return Some(self.trouble(MqttError::Silent));
        }
        if self.lost_slots > 0 && self.lost_slots * 2 >= self.window {
            // The client would soon wait for room for ever; a new connection begins with all of it.
            return Some(self.trouble(MqttError::Lost("it refuses too many messages".to_owned())));
        }
        if self.phase == Phase::Leaving {
            return None;
        }
        if self.broker.pace == Pace::OneByOne && self.flight.is_empty() && self.broker.backlog.is_empty() {
            self.broker.pace = Pace::Full;
            self.broker.suspect = None;
            self.flight.set_window(self.window);
        }
        self.send_notices();
        if stop.is_none_or(|stop| now < stop.farewell) {
            self.send_events(now);
        }
        let stop = stop?;
        let broker = &self.broker;
        let is_done = self.flight.is_empty() && broker.backlog.is_empty() && broker.inbox.queue.is_empty();
        if is_done || (now >= stop.farewell && self.flight.has_room()) {
            self.phase = Phase::Leaving;
            self.send_status(StatusReason::Stopped, Sent::Farewell);
        }
        None
    }

    fn wakes_at(&self, now: Instant) -> Instant {
        if let Phase::Left(at) = self.phase {
            return at + CLOSE_WITHIN;
        }
        let silent = self.heard + self.silence;
        let stop = self.broker.control.stop();
        stop.map_or(silent, |stop| {
            let next = if now < stop.farewell { stop.farewell } else { stop.deadline };
            next.min(silent)
        })
    }

    fn send_status(&mut self, reason: StatusReason, sent: Sent) {
        let payload = encode::status(self.broker.identity, reason, Stamp::now());
        let topic = Arc::clone(&self.broker.topics.status);
        self.send(&topic, payload, QoS::AtLeastOnce, Retain::Yes, sent);
    }

    fn send_notices(&mut self) {
        while self.flight.has_room() {
            let next = self.broker.control.wanted(|wanted| {
                let topic = wanted.unsent.pop_first()?;
                let payload = wanted.retained.get(&topic)?.clone();
                Some((topic, payload))
            });
            let Some((topic, payload)) = next else { break };
            self.send(&topic, payload, QoS::AtLeastOnce, Retain::Yes, Sent::Notice);
        }
        if self.flight.has_room()
            && let Some(payload) = self.broker.control.wanted(|wanted| wanted.health.take())
        {
            let topic = Arc::clone(&self.broker.topics.health);
            self.send(&topic, payload, QoS::AtMostOnce, Retain::No, Sent::Notice);
        }
    }

    fn send_events(&mut self, now: Instant) {
        while self.flight.has_room() {
            // One from the backlog was handed over before.
            let next = self.broker.backlog.pop_front().or_else(|| {
                let message = self.broker.inbox.queue.try_recv().ok()?;
                message.made.handed_over(now);
                Some(message)
            });
            let Some(message) = next else { break };
            let (topic, payload) = (Arc::clone(&message.topic), message.payload.clone());
            self.send(&topic, payload, self.event_qos, Retain::No, Sent::Event(message));
        }
    }

    /// Hands a message over. One that the client or the broker can never take is dropped, told, and counted.
    fn send(&mut self, topic: &str, payload: Bytes, qos: QoS, retain: Retain, sent: Sent) {
        // At most 5 bytes of header, 2 of topic length, 2 of packet id, 1 of properties.
        let bytes = 10 + topic.len() + payload.len();
        let why = if bytes > self.max_packet {
            format!(
                "it takes messages of at most {} bytes, and one has {bytes}; raise its max_packet_size",
                self.max_packet
            )
        } else if !valid_topic(topic) {
            format!("{topic} is no topic; check prefix, node and the camera's id")
        } else {
            self.client
                .try_publish(topic, qos, retain == Retain::Yes, payload)
                .expect("the request channel has room for the whole window, and the topic was checked");
            self.flight.hand_over(sent);
            return;
        };
        if matches!(sent, Sent::Event(_)) {
            self.broker.inbox.shared.telemetry.dropped.add(1);
        }
        self.broker.tell_refusal(topic, why);
    }

    fn broken(&self, error: MqttError) -> Ending {
        if matches!(self.phase, Phase::Left(_)) { Ending::Farewell } else { self.trouble(error) }
    }

    fn trouble(&self, error: MqttError) -> Ending {
        // Never zero, which means that there was no connection.
        let connected_for = self.connected.elapsed().max(Duration::from_nanos(1));
        Ending::Trouble(Trouble { connected_for, error })
    }

    /// Puts back the events that are not settled, in front of those that wait.
    fn keep_unsettled(self, ending: &Ending) {
        let closed_soon = matches!(ending, Ending::Trouble(Trouble { error: MqttError::Lost(_), connected_for })
            if *connected_for < Backoff::RESET_AFTER);
        let alone = match self.flight.oldest_written() {
            Some(Sent::Event(message)) if closed_soon && self.broker.pace == Pace::OneByOne => {
                Some(message.payload.as_ptr())
            }
            _ => None,
        };
        for sent in self.flight.into_unsettled().rev() {
            if let Sent::Event(message) = sent {
                self.broker.backlog.push_front(message);
            }
        }
        if let Some(payload) = alone {
            self.broker.suspect(payload);
        }
        let is_left = !self.broker.backlog.is_empty();
        self.broker.pace = if closed_soon && is_left { Pace::OneByOne } else { Pace::Full };
    }
}

/// Pings at least as often as we want to, whatever the broker asks for, and says after how much silence the connection
/// is broken. A broker may ask for no pings at all, which the client takes for pings without pause.
fn adopt_keep_alive(options: &mut MqttOptions) -> Duration {
    let asked = options.keep_alive();
    if asked.is_zero() || asked > KEEP_ALIVE {
        options.set_keep_alive(KEEP_ALIVE);
    }
    // The first ping is still timed by what the broker asked for.
    asked.max(KEEP_ALIVE).mul_f64(2.5)
}
