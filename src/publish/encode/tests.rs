//! Real messages against their golden text and their schemas.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::frame::clock::{CaptureClock, Captured};
use crate::frame::{ColorMatrix, ColorRange, FrameTimes, Geometry, LentMemory, Memory, PixelFormat};
use crate::memory::allocations::during;
use crate::postprocess::bbox::BBox;
use crate::publish::sink_queue;
use crate::telemetry::{
    BatchTelemetry, CameraTelemetry, DeviceTelemetry, DropReason, RouteTelemetry, SinkTelemetry, Telemetry,
};

const US: Duration = Duration::from_micros(1);

macro_rules! schema {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/config/schema/gantry.", $name, ".schema.json"))
    };
}

fn validator(schema: &str) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap()
}

fn check(validator: &jsonschema::Validator, message: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(message).unwrap();
    let errors: Vec<_> =
        validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?} in {value:#}");
    assert!(!message.contains(&b'\n'), "one line");
    value
}

fn identity() -> Identity {
    Identity {
        node: "line-7".into(),
        boot_id: "7f0c8a52-94cd-4b6e-8b0e-3a1f5d2c9e10".into(),
        version: "0.1.0".into(),
    }
}

fn encoder(labels: &[&str]) -> DetectionEncoder {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    let model = ModelRef { name: "line-parts", version: "3.1.0", device: "gpu0" };
    DetectionEncoder::new(Arc::new(identity()), model, labels)
}

fn frame(id: u64, (width, height): (u32, u32), captured: Captured, received: Instant) -> Frame {
    let geometry =
        Geometry::packed(PixelFormat::Gray8, width, height, ColorMatrix::Bt601, ColorRange::Limited);
    let times = FrameTimes { pts: None, captured, received, ready: received };
    let memory = Memory::Lent(LentMemory::new(vec![0_u8; geometry.len()]));
    Frame::new(CameraId::new("press-1"), id, times, geometry, memory).unwrap()
}

fn detection(class_id: u32, score: f32, [x, y, w, h]: [f32; 4]) -> Detection {
    Detection { class_id, score, bbox: BBox { x, y, w, h } }
}

fn stages(lengths: [Duration; 6]) -> Stages<Duration> {
    let [video_decode, queue, preprocess, batch_wait, infer, postprocess] = lengths;
    Stages { video_decode, queue, preprocess, batch_wait, infer, postprocess }
}

fn sum(stage_ms: &Value) -> f64 {
    stage_ms.as_object().unwrap().values().map(|stage| stage.as_f64().unwrap()).sum()
}

#[test]
fn a_detections_message_is_exactly_this() {
    let now = Instant::now();
    let at = EventTime { now, wall: "2026-11-30T21:04:05.164656Z".parse().unwrap(), ..EventTime::now() };
    let error = Some(1500 * US);
    let captured = Captured { error, ..Captured::new(CaptureClock::V4l2, now - 41_200 * US) };
    let frame = frame(88_123, (1920, 1080), captured, now - 24_600 * US);
    let found = [detection(2, 0.91, [102.0, 220.5, 64.0, 60.2]), detection(7, 0.5, [0.0, 0.0, 1919.25, 1.0])];
    let stages = stages([4100, 1000, 800, 600, 17_900, 200].map(|us| us * US));
    let message = encoder(&["nut", "bolt", "gear"]).encode(&frame, &found, &stages, at, 1042);
    let golden = concat!(
        r#"{"schema":"gantry.detections/1","node":"line-7","camera":"press-1","#,
        r#""boot_id":"7f0c8a52-94cd-4b6e-8b0e-3a1f5d2c9e10","seq":1042,"#,
        r#""captured_at":"2026-11-30T21:04:05.123456Z","capture_clock":"v4l2","capture_error_ms":1.5,"#,
        r#""received_at":"2026-11-30T21:04:05.140056Z","age_ms":41.2,"late":false,"camera_state":"live","#,
        r#""model":{"name":"line-parts","version":"3.1.0","device":"gpu0"},"#,
        r#""frame":{"id":88123,"width":1920,"height":1080},"#,
        r#""detections":[{"label":"gear","class_id":2,"score":0.91,"box":{"x":102.0,"y":220.5,"w":64.0,"h":60.2}},"#,
        r#"{"label":"class_7","class_id":7,"score":0.5,"box":{"x":0.0,"y":0.0,"w":1919.25,"h":1.0}}],"#,
        r#""stage_ms":{"video_decode":4.1,"queue":1.0,"preprocess":0.8,"batch_wait":0.6,"infer":17.9,"postprocess":0.2}}"#,
    );
    assert_eq!(std::str::from_utf8(&message).unwrap(), golden);
    check(&validator(schema!("detections")), &message);
}

