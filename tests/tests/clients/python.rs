//! The Python package: its wheel is built and installed as a user does, and its tests in
//! `python/bloomsday/tests` run against blobs that the real program published.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bloomsday_tests::campaign::{self, Campaign};
use bloomsday_tests::other_programs::run;
use bloomsday_tests::program;
use bloomsday_tests::sources::{other_versions, root};
use bloomsday_tests::vectors::blobs;

/// How many seconds a file of tests may take.
const DEADLINE: &str = "600";
/// The same for a campaign at full size.
const FULL_DEADLINE: &str = "3600";

/// A Python in which the package is installed from its wheel.
///
/// The wheel has no cloud stores: what Python adds to them is nothing, and they would take minutes
/// to compile.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let tools = root().join("target/test-tools/bin/python");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        let (wheels, venv) = (folder.join("wheels"), folder.join("venv"));
        let _ = fs::remove_dir_all(&folder);
        let target = program::path().ancestors().nth(2).expect("it lies in target/PROFILE");
        run(Command::new(&tools)
            .args(["-m", "maturin", "build", "--locked", "--profile", "dev"])
            .args(["--no-default-features", "--interpreter"])
            .arg(&tools)
            .arg("--out")
            .arg(&wheels)
            .current_dir(root().join("python/bloomsday"))
            .env("CARGO_TARGET_DIR", target));
        // The packages that the tests need are those of the tools; the wheel itself is nobody
        // else's.
        run(Command::new(&tools).args(["-m", "venv", "--system-site-packages"]).arg(&venv));
        let python = venv.join("bin/python");
        let parent = Command::new(&tools)
            .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
            .output();
        let parent = String::from_utf8(parent.expect("Python runs").stdout).unwrap();
        let version = parent.trim().rsplit('/').nth(1).expect("…/python3.x/site-packages");
        let paths = venv.join("lib").join(version).join("site-packages/tools.pth");
        fs::write(paths, parent.trim()).unwrap();
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-index", "--find-links"])
            .arg(&wheels)
            .arg("bloomsday"));
        python
    })
}

/// Runs a file of the package's tests.
fn pytest(file: &str, blobs: &Path) {
    pytest_with(file, blobs, &[], &[]);
}

/// The same with these arguments and variables.
fn pytest_with(file: &str, blobs: &Path, words: &[&str], variables: &[(&str, &str)]) {
    let tests = root().join("python/bloomsday/tests");
    run(Command::new("timeout")
        .arg(if campaign::full() { FULL_DEADLINE } else { DEADLINE })
        .arg(python())
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", file])
        .args(words)
        .envs(variables.iter().copied())
        .current_dir(&tests)
        // Other processes import the tests by name, and what Python compiles stays out of the
        // sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", &tests)
        .env("BLOOMSDAY_PROGRAM", program::path())
        .env("BLOOMSDAY_TEST_BLOBS", blobs));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn one_wheel_is_for_every_python_from_3_10_on() {
    let wheels = python().ancestors().nth(3).unwrap().join("wheels");
    let names = fs::read_dir(wheels).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.len() == 1 && names[0].contains("-cp310-abi3-"), "{names:?}");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_filter_in_python_answers_what_the_program_does() {
    pytest("test_filter.py", blobs());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn columns_of_arrow_numpy_polars_pandas_and_duckdb_get_the_same_answers() {
    pytest("test_columns.py", blobs());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn threads_forks_and_other_processes_get_the_same_answers() {
    pytest("test_processes.py", blobs());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_build_and_a_publication_in_python_are_the_programs() {
    pytest("test_build.py", blobs());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_server_in_python_follows_the_store_that_the_program_writes() {
    pytest("test_server.py", blobs());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_type_stubs_are_what_is_there() {
    pytest("test_types.py", blobs());
}

/// Runs the tests of builds on Spark, whose executors have the package, too.
fn spark(master: &str, words: &[&str]) {
    let python = python().to_str().expect("its path is text");
    let variables = [("BLOOMSDAY_SPARK", master), ("PYSPARK_PYTHON", python)];
    let campaign = Campaign::new(&format!("builds on Spark, {master}"));
    pytest_with("test_spark.py", blobs(), words, &variables);
    let size = if campaign::full() { "20 seeds, a fault in each step" } else { "1 seed" };
    campaign.passed(size, "the program's digest, or the pointer as it was");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_build_on_spark_gives_the_programs_blob() {
    spark("local[2,4]", &[]);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_executor_of_spark_that_is_killed_changes_no_byte() {
    // At full size everything runs on two executors.
    let words: &[&str] = if campaign::full() { &[] } else { &["-k", "killed"] };
    spark("local-cluster[2,1,1024]", words);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_build_over_spark_connect_gives_the_programs_blob() {
    spark("connect", &["-k", "frame or staged"]);
}

#[test]
fn the_package_has_the_versions_of_the_workspace() {
    assert_eq!(
        other_versions("python/bloomsday/Cargo.lock"),
        [],
        "copy Cargo.lock and run cargo check"
    );
}
