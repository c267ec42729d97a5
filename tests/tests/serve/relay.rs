//! The relay of `deploy/nginx`, a real nginx in front of another: blobs cross once, pointers are
//! fresh, and damaged bytes in it cost one retry.

use std::fs;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::store::Store;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::blobs::TestBlob;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::today;
use bloomsday_tests::nginx::{Logged, Nginx};
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::wait::until;

/// Two parts of 8 MiB.
const IDS: u64 = 10_000_000;

/// A store behind an origin behind a relay.
struct Scene {
    backend: Backend,
    origin: Nginx,
    relay: Nginx,
}

impl Scene {
    fn new() -> Scene {
        let backend = Backend::local();
        let origin = Nginx::of(backend.folder.path());
        let relay = Nginx::relay(&origin);
        Scene { backend, origin, relay }
    }

    fn publish(&self, day: Day, n_ids: u64) {
        let blob = TestBlob::of(day, Layout::Blocked, 0..n_ids);
        let store = Store::create(&self.backend.store).unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(blob.publish(&store));
    }

    /// What the relay answers: the status and the body.
    fn get(&self, path: &str) -> (u16, String) {
        let get = ureq::get(self.relay.url(path)).config().http_status_as_error(false).build();
        let answer = get.call().unwrap();
        (answer.status().as_u16(), answer.into_body().read_to_string().unwrap())
    }

    /// The store as servers behind the relay see it.
    fn reader(&self) -> Backend {
        let root = self.backend.folder.path();
        let path = std::path::Path::new(&self.backend.store).strip_prefix(root).unwrap();
        let store = self.relay.url(&path.display().to_string());
        Backend { store, env: Vec::new(), folder: tempfile::tempdir().unwrap() }
    }

    /// Requests of the origin for blobs, with this method: `GET` for the parts.
    fn requested(&self, method: &str) -> Vec<Logged> {
        let all = self.origin.requests().into_iter();
        let of_blobs = all.filter(|logged| logged.request.contains("/blobs/"));
        of_blobs.filter(|logged| logged.request.starts_with(method)).collect()
    }

