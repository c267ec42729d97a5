//! Single promises: with a store that is down, slow, cut off, forbidden or wrong; many reloads at
//! once; a guard that holds; clocks that step; a cache that is damaged, slow or read-only.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::{Pin, Pointer};
use bloomsday_common::store::Store;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::blobs::{FIRST_DAY, Kind, Made, day, made, rt, user};
use super::flaky_store::{Fault, FlakyStore};
use super::process::{FakeClock, Process, on_a_paused_clock};
use crate::cache::Cache;
use crate::status::{FilterStatus, ReloadOutcome, State};
use crate::{Config, FilterConfig, Guard};

/// A store, a clock at noon of the month's first day, and how to serve.
pub(super) struct Scene {
    pub(super) store: Arc<FlakyStore>,
    pub(super) clock: FakeClock,
    pub(super) config: Config,
}

const POLL: Duration = Duration::from_secs(600);
/// Longer than any poll interval with its jitter.
pub(super) const MAX_POLL_PAUSE: Duration = Duration::from_secs(661);

/// Plays a scene on a paused clock.
pub(super) fn play<F: Future<Output = ()>>(scene: impl FnOnce(Scene) -> F) {
    on_a_paused_clock(async {
        let noon: Timestamp = format!("{FIRST_DAY}T12:00:00Z").parse().unwrap();
        let config = Config::new("", vec![FilterConfig::new(rt())]);
        assert_eq!(config.poll_interval, POLL);
        let store = Arc::new(FlakyStore::new());
        scene(Scene { store, clock: FakeClock::new(noon), config }).await;
    });
}

impl Scene {
    pub(super) async fn publish(&self, n: i64, blob: &Made) {
        self.upload(blob).await;
        self.point(n, &blob.key).await;
    }

    pub(super) async fn upload(&self, blob: &Made) {
        self.store.write(&blob.key.to_string(), blob.bytes.clone()).await;
    }

    pub(super) async fn damage(&self, blob: &Made) {
        let mut bytes = blob.bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.store.write(&blob.key.to_string(), bytes).await;
    }

    pub(super) async fn point(&self, n: i64, key: &BlobKey) {
        let pointer = Pointer::to(key.clone()).to_bytes();
        self.store.write(&format!("rt/pointers/{}", day(n)), pointer).await;
    }

    pub(super) fn start(&self) -> Process {
        Process::start(&self.store, &self.clock, &self.config)
    }

    /// A server with yesterday's good blob.
    pub(super) async fn settled(&self) -> Process {
        self.publish(-1, made(-1, Kind::Good)).await;
        let process = self.start();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
        process
    }
}

pub(super) fn answers(process: &Process) -> Option<Digest> {
    process.status().digest
}

pub(super) fn error(status: &FilterStatus) -> &str {
    status.last_error.as_deref().unwrap_or_default()
}

pub(super) async fn reload(process: &Process) -> ReloadOutcome {
    process.request_reload(false).await.unwrap()[0].outcome
}

#[test]
fn whatever_ails_the_store_the_last_good_filter_answers_and_recovery_takes_one_poll() {
    for (fault, says) in [
        (Fault::Fails, "503"),
        (Fault::Forbids, "s3:ListBucket"),
        (Fault::Hangs, "does not answer"),
        (Fault::Slow(Duration::from_secs(400)), "does not answer"),
        (Fault::Cuts, "bytes arrived"),
        (Fault::Resets, "connection reset"),
        (Fault::Panics, "panicked"),
    ] {
        play(|scene| async move {
            let (old, new) = (made(-1, Kind::Good), made(0, Kind::Good));
            let process = scene.settled().await;
            scene.store.set_fault(fault);
            scene.publish(0, new).await;
            sleep(MAX_POLL_PAUSE * 2).await;
            let status = process.status();
            assert!(error(&status).contains(says), "{fault:?}: {}", error(&status));
            sleep(Duration::from_secs(30 * 86_400)).await;
            let status = process.status();
            assert_eq!((status.digest, status.state), (Some(old.key.digest), State::Failing));
            assert!(process.handle().contains(&user(old.first_user)));
            // A month later nothing newer than the month's first day was ever published.
            scene.clock.step(-30 * 86_400);
            scene.store.set_fault(Fault::None);
            // A read that hangs ends at its deadline; then one poll follows.
            sleep(MAX_POLL_PAUSE + scene.config.load_deadline * 2).await;
            assert_eq!(process.status().state, State::Ok, "{fault:?}: {:?}", process.status());
            assert_eq!(answers(&process), Some(new.key.digest));
        });
    }
}

