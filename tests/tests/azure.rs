//! The daily loop on Azure Blob Storage, as azurite implements it.

use std::fs;
use std::time::{Duration, Instant};

use bloomsday_tests::azure::Azure;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn days_are_built_served_rolled_back_and_explained() {
    let azure = Azure::start();
    let backend = azure.backend("ads");
    Publisher::days_ago(&backend, 2).users(0..2_000).prepare().run().expect(0);
    let report = Publisher::days_ago(&backend, 1).users(0..3_000).prepare().run().expect(0).json();
    assert_eq!(report["outcome"], "published");
    let again = Publisher::days_ago(&backend, 1).users(0..3_000).prepare().run().expect(0).json();
    assert_eq!(again["outcome"], "unchanged");
    let check = backend.bloomsday(&["config", "check"]).run().expect(0);
    assert!(check.stdout.contains("honoured"), "{}", check.stdout);

    let daemon = Daemon::ready(&backend, &[]);
    assert!(daemon.contains(&user(2_500)));
    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "rolled_back");
    assert!(!daemon.contains(&user(2_500)));
    let why = backend.bloomsday(&["why", "rt", &user(2_500)]).run().expect(0).stdout;
    assert_eq!(why.matches("\"contains\":true").count(), 1, "{why}");
    backend.bloomsday(&["pin", "rt", "--to", &day]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert!(daemon.contains(&user(2_500)));
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
}

/// Waits for the heartbeat of the one server that may write, with `digest`. No other server writes
/// one.
#[track_caller]
fn until_reported(backend: &Backend, digest: &serde_json::Value) {
    let start = Instant::now();
    loop {
        let fleet = backend.bloomsday(&["status", "rt"]).run().expect(0).json()["fleet"].clone();
        let servers = fleet["servers"].as_array().unwrap();
        assert!(servers.len() <= 1, "one of them may not write: {fleet}");
        if servers.iter().any(|server| server["digest"] == *digest) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {digest}: {fleet}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_server_that_may_only_read_says_so_once_and_follows() {
    let azure = Azure::start();
    let backend = azure.backend("readers");
    Publisher::days_ago(&backend, 3).users(0..1_000).prepare().run().expect(0);
    // The signature does let read, and does not let write.
    let reader = azure.reader(&backend);
    reader.bloomsday(&["status", "rt"]).run().expect(0);
    let refused = Publisher::days_ago(&reader, 2).users(0..1_100).prepare().run();
    assert!(refused.code != 0 && refused.stderr.contains("403"), "{}", refused.stderr);

    let log = reader.folder.path().join("log");
    let server = Daemon::logging(&reader, &[], &log);
    server.until("it is ready", |server| server.get("/readyz").status == 200);
    let warnings = || {
        let log = fs::read_to_string(&log).unwrap();
        (log.matches("may not be written to").count(), log)
    };
    server.until("it was refused", |_| warnings().0 > 0);
    // Two swaps later it would have written twice more. A server that may write is the clock: between
    // two of its heartbeats lies at least one look of the other's.
    let writer = Daemon::ready(&backend, &[]);
    for (back, n) in [(2, 1_100), (1, 1_200)] {
        Publisher::days_ago(&backend, back).users(0..n).prepare().run().expect(0);
        for daemon in [&server, &writer] {
            assert_eq!(daemon.reload("").0, 200);
            assert!(daemon.contains(&user(n - 1)), "it did not follow");
        }
        until_reported(&backend, &writer.status()["digest"]);
    }
    assert_eq!(server.status()["state"], "ok");
    let (count, log) = warnings();
    assert_eq!(count, 1, "{log}");
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
}
