//! Lookups are right, kernels agree, and the fpp holds at sizes that no test machine has memory
//! for.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::hash::{Murmur3, Spark, Xxh3, splitmix64};

/// A reproducible stream of hashes.
pub(crate) fn hashes(seed: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |i| splitmix64(seed, i))
}

fn blocked_with(n: usize, fpp: f64, seed: u64) -> Filter {
    let shape = Shape::for_ids(Layout::Blocked, n as u64, fpp).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    hashes(seed).take(n).for_each(|hash| filter.insert(Xxh3(hash)));
    filter.freeze()
}

fn ids(range: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    range.map(|i| format!("{:032x}", u128::from(i) << 77 | u128::from(i)).into_bytes()).collect()
}

/// Inserts an ID by the hash of its layout.
pub(crate) fn insert(filter: &mut FilterMut, layout: Layout, id: &[u8]) {
    match layout {
        Layout::Blocked => filter.insert(Xxh3::of(id)),
        Layout::Guava => filter.insert(Murmur3::of(id)),
        Layout::Spark1 => filter.insert(Spark::<1>::of(id)),
        Layout::Spark2 => filter.insert(Spark::<2>::of(id)),
    }
}

#[test]
fn every_inserted_id_is_answered_yes_by_every_layout() {
    for layout in Layout::ALL {
        let shape = Shape::for_ids(layout, 10_000, 0.03).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        for id in ids(0..10_000) {
            insert(&mut filter, layout, &id);
        }
        let filter = filter.freeze();
        assert!(ids(0..10_000).iter().all(|id| filter.contains(id)), "{layout}");
        let wrong = ids(10_000..110_000).iter().filter(|id| filter.contains(id)).count();
        // 0.03 ± 4 standard deviations of 100,000 lookups, and less for the margin of `blocked`.
        assert!((2_600..3_230).contains(&wrong), "{layout}: {wrong} of 100,000");
    }
}

#[test]
fn an_illegal_id_is_answered_no_even_by_a_full_filter() {
    let ids: [&[u8]; 6] = [b"", b"x", &[b'x'; 17], &[b'x'; 65], &[b'x'; 1024], &[b'x'; 1025]];
    let expected = [false, true, true, true, true, false];
    for layout in Layout::ALL {
        let mut full = FilterMut::new(Shape::new(layout, 1, 1).unwrap()).unwrap();
        for hash in hashes(1).take(100_000) {
            insert(&mut full, layout, &hash.to_le_bytes());
        }
        let mut full = full.freeze();
        for kernel in Kernel::all() {
            full = full.with_kernel(kernel);
            assert_eq!(ids.map(|id| full.contains(id)), expected, "{layout}, {kernel:?}");
            let mut answers = [true; 6];
            full.contains_batch(&ids, &mut answers);
            assert_eq!(answers, expected, "{layout}, {kernel:?}");
        }
    }
}

#[test]
fn what_is_held_answers_as_the_filter_does_and_keeps_it() {
    let filter = Arc::new(blocked_with(1_000, 0.03, 7));
    let kept = KeptFilter::of(filter.clone(), |filter| filter);
    let ids: Vec<[u8; 8]> = (0..10_000u64).map(u64::to_le_bytes).collect();
    let results: Vec<bool> = ids.iter().map(|id| filter.contains(id)).collect();
    assert!(results.contains(&true) && results.contains(&false));
    let weak = Arc::downgrade(&filter);
    drop(filter);
    assert_eq!(ids.iter().map(|id| kept.contains(id)).collect::<Vec<_>>(), results);
    assert!(kept.owner().is_some());
    drop(kept);
    assert!(weak.upgrade().is_none());
}

#[test]
fn without_a_filter_every_result_is_the_default() {
    for default in [true, false] {
        let none = KeptFilter::<Filter>::none(default);
        assert_eq!(none.contains(b"x"), default);
        assert!(none.owner().is_none());
    }
}

