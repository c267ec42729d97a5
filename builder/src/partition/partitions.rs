//! [`Partitions`]: what all writers of a build share.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use bloomsday_common::hash::IdHash;

use super::slab::{Partition, Slab};
use super::spill::Spill;

/// Collects hashes from several threads; each thread writes with its own
/// [`PartitionWriter`](super::PartitionWriter).
pub struct Partitions<H> {
    pub(super) written: Mutex<Vec<WrittenPartitions<H>>>,
    pub(super) spill: Spill,
    /// The bytes of all slabs in memory.
    pub(super) bytes_in_memory: AtomicU64,
    /// The most bytes of slabs in memory.
    pub(super) budget: u64,
}

impl<H> fmt::Debug for Partitions<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partitions { bytes_in_memory, budget, .. } = self;
        let mut partitions = f.debug_struct("Partitions");
        partitions.field("bytes_in_memory", bytes_in_memory).field("budget", budget);
        partitions.finish_non_exhaustive()
    }
}

/// What one writer wrote.
pub(super) struct WrittenPartitions<H> {
    pub(super) slabs: Vec<Slab<H>>,
    pub(super) partitions: Vec<Partition>,
    /// The sum of all hashes when they were written.
    pub(super) sum: u64,
}

impl<H: IdHash> Partitions<H> {
    /// Starts without hashes. About `budget` bytes of hashes stay in memory, but each writer needs
    /// at least one slab: 8 MiB (16 MiB for the layout `guava`). The rest goes to a temporary file
    /// in `spill_folder`, which is created when it is needed.
    pub fn new(budget: u64, spill_folder: &Path) -> Partitions<H> {
        Partitions {
            written: Mutex::new(Vec::new()),
            spill: Spill::new(spill_folder),
            bytes_in_memory: AtomicU64::new(0),
            budget,
        }
    }
}
