//! What operators mistype, and what lies in a store by mistake: an error that names it.
#![cfg(feature = "integration")]

use std::fs;
use std::path::{Path, PathBuf};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::today;
use bloomsday_tests::publisher::Publisher;

/// A local store with yesterday's filter.
fn store() -> (Backend, String) {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    (backend, today().minus(1).to_string())
}

fn blob(backend: &Backend) -> PathBuf {
    let files = fs::read_dir(Path::new(&backend.store).join("rt/blobs")).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "bloom")).unwrap()
}

#[test]
fn a_mistyped_filter_is_not_found_and_those_that_are_there_are_named() {
    let (backend, _) = store();
    for command in ["status", "prune", "unpin"] {
        let run = backend.bloomsday(&[command, "typo"]).run().expect(4);
        run.complains(&["no filter `typo`", "there are: rt"]);
        backend.bloomsday(&[command, "rt"]).run().expect(0);
    }
}

#[test]
fn a_day_that_no_server_follows_is_repointed_with_a_word() {
    let (backend, day) = store();
    let old = today().minus(30).to_string();
    for (repointed, is_old) in [(&old, true), (&day, false)] {
        let words = ["repoint", "rt", repointed, "--to", &day, "--dry-run"];
        let run = backend.bloomsday(&words).run().expect(0);
        assert_eq!(run.stderr.contains("no server follows"), is_old, "{}", run.stderr);
    }
}

#[test]
fn a_folder_in_place_of_a_file_is_named_and_does_not_count_as_none() {
    let (backend, day) = store();
    let pointer = Path::new(&backend.store).join(format!("rt/pointers/{day}"));
    for path in [pointer, blob(&backend)] {
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let run = backend.bloomsday(&["query", "rt", "x"]).run();
        assert!(![0, 3, 4].contains(&run.code), "{}", run.stdout);
        run.complains(&["is a folder, not a file: move it away"]);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, &kept).unwrap();
    }
    backend.bloomsday(&["query", "rt", "x"]).run().expect(3);
}

#[test]
fn a_trace_says_nothing_for_certain_of_days_that_it_cannot_read() {
    let (backend, _) = store();
    let trace = || backend.bloomsday(&["trace", "rt", "never-there"]).run();
    trace().expect(3);
    fs::write(blob(&backend), "").unwrap();
    trace().expect(1).complains(&["1 of 1 days could not be read"]);
}

#[test]
fn live_filters_alone_have_no_addresses_of_http() {
    let words = ["serve", "--resp", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let run = bloomsday_tests::program::bloomsday(&words).run().expect(2);
    run.complains(&["--listen and --admin are for filters that are followed"]);
}

#[test]
fn what_serve_and_schedule_refuse_is_refused_by_a_check_of_the_configuration() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("bloomsday.toml");
    for (text, says) in [
        ("admin = \"0.0.0.0:8643\"", "needs a token"),
        ("listen = \"127.0.0.1:9\"\nadmin = \"127.0.0.1:9\"", "give each its own"),
        ("tls_cert = \"/etc/cert.pem\"", "needs a key too"),
        ("[resp]\nack = \"synced\"", "needs a folder"),
        ("[resp]\nlisten = \"0.0.0.0:6380\"", "needs a token"),
        ("[filters.rt]\ncolumn = \"id\"\nschedule = \"0 2 * * *\"", "no input is named"),
    ] {
        fs::write(&file, text).unwrap();
        let words = ["config", "check", "--config", file.to_str().unwrap()];
        bloomsday_tests::program::bloomsday(&words).run().expect(2).complains(&[says]);
    }
    fs::write(&file, "admin_token_file = \"/run/secrets/token\"\nadmin = \"0.0.0.0:8643\"")
        .unwrap();
    let words = ["config", "check", "--config", file.to_str().unwrap()];
    bloomsday_tests::program::bloomsday(&words).run().expect(0);
}

#[test]
fn numbers_beyond_any_machine_are_planned_without_a_panic() {
    let most = u64::MAX.to_string();
    let words = ["plan", "--ids", "1k", "--rows", &most, "--threads", "1"];
    let run = bloomsday_tests::program::bloomsday(&words).run();
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert_ne!(run.code, 101);
}