#[test]
fn a_store_that_fails_only_in_the_body_is_retried_within_a_load() {
    play(|scene| async move {
        let process = scene.settled().await;
        scene.publish(0, made(0, Kind::Good)).await;
        scene.store.set_fault(Fault::Flaky);
        let began = Instant::now();
        // The read of the pointer may fail, too; a load is retried with pauses.
        while answers(&process) != Some(made(0, Kind::Good).key.digest) {
            sleep(Duration::from_secs(60)).await;
            assert!(began.elapsed() < POLL * 12, "{:?}", process.status());
        }
    });
}

#[test]
fn a_blob_that_fails_past_all_tries_of_a_load_is_fetched_at_a_later_poll() {
    play(|scene| async move {
        let process = scene.settled().await;
        let new = made(0, Kind::Good);
        scene.publish(0, new).await;
        scene.store.set_fault(Fault::HidesBlobs);
        sleep(MAX_POLL_PAUSE * 3).await;
        assert!(error(&process.status()).contains("503"), "{:?}", process.status());
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
        scene.store.set_fault(Fault::None);
        sleep(MAX_POLL_PAUSE).await;
        assert_eq!(answers(&process), Some(new.key.digest), "{:?}", process.status());
    });
}

#[test]
fn a_damaged_blob_is_remembered_and_a_failing_store_is_not() {
    play(|scene| async move {
        let (old, new) = (made(-1, Kind::Good), made(0, Kind::Good));
        let process = scene.settled().await;
        scene.damage(new).await;
        scene.point(0, &new.key).await;
        sleep(MAX_POLL_PAUSE).await;
        assert!(error(&process.status()).contains("damaged"), "{:?}", process.status());
        let reads = scene.store.blob_reads();
        sleep(POLL * 20).await;
        assert_eq!(scene.store.blob_reads(), reads, "a damaged blob was fetched again");
        let status = process.status();
        assert_eq!((status.digest, status.state), (Some(old.key.digest), State::Failing));
        // Repaired in place: the record does not change.
        scene.upload(new).await;
        sleep(MAX_POLL_PAUSE).await;
        assert_eq!(answers(&process), Some(new.key.digest));
    });
}

#[test]
fn a_body_that_is_cut_says_nothing_of_the_blob() {
    play(|scene| async move {
        let process = scene.settled().await;
        let new = made(0, Kind::Good);
        scene.publish(0, new).await;
        // The fault begins after the pointer is read: half a pointer would be unreadable.
        scene.store.set_fault(Fault::Slow(Duration::from_secs(1)));
        let reply = process.request_reload(false);
        sleep(Duration::from_millis(2_500)).await;
        scene.store.set_fault(Fault::Cuts);
        let reloaded = reply.await.unwrap();
        assert_eq!(reloaded[0].outcome, ReloadOutcome::Failed);
        assert!(reloaded[0].reason.as_deref().unwrap().contains("should have"), "{reloaded:?}");
        scene.store.set_fault(Fault::None);
        sleep(MAX_POLL_PAUSE).await;
        assert_eq!(answers(&process), Some(new.key.digest), "{:?}", process.status());
    });
}

