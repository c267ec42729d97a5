//! The daemon: it follows, answers, rolls back three ways, keeps its last good filter and stops
//! well.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;

/// Yesterday with users 0..5,000 and today with 2,500..7,500, published on a store.
fn two_days(backend: &Backend) -> (String, String) {
    let (before, day) = (today().minus(1).to_string(), today().to_string());
    Publisher::day(backend, &before).users(0..5_000).publish();
    Publisher::day(backend, &day).users(2_500..7_500).publish();
    (before, day)
}

/// The file of a day's pointer in a local store.
fn pointer(backend: &Backend, day: &str) -> PathBuf {
    PathBuf::from(&backend.store).join("rt/pointers").join(day)
}

/// IDs of yesterday only and of today only, none of them a false positive of the other day.
fn only(daemon: &Daemon, day: &str) -> String {
    let mut candidates = if day == today().to_string() { 5_000..7_500 } else { 0..2_500 };
    let found = candidates.find(|n| daemon.contains(&user(*n)) == (daemon.status()["day"] == *day));
    user(found.expect("not every ID is a false positive"))
}

#[test]
fn the_daemon_answers_every_route() {
    for backend in Backend::all() {
        let (_, day) = two_days(&backend);
        let daemon = Daemon::ready(&backend, &[]);
        assert!((2_500..2_600).all(|n| daemon.contains(&user(n))));
        let all: String = (2_500..7_500).map(|n| user(n) + "\n").collect();
        let answer = daemon.post("/v1/filters/rt/query", all.as_bytes());
        assert_eq!((answer.status, answer.day.as_deref()), (200, Some(day.as_str())));
        assert_eq!(answer.body, "1\n".repeat(5_000));

        let long = "x".repeat(1_025);
        let mixed = format!("{}\n\n{long}\n{}\r", user(2_500), user(2_500));
        let answer = daemon.post("/v1/filters/rt/query", mixed.as_bytes());
        assert_eq!(answer.body.lines().take(3).collect::<Vec<_>>(), ["1", "0", "0"]);
        assert_eq!(answer.body.lines().count(), 4, "a CR belongs to its ID");

        assert_eq!(daemon.get("/v1/filters/nope/ids/x").status, 404);
        assert_eq!(daemon.post("/v1/filters/nope/query", b"x").status, 404);
        assert_eq!(daemon.get("/nowhere").status, 404);
        assert_eq!(daemon.get("/v1/filters/rt/query").status, 405);
        assert_eq!(daemon.get("/livez").status, 200);
        assert_eq!(daemon.get("/readyz").status, 200);
        assert!(daemon.get("/version").body.contains("\"version\""));
        assert!(daemon.get("/").body.contains("rt"));

        let status = daemon.status();
        assert_eq!((&status["state"], &status["day"]), (&"ok".into(), &day.clone().into()));
        assert_eq!((&status["pointer_day"], &status["ids"]), (&day.into(), &5_000.into()));
        assert_eq!((&status["rolled_back"], &status["pinned"]), (&false.into(), &false.into()));

        let metrics = daemon.get("/metrics").body;
        for name in [
            "bloomsday_filter_info{day=\"",
            "bloomsday_filter_ready{filter=\"rt\"} 1",
            "bloomsday_filter_age_seconds{filter=\"rt\"}",
            "bloomsday_filter_bytes{filter=\"rt\"}",
            "bloomsday_filter_ids{filter=\"rt\"} 5000",
            "bloomsday_filter_fpp_ratio{filter=\"rt\",kind=\"measured\"}",
            "bloomsday_polls_total{filter=\"rt\",result=\"ok\"}",
            "bloomsday_loads_total{filter=\"rt\",result=\"ok\",via=\"full\"} 1",
            "bloomsday_load_duration_seconds",
            "bloomsday_last_success_timestamp_seconds",
            "bloomsday_lookups_total{filter=\"rt\",result=\"hit\"}",
        ] {
            assert!(metrics.contains(name), "no {name} in\n{metrics}");
        }
        assert!(!metrics.contains(&user(2_500)), "an ID in the metrics");
    }
}

