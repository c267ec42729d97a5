//! [`Distinct`]: the distinct hashes of a day. Removes the duplicates of all partitions, in memory
//! or in the temporary file.

use std::fmt;
use std::io;
use std::sync::Mutex;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::prefetch_all;

use super::dedup::{Chunk, Dedup, Deduplicated};
use super::partitions::{Partitions, WrittenPartitions};
use super::slab::{
    CHUNKS_PER_SLAB, HASHES_PER_CHUNK, PARTITION_BITS, PARTITIONS, Partition, Slab, chunks_of, sum,
};
use super::spill::{Extent, Spill};
use crate::error::Error;
use crate::parallel::parallel_map;

/// The least average size of a partition's extents. Smaller extents are written again as one: later
/// steps read the partition two or three times, and small reads are slow.
const MIN_MEAN_EXTENT_BYTES: u64 = if cfg!(test) { 512 } else { 32 << 10 };

/// How often a thread has each hash of its partition in memory, at most: as read from the file, as
/// collected from memory, in a list of the table, and among those kept, in a vector that may be
/// half empty. The bitmap takes less than one hash for each.
const WORKING_COPIES: u64 = 6;

impl<H: IdHash> Partitions<H> {
    /// Removes the duplicates of all partitions on at most `threads` threads: on fewer if their
    /// working memory would take more than `memory` bytes. One thread always works.
    ///
    /// # Errors
    /// [`Error::Spill`]: the temporary file cannot be read or written. [`Error::Changed`]: the
    /// hashes in memory or in the file are not those that the writers wrote.
    pub fn distinct(self, threads: usize, memory: u64) -> Result<Distinct<H>, Error> {
        let mut all = self.written.into_inner().expect("no writer panics with the lock");
        let threads = threads.min(threads_within(memory, &all));
        let has_spilled = |partition: &Partition| !partition.spilled.is_empty();
        let spilled = all.iter().any(|written| written.partitions.iter().any(has_spilled));
        let sum_written = sum(all.iter().map(|written| written.sum));
        let deduplicated = if spilled {
            distinct_in_file(&all, &self.spill, threads)
        } else {
            distinct_in_place(&mut all, threads)
        };
        let (partitions, results): (Vec<Partition>, Vec<Deduplicated>) =
            deduplicated.map_err(Error::spill)?.into_iter().unzip();
        if sum(results.iter().map(|result| result.sum_before)) != sum_written {
            let (written, read) = ("that were partitioned", "to be deduplicated");
            return Err(Error::Changed { written, read });
        }
        let sum = sum(results.iter().map(|result| result.sum));
        let n_ids = results.iter().map(|result| result.len as u64).sum();
        // If anything was spilled, all hashes are in the file now.
        let all = if spilled { Vec::new() } else { all };
        let slabs = all.into_iter().flat_map(|written| written.slabs).collect();
        Ok(Distinct { partitions, slabs, spill: self.spill, n_ids, sum })
    }
}

/// How many threads can work at the same time in `memory` bytes, if each has a partition as large
/// as the largest one; at least 1.
pub(super) fn threads_within<H: IdHash>(memory: u64, all: &[WrittenPartitions<H>]) -> usize {
    let bytes = |partition: &Partition| {
        let spilled = partition.spilled.iter().map(|extent| extent.bytes).sum::<u64>();
        spilled + (partition.len * size_of::<H>()) as u64
    };
    let of = |index: usize| all.iter().map(|written| bytes(&written.partitions[index])).sum();
    let largest: u64 = (0..PARTITIONS).map(of).max().unwrap_or(0);
    let threads = memory / largest.saturating_mul(WORKING_COPIES).max(1);
    threads.max(1) as usize
}

/// Removes the duplicates of each partition in new memory and leaves the result in the file. A
/// partition without duplicates stays where it is, unless its extents are small. This saves one
/// pass over the file for a day without duplicates.
fn distinct_in_file<H: IdHash>(
    all: &[WrittenPartitions<H>],
    spill: &Spill,
    threads: usize,
) -> io::Result<Vec<(Partition, Deduplicated)>> {
    let in_turn = |dedup: &mut Dedup<H>, index: usize| {
        let of_each = || all.iter().map(|written| (&written.partitions[index], &written.slabs));
        let mut in_file: Vec<Extent> =
            of_each().flat_map(|(partition, _)| &partition.spilled).copied().collect();
        let in_memory: Vec<&[H]> =
            of_each().flat_map(|(partition, slabs)| chunks_of(partition, slabs)).collect();
        let in_memory = in_memory.concat();
        let mut hashes = Vec::new();
        spill.read(&in_file, &mut hashes)?;
        hashes.extend_from_slice(&in_memory);
        let chunks = hashes.chunks_mut(HASHES_PER_CHUNK);
        let mut chunks: Vec<_> = chunks.map(|hashes| Chunk { len: hashes.len(), hashes }).collect();
        let result = dedup.distinct(&mut chunks);
        let spilled = in_file.iter().map(|extent| extent.bytes).sum::<u64>();
        let is_scattered = spilled < MIN_MEAN_EXTENT_BYTES * in_file.len() as u64;
        if result.len < hashes.len() || is_scattered {
            in_file = vec![spill.append(&hashes[..result.len])?];
        } else if !in_memory.is_empty() {
            in_file.push(spill.append(&in_memory)?);
        }
        Ok((Partition { spilled: in_file, ..Partition::default() }, result))
    };
    parallel_map(threads, PARTITIONS, Dedup::new, in_turn)
}

