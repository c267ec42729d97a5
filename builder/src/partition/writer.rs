//! [`PartitionWriter`]: writes the hashes of one thread to their partitions.
//!
//! A hash first goes to its partition's line; all lines together fit a core's cache. A full line
//! goes to the partition's chunk with non-temporal stores, so the caches stay free for the lines
//! and for the decoder. The last hash of a line is never stored in it: a read right after a write
//! would wait for that write.
//!
//! Target of the non-temporal stores: a filled filter in at most 1.9 × decompression (decision 20).

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::LineWriter;

use super::partitions::{Partitions, WrittenPartitions};
use super::slab::{
    CHUNKS_PER_SLAB, HASHES_PER_CHUNK, PARTITION_BITS, PARTITIONS, Partition, Slab, chunks_of, sum,
};
use super::spill::Extent;

/// 16 64-bit hashes. The branch for a full line is unpredictable, and shorter lines take it more
/// often. Longer lines no longer fit the cache next to the decoder's data.
const LINE_WORDS: usize = 16;
type Line = [u64; LINE_WORDS];

/// Marks the first chunk of a partition, in place of the number of the previous chunk.
const FIRST: u32 = u32::MAX;

/// Writes the hashes of one thread. The thread creates, fills and finishes it.
pub struct PartitionWriter<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> {
    partitions: P,
    // Arrays: an index of `PARTITION_BITS` bits needs no bounds check.
    lines: Box<[Line; PARTITIONS]>,
    /// How many hashes are in each line.
    line_len: Box<[u8; PARTITIONS]>,
    /// How many positions of each partition's last line have no hash: only full lines are written.
    tail_padding: Box<[u8; PARTITIONS]>,
    /// The position of each partition's next line, counted in lines from the start of the slabs. At
    /// the start of a chunk the partition has no chunk for it yet.
    next: Box<[u32; PARTITIONS]>,
    /// For each chunk in use the previous chunk of its partition, or [`FIRST`]. It is written in
    /// order; one list per partition would cost one more cache miss.
    prev_chunk: Vec<u32>,
    slabs: Vec<LineWriter>,
    /// The hash of the last line of each partition that had one hash only.
    repeated: Box<[Option<H>]>,
    /// The sum of all lines written.
    sum: u64,
    /// The extents of each partition in the file.
    spilled: Vec<Vec<Extent>>,
    /// Whether the first slab exceeded the budget.
    over_budget: bool,
    /// The first failure to spill. It is kept here because a sink cannot return it.
    failed: Option<io::Error>,
}

impl<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> fmt::Debug for PartitionWriter<H, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slabs, failed) = (self.slabs.len(), &self.failed);
        let mut writer = f.debug_struct("PartitionWriter");
        writer.field("slabs", &slabs).field("failed", failed).finish_non_exhaustive()
    }
}

impl<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> PartitionWriter<H, P> {
    /// The hashes of a line.
    const LINE: usize = size_of::<Line>() / size_of::<H>();
    const LINES_PER_CHUNK: usize = HASHES_PER_CHUNK / Self::LINE;
    const LINES_PER_SLAB: usize = Self::LINES_PER_CHUNK * CHUNKS_PER_SLAB;
    /// The most slabs of a writer: it counts their lines in 32 bits, which is 512 GiB per thread.
    const MAX_SLABS: usize = u32::MAX as usize / Self::LINES_PER_SLAB;

    /// A writer for one thread.
    pub fn new(partitions: P) -> PartitionWriter<H, P> {
        let lines = vec![[0; LINE_WORDS]; PARTITIONS];
        PartitionWriter {
            partitions,
            lines: lines.into_boxed_slice().try_into().expect("as many as were made"),
            line_len: Box::new([0; PARTITIONS]),
            tail_padding: Box::new([0; PARTITIONS]),
            next: Box::new([0; PARTITIONS]),
            prev_chunk: Vec::new(),
            slabs: Vec::new(),
            repeated: vec![None; PARTITIONS].into_boxed_slice(),
            sum: 0,
            spilled: vec![Vec::new(); PARTITIONS],
            over_budget: false,
            failed: None,
        }
    }

    /// Writes one hash.
    #[inline]
    pub fn push(&mut self, hash: H) {
        let index = (hash.high_bits() >> (u64::BITS - PARTITION_BITS)) as usize;
        let line_len = &mut self.line_len[index];
        if usize::from(*line_len) < Self::LINE - 1 {
            hashes_mut(&mut self.lines[index])[usize::from(*line_len)] = hash;
            *line_len += 1;
        } else {
            *line_len = 0;
            self.flush_line(index, hash);
        }
    }

    /// Writes the remaining lines and passes the slabs to [`Partitions`].
    ///
    /// # Errors
    /// The system's, if this or an earlier write to the file failed.
    pub fn finish(mut self) -> io::Result<()> {
        for index in 0..PARTITIONS {
            let len = usize::from(std::mem::take(&mut self.line_len[index]));
            if len > 0 && self.has_chunk(index) {
                // Hashes of an earlier line would count in the sum; zeros do not.
                let mut line = self.lines[index];
                hashes_mut(&mut line)[len..].fill(H::zeroed());
                self.write(index, &line);
                self.tail_padding[index] = (Self::LINE - len) as u8;
            }
        }
        if self.over_budget && self.failed.is_none() {
            // The budget did not have the one slab that a writer needs: its hashes do not stay in
            // memory.
            self.failed = self.spill().err();
            self.slabs.clear();
        }
        match self.failed {
            Some(error) => Err(error),
            None => {
                let partitions = (0..PARTITIONS).map(|index| self.partition(index)).collect();
                let mut all = self.partitions.written.lock().expect("pushing does not panic");
                let slabs = self.slabs.into_iter().map(|slab| Slab::of(slab.finish())).collect();
                all.push(WrittenPartitions { slabs, partitions, sum: self.sum });
                Ok(())
            }
        }
    }

