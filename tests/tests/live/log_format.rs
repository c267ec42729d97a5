//! The format of the live log: a reader in another language, written from the format page alone,
//! agrees with the program; and a log of an earlier version is read for ever.
//!
//! The golden log in `tests/golden` was written by the program, and is never written over:
//!
//! ```text
//! cargo test -p bloomsday-tests --test live -- --ignored write_the_missing_golden_log
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::live::segment::{Frames, Header, Op, append_hashes, append_record, closed};
use bloomsday_tests::live::{LiveDaemon, Wire};
use bloomsday_tests::other_programs::copy_folder;
use bloomsday_tests::sources::root;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The folder of the data of a server.
const GOLDEN: &str = "log-v0";
/// What its first process was sent, with the replies. It was stopped, so that its segments are
/// closed.
const FIRST: [(&str, &str); 13] = [
    ("BF.RESERVE seen 0.01 1000", "+OK|"),
    ("BF.MADD seen one two three four", "*4|:1|:1|:1|:1|"),
    ("BLOOM.RESERVE clicks WINDOW 60 STEP 10 REPEAT keep", "+OK|"),
    ("BF.ADD clicks one", ":1|"),
    ("CF.ADD counted one", ":1|"),
    ("CF.ADD counted one", ":1|"),
    ("BLOOM.RESERVE pages ID URL", "+OK|"),
    ("BF.ADD pages https://Example.org/?b=2&a=1", ":1|"),
    ("SIM.RESERVE texts", "+OK|"),
    ("SIM.ADD texts 00000000000000ff", "$-1|"),
    ("SADD kept one three", ":2|"),
    ("EXPIREAT kept 4924992000", ":1|"),
    ("SADD gone one", ":1|"),
];
/// What its second process was sent. It was killed, so that its segments are open.
const SECOND: [(&str, &str); 4] = [
    ("SREM kept three", ":1|"),
    ("BF.MADD seen one five", "*2|:0|:1|"),
    ("DEL gone", ":1|"),
    ("SADD kept two", ":1|"),
];
/// What every later version answers, a minute after or more.
const ANSWERS: [(&str, &str); 12] = [
    ("BF.MEXISTS seen one two three four five six", "*6|:1|:1|:1|:1|:1|:0|"),
    ("BF.CARD seen", ":5|"),
    ("BF.EXISTS clicks one", ":0|"),
    ("CF.COUNT counted one", ":2|"),
    ("CF.DEL counted one", ":1|"),
    ("CF.COUNT counted one", ":1|"),
    ("BF.EXISTS pages http://example.org/?a=1&b=2", ":1|"),
    ("SIM.QUERY texts 00000000000000fe", "*1|*2|$16|00000000000000ff|:1|"),
    ("SMISMEMBER kept one two three", "*3|:1|:1|:0|"),
    ("EXPIRETIME kept", ":4924992000|"),
    ("EXISTS gone", ":0|"),
    ("DBSIZE", ":6|"),
];

fn golden() -> PathBuf {
    root().join("tests/golden").join(GOLDEN)
}

fn exchange(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        assert_eq!(wire.call(line), *expected, "{line}");
    }
}

/// Writes a log as the golden one was written.
fn write_log(folder: &Path) {
    let daemon = LiveDaemon::on(folder, &[]);
    exchange(&mut daemon.connect(), &FIRST);
    assert_eq!(daemon.stop(), 0);
    let daemon = LiveDaemon::on(folder, &[]);
    exchange(&mut daemon.connect(), &SECOND);
    daemon.kill();
}

