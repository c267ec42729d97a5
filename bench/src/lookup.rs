//! Lookups: one at a time, dependent, in batches and on two threads, compared with peers and the
//! limit.
//!
//! The limit is what the machine needs to hash an ID and touch one random cache line of memory as
//! large as the filter, in the better of two ways: a plain loop, and one that prefetches.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use bloomsday_common::blob;
use bloomsday_common::filter::{Filter, Kernel};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::store::Store;
use bloomsday_server::FilterHandle;
use fastbloom::BloomFilter;

use crate::Options;
use crate::fixtures::{self, FPP};
use crate::ids::{self, FreshIds, Id};
use crate::measure::{Bound, Contestant, Outcome, contestant, race};
use crate::peers::Guava;

/// Lookups of a contestant in a round.
const LOOKUPS: usize = 1 << 20;
/// Guava is slow, and takes fewer.
const GUAVA_LOOKUPS: usize = 1 << 18;
/// Different IDs: a line is long out of the cache when it is touched again.
const POOL: usize = 1 << 24;
/// Parquet's split-block filter in whole bits an ID: 8, as its formula gives for 0.03.
const SBBF_BITS: usize = 8;

pub(crate) const LIMIT: &str = "limit: hash, touch one line";

/// Times `answer` over the next lookups, in nanoseconds each.
fn timed(fresh_ids: &mut FreshIds, answer: impl FnOnce(&[&[u8]]) -> usize) -> f64 {
    let (_, ids) = fresh_ids.next(LOOKUPS);
    let clock = Instant::now();
    black_box(answer(black_box(&ids)));
    clock.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

fn in_batches(ids: &[&[u8]], size: usize, mut look_up: impl FnMut(&[&[u8]], &mut [bool])) -> usize {
    let mut answers = vec![false; size];
    for ids in ids.chunks(size) {
        look_up(ids, &mut answers[..ids.len()]);
        black_box(&answers);
    }
    0
}

/// A plain loop that hashes and touches; the processor overlaps what it can by itself.
fn touch_plainly(body: &[u8], ids: &[&[u8]]) -> usize {
    let (lines, _) = body.as_chunks::<64>();
    let n = lines.len() as u128;
    let touched = ids.iter().map(|id| {
        let line = ((u128::from(Xxh3::of(id).0) * n) >> 64) as usize;
        usize::from(lines[line][0])
    });
    touched.fold(0, usize::wrapping_add)
}

/// Everything that answers.
struct Field {
    bare: Filter,
    handle: FilterHandle,
    fastbloom: BloomFilter,
    fastbloom_fold: BloomFilter<foldhash::fast::FixedState>,
    sbbf: sbbf_rs_safe::Filter,
}

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let n = options.ids;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (bare, server) = runtime.block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let (header, filter) = fixtures::filter(0, n);
        let key = fixtures::publish(&store, &header, &filter).await;
        drop(filter);
        let fetched = store.fetch(&key, u64::MAX).await.expect("the blob is read");
        let (_, bare) = blob::open(fetched, &key).expect("it is sound");
        (bare, fixtures::serve(folder.path()).await)
    });
    let mut field = Field {
        bare,
        handle: server.filter("rt").expect("rt is served"),
        fastbloom: BloomFilter::with_false_pos(FPP).seed(&1).expected_items(n as usize),
        fastbloom_fold: BloomFilter::with_false_pos(FPP)
            .hasher(foldhash::fast::FixedState::with_seed(1))
            .expected_items(n as usize),
        sbbf: sbbf_rs_safe::Filter::new(SBBF_BITS, n as usize),
    };
    let guava = Guava::start(n, FPP).map(|mut guava| {
        guava.put(0, n);
        guava
    });
    for start in (0..n).step_by(1 << 20) {
        for id in ids::range(start, (n - start).min(1 << 20) as usize) {
            field.fastbloom.insert(&id[..]);
            field.fastbloom_fold.insert(&id[..]);
            field.sbbf.insert_hash(Xxh3::of(&id).0);
        }
    }
    let mut outcomes = vec![one_at_a_time(options, &field, guava)];
    outcomes.push(batches(options, &field));
    outcomes.push(threads(options, &field));
    outcomes[0].notes.extend(check(&field, n));
    outcomes
}

