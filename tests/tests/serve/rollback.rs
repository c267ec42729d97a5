//! A rollback is a rollback, however it is made: the day's own earlier record put back, the pointer
//! removed, its JSON edited, a plain line or `repoint`. The same data does not undo it, mended data
//! moves on, and `status`, `query` and a running server follow the same blob.

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::program::Run;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::redis::Redis;
use serde_json::Value;

/// The users of a good run, of a bad one, and of one that is mended.
const GOOD: std::ops::Range<u64> = 0..5_000;
const BAD: std::ops::Range<u64> = 0..3_000;
const MENDED: std::ops::Range<u64> = 0..6_000;

fn pointer(back: u32) -> String {
    format!("rt/pointers/{}", today().minus(back))
}

fn status(backend: &Backend) -> Value {
    backend.bloomsday(&["status", "rt"]).run().expect(0).json()
}

/// `status`, `query` and a server use the same blob.
#[track_caller]
fn all_say(backend: &Backend, daemon: &Daemon, state: &str, blob: &str, newest_user: u64) {
    let (code, said) = daemon.reload("");
    assert_eq!(code, 200, "{said}");
    let (reported, served) = (status(backend), daemon.status());
    assert_eq!(
        (&reported["state"], &served["state"]),
        (&state.into(), &state.into()),
        "{reported}"
    );
    assert_eq!(reported["rolled_back"], served["rolled_back"]);
    assert_eq!(reported["blob"], blob);
    assert!(blob.contains(served["digest"].as_str().unwrap()), "{blob}: {served}");
    assert_eq!(served["last_error"], Value::Null);
    backend.bloomsday(&["query", "rt", &user(newest_user)]).run().expect(0);
    assert!(daemon.contains(&user(newest_user)));
}

/// The bad data is built again: nothing moves, and the reason holds the way to move it by hand.
#[track_caller]
fn stands(backend: &Backend, what: &str) {
    let before = backend.read(&pointer(0));
    let again = Publisher::days_ago(backend, 0).users(BAD).run();
    assert_eq!(again.code, 5, "{what}: {}{}", again.stdout, again.stderr);
    let report = again.json();
    assert_eq!(report["outcome"], "superseded", "{what}");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("rolled back"), "{what}: {reason}");
    let remedy =
        format!("bloomsday repoint rt {} --to {}", today(), report["blob"].as_str().unwrap());
    assert!(reason.contains(&remedy), "{what}: {reason}");
    assert!(backend.read(&pointer(0)) == before, "{what}: the pointer was touched");
}

fn blob(run: Run) -> String {
    run.expect(0).json()["blob"].as_str().unwrap().to_owned()
}

#[test]
fn the_days_own_earlier_record_put_back_is_a_rollback() {
    for backend in Backend::all() {
        let good = blob(Publisher::days_ago(&backend, 0).users(GOOD).run());
        let saved = backend.read(&pointer(0)).unwrap();
        blob(Publisher::days_ago(&backend, 0).users(BAD).run());
        let daemon = Daemon::ready(&backend, &[]);
        backend.write(&pointer(0), &saved);
        all_say(&backend, &daemon, "ok", &good, GOOD.end - 1);
        let by_hand = &status(&backend)["pointers"][0];
        assert_eq!(by_hand["by_hand"], true, "{by_hand}");
        stands(&backend, "restored");
        assert_eq!(
            Publisher::days_ago(&backend, 0).users(GOOD).run().expect(0).json()["outcome"],
            "unchanged"
        );
        stands(&backend, "restored, after an unchanged build");
        let mended = blob(Publisher::days_ago(&backend, 0).users(MENDED).run());
        all_say(&backend, &daemon, "ok", &mended, MENDED.end - 1);
        assert_eq!(status(&backend)["pointers"][0]["by_hand"], false);
        // And once more, from there.
        backend.write(&pointer(0), &saved);
        stands(&backend, "restored over the mended day");
        let again = Publisher::days_ago(&backend, 0).users(MENDED).run().expect(5);
        assert_eq!(again.json()["outcome"], "superseded");
    }
}

#[test]
fn a_removed_pointer_is_a_rollback() {
    for backend in Backend::all() {
        let before = blob(Publisher::days_ago(&backend, 1).users(GOOD).run());
        blob(Publisher::days_ago(&backend, 0).users(BAD).run());
        let daemon = Daemon::ready(&backend, &[]);
        backend.remove(&pointer(0));
        all_say(&backend, &daemon, "ok", &before, GOOD.end - 1);
        stands(&backend, "removed");
        stands(&backend, "removed, once more");
        let mended = blob(Publisher::days_ago(&backend, 0).users(MENDED).run());
        all_say(&backend, &daemon, "ok", &mended, MENDED.end - 1);
    }
}

#[test]
fn a_removed_pointer_of_the_only_day_is_a_rollback_too() {
    let backend = Backend::local();
    blob(Publisher::days_ago(&backend, 0).users(BAD).run());
    backend.remove(&pointer(0));
    stands(&backend, "removed");
    blob(Publisher::days_ago(&backend, 0).users(MENDED).run());
}

