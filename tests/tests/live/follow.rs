//! Live IDs of one server on others: a follower answers for what the decider added, and takes none;
//! a second decider is refused, and a standby takes over.

use std::path::{Path, PathBuf};
use std::process::Command;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_rows};
use bloomsday_tests::live::Wire;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::wait::until;

const READONLY: &str = "-READONLY You can't write against a read only replica.|";
/// What the day has.
const OLD: std::ops::Range<u64> = 0..5_000;

fn flags(backend: &Backend, role: &str, data: &str) -> Vec<String> {
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let config = path(&format!("{role}.toml"));
    let lease = if role == "follow" { "" } else { "live_lease = \"9s\"\n" };
    std::fs::write(&config, format!("[filters.rt]\nlive = \"{role}\"\n{lease}")).unwrap();
    let mut words = vec!["--config".to_owned(), config, "--resp".into(), "127.0.0.1:0".into()];
    if !data.is_empty() {
        words.extend(["--data-dir".to_owned(), path(data)]);
    }
    words
}

fn serve(backend: &Backend, role: &str, data: &str) -> Daemon {
    let flags = flags(backend, role, data);
    Daemon::ready(backend, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn wire(daemon: &Daemon) -> Wire {
    Wire::connect(daemon.resp.as_ref().unwrap())
}

#[track_caller]
fn add(daemon: &Daemon, ids: &[String]) {
    let reply = wire(daemon).call(&format!("BF.MADD rt {}", ids.join(" ")));
    assert!(reply.starts_with(&format!("*{}|:", ids.len())), "{reply}");
}

/// IDs that are no false positive of the day.
fn strangers(daemon: &Daemon, from: u64, count: usize) -> Vec<String> {
    let ids: Vec<String> = (from..).map(user).take(count + count / 4 + 50).collect();
    let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
    let is_miss = answer.body.lines().map(|line| line == "0");
    let found: Vec<_> = ids.iter().zip(is_miss).filter(|(_, miss)| *miss).collect();
    assert!(found.len() >= count, "{}", answer.body);
    found.into_iter().map(|(id, _)| id.clone()).take(count).collect()
}

fn hits(daemon: &Daemon, ids: &[String]) -> usize {
    let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.lines().filter(|line| *line == "1").count()
}

/// Segments below a folder of a local store.
pub(super) fn segments(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let all = paths.flat_map(|path| if path.is_dir() { segments(&path) } else { vec![path] });
    let mut found: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "seg")).collect();
    found.sort();
    found
}

#[test]
fn a_follower_answers_for_what_the_decider_added_and_deleted_and_takes_no_ids() {
    for backend in Backend::all() {
        Publisher::days_ago(&backend, 1).users(OLD).publish();
        let decider = serve(&backend, "decide", "data");
        let ids = strangers(&decider, 100_000, 600);
        // Before and after the follower's start.
        add(&decider, &ids[..200]);
        let follower = serve(&backend, "follow", "");
        add(&decider, &ids[200..]);
        follower.until("it has all", |daemon| hits(daemon, &ids) == ids.len());
        assert!(follower.contains(&ids[0]));
        let mut client = wire(&follower);
        assert_eq!(client.call(&format!("SMISMEMBER rt {} {}", ids[0], user(1))), "*2|:1|:1|");

        // Of an ID that the day has, too.
        let gone = [ids[7].clone(), user(3)];
        for id in &gone {
            assert_eq!(wire(&decider).call(&format!("SREM rt {id}")), ":1|");
        }
        follower.until("it hides the deleted", |daemon| hits(daemon, &gone) == 0);
        add(&decider, &gone[1..]);
        follower.until("it has the added again", |daemon| hits(daemon, &gone) == 1);

        for line in ["BF.ADD rt x", "SADD rt x", "SREM rt x", "BF.MADD rt x y"] {
            let reply = client.call(line);
            assert_eq!(reply, READONLY, "{line}");
        }
        for path in ["/v1/filters/rt/add", "/v1/filters/rt/forget"] {
            let answer = follower.post(path, b"x\ny\n");
            assert_eq!(answer.status, 409, "{}", answer.body);
            assert!(answer.body.contains("decides: add there"), "{}", answer.body);
        }
        let live = follower.status()["live"].clone();
        assert_eq!((&live["role"], &live["decides"]), (&"follow".into(), &false.into()), "{live}");
        assert_eq!(live["follow_error"], serde_json::Value::Null);
        assert!(live["lease"]["epoch"].as_u64() >= Some(1), "{live}");
        follower.until("the lag is short", |daemon| {
            daemon.status()["live"]["lag_seconds"].as_f64().is_some_and(|lag| lag < 15.0)
        });
        let metrics = follower.get("/metrics").body;
        assert!(metrics.contains("bloomsday_live_lag_seconds{filter=\"rt\"}"), "{metrics}");
        let decides = |daemon: &Daemon| daemon.metric("bloomsday_live_decides{filter=\"rt\"}");
        assert_eq!((decides(&decider), decides(&follower)), (1, 0));

        // A new one reads what it needs before it is ready.
        drop(follower);
        let follower = serve(&backend, "follow", "");
        assert_eq!((hits(&follower, &ids), hits(&follower, &gone)), (ids.len() - 1, 1));
    }
}

