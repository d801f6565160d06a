//! Counts heap allocations: by the kind of thread that made them, and whether they are ours or an engine's.
//!
//! [`Counting`] wraps the system's allocator. Until [`count`] is called it costs one relaxed load an allocation; from then
//! on two thread-local reads and an atomic addition. Only Rust code is seen: what GStreamer or a C++ runtime takes
//! with `malloc` never comes by here. An engine that is written in Rust, and the Rust side of one that is not, is told
//! apart by a [`Scope`] around the calls into it.
//!
//! An allocation is a call of `alloc`, `alloc_zeroed` or `realloc`. Freeing is not counted: it follows from allocating.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most kinds of threads that are told apart, with the threads of no kind.
pub const GROUPS: usize = 16;

/// The system's allocator, counted. Make it the `#[global_allocator]` of a binary to have figures.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

/// Whose work an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Ours: all that is not inside an engine's call.
    Own,
    /// Inside a call of an engine's session.
    Engine,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 2] = [Self::Own, Self::Engine];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Engine => "engine",
        }
    }
}

/// Allocations and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub allocations: u64,
    /// How many bytes were asked for in all of them.
    pub bytes: u64,
}

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([[Tally; Scope::ALL.len()]; GROUPS]);

/// An allocation that was caught in the act.
#[derive(Debug)]
pub struct Trace {
    /// The group of the thread that made it.
    pub group: usize,
    /// Bytes asked for.
    pub bytes: usize,
    /// Where.
    pub backtrace: Backtrace,
}

