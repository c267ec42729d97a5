//! What counting and sampling cost for each lookup: a [`Reader`](crate::Reader) and the same code
//! without them, in one run, interleaved.
//!
//! `cargo test --release -p bloomsday-server --lib cost -- --ignored --nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bloomsday_common::filter::KeptFilter;
use bloomsday_common::hash::mix64;

use super::process::on_a_paused_clock;
use super::steady_state::{id, serve};
use crate::generation::Generation;
use crate::guard::Guard;

/// Lookups in a round, and rounds.
const LOOKUPS: u64 = 1 << 20;
const ROUNDS: usize = 41;

/// A reader that does not sample, and counts lookups or not, with the same pointers to follow.
struct Bare<const COUNTS: bool> {
    kept: KeptFilter<Generation>,
    state: Arc<State>,
}

#[derive(Default)]
#[repr(align(128))]
struct State {
    lookups: AtomicU64,
    hits: AtomicU64,
    is_swapped: AtomicBool,
}

impl<const COUNTS: bool> Bare<COUNTS> {
    fn new(generation: Arc<Generation>) -> Self {
        let kept = KeptFilter::of(generation, |generation| &generation.filter);
        Bare { kept, state: Arc::default() }
    }

    #[inline]
    fn contains(&mut self, id: &[u8]) -> bool {
        let Bare { kept, state } = self;
        let State { lookups, hits, is_swapped } = &**state;
        if is_swapped.load(Ordering::Relaxed) {
            Self::let_go(kept);
        }
        let is_hit = kept.contains(id);
        if COUNTS {
            hits.store(hits.load(Ordering::Relaxed) + u64::from(is_hit), Ordering::Relaxed);
            lookups.store(lookups.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        is_hit
    }

    #[cold]
    fn let_go(kept: &mut KeptFilter<Generation>) {
        *kept = KeptFilter::none(false);
    }
}

/// The time of one lookup.
#[inline(never)]
fn time(ids: &[[u8; 32]], mut contains: impl FnMut(&[u8]) -> bool) -> f64 {
    let clock = Instant::now();
    let hits = ids.iter().filter(|id| contains(&id[..])).count();
    let elapsed = clock.elapsed();
    assert!(hits > 0);
    elapsed.as_nanos() as f64 / ids.len() as f64
}

#[test]
#[ignore = "a measurement: by hand, with --release"]
fn counting_and_sampling_compared_with_neither() {
    for ids in [1_000u64, 20_000_000] {
        on_a_paused_clock(measure(ids));
    }
}

async fn measure(n: u64) {
    let (process, silent) = (serve(n, Guard::Warn).await, serve(n, Guard::Off).await);
    // Half of them are in the filter, in an order that caches cannot predict.
    let ids: Vec<[u8; 32]> = (0..LOOKUPS).map(|i| id(mix64(i) % (2 * n))).collect();
    let handle = process.handle();
    let mut reader = handle.reader();
    let generation = process.generation().expect("it is loaded");
    let mut counting = Bare::<true>::new(generation.clone());
    let mut bare = Bare::<false>::new(generation);
    compare(
        &format!("{n} IDs, one at a time, sampling"),
        || time(&ids, |id| reader.contains(id)),
        || time(&ids, |id| counting.contains(id)),
    );
    compare(
        &format!("{n} IDs, one at a time, counting"),
        || time(&ids, |id| counting.contains(id)),
        || time(&ids, |id| bare.contains(id)),
    );
    let generation = silent.generation().expect("it is loaded");
    let mut counting = silent.handle().reader();
    compare(
        &format!("{n} IDs, in batches of 1024, counting"),
        || time_batches(&ids, 1024, |ids, answers| counting.contains_batch(ids, answers)),
        || {
            time_batches(&ids, 1024, |ids, answers| {
                generation.filter.contains_batch(ids, answers);
            })
        },
    );
    if n > 1_000 {
        // Two large filters would differ by their places in the caches, and by more than the
        // measured cost.
        return;
    }
    let (sampled, silent) = (process.handle(), silent.handle());
    for size in [16, 1024] {
        compare(
            &format!("{n} IDs, in batches of {size}, sampling"),
            || time_batches(&ids, size, |ids, answers| sampled.contains_batch(ids, answers)),
            || time_batches(&ids, size, |ids, answers| silent.contains_batch(ids, answers)),
        );
    }
}

/// The time of one lookup in batches.
#[inline(never)]
fn time_batches(
    ids: &[[u8; 32]],
    size: usize,
    mut contains: impl FnMut(&[[u8; 32]], &mut [bool]),
) -> f64 {
    let mut answers = vec![false; size];
    let clock = Instant::now();
    ids.chunks_exact(size).for_each(|ids| contains(ids, &mut answers));
    clock.elapsed().as_nanos() as f64 / ids.len() as f64
}

fn compare(what: &str, mut with: impl FnMut() -> f64, mut without: impl FnMut() -> f64) {
    let (mut dear, mut cheap) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The second one finds warmer caches, so they take turns.
        if round % 2 == 0 {
            dear.push(with());
        }
        cheap.push(without());
        if round % 2 == 1 {
            dear.push(with());
        }
    }
    let mut ratios: Vec<f64> = dear.iter().zip(&cheap).map(|(with, wo)| with / wo).collect();
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (dear, cheap, ratio) = (median(&mut dear), median(&mut cheap), median(&mut ratios));
    println!(
        "{what}: {dear:.2} ns with it, {cheap:.2} without, ratio {ratio:.3} \
         (median of {ROUNDS} rounds of {LOOKUPS})"
    );
}
