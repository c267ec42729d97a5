//! Compares a day with the newest earlier filter. A failure is a warning in the report; the other
//! gates still apply.

use bloomsday_common::blob;
use bloomsday_common::filter::Filter;
use bloomsday_common::hash::IdHash;
use bloomsday_common::key::BlobKey;
use bloomsday_common::memory::available;
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::{MAX_BLOB_BYTES, Store};

use crate::gates::MAX_BASELINE_AGE_DAYS;
use crate::job::Job;
use crate::partition::Distinct;
use crate::verify;

/// The most earlier days that are tried, from the newest, until one has a sound filter.
pub(crate) const MAX_TRIED: usize = 8;
/// After this many timeouts of the store no further day is tried: each may take a minute.
const MAX_UNREACHABLE: usize = 2;
/// An earlier filter of up to twice this day's size is fetched with any budget: a real day may have
/// half the IDs, and the memory for the filter and its copy also fits the earlier one.
const HONEST_RATIO: u64 = 2;
/// An earlier filter of this size is fetched with any budget.
const SMALL_BYTES: u64 = 8 << 20;

/// The result of the comparison with an earlier day.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The share of the day's IDs that the earlier filter contains, and its standard deviation.
    pub(crate) overlap: Option<(f64, f64)>,
    /// The blob of the earlier filter, and its number of IDs.
    pub(crate) ids: Option<(BlobKey, u64)>,
    /// The earlier filter itself, verified.
    pub(crate) filter: Option<(BlobKey, Filter)>,
    /// What could not be compared, and why.
    pub(crate) warnings: Vec<String>,
}

/// Looks the day's IDs up in the newest earlier filter that is not older than
/// [`MAX_BASELINE_AGE_DAYS`].
///
/// `own` is the size of the day's own blob. Cost: a listing of the pointers, a fetch, and a lookup
/// per ID.
pub(crate) async fn compare<H: IdHash>(
    job: &Job,
    store: &Store,
    distinct: &Distinct<H>,
    own: u64,
) -> Comparison {
    let mut compared = Comparison::default();
    let days = match store.pointer_days(&job.filter).await {
        Ok(days) => days,
        Err(error) => {
            let why = format!("the overlap with earlier days is not judged: {error}");
            compared.warnings.push(why);
            return compared;
        }
    };
    let oldest = job.day.minus(MAX_BASELINE_AGE_DAYS);
    let days = days.into_iter().rev().filter(|day| *day < job.day && *day >= oldest);
    let mut unreachable = 0;
    for day in days.take(MAX_TRIED) {
        if unreachable >= MAX_UNREACHABLE {
            break;
        }
        let mut skip = |why: String| {
            let why = format!("cannot compare with {} {day}: {why}", job.filter);
            compared.warnings.push(why);
        };
        let pointer = match store.pointer(&job.filter, day).await.map(|read| read.state) {
            Ok(RecordState::Found(pointer)) => pointer,
            // Pruned since it was listed.
            Ok(RecordState::Absent) => continue,
            Ok(RecordState::Unreadable(why)) => {
                skip(why);
                continue;
            }
            Err(error) => {
                unreachable += usize::from(error.is_transient());
                skip(error.to_string());
                continue;
            }
        };
        let limit = max_fetch_bytes(job.memory, own);
        let opened = match store.fetch(&pointer.blob, limit).await {
            Ok(fetched) => blob::open(fetched, &pointer.blob),
            Err(error) => Err(error),
        };
        let (header, filter) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                unreachable += usize::from(error.is_transient());
                skip(error.to_string());
                // The pointer has the number of IDs, too.
                let ids = pointer.ids.map(|ids| (pointer.blob.clone(), ids));
                compared.ids = compared.ids.or(ids);
                continue;
            }
        };
        compared.ids = Some((pointer.blob.clone(), header.ids));
        if header.shape.layout() != H::LAYOUT {
            let layout = header.shape.layout();
            skip(format!(
                "{} is of the layout {layout}, and this day of {}",
                pointer.blob,
                H::LAYOUT
            ));
            return compared;
        }
        if header.id_form != job.id_form {
            let (theirs, ours) = (header.id_form, job.id_form);
            skip(format!("{} has IDs of the form `{theirs}`, and this day `{ours}`", pointer.blob));
            return compared;
        }
        match verify::overlap(&filter, header.fpp_measured(), distinct, job.threads) {
            Ok(overlap) => compared.overlap = Some(overlap),
            Err(error) => skip(error.to_string()),
        }
        compared.filter = (job.deltas.bases > 0).then_some((pointer.blob, filter));
        return compared;
    }
    compared
}

/// The largest earlier blob that is fetched, in addition to the day's own filter.
pub(crate) fn max_fetch_bytes(memory: u64, own: u64) -> u64 {
    let honest = own.saturating_mul(HONEST_RATIO).saturating_add(SMALL_BYTES);
    let budget = memory.saturating_sub(own).max(honest);
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
