//! Prefetching what is read next, and writing past the caches what is not read soon.
//!
//! Both change only how long something takes. The contents of memory are the same without them, on
//! every machine.

use std::marker::PhantomData;

use super::Buffer;

const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();

/// Prefetches the cache line that something begins in. Does not wait for it.
#[inline(always)]
pub(crate) fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint, which changes no memory and cannot fault; the address comes
    // from a live reference. It needs SSE, which every x86-64 has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(of).cast());
    }
    #[cfg(target_arch = "aarch64")]
    crate::assembly::prefetch(of);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = of;
}

/// Prefetches all cache lines of what is read next. Does not wait for them.
///
/// For a few pages at most: with more, the first lines are evicted before they are read. The
/// processor detects by itself that memory is read in order, but only after some lines, and again
/// after each jump.
#[inline]
pub fn prefetch_all<T>(next: &[T]) {
    next.iter().step_by((LINE_BYTES / size_of::<T>().max(1)).max(1)).for_each(prefetch);
}

/// Memory that is written in complete cache lines with non-temporal stores, which bypass the
/// caches, and is read when everything is written.
///
/// A line that goes through a cache is first read from memory, and evicts another that somebody
/// needs. The writer stays on one thread: others see what was written after [`LineWriter::finish`].
#[derive(Debug)]
pub struct LineWriter {
    /// Dropped before `memory`, and by `finish` before it returns that.
    fence: FenceOnDrop,
    memory: Buffer,
    /// Not `Send`: only the thread that made the stores can wait for them.
    not_send: PhantomData<*mut ()>,
}

impl LineWriter {
    /// Writes into this memory.
    pub fn new(memory: Buffer) -> LineWriter {
        LineWriter { fence: FenceOnDrop, memory, not_send: PhantomData }
    }

    /// Writes complete cache lines. The memory is divided into parts of `words.len()` words; the
    /// words become part number `at`.
    ///
    /// # Panics
    /// When there is no such part, or `words` are not complete lines.
    #[inline(always)]
    pub fn write(&mut self, at: usize, words: &[u64]) {
        let memory: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        let (places, _) = memory[at * words.len()..][..words.len()].as_chunks_mut();
        let (lines, rest) = words.as_chunks();
        assert!(rest.is_empty(), "{} words are not complete lines", words.len());
        for i in 0..lines.len() {
            // SAFETY: `self.fence` fences on this thread before anything but `write` can reach the
            // memory: `finish` and the drop of `self` run it first, `self` is not `Send`, and no
            // other method reads. A `self` that is leaked leaks the memory, too.
            unsafe { write_line(&mut places[i], &lines[i]) };
        }
    }

    /// Waits for all stores, and returns the memory to be read.
    pub fn finish(self) -> Buffer {
        let LineWriter { fence, memory, .. } = self;
        drop(fence);
        memory
    }
}

/// Waits, when it is dropped, for all stores that this thread has made.
#[derive(Debug)]
struct FenceOnDrop;

impl Drop for FenceOnDrop {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the fence needs SSE, which every x86-64 has, and touches no memory.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Writes a line with non-temporal stores.
///
/// # Safety
/// Non-temporal stores are not ordered with other stores. So this thread must execute an `sfence`
/// after this call and before anybody reads `place`, frees it, or lets another thread have it. Only
/// another `write_line` to it on this thread may come before: a processor keeps its own stores to
/// one address in order.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn write_line(place: &mut [u64; LINE_WORDS], line: &[u64; LINE_WORDS]) {
    // Word by word: a wider load would wait for the store of the last word, which was made just
    // before. By index: the compiler unrolls it, and does not unroll a zip.
    for i in 0..LINE_WORDS {
        // SAFETY: `place[i]` is borrowed mutably, so it is valid, exclusive and aligned to 8 bytes.
        // The store needs SSE2, which every x86-64 has. The caller fences before any other access.
        unsafe {
            std::arch::x86_64::_mm_stream_si64(
                std::ptr::from_mut(&mut place[i]).cast(),
                line[i] as i64,
            );
        }
    }
}

/// Writes a line with ordinary stores: this architecture has no stable intrinsic for others.
///
/// # Safety
/// None is needed. It is `unsafe` so that callers are the same everywhere.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn write_line(place: &mut [u64; LINE_WORDS], line: &[u64; LINE_WORDS]) {
    *place = *line;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_where_they_were_written_and_the_rest_is_as_it_was() {
        for bytes in [1024, 4 << 20] {
            let mut writer = LineWriter::new(Buffer::zeroed(bytes).unwrap());
            writer.write(1, &[7; 8]);
            writer.write(3, &[1; 16]);
            let memory = writer.finish();
            let words: &[u64] = bytemuck::cast_slice(&memory);
            assert_eq!(words[8..16], [7; 8]);
            assert_eq!(words[48..64], [1; 16]);
            assert_eq!(words.iter().filter(|word| **word == 0).count(), bytes / 8 - 24);
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn what_lies_past_the_memory_is_not_written() {
        LineWriter::new(Buffer::zeroed(128).unwrap()).write(2, &[7; 8]);
    }

    #[test]
    fn anything_can_be_prefetched() {
        prefetch_all::<u64>(&[]);
        prefetch_all(&[1_u8; 100]);
        prefetch_all(&[[0_u64; 100]; 3]);
        prefetch_all(&[(), ()]);
    }
}
