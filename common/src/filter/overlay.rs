//! [`Overlay`]: what lies over a filter and may change its answers. It never sees an ID, only hashes.

/// What lies over a filter. It is looked up in the same pass, so that the cache misses of both overlap.
pub trait Overlay {
    /// Fetches what [`Overlay::answer`] will read.
    fn prefetch(&self, hash: u64);

    /// The answer for the ID with this hash, for which the filter answers `hit`. `None` when more memory
    /// has to be read for it, which is being fetched now: [`Overlay::answer_late`] answers later.
    fn answer(&self, hash: u64, hit: bool) -> Option<bool>;

    /// The answer that [`Overlay::answer`] did not give.
    fn answer_late(&self, hash: u64, hit: bool) -> bool;
}

/// Nothing.
impl Overlay for () {
    #[inline(always)]
    fn prefetch(&self, _: u64) {}

    #[inline(always)]
    fn answer(&self, _: u64, hit: bool) -> Option<bool> {
        Some(hit)
    }

    #[inline(always)]
    fn answer_late(&self, _: u64, hit: bool) -> bool {
        hit
    }
}
