//! [`Budget`]: one figure for memory, shared out among all that a build holds.
//!
//! While the input is read these are hashes, column chunks, what of them is unpacked, and a sample of raw
//! IDs; after that what is left of the hashes, the filter, and the filter as it was read back or
//! yesterday's. Hashes that stay in memory leave room for two filters; those that were spilled are no
//! longer there by then.

use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::hash::{Murmur3, Xxh3};
use bloomsday_common::memory::{Available, available};

use crate::error::Error;
use crate::scan::ScanBudget;

/// The program itself with its libraries, and what its allocator does not give back: up to 190 MB were
/// measured with two threads.
const BASE_BYTES: u64 = 208 << 20;
/// What a thread works with, and the slab of hashes that it cannot work without.
const PER_THREAD_BYTES: u64 = 16 << 20;
/// What all threads together unpack: most need some megabytes, and a thread with more waits for the others.
const MIN_UNPACKED_BYTES: u64 = 64 << 20;
const MAX_UNPACKED_BYTES: u64 = 4 << 30;
/// Footers and what is known from them, before and beside all else: what a small budget gives to them, and
/// what is always enough.
const MIN_FOOTER_BYTES: u64 = 128 << 20;
const MAX_FOOTER_BYTES: u64 = 1 << 30;
/// Compressed column chunks in memory at a time; what they leave for the next ones is there beside them.
const MAX_IN_FLIGHT_BYTES: u64 = 128 << 20;
/// Enough for a million IDs of 60 characters.
const MAX_SAMPLE_BYTES: u64 = 64 << 20;
/// What a small budget still gives to chunks, and to the sample.
const MIN_SHARE_BYTES: u64 = 4 << 20;

/// How memory is shared out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Bytes of hashes in memory at once; more go to disk.
    pub hashes: u64,
    /// Bytes of compressed chunks, and of what is unpacked.
    pub scan: ScanBudget,
    /// Bytes of sampled IDs.
    pub sample: usize,
    /// Bytes of everything else.
    rest: u64,
}

/// What a day will take, at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk, when not all hashes stay in memory.
    pub spilled: u64,
}

impl Budget {
    /// Shares out `memory` for a build of this layout and target on `threads` threads.
    ///
    /// # Errors
    /// An impossible target.
    pub fn of(memory: u64, layout: Layout, fpp: f64, threads: usize) -> Result<Budget, Error> {
        // More IDs do not change what each takes, and a filter of fewer is rounded up by more.
        const SIZING_IDS: u64 = 1 << 24;
        let filter =
            Shape::for_ids(layout, SIZING_IDS, fpp)?.body_bytes() as f64 / SIZING_IDS as f64;
        let hash = hash_bytes(layout) as f64;
        let in_flight = (memory / 16).clamp(MIN_SHARE_BYTES, MAX_IN_FLIGHT_BYTES);
        let sample = (memory / 8).clamp(MIN_SHARE_BYTES, MAX_SAMPLE_BYTES);
        let rest = BASE_BYTES + PER_THREAD_BYTES.saturating_mul(threads as u64);
        let unpacked = (memory / 8).clamp(MIN_UNPACKED_BYTES, MAX_UNPACKED_BYTES);
        // Most of it is free again before any column is read.
        let footers = (memory / 4).clamp(MIN_FOOTER_BYTES, MAX_FOOTER_BYTES);
        let left = memory.saturating_sub(rest.saturating_add(2 * in_flight + unpacked + sample));
        Ok(Budget {
            hashes: (left as f64 * hash / (hash + 2.0 * filter)) as u64,
            scan: ScanBudget { in_flight: in_flight as u32, unpacked, footers },
            sample: sample as usize,
            rest,
        })
    }