    fn fetched(&self) -> Vec<Logged> {
        self.requested("GET ")
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_blob_crosses_a_relay_once_for_all_servers() {
    let scene = Scene::new();
    scene.publish(today().minus(1), IDS);
    let (reader, together) = (scene.reader(), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                let server = Daemon::ready(&reader, &[]);
                assert_eq!(server.status()["day"], today().minus(1).to_string());
            });
        }
    });
    let (fetched, served) = (scene.fetched(), scene.relay.requests());
    let bytes: u64 = fetched.iter().map(|logged| logged.bytes).sum();
    assert_eq!(fetched.len(), 2, "two parts: {fetched:?}");
    let blobs = served.iter().filter(|logged| logged.request.contains("/blobs/"));
    let sent: u64 = blobs.map(|logged| logged.bytes).sum();
    assert_eq!(sent, 4 * bytes, "what four servers got");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_delta_crosses_once_and_a_missing_one_is_looked_for_again_within_five_seconds() {
    let scene = Scene::new();
    let folder = scene.backend.folder.path().join("rt/deltas");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a-b.delta"), "what changed").unwrap();
    let get = |name: &str| scene.get(&format!("rt/deltas/{name}")).0;
    for _ in 0..3 {
        assert_eq!((get("a-b.delta"), get("a-c.delta")), (200, 404));
    }
    let crossed = |name: &str| {
        scene.origin.requests().iter().filter(|logged| logged.request.contains(name)).count()
    };
    assert_eq!(crossed("a-b.delta"), 1);
    fs::write(folder.join("a-c.delta"), "what changed").unwrap();
    let made = Instant::now();
    let mut served = 3;
    loop {
        let sent = made.elapsed();
        served += 1;
        if get("a-c.delta") == 200 {
            break;
        }
        assert!(sent < Duration::from_secs(5), "it is not found after {sent:?}");
    }
    let crossed = crossed("a-c.delta");
    assert!(served > 10 * crossed && crossed <= 4, "{served} requests, {crossed} of the origin");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn to_look_at_a_blob_past_the_relay_costs_no_part_of_it() {
    let scene = Scene::new();
    scene.publish(today().minus(1), 1_000_000);
    let blobs = std::path::Path::new(&scene.backend.store).join("rt/blobs");
    let blob = fs::read_dir(blobs).unwrap().next().unwrap().unwrap();
    let root = scene.backend.folder.path().to_owned();
    let path = blob.path().strip_prefix(root).unwrap().display().to_string();
    for _ in 0..3 {
        let head = ureq::head(scene.relay.url(&path)).header("cache-control", "no-cache").call();
        let length = head.unwrap().headers()["content-length"].to_str().unwrap().to_owned();
        assert_eq!(length, blob.metadata().unwrap().len().to_string());
    }
    assert_eq!(scene.fetched().len(), 0);
    let heads = scene.requested("HEAD ");
    assert!(heads.len() == 3 && heads.iter().all(|logged| logged.bytes == 0), "{heads:?}");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_relay_returns_no_pointer_that_is_five_seconds_old() {
    let scene = Scene::new();
    let folder = scene.backend.folder.path();
    fs::create_dir_all(folder.join("rt/pointers")).unwrap();
    let pointer = folder.join("rt/pointers/2026-11-19");
    let get = || scene.get("rt/pointers/2026-11-19");
    // Made, changed, deleted: also what is not there is known for a moment only.
    assert_eq!(get().0, 404);
    for (state, expected) in [("first", 200), ("second", 200), ("", 404)] {
        match expected {
            200 => fs::write(&pointer, state).unwrap(),
            _ => fs::remove_file(&pointer).unwrap(),
        }
        let changed = Instant::now();
        loop {
            let sent = changed.elapsed();
            let (status, body) = get();
            if status == expected && (status == 404 || body == state) {
                break;
            }
            assert!(sent < Duration::from_secs(5), "{status} {body:?} after {sent:?}");
        }
    }
    // They are stored, so that a fleet that reloads at once costs little.
    let served = scene.relay.requests().len();
    let fetched = scene.origin.requests().len();
    assert!(served > 10 * fetched && fetched <= 8, "{served} requests, {fetched} of the origin");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn one_request_decides_nothing_for_others_and_a_pin_of_any_filter_is_not_kept() {
    let scene = Scene::new();
    let folder = scene.backend.folder.path().join("blobs");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("pin"), "first").unwrap();
    assert_eq!(scene.get("blobs/pin?versionId=old").0, 400);
    assert_eq!(scene.get("blobs/pin"), (200, "first".into()));
    fs::write(folder.join("pin"), "second").unwrap();
    // One of another spelling, which other origins take for another object.
    fs::create_dir_all(folder.join("spelled")).unwrap();
    fs::write(folder.join("spelled/pin"), "first").unwrap();
    for path in ["blobs/spelled//pin", "blobs/./spelled/pin", "blobs/spelled/%70in"] {
        assert_eq!(scene.get(path), (200, "first".into()), "{path}");
    }
    fs::write(folder.join("spelled/pin"), "second").unwrap();
    assert_eq!(scene.get("blobs/spelled/pin"), (200, "second".into()));
    until("it is read again", || (scene.get("blobs/pin").1 == "second").then_some(()));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn damaged_bytes_in_a_relay_cost_one_retry_and_are_replaced() {
    let scene = Scene::new();
    scene.publish(today().minus(1), IDS);
    let reader = scene.reader();
    drop(Daemon::ready(&reader, &[]));
    assert_eq!(scene.fetched().len(), 2);
    // The last byte of each stored part; pointers are stored, too, and are small.
    let mut damaged = 0;
    for file in scene.relay.stored() {
        let mut bytes = fs::read(&file).unwrap();
        if bytes.len() > 100_000 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&file, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 2);
    let server = Daemon::ready(&reader, &[]);
    assert!(server.status()["last_error"].is_null(), "{}", server.status());
    let fetched = scene.fetched();
    assert_eq!(fetched.len(), 2 + 2, "{fetched:?}");
    drop(server);
    // The next server gets sound bytes from the relay.
    Daemon::ready(&reader, &[]);
    assert_eq!(scene.fetched().len(), 2 + 2);
}

/// A relay may keep one part of a blob and drop another. If the blob is uploaded again between,
/// they have different tags, and it is not one object any more.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_relay_with_parts_of_two_uploads_of_a_blob_costs_one_retry() {
    let scene = Scene::new();
    scene.publish(today().minus(1), IDS);
    let reader = scene.reader();
    drop(Daemon::ready(&reader, &[]));
    // The part at the end, which is the smaller one.
    let mut parts: Vec<_> = scene.relay.stored().into_iter().collect();
    parts.retain(|file| fs::metadata(file).unwrap().len() > 100_000);
    parts.sort_by_key(|file| fs::metadata(file).unwrap().len());
    assert_eq!(parts.len(), 2);
    fs::remove_file(&parts[0]).unwrap();
    let blobs = std::path::Path::new(&scene.backend.store).join("rt/blobs");
    let blob = fs::read_dir(blobs).unwrap().next().unwrap().unwrap().path();
    let again = fs::File::options().write(true).open(blob).unwrap();
    again.set_modified(std::time::SystemTime::now() - Duration::from_secs(3_600)).unwrap();
    for round in 0..2 {
        let server = Daemon::ready(&reader, &[]);
        assert!(server.status()["last_error"].is_null(), "{round}: {}", server.status());
    }
    let file = scene.backend.folder.path().join("followed.bloom");
    let to = file.to_str().unwrap();
    bloomsday(&["follow", "rt", "--once", "--to", to, "--store", &reader.store]).run().expect(0);
}

/// How many polls 1,000 servers make in an interval.
const POLLS: usize = 1_000;

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_thousand_polls_are_four_small_requests_each_and_a_relay_passes_on_few() {
    let scene = Scene::new();
    scene.publish(today().minus(1), 10_000);
    let through = scene.reader();
    let store = through.store.replace(&scene.relay.url(""), &scene.origin.url(""));
    let direct = Backend { store, env: Vec::new(), folder: tempfile::tempdir().unwrap() };
    for reader in [&direct, &through] {
        let (requests, relayed) = (scene.origin.requests().len(), scene.relay.requests().len());
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let server = Daemon::ready(reader, &[]);
                    (0..POLLS / 4).for_each(|_| assert_eq!(server.reload("").0, 200));
                });
            }
        });
        let seconds = began.elapsed().as_secs_f64();
        let new = |nginx: &Nginx, before: usize| {
            let new = nginx.requests().into_iter().skip(before);
            let new: Vec<Logged> = new.filter(|one| !one.request.contains("/blobs/")).collect();
            (new.len(), new.iter().map(|one| one.bytes).sum::<u64>())
        };
        let ((at_origin, bytes), (at_relay, _)) =
            (new(&scene.origin, requests), new(&scene.relay, relayed));
        println!(
            "{POLLS} polls in {seconds:.1} s: {at_origin} requests of the origin, {bytes} bytes of \
             bodies, {at_relay} of the relay"
        );
        // A pin, the marker of where pointers are, today's pointer and yesterday's; only the last
        // is there. Loads are polls, too.
        let polls = 4 * POLLS..=4 * (POLLS + 8);
        if at_relay == 0 {
            assert!(polls.contains(&at_origin), "{at_origin} requests");
            assert!(bytes < 1_000 * at_origin as u64, "{bytes} bytes");
        } else {
            assert!(polls.contains(&at_relay), "{at_relay} requests");
            // Four objects, at most one request each in four seconds.
            let most = 4.0 * (seconds / 4.0 + 2.0);
            assert!(at_origin as f64 <= most, "{at_origin} requests, at most {most}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_relay_only_reads() {
    let scene = Scene::new();
    let url = scene.relay.url("rt/pointers/2026-11-19");
    let put = ureq::put(&url).config().http_status_as_error(false).build().send("x").unwrap();
    assert_eq!(put.status().as_u16(), 405);
    assert!(scene.origin.requests().is_empty());
}
