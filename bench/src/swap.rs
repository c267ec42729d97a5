//! Lookups at a fixed rate while filters are swapped below them.
//!
//! Open loop: a lookup is due at its time whether the one before is done or not, and its latency
//! counts from then. So a stall is seen by every lookup that it delays.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bloomsday_common::store::Store;
use bloomsday_server::FilterHandle;

use crate::Options;
use crate::fixtures;
use crate::ids::{ABSENT, range};
use crate::measure::{Bound, Outcome, Samples};
use crate::plot::{Plot, Series};

/// Lookups a second.
const RATE: u64 = 400_000;
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / RATE);
/// How long each phase lasts.
const PHASE: Duration = Duration::from_secs(8);
/// The pause between two swaps.
const SWAP_PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (store, keys, server) = runtime.block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let mut keys = Vec::new();
        for first in [0, options.ids / 100] {
            let (header, filter) = fixtures::filter(first, options.ids);
            keys.push(fixtures::publish(&store, &header, &filter).await);
        }
        (store, keys, fixtures::serve(folder.path()).await)
    });
    let handle = server.filter("rt").expect("rt is served");

    let steady = measure_during(&handle, |_| ());
    let spinning = measure_during(&handle, |stop| {
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let mut swaps = 0;
    let swapping = measure_during(&handle, |stop| {
        while !stop.load(Ordering::Relaxed) {
            swaps += 1;
            runtime.block_on(async {
                fixtures::point(&store, &keys[swaps % 2]).await;
                let reloaded = server.reload().await.expect("it reloads");
                assert_eq!(reloaded[0].reason, None);
            });
            std::thread::sleep(SWAP_PAUSE);
        }
    });

    let mut outcome =
        Outcome::of("lookups at 400,000 a second during swaps", "µs from due to done");
    let phases = [
        ("alone", &steady),
        ("next to a thread that spins", &spinning),
        ("during swaps", &swapping),
    ];
    for (name, latencies) in phases {
        for (what, quantile) in [("median", 0.5), ("p99.9", 0.999), ("longest", 1.0)] {
            let value = at(latencies, quantile);
            outcome.rows.push((format!("{name}: {what}"), Samples(vec![value])));
        }
    }
    let one = |value: f64| Samples(vec![value]);
    let tail = at(&swapping, 0.999) / at(&steady, 0.999);
    outcome.claim("p99.9 during swaps / alone", one(tail), Bound::AtMost(1.3));
    let longer = (at(&swapping, 1.0) - at(&spinning, 1.0)) / 1e3;
    let what = "longest during swaps - longest next to a thread that spins, ms";
    outcome.claim(what, one(longer), Bound::AtMost(2.0));
    outcome.note(format!("{swaps} swaps in {} s", PHASE.as_secs()));
    if let Some(folder) = &options.plots {
        let worst = |latencies: &[f32]| {
            // The longest of each 10 ms.
            let group = RATE as usize / 100;
            let points = latencies.chunks(group).enumerate();
            points
                .map(|(i, group)| {
                    let longest = group.iter().fold(0.1f32, |a, b| a.max(*b));
                    (i as f64 / 100.0, f64::from(longest))
                })
                .collect()
        };
        let plot = Plot {
            title: "Longest lookup of each 10 ms, 400,000 a second",
            x: "seconds",
            y: "µs (logarithmic)",
            log_x: false,
            log_y: true,
            series: vec![
                Series { name: "next to a spinning thread", points: worst(&spinning) },
                Series { name: "during swaps", points: worst(&swapping) },
            ],
        };
        plot.write(&folder.join("swap.svg"));
    }
    vec![outcome]
}

/// The latency of each lookup of a phase in µs, while `work` runs on another thread.
fn measure_during(handle: &FilterHandle, work: impl FnOnce(&AtomicBool) + Send) -> Vec<f32> {
    let ids = range(ABSENT, 1 << 20);
    let n = (PHASE.as_nanos() / PERIOD.as_nanos()) as usize;
    let mut latencies = vec![0f32; n];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&stop));
        let mut reader = handle.reader();
        let began = Instant::now();
        for (i, latency) in latencies.iter_mut().enumerate() {
            let due = began + PERIOD * i as u32;
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            std::hint::black_box(reader.contains(&ids[i % ids.len()]));
            *latency = due.elapsed().as_nanos() as f32 / 1e3;
        }
        stop.store(true, Ordering::Relaxed);
    });
    latencies
}

fn at(latencies: &[f32], quantile: f64) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    f64::from(sorted[((sorted.len() - 1) as f64 * quantile) as usize])
}
