//! Spark's own `sketch.BloomFilter` reads what we export and writes what we import, bit for bit;
//! and the newest Guava.
//!
//! The jars are those that pyspark brings. `tests/spark/Sketch.java` is compiled here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{lines, today, user};
use bloomsday_tests::other_programs::{answers, run_on};
use bloomsday_tests::program::{Run, bloomsday};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::sources::spark_jars;

/// A Java program of this folder with these jars.
fn command(source: &str, words: &[&str]) -> Command {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    let classes = CLASSES.get_or_init(|| {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spark-classes");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let done = Command::new("javac")
            .arg("-cp")
            .arg(format!("{}/*", spark_jars().display()))
            .arg("-d")
            .arg(&classes)
            .args([here.join("spark/Sketch.java"), here.join("guava/Guava.java")])
            .status()
            .expect("javac runs (tests/run.sh installs it)");
        assert!(done.success(), "Sketch.java or Guava.java does not compile");
        classes
    });
    let mut java = Command::new("java");
    let classes = format!("{}:{}/*", classes.display(), spark_jars().display());
    java.args(["-cp", &classes, source]).args(words);
    java
}

/// What such a program prints for some IDs.
fn java(source: &str, words: &[&str], ids: &[u8]) -> Vec<u8> {
    run_on(&mut command(source, words), ids).stdout
}

fn their_answers(file: &Path, ids: &[u8]) -> Vec<bool> {
    answers(&mut command("Sketch", &["query", file.to_str().unwrap()]), ids)
}

fn import(backend: &Backend, format: &str, file: &Path) -> Run {
    let (day, file) = (today().to_string(), file.display().to_string());
    backend.bloomsday(&["import", "rt", "--day", &day, "--format", format, &file]).run()
}

/// Builds today from 5,000 users in this layout and exports it.
fn exported(backend: &Backend, layout: &str, format: &str, fpp: &str) -> PathBuf {
    let words = ["--layout", layout, "--fpp", fpp];
    let report = Publisher::day(backend, today()).users(0..5_000).with(&words).run().expect(0);
    let key = report.json()["blob"].as_str().unwrap().to_owned();
    let file = backend.folder.path().join("rt.out");
    let out = file.to_str().unwrap();
    backend.bloomsday(&["export", &key, "--format", format, "--output", out]).run().expect(0);
    file
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_exported_day_is_byte_for_byte_what_spark_writes_and_answers_the_same() {
    let present = lines((0..5_000).map(user));
    let absent = lines((1_000_000..1_005_000).map(user));
    for (layout, version) in [("spark1", "V1"), ("spark2", "V2")] {
        for fpp in ["0.03", "0.0001"] {
            let backend = Backend::local();
            let file = exported(&backend, layout, "spark", fpp);
            let theirs = java("Sketch", &["write", version, "5000", fpp], &present);
            assert!(fs::read(&file).unwrap() == theirs, "other bytes in {layout} at {fpp}");
            assert_eq!(their_answers(&file, &present), [true; 5_000], "{layout}, {fpp}");
            let theirs = their_answers(&file, &absent);
            assert!(theirs.contains(&false));
            assert_eq!(theirs, backend.answers(&absent), "{layout}, {fpp}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_imported_day_answers_as_spark_does() {
    let special =
        ["Zoë", "Νίκος", "秋", "🦀🦀", " blank ", "cr\r", "a", "ab", "abc"].map(String::from);
    let present = lines((0..5_000).map(user).chain(special));
    let absent = lines((1_000_000..1_005_000).map(user));
    for (layout, version) in [("spark1", "V1"), ("spark2", "V2")] {
        let backend = Backend::local();
        let file = backend.folder.path().join("rt.spark");
        fs::write(&file, java("Sketch", &["write", version, "5009", "0.03"], &present)).unwrap();
        let report = import(&backend, "spark", &file).expect(0).json();
        assert_eq!((&report["outcome"], &report["layout"]), (&"published".into(), &layout.into()));
        let ids = report["ids"].as_f64().unwrap();
        assert!((ids / 5_009.0 - 1.0).abs() < 0.02, "{ids} IDs estimated");
        assert_eq!(backend.answers(&present), [true; 5_009]);
        assert_eq!(backend.answers(&absent), their_answers(&file, &absent));
        // Out again: the same file.
        let out = backend.folder.path().join("out.spark");
        let key = report["blob"].as_str().unwrap();
        let words = ["export", key, "--format", "spark", "--output", out.to_str().unwrap()];
        backend.bloomsday(&words).run().expect(0);
        assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_newest_guava_writes_and_reads_the_same() {
    let present = lines((0..5_000).map(user));
    let backend = Backend::local();
    let file = exported(&backend, "guava", "guava", "0.001");
    let theirs = java("Guava", &["write", "5000", "0.001"], &present);
    assert!(fs::read(&file).unwrap() == theirs, "other bytes");
    let said = java("Guava", &["query", file.to_str().unwrap()], &present);
    assert_eq!(said, b"1\n".repeat(5_000));
}

/// A header of Spark's of this version, probes, seed and words, with so many words.
fn spark_file(version: i32, probes: i32, seed: i32, stated: i32, words: usize) -> Vec<u8> {
    let numbers = match version {
        1 => vec![version, probes, stated],
        _ => vec![version, probes, seed, stated],
    };
    let head: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    [head, 0x0102_0408_1020_4080_u64.to_be_bytes().repeat(words)].concat()
}

#[test]
fn what_spark_did_not_write_is_refused_and_nothing_is_published() {
    let good = spark_file(2, 5, 0, 100, 100);
    let cases: [(Vec<u8>, &str); 11] = [
        (Vec::new(), "0 bytes"),
        (good[..7].to_vec(), "7 bytes"),
        (good[..15].to_vec(), "15 bytes"),
        (good[..good.len() - 1].to_vec(), "words of 8 bytes"),
        ([&good[..], b"\n"].concat(), "words of 8 bytes"),
        (spark_file(3, 5, 0, 100, 100), "its version is 3; only 1 and 2 are known"),
        (spark_file(2, 5, 7, 100, 100), "its seed is 7"),
        (spark_file(2, 0, 0, 100, 100), "0 probes"),
        (spark_file(1, -1, 0, 100, 100), "-1 probes"),
        (spark_file(2, 5, 0, -1, 100), "-1 words"),
        (spark_file(2, 300, 0, 100, 100), "300"),
    ];
    let backend = Backend::local();
    let file = backend.folder.path().join("foreign.spark");
    for (bytes, says) in &cases {
        fs::write(&file, bytes).unwrap();
        let run = import(&backend, "spark", &file);
        assert_eq!(run.code, 7, "{says}: {}{}", run.stdout, run.stderr);
        run.complains(&["foreign.spark cannot be imported as a filter of Spark's", says]);
    }
    fs::write(&file, &good).unwrap();
    import(&backend, "guava", &file).expect(7).complains(&["a filter of Guava's", "strategy is 0"]);
}

#[test]
fn a_layout_that_spark_cannot_read_is_not_exported_and_the_remedy_is_named() {
    let backend = Backend::local();
    let report = Publisher::day(&backend, today()).users(0..1_000).run().expect(0).json();
    let key = report["blob"].as_str().unwrap();
    let run = backend.bloomsday(&["export", key, "--format", "spark"]).run().expect(2);
    run.complains(&[key, "`blocked`", "Spark cannot read", "--layout spark2"]);
    let plan = bloomsday(&["build", "rt", "--layout", "spark3", "--day", "2026-01-01"]).run();
    plan.expect(2).complains(&["spark1", "spark2"]);
}
