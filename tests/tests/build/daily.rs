//! The daily loop, on every kind of store: build, publish, status, history, repoint, pin.

use std::fs;
use std::path::Path;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::publisher::Publisher;

/// A day's input of its own, holding these users.
fn users(backend: &Backend, name: &str, range: std::ops::Range<u64>) -> std::path::PathBuf {
    let folder = backend.folder.path().join(name);
    write_users(&folder.join("part-0.parquet"), range);
    folder
}

#[test]
fn a_day_is_published_and_every_id_is_answered_yes() {
    for backend in Backend::all() {
        let day = today().to_string();
        let run =
            Publisher::day(&backend, &day).input(users(&backend, "in", 0..20_000)).run().expect(0);
        let report = run.json();
        assert_eq!(report["outcome"], "published");
        assert_eq!((&report["ids"], &report["rows"]), (&20_000.into(), &20_000.into()));
        let fpp = report["fpp_measured"].as_f64().unwrap();
        assert!(fpp > 0.02 && fpp <= 0.03, "measured {fpp}");
        assert!(report["bits_per_id"].as_f64().unwrap() < 8.0);
        let blob = report["blob"].as_str().unwrap();
        assert_eq!(blob, format!("rt/blobs/{day}-{}.bloom", report["digest"].as_str().unwrap()));

        let all: String = (0..20_000).map(|n| user(n) + "\n").collect();
        let queried = backend.bloomsday(&["query", "rt"]).stdin(all.as_bytes()).run().expect(0);
        assert_eq!(queried.stdout.matches("\"contains\":true").count(), 20_000);
        let absent: String = (50_000..150_000).map(|n| user(n) + "\n").collect();
        let queried = backend.bloomsday(&["query", "rt"]).stdin(absent.as_bytes()).run().expect(0);
        let wrong = queried.stdout.matches("\"contains\":true").count();
        assert!((2_500..=3_150).contains(&wrong), "{wrong} of 100,000 absent IDs");
        backend.bloomsday(&["query", "rt", &user(7)]).run().expect(0);
        backend.bloomsday(&["query", "rt", "nobody"]).run().expect(3);
    }
}

#[test]
fn the_same_ids_give_the_same_blob_in_any_order_files_and_threads() {
    for backend in Backend::all() {
        let day = today().to_string();
        let one = users(&backend, "one", 0..30_000);
        let first = Publisher::day(&backend, &day)
            .input(&one)
            .with(&["--threads", "1"])
            .run()
            .expect(0)
            .json();
        assert_eq!(first["outcome"], "published");

        let many = backend.folder.path().join("many");
        for (i, start) in [20_000u64, 0, 10_000, 5_000].into_iter().enumerate() {
            // Overlapping files: duplicates across files do not change the bytes either.
            write_users(&many.join(format!("part-{i}.parquet")), start..start + 10_000);
        }
        for threads in ["2", "3"] {
            let again = Publisher::day(&backend, &day)
                .input(&many)
                .with(&["--threads", threads, "--memory", "64KiB"])
                .run();
            let again = again.expect(0).json();
            assert_eq!(again["outcome"], "unchanged");
            assert_eq!(again["digest"], first["digest"]);
            assert_eq!((&again["ids"], &again["rows"]), (&30_000.into(), &40_000.into()));
        }
    }
}

#[test]
fn a_rollback_stands_against_the_same_data_and_yields_to_mended_data() {
    for backend in Backend::all() {
        let (day, before) = (today().to_string(), today().minus(1).to_string());
        Publisher::day(&backend, &before).input(users(&backend, "a", 0..5_000)).run().expect(0);
        let bad = users(&backend, "bad", 0..3_000);
        let bad_report = Publisher::day(&backend, &day).input(&bad).run().expect(0).json();

        let reason = ["--reason", "half of it was missing"];
        let words = [&["repoint", "rt", &day, "--to", &before][..], &reason].concat();
        let done = backend.bloomsday(&words).run().expect(0).json();
        assert_eq!((&done["outcome"], &done["rolled_back"]), (&"published".into(), &true.into()));
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!(status["state"], "rolled_back");
        assert_eq!(
            (&status["day"], &status["pointer_day"]),
            (&before.clone().into(), &day.clone().into())
        );
        assert_eq!(status["reason"], "half of it was missing");

        let again = Publisher::day(&backend, &day).input(&bad).run().expect(5);
        assert_eq!(again.json()["outcome"], "superseded");
        again.complains(&["rolled back", "bloomsday repoint rt"]);
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!(status["state"], "rolled_back", "the re-run undid the rollback");

        let mended = users(&backend, "mended", 0..6_000);
        assert_eq!(
            Publisher::day(&backend, &day).input(&mended).run().expect(0).json()["outcome"],
            "published"
        );
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!((&status["state"], &status["day"]), (&"ok".into(), &day.clone().into()));

        // Two blobs of one day, and its pointer names one: that is the one meant.
        let blob = bad_report["blob"].as_str().unwrap();
        backend.bloomsday(&["repoint", "rt", &day, "--to", blob]).run().expect(0);
        backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
        let several = backend.bloomsday(&["repoint", "rt", &day, "--to", &day]).run().expect(2);
        several.complains(&["several blobs", blob]);

        let history = backend.bloomsday(&["history", "rt"]).run().expect(0).stdout;
        let outcome =
            |outcome: &str| history.matches(&format!("\"outcome\":\"{outcome}\"")).count();
        assert_eq!((outcome("published"), outcome("superseded")), (6, 1), "{history}");
        assert_eq!(history.matches("\"act\":\"repoint\"").count(), 3);
    }
}

