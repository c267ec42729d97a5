//! [`Shape`]: how large a filter is and how many bits it tests, from the number of IDs and the fpp.
//!
//! Everything here is 64-bit and deterministic: `libm` in place of the platform's mathematics, so
//! that the same day gives the same bytes on every machine.

mod stable;

use std::f64::consts::LN_2;

use super::blocked::{self, BLOCK_BITS, BLOCK_BYTES};
use super::{Layout, classic};
use crate::error::Error;

/// `blocked` is sized for this share of the target, so that the measured fpp stays under it.
const MARGIN: f64 = 0.97;
/// Small filters have few blocks, so that their fpp varies: allow for this many standard
/// deviations.
const SAFETY_SIGMAS: f64 = 3.0;
/// The targets a filter can be sized for.
const FPP: std::ops::RangeInclusive<f64> = 1e-9..=0.5;
/// Below this the 32 hash bits that choose the probes are too few, and `blocked` is refused.
const BLOCKED_MIN_FPP: f64 = 5e-8;
/// Below this `guava` is the better choice: `blocked` would spend a third more bits.
const BLOCKED_GOOD_FPP: f64 = 1e-6;
/// With more IDs per bit of a block than this, every block is full.
const MAX_BLOCK_LOAD: f64 = 4.0;
/// How far from the mean block load the sum over loads goes: this many standard deviations, and
/// this many IDs more.
const REACH_SIGMAS: f64 = 12.0;
const REACH_LOADS: f64 = 40.0;

/// The layout, the size and the number of probes of a filter: everything that addressing a bit
/// needs.
///
/// ```
/// use bloomsday_common::filter::{Layout, Shape};
///
/// let shape = Shape::for_ids(Layout::Blocked, 300_000_000, 0.03)?;
/// assert_eq!(shape.probes(), 5);
/// assert_eq!(shape.body_bytes() >> 20, 268); // MiB
/// assert!(shape.expected_fpp(300_000_000) < 0.03);
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    layout: Layout,
    units: u64,
    probes: u32,
}

impl Shape {
    /// The smallest shape that holds `n_ids` at a false-positive probability of at most `fpp`.
    ///
    /// `guava`, `spark1` and `spark2` get exactly the shape that Guava and Spark choose. Guava
    /// rounds the number of probes, so the fpp can be a little above the target: at most 4 % near
    /// 0.36, less than 0.1 % below 0.01. Near 1e-9 and with fewer than some millions of IDs, its
    /// double hashing misses the target, as in Guava.
    ///
    /// # Errors
    /// [`Error::Fpp`] outside 1e-9 to 0.5, or below 5e-8 for `blocked`: choose [`Layout::Guava`]
    /// there; [`Error::TooLarge`] for more than the layout can address.
    pub fn for_ids(layout: Layout, n_ids: u64, fpp: f64) -> Result<Shape, Error> {
        if !FPP.contains(&fpp) {
            return Err(Error::Fpp {
                fpp,
                layout,
                remedy: "choose one between 1e-9 and 0.5; less than 5e-8 needs a classic layout, such as `guava`",
            });
        }
        let n_ids = n_ids.max(1);
        match layout {
            Layout::Blocked if fpp < BLOCKED_MIN_FPP => Err(Error::Fpp {
                fpp,
                layout,
                remedy: "choose the layout `guava`, which needs fewer bits there",
            }),
            Layout::Blocked => blocked_for(n_ids, fpp),
            Layout::Guava => {
                let bits = classic_bits(n_ids, fpp);
                Shape::new(layout, bits.div_ceil(64).max(1), guava_probes(fpp))
            }
            Layout::Spark1 | Layout::Spark2 => {
                let bits = classic_bits(n_ids, fpp);
                Shape::new(layout, bits.div_ceil(64).max(1), classic_probes(n_ids, bits))
            }
        }
    }

