//! What is left is exactly the set, whatever the order, the threads and the budget.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::hash::{IdHash, Murmur3, Xxh3, mix64};
use proptest::prelude::*;

use super::distinct::threads_within;
use super::slab::{HASHES_PER_CHUNK, PARTITION_BITS, Partition, Slab, place};
use super::*;
use crate::error::Error;
use crate::fill::fill;
use crate::verify::check_no_id_lost;

fn collect<H: IdHash + std::fmt::Debug>(
    hashes: &[H],
    threads: usize,
    budget: u64,
) -> (u64, Vec<H>) {
    let folder = tempfile::tempdir().unwrap();
    let partitions = Partitions::new(budget, folder.path());
    std::thread::scope(|scope| {
        for part in hashes.chunks(hashes.len().div_ceil(threads).max(1)) {
            let partitions = &partitions;
            scope.spawn(move || {
                let mut writer = PartitionWriter::new(partitions);
                part.iter().for_each(|hash| writer.push(*hash));
                writer.finish().unwrap();
            });
        }
    });
    let distinct = partitions.distinct(threads, u64::MAX).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the spill file has a name");
    let look = |threads| {
        let mut kept = distinct.for_each(threads, <[H]>::to_vec).unwrap().concat();
        kept.sort_unstable();
        kept
    };
    let kept = look(threads);
    // A second look finds the same: verification streams over the partitions again.
    assert_eq!(look(1), kept);
    (distinct.n_ids(), kept)
}

fn assert_a_set_is_left(mut hashes: Vec<Xxh3>, threads: usize) {
    let (n_ids, kept) = collect(&hashes, threads, u64::MAX);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!((n_ids, kept), (hashes.len() as u64, hashes));
}

proptest! {
    #[test]
    fn distinct_hashes_are_what_a_set_would_keep(
        seed: u64,
        n in 0usize..20_000,
        distinct in 1u64..10_000,
        threads in 1usize..4,
        budget in prop_oneof![Just(0u64), Just(30_000), Just(u64::MAX)],
    ) {
        let spread = |i: u64| mix64((i % distinct) ^ seed);
        let one: Vec<Xxh3> = (0..n as u64).map(|i| Xxh3(spread(i))).collect();
        let two: Vec<Murmur3> = one.iter().map(|h| Murmur3(h.0, !h.0)).collect();
        let expected: Vec<Xxh3> = one.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let (n_ids, kept) = collect(&one, threads, budget);
        prop_assert_eq!(n_ids, expected.len() as u64);
        prop_assert_eq!(&kept, &expected);
        let (n_ids, kept) = collect(&two, threads, budget);
        prop_assert_eq!(n_ids, expected.len() as u64);
        let kept: Vec<Xxh3> = kept.into_iter().map(|hash| Xxh3(hash.0)).collect();
        prop_assert_eq!(kept, expected);
    }
}

#[test]
fn a_folder_that_cannot_hold_the_spill_is_named() {
    let partitions: Partitions<Xxh3> = Partitions::new(0, Path::new("/nowhere/at/all"));
    let mut writer = PartitionWriter::new(&partitions);
    (0..100_000).for_each(|i| writer.push(Xxh3(i)));
    assert!(writer.finish().unwrap_err().to_string().contains("/nowhere/at/all"));
}

#[test]
fn hashes_made_to_collide_are_still_counted_exactly_and_soon() {
    // All in one partition and at one slot of its table, zero and each other's neighbours too.
    let hashes: Vec<Xxh3> = (0..60_000).map(|i| Xxh3(i % 20_000)).collect();
    let (n_ids, kept) = collect(&hashes, 2, u64::MAX);
    assert_eq!(n_ids, 20_000);
    assert!(kept.iter().map(|hash| hash.0).eq(0..20_000));
}

#[test]
fn a_large_partition_is_split_and_stays_exact() {
    let spread = |i: u64| Xxh3(mix64(i) >> PARTITION_BITS);
    let hashes = (0..300_000).map(|i| spread(i % 200_000)).collect();
    assert_a_set_is_left(hashes, 2);
}

/// Feeds `n` hashes `times` times with memory for `slabs` slabs, which must be too few. Returns the
/// number of distinct hashes, and how many were written to the file.
fn spilled(n: u64, times: u64, slabs: u64) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let budget = slabs * Slab::<Xxh3>::BYTES as u64;
    let partitions: Partitions<Xxh3> = Partitions::new(budget, folder.path());
    let file = partitions.spill.file().unwrap();
    let mut writer = PartitionWriter::new(&partitions);
    let hashes = (0..times * n).map(|i| Xxh3(mix64(i % n)));
    hashes.for_each(|hash| writer.push(hash));
    assert!(file.metadata().unwrap().len() > 0, "it never had to spill on its way");
    writer.finish().unwrap();
    let distinct = partitions.distinct(2, u64::MAX).unwrap();
    let is_spilled = |part: &Partition| !part.spilled.is_empty() && part.chunks.is_empty();
    assert!(distinct.partitions.iter().all(is_spilled), "something stayed in memory");
    let mut kept = distinct.for_each(2, <[Xxh3]>::to_vec).unwrap().concat();
    kept.sort_unstable();
    assert!(kept.windows(2).all(|two| two[0] < two[1]), "a duplicate was left");
    assert_eq!(kept.len() as u64, distinct.n_ids());
    (distinct.n_ids(), file.metadata().unwrap().len() / size_of::<Xxh3>() as u64)
}

