//! A thread's stack, in memory before its work begins: no page of it is waited for later.

use std::hint::black_box;

/// What is left alone at the deep end: the thread's own data lies there, and what it has used already.
const MARGIN_BYTES: usize = 32 << 10;
/// A stack is touched in steps of this, which no page is smaller than.
const STEP_BYTES: usize = 4096;

/// Touches every page of the calling thread's stack, which has so many bytes and has hardly been used.
pub(super) fn prefault(stack_bytes: usize) {
    let here = 0_u8;
    let top = (&raw const here).addr();
    touch(top.saturating_sub(stack_bytes.saturating_sub(MARGIN_BYTES)));
}

/// Writes a step of the stack, and all that is deeper as far as the address `end`.
#[inline(never)]
fn touch(end: usize) {
    let mut step = [0_u8; STEP_BYTES];
    if (&raw const step).addr() > end {
        touch(end);
    }
    // After the call, so that the step cannot be given up before it.
    black_box(&mut step);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minor page faults of the calling thread so far.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn a_stack_that_was_touched_costs_no_page_fault_afterwards() {
        const STACK: usize = 1 << 20;
        let thread = std::thread::Builder::new().stack_size(STACK);
        let body = || {
            let here = 0_u8;
            let end = (&raw const here).addr() - STACK / 2;
            let before = faults();
            prefault(STACK);
            let touched = faults();
            touch(end);
            (touched - before, faults() - touched)
        };
        #[expect(clippy::disallowed_methods, reason = "a test's own thread, which ends with it")]
        let (first, second) = thread.spawn(body).unwrap().join().unwrap();
        assert!(first > 0, "the stack was in memory already");
        assert!(second <= 2, "{second} page faults after {first}");
    }
}
