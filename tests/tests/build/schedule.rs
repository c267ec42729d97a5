//! `bloomsday schedule`: the real program on a real store. What it decides when is put to weeks of
//! simulated time in unit tests; here are the input, the history, the metrics and two at once.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use bloomsday_tests::INTEGRATION;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, write_users};
use bloomsday_tests::program::{Bloomsday, bloomsday};
use bloomsday_tests::wait::until;

/// A filter that was due at midnight, for today's date minus one, and the `{day}` folders under
/// `in`.
fn configure(backend: &Backend, more: &str) {
    let folder = backend.folder.path();
    let text = format!(
        "store = \"{}\"\n[filters.rt]\ninput = \"{}/in/dt={{day}}/\"\ncolumn = \"device_id\"\n\
         schedule = \"0 0 * * *\"\n{more}\n",
        backend.store,
        folder.display()
    );
    std::fs::write(folder.join("bloomsday.toml"), text).unwrap();
}

fn run(backend: &Backend, words: &[&str]) -> Bloomsday {
    let words = [words, &["--json"]].concat();
    bloomsday(&words).envs(&backend.env).current_dir(backend.folder.path())
}

/// Writes the input of the day `back` days before today, with a marker if so.
fn input(backend: &Backend, back: u32, users: u64, marker: bool) {
    let folder = backend.folder.path().join(format!("in/dt={}", today().minus(back)));
    write_users(&folder.join("part-0.parquet"), 0..users);
    if marker {
        std::fs::write(folder.join("_SUCCESS"), b"").unwrap();
    }
}

fn history(backend: &Backend) -> Vec<serde_json::Value> {
    let said = run(backend, &["history", "rt"]).run().expect(0).stdout;
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn missed_days_are_caught_up_newest_first_and_only_once() {
    for backend in Backend::all() {
        configure(&backend, "catch_up_days = 2");
        (1..=4).for_each(|back| input(&backend, back, 1_000 + u64::from(back), true));
        let said = run(&backend, &["schedule", "--once"]).run().expect(0).stdout;
        let days: Vec<String> = said
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|report| report["day"].as_str().unwrap().to_owned())
            .collect();
        // Yesterday, and the two before; the fourth is too long ago.
        let expected: Vec<String> = (1..=3).map(|back| today().minus(back).to_string()).collect();
        assert_eq!(days, expected);
        let again = run(&backend, &["schedule", "--once"]).run().expect(0);
        assert_eq!(again.stdout, "", "a second run had something to do");
        assert_eq!(history(&backend).len(), 3);
    }
}

#[test]
fn input_that_is_not_there_is_waited_for_and_reported() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0\ndeadline = \"1s\"\nmarker = \"_DONE\"");
    let metrics = backend.folder.path().join("bloomsday.prom");
    let metrics = metrics.to_str().unwrap();
    let once = ["schedule", "--once", "--metrics-file", metrics];
    let yesterday = today().minus(1).to_string();
    run(&backend, &once).run().expect(75).complains(&["not built yet", &yesterday]);
    let page = std::fs::read_to_string(metrics).unwrap();
    assert!(page.contains("bloomsday_build_late{filter=\"rt\"} 1"), "{page}");
    assert!(page.contains("bloomsday_build_pending{filter=\"rt\"} 1"), "{page}");

    // Files without the marker that is demanded are not enough; `_SUCCESS` is another marker.
    input(&backend, 1, 1_000, true);
    run(&backend, &once).run().expect(75);
    let marker = backend.folder.path().join(format!("in/dt={yesterday}/_DONE"));
    std::fs::write(marker, b"").unwrap();
    let report = run(&backend, &once).run().expect(0).json();
    assert_eq!((&report["outcome"], &report["ids"]), (&"published".into(), &1_000.into()));
    let page = std::fs::read_to_string(metrics).unwrap();
    assert!(page.contains("bloomsday_build_late{filter=\"rt\"} 0"), "{page}");
    let runs = "bloomsday_build_runs_total{filter=\"rt\",outcome=\"published\"} 1";
    assert!(page.contains(runs), "{page}");
    promtool_accepts(&page);
}

