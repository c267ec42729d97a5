//! Retention: prune deletes what nothing reachable needs, and nothing else.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::today;
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::program::Bloomsday;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// A local store with a day's blob and pointer for each of the last 20 days, as old as they claim.
struct Kept {
    backend: Backend,
    /// The blob of each day, newest first.
    blobs: Vec<String>,
}

impl Kept {
    fn twenty_days() -> Kept {
        let backend = Backend::local();
        let mut blobs = Vec::new();
        for back in (0..20u32).rev() {
            blobs.insert(
                0,
                Publisher::days_ago(&backend, back).users(0..1_000 + u64::from(back)).blob(),
            );
        }
        let kept = Kept { backend, blobs };
        for (back, blob) in kept.blobs.iter().enumerate() {
            kept.age(blob, back as u64);
        }
        kept
    }

    /// Sets the upload time of a blob back by this many days.
    fn age(&self, blob: &str, days: u64) {
        let file = File::options().write(true).open(self.path(blob)).unwrap();
        let age = Duration::from_secs(days * 24 * 3600 + 3600);
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn path(&self, key: &str) -> std::path::PathBuf {
        std::path::Path::new(&self.backend.store).join(key)
    }

    fn prune(&self, more: &[&str]) -> Value {
        self.backend.bloomsday(&[&["prune", "rt"], more].concat()).run().expect(0).json()
    }

    /// The days whose blob is there, by their age.
    fn there(&self) -> Vec<usize> {
        (0..20).filter(|back| self.path(&self.blobs[*back]).exists()).collect()
    }

    fn pointers(&self) -> Vec<usize> {
        let day = |back: &usize| today().minus(*back as u32).to_string();
        (0..20).filter(|back| self.path(&format!("rt/pointers/{}", day(back))).exists()).collect()
    }
}

#[test]
fn prune_deletes_what_is_past_the_window_and_says_it_before() {
    let kept = Kept::twenty_days();
    let all: Vec<usize> = (0..20).collect();
    let report = kept.prune(&["--dry-run"]);
    assert_eq!((kept.there(), kept.pointers()), (all.clone(), all));
    assert_eq!(report["pointers"].as_array().unwrap().len(), 5);
    // Blobs are kept a day longer than pointers: those of 15 days and an hour are.
    let blobs: Vec<&str> =
        report["blobs"].as_array().unwrap().iter().map(|b| b.as_str().unwrap()).collect();
    assert_eq!(blobs, kept.blobs[15..].iter().rev().collect::<Vec<_>>());

    let done = kept.prune(&[]);
    assert_eq!((&done["blobs"], &done["pointers"]), (&report["blobs"], &report["pointers"]));
    assert!(done["bytes"].as_u64().unwrap() > 4 * 4096);
    assert_eq!(kept.there(), (0..15).collect::<Vec<_>>());
    assert_eq!(kept.pointers(), (0..15).collect::<Vec<_>>());
    let history = kept.backend.bloomsday(&["history", "rt"]).run().expect(0).json();
    assert_eq!((&history["act"], &history["outcome"]), (&"prune".into(), &"published".into()));
    assert!(history["reason"].as_str().unwrap().contains("5 pointers and 5 blobs"), "{history}");

    // Again: nothing is left to do, and nothing is recorded.
    assert_eq!(kept.prune(&[])["blobs"], Value::Array(vec![]));
    let again = kept.backend.bloomsday(&["history", "rt"]).run().expect(0).json();
    assert_eq!(again, history);
}

#[test]
fn what_a_pointer_its_previous_or_the_pin_names_stays() {
    let kept = Kept::twenty_days();
    let bloomsday = |words: &[&str]| kept.backend.bloomsday(words).run().expect(0);
    // Roll today back to the oldest day, and on to the next: the oldest is now `previous`. Their
    // own pointers keep them from being refused as targets only as long as those stay.
    let (day, long) = (today().to_string(), "keep_days = 30");
    let config = kept.backend.folder.path().join("long.toml");
    fs::write(&config, format!("[filters.rt]\n{long}\n")).unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let repoint =
        |to: &str| bloomsday(&[&["repoint", "rt", &day, "--to", to][..], &config].concat());
    repoint(&kept.blobs[19]);
    repoint(&kept.blobs[18]);
    bloomsday(&[&["pin", "rt", "--to", &kept.blobs[17]][..], &config].concat());
    kept.prune(&[]);
    let expected: Vec<usize> = (0..15).chain([17, 18, 19]).collect();
    assert_eq!(kept.there(), expected);

    bloomsday(&["unpin", "rt"]);
    repoint(&kept.blobs[0]);
    kept.prune(&[]);
    assert_eq!(kept.there(), (0..15).chain([18]).collect::<Vec<_>>(), "18 is `previous` now");
}

#[test]
fn a_fleet_whose_builds_stopped_keeps_its_pointers_and_their_blobs() {
    let kept = Kept::twenty_days();
    for (back, blob) in kept.blobs.iter().enumerate() {
        kept.age(blob, back as u64 + 100);
        let pointer = kept.path(&format!("rt/pointers/{}", today().minus(back as u32)));
        // The days themselves are a hundred days older too, except for the newest ten.
        if back >= 10 {
            fs::remove_file(pointer).unwrap();
        }
    }
    kept.prune(&["--keep-days", "5"]);
    assert_eq!(kept.pointers(), (0..=5).collect::<Vec<_>>());
    assert_eq!(kept.there(), (0..=5).collect::<Vec<_>>());
    kept.prune(&["--keep-days", "1"]);
    assert_eq!(kept.pointers(), (0..=3).collect::<Vec<_>>(), "the newest four, whatever their age");
    assert_eq!(kept.there(), (0..=3).collect::<Vec<_>>());
}

#[test]
fn a_record_that_cannot_be_read_keeps_every_blob() {
    let kept = Kept::twenty_days();
    fs::write(kept.path(&format!("rt/pointers/{}", today())), "half a ke").unwrap();
    let pointer = format!("the pointer of {}", today());
    let run = kept.backend.bloomsday(&["prune", "rt"]).run().expect(7);
    assert_eq!(run.json()["unreadable"][0], pointer);
    run.complains(&[&pointer, "every blob is kept"]);
    assert_eq!(kept.there(), (0..20).collect::<Vec<_>>());
    assert_eq!(kept.pointers().len(), 15, "old pointers go all the same");
}

#[test]
fn an_operator_cannot_point_at_a_blob_that_may_be_gone_in_a_moment() {
    let kept = Kept::twenty_days();
    let day = today().to_string();
    for blob in [&kept.blobs[19], &kept.blobs[15]] {
        for words in [&["repoint", "rt", &day, "--to", blob][..], &["pin", "rt", "--to", blob]] {
            let run = kept.backend.bloomsday(words).run().expect(1);
            run.complains(&[
                blob,
                "prune may be deleting it",
                "larger `keep_days`",
                "build its day again",
            ]);
        }
    }
    kept.backend.bloomsday(&["repoint", "rt", &day, "--to", &kept.blobs[14]]).run().expect(0);
}

#[test]
fn a_build_uploads_a_blob_again_that_prune_may_be_about_to_delete() {
    let kept = Kept::twenty_days();
    fs::remove_file(kept.path(&format!("rt/pointers/{}", today().minus(19)))).unwrap();
    // The same IDs as then: the same blob, which is there already, and old.
    assert_eq!(Publisher::days_ago(&kept.backend, 19).users(0..1_019).blob(), kept.blobs[19]);
    kept.prune(&[]);
    let expected: Vec<usize> = (0..15).chain([19]).collect();
    assert_eq!(kept.there(), expected, "young again, though its pointer was dropped");
}

#[test]
fn what_a_killed_upload_left_in_a_folder_goes_after_a_day() {
    let kept = Kept::twenty_days();
    kept.prune(&[]);
    let (old, young) = (format!("{}#1", kept.blobs[0]), format!("{}#2", kept.blobs[0]));
    let all_old = [
        old,
        "rt/history/20261119T020000.000000Z-build-00000000.json#1".to_owned(),
        "rt/servers/bid-1-8642#1".to_owned(),
        "rt/live/heads/0000000000000007#3".to_owned(),
        format!("rt/live/{}/0000000000000007-00000002-00000000000000ff.seg#1", today()),
    ];
    let others = [young, "rt/servers/notes.txt#1".to_owned(), "rt/live/heads/x#1".to_owned()];
    for name in all_old.iter().chain(&others) {
        fs::create_dir_all(kept.path(name).parent().unwrap()).unwrap();
        fs::write(kept.path(name), [7; 100]).unwrap();
    }
    for name in all_old.iter().chain(&others[1..]) {
        kept.age(name, 2);
    }
    for dry_run in [&["--dry-run"][..], &[]] {
        let report = kept.prune(dry_run);
        assert_eq!(report["abandoned"], serde_json::json!(all_old));
        assert_eq!(report["bytes"], 500);
        for name in &all_old {
            assert_eq!(kept.path(name).exists(), !dry_run.is_empty(), "{name}");
        }
    }
    for name in &others {
        assert!(kept.path(name).exists(), "{name} may still be written to, or is somebody else's");
    }
    assert_eq!(kept.there(), (0..15).collect::<Vec<_>>());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn prune_on_s3_deletes_nothing_young() {
    let backend = Backend::s3();
    let blob = Publisher::days_ago(&backend, 0).users(0..1_000).blob();
    Publisher::days_ago(&backend, 30).users(0..1_000).blob();
    let report = backend.bloomsday(&["prune"]).run().expect(0).json();
    assert_eq!((&report["filter"], &report["blobs"]), (&"rt".into(), &Value::Array(vec![])));
    backend.bloomsday(&["inspect", &blob]).run().expect(0);
}

#[test]
fn a_build_of_an_old_day_and_a_repoint_to_it_wait_for_a_prune_that_is_under_way() {
    let kept = Kept::twenty_days();
    kept.prune(&[]);
    let records = fs::read_dir(kept.path("rt/history")).unwrap();
    let mut records = records.map(|entry| entry.unwrap().path());
    let is_prune = |path: &PathBuf| path.to_string_lossy().contains("-prune-");
    let record = records.find(is_prune).unwrap();
    let ended = fs::read_to_string(&record).unwrap();
    let pending = ended.replacen("published", "pending", 1);
    assert_ne!(pending, ended);
    let waits = |run: Bloomsday| {
        fs::write(&record, &pending).unwrap();
        let mut run = KillableRun::start(run.into_command(), None);
        assert!(run.says("waiting for the prune of rt"), "{}", run.said());
        fs::write(&record, &ended).unwrap();
        run.finish();
        let said = run.said().to_owned();
        assert_eq!(run.wait(), Some(0), "{said}");
    };
    let old = Publisher::days_ago(&kept.backend, 15).users(0..1_015);
    let pointer = kept.path(&format!("rt/pointers/{}", today().minus(15)));
    assert!(!pointer.exists());
    waits(old.prepare());
    assert!(pointer.exists() && kept.there().contains(&15));

    let day = today().to_string();
    let words = ["repoint", "rt", &day, "--to", &today().minus(15).to_string()];
    waits(kept.backend.bloomsday(&words));
    // Whoever ends it in the wait and runs it again waits again.
    waits(kept.backend.bloomsday(&words));
    // What is of a younger day cannot be deleted.
    fs::write(&record, &pending).unwrap();
    let words = ["repoint", "rt", &day, "--to", &today().minus(3).to_string()];
    let run = kept.backend.bloomsday(&words).run().expect(0);
    assert!(!run.stderr.contains("waiting"), "{}", run.stderr);
}
