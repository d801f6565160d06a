//! The sinks against a real broker and a real pipe.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::bounded;
use gantry::publish::encode::{CameraTold, TopicSequence, camera_state, health};
use gantry::publish::event::Stamp;
use gantry::publish::{MqttConfig, Outbox, SinkEnd, WhenFull, jsonl, sink_queue};
use gantry::telemetry::{SinkTelemetry, Telemetry};
use gantry::threads::{Heartbeat, ThreadKind, ThreadSpec, Threads};

use crate::broker::{Broker, BrokerOptions, LIMIT, Subscriber, free_port, wait_until};
use crate::proxy::Proxy;
use crate::sinks::{DETECTIONS, Rig, absent, made};

/// The numbers that a subscriber gets, each at its first coming, until `last` has come.
fn numbers(subscriber: &Subscriber, last: u64) -> Vec<u64> {
    let mut seen = BTreeMap::new();
    let mut order = Vec::new();
    while order.last() != Some(&last) {
        let seq = subscriber.next_on("/detections").field("seq").as_u64().unwrap();
        *seen.entry(seq).or_insert_with(|| {
            order.push(seq);
            0
        }) += 1;
    }
    let twice = seen.values().filter(|&&times| times > 1).count();
    eprintln!("{} events, {twice} of them came more than once", order.len());
    order
}

fn everything_up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[test]
fn birth_is_retained_and_a_clean_stop_says_offline() {
    let test = "birth_is_retained_and_a_clean_stop_says_offline";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    let rig = Rig::start(&broker.config());
    rig.await_connected();
    rig.push(3, WhenFull::Wait);
    wait_until("acknowledged", || rig.telemetry.delivered.get() == 3);
    let subscriber = broker.subscribe();
    let birth = broker.subscribe().next_on("/status");
    assert!(birth.retained && birth.topic == "gantry/line-7/status", "{birth:?}");
    assert_eq!((birth.field("status"), birth.field("reason")), ("online".into(), "started".into()));
    assert_eq!(birth.field("boot_id"), rig.identity.boot_id.as_str());
    // Told to stop with work left: that is delivered first, and the farewell is the last message.
    rig.push(500, WhenFull::DropOldest);
    assert_eq!(rig.stop(), SinkEnd::Drained);
    assert_eq!(numbers(&subscriber, 503), (4..=503).collect::<Vec<_>>());
    let farewell = subscriber.next_on("/status");
    assert!(!farewell.retained, "{farewell:?}");
    assert_eq!((farewell.field("status"), farewell.field("reason")), ("offline".into(), "stopped".into()));
    // The will would come within this time after the connection, which was closed before.
    assert_eq!(subscriber.next_within(Duration::from_millis(500)), None, "no will after a farewell");
    let counts = rig.counts();
    assert_eq!((counts.queued, counts.delivered, counts.dropped, counts.waiting), (503, 503, 0, 0));
    assert!(counts.since_start.ack_ms.is_some());
}

#[test]
fn a_connection_that_is_lost_leaves_the_will() {
    let test = "a_connection_that_is_lost_leaves_the_will";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    let rig = Rig::start(&broker.config());
    rig.await_connected();
    let subscriber = broker.subscribe();
    rig.abandon.notify_one();
    let will = loop {
        let status = subscriber.next_on("/status");
        if status.field("status") == "offline" {
            break status;
        }
    };
    assert_eq!(will.field("reason"), "connection lost");
    assert_eq!(will.field("boot_id"), rig.identity.boot_id.as_str());
    assert!(broker.subscribe().next_on("/status").retained);
}

