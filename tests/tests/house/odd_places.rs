//! Output that cannot be written, files that are not what they should be, and one broken filter
//! among sound ones.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Stdio;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::program::{Bloomsday, bloomsday};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::wire::request;

/// The exit status of a command whose stdout is a full disk. That of one whose stderr is, too, is
/// the same.
fn on_a_full_disk(command: Bloomsday) -> i32 {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = command.into_command();
    command.stdin(Stdio::null()).stdout(full()).stderr(Stdio::null());
    let status = command.status().unwrap().code().unwrap();
    assert_eq!(command.stderr(full()).status().unwrap().code().unwrap(), status);
    status
}

#[test]
fn a_job_goes_on_when_its_output_cannot_be_written_and_says_so() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let day = Publisher::days_ago(&backend, 0).users(0..1_000);
    assert_eq!(on_a_full_disk(day.prepare()), 1);
    assert!(backend.read(&format!("rt/pointers/{}", today())).is_some(), "it is published");
    // The status of the job stays its own.
    let few = Publisher::days_ago(&backend, 0).users(0..10);
    assert_eq!(on_a_full_disk(few.prepare()), 6);
    assert_eq!(on_a_full_disk(backend.bloomsday(&["trace", "rt", "no-such-id"])), 3);
    assert_eq!(on_a_full_disk(backend.bloomsday(&["status"])), 1);
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let ids = backend.folder.path().join("ids");
    fs::write(&ids, (0..1_000).map(|n| user(n) + "\n").collect::<String>()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = backend.bloomsday(&["query", "rt"]).into_command();
    command.stdin(File::open(&ids).unwrap()).stdout(writer).stderr(Stdio::piped());
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_url_of_a_blob_says_which_store_it_is_in() {
    let backend = Backend::s3();
    let blob = Publisher::days_ago(&backend, 1).users(0..1_000).blob();
    let url = format!("{}/{blob}", backend.store);
    let report = bloomsday(&["inspect", &url]).envs(&backend.env).run().expect(0);
    assert!(report.stdout.contains("all sound"), "{}", report.stdout);
}

#[test]
fn a_broken_filter_stops_no_other() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    Publisher::days_ago(&backend, 1).filter("aa").users(0..1_000).publish();
    backend.write("aa/store.json", b"xx");
    for words in [["prune"], ["status"]] {
        let run = backend.bloomsday(&words).run().expect(2).complains(&["aa"]);
        assert_eq!(run.json()["filter"], "rt", "{}", run.stdout);
    }
    let input = backend.folder.path().join("in");
    write_users(&input.join("a.parquet"), 0..1_000);
    fs::write(input.join("_SUCCESS"), "").unwrap();
    let filter = |name| {
        let input = input.display();
        format!(
            "[filters.{name}]\ninput = \"{input}/\"\ncolumn = \"device_id\"\nschedule = \"0 0 * * *\"\n\
             catch_up_days = 1\n"
        )
    };
    let config = backend.folder.path().join("bloomsday.toml");
    fs::write(&config, filter("aa") + &filter("bb")).unwrap();
    let config = config.display().to_string();
    let shown = backend.bloomsday(&["schedule", "--dry-run", "--config", &config]).run();
    assert_eq!(shown.expect(2).json()["filter"], "bb");
    let once = backend.bloomsday(&["schedule", "--once", "--config", &config]).run();
    assert_eq!(once.expect(2).complains(&["aa: "]).json()["filter"], "bb");
}

#[test]
fn a_server_that_starts_without_the_newest_blob_answers_from_the_day_before() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let blob = Publisher::days_ago(&backend, 0).users(100..1_100).blob();
    let bytes = backend.read(&blob).unwrap();
    backend.remove(&blob);
    let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
    assert_eq!(status["state"], "failing", "{status}");
    let daemon = Daemon::ready(&backend, &["--poll-interval", "1s"]);
    let status = daemon.status();
    assert_eq!(status["day"], today().minus(1).to_string(), "{status}");
    assert_eq!(status["state"], "failing", "{status}");
    assert!(status["last_error"].as_str().unwrap().contains(&blob), "{status}");
    assert!(daemon.contains(&user(0)));
    // It comes back, from a copy or by a build: the next poll has it.
    backend.write(&blob, &bytes);
    daemon.until("it has the day", |daemon| daemon.status()["state"] == "ok");
    assert!(daemon.contains(&user(1_099)));
}

#[test]
fn follow_replaces_blobs_only_and_keeps_a_link() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..1_000).publish();
    let at = |name: &str| backend.folder.path().join(name);
    let follow = |name: &str| {
        let to = at(name).display().to_string();
        backend.bloomsday(&["follow", "rt", "--once", "--to", &to]).run()
    };
    fs::write(at("precious"), "letters").unwrap();
    follow("precious").expect(2).complains(&["is no blob"]);
    assert_eq!(fs::read(at("precious")).unwrap(), b"letters");
    symlink(at("blob"), at("link")).unwrap();
    fs::write(at("blob"), "").unwrap();
    follow("link").expect(0);
    assert!(at("link").is_symlink());
    assert!(fs::read(at("blob")).unwrap().starts_with(b"BLOOMSDY"));
}

#[test]
fn what_the_server_cannot_read_is_refused_and_not_a_miss() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..10).publish();
    let daemon = Daemon::ready(&backend, &[]);
    let zipped = [("Content-Encoding", "gzip")];
    let answer = request(&daemon.public, "POST", "/v1/filters/rt/query", &zipped);
    assert!(answer.starts_with("HTTP/1.1 415 ") && answer.contains("Content-Encoding"), "{answer}");
}

#[test]
fn an_impossible_number_of_threads_is_refused() {
    for threads in ["0", "1025", "18446744073709551615"] {
        let backend = Backend::local();
        let day = Publisher::days_ago(&backend, 0).users(0..10).with(&["--threads", threads]);
        day.run().expect(2).complains(&["--threads"]);
    }
}
