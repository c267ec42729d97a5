//! [`LookupCounters`]: the number of lookups, and the number of hits among them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::atomic::Atomic;

/// The counters of one owner, on a cache line of its own. `orderings` tests them in every order.
#[repr(align(128))]
pub(super) struct LookupCounters<A = AtomicU64> {
    lookups: A,
    hits: A,
}

impl<A: Atomic> Default for LookupCounters<A> {
    fn default() -> LookupCounters<A> {
        LookupCounters { lookups: A::new(0), hits: A::new(0) }
    }
}

impl<A: Atomic> LookupCounters<A> {
    /// The number of lookups so far.
    #[inline(always)]
    pub(super) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Adds as the only writer, who knows the number of lookups `before`: plain loads and stores,
    /// no locked instruction. Neither address depends on the result of the lookup, which may still
    /// be on its way from memory: so nothing waits for it.
    #[inline(always)]
    pub(super) fn add_exclusive(&self, before: u64, lookups: u64, hits: u64) {
        self.hits.store(self.hits.load(Ordering::Relaxed) + hits, Ordering::Relaxed);
        self.lookups.store(before + lookups, Ordering::Release);
    }

    /// Adds as one of several writers, and returns the number of lookups before.
    pub(super) fn add(&self, lookups: u64, hits: u64) -> u64 {
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.lookups.fetch_add(lookups, Ordering::Release)
    }

    /// Hits and misses. A count of misses is never too high.
    pub(super) fn read(&self) -> (u64, u64) {
        // In this order: the hits of all these lookups are counted by now.
        let lookups = self.lookups.load(Ordering::Acquire);
        let hits = self.hits.load(Ordering::Relaxed);
        (hits, lookups.saturating_sub(hits))
    }

    /// [`LookupCounters::read`], and sets both to 0.
    pub(super) fn take(&self) -> (u64, u64) {
        let counted = self.read();
        self.hits.store(0, Ordering::Relaxed);
        self.lookups.store(0, Ordering::Relaxed);
        counted
    }
}
