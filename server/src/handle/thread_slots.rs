//! [`ThreadSlots`]: what a shared handle lends to a thread for one lookup.
//!
//! A thread locks its slot with one locked instruction and unlocks it with a plain store. Without
//! slots a lookup would keep the current generation and count in shared counters, which takes four
//! locked instructions. Nobody waits for a slot: a thread that finds its slot locked does the
//! lookup without one. A slot is locked when another thread has the same slot, for a moment by the
//! poller during a swap and before the guard judges, and by the thread's own lookup if that makes
//! another.
//!
//! Target: a lookup by a shared handle in at most 2 × the bare filter (decision 20).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::counters::LookupCounters;
use super::current::{Current, KeptGeneration};
use crate::guard::sample::{Intervals, Sample, SampleBuffer};

/// More than the threads of a bidder: each thread that ever made a lookup has a number. A power of
/// two.
const THREAD_SLOTS: usize = 64;

/// All slots of one filter.
pub(super) struct ThreadSlots([ThreadSlot; THREAD_SLOTS]);

/// On cache lines of its own, so that threads do not share one.
#[repr(align(128))]
struct ThreadSlot {
    /// Only `try_lock` is used.
    state: SpinMutex<SlotState>,
    /// Written by the thread that has locked the slot.
    counters: LookupCounters,
}

/// What only the thread that has locked the slot may touch.
pub(super) struct SlotState {
    pub(super) kept: KeptGeneration,
    /// Which lookups are sampled.
    pub(super) intervals: Intervals,
    /// Sampled IDs on their way to the sample: its lock and its clock cost too much for each of
    /// them.
    pub(super) buffer: SampleBuffer,
}

/// A slot, locked until this is dropped.
pub(super) struct SlotGuard<'a> {
    pub(super) state: SpinMutexGuard<'a, SlotState>,
    counters: &'a LookupCounters,
}

impl ThreadSlots {
    pub(super) fn new(answer_until_loaded: bool, is_sampled: bool) -> ThreadSlots {
        let slot = |_| {
            let kept = KeptGeneration::none(answer_until_loaded);
            let (intervals, buffer) = (Intervals::new(is_sampled), SampleBuffer::new());
            let state = SpinMutex::new(SlotState { kept, intervals, buffer });
            ThreadSlot { state, counters: LookupCounters::default() }
        };
        ThreadSlots(std::array::from_fn(slot))
    }

    /// Locks the calling thread's slot, with the current generation in it, unless it is locked.
    #[inline(always)]
    pub(super) fn take(&self, current: &Current) -> Option<SlotGuard<'_>> {
        let ThreadSlot { state, counters } = &self.0[number_of_this_thread(current) % THREAD_SLOTS];
        let mut state = state.try_lock()?;
        state.kept.update(current);
        Some(SlotGuard { state, counters })
    }

    /// Drops older generations from all slots that are not locked. A locked one drops its own at
    /// its next lookup, or at the next call of this.
    pub(super) fn refresh_idle(&self, current: &Current) {
        self.idle().for_each(|mut state| state.kept.update(current));
    }

    /// Moves the buffered IDs of all slots that are not locked to the sample. A full sample takes
    /// few of them, those of the first slots.
    pub(super) fn flush(&self, sample: &Sample) {
        self.idle().for_each(|mut state| state.buffer.flush(sample));
    }

    /// The slots that no thread uses now, each locked while the caller has it.
    fn idle(&self) -> impl Iterator<Item = SpinMutexGuard<'_, SlotState>> {
        self.0.iter().filter_map(|slot| slot.state.try_lock())
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &LookupCounters> {
        self.0.iter().map(|slot| &slot.counters)
    }
}

impl SlotGuard<'_> {
    /// The number of lookups through this slot so far.
    #[inline(always)]
    pub(super) fn lookups(&self) -> u64 {
        self.counters.lookups()
    }

    /// Counts, and unlocks the slot.
    #[inline(always)]
    pub(super) fn leave(self, before: u64, lookups: u64, hits: u64) {
        self.counters.add_exclusive(before, lookups, hits);
    }
}

/// Threads get numbers in the order of their first lookups.
#[inline(always)]
fn number_of_this_thread(current: &Current) -> usize {
    const NONE: usize = usize::MAX;
    // Without a destructor and with a constant as its first value, so that a read tests neither.
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(NONE) });

    #[cold]
    fn next(current: &Current) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        // arc-swap allocates at a thread's first load: now, and not in a lookup after a swap.
        drop(current.generation.load());
        number
    }

    match NUMBER.get() {
        NONE => next(current),
        number => number,
    }
}
