//! [`Budget`]: divides the memory of a build.
//!
//! During the scan a build needs memory for hashes, column chunks, unpacked pages and a sample of
//! raw IDs. Afterwards it needs memory for the distinct hashes, the filter, and a second filter:
//! the copy that is read back, or an earlier filter. If the hashes stay in memory, the budget
//! keeps space for two filters next to them. Spilled hashes take no memory at that time.

use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::hash::{Murmur3, Spark, Xxh3};
use bloomsday_common::memory::{Available, available};

use crate::error::Error;
use crate::scan::ScanBudget;

/// The program with its libraries, and memory that its allocator does not return to the system.
const BASE_BYTES: u64 = 208 << 20;
/// The memory of a thread, with the one slab of hashes that it always has.
const PER_THREAD_BYTES: u64 = 16 << 20;
/// The bytes that all threads together unpack. Most threads need a few megabytes; one with more
/// waits for the others.
const MIN_UNPACKED_BYTES: u64 = 64 << 20;
const MAX_UNPACKED_BYTES: u64 = 4 << 30;
/// The bytes for footers and what is kept of them: the share of a small budget, and a share that is
/// always enough.
const MIN_FOOTER_BYTES: u64 = 128 << 20;
const MAX_FOOTER_BYTES: u64 = 1 << 30;
/// The bytes of compressed column chunks in memory. The pool of unused buffers may take as many
/// again.
const MAX_IN_FLIGHT_BYTES: u64 = 128 << 20;
/// Enough for a million IDs of 60 characters.
const MAX_SAMPLE_BYTES: u64 = 64 << 20;
/// The longest ID whose bytes [`Needs`] counts, with its length: chunks, pages and the sample of a
/// small input do not fill their shares.
const NEEDS_ID_BYTES: u64 = 64;
/// The share of chunks, and of the sample, in a small budget.
const MIN_SHARE_BYTES: u64 = 4 << 20;

/// The shares of a build's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The bytes of hashes in memory; more go to the temporary file.
    pub hashes: u64,
    /// The bytes of compressed chunks, of unpacked pages and of footers.
    pub scan: ScanBudget,
    /// The bytes of sampled IDs.
    pub sample: usize,
    /// The bytes of everything else.
    rest: u64,
}

/// The most that a build needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// The bytes of memory.
    pub memory: u64,
    /// How many of them are for what is read: compressed chunks, twice, and unpacked pages.
    pub reading: u64,
    /// Whether more is needed after the scan, when the filter and its copy are there, than during
    /// it. What the scan takes, a budget bounds.
    pub is_due_to_filters: bool,
    /// The bytes of the temporary file; 0 if all hashes stay in memory.
    pub spilled: u64,
}

impl Budget {
    /// Divides `memory` for a build of this layout and false-positive probability on `threads`
    /// threads.
    ///
    /// # Errors
    /// The probability is impossible.
    pub fn of(memory: u64, layout: Layout, fpp: f64, threads: usize) -> Result<Budget, Error> {
        // A filter for this many IDs has the same bits per ID as a larger one; a smaller one is
        // rounded up.
        const SIZING_IDS: u64 = 1 << 24;
        let filter =
            Shape::for_ids(layout, SIZING_IDS, fpp)?.body_bytes() as f64 / SIZING_IDS as f64;
        let hash = hash_bytes(layout) as f64;
        let in_flight = (memory / 16).clamp(MIN_SHARE_BYTES, MAX_IN_FLIGHT_BYTES);
        let sample = (memory / 8).clamp(MIN_SHARE_BYTES, MAX_SAMPLE_BYTES);
        let rest = BASE_BYTES + PER_THREAD_BYTES.saturating_mul(threads as u64);
        let unpacked = (memory / 8).clamp(MIN_UNPACKED_BYTES, MAX_UNPACKED_BYTES);
        // Most of it is free again when the column is read.
        let footers = (memory / 4).clamp(MIN_FOOTER_BYTES, MAX_FOOTER_BYTES);
        let left = memory.saturating_sub(rest.saturating_add(2 * in_flight + unpacked + sample));
        Ok(Budget {
            hashes: (left as f64 * hash / (hash + 2.0 * filter)) as u64,
            scan: ScanBudget { in_flight: in_flight as u32, unpacked, footers },
            sample: sample as usize,
            rest,
        })
    }

