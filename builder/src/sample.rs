//! [`Sample`]: a fair, bounded choice of the day's raw IDs, kept to be asked of the published bytes.
//!
//! Hashes alone could not show that an ID's bytes reach the right bit; these are asked from scratch.

use std::io;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::Buffer;

/// The IDs whose mixed hashes are below a threshold, which is halved whenever they take too much
/// memory: the same choice whatever the order of the input, and each distinct ID as likely as any other.
pub struct Sample {
    /// How much memory it may take.
    most_bytes: usize,
    /// Only IDs below this are still interesting.
    threshold: u64,
    entries: Vec<Entry>,
    /// The ranks of `entries`: an ID that comes again is not kept again.
    ranks: Ranks,
    bytes: Vec<u8>,
}

/// What an entry takes beside its bytes: itself, and four slots for its rank, as many as there are at most.
const ENTRY_BYTES: usize = size_of::<Entry>() + 4 * size_of::<u64>();

#[derive(Clone, Copy)]
struct Entry {
    rank: u64,
    start: u32,
    len: u16,
}

impl Entry {
    fn place(&self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + usize::from(self.len)
    }
}

impl Sample {
    /// An empty sample; full, it will hold between half of `most_bytes` and all of them.
    ///
    /// # Errors
    /// The system's, when it has no memory to begin with.
    pub fn new(most_bytes: usize) -> io::Result<Sample> {
        Ok(Sample {
            most_bytes: most_bytes.min(u32::MAX as usize),
            threshold: u64::MAX,
            entries: Vec::new(),
            ranks: Ranks::new(1 << 10)?,
            bytes: Vec::new(),
        })
    }

    /// Considers an ID. Cost: one comparison for nearly all.
    #[inline]
    pub fn consider<H: IdHash>(&mut self, id: &[u8], hash: H) {
        // Turned round, so that the choice is spread over all blocks: those go by the leading bits.
        let rank = hash.leading().swap_bytes();
        if rank < self.threshold {
            self.keep(id, rank);
        }
    }

    /// The chosen IDs.
    pub fn ids(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| &self.bytes[entry.place()])
    }

    #[cold]
    fn keep(&mut self, id: &[u8], rank: u64) {
        if !self.ranks.insert(rank) {
            return;
        }
        // Both fit: an ID is short, and all of them together take less than 4 GiB.
        let (start, len) = (self.bytes.len() as u32, id.len() as u16);
        self.entries.push(Entry { rank, start, len });
        self.bytes.extend_from_slice(id);
        while self.entries.len() * ENTRY_BYTES + self.bytes.len() > self.most_bytes {
            self.halve();
        }
        if self.ranks.is_full(self.entries.len()) {
            match Ranks::new(2 * self.ranks.n_slots()) {
                Ok(larger) => {
                    self.ranks = larger;
                    self.ranks.insert_all(&self.entries);
                }
                // Fewer IDs are better than no build.
                Err(_) => self.halve(),
            }
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
                let place = entry.place();
                entry.start = end as u32;
                end += place.len();
                bytes.copy_within(place, entry.start as usize);
            }
            stays
        });
        bytes.truncate(end);
        self.ranks.clear();
        self.ranks.insert_all(&self.entries);
    }
}

/// A set of ranks, open addressing in huge pages: a rank finds its slot by one miss of the cache, and none
/// of the TLB.
struct Ranks(Buffer);

impl Ranks {
    /// Ranks that find no place within so many slots were made to collide, and are not kept.
    const MAX_STEPS: usize = 64;

    /// Room for half as many ranks as slots, a power of two.
    fn new(n_slots: usize) -> io::Result<Ranks> {
        Buffer::zeroed(n_slots * size_of::<u64>()).map(Ranks)
    }

    fn n_slots(&self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    fn is_full(&self, n_ranks: usize) -> bool {
        2 * n_ranks >= self.n_slots()
    }

    /// Whether the rank was not there.
    #[inline]
    fn insert(&mut self, rank: u64) -> bool {
        // Zero means that a slot is free.
        let rank = rank.max(1);
        let slots: &mut [u64] = bytemuck::cast_slice_mut(&mut self.0);
        let mask = slots.len() - 1;
        // A threshold limits the leading bits only.
        for step in 0..Ranks::MAX_STEPS {
            let slot = &mut slots[(rank as usize).wrapping_add(step) & mask];
            if *slot == rank {
                return false;
            }
            if *slot == 0 {
                *slot = rank;
                return true;
            }
        }
        false
    }

    fn insert_all(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| _ = self.insert(entry.rank));
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::hash::{IdHash, Xxh3};

    use super::*;

    const MOST_BYTES: usize = 16 << 10;

    fn sample(most_bytes: usize, order: impl Iterator<Item = u32>) -> Vec<String> {
        let mut sample = Sample::new(most_bytes).unwrap();
        for id in order.map(|i| format!("user-{i}")) {
            sample.consider(id.as_bytes(), Xxh3::of(id.as_bytes()));
        }
        let bytes: usize = sample.ids().map(|id| id.len() + ENTRY_BYTES).sum();
        assert!(bytes <= most_bytes, "{bytes} bytes are kept");
        assert!(sample.ranks.0.len() <= 4 * size_of::<u64>() * sample.entries.len().max(256));
        let mut ids: Vec<_> =
            sample.ids().map(|id| String::from_utf8(id.to_vec()).unwrap()).collect();
        ids.sort();
        ids
    }

    #[test]
    fn the_choice_depends_on_the_set_alone() {
        let forward = sample(MOST_BYTES, 0..10_000);
        assert!((100..300).contains(&forward.len()), "{} are kept", forward.len());
        assert_eq!(sample(MOST_BYTES, (0..10_000).rev()), forward);
        assert_eq!(
            sample(MOST_BYTES, (0..30_000).map(|i| i % 10_000)),
            forward,
            "duplicates changed the choice"
        );
    }

    #[test]
    fn a_small_day_is_kept_whole_and_each_id_once() {
        assert_eq!(sample(MOST_BYTES, 0..50).len(), 50);
        assert_eq!(sample(1 << 20, (0..30_000).map(|i| i % 10_000)).len(), 10_000);
    }
}
