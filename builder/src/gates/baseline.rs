//! [`Baseline`]: what is normal, from the days before.

use std::collections::{BTreeMap, BTreeSet};

use bloomsday_common::day::Day;
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};

use super::counts::Numbers;
use super::gate::Gate;

/// The number of accepted earlier days in a baseline: the newest ones.
pub const BASELINE_DAYS: usize = 7;

/// The greatest age of a day in a baseline. It is large because a bad day is most likely after an
/// outage of weeks, and an old baseline is better than none. Earlier pointers have the same limit.
pub const MAX_BASELINE_AGE_DAYS: u32 = 400;

/// After this many days with the same number of files, fewer files cause a warning.
const STABLE_FILES_DAYS: usize = 3;

/// What the pointer of a day names now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointerNow {
    /// This blob.
    Blob(BlobKey),
    /// Nothing, and prune did not remove it: a person did, which is a rollback, too.
    Removed,
    /// Nothing, nor has any day before a pointer: they were lost, and the history decides.
    Lost,
    /// Nobody can read it, or prune removed it: the history decides.
    Unknown,
}

/// What is normal, from earlier days.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Medians, but for `duplicates`, which is that of the newest earlier day.
    pub(super) norms: Numbers,
    /// The number of files, if several days all had the same.
    pub(super) stable_files: Option<f64>,
}

impl Baseline {
    /// Computes the medians of the newest [`BASELINE_DAYS`] accepted days before `day`, if they are
    /// not older than [`MAX_BASELINE_AGE_DAYS`]. The last accepted build of each day counts. If its
    /// record lacks a number, the median is that of the other days.
    ///
    /// The history does not say all: `pointers` has what the pointers of days name now. A day that
    /// was rolled back by hand does not count. A build whose record is still pending counts if it
    /// had moved the pointer before it was killed.
    pub fn of(
        day: Day,
        history: &[HistoryEvent],
        pointers: &BTreeMap<Day, PointerNow>,
    ) -> Baseline {
        let accepted = accepted(day, history, pointers);
        let newest = accepted.values().rev().take(BASELINE_DAYS);
        // From the newest day to the oldest.
        let days: Vec<Numbers> = newest.map(|event| Numbers::of_event(event)).collect();
        let norms = Numbers::each(|gate| match gate {
            Gate::Duplicates => days.first().and_then(|day| day[gate]),
            _ => median(days.iter().filter_map(|day| day[gate])),
        });
        let files = norms[Gate::Files];
        let all_had = |files: &f64| days.iter().all(|day| day[Gate::Files] == Some(*files));
        let stable_files = files.filter(all_had).filter(|_| days.len() >= STABLE_FILES_DAYS);
        Baseline { norms, stable_files }
    }

    /// The days that [`Baseline::of`] uses, or would use if `pointers` had them.
    pub fn days_to_read(
        day: Day,
        history: &[HistoryEvent],
        pointers: &BTreeMap<Day, PointerNow>,
    ) -> Vec<Day> {
        let mut days: BTreeSet<Day> = accepted(day, history, pointers).into_keys().collect();
        let pending = history.iter().filter(|event| is_pending_build(event));
        let pending = pending.filter_map(|event| event.day).filter(|of| is_within(day, *of));
        days.extend(pending.filter(|of| !pointers.contains_key(of)));
        days.into_iter().rev().take(BASELINE_DAYS).collect()
    }

    /// Whether a build of the day `earlier` is accepted, and so may be in the baseline of `day`.
    pub fn is_accepted(
        day: Day,
        history: &[HistoryEvent],
        pointers: &BTreeMap<Day, PointerNow>,
        earlier: Day,
    ) -> bool {
        accepted(day, history, pointers).contains_key(&earlier)
    }

    /// Whether no earlier day has a number of IDs.
    pub fn lacks_ids(&self) -> bool {
        self.norms[Gate::Ids].is_none()
    }

    /// Uses the number of IDs of an earlier filter if the history has none.
    pub fn or_ids(mut self, ids: u64) -> Baseline {
        self.norms[Gate::Ids].get_or_insert(ids as f64);
        self
    }

    /// Returns a warning if there are fewer files than on each earlier day: a file may be missing,
    /// unless the writer was changed.
    pub fn fewer_files(&self, files: u64) -> Option<String> {
        let stable = self.stable_files.filter(|stable| (files as f64) < *stable)?;
        Some(format!(
            "{files} files were read, and each of the days before had {stable}: is one missing?"
        ))
    }
}

/// The accepted build of each day.
fn accepted<'a>(
    day: Day,
    history: &'a [HistoryEvent],
    pointers: &BTreeMap<Day, PointerNow>,
) -> BTreeMap<Day, &'a HistoryEvent> {
    let mut events: Vec<&HistoryEvent> = history.iter().collect();
    events.sort_by_key(|event| event.at);
    let mut accepted: BTreeMap<Day, &HistoryEvent> = BTreeMap::new();
    for event in &events {
        let Some(of) = event.day.filter(|of| is_within(day, *of)) else { continue };
        let build = match (event.kind, event.outcome) {
            (EventKind::Build, Outcome::Published) => Some(*event),
            (EventKind::Repoint, Outcome::Published) => build_of(&events, of, event.blob.as_ref()),
            _ => continue,
        };
        match build {
            Some(build) => drop(accepted.insert(of, build)),
            None => drop(accepted.remove(&of)),
        }
    }
    for (of, now) in pointers {
        let build = match now {
            PointerNow::Unknown | PointerNow::Lost => continue,
            PointerNow::Blob(blob)
                if accepted.get(of).is_some_and(|e| e.blob.as_ref() == Some(blob)) =>
            {
                continue;
            }
            PointerNow::Blob(blob) => build_of(&events, *of, Some(blob)),
            PointerNow::Removed => None,
        };
        match build.filter(|_| is_within(day, *of)) {
            Some(build) => drop(accepted.insert(*of, build)),
            None => drop(accepted.remove(of)),
        }
    }
    accepted
}

/// The last build of a day that made this blob and has its numbers. What a scheduler records of a
/// run that changed nothing has none.
fn build_of<'a>(
    events: &[&'a HistoryEvent],
    of: Day,
    blob: Option<&BlobKey>,
) -> Option<&'a HistoryEvent> {
    let made = |event: &&HistoryEvent| {
        event.kind == EventKind::Build && event.day == Some(of) && event.blob.as_ref() == blob
    };
    events.iter().copied().rev().filter(made).find(|event| event.rows.is_some())
}

fn is_pending_build(event: &HistoryEvent) -> bool {
    event.kind == EventKind::Build && event.outcome == Outcome::Pending
}

/// Whether a baseline of `day` may have the day `of`.
fn is_within(day: Day, of: Day) -> bool {
    of < day && of >= day.minus(MAX_BASELINE_AGE_DAYS)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}
