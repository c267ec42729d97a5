//! A store records where its pointers are. A command or server with another setting reads and
//! writes none of them: without the Redis address, with one too many, or with another key template.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bloomsday_tests::azure::Azure;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;

const MARKER: &str = "rt/store.json";

/// A build of the day `back` days ago, from the first users.
fn build(backend: &Backend, back: u32, users: u64) -> Publisher<'_> {
    Publisher::days_ago(backend, back).users(0..users)
}

/// Builds yesterday and today.
fn build_two_days(backend: &Backend) {
    for back in [1, 0] {
        build(backend, back, 1_000 + u64::from(back)).publish();
    }
}

/// The same store, with another setting for its pointers.
fn with_pointers(backend: &Backend, pointers: Option<&Redis>) -> Backend {
    let mut env = backend.env.clone();
    env.retain(|(name, _)| *name != "BLOOMSDAY_POINTERS");
    env.extend(pointers.map(|redis| ("BLOOMSDAY_POINTERS", redis.address())));
    let folder = tempfile::TempDir::new().unwrap();
    Backend { store: backend.store.clone(), env, folder }
}

/// Every command that reads or writes pointers ends with 2, and says what to set.
#[track_caller]
fn refused(backend: &Backend, remedy: &[&str]) {
    let (day, before) = (today().to_string(), today().minus(1).to_string());
    let other = || build(backend, 0, 1_100);
    let builds = [other().prepare(), other().with(&["--dry-run"]).prepare()];
    let serve = ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let others = [
        &["repoint", "rt", &day, "--to", &before][..],
        &["repoint", "rt", &day, "--to", &before, "--dry-run"],
        &["pin", "rt", "--to", &before],
        &["unpin", "rt"],
        &["status"],
        &["status", "rt"],
        &["history", "rt"],
        &["query", "rt", &user(7)],
        &["trace", "rt", &user(7), "--days", "2"],
        &["prune"],
        &["prune", "rt", "--dry-run"],
        &serve,
    ];
    for command in builds.into_iter().chain(others.map(|words| backend.bloomsday(words))) {
        command.run().expect(2).complains(&[MARKER]).complains(remedy);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_store_that_holds_its_pointers_refuses_a_redis_on_every_kind_of_store() {
    let (azure, redis) = (Azure::start(), Redis::start());
    for backend in [Backend::local(), Backend::s3(), azure.backend("marked")] {
        build_two_days(&backend);
        let other = with_pointers(&backend, Some(&redis));
        refused(&other, &["BLOOMSDAY_POINTERS", "in the store"]);
        assert_eq!(redis.command(&["DBSIZE"]), ":0\r\n");
        backend.bloomsday(&["query", "rt", &user(7)]).run().expect(0);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_store_with_its_pointers_in_redis_refuses_to_hold_any_on_every_kind_of_store() {
    let (azure, redis) = (Azure::start(), Redis::start());
    for backend in [Backend::local(), Backend::s3(), azure.backend("elsewhere")] {
        redis.command(&["FLUSHALL"]);
        let with = with_pointers(&backend, Some(&redis));
        build_two_days(&with);
        refused(&backend, &["pointers = \"redis://", "{filter}_{day:%Y%m%d}"]);
        let status = with.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!(status["pointers"].as_array().unwrap().len(), 2);
        with.bloomsday(&["query", "rt", &user(7)]).run().expect(0);
        if !backend.store.contains("://") {
            assert!(!Path::new(&backend.store).join("rt/pointers").exists());
        }
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn another_key_template_is_another_place() {
    let redis = Redis::start();
    let backend = with_pointers(&Backend::local(), Some(&redis));
    build(&backend, 0, 1_000).publish();
    let config = backend.folder.path().join("other.toml");
    fs::write(&config, "pointers_key = \"prod/{filter}/{day}\"\n").unwrap();
    let words = ["status", "rt", "--config", config.to_str().unwrap()];
    let refused = backend.bloomsday(&words).run().expect(2);
    refused.complains(&[MARKER, "pointers_key", "{filter}_{day:%Y%m%d}", "prod/{filter}/{day}"]);
}

#[test]
fn a_store_without_a_marker_goes_on_and_gets_one() {
    for backend in Backend::all() {
        let marked = || backend.read(MARKER).map(|bytes| String::from_utf8(bytes).unwrap());
        let (day, before) = (today().to_string(), today().minus(1).to_string());
        build_two_days(&backend);
        let marker = marked().expect("the first build leaves a marker");
        assert!(marker.contains("\"pointers\": \"store\""), "{marker}");
        // As in the store of an older version, or in a copy without the marker.
        for (name, command) in [
            ("the same build", build(&backend, 0, 1_000).prepare()),
            ("another build", build(&backend, 0, 1_200).prepare()),
            ("repoint", backend.bloomsday(&["repoint", "rt", &day, "--to", &before])),
            ("pin", backend.bloomsday(&["pin", "rt", "--to", &before])),
        ] {
            backend.remove(MARKER);
            backend.bloomsday(&["status", "rt"]).run().expect(0);
            backend.bloomsday(&["query", "rt", &user(7)]).run().expect(0);
            assert_eq!(marked(), None, "reading leaves nothing");
            command.run().expect(0);
            assert_eq!(marked().as_ref(), Some(&marker), "{name}");
        }
        let filters = backend.bloomsday(&["status"]).run().expect(0).stdout;
        assert_eq!(filters.lines().count(), 1, "the marker is taken for a filter: {filters}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_command_without_the_setting_does_not_mark_a_store_it_knows_nothing_of() {
    let redis = Redis::start();
    let backend = with_pointers(&Backend::local(), Some(&redis));
    build_two_days(&backend);
    backend.remove(MARKER);
    let (day, before) = (today().to_string(), today().minus(1).to_string());
    let words = ["repoint", "rt", &day, "--to", &before];
    let repointed = with_pointers(&backend, None).bloomsday(&words).run().expect(0);
    repointed.complains(&["not one pointer"]);
    assert_eq!(backend.read(MARKER), None);
    build(&backend, 0, 1_200).publish();
    assert!(String::from_utf8(backend.read(MARKER).unwrap()).unwrap().contains("redis"));
}

#[test]
fn a_marker_that_cannot_be_understood_stops_everybody() {
    let backend = Backend::local();
    build(&backend, 0, 1_000).publish();
    for marker in ["", "{}", "{\"pointers\": \"etcd\"}", "half a li"] {
        backend.write(MARKER, marker.as_bytes());
        let refused = backend.bloomsday(&["status", "rt"]).run().expect(2);
        refused.complains(&[MARKER, "delete"]);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn pointers_are_moved_on_purpose_by_copying_them_and_deleting_the_marker() {
    let redis = Redis::start();
    let backend = Backend::local();
    build_two_days(&backend);
    let moved = with_pointers(&backend, Some(&redis));
    for back in [1, 0] {
        let day = today().minus(back);
        let record = backend.read(&format!("rt/pointers/{day}")).unwrap();
        let key = day.expand("rt_{day:%Y%m%d}").unwrap();
        redis.command(&["SET", &key, &String::from_utf8(record).unwrap()]);
    }
    moved.bloomsday(&["status", "rt"]).run().expect(2).complains(&["delete rt/store.json"]);
    backend.remove(MARKER);
    assert_eq!(build(&moved, 0, 1_000).run().expect(0).json()["outcome"], "unchanged");
    refused(&backend, &["pointers = \"redis://"]);
    moved.bloomsday(&["query", "rt", &user(7)]).run().expect(0);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_running_server_keeps_what_answers_once_the_store_disagrees() {
    let redis = Redis::start();
    let backend = Backend::local();
    build(&backend, 1, 1_001).publish();
    let daemon = Daemon::ready(&backend, &[]);
    let digest = daemon.status()["digest"].clone();
    backend.remove(MARKER);
    build(&with_pointers(&backend, Some(&redis)), 0, 1_200).publish();
    let other = r#"{"pointers": "redis", "key": "{filter}_{day:%Y%m%d}"}"#;
    backend.write(MARKER, other.as_bytes());
    let (code, said) = daemon.reload("");
    assert_eq!(code, 502, "{said}");
    assert!(said.to_string().contains(MARKER), "{said}");
    assert_eq!(
        (&daemon.status()["state"], &daemon.status()["digest"]),
        (&"failing".into(), &digest)
    );
    assert!(daemon.contains(&user(7)));
    backend.remove(MARKER);
    assert_eq!(daemon.reload("").0, 200);
}

/// Sets the upload time of every blob back by this many days.
fn age(backend: &Backend, days: u64) -> usize {
    let blobs = fs::read_dir(Path::new(&backend.store).join("rt/blobs")).unwrap();
    let aged = blobs.map(|blob| {
        let file = File::options().write(true).open(blob.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600)).unwrap();
    });
    aged.count()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn prune_without_one_pointer_deletes_no_blob() {
    let redis = Redis::start();
    for with_redis in [false, true] {
        let backend = with_pointers(&Backend::local(), with_redis.then_some(&redis));
        // Without blobs there is nothing to refuse.
        fs::create_dir_all(Path::new(&backend.store).join("rt")).unwrap();
        backend.bloomsday(&["prune", "rt"]).run().expect(0);
        build_two_days(&backend);
        let blobs = age(&backend, 20);
        if with_redis {
            // Redis came back empty.
            redis.command(&["FLUSHALL"]);
        } else {
            fs::remove_dir_all(Path::new(&backend.store).join("rt/pointers")).unwrap();
        }
        for marked in [true, false] {
            if !marked {
                backend.remove(MARKER);
            }
            for words in [&["prune"][..], &["prune", "rt"], &["prune", "rt", "--dry-run"]] {
                let run = backend.bloomsday(words).run().expect(1);
                run.complains(&["not one pointer", "rt"]);
            }
            assert_eq!(age(&backend, 20), blobs);
        }
        // With a pointer again, what nothing names goes.
        build(&backend, 0, 1_300).publish();
        backend.bloomsday(&["prune", "rt"]).run().expect(0);
        assert_eq!(age(&backend, 20), 1);
    }
}
