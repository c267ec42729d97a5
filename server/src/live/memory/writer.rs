//! [`Writer`]: the one owner of a [`Table`]'s changes: test-and-add, deletion, the passing of
//! steps, and growth. It belongs to one thread at a time; what it wrote, readers see at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::live::entry::{self, EMPTY, Repeat, SHARDS, STEPS, TOMBSTONE, Tag, Window};
use bloomsday_common::memory::{LINE_WORDS, LineArena};

use super::budget::Budget;
use super::shard_lines::{LINES_PER_PREFILTER_LINE, ShardLines, bits_of};
use super::table::{Shards, Table};

/// How many hashes ahead of the one that is added are prefetched.
const PREFETCH_AHEAD: usize = 24;
/// The highest share of a shard's slots that are in use, in percent. With more, more lines are
/// full, and searches go on in lines that were not prefetched.
const MAX_LOAD_PERCENT: usize = 78;
/// How many lines a full shard gets, in percent of those that it had. With more, an entry would
/// take more than 14 bytes for a while.
const GROWTH_PERCENT: usize = 120;
/// A shard with fewer entries than this gets lines of the same number when it is full: what fills
/// it can be removed.
const PURGE_PERCENT: usize = 50;
/// The prefilter of a shard is made anew when so many of its slots, in percent, were freed: the
/// bits of what was there are still set.
const STALE_PERCENT: usize = 25;
/// The most copies of one hash: [`Writer::add_copy`] refuses more.
pub(crate) const MAX_COPIES: usize = 255;

/// What a table without entries takes.
pub(crate) const EMPTY_BYTES: u64 = SHARDS as u64 * ShardLines::bytes_of(1);

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The hash is new, or its window had ended. Exactly one add gets this.
    New,
    /// It was alive, and its window begins anew.
    Renewed,
    /// It was alive, and nothing changed.
    Unchanged,
}

/// Why an add did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddError {
    /// The limit on memory is reached.
    Memory,
    /// There are [`MAX_COPIES`] already.
    Copies,
}

/// The writer of a table.
pub(crate) struct Writer {
    table: Arc<Table>,
    window: Window,
    shards: Vec<Shard>,
    /// How many entries each tag has.
    by_step: Box<[u64; STEPS as usize]>,
    step: u64,
    /// How many shards were swept, all in all.
    swept: u64,
    /// The lines that a shard gets when it first grows.
    reserved_lines: usize,
    budget: Arc<Budget>,
    arena: LineArena,
}

/// One shard as its writer knows it.
struct Shard {
    lines: ShardLines,
    /// The slots that are not empty.
    used: usize,
    /// The slots that were freed since the prefilter was made.
    freed: usize,
}

impl Shard {
    fn empty(lines: ShardLines) -> Shard {
        Shard { lines, used: 0, freed: 0 }
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        let slots = self.lines.lines().iter().flat_map(|line| &line.0);
        slots.map(|slot| slot.load(Ordering::Relaxed))
    }

    /// Copies the entries that are kept into new lines, which are empty. Returns the words of the
    /// others.
    fn copy_into(&self, new: &ShardLines, is_kept: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut gone, len) = (Vec::new(), new.lines().len());
        // The slots of each new line that are taken, so that none is searched for.
        let mut taken = vec![0_u8; len];
        let mut prefilter = vec![0; len];
        for line in self.lines.lines() {
            // Without a branch for each slot: which of them are taken cannot be predicted. This is
            // for the longest pause of a growth (docs/performance.md).
            let (mut words, mut count) = ([EMPTY; LINE_WORDS], 0);
            for slot in &line.0 {
                let word = slot.load(Ordering::Relaxed);
                words[count % LINE_WORDS] = word;
                count += usize::from(word != EMPTY && word != TOMBSTONE);
            }
            for word in &words[..count] {
                if !is_kept(*word) {
                    gone.push(*word);
                    continue;
                }
                // The shard is missing here. It chooses no line, and no bits of the prefilter.
                let hash = *word >> 8;
                let mut at = new.begin(hash);
                prefilter[at] |= bits_of(hash);
                while usize::from(taken[at]) == LINE_WORDS {
                    at = if at + 1 == len { 0 } else { at + 1 };
                }
                let slot = &new.lines()[at].0[usize::from(taken[at])];
                taken[at] += 1;
                slot.store(*word, Ordering::Relaxed);
            }
        }
        new.set_prefilter(prefilter);
        gone
    }

    /// Counts a slot that was freed. The prefilter forgets what was there when there are many.
    fn count_freed(&mut self) {
        self.freed += 1;
        if self.freed * 100 > self.lines.lines().len() * LINE_WORDS * STALE_PERCENT {
            self.lines.sweep(|_| false);
            self.freed = 0;
        }
    }
}