#[test]
fn states_are_told_again_to_a_broker_that_has_forgotten_them() {
    let test = "states_are_told_again_to_a_broker_that_has_forgotten_them";
    let Some(mut broker) = Broker::start(test, BrokerOptions::default()) else { return };
    let rig = Rig::start(&broker.config());
    let state = |camera: &str, state: &str| {
        let camera = gantry::frame::CameraId::new(camera);
        let told = CameraTold { state, reason: None, since: Stamp::now(), frame_age_ms: None };
        let payload = camera_state(&rig.identity, &camera, told);
        rig.handle.set_retained(rig.topics.camera_state(&camera), payload);
    };
    state("press-1", "connecting");
    state("press-2", "live");
    rig.await_connected();
    let subscriber = broker.subscribe();
    let told = |subscriber: &Subscriber, camera: &str, wanted: &str| loop {
        let message = subscriber.next_on(&format!("camera/{camera}/state"));
        if message.field("state") == wanted {
            return message;
        }
    };
    told(&subscriber, "press-1", "connecting");
    state("press-1", "live");
    assert!(!told(&subscriber, "press-1", "live").retained, "told at the change");
    drop(subscriber);

    broker.kill();
    rig.await_log("is tried again");
    state("press-2", "ended");
    broker.start_again();
    let restarted = broker.subscribe();
    told(&restarted, "press-1", "live");
    told(&restarted, "press-2", "ended");
    wait_until("online again", || {
        let status = broker.subscribe().next_on("/status");
        status.field("status") == "online" && status.field("reason") == "reconnected"
    });
    assert_eq!(rig.stop(), SinkEnd::Drained);
}

#[test]
fn two_thousand_events_arrive_in_order_without_a_gap() {
    let test = "two_thousand_events_arrive_in_order_without_a_gap";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    for qos in [1, 2, 0] {
        let subscriber = broker.subscribe();
        let rig = Rig::start(&MqttConfig { qos, queue: 50, ..broker.config() });
        rig.await_connected();
        let begun = Instant::now();
        rig.push(2000, WhenFull::Wait);
        assert_eq!(numbers(&subscriber, 2000), everything_up_to(2000));
        let took = begun.elapsed();
        assert_eq!(rig.stop(), SinkEnd::Drained);
        let counts = rig.counts();
        assert_eq!((counts.delivered, counts.dropped), (2000, 0));
        assert_eq!(counts.since_start.ack_ms.is_some(), qos > 0, "nobody acknowledges QoS 0");
        eprintln!(
            "QoS {qos}: 2000 events in {took:?}, acknowledged after {:?} ms",
            counts.since_start.ack_ms
        );
    }
}

#[test]
fn a_connection_cut_in_mid_stream_loses_nothing() {
    let test = "a_connection_cut_in_mid_stream_loses_nothing";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    for qos in [1, 2] {
        let subscriber = broker.subscribe();
        // The first two end before and within the birth message, the others somewhere in an event.
        let proxy = Proxy::start(broker.port, &[40, 700, 1500, 3001, 7003, 20_011, 50_021, 9973]);
        let rig = Rig::start(&MqttConfig { port: proxy.port, qos, queue: 3000, ..broker.config() });
        rig.push(2000, WhenFull::DropOldest);
        assert_eq!(numbers(&subscriber, 2000), everything_up_to(2000));
        assert_eq!(rig.stop(), SinkEnd::Drained);
        assert_eq!(proxy.connections(), 9);
        let counts = rig.counts();
        assert_eq!((counts.queued, counts.delivered, counts.dropped, counts.waiting), (2000, 2000, 0, 0));
    }
}

#[test]
fn a_broker_that_stops_and_comes_back_gets_everything() {
    let test = "a_broker_that_stops_and_comes_back_gets_everything";
    let options = BrokerOptions { persistent: true, ..BrokerOptions::default() };
    let Some(mut broker) = Broker::start(test, options) else { return };
    let subscriber = broker.subscribe_durably("watcher");
    let rig = Rig::start(&broker.config());
    rig.await_connected();
    rig.push(300, WhenFull::DropOldest);
    broker.stop();
    rig.await_log("is tried again");
    rig.push(300, WhenFull::DropOldest);
    // So many tries, doubling, take more than 5 s.
    wait_until("tried for a while", || rig.telemetry.failures.get() >= 7);
    assert_eq!(rig.log.count("nothing listens there"), 1, "told once:\n{}", rig.log.text());
    broker.start_again();
    assert_eq!(numbers(&subscriber, 600), everything_up_to(600));
    assert_eq!(rig.stop(), SinkEnd::Drained);
    let counts = rig.counts();
    assert_eq!((counts.queued, counts.delivered, counts.dropped, counts.connects), (600, 600, 0, 2));
}

