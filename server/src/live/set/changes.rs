//! Adds and deletions. A set over a day's filter also asks that filter: what it has is not new.

use std::sync::atomic::Ordering;

use bloomsday_common::live::segment::Op;

use super::{LiveSet, SetError, SetState};
use crate::live::below::DayAnswers;
use crate::live::lock::lock;
use crate::live::memory::table::LiveState;
use crate::live::memory::writer::{Added, Writer};
use crate::live::ticket::Ticket;

impl LiveSet {
    /// Adds hashes in order, with what each add did, and at the first refusal stops.
    pub(crate) fn add_each(
        &self,
        now: u64,
        hashes: &[u64],
        mut answer: impl FnMut(usize, Added),
    ) -> (Ticket, Result<(), SetError>) {
        let day = match self.look_up_day_to_change(hashes) {
            Ok(day) => day,
            Err(refusal) => return (Ticket::NONE, Err(refusal)),
        };
        let (mut all, mut new, mut by_day) = (0, 0, 0);
        let mut count = |i, added, is_by_day| {
            all += 1;
            new += u64::from(added == Added::New);
            by_day += u64::from(is_by_day);
            answer(i, added);
        };
        let done = self.change(now, |state| {
            let added = match day {
                Some(day) => self.add_over_day(state, hashes, day, &mut count),
                None => self.add_without_day(state, hashes, |i, added| count(i, added, false)),
            };
            (Op::Add, added)
        });
        self.added.new.fetch_add(new, Ordering::Relaxed);
        self.added.seen_live.fetch_add(all - new - by_day, Ordering::Relaxed);
        self.added.seen_by_day.fetch_add(by_day, Ordering::Relaxed);
        done
    }

    /// `answer` also hears whether an ID is seen because of the day's filter.
    fn add_over_day(
        &self,
        state: &mut SetState,
        hashes: &[u64],
        mut day: DayAnswers,
        mut answer: impl FnMut(usize, Added, bool),
    ) -> Result<(), SetError> {
        // The IDs that a day takes over are dropped under the lock that this call has.
        day.refresh_after_swap(hashes)?;
        let SetState { writer, changed, late, .. } = state;
        for (i, hash) in hashes.iter().enumerate() {
            writer.prefetch_ahead(hashes, i);
            let before = self.table.state_of(*hash);
            // Also what the day's filter has: that may be a false positive of today's only.
            let added = writer.add(*hash)?;
            // Others have the deletion, too: they must read that this add is newer.
            let was_deleted = !late.is_empty() && late.remove(hash).is_some();
            if added != Added::Unchanged || was_deleted {
                changed.push(*hash);
            }
            let is_by_day = day.hits[i] && before == LiveState::Unknown;
            answer(i, if is_by_day { Added::Unchanged } else { added }, is_by_day);
        }
        Ok(())
    }

    fn add_without_day(
        &self,
        state: &mut SetState,
        hashes: &[u64],
        mut answer: impl FnMut(usize, Added),
    ) -> Result<(), SetError> {
        let SetState { writer, changed, .. } = state;
        if self.options.expansion == 0 {
            return self.add_within_capacity(writer, hashes, changed, answer);
        }
        let added = writer.add_each(hashes, |i, added| {
            if added != Added::Unchanged {
                changed.push(hashes[i]);
            }
            answer(i, added);
        });
        added.map_err(|(_, refused)| refused.into())
    }

    fn add_within_capacity(
        &self,
        writer: &mut Writer,
        hashes: &[u64],
        changed: &mut Vec<u64>,
        mut answer: impl FnMut(usize, Added),
    ) -> Result<(), SetError> {
        for (i, hash) in hashes.iter().enumerate() {
            self.check_capacity(writer, *hash)?;
            let added = writer.add(*hash)?;
            if added != Added::Unchanged {
                changed.push(*hash);
            }
            answer(i, added);
        }
        Ok(())
    }

