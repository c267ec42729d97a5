//! Real Guava reads what we export and writes what we import, bit for bit.
//!
//! `tests/guava/Guava.java` is a small program around the real `BloomFilter`; it is compiled here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{lines, today, user};
use bloomsday_tests::other_programs::{answers, run_on};
use bloomsday_tests::program::{Run, bloomsday};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// Where Debian's package libguava-java puts it.
const GUAVA: &str = "/usr/share/java/guava.jar";

/// The program around real Guava.
fn command(words: &[&str]) -> Command {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    let classes = CLASSES.get_or_init(|| {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guava-classes");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("guava/Guava.java");
        let mut javac = Command::new("javac");
        javac.args(["-cp", GUAVA, "-d"]).args([&classes, &source]);
        let done = javac.status().expect("javac runs (tests/run.sh installs it)");
        assert!(done.success(), "Guava.java does not compile");
        classes
    });
    let mut java = Command::new("java");
    java.args(["-cp", &format!("{}:{GUAVA}", classes.display()), "Guava"]).args(words);
    java
}

/// What the program around real Guava prints for some IDs.
fn guava(words: &[&str], ids: &[u8]) -> Vec<u8> {
    run_on(&mut command(words), ids).stdout
}

/// What real Guava answers.
fn guava_answers(file: &Path, ids: &[u8]) -> Vec<bool> {
    answers(&mut command(&["query", file.to_str().unwrap()]), ids)
}

/// Builds today from the first users in the layout `guava`.
fn build(backend: &Backend, users: u64, fpp: &str) -> Run {
    let layout = ["--layout", "guava", "--fpp", fpp];
    Publisher::days_ago(backend, 0).users(0..users).with(&layout).run()
}

fn import(backend: &Backend, file: &Path) -> Run {
    let (day, file) = (today().to_string(), file.display().to_string());
    backend.bloomsday(&["import", "rt", "--day", &day, "--format", "guava", &file]).run()
}

/// The key of the blob that a report names, and its file in a local store.
fn blob(backend: &Backend, report: &Value) -> (String, PathBuf) {
    let key = report["blob"].as_str().unwrap().to_owned();
    let file = Path::new(&backend.store).join(&key);
    (key, file)
}

