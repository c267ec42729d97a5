//! [`Filter`]: a set of IDs we can ask about; [`FilterMut`]: one that is being filled.
//!
//! Layouts differ in how bits are arranged and in their hash; a caller sees bytes in, yes or no out.
//! Serialization is [`crate::blob`]'s business: here a filter is only memory and arithmetic.

pub(crate) mod blocked;
pub(crate) mod guava;
#[allow(unsafe_code)] // instruction sets chosen at run time
pub(crate) mod kernel;
pub mod shape;

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;

use crate::error::Error;
use crate::hash::IdHash;
use crate::memory::Buffer;
use kernel::FilterBits;
pub use kernel::{Kernel, PinnedFilter};
pub use shape::Shape;

/// How bits are arranged in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One 512-bit cache line per ID. The default and the fastest, for fpp from 0.5 to 1e-6.
    Blocked,
    /// The classic Bloom filter, byte for byte what Guava's `BloomFilter.writeTo` writes.
    Guava,
}

impl Layout {
    /// The name used on the command line, in status and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Blocked => "blocked",
            Layout::Guava => "guava",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;
    fn from_str(text: &str) -> Result<Layout, Error> {
        match text {
            "blocked" => Ok(Layout::Blocked),
            "guava" => Ok(Layout::Guava),
            _ => Err(Error::Layout { name: text.chars().take(40).collect() }),
        }
    }
}

/// A filter that answers. Immutable, and cheap to ask from any number of threads.
///
/// It never gives a false negative; a false positive comes with about the fpp it was sized for.
pub struct Filter {
    shape: Shape,
    kernel: Kernel,
    bits: FilterBits,
}

impl Filter {
    /// Views `memory[body]` as a filter, asked through the fastest kernel of this machine.
    ///
    /// # Panics
    /// When the body's length is not the shape's: callers check it before.
    pub(crate) fn new(shape: Shape, memory: Buffer, body: Range<usize>) -> Filter {
        let kernel = Kernel::best();
        Filter { shape, kernel, bits: FilterBits::new(shape, memory, body, kernel) }
    }

    /// Its size and number of probes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The serialized bits: what a blob holds between header and digest.
    pub fn body(&self) -> &[u8] {
        self.bits.body()
    }

    /// Everything the memory holds: for a filter read from a blob, all the blob's bytes.
    pub fn memory(&self) -> &Buffer {
        self.bits.memory()
    }

    /// Gives the memory back, so that the next filter need not touch new memory.
    pub fn into_memory(self) -> Buffer {
        self.bits.into_memory()
    }

    /// The code that tests bits, chosen once when the filter was made.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The same filter asked through another kernel, for comparisons.
    pub fn with_kernel(mut self, kernel: Kernel) -> Filter {
        self.kernel = kernel;
        self.bits = self.bits.by(kernel);
        self
    }

    /// Whether `id` was inserted: "no" is certain, "yes" is wrong with the filter's fpp.
    ///
    /// An ID that is empty or longer than 1,024 bytes is answered "no".
    /// Cost: one hash and one cache miss (`blocked`) or up to one a probe (`guava`).
    #[inline]
    pub fn contains(&self, id: &[u8]) -> bool {
        self.bits.ask(id)
    }

    /// Answers many IDs at once: `answers[i]` becomes what [`Filter::contains`] says of `ids[i]`. Gives
    /// the number answered "yes".
    ///
    /// Cost: a fraction of a single question's, because the cache misses of neighbours overlap.
    ///
    /// # Panics
    /// When `ids` and `answers` differ in length.
    #[inline]
    pub fn contains_batch<T: AsRef<[u8]>>(&self, ids: &[T], answers: &mut [bool]) -> usize {
        match self.shape.layout() {
            Layout::Blocked => self.contains_batch_by(self.kernel, ids, answers),
            Layout::Guava => {
                assert_eq!(ids.len(), answers.len(), "one answer a question");
                let each = ids.iter().zip(answers).map(|(id, answer)| {
                    *answer = self.contains(id.as_ref());
                    usize::from(*answer)
                });
                each.sum()
            }
        }
    }

