//! The guard: compares the hit rates of the current filter and of a newer day's filter on recent
//! lookups. This file is pure: no I/O, no clock, no swap. `sample` collects the lookups; `hold`
//! remembers a filter that is held back.
//!
//! A day that lost half of its IDs still makes a sound blob. Recent lookups reveal it: the share of
//! known IDs falls. This share is each filter's hit rate without its false positives, (s − p) / (1
//! − p), so that a new fpp target alone changes nothing. The new share may differ from the old by
//! 25 % of it, and by at least 0.01. Four standard deviations of the paired difference are added,
//! because of the sample's size. So a day whose true change is just at the limit is beyond it once
//! in some 30,000 times, and an ordinary day practically never.

pub(crate) mod hold;
pub(crate) mod sample;

use std::time::Duration;

use bloomsday_common::filter::Filter;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::sample::SampledId;

/// With fewer distinct IDs there is no verdict: 1,000 reveal a difference of some 0.06.
pub(crate) const MIN_SAMPLED_IDS: usize = 1_000;
/// The share of known IDs may always change by this much.
const BAND_ABSOLUTE: f64 = 0.01;
/// The share of known IDs may change by this part of itself.
const BAND_RELATIVE: f64 = 0.25;
/// How many standard deviations of the sampled difference are added to the band.
const MARGIN_DEVIATIONS: f64 = 4.0;

/// What happens to a newer day's filter whose hit rate on recent lookups differs too much.
///
/// ```
/// use bloomsday_server::{FilterConfig, Guard};
///
/// let filter = FilterConfig::new("rt".parse()?);
/// assert_eq!(filter.guard, Guard::Warn);
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guard {
    /// Nothing: lookups are not sampled.
    Off,
    /// It is swapped in, with a warning in log, status and metrics.
    #[default]
    Warn,
    /// The old filter stays current, for a bounded time.
    Hold,
}

/// The guard's verdict on a newer day's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There were too few lookups for a verdict: it was swapped in.
    TooFewLookups,
    /// Its hit rate is like that of the old filter: it was swapped in.
    Passed,
    /// Its hit rate differs too much: it was swapped in, with a warning.
    Warned,
    /// Its hit rate differs too much: it is held back.
    Held,
    /// Its hit rate still differed after the longest hold: it was swapped in, with an error in the
    /// log.
    Overdue,
    /// It was held back, and an operator forced the swap.
    Forced,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 6] = [
        Verdict::TooFewLookups,
        Verdict::Passed,
        Verdict::Warned,
        Verdict::Held,
        Verdict::Overdue,
        Verdict::Forced,
    ];

    /// The name in status and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::TooFewLookups => "too_few_lookups",
            Verdict::Passed => "passed",
            Verdict::Warned => "warned",
            Verdict::Held => "held",
            Verdict::Overdue => "overdue",
            Verdict::Forced => "forced",
        }
    }
}

/// The hit rates of two filters on the same lookups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) lookups: usize,
    /// The hit rate.
    pub(crate) old: f64,
    pub(crate) new: f64,
    /// By how much the share of known IDs changed.
    pub(crate) difference: f64,
    /// By how much it may.
    pub(crate) allowed: f64,
}

/// A filter and its measured fpp.
pub(crate) type Side<'a> = (&'a Filter, f64);

/// Looks the sampled IDs up in both filters; `None` when they are too few.
///
/// Cost: two lookups for each ID.
pub(crate) fn compare(sample: &[SampledId], old: Side<'_>, new: Side<'_>) -> Option<Comparison> {
    let (mut old_hits, mut new_hits, mut changed) = (0u32, 0u32, 0u32);
    for id in sample {
        let (was, is) = (old.0.contains(id.id()), new.0.contains(id.id()));
        old_hits += u32::from(was);
        new_hits += u32::from(is);
        changed += u32::from(was != is);
    }
    compare_counts(sample.len(), (old_hits, old.1), (new_hits, new.1), changed)
}

/// From each side's hits and fpp, and the number of IDs with different results.
fn compare_counts(
    lookups: usize,
    old: (u32, f64),
    new: (u32, f64),
    changed: u32,
) -> Option<Comparison> {
    if lookups < MIN_SAMPLED_IDS {
        return None;
    }
    let n = lookups as f64;
    let rate = |hits: u32| f64::from(hits) / n;
    let share = |(hits, fpp): (u32, f64)| ((rate(hits) - fpp) / (1.0 - fpp)).max(0.0);
    let difference = share(new) - share(old);
    // Both filters have the same lookups, so only those with different results make noise.
    let paired = rate(new.0) - rate(old.0);
    let deviation = ((rate(changed) - paired * paired).max(0.0) / n).sqrt();
    let deviation = deviation / (1.0 - old.1.max(new.1));
    let band = BAND_ABSOLUTE.max(BAND_RELATIVE * share(old));
    let allowed = band + MARGIN_DEVIATIONS * deviation;
    Some(Comparison { lookups, old: rate(old.0), new: rate(new.0), difference, allowed })
}