#[test]
fn a_follower_is_not_ready_before_it_has_read_what_others_added() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    // A round of following hangs at it.
    let lease = Path::new(&backend.store).join("rt/live/lease");
    std::fs::create_dir_all(lease.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(&lease).status().unwrap().success());
    let flags = flags(&backend, "follow", "");
    let words: Vec<&str> = flags.iter().map(String::as_str).collect();
    let follower = Daemon::start(&backend, &words);
    follower.until("the day is loaded", |daemon| !daemon.status()["day"].is_null());
    let answer = follower.get("/readyz");
    let waits = "not ready: rt without others' live IDs yet\n";
    assert_eq!((answer.status, &*answer.body), (503, waits));
    drop(std::fs::File::options().write(true).open(&lease).unwrap());
    follower.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
}

/// Adds IDs so that each part has a segment of its own, and ends the server. The first segment has
/// the first frame of the log, its number.
fn ship_in_segments<'a>(
    decider: Daemon,
    folder: &Path,
    parts: impl Iterator<Item = &'a [String]>,
) -> Vec<PathBuf> {
    let until_shipped = |n: usize| {
        until("it is in a segment of its own", || (segments(folder).len() == n).then_some(()));
    };
    until_shipped(1);
    for (i, ids) in parts.enumerate() {
        add(&decider, ids);
        until_shipped(i + 2);
    }
    end(decider);
    segments(folder)
}

/// A log of a server that has ended, in segments of a hundred IDs each, after the first.
struct ShippedLog {
    backend: Backend,
    folder: PathBuf,
    /// IDs that are not in the day's filter: those that were shipped, and more.
    ids: Vec<String>,
    files: Vec<PathBuf>,
}

impl ShippedLog {
    fn new(shipped: usize, more: usize) -> ShippedLog {
        let backend = Backend::local();
        Publisher::days_ago(&backend, 1).users(OLD).publish();
        let decider = serve(&backend, "decide", "data");
        let folder = Path::new(&backend.store).join("rt/live");
        let ids = strangers(&decider, 100_000, shipped + more);
        let files = ship_in_segments(decider, &folder, ids[..shipped].chunks(100));
        ShippedLog { backend, folder, ids, files }
    }
}

fn end(server: Daemon) {
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
}

/// The number of the log that a segment is of: the name of its head.
fn node_of(segment: &Path) -> &str {
    segment.file_name().unwrap().to_str().unwrap().split('-').next().unwrap()
}

fn damage(segment: &Path) {
    let mut bytes = std::fs::read(segment).unwrap();
    bytes[100] ^= 1;
    std::fs::write(segment, bytes).unwrap();
}

