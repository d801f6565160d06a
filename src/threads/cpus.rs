//! A set of CPUs, as Linux writes it and as the kernel takes it.

use std::collections::BTreeSet;
use std::fmt;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The highest number that a CPU may have, which is what the kernel's sets hold.
pub const NUMBER_MAX: usize = CpuSet::MAX_CPU - 1;

/// CPUs by their numbers. `Display` writes them as Linux does: `0-3,6`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Cpus(BTreeSet<usize>);

impl Cpus {
    /// Reads a list as Linux writes it, such as `0-3,6`. None for what is no such list.
    #[must_use]
    pub fn parse(list: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number <= NUMBER_MAX);
        let mut cpus = BTreeSet::new();
        for part in list.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            cpus.extend(number(first)?..=number(last)?);
        }
        Some(Self(cpus))
    }

    /// Those that the calling thread may run on.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn of_this_thread() -> std::io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok((0..=NUMBER_MAX).filter(|cpu| set.is_set(*cpu)).collect())
    }

    /// Those that a config may name: the ones that this process was started on, and those that the kernel keeps free of
    /// ordinary threads (`isolcpus=`) where the control group lets us have them. The calling thread tries and goes back.
    #[must_use]
    pub fn allowed(isolated: &Self) -> Self {
        let Ok(own) = Self::of_this_thread() else { return Self::default() };
        let more = isolated.minus(&own);
        if more.is_empty() {
            return own;
        }
        // The kernel narrows what is asked for to what the control group has, and refuses when nothing is left.
        let granted = more.take().and_then(|()| Self::of_this_thread());
        // It was there a moment ago.
        own.take().ok();
        own.0.into_iter().chain(granted.unwrap_or_default().0).collect()
    }

    /// Has the calling thread run on these only, and the threads that it starts.
    ///
    /// # Errors
    /// When the kernel refuses: none of them is there, or the control group has none of them.
    pub fn take(&self) -> std::io::Result<()> {
        let mut set = CpuSet::new();
        for cpu in &self.0 {
            set.set(*cpu);
        }
        Ok(sched_setaffinity(None, &set)?)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// These without the others.
    #[must_use]
    pub fn minus(&self, others: &Self) -> Self {
        Self(self.0.difference(&others.0).copied().collect())
    }

    /// What both have.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self(self.0.intersection(&others.0).copied().collect())
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = left.next() {
            let mut last = first;
            while let Some(next) = left.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        for (list, cpus) in
            [("", vec![]), ("0", vec![0]), ("0-3,6", vec![0, 1, 2, 3, 6]), ("2,5-6", vec![2, 5, 6])]
        {
            let read = Cpus::parse(list).unwrap();
            assert_eq!(read, cpus.into_iter().collect());
            assert_eq!(read.to_string(), list);
        }
        assert_eq!(Cpus::parse("0-1\n").unwrap().len(), 2, "a file ends with a line's end");
        for wrong in ["x", "1-", "-1", "0-5000", "0 1"] {
            assert_eq!(Cpus::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_allowed_is_what_the_thread_has_and_stays_so() {
        let before = Cpus::of_this_thread().unwrap();
        assert!(!before.is_empty());
        // One that is there already, and one that no machine of ours has.
        let isolated = before.iter().take(1).chain([NUMBER_MAX]).collect();
        assert_eq!(Cpus::allowed(&isolated), before);
        assert_eq!(Cpus::of_this_thread().unwrap(), before);
    }
}
