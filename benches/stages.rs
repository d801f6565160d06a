//! Each stage by itself. A figure is to be read beside the yardstick of its group, taken in the same run: copying the same
//! bytes for the passes over memory.
//!
//! `cargo bench --bench stages`, or `-- --quick` for a first look, or `-- decode` for one group.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_channel::bounded;
use gantry::backend::tensor::{ElementType, Elements, ElementsMut, Shape, TensorSpec, TensorView};
use gantry::frame::clock::{CaptureClock, Captured};
use gantry::frame::mailbox::Mailbox;
use gantry::frame::slab::SlabPool;
use gantry::frame::{
    CameraId, ColorMatrix, ColorRange, Frame, FramePool, FrameRef, FrameTimes, Geometry, LentMemory, Memory,
    PixelFormat,
};
use gantry::postprocess::bbox::BBox;
use gantry::postprocess::nms::{Candidate, Nms};
use gantry::postprocess::{Detection, Family, OutputSpec, Suppression};
use gantry::preprocess::host::{Held, Preprocessor};
use gantry::preprocess::kernel::Kernel;
use gantry::preprocess::letterbox::{Letterbox, RegionConfig};
use gantry::preprocess::{Align, ColorOrder, Filter, InputSpec, Layout, Quantization, Resize};
use gantry::publish::encode::{DetectionEncoder, EventTime, Identity, TopicSequence};
use gantry::publish::event::ModelRef;
use gantry::publish::{Made, Outbox, WhenFull, sink_queue};
use gantry::telemetry::{CameraTelemetry, SinkTelemetry, Stages};
use zerocopy::IntoBytes;

fn input(size: u32, element_type: ElementType, layout: Layout) -> InputSpec {
    InputSpec {
        width: size,
        height: size,
        element_type,
        quantization: Quantization::NONE,
        layout,
        color: ColorOrder::Rgb,
        mean: [0.0; 3],
        std: if element_type.integers().is_none() { [255.0; 3] } else { [2.0; 3] },
        resize: Resize::Letterbox,
        filter: Filter::Bilinear,
        pad: 114,
        align: Align::Center,
    }
}

/// A picture of noise.
fn frame(format: PixelFormat, width: u32, height: u32) -> Frame {
    let geometry = Geometry::packed(format, width, height, ColorMatrix::Bt709, ColorRange::Limited);
    let mut random = fastrand::Rng::with_seed(1);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(geometry.len()).collect();
    let now = Instant::now();
    let captured = Captured::new(CaptureClock::Test, now);
    let times = FrameTimes { pts: Some(Duration::ZERO), captured, received: now, ready: now };
    Frame::new(CameraId::new("bench"), 1, times, geometry, Memory::Lent(LentMemory::new(bytes)))
        .expect("the picture was made to fit its memory")
}

fn preprocess(criterion: &mut Criterion) {
    let pictures = [(PixelFormat::Nv12, 640, 480), (PixelFormat::Nv12, 1920, 1080)];
    for (format, width, height) in pictures {
        let frame = frame(format, width, height);
        for size in [256, 640] {
            let spec = input(size, ElementType::F32, Layout::Nchw);
            write_beside_copy(criterion, &frame, &spec);
        }
    }
    for format in [PixelFormat::I420, PixelFormat::Yuy2, PixelFormat::Gray8, PixelFormat::Bgra] {
        write_beside_copy(criterion, &frame(format, 640, 480), &input(256, ElementType::F32, Layout::Nchw));
    }
    let small = frame(PixelFormat::Nv12, 640, 480);
    for element_type in ElementType::ALL {
        write_beside_copy(criterion, &small, &input(256, element_type, Layout::Nhwc));
    }
    let averaged = InputSpec { filter: Filter::Area, ..input(256, ElementType::F32, Layout::Nchw) };
    write_beside_copy(criterion, &frame(PixelFormat::Nv12, 1920, 1080), &averaged);
}

/// The pass by each kernel, and as the yardstick a copy of as many bytes as the picture and the tensor have.
fn write_beside_copy(criterion: &mut Criterion, frame: &Frame, spec: &InputSpec) {
    let Geometry { format, width, height, .. } = frame.geometry();
    let bytes = 3 * (spec.width * spec.height) as usize * spec.element_type.size();
    let title = format!(
        "preprocess {} {width}x{height} to {}x{} {} {:?} {:?}",
        format.name(),
        spec.width,
        spec.height,
        spec.element_type.name(),
        spec.layout,
        spec.filter
    );
    let mut group = criterion.benchmark_group(title);
    group.throughput(Throughput::Bytes((frame.geometry().len() + bytes) as u64));
    for kernel in Kernel::available() {
        let mut preprocessor = Preprocessor::with_kernel(spec.clone(), kernel);
        let (mut words, mut held) = (vec![0_u64; bytes / 8], Held::default());
        group.bench_function(kernel.name(), |bencher| {
            bencher.iter(|| {
                let slot = ElementsMut::of(spec.element_type, black_box(words.as_mut_bytes()));
                preprocessor.write(black_box(frame), RegionConfig::default(), slot, &mut held)
            });
        });
    }
    let from = vec![1_u8; frame.geometry().len() + bytes];
    let mut to = vec![0_u8; from.len()];
    group.bench_function("copy of the same bytes", |bencher| {
        bencher.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    });
    group.finish();
}

