//! Live IDs in the store: what is added is shipped as segments, whatever kills the server, and
//! prune keeps what a day may need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bloomsday_common::crash_point::SHIP;
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::{Frames, Op};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::live::Wire;
use bloomsday_tests::program::Run;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::wait::until;

/// A store with a filter of today, and a configuration in which it takes IDs.
fn backend() -> Backend {
    let backend = Backend::local();
    Publisher::day(&backend, today()).users(0..5_000).publish();
    std::fs::write(path(&backend, "live.toml"), "[filters.rt]\nlive = \"decide\"\n").unwrap();
    backend
}

fn path(backend: &Backend, name: &str) -> PathBuf {
    backend.folder.path().join(name)
}

fn flags(backend: &Backend) -> Vec<String> {
    let path = |name: &str| path(backend, name).display().to_string();
    let (config, data) = (path("live.toml"), path("data"));
    ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"].map(str::to_owned).into()
}

fn serve(backend: &Backend) -> Daemon {
    serve_with(backend, &[])
}

fn serve_with(backend: &Backend, more: &[&str]) -> Daemon {
    let flags = flags(backend);
    let words: Vec<_> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Daemon::ready(backend, &words)
}

/// Every file in a folder and below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The segments in the store, and what they add; each is sound, and has its own frames.
fn shipped(backend: &Backend) -> (usize, BTreeSet<u64>) {
    let folder = Path::new(&backend.store).join("rt/live");
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|e| e == "seg");
    let segments: Vec<_> = files(&folder).into_iter().filter(is_segment).collect();
    let (mut hashes, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for path in &segments {
        let bytes = std::fs::read(path).unwrap();
        let (header, frames) = Frames::of_closed(&bytes).unwrap();
        for frame in frames.map(Result::unwrap) {
            assert!(numbers.insert((header.node, frame.seq)), "{} has a frame again", frame.seq);
            hashes.extend(frame.hashes().filter(|_| frame.op == Op::Add));
        }
    }
    (segments.len(), hashes)
}

fn head(backend: &Backend) -> Option<Head> {
    let mut heads = files(&Path::new(&backend.store).join("rt/live/heads"));
    // One that is being written.
    heads.retain(|path| !path.to_string_lossy().contains('#'));
    assert!(heads.len() < 2, "a log has one head: {heads:?}");
    Head::parse(&std::fs::read(heads.first()?).ok()?).ok()
}

fn hash(id: &str) -> u64 {
    Xxh3::of(id.as_bytes()).0
}

#[track_caller]
fn until_shipped(backend: &Backend, ids: &[String]) {
    until("all IDs are in the store", || {
        let (_, hashes) = shipped(backend);
        ids.iter().all(|id| hashes.contains(&hash(id))).then_some(())
    });
}

/// Until the store was read nobody knows whether there is a day, and what it has.
fn until_loaded(wire: &mut Wire) {
    let is_loaded = |wire: &mut Wire| !wire.call("BF.EXISTS rt x").starts_with("-LOADING ");
    until("it takes IDs", || is_loaded(wire).then_some(()));
}

/// Adds IDs, and returns when each is acknowledged.
fn add(daemon: &Daemon, ids: &[String]) {
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    until_loaded(&mut wire);
    let reply = wire.call(&format!("BF.MADD rt {}", ids.join(" ")));
    assert!(reply.starts_with(&format!("*{}|:", ids.len())), "{reply}");
}

fn new_ids(from: u64, count: u64) -> Vec<String> {
    (from..from + count).map(user).collect()
}

#[test]
fn what_is_added_is_in_the_store_within_seconds_and_the_lag_says_so() {
    let backend = backend();
    let daemon = serve(&backend);
    let ids = new_ids(100_000, 500);
    add(&daemon, &ids);
    until_shipped(&backend, &ids);
    let day = Path::new(&backend.store).join(format!("rt/live/{}", today()));
    assert!(!files(&day).is_empty(), "segments are in the folder of their day");
    until("the head covers all frames", || head(&backend).filter(|head| head.seq >= 2));
    let reported = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
    assert!(reported["live"][0]["lag_seconds"].as_i64().unwrap() < 60, "{reported}");
    let metrics = daemon.get("/metrics").body;
    assert!(metrics.contains("bloomsday_live_lag_seconds{filter=\"rt\"}"), "{metrics}");
    daemon.until("the status knows of no lag", |daemon| {
        daemon.status()["live"]["lag_seconds"].as_f64().is_some_and(|lag| lag < 5.0)
    });
    // A store that cannot be written: the lag grows, adds go on, and nothing is lost.
    let folder = Path::new(&backend.store);
    let away = folder.with_extension("away");
    std::fs::rename(folder, &away).unwrap();
    let later = new_ids(200_000, 300);
    add(&daemon, &later);
    daemon.until("the status says why", |daemon| {
        let live = &daemon.status()["live"];
        let lag = |name: &str| live[name].as_f64().unwrap();
        live["ship_error"].is_string() && lag("lag_seconds") > 2.0 && lag("ship_lag_seconds") > 2.0
    });
    std::fs::rename(&away, folder).unwrap();
    until_shipped(&backend, &later);
    daemon.until("the error is over", |daemon| daemon.status()["live"]["ship_error"].is_null());
}

