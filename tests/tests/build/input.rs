//! No file of a day's input is lost silently: each is read, refused by name, or named in the
//! report.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::objects::{objects, put};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::program::{Run, bloomsday};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// A build of today.
fn publisher<'a>(backend: &'a Backend, input: &str) -> Publisher<'a> {
    Publisher::days_ago(backend, 0).input(input)
}

fn build(backend: &Backend, input: &str) -> Run {
    publisher(backend, input).run()
}

/// The bytes of a Parquet file with these users.
fn parquet(backend: &Backend, users: std::ops::Range<u64>) -> Vec<u8> {
    let file = backend.folder.path().join("scratch.parquet");
    write_users(&file, users);
    fs::read(file).unwrap()
}

/// The names in a list of a report.
fn names(report: &Value, field: &str) -> Vec<String> {
    let names = report[field].as_array().unwrap_or_else(|| panic!("no {field} in {report}"));
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_cannot_be_read_as_a_file_is_refused_by_name() {
    type Make = fn(&Path);
    let cases: [(&[u8], &str, Make); 7] = [
        (b"b.parquet", "/gone.parquet", |at| symlink("/gone.parquet", at).unwrap()),
        (b"more", "/gone/folder", |at| symlink("/gone/folder", at).unwrap()),
        (b"pipe.parquet", "pipe", |at| {
            assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
        }),
        (b"socket.parquet", "socket", |at| drop(UnixListener::bind(at).unwrap())),
        (b"part#12", "rename it", |at| write_users(at, 0..10)),
        (b"part\xff.parquet", "rename it", |at| write_users(at, 0..10)),
        (b"loop", "lies in", |at| symlink(at.parent().unwrap(), at).unwrap()),
    ];
    for (name, says, make) in cases {
        let backend = Backend::local();
        let folder = backend.folder.path().join("in/deep");
        write_users(&folder.join("a.parquet"), 0..1_000);
        make(&folder.join(OsStr::from_bytes(name)));
        let name = String::from_utf8_lossy(name).into_owned();
        let folder = backend.folder.path().join("in").display().to_string();
        let glob = format!("{folder}/**/*");
        for input in [&folder, &glob] {
            let run = build(&backend, input).expect(1);
            run.complains(&[&format!("/deep/{name}"), says]);
        }
        assert!(objects(&backend, "rt/pointers/").is_empty());
        // What a glob leaves out stands in nobody's way.
        let others = format!("{folder}/deep/a*.parquet");
        assert_eq!(build(&backend, &others).expect(0).json()["ids"], 1_000);
    }
}

#[test]
fn a_pipe_or_a_broken_link_named_by_itself_ends_at_once() {
    let backend = Backend::local();
    let pipe = backend.folder.path().join("pipe.parquet");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    build(&backend, pipe.to_str().unwrap())
        .expect(1)
        .complains(&["pipe.parquet", "pipe, a socket"]);
    let link = backend.folder.path().join("link.parquet");
    symlink("/gone", &link).unwrap();
    build(&backend, link.to_str().unwrap()).expect(4).complains(&["link.parquet"]);
}

#[test]
fn files_passed_over_are_counted_and_named() {
    for backend in Backend::all() {
        let root = if backend.store.starts_with("s3:") {
            for (name, users) in [("a", 0..600), ("deep/b", 600..1_000)] {
                put(&backend, &format!("in/{name}.parquet"), &parquet(&backend, users));
            }
            for name in ["_part0.parquet", ".c.parquet", "_old/d.parquet", "_SUCCESS"] {
                put(&backend, &format!("in/{name}"), b"x");
            }
            format!("{}/in", backend.store)
        } else {
            let folder = backend.folder.path().join("in");
            write_users(&folder.join("a.parquet"), 0..600);
            write_users(&folder.join("deep/b.parquet"), 600..1_000);
            fs::create_dir(folder.join("_old")).unwrap();
            for name in ["_part0.parquet", ".c.parquet", "_old/d.parquet", "_SUCCESS"] {
                fs::write(folder.join(name), b"x").unwrap();
            }
            // Nobody follows a hidden name to wherever it leads.
            symlink("/gone", folder.join(".link.parquet")).unwrap();
            folder.display().to_string()
        };
        let local = !backend.store.starts_with("s3:");
        let report = build(&backend, &root).expect(0).json();
        assert_eq!((&report["files"], &report["ids"]), (&2.into(), &1_000.into()));
        assert_eq!(report["files_passed_over"], if local { 5 } else { 4 }, "{report}");
        let passed_over = names(&report, "passed_over");
        assert!(passed_over.last().unwrap().ends_with("/_SUCCESS"), "{passed_over:?}");
        assert!(passed_over.iter().any(|name| name.ends_with("in/_part0.parquet")));
        let bytes = report["input_bytes"].as_u64().unwrap();
        assert!((10_000..100_000).contains(&bytes), "{bytes}");

        let event = backend.bloomsday(&["history", "rt"]).run().expect(0).json();
        for field in ["files", "files_passed_over", "input_bytes"] {
            assert_eq!(event[field], report[field], "{event}");
        }
        let words = ["history", "rt", "--store", &backend.store];
        let page = bloomsday(&words).envs(&backend.env).run().expect(0).stdout;
        assert!(page.contains("passed over") && page.contains("files"), "{page}");

        // Of a glob, those that would match it.
        let globbed = build(&backend, &format!("{root}/*.parquet")).json();
        assert_eq!(globbed["files"], 1, "{globbed}");
        assert_eq!(globbed["files_passed_over"], if local { 3 } else { 2 }, "{globbed}");
    }
}

#[test]
fn the_report_for_people_names_files_bytes_and_what_was_passed_over() {
    let backend = Backend::local();
    let folder = backend.folder.path().join("in");
    write_users(&folder.join("a.parquet"), 0..1_000);
    (0..30).for_each(|n| fs::write(folder.join(format!("_x{n:02}")), b"").unwrap());
    let (day, input) = (today().to_string(), folder.display().to_string());
    let words = ["build", "rt", "--day", &day, "--input", &input, "--column", "device_id"];
    let page = bloomsday(&[&words[..], &["--store", &backend.store]].concat()).run().expect(0);
    for part in ["files", "30 passed over", "/_x00", "/_x02, …"] {
        assert!(page.stdout.contains(part), "no {part} in {}", page.stdout);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_object_and_a_folder_of_the_same_name_are_both_read() {
    let backend = Backend::s3();
    put(&backend, "in/dt=1", &parquet(&backend, 0..100));
    put(&backend, "in/dt=1/a.parquet", &parquet(&backend, 100..300));
    let root = format!("{}/in/dt=1", backend.store);
    let report = build(&backend, &root).expect(0).json();
    assert_eq!((&report["files"], &report["ids"]), (&2.into(), &300.into()));
    // With a slash it is the folder that is meant; and an object of its own name there has bytes,
    // or none.
    let backend = Backend::s3();
    put(&backend, "in/dt=1/a.parquet", &parquet(&backend, 100..300));
    let folder = format!("{}/in/dt=1/", backend.store);
    put(&backend, "in/dt=1/", b"");
    assert_eq!(build(&backend, &folder).expect(0).json()["files"], 1);
    put(&backend, "in/dt=1/", &parquet(&backend, 0..100));
    build(&backend, &folder).expect(1).complains(&["in/dt=1/", "ends with `/`"]);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn empty_marks_of_folders_fail_no_build() {
    let backend = Backend::s3();
    put(&backend, "in/hour=00/a.parquet", &parquet(&backend, 0..100));
    for mark in
        ["in/hour=00_$folder$", "in/hour=00/_$folder$", "in/hour=00/x_$folder$", "in/hour=00"]
    {
        put(&backend, mark, b"");
    }
    let root = format!("{}/in", backend.store);
    for input in [root.clone(), format!("{root}/"), format!("{root}/*/*"), format!("{root}/**/*")] {
        let report = build(&backend, &input).expect(0).json();
        let counts = (&report["files"], &report["files_passed_over"]);
        assert_eq!(counts, (&1.into(), &0.into()), "{input}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn folders_that_the_console_created_are_passed_over_and_an_empty_file_is_not() {
    let backend = Backend::s3();
    put(&backend, "in/a.parquet", &parquet(&backend, 0..100));
    for mark in ["in/", "in/empty/", "in/sub/", "in/sub/deep/"] {
        put(&backend, mark, b"");
    }
    let root = format!("{}/in", backend.store);
    for (input, passed_over) in [("", 2), ("/", 2), ("/*", 1), ("/**/*", 2)] {
        let report = build(&backend, &format!("{root}{input}")).expect(0).json();
        let counts = (&report["files"], &report["files_passed_over"]);
        assert_eq!(counts, (&1.into(), &passed_over.into()), "{input}: {report}");
    }
    put(&backend, "in/x.parquet", b"");
    build(&backend, &root).expect(7).complains(&["x.parquet"]);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_number_sign_in_an_address_is_a_character_like_others() {
    let backend = Backend::s3();
    put(&backend, "in", &parquet(&backend, 0..10));
    put(&backend, "in%232/a.parquet", &parquet(&backend, 0..200));
    put(&backend, "in%232/b%237", &parquet(&backend, 200..300));
    for (input, ids) in [("in#2", 300), ("in#2/", 300), ("in#2/*.parquet", 200), ("in#2/b#7", 100)]
    {
        let report =
            publisher(&backend, &format!("{}/{input}", backend.store)).with(&["--dry-run"]).run();
        assert_eq!(report.expect(0).json()["ids"], ids, "{input}");
    }
    let local = Backend::local();
    let folder = local.folder.path();
    write_users(&folder.join("in/x.parquet"), 0..10);
    write_users(&folder.join("in#2/x.parquet"), 0..200);
    for input in [format!("{}/in#2", folder.display()), format!("file://{}/in#2", folder.display())]
    {
        assert_eq!(build(&local, &input).expect(0).json()["ids"], 200, "{input}");
    }
}

#[test]
fn only_what_a_glob_matches_counts_against_the_most_files() {
    // The limit is a million files; the test is that other folders are not even listed.
    let backend = Backend::local();
    let folder = backend.folder.path();
    write_users(&folder.join("logs/a/dt=1/x.parquet"), 0..100);
    fs::create_dir_all(folder.join("logs/a/dt=2")).unwrap();
    symlink("/gone", folder.join("logs/a/dt=2/y.parquet")).unwrap();
    symlink("..", folder.join("logs/a/dt=2/up")).unwrap();
    let input = format!("{}/logs/*/dt=1/*.parquet", folder.display());
    assert_eq!(build(&backend, &input).expect(0).json()["files"], 1);
}

#[test]
fn a_table_that_deletes_rows_elsewhere_is_warned_about_by_name() {
    let delta = ["_delta_log/00000000000000000000.json"];
    let iceberg = ["metadata/00000-a1.metadata.json", "metadata/snap-1.avro"];
    for backend in Backend::all() {
        for (whose, marks) in [("Delta", &delta[..]), ("Iceberg", &iceberg[..])] {
            let table = format!("t-{}", whose.to_lowercase());
            let file = format!("{table}/data/dt=1/a.parquet");
            let root = if backend.store.starts_with("s3:") {
                put(&backend, &file, &parquet(&backend, 0..100));
                marks.iter().for_each(|mark| put(&backend, &format!("{table}/{mark}"), b"{}"));
                backend.store.clone()
            } else {
                let root = backend.folder.path();
                write_users(&root.join(&file), 0..100);
                for mark in marks {
                    let mark = root.join(&table).join(mark);
                    fs::create_dir_all(mark.parent().unwrap()).unwrap();
                    fs::write(mark, "{}").unwrap();
                }
                root.display().to_string()
            };
            for input in [
                "data/dt=1/",
                "data/dt=1/a.parquet",
                "data/dt=*/*.parquet",
                "data/**/*.parquet",
                "**/*.parquet",
                "data",
            ] {
                let run = build(&backend, &format!("{root}/{table}/{input}")).expect(0);
                let warnings = names(&run.json(), "warnings");
                assert_eq!(warnings.len(), 1, "{input}: {warnings:?}");
                let says = [whose, &format!("{root}/{table} is"), "deleted rows would be read"];
                assert!(
                    says.iter().all(|part| warnings[0].contains(part)),
                    "{input}: {warnings:?}"
                );
                run.complains(&says);
            }
        }
    }
}

#[test]
fn a_plain_folder_is_warned_about_not_at_all() {
    for backend in Backend::all() {
        let bytes = parquet(&backend, 0..100);
        let input = if backend.store.starts_with("s3:") {
            put(&backend, "in/metadata/a.parquet", &bytes);
            format!("{}/in/", backend.store)
        } else {
            let folder = backend.folder.path().join("in/metadata");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("a.parquet"), bytes).unwrap();
            backend.folder.path().join("in").display().to_string()
        };
        let report = build(&backend, &input).expect(0).json();
        assert_eq!(names(&report, "warnings"), [""; 0], "{input}");
        let query = backend.bloomsday(&["query", "rt", &user(7)]).run();
        assert_eq!(query.code, 0);
    }
}
