//! Lookups in a set that lies over a day's filter.

use std::sync::Weak;

use bloomsday_common::filter::{Filter, Overlay};
use bloomsday_common::hash::is_valid_len;
use bloomsday_common::id_form::IdForm;

use super::{LiveSet, SetError};
use crate::live::below::DayAnswers;
use crate::live::lock::lock;
use crate::live::memory::table::{LiveState, PrefilterWord, View};
use crate::live::options::hash_of;

/// How many IDs are hashed before they are looked up.
const CHUNK: usize = 256;

impl LiveSet {
    /// Looks hashes up in order, here and in what lies below.
    pub(crate) fn each(
        &self,
        now: u64,
        hashes: &[u64],
        mut answer: impl FnMut(usize, bool),
    ) -> Result<(), SetError> {
        self.tick(now);
        let Some(mut day) = self.look_up_day(hashes)? else {
            self.table.each(hashes, |i, seen| answer(i, seen == LiveState::Alive));
            return Ok(());
        };
        let mut hits = vec![false; hashes.len()];
        loop {
            self.table.each(hashes, |i, seen| hits[i] = answer_of(seen, day.hits[i]));
            if !day.refresh_after_swap(hashes)? {
                break;
            }
        }
        hits.iter().enumerate().for_each(|(i, hit)| answer(i, *hit));
        Ok(())
    }

    /// What the day's filter says; `None` for a set that lies over none.
    pub(super) fn look_up_day(&self, hashes: &[u64]) -> Result<Option<DayAnswers>, SetError> {
        let Some(below) = self.below.get().and_then(Weak::upgrade) else { return Ok(None) };
        if !self.has_others_ids() {
            return Err(SetError::NotLoaded);
        }
        Ok(Some(DayAnswers::of(below, hashes)?))
    }

    /// As [`LiveSet::look_up_day`], for a change. Who may not change anything hears that, whatever
    /// is loaded.
    pub(super) fn look_up_day_to_change(
        &self,
        hashes: &[u64],
    ) -> Result<Option<DayAnswers>, SetError> {
        let day = self.look_up_day(hashes);
        if matches!(day, Err(SetError::NotLoaded)) {
            self.check(&lock(&self.state))?;
        }
        day
    }

    /// What this set itself says of an ID, whatever lies below.
    #[cfg(feature = "http")]
    pub(crate) fn state_of(&self, now: u64, id: &[u8]) -> LiveState {
        self.tick(now);
        self.table.state_of(hash_of(self.options.id_form, id))
    }

    /// Counts lookups that [`LiveSet::each`] answered, if this set lies over a day's filter.
    pub(crate) fn count_lookups<'a>(&self, ids: impl IntoIterator<Item = &'a [u8]>, hits: u64) {
        if let Some(below) = self.below.get().and_then(Weak::upgrade) {
            below.count_lookups(&ids.into_iter().collect::<Vec<_>>(), hits);
        }
    }

    /// Changes the answer of the day's filter for an ID as this set says.
    pub(crate) fn answer(&self, id: &[u8], hit: bool) -> bool {
        // What is no valid ID was never added, whatever its hash.
        is_valid_len(id) && answer_of(self.table.state_of(hash_of(self.options.id_form, id)), hit)
    }

    /// As [`LiveSet::answer`], for many IDs. Returns the number of hits.
    pub(crate) fn answer_each<T: AsRef<[u8]>>(&self, ids: &[T], hits: &mut [bool]) -> usize {
        let (mut hashes, mut all) = ([0; CHUNK], 0);
        for (ids, hits) in ids.chunks(CHUNK).zip(hits.chunks_mut(CHUNK)) {
            for (hash, id) in hashes.iter_mut().zip(ids) {
                *hash = hash_of(self.options.id_form, id.as_ref());
            }
            self.table.each(&hashes[..ids.len()], |i, seen| {
                hits[i] = answer_of(seen, hits[i]) && is_valid_len(ids[i].as_ref());
                all += usize::from(hits[i]);
            });
        }
        all
    }

    /// Looks IDs up here and in a day's filter in one pass. Returns the number of hits.
    pub(crate) fn contains_batch<T: AsRef<[u8]>>(
        &self,
        day: &Filter,
        ids: &[T],
        hits: &mut [bool],
    ) -> usize {
        // Where they do not look up the same hashes, one after the other.
        let over = (self.options.id_form == IdForm::Bytes).then(|| Over(self.table.view()));
        match over.and_then(|over| day.contains_batch_under(ids, hits, &over)) {
            Some(all) => all,
            None => {
                day.contains_batch(ids, hits);
                self.answer_each(ids, hits)
            }
        }
    }
}

/// A table over a day's filter.
struct Over<'a>(View<'a>);

impl Overlay for Over<'_> {
    const CHANGES_ANSWERS: bool = true;

    type Word<'b>
        = PrefilterWord<'b>
    where
        Self: 'b;

    #[inline(always)]
    fn prefetch(&self, hash: u64) -> PrefilterWord<'_> {
        self.0.prefetch(hash)
    }

    #[inline(always)]
    fn may_change(word: PrefilterWord<'_>, hash: u64) -> bool {
        word.may_have(hash)
    }

    #[inline(always)]
    fn prefetch_answer(&self, hash: u64) {
        self.0.prefetch_lines(hash);
    }

    #[inline(always)]
    fn answer(&self, hash: u64, hit: bool) -> bool {
        answer_of(self.0.state_of(hash), hit)
    }
}

#[inline(always)]
fn answer_of(seen: LiveState, hit: bool) -> bool {
    match seen {
        LiveState::Alive => true,
        LiveState::Hidden => false,
        LiveState::Unknown => hit,
    }
}
