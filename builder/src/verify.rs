//! "Does this blob hold the day?": every input ID is looked up in the bytes read back from the store, and
//! the rate of false positives is measured. Knows counts and filters; never moves a pointer.

use std::ops::Range;

use bloomsday_common::filter::Filter;
use bloomsday_common::hash::{ID_BYTES, IdHash};

use crate::error::Error;
use crate::partition::{Distinct, sum, sum_of};
use crate::sample::Sample;

/// How many IDs known absent are asked: enough to tell 0.030 from 0.031 with certainty.
pub const ABSENT_LOOKUPS: u64 = 1 << 20;
/// Of these so many at a time: enough to hide memory's latency, few enough to stay in the nearest cache.
const LOOKUPS_PER_BATCH: usize = 1024;

/// Looks up a fixed sequence of IDs that no input can hold, and counts the false positives.
///
/// They are longer than a legal ID, so they are absent from every filter by construction, and the count
/// is the same for the same set of IDs, whatever the number of threads. Cost: hashing them, which is
/// most of it, and a lookup each.
pub fn count_false_positives<H: IdHash>(filter: &Filter, threads: usize) -> u64 {
    let count = |range: Range<u64>| {
        let starts = range.clone().step_by(LOOKUPS_PER_BATCH);
        starts
            .map(|start| {
                let end = range.end.min(start + LOOKUPS_PER_BATCH as u64);
                filter.count_hashes(&absent_hashes::<H>(start..end)) as u64
            })
            .sum::<u64>()
    };
    let each = ABSENT_LOOKUPS.div_ceil(threads.max(1) as u64);
    std::thread::scope(|scope| {
        let starts = (0..ABSENT_LOOKUPS).step_by(each as usize);
        let counts: Vec<_> = starts
            .map(|start| scope.spawn(move || count(start..ABSENT_LOOKUPS.min(start + each))))
            .collect();
        counts.into_iter().map(|count| count.join().expect("a lookup does not panic")).sum()
    })
}

/// The hashes of some of the IDs that [`count_false_positives`] looks up.
pub(crate) fn absent_hashes<H: IdHash>(range: Range<u64>) -> Vec<H> {
    let head = vec![0; ID_BYTES.end() + 1];
    let mut hash_of_end = H::hash_suffixes(&head);
    range.map(|i| hash_of_end(i.to_le_bytes())).collect()
}

/// Asks every distinct ID by its hash, and the sampled ones by their bytes, of a filter read back.
///
/// # Errors
/// [`Error::Lost`] when one is answered "no"; [`Error::Changed`] when the hashes themselves, which were
/// filled in and now are asked for, are not those that deduplication kept.
pub fn check_complete<H: IdHash>(
    filter: &Filter,
    distinct: &Distinct<H>,
    samples: &[Sample],
    threads: usize,
) -> Result<(), Error> {
    let (lost, sum) = count_missing(filter, distinct, threads)?;
    if sum != distinct.sum() {
        let (written, read) = ("that deduplication kept", "that were asked");
        return Err(Error::Changed { written, read });
    }
    let lost_of = |sample: &Sample| {
        let (mut ids, mut some) = (sample.ids(), Vec::with_capacity(LOOKUPS_PER_BATCH));
        let (mut answers, mut lost) = ([false; LOOKUPS_PER_BATCH], 0);
        loop {
            some.extend(ids.by_ref().take(LOOKUPS_PER_BATCH));
            if some.is_empty() {
                return lost;
            }
            lost += some.len() - filter.contains_batch(&some, &mut answers[..some.len()]);
            some.clear();
        }
    };
    // A sample for each thread that gathered one.
    let lost_samples: usize = std::thread::scope(|scope| {
        let asked: Vec<_> = samples.iter().map(|sample| scope.spawn(|| lost_of(sample))).collect();
        asked.into_iter().map(|lost| lost.join().expect("asking does not panic")).sum()
    });
    if lost > 0 || lost_samples > 0 {
        return Err(Error::Lost { lost, of: distinct.n_ids(), lost_samples: lost_samples as u64 });
    }
    Ok(())
}

/// The share of the day's IDs that another filter holds: those it answers "yes", corrected for its
/// false positives; and the standard deviation of that figure.
///
/// # Errors
/// The system's, when a spilled partition cannot be read.
pub fn overlap<H: IdHash>(
    earlier: &Filter,
    earlier_fpp: f64,
    distinct: &Distinct<H>,
    threads: usize,
) -> Result<(f64, f64), Error> {
    let n = distinct.n_ids() as f64;
    let (missing, _) = count_missing(earlier, distinct, threads)?;
    let share = 1.0 - missing as f64 / n;
    let overlap = ((share - earlier_fpp) / (1.0 - earlier_fpp)).clamp(0.0, 1.0);
    // Only the absent IDs are answered by chance: n (1 − overlap) tries of probability fpp.
    let deviation = ((1.0 - overlap) * earlier_fpp / (1.0 - earlier_fpp) / n).sqrt();
    Ok((overlap, deviation))
}

/// How many hashes the filter answers "no", and the sum of all that were asked.
fn count_missing<H: IdHash>(
    filter: &Filter,
    distinct: &Distinct<H>,
    threads: usize,
) -> Result<(u64, u64), Error> {
    let ask = |hashes: &[H]| (hashes.len() - filter.count_hashes(hashes), sum_of(hashes));
    let asked = distinct.for_each(threads, ask).map_err(Error::spill)?;
    let missing: usize = asked.iter().map(|(missing, _)| missing).sum();
    Ok((missing as u64, sum(asked.iter().map(|(_, sum)| *sum))))
}
