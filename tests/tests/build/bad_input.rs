//! Whatever is wrong, the program says what and what to do about it, ends with the documented
//! status, moves no pointer, and a running daemon goes on answering.

mod proxy;
mod records;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::objects::{objects, put};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::program::{Run, bloomsday};
use bloomsday_tests::publisher::Publisher;
use proxy::{Proxy, Way};
use serde_json::Value;

/// How many users the good day holds: `user(0)` and so on.
const GOOD: u64 = 1_000;
/// A store in which yesterday is fine and a daemon answers from it.
struct Good {
    backend: Backend,
    daemon: Daemon,
    before: String,
    day: String,
    pointers: BTreeMap<String, Vec<u8>>,
}

impl Good {
    fn on(backend: Backend) -> Good {
        let (before, day) = (today().minus(1).to_string(), today().to_string());
        Publisher::day(&backend, &before).users(0..GOOD).run().expect(0);
        let daemon = Daemon::ready(&backend, &[]);
        let pointers = objects(&backend, "rt/pointers/");
        assert_eq!(pointers.len(), 1);
        Good { backend, daemon, before, day, pointers }
    }

    fn local() -> Good {
        Good::on(Backend::local())
    }

    /// Builds today from an input.
    fn build(&self, input: &Path, column: &str) -> Run {
        let input = input.display().to_string();
        let words = ["build", "rt", "--day", &self.day, "--input", &input, "--column", column];
        self.backend.bloomsday(&words).run()
    }

    fn put_pointer(&self, day: &str, bytes: &[u8]) {
        put(&self.backend, &format!("rt/pointers/{day}"), bytes);
    }

    /// No pointer moved, and a reload leaves the daemon with the same filter.
    #[track_caller]
    fn unmoved(&self) {
        assert_eq!(objects(&self.backend, "rt/pointers/"), self.pointers);
        let (code, body) = self.daemon.reload("");
        assert_eq!((code, &body["filters"]["rt"]["outcome"]), (200, &"unchanged".into()), "{body}");
        self.answers("ok");
    }

    /// A reload fails for a reason that says all of this, and the daemon keeps its day and answers.
    #[track_caller]
    fn reload_fails(&self, says: &[&str]) {
        let (code, body) = self.daemon.reload("");
        assert_eq!((code, &body["filters"]["rt"]["outcome"]), (502, &"failed".into()), "{body}");
        let reason = body["filters"]["rt"]["reason"].as_str().unwrap();
        assert!(says.iter().all(|part| reason.contains(part)), "{says:?} not all in: {reason}");
        self.answers("failing");
    }

