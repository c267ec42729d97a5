//! The daily loop on Azure Blob Storage, as azurite implements it.

use std::fs;
use std::time::{Duration, Instant};

use bloomsday_tests::azure::Azure;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::daily::{publish_two_days, serve_and_roll_back};
use bloomsday_tests::input::user;
use bloomsday_tests::publisher::Publisher;

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn days_are_built_served_rolled_back_and_explained() {
    let azure = Azure::start();
    let backend = azure.backend("ads");
    publish_two_days(&backend);
    serve_and_roll_back(&backend);
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
    // Two swaps later it would have written twice more. A server that may write is the clock:
    // between two of its heartbeats lies at least one look of the other's.
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
