//! [`Tally`]: how many questions were asked, and how many of them answered "yes".

use std::sync::atomic::{AtomicU64, Ordering};

/// What one owner counted. On a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Tally {
    asked: AtomicU64,
    seen: AtomicU64,
}

impl Tally {
    /// How many were asked before.
    #[inline(always)]
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Adds as the only writer, who knows how many were asked `before`: plain loads and stores, no locked
    /// instruction. Neither address depends on the answer, which is often still on its way from memory: so
    /// nothing waits for it.
    #[inline(always)]
    pub(super) fn add_alone(&self, before: u64, asked: u64, seen: u64) {
        self.seen.store(self.seen.load(Ordering::Relaxed) + seen, Ordering::Relaxed);
        self.asked.store(before + asked, Ordering::Release);
    }

    /// Adds beside others, and gives how many were asked before.
    pub(super) fn add(&self, asked: u64, seen: u64) -> u64 {
        self.seen.fetch_add(seen, Ordering::Relaxed);
        self.asked.fetch_add(asked, Ordering::Release)
    }

    /// Answered "yes", and "no": of those, never more than there were.
    pub(super) fn read(&self) -> (u64, u64) {
        // In this order: of all that were asked by then, it is known here which were answered "yes".
        let asked = self.asked.load(Ordering::Acquire);
        let seen = self.seen.load(Ordering::Relaxed);
        (seen, asked.saturating_sub(seen))
    }

    /// [`Tally::read`], and starts again at 0.
    pub(super) fn take(&self) -> (u64, u64) {
        let counted = self.read();
        self.seen.store(0, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        counted
    }
}
