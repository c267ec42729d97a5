//! [`Sample`]: a fair, bounded choice of the day's raw IDs, kept to be asked of the published bytes.
//!
//! Hashes alone could not show that an ID's bytes reach the right bit; these are asked from scratch.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use bloomsday_common::hash::IdHash;

/// The IDs whose mixed hashes are the smallest: the same choice whatever the order of the input, and
/// each distinct ID as likely as any other.
pub struct Sample {
    wanted: usize,
    /// Only IDs below this are still interesting.
    threshold: u64,
    entries: Vec<Entry>,
    /// The ranks of `entries`: an ID that comes again is not kept again.
    ranks: HashSet<u64, BuildHasherDefault<AsItIs>>,
    bytes: Vec<u8>,
}

/// Ranks are hashes already. The table looks at both ends of a hash, and the top bits of small ranks
/// are zeros: so they are turned once.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a rank is one u64");
    }

    fn write_u64(&mut self, rank: u64) {
        self.0 = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[derive(Clone, Copy)]
struct Entry {
    rank: u64,
    start: usize,
    len: usize,
}

impl Sample {
    /// An empty sample that will keep `wanted` IDs, and up to as many more while it is gathered.
    pub fn new(wanted: usize) -> Sample {
        Sample {
            wanted,
            threshold: u64::MAX,
            entries: Vec::new(),
            ranks: HashSet::default(),
            bytes: Vec::new(),
        }
    }

    /// Considers an ID. Cost: one comparison for nearly all.
    #[inline]
    pub fn consider<H: IdHash>(&mut self, id: &[u8], hash: H) {
        // Reversed, so that the choice is spread over all blocks: those go by the leading bits.
        let rank = hash.leading().reverse_bits();
        if rank < self.threshold {
            self.keep(id, rank);
        }
    }

    /// The chosen IDs.
    pub fn ids(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| &self.bytes[entry.start..entry.start + entry.len])
    }

    #[cold]
    fn keep(&mut self, id: &[u8], rank: u64) {
        if !self.ranks.insert(rank) {
            return;
        }
        self.entries.push(Entry { rank, start: self.bytes.len(), len: id.len() });
        self.bytes.extend_from_slice(id);
        if self.entries.len() >= 2 * self.wanted + 16 {
            self.shrink();
        }
    }

    /// Keeps the smallest ranks. No sorting: which they are takes one pass, on average.
    fn shrink(&mut self) {
        if self.entries.len() <= self.wanted {
            return;
        }
        if self.wanted == 0 {
            self.entries.clear();
            self.threshold = 0;
        } else {
            self.entries.select_nth_unstable_by_key(self.wanted - 1, |entry| entry.rank);
            self.threshold = self.entries[self.wanted - 1].rank;
            self.entries.truncate(self.wanted);
        }
        self.ranks.clear();
        self.ranks.extend(self.entries.iter().map(|entry| entry.rank));
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for entry in &mut self.entries {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[entry.start..entry.start + entry.len]);
            entry.start = start;
        }
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::hash::{IdHash, Xxh3};

    use super::*;

    fn sample(order: impl Iterator<Item = u32>) -> Vec<String> {
        let mut sample = Sample::new(100);
        for id in order.map(|i| format!("user-{i}")) {
            sample.consider(id.as_bytes(), Xxh3::of(id.as_bytes()));
            assert!(sample.entries.len() < 216, "more than twice the wanted ones are kept");
        }
        sample.shrink();
        let mut ids: Vec<_> =
            sample.ids().map(|id| String::from_utf8(id.to_vec()).unwrap()).collect();
        ids.sort();
        ids
    }

    #[test]
    fn the_choice_depends_on_the_set_alone() {
        let forward = sample(0..10_000);
        assert_eq!(forward.len(), 100);
        assert_eq!(sample((0..10_000).rev()), forward);
        assert_eq!(
            sample((0..30_000).map(|i| i % 10_000)),
            forward,
            "duplicates changed the choice"
        );
    }

    #[test]
    fn a_small_day_is_kept_whole() {
        assert_eq!(sample(0..50).len(), 50);
    }
}
