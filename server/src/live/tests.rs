//! Sets over restarts: torn tails, damaged segments, disks that fail.

mod disk;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bloomsday_common::hash::mix64;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::live::entry::{Repeat, Window};
use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::{Frames, Header};
use tempfile::TempDir;

use super::*;
use crate::live::log::tail::Tail;

fn key(name: &str) -> Key {
    Key { database: 0, name: name.as_bytes().into() }
}

fn config(folder: &Path, ack: Ack) -> LiveConfig {
    LiveConfig { ack, ..LiveConfig::new(Some(folder.to_owned())) }
}

fn open(folder: &Path, ack: Ack) -> Live {
    Live::open(config(folder, ack)).unwrap()
}

async fn add(live: &Live, name: &str, hashes: &[u64]) -> Vec<Added> {
    let (now, key) = (live.now(), key(name));
    let set = live.get(&key, now);
    let set = set.unwrap_or_else(|| live.make(&key, Options::of(Kind::Set), now).unwrap());
    let mut answers = Vec::new();
    let (ticket, added) = set.add_each(now, hashes, |_, added| answers.push(added));
    added.unwrap();
    ticket.wait().await.unwrap();
    answers
}

fn all_alive(live: &Live, name: &str, hashes: &[u64]) -> bool {
    let now = live.now();
    let Some(set) = live.get(&key(name), now) else { return hashes.is_empty() };
    let mut all = true;
    set.each(now, hashes, |_, hit| all &= hit).unwrap();
    all
}

fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
    range.map(mix64).collect()
}

/// The files of the only set in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let live = folder.join("live");
    let sets = fs::read_dir(live).unwrap().map(|entry| entry.unwrap().path());
    let set = sets.filter(|path| path.is_dir()).collect::<Vec<_>>();
    assert_eq!(set.len(), 1, "{set:?}");
    let mut files: Vec<_> =
        fs::read_dir(&set[0]).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    for ack in [Ack::Synced, Ack::Written] {
        let folder = TempDir::new().unwrap();
        for start in 0..4 {
            let live = open(folder.path(), ack);
            assert!(all_alive(&live, "a", &hashes(0..start * 1_000)));
            let new = add(&live, "a", &hashes(start * 1_000..start * 1_000 + 1_000)).await;
            assert!(new.iter().all(|added| *added == Added::New));
            assert!(add(&live, "a", &hashes(0..1)).await == [Added::Unchanged]);
            let set = live.get(&key("a"), live.now()).unwrap();
            assert_eq!(set.size(live.now()).entries, (start + 1) * 1_000);
            // As after kill -9: nothing is shut down.
            drop((set, live));
        }
    }
}

#[tokio::test]
async fn a_folder_has_one_process() {
    let folder = TempDir::new().unwrap();
    let _live = open(folder.path(), Ack::Synced);
    let why = Live::open(config(folder.path(), Ack::Synced)).unwrap_err().to_string();
    assert!(
        why.contains("another server uses the folder") && why.contains("give this one a folder"),
        "{why}"
    );
    // Not to be taken for that.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let why = Live::open(config(&file, Ack::Synced)).unwrap_err().to_string();
    assert!(why.contains("cannot create") && why.contains("file/live"), "{why}");
}

