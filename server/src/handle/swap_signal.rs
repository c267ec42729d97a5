//! How a reader learns of a swap: [`SwapCount`], which a swap raises, and [`Due`], through which it
//! makes the reader look at the epoch. `orderings` tests both in every order.

use std::sync::atomic::{AtomicU64, Ordering};

use super::atomic::Atomic;

/// The number of swaps so far. A reader or a thread slot compares it with the epoch of the
/// generation that it keeps.
pub(super) struct SwapCount<A = AtomicU64>(A);

impl<A: Atomic> SwapCount<A> {
    pub(super) fn new() -> SwapCount<A> {
        SwapCount(A::new(0))
    }

    /// Who sees an epoch finds its generation, or a newer one.
    #[inline(always)]
    pub(super) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether no swap has come since this epoch that could have changed anything the caller has
    /// read. For use after a lookup in the live IDs, which a swap changes once it has raised the
    /// epoch.
    #[cfg(any(feature = "live", test))]
    pub(super) fn is_still(&self, epoch: u64) -> bool {
        // Between the lookup and the load: without it, the processor may load the epoch first.
        A::fence_acquire();
        self.0.load(Ordering::Relaxed) == epoch
    }

    /// After the new generation is in place.
    pub(super) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// The number of single lookups before the next one at which a reader samples, or follows a swap.
pub(super) struct Due<A = AtomicU64>(A);

impl<A: Atomic> Default for Due<A> {
    fn default() -> Due<A> {
        Due(A::new(0))
    }
}

impl<A: Atomic> Due<A> {
    /// Relaxed: [`Due::set`] acquires what the signal releases.
    #[inline(always)]
    pub(super) fn is_reached(&self, lookups: u64) -> bool {
        lookups >= self.0.load(Ordering::Relaxed)
    }

    /// Makes the reader's next single lookup look at the epoch, which is raised already.
    pub(super) fn signal(&self) {
        // A store would do; loom lets one come in the middle of the reader's swap.
        self.0.swap(0, Ordering::Release);
    }

    /// By the reader, before it looks at the epoch. No swap is missed: a signal that this
    /// overwrites is acquired by it, so that its epoch is read then; a later signal stays.
    pub(super) fn set(&self, next: u64) {
        self.0.swap(next, Ordering::AcqRel);
    }
}