fn one_at_a_time(options: &Options, field: &Field, guava: Result<Guava, String>) -> Outcome {
    let fresh_ids = &std::cell::RefCell::new(FreshIds::absent(POOL));
    let time =
        |answer: &mut dyn FnMut(&[&[u8]]) -> usize| timed(&mut fresh_ids.borrow_mut(), answer);
    let mut reader = field.handle.reader();
    let body = field.bare.body();
    let mut contestants: Vec<Contestant<'_>> = vec![
        contestant(LIMIT, |_| time(&mut |ids| field.bare.touch(ids) as usize)),
        contestant("touch, plain loop", |_| time(&mut |ids| touch_plainly(body, ids))),
        contestant("bare filter", |_| {
            time(&mut |ids| ids.iter().filter(|id| field.bare.contains(id)).count())
        }),
        contestant("reader", move |_| {
            time(&mut |ids| ids.iter().filter(|id| reader.contains(id)).count())
        }),
        contestant("handle", |_| {
            time(&mut |ids| ids.iter().filter(|id| field.handle.contains(id)).count())
        }),
        contestant("bare filter, each lookup after the result of the last", |_| {
            time(&mut |ids| {
                let (mut seen, mut hits) = (false, 0);
                for i in 0..ids.len() {
                    // The next ID is known only when this lookup has its result.
                    seen = field.bare.contains(ids[(i ^ usize::from(seen)) % ids.len()]);
                    hits += usize::from(seen);
                }
                hits
            })
        }),
        contestant("fastbloom", |_| {
            time(&mut |ids| ids.iter().filter(|id| field.fastbloom.contains(**id)).count())
        }),
        contestant("fastbloom, foldhash", |_| {
            time(&mut |ids| ids.iter().filter(|id| field.fastbloom_fold.contains(**id)).count())
        }),
        contestant("sbbf-rs-safe, our hash", |_| {
            time(&mut |ids| {
                ids.iter().filter(|id| field.sbbf.contains_hash(Xxh3::of(id).0)).count()
            })
        }),
    ];
    let mut missing = None;
    match guava {
        Ok(mut guava) => contestants.push(contestant("guava", move |_| {
            let (first, _) = fresh_ids.borrow_mut().next(GUAVA_LOOKUPS);
            guava.look_up(first, GUAVA_LOOKUPS as u64).0
        })),
        Err(why) => missing = Some(why),
    }
    let mut outcome = race("lookups, one at a time", "ns an ID", options.rounds, contestants);
    outcome.compare("reader", "bare filter", Bound::None);
    outcome.compare("guava", "reader", Bound::AtLeast(10.0));
    outcome.compare("fastbloom, foldhash", "reader", Bound::AtLeast(2.5));
    outcome.compare("fastbloom", "reader", Bound::None);
    outcome.compare("sbbf-rs-safe, our hash", "reader", Bound::AtLeast(1.0));
    outcome.compare("reader", LIMIT, Bound::None);
    outcome.compare("handle", "bare filter", Bound::AtMost(2.0));
    outcome.notes.extend(missing);
    outcome
}

fn batches(options: &Options, field: &Field) -> Outcome {
    let fresh_ids = &std::cell::RefCell::new(FreshIds::absent(POOL));
    let time =
        |answer: &mut dyn FnMut(&[&[u8]]) -> usize| timed(&mut fresh_ids.borrow_mut(), answer);
    let body = field.bare.body();
    let mut contestants = vec![
        contestant(LIMIT, |_| time(&mut |ids| field.bare.touch(ids) as usize)),
        contestant("touch, plain loop", |_| time(&mut |ids| touch_plainly(body, ids))),
    ];
    for size in [1024, 256, 32] {
        contestants.push(contestant(&format!("handle, {size} a batch"), move |_| {
            time(&mut |ids| {
                in_batches(ids, size, |ids, answers| field.handle.contains_batch(ids, answers))
            })
        }));
    }
    for size in [1024, 256, 32] {
        let mut reader = field.handle.reader();
        contestants.push(contestant(&format!("reader, {size} a batch"), move |_| {
            time(&mut |ids| {
                in_batches(ids, size, |ids, answers| reader.contains_batch(ids, answers))
            })
        }));
    }
    // What a batch's own begin and end cost: the last line of each must arrive before the next
    // begins.
    for size in [256, 32] {
        contestants.push(contestant(&format!("touch, {size} a batch"), move |_| {
            time(&mut |ids| ids.chunks(size).map(|ids| field.bare.touch(ids) as usize).sum())
        }));
    }
    for kernel in Kernel::all() {
        let bare = &field.bare;
        contestants.push(contestant(
            &format!("bare filter, {kernel:?}, 1024 a batch"),
            move |_| {
                time(&mut |ids| {
                    in_batches(ids, 1024, |ids, answers| {
                        bare.contains_batch_by(kernel, ids, answers);
                    })
                })
            },
        ));
    }
    let mut outcome = race("lookups in batches", "ns an ID", options.rounds, contestants);
    for (size, most) in [(1024, 1.06), (256, 1.10), (32, 1.35)] {
        outcome.compare(&format!("handle, {size} a batch"), LIMIT, Bound::None);
        outcome.compare(&format!("reader, {size} a batch"), LIMIT, Bound::AtMost(most));
    }
    for size in [256, 32] {
        let (reader, touch) = (format!("reader, {size} a batch"), format!("touch, {size} a batch"));
        outcome.compare(&reader, &touch, Bound::None);
        outcome.compare(&touch, LIMIT, Bound::None);
    }
    outcome.compare("touch, plain loop", LIMIT, Bound::None);
    outcome
}