#[test]
fn a_late_result_says_so() {
    let now = Instant::now();
    let frame = frame(1, (1, 1), Captured::new(CaptureClock::Test, now), now);
    for (punctuality, late) in [(Punctuality::Late, true), (Punctuality::InTime, false)] {
        let at = EventTime { punctuality, ..EventTime::now() };
        let message = encoder(&[]).encode(&frame, &[], &stages([Duration::ZERO; 6]), at, 1);
        let value = check(&validator(schema!("detections")), &message);
        assert_eq!(value["late"], late);
    }
}

#[test]
fn a_file_has_no_age_and_an_empty_result_has_an_empty_array() {
    let now = Instant::now();
    let captured = Captured::new(CaptureClock::File, now + Duration::from_secs(3));
    let frame = frame(1, (1, 1), captured, now);
    let message = encoder(&[]).encode(
        &frame,
        &[],
        &stages([Duration::ZERO; 6]),
        EventTime { now, ..EventTime::now() },
        1,
    );
    let value = check(&validator(schema!("detections")), &message);
    assert_eq!(value["age_ms"], Value::Null);
    assert_eq!(value["capture_error_ms"], Value::Null);
    assert_eq!(value["detections"], Value::Array(Vec::new()));
    assert!(value["captured_at"].as_str() > value["received_at"].as_str(), "ahead of the run's clock");
}

#[test]
fn a_detection_that_is_not_finite_is_left_out_and_rounding_past_the_edge_is_held() {
    let now = Instant::now();
    let frame = frame(1, (640, 480), Captured::new(CaptureClock::Test, now), now);
    let found = [
        detection(0, f32::NAN, [1.0; 4]),
        detection(0, 1.000_000_1, [-0.0, -0.000_01, 5.0, 5.0]),
        detection(0, 0.5, [f32::INFINITY, 1.0, 1.0, 1.0]),
    ];
    let at = EventTime { now, ..EventTime::now() };
    let message = encoder(&["nut"]).encode(&frame, &found, &stages([Duration::ZERO; 6]), at, 1);
    let value = check(&validator(schema!("detections")), &message);
    let kept = serde_json::to_string(&value["detections"]).unwrap();
    let golden = r#"[{"label":"nut","class_id":0,"score":1.0,"box":{"x":0.0,"y":0.0,"w":5.0,"h":5.0}}]"#;
    assert_eq!(kept, golden);
}

#[test]
fn encoding_and_handing_over_allocates_nothing() {
    let now = Instant::now();
    let frame = frame(1, (1920, 1080), Captured::new(CaptureClock::Arrival, now), now);
    let found: Vec<_> =
        (0..100_u16).map(|n| detection(u32::from(n % 5), 0.123_456_79, [f32::from(n) / 3.0; 4])).collect();
    let mut encoder = encoder(&["nut", "bolt \u{1}", "gear"]);
    let telemetry = Arc::new(SinkTelemetry::new("mqtt"));
    let (queue, inbox) = sink_queue(crossbeam_channel::bounded(8), telemetry);
    let (outbox, sequence) = (Outbox::new(vec![queue]), TopicSequence::new("t".into()));
    let publish = Arc::default();
    let ((), allocated) = during(|| {
        for count in (0..=100).cycle().take(2000) {
            let at = EventTime { now, ..EventTime::now() };
            let (found, stages) = (&found[..count], stages([US * 333; 6]));
            let encode = |seq| encoder.encode(&frame, found, &stages, at, seq);
            let made = Made { at: now, publish: Arc::clone(&publish) };
            sequence.publish(&outbox, WhenFull::DropOldest, made, || (), encode);
        }
    });
    assert_eq!(allocated, 0);
    assert_eq!(inbox.queue.len(), 8);
}

#[test]
fn stages_are_rounded_so_that_their_sum_is_the_rounded_whole() {
    let third = Duration::from_nanos(333_333);
    let rounded = stages_ms(&stages([third; 6]));
    let all = [
        rounded.video_decode,
        rounded.queue,
        rounded.preprocess,
        rounded.batch_wait,
        rounded.infer,
        rounded.postprocess,
    ];
    // 1.999998 ms; each third rounded by itself would make 1.998 ms.
    assert_eq!(all, [0.333, 0.334, 0.333, 0.333, 0.334, 0.333]);
}

