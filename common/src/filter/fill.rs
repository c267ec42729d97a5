//! [`FilterMut`]: a filter that is being filled, as one or as [`FilterShard`]s by several threads.

use std::fmt;
use std::io;
use std::ops::Range;

use super::{Filter, Layout, Shape, blocked, classic};
use crate::hash::IdHash;
use crate::memory::Buffer;

/// A filter that is being filled. [`FilterMut::freeze`] makes it a [`Filter`] for lookups.
///
/// ```
/// use bloomsday_common::filter::{FilterMut, Layout, Shape};
/// use bloomsday_common::hash::{IdHash, Xxh3};
///
/// let mut filter = FilterMut::new(Shape::for_ids(Layout::Blocked, 1_000, 0.03)?)?;
/// for id in ["user-1", "user-2"] {
///     filter.insert(Xxh3::of(id.as_bytes()));
/// }
/// let filter = filter.freeze();
/// assert!(filter.contains(b"user-1") && filter.contains(b"user-2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FilterMut {
    shape: Shape,
    memory: Buffer,
}

impl FilterMut {
    /// An empty filter of this shape, in huge pages where the system has them.
    ///
    /// # Errors
    /// The system's, when it does not have that much memory.
    pub fn new(shape: Shape) -> io::Result<FilterMut> {
        let bytes = usize::try_from(shape.body_bytes()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut memory = Buffer::zeroed(bytes)?;
        let header = classic::header(shape);
        memory[..header.len()].copy_from_slice(&header);
        Ok(FilterMut { shape, memory })
    }

    /// Inserts the hash of one ID. Inserting it again changes nothing.
    ///
    /// # Panics
    /// When the hash belongs to another layout.
    #[inline]
    pub fn insert<H: IdHash>(&mut self, hash: H) {
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        let probes = self.shape.probes();
        match H::LAYOUT {
            Layout::Blocked => {
                let (blocks, _) = self.memory.as_chunks_mut();
                let block = blocked::block_of(hash.high_bits(), blocks.len() as u64);
                blocked::insert(&mut blocks[block], probes, hash.high_bits());
            }
            _ => classic::insert(&mut self.memory, self.shape, hash),
        }
    }

    /// Divides the filter into at most `n_shards` shards, which threads can fill at the same time
    /// without atomics.
    ///
    /// Only `blocked` can be divided: a hash there sets bits in one block, and a larger hash never
    /// belongs to an earlier block. The probes of the others span the array, so each is returned as
    /// one shard.
    ///
    /// ```
    /// # use bloomsday_common::filter::{FilterMut, Layout, Shape};
    /// # use bloomsday_common::hash::{IdHash, Xxh3};
    /// let mut filter = FilterMut::new(Shape::for_ids(Layout::Blocked, 1_000, 0.03)?)?;
    /// let hashes = ["a", "b", "c"].map(|id| Xxh3::of(id.as_bytes()));
    /// std::thread::scope(|scope| {
    ///     for mut shard in filter.shards_mut(2) {
    ///         scope.spawn(move || shard.insert_in_range(&hashes));
    ///     }
    /// });
    /// assert_eq!(filter.freeze().count_hashes(&hashes), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shards_mut(&mut self, n_shards: usize) -> Vec<FilterShard<'_>> {
        let shape = self.shape;
        if shape.layout() != Layout::Blocked {
            let bits = ShardBits::Classic(&mut self.memory);
            return vec![FilterShard { first_block: 0, bits, shape }];
        }
        let (blocks, _) = self.memory.as_chunks_mut();
        let each = blocks.len().div_ceil(n_shards.max(1)).max(1);
        let mut first_block = 0;
        blocks
            .chunks_mut(each)
            .map(|blocks| {
                let shard = FilterShard { first_block, shape, bits: ShardBits::Blocked(blocks) };
                first_block += each;
                shard
            })
            .collect()
    }

    /// Makes it immutable and ready for lookups. Cost: none.
    pub fn freeze(self) -> Filter {
        let body = 0..self.memory.len();
        Filter::new(self.shape, self.memory, body)
    }
}

/// A range of blocks of a [`FilterMut`], filled by one thread.
pub struct FilterShard<'a> {
    shape: Shape,
    first_block: usize,
    bits: ShardBits<'a>,
}

enum ShardBits<'a> {
    Blocked(&'a mut [blocked::Block]),
    Classic(&'a mut [u8]),
}

impl FilterShard<'_> {
    /// Inserts the hashes that belong to this shard, and skips the others.
    ///
    /// Cost: one comparison for a hash that is skipped. So pass each shard only hashes near it.
    ///
    /// # Panics
    /// When the hashes belong to another layout.
    pub fn insert_in_range<H: IdHash>(&mut self, hashes: &[H]) {
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        match &mut self.bits {
            ShardBits::Blocked(blocks) => {
                blocked::insert_in_range(blocks, self.first_block, self.shape, hashes);
            }
            ShardBits::Classic(body) => {
                for hash in hashes {
                    classic::insert(body, self.shape, *hash);
                }
            }
        }
    }

    /// Loads the blocks of the hashes from `first` to `last`, by their high bits, into the cache,
    /// because these hashes are inserted next. Blocks are loaded in order, which is fastest for
    /// memory.
    pub fn prefault(&mut self, first: u64, last: u64) {
        if let ShardBits::Blocked(blocks) = &mut self.bits {
            let block = |hash| blocked::block_of(hash, self.shape.units());
            let start = block(first).saturating_sub(self.first_block).min(blocks.len());
            let end = (block(last) + 1).saturating_sub(self.first_block).min(blocks.len());
            // A write, not a read: new memory would be mapped once for the read and again for the
            // write.
            for block in &mut blocks[start..end.max(start)] {
                block[0] = std::hint::black_box(block[0]);
            }
        }
    }

    /// Which hashes belong to this shard.
    pub fn bounds(&self) -> ShardBounds {
        let blocks = match &self.bits {
            ShardBits::Blocked(blocks) => self.first_block..self.first_block + blocks.len(),
            ShardBits::Classic(_) => 0..usize::MAX,
        };
        ShardBounds { blocks, n_blocks: self.shape.units() }
    }
}

impl fmt::Debug for FilterShard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilterShard { shape, first_block, .. } = self;
        let mut shard = f.debug_struct("FilterShard");
        shard.field("shape", shape).field("first_block", first_block).finish_non_exhaustive()
    }
}

/// The hashes that belong to a [`FilterShard`].
#[derive(Debug)]
pub struct ShardBounds {
    blocks: Range<usize>,
    n_blocks: u64,
}

impl ShardBounds {
    /// Whether a hash from `first` to `last`, by their high bits, may belong to the shard.
    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        blocked::block_of(last, self.n_blocks) >= self.blocks.start
            && blocked::block_of(first, self.n_blocks) < self.blocks.end
    }
}