#[test]
fn the_measured_rate_is_what_the_shape_expects() {
    for (fpp, n, n_lookups) in [
        (0.3, 200_000, 1_000_000),
        (0.03, 200_000, 1_000_000),
        (0.001, 200_000, 4_000_000),
        (1e-5, 100_000, 20_000_000),
    ] {
        let filter = blocked_with(n, fpp, 7);
        let hits =
            hashes(8).take(n_lookups).filter(|hash| filter.contains_hash(Xxh3(*hash))).count();
        let expected = filter.shape().expected_fpp(n as u64) * n_lookups as f64;
        let tolerance = 5.0 * expected.sqrt() + 0.01 * expected;
        assert!(
            (hits as f64 - expected).abs() < tolerance,
            "{fpp}: {hits} hits, expected {expected}"
        );
        let of_bits = filter.fpp_of_bits() * n_lookups as f64;
        assert!(
            (of_bits - expected).abs() < 0.1 * expected,
            "{fpp}: {of_bits} by its bits, expected {expected}, {hits} hits"
        );
    }
}

#[test]
fn fill_lies_within_the_stated_tolerance() {
    for n in [1, 10, 1_000, 100_000] {
        let filter = blocked_with(n, 0.03, n as u64);
        let (expected, tolerance) = filter.shape().expected_fill(n as u64);
        let fill = filter.count_ones() as f64 / filter.shape().bits() as f64;
        assert!((fill - expected).abs() <= tolerance, "{n}: {fill}, {expected} ± {tolerance}");
    }
}

/// At 300 million IDs and past 2^31, 2^32 and 2^36 bits: builds only a few thousand of the blocks,
/// with just the IDs that fall into them, and measures the rate there.
#[test]
fn rates_hold_past_two_to_the_31_and_32_bits() {
    for n in [300_000_000u64, 600_000_000, 10_000_000_000] {
        let shape = Shape::for_ids(Layout::Blocked, n, 0.03).unwrap();
        let n_blocks = shape.units();
        for first in [0, n_blocks / 2, n_blocks - 2_000] {
            // Hashes of a run of blocks are an interval: fast-range is monotone.
            let start = |block: u64| (u128::from(block) << 64).div_ceil(u128::from(n_blocks));
            let (low, width) = (start(first), start(first + 2_000) - start(first));
            let inside = |seed: u64| {
                hashes(seed).map(move |h| (low + ((u128::from(h) * width) >> 64)) as u64)
            };
            // Fast-range of the interval keeps the low bits uniform only because width >> 2^32.
            assert!(width > 1 << 40);
            let ids_here = (n as f64 * 2_000.0 / n_blocks as f64) as usize;
            let mut blocks = vec![[0u8; blocked::BLOCK_BYTES]; 2_000];
            for hash in inside(1).take(ids_here) {
                let block = blocked::block_of(hash, n_blocks) - first as usize;
                blocked::insert(&mut blocks[block], shape.probes(), hash);
            }
            let n_lookups = 400_000;
            let hits = inside(2).take(n_lookups).filter(|hash| {
                let block = &blocks[blocked::block_of(*hash, n_blocks) - first as usize];
                (0..shape.probes() as usize).all(|i| {
                    let bit = blocked::bit_of(*hash, i);
                    block[(bit >> 3) as usize] >> (bit & 7) & 1 == 1
                })
            });
            let rate = hits.count() as f64 / n_lookups as f64;
            assert!((0.0275..0.0305).contains(&rate), "{n} IDs, block {first}: {rate}");
        }
    }
}

