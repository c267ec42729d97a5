//! [`Table`]: an exact hash table for one partition, small enough for a core's cache.

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::prefetch_all;

use crate::partition::slab::PARTITION_BITS;

/// The most hashes of a table. With eight slots of two bytes each it has at most 512 KiB. Fewer
/// slots would collide more often, and slots with hashes instead of positions would not fit the
/// cache.
const TABLE_HASHES: usize = 1 << 15;
const SLOTS_PER_HASH: usize = 8;
/// The most bits by which a large partition is split: writing 2^10 lists still stays in cache.
const MAX_SPLIT_BITS: u32 = 10;
/// The most slots that are probed for a hash. Only forged hashes need more; they are sorted
/// instead.
const MAX_PROBES: usize = 256;

/// A hash table. Its memory is reused for each partition.
pub(super) struct Table<H> {
    /// The distinct hashes so far.
    kept: Vec<H>,
    /// For each slot the position of its hash among those kept of a list, from 1; 0 if the slot is
    /// free.
    slots: Vec<u16>,
    /// The hashes of a large partition, list by list, and where each list ends.
    lists: Vec<H>,
    ends: Vec<usize>,
}

impl<H: IdHash> Table<H> {
    pub(super) fn new() -> Table<H> {
        Table { kept: Vec::new(), slots: Vec::new(), lists: Vec::new(), ends: Vec::new() }
    }

    /// Returns the distinct hashes of a partition, in an undefined order.
    pub(super) fn distinct(&mut self, pieces: &[&[H]]) -> &[H] {
        let n = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let split_bits = n.div_ceil(TABLE_HASHES).next_power_of_two().ilog2().min(MAX_SPLIT_BITS);
        self.kept.clear();
        if split_bits == 0 {
            self.keep_distinct(pieces, PARTITION_BITS);
            return &self.kept;
        }
        self.split(pieces, n, split_bits);
        let lists = std::mem::take(&mut self.lists);
        let mut start = 0;
        for list in 0..self.ends.len() {
            let end = self.ends[list];
            self.keep_distinct(&[&lists[start..end]], PARTITION_BITS + split_bits);
            start = end;
        }
        self.lists = lists;
        &self.kept
    }

    /// Calls `repeated` with the index of each hash that an earlier index has, too. Returns false
    /// if it could not find all: there were too many hashes, or they were forged to collide.
    #[must_use]
    pub(super) fn find_repeats(&mut self, hashes: &[H], repeated: impl FnMut(usize)) -> bool {
        self.kept.clear();
        self.dedup_into(&[hashes], PARTITION_BITS, repeated)
    }

    /// Divides the hashes into lists by the bits that follow those of the partition.
    fn split(&mut self, pieces: &[&[H]], n: usize, bits: u32) {
        let list = |hash: &H| (hash.high_bits() << PARTITION_BITS >> (u64::BITS - bits)) as usize;
        self.ends.clear();
        self.ends.resize(1 << bits, 0);
        for piece in pieces {
            piece.iter().for_each(|hash| self.ends[list(hash)] += 1);
        }
        let mut before = 0;
        for end in &mut self.ends {
            before += std::mem::replace(end, before);
        }
        // Each entry of `ends` is the next free position of its list, and in the end the list's
        // end.
        self.lists.clear();
        self.lists.resize(n, H::zeroed());
        for piece in pieces {
            for hash in *piece {
                let end = &mut self.ends[list(hash)];
                self.lists[*end] = *hash;
                *end += 1;
            }
        }
    }

    /// Keeps the distinct hashes of a list. All hashes of the list share their first `bits` bits.
    fn keep_distinct(&mut self, list: &[&[H]], bits: u32) {
        let first = self.kept.len();
        if !self.dedup_into(list, bits, |_| ()) {
            self.kept.truncate(first);
            list.iter().for_each(|piece| self.kept.extend_from_slice(piece));
            self.keep_distinct_by_sorting(first);
        }
    }

    /// Does the same for a list whose hashes are in `kept` from `first` on.
    #[cold]
    fn keep_distinct_by_sorting(&mut self, first: usize) {
        let list = &mut self.kept[first..];
        list.sort_unstable();
        let mut distinct = 0;
        for at in 0..list.len() {
            if at == 0 || list[at] != list[distinct - 1] {
                list[distinct] = list[at];
                distinct += 1;
            }
        }
        self.kept.truncate(first + distinct);
    }

    /// Keeps the distinct hashes of a list and calls `repeated` with the indices of the others,
    /// counted through all its pieces. Returns false if it could not, and then some are missing.
    #[inline(always)]
    fn dedup_into(&mut self, list: &[&[H]], bits: u32, mut repeated: impl FnMut(usize)) -> bool {
        let n = list.iter().map(|piece| piece.len()).sum::<usize>();
        let slots = (SLOTS_PER_HASH * n.clamp(1, TABLE_HASHES)).next_power_of_two();
        self.slots.clear();
        self.slots.resize(slots, 0);
        let table = &mut self.slots[..];
        let (shift, mask) = (u64::BITS - slots.ilog2(), slots - 1);
        let first = self.kept.len();
        self.kept.reserve(n);
        let mut before = 0;
        for (number, piece) in list.iter().enumerate() {
            if let Some(next) = list.get(number + 1) {
                prefetch_all(next);
            }
            for (at, hash) in piece.iter().enumerate() {
                let home = (hash.high_bits() << bits >> shift) as usize;
                let mut slots = (home..home + MAX_PROBES).map(|slot| slot & mask);
                let found = slots.find(|slot| match table[*slot] {
                    0 => true,
                    place => self.kept[first + usize::from(place) - 1] == *hash,
                });
                match (found, u16::try_from(self.kept.len() - first + 1)) {
                    (Some(slot), _) if table[slot] != 0 => repeated(before + at),
                    (Some(slot), Ok(place)) => {
                        table[slot] = place;
                        self.kept.push(*hash);
                    }
                    _ => return false,
                }
            }
            before += piece.len();
        }
        true
    }
}
