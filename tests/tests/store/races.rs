//! Eight builders race for one pointer: one wins, the others report it, and the pointer names the
//! winner's complete blob.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bloomsday_builder::{Job, Progress, Report, build};
use bloomsday_common::blob;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::Outcome;
use bloomsday_common::store::{DEFAULT_TEMPLATE, Store};
use bloomsday_tests::azure::Azure;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::campaign::{Campaign, size};
use bloomsday_tests::gcs::Gcs;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::redis::Redis;

const BUILDERS: usize = 8;
/// How many IDs a builder has; its neighbours share half of them.
const USERS: u64 = 200;
/// Where the races in a process of their own find their store, and the inputs.
const STORE: &str = "BLOOMSDAY_TEST_STORE";
const FOLDER: &str = "BLOOMSDAY_TEST_FOLDER";
const POINTERS: &str = "BLOOMSDAY_TEST_POINTERS";
/// And what they are called, and how many they are.
const NAME: &str = "BLOOMSDAY_TEST_NAME";
const ROUNDS: &str = "BLOOMSDAY_TEST_ROUNDS";

fn users(builder: usize) -> std::ops::Range<u64> {
    let first = builder as u64 * USERS / 2;
    first..first + USERS
}

fn input(folder: &std::path::Path, builder: usize) -> PathBuf {
    folder.join(format!("{builder}.parquet"))
}

/// Credentials come from the environment, so the races on a backend run in a process of their own:
/// as many as `rounds` says, or 1,000 at full size.
fn race_on(backend: &Backend, name: &str, rounds: u64) {
    (0..BUILDERS).for_each(|n| write_users(&input(backend.folder.path(), n), users(n)));
    let races = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "races::the_races", "--nocapture"])
        .envs(backend.env.iter().map(|(name, value)| (*name, value)))
        .env(STORE, &backend.store)
        .env(FOLDER, backend.folder.path())
        .env(NAME, name)
        .env(ROUNDS, size(rounds, 1_000).to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&races.stdout);
    said.lines().filter(|line| line.starts_with("CAMPAIGN")).for_each(|line| println!("{line}"));
    let complained = String::from_utf8_lossy(&races.stderr);
    assert!(races.status.success(), "on {}:\n{said}\n{complained}", backend.store);
}

