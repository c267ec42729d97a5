//! Every case of every decision.

use jiff::Timestamp;

use super::*;
use crate::digest::Digest;
use crate::pointer::{EventKind, HistoryEvent, Outcome};

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

fn today() -> Day {
    day("2026-11-19")
}

fn blob(day: Day, digit: u8) -> BlobKey {
    BlobKey { filter: "rt".parse().unwrap(), day, digest: Digest::new([digit; 32]) }
}

fn pointer(blob: BlobKey, kind: Option<EventKind>) -> RecordState<Pointer> {
    RecordState::Found(Pointer { kind, ..Pointer::to(blob) })
}

fn built(digit: u8) -> RecordState<Pointer> {
    pointer(blob(today(), digit), Some(EventKind::Build))
}

/// The record that the last build of `digit` in this history left.
fn as_built(digit: u8, history: &[HistoryEvent]) -> RecordState<Pointer> {
    let named = |event: &&HistoryEvent| event.blob == Some(blob(today(), digit));
    let event = history.iter().rev().find(named).unwrap();
    RecordState::Found(Pointer {
        kind: Some(EventKind::Build),
        published_at: Some(event.at + jiff::SignedDuration::from_secs(60)),
        previous: event.previous.clone(),
        ..Pointer::to(blob(today(), digit))
    })
}

fn rolled_back() -> RecordState<Pointer> {
    pointer(blob(today().minus(1), 9), Some(EventKind::Repoint))
}

fn garbage() -> RecordState<Pointer> {
    RecordState::Unreadable("it is empty".into())
}

/// The history of a day that had these blobs, each by a build, in this order.
fn had(digits: &[u8]) -> Vec<HistoryEvent> {
    let mut previous = None;
    let event = |(n, digit): (usize, &u8)| {
        let at = "2026-11-19T02:00:00Z".parse::<Timestamp>().unwrap();
        let at = at + jiff::SignedDuration::from_hours(n as i64);
        let blob = Some(blob(today(), *digit));
        let previous = std::mem::replace(&mut previous, blob.clone());
        HistoryEvent {
            day: Some(today()),
            blob,
            previous,
            ..HistoryEvent::new(EventKind::Build, Outcome::Published, at, "t")
        }
    };
    digits.iter().enumerate().map(event).collect()
}

fn decide(
    now: &RecordState<Pointer>,
    unchanged: bool,
    history: &[HistoryEvent],
) -> PublishDecision {
    let past = Past::of(today(), history, now, today(), Retention::default());
    decide_publish(&blob(today(), 1), now, unchanged, &past)
}

#[test]
fn a_first_build_points() {
    assert_eq!(
        decide(&RecordState::Absent, true, &had(&[])),
        PublishDecision::Advance { previous: None }
    );
}

#[test]
fn the_same_blob_again_changes_nothing_even_if_somebody_else_was_first() {
    for unchanged in [true, false] {
        let decided = |history: &[HistoryEvent]| decide(&built(1), unchanged, history);
        assert_eq!(decided(&had(&[1])), PublishDecision::Unchanged { unrecorded: false });
        assert_eq!(decided(&had(&[1, 2])), PublishDecision::Unchanged { unrecorded: false });
        assert_eq!(decided(&had(&[])), PublishDecision::Unchanged { unrecorded: true });
    }
}

#[test]
fn the_same_blob_again_ends_a_refusal_and_a_failure_in_the_history() {
    for outcome in [Outcome::Refused, Outcome::Failed] {
        let mut history = had(&[1]);
        let mut and = |outcome| {
            let before = history.last().unwrap().clone();
            let at = before.at + jiff::SignedDuration::from_hours(1);
            history.push(HistoryEvent { outcome, at, ..before });
            decide(&built(1), true, &history)
        };
        assert_eq!(and(outcome), PublishDecision::Unchanged { unrecorded: true });
        assert_eq!(and(Outcome::Unchanged), PublishDecision::Unchanged { unrecorded: false });
    }
}