#[test]
fn status_messages_are_symmetric_and_fit_their_schema() {
    let validator = validator(schema!("status"));
    let since = Stamp::new("2026-11-30T21:04:05Z".parse().unwrap());
    let message = status(&identity(), StatusReason::ConnectionLost, since);
    let golden = concat!(
        r#"{"schema":"gantry.status/1","node":"line-7","boot_id":"7f0c8a52-94cd-4b6e-8b0e-3a1f5d2c9e10","#,
        r#""status":"offline","reason":"connection lost","version":"0.1.0","since":"2026-11-30T21:04:05.000000Z"}"#,
    );
    assert_eq!(std::str::from_utf8(&message).unwrap(), golden);
    use StatusReason::{ConnectionLost, Reconnected, Started, Stopped};
    for reason in [Started, Reconnected, Stopped, ConnectionLost] {
        check(&validator, &status(&Identity::new("line-7"), reason, Stamp::now()));
    }
    let lie = String::from_utf8(message.to_vec()).unwrap().replace("offline", "online");
    assert!(!validator.is_valid(&serde_json::from_str(&lie).unwrap()), "lost is never online");
}

#[test]
fn camera_messages_fit_their_schema() {
    let validator = validator(schema!("camera"));
    let camera = CameraId::new("press-1");
    let message = |state, reason| {
        let told = CameraTold { state, reason, since: Stamp::now(), frame_age_ms: reason.map(|_| 1.5) };
        camera_state(&identity(), &camera, told)
    };
    check(&validator, &message("live", None));
    let value = check(&validator, &message("reconnecting", Some("the \"camera\" closed\nthe stream")));
    assert_eq!(value["reason"], "the \"camera\" closed\nthe stream");
    let wrong = serde_json::from_slice(&message("asleep", None)).unwrap();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn health_messages_fit_their_schema_with_and_without_figures() {
    let validator = validator(schema!("health"));
    let batches = Arc::new(BatchTelemetry::new("line-parts", 8));
    let bare = Telemetry {
        cameras: vec![Arc::new(CameraTelemetry::new("press-1"))],
        routes: vec![Arc::new(RouteTelemetry::new("press-1", "line-parts"))],
        devices: vec![Arc::new(DeviceTelemetry::new("cpu0", vec![Arc::clone(&batches)]))],
        sinks: vec![Arc::new(SinkTelemetry::new("mqtt"))],
        ..Telemetry::default()
    };
    let message = |telemetry: &Telemetry| {
        health(&identity(), Stamp::now(), Duration::from_millis(1500), &telemetry.snapshot(Instant::now()))
    };
    let value = check(&validator, &message(&bare));
    assert_eq!(value["uptime_s"], 1.5);
    assert_eq!(value["sinks"][0]["ack_ms"], Value::Null);
    bare.routes[0].observe(&stages([US * 1500; 6]), Some(Duration::from_millis(9)));
    bare.routes[0].dropped(DropReason::Stale);
    bare.routes[0].publish.record(Duration::from_millis(2));
    batches.ran(3);
    bare.sinks[0].observe_acknowledged(Duration::from_millis(3));
    let value = check(&validator, &message(&bare));
    assert_eq!(value["sinks"][0]["ack_ms"]["p50"].as_f64().unwrap().round(), 3.0);
    assert_eq!(value["routes"][0]["dropped"]["stale"], 1);
    assert_eq!(value["routes"][0]["publish_ms"]["max"].as_f64().unwrap().round(), 2.0);
    assert_eq!(value["routes"][0]["minute"]["age_ms"]["p99"].as_f64().unwrap().round(), 9.0);
    assert_eq!(value["devices"][0]["models"][0]["batch_sizes"][0], json!({"size": 3, "batches": 1}));
    check(&validator, &message(&Telemetry::default()));
}

#[test]
fn schemas_are_closed_and_describe_every_field() {
    fn walk(place: &str, schema: &Value) {
        if let Some(properties) = schema["properties"].as_object()
            && !place.contains("/oneOf")
        {
            assert_eq!(schema["additionalProperties"], false, "{place} is open");
            let mut required: Vec<_> =
                schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            let mut names: Vec<_> = properties.keys().map(String::as_str).collect();
            required.sort_unstable();
            names.sort_unstable();
            assert_eq!(required, names, "{place}: every field is always there");
            for (name, field) in properties {
                assert!(field["description"].is_string(), "{place}/{name} has no description");
            }
        }
        match schema {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, field)| walk(&format!("{place}/{name}"), field));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(place, item)),
            _ => (),
        }
    }
    for (name, text) in [
        ("detections", schema!("detections")),
        ("status", schema!("status")),
        ("camera", schema!("camera")),
        ("health", schema!("health")),
        ("report", schema!("report")),
    ] {
        let schema: Value = serde_json::from_str(text).unwrap();
        assert_eq!(schema["title"], format!("gantry.{name}/1"));
        walk(name, &schema);
    }
}

