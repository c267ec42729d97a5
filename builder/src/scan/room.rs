//! [`Room`]: how much memory a scan takes beside its sinks. A thread waits for its share before it unpacks
//! anything, and a footer before it is fetched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::Column;

/// How much memory a scan may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// Bytes of compressed column chunks. Large ones come in pieces, two for each thread, or fewer where that
    /// would leave less than 4 MiB to each; a page or dictionary that is larger is there alone.
    pub in_flight: u32,
    /// Bytes that all threads together have unpacked.
    pub unpacked: u64,
    /// Bytes of footers, which are all read before any column is; what is known from them stays.
    pub footers: u64,
}

/// What the store's client collects, and what that is put together to.
const COPIES: u64 = 2;

/// What is known of a column: its schema, twice.
const BYTES_A_COLUMN: u64 = 8 << 10;

/// A day's files have one schema, or a few.
const MAX_SCHEMAS: usize = 16;

/// [`Room::footers`], shared out: a half of it for their bytes, a quarter each for schemas, one after the
/// other, and for what stays.
pub(super) struct Footers {
    all: u32,
    fetching: Arc<Semaphore>,
    schemas: Unpacked,
    kept: AtomicU64,
    columns: Mutex<Vec<Arc<Column>>>,
}

impl Footers {
    pub(super) fn new(bytes: u64) -> Footers {
        let all = u32::try_from(bytes / 2).unwrap_or(u32::MAX);
        Footers {
            all,
            fetching: Arc::new(Semaphore::new(all as usize)),
            schemas: Unpacked::new(bytes / 4),
            kept: AtomicU64::new(0),
            columns: Mutex::default(),
        }
    }

    /// The same column of another file, if there was one: what stays of a million files is their chunks.
    pub(super) fn same(&self, column: Column) -> (Arc<Column>, u64) {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = columns.iter().find(|known| known.is_like(&column)) {
            return (Arc::clone(same), 0);
        }
        let column = Arc::new(column);
        if columns.len() < MAX_SCHEMAS {
            columns.push(Arc::clone(&column));
        }
        (column, BYTES_A_COLUMN)
    }

    /// Waits until there is room for a footer; one that is larger than all of it is there alone.
    pub(super) async fn fetch(&self, bytes: u64) -> OwnedSemaphorePermit {
        let share = u32::try_from(COPIES * bytes).unwrap_or(u32::MAX).min(self.all);
        let share = Arc::clone(&self.fetching).acquire_many_owned(share).await;
        share.expect("nobody closes this semaphore")
    }

    /// Waits until there is room for a schema; nothing when there will never be.
    pub(super) fn schema(&self, bytes: u64) -> Option<Share<'_>> {
        self.schemas.take(bytes)
    }

    /// The most that a schema may take.
    pub(super) fn schemas(&self) -> u64 {
        self.schemas.all()
    }

    /// Counts what stays of a file.
    ///
    /// # Errors
    /// The limit, when all files together pass it.
    pub(super) fn keep(&self, bytes: u64) -> Result<(), u64> {
        let limit = self.schemas();
        let kept = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > limit { Err(limit) } else { Ok(()) }
    }
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