    /// Refuses a hash that is not alive in a set that is full and does not grow.
    pub(super) fn check_capacity(&self, writer: &Writer, hash: u64) -> Result<(), SetError> {
        let is_full = self.options.expansion == 0 && writer.len() >= self.options.capacity;
        if is_full && self.table.state_of(hash) != LiveState::Alive {
            Err(SetError::Full)
        } else {
            Ok(())
        }
    }

    /// Counts the domains of URLs that are about to be added.
    pub(crate) fn count_domains<'a>(&self, ids: impl IntoIterator<Item = &'a [u8]>) {
        if let Some(domains) = &self.domains {
            let mut domains = lock(domains);
            ids.into_iter().for_each(|id| domains.add(id));
        }
    }

    /// Adds one more copy of a hash.
    pub(crate) fn add_copy(&self, now: u64, hash: u64) -> (Ticket, Result<(), SetError>) {
        let (ticket, added) =
            self.change(now, |state| (Op::Add, self.add_copy_within_capacity(state, hash)));
        self.added.count_one(added.as_ref().ok().map(|()| true));
        (ticket, added)
    }

    /// Adds a hash unless it is there; returns whether it was added.
    pub(crate) fn add_copy_if_new(&self, now: u64, hash: u64) -> (Ticket, Result<bool, SetError>) {
        let mut is_there = false;
        let (ticket, added) = self.change(now, |state| {
            is_there = self.table.count(hash) > 0;
            let added = if is_there { Ok(()) } else { self.add_copy_within_capacity(state, hash) };
            (Op::Add, added)
        });
        let added = added.map(|()| !is_there);
        self.added.count_one(added.as_ref().ok().copied());
        (ticket, added)
    }

    fn add_copy_within_capacity(&self, state: &mut SetState, hash: u64) -> Result<(), SetError> {
        let SetState { writer, changed, .. } = state;
        if self.options.expansion == 0 && writer.len() >= self.options.capacity {
            return Err(SetError::Full);
        }
        writer.add_copy(hash)?;
        changed.push(hash);
        Ok(())
    }

    /// Deletes hashes, or one copy of each; returns how many were alive.
    pub(crate) fn forget(&self, now: u64, hashes: &[u64]) -> (Ticket, Result<usize, SetError>) {
        self.forget_each(now, hashes, |_, _| ())
    }

    /// As [`LiveSet::forget`], with whether each was there.
    pub(crate) fn forget_each(
        &self,
        now: u64,
        hashes: &[u64],
        answer: impl FnMut(usize, bool),
    ) -> (Ticket, Result<usize, SetError>) {
        let day = match self.look_up_day_to_change(hashes) {
            Ok(day) => day,
            Err(refusal) => return (Ticket::NONE, Err(refusal)),
        };
        self.change(now, |state| {
            let gone = match day {
                Some(day) => self.forget_over_day(state, hashes, day, answer),
                None => Ok(forget_without_day(state, hashes, answer)),
            };
            if let Ok(gone) = gone {
                state.deleted += gone as u64;
            }
            (Op::Delete, gone)
        })
    }

    fn forget_over_day(
        &self,
        state: &mut SetState,
        hashes: &[u64],
        mut day: DayAnswers,
        mut answer: impl FnMut(usize, bool),
    ) -> Result<usize, SetError> {
        // As for an add.
        day.refresh_after_swap(hashes)?;
        let mut gone = 0;
        for (i, hash) in hashes.iter().enumerate() {
            let before = self.table.state_of(*hash);
            if before != LiveState::Hidden {
                state.writer.hide(*hash)?;
                state.changed.push(*hash);
            }
            let is_by_day = before == LiveState::Unknown && day.hits[i];
            let was = before == LiveState::Alive || is_by_day;
            gone += usize::from(was);
            answer(i, was);
        }
        Ok(gone)
    }
}

fn forget_without_day(
    state: &mut SetState,
    hashes: &[u64],
    mut answer: impl FnMut(usize, bool),
) -> usize {
    for (i, hash) in hashes.iter().enumerate() {
        let was = state.writer.delete(*hash);
        state.changed.extend(was.then_some(*hash));
        answer(i, was);
    }
    state.changed.len()
}
