//! [`KeptFilter`]: a filter that one thread keeps alive, with a copy of what a lookup needs.

use std::fmt;
use std::sync::Arc;

use super::prober::{ProbeFn, Prober};
use crate::filter::Filter;

/// A filter that one thread keeps alive: `owner` owns the filter, and next to it lies a copy of
/// what a lookup needs. So a lookup finds everything in one place. Before there is a filter, every
/// lookup returns the same.
///
/// ```
/// use std::sync::Arc;
/// use bloomsday_common::filter::{FilterMut, KeptFilter, Layout, Shape};
/// use bloomsday_common::hash::{IdHash, Xxh3};
///
/// let mut filter = FilterMut::new(Shape::for_ids(Layout::Blocked, 10, 0.01)?)?;
/// filter.insert(Xxh3::of(b"0123456789abcdef0123456789abcdef"));
/// let owner = Arc::new(filter.freeze());
///
/// let kept = KeptFilter::of(owner, |filter| filter);
/// assert!(kept.contains(b"0123456789abcdef0123456789abcdef"));
/// assert!(!kept.contains(b""));
///
/// let loading = KeptFilter::<()>::none(true);
/// assert!(loading.contains(b"any ID"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeptFilter<O> {
    probe_fn: ProbeFn,
    prober: Prober,
    /// Keeps the memory that `prober` points into alive.
    owner: Option<Arc<O>>,
}

impl<O> fmt::Debug for KeptFilter<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_filter = self.owner.is_some();
        f.debug_struct("KeptFilter").field("has_filter", &has_filter).finish_non_exhaustive()
    }
}

// SAFETY: the raw pointer in `prober` is what keeps this from being `Send`. It points to memory
// that `owner` keeps alive (see `KeptFilter::of`) and that is only read, from any thread: `Filter`
// is `Sync`. The `Arc` may be sent because `O` is `Send` and `Sync`.
unsafe impl<O: Send + Sync> Send for KeptFilter<O> {}
// SAFETY: through `&KeptFilter` that memory is only read, and the only other thing to reach is
// `&O`, which is `Sync`.
unsafe impl<O: Send + Sync> Sync for KeptFilter<O> {}

impl<O> KeptFilter<O> {
    /// Keeps `owner`, for lookups in its `filter`.
    //
    // Why the filter that the closure returns lives as long as `owner`, although the closure is
    // safe code of anybody: `impl FnOnce(&O) -> &Filter` means `for<'a> FnOnce(&'a O) -> &'a
    // Filter`. It must return a filter that is valid for *every* lifetime for which `O` may be
    // borrowed, and it cannot know which one it was called with. So it would have to return the
    // same reference if the `O` were borrowed for as long as this `KeptFilter` exists: a filter
    // inside the `O`, a `'static` one, or one that outlives every lifetime named in `O`, which
    // bounds this value, too. A local filter that the closure captures by reference does not
    // compile.
    //
    // During that time the `O` is in fact only borrowed: our `Arc` keeps it from being dropped or
    // moved, and from `Arc::get_mut` and `Arc::try_unwrap`. Safe interior mutability (a `Mutex`, a
    // `RefCell`) cannot return a plain `&'a Filter`, exactly because that would outlive its guard.
    pub fn of(owner: Arc<O>, filter: impl FnOnce(&O) -> &Filter) -> KeptFilter<O> {
        let bits = &filter(&owner).bits;
        KeptFilter { probe_fn: bits.probe_fn, prober: bits.prober, owner: Some(owner) }
    }

    /// Keeps none yet: until there is a filter, every lookup returns `contains`.
    pub fn none(contains: bool) -> KeptFilter<O> {
        let probe_fn = if contains { always } else { never };
        KeptFilter { probe_fn, prober: Prober::none(), owner: None }
    }

    /// What keeps the filter alive, unless there is none yet.
    #[inline]
    pub fn owner(&self) -> Option<&O> {
        self.owner.as_deref()
    }

    /// What [`Filter::contains`] returns. Cost: one pointer and one comparison less.
    #[inline(always)]
    pub fn contains(&self, id: &[u8]) -> bool {
        // SAFETY: with an owner, `probe_fn` and `prober` were copied together from one
        // `FilterBits`, made from one kernel, and `owner` keeps its memory alive (see `of`).
        // Without one, `prober` is `Prober::none`, and `always` and `never` do not look at it.
        unsafe { self.prober.contains(self.probe_fn, id) }
    }
}

fn always(_: &Prober, _: &[u8]) -> bool {
    true
}

fn never(_: &Prober, _: &[u8]) -> bool {
    false
}
