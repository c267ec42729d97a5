//! The Java reader in `java/` gives the program's answers and refuses every damaged blob.
//!
//! `BloomsdayFilterTest.java` is compiled here with the reader, as for Java 11 and without a
//! warning.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{lines, today, user, write_rows};
use bloomsday_tests::other_programs::{copy_folder, run, run_on};
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::sources::{first_program, root};
use serde_json::Value;

/// Layouts and fpp targets, from the fewest probes to the most.
const SHAPES: [(&str, &str); 6] = [
    ("blocked", "0.5"),
    ("blocked", "0.03"),
    ("blocked", "1e-6"),
    ("guava", "0.5"),
    ("guava", "0.03"),
    ("guava", "1e-9"),
];

/// The folder with the compiled reader and its test.
fn classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java-classes");
        let java = root().join("java/src");
        let mut javac = Command::new("javac");
        javac.args(["--release", "11", "-Xlint:all", "-Werror", "-encoding", "UTF-8", "-d"]);
        javac.arg(&classes);
        javac.arg(java.join("main/java/bloomsday/BloomsdayFilter.java"));
        javac.arg(java.join("test/java/bloomsday/BloomsdayFilterTest.java"));
        let done = javac.status().expect("javac runs (tests/run.sh installs it)");
        assert!(done.success(), "the Java reader does not compile");
        classes
    })
}

/// Runs the reader's test program, which must end with 0; what it printed.
fn java(words: &[&str], stdin: &[u8]) -> String {
    let golden = format!("-Dgolden={}", root().join("tests/golden").display());
    let mut java = Command::new("java");
    java.args(["-ea", "-Xmx256m", &golden, "-cp"]).arg(classes());
    let output = run_on(java.arg("bloomsday.BloomsdayFilterTest").args(words), stdin);
    String::from_utf8(output.stdout).unwrap()
}

/// IDs of every length that is allowed, two of each, and some that are not ASCII.
fn of_every_length() -> Vec<String> {
    let one = (1..=1024).map(|length| "p".repeat(length));
    let other = (1..=1024usize).map(|length| {
        let letters = (0..length).map(|i| char::from(33 + ((length * 7 + i * i) % 90) as u8));
        letters.collect::<String>()
    });
    let special = ["Zoë", "Νίκος", "秋", "🦀🦀", " blank ", "cr\r"].map(String::from);
    one.chain(other).chain(special).collect()
}

/// Builds today in this layout from 3,000 users and the IDs of every length; the blob's file.
fn build(backend: &Backend, layout: &str, fpp: &str) -> PathBuf {
    let file = backend.folder.path().join("in.parquet");
    write_rows(&file, (0..3_000).map(user).chain(of_every_length()).map(Some));
    let shape = ["--layout", layout, "--fpp", fpp];
    let blob = Publisher::day(backend, today()).input(&file).with(&shape).blob();
    Path::new(&backend.store).join(blob)
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_java_reader_states_and_answers_what_the_program_does() {
    let present = lines((0..3_000).map(user).chain(of_every_length()));
    let longer = (1_025..1_100).chain([5_000]).map(|length| "p".repeat(length));
    let absent = (1_000_000..1_003_000).map(user).chain((0..1_024).map(|n| "q".repeat(n)));
    let mut ids = [present.clone(), lines(absent.chain(longer))].concat();
    ids.extend_from_slice("é".repeat(513).as_bytes());
    ids.extend_from_slice(b"\n\xff\xfe\x00\n \n\r\n");
    let n_present = present.iter().filter(|byte| **byte == b'\n').count();
    for (layout, fpp) in SHAPES {
        let backend = Backend::local();
        let blob = build(&backend, layout, fpp);
        let said = java(&["answers", blob.to_str().unwrap()], &ids);
        let (header, answers) = said.split_once('\n').unwrap();
        let header: Value = serde_json::from_str(header).unwrap();
        let place = blob.display().to_string();
        let ours = bloomsday(&["inspect", &place, "--json"]).run().expect(0).json();
        for (name, value) in header.as_object().unwrap() {
            // Before Java 19 a double is not always printed with the fewest digits.
            let same = match (value.as_f64(), ours[name].as_f64()) {
                (Some(theirs), Some(ours)) => (theirs - ours).abs() <= 1e-12 * ours.abs(),
                _ => *value == ours[name],
            };
            assert!(same, "{name} of {layout} at {fpp}: {value}, not {}", ours[name]);
        }

        let theirs: Vec<bool> = answers.lines().map(|line| line == "1").collect();
        assert_eq!(theirs, backend.answers(&ids), "{layout} at {fpp}");
        assert!(theirs[..n_present].iter().all(|yes| *yes), "{layout} at {fpp}");
        assert!(theirs[n_present..].contains(&false), "{layout} at {fpp}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_java_reader_refuses_every_damaged_copy_of_a_blob() {
    for layout in ["blocked", "guava"] {
        let backend = Backend::local();
        let blob = build(&backend, layout, "0.03");
        let said = java(&["damage", blob.to_str().unwrap()], b"");
        let refused: u64 = said.split(' ').next().unwrap().parse().unwrap();
        assert!(refused > 5_000, "{said}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_java_reader_holds_its_own_tests() {
    let said = java(&["all"], b"");
    assert!(said.ends_with("15 tests hold\n"), "{said}");
}

/// `mvn package` as the page says it, and its first program with the jar.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn maven_makes_a_jar_with_which_the_first_program_runs_as_the_page_says() {
    let folder = tempfile::TempDir::new().unwrap();
    let golden = root().join("tests/golden");
    // What Maven makes stays out of the sources.
    copy_folder(&root().join("java"), folder.path());
    let package = ["--batch-mode", "--quiet", "-f", "java", "package"];
    run(Command::new("mvn")
        .args(package)
        .arg(format!("-Dgolden={}", golden.display()))
        .current_dir(folder.path()));
    let page = fs::read_to_string(root().join("docs/java.md")).unwrap();
    fs::write(folder.path().join("First.java"), first_program(&page, "java")).unwrap();
    let said = run(Command::new("java")
        .args(["-cp", "java/target/bloomsday-0.1.0.jar", "First.java"])
        .arg(golden.join("v1-blocked.bloom"))
        .args(["0123456789abcdef0000000000000000", "nobody"])
        .current_dir(folder.path()));
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.ends_with("\ntrue\nfalse\n"), "{said}");
    assert!(page.contains(&said), "the page has another output than: {said}");
}

/// The file has 2 GiB of zeros, which a sparse file system does not store.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_java_reader_finds_an_id_behind_2_to_the_31_bytes() {
    let folder = tempfile::TempDir::new().unwrap();
    let sparse = folder.path().join("sparse");
    fs::File::create(&sparse).unwrap().set_len(1 << 20).unwrap();
    if std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&sparse).unwrap()) > 64 {
        eprintln!("skipped: this file system stores zeros");
        return;
    }
    let said = java(&["large", folder.path().to_str().unwrap()], b"");
    assert_eq!(said.lines().count(), 2, "{said}");
}