#[test]
fn a_lease_that_cannot_be_read_is_no_silence() {
    let backend = backend();
    let lease = Path::new(&backend.store).join("rt/live/lease");
    std::fs::create_dir_all(lease.parent().unwrap()).unwrap();
    std::fs::write(&lease, "half a le").unwrap();
    let daemon = serve(&backend);
    daemon.until("the status says why nobody decides", |daemon| {
        let why = &daemon.status()["live"]["lease_error"];
        why.as_str().is_some_and(|why| why.contains("cannot be read"))
    });
    let id = user(0);
    let refused = daemon.post("/v1/filters/rt/add", id.as_bytes());
    assert!(refused.body.contains("cannot be read"), "{}", refused.body);
    backend.bloomsday(&["status", "rt"]).run().expect(0).complains(&["lease", "cannot be read"]);
}

/// Its own number is the first frame of a log.
#[test]
fn a_server_to_which_nothing_was_added_has_no_lag() {
    let backend = backend();
    let _daemon = serve(&backend);
    until("the head covers the first frame", || head(&backend).filter(|head| head.seq == 1));
}

/// A follower reads no further than the head says.
#[test]
fn an_add_that_waits_for_the_store_is_answered_when_the_head_of_the_log_names_it() {
    let backend = backend();
    let daemon = serve_with(&backend, &["--ack", "shipped"]);
    let before = until("there is a head", || head(&backend).filter(|head| head.seq == 1));
    let heads = Path::new(&backend.store).join("rt/live/heads");
    let file = files(&heads).pop().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    // No file can replace a folder that has one.
    until("it is a folder", || {
        let _ = std::fs::remove_file(&file);
        std::fs::create_dir(&file).ok()
    });
    std::fs::write(file.join("x"), b"").unwrap();
    let ids = new_ids(100_000, 10);
    std::thread::scope(|threads| {
        let adding = threads.spawn(|| add(&daemon, &ids));
        until_shipped(&backend, &ids);
        daemon.until("the status says why", |d| d.status()["live"]["ship_error"].is_string());
        assert!(!adding.is_finished(), "it was answered, and no other server can read it");
        std::fs::remove_dir_all(&file).unwrap();
        adding.join().unwrap();
    });
    assert!(head(&backend).is_some_and(|head| head.seq > before.seq));

    // As if it had been killed before it wrote this head: a successor reads on.
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    std::fs::write(&file, bytes).unwrap();
    std::fs::rename(path(&backend, "data"), path(&backend, "lost")).unwrap();
    let successor = serve(&backend);
    let reply = Wire::connect(successor.resp.as_ref().unwrap())
        .call(&format!("BF.MADD rt {}", ids.join(" ")));
    assert_eq!(reply, format!("*10|{}", ":0|".repeat(10)), "they are new a second time");
}

#[test]
fn a_server_that_ends_ships_what_it_has_and_a_killed_one_does_so_after_its_start() {
    let backend = backend();
    let daemon = serve(&backend);
    let ids = new_ids(100_000, 50);
    add(&daemon, &ids);
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    let (_, hashes) = shipped(&backend);
    assert!(ids.iter().all(|id| hashes.contains(&hash(id))), "an end ships what there is");

    let daemon = serve(&backend);
    let more = new_ids(200_000, 50);
    add(&daemon, &more);
    daemon.signal("KILL");
    daemon.wait();
    let daemon = serve(&backend);
    until_shipped(&backend, &more);
    drop(daemon);
}

