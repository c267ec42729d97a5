//! [`Near`]: an exact set of 64-bit fingerprints in which every one within a distance of three bits
//! is found.
//!
//! Two fingerprints that differ in at most three bits have at least one of their four blocks of 16
//! bits in common. So each fingerprint is in four tables, each with a bucket for every value of one
//! block, and a search compares all fingerprints of four buckets: about n / 16,384. Manku, Jain &
//! Das Sarma 2007, "Detecting near-duplicates for web crawling", §3, with four tables.
//!
//! A bucket is contiguous. Its words have the other 48 bits, and as their low byte the tag of the
//! step in which the fingerprint was added, so that a fingerprint takes 32 bytes and a little room
//! to grow.

use std::sync::Arc;

use bloomsday_common::live::entry::{self, STEPS, Tag, Window};
use bloomsday_common::memory::prefetch_all;

use super::budget::Budget;

/// The largest distance that can be searched: one less than there are blocks.
pub(crate) const MAX_DISTANCE: u32 = TABLES as u32 - 1;

const TABLES: usize = 4;
const BLOCK_BITS: u32 = 16;
const BUCKETS: usize = 1 << BLOCK_BITS;
/// A bucket that is full becomes larger by one part in this many, and by [`MIN_GROWTH_WORDS`].
const GROWTH: usize = 8;
const MIN_GROWTH_WORDS: usize = 4;
/// How many words are compared at once, before the near ones among them are chosen.
const CHUNK: usize = 16;
/// The words of each bucket that are fetched before the first is searched.
const PREFETCH_WORDS: usize = 64;

type Bucket = Vec<u64>;

/// A fingerprint that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Neighbour {
    /// How many bits differ.
    pub(crate) distance: u32,
    pub(crate) fingerprint: u64,
}

/// The limit on memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The set.
pub(crate) struct Near {
    tables: [Box<[Bucket]>; TABLES],
    window: Window,
    step: u64,
    /// How many fingerprints of each step are in the first table.
    by_step: Box<[u64; STEPS as usize]>,
    /// How many buckets were swept in each table, all in all.
    swept: u64,
    /// The words that a bucket gets first.
    reserved: usize,
    budget: Arc<Budget>,
    /// What is taken of the budget.
    bytes: u64,
}

impl Near {
    /// An empty set; `None` when not even that fits into the budget.
    pub(crate) fn new(window: Window, budget: Arc<Budget>) -> Option<Near> {
        let bytes = (TABLES * BUCKETS * size_of::<Bucket>()) as u64;
        budget.try_reserve(bytes).then(|| Near {
            tables: std::array::from_fn(|_| vec![Bucket::new(); BUCKETS].into()),
            window,
            step: 0,
            by_step: Box::new([0; STEPS as usize]),
            swept: 0,
            reserved: 0,
            budget,
            bytes,
        })
    }

    /// Makes each bucket's first words enough for this many fingerprints, if the budget allows
    /// that.
    pub(crate) fn reserve(&mut self, fingerprints: u64) {
        let each = usize::try_from(fingerprints / BUCKETS as u64).unwrap_or(usize::MAX);
        // Buckets are not filled equally: a few more.
        self.reserved = each.saturating_add(each / 32);
    }

    /// How many fingerprints are alive.
    pub(crate) fn len(&self) -> u64 {
        let alive = |step: &usize| self.window.is_alive(Tag::Step(*step as u8), self.step);
        (0..STEPS as usize).filter(alive).map(|step| self.by_step[step]).sum()
    }

    /// The bytes of all buckets.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a fingerprint unless one is alive within `max` bits: then that one, the nearest.
    pub(crate) fn add(&mut self, fingerprint: u64, max: u32) -> Result<Option<Neighbour>, Full> {
        let found = self.nearest(fingerprint, max);
        if found.is_none() {
            self.insert(fingerprint)?;
        }
        Ok(found)
    }

    /// Adds a fingerprint that is not there.
    pub(crate) fn insert(&mut self, fingerprint: u64) -> Result<(), Full> {
        // In all tables or in none.
        for table in 0..TABLES {
            self.make_room(table, bucket_of(fingerprint, table))?;
        }
        let tag = Tag::of_step(self.step);
        for table in 0..TABLES {
            let word = word_of(fingerprint, table, tag);
            self.tables[table][bucket_of(fingerprint, table)].push(word);
        }
        self.count(tag, |count| count + 1);
        Ok(())
    }

    /// The nearest fingerprint within `max` bits that is alive; of several, the one with the
    /// smallest number.
    pub(crate) fn nearest(&self, fingerprint: u64, max: u32) -> Option<Neighbour> {
        let mut best: Option<Neighbour> = None;
        self.search(fingerprint, max, |_, found| {
            best = Some(best.map_or(found, |best| best.min(found)));
            found.distance > 0
        });
        best
    }

    /// Every fingerprint within `max` bits that is alive, the nearest first.
    pub(crate) fn neighbours(&self, fingerprint: u64, max: u32) -> Vec<Neighbour> {
        let mut all = Vec::new();
        self.search(fingerprint, max, |table, found| {
            let differs = fingerprint ^ found.fingerprint;
            // In a table before this one it was found, too, if that block is the same.
            let is_first = (0..table).all(|before| bucket_of(differs, before) != 0);
            all.extend(is_first.then_some(found));
            true
        });
        all.sort_unstable();
        all
    }

