//! A day of live IDs as Parquet: what a build reads again, and other programs too; and what `trace`
//! says of live IDs.

use std::path::{Path, PathBuf};
use std::process::Command;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_rows};
use bloomsday_tests::live::Wire;
use serde_json::Value;

use super::follow::segments;

fn path(backend: &Backend, name: &str) -> String {
    backend.folder.path().join(name).display().to_string()
}

/// A server that takes IDs for a filter that the store has a day of.
fn serve(backend: &Backend) -> Daemon {
    let (config, data) = (path(backend, "live.toml"), path(backend, "data"));
    std::fs::write(&config, "[filters.rt]\nlive = \"decide\"\n").unwrap();
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    Daemon::ready(backend, &more)
}

/// Builds a day from a file of users.
fn build_users(backend: &Backend, back: u32, users: std::ops::Range<u64>) {
    let file = path(backend, &format!("in-{back}.parquet"));
    write_rows(Path::new(&file), users.map(|n| Some(user(n))));
    let day = today().minus(back).to_string();
    let words = ["build", "rt", "--day", &day, "--input", &file, "--column", "device_id"];
    let accept = ["--accept-change", "a test"];
    backend.bloomsday(&[&words[..], &accept].concat()).run().expect(0);
}

/// A build of today from this input, of which nothing is written.
fn digest(backend: &Backend, more: &[&str]) -> Value {
    let day = today().to_string();
    let words = ["build", "rt", "--day", &day, "--dry-run", "--accept-change", "a test"];
    let report = backend.bloomsday(&[&words[..], more].concat()).run().expect(0).json();
    report["digest"].clone()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_compacted_day_builds_the_same_blob_and_duckdb_reads_it() {
    let backend = Backend::local();
    build_users(&backend, 1, 0..1_000);
    let daemon = serve(&backend);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    for round in 0..2 {
        let ids: Vec<String> = (round * 1_000..round * 1_000 + 2_000).map(user).collect();
        assert!(wire.call(&format!("BF.MADD rt {}", ids.join(" "))).starts_with("*2000|"));
    }
    // Three are deleted, and one of them comes back.
    let gone = format!("{} {} {}", user(5), user(1_500), user(2_500));
    assert_eq!(wire.call(&format!("SREM rt {gone}")), ":3|");
    assert_eq!(wire.call(&format!("SADD rt {}", user(5))), ":1|");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);

    let day = today().to_string();
    let file = path(&backend, "rt-day.parquet");
    let compact = |more: &[&str]| {
        let words = ["compact", "rt", "--day", &day, "--to", &file];
        backend.bloomsday(&[&words[..], more].concat()).run().expect(0).json()
    };
    let report = compact(&["--dry-run"]);
    assert_eq!((&report["hashes"], &report["bytes"]), (&2_998.into(), &Value::Null), "{report}");
    assert!(!PathBuf::from(&file).exists(), "a dry run wrote");
    let report = compact(&[]);
    let size = std::fs::metadata(&file).unwrap().len();
    assert_eq!((&report["hashes"], &report["bytes"]), (&2_998.into(), &size.into()), "{report}");
    let first = std::fs::read(&file).unwrap();
    compact(&[]);
    assert_eq!(std::fs::read(&file).unwrap(), first, "the same day has other bytes");

    let input = ["--input", &file, "--column", "bloomsday_hash"];
    assert_eq!(digest(&backend, &input), digest(&backend, &["--input", "live:"]));
    // A hash is not an ID, and an ID is no hash.
    let words = ["build", "rt", "--day", &day, "--layout", "guava", "--dry-run"];
    let run = backend.bloomsday(&[&words[..], &input].concat()).run().expect(2);
    assert!(run.stderr.contains("`blocked`"), "{}", run.stderr);

    let query = format!(
        "select count(*), count(distinct bloomsday_hash), typeof(any_value(bloomsday_hash)) from '{file}'"
    );
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let code = format!("import duckdb; print(*duckdb.sql(\"{query}\").fetchall()[0])");
    let run = Command::new(format!("{root}/target/test-tools/bin/python"))
        .args(["-c", &code])
        .output()
        .expect("python runs (tests/run.sh)");
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(said.trim(), "2998 2998 UBIGINT", "{}", String::from_utf8_lossy(&run.stderr));
    backend.bloomsday(&["compact", "rt", "--day", "2020-01-01"]).run().expect(4);
}

