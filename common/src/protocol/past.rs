//! What a day's pointer has named, according to the history and to the pointer, and whether a
//! person made it what it is now.
//!
//! A rollback counts, however it is made. A `repoint` and a hand-written line show that they are
//! rollbacks. A restored earlier record, an edited record and a removed one do not: they are
//! recognized with the history, which has a record of every build and repoint.
//!
//! The rules:
//!
//! - A build or repoint that ended *published* or *unchanged* wrote a pointer to its blob. The
//!   pointer also named what a record gives as `previous`, however the event ended: it was read
//!   from the pointer.
//! - A record that is still *pending* is of a build that was interrupted, before it wrote the
//!   pointer or right after. When a person wrote the pointer, such a blob counts as named: no guess
//!   may undo a rollback. It does not count when the build began with the record that is there now
//!   (or with none, if there is none): most likely it was interrupted before it wrote, and the same
//!   build must be able to run again. So one case is not recognized: a build is killed between its
//!   pointer and its last record, nobody runs it again, and somebody then restores by hand the
//!   record (or the absence) that it replaced. A `repoint` is always recognized.
//! - A blob that a repoint took the pointer from is rejected, also after a build of other data: no
//!   build points to it, until the pointer has named it again.
//! - A day so old that prune may have dropped its pointer is not rolled back when it has none.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{RecordState, Retention};
use crate::day::Day;
use crate::key::BlobKey;
use crate::pointer::{EventKind, HistoryEvent, Outcome, Pointer};

/// What the pointer of one day has named, as far as history and pointer show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// What the pointer named, certainly or perhaps.
    had: BTreeSet<BlobKey>,
    by_hand: bool,
    unrecorded: bool,
    /// What an operator's repoint took it from, and nothing has brought back since.
    rejected: BTreeSet<BlobKey>,
}

impl Past {
    /// Collects what `history` records about `day`, whose pointer is `now`, on the day `today`.
    ///
    /// Cost: a few passes over the history.
    pub fn of(
        day: Day,
        history: &[HistoryEvent],
        now: &RecordState<Pointer>,
        today: Day,
        retention: Retention,
    ) -> Past {
        let events = DayEvents(
            history
                .iter()
                .filter(|event| matches!(event.kind, EventKind::Build | EventKind::Repoint))
                .filter(|event| event.day == Some(day))
                .collect(),
        );
        let published = events.published();
        let by_hand = match now {
            RecordState::Found(pointer) => events.is_by_hand(day, pointer, &published),
            // Somebody removed it, unless prune did.
            RecordState::Absent => !published.is_empty() && day >= today.minus(retention.keep_days),
            RecordState::Unreadable(_) => true,
        };
        let rejected = events.rejected(now);
        let may_have_had = events.may_have_had(day, now);
        let named =
            now.found().into_iter().flat_map(|p| [Some(p.blob.clone()), p.previous.clone()]);
        let had = published.into_iter().chain(may_have_had).chain(named.flatten()).collect();
        let lacks_end = |pointer| events.lacks_the_end_of(pointer) || events.ended_badly();
        let unrecorded = now.found().is_some_and(lacks_end);
        Past { had, by_hand, unrecorded, rejected }
    }

    /// Whether an operator's repoint took the pointer from this blob, and nothing has brought it
    /// back since.
    pub fn was_rejected(&self, blob: &BlobKey) -> bool {
        self.rejected.contains(blob)
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

    /// Whether the history does not show how the pointer got what it names: the event that wrote it
    /// was interrupted before its last record, or was a person's. Also when the newest build of
    /// the day was refused or failed, until one ends as published or unchanged.
    pub fn is_unrecorded(&self) -> bool {
        self.unrecorded
    }
}

/// The events that moved the pointer of one day.
struct Moves<'a>(Vec<&'a HistoryEvent>);

