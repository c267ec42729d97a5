//! Retention: which pointers and blobs prune may delete, and which blobs an operator therefore
//! must not point at.
//!
//! Prune works in two steps. It drops the pointers of days that nobody follows any more; then it
//! deletes old blobs that nothing names. Others go on writing at the same time, and no store
//! deletes conditionally, so three rules keep every named blob:
//!
//! - prune reads the blob's age and all references again right before each delete ([`may_delete`]);
//! - a build reads its blob's age right before it writes the pointer, and uploads a blob again that
//!   prune may delete within a day, which makes it young ([`is_near_deletion`]);
//! - an operator's command does not point at a blob that prune may be about to delete
//!   ([`is_expiring`]), and checks again after the write: somebody else may have removed what kept
//!   the blob.
//!
//! A prune may have looked at the blob before that, and delete it in its next request. It records
//! its begin before it looks, and its end. So a build of an old day ([`may_be_old`]) waits for the
//! end of a prune after it has uploaded the blob, an operator's command after it has pointed at a
//! blob of such a day; then both look once more.
//!
//! They hold as long as no program stops for a day between such a read and the write after it, and
//! no prune for ten minutes between its look at a blob and the delete.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::RecordState;
use crate::day::Day;
use crate::key::{BlobKey, DeltaKey};
use crate::pointer::{Pin, Pointer};

/// The largest `keep_days`: a century, for people who mean "for ever".
pub const MAX_KEEP_DAYS: u32 = 36_525;
/// The largest `max_age_days`: a poll may have to read a pointer for each of these days.
pub const MAX_MAX_AGE_DAYS: u32 = 400;

/// How long pointers and blobs of a filter are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Pointers of older days are dropped; blobs are kept a day longer, by their upload.
    pub keep_days: u32,
    /// How far back servers look: the newest pointers, one more than these, are never dropped.
    pub max_age_days: u32,
}

impl Retention {
    /// Two weeks, and the three days before today that servers follow.
    pub const DEFAULT: Retention = Retention { keep_days: 14, max_age_days: 3 };
}

impl Default for Retention {
    /// [`Retention::DEFAULT`].
    fn default() -> Retention {
        Retention::DEFAULT
    }
}

/// The days whose pointers prune drops, of all `days` that have one: those older than `keep_days`,
/// but never the newest `max_age_days` + 1, so that a fleet whose builds stopped keeps its
/// pointers.
///
/// ```
/// use bloomsday_common::day::Day;
/// use bloomsday_common::protocol::{Retention, pointers_to_drop};
///
/// let today: Day = "2026-11-19".parse()?;
/// let days: Vec<Day> = (0..30).map(|age| today.minus(age)).collect();
/// let dropped = pointers_to_drop(&days, today, Retention::default());
/// assert_eq!(dropped.first(), Some(&today.minus(15)));
///
/// // Builds stopped long ago: the last four pointers stay.
/// assert!(pointers_to_drop(&days[26..], today, Retention::default()).is_empty());
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub fn pointers_to_drop(days: &[Day], today: Day, retention: Retention) -> Vec<Day> {
    let mut days: Vec<Day> = days.to_vec();
    days.sort_unstable_by(|a, b| b.cmp(a));
    // A store may list an object twice.
    days.dedup();
    let oldest_kept = today.minus(retention.keep_days);
    let beyond = days.into_iter().skip(retention.max_age_days as usize + 1);
    beyond.filter(|day| *day < oldest_kept).collect()
}

/// The days whose segments of live IDs prune deletes, of all `days` that have some: those older
/// than `segment_days`, but never the day of the oldest blob that a record names, nor a later one:
/// a server that goes back to that blob reads the segments of its day and of all days after it.
pub fn segment_days_to_delete(
    days: &[Day],
    today: Day,
    segment_days: u32,
    references: &References,
) -> Vec<Day> {
    if !references.unreadable.is_empty() || references.pointers == 0 {
        return Vec::new();
    }
    let oldest_named = references.named.iter().map(|blob| blob.day).min();
    let oldest_kept = oldest_named.into_iter().fold(today.minus(segment_days), Day::min);
    days.iter().copied().filter(|day| *day < oldest_kept).collect()
}

/// Everything that pointers and pin name: what must not be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    named: BTreeSet<BlobKey>,
    unreadable: Vec<String>,
    pointers: usize,
}