#[test]
fn a_full_queue_drops_the_oldest_exactly_and_never_holds_the_producer() {
    let test = "a_full_queue_drops_the_oldest_exactly_and_never_holds_the_producer";
    let Some(mut broker) = Broker::start(test, BrokerOptions::default()) else { return };
    broker.stop();
    let rig = Rig::start(&MqttConfig { queue: 50, ..broker.config() });
    rig.await_log("nothing listens there; is the broker running, and is the port right?");
    let begun = Instant::now();
    // Even one that would wait, since nobody delivers.
    rig.push(20_000, WhenFull::Wait);
    assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
    let counts = rig.counts();
    assert_eq!((counts.queued, counts.delivered, counts.dropped, counts.waiting), (20_000, 0, 19_950, 50));
    broker.start_again();
    let subscriber = broker.subscribe();
    // Those 50 may have come before the subscription; the next come after it.
    rig.await_connected();
    wait_until("delivered", || rig.telemetry.delivered.get() == 50);
    rig.push(10, WhenFull::Wait);
    let got = numbers(&subscriber, 20_010);
    assert!(got[0] > 19_950 && got.windows(2).all(|pair| pair[1] == pair[0] + 1), "{got:?}");
    assert_eq!(rig.stop(), SinkEnd::Drained);
    assert_eq!((rig.counts().delivered, rig.counts().dropped), (60, 19_950));
}

#[test]
fn an_absent_broker_delays_no_stop_and_what_is_left_is_counted() {
    let config = MqttConfig { port: free_port(), ..absent() };
    let rig = Rig::start(&config);
    rig.push(7, WhenFull::DropOldest);
    rig.await_log("nothing listens there");
    let SinkEnd::Closed(reason) = rig.stop() else { panic!("nothing was delivered") };
    assert!(
        reason.starts_with("7 events were not delivered to the MQTT broker: nothing listens"),
        "{reason}"
    );
    let counts = rig.counts();
    assert_eq!((counts.queued, counts.dropped, counts.waiting), (7, 7, 0));
}

#[test]
fn a_wrong_password_is_told_without_it() {
    let test = "a_wrong_password_is_told_without_it";
    let options = BrokerOptions { user: Some(("line", "right-password")), ..BrokerOptions::default() };
    let Some(broker) = Broker::start(test, options) else { return };
    let password = gantry::secret::Secret::new("wrong-password".into());
    let rig = Rig::start(&MqttConfig { password: Some(password), ..broker.config() });
    rig.await_log("it does not accept the user name or the password");
    wait_until("tried again", || rig.telemetry.failures.get() >= 3);
    assert_eq!(rig.log.count("does not accept"), 1, "told once:\n{}", rig.log.text());
    assert!(!rig.log.text().contains("-password"), "{}", rig.log.text());

    let nobody = Rig::start(&MqttConfig { username: None, password: None, ..broker.config() });
    nobody.await_log("it lets in nobody without a user name; set username and password");
    let right = Rig::start(&broker.config());
    right.await_connected();
    assert_eq!(right.stop(), SinkEnd::Drained);
}

#[test]
fn tls_with_a_private_ca_works_and_every_other_trust_is_refused_in_words() {
    let test = "tls_with_a_private_ca_works_and_every_other_trust_is_refused_in_words";
    let Some(broker) = Broker::start(test, BrokerOptions { tls: true, ..BrokerOptions::default() }) else {
        return;
    };
    let rig = Rig::start(&broker.config());
    rig.await_connected();
    let subscriber = broker.subscribe();
    rig.push(100, WhenFull::Wait);
    assert_eq!(numbers(&subscriber, 100), everything_up_to(100));
    assert_eq!(rig.stop(), SinkEnd::Drained);

    let says = |config: MqttConfig, words: &str| {
        let rig = Rig::start(&config);
        rig.await_log(words);
        assert!(!rig.shared.delivering.load(Ordering::Acquire));
    };
    let config = || broker.config();
    says(
        MqttConfig { ca_file: None, ..config() },
        "from a CA that this system does not know; set ca_file to that CA's certificate",
    );
    let Some(other) = Broker::start(test, BrokerOptions { tls: true, ..BrokerOptions::default() }) else {
        return;
    };
    says(
        MqttConfig { ca_file: Some(other.file("ca.pem")), ..config() },
        "not from the CA in ca_file; set ca_file to the CA that signed it",
    );
    says(MqttConfig { host: "127.0.0.1".into(), ..config() }, "is not for the name 127.0.0.1");
    says(MqttConfig { tls: false, ..config() }, "or it wants TLS on this port (mqtts://)");
    says(
        MqttConfig { ca_file: Some("/absent/ca.pem".into()), ..config() },
        "ca_file /absent/ca.pem cannot be read",
    );
    let Some(plain) = Broker::start(test, BrokerOptions::default()) else { return };
    says(MqttConfig { port: plain.port, ..config() }, "does the broker speak TLS on this port?");
}

