//! The gates: a day that is not like those before is refused, kept for inspection, and can be let
//! through on the record.

use std::path::PathBuf;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user, write_rows, write_users};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// A week of days with the users 0..5,000, each 10 % of the next replaced, up to yesterday.
fn week(backend: &Backend) {
    for back in (1..=7u32).rev() {
        let first = u64::from(7 - back) * 500;
        let input = backend.folder.path().join(format!("in-{back}/part-0.parquet"));
        write_users(&input, first..first + 5_000);
        Publisher::days_ago(backend, back).input(&input).run().expect(0);
    }
}

/// The users of a day that is like those before, and how many of them there are.
const TODAY: std::ops::Range<u64> = 3_500..8_500;

/// Today's input, with these rows.
fn rows(backend: &Backend, name: &str, rows: impl Iterator<Item = Option<String>>) -> PathBuf {
    let file = backend.folder.path().join(format!("{name}.parquet"));
    write_rows(&file, rows);
    file
}

fn status(backend: &Backend) -> Value {
    backend.bloomsday(&["status", "rt"]).run().expect(0).json()
}

fn events(backend: &Backend) -> Vec<Value> {
    let history = backend.bloomsday(&["history", "rt"]).run().expect(0).stdout;
    history.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_day_whose_other_half_is_missing_is_refused() {
    let backend = Backend::local();
    let day = |back: u32, parts: &[u64]| {
        let folder = backend.folder.path().join(format!("in-{back}"));
        for part in parts {
            let users = part * 1_000..(part + 1) * 1_000;
            write_users(&folder.join(format!("part-{part}.parquet")), users);
        }
        Publisher::days_ago(&backend, back).input(folder).run()
    };
    day(1, &[0, 1]).expect(0);
    day(0, &[0]).expect(6).complains(&["distinct IDs 1000", "half of the files missing"]);
    // The same IDs in as many files are within the band.
    let file = rows(&backend, "half", (0..1_000).map(|n| Some(user(n))));
    let copy = backend.folder.path().join("halves");
    std::fs::create_dir(&copy).unwrap();
    for part in ["a.parquet", "b.parquet"] {
        std::fs::copy(&file, copy.join(part)).unwrap();
    }
    Publisher::days_ago(&backend, 0).input(copy).run().expect(0);
}

#[test]
fn a_day_unlike_those_before_is_refused_with_its_numbers_and_kept() {
    for backend in Backend::all() {
        week(&backend);
        let (day, before) = (today().to_string(), status(&backend));
        let all = || TODAY.map(|n| Some(user(n)));
        let half = rows(&backend, "half", all().take(2_400));
        let many = rows(&backend, "many", (3_500..15_000).map(|n| Some(user(n))));
        let null = rows(&backend, "null", all().chain((0..400).map(|_| None)));
        let empty = rows(&backend, "empty", all().chain((0..20).map(|_| Some(String::new()))));
        let copied = rows(&backend, "copied", (0..4).flat_map(|_| all()));
        let strange = rows(&backend, "strange", (90_000..95_000).map(|n| Some(user(n))));
        let cases = [
            (half, vec!["ids: distinct IDs 2400", "2500 to 10000", "usual: 5000"]),
            (many, vec!["ids: distinct IDs 11500", "2500 to 10000"]),
            (null, vec!["nulls: share of rows without an ID 0.0741", "0 to 0.0100"]),
            (empty, vec!["invalid: ", "0.0040", "0 to 0.0010"]),
            (copied, vec!["duplicates: rows per distinct ID 4 ", "0 to 3", "usual: 1"]),
            (strange, vec!["overlap: ", "to 1 (usual: 0."]),
        ];
        for (input, says) in &cases {
            let run = Publisher::day(&backend, &day).input(input).run().expect(6);
            let report = run.json();
            assert_eq!(report["outcome"], "refused");
            run.complains(says).complains(&["--accept-change", "kept for inspection"]);
            // The blob is sound and lies under its own name; no pointer moved.
            backend.bloomsday(&["inspect", report["blob"].as_str().unwrap()]).run().expect(0);
            assert_eq!(status(&backend)["pointers"], before["pointers"]);
            let event = &events(&backend)[0];
            assert_eq!((&event["act"], &event["outcome"]), (&"build".into(), &"refused".into()));
            assert_eq!((&event["blob"], &event["reason"]), (&report["blob"], &report["reason"]));
        }
        // None of the refused days has shifted what is normal.
        let good = rows(&backend, "good", all());
        assert_eq!(
            Publisher::day(&backend, &day).input(&good).run().expect(0).json()["outcome"],
            "published"
        );
    }
}

/// Who builds a day each minute would push out what decides, with the records of a day.
#[test]
fn a_build_that_ends_as_the_one_before_has_no_record_of_its_own() {
    let backend = Backend::local();
    week(&backend);
    let half = rows(&backend, "half", (0..2_000).map(|n| Some(user(n))));
    let good = rows(&backend, "good", TODAY.map(|n| Some(user(n))));
    let build = |input: &PathBuf| Publisher::days_ago(&backend, 0).input(input).run();
    let records = || events(&backend).len();
    let before = records();
    (0..3).for_each(|_| drop(build(&half).expect(6)));
    assert_eq!(records(), before + 1);
    build(&good).expect(0);
    // It is another end now: what was refused has been let through, or mended.
    build(&half).expect(6);
    assert_eq!(records(), before + 3);
    let (day, to) = (today().to_string(), today().minus(1).to_string());
    backend.bloomsday(&["repoint", "rt", &day, "--to", &to, "--reason", "a test"]).run().expect(0);
    let before = records();
    (0..3).for_each(|_| drop(build(&good).expect(5)));
    assert_eq!(records(), before + 1);
}

#[test]
fn a_change_is_let_through_on_the_record() {
    let backend = Backend::local();
    week(&backend);
    let day = today().to_string();
    let half = rows(&backend, "half", TODAY.take(2_400).map(|n| Some(user(n))));
    Publisher::day(&backend, &day).input(&half).with(&["--dry-run"]).run().expect(6);
    let accept = ["--accept-change", "we left two countries"];
    let report = Publisher::day(&backend, &day).input(&half).with(&accept).run().expect(0).json();
    assert_eq!(report["outcome"], "published");
    let gate = |name: &str| {
        let gates = report["gates"].as_array().unwrap();
        gates.iter().find(|gate| gate["gate"] == name).unwrap().clone()
    };
    assert_eq!(gate("ids")["passed"], false);
    assert_eq!(gate("overlap")["passed"], true);

    let pointer = &status(&backend)["pointers"][0];
    for reason in [&pointer["reason"], &events(&backend)[0]["reason"]] {
        let reason = reason.as_str().unwrap();
        assert!(reason.contains("two countries") && reason.contains("2400"), "{reason}");
    }
    // The same data again is no new decision.
    assert_eq!(
        Publisher::day(&backend, &day).input(&half).run().expect(0).json()["outcome"],
        "unchanged"
    );
}

#[test]
fn a_first_day_passes_and_a_day_without_ids_never() {
    let backend = Backend::local();
    let day = today().to_string();
    let none = rows(&backend, "none", (0..50).map(|_| None));
    let run = Publisher::day(&backend, &day)
        .input(&none)
        .with(&["--accept-change", "really"])
        .run()
        .expect(6);
    run.complains(&["has no ID", "50 of them null"]);
    let first = rows(&backend, "first", (0..10).map(|n| Some(user(n))));
    let report = Publisher::day(&backend, &day).input(&first).run().expect(0).json();
    assert_eq!((&report["outcome"], &report["overlap"]), (&"published".into(), &Value::Null));
}

#[test]
fn limits_come_from_the_configuration_and_impossible_ones_are_refused() {
    let backend = Backend::local();
    let config = backend.folder.path().join("bloomsday.toml");
    let day = today().to_string();
    let ten = rows(&backend, "ten", (0..10).map(|n| Some(user(n))));
    let with = |gates: &str| {
        std::fs::write(&config, format!("[filters.rt.gates]\n{gates}\n")).unwrap();
        Publisher::day(&backend, &day)
            .input(&ten)
            .with(&["--config", config.to_str().unwrap()])
            .run()
    };
    with("ids = { floor = 11, band = 2, cap = 100 }").expect(6).complains(&["11 to 100"]);
    with("ids = { floor = 11, band = 0.5, cap = 100 }").expect(2).complains(&["gates.ids", "band"]);
    with("ids = { floor = 11, cap = 100 }").expect(2).complains(&["band"]);
    with("idz = { floor = 11, band = 2, cap = 100 }").expect(2).complains(&["idz"]);
    with("ids = { floor = 10, band = 2, cap = 100 }").expect(0);
    let check = ["config", "check", "--config", config.to_str().unwrap()];
    let printed = backend.bloomsday(&check).run().expect(0).stdout;
    assert!(
        printed.contains("filters.rt.gates.ids") && printed.contains("floor = 10"),
        "{printed}"
    );
}
