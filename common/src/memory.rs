//! [`Buffer`]: zeroed memory for a filter, in huge pages where the system has them. [`Lines`]:
//! words that threads share. [`available`]: how much memory is free. [`LineWriter`] and
//! [`prefetch_all`]: control of the processor's caches.
//!
//! A lookup reads a random cache line of a few hundred MiB: with 4 KiB pages nearly every one also
//! misses the TLB. The memory is anonymous, never a mapped file: when somebody truncates a mapped
//! file, the process is killed.

mod available;
#[allow(unsafe_code)] // prefetches and non-temporal stores
mod cache;
#[allow(unsafe_code)] // words that threads share, in mapped memory
mod lines;

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

pub use self::available::{Available, available};
pub(crate) use self::cache::prefetch;
pub use self::cache::{LineWriter, prefetch_all};
pub use self::lines::{LINE_WORDS, Line, LineArena, Lines};

/// The size and alignment of a huge page on x86-64 and on most arm64 systems.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes that begin on a huge-page boundary, or on a page boundary when they are few.
///
/// ```
/// use bloomsday_common::memory::Buffer;
///
/// let mut buffer = Buffer::zeroed(4096)?;
/// buffer[0] = 7;
/// assert_eq!(buffer.len(), 4096);
/// let reused = Buffer::reuse(Some(buffer), 1024)?; // the same memory: write all of it
/// assert_eq!(reused.len(), 1024);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Buffer {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Reserves `len` zero bytes. The system maps them at the first access.
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

    /// Returns `len` bytes of the memory `unused` if it fits, else of new memory. Their contents
    /// are unspecified: write them all.
    ///
    /// Cost: the first access to new memory can cost more than the rest of a load.
    ///
    /// # Errors
    /// As [`Buffer::zeroed`].
    pub fn reuse(unused: Option<Buffer>, len: usize) -> io::Result<Buffer> {
        // One that does not fit is freed before there is a new one.
        match unused.filter(|buffer| buffer.fits(len)) {
            Some(buffer) => Ok(Buffer { len, ..buffer }),
            None => Buffer::zeroed(len),
        }
    }

    /// Where its bytes begin, for words that are changed in place.
    fn first(&self) -> std::ptr::NonNull<u8> {
        let first = self.map.as_ptr().wrapping_add(self.start).cast_mut();
        std::ptr::NonNull::new(first).expect("a mapping is somewhere")
    }

    /// How many bytes it can have without new memory: at least as many as it has.
    pub fn capacity(&self) -> usize {
        self.map.len() - self.start
    }

    /// Whether [`Buffer::reuse`] uses this memory: it is neither too small nor more than twice too
    /// large.
    pub fn fits(&self, len: usize) -> bool {
        len <= self.capacity() && self.map.len() / 2 <= len.max(HUGE_PAGE)
    }

    /// How many of its bytes are in huge pages, as the kernel reports; `None` where it does not.
    ///
    /// Cost: the kernel walks the page tables of the process, which can take milliseconds.
    pub fn huge_bytes(&self) -> Option<u64> {
        if self.len < HUGE_PAGE {
            return Some(0);
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let start = self.as_ptr() as usize;
        Some(huge_bytes_in(&maps, start..start + self.len))
    }
}

/// Adds up `AnonHugePages` of the mappings that `range` lies in, at most its length: the kernel
/// joins neighbours into one mapping.
fn huge_bytes_in(maps: &str, range: std::ops::Range<usize>) -> u64 {
    let (mut inside, mut huge) = (false, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("AnonHugePages:") {
            let kib = size.trim().trim_end_matches("kB").trim().parse::<u64>();
            huge += if inside { kib.unwrap_or(0) << 10 } else { 0 };
        } else if let Some((from, to)) = line.split(' ').next().and_then(|w| w.split_once('-')) {
            let address = |text| usize::from_str_radix(text, 16).ok();
            if let (Some(from), Some(to)) = (address(from), address(to)) {
                inside = from < range.end && range.start < to;
            }
        }
    }
    huge.min(range.len() as u64)
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
    fn memory_is_used_again_when_it_is_large_enough_and_not_far_too_large() {
        let first = Buffer::zeroed(8 * HUGE_PAGE).unwrap();
        let place = first.as_ptr();
        let again = Buffer::reuse(Some(first), 6 * HUGE_PAGE + 5).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (place, 6 * HUGE_PAGE + 5));
        let again = Buffer::reuse(Some(again), 8 * HUGE_PAGE).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (place, 8 * HUGE_PAGE));
        let larger = Buffer::reuse(Some(again), 20 * HUGE_PAGE).unwrap();
        assert_eq!(larger.len(), 20 * HUGE_PAGE);
        let large = Buffer::zeroed(8 * HUGE_PAGE).unwrap();
        let small = Buffer::reuse(Some(large), 100).unwrap();
        assert_eq!((small.map.len(), small.len()), (100, 100), "16 MiB are kept for 100 bytes");
    }

    #[test]
    fn huge_pages_are_counted_in_the_mappings_that_hold_the_memory() {
        let maps = "7f0000000000-7f0000800000 rw-p 00000000 00:00 0 \nSize: 8192 kB\n\
                    AnonHugePages:      6144 kB\nVmFlags: rd wr\n\
                    7f0000800000-7f0000a00000 rw-p 00000000 00:00 0 [heap]\n\
                    AnonHugePages:      2048 kB\n";
        let at = 0x7f00_0000_0000;
        assert_eq!(huge_bytes_in(maps, at + 4096..at + (7 << 20)), 6 << 20);
        assert_eq!(huge_bytes_in(maps, at..at + (9 << 20)), 8 << 20);
        assert_eq!(huge_bytes_in(maps, at..at + (1 << 20)), 1 << 20, "more than it has");
        assert_eq!(huge_bytes_in(maps, 4096..8192), 0);
        #[cfg(target_os = "linux")]
        assert!(Buffer::zeroed(4 * HUGE_PAGE).unwrap().huge_bytes().is_some());
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        assert!(Buffer::zeroed(usize::MAX).is_err());
    }
}
