//! The main thread: executes commands one at a time, watches every state, tells systemd and the broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, never, select};
use tracing::{error, info, warn};

use super::Command;
use super::admin::Question;
use super::notify::Notifier;
use super::report::{Facts, Report};
use super::summary;
use crate::frame::CameraId;
use crate::frame::clock::wall_time;
use crate::pipeline::{Board, Pipeline};
use crate::publish::SinkEnd;
use crate::publish::encode::{self, CameraTold, EventTime, Identity, Topics};
use crate::publish::event::Stamp;
use crate::source::state::CameraState;
use crate::telemetry::histogram;
use crate::threads::Threads;
use crate::worker::DeviceState;

/// How often `health` is published, and what is told of the last minute moves on.
pub const HEALTH_EVERY: Duration = histogram::SLOT;
/// How often the watchdog's question is asked when systemd does not ask for more.
const TICK: Duration = Duration::from_secs(1);

/// Why the daemon ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// Every camera is a file, and all have come to their end.
    CamerasEnded,
    /// Every camera is a file, all are done, and these could not be read: camera and reason.
    CamerasFailed(Vec<(String, String)>),
    /// A device could not be opened or a model could not be loaded: reasons.
    DevicesRefused(Vec<String>),
    /// Whoever read our standard output has gone.
    OutputClosed(String),
    /// Threads panicked: name and message.
    Panicked(Vec<(String, String)>),
}

/// Watches a pipeline until there is a reason to end.
#[derive(Debug)]
pub struct Supervisor<'a> {
    pipeline: &'a Pipeline,
    threads: &'a Threads,
    identity: &'a Arc<Identity>,
    topics: Topics,
    notifier: &'a mut Notifier,
    started: Instant,
    health_due: Instant,
    /// Threads that were told to be stuck and still are.
    told_stuck: Vec<String>,
}

impl<'a> Supervisor<'a> {
    /// A supervisor of a pipeline that was just started, by a process that began at `started`.
    #[must_use]
    pub fn new(
        pipeline: &'a Pipeline,
        threads: &'a Threads,
        identity: &'a Arc<Identity>,
        topics: Topics,
        notifier: &'a mut Notifier,
        started: Instant,
    ) -> Self {
        Self {
            pipeline,
            threads,
            identity,
            topics,
            notifier,
            started,
            health_due: Instant::now() + HEALTH_EVERY,
            told_stuck: Vec::new(),
        }
    }

    /// Runs until there is a reason to end. `woken` is the board's; `commands` are executed in their order. Questions have
    /// a queue of their own, so that however many there are, no command finds it full.
    pub fn run(
        &mut self,
        commands: &Receiver<Command>,
        mut questions: Receiver<Question>,
        woken: &Receiver<()>,
    ) -> Ended {
        let tick = self.notifier.alive_every().map_or(TICK, |every| every.min(TICK));
        let mut due = Instant::now() + tick;
        loop {
            let now = Instant::now();
            if let Some(ended) = self.look() {
                return ended;
            }
            if now >= due {
                self.watch(now);
                due = now + tick;
            }
            select! {
                recv(commands) -> command => match command {
                    Ok(Command::Dump) => info!("{}", self.summary()),
                    Ok(Command::Stop) => return Ended::Stopped,
                    Err(_) => {
                        let reason = "nobody catches signals any more".to_owned();
                        return Ended::Panicked(vec![("signals".to_owned(), reason)]);
                    }
                },
                recv(questions) -> question => match question {
                    Ok(question) => question.answer(self.report()),
                    // Its thread is ending, and will be on the board.
                    Err(_) => questions = never(),
                },
                recv(woken) -> _ => {}
                recv(at(due)) -> _ => {}
            }
        }
    }

    /// All states and counters, for people.
    #[must_use]
    pub fn summary(&self) -> String {
        summary::text(&self.pipeline.telemetry().snapshot(Instant::now()), self.started.elapsed())
    }

    fn report(&self) -> Report {
        let (board, now) = (self.pipeline.board(), Instant::now());
        let facts = Facts {
            identity: self.identity,
            board,
            uptime: self.started.elapsed(),
            status: status(board),
            stuck: self.threads.stuck(now),
            is_ready: self.notifier.is_ready(),
        };
        Report::new(facts, self.pipeline.telemetry().snapshot(now))
    }

    /// Looks at every state once: publishes what changed, says READY, finds a reason to end.
    fn look(&mut self) -> Option<Ended> {
        let board = self.pipeline.board();
        let panics = board.panics.get().0;
        if !panics.is_empty() {
            return Some(Ended::Panicked(panics));
        }
        for camera in &board.cameras {
            if let Some((state, since)) = camera.take_change() {
                self.publish_camera(&camera.name, &state, since);
            }
        }
        let devices: Vec<_> = board.devices.iter().map(|device| (&device.name, device.get().0)).collect();
        let refused: Vec<_> = devices.iter().filter_map(|(_, state)| refusal(state)).collect();
        if !refused.is_empty() {
            return Some(Ended::DevicesRefused(refused));
        }
        for sink in &board.sinks {
            if let Some(SinkEnd::Closed(reason)) = sink.get().0 {
                return Some(Ended::OutputClosed(reason));
            }
        }
        let cameras: Vec<_> = board.cameras.iter().map(|camera| (&camera.name, camera.get().0)).collect();
        let mut used = cameras.iter().filter(|(_, state)| *state != CameraState::Disabled).peekable();
        if used.peek().is_some() && used.all(|(_, state)| state.is_final()) {
            return Some(all_final(&cameras));
        }
        let ready = devices.iter().all(|(_, state)| *state != DeviceState::Opening);
        if ready && !self.notifier.is_ready() && cameras.iter().all(|(_, state)| state.is_tried()) {
            info!("ready after {:.1} s", self.started.elapsed().as_secs_f64());
            self.notifier.ready();
        }
        self.notifier.status(sentence(&cameras, &devices));
        None
    }

