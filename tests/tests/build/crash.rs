//! `kill -9` of a build and of a daemon, at every named place and at random times: running again
//! reaches the same blob and pointer, and a daemon answers from a verified filter or says that it
//! is not ready.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bloomsday_common::crash_point::{BUILD, SERVE};
use bloomsday_tests::backend::{Backend, s3_server};
use bloomsday_tests::campaign::{Campaign, Random, full, on_threads, size};
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_rows};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// How many kills run at once: they wait for the disk and for each other's fsync most of the time.
const AT_ONCE: u64 = 4;

/// One backend with input, and what a build of that input must come to.
struct Scene {
    backend: Backend,
    local: bool,
    small: Input,
    /// So large that its blob is uploaded in parts.
    large: Input,
    stores: AtomicU64,
}

struct Input {
    file: PathBuf,
    more: Vec<&'static str>,
    users: u64,
    /// What it comes to: the blob's name, and the seconds a build takes.
    first: OnceLock<(String, f64)>,
}

impl Scene {
    fn new(backend: Backend, local: bool) -> Scene {
        let input = |name: &str, users: u64, more: &[&'static str]| {
            let file = backend.folder.path().join(name);
            Input { file, more: more.to_vec(), users, first: OnceLock::new() }
        };
        // Spilling everything, so that a spill file is there to be left behind.
        let small = input("small.parquet", 3_000, &["--memory", "1"]);
        let large = input("large.parquet", 1_700_000, &["--layout", "guava", "--fpp", "1e-9"]);
        Scene { backend, local, small, large, stores: AtomicU64::new(0) }
    }

    fn input(&self, large: bool) -> &Input {
        if large { &self.large } else { &self.small }
    }

    /// What a build that nobody kills comes to; made at the first call.
    fn first(&self, large: bool) -> &(String, f64) {
        let input = self.input(large);
        input.first.get_or_init(|| {
            write_rows(&input.file, (0..input.users).map(|n| Some(format!("{n:x}"))));
            // Built before the clock runs.
            bloomsday_tests::program::path();
            let (clock, store) = (Instant::now(), self.new_store());
            let mut first = self.build(&store, large, None);
            first.finish();
            let said = first.said().to_owned();
            assert_eq!(first.wait(), Some(0), "{said}");
            let seconds = clock.elapsed().as_secs_f64();
            let pointer = self.pointer(&store).expect("the first build points");
            (pointer["blob"].as_str().unwrap().to_owned(), seconds)
        })
    }

    fn spill(&self) -> PathBuf {
        let spill = self.backend.folder.path().join("spill");
        std::fs::create_dir_all(&spill).unwrap();
        spill
    }

    /// A store of its own for one kill, in the same backend.
    fn new_store(&self) -> String {
        format!("{}/{}", self.backend.store, self.stores.fetch_add(1, Ordering::Relaxed))
    }

    fn build(&self, store: &str, large: bool, place: Option<&str>) -> KillableRun {
        let input = self.input(large);
        let (day, file) = (today().to_string(), input.file.display().to_string());
        let spill = self.spill().display().to_string();
        let mut words = vec!["build", "rt", "--day", &day, "--column", "device_id"];
        words.extend(["--threads", "2", "--spill", &spill, "--input", &file, "--store", store]);
        words.extend(&input.more);
        let command = bloomsday_tests::program::bloomsday(&words).envs(&self.backend.env);
        KillableRun::start(command.into_command(), place)
    }

    /// An object of one of the stores.
    fn read(&self, store: &str, key: &str) -> Option<Vec<u8>> {
        if self.local {
            return std::fs::read(Path::new(store).join(key)).ok();
        }
        let path = store.strip_prefix("s3://").unwrap();
        let url = format!("{}/{path}/{key}", s3_server());
        // Moto requires credentials, and accepts any.
        let who = "AWS4-HMAC-SHA256 Credential=test/20261119/us-east-1/s3/aws4_request, \
                   SignedHeaders=host, Signature=none";
        let get = ureq::get(url).header("Authorization", who);
        let got = get.config().http_status_as_error(false).build().call().unwrap();
        (got.status() == 200)
            .then(|| got.into_body().with_config().limit(1 << 30).read_to_vec().unwrap())
    }

    fn pointer(&self, store: &str) -> Option<Value> {
        let bytes = self.read(store, &format!("rt/pointers/{}", today()))?;
        Some(serde_json::from_slice(&bytes).expect("a pointer is old or new, and complete"))
    }

    /// Whether the blob of this input lies in the store as it should.
    fn check_blob(&self, store: &str, large: bool, case: &str) {
        let key = &self.first(large).0;
        let bytes = self.read(store, key).unwrap_or_else(|| panic!("{case}: {key} is missing"));
        let digest = bloomsday_common::blob::digest_of(&bytes).to_string();
        assert!(key.contains(&digest), "{case}: {key} is damaged");
    }