#[test]
fn a_damaged_or_missing_segment_is_named_and_read_when_it_is_back() {
    let ShippedLog { backend, ids, files, .. } = ShippedLog::new(400, 0);
    let (damaged, missing) = (&files[2], &files[3]);
    let sound = [damaged, missing].map(|path| std::fs::read(path).unwrap());
    damage(damaged);
    std::fs::remove_file(missing).unwrap();

    let follower = serve(&backend, "follow", "");
    let live = follower.status()["live"].clone();
    let why = live["follow_error"].as_str().unwrap_or_default();
    let name = damaged.file_name().unwrap().to_str().unwrap();
    assert!(why.contains(name) && why.contains("digest"), "{live}");
    assert!(live["ship_lag_seconds"].is_null(), "it writes nothing: {live}");
    // Since the start: nothing tells how old the missing ones are.
    let lag = live["lag_seconds"].as_f64().expect("not all is here");
    follower.until("the lag grows", |daemon| {
        daemon.status()["live"]["lag_seconds"].as_f64().is_some_and(|later| later > lag)
    });
    assert_eq!(hits(&follower, &[&ids[..100], &ids[300..]].concat()), 200, "what follows is read");
    std::fs::write(damaged, &sound[0]).unwrap();
    follower.until("it reads the sound one", |daemon| hits(daemon, &ids[..200]) == 200);
    follower.until("it names the missing one", |daemon| {
        let live = daemon.status()["live"].clone();
        live["follow_error"].as_str().is_some_and(|why| why.contains("are not in the store"))
    });
    std::fs::write(missing, &sound[1]).unwrap();
    follower.until("it has all", |daemon| hits(daemon, &ids) == 400);
    follower.until("nothing is wrong", |daemon| {
        let live = daemon.status()["live"].clone();
        live["follow_error"].is_null() && live["lag_seconds"].is_number()
    });
}

#[test]
fn a_damaged_segment_whose_frames_another_one_has_stops_nobody() {
    let ShippedLog { backend, folder, ids, files } = ShippedLog::new(500, 0);
    [&files[1], &files[2]].into_iter().for_each(|path| damage(path));
    let standby = serve(&backend, "standby", "other");
    standby.until("it misses both", |daemon| hits(daemon, &ids) == 300);

    // As docs/live.md says. What is written in place of the first one has the frames of all.
    let node = node_of(&files[1]);
    let delete = |segments: &[&PathBuf]| {
        segments.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        std::fs::remove_file(folder.join("heads").join(node)).unwrap();
    };
    delete(&[&files[1], &files[2]]);
    // The other one has the lease.
    let server = serve(&backend, "standby", "data");
    standby.until("it has all", |daemon| hits(daemon, &ids) == ids.len());
    end(server);
    standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
    end(standby);

    // One whose frames the long one has: a new standby reads that first. Then it is deleted, and
    // nothing is written in its place.
    damage(&files[3]);
    let standby = serve(&backend, "standby", "third");
    standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
    assert_eq!(hits(&standby, &ids), ids.len());
    end(standby);
    let last = files.last().unwrap();
    damage(last);
    let standby = serve(&backend, "standby", "fourth");
    assert_eq!(hits(&standby, &ids), ids.len());
    delete(&[last]);
    end(serve(&backend, "standby", "data"));
    standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
    assert_eq!(hits(&standby, &ids), ids.len());
    end(standby);

    // What is added next is read although nobody knows where a damaged one before it ends.
    damage(&files[4]);
    let follower = serve(&backend, "follow", "");
    let decider = serve(&backend, "decide", "data");
    let more = strangers(&decider, 200_000, 10);
    add(&decider, &more);
    follower.until("it reads on", |daemon| hits(daemon, &more) == more.len());
}

#[test]
fn a_log_that_is_written_again_in_longer_segments_is_read_on() {
    let ShippedLog { backend, folder, ids, files } = ShippedLog::new(400, 200);
    damage(&files[3]);
    let follower = serve(&backend, "follow", "");
    follower.until("it misses one", |daemon| hits(daemon, &ids) == 300);

    // Its neighbour was read, and is written again: with the frames of the damaged one.
    let node = node_of(&files[2]);
    let again = [&files[2], &folder.join("heads").join(node)];
    again.into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let decider = serve(&backend, "decide", "data");
    follower.until("it has all", |daemon| hits(daemon, &ids) == 400);

    // Everything is, with what it has not read yet.
    follower.signal("STOP");
    add(&decider, &ids[400..500]);
    end(decider);
    std::fs::remove_dir_all(&folder).unwrap();
    let decider = serve(&backend, "decide", "data");
    until("it is written again", || (!segments(&folder).is_empty()).then_some(()));
    follower.signal("CONT");
    follower.until("it has all", |daemon| hits(daemon, &ids) == 500);
    add(&decider, &ids[500..]);
    follower.until("it has all", |daemon| hits(daemon, &ids) == 600);
}

