//! Every decision of publish, repoint, pin, prune and follow, as pure functions: what was read → what
//! to do.
//!
//! No I/O and no clock here: [`crate::store`] reads, asks these, and acts. So that a test, or a model
//! checker, can put every case to the very code that runs.

mod past;
mod retention;

use jiff::Timestamp;

use crate::day::Day;
use crate::key::BlobKey;
use crate::pointer::{Pin, Pointer};
pub use past::Past;
pub use retention::{
    MAX_KEEP_DAYS, MAX_MAX_AGE_DAYS, References, Retention, is_expiring, is_old, may_delete,
    pointers_to_drop,
};

/// What a look at a record of the store showed.
///
/// Unreadable is not absent: something is there that somebody meant.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordState<T> {
    /// The store says that there is nothing.
    Absent,
    /// There is something, but not a record; the text says why.
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

// ---- write ---------------------------------------------------------------------------------------

/// What a second look shows after a conditional write that ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbiguousWrite {
    /// It was written after all: the error came later.
    Written,
    /// Nothing changed: it may be tried again.
    NotWritten,
    /// Somebody else was first.
    Changed,
}

/// Decides what became of a conditional write that ended with an error: success and failure can both
/// hide behind one, so the record is read again. `before` and `now` are what a look found, `new` is
/// what was to be written.
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

// ---- publish -------------------------------------------------------------------------------------

/// What a build may do to the pointer of its day.
#[derive(Clone, Debug, PartialEq)]
pub enum Publish {
    /// It already names this blob: leave it.
    Unchanged {
        /// The history does not show how the day came to this blob: leave a record, so that whoever takes
        /// it away by hand from now on is believed.
        untold: bool,
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
    /// The day was taken away from this very blob on purpose: leave it.
    RolledBack {
        /// What an operator pointed it at; nothing when the pointer was removed.
        to: Option<BlobKey>,
    },
    /// It holds something that is no pointer, perhaps a half-typed rollback: leave it.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

/// Decides what a build of a day with the blob `new` does to the day's pointer.
///
/// `unchanged_since_start` compares the pointer's bytes with those read when the build began; `past` is
/// what the day has had by then.
///
/// A rolled-back day stays rolled back: when an operator made the pointer name something else, by
/// whatever means, or removed it, a build moves it only to a blob that the day has not had, which a
/// mended re-run is and the same bad data is not.
pub fn publish(
    new: &BlobKey,
    now: &RecordState<Pointer>,
    unchanged_since_start: bool,
    past: &Past,
) -> Publish {
    match now {
        RecordState::Found(pointer) if pointer.blob == *new => {
            Publish::Unchanged { untold: past.is_untold() }
        }
        _ if !unchanged_since_start => Publish::Superseded { now: describe(now) },
        RecordState::Unreadable(why) => Publish::Unreadable { why: why.clone() },
        now => {
            let named = now.found().map(|pointer| pointer.blob.clone());
            match past.is_by_hand() && past.had(new) {
                true => Publish::RolledBack { to: named },
                false => Publish::Advance { previous: named },
            }
        }
    }
}

/// A few words on what a pointer says, for a person who has to understand a refusal.
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

/// The newest day that may be built at `now`: tomorrow, for clocks a little ahead.
pub fn newest_buildable(now: Timestamp) -> Day {
    Day::of(now).plus(1)
}

// ---- repoint and pin -----------------------------------------------------------------------------

/// What `--to DAY` means.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// This blob.
    Blob(BlobKey),
    /// The day has no blob.
    None,
    /// The day has several, and its pointer names none of them: the operator must choose.
    Several(Vec<BlobKey>),
}

/// Finds the blob an operator means by a day: what that day's pointer names if it is of that day,
/// else the only blob of that day.
pub fn target_of_day(day: Day, pointer: &RecordState<Pointer>, blobs_of_day: &[BlobKey]) -> Target {
    if let Some(pointer) = pointer.found().filter(|pointer| pointer.blob.day == day) {
        return Target::Blob(pointer.blob.clone());
    }
    match blobs_of_day {
        [] => Target::None,
        [only] => Target::Blob(only.clone()),
        several => Target::Several(several.to_vec()),
    }
}

// ---- follow --------------------------------------------------------------------------------------

/// A blob to follow, and what said so.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    /// The blob that should answer.
    pub blob: BlobKey,
    /// Its size, when the record says it.
    pub bytes: Option<u64>,
    /// What names it.
    pub by: FollowedBy,
}

/// What named a blob.
#[derive(Clone, Debug, PartialEq)]
pub enum FollowedBy {
    /// The pin.
    Pin {
        /// When it ends by itself.
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

/// What a look at one record means for a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// This should answer.
    Follow(Followed),
    /// Look at the next, older record.
    Continue,
    /// Stay with what answers: something is there that cannot be read.
    Keep {
        /// What is wrong with it.
        why: String,
    },
}

/// What a pin means at `now`. An expired pin is no pin; an unreadable one keeps what answers.
pub fn follow_pin(pin: &RecordState<Pin>, now: Timestamp) -> Step {
    match pin {
        RecordState::Absent => Step::Continue,
        RecordState::Unreadable(why) => Step::Keep { why: why.clone() },
        RecordState::Found(pin) if pin.until.is_some_and(|until| until <= now) => Step::Continue,
        RecordState::Found(pin) => Step::Follow(Followed {
            blob: pin.blob.clone(),
            bytes: None,
            by: FollowedBy::Pin { until: pin.until, reason: pin.reason.clone() },
        }),
    }
}

/// What the pointer of `day` means. Only an absent one moves the search a day back.
pub fn follow_pointer(day: Day, pointer: &RecordState<Pointer>) -> Step {
    match pointer {
        RecordState::Absent => Step::Continue,
        RecordState::Unreadable(why) => Step::Keep { why: why.clone() },
        RecordState::Found(pointer) => Step::Follow(Followed {
            blob: pointer.blob.clone(),
            bytes: pointer.bytes,
            by: FollowedBy::Pointer { day },
        }),
    }
}

/// The days whose pointers a server looks at, newest first.
///
/// Today is never earlier than the last pointer it followed, so that a clock stepped back does not
/// take a filter away; and a pointer dated ahead of today is never looked at. At most
/// [`MAX_MAX_AGE_DAYS`] and today.
pub fn days_to_follow(today: Day, last_followed: Option<Day>, max_age_days: u32) -> Vec<Day> {
    let newest = last_followed.map_or(today, |last| today.max(last));
    (0..=max_age_days.min(MAX_MAX_AGE_DAYS)).map(|age| newest.minus(age)).collect()
}

#[cfg(test)]
mod tests;