fn threads(options: &Options, field: &Field) -> Outcome {
    let sets: Vec<std::sync::Mutex<FreshIds>> =
        (0..2).map(|_| std::sync::Mutex::new(FreshIds::absent(POOL / 2))).collect();
    let on = |count: usize, answer: &(dyn Fn(&[&[u8]]) -> usize + Sync)| {
        let barrier = Barrier::new(count);
        let slowest = std::thread::scope(|scope| {
            let workers: Vec<_> = sets[..count]
                .iter()
                .map(|set| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let mut set = set.lock().expect("nobody panics");
                        let (_, ids) = set.next(LOOKUPS);
                        barrier.wait();
                        let clock = Instant::now();
                        black_box(answer(&ids));
                        clock.elapsed().as_nanos() as f64
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().expect("no panic")).fold(0.0, f64::max)
        });
        slowest / (count * LOOKUPS) as f64
    };
    let limit = |ids: &[&[u8]]| field.bare.touch(ids) as usize;
    let look_up = |ids: &[&[u8]]| {
        in_batches(ids, 1024, |ids, answers| field.handle.contains_batch(ids, answers))
    };
    let contestants = vec![
        contestant("limit, one thread", |_| on(1, &limit)),
        contestant("limit, two threads", |_| on(2, &limit)),
        contestant("one thread", |_| on(1, &look_up)),
        contestant("two threads", |_| on(2, &look_up)),
    ];
    let name = "lookups by threads, 1024 a batch";
    let mut outcome = race(name, "ns an ID", options.rounds, contestants);
    outcome.compare("one thread", "two threads", Bound::None);
    // What two of this machine's processors are to one.
    outcome.compare("limit, one thread", "limit, two threads", Bound::None);
    outcome.compare("two threads", "limit, two threads", Bound::None);
    outcome
}

/// A fast wrong filter wins nothing: no false negative, and the measured fpp with its error.
fn check(field: &Field, n: u64) -> Vec<String> {
    let sample = n.min(4 << 20);
    let step = n / sample;
    let lost = |contains: &dyn Fn(&Id) -> bool| {
        (0..sample).filter(|i| !contains(&ids::id(i * step))).count()
    };
    let lookups = 4_000_000u64;
    let wrong = |contains: &dyn Fn(&Id) -> bool| {
        (0..lookups).filter(|i| contains(&ids::id(ids::ABSENT * 2 + i))).count() as f64
    };
    let mut lines = Vec::new();
    let mut check_one = |name: &str, bits: f64, contains: &dyn Fn(&Id) -> bool| {
        let (lost, wrong) = (lost(contains), wrong(contains));
        let (fpp, error) = (wrong / lookups as f64, wrong.sqrt() / lookups as f64);
        assert_eq!(lost, 0, "{name} lost IDs: its speed means nothing");
        lines.push(format!(
            "checked {name}: 0 of {sample} IDs lost, fpp {fpp:.5} ± {error:.5}, \
             {bits:.2} bits an ID",
        ));
    };
    let bits = |bits: usize| bits as f64 / n as f64;
    check_one("bloomsday", bits(field.bare.body().len() * 8), &|id| field.handle.contains(id));
    check_one("fastbloom", bits(field.fastbloom.num_bits()), &|id| {
        field.fastbloom.contains(&id[..])
    });
    check_one("sbbf-rs-safe", bits(field.sbbf.as_bytes().len() * 8), &|id| {
        field.sbbf.contains_hash(Xxh3::of(id).0)
    });
    lines
}
