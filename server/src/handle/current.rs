//! [`Current`]: the generation that lookups use now; [`KeptGeneration`]: one that a thread keeps.

use arc_swap::ArcSwapOption;
use bloomsday_common::filter::KeptFilter;

use super::swap_signal::SwapCount;
use crate::generation::Generation;

/// The generation that lookups use, and the number of the swap that put it there.
pub(super) struct Current {
    pub(super) generation: ArcSwapOption<Generation>,
    /// Raised after each swap.
    pub(super) epoch: SwapCount,
    /// What a lookup returns before the first load.
    pub(super) answer_until_loaded: bool,
}

impl Current {
    pub(super) fn new(answer_until_loaded: bool) -> Current {
        let (generation, epoch) = (ArcSwapOption::empty(), SwapCount::new());
        Current { generation, epoch, answer_until_loaded }
    }

    /// The current generation, kept until this is dropped.
    pub(super) fn keep(&self) -> KeptGeneration {
        let mut kept = KeptGeneration::none(self.answer_until_loaded);
        kept.refresh(self);
        kept
    }

    /// The answers of a batch before the first load. Returns the number of hits.
    pub(super) fn fill_until_loaded(&self, answers: &mut [bool]) -> usize {
        answers.fill(self.answer_until_loaded);
        if self.answer_until_loaded { answers.len() } else { 0 }
    }
}

/// A generation that a reader, a thread slot or a request keeps.
pub(crate) struct KeptGeneration {
    pub(super) filter: KeptFilter<Generation>,
    /// The epoch that it came with.
    pub(super) epoch: u64,
}

impl KeptGeneration {
    /// None yet.
    pub(super) fn none(answer_until_loaded: bool) -> KeptGeneration {
        KeptGeneration { filter: KeptFilter::none(answer_until_loaded), epoch: 0 }
    }

    /// Whether there was a swap.
    #[inline(always)]
    pub(super) fn is_behind(&self, current: &Current) -> bool {
        current.epoch.load() != self.epoch
    }

    /// Keeps the current generation instead if there was a swap.
    #[inline(always)]
    pub(super) fn update(&mut self, current: &Current) {
        if self.is_behind(current) {
            self.refresh(current);
        }
    }

    #[cold]
    pub(super) fn refresh(&mut self, current: &Current) {
        // The epoch first: the next lookup then notices a swap that comes between these two lines.
        self.epoch = current.epoch.load();
        // The poller keeps the old generation, too, so this line never frees one.
        self.filter = match current.generation.load_full() {
            Some(generation) => KeptFilter::of(generation, |generation| &generation.filter),
            None => KeptFilter::none(current.answer_until_loaded),
        };
    }

    /// Keeps the current generation instead if there was a swap that the lookup just made may have
    /// met. Returns whether there was one.
    #[cfg(feature = "live")]
    #[inline(always)]
    pub(super) fn update_after_lookup(&mut self, current: &Current) -> bool {
        let was_swapped = !current.epoch.is_still(self.epoch);
        if was_swapped {
            self.refresh(current);
        }
        was_swapped
    }

    /// The generation, unless none was loaded.
    #[inline]
    pub(crate) fn generation(&self) -> Option<&Generation> {
        self.filter.owner()
    }
}
