//! [`Table`]: the exact set of hashes that are alive, which any number of threads look up while one
//! [`Writer`](crate::live::memory::writer::Writer) changes it. A lookup takes no lock.
//!
//! Its 256 shards have lines of eight words, one cache line each. A hash begins in the line that its
//! bits choose, and goes on in the next one while lines are full. A word never moves within its
//! shard's lines, and a line with an empty place ends every search: so a reader that runs while the
//! writer works finds each word that was there when it began. A shard that grows gets new lines; a reader
//! that still has the old ones keeps them until its batch is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use arc_swap::{ArcSwap, Guard};
use bloomsday_common::live::entry::{self, EMPTY, SHARDS, Tag, Window};
use bloomsday_common::memory::{LINE_WORDS, Line, Lines, prefetch_all};

/// How many hashes ahead of the one that is looked up are prefetched.
pub(in crate::live) const PREFETCH_AHEAD: usize = 24;

/// The lines of all shards at one moment.
pub(in crate::live) struct Shards(pub(in crate::live) [Lines; SHARDS]);

impl Shards {
    #[inline]
    pub(in crate::live) fn prefetch(&self, hash: u64) {
        prefetch(&self.0[entry::shard_of(hash)], hash);
    }

    /// Fetches the line after the one in which the search begins, if there is one.
    #[inline(always)]
    fn prefetch_second(&self, hash: u64) {
        let lines = &self.0[entry::shard_of(hash)];
        let second = entry::line_of(hash, lines.len()) + 1;
        prefetch_all(&lines[second..lines.len().min(second + 1)]);
    }
}

/// Fetches the line of a shard in which the search for a hash begins. For most it ends there, too: one
/// line of six is full.
#[inline(always)]
pub(in crate::live) fn prefetch(lines: &[Line], hash: u64) {
    let begin = entry::line_of(hash, lines.len());
    prefetch_all(&lines[begin..=begin]);
}

/// What the live layer says of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
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
    /// Cost: one cache miss, rarely two. Many at once cost less: [`Table::each`].
    pub(crate) fn seen(&self, hash: u64) -> Seen {
        self.find(&self.shards.load(), hash, self.step())
    }

    /// Looks many hashes up, with the number of each, in order.
    ///
    /// Cost: the cache misses of [`PREFETCH_AHEAD`] hashes are waited for at once.
    pub(crate) fn each(&self, hashes: &[u64], mut answer: impl FnMut(usize, Seen)) {
        let shards = self.shards.load();
        let now = self.step();
        hashes.iter().take(PREFETCH_AHEAD).for_each(|hash| shards.prefetch(*hash));
        for (i, hash) in hashes.iter().enumerate() {
            if let Some(ahead) = hashes.get(i + PREFETCH_AHEAD) {
                shards.prefetch(*ahead);
            }
            answer(i, self.find(&shards, *hash, now));
        }
    }

    /// How many times a hash was added and not deleted since.
    pub(crate) fn count(&self, hash: u64) -> usize {
        let (shards, now) = (self.shards.load(), self.step());
        let mut count = 0;
        search(&shards.0[entry::shard_of(hash)], hash, |word| {
            count += usize::from(self.is_alive(Tag::of(word), now));
            false
        });
        count
    }

    /// The table at this moment, to look up many hashes in another order than [`Table::each`].
    pub(crate) fn view(&self) -> View<'_> {
        View { table: self, shards: self.shards.load(), now: self.step() }
    }

    #[inline(always)]
    fn find(&self, shards: &Shards, hash: u64, now: u64) -> Seen {
        match find_near(shards, hash) {
            HomeGroup::Absent => Seen::Unknown,
            HomeGroup::Found | HomeGroup::Beyond => self.find_anywhere(shards, hash, now),
        }
    }

    /// Whether an entry is alive, for a lookup that began in step `began`. One that was renewed in a later step
    /// looks as old as can be then, so the step is read again.
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
    fn find_anywhere(&self, shards: &Shards, hash: u64, now: u64) -> Seen {
        let mut seen = Seen::Unknown;
        search(&shards.0[entry::shard_of(hash)], hash, |word| {
            match Tag::of(word) {
                Tag::Hidden => seen = Seen::Hidden,
                tag if self.is_alive(tag, now) => seen = Seen::Alive,
                _ => return false,
            }
            true
        });
        seen
    }
}

/// What the line tells in which the search for a hash begins.
enum HomeGroup {
    /// The hash is not in the table.
    Absent,
    /// It may be in this line.
    Found,
    /// If it is in the table, then in a line that follows.
    Beyond,
}

/// What most lookups need: a hash that its line does not have, in a line that is not full. No
/// branch for each word: the processor cannot predict it.
#[inline(always)]
fn find_near(shards: &Shards, hash: u64) -> HomeGroup {
    let lines = &shards.0[entry::shard_of(hash)];
    let Line(line) = &lines[entry::line_of(hash, lines.len())];
    let matches = |word: &AtomicU64| entry::hash_bits_match(word.load(Ordering::Relaxed), hash);
    let found = line.iter().fold(false, |found, word| found | matches(word));
    // Places are taken from the front, so that the last one tells whether there is an empty one.
    let is_full = line[LINE_WORDS - 1].load(Ordering::Relaxed) != EMPTY;
    match (found, is_full) {
        (true, _) => HomeGroup::Found,
        (false, true) => HomeGroup::Beyond,
        (false, false) => HomeGroup::Absent,
    }
}

/// A table at one moment.
pub(crate) struct View<'a> {
    table: &'a Table,
    shards: Guard<Arc<Shards>>,
    now: u64,
}

impl View<'_> {
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.shards.prefetch(hash);
    }

    /// What its first line tells of a hash. `None` when the search goes on in the next one, which is
    /// prefetched.
    #[inline(always)]
    pub(crate) fn seen_near(&self, hash: u64) -> Option<Seen> {
        match find_near(&self.shards, hash) {
            HomeGroup::Absent => Some(Seen::Unknown),
            HomeGroup::Found => Some(self.seen(hash)),
            HomeGroup::Beyond => {
                self.shards.prefetch_second(hash);
                None
            }
        }
    }

    /// What it tells of a hash.
    #[inline(never)]
    pub(crate) fn seen(&self, hash: u64) -> Seen {
        self.table.find_anywhere(&self.shards, hash, self.now)
    }
}

/// Visits the words of a hash until `found` returns true, or there are no more.
#[inline]
fn search(lines: &[Line], hash: u64, mut found: impl FnMut(u64) -> bool) {
    let begin = entry::line_of(hash, lines.len());
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
