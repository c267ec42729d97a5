//! A window of days: a day's filter holds the IDs of the days up to it.

use std::fs;

use crate::objects::{objects, put};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::program::{Run, bloomsday};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// Writes the input of the day `back` days ago, and gives the template for all days.
fn input(backend: &Backend, back: u32, users: std::ops::Range<u64>) -> String {
    let name = format!("in/dt={}/a.parquet", today().minus(back));
    if backend.store.starts_with("s3:") {
        let file = backend.folder.path().join("scratch.parquet");
        write_users(&file, users);
        put(backend, &name, &fs::read(file).unwrap());
        return format!("{}/in/dt={{day}}/", backend.store);
    }
    write_users(&backend.folder.path().join(name), users);
    format!("{}/in/dt={{day}}/", backend.folder.path().display())
}

fn build(backend: &Backend, back: u32, input: &str, more: &[&str]) -> Run {
    Publisher::days_ago(backend, back).input(input).with(more).run()
}

fn is_hit(backend: &Backend, id: u64) -> bool {
    backend.bloomsday(&["query", "rt", &user(id)]).run().code == 0
}

#[test]
fn a_window_is_the_union_of_its_days_and_gives_the_bytes_of_that_set() {
    for backend in Backend::all() {
        for back in 0..4u64 {
            input(&backend, back as u32, back * 1_000..back * 1_000 + 1_500);
        }
        let template = input(&backend, 0, 0..1_500);
        let report = build(&backend, 0, &template, &["--window-days", "3"]).expect(0).json();
        assert_eq!((&report["ids"], &report["rows"]), (&3_500.into(), &4_500.into()), "{report}");
        assert_eq!((&report["files"], &report["window_days"]), (&3.into(), &3.into()));
        assert_eq!(report["window_missing"], Value::Array(Vec::new()));
        assert!(is_hit(&backend, 3_499) && is_hit(&backend, 0));
        assert!(!(3_600..3_700).all(|id| is_hit(&backend, id)), "the fourth day is outside");
        // The same set by another way: the same bytes.
        let all = backend.folder.path().join("all.parquet");
        write_users(&all, 0..3_500);
        let alone = build(&backend, 0, all.to_str().unwrap(), &[]).expect(0).json();
        assert_eq!((&alone["outcome"], &alone["digest"]), (&"unchanged".into(), &report["digest"]));
    }
}

#[test]
fn a_day_missing_in_the_window_is_named_and_allowed_only_if_said() {
    for backend in Backend::all() {
        let template = input(&backend, 0, 0..1_000);
        input(&backend, 2, 500..2_000);
        let (one, three) = (today().minus(1).to_string(), today().minus(3).to_string());
        let window = ["--window-days", "4"];
        let run = build(&backend, 0, &template, &window).expect(4);
        run.complains(&["4 days up to", &format!("{three}, {one}"), "--window-missing allow"]);
        let allow = [&window[..], &["--window-missing", "allow"]].concat();
        let report = build(&backend, 0, &template, &allow).expect(0).json();
        assert_eq!(report["ids"], 2_000);
        let missing = serde_json::json!([three, one]);
        assert_eq!(report["window_missing"], missing);
        let event = backend.bloomsday(&["history", "rt"]).run().expect(0).json();
        assert_eq!((&event["window_missing"], &event["rows"]), (&missing, &2_500.into()));
        // The day itself is never allowed to be missing.
        let nothing = build(&backend, 1, &template, &allow).expect(4);
        nothing.complains(&["nothing matches", &one]);
    }
}

#[test]
fn the_report_for_people_names_the_missing_days() {
    let backend = Backend::local();
    let template = input(&backend, 0, 0..1_000);
    let day = today().to_string();
    let words = ["build", "rt", "--day", &day, "--input", &template, "--column", "device_id"];
    let more = ["--window-days", "2", "--window-missing", "allow", "--store", &backend.store];
    let page = bloomsday(&[&words[..], &more].concat()).run().expect(0).stdout;
    let missing = format!("2 days, 1 of them without input: {}", today().minus(1));
    assert!(page.contains(&missing), "{page}");
}

