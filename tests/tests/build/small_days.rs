//! Small days: a sound filter is published whatever its IDs, its rate and its layout.

use bloomsday_builder::quality::check_quality;
use bloomsday_builder::verify::{ABSENT_LOOKUPS, count_false_positives};
use bloomsday_common::blob::{Header, Origin};
use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Murmur3, Xxh3};
use bloomsday_tests::campaign::{self, Campaign, Random};

/// A number between `low` and `high`, each factor as likely as any other.
fn between(low: f64, high: f64, random: &mut Random) -> f64 {
    let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
    low * (high / low).powf(share)
}

/// The hashes of IDs that are in no filter, as many as a build looks up. Made once for all builds.
fn absent<H: IdHash>() -> Vec<H> {
    let mut hash_of_end = H::hash_suffixes(&[0; 1025]);
    (0..ABSENT_LOOKUPS).map(|id| hash_of_end(id.to_le_bytes())).collect()
}

fn build<H: IdHash>(n_ids: u64, fpp_target: f64, absent: &[H], random: &mut Random) {
    let shape = Shape::for_ids(H::LAYOUT, n_ids, fpp_target).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    (0..n_ids).for_each(|_| filter.insert(H::of(&random.draw().to_le_bytes())));
    let filter = filter.freeze();
    let header = Header {
        filter: "rt".parse().unwrap(),
        day: "2026-11-19".parse().unwrap(),
        shape,
        id_form: Default::default(),
        origin: Origin::Built,
        ids: n_ids,
        fpp_target,
        fpp_hits: filter.count_hashes(absent) as u64,
        fpp_lookups: ABSENT_LOOKUPS,
        ones: filter.count_ones(),
    };
    check_quality(&header, &filter).unwrap_or_else(|error| {
        panic!("{:?}, {n_ids} IDs, target {fpp_target:e}: {error}", H::LAYOUT);
    });
}

#[test]
fn no_sound_build_of_few_ids_is_refused() {
    let campaign = Campaign::new("small sound builds of random shapes");
    let (random, builds) = (Random::new(), campaign::size(100, 10_000));
    let (of_blocked, of_guava) = (absent::<Xxh3>(), absent::<Murmur3>());
    campaign::on_threads(2, builds, |n| {
        let mut random = random.branch(n);
        let n_ids = between(1.0, 10_000.0, &mut random) as u64;
        match random.below(2) {
            0 => build(n_ids, between(5e-8, 0.5, &mut random), &of_blocked, &mut random),
            _ => build(n_ids, between(1e-9, 0.5, &mut random), &of_guava, &mut random),
        }
    });
    campaign.passed(&format!("{builds} builds of 1 to 10,000 IDs"), "none refused");
}

#[test]
fn the_absent_ids_are_those_that_a_build_looks_up() {
    let shape = Shape::for_ids(Layout::Guava, 100, 0.1).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    (0..100_u64).for_each(|id| filter.insert(Murmur3::of(&id.to_le_bytes())));
    let filter = filter.freeze();
    let hits = filter.count_hashes(&absent::<Murmur3>()) as u64;
    assert_eq!(hits, count_false_positives::<Murmur3>(&filter, 1));
}
