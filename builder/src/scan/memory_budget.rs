//! [`ScanBudget`]: how much memory a scan takes besides its sinks. A thread waits for a permit
//! before it unpacks pages, and a footer waits for one before it is fetched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::Column;

/// How much memory a scan may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanBudget {
    /// The bytes of compressed column chunks in memory. The scan splits large chunks into pieces:
    /// two for each thread, or fewer if a piece would be smaller than 4 MiB. A page or a dictionary
    /// that exceeds this number is in memory alone.
    pub in_flight: u32,
    /// The bytes that all threads together may unpack at the same time.
    pub unpacked: u64,
    /// The bytes for footers. The scan reads all footers first and keeps what it needs of them.
    pub footers: u64,
}

/// A footer is in memory twice: as the store's client collects it, and in one piece.
const FOOTER_COPIES: u64 = 2;

/// What the scan keeps of a column: its schema, in two forms.
const BYTES_PER_COLUMN: u64 = 8 << 10;

/// The most different schemas that files share. The files of a day have one, or a few.
const MAX_SHARED_SCHEMAS: usize = 16;

/// [`ScanBudget::footers`]: half of it for the bytes of footers, a quarter for schemas, which are
/// parsed one after the other, and a quarter for what the scan keeps.
pub(super) struct FooterBudget {
    permits: u32,
    fetching: Arc<Semaphore>,
    schemas: UnpackBudget,
    kept_bytes: AtomicU64,
    columns: Mutex<Vec<Arc<Column>>>,
}

impl FooterBudget {
    pub(super) fn new(bytes: u64) -> FooterBudget {
        let permits = u32::try_from(bytes / 2).unwrap_or(u32::MAX);
        FooterBudget {
            permits,
            fetching: Arc::new(Semaphore::new(permits as usize)),
            schemas: UnpackBudget::new(bytes / 4),
            kept_bytes: AtomicU64::new(0),
            columns: Mutex::default(),
        }
    }

    /// Returns the equal column of another file if there is one, and the bytes that this one adds.
    /// So a million files keep their chunks, but only a few schemas.
    pub(super) fn share_column(&self, column: Column) -> (Arc<Column>, u64) {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = columns.iter().find(|known| known.is_like(&column)) {
            return (Arc::clone(same), 0);
        }
        let column = Arc::new(column);
        if columns.len() < MAX_SHARED_SCHEMAS {
            columns.push(Arc::clone(&column));
        }
        (column, BYTES_PER_COLUMN)
    }

    /// Waits for the permit to fetch a footer. A footer that exceeds the budget is in memory alone.
    pub(super) async fn acquire_fetch(&self, bytes: u64) -> OwnedSemaphorePermit {
        let permits = u32::try_from(FOOTER_COPIES * bytes).unwrap_or(u32::MAX).min(self.permits);
        let permit = Arc::clone(&self.fetching).acquire_many_owned(permits).await;
        permit.expect("nobody closes this semaphore")
    }

    /// Waits for the permit to parse a schema. `None` if the schema exceeds the budget.
    pub(super) fn acquire_schema(&self, bytes: u64) -> Option<Permit<'_>> {
        self.schemas.acquire(bytes)
    }

    /// The most bytes that a schema may take.
    pub(super) fn max_schema_bytes(&self) -> u64 {
        self.schemas.total()
    }

    /// Counts the bytes that the scan keeps of a file.
    ///
    /// # Errors
    /// All files together exceed the limit.
    pub(super) fn keep(&self, bytes: u64) -> Result<(), Exceeded> {
        let limit = self.schemas.total();
        let kept = self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > limit { Err(Exceeded { kept, limit }) } else { Ok(()) }
    }
}

/// What a scan would keep of all files so far, and the limit for that.
pub(super) struct Exceeded {
    pub(super) kept: u64,
    pub(super) limit: u64,
}

/// [`ScanBudget::unpacked`]: a semaphore for threads, with 64-bit permits.
pub(super) struct UnpackBudget {
    total: u64,
    available: Mutex<u64>,
    released: Condvar,
}

/// A number of bytes of an [`UnpackBudget`], which returns to it when the permit is dropped.
pub(super) struct Permit<'a> {
    budget: &'a UnpackBudget,
    bytes: u64,
}

impl UnpackBudget {
    pub(super) fn new(bytes: u64) -> UnpackBudget {
        UnpackBudget { total: bytes, available: Mutex::new(bytes), released: Condvar::new() }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Waits until `bytes` are available. `None` if that exceeds the complete budget.
    pub(super) fn acquire(&self, bytes: u64) -> Option<Permit<'_>> {
        if bytes > self.total {
            return None;
        }
        let available = self.available.lock().expect(NO_PANIC);
        let too_few = |available: &mut u64| *available < bytes;
        let mut available = self.released.wait_while(available, too_few).expect(NO_PANIC);
        *available -= bytes;
        Some(Permit { budget: self, bytes })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.budget.available.lock().expect(NO_PANIC) += self.bytes;
        self.budget.released.notify_all();
    }
}

const NO_PANIC: &str = "adding and subtracting do not panic";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn all_permits_together_never_exceed_the_budget() {
        let (all, taken) = (UnpackBudget::new(100), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (all, taken) = (&all, &taken);
                scope.spawn(move || {
                    for round in 0..1_000 {
                        let bytes = 1 + (thread * 31 + round * 17) % 100;
                        let _permit = all.acquire(bytes).expect("the budget has as many");
                        let now = taken.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(now <= 100, "{now}");
                        taken.fetch_sub(bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(*all.available.lock().unwrap(), 100);
        assert!(all.acquire(101).is_none());
    }
}
