//! [`PinnedFilter`]: a filter as one thread holds it, with what a question needs copied beside.

use std::sync::Arc;

use super::bits::{ProbeFn, Prober};
use crate::filter::Filter;

/// A filter as one thread holds it: `owner` keeps it alive, and beside it lies a copy of what a question
/// needs, so that one finds everything in one place and decides nothing. Before there is a filter, the
/// answer is the same for all.
pub struct PinnedFilter<O> {
    one: ProbeFn,
    asked: Prober,
    /// Keeps the memory that `asked` points into.
    owner: Option<Arc<O>>,
}

// SAFETY: the pointer leads into memory that goes with it, kept by `owner`, and is only read.
unsafe impl<O: Send + Sync> Send for PinnedFilter<O> {}
// SAFETY: as above; nothing here changes while it is shared.
unsafe impl<O: Send + Sync> Sync for PinnedFilter<O> {}

impl<O> PinnedFilter<O> {
    /// Holds the `filter` of `owner`.
    pub fn of(owner: Arc<O>, filter: impl FnOnce(&O) -> &Filter) -> PinnedFilter<O> {
        let bits = &filter(&owner).bits;
        PinnedFilter { one: bits.one, asked: bits.asked, owner: Some(owner) }
    }

    /// Holds none yet, and answers `meanwhile`.
    pub fn none(meanwhile: bool) -> PinnedFilter<O> {
        let one = if meanwhile { yes } else { no };
        PinnedFilter { one, asked: Prober::nothing(), owner: None }
    }

    /// What keeps the filter alive, unless there is none yet.
    #[inline]
    pub fn owner(&self) -> Option<&O> {
        self.owner.as_deref()
    }

    /// What [`Filter::contains`] says, for one pointer and one comparison less.
    #[inline(always)]
    pub fn contains(&self, id: &[u8]) -> bool {
        // SAFETY: `one` is `yes` or `no`, which look at nothing, or came from a filter's kernel, which
        // may run here, with an `asked` whose memory `owner` keeps.
        unsafe { self.asked.ask(self.one, id) }
    }
}

fn yes(_: &Prober, _: &[u8]) -> bool {
    true
}

fn no(_: &Prober, _: &[u8]) -> bool {
    false
}
