//! The local store's own promises. The suite that every backend passes is in `tests/`.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::digest::Digest;
use crate::key::{self, SegmentKey};
use crate::pointer::{EventKind, HistoryEvent, Outcome, Pin, Pointer};
use crate::protocol::{FollowedBy, RecordState, Retention};
use crate::remedy::Remedy;

fn rt() -> FilterName {
    "rt".parse().unwrap()
}

fn day() -> Day {
    "2026-11-19".parse().unwrap()
}

fn blob(digit: u8) -> BlobKey {
    BlobKey { filter: rt(), day: day(), digest: Digest::new([digit; 32]) }
}

fn local() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path().join("new/store").to_str().unwrap()).unwrap();
    (folder, store)
}

#[tokio::test]
async fn one_of_two_writers_wins_and_the_other_fails() {
    let (_folder, store) = local();
    let read = store.pointer(&rt(), day()).await.unwrap();
    assert_eq!(read.state, RecordState::Absent);
    store.put_pointer(&rt(), day(), &Pointer::to(blob(1)), &read.version).await.unwrap();
    let lost = store.put_pointer(&rt(), day(), &Pointer::to(blob(2)), &read.version).await;
    assert!(matches!(lost, Err(Error::Changed { .. })), "{lost:?}");
    let now = store.pointer(&rt(), day()).await.unwrap();
    assert_eq!(now.state.found().unwrap().blob, blob(1));
    store.put_pointer(&rt(), day(), &Pointer::to(blob(2)), &now.version).await.unwrap();
}

#[tokio::test]
async fn a_hand_written_line_is_followed_and_rolls_back() {
    let (folder, store) = local();
    let yesterday = BlobKey { day: day().minus(1), ..blob(1) };
    let pointers = folder.path().join("new/store/rt/pointers");
    std::fs::create_dir_all(&pointers).unwrap();
    for text in [
        format!("{yesterday}\n"),
        yesterday.to_string().replacen("rt/", "", 1),
        format!("{}/{yesterday}", store.name()),
        format!("file://{}/{yesterday}", store.name()),
    ] {
        std::fs::write(pointers.join("2026-11-19"), &text).unwrap();
        let followed = store.follow(&rt(), &[day()], Timestamp::UNIX_EPOCH).await.unwrap();
        let Following::Blob(followed) = followed else {
            panic!("{text} was not followed: {followed:?}")
        };
        assert_eq!(followed.blob, yesterday);
        assert!(followed.is_rolled_back());
    }
}

#[tokio::test]
async fn an_unreadable_record_keeps_the_filter_and_an_absent_one_does_not() {
    let (folder, store) = local();
    let days = [day(), day().minus(1)];
    let rt = rt();
    let follow = || store.follow(&rt, &days, Timestamp::UNIX_EPOCH);
    let Following::NotFound(looked) = follow().await.unwrap() else {
        panic!("there is no pointer")
    };
    assert_eq!(looked, days);

    let read = store.pointer(&rt, days[1]).await.unwrap();
    store.put_pointer(&rt, days[1], &Pointer::to(blob(1)), &read.version).await.unwrap();
    let Following::Blob(followed) = follow().await.unwrap() else { panic!("yesterday is there") };
    assert_eq!(followed.by, FollowedBy::Pointer { day: days[1] });

    std::fs::write(folder.path().join("new/store/rt/pointers/2026-11-19"), "garbage\n").unwrap();
    let Following::Keep(why) = follow().await.unwrap() else { panic!("garbage was not kept away") };
    assert!(
        why.to_string().contains("rt/pointers/2026-11-19")
            && matches!(why.remedy(), Some(Remedy::ReplacePointer { to: None, .. })),
        "{why}"
    );
}

