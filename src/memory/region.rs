//! Pages from the system, made for frames: they are there, and stay there.
#![expect(unsafe_code, reason = "mapping, touching and locking pages")]

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

use super::system::{self, System};
use super::{ACCOUNTS, MemoryError, Policy, Wish, policy};

/// A piece of memory that belongs to nobody else, zeroed, aligned to a page, and in RAM already. What is done with its
/// bytes is its owner's to get right: a [`Buffer`](super::Buffer) hands them out as a slice.
pub struct Region {
    start: NonNull<u8>,
    /// Whole pages.
    len: usize,
    locked: bool,
    huge_bytes: usize,
}

// SAFETY: the region owns its pages alone, and a mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}
// SAFETY: by itself a shared region hands out an address only.
unsafe impl Sync for Region {}

impl Region {
    /// Memory of at least `len` bytes, by the process's policy.
    ///
    /// # Errors
    /// When the machine has not that much left, or cannot give what the policy requires.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        Self::with_policy(len, policy())
    }

    /// Memory of at least `len` bytes, by this policy.
    ///
    /// # Errors
    /// When the machine has not that much left, or cannot give what the policy requires.
    pub fn with_policy(len: usize, policy: Policy) -> Result<Self, MemoryError> {
        // One after the other: each sees what the one before has left, and its huge pages are told from others'.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let (wanted, len) = (len as u64, len.max(1));
        if let Some(available) = system::available().filter(|available| wanted > *available) {
            return Err(MemoryError::TooLittle { wanted, available });
        }
        let system = system::system();
        let mut region = match Self::on_huge_pages(len, policy.huge_pages, &system)? {
            Some(region) => region,
            None => Self::on_pages(len, system.page, Advice::Normal)?,
        };
        region.lock(policy.lock)?;
        Ok(region)
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes, at least as many as were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; it never has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// On huge pages: reserved ones first, which cannot be taken apart, then transparent ones. None where neither is to
    /// be had, or where a huge page would mostly be empty.
    fn on_huge_pages(len: usize, wish: Wish, system: &System) -> Result<Option<Self>, MemoryError> {
        let Some(huge_page) = system.huge_page.filter(|page| wish != Wish::Off && len >= *page) else {
            return Ok(None);
        };
        let wanted = len as u64;
        let rounded =
            round_up(len, huge_page).ok_or_else(|| refused(wanted, io::ErrorKind::OutOfMemory.into()))?;
        if let Ok(start) = map(rounded, MapFlags::HUGETLB | MapFlags::POPULATE) {
            let mut region = Self::owning(start, rounded);
            region.count_huge(rounded);
            return Ok(Some(region));
        }
        if system.transparent {
            let before = system::on_transparent_huge_pages();
            let mut region = Self::on_pages(rounded, huge_page, Advice::LinuxHugepage)?;
            let gained = system::on_transparent_huge_pages().saturating_sub(before);
            region.count_huge(usize::try_from(gained).unwrap_or(usize::MAX).min(rounded));
            if wish != Wish::Require || region.huge_bytes > 0 {
                return Ok(Some(region));
            }
        }
        if wish == Wish::Require {
            return Err(MemoryError::NoHugePages { wanted, pages: (rounded / huge_page) as u64 });
        }
        Ok(None)
    }

    /// On pages as the system has them, beginning at a multiple of `alignment`, touched.
    fn on_pages(len: usize, alignment: usize, advice: Advice) -> Result<Self, MemoryError> {
        let wanted = len as u64;
        let refuse = |error: io::Error| refused(wanted, error);
        let page = system::system().page;
        let rounded = round_up(len, page).ok_or_else(|| refuse(io::ErrorKind::OutOfMemory.into()))?;
        // The system aligns to its pages; for more, what is mapped too much before and behind is given back.
        let slack = alignment.saturating_sub(page);
        let whole = rounded.checked_add(slack).ok_or_else(|| refuse(io::ErrorKind::OutOfMemory.into()))?;
        let mapped = map(whole, MapFlags::empty()).map_err(|error| refuse(error.into()))?;
        let before = mapped.align_offset(alignment);
        // SAFETY: `before` is at most `slack`, so the address lies within the mapping.
        let start = unsafe { mapped.add(before) };
        if before > 0 {
            // SAFETY: the pages from the mapping's first to the region's belong to nobody.
            unsafe { unmap(mapped, before) };
        }
        if slack > before {
            // SAFETY: the region's end is within the mapping.
            let end = unsafe { start.add(rounded) };
            // SAFETY: the pages from the region's end to the mapping's belong to nobody.
            unsafe { unmap(end, slack - before) };
        }
        let region = Self::owning(start, rounded);
        // An advice that is not taken leaves the memory as it is, which the count of huge pages shows.
        region.advise(advice).ok();
        region.touch(page);
        Ok(region)
    }

    /// Takes over the pages of a mapping, and counts them.
    fn owning(start: NonNull<u8>, len: usize) -> Self {
        let mapped = ACCOUNTS.mapped.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        ACCOUNTS.mapped_peak.fetch_max(mapped, Ordering::Relaxed);
        Self { start, len, locked: false, huge_bytes: 0 }
    }

    fn count_huge(&mut self, bytes: usize) {
        self.huge_bytes = bytes;
        ACCOUNTS.huge_pages.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the pages belong to this region, and no advice that is given here changes what they hold.
        unsafe { madvise(self.address(), self.len, advice) }
    }

    /// Has every page found now. Kernels before 5.14 (Jetson and RK3588 run 5.10) do not know the advice, so each page is
    /// written to.
    fn touch(&self, page: usize) {
        match self.advise(Advice::LinuxPopulateWrite) {
            Ok(()) => {}
            Err(Errno::INVAL) => self.write_to_each(page),
            Err(_) => {
                ACCOUNTS.prefault_failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn write_to_each(&self, page: usize) {
        for offset in (0..self.len).step_by(page) {
            // SAFETY: the offset is within the region.
            let byte = unsafe { self.start.add(offset) };
            // SAFETY: nobody else knows the region yet, and its pages may be written to.
            unsafe { byte.write_volatile(0) };
        }
    }

    fn lock(&mut self, wish: Wish) -> Result<(), MemoryError> {
        if wish == Wish::Off {
            return Ok(());
        }
        // SAFETY: the pages belong to this region; locking them changes nothing that they hold.
        match unsafe { mlock(self.address(), self.len) } {
            Ok(()) => {
                self.locked = true;
                ACCOUNTS.locked.fetch_add(self.len as u64, Ordering::Relaxed);
                Ok(())
            }
            Err(source) if wish == Wish::Require => {
                Err(MemoryError::NotLocked { wanted: self.len as u64, source: source.into() })
            }
            Err(_) => {
                ACCOUNTS.lock_failures.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn address(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        ACCOUNTS.mapped.fetch_sub(self.len as u64, Ordering::Relaxed);
        ACCOUNTS.huge_pages.fetch_sub(self.huge_bytes as u64, Ordering::Relaxed);
        if self.locked {
            ACCOUNTS.locked.fetch_sub(self.len as u64, Ordering::Relaxed);
        }
        // SAFETY: the pages belong to this region, and whoever had their address borrowed it from here.
        unsafe { unmap(self.start, self.len) };
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .field("locked", &self.locked)
            .field("huge_bytes", &self.huge_bytes)
            .finish_non_exhaustive()
    }
}

/// New pages, zeroed.
fn map(len: usize, flags: MapFlags) -> rustix::io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: without an address the system chooses one at which nothing lies.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, flags | MapFlags::PRIVATE) }?;
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

/// Gives pages back.
///
/// # Safety
/// They are whole pages of a mapping, and nothing refers to them any more.
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: what the caller promises is all that the system asks for.
    let unmapped = unsafe { munmap(start.as_ptr().cast(), len) };
    debug_assert!(unmapped.is_ok(), "whole pages of a mapping are given back");
}

fn round_up(len: usize, unit: usize) -> Option<usize> {
    len.checked_next_multiple_of(unit).filter(|rounded| isize::try_from(*rounded).is_ok())
}

fn refused(wanted: u64, source: io::Error) -> MemoryError {
    MemoryError::Refused { wanted, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::account;

    const PLAIN: Policy = Policy { lock: Wish::Off, huge_pages: Wish::Off };

    fn pages_in_ram(region: &Region) -> usize {
        // The kernel's table of this mapping: `Rss:` in kB, after the line that begins with its address.
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let address = format!("{:x}-", region.start.as_ptr() as usize);
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&address));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024 / system::system().page
    }

    #[test]
    fn a_region_is_whole_zeroed_pages_that_are_in_ram_already() {
        let page = system::system().page;
        let region = Region::with_policy(5 * page - 1, PLAIN).unwrap();
        assert_eq!(region.len(), 5 * page);
        assert_eq!(region.start().align_offset(page), 0);
        // A neighbour that the kernel merged with it only adds to the count.
        assert!(pages_in_ram(&region) >= 5);
        region.write_to_each(page);
        assert!(pages_in_ram(&region) >= 5, "as kernels before 5.14 have it");
    }

    #[test]
    fn large_regions_lie_on_huge_pages_where_the_system_has_them() {
        let system = system::system();
        let Some(huge_page) = system.huge_page.filter(|_| system.transparent) else {
            eprintln!("SKIP large_regions_lie_on_huge_pages_where_the_system_has_them: it has none");
            return;
        };
        let region =
            Region::with_policy(huge_page + 1, Policy { lock: Wish::Off, huge_pages: Wish::Auto }).unwrap();
        assert_eq!(region.len(), 2 * huge_page);
        assert_eq!(region.start().align_offset(huge_page), 0);
        let small = Region::with_policy(huge_page - 1, Policy { lock: Wish::Off, huge_pages: Wish::Auto });
        assert_eq!(small.unwrap().huge_bytes, 0, "it would mostly be empty");
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_both_figures() {
        for len in [1 << 50, usize::MAX / 2, usize::MAX] {
            let error = Region::new(len).unwrap_err();
            assert!(
                matches!(error, MemoryError::TooLittle { wanted, available } if wanted > available),
                "{error:?}"
            );
        }
    }

    #[test]
    fn what_is_mapped_and_locked_is_accounted_for_until_it_is_dropped() {
        let len = 3 << 20;
        let region = Region::with_policy(len, Policy { lock: Wish::Auto, huge_pages: Wish::Off }).unwrap();
        // Other tests of this process make and drop regions meanwhile, so only what is at least there can be told.
        assert!(account().mapped_bytes >= len as u64);
        assert!(account().mapped_peak_bytes >= account().mapped_bytes.min(len as u64));
        assert!(!region.locked || account().locked_bytes >= len as u64);
        assert!(region.locked || account().lock_failures > 0);
    }
}
