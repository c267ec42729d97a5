//! Redis Streams: an engine tells followers at once, and whatever it loses is sent again; a feed
//! adds the IDs of a stream, at least once.
#![cfg(feature = "integration")]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::live::Wire;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;

pub(super) fn serve(backend: &Backend, role: &str, more: &str, flags: &[&str]) -> Daemon {
    let config = backend.folder.path().join(format!("{role}.toml")).display().to_string();
    let text = format!("[filters.rt]\nlive = \"{role}\"\n{more}");
    std::fs::write(&config, text).unwrap();
    let fixed = ["--config", &config, "--resp", "127.0.0.1:0"];
    Daemon::ready(backend, &[&fixed, flags].concat())
}

pub(super) fn wire(daemon: &Daemon) -> Wire {
    Wire::connect(daemon.resp.as_ref().unwrap())
}

pub(super) fn hits(daemon: &Daemon, ids: &[String]) -> usize {
    let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.lines().filter(|line| *line == "1").count()
}

pub(super) fn live(daemon: &Daemon, field: &str) -> serde_json::Value {
    daemon.status()["live"][field].clone()
}

#[test]
fn what_was_shipped_to_an_engine_is_never_lost_though_that_is_killed_and_wiped() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let mut redis = Redis::start();
    let engine = format!("live_engine = \"{}\"\n", redis.address());
    let data = backend.folder.path().join("data").display().to_string();
    let shipped = ["--data-dir", &data, "--ack", "shipped"];
    let decider = serve(&backend, "decide", &engine, &shipped);
    let follower = serve(&backend, "follow", &engine, &[]);
    let is_over = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            let (mut wire, mut all) = (wire(&decider), Vec::new());
            for n in (100_000..).step_by(20) {
                let ids: Vec<String> = (n..n + 20).map(user).collect();
                let reply = wire.call(&format!("SADD rt {}", ids.join(" ")));
                assert!(reply.starts_with(':'), "{reply}");
                all.extend(ids);
                if is_over.load(Ordering::Relaxed) && all.len() > 50 {
                    break;
                }
            }
            all
        });
        let over = Over(&is_over);
        for _ in 0..3 {
            let before = redis.command(&["XLEN", "bloomsday:rt"]);
            let began = Instant::now();
            while redis.command(&["XLEN", "bloomsday:rt"]) == before {
                assert!(began.elapsed() < Duration::from_secs(60), "nothing is shipped");
            }
            redis.kill();
            follower.until("it says so", |daemon| live(daemon, "engine_error").is_string());
            // Without what it had on its disk.
            redis.again(&["--appendonly", "no"]);
            follower.until("it is back", |daemon| live(daemon, "engine_error").is_null());
            // Wiped, but not killed.
            redis.command(&["FLUSHALL"]);
        }
        drop(over);
        adding.join().unwrap()
    });
    println!("{} IDs were acknowledged", acknowledged.len());
    follower.until("it has all", |daemon| hits(daemon, &acknowledged) == acknowledged.len());
    let late = serve(&backend, "follow", &engine, &[]);
    late.until("a new one has all", |daemon| hits(daemon, &acknowledged) == acknowledged.len());
    // With a quiet engine, what is added is on the follower long before the store has it: once in
    // several tries.
    let mut fastest = Duration::MAX;
    let mut client = wire(&decider);
    for n in 900_000..900_010 {
        let id = [user(n)];
        client.call(&format!("SADD rt {}", id[0]));
        let began = Instant::now();
        follower.until("it has one", |daemon| hits(daemon, &id) == 1);
        fastest = fastest.min(began.elapsed());
    }
    println!("on the follower {fastest:?} after the answer");
    assert!(fastest < Duration::from_millis(500), "{fastest:?}");
}