    /// The bytes that are free again when the scan has ended: those of chunks and pages.
    pub(crate) fn after_scan(&self) -> u64 {
        2 * u64::from(self.scan.in_flight) + self.scan.unpacked
    }

    /// What a build of `rows` rows needs with this filter, if each row has a different ID of at
    /// most 64 bytes.
    pub fn needs(&self, rows: u64, filter: Shape) -> Needs {
        let hashes = rows.saturating_mul(hash_bytes(filter.layout()));
        let spills = hashes > self.hashes;
        let column = rows.saturating_mul(NEEDS_ID_BYTES);
        let ScanBudget { in_flight, unpacked, .. } = self.scan;
        let reading = 2 * column.min(in_flight.into()) + column.min(unpacked);
        let during_scan = hashes.min(self.hashes) + reading;
        let filters = filter.body_bytes().saturating_mul(2);
        let after_scan = filters.saturating_add(if spills { 0 } else { hashes });
        let sample = column.min(self.sample as u64);
        Needs {
            memory: during_scan.max(after_scan).saturating_add(self.rest + sample),
            reading,
            is_due_to_filters: after_scan > during_scan,
            // All hashes, and once more without duplicates.
            spilled: if spills { hashes.saturating_mul(2) } else { 0 },
        }
    }
}

/// The bytes of a hash in memory.
fn hash_bytes(layout: Layout) -> u64 {
    let bytes = match layout {
        Layout::Blocked => size_of::<Xxh3>(),
        Layout::Guava => size_of::<Murmur3>(),
        Layout::Spark1 | Layout::Spark2 => size_of::<Spark<2>>(),
    };
    bytes as u64
}

/// The default memory of a build: three quarters of what the machine or its cgroup has available
/// now.
pub fn default_memory() -> u64 {
    available().map_or(4 << 30, |available| available.bytes / 4 * 3)
}

/// Checks that a filter fits in memory together with the copy that is read back. The system would
/// grant the memory and kill the process at the first touch. If the available memory is unknown, no
/// filter is refused.
///
/// # Errors
/// [`TooLarge`](Error::TooLarge), with the numbers.
pub(crate) fn check_fits_memory(filter: Shape, available: Option<Available>) -> Result<(), Error> {
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
                    // A filter that is too large for the budget is larger than it however it is
                    // made.
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
    fn a_small_day_does_not_need_what_a_large_budget_permits() {
        let needs = |memory, ids| {
            let shape = Shape::for_ids(Layout::Blocked, ids, 0.03).unwrap();
            Budget::of(memory, Layout::Blocked, 0.03, 2).unwrap().needs(ids, shape)
        };
        let fixed = BASE_BYTES + 2 * PER_THREAD_BYTES;
        let small = needs(16 * GIB, 100_000);
        assert!(small.memory < fixed + (32 << 20), "{small:?}");
        assert!(small.reading < 32 << 20 && small.spilled == 0, "{small:?}");
        let large = needs(16 * GIB, 300_000_000);
        assert!(large.reading >= 2 * MAX_IN_FLIGHT_BYTES && large.memory > GIB, "{large:?}");
        // Its hashes are spilled, and its filter is in nobody's way.
        let tiny = needs(10 << 20, 100_000);
        assert!(tiny.spilled > 0 && !tiny.is_due_to_filters, "{tiny:?}");
        assert!(needs(10 << 20, 300_000_000).is_due_to_filters);
    }

    #[test]
    fn a_filter_whose_copy_does_not_fit_is_refused_with_the_numbers() {
        let shape = Shape::for_ids(Layout::Blocked, 1_000_000, 0.03).unwrap();
        let needed = 2 * shape.body_bytes();
        let there = |bytes| Some(Available { bytes, by: "the cgroup's limit".into() });
        let refused = check_fits_memory(shape, there(needed - 1)).unwrap_err().to_string();
        for part in [&needed.to_string(), &(needed - 1).to_string(), "the cgroup's limit"] {
            assert!(refused.contains(part), "no `{part}` in {refused}");
        }
        assert!(check_fits_memory(shape, there(needed)).is_ok());
        assert!(check_fits_memory(shape, None).is_ok());
    }

    #[test]
    fn a_tiny_budget_still_works() {
        let budget = Budget::of(0, Layout::Blocked, 0.03, 2).unwrap();
        assert_eq!((budget.hashes, budget.scan.in_flight as u64), (0, MIN_SHARE_BYTES));
    }
}