    /// Writes a line, with its last hash, to its partition's chunk.
    #[inline(never)]
    fn flush_line(&mut self, index: usize, last: H) {
        // An array: the compiler knows the size of its copy.
        let mut line = self.lines[index];
        let hashes: &mut [H] = hashes_mut(&mut line);
        hashes[Self::LINE - 1] = last;
        if hashes.iter().all(|hash| *hash == last) && self.is_repeated(index, last) {
            return;
        }
        if self.has_chunk(index) {
            self.write(index, &line);
        }
    }

    /// Whether the last line with one hash only had this hash, too. Without this check an ID that
    /// half of all rows have, such as all zeros, would take half of the memory.
    #[cold]
    fn is_repeated(&mut self, index: usize, hash: H) -> bool {
        self.repeated[index].replace(hash) == Some(hash)
    }

    /// Writes the next line of a partition, which has a chunk for it.
    #[inline(always)]
    fn write(&mut self, index: usize, words: &Line) {
        let line = self.next[index] as usize;
        self.next[index] += 1;
        self.sum = self.sum.wrapping_add(sum(words.iter().copied()));
        let slab = &mut self.slabs[line / Self::LINES_PER_SLAB];
        slab.write(line % Self::LINES_PER_SLAB, words);
    }

    /// Collects the chunks and extents of a partition.
    fn partition(&mut self, index: usize) -> Partition {
        let spilled = std::mem::take(&mut self.spilled[index]);
        let Some(last_line) = self.next[index].checked_sub(1) else {
            return Partition { spilled, ..Partition::default() };
        };
        let previous =
            |chunk: &u32| Some(self.prev_chunk[*chunk as usize]).filter(|&it| it != FIRST);
        let last = last_line / Self::LINES_PER_CHUNK as u32;
        let mut chunks: Vec<u32> = std::iter::successors(Some(last), previous).collect();
        chunks.reverse();
        let in_last = (last_line as usize % Self::LINES_PER_CHUNK + 1) * Self::LINE;
        let len =
            (chunks.len() - 1) * HASHES_PER_CHUNK + in_last - usize::from(self.tail_padding[index]);
        Partition { chunks, len, spilled }
    }

    /// Whether a partition has a chunk for the next line, or could get one.
    #[inline(always)]
    fn has_chunk(&mut self, index: usize) -> bool {
        // After the first failure the build fails: it takes no more memory.
        if self.next[index].is_multiple_of(Self::LINES_PER_CHUNK as u32) && self.failed.is_none() {
            self.failed = self.grow(index).err();
        }
        self.failed.is_none()
    }

    /// Assigns another chunk to a partition. If the budget is used up, all hashes go to the file
    /// first.
    #[cold]
    fn grow(&mut self, index: usize) -> io::Result<()> {
        if self.prev_chunk.len() == self.slabs.len() * CHUNKS_PER_SLAB {
            let (in_memory, bytes) = (&self.partitions.bytes_in_memory, Slab::<H>::BYTES as u64);
            let fits = in_memory.fetch_add(bytes, Ordering::Relaxed) + bytes
                <= self.partitions.budget
                && self.slabs.len() < Self::MAX_SLABS;
            if fits || self.slabs.is_empty() {
                self.over_budget |= !fits;
                self.slabs.push(LineWriter::new(Slab::<H>::memory()?));
            } else {
                in_memory.fetch_sub(bytes, Ordering::Relaxed);
                self.spill()?;
            }
        }
        let last_line = self.next[index].checked_sub(1);
        self.next[index] = (self.prev_chunk.len() * Self::LINES_PER_CHUNK) as u32;
        self.prev_chunk.push(last_line.map_or(FIRST, |line| line / Self::LINES_PER_CHUNK as u32));
        Ok(())
    }

    /// Writes all hashes in memory to the file, partition by partition, and reuses the memory.
    fn spill(&mut self) -> io::Result<()> {
        let finished = std::mem::take(&mut self.slabs).into_iter().map(LineWriter::finish);
        let slabs: Vec<Slab<H>> = finished.map(Slab::of).collect();
        let mut hashes = Vec::new();
        for index in 0..PARTITIONS {
            let partition = self.partition(index);
            hashes.clear();
            chunks_of(&partition, &slabs).for_each(|chunk| hashes.extend_from_slice(chunk));
            self.spilled[index] = partition.spilled;
            if !hashes.is_empty() {
                self.spilled[index].push(self.partitions.spill.append(&hashes)?);
            }
        }
        self.next.fill(0);
        self.prev_chunk.clear();
        self.slabs = slabs.into_iter().map(|slab| LineWriter::new(slab.memory)).collect();
        Ok(())
    }
}

#[inline(always)]
fn hashes_mut<H: IdHash>(line: &mut Line) -> &mut [H] {
    bytemuck::cast_slice_mut(line)
}