#[test]
fn a_day_names_no_blob_that_a_gate_refused_or_a_rollback_left() {
    let backend = Backend::local();
    let days: Vec<String> = (0..4).rev().map(|ago| today().minus(ago).to_string()).collect();
    let [good, rolled_back, refused, day] = &days[..] else { unreachable!() };
    let build =
        |day: &str, ids| Publisher::day(&backend, day).input(users(&backend, day, 0..ids)).run();
    build(good, 5_000).expect(0);
    build(rolled_back, 5_100).expect(0);
    backend.bloomsday(&["repoint", "rt", rolled_back, "--to", good]).run().expect(0);
    let blob = build(refused, 500).expect(6).json()["blob"].as_str().unwrap().to_owned();
    build(day, 5_200).expect(0);
    for (command, status) in [(&["repoint", "rt", day][..], 2), (&["pin", "rt"], 0)] {
        let to = |to: &str| backend.bloomsday(&[command, &["--to", to]].concat()).run();
        let run = to(refused).expect(2);
        run.complains(&["a gate refused the only blob", &format!("all the same: --to {blob}")]);
        let run = to(rolled_back).expect(status);
        run.complains(&[&format!("its pointer names the blob of {good} (--to {good})")]);
    }
    // By its key, or for its own day, it is meant.
    backend.bloomsday(&["repoint", "rt", day, "--to", &blob]).run().expect(0);
    backend.bloomsday(&["repoint", "rt", refused, "--to", refused]).run().expect(0);
    backend.bloomsday(&["repoint", "rt", rolled_back, "--to", rolled_back]).run().expect(0);
}

#[test]
fn a_pin_overrides_the_pointers_while_builds_go_on() {
    for backend in Backend::all() {
        let (day, before) = (today().to_string(), today().minus(1).to_string());
        Publisher::day(&backend, &before).input(users(&backend, "a", 0..1_000)).run().expect(0);
        let until = ["--until", "24h", "--reason", "campaign"];
        backend.bloomsday(&[&["pin", "rt", "--to", &before][..], &until].concat()).run().expect(0);
        let report = Publisher::day(&backend, &day)
            .input(users(&backend, "b", 0..2_000))
            .run()
            .expect(0)
            .json();
        assert_eq!((&report["outcome"], &report["pinned"]), (&"published".into(), &true.into()));
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!((&status["state"], &status["day"]), (&"pinned".into(), &before.clone().into()));
        backend.bloomsday(&["query", "rt", &user(1_500)]).run().expect(3);
        backend.bloomsday(&["unpin", "rt"]).run().expect(0);
        backend.bloomsday(&["query", "rt", &user(1_500)]).run().expect(0);
        backend
            .bloomsday(&["pin", "rt", "--to", &before, "--until", "2020-01-01T00:00:00Z"])
            .run()
            .expect(2);
    }
}

#[test]
fn dry_runs_write_nothing() {
    for backend in Backend::all() {
        let (day, before) = (today().to_string(), today().minus(1).to_string());
        Publisher::day(&backend, &before).input(users(&backend, "a", 0..1_000)).run().expect(0);
        let input = users(&backend, "b", 0..2_000);
        let report = Publisher::day(&backend, &day)
            .input(&input)
            .with(&["--dry-run"])
            .run()
            .expect(0)
            .json();
        assert_eq!((&report["dry_run"], &report["ids"]), (&true.into(), &2_000.into()));
        backend.bloomsday(&["repoint", "rt", &day, "--to", &before, "--dry-run"]).run().expect(0);
        backend.bloomsday(&["pin", "rt", "--to", &before, "--dry-run"]).run().expect(0);
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!((&status["state"], &status["pointer_day"]), (&"ok".into(), &before.into()));
        let history = backend.bloomsday(&["history", "rt"]).run().expect(0).stdout;
        assert_eq!(history.lines().count(), 1, "{history}");
    }
}

