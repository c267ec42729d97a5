//! Pointers and blobs that are damaged, mistyped, too large or not there: nobody loads them, no
//! build overwrites them, and the printed remedy mends them.

use std::fs;
use std::path::Path;

use super::{GOOD, Good};
use crate::objects::{bucket, objects};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

#[test]
fn nothing_published_is_not_found_and_says_what_to_do() {
    for backend in Backend::all() {
        if bucket(&backend).is_none() {
            backend.bloomsday(&["query", "rt", "x"]).run().expect(4).complains(&[&backend.store]);
            fs::create_dir_all(&backend.store).unwrap();
        }
        let oldest = today().minus(3).to_string();
        let run = backend.bloomsday(&["query", "rt", "x"]).run().expect(4);
        run.complains(&["`rt` has no pointer", &oldest, &backend.store, "build a day"]);
        backend.bloomsday(&["history", "rt"]).run().expect(4);
        backend.bloomsday(&["status"]).run().expect(4).complains(&["no filter"]);
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!(status["state"], "empty");
        let to = ["--to", &oldest];
        let run = backend.bloomsday(&[&["repoint", "rt", &oldest][..], &to].concat()).run();
        run.expect(4).complains(&[&oldest, "bloomsday status rt"]);
    }
}

#[test]
fn a_pointer_that_cannot_be_read_is_kept_by_builds_and_stops_nobody() {
    for backend in Backend::all() {
        let good = Good::on(backend);
        let (backend, day) = (&good.backend, good.day.as_str());
        let digest = "ab".repeat(32);
        let optout = format!("optout/blobs/{day}-{digest}.bloom");
        let foreign = format!("s3://evil/prod/rt/blobs/{day}-{digest}.bloom");
        let torn = format!("{{\"blob\": \"rt/blobs/{day}-{digest}.bloom\",");
        let other_day =
            format!("{{\"blob\": \"rt/blobs/{day}-{digest}.bloom\", \"day\": \"2020-01-01\"}}");
        let key = format!("rt/pointers/{day}");
        for (garbage, says) in [
            (&b""[..], "it is empty"),
            (b"half a ro", "does not name a blob"),
            (b"\xff\xfe\x00", "not UTF-8"),
            (b"{}", "missing field `blob`"),
            (torn.as_bytes(), "its JSON is wrong"),
            (other_day.as_bytes(), "its field \"day\" says 2020-01-01"),
            (optout.as_bytes(), "it belongs to `optout`"),
            (foreign.as_bytes(), "it lies outside this store"),
            (b"rt/blobs/../../etc/passwd", "does not name a blob"),
        ] {
            good.put_pointer(day, garbage);
            let remedy = format!("bloomsday repoint rt {day} --to");
            let run = backend.bloomsday(&["query", "rt", &user(1)]).run().expect(7);
            run.complains(&[&key, says, &remedy]);
            good.reload_fails(&[&key, says, &remedy]);
            let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
            assert_eq!((&status["state"], &status["day"]), (&"failing".into(), &Value::Null));
            assert!(status["reason"].as_str().unwrap().contains(says), "{status}");
            assert_eq!(status["pointers"].as_array().unwrap().len(), 2);

            let run = Publisher::day(backend, day).users(0..GOOD + 1).run().expect(7);
            run.complains(&[&key, says, "a build does not overwrite it", &remedy]);
            assert_eq!(objects(backend, "rt/pointers/")[day], garbage, "{says}");
        }
        // The remedy works as it was printed.
        let run = Publisher::day(backend, day).users(0..GOOD + 1).run().expect(7);
        let command = run.stderr.split("`bloomsday ").nth(1).unwrap().split('`').next().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        assert!(command.ends_with(&format!(" --store {}", backend.store)), "{command}");
        bloomsday(&words).envs(&backend.env).run().expect(0);
        assert_eq!(good.daemon.reload("").0, 200);
        assert_eq!(good.daemon.status()["day"], day);
        backend.bloomsday(&["query", "rt", &user(GOOD)]).run().expect(0);
    }
}

#[test]
fn the_remedy_for_a_mistyped_rollback_does_not_undo_it() {
    let good = Good::local();
    let day = good.day.as_str();
    let build = || Publisher::day(&good.backend, day).users(0..GOOD + 1).run();
    let bad = build().expect(0).json()["blob"].as_str().unwrap().to_owned();
    good.backend.bloomsday(&["repoint", "rt", day, "--to", &good.before]).run().expect(0);
    good.put_pointer(day, format!("rt/blobs/{}-oops", good.before).as_bytes());
    let run = build().expect(7);
    let run =
        run.complains(&["it may be a rollback", &format!("bloomsday repoint rt {day} --to DAY")]);
    assert!(!run.stderr.contains(&bad), "{}", run.stderr);
}

#[test]
fn a_pointer_larger_than_any_record_is_refused_and_the_printed_remedy_mends_it() {
    for backend in Backend::all() {
        let good = Good::on(backend);
        let (backend, day) = (&good.backend, good.day.as_str());
        let garbage = [b'x'; 70_000];
        good.put_pointer(day, &garbage);
        let says = ["rt/pointers/", "more than 65536", "bloomsday repoint rt"];
        backend.bloomsday(&["query", "rt", &user(1)]).run().expect(7).complains(&says);
        good.reload_fails(&says);
        Publisher::day(backend, day).users(0..GOOD + 1).run().expect(7).complains(&says);
        assert_eq!(objects(backend, "rt/pointers/")[day], garbage);
        backend.bloomsday(&["repoint", "rt", day, "--to", &good.before]).run().expect(0);
        assert_eq!(good.daemon.reload("").0, 200);
    }
}