impl Moves<'_> {
    /// How often the pointer was moved to this.
    fn arrivals(&self, at: Option<&BlobKey>) -> usize {
        self.0.iter().filter(|event| event.blob.as_ref() == at).count()
    }

    /// Whether the pointer was moved away from a blob as often as to it, or more often.
    fn have_left_for_good(&self, blob: &BlobKey) -> bool {
        let left = self.0.iter().filter(|event| event.previous.as_ref() == Some(blob)).count();
        left > 0 && self.arrivals(Some(blob)) <= left
    }

    /// Whether an interrupted event can have replaced this, a blob or nothing: fewer events
    /// certainly replaced it than moved the pointer to it.
    fn can_be_replaced(&self, was: Option<&BlobKey>) -> bool {
        // A day begins without a pointer.
        let arrived = self.arrivals(was) + usize::from(was.is_none());
        let is_certain = |event: &&&HistoryEvent| event.outcome == Outcome::Published;
        let left = self.0.iter().filter(is_certain);
        arrived > left.filter(|event| event.previous.as_ref() == was).count()
    }
}

/// The builds and repoints of one day.
struct DayEvents<'a>(Vec<&'a HistoryEvent>);

impl DayEvents<'_> {
    /// Those after which the pointer certainly named their blob.
    fn ended_well(&self) -> impl Iterator<Item = &HistoryEvent> {
        let ended = |event: &&HistoryEvent| {
            matches!(event.outcome, Outcome::Published | Outcome::Unchanged)
        };
        self.0.iter().copied().filter(ended)
    }

    /// What the pointer certainly named.
    fn published(&self) -> BTreeSet<BlobKey> {
        let named = self.ended_well().filter_map(|event| event.blob.clone());
        named.chain(self.0.iter().filter_map(|event| event.previous.clone())).collect()
    }

    /// The blobs that a repoint left, and that the pointer has not named since. A blob that a later
    /// build found in the pointer is not among them: a person has brought it back by hand.
    fn rejected(&self, now: &RecordState<Pointer>) -> BTreeSet<BlobKey> {
        let repointed_at = self.repointed_at(now);
        let has_moved = |event: &&HistoryEvent| match event.outcome {
            Outcome::Published | Outcome::Unchanged => true,
            // It was interrupted after that if a later one found its blob, or it is still there.
            Outcome::Pending => {
                let found = |later: &&HistoryEvent| {
                    later.at > event.at && event.blob.is_some() && later.previous == event.blob
                };
                repointed_at == Some(event.at) || self.0.iter().any(found)
            }
            _ => false,
        };
        // The newest are first, also of those of the same time.
        let events = self.0.iter().rev().copied().filter(has_moved);
        let mut events: Vec<&HistoryEvent> = events.collect();
        events.sort_by_key(|event| event.at);
        let mut rejected = BTreeSet::new();
        for event in events {
            match event.kind {
                EventKind::Repoint => rejected.extend(event.previous.clone()),
                _ => {
                    if let Some(found) = &event.previous {
                        rejected.remove(found);
                    }
                }
            }
            if let Some(named) = &event.blob {
                rejected.remove(named);
            }
        }
        rejected
    }

    /// The events that certainly moved the pointer: every published one; and of the interrupted
    /// ones the first for each blob that the pointer named and that no published event wrote. A
    /// later one may have stopped before its write.
    fn moves(&self, published: &BTreeSet<BlobKey>) -> Moves<'_> {
        let of =
            |outcome: Outcome| self.0.iter().copied().filter(move |event| event.outcome == outcome);
        let mut moves: Vec<&HistoryEvent> = of(Outcome::Published).collect();
        let mut interrupted: Vec<&HistoryEvent> = of(Outcome::Pending).collect();
        interrupted.sort_by_key(|event| event.at);
        for event in interrupted {
            let named = event.blob.as_ref().is_some_and(|blob| published.contains(blob));
            if named && !moves.iter().any(|other| other.blob == event.blob) {
                moves.push(event);
            }
        }
        Moves(moves)
    }

    /// Whether a person wrote this pointer of `day`. Three signs distinguish a build's own record
    /// from a copy of it.
    fn is_by_hand(&self, day: Day, pointer: &Pointer, published: &BTreeSet<BlobKey>) -> bool {
        let is_of_build = pointer.blob.day == day && pointer.kind == Some(EventKind::Build);
        let Some(written) = pointer.published_at.filter(|_| is_of_build) else { return true };
        let moves = self.moves(published);
        self.was_replaced_after(pointer, written)
            || moves.have_left_for_good(&pointer.blob)
            // Without any record, nothing is known.
            || !(moves.0.is_empty() || self.can_be_of_build(pointer, &moves))
    }

    /// Whether an event that began after this pointer was written found, or made, it name another
    /// blob. Of the signs only this one depends on clocks, which may differ from host to host.
    fn was_replaced_after(&self, pointer: &Pointer, written: Timestamp) -> bool {
        let is_other = |event: &HistoryEvent| event.blob.as_ref() != Some(&pointer.blob);
        self.ended_well().any(|event| event.at > written && is_other(event))
    }

    /// Whether a build of the day can have written this record.
    fn can_be_of_build(&self, pointer: &Pointer, moves: &Moves<'_>) -> bool {
        self.0.iter().any(|event| {
            event.kind == EventKind::Build
                && event.blob.as_ref() == Some(&pointer.blob)
                && event.previous == pointer.previous
                && match event.outcome {
                    Outcome::Published => true,
                    // If what it found was not replaced by another.
                    Outcome::Pending => moves.can_be_replaced(event.previous.as_ref()),
                    _ => false,
                }
        })
    }

    /// Whether the history lacks the end of the event that made the pointer what it is.
    fn lacks_the_end_of(&self, pointer: &Pointer) -> bool {
        !self.ended_well().any(|event| {
            let names = event.blob.as_ref() == Some(&pointer.blob);
            names
                && match (event.outcome, pointer.published_at) {
                    (Outcome::Unchanged, Some(written)) => event.at > written,
                    (Outcome::Published, Some(_)) => event.previous == pointer.previous,
                    _ => true,
                }
        })
    }

    /// Whether the newest build was refused or failed.
    fn ended_badly(&self) -> bool {
        let builds = self.0.iter().filter(|event| event.kind == EventKind::Build);
        let newest = builds.max_by_key(|event| event.at);
        newest.is_some_and(|event| matches!(event.outcome, Outcome::Refused | Outcome::Failed))
    }

    /// The blobs of interrupted events, without those that the pointer certainly, or most likely,
    /// never named.
    fn may_have_had(&self, day: Day, now: &RecordState<Pointer>) -> BTreeSet<BlobKey> {
        let since = self.repointed_at(now);
        let own_record = now.found().is_none_or(|pointer| {
            pointer.blob.day == day && pointer.kind == Some(EventKind::Build)
        });
        let here = now.found().map(|pointer| &pointer.blob);
        let may = |event: &&&HistoryEvent| {
            event.outcome == Outcome::Pending
                && since.is_none_or(|since| event.at <= since)
                && !(own_record && event.previous.as_ref() == here)
        };
        self.0.iter().filter(may).filter_map(|event| event.blob.clone()).collect()
    }

    /// When an operator's repoint began whose record the pointer still is. A build that began later
    /// did not point, else the pointer would be another.
    fn repointed_at(&self, now: &RecordState<Pointer>) -> Option<Timestamp> {
        let pointer = now.found().filter(|pointer| pointer.kind == Some(EventKind::Repoint))?;
        // A pointer copied by hand carries another day's record: only the day's own history dates
        // it.
        let repointed = |event: &&&HistoryEvent| {
            event.kind == EventKind::Repoint
                && event.blob.as_ref() == Some(&pointer.blob)
                && pointer.published_at == Some(event.at)
        };
        self.0.iter().find(repointed).map(|event| event.at)
    }
}
