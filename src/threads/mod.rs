//! The only place where threads start, and what the watchdog knows of them.
//!
//! Every thread of Gantry is asked for through [`Threads::spawn`]: it gets a name that `top -H` shows, the [`Place`] of its
//! kind, a stack whose every page is in memory before its work begins, a [`Heartbeat`] that it must move while it has work,
//! and a hook that tells the owner how it ended. [`Threads::stuck`] answers the one question that the systemd watchdog
//! needs: which thread has work and makes no progress.
//!
//! [`topology`] reads what CPUs a machine has, [`suggest`] says from that where a config could put which threads.

pub mod cpus;
pub mod place;
mod stack;
pub mod suggest;
pub mod topology;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::memory::allocations;
use cpus::Cpus;
use place::{Place, Places, Scheduling};

/// What the first thread needs of its stack; it grows further by itself.
const MAIN_STACK_BYTES: usize = 256 << 10;

#[cfg(panic = "abort")]
compile_error!("Gantry tells how a thread ended, which needs `panic = \"unwind\"`.");

/// Every kind of thread that Gantry has. A new kind is a new variant, so this list is the census.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKind {
    /// `src/<camera>`: opens a camera, watches its bus, tries again.
    Source,
    /// `dev/<device>`: owns a device and its sessions.
    Device,
    /// `io`: the tokio runtime with MQTT and the HTTP server.
    Io,
    /// `out/<sink>`: writes to something that may block (standard output).
    Output,
    /// `signals`: turns signals into commands.
    Signals,
}

impl ThreadKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Source, Self::Device, Self::Io, Self::Output, Self::Signals];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Device => "device",
            Self::Io => "io",
            Self::Output => "output",
            Self::Signals => "signals",
        }
    }

    /// Where the allocations of its threads are counted.
    #[must_use]
    pub fn allocation_group(self) -> usize {
        self as usize + 1
    }

    /// The place of its kind of work.
    #[must_use]
    pub fn place(self, places: &Places) -> &Place {
        match self {
            Self::Source => &places.source,
            Self::Device => &places.infer,
            Self::Io | Self::Output | Self::Signals => &places.io,
        }
    }

    /// Bytes of its stack. All of it is touched as the thread starts, so it costs as much memory as is written here. Of the
    /// shipped and tested models and sources, the deepest used 60 KiB (tract, planning coco_ssdlite), 40 KiB (ONNX Runtime;
    /// `io`), 28 KiB (a camera's) and 12 KiB; what is more is for models, plug-ins and vendors that are not here.
    fn stack_bytes(self) -> usize {
        match self {
            Self::Source => 512 << 10,
            // Runtimes plan a model on it, and those of vendors count on more than they say.
            Self::Device => 2 << 20,
            Self::Io => 512 << 10,
            Self::Output | Self::Signals => 256 << 10,
        }
    }
}

/// What a thread is asked for with.
#[derive(Clone, Debug)]
pub struct ThreadSpec {
    /// Shown by `top -H`; Linux keeps the first 15 bytes.
    pub name: String,
    /// What it does.
    pub kind: ThreadKind,
    /// It is stuck when it has work and its heartbeat has not moved for this long.
    pub limit: Duration,
}

/// How a thread ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadEnd {
    /// Its body returned.
    Finished,
    /// Its body panicked, with this message.
    Panicked(String),
}

/// A thread that has work and makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The thread's name.
    pub name: String,
    /// What it does.
    pub kind: ThreadKind,
    /// Time since its heartbeat last moved.
    pub since: Duration,
}

/// The census: starts threads where they belong, and watches their heartbeats.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    beats: Arc<Mutex<Vec<Weak<Beat>>>>,
    places: Arc<Places>,
    /// Where the process was started: for what a place leaves open.
    base: Arc<Place>,
}

impl Threads {
    /// An empty census, whose threads run where the calling one does.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty census of a process whose first thread calls this, and is put on the CPUs of `io`. Its scheduling stays: it
    /// starts the others, and a weight that was given away may not be had back. A place that the kernel refuses is told in
    /// the log, here and for each thread.
    #[must_use]
    pub fn placed(places: Places) -> Self {
        let base = Place::of_this_thread();
        stack::prefault(MAIN_STACK_BYTES);
        take(&Place { scheduling: Scheduling::Normal, ..places.io.clone() }, &base);
        Self { beats: Arc::default(), places: Arc::new(places), base: Arc::new(base) }
    }

    /// The same census, which puts each thread on these CPUs in place of those of its kind, if there are any.
    #[must_use]
    pub fn on(&self, cpus: Option<&Cpus>) -> Self {
        let Some(cpus) = cpus else { return self.clone() };
        let place = |place: &Place| Place { cpus: Some(cpus.clone()), ..place.clone() };
        let Places { source, infer, io } = self.places.as_ref();
        let places = Places { source: place(source), infer: place(infer), io: place(io) };
        Self { places: Arc::new(places), ..self.clone() }
    }