#[test]
fn a_server_that_cannot_read_what_others_added_does_not_decide_and_says_why() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let first = serve(&backend, "decide", "data");
    let ids = strangers(&first, 100_000, 100);
    add(&first, &ids);
    end(first);
    let files = segments(&Path::new(&backend.store).join("rt/live"));
    let (damaged, sound) = (files.last().unwrap(), std::fs::read(files.last().unwrap()).unwrap());
    damage(damaged);
    let standby = serve(&backend, "standby", "other");
    standby.until("it says why it does not decide", |daemon| {
        let answer = daemon.post("/v1/filters/rt/add", b"x\n");
        let why = "this server has the lease, but cannot read all that others added: rt/live/";
        answer.status == 409 && answer.body.contains(why)
    });
    // Without the head of that log, a new start does not know of it.
    drop(standby);
    let heads = Path::new(&backend.store).join("rt/live/heads");
    let node = node_of(damaged);
    let head = std::fs::read(heads.join(node)).unwrap();
    std::fs::remove_file(heads.join(node)).unwrap();
    let standby = serve(&backend, "standby", "third");
    standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
    assert_eq!(hits(&standby, &ids), 0);
    drop(standby);
    // With a sound copy it is all there.
    std::fs::write(damaged, sound).unwrap();
    std::fs::write(heads.join(node), head).unwrap();
    let standby = serve(&backend, "standby", "other");
    standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
    assert_eq!(hits(&standby, &ids), ids.len());
}

#[test]
fn a_second_decider_is_refused_and_takes_over_when_the_first_is_gone() {
    for backend in Backend::all() {
        Publisher::days_ago(&backend, 1).users(OLD).publish();
        let first = serve(&backend, "decide", "data");
        let ids = strangers(&first, 100_000, 200);
        add(&first, &ids[..100]);
        let fixed = ["--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let more = flags(&backend, "decide", "other");
        let words: Vec<&str> =
            ["serve"].into_iter().chain(fixed).chain(more.iter().map(String::as_str)).collect();
        let refused = backend.bloomsday(&words).run();
        refused.expect(5).complains(&["decides which live IDs of `rt`", "until 20", "standby"]);

        let standby = serve(&backend, "standby", "other");
        assert!(wire(&standby).call("BF.ADD rt x").contains(READONLY));
        let answer = standby.post("/v1/filters/rt/add", b"x\n");
        assert!(answer.status == 409 && answer.body.contains("decides until"), "{}", answer.body);
        standby.until("it follows", |daemon| hits(daemon, &ids[..100]) == 100);
        let epoch = |daemon: &Daemon| daemon.status()["live"]["lease"]["epoch"].as_u64();
        let before = epoch(&first);
        first.signal("KILL");
        first.wait();
        standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
        assert!(epoch(&standby) > before, "{:?} after {before:?}", epoch(&standby));
        // What the first one acknowledged is known, and nothing is new twice.
        let reply = wire(&standby).call(&format!("BF.MADD rt {}", ids.join(" ")));
        assert_eq!(reply.matches(":1|").count(), 100, "{reply}");

        // The first one comes back, and follows.
        let first = serve(&backend, "standby", "data");
        first.until("it follows the other one", |daemon| hits(daemon, &ids) == 200);
        assert!(wire(&first).call("BF.ADD rt x").contains(READONLY));
        // One that ends gives its lease back.
        standby.signal("TERM");
        assert_eq!(standby.wait(), 0);
        first.until("it decides again", |daemon| daemon.status()["live"]["decides"] == true);
        add(&first, &[user(300_000)]);
    }
}

#[test]
fn a_decider_that_was_suspended_takes_no_ids_when_another_one_has_the_lease() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let first = serve(&backend, "decide", "data");
    let standby = serve(&backend, "standby", "other");
    let ids = strangers(&first, 100_000, 2);
    add(&first, &ids[..1]);
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &first.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("STOP");
    standby.until("it decides", |daemon| daemon.status()["live"]["decides"] == true);
    add(&standby, &ids[1..]);
    signal("CONT");
    // At once: its lease was over before it could ask for a new one.
    assert!(wire(&first).call("BF.ADD rt x").contains(READONLY));
    first.until("it says who decides", |daemon| {
        daemon.status()["live"]["lease"]["epoch"].as_u64() > Some(1)
    });
    // What it had acknowledged counts, and what the other one added is here.
    for daemon in [&first, &standby] {
        daemon.until("both have all", |daemon| hits(daemon, &ids) == 2);
    }
}