/// What `trace` says of an ID, and its exit status.
#[track_caller]
fn trace(backend: &Backend, id: &str, status: i32) -> (String, Value) {
    let config = path(backend, "live.toml");
    let run = backend.bloomsday(&["trace", "rt", id, "--config", &config]).run().expect(status);
    let lines = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let live = lines.into_iter().find(|line| line["live"].is_string()).expect("a live line");
    (live["live"].as_str().unwrap().to_owned(), live)
}

#[test]
fn trace_knows_live_ids_and_whether_a_day_has_them() {
    let backend = Backend::local();
    build_users(&backend, 1, 0..1_000);
    let daemon = serve(&backend);
    let mut absent = (50_000..).map(user).filter(|id| !daemon.contains(id));
    let [in_day, lost, gone, never] = std::array::from_fn(|_| absent.next().unwrap());
    drop(absent);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    assert_eq!(wire.call(&format!("SADD rt {in_day} {lost} {gone}")), ":3|");
    assert_eq!(wire.call(&format!("SREM rt {gone} {}", user(1))), ":2|");
    drop(wire);
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    let (state, line) = trace(&backend, &lost, 0);
    assert_eq!((&*state, line["since"].is_string(), &line["day"]), ("waiting", true, &Value::Null));
    assert_eq!(trace(&backend, &never, 3).0, "no");
    // A deletion hides what a day has.
    assert_eq!(
        (trace(&backend, &gone, 3).0, trace(&backend, &user(1), 3).0),
        ("deleted".into(), "deleted".into())
    );
    assert_eq!(trace(&backend, &user(2), 0).0, "no");

    let file = path(&backend, "today.parquet");
    let users = (0..1_000).map(user).chain([in_day.clone()]);
    write_rows(Path::new(&file), users.map(Some));
    let day = today().to_string();
    let words = [
        "build",
        "rt",
        "--day",
        &day,
        "--input",
        &file,
        "--column",
        "device_id",
        "--fpp",
        "0.0001",
    ];
    backend.bloomsday(&words).run().expect(0);
    let (state, line) = trace(&backend, &in_day, 0);
    assert_eq!((&*state, &line["day"]), ("confirmed", &day.clone().into()));
    assert_eq!(trace(&backend, &lost, 0).0, "unconfirmed");
    // A blob that no pointer names, as after a rollback or a refusal, judges nothing.
    let before = today().minus(1).to_string();
    let repoint = ["repoint", "rt", &day, "--to", &before, "--reason", "this test"];
    backend.bloomsday(&repoint).run().expect(0);
    assert_eq!(trace(&backend, &lost, 0).0, "waiting");
    assert_eq!(trace(&backend, &in_day, 0).0, "waiting");
    let pointer = Path::new(&backend.store).join("rt/pointers").join(&day);
    std::fs::write(&pointer, "{").unwrap();
    assert_eq!(trace(&backend, &lost, 0).0, "waiting");
    std::fs::remove_file(pointer).unwrap();
    assert_eq!(trace(&backend, &lost, 0).0, "waiting");

    // What the days contain is said all the same.
    for segment in segments(&Path::new(&backend.store).join("rt/live")) {
        std::fs::write(segment, "damaged").unwrap();
    }
    let config = path(&backend, "live.toml");
    // Even what a day has may have been deleted.
    for id in [user(2), never] {
        let words = ["trace", "rt", &id, "--config", &config];
        let run = backend.bloomsday(&words).run().expect(1);
        let run = run.complains(&["the live IDs could not be read", "is not a sound segment"]);
        assert!(run.stdout.contains("days_searched"), "{}", run.stdout);
        assert!(run.stdout.contains(r#"{"live":"unreadable"}"#), "{}", run.stdout);
    }
}
