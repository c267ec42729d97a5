//! [`Lanes`]: what a shared handle lends a thread for one question.
//!
//! A thread takes its lane by one locked instruction and leaves it by a plain store. To take hold of the
//! current generation for each question, and to count beside others, took four. Nobody waits for a lane: a
//! thread that finds its own taken asks beside it. It is taken when another thread has the same one, by the
//! poller for a moment in a swap and before the guard judges, and by the thread's own question if that asks
//! another.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::tally::Tally;
use super::{Holding, Slot};
use crate::sample::{Gaps, Sample, Staged};

/// More than the threads that a bidder asks from: each that ever asked has taken a number. A power of two.
const LANES: usize = 64;

/// All lanes of one filter.
pub(super) struct Lanes([Lane; LANES]);

/// On cache lines of its own, so that threads do not meet.
#[repr(align(128))]
struct Lane {
    /// Only ever tried.
    inside: SpinMutex<Inside>,
    /// Written by whoever has taken the lane.
    tally: Tally,
}

/// What only whoever has taken the lane may touch.
pub(super) struct Inside {
    pub(super) holding: Holding,
    /// Which questions are sampled.
    pub(super) gaps: Gaps,
    /// Questions on their way to the sample: to lock it and to look at the clock for each of them took six
    /// nanoseconds, shared out among all 128 of which one is sampled.
    pub(super) staged: Staged,
}

/// A lane, taken until dropped.
pub(super) struct Taken<'a> {
    pub(super) inside: SpinMutexGuard<'a, Inside>,
    tally: &'a Tally,
}

impl Lanes {
    pub(super) fn new(meanwhile: bool, is_sampled: bool) -> Lanes {
        let lane = |_| {
            let (holding, gaps) = (Holding::none(meanwhile), Gaps::new(is_sampled));
            let inside = Inside { holding, gaps, staged: Staged::new() };
            Lane { inside: SpinMutex::new(inside), tally: Tally::default() }
        };
        Lanes(std::array::from_fn(lane))
    }

    /// The calling thread's lane, with the generation that answers now, unless it is taken.
    #[inline(always)]
    pub(super) fn take(&self, slot: &Slot) -> Option<Taken<'_>> {
        let Lane { inside, tally } = &self.0[number_of_this_thread(slot) % LANES];
        let mut inside = inside.try_lock()?;
        inside.holding.follow(slot);
        Some(Taken { inside, tally })
    }

    /// Lets go of older generations than the current one; a lane that is taken does so with its next
    /// question, or when it is told again.
    pub(super) fn catch_up(&self, slot: &Slot) {
        self.idle().for_each(|mut inside| inside.holding.follow(slot));
    }

    /// Hands over the questions that wait here to be sampled; not those of a lane that is taken. A full sample
    /// takes few of them, those of the first lanes.
    pub(super) fn hand_over(&self, sample: &Sample) {
        self.idle().for_each(|mut inside| inside.staged.hand_over(sample));
    }

    /// The lanes that nobody asks through now, each taken for its turn.
    fn idle(&self) -> impl Iterator<Item = SpinMutexGuard<'_, Inside>> {
        self.0.iter().filter_map(|lane| lane.inside.try_lock())
    }

    pub(super) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.0.iter().map(|lane| &lane.tally)
    }
}

impl Taken<'_> {
    /// How many were asked through this lane before.
    #[inline(always)]
    pub(super) fn asked(&self) -> u64 {
        self.tally.asked()
    }

    /// Counts, and leaves the lane.
    #[inline(always)]
    pub(super) fn leave(self, before: u64, asked: u64, seen: u64) {
        self.tally.add_alone(before, asked, seen);
    }
}

/// Threads are numbered as they come.
#[inline(always)]
fn number_of_this_thread(slot: &Slot) -> usize {
    const NONE: usize = usize::MAX;
    // Without a destructor or a first value to compute, which would be asked for each time.
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(NONE) });

    #[cold]
    fn next(slot: &Slot) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        // What arc-swap allocates for a thread's first look comes now, and not in a question after a swap.
        drop(slot.current.load());
        number
    }

    match NUMBER.get() {
        NONE => next(slot),
        number => number,
    }
}
