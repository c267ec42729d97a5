//! Memory for the bodies of questions and for what is answered to them: blocks of one size, and over all
//! connections so many and no more.
//!
//! Each is used again as soon as it is given back, by whichever thread asks first, and none goes back to the
//! allocator, which keeps for each thread the pieces of buffers that grew on it: where 96 MiB of bodies and
//! answers were counted, a flood took 200 to 290.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Where blocks come from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Blocks {
    /// How many bytes each has.
    bytes: usize,
    kept: Arc<Mutex<Kept>>,
}

struct Kept {
    /// Made, and not in use.
    spare: Vec<Vec<u8>>,
    /// How many may still be made.
    unmade: usize,
}

/// A block, empty at first, which never grows beyond its size. It goes back when it is dropped.
pub(crate) struct Block {
    bytes: Vec<u8>,
    from: Blocks,
}

impl Blocks {
    /// At most `count` blocks of so many `bytes`. Memory is taken with a block's first use.
    pub(crate) fn new(count: usize, bytes: usize) -> Blocks {
        let kept = Kept { spare: Vec::new(), unmade: count };
        Blocks { bytes, kept: Arc::new(Mutex::new(kept)) }
    }

    /// An empty block; `None` when all are in use.
    pub(crate) fn take(&self) -> Option<Block> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match kept.spare.pop() {
            Some(bytes) => bytes,
            None => {
                kept.unmade = kept.unmade.checked_sub(1)?;
                Vec::with_capacity(self.bytes)
            }
        };
        drop(kept);
        Some(Block { bytes, from: self.clone() })
    }
}

impl Block {
    /// How many bytes more it holds.
    pub(crate) fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Adds the first of these bytes, as many as there is room for; how many that were.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let many = bytes.len().min(self.room());
        self.bytes.extend_from_slice(&bytes[..many]);
        many
    }

    /// Leaves the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.from.kept.lock().unwrap_or_else(PoisonError::into_inner).spare.push(bytes);
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
    fn there_are_so_many_blocks_and_each_comes_back_empty() {
        let blocks = Blocks::new(2, 100);
        let (mut one, two) = (blocks.take().unwrap(), blocks.take().unwrap());
        assert!(blocks.take().is_none());
        let (memory, size) = (one.as_ptr(), one.room());
        assert_eq!(one.fill(&[7; 1_000]), size, "as much as there is room for");
        assert_eq!((one.room(), one.as_ptr()), (0, memory), "it does not grow");
        drop(one);
        let again = blocks.take().unwrap();
        assert!(again.is_empty() && size >= 100);
        assert_eq!(again.as_ptr(), memory, "memory that was touched is used before other");
        assert!(blocks.take().is_none());
        drop((again, two));
        assert!(blocks.take().is_some());
    }
}
