//! [`Filter`]: an immutable set of IDs for lookups. [`FilterMut`]: one that is being filled.
//!
//! Layouts differ in how bits are arranged and in their hash. A caller passes bytes and gets a
//! `bool`. Serialization is in [`crate::blob`]; here a filter is only memory and arithmetic.

mod block_range;
pub(crate) mod blocked;
pub(crate) mod classic;
mod fill;
#[allow(unsafe_code)] // instruction sets chosen at run time
pub(crate) mod kernel;
pub mod layout;
mod overlay;
pub mod shape;

use std::fmt;
use std::ops::Range;

use crate::hash::IdHash;
use crate::id_form::IdForm;
use crate::memory::Buffer;
pub use block_range::{BlockRange, OnesHistogram};
pub use fill::{FilterMut, FilterShard, ShardBounds};
use kernel::FilterBits;
pub use kernel::{KeptFilter, Kernel};
pub use layout::Layout;
pub use overlay::Overlay;
pub use shape::Shape;

/// An immutable set of IDs. Lookups are cheap, and any number of threads can make them.
///
/// A lookup never returns a false negative. It returns a false positive with about the fpp that the
/// filter was sized for.
///
/// ```
/// use bloomsday_common::filter::{Filter, FilterMut, Layout, Shape};
/// use bloomsday_common::hash::{IdHash, Xxh3};
///
/// let mut filter = FilterMut::new(Shape::for_ids(Layout::Blocked, 1_000, 0.001)?)?;
/// filter.insert(Xxh3::of(b"0123456789abcdef0123456789abcdef"));
/// let filter: Filter = filter.freeze();
///
/// assert!(filter.contains(b"0123456789abcdef0123456789abcdef"));
/// assert!(!filter.contains(b"")); // an empty ID is never in a filter
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Filter {
    shape: Shape,
    kernel: Kernel,
    bits: FilterBits,
}

impl Filter {
    /// Views `memory[body]` as a filter, with the fastest kernel of this machine.
    ///
    /// # Panics
    /// When the body's length is not the shape's: callers check it before.
    pub(crate) fn new(shape: Shape, memory: Buffer, body: Range<usize>) -> Filter {
        let kernel = Kernel::best();
        Filter { shape, kernel, bits: FilterBits::new(shape, memory, body, kernel) }
    }

    /// The same filter, for IDs of this form. The hashes in it are of that form already.
    pub(crate) fn with_id_form(mut self, form: IdForm) -> Filter {
        self.bits = self.bits.with_id_form(form, self.kernel);
        self
    }

    /// What is hashed of the IDs that are looked up.
    pub fn id_form(&self) -> IdForm {
        self.bits.id_form()
    }

    /// Its size and number of probes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The serialized bits: what a blob has between its header and its digest.
    pub fn body(&self) -> &[u8] {
        self.bits.body()
    }

    /// All of its memory: for a filter that was read from a blob, all bytes of the blob.
    pub fn memory(&self) -> &Buffer {
        self.bits.memory()
    }

    /// Returns the memory, so that the next filter can be loaded into pages that are mapped
    /// already.
    pub fn into_memory(self) -> Buffer {
        self.bits.into_memory()
    }

    /// The code that tests bits, chosen when the filter was made.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Whether `id` was inserted: `false` is certain, `true` is wrong with the filter's fpp.
    ///
    /// An ID that is empty or longer than 1,024 bytes is always a miss.
    ///
    /// Cost: one hash, and one cache miss (`blocked`) or up to one for each probe (the others).
    #[inline]
    pub fn contains(&self, id: &[u8]) -> bool {
        self.bits.contains(id)
    }

    /// Looks up many IDs: `hits[i]` becomes what [`Filter::contains`] returns for `ids[i]`. Returns
    /// the number of hits.
    ///
    /// Cost: a fraction of that of single lookups, because the cache misses of neighbours overlap.
    ///
    /// ```
    /// # use bloomsday_common::filter::{FilterMut, Layout, Shape};
    /// # use bloomsday_common::hash::{IdHash, Xxh3};
    /// # let mut filter = FilterMut::new(Shape::for_ids(Layout::Blocked, 1_000, 1e-6)?)?;
    /// # filter.insert(Xxh3::of(b"user-1"));
    /// # let filter = filter.freeze();
    /// let ids = ["user-1", "user-2", ""];
    /// let mut hits = [false; 3];
    /// assert_eq!(filter.contains_batch(&ids, &mut hits), 1);
    /// assert_eq!(hits, [true, false, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `ids` and `hits` differ in length.
    #[inline]
    pub fn contains_batch<T: AsRef<[u8]>>(&self, ids: &[T], hits: &mut [bool]) -> usize {
        if self.has_plain_hashes() {
            return self.contains_batch_by(self.kernel, ids, hits);
        }
        // To normalise a URL takes far longer than to read its block.
        assert_eq!(ids.len(), hits.len(), "one result for each ID");
        let each = ids.iter().zip(hits).map(|(id, hit)| {
            *hit = self.contains(id.as_ref());
            usize::from(*hit)
        });
        each.sum()
    }

