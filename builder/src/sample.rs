//! [`Sample`]: a fair, bounded choice of the day's raw IDs, kept to be asked of the published bytes.
//!
//! Hashes alone could not show that an ID's bytes reach the right bit; these are asked from scratch.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use bloomsday_common::hash::IdHash;

/// The IDs whose mixed hashes are below a threshold, which is halved whenever they take too much
/// memory: the same choice whatever the order of the input, and each distinct ID as likely as any other.
pub struct Sample {
    /// How much memory it may take.
    most_bytes: usize,
    /// Only IDs below this are still interesting.
    threshold: u64,
    entries: Vec<Entry>,
    /// The ranks of `entries`: an ID that comes again is not kept again.
    ranks: HashSet<u64, BuildHasherDefault<AsItIs>>,
    bytes: Vec<u8>,
}

/// What an entry takes beside its bytes: itself, and its rank in a table that is never quite full.
const ENTRY_BYTES: usize = size_of::<Entry>() + 20;

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
    /// An empty sample; full, it will hold between half of `most_bytes` and all of them.
    pub fn new(most_bytes: usize) -> Sample {
        Sample {
            most_bytes,
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
        while self.entries.len() * ENTRY_BYTES + self.bytes.len() > self.most_bytes {
            self.halve();
        }
    }

    /// Drops the entries of the upper half, about every second one; the others move up, in order.
    fn halve(&mut self) {
        self.threshold /= 2;
        let (threshold, bytes) = (self.threshold, &mut self.bytes);
        let mut end = 0;
        self.entries.retain_mut(|entry| {
            let stays = entry.rank < threshold;
            if stays {
                bytes.copy_within(entry.start..entry.start + entry.len, end);
                entry.start = end;
                end += entry.len;
            }
            stays
        });
        bytes.truncate(end);
        self.ranks.retain(|rank| *rank < threshold);
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::hash::{IdHash, Xxh3};

    use super::*;

    const MOST_BYTES: usize = 16 << 10;

    fn sample(order: impl Iterator<Item = u32>) -> Vec<String> {
        let mut sample = Sample::new(MOST_BYTES);
        for id in order.map(|i| format!("user-{i}")) {
            sample.consider(id.as_bytes(), Xxh3::of(id.as_bytes()));
            let bytes: usize = sample.ids().map(|id| id.len() + ENTRY_BYTES).sum();
            assert!(bytes <= MOST_BYTES, "{bytes} bytes are kept");
        }
        let mut ids: Vec<_> =
            sample.ids().map(|id| String::from_utf8(id.to_vec()).unwrap()).collect();
        ids.sort();
        ids
    }

    #[test]
    fn the_choice_depends_on_the_set_alone() {
        let forward = sample(0..10_000);
        assert!((100..300).contains(&forward.len()), "{} are kept", forward.len());
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