/// Removes the duplicates of each partition within its own chunks, without more memory. Afterwards
/// the chunk numbers count through the slabs of all writers.
fn distinct_in_place<'a, H: IdHash>(
    all: &'a mut [WrittenPartitions<H>],
    threads: usize,
) -> io::Result<Vec<(Partition, Deduplicated)>> {
    let mut slabs_before = 0;
    let mut gathered: Vec<(u32, Vec<Partition>)> = Vec::with_capacity(all.len());
    for written in all.iter_mut() {
        let first_chunk = (slabs_before * CHUNKS_PER_SLAB) as u32;
        gathered.push((first_chunk, std::mem::take(&mut written.partitions)));
        slabs_before += written.slabs.len();
    }
    // Each chunk belongs to one partition, whose thread takes it from here. To assign all chunks in
    // advance would keep the other threads waiting.
    let slabs = all.iter_mut().flat_map(|written| &mut written.slabs);
    let memory: Vec<Mutex<&mut [H]>> = slabs
        .flat_map(|slab| slab.hashes_mut().chunks_exact_mut(HASHES_PER_CHUNK))
        .map(Mutex::new)
        .collect();
    let in_turn = |(dedup, chunks): &mut (Dedup<H>, Vec<Chunk<'a, H>>), index: usize| {
        chunks.clear();
        let mut numbers = Vec::new();
        for (first_chunk, partitions) in &gathered {
            let mut left = partitions[index].len;
            for number in partitions[index].chunks.iter().map(|chunk| first_chunk + chunk) {
                let mut hashes =
                    memory[number as usize].lock().expect("taking a chunk does not panic");
                let len = left.min(HASHES_PER_CHUNK);
                left -= len;
                chunks.push(Chunk { hashes: std::mem::take(&mut *hashes), len });
                numbers.push(number);
            }
        }
        let result = dedup.distinct(chunks);
        numbers.truncate(result.len.div_ceil(HASHES_PER_CHUNK));
        Ok((Partition { chunks: numbers, len: result.len, spilled: Vec::new() }, result))
    };
    parallel_map(threads, PARTITIONS, || (Dedup::new(), Vec::new()), in_turn)
}

/// The distinct hashes of a day, in partitions.
pub struct Distinct<H> {
    pub(super) partitions: Vec<Partition>,
    pub(super) slabs: Vec<Slab<H>>,
    spill: Spill,
    n_ids: u64,
    sum: u64,
}

impl<H> fmt::Debug for Distinct<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distinct").field("n_ids", &self.n_ids).finish_non_exhaustive()
    }
}

impl<H: IdHash> Distinct<H> {
    /// The number of distinct hashes.
    pub fn n_ids(&self) -> u64 {
        self.n_ids
    }

    /// The sum of the hashes when they were deduplicated, as [`sum_of`](super::sum_of) computes it.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// Calls `visit` with all hashes, some at a time and in any order, on `threads` threads.
    /// Returns the results in the order of the partitions, which is the order of the filter's
    /// blocks.
    ///
    /// # Errors
    /// The system's, if a spilled partition cannot be read.
    pub fn for_each<R: Send>(
        &self,
        threads: usize,
        visit: impl Fn(&[H]) -> R + Sync,
    ) -> io::Result<Vec<R>> {
        let in_turn = |(): &mut (), index: usize| {
            let mut found = Vec::new();
            self.with(index, |hashes| found.push(visit(hashes)))?;
            Ok::<_, io::Error>(found)
        };
        let found = parallel_map(threads, PARTITIONS, || (), in_turn)?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Calls `visit` with the hashes of some partitions, one partition after the other: those for
    /// which `overlaps` returns true. Its arguments are the first and the last hash that the
    /// partition can have.
    ///
    /// # Errors
    /// The system's, if a spilled partition cannot be read.
    pub fn for_each_in_range(
        &self,
        overlaps: impl Fn(u64, u64) -> bool,
        mut visit: impl FnMut(&[H]),
    ) -> io::Result<()> {
        for index in 0..PARTITIONS {
            let first = (index as u64) << (u64::BITS - PARTITION_BITS);
            let last = first | (u64::MAX >> PARTITION_BITS);
            if overlaps(first, last) {
                self.with(index, &mut visit)?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the hashes of one partition, some at a time and in any order.
    pub(crate) fn visit(&self, index: usize, visit: impl FnMut(&[H])) -> io::Result<()> {
        self.with(index, visit)
    }

    fn with(&self, index: usize, mut visit: impl FnMut(&[H])) -> io::Result<()> {
        let partition = &self.partitions[index];
        let mut chunks = chunks_of(partition, &self.slabs).peekable();
        while let Some(chunk) = chunks.next() {
            if let Some(next) = chunks.peek() {
                prefetch_all(next);
            }
            visit(chunk);
        }
        if !partition.spilled.is_empty() {
            let mut hashes = Vec::new();
            self.spill.read(&partition.spilled, &mut hashes)?;
            visit(&hashes);
        }
        Ok(())
    }
}