#[test]
fn one_damaged_transfer_of_a_sound_blob_does_not_count_as_a_damaged_blob() {
    play(|scene| async move {
        let process = scene.settled().await;
        let new = made(0, Kind::Good);
        scene.damage(new).await;
        scene.point(0, &new.key).await;
        // The second fetch of the same load finds it undamaged: each call takes 10 ms.
        scene.store.set_fault(Fault::Slow(Duration::from_millis(10)));
        let (store, reads) = (scene.store.clone(), scene.store.blob_reads());
        let mender = async {
            while store.blob_reads() == reads {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(Duration::from_millis(12)).await;
            scene.upload(new).await;
        };
        let (outcome, ()) = futures::future::join(reload(&process), mender).await;
        assert_eq!(outcome, ReloadOutcome::Swapped);
    });
}

#[test]
fn sixty_four_reloads_at_once_are_at_most_two_polls_and_one_load() {
    play(|scene| async move {
        let process = scene.settled().await;
        scene.publish(0, made(0, Kind::Good)).await;
        scene.store.set_fault(Fault::Slow(Duration::from_secs(1)));
        let (polls, reads) = (scene.store.polls(), scene.store.blob_reads());
        let mut replies = vec![process.request_reload(false)];
        // The first round runs; the other requests come in the middle of it.
        sleep(Duration::from_millis(500)).await;
        replies.extend((1..64).map(|_| process.request_reload(false)));
        for reply in replies {
            let reloaded = reply.await.unwrap();
            assert_ne!(reloaded[0].outcome, ReloadOutcome::Failed);
            assert_eq!(reloaded[0].new, Some(made(0, Kind::Good).key.digest));
        }
        assert_eq!(scene.store.polls() - polls, 2);
        assert_eq!(scene.store.blob_reads() - reads, 1);
    });
}

#[test]
fn a_reload_gets_the_result_of_a_round_that_began_after_it() {
    play(|scene| async move {
        let process = scene.settled().await;
        scene.store.set_fault(Fault::Slow(Duration::from_secs(1)));
        let early = process.request_reload(false);
        // The early round has found no pointer of today.
        sleep(Duration::from_millis(2_500)).await;
        scene.publish(0, made(0, Kind::Good)).await;
        let late = process.request_reload(false).await.unwrap();
        assert_eq!(late[0].outcome, ReloadOutcome::Swapped);
        assert_eq!(early.await.unwrap()[0].outcome, ReloadOutcome::Unchanged);
    });
}

/// Another store with the same settings.
pub(super) fn fresh() -> Scene {
    let noon: Timestamp = format!("{FIRST_DAY}T12:00:00Z").parse().unwrap();
    let config = Config::new("", vec![FilterConfig::new(rt())]);
    Scene { store: Arc::new(FlakyStore::new()), clock: FakeClock::new(noon), config }
}

#[test]
fn an_unreadable_pin_keeps_what_answers_and_says_so() {
    play(|scene| async move {
        let process = scene.settled().await;
        scene.store.write("rt/pin", "half a p").await;
        scene.publish(0, made(0, Kind::Good)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Failed);
        let status = process.status();
        assert_eq!(status.digest, Some(made(-1, Kind::Good).key.digest));
        assert!(error(&status).contains("remove the pin of `rt`"), "{}", error(&status));
        scene.store.remove("rt/pin").await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
    });
}

#[test]
fn a_pin_ends_by_itself() {
    play(|scene| async move {
        let process = scene.settled().await;
        scene.publish(0, made(0, Kind::Good)).await;
        let until = scene.clock.truth() + Duration::from_secs(7_200);
        let blob = made(-1, Kind::Good).key.clone();
        let (pinned_at, pinned_by, reason) = (None, None, Some("weekend".into()));
        let pin = Pin { blob, until: Some(until), pinned_at, pinned_by, reason };
        scene.store.write("rt/pin", pin.to_bytes()).await;
        sleep(MAX_POLL_PAUSE).await;
        let status = process.status();
        assert_eq!((status.state, status.pin_until), (State::Pinned, Some(until)));
        sleep(Duration::from_secs(7_200)).await;
        let status = process.status();
        assert_eq!((status.state, status.pin_until), (State::Ok, None));
        assert_eq!(status.digest, Some(made(0, Kind::Good).key.digest));
    });
}

#[test]
fn at_a_start_the_cached_copy_answers_while_the_store_does_not() {
    for fault in [Fault::Fails, Fault::Hangs, Fault::Slow(Duration::from_secs(30))] {
        play(|mut scene| async move {
            let folder = tempfile::TempDir::new().unwrap();
            scene.config.cache_dir = Some(folder.path().to_owned());
            let process = scene.settled().await;
            until_cached(folder.path()).await;
            drop(process);
            scene.publish(0, made(0, Kind::Good)).await;
            scene.store.set_fault(fault);
            let process = scene.start();
            sleep(Duration::from_secs(3)).await;
            let status = process.status();
            assert_eq!(status.digest, Some(made(-1, Kind::Good).key.digest), "{fault:?}");
            assert_eq!(status.state, State::Failing);
            scene.store.set_fault(Fault::None);
            sleep(MAX_POLL_PAUSE + scene.config.load_deadline).await;
            assert_eq!(answers(&process), Some(made(0, Kind::Good).key.digest), "{fault:?}");
            assert_eq!(process.status().state, State::Ok);
        });
    }
}

#[test]
fn with_a_healthy_store_a_start_never_answers_from_an_outdated_cache() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        drop({
            let process = scene.settled().await;
            until_cached(folder.path()).await;
            process
        });
        scene.publish(0, made(0, Kind::Good)).await;
        let process = scene.start();
        while answers(&process).is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(answers(&process), Some(made(0, Kind::Good).key.digest));
    });
}