    #[track_caller]
    fn answers(&self, state: &str) {
        let status = self.daemon.status();
        let expected = (&state.into(), &self.before.clone().into());
        assert_eq!((&status["state"], &status["day"]), expected, "{status}");
        assert_eq!(self.daemon.get("/readyz").status, 200);
        let all: String = (0..GOOD).map(|n| user(n) + "\n").collect();
        let answer = self.daemon.post("/v1/filters/rt/query", all.as_bytes());
        assert_eq!((answer.status, answer.body), (200, "1\n".repeat(GOOD as usize)));
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parquet").join(name)
}

fn expected() -> serde_json::Map<String, Value> {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

// ---- input -------------------------------------------------------------------------------------

#[test]
fn no_file_at_all_is_not_found_and_the_input_and_the_day_are_named() {
    let good = Good::local();
    let folder = good.backend.folder.path();
    fs::create_dir_all(folder.join("empty")).unwrap();
    fs::create_dir_all(folder.join("done")).unwrap();
    fs::write(folder.join("done/_SUCCESS"), "").unwrap();
    for input in ["nowhere", "nowhere/part-0.parquet", "empty", "done", "done/*.parquet", "d={day}"]
    {
        let run = good.build(&folder.join(input), "device_id").expect(4);
        let expected = folder.join(input.replace("{day}", &good.day)).display().to_string();
        run.complains(&[&expected, &good.day, "check that the day's files have arrived"]);
    }
    // Of two inputs, one that is not there is never passed over.
    let file = fixture("pyarrow-string.parquet").display().to_string();
    let missing = folder.join("nowhere").display().to_string();
    let words = ["build", "rt", "--day", &good.day, "--input", &file, "--input", &missing];
    let run = good.backend.bloomsday(&[&words[..], &["--column", "id"]].concat()).run();
    run.expect(4).complains(&[&missing]);
    good.unmoved();
}

#[test]
fn a_day_without_one_id_is_refused_and_recorded() {
    let good = Good::local();
    for (fixture_name, says) in
        [("pyarrow-zero-rows", "0 rows, 0 of them null"), ("pyarrow-all-null", "40 rows, 40 of")]
    {
        let run = good.build(&fixture(&format!("{fixture_name}.parquet")), "id").expect(6);
        let report = run.json();
        assert_eq!((&report["outcome"], &report["blob"]), (&"refused".into(), &Value::Null));
        assert!(report["reason"].as_str().unwrap().contains(says), "{report}");
        run.complains(&["refused: rt", &good.day, says, "the pointer is unchanged"]);
        let history = good.backend.bloomsday(&["history", "rt"]).run().expect(0).json();
        assert_eq!((&history["act"], &history["outcome"]), (&"build".into(), &"refused".into()));
        assert_eq!(history["day"], good.day);
        assert!(history["reason"].as_str().unwrap().contains(says), "{history}");
    }
    good.unmoved();
}

#[test]
fn a_missing_column_is_answered_with_the_columns_that_are_there() {
    let good = Good::local();
    let run = good.build(&fixture("pyarrow-not-ids.parquet"), "device_id").expect(2);
    run.complains(&["pyarrow-not-ids.parquet", "no column `device_id`", "`bool`", "`timestamp`"]);
    good.unmoved();
}

#[test]
fn a_column_that_holds_no_ids_is_refused_by_its_type() {
    let good = Good::local();
    let mut tried = 0;
    for (name, case) in expected().iter().filter(|(name, _)| name.contains("not-ids")) {
        let (file, column) = name.split_once('#').unwrap();
        let why = case["why"].as_str().unwrap().replace("type ", "its type is ");
        let why = why.split(',').next().unwrap();
        let run = good.build(&fixture(file), column).expect(2);
        run.complains(&[file, &format!("column `{column}`"), why, "an ID is a string, binary"]);
        tried += 1;
    }
    assert_eq!(tried, 9);
    good.unmoved();
}

#[test]
fn what_is_sound_but_not_read_is_refused_by_name_with_the_remedy() {
    let good = Good::local();
    let run = good.build(&fixture("forged/codec_lzo.parquet"), "id").expect(2);
    run.complains(&["codec_lzo.parquet", "`id`", "LZO", "Snappy", "write the file again"]);
    let run = good.build(&fixture("forged/encrypted_column.parquet"), "id").expect(2);
    run.complains(&["encrypted_column.parquet", "its column `id` is encrypted"]);
    let run = good.build(&fixture("forged/decimal_scaled.parquet"), "id").expect(2);
    run.complains(&["2 digits behind the point; write the IDs as whole numbers"]);
    let run = good.build(&fixture("pyarrow-not-ids.parquet"), "list").expect(2);
    run.complains(&["`list`", "write a row for each value", "explode(list)"]);
    good.unmoved();
    // Brotli and Snappy are read, and then refused only for being unlike the day before.
    for column in ["id", "other"] {
        let run = good.build(&fixture("pyarrow-brotli.parquet"), column).expect(6);
        run.complains(&["distinct IDs 40"]);
    }
    good.unmoved();
}

#[test]
fn a_damaged_file_is_named_and_fails_the_day() {
    let good = Good::local();
    let folder = good.backend.folder.path().join("mixed");
    fs::create_dir(&folder).unwrap();
    fs::copy(fixture("pyarrow-string.parquet"), folder.join("part-0.parquet")).unwrap();
    let mut tried = 0;
    let cases = expected();
    for (name, _) in cases.iter().filter(|(_, case)| case["corrupt"] == true) {
        good.build(&fixture(name), "id").expect(7).complains(&[name, "write"]);
        // Among sound files as well.
        let file = folder.join(name);
        fs::copy(fixture(name), &file).unwrap();
        good.build(&folder, "id").expect(7).complains(&[name, "write"]);
        fs::remove_file(&file).unwrap();
        tried += 1;
    }
    assert_eq!(tried, 14);
    good.unmoved();
    assert_eq!(objects(&good.backend, "rt/blobs/").len(), 1, "something was uploaded");
}

// ---- usage and configuration -------------------------------------------------------------------

#[test]
fn a_wrong_flag_is_refused_with_what_would_be_right() {
    let good = Good::local();
    let input = fixture("pyarrow-string.parquet").display().to_string();
    let tomorrow = today().plus(1).to_string();
    let today = good.day.as_str();
    for (more, says) in [
        (&["--day", "yesterday"][..], &["`yesterday` is not a day", "YYYY-MM-DD"][..]),
        (&["--day", "2026-02-30"], &["`2026-02-30` is not a day"]),
        (&["--day", "2999-01-01"], &["2999-01-01 is in the future", &tomorrow]),
        (&["--day", today, "--layout", "cuckoo"], &["layout `cuckoo`", "`blocked`, `guava`"]),
        (&["--day", today, "--fpp", "0"], &["fpp of 0", "between 1e-9 and 0.5"]),
        (&["--day", today, "--fpp", "1"], &["fpp of 1", "between 1e-9 and 0.5"]),
        (&["--day", today, "--fpp", "nan"], &["fpp of NaN", "between 1e-9 and 0.5"]),
        (&["--day", today, "--fpp=-0.1"], &["fpp of -0.1", "between 1e-9 and 0.5"]),
        (&["--day", today, "--fpp", "low"], &["low", "--fpp"]),
        (&["--day", today, "--fpp", "5e-9"], &["`blocked`", "the layout `guava`"]),
        (&["--day", today, "--memory", "lots"], &["lots", "--memory"]),
        (&["--day", today, "--colunm", "x"], &["--colunm", "--column"]),
        (&[], &["--day"]),
    ] {
        let words = ["build", "rt", "--input", &input, "--column", "id"];
        let run = good.backend.bloomsday(&[&words[..], more].concat()).run();
        assert_eq!(run.code, 2, "{more:?}: {}{}", run.stdout, run.stderr);
        run.complains(says);
    }
    good.backend.bloomsday(&["frobnicate"]).run().expect(2).complains(&["frobnicate"]);
    good.backend.bloomsday(&["query", "RT"]).run().expect(2).complains(&["`RT`", "a-z, 0-9"]);
    good.backend.bloomsday(&["repoint", "rt", today]).run().expect(2).complains(&["--to"]);
    let serve = ["serve", "--filter", "rt", "--admin", "0.0.0.0:0"];
    good.backend.bloomsday(&serve).run().expect(2).complains(&["--admin-token-file", "127.0.0.1"]);
    good.backend.bloomsday(&["serve"]).run().expect(2).complains(&["--filter", "bloomsday.toml"]);
    good.unmoved();
}

#[test]
fn an_error_about_a_missing_setting_lists_every_way_to_set_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| bloomsday(words).current_dir(folder.path()).run();
    for words in [&["status"][..], &["query", "rt", "x"], &["history", "rt"]] {
        run(words).expect(2).complains(&[
            "no store",
            "--store",
            "BLOOMSDAY_STORE",
            "bloomsday.toml",
        ]);
    }
    let build = ["build", "rt", "--day", "2026-11-19", "--store", "store"];
    run(&[&build[..], &["--column", "id"]].concat()).expect(2).complains(&[
        "no input",
        "--input",
        "[filters.rt]",
        "bloomsday.toml",
    ]);
    run(&[&build[..], &["--input", "x"]].concat()).expect(2).complains(&[
        "no column",
        "--column",
        "[filters.rt]",
        "bloomsday.toml",
    ]);
}

#[test]
fn a_wrong_configuration_is_refused_by_every_job_before_it_does_anything() {
    let good = Good::local();
    let folder = good.backend.folder.path();
    let file = folder.join("bloomsday.toml");
    for (text, says) in [
        ("stroe = \"x\"", "unknown field `stroe`"),
        ("[filters.rt]\ncolunm = \"x\"", "unknown field `colunm`"),
        ("[filters.RT]", "`RT` is not a filter name"),
        ("[filters.rt]\nfpp = \"low\"", "fpp"),
        ("[filters.rt]\nlayout = \"cuckoo\"", "choose `blocked`, `guava`"),
        ("poll_interval = \"soon\"", "poll_interval"),
        ("store = ", "line 1"),
    ] {
        fs::write(&file, text).unwrap();
        for words in [&["config", "check"][..], &["status"], &["query", "rt", "x"]] {
            let run = bloomsday(&[words, &["--store", &good.backend.store]].concat());
            let run = run.current_dir(folder).run();
            assert_eq!(run.code, 2, "{text}: {}{}", run.stdout, run.stderr);
            run.complains(&["bloomsday.toml is wrong", says]);
        }
    }
    // Sound values that are impossible together.
    for (text, says) in [
        ("[filters.rt]\nfpp = 5e-9", "the layout `guava`"),
        ("[filters.rt]\nfpp = 2.0", "between 1e-9 and 0.5"),
        ("store = \"gopher://x\"", "`gopher://x` cannot be used"),
    ] {
        fs::write(&file, text).unwrap();
        let run = bloomsday(&["config", "check"]).current_dir(folder).run();
        assert_eq!(run.code, 2, "{text}: {}{}", run.stdout, run.stderr);
        run.complains(&[says]);
    }
    let run = bloomsday(&["status", "--config", "nowhere.toml"]).current_dir(folder).run();
    run.expect(2).complains(&["nowhere.toml", "cannot be read"]);
    good.unmoved();
}

// ---- the store ---------------------------------------------------------------------------------

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_store_that_cannot_be_reached_is_said_to_be_so_within_two_minutes() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut backend = Backend::s3();
    backend.env[0] = ("AWS_ENDPOINT", format!("http://{closed}"));
    let day = today().to_string();
    let input = fixture("pyarrow-string.parquet").display().to_string();
    let build = ["build", "rt", "--day", &day, "--input", &input, "--column", "id"];
    let pin = ["pin", "rt", "--to", &day];
    for words in [&["status", "rt"][..], &["query", "rt", "x"], &["history", "rt"], &pin, &build] {
        let start = Instant::now();
        let run = backend.bloomsday(words).run().expect(75);
        run.complains(&["cannot", &backend.store, "rt"]);
        assert!(start.elapsed() < Duration::from_secs(120), "{words:?}: {:?}", start.elapsed());
    }
    // The input's store, while the filter's own is fine.
    let good = Good::local();
    let words = ["build", "rt", "--day", &day, "--input", "s3://dmp/rt/", "--column", "id"];
    let run = good.backend.bloomsday(&words).envs(&backend.env).run();
    run.expect(75).complains(&["cannot", "s3://dmp/rt/"]);
    good.unmoved();
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_store_that_forbids_is_no_missing_day_and_the_rights_are_named() {
    let proxy = Proxy::start();
    let good = Good::on(proxy.backend());
    let (backend, day) = (&good.backend, good.day.as_str());
    proxy.set(Way::Forbidden);
    let says = ["forbids", &backend.store, "credentials and their rights", "s3:ListBucket"];
    for words in [&["query", "rt", "x"][..], &["repoint", "rt", day, "--to", day]] {
        backend.bloomsday(words).run().expect(1).complains(&says);
    }
    Publisher::day(backend, day).users(0..10).run().expect(1).complains(&says);
    let file = "s3://dmp/rt/part-0.parquet";
    let local = Good::local();
    let words = ["build", "rt", "--day", day, "--input", file, "--column", "id"];
    let run = local.backend.bloomsday(&words).envs(&backend.env).run().expect(1);
    run.complains(&[file, "credentials and their rights", "s3:ListBucket"]);
    local.unmoved();
    good.reload_fails(&says);
    for (status, code, says) in [
        ("403 Forbidden", "RequestTimeTooSkewed", "the clock of this machine is wrong"),
        ("403 Forbidden", "Request date header too old", "the clock of this machine is wrong"),
        ("400 Bad Request", "ExpiredToken", "the credentials have expired"),
        ("403 Forbidden", "Signature not valid in the specified time frame", "have expired"),
    ] {
        proxy.set(Way::Refuses(status, code));
        for words in [&["query", "rt", "x"][..], &["status", "rt"]] {
            backend.bloomsday(words).run().expect(1).complains(&[says, code]);
        }
        // A folder is listed; the answer to a look at one file has no body, which alone says why.
        let words = ["build", "rt", "--day", day, "--input", "s3://dmp/rt/", "--column", "id"];
        let run = local.backend.bloomsday(&words).envs(&backend.env).run().expect(1);
        run.complains(&["s3://dmp/rt", says, code]);
        good.reload_fails(&[says, code]);
    }
    proxy.set(Way::Pass);
    good.unmoved();
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_listing_that_is_forbidden_is_not_called_a_passing_trouble() {
    let proxy = Proxy::start();
    let (backend, local) = (proxy.backend(), Good::local());
    proxy.set(Way::Forbidden);
    let remedy = "credentials and their rights";
    for words in [&["status"][..], &["status", "rt"], &["history", "rt"]] {
        backend.bloomsday(words).run().expect(1).complains(&[&backend.store, remedy]);
    }
    for input in ["s3://dmp/rt/", "s3://dmp/rt/*.parquet"] {
        let words = ["build", "rt", "--day", &local.day, "--input", input, "--column", "id"];
        let run = local.backend.bloomsday(&words).envs(&backend.env).run();
        run.expect(1).complains(&["s3://dmp/rt/", remedy]);
    }
    local.unmoved();
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_daemon_outlives_its_store() {
    let proxy = Proxy::start();
    let good = Good::on(proxy.backend());
    for way in [Way::Broken, Way::Forbidden, Way::Broken] {
        proxy.set(way);
        good.reload_fails(&[&good.backend.store]);
        assert_eq!(good.daemon.get("/livez").status, 200);
    }
    proxy.set(Way::Pass);
    good.unmoved();
    Publisher::day(&good.backend, &good.day).users(0..GOOD - 1).run().expect(0);
    assert_eq!(good.daemon.reload("").0, 200);
    assert_eq!(good.daemon.status()["day"], good.day);
}
