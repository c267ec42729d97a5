//! The Python package: its wheel is built and installed as a user does, and its tests in
//! `python/bloomsday/tests` run against blobs that the real program published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user, write_rows};
use bloomsday_tests::program::{self, bloomsday};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::sources::root;

/// Layouts and fpp targets.
const SHAPES: [(&str, &str); 4] =
    [("blocked", "0.5"), ("blocked", "0.03"), ("blocked", "1e-6"), ("guava", "0.03")];

/// How many seconds a file of tests may take.
const DEADLINE: &str = "300";

/// Runs a program to its end, which must be a success.
#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n--- stdout\n{out}--- stderr\n{err}");
}

/// A Python in which the package is installed from its wheel.
///
/// The wheel has no cloud stores: what Python adds to them is nothing, and they would take minutes to compile.
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
        // The packages that the tests need are those of the tools; the wheel itself is nobody else's.
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
    let tests = root().join("python/bloomsday/tests");
    run(Command::new("timeout")
        .arg(DEADLINE)
        .arg(python())
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", file])
        .current_dir(&tests)
        // Other processes import the tests by name, and what Python compiles stays out of the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", &tests)
        .env("BLOOMSDAY_PROGRAM", program::path())
        .env("BLOOMSDAY_TEST_BLOBS", blobs));
}

fn lines(ids: impl Iterator<Item = String>) -> Vec<u8> {
    ids.map(|id| id + "\n").collect::<String>().into_bytes()
}

/// Publishes a blob of each shape; a folder for each, with what the program says about it.
fn blobs() -> &'static Path {
    static BLOBS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BLOBS.get_or_init(|| {
        let folder = tempfile::TempDir::new().unwrap();
        let special = ["Zoë", "Νίκος", "秋", "🦀🦀", " blank ", "cr\r"].map(String::from);
        let lengths = (1..=1024).map(|length| "p".repeat(length));
        let present: Vec<String> = (0..3_000).map(user).chain(lengths).chain(special).collect();
        let absent = (1_000_000..1_003_000).map(user).chain((0..1_100).map(|n| "q".repeat(n)));
        let mut ids = lines(present.iter().cloned().chain(absent));
        ids.extend_from_slice(b"\n\xff\xfe\x00\n \n\r\n");
        for (layout, fpp) in SHAPES {
            let backend = Backend::local();
            let input = backend.folder.path().join("in.parquet");
            write_rows(&input, present.iter().cloned().map(Some));
            let shape = ["--layout", layout, "--fpp", fpp];
            let blob = Publisher::day(&backend, today()).input(&input).with(&shape).blob();
            let blob = Path::new(&backend.store).join(blob);
            let place = folder.path().join(format!("{layout}-{fpp}"));
            fs::create_dir(&place).unwrap();
            fs::copy(&blob, place.join("rt.bloom")).unwrap();
            fs::write(place.join("ids"), &ids).unwrap();
            let inspected = bloomsday(&["inspect", blob.to_str().unwrap(), "--json"]).run();
            fs::write(place.join("inspect.json"), inspected.expect(0).stdout).unwrap();
            let query = bloomsday(&["query", "rt", "--store", &backend.store]).stdin(&ids).run();
            let answers = query.expect(0).stdout;
            let answers: String = answers.lines().map(|line| format!("{}\n", &line[..1])).collect();
            fs::write(place.join("answers"), answers).unwrap();
        }
        folder
    });
    folder.path()
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

/// Name and version of every package in a lock file.
fn locked(file: &str) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let value = |package: &str, key: &str| {
        let (_, rest) = package.split_once(&format!("\n{key} = \"")).expect("a package has it");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let packages = text.split("\n[[package]]").skip(1);
    packages.map(|package| (value(package, "name"), value(package, "version"))).collect()
}

#[test]
fn the_package_has_the_versions_of_the_workspace() {
    let ours = locked("Cargo.lock");
    let theirs = locked("python/bloomsday/Cargo.lock");
    let names: BTreeSet<&String> = ours.iter().map(|(name, _)| name).collect();
    let shared = theirs.iter().filter(|(name, _)| names.contains(name));
    let other: Vec<_> = shared.clone().filter(|package| !ours.contains(package)).collect();
    assert!(shared.count() > 100, "these are not all");
    assert_eq!(other, Vec::<&(String, String)>::new(), "copy Cargo.lock and run cargo check");
}