/// A frame's output of `anchors` boxes that do not overlap much, `found` of which have a high score in one class.
fn output(family: Family, classes: usize, anchors: usize, found: usize, turned: bool) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(2);
    let objectness = usize::from(family == Family::YoloV5);
    let channels = 4 + objectness + classes;
    let mut table = vec![0.0; channels * anchors];
    for anchor in 0..anchors {
        let strong = anchor * found / anchors != (anchor + 1) * found / anchors;
        let class = random.usize(..classes);
        for channel in 0..channels {
            let value = match channel {
                0 | 1 => random.f32() * 640.0,
                2 | 3 => 8.0 + random.f32() * 40.0,
                4 if objectness == 1 => {
                    if strong {
                        0.9
                    } else {
                        0.01
                    }
                }
                _ if strong && channel == 4 + objectness + class => 0.5 + random.f32() / 2.0,
                _ => random.f32() * 0.1,
            };
            table[if turned { anchor * channels + channel } else { channel * anchors + anchor }] = value;
        }
    }
    table
}

fn decode(criterion: &mut Criterion) {
    let back = Letterbox::new(1920, 1080, &input(640, ElementType::F32, Layout::Nchw));
    let mut group = criterion.benchmark_group("decode");
    for (family, anchors, turned) in
        [(Family::YoloV8, 8400, false), (Family::YoloV8, 8400, true), (Family::YoloV5, 25_200, true)]
    {
        let channels = if family == Family::YoloV5 { 85 } else { 84 };
        let shape = if turned { [1, anchors, channels] } else { [1, channels, anchors] };
        let dims = shape.map(|size| i64::try_from(size).expect("a size is small"));
        let tensor = TensorSpec {
            name: "output0".to_owned(),
            element_type: ElementType::F32,
            shape: Shape::new(&dims),
        };
        let spec = OutputSpec { family, tensor, classes: 80, iou: 0.45, suppression: Suppression::PerClass };
        for found in [20, 1000, anchors] {
            let table = output(family, 80, anchors, found, turned);
            let mut decoder = spec.decoder().expect("the shape was made to fit");
            let mut into = Vec::with_capacity(anchors);
            group.throughput(Throughput::Bytes((table.len() * 4) as u64));
            let title = format!("{} {dims:?}, {found} candidates", family.name());
            group.bench_function(title, |bencher| {
                bencher.iter(|| {
                    into.clear();
                    let elements = Elements::F32(black_box(&table));
                    decoder.decode(&TensorView { shape: &shape, elements }, 0, &back, 0.25, &mut into)
                });
            });
        }
    }
    let (from, mut to) = (vec![1.0_f32; 84 * 8400], vec![0.0_f32; 84 * 8400]);
    group.throughput(Throughput::Bytes(84 * 8400 * 4));
    group.bench_function("copy of [1, 84, 8400]", |bencher| {
        bencher.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    });
    group.finish();
}

fn suppress(criterion: &mut Criterion) {
    let mut random = fastrand::Rng::with_seed(3);
    let mut candidate = |index, spread: f32| {
        let (x, y) = (random.f32() * spread, random.f32() * spread);
        let bbox = BBox { x, y, w: 20.0 + random.f32() * 60.0, h: 20.0 + random.f32() * 60.0 };
        Candidate { detection: Detection { class_id: random.u32(..4), score: random.f32(), bbox }, index }
    };
    let mut group = criterion.benchmark_group("suppress");
    for (title, count, spread) in [
        ("1000 in clusters", 1000, 200.0),
        ("1000 spread out", 1000, 4000.0),
        ("10000 spread out", 10_000, 20_000.0),
    ] {
        let candidates: Vec<Candidate> = (0..count).map(|index| candidate(index, spread)).collect();
        for suppression in [Suppression::PerClass, Suppression::Agnostic] {
            let mut nms = Nms::new(0.45, suppression);
            group.bench_function(format!("{title}, {suppression:?}"), |bencher| {
                let fresh = || candidates.clone();
                bencher.iter_batched_ref(fresh, |candidates| nms.suppress(candidates), BatchSize::LargeInput);
            });
        }
    }
    group.finish();
}

