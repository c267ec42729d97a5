//! One suite of promises that every backend must keep, run on each: a local folder, S3 and Google
//! Cloud Storage.
//!
//! Credentials are read from the environment, so the suite runs as a process of its own for each
//! backend: this test program itself, with its ignored test.

use std::process::Command;

use bloomsday_common::blob::{self, Header, Origin};
use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::error::{Error, Kind};
use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome, Pin, Pointer};
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::{Following, Store};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::gcs::Gcs;
#[cfg(not(feature = "integration"))]
use bloomsday_tests::program::bloomsday;
use jiff::Timestamp;

/// Where the suite finds its store.
const STORE: &str = "BLOOMSDAY_TEST_STORE";

fn run_on(backend: &Backend) {
    let suite = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "promises::the_suite", "--nocapture"])
        .envs(backend.env.iter().map(|(name, value)| (*name, value)))
        .env(STORE, &backend.store)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&suite.stderr);
    assert!(suite.status.success(), "on {}:\n{said}", backend.store);
}

#[test]
fn a_local_folder_keeps_the_promises_of_a_store() {
    run_on(&Backend::local());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn s3_keeps_the_promises_of_a_store() {
    run_on(&Backend::s3());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn google_cloud_storage_keeps_the_promises_of_a_store() {
    run_on(&Gcs::start().backend("suite"));
}

/// With the feature `integration` the program has HDFS.
#[test]
#[cfg(not(feature = "integration"))]
fn hdfs_which_is_not_compiled_in_is_refused_by_name() {
    let status = bloomsday(&["status", "rt", "--store", "hdfs://u:secret@namenode:9000/ads"]);
    let status = status.run().expect(2).complains(&["hdfs://namenode:9000/ads", "feature `hdfs`"]);
    assert!(!status.stderr.contains("secret"), "{}", status.stderr);
}

#[test]
#[ignore = "run by the tests above, on each backend"]
fn the_suite() {
    let store = Store::create(&std::env::var(STORE).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        an_empty_store_has_nothing(&store).await;
        of_many_writers_one_wins(&store).await;
        pins_come_and_go(&store).await;
        history_is_newest_first(&store).await;
        small_and_large_blobs_come_back_complete(&store).await;
        garbage_is_unreadable(&store).await;
        store.check_conditional_writes().await.unwrap();
        assert_eq!(store.filters().await.unwrap(), [rt()]);
    });
}

fn rt() -> FilterName {
    "rt".parse().unwrap()
}

fn day() -> Day {
    "2026-11-19".parse().unwrap()
}

fn key(digit: u8) -> BlobKey {
    BlobKey { filter: rt(), day: day(), digest: Digest::new([digit; 32]) }
}

async fn an_empty_store_has_nothing(store: &Store) {
    assert_eq!(store.filters().await.unwrap(), []);
    assert_eq!(store.pointer_days(&rt()).await.unwrap(), []);
    assert_eq!(store.blobs(&rt(), None).await.unwrap(), []);
    assert_eq!(store.history(&rt()).await.unwrap(), []);
    assert_eq!(store.pin(&rt()).await.unwrap().state, RecordState::Absent);
    let days = [day(), day().minus(1)];
    let following = store.follow(&rt(), &days, Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(matches!(following, Following::NotFound(looked) if looked == days));
    let missing = store.fetch(&key(1), u64::MAX).await.err().unwrap();
    assert_eq!(missing.kind(), Kind::NotFound, "{missing}");
}

/// Eight writers, who all saw the same pointer, race for it again and again.
async fn of_many_writers_one_wins(store: &Store) {
    for round in 0..10u8 {
        let read = store.pointer(&rt(), day()).await.unwrap();
        let race = (0..8u8).map(|writer| {
            let (store, version) = (store.clone(), read.version.clone());
            tokio::spawn(async move {
                let pointer = Pointer {
                    published_by: Some(format!("writer {writer} in round {round}")),
                    ..Pointer::to(key(writer))
                };
                store.put_pointer(&rt(), day(), &pointer, &version).await.map(|()| writer)
            })
        });
        let race: Vec<_> = race.collect();
        let mut winners = Vec::new();
        for writer in race {
            match writer.await.unwrap() {
                Ok(writer) => winners.push(writer),
                Err(Error::Changed { .. }) => {}
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        let now = store.pointer(&rt(), day()).await.unwrap();
        let named = now.state.found().unwrap().blob.clone();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert_eq!(named, key(winners[0]));
    }
    assert_eq!(store.pointer_days(&rt()).await.unwrap(), [day()]);
}

async fn pins_come_and_go(store: &Store) {
    let read = store.pin(&rt()).await.unwrap();
    let pin = |digit| Pin {
        blob: key(digit),
        until: None,
        pinned_at: None,
        pinned_by: None,
        reason: Some("because".into()),
    };
    store.put_pin(&rt(), &pin(9), &read.version).await.unwrap();
    let late = store.put_pin(&rt(), &pin(8), &read.version).await;
    assert!(matches!(late, Err(Error::Changed { .. })), "{late:?}");
    let following = store.follow(&rt(), &[day()], Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(matches!(following, Following::Blob(followed) if followed.blob == key(9)));
    store.remove_pin(&rt()).await.unwrap();
    store.remove_pin(&rt()).await.unwrap();
    assert_eq!(store.pin(&rt()).await.unwrap().state, RecordState::Absent);
}

async fn history_is_newest_first(store: &Store) {
    let event = |second, outcome| {
        let at = Timestamp::from_second(second).unwrap();
        HistoryEvent {
            blob: Some(key(1)),
            ..HistoryEvent::new(EventKind::Build, outcome, at, "suite")
        }
    };
    for event in
        [event(1, Outcome::Pending), event(2, Outcome::Refused), event(1, Outcome::Published)]
    {
        store.append_event(&rt(), &event).await.unwrap();
    }
    let expected = [event(2, Outcome::Refused), event(1, Outcome::Published)];
    assert_eq!(store.history(&rt()).await.unwrap(), expected);
}

async fn small_and_large_blobs_come_back_complete(store: &Store) {
    // 20 million IDs make 18 MB: three parts of an upload and of a download.
    for n in [100u32, 20_000_000] {
        let shape = Shape::for_ids(Layout::Blocked, u64::from(n), 0.03).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        (0..n).for_each(|i| filter.insert(Xxh3::of(&i.to_le_bytes())));
        let filter = filter.freeze();
        let header = Header {
            filter: rt(),
            day: day(),
            shape,
            id_form: Default::default(),
            origin: Origin::Built,
            ids: u64::from(n),
            fpp_target: 0.03,
            fpp_hits: 1,
            fpp_lookups: 100,
            ones: filter.count_ones(),
        };
        let encoded = blob::encode(&header, &filter);
        store.put_blob(&encoded, &|_| {}).await.unwrap();
        assert_eq!(store.blob_info(encoded.key()).await.unwrap().bytes, encoded.len());
        assert!(store.blobs(&rt(), Some(day())).await.unwrap().contains(encoded.key()));
        let fetched = store.fetch(encoded.key(), u64::MAX).await.unwrap();
        let (read, back) = blob::open(fetched, encoded.key()).unwrap();
        assert_eq!(read, header);
        assert!(back.body() == filter.body());
        let too_large = store.fetch(encoded.key(), encoded.len() - 1).await;
        assert!(matches!(too_large, Err(Error::TooManyBytes { .. })));
    }
}

async fn garbage_is_unreadable(store: &Store) {
    // A pointer that leads to another filter, written the only way our own code can: as a pin's
    // blob.
    let other = BlobKey { filter: "optout".parse().unwrap(), ..key(1) };
    let before = day().minus(1);
    let read = store.pointer(&rt(), before).await.unwrap();
    store.put_pointer(&rt(), before, &Pointer::to(other), &read.version).await.unwrap();
    let read = store.pointer(&rt(), before).await.unwrap();
    assert!(matches!(read.state, RecordState::Unreadable(_)), "{:?}", read.state);
    let following = store.follow(&rt(), &[before], Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(matches!(following, Following::Keep(_)));
}
