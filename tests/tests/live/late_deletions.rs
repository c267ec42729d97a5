//! What a decider deleted just before it was killed is read after what its successor added.

use std::path::Path;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::user;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;
use bloomsday_tests::wait::until;

use super::follow::segments;
use super::streams::{folder, hits, live, no_segments, serve, wire};

const LEASE: &str = "live_lease = \"6s\"\n";

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
        Publisher::days_ago(backend, 1).users(0..5_000).publish();
        let (day, data) = (no_segments(backend), folder(backend, "first"));
        let decider = serve(backend, "decide", LEASE, &["--data-dir", &data]);
        let mut absent = (100_000..).map(user).filter(|id| !decider.contains(id));
        let [again, gone, kept] = std::array::from_fn(|_| absent.next().unwrap());
        drop(absent);
        assert_eq!(wire(&decider).call(&format!("SADD rt {again} {gone} {kept}")), ":3|");
        assert_eq!(wire(&decider).call(&format!("SREM rt {again} {gone}")), ":2|");
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
        let data = folder(backend, "second");
        let successor = serve(backend, "standby", keys, &["--data-dir", &data]);
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
    let keys = format!("live_engine = \"{}\"\n{LEASE}", redis.address());
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
    let successor = killed.succeed(&backend, &format!("{engine}{LEASE}"));
    follower.until("it has read it", |daemon| is_hit(daemon, &killed.again));
    let folder = Path::new(&backend.store).join("rt/live");
    let found = || segments(&folder);
    until("it is in the store", || (!found().is_empty()).then_some(()));
    let many = found().len();
    assert_eq!(wire(&successor).call("SADD rt a-later-one"), ":1|");
    until("there is a later one", || (found().len() > many).then_some(()));
    let sound = found().into_iter().take(many);
    let sound: Vec<_> = sound.map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    follower.until("it has read that", |daemon| is_hit(daemon, &"a-later-one".to_owned()));
    let damage = || {
        for (bytes, path) in &sound {
            let mut bytes = bytes.clone();
            bytes[70] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
    };
    damage();

    let _first = killed.come_back(&backend);
    follower.until("it has read the old log", |daemon| is_hit(daemon, &killed.kept));
    let names = |part: &str| {
        follower.until("it names them", |daemon| {
            live(daemon, "follow_error").as_str().is_some_and(|why| why.contains(part))
        });
        assert!(is_hit(&follower, &killed.again), "it was added after the deletion");
    };
    names("cannot be used");
    sound.iter().for_each(|(_, path)| std::fs::remove_file(path).unwrap());
    names("are not in the store");
    sound.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    follower.until("the other is deleted", |daemon| !is_hit(daemon, &killed.gone));
    assert!(is_hit(&follower, &killed.again));
    follower.until("nothing is wrong", |daemon| live(daemon, "follow_error").is_null());
    assert!(is_hit(&successor, &killed.again));
}
