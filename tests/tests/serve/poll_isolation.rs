//! No filter waits for another: reloads, polls that hang, days that are damaged or missing, and
//! holds.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;

fn pointer(backend: &Backend, filter: &str, back: u32) -> PathBuf {
    let day = today().minus(back).to_string();
    PathBuf::from(&backend.store).join(filter).join("pointers").join(day)
}

fn pipe(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn reloads_of_one_filter_keep_no_other_from_its_looks() {
    let backend = Backend::local();
    ["rt", "b"].iter().for_each(|filter| {
        Publisher::days_ago(&backend, 1).filter(filter).users(0..2_000).publish()
    });
    let words = ["--filter", "rt", "--filter", "b", "--poll-interval", "1s"];
    let daemon = Daemon::ready(&backend, &words);
    Publisher::days_ago(&backend, 0).users(100..2_100).publish();
    let began = Instant::now();
    while daemon.status()["day"] != today().to_string() {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", daemon.status());
        assert_eq!(daemon.reload("?filter=b").0, 200);
    }
}

#[test]
fn a_look_that_hangs_delays_no_reload_and_no_look_of_another_filter() {
    let backend = Backend::local();
    ["rt", "b"].iter().for_each(|filter| {
        Publisher::days_ago(&backend, 1).filter(filter).users(0..2_000).publish()
    });
    let stuck = pointer(&backend, "rt", 0);
    pipe(&stuck);
    let words = ["--filter", "rt", "--filter", "b", "--poll-interval", "1s"];
    let daemon = Daemon::start(&backend, &words);
    daemon.until("b answers", |daemon| !daemon.status_of("b")["day"].is_null());
    Publisher::days_ago(&backend, 0).filter("b").users(100..2_100).publish();
    daemon.until("b is swapped", |daemon| daemon.status_of("b")["day"] == today().to_string());
    // Also while somebody waits for the stuck one, and for all.
    let url = |query: &str| format!("{}/admin/reload{query}", daemon.admin);
    let post = |url: String, limit: Duration| {
        let config = ureq::post(url).config().timeout_global(Some(limit));
        config.http_status_as_error(false).build().send_empty()
    };
    let moment = Duration::from_secs(1);
    assert!(post(url("?filter=rt"), moment).is_err() && post(url(""), moment).is_err());
    let reloaded = post(url("?filter=b"), Duration::from_secs(15));
    assert_eq!(reloaded.expect("the reload of b is answered").status().as_u16(), 200);
    // A writer lets the look go on, and it may have ended before anything could be written: an
    // empty pointer.
    drop(fs::File::options().write(true).open(&stuck).unwrap());
    daemon.until("it has looked", |daemon| !daemon.status()["last_poll"].is_null());
}

#[test]
fn the_reloads_of_a_fleet_can_be_spread_over_a_time() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..2_000).publish();
    let log = backend.folder.path().join("log");
    let daemon = Daemon::logging(&backend, &[], &log);
    daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
    for wrong in ["60", "1h", "-1s", "601s", "s", ""] {
        let (status, body) = daemon.reload(&format!("?within={wrong}"));
        assert_eq!(status, 400, "{wrong}");
        assert!(body.to_string().contains("from 0s to 600s"), "{body}");
    }
    Publisher::days_ago(&backend, 0).users(100..2_100).publish();
    // Some time within ten minutes, which is not now.
    let url = format!("{}/admin/reload?within=600s", daemon.admin);
    let waiting = ureq::post(url).config().timeout_global(Some(Duration::from_millis(100)));
    assert!(waiting.build().send_empty().is_err());
    assert_eq!(daemon.status()["day"], today().minus(1).to_string());
    assert_eq!(daemon.reload("?within=1s&filter=rt").0, 200);
    assert_eq!(daemon.status()["day"], today().to_string());
    // The end of the process does not wait for it.
    let url = format!("{}/admin/reload?within=600s", daemon.admin);
    let waiting = std::thread::spawn(move || {
        let post = ureq::post(url).config().http_status_as_error(false).build();
        post.send_empty().map(|answer| answer.status().as_u16())
    });
    // It has arrived before all of these, as good as always.
    (0..100).for_each(|_| drop(daemon.status()));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    assert!(waiting.join().unwrap().is_ok_and(|status| status == 503));
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.contains("while requests still run"), "{log}");
}

#[test]
fn a_missing_filter_is_looked_for_alone() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..2_000).publish();
    let daemon = Daemon::start(&backend, &["--filter", "rt", "--filter", "missing"]);
    daemon.until("the missing one was looked for thrice", |daemon| {
        let metrics = daemon.get("/metrics").body;
        let line = "bloomsday_polls_total{filter=\"missing\",result=\"failed\"} 3";
        metrics.lines().any(|l| l == line)
    });
    assert_eq!(daemon.metric("bloomsday_polls_total{filter=\"rt\",result=\"ok\"}"), 1);
}

