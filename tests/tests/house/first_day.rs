//! Before the first day is built, and with values that nobody can mean: what works says so, and
//! what does not is refused where it is read.

use std::fs;

use bloomsday_tests::azure::Azure;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::nginx::Nginx;
use bloomsday_tests::program::{Run, bloomsday};
use serde_json::Value;

/// A folder of Parquet, and a configuration that schedules it.
fn configuration(backend: &Backend) -> String {
    let input = backend.folder.path().join("in");
    write_users(&input.join("a.parquet"), 0..500);
    let file = backend.folder.path().join("bloomsday.toml");
    let input = input.display();
    let text = format!(
        "[filters.rt]\ninput = \"{input}\"\ncolumn = \"device_id\"\nschedule = \"0 2 * * *\"\n"
    );
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn run(backend: &Backend, config: &str, words: &[&str]) -> Run {
    backend.bloomsday(&[words, &["--config", config]].concat()).run()
}

/// What an engineer tries before the first build, and what must be there afterwards: nothing.
fn rehearse(backend: &Backend) {
    let config = configuration(backend);
    let day = today().minus(1).to_string();
    let check = run(backend, &config, &["config", "check"]).expect(0);
    assert!(check.stdout.contains("conditional writes"), "{}", check.stdout);
    let due = run(backend, &config, &["schedule", "--dry-run"]).expect(0).json();
    assert_eq!(due["open"][0]["standing"], "to be built", "{due}");
    let built = run(backend, &config, &["build", "rt", "--day", &day, "--dry-run"]).expect(0);
    assert_eq!(built.json()["ids"], 500);
    run(backend, &config, &["build", "rt", "--day", &day]).expect(0);
}

#[test]
fn a_first_day_can_be_rehearsed_where_the_folder_is_not_there_yet() {
    let backend = Backend::local();
    let config = configuration(&backend);
    run(&backend, &config, &["config", "check"]).expect(0);
    run(&backend, &config, &["schedule", "--dry-run"]).expect(0);
    let day = today().minus(1).to_string();
    run(&backend, &config, &["build", "rt", "--day", &day, "--dry-run"]).expect(0);
    assert!(!std::path::Path::new(&backend.store).exists(), "a rehearsal made the store");
    rehearse(&backend);
}

#[test]
fn the_check_shows_what_the_environment_says_to_a_server() {
    let backend = Backend::local();
    let config = configuration(&backend);
    let check = |variable: &'static str, value: &str| {
        let words = ["config", "check", "--dry-run", "--config", &config];
        backend.bloomsday(&words).envs(&[(variable, value.to_owned())]).run()
    };
    let shown = check("BLOOMSDAY_LISTEN", "127.0.0.1:9999").expect(0).stdout;
    let rows: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let from = |name: &str| &rows.iter().find(|row| row["name"] == name).unwrap()["from"];
    assert!(shown.contains("127.0.0.1:9999"), "{shown}");
    assert_eq!((from("listen"), from("admin")), (&"environment".into(), &"default".into()));
    check("BLOOMSDAY_POLL_INTERVAL", "2days")
        .expect(2)
        .complains(&["in the environment", "at most 1day"]);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_first_day_can_be_rehearsed_in_an_empty_bucket() {
    rehearse(&Backend::s3());
    let azure = Azure::start();
    rehearse(&azure.backend("first"));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_configuration_of_a_server_over_plain_http_passes() {
    let backend = Backend::local();
    fs::create_dir_all(&backend.store).unwrap();
    let nginx = Nginx::of(backend.folder.path());
    let address = nginx.url("store");
    let check = bloomsday(&["config", "check", "--store", &address, "--json"]).run().expect(0);
    assert!(check.stdout.contains("can only be read"), "{}", check.stdout);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_bucket_that_is_not_there_is_not_found_at_once() {
    let azure = Azure::start();
    let (s3, blobs) = (Backend::s3(), azure.backend("there"));
    for (there, missing) in [(s3, "s3://no-such-bucket/x"), (blobs, "az://no-such-container/x")] {
        let config = configuration(&there);
        let day = today().minus(1).to_string();
        let absent =
            Backend { store: missing.into(), env: there.env.clone(), folder: there.folder };
        for words in [
            &["build", "rt", "--day", &day][..],
            &["status", "rt"],
            &["history", "rt"],
            &["query", "rt", "some-id"],
            &["repoint", "rt", &day, "--to", &day],
            &["prune"],
            &["prune", "rt"],
            &["config", "check"],
            &["schedule", "--once"],
        ] {
            let run = run(&absent, &config, words).expect(4);
            run.complains(&["no such bucket or container"]);
        }
        // The same for what is read.
        let build = ["build", "rt", "--day", &day, "--input", missing, "--column", "device_id"];
        let store = Backend { store: there.store, env: absent.env, folder: absent.folder };
        store.bloomsday(&build).run().expect(4).complains(&["no-such-"]);
    }
}

#[test]
fn values_that_nobody_can_mean_are_refused_where_they_are_read() {
    let backend = Backend::local();
    let config = configuration(&backend);
    let day = today().minus(1).to_string();
    run(&backend, &config, &["build", "rt", "--day", &day]).expect(0);
    for words in [
        &["prune", "--keep-days", "99999999"][..],
        &["prune", "rt", "--keep-days", "4294967295"],
        &["prune", "rt", "--keep-days", "0"],
        &["build", "rt", "--day", &day, "--accept-change", ""],
        &["build", "rt", "--day", &day, "--accept-change", " \t"],
        &["repoint", "rt", &day, "--to", &day, "--reason", ""],
        &["repoint", "rt", "2099-01-01", "--to", &day],
        &["repoint", "rt", "9999-12-31", "--to", &day],
        &["pin", "rt", "--to", &day, "--reason", ""],
        &["pin", "rt", "--to", &day, "--reason", &"x".repeat(70_000)],
        &["unpin", "rt", "--reason", " "],
    ] {
        run(&backend, &config, words).expect(2);
    }
    for (line, named) in [
        ("keep_days = 4294967295", "keep_days"),
        ("max_age_days = 4294967295", "max_age_days"),
        ("max_age_days = 3000000", "max_age_days"),
        ("day_offset = 4294967295", "day_offset"),
        ("deadline = \"300000000000000000s\"", "deadline"),
        ("guard_max_hold = \"300000000000000000s\"", "guard_max_hold"),
    ] {
        let file = backend.folder.path().join("absurd.toml");
        fs::write(&file, format!("[filters.rt]\n{line}\n")).unwrap();
        let absurd = file.display().to_string();
        for words in [&["config", "check"][..], &["query", "rt", "x"], &["serve"], &["prune"]] {
            run(&backend, &absurd, words).expect(2).complains(&[named]);
        }
    }
    run(&backend, &config, &["query", "rt", &user(7)]).expect(0);
}

#[test]
fn the_record_names_the_user_also_without_the_variable() {
    let backend = Backend::local();
    let config = configuration(&backend);
    let day = today().minus(1).to_string();
    let words = ["build", "rt", "--day", &day, "--config", &config];
    let mut command = backend.bloomsday(&words).into_command();
    let built = command.env_remove("USER").env_remove("LOGNAME").output().unwrap();
    assert!(built.status.success());
    let id = std::process::Command::new("id").arg("-un").output().unwrap();
    let name = String::from_utf8(id.stdout).unwrap();
    let pointer = fs::read_to_string(format!("{}/rt/pointers/{day}", backend.store)).unwrap();
    assert!(pointer.contains(&format!("\"{}@", name.trim())), "{pointer}");
}
