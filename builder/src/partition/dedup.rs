//! Removes the duplicates of one partition, exactly and in place.
//!
//! Two passes over the partition find the candidates: hashes that share a bit of a bitmap with
//! another hash. If there are few candidates, only they are compared, and only the positions of
//! duplicates are filled again. A partition with many candidates is compared completely.
//!
//! Target of the bitmap: a filled filter in at most 1.9 × decompression (decision 20).
//!
//! | module | does |
//! |---|---|
//! | `table` | a hash table that finds duplicates |

mod table;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::prefetch_all;

use self::table::Table;
use super::slab::{HASHES_PER_CHUNK, PARTITION_BITS, sum_of};

/// The fewest bits of the bitmap for each hash. At most one hash in 16 then shares a bit by chance,
/// and the bitmap of 50,000 hashes has 128 KiB.
const BITS_PER_HASH: usize = 16;
/// With more than one candidate in this many hashes all hashes are compared.
const MIN_HASHES_PER_CANDIDATE: usize = 8;
/// How many hashes are processed between two prefetches of as many hashes of the next chunk. A
/// prefetch of a full chunk at once would be slower.
const PREFETCH_HASHES: usize = 32;
const WORD: usize = u64::BITS as usize;

/// A chunk of a partition. All chunks have the same capacity; the last one may have less.
pub(super) struct Chunk<'a, H> {
    pub(super) hashes: &'a mut [H],
    /// How many of them are in use.
    pub(super) len: usize,
}

impl<H> Chunk<'_, H> {
    fn filled(&self) -> &[H] {
        &self.hashes[..self.len]
    }
}

/// The result for one partition.
pub(super) struct Deduplicated {
    /// The number of distinct hashes. They begin at the start of the first chunk and have no gap.
    pub(super) len: usize,
    /// The sum of all hashes, duplicates included.
    pub(super) sum_before: u64,
    /// The sum that the distinct hashes should have. The next step compares it with what it reads.
    pub(super) sum: u64,
}

/// Removes duplicates on one thread. Its memory is reused for each partition.
pub(super) struct Dedup<H> {
    bitmap: Vec<u64>,
    /// The bits that more than one hash has.
    shared: Vec<usize>,
    /// The hashes with such bits, and their positions, counted as if all chunks were full.
    candidates: Vec<H>,
    positions: Vec<usize>,
    table: Table<H>,
    /// One bit per position: set if it has no hash, or a duplicate.
    free: Vec<u64>,
}

impl<H: IdHash> Dedup<H> {
    pub(super) fn new() -> Dedup<H> {
        Dedup {
            bitmap: Vec::new(),
            shared: Vec::new(),
            candidates: Vec::new(),
            positions: Vec::new(),
            table: Table::new(),
            free: Vec::new(),
        }
    }

