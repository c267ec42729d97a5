//! [`Room`]: how much memory a scan takes beside its sinks. A thread waits for its share before it unpacks
//! anything.

use std::sync::{Condvar, Mutex};

/// How much memory a scan may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// Bytes of compressed column chunks. Large ones come in pieces, two for each thread, or fewer where that
    /// would leave less than 4 MiB to each; a page or dictionary that is larger is there alone.
    pub in_flight: u32,
    /// Bytes that all threads together have unpacked.
    pub unpacked: u64,
}

/// [`Room::unpacked`], shared out.
pub(super) struct Unpacked {
    all: u64,
    left: Mutex<u64>,
    freed: Condvar,
}

/// So many bytes of it, until dropped.
pub(super) struct Share<'a> {
    of: &'a Unpacked,
    bytes: u64,
}

impl Unpacked {
    pub(super) fn new(bytes: u64) -> Unpacked {
        Unpacked { all: bytes, left: Mutex::new(bytes), freed: Condvar::new() }
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// Waits until there is so much; nothing when there will never be.
    pub(super) fn take(&self, bytes: u64) -> Option<Share<'_>> {
        if bytes > self.all {
            return None;
        }
        let left = self.left.lock().expect(NO_PANIC);
        let mut left = self.freed.wait_while(left, |left| *left < bytes).expect(NO_PANIC);
        *left -= bytes;
        Some(Share { of: self, bytes })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.of.left.lock().expect(NO_PANIC) += self.bytes;
        self.of.freed.notify_all();
    }
}

const NO_PANIC: &str = "adding and subtracting do not panic";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn all_shares_together_are_never_more_than_there_is() {
        let (all, taken) = (Unpacked::new(100), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (all, taken) = (&all, &taken);
                scope.spawn(move || {
                    for round in 0..1_000 {
                        let bytes = 1 + (thread * 31 + round * 17) % 100;
                        let _share = all.take(bytes).expect("there is so much");
                        let now = taken.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(now <= 100, "{now}");
                        taken.fetch_sub(bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(*all.left.lock().unwrap(), 100);
        assert!(all.take(101).is_none());
    }
}