#[tokio::test]
async fn a_pin_overrides_pointers_until_it_is_removed() {
    let (_folder, store) = local();
    let read = store.pin(&rt()).await.unwrap();
    let pin = Pin { blob: blob(7), until: None, pinned_at: None, pinned_by: None, reason: None };
    store.put_pin(&rt(), &pin, &read.version).await.unwrap();
    let followed = store.follow(&rt(), &[day()], Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(matches!(followed, Following::Blob(f) if f.blob == blob(7)));
    store.remove_pin(&rt()).await.unwrap();
    store.remove_pin(&rt()).await.unwrap();
    assert_eq!(store.pin(&rt()).await.unwrap().state, RecordState::Absent);
}

#[tokio::test]
async fn history_comes_newest_first_and_an_outcome_replaces_its_intent() {
    let (_folder, store) = local();
    let event = |second: i64, outcome| {
        let at = Timestamp::from_second(1_700_000_000 + second).unwrap();
        HistoryEvent {
            blob: Some(blob(1)),
            ..HistoryEvent::new(EventKind::Build, outcome, at, "test")
        }
    };
    store.append_event(&rt(), &event(0, Outcome::Pending)).await.unwrap();
    store.append_event(&rt(), &event(1, Outcome::Refused)).await.unwrap();
    store.append_event(&rt(), &event(0, Outcome::Published)).await.unwrap();
    let expected = vec![event(1, Outcome::Refused), event(0, Outcome::Published)];
    assert_eq!(store.history(&rt()).await.unwrap(), expected);
}

#[tokio::test]
async fn pins_and_prunes_push_no_build_out_of_the_history_of_pointers() {
    let (_folder, store) = local();
    let event = |second: usize, kind| {
        let at = Timestamp::from_second(1_700_000_000 + second as i64).unwrap();
        HistoryEvent::new(kind, Outcome::Published, at, "test")
    };
    let moves = [event(0, EventKind::Build), event(1, EventKind::Repoint)];
    let others = [EventKind::Pin, EventKind::Unpin, EventKind::Prune].into_iter().cycle();
    let others = others.enumerate().map(|(n, kind)| event(n + 2, kind)).take(1_000);
    for event in moves.iter().cloned().chain(others) {
        store.append_event(&rt(), &event).await.unwrap();
    }
    let [build, repoint] = moves;
    assert_eq!(store.pointer_history(&rt()).await.unwrap(), [repoint, build]);
    let kinds: Vec<EventKind> =
        store.history(&rt()).await.unwrap().iter().map(|event| event.kind).collect();
    assert!(kinds.len() == 1_000 && !kinds.contains(&EventKind::Build));
}

#[tokio::test]
async fn a_record_that_no_reader_would_accept_is_not_written() {
    let (_folder, store) = local();
    let long = Some("x".repeat(70_000));
    let pointer = Pointer { published_by: long.clone(), ..Pointer::to(blob(1)) };
    let (until, pinned_at, reason) = (None, None, None);
    let pin = Pin { blob: blob(1), until, pinned_at, pinned_by: long.clone(), reason };
    let (at, pending) = (Timestamp::UNIX_EPOCH, crate::pointer::Outcome::Pending);
    let event =
        HistoryEvent { reason: long, ..HistoryEvent::new(EventKind::Build, pending, at, "x") };
    let (no_pointer, no_pin) =
        (store.pointer(&rt(), day()).await.unwrap(), store.pin(&rt()).await.unwrap());
    for refused in [
        store.put_pointer(&rt(), day(), &pointer, &no_pointer.version).await,
        store.put_pin(&rt(), &pin, &no_pin.version).await,
        store.append_event(&rt(), &event).await,
    ] {
        assert_eq!(refused.as_ref().map_err(Error::kind), Err(crate::error::Kind::Usage));
        assert!(refused.unwrap_err().to_string().contains("in fewer words"));
    }
    assert_eq!(store.pointer(&rt(), day()).await.unwrap().state, RecordState::Absent);
    assert_eq!(store.pin(&rt()).await.unwrap().state, RecordState::Absent);
    assert_eq!(store.history(&rt()).await.unwrap(), []);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_out_of_the_store_is_not_a_blob() {
    let (folder, store) = local();
    let blobs = folder.path().join("new/store/rt/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    let name = blob(1).to_string().replace("rt/blobs/", "");
    std::os::unix::fs::symlink(&secret, blobs.join(name)).unwrap();
    let error = store.fetch(&blob(1), u64::MAX).await.err().unwrap().to_string();
    assert!(error.contains("out of the store"), "{error}");
}

#[tokio::test]
async fn a_blob_past_the_limit_is_not_fetched() {
    let (folder, store) = local();
    let path = folder.path().join("new/store").join(blob(1).to_string());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, [0; 100]).unwrap();
    assert!(matches!(store.fetch(&blob(1), 99).await, Err(Error::TooManyBytes { bytes: 100, .. })));
    assert_eq!(store.fetch(&blob(1), 100).await.unwrap().memory.len(), 100);
    assert!(matches!(store.fetch(&blob(2), 100).await, Err(Error::NotFound { .. })));
}

#[test]
fn an_address_that_is_no_store_is_explained() {
    for (address, expected) in [
        ("", "it is empty"),
        ("ftp://x/y", "ftp://x/y"),
        ("/nowhere/at/all", "there is no store at /nowhere"),
        ("http://user:hunter2@127.0.0.1/x?token=hunter2", "127.0.0.1/x"),
    ] {
        let error = Store::open(address).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{address}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_heartbeat_does_not_make_a_store_that_is_away() {
    let (folder, store) = local();
    let beat = heartbeat::Heartbeat {
        server: "bid-1:8642".into(),
        version: "0".into(),
        digest: None,
        day: None,
        loaded_at: None,
        last_error: None,
    };
    let (there, away) = (folder.path().join("new"), folder.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let refused = store.put_heartbeat(&rt(), &beat).await;
    assert!(matches!(refused, Err(Error::NoStore { .. })), "{refused:?}");
    // Nothing is in its way when it comes back.
    std::fs::rename(&away, &there).unwrap();
    store.put_heartbeat(&rt(), &beat).await.unwrap();
}

#[tokio::test]
async fn a_heartbeat_is_read_again_only_if_it_was_written_again() {
    let (folder, store) = local();
    let file = folder.path().join("new/store/rt/servers/bid-1");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    // The version tells which bytes were read.
    let write = |version: &str, minutes_ago: u64| {
        let record = format!(
            r#"{{"server":"x","version":"{version}","digest":null,"day":null,"loaded_at":null}}"#
        );
        std::fs::write(&file, record).unwrap();
        let written = std::time::SystemTime::now() - Duration::from_secs(60 * minutes_ago);
        // Whole seconds, as object stores have them.
        let seconds = written.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let written = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        let opened = std::fs::File::options().write(true).open(&file).unwrap();
        opened.set_modified(written).unwrap();
        written
    };
    let read = async |before: &heartbeat::Servers| {
        store.servers_again(&rt(), Timestamp::now(), before).await.unwrap()
    };
    let written = write("1", 60);
    let first = read(&heartbeat::Servers::default()).await;
    assert_eq!(first.servers[0].version, "1");
    // Other bytes with the same time: as if nobody had written, so they are not read.
    write("2", 60);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
    let again = read(&first).await;
    assert_eq!(again.servers[0].version, "1");
    // Written again, and twice within a moment.
    write("3", 0);
    let third = read(&again).await;
    assert_eq!(third.servers[0].version, "3");
    let opened = std::fs::metadata(&file).unwrap().modified().unwrap();
    write("4", 0);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(opened).unwrap();
    assert_eq!(read(&third).await.servers[0].version, "4");
}

#[tokio::test]
async fn segments_are_pruned_once_and_their_folder_goes() {
    let (folder, store) = local();
    let today = Day::of(Timestamp::now());
    let read = store.pointer(&rt(), today).await.unwrap();
    let newest = BlobKey { day: today, ..blob(1) };
    store.put_pointer(&rt(), today, &Pointer::to(newest), &read.version).await.unwrap();
    let old = today.minus(40);
    let segment = SegmentKey { filter: rt(), day: old, node: 1, epoch: 1, first_seq: 1 };
    store.put_segment(&segment, "x".into()).await.unwrap();
    // What an older version left, or a store that keeps empty folders.
    let folder_of = |day: Day| folder.path().join("new/store").join(key::segments(&rt(), day));
    std::fs::create_dir_all(folder_of(old.minus(1))).unwrap();
    let prune = async |dry_run| {
        let keep = Retention { keep_days: 14, max_age_days: 3 };
        store.prune_segments(&rt(), keep, 14, "test", dry_run).await.unwrap()
    };
    let due = PrunedSegments { days: vec![old], segments: 1 };
    assert_eq!((prune(true).await, prune(true).await), (due.clone(), due.clone()));
    assert!(folder_of(old).exists() && folder_of(old.minus(1)).exists());
    assert_eq!((prune(false).await, prune(false).await), (due, PrunedSegments::default()));
    assert!(!folder_of(old).exists() && !folder_of(old.minus(1)).exists());
    assert_eq!(store.history(&rt()).await.unwrap().len(), 1, "one prune deleted something");
}

#[test]
fn uploads_that_end_while_prune_lists_them_are_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = folder.path().join("rt/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::thread::scope(|scope| {
        let uploads = scope.spawn(|| {
            for number in 0..3_000 {
                let file = blobs.join(format!("x.bloom#{}", number % 50));
                std::fs::write(&file, "x").unwrap();
                std::fs::rename(file, blobs.join("x.bloom")).unwrap();
            }
        });
        while !uploads.is_finished() {
            let left = local::abandoned_uploads(folder.path(), "rt/blobs", |_| true);
            assert_eq!(left.unwrap(), []);
        }
    });
}

#[tokio::test]
async fn heads_of_logs_that_were_written_long_ago_are_left_out_and_the_newest_come_first() {
    let (folder, store) = local();
    let heads = folder.path().join("new/store/rt/live/heads");
    std::fs::create_dir_all(&heads).unwrap();
    for (node, days_ago) in [(1_u64, 40), (2, 3), (3, 0), (4, 20)] {
        let file = heads.join(format!("{node:016x}"));
        std::fs::write(&file, b"not read").unwrap();
        let written = std::time::SystemTime::now() - Duration::from_secs(24 * 3600 * days_ago);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
    }
    std::fs::write(heads.join("x"), b"no head").unwrap();
    let since = |days| Some(Day::of(Timestamp::now()).minus(days));
    assert_eq!(store.head_nodes(&rt(), None).await.unwrap(), [3, 2, 4, 1]);
    assert_eq!(store.head_nodes(&rt(), since(5)).await.unwrap(), [3, 2]);
}

#[tokio::test]
async fn a_local_folder_without_a_file_is_no_filter() {
    let (folder, store) = local();
    let heartbeats = folder.path().join("new/store/rt/servers");
    std::fs::create_dir_all(&heartbeats).unwrap();
    assert_eq!(store.filters().await.unwrap(), []);
    std::fs::write(heartbeats.join("a"), "{}").unwrap();
    assert_eq!(store.filters().await.unwrap(), [rt()]);
}

/// Neither counts as absent: then an older day would answer, and a prune delete what it names.
#[tokio::test]
async fn a_pointer_that_is_a_folder_or_leads_nowhere_is_an_error_and_its_day_is_listed() {
    let (folder, store) = local();
    let path = folder.path().join("new/store/rt/pointers/2026-11-19");
    std::fs::create_dir_all(&path).unwrap();
    assert_eq!(store.pointer_days(&rt()).await.unwrap(), [day()]);
    assert!(store.pointer(&rt(), day()).await.unwrap_err().to_string().contains("is a folder"));
    // A report goes on.
    let state = store.pointer_state(&rt(), day()).await.unwrap();
    assert!(
        matches!(&state, RecordState::Unreadable(why) if why.contains("is a folder")),
        "{state:?}"
    );
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert_eq!(store.pointer_days(&rt()).await.unwrap(), [day()]);
    let why = store.pointer(&rt(), day()).await.unwrap_err().to_string();
    assert!(why.contains("is a link to a file that is not there"), "{why}");
    let pruned = store.prune(&rt(), Retention::DEFAULT, "a test", true).await.unwrap();
    assert_eq!(pruned.unreadable, ["the pointer of 2026-11-19"]);
}

#[tokio::test]
async fn a_pointer_is_taken_back_to_whatever_was_there_before() {
    let (folder, store) = local();
    let path = folder.path().join("new/store/rt/pointers/2026-11-19");
    let content = || std::fs::read(&path).ok();
    let garbage = b"not a pointer".to_vec();
    for before in [None, Some(garbage)] {
        if let Some(bytes) = &before {
            std::fs::write(&path, bytes).unwrap();
        }
        let read = store.pointer(&rt(), day()).await.unwrap().version;
        let written = Pointer::to(blob(1));
        store.put_pointer(&rt(), day(), &written, &read).await.unwrap();
        assert_ne!(content(), before);
        store.take_back_pointer(&rt(), day(), &written, &read).await.unwrap();
        assert_eq!(content(), before);

        // A later change by somebody else stays.
        store.put_pointer(&rt(), day(), &Pointer::to(blob(2)), &read).await.unwrap();
        store.take_back_pointer(&rt(), day(), &written, &read).await.unwrap();
        let now = store.pointer(&rt(), day()).await.unwrap().state;
        assert_eq!(now, RecordState::Found(Pointer::to(blob(2))));
        std::fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn a_prune_under_way_is_waited_for_and_one_that_ended_or_was_killed_is_not() {
    let (_folder, store) = local();
    let now = Timestamp::now();
    let event = |kind, outcome, hours| {
        let at = now - jiff::SignedDuration::from_hours(hours);
        HistoryEvent::new(kind, outcome, at, "cron")
    };
    let others = [
        event(EventKind::Prune, Outcome::Published, 1),
        event(EventKind::Prune, Outcome::Failed, 2),
        event(EventKind::Prune, Outcome::Pending, 25),
        event(EventKind::Build, Outcome::Pending, 3),
    ];
    for other in others {
        store.append_event(&rt(), &other).await.unwrap();
    }
    store.wait_for_prune(&rt(), |why| panic!("{why}")).await.unwrap();

    let prune = event(EventKind::Prune, Outcome::Pending, 0);
    store.append_event(&rt(), &prune).await.unwrap();
    let (waits, waiting) = futures::channel::oneshot::channel();
    let filter = rt();
    let wait = store.wait_for_prune(&filter, |why| waits.send(why.to_owned()).unwrap());
    let end = async {
        assert!(waiting.await.unwrap().contains("the prune of rt"));
        let ended = HistoryEvent { outcome: Outcome::Published, ..prune };
        store.append_event(&rt(), &ended).await.unwrap();
    };
    let (waited, ()) = futures::join!(wait, end);
    waited.unwrap();
}
