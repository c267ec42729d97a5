//! [`Table`]: the exact set of hashes that are alive, which any number of threads look up while one
//! [`Writer`](crate::live::memory::writer::Writer) changes it. A lookup takes no lock.
//!
//! Its 256 shards have lines of eight words, one cache line each. A hash begins in the line that
//! its bits choose, and goes on in the next one while lines are full. A word never moves within its
//! shard's lines, and a line with an empty slot ends every search: so a reader that runs while the
//! writer works finds each word that was there when it began. A shard that grows gets new lines; a
//! reader that still has the old ones keeps them until its batch is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use arc_swap::{ArcSwap, Guard};
use bloomsday_common::live::entry::{self, EMPTY, SHARDS, Tag, Window};

pub(in crate::live) use super::shard_lines::PrefilterWord;
use super::shard_lines::ShardLines;

/// How many hashes are looked up together, so that their cache misses are waited for at once.
const GROUP: usize = 64;

/// The lines of all shards at one moment.
pub(in crate::live) struct Shards(pub(in crate::live) [ShardLines; SHARDS]);

impl Shards {
    #[inline(always)]
    fn of(&self, hash: u64) -> &ShardLines {
        &self.0[entry::shard_of(hash)]
    }
}

/// What the live layer says of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveState {
    /// It was added, and its window has not ended.
    Alive,
    /// It was deleted: what lies below must not answer for it.
    Hidden,
    /// Nothing: what lies below answers.
    Unknown,
}

/// The set, for lookups.
pub(crate) struct Table {
    pub(in crate::live) shards: ArcSwap<Shards>,
    window: Window,
    /// The step of the last tick.
    pub(in crate::live) step: AtomicU64,
}

impl Table {
    pub(in crate::live) fn new(window: Window, shards: Shards) -> Table {
        Table { shards: ArcSwap::from_pointee(shards), window, step: AtomicU64::new(0) }
    }

    /// The window of its entries.
    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// The step of the last tick.
    pub(crate) fn step(&self) -> u64 {
        self.step.load(Ordering::Acquire)
    }

    /// Looks one hash up.
    ///
    /// Cost: a cache miss, and another one if the prefilter may have the hash. Many at once cost
    /// less: [`Table::each`].
    pub(crate) fn state_of(&self, hash: u64) -> LiveState {
        let View { shards, now, .. } = self.view();
        if !shards.of(hash).may_have(hash) {
            return LiveState::Unknown;
        }
        self.find(&shards, hash, now)
    }

    /// Looks many hashes up, with the number of each, in order.
    ///
    /// Cost: the cache misses of [`GROUP`] hashes are waited for at once.
    pub(crate) fn each(&self, hashes: &[u64], mut answer: impl FnMut(usize, LiveState)) {
        let View { shards, now, .. } = self.view();
        for (number, group) in hashes.chunks(GROUP).enumerate() {
            for hash in group {
                shards.of(*hash).prefetch_prefilter(*hash);
            }
            let mut may_have = [false; GROUP];
            for (may_have, hash) in may_have.iter_mut().zip(group) {
                *may_have = shards.of(*hash).prefetch_if_may_have(*hash);
            }
            for (i, (hash, may_have)) in group.iter().zip(may_have).enumerate() {
                let seen =
                    if may_have { self.find(&shards, *hash, now) } else { LiveState::Unknown };
                answer(number * GROUP + i, seen);
            }
        }
    }

    /// How many times a hash was added and not deleted since.
    pub(crate) fn count(&self, hash: u64) -> usize {
        let View { shards, now, .. } = self.view();
        let mut count = 0;
        search(shards.of(hash), hash, |word| {
            count += usize::from(self.is_alive(Tag::of(word), now));
            false
        });
        count
    }

    /// The table at this moment, to look up many hashes in another order than [`Table::each`].
    pub(crate) fn view(&self) -> View<'_> {
        // The step first: an entry that is renewed only in newer lines than these was alive in it.
        let now = self.step();
        View { table: self, shards: self.shards.load(), now }
    }

    /// Whether an entry is alive, for a lookup that began in step `began`. One that was renewed in
    /// a later step looks as old as can be then, so the step is read again.
    #[inline]
    fn is_alive(&self, tag: Tag, began: u64) -> bool {
        let is_alive_now = || {
            // A writer goes to the next step before it renews entries in it.
            fence(Ordering::Acquire);
            self.window.is_alive(tag, self.step())
        };
        self.window.is_alive(tag, began) || (matches!(tag, Tag::Step(_)) && is_alive_now())
    }

    #[inline(never)]
    fn find(&self, shards: &Shards, hash: u64, now: u64) -> LiveState {
        let mut seen = LiveState::Unknown;
        search(shards.of(hash), hash, |word| {
            match Tag::of(word) {
                Tag::Hidden => seen = LiveState::Hidden,
                tag if self.is_alive(tag, now) => seen = LiveState::Alive,
                _ => return false,
            }
            true
        });
        seen
    }
}

/// A table at one moment.
pub(crate) struct View<'a> {
    table: &'a Table,
    shards: Guard<Arc<Shards>>,
    now: u64,
}

impl View<'_> {
    /// Fetches the word of the prefilter that tells whether the table may have a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) -> PrefilterWord<'_> {
        self.shards.of(hash).prefetch_prefilter(hash)
    }

    /// Fetches what [`View::seen`] reads.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, hash: u64) {
        self.shards.of(hash).prefetch(hash);
    }

    /// What it tells of a hash.
    #[inline(never)]
    pub(crate) fn state_of(&self, hash: u64) -> LiveState {
        self.table.find(&self.shards, hash, self.now)
    }
}

/// Visits the words of a hash until `found` returns true, or there are no more.
#[inline]
fn search(lines: &ShardLines, hash: u64, mut found: impl FnMut(u64) -> bool) {
    let (lines, begin) = (lines.lines(), lines.begin(hash));
    // In two halves, because the line after the last is the first.
    for line in lines[begin..].iter().chain(&lines[..begin]) {
        let mut is_full = true;
        for word in &line.0 {
            // Each word is complete in itself, and an add is announced by other means.
            let word = word.load(Ordering::Relaxed);
            if entry::is_of(word, hash) && found(word) {
                return;
            }
            is_full &= word != EMPTY;
        }
        if !is_full {
            return;
        }
    }
}
