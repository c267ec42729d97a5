//! What a start does with a data folder in which others wrote, and with one that is as full as may
//! be.

use super::*;

/// A folder with the set "a", of which each of some starts added a thousand hashes, and its files.
async fn three_segments(name: &str) -> (TempDir, Vec<PathBuf>) {
    let folder = TempDir::new().unwrap();
    for start in 0..3 {
        add(&open(folder.path(), Ack::Synced), name, &hashes(start * 1_000..start * 1_000 + 1_000))
            .await;
    }
    drop(open(folder.path(), Ack::Synced));
    let files = files(folder.path());
    assert_eq!(files.len(), 3, "{files:?}");
    (folder, files)
}

fn refusal(folder: &Path) -> String {
    Live::open(config(folder, Ack::Synced)).unwrap_err().to_string()
}

#[tokio::test]
async fn a_segment_that_is_missing_or_there_twice_or_of_another_log_is_refused() {
    let (folder, files) = three_segments("a").await;
    let whole = fs::read(&files[1]).unwrap();
    fs::remove_file(&files[1]).unwrap();
    let why = refusal(folder.path());
    assert!(why.contains("are missing") && why.contains("00000003-"), "{why}");

    fs::write(&files[1], &whole).unwrap();
    let copy = files[0].with_file_name("zz.seg");
    fs::copy(&files[0], &copy).unwrap();
    let why = refusal(folder.path());
    assert!(why.contains("zz.seg") && why.contains("in another segment already"), "{why}");
    fs::remove_file(copy).unwrap();

    let (_other, others) = three_segments("a").await;
    fs::copy(&others[1], &files[1]).unwrap();
    let why = refusal(folder.path());
    assert!(why.contains("belongs to another log"), "{why}");

    fs::write(&files[1], &whole).unwrap();
    assert!(all_alive(&open(folder.path(), Ack::Synced), "a", &hashes(0..3_000)));
}

/// Also when it has grown past what the store has: its frames are others.
#[tokio::test]
async fn a_log_from_an_older_copy_is_known_by_its_head_in_the_store() {
    let (folder, files) = three_segments("a").await;
    let last = fs::read(&files[2]).unwrap();
    let (header, frames) = Frames::of_closed(&last).unwrap();
    let head = Head {
        server: String::new(),
        seq: frames.map(Result::unwrap).last().unwrap().seq,
        through: jiff::Timestamp::UNIX_EPOCH,
        created_ms: Some(header.created_ms),
    };
    let is_older = |live: &Live, head: &Head| {
        let set = live.get(&key("a"), live.now()).unwrap();
        set.log().unwrap().is_older_than(head).unwrap()
    };
    let last_of_same = |live: &Live, header: &Header| {
        let set = live.get(&key("a"), live.now()).unwrap();
        let (_, frames) = Frames::of_closed(&last).unwrap();
        set.log().unwrap().last_of_same(header, frames).unwrap()
    };
    let live = open(folder.path(), Ack::Synced);
    assert!(!is_older(&live, &head));
    assert_eq!(last_of_same(&live, &header), Some(head.seq));
    assert_eq!(last_of_same(&live, &Header { epoch: header.epoch + 1, ..header }), None);
    // Of a process that has gone on with the original.
    assert!(is_older(&live, &Head { seq: head.seq + 1, ..head.clone() }));

    let copy = TempDir::new().unwrap();
    let set = copy.path().join("live").join(files[0].parent().unwrap().file_name().unwrap());
    fs::create_dir_all(&set).unwrap();
    for file in &files[..2] {
        fs::copy(file, set.join(file.file_name().unwrap())).unwrap();
    }
    let live = open(copy.path(), Ack::Synced);
    assert!(is_older(&live, &head));
    add(&live, "a", &hashes(5_000..9_000)).await;
    assert!(is_older(&live, &head));
    drop(live);
    let live = open(copy.path(), Ack::Synced);
    assert!(is_older(&live, &head));
    assert_eq!(last_of_same(&live, &header), None);
}

#[tokio::test]
async fn what_is_no_segment_is_refused_and_never_waited_for() {
    let (folder, files) = three_segments("a").await;
    fs::create_dir(files[0].with_file_name("zz.seg")).unwrap();
    let why = refusal(folder.path());
    assert!(why.contains("zz.seg") && why.contains("no file"), "{why}");
}

#[tokio::test]
async fn folders_that_are_no_logs_stay_as_they_are() {
    let (folder, files) = three_segments("a").await;
    let live = folder.path().join("live");
    for name in ["backup/deep", "lost+found", "x-ffffffff", "old-00000000.dropped"] {
        fs::create_dir_all(live.join(name)).unwrap();
        fs::write(live.join(name).join("precious"), "it").unwrap();
    }
    // One that has a log is read, whatever else is in it.
    fs::write(files[0].with_file_name("README"), "it").unwrap();
    fs::create_dir(live.join("a-backup")).unwrap();
    fs::copy(&files[0], live.join("a-backup").join(files[0].file_name().unwrap())).unwrap();
    {
        let opened = open(folder.path(), Ack::Synced);
        assert!(all_alive(&opened, "a", &hashes(0..3_000)));
        add(&opened, "b", &[1]).await;
    }
    assert!(all_alive(&open(folder.path(), Ack::Synced), "b", &[1]));
    for name in ["backup/deep", "lost+found", "x-ffffffff", "old-00000000.dropped"] {
        assert!(live.join(name).join("precious").exists(), "{name}");
    }
    assert_eq!(fs::read_dir(live.join("a-backup")).unwrap().count(), 1);
}

