//! Every decision of publish, repoint, pin, prune and follow, as pure functions: from what was read
//! to what to do.
//!
//! There is no I/O and no clock here: [`crate::store`] reads, calls these functions, and acts. So
//! tests and a model checker can try every case on the code that runs.
//!
//! A server follows the newest pointer, and goes a day back only where there is none:
//!
//! ```
//! use bloomsday_common::pointer::Pointer;
//! use bloomsday_common::protocol::{FollowStep, RecordState, days_to_follow, follow_pointer};
//!
//! let today = "2026-11-19".parse()?;
//! let days = days_to_follow(today, None, 3);
//! assert_eq!((days.len(), days[0]), (4, today));
//!
//! assert_eq!(follow_pointer(today, &RecordState::Absent), FollowStep::ReadOlder);
//! let garbage = RecordState::<Pointer>::Unreadable("it is empty".into());
//! assert!(matches!(follow_pointer(today, &garbage), FollowStep::Keep { .. }));
//! # Ok::<(), bloomsday_common::error::Error>(())
//! ```

mod past;
mod retention;
mod route;

use jiff::Timestamp;

use crate::day::Day;
use crate::key::BlobKey;
use crate::pointer::{Pin, Pointer};
pub use past::Past;
pub use retention::{
    MAX_KEEP_DAYS, MAX_MAX_AGE_DAYS, References, Retention, is_expiring, is_near_deletion,
    may_be_old, may_delete, may_delete_delta, pointers_to_drop, segment_days_to_delete,
};
pub use route::{Route, route};

/// What a read of a record found.
///
/// Unreadable is not absent: somebody wrote something there on purpose.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordState<T> {
    /// There is nothing.
    Absent,
    /// There is something that is not a record. The text says why.
    Unreadable(String),
    /// The record.
    Found(T),
}

impl<T> RecordState<T> {
    /// The record, when there is a readable one.
    pub fn found(&self) -> Option<&T> {
        match self {
            RecordState::Found(record) => Some(record),
            _ => None,
        }
    }
}

/// What a second read shows after a conditional write that ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbiguousWrite {
    /// It was written after all: the error came later.
    Written,
    /// Nothing changed: it may be tried again.
    NotWritten,
    /// Somebody else was first.
    Changed,
}

/// Decides whether a conditional write that ended with an error was made: an error can follow a
/// success, so the record is read again. `before` and `now` are what was read before and after,
/// `new` is what was to be written.
///
/// ```
/// use bloomsday_common::protocol::{AmbiguousWrite, after_ambiguous_write};
///
/// assert_eq!(after_ambiguous_write(None, &"new", Some(&"new")), AmbiguousWrite::Written);
/// assert_eq!(after_ambiguous_write(Some(&"old"), &"new", Some(&"old")), AmbiguousWrite::NotWritten);
/// assert_eq!(after_ambiguous_write(Some(&"old"), &"new", None), AmbiguousWrite::Changed);
/// ```
pub fn after_ambiguous_write<T: PartialEq>(
    before: Option<&T>,
    new: &T,
    now: Option<&T>,
) -> AmbiguousWrite {
    match now {
        Some(now) if now == new => AmbiguousWrite::Written,
        now if now == before => AmbiguousWrite::NotWritten,
        _ => AmbiguousWrite::Changed,
    }
}

/// What a build may do to the pointer of its day.
#[derive(Clone, Debug, PartialEq)]
pub enum PublishDecision {
    /// It already names this blob: leave it.
    Unchanged {
        /// The history does not show how the day got this blob. Then append a record, so that a
        /// later rollback by hand can be recognized.
        unrecorded: bool,
    },
    /// Write it, if it still is what was read.
    Advance {
        /// What it named before.
        previous: Option<BlobKey>,
    },
    /// Somebody changed it while the build ran: leave it.
    Superseded {
        /// What it says now, for people.
        now: String,
    },
    /// Somebody rolled the day back from this blob on purpose: leave it.
    RolledBack {
        /// What an operator pointed it at; nothing when the pointer was removed.
        to: Option<BlobKey>,
    },
    /// Its content is not a pointer, perhaps a rollback that somebody is typing: leave it.
    Unreadable {
        /// What is wrong with it.
        why: String,
        /// The pointer has named this blob before, so that it may be a rollback from it.
        may_be_rollback: bool,
    },
}