#[test]
fn a_mended_run_replaces_an_earlier_build_and_remembers_it() {
    let expected = PublishDecision::Advance { previous: Some(blob(today(), 2)) };
    assert_eq!(decide(&as_built(2, &had(&[2])), true, &had(&[2])), expected);
    // Even back to an earlier build's blob: no operator decided otherwise.
    assert_eq!(decide(&as_built(2, &had(&[1, 2])), true, &had(&[1, 2])), expected);
    assert_eq!(decide(&as_built(2, &had(&[1, 2, 1, 2])), true, &had(&[1, 2, 1, 2])), expected);
    // Nor can anything be said against the pointer where the history is lost.
    assert_eq!(decide(&as_built(2, &had(&[1, 2])), true, &[]), expected);
}

#[test]
fn any_change_in_between_supersedes() {
    for now in [RecordState::Absent, garbage(), built(2), rolled_back()] {
        assert!(
            matches!(decide(&now, false, &had(&[])), PublishDecision::Superseded { .. }),
            "{now:?}"
        );
    }
}

#[test]
fn a_rolled_back_day_moves_only_to_a_blob_it_has_not_had() {
    let to = blob(today().minus(1), 9);
    let rolled = PublishDecision::RolledBack { to: Some(to.clone()) };
    assert_eq!(decide(&rolled_back(), true, &had(&[1])), rolled);
    assert_eq!(
        decide(&rolled_back(), true, &had(&[2])),
        PublishDecision::Advance { previous: Some(to) }
    );
}

#[test]
fn a_blob_that_an_operator_left_stays_left_after_a_build_of_corrected_data() {
    let (bad, corrected, earlier) = (blob(today(), 1), blob(today(), 2), blob(today(), 9));
    let mut history = had(&[1]);
    let mut add = |kind, from: &BlobKey, to: &BlobKey| {
        let at = history.last().unwrap().at + jiff::SignedDuration::from_hours(1);
        history.push(HistoryEvent {
            day: Some(today()),
            blob: Some(to.clone()),
            previous: Some(from.clone()),
            ..HistoryEvent::new(kind, Outcome::Published, at, "t")
        });
        history.clone()
    };
    add(EventKind::Repoint, &bad, &earlier);
    let rolled_back = add(EventKind::Build, &earlier, &corrected);
    let now = as_built(2, &rolled_back);
    let to = Some(corrected.clone());
    assert_eq!(decide(&now, true, &rolled_back), PublishDecision::RolledBack { to });
    let moves = |decision| matches!(decision, PublishDecision::Advance { .. });
    // Also if the repoint was killed right after it had moved the pointer.
    let mut killed = rolled_back.clone();
    killed[1].outcome = Outcome::Pending;
    assert!(matches!(decide(&now, true, &killed), PublishDecision::RolledBack { .. }));
    // And if it was one to the day's own blob before.
    let mut own = had(&[2, 1]);
    let (good, mended, start) = (blob(today(), 2), blob(today(), 3), own[0].at);
    let event = |hours: i64, kind, outcome, from: &BlobKey, to: &BlobKey| HistoryEvent {
        day: Some(today()),
        blob: Some(to.clone()),
        previous: Some(from.clone()),
        ..HistoryEvent::new(kind, outcome, start + jiff::SignedDuration::from_hours(hours), "t")
    };
    own.push(event(5, EventKind::Repoint, Outcome::Pending, &bad, &good));
    own.push(event(6, EventKind::Build, Outcome::Published, &good, &mended));
    let to = Some(mended.clone());
    assert_eq!(decide(&as_built(3, &own), true, &own), PublishDecision::RolledBack { to });
    // Not if it was killed before it moved the pointer: the build found the bad one.
    own.pop();
    own.push(event(6, EventKind::Build, Outcome::Published, &bad, &mended));
    assert!(moves(decide(&as_built(3, &own), true, &own)));
    // An operator who brings it back takes that back, also by hand: then a build found it.
    let mut by_hand = rolled_back.clone();
    by_hand[2].previous = Some(bad.clone());
    assert!(moves(decide(&as_built(2, &by_hand), true, &by_hand)));
    add(EventKind::Repoint, &corrected, &bad);
    let history = add(EventKind::Build, &bad, &corrected);
    assert!(moves(decide(&as_built(2, &history), true, &history)));
}