    /// Feeds the watchdog while every thread that has work makes progress; publishes health.
    fn watch(&mut self, now: Instant) {
        let stuck = self.threads.stuck(now);
        if stuck.is_empty() {
            self.notifier.alive();
        }
        for thread in stuck.iter().filter(|thread| !self.told_stuck.contains(&thread.name)) {
            error!(
                thread = %thread.name,
                "no progress for {:.1} s with work waiting; the watchdog is no longer fed",
                thread.since.as_secs_f64()
            );
        }
        self.told_stuck = stuck.into_iter().map(|thread| thread.name).collect();
        if now >= self.health_due {
            self.health_due = now + HEALTH_EVERY;
            for warning in self.pipeline.telemetry().turn(now) {
                warn!("{warning}");
            }
            if let Some(mqtt) = self.pipeline.mqtt() {
                let counters = self.pipeline.telemetry().snapshot(now);
                mqtt.health(encode::health(self.identity, Stamp::now(), self.started.elapsed(), &counters));
            }
        }
    }

    fn publish_camera(&self, camera: &str, state: &CameraState, since: Instant) {
        if let Some(mqtt) = self.pipeline.mqtt() {
            let (camera, at) = (CameraId::new(camera), EventTime::now());
            let since = Stamp::new(wall_time(since, at.now, at.wall));
            let mut counts = self.pipeline.telemetry().cameras.iter();
            let counts = counts.find(|counts| counts.camera == camera.as_str());
            let told = CameraTold {
                state: state.name(),
                reason: state.reason(),
                since,
                frame_age_ms: counts.and_then(|counts| counts.frame_age_ms(at.now)),
            };
            let payload = encode::camera_state(self.identity, &camera, told);
            mqtt.set_retained(self.topics.camera_state(&camera), payload);
        }
    }
}

fn refusal(device: &DeviceState) -> Option<String> {
    match device {
        DeviceState::Refused { reason } => Some(reason.clone()),
        DeviceState::Opening | DeviceState::Ready { .. } | DeviceState::Reopening { .. } => None,
    }
}

fn all_final(cameras: &[(&String, CameraState)]) -> Ended {
    let failed = |(camera, state): &(&String, CameraState)| match state {
        CameraState::Failed { reason, is_retried: false } => Some(((*camera).clone(), reason.clone())),
        _ => None,
    };
    let failed: Vec<_> = cameras.iter().filter_map(failed).collect();
    if failed.is_empty() { Ended::CamerasEnded } else { Ended::CamerasFailed(failed) }
}

/// One sentence for `systemctl status`.
fn status(board: &Board) -> String {
    let cameras: Vec<_> = board.cameras.iter().map(|camera| (&camera.name, camera.get().0)).collect();
    let devices: Vec<_> = board.devices.iter().map(|device| (&device.name, device.get().0)).collect();
    sentence(&cameras, &devices)
}

fn sentence(cameras: &[(&String, CameraState)], devices: &[(&String, DeviceState)]) -> String {
    let count = |wanted| cameras.iter().filter(|(_, state)| *state == wanted).count();
    let (live, disabled) = (count(CameraState::Live), count(CameraState::Disabled));
    let mut text = format!("{live} of {} cameras live", cameras.len() - disabled);
    if disabled > 0 {
        text.push_str(&format!(", {disabled} disabled"));
    }
    for (camera, state) in cameras {
        if let Some(reason) = state.reason() {
            text.push_str(&format!("; {camera} {}: {reason}", state.name()));
        }
    }
    for (device, state) in devices {
        match state {
            DeviceState::Opening => text.push_str("; loading models"),
            DeviceState::Reopening { reason } => text.push_str(&format!("; device lost: {reason}")),
            DeviceState::Ready { overcommitted: Some(load), .. } => {
                text.push_str(&format!("; device {device} overcommitted: {load}"));
            }
            DeviceState::Ready { .. } | DeviceState::Refused { .. } => {}
        }
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_one_sentence_that_names_what_is_away_and_why() {
        let away = CameraState::Reconnecting { reason: "nothing listens".into() };
        let (one, two) = ("press-1".to_owned(), "press-2".to_owned());
        let (cpu, gpu) = ("cpu0".to_owned(), "gpu0".to_owned());
        let over = DeviceState::Ready { runtime: "fake".into(), overcommitted: Some("132 %".into()) };
        let devices = [(&cpu, DeviceState::Opening), (&gpu, over)];
        let text = sentence(&[(&one, CameraState::Live), (&two, away)], &devices);
        assert_eq!(
            text,
            "1 of 2 cameras live; press-2 reconnecting: nothing listens; loading models; device gpu0 overcommitted: 132 %"
        );
    }

    #[test]
    fn files_that_all_ended_end_the_run_and_a_failed_one_is_named() {
        let (one, two) = ("a".to_owned(), "b".to_owned());
        assert_eq!(all_final(&[(&one, CameraState::Ended)]), Ended::CamerasEnded);
        let failed = CameraState::Failed { reason: "empty".into(), is_retried: false };
        let ended = all_final(&[(&one, CameraState::Ended), (&two, failed)]);
        assert_eq!(ended, Ended::CamerasFailed(vec![("b".into(), "empty".into())]));
    }
}