impl Writer {
    /// An empty table; `None` when not even that fits into the budget.
    pub(crate) fn new(window: Window, budget: Arc<Budget>) -> Option<Writer> {
        if !budget.try_reserve(EMPTY_BYTES) {
            return None;
        }
        let mut arena = LineArena::default();
        let lines = empty_lines(&mut arena)?;
        let table = Arc::new(Table::new(window, Shards(lines.clone())));
        let shards = lines.map(Shard::empty).into();
        let by_step = Box::new([0; STEPS as usize]);
        Some(Writer {
            table,
            window,
            shards,
            by_step,
            step: 0,
            swept: 0,
            reserved_lines: 0,
            budget,
            arena,
        })
    }

    /// The table, for lookups.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// What all tables take.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Makes the first growth of each shard large enough for this many entries, if the budget
    /// allows that for all shards: else the first ones would leave nothing for the others.
    pub(crate) fn reserve(&mut self, entries: u64) {
        let slots = entries.saturating_mul(100) / MAX_LOAD_PERCENT as u64;
        // A tenth more: shards are not filled equally.
        let lines = slots.saturating_mul(11) / (10 * (SHARDS * LINE_WORDS) as u64) + 1;
        let left = self.budget.limit().saturating_sub(self.budget.taken());
        let fits = |lines: &usize| ShardLines::bytes_of(*lines) <= left / SHARDS as u64;
        self.reserved_lines = usize::try_from(lines).ok().filter(fits).unwrap_or(0);
    }

    /// How many entries are alive.
    pub(crate) fn len(&self) -> u64 {
        let alive = |step: &usize| self.window.is_alive(Tag::Step(*step as u8), self.step);
        (0..STEPS as usize).filter(alive).map(|step| self.by_step[step]).sum()
    }

    /// Empties the table, and returns its lines, to be freed where nobody waits for that. Lookups
    /// that run may still have them.
    pub(crate) fn clear(&mut self) -> impl Sized + use<> {
        let before = self.bytes();
        let mut arena = LineArena::default();
        let lines = empty_lines(&mut arena)?;
        let table = self.table.shards.swap(Arc::new(Shards(lines.clone())));
        let shards: Vec<_> = lines.map(Shard::empty).into();
        let shards = std::mem::replace(&mut self.shards, shards);
        let arena = std::mem::replace(&mut self.arena, arena);
        *self.by_step = [0; STEPS as usize];
        self.budget.release(before - self.bytes());
        Some((table, shards, arena))
    }

    /// The bytes of its lines.
    pub(crate) fn bytes(&self) -> u64 {
        let lines = self.shards.iter().map(|shard| shard.lines.lines().len());
        lines.map(ShardLines::bytes_of).sum()
    }

    /// Goes to the step of this time. A clock that goes back is ignored.
    ///
    /// Cost: some shards are swept, all of them after a long pause.
    pub(crate) fn tick(&mut self, unix_ms: u64) {
        let step = self.window.step_at(unix_ms);
        if step <= self.step {
            return;
        }
        let passed = step - self.step;
        if let Some(steps) = self.window.steps {
            // Every shard once in `sweep_steps`: before a tag comes round again.
            let each = (SHARDS as u64).div_ceil(self.window.sweep_steps());
            let many = passed.saturating_mul(each).min(SHARDS as u64);
            for number in self.swept..self.swept + many {
                self.sweep((number % SHARDS as u64) as usize, passed, u64::from(steps));
            }
            self.swept = self.swept.wrapping_add(many);
        }
        self.step = step;
        self.table.step.store(step, Ordering::Release);
    }

    /// Frees the slots of a shard's entries whose window will have ended `passed` steps from now.
    fn sweep(&mut self, shard: usize, passed: u64, steps: u64) {
        let shard = &mut self.shards[shard];
        shard.lines.sweep(|word| match Tag::of(word) {
            // By the age that it had before, which no tag that came round can falsify.
            Tag::Step(seen) if entry::age(seen, self.step).saturating_add(passed) > steps => {
                self.by_step[usize::from(seen)] -= 1;
                true
            }
            _ => false,
        });
        shard.freed = 0;
    }

