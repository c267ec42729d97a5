//! [`Budget`]: how many bytes all tables of a process may take.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much more than the limit a start may take, as a divisor of it, and in bytes: the shards of a
/// table grow in another order then than when they fitted.
const START_SHARE: u64 = 4;
const START_BYTES: u64 = 1 << 20;

/// A limit, and what is taken of it.
pub(crate) struct Budget {
    limit: u64,
    /// What may be taken beyond the limit.
    more: AtomicU64,
    taken: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget { limit, more: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// One for a start, which reads again what fitted before: until [`Budget::started`] a little
    /// more than the limit may be taken.
    pub(crate) fn starting(limit: u64) -> Budget {
        let more = limit / START_SHARE + START_BYTES;
        Budget { more: AtomicU64::new(more), ..Budget::new(limit) }
    }

    /// From now on no more than the limit is taken.
    pub(crate) fn started(&self) {
        self.more.store(0, Ordering::Relaxed);
    }

    /// Takes bytes; `false` when fewer are left, and then takes none.
    pub(crate) fn try_reserve(&self, bytes: u64) -> bool {
        let limit = self.limit.saturating_add(self.more.load(Ordering::Relaxed));
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Whether so many bytes can be taken now.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.taken().checked_add(bytes).is_some_and(|sum| sum <= self.limit)
    }

    /// Gives back what was taken.
    pub(crate) fn release(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes that are taken now.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}