#[test]
fn a_pointer_to_a_blob_that_is_not_there_is_not_found_and_the_blob_is_named() {
    for backend in Backend::all() {
        let good = Good::on(backend);
        let blob = format!("rt/blobs/{}-{}.bloom", good.day, "ab".repeat(32));
        good.put_pointer(&good.day, blob.as_bytes());
        let backend = &good.backend;
        backend.bloomsday(&["query", "rt", &user(1)]).run().expect(4).complains(&[&blob]);
        backend.bloomsday(&["inspect", &blob]).run().expect(4).complains(&[&blob]);
        good.reload_fails(&[&blob]);
        // A mistyped file needs no store.
        bloomsday(&["inspect", "x.bloom"]).run().expect(4).complains(&["no file x.bloom"]);
        // Nor can an operator make one.
        let words = ["repoint", "rt", &good.before, "--to", &blob];
        backend.bloomsday(&words).run().expect(4).complains(&[&blob]);
        backend.bloomsday(&["pin", "rt", "--to", &blob]).run().expect(4).complains(&[&blob]);
        let pointers = objects(backend, "rt/pointers/");
        assert_eq!(pointers[&good.before], good.pointers[&good.before]);
        assert_eq!(pointers[&good.day], blob.as_bytes());
        good.answers("failing");
    }
}

#[test]
fn a_damaged_blob_is_refused_by_everybody_and_building_the_day_again_mends_it() {
    let good = Good::local();
    let (backend, day) = (&good.backend, good.day.as_str());
    let report = Publisher::day(backend, day).users(500..2_000).run().expect(0).json();
    let blob = report["blob"].as_str().unwrap();
    let file = Path::new(&backend.store).join(blob);
    let sound = fs::read(&file).unwrap();
    let mut flipped = sound.clone();
    flipped[5_000] ^= 1;
    let mut renamed = sound.clone();
    renamed[24] ^= 1;
    let pointers = objects(backend, "rt/pointers/");
    for (what, bytes) in [
        ("a flipped bit", flipped),
        ("a flipped bit in the header", renamed),
        ("an end cut off", sound[..sound.len() - 100].to_vec()),
        ("a header cut off", sound[..10].to_vec()),
        ("no byte", Vec::new()),
        ("a byte too many", [&sound[..], b"\n"].concat()),
    ] {
        fs::write(&file, &bytes).unwrap();
        let says = [blob, "damaged", "rebuild that day"];
        backend.bloomsday(&["query", "rt", &user(1)]).run().expect(7).complains(&says);
        backend.bloomsday(&["inspect", blob]).run().expect(7).complains(&says);
        let copy = backend.folder.path().join("copy.bloom");
        fs::write(&copy, &bytes).unwrap();
        bloomsday(&["inspect", copy.to_str().unwrap()]).run().expect(7);
        let before = good.before.as_str();
        backend.bloomsday(&["repoint", "rt", before, "--to", blob]).run().expect(7);
        backend.bloomsday(&["pin", "rt", "--to", blob]).run().expect(7).complains(&says);
        good.reload_fails(&[blob]);
        assert_eq!(objects(backend, "rt/pointers/"), pointers, "{what}");

        // Also a build that reads the blobs of the days before.
        let carries_on = ["--deltas", "3", "--dry-run"];
        Publisher::day(backend, day).users(500..2_000).with(&carries_on).run().expect(0);
        let again = Publisher::day(backend, day).users(500..2_000).run().expect(0);
        assert_eq!(again.json()["outcome"], "unchanged");
        assert_eq!(fs::read(&file).unwrap(), sound, "{what} was not mended");
    }
    assert_eq!(good.daemon.reload("").0, 200);
    assert_eq!(good.daemon.status()["day"], day);
}

#[test]
fn of_two_builds_of_one_day_at_once_the_pointer_names_a_complete_blob() {
    for backend in Backend::all() {
        let day = today().to_string();
        // In the first round there is no pointer, in the others there is.
        for round in 0..4u64 {
            let build = |start| Publisher::day(&backend, &day).users(start..start + 5_000).run();
            let starts = [round * 20_000, round * 20_000 + 10_000];
            let runs = std::thread::scope(|scope| {
                let builds = starts.map(|start| scope.spawn(move || build(start)));
                builds.map(|build| build.join().unwrap())
            });
            let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
            assert_eq!(status["state"], "ok");
            let mut published = Vec::new();
            for run in &runs {
                let report = run.json();
                let blob = report["blob"].as_str().unwrap();
                backend.bloomsday(&["inspect", blob]).run().expect(0);
                match run.code {
                    0 => {
                        assert_eq!(report["outcome"], "published", "round {round}");
                        published.push(report["blob"].clone());
                    }
                    5 => {
                        assert_eq!(report["outcome"], "superseded", "round {round}");
                        let remedy = format!("bloomsday repoint rt {day} --to {blob}");
                        assert!(run.stderr.contains(&remedy), "{}", run.stderr);
                    }
                    other => panic!("round {round} ended with {other}: {}", run.stderr),
                }
            }
            assert_ne!(runs[0].json()["blob"], runs[1].json()["blob"]);
            assert!(published.contains(&status["blob"]), "round {round}: {status}");
        }
        let history = backend.bloomsday(&["history", "rt"]).run().expect(0).stdout;
        assert_eq!(history.lines().count(), 8, "{history}");
    }
}
