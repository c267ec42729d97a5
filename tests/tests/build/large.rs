//! The loop at sizes that matter: 20 million IDs built, served, and each looked up; a day of
//! `BLOOMSDAY_IDS` (300 million) within a gibibyte. Ignored in daily runs; prints the figures that
//! the docs/performance.md quotes:
//!
//! ```sh
//! cargo test --release --workspace --test build -- --ignored --nocapture large::
//! ```

use std::hint::black_box;
use std::time::Instant;

use bloomsday_server::{Config, FilterConfig, start};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::campaign::on_threads;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{user, write_users};
use bloomsday_tests::publisher::Publisher;

const IDS: u64 = 20_000_000;
const FILES: u64 = 10;
/// IDs in one request, and in one library call.
const LOOKUPS_PER_BATCH: u64 = 100_000;
const BATCH: usize = 1024;

#[test]
#[ignore = "takes a minute and a gigabyte; prints figures"]
fn twenty_million_ids_are_built_and_each_is_a_hit() {
    let backend = Backend::local();
    let input = backend.folder.path().join("input");
    for file in 0..FILES {
        let each = IDS / FILES;
        write_users(&input.join(format!("part-{file}.parquet")), file * each..(file + 1) * each);
    }
    let report = Publisher::days_ago(&backend, 0).input(input).run().expect(0).json();
    assert_eq!((&report["ids"], &report["outcome"]), (&IDS.into(), &"published".into()));
    let fpp = report["fpp_measured"].as_f64().unwrap();
    assert!(fpp <= 0.03, "measured {fpp}");
    println!("build: {report}");

    let daemon = Daemon::ready(&backend, &[]);
    let (mut hits, mut http_seconds) = (0, 0.0);
    for start in (0..IDS).step_by(LOOKUPS_PER_BATCH as usize) {
        let body: String = (start..start + LOOKUPS_PER_BATCH).map(|n| user(n) + "\n").collect();
        let clock = Instant::now();
        let answer = daemon.post("/v1/filters/rt/query", body.as_bytes());
        http_seconds += clock.elapsed().as_secs_f64();
        assert_eq!(answer.status, 200);
        hits += answer.body.matches('1').count() as u64;
    }
    assert_eq!(hits, IDS, "an ID of the day was a miss");
    println!(
        "HTTP: {:.1} million IDs a second, {LOOKUPS_PER_BATCH} a request",
        IDS as f64 / http_seconds / 1e6
    );

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let filters = vec![FilterConfig::new("rt".parse().unwrap())];
    let bloomsday = runtime.block_on(start(Config::new(&backend.store, filters))).unwrap();
    let rt = bloomsday.filter("rt").unwrap();
    // Absent IDs, each looked up once: the usual lookup of a bidder.
    let absent: Vec<String> = (IDS..IDS + 4_000_000).map(user).collect();
    let per_id = |clock: Instant| clock.elapsed().as_nanos() as f64 / absent.len() as f64;

    let mut reader = rt.reader();
    let clock = Instant::now();
    let yes = absent.iter().filter(|id| reader.contains(black_box(id.as_bytes()))).count();
    println!("reader, one at a time: {:.1} ns an ID; {} answered yes", per_id(clock), yes);
    let clock = Instant::now();
    let yes_by_handle = absent.iter().filter(|id| rt.contains(black_box(id.as_bytes()))).count();
    println!("handle, one at a time: {:.1} ns an ID", per_id(clock));
    let mut answers = vec![false; BATCH];
    let clock = Instant::now();
    let mut yes_in_batches = 0;
    for ids in absent.chunks(BATCH) {
        rt.contains_batch(ids, &mut answers[..ids.len()]);
        yes_in_batches += answers[..ids.len()].iter().filter(|answer| **answer).count();
    }
    println!("batches of {BATCH}: {:.1} ns an ID", per_id(clock));
    assert_eq!((yes, yes), (yes_by_handle, yes_in_batches));
    let rate = yes as f64 / absent.len() as f64;
    assert!(rate < 0.0305, "{rate} of the absent IDs were answered yes");
    println!("measured fpp: {rate:.5}");
}

#[test]
#[ignore = "takes minutes and 33 bytes of disk an ID; prints figures"]
fn a_full_day_is_built_with_and_without_a_limit_of_one_gibibyte() {
    const IDS_PER_FILE: u64 = 5_000_000;
    let number = std::env::var("BLOOMSDAY_IDS").ok();
    let ids: u64 = number.map_or(300_000_000, |ids| ids.parse().expect("a number of IDs"));
    let backend = Backend::local();
    let input = backend.folder.path().join("input");
    on_threads(2, ids.div_ceil(IDS_PER_FILE), |file| {
        let users = file * IDS_PER_FILE..ids.min((file + 1) * IDS_PER_FILE);
        write_users(&input.join(format!("part-{file}.parquet")), users);
    });
    let mut digests = Vec::new();
    for memory in [&["--memory", "1GiB"][..], &[]] {
        let build = Publisher::days_ago(&backend, 0).input(&input).with(memory);
        let (run, most) = build.prepare().run_measured();
        let report = run.expect(0).json();
        assert_eq!(report["ids"], ids);
        println!("{memory:?}: at most {} MiB; {}", most >> 20, report["seconds"]);
        digests.push(report["digest"].clone());
    }
    assert_eq!(digests[0], digests[1]);
}
