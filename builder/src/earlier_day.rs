//! Compares a day with the newest earlier filter. If that is damaged, the report has a warning, and
//! the next older one is compared. A store that fails ends the build: what was not judged has not
//! passed.

use bloomsday_common::blob::{self, Header};
use bloomsday_common::day::Day;
use bloomsday_common::error::Error;
use bloomsday_common::filter::{Filter, Layout};
use bloomsday_common::hash::IdHash;
use bloomsday_common::key::BlobKey;
use bloomsday_common::memory::available;
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::{MAX_BLOB_BYTES, Store};

use crate::gates::{MAX_BASELINE_AGE_DAYS, Overlap};
use crate::job::Job;
use crate::partition::Distinct;
use crate::publish::try_to_read;
use crate::verify;

/// The most earlier days that are tried, from the newest, until one has a sound filter.
const MAX_TRIED: usize = 8;
/// After this many failures of the store no further day is tried: each may take minutes.
const MAX_UNREACHABLE: usize = 2;
/// An earlier filter of up to twice this day's size is fetched with any budget: a real day may have
/// half the IDs, and the memory for the filter and its copy also fits the earlier one.
const ALWAYS_FETCHED_RATIO: u64 = 2;
/// An earlier filter of this size is fetched with any budget.
const ALWAYS_FETCHED_BYTES: u64 = 8 << 20;

/// The result of the comparison with an earlier day.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The share of the day's IDs that the earlier filter contains, and its standard deviation.
    pub(crate) overlap: Option<Overlap>,
    /// The blob of the earlier filter, and its number of IDs.
    pub(crate) ids: Option<(BlobKey, u64)>,
    /// The earlier filter itself, verified.
    pub(crate) filter: Option<(BlobKey, Filter)>,
    /// What could not be compared, and why.
    pub(crate) warnings: Vec<String>,
}

impl Comparison {
    fn warn(&mut self, job: &Job, day: Day, why: String) {
        self.warnings.push(format!("cannot compare with {} {day}: {why}", job.filter));
    }
}

/// Why an earlier day was not compared.
pub(crate) enum CompareError {
    /// Its blob cannot be read: a day before it is tried.
    Unreadable(Error),
    /// Its filter is of another kind, as those before it probably are: none is tried.
    OtherKind(String),
}

impl From<Error> for CompareError {
    fn from(error: Error) -> CompareError {
        CompareError::Unreadable(error)
    }
}

/// Compares with the newest earlier day for which `compare` can, not older than
/// [`MAX_BASELINE_AGE_DAYS`].
///
/// Cost: a listing of the pointers, and a pointer and a `compare` for each day that is tried.
///
/// # Errors
/// The store's: when it cannot list the pointers, or when it failed for a day and no other day
/// could be compared.
pub(crate) async fn with_newest(
    job: &Job,
    store: &Store,
    mut compare: impl AsyncFnMut(&BlobKey, &mut Comparison) -> Result<(), CompareError>,
) -> Result<Comparison, Error> {
    let mut compared = Comparison::default();
    let days = store.pointer_days(&job.filter).await?;
    let oldest = job.day.minus(MAX_BASELINE_AGE_DAYS);
    let days = days.into_iter().rev().filter(|day| *day < job.day && *day >= oldest);
    let mut failures = Vec::new();
    for day in days.take(MAX_TRIED) {
        if failures.len() >= MAX_UNREACHABLE {
            break;
        }
        let error = match store.pointer(&job.filter, day).await.map(|read| read.state) {
            Ok(RecordState::Found(pointer)) => match compare(&pointer.blob, &mut compared).await {
                Ok(()) => return Ok(compared),
                Err(CompareError::OtherKind(why)) => {
                    compared.warn(job, day, why);
                    break;
                }
                Err(CompareError::Unreadable(error)) => {
                    // The pointer has the number of IDs, too.
                    let ids = pointer.ids.map(|ids| (pointer.blob, ids));
                    compared.ids = compared.ids.or(ids);
                    error
                }
            },
            // Pruned since it was listed.
            Ok(RecordState::Absent) => continue,
            Ok(RecordState::Unreadable(why)) => {
                compared.warn(job, day, why);
                continue;
            }
            Err(error) => error,
        };
        compared.warn(job, day, error.to_string());
        if error.is_inconclusive() {
            failures.push(error);
        }
    }
    match failures.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(compared),
    }
}

/// Refuses to compare a day of this job with the filter of this header if it has another layout or
/// form of IDs.
pub(crate) fn same_kind(
    header: &Header,
    blob: &BlobKey,
    layout: Layout,
    job: &Job,
) -> Result<(), CompareError> {
    let theirs = header.shape.layout();
    if theirs != layout {
        let why = format!("{blob} is of the layout {theirs}, and this day of {layout}");
        return Err(CompareError::OtherKind(why));
    }
    let (theirs, ours) = (header.id_form, job.id_form);
    if theirs != ours {
        let why = format!("{blob} has IDs of the form `{theirs}`, and this day `{ours}`");
        return Err(CompareError::OtherKind(why));
    }
    Ok(())
}

/// Looks the day's IDs up in the newest earlier filter.
///
/// `own` is the size of the day's own blob. Cost: a fetch of the earlier one, and a lookup per ID.
///
/// # Errors
/// As [`with_newest`].
pub(crate) async fn compare<H: IdHash>(
    job: &Job,
    store: &Store,
    distinct: &Distinct<H>,
    own: u64,
) -> Result<Comparison, Error> {
    let limit = max_fetch_bytes(job.memory, own);
    with_newest(job, store, async |key, compared| {
        let bytes = try_to_read(async || store.fetch(key, limit).await).await?;
        let (header, filter) = blob::open(bytes, key)?;
        compared.ids = Some((key.clone(), header.ids));
        same_kind(&header, key, H::LAYOUT, job)?;
        match verify::overlap(&filter, header.fpp_measured(), distinct, job.threads) {
            Ok(overlap) => compared.overlap = Some(overlap),
            Err(error) => compared.warn(job, key.day, error.to_string()),
        }
        compared.filter = (job.deltas.bases > 0).then(|| (key.clone(), filter));
        Ok(())
    })
    .await
}

/// The largest earlier blob that is fetched, in addition to the day's own filter.
pub(crate) fn max_fetch_bytes(memory: u64, own: u64) -> u64 {
    let always = own.saturating_mul(ALWAYS_FETCHED_RATIO).saturating_add(ALWAYS_FETCHED_BYTES);
    let budget = memory.saturating_sub(own).max(always);
    let there = available().map_or(u64::MAX, |there| there.bytes);
    budget.min(there).min(MAX_BLOB_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_budget_still_compares_with_an_honest_day_and_not_with_any() {
        let mib = 1 << 20;
        assert_eq!(max_fetch_bytes(0, 100 * mib), 208 * mib);
        assert_eq!(max_fetch_bytes(500 * mib, 100 * mib), 400 * mib);
        assert!(max_fetch_bytes(u64::MAX, mib) <= MAX_BLOB_BYTES);
    }
}
