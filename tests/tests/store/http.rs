//! A store behind a plain web server: servers follow it with GET and HEAD alone.

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::nginx::Nginx;
use bloomsday_tests::publisher::Publisher;

/// The same store as whoever has only the web server sees it.
fn read_only(backend: &Backend) -> (Nginx, Backend) {
    let nginx = Nginx::of(backend.folder.path());
    let path = std::path::Path::new(&backend.store).strip_prefix(backend.folder.path()).unwrap();
    let store = nginx.url(&path.display().to_string());
    let folder = tempfile::tempdir().unwrap();
    (nginx, Backend { store, env: Vec::new(), folder })
}

fn only_gets(nginx: &Nginx) {
    let methods = nginx.methods();
    assert!(methods.iter().all(|method| method == "GET" || method == "HEAD"), "{methods:?}");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_server_follows_a_store_over_http_and_only_gets_files() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 2).users(0..3_000).publish();
    let (nginx, reader) = read_only(&backend);
    let log = reader.folder.path().join("log");
    let server = Daemon::logging(&reader, &[], &log);
    server.until("it is ready", |server| server.get("/readyz").status == 200);
    let contains = |id: u64| server.contains(&user(id));
    assert!(contains(0) && contains(2_999) && !contains(9_000_000));

    Publisher::days_ago(&backend, 1).users(500..3_500).publish();
    assert_eq!(server.reload("").0, 200);
    assert_eq!(server.status()["day"], today().minus(1).to_string());
    assert!(contains(500) && contains(3_499) && !contains(9_000_000));

    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    assert_eq!(server.reload("").0, 200);
    assert_eq!(server.status()["state"], "rolled_back");

    // It tried to write a heartbeat, once; our own store refused that, not the web server.
    server.until("it logs that it has no heartbeats", |_| {
        std::fs::read_to_string(&log).unwrap().contains("the store may not be written to")
    });
    drop(server);
    assert_eq!(std::fs::read_to_string(&log).unwrap().matches("may not be written").count(), 1);
    only_gets(&nginx);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn whatever_lists_or_writes_says_that_a_store_over_http_is_only_read() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 2).users(0..1_000).publish();
    Publisher::days_ago(&backend, 1).users(0..1_100).publish();
    let (nginx, reader) = read_only(&backend);
    let file = backend.folder.path().join("1.parquet");
    write_users(&file, 0..1_100);
    let file = file.display().to_string();
    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    let days = ["build", "rt", "--day", &day, "--input", &file, "--column", "device_id"];
    for words in [
        &days[..],
        &["repoint", "rt", &day, "--to", &before],
        &["pin", "rt", "--to", &before],
        &["status", "rt"],
        &["history", "rt"],
        &["trace", "rt", "x"],
        &["prune"],
    ] {
        let run = reader.bloomsday(words).run().expect(2);
        run.complains(&["over HTTP a store is only read", &reader.store]);
    }
    only_gets(&nginx);
}
