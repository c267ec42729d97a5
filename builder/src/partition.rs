//! Hashes → distinct hashes: partitions the hashes of a day and removes their duplicates.
//!
//! A partition is an interval of hashes, and therefore of the filter's blocks. Its duplicates are
//! removed in a core's cache, and its hashes are filled next to those of its neighbours. Memory has
//! a budget. Hashes beyond it go to a temporary file without a name, which the system removes when
//! the process ends.
//!
//! | module | does |
//! |---|---|
//! | `partitions` | [`Partitions`]: what all writers of a build share |
//! | `writer` | [`PartitionWriter`]: writes the hashes of one thread to their partitions |
//! | `distinct` | [`Distinct`]: the distinct hashes, partition by partition |
//! | `dedup` | removes the duplicates of one partition |
//! | `slab` | the memory of partitions |
//! | `spill` | the temporary file |

mod dedup;
mod distinct;
mod partitions;
mod slab;
mod spill;
mod writer;

pub use self::distinct::Distinct;
pub use self::partitions::Partitions;
pub(crate) use self::slab::{PARTITIONS, sum, sum_of};
pub use self::writer::PartitionWriter;

#[cfg(test)]
mod tests;
