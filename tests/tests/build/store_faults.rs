//! A build against a store that lies, at each of its calls in turn: it succeeds and the pointer
//! names a complete blob, or it fails and the pointer is as it was; and a next run sets everything
//! right.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bloomsday_builder::{Job, Report, build};
use bloomsday_common::blob::{self, RawBlob};
use bloomsday_common::day::Day;
use bloomsday_common::error::{Error, Kind};
use bloomsday_common::filter::Layout;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{EventKind, Outcome, Pin, Pointer};
use bloomsday_common::protocol::RecordState;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use bloomsday_tests::blobs::{TestBlob, buffer};
use bloomsday_tests::campaign::{Campaign, full, on_threads};
use bloomsday_tests::faulty_store::{Fault, FaultyStore};
use bloomsday_tests::input::{today, user, write_users};
use tempfile::TempDir;

/// More calls than any build makes: past that, "until a run is clean" was never reached.
const MANY: u64 = 200;
/// A build has no deadline of its own: a real store's client gives up a call after a minute.
const BUILD_FAULTS: [Fault; 12] = [
    Fault::Down,
    Fault::Full,
    Fault::Forbidden,
    Fault::Missing,
    Fault::Late,
    Fault::Short,
    Fault::Broken,
    Fault::Unsaid,
    Fault::Conflict,
    Fault::Refused,
    Fault::Torn,
    Fault::Replaced,
];

fn rt() -> FilterName {
    "rt".parse().unwrap()
}

fn job(input: &Path, day: Day) -> Job {
    let inputs = vec![input.display().to_string()];
    Job {
        memory: 1 << 30,
        threads: 1,
        by: "test".into(),
        ..Job::new(rt(), day, inputs, "device_id".into())
    }
}

async fn run(job: &Job, store: &Store) -> Result<Report, bloomsday_builder::error::Error> {
    build(job, store, &|_| {}).await
}

/// Where a build starts from, and where it must end.
struct Story {
    name: &'static str,
    faulty: FaultyStore,
    job: Job,
    /// What today's pointer names when all went well.
    ends_at: BlobKey,
    users: std::ops::Range<u64>,
    /// How a run without faults ends.
    outcome: Outcome,
    /// A rollback stands, even when it cannot be known whether the blob was already rolled back.
    stays_rolled_back: bool,
}

impl Story {
    async fn pointer(&self, faulty: &FaultyStore) -> Option<Vec<u8>> {
        let key = format!("rt/pointers/{}", self.job.day);
        faulty.stored(&key).await.map(|bytes| bytes.to_vec())
    }

    /// One run with a fault, and one without. Returns whether the fault befell anything.
    async fn with(&self, fault: Fault, at: u64, times: u64) -> bool {
        let faulty = self.faulty.fork();
        let store = faulty.store();
        let before = self.pointer(&faulty).await;
        faulty.set_fault(fault, at, times);
        let ended = run(&self.job, &store).await;
        let befell = faulty.clear_fault();
        let after = self.pointer(&faulty).await;
        let case = format!(
            "{}: {fault:?} × {times} at call {at} ({}): {:?}",
            self.name,
            befell.join(", "),
            ended.as_ref().map(|report| report.outcome)
        );

        // The pointer is as it was, or names today's complete blob; nothing else, however the run
        // ended.
        if after != before {
            let named = self.complete_blob(&faulty, &case).await;
            assert_eq!(named, self.ends_at, "{case}");
        }
        let moved = after != before;
        match ended.as_ref().map(|report| report.outcome) {
            Ok(Outcome::Published) => assert!(moved, "{case}: nothing was published"),
            Ok(Outcome::Unchanged) => panic!("{case}: it names another blob"),
            Ok(Outcome::Superseded) => {
                assert!(!moved, "{case}: its own write superseded it");
                // Only a store that denies what it has looks like somebody else's change.
                let denied = fault == Fault::Missing && !befell.is_empty();
                assert!(denied || self.outcome == Outcome::Superseded, "{case}");
            }
            Ok(other) => panic!("{case}: {other:?}"),
            Err(error) => {
                assert!(!befell.is_empty(), "{case}: {error}");
                assert!(error.to_string().contains("rt/"), "{case} names nothing: {error}");
            }
        }
        // One lost or late answer, or a client's own retry, is no reason to fail.
        let passing = matches!(fault, Fault::Late | Fault::Conflict | Fault::Refused);
        let on_pointer = befell.first().is_some_and(|call| call.contains("/pointers/"));
        if fault == Fault::Late || (passing && times == 1 && on_pointer) {
            assert_eq!(ended.as_ref().ok().map(|r| r.outcome), Some(self.outcome), "{case}");
        }
        let on_blob = befell.first().is_some_and(|call| call.contains("/blobs/"));
        let broken_once = fault == Fault::Broken && times == 1 && on_blob;
        if broken_once || (fault == Fault::Replaced && times < MANY) {
            assert_eq!(ended.as_ref().ok().map(|r| r.outcome), Some(self.outcome), "{case}");
        }
        if on_pointer && times == 1 && matches!(fault, Fault::Unsaid) {
            assert_eq!(ended.as_ref().ok().map(|r| r.outcome), Some(self.outcome), "{case}");
        }

        let again = run(&self.job, &store).await;
        let again = again.unwrap_or_else(|e| panic!("{case}, then without a fault: {e}"));
        if self.stays_rolled_back && again.outcome == Outcome::Superseded && !moved {
            assert_eq!(self.pointer(&faulty).await, before, "{case}: a rollback was undone");
            let names_blob = matches!(&again.remedy, Some(Remedy::UseBlob { .. }));
            assert!(names_blob, "{case}: {:?}", again.reason);
            return !befell.is_empty();
        }
        let expected = if moved { Outcome::Unchanged } else { self.outcome };
        assert_eq!(again.outcome, expected, "{case}, then: {:?}", again.reason);
        assert_eq!(self.complete_blob(&faulty, &case).await, self.ends_at, "{case}");
        for event in store.history(&rt()).await.unwrap() {
            assert!(event.blob.is_none_or(|blob| blob.filter == rt()), "{case}");
        }
        !befell.is_empty()
    }