#[test]
fn an_edited_record_is_a_rollback_whatever_else_it_says() {
    for backend in Backend::all() {
        let before = blob(Publisher::days_ago(&backend, 1).users(MENDED).run());
        let good = blob(Publisher::days_ago(&backend, 0).users(GOOD).run());
        let bad = blob(Publisher::days_ago(&backend, 0).users(BAD).run());
        let record: Value = serde_json::from_slice(&backend.read(&pointer(0)).unwrap()).unwrap();
        let daemon = Daemon::ready(&backend, &[]);
        for (to, state, newest) in
            [(&before, "rolled_back", MENDED.end - 1), (&good, "ok", GOOD.end - 1)]
        {
            // Stale or absurd: `bytes` and `ids` are what the record had, or what nobody has.
            for bytes in [record["bytes"].clone(), 1.into(), u64::MAX.into()] {
                let mut edited = record.clone();
                let name = to.rsplit('/').next().unwrap();
                edited["blob"] = to.as_str().into();
                edited["day"] = name[..10].into();
                edited["digest"] = name[11..].trim_end_matches(".bloom").into();
                edited["bytes"] = bytes;
                backend.write(&pointer(0), &serde_json::to_vec_pretty(&edited).unwrap());
                all_say(&backend, &daemon, state, to, newest);
                let pointer = status(&backend)["pointers"][0].clone();
                assert_eq!(pointer["ids"], newest + 1, "{pointer}");
            }
            stands(&backend, to);
            // Back to the bad day, by hand as well: that is where it stands now.
            let line = format!("{bad}\n");
            backend.write(&pointer(0), line.as_bytes());
            all_say(&backend, &daemon, "ok", &bad, BAD.end - 1);
        }
    }
}

#[test]
fn builds_alone_go_back_to_an_earlier_blob() {
    let backend = Backend::local();
    for users in [GOOD, BAD, GOOD, BAD, MENDED, GOOD] {
        assert_eq!(
            Publisher::days_ago(&backend, 0).users(users).run().expect(0).json()["outcome"],
            "published"
        );
        assert_eq!(status(&backend)["pointers"][0]["by_hand"], false);
    }
}

#[test]
fn a_build_killed_once_it_had_pointed_is_remembered_by_the_next() {
    let backend = Backend::local();
    blob(Publisher::days_ago(&backend, 0).users(GOOD).run());
    let saved = backend.read(&pointer(0)).unwrap();
    let command = Publisher::days_ago(&backend, 0).users(BAD).prepare().into_command();
    let mut victim = KillableRun::start(command, Some("pointed"));
    assert!(victim.paused(), "{}", victim.said());
    drop(victim);
    // What was cut off is run again: nothing is left to do, but to say so.
    assert_eq!(
        Publisher::days_ago(&backend, 0).users(BAD).run().expect(0).json()["outcome"],
        "unchanged"
    );
    backend.write(&pointer(0), &saved);
    stands(&backend, "restored");
}

#[test]
fn a_mended_build_killed_before_it_pointed_is_run_again_after_a_rollback_by_hand() {
    for removed in [false, true] {
        let backend = Backend::local();
        blob(Publisher::days_ago(&backend, 0).users(GOOD).run());
        let saved = backend.read(&pointer(0)).unwrap();
        blob(Publisher::days_ago(&backend, 0).users(BAD).run());
        if removed {
            backend.remove(&pointer(0))
        } else {
            backend.write(&pointer(0), &saved)
        }
        let command = Publisher::days_ago(&backend, 0).users(MENDED).prepare().into_command();
        let mut victim = KillableRun::start(command, Some("recorded"));
        assert!(victim.paused(), "{}", victim.said());
        drop(victim);
        stands(&backend, "while a mended build was cut off");
        assert_eq!(
            Publisher::days_ago(&backend, 0).users(MENDED).run().expect(0).json()["outcome"],
            "published"
        );
    }
}

#[test]
fn a_day_that_prune_may_have_dropped_is_built_as_if_it_were_new() {
    let backend = Backend::local();
    blob(Publisher::days_ago(&backend, 15).users(BAD).run());
    backend.remove(&pointer(15));
    assert_eq!(
        Publisher::days_ago(&backend, 15).users(BAD).run().expect(0).json()["outcome"],
        "published"
    );
    // But not one that prune would have kept.
    blob(Publisher::days_ago(&backend, 14).users(BAD).run());
    backend.remove(&pointer(14));
    Publisher::days_ago(&backend, 14).users(BAD).run().expect(5);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn in_redis_it_is_the_same() {
    let redis = Redis::start();
    let mut backend = Backend::local();
    backend.env.push(("BLOOMSDAY_POINTERS", redis.address()));
    let key = today().expand("rt_{day:%Y%m%d}").unwrap();
    let before = blob(Publisher::days_ago(&backend, 1).users(MENDED).run());
    let good = blob(Publisher::days_ago(&backend, 0).users(GOOD).run());
    let saved = redis.get(&key);
    blob(Publisher::days_ago(&backend, 0).users(BAD).run());
    let daemon = Daemon::ready(&backend, &[]);
    redis.command(&["SET", &key, &saved]);
    all_say(&backend, &daemon, "ok", &good, GOOD.end - 1);
    Publisher::days_ago(&backend, 0)
        .users(BAD)
        .run()
        .expect(5)
        .complains(&["rolled back", "bloomsday repoint rt"]);
    redis.command(&["DEL", &key]);
    all_say(&backend, &daemon, "ok", &before, MENDED.end - 1);
    for users in [BAD, GOOD] {
        Publisher::days_ago(&backend, 0)
            .users(users)
            .run()
            .expect(5)
            .complains(&["rolled back", "bloomsday repoint rt"]);
    }
    blob(Publisher::days_ago(&backend, 0).users(MENDED).run());
}
