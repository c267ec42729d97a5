//! Every case of every decision.

use jiff::Timestamp;

use super::*;
use crate::digest::Digest;

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

fn today() -> Day {
    day("2026-11-19")
}

fn blob(day: Day, digit: u8) -> BlobKey {
    BlobKey { filter: "rt".parse().unwrap(), day, digest: Digest::new([digit; 32]) }
}

fn pointer(blob: BlobKey, act: Option<ActKind>) -> Seen<Pointer> {
    Seen::Found(Pointer { act, ..Pointer::to(blob) })
}

fn built(digit: u8) -> Seen<Pointer> {
    pointer(blob(today(), digit), Some(ActKind::Build))
}

fn rolled_back() -> Seen<Pointer> {
    pointer(blob(today().minus(1), 9), Some(ActKind::Repoint))
}

fn garbage() -> Seen<Pointer> {
    Seen::Unreadable("it is empty".into())
}

fn had(digits: &[u8]) -> BTreeSet<BlobKey> {
    digits.iter().map(|digit| blob(today(), *digit)).collect()
}

fn decide(now: &Seen<Pointer>, unchanged: bool, had: &BTreeSet<BlobKey>) -> Publish {
    publish(today(), &blob(today(), 1), now, unchanged, had)
}

#[test]
fn a_first_build_points() {
    assert_eq!(decide(&Seen::Absent, true, &had(&[])), Publish::Point { previous: None });
}

#[test]
fn the_same_blob_again_changes_nothing_even_if_somebody_else_was_first() {
    for unchanged in [true, false] {
        assert_eq!(decide(&built(1), unchanged, &had(&[1])), Publish::Unchanged);
    }
}

#[test]
fn a_mended_run_replaces_an_earlier_build_and_remembers_it() {
    let expected = Publish::Point { previous: Some(blob(today(), 2)) };
    assert_eq!(decide(&built(2), true, &had(&[2])), expected);
    // Even back to an earlier build's blob: no operator decided otherwise.
    assert_eq!(decide(&built(2), true, &had(&[1, 2])), expected);
}

#[test]
fn whatever_changed_meanwhile_supersedes() {
    for now in [Seen::Absent, garbage(), built(2), rolled_back()] {
        assert!(matches!(decide(&now, false, &had(&[])), Publish::Superseded { .. }), "{now:?}");
    }
}

#[test]
fn a_rolled_back_day_moves_only_to_a_blob_it_has_not_had() {
    let to = blob(today().minus(1), 9);
    assert_eq!(decide(&rolled_back(), true, &had(&[1])), Publish::RolledBack { to: to.clone() });
    assert_eq!(decide(&rolled_back(), true, &had(&[2])), Publish::Point { previous: Some(to) });
}

#[test]
fn a_rollback_to_an_older_blob_of_the_same_day_stands_too() {
    for act in [Some(ActKind::Repoint), None] {
        let now = pointer(blob(today(), 2), act);
        let to = blob(today(), 2);
        assert_eq!(decide(&now, true, &had(&[1, 2])), Publish::RolledBack { to });
    }
}

#[test]
fn a_copied_pointer_is_a_rollback() {
    // `cp pointers/2026-11-18 pointers/2026-11-19`: a build's record, but of another day.
    let copied = pointer(blob(today().minus(1), 9), Some(ActKind::Build));
    assert!(matches!(decide(&copied, true, &had(&[1])), Publish::RolledBack { .. }));
}

#[test]
fn an_unreadable_pointer_is_never_overwritten_by_a_build() {
    assert!(matches!(decide(&garbage(), true, &had(&[])), Publish::Unreadable { .. }));
}

#[test]
fn a_day_had_what_was_pointed_at_or_may_have_been() {
    let at = "2026-11-19T02:00:00Z".parse().unwrap();
    let act = |kind, outcome, day, digit| Act {
        day: Some(day),
        blob: Some(blob(day, digit)),
        ..Act::new(kind, outcome, at, "test")
    };
    let history = [
        act(ActKind::Build, Outcome::Published, today(), 1),
        act(ActKind::Build, Outcome::Pointing, today(), 2),
        act(ActKind::Build, Outcome::Superseded, today(), 3),
        act(ActKind::Build, Outcome::Refused, today(), 4),
        act(ActKind::Repoint, Outcome::Published, today(), 5),
        act(ActKind::Build, Outcome::Published, today().minus(1), 6),
        act(ActKind::Pin, Outcome::Published, today(), 7),
    ];
    assert_eq!(blobs_a_day_had(today(), &history, &Seen::Absent), had(&[1, 2, 5]));
    assert_eq!(blobs_a_day_had(today(), &[], &built(8)), had(&[8]));
}

