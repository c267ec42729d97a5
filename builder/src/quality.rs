//! Compares a filter's share of set bits and its measured rate of false positives with theory and,
//! where theory is too coarse, with reference filters of the same shape.
//!
//! The rate of a small filter depends on its IDs, and Guava's double hashing misses a low target
//! with any IDs. A day must not be refused for either. So a rate above the target is compared with
//! the rates of reference filters, each filled with the same number of other IDs.
//!
//! The rate of a very small filter varies widely with its IDs. In 64 bits, double hashing leads 1
//! of 16 IDs through a circle of eight bits only, and 1 of 64 absent IDs is then a hit. Only many
//! reference filters have such cases among them.
//!
//! At a low target, the rate of a small `blocked` filter is mostly that of its fullest block: one
//! filter in hundreds has several times the mean rate, and no 32 reference filters tell how far
//! that goes. Theory does.

use bloomsday_common::blob::{self, Header};
use bloomsday_common::filter::{Filter, FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Murmur3, Spark, Xxh3};

use crate::error::Error;
use crate::verify::{ABSENT_LOOKUPS, absent_hashes};

/// A rate may exceed the expected rate by this factor.
const TOLERATED_RATIO: f64 = 1.2;
/// The probability that a filter with just the tolerated rate is refused because of the choice of
/// the absent IDs.
const MAX_FALSE_REFUSAL_RATE: f64 = 1e-6;
/// Below this target there are too few hits to measure; the share of set bits is compared as well.
const TARGET_TOO_LOW_TO_MEASURE: f64 = 1e-5;
/// How many reference filters are made, and how they are measured.
struct References {
    filters: u64,
    lookups_each: u64,
}
/// Enough to know the standard deviation of their rates within an eighth.
const REFERENCES: References = References { filters: 32, lookups_each: ABSENT_LOOKUPS };
/// For a filter of at most [`FEW_IDS`]: so many that a case of probability 1 in 16 is among them.
const REFERENCES_OF_FEW_IDS: References =
    References { filters: 512, lookups_each: ABSENT_LOOKUPS / 16 };
const FEW_IDS: u64 = 64;
/// A rate is explained up to this many standard deviations above the mean of the references.
const REFERENCE_DEVIATIONS: f64 = 6.0;
/// Larger filters differ by less than [`TOLERATED_RATIO`] from each other and from theory.
const MAX_REFERENCE_IDS: u64 = 1 << 22;

/// Refuses a filter whose bits or rate its IDs do not explain. Returns a warning if the rate is
/// above the target, but explained.
///
/// Cost: negligible for a filter that meets its target. A small filter that misses it costs
/// 32 more filters and measurements, or as many lookups in more filters.
///
/// # Errors
/// [`Error::Unsound`], with the numbers.
pub fn check_quality(header: &Header, filter: &Filter) -> Result<Option<String>, Error> {
    check_quality_with(header, &|| filter.fpp_of_bits())
}

/// As [`check_quality`], for a filter that is not in memory; `of_bits` is its
/// [`fpp_of_bits`](Filter::fpp_of_bits).
///
/// # Errors
/// As [`check_quality`].
pub(crate) fn check_quality_with(
    header: &Header,
    of_bits: &dyn Fn() -> f64,
) -> Result<Option<String>, Error> {
    blob::check_fill(header).map_err(|why| Error::Unsound { why })?;
    match header.shape.layout() {
        Layout::Blocked => compare_rates::<Xxh3>(header, of_bits),
        Layout::Guava => compare_rates::<Murmur3>(header, of_bits),
        Layout::Spark1 => compare_rates::<Spark<1>>(header, of_bits),
        Layout::Spark2 => compare_rates::<Spark<2>>(header, of_bits),
    }
}