#[test]
fn without_a_store_nobody_decides_for_longer_than_a_lease() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let daemon = serve(&backend, "decide", "data");
    let store = Path::new(&backend.store);
    let away = store.with_extension("away");
    std::fs::rename(store, &away).unwrap();
    daemon.until("adds are refused", |daemon| {
        // What is being written at this moment may make the folder again.
        let _ = std::fs::remove_dir_all(store);
        wire(daemon).call("BF.ADD rt x").contains(READONLY)
    });
    let live = daemon.status()["live"].clone();
    assert!(live["lease_error"].is_string() && live["decides"] == false, "{live}");
    let _ = std::fs::remove_dir_all(store);
    std::fs::rename(&away, store).unwrap();
    daemon.until("adds go on", |daemon| !wire(daemon).call("BF.ADD rt x").contains(READONLY));
}

#[test]
fn who_ends_before_all_is_shipped_keeps_its_lease_for_a_restart() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let daemon = serve(&backend, "decide", "data");
    let [first, second]: [String; 2] = strangers(&daemon, 100_000, 2).try_into().unwrap();
    add(&daemon, &[first]);
    let live = Path::new(&backend.store).join("rt/live");
    let lease = || std::fs::read_to_string(live.join("lease")).unwrap();
    let shipped = || segments(&live).len();
    until("it ships", || (shipped() > 0).then_some(()));
    // Nothing more can be shipped: a file is where the day's folder was.
    let (day, away) = (live.join(today().to_string()), live.with_extension("away"));
    std::fs::rename(&day, &away).unwrap();
    std::fs::write(&day, "").unwrap();
    add(&daemon, std::slice::from_ref(&second));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    let until_ms = |lease: &str| {
        let lease: serde_json::Value = serde_json::from_str(lease).unwrap();
        let until: jiff::Timestamp = lease["until"].as_str().unwrap().parse().unwrap();
        until
    };
    assert!(until_ms(&lease()) > jiff::Timestamp::now(), "{}", lease());
    std::fs::remove_file(&day).unwrap();
    std::fs::rename(&away, &day).unwrap();
    let daemon = serve(&backend, "decide", "data");
    daemon.until("it decides", |daemon| wire(daemon).call("BF.ADD rt x") == ":1|");
    assert_eq!(wire(&daemon).call(&format!("BF.ADD rt {second}")), ":0|");
    // With nothing left, the lease is over at once.
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    assert!(until_ms(&lease()) <= jiff::Timestamp::now(), "{}", lease());
}

#[test]
fn a_day_takes_over_what_a_follower_has_and_a_rollback_brings_it_back() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(OLD).publish();
    let decider = serve(&backend, "decide", "data");
    let new = strangers(&decider, 100_000, 1_000);
    add(&decider, &new);
    let follower = serve(&backend, "follow", "");
    follower.until("it has all", |daemon| hits(daemon, &new) == 1_000);
    assert_eq!(wire(&decider).call(&format!("SREM rt {}", new[0])), ":1|");
    let alive = &new[1..];
    follower.until("it hides one", |daemon| hits(daemon, &new[..1]) == 0);
    // The day lost the last 100.
    let input = backend.folder.path().join("today/a.parquet");
    write_rows(&input, OLD.map(user).chain(new[..900].to_vec()).map(Some));
    Publisher::day(&backend, today()).input(input.parent().unwrap()).publish();
    let live = |field: &str| follower.status()["live"][field].as_u64().unwrap();
    assert_eq!(follower.reload("").0, 200);
    assert!((85..=100).contains(&live("entries")), "{} stay", live("entries"));
    assert!((88..=105).contains(&live("unconfirmed")), "{}", live("unconfirmed"));
    assert_eq!(hits(&follower, alive), 999);
    let (day, yesterday) = (today().to_string(), today().minus(1).to_string());
    let words = ["repoint", "rt", &day, "--to", &yesterday, "--reason", "a test"];
    backend.bloomsday(&words).run().expect(0);
    assert_eq!(follower.reload("").0, 200);
    assert_eq!((live("entries"), hits(&follower, alive)), (999, 999), "a rollback brings all back");
    assert_eq!(hits(&follower, &new[..1]), 0);
}