#[test]
fn guava_addresses_bits_past_two_to_the_32() {
    let shape = Shape::for_ids(Layout::Guava, 1_000_000_000, 0.03).unwrap();
    let beyond = |limit: u64| {
        hashes(3)
            .zip(hashes(4))
            .take(1_000)
            .flat_map(|(a, b)| classic::bits_of(Murmur3(a, b), shape))
            .filter(|bit| *bit >= limit)
            .count() as f64
    };
    let share = beyond(1 << 32) / 5_000.0;
    let expected = 1.0 - (1u64 << 32) as f64 / shape.bits() as f64;
    assert!((share - expected).abs() < 0.03, "{share} of the probes lie past 2^32, not {expected}");
    assert_eq!(beyond(shape.bits()), 0.0);
}

#[test]
fn slices_filled_side_by_side_give_the_same_bits() {
    fn fill<H: IdHash>(parts: usize, at_once: &mut FilterMut, cut: &mut FilterMut) {
        let all: Vec<H> = hashes(5).take(5_000).map(|hash| H::of(&hash.to_le_bytes())).collect();
        all.iter().for_each(|hash| at_once.insert(*hash));
        cut.shards_mut(parts).iter_mut().for_each(|slice| slice.insert_in_range(&all));
    }
    for layout in Layout::ALL {
        for parts in [1, 2, 3, 7, 1_000] {
            let shape = Shape::for_ids(layout, 5_000, 0.03).unwrap();
            let (mut at_once, mut cut) =
                (FilterMut::new(shape).unwrap(), FilterMut::new(shape).unwrap());
            match layout {
                Layout::Blocked => fill::<Xxh3>(parts, &mut at_once, &mut cut),
                Layout::Guava => fill::<Murmur3>(parts, &mut at_once, &mut cut),
                Layout::Spark1 => fill::<Spark<1>>(parts, &mut at_once, &mut cut),
                Layout::Spark2 => fill::<Spark<2>>(parts, &mut at_once, &mut cut),
            }
            assert!(at_once.freeze().body() == cut.freeze().body(), "{layout} in {parts} slices");
        }
    }
}

proptest! {
    #[test]
    fn kernels_give_the_same_answers(
        blocks in 1u64..40,
        probes in 1u32..=16,
        fill in 0usize..3_000,
        seed: u64,
    ) {
        let shape = Shape::new(Layout::Blocked, blocks, probes).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        hashes(seed).take(fill).for_each(|hash| filter.insert(Xxh3(hash)));
        let mut filter = filter.freeze();
        let lookups: Vec<u64> = hashes(!seed).chain(hashes(seed)).take(500)
            .chain(hashes(seed).take(200)).chain([0, 1, u64::MAX, u64::MAX << 32]).collect();
        let mut answers = Vec::new();
        for kernel in Kernel::all() {
            filter = filter.with_kernel(kernel);
            let results: Vec<bool> = lookups.iter().map(|h| filter.contains_hash(Xxh3(*h))).collect();
            let hashes: Vec<Xxh3> = lookups.iter().map(|hash| Xxh3(*hash)).collect();
            for some in [&hashes[..], &hashes[..seed as usize % hashes.len()]] {
                let hits = results[..some.len()].iter().filter(|contains| **contains).count();
                prop_assert_eq!(filter.count_hashes(some), hits);
                let mut each = vec![false; some.len()];
                filter.contains_hashes(some, &mut each);
                prop_assert_eq!(&each[..], &results[..some.len()]);
            }
            answers.push(results);
        }
        prop_assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
        let ones: u32 = filter.body().iter().map(|byte| byte.count_ones()).sum();
        for kernel in Kernel::all() {
            filter = filter.with_kernel(kernel);
            prop_assert_eq!(filter.count_ones(), u64::from(ones));
        }
    }

    #[test]
    fn a_batch_gives_the_results_of_single_lookups(
        n in 0usize..200,
        layout in proptest::sample::select(&Layout::ALL[..]),
        probes in 1u32..=16,
        // So few that many bits are set, and each probe is needed to say "no".
        units in 1u64..=20,
        lengths in proptest::collection::vec(prop_oneof![0usize..70, Just(32)], 200),
    ) {
        let shape = Shape::new(layout, units, probes).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        let all: Vec<Vec<u8>> = lengths.iter().enumerate()
            .map(|(i, length)| (0..*length).map(|j| (i * 31 + j) as u8).collect()).collect();
        for id in all.iter().step_by(3) {
            insert(&mut filter, layout, id);
        }
        let mut filter = filter.freeze();
        for kernel in Kernel::all() {
            filter = filter.with_kernel(kernel);
            let mut answers = vec![false; n];
            filter.contains_batch(&all[..n], &mut answers);
            let single: Vec<bool> = all[..n].iter().map(|id| filter.contains(id)).collect();
            prop_assert_eq!(answers, single);
        }
        if layout == Layout::Guava {
            let hashes: Vec<Murmur3> = all[..n].iter().map(|id| Murmur3::of(id)).collect();
            let single: Vec<bool> = hashes.iter().map(|hash| filter.contains_hash(*hash)).collect();
            let mut each = vec![false; n];
            filter.contains_hashes(&hashes, &mut each);
            prop_assert_eq!(&each, &single);
            prop_assert_eq!(filter.count_hashes(&hashes), each.iter().filter(|hit| **hit).count());
        }
    }
}