/// Until it is dropped, what this thread allocates is of another scope.
#[derive(Debug)]
pub struct Inside {
    before: Scope,
    /// A scope belongs to the thread that entered it.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy)]
struct Place {
    group: u8,
    scope: Scope,
    /// Set while a trace is taken, which allocates itself.
    tracing: bool,
}

/// The counters of one group, on cache lines of their own.
#[repr(align(128))]
struct Row([Sum; Scope::ALL.len()]);

struct Sum {
    allocations: AtomicU64,
    bytes: AtomicU64,
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static ROWS: [Row; GROUPS] = [const { Row([const { Sum::new() }; Scope::ALL.len()]) }; GROUPS];
/// How many more allocations are to be caught, and of which groups: a bit for each.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static WANTED_OF: AtomicU32 = AtomicU32::new(0);
static TRACES: Mutex<Vec<Trace>> = Mutex::new(Vec::new());

thread_local! {
    // Made at compile time and without a destructor, so that reading them allocates nothing, at any time of a thread's life.
    static PLACE: Cell<Place> = const { Cell::new(Place { group: 0, scope: Scope::Own, tracing: false }) };
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Starts to count, for the rest of the process.
pub fn count() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// From here on this thread's allocations are counted in `group`, at most [`GROUPS`]` - 1`; a thread begins in group 0.
pub fn join(group: usize) {
    debug_assert!(group < GROUPS, "there are {GROUPS} groups");
    let group = u8::try_from(group % GROUPS).expect("there are fewer groups than a byte can tell apart");
    PLACE.set(Place { group, ..PLACE.get() });
}

/// Counts what this thread allocates as `scope`, until the answer is dropped.
#[must_use = "the scope ends when this is dropped"]
pub fn inside(scope: Scope) -> Inside {
    let place = PLACE.get();
    PLACE.set(Place { scope, ..place });
    Inside { before: place.scope, _not_send: PhantomData }
}

/// Everything that was counted so far.
#[must_use]
pub fn counts() -> Counts {
    let mut counts = Counts::default();
    for (row, sums) in counts.0.iter_mut().zip(&ROWS) {
        for (tally, sum) in row.iter_mut().zip(&sums.0) {
            tally.allocations = sum.allocations.load(Ordering::Relaxed);
            tally.bytes = sum.bytes.load(Ordering::Relaxed);
        }
    }
    counts
}

/// Does `work` and says how many allocations of [`Scope::Own`] this thread made meanwhile. They are only counted in a
/// binary whose allocator is [`Counting`].
pub fn during<R>(work: impl FnOnce() -> R) -> (R, u64) {
    count();
    let before = OWN.get();
    let result = work();
    (result, OWN.get() - before)
}

/// Catches the next `wanted` allocations of [`Scope::Own`] in these groups. It costs what a backtrace costs, and allocates
/// where nobody counts. Not for a process that may panic meanwhile: a backtrace is printed under the same lock under which
/// one is taken.
pub fn trace(groups: impl IntoIterator<Item = usize>, wanted: usize) {
    WANTED_OF.store(groups.into_iter().fold(0, |bits, group| bits | (1 << group)), Ordering::Relaxed);
    TRACES.lock().unwrap_or_else(PoisonError::into_inner).reserve(wanted);
    WANTED.store(wanted, Ordering::Relaxed);
}

/// What was caught since the last call; none is caught any more.
#[must_use]
pub fn traces() -> Vec<Trace> {
    WANTED.store(0, Ordering::Relaxed);
    std::mem::take(&mut *TRACES.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Counts {
    /// What `group` allocated in `scope`.
    #[must_use]
    pub fn of(&self, group: usize, scope: Scope) -> Tally {
        self.0[group][scope as usize]
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (row, before) in difference.0.iter_mut().zip(&earlier.0) {
            for (tally, before) in row.iter_mut().zip(before) {
                tally.allocations -= before.allocations;
                tally.bytes -= before.bytes;
            }
        }
        difference
    }
}

impl Sum {
    const fn new() -> Self {
        Self { allocations: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        PLACE.set(Place { scope: self.before, ..PLACE.get() });
    }
}

#[inline]
fn note(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        note_counted(bytes);
    }
}

#[cold]
fn note_counted(bytes: usize) {
    let place = PLACE.get();
    if place.tracing {
        return;
    }
    let sum = &ROWS[usize::from(place.group)].0[place.scope as usize];
    sum.allocations.fetch_add(1, Ordering::Relaxed);
    sum.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    if place.scope == Scope::Own {
        OWN.set(OWN.get() + 1);
        if WANTED.load(Ordering::Relaxed) > 0 && WANTED_OF.load(Ordering::Relaxed) >> place.group & 1 == 1 {
            catch(place, bytes);
        }
    }
}

fn catch(place: Place, bytes: usize) {
    let one_less = |wanted: usize| wanted.checked_sub(1);
    if WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
        || std::thread::panicking()
    {
        return;
    }
    PLACE.set(Place { tracing: true, ..place });
    let trace = Trace { group: usize::from(place.group), bytes, backtrace: Backtrace::force_capture() };
    TRACES.lock().unwrap_or_else(PoisonError::into_inner).push(trace);
    PLACE.set(place);
}

// SAFETY: every method does exactly what the system's allocator does, with the same arguments; what is done beside it
// neither allocates nor unwinds (`catch` allocates, and is not entered again while it does).
#[expect(unsafe_code, reason = "an allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are the system's.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc_zeroed`, which are the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: `memory` came from this allocator, which is the system's; the caller keeps the other promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from this allocator, which is the system's, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn a_thread_counts_what_it_allocates_itself() {
        let (_, none) = during(|| black_box([0_u8; 64]));
        assert_eq!(none, 0);
        let (mut bytes, one) = during(|| black_box(Vec::<u8>::with_capacity(64)));
        assert_eq!(one, 1);
        let ((), grown) = during(|| bytes.reserve_exact(1000));
        assert_eq!(grown, 1, "growing is allocating");
        let (text, zeroed) = during(|| black_box(vec![0_u8; 10]));
        assert_eq!((text.len(), zeroed), (10, 1));
        let ((), freed) = during(|| drop((bytes, text)));
        assert_eq!(freed, 0, "freeing is not counted");
    }

    #[test]
    fn what_an_engine_allocates_is_not_ours_and_scopes_nest() {
        let ((), ours) = during(|| {
            let engine = inside(Scope::Engine);
            drop(black_box(Box::new(1)));
            {
                let _own = inside(Scope::Own);
                drop(black_box(Box::new(2)));
            }
            drop(black_box(Box::new(3)));
            drop(engine);
            drop(black_box(Box::new(4)));
        });
        assert_eq!(ours, 2);
    }

    #[test]
    fn groups_are_counted_and_traced_by_themselves() {
        const GROUP: usize = GROUPS - 1;
        count();
        trace([GROUP], 1);
        let before = counts();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                join(GROUP);
                drop(black_box(Box::new([0_u8; 48])));
                let _engine = inside(Scope::Engine);
                drop(black_box(Box::new([0_u8; 80])));
                join(0);
                let _own = inside(Scope::Own);
                drop(black_box(Box::new(0)));
            });
        });
        let since = counts().since(&before);
        assert_eq!(since.of(GROUP, Scope::Own), Tally { allocations: 1, bytes: 48 });
        assert_eq!(since.of(GROUP, Scope::Engine), Tally { allocations: 1, bytes: 80 });
        let traces = traces();
        let [Trace { group: GROUP, bytes: 48, backtrace }] = &traces[..] else { panic!("{traces:?}") };
        assert!(backtrace.to_string().contains("groups_are_counted"), "{backtrace}");
    }
}
