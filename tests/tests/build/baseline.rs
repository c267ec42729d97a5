//! What is normal for a day follows from the last accepted days, however old, and without a history
//! from an earlier filter itself. A warning says what cannot be compared.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::objects::{objects, put};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, write_users};
use bloomsday_tests::program::{Bloomsday, Run};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// Prepares a build of the day `back` days ago from this many users, in this many files.
fn prepare(backend: &Backend, back: u32, users: u64, files: u64, more: &[&str]) -> Bloomsday {
    let folder = backend.folder.path().join(format!("in-{back}-{users}-{files}"));
    for file in 0..files {
        let range = users * file / files..users * (file + 1) / files;
        write_users(&folder.join(format!("part-{file:03}.parquet")), range);
    }
    Publisher::days_ago(backend, back).input(folder).with(more).prepare()
}

fn build(backend: &Backend, back: u32, users: u64) -> Run {
    prepare(backend, back, users, 1, &[]).run()
}

fn warnings(report: &Value) -> String {
    let all = report["warnings"].as_array().unwrap_or_else(|| panic!("no warnings in {report}"));
    all.iter().map(|warning| warning.as_str().unwrap().to_owned() + "\n").collect()
}

/// Removes all of a filter's history, past the program.
fn lose_history(backend: &Backend) {
    let folder = Path::new(&backend.store).join("rt/history");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_bad_day_is_refused_after_an_outage_of_any_length() {
    for outage in [8, 40, 399] {
        for backend in Backend::all() {
            build(&backend, outage, 5_000).expect(0);
            let run = build(&backend, 0, 10).expect(6);
            assert_eq!(run.json()["overlap"], 1.0, "the earlier filter was compared");
            run.complains(&["ids: distinct IDs 10", "usual: 5000"]);
            build(&backend, 0, 5_100).expect(0);
        }
    }
}

#[test]
fn a_lost_history_leaves_the_gates_on_with_a_warning() {
    let backend = Backend::local();
    build(&backend, 9, 5_000).expect(0);
    lose_history(&backend);
    let run = build(&backend, 0, 10).expect(6);
    assert!(warnings(&run.json()).contains("the history has no accepted build"));
    run.complains(&["ids: distinct IDs 10", "usual: 5000", "was the history deleted?"]);
    let histories = Path::new(&backend.store).join("rt/history");
    for file in fs::read_dir(&histories).unwrap() {
        fs::write(file.unwrap().path(), "{").unwrap();
    }
    // What they say is not known, and it may be a rollback.
    build(&backend, 0, 10).expect(7).complains(&["rt/history/", "restore it"]);
    // Nothing is hidden from who looks for what happened.
    let seen = backend.bloomsday(&["history", "rt"]).run().expect(0);
    seen.complains(&["warning: rt/history/", "cannot be read and is left out"]);
    lose_history(&backend);
    let report = build(&backend, 0, 5_100).expect(0).json();
    assert!(warnings(&report).contains("was the history deleted?"));
}

/// A rollback of one day, and what a Redis does that loses all.
#[test]
fn a_day_without_a_pointer_is_usual_only_if_all_pointers_are_gone() {
    let backend = Backend::local();
    build(&backend, 2, 5_000).expect(0);
    build(&backend, 1, 50).expect(6);
    prepare(&backend, 1, 50, 1, &["--accept-change", "for this test"]).run().expect(0);
    let pointer =
        |back: u32| Path::new(&backend.store).join(format!("rt/pointers/{}", today().minus(back)));
    fs::remove_file(pointer(1)).unwrap();
    build(&backend, 0, 50).expect(6).complains(&["usual: 5000"]);
    fs::remove_file(pointer(2)).unwrap();
    let run = build(&backend, 0, 10).expect(6);
    let run = run.complains(&["ids: distinct IDs 10", "usual: 2525"]);
    let lost = format!("{} has an accepted build in the history and no pointer", today().minus(1));
    assert!(warnings(&run.json()).contains(&lost), "{}", run.json());
    // So it is, too, when the first day after has a pointer.
    build(&backend, 1, 5_000).expect(0);
    let run = build(&backend, 0, 10).expect(6).complains(&["usual: 5000"]);
    assert!(warnings(&run.json()).contains(&today().minus(2).to_string()), "{}", run.json());
}

#[test]
fn an_unreadable_pointer_is_a_warning_and_the_one_before_is_compared() {
    let backend = Backend::local();
    build(&backend, 3, 5_000).expect(0);
    build(&backend, 2, 5_000).expect(0);
    build(&backend, 1, 5_000).expect(0);
    let pointers = Path::new(&backend.store).join("rt/pointers");
    // Out of reach: the store does not follow a link out of itself.
    let away = backend.folder.path().join("away");
    let yesterday = pointers.join(today().minus(1).to_string());
    fs::rename(&yesterday, &away).unwrap();
    symlink(&away, &yesterday).unwrap();
    // Unreadable.
    fs::write(pointers.join(today().minus(2).to_string()), "}").unwrap();
    let report = build(&backend, 0, 5_000).expect(0).json();
    let warned = warnings(&report);
    for back in [1, 2] {
        assert!(
            warned.contains(&format!("cannot compare with rt {}", today().minus(back))),
            "{warned}"
        );
    }
    assert_eq!(report["overlap"], 1.0, "{report}");
}

#[test]
fn a_huge_blob_of_an_earlier_day_is_not_fetched_to_compare_with() {
    let backend = Backend::local();
    build(&backend, 1, 5_000).expect(0);
    let before = prepare(&backend, 0, 5_000, 1, &["--memory", "0", "--dry-run"]).run_measured().1;
    let blobs = Path::new(&backend.store).join("rt/blobs");
    let blob = fs::read_dir(blobs).unwrap().next().unwrap().unwrap().path();
    fs::File::options().write(true).open(blob).unwrap().set_len(1 << 30).unwrap();
    let (run, most) = prepare(&backend, 0, 5_000, 1, &["--memory", "0"]).run_measured();
    let report = run.expect(0).json();
    assert!(warnings(&report).contains("1073741824 bytes, more than"), "{report}");
    assert_eq!(report["overlap"], Value::Null);
    assert!(most < before + (64 << 20), "{most} bytes, and {before} before");
    // The pointer still has the number of IDs.
    lose_history(&backend);
    prepare(&backend, 0, 10, 1, &["--memory", "0"]).run().expect(6).complains(&["usual: 5000"]);
}

#[test]
fn another_layout_cannot_be_compared_and_a_warning_says_so() {
    let backend = Backend::local();
    build(&backend, 1, 5_000).expect(0);
    let report = prepare(&backend, 0, 5_000, 1, &["--layout", "guava"]).run().expect(0).json();
    assert!(warnings(&report).contains("layout"), "{report}");
}

#[test]
fn the_number_of_files_and_their_bytes_are_judged_against_the_days_before() {
    let backend = Backend::local();
    for back in (1..=4).rev() {
        prepare(&backend, back, 4_800, 24, &[]).run().expect(0);
    }
    // One less is possible after a change of the writer, and a warning.
    let report = prepare(&backend, 0, 4_700, 23, &["--dry-run"]).run().expect(0).json();
    assert!(warnings(&report).contains("23 files were read"), "{report}");
    // Compacted ten times is honest too; into a single file it is not like the days before.
    prepare(&backend, 0, 4_800, 3, &["--dry-run"]).run().expect(0);
    let run = prepare(&backend, 0, 4_800, 1, &[]).run().expect(6);
    run.complains(&["files: files read 1 lies outside 2 to 288 (usual: 24)"]);
    let accepted = ["--accept-change", "compacted"];
    let report = prepare(&backend, 0, 4_800, 1, &accepted).run().expect(0).json();
    let gates = report["gates"].as_array().unwrap();
    let judged = |name: &str| gates.iter().find(|gate| gate["gate"] == name).unwrap();
    assert_eq!(judged("files")["passed"], false);
    assert_eq!(judged("input_bytes")["passed"], true, "{gates:?}");

    // As strict as somebody wants it.
    let file = backend.folder.path().join("bloomsday.toml");
    let text = "[filters.rt.gates]\nfiles = { floor = 1, band = 1.01, cap = 1e6 }\n\
                input_bytes = { floor = 1, band = 1.01, cap = 1e12 }\n";
    fs::write(&file, text).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let strict = prepare(&backend, 0, 4_900, 23, &config).run().expect(6);
    strict.complains(&["files: files read 23"]);
}

#[test]
fn days_whose_records_lack_the_numbers_are_no_norm_for_them() {
    let backend = Backend::local();
    for back in (1..=3).rev() {
        prepare(&backend, back, 4_800, 24, &[]).run().expect(0);
    }
    // As an earlier version left them.
    for (name, bytes) in objects(&backend, "rt/history") {
        let mut event: Value = serde_json::from_slice(&bytes).unwrap();
        let fields = event.as_object_mut().unwrap();
        for field in ["files", "files_passed_over", "input_bytes"] {
            assert!(fields.remove(field).is_some(), "{fields:?}");
        }
        put(&backend, &format!("rt/history/{name}"), event.to_string().as_bytes());
    }
    let report = build(&backend, 0, 4_800).expect(0).json();
    let gates = report["gates"].as_array().unwrap();
    let files = gates.iter().find(|gate| gate["gate"] == "files").unwrap();
    assert_eq!(files["norm"], Value::Null, "{gates:?}");
}
