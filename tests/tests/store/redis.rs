//! Pointers in a real Redis: published, raced for, rolled back with a plain SET; and Redis down,
//! hung, wiped, read-only or holding something else.

use std::process::Stdio;

use bloomsday_common::digest::Digest;
use bloomsday_common::error::Kind;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::Pointer;
use bloomsday_common::store::{DEFAULT_TEMPLATE, Store};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;

fn backend(redis: &Redis) -> Backend {
    let mut backend = Backend::local();
    backend.env.push(("BLOOMSDAY_POINTERS", redis.address()));
    backend
}

/// The key of a day's pointer.
fn key(back: u32) -> String {
    today().minus(back).expand("rt_{day:%Y%m%d}").unwrap()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_plain_set_of_yesterdays_value_is_a_rollback_and_stands() {
    let redis = Redis::start();
    let backend = backend(&redis);
    Publisher::days_ago(&backend, 2).users(0..2_000).run().expect(0);
    let report = Publisher::days_ago(&backend, 1).users(0..3_000).run().expect(0).json();
    assert!(redis.get(&key(1)).contains(report["digest"].as_str().unwrap()));
    let in_store = std::path::Path::new(&backend.store).join("rt/pointers");
    assert!(!in_store.exists(), "there is a pointer in the store, too");
    let daemon = Daemon::ready(&backend, &[]);
    assert!(daemon.contains(&user(2_500)));

    redis.command(&["SET", &key(1), &redis.get(&key(2))]);
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "rolled_back");
    assert!(!daemon.contains(&user(2_500)) && daemon.contains(&user(1_500)));
    Publisher::days_ago(&backend, 1).users(0..3_000).run().expect(5).complains(&["rolled back"]);

    // The blob's key, and its URL, are values too; a mended day moves on.
    let blob = report["blob"].as_str().unwrap();
    let url = format!("{}/{blob}", backend.store);
    for value in [blob, &url] {
        redis.command(&["SET", &key(1), value]);
        assert_eq!(daemon.reload("").0, 200);
        assert_eq!(daemon.status()["state"], "ok", "{value}");
    }
    redis.command(&["SET", &key(1), &redis.get(&key(2))]);
    assert_eq!(
        Publisher::days_ago(&backend, 1).users(0..3_500).run().expect(0).json()["outcome"],
        "published"
    );
    let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
    assert_eq!(status["pointers"].as_array().unwrap().len(), 2);
    backend.bloomsday(&["config", "check"]).run().expect(0);
    assert_eq!(redis.command(&["DBSIZE"]), ":2\r\n", "the check left its key behind");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn builds_that_race_for_a_day_end_published_or_superseded() {
    let redis = Redis::start();
    let backend = backend(&redis);
    let racing: Vec<_> = (0..4)
        .map(|n| Publisher::days_ago(&backend, 1).users(0..20_000 + n))
        .map(|build| build.prepare().into_command())
        .map(|mut command| {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut outcomes: Vec<(Option<i32>, String)> = Vec::new();
    for child in racing {
        let ended = child.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
        let digest = report["digest"].as_str().unwrap_or_default().to_owned();
        outcomes.push((ended.status.code(), digest));
    }
    // Whoever began after another had ended may move it on; nobody else may.
    let published: Vec<&String> =
        outcomes.iter().filter(|(code, _)| *code == Some(0)).map(|(_, digest)| digest).collect();
    assert!(outcomes.iter().all(|(code, _)| matches!(code, Some(0 | 5))), "{outcomes:?}");
    let now = redis.get(&key(1));
    assert!(published.iter().any(|digest| now.contains(digest.as_str())), "{outcomes:?} {now}");
    assert!(published.len() < 4, "the four never met: {outcomes:?}");
}

/// The builds above look once more before they write, which hides a write that does not compare.
/// Here every writer has read the same value, and only the script decides.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn of_writers_that_saw_the_same_exactly_one_writes() {
    const WRITERS: u8 = 16;
    let redis = Redis::start();
    let folder = tempfile::TempDir::new().unwrap();
    let store = Store::create(folder.path().to_str().unwrap()).unwrap();
    let store = store.with_pointers(&redis.address(), DEFAULT_TEMPLATE).unwrap();
    let rt: FilterName = "rt".parse().unwrap();
    let day = today();
    let blob = |n: u8| BlobKey { filter: rt.clone(), day, digest: Digest::new([n; 32]) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // First for a key that is absent, then for one that holds something.
    for round in 0..3u8 {
        let read = runtime.block_on(store.pointer(&rt, day)).unwrap();
        assert_eq!(read.state.found().is_some(), round > 0);
        let writers = (0..WRITERS).map(|n| {
            let (store, rt, read) = (store.clone(), rt.clone(), read.clone());
            let pointer = Pointer::to(blob(round * WRITERS + n));
            runtime.spawn(async move {
                let wrote = store.put_pointer(&rt, day, &pointer, &read.version).await;
                wrote.map(|()| pointer).map_err(|error| error.kind())
            })
        });
        let writers: Vec<_> = writers.collect();
        let ended: Vec<_> =
            writers.into_iter().map(|writer| runtime.block_on(writer).unwrap()).collect();
        let won: Vec<&Pointer> = ended.iter().filter_map(|ended| ended.as_ref().ok()).collect();
        assert_eq!(won.len(), 1, "round {round}: {ended:?}");
        let lost = ended.iter().filter(|ended| **ended == Err(Kind::Superseded)).count();
        assert_eq!(lost, usize::from(WRITERS) - 1, "round {round}: {ended:?}");
        let now = runtime.block_on(store.pointer(&rt, day)).unwrap();
        assert_eq!(now.state.found(), Some(won[0]), "round {round}");
    }
    // What was read is gone, which is a change too.
    let read = runtime.block_on(store.pointer(&rt, day)).unwrap();
    redis.command(&["FLUSHALL"]);
    let late = runtime.block_on(store.put_pointer(&rt, day, &Pointer::to(blob(99)), &read.version));
    assert_eq!(late.unwrap_err().kind(), Kind::Superseded);
    assert_eq!(redis.command(&["DBSIZE"]), ":0\r\n");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn whatever_becomes_of_redis_the_last_good_filter_answers() {
    let mut redis = Redis::start();
    let backend = backend(&redis);
    Publisher::days_ago(&backend, 1).users(0..2_000).run().expect(0);
    let daemon = Daemon::ready(&backend, &[]);
    let digest = daemon.status()["digest"].clone();
    let answers = |what: &str, expected: u16, complaint: &str| {
        let (status, said) = daemon.reload("");
        assert_eq!(status, expected, "{what}: {said}");
        assert!(said.to_string().contains(complaint), "{what}: {said}");
        assert_eq!(daemon.status()["digest"], digest, "{what}");
        assert!(daemon.contains(&user(7)), "{what}");
    };
    let good = redis.get(&key(1));
    redis.command(&["DEL", &key(1)]);
    redis.command(&["RPUSH", &key(1), "x"]);
    answers("another type", 502, "another type");
    // A build leaves what it does not understand alone.
    Publisher::days_ago(&backend, 1).users(0..2_100).run().expect(7);
    redis.command(&["FLUSHALL"]);
    answers("wiped", 502, "no pointer");
    redis.command(&["SET", &key(1), "half a li"]);
    answers("half-typed", 502, "half a li");
    redis.command(&["SET", &key(1), &good]);
    answers("mended", 200, "unchanged");

    redis.hang();
    answers("hung", 502, "rt_");
    redis.resume();
    redis.kill();
    answers("killed", 502, "rt_");
    Publisher::days_ago(&backend, 1)
        .users(0..2_200)
        .run()
        .expect(75)
        .complains(&["rt_", "127.0.0.1"]);

    // Back, as a replica that nobody may write to: servers go on, builds say why not.
    redis.again(&["--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes"]);
    answers("read-only", 200, "unchanged");
    Publisher::days_ago(&backend, 1)
        .users(0..2_300)
        .run()
        .expect(1)
        .complains(&["read-only replica"]);
    redis.kill();
    redis.again(&[]);
    Publisher::days_ago(&backend, 1).users(0..2_300).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert!(daemon.contains(&user(2_250)));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_password_is_used_and_never_printed() {
    let mut redis = Redis::start();
    redis.kill();
    redis.again(&["--requirepass", "sesame"]);
    let mut backend = Backend::local();
    let address = redis.address().replace("redis://", "redis://:sesame@");
    backend.env.push(("BLOOMSDAY_POINTERS", address));
    Publisher::days_ago(&backend, 1).users(0..100).run().expect(0);
    let check = backend.bloomsday(&["config", "check"]).run().expect(0);
    assert!(!format!("{}{}", check.stdout, check.stderr).contains("sesame"), "{}", check.stdout);
    backend.env.pop();
    let wrong = redis.address().replace("redis://", "redis://:oyster@");
    backend.env.push(("BLOOMSDAY_POINTERS", wrong));
    let refused = Publisher::days_ago(&backend, 1).users(0..200).run().expect(1);
    assert!(!refused.stderr.contains("oyster"), "{}", refused.stderr);
    refused.complains(&["password"]);
}
