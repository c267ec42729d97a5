//! Removes the duplicates of one partition, exactly, through a table small enough for a core's cache.

use bloomsday_common::hash::IdHash;

use super::PARTITION_BITS;

/// Hashes that a table takes: with four times as many slots it has 1 MiB at most. With twice as many it is
/// half as large and a fifth slower, as more hashes meet another in their slot.
const TABLE_HASHES: usize = 1 << 15;
/// Bits by which a large partition is split, at most: 2^10 lists are still written in cache.
const MAX_SPLIT_BITS: u32 = 10;
/// A hash that finds no place within so many slots was made to collide: then sorting is surer.
const MAX_STEPS: usize = 256;

/// One thread's way to remove duplicates; its memory is used again for each partition.
pub(super) struct Dedup<H> {
    hashes: Vec<H>,
    table: Vec<H>,
    ends: Vec<usize>,
}

impl<H: IdHash> Dedup<H> {
    pub(super) fn new() -> Dedup<H> {
        Dedup { hashes: Vec::new(), table: Vec::new(), ends: Vec::new() }
    }

    /// The distinct ones of a partition's hashes, in an order of no meaning.
    pub(super) fn distinct(&mut self, pieces: &[&[H]]) -> &[H] {
        let n = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let split_bits = n.div_ceil(TABLE_HASHES).next_power_of_two().ilog2().min(MAX_SPLIT_BITS);
        self.split(pieces, n, split_bits);
        let (mut start, mut kept) = (0, 0);
        for list in 0..self.ends.len() {
            let end = self.ends[list];
            kept = self.keep_distinct(start..end, kept, PARTITION_BITS + split_bits);
            start = end;
        }
        &self.hashes[..kept]
    }

    /// Puts the hashes one after the other, sorted by the bits that follow those of the partition.
    fn split(&mut self, pieces: &[&[H]], n: usize, bits: u32) {
        self.ends.clear();
        self.hashes.clear();
        if bits == 0 {
            pieces.iter().for_each(|piece| self.hashes.extend_from_slice(piece));
            self.ends.push(n);
            return;
        }
        let list = |hash: &H| (hash.leading() << PARTITION_BITS >> (u64::BITS - bits)) as usize;
        self.ends.resize(1 << bits, 0);
        for piece in pieces {
            piece.iter().for_each(|hash| self.ends[list(hash)] += 1);
        }
        let mut before = 0;
        for end in &mut self.ends {
            before += std::mem::replace(end, before);
        }
        // Each begins as where its list starts, and ends as where it ends.
        self.hashes.resize(n, H::zeroed());
        for piece in pieces {
            for hash in *piece {
                let end = &mut self.ends[list(hash)];
                self.hashes[*end] = *hash;
                *end += 1;
            }
        }
    }

    /// Moves the distinct ones of a list to `kept`, which lies at or before it; gives where they end.
    /// All of the list share their first `bits` bits.
    fn keep_distinct(&mut self, list: std::ops::Range<usize>, kept: usize, bits: u32) -> usize {
        let empty = H::zeroed();
        let table_bits = (4 * list.len()).next_power_of_two().ilog2().max(1);
        self.table.clear();
        self.table.resize(1 << table_bits, empty);
        let table = &mut self.table[..];
        let mask = table.len() - 1;
        let (mut end, mut empty_seen) = (kept, false);
        for at in list.clone() {
            let hash = self.hashes[at];
            if hash == empty {
                // The one hash that the table cannot tell from a free slot.
                if !std::mem::replace(&mut empty_seen, true) {
                    self.hashes[end] = hash;
                    end += 1;
                }
                continue;
            }
            let mut slot = (hash.leading() << bits >> (u64::BITS - table_bits)) as usize;
            let mut steps = 0;
            while table[slot & mask] != empty && table[slot & mask] != hash {
                slot += 1;
                steps += 1;
                if steps == MAX_STEPS {
                    return self.keep_distinct_by_sorting(at..list.end, kept, end);
                }
            }
            // Without a branch on whether it is new: a free slot is taken, its own is written again.
            let new = table[slot & mask] == empty;
            table[slot & mask] = hash;
            self.hashes[end] = hash;
            end += usize::from(new);
        }
        end
    }

    /// The same for a list of which `kept..end` is done and `rest` is not.
    #[cold]
    fn keep_distinct_by_sorting(
        &mut self,
        rest: std::ops::Range<usize>,
        kept: usize,
        end: usize,
    ) -> usize {
        let n = rest.len();
        self.hashes.copy_within(rest, end);
        let list = &mut self.hashes[kept..end + n];
        list.sort_unstable();
        let mut distinct = 0;
        for at in 0..list.len() {
            if at == 0 || list[at] != list[distinct - 1] {
                list[distinct] = list[at];
                distinct += 1;
            }
        }
        kept + distinct
    }
}