#[test]
fn percent_encoded_bytes_are_an_id() {
    let backend = Backend::local();
    two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    let encoded: String = user(2_500).bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert!(daemon.contains(&encoded));
    assert_eq!(daemon.get("/v1/filters/rt/ids/%FF%00%0A").status, 200);
    for (id, remedy) in [("100%", "%25"), ("%zz", "%25"), ("https://e.org/a", "%2F")] {
        let answer = daemon.get(&format!("/v1/filters/rt/ids/{id}"));
        assert_eq!(answer.status, 400, "{id}: {}", answer.body);
        assert!(answer.body.contains(remedy), "{id}: {}", answer.body);
    }
    // What is left of an ID that is one dot, or two.
    for path in ["/v1/filters/rt/ids/", "/v1/filters/rt/"] {
        let answer = daemon.get(path);
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains("POST it to query"), "{}", answer.body);
    }
}

#[test]
fn a_repoint_and_a_reload_roll_back_and_forward() {
    for backend in Backend::all() {
        let (before, day) = two_days(&backend);
        let daemon = Daemon::ready(&backend, &[]);
        backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
        let (code, body) = daemon.reload("?filter=rt");
        assert_eq!((code, &body["filters"]["rt"]["outcome"]), (200, &"swapped".into()), "{body}");
        let status = daemon.status();
        assert_eq!(status["digest"], body["filters"]["rt"]["new"], "the reload answered too early");
        assert_eq!((&status["state"], &status["day"]), (&"rolled_back".into(), &before.into()));
        assert_eq!(status["pointer_day"], day);
        assert!((0..2_500).all(|n| daemon.contains(&user(n))));
        let (code, body) = daemon.reload("");
        assert_eq!((code, &body["filters"]["rt"]["outcome"]), (200, &"unchanged".into()));
        backend.bloomsday(&["repoint", "rt", &day, "--to", &day]).run().expect(0);
        assert_eq!(daemon.reload("").0, 200);
        assert_eq!(daemon.status()["state"], "ok");
    }
}

#[test]
fn copying_yesterdays_pointer_rolls_back() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    fs::copy(pointer(&backend, &before), pointer(&backend, &day)).unwrap();
    assert_eq!(daemon.reload("").0, 200);
    let status = daemon.status();
    assert_eq!((&status["state"], &status["day"]), (&"rolled_back".into(), &before.into()));
    assert_eq!((&status["rolled_back"], &status["pointer_day"]), (&true.into(), &day.into()));
}

#[test]
fn one_plain_line_rolls_back() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    let blobs = fs::read_dir(PathBuf::from(&backend.store).join("rt/blobs")).unwrap();
    let mut names = blobs.map(|blob| blob.unwrap().file_name().into_string().unwrap());
    let name = names.find(|name| name.starts_with(&before)).unwrap();
    for line in [
        format!("blobs/{name}"),
        format!("rt/blobs/{name}\n"),
        format!("{}/rt/blobs/{name}\n", backend.store),
    ] {
        backend
            .bloomsday(&["repoint", "rt", &day, "--to", &format!("rt/blobs/{name}")])
            .run()
            .expect(0);
        fs::write(pointer(&backend, &day), line).unwrap();
        assert_eq!(daemon.reload("").0, 200);
        assert_eq!(daemon.status()["state"], "rolled_back");
    }
}

#[test]
fn a_rollback_by_copy_under_load_gives_no_wrong_answer_and_no_failed_request() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    let published = fs::read(pointer(&backend, &day)).unwrap();
    // In both days: must be answered "yes" whichever filter answers.
    let common: String = (2_500..5_000).map(|n| user(n) + "\n").collect();
    let (stop, n_lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = daemon.post("/v1/filters/rt/query", common.as_bytes());
                    assert_eq!(answer.status, 200);
                    assert!(answer.body == "1\n".repeat(2_500), "an ID of both days was denied");
                    n_lookups.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..10 {
            fs::copy(pointer(&backend, &before), pointer(&backend, &day)).unwrap();
            assert_eq!(daemon.reload("").0, 200);
            assert_eq!(daemon.status()["day"], before);
            fs::write(pointer(&backend, &day), &published).unwrap();
            assert_eq!(daemon.reload("").0, 200);
            assert_eq!(daemon.status()["day"], day);
            let n_before = n_lookups.load(Ordering::Relaxed);
            daemon.until("a lookup was made", |_| n_lookups.load(Ordering::Relaxed) > n_before);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_poll_follows_without_a_reload() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let daemon = Daemon::ready(&backend, &["--poll-interval", "50ms"]);
    let today_only = only(&daemon, &day);
    assert!(daemon.contains(&today_only));
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    daemon.until("it rolled back", |daemon| daemon.status()["state"] == "rolled_back");
    backend.bloomsday(&["pin", "rt", "--to", &day]).run().expect(0);
    daemon.until("it follows the pin", |daemon| daemon.status()["state"] == "pinned");
    assert_eq!(daemon.status()["day"], day);
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
    daemon.until("it rolled back again", |daemon| daemon.status()["state"] == "rolled_back");
}

#[test]
fn before_anything_is_published_it_says_not_ready_and_never_absent() {
    let backend = Backend::local();
    fs::create_dir_all(&backend.store).unwrap();
    let daemon = Daemon::start(&backend, &[]);
    daemon.until("it has looked", |daemon| !daemon.status()["last_poll"].is_null());
    assert_eq!(daemon.get("/readyz").status, 503);
    assert_eq!(daemon.get("/livez").status, 200);
    assert_eq!(daemon.get("/v1/filters/rt/ids/x").status, 503);
    assert_eq!(daemon.post("/v1/filters/rt/query", b"x\n").status, 503);
    assert_eq!(daemon.status()["state"], "loading");
    assert_eq!(daemon.reload("").0, 502);
    Publisher::days_ago(&backend, 2).users(0..100).publish();
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.get("/readyz").status, 200);
    assert!(daemon.contains(&user(1)));
}