/// Decides what a build of a day with the blob `new` does to the day's pointer.
///
/// `unchanged_since_start` says whether the pointer's bytes are those read when the build began;
/// `past` is what the pointer has named until now.
///
/// A rolled-back day stays rolled back. When an operator made the pointer name something else, by
/// any means, or removed it, a build moves it only to a blob that it has not named before: a build
/// of corrected data makes such a blob, a build of the same bad data with the same settings does
/// not. Also after that, none moves it back to a blob that a repoint took it from.
///
/// ```
/// use bloomsday_common::protocol::{Past, PublishDecision, RecordState, decide_publish};
///
/// let filter = "rt".parse()?;
/// let name = format!("blobs/2026-11-19-{}.bloom", "ab".repeat(32));
/// let new = bloomsday_common::key::BlobKey::parse(&name, &filter, &[])?;
///
/// // The first build of a day writes its pointer.
/// let decision = decide_publish(&new, &RecordState::Absent, true, &Past::default());
/// assert_eq!(decision, PublishDecision::Advance { previous: None });
/// // Something that is not a pointer is not overwritten.
/// let garbage = RecordState::Unreadable("it is empty".into());
/// let decision = decide_publish(&new, &garbage, true, &Past::default());
/// assert!(matches!(decision, PublishDecision::Unreadable { .. }));
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub fn decide_publish(
    new: &BlobKey,
    now: &RecordState<Pointer>,
    unchanged_since_start: bool,
    past: &Past,
) -> PublishDecision {
    match now {
        RecordState::Found(pointer) if pointer.blob == *new => {
            PublishDecision::Unchanged { unrecorded: past.is_unrecorded() }
        }
        _ if !unchanged_since_start => PublishDecision::Superseded { now: describe(now) },
        RecordState::Unreadable(why) => PublishDecision::Unreadable {
            why: why.clone(),
            may_be_rollback: past.was_rejected(new) || past.had(new),
        },
        now => {
            let named = now.found().map(|pointer| pointer.blob.clone());
            if past.was_rejected(new) || past.is_by_hand() && past.had(new) {
                PublishDecision::RolledBack { to: named }
            } else {
                PublishDecision::Advance { previous: named }
            }
        }
    }
}

/// What a pointer says, for a person who has to understand a refusal.
fn describe(now: &RecordState<Pointer>) -> String {
    match now {
        RecordState::Absent => "it was removed".into(),
        RecordState::Unreadable(why) => format!("it cannot be read: {why}"),
        RecordState::Found(pointer) => {
            let who = pointer.published_by.as_deref().unwrap_or("somebody, by hand");
            let when = pointer.published_at.map_or(String::new(), |at| format!(" at {at:.0}"));
            format!("it names {} now, by {who}{when}", pointer.blob)
        }
    }
}

/// The newest day that may be built at `now`: tomorrow, because a clock may be a little fast.
pub fn newest_buildable(now: Timestamp) -> Day {
    Day::of(now).plus(1)
}

/// The blob of a day, for `--to DAY` and for lookups in an earlier day.
#[derive(Clone, Debug, PartialEq)]
pub enum BlobOfDay {
    /// This blob.
    One(BlobKey),
    /// The day has no blob.
    None,
    /// The day has several, and its pointer names none of them: the operator must choose.
    Several(Vec<BlobKey>),
}