#[test]
fn a_day_means_its_pointers_blob_then_its_only_blob() {
    let (one, two) = (blob(today(), 1), blob(today(), 2));
    let both = [one.clone(), two.clone()];
    assert_eq!(target_of_day(today(), &built(1), &both), Target::Blob(one.clone()));
    assert_eq!(target_of_day(today(), &rolled_back(), &both[..1]), Target::Blob(one));
    assert_eq!(target_of_day(today(), &rolled_back(), &both), Target::Several(both.to_vec()));
    assert_eq!(target_of_day(today(), &garbage(), &[]), Target::None);
}

#[test]
fn only_absence_moves_the_search_on() {
    assert_eq!(follow_pointer(today(), &Seen::Absent), Step::Further);
    assert!(matches!(follow_pointer(today(), &garbage()), Step::Keep { .. }));
    let Step::Follow(followed) = follow_pointer(today(), &rolled_back()) else {
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
        Seen::Found(Pin { blob, until, pinned_at: None, pinned_by: None, reason: None })
    };
    let before = until - jiff::SignedDuration::from_secs(1);
    assert!(matches!(follow_pin(&pin(Some(until)), before), Step::Follow(_)));
    assert_eq!(follow_pin(&pin(Some(until)), until), Step::Further);
    assert!(matches!(follow_pin(&pin(None), until), Step::Follow(_)));
    assert_eq!(follow_pin(&Seen::Absent, until), Step::Further);
    assert!(matches!(follow_pin(&Seen::Unreadable("x".into()), until), Step::Keep { .. }));
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
fn only_a_second_look_tells_what_became_of_a_write_that_failed() {
    assert_eq!(after_unclear_write(Some(&1), &2, Some(&2)), Unclear::Written);
    assert_eq!(after_unclear_write(None, &2, Some(&2)), Unclear::Written);
    assert_eq!(after_unclear_write(Some(&1), &2, Some(&1)), Unclear::NotWritten);
    assert_eq!(after_unclear_write(None, &2, None), Unclear::NotWritten);
    assert_eq!(after_unclear_write(Some(&1), &2, Some(&3)), Unclear::Changed);
    assert_eq!(after_unclear_write(Some(&1), &2, None), Unclear::Changed);
    assert_eq!(after_unclear_write(None, &2, Some(&3)), Unclear::Changed);
}

#[test]
fn a_mended_build_that_never_pointed_may_be_run_again_after_a_repoint() {
    let (at, later): (Timestamp, Timestamp) =
        ("2026-11-20T08:00:00Z".parse().unwrap(), "2026-11-20T09:00:00Z".parse().unwrap());
    let act = |kind, outcome, at, blob| Act {
        day: Some(today()),
        blob: Some(blob),
        ..Act::new(kind, outcome, at, "test")
    };
    let to = blob(today().minus(1), 9);
    let repoint = act(ActKind::Repoint, Outcome::Published, at, to.clone());
    let record =
        Pointer { act: Some(ActKind::Repoint), published_at: Some(at), ..Pointer::to(to.clone()) };
    let before = act(ActKind::Build, Outcome::Pointing, at, blob(today(), 1));
    let after = act(ActKind::Build, Outcome::Pointing, later, blob(today(), 2));
    let history = [repoint, before, after];
    let had = blobs_a_day_had(today(), &history, &Seen::Found(record.clone()));
    assert!(had.contains(&blob(today(), 1)), "it may have been live when the operator came");
    assert!(!had.contains(&blob(today(), 2)), "the pointer is still the operator's");

    // Copied by hand, the same record says nothing of when this day's pointer was written.
    let copied = Pointer { published_at: Some(later), ..record };
    let had = blobs_a_day_had(today(), &history, &Seen::Found(copied));
    assert!(had.contains(&blob(today(), 2)));
    let by_hand = Seen::Found(Pointer::to(to));
    assert!(blobs_a_day_had(today(), &history, &by_hand).contains(&blob(today(), 2)));
}
