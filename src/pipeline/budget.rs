//! What a config needs of memory, as far as it is known before the first picture: told whole before any of it is made.

use crate::memory::mib;

/// Items that an error names.
const NAMED: usize = 3;

/// What will be made, item by item.
#[derive(Debug, Default)]
pub(super) struct Budget {
    items: Vec<(String, u64)>,
}

/// More memory is needed than there is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "frames and batches need {} of memory and the machine has {} left; the largest: {largest}; write a smaller \
     batching.size_max or smaller pictures, or leave some of them out",
    mib(*needed),
    mib(*available)
)]
pub struct TooMuch {
    /// Bytes that all items need.
    needed: u64,
    /// Bytes that the machine, or the daemon's cgroup, can still give.
    available: u64,
    /// The largest items, in words.
    largest: String,
}

impl Budget {
    /// Adds what will be made of this many bytes; it is named in an error.
    pub(super) fn add(&mut self, what: String, bytes: u64) {
        self.items.push((what, bytes));
    }

    /// Whether `available` bytes suffice; they do where the system does not tell.
    pub(super) fn check(mut self, available: Option<u64>) -> Result<(), TooMuch> {
        let needed = self.items.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        let Some(available) = available.filter(|available| needed > *available) else { return Ok(()) };
        self.items.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let named: Vec<_> =
            self.items.iter().take(NAMED).map(|(what, bytes)| format!("{what} {}", mib(*bytes))).collect();
        Err(TooMuch { needed, available, largest: named.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_told_with_the_sum_and_the_largest_first() {
        let budget = || {
            let mut budget = Budget::default();
            for (what, mib) in [("a", 1), ("b", 300), ("c", 20), ("d", 4)] {
                budget.add(what.to_owned(), mib << 20);
            }
            budget
        };
        assert_eq!(budget().check(Some(325 << 20)), Ok(()));
        assert_eq!(budget().check(None), Ok(()));
        let error = budget().check(Some((325 << 20) - 1)).unwrap_err().to_string();
        let words = "need 325 MiB of memory and the machine has 325 MiB left; the largest: b 300 MiB, c 20 MiB, d 4 MiB; write";
        assert!(error.contains(words), "{error}");
    }
}
