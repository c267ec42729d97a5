//! Which days contain an ID, and how likely a hit is a false positive.

use serde::Serialize;

use super::Store;
use crate::day::Day;
use crate::digest::Digest;
use crate::error::Error;
use crate::key::{BlobKey, FilterName};
use crate::pointer::Pointer;
use crate::protocol::{BlobOfDay, blob_of_day};

/// How many days a trace covers if nobody says otherwise, today included.
pub const DEFAULT_TRACE_DAYS: u32 = 14;

/// The lookups of an ID in the blobs of several days.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Newest first; days without a blob are left out.
    pub days: Vec<DayLookup>,
    /// The result over all of them.
    #[serde(flatten)]
    pub summary: TraceSummary,
}

/// The result of a trace over all its days.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    /// How many days have a blob that could be read.
    pub days_searched: usize,
    /// How many of these contain the ID.
    pub days_found: usize,
    /// How many days have a blob that could not be read, and may contain it too.
    pub days_unreadable: usize,
    /// Of the IDs that are in none of these days, at most this share has as many hits.
    pub max_chance_if_absent: f64,
}

/// The lookup of an ID in the blob of one day.
#[derive(Clone, Debug, Serialize)]
pub struct DayLookup {
    /// The day whose blob was searched.
    pub day: Day,
    /// Whether the day's own blob contains the ID; `None` when it could not be read.
    pub contains: Option<bool>,
    /// The chance of a hit for an ID that is not in it: that of its bits, or what was measured when
    /// it was built, whichever is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positive: Option<f64>,
    /// The blob in which it was looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Whether the day's pointer names another day's blob now.
    pub rolled_back: bool,
    /// Whether the day has a pointer that can be read: without one servers do not follow it, as
    /// after a refusal.
    pub has_pointer: bool,
    /// Why the blob could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Store {
    /// Looks an ID up in each of the last `n` days up to `today`, and passes each result to `found`
    /// at once.
    ///
    /// Cost: [`Store::lookup_day`] for each day, one after the other.
    ///
    /// # Errors
    /// As [`Store::lookup_day`].
    pub async fn trace(
        &self,
        filter: &FilterName,
        today: Day,
        n: u32,
        id: &[u8],
        mut found: impl FnMut(&DayLookup),
    ) -> Result<Trace, Error> {
        let mut days = Vec::new();
        for back in 0..n {
            let lookup = self.lookup_day(filter, today.minus(back), id).await?;
            lookup.iter().for_each(&mut found);
            days.extend(lookup);
        }
        let summary = TraceSummary::of(&days);
        Ok(Trace { days, summary })
    }

    /// Looks an ID up in one day's own blob: the pointer's if it is of that day, else the only one
    /// of that day. Returns `None` when the day has none. For a blob that cannot be read,
    /// `contains` is `None`: one bad day must not hide the results of the others.
    ///
    /// Cost: it fetches and checks the complete blob.
    ///
    /// # Errors
    /// The store's, for pointers and listings.
    pub async fn lookup_day(
        &self,
        filter: &FilterName,
        day: Day,
        id: &[u8],
    ) -> Result<Option<DayLookup>, Error> {
        let pointer = self.pointer_state(filter, day).await?;
        let is_own = |pointer: &Pointer| pointer.blob.day == day;
        let rolled_back = pointer.found().is_some_and(|pointer| !is_own(pointer));
        let (contains, false_positive, digest, error) = (None, None, None, None);
        let has_pointer = pointer.found().is_some();
        let empty =
            DayLookup { day, contains, false_positive, digest, rolled_back, has_pointer, error };
        let blobs_of_day = match pointer.found() {
            Some(pointer) if is_own(pointer) => Vec::new(),
            _ => self.blobs(filter, Some(day)).await?,
        };
        let blob = match blob_of_day(day, &pointer, &blobs_of_day) {
            BlobOfDay::One(blob) => blob,
            BlobOfDay::None => return Ok(None),
            BlobOfDay::Several(several) => {
                let error = format!("{} blobs, and no pointer names one of them", several.len());
                return Ok(Some(DayLookup { error: Some(error), ..empty }));
            }
        };
        let digest = Some(blob.digest);
        Ok(Some(match self.lookup_blob(&blob, id).await {
            Ok((contains, fpp)) => {
                DayLookup { contains: Some(contains), false_positive: Some(fpp), digest, ..empty }
            }
            Err(error) => DayLookup { digest, error: Some(error.to_string()), ..empty },
        }))
    }

    async fn lookup_blob(&self, blob: &BlobKey, id: &[u8]) -> Result<(bool, f64), Error> {
        let (header, filter) = self.open_blob(blob).await?;
        // A sample of lookups may have had no hit at all.
        Ok((filter.contains(id), filter.fpp_of_bits().max(header.fpp_measured())))
    }
}

impl TraceSummary {
    fn of(lookups: &[DayLookup]) -> TraceSummary {
        let fpps: Vec<f64> = lookups.iter().filter_map(|lookup| lookup.false_positive).collect();
        let days_found = lookups.iter().filter(|lookup| lookup.contains == Some(true)).count();
        TraceSummary {
            days_searched: fpps.len(),
            days_found,
            days_unreadable: lookups.iter().filter(|lookup| lookup.contains.is_none()).count(),
            max_chance_if_absent: max_chance_of_at_least(days_found, &fpps),
        }
    }
}

/// What the chance that at least `n` of some events happen cannot exceed, given the chance of each.
///
/// This is Markov's inequality, which holds however much the events depend on each other. Those of
/// days do: their filters have one hash function and most of their IDs in common, so filters of one
/// shape have most of their set bits in common, and an ID that is a false positive on a day is
/// mostly one on the next.
fn max_chance_of_at_least(n: usize, chances: &[f64]) -> f64 {
    if n == 0 {
        return 1.0;
    }
    (chances.iter().sum::<f64>() / n as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_only_the_days_that_could_be_read() {
        let lookup = |contains, false_positive| DayLookup {
            day: "2026-11-19".parse().unwrap(),
            contains,
            false_positive,
            digest: None,
            rolled_back: false,
            has_pointer: true,
            error: None,
        };
        let (hit, miss) = (lookup(Some(true), Some(0.03)), lookup(Some(false), Some(0.02)));
        let summary = TraceSummary::of(&[hit, lookup(None, None), miss]);
        assert_eq!((summary.days_searched, summary.days_found), (2, 1));
        assert_eq!(summary.days_unreadable, 1);
        assert_eq!(summary.max_chance_if_absent, 0.05);
    }

    #[test]
    fn the_chance_of_many_hits_is_that_of_days_that_are_alike() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(max_chance_of_at_least(0, &[0.03; 14]), 1.0));
        assert!(close(max_chance_of_at_least(1, &[0.03; 14]), 0.42));
        // Days with the same IDs have the same false positives.
        assert!(close(max_chance_of_at_least(14, &[0.03; 14]), 0.03));
        assert!(close(max_chance_of_at_least(1, &[0.5; 14]), 1.0));
        assert!(close(max_chance_of_at_least(1, &[]), 0.0));
    }
}