    /// What today's pointer names, which must be complete and hold the users of its own day.
    async fn complete_blob(&self, faulty: &FaultyStore, case: &str) -> BlobKey {
        let bytes = self.pointer(faulty).await.unwrap_or_else(|| panic!("{case}: no pointer"));
        let pointer = Pointer::parse(&bytes, &rt(), &[]);
        let key = pointer.unwrap_or_else(|e| panic!("{case}: torn pointer: {e}")).blob;
        let stored = faulty.stored(&key.to_string()).await;
        let stored = stored.unwrap_or_else(|| panic!("{case}: {key} is not there"));
        let opened = blob::open(RawBlob::of(buffer(&stored)), &key);
        let (_, filter) = opened.unwrap_or_else(|e| panic!("{case}: {e}"));
        if key == self.ends_at && key.day == self.job.day {
            for n in self.users.clone() {
                assert!(filter.contains(user(n).as_bytes()), "{case}: user {n} is lost");
            }
        }
        key
    }
}

/// Input files: yesterday's users, today's, and today's mended.
struct Inputs {
    folder: TempDir,
    yesterday: PathBuf,
    bad: PathBuf,
    good: PathBuf,
}

const GOOD: std::ops::Range<u64> = 100..2_200;

fn inputs() -> Inputs {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, users| {
        let file = folder.path().join(name);
        write_users(&file, users);
        file
    };
    let (yesterday, bad) = (file("yesterday.parquet", 0..2_000), file("bad.parquet", 200..2_100));
    let good = file("good.parquet", GOOD);
    Inputs { folder, yesterday, bad, good }
}