#[test]
fn files_without_a_marker_are_built_once_they_hold_still() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0\nsettle = \"20ms\"");
    input(&backend, 1, 1_000, false);
    let report = run(&backend, &["schedule", "--once"]).run().expect(0).json();
    assert_eq!(report["outcome"], "published");
}

#[test]
fn a_run_whose_metrics_cannot_be_written_builds_and_fails() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0");
    input(&backend, 1, 1_000, true);
    let once = ["schedule", "--once", "--metrics-file", "/nowhere/bloomsday.prom"];
    let built = run(&backend, &once).run().expect(1);
    assert_eq!(built.json()["outcome"], "published");
    assert_eq!(built.stderr.matches("/nowhere/bloomsday.prom").count(), 1, "{}", built.stderr);
    let last = built.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: the metrics could not be written"), "{}", built.stderr);
}

/// The files of one settle for a while; the other's come then.
#[test]
fn a_filter_whose_files_come_while_another_one_has_work_is_built_in_the_same_run() {
    let backend = Backend::local();
    let folder = backend.folder.path();
    let second = format!(
        "catch_up_days = 0\nsettle = \"3s\"\n[filters.second]\ninput = \"{}/in2/dt={{day}}/\"\ncolumn = \"device_id\"\n\
         schedule = \"0 0 * * *\"\nmarker = \"_SUCCESS\"\nsettle = \"0s\"\ncatch_up_days = 0\n",
        folder.display()
    );
    configure(&backend, &second);
    input(&backend, 1, 1_000, false);
    let late = folder.join(format!("in2/dt={}", today().minus(1)));
    write_users(&late.join("part-0.parquet"), 0..1_000);
    let mut command = run(&backend, &["schedule", "--once"]).into_command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.as_mut().unwrap()).lines().map_while(Result::ok);
    let waits = said.into_iter().find(|line| line.contains("not ready yet: `_SUCCESS`"));
    assert!(waits.is_some(), "it does not wait for the second");
    std::fs::write(late.join("_SUCCESS"), b"").unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    for filter in ["rt", "second"] {
        assert_eq!(run(&backend, &["status", filter]).run().expect(0).json()["state"], "ok");
    }
}

/// While a long build of one filter holds up the other's, a person builds that.
#[test]
fn a_day_that_was_built_by_hand_before_its_turn_came_is_not_built_again() {
    let backend = Backend::local();
    let (folder, yesterday) = (backend.folder.path(), today().minus(1).to_string());
    let quick = folder.join(format!("in2/dt={yesterday}"));
    let second = format!(
        "catch_up_days = 0\n[filters.second]\ninput = \"{}/in2/dt={{day}}/\"\ncolumn = \"device_id\"\n\
         schedule = \"0 0 * * *\"\ncatch_up_days = 0\n",
        folder.display()
    );
    configure(&backend, &second);
    input(&backend, 1, 3_000_000, true);
    write_users(&quick.join("part-0.parquet"), 0..1_000);
    std::fs::write(quick.join("_SUCCESS"), b"").unwrap();

    let metrics = folder.join("bloomsday.prom");
    let once = ["schedule", "--once", "--metrics-file", metrics.to_str().unwrap()];
    let mut child = run(&backend, &once).into_command().stdout(Stdio::null()).spawn().unwrap();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    until("one of them is built", || {
        let page = std::fs::read_to_string(&metrics).unwrap_or_default();
        page.contains("bloomsday_build_running{filter=\"rt\"} 1").then_some(())
    });
    signal("-STOP");
    run(&backend, &["build", "second", "--day", &yesterday]).run().expect(0);
    signal("-CONT");
    assert!(child.wait().unwrap().success());
    let said = run(&backend, &["history", "second"]).run().expect(0).stdout;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(run(&backend, &["status", "rt"]).run().expect(0).json()["state"], "ok");
}

#[test]
fn a_marker_is_enough_without_any_time_to_settle() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0\nsettle = \"0s\"");
    input(&backend, 1, 1_000, true);
    let report = run(&backend, &["schedule", "--once"]).run().expect(0).json();
    assert_eq!(report["outcome"], "published");
}