    /// [`Filter::contains_batch`] of a `blocked` filter by another kernel, for comparisons.
    ///
    /// # Panics
    /// When `ids` and `answers` differ in length, or the filter is not `blocked`.
    pub fn contains_batch_by<T: AsRef<[u8]>>(
        &self,
        kernel: Kernel,
        ids: &[T],
        answers: &mut [bool],
    ) -> usize {
        assert_eq!(ids.len(), answers.len(), "one answer a question");
        assert_eq!(self.shape.layout(), Layout::Blocked, "`guava` has one kernel");
        kernel.blocked_batch(self.body(), self.shape.probes(), ids, answers)
    }

    /// Hashes each ID and touches the cache line it would be in, but tests nothing: what the machine
    /// needs at least, for benchmarks. The sum is of no meaning.
    ///
    /// # Panics
    /// When the filter is not `blocked`.
    pub fn touch<T: AsRef<[u8]>>(&self, ids: &[T]) -> u64 {
        assert_eq!(self.shape.layout(), Layout::Blocked, "only `blocked` has one line an ID");
        kernel::touch(self.body(), ids)
    }

    /// [`Filter::contains`] for an ID that is already hashed.
    ///
    /// # Panics
    /// When the hash belongs to another layout.
    #[inline]
    pub fn contains_hash<H: IdHash>(&self, hash: H) -> bool {
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        match H::LAYOUT {
            Layout::Blocked => {
                self.kernel.blocked(self.body(), self.shape.probes(), hash.high_bits())
            }
            Layout::Guava => guava::contains(self.body(), self.shape, bytemuck::cast(hash)),
        }
    }

    /// How many of these hashes [`Filter::contains_hash`] answers "yes" to. Cost: a fraction of asking
    /// them one by one, less still when neighbours among them are neighbours in the filter.
    ///
    /// # Panics
    /// When the hashes belong to another layout.
    pub fn count_hashes<H: IdHash>(&self, hashes: &[H]) -> usize {
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        match H::LAYOUT {
            Layout::Blocked => self.kernel.blocked_count(self.body(), self.shape.probes(), hashes),
            Layout::Guava => hashes.iter().filter(|hash| self.contains_hash(**hash)).count(),
        }
    }

    /// How many bits are set. Cost: one pass over the body, on up to four threads when it is large.
    pub fn count_ones(&self) -> u64 {
        const LARGE: usize = 8 << 20;
        let bits = match self.shape.layout() {
            Layout::Blocked => self.body(),
            Layout::Guava => &self.body()[guava::HEADER_BYTES..],
        };
        if bits.len() < LARGE {
            return self.kernel.count_ones(bits);
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        std::thread::scope(|scope| {
            let pieces = bits.chunks(bits.len().div_ceil(threads));
            let counts: Vec<_> =
                pieces.map(|piece| scope.spawn(|| self.kernel.count_ones(piece))).collect();
            counts.into_iter().map(|count| count.join().expect("counting does not panic")).sum()
        })
    }

    /// The mean over blocks of (share of bits set)^probes: the fpp these very bits give.
    ///
    /// For `guava` the whole array is the one block. Cost: one pass over the body.
    pub fn fpp_of_bits(&self) -> f64 {
        match self.shape.layout() {
            Layout::Blocked => blocked::fpp_of_bits(self.body(), self.shape.probes()),
            Layout::Guava => {
                let fill = self.count_ones() as f64 / self.shape.bits() as f64;
                libm::pow(fill, f64::from(self.shape.probes()))
            }
        }
    }
}

/// How many bits are set in any bytes, counted by the fastest kernel of this machine.
pub(crate) fn count_ones(bytes: &[u8]) -> u64 {
    Kernel::best().count_ones(bytes)
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({:?}, {:?})", self.shape, self.kernel)
    }
}

/// A filter being filled. [`FilterMut::freeze`] makes it one that answers.
pub struct FilterMut {
    shape: Shape,
    memory: Buffer,
}

