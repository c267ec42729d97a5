//! Removes the duplicates of one partition, exactly, where its hashes lie.
//!
//! Two looks at the partition find those hashes that can be duplicates at all: they share a bit of a bitmap
//! with another one. Where they are few, only they are compared, and only their places are filled again. A
//! partition of many duplicates is compared as a whole.
//!
//! | module | does |
//! |---|---|
//! | `table` | tells hashes apart |

mod table;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::prefetch_all;

use self::table::Table;
use super::{CHUNK, PARTITION_BITS, sum_of};

/// Bits of the bitmap for each hash, at least: one hash in 16 or less then shares a bit with another by
/// chance, and the bitmap of 50,000 has 128 KiB. With half as many all takes longer.
const BITS_A_HASH: usize = 16;
/// With more than one duplicate in so many hashes all of them are compared.
const FEW: usize = 8;
/// Hashes looked at while as many of the next chunk are asked of memory. Asking for a whole chunk at once
/// takes a tenth longer.
const AT_A_TIME: usize = 32;
const WORD: usize = u64::BITS as usize;

/// A chunk of a partition. All have room for as many hashes, but for the last, which may have less.
pub(super) struct Chunk<'a, H> {
    pub(super) hashes: &'a mut [H],
    /// How many of them are filled in.
    pub(super) len: usize,
}

impl<H> Chunk<'_, H> {
    fn filled(&self) -> &[H] {
        &self.hashes[..self.len]
    }
}

/// What is left of a partition.
pub(super) struct Left {
    /// How many hashes, from the start of the first chunk on and without a gap.
    pub(super) len: usize,
    /// The sum of all that were there.
    pub(super) sum_before: u64,
    /// The sum that those left should have: of what is there in truth, whoever reads it next takes it.
    pub(super) sum: u64,
}

/// One thread's way to remove duplicates; its memory is used again for each partition.
pub(super) struct Dedup<H> {
    bitmap: Vec<u64>,
    /// Bits that were set when a hash came to set them.
    shared: Vec<usize>,
    /// The hashes of such bits, and their places, counted over all chunks as if each were full.
    suspects: Vec<H>,
    places: Vec<usize>,
    table: Table<H>,
    /// Which places have no hash, or a duplicate: a bit for each.
    free: Vec<u64>,
}

impl<H: IdHash> Dedup<H> {
    pub(super) fn new() -> Dedup<H> {
        Dedup {
            bitmap: Vec::new(),
            shared: Vec::new(),
            suspects: Vec::new(),
            places: Vec::new(),
            table: Table::new(),
            free: Vec::new(),
        }
    }