    /// The shape with these numbers, as a header states them.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when no such filter can exist.
    pub fn new(layout: Layout, units: u64, probes: u32) -> Result<Shape, Error> {
        let (max_units, max_probes) = match layout {
            Layout::Blocked => (blocked::MAX_BLOCKS, blocked::MAX_PROBES),
            _ => (classic::max_words(layout), classic::MAX_PROBES),
        };
        if !(1..=max_units).contains(&units) || !(1..=max_probes).contains(&probes) {
            return Err(Error::TooLarge { layout, units, probes, max_units, max_probes });
        }
        Ok(Shape { layout, units, probes })
    }

    /// How bits are arranged.
    pub fn layout(self) -> Layout {
        self.layout
    }

    /// How many blocks of 512 bits (`blocked`) or words of 64 bits (the others) it has.
    pub fn units(self) -> u64 {
        self.units
    }

    /// How many bits a lookup tests.
    pub fn probes(self) -> u32 {
        self.probes
    }

    /// The number of bits.
    pub fn bits(self) -> u64 {
        match self.layout {
            Layout::Blocked => self.units * BLOCK_BITS,
            _ => self.units * 64,
        }
    }

    /// The length of the serialized bits.
    pub fn body_bytes(self) -> u64 {
        match self.layout {
            Layout::Blocked => self.units * BLOCK_BYTES as u64,
            layout => self.units * 8 + classic::header_bytes(layout) as u64,
        }
    }

    /// The fpp that theory expects with `n_ids` in it.
    pub fn expected_fpp(self, n_ids: u64) -> f64 {
        match self.layout {
            Layout::Blocked => poisson_mixture(self.units, n_ids, self.probes).fpp,
            _ => classic_fpp(self.bits() as f64 / n_ids as f64, self.probes),
        }
    }

    /// The share of set bits that theory expects with `n_ids` in it, and how far a sound filter may
    /// deviate from that: the larger of 1 % and six standard deviations.
    pub fn expected_fill(self, n_ids: u64) -> (f64, f64) {
        let (n, k, bits) = (n_ids as f64, f64::from(self.probes), self.bits() as f64);
        let fill = match self.layout {
            Layout::Blocked => poisson_mixture(self.units, n_ids, self.probes).fill,
            _ => 1.0 - libm::exp(-k * n / bits),
        };
        // Efron–Stein: changing one ID moves at most k bits, so the variance is at most n k² / 2.
        let deviation = k * libm::sqrt(n / 2.0) / bits;
        (fill, (0.01 * fill).max(6.0 * deviation))
    }
}

/// The best layout for a target fpp, and a sentence for people that says why.
///
/// ```
/// use bloomsday_common::filter::{Layout, shape::recommend};
///
/// assert_eq!(recommend(0.03).0, Layout::Blocked);
/// assert_eq!(recommend(1e-8).0, Layout::Guava);
/// ```
pub fn recommend(fpp: f64) -> (Layout, &'static str) {
    if fpp >= BLOCKED_GOOD_FPP {
        (
            Layout::Blocked,
            "one cache miss for each lookup, and a few percent more bits than the classic filter",
        )
    } else {
        (
            Layout::Guava,
            "below 1e-6 one cache line per ID wastes space: the classic filter is smaller",
        )
    }
}

/// Bits of a classic Bloom filter: m = ⌊-n·ln p / (ln 2)²⌋ (Bloom 1970; Guava's
/// `optimalNumOfBits`).
pub fn classic_bits(n_ids: u64, fpp: f64) -> u64 {
    (-(n_ids as f64) * libm::log(fpp) / (LN_2 * LN_2)) as u64
}

/// Probes of a classic Bloom filter: k = max(1, round(m/n · ln 2)).
pub fn classic_probes(n_ids: u64, bits: u64) -> u32 {
    (libm::floor(bits as f64 / n_ids as f64 * LN_2 + 0.5) as u32).max(1)
}

/// fpp of a classic Bloom filter: (1 − e^(−k·n/m))^k.
pub fn classic_fpp(bits_per_id: f64, probes: u32) -> f64 {
    let k = f64::from(probes);
    libm::pow(1.0 - libm::exp(-k / bits_per_id), k)
}

