//! [`Overlay`]: what lies over a filter and may change its answers. It never sees an ID, only hashes.

/// What lies over a filter. It is looked up in the same pass, so that the cache misses of both overlap.
pub trait Overlay {
    /// Whether it changes any answer.
    const CHANGES_ANSWERS: bool;

    /// Fetches what [`Overlay::may_change`] will read.
    fn prefetch(&self, hash: u64);

    /// Whether [`Overlay::answer`] may differ from the filter's answer for the ID with this hash. If it may, what it
    /// will read is fetched.
    fn may_change(&self, hash: u64) -> bool;

    /// The answer for the ID with this hash, for which the filter answers `hit`.
    fn answer(&self, hash: u64, hit: bool) -> bool;
}

/// Nothing.
impl Overlay for () {
    const CHANGES_ANSWERS: bool = false;

    #[inline(always)]
    fn prefetch(&self, _: u64) {}

    #[inline(always)]
    fn may_change(&self, _: u64) -> bool {
        false
    }

    #[inline(always)]
    fn answer(&self, _: u64, hit: bool) -> bool {
        hit
    }
}
