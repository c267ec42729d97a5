//! Insertion: what a set of hashes costs on its way into a filter, step by step, compared with
//! peers that insert one ID after the other.

use std::hint::black_box;
use std::time::Instant;

use bloomsday_builder::fill;
use bloomsday_builder::partition::Partitions;
use bloomsday_common::filter::{Filter, FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3, mix64};
use fastbloom::BloomFilter;

use crate::Options;
use crate::fixtures::{self, FPP, threads};
use crate::ids;
use crate::measure::{Bound, Outcome, Samples, timed};
use crate::peers::Guava;

/// IDs a peer inserts between two readings of the clock.
const CHUNK: usize = 1 << 20;
/// IDs that Guava inserts a round: enough to leave every cache.
const GUAVA_PUTS: u64 = 20_000_000;
/// More rounds would say little more, and peers take their time.
const MAX_ROUNDS: usize = 5;

const ALL_STEPS: &str = "partition + deduplicate + fill";
const STEPS: [&str; 4] = ["partition", "deduplicate", "fill", ALL_STEPS];
const PEERS: [&str; 4] = [
    "bare filter, one ID after the other, 1 thread",
    "fastbloom, 1 thread",
    "fastbloom, foldhash, 1 thread",
    "sbbf-rs-safe, our hash, 1 thread",
];

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let n = options.ids;
    let mut outcome = Outcome::of("insertion", "ns an ID");
    let mut rows: Vec<(String, Samples)> = Vec::new();
    let mut take = |name: &str, nanos: f64| match rows.iter_mut().find(|row| row.0 == name) {
        Some(row) => row.1.0.push(nanos),
        None => rows.push((name.to_owned(), Samples(vec![nanos]))),
    };
    let shape = Shape::for_ids(Layout::Blocked, n, FPP).expect("a size there is");
    let mut guava = Guava::start(n, FPP);
    for round in 0..options.rounds.min(MAX_ROUNDS) as u64 {
        let (partitions, partition) = timed(memory(n), || partition(n));
        let (distinct, deduplicate) = timed(0, || {
            partitions.distinct(threads(), u64::MAX).expect("memory keeps hashes as they were")
        });
        assert_eq!(distinct.n_ids(), n, "hashes of different numbers differ");
        let (filter, fill) = timed(shape.body_bytes(), || {
            fill::fill(&distinct, shape, threads()).expect("memory for a filter")
        });
        for clock in [0, 1] {
            let steps = [partition, deduplicate, fill].map(|step| step[clock] * 1e9 / n as f64);
            let all = [steps[0], steps[1], steps[2], steps.iter().sum()];
            for (name, nanos) in STEPS.iter().zip(all) {
                take(&format!("{name}{}", ["", ", CPU time"][clock]), nanos);
            }
        }
        drop(distinct);
        check(&filter, n);
        for (name, took) in PEERS.iter().zip(one_by_one(n, shape)) {
            take(name, took);
        }
        // What it is compared with runs on all cores, as a build does; Guava has one.
        if let Ok(guava) = &mut guava {
            let puts = GUAVA_PUTS.min(n);
            take("guava", guava.put(round * puts, puts));
        }
    }
    outcome.rows = rows;
    if let Err(why) = guava {
        outcome.note(why);
    }
    outcome.compare("guava", ALL_STEPS, Bound::AtLeast(40.0));
    outcome.compare("fastbloom, foldhash, 1 thread", ALL_STEPS, Bound::None);
    vec![outcome]
}

/// What [`partition`] takes: its hashes, and a slab that each thread has begun.
pub(crate) fn memory(n: u64) -> u64 {
    const SLAB: u64 = 8 << 20;
    n * size_of::<Xxh3>() as u64 + threads() as u64 * SLAB
}

/// Partitions `n` hashes. Each is made of its number by two multiplications while the clock runs:
/// less than the hash of an ID costs, and no 8 bytes an ID to be read from memory.
pub(crate) fn partition(n: u64) -> Partitions<Xxh3> {
    fixtures::partition(n, hash)
}

/// A bijection, so all hashes are different.
fn hash(number: u64) -> Xxh3 {
    Xxh3(mix64(number))
}

/// Peers, and our own filter the naive way: nanoseconds an ID of each.
fn one_by_one(n: u64, shape: Shape) -> [f64; 4] {
    let mut bare = FilterMut::new(shape).expect("memory for a filter");
    let mut sip = BloomFilter::with_false_pos(FPP).seed(&1).expected_items(n as usize);
    let mut fold = BloomFilter::with_false_pos(FPP)
        .hasher(foldhash::fast::FixedState::with_seed(1))
        .expected_items(n as usize);
    let mut sbbf = sbbf_rs_safe::Filter::new(8, n as usize);
    let mut took = [0.0; 4];
    let lookups = n.min(8 * CHUNK as u64);
    // Every line was touched before: what is measured is insertion, not the first touch of memory.
    for start in (0..2 * lookups).step_by(CHUNK) {
        let ids = ids::range(start, CHUNK);
        let mut time = |index: usize, insert: &mut dyn FnMut(&[u8])| {
            let clock = Instant::now();
            ids.iter().for_each(|id| insert(id));
            if start >= lookups {
                took[index] += clock.elapsed().as_nanos() as f64 / lookups as f64;
            }
        };
        time(0, &mut |id| bare.insert(Xxh3::of(id)));
        time(1, &mut |id| _ = sip.insert(id));
        time(2, &mut |id| _ = fold.insert(id));
        time(3, &mut |id| _ = sbbf.insert_hash(Xxh3::of(id).0));
    }
    black_box((bare.freeze(), sip, fold, sbbf));
    took
}

pub(crate) fn check(filter: &Filter, n: u64) {
    let step = (n / 1_000_000).max(1) as usize;
    let lost = (0..n).step_by(step).filter(|i| !filter.contains_hash(hash(*i))).count();
    assert_eq!(lost, 0, "the filter lost IDs: its speed means nothing");
}