/// Every file of a local store, hidden ones aside.
fn files(backend: &Backend) -> BTreeSet<PathBuf> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![PathBuf::from(&backend.store)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.file_name().unwrap().to_str().unwrap().starts_with('.') {
                found.insert(path);
            }
        }
    }
    found
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_exported_day_is_byte_for_byte_what_guava_writes_and_answers_the_same() {
    let present = lines((0..5_000).map(user));
    let absent = lines((1_000_000..1_005_000).map(user));
    for fpp in ["0.03", "0.001", "0.5"] {
        let backend = Backend::local();
        let report = build(&backend, 5_000, fpp).expect(0).json();
        let (key, _) = blob(&backend, &report);
        let file = backend.folder.path().join("rt.guava");
        let words = ["export", &key, "--format", "guava", "--output", file.to_str().unwrap()];
        backend.bloomsday(&words).run().expect(0);
        let exported = fs::read(&file).unwrap();
        assert!(exported == guava(&["write", "5000", fpp], &present), "other bytes at {fpp}");

        let stdout = bloomsday(&["export", &key, "--format", "guava", "--store", &backend.store])
            .into_command()
            .output()
            .unwrap();
        assert!(stdout.stdout == exported, "to stdout other bytes at {fpp}");

        assert_eq!(guava_answers(&file, &present), [true; 5_000], "{fpp}");
        let theirs = guava_answers(&file, &absent);
        assert_eq!(theirs.len(), 5_000);
        assert!(theirs.contains(&false));
        assert_eq!(theirs, backend.answers(&absent), "{fpp}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_imported_day_answers_as_guava_does_and_says_that_its_ids_are_estimated() {
    let backend = Backend::local();
    // In addition to plain IDs, some whose UTF-8 is longer than their characters, and one with a
    // CR.
    let special = ["Zoë", "Νίκος", "秋", "🦀🦀", " blank ", "cr\r"].map(String::from);
    let present = lines((0..5_000).map(user).chain(special));
    let absent = lines((1_000_000..1_005_000).map(user));
    let file = backend.folder.path().join("rt.guava");
    fs::write(&file, guava(&["write", "5006", "0.03"], &present)).unwrap();

    let report = import(&backend, &file).expect(0).json();
    assert_eq!((&report["outcome"], &report["layout"]), (&"published".into(), &"guava".into()));
    let ids = report["ids"].as_f64().unwrap();
    assert!((ids / 5_006.0 - 1.0).abs() < 0.02, "{ids} IDs estimated");
    assert_eq!(backend.answers(&present), [true; 5_006]);
    let theirs = guava_answers(&file, &absent);
    assert_eq!(theirs, backend.answers(&absent));

    let (key, path) = blob(&backend, &report);
    let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
    assert_eq!((&status["state"], &status["blob"]), (&"ok".into(), &key.clone().into()));
    assert_eq!(status["pointers"][0]["ids"], report["ids"]);
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("imported from") && reason.contains("rt.guava"), "{reason}");
    for place in [key.as_str(), path.to_str().unwrap()] {
        let inspected = backend.bloomsday(&["inspect", place]).run().expect(0).json();
        assert_eq!(
            (&inspected["ids_estimated"], &inspected["layout"]),
            (&true.into(), &"guava".into())
        );
        assert_eq!(inspected["probes"], 5);
    }
    let people = bloomsday(&["inspect", &key, "--store", &backend.store]).run().expect(0);
    assert!(people.stdout.contains("estimated from the fill"), "{}", people.stdout);

    // Out again: the same file.
    let out = backend.folder.path().join("out.guava");
    let words = ["export", &key, "--format", "guava", "--output", out.to_str().unwrap()];
    backend.bloomsday(&words).run().expect(0);
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn importing_the_same_file_again_changes_nothing() {
    let backend = Backend::local();
    let file = backend.folder.path().join("rt.guava");
    fs::write(&file, guava(&["write", "1000", "0.03"], &lines((0..1_000).map(user)))).unwrap();
    let first = import(&backend, &file).expect(0).json();
    let before = files(&backend);
    let pointer = Path::new(&backend.store).join("rt/pointers").join(today().to_string());
    let pointed = fs::read(&pointer).unwrap();
    let (day, name) = (today().to_string(), file.display().to_string());
    let import = |more: &[&str]| {
        let words = ["import", "rt", "--day", &day, "--format", "guava", &name];
        backend.bloomsday(&[&words, more].concat()).run().expect(0).json()
    };
    let again = import(&[]);
    assert_eq!((&again["outcome"], &again["blob"]), (&"unchanged".into(), &first["blob"]));
    assert_eq!(files(&backend), before);
    assert_eq!(fs::read(&pointer).unwrap(), pointed);
    // What a run would do.
    assert_eq!(import(&["--dry-run"])["outcome"], "unchanged");
    fs::write(&file, guava(&["write", "1000", "0.03"], &lines((0..900).map(user)))).unwrap();
    assert_eq!(import(&["--dry-run"])["outcome"], "published");
    assert_eq!(fs::read(&pointer).unwrap(), pointed);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_imported_filter_of_urls_has_the_form_of_ids_that_is_configured() {
    let backend = Backend::local();
    let at = |name: &str| backend.folder.path().join(name).display().to_string();
    let (file, config) = (at("rt.guava"), at("urls.toml"));
    let urls = lines((0..1_000).map(|n| format!("example.org/p{n}?a=&b=")));
    fs::write(&file, guava(&["write", "1000", "0.001"], &urls)).unwrap();
    fs::write(&config, "[filters.rt]\nid = \"url\"\n").unwrap();
    let day = today().to_string();
    let import = |more: &[&str]| {
        let words =
            ["import", "rt", "--day", &day, "--format", "guava", &file, "--config", &config];
        backend.bloomsday(&[&words, more].concat()).run().expect(0)
    };
    let query = || {
        backend
            .bloomsday(&["query", "rt", "http://Example.org:80/p5?b&a", "--config", &config])
            .run()
    };
    import(&["--id", "bytes"]);
    query().expect(2).complains(&["of the form `bytes`", "of the form `url`"]);
    import(&[]);
    query().expect(0);
    // The file would not say it.
    let blob = format!("{}/{}", backend.store, import(&[]).json()["blob"].as_str().unwrap());
    let export = |more: &[&str]| {
        let words = ["export", &blob, "--format", "guava", "--output", &file];
        backend.bloomsday(&[&words, more].concat()).run()
    };
    export(&[]).expect(2).complains(&["of the form `url`", "`--id url`"]);
    let before = fs::read(&file).unwrap();
    export(&["--id", "url"]).expect(0);
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_blocked_blob_cannot_be_exported_and_the_remedy_is_named() {
    let backend = Backend::local();
    let report = Publisher::days_ago(&backend, 0).users(0..1_000).run().expect(0).json();
    let (key, path) = blob(&backend, &report);
    let out = backend.folder.path().join("out.guava");
    for place in [key.as_str(), path.to_str().unwrap()] {
        let words = ["export", place, "--format", "guava", "--output", out.to_str().unwrap()];
        let run = backend.bloomsday(&words).run().expect(2);
        run.complains(&[&key, "`blocked`", "--layout guava"]);
    }
    let path = path.to_str().unwrap();
    let words = ["export", path, "--format", "guava", "--output", path];
    backend.bloomsday(&words).run().expect(2).complains(&["is the blob itself"]);
    assert!(!out.exists(), "something was written");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn what_guava_did_not_write_is_refused_and_nothing_is_published() {
    let good = guava(&["write", "1000", "0.03"], &lines((0..1_000).map(user)));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let filled = |byte: u8| [&good[..6], &vec![byte; good.len() - 6]].concat();
    let cases: [(&str, Vec<u8>, &str); 12] = [
        ("no byte", Vec::new(), "0 bytes"),
        ("three bytes", good[..3].to_vec(), "3 bytes"),
        ("a header alone", good[..6].to_vec(), "0 bytes follow"),
        ("the end cut off", good[..good.len() - 1].to_vec(), "words of 8 bytes"),
        ("a byte too many", [&good[..], b"\n"].concat(), "words of 8 bytes"),
        ("text", b"user-1\nuser-2\n".to_vec(), "strategy is 117"),
        ("a strategy of the future", with(0, 2), "strategy is 2"),
        ("no probes", with(1, 0), "0 probes"),
        ("a negative count of words", with(2, 0x80), "words"),
        ("a count of 2^30 words", with(2, 0x40), "words of 8 bytes"),
        ("all ones", filled(0xff), "1.000 of its bits are set"),
        ("all zeros", filled(0), "no bit is set"),
    ];
    let backend = Backend::local();
    build(&backend, 1_000, "0.03").expect(0);
    let before = files(&backend);
    let file = backend.folder.path().join("foreign.guava");
    for (name, bytes, says) in &cases {
        fs::write(&file, bytes).unwrap();
        let run = import(&backend, &file);
        assert_eq!(run.code, 7, "{name}: {}{}", run.stdout, run.stderr);
        run.complains(&["foreign.guava cannot be imported", says]);
    }
    // One of our own blobs is no file of Guava's either.
    let ours = before.iter().find(|path| path.extension().is_some_and(|e| e == "bloom")).unwrap();
    import(&backend, ours).expect(7).complains(&["strategy is 66"]);
    let nowhere = import(&backend, &backend.folder.path().join("nowhere.guava"));
    assert_ne!(nowhere.code, 0);
    nowhere.complains(&["nowhere.guava"]);
    assert_eq!(files(&backend), before);
}

#[test]
fn one_in_a_billion_is_built_in_the_layout_guava_and_no_absent_id_hits() {
    let backend = Backend::local();
    let report = build(&backend, 200_000, "1e-9").expect(0).json();
    assert_eq!((&report["outcome"], &report["ids"]), (&"published".into(), &200_000.into()));
    assert_eq!(report["fpp_measured"], 0.0);
    let (key, _) = blob(&backend, &report);
    let inspected = backend.bloomsday(&["inspect", &key]).run().expect(0).json();
    assert_eq!((&inspected["fpp_hits"], &inspected["probes"]), (&0.into(), &30.into()));
}

/// Guava steps from bit to bit by one number, so in a small filter some IDs test only few bits:
/// real Guava itself has false positives among a million IDs where one in a billion was the target.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_rate_that_guava_itself_misses_with_so_few_ids_is_published_with_a_warning() {
    let backend = Backend::local();
    let built = build(&backend, 1_000, "1e-9").expect(0);
    let built = built.complains(&["measured fpp", "above the target", "lower fpp"]);
    assert!(built.json()["fpp_measured"].as_f64().unwrap() > 1e-8);
    assert!(built.json()["warnings"].to_string().contains("above the target"));
    let file = backend.folder.path().join("real.guava");
    fs::write(&file, guava(&["write", "1000", "1e-9"], &lines((0..1_000).map(user)))).unwrap();
    let absent = lines((1_000_000..2_000_000).map(user));
    let hits = guava_answers(&file, &absent).into_iter().filter(|yes| *yes).count();
    assert!(hits > 0, "real Guava keeps its promise: a warning is too little");
}

#[test]
fn the_plan_recommends_a_layout_and_shows_the_classic_numbers() {
    let plan = |ids: &str, fpp: &str| {
        bloomsday(&["plan", "--ids", ids, "--fpp", fpp, "--sizes-only", "--json"])
            .run()
            .expect(0)
            .json()
    };
    assert_eq!(plan("300m", "0.03")["recommended"], "blocked");
    assert_eq!(plan("300m", "1e-9")["recommended"], "guava");
    for (ids, bits, words, mib) in [
        ("200m", 1_459_688_167u64, 22_807_628u64, 174),
        ("300m", 2_189_532_251, 34_211_442, 261),
        ("500m", 3_649_220_418, 57_019_070, 435),
        ("1g", 7_298_440_837, 114_038_139, 870),
    ] {
        let report = plan(ids, "0.03");
        let row = |name: &str| {
            let layouts = report["layouts"].as_array().unwrap();
            layouts.iter().find(|row| row["layout"] == name).unwrap().clone()
        };
        let classic = row("classic formula");
        assert_eq!((&classic["bits"], &classic["words"]), (&bits.into(), &words.into()), "{ids}");
        assert_eq!((&classic["mib"], &classic["probes"]), (&mib.into(), &5.into()), "{ids}");
        let guava = row("guava");
        assert_eq!((&guava["words"], &guava["probes"]), (&words.into(), &5.into()), "{ids}");
        let blocked = row("blocked")["bits_per_id"].as_f64().unwrap();
        assert!((7.29..7.6).contains(&blocked), "{ids}: {blocked} bits an ID");
    }
}