#[tokio::test]
async fn deletions_windows_copies_and_ends_are_there_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let live = open(folder.path(), Ack::Synced);
    let now = live.now();
    add(&live, "set", &hashes(0..10)).await;
    let set = live.get(&key("set"), now).unwrap();
    let (ticket, forgotten) = set.forget(now, &hashes(5..20));
    assert_eq!(forgotten, Ok(5));
    ticket.wait().await.unwrap();
    let cuckoo = live.make(&key("cuckoo"), Options::of(Kind::Cuckoo), now).unwrap();
    for _ in 0..3 {
        let (ticket, added) = cuckoo.add_copy(now, 7);
        added.unwrap();
        ticket.wait().await.unwrap();
    }
    let window = Window::of(3_600_000, 1_000_000, Repeat::Renew).unwrap();
    let windowed = Options { window, ..Options::of(Kind::Bloom) };
    let windowed = live.make(&key("window"), windowed, now).unwrap();
    // Seen in an earlier step, and in one whose window has ended.
    let seen = BTreeMap::from([(now - 9_000_000, vec![2]), (now - 2_000_000, vec![1])]);
    windowed.union(now, &seen).0.wait().await.unwrap();
    add(&live, "gone", &hashes(0..10)).await;
    assert_eq!(live.remove(&key("gone"), now), Ok(true));
    assert_eq!(live.remove(&key("gone"), now), Ok(false));
    add(&live, "again", &hashes(0..10)).await;
    assert_eq!(live.remove(&key("again"), now), Ok(true));
    add(&live, "again", &hashes(10..20)).await;
    let brief = live.make(&key("brief"), Options::of(Kind::Set), now).unwrap();
    brief.expire_at(now, Some(now + 1)).0.wait().await.unwrap();
    let over_day = live.make(&key("rt"), Options::over_day(3, IdForm::Bytes), now).unwrap();
    over_day.expire_at(now, Some(now + 1)).0.wait().await.unwrap();
    // Dropped before anything of it was written.
    let unwritten = live.make(&key("unwritten"), Options::of(Kind::Set), now).unwrap();
    let (ticket, _) = unwritten.add_each(now, &hashes(0..10), |_, _| ());
    assert_eq!(live.remove(&key("unwritten"), now), Ok(true));
    ticket.wait().await.unwrap();
    drop((live, set, cuckoo, windowed, brief, over_day, unwritten));

    let live = open(folder.path(), Ack::Synced);
    let now = live.now() + 2;
    assert!(all_alive(&live, "set", &hashes(0..5)) && !all_alive(&live, "set", &hashes(5..6)));
    assert_eq!(live.get(&key("cuckoo"), now).unwrap().count(now, 7), 3);
    let windowed = live.get(&key("window"), now).unwrap();
    assert_eq!((windowed.count(now, 1), windowed.count(now, 2)), (1, 0));
    assert_eq!(windowed.count(now + 4_000_000, 1), 0);
    assert!(all_alive(&live, "again", &hashes(10..20)));
    assert!(!all_alive(&live, "again", &hashes(0..1)));
    for name in ["gone", "brief", "unwritten"] {
        assert!(live.get(&key(name), now).is_none(), "{name}");
    }
    assert_eq!(live.get(&key("rt"), now).unwrap().expires_at(), None);
}

#[tokio::test]
async fn an_incomplete_frame_is_cut_at_any_length_and_nothing_before_it() {
    let folder = TempDir::new().unwrap();
    let live = open(folder.path(), Ack::Synced);
    for number in 0..5 {
        add(&live, "a", &hashes(number * 3..number * 3 + 3)).await;
    }
    drop(live);
    let file = files(folder.path()).remove(0);
    let whole = fs::read(&file).unwrap();
    for length in 0..=whole.len() {
        let copy = TempDir::new().unwrap();
        let to = copy.path().join("live/a-00000000");
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join(file.file_name().unwrap()), &whole[..length]).unwrap();
        let kept = match Frames::of_open(&whole[..length]) {
            Ok((_, frames)) => frames.map_while(Result::ok).map(|frame| frame.hashes().len()).sum(),
            Err(_) => 0,
        };
        for _ in 0..2 {
            let live = open(copy.path(), Ack::Synced);
            assert!(all_alive(&live, "a", &hashes(0..kept as u64)), "{length}");
            assert!(!all_alive(&live, "a", &hashes(kept as u64..kept as u64 + 1)), "{length}");
        }
        // The next adds are kept, too.
        add(&open(copy.path(), Ack::Synced), "a", &[99]).await;
        assert!(all_alive(&open(copy.path(), Ack::Synced), "a", &[99]));
    }
}

#[tokio::test]
async fn a_damaged_closed_segment_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    add(&open(folder.path(), Ack::Synced), "a", &hashes(0..3)).await;
    // The start closes the segment.
    drop(open(folder.path(), Ack::Synced));
    let file = files(folder.path()).remove(0);
    assert_eq!(file.extension().unwrap(), "seg");
    let whole = fs::read(&file).unwrap();
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1 << (byte % 8);
        fs::write(&file, &damaged).unwrap();
        let error = Live::open(config(folder.path(), Ack::Synced)).unwrap_err();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            matches!(error, Error::Segment { .. }) && error.to_string().contains(name),
            "{error}"
        );
    }
}