/// Compares the rates with the target, and if they are above, with those of reference filters.
fn compare_rates<H: IdHash>(
    header: &Header,
    of_bits: &dyn Fn() -> f64,
) -> Result<Option<String>, Error> {
    let target = header.fpp_target;
    let rates = Rates::of(header, of_bits);
    if rates.explained_by(target, target) {
        return Ok(None);
    }
    let expected = expected_rates::<H>(header.shape, header.ids)?;
    let (measured, of_bits) = (target.max(expected.measured), target.max(expected.of_bits));
    if rates.explained_by(measured, of_bits) {
        // Double hashing gives few IDs a rate that more bits hardly lower.
        let remedy = match header.shape.layout() {
            Layout::Blocked => "a lower fpp",
            _ => "the layout `blocked` (with few IDs a lower fpp hardly helps here)",
        };
        return Ok(Some(format!(
            "the filter's measured fpp is {:.3e}, above the target {target:e}: any {} IDs in this \
             shape miss it; for fewer false positives build with {remedy}",
            header.fpp_measured(),
            header.ids
        )));
    }
    let Header { fpp_hits: hits, fpp_lookups: looked_up, ids, .. } = header;
    // Zero is for one that was not computed.
    let (by_bits, and_bits) = match rates.of_bits {
        0.0 => (String::new(), String::new()),
        rate => (format!(", by its bits {rate:.3e}"), format!(" and {of_bits:.3e}")),
    };
    let why = format!(
        "its measured fpp is {:.3e} ({hits} of {looked_up}){by_bits}; the target is {target:e}, and {ids} IDs \
         in this shape explain up to {measured:.3e}{and_bits}",
        header.fpp_measured(),
    );
    Err(Error::Unsound { why })
}

/// The measurements of a filter's rate.
struct Rates {
    hits: u64,
    looked_up: u64,
    /// The rate that follows from the set bits; zero if only the measurement counts.
    of_bits: f64,
}

impl Rates {
    fn of(header: &Header, of_bits: &dyn Fn() -> f64) -> Rates {
        let by_bits = header.fpp_target < TARGET_TOO_LOW_TO_MEASURE
            && header.shape.layout() == Layout::Blocked;
        Rates {
            hits: header.fpp_hits,
            looked_up: header.fpp_lookups,
            of_bits: if by_bits { of_bits() } else { 0.0 },
        }
    }

    /// Whether a filter with these true rates, times [`TOLERATED_RATIO`], explains the
    /// measurements.
    fn explained_by(&self, measured: f64, of_bits: f64) -> bool {
        let expected_hits = TOLERATED_RATIO * measured * self.looked_up as f64;
        chance_of_at_least(self.hits, expected_hits) >= MAX_FALSE_REFUSAL_RATE
            && self.of_bits <= TOLERATED_RATIO * of_bits
    }
}

/// The rates that the reference filters explain.
struct Expected {
    measured: f64,
    of_bits: f64,
}

/// Fills and measures the reference filters. They contain fixed sequences of IDs, so the result is
/// the same each time.
fn expected_rates<H: IdHash>(shape: Shape, n_ids: u64) -> Result<Expected, Error> {
    if n_ids > MAX_REFERENCE_IDS {
        return Ok(Expected { measured: 0.0, of_bits: 0.0 });
    }
    let crowded = crowded_block_rate(shape, n_ids);
    let memory = |source| Error::Memory { what: "a filter", bytes: shape.body_bytes(), source };
    let references = if n_ids <= FEW_IDS { REFERENCES_OF_FEW_IDS } else { REFERENCES };
    let References { filters, lookups_each } = references;
    let absent = absent_hashes::<H>(0..lookups_each);
    let (mut measured, mut of_bits) = (Vec::new(), Vec::new());
    for reference in 0..filters {
        let mut filter = FilterMut::new(shape).map_err(memory)?;
        let head = reference.to_le_bytes();
        let mut hash_of_end = H::hash_suffixes(&head);
        (0..n_ids).for_each(|id| filter.insert(hash_of_end(id.to_le_bytes())));
        let filter = filter.freeze();
        measured.push(filter.count_hashes(&absent) as f64 / lookups_each as f64);
        of_bits.push(filter.fpp_of_bits());
    }
    let (measured, of_bits) = (upper_bound(&measured), upper_bound(&of_bits));
    Ok(Expected { measured: measured + crowded, of_bits: of_bits + crowded })
}

/// What one very full block adds to the rate of a `blocked` filter: so full that a filter of these
/// IDs has one with a probability of [`MAX_FALSE_REFUSAL_RATE`].
fn crowded_block_rate(shape: Shape, n_ids: u64) -> f64 {
    if shape.layout() != Layout::Blocked {
        return 0.0;
    }
    // Hashes choose blocks at random, so the number of IDs in one is Poisson distributed.
    let (blocks, probes) = (shape.units() as f64, f64::from(shape.probes()));
    let (mean, chance) = (n_ids as f64 / blocks, MAX_FALSE_REFUSAL_RATE / blocks);
    let mut ids = mean.ceil() as u64;
    while chance_of_at_least(ids, mean) > chance {
        ids += 1;
    }
    let bits_of_block = shape.bits() as f64 / blocks;
    let share_set = -libm::expm1(ids as f64 * probes * libm::log1p(-1.0 / bits_of_block));
    libm::pow(share_set, probes) / blocks
}

