//! The real daemon with a store and a disk that fail. Each kind of failure, case by case and a
//! month of them in a row, is in the server's own tests.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::user;
use bloomsday_tests::publisher::Publisher;

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_start_without_the_store_answers_from_the_cache_within_seconds() {
    let mut backend = Backend::s3();
    Publisher::days_ago(&backend, 0).users(0..5_000).publish();
    let cache = backend.folder.path().join("cache");
    let words = ["--cache-dir", &cache.display().to_string()];
    let daemon = Daemon::ready(&backend, &words);
    daemon.until("the blob is cached", |_| cache.join("rt/followed").exists());
    let digest = daemon.status()["digest"].clone();
    drop(daemon);
    // An address that takes connections and never says a word: its client waits half a minute.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let endpoint = backend.env.iter_mut().find(|(name, _)| *name == "AWS_ENDPOINT").unwrap();
    endpoint.1 = address;
    let began = Instant::now();
    let daemon = Daemon::ready(&backend, &words);
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for the store");
    assert!(daemon.contains(&user(1)));
    let status = daemon.status();
    assert_eq!((&status["state"], &status["digest"]), (&"failing".into(), &digest));
}

#[test]
fn a_full_disk_costs_the_cache_and_nothing_else() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..200_000).publish();
    let cache = backend.folder.path().join("cache");
    let (listen, dir) = ("127.0.0.1:0", cache.display().to_string());
    let words = ["serve", "--filter", "rt", "--listen", listen, "--admin", listen];
    let serve = backend.bloomsday(&[&words[..], &["--cache-dir", &dir]].concat()).into_command();
    // No file may grow past some KiB: writing more fails, as it does on a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 16; exec \"$@\"", "sh"]);
    limited.arg(serve.get_program()).args(serve.get_args());
    let daemon = Daemon::of(limited);
    daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
    for _ in 0..3 {
        // The write that fails comes after each answer.
        assert_eq!(daemon.reload("").0, 200);
    }
    assert!((0..100).all(|n| daemon.contains(&user(n))));
    assert_eq!(daemon.status()["state"], "ok");
    let mut files = vec![cache];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_ne!(path.file_name(), Some("followed".as_ref()), "half a blob is followed");
        }
    }
}

#[test]
fn a_store_that_disappears_takes_no_filter_with_it() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..5_000).publish();
    let daemon = Daemon::ready(&backend, &["--poll-interval", "20ms"]);
    let (store, away) = (PathBuf::from(&backend.store), backend.folder.path().join("away"));
    fs::rename(&store, &away).unwrap();
    daemon.until("it noticed", |daemon| daemon.status()["state"] == "failing");
    assert!((0..100).all(|n| daemon.contains(&user(n))));
    assert_eq!(daemon.get("/readyz").status, 200, "a stale filter is a ready one");
    fs::rename(&away, &store).unwrap();
    daemon.until("it recovered", |daemon| daemon.status()["state"] == "ok");
}
