//! The report as metrics: every name, in one place.
//!
//! Names are `gantry_<noun>_<unit>[_total]`. Labels take their values from the config (cameras, models, devices, sinks) and
//! from short lists here, so there are as many series as the config is long. Latencies are histograms with fixed bounds,
//! which a fleet's figures can be added up from; the quantiles of one node are in `/status`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::control::report::Report;
use crate::memory::lock::Locked;
use crate::source::state::CameraState;
use crate::telemetry::histogram::{BOUNDS_US, Reading};
use crate::telemetry::warning::WarningKind;
use crate::telemetry::{CameraSnapshot, DeviceSnapshot, RouteSnapshot, SinkSnapshot, ThreadsSnapshot};

/// The text form, version 0.0.4.
#[must_use]
pub(super) fn text(report: Report) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(report));
    prometheus_text::encode(&mut text, &registry).expect("a String takes any text");
    text
}

type Labels<const N: usize> = [(&'static str, String); N];

impl Collector for Report {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metrics = Metrics { encoder };
        metrics.gauge(
            "gantry_info",
            "Which Gantry this is: always 1.",
            [([("version", self.version.clone()), ("node", self.node.clone())], 1.0)],
        )?;
        metrics.gauge("gantry_uptime_seconds", "Time since the daemon's start.", [([], self.uptime_s)])?;
        let is_ready = flag(self.not_ready.is_empty());
        metrics.gauge("gantry_ready", "1 while the daemon serves; /ready says why not.", [([], is_ready)])?;
        let stuck = count(self.stuck.len() as u64);
        metrics.gauge(
            "gantry_threads_stuck",
            "Threads that have work and make no progress; /live names them.",
            [([], stuck)],
        )?;
        self.cameras(&mut metrics)?;
        self.routes(&mut metrics)?;
        self.devices(&mut metrics)?;
        self.sinks(&mut metrics)?;
        self.memory(&mut metrics)?;
        self.threads(&mut metrics)
    }
}

impl Report {
    /// This of each camera, under its name.
    fn each_camera(&self, of: fn(&CameraSnapshot) -> u64) -> impl Iterator<Item = (Labels<1>, u64)> {
        self.cameras
            .iter()
            .map(move |camera| ([("camera", camera.counts.camera.clone())], of(&camera.counts)))
    }

    fn cameras(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let states = self.cameras.iter().flat_map(|camera| {
            CameraState::NAMES.map(|state| {
                let labels = [("camera", camera.counts.camera.clone()), ("state", state.to_owned())];
                (labels, flag(camera.counts.state == state))
            })
        });
        metrics.gauge(
            "gantry_camera_state",
            "1 for the state that the camera is in, 0 for the others.",
            states,
        )?;
        metrics.counter(
            "gantry_camera_packets",
            "RTP packets of the camera's video that came.",
            self.each_camera(|camera| camera.packets),
        )?;
        metrics.counter(
            "gantry_camera_packets_lost",
            "RTP packets between them that never came, or came too late.",
            self.each_camera(|camera| camera.packets_lost),
        )?;
        metrics.counter(
            "gantry_camera_encoded_pictures",
            "Encoded pictures that entered the video decoder.",
            self.each_camera(|camera| camera.encoded),
        )?;
        let skipped = self.cameras.iter().flat_map(|camera| {
            camera.counts.skipped.iter().map(move |(reason, pictures)| {
                let labels = [("camera", camera.counts.camera.clone()), ("reason", (*reason).to_owned())];
                (labels, *pictures)
            })
        });
        metrics.counter(
            "gantry_frames_skipped",
            "Pictures that no model was given: unwanted, not whole, or late. None of them was offered or dropped.",
            skipped,
        )?;
        metrics.counter(
            "gantry_camera_frames",
            "Decoded frames.",
            self.each_camera(|camera| camera.frames),
        )?;
        metrics.counter(
            "gantry_camera_frames_unusable",
            "Frames whose memory made no sense and were thrown away.",
            self.each_camera(|camera| camera.unusable),
        )?;
        self.pools(metrics)?;
        metrics.counter(
            "gantry_camera_connects",
            "Connections that delivered at least one frame.",
            self.each_camera(|camera| camera.connects),
        )?;
        self.connections(metrics)
    }

    /// How the connections to the cameras went, and how old what came of them is.
    fn connections(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let failures = self.cameras.iter().flat_map(|camera| {
            camera.counts.failures.iter().map(move |(cause, failures)| {
                let labels = [("camera", camera.counts.camera.clone()), ("cause", (*cause).to_owned())];
                (labels, *failures)
            })
        });
        metrics.counter(
            "gantry_camera_failures",
            "Attempts to open the camera that failed, and connections that broke, by cause.",
            failures,
        )?;
        metrics.counter(
            "gantry_camera_pipelines_abandoned",
            "Connections that could not be ended in time and were left behind.",
            self.each_camera(|camera| camera.abandoned),
        )?;
        let ages = self.cameras.iter().filter_map(|camera| {
            let age_ms = camera.counts.frame_age_ms?;
            Some(([("camera", camera.counts.camera.clone())], age_ms / 1000.0))
        });
        metrics.gauge(
            "gantry_camera_frame_age_seconds",
            "Time since the picture of the newest good frame was taken; absent before the first.",
            ages,
        )
    }

    fn pools(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let slabs = self.cameras.iter().flat_map(|camera| {
            let pool = &camera.counts.pool;
            [("all", pool.slabs), ("high_water", pool.high_water)].map(|(slabs, n)| {
                ([("camera", camera.counts.camera.clone()), ("slabs", slabs.to_owned())], count(n))
            })
        });
        metrics.gauge(
            "gantry_pool_slabs",
            "Slabs of the camera's pool, and the most that were out at once.",
            slabs,
        )?;
        let bytes = self.each_camera(|camera| camera.pool.slabs * camera.pool.slab_bytes);
        let bytes = bytes.map(|(labels, bytes)| (labels, count(bytes)));
        metrics.gauge("gantry_pool_bytes", "Memory of the camera's pool.", bytes)?;
        metrics.counter(
            "gantry_pool_leases",
            "Slabs that were asked for, got or not.",
            self.each_camera(|camera| camera.pool.leases),
        )?;
        metrics.counter(
            "gantry_pool_exhausted",
            "Times that all memory of the camera's pool was in use.",
            self.each_camera(|camera| camera.exhausted),
        )?;
        metrics.counter(
            "gantry_frames_in_slab",
            "Frames that lie in our slabs.",
            self.each_camera(|camera| camera.pool.in_slab),
        )?;
        metrics.counter(
            "gantry_frames_aliased",
            "Frames that lie in a slab which the video decoder goes on looking at.",
            self.each_camera(|camera| camera.pool.aliased),
        )?;
        let copied = self.cameras.iter().flat_map(|camera| {
            camera.counts.pool.copied.iter().map(move |(reason, pictures)| {
                let labels = [("camera", camera.counts.camera.clone()), ("reason", (*reason).to_owned())];
                (labels, *pictures)
            })
        });
        metrics.counter("gantry_frames_copied", "Pictures that were copied on their way, by reason.", copied)
    }

    fn routes(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let route =
            |route: &RouteSnapshot| [("camera", route.camera.clone()), ("model", route.model.clone())];
        let each =
            |of: fn(&RouteSnapshot) -> u64| self.routes.iter().map(move |counts| (route(counts), of(counts)));
        metrics.counter(
            "gantry_frames_offered",
            "Frames that a camera offered to a model: published + empty + dropped + in flight.",
            each(|route| route.offered),
        )?;
        metrics.counter(
            "gantry_frames_published",
            "Frames whose event was published.",
            each(|route| route.published),
        )?;
        metrics.counter(
            "gantry_frames_empty",
            "Frames without a detection, of which no event is published.",
            each(|route| route.empty),
        )?;
        metrics.counter(
            "gantry_results_late",
            "Results that came after their deadline, where late ones are wanted; the others are dropped.",
            each(|route| route.late),
        )?;
        metrics.gauge(
            "gantry_frames_in_flight",
            "Frames on their way.",
            each(|route| route.in_flight).map(|(labels, frames)| (labels, count(frames))),
        )?;
        let dropped = self.routes.iter().flat_map(|counts| {
            counts.dropped.iter().map(move |(reason, frames)| {
                let [camera, model] = route(counts);
                ([camera, model, ("reason", (*reason).to_owned())], *frames)
            })
        });
        metrics.counter("gantry_frames_dropped", "Frames that got no result, by reason.", dropped)?;
        metrics.counter("gantry_detections", "Detections in all events.", each(|route| route.detections))?;
        let stages = self.routes.iter().flat_map(|counts| {
            let stages = counts.readings.stages.named().map(|(stage, reading)| (stage, *reading));
            stages.into_iter().chain([("publish", counts.readings.publish)]).map(move |(stage, reading)| {
                let [camera, model] = route(counts);
                ([camera, model, ("stage", stage.to_owned())], reading)
            })
        });
        metrics.histogram(
            "gantry_stage_seconds",
            "How long a frame spends in each stage; publish is from the event to the client that sends it.",
            stages,
        )?;
        metrics.histogram(
            "gantry_age_seconds",
            "From a picture's capture to its event, where the time of capture is known.",
            self.routes.iter().map(|counts| (route(counts), counts.readings.age)),
        )
    }

    fn devices(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let each = |of: fn(&DeviceSnapshot) -> u64| {
            self.devices
                .iter()
                .map(move |device| ([("device", device.counts.device.clone())], of(&device.counts)))
        };
        let up = self
            .devices
            .iter()
            .map(|device| ([("device", device.counts.device.clone())], flag(device.state == "ready")));
        metrics.gauge("gantry_device_up", "1 while the device serves.", up)?;
        let load = self
            .devices
            .iter()
            .map(|device| ([("device", device.counts.device.clone())], device.counts.realtime_load));
        metrics.gauge(
            "gantry_device_realtime_load_ratio",
            "The part of what the device can do that its realtime cameras ask for; above 1 deadlines are missed.",
            load,
        )?;
        metrics.counter("gantry_device_batches", "Batches that ran.", each(|device| device.batches))?;
        metrics.counter("gantry_device_frames", "Frames in them.", each(|device| device.frames))?;
        metrics.counter("gantry_device_errors", "Batches that failed.", each(|device| device.errors))?;
        let sizes = self.devices.iter().flat_map(|device| {
            device.counts.models.iter().flat_map(move |model| {
                model.batch_sizes.iter().map(move |size| {
                    let labels = [
                        ("device", device.counts.device.clone()),
                        ("model", model.model.clone()),
                        ("size", size.size.to_string()),
                    ];
                    (labels, size.batches)
                })
            })
        });
        metrics.counter("gantry_batches", "Batches that ran, by how many frames were in them.", sizes)
    }

    fn sinks(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let each = |of: fn(&SinkSnapshot) -> u64| {
            self.sinks.iter().map(move |sink| ([("sink", sink.counts.sink.clone())], of(&sink.counts)))
        };
        metrics.counter(
            "gantry_sink_events_queued",
            "Events put into the sink's queue.",
            each(|sink| sink.queued),
        )?;
        metrics.counter(
            "gantry_sink_events_delivered",
            "Events written, or acknowledged by the broker.",
            each(|sink| sink.delivered),
        )?;
        metrics.counter(
            "gantry_sink_events_dropped",
            "Events that a full queue pushed out, that the broker refused, or that were left at the end.",
            each(|sink| sink.dropped),
        )?;
        metrics.gauge(
            "gantry_sink_events_waiting",
            "Events queued and neither delivered nor dropped.",
            each(|sink| sink.waiting).map(|(labels, events)| (labels, count(events))),
        )?;
        metrics.counter(
            "gantry_sink_connects",
            "Times that its connection was made.",
            each(|sink| sink.connects),
        )?;
        metrics.counter(
            "gantry_sink_failures",
            "Times that a connection broke or could not be made.",
            each(|sink| sink.failures),
        )?;
        metrics.histogram(
            "gantry_sink_ack_seconds",
            "From the making of an event to the broker's acknowledgement.",
            self.sinks.iter().map(|sink| ([("sink", sink.counts.sink.clone())], sink.counts.acknowledged)),
        )
    }

    fn memory(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let memory = &self.process.memory;
        let kinds = [
            ("resident", memory.resident_bytes),
            ("resident_peak", memory.resident_peak_bytes),
            ("locked", memory.locked_bytes),
        ];
        let kinds = kinds.map(|(kind, bytes)| ([("kind", kind.to_owned())], count(bytes)));
        metrics.gauge(
            "gantry_memory_bytes",
            "Memory of the process: in RAM, the most ever, locked.",
            kinds,
        )?;
        if let Some(machine) = self.process.machine {
            metrics.gauge(
                "gantry_memory_available_bytes",
                "Memory that can still be had on the machine or in the daemon's cgroup.",
                [([], count(machine.bytes))],
            )?;
        }
        let pools = [
            ("mapped", self.memory.mapped_bytes),
            ("mapped_peak", self.memory.mapped_peak_bytes),
            ("locked", self.memory.locked_bytes),
            ("huge_pages", self.memory.huge_page_bytes),
        ];
        metrics.gauge(
            "gantry_memory_made_bytes",
            "Memory that was made beforehand for frames and batches: now, the most ever, locked, on huge pages.",
            pools.map(|(kind, bytes)| ([("kind", kind.to_owned())], count(bytes))),
        )?;
        let refused = [("prefault", self.memory.prefault_failures), ("lock", self.memory.lock_failures)];
        metrics.counter(
            "gantry_memory_refused",
            "Pieces of it that the system would not touch beforehand, or would not lock.",
            refused.map(|(step, pieces)| ([("step", step.to_owned())], pieces)),
        )?;
        let states = Locked::NAMES
            .map(|state| ([("state", state.to_owned())], flag(self.realtime.memory_lock == state)));
        metrics.gauge(
            "gantry_memory_lock_state",
            "1 for whether all memory is locked in RAM (all, refused by the system, off), 0 for the others.",
            states,
        )
    }

    fn threads(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let places = self.realtime.places.iter().flat_map(|(kind, places)| {
            places.iter().map(|place| ([("kind", (*kind).to_owned()), ("place", place.clone())], 1.0))
        });
        metrics.gauge(
            "gantry_thread_place_info",
            "Where threads of this kind run and how they are scheduled: always 1.",
            places,
        )?;
        let each = |of: fn(&ThreadsSnapshot) -> u64| {
            self.process.threads.iter().map(move |threads| ([("kind", threads.kind.to_owned())], of(threads)))
        };
        metrics.gauge(
            "gantry_threads",
            "Threads of the process, by what they do.",
            each(|threads| threads.alive).map(|(labels, threads)| (labels, count(threads))),
        )?;
        let cpu =
            self.process.threads.iter().map(|threads| ([("kind", threads.kind.to_owned())], threads.cpu_s));
        metrics.counter("gantry_thread_cpu_seconds", "Time on a CPU, by kind of thread.", cpu)?;
        let faults = self.process.threads.iter().flat_map(|threads| {
            [("minor", threads.minor_faults), ("major", threads.major_faults)].map(|(fault, count)| {
                ([("kind", threads.kind.to_owned()), ("fault", fault.to_owned())], count)
            })
        });
        metrics.counter("gantry_thread_page_faults", "Page faults; a major one reads a disk.", faults)?;
        let switches = self.process.threads.iter().flat_map(|threads| {
            let switches =
                [("voluntary", threads.voluntary_switches), ("involuntary", threads.involuntary_switches)];
            switches.map(|(switch, count)| {
                ([("kind", threads.kind.to_owned()), ("switch", switch.to_owned())], count)
            })
        });
        metrics.counter(
            "gantry_thread_context_switches",
            "Context switches; at a voluntary one the thread went to wait.",
            switches,
        )?;
        let warnings = WarningKind::ALL.map(|kind| {
            let holding = self.warnings.iter().filter(|warning| warning.warning == kind.name()).count();
            ([("warning", kind.name().to_owned())], count(holding as u64))
        });
        metrics.gauge("gantry_warnings", "Early warnings that hold now; /status has their words.", warnings)
    }
}

/// Writes one metric with all its series at a time.
struct Metrics<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl Metrics<'_> {
    fn counter<const N: usize, V: prometheus_client::encoding::EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<N>, V)>,
    ) -> fmt::Result {
        self.each(name, help, MetricType::Counter, series, |mut encoder, value| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    fn gauge<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<N>, f64)>,
    ) -> fmt::Result {
        self.each(name, help, MetricType::Gauge, series, |mut encoder, value| encoder.encode_gauge(&value))
    }

    fn histogram<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<N>, Reading)>,
    ) -> fmt::Result {
        self.each(name, help, MetricType::Histogram, series, |mut encoder, reading| {
            let mut below = 0;
            let buckets = BOUNDS_US.iter().zip(reading.at_most).map(|(bound, at_most)| {
                #[expect(clippy::cast_precision_loss, reason = "at most 30 s in microseconds")]
                let bound = *bound as f64 / 1e6;
                (bound, at_most - std::mem::replace(&mut below, at_most))
            });
            // The last one, without an end, is written by itself.
            let buckets: Vec<_> = buckets.collect();
            encoder.encode_histogram::<NoLabelSet>(reading.sum.as_secs_f64(), reading.count, &buckets, None)
        })
    }

    fn each<const N: usize, V>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        series: impl IntoIterator<Item = (Labels<N>, V)>,
        mut encode: impl FnMut(MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in series {
            encode(family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles for Prometheus too")]
fn count(n: u64) -> f64 {
    n as f64
}
