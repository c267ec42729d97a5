//! What the processor's caches are told: what is read next, and what is written but not read soon.
//!
//! Both are hints about time. What is in memory is the same without them, on every machine.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::Buffer;

const LINE_BYTES: usize = 64;

/// Asks for the cache line that something begins in, and does not wait for it.
#[inline(always)]
pub(crate) fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of a valid reference; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(of).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
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

    /// Writes `lines` where the memory's part `at` of their size is.
    ///
    /// # Panics
    /// When there is no such part. Compilation fails for what is not whole lines.
    #[inline(always)]
    pub fn write<T: Pod>(&mut self, at: usize, lines: &T) {
        const { assert!(size_of::<T>() > 0 && size_of::<T>().is_multiple_of(LINE_BYTES)) };
        let place = &mut self.memory[at * size_of::<T>()..][..size_of::<T>()];
        #[cfg(target_arch = "x86_64")]
        if place.as_ptr().cast::<std::arch::x86_64::__m128i>().is_aligned() {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
            let (words, _) = bytemuck::bytes_of(lines).as_chunks::<16>();
            for (word, to) in words.iter().zip(place.chunks_exact_mut(16)) {
                // SAFETY: 16 bytes are read from a word of 16 and written to one that is ours and aligned; SSE2
                // is part of x86-64. Nobody reads them before the fence of `finish`, on this same thread.
                unsafe {
                    let word = _mm_loadu_si128(word.as_ptr().cast::<__m128i>());
                    _mm_stream_si128(to.as_mut_ptr().cast(), word);
                }
            }
            return;
        }
        place.copy_from_slice(bytemuck::bytes_of(lines));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_where_they_were_written_and_the_rest_is_as_it_was() {
        for bytes in [1024, 4 << 20] {
            let mut writer = LineWriter::new(Buffer::zeroed(bytes).unwrap());
            writer.write(1, &[7_u64; 8]);
            writer.write(3, &[[1_u64, 2]; 8]);
            let memory = writer.finish();
            let words: &[u64] = bytemuck::cast_slice(&memory);
            assert_eq!(words[8..16], [7; 8]);
            assert_eq!(words[48..64], [1, 2].repeat(8));
            assert_eq!(words.iter().filter(|word| **word == 0).count(), bytes / 8 - 24);
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn what_lies_past_the_memory_is_not_written() {
        LineWriter::new(Buffer::zeroed(128).unwrap()).write(2, &[7_u64; 8]);
    }

    #[test]
    fn anything_can_be_prefetched() {
        prefetch_all::<u64>(&[]);
        prefetch_all(&[1_u8; 100]);
        prefetch_all(&[[0_u64; 100]; 3]);
        prefetch_all(&[(), ()]);
    }
}