/// Guava 33's `optimalNumOfHashFunctions(p)`: max(1, round(−log₂ p)), rounding halves up as Java.
fn guava_probes(fpp: f64) -> u32 {
    (libm::floor(-libm::log(fpp) / LN_2 + 0.5) as u32).max(1)
}

fn blocked_for(n_ids: u64, fpp: f64) -> Result<Shape, Error> {
    let target = MARGIN * fpp;
    let fits = |blocks: u64, probes: u32| {
        let mix = poisson_mixture(blocks, n_ids, probes);
        mix.fpp + SAFETY_SIGMAS * mix.deviation / libm::sqrt(blocks as f64) <= target
    };
    // The best number of probes lies near the classic one; each is a search over a monotone rate.
    let classic = classic_bits(n_ids, fpp).div_ceil(BLOCK_BITS).max(1);
    let near = classic_probes(1000, classic_bits(1000, fpp));
    let candidates = near.saturating_sub(8).max(1)..=(near + 1).min(blocked::MAX_PROBES);
    let mut best: Option<(u64, u32)> = None;
    for probes in candidates {
        let mut enough = classic.saturating_mul(4).saturating_add(4);
        if !fits(enough, probes) {
            continue;
        }
        // No Bloom filter needs less than the classic one.
        let mut too_few = classic * 9 / 10;
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if fits(middle, probes) { enough = middle } else { too_few = middle }
        }
        if best.is_none_or(|(blocks, _)| enough < blocks) {
            best = Some((enough, probes));
        }
    }
    let (blocks, probes) = best.ok_or(Error::Fpp {
        fpp,
        layout: Layout::Blocked,
        remedy: "choose the layout `guava`",
    })?;
    Shape::new(Layout::Blocked, blocks, probes)
}

/// Averages over the blocks of a filter.
struct BlockStats {
    fpp: f64,
    /// Standard deviation of one block's fpp.
    deviation: f64,
    fill: f64,
}

