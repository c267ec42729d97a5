//! The memory orderings of a swap and of the counters, under loom: every interleaving of the
//! threads, and every value that the memory model lets a load return.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::counters::{LookupCounters, SingleCounters};
use super::swap_signal::{Due, SwapCount};

/// A filter with one reader. Generations are numbers here.
struct Model {
    /// `ArcSwapOption` swaps and loads with these orderings, too.
    generation: AtomicU64,
    epoch: SwapCount<AtomicU64>,
    due: Due<AtomicU64>,
    /// The generation that the status reports.
    swapped_in: AtomicU64,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            generation: AtomicU64::new(0),
            epoch: SwapCount::new(),
            due: Due::default(),
            swapped_in: AtomicU64::new(0),
        })
    }

    /// In the order of `ServedFilter::swap`.
    fn swap(&self, next: u64) {
        self.generation.swap(next, Ordering::SeqCst);
        self.epoch.raise();
        self.due.signal();
        self.swapped_in.store(next, Ordering::SeqCst);
    }
}

/// A reader as `Reader::contains` is one: the generation of each lookup.
#[derive(Default)]
struct ModelReader {
    lookups: u64,
    epoch: u64,
    generation: u64,
}

impl ModelReader {
    fn lookup(&mut self, model: &Model) -> u64 {
        if model.due.is_reached(self.lookups) {
            model.due.set(self.lookups + 10);
            if model.epoch.load() != self.epoch {
                self.epoch = model.epoch.load();
                self.generation = model.generation.load(Ordering::SeqCst);
            }
        }
        self.lookups += 1;
        self.generation
    }
}

#[test]
fn a_lookup_uses_the_generation_that_was_published_before_it_or_a_newer_one() {
    loom::model(|| {
        let model = Model::new();
        let swapper = thread::spawn({
            let model = model.clone();
            move || {
                model.swap(1);
                model.swap(2);
            }
        });
        let mut reader = ModelReader::default();
        for _ in 0..2 {
            let swapped_in = model.swapped_in.load(Ordering::SeqCst);
            let used = reader.lookup(&model);
            assert!(used >= swapped_in, "{used} after {swapped_in} was swapped in");
        }
        swapper.join().unwrap();
        assert_eq!(reader.lookup(&model), 2, "the last swap was missed");
    });
}

/// A lookup as in `live_lookup::contains`, on a processor that reorders loads, as those of ARM do.
#[test]
fn an_id_that_a_new_day_takes_over_is_never_a_miss() {
    loom::model(|| {
        let model = Model::new();
        let is_live = Arc::new(AtomicU64::new(1));
        let swapper = thread::spawn({
            let (model, is_live) = (model.clone(), is_live.clone());
            move || {
                // Only generation 1 has the ID.
                model.swap(1);
                is_live.store(0, Ordering::Release);
            }
        });
        let epoch = model.epoch.load();
        let is_in_day = model.generation.load(Ordering::SeqCst) == 1;
        let is_hit = is_in_day || is_live.load(Ordering::Relaxed) == 1;
        if !is_hit && model.epoch.is_still(epoch) {
            panic!("neither the day nor the live IDs have it, and no swap is seen");
        }
        swapper.join().unwrap();
    });
}

#[test]
fn a_count_of_misses_is_never_too_high() {
    loom::model(|| {
        let counters = Arc::new(LookupCounters::<AtomicU64>::default());
        // The status in the spawned thread: loom lets it load older values of what was stored
        // before.
        let status = thread::spawn({
            let counters = counters.clone();
            move || {
                let (hits, misses) = counters.read();
                assert!(hits <= 2 && misses == 0, "{hits} hits, {misses} misses: all were hits");
            }
        });
        for _ in 0..2 {
            counters.add_exclusive(counters.lookups(), 1, 1);
        }
        status.join().unwrap();
        assert_eq!(counters.read(), (2, 0));
    });
}

#[test]
fn hits_of_single_lookups_never_fall_while_they_are_carried() {
    loom::model(|| {
        let counters = Arc::new(SingleCounters::<AtomicU64>::about_to_carry());
        let status = thread::spawn({
            let counters = counters.clone();
            move || {
                let (first, _) = counters.read();
                let (hits, misses) = counters.read();
                assert!((255..=257).contains(&first), "{first} hits at first");
                assert!((first..=257).contains(&hits), "{hits} hits after {first}");
                assert_eq!(misses, 0, "all were hits");
            }
        });
        for before in 255..257 {
            counters.carry();
            counters.add_exclusive(before, true);
        }
        status.join().unwrap();
        assert_eq!(counters.read(), (257, 0));
    });
}
