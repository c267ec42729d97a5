//! The Go package in `go/`: its tests run against blobs that the real program published, also with
//! the race detector.

use std::fs;
use std::process::Command;

use bloomsday_tests::other_programs::run;
use bloomsday_tests::sources::{first_program, root};
use bloomsday_tests::vectors::blobs;
use tempfile::TempDir;

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_go_reader_answers_what_the_program_does_and_refuses_damage() {
    let go = |words: &[&str]| {
        run(Command::new("go")
            .args(words)
            .current_dir(root().join("go"))
            .env("BLOOMSDAY_TEST_BLOBS", blobs()))
    };
    go(&["vet", "./..."]);
    let tested = go(&["test", "-race", "-count=1", "-v", "./..."]);
    let tested = String::from_utf8(tested.stdout).unwrap();
    assert!(tested.contains("--- PASS: TestAnswersAreThoseOfTheProgram"), "{tested}");
    let unformatted = run(Command::new("gofmt").arg("-l").arg(root().join("go")));
    assert_eq!(String::from_utf8(unformatted.stdout).unwrap(), "");
}

/// The first program of `docs/go.md`, on a checkout.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_first_program_runs_as_the_page_says() {
    let (folder, package) = (TempDir::new().unwrap(), root().join("go"));
    let page = fs::read_to_string(root().join("docs/go.md")).unwrap();
    fs::write(folder.path().join("main.go"), first_program(&page, "go")).unwrap();
    // What `go mod tidy` writes, without a network.
    let (name, module) = ("github.com/bloomsday/bloomsday/go", package.join("go.mod"));
    let needs = fs::read_to_string(module).unwrap().replacen(name, "first", 1);
    let here = format!("require {name} v0.0.0\nreplace {name} => {}\n", package.display());
    fs::write(folder.path().join("go.mod"), format!("{needs}\n{here}")).unwrap();
    fs::copy(package.join("go.sum"), folder.path().join("go.sum")).unwrap();
    let said = run(Command::new("go")
        .args(["run", "-mod=mod", "."])
        .arg(root().join("tests/golden/v1-blocked.bloom"))
        .arg("0123456789abcdef0000000000000000")
        .current_dir(folder.path()));
    assert_eq!(String::from_utf8(said.stdout).unwrap(), "rt 2024-02-29 400\ntrue\n");
}