#[test]
fn failed_and_unchanged_runs_are_in_the_history_too() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0");
    input(&backend, 1, 1_000, true);
    let part = backend.folder.path().join(format!("in/dt={}/part-0.parquet", today().minus(1)));
    let good = std::fs::read(&part).unwrap();
    std::fs::write(&part, b"PAR1 and then nothing").unwrap();
    run(&backend, &["schedule", "--once"]).run().expect(75).complains(&["part-0.parquet"]);
    let events = history(&backend);
    assert_eq!((events.len(), &events[0]["outcome"]), (1, &"failed".into()));
    assert!(events[0]["reason"].as_str().unwrap().contains("part-0.parquet"), "{events:?}");
    // The pause after a failure is kept by whoever comes next.
    run(&backend, &["schedule", "--once"]).run().expect(75);
    assert_eq!(history(&backend).len(), 1);

    // Built by hand, which ends the matter.
    std::fs::write(&part, good).unwrap();
    let day = today().minus(1).to_string();
    run(&backend, &["build", "rt", "--day", &day]).run().expect(0);
    assert_eq!(run(&backend, &["schedule", "--once"]).run().expect(0).stdout, "");
}

#[test]
fn a_refusal_from_before_the_run_was_due_is_not_that_of_the_run() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0");
    input(&backend, 2, 2_000, true);
    input(&backend, 1, 900, true);
    let [before, day] = [2, 1].map(|back| today().minus(back).to_string());
    run(&backend, &["build", "rt", "--day", &before]).run().expect(0);
    run(&backend, &["build", "rt", "--day", &day]).run().expect(6);
    // As if a person had tried it the day before.
    let folder = Path::new(&backend.store).join("rt/history");
    let at = |event: &serde_json::Value| event["at"].as_str().unwrap().to_owned();
    let refused = at(&history(&backend)[0]);
    let earlier = refused.replace(&today().to_string(), &day);
    let digits = |time: &str| time[..10].replace('-', "");
    for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        if text.contains(&refused) {
            let name = entry.file_name().into_string().unwrap();
            let name = name.replace(&digits(&refused), &digits(&earlier));
            std::fs::write(folder.join(name), text.replace(&refused, &earlier)).unwrap();
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(at(&history(&backend)[1]), earlier);
    run(&backend, &["schedule", "--once"]).run().expect(6);
    // It is the end of the run, for whoever comes next.
    for _ in 0..2 {
        run(&backend, &["schedule", "--once"]).run().expect(0);
    }
    assert_eq!(history(&backend).len(), 3);
}

