//! A build in parts, for an engine that runs pure functions on many machines, such as Spark.
//!
//! ```text
//! IDs ─ Gather ─► packed hashes of a range ─ Count ─► its distinct hashes ─ Fill ─► parts of the blob
//! coordinator: sums of the counts → shape; sums of the fills → header, digest, key;
//!              parts → upload, gates, pointer
//! ```
//!
//! A range is an interval of hashes, and therefore of blocks. `Gather`, `Count` and `Fill` do no
//! I/O and depend only on what they are given: an engine may run each as often as it likes. Sums go
//! along with the hashes, so that each step detects hashes that were lost, doubled or changed since
//! the step before.
//!
//! | module | does |
//! |---|---|
//! | `ranges` | [`Ranges`]: hashes → ranges |
//! | `gather` | [`Gather`]: IDs → distinct hashes, in packages of one range |
//! | `count` | [`Count`]: all packages of a range → its distinct hashes |
//! | `fill` | [`Fill`]: a range's distinct hashes → its pieces of the blob, with the IDs looked up in them |
//! | `assemble` | [`Assembler`]: the pieces, in order → the parts of the blob |
//! | `totals` | [`RangeTotals`]: sums of what all ranges counted and filled |
//! | `coordinate` | [`Coordinator`]: the steps of a build that one process does |
//! | `earlier` | compares some of the IDs with the newest earlier filter |

mod assemble;
mod coordinate;
mod count;
mod earlier;
mod fill;
mod gather;
mod ranges;
mod totals;

pub use self::assemble::Assembler;
pub use self::coordinate::{Coordinator, Uploading};
pub use self::count::{Count, Counted, MAX_RANGE_HASHES};
pub use self::earlier::EARLIER_SAMPLE;
pub use self::fill::{BlobPiece, Fill, FillPlan, Filled};
pub use self::gather::{Gather, Gathered, Package, check_column};
pub use self::ranges::{MAX_RANGES, Ranges};
pub use self::totals::RangeTotals;

/// The most hashes in one package or row: 64 KiB. Java's collector keeps values of half a region,
/// which has 1 MiB or more, apart from all others, which costs a tenth of a build on Spark.
pub const MAX_PACKAGE_HASHES: usize = 1 << 13;

#[cfg(test)]
mod tests;
