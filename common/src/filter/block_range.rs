//! [`BlockRange`]: a run of blocks of a `blocked` filter, filled or looked up where the whole
//! filter is not in memory. [`OnesHistogram`]: how full the blocks are.

use std::fmt;
use std::ops::Range;

use super::blocked::{self, BLOCK_BITS, Block};
use super::{Layout, Shape};
use crate::hash::{IdHash, Xxh3, is_valid_len};

/// A run of blocks of a `blocked` filter.
///
/// ```
/// use bloomsday_common::filter::{Layout, BlockRange, Shape};
/// use bloomsday_common::hash::{IdHash, Xxh3};
///
/// let shape = Shape::for_ids(Layout::Blocked, 1_000, 0.03)?;
/// let hash = Xxh3::of(b"user-1");
/// // The blocks that the upper half of all hashes belongs to.
/// let mut range = BlockRange::zeroed(shape, BlockRange::blocks_of(shape, 1 << 63, u64::MAX));
/// range.insert(&[hash]);
/// assert_eq!(range.count(&[hash]), usize::from(hash.high_bits() >> 63 == 1));
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub struct BlockRange {
    shape: Shape,
    first: u64,
    blocks: Vec<Block>,
}

impl BlockRange {
    /// How many bytes a block has.
    pub const BLOCK_BYTES: usize = blocked::BLOCK_BYTES;

    /// The blocks of a filter of this shape to which the hashes from `first` to `last` belong.
    pub fn blocks_of(shape: Shape, first: u64, last: u64) -> Range<u64> {
        let block = |hash| blocked::block_of(hash, shape.units()) as u64;
        block(first)..block(last) + 1
    }

    /// These blocks, without any ID.
    ///
    /// # Panics
    /// When the shape is not `blocked`, or does not have these blocks.
    pub fn zeroed(shape: Shape, blocks: Range<u64>) -> BlockRange {
        assert_eq!(shape.layout(), Layout::Blocked, "only `blocked` has one block for each ID");
        assert!(blocks.end <= shape.units(), "{blocks:?} of {} blocks", shape.units());
        let n = usize::try_from(blocks.end - blocks.start).expect("fewer bytes than memory has");
        BlockRange { shape, first: blocks.start, blocks: vec![[0; blocked::BLOCK_BYTES]; n] }
    }

    /// The blocks from `first` on, as a blob has them. Bytes after the last whole block are
    /// ignored.
    ///
    /// # Panics
    /// As [`BlockRange::zeroed`].
    pub fn of_bytes(shape: Shape, first: u64, bytes: &[u8]) -> BlockRange {
        let (blocks, _) = bytes.as_chunks();
        let mut range = BlockRange::zeroed(shape, first..first + blocks.len() as u64);
        range.blocks.copy_from_slice(blocks);
        range
    }

    /// Inserts the hashes that belong to these blocks, and skips the others.
    pub fn insert(&mut self, hashes: &[Xxh3]) {
        // Checked by `zeroed`: memory has so many blocks.
        blocked::insert_in_range(&mut self.blocks, self.first as usize, self.shape, hashes);
    }

    /// For how many of these hashes a lookup is a hit. A hash of another block is a miss.
    pub fn count(&self, hashes: &[Xxh3]) -> usize {
        hashes.iter().filter(|hash| self.contains_hash(**hash)).count()
    }

    /// Whether `id` is a hit. An ID of another block is a miss.
    pub fn contains(&self, id: &[u8]) -> bool {
        is_valid_len(id) && self.contains_hash(Xxh3::of(id))
    }

    #[inline]
    fn contains_hash(&self, hash: Xxh3) -> bool {
        let block = blocked::block_of(hash.0, self.shape.units()).wrapping_sub(self.first as usize);
        let probes = self.shape.probes();
        self.blocks.get(block).is_some_and(|block| blocked::contains(block, probes, hash.0))
    }

    /// Which blocks these are.
    pub fn blocks(&self) -> Range<u64> {
        self.first..self.first + self.blocks.len() as u64
    }

    /// The bytes of these blocks, as a blob has them.
    pub fn bytes(&self) -> &[u8] {
        self.blocks.as_flattened()
    }
}

