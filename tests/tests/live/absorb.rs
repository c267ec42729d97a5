//! The day takes over the live IDs that it has. What it lost stays, and is counted; a rollback and
//! a pin bring back what an older day lacks; and no lookup misses in between.

use std::sync::atomic::{AtomicBool, Ordering};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_rows};
use bloomsday_tests::live::Wire;
use bloomsday_tests::publisher::Publisher;

/// What yesterday has, and today too.
const OLD: std::ops::Range<u64> = 0..5_000;

fn serve(backend: &Backend) -> Daemon {
    serve_with(backend, "")
}

/// A server with these keys of the filter.
fn serve_with(backend: &Backend, keys: &str) -> Daemon {
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (config, data) = (path("live.toml"), path("data"));
    std::fs::write(&config, format!("[filters.rt]\nlive = \"decide\"\n{keys}")).unwrap();
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    Daemon::ready(backend, &more)
}

fn reload(daemon: &Daemon) {
    let (code, said) = daemon.reload("");
    assert_eq!(code, 200, "{said}");
}

fn live(daemon: &Daemon, field: &str) -> u64 {
    let status = daemon.status();
    status["live"][field].as_u64().unwrap_or_else(|| panic!("no {field} in {status}"))
}

/// How many of these are hits.
fn hits(daemon: &Daemon, ids: &[String]) -> usize {
    let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.lines().filter(|line| *line == "1").count()
}

#[test]
fn a_day_takes_over_what_it_has_and_a_rollback_brings_it_back_without_a_miss_in_between() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let daemon = serve(&backend);
    // None of them is a false positive of yesterday.
    let new: Vec<String> =
        (100_000..).map(user).filter(|id| !daemon.contains(id)).take(1_000).collect();
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    let added = wire.call(&format!("BF.MADD rt {}", new.join(" ")));
    assert!(added.starts_with("*1000|:1|"), "{added}");
    assert_eq!((live(&daemon, "entries"), live(&daemon, "unconfirmed")), (1_000, 0));
    // One is deleted, so that nothing may bring it back.
    assert_eq!(wire.call(&format!("SREM rt {}", new[0])), ":1|");
    let alive = &new[1..];

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut lookups = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(hits(&daemon, alive), alive.len(), "an added ID is a miss");
                lookups += 1;
            }
            lookups
        });
        // Also ends the lookups when something here fails.
        let over = Over(&is_over);

        // Today's input lost the last 100 of them.
        let input = backend.folder.path().join("today/a.parquet");
        write_rows(&input, OLD.map(user).chain(new[..900].to_vec()).map(Some));
        Publisher::day(&backend, today()).input(input.parent().unwrap()).publish();
        reload(&daemon);
        let (entries, unconfirmed) = (live(&daemon, "entries"), live(&daemon, "unconfirmed"));
        // Some that the input lost are false positives of the day's filter.
        assert!((85..=100).contains(&entries), "{entries} stay");
        assert!((88..=105).contains(&unconfirmed), "{unconfirmed} are unconfirmed");
        assert_eq!(daemon.status()["live"]["absorbed_day"], today().to_string());
        let metric = |name: &str| daemon.metric(&format!("bloomsday_live_{name}"));
        assert_eq!(metric("unconfirmed{filter=\"rt\"}"), unconfirmed);
        assert_eq!(metric("confirmed{filter=\"rt\"}"), 999 - entries);
        assert_eq!(metric("entries{filter=\"rt\"}"), entries);
        assert_eq!(metric("adds_total{filter=\"rt\",result=\"new\"}"), 1_000);
        assert_eq!(metric("deleted_total{filter=\"rt\"}"), 1);
        assert!(metric("memory_bytes{filter=\"rt\"}") > 16_000);

        let back = |words: &[&str]| {
            backend.bloomsday(words).run().expect(0);
            reload(&daemon);
        };
        let (day, yesterday) = (today().to_string(), today().minus(1).to_string());
        back(&["repoint", "rt", &day, "--to", &yesterday, "--reason", "a test"]);
        assert_eq!(live(&daemon, "entries"), 999, "a rollback brings all back");
        assert_eq!(live(&daemon, "unconfirmed"), 0);

        let blobs = std::path::Path::new(&backend.store).join("rt/blobs");
        let names = std::fs::read_dir(blobs).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names = names.map(|name| name.into_string().unwrap());
        let blob = names.find(|name| name.starts_with(&day)).unwrap();
        back(&["repoint", "rt", &day, "--to", &format!("rt/blobs/{blob}"), "--reason", "a test"]);
        assert_eq!(live(&daemon, "entries"), entries, "forward again");
        back(&["pin", "rt", "--to", &yesterday, "--until", "1h", "--reason", "a test"]);
        assert_eq!(live(&daemon, "entries"), 999, "a pin brings all back");
        back(&["unpin", "rt"]);
        assert_eq!(live(&daemon, "entries"), entries);
        drop(over);
        let lookups = looking.join().unwrap();
        assert!(lookups > 10, "{lookups} times all were looked up");
    });
    daemon.signal("KILL");
    daemon.wait();
    let daemon = serve(&backend);
    assert_eq!(hits(&daemon, alive), alive.len(), "after a kill and a start");
    assert_eq!(hits(&daemon, &new[..1]), 0, "what was deleted stays deleted");
    daemon.until("the day takes over again", |daemon| live(daemon, "entries") < 101);
}

/// Ends the lookups when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_filter_that_keeps_confirmed_ids_drops_nothing_at_a_swap() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let daemon = serve_with(&backend, "live_keep_confirmed = true\n");
    let ids: Vec<String> = (100_000..100_200).map(user).collect();
    let answer = daemon.post("/v1/filters/rt/add", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let publisher = Publisher::day(&backend, today()).users(0..101_000);
    publisher.with(&["--accept-change", "a test"]).publish();
    reload(&daemon);
    assert_eq!((live(&daemon, "entries"), live(&daemon, "confirmed")), (200, 200));
    assert_eq!(live(&daemon, "unconfirmed"), 0);
}

#[test]
fn without_a_log_nothing_is_dropped_because_it_could_not_come_back() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let config = backend.folder.path().join("live.toml");
    std::fs::write(&config, "[filters.rt]\nlive = \"decide\"\n").unwrap();
    let daemon = Daemon::ready(&backend, &["--config", config.to_str().unwrap()]);
    let ids: Vec<String> = (100_000..100_200).map(user).collect();
    let answer = daemon.post("/v1/filters/rt/add", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    Publisher::day(&backend, today())
        .users(0..101_000)
        .with(&["--accept-change", "a test"])
        .publish();
    reload(&daemon);
    assert_eq!((live(&daemon, "entries"), live(&daemon, "unconfirmed")), (200, 0));
    assert_eq!(daemon.status()["live"]["absorbed_day"], today().to_string());
    let (day, yesterday) = (today().to_string(), today().minus(1).to_string());
    let words = ["repoint", "rt", &day, "--to", &yesterday, "--reason", "a test"];
    backend.bloomsday(&words).run().expect(0);
    reload(&daemon);
    assert_eq!(hits(&daemon, &ids), 200);
}
