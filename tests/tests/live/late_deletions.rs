//! What a decider deleted just before it was killed is read after what its successor added.

use std::path::{Path, PathBuf};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::user;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;
use bloomsday_tests::wait::until;

use super::follow::segments;
use super::streams::{folder, hits, live, no_segments, serve, wire};

/// Its successor waits for its end.
const LEASE: &str = "live_lease = \"6s\"\n";
/// A successor keeps it on a machine that is busy.
const LONG_LEASE: &str = "live_lease = \"60s\"\n";

/// A decider that was killed before anything was in the store, and what it added: two IDs that it
/// deleted then, `again` and `gone`, and one that it did not.
struct Killed {
    data: String,
    again: String,
    gone: String,
    kept: String,
}

impl Killed {
    fn new(backend: &Backend) -> Killed {
        Killed::after_deleting(backend, 0)
    }

    /// As `new`; it also deleted this many IDs that nobody had added.
    fn after_deleting(backend: &Backend, strangers: usize) -> Killed {
        Publisher::days_ago(backend, 1).users(0..5_000).publish();
        let (day, data) = (no_segments(backend), folder(backend, "first"));
        let decider = serve(backend, "decide", LEASE, &["--data-dir", &data]);
        let mut absent = (100_000..).map(user).filter(|id| !decider.contains(id));
        let [again, gone, kept] = std::array::from_fn(|_| absent.next().unwrap());
        drop(absent);
        assert_eq!(wire(&decider).call(&format!("SADD rt {again} {gone} {kept}")), ":3|");
        assert_eq!(wire(&decider).call(&format!("SREM rt {again} {gone}")), ":2|");
        let strangers: Vec<String> = (0..strangers).map(|n| format!("stranger-{n}")).collect();
        for some in strangers.chunks(200_000) {
            wire(&decider).call(&format!("SREM rt {}", some.join(" ")));
        }
        decider.signal("KILL");
        decider.wait();
        std::fs::remove_file(&day).unwrap();
        Killed { data, again, gone, kept }
    }

    /// Starts it again: it ships its log.
    fn come_back(&self, backend: &Backend) -> Daemon {
        serve(backend, "standby", LEASE, &["--data-dir", &self.data])
    }

    /// Its successor, which has added `again` a second time.
    fn succeed(&self, backend: &Backend, keys: &str) -> Daemon {
        let (keys, data) = (format!("{keys}{LONG_LEASE}"), folder(backend, "second"));
        let successor = serve(backend, "standby", &keys, &["--data-dir", &data]);
        successor.until("it decides", |daemon| live(daemon, "decides") == true);
        assert_eq!(wire(&successor).call(&format!("SADD rt {}", self.again)), ":1|");
        successor
    }
}

fn is_hit(daemon: &Daemon, id: &String) -> bool {
    hits(daemon, std::slice::from_ref(id)) == 1
}

#[test]
fn an_old_deletion_hides_no_id_that_only_the_engine_has_yet() {
    let mut backend = Backend::local();
    let redis = Redis::start();
    let keys = format!("live_engine = \"{}\"\n", redis.address());
    let killed = Killed::new(&backend);
    let follower = serve(&backend, "follow", &keys, &[]);
    let ships = folder(&backend, "it-ships");
    let pause = [("BLOOMSDAY_PAUSE_AT", "shipping"), ("BLOOMSDAY_PAUSE_UNTIL", &ships)];
    backend.env.extend(pause.map(|(name, value)| (name, value.to_owned())));
    let _successor = killed.succeed(&backend, &keys);
    backend.env.truncate(backend.env.len() - 2);
    follower.until("the engine has brought it", |daemon| is_hit(daemon, &killed.again));

    let _first = killed.come_back(&backend);
    follower.until("it has read the old log", |daemon| is_hit(daemon, &killed.kept));
    std::fs::write(&ships, "").unwrap();
    follower.until("the other is deleted", |daemon| !is_hit(daemon, &killed.gone));
    assert!(is_hit(&follower, &killed.again), "it was added after the deletion");
}

#[test]
fn an_old_deletion_hides_no_id_while_a_segment_that_was_read_is_damaged_or_gone() {
    a_segment_is_damaged_or_gone("");
}

/// What came by the engine is not read from the store again.
#[test]
fn an_old_deletion_hides_no_id_while_a_segment_that_came_by_the_engine_is_damaged_or_gone() {
    let redis = Redis::start();
    a_segment_is_damaged_or_gone(&format!("live_engine = \"{}\"\n", redis.address()));
}

