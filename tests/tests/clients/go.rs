//! The Go package in `go/`: its tests run against blobs that the real program published, also with
//! the race detector.

use std::process::Command;

use bloomsday_tests::other_programs::run;
use bloomsday_tests::sources::root;
use bloomsday_tests::vectors::blobs;

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
