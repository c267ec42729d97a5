//! [`Spare`]: memory that one column chunk no longer needs, for the next one.
//!
//! The first touch of new memory costs more than reading a cached file into it, and up to twenty times more
//! on a virtual machine whose host must find it first.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bloomsday_common::memory::Buffer;

/// Memory nobody needs now. There is never more than was lent at the same time.
#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<Buffer>>);

impl Spare {
    /// Lends so many bytes. What is in them is of no meaning.
    ///
    /// # Errors
    /// The system's, when there is none to spare and it gives none.
    pub(super) fn lend(self: &Arc<Self>, bytes: usize) -> io::Result<Lent> {
        let spare = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.to.0.lock().unwrap_or_else(PoisonError::into_inner).extend(self.memory.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_from_one_to_the_next_and_there_is_never_more_than_was_lent_at_once() {
        let spare = Arc::new(Spare::default());
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
        assert_eq!(spare.0.lock().unwrap().len(), 1);
        drop(large);
        assert_eq!(spare.0.lock().unwrap().len(), 2);
    }
}
