//! Lookups across swaps, against an oracle that knows every right answer; and how long they take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bloomsday_common::filter::Layout;
use bloomsday_common::store::Store;
use bloomsday_server::{Bloomsday, Config, FilterConfig, FilterHandle, ReloadOutcome, start};
use bloomsday_tests::blobs::{TestBlob, id};
use bloomsday_tests::campaign::{Campaign, Random, size};
use bloomsday_tests::input::today;

/// How many IDs are looked up, again and again; a power of two.
const N_IDS: usize = 1 << 20;
/// How long a busy reader may keep an old filter, on a busy machine.
const MAX_READER_PAUSE: Duration = Duration::from_secs(30);
/// Lookups a second of the open loop.
const RATE: u64 = 400_000;

/// Two filters, and the right result of each for every ID that is looked up.
struct Oracle {
    made: [TestBlob; 2],
    /// The IDs to look up, and their right results: bit 0 of the one filter, bit 1 of the other.
    expected: Vec<(u64, u8)>,
    shared: u64,
}

impl Oracle {
    /// Filters of `n_ids` IDs, 90 % of them in both.
    fn new(n_ids: u64) -> Oracle {
        let apart = n_ids / 10;
        let make = |first: u64| TestBlob::of(today(), Layout::Blocked, first..first + n_ids);
        let made = std::thread::scope(|scope| {
            let other = scope.spawn(|| make(apart));
            [make(0), other.join().unwrap()]
        });
        let mut random = Random::new();
        let choose = |_| {
            // Half of them are in both filters; the others are in one or in none.
            let all = 4 * apart;
            let n = match random.below(4) {
                0 | 1 => apart + random.below(n_ids - apart),
                2 => random.below(apart),
                _ => n_ids + random.below(all),
            };
            let [one, other] = [0, 1].map(|i: usize| u8::from(made[i].filter.contains(&id(n))));
            (n, one | other << 1)
        };
        let expected: Vec<(u64, u8)> = (0..N_IDS).map(choose).collect();
        let both = |n: &u64| (apart..n_ids).contains(n);
        for (n, right) in &expected {
            assert!(!both(n) || *right == 3, "{n} is in both and was a miss");
        }
        let shared = expected.iter().filter(|(n, _)| both(n)).count() as u64;
        Oracle { made, expected, shared }
    }
}