#[test]
fn two_schedulers_at_once_publish_each_day_once() {
    for backend in Backend::all() {
        configure(&backend, "catch_up_days = 1");
        (1..=2).for_each(|back| input(&backend, back, 20_000, true));
        let both: Vec<_> = (0..2)
            .map(|_| run(&backend, &["schedule", "--once"]).into_command())
            .map(|mut command| {
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for child in both {
            let ended = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            // The later one finds it unchanged, sees the pointer move under it, or reads the blob
            // back while the other uploads the same bytes again, which it would try again in a
            // minute.
            assert!(matches!(ended.status.code(), Some(0 | 5 | 75)), "{said}");
        }
        let published = |day: u32| {
            let day = today().minus(day).to_string();
            let events = history(&backend);
            events.iter().filter(|a| a["day"] == *day && a["outcome"] == "published").count()
        };
        assert_eq!((published(1), published(2)), (1, 1));
        let status = run(&backend, &["status", "rt"]).run().expect(0).json();
        assert_eq!(status["state"], "ok");
    }
}

#[test]
fn a_long_running_scheduler_is_scraped_and_stops_at_sigterm() {
    let backend = Backend::local();
    configure(&backend, "catch_up_days = 0");
    input(&backend, 1, 1_000, true);
    let mut command = run(&backend, &["schedule", "--metrics", "127.0.0.1:0"]).into_command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let at = next()["metrics"].as_str().unwrap().to_owned();
    assert_eq!(next()["outcome"], "published");
    let get = |path: &str| {
        let mut answer = ureq::get(format!("http://{at}{path}")).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    };
    assert_eq!(get("/livez"), "live\n");
    assert!(get("/metrics").contains("bloomsday_build_ids{filter=\"rt\"} 1000"));
    promtool_accepts(&get("/metrics"));
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_impossible_schedule_is_refused_and_a_good_one_is_explained() {
    let backend = Backend::local();
    configure(&backend, "");
    let file = backend.folder.path().join("bloomsday.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    for (line, reason) in [
        ("0 0 * * 1", "Sunday or Monday"),
        ("0 0 1 * MON", "not both"),
        ("0 0 30 2 *", "no date ever"),
        ("* * * * * *", "five fields"),
    ] {
        std::fs::write(&file, good.replace("0 0 * * *", line)).unwrap();
        run(&backend, &["schedule", "--once"]).run().expect(2).complains(&[reason, "schedule"]);
    }
    std::fs::write(&file, good).unwrap();
    std::fs::create_dir_all(Path::new(&backend.store)).unwrap();
    let said = bloomsday(&["config", "check"]).current_dir(backend.folder.path()).run().expect(0);
    assert!(said.stdout.contains(&format!("{} at ", today())), "{}", said.stdout);
    assert!(!said.stdout.contains("schedule (not acted on"), "{}", said.stdout);
    let listed = run(&backend, &["schedule", "--dry-run"]).run().expect(0).json();
    assert_eq!(listed["open"][0]["standing"], "to be built");
    assert_eq!(listed["next"].as_array().unwrap().len(), 3);
    bloomsday(&["schedule", "--store", &backend.store]).run().expect(2).complains(&["schedule = "]);
}

/// Has Prometheus's own checker read the page, where it is installed.
fn promtool_accepts(page: &str) {
    use std::io::Write;
    if !INTEGRATION {
        return;
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs (tests/run.sh installs it)");
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    assert!(said.status.success(), "{}{page}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn a_marker_in_one_folder_of_a_glob_completes_no_day() {
    for backend in Backend::all() {
        let folder = backend.folder.path();
        let day = folder.join(format!("in/dt={}", today().minus(1)));
        for hour in ["hour=00", "hour=01"] {
            write_users(&day.join(hour).join("a.parquet"), 0..1_000);
        }
        let done = |hour: &str| std::fs::write(day.join(hour).join("DONE"), b"").unwrap();
        let metrics = folder.join("bloomsday.prom");
        let once = ["schedule", "--once", "--metrics-file", metrics.to_str().unwrap()];
        configure(&backend, "catch_up_days = 0\nmarker = \"DONE\"");
        let file = folder.join("bloomsday.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("dt={day}/", "dt={day}/hour=*/*.parquet")).unwrap();
        done("hour=00");
        let waits = run(&backend, &once).run().expect(75);
        waits.complains(&["not built yet", "`DONE` is missing in 1 of 2 folders", "/hour=01"]);
        let page = std::fs::read_to_string(&metrics).unwrap();
        let waiting = "bloomsday_build_waiting{filter=\"rt\",reason=\"marker\"} 1";
        assert!(page.contains(waiting), "{page}");
        promtool_accepts(&page);
        let listed = run(&backend, &["schedule", "--dry-run"]).run().expect(0).json();
        assert!(listed["open"][0]["because"].as_str().unwrap().contains("hour=01"), "{listed}");
        done("hour=01");
        run(&backend, &once).run().expect(0);
    }
}

#[test]
fn success_markers_below_a_glob_are_found_in_each_folder_and_above_them() {
    for above in [false, true] {
        let backend = Backend::local();
        let folder = backend.folder.path();
        let day = folder.join(format!("in/dt={}", today().minus(1)));
        for hour in ["hour=00", "hour=01"] {
            write_users(&day.join(hour).join("a.parquet"), 0..1_000);
            if !above {
                std::fs::write(day.join(hour).join("_SUCCESS"), b"").unwrap();
            }
        }
        if above {
            std::fs::write(day.join("_SUCCESS"), b"").unwrap();
        }
        // Named, so that nothing but the marker makes it ready.
        configure(&backend, "catch_up_days = 0\nmarker = \"_SUCCESS\"");
        let file = folder.join("bloomsday.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("dt={day}/", "dt={day}/hour=*/*.parquet")).unwrap();
        let report = run(&backend, &["schedule", "--once"]).run().expect(0).json();
        assert_eq!(report["outcome"], "published");
    }
}
