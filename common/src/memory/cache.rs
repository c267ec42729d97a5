//! What the processor's caches are told: what is read next, and what is written but not read soon.
//!
//! Both are hints about time. What is in memory is the same without them, on every machine.

use std::marker::PhantomData;

use super::Buffer;

const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();

/// Asks for the cache line that something begins in, and does not wait for it.
#[inline(always)]
pub(crate) fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of a valid reference; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(of).cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch changes nothing that a program sees, whatever the address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) std::ptr::from_ref(of),
            options(readonly, nostack, preserves_flags),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = of;
}

/// Asks for all cache lines of what is read next, and does not wait for them: some pages at most, or the
/// first are gone before they are read.
///
/// The processor sees by itself that memory is read in order, but only after some lines, and anew at each
/// place where reading goes on.
#[inline]
pub fn prefetch_all<T>(next: &[T]) {
    next.iter().step_by((LINE_BYTES / size_of::<T>().max(1)).max(1)).for_each(prefetch);
}

/// Memory that is written whole cache lines at a time, past the caches, and read when all is written.
///
/// A line that goes through a cache is first read from memory, and drives out another that somebody needs.
/// It stays on the thread that writes: others see what is there after [`LineWriter::finish`].
pub struct LineWriter {
    memory: Buffer,
    /// Not `Send`: only the thread that wrote past its caches can wait for that.
    stays: PhantomData<*mut ()>,
}

impl LineWriter {
    /// Writes into this memory.
    pub fn new(memory: Buffer) -> LineWriter {
        LineWriter { memory, stays: PhantomData }
    }

    /// Writes whole cache lines: of the parts of their length that the memory has, number `at`.
    ///
    /// # Panics
    /// When there is no such part, or the words are not whole lines.
    #[inline(always)]
    pub fn write(&mut self, at: usize, words: &[u64]) {
        let memory: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        let (places, _) = memory[at * words.len()..][..words.len()].as_chunks_mut();
        let (lines, rest) = words.as_chunks();
        assert!(rest.is_empty(), "{} words are no whole lines", words.len());
        for i in 0..lines.len() {
            write_line(&mut places[i], &lines[i]);
        }
    }

    /// Waits for all that was written, and gives the memory to whoever wants to read it.
    pub fn finish(self) -> Buffer {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a fence; SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
        self.memory
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn write_line(place: &mut [u64; LINE_WORDS], line: &[u64; LINE_WORDS]) {
    // Word by word: a wider load would wait for the store of the last word, which has just been made. By
    // index, which the compiler unrolls where it called the parts of a zip.
    for i in 0..LINE_WORDS {
        // SAFETY: the place is ours and aligned, and SSE2 is part of x86-64. Nobody reads it before the fence
        // of `finish` on this same thread.
        unsafe {
            std::arch::x86_64::_mm_stream_si64(
                std::ptr::from_mut(&mut place[i]).cast(),
                line[i] as i64,
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn write_line(place: &mut [u64; LINE_WORDS], line: &[u64; LINE_WORDS]) {
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
