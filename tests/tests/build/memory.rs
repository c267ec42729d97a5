//! `--memory` is the budget for all memory of a build, and `plan` estimates a day's build.

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::write_users;
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const FILES: u64 = 20;
const USERS_PER_FILE: u64 = 500_000;

/// Builds the folder `input`. Returns the report and the most memory that the build took.
fn build(backend: &Backend, more: &[&str]) -> (Value, u64) {
    let input = backend.folder.path().join("input");
    let (run, most) =
        Publisher::days_ago(backend, 0).input(input).with(more).prepare().run_measured();
    (run.expect(0).json(), most)
}

#[test]
fn a_build_stays_within_its_memory_and_makes_the_same_blob() {
    let (small, large) = (Backend::local(), Backend::local());
    for file in 0..FILES {
        let users = file * USERS_PER_FILE..(file + 1) * USERS_PER_FILE;
        write_users(&small.folder.path().join(format!("input/part-{file}.parquet")), users);
    }
    let input = |backend: &Backend| backend.folder.path().join("input");
    std::os::unix::fs::symlink(input(&small), input(&large)).unwrap();
    let (tight, least) = build(&small, &["--memory", "256MiB"]);
    let (loose, most) = build(&large, &["--memory", "4GiB"]);
    println!("{} MiB with a budget of 256, {} without need", least / MIB, most / MIB);
    assert_eq!(tight["ids"], FILES * USERS_PER_FILE);
    assert_eq!(tight["digest"], loose["digest"]);
    assert!(least <= 256 * MIB, "{} MiB were taken", least / MIB);
    assert!(most > 256 * MIB, "{} MiB: the budget was never in the way", most / MIB);
}

#[test]
fn the_plan_estimates_time_and_memory_and_reports_when_a_day_does_not_fit() {
    let plan = |memory: &str| {
        let words = ["plan", "--ids", "300m", "--memory", memory, "--threads", "2", "--json"];
        bloomsday(&words).run().expect(0).json()["build"].clone()
    };
    let tight = plan("1GiB");
    assert_eq!((&tight["fits"], &tight["threads"]), (&true.into(), &2.into()), "{tight}");
    assert!(tight["memory_bytes"].as_u64().unwrap() <= 1 << 30, "{tight}");
    assert!(tight["spilled_bytes"].as_u64().unwrap() > 0, "{tight}");
    let seconds = tight["seconds"]["total"].as_f64().unwrap();
    let parts = ["scan", "count", "fill", "publish", "verify"];
    let sum: f64 = parts.iter().map(|part| tight["seconds"][part].as_f64().unwrap()).sum();
    assert!(seconds > 1.0 && (sum - seconds).abs() < 1e-6, "{tight}");

    let none = plan("256MiB");
    assert_eq!(none["fits"], false, "{none}");
    assert!(none["because"].as_str().unwrap().contains("read back"), "{none}");

    // A small day fits however little it is given, and needs no more for being given much.
    let small = |memory: &str| {
        let words = ["plan", "--ids", "100k", "--memory", memory, "--threads", "2", "--json"];
        bloomsday(&words).run().expect(0).json()["build"].clone()
    };
    for memory in ["10MiB", "16GiB"] {
        let plan = small(memory);
        assert_eq!(plan["fits"], true, "{plan}");
        assert!(plan["memory_bytes"].as_u64().unwrap() < 300 * MIB, "{plan}");
        assert!(plan["in_flight_bytes"].as_u64().unwrap() < 32 * MIB, "{plan}");
    }

    let words = ["plan", "--ids", "300m", "--sizes-only", "--json"];
    assert_eq!(bloomsday(&words).run().expect(0).json()["build"], Value::Null);
}