#[test]
fn an_unreadable_pointer_or_a_damaged_blob_keeps_the_last_good_filter() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let good = fs::read(pointer(&backend, &day)).unwrap();
    let daemon = Daemon::ready(&backend, &[]);
    let digest = daemon.status()["digest"].clone();
    fs::write(pointer(&backend, &day), "half a ro").unwrap();
    let (code, body) = daemon.reload("");
    assert_eq!((code, &body["filters"]["rt"]["outcome"]), (502, &"failed".into()));
    assert_eq!(
        (&daemon.status()["state"], &daemon.status()["digest"]),
        (&"failing".into(), &digest)
    );
    assert!(daemon.contains(&user(2_500)));

    // The rollback's blob is damaged.
    fs::copy(pointer(&backend, &before), pointer(&backend, &day)).unwrap();
    let blobs = fs::read_dir(PathBuf::from(&backend.store).join("rt/blobs")).unwrap();
    let damaged = blobs
        .map(|blob| blob.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&before))
        .unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let (code, body) = daemon.reload("");
    assert_eq!(code, 502);
    let reason = body["filters"]["rt"]["reason"].as_str().unwrap();
    assert!(reason.contains("damaged") && reason.contains(&before), "{reason}");
    assert_eq!(daemon.status()["digest"], digest);
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    assert_eq!(daemon.reload("").0, 200, "repaired, and an operator reloaded");
    fs::write(pointer(&backend, &day), good).unwrap();
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "ok");
}

#[test]
fn with_nothing_loaded_a_damaged_newest_blob_sends_it_a_day_back() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let blobs = fs::read_dir(PathBuf::from(&backend.store).join("rt/blobs")).unwrap();
    let newest = blobs
        .map(|blob| blob.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&day))
        .unwrap();
    let good = fs::read(&newest).unwrap();
    fs::write(&newest, &good[..good.len() - 100]).unwrap();
    let daemon = Daemon::ready(&backend, &[]);
    assert_eq!(
        (&daemon.status()["state"], &daemon.status()["day"]),
        (&"failing".into(), &before.into())
    );
    fs::write(&newest, &good).unwrap();
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!((&daemon.status()["state"], &daemon.status()["day"]), (&"ok".into(), &day.into()));
}

#[test]
fn a_start_without_the_store_answers_from_the_cache() {
    let backend = Backend::local();
    let (_, day) = two_days(&backend);
    let cache = backend.folder.path().join("cache").display().to_string();
    let kept = backend.folder.path().join("cache/rt/followed");
    let daemon = Daemon::ready(&backend, &["--cache-dir", &cache]);
    daemon.until("the blob is cached", |_| kept.exists());
    drop(daemon);
    // The pointers cannot even be listed: the store is a folder full of nothing readable.
    fs::remove_dir_all(PathBuf::from(&backend.store).join("rt")).unwrap();
    let daemon = Daemon::ready(&backend, &["--cache-dir", &cache]);
    let status = daemon.status();
    assert_eq!((&status["state"], &status["day"]), (&"failing".into(), &day.into()));
    assert!(daemon.contains(&user(2_500)));
}

