//! A disk that fills up: a build ends cleanly and moves no pointer; a daemon serves from memory.
//!
//! A limit on the size of files stands for the full disk where nobody may mount one: the error
//! differs in its number only. As root, a small disk in memory is filled for real.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bloomsday_tests::INTEGRATION;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::campaign::{Campaign, size};
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_users};
use tempfile::TempDir;

const USERS: std::ops::Range<u64> = 0..60_000;

/// The command with a limit in KiB on the size of files; with `log` its stderr goes to such a file.
fn limited(command: &Command, kib: u64, log: Option<&Path>) -> Command {
    let mut shell = Command::new("bash");
    let log = log.map_or(String::new(), |log| format!("2>>'{}'", log.display()));
    shell.args(["-c", &format!("ulimit -f {kib}; exec \"$@\" {log}"), "bash"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

struct Said {
    code: Option<i32>,
    stderr: String,
}

fn run(mut command: Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Said { code: output.status.code(), stderr }
}

fn build(backend: &Backend, store: &str, back: u32, more: &[&str]) -> Command {
    let day = today().minus(back).to_string();
    let file = backend.folder.path().join("input.parquet").display().to_string();
    let mut words = vec!["build", "rt", "--day", &day, "--input", &file, "--column", "device_id"];
    words.extend(["--threads", "2", "--store", store]);
    words.extend(more);
    bloomsday_tests::program::bloomsday(&words).envs(&backend.env).into_command()
}

fn pointers(store: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(store).join("rt/pointers");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'));
    found.sort();
    found.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Fails cleanly, names what could not be written, and moved nothing.
fn failed_cleanly(said: &Said, names: &[&str], case: &str) {
    assert!(matches!(said.code, Some(1 | 75)), "{case}: {:?}\n{}", said.code, said.stderr);
    assert!(!said.stderr.contains("panicked"), "{case}: {}", said.stderr);
    for name in names {
        assert!(said.stderr.contains(name), "{case}: no {name:?} in {}", said.stderr);
    }
}

#[test]
fn a_build_on_a_full_disk_ends_cleanly_and_moves_no_pointer() {
    let campaign = Campaign::new("a full disk, to a build");
    let backend = Backend::local();
    write_users(&backend.folder.path().join("input.parquet"), USERS);
    let store = backend.store.clone();
    assert_eq!(run(build(&backend, &store, 1, &[])).code, Some(0));
    let before = pointers(&store);
    assert_eq!(before.len(), 1);
    let mut cases = 0;

    // The blob of 54 kB does not fit, or not even a record does.
    for kib in [0, 1, 16, 40] {
        let said = run(limited(&build(&backend, &store, 0, &[]), kib, None));
        failed_cleanly(&said, &["cannot write rt/blobs/", &store], &format!("{kib} KiB"));
        assert_eq!(pointers(&store), before, "{kib} KiB: a pointer moved");
        cases += 1;
    }
    // The spill of 480 kB does not fit, and the blob would.
    let spill = TempDir::new().unwrap();
    let folder = spill.path().display().to_string();
    let spilling = build(&backend, &store, 0, &["--memory", "1", "--spill", &folder]);
    for kib in [0, 100] {
        let said = run(limited(&spilling, kib, None));
        failed_cleanly(&said, &[&folder], &format!("a spill of {kib} KiB"));
        assert_eq!(pointers(&store), before, "a spill of {kib} KiB: a pointer moved");
        assert_eq!(std::fs::read_dir(spill.path()).unwrap().count(), 0, "left in the spill folder");
        cases += 1;
    }
    // With space again, the build succeeds.
    assert_eq!(run(spilling).code, Some(0));
    assert_eq!(pointers(&store).len(), 2);

    if INTEGRATION {
        cases += a_disk_filled_for_real(&backend);
    }
    campaign
        .passed(&format!("{cases} builds"), "clean exit, the path named, the pointer untouched");
}

/// Mounts larger and larger disks, until the build fits. Returns 0 where mounting is not permitted.
fn a_disk_filled_for_real(backend: &Backend) -> u64 {
    let disk = backend.folder.path().join("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let mount = |kib: u64| {
        let size = format!("size={kib}k");
        let args = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let mounted = Command::new("mount").args(args).arg(&disk).stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success())
    };
    let unmount = || assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    let step = size(16, 4);
    let mut failed = 0;
    for kib in (16..).step_by(step as usize) {
        if !mount(kib) {
            println!("no disk can be mounted here: only limits on files were tried");
            return 0;
        }
        let store = disk.join("store").display().to_string();
        let said = run(build(backend, &store, 0, &[]));
        let pointed = pointers(&store);
        if said.code == Some(0) {
            // Full, but for the record of how it ended, which is only a warning.
            let full = said.stderr.contains("this build cannot be recorded in the history");
            assert_eq!(pointed.len(), 1, "{kib} KiB: published, it says");
            let again = run(build(backend, &store, 0, &[]));
            unmount();
            assert_eq!(again.code, Some(0), "{kib} KiB: {}", again.stderr);
            if !full {
                return failed;
            }
            continue;
        }
        unmount();
        failed_cleanly(&said, &[&disk.display().to_string()], &format!("a disk of {kib} KiB"));
        for (path, bytes) in pointed {
            assert!(bytes.ends_with(b"\n") || bytes.ends_with(b"}"), "{} is torn", path.display());
        }
        failed += 1;
    }
    failed
}

#[test]
fn a_daemon_on_a_full_disk_serves_from_memory() {
    let campaign = Campaign::new("a full disk, to a daemon");
    let backend = Backend::local();
    write_users(&backend.folder.path().join("input.parquet"), USERS);
    assert_eq!(run(build(&backend, &backend.store, 1, &[])).code, Some(0));
    let cache = backend.folder.path().join("cache");
    let cache_dir = cache.display().to_string();
    let ids: Vec<String> = USERS.map(user).collect();
    let answers = |daemon: &Daemon, back: u32| {
        let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
        assert_eq!((answer.status, answer.day), (200, Some(today().minus(back).to_string())));
        assert_eq!(answer.body, "1\n".repeat(ids.len()));
    };
    for kib in [0, 16] {
        let words =
            ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let words = [&words[..], &["--poll-interval", "1h", "--cache-dir", &cache_dir]].concat();
        // Its log is on the full disk as well; the daemon must still follow pointers.
        let log = backend.folder.path().join("log");
        let command = backend.bloomsday(&words).into_command();
        let daemon = Daemon::of(limited(&command, kib, Some(&log)));
        daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
        answers(&daemon, 1);
        assert!(daemon.status()["last_error"].is_null(), "a missing cache is no failure");
    }
    // A new start finds no half-written copy, and caches the blob, since there is space.
    let daemon = Daemon::ready(&backend, &["--cache-dir", &cache_dir]);
    answers(&daemon, 1);
    daemon.until("it is cached, with room", |_| cache.join("rt/followed").is_file());
    campaign.passed("2 daemons", "right answers from memory");
}
