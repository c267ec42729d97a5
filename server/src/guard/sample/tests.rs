//! Which lookups are sampled, through every way to make a lookup.

use std::sync::Arc;

use super::*;
use crate::clock::Clock;
use crate::config::FilterConfig;
use crate::handle::FilterHandle;
use crate::handle::ServedFilter;

fn id(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

fn served() -> Arc<ServedFilter> {
    let filter = FilterConfig::new("rt".parse().unwrap());
    Arc::new(ServedFilter::new(&filter, false, Clock::system()))
}

/// Looks up the IDs from `from` on in a batch of `size`, one way or another.
type LookUp<'a> = Box<dyn FnMut(u64, u64) + 'a>;

/// Every way: a reader and a handle, alone and in batches, and as HTTP does.
fn ways(handle: &FilterHandle) -> [(&'static str, LookUp<'_>); 7] {
    fn ids(from: u64, size: u64) -> Vec<[u8; 8]> {
        (from..from + size).map(id).collect()
    }
    let (mut alone, mut batches, mut mixed) = (handle.reader(), handle.reader(), handle.reader());
    let mut answers = vec![false; 32_768];
    let mut more = answers.clone();
    [
        (
            "a reader, one at a time",
            Box::new(move |from, size| {
                ids(from, size).iter().for_each(|id| _ = alone.contains(id))
            }),
        ),
        (
            "a reader's batches",
            Box::new(move |from, size| {
                batches.contains_batch(&ids(from, size), &mut answers[..size as usize]);
            }),
        ),
        (
            "a reader, both in turn",
            Box::new(move |from, size| {
                let (one, others) = (ids(from, 1), ids(from + 1, size - 1));
                mixed.contains(&one[0]);
                mixed.contains_batch(&others, &mut vec![false; others.len()]);
            }),
        ),
        (
            "a reader for each batch",
            Box::new(|from, size| {
                let mut reader = handle.reader();
                ids(from, size).iter().for_each(|id| _ = reader.contains(id));
            }),
        ),
        (
            "a handle, one at a time",
            Box::new(|from, size| ids(from, size).iter().for_each(|id| _ = handle.contains(id))),
        ),
        (
            "a handle's batches",
            Box::new(move |from, size| {
                handle.contains_batch(&ids(from, size), &mut more[..size as usize]);
            }),
        ),
        (
            "the pieces of a body",
            Box::new(|from, size| {
                let mut kept = handle.keep();
                for piece in ids(from, size).chunks(1_024) {
                    handle.contains_batch_in(&mut kept, piece, &mut vec![false; piece.len()]);
                }
            }),
        ),
    ]
}

/// For lookups in batches of one size: every place in a batch is sampled equally often, and every
/// size, too.
#[test]
fn a_lookup_is_sampled_as_often_at_every_place_of_batches_of_every_size() {
    // As many as a sample keeps without having to choose.
    let lookups = MAX_SAMPLED as u64 * intervals::SAMPLE_ONE_IN * 9 / 10;
    for size in [1u64, 2, 32, 100, 1_023, 1_024, 32_768] {
        for n in 0..ways(&FilterHandle::new(served())).len() {
            let served = served();
            let handle = FilterHandle::new(served.clone());
            let (way, mut look_up) = ways(&handle).into_iter().nth(n).unwrap();
            if way == "a reader for each batch" && size == 1 {
                // Half a million readers: the size 2 tests the same.
                continue;
            }
            (0..lookups / size).for_each(|batch| look_up(batch * size, size));
            drop(look_up);
            let n_lookups = lookups / size * size;
            let sampled = served.recent_lookups().unwrap();
            let of =
                |sampled_id: &SampledId| u64::from_le_bytes(sampled_id.id().try_into().unwrap());
            let sampled: Vec<u64> = sampled.iter().map(of).collect();
            let off = |what: &str, count: usize, share: f64| {
                let expected = n_lookups as f64 / intervals::SAMPLE_ONE_IN as f64 * share;
                let off = (count as f64 - expected) / expected.sqrt();
                // Some two thousand checks in all: by chance one is beyond in a thousand runs.
                assert!(off.abs() < 5.5, "{way}, {size} at once, {what}: {count}, not {expected}");
            };
            off("all", sampled.len(), 1.0);
            for every in [2, 8, 32, 128] {
                for class in 0..every.min(size) {
                    let here = sampled.iter().filter(|n| *n % size % every == class).count();
                    let places = (size - class).div_ceil(every) as f64 / size as f64;
                    // Classes with too few samples are counted in the larger ones.
                    if places > 1.0 / 40.0 {
                        off(&format!("place {class} of every {every}"), here, places);
                    }
                }
            }
        }
    }
}

/// A full sample chooses among what it is offered: a source that offers one at a time has no more
/// chances than one that offers handfuls.
#[test]
fn a_full_sample_takes_as_much_of_each_source_as_it_offers() {
    let sample = Sample::new();
    let sampled = |source: u64, n: u64| SampledId::of(&id(source << 32 | n)).unwrap();
    sample.offer((0..MAX_SAMPLED as u64).map(|n| sampled(0, n)));
    for round in 0..2_000u64 {
        if round % 4 == 0 {
            sample.reservoir.lock().unwrap().began -= WINDOW;
        }
        // One source offers 32 at once, the other as many alone.
        (0..32).for_each(|n| sample.offer(std::iter::once(sampled(1, round * 32 + n))));
        sample.offer((0..32).map(|n| sampled(2, round * 32 + n)));
    }
    let reservoir = sample.distinct();
    let of = |source: u64| reservoir.iter().filter(|q| q.id()[4] == source as u8).count();
    let (alone, handfuls) = (of(1) as f64, of(2) as f64);
    let off = (alone - handfuls) / (alone + handfuls).sqrt();
    assert!(off.abs() < 5.0, "{alone} of those alone, {handfuls} of those in handfuls");
    assert!(of(0) < MAX_SAMPLED / 10, "it does not fade");
}

#[test]
fn the_sample_is_bounded_keeps_ids_as_they_are_and_leaves_out_long_ones() {
    let sample = Sample::new();
    let ids: Vec<[u8; 8]> = (0..10_000).map(id).collect();
    ids.chunks(100).for_each(|ids| sample.offer(ids.iter().filter_map(|i| SampledId::of(i))));
    let reservoir = sample.distinct();
    assert!(
        reservoir.len() <= MAX_SAMPLED && reservoir.len() > MAX_SAMPLED / 2,
        "{}",
        reservoir.len()
    );
    assert!(reservoir.iter().all(|sampled| sampled.id().len() == 8));
    assert!(SampledId::of(&[]).is_none());
    assert!(SampledId::of(&[7; MAX_ID_BYTES + 1]).is_none());
    assert_eq!(SampledId::of(&[7; MAX_ID_BYTES]).map(|q| q.id().to_vec()), Some(vec![7; 63]));
}

#[test]
fn a_burst_cannot_take_a_full_sample_over() {
    let sample = Sample::new();
    let many = |from: u64| (from..from + 5_000).map(|n| SampledId::of(&id(n)).unwrap());
    sample.offer(many(0));
    for burst in 1..100 {
        sample.offer(many(burst * 1_000_000));
    }
    let reservoir = sample.distinct();
    let old = reservoir.iter().filter(|q| q.id() < &id(5_000)[..] || q.id()[3..] == [0; 5]).count();
    assert!(old > MAX_SAMPLED * 9 / 10, "only {old} of {} are left", reservoir.len());
}

#[test]
fn a_full_sample_still_takes_in_recent_lookups() {
    for n in 0..ways(&FilterHandle::new(served())).len() {
        let served = served();
        let sample = served.sample().unwrap();
        (0..MAX_SAMPLED as u64).for_each(|n| sample.offer_one(&id(n)));
        sample.reservoir.lock().unwrap().began -= WINDOW * 100;
        let handle = FilterHandle::new(served.clone());
        let (way, mut look_up) = ways(&handle).into_iter().nth(n).unwrap();
        (0..2_000).for_each(|batch| look_up((1 << 32) + batch * 100, 100));
        let new = served.recent_lookups().unwrap().iter().filter(|q| q.id()[4] == 1).count();
        assert!(new > 500, "{way}: {new}");
    }
}

#[test]
fn the_guard_gets_what_a_slot_has_buffered() {
    let served = served();
    let handle = FilterHandle::new(served.clone());
    let mut n_lookups = 0;
    while served.sample().unwrap().distinct().is_empty() {
        handle.contains(&id(n_lookups));
        n_lookups += 1;
    }
    let handed_over = served.sample().unwrap().distinct().len();
    assert_eq!(handed_over, MAX_BUFFERED);
    while served.recent_lookups().unwrap().len() == handed_over {
        handle.contains(&id(n_lookups));
        n_lookups += 1;
    }
    assert_eq!(served.recent_lookups().unwrap().len(), handed_over + 1, "and counted once");
}

#[test]
fn nobody_waits_for_the_sample() {
    let sample = Sample::new();
    let taken = sample.reservoir.lock().unwrap();
    // On this very thread: a lock that waits would hang here for ever.
    sample.offer([SampledId::of(b"x").unwrap()].into_iter());
    sample.offer_some(&[b"x"; 10_000], 0, &SharedIntervals::new(true));
    drop(taken);
    assert_eq!(sample.distinct().len(), 0);
}
