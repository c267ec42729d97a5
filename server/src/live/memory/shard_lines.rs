//! [`ShardLines`]: the lines of one shard of a table, and a small Bloom filter in front of them.
//!
//! Most lookups are of IDs that are not alive. The prefilter has a word of 64 bits for each line.
//! 98 of 100 lookups of a hash that is not there end in it; in the lines, one of four would go on
//! in a second line. In a large table it takes an eighth of the lines' memory, and may stay in the
//! processor's cache where they do not.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bloomsday_common::live::entry::{self, EMPTY, TOMBSTONE};
use bloomsday_common::memory::{LINE_WORDS, Line, LineArena, Lines, prefetch_all};

/// How many lines have their words in one line of the prefilter.
pub(super) const LINES_PER_PREFILTER_LINE: usize = LINE_WORDS;

/// Lines of words, and their prefilter. Cheap to clone: clones are the same lines.
#[derive(Clone, Debug)]
pub(in crate::live) struct ShardLines {
    /// The lines, and after them the prefilter: in one piece, so that both are in huge pages.
    all: Lines,
    len: usize,
}

/// The word of the prefilter for one hash.
#[derive(Clone, Copy)]
pub(in crate::live) struct PrefilterWord<'a>(&'a AtomicU64);

impl PrefilterWord<'_> {
    /// Whether the lines may have this hash. False only if they do not have it.
    #[inline(always)]
    pub(in crate::live) fn may_have(self, hash: u64) -> bool {
        self.0.load(Ordering::Relaxed) & bits_of(hash) == bits_of(hash)
    }
}

impl ShardLines {
    /// Lines that are all empty.
    ///
    /// # Errors
    /// The system's, when it refuses that much address space.
    pub(super) fn new(arena: &mut LineArena, len: usize) -> io::Result<ShardLines> {
        Ok(ShardLines { all: arena.lines(len + prefilter_lines(len))?, len })
    }

    /// The bytes of this many lines with their prefilter.
    pub(super) const fn bytes_of(len: usize) -> u64 {
        (len as u64 + prefilter_lines(len) as u64).saturating_mul(size_of::<Line>() as u64)
    }

    #[inline(always)]
    pub(super) fn lines(&self) -> &[Line] {
        &self.all[..self.len]
    }

    /// The number of the line in which the search for a hash begins.
    #[inline(always)]
    pub(super) fn begin(&self, hash: u64) -> usize {
        entry::line_of(hash, self.len)
    }

    /// Fetches the line in which the search for a hash begins. For most it ends there, too.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let begin = self.begin(hash);
        prefetch_all(&self.all[begin..=begin]);
    }

    /// Fetches what [`ShardLines::may_have`] reads.
    #[inline(always)]
    pub(super) fn prefetch_prefilter(&self, hash: u64) -> PrefilterWord<'_> {
        let word = self.word(hash);
        prefetch_all(std::slice::from_ref(word));
        PrefilterWord(word)
    }

    /// Whether the lines may have a hash. False only if they do not have it.
    #[inline(always)]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        PrefilterWord(self.word(hash)).may_have(hash)
    }

    /// As [`ShardLines::may_have`]. If so, the line in which the search begins is fetched.
    #[inline(always)]
    pub(super) fn prefetch_if_may_have(&self, hash: u64) -> bool {
        let begin = self.begin(hash);
        let prefilter = self.len + begin / LINES_PER_PREFILTER_LINE;
        let may_have = self.may_have(hash);
        // If not, the line that was just read is fetched again, which costs less than a branch that
        // cannot be predicted.
        let next = if may_have { begin } else { prefilter };
        prefetch_all(&self.all[next..=next]);
        may_have
    }

    /// Lets the prefilter know a hash. To be called by the writer before it puts the hash into a
    /// line.
    #[inline]
    pub(super) fn mark(&self, hash: u64) {
        let word = self.word(hash);
        // There is one writer, so nothing comes between.
        word.store(word.load(Ordering::Relaxed) | bits_of(hash), Ordering::Relaxed);
    }

    /// Frees the slots of words that have ended, and makes the prefilter forget what is in the
    /// lines no more. To be called by the writer.
    pub(super) fn sweep(&self, mut has_ended: impl FnMut(u64) -> bool) {
        let mut fresh = vec![0; self.len];
        for slot in self.lines().iter().flat_map(|line| &line.0) {
            let word = slot.load(Ordering::Relaxed);
            if word == EMPTY || word == TOMBSTONE {
                continue;
            }
            if has_ended(word) {
                slot.store(TOMBSTONE, Ordering::Relaxed);
                continue;
            }
            // Its shard, which is missing here, chooses neither line nor bits.
            let hash = word >> 8;
            fresh[self.begin(hash)] |= bits_of(hash);
        }
        self.set_prefilter(fresh);
    }

    /// Gives each line its word of the prefilter. To be called by the writer.
    pub(super) fn set_prefilter(&self, fresh: Vec<u64>) {
        // One store for each word: a lookup finds the bits of a hash that is there in the old and
        // in the new word.
        for (word, fresh) in self.all[self.len..].iter().flat_map(|line| &line.0).zip(fresh) {
            word.store(fresh, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.all.words()[self.len * LINE_WORDS + self.begin(hash)]
    }
}

/// The lines of the prefilter of this many lines.
const fn prefilter_lines(len: usize) -> usize {
    len.div_ceil(LINES_PER_PREFILTER_LINE)
}

/// The bits of a hash in its word: four, by its lowest bits, which do not choose the line.
#[inline(always)]
pub(super) fn bits_of(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63) | 1 << (hash >> 18 & 63)
}

#[cfg(test)]
mod tests {
    use bloomsday_common::hash::mix64;
    use bloomsday_common::live::entry::Tag;

    use super::*;

    #[test]
    fn a_rebuilt_prefilter_knows_what_is_there_and_little_else() {
        for len in [1, 2, 15, 16, 17, 1_000] {
            let lines = ShardLines::new(&mut LineArena::default(), len).unwrap();
            assert_eq!(lines.lines().len(), len);
            assert!((0..100).map(mix64).all(|hash| !lines.may_have(hash)), "{len} empty lines");
            let hashes: Vec<u64> = (0..len as u64 * 6).map(mix64).collect();
            hashes.iter().for_each(|hash| lines.mark(*hash));
            assert!(hashes.iter().all(|hash| lines.may_have(*hash)));
            // Only the first half is in the lines, wherever there is a slot.
            let half = &hashes[..hashes.len() / 2];
            let slots = lines.lines().iter().flat_map(|line| &line.0);
            for (slot, hash) in slots.zip(half) {
                slot.store(entry::word(*hash, Tag::Hidden), Ordering::Relaxed);
            }
            lines.sweep(|_| false);
            assert!(half.iter().all(|hash| lines.may_have(*hash)));
            let wrong = (1_000_000..1_010_000).filter(|n| lines.may_have(mix64(*n))).count();
            assert!(wrong < 500, "{wrong} of 10,000 in {len} lines");
        }
    }
}
