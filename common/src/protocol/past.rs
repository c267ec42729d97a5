//! What a day's pointer has named, by the history and by itself, and whether a person's hand made it what
//! it is now.
//!
//! A rollback is a rollback, however it is made. `repoint` and a hand-written line show it by themselves.
//! The day's own earlier record put back, an edited one and a removed one do not: they are told from the
//! history, which holds a record of every build and repoint.
//!
//! What counts as shown, and what does not:
//!
//! - A build or repoint that ended *published* or *unchanged* pointed at its blob. What a record names as
//!   `previous` was pointed at too, however the act ended: it was read from the pointer.
//! - A record that still says *pointing* is of a build that was cut off, before it pointed or right after.
//!   Beside a pointer that a person wrote, such a blob counts as had: a rollback is not to be undone by
//!   a guess. But not one that set out from the very record that is there (or from none, if none is
//!   there): most likely it was cut off before it pointed, and running it again must end the same way.
//!   So one thing is not noticed: a build is killed in the moment between its pointing and its last
//!   record, nobody runs it again, and somebody then puts back, by hand, the record or the absence that
//!   it replaced. `repoint` is always noticed.
//! - A day so old that prune may have dropped its pointer is not rolled back by having none.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{RecordState, Retention};
use crate::day::Day;
use crate::key::BlobKey;
use crate::pointer::{EventKind, HistoryEvent, Outcome, Pointer};

/// What one day has had, as far as history and pointer tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// Certainly pointed at by the history, what the pointer shows, and what may have been pointed at.
    had: BTreeSet<BlobKey>,
    by_hand: bool,
    untold: bool,
}

impl Past {
    /// Gathers what `history` tells of `day`, whose pointer is `now`, on the day `today`.
    ///
    /// Cost: a few passes over the history.
    pub fn of(
        day: Day,
        history: &[HistoryEvent],
        now: &RecordState<Pointer>,
        today: Day,
        retention: Retention,
    ) -> Past {
        let acts = Acts(
            history
                .iter()
                .filter(|act| matches!(act.act, EventKind::Build | EventKind::Repoint))
                .filter(|act| act.day == Some(day))
                .collect(),
        );
        let shown = acts.shown();
        let by_hand = match now {
            RecordState::Found(pointer) => acts.is_by_hand(day, pointer, &shown),
            // Somebody removed it, unless prune did.
            RecordState::Absent => !shown.is_empty() && day >= today.minus(retention.keep_days),
            RecordState::Unreadable(_) => true,
        };
        let may_have_had = acts.may_have_had(day, now);
        let named =
            now.found().into_iter().flat_map(|p| [Some(p.blob.clone()), p.previous.clone()]);
        let had = shown.into_iter().chain(may_have_had).chain(named.flatten()).collect();
        let untold = now.found().is_some_and(|pointer| acts.lacks_the_end_of(pointer));
        Past { had, by_hand, untold }
    }

    /// Whether the pointer has named this blob, or may have.
    pub fn had(&self, blob: &BlobKey) -> bool {
        self.had.contains(blob)
    }

    /// Whether a person, not a build of the day, made the pointer what it is: by `repoint`, with an
    /// editor, by putting back an earlier record, or by removing it.
    pub fn is_by_hand(&self) -> bool {
        self.by_hand
    }

    /// Whether the history does not show how the pointer came to name what it names: the act that wrote
    /// it was cut off before its last record, or was a person's.
    pub fn is_untold(&self) -> bool {
        self.untold
    }
}

/// The builds and repoints of one day.
struct Acts<'a>(Vec<&'a HistoryEvent>);