impl fmt::Debug for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRange({:?}, blocks {:?})", self.shape, self.blocks())
    }
}

/// How many blocks have how many bits set.
#[derive(Clone, PartialEq, Eq)]
pub struct OnesHistogram {
    blocks_with: Vec<u64>,
}

impl OnesHistogram {
    /// How many numbers it has: a block has 0 to 512 bits set.
    pub const LEN: usize = BLOCK_BITS as usize + 1;

    /// Of no blocks.
    pub fn new() -> OnesHistogram {
        OnesHistogram { blocks_with: vec![0; OnesHistogram::LEN] }
    }

    /// From [`OnesHistogram::numbers`]; `None` if these are not [`OnesHistogram::LEN`] numbers.
    pub fn of_numbers(numbers: Vec<u64>) -> Option<OnesHistogram> {
        (numbers.len() == OnesHistogram::LEN).then_some(OnesHistogram { blocks_with: numbers })
    }

    /// The number of blocks with 0, 1, … 512 bits set.
    pub fn numbers(&self) -> &[u64] {
        &self.blocks_with
    }

    /// Counts blocks, by their bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let (blocks, _) = bytes.as_chunks::<{ blocked::BLOCK_BYTES }>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            let ones: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
            self.blocks_with[ones as usize] += 1;
        }
    }

    /// Adds `n` blocks without a set bit.
    pub fn add_empty(&mut self, n: u64) {
        self.blocks_with[0] += n;
    }

    /// Adds the blocks of another.
    pub fn merge(&mut self, other: &OnesHistogram) {
        for (sum, more) in self.blocks_with.iter_mut().zip(&other.blocks_with) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks_with.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The number of set bits in all blocks.
    pub fn ones(&self) -> u64 {
        let products = self.blocks_with.iter().zip(0u64..).map(|(n, ones)| n.saturating_mul(ones));
        products.fold(0, u64::saturating_add)
    }

    /// The fpp of exactly these bits: the mean over blocks of (share of bits set)^probes.
    pub fn fpp(&self, probes: u32) -> f64 {
        // Few terms in a fixed order: exact, and the same on every machine.
        let terms = self.blocks_with.iter().enumerate().map(|(ones, n)| {
            *n as f64 * libm::pow(ones as f64 / BLOCK_BITS as f64, f64::from(probes))
        });
        terms.sum::<f64>() / self.blocks() as f64
    }
}

impl Default for OnesHistogram {
    fn default() -> OnesHistogram {
        OnesHistogram::new()
    }
}

impl fmt::Debug for OnesHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnesHistogram({} blocks, {} ones)", self.blocks(), self.ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FilterMut;

    #[test]
    fn ranges_side_by_side_are_the_filter() {
        let shape = Shape::for_ids(Layout::Blocked, 5_000, 0.01).unwrap();
        let hashes: Vec<Xxh3> =
            (0..5_000).map(|i| Xxh3::of(format!("user-{i}").as_bytes())).collect();
        let mut filter = FilterMut::new(shape).unwrap();
        hashes.iter().for_each(|hash| filter.insert(*hash));
        let filter = filter.freeze();
        let mut histogram = OnesHistogram::new();
        let mut bytes = Vec::new();
        let cuts = [0, 1, 7, shape.units() / 2, shape.units()];
        let mut hits = 0;
        for cut in cuts.windows(2) {
            let mut range = BlockRange::zeroed(shape, cut[0]..cut[1]);
            range.insert(&hashes);
            hits += range.count(&hashes);
            histogram.add(range.bytes());
            bytes.extend_from_slice(range.bytes());
            let again = BlockRange::of_bytes(shape, cut[0], range.bytes());
            assert_eq!(again.count(&hashes), range.count(&hashes));
        }
        assert_eq!(hits, hashes.len());
        assert!(bytes == filter.body());
        assert_eq!((histogram.blocks(), histogram.ones()), (shape.units(), filter.count_ones()));
        assert_eq!(histogram.fpp(shape.probes()), filter.fpp_of_bits());
    }
}