impl References {
    /// What the pin and the pointers that stay name; `previous` blobs count as named.
    pub fn of<'a>(
        pin: &RecordState<Pin>,
        pointers: impl IntoIterator<Item = (Day, &'a RecordState<Pointer>)>,
    ) -> References {
        let mut references = References::default();
        match pin {
            // An expired pin may be prolonged: it protects its blob until it is removed.
            RecordState::Found(pin) => drop(references.named.insert(pin.blob.clone())),
            RecordState::Unreadable(_) => references.unreadable.push("the pin".to_owned()),
            RecordState::Absent => {}
        }
        for (day, pointer) in pointers {
            references.pointers += usize::from(!matches!(pointer, RecordState::Absent));
            match pointer {
                RecordState::Found(pointer) => {
                    references.named.insert(pointer.blob.clone());
                    references.named.extend(pointer.previous.clone());
                }
                RecordState::Unreadable(_) => {
                    references.unreadable.push(format!("the pointer of {day}"))
                }
                RecordState::Absent => {}
            }
        }
        references
    }

    /// Whether a record that can be read names this blob.
    pub fn names(&self, blob: &BlobKey) -> bool {
        self.named.contains(blob)
    }

    /// Whether a record names this blob, or might: a record that cannot be read may name any blob.
    /// Where there is no pointer at all, they were lost, or live in another place.
    pub fn may_name(&self, blob: &BlobKey) -> bool {
        !self.unreadable.is_empty() || self.pointers == 0 || self.names(blob)
    }

    /// How many pointers there are.
    pub fn pointers(&self) -> usize {
        self.pointers
    }