/// The mean of these rates plus [`REFERENCE_DEVIATIONS`] standard deviations, or the highest if
/// that is higher.
fn upper_bound(figures: &[f64]) -> f64 {
    let n = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / n;
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    let above = mean + REFERENCE_DEVIATIONS * (squares / (n - 1.0)).sqrt();
    figures.iter().copied().fold(above, f64::max)
}

/// The probability of at least `count` events if `expected` is their mean, by the Poisson
/// distribution.
fn chance_of_at_least(count: u64, expected: f64) -> f64 {
    let count = count as f64;
    if count <= expected {
        return 1.0;
    }
    // Each term is smaller than the one before by a factor of expected / (count + 1) or less.
    let mut term = (count * expected.ln() - expected - libm::lgamma(count + 1.0)).exp();
    let (mut sum, mut at) = (0.0, count);
    while term > sum * f64::EPSILON {
        sum += term;
        at += 1.0;
        term *= expected / at;
    }
    sum
}

#[cfg(test)]
mod tests {
    use bloomsday_common::blob::Origin;

    use super::*;
    use crate::verify::count_false_positives;

    fn sound() -> (Header, Filter) {
        filled::<Xxh3>(20_000, 0.03, 0)
    }

    /// A filter of this many IDs, other ones for each `day`.
    fn filled<H: IdHash>(n_ids: u64, fpp: f64, day: u64) -> (Header, Filter) {
        let (header, filter) = without_hits(n_ids, fpp, hashes::<H>(day).take(n_ids as usize));
        let fpp_hits = count_false_positives::<H>(&filter, 2);
        (Header { fpp_hits, ..header }, filter)
    }

    /// The hashes of the IDs of a day, without end.
    fn hashes<H: IdHash>(day: u64) -> impl Iterator<Item = H> {
        (0..).map(move |id: u64| H::of(&[day.to_le_bytes(), id.to_le_bytes()].concat()))
    }

