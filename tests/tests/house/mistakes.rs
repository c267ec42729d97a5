//! What operators mistype, and what lies in a store by mistake: an error that names it.
#![cfg(feature = "integration")]

use std::fs;
use std::path::{Path, PathBuf};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::today;
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;

/// A local store with yesterday's filter.
fn store() -> (Backend, String) {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    (backend, today().minus(1).to_string())
}

fn blob(backend: &Backend) -> PathBuf {
    let files = fs::read_dir(Path::new(&backend.store).join("rt/blobs")).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "bloom")).unwrap()
}

#[test]
fn a_mistyped_filter_is_not_found_and_those_that_are_there_are_named() {
    let (backend, _) = store();
    for command in ["status", "prune", "unpin"] {
        let run = backend.bloomsday(&[command, "typo"]).run().expect(4);
        run.complains(&["no filter `typo`", "there are: rt"]);
        backend.bloomsday(&[command, "rt"]).run().expect(0);
    }
}

#[test]
fn a_day_that_no_server_follows_is_repointed_with_a_word() {
    let (backend, day) = store();
    let old = today().minus(30).to_string();
    for (repointed, is_old) in [(&old, true), (&day, false)] {
        let words = ["repoint", "rt", repointed, "--to", &day, "--dry-run"];
        let run = backend.bloomsday(&words).run().expect(0);
        assert_eq!(run.stderr.contains("no server follows"), is_old, "{}", run.stderr);
    }
}

#[test]
fn a_repoint_that_servers_do_not_follow_yet_says_what_they_follow() {
    let (backend, day) = store();
    let repoint = |of: &str| {
        let words = ["repoint", "rt", of, "--to", &day, "--dry-run"];
        let run = backend.bloomsday(&words).run().expect(0);
        (run.json()["not_followed"].as_str().unwrap_or_default().to_owned(), run.stderr)
    };
    assert_eq!(repoint(&day).0, "");
    let (why, said) = repoint(&today().minus(2).to_string());
    assert_eq!(why, format!("servers follow the pointer of {day}, which is newer"));
    assert!(said.contains(&why), "{said}");
    backend.bloomsday(&["pin", "rt", "--to", &day, "--reason", "test"]).run().expect(0);
    assert!(repoint(&day).0.starts_with("a pin keeps servers on "), "{:?}", repoint(&day));
    let record = |key: &str| Path::new(&backend.store).join(key);
    fs::remove_file(record("rt/pin")).unwrap();
    fs::write(record(&format!("rt/pointers/{day}")), "garbage").unwrap();
    assert_eq!(repoint(&day).0, "", "the command would replace it");
    fs::write(record("rt/pin"), "garbage").unwrap();
    let (why, _) = repoint(&day);
    assert!(why.starts_with("servers keep what they have: rt/pin cannot be read"), "{why}");
}

#[test]
fn a_folder_in_place_of_a_file_is_named_and_does_not_count_as_none() {
    let (backend, day) = store();
    let pointer = Path::new(&backend.store).join(format!("rt/pointers/{day}"));
    for path in [pointer.clone(), blob(&backend)] {
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let run = backend.bloomsday(&["query", "rt", "x"]).run();
        assert!(![0, 3, 4].contains(&run.code), "{}", run.stdout);
        run.complains(&["is a folder, not a file: move it away"]);
        if path == pointer {
            // A report goes on.
            let report = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
            assert_eq!(report["state"], "failing", "{report}");
        }
        fs::remove_dir(&path).unwrap();
        fs::write(&path, &kept).unwrap();
    }
    backend.bloomsday(&["query", "rt", "x"]).run().expect(3);
}

#[test]
fn a_trace_says_nothing_for_certain_of_days_that_it_cannot_read() {
    let (backend, _) = store();
    let trace = || backend.bloomsday(&["trace", "rt", "never-there"]).run();
    trace().expect(3);
    fs::write(blob(&backend), "").unwrap();
    trace().expect(1).complains(&["1 of 1 days could not be read"]);
}