#[tokio::test]
async fn two_logs_of_one_set_are_refused_and_both_stay() {
    let (folder, files) = three_segments("a").await;
    let copy = folder.path().join("live/a-20261122");
    fs::create_dir(&copy).unwrap();
    fs::copy(&files[0], copy.join(files[0].file_name().unwrap())).unwrap();
    let error = Live::open(config(folder.path(), Ack::Synced)).unwrap_err();
    assert!(matches!(error, Error::TwoLogs { .. }), "{error}");
    assert!(files[0].exists() && copy.exists());
}

#[tokio::test]
async fn a_copy_stays_of_an_open_segment_with_sound_frames_behind_a_damaged_one() {
    let folder = TempDir::new().unwrap();
    {
        let live = open(folder.path(), Ack::Synced);
        for hash in 0..10 {
            add(&live, "a", &[mix64(hash)]).await;
        }
    }
    let file = files(folder.path()).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    drop(open(folder.path(), Ack::Synced));
    let copies: Vec<_> = files(folder.path())
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "damaged"))
        .collect();
    assert_eq!(copies.len(), 1);
    assert!(fs::read(&copies[0]).unwrap() == bytes);
    // It is no segment, and goes with the set.
    let live = open(folder.path(), Ack::Synced);
    assert!(all_alive(&live, "a", &[mix64(0)]));
    assert_eq!(live.remove(&key("a"), live.now()), Ok(true));
    assert!(!copies[0].exists());
}

#[tokio::test]
async fn a_set_whose_log_cannot_be_removed_stays_and_takes_adds() {
    let folder = TempDir::new().unwrap();
    {
        let live = open(folder.path(), Ack::Synced);
        add(&live, "a", &hashes(0..10)).await;
        // The name that the folder is to get is taken.
        let taken = folder.path().join("live/a-00000000.dropped");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("file"), "").unwrap();
        let why = live.remove(&key("a"), live.now()).unwrap_err();
        assert!(why.contains("cannot remove the log in") && why.contains("a-00000000"), "{why}");
        assert!(all_alive(&live, "a", &hashes(0..10)));
        add(&live, "a", &hashes(10..20)).await;
    }
    assert!(all_alive(&open(folder.path(), Ack::Synced), "a", &hashes(0..20)));
}

#[tokio::test]
async fn what_fitted_into_the_limit_fits_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let config = LiveConfig { memory: 1 << 20, ..config(folder.path(), Ack::Written) };
    let names = ["a", "b", "c", "d", "e"];
    let mut added = [0_u64; 5];
    {
        let live = Live::open(config.clone()).unwrap();
        let sets = names.map(|name| live.make(&key(name), Options::of(Kind::Set), 1).unwrap());
        let mut is_full = false;
        while !is_full {
            for (set, added) in sets.iter().zip(&mut added) {
                let mut answers = 0;
                let some = hashes(*added..*added + 100);
                is_full |= set.add_each(1, &some, |_, _| answers += 1).1.is_err();
                *added += answers;
            }
        }
        live.sync().await;
        assert!(added.iter().sum::<u64>() > 60_000, "{added:?}");
    }
    let live = Live::open(config).unwrap();
    for (name, added) in names.iter().zip(added) {
        assert!(all_alive(&live, name, &hashes(0..added)), "{name}");
    }
    // The limit is as before.
    let (taken, limit) = live.memory();
    let set = live.get(&key("a"), 1).unwrap();
    let more = set.add_each(1, &hashes(1 << 40..(1 << 40) + 100_000), |_, _| ()).1;
    assert_eq!(more, Err(SetError::Memory), "{taken} of {limit}");
}

#[tokio::test]
async fn the_memory_of_a_removed_set_is_free_while_connections_have_it() {
    let live = Live::open(LiveConfig { memory: 1 << 20, ..LiveConfig::new(None) }).unwrap();
    let set = live.make(&key("a"), Options::of(Kind::Set), 1).unwrap();
    assert_eq!(set.add_each(1, &hashes(0..1 << 20), |_, _| ()).1, Err(SetError::Memory));
    assert_eq!(live.remove(&key("a"), 1), Ok(true));
    let other = live.make(&key("b"), Options::of(Kind::Set), 1).unwrap();
    assert_eq!(other.add_each(1, &hashes(0..40_000), |_, _| ()).1, Ok(()));
    // Who has it yet finds nothing, and adds nothing.
    assert_eq!(set.add_each(1, &[1], |_, _| ()).1, Err(SetError::Gone));
    assert_eq!((set.count(1, mix64(0)), set.size(1).entries), (0, 0));
}

#[tokio::test]
async fn what_came_from_another_windowed_set_keeps_its_step_over_a_restart() {
    let folder = TempDir::new().unwrap();
    let hour = 3_600_000;
    let now = {
        let live = open(folder.path(), Ack::Synced);
        let now = live.now();
        let window = Window::of(10 * hour, hour, Repeat::Renew).unwrap();
        let options = Options { window, ..Options::of(Kind::Any) };
        let set = live.make(&key("a"), options, now).unwrap();
        set.add_each(now, &[2], |_, _| ()).0.wait().await.unwrap();
        // As another set with the same window has it.
        let (ticket, new) = set.union(now, &BTreeMap::from([(now - 9 * hour, vec![1])]));
        assert_eq!(new, Ok(1));
        ticket.wait().await.unwrap();
        now
    };
    let live = open(folder.path(), Ack::Synced);
    let set = live.get(&key("a"), now).unwrap();
    assert_eq!((set.count(now, 1), set.count(now, 2)), (1, 1));
    let later = now + 3 * hour;
    assert_eq!((set.count(later, 1), set.count(later, 2)), (0, 1));
}