    /// Runs again what was killed, and checks what is there before and after.
    fn mends(&self, store: &str, large: bool, case: &str) {
        let expected = &self.first(large).0;
        if let Some(pointer) = self.pointer(store) {
            assert_eq!(pointer["blob"], **expected, "{case}");
            self.check_blob(store, large, case);
        }
        let mut again = self.build(store, large, None);
        again.finish();
        let said = again.said().to_owned();
        assert_eq!(again.wait(), Some(0), "{case}, then:\n{said}");
        let pointer = self.pointer(store).unwrap_or_else(|| panic!("{case}: no pointer"));
        assert_eq!(pointer["blob"], **expected, "{case}");
        self.check_blob(store, large, case);
        if self.local {
            self.check_leftovers(Path::new(store), expected, case);
            std::fs::remove_dir_all(store).unwrap();
        }
    }

    /// Nothing but blob, pointer, its lock, the marker and history is left, and nothing of a spill.
    fn check_leftovers(&self, store: &Path, blob: &str, case: &str) {
        let mut folders = vec![store.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let key = path.strip_prefix(store).unwrap().display().to_string();
                let expected = key == blob
                    || key == format!("rt/pointers/{}", today())
                    || key == "rt/pointers/.lock"
                    || key == "rt/store.json"
                    || (key.starts_with("rt/history/") && key.ends_with(".json"));
                // object_store's own name for an unfinished file; the next try takes another. It
                // is never listed, and an upload sweeps it away when it is a day old.
                let staged = key.starts_with("rt/") && key.contains('#');
                if path.is_dir() {
                    folders.push(path);
                } else {
                    assert!(expected || staged, "{case}: {key} was left behind");
                }
            }
        }
        let spilled = std::fs::read_dir(self.spill()).unwrap().count();
        assert_eq!(spilled, 0, "{case}: a spill file has a name");
    }
}

fn scenes() -> Vec<Scene> {
    let scene = |backend: Backend| {
        let local = backend.env.is_empty();
        Scene::new(backend, local)
    };
    Backend::all().into_iter().map(scene).collect()
}

#[test]
fn a_build_killed_anywhere_reaches_the_same_blob_and_pointer_when_it_runs_again() {
    let scenes = scenes();
    let campaign = Campaign::new("`kill -9` of a build at every named step");
    let times = size(1, 100);
    let mut kills = 0;
    for scene in &scenes {
        let here = |place: &&&str| scene.local || !place.starts_with("pointer-");
        let places: Vec<&&str> = BUILD.iter().filter(here).collect();
        on_threads(AT_ONCE, places.len() as u64 * times, |n| {
            let place = places[n as usize % places.len()];
            let large = *place == "part-uploaded";
            scene.first(large);
            let store = scene.new_store();
            let case = format!("killed at {place} on {store}");
            let mut victim = scene.build(&store, large, Some(place));
            assert!(victim.paused(), "{place} is never reached:\n{}", victim.said());
            drop(victim);
            scene.mends(&store, large, &case);
        });
        kills += places.len() as u64 * times;
    }
    let size = format!("{kills} kills: {} steps × {times}, on each kind of store", BUILD.len());
    campaign.passed(&size, "same blob, same pointer, nothing left over");
}

#[test]
fn a_build_killed_at_any_time_reaches_the_same_blob_and_pointer_when_it_runs_again() {
    let scenes = scenes();
    let campaign = Campaign::new("`kill -9` of a build at random times");
    let random = Random::new();
    let kills = size(12, 500);
    for scene in &scenes {
        on_threads(AT_ONCE, kills, |n| {
            let mut random = random.branch(n);
            // Mostly small ones: they differ in when, not in how long.
            let large = full() && random.below(20) == 0;
            let duration = scene.first(large).1;
            let store = scene.new_store();
            // Twice as long as alone: several run at once.
            let after = Duration::from_secs_f64(duration * 2.0 * random.below(1_000) as f64 / 1e3);
            let victim = scene.build(&store, large, None);
            std::thread::sleep(after);
            drop(victim);
            scene.mends(&store, large, &format!("killed after {after:?} on {store}"));
        });
    }
    let size = format!("{} kills, on each kind of store", scenes.len() as u64 * kills);
    campaign.passed(&size, "same blob, same pointer");
}

/// Two days of users in S3, and a daemon with a cache.
struct Served {
    backend: Backend,
    before: std::ops::Range<u64>,
    now: std::ops::Range<u64>,
}

impl Served {
    fn new() -> Served {
        let backend = Backend::s3();
        Served { backend, before: 0..2_000, now: 200..2_200 }
    }

    fn publish(&self, back: u32, users: std::ops::Range<u64>) {
        Publisher::days_ago(&self.backend, back).users(users).publish();
    }

    fn serve(&self, cache: &Path, place: &str) -> KillableRun {
        let cache = cache.display().to_string();
        let words =
            ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let words = [&words[..], &["--poll-interval", "1h", "--cache-dir", &cache]].concat();
        KillableRun::start(self.backend.bloomsday(&words).into_command(), Some(place))
    }

