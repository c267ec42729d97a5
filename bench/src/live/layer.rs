//! Lookups in a day's filter with 20 million live IDs over it, next to the same filter without.

use std::hint::black_box;
use std::time::Instant;

use bloomsday_common::store::Store;
use bloomsday_server::FilterHandle;
use bloomsday_server::live::{Ack, Live, LiveConfig};

use super::wire;
use crate::Options;
use crate::fixtures;
use crate::ids::{self, FreshIds};
use crate::measure::{Bound, Outcome, contestant, race};

/// How many IDs are alive.
const LIVE: u64 = 20_000_000;
/// Numbers from here on are alive, and in no filter.
const FIRST_LIVE: u64 = 1 << 60;
/// How many are added at once.
const ADDED: usize = 1024;
/// Lookups of a contestant in a round, and different IDs.
const LOOKUPS: usize = 1 << 20;
const POOL: usize = 1 << 24;

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = wire::runtime();
    let (alone, over) = runtime.block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let (header, filter) = fixtures::filter(0, options.ids);
        fixtures::publish(&store, &header, &filter).await;
        drop(filter);
        let live = memory();
        (fixtures::serve(folder.path()).await, fixtures::serve_live(folder.path(), live).await)
    });
    let (alone, over) = (alone.filter("rt").expect("rt"), over.filter("rt").expect("rt"));
    runtime.block_on(add(&over));

    let fresh_ids = &std::cell::RefCell::new(FreshIds::absent(POOL));
    let time = |look_up: &mut dyn FnMut(&[&[u8]])| {
        let mut fresh_ids = fresh_ids.borrow_mut();
        let (_, ids) = fresh_ids.next(LOOKUPS);
        let clock = Instant::now();
        look_up(black_box(&ids));
        clock.elapsed().as_nanos() as f64 / LOOKUPS as f64
    };
    let sizes = [1024, 256, 32];
    let name = |kind: &str, with: &str, size: usize| format!("{kind}, {with}, {size} a batch");
    let mut contestants = Vec::new();
    for (with, handle) in [("alone", &alone), ("under live IDs", &over)] {
        for size in sizes {
            contestants.push(contestant(&name("handle", with, size), move |_| {
                let mut answers = vec![false; size];
                time(&mut |ids| {
                    for ids in ids.chunks(size) {
                        handle.contains_batch(ids, &mut answers[..ids.len()]);
                        black_box(&answers);
                    }
                })
            }));
            let mut reader = handle.reader();
            contestants.push(contestant(&name("reader", with, size), move |_| {
                let mut answers = vec![false; size];
                time(&mut |ids| {
                    for ids in ids.chunks(size) {
                        reader.contains_batch(ids, &mut answers[..ids.len()]);
                        black_box(&answers);
                    }
                })
            }));
        }
        contestants.push(contestant(&format!("handle, {with}, one at a time"), move |_| {
            time(&mut |ids| {
                black_box(ids.iter().filter(|id| handle.contains(id)).count());
            })
        }));
    }
    let race_name = "lookups in a day's filter with and without 20 million live IDs";
    let mut outcome = race(race_name, "ns an ID", options.rounds, contestants);
    for kind in ["handle", "reader"] {
        for size in sizes {
            let (with, without) = (name(kind, "under live IDs", size), name(kind, "alone", size));
            outcome.compare(&with, &without, Bound::AtMost(2.0));
        }
    }
    let (with, without) = ("under live IDs, one at a time", "alone, one at a time");
    outcome.compare(&format!("handle, {with}"), &format!("handle, {without}"), Bound::None);
    outcome.note(check(&over));
    vec![outcome]
}

/// Live filters in memory.
pub(super) fn memory() -> Live {
    let mut config = LiveConfig::new(None);
    (config.ack, config.memory) = (Ack::Memory, 1 << 30);
    Live::open(config).expect("no folder, no error")
}

/// Adds all live IDs.
async fn add(handle: &FilterHandle) {
    let mut is_new = [false; ADDED];
    for first in (0..LIVE).step_by(ADDED) {
        let many = (LIVE - first).min(ADDED as u64) as usize;
        let ids = ids::range(FIRST_LIVE + first, many);
        handle.add_batch(&ids, &mut is_new[..many]).await.expect("there is room");
    }
}

/// A fast wrong layer wins nothing: every live ID is a hit.
fn check(handle: &FilterHandle) -> String {
    let mut answers = [false; ADDED];
    for first in (0..LIVE).step_by(ADDED) {
        let many = (LIVE - first).min(ADDED as u64) as usize;
        let ids = ids::range(FIRST_LIVE + first, many);
        handle.contains_batch(&ids, &mut answers[..many]);
        assert!(answers[..many].iter().all(|hit| *hit), "a live ID is lost");
    }
    let live = handle.status().live.expect("it has live IDs");
    // The day's filter took some for its own: they are added nevertheless.
    format!("checked: {} of {LIVE} live IDs are there, all hits", live.entries)
}