    /// Visits what is near in each table, until `found` returns false.
    fn search(&self, fingerprint: u64, max: u32, mut found: impl FnMut(usize, Neighbour) -> bool) {
        let bucket = |table: usize| &self.tables[table][bucket_of(fingerprint, table)][..];
        let buckets: [&[u64]; TABLES] = std::array::from_fn(bucket);
        buckets.iter().for_each(|words| prefetch_all(&words[..words.len().min(PREFETCH_WORDS)]));
        for (table, words) in buckets.into_iter().enumerate() {
            let wanted = word_of(fingerprint, table, Tag::Empty);
            for chunk in words.chunks(CHUNK) {
                // All of them, without a branch: several at once in one instruction.
                if !chunk.iter().fold(false, |any, word| any | is_near(word ^ wanted)) {
                    continue;
                }
                for word in chunk {
                    let distance = ((word ^ wanted) >> BLOCK_BITS).count_ones();
                    if distance > max || !self.window.is_alive(Tag::of(*word), self.step) {
                        continue;
                    }
                    let block = bucket_of(fingerprint, table);
                    let fingerprint = fingerprint_of(*word, table, block);
                    if !found(table, Neighbour { distance, fingerprint }) {
                        return;
                    }
                }
            }
        }
    }

    /// Makes room for one more word in a bucket: of what has ended, or more.
    fn make_room(&mut self, table: usize, number: usize) -> Result<(), Full> {
        let bucket = &self.tables[table][number];
        if bucket.len() < bucket.capacity() {
            return Ok(());
        }
        let step = self.step;
        self.purge(table, number, |window, seen| !window.is_alive(Tag::Step(seen), step));
        let bucket = &mut self.tables[table][number];
        let (words, room) = (bucket.len(), bucket.capacity());
        if words + words / GROWTH < room {
            return Ok(());
        }
        let take = |to: usize| {
            let bytes = (to.saturating_sub(room) as u64).saturating_mul(8);
            self.budget.try_reserve(bytes).then_some((to, bytes))
        };
        let reserved = Some(self.reserved).filter(|reserved| *reserved > words).and_then(take);
        let more = || take(room.max(words) + words / GROWTH + MIN_GROWTH_WORDS);
        let (to, bytes) = reserved.or_else(more).ok_or(Full)?;
        bucket.reserve_exact(to - words);
        self.bytes += bytes;
        Ok(())
    }

    /// Goes to a step. One that goes back is ignored.
    ///
    /// Cost: some buckets are swept, all of them after a long pause.
    pub(crate) fn go_to(&mut self, step: u64) {
        if step <= self.step {
            return;
        }
        let (before, passed) = (self.step, step - self.step);
        if let Some(steps) = self.window.steps {
            // Every bucket once in `sweep_steps`: before a tag comes round again.
            let each = (BUCKETS as u64).div_ceil(self.window.sweep_steps());
            let many = passed.saturating_mul(each).min(BUCKETS as u64);
            for number in self.swept..self.swept + many {
                for table in 0..TABLES {
                    self.purge(table, number as usize % BUCKETS, |_, seen| {
                        // By the age that it had before, which no tag that came round can falsify.
                        entry::age(seen, before).saturating_add(passed) > u64::from(steps)
                    });
                    self.shrink(table, number as usize % BUCKETS);
                }
            }
            self.swept = (self.swept + many) % BUCKETS as u64;
        }
        self.step = step;
    }

    /// Removes from a bucket what has ended.
    fn purge(&mut self, table: usize, number: usize, has_ended: impl Fn(&Window, u8) -> bool) {
        if self.window.steps.is_none() {
            return;
        }
        let Near { tables, window, by_step, .. } = self;
        tables[table][number].retain(|word| match Tag::of(*word) {
            Tag::Step(seen) if has_ended(window, seen) => {
                by_step[usize::from(seen)] -= u64::from(table == 0);
                false
            }
            _ => true,
        });
    }

    /// Gives back what a bucket has not used for a long time.
    fn shrink(&mut self, table: usize, number: usize) {
        let bucket = &mut self.tables[table][number];
        let (words, room) = (bucket.len(), bucket.capacity());
        if room / 2 > words + words / GROWTH + MIN_GROWTH_WORDS {
            bucket.shrink_to(words + words / GROWTH);
            let bytes = 8 * (room - bucket.capacity()) as u64;
            self.budget.release(bytes);
            self.bytes -= bytes;
        }
    }

    fn count(&mut self, tag: Tag, change: impl FnOnce(u64) -> u64) {
        if let Tag::Step(step) = tag {
            let count = &mut self.by_step[usize::from(step)];
            *count = change(*count);
        }
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Whether at most [`MAX_DISTANCE`] bits of a word's 48 are set, its tag aside. Each step clears
/// the lowest one: a few plain operations, which processors without an instruction that counts bits
/// have for several words at once.
#[inline(always)]
fn is_near(differs: u64) -> bool {
    let mut bits = differs >> BLOCK_BITS;
    for _ in 0..MAX_DISTANCE {
        bits &= bits.wrapping_sub(1);
    }
    bits == 0
}

/// The block by which a table finds a fingerprint.
#[inline]
fn bucket_of(fingerprint: u64, table: usize) -> usize {
    usize::from((fingerprint >> (BLOCK_BITS as usize * table)) as u16)
}

/// The other blocks, and a tag.
#[inline]
fn word_of(fingerprint: u64, table: usize, tag: Tag) -> u64 {
    let others = fingerprint.rotate_right(BLOCK_BITS * table as u32) >> BLOCK_BITS;
    // The tag's byte, and the byte above it, which is free.
    entry::word(others << 8, tag) & !0xff00
}

/// The fingerprint of a word in a bucket.
#[inline]
fn fingerprint_of(word: u64, table: usize, bucket: usize) -> u64 {
    (word >> BLOCK_BITS << BLOCK_BITS | bucket as u64).rotate_left(BLOCK_BITS * table as u32)
}

#[cfg(test)]
mod tests;
