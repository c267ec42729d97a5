//! Deltas: a server that has yesterday's blob fetches what changed, in both directions; any trouble
//! means the full blob in the same round; the format is that of the page, and stays what it was.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// How many users a day has, and how many of them leave and arrive from day to day: 1 %.
const USERS: u64 = 20_000;
const CHURN: u64 = 200;
const DELTAS: [&str; 2] = ["--deltas", "3"];

/// Builds the day so many days ago with its users, and more arguments. Returns the report.
fn build(backend: &Backend, back: u32, more: &[&str]) -> Value {
    let first = CHURN * u64::from(20 - back);
    let day = Publisher::days_ago(backend, back).users(first..first + USERS);
    day.with(&DELTAS).with(more).run().expect(0).json()
}

/// Every ID of the day so many days ago is a hit.
#[track_caller]
fn has_day(daemon: &Daemon, back: u32) {
    let first = CHURN * u64::from(20 - back);
    let body: String = (first..first + USERS).map(|n| user(n) + "\n").collect();
    let answer = daemon.post("/v1/filters/rt/query", body.as_bytes());
    assert!(answer.body.lines().all(|line| line == "1"), "an ID of {back} days ago is lost");
}

/// Reloads, and checks that the blob came `via` this.
#[track_caller]
fn comes(daemon: &Daemon, blob: &Value, via: &str) -> Value {
    let (code, answer) = daemon.reload("");
    assert_eq!(code, 200, "{answer}");
    let status = daemon.status();
    assert_eq!((&status["digest"], &status["via"]), (&blob["digest"], &via.into()), "{status}");
    status
}

fn repoint(backend: &Backend, back: u32, to: &Value) {
    let (day, blob) = (today().minus(back).to_string(), to["blob"].as_str().unwrap());
    backend.bloomsday(&["repoint", "rt", &day, "--to", blob]).run().expect(0);
}

fn delta_of(report: &Value) -> String {
    report["deltas"][0]["delta"].as_str().expect("a delta").to_owned()
}

#[test]
fn a_server_fetches_what_changed_for_an_update_and_for_a_rollback() {
    for backend in Backend::all() {
        let before = build(&backend, 1, &[]);
        assert_eq!((&before["shape"], &before["deltas"]), (&"fresh".into(), &Value::Array(vec![])));
        let daemon = Daemon::ready(&backend, &[]);
        let status = daemon.status();
        assert_eq!((&status["via"], &status["bytes_fetched"]), (&"full".into(), &before["bytes"]));

        let now = build(&backend, 0, &[]);
        assert_eq!(now["shape"], "carried", "{now}");
        assert_eq!(now["shape_from"], before["day"]);
        assert_eq!(now["warnings"], Value::Array(vec![]));
        let delta = &now["deltas"][0];
        assert_eq!((&delta["from"], now["deltas"].as_array().unwrap().len()), (&before["blob"], 1));
        let status = comes(&daemon, &now, "delta");
        assert_eq!((&status["bytes_fetched"], &status["state"]), (&delta["bytes"], &"ok".into()));
        let (fetched, full) = (delta["bytes"].as_u64().unwrap(), now["bytes"].as_u64().unwrap());
        assert!(fetched * 100 < full * 8, "{fetched} of {full} bytes at 1 % churn");
        has_day(&daemon, 0);

        let reported = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        let saved =
            [&reported["pointers"][0]["delta_bytes"], &reported["pointers"][0]["bytes_saved"]];
        assert_eq!(saved, [&delta["bytes"], &(full - fetched).into()], "{reported}");

        // The rollback, and back: by the same file.
        repoint(&backend, 0, &before);
        assert_eq!(comes(&daemon, &before, "delta")["bytes_fetched"], delta["bytes"]);
        has_day(&daemon, 1);
        repoint(&backend, 0, &now);
        comes(&daemon, &now, "delta");
        has_day(&daemon, 0);

        let loads = |labels: &str| {
            daemon.metric(&format!("bloomsday_loads_total{{filter=\"rt\",{labels}}}"))
        };
        assert_eq!(loads("result=\"ok\",via=\"delta\""), 3);
        assert_eq!(loads("result=\"ok\",via=\"full\""), 1);
        assert_eq!(loads("result=\"failed\",via=\"delta\""), 0);
        let bytes = "bloomsday_download_bytes_total{filter=\"rt\",via=";
        assert_eq!(daemon.metric(&format!("{bytes}\"delta\"}}")), 3 * fetched);
        assert_eq!(daemon.metric(&format!("{bytes}\"full\"}}")), before["bytes"].as_u64().unwrap());
    }
}

