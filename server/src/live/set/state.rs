//! What a set counts and remembers beside its table.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;

use crate::live::lock::lock;

/// What adds were answered, since the start.
#[derive(Default)]
pub(super) struct AddCounts {
    pub(super) new: AtomicU64,
    /// "Seen", because of a live ID.
    pub(super) seen_live: AtomicU64,
    /// "Seen", because of the day's filter.
    pub(super) seen_by_day: AtomicU64,
}

impl AddCounts {
    /// Counts one add without a day's filter: whether it was new, if it was not refused.
    pub(super) fn count_one(&self, is_new: Option<bool>) {
        if let Some(is_new) = is_new {
            let count = if is_new { &self.new } else { &self.seen_live };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a set knows of the day's filter that it was compared with last.
pub(super) struct AbsorbState {
    pub(super) filter: Mutex<Option<(Day, Digest)>>,
    /// Whether those that the filter has stay.
    pub(super) keeps_confirmed: AtomicBool,
    /// Whether IDs came since that may be in it.
    pub(super) is_due: AtomicBool,
    /// How many live IDs the filter has.
    pub(super) confirmed: AtomicU64,
    /// How many live IDs the filter lacks and should have.
    pub(super) unconfirmed: AtomicU64,
    /// Whatever was changed before this time (milliseconds since 1970) can be read again from a log
    /// or the store: a swap drops nothing newer.
    pub(super) stored_before: AtomicU64,
}

impl Default for AbsorbState {
    fn default() -> AbsorbState {
        AbsorbState {
            filter: Mutex::new(None),
            keeps_confirmed: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
            confirmed: AtomicU64::new(0),
            unconfirmed: AtomicU64::new(0),
            stored_before: AtomicU64::new(u64::MAX),
        }
    }
}

impl AbsorbState {
    /// The day of the filter.
    pub(super) fn day(&self) -> Option<Day> {
        lock(&self.filter).map(|(day, _)| day)
    }

    pub(super) fn set_stored_before(&self, ms: u64) {
        self.stored_before.store(ms, Ordering::Relaxed);
    }
}
