//! Who answers from what: heartbeats of real servers, forged, foreign and ten thousand at once.

use std::path::{Path, PathBuf};
use std::process::Command;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

fn fleet(backend: &Backend) -> Value {
    backend.bloomsday(&["status", "rt"]).run().expect(0).json()["fleet"].clone()
}

/// Reads the status until the fleet is as it should be.
#[track_caller]
fn until(backend: &Backend, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let start = std::time::Instant::now();
    loop {
        let fleet = fleet(backend);
        if holds(&fleet) {
            return fleet;
        }
        assert!(start.elapsed().as_secs() < 60, "waited in vain until {what}: {fleet}");
    }
}

fn servers(backend: &Backend) -> PathBuf {
    Path::new(&backend.store).join("rt/servers")
}

#[test]
fn status_counts_the_servers_and_names_the_laggard() {
    for backend in Backend::all() {
        Publisher::days_ago(&backend, 2).users(0..1_000).publish();
        let (one, two) = (Daemon::ready(&backend, &[]), Daemon::ready(&backend, &[]));
        // Each writes a heartbeat before it has a filter, and again soon after.
        until(&backend, "both answer from the same blob", |fleet| {
            let all = fleet["servers"].as_array().unwrap();
            let digest = one.status()["digest"].clone();
            all.len() == 2 && all.iter().all(|server| server["digest"] == digest)
        });
        Publisher::days_ago(&backend, 1).users(0..1_100).publish();
        assert_eq!(one.reload("").0, 200);
        let digest = one.status()["digest"].clone();
        until(&backend, "one has moved on", |fleet| {
            let all = fleet["servers"].as_array().unwrap();
            all.iter().filter(|server| server["digest"] == digest).count() == 1
        });
        let words = ["status", "rt", "--store", &backend.store];
        let text = bloomsday_tests::program::bloomsday(&words).envs(&backend.env).run().expect(0);
        assert!(text.stdout.contains("1 of 2 answer from this blob"), "{}", text.stdout);
        assert!(text.stdout.contains("laggard"), "{}", text.stdout);
        // One that is stopped is gone, and no laggard for two hours.
        two.signal("TERM");
        assert_eq!(two.wait(), 0);
        until(&backend, "it is gone", |fleet| fleet["servers"].as_array().unwrap().len() == 1);
    }
}

#[test]
fn heartbeats_off_or_forbidden_leave_the_server_as_it_is() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let config = backend.folder.path().join("bloomsday.toml");
    std::fs::write(&config, "heartbeats = false\n").unwrap();
    let off = Daemon::ready(&backend, &["--config", config.to_str().unwrap()]);
    // A second server writes heartbeats and the first does not, so the wait has an end.
    let on = Daemon::ready(&backend, &[]);
    let fleet = until(&backend, "the other is reported", |fleet| {
        fleet["servers"].as_array().is_some_and(|all| !all.is_empty())
    });
    let port = |daemon: &Daemon| daemon.public.rsplit(':').next().unwrap().to_owned();
    assert_eq!(fleet["servers"].as_array().unwrap().len(), 1);
    assert!(fleet["servers"][0]["server"].as_str().unwrap().ends_with(&port(&on)));
    drop((on, off));

    // Where nobody can write, the server answers all the same.
    std::fs::remove_dir_all(servers(&backend)).unwrap();
    std::fs::write(servers(&backend), b"in the way").unwrap();
    let daemon = Daemon::ready(&backend, &[]);
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "ok");
}

#[test]
fn strange_and_expired_records_and_ten_thousand_of_them_are_counted_calmly() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let folder = servers(&backend);
    std::fs::create_dir_all(&folder).unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    put(
        "future",
        r#"{"server":"x","version":"9","digest":null,"day":null,"loaded_at":"2999-01-01T00:00:00Z"}"#,
    );
    put("garbage", "\u{0}\u{1b}[31m not JSON");
    put("huge", &"x".repeat(100_000));
    put("gone", "{}");
    let aged = Command::new("touch").args(["-d", "2 days ago"]).arg(folder.join("gone")).status();
    assert!(aged.unwrap().success());
    let report = fleet(&backend);
    assert_eq!(report["servers"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(
        (&report["servers"][0]["server"], &report["unreadable"]),
        (&"future".into(), &2.into())
    );
    assert_eq!(report["expired"], 1);

    let good = r#"{"server":"x","version":"1","digest":null,"day":null,"loaded_at":null}"#;
    (0..10_200).for_each(|n| put(&format!("s-{n:05}"), good));
    let report = fleet(&backend);
    // Two of those that were read cannot be understood.
    assert_eq!(report["servers"].as_array().unwrap().len(), 10_000 - 2);
    assert_eq!(report["more"], 10_200 + 3 - 10_000);

    backend.bloomsday(&["prune", "rt", "--dry-run"]).run().expect(0);
    assert!(folder.join("gone").exists());
    assert_eq!(backend.bloomsday(&["prune", "rt"]).run().expect(0).json()["servers"], 1);
    assert!(!folder.join("gone").exists() && folder.join("future").exists());
}

#[test]
fn a_status_without_the_servers_has_the_pointers_all_the_same() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let folder = servers(&backend);
    std::fs::create_dir_all(&folder).unwrap();
    // No key of an object.
    std::fs::write(folder.join("a\u{1}b"), "").unwrap();
    let run = backend.bloomsday(&["status", "rt"]).run().expect(0);
    let run = run.complains(&["the report is without the servers"]);
    let report = run.json();
    assert_eq!((&report["state"], &report["fleet"]), (&"ok".into(), &Value::Null), "{report}");
}