#[test]
fn what_an_engine_lost_is_sent_again_while_adds_go_on() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let redis = Redis::start();
    let path = |name: &str| backend.folder.path().join(name);
    let (config, log) = (path("bloomsday.toml"), path("log"));
    let engine = format!("live_engine = \"{}\"\n", redis.address());
    std::fs::write(&config, format!("[filters.rt]\nlive = \"decide\"\n{engine}")).unwrap();
    no_segments(&backend);
    let [config, data] = [config, path("data")].map(|path| path.display().to_string());
    let flags = ["--config", &config, "--resp", "127.0.0.1:0", "--data-dir", &data];
    let decider = Daemon::logging(&backend, &flags, &log);
    decider.until("it decides", |daemon| live(daemon, "decides") == true);
    decider.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
    let next = Cell::new(100_000);
    // About every ten milliseconds.
    let add = || {
        let id = user(next.replace(next.get() + 1));
        assert_eq!(decider.post("/v1/filters/rt/add", id.as_bytes()).status, 200);
    };
    let is_there = || redis.command(&["EXISTS", "bloomsday:rt"]) == ":1\r\n";
    decider.until("the engine has some", |_| {
        add();
        is_there()
    });
    redis.command(&["FLUSHALL"]);
    decider.until("it says so", |_| {
        add();
        std::fs::read_to_string(&log).unwrap().contains("they are sent again")
    });
    let all: Vec<String> = (100_000..next.get()).map(user).collect();
    let follower = serve(&backend, "follow", &engine, &[]);
    follower.until("it has all", |daemon| hits(daemon, &all) == all.len());
}

/// No segment can be written to the store: a file is in place of the day's folder, whose path is
/// returned.
pub(super) fn no_segments(backend: &Backend) -> PathBuf {
    let day = Path::new(&backend.store).join(format!("rt/live/{}", today()));
    std::fs::create_dir_all(day.parent().unwrap()).unwrap();
    std::fs::write(&day, "").unwrap();
    day
}

/// A store, the Redis of an engine, the keys of a configuration with it, and IDs that a decider has
/// acknowledged: it was killed just after, and has written nothing to the store.
fn ids_in_the_engine_only() -> (Backend, Redis, String, Vec<String>) {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let redis = Redis::start();
    let keys = format!("live_engine = \"{}\"\nlive_lease = \"6s\"\n", redis.address());
    let day = no_segments(&backend);
    let first = folder(&backend, "first");
    let decider = serve(&backend, "decide", &keys, &["--data-dir", &first, "--ack", "shipped"]);
    let new: Vec<String> =
        (100_000..).map(user).filter(|id| !decider.contains(id)).take(50).collect();
    let reply = wire(&decider).call(&format!("SADD rt {}", new.join(" ")));
    assert_eq!(reply, ":50|");
    decider.signal("KILL");
    decider.wait();
    std::fs::remove_file(&day).unwrap();
    (backend, redis, keys, new)
}

pub(super) fn folder(backend: &Backend, name: &str) -> String {
    backend.folder.path().join(name).display().to_string()
}

/// Starts a successor, and sees that none of these is new to it.
fn succeed(backend: &Backend, keys: &str, ids: &[String]) {
    let second = folder(backend, "second");
    let successor = serve(backend, "standby", keys, &["--data-dir", &second]);
    successor.until("it decides", |daemon| live(daemon, "decides") == true);
    assert_eq!(hits(&successor, ids), ids.len());
    let again = wire(&successor).call(&format!("SADD rt {}", ids.join(" ")));
    assert_eq!(again, ":0|", "they are new a second time");
}

#[test]
fn a_successor_has_what_is_in_the_engine_only() {
    let (backend, _redis, keys, new) = ids_in_the_engine_only();
    succeed(&backend, &keys, &new);
}

