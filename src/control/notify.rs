//! What systemd is told: ready, alive, stopping, and the status in words. Without systemd nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// Speaks to systemd.
#[derive(Debug)]
pub struct Notifier {
    watchdog: Option<Duration>,
    ready: bool,
    status: String,
}

impl Notifier {
    /// Finds out whether systemd listens, and how often it wants to hear that we are alive.
    #[must_use]
    pub fn from_environment() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled(), ready: false, status: String::new() }
    }

    /// How often [`Notifier::alive`] should be called: three times in each watchdog period, so that one late call is no
    /// kill.
    #[must_use]
    pub fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|period| period / 3)
    }

    /// Whether [`Notifier::ready`] has been called.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The service is up.
    pub fn ready(&mut self) {
        self.ready = true;
        tell(&[NotifyState::Ready]);
    }

    /// The service makes progress.
    pub fn alive(&self) {
        if self.ready && self.watchdog.is_some() {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// What `systemctl status` shows; repeated only when it has changed.
    pub fn status(&mut self, status: String) {
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// The service is ending.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!("systemd was not told: {error}");
    }
}