#[test]
fn plan_says_how_long_a_delta_is() {
    // Large enough for its heads to be of no weight.
    let (backend, ids, churn) = (Backend::local(), 600_000, 6_000);
    let day = |back: u32, first: u64| {
        let day = Publisher::days_ago(&backend, back).users(first..first + ids);
        day.with(&DELTAS).run().expect(0).json()
    };
    day(1, 0);
    let made = day(0, churn)["deltas"][0]["bytes"].as_f64().unwrap();
    let words = ["plan", "--ids", &ids.to_string(), "--sizes-only", "--json"];
    let planned = bloomsday(&words).run().expect(0).json()["deltas"].clone();
    let of_churn = |delta: &&Value| delta["churn"] == churn as f64 / ids as f64;
    let planned = planned.as_array().unwrap().iter().find(of_churn).expect("1 %")["bytes"].as_f64();
    let ratio = made / planned.unwrap();
    assert!((0.95..1.05).contains(&ratio), "{made} bytes, {planned:?} planned");
}

#[test]
fn the_configuration_says_whether_a_shape_is_carried() {
    let backend = Backend::local();
    let config = Path::new(&backend.store).with_extension("toml");
    let shape = |back: u32, text: &str, more: &[&str]| {
        fs::write(&config, format!("[filters.rt]\n{text}")).unwrap();
        let day = Publisher::days_ago(&backend, back).users(0..USERS);
        let config = ["--config", config.to_str().unwrap()];
        day.with(&config).with(more).run().expect(0).json()["shape"].clone()
    };
    assert_eq!(shape(3, "stable_shape = true\n", &[]), "fresh");
    assert_eq!(shape(2, "stable_shape = true\n", &[]), "carried");
    assert_eq!(shape(2, "stable_shape = true\n", &["--shape", "exact"]), "exact");
    assert_eq!(shape(1, "deltas = 3\nstable_shape = false\n", &[]), "exact");
    assert_eq!(shape(1, "deltas = 3\n", &[]), "carried");
    assert_eq!(shape(1, "", &[]), "exact");
}

#[test]
fn any_trouble_with_a_delta_means_the_full_blob_in_the_same_round() {
    for backend in Backend::all() {
        build(&backend, 2, &[]);
        let before = build(&backend, 1, &[]);
        let other = backend.read(&delta_of(&before)).expect("the delta of the days before");
        let now = build(&backend, 0, &[]);
        let key = delta_of(&now);
        let good = backend.read(&key).expect("the delta");
        let daemon = Daemon::ready(&backend, &[]);
        comes(&daemon, &now, "full");
        let flipped = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            Some(bytes)
        };
        let troubles = [
            ("removed", None),
            ("cut", Some(good[..good.len() / 2].to_vec())),
            ("cut by its last byte", Some(good[..good.len() - 1].to_vec())),
            ("longer", Some([&good[..], b"x"].concat())),
            ("empty", Some(Vec::new())),
            ("of other blobs", Some(other)),
            ("too large", Some(vec![7; good.len() * 40])),
            ("no delta", Some(b"<html>Not today</html>".to_vec())),
            ("with a flip in its version", flipped(8)),
            ("with a flip in a number of flips", flipped(92)),
            ("with a flip in its divisor", flipped(96)),
            ("with a flip in its code", flipped(good.len() / 2)),
            ("with a flip in its digest", flipped(good.len() - 1)),
        ];
        let failures = "bloomsday_loads_total{filter=\"rt\",result=\"failed\",via=\"delta\"}";
        for (what, bytes) in troubles {
            repoint(&backend, 0, &before);
            comes(&daemon, &before, "delta");
            let failed = daemon.metric(failures);
            let is_there = bytes.is_some();
            match bytes {
                Some(bytes) => backend.write(&key, &bytes),
                None => backend.remove(&key),
            }
            repoint(&backend, 0, &now);
            let status = comes(&daemon, &now, "full");
            assert_eq!(status["state"], "ok", "{what}: {status}");
            assert_eq!(status["last_error"], Value::Null, "{what}");
            // What is not there is no failure: most stores have no deltas.
            assert_eq!(daemon.metric(failures) - failed, u64::from(is_there), "{what}");
            has_day(&daemon, 0);
            backend.write(&key, &good);
        }
    }
}

