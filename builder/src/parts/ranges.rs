//! [`Ranges`]: hashes → ranges.

use bloomsday_common::hash::Xxh3;

/// The most ranges of a build: at 128 MiB of hashes each, two trillion rows.
pub const MAX_RANGES: u32 = 1 << 17;
/// How many rows a range should have at most: 128 MiB of hashes if each has another ID.
const ROWS_PER_RANGE: u64 = 1 << 24;

/// Divides all hashes into ranges of the same size.
///
/// ```
/// use bloomsday_builder::parts::Ranges;
/// use bloomsday_common::hash::Xxh3;
///
/// let ranges = Ranges::for_rows(10_000_000_000, 1);
/// assert_eq!(ranges.count(), 597);
/// assert_eq!(ranges.of(Xxh3(u64::MAX)), 596);
/// let (first, last) = ranges.hashes(17);
/// assert!(ranges.of(Xxh3(first)) == 17 && ranges.of(Xxh3(last)) == 17);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    count: u32,
}

impl Ranges {
    /// So many ranges; at least one, and at most [`MAX_RANGES`].
    pub fn new(count: u32) -> Ranges {
        Ranges { count: count.clamp(1, MAX_RANGES) }
    }

    /// As many as about `rows` rows need, but not fewer than `least`.
    pub fn for_rows(rows: u64, least: u32) -> Ranges {
        let needed = rows.div_ceil(ROWS_PER_RANGE);
        Ranges::new(u32::try_from(needed).unwrap_or(MAX_RANGES).max(least))
    }

    /// The number of ranges.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The range of a hash: fast-range, so a larger hash never belongs to an earlier range.
    #[inline]
    pub fn of(self, hash: Xxh3) -> u32 {
        ((u128::from(hash.0) * u128::from(self.count)) >> u64::BITS) as u32
    }

    /// The first and the last hash of a range.
    pub fn hashes(self, range: u32) -> (u64, u64) {
        let start = |range: u32| (u128::from(range) << u64::BITS).div_ceil(u128::from(self.count));
        // The end of the last range is one more than the largest hash.
        (start(range) as u64, (start(range + 1) - 1) as u64)
    }
}
