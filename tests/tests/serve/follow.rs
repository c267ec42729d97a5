//! `bloomsday follow`: a file that is equal to the blob a server would load.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::today;
use bloomsday_tests::publisher::Publisher;
use tempfile::TempDir;

/// `bloomsday follow` of a fast poll, running.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(backend: &Backend, file: &Path) -> Follower {
        let file = file.to_str().unwrap();
        let words = ["follow", "rt", "--to", file, "--poll-interval", "50ms"];
        let mut command: Command = backend.bloomsday(&words).into_command();
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().try_for_each(|line| send.send(line.unwrap())));
        Follower { child, lines }
    }

    /// Waits until it has replaced the file; the blob that is in it now.
    fn next_blob(&self) -> String {
        let line =
            self.lines.recv_timeout(Duration::from_secs(60)).expect("a line within a minute");
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        report["blob"].as_str().unwrap().to_owned()
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It is gone already, unless the test failed.
        let _ = self.child.kill();
    }
}

/// Whether the file has the very bytes of a blob of the store.
fn assert_is(file: &Path, blob: &str, backend: &Backend) {
    assert!(fs::read(file).unwrap() == backend.read(blob).unwrap(), "the file is not {blob}");
}

fn build(backend: &Backend, back: u32, users: u64) -> String {
    let publisher = Publisher::days_ago(backend, back).users(0..users);
    publisher.publish();
    publisher.blob()
}

#[test]
fn a_file_follows_builds_rollbacks_and_pins_and_damage_is_replaced() {
    for backend in Backend::all() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("rt.bloom");
        let old = build(&backend, 1, 1_000);
        let follower = Follower::start(&backend, &file);
        assert_eq!(follower.next_blob(), old);
        assert_is(&file, &old, &backend);

        let new = build(&backend, 0, 1_100);
        assert_eq!(follower.next_blob(), new);
        assert_is(&file, &new, &backend);

        let (day, before) = (today().to_string(), today().minus(1).to_string());
        backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
        assert_eq!(follower.next_blob(), old);
        assert_is(&file, &old, &backend);
        backend.bloomsday(&["pin", "rt", "--to", &new]).run().expect(0);
        assert_eq!(follower.next_blob(), new);

        // What another program did to the file does not stay.
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert_eq!(follower.next_blob(), new);
        assert_is(&file, &new, &backend);
        fs::remove_file(&file).unwrap();
        assert_eq!(follower.next_blob(), new);
        follower.stop();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "only the file is left");
    }
}

#[test]
fn a_file_of_a_store_or_of_another_filter_is_not_replaced() {
    let backend = Backend::local();
    let blob = build(&backend, 0, 1_000);
    let blob = Path::new(&backend.store).join(blob);
    let to = |file: &Path, filter: &str| {
        backend.bloomsday(&["follow", filter, "--once", "--to", file.to_str().unwrap()]).run()
    };
    let old = fs::metadata(&blob).unwrap().modified().unwrap();
    to(&blob, "rt").expect(2).complains(&["in a store", "another place"]);
    to(&blob.with_file_name("new"), "rt").expect(2).complains(&["in a store"]);
    let folder = TempDir::new().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&blob, &link).unwrap();
    to(&link, "rt").expect(2).complains(&["in a store"]);
    assert_eq!(fs::metadata(&blob).unwrap().modified().unwrap(), old);

    let file = folder.path().join("followed.bloom");
    to(&file, "rt").expect(0);
    Publisher::days_ago(&backend, 0).filter("other").users(0..1_000).publish();
    to(&file, "other").expect(2).complains(&["of the filter `rt`", "another file"]);
}

#[test]
fn once_is_one_fetch_and_a_damaged_blob_leaves_the_file() {
    let backend = Backend::local();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rt.bloom");
    let once =
        || backend.bloomsday(&["follow", "rt", "--once", "--to", file.to_str().unwrap()]).run();
    once().expect(4).complains(&["there is no store"]);
    let old = build(&backend, 1, 1_000);
    assert!(once().expect(0).stdout.contains(&old));
    assert_eq!(once().expect(0).stdout, "", "nothing has changed");

    let new = build(&backend, 0, 1_100);
    let mut bytes = backend.read(&new).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    backend.write(&new, &bytes);
    once().expect(7).complains(&[&new]);
    assert_is(&file, &old, &backend);
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_with_its_name() {
    let backend = Backend::local();
    build(&backend, 0, 1_000);
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let follow = |to: &str| backend.bloomsday(&["follow", "rt", "--once", "--to", to]).run();
    follow(&path("missing/rt.bloom")).expect(4).complains(&[&path("missing"), "create it"]);
    follow(&path("")).expect(2).complains(&["names a folder"]);
    std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
    follow(&path("dangling")).expect(1).complains(&["the link", &path("dangling")]);
}

#[test]
fn what_somebody_puts_in_place_of_the_file_stays() {
    let backend = Backend::local();
    let old = build(&backend, 1, 1_000);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rt.bloom");
    let follower = Follower::start(&backend, &file);
    assert_eq!(follower.next_blob(), old);
    // In one step: a file that is still empty may be replaced.
    let notes = folder.path().join("notes");
    fs::write(&notes, "notes").unwrap();
    fs::rename(&notes, &file).unwrap();
    let new = build(&backend, 0, 1_100);
    let moved = folder.path().join("moved");
    // It follows again only when its place is free.
    fs::rename(&file, &moved).unwrap();
    assert_eq!(follower.next_blob(), new);
    assert_eq!(fs::read(&moved).unwrap(), b"notes");
    follower.stop();
}
