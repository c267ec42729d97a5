//! A live filter of 20 million entries: how long it pauses while it grows, what it takes, how long
//! a restart takes, what 64 clients get, and that no ID is taken for another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bloomsday_common::store::Store;
use bloomsday_server::live::Ack;
use bloomsday_server::resp::{self, RespConfig};
use cpu_time::{ProcessTime, ThreadTime};

use super::layer::memory;
use super::wire::{self, Redis, Wire, pipelines, redis_benchmark};
use crate::Options;
use crate::fixtures;
use crate::ids;
use crate::measure::{Bound, Outcome, Samples, contestant, race};

const ENTRIES: u64 = 20_000_000;
/// How many are added at once.
const BATCH: usize = 256;
/// The table grows so often with the same IDs: what the machine does at one time it does not do at
/// the next.
const REPEATS: usize = 3;
/// The longest pause that a growth may make.
const MAX_PAUSE_MS: f64 = 2.0;
const MAX_BYTES: f64 = 14.0;
/// How often memory is looked at while it grows, and from how many entries on.
const LOOK: u64 = 100_000;
/// Restarts of a log.
const RESTARTS: usize = 5;
const MAX_RESTART_SECONDS: f64 = 2.0;
const DEPTH: usize = 1024;
/// Lookups of IDs that were never added.
const ABSENT_LOOKUPS: u64 = 100_000_000;
/// How many are made before they are sent.
const CHUNK: usize = 1 << 20;
const CLIENTS: usize = 64;
/// Adds a second of 64 clients.
const ADDS: f64 = 186_000.0;
const CLIENT_ROUNDS: usize = 5;

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let mut outcomes = vec![growth()];
    outcomes.push(restart());
    outcomes.extend(clients(options));
    outcomes
}

/// The time of each batch while a table grows, by the clock and on the processor; and the most
/// bytes an entry.
struct Grown {
    clock: Vec<f64>,
    processor: Vec<f64>,
    bytes: f64,
    resident: f64,
    idle_gap: f64,
}

fn growth() -> Outcome {
    let repeats: Vec<Grown> = (0..REPEATS).map(|_| grow()).collect();
    let least = |of: &dyn Fn(&Grown) -> &Vec<f64>| {
        let batches = 0..of(&repeats[0]).len();
        let least = |i: usize| repeats.iter().map(|grown| of(grown)[i]).fold(f64::MAX, f64::min);
        Samples(batches.map(least).collect())
    };
    let by_clock = least(&|grown| &grown.clock);
    let mut outcome = Outcome::of("growth of a live filter to 20 million entries", "ms");
    for (at, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")] {
        outcome.rows.push((format!("batches of {BATCH}, {name}"), Samples(vec![by_clock.at(at)])));
    }
    let longest = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    for (i, grown) in repeats.iter().enumerate() {
        let [clock, processor] = [&grown.clock, &grown.processor].map(|all| longest(all));
        outcome.note(format!(
            "time {}: longest batch {clock:.2} ms, on the processor {processor:.2} ms; a thread that only \
             spins next to it lost {:.2} ms at once",
            i + 1,
            grown.idle_gap
        ));
    }
    let by_processor = least(&|grown| &grown.processor);
    for (by, all, bound) in [
        ("on the processor", by_processor, Bound::AtMost(MAX_PAUSE_MS)),
        ("by the clock", by_clock, Bound::AtMost(MAX_PAUSE_MS)),
    ] {
        let what = format!("ms {by}: the longest batch, each in the best of {REPEATS} times");
        outcome.claim(&what, Samples(vec![all.at(1.0)]), bound);
    }
    let most =
        |of: &dyn Fn(&Grown) -> f64| Samples(vec![repeats.iter().map(of).fold(0.0, f64::max)]);
    let bytes = most(&|grown| grown.bytes);
    outcome.claim("bytes an entry, the most from 1 million on", bytes, Bound::AtMost(MAX_BYTES));
    let resident = most(&|grown| grown.resident);
    outcome.claim("bytes an entry that the process has at 20 million", resident, Bound::None);
    outcome
}

fn grow() -> Grown {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = wire::runtime();
    let server = runtime.block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let (header, filter) = fixtures::filter(0, 1_000);
        fixtures::publish(&store, &header, &filter).await;
        fixtures::serve_live(folder.path(), memory()).await
    });
    let handle = server.filter("rt").expect("rt is served");
    let before = resident();
    let ids_of =
        |first: u64| ids::range(ids::ABSENT + first, CHUNK.min((ENTRIES - first) as usize));
    let mut grown = Grown {
        clock: Vec::new(),
        processor: Vec::new(),
        bytes: 0.0,
        resident: 0.0,
        idle_gap: 0.0,
    };
    let (stop, mut is_new) = (AtomicBool::new(false), [false; BATCH]);
    std::thread::scope(|scope| {
        let idle = scope.spawn(|| longest_gap(&stop));
        let mut looked = 0;
        for first in (0..ENTRIES).step_by(CHUNK) {
            let mut added = first;
            for ids in ids_of(first).chunks(BATCH) {
                let (clock, processor) = (Instant::now(), ThreadTime::now());
                let add = handle.add_batch(ids, &mut is_new[..ids.len()]);
                runtime.block_on(add).expect("there is room");
                let took = (clock.elapsed(), processor.elapsed());
                grown.clock.push(took.0.as_secs_f64() * 1e3);
                grown.processor.push(took.1.as_secs_f64() * 1e3);
                added += ids.len() as u64;
                if added / LOOK > looked && added >= 1_000_000 {
                    looked = added / LOOK;
                    let live = handle.status().live.expect("it has live IDs");
                    grown.bytes = grown.bytes.max(live.memory_bytes as f64 / live.entries as f64);
                }
            }
        }
        grown.resident = (resident() - before) / ENTRIES as f64;
        stop.store(true, Ordering::Relaxed);
        grown.idle_gap = idle.join().expect("it only spins");
    });
    grown
}