    /// The records that cannot be read. While there are any, no blob may be deleted.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

/// Whether prune may delete a blob that was uploaded at `uploaded`, given references read just
/// before.
///
/// `now` must be of the same clock as `uploaded`: the store's.
pub fn may_delete(
    blob: &BlobKey,
    uploaded: Timestamp,
    now: Timestamp,
    references: &References,
    retention: Retention,
) -> bool {
    older_than(uploaded, now, retention.keep_days.saturating_add(1)) && !references.may_name(blob)
}

/// Whether prune may delete a delta that was uploaded at `uploaded`, when these are the blobs that
/// stay: one of its two is gone, or no server is so far behind that it still begins from the older
/// of them.
pub fn may_delete_delta(
    delta: &DeltaKey,
    uploaded: Timestamp,
    now: Timestamp,
    blobs: &[BlobKey],
    retention: Retention,
) -> bool {
    let there = blobs.iter().filter(|blob| delta.is_of(blob)).count();
    there < 2 || older_than(uploaded, now, retention.max_age_days.saturating_add(1))
}

/// Whether a blob is so old that prune may delete it within a day. A build uploads such a blob
/// again.
pub fn is_near_deletion(uploaded: Timestamp, now: Timestamp, retention: Retention) -> bool {
    older_than(uploaded, now, retention.keep_days)
}

/// Whether a blob of this day can have been uploaded so long ago that prune deletes it: nobody
/// builds a day more than one day ahead.
pub fn may_be_old(day: Day, today: Day, retention: Retention) -> bool {
    day <= today.minus(retention.keep_days)
}

/// Whether prune may be about to delete a blob, so that an operator must not point at it.
///
/// `references` are those that stay: the pointers that [`pointers_to_drop`] names protect nothing.
pub fn is_expiring(
    blob: &BlobKey,
    uploaded: Timestamp,
    now: Timestamp,
    references: &References,
    retention: Retention,
) -> bool {
    is_near_deletion(uploaded, now, retention) && !references.names(blob)
}

fn older_than(uploaded: Timestamp, now: Timestamp, days: u32) -> bool {
    now.duration_since(uploaded) > SignedDuration::from_hours(24 * i64::from(days))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    const KEEP: Retention = Retention { keep_days: 14, max_age_days: 3 };

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    fn blob(digit: u8) -> BlobKey {
        let digest = Digest::new([digit; 32]);
        BlobKey { filter: "rt".parse().unwrap(), day: day("2026-11-01"), digest }
    }

    fn days_ago(days: i64) -> (Timestamp, Timestamp) {
        let now: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        (now - SignedDuration::from_hours(24 * days), now)
    }

    #[test]
    fn pointers_past_the_window_are_dropped_and_the_newest_never() {
        let today = day("2026-11-21");
        let all: Vec<Day> = (0..20).map(|back| today.minus(back)).collect();
        let dropped = pointers_to_drop(&all, today, KEEP);
        assert_eq!(dropped, (15..20).map(|back| today.minus(back)).collect::<Vec<_>>());
        // A fleet whose builds stopped a year ago.
        let later = today.plus(365);
        let dropped = pointers_to_drop(&all, later, KEEP);
        assert_eq!(dropped, (4..20).map(|back| today.minus(back)).collect::<Vec<_>>());
        // Listed twice by a store.
        let twice: Vec<Day> = all.iter().chain(&all).copied().collect();
        assert_eq!(pointers_to_drop(&twice, later, KEEP), dropped);
        assert_eq!(pointers_to_drop(&[], today, KEEP), []);
    }

    #[test]
    fn only_an_old_blob_that_nothing_names_is_deleted() {
        let other = BlobKey { day: day("2026-11-20"), ..blob(7) };
        let other = RecordState::Found(Pointer::to(other));
        let nothing = References::of(&RecordState::Absent, [(day("2026-11-20"), &other)]);
        let verdict = |days, references: &References| {
            let (uploaded, now) = days_ago(days);
            let pass = |f: fn(&BlobKey, Timestamp, Timestamp, &References, Retention) -> bool| {
                f(&blob(1), uploaded, now, references, KEEP)
            };
            (pass(may_delete), pass(is_expiring))
        };
        assert_eq!(verdict(14, &nothing), (false, false));
        // A day in which an operator is refused already, and prune does not delete yet.
        assert_eq!(verdict(15, &nothing), (false, true));
        assert_eq!(verdict(16, &nothing), (true, true));

        let pointer = RecordState::Found(Pointer::to(blob(1)));
        let named = References::of(&RecordState::Absent, [(day("2026-11-20"), &pointer)]);
        assert_eq!(verdict(16, &named), (false, false));
        let previous = Pointer { previous: Some(blob(1)), ..Pointer::to(blob(2)) };
        let pointer = RecordState::Found(previous);
        let named = References::of(&RecordState::Absent, [(day("2026-11-20"), &pointer)]);
        assert_eq!(verdict(16, &named), (false, false));
        let pin = Pin::parse(blob(1).to_string().as_bytes(), &blob(1).filter, &[]).unwrap();
        assert_eq!(verdict(16, &References::of(&RecordState::Found(pin), [])), (false, false));
    }

    #[test]
    fn segments_of_a_day_that_a_named_blob_may_need_are_kept() {
        let today = day("2026-11-21");
        let days: Vec<Day> = (0..30).map(|back| today.minus(back)).collect();
        let newer = BlobKey { day: day("2026-11-20"), ..blob(7) };
        let pointer = RecordState::Found(Pointer::to(newer.clone()));
        let of = |pin: &RecordState<Pin>, pointer| References::of(pin, [(newer.day, pointer)]);
        let dropped = |references: &References| {
            segment_days_to_delete(&days, today, 14, references).into_iter().max()
        };
        assert_eq!(dropped(&of(&RecordState::Absent, &pointer)), Some(day("2026-11-06")));
        // A blob of the 1st, named by `previous`, or by a pin.
        let previous = Pointer { previous: Some(blob(1)), ..Pointer::to(newer.clone()) };
        let previous = RecordState::Found(previous);
        assert_eq!(dropped(&of(&RecordState::Absent, &previous)), Some(day("2026-10-31")));
        let pin = Pin::parse(blob(1).to_string().as_bytes(), &blob(1).filter, &[]).unwrap();
        let pin = RecordState::Found(pin);
        assert_eq!(dropped(&of(&pin, &pointer)), Some(day("2026-10-31")));
        // Without a pointer, or with a record that cannot be read, nobody knows.
        assert_eq!(dropped(&References::of(&RecordState::Absent, [])), None);
        let garbage = RecordState::Unreadable("it is empty".into());
        assert_eq!(dropped(&of(&RecordState::Absent, &garbage)), None);
    }

    #[test]
    fn a_delta_goes_with_either_of_its_blobs_or_when_no_server_is_so_far_behind() {
        let delta = DeltaKey::between(&blob(1), &blob(2));
        let may = |days, blobs: &[BlobKey]| {
            let (uploaded, now) = days_ago(days);
            may_delete_delta(&delta, uploaded, now, blobs, KEEP)
        };
        let both = [blob(3), blob(2), blob(1)];
        assert!(!may(4, &both) && may(5, &both));
        assert!(may(0, &both[..2]) && may(0, &both[2..]) && may(0, &[]));
    }

    #[test]
    fn where_there_is_no_pointer_nothing_is_deleted() {
        let (uploaded, now) = days_ago(100);
        let lost = References::of(&RecordState::Absent, []);
        assert!(!may_delete(&blob(1), uploaded, now, &lost, KEEP));
        // What is about to be pointed at for the first time is old all the same.
        assert!(is_expiring(&blob(1), uploaded, now, &lost, KEEP));
    }

    #[test]
    fn a_record_that_cannot_be_read_protects_everything() {
        let garbage = RecordState::Unreadable("it is empty".into());
        let references = References::of(&RecordState::Absent, [(day("2026-11-20"), &garbage)]);
        assert!(references.may_name(&blob(1)));
        assert_eq!(references.unreadable(), ["the pointer of 2026-11-20"]);
        let pin = RecordState::Unreadable("it is empty".into());
        assert!(References::of(&pin, []).may_name(&blob(1)));
    }
}
