//! Checks a filter against the day's IDs: every ID is looked up in the bytes that were read back,
//! and the rate of false positives is measured. Knows counts and filters; never moves a pointer.

use std::convert::Infallible;
use std::ops::Range;

use bloomsday_common::filter::Filter;
use bloomsday_common::hash::{ID_BYTES, IdHash};

use crate::error::Error;
use crate::gates::Overlap;
use crate::parallel::parallel_map;
use crate::partition::{Distinct, sum, sum_of};
use crate::sample::Sample;

/// How many absent IDs are looked up: enough to distinguish a rate of 0.030 from 0.031.
pub const ABSENT_LOOKUPS: u64 = 1 << 20;
/// How many IDs are looked up per batch: enough to hide the latency of memory, few enough for the
/// first-level cache.
const LOOKUPS_PER_BATCH: usize = 1024;

/// Looks up a fixed sequence of [`ABSENT_LOOKUPS`] IDs that no filter contains, and counts the
/// hits, which are all false positives.
///
/// The IDs are longer than a valid ID. The count depends only on the set of IDs in the filter, not
/// on the number of threads. Cost: a hash and a lookup for each; the hashes take most of the time.
pub fn count_false_positives<H: IdHash>(filter: &Filter, threads: usize) -> u64 {
    let batch = LOOKUPS_PER_BATCH as u64;
    let count = |(): &mut (), index: usize| {
        let start = index as u64 * batch;
        let absent = absent_hashes::<H>(start..ABSENT_LOOKUPS.min(start + batch));
        Ok::<u64, Infallible>(filter.count_hashes(&absent) as u64)
    };
    let batches = ABSENT_LOOKUPS.div_ceil(batch) as usize;
    let Ok(counts) = parallel_map(threads, batches, || (), count);
    counts.into_iter().sum()
}

/// The hashes of some of the IDs that [`count_false_positives`] looks up.
pub(crate) fn absent_hashes<H: IdHash>(range: Range<u64>) -> Vec<H> {
    let head = vec![0; ID_BYTES.end() + 1];
    let mut hash_of_end = H::hash_suffixes(&head);
    range.map(|i| hash_of_end(i.to_le_bytes())).collect()
}

/// Looks up every distinct ID by its hash, and the sampled IDs by their bytes, in a filter that was
/// read back.
///
/// # Errors
/// [`Error::Lost`]: the filter lacks an ID. [`Error::Changed`]: the hashes themselves, which were
/// filled in and are looked up now, are not those that the deduplication kept.
pub fn check_no_id_lost<H: IdHash>(
    filter: &Filter,
    distinct: &Distinct<H>,
    samples: &[Sample],
    threads: usize,
) -> Result<(), Error> {
    let (lost, sum) = count_misses(filter, distinct, threads)?;
    if sum != distinct.sum() {
        let (written, read) = ("that deduplication kept", "that were looked up");
        return Err(Error::Changed { written, read });
    }
    let lost_of = |(): &mut (), index: usize| {
        let (mut ids, mut batch) = (samples[index].ids(), Vec::with_capacity(LOOKUPS_PER_BATCH));
        let (mut hits, mut lost) = ([false; LOOKUPS_PER_BATCH], 0);
        loop {
            batch.extend(ids.by_ref().take(LOOKUPS_PER_BATCH));
            if batch.is_empty() {
                return Ok::<u64, Infallible>(lost);
            }
            lost += (batch.len() - filter.contains_batch(&batch, &mut hits[..batch.len()])) as u64;
            batch.clear();
        }
    };
    // There is one sample for each thread that read the input.
    let Ok(lost_samples) = parallel_map(samples.len(), samples.len(), || (), lost_of);
    let lost_samples = lost_samples.into_iter().sum();
    if lost > 0 || lost_samples > 0 {
        return Err(Error::Lost { lost, of: distinct.n_ids(), lost_samples });
    }
    Ok(())
}

/// The share of the day's IDs that another filter contains, and its standard deviation. The share
/// of hits is corrected for the false positives of that filter.
///
/// # Errors
/// The system's, if a spilled partition cannot be read.
pub fn overlap<H: IdHash>(
    earlier: &Filter,
    earlier_fpp: f64,
    distinct: &Distinct<H>,
    threads: usize,
) -> Result<Overlap, Error> {
    let (misses, _) = count_misses(earlier, distinct, threads)?;
    Ok(overlap_of(misses, distinct.n_ids(), earlier_fpp))
}

/// The overlap, if `misses` of `n` IDs are not in a filter with this fpp.
pub(crate) fn overlap_of(misses: u64, n: u64, earlier_fpp: f64) -> Overlap {
    let n = n as f64;
    let share = 1.0 - misses as f64 / n;
    let share = ((share - earlier_fpp) / (1.0 - earlier_fpp)).clamp(0.0, 1.0);
    // Only absent IDs are hits by chance: n (1 − overlap) tries with probability fpp.
    let deviation = ((1.0 - share) * earlier_fpp / (1.0 - earlier_fpp) / n).sqrt();
    Overlap { share, deviation }
}

/// Looks up all hashes. Returns the number of misses, and the sum of the hashes.
fn count_misses<H: IdHash>(
    filter: &Filter,
    distinct: &Distinct<H>,
    threads: usize,
) -> Result<(u64, u64), Error> {
    let look_up = |hashes: &[H]| (hashes.len() - filter.count_hashes(hashes), sum_of(hashes));
    let counts = distinct.for_each(threads, look_up).map_err(Error::spill)?;
    let misses: usize = counts.iter().map(|(misses, _)| misses).sum();
    Ok((misses as u64, sum(counts.iter().map(|(_, sum)| *sum))))
}
