//! Live IDs over a day's filter: one answer over HTTP, Redis's protocol and the library, whoever
//! added the ID; deletions that hide what the day has; and what a restart keeps.

use std::path::Path;
use std::time::{Duration, Instant};

use bloomsday_server::live::{Live, LiveConfig, LiveRole};
use bloomsday_server::{Config, FilterConfig, start};
use bloomsday_tests::INTEGRATION;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::live::{LiveDaemon, Wire, encode};
use bloomsday_tests::nginx::Nginx;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;
use bloomsday_tests::wait::DEADLINE;

/// A store with a filter of today, and a configuration in which it takes IDs.
fn backend() -> Backend {
    let backend = Backend::local();
    Publisher::day(&backend, today()).users(0..5_000).publish();
    let config = "[filters.rt]\nlive = \"decide\"\n";
    std::fs::write(backend.folder.path().join("live.toml"), config).unwrap();
    backend
}

fn serve(backend: &Backend) -> Daemon {
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (config, data) = (path("live.toml"), path("data"));
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    Daemon::ready(backend, &more)
}

/// What Redis clients are answered about an ID.
fn clients(daemon: &Daemon, id: &str) -> [String; 3] {
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    ["BF.EXISTS", "SISMEMBER", "SMISMEMBER"].map(|command| wire.call(&format!("{command} rt {id}")))
}

#[track_caller]
fn everybody_says(daemon: &Daemon, id: &str, contains: bool) {
    let digit = u8::from(contains);
    assert_eq!(daemon.contains(id), contains, "{id}");
    let answer = daemon.post("/v1/filters/rt/query", id.as_bytes());
    assert_eq!(answer.body, format!("{digit}\n"), "{id}");
    let [bf, set, many] = clients(daemon, id);
    let one = format!(":{digit}|");
    assert_eq!((&*bf, &*set, &*many), (&*one, &*one, &*format!("*1|{one}")), "{id}");
}

