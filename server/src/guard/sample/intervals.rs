//! [`Intervals`]: which lookup is sampled next, in the count of its owner.
//!
//! Each lookup is sampled with a probability of 1 in 128, independent of all others: so the
//! intervals between sampled lookups have a geometric distribution, which has no memory. An
//! interval goes on from batch to batch. So the probability is the same at every place of every
//! pattern, in the first lookup of a new reader, and for batches of every size.

use std::sync::atomic::{AtomicU64, Ordering};

use bloomsday_common::hash::SplitMix64;
use bloomsday_common::random::random;

/// One lookup of this many is sampled.
pub(crate) const SAMPLE_ONE_IN: u64 = 128;

/// The number of lookups to the next sampled one, at least 1.
///
/// Devroye 1986, §X.2: the inverse of the geometric distribution.
fn next_interval(random: &mut SplitMix64) -> u64 {
    // Above 0 and up to 1: its logarithm is a number.
    let chance = ((random.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    // The compiler makes it a constant.
    let scale = 1.0 / (1.0 - 1.0 / SAMPLE_ONE_IN as f64).ln();
    1 + (chance.ln() * scale) as u64
}

/// The intervals of one owner, in its own count.
pub(crate) struct Intervals {
    next: u64,
    random: SplitMix64,
}

impl Intervals {
    /// For a count that begins at 0. Without a sample, no lookup is sampled.
    pub(crate) fn new(is_sampled: bool) -> Intervals {
        if !is_sampled {
            return Intervals { next: u64::MAX, random: SplitMix64::new(0) };
        }
        Intervals::from(0, random())
    }

    fn from(begin: u64, seed: u64) -> Intervals {
        let mut random = SplitMix64::new(seed);
        Intervals { next: begin + next_interval(&mut random) - 1, random }
    }

    /// The number of lookups before the next sampled one.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether one of the lookups before `end` is sampled.
    #[inline(always)]
    pub(crate) fn should_sample(&self, end: u64) -> bool {
        self.next < end
    }

    /// The next sampled lookup, if it comes before `end`.
    pub(crate) fn take(&mut self, end: u64) -> Option<u64> {
        let at = self.next;
        if at >= end {
            return None;
        }
        self.next = at + next_interval(&mut self.random);
        Some(at)
    }
}

/// The intervals of many owners, in one shared count.
pub(crate) struct SharedIntervals {
    next: AtomicU64,
}

/// Consecutive lookups of one of the owners.
pub(crate) struct ClaimedRange<'a> {
    shared: &'a SharedIntervals,
    /// The next sampled lookup of all owners when these were claimed.
    shared_next: u64,
    intervals: Intervals,
    end: u64,
}

impl SharedIntervals {
    pub(crate) fn new(is_sampled: bool) -> SharedIntervals {
        SharedIntervals { next: AtomicU64::new(Intervals::new(is_sampled).next) }
    }

    /// Whether one of the lookups before `end` is sampled, or may be.
    #[inline(always)]
    pub(crate) fn should_sample(&self, end: u64) -> bool {
        self.next.load(Ordering::Relaxed) < end
    }

    /// The lookups from `begin` to `end`, which no other owner claims.
    pub(crate) fn claim(&self, begin: u64, end: u64) -> ClaimedRange<'_> {
        let next = self.next.load(Ordering::Relaxed);
        let mut intervals = Intervals::from(begin, random());
        if next >= begin {
            intervals.next = next;
        }
        // Otherwise it is in the lookups of another owner, who takes or has taken it: an interval
        // without memory may begin anywhere.
        ClaimedRange { shared: self, shared_next: next, intervals, end }
    }
}

impl ClaimedRange<'_> {
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.intervals.take(self.end)
    }
}

impl Drop for ClaimedRange<'_> {
    fn drop(&mut self) {
        // Lookups that were not taken, since the sample was locked, are skipped.
        while self.take().is_some() {}
        // Of several claims at once, the first to end sets the next, whatever that is: the furthest
        // one would make all intervals longer than they are drawn.
        let (before, next) = (self.shared_next, self.intervals.next);
        let (relaxed, shared) = (Ordering::Relaxed, &self.shared.next);
        // Fails if another one has set it, which counts as much.
        let _ = shared.compare_exchange(before, next, relaxed, relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lookup_is_sampled_with_a_probability_of_1_in_128_whatever_was_before() {
        let n = 20_000_000u64;
        let mut intervals = Intervals::from(0, 1);
        let chosen: Vec<u64> = std::iter::from_fn(|| intervals.take(n)).collect();
        let expected = n as f64 / SAMPLE_ONE_IN as f64;
        let off = (chosen.len() as f64 - expected) / expected.sqrt();
        assert!(off.abs() < 5.0, "{} chosen, {off:.1} deviations off", chosen.len());
        // One lookup in 128 after one that was chosen is chosen as well; so is the one after
        // that.
        for apart in [1, 2, 64, 127, 128, 129] {
            let all: std::collections::HashSet<u64> = chosen.iter().copied().collect();
            let pairs = chosen.iter().filter(|at| all.contains(&(*at + apart))).count() as f64;
            let expected = chosen.len() as f64 / SAMPLE_ONE_IN as f64;
            let off = (pairs - expected) / expected.sqrt();
            assert!(off.abs() < 5.0, "{apart} apart: {pairs} pairs, {off:.1} deviations off");
        }
    }

    #[test]
    fn the_first_lookup_of_an_owner_has_the_probability_of_every_other() {
        for place in [0, 1, 2, 100] {
            let n = 400_000;
            let owners = (0..n).filter(|seed| {
                let mut intervals = Intervals::from(0, *seed);
                std::iter::from_fn(|| intervals.take(place + 1)).any(|at| at == place)
            });
            let (chosen, expected) = (owners.count() as f64, n as f64 / SAMPLE_ONE_IN as f64);
            let off = (chosen - expected) / expected.sqrt();
            assert!(off.abs() < 5.0, "the lookup {place}: {off:.1} deviations off");
        }
    }

    #[test]
    fn without_a_sample_no_lookup_is_sampled() {
        assert_eq!(Intervals::new(false).take(u64::MAX), None);
        assert!(!SharedIntervals::new(false).should_sample(u64::MAX));
    }

    #[test]
    fn many_owners_choose_at_the_same_rate_together() {
        let (shared, count) = (SharedIntervals::new(true), AtomicU64::new(0));
        let (threads, each, size) = (8, 20_000, 37);
        let chosen: usize = std::thread::scope(|scope| {
            let look_up = || {
                let mut chosen = 0;
                for _ in 0..each {
                    let before = count.fetch_add(size, Ordering::Relaxed);
                    if shared.should_sample(before + size) {
                        let mut claim = shared.claim(before, before + size);
                        chosen += std::iter::from_fn(|| claim.take()).count();
                    }
                }
                chosen
            };
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(look_up)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        let expected = (threads * each * size) as f64 / SAMPLE_ONE_IN as f64;
        assert!((chosen as f64 / expected - 1.0).abs() < 0.05, "{chosen}, not {expected}");
    }
}