/// Serves the oracle's filters from a local store, and moves the pointer between them.
struct Served<'a> {
    oracle: &'a Oracle,
    store: Store,
    bloomsday: Bloomsday,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl<'a> Served<'a> {
    fn new(oracle: &'a Oracle) -> Served<'a> {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = folder.path().display().to_string();
        let store = Store::create(&address).unwrap();
        let mut config = Config::new(&address, vec![FilterConfig::new("rt".parse().unwrap())]);
        config.poll_interval = Duration::from_secs(24 * 3600);
        let bloomsday = runtime.block_on(async {
            oracle.made[1].publish(&store).await;
            oracle.made[0].publish(&store).await;
            start(config).await.unwrap()
        });
        Served { oracle, store, bloomsday, runtime, _folder: folder }
    }

    fn handle(&self) -> FilterHandle {
        self.bloomsday.filter("rt").unwrap()
    }

    /// Swaps to one of the two; returns when it answers.
    fn swap_to(&self, which: usize) {
        self.runtime.block_on(async {
            self.oracle.made[which].point(&self.store, today()).await;
            let began = Instant::now();
            loop {
                let reloaded = self.bloomsday.reload().await.unwrap().remove(0);
                let why = reloaded.reason.unwrap_or_default();
                // On a busy machine a reader may not have had its turn since the swap before last.
                if !why.contains("still kept by readers") {
                    assert_eq!(reloaded.outcome, ReloadOutcome::Swapped, "{why}");
                    return;
                }
                assert!(began.elapsed() < MAX_READER_PAUSE, "a reader missed a swap: {why}");
                std::thread::yield_now();
            }
        });
    }
}

/// What all threads know of the swaps: even when settled, odd while one is under way; half of it
/// says which filter answers.
#[derive(Default)]
struct Swaps(AtomicU64);

impl Swaps {
    #[inline]
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether an answer given between two looks is right.
    #[inline]
    fn is_right(before: u64, after: u64, yes: bool, right: u8) -> bool {
        if before == after && before.is_multiple_of(2) {
            (right >> (before / 2 % 2) & 1 == 1) == yes
        } else {
            // During a swap it is one filter's answer or the other's.
            (right & 1 == 1) == yes || (right >> 1 == 1) == yes
        }
    }
}

/// Stops the other threads, also when this one panics.
struct Stop<'a>(&'a dyn Fn());

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn no_lookup_is_ever_wrong_across_swaps() {
    let n_ids = size(300_000, 300_000_000);
    let swaps_to_do = size(40, 200);
    let lookups = size(8_000_000, 1_000_000_000);
    let oracle = Oracle::new(n_ids);
    let served = Served::new(&oracle);
    let megabytes = oracle.made[0].filter.memory().len() >> 20;
    println!("{} of {N_IDS} IDs are in both days", oracle.shared);
    let campaign = Campaign::new("lookups across swaps");

    /// How many lookups a thread makes between two reports.
    const CHUNK: usize = 1 << 16;
    let (swaps, stop) = (Swaps::default(), AtomicBool::new(false));
    let wrong = AtomicU64::new(0);
    let (done, reports) = mpsc::channel::<u64>();
    let looked_up_in_all = std::thread::scope(|scope| {
        for thread in 0..2usize {
            let (handle, done) = (served.handle(), done.clone());
            let (swaps, stop, wrong, oracle) = (&swaps, &stop, &wrong, &oracle);
            scope.spawn(move || {
                // One thread uses its own reader; the other looks up one ID or many at a time.
                let mut reader = handle.reader();
                let mut at = thread * N_IDS / 2;
                let mut answers = [false; 64];
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..CHUNK / 64 {
                        let expected = &oracle.expected[at % N_IDS..][..64];
                        at += 64;
                        if thread == 1 && at & 64 == 0 {
                            let ids: [[u8; 8]; 64] = std::array::from_fn(|i| id(expected[i].0));
                            let before = swaps.now();
                            handle.contains_batch(&ids, &mut answers);
                            let after = swaps.now();
                            let mut of = [true; 2];
                            for (yes, (_, right)) in answers.iter().zip(expected) {
                                let fits = Swaps::is_right(before, after, *yes, *right);
                                wrong.fetch_add(u64::from(!fits), Ordering::Relaxed);
                                of[0] &= (right & 1 == 1) == *yes;
                                of[1] &= (right >> 1 == 1) == *yes;
                            }
                            // All from one filter, whichever it is.
                            wrong.fetch_add(u64::from(of == [false; 2]), Ordering::Relaxed);
                            continue;
                        }
                        for (n, right) in expected {
                            let before = swaps.now();
                            let yes = match thread {
                                0 => reader.contains(&id(*n)),
                                _ => handle.contains(&id(*n)),
                            };
                            if !Swaps::is_right(before, swaps.now(), yes, *right) {
                                wrong.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    done.send(CHUNK as u64).unwrap();
                }
            });
        }
        drop(done);
        let stopping = || stop.store(true, Ordering::Relaxed);
        let stopping = Stop(&stopping);
        let mut n_lookups = 0;
        for swap in 0..swaps_to_do {
            n_lookups += reports.try_iter().sum::<u64>();
            // This many lookups between two swaps, when only one result is right; those during a
            // swap are extra.
            let settled = n_lookups + lookups / swaps_to_do;
            while n_lookups < settled {
                n_lookups += reports.recv().unwrap();
            }
            swaps.0.fetch_add(1, Ordering::SeqCst);
            served.swap_to((swap as usize + 1) % 2);
            swaps.0.fetch_add(1, Ordering::SeqCst);
        }
        let settled = n_lookups + lookups / swaps_to_do;
        while n_lookups < settled {
            n_lookups += reports.recv().unwrap();
        }
        drop(stopping);
        n_lookups + reports.iter().sum::<u64>()
    });
    assert_eq!(wrong.into_inner(), 0, "wrong answers of {looked_up_in_all}");
    let (hits, all) = (served.bloomsday.status()[0].hits, looked_up_in_all);
    assert!(hits > 0 && hits <= all);
    let size = format!(
        "{:.2e} lookups, {swaps_to_do} swaps of {megabytes} MiB ({n_ids} IDs)",
        looked_up_in_all as f64
    );
    campaign.passed(&size, "0 wrong answers");
}

/// Times, in buckets a 32nd apart.
struct Times(Vec<u64>);

impl Times {
    fn new() -> Times {
        Times(vec![0; 64 * 32])
    }

    #[inline]
    fn add(&mut self, nanoseconds: u64) {
        let n = nanoseconds.max(32);
        let exponent = 63 - n.leading_zeros() as usize;
        self.0[exponent * 32 + (n >> (exponent - 5) & 31) as usize] += 1;
    }

    /// The quantile `share`, in microseconds.
    fn at(&self, share: f64) -> f64 {
        let wanted = (self.0.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut sum = 0;
        for (i, count) in self.0.iter().enumerate() {
            sum += count;
            if sum >= wanted && *count > 0 {
                return ((33 + i % 32) as f64) * 2f64.powi(i as i32 / 32 - 5) / 1e3;
            }
        }
        f64::NAN
    }
}

/// Prints, and asserts nothing about times: a test must not fail because a machine is busy.
#[test]
fn lookups_under_an_open_loop_are_timed_across_swaps() {
    let n_ids = size(300_000, 300_000_000);
    let swaps_to_do = size(5, 40);
    let oracle = Oracle::new(n_ids);
    let served = Served::new(&oracle);
    let campaign = Campaign::new("latency across swaps, open loop");
    let steady = Duration::from_millis(size(200, 20_000));

    // 0: warming up, 1: steady, 2: a swap is under way, 3: the end.
    let phase = AtomicU64::new(0);
    let mut times = [Times::new(), Times::new(), Times::new()];
    let mut reader = served.handle().reader();
    std::thread::scope(|scope| {
        let (oracle, phase) = (&oracle, &phase);
        let looking = scope.spawn(move || {
            let began = Instant::now();
            let step = 1_000_000_000 / RATE;
            for turn in 0u64.. {
                // Due whether or not the one before is done: what waits is counted as waiting.
                let due = turn * step;
                let mut now = began.elapsed().as_nanos() as u64;
                while now < due {
                    std::hint::spin_loop();
                    now = began.elapsed().as_nanos() as u64;
                }
                let (n, right) = oracle.expected[turn as usize % N_IDS];
                let yes = reader.contains(&id(n));
                assert!(right != 3 || yes, "{n} is in both");
                let took = began.elapsed().as_nanos() as u64 - due;
                match phase.load(Ordering::Relaxed) {
                    3 => break,
                    phase => times[phase as usize].add(took),
                }
            }
            times
        });
        let stopping = || phase.store(3, Ordering::Relaxed);
        let stopping = Stop(&stopping);
        std::thread::sleep(steady / 10);
        phase.store(1, Ordering::Relaxed);
        std::thread::sleep(steady);
        for swap in 0..swaps_to_do {
            phase.store(2, Ordering::Relaxed);
            served.swap_to((swap as usize + 1) % 2);
            phase.store(0, Ordering::Relaxed);
            // What piled up is worked off before the next.
            std::thread::sleep(steady / 20);
        }
        drop(stopping);
        let [_, steady, swapping] = looking.join().unwrap();
        let quantiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)]
            .map(|(name, share)| {
                let (steady, swapping) = (steady.at(share), swapping.at(share));
                format!("{name} {steady:.2} → {swapping:.2} µs ({:.1} ×)", swapping / steady)
            })
            .join(", ");
        let n_lookups: u64 = swapping.0.iter().sum();
        let size = format!("{RATE}/s, {swaps_to_do} swaps, {n_lookups} lookups during them");
        campaign.passed(&size, &quantiles);
    });
}
