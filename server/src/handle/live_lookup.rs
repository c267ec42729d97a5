//! Lookups in a day's filter and in the live IDs over it.
//!
//! A lookup goes to the day's filter first, then to the live IDs. A swap in between can move an ID
//! from the live IDs to the day's filter: the new day has it, so the live IDs drop it, and the
//! lookup finds it in neither. So a lookup at whose end there is another epoch is made again, with
//! the new filter.

use bloomsday_common::filter::Filter;

use super::current::{Current, KeptGeneration};
use super::step::step_done;
use crate::live::LiveSet;

/// Looks an ID up. Apart, so that a lookup in a filter without live IDs stays short.
#[cold]
#[inline(never)]
pub(super) fn contains(
    live: &LiveSet,
    current: &Current,
    kept: &mut KeptGeneration,
    id: &[u8],
) -> bool {
    loop {
        let hit = kept.filter.contains(id);
        step_done();
        // What is a hit was one at some moment of this lookup, whatever came in between.
        if live.answer(id, hit) {
            return true;
        }
        if !kept.update_after_lookup(current) {
            return false;
        }
    }
}

/// As [`contains`], for many IDs, all in the same filter. Returns the number of hits.
#[inline(never)]
pub(super) fn contains_batch<T: AsRef<[u8]>>(
    live: &LiveSet,
    current: &Current,
    kept: &mut KeptGeneration,
    ids: &[T],
    answers: &mut [bool],
) -> usize {
    loop {
        step_done();
        let day: Option<&Filter> = kept.generation().map(|generation| &generation.filter);
        let hits = match day {
            Some(day) => live.contains_batch(day, ids, answers),
            None => {
                current.fill_until_loaded(answers);
                live.answer_each(ids, answers)
            }
        };
        if !kept.update_after_lookup(current) {
            return hits;
        }
    }
}
