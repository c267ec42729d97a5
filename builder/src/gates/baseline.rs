//! [`Baseline`]: what is normal, from the days before.

use std::collections::BTreeMap;

use bloomsday_common::day::Day;
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};

use super::counts::Numbers;

/// The number of accepted earlier days in a baseline: the newest ones.
pub const BASELINE_DAYS: usize = 7;

/// The greatest age of a day in a baseline. It is large because a bad day is most likely after an
/// outage of weeks, and an old baseline is better than none. Earlier pointers have the same limit.
pub const MAX_BASELINE_AGE_DAYS: u32 = 400;

/// After this many days with the same number of files, fewer files cause a warning.
const STABLE_FILES_DAYS: usize = 3;

/// What is normal, from earlier days.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    pub(super) ids: Option<f64>,
    pub(super) nulls: Option<f64>,
    pub(super) invalid: Option<f64>,
    /// Of the newest earlier day.
    pub(super) duplicates: Option<f64>,
    pub(super) overlap: Option<f64>,
    pub(super) files: Option<f64>,
    pub(super) input_bytes: Option<f64>,
    /// The number of files, if several days all had the same.
    pub(super) stable_files: Option<f64>,
}

impl Baseline {
    /// Computes the medians of the newest [`BASELINE_DAYS`] accepted days before `day`, if they are
    /// not older than [`MAX_BASELINE_AGE_DAYS`]. The last accepted build of each day counts. A day
    /// whose pointer an operator moved to another day's blob does not count: by a `repoint`, which
    /// the history has, or by hand, which only `named` says, the blobs that pointers name now. If
    /// the record of a day lacks a number, the median is that of the other days.
    pub fn of(day: Day, history: &[HistoryEvent], named: &BTreeMap<Day, BlobKey>) -> Baseline {
        let accepted = accepted(day, history, named);
        let newest = accepted.values().rev().take(BASELINE_DAYS);
        // From the newest day to the oldest.
        let days: Vec<Numbers> = newest.map(|event| Numbers::of_event(event)).collect();
        let median_of =
            |number: fn(&Numbers) -> Option<f64>| median(days.iter().filter_map(number));
        let files = median_of(|day| day.files);
        let all_had = |files: &f64| days.iter().all(|day| day.files == Some(*files));
        Baseline {
            ids: median_of(|day| Some(day.ids)),
            nulls: median_of(|day| day.nulls),
            invalid: median_of(|day| day.invalid),
            duplicates: days.first().and_then(|day| day.duplicates),
            overlap: median_of(|day| day.overlap),
            files,
            input_bytes: median_of(|day| day.input_bytes),
            stable_files: files.filter(all_had).filter(|_| days.len() >= STABLE_FILES_DAYS),
        }
    }

    /// The days that [`Baseline::of`] uses.
    pub fn days(day: Day, history: &[HistoryEvent], named: &BTreeMap<Day, BlobKey>) -> Vec<Day> {
        accepted(day, history, named).into_keys().rev().take(BASELINE_DAYS).collect()
    }

    /// Whether no earlier day has a number of IDs.
    pub fn lacks_ids(&self) -> bool {
        self.ids.is_none()
    }

    /// Uses the number of IDs of an earlier filter if the history has none.
    pub fn or_ids(self, ids: u64) -> Baseline {
        Baseline { ids: self.ids.or(Some(ids as f64)), ..self }
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
    named: &BTreeMap<Day, BlobKey>,
) -> BTreeMap<Day, &'a HistoryEvent> {
    let mut events: Vec<&HistoryEvent> = history.iter().collect();
    events.sort_by_key(|event| event.at);
    let build_of = |of: Day, blob: &BlobKey| {
        let is_it = |event: &&&HistoryEvent| {
            event.kind == EventKind::Build
                && event.day == Some(of)
                && event.blob.as_ref() == Some(blob)
        };
        events.iter().rev().find(is_it).copied()
    };
    let mut accepted: BTreeMap<Day, &HistoryEvent> = BTreeMap::new();
    let oldest = day.minus(MAX_BASELINE_AGE_DAYS);
    for event in &events {
        let Some(of) = event.day.filter(|of| *of < day && *of >= oldest) else { continue };
        match (event.kind, event.outcome) {
            (EventKind::Build, Outcome::Published) => drop(accepted.insert(of, event)),
            // A build that was ended after it had moved the pointer, run again; or one of a day that
            // has its numbers already.
            (EventKind::Build, Outcome::Unchanged)
                if accepted.get(&of).is_none_or(|built| built.blob != event.blob) =>
            {
                accepted.insert(of, event);
            }
            (EventKind::Repoint, Outcome::Published) => {
                let build = event.blob.as_ref().and_then(|blob| build_of(of, blob));
                match build {
                    Some(build) => drop(accepted.insert(of, build)),
                    None => drop(accepted.remove(&of)),
                }
            }
            _ => {}
        }
    }
    for (of, blob) in named {
        let built = accepted.get(of).and_then(|event| event.blob.as_ref());
        if built.is_none_or(|built| built == blob) {
            continue;
        }
        match build_of(*of, blob) {
            Some(build) => drop(accepted.insert(*of, build)),
            None => drop(accepted.remove(of)),
        }
    }
    accepted
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