#[test]
fn windows_that_cannot_be_are_refused() {
    let backend = Backend::local();
    let template = input(&backend, 0, 0..1_000);
    let fixed = template.replace("{day}", &today().to_string());
    let window = ["--window-days", "2"];
    let same = "is the same on two days";
    build(&backend, 0, &fixed, &window).expect(2).complains(&[same, &fixed]);
    // A folder of a month, which has the days after this one, too.
    let month = template.replace("{day}", "{day:%Y-%m}");
    build(&backend, 0, &month, &window).expect(2).complains(&[same, &month]);
    let both = [&window[..], &["--input", &fixed]].concat();
    build(&backend, 0, &template, &both).expect(2).complains(&[same]);
    for days in ["0", "401"] {
        build(&backend, 0, &template, &["--window-days", days]).expect(2).complains(&["1 to 400"]);
    }
    assert!(objects(&backend, "rt/blobs/").is_empty());
    build(&backend, 0, &template, &["--window-missing", "maybe"]).expect(2);
    // One day may be named like any other.
    build(&backend, 0, &fixed, &["--window-days", "1"]).expect(0);
}

/// A filter that was due at midnight, with a window of three days.
fn configure(backend: &Backend, more: &str) {
    let folder = backend.folder.path();
    let text = format!(
        "store = \"{}\"\n[filters.rt]\ninput = \"{}/in/dt={{day}}/\"\ncolumn = \"device_id\"\n\
         schedule = \"0 0 * * *\"\ncatch_up_days = 0\nwindow_days = 3\n{more}\n",
        backend.store,
        folder.display()
    );
    fs::write(folder.join("bloomsday.toml"), text).unwrap();
}

fn run(backend: &Backend, words: &[&str]) -> Run {
    bloomsday(&[words, &["--json"]].concat()).current_dir(backend.folder.path()).run()
}

#[test]
fn the_schedule_waits_for_every_day_of_the_window_unless_days_may_be_missing() {
    let backend = Backend::local();
    configure(&backend, "");
    input(&backend, 1, 0..1_000);
    input(&backend, 3, 2_000..3_000);
    let marker = format!("in/dt={}/_SUCCESS", today().minus(1));
    fs::write(backend.folder.path().join(marker), "").unwrap();
    let missing = today().minus(2).to_string();
    let metrics = ["--metrics-file", "bloomsday.prom"];
    let once = [&["schedule", "--once"][..], &metrics].concat();
    let waits = run(&backend, &once).expect(75);
    waits.complains(&["not built yet", &missing, "window-missing allow"]);
    let page = fs::read_to_string(backend.folder.path().join("bloomsday.prom")).unwrap();
    let waiting = "bloomsday_build_waiting{filter=\"rt\",reason=\"window\"} 1";
    assert!(page.contains(waiting), "{page}");
    let listed = run(&backend, &["schedule", "--dry-run"]).expect(0).json();
    assert!(listed["open"][0]["because"].as_str().unwrap().contains(&missing), "{listed}");

    configure(&backend, "window_missing = \"allow\"");
    let report = run(&backend, &once).expect(0).json();
    assert_eq!((&report["ids"], &report["window_missing"][0]), (&2_000.into(), &missing.into()));
}

#[test]
fn the_configuration_prints_the_window_and_refuses_an_impossible_one() {
    let backend = Backend::local();
    fs::create_dir_all(&backend.store).unwrap();
    configure(&backend, "window_missing = \"allow\"");
    let said = run(&backend, &["config", "check"]).expect(0).stdout;
    for line in
        ["\"filters.rt.window_days\",\"value\":\"3\"", "window_missing\",\"value\":\"allow\""]
    {
        assert!(said.contains(line), "no {line} in {said}");
    }
    let file = backend.folder.path().join("bloomsday.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (from, to, why) in [
        ("window_days = 3", "window_days = 401", "1 to 400"),
        ("dt={day}", "dt=1", "is the same on two days"),
        ("\"allow\"", "\"ignore\"", "window_missing"),
    ] {
        fs::write(&file, good.replace(from, to)).unwrap();
        run(&backend, &["config", "check"]).expect(2).complains(&[why]);
        run(&backend, &["schedule", "--once"]).expect(2).complains(&[why]);
    }
}

#[test]
fn plan_reads_the_rows_of_every_day_of_the_window() {
    let plan = |more: &[&str]| {
        let words = ["plan", "--ids", "1m", "--rows", "2m", "--memory", "1GiB", "--json"];
        bloomsday(&[&words[..], more].concat()).run().expect(0).json()
    };
    let planned = plan(&["--window-days", "30"]);
    assert_eq!(
        (&planned["window_days"], &planned["build"]["rows"]),
        (&30.into(), &60_000_000.into())
    );
    bloomsday(&["plan", "--ids", "1m", "--window-days", "401"]).run().expect(2);
}