#[test]
fn input_is_read_from_the_store_too_and_templates_name_the_day() {
    for backend in Backend::all() {
        // The store's own bucket holds the input as well; written through the library.
        let file = backend.folder.path().join("local/part-0.parquet");
        write_users(&file, 0..3_000);
        let input = if backend.store.starts_with("s3://") {
            let server = bloomsday_tests::backend::s3_server();
            let bucket = backend.store.split('/').nth(2).unwrap();
            let url = format!("{server}/{bucket}/raw/dt%3D{}/part-0.parquet", today());
            ureq::put(url).send(&std::fs::read(&file).unwrap()[..]).unwrap();
            format!("s3://{bucket}/raw/dt={{day}}/")
        } else {
            backend
                .folder
                .path()
                .join("{day:local}")
                .display()
                .to_string()
                .replace("{day:local}", "local")
        };
        let words = ["build", "rt", "--day", &today().to_string(), "--input", &input];
        let run = backend.bloomsday(&[&words[..], &["--column", "device_id"]].concat()).run();
        assert_eq!(run.expect(0).json()["ids"], 3_000);
    }
}

#[test]
fn the_configuration_file_serves_as_flags() {
    let backend = Backend::local();
    users(&backend, "in", 0..1_000);
    let folder = backend.folder.path();
    let text = format!(
        "store = \"{}\"\n[filters.rt]\ninput = \"{}/in\"\ncolumn = \"device_id\"\nfpp = 0.01\n",
        backend.store,
        folder.display()
    );
    std::fs::write(folder.join("bloomsday.toml"), text).unwrap();
    let run = |words: &[&str]| bloomsday_tests::program::bloomsday(words).current_dir(folder).run();
    let day = today().to_string();
    let report = run(&["build", "rt", "--day", &day, "--json"]).expect(0).json();
    assert_eq!((&report["fpp_target"], &report["ids"]), (&0.01.into(), &1_000.into()));
    let check = run(&["config", "check"]).expect(0).stdout;
    assert!(check.contains("filters.rt.fpp") && check.contains("honoured"), "{check}");
    assert!(run(&["status"]).expect(0).stdout.contains(&day));
}

#[test]
fn the_demo_runs_every_step() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = folder.path().display().to_string();
    let run =
        bloomsday_tests::program::bloomsday(&["demo", "--exit", "--json", "--dir", &dir]).run();
    let said = run.expect(0).stdout;
    let again = ["demo", "--exit", "--dir", &dir];
    let again = bloomsday_tests::program::bloomsday(&again).run().expect(2);
    assert_eq!(again.stdout, "", "it began all the same");
    again.complains(&["is there already", "choose another folder"]);
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes: Vec<&str> = lines.iter().filter_map(|line| line["outcome"].as_str()).collect();
    // Two days, the third, its reload, the rollback, its reload, and a re-run that does not undo
    // it.
    let story =
        ["published", "published", "published", "swapped", "published", "swapped", "superseded"];
    assert_eq!(outcomes, story, "{said}");
    // A user of yesterday, a new one; whoever comes now, before and after the add; all after the
    // third day; the new one after the rollback.
    let contains: Vec<bool> = lines.iter().filter_map(|line| line["contains"].as_bool()).collect();
    assert_eq!(contains, [true, false, false, true, true, true, true, false], "{said}");
}

#[test]
fn a_history_that_cannot_be_read_undoes_no_rollback() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let build = Publisher::days_ago(&backend, 0).users(0..1_100);
    build.publish();
    let (folder, day) = (Path::new(&backend.store).join("rt"), today());
    let today = day.to_string();
    fs::remove_file(folder.join("pointers").join(&today)).unwrap();
    build.run().expect(5);
    let records = fs::read_dir(folder.join("history")).unwrap().map(|file| file.unwrap().path());
    let built = records.filter(|path| fs::read_to_string(path).unwrap().contains(&today)).max();
    fs::write(built.unwrap(), "{\"at\":").unwrap();
    build.run().expect(7).complains(&["rt/history/", "A rollback may hang on it", "restore it"]);
    assert!(!folder.join("pointers").join(&today).exists());
    // It can be rolled back all the same.
    let yesterday = day.minus(1).to_string();
    let repoint = ["repoint", "rt", &today, "--to", &yesterday];
    backend.bloomsday(&repoint).run().expect(0);
}