#[test]
fn a_broker_that_wants_a_certificate_gets_one() {
    let test = "a_broker_that_wants_a_certificate_gets_one";
    let options = BrokerOptions { tls: true, client_certificates: true, ..BrokerOptions::default() };
    let Some(broker) = Broker::start(test, options) else { return };
    let without = Rig::start(&broker.config());
    without.await_log("the broker wants a certificate of ours; set cert_file and key_file");
    let config = MqttConfig {
        cert_file: Some(broker.file("client.pem")),
        key_file: Some(broker.file("client.key")),
        client_id: "with".into(),
        ..broker.config()
    };
    let with = Rig::start(&config);
    with.await_connected();
    assert_eq!(with.stop(), SinkEnd::Drained);
    let wrong_key = Rig::start(&MqttConfig { key_file: Some(broker.file("ca.key")), ..config });
    wrong_key.await_log("ca.key does not fit the certificate in ");
}

#[test]
fn health_arrives_and_is_not_retained() {
    let test = "health_arrives_and_is_not_retained";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    let rig = Rig::start(&broker.config());
    rig.await_connected();
    let subscriber = broker.subscribe();
    let telemetry = Telemetry { sinks: vec![Arc::clone(&rig.telemetry)], ..Telemetry::default() };
    let payload =
        health(&rig.identity, Stamp::now(), Duration::from_secs(10), &telemetry.snapshot(Instant::now()));
    rig.handle.health(payload);
    let message = subscriber.next_on("/health");
    assert_eq!(message.topic, "gantry/line-7/health");
    assert_eq!(message.field("sinks")[0]["connects"], 1);
    assert_eq!(rig.stop(), SinkEnd::Drained);
    let later = broker.subscribe();
    assert!(later.next_on("/status").retained);
    assert_eq!(later.next_within(Duration::from_millis(300)), None);
}

#[test]
fn refused_and_oversized_events_are_counted_told_and_hold_up_nothing() {
    let test = "refused_and_oversized_events_are_counted_told_and_hold_up_nothing";
    let options = BrokerOptions {
        user: Some(("line", "secret")),
        access: "user line\ntopic readwrite gantry/line-7/status\ntopic readwrite gantry/line-7/camera/press-1/detections\n",
        config: "max_packet_size 2000",
        ..BrokerOptions::default()
    };
    let Some(broker) = Broker::start(test, options) else { return };
    for qos in [1, 2] {
        let subscriber = broker.subscribe();
        let rig = Rig::start(&MqttConfig { qos, ..broker.config() });
        rig.await_connected();
        let forbidden = TopicSequence::new("gantry/line-7/camera/press-2/detections".into());
        for _ in 0..40 {
            forbidden.publish(&rig.outbox, WhenFull::Wait, made(), || (), |seq| seq.to_string().into());
        }
        rig.await_log("it refuses a message (NotAuthorized); allow the user to write to gantry/line-7/#");
        let large = |_| Bytes::from(vec![b' '; 3000]);
        rig.sequence.publish(&rig.outbox, WhenFull::Wait, made(), || (), large);
        rig.await_log("it takes messages of at most 2000 bytes, and one has 3049; raise its max_packet_size");
        rig.push(10, WhenFull::Wait);
        assert_eq!(numbers(&subscriber, 11), (2..=11).collect::<Vec<_>>());
        assert_eq!(rig.stop(), SinkEnd::Drained);
        let counts = rig.counts();
        assert_eq!((counts.queued, counts.delivered, counts.dropped), (51, 10, 41), "QoS {qos}");
        assert!(rig.log.count("NotAuthorized") <= 2, "{}", rig.log.text());
    }
}

