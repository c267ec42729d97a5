//! [`Spare`]: memory that one piece of a column no longer needs, for the next one.
//!
//! The first touch of new memory costs more than reading a cached file into it, and up to twenty times more
//! on a virtual machine whose host must find it first.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bloomsday_common::memory::Buffer;

/// Memory nobody needs now.
pub(super) struct Spare {
    buffers: Mutex<Vec<Buffer>>,
    most_bytes: usize,
}

impl Spare {
    /// None yet, and never more than `most_bytes`.
    pub(super) fn new(most_bytes: usize) -> Spare {
        Spare { buffers: Mutex::default(), most_bytes }
    }

    /// Lends so many bytes. What is in them is of no meaning.
    ///
    /// # Errors
    /// The system's, when there is none to spare and it gives none.
    pub(super) fn lend(self: &Arc<Self>, bytes: usize) -> io::Result<Lent> {
        let spare = {
            let mut all = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let fitting = all.iter().position(|spare| spare.fits(bytes));
            // What does not fit makes room for what will.
            fitting.or(all.len().checked_sub(1)).map(|at| all.swap_remove(at))
        };
        let memory = spare.map_or_else(|| Buffer::zeroed(bytes), |spare| spare.reuse(bytes))?;
        Ok(Lent { memory: Some(memory), to: Arc::clone(self) })
    }
}

/// Memory on loan, until dropped.
pub(super) struct Lent {
    /// There until then.
    memory: Option<Buffer>,
    to: Arc<Spare>,
}

const UNTIL_DROPPED: &str = "a loan has its memory until it is dropped";

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.as_ref().expect(UNTIL_DROPPED)
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().expect(UNTIL_DROPPED)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut all = self.to.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.memory.take());
        // The largest last, and gone first: one piece beyond all others leaves nothing that waits for another.
        all.sort_unstable_by_key(Buffer::capacity);
        while all.iter().map(Buffer::capacity).sum::<usize>() > self.to.most_bytes {
            all.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_from_one_to_the_next() {
        let spare = Arc::new(Spare::new(100 << 20));
        let first = spare.lend(3 << 20).unwrap();
        let place = first.as_ptr();
        let second = spare.lend(100).unwrap();
        drop((second, first));
        let again = spare.lend((3 << 20) - 7).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (place, (3 << 20) - 7), "the one that fits");
        drop(again);
        // Too much for either: one of them goes.
        let large = spare.lend(64 << 20).unwrap();
        assert_eq!(large.len(), 64 << 20);
        assert_eq!(spare.buffers.lock().unwrap().len(), 1);
        drop(large);
        assert_eq!(spare.buffers.lock().unwrap().len(), 2);
    }

    #[test]
    fn what_is_spare_has_a_limit_in_bytes_whatever_was_lent() {
        let spare = Arc::new(Spare::new(8 << 20));
        for sizes in [vec![1 << 20; 16], vec![100 << 20], vec![3 << 20; 5], vec![1 << 20; 3]] {
            let lent: Vec<_> = sizes.iter().map(|bytes| spare.lend(*bytes).unwrap()).collect();
            drop(lent);
            let bytes: usize = spare.buffers.lock().unwrap().iter().map(Buffer::capacity).sum();
            assert!(bytes <= 8 << 20, "{bytes} bytes wait for nobody after {sizes:?}");
            assert!(bytes > 0 || sizes.len() == 1, "nothing is kept after {sizes:?}");
        }
    }
}
