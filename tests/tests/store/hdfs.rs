//! The daily loop on HDFS, as Hadoop's own NameNode and DataNodes do it; also killed in the middle
//! of it.

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::hdfs::Hdfs;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::kill_point::{KillableRun, with_fault_at};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;
use serde_json::Value;

/// Writes users to a file on HDFS with Hadoop's client, as those who make the IDs do.
fn put_users(hdfs: &Hdfs, path: &str, users: std::ops::Range<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.parquet");
    write_users(&file, users);
    hdfs.put(&file, path);
}

/// A store on HDFS with its pointers in Redis.
fn with_pointers(mut backend: Backend, redis: &Redis) -> Backend {
    backend.env.push(("BLOOMSDAY_POINTERS", redis.address()));
    backend
}

/// The status with which `query` ends: 0 if what the store points at contains the user, 3 if not.
fn query(backend: &Backend, n: u64) -> i32 {
    backend.bloomsday(&["query", "rt", &user(n)]).run().code
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn days_are_built_from_hdfs_served_rolled_back_explained_and_pruned_on_it() {
    let (hdfs, redis) = (Hdfs::start(), Redis::start());
    let input = hdfs.url("/dmp/{day}");
    // A file of several blocks, and what Spark leaves next to it.
    let day = |back: u32| today().minus(back).to_string();
    put_users(&hdfs, &format!("/dmp/{}/a b=1/part-0.parquet", day(1)), 0..40_000);
    put_users(&hdfs, &format!("/dmp/{}/part-1.parquet", day(1)), 40_000..50_000);
    put_users(&hdfs, &format!("/dmp/{}/_temporary/0/part-2.parquet", day(1)), 50_000..60_000);
    put_users(&hdfs, &format!("/dmp/{}/part-0.parquet", day(2)), 0..30_000);
    put_users(&hdfs, &format!("/dmp/{}/part-0.parquet", day(30)), 0..20_000);

    // Into any store.
    let local = Backend::local();
    let report = Publisher::days_ago(&local, 1).input(&input).run().expect(0).json();
    assert_eq!((&report["ids"], &report["files"]), (&50_000.into(), &2.into()), "{report}");

    // And onto HDFS itself.
    let alone = hdfs.named_backend("/ads/filters");
    let refused = Publisher::days_ago(&alone, 1).input(&input).run().expect(2);
    refused.complains(&["cannot hold pointers", "`pointers = \"redis://HOST\"`"]);
    assert!(hdfs.files("/").iter().all(|file| file.starts_with("/dmp/")));
    let backend = with_pointers(alone, &redis);
    for back in [4, 3] {
        Publisher::days_ago(&backend, back).users(0..40_000).publish();
    }
    for back in [30, 2, 1] {
        let report = Publisher::days_ago(&backend, back).input(&input).run().expect(0).json();
        assert_eq!(report["outcome"], "published");
    }
    let again = Publisher::days_ago(&backend, 1).input(&input).run().expect(0).json();
    assert_eq!(again["outcome"], "unchanged");
    let check = backend.bloomsday(&["config", "check"]).run().expect(0);
    assert!(check.stdout.contains("honoured by Redis"), "{}", check.stdout);

    let daemon = Daemon::ready(&backend, &[]);
    assert!(daemon.contains(&user(45_000)) && !daemon.contains(&user(55_000)));
    let (day, before) = (day(1), day(2));
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "rolled_back");
    assert!(!daemon.contains(&user(45_000)));
    let trace = backend.bloomsday(&["trace", "rt", &user(45_000)]).run().expect(0).stdout;
    assert_eq!(trace.matches("\"contains\":true").count(), 1, "{trace}");
    backend.bloomsday(&["pin", "rt", "--to", &day]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert!(daemon.contains(&user(45_000)));
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
    let pruned = backend.bloomsday(&["prune", "rt"]).run().expect(0).json();
    assert_eq!(pruned["pointers"][0], today().minus(30).to_string(), "{pruned}");
    // The server may be writing its heartbeat.
    let unfinished = |file: &&String| file.contains(".tmp.") && !file.contains("/servers/");
    assert_eq!(hdfs.files("/ads").iter().find(unfinished), None);

    what_is_forbidden_or_half_there_is_said(&hdfs, &backend);
    what_a_killed_upload_left_goes_after_a_day(&hdfs, &backend);

    // One of two DataNodes away.
    hdfs.stop_datanode();
    let other = Backend::local();
    Publisher::days_ago(&other, 1).input(&input).publish();
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "ok");
    // The NameNode may send a writer there, which then takes a minute. What such a try leaves
    // hinders no other.
    let build = Publisher::days_ago(&backend, 0).users(0..55_000);
    let run = build.run();
    assert!(run.code == 0 || run.code == 75, "{}: {}", run.code, run.stderr);
    hdfs.start_datanode();
    build.publish();
    assert_eq!(daemon.reload("").0, 200);
    assert!(daemon.contains(&user(54_000)));
}