    /// Starts a thread. `body` gets its heartbeat; `ended` is called on the new thread after `body` returned or
    /// panicked, so it must be short.
    ///
    /// # Errors
    /// When the system refuses another thread.
    pub fn spawn(
        &self,
        spec: ThreadSpec,
        body: impl FnOnce(Heartbeat) + Send + 'static,
        ended: impl FnOnce(ThreadEnd) + Send + 'static,
    ) -> std::io::Result<Thread> {
        let beat = Arc::new(Beat::new(spec.name.clone(), spec.kind, spec.limit));
        let heartbeat = Heartbeat { beat: Arc::clone(&beat) };
        let group = spec.kind.allocation_group();
        let stack_bytes = spec.kind.stack_bytes();
        let builder = std::thread::Builder::new().name(spec.name.clone()).stack_size(stack_bytes);
        let place = spec.kind.place(&self.places).clone();
        let base = Arc::clone(&self.base);
        let (finished_tx, finished) = bounded(1);
        #[expect(clippy::disallowed_methods, reason = "this is the one place where threads start")]
        let join = builder.spawn(move || {
            allocations::join(group);
            take(&place, &base);
            stack::prefault(stack_bytes);
            let end = match catch_unwind(AssertUnwindSafe(|| body(heartbeat))) {
                Ok(()) => ThreadEnd::Finished,
                Err(payload) => ThreadEnd::Panicked(panic_message(payload.as_ref())),
            };
            ended(end);
            drop(finished_tx);
        })?;
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        beats.retain(|beat| beat.strong_count() > 0);
        beats.push(Arc::downgrade(&beat));
        drop(beats);
        Ok(Thread { name: spec.name, join, finished })
    }

    /// The threads that have work and whose heartbeat is older than their limit at `now`. A thread that has ended, however
    /// it ended, has dropped its heartbeat and is none of them.
    #[must_use]
    pub fn stuck(&self, now: Instant) -> Vec<Stuck> {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        beats.iter().filter_map(Weak::upgrade).filter_map(|beat| beat.stuck(now)).collect()
    }
}

/// Puts the calling thread there. Where it cannot be, it goes on where it is.
fn take(place: &Place, base: &Place) {
    if let Err(error) = place.take(base) {
        tracing::warn!("a thread goes on where it is: {}", crate::telemetry::error_chain(&error));
    }
}

/// A started thread. Dropping it leaves the thread running; [`Thread::join_timeout`] waits for its end.
#[derive(Debug)]
pub struct Thread {
    name: String,
    join: JoinHandle<()>,
    finished: Receiver<()>,
}

impl Thread {
    /// The thread's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the thread's end, at most `timeout`. A thread that does not end (a vendor call that hangs) is given
    /// back, to be abandoned.
    ///
    /// # Errors
    /// The thread itself, when it is still running.
    pub fn join_timeout(self, timeout: Duration) -> Result<(), Self> {
        match self.finished.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => Err(self),
            // The body's end was already told through the `ended` hook, so the join has nothing to add.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                drop(self.join.join());
                Ok(())
            }
        }
    }
}

/// What a thread moves while it has work. A thread that waits for work is *idle*, and idle is alive.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    beat: Arc<Beat>,
}

impl Heartbeat {
    /// A heartbeat that nobody watches, for tests and one-shot commands.
    #[must_use]
    pub fn unwatched() -> Self {
        let limit = Duration::from_secs(u64::from(u32::MAX));
        Self { beat: Arc::new(Beat::new(String::new(), ThreadKind::Device, limit)) }
    }

    /// The thread has work and just made progress.
    pub fn beat(&self) {
        self.beat.moved.store(self.beat.millis(Instant::now()), Ordering::Relaxed);
        self.beat.idle.store(false, Ordering::Release);
    }

    /// The thread waits for work from here on, until the next [`Heartbeat::beat`].
    pub fn idle(&self) {
        self.beat.idle.store(true, Ordering::Release);
    }
}

struct Beat {
    name: String,
    kind: ThreadKind,
    limit: Duration,
    origin: Instant,
    moved: AtomicU64,
    idle: AtomicBool,
}

impl Beat {
    fn new(name: String, kind: ThreadKind, limit: Duration) -> Self {
        let origin = Instant::now();
        Self { name, kind, limit, origin, moved: AtomicU64::new(0), idle: AtomicBool::new(true) }
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.origin).as_millis()).unwrap_or(u64::MAX)
    }

    fn stuck(&self, now: Instant) -> Option<Stuck> {
        if self.idle.load(Ordering::Acquire) {
            return None;
        }
        let age = self.millis(now).saturating_sub(self.moved.load(Ordering::Relaxed));
        let since = Duration::from_millis(age);
        (since > self.limit).then(|| Stuck { name: self.name.clone(), kind: self.kind, since })
    }
}