fn mailbox(criterion: &mut Criterion) {
    let frame = FrameRef::from(frame(PixelFormat::Gray8, 64, 64));
    let mailbox = Mailbox::new();
    criterion.bench_function("mailbox put and take", |bencher| {
        bencher.iter(|| {
            drop(black_box(mailbox.put(frame.clone())));
            mailbox.take()
        });
    });
}

/// A picture's memory and its frame, from the pools and, as the yardstick, from the allocator, whose fresh pages the system
/// has to find and clear.
fn memory(criterion: &mut Criterion) {
    let len = frame(PixelFormat::Nv12, 1920, 1080).geometry().len();
    let pool =
        SlabPool::new(len, 8, Arc::new(CameraTelemetry::new("bench"))).expect("there is memory for 8 frames");
    let mut group = criterion.benchmark_group("memory of a 1080p picture");
    group.bench_function("slab of the pool", |bencher| {
        bencher.iter(|| pool.lease().map(|slab| black_box(slab.share().clone())));
    });
    group.bench_function("allocated and filled", |bencher| {
        bencher.iter(|| black_box(vec![1_u8; black_box(len)]));
    });
    let (frames, camera) = (FramePool::new(8), CameraId::new("bench"));
    let geometry = *frame(PixelFormat::Nv12, 1920, 1080).geometry();
    let picture = || {
        let now = Instant::now();
        let times = FrameTimes {
            pts: Some(Duration::ZERO),
            captured: Captured::new(CaptureClock::Test, now),
            received: now,
            ready: now,
        };
        let memory = Memory::Slab(pool.lease().expect("the one before went home").share());
        Frame::new(camera.clone(), 1, times, geometry, memory)
            .expect("the picture was made to fit its memory")
    };
    group.bench_function("frame of the pool", |bencher| bencher.iter(|| black_box(frames.fill(picture()))));
    group.bench_function("frame allocated", |bencher| bencher.iter(|| black_box(Arc::new(picture()))));
    group.finish();
}

/// Making an event of a frame, and as the yardstick a copy of the bytes that it has.
fn encode(criterion: &mut Criterion) {
    let frame = frame(PixelFormat::Gray8, 64, 64);
    let model = ModelRef { name: "line-parts", version: "1.0.0", device: "cpu0" };
    let labels: Arc<[String]> = ["nut", "washer", "bolt", "defect"].map(str::to_owned).into();
    let mut encoder = DetectionEncoder::new(Arc::new(Identity::new("line-7")), model, labels);
    let mut random = fastrand::Rng::with_seed(4);
    let mut detection = || {
        let (x, y) = (random.f32() * 1800.0, random.f32() * 1000.0);
        let bbox = BBox { x, y, w: 20.0 + random.f32() * 60.0, h: 20.0 + random.f32() * 60.0 };
        Detection { class_id: random.u32(..4), score: random.f32(), bbox }
    };
    let found: Vec<Detection> = (0..100).map(|_| detection()).collect();
    let stages = Stages::default().map(|_: Duration| Duration::from_micros(1234));
    let mut group = criterion.benchmark_group("event");
    for count in [0, 5, 100] {
        let found = &found[..count];
        let len = encoder.encode(&frame, found, &stages, EventTime::now(), 1).len();
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("encode {count} detections"), |bencher| {
            bencher
                .iter(|| encoder.encode(black_box(&frame), black_box(found), &stages, EventTime::now(), 1));
        });
        let (from, mut to) = (vec![1_u8; len], vec![0_u8; len]);
        group.bench_function(format!("copy of the {len} bytes of {count} detections"), |bencher| {
            bencher.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
        });
    }
    group.finish();
}

/// Numbering an event and putting it into the queue of one sink, which is emptied here.
fn hand_over(criterion: &mut Criterion) {
    let (queue, inbox) = sink_queue(bounded(1000), Arc::new(SinkTelemetry::new("bench")));
    let (outbox, sequence) = (Outbox::new(vec![queue]), TopicSequence::new("a/topic".into()));
    let (payload, publish) = (Bytes::from(vec![1_u8; 700]), Arc::default());
    criterion.bench_function("hand an event to a sink that looks for itself", |bencher| {
        bencher.iter(|| {
            let encode = |_| payload.clone();
            let made = Made { at: Instant::now(), publish: Arc::clone(&publish) };
            sequence.publish(&outbox, WhenFull::DropOldest, made, || (), encode);
            inbox.queue.try_recv()
        });
    });
}

criterion_group!(stages, preprocess, decode, suppress, mailbox, memory, encode, hand_over);
criterion_main!(stages);
