//! [`Overlay`]: what lies over a filter and may change its answers. It never sees an ID, only
//! hashes.

/// What lies over a filter. It is looked up in the same pass, so that the cache misses of both
/// overlap.
pub trait Overlay {
    /// Whether it changes any answer.
    const CHANGES_ANSWERS: bool;

    /// What [`Overlay::may_change`] reads.
    type Word<'a>: Copy
    where
        Self: 'a;

    /// Fetches the word of the ID with this hash, and returns where it is.
    fn prefetch(&self, hash: u64) -> Self::Word<'_>;

    /// Whether [`Overlay::answer`] may differ from the filter's answer for the ID with this hash
    /// and its word.
    fn may_change(word: Self::Word<'_>, hash: u64) -> bool;

    /// Fetches what [`Overlay::answer`] reads.
    fn prefetch_answer(&self, hash: u64);

    /// The answer for the ID with this hash, for which the filter answers `hit`.
    fn answer(&self, hash: u64, hit: bool) -> bool;
}

/// Nothing.
impl Overlay for () {
    const CHANGES_ANSWERS: bool = false;

    type Word<'a> = ();

    #[inline(always)]
    fn prefetch(&self, _: u64) {}

    #[inline(always)]
    fn may_change((): (), _: u64) -> bool {
        false
    }

    #[inline(always)]
    fn prefetch_answer(&self, _: u64) {}

    #[inline(always)]
    fn answer(&self, _: u64, hit: bool) -> bool {
        hit
    }
}