#[test]
fn a_server_that_was_off_for_a_night_begins_from_the_copy_in_its_cache() {
    let backend = Backend::local();
    let before = build(&backend, 1, &[]);
    let cache = backend.folder.path().join("cache");
    let more = ["--cache-dir", &cache.display().to_string()];
    let daemon = Daemon::ready(&backend, &more);
    let digest = before["digest"].as_str().unwrap();
    let copy = cache.join(format!("rt/{}-{digest}.copy", before["day"].as_str().unwrap()));
    daemon.until("the blob is cached", |_| cache.join("rt/followed").exists() && copy.exists());
    drop(daemon);
    let now = build(&backend, 0, &[]);
    let daemon = Daemon::ready(&backend, &more);
    daemon.until("today's blob answers", |daemon| daemon.status()["digest"] == now["digest"]);
    let status = daemon.status();
    assert_eq!((&status["via"], &status["state"]), (&"delta".into(), &"ok".into()), "{status}");
    has_day(&daemon, 0);

    let before_copy = copy;
    // A copy that is damaged since: the delta gives another blob, and the full one is fetched.
    let digest = now["digest"].as_str().unwrap();
    let copy = cache.join(format!("rt/{}-{digest}.copy", now["day"].as_str().unwrap()));
    daemon.until("its copy is the only one", |_| copy.exists() && !before_copy.exists());
    drop(daemon);
    let mut bytes = fs::read(&copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&copy, bytes).unwrap();
    repoint(&backend, 0, &before);
    let daemon = Daemon::ready(&backend, &more);
    daemon.until("yesterday's answers", |daemon| daemon.status()["digest"] == before["digest"]);
    assert_eq!(daemon.status()["via"], "full");
    has_day(&daemon, 1);
}

#[test]
fn deltas_begin_from_the_last_three_days_and_from_the_days_own_blob() {
    let backend = Backend::local();
    let days: Vec<Value> = (1..=4).rev().map(|back| build(&backend, back, &[])).collect();
    let from = |report: &Value| -> Vec<Value> {
        report["deltas"].as_array().unwrap().iter().map(|delta| delta["from"].clone()).collect()
    };
    let first = build(&backend, 0, &[]);
    let expected: Vec<Value> = days[1..].iter().rev().map(|day| day["blob"].clone()).collect();
    assert_eq!(from(&first), expected);
    // Late files: the same day again, with more users.
    let again = Publisher::days_ago(&backend, 0).users(20 * CHURN..20 * CHURN + USERS + 50);
    let again = again.with(&DELTAS).run().expect(0).json();
    assert_eq!(from(&again), [vec![first["blob"].clone()], expected].concat());
    for delta in again["deltas"].as_array().unwrap() {
        let key = delta["delta"].as_str().unwrap();
        let inspected = backend.bloomsday(&["inspect", key]).run().expect(0).json();
        assert_eq!((&inspected["bytes"], &inspected["sound"]), (&delta["bytes"], &true.into()));
        assert_eq!(
            (&inspected["flips"], &inspected["blob_bytes"]),
            (&delta["flips"], &again["bytes"])
        );
    }

    // A fleet that was pinned to the blob of three days ago moves on by a delta; of four days, in
    // full.
    let pin = |to: &Value| {
        let blob = to["blob"].as_str().unwrap();
        backend.bloomsday(&["pin", "rt", "--to", blob]).run().expect(0);
    };
    pin(&days[1]);
    let daemon = Daemon::ready(&backend, &[]);
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
    comes(&daemon, &again, "delta");
    pin(&days[0]);
    comes(&daemon, &days[0], "full");
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
    comes(&daemon, &again, "full");
    has_day(&daemon, 0);
}

#[test]
fn a_build_of_the_same_ids_changes_nothing_and_a_rollback_stands() {
    let backend = Backend::local();
    // More users than today has, so that the shape carried from there is not the one that today
    // needs.
    let before = Publisher::days_ago(&backend, 1).users(3_600..3_600 + 20_400).with(&DELTAS);
    before.publish();
    let now = build(&backend, 0, &[]);
    assert_eq!(now["shape"], "carried");
    for _ in 0..2 {
        let again = build(&backend, 0, &[]);
        assert_eq!((&again["outcome"], &again["blob"]), (&"unchanged".into(), &now["blob"]));
    }
    // Also when the day before has another shape since.
    let other = Publisher::days_ago(&backend, 1).users(0..30_000).with(&DELTAS);
    let other = other.with(&["--accept-change", "a test"]).run().expect(0).json();
    assert_eq!(build(&backend, 0, &[])["outcome"], "unchanged");
    repoint(&backend, 0, &other);
    let first = CHURN * 20;
    let again = Publisher::days_ago(&backend, 0).users(first..first + USERS).with(&DELTAS).run();
    assert_eq!(again.code, 5, "{}{}", again.stdout, again.stderr);
    assert_eq!(again.json()["blob"], now["blob"]);
}