#[test]
fn a_rollback_to_an_older_blob_of_the_same_day_stands_too() {
    for kind in [Some(EventKind::Repoint), None] {
        let now = pointer(blob(today(), 2), kind);
        let to = Some(blob(today(), 2));
        assert_eq!(decide(&now, true, &had(&[1, 2])), PublishDecision::RolledBack { to });
    }
}

#[test]
fn the_days_own_earlier_record_put_back_is_a_rollback() {
    let to = Some(blob(today(), 2));
    for history in [&[2, 1][..], &[2, 3, 1], &[2, 1, 2, 1], &[1, 2, 1]] {
        let history = had(history);
        let now = as_built(2, &history);
        assert_eq!(decide(&now, true, &history), PublishDecision::RolledBack { to: to.clone() });
        // A clock that is an hour off does not hide it.
        let mut skewed = history.clone();
        let last = skewed.last_mut().unwrap();
        last.at -= jiff::SignedDuration::from_hours(100);
        assert_eq!(decide(&now, true, &skewed), PublishDecision::RolledBack { to: to.clone() });
    }
}

#[test]
fn an_edited_record_is_a_rollback() {
    let history = had(&[2, 1]);
    let RecordState::Found(record) = as_built(1, &history) else { panic!("it is there") };
    for (digit, previous) in [(2, record.previous.clone()), (3, record.previous.clone()), (2, None)]
    {
        let edited = Pointer {
            previous,
            published_at: record.published_at,
            kind: record.kind,
            ..Pointer::to(blob(today(), digit))
        };
        let to = Some(blob(today(), digit));
        assert_eq!(
            decide(&RecordState::Found(edited), true, &history),
            PublishDecision::RolledBack { to }
        );
    }
    let undated = Pointer { published_at: None, ..record };
    assert!(matches!(
        decide(&RecordState::Found(undated), true, &history),
        PublishDecision::Unchanged { .. }
    ));
}

#[test]
fn a_removed_pointer_is_a_rollback_as_long_as_prune_would_have_kept_it() {
    let history = had(&[1]);
    assert_eq!(
        decide(&RecordState::Absent, true, &history),
        PublishDecision::RolledBack { to: None }
    );
    assert_eq!(
        decide(&RecordState::Absent, true, &had(&[2])),
        PublishDecision::Advance { previous: None }
    );
    let later = |days| {
        let keep = Retention { keep_days: 14, max_age_days: 3 };
        let past = Past::of(today(), &history, &RecordState::Absent, today().plus(days), keep);
        decide_publish(&blob(today(), 1), &RecordState::Absent, true, &past)
    };
    assert_eq!(later(14), PublishDecision::RolledBack { to: None });
    assert_eq!(later(15), PublishDecision::Advance { previous: None });
}

#[test]
fn a_build_that_was_cut_off_is_run_again() {
    let mut cut_off = had(&[2, 1]);
    cut_off[1].outcome = Outcome::Pending;
    let expected = PublishDecision::Advance { previous: Some(blob(today(), 2)) };
    assert_eq!(decide(&as_built(2, &cut_off), true, &cut_off), expected);
    let mut first = had(&[1]);
    first[0].outcome = Outcome::Pending;
    assert_eq!(
        decide(&RecordState::Absent, true, &first),
        PublishDecision::Advance { previous: None }
    );
    // After it had pointed it is unchanged, and that is worth a record.
    let pointed = as_built(1, &cut_off);
    assert_eq!(decide(&pointed, true, &cut_off), PublishDecision::Unchanged { unrecorded: true });
    // A mended one, after a rollback by hand: to an earlier record, or to nothing.
    let mut mended = had(&[2, 3]);
    let restored = as_built(2, &mended);
    for (now, previous) in [(restored, Some(blob(today(), 2))), (RecordState::Absent, None)] {
        mended.truncate(2);
        mended.push(HistoryEvent {
            outcome: Outcome::Pending,
            previous: previous.clone(),
            ..had(&[4, 4, 1])[2].clone()
        });
        assert_eq!(decide(&now, true, &mended), PublishDecision::Advance { previous });
        let past = Past::of(today(), &mended, &now, today(), Retention::default());
        let bad = decide_publish(&blob(today(), 3), &now, true, &past);
        assert!(matches!(bad, PublishDecision::RolledBack { .. }), "{bad:?}");
    }
}