fn what_is_forbidden_or_half_there_is_said(hdfs: &Hdfs, backend: &Backend) {
    // A pin is a record that HDFS cannot replace.
    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    backend.bloomsday(&["pin", "rt", "--to", &day]).run().expect(0);
    let pinned = backend.bloomsday(&["pin", "rt", "--to", &before]).run().expect(2);
    pinned.complains(&["first run `bloomsday unpin rt --store hdfs:"]);
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);

    let local = Backend::local();
    let file = local.folder.path().join("open.parquet");
    write_users(&file, 0..1_000);
    hdfs.put_open(&file, "/dmp/open/part-0.parquet");
    let open = Publisher::days_ago(&local, 1).input(hdfs.url("/dmp/open")).run().expect(75);
    open.complains(&["/dmp/open/part-0.parquet", "it is being written"]);

    for folder in ["/dmp", "/ads"] {
        hdfs.chmod("700", folder);
    }
    let stranger = [("HADOOP_USER_NAME", "stranger".to_owned())];
    let input = hdfs.url("/dmp/{day}");
    let build = Publisher::days_ago(&local, 1).input(&input).prepare().envs(&stranger);
    build.run().expect(1).complains(&["check the credentials and their rights", "user=stranger"]);
    let status = backend.bloomsday(&["history", "rt"]).envs(&stranger).run();
    status.expect(1).complains(&["check the credentials and their rights", "user=stranger"]);
}

fn what_a_killed_upload_left_goes_after_a_day(hdfs: &Hdfs, backend: &Backend) {
    // So large that its blob is uploaded in parts.
    let large = ["--layout", "guava", "--fpp", "1e-9", "--accept-change", "a test"];
    let build = Publisher::days_ago(backend, 0).users(0..1_700_000).with(&large);
    let mut run = KillableRun::start(build.prepare().into_command(), Some("part-uploaded"));
    assert!(run.paused(), "{}", run.said());
    drop(run);
    let unfinished = || {
        let files = hdfs.files("/ads");
        files.into_iter().filter(|file| file.contains(".bloom.tmp.")).collect::<Vec<_>>()
    };
    let left = unfinished();
    assert_eq!(left.len(), 1, "{left:?}");
    let report = build.run().expect(0).json();
    assert_eq!(report["outcome"], "published");
    assert_eq!(
        backend.bloomsday(&["prune", "rt"]).run().expect(0).json()["abandoned"][0],
        Value::Null
    );
    hdfs.age(&left[0], 2);
    let pruned = backend.bloomsday(&["prune", "rt"]).run().expect(0).json();
    assert!(left[0].ends_with(pruned["abandoned"][0].as_str().unwrap()), "{pruned}");
    assert_eq!(unfinished(), [""; 0]);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_hdfs_that_is_killed_in_mid_build_costs_a_retry_at_most() {
    let (mut hdfs, redis) = (Hdfs::start(), Redis::start());
    let input = hdfs.url("/dmp/{day}/");
    // By the name of a service in Hadoop's configuration.
    let backend = with_pointers(hdfs.named_backend("/ads/filters"), &redis);
    put_users(&hdfs, &format!("/dmp/{}/part-0.parquet", today().minus(1)), 0..10_000);
    put_users(&hdfs, &format!("/dmp/{}/part-0.parquet", today()), 0..11_000);
    Publisher::days_ago(&backend, 1).input(&input).publish();
    let log = backend.folder.path().join("log");
    let daemon = Daemon::logging(&backend, &["--poll-interval", "20ms"], &log);
    daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);

    // It stays away: no pointer is moved.
    let build = Publisher::days_ago(&backend, 0).input(&input);
    let (code, said) = with_fault_at("scanned", build.prepare(), |go_on| {
        hdfs.kill();
        go_on();
    });
    assert_eq!(code, Some(75), "{said}");
    daemon.until("it noticed", |daemon| daemon.status()["state"] == "failing");
    assert!((0..1_000).all(|n| daemon.contains(&user(n))));
    hdfs.again();
    assert_eq!(query(&backend, 10_999), 3);

    // It comes back while the input is read.
    let spilling = Publisher::days_ago(&backend, 0).input(&input).with(&["--memory", "1"]);
    let (code, said) = with_fault_at("spill-created", spilling.prepare(), |go_on| {
        hdfs.kill();
        hdfs.again();
        go_on();
    });
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(query(&backend, 10_999), 0);
    daemon.until("it swapped", |daemon| daemon.contains(&user(10_999)));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains(".java:"), "a stack of the NameNode is in the log:\n{log}");
}

/// The client by itself would wait for ever.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_hdfs_that_hangs_ends_a_build_after_minutes() {
    let (hdfs, local) = (Hdfs::start(), Backend::local());
    put_users(&hdfs, "/dmp/part-0.parquet", 0..10);
    hdfs.freeze();
    let build = Publisher::days_ago(&local, 0).input(hdfs.url("/dmp/")).run();
    hdfs.thaw();
    build.expect(75).complains(&["no answer within 150 s"]);
}