    /// As [`Filter::contains_batch`], where `over` sees each result and gives the answer. Returns
    /// `None`, without a lookup, if the layout is not `blocked` or an ID is not hashed as its
    /// bytes.
    ///
    /// Cost: the cache misses of both overlap.
    ///
    /// # Panics
    /// When `ids` and `hits` differ in length.
    #[inline]
    pub fn contains_batch_under<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        hits: &mut [bool],
        over: &impl Overlay,
    ) -> Option<usize> {
        assert_eq!(ids.len(), hits.len(), "one result for each ID");
        let (body, probes) = (self.body(), self.shape.probes());
        self.has_plain_hashes().then(|| self.kernel.contains_batch(body, probes, ids, hits, over))
    }

    #[inline]
    fn has_plain_hashes(&self) -> bool {
        (self.shape.layout(), self.id_form()) == (Layout::Blocked, IdForm::Bytes)
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
                self.kernel.contains(self.body(), self.shape.probes(), hash.high_bits())
            }
            _ => classic::contains(self.body(), self.shape, hash),
        }
    }

    /// Looks up many hashes: `hits[i]` becomes what [`Filter::contains_hash`] returns for
    /// `hashes[i]`.
    ///
    /// Cost: a fraction of that of single lookups, because the cache misses of neighbours overlap.
    ///
    /// # Panics
    /// When `hashes` and `hits` differ in length, or the hashes belong to another layout.
    pub fn contains_hashes<H: IdHash>(&self, hashes: &[H], hits: &mut [bool]) {
        assert_eq!(hashes.len(), hits.len(), "one result for each hash");
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        let found = |i: usize, hit| hits[i] = hit;
        match H::LAYOUT {
            Layout::Blocked => {
                self.kernel.contains_hashes(self.body(), self.shape.probes(), hashes, found)
            }
            _ => hashes.iter().zip(hits).for_each(|(hash, hit)| *hit = self.contains_hash(*hash)),
        }
    }

    /// For how many of these hashes [`Filter::contains_hash`] returns `true`.
    ///
    /// Cost: a fraction of that of single lookups, and less still for hashes in ascending order.
    ///
    /// # Panics
    /// When the hashes belong to another layout.
    pub fn count_hashes<H: IdHash>(&self, hashes: &[H]) -> usize {
        assert_eq!(H::LAYOUT, self.shape.layout(), "a hash belongs to its layout");
        match H::LAYOUT {
            Layout::Blocked => self.kernel.count(self.body(), self.shape.probes(), hashes),
            _ => hashes.iter().filter(|hash| self.contains_hash(**hash)).count(),
        }
    }

    /// How many bits are set.
    ///
    /// Cost: one pass over the body, on up to four threads when it is large.
    pub fn count_ones(&self) -> u64 {
        const MIN_PARALLEL_BYTES: usize = 8 << 20;
        const MAX_THREADS: usize = 4;
        let bits = &self.body()[classic::header_bytes(self.shape.layout())..];
        if bits.len() < MIN_PARALLEL_BYTES {
            return self.kernel.count_ones(bits);
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        std::thread::scope(|scope| {
            let chunks = bits.chunks(bits.len().div_ceil(threads));
            let counts: Vec<_> =
                chunks.map(|chunk| scope.spawn(|| self.kernel.count_ones(chunk))).collect();
            counts.into_iter().map(|count| count.join().expect("counting does not panic")).sum()
        })
    }

    /// The fpp of exactly these bits: the mean over blocks of (share of bits set)^probes.
    ///
    /// For a classic layout the array is one block. Cost: one pass over the body.
    pub fn fpp_of_bits(&self) -> f64 {
        match self.shape.layout() {
            Layout::Blocked => {
                let mut blocks = OnesHistogram::new();
                blocks.add(self.body());
                blocks.fpp(self.shape.probes())
            }
            _ => {
                let fill = self.count_ones() as f64 / self.shape.bits() as f64;
                libm::pow(fill, f64::from(self.shape.probes()))
            }
        }
    }
}

/// For benchmarks and tests only: comparisons of kernels, and a lower bound for lookups.
#[doc(hidden)]
impl Filter {
    /// The same filter with another kernel.
    pub fn with_kernel(mut self, kernel: Kernel) -> Filter {
        self.kernel = kernel;
        self.bits = self.bits.with_kernel(kernel);
        self
    }

    /// [`Filter::contains_batch`] of a `blocked` filter of bytes through another kernel.
    ///
    /// # Panics
    /// When `ids` and `hits` differ in length, or the filter is not `blocked`.
    pub fn contains_batch_by<T: AsRef<[u8]>>(
        &self,
        kernel: Kernel,
        ids: &[T],
        hits: &mut [bool],
    ) -> usize {
        assert_eq!(ids.len(), hits.len(), "one result for each ID");
        assert_eq!(self.shape.layout(), Layout::Blocked, "the other layouts have one kernel");
        kernel.contains_batch(self.body(), self.shape.probes(), ids, hits, &())
    }

    /// Hashes each ID and reads a byte of its block, but tests no bit: the least that a lookup must
    /// do. The sum means nothing; it keeps the compiler from removing the reads.
    ///
    /// # Panics
    /// When the filter is not `blocked`.
    pub fn touch<T: AsRef<[u8]>>(&self, ids: &[T]) -> u64 {
        assert_eq!(self.shape.layout(), Layout::Blocked, "only `blocked` has one block per ID");
        kernel::touch(self.body(), ids)
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

#[cfg(test)]
mod tests;
