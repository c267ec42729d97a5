//! The C library is installed as a user does it, and `c/tests/answers.c` is run with it: against
//! the program's answers, in valgrind, and with the sanitizers of the C compiler.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use bloomsday_tests::INTEGRATION;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::other_programs::{run, run_on};
use bloomsday_tests::program;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::sources::{other_versions, root, rust_files};
use bloomsday_tests::vectors::blobs;
use serde_json::Value;

/// The library, with header and pkg-config file.
///
/// Without cloud stores: what C adds to them is nothing, and they would take minutes to compile.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        let _ = fs::remove_dir_all(&prefix);
        let target = program::path().ancestors().nth(2).expect("it lies in target/PROFILE");
        run(Command::new(root().join("c/install.sh"))
            .arg(&prefix)
            .env("PROFILE", "dev")
            .env("CARGO_FLAGS", "--no-default-features")
            .env("CARGO_TARGET_DIR", target));
        prefix
    })
}

/// Compiles a C program with these flags, in front of and behind its name.
fn compile(source: &str, name: &str, before: &[&str], after: &[&str]) -> PathBuf {
    let program = installed().join(name);
    run(Command::new("cc")
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(before)
        .arg(root().join(source))
        .arg("-I")
        .arg(installed().join("include"))
        .args(after)
        .arg("-o")
        .arg(&program));
    program
}