    /// Adds hashes in order, with what each add did. The first refusal ends it, and is returned
    /// with the number of hashes that were added before.
    pub(crate) fn add_each(
        &mut self,
        hashes: &[u64],
        mut answer: impl FnMut(usize, Added),
    ) -> Result<(), (usize, AddError)> {
        for (i, hash) in hashes.iter().enumerate() {
            self.prefetch_ahead(hashes, i);
            answer(i, self.add(*hash).map_err(|refused| (i, refused))?);
        }
        Ok(())
    }

    /// Prefetches what comes some hashes after number `i`, and with the first one all until there.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, hashes: &[u64], i: usize) {
        if i == 0 {
            hashes.iter().take(PREFETCH_AHEAD).for_each(|hash| self.prefetch(*hash));
        }
        if let Some(ahead) = hashes.get(i + PREFETCH_AHEAD) {
            self.prefetch(*ahead);
        }
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        let lines = &self.shards[entry::shard_of(hash)].lines;
        lines.prefetch(hash);
        lines.prefetch_prefilter(hash);
    }

    /// Adds a hash, seen now.
    pub(crate) fn add(&mut self, hash: u64) -> Result<Added, AddError> {
        self.add_at(hash, self.step)
    }

    /// Adds a hash that was seen in an earlier step, or now. One whose window has ended is not
    /// added, and counts as [`Added::Unchanged`].
    pub(crate) fn add_at(&mut self, hash: u64, step: u64) -> Result<Added, AddError> {
        self.add_seen(hash, step, self.window.repeat)
    }

    /// Adds a hash that a log says was added in this step. That was new, or a renewal: so the step
    /// counts, also in a window that keeps the first one, whose time was over by then.
    pub(crate) fn add_logged(&mut self, hash: u64, step: u64) -> Result<Added, AddError> {
        self.add_seen(hash, step, Repeat::Renew)
    }

    fn add_seen(&mut self, hash: u64, step: u64, repeat: Repeat) -> Result<Added, AddError> {
        let now = self.step;
        let step = step.min(now);
        let tag = Tag::of_step(step);
        if self.window.steps.is_some() && now - step >= STEPS {
            return Ok(Added::Unchanged);
        }
        if !self.window.is_alive(tag, now) {
            return Ok(Added::Unchanged);
        }
        match self.find(hash) {
            Found::Occupied(slot) => {
                let old = Tag::of(slot.word);
                let alive = self.window.is_alive(old, now);
                let newer = match old {
                    Tag::Step(seen) => entry::age(seen, now) > now - step,
                    _ => true,
                };
                if alive && (repeat == Repeat::Keep || !newer) {
                    return Ok(Added::Unchanged);
                }
                self.replace(hash, slot, entry::word(hash, tag));
                Ok(if alive { Added::Renewed } else { Added::New })
            }
            Found::Vacant(slot) => {
                self.put(hash, slot, tag)?;
                Ok(Added::New)
            }
        }
    }

    /// Adds one more copy of a hash, seen now.
    pub(crate) fn add_copy(&mut self, hash: u64) -> Result<(), AddError> {
        if self.table.count(hash) >= MAX_COPIES {
            return Err(AddError::Copies);
        }
        self.put(hash, self.find_vacant(hash), Tag::of_step(self.step))
    }

    /// Deletes a hash, or one copy of it; returns whether it was alive. A hidden one stays hidden.
    pub(crate) fn delete(&mut self, hash: u64) -> bool {
        let Found::Occupied(slot) = self.find(hash) else { return false };
        let tag = Tag::of(slot.word);
        if tag != Tag::Hidden {
            self.replace(hash, slot, TOMBSTONE);
        }
        self.window.is_alive(tag, self.step)
    }

    /// Hides a hash from what lies below, also one that is not here; returns whether it was alive.
    pub(crate) fn hide(&mut self, hash: u64) -> Result<bool, AddError> {
        match self.find(hash) {
            Found::Occupied(slot) => {
                self.replace(hash, slot, entry::word(hash, Tag::Hidden));
                Ok(self.window.is_alive(Tag::of(slot.word), self.step))
            }
            Found::Vacant(slot) => self.put(hash, slot, Tag::Hidden).map(|()| false),
        }
    }

    /// Every hash that is alive, with its step, and every hash that is hidden.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        let words = self
            .shards
            .iter()
            .enumerate()
            .flat_map(|(number, shard)| shard.words().map(move |word| (number, word)));
        words.filter_map(|(number, word)| {
            let hash = entry::hash_of(number, word);
            match Tag::of(word) {
                Tag::Hidden => Some((hash, None)),
                tag @ Tag::Step(seen) if self.window.is_alive(tag, self.step) => {
                    Some((hash, Some(self.step_of_tag(seen))))
                }
                _ => None,
            }
        })
    }

    /// Every hash of a shard that is alive, with its step.
    pub(crate) fn entries_of(&self, shard: usize) -> Vec<(u64, u64)> {
        let alive = self.shards[shard].words().filter_map(|word| match Tag::of(word) {
            tag @ Tag::Step(seen) if self.window.is_alive(tag, self.step) => {
                Some((entry::hash_of(shard, word), self.step_of_tag(seen)))
            }
            _ => None,
        });
        alive.collect()
    }

    /// Removes a hash that was last seen in this step.
    pub(crate) fn remove_if_last_seen_in(&mut self, hash: u64, step: u64) {
        if let Found::Occupied(slot) = self.find(hash)
            && Tag::of(slot.word) == Tag::of_step(step)
        {
            self.replace(hash, slot, TOMBSTONE);
        }
    }

    /// The step in which a hash that is alive was seen.
    pub(crate) fn step_of(&self, hash: u64) -> Option<u64> {
        let Found::Occupied(slot) = self.find(hash) else { return None };
        let Tag::Step(seen) = Tag::of(slot.word) else { return None };
        let is_alive = self.window.is_alive(Tag::Step(seen), self.step);
        is_alive.then(|| self.step_of_tag(seen))
    }

    /// The step that an entry's tag stands for, if it is alive.
    fn step_of_tag(&self, seen: u8) -> u64 {
        // Without a window all entries are of the same step.
        let ago = if self.window.steps.is_some() { entry::age(seen, self.step) } else { 0 };
        self.step.saturating_sub(ago)
    }

    /// Where a hash is, or could be put. Of several copies, one that is alive.
    fn find(&self, hash: u64) -> Found {
        let lines = &self.shards[entry::shard_of(hash)].lines;
        let (mut line, lines) = (lines.begin(hash), lines.lines());
        let (mut ended, mut vacant) = (None, None);
        for _ in 0..lines.len() {
            let mut is_full = true;
            for (index, word) in lines[line].0.iter().enumerate() {
                let slot = Slot { line, index, word: word.load(Ordering::Relaxed) };
                if entry::is_of(slot.word, hash) {
                    let tag = Tag::of(slot.word);
                    if tag == Tag::Hidden || self.window.is_alive(tag, self.step) {
                        return Found::Occupied(slot);
                    }
                    ended.get_or_insert(slot);
                } else if slot.word == EMPTY || slot.word == TOMBSTONE {
                    vacant.get_or_insert(slot);
                    is_full &= slot.word != EMPTY;
                }
            }
            if !is_full {
                break;
            }
            line = if line + 1 == lines.len() { 0 } else { line + 1 };
        }
        match (ended, vacant) {
            (Some(slot), _) => Found::Occupied(slot),
            (None, Some(slot)) => Found::Vacant(slot),
            (None, None) => unreachable!("a shard keeps an empty slot"),
        }
    }

    /// The first slot that is free for a hash.
    fn find_vacant(&self, hash: u64) -> Slot {
        let lines = &self.shards[entry::shard_of(hash)].lines;
        let (begin, lines) = (lines.begin(hash), lines.lines());
        for line in (begin..lines.len()).chain(0..begin) {
            for (index, word) in lines[line].0.iter().enumerate() {
                let word = word.load(Ordering::Relaxed);
                if word == EMPTY || word == TOMBSTONE {
                    return Slot { line, index, word };
                }
            }
        }
        unreachable!("a shard keeps an empty slot")
    }

    /// Puts a hash that is not there into a vacant slot, or into another one if the shard has to
    /// grow.
    fn put(&mut self, hash: u64, mut slot: Slot, tag: Tag) -> Result<(), AddError> {
        let number = entry::shard_of(hash);
        if slot.word == EMPTY {
            let shard = &self.shards[number];
            if shard.used + 1 > max_used(shard.lines.lines().len()) {
                self.grow(number)?;
                slot = self.find_vacant(hash);
            }
        }
        let shard = &mut self.shards[number];
        shard.used += usize::from(slot.word == EMPTY);
        // First: a lookup that learns of this add asks the prefilter.
        shard.lines.mark(hash);
        self.replace(hash, slot, entry::word(hash, tag));
        Ok(())
    }

    /// Changes the word of a slot, and the counts with it.
    fn replace(&mut self, hash: u64, slot: Slot, new: u64) {
        match Tag::of(slot.word) {
            Tag::Step(step) => self.by_step[usize::from(step)] -= 1,
            Tag::Hidden | Tag::Tombstone | Tag::Empty => {}
        }
        match Tag::of(new) {
            Tag::Step(step) => self.by_step[usize::from(step)] += 1,
            Tag::Hidden | Tag::Tombstone | Tag::Empty => {}
        }
        let shard = &mut self.shards[entry::shard_of(hash)];
        // Release: a thread that learns of this add finds the word.
        shard.lines.lines()[slot.line].0[slot.index].store(new, Ordering::Release);
        if new == TOMBSTONE {
            shard.count_freed();
        }
    }

    /// Takes memory for a shard's new lines, in which `kept` entries will be; returns their number.
    /// The old ones are there, too, for as long as readers have them.
    fn reserve_lines(&self, number: usize, kept: usize) -> Option<usize> {
        let old = self.shards[number].lines.lines().len();
        let purge = kept * 100 < old * LINE_WORDS * PURGE_PERCENT;
        let more = if purge { old } else { more_lines(number, old) };
        let take =
            |lines: usize| self.budget.try_reserve(ShardLines::bytes_of(lines)).then_some(lines);
        let reserved = Some(self.reserved_lines).filter(|lines| *lines > more).and_then(take);
        reserved.or_else(|| take(more))
    }

    /// Gives a shard new lines: more of them if its entries need more.
    fn grow(&mut self, number: usize) -> Result<(), AddError> {
        let shard = &self.shards[number];
        let old = shard.lines.lines().len();
        let is_kept = |word: u64| {
            let tag = Tag::of(word);
            tag == Tag::Hidden || self.window.is_alive(tag, self.step)
        };
        let kept = shard.words().filter(|word| is_kept(*word)).count();
        let lines = self.reserve_lines(number, kept).ok_or(AddError::Memory)?;
        let Ok(new) = ShardLines::new(&mut self.arena, lines) else {
            self.budget.release(ShardLines::bytes_of(lines));
            return Err(AddError::Memory);
        };
        let gone = shard.copy_into(&new, is_kept);
        for word in gone {
            if let Tag::Step(step) = Tag::of(word) {
                self.by_step[usize::from(step)] -= 1;
            }
        }
        crash_point("live-growing");
        self.shards[number] = Shard { lines: new.clone(), used: kept, freed: 0 };
        let mut all = self.table.shards.load().0.clone();
        all[number] = new;
        self.table.shards.store(Arc::new(Shards(all)));
        self.budget.release(ShardLines::bytes_of(old));
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.budget.release(self.bytes());
    }
}