#[test]
fn a_damaged_cache_is_not_believed() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        drop({
            let process = scene.settled().await;
            until_cached(folder.path()).await;
            process
        });
        let path = copy_of(&scene, made(-1, Kind::Good));
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 100;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        scene.store.set_fault(Fault::Fails);
        let process = scene.start();
        sleep(Duration::from_secs(60)).await;
        assert_eq!((answers(&process), process.status().state), (None, State::Loading));
        scene.store.set_fault(Fault::None);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
    });
}

#[test]
fn a_restart_with_the_clock_a_day_behind_does_not_go_a_day_back() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        scene.publish(-2, made(-2, Kind::Good)).await;
        drop({
            let process = scene.settled().await;
            until_cached(folder.path()).await;
            process
        });
        scene.clock.step(-2 * 86_400);
        let process = scene.start();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
    });
}

#[test]
fn after_a_pin_to_tomorrows_blob_a_restart_follows_todays_rollback() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        let tomorrows = made(1, Kind::Good);
        scene.publish(1, tomorrows).await;
        scene.store.write("rt/pin", tomorrows.key.to_string()).await;
        drop({
            let process = scene.start();
            until_cached(folder.path()).await;
            process
        });
        scene.store.remove("rt/pin").await;
        scene.publish(0, made(-1, Kind::Good)).await;
        let process = scene.start();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
    });
}

#[test]
fn a_clock_stepped_back_takes_no_stopgap_away() {
    play(|scene| async move {
        scene.damage(made(0, Kind::Good)).await;
        scene.point(0, &made(0, Kind::Good).key).await;
        scene.publish(-2, made(-2, Kind::Good)).await;
        let process = scene.settled().await;
        assert_eq!(process.status().state, State::Failing);
        scene.clock.step(-2 * 86_400);
        sleep(POLL * 10).await;
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
    });
}

