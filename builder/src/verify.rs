//! "Is this blob good?": every input ID is asked of the bytes read back from the store, and the rate of
//! false positives is measured. Knows counts and filters; never moves a pointer.

use std::ops::Range;

use bloomsday_common::blob::{self, Header};
use bloomsday_common::filter::{Filter, Layout};
use bloomsday_common::hash::{ID_BYTES, IdHash};

use crate::error::Error;
use crate::partition::{Distinct, sum, sum_of};
use crate::sample::Sample;

/// How many IDs known absent are asked: enough to tell 0.030 from 0.031 with certainty.
pub const ABSENT_ASKED: u64 = 1 << 20;
/// Of these so many at a time: enough to hide memory's latency, few enough to stay in the nearest cache.
const ASKED_TOGETHER: usize = 1024;
/// A measured rate is refused when even its lower bound exceeds the target by this factor.
const TOLERATED_RATIO: f64 = 1.2;
/// The quantile of the normal distribution that leaves 0.1 % below.
const Z_999: f64 = 3.0902;
/// Below this target too few absent IDs would hit; the bits themselves are judged as well.
const TARGET_TOO_LOW_TO_MEASURE: f64 = 1e-5;

/// Asks a fixed sequence of IDs that no input can hold, and counts those answered "yes".
///
/// They are longer than a legal ID, so they are absent from every filter by construction, and the count
/// is the same for the same set of IDs, whatever the number of threads. Cost: some 20 ns each, since
/// they differ only at their ends.
pub fn count_false_positives<H: IdHash>(filter: &Filter, threads: usize) -> u64 {
    let count = |range: Range<u64>| {
        let head = vec![0; ID_BYTES.end() + 1];
        let mut of_end = H::of_ends(&head);
        let mut some = |start: u64| {
            let end = range.end.min(start + ASKED_TOGETHER as u64);
            let hashes: Vec<H> = (start..end).map(|i| of_end(i.to_le_bytes())).collect();
            filter.count_hashes(&hashes) as u64
        };
        range.clone().step_by(ASKED_TOGETHER).map(&mut some).sum::<u64>()
    };
    let each = ABSENT_ASKED.div_ceil(threads.max(1) as u64);
    std::thread::scope(|scope| {
        let starts = (0..ABSENT_ASKED).step_by(each as usize);
        let counts: Vec<_> = starts
            .map(|start| scope.spawn(move || count(start..ABSENT_ASKED.min(start + each))))
            .collect();
        counts.into_iter().map(|count| count.join().expect("asking does not panic")).sum()
    })
}

/// Refuses a filter whose bits or rate are not what its IDs should give.
///
/// # Errors
/// [`Error::Unsound`], with the numbers.
pub fn check_quality(header: &Header, filter: &Filter) -> Result<(), Error> {
    blob::check_fill(header).map_err(|why| Error::Unsound { why })?;
    let (asked, hits, target) = (header.fpp_asked, header.fpp_hits, header.fpp_target);
    let lower = wilson_lower_bound(hits, asked);
    if lower > TOLERATED_RATIO * target {
        let measured = header.fpp_measured();
        let why = format!(
            "its measured fpp is {measured:.6} ({hits} of {asked}), surely above {TOLERATED_RATIO} × \
             the target {target}"
        );
        return Err(Error::Unsound { why });
    }
    if target < TARGET_TOO_LOW_TO_MEASURE && header.shape.layout() == Layout::Blocked {
        let rate = filter.fpp_of_bits();
        if rate > TOLERATED_RATIO * target {
            let why =
                format!("its bits give an fpp of {rate:e}, above {TOLERATED_RATIO} × {target:e}");
            return Err(Error::Unsound { why });
        }
    }
    Ok(())
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
        let (mut ids, mut some) = (sample.ids(), Vec::with_capacity(ASKED_TOGETHER));
        let (mut answers, mut lost) = ([false; ASKED_TOGETHER], 0);
        loop {
            some.extend(ids.by_ref().take(ASKED_TOGETHER));
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

/// The lower end of the 99.9 % interval of a rate (Wilson 1927), which also holds for few hits.
fn wilson_lower_bound(hits: u64, asked: u64) -> f64 {
    let (n, p, z2) = (asked as f64, hits as f64 / asked as f64, Z_999 * Z_999);
    let center = p + z2 / (2.0 * n);
    let spread = Z_999 * ((p * (1.0 - p) + z2 / (4.0 * n)) / n).sqrt();
    ((center - spread) / (1.0 + z2 / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use bloomsday_common::blob::Origin;
    use bloomsday_common::filter::{FilterMut, Shape};
    use bloomsday_common::hash::Xxh3;

    use super::*;

    fn sound() -> (Header, Filter) {
        let shape = Shape::for_ids(Layout::Blocked, 20_000, 0.03).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        (0..20_000u32).for_each(|i| filter.insert(Xxh3::of(&i.to_le_bytes())));
        let filter = filter.freeze();
        let header = Header {
            filter: "rt".parse().unwrap(),
            day: "2026-11-19".parse().unwrap(),
            shape,
            origin: Origin::Built,
            ids: 20_000,
            fpp_target: 0.03,
            fpp_hits: count_false_positives::<Xxh3>(&filter, 3),
            fpp_asked: ABSENT_ASKED,
            ones: filter.count_ones(),
        };
        (header, filter)
    }

    #[test]
    fn a_sound_filter_measures_at_or_below_its_target() {
        let (header, filter) = sound();
        check_quality(&header, &filter).unwrap();
        assert!((0.025..=0.03).contains(&header.fpp_measured()), "{}", header.fpp_measured());
    }

    #[test]
    fn a_rate_surely_above_the_target_is_refused_with_its_numbers() {
        let (header, filter) = sound();
        let just = Header { fpp_hits: (0.0363 * ABSENT_ASKED as f64) as u64, ..header.clone() };
        check_quality(&just, &filter).unwrap();
        let above = Header { fpp_hits: (0.037 * ABSENT_ASKED as f64) as u64, ..header };
        let error = check_quality(&above, &filter).unwrap_err().to_string();
        assert!(error.contains("0.037") && error.contains("0.03"), "{error}");
    }

    #[test]
    fn the_lower_bound_contains_the_truth() {
        assert_eq!(wilson_lower_bound(0, 1000), 0.0);
        let bound = wilson_lower_bound(30_000, 1_000_000);
        assert!((0.0294..0.0296).contains(&bound), "{bound}");
    }
}