#[test]
fn topics_are_under_prefix_and_node() {
    let topics = Topics::new("plant/gantry", "line-7");
    let camera = CameraId::new("press-1");
    assert_eq!(&*topics.status, "plant/gantry/line-7/status");
    assert_eq!(&*topics.health, "plant/gantry/line-7/health");
    assert_eq!(&*topics.camera_state(&camera), "plant/gantry/line-7/camera/press-1/state");
    assert_eq!(&*topics.detections(&camera), "plant/gantry/line-7/camera/press-1/detections");
}

#[test]
fn two_workers_on_one_topic_queue_in_the_order_of_their_numbers() {
    let telemetry = Arc::new(SinkTelemetry::new("mqtt"));
    let (queue, inbox) = sink_queue(crossbeam_channel::bounded(4000), telemetry);
    let outbox = Outbox::new(vec![queue]);
    let sequence = TopicSequence::new("t".into());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let encode = |seq: u64| Bytes::from(seq.to_string());
                    let made = Made { at: Instant::now(), publish: Arc::default() };
                    sequence.publish(&outbox, WhenFull::DropOldest, made, || (), encode);
                }
            });
        }
    });
    let numbers: Vec<u64> = inbox
        .queue
        .try_iter()
        .map(|message| std::str::from_utf8(&message.payload).unwrap().parse().unwrap())
        .collect();
    assert!(numbers.into_iter().eq(1..=4000));
}

fn any_float() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => prop::num::f32::ANY,
        2 => -1.0_f32..4000.0,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, 1e-45]),
    ]
}

fn any_detection() -> impl Strategy<Value = Detection> {
    (0..5_u32, any_float(), prop::array::uniform4(any_float()))
        .prop_map(|(class_id, score, bbox)| detection(class_id, score, bbox))
}

proptest! {
    #[test]
    fn whatever_was_found_the_message_is_json_and_fits_its_schema(
        found in prop::collection::vec(any_detection(), 0..6),
        lengths in prop::array::uniform6(0..40_000_000_000_u64),
        labels in prop::collection::vec(".{0,12}", 0..4),
        age_ns in 0..10_000_000_000_u64,
        wall in -62_135_596_800_i64..253_402_207_200,
        seq in 1..u64::MAX,
        clock in prop::sample::select(vec![
            CaptureClock::Arrival, CaptureClock::Rtcp, CaptureClock::V4l2, CaptureClock::File, CaptureClock::Test,
        ]),
        error in prop::option::of(0..10_000_000_000_u64),
    ) {
        let validator = validator(schema!("detections"));
        let lengths = lengths.map(Duration::from_nanos);
        let total: Duration = lengths.iter().sum();
        // Far enough from the beginning of the monotonic clock for the longest times above.
        let received = Instant::now() + Duration::from_secs(600);
        let now = received + total;
        let captured = Captured {
            error: error.map(Duration::from_nanos),
            ..Captured::new(clock, now - Duration::from_nanos(age_ns))
        };
        let frame = frame(1, (640, 480), captured, received);
        let at = EventTime { now, wall: Timestamp::from_second(wall).unwrap(), ..EventTime::now() };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let mut encoder = encoder(&labels);
        let message = encoder.encode(&frame, &found, &stages(lengths), at, seq);
        prop_assert!(message.len() <= encoder.bytes_max(&frame, &found));
        let value = check(&validator, &message);
        prop_assert!((sum(&value["stage_ms"]) - total.as_secs_f64() * 1e3).abs() <= 0.000_6);
        let finite = found.iter().filter(|detection| is_finite(detection)).count();
        prop_assert_eq!(value["detections"].as_array().unwrap().len(), finite);
    }
}
