//! [`Buffer`]: zeroed memory for a filter, in huge pages where the system has them.
//!
//! A lookup touches a random cache line of a few hundred MiB: with 4 KiB pages nearly every one
//! also misses the TLB. The memory is anonymous, never a mapped file: a file that somebody
//! truncates would kill the process.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// The size and alignment of a huge page on x86-64 and on most arm64 systems.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes that begin on a huge-page boundary, or on a page boundary when they are few.
pub struct Buffer {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Reserves `len` zero bytes; the system provides them at the first touch.
    ///
    /// # Errors
    /// The system's, when it refuses that much address space.
    pub fn zeroed(len: usize) -> io::Result<Buffer> {
        let slack = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let mapped = len.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapOptions::new().len(mapped.max(1)).map_anon()?;
        let start = if slack == 0 { 0 } else { map.as_ptr().align_offset(HUGE_PAGE) };
        #[cfg(target_os = "linux")]
        if slack != 0 {
            // Advice only: without huge pages everything works, more slowly.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Buffer { map, start, len })
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeroed_and_aligned_whatever_its_size() {
        for len in [0, 1, 64, 4096, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 17] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|b| *b == 0));
            let alignment = if len >= HUGE_PAGE { HUGE_PAGE } else { 64 };
            assert_eq!(buffer.as_ptr().align_offset(alignment), 0);
            buffer.fill(0xff);
        }
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        assert!(Buffer::zeroed(usize::MAX).is_err());
    }
}