fn post(daemon: &Daemon, act: &str, ids: &[&str]) -> String {
    let answer = daemon.post(&format!("/v1/filters/rt/{act}"), ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.replace('\n', "")
}

#[test]
fn an_added_id_counts_at_once_however_it_is_added_and_looked_up() {
    let backend = backend();
    let daemon = serve(&backend);
    // Not false positives of the day.
    let mut absent = (5_000..).map(user).filter(|id| !daemon.contains(id));
    let [a, b, c] = std::array::from_fn(|_| absent.next().unwrap());
    let (old, other) = (user(10), user(11));
    everybody_says(&daemon, &a, false);
    everybody_says(&daemon, &old, true);
    assert_eq!(post(&daemon, "add", &[&a, &b, &a, &old]), "1100");
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    assert_eq!(wire.call(&format!("BF.MADD rt {a} {c} {other}")), "*3|:0|:1|:0|");
    for id in [&a, &b, &c, &old, &other] {
        everybody_says(&daemon, id, true);
    }
    assert_eq!(post(&daemon, "forget", &[&b, &old, "stranger-1"]).get(..2), Some("11"));
    assert_eq!(wire.call(&format!("SREM rt {other}")), ":1|");
    for id in [&b, &old, &other] {
        everybody_says(&daemon, id, false);
    }
    // The operator's page says what the days alone do not.
    for (id, live) in [(&a, "added"), (&b, "deleted"), (&user(12), "no")] {
        let url = format!("{}/v1/filters/rt/trace?id={id}&days=1", daemon.admin);
        let trace = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        assert!(trace.contains(&format!(r#""live":"{live}""#)), "{trace}");
    }
    // What was hidden is new when it comes again.
    assert_eq!(post(&daemon, "add", &[&old]), "1");
    assert_eq!(wire.call("DEL rt"), "-ERR a filter of the configuration cannot be deleted|");
    for seconds in ["10", "-1"] {
        let reply = wire.call(&format!("EXPIRE rt {seconds}"));
        assert_eq!(reply, "-ERR the live IDs of a day's filter have no end|");
    }
    daemon.signal("KILL");
    daemon.wait();

    let daemon = serve(&backend);
    for (id, contains) in [(&a, true), (&b, false), (&c, true), (&old, true), (&other, false)] {
        everybody_says(&daemon, id, contains);
    }
    assert_eq!(daemon.post("/v1/filters/xy/add", b"a").status, 404);
}

#[test]
fn nobody_is_told_that_an_id_of_the_day_is_new_before_the_day_is_loaded() {
    let backend = backend();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (blobs, away) = (format!("{}/rt/blobs", backend.store), path("away"));
    std::fs::rename(&blobs, &away).unwrap();
    let (config, data) = (path("live.toml"), path("data"));
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    let daemon = Daemon::start(&backend, &more);
    let failed = |daemon: &Daemon| daemon.status()["last_error"].is_string();
    daemon.until("the day cannot be loaded", failed);
    let id = user(10);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    for command in
        ["BF.EXISTS", "SISMEMBER", "SMISMEMBER", "BF.ADD", "BF.MADD", "SADD", "SREM", "BF.INSERT"]
    {
        let items = if command == "BF.INSERT" { "ITEMS " } else { "" };
        let reply = wire.call(&format!("{command} rt {items}{id}"));
        assert!(reply.starts_with("-LOADING "), "{command}: {reply}");
    }
    for act in ["add", "forget"] {
        let answer = daemon.post(&format!("/v1/filters/rt/{act}"), id.as_bytes());
        assert_eq!(answer.status, 503, "{act}: {}", answer.body);
        assert!(answer.body.contains("not loaded yet\"}"), "{}", answer.body);
    }
    std::fs::rename(&away, &blobs).unwrap();
    assert_eq!(daemon.reload("").0, 200);
    everybody_says(&daemon, &id, true);
    assert_eq!(wire.call(&format!("BF.ADD rt {id}")), ":0|");
    let info = wire.call("BF.INFO rt");
    assert!(info.contains("Number of filters|:1|"), "{info}");
}

#[test]
fn a_restart_without_pointers_knows_the_day_in_its_cache_before_it_takes_ids() {
    let backend = backend();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (config, data, cache) = (path("live.toml"), path("data"), path("cache"));
    let more = ["--config", &config, "--data-dir", &data, "--cache-dir", &cache];
    let more = [&more[..], &["--resp", "127.0.0.1:0"]].concat();
    let daemon = Daemon::ready(&backend, &more);
    // Written after the blob.
    let is_cached = |_: &Daemon| std::path::Path::new(&cache).join("rt/followed").exists();
    daemon.until("the day is in the cache", is_cached);
    daemon.signal("TERM");
    daemon.wait();
    std::fs::remove_dir_all(format!("{}/rt/pointers", backend.store)).unwrap();
    for _ in 0..5 {
        let daemon = Daemon::start(&backend, &more);
        // Looked up without a pause: the time between the store's answer and the cache's is short.
        let (mut wire, began) = (Wire::connect(daemon.resp.as_ref().unwrap()), Instant::now());
        let answer = loop {
            let answer = wire.call(&format!("BF.EXISTS rt {}", user(10)));
            if !answer.starts_with("-LOADING ") {
                break answer;
            }
            assert!(began.elapsed() < DEADLINE, "it does not load");
        };
        assert_eq!(answer, ":1|");
    }
}

#[test]
fn a_follower_that_is_loading_sends_adds_elsewhere() {
    let backend = backend();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let config = path("follow.toml");
    std::fs::write(&config, "[filters.rt]\nlive = \"follow\"\n").unwrap();
    std::fs::rename(format!("{}/rt/blobs", backend.store), path("away")).unwrap();
    let daemon = Daemon::start(&backend, &["--config", &config, "--resp", "127.0.0.1:0"]);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    for line in ["BF.ADD rt x", "BF.MADD rt x y", "SADD rt x", "SREM rt x"] {
        let reply = wire.call(line);
        assert!(reply.starts_with("-READONLY "), "{line}: {reply}");
    }
    assert!(wire.call("BF.EXISTS rt x").starts_with("-LOADING "));
}

#[test]
fn live_ids_answer_alone_until_a_first_day_is_published() {
    let backend = Backend::local();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let config = path("live.toml");
    std::fs::create_dir_all(&backend.store).unwrap();
    std::fs::write(&config, "[filters.rt]\nlive = \"decide\"\n").unwrap();
    let more = ["--config", &config, "--data-dir", &path("data"), "--resp", "127.0.0.1:0"];
    let daemon = Daemon::start(&backend, &more);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    // Until the store was read, nobody knows that there is no day.
    daemon.until("it takes IDs", |_| wire_call(&daemon, "BF.ADD rt a") == ":1|");
    assert_eq!(wire.call("BF.MEXISTS rt a b"), "*2|:1|:0|");
    assert_eq!(daemon.post("/v1/filters/rt/add", b"a\nb").body, "0\n1\n");
    assert_eq!(daemon.post("/v1/filters/rt/query", b"a\nc\nb").body, "1\n0\n1\n");
    assert!(daemon.contains("a") && !daemon.contains("c"));
    let ready = daemon.get("/readyz");
    assert_eq!((ready.status, &*ready.body), (200, "ready\n"));
    assert_eq!(daemon.metric("bloomsday_filter_ready{filter=\"rt\"}"), 1);
}

/// A poll that finds no day went well only where none is needed.
#[test]
fn whoever_waits_for_a_day_or_lost_its_own_has_no_successful_poll() {
    let backend = Backend::local();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let config = path("live.toml");
    let is_ready = "bloomsday_filter_ready{filter=\"rt\"}";
    std::fs::create_dir_all(&backend.store).unwrap();
    std::fs::write(&config, "[filters.rt]\nlive = \"follow\"\n").unwrap();
    let daemon = Daemon::start(&backend, &["--config", &config, "--resp", "127.0.0.1:0"]);
    daemon.until("a round fails", |daemon| daemon.reload("").0 == 502);
    assert_eq!(daemon.get("/readyz").status, 503);
    assert_eq!(daemon.metric(is_ready), 0);
    assert_eq!(daemon.status()["last_success"], serde_json::Value::Null);
    assert_eq!(daemon.get("/v1/filters/rt/ids/a").status, 503);
    assert!(wire_call(&daemon, "BF.EXISTS rt a").starts_with("-LOADING "));
    // The name is not wrong when others have live IDs of it.
    let (lead, data) = (path("lead.toml"), path("data"));
    std::fs::write(&lead, "[filters.rt]\nlive = \"decide\"\n").unwrap();
    let decider = Daemon::ready(&backend, &["--config", &lead, "--data-dir", &data]);
    assert_eq!(decider.post("/v1/filters/rt/add", b"a").status, 200);
    daemon.until("it follows", |daemon| {
        daemon.get("/v1/filters/rt/ids/a").body.contains("\"contains\":true")
    });
    assert_eq!((daemon.get("/readyz").status, daemon.metric(is_ready)), (200, 1));
    assert_eq!(wire_call(&daemon, "BF.EXISTS rt a"), ":1|");
    decider.signal("TERM");
    assert_eq!(decider.wait(), 0);
    drop(daemon);

    std::fs::write(&config, "[filters.rt]\nlive = \"decide\"\n").unwrap();
    Publisher::day(&backend, today()).users(0..5_000).publish();
    let daemon = Daemon::ready(&backend, &["--config", &config, "--data-dir", &path("other")]);
    let last = daemon.status()["last_success"].clone();
    std::fs::remove_dir_all(format!("{}/rt/pointers", backend.store)).unwrap();
    let (code, said) = daemon.reload("");
    assert_eq!(code, 502, "{said}");
    assert_eq!(daemon.status()["last_success"], last);
    assert_eq!(daemon.metric(is_ready), 1, "its day still answers");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_redis_that_lost_the_pointers_makes_no_new_filter_of_one_with_days() {
    let redis = Redis::start();
    let mut backend = Backend::local();
    backend.env.push(("BLOOMSDAY_POINTERS", redis.address()));
    Publisher::day(&backend, today()).users(0..5_000).publish();
    std::fs::write(backend.folder.path().join("live.toml"), "[filters.rt]\nlive = \"decide\"\n")
        .unwrap();
    redis.command(&["FLUSHALL"]);
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (config, data) = (path("live.toml"), path("data"));
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    let why = format!("although {} was published: the pointers were lost", today());
    answers_nothing(&Daemon::start(&backend, &more), &why);
}

/// Builds have stopped for longer than servers follow: what it holds is not nothing.
#[test]
fn a_day_that_is_too_old_is_not_taken_for_none() {
    let backend = backend();
    let pointers = std::path::Path::new(&backend.store).join("rt/pointers");
    let (today, old) = (today().to_string(), today().minus(30).to_string());
    std::fs::rename(pointers.join(today), pointers.join(&old)).unwrap();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (config, data) = (path("live.toml"), path("data"));
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    answers_nothing(&Daemon::start(&backend, &more), &format!("the newest is of {old}"));
    if INTEGRATION {
        // A plain HTTP server, which has no list of days.
        let server = Nginx::of(std::path::Path::new(&backend.store));
        let folder = tempfile::tempdir().unwrap();
        let backend = Backend { store: server.url(""), env: Vec::new(), folder };
        answers_nothing(&Daemon::start(&backend, &more), "has no pointer for any day from");
    }
}

/// What a live server answers that has looked and found no day, which may be there.
fn answers_nothing(daemon: &Daemon, why: &str) {
    daemon.until("it has looked", |daemon| {
        daemon.status()["last_error"].as_str().is_some_and(|error| error.contains(why))
    });
    assert_eq!(daemon.get("/readyz").status, 503);
    assert_eq!(daemon.post("/v1/filters/rt/query", b"a").status, 503);
    let status = daemon.post("/v1/filters/rt/add", b"a").status;
    assert!([409, 503].contains(&status), "{status}");
    let reply = wire_call(daemon, "BF.EXISTS rt a");
    assert!(reply.starts_with("-LOADING "), "{reply}");
}

fn wire_call(daemon: &Daemon, line: &str) -> String {
    Wire::connect(daemon.resp.as_ref().unwrap()).call(line)
}

#[test]
fn lookups_of_redis_clients_are_counted_as_all_others() {
    let backend = backend();
    let daemon = serve(&backend);
    let absent = (5_000..).map(user).find(|id| !daemon.contains(id)).unwrap();
    let (before, id) = (daemon.status(), user(10));
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    wire.call(&format!("BF.EXISTS rt {id}"));
    wire.call(&format!("SMISMEMBER rt {id} {absent}"));
    // Two that are run together.
    let request = |id: &str| encode(&[b"SISMEMBER", b"rt", id.as_bytes()]);
    wire.send(&[request(&id), request(&absent)].concat()).unwrap();
    wire.reply().unwrap();
    wire.reply().unwrap();
    let after = daemon.status();
    let more = |field: &str| after[field].as_u64().unwrap() - before[field].as_u64().unwrap();
    assert_eq!((more("hits"), more("misses")), (3, 2), "{after}");
}

#[test]
fn answers_to_changes_are_json_for_whoever_wants_that_and_an_error_names_the_line() {
    let backend = backend();
    let daemon = serve(&backend);
    let url = format!("{}/v1/filters/rt/add", daemon.public);
    let mut absent = (5_000..).map(user).filter(|id| !daemon.contains(id));
    let [a, b, c] = std::array::from_fn(|_| absent.next().unwrap());
    let body = format!("{a}\n{}\n{b}", user(10));
    let request = ureq::post(&url).header("accept", "application/json");
    let answer = request.send(&body).unwrap().body_mut().read_to_string().unwrap();
    assert_eq!(answer, "[true,false,true]\n");
    let answer = daemon.post("/v1/filters/rt/add", format!("{c}\n\nx").as_bytes());
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("line 2: an ID has 1 to 1,024 bytes"), "{}", answer.body);
    assert!(!daemon.contains(&c), "it was added");
}

#[test]
fn a_filter_that_is_not_live_takes_no_ids() {
    let backend = backend();
    let daemon = Daemon::ready(&backend, &[]);
    let answer = daemon.post("/v1/filters/rt/add", b"a");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("takes no IDs"), "{}", answer.body);
}

/// A filter that clients make under its name would answer "never seen" for the IDs of the day.
#[test]
fn redis_clients_get_an_error_for_a_filter_that_has_no_live_ids_here() {
    let backend = backend();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    // Before the configuration had it, clients made one of this name.
    let alone = LiveDaemon::on(Path::new(&path("data")), &[]);
    assert_eq!(alone.connect().call("BF.ADD rt old"), ":1|");
    alone.kill();

    // `rt` is served without live IDs, `else` is not served, and was.
    std::fs::write(path("live.toml"), "[filters.rt]\n[filters.else]\nlive = \"decide\"\n").unwrap();
    Publisher::day(&backend, today()).filter("else").users(0..5_000).publish();
    let (config, data) = (path("live.toml"), path("data"));
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0", "--filter"];
    let before = Daemon::ready(&backend, &[&more[..], &["else"]].concat());
    assert_eq!(wire_call(&before, "BF.ADD else unshipped"), ":1|");
    before.signal("KILL");
    before.wait();
    let daemon = Daemon::ready(&backend, &[&more[..], &["rt"]].concat());
    for name in ["rt", "else"] {
        for command in ["BF.EXISTS", "SISMEMBER", "BF.ADD", "SADD", "CF.COUNT"] {
            let reply = wire_call(&daemon, &format!("{command} {name} a"));
            let error =
                format!("-ERR `{name}` is a filter of the configuration that has no live IDs");
            assert!(reply.starts_with(&error), "{command}: {reply}");
        }
    }
    assert_eq!(wire_call(&daemon, "BF.ADD other a"), ":1|");
    // Nor are they listed: clients such as `redis-cli --bigkeys` go through what SCAN returns.
    assert_eq!(wire_call(&daemon, "KEYS *"), "*1|$5|other|");
    assert_eq!(wire_call(&daemon, "DBSIZE"), ":1|");
    assert_eq!(wire_call(&daemon, "DEL rt"), ":1|");
    assert_eq!(wire_call(&daemon, "DEL rt"), ":0|");
    // Its log may have IDs that are nowhere else.
    let kept = "-ERR a filter of the configuration cannot be deleted|";
    assert_eq!(wire_call(&daemon, "DEL else"), kept);
    // The other databases are the clients' own.
    let mut wire = Wire::connect(daemon.resp.as_deref().unwrap());
    assert_eq!(wire.call("SELECT 1"), "+OK|");
    assert_eq!(wire.call("BF.ADD rt a"), ":1|");
    drop(wire);
    daemon.signal("TERM");
    daemon.wait();

    // Without the configuration it has no end either, which would count when it is back.
    let alone = LiveDaemon::on(Path::new(&path("data")), &[]);
    let no_end = "-ERR the live IDs of a day's filter have no end|";
    assert_eq!(alone.connect().call("EXPIRE else 100"), no_end);
    assert_eq!(alone.connect().call("EXPIRE else 0"), no_end);
    assert_eq!(alone.connect().call("BF.EXISTS else unshipped"), ":1|");
    assert_eq!(alone.connect().call("DEL else"), ":1|");
    alone.kill();
}

#[test]
fn a_change_that_memory_ends_in_the_middle_says_how_much_is_made() {
    let backend = backend();
    let config = "[filters.rt]\nlive = \"decide\"\n[resp]\nlive_memory = \"2MiB\"\n";
    std::fs::write(backend.folder.path().join("live.toml"), config).unwrap();
    let daemon = serve(&backend);
    let ids: Vec<String> = (10_000..400_000).map(user).collect();
    let answer = daemon.post("/v1/filters/rt/add", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 503, "{}", answer.body);
    let first = answer.body.split("; the first ").nth(1);
    let first =
        first.and_then(|rest| rest.split(' ').next()).unwrap_or_else(|| panic!("{}", answer.body));
    let made: usize = first.parse().unwrap();
    assert!(made > 1_000 && made < ids.len(), "{made}");
    let answer = daemon.post("/v1/filters/rt/query", ids[..made].join("\n").as_bytes());
    assert_eq!(answer.body, "1\n".repeat(made));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_adds_and_looks_up_too() {
    let backend = backend();
    let live = Live::open(LiveConfig::new(Some(backend.folder.path().join("library")))).unwrap();
    let mut filter = FilterConfig::new("rt".parse().unwrap());
    filter.live_days = Some(3);
    let mut config = Config::new(&backend.store, vec![filter]);
    config.live = Some(live);
    let bloomsday = start(config).await.unwrap();
    let rt = bloomsday.filter("rt").unwrap();
    let mut reader = rt.reader();
    let absent: Vec<String> =
        (5_000..).map(user).filter(|id| !rt.contains(id.as_bytes())).take(600).collect();
    let mut answers = vec![false; absent.len()];
    rt.add_batch(&absent, &mut answers).await.unwrap();
    assert!(answers.iter().all(|new| *new));
    assert!(!rt.add(absent[0].as_bytes()).await.unwrap());
    assert!(!rt.add(user(1).as_bytes()).await.unwrap(), "the day has it");
    let mut answers = vec![false; absent.len()];
    rt.contains_batch(&absent, &mut answers);
    assert!(answers.iter().all(|hit| *hit));
    reader.contains_batch(&absent, &mut answers);
    assert!(answers.iter().all(|hit| *hit) && reader.contains(absent[7].as_bytes()));
    let mut was = [false; 3];
    rt.forget_batch(&[&*user(1), &*absent[7], "stranger"], &mut was).await.unwrap();
    assert_eq!(was[..2], [true, true]);
    assert!(!rt.contains(user(1).as_bytes()) && !reader.contains(absent[7].as_bytes()));
    assert!(rt.add(b"").await.unwrap_err().to_string().contains("1 to 1,024 bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_is_not_ready_before_it_has_read_what_others_added() {
    let backend = backend();
    // A round of following hangs at it.
    let lease = std::path::Path::new(&backend.store).join("rt/live/lease");
    std::fs::create_dir_all(lease.parent().unwrap()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lease).status().unwrap().success());
    let mut filter = FilterConfig::new("rt".parse().unwrap());
    (filter.live_days, filter.live_role) = (Some(3), LiveRole::Follow);
    let mut config = Config::new(&backend.store, vec![filter]);
    config.start_deadline = Duration::from_secs(3);
    let why = start(config).await.unwrap_err().to_string();
    assert!(why.contains("the live IDs of other servers are still being read"), "{why}");
    drop(std::fs::File::options().write(true).open(&lease).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_starts_on_a_store_without_a_day_when_there_are_live_ids() {
    let backend = Backend::local();
    std::fs::create_dir_all(&backend.store).unwrap();
    let mut filter = FilterConfig::new("rt".parse().unwrap());
    filter.live_days = Some(3);
    let mut config = Config::new(&backend.store, vec![filter]);
    config.live = Some(Live::open(LiveConfig::new(None)).unwrap());
    config.start_deadline = Duration::from_secs(20);
    let bloomsday = start(config).await.unwrap();
    let rt = bloomsday.filter("rt").unwrap();
    assert!(rt.add(b"x").await.unwrap());
    assert!(rt.contains(b"x") && !rt.contains(b"y") && bloomsday.is_ready());
}
