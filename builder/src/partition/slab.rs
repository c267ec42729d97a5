//! The memory of partitions: slabs, which are divided into chunks of hashes. Knows no files or
//! threads.

use std::io;
use std::marker::PhantomData;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::Buffer;

use super::spill::Extent;

/// 2^12 partitions: of 100 million IDs each partition fits one table of the deduplication. The
/// lines of all partitions together, 512 KiB, fit a second-level cache of 1 MiB next to the
/// decoder's data.
pub(super) const PARTITION_BITS: u32 = 12;
pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;
/// The hashes of a chunk, by which a partition grows. Tests use small chunks, so that few hashes
/// spill.
pub(super) const HASHES_PER_CHUNK: usize = if cfg!(test) { 32 } else { 256 };
/// The chunks of a slab, one for each partition: 8 MiB of 64-bit hashes. A writer allocates whole
/// slabs.
pub(super) const CHUNKS_PER_SLAB: usize = PARTITIONS;
/// The hashes of one partition from one writer: chunks in its slabs, of which only the last may be
/// partly filled, and extents of the temporary file.
#[derive(Default)]
pub(super) struct Partition {
    pub(super) chunks: Vec<u32>,
    /// The number of hashes in the chunks.
    pub(super) len: usize,
    pub(super) spilled: Vec<Extent>,
}

/// Memory for [`CHUNKS_PER_SLAB`] chunks, in huge pages. All partitions grow at the same time: with
/// small pages nearly every line would miss the TLB, and the first touch would cost more.
pub(super) struct Slab<H> {
    pub(super) memory: Buffer,
    of: PhantomData<H>,
}

impl<H: IdHash> Slab<H> {
    const HASHES: usize = CHUNKS_PER_SLAB * HASHES_PER_CHUNK;
    pub(super) const BYTES: usize = Slab::<H>::HASHES * size_of::<H>();

    /// Allocates the memory of a slab.
    pub(super) fn memory() -> io::Result<Buffer> {
        Buffer::zeroed(Slab::<H>::BYTES).map_err(|e| {
            io::Error::new(e.kind(), format!("no memory for {} bytes ({e})", Slab::<H>::BYTES))
        })
    }

    pub(super) fn of(memory: Buffer) -> Slab<H> {
        Slab { memory, of: PhantomData }
    }

    #[inline]
    pub(super) fn hashes(&self) -> &[H] {
        bytemuck::cast_slice(&self.memory)
    }

    #[inline]
    pub(super) fn hashes_mut(&mut self) -> &mut [H] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }
}

/// The sum of hashes, with which each step checks that it reads what the step before wrote. A hash
/// that is lost, doubled or changed on its way through memory or the file changes the sum.
///
/// Cost: little, if the hashes are read anyway.
pub(crate) fn sum_of<H: IdHash>(hashes: &[H]) -> u64 {
    sum(bytemuck::cast_slice(hashes).iter().copied())
}

/// A wrapping sum.
pub(crate) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::wrapping_add)
}

/// The hashes of a partition in memory, chunk by chunk.
pub(super) fn chunks_of<'a, H: IdHash>(
    partition: &'a Partition,
    slabs: &'a [Slab<H>],
) -> impl Iterator<Item = &'a [H]> {
    let mut left = partition.len;
    partition.chunks.iter().map_while(move |chunk| {
        let (slab, start) = place(*chunk);
        let len = left.min(HASHES_PER_CHUNK);
        left -= len;
        (len > 0).then(|| &slabs[slab].hashes()[start..start + len])
    })
}

/// The slab of a chunk, and the position of its first hash in the slab.
pub(super) fn place(chunk: u32) -> (usize, usize) {
    let chunk = chunk as usize;
    (chunk / CHUNKS_PER_SLAB, chunk % CHUNKS_PER_SLAB * HASHES_PER_CHUNK)
}