#[test]
fn kill_9_while_a_segment_is_shipped_loses_and_repeats_nothing() {
    for place in SHIP {
        let backend = backend();
        let daemon = serve(&backend);
        let ids = new_ids(100_000, 100);
        add(&daemon, &ids);
        daemon.signal("KILL");
        daemon.wait();
        let words =
            ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let words: Vec<String> =
            words.iter().map(|word| (*word).to_owned()).chain(flags(&backend)).collect();
        let mut run = KillableRun::start(backend.bloomsday(&words).into_command(), Some(place));
        assert!(run.paused(), "{place} is never reached: {}", run.said());
        drop(run);
        let daemon = serve(&backend);
        let more = new_ids(200_000, 100);
        add(&daemon, &more);
        until_shipped(&backend, &[ids, more].concat());
        assert_eq!(daemon.status()["live"]["ship_error"], serde_json::Value::Null);
    }
}

#[test]
fn kill_9_after_a_part_of_a_log_was_shipped_ships_the_rest() {
    let backend = backend();
    // A port that nobody listens on: the address that the system chooses is not printed to this
    // test.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let resp = format!("127.0.0.1:{port}");
    let mut words = flags(&backend);
    *words.last_mut().unwrap() = resp.clone();
    let fixed = ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    words.splice(0..0, fixed.map(str::to_owned));
    let mut run = KillableRun::start(backend.bloomsday(&words).into_command(), Some("shipped"));
    let mut wire = until("it listens", || Wire::try_connect(&resp).ok());
    until_loaded(&mut wire);
    let mut add = |ids: &[String]| {
        let reply = wire.call(&format!("BF.MADD rt {}", ids.join(" ")));
        assert!(reply.starts_with(&format!("*{}|:", ids.len())), "{reply}");
    };
    let (first, second) = (new_ids(100_000, 100), new_ids(200_000, 100));
    add(&first);
    assert!(run.paused(), "nothing is shipped: {}", run.said());
    // In the same file of the log, and so in the segment of the same name.
    add(&second);
    drop(run);
    let daemon = serve(&backend);
    until_shipped(&backend, &[first, second].concat());
    assert_eq!(daemon.status()["live"]["ship_error"], serde_json::Value::Null);
}

/// Its frames have the numbers of others that are in the store: they would be in no other server,
/// and what the remedy moves away must not have been acknowledged.
#[test]
fn a_data_folder_from_an_older_copy_takes_no_ids_and_ships_nothing() {
    for head_is_lost in [false, true] {
        a_data_folder_from_an_older_copy(head_is_lost);
    }
}

/// With `head_is_lost` the last process was killed between its last segment and the head.
fn a_data_folder_from_an_older_copy(head_is_lost: bool) {
    let backend = backend();
    let (data, copy) = (path(&backend, "data"), path(&backend, "copy"));
    let run = |ids: &[String]| {
        let daemon = serve(&backend);
        add(&daemon, ids);
        until_shipped(&backend, ids);
        daemon.signal("TERM");
        assert_eq!(daemon.wait(), 0);
    };
    run(&new_ids(100_000, 20));
    let copied = std::process::Command::new("cp").arg("-r").args([&data, &copy]).status();
    assert!(copied.unwrap().success());
    let heads = Path::new(&backend.store).join("rt/live/heads");
    let head = std::fs::read_dir(heads).unwrap().next().unwrap().unwrap().path();
    let before_it = std::fs::read(&head).unwrap();
    run(&new_ids(200_000, 30));
    if head_is_lost {
        std::fs::write(&head, before_it).unwrap();
    }
    let before = shipped(&backend);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();

    let daemon = serve(&backend);
    let refused = |daemon: &Daemon| {
        let error = daemon.status()["live"]["ship_error"].as_str().map(str::to_owned);
        error.is_some_and(|why| why.contains("restored from an older copy"))
    };
    daemon.until("it is found out", refused);
    let reply = Wire::connect(daemon.resp.as_ref().unwrap()).call("BF.ADD rt x");
    assert!(reply.starts_with("-MISCONF the store has frames of the log in "), "{reply}");
    assert!(daemon.contains(&user(1)), "lookups go on");
    daemon.until("another may decide", |daemon| daemon.status()["live"]["decides"] == false);
    drop(daemon);
    assert_eq!(shipped(&backend), before);
}

#[test]
fn the_head_goes_on_while_ids_are_added_that_are_not_synced() {
    let backend = backend();
    let daemon = serve_with(&backend, &["--ack", "written"]);
    let (ends, began) = (AtomicBool::new(false), jiff::Timestamp::now());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
            for n in 100_000.. {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                wire.call(&format!("BF.ADD rt {}", user(n)));
            }
        });
        let margin = jiff::SignedDuration::from_secs(2);
        let head =
            until("it goes on", || head(&backend).filter(|head| head.through > began + margin));
        ends.store(true, Ordering::Relaxed);
        assert!(head.seq > 1);
    });
}

