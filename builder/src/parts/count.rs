//! [`Count`]: all packages of some ranges → the distinct hashes of each. No I/O, and no shape.

use std::collections::BTreeMap;

use bloomsday_common::hash::Xxh3;

use super::gather::Gathered;
use super::ranges::Ranges;
use crate::error::Error;
use crate::partition::sum_of;

/// The most hashes of one range that are in memory: 256 MiB. Duplicates are removed before more are
/// refused.
pub const MAX_RANGE_HASHES: usize = 32 << 20;
/// When a range first has this many hashes, its duplicates are removed.
const FIRST_COMPACTION: usize = 16 << 20;

/// Removes the duplicates of some ranges. Packages may come in any order.
#[derive(Debug)]
pub struct Count {
    ranges: Ranges,
    of_each: BTreeMap<u32, Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    hashes: Vec<Xxh3>,
    samples: Vec<u8>,
    numbers: Counted,
    /// Duplicates are removed at this number of hashes.
    compact_at: usize,
}

/// The numbers of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The number of distinct hashes.
    pub ids: u64,
    /// Their wrapping sum.
    pub sum: u64,
    /// How many hashes came in packages.
    pub received: u64,
    /// Their wrapping sum.
    pub received_sum: u64,
    /// The sums of what the packages say.
    pub gathered: Gathered,
}

impl Count {
    /// For a build with these ranges.
    pub fn new(ranges: Ranges) -> Count {
        Count { ranges, of_each: BTreeMap::new() }
    }

    /// Takes a package. `hashes` are numbers of eight bytes, little-endian.
    ///
    /// # Errors
    /// [`Error::Changed`]: a hash is not of this range. [`Error::RangeFull`]: too many distinct
    /// hashes.
    pub fn push(
        &mut self,
        range: u32,
        gathered: Option<Gathered>,
        hashes: &[u8],
        samples: &[u8],
    ) -> Result<(), Error> {
        let changed = || Error::Changed { written: "that were gathered", read: "that arrived" };
        let (numbers, rest) = hashes.as_chunks::<8>();
        if range >= self.ranges.count() || !rest.is_empty() {
            return Err(changed());
        }
        let all = self.of_each.entry(range).or_default();
        let before = all.hashes.len();
        all.hashes.extend(numbers.iter().map(|number| Xxh3(u64::from_le_bytes(*number))));
        let new = &all.hashes[before..];
        if new.iter().any(|hash| self.ranges.of(*hash) != range) {
            return Err(changed());
        }
        all.samples.extend_from_slice(samples);
        all.numbers.received += new.len() as u64;
        all.numbers.received_sum = all.numbers.received_sum.wrapping_add(sum_of(new));
        let sums = &mut all.numbers.gathered;
        let Gathered { rows, nulls, invalid, sent, sent_sum } = gathered.unwrap_or_default();
        (sums.rows, sums.nulls) = (sums.rows + rows, sums.nulls + nulls);
        (sums.invalid, sums.sent) = (sums.invalid + invalid, sums.sent + sent);
        sums.sent_sum = sums.sent_sum.wrapping_add(sent_sum);
        if all.hashes.len() >= all.compact_at.max(FIRST_COMPACTION) {
            all.hashes.sort_unstable();
            all.hashes.dedup();
            if all.hashes.len() > MAX_RANGE_HASHES {
                return Err(Error::RangeFull { range, ranges: self.ranges.count() });
            }
            // Not at each package, if there are few duplicates.
            all.compact_at = (all.hashes.len() + FIRST_COMPACTION / 2).min(MAX_RANGE_HASHES + 1);
        }
        Ok(())
    }

    /// The next range that is complete, after the last package: its number, numbers, distinct
    /// hashes in ascending order, and samples.
    pub fn next_range(&mut self) -> Option<(u32, Counted, Vec<Xxh3>, Vec<u8>)> {
        let (range, Collected { mut hashes, samples, mut numbers, .. }) =
            self.of_each.pop_first()?;
        hashes.sort_unstable();
        hashes.dedup();
        (numbers.ids, numbers.sum) = (hashes.len() as u64, sum_of(&hashes));
        Some((range, numbers, hashes, samples))
    }
}