/// The situations in which a day is built.
async fn stories(inputs: &Inputs) -> Vec<Story> {
    let (day, yesterday) = (today(), today().minus(1));
    let faulty = FaultyStore::default();
    let store = faulty.store();
    let before = run(&job(&inputs.yesterday, yesterday), &store).await.unwrap();
    let first = faulty.fork();
    let bad = run(&job(&inputs.bad, day), &store).await.unwrap();
    let rerun = faulty.fork();
    // Rolled back by hand, as DESIGN has it: yesterday's record copied over today's.
    let record = faulty.stored(&format!("rt/pointers/{yesterday}")).await.unwrap();
    faulty.place(&format!("rt/pointers/{day}"), record).await;
    let rolled_back = faulty.fork();
    let good = run(&job(&inputs.good, day), &first.fork().store()).await.unwrap().blob.unwrap();
    assert_ne!(Some(&good), bad.blob.as_ref());

    let good_story = |name, faulty| Story {
        name,
        faulty,
        job: job(&inputs.good, day),
        ends_at: good.clone(),
        users: GOOD,
        outcome: Outcome::Published,
        stays_rolled_back: false,
    };
    let mended = Story {
        stays_rolled_back: true,
        ..good_story("a rolled-back day, mended", rolled_back.fork())
    };
    let same_data = Story {
        name: "a rolled-back day, built from the same data",
        faulty: rolled_back,
        job: job(&inputs.bad, day),
        ends_at: before.blob.unwrap(),
        users: 0..0,
        outcome: Outcome::Superseded,
        stays_rolled_back: true,
    };
    vec![good_story("a new day", first), good_story("a mended day", rerun), mended, same_data]
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn a_build_against_a_store_that_lies_publishes_or_fails_and_a_next_run_mends_it() {
    let campaign = Campaign::new("a store that lies, to a build");
    let inputs = inputs();
    let stories = block_on(stories(&inputs));
    // One call goes wrong, two in a row, or everything from there on.
    let mut plans = Vec::new();
    for (i, story) in stories.iter().enumerate() {
        for (j, fault) in BUILD_FAULTS.into_iter().enumerate() {
            for (k, times) in [1, 2, MANY].into_iter().enumerate() {
                // Small: a new day at every call, one gone wrong; of the rest a part in turn.
                let dull = matches!(fault, Fault::Late | Fault::Forbidden);
                let step = match (i, k) {
                    _ if full() => 1,
                    (0, 0) if !dull => 1,
                    // A store that takes no write any more, from each write on.
                    (_, 2) if fault == Fault::Full => 1,
                    // A blob that is replaced under one try to read it back, and under the next.
                    (0, 1) if fault == Fault::Replaced => 1,
                    _ if k == (i + j) % 3 => 8,
                    _ => continue,
                };
                plans.push((story, fault, times, step, j as u64 % step));
            }
        }
    }
    let (cases, most) = (AtomicU64::new(0), AtomicU64::new(0));
    on_threads(2, plans.len() as u64, |n| {
        let (story, fault, times, step, first) = plans[n as usize];
        let mut at = first;
        while block_on(story.with(fault, at, times)) {
            cases.fetch_add(1, Ordering::Relaxed);
            most.fetch_max(at + 1, Ordering::Relaxed);
            at += step;
            assert!(at < MANY, "{}: no run is ever clean", story.name);
        }
    });
    let (cases, most) = (cases.into_inner(), most.into_inner());
    campaign.passed(
        &format!("{cases} runs: {} faults, at each of up to {most} calls", BUILD_FAULTS.len()),
        "pointer as it was or at a complete blob; the next run always converged",
    );
}

#[test]
fn a_day_unlike_the_one_before_is_not_published_because_the_store_fails() {
    let inputs = inputs();
    let faulty = FaultyStore::default();
    let unlike = inputs.folder.path().join("unlike.parquet");
    write_users(&unlike, 10_000..12_000);
    let (unlike, day) = (job(&unlike, today()), today());
    block_on(async {
        for back in [2, 1] {
            run(&job(&inputs.yesterday, day.minus(back)), &faulty.store()).await.unwrap();
        }
        for fault in [Fault::Down, Fault::Forbidden, Fault::Broken] {
            for times in [1, MANY] {
                for at in 0.. {
                    let faulty = faulty.fork();
                    faulty.set_fault(fault, at, times);
                    let outcome = run(&unlike, &faulty.store()).await.map(|report| report.outcome);
                    let befell = faulty.clear_fault();
                    let refused = matches!(outcome, Err(_) | Ok(Outcome::Refused));
                    assert!(refused, "{outcome:?} after {befell:?}");
                    assert_eq!(faulty.stored(&format!("rt/pointers/{day}")).await, None);
                    if befell.is_empty() {
                        break;
                    }
                }
            }
        }
    });
}

#[test]
fn an_upload_that_is_not_completed_is_an_error_although_an_older_copy_is_there() {
    let made = TestBlob::of(today(), Layout::Blocked, 0..10_000_000);
    let encoded = made.encoded();
    let faulty = FaultyStore::default();
    let store = faulty.store();
    block_on(async {
        store.put_blob(&encoded, &|_| {}).await.unwrap();
        let mut completed = false;
        for at in 0..8 {
            faulty.set_fault_of("/blobs/", Fault::Down, at, 1);
            let put = store.put_blob(&encoded, &|_| {}).await;
            let befell = faulty.clear_fault();
            if befell.iter().any(|call| call.starts_with("Complete")) {
                completed = true;
                assert!(put.is_err(), "{befell:?}");
            }
        }
        assert!(completed, "no completion failed");
    });
}

#[test]
fn an_upload_in_parts_that_goes_wrong_anywhere_is_never_pointed_at() {
    let campaign = Campaign::new("a store that lies, to an upload in parts");
    let made = TestBlob::of(today(), Layout::Blocked, 0..10_000_000);
    let encoded = made.encoded();
    let key = encoded.key().clone();
    let mut cases = 0;
    block_on(async {
        for fault in BUILD_FAULTS {
            for at in 0.. {
                let faulty = FaultyStore::default();
                let store = faulty.store();
                faulty.set_fault_of("/blobs/", fault, at, 1);
                let read_back = bloomsday_builder::publish::upload(&store, &encoded, &|_| {});
                let read_back = read_back.await;
                let befell = faulty.clear_fault();
                let completed = befell.first().is_some_and(|call| call.starts_with("Complete"));
                if fault == Fault::Unsaid && completed {
                    assert!(read_back.is_ok(), "it was complete, and only the answer was lost");
                }
                // The blob that it reports as read back is stored, and complete.
                if let Ok((header, _)) = read_back {
                    assert_eq!(header, made.header);
                    let stored = faulty.stored(&key.to_string()).await.unwrap();
                    assert_eq!(blob::digest_of(&stored), key.digest, "{befell:?}");
                    assert_eq!(stored.len() as u64, encoded.len(), "{befell:?}");
                }
                let again = bloomsday_builder::publish::upload(&store, &encoded, &|_| {});
                again.await.unwrap_or_else(|e| panic!("{fault:?} at {at} {befell:?}: {e}"));
                if befell.is_empty() {
                    break;
                }
                cases += 1;
                if !full() && at >= 8 {
                    break;
                }
            }
        }
    });
    campaign.passed(&format!("{cases} uploads of 9 MB"), "read back completely, or refused");
}

/// Repoint and pin as every job does them: read, then write conditionally.
#[test]
fn a_conditional_write_against_a_store_that_lies_is_never_reported_wrongly() {
    let campaign = Campaign::new("a store that lies, to repoint and pin");
    let key = |digit| {
        let digest = bloomsday_common::digest::Digest::new([digit; 32]);
        BlobKey { filter: rt(), day: today(), digest }
    };
    let mut cases = 0;
    block_on(async {
        for (fault, times, exists, pins) in BUILD_FAULTS.into_iter().flat_map(|fault| {
            [1, 2, 3, MANY].into_iter().flat_map(move |times| {
                [(false, false), (true, false), (false, true), (true, true)]
                    .map(|(exists, pins)| (fault, times, exists, pins))
            })
        }) {
            for at in 0..MANY {
                let faulty = FaultyStore::default();
                let store = faulty.store();
                let write = async |digit| -> Result<(), Error> {
                    if pins {
                        let read = store.pin(&rt()).await?;
                        let (until, pinned_at, pinned_by) = (None, None, None);
                        let blob = key(digit);
                        let pin = Pin { blob, until, pinned_at, pinned_by, reason: None };
                        store.put_pin(&rt(), &pin, &read.version).await
                    } else {
                        let read = store.pointer(&rt(), today()).await?;
                        let kind = Some(EventKind::Repoint);
                        let pointer = Pointer { kind, ..Pointer::to(key(digit)) };
                        store.put_pointer(&rt(), today(), &pointer, &read.version).await
                    }
                };
                let named = async || -> Option<BlobKey> {
                    if pins {
                        store.pin(&rt()).await.unwrap().state.found().map(|pin| pin.blob.clone())
                    } else {
                        let read = store.pointer(&rt(), today()).await.unwrap();
                        assert!(
                            !matches!(read.state, RecordState::Unreadable(_)),
                            "{:?}",
                            read.state
                        );
                        read.state.found().map(|pointer| pointer.blob.clone())
                    }
                };
                if exists {
                    write(1).await.unwrap();
                }
                faulty.set_fault(fault, at, times);
                let ended = write(2).await;
                let befell = faulty.clear_fault();
                let case = format!("{fault:?} × {times} at {at} {befell:?}: {ended:?}");
                let now = named().await;
                let old = exists.then(|| key(1));
                assert!(now == old || now == Some(key(2)), "{case}: {now:?}");
                match &ended {
                    Ok(()) => assert_eq!(now, Some(key(2)), "{case}"),
                    Err(error) if error.kind() == Kind::Superseded => {
                        assert_eq!(now, old, "{case}: superseded by its own write");
                        assert_eq!(fault, Fault::Missing, "{case}");
                    }
                    Err(_) => assert!(!befell.is_empty(), "{case}"),
                }
                // A single unclear outcome of the write itself is cleared up by a second look.
                let write_struck = befell.first().is_some_and(|call| call.starts_with("Put"));
                if times == 1 && write_struck {
                    assert!(ended.is_ok(), "{case}");
                }
                write(3).await.unwrap_or_else(|e| panic!("{case}, then: {e}"));
                assert_eq!(named().await, Some(key(3)), "{case}");
                if befell.is_empty() {
                    break;
                }
                cases += 1;
            }
        }
    });
    let result = "reported as it was, or unknown; never a success that was none";
    campaign.passed(&format!("{cases} writes"), result);
}