impl FilterMut {
    /// An empty filter of this shape, in huge pages where the system has them.
    ///
    /// # Errors
    /// The system's, when it has not that much memory.
    pub fn new(shape: Shape) -> io::Result<FilterMut> {
        let bytes = usize::try_from(shape.body_bytes()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut memory = Buffer::zeroed(bytes)?;
        if shape.layout() == Layout::Guava {
            memory[..guava::HEADER_BYTES].copy_from_slice(&guava::header(shape));
        }
        Ok(FilterMut { shape, memory })
    }

    /// Inserts one ID, already hashed. Inserting it again changes nothing.
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
            Layout::Guava => guava::insert(&mut self.memory, self.shape, bytemuck::cast(hash)),
        }
    }

    /// Cuts the filter into `parts` pieces that can be filled side by side without atomics.
    ///
    /// Only `blocked` can be cut: a hash there touches one block, and a larger hash never touches
    /// an earlier block. `guava`'s probes span the array, so it comes back as one piece.
    pub fn shards_mut(&mut self, parts: usize) -> Vec<FilterShard<'_>> {
        let shape = self.shape;
        if shape.layout() == Layout::Guava {
            return vec![FilterShard {
                first_block: 0,
                piece: Piece::Guava(&mut self.memory),
                shape,
            }];
        }
        let (blocks, _) = self.memory.as_chunks_mut();
        let each = blocks.len().div_ceil(parts.max(1)).max(1);
        let mut first_block = 0;
        blocks
            .chunks_mut(each)
            .map(|piece| {
                let slice = FilterShard { first_block, shape, piece: Piece::Blocked(piece) };
                first_block += each;
                slice
            })
            .collect()
    }

    /// Makes it immutable and ready to answer. Cost: none.
    pub fn freeze(self) -> Filter {
        let body = 0..self.memory.len();
        Filter::new(self.shape, self.memory, body)
    }
}

/// A run of whole blocks of a [`FilterMut`], owned by one filling thread.
pub struct FilterShard<'a> {
    shape: Shape,
    first_block: usize,
    piece: Piece<'a>,
}

enum Piece<'a> {
    Blocked(&'a mut [blocked::Block]),
    Guava(&'a mut [u8]),
}

impl FilterShard<'_> {
    /// Inserts the hashes that belong to this slice and passes over those of its neighbours.
    ///
    /// Cost: one comparison for a hash of a neighbour; so hand each slice only hashes near it.
    ///
    /// # Panics
    /// When the hashes belong to another layout.
    pub fn insert_in_range<H: IdHash>(&mut self, hashes: &[H]) {
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        match &mut self.piece {
            Piece::Blocked(blocks) => {
                blocked::insert_in_range(blocks, self.first_block, self.shape, hashes);
            }
            Piece::Guava(body) => {
                for hash in hashes {
                    guava::insert(body, self.shape, bytemuck::cast(*hash));
                }
            }
        }
    }

    /// Says that hashes from `first` to `last`, by their leading bits, come next: their blocks are brought
    /// into the cache one after the other, which memory does best.
    pub fn prefault(&mut self, first: u64, last: u64) {
        if let Piece::Blocked(blocks) = &mut self.piece {
            let block = |hash| blocked::block_of(hash, self.shape.units());
            let start = block(first).saturating_sub(self.first_block).min(blocks.len());
            let end = (block(last) + 1).saturating_sub(self.first_block).min(blocks.len());
            // Written, not read: new memory would be mapped once to be read and again to be written.
            for block in &mut blocks[start..end.max(start)] {
                block[0] = std::hint::black_box(block[0]);
            }
        }
    }

    /// Which hashes belong to this slice.
    pub fn bounds(&self) -> ShardBounds {
        let blocks = match &self.piece {
            Piece::Blocked(blocks) => self.first_block..self.first_block + blocks.len(),
            Piece::Guava(_) => 0..usize::MAX,
        };
        ShardBounds { blocks, n_blocks: self.shape.units() }
    }
}

/// The hashes that belong to a [`FilterShard`].
pub struct ShardBounds {
    blocks: Range<usize>,
    n_blocks: u64,
}

impl ShardBounds {
    /// Whether a hash from `first` to `last`, by their leading bits, may belong to the slice.
    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        blocked::block_of(last, self.n_blocks) >= self.blocks.start
            && blocked::block_of(first, self.n_blocks) < self.blocks.end
    }
}

#[cfg(test)]
mod tests;
