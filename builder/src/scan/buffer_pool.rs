//! [`BufferPool`]: reuses the memory of a decoded piece for the next one.
//!
//! The first touch of new memory costs more than reading a cached file into it, above all on a
//! virtual machine.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bloomsday_common::memory::Buffer;

/// Buffers that are not in use.
pub(super) struct BufferPool {
    buffers: Mutex<Vec<Buffer>>,
    max_bytes: usize,
}

impl BufferPool {
    /// An empty pool, which keeps at most `max_bytes` of unused buffers.
    pub(super) fn new(max_bytes: usize) -> BufferPool {
        BufferPool { buffers: Mutex::default(), max_bytes }
    }

    /// Returns a buffer of `bytes` bytes with any content.
    ///
    /// # Errors
    /// The system's, when no buffer fits and there is no memory for a new one.
    pub(super) fn acquire(self: &Arc<Self>, bytes: usize) -> io::Result<PooledBuffer> {
        let unused = {
            let mut all = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let fitting = all.iter().position(|buffer| buffer.fits(bytes));
            // If none fits, one is replaced by a new one: so the pool follows the sizes that are
            // needed.
            fitting.or(all.len().checked_sub(1)).map(|at| all.swap_remove(at))
        };
        Ok(PooledBuffer { memory: Some(Buffer::reuse(unused, bytes)?), pool: Arc::clone(self) })
    }
}

/// A buffer that returns to its pool when it is dropped.
pub(super) struct PooledBuffer {
    /// `None` only during the drop.
    memory: Option<Buffer>,
    pool: Arc<BufferPool>,
}

const UNTIL_DROPPED: &str = "a pooled buffer has its memory until it is dropped";

impl Deref for PooledBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.as_ref().expect(UNTIL_DROPPED)
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().expect(UNTIL_DROPPED)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut all = self.pool.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.memory.take());
        // The pool frees the largest buffers first: one exceptional piece must not fill the pool.
        all.sort_unstable_by_key(Buffer::capacity);
        while all.iter().map(Buffer::capacity).sum::<usize>() > self.pool.max_bytes {
            all.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_from_one_piece_to_the_next() {
        let pool = Arc::new(BufferPool::new(100 << 20));
        let first = pool.acquire(3 << 20).unwrap();
        let place = first.as_ptr();
        let second = pool.acquire(100).unwrap();
        drop((second, first));
        let again = pool.acquire((3 << 20) - 7).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (place, (3 << 20) - 7), "the one that fits");
        drop(again);
        // Too much for either: one of them goes.
        let large = pool.acquire(64 << 20).unwrap();
        assert_eq!(large.len(), 64 << 20);
        assert_eq!(pool.buffers.lock().unwrap().len(), 1);
        drop(large);
        assert_eq!(pool.buffers.lock().unwrap().len(), 2);
    }

    #[test]
    fn the_pool_has_a_limit_in_bytes_whatever_was_acquired() {
        let pool = Arc::new(BufferPool::new(8 << 20));
        for sizes in [vec![1 << 20; 16], vec![100 << 20], vec![3 << 20; 5], vec![1 << 20; 3]] {
            let used: Vec<_> = sizes.iter().map(|bytes| pool.acquire(*bytes).unwrap()).collect();
            drop(used);
            let bytes: usize = pool.buffers.lock().unwrap().iter().map(Buffer::capacity).sum();
            assert!(bytes <= 8 << 20, "{bytes} bytes wait for nobody after {sizes:?}");
            assert!(bytes > 0 || sizes.len() == 1, "nothing is kept after {sizes:?}");
        }
    }
}