#[test]
fn a_broker_that_refuses_and_hangs_up_holds_nothing_up() {
    let test = "a_broker_that_refuses_and_hangs_up_holds_nothing_up";
    // With this setting mosquitto 2.0.11 closes the connection at a message that it refuses.
    let options = BrokerOptions {
        user: Some(("line", "secret")),
        access: "user line\ntopic readwrite gantry/line-7/status\ntopic readwrite gantry/line-7/camera/press-1/detections\n",
        config: "max_queued_messages 0",
        ..BrokerOptions::default()
    };
    let Some(broker) = Broker::start(test, options) else { return };
    let subscriber = broker.subscribe();
    let rig = Rig::start(&broker.config());
    rig.await_connected();
    rig.push(3, WhenFull::DropOldest);
    let forbidden = TopicSequence::new("gantry/line-7/camera/press-2/detections".into());
    forbidden.publish(&rig.outbox, WhenFull::DropOldest, made(), || (), |seq| seq.to_string().into());
    rig.push(3, WhenFull::DropOldest);
    assert_eq!(numbers(&subscriber, 6), everything_up_to(6));
    wait_until("settled", || rig.counts().waiting == 0);
    assert_eq!((rig.counts().delivered, rig.counts().dropped), (6, 1));
}

#[test]
fn an_event_at_which_the_broker_hangs_up_is_given_up_after_three_times() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Rig::start(&MqttConfig { port: listener.local_addr().unwrap().port(), ..absent() });
    rig.push(3, WhenFull::DropOldest);
    let poison = |_| Bytes::from("poison");
    rig.sequence.publish(&rig.outbox, WhenFull::DropOldest, made(), || (), poison);
    rig.push(3, WhenFull::DropOldest);
    let spec = ThreadSpec { name: "test/broker".into(), kind: ThreadKind::Output, limit: LIMIT };
    let serve = move |_| listener.incoming().for_each(|client| hang_up_at_poison(client.unwrap()));
    Threads::new().spawn(spec, serve, |_| ()).unwrap();
    rig.await_log("it closes the connection whenever it gets an event, which is given up after 3 times");
    wait_until("settled", || rig.counts().waiting == 0);
    assert_eq!((rig.counts().delivered, rig.counts().dropped), (6, 1));
    assert_eq!(rig.stop(), SinkEnd::Drained);
}

/// As much of a broker as it takes to acknowledge QoS 1 and to hang up, with its answers unread, at a certain payload.
fn hang_up_at_poison(mut client: TcpStream) {
    let mut answers = Vec::new();
    loop {
        let mut header = [0; 2];
        if client.read_exact(&mut header).is_err() {
            return;
        }
        let mut length = usize::from(header[1] & 0x7f);
        if header[1] >= 0x80 {
            let mut high = [0];
            client.read_exact(&mut high).unwrap();
            length += usize::from(high[0]) << 7;
        }
        let mut body = vec![0; length];
        client.read_exact(&mut body).unwrap();
        match header[0] >> 4 {
            1 => client.write_all(&[0x20, 3, 0, 0, 0]).unwrap(),
            3 if body.ends_with(b"poison") => return,
            3 => {
                let id = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
                answers.extend([0x40, 2, body[id], body[id + 1]]);
            }
            _ => return,
        }
        // Answers go out when nothing more has come, as those of a broker that works through what it has read.
        client.set_nonblocking(true).unwrap();
        let is_idle = client.peek(&mut [0]).is_err();
        client.set_nonblocking(false).unwrap();
        if is_idle && client.write_all(&std::mem::take(&mut answers)).is_err() {
            return;
        }
    }
}

#[test]
fn a_client_with_the_same_id_is_named_as_a_cause() {
    let test = "a_client_with_the_same_id_is_named_as_a_cause";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    let first = Rig::start(&broker.config());
    first.await_connected();
    let _second = Rig::start(&broker.config());
    // Brokers that say why make it certain; mosquitto 2.0.11 closes without a word.
    first.await_log("the client id gantry-line-7");
}