/// A store without any day, and a configuration in which `rt` takes IDs.
fn empty(backend: Backend) -> Backend {
    if !backend.store.contains("://") {
        std::fs::create_dir(&backend.store).unwrap();
    }
    std::fs::write(path(&backend, "live.toml"), "[filters.rt]\nlive = \"decide\"\n").unwrap();
    backend
}

/// Adds IDs with a server of its own, which ends and so ships them.
fn add_and_end(backend: &Backend, ids: &[String], forgotten: &[String], again: &[String]) {
    let flags = flags(backend);
    let daemon = Daemon::start(backend, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    add(&daemon, ids);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    for id in forgotten {
        assert_eq!(wire.call(&format!("SREM rt {id}")), ":1|");
    }
    if !again.is_empty() {
        add(&daemon, again);
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
}

fn build(backend: &Backend, more: &[&str]) -> Run {
    let day = today().to_string();
    let words = ["build", "rt", "--day", &day, "--input", "live:"];
    backend.bloomsday(&[&words, more].concat()).run()
}

#[test]
fn a_day_is_built_from_what_was_added_without_any_parquet() {
    for backend in Backend::all().into_iter().map(empty) {
        let ids = new_ids(0, 3_000);
        let (forgotten, again) = (&ids[..100], &ids[..30]);
        add_and_end(&backend, &ids, forgotten, again);
        let report = build(&backend, &[]).expect(0).json();
        assert_eq!(report["outcome"], "published");
        assert_eq!((&report["ids"], &report["sampled_ids"]), (&2_930.into(), &0.into()));
        assert_eq!(report["rows"], 3_030);
        assert!(report["segments"].as_u64().unwrap() >= 1 && report["files"] == 0, "{report}");
        // The server that shipped them has ended.
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("is in the store up to"), "{warnings}");
        assert!(!warnings.contains("has nothing of"), "{warnings}");
        assert_eq!(build(&backend, &[]).expect(0).json()["outcome"], "unchanged");

        // A server that knows of no live IDs.
        let daemon = Daemon::ready(&backend, &[]);
        assert!(ids[100..].iter().chain(again).all(|id| daemon.contains(id)));
        let misses = ids[30..100].iter().filter(|id| !daemon.contains(id)).count();
        assert!(misses > 50, "of 70 that were deleted {misses} are misses");
    }
}

#[test]
fn a_build_names_a_log_that_has_nothing_of_its_day() {
    let backend = empty(Backend::local());
    add_and_end(&backend, &new_ids(0, 500), &[], &[]);
    let heads = Path::new(&backend.store).join("rt/live/heads");
    let hours = |hours: i64| jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
    for (node, server, through) in
        [(1, "silent", hours(20)), (2, "gone", hours(80)), (3, "idle", hours(-30))]
    {
        let head = Head { server: server.into(), seq: 7, through, created_ms: None };
        std::fs::write(heads.join(format!("{node:016x}")), head.to_bytes()).unwrap();
    }
    let report = build(&backend, &[]).expect(0).json();
    let warnings: Vec<&str> =
        report["warnings"].as_array().unwrap().iter().filter_map(|text| text.as_str()).collect();
    let named: Vec<_> = warnings.iter().filter(|text| text.contains("has nothing of")).collect();
    assert!(named.len() == 1 && named[0].contains("of silent is"), "{warnings:?}");
}

#[test]
fn a_build_does_not_leave_out_a_segment_that_is_missing() {
    let backend = empty(Backend::local());
    let parts: Vec<Vec<String>> = (0..4).map(|part| new_ids(part * 1_000, 300)).collect();
    let flags = flags(&backend);
    let daemon = Daemon::start(&backend, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    for ids in &parts[..2] {
        add(&daemon, ids);
        until_shipped(&backend, ids);
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    // Each of these ships what it took as one segment of the same log.
    parts[2..].iter().for_each(|ids| add_and_end(&backend, ids, &[], &[]));
    let folder = Path::new(&backend.store).join(format!("rt/live/{}", today()));
    let mut segments = files(&folder);
    segments.sort();
    let whole = build(&backend, &["--dry-run"]).expect(0).json();
    assert_eq!((&whole["ids"], &whole["segments"]), (&1_200.into(), &segments.len().into()));
    // What begins the set may be in a segment of its own.
    let added = |segment: &PathBuf| {
        let bytes = std::fs::read(segment).unwrap();
        let (_, frames) = Frames::of_closed(&bytes).unwrap();
        frames.map(|frame| frame.unwrap().hashes().len()).sum::<usize>()
    };

    // The first one of the log; in the middle; and the last one, which the head names.
    for lost in &segments {
        let rest = 1_200 - added(lost);
        let away = backend.folder.path().join("away.seg");
        std::fs::rename(lost, &away).unwrap();
        let run = build(&backend, &["--dry-run"]).expect(4);
        run.complains(&["segments of `rt` are missing in the store", "--window-missing allow"]);
        let report = build(&backend, &["--dry-run", "--window-missing", "allow"]).expect(0).json();
        assert_eq!(report["ids"], rest, "{}", lost.display());
        assert!(
            report["warnings"].to_string().contains(
                "segments are missing in the store, and their IDs are left out: the changes"
            ),
            "{report}"
        );
        let compact = ["compact", "rt", "--day", &today().to_string(), "--dry-run"];
        backend.bloomsday(&compact).run().expect(4).complains(&["are missing in the store"]);
        let allowed = [&compact[..], &["--window-missing", "allow"]].concat();
        let report = backend.bloomsday(&allowed).run().expect(0).json();
        assert_eq!(report["hashes"], rest);
        std::fs::rename(&away, lost).unwrap();
    }
    assert_eq!(build(&backend, &["--dry-run"]).expect(0).json()["digest"], whole["digest"]);
}

#[test]
fn a_build_from_live_ids_refuses_what_it_cannot_use() {
    let backend = empty(Backend::local());
    build(&backend, &[]).expect(4).complains(&["no live IDs of", "in the store"]);
    add_and_end(&backend, &new_ids(0, 500), &[], &[]);
    build(&backend, &["--layout", "guava"]).expect(2).complains(&["layout `blocked`"]);
    build(&backend, &["--input", "x.parquet"]).expect(2).complains(&["name no other"]);
    build(&backend, &["--window-days", "3"]).expect(4).complains(&["2 have no input"]);
    let allowed = ["--window-days", "3", "--window-missing", "allow", "--dry-run"];
    assert_eq!(build(&backend, &allowed).expect(0).json()["ids"], 500);

    // Any change of a byte, and a segment under another name.
    let folder = Path::new(&backend.store).join(format!("rt/live/{}", today()));
    let segment = files(&folder).remove(0);
    let sound = std::fs::read(&segment).unwrap();
    let mut damaged = sound.clone();
    damaged[100] ^= 1;
    std::fs::write(&segment, damaged).unwrap();
    build(&backend, &[]).complains(&["rt/live/", "digest is not that of its bytes"]);
    std::fs::write(&segment, &sound).unwrap();
    let other = folder.join("0000000000000001-00000001-0000000000000001.seg");
    std::fs::rename(&segment, other).unwrap();
    build(&backend, &[]).complains(&["its header does not say what its name says"]);
}

#[test]
fn prune_deletes_segments_of_days_that_nothing_needs() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..2_000).publish();
    let folder =
        |back: u32| Path::new(&backend.store).join(format!("rt/live/{}", today().minus(back)));
    for back in 0..30 {
        std::fs::create_dir_all(folder(back)).unwrap();
        for first in 1..=2 {
            let name = format!("00000000000000aa-00000001-{first:016x}.seg");
            std::fs::write(folder(back).join(name), b"not read").unwrap();
        }
    }
    let there = || (0..30).filter(|back| !files(&folder(*back)).is_empty()).max();
    let prune = |more: &[&str]| {
        backend.bloomsday(&[&["prune", "rt"], more].concat()).run().expect(0).json()
    };
    let dry = prune(&["--dry-run"]);
    assert_eq!((&dry["segments"], there()), (&30.into(), Some(29)));
    // An old blob that a pointer names needs what was added since its day.
    Publisher::days_ago(&backend, 20).users(0..2_000).publish();
    let pruned = prune(&[]);
    assert_eq!((&pruned["segments"], there()), (&18.into(), Some(20)));
    let history = backend.bloomsday(&["history", "rt"]).run().expect(0).stdout;
    assert!(history.contains("deleted the live segments of"), "{history}");
    // The window of a build, and live_for.
    std::fs::remove_file(
        Path::new(&backend.store).join(format!("rt/pointers/{}", today().minus(20))),
    )
    .unwrap();
    let config = path(&backend, "live.toml");
    for (text, kept) in [
        ("input = \"live:\"\nwindow_days = 18\nwindow_missing = \"allow\"\n", 19),
        ("live = \"decide\"\nlive_for = \"16days\"\n", 17),
        ("keep_days = 2\n", 4),
    ] {
        std::fs::write(&config, format!("[filters.rt]\n{text}")).unwrap();
        prune(&["--config", config.to_str().unwrap()]);
        assert_eq!(there(), Some(kept), "{text}");
    }
}