impl fmt::Debug for Beat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beat").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Tells threads that it is time to end. Ending begins when its [`ShutdownSource`] is dropped or
/// [`ShutdownSource::begin`] is called.
///
/// To look is one load, and to wait one system call: a source that keeps a pace waits for each frame.
#[derive(Clone, Debug)]
pub struct Shutdown {
    ending: Arc<Ending>,
    begun: Receiver<()>,
}

/// The owner's end of a [`Shutdown`].
#[derive(Debug)]
pub struct ShutdownSource {
    ending: Arc<Ending>,
    _open: Sender<()>,
}

#[derive(Debug, Default)]
struct Ending {
    begun: AtomicBool,
    /// Held while the end begins, so that nobody who has not seen it goes to sleep.
    lock: Mutex<()>,
    begins: Condvar,
}

/// A new pair. Nothing is ever sent: the receiver sees the sender's end.
#[must_use]
pub fn shutdown() -> (ShutdownSource, Shutdown) {
    // Selecting on a channel of capacity zero allocates for each wait.
    let ((open, begun), ending) = (bounded(1), Arc::<Ending>::default());
    (ShutdownSource { ending: Arc::clone(&ending), _open: open }, Shutdown { ending, begun })
}

impl ShutdownSource {
    /// Begins the end; the same as dropping it.
    pub fn begin(self) {}
}

impl Drop for ShutdownSource {
    fn drop(&mut self) {
        let _lock = self.ending.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.ending.begun.store(true, Ordering::Release);
        self.ending.begins.notify_all();
    }
}

impl Shutdown {
    /// Whether the end has begun.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.ending.begun.load(Ordering::Acquire)
    }

    /// Sleeps for `timeout` or until the end begins; true when it has begun.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let lock = self.ending.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self.ending.begins.wait_timeout_while(lock, timeout, |()| !self.begun());
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.begun()
    }

    /// For `crossbeam_channel::select!`: disconnects when the end begins.
    #[must_use]
    pub fn receiver(&self) -> &Receiver<()> {
        &self.begun
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[test]
    fn a_thread_with_work_and_an_old_heartbeat_is_stuck_and_an_idle_one_is_not() {
        let beat = Arc::new(Beat::new("dev/gpu0".into(), ThreadKind::Device, LIMIT));
        let heartbeat = Heartbeat { beat: Arc::clone(&beat) };
        let later = Instant::now() + Duration::from_secs(5);
        assert_eq!(beat.stuck(later), None, "idle at birth");
        heartbeat.beat();
        assert_eq!(beat.stuck(Instant::now()), None, "just moved");
        assert_eq!(beat.stuck(later).map(|stuck| stuck.name), Some("dev/gpu0".into()));
        heartbeat.idle();
        assert_eq!(beat.stuck(later), None, "waits for work again");
    }

    #[test]
    fn a_panic_ends_its_thread_only_and_is_told_with_its_message() {
        let (tx, rx) = bounded(1);
        let spec = ThreadSpec { name: "src/a".into(), kind: ThreadKind::Source, limit: LIMIT };
        let thread = Threads::new()
            .spawn(spec, |_| panic!("the picture is upside down"), move |end| tx.send(end).unwrap())
            .unwrap();
        assert_eq!(rx.recv().unwrap(), ThreadEnd::Panicked("the picture is upside down".into()));
        thread.join_timeout(LIMIT).unwrap();
    }

    #[test]
    fn a_thread_that_has_ended_is_not_stuck_however_it_ended() {
        let (threads, spec) = (Threads::new(), |name: &str| ThreadSpec {
            name: name.into(),
            kind: ThreadKind::Source,
            limit: Duration::ZERO,
        });
        let returned = threads.spawn(spec("src/a"), |heartbeat| heartbeat.beat(), |_| {}).unwrap();
        let panicked = |heartbeat: Heartbeat| {
            heartbeat.beat();
            panic!("the picture is upside down")
        };
        let panicked = threads.spawn(spec("src/b"), panicked, |_| {}).unwrap();
        for thread in [&returned, &panicked] {
            assert!(thread.finished.recv().is_err(), "nothing is sent; the end is the message");
        }
        // Their owner holds them still, as a pipeline does until it drains.
        assert_eq!(threads.stuck(Instant::now() + Duration::from_secs(3600)), []);
    }

    #[test]
    fn shutdown_begins_when_its_source_is_dropped() {
        let (source, token) = shutdown();
        assert!(!token.begun());
        assert!(!token.wait(Duration::from_millis(1)));
        source.begin();
        assert!(token.begun());
        assert!(token.wait(Duration::from_secs(60)), "returns at once");
    }

    #[test]
    fn whoever_waits_is_woken_when_the_end_begins() {
        for _ in 0..200 {
            let (source, token) = shutdown();
            std::thread::scope(|scope| {
                let waits = || {
                    let token = token.clone();
                    scope.spawn(move || {
                        token.wait(Duration::from_secs(60)) && token.receiver().recv().is_err()
                    })
                };
                let (first, second) = (waits(), waits());
                source.begin();
                assert!(first.join().unwrap() && second.join().unwrap());
            });
        }
    }
}