/// The segments of a folder of data, in order.
fn segments(data: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for set in fs::read_dir(data.join("live")).unwrap().map(|entry| entry.unwrap().path()) {
        if set.is_dir() {
            all.extend(fs::read_dir(set).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all.sort();
    all
}

fn is_open(segment: &Path) -> bool {
    segment.extension().is_some_and(|extension| extension == "open")
}

/// The header of a segment, and its frames.
fn parse<'a>(segment: &Path, bytes: &'a [u8]) -> (Header, Frames<'a>) {
    let parsed = if is_open(segment) { Frames::of_open(bytes) } else { Frames::of_closed(bytes) };
    parsed.unwrap_or_else(|why| panic!("{}: {why}", segment.display()))
}

/// Copies the golden log. Returns the copy, which is deleted when it is dropped.
fn copy() -> TempDir {
    let copy = TempDir::new().unwrap();
    copy_folder(&golden().join("live"), copy.path());
    copy
}

#[test]
fn the_golden_log_still_gives_its_answers() {
    let copy = copy();
    let kinds: Vec<bool> = segments(copy.path()).iter().map(|path| is_open(path)).collect();
    assert!(kinds.contains(&true) && kinds.contains(&false), "{kinds:?}");
    let daemon = LiveDaemon::on(copy.path(), &[]);
    exchange(&mut daemon.connect(), &ANSWERS);
}

#[test]
fn the_frames_of_the_golden_log_are_still_encoded_as_they_were() {
    for segment in segments(&golden()) {
        let bytes = fs::read(&segment).unwrap();
        let (header, frames) = parse(&segment, &bytes);
        let mut again = Vec::new();
        for frame in frames.map(Result::unwrap) {
            let hashes: Vec<u64> = frame.hashes().collect();
            match frame.op {
                Op::Add | Op::Delete => {
                    append_hashes(&mut again, frame.seq, frame.ms, frame.op, &hashes);
                }
                op => append_record(&mut again, frame.seq, frame.ms, op, frame.record()),
            }
        }
        let again = if is_open(&segment) {
            [&header.encode()[..], &again].concat()
        } else {
            closed(&header, &again)
        };
        assert!(again == bytes, "{}", segment.display());
    }
}

/// Runs the independent reader.
fn python(segments: &[PathBuf]) -> Output {
    Command::new(root().join("target/test-tools/bin/python"))
        .arg(root().join("tests/python/read_segment.py"))
        .args(segments)
        .output()
        .expect("Python runs (tests/run.sh installs it)")
}

/// What the independent reader says of sound segments.
#[track_caller]
fn python_reads(segments: &[PathBuf]) -> Vec<Value> {
    let output = python(segments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_reader_written_from_the_page_agrees_on_every_frame() {
    let new = TempDir::new().unwrap();
    write_log(new.path());
    for folder in [golden(), new.path().to_owned()] {
        let segments = segments(&folder);
        let said = python_reads(&segments);
        assert_eq!(said.len(), segments.len());
        let mut changes = Vec::new();
        for (segment, said) in segments.iter().zip(&said) {
            let bytes = fs::read(segment).unwrap();
            let (header, frames) = parse(segment, &bytes);
            let frames: Vec<_> = frames.map(Result::unwrap).collect();
            let Header { set, node, epoch, first_seq, created_ms } = header;
            let ours = (set, node, u64::from(epoch), first_seq, created_ms);
            let field = |name: &str| said[name].as_u64().unwrap();
            let theirs =
                (field("set"), field("node"), field("epoch"), field("first"), field("created_ms"));
            assert_eq!(theirs, ours, "{}", segment.display());
            let all = said["frames"].as_array().unwrap();
            assert_eq!(all.len(), frames.len(), "{}", segment.display());
            for (said, frame) in all.iter().zip(frames) {
                assert_eq!(said["number"], frame.seq);
                assert_eq!(said["ms"], frame.ms);
                let hashes: Vec<u64> = frame.hashes().collect();
                assert_eq!(said.get("hashes").unwrap_or(&json!([])), &json!(hashes), "{said}");
                if said["operation"] == "reserve" {
                    assert_eq!(said["record"]["number"], set, "{said}");
                }
                changes.push(said.clone());
            }
        }
        // What was sent is there, as the page says it.
        let reserved = |name: &str| {
            let named = changes.iter().find(|frame| frame["record"]["name"] == name);
            named.unwrap_or_else(|| panic!("no {name} in {changes:#?}"))["record"].clone()
        };
        let seen = reserved("seen");
        assert_eq!((&seen["kind"], &seen["capacity"]), (&json!("BF"), &json!(1_000)));
        assert_eq!((&seen["error"], &seen["steps"]), (&json!(0.01), &json!(0)));
        let clicks = reserved("clicks");
        assert_eq!((&clicks["steps"], &clicks["step_ms"]), (&json!(6), &json!(10_000)));
        assert_eq!((&clicks["repeat"], &clicks["kind"]), (&json!("keep"), &json!("any")));
        assert_eq!(reserved("counted")["kind"], "CF");
        assert_eq!(reserved("pages")["urls"], true);
        assert_eq!(reserved("texts")["kind"], "fingerprints");
        assert_eq!(reserved("kept")["kind"], "set");
        let hash = |id: &str| Xxh3::of(id.as_bytes()).0;
        let has = |operation: &str, hashes: &[u64]| {
            let (operation, hashes) = (json!(operation), json!(hashes));
            let is = |f: &Value| f["operation"] == operation && f["hashes"] == hashes;
            assert!(changes.iter().any(is), "no {operation} of {hashes} in {changes:#?}");
        };
        has("add", &["one", "two", "three", "four"].map(hash));
        has("delete", &[hash("three")]);
        has("add", &[0xff]);
        assert!(changes.iter().any(|frame| frame["ends_ms"] == 4_924_992_000_000_u64));
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn both_readers_refuse_a_flipped_bit_and_end_before_a_torn_frame() {
    let folder = TempDir::new().unwrap();
    let damaged = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let all = segments(&golden());
    let closed = all.iter().find(|path| !is_open(path)).unwrap();
    let good = fs::read(closed).unwrap();
    // Magic, version, header, its check, the frames, the digest.
    for at in [0, 8, 12, 40, 60, 70, good.len() / 2, good.len() - 40, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        let path = damaged("flipped.seg", &bytes);
        assert!(Frames::of_closed(&bytes).is_err(), "byte {at}");
        let output = python(&[path]);
        assert_eq!(output.status.code(), Some(1), "byte {at}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("is damaged: "));
    }
    let open = all.iter().rfind(|path| is_open(path)).unwrap();
    let good = fs::read(open).unwrap();
    for length in 64..good.len() {
        let (_, mut frames) = Frames::of_open(&good[..length]).unwrap();
        let whole = frames.by_ref().take_while(Result::is_ok).count();
        let path = damaged(&format!("{length}.open"), &good[..length]);
        let said = &python_reads(&[path])[0];
        assert_eq!(said["frames"].as_array().unwrap().len(), whole, "{length} bytes");
        assert_eq!(said["good_bytes"], frames.good_bytes(), "{length} bytes");
    }
}

#[test]
#[ignore = "writes the golden log of a new format version; never writes over one"]
fn write_the_missing_golden_log() {
    if golden().exists() {
        return;
    }
    let folder = TempDir::new().unwrap();
    write_log(folder.path());
    fs::create_dir(golden()).unwrap();
    copy_folder(&folder.path().join("live"), &golden());
    fs::remove_file(golden().join("live/lock")).unwrap();
}