/// Something over a filter that decides by bits of the hash, in part late.
struct ByBits;

impl Overlay for ByBits {
    const CHANGES_ANSWERS: bool = true;

    type Word<'a> = u64;

    fn prefetch(&self, hash: u64) -> u64 {
        hash >> 21
    }

    fn may_change(word: u64, hash: u64) -> bool {
        word & 1 == 0 || hash >> 22 & 1 == 0
    }

    fn prefetch_answer(&self, _: u64) {}

    fn answer(&self, hash: u64, hit: bool) -> bool {
        match hash >> 20 & 3 {
            0 => true,
            1 => false,
            _ => hit,
        }
    }
}

#[test]
fn a_batch_under_an_overlay_has_its_answers() {
    let mut all = ids(0..1_000);
    // Invalid IDs are misses, whatever the overlay says.
    (0..50).for_each(|i| all[i * 20 + 7].clear());
    let mut filter = FilterMut::new(Shape::new(Layout::Blocked, 200, 8).unwrap()).unwrap();
    all.iter().step_by(3).for_each(|id| filter.insert(Xxh3::of(id)));
    let mut filter = filter.freeze();
    for kernel in Kernel::all() {
        filter = filter.with_kernel(kernel);
        for n in [0, 1, 31, 32, 33, 100, 1_000] {
            let mut answers = vec![false; n];
            let hits = filter.contains_batch_under(&all[..n], &mut answers, &ByBits).unwrap();
            let single = |id: &Vec<u8>| {
                !id.is_empty() && ByBits.answer(Xxh3::of(id).high_bits(), filter.contains(id))
            };
            let expected: Vec<bool> = all[..n].iter().map(single).collect();
            assert_eq!(answers, expected, "{n} IDs, {kernel:?}");
            assert_eq!(hits, expected.iter().filter(|hit| **hit).count(), "{n} IDs, {kernel:?}");
        }
    }
}

/// Files that spark-sketch 4.3.0 wrote: `BloomFilter.create(version, n, bits, 0)` with 72 and 73
/// bits.
#[test]
fn spark_filters_are_the_bytes_that_spark_writes() {
    let expected = [
        (Layout::Spark2, "00000002000000050000000000000002201008490004328d030104b000420024"),
        (Layout::Spark1, "00000001000000050000000214900008430082934400002950548006"),
    ];
    for (layout, expected) in expected {
        let mut filter = FilterMut::new(Shape::new(layout, 2, 5).unwrap()).unwrap();
        for id in ["user-0", "user-1", "u", "", "0123456789abcdef", "0123456789abcdefX", "żółć-😀"]
        {
            insert(&mut filter, layout, id.as_bytes());
        }
        let hex: String = filter.freeze().body().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{layout}");
    }
}