#[test]
fn what_is_spilled_is_written_again_only_where_it_has_duplicates_or_lies_in_small_pieces() {
    let n = 1_200_000;
    assert_eq!(spilled(n, 1, 4), (n, n));
    assert_eq!(spilled(n, 1, 0), (n, 2 * n));
    assert_eq!(spilled(n / 2, 2, 0), (n / 2, n + n / 2));
    let (n_ids, written) = spilled(n / 2, 2, 4);
    assert_eq!(n_ids, n / 2);
    assert!(
        (n / 2 + 1..n + n / 2).contains(&written),
        "the last is written only as a set: {written}"
    );
}

#[test]
fn more_hashes_in_one_list_than_a_table_has_places_for_are_still_counted_exactly() {
    // They differ only in bits by which no partition is split.
    let spread = |i: u64| Xxh3(mix64(i) >> (PARTITION_BITS + 10));
    let hashes = (0..120_000).map(|i| spread(i % 80_000)).collect();
    assert_a_set_is_left(hashes, 2);
}

#[test]
fn what_several_feeders_bring_in_whole_lines_without_duplicates_is_joined() {
    // One and a half chunks of each: nothing is padded and nothing dropped, and yet there is a gap
    // to close.
    let hashes = (0..3 * HASHES_PER_CHUNK as u64 / 2 * 3).map(|i| Xxh3(1 + (i << 20))).collect();
    assert_a_set_is_left(hashes, 3);
}

#[test]
fn an_id_that_most_rows_have_takes_no_more_memory_than_another() {
    let folder = tempfile::tempdir().unwrap();
    let partitions: Partitions<Xxh3> = Partitions::new(u64::MAX, folder.path());
    let mut writer = PartitionWriter::new(&partitions);
    let others = (1..=1_000_u64).map(|i| Xxh3(mix64(i)));
    for other in others {
        // Zero too is a hash like any other.
        (0..1_000).for_each(|_| writer.push(Xxh3(0)));
        writer.push(other);
        (0..1_000).for_each(|_| writer.push(Xxh3(u64::MAX)));
    }
    writer.finish().unwrap();
    let bytes = partitions.bytes_in_memory.load(Ordering::Relaxed);
    assert_eq!(bytes, Slab::<Xxh3>::BYTES as u64, "two million rows of two IDs take memory");
    let distinct = partitions.distinct(2, u64::MAX).unwrap();
    assert_eq!(distinct.n_ids(), 1_002);
    let kept = distinct.for_each(1, <[Xxh3]>::to_vec).unwrap().concat();
    assert!(kept.contains(&Xxh3(0)) && kept.contains(&Xxh3(u64::MAX)));
}

fn fed_with(n: u64, budget: u64, folder: &std::path::Path) -> Partitions<Xxh3> {
    let partitions = Partitions::new(budget, folder);
    let mut writer = PartitionWriter::new(&partitions);
    let spread = |i: u64| Xxh3(mix64(i));
    (0..n).for_each(|i| writer.push(spread(i % (n / 2))));
    writer.finish().unwrap();
    partitions
}

#[test]
fn as_many_threads_remove_duplicates_as_memory_has_space_for() {
    let folder = tempfile::tempdir().unwrap();
    // 4,096 hashes of 8 bytes in each partition on average: the largest has some more.
    for budget in [u64::MAX, 0] {
        let mut partitions = fed_with(1 << 24, budget, folder.path());
        let written = partitions.written.get_mut().unwrap();
        let threads = |kib: u64| threads_within(kib << 10, written);
        assert_eq!((threads(0), threads(6 * 31), threads(6 * 4 * 36)), (1, 1, 4), "{budget}");
    }
}

/// Flips a bit of the first hash of the first partition that has one.
fn flip<H: IdHash>(parts: &[Partition], slabs: &mut [Slab<H>]) {
    let (slab, start) = place(parts.iter().find(|part| part.len > 0).unwrap().chunks[0]);
    bytemuck::cast_slice_mut::<H, u64>(&mut slabs[slab].hashes_mut()[start..])[0] ^= 1;
}

#[test]
fn a_bit_that_flips_before_deduplication_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut partitions = fed_with(100_000, u64::MAX, folder.path());
    let written = &mut partitions.written.get_mut().unwrap()[0];
    flip(&written.partitions, &mut written.slabs);
    assert!(matches!(partitions.distinct(2, u64::MAX), Err(Error::Changed { .. })));
}

#[test]
fn a_bit_that_flips_in_the_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let partitions = fed_with(100_000, 0, folder.path());
    let file = partitions.spill.file().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 0).unwrap();
    assert!(matches!(partitions.distinct(2, u64::MAX), Err(Error::Changed { .. })));
}

#[test]
fn a_bit_that_flips_after_deduplication_is_noticed_though_the_filter_has_the_wrong_hash() {
    let folder = tempfile::tempdir().unwrap();
    let mut distinct = fed_with(100_000, u64::MAX, folder.path()).distinct(2, u64::MAX).unwrap();
    let shape = Shape::for_ids(Layout::Blocked, distinct.n_ids(), 0.03).unwrap();
    let filter = fill(&distinct, shape, 2).unwrap();
    check_no_id_lost(&filter, &distinct, &[], 2).unwrap();
    flip(&distinct.partitions, &mut distinct.slabs);
    let filter = fill(&distinct, shape, 2).unwrap();
    let checked = check_no_id_lost(&filter, &distinct, &[], 2);
    assert!(matches!(checked, Err(Error::Changed { .. })), "{checked:?}");
}
