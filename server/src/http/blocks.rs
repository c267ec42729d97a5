//! [`Blocks`]: a pool of memory blocks of one size, for the bodies of queries and their results.
//! All connections share it, and it has a maximum.
//!
//! A block that comes back is used again at once, by any thread. None goes back to the allocator,
//! which keeps freed pieces for each thread: a flood of bodies would take two to three times the
//! memory that is counted.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A pool of blocks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Blocks {
    /// The size of each block.
    bytes: usize,
    state: Arc<Mutex<PoolState>>,
}

struct PoolState {
    /// Allocated, and not in use.
    free: Vec<Vec<u8>>,
    /// How many may still be allocated.
    unallocated: usize,
}

/// A block. It is empty at first and never grows beyond its size; a drop returns it to its pool.
pub(crate) struct Block {
    bytes: Vec<u8>,
    from: Blocks,
}

impl Blocks {
    /// At most `count` blocks of `bytes` bytes. A block is allocated at its first use.
    pub(crate) fn new(count: usize, bytes: usize) -> Blocks {
        let state = PoolState { free: Vec::new(), unallocated: count };
        Blocks { bytes, state: Arc::new(Mutex::new(state)) }
    }

    /// An empty block; `None` when all are in use.
    pub(crate) fn take(&self) -> Option<Block> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match state.free.pop() {
            Some(bytes) => bytes,
            None => {
                state.unallocated = state.unallocated.checked_sub(1)?;
                Vec::with_capacity(self.bytes)
            }
        };
        drop(state);
        Some(Block { bytes, from: self.clone() })
    }
}

impl Block {
    /// How many more bytes fit.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Adds as many of these bytes as fit, and returns their number.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let many = bytes.len().min(self.remaining());
        self.bytes.extend_from_slice(&bytes[..many]);
        many
    }

    /// Keeps the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.from.state.lock().unwrap_or_else(PoisonError::into_inner).free.push(bytes);
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_blocks_is_limited_and_each_comes_back_empty() {
        let blocks = Blocks::new(2, 100);
        let (mut one, two) = (blocks.take().unwrap(), blocks.take().unwrap());
        assert!(blocks.take().is_none());
        let (memory, size) = (one.as_ptr(), one.remaining());
        assert_eq!(one.fill(&[7; 1_000]), size, "as much as fits");
        assert_eq!((one.remaining(), one.as_ptr()), (0, memory), "it does not grow");
        drop(one);
        let again = blocks.take().unwrap();
        assert!(again.is_empty() && size >= 100);
        assert_eq!(again.as_ptr(), memory, "memory that was touched is used before other");
        assert!(blocks.take().is_none());
        drop((again, two));
        assert!(blocks.take().is_some());
    }
}