impl Acts<'_> {
    /// Those after which the pointer certainly named their blob.
    fn ended_well(&self) -> impl Iterator<Item = &HistoryEvent> {
        let ended =
            |act: &&HistoryEvent| matches!(act.outcome, Outcome::Published | Outcome::Unchanged);
        self.0.iter().copied().filter(ended)
    }

    fn shown(&self) -> BTreeSet<BlobKey> {
        let named = self.ended_well().filter_map(|act| act.blob.clone());
        named.chain(self.0.iter().filter_map(|act| act.previous.clone())).collect()
    }

    /// The acts that certainly moved the pointer. Of those that were cut off it is one for each blob that
    /// was named and that no other act brought there: the first, as the others may not have got so far.
    fn moves(&self, shown: &BTreeSet<BlobKey>) -> Vec<&HistoryEvent> {
        let of =
            |outcome: Outcome| self.0.iter().copied().filter(move |act| act.outcome == outcome);
        let mut moves: Vec<&HistoryEvent> = of(Outcome::Published).collect();
        let mut cut_off: Vec<&HistoryEvent> = of(Outcome::Pending).collect();
        cut_off.sort_by_key(|act| act.at);
        for act in cut_off {
            let named = act.blob.as_ref().is_some_and(|blob| shown.contains(blob));
            if named && !moves.iter().any(|told| told.blob == act.blob) {
                moves.push(act);
            }
        }
        moves
    }

    /// Whether a person wrote this pointer of `day`. A build's own record is told from a copy of it by
    /// three signs, of which only the first goes by clocks, which may differ from host to host.
    fn is_by_hand(&self, day: Day, pointer: &Pointer, shown: &BTreeSet<BlobKey>) -> bool {
        let own_day = pointer.blob.day == day && pointer.act == Some(EventKind::Build);
        let Some(written) = pointer.published_at.filter(|_| own_day) else { return true };
        let names = |blob: &Option<BlobKey>| blob.as_ref() == Some(&pointer.blob);
        // Whoever began after it was written, and found or made it name another blob.
        let replaced = self.ended_well().any(|act| act.at > written && !names(&act.blob));
        // It was left for another as often as it was pointed at.
        let moves = self.moves(shown);
        let arrived = moves.iter().filter(|act| names(&act.blob)).count();
        let left = moves.iter().filter(|act| names(&act.previous)).count();
        let gone = left > 0 && arrived <= left;
        // No build of the day can have written these words. One that was cut off can, if what it set out
        // from was not left for another. With no record at all, nothing can be said.
        let was_there = |before: &Option<BlobKey>| {
            let arrived = moves.iter().filter(|act| act.blob == *before).count();
            let arrived = arrived + usize::from(before.is_none());
            let of_published = |act: &&HistoryEvent| act.outcome == Outcome::Published;
            let left = moves.iter().copied().filter(of_published);
            arrived > left.filter(|act| act.previous == *before).count()
        };
        let wrote = |act: &&HistoryEvent| {
            let names = names(&act.blob) && act.previous == pointer.previous;
            let pointed = match act.outcome {
                Outcome::Published => true,
                Outcome::Pending => was_there(&act.previous),
                _ => false,
            };
            act.act == EventKind::Build && names && pointed
        };
        let edited = !moves.is_empty() && !self.0.iter().any(wrote);
        replaced || gone || edited
    }

    /// Whether the history lacks the end of the act that made the pointer what it is.
    fn lacks_the_end_of(&self, pointer: &Pointer) -> bool {
        !self.ended_well().any(|act| {
            let names = act.blob.as_ref() == Some(&pointer.blob);
            names
                && match (act.outcome, pointer.published_at) {
                    (Outcome::Unchanged, Some(written)) => act.at > written,
                    (Outcome::Published, Some(_)) => act.previous == pointer.previous,
                    _ => true,
                }
        })
    }

    /// The blobs of acts that were cut off, but for those that certainly, or most likely, never pointed.
    fn may_have_had(&self, day: Day, now: &RecordState<Pointer>) -> BTreeSet<BlobKey> {
        let since = self.repointed_at(now);
        let own_record = now
            .found()
            .is_none_or(|pointer| pointer.blob.day == day && pointer.act == Some(EventKind::Build));
        let here = now.found().map(|pointer| &pointer.blob);
        let may = |act: &&&HistoryEvent| {
            act.outcome == Outcome::Pending
                && since.is_none_or(|since| act.at <= since)
                && !(own_record && act.previous.as_ref() == here)
        };
        self.0.iter().filter(may).filter_map(|act| act.blob.clone()).collect()
    }

    /// When an operator's repoint began whose record the pointer still is. A build that began later did
    /// not point, else the pointer would be another.
    fn repointed_at(&self, now: &RecordState<Pointer>) -> Option<Timestamp> {
        let pointer = now.found().filter(|pointer| pointer.act == Some(EventKind::Repoint))?;
        // A pointer copied by hand carries another day's record: only the day's own history dates it.
        let repointed = |act: &&&HistoryEvent| {
            act.act == EventKind::Repoint
                && act.blob.as_ref() == Some(&pointer.blob)
                && pointer.published_at == Some(act.at)
        };
        self.0.iter().find(repointed).map(|act| act.at)
    }
}