#[test]
fn a_fallback_that_was_cached_too_is_reported_with_the_pointer_that_names_it() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        let older = made(-2, Kind::Good);
        scene.upload(older).await;
        scene.point(-1, &older.key).await;
        drop({
            let process = scene.start();
            until_cached(folder.path()).await;
            process
        });
        scene.damage(made(0, Kind::Good)).await;
        scene.point(0, &made(0, Kind::Good).key).await;
        let process = scene.start();
        sleep(Duration::from_secs(5)).await;
        let FilterStatus { day: answers, pointer_day, rolled_back, .. } = process.status();
        assert_eq!((answers, pointer_day), (Some(older.key.day), Some(day(-1))));
        assert!(rolled_back, "a pointer names another day's blob");
    });
}

#[test]
fn a_cached_blob_that_answers_while_another_is_held_is_never_given_up_for_an_older_day() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        scene.config.filters[0].guard = Guard::Hold;
        let (good, older) = (made(-1, Kind::Good), made(-2, Kind::Good));
        let process = scene.settled().await;
        until_cached(folder.path()).await;
        drop(process);

        scene.publish(-1, older).await;
        scene.publish(0, made(0, Kind::Strangers)).await;
        scene.store.set_fault(Fault::Slow(Duration::from_secs(5)));
        let process = scene.start();
        let ids: Vec<_> = (0..2_000).map(user).collect();
        process.sample_lookups(&ids);
        sleep(Duration::from_secs(60)).await;
        let status = process.status();
        assert_eq!((status.digest, status.state), (Some(good.key.digest), State::Held));
        assert_eq!(status.pointer_day, Some(day(-1)), "by the record that was cached with it");

        scene.damage(made(0, Kind::Good)).await;
        scene.point(0, &made(0, Kind::Good).key).await;
        sleep(3 * MAX_POLL_PAUSE).await;
        let status = process.status();
        assert_eq!((status.digest, status.state), (Some(good.key.digest), State::Failing));
    });
}

/// The write happens on a thread of its own, in real time.
async fn until_cached(folder: &std::path::Path) {
    while !folder.join("rt/followed").exists() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

/// Where the cache keeps a copy.
fn copy_of(scene: &Scene, made: &Made) -> std::path::PathBuf {
    let store = Store::over(scene.store.clone(), "flaky");
    let folder = scene.config.cache_dir.as_deref().unwrap();
    Cache::open(folder, &store).unwrap().path_of(&made.key).unwrap()
}

#[test]
fn pipes_where_the_cache_writes_delay_no_answer_and_are_left_alone() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        scene.config.cache_dir = Some(folder.path().to_owned());
        let process = scene.settled().await;
        until_cached(folder.path()).await;
        let new = made(0, Kind::Good);
        // Opening a pipe for writing would block for ever.
        let copy = copy_of(&scene, new);
        let name = copy.file_name().unwrap().to_str().unwrap();
        let pipes = ["tmp", "tmp1"].map(|end| copy.with_file_name(format!(".{name}.{end}")));
        for pipe in &pipes {
            let made = std::process::Command::new("mkfifo").arg(pipe).status();
            assert!(made.unwrap().success());
        }
        scene.publish(0, new).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        assert_eq!(reload(&process).await, ReloadOutcome::Unchanged);
        while !copy_of(&scene, new).exists() {
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
        assert!(pipes.iter().all(|pipe| std::fs::symlink_metadata(pipe).is_ok()));
    });
}

#[test]
fn a_cache_that_cannot_be_written_costs_a_warning() {
    play(|mut scene| async move {
        let folder = tempfile::TempDir::new().unwrap();
        // A file where the filter's folder should be.
        scene.config.cache_dir = Some(folder.path().to_owned());
        std::fs::write(folder.path().join("rt"), "in the way").unwrap();
        let process = scene.settled().await;
        scene.publish(0, made(0, Kind::Good)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        assert_eq!(process.status().state, State::Ok);
        // The folder can be written again: the next round tries again.
        std::fs::remove_file(folder.path().join("rt")).unwrap();
        while !folder.path().join("rt/followed").exists() {
            sleep(MAX_POLL_PAUSE).await;
            std::thread::yield_now();
        }
        assert!(process.is_alive());
    });
}