#[test]
fn a_copied_pointer_is_a_rollback() {
    // `cp pointers/2026-11-18 pointers/2026-11-19`: a build's record, but of another day.
    let copied = pointer(blob(today().minus(1), 9), Some(EventKind::Build));
    assert!(matches!(decide(&copied, true, &had(&[1])), PublishDecision::RolledBack { .. }));
}

#[test]
fn an_unreadable_pointer_is_never_overwritten_by_a_build() {
    let may_be_rollback = |past: &[HistoryEvent]| match decide(&garbage(), true, past) {
        PublishDecision::Unreadable { may_be_rollback, .. } => may_be_rollback,
        other => panic!("{other:?}"),
    };
    assert!(!may_be_rollback(&had(&[2])));
    assert!(may_be_rollback(&had(&[1, 2])), "it has named the blob of this build");
}

#[test]
fn a_day_had_what_was_pointed_at_or_may_have_been() {
    let at = "2026-11-19T02:00:00Z".parse().unwrap();
    let event = |kind, outcome, day, digit| HistoryEvent {
        day: Some(day),
        blob: Some(blob(day, digit)),
        ..HistoryEvent::new(kind, outcome, at, "test")
    };
    let history = [
        event(EventKind::Build, Outcome::Published, today(), 1),
        event(EventKind::Build, Outcome::Pending, today(), 2),
        event(EventKind::Build, Outcome::Superseded, today(), 3),
        event(EventKind::Build, Outcome::Refused, today(), 4),
        event(EventKind::Repoint, Outcome::Published, today(), 5),
        event(EventKind::Build, Outcome::Published, today().minus(1), 6),
        event(EventKind::Pin, Outcome::Published, today(), 7),
    ];
    let by_hand = RecordState::Found(Pointer::to(blob(today(), 8)));
    let past = Past::of(today(), &history, &by_hand, today(), Retention::default());
    let had = |past: &Past| (0..10).filter(|n| past.had(&blob(today(), *n))).collect::<Vec<_>>();
    assert_eq!(had(&past), [1, 2, 5, 8]);
    let past = Past::of(today(), &[], &built(8), today(), Retention::default());
    assert_eq!(had(&past), [8]);
}

#[test]
fn a_day_means_its_pointers_blob_then_its_only_blob() {
    let (one, two) = (blob(today(), 1), blob(today(), 2));
    let both = [one.clone(), two.clone()];
    assert_eq!(blob_of_day(today(), &built(1), &both), BlobOfDay::One(one.clone()));
    assert_eq!(blob_of_day(today(), &rolled_back(), &both[..1]), BlobOfDay::One(one));
    assert_eq!(blob_of_day(today(), &rolled_back(), &both), BlobOfDay::Several(both.to_vec()));
    assert_eq!(blob_of_day(today(), &garbage(), &[]), BlobOfDay::None);
}

#[test]
fn only_absence_moves_the_search_on() {
    assert_eq!(follow_pointer(today(), &RecordState::Absent), FollowStep::ReadOlder);
    assert!(matches!(follow_pointer(today(), &garbage()), FollowStep::Keep { .. }));
    let FollowStep::Follow(followed) = follow_pointer(today(), &rolled_back()) else {
        panic!("a readable pointer is followed")
    };
    assert!(followed.is_rolled_back());
    assert_eq!(followed.pointer_day(), Some(today()));
}