#[test]
fn live_filters_alone_have_no_admin_address() {
    let words = ["serve", "--resp", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let run = bloomsday_tests::program::bloomsday(&words).run().expect(2);
    run.complains(&["--admin is for filters that are followed"]);
}

#[test]
fn what_serve_and_schedule_refuse_is_refused_by_a_check_of_the_configuration() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("bloomsday.toml");
    for (text, says) in [
        ("admin = \"0.0.0.0:8643\"", "needs a token"),
        ("listen = \"127.0.0.1:9\"\nadmin = \"127.0.0.1:9\"", "give each its own"),
        ("tls_cert = \"/etc/cert.pem\"", "needs a key too"),
        ("[resp]\nack = \"synced\"", "needs a folder"),
        ("[resp]\nlisten = \"0.0.0.0:6380\"", "needs a token"),
        ("[filters.rt]\ncolumn = \"id\"\nschedule = \"0 2 * * *\"", "no input is named"),
    ] {
        fs::write(&file, text).unwrap();
        let words = ["config", "check", "--config", file.to_str().unwrap()];
        bloomsday_tests::program::bloomsday(&words).run().expect(2).complains(&[says]);
    }
    let token = folder.path().join("token");
    let with_token =
        format!("admin_token_file = \"{}\"\nadmin = \"0.0.0.0:8643\"", token.display());
    fs::write(&file, &with_token).unwrap();
    let words = ["config", "check", "--config", file.to_str().unwrap()];
    let check = || bloomsday_tests::program::bloomsday(&words).run();
    check().expect(2).complains(&["the token file", "cannot be read"]);
    fs::write(&token, "secret").unwrap();
    check().expect(0);
    let folder = folder.path().display().to_string();
    fs::create_dir(format!("{folder}/store")).unwrap();
    let rt = "[filters.rt]\n";
    for (text, says) in [
        (format!("{rt}input = \"\""), "it is empty"),
        (format!("{rt}input = \"days/{{day\""), "no closing brace"),
        (format!("{rt}input = \"days/{{dya}}\""), "`{dya}` is unknown"),
        (format!("{rt}input = \"a/[x\""), "a/[x"),
        (format!("{rt}input = \"s3://\""), "s3://"),
        (format!("{rt}input = \"ftp://x/{{day}}\""), "ftp://x/"),
        (format!("{rt}input = [\"live:\", \"in\"]"), "name no other"),
        (format!("{rt}input = \"live:\"\nlayout = \"guava\""), "the layout `blocked`"),
        (format!("{rt}input = \"in\"\ncolumn = \"\""), "no column is named"),
        ("tls_cert = \"/no/cert\"\ntls_key = \"/no/key\"".into(), "/no/"),
        ("[resp]\ntoken_file = \"/no/token\"".into(), "the token file /no/token"),
        (format!("store = \"{folder}/store\"\ncache_dir = \"{folder}/store/c\""), "in the store"),
        (format!("store = \"{folder}/store\"\ncache_dir = \"{folder}\""), "is in it"),
        (format!("store = \"{folder}/none\"\ncache_dir = \"{folder}/none/c\""), "in the store"),
        (format!("store = \"{folder}/token\""), "is no folder"),
        (format!("store = \"{folder}/token/below\""), "is no folder"),
        (
            format!("{rt}live = \"decide\"\nlive_engine = \"redis://127.0.0.1:1\""),
            "no log to send there",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        assert_eq!(check().code, 2, "{text}");
        check().complains(&[says]);
    }
    // A folder that is written anew each night has no day in its path.
    fs::write(&file, "[filters.rt]\ninput = \"in\"\ncolumn = \"id\"\nschedule = \"0 2 * * *\"")
        .unwrap();
    check().expect(0).complains(&["is the same each day", "catch_up_days = 0"]);
    fs::write(&file, "[filters.rt]\ninput = \"live:\"\nschedule = \"0 2 * * *\"").unwrap();
    assert!(!check().expect(0).stderr.contains("{day}"));
}

#[test]
fn a_wrong_configuration_stops_no_command_that_does_not_read_it() {
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("bloomsday.toml"), "x = = 3").unwrap();
    fs::write(folder.path().join("text"), "so many words as to have a fingerprint").unwrap();
    let run =
        |words: &[&str]| bloomsday_tests::program::bloomsday(words).current_dir(folder.path());
    run(&["simhash", "text"]).run().expect(0);
    run(&["plan", "--ids", "1k"]).run().expect(0);
    run(&["status"]).run().expect(2).complains(&["bloomsday.toml is wrong: line 1"]);
}