/// Of the successor's segments the last one stays as it is.
fn a_segment_is_damaged_or_gone(engine: &str) {
    let backend = Backend::local();
    let killed = Killed::new(&backend);
    let follower = serve(&backend, "follow", engine, &[]);
    let successor = killed.succeed(&backend, engine);
    follower.until("it has read it", |daemon| is_hit(daemon, &killed.again));
    let folder = Path::new(&backend.store).join("rt/live");
    let found = || segments(&folder);
    until("it is in the store", || (!found().is_empty()).then_some(()));
    let many = found().len();
    assert_eq!(wire(&successor).call("SADD rt a-later-one"), ":1|");
    until("there is a later one", || (found().len() > many).then_some(()));
    follower.until("it has read that", |daemon| is_hit(daemon, &"a-later-one".to_owned()));
    let sound = damage(found().into_iter().take(many));

    let _first = killed.come_back(&backend);
    follower.until("it has read the old log", |daemon| is_hit(daemon, &killed.kept));
    let names = |part: &str| {
        follower.until("it names them", |daemon| waits_for(daemon, part));
        assert!(is_hit(&follower, &killed.again), "it was added after the deletion");
    };
    names("cannot be used");
    sound.iter().for_each(|(_, path)| std::fs::remove_file(path).unwrap());
    names("are not in the store");
    put_back(&sound);
    follower.until("the other is deleted", |daemon| !is_hit(daemon, &killed.gone));
    assert!(is_hit(&follower, &killed.again));
    follower.until("nothing is wrong", |daemon| live(daemon, "follow_error").is_null());
    assert!(is_hit(&successor, &killed.again));
}

/// What a segment has counts from the moment it is read, as if it had been read in its turn.
#[test]
fn an_old_deletion_hides_no_id_of_a_last_segment_that_was_put_back() {
    let backend = Backend::local();
    let killed = Killed::new(&backend);
    let successor = killed.succeed(&backend, "");
    let segments = damage_all(&backend, &killed.again);
    successor.signal("KILL");
    successor.wait();
    let follower = serve(&backend, "follow", "", &[]);
    follower.until("it names the segment", |daemon| waits_for(daemon, "cannot be used"));
    put_back(&segments);
    follower.until("it has read it", |daemon| is_hit(daemon, &killed.again));

    // A new lease would let the last segment be read once more.
    let keys = "live_lease = \"0s\"\n";
    let _first = serve(&backend, "decide", keys, &["--data-dir", &killed.data]);
    follower.until("it has read the old log", |daemon| is_hit(daemon, &killed.kept));
    follower.until("the other is deleted", |daemon| !is_hit(daemon, &killed.gone));
    assert!(is_hit(&follower, &killed.again), "it was added after the deletion");
}

/// More than are kept at once: they wait for a damaged segment, and what others add does not.
#[test]
fn a_million_late_deletions_stop_no_log() {
    let backend = Backend::local();
    let killed = Killed::after_deleting(&backend, 1_100_000);
    let successor = killed.succeed(&backend, "");
    let segments = damage_all(&backend, &killed.again);
    let follower = serve(&backend, "follow", "", &[]);
    follower.until("it names the segment", |daemon| waits_for(daemon, "cannot be used"));
    assert_eq!(wire(&successor).call("SADD rt the-next"), ":1|");
    follower.until("it has read that", |daemon| is_hit(daemon, &"the-next".to_owned()));

    let _first = killed.come_back(&backend);
    follower.until("they wait", |daemon| waits_for(daemon, "deletions wait"));
    for later in ["one", "two", "three"] {
        assert_eq!(wire(&successor).call(&format!("SADD rt later-{later}")), ":1|");
        follower.until("it has that", |daemon| is_hit(daemon, &format!("later-{later}")));
    }
    put_back(&segments);
    follower.until("the other is deleted", |daemon| !is_hit(daemon, &killed.gone));
    assert!(is_hit(&follower, &killed.again));
    follower.until("nothing is wrong", |daemon| live(daemon, "follow_error").is_null());
}

/// Damages all segments in the store when they have an ID. Returns what they were.
fn damage_all(backend: &Backend, id: &String) -> Vec<(Vec<u8>, PathBuf)> {
    serve(backend, "follow", "", &[]).until("the store has it", |daemon| is_hit(daemon, id));
    damage(segments(&Path::new(&backend.store).join("rt/live")))
}

/// Damages segments. Returns what they were.
fn damage(segments: impl IntoIterator<Item = PathBuf>) -> Vec<(Vec<u8>, PathBuf)> {
    let damaged = segments.into_iter().map(|path| {
        let sound = std::fs::read(&path).unwrap();
        let mut bytes = sound.clone();
        bytes[70] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        (sound, path)
    });
    damaged.collect()
}

fn put_back(segments: &[(Vec<u8>, PathBuf)]) {
    segments.iter().for_each(|(sound, path)| std::fs::write(path, sound).unwrap());
}

/// Whether a follower says that it waits for this.
fn waits_for(follower: &Daemon, part: &str) -> bool {
    live(follower, "follow_error").as_str().is_some_and(|why| why.contains(part))
}
