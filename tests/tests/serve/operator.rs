//! An operator's commands when something is in their way: a builder that stands still under the
//! lock, a blob that is deleted while it is pinned.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::publisher::Publisher;

#[test]
fn a_builder_that_stands_still_under_the_lock_does_not_block_a_rollback_for_ever() {
    let backend = Backend::local();
    let (day, before) = (today().to_string(), today().minus(1).to_string());
    for (back, users) in [(1, 1_000), (0, 1_100)] {
        Publisher::days_ago(&backend, back).users(0..users).prepare().run().expect(0);
    }
    let command = Publisher::days_ago(&backend, 0).users(0..1_200).prepare().into_command();
    let mut builder = KillableRun::start(command, Some("pointer-locked"));
    assert!(builder.paused(), "{}", builder.said());
    let clock = Instant::now();
    let repoint = ["repoint", "rt", &day, "--to", &before];
    let refused = backend.bloomsday(&repoint).run().expect(75);
    assert!(clock.elapsed().as_secs() < 60, "{:?}", clock.elapsed());
    let process = format!("process {}", builder.id());
    refused.complains(&["rt/pointers/.lock", &process, "kill -9"]);
    drop(builder);
    backend.bloomsday(&repoint).run().expect(0);
}

#[test]
fn a_pin_whose_blob_is_gone_puts_the_earlier_pin_back() {
    let backend = Backend::local();
    let mut blobs = Vec::new();
    for (back, users) in [(1, 1_000), (0, 1_100)] {
        let report =
            Publisher::days_ago(&backend, back).users(0..users).prepare().run().expect(0).json();
        blobs.push(report["blob"].as_str().unwrap().to_owned());
    }
    for before in [Some(&blobs[0]), None] {
        let target = Path::new(&backend.store).join(&blobs[1]);
        let bytes = fs::read(&target).unwrap();
        match before {
            Some(blob) => drop(backend.bloomsday(&["pin", "rt", "--to", blob]).run().expect(0)),
            None => drop(backend.bloomsday(&["unpin", "rt"]).run().expect(0)),
        }
        let pin = backend.read("rt/pin");
        let go = backend.folder.path().join("go");
        let mut command = backend.bloomsday(&["pin", "rt", "--to", &blobs[1]]).into_command();
        command.env("BLOOMSDAY_PAUSE_UNTIL", &go);
        let mut pinning = KillableRun::start(command, Some("pinned"));
        assert!(pinning.paused(), "{}", pinning.said());
        // As a prune does that looked a moment before.
        fs::remove_file(&target).unwrap();
        fs::write(&go, "").unwrap();
        pinning.finish();
        assert_eq!(pinning.wait(), Some(4));
        assert!(backend.read("rt/pin") == pin, "the pin is not what it was");
        fs::remove_file(go).unwrap();
        fs::write(target, bytes).unwrap();
    }
    backend.bloomsday(&["query", "rt", &user(1_050)]).run().expect(0);
}

#[test]
fn a_builder_that_is_stopped_by_a_signal_is_named_too() {
    let backend = Backend::local();
    let command = Publisher::days_ago(&backend, 0).users(0..1_000).prepare().into_command();
    let mut builder = KillableRun::start(command, Some("pointer-staged"));
    assert!(builder.paused(), "{}", builder.said());
    let id = builder.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
    let again = Publisher::days_ago(&backend, 0).users(0..1_000).prepare().run().expect(75);
    again.complains(&["rt/pointers/.lock", &id, "kill -9"]);
}
