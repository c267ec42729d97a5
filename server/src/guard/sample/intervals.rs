//! [`Intervals`]: which question is sampled next, in the count of whoever asks.
//!
//! Each is chosen with a chance of one in 128, whatever was chosen before: so the gaps between them
//! are geometric, and have no memory. A gap goes on from batch to batch and begins anew nowhere;
//! that makes the chance the same at every place of every rhythm, in the first question of a new
//! reader, and however batches are cut.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::{Sequence, random};

/// One of so many questions is sampled.
pub(crate) const SAMPLE_ONE_IN: u64 = 128;

/// How many questions on the next one is, 1 at least.
///
/// Devroye 1986, §X.2: the inverse of the geometric distribution.
fn next_interval(random: &mut Sequence) -> u64 {
    // Above 0 and up to 1: its logarithm is a number.
    let chance = ((random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    // A constant, as the compiler knows.
    let not_sampled = (1.0 - 1.0 / SAMPLE_ONE_IN as f64).ln();
    1 + (chance.ln() / not_sampled) as u64
}

/// For one owner and its count.
pub(crate) struct Intervals {
    next: u64,
    random: Sequence,
}

impl Intervals {
    /// For a count that begins at 0; without a sample nothing is ever chosen.
    pub(crate) fn new(is_sampled: bool) -> Intervals {
        if !is_sampled {
            return Intervals { next: u64::MAX, random: Sequence::from(0) };
        }
        Intervals::from(0, random())
    }

    fn from(begin: u64, seed: u64) -> Intervals {
        let mut random = Sequence::from(seed);
        Intervals { next: begin + next_interval(&mut random) - 1, random }
    }

    /// The count before the next that is sampled.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether one of the questions before `end` is sampled.
    #[inline(always)]
    pub(crate) fn should_sample(&self, end: u64) -> bool {
        self.next < end
    }

    /// The next that is sampled, unless it comes only at `end` or later.
    pub(crate) fn take(&mut self, end: u64) -> Option<u64> {
        let at = self.next;
        if at >= end {
            return None;
        }
        self.next = at + next_interval(&mut self.random);
        Some(at)
    }
}

/// For many owners who share one count.
pub(crate) struct SharedIntervals {
    next: AtomicU64,
}

/// Some questions in a row that belong to one of the owners.
pub(crate) struct Claim<'a> {
    shared: &'a SharedIntervals,
    intervals: Intervals,
    end: u64,
}

impl SharedIntervals {
    pub(crate) fn new(is_sampled: bool) -> SharedIntervals {
        SharedIntervals { next: AtomicU64::new(Intervals::new(is_sampled).next) }
    }

    /// Whether one of the questions before `end` is sampled, or may be.
    #[inline(always)]
    pub(crate) fn should_sample(&self, end: u64) -> bool {
        self.next.load(Ordering::Relaxed) < end
    }

    /// The questions from `begin` to `end`, which nobody else claims.
    pub(crate) fn claim(&self, begin: u64, end: u64) -> Claim<'_> {
        let next = self.next.load(Ordering::Relaxed);
        let mut intervals = Intervals::from(begin, random());
        if next >= begin {
            intervals.next = next;
        }
        // Else it lies in another's questions, who is at it or has passed it by: a gap without
        // memory may begin anywhere.
        Claim { shared: self, intervals, end }
    }
}

impl Claim<'_> {
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.intervals.take(self.end)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Of several at once the latest says how it goes on. Those that are not taken, since the
        // sample was busy, are passed by.
        while self.take().is_some() {}
        self.shared.next.fetch_max(self.intervals.next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_is_chosen_with_a_chance_of_one_in_128_whatever_was_before() {
        let n = 20_000_000u64;
        let mut intervals = Intervals::from(0, 1);
        let chosen: Vec<u64> = std::iter::from_fn(|| intervals.take(n)).collect();
        let expected = n as f64 / SAMPLE_ONE_IN as f64;
        let off = (chosen.len() as f64 - expected) / expected.sqrt();
        assert!(off.abs() < 5.0, "{} chosen, {off:.1} deviations off", chosen.len());
        // One question in 128 after one that was chosen is chosen as well; so is the one after
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
    fn the_first_question_of_an_owner_has_the_chance_of_every_other() {
        for place in [0, 1, 2, 100] {
            let n = 400_000;
            let owners = (0..n).filter(|seed| {
                let mut intervals = Intervals::from(0, *seed);
                std::iter::from_fn(|| intervals.take(place + 1)).any(|at| at == place)
            });
            let (chosen, expected) = (owners.count() as f64, n as f64 / SAMPLE_ONE_IN as f64);
            let off = (chosen - expected) / expected.sqrt();
            assert!(off.abs() < 5.0, "the question {place}: {off:.1} deviations off");
        }
    }

    #[test]
    fn without_a_sample_nothing_is_ever_chosen() {
        assert_eq!(Intervals::new(false).take(u64::MAX), None);
        assert!(!SharedIntervals::new(false).should_sample(u64::MAX));
    }

    #[test]
    fn many_owners_choose_at_the_same_rate_together() {
        let (shared, count) = (SharedIntervals::new(true), AtomicU64::new(0));
        let (threads, each, size) = (8, 20_000, 37);
        let chosen: usize = std::thread::scope(|scope| {
            let ask = || {
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
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        let expected = (threads * each * size) as f64 / SAMPLE_ONE_IN as f64;
        assert!((chosen as f64 / expected - 1.0).abs() < 0.1, "{chosen}, not {expected}");
    }
}