#[test]
fn a_shape_is_carried_while_it_fits_and_new_when_it_is_wanted() {
    let backend = Backend::local();
    let before = build(&backend, 2, &[]);
    // 2 % more users fit into the headroom.
    let grown = Publisher::days_ago(&backend, 1).users(3_600..3_600 + 20_400).with(&DELTAS);
    let grown = grown.run().expect(0).json();
    assert_eq!((&grown["shape"], &grown["bytes"]), (&"carried".into(), &before["bytes"]));
    assert!(grown["fpp_measured"].as_f64().unwrap() < 0.033);
    // 25 % more do not: a new shape, no delta, and no warning.
    let larger = Publisher::days_ago(&backend, 0).users(3_600..3_600 + 25_000).with(&DELTAS);
    let larger = larger.run().expect(0).json();
    assert_eq!((&larger["shape"], &larger["deltas"]), (&"fresh".into(), &Value::Array(vec![])));
    assert_eq!(larger["warnings"], Value::Array(vec![]), "{larger}");
    let daemon = Daemon::ready(&backend, &[]);
    repoint(&backend, 0, &grown);
    comes(&daemon, &grown, "full");

    let backend = Backend::local();
    build(&backend, 1, &[]);
    let fresh = build(&backend, 0, &["--shape", "fresh"]);
    assert_eq!((&fresh["shape"], &fresh["shape_from"]), (&"fresh".into(), &Value::Null));
}

#[test]
fn a_build_killed_after_its_first_delta_reaches_the_same_when_it_runs_again() {
    let backend = Backend::local();
    for back in [2, 1] {
        build(&backend, back, &[]);
    }
    let pointer = format!("rt/pointers/{}", today());
    for nth in ["delta-uploaded", "delta-uploaded:2"] {
        let first = CHURN * 20;
        let day = Publisher::days_ago(&backend, 0).users(first..first + USERS).with(&DELTAS);
        let mut run = KillableRun::start(day.prepare().into_command(), Some(nth));
        assert!(run.paused(), "{}", run.said());
        drop(run);
        assert_eq!(backend.read(&pointer), None, "the pointer moved before the deltas were there");
    }
    let now = build(&backend, 0, &[]);
    assert_eq!(
        (&now["outcome"], now["deltas"].as_array().unwrap().len()),
        (&"published".into(), 2)
    );
    let daemon = Daemon::ready(&backend, &[]);
    comes(&daemon, &now, "full");
}

#[test]
fn without_deltas_a_build_is_what_it_was() {
    let backend = Backend::local();
    for back in [1, 0] {
        let report = Publisher::days_ago(&backend, back).users(0..USERS + u64::from(back));
        let report = report.run().expect(0).json();
        assert_eq!((&report["shape"], &report["deltas"]), (&"exact".into(), &Value::Array(vec![])));
    }
    assert!(!Path::new(&backend.store).join("rt/deltas").exists());
}

#[test]
fn what_cannot_be_written_is_a_warning_and_what_saves_too_little_is_none() {
    let backend = Backend::local();
    build(&backend, 1, &[]);
    let folder = Path::new(&backend.store).join("rt/deltas");
    fs::write(&folder, "in the way").unwrap();
    let report = build(&backend, 0, &[]);
    assert_eq!(
        (&report["outcome"], &report["deltas"]),
        (&"published".into(), &Value::Array(vec![]))
    );
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("there is no delta from"), "{warnings}");
    fs::remove_file(&folder).unwrap();

    let backend = Backend::local();
    build(&backend, 1, &[]);
    let others = Publisher::days_ago(&backend, 0).users(1_000_000..1_000_000 + USERS);
    let others = others.with(&DELTAS).with(&["--accept-change", "a test"]).run().expect(0).json();
    assert_eq!((&others["shape"], &others["deltas"]), (&"carried".into(), &Value::Array(vec![])));
    let bounds = backend.bloomsday(&["build", "rt", "--day", "2026-11-19", "--deltas", "15"]).run();
    assert_eq!(bounds.code, 2, "{}", bounds.stderr);
}

