//! The guard's sample is fair for batches of every size: a day that shares no ID with the live one
//! is held back, also when callers look up unknown users at regular places of a batch.

use std::fs;
use std::path::PathBuf;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::wire::exchange;

/// A store with yesterday's users 0..100,000, and the pointer of a day of strangers, not yet there.
fn before_a_bad_day(backend: &Backend) -> (PathBuf, Vec<u8>) {
    Publisher::days_ago(backend, 0).users(5_000_000..5_100_000).publish();
    let pointer = PathBuf::from(&backend.store).join("rt/pointers").join(today().to_string());
    let bytes = fs::read(&pointer).unwrap();
    fs::remove_file(&pointer).unwrap();
    Publisher::days_ago(backend, 1).users(0..100_000).publish();
    (pointer, bytes)
}

/// One ID in `every` is of an unknown user: at the first place of each batch and at each `every`th
/// from there.
fn id(n: u64, size: u64, every: u64) -> String {
    let place = n % size;
    if every > 0 && place.is_multiple_of(every) { user(90_000_000 + n) } else { user(n % 100_000) }
}

/// Looks up `n` IDs over one connection, in bodies of `size`; 0 is one at a time in the path.
fn look_up(daemon: &Daemon, n: u64, size: u64, every: u64) {
    let mut requests = String::new();
    let mut n_lookups = 0;
    while n_lookups < n {
        let last = n_lookups + size.max(1) >= n;
        let close = if last { "Connection: close\r\n" } else { "" };
        if size == 0 {
            let id = id(n_lookups, 2, every);
            requests += &format!("GET /v1/filters/rt/ids/{id} HTTP/1.1\r\nHost: x\r\n{close}\r\n");
        } else {
            let body: String = (0..size).map(|i| id(n_lookups + i, size, every) + "\n").collect();
            requests += &format!(
                "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\n{close}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        n_lookups += size.max(1);
    }
    let answers = exchange(&daemon.public, requests.as_bytes());
    assert_eq!(answers.matches("HTTP/1.1 200").count() as u64, n_lookups / size.max(1));
}

#[test]
fn a_day_that_shares_no_id_is_held_for_batches_of_every_size() {
    let backend = Backend::local();
    let (pointer, bad_day) = before_a_bad_day(&backend);
    let config = backend.folder.path().join("bloomsday.toml");
    fs::write(&config, "[filters.rt]\nguard = \"hold\"\n").unwrap();
    let config = config.display().to_string();
    let mut wrong = Vec::new();
    for (size, every) in [
        (0, 2),
        (1, 0),
        (2, 2),
        (32, 32),
        (100, 2),
        (100, 50),
        (1_023, 128),
        (1_024, 128),
        (1_024, 8),
        (32_768, 128),
        (32_768, 1_024),
    ] {
        let _ = fs::remove_file(&pointer);
        let daemon = Daemon::ready(&backend, &["--config", &config]);
        look_up(&daemon, 300_000, size, every);
        fs::write(&pointer, &bad_day).unwrap();
        let (code, body) = daemon.reload("");
        let judged = &daemon.status()["judged"];
        let known = match (size, every) {
            (_, 0) => 1.0,
            (0, every) => 1.0 - 1.0 / every as f64,
            (size, every) => 1.0 - size.div_ceil(every) as f64 / size as f64,
        };
        // Unknown users are hits with the filter's fpp; five deviations of some 2,300 lookups.
        let expected = known + 0.03 * (1.0 - known);
        let hit_ratio = judged["hit_ratio_old"].as_f64().unwrap_or(-1.0);
        if code != 409 || (hit_ratio - expected).abs() > 0.06 {
            wrong.push(format!(
                "bodies of {size}, every {every}th: {hit_ratio}, not {expected}: {body}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
