//! The format of a blob: a reader in another language, written from the format page alone, agrees
//! with the program; and blobs of earlier days stay what they were.
//!
//! The golden blobs in `tests/golden` were built by the program, and are never written over:
//!
//! ```text
//! cargo test -p bloomsday-tests --test store -- --ignored write_the_missing_goldens
//! ```
//!
//! Every version keeps its own for ever: a change of the format is a new version with new files.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bloomsday_common::blob::digest_of;
use bloomsday_tests::INTEGRATION;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{lines, today, user, write_rows};
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// Where the body of these blobs begins, or a multiple of it.
const ALIGNMENT: usize = 4096;
/// How many IDs are in each golden blob: of `user(0)` to `user(399)`.
const GOLDEN_IDS: u64 = 400;
/// Long past, so that no clock calls it the future; and a leap day.
const GOLDEN_DAY: &str = "2024-02-29";

/// A blob in `tests/golden`.
struct Golden {
    file: &'static str,
    layout: &'static str,
    fpp: &'static str,
    id: &'static str,
}

/// Those of the version that is written. The record of the second is longer than 4,096 bytes.
const GOLDENS: [Golden; 5] = [
    Golden { file: "v1-blocked.bloom", layout: "blocked", fpp: "0.03", id: "bytes" },
    Golden { file: "v1-guava.bloom", layout: "guava", fpp: "0.001", id: "bytes" },
    Golden { file: "v1-spark1.bloom", layout: "spark1", fpp: "0.03", id: "bytes" },
    Golden { file: "v1-spark2.bloom", layout: "spark2", fpp: "0.03", id: "bytes" },
    Golden { file: "v1-url.bloom", layout: "blocked", fpp: "0.03", id: "url" },
];
/// Those of older versions, which are still read.
const OLDER_GOLDENS: [Golden; 2] = [
    Golden { file: "v0-blocked.bloom", layout: "blocked", fpp: "0.03", id: "bytes" },
    Golden { file: "v0-guava.bloom", layout: "guava", fpp: "0.001", id: "bytes" },
];

impl Golden {
    fn path(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(self.file)
    }

    fn build(&self, backend: &Backend) -> PathBuf {
        let build = Publisher::day(backend, GOLDEN_DAY).with(&["--layout", self.layout]);
        let build = build.with(&["--fpp", self.fpp, "--id", self.id]);
        let build = match self.id {
            "bytes" => build.users(0..GOLDEN_IDS),
            _ => {
                let file = backend.folder.path().join("urls.parquet");
                let url = |n| Some(format!("HTTP://Example.org:80/./{}?b=2&a=1#top", user(n)));
                write_rows(&file, (0..GOLDEN_IDS).map(url));
                build.input(file)
            }
        };
        Path::new(&backend.store).join(build.blob())
    }

    /// IDs as they are looked up: URLs in another spelling than the build's.
    fn ids(&self, users: Range<u64>) -> Vec<u8> {
        match self.id {
            "bytes" => lines(users.map(user)),
            _ => lines(users.map(|n| format!("https://example.org/{}?a=1&b=2", user(n)))),
        }
    }
}