/// However it is added: 30 times or at once, faster than the disk syncs or not.
#[tokio::test]
async fn a_long_log_is_many_segments() {
    for (ack, times) in [(Ack::Synced, 30), (Ack::Synced, 1), (Ack::Written, 30), (Ack::Written, 1)]
    {
        let folder = TempDir::new().unwrap();
        let live = open(folder.path(), ack);
        let all = hashes(0..3_000_000);
        for some in all.chunks(all.len() / times) {
            add(&live, "a", some).await;
        }
        live.sync().await;
        drop(live);
        let lengths =
            files(folder.path()).into_iter().map(|file| fs::metadata(file).unwrap().len());
        let lengths: Vec<u64> = lengths.collect();
        assert!((2..=4).contains(&lengths.len()), "{lengths:?}");
        assert!(lengths.iter().all(|bytes| *bytes < 17 << 20), "{ack:?}, {times}: {lengths:?}");
        assert!(all_alive(&open(folder.path(), ack), "a", &all));
    }
}

#[tokio::test]
async fn a_write_that_fails_refuses_adds_until_it_succeeds() {
    for ack in [Ack::Synced, Ack::Written] {
        let folder = TempDir::new().unwrap();
        let live = open(folder.path(), ack);
        let now = live.now();
        let set = live.make(&key("a"), Options::of(Kind::Set), now).unwrap();
        // A file where the folder of the set should be.
        let blocked = folder.path().join("live/a-00000000");
        fs::write(&blocked, "").unwrap();
        let (ticket, added) = set.add_each(now, &[1], |_, _| ());
        added.unwrap();
        let why = ticket.wait().await.unwrap_err();
        assert!(why.contains("cannot write the log") && why.contains("a-00000000"), "{why}");
        let refused = set.add_each(now, &[2], |_, _| ()).1;
        assert_eq!(refused, Err(SetError::Log(why)));
        assert!(all_alive(&live, "a", &[1]), "lookups go on");
        #[cfg(feature = "http")]
        assert!(live.log_error().is_some());
        fs::remove_file(&blocked).unwrap();
        while set.add_each(now, &[3], |_, _| ()).1.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        set.ticket().wait().await.unwrap();
        #[cfg(feature = "http")]
        assert!(live.log_error().is_none());
        drop((live, set));
        assert!(all_alive(&open(folder.path(), ack), "a", &[1, 3]));
    }
}

#[test]
fn a_set_whose_end_is_set_anew_while_it_is_removed_stays() {
    let live = Live::open(LiveConfig::new(None)).unwrap();
    let now = live.now();
    let set = live.make(&key("a"), Options::of(Kind::Set), now).unwrap();
    drop(set.expire_at(now, Some(now - 1)));
    drop(set.expire_at(now, Some(now + 60_000)));
    assert_eq!(live.remove_if(&set, End::IfExpired { now }), Ok(false));
    assert!(live.get(&key("a"), now).is_some() && !set.is_dropped());
    assert_eq!(live.remove_if(&set, End::IfExpired { now: now + 60_000 }), Ok(true));
}

#[tokio::test]
async fn a_sync_that_fails_refuses_adds_for_ever() {
    let folder = TempDir::new().unwrap();
    let live = open(folder.path(), Ack::Synced);
    add(&live, "a", &[1]).await;
    let now = live.now();
    let set = live.get(&key("a"), now).unwrap();
    let failing = |fails: bool| {
        let log = set.log().unwrap();
        let flag: &AtomicBool = &log.failing_syncs;
        flag.store(fails, Ordering::Relaxed);
    };
    failing(true);
    let why = set.add_each(now, &[2], |_, _| ()).0.wait().await.unwrap_err();
    assert!(why.contains("cannot sync the log") && why.contains("restart"), "{why}");
    failing(false);
    // Another thread whose write fails in the same moment, and is tried again.
    set.log().unwrap().fail("write", &std::io::Error::other("this test"), false);
    let refused = set.add_each(now, &[3], |_, _| ());
    assert_eq!(refused.1, Err(SetError::Log(why)));
    assert!(all_alive(&live, "a", &[1, 2]), "lookups go on");
}

