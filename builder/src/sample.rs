//! [`Sample`]: a fair, bounded choice of the day's raw IDs, kept to be asked of the published bytes.
//!
//! Hashes alone could not show that an ID's bytes reach the right bit; these are asked from scratch.

use bloomsday_common::hash::IdHash;

/// The IDs whose mixed hashes are the smallest: the same choice whatever the order of the input, and
/// each distinct ID as likely as any other.
pub struct Sample {
    wanted: usize,
    /// Only IDs below this are still interesting.
    threshold: u64,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Entry {
    rank: u64,
    start: usize,
    len: usize,
}

impl Sample {
    /// An empty sample that will keep `wanted` IDs, and up to a quarter more while it is gathered.
    pub fn new(wanted: usize) -> Sample {
        Sample { wanted, threshold: u64::MAX, entries: Vec::new(), bytes: Vec::new() }
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
        self.entries.push(Entry { rank, start: self.bytes.len(), len: id.len() });
        self.bytes.extend_from_slice(id);
        if self.entries.len() >= self.wanted + self.wanted / 4 + 16 {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.rank);
        self.entries.dedup_by_key(|entry| entry.rank);
        if self.entries.len() > self.wanted {
            self.entries.truncate(self.wanted);
            self.threshold = self.entries.last().map_or(0, |entry| entry.rank);
        }
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