    /// What so many rows will take, and the filter for them when none has an ID of another.
    pub fn needs(&self, rows: u64, filter: Shape) -> Needs {
        let hashes = rows.saturating_mul(hash_bytes(filter.layout()));
        let spills = hashes > self.hashes;
        let held = if spills { 0 } else { hashes };
        let filters = 2 * filter.body_bytes();
        let ScanBudget { in_flight, unpacked, .. } = self.scan;
        let reading = hashes.min(self.hashes) + 2 * u64::from(in_flight) + unpacked;
        let memory = self.rest + self.sample as u64 + reading.max(held + filters);
        // As they came, and once more without duplicates.
        Needs { memory, spilled: if spills { 2 * hashes } else { 0 } }
    }
}

/// What a hash takes in memory.
fn hash_bytes(layout: Layout) -> u64 {
    let bytes = match layout {
        Layout::Blocked => size_of::<Xxh3>(),
        Layout::Guava => size_of::<Murmur3>(),
    };
    bytes as u64
}

/// What a build may take when nobody says: three quarters of what the machine or its cgroup can give now.
pub fn default_memory() -> u64 {
    available().map_or(4 << 30, |available| available.bytes / 4 * 3)
}

/// Whether memory for a filter, and for its copy that is read back, is there: the system would grant
/// more, and kill the process at the first touch. One that does not tell refuses nothing.
///
/// # Errors
/// [`TooLarge`](Error::TooLarge), with the numbers.
pub(crate) fn refuse_too_large(filter: Shape, available: Option<Available>) -> Result<(), Error> {
    let needed = 2 * filter.body_bytes();
    match available.filter(|available| available.bytes < needed) {
        None => Ok(()),
        Some(there) => Err(Error::TooLarge { needed, available: there.bytes, by: there.by }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn shares_add_up_to_the_whole_at_any_number_of_rows() {
        for memory in [GIB / 2, GIB, 4 * GIB, 64 * GIB] {
            for (layout, fpp) in [(Layout::Blocked, 0.03), (Layout::Guava, 0.001)] {
                let budget = Budget::of(memory, layout, fpp, 2).unwrap();
                let mut spilled_before = false;
                for rows in (0..10).map(|n| 1_000_000 << n) {
                    let shape = Shape::for_ids(layout, rows, fpp).unwrap();
                    let needs = budget.needs(rows, shape);
                    let filters = 2 * shape.body_bytes() + budget.rest + budget.sample as u64;
                    // A filter that is too large for the budget is larger than it however it is made.
                    let slack = 1 << 12;
                    assert!(needs.memory <= memory.max(filters) + slack, "{rows}: {needs:?}");
                    assert!(needs.spilled > 0 || !spilled_before, "{rows} rows fit, fewer did not");
                    spilled_before = needs.spilled > 0;
                }
            }
        }
    }

    #[test]
    fn three_hundred_million_ids_spill_in_one_gibibyte_and_not_in_four() {
        let shape = Shape::for_ids(Layout::Blocked, 300_000_000, 0.03).unwrap();
        let needs = |memory| {
            Budget::of(memory, Layout::Blocked, 0.03, 2).unwrap().needs(300_000_000, shape)
        };
        assert!(needs(GIB).spilled > 0 && needs(GIB).memory <= GIB);
        assert!(needs(4 * GIB).spilled == 0 && needs(4 * GIB).memory <= 4 * GIB);
    }

    #[test]
    fn a_filter_whose_copy_does_not_fit_is_refused_with_the_numbers() {
        let shape = Shape::for_ids(Layout::Blocked, 1_000_000, 0.03).unwrap();
        let needed = 2 * shape.body_bytes();
        let there = |bytes| Some(Available { bytes, by: "the cgroup's limit".into() });
        let refused = refuse_too_large(shape, there(needed - 1)).unwrap_err().to_string();
        for part in [&needed.to_string(), &(needed - 1).to_string(), "the cgroup's limit"] {
            assert!(refused.contains(part), "no `{part}` in {refused}");
        }
        assert!(refuse_too_large(shape, there(needed)).is_ok());
        assert!(refuse_too_large(shape, None).is_ok());
    }

    #[test]
    fn a_tiny_budget_still_works() {
        let budget = Budget::of(0, Layout::Blocked, 0.03, 2).unwrap();
        assert_eq!((budget.hashes, budget.scan.in_flight as u64), (0, MIN_SHARE_BYTES));
    }
}