#[test]
fn what_is_no_mqtt_5_broker_is_told_as_such() {
    // The third is what a broker of MQTT 3.1.1 answers: unacceptable protocol version.
    for (answer, words) in [
        (&[0xD0, 0][..], "what answers is no MQTT 5 broker"),
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "it may be no broker"),
        (&[0x20, 2, 0, 1][..], "may not speak MQTT 5, which Gantry needs"),
        (&[][..], "may not speak MQTT 5, which Gantry needs"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let rig = Rig::start(&MqttConfig { port: listener.local_addr().unwrap().port(), ..absent() });
        let (mut client, _) = listener.accept().unwrap();
        client.read_exact(&mut [0; 20]).unwrap();
        client.write_all(answer).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        rig.await_log(words);
    }
}

#[test]
fn a_network_that_falls_silent_is_found_and_a_stop_in_it_keeps_its_time() {
    let test = "a_network_that_falls_silent_is_found_and_a_stop_in_it_keeps_its_time";
    let Some(broker) = Broker::start(test, BrokerOptions::default()) else { return };
    let proxy = Proxy::start(broker.port, &[]);
    let config = MqttConfig { port: proxy.port, ..broker.config() };
    let (rig, stopping) =
        (Rig::start(&config), Rig::start(&MqttConfig { client_id: "stopping".into(), ..config.clone() }));
    rig.await_connected();
    stopping.await_connected();
    proxy.fall_silent();
    // More than sockets on the way take, so that writing blocks too.
    let large = |_| Bytes::from(vec![b' '; 1_000_000]);
    for _ in 0..20 {
        rig.sequence.publish(&rig.outbox, WhenFull::DropOldest, made(), || (), large);
    }
    stopping.push(3, WhenFull::DropOldest);
    let begun = Instant::now();
    stopping.handle.stop(Duration::from_secs(1));
    let SinkEnd::Closed(reason) = stopping.ended.recv_timeout(LIMIT).unwrap() else { panic!("into nothing") };
    assert_eq!(
        reason,
        "3 events were not delivered to the MQTT broker: the broker did not take everything in time"
    );
    assert!(begun.elapsed() < LIMIT / 4, "{:?}", begun.elapsed());
    assert_eq!((stopping.counts().dropped, stopping.counts().waiting), (3, 0));
    rig.await_log("the broker does not answer any more");
    assert!(!rig.shared.delivering.load(Ordering::Acquire));
    assert_eq!(rig.counts().waiting, 20, "kept for the next connection");
}

#[test]
fn standard_output_ends_with_its_reader() {
    let telemetry = Arc::new(SinkTelemetry::new("stdout"));
    let (queue, inbox) = sink_queue(bounded(100), Arc::clone(&telemetry));
    let (outbox, sequence) = (Outbox::new(vec![queue]), TopicSequence::new(DETECTIONS.into()));
    let (reader, writer) = std::io::pipe().unwrap();
    let (tx, ended) = bounded(1);
    let spec = ThreadSpec { name: "out/stdout".into(), kind: ThreadKind::Output, limit: LIMIT };
    let body = move |heartbeat: Heartbeat| tx.send(jsonl::run(&inbox, writer, &heartbeat)).unwrap();
    Threads::new().spawn(spec, body, |_| ()).unwrap();
    let push = || {
        let encode = |seq| Bytes::from(format!("{{\"seq\":{seq}}}"));
        sequence.publish(&outbox, WhenFull::Wait, made(), || (), encode)
    };
    let mut lines = BufReader::new(reader).lines();
    for seq in 1..=5 {
        // Each line comes without the next one pushing it out.
        assert_eq!(push(), seq);
        assert_eq!(lines.next().unwrap().unwrap(), format!("{{\"seq\":{seq}}}"));
    }
    wait_until("counted", || telemetry.delivered.get() == 5);
    drop(lines);
    push();
    let end = ended.recv_timeout(LIMIT).unwrap();
    assert_eq!(end, SinkEnd::Closed("the reader of standard output has closed it".into()));
    // A lossless producer goes on.
    (0..500).for_each(|_| assert!(push() > 6));
    assert_eq!((telemetry.queued.get(), telemetry.delivered.get(), telemetry.dropped.get()), (506, 5, 501));
}