impl Comparison {
    pub(crate) fn is_beyond(&self) -> bool {
        self.difference.abs() > self.allowed
    }

    /// Both rates, as a sentence.
    pub(crate) fn describe(&self) -> String {
        let Comparison { lookups, old, new, difference, allowed } = self;
        format!(
            "of {lookups} recent lookups, {:.2} % are hits in the old filter and {:.2} % in the new \
             one; the share of known IDs changes by {difference:+.4}, and ± {allowed:.4} is allowed",
            old * 100.0,
            new * 100.0
        )
    }
}

/// The verdict on a newer day's filter; `held_since` is when the hold began, if there is one.
pub(crate) fn verdict_of(
    mode: Guard,
    comparison: Option<&Comparison>,
    held_since: Option<Instant>,
    max_hold: Duration,
    now: Instant,
) -> Verdict {
    match comparison {
        None => Verdict::TooFewLookups,
        Some(comparison) if !comparison.is_beyond() => Verdict::Passed,
        Some(_) if mode != Guard::Hold => Verdict::Warned,
        Some(_) => match held_since {
            Some(since) if now.duration_since(since) >= max_hold => Verdict::Overdue,
            None if max_hold.is_zero() => Verdict::Overdue,
            _ => Verdict::Held,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` lookups of which `old` and `new` are hits, with as few different results as possible.
    fn of(n: usize, old: u32, new: u32) -> Comparison {
        compare_counts(n, (old, 0.03), (new, 0.03), old.abs_diff(new)).unwrap()
    }

    #[test]
    fn a_day_that_lost_half_its_ids_is_beyond_the_band_and_an_ordinary_one_is_not() {
        for n in [1_000usize, 4_000] {
            let part = |share: f64| ((0.03 + 0.97 * share) * n as f64) as u32;
            for known in [0.3, 0.5, 0.9] {
                let (old, lost) = (part(known), part(known / 2.0));
                assert!(of(n, old, lost).is_beyond(), "{}", of(n, old, lost).describe());
                assert!(of(n, lost, old).is_beyond(), "{}", of(n, lost, old).describe());
                let ordinary = part(known * 0.9);
                assert!(!of(n, old, ordinary).is_beyond(), "{}", of(n, old, ordinary).describe());
            }
        }
    }

    #[test]
    fn a_filter_that_lost_all_known_ids_is_beyond_the_band() {
        assert!(of(1_000, 500, 30).is_beyond());
        assert!(of(4_000, 480, 120).is_beyond());
    }

    #[test]
    fn another_fpp_alone_is_no_difference() {
        // 40 % known; the old filter adds 3 % of the rest, the new one 0.1 %.
        let n = 4_000;
        let hits = |fpp: f64| (n as f64 * (0.4 + 0.6 * fpp)) as u32;
        let (old, new) = (hits(0.03), hits(0.001));
        let c = compare_counts(n, (old, 0.03), (new, 0.001), old - new).unwrap();
        assert!(!c.is_beyond() && c.difference.abs() < 0.002, "{}", c.describe());
    }

    #[test]
    fn with_few_lookups_there_is_no_verdict_and_noise_widens_the_band() {
        assert_eq!(compare_counts(999, (500, 0.03), (0, 0.03), 500), None);
        let calm = compare_counts(1_000, (500, 0.03), (400, 0.03), 100).unwrap();
        let noisy = compare_counts(1_000, (500, 0.03), (400, 0.03), 800).unwrap();
        assert!(noisy.allowed > calm.allowed);
    }

    #[test]
    fn a_hold_ends() {
        let beyond = of(1_000, 500, 30);
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let after = |mode, since| verdict_of(mode, Some(&beyond), since, hour, now + hour);
        assert_eq!(after(Guard::Warn, None), Verdict::Warned);
        assert_eq!(after(Guard::Hold, None), Verdict::Held);
        assert_eq!(after(Guard::Hold, Some(now + hour / 2)), Verdict::Held);
        assert_eq!(after(Guard::Hold, Some(now)), Verdict::Overdue);
    }
}