    /// Leaves each hash of a partition once, in an order of no meaning.
    pub(super) fn distinct(&mut self, chunks: &mut [Chunk<'_, H>]) -> Left {
        let len = chunks.iter().map(|chunk| chunk.len).sum();
        let (sum_before, few) = self.suspect(chunks, len);
        let of_few = few.then(|| self.distinct_of_few(chunks, len)).flatten();
        let (len, sum) = match of_few {
            Some((len, others)) => (len, sum_before.wrapping_sub(others)),
            None => self.distinct_of_all(chunks),
        };
        Left { len, sum_before, sum }
    }

    /// Finds the suspects. Gives the sum of all `len` hashes, and whether there are so few that none of them
    /// is missing.
    fn suspect(&mut self, chunks: &[Chunk<'_, H>], len: usize) -> (u64, bool) {
        let bits = (BITS_A_HASH * len).next_power_of_two().max(WORD);
        let shift = u64::BITS - bits.ilog2();
        let bit = |hash: H| (hash.high_bits() << PARTITION_BITS >> shift) as usize;
        self.bitmap.clear();
        self.bitmap.resize(bits / WORD, 0);
        self.shared.clear();
        self.suspects.clear();
        self.places.clear();
        let (bitmap, most) = (&mut self.bitmap[..], len / FEW);
        let mut sum = 0_u64;
        for (number, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(number + 1).map_or(&[][..], Chunk::filled);
            let mut ahead = next.chunks(AT_A_TIME);
            for hashes in chunk.filled().chunks(AT_A_TIME) {
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
                    self.suspects.push(*hash);
                    self.places.push(number * CHUNK + at);
                }
            }
        }
        (sum, true)
    }

    /// Removes the duplicates among the suspects; `None` when they cannot be told apart. Gives how many of
    /// `len` hashes are left, and the sum of the others.
    fn distinct_of_few(&mut self, chunks: &mut [Chunk<'_, H>], len: usize) -> Option<(usize, u64)> {
        let end = chunks.last().map_or(0, |last| (chunks.len() - 1) * CHUNK + last.len);
        self.free.clear();
        self.free.resize(end.div_ceil(WORD), 0);
        for (number, chunk) in chunks.iter().enumerate() {
            let (first, next) = (number * CHUNK, (number + 1) * CHUNK);
            (first + chunk.len..next.min(end)).for_each(|place| _ = set(&mut self.free, place));
        }
        let (mut left, mut others) = (len, 0_u64);
        let told_apart = self.table.repeated(&self.suspects, |index| {
            set(&mut self.free, self.places[index]);
            left -= 1;
            others = others.wrapping_add(sum_of(&self.suspects[index..=index]));
        });
        told_apart.then(|| {
            close(chunks, &self.free, end);
            (left, others)
        })
    }

    /// The same for a partition as a whole; gives the sum of those that are left.
    fn distinct_of_all(&mut self, chunks: &mut [Chunk<'_, H>]) -> (usize, u64) {
        let hashes: Vec<&[H]> = chunks.iter().map(Chunk::filled).collect();
        let kept = self.table.distinct(&hashes);
        // Also when there was no other: the last chunk of each feeder had room, and now only the last of all.
        for (from, to) in kept.chunks(CHUNK).zip(chunks.iter_mut()) {
            to.hashes[..from.len()].copy_from_slice(from);
        }
        (kept.len(), sum_of(kept))
    }
}

/// Moves the last hashes into the free places before them. The places that there are end at `end`.
fn close<H: IdHash>(chunks: &mut [Chunk<'_, H>], free: &[u64], mut end: usize) {
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
            let last = chunks[end / CHUNK].hashes[end % CHUNK];
            chunks[place / CHUNK].hashes[place % CHUNK] = last;
        }
    }
}

/// Sets a bit. Gives whether it was set before.
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

    use bloomsday_common::hash::Xxh3;
    use proptest::prelude::*;

    use super::*;

    /// Lays hashes out as feeders do, in chunks that have as many as `lens` says in turn, and removes the
    /// duplicates; twice, since memory is used again.
    fn assert_a_set_is_left(hashes: &[Xxh3], lens: &[usize]) {
        let mut dedup = Dedup::new();
        for _ in 0..2 {
            let (mut memory, mut filled, mut rest) = (Vec::new(), Vec::new(), hashes);
            for len in lens.iter().cycle() {
                let some = rest.split_off(..rest.len().min(*len)).unwrap();
                filled.push(some.len());
                memory.extend_from_slice(some);
                memory.resize(filled.len() * CHUNK, Xxh3(!0));
                if rest.is_empty() {
                    break;
                }
            }
            let chunks = memory.chunks_mut(CHUNK).zip(filled);
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
            lens in proptest::collection::vec(1..=CHUNK, 1..9),
        ) {
            let distinct = (n * percent_distinct).div_ceil(100);
            let spread = |i: u64| seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hash = |i: u64| Xxh3(spread(i % distinct) >> PARTITION_BITS);
            assert_a_set_is_left(&(0..n).map(hash).collect::<Vec<_>>(), &lens);
        }
    }

    #[test]
    fn a_few_hashes_made_to_collide_among_many_are_still_told_apart() {
        let spread = |i: u64| Xxh3(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> PARTITION_BITS);
        // Neighbours have the same slot of every table there is.
        let collide = (0..400).map(|i| Xxh3(7 + i % 390));
        let hashes: Vec<Xxh3> = (1..8_000).map(spread).chain(collide).collect();
        let mut dedup = Dedup::new();
        let mut of_few = hashes.clone();
        let chunks = of_few.chunks_mut(CHUNK);
        let chunks: Vec<_> = chunks.map(|hashes| Chunk { len: hashes.len(), hashes }).collect();
        assert!(dedup.suspect(&chunks, hashes.len()).1, "that path is not the one taken");
        assert_a_set_is_left(&hashes, &[CHUNK]);
    }
}