#[test]
fn an_empty_variable_counts_as_none_and_a_wrong_rust_log_is_named() {
    let (backend, _) = store();
    let config = backend.folder.path().join("config.toml");
    fs::write(&config, format!("store = \"{}\"\n", backend.store)).unwrap();
    let words = ["status", "rt", "--config", config.to_str().unwrap()];
    let run = |variable: &'static str, value: &str| {
        let run = bloomsday_tests::program::bloomsday(&words);
        run.envs(&[(variable, value.to_owned())]).run().expect(0)
    };
    assert_eq!(run("BLOOMSDAY_STORE", "").stderr, "");
    assert_eq!(run("BLOOMSDAY_POINTERS", "").stderr, "");
    let bare = bloomsday_tests::program::bloomsday(&["status", "rt", "--store", &backend.store]);
    bare.envs(&[("BLOOMSDAY_CONFIG", String::new())]).run().expect(0);
    let wrong = run("RUST_LOG", "bloomsday=loud");
    wrong.complains(&["warning: RUST_LOG is ignored: "]);
}

#[test]
fn numbers_beyond_any_machine_are_planned_without_a_panic() {
    let most = u64::MAX.to_string();
    let words = ["plan", "--ids", "1k", "--rows", &most, "--threads", "1"];
    let run = bloomsday_tests::program::bloomsday(&words).run();
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert_ne!(run.code, 101);
}

#[test]
fn what_a_server_refuses_the_check_of_the_configuration_refuses_in_the_same_words() {
    let (backend, _) = store();
    let config = backend.folder.path().join("bloomsday.toml");
    let inside = Path::new(&backend.store).join("data").display().to_string();
    let live = "[filters.a]\nlive = \"decide\"\n[filters.b]\nlive = \"decide\"\n";
    // The store is the folder of the logs.
    let data = backend.folder.path().join("data");
    let logs = data.join("live").display().to_string();
    fs::create_dir_all(&logs).unwrap();
    fs::write(&config, format!("[filters.rt]\n[resp]\ndata_dir = \"{}\"\n", data.display()))
        .unwrap();
    let file = config.display().to_string();
    for words in [&["config", "check"][..], &["serve"]] {
        let words = [words, &["--config", &file, "--store", &logs]].concat();
        bloomsday(&words).run().expect(2).complains(&["the store is in the data folder"]);
    }
    for (text, why) in [
        (
            "listen = \"127.0.0.1:28642\"\nadmin = \"127.0.0.1:28642\"\n[filters.rt]\n",
            "lookups and for reloads",
        ),
        (
            "listen = \"127.0.0.1:28642\"\n[filters.rt]\n[resp]\nlisten = \"127.0.0.1:28642\"\n",
            "Redis clients and for HTTP",
        ),
        (&format!("[filters.rt]\n[resp]\ndata_dir = \"{inside}\"\n"), "is in the store"),
        (&format!("{live}[resp]\nmax_filters = 1\n"), "raise `max_filters`"),
    ] {
        fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        for words in [&["config", "check"][..], &["serve"]] {
            let words = [words, &["--config", &config]].concat();
            backend.bloomsday(&words).run().expect(2).complains(&[why]);
        }
    }
}

#[test]
fn an_admin_address_without_filters_ends_serve_and_the_check_warns_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bloomsday.toml");
    fs::write(&config, "[resp]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let config = config.display().to_string();
    let admin = [("BLOOMSDAY_ADMIN", "127.0.0.1:0".to_owned())];
    for (words, code) in [(&["config", "check"][..], 0), (&["serve"], 2)] {
        let words = [words, &["--config", &config]].concat();
        let run = bloomsday_tests::program::bloomsday(&words).envs(&admin).run();
        run.expect(code).complains(&["--admin is for filters that are followed"]);
    }
}