#[test]
fn a_pin_holds_until_it_expires() {
    let until: Timestamp = "2026-11-19T12:00:00Z".parse().unwrap();
    let pin = |until| {
        let blob = blob(today(), 1);
        RecordState::Found(Pin { blob, until, pinned_at: None, pinned_by: None, reason: None })
    };
    let before = until - jiff::SignedDuration::from_secs(1);
    assert!(matches!(follow_pin(&pin(Some(until)), before), FollowStep::Follow(_)));
    assert_eq!(follow_pin(&pin(Some(until)), until), FollowStep::ReadOlder);
    assert!(matches!(follow_pin(&pin(None), until), FollowStep::Follow(_)));
    assert_eq!(follow_pin(&RecordState::Absent, until), FollowStep::ReadOlder);
    assert!(matches!(
        follow_pin(&RecordState::Unreadable("x".into()), until),
        FollowStep::Keep { .. }
    ));
}

#[test]
fn the_search_never_goes_ahead_of_today_nor_behind_what_was_followed() {
    let days = |last| days_to_follow(today(), last, 2);
    let from = |day: Day| vec![day, day.minus(1), day.minus(2)];
    assert_eq!(days(None), from(today()));
    assert_eq!(days(Some(today().minus(1))), from(today()));
    assert_eq!(days(Some(today().plus(1))), from(today().plus(1)), "the clock was stepped back");
}

#[test]
fn tomorrow_may_be_built_and_no_later_day() {
    let now = "2026-11-19T23:59:59Z".parse().unwrap();
    assert_eq!(newest_buildable(now), day("2026-11-20"));
}

#[test]
fn only_a_second_read_decides_whether_a_failed_write_was_done() {
    assert_eq!(after_ambiguous_write(Some(&1), &2, Some(&2)), AmbiguousWrite::Written);
    assert_eq!(after_ambiguous_write(None, &2, Some(&2)), AmbiguousWrite::Written);
    assert_eq!(after_ambiguous_write(Some(&1), &2, Some(&1)), AmbiguousWrite::NotWritten);
    assert_eq!(after_ambiguous_write(None, &2, None), AmbiguousWrite::NotWritten);
    assert_eq!(after_ambiguous_write(Some(&1), &2, Some(&3)), AmbiguousWrite::Changed);
    assert_eq!(after_ambiguous_write(Some(&1), &2, None), AmbiguousWrite::Changed);
    assert_eq!(after_ambiguous_write(None, &2, Some(&3)), AmbiguousWrite::Changed);
}

#[test]
fn a_mended_build_that_never_pointed_may_be_run_again_after_a_repoint() {
    let (at, later): (Timestamp, Timestamp) =
        ("2026-11-20T08:00:00Z".parse().unwrap(), "2026-11-20T09:00:00Z".parse().unwrap());
    let event = |kind, outcome, at, blob| HistoryEvent {
        day: Some(today()),
        blob: Some(blob),
        ..HistoryEvent::new(kind, outcome, at, "test")
    };
    let to = blob(today().minus(1), 9);
    let repoint = event(EventKind::Repoint, Outcome::Published, at, to.clone());
    let record = Pointer {
        kind: Some(EventKind::Repoint),
        published_at: Some(at),
        ..Pointer::to(to.clone())
    };
    let before = event(EventKind::Build, Outcome::Pending, at, blob(today(), 1));
    let after = event(EventKind::Build, Outcome::Pending, later, blob(today(), 2));
    let history = [repoint, before, after];
    let past_of = |now: Pointer| {
        Past::of(today(), &history, &RecordState::Found(now), today(), Retention::default())
    };
    let past = past_of(record.clone());
    assert!(past.had(&blob(today(), 1)), "it may have been live when the operator came");
    assert!(!past.had(&blob(today(), 2)), "the pointer is still the operator's");

    // Copied by hand, the same record says nothing of when this day's pointer was written.
    let copied = Pointer { published_at: Some(later), ..record };
    assert!(past_of(copied).had(&blob(today(), 2)));
    assert!(past_of(Pointer::to(to)).had(&blob(today(), 2)));
}