    /// Starts a daemon as it comes after a crash; with its store out of reach if `down`. Checks
    /// that it answers rightly or not at all; returns the day that answers.
    fn answers(&self, cache: &Path, down: bool, case: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut backend =
            Backend { store: self.backend.store.clone(), env: self.backend.env.clone(), folder };
        if down {
            // Nobody listens there.
            backend.env.retain(|(name, _)| *name != "AWS_ENDPOINT");
            backend.env.push(("AWS_ENDPOINT", "http://127.0.0.1:9".into()));
        }
        let cache = cache.display().to_string();
        let daemon = Daemon::start(&backend, &["--cache-dir", &cache]);
        daemon.until("it looked", |daemon| !daemon.status()["last_poll"].is_null());
        if daemon.get("/readyz").status != 200 {
            assert!(down, "{case}: not ready although the store is there: {}", daemon.status());
            let id = user(self.now.start);
            assert_eq!(daemon.get(&format!("/v1/filters/rt/ids/{id}")).status, 503, "{case}");
            return None;
        }
        let day = daemon.status()["day"].as_str().unwrap().to_owned();
        let users = if day == today().to_string() { self.now.clone() } else { self.before.clone() };
        let ids: Vec<String> = users.clone().map(user).collect();
        let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
        assert_eq!(answer.status, 200, "{case}");
        assert_eq!(answer.body, "1\n".repeat(ids.len()), "{case}: users of {day} are lost");
        if !down {
            // The cache is written after the answer: a kill before that is another case.
            let followed = Path::new(&cache).join("rt/followed");
            daemon.until("it is cached", |_| {
                std::fs::read_to_string(&followed).is_ok_and(|record| record.contains(&day))
            });
        }
        Some(day)
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_daemon_killed_anywhere_starts_on_a_verified_filter_or_says_not_ready() {
    let campaign = Campaign::new("`kill -9` of a daemon at every named step");
    let served = Served::new();
    served.publish(1, served.before.clone());
    let caches = tempfile::tempdir().unwrap();
    let cached = caches.path().join("before");
    // A cache that holds the day before, as a clean stop leaves it.
    assert!(served.answers(&cached, false, "the first start").is_some());
    served.publish(0, served.now.clone());
    let today = today().to_string();

    let mut places: Vec<String> = SERVE.iter().map(|place| (*place).to_owned()).collect();
    // The blob is written first, then the record that names it.
    places.extend(["cache-staged:2".to_owned(), "cache-renamed:2".to_owned()]);
    let times = size(1, 20);
    on_threads(AT_ONCE, places.len() as u64 * 2 * times, |n| {
        let place = &places[n as usize / 2 % places.len()];
        let fresh = n % 2 == 0;
        let case = format!("killed at {place}, with {} cache", if fresh { "no" } else { "a" });
        let cache = caches.path().join(n.to_string());
        if !fresh {
            copy(&cached, &cache);
        }
        let mut victim = served.serve(&cache, place);
        assert!(victim.paused(), "{place} is never reached:\n{}", victim.said());
        drop(victim);
        let day = served.answers(&cache, true, &case);
        // The cache keeps what it had; the blob that was being written is complete or missing.
        assert!(fresh || day.is_some(), "{case}: the cached day is gone");
        if place == "cached" || place == "cache-renamed:2" {
            assert_eq!(day.as_deref(), Some(&*today), "{case}: it was cached");
        }
        let day = served.answers(&cache, false, &case);
        assert_eq!(day.as_deref(), Some(&*today), "{case}: the store is there");
        let day = served.answers(&cache, true, &case);
        assert_eq!(day.as_deref(), Some(&*today), "{case}: it was cached in between");
    });
    let size = format!("{} kills, each started again thrice", places.len() as u64 * 2 * times);
    campaign.passed(&size, "right answers, or 503");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_daemon_killed_at_any_time_starts_on_a_verified_filter() {
    let campaign = Campaign::new("`kill -9` of a daemon at random times");
    let random = Random::new();
    let served = Served::new();
    served.publish(1, served.before.clone());
    let caches = tempfile::tempdir().unwrap();
    let cached = caches.path().join("before");
    let clock = Instant::now();
    assert!(served.answers(&cached, false, "the first start").is_some());
    let duration = clock.elapsed();
    served.publish(0, served.now.clone());
    let kills = size(4, 500);
    on_threads(AT_ONCE, kills, |n| {
        let mut random = random.branch(n);
        let cache = caches.path().join(n.to_string());
        copy(&cached, &cache);
        let after = duration.mul_f64(1.5 * random.below(1_000) as f64 / 1e3);
        let victim = served.serve(&cache, "nowhere");
        std::thread::sleep(after);
        drop(victim);
        let case = format!("killed after {after:?}");
        assert!(served.answers(&cache, true, &case).is_some(), "{case}: the cached day is gone");
        let day = served.answers(&cache, false, &case);
        assert_eq!(day, Some(today().to_string()), "{case}");
    });
    campaign.passed(&format!("{kills} kills"), "right answers");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let there = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &there);
        } else {
            std::fs::copy(&path, &there).unwrap();
        }
    }
}