/// Runs the independent reader on a blob.
fn python(blob: &Path, ids: &[u8]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new(root.join("../target/test-tools/bin/python"))
        .arg(root.join("python/read_blob.py"))
        .arg(blob)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python runs (tests/run.sh installs it)");
    let (mut pipe, ids) = (child.stdin.take().unwrap(), ids.to_vec());
    // A reader that refuses the blob does not read the IDs.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&ids)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// What the independent reader says of a sound blob: its header, and an answer for each ID.
#[track_caller]
fn python_reads(blob: &Path, ids: &[u8]) -> (Value, Vec<bool>) {
    let output = python(blob, ids);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", blob.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let (header, answers) = text.split_once('\n').unwrap();
    (serde_json::from_str(header).unwrap(), answers.lines().map(|line| line == "1").collect())
}

/// Why the independent reader refuses a blob.
#[track_caller]
fn python_refuses(blob: &Path) -> String {
    let output = python(blob, b"");
    assert_eq!(output.status.code(), Some(1), "{}", blob.display());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is not sound: "), "{said}");
    said
}

/// Builds a day of `rt` from the first users. Returns the blob's file in the local store.
fn build(backend: &Backend, day: &str, users: u64, more: &[&str]) -> PathBuf {
    let blob = Publisher::day(backend, day).users(0..users).with(more).blob();
    Path::new(&backend.store).join(blob)
}

fn inspect(blob: &Path) -> Value {
    bloomsday(&["inspect", &blob.display().to_string(), "--json"]).run().expect(0).json()
}

/// Every field that the independent reader prints must be as `inspect` prints it.
#[track_caller]
fn assert_same_header(blob: &Path, python: &Value) {
    let ours = inspect(blob);
    for (name, value) in python.as_object().unwrap() {
        assert_eq!(*value, ours[name], "{name} of {}", blob.display());
    }
    assert_eq!(python.as_object().unwrap().len() + 1, ours.as_object().unwrap().len(), "{ours}");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_reader_written_from_the_page_agrees_on_headers_and_answers() {
    let day = today().to_string();
    let present = lines((0..5_000).map(user));
    let mut absent = lines((1_000_000..1_005_000).map(user));
    // Every length up to past the longest legal ID, and some bytes that are no UTF-8.
    absent.extend(lines((0..1_100).map(|length| "x".repeat(length))));
    absent.extend_from_slice(b"\xff\xfe\x00\n \n\r\n");
    for (layout, fpp, probes) in [
        ("blocked", "0.5", 1),
        ("blocked", "0.03", 5),
        ("blocked", "1e-6", 16),
        ("guava", "0.5", 1),
        ("guava", "0.03", 5),
        ("guava", "1e-4", 13),
        ("spark1", "0.03", 5),
        ("spark1", "1e-4", 13),
        ("spark2", "0.5", 1),
        ("spark2", "1e-4", 13),
    ] {
        let backend = Backend::local();
        let blob = build(&backend, &day, 5_000, &["--layout", layout, "--fpp", fpp]);
        let (header, answers) = python_reads(&blob, &present);
        assert_same_header(&blob, &header);
        assert_eq!((header["layout"].as_str(), &header["ids"]), (Some(layout), &5_000.into()));
        assert!(header["probes"].as_u64().unwrap() <= probes, "{header}");
        assert!(answers.len() == 5_000 && answers.iter().all(|yes| *yes), "{layout} at {fpp}");

        let (_, answers) = python_reads(&blob, &absent);
        let ours = backend.answers(&absent);
        assert_eq!(answers.len(), 6_103);
        assert_eq!(answers, ours, "{layout} at {fpp}");
        let yes = ours.iter().filter(|yes| **yes).count() as f64 / ours.len() as f64;
        let bound: f64 = fpp.parse::<f64>().unwrap() * 1.2 + 0.001;
        assert!(yes <= bound, "{layout} at {fpp}: {yes}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_bytes_of_an_id_are_those_of_the_page() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parquet");
    let expected = fs::read_to_string(fixtures.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    for name in ["string", "uuid", "fixed16", "int8", "int32", "int64", "uint64"] {
        let file = format!("pyarrow-{name}.parquet");
        let ids = expected[&file]["ids_hex"].as_array().unwrap();
        let ids: Vec<Vec<u8>> = ids.iter().map(|hex| unhex(hex.as_str().unwrap())).collect();
        // Lines on stdin cannot have an ID that contains a newline.
        let lines: Vec<Vec<u8>> = ids.into_iter().filter(|id| !id.contains(&b'\n')).collect();
        assert!(lines.len() > 20, "{name}: {}", lines.len());
        let backend = Backend::local();
        let build = Publisher::days_ago(&backend, 0).input(fixtures.join(&file)).column("id");
        let blob = Path::new(&backend.store).join(build.with(&["--fpp", "0.001"]).blob());
        let mut input = lines.join(&b'\n');
        input.push(b'\n');
        let (_, answers) = python_reads(&blob, &input);
        assert_eq!(answers, vec![true; lines.len()], "{name}");
        assert_eq!(answers, backend.answers(&input), "{name}");
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    digits.map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn both_readers_refuse_a_flipped_bit_anywhere() {
    for layout in ["blocked", "guava", "spark1", "spark2"] {
        let backend = Backend::local();
        let blob = build(&backend, &today().to_string(), 1_000, &["--layout", layout]);
        let good = fs::read(&blob).unwrap();
        let copy = backend.folder.path().join("altered.bloom");
        let last = good.len() - 1;
        // Magic, version, length, record, zeros, body twice, digest twice.
        for at in [0, 8, 10, 60, ALIGNMENT - 1, ALIGNMENT + 9, last - 40, last - 31, last] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            fs::write(&copy, &bytes).unwrap();
            python_refuses(&copy);
            let run = bloomsday(&["inspect", &copy.display().to_string()]).run().expect(7);
            run.complains(&["error: "]);
        }
        for length in [0, 13, 45, 100, ALIGNMENT, good.len() - 1] {
            fs::write(&copy, &good[..length]).unwrap();
            python_refuses(&copy);
            bloomsday(&["inspect", &copy.display().to_string()]).run().expect(7);
        }
    }
}

/// The digest is sound, so only the check that each change is meant for can refuse it.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn both_readers_refuse_a_false_header_under_a_good_digest() {
    let backend = Backend::local();
    let good = fs::read(build(&backend, &today().to_string(), 1_000, &[])).unwrap();
    let copy = backend.folder.path().join("altered.bloom");
    let record = u32::from_le_bytes(*good[10..].first_chunk().unwrap()) as usize;
    let end = good.len() - 32;
    // Offsets in the record of a filter with a name of two letters, as the page lists the fields.
    let fields: [(&str, usize, &str); 16] = [
        ("magic", 0, "BLOOMSDY"),
        ("version", 9, "reads up to version 1: upgrade it"),
        ("record length", 10, "record"),
        ("day", 14 + 10 + 8 + 4, "is not a day"),
        ("layout", 42, "hash"),
        ("units", 43, "length does not fit"),
        ("probes", 51, "test vector"),
        ("body length", 55, "length does not fit"),
        ("hash", 63, "hash"),
        ("hash bits", 64, "hash"),
        ("seed", 66, "hash"),
        ("key id", 74, "hash or ID encoding"),
        ("ID encoding", 82, "hash or ID encoding"),
        ("ones", 116, "bits are set"),
        ("a test hash", 132, "test vector"),
        ("a test position", 14 + record - 8, "test vector"),
    ];
    let zeros = ("zeros", 14 + record, "not zero");
    let body = ("body", ALIGNMENT + 100, "bits are set");
    for (name, at, says) in fields.into_iter().chain([zeros, body]) {
        let mut bytes = good[..end].to_vec();
        bytes[at] ^= 1;
        both_refuse(&copy, bytes, name, says);
    }
    let origin = [&good[..83], &[7], &good[84..end]].concat();
    both_refuse(&copy, origin, "origin", "origin 7");
    let none = [&good[..84], &[0; 8], &good[92..end]].concat();
    both_refuse(&copy, none, "no IDs", "counts");
    both_refuse(&copy, [&good[..end], &[0; 64]].concat(), "a block more", "should have");
    both_refuse(&copy, good[..end - 64].to_vec(), "a block less", "should have");
}

/// Seals altered bytes with their true digest, and expects a refusal of both readers.
fn both_refuse(copy: &Path, mut bytes: Vec<u8>, name: &str, says: &str) {
    bytes.extend_from_slice(&[0; 32]);
    let digest = digest_of(&bytes);
    let end = bytes.len() - 32;
    bytes[end..].copy_from_slice(digest.as_bytes());
    fs::write(copy, &bytes).unwrap();
    let run = bloomsday(&["inspect", &copy.display().to_string()]).run();
    assert_eq!(run.code, 7, "{name}: {}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains(says), "{name}: {}", run.stderr);
    let python = python_refuses(copy);
    assert!(!python.contains("digest"), "{name}: {python}");
}

#[test]
fn the_same_ids_still_give_the_bytes_of_the_golden_blobs() {
    for golden in &GOLDENS {
        let name = golden.file;
        let built = fs::read(golden.build(&Backend::local())).unwrap();
        let kept = fs::read(golden.path()).unwrap();
        assert!(kept.len() < 12 << 10, "{name} has {} bytes", kept.len());
        let first = built.iter().zip(&kept).position(|(built, kept)| built != kept);
        assert_eq!(first, None, "{name} differs from this byte on");
        assert_eq!(built.len(), kept.len(), "{name}");
    }
}

#[test]
fn golden_blobs_still_contain_every_id() {
    for golden in GOLDENS.iter().chain(&OLDER_GOLDENS) {
        let (name, path) = (golden.file, golden.path());
        let header = inspect(&path);
        let version = name.as_bytes()[1] - b'0';
        assert_eq!(header["format"], version, "{name}");
        let (layout, day) = (&header["layout"], &header["day"]);
        assert_eq!((layout.as_str(), day), (Some(golden.layout), &GOLDEN_DAY.into()));
        assert_eq!(header["ids"], GOLDEN_IDS);

        // Into a store by hand, as an operator would: the blob, and one plain line that names it.
        let backend = Backend::local();
        let blob = header["blob"].as_str().unwrap();
        let copy = Path::new(&backend.store).join(blob);
        let pointer = Path::new(&backend.store).join("rt/pointers").join(today().to_string());
        for file in [&copy, &pointer] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        fs::copy(&path, &copy).unwrap();
        fs::write(pointer, blob).unwrap();
        let present = backend.answers(&golden.ids(0..GOLDEN_IDS));
        assert_eq!(present, [true; GOLDEN_IDS as usize], "{name}");
        let absent = golden.ids(GOLDEN_IDS..20_000);
        let hits = backend.answers(&absent);
        let share = hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64;
        assert!(share < 0.04, "{name}: {share} of the absent IDs are hits");
        if !INTEGRATION {
            continue;
        }
        if golden.id == "bytes" {
            let (header, answers) = python_reads(&path, &absent);
            assert_same_header(&path, &header);
            assert_eq!(answers, hits, "{name}");
        } else {
            assert!(python_refuses(&path).contains("URLs"), "{name}");
        }
    }
}

#[test]
#[ignore = "writes golden blobs of a new format version; never writes over one"]
fn write_the_missing_goldens() {
    for golden in GOLDENS.iter().filter(|golden| !golden.path().exists()) {
        fs::copy(golden.build(&Backend::local()), golden.path()).unwrap();
    }
}
