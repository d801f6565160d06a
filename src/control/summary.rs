//! All counters as text for people: at USR1 and at the end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::telemetry::{Quantiles, RouteSnapshot, Snapshot};

/// The text; several lines, the first says for how long.
#[must_use]
pub fn text(counters: &Snapshot, uptime: Duration) -> String {
    let mut text = format!(
        "up {:.1} s, {:.1} MiB resident, {:.1} at the most; frames and batches took {:.1} MiB at the most",
        uptime.as_secs_f64(),
        mebibytes(counters.process.memory.resident_bytes),
        mebibytes(counters.process.memory.resident_peak_bytes),
        mebibytes(counters.memory.mapped_peak_bytes)
    );
    let realtime = &counters.realtime;
    line(
        &mut text,
        "memory",
        &format!("locked: {}, {:.1} MiB", realtime.memory_lock, mebibytes(realtime.memory_locked_bytes)),
    );
    for (kind, places) in &realtime.places {
        let places: Vec<_> = places.iter().map(String::as_str).collect();
        line(&mut text, &format!("threads {kind}"), &places.join(" and "));
    }
    for camera in &counters.cameras {
        line(
            &mut text,
            &format!("camera {}", camera.camera),
            &format!(
                "{}, {} encoded in, {} skipped{}, {} frames out, {} decoded into our slabs, {} copied, {} of {} slabs at once, \
                 {} unusable, {} exhausted, {} connects, {} failures, {} pipelines left behind",
                camera.state,
                camera.encoded,
                camera.skipped.values().sum::<u64>(),
                reasons(&camera.skipped),
                camera.frames,
                camera.pool.in_slab,
                camera.pool.copied.values().sum::<u64>(),
                camera.pool.high_water,
                camera.pool.slabs,
                camera.unusable,
                camera.exhausted,
                camera.connects,
                camera.failures.values().sum::<u64>(),
                camera.abandoned
            ),
        );
    }
    for route in &counters.routes {
        line(&mut text, &format!("{} → {}", route.camera, route.model), &route_text(route));
    }
    for device in &counters.devices {
        line(
            &mut text,
            &format!("device {}", device.device),
            &format!("{} frames in {} batches, {} failed", device.frames, device.batches, device.errors),
        );
        for model in device.models.iter().filter(|model| !model.batch_sizes.is_empty()) {
            let sizes: Vec<_> =
                model.batch_sizes.iter().map(|size| format!("{} of {}", size.batches, size.size)).collect();
            add(&mut text, format_args!("; {} in batches: {}", model.model, sizes.join(", ")));
        }
    }
    for sink in &counters.sinks {
        line(
            &mut text,
            &format!("sink {}", sink.sink),
            &format!(
                "{} queued, {} delivered, {} dropped, {} waiting",
                sink.queued, sink.delivered, sink.dropped, sink.waiting
            ),
        );
    }
    for warning in &counters.warnings {
        line(&mut text, &format!("warning {}", warning.warning), &warning.text);
    }
    text
}

/// ` (3 late, 1 damaged)`; nothing where there is none.
fn reasons(counts: &BTreeMap<&str, u64>) -> String {
    let told: Vec<_> = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
}

fn route_text(route: &RouteSnapshot) -> String {
    let mut text =
        format!("{} frames = {} published + {} empty", route.offered, route.published, route.empty);
    for (reason, count) in route.dropped.iter().filter(|(_, count)| **count > 0) {
        add(&mut text, format_args!(" + {count} {reason}"));
    }
    add(&mut text, format_args!(" + {} in flight; {} detections", route.in_flight, route.detections));
    if route.late > 0 {
        add(&mut text, format_args!("; {} of the results late", route.late));
    }
    if let Some(age) = &route.since_start.age_ms {
        add(&mut text, format_args!("; age {}", quantiles(age)));
    }
    if let Some(infer) = &route.since_start.stage_ms.infer {
        add(&mut text, format_args!("; infer {}", quantiles(infer)));
    }
    if let Some(publish) = &route.since_start.publish_ms {
        add(&mut text, format_args!("; publish {}", quantiles(publish)));
    }
    if let Some(age) = &route.minute.age_ms {
        add(&mut text, format_args!("; last minute's age {}", quantiles(age)));
    }
    text
}

fn quantiles(ms: &Quantiles) -> String {
    format!("p50 {:.1} p95 {:.1} p99 {:.1} ms", ms.p50, ms.p95, ms.p99)
}

fn line(text: &mut String, what: &str, how: &str) {
    add(text, format_args!("\n  {what}: {how}"));
}

fn add(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a string cannot fail");
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{BatchTelemetry, DeviceTelemetry, DropReason, RouteTelemetry, Telemetry};
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_route_reads_as_a_sum() {
        let route = Arc::new(RouteTelemetry::new("press-1", "line-parts"));
        route.offered.add(10);
        route.published.add(7);
        route.empty.add(1);
        route.dropped(DropReason::Stale);
        let telemetry = Telemetry { routes: vec![route], ..Telemetry::default() };
        let text = text(&telemetry.snapshot(Instant::now()), Duration::from_secs(90));
        assert!(text.starts_with("up 90.0 s, "), "{text}");
        let sum = "\n  press-1 → line-parts: 10 frames = 7 published + 1 empty + 1 stale + 1 in flight; 0 detections";
        assert!(text.ends_with(sum), "{text}");
    }

    #[test]
    fn a_device_says_how_large_its_batches_are() {
        let batches = Arc::new(BatchTelemetry::new("line-parts", 8));
        [1, 8, 8].into_iter().for_each(|frames| batches.ran(frames));
        let device = Arc::new(DeviceTelemetry::new("cpu0", vec![batches]));
        let telemetry = Telemetry { devices: vec![device], ..Telemetry::default() };
        let text = text(&telemetry.snapshot(Instant::now()), Duration::from_secs(1));
        assert!(text.ends_with("0 failed; line-parts in batches: 1 of 1, 2 of 8"), "{text}");
    }
}