#[test]
fn admin_takes_only_posts_with_the_token_and_never_from_a_web_page() {
    let backend = Backend::local();
    two_days(&backend);
    let token = backend.folder.path().join("token");
    fs::write(&token, "correct horse\n").unwrap();
    let token = token.display().to_string();
    let daemon = Daemon::ready(&backend, &["--admin-token-file", &token]);
    let url = format!("{}/admin/reload", daemon.admin);
    let send = |headers: &[(&str, &str)]| {
        let request = ureq::post(&url).config().http_status_as_error(false).build();
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send_empty().unwrap().status().as_u16()
    };
    assert_eq!(send(&[]), 401);
    assert_eq!(send(&[("Authorization", "Bearer wrong")]), 401);
    assert_eq!(send(&[("Authorization", "Bearer correct horse")]), 200);
    let page = ("Origin", "http://evil.example");
    assert_eq!(send(&[("Authorization", "Bearer correct horse"), page]), 403);
    let get = ureq::get(&url)
        .header("Authorization", "Bearer correct horse")
        .config()
        .http_status_as_error(false)
        .build();
    assert_eq!(get.call().unwrap().status().as_u16(), 405);
    // Whoever restarts a server that does not live has no token.
    let live = ureq::get(format!("{}/livez", daemon.admin)).call().unwrap();
    assert_eq!(live.status().as_u16(), 200);
    // The public address knows no admin routes.
    assert_eq!(daemon.post("/admin/reload", b"").status, 404);
    let serve = ["serve", "--filter", "rt", "--admin", "0.0.0.0:0", "--listen", "127.0.0.1:0"];
    backend.bloomsday(&serve).run().expect(2).complains(&["token", "0.0.0.0"]);
}

#[test]
fn signals_reload_and_stop() {
    let backend = Backend::local();
    let (before, day) = two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    fs::copy(pointer(&backend, &before), pointer(&backend, &day)).unwrap();
    daemon.signal("HUP");
    daemon.until("SIGHUP reloaded", |daemon| daemon.status()["state"] == "rolled_back");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn several_filters_are_served_by_one_process() {
    let backend = Backend::local();
    two_days(&backend);
    Publisher::days_ago(&backend, 0).filter("opted-out").users(90_000..90_100).publish();
    let daemon = Daemon::ready(&backend, &["--filter", "rt", "--filter", "opted-out"]);
    assert!(
        daemon.get(&format!("/v1/filters/opted-out/ids/{}", user(90_001))).body.contains("true")
    );
    assert!(daemon.contains(&user(2_500)));
    let (_, body) = daemon.reload("?filter=opted-out");
    assert_eq!(body["filters"].as_object().unwrap().len(), 1);
}

#[test]
fn a_client_that_never_finishes_its_request_is_cut_off() {
    let backend = Backend::local();
    two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    let address = daemon.public.strip_prefix("http://").unwrap();
    let stalled = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        // Only so that a server that never cuts it off fails the test instead of hanging it.
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server never ended the connection");
        answer
    };
    std::thread::scope(|scope| {
        scope.spawn(|| stalled("GET /status HTTP/1.1\r\nHost: x\r\nX-Half-A-Head"));
        scope.spawn(|| stalled(""));
        scope.spawn(|| {
            let head =
                "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n";
            let answer = stalled(&format!("{head}half a body"));
            assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        });
        let too_large = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                         Content-Length: 99999999999\r\n\r\n";
        scope.spawn(|| assert!(stalled(too_large).starts_with("HTTP/1.1 413")));
        assert!(daemon.contains(&user(2_500)), "others are served at the same time");
    });
}

#[test]
fn loads_run_at_the_lowest_priority() {
    let backend = Backend::local();
    two_days(&backend);
    let daemon = Daemon::ready(&backend, &[]);
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap();
    let nice = threads.filter_map(|thread| {
        let thread = thread.unwrap().path();
        let name = fs::read_to_string(thread.join("comm")).ok()?;
        let stat = fs::read_to_string(thread.join("stat")).ok()?;
        // The 19th field, counted after the name, which may have spaces in it.
        let (_, fields) = stat.rsplit_once(") ")?;
        Some((name.trim().to_owned(), fields.split(' ').nth(16)?.to_owned()))
    });
    let nice: Vec<(String, String)> = nice.collect();
    let of = |prefix: &str| nice.iter().find(|(name, _)| name.starts_with(prefix)).cloned();
    assert_eq!(of("bloomsday-polle").map(|(_, nice)| nice).as_deref(), Some("19"), "{nice:?}");
    assert!(nice.iter().any(|(_, nice)| nice == "0"), "lookups run at another: {nice:?}");
}