/// A slot of a shard, and the word in it.
#[derive(Clone, Copy)]
struct Slot {
    line: usize,
    index: usize,
    word: u64,
}

/// Where a hash is, or may be put.
enum Found {
    /// The hash is here.
    Occupied(Slot),
    /// The hash is nowhere, and may be put here.
    Vacant(Slot),
}

/// The shards grow one after the other from this number of lines on.
const STAGGERED_LINES: usize = 64;

/// How many lines a full shard gets.
fn more_lines(number: usize, old: usize) -> usize {
    let more = (old * GROWTH_PERCENT).div_ceil(100);
    if old >= STAGGERED_LINES || more < STAGGERED_LINES {
        return more;
    }
    // All shards fill alike. With the same sizes all would grow at the same time, which would be
    // one long pause; so each gets its own size between this one and the next.
    STAGGERED_LINES + STAGGERED_LINES * (GROWTH_PERCENT - 100) * number / (100 * SHARDS)
}

/// The bytes that a table of this many entries takes: the least, and the most, just after it has
/// grown.
///
/// ```
/// let (least, most) = bloomsday_server::live::memory_of(24_000_000);
/// assert!(least > 11 * 24_000_000 && most < 14 * 24_000_000);
/// ```
pub fn memory_of(entries: u64) -> (u64, u64) {
    let empty = SHARDS as u64 * ShardLines::bytes_of(1);
    let full = entries.saturating_mul(8 * 100).div_ceil(MAX_LOAD_PERCENT as u64);
    let full = full.saturating_add(full / LINES_PER_PREFILTER_LINE as u64);
    let grown = full.saturating_mul(GROWTH_PERCENT as u64).div_ceil(100);
    (full.saturating_add(empty), grown.saturating_add(empty))
}

/// How many slots of a shard may be in use.
fn max_used(lines: usize) -> usize {
    lines * LINE_WORDS * MAX_LOAD_PERCENT / 100
}

/// One line for each shard.
fn empty_lines(arena: &mut LineArena) -> Option<[ShardLines; SHARDS]> {
    let lines = (0..SHARDS).map(|_| ShardLines::new(arena, 1).ok());
    lines.collect::<Option<Vec<ShardLines>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests;
