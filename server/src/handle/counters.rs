//! The number of lookups, and the number of hits among them: [`LookupCounters`], and
//! [`SingleCounters`] for the single lookups of a reader.

use std::sync::atomic::{AtomicU64, Ordering};

use super::atomic::{Atomic, AtomicByte};

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

/// The counters of a reader's single lookups, on a cache line of its own.
///
/// A hit is added to a byte. That takes one instruction less than a number of 64 bits, which a hit
/// would have to be extended to. Target: one lookup at a time at least 10 × as fast as Guava's
/// (decision 20).
#[repr(align(128))]
pub(super) struct SingleCounters<A: Atomic = AtomicU64> {
    lookups: A,
    /// The number of hits, modulo 256.
    low_hits: A::Byte,
    /// The number of hits when the owner called [`SingleCounters::carry`].
    carried_hits: A,
}

impl<A: Atomic> Default for SingleCounters<A> {
    fn default() -> SingleCounters<A> {
        let (lookups, carried_hits) = (A::new(0), A::new(0));
        SingleCounters { lookups, low_hits: A::Byte::new(0), carried_hits }
    }
}

impl<A: Atomic> SingleCounters<A> {
    /// After as many lookups as a byte can count, all hits.
    #[cfg(test)]
    pub(super) fn about_to_carry() -> SingleCounters<A> {
        let (lookups, carried_hits) = (A::new(Self::MAX_UNCARRIED), A::new(0));
        SingleCounters { lookups, low_hits: A::Byte::new(u8::MAX), carried_hits }
    }

    /// The most lookups from one [`SingleCounters::carry`] to the next.
    pub(super) const MAX_UNCARRIED: u64 = u8::MAX as u64;

    /// The number of lookups so far.
    #[inline(always)]
    pub(super) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Adds a lookup as the only writer, who knows the number of lookups `before`. Neither address
    /// depends on `hit`, which may still be on its way from memory: so nothing waits for it.
    #[inline(always)]
    pub(super) fn add_exclusive(&self, before: u64, hit: bool) {
        let low_hits = self.low_hits.load(Ordering::Relaxed).wrapping_add(u8::from(hit));
        // Released, so that `hits` finds the carries before it.
        self.low_hits.store(low_hits, Ordering::Release);
        self.lookups.store(before + 1, Ordering::Release);
    }

    /// By the only writer, at least once in [`SingleCounters::MAX_UNCARRIED`] lookups.
    pub(super) fn carry(&self) {
        self.carried_hits.store(self.hits(), Ordering::Release);
    }

    /// The number of hits. Repeats while the owner carries: once in many lookups.
    fn hits(&self) -> u64 {
        loop {
            let carried = self.carried_hits.load(Ordering::Acquire);
            let low = self.low_hits.load(Ordering::Acquire);
            // Otherwise `low` may belong to a later carry, and more than 255 hits lie between them.
            if self.carried_hits.load(Ordering::Relaxed) == carried {
                return carried + u64::from(low.wrapping_sub(carried as u8));
            }
        }
    }

    /// Hits and misses. A count of misses is never too high.
    pub(super) fn read(&self) -> (u64, u64) {
        // In this order: the hits of all these lookups are counted by now.
        let lookups = self.lookups.load(Ordering::Acquire);
        let hits = self.hits();
        (hits, lookups.saturating_sub(hits))
    }

    /// [`SingleCounters::read`], and sets all to 0.
    pub(super) fn take(&self) -> (u64, u64) {
        let counted = self.read();
        self.lookups.store(0, Ordering::Relaxed);
        self.low_hits.store(0, Ordering::Relaxed);
        self.carried_hits.store(0, Ordering::Relaxed);
        counted
    }
}