/// How long a thread that does nothing else was away from its processor at once, in milliseconds.
fn longest_gap(stop: &AtomicBool) -> f64 {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest.as_secs_f64() * 1e3
}

/// The bytes of this process in memory; no number where the system does not tell.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|kib| kib.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib * 1024.0)
}

fn restart() -> Outcome {
    let runtime = wire::runtime();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = wire::serve(&runtime, Ack::Written, folder.path());
    each_chunk(ENTRIES, |number, many| {
        let ids = ids::range(number, many);
        Wire::open(first.address).time(&requests("SADD", &ids), b":1\r\n");
    });
    runtime.block_on(first.stop());
    let (mut took, mut processor) = (Samples::default(), Samples::default());
    for _ in 0..RESTARTS {
        // The one before has the lock of its folder until its last thread has ended.
        std::thread::sleep(Duration::from_secs(1));
        let (clock, busy) = (Instant::now(), ProcessTime::now());
        let ours = wire::serve(&runtime, Ack::Written, folder.path());
        let mut wire = Wire::open(ours.address);
        assert_eq!(wire.call(&["SCARD", "seen"]), format!(":{ENTRIES}\r\n"));
        took.0.push(clock.elapsed().as_secs_f64());
        processor.0.push(busy.elapsed().as_secs_f64());
        runtime.block_on(ours.stop());
    }
    std::thread::sleep(Duration::from_secs(1));
    let live = wire::live(Ack::Written, folder.path());
    let config = RespConfig::new(wire::anywhere());
    let ours = runtime.block_on(resp::serve(live, config)).expect("it listens");
    let mut outcome = Outcome::of("a restart with 20 million entries in its log", "seconds");
    outcome.rows.push(("from the start to the first answer".into(), took.clone()));
    outcome.rows.push(("the same, on the processor".into(), processor));
    outcome.claim("seconds of a restart", took, Bound::AtMost(MAX_RESTART_SECONDS));
    let mut wrong = 0;
    let clock = Instant::now();
    each_chunk(ABSENT_LOOKUPS, |number, many| {
        let ids = ids::range(ids::ABSENT + number, many);
        let mut wire = Wire::open(ours.address);
        for (request, many) in requests("SISMEMBER", &ids) {
            let replies = wire.send(&request, many * b":0\r\n".len());
            wrong += replies.chunks(4).filter(|reply| *reply != b":0\r\n").count();
        }
    });
    outcome.note(format!(
        "{wrong} of {ABSENT_LOOKUPS} lookups of IDs that were never added were hits, in {:.0} s",
        clock.elapsed().as_secs_f64()
    ));
    assert_eq!(wrong, 0, "one in 10^4 such runs may have one");
    runtime.block_on(ours.stop());
    outcome
}

fn each_chunk(all: u64, mut chunk: impl FnMut(u64, usize)) {
    for first in (0..all).step_by(CHUNK) {
        chunk(first, CHUNK.min((all - first) as usize));
    }
}

fn requests(command: &str, ids: &[ids::Id]) -> Vec<(Vec<u8>, usize)> {
    pipelines(DEPTH, ids.iter().map(|id| &id[..]), |id, out| {
        wire::command(&[command.as_bytes(), b"seen", id], out);
    })
}

/// Adds of many clients at once, each on the disk before its answer.
fn clients(options: &Options) -> Vec<Outcome> {
    let runtime = wire::runtime();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = wire::serve(&runtime, Ack::Synced, folder.path());
    let redis = ["--appendonly", "yes", "--appendfsync", "always"];
    let redis = Redis::start(&redis, folder.path());
    let mut outcomes = Vec::new();
    // One at a time, a few, and what a crawler gathers in a batch.
    for (depth, requests) in [(1, 50_000), (16, 400_000), (200, 1_000_000)] {
        let (us, them) = ("bloomsday, synced", "redis, appendfsync always");
        let run = |address| redis_benchmark(address, CLIENTS, depth, requests);
        let mut contestants = vec![contestant(us, |_| run(ours.address))];
        if let Ok(redis) = &redis {
            contestants.push(contestant(them, |_| run(redis.address)));
        }
        let name = format!("adds of {CLIENTS} clients, synced, pipelines of {depth}");
        let mut outcome = race(&name, "ns an add", options.rounds.min(CLIENT_ROUNDS), contestants);
        outcome.compare(them, us, Bound::None);
        let rate = |ns: &f64| 1e9 / ns / ADDS;
        let rates = outcome.samples(us).map(|ns| Samples(ns.0.iter().map(rate).collect()));
        let bound = if depth == 1 { Bound::None } else { Bound::AtLeast(1.0) };
        outcome.claim("adds a second, over 186,000", rates.unwrap_or_default(), bound);
        outcome.notes.extend(redis.as_ref().err().cloned());
        outcomes.push(outcome);
    }
    runtime.block_on(ours.stop());
    outcomes
}