/// The Poisson mixture over block loads: Putze, Sanders & Singler 2009, §3, with the variance of
/// the number of occupied bits (Feller, "An Introduction to Probability Theory", vol. 1, IV.2) as
/// the second-order term of E[fill^k], and the chance that two IDs share all their probe bits.
fn poisson_mixture(blocks: u64, n_ids: u64, probes: u32) -> BlockStats {
    let bits = BLOCK_BITS as f64;
    let k = f64::from(probes);
    let load = n_ids as f64 / blocks as f64;
    if load > MAX_BLOCK_LOAD * bits {
        // Every block is full. A hostile header could make the sum below arbitrarily long.
        return BlockStats { fpp: 1.0, deviation: 0.0, fill: 1.0 };
    }
    // Terms farther from the mean than this are below 1e-30.
    let reach = REACH_SIGMAS * libm::sqrt(load) + REACH_LOADS;
    let first = libm::floor((load - reach).max(0.0)) as u64;
    let last = libm::ceil(load + reach) as u64;
    let mut weight =
        libm::exp(first as f64 * libm::log(load) - load - libm::lgamma(first as f64 + 1.0));
    let (mut sum, mut squares, mut fill) = (0.0, 0.0, 0.0);
    for ids in first..=last {
        let throws = ids as f64 * k;
        let empty = libm::exp(throws * libm::log1p(-1.0 / bits));
        let both_empty = libm::exp(throws * libm::log1p(-2.0 / bits));
        let full = 1.0 - empty;
        let variance = (empty / bits + (1.0 - 1.0 / bits) * both_empty - empty * empty).max(0.0);
        let curve = k * (k - 1.0) / 2.0 * libm::pow(full, k - 2.0) * variance;
        let rate = libm::pow(full, k) + if ids == 0 { 0.0 } else { curve };
        sum += weight * rate;
        squares += weight * rate * rate;
        fill += weight * full;
        weight *= load / (ids + 1) as f64;
    }
    // Two IDs of a block share all probe bits when the 32 hash bits that choose the probes are
    // equal.
    let collision_rate = load / (1u64 << 32) as f64;
    BlockStats {
        fpp: sum + collision_rate,
        deviation: libm::sqrt((squares - sum * sum).max(0.0)),
        fill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_formula_matches_the_published_table() {
        for (n, bits, words, mib) in [
            (200_000_000, 1_459_688_167, 22_807_628, 174),
            (300_000_000, 2_189_532_251, 34_211_442, 261),
            (500_000_000, 3_649_220_418, 57_019_070, 435),
            (1_000_000_000, 7_298_440_837, 114_038_139, 870),
        ] {
            assert_eq!(classic_bits(n, 0.03), bits);
            assert_eq!(bits.div_ceil(64), words);
            assert_eq!((words * 8) >> 20, mib);
            assert_eq!(classic_probes(n, bits), 5);
            let shape = Shape::for_ids(Layout::Guava, n, 0.03).unwrap();
            assert_eq!((shape.units(), shape.probes()), (words, 5));
        }
    }

    #[test]
    fn the_classic_fpp_matches_the_published_check_values() {
        for (bits_per_id, k, fpp, digits) in [
            (8.0, 6, 0.0216, 4),
            (10.0, 7, 0.00819, 5),
            (16.0, 8, 0.000574, 6),
            (20.0, 8, 0.00014, 5),
            (32.0, 8, 5.73e-06, 8),
            (50.0, 16, 1.0e-09, 10),
        ] {
            let unit = f64::powi(10.0, digits);
            assert_eq!((classic_fpp(bits_per_id, k) * unit).round(), (fpp * unit).round());
        }
    }

    #[test]
    fn blocked_needs_7_5_bits_an_id_at_three_percent() {
        let shape = Shape::for_ids(Layout::Blocked, 300_000_000, 0.03).unwrap();
        let bits_per_id = shape.bits() as f64 / 300e6;
        assert!((7.49..7.51).contains(&bits_per_id), "{bits_per_id}");
        assert_eq!(shape.probes(), 5);
        assert!(shape.bits() > 1 << 31, "300 million IDs lie past 2^31 bits");
        // 7.43 bits an ID give 0.03 without the margin (Putze et al., fig. 1).
        let bare = Shape::new(Layout::Blocked, (7.43 * 300e6 / 512.0) as u64, 5).unwrap();
        assert!((bare.expected_fpp(300_000_000) - 0.03).abs() < 1e-4);
    }

    #[test]
    fn every_target_is_met_by_one_of_the_layouts() {
        for exponent in 1..=90 {
            let fpp = 0.5 * f64::powf(2e-9, f64::from(exponent) / 90.0);
            let (layout, _) = recommend(fpp);
            for n in [1, 2, 10, 100, 1_000, 1_000_000, 300_000_000, 2_000_000_000u64] {
                // Guava rounds the bits of a handful of IDs down to a whole number.
                if layout == Layout::Guava && n < 100 {
                    continue;
                }
                let shape = Shape::for_ids(layout, n, fpp).unwrap();
                let ratio = shape.expected_fpp(n) / fpp;
                let bound = if layout == Layout::Blocked { 0.9701 } else { 1.01 };
                assert!(ratio <= bound, "{layout} {n} IDs at {fpp}: {ratio} of the target");
            }
        }
    }

    #[test]
    fn a_target_no_layout_can_meet_is_refused_with_the_remedy() {
        for wrong in [0.0, -1.0, 0.6, 1e-10, f64::NAN, f64::INFINITY] {
            assert!(Shape::for_ids(Layout::Guava, 10, wrong).is_err(), "{wrong} passed");
        }
        let error = Shape::for_ids(Layout::Blocked, 10, 5e-9).unwrap_err().to_string();
        assert!(error.contains("the layout `guava`"), "{error}");
    }

    #[test]
    fn sizes_grow_with_the_ids_and_never_wrap() {
        let mut last = 0;
        for exponent in 0..34 {
            let shape = Shape::for_ids(Layout::Blocked, 1 << exponent, 0.03).unwrap();
            assert!(shape.units() >= last);
            last = shape.units();
        }
        assert!(Shape::for_ids(Layout::Blocked, u64::MAX, 0.03).is_err());
        assert!(Shape::for_ids(Layout::Guava, u64::MAX, 0.03).is_err());
    }
}
