//! A region as a slice of numbers.
#![expect(unsafe_code, reason = "a region's bytes as numbers")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;

use super::{MemoryError, Region};

/// A number of which every pattern of bits is a value.
///
/// # Safety
/// Every pattern of bits is a value, there is no padding, and its alignment is at most [`ALIGNMENT`](super::ALIGNMENT).
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: a number.
unsafe impl Plain for u8 {}
// SAFETY: a number.
unsafe impl Plain for i8 {}
// SAFETY: a number.
unsafe impl Plain for u16 {}
// SAFETY: a number.
unsafe impl Plain for i32 {}
// SAFETY: a number.
unsafe impl Plain for f32 {}

/// A fixed number of elements, zero at first, in memory that is there already.
pub struct Buffer<T> {
    region: Region,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// A buffer of `len` zeros, by the process's policy.
    ///
    /// # Errors
    /// When the machine has not that much left, or cannot give what the policy requires.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        let region = Region::new(len.saturating_mul(size_of::<T>()))?;
        Ok(Self { region, len, element: PhantomData })
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the region has room for `len` elements, is aligned to a page, was zeroed by the system, and lives as
        // long as the buffer, which is borrowed; whoever writes borrows it alone.
        unsafe { slice::from_raw_parts(self.region.start().cast().as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for reading; the buffer owns the region and is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.region.start().cast().as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).field("region", &self.region).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ALIGNMENT;

    #[test]
    fn a_buffer_is_aligned_zeros_that_can_be_written() {
        let mut buffer = Buffer::<f32>::new(1000).unwrap();
        assert_eq!(buffer.len(), 1000);
        assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
        assert!(buffer.iter().all(|value| *value == 0.0));
        buffer[999] = 1.5;
        assert_eq!(buffer.iter().sum::<f32>(), 1.5);
        assert_eq!(Buffer::<u8>::new(0).unwrap().len(), 0);
        assert!(Buffer::<f32>::new(usize::MAX / 2).is_err());
    }
}