/// `answers.c` with the static library, by itself or with sanitizers.
fn answers(name: &str, before: &[&str]) -> PathBuf {
    let library = installed().join("lib/libbloomsday.a");
    let after = [library.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    compile("c/tests/answers.c", name, before, &after)
}

/// What a program prints for this input, which must be a success.
#[track_caller]
fn output(program: &mut Command, stdin: &[u8]) -> String {
    let done = run_on(program, stdin);
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(error, "", "{program:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// The ways to run `answers.c`: alone, in valgrind, with sanitizers.
fn ways() -> &'static [Vec<String>; 3] {
    static WAYS: OnceLock<[Vec<String>; 3]> = OnceLock::new();
    WAYS.get_or_init(compiled_ways)
}

fn compiled_ways() -> [Vec<String>; 3] {
    let alone = answers("answers", &[]).display().to_string();
    let checked = answers("answers-asan", &["-fsanitize=address,undefined"]).display().to_string();
    let valgrind = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"];
    // Rust keeps a record of the main thread for ever.
    let kinds = ["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
    let valgrind = valgrind.iter().chain(&kinds).map(|word| (*word).to_owned());
    [vec![alone.clone()], valgrind.chain([alone]).collect(), vec![checked]]
}

fn command(way: &[String]) -> Command {
    let mut command = Command::new(&way[0]);
    command.args(&way[1..]);
    command
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_filter_in_c_answers_what_the_program_does() {
    let ways = ways();
    for place in fs::read_dir(blobs()).unwrap() {
        let place = place.unwrap().path();
        let ids = fs::read(place.join("ids")).unwrap();
        let expected = fs::read_to_string(place.join("answers")).unwrap();
        for way in ways {
            let said = output(command(way).arg("file").arg(place.join("rt.bloom")), &ids);
            assert!(said == expected, "{way:?} of {} has other answers", place.display());
        }
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_argument_that_cannot_be_is_an_error_with_its_name() {
    let blob = root().join("tests/golden/v1-blocked.bloom");
    for way in ways() {
        output(command(way).arg("misuse").arg(&blob), b"");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_damaged_blob_is_refused_with_its_name() {
    let blob = fs::read(root().join("tests/golden/v1-guava.bloom")).unwrap();
    let file = installed().join("damaged.bloom");
    for at in (0..blob.len()).step_by(101) {
        let mut damaged = blob.clone();
        damaged[at] ^= 1;
        fs::write(&file, damaged).unwrap();
        let done = command(&ways()[0]).arg("open").arg(&file).output().unwrap();
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(7), "byte {at}: {error}");
        assert!(error.contains("damaged.bloom"), "byte {at}: {error}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_server_in_c_follows_the_store_that_the_program_writes() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let mut child = KillOnDrop(
        command(&ways()[0])
            .args(["serve", &backend.store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut stdin = child.0.stdin.take().unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.0.stdout.take().unwrap()));
    let mut ask = |line: &str| {
        writeln!(stdin, "{line}").unwrap();
        lines.next().expect("an answer").unwrap()
    };
    assert_eq!((ask(&user(1)), ask("")), ("1".to_owned(), "0".to_owned()));
    let later = user(1_000_001);
    assert_eq!(ask(&later), "0");
    Publisher::day(&backend, today())
        .users(1_000_000..1_001_000)
        .with(&["--accept-change", "x"])
        .publish();
    let report: Value = serde_json::from_str(&ask("reload")).unwrap();
    assert_eq!((&report[0]["filter"], &report[0]["outcome"]), (&"rt".into(), &"swapped".into()));
    assert_eq!(ask(&later), "1");
    drop(stdin);
    let status: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let about: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(status["rt"]["state"], "ok");
    assert_eq!(about["digest"], status["rt"]["digest"]);
    assert!(child.0.wait().unwrap().success());
}

struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first program of `docs/c.md`, with the shared library by pkg-config; and the header in C++.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_first_program_runs_as_the_page_says() {
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "bloomsday"])
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig")));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let first = compile("c/examples/first.c", "first", &[], &flags);
    let id = "0123456789abcdef0000000000000000";
    let said = output(
        Command::new(first)
            .arg(root().join("tests/golden/v1-blocked.bloom"))
            .arg(id)
            .env("LD_LIBRARY_PATH", installed().join("lib")),
        b"",
    );
    let (about, answer) = said.split_once('\n').unwrap();
    let about: Value = serde_json::from_str(about).unwrap();
    assert_eq!((&about["ids"], answer), (&400.into(), &*format!("1 {id}\n")));

    let header = installed().join("include/bloomsday.h");
    let words = ["-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
    run(Command::new("g++").args(words).arg(header));
}

/// The same in Go, which calls C.
#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_program_in_go_calls_the_library_as_the_page_says() {
    let (program, source) = (installed().join("first-go"), root().join("c/examples/first.go"));
    let library = installed().join("lib");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).args([&program, &source]);
    go.env("PKG_CONFIG_PATH", library.join("pkgconfig"));
    run(&mut go);
    let id = "0123456789abcdef0000000000000000";
    let blob = root().join("tests/golden/v1-blocked.bloom");
    let words = [blob.to_str().unwrap(), id, "nobody"];
    let said = output(Command::new(&program).args(words).env("LD_LIBRARY_PATH", &library), b"");
    assert_eq!(said, format!("true {id}\nfalse nobody\n"));
    let none = Command::new(&program).arg(source).env("LD_LIBRARY_PATH", library).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8(none.stderr).unwrap().contains("first.go is not a sound blob"));
}

/// Every function that C calls catches panics, but for those that do no more than return or free a
/// text.
#[test]
fn no_panic_goes_on_into_c() {
    let simple =
        ["bloomsday_last_error", "bloomsday_last_code", "bloomsday_version", "bloomsday_free"];
    let mut found = 0;
    for file in rust_files(vec![root().join("c/src")]) {
        let text = fs::read_to_string(file).unwrap();
        for function in text.split("extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().unwrap();
            let body = function.split("\n#[unsafe(no_mangle)]").next().unwrap();
            assert!(
                body.contains("guarded") || simple.contains(&name),
                "{name} lets panics through"
            );
            found += 1;
        }
    }
    assert!(found >= 14, "only {found} functions are found");
}

#[test]
fn the_header_is_made_of_the_sources() {
    // cbindgen compiles in some 20 s.
    if !INTEGRATION {
        return;
    }
    let target = program::path().ancestors().nth(2).expect("it lies in target/PROFILE");
    run(Command::new(env!("CARGO"))
        .args(["test", "--locked", "--quiet", "--no-default-features", "--manifest-path"])
        .arg(root().join("c/Cargo.toml"))
        .arg("--target-dir")
        .arg(target));
}

#[test]
fn the_library_has_the_versions_of_the_workspace() {
    // cbindgen brings these, and they are in no library.
    let of_cbindgen = ["toml", "toml_datetime", "winnow"];
    let mut other = other_versions("c/Cargo.lock");
    other.retain(|(name, _)| !of_cbindgen.contains(&&**name));
    assert_eq!(other, [], "copy Cargo.lock and run cargo check");
}
