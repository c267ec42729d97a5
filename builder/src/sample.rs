//! [`Sample`]: a random, bounded choice of the day's raw IDs, which are looked up in the published
//! bytes.
//!
//! Lookups by hash would not detect a wrong hash; the sampled IDs are hashed again.

use std::fmt;

use bloomsday_common::hash::{IdHash, mix64};

/// About this many rows of the day are chosen.
const TARGET_ROWS: u64 = 1 << 20;

/// The IDs of rows that are a random number of rows apart: each row with an ID has the same
/// probability.
///
/// It samples rows, not distinct IDs: to detect duplicates here would cost a cache miss for each
/// ID.
pub struct Sample {
    /// The most bytes of memory.
    max_bytes: usize,
    /// One row in this many is chosen, on average.
    stride: u64,
    /// The number of rows to skip before the next choice.
    skip: u64,
    /// A random number that depends on all IDs chosen so far. If it depended on the last ID only,
    /// rows that repeat in the same order would lead to the same choices.
    random: u64,
    lengths: Vec<u16>,
    bytes: Vec<u8>,
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.lengths.len();
        f.debug_struct("Sample").field("ids", &ids).finish_non_exhaustive()
    }
}

impl Sample {
    /// An empty sample, which takes at most `max_bytes`. `rows` is the number of rows of all
    /// threads; all samples together choose about a million of them.
    pub fn new(max_bytes: usize, rows: u64) -> Sample {
        let stride = (rows / TARGET_ROWS).max(1);
        Sample { max_bytes, stride, skip: 0, random: 0, lengths: Vec::new(), bytes: Vec::new() }
    }

    /// Considers a row's ID. Cost: a subtraction for nearly all rows.
    #[inline]
    pub fn consider<H: IdHash>(&mut self, id: &[u8], hash: H) {
        match self.skip.checked_sub(1) {
            Some(left) => self.skip = left,
            None => self.keep(id, hash.high_bits()),
        }
    }

    /// The chosen IDs. An ID that many rows have may be among them more than once.
    pub fn ids(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |len| {
            rest.split_off(..usize::from(*len)).expect("the lengths add up to the bytes")
        })
    }

    #[cold]
    fn keep(&mut self, id: &[u8], hash: u64) {
        // The length of an ID fits 16 bits.
        self.lengths.push(id.len() as u16);
        self.bytes.extend_from_slice(id);
        while self.lengths.len() * size_of::<u16>() + self.bytes.len() > self.max_bytes {
            self.halve();
        }
        self.random = mix64(self.random ^ hash);
        // A number below 2 × stride − 1, by Lemire's fast range; its mean is stride − 1.
        let numbers = u128::from(self.stride.saturating_mul(2) - 1);
        self.skip = ((u128::from(self.random) * numbers) >> u64::BITS) as u64;
    }

    /// Drops every second ID, beginning with the first; the others move up, in order.
    fn halve(&mut self) {
        self.stride = self.stride.saturating_mul(2);
        let (mut from, mut end, mut stays) = (0, 0, true);
        self.lengths.retain(|len| {
            let place = from..from + usize::from(*len);
            from = place.end;
            stays = !stays;
            if stays {
                self.bytes.copy_within(place.clone(), end);
                end += place.len();
            }
            stays
        });
        self.bytes.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::hash::{IdHash, Xxh3};

    use super::*;

    fn sample(max_bytes: usize, expected: u64, rows: std::ops::Range<u64>) -> Vec<u64> {
        let mut sample = Sample::new(max_bytes, expected);
        for id in rows.map(|i| format!("user-{i}")) {
            sample.consider(id.as_bytes(), Xxh3::of(id.as_bytes()));
        }
        let bytes: usize = sample.ids().map(|id| id.len() + size_of::<u16>()).sum();
        assert!(bytes <= max_bytes, "{bytes} bytes are kept");
        let number = |id: &[u8]| std::str::from_utf8(&id[5..]).unwrap().parse().unwrap();
        sample.ids().map(number).collect()
    }

    #[test]
    fn a_small_day_is_kept_whole() {
        assert_eq!(sample(1 << 20, 30_000, 0..30_000), Vec::from_iter(0..30_000));
    }

    #[test]
    fn rows_are_chosen_all_over_a_day_of_known_size_and_in_no_step() {
        let rows = 100 * TARGET_ROWS;
        let chosen = sample(1 << 20, rows, 0..1_000_000);
        assert!((9_500..10_500).contains(&chosen.len()), "{} are kept", chosen.len());
        for tenth in 0..10 {
            let here = chosen.iter().filter(|row| **row / 100_000 == tenth).count();
            assert!((850..1_150).contains(&here), "{here} in tenth {tenth}");
        }
        for step in [2, 7, 100] {
            let there = chosen.iter().filter(|row| **row % step == 0).count() as f64;
            let share = there / chosen.len() as f64 * step as f64;
            assert!((0.6..1.4).contains(&share), "{share} of its share are multiples of {step}");
        }
    }

    #[test]
    fn rows_that_come_again_in_the_same_order_lead_to_other_choices() {
        let mut sample = Sample::new(1 << 20, 50 * TARGET_ROWS);
        for id in (0..1_000_000).map(|row| format!("user-{}", row % 10_000)) {
            sample.consider(id.as_bytes(), Xxh3::of(id.as_bytes()));
        }
        let n = sample.ids().count();
        assert!((19_000..21_000).contains(&n), "{n} are kept");
        // Of n draws from 10,000 IDs 1 − e^−2 are among them: 8,647 in the mean.
        let distinct = sample.ids().collect::<std::collections::BTreeSet<_>>().len();
        assert!((8_400..8_900).contains(&distinct), "{distinct} of 10,000 are among {n}");
    }

    #[test]
    fn past_its_memory_every_second_one_goes_and_half_as_many_come() {
        let chosen = sample(16 << 10, 1, 0..100_000);
        // Between half of its memory and all of it, at 12 bytes a row.
        assert!((600..1_400).contains(&chosen.len()), "{} are kept", chosen.len());
        for tenth in 0..10 {
            let here = chosen.iter().filter(|row| **row / 10_000 == tenth).count();
            assert!((30..250).contains(&here), "{here} in tenth {tenth}");
        }
        assert!(sample(3, 1, 0..1_000).is_empty(), "an ID that is too long for it all");
    }
}