    /// Keeps each hash of a partition once, in an undefined order.
    pub(super) fn distinct(&mut self, chunks: &mut [Chunk<'_, H>]) -> Deduplicated {
        let len = chunks.iter().map(|chunk| chunk.len).sum();
        let (sum_before, few) = self.find_candidates(chunks, len);
        let of_few = few.then(|| self.distinct_of_few(chunks, len)).flatten();
        let (len, sum) = match of_few {
            Some((len, others)) => (len, sum_before.wrapping_sub(others)),
            None => self.distinct_of_all(chunks),
        };
        Deduplicated { len, sum_before, sum }
    }

    /// Finds the candidates. Returns the sum of all `len` hashes, and whether the candidates are
    /// few: only then the list is complete.
    fn find_candidates(&mut self, chunks: &[Chunk<'_, H>], len: usize) -> (u64, bool) {
        let bits = (BITS_PER_HASH * len).next_power_of_two().max(WORD);
        let shift = u64::BITS - bits.ilog2();
        let bit = |hash: H| (hash.high_bits() << PARTITION_BITS >> shift) as usize;
        self.bitmap.clear();
        self.bitmap.resize(bits / WORD, 0);
        self.shared.clear();
        self.candidates.clear();
        self.positions.clear();
        let (bitmap, most) = (&mut self.bitmap[..], len / MIN_HASHES_PER_CANDIDATE);
        let mut sum = 0_u64;
        for (number, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(number + 1).map_or(&[][..], Chunk::filled);
            let mut ahead = next.chunks(PREFETCH_HASHES);
            for hashes in chunk.filled().chunks(PREFETCH_HASHES) {
                prefetch_all(ahead.next().unwrap_or_default());
                sum = sum.wrapping_add(sum_of(hashes));
                if self.shared.len() > most {
                    continue;
                }
                for hash in hashes {
                    if set(bitmap, bit(*hash)) {
                        self.shared.push(bit(*hash));
                    }
                }
            }
        }
        if self.shared.len() > most {
            return (sum, false);
        }
        bitmap.fill(0);
        self.shared.iter().for_each(|bit| _ = set(bitmap, *bit));
        for (number, chunk) in chunks.iter().enumerate() {
            for (at, hash) in chunk.filled().iter().enumerate() {
                if is_set(bitmap, bit(*hash)) {
                    self.candidates.push(*hash);
                    self.positions.push(number * HASHES_PER_CHUNK + at);
                }
            }
        }
        (sum, true)
    }

    /// Removes the duplicates among the candidates. Returns how many of `len` hashes are left, and
    /// the sum of the duplicates; `None` if the table cannot hold the candidates.
    fn distinct_of_few(&mut self, chunks: &mut [Chunk<'_, H>], len: usize) -> Option<(usize, u64)> {
        let end = chunks.last().map_or(0, |last| (chunks.len() - 1) * HASHES_PER_CHUNK + last.len);
        self.free.clear();
        self.free.resize(end.div_ceil(WORD), 0);
        for (number, chunk) in chunks.iter().enumerate() {
            let (first, next) = (number * HASHES_PER_CHUNK, (number + 1) * HASHES_PER_CHUNK);
            (first + chunk.len..next.min(end)).for_each(|place| _ = set(&mut self.free, place));
        }
        let (mut left, mut others) = (len, 0_u64);
        let has_all = self.table.find_repeats(&self.candidates, |index| {
            set(&mut self.free, self.positions[index]);
            left -= 1;
            others = others.wrapping_add(sum_of(&self.candidates[index..=index]));
        });
        has_all.then(|| {
            compact(chunks, &self.free, end);
            (left, others)
        })
    }

    /// Compares all hashes of a partition. Returns how many are distinct, and their sum.
    fn distinct_of_all(&mut self, chunks: &mut [Chunk<'_, H>]) -> (usize, u64) {
        let hashes: Vec<&[H]> = chunks.iter().map(Chunk::filled).collect();
        let kept = self.table.distinct(&hashes);
        // Copies even if nothing was removed: the last chunk of each writer may have had a gap.
        for (from, to) in kept.chunks(HASHES_PER_CHUNK).zip(chunks.iter_mut()) {
            to.hashes[..from.len()].copy_from_slice(from);
        }
        (kept.len(), sum_of(kept))
    }
}

/// Moves the last hashes to the free positions before them. `end` is the end of all positions.
fn compact<H: IdHash>(chunks: &mut [Chunk<'_, H>], free: &[u64], mut end: usize) {
    for (number, word) in free.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            let place = number * WORD + word.trailing_zeros() as usize;
            word &= word - 1;
            while end > place && is_set(free, end - 1) {
                end -= 1;
            }
            if end <= place {
                return;
            }
            end -= 1;
            let last = chunks[end / HASHES_PER_CHUNK].hashes[end % HASHES_PER_CHUNK];
            chunks[place / HASHES_PER_CHUNK].hashes[place % HASHES_PER_CHUNK] = last;
        }
    }
}

/// Sets a bit. Returns whether it was set before.
#[inline(always)]
fn set(bits: &mut [u64], at: usize) -> bool {
    let (word, bit) = (&mut bits[at / WORD], 1 << (at % WORD));
    let before = *word & bit != 0;
    *word |= bit;
    before
}

#[inline(always)]
fn is_set(bits: &[u64], at: usize) -> bool {
    bits[at / WORD] >> (at % WORD) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bloomsday_common::hash::{Xxh3, mix64};
    use proptest::prelude::*;

    use super::*;

    /// Lays hashes out as writers do, in chunks that have as many as `lens` says in turn, and
    /// removes the duplicates; twice, since memory is used again.
    fn assert_a_set_is_left(hashes: &[Xxh3], lens: &[usize]) {
        let mut dedup = Dedup::new();
        for _ in 0..2 {
            let (mut memory, mut filled, mut rest) = (Vec::new(), Vec::new(), hashes);
            for len in lens.iter().cycle() {
                let some = rest.split_off(..rest.len().min(*len)).unwrap();
                filled.push(some.len());
                memory.extend_from_slice(some);
                memory.resize(filled.len() * HASHES_PER_CHUNK, Xxh3(!0));
                if rest.is_empty() {
                    break;
                }
            }
            let chunks = memory.chunks_mut(HASHES_PER_CHUNK).zip(filled);
            let mut chunks: Vec<_> = chunks.map(|(hashes, len)| Chunk { hashes, len }).collect();
            let left = dedup.distinct(&mut chunks);
            assert_eq!(left.sum_before, sum_of(hashes));
            assert_eq!(left.sum, sum_of(&memory[..left.len]), "it is not what it should be");
            let expected: BTreeSet<Xxh3> = hashes.iter().copied().collect();
            memory.truncate(left.len);
            memory.sort_unstable();
            assert!(memory.into_iter().eq(expected), "another set is left");
        }
    }

    proptest! {
        #[test]
        fn few_duplicates_and_many_are_removed_and_the_gaps_closed(
            seed: u64,
            n in 1u64..5_000,
            percent_distinct in 1u64..=100,
            lens in proptest::collection::vec(1..=HASHES_PER_CHUNK, 1..9),
        ) {
            let distinct = (n * percent_distinct).div_ceil(100);
            let spread = |i: u64| mix64(seed.wrapping_add(i));
            let hash = |i: u64| Xxh3(spread(i % distinct) >> PARTITION_BITS);
            assert_a_set_is_left(&(0..n).map(hash).collect::<Vec<_>>(), &lens);
        }
    }

    #[test]
    fn a_few_hashes_made_to_collide_among_many_are_still_distinguished() {
        let spread = |i: u64| Xxh3(mix64(i) >> PARTITION_BITS);
        // Neighbours have the same slot of every table there is.
        let collide = (0..400).map(|i| Xxh3(7 + i % 390));
        let hashes: Vec<Xxh3> = (1..8_000).map(spread).chain(collide).collect();
        let mut dedup = Dedup::new();
        let mut of_few = hashes.clone();
        let chunks = of_few.chunks_mut(HASHES_PER_CHUNK);
        let chunks: Vec<_> = chunks.map(|hashes| Chunk { len: hashes.len(), hashes }).collect();
        assert!(dedup.find_candidates(&chunks, hashes.len()).1, "that path is not the one taken");
        assert_a_set_is_left(&hashes, &[HASHES_PER_CHUNK]);
    }
}