#[test]
fn one_of_eight_builders_wins_on_a_local_folder() {
    race_on(&Backend::local(), "local", 15);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn one_of_eight_builders_wins_on_s3() {
    race_on(&Backend::s3(), "S3", 6);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn one_of_eight_builders_wins_on_azure() {
    let azure = Azure::start();
    race_on(&azure.backend("races"), "Azure", 6);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn one_of_eight_builders_wins_on_google_cloud_storage() {
    let gcs = Gcs::start();
    race_on(&gcs.backend("races"), "Google Cloud Storage", 6);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn one_of_eight_builders_wins_with_pointers_in_redis() {
    let redis = Redis::start();
    let mut backend = Backend::local();
    backend.env.push((POINTERS, redis.address()));
    race_on(&backend, "pointers in Redis", 15);
}

#[test]
#[ignore = "run by the tests above, on each backend"]
fn the_races() {
    let given = |name: &str| std::env::var(name).unwrap();
    let open = || {
        let store = Store::create(&given(STORE)).unwrap();
        match std::env::var(POINTERS) {
            Ok(redis) => store.with_pointers(&redis, DEFAULT_TEMPLATE).unwrap(),
            Err(_) => store,
        }
    };
    let campaign = Campaign::new(&format!("8 builders race, {}", given(NAME)));
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    // With the memory of one builder each, the runtimes are made once.
    let runtimes: Vec<_> = (0..BUILDERS)
        .map(|_| {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.worker_threads(1).enable_all().build().unwrap()
        })
        .collect();
    // A store each, as if in a process each: no lock is shared but that of the file.
    let stores: Vec<Store> = (0..BUILDERS).map(|_| open()).collect();
    let rounds: u64 = given(ROUNDS).parse().unwrap();
    let (clock, mut equals) = (Instant::now(), 0);
    for round in 0..rounds {
        // A filter of its own for each round, so that histories stay short.
        let filter: FilterName = format!("race-{round}").parse().unwrap();
        let all_equal = round % 5 == 4;
        let ready = Barrier::new(BUILDERS);
        let reports: Vec<Report> = std::thread::scope(|scope| {
            let race = |n: usize| {
                let file = input(&folder, if all_equal { 0 } else { n });
                let (filter, store, runtime, ready) = (&filter, &stores[n], &runtimes[n], &ready);
                scope.spawn(move || {
                    let met = AtomicBool::new(false);
                    // All have read the pointer before any goes on to write it.
                    let meet = |progress| {
                        if matches!(progress, Progress::Fill) && !met.swap(true, Ordering::Relaxed)
                        {
                            ready.wait();
                        }
                    };
                    let inputs = vec![file.display().to_string()];
                    let job = Job {
                        memory: 1 << 30,
                        threads: 1,
                        by: format!("builder {n}"),
                        ..Job::new(filter.clone(), today(), inputs, "device_id".into())
                    };
                    runtime.block_on(build(&job, store, &meet)).unwrap()
                })
            };
            let race: Vec<_> = (0..BUILDERS).map(race).collect();
            race.into_iter().map(|builder| builder.join().unwrap()).collect()
        });
        let outcomes: Vec<Outcome> = reports.iter().map(|report| report.outcome).collect();
        let won = |outcome: &&Outcome| **outcome == Outcome::Published;
        assert_eq!(outcomes.iter().filter(won).count(), 1, "round {round}: {outcomes:?}");
        // Those who made the winner's blob too have lost nothing.
        let lost = if all_equal { Outcome::Unchanged } else { Outcome::Superseded };
        let is_decided = |outcome: &Outcome| *outcome == Outcome::Published || *outcome == lost;
        assert!(outcomes.iter().all(is_decided), "round {round}: {outcomes:?}");
        equals += u64::from(all_equal);
        let winner = outcomes.iter().position(|outcome| won(&outcome)).unwrap();
        runtimes[0].block_on(async {
            let store = &stores[0];
            for event in store.history(&filter).await.unwrap() {
                assert!(is_decided(&event.outcome), "round {round}: {event:?}");
            }
            let read = store.pointer(&filter, today()).await.unwrap();
            let named = read.state.found().unwrap().blob.clone();
            assert_eq!(Some(&named), reports[winner].blob.as_ref(), "round {round}");
            // Every builder's blob is complete, the losers' too.
            let mut blobs: Vec<_> = reports.iter().filter_map(|r| r.blob.clone()).collect();
            blobs.dedup();
            for key in blobs {
                let fetched = store.fetch(&key, u64::MAX).await.unwrap();
                let (_, won) = blob::open(fetched, &key).unwrap();
                if key == named {
                    let users = users(if all_equal { 0 } else { winner });
                    assert!(users.map(user).all(|id| won.contains(id.as_bytes())), "{round}");
                }
            }
        });
    }
    let pace = rounds as f64 / clock.elapsed().as_secs_f64();
    let result = format!("one winner each; {pace:.1} rounds/s");
    campaign.passed(&format!("{rounds} rounds, {equals} of them with the same IDs"), &result);
}

/// The same with real processes, all stopped after their scan and let go at once.
#[test]
fn one_of_eight_processes_wins_and_the_others_exit_5() {
    if !cfg!(debug_assertions) {
        // A release build has no places to stop at.
        return;
    }
    let campaign = Campaign::new("8 processes race, local and S3");
    let rounds = size(1, 50);
    for backend in Backend::all() {
        (0..BUILDERS).for_each(|n| write_users(&input(backend.folder.path(), n), users(n)));
        for round in 0..rounds {
            let go = backend.folder.path().join(format!("go-{round}"));
            let store = format!("{}/{round}", backend.store);
            let day = today().to_string();
            let mut race: Vec<KillableRun> = (0..BUILDERS)
                .map(|n| {
                    let file = input(backend.folder.path(), n).display().to_string();
                    let words = ["build", "rt", "--day", &day, "--input", &file];
                    let words =
                        [&words[..], &["--column", "device_id", "--store", &store]].concat();
                    let mut command = bloomsday(&words).envs(&backend.env).into_command();
                    command.env("BLOOMSDAY_PAUSE_UNTIL", &go);
                    KillableRun::start(command, Some("scanned"))
                })
                .collect();
            for builder in &mut race {
                assert!(builder.paused(), "{}", builder.said());
            }
            std::fs::write(&go, "").unwrap();
            race.iter_mut().for_each(KillableRun::finish);
            let codes: Vec<_> = race.into_iter().map(KillableRun::wait).collect();
            let with = |code| codes.iter().filter(|c| **c == Some(code)).count();
            assert_eq!((with(0), with(5)), (1, BUILDERS - 1), "{codes:?}");
        }
    }
    campaign.passed(&format!("{} rounds", 2 * rounds), "one exits 0, seven exit 5");
}

/// A builder that paused for long does not overwrite what was published since.
#[test]
fn a_build_that_is_stopped_and_continued_does_not_overwrite_what_came_later() {
    if !cfg!(debug_assertions) {
        return;
    }
    // Up to the last moment before the write; past it, the write itself is conditional.
    let places = ["scanned", "counted", "filled", "uploaded", "verified", "recorded"];
    for backend in Backend::all() {
        (0..2).for_each(|n| write_users(&input(backend.folder.path(), n), users(n)));
        for place in places {
            let go = backend.folder.path().join(format!("continue-{place}"));
            let store = format!("{}/{place}", backend.store);
            let day = today().to_string();
            let build = |n| {
                let file = input(backend.folder.path(), n).display().to_string();
                let words = ["build", "rt", "--day", &day, "--input", &file, "--json"];
                let words = [&words[..], &["--column", "device_id", "--store", &store]].concat();
                bloomsday(&words).envs(&backend.env)
            };
            let mut command = build(0).into_command();
            command.env("BLOOMSDAY_PAUSE_UNTIL", &go);
            let mut stopped = KillableRun::start(command, Some(place));
            assert!(stopped.paused(), "{place}: {}", stopped.said());
            let later = build(1).run().expect(0).json();
            std::fs::write(&go, "").unwrap();
            stopped.finish();
            let said = stopped.said().to_owned();
            assert_eq!(stopped.wait(), Some(5), "{place}:\n{said}");
            let again = build(1).run().expect(0).json();
            assert_eq!(again["outcome"], "unchanged", "{place}: it was overwritten");
            assert_eq!(again["blob"], later["blob"]);
        }
    }
}