/// The lease is over when it starts, and the engine answers slowly.
#[test]
fn a_successor_decides_when_it_has_read_the_engine_to_its_end() {
    let (backend, redis, keys, new) = ids_in_the_engine_only();
    let other = serve(&backend, "standby", &keys, &["--data-dir", &folder(&backend, "third")]);
    other.until("the lease is over", |daemon| live(daemon, "decides") == true);
    other.signal("TERM");
    assert_eq!(other.wait(), 0);
    std::thread::scope(|threads| {
        // It has no reply before the pause ends.
        threads.spawn(|| redis.command(&["CLIENT", "PAUSE", "4000", "ALL"]));
        succeed(&backend, &keys, &new);
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn ids_of_a_stream_are_added_at_least_once_and_its_place_is_kept() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let redis = Redis::start();
    let from = format!("live_from = \"{}/0/clicks\"\n", redis.address());
    let data = backend.folder.path().join("data").display().to_string();
    let flags = ["--data-dir", &data];
    let write = |ids: &[String]| {
        for id in ids {
            redis.command(&["XADD", "clicks", "*", "campaign", "7", "id", id]);
        }
    };
    let ids: Vec<String> = (100_000..100_300).map(user).collect();
    write(&ids[..100]);
    redis.command(&["XADD", "clicks", "*", "other", "1", "fields", "2"]);
    let decider = serve(&backend, "decide", &from, &flags);
    decider.until("it has the first", |daemon| hits(daemon, &ids[..100]) == 100);
    write(&ids[100..200]);
    decider.until("it has the second", |daemon| hits(daemon, &ids[..200]) == 200);
    let place = backend.folder.path().join("data/live/rt.from");
    decider.until("the place is kept", |_| place.exists());
    decider.signal("KILL");
    decider.wait();
    write(&ids[200..]);
    let decider = serve(&backend, "decide", &from, &flags);
    decider.until("it has all", |daemon| hits(daemon, &ids) == 300);
    let adds = live(&decider, "added_new").as_u64().unwrap()
        + live(&decider, "added_seen").as_u64().unwrap();
    assert!((100..=200).contains(&adds), "{adds} were read after the start: not the whole stream");
    // What the stream dropped while nobody read it is counted as lost.
    let end = format!(":{} ", ids.len() + 1);
    let saved = || std::fs::read_to_string(&place).unwrap_or_default();
    decider.until("the end is known", |_| saved().contains(&end));
    decider.signal("KILL");
    decider.wait();
    write(&(200_000..200_050).map(user).collect::<Vec<_>>());
    redis.command(&["XTRIM", "clicks", "MAXLEN", "10"]);
    let decider = serve(&backend, "decide", &from, &flags);
    decider.until("it is counted", |daemon| live(daemon, "feed")["lost"] == 40);
    let kept: Vec<String> = (200_040..200_050).map(user).collect();
    decider.until("it has the others", |daemon| hits(daemon, &kept) == kept.len());
    // A stream that was lost begins anew.
    redis.command(&["DEL", "clicks"]);
    decider.until("it reads it from its beginning", |daemon| {
        redis.command(&["XADD", "clicks", "1-1", user(777_777).as_str(), "x"]);
        redis.command(&["DEL", "clicks"]);
        redis.command(&["XADD", "clicks", "5-1", "id", user(888_888).as_str()]);
        hits(daemon, &[user(888_888)]) == 1
    });
}

/// Nobody else can have read what its stream dropped.
#[test]
fn a_standby_that_decided_all_the_time_counts_what_is_lost() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let redis = Redis::start();
    let from = format!("live_from = \"{}/0/clicks\"\n", redis.address());
    let data = folder(&backend, "data");
    let write = |first: u64, many: u64, kept: u64| {
        let script = "for n = ARGV[1], ARGV[2] do redis.call('XADD', 'clicks', '*', 'id', n) end \
                      redis.call('XTRIM', 'clicks', 'MAXLEN', ARGV[3])";
        let [first, last, kept] = [first, first + many - 1, kept].map(|n| n.to_string());
        redis.command(&["EVAL", script, "0", &first, &last, &kept]);
    };
    write(1, 100, 100);
    let standby = serve(&backend, "standby", &from, &["--data-dir", &data]);
    let place = backend.folder.path().join("data/live/rt.from");
    let saved = || std::fs::read_to_string(&place).unwrap_or_default();
    standby.until("the end is known", |_| saved().contains(":100 "));
    // It connects again half a second later.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    write(101, 50, 10);
    standby.until("it is counted", |daemon| live(daemon, "feed")["lost"] == 40);
}

#[test]
fn ids_of_a_stream_that_are_urls_are_normalised_as_lookups_are() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).with(&["--id", "url"]).users(0..5_000).publish();
    let redis = Redis::start();
    redis.command(&["XADD", "pages", "*", "id", "http://Example.org:80/./a?y=2&x=1"]);
    let from = format!("id = \"url\"\nlive_from = \"{}/pages\"\n", redis.address());
    let decider = serve(&backend, "decide", &from, &[]);
    decider.until("it is read", |daemon| live(daemon, "feed")["read"] == 1);
    let reply = wire(&decider).call("BF.EXISTS rt https://example.org/a?x=1&y=2#top");
    assert_eq!(reply, ":1|");
}

#[test]
fn a_server_that_takes_ids_and_has_no_log_is_refused_with_an_engine() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let config = backend.folder.path().join("bloomsday.toml");
    for role in ["decide", "standby"] {
        let text =
            format!("[filters.rt]\nlive = \"{role}\"\nlive_engine = \"redis://127.0.0.1:1\"\n");
        std::fs::write(&config, text).unwrap();
        let words = ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--config"];
        let refused = backend.bloomsday(&[&words[..], &[config.to_str().unwrap()]].concat()).run();
        let refused = refused.expect(2);
        assert!(
            refused.stderr.contains("no log to send there: use a data folder"),
            "{}",
            refused.stderr
        );
    }
}