#[tokio::test]
async fn what_was_written_before_a_write_failed_is_synced() {
    let folder = TempDir::new().unwrap();
    let live = open(folder.path(), Ack::Written);
    add(&live, "a", &[1]).await;
    let now = live.now();
    let set = live.get(&key("a"), now).unwrap();
    let log = set.log().unwrap();
    let written = log.last_seq();
    log.failing_writes.store(true, Ordering::Relaxed);
    let why = set.add_each(now, &[2], |_, _| ()).0.wait().await.unwrap_err();
    assert!(why.contains("cannot write the log"), "{why}");
    while log.synced_seq() < written {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(log.failure().is_some());
    log.failing_writes.store(false, Ordering::Relaxed);
    while log.synced_seq() < log.last_seq() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(log.failure().is_none());
}

#[tokio::test]
async fn what_follows_a_segment_that_cannot_be_closed_is_read_and_kept() {
    let folder = TempDir::new().unwrap();
    let some = hashes(0..1_200_000);
    {
        let live = open(folder.path(), Ack::Synced);
        add(&live, "a", &some[..1]).await;
        let first = files(folder.path()).remove(0);
        fs::create_dir(first.with_extension("seg")).unwrap();
        add(&live, "a", &some[1..]).await;
        add(&live, "a", &[7]).await;
        assert_eq!(files(folder.path()).len(), 3, "two open ones, and the folder");
        let set = live.get(&key("a"), live.now()).unwrap();
        let log = set.log().unwrap();
        let (mut tail, synced) = (Tail::new(log.folder()), log.synced_seq());
        let mut next = 1;
        while next <= synced {
            let piece = tail.read(next, synced).unwrap().expect("all of it can be read");
            next = piece.frames().last().unwrap().unwrap().seq + 1;
        }
        fs::remove_dir(first.with_extension("seg")).unwrap();
    }
    let live = open(folder.path(), Ack::Synced);
    assert!(all_alive(&live, "a", &some) && all_alive(&live, "a", &[7]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_connections_share_syncs_and_lose_nothing() {
    let folder = TempDir::new().unwrap();
    let live = open(folder.path(), Ack::Synced);
    add(&live, "a", &[]).await;
    let adders = (0..16).map(|adder| {
        let live = live.clone();
        tokio::spawn(async move {
            let mut new = 0;
            for number in 0..200 {
                // Each hash is added by two adders.
                let answers = add(&live, "a", &[mix64(adder / 2 * 1_000 + number)]).await;
                new += usize::from(answers == [Added::New]);
            }
            new
        })
    });
    let mut new = 0;
    for adder in adders.collect::<Vec<_>>() {
        new += adder.await.unwrap();
    }
    assert_eq!(new, 8 * 200);
    drop(live);
    let live = open(folder.path(), Ack::Synced);
    for adder in 0..8 {
        assert!(all_alive(&live, "a", &hashes(adder * 1_000..adder * 1_000 + 200)));
    }
}

#[tokio::test]
async fn fingerprints_and_the_step_of_each_are_there_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let day = 24 * 3_600_000;
    let prints = hashes(0..2_000);
    let (old, new) = prints.split_at(1_000);
    let now = {
        let live = open(folder.path(), Ack::Synced);
        let now = live.now();
        let window = Window::of(2 * day, day / 5, Repeat::Keep).unwrap();
        let options = Options { window, capacity: 10_000, ..Options::of(Kind::Near) };
        let set = live.make(&key("news"), options, now - 3 * day).unwrap();
        for (at, prints) in [(now - 3 * day, old), (now - day, new)] {
            for print in prints {
                let (ticket, added) = set.add_near(at, *print, 3);
                assert_eq!(added, Ok(None));
                ticket.wait().await.unwrap();
            }
        }
        now
    };
    let live = open(folder.path(), Ack::Synced);
    let set = live.get(&key("news"), now).unwrap();
    let found = |now: u64, print: u64| set.neighbours(now, print ^ 1 << 40, 3).len();
    assert_eq!(set.options().capacity, 10_000);
    assert!(old.iter().all(|print| found(now, *print) == 0));
    assert!(new.iter().all(|print| found(now, *print) == 1));
    assert_eq!(set.size(now).entries, 1_000);
    // An ended one can come again, and one that is alive cannot.
    assert_eq!(set.add_near(now, old[0] ^ 1, 3).1, Ok(None));
    let neighbour = set.add_near(now, new[0] ^ 1, 3).1.unwrap();
    assert_eq!(neighbour, Some(Neighbour { distance: 1, fingerprint: new[0] }));
    assert!(new.iter().all(|print| found(now + 2 * day, *print) == 0));
    assert_eq!(set.size(now + 2 * day).entries, 1);
}