#[test]
fn prune_deletes_a_delta_with_its_blob_or_when_no_server_is_so_far_behind() {
    let backend = Backend::local();
    let reports: Vec<Value> = (0..3).rev().map(|back| build(&backend, back, &[])).collect();
    let store = Path::new(&backend.store);
    let path = |report: &Value, i: usize| {
        store.join(report["deltas"][i]["delta"].as_str().expect("a delta"))
    };
    let prune = |more: &[&str]| {
        backend.bloomsday(&[&["prune", "rt"], more].concat()).run().expect(0).json()
    };
    assert_eq!(prune(&[])["deltas"], Value::Array(vec![]));
    // The blob of two days ago goes, and the two deltas from it.
    fs::remove_file(store.join(reports[0]["blob"].as_str().unwrap())).unwrap();
    assert_eq!(prune(&["--dry-run"])["deltas"].as_array().unwrap().len(), 2);
    assert!(path(&reports[1], 0).exists());
    let pruned = prune(&[]);
    assert_eq!(pruned["deltas"].as_array().unwrap().len(), 2);
    assert!(pruned["bytes"].as_u64().unwrap() > 0);
    assert!(!path(&reports[1], 0).exists() && !path(&reports[2], 1).exists());
    let last = path(&reports[2], 0);
    assert!(last.exists(), "its blobs are there");
    // Servers look three days back.
    let age = |days: u64| {
        let file = File::options().write(true).open(&last).unwrap();
        let age = Duration::from_secs(days * 24 * 3600 + 3600);
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    age(3);
    assert_eq!(prune(&[])["deltas"], Value::Array(vec![]));
    age(4);
    assert_eq!(prune(&[])["deltas"].as_array().unwrap().len(), 1);
    assert!(!last.exists());
}

/// How many users each of the two golden days has, and where the second begins.
const GOLDEN_USERS: u64 = 400;
const GOLDEN_CHURN: u64 = 4;
const GOLDEN: &str = "v1.delta";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(GOLDEN)
}

/// Builds two days long past. Returns their blobs and the delta.
fn build_golden(backend: &Backend, layout: &str) -> [PathBuf; 3] {
    let day = |day, first| {
        let build = Publisher::day(backend, day).users(first..first + GOLDEN_USERS);
        build.with(&DELTAS).with(&["--layout", layout]).run().expect(0).json()
    };
    let (before, after) = (day("2024-02-28", 0), day("2024-02-29", GOLDEN_CHURN));
    let path = |key: &str| Path::new(&backend.store).join(key);
    let blob = |report: &Value| path(report["blob"].as_str().unwrap());
    [blob(&before), blob(&after), path(&delta_of(&after))]
}

#[test]
fn the_same_days_still_give_the_bytes_of_the_golden_delta() {
    let backend = Backend::local();
    let [.., delta] = build_golden(&backend, "blocked");
    assert!(fs::read(&delta).unwrap() == fs::read(golden()).unwrap(), "{GOLDEN} differs");
}

#[test]
#[ignore = "writes the golden delta of a new format version; never writes over one"]
fn write_the_missing_golden() {
    if !golden().exists() {
        let backend = Backend::local();
        let [.., delta] = build_golden(&backend, "blocked");
        fs::copy(delta, golden()).unwrap();
    }
}

/// Runs the reader that was written from the page. Returns the other blob, or why it refuses.
fn python(blob: &Path, delta: &Path) -> Result<Vec<u8>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("../target/test-tools/bin/python"))
        .arg(root.join("python/apply_delta.py"))
        .args([blob, delta])
        .output()
        .expect("Python runs (tests/run.sh installs it)");
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_reader_written_from_the_page_applies_a_delta_in_both_directions() {
    for layout in ["blocked", "guava"] {
        let backend = Backend::local();
        let [before, after, delta] = build_golden(&backend, layout);
        let bytes = |path: &Path| fs::read(path).unwrap();
        assert!(python(&before, &delta).unwrap() == bytes(&after), "{layout}");
        assert!(python(&after, &delta).unwrap() == bytes(&before), "{layout}");
        if layout == "blocked" {
            assert!(python(&before, &golden()).unwrap() == bytes(&after));
        }
        let copy = backend.folder.path().join("altered.delta");
        let good = bytes(&delta);
        for at in [0, 8, 16, 30, 60, 88, 92, 96, 101, good.len() - 1] {
            let mut altered = good.clone();
            altered[at] ^= 1;
            fs::write(&copy, altered).unwrap();
            assert!(python(&before, &copy).unwrap_err().contains("is not sound"), "{at}");
            let run = backend.bloomsday(&["inspect", &copy.display().to_string()]).run();
            assert_eq!(run.code, 7, "{at}: {}{}", run.stdout, run.stderr);
        }
    }
}