    /// A filter of a shape for this many IDs, whose measurement found no false positive.
    fn without_hits<H: IdHash>(
        n_ids: u64,
        fpp: f64,
        hashes: impl Iterator<Item = H>,
    ) -> (Header, Filter) {
        let shape = Shape::for_ids(H::LAYOUT, n_ids, fpp).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        hashes.for_each(|hash| filter.insert(hash));
        let filter = filter.freeze();
        let header = Header {
            filter: "rt".parse().unwrap(),
            day: "2026-11-19".parse().unwrap(),
            shape,
            id_form: Default::default(),
            origin: Origin::Built,
            ids: n_ids,
            fpp_target: fpp,
            fpp_hits: 0,
            fpp_lookups: ABSENT_LOOKUPS,
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
        let just = Header { fpp_hits: (0.0363 * ABSENT_LOOKUPS as f64) as u64, ..header.clone() };
        check_quality(&just, &filter).unwrap();
        let above = Header { fpp_hits: (0.0375 * ABSENT_LOOKUPS as f64) as u64, ..header };
        let error = check_quality(&above, &filter).unwrap_err().to_string();
        assert!(error.contains("3.75") && error.contains("3e-2"), "{error}");
    }

    #[test]
    fn the_chance_of_hits_is_poissons() {
        assert_eq!(chance_of_at_least(3, 3.0), 1.0);
        // 1 − e^(−λ), and 1 − e^(−λ) (1 + λ).
        let lambda = 0.5f64;
        let one = -(-lambda).exp_m1();
        assert!((chance_of_at_least(1, lambda) - one).abs() < 1e-12);
        let two = one - lambda * (-lambda).exp();
        assert!((chance_of_at_least(2, lambda) - two).abs() < 1e-12);
        assert!((chance_of_at_least(u64::MAX, 1.0) - 0.0).abs() < 1e-300);
    }

    #[test]
    fn small_filters_of_any_shape_are_not_refused() {
        for (layout, n_ids, fpp) in [
            (Layout::Guava, 8, 0.03),
            (Layout::Guava, 100, 0.001),
            (Layout::Guava, 500, 1e-5),
            (Layout::Guava, 2_000, 1e-6),
            (Layout::Guava, 20, 1e-9),
            (Layout::Spark1, 100, 0.001),
            (Layout::Spark2, 8, 0.03),
            (Layout::Spark2, 500, 1e-5),
            (Layout::Spark2, 20, 1e-9),
            (Layout::Blocked, 1, 0.5),
            (Layout::Blocked, 135, 1e-5),
        ] {
            for day in 0..2 {
                let (header, filter) = match layout {
                    Layout::Blocked => filled::<Xxh3>(n_ids, fpp, day),
                    Layout::Guava => filled::<Murmur3>(n_ids, fpp, day),
                    Layout::Spark1 => filled::<Spark<1>>(n_ids, fpp, day),
                    Layout::Spark2 => filled::<Spark<2>>(n_ids, fpp, day),
                };
                check_quality(&header, &filter).unwrap_or_else(|e| panic!("{day}: {e}"));
            }
        }
    }

    #[test]
    fn one_id_whose_bits_are_a_circle_is_not_refused() {
        let filters = (0..64).map(|day| filled::<Murmur3>(1, 4e-4, day));
        let circles: Vec<_> = filters.filter(|(header, _)| header.fpp_measured() > 0.015).collect();
        assert!(!circles.is_empty(), "no ID of this test is such a one");
        for (header, filter) in circles.iter().take(2) {
            let warning = check_quality(header, filter).unwrap().expect("it misses its target");
            assert!(warning.contains("any 1 IDs in this shape miss it"), "{warning}");
        }
    }

    #[test]
    fn a_filter_with_a_crowded_block_is_not_refused() {
        let (n_ids, fpp) = (184, 5e-8);
        let mut filters = (0..20_000)
            .map(|day| without_hits::<Xxh3>(n_ids, fpp, hashes(day).take(n_ids as usize)));
        let crowded = filters.find(|(_, filter)| filter.fpp_of_bits() > 3.0 * fpp);
        let (header, filter) = crowded.expect("no filter of this test is such a one");
        assert!(check_quality(&header, &filter).unwrap().is_some(), "its rate is above the target");
    }

    #[test]
    fn a_filter_whose_ids_are_in_few_of_its_blocks_is_refused() {
        let (n_ids, fpp) = (184, 5e-8);
        let shape = Shape::for_ids(Layout::Blocked, n_ids, fpp).unwrap();
        let bytes_of_block = shape.body_bytes() / shape.units();
        let block_of = |hash: &Xxh3| {
            let mut filter = FilterMut::new(shape).unwrap();
            filter.insert(*hash);
            let filter = filter.freeze();
            let first = filter.body().iter().position(|byte| *byte != 0).unwrap();
            first as u64 / bytes_of_block
        };
        let few = hashes(0).filter(|hash| block_of(hash) < shape.units() / 4);
        let (header, filter) = without_hits(n_ids, fpp, few.take(n_ids as usize));
        blob::check_fill(&header).unwrap();
        let error = check_quality(&header, &filter).unwrap_err().to_string();
        assert!(error.contains("explain up to"), "{error}");
    }

    #[test]
    fn a_rate_above_the_target_that_the_shape_explains_is_a_warning() {
        let (header, filter) = filled::<Murmur3>(1_000, 1e-9, 0);
        let warning = check_quality(&header, &filter).unwrap().expect("Guava misses this target");
        assert!(warning.contains("above the target 1e-9"), "{warning}");
        assert!(warning.contains("build with the layout `blocked`"), "{warning}");
        let (header, filter) = sound();
        assert_eq!(check_quality(&header, &filter).unwrap(), None);
    }

    #[test]
    fn a_small_filter_with_foreign_bits_is_refused() {
        // So many more IDs than it says that its fill is just tolerated, and its rate is four times
        // as high.
        let (header, _) = filled::<Murmur3>(1_000, 1e-4, 0);
        let mut both = FilterMut::new(header.shape).unwrap();
        for day in 0..2u64 {
            let head = [&b"day"[..], &day.to_le_bytes()].concat();
            let mut hash_of_end = Murmur3::hash_suffixes(&head);
            (0..575u64).for_each(|id| both.insert(hash_of_end(id.to_le_bytes())));
        }
        let both = both.freeze();
        let hits = count_false_positives::<Murmur3>(&both, 2);
        let header = Header { fpp_hits: hits, ones: both.count_ones(), ..header };
        blob::check_fill(&header).unwrap();
        let error = check_quality(&header, &both).unwrap_err().to_string();
        assert!(error.contains("explain up to"), "{error}");
    }
}