#[test]
fn each_of_several_damaged_blobs_is_fetched_once() {
    let backend = Backend::local();
    (0..3).rev().for_each(|back| {
        Publisher::days_ago(&backend, back).users(0..2_000 + u64::from(back)).publish()
    });
    let blobs = PathBuf::from(&backend.store).join("rt/blobs");
    let each = || fs::read_dir(&blobs).unwrap().map(|blob| blob.unwrap().path());
    let damage = || {
        for blob in each() {
            let mut bytes = fs::read(&blob).unwrap();
            bytes[600] ^= 1;
            fs::write(&blob, bytes).unwrap();
        }
    };
    damage();
    let daemon = Daemon::start(&backend, &[]);
    let failed =
        |daemon: &Daemon| daemon.metric("bloomsday_polls_total{filter=\"rt\",result=\"failed\"}");
    daemon.until("it looked thrice", |daemon| failed(daemon) >= 3);
    let rejected = "bloomsday_loads_total{filter=\"rt\",result=\"rejected\",via=\"full\"}";
    assert_eq!(daemon.metric(rejected), 3, "a damaged blob was fetched again");
    // Mended in place: nothing in the records says so.
    damage();
    daemon.until("it loads the sound one", |daemon| daemon.status()["day"] == today().to_string());
}

/// A daemon that holds today's strangers back, for so long.
fn holding(backend: &Backend, longest: &str) -> Daemon {
    Publisher::days_ago(backend, 0).users(5_000_000..5_100_000).publish();
    let bad_day = fs::read(pointer(backend, "rt", 0)).unwrap();
    fs::remove_file(pointer(backend, "rt", 0)).unwrap();
    Publisher::days_ago(backend, 1).users(0..100_000).publish();
    let config = backend.folder.path().join("bloomsday.toml");
    let text = format!("[filters.rt]\nguard = \"hold\"\nguard_max_hold = \"{longest}\"\n");
    fs::write(&config, text).unwrap();
    let daemon = Daemon::ready(backend, &["--config", &config.display().to_string()]);
    let ids: String = (0..100_000).map(|n| user(n) + "\n").collect();
    for _ in 0..3 {
        assert_eq!(daemon.post("/v1/filters/rt/query", ids.as_bytes()).status, 200);
    }
    fs::write(pointer(backend, "rt", 0), bad_day).unwrap();
    assert_eq!(daemon.reload("").0, 409);
    assert_eq!(daemon.status()["held"], true);
    daemon
}

fn until_the_hold_is_over(daemon: &Daemon) {
    let until = daemon.status()["judged"]["held_until"].as_str().unwrap().to_owned();
    let until: jiff::Timestamp = until.parse().unwrap();
    daemon.until("the hold is over", |daemon| daemon.status()["held"] == false);
    let late = jiff::Timestamp::now().duration_since(until);
    assert!(late < jiff::SignedDuration::from_secs(10), "it ended {late:#} late");
    let status = daemon.status();
    assert_eq!(
        (&status["day"], &status["judged"]["verdict"]),
        (&today().to_string().into(), &"overdue".into())
    );
}

#[test]
fn a_hold_ends_on_time_while_the_store_is_away() {
    let backend = Backend::local();
    let daemon = holding(&backend, "6s");
    fs::rename(&backend.store, backend.folder.path().join("away")).unwrap();
    until_the_hold_is_over(&daemon);
}

#[test]
fn a_hold_ends_on_time_while_the_store_hangs() {
    let backend = Backend::local();
    let daemon = holding(&backend, "6s");
    let stuck = PathBuf::from(&backend.store).join("rt/pin");
    pipe(&stuck);
    until_the_hold_is_over(&daemon);
    // Lets the reader go, unless its deadline has ended it at this moment.
    let _ = fs::write(&stuck, "x");
}

#[test]
fn a_hold_that_ends_without_a_swap_is_reported_no_more() {
    let backend = Backend::local();
    let daemon = holding(&backend, "1h");
    let day = today().to_string();
    let nowhere = format!("rt/blobs/{day}-{}.bloom", "5".repeat(64));
    fs::write(pointer(&backend, "rt", 0), nowhere).unwrap();
    assert_eq!(daemon.reload("").0, 502);
    let status = daemon.status();
    assert_eq!((&status["held"], &status["judged"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn heartbeats_come_back_when_what_was_in_their_way_is_gone() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..2_000).publish();
    let servers = PathBuf::from(&backend.store).join("rt/servers");
    fs::write(&servers, "a file where their folder belongs").unwrap();
    let log = backend.folder.path().join("log");
    let daemon = Daemon::logging(&backend, &[], &log);
    let said = |_: &Daemon| fs::read_to_string(&log).unwrap().contains("does not list this server");
    daemon.until("it logged that it cannot write a heartbeat", said);
    fs::remove_file(&servers).unwrap();
    daemon
        .until("the heartbeat is written", |_| fs::read_dir(&servers).is_ok_and(|d| d.count() > 0));
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.matches("does not list").count(), 1, "{lines}");
}

#[test]
fn a_page_is_served_within_seconds_while_the_store_hangs() {
    let backend = Backend::local();
    let filters: Vec<String> = (0..5).map(|n| format!("f{n}")).collect();
    let mut words = Vec::new();
    for filter in &filters {
        Publisher::days_ago(&backend, 1).filter(filter).users(0..200).publish();
        words.extend(["--filter", filter]);
    }
    let daemon = Daemon::ready(&backend, &words);
    let mut stuck = Vec::new();
    for filter in &filters {
        let history = PathBuf::from(&backend.store).join(filter).join("history");
        for record in fs::read_dir(&history).unwrap().map(|record| record.unwrap().path()) {
            fs::remove_file(&record).unwrap();
            pipe(&record);
            stuck.push(record);
        }
    }
    assert!(stuck.len() >= filters.len());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(daemon.get("/page.json").status, 200));
        }
    });
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