/// Finds the blob an operator means by a day: what that day's pointer names if it is of that day,
/// else the only blob of that day.
pub fn blob_of_day(
    day: Day,
    pointer: &RecordState<Pointer>,
    blobs_of_day: &[BlobKey],
) -> BlobOfDay {
    if let Some(pointer) = pointer.found().filter(|pointer| pointer.blob.day == day) {
        return BlobOfDay::One(pointer.blob.clone());
    }
    match blobs_of_day {
        [] => BlobOfDay::None,
        [only] => BlobOfDay::One(only.clone()),
        several => BlobOfDay::Several(several.to_vec()),
    }
}

/// A blob to follow, and what names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    /// The blob that lookups should use.
    pub blob: BlobKey,
    /// Its size, when the record states it.
    pub bytes: Option<u64>,
    /// What names it.
    pub by: FollowedBy,
}

/// What named a blob.
#[derive(Clone, Debug, PartialEq)]
pub enum FollowedBy {
    /// The pin.
    Pin {
        /// When it expires.
        until: Option<Timestamp>,
        /// Why it is there.
        reason: Option<String>,
    },
    /// The pointer of this day.
    Pointer {
        /// The pointer's day, which after a rollback is not the blob's.
        day: Day,
    },
}

impl Followed {
    /// The day of the pointer that was followed; a pin has none.
    pub fn pointer_day(&self) -> Option<Day> {
        match self.by {
            FollowedBy::Pointer { day } => Some(day),
            FollowedBy::Pin { .. } => None,
        }
    }

    /// Whether a pointer names a blob of another day than its own.
    pub fn is_rolled_back(&self) -> bool {
        self.pointer_day().is_some_and(|day| day != self.blob.day)
    }
}

/// What one record means for a server.
#[derive(Clone, Debug, PartialEq)]
pub enum FollowStep {
    /// Load this blob.
    Follow(Followed),
    /// Read the next, older record.
    ReadOlder,
    /// Keep the current filter: there is a record that cannot be read.
    Keep {
        /// What is wrong with it.
        why: String,
    },
}

/// What a pin means at `now`. An expired pin is ignored; an unreadable one keeps the current
/// filter.
pub fn follow_pin(pin: &RecordState<Pin>, now: Timestamp) -> FollowStep {
    match pin {
        RecordState::Absent => FollowStep::ReadOlder,
        RecordState::Unreadable(why) => FollowStep::Keep { why: why.clone() },
        RecordState::Found(pin) if pin.until.is_some_and(|until| until <= now) => {
            FollowStep::ReadOlder
        }
        RecordState::Found(pin) => FollowStep::Follow(Followed {
            blob: pin.blob.clone(),
            bytes: None,
            by: FollowedBy::Pin { until: pin.until, reason: pin.reason.clone() },
        }),
    }
}

/// What the pointer of `day` means. Only an absent one moves the search a day back.
pub fn follow_pointer(day: Day, pointer: &RecordState<Pointer>) -> FollowStep {
    match pointer {
        RecordState::Absent => FollowStep::ReadOlder,
        RecordState::Unreadable(why) => FollowStep::Keep { why: why.clone() },
        RecordState::Found(pointer) => FollowStep::Follow(Followed {
            blob: pointer.blob.clone(),
            bytes: pointer.bytes,
            by: FollowedBy::Pointer { day },
        }),
    }
}

/// The days whose pointers a server reads, newest first: today and at most [`MAX_MAX_AGE_DAYS`]
/// before.
///
/// The first is never earlier than the last pointer that it followed, so that a clock that is set
/// back does not remove a filter. Pointers of later days are never read.
pub fn days_to_follow(today: Day, last_followed: Option<Day>, max_age_days: u32) -> Vec<Day> {
    let newest = last_followed.map_or(today, |last| today.max(last));
    (0..=max_age_days.min(MAX_MAX_AGE_DAYS)).map(|age| newest.minus(age)).collect()
}

#[cfg(test)]
mod tests;
