//! What a person sees in a terminal, a real one: states are coloured there, and nowhere else.

use std::path::Path;
use std::process::{Command, Stdio};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{today, write_users};
use bloomsday_tests::program::{bloomsday, path};

/// What begins every colour.
const ESCAPE: char = '\u{1b}';

/// A store whose newest day was built, refused by a gate, and rolled back.
fn store() -> Backend {
    let backend = Backend::local();
    let (before, day) = (today().minus(2).to_string(), today().minus(1).to_string());
    let build = |day: &str, n: u64, code: i32| {
        let file = backend.folder.path().join(format!("{n}.parquet"));
        write_users(&file, 0..n);
        let input = file.display().to_string();
        let words = ["build", "rt", "--day", day, "--input", &input, "--column", "device_id"];
        backend.bloomsday(&words).run().expect(code);
    };
    build(&before, 1_000, 0);
    build(&day, 1_100, 0);
    build(&day, 100, 6);
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    backend
}

/// Runs a line of shell on a pseudo-terminal, where stdout and stderr are one; what it showed. `$b`
/// is the program.
fn on_a_terminal(line: &str, variables: &[(&str, &str)]) -> String {
    let mut script = Command::new("script");
    script.args(["-qec", line, "/dev/null"]).stdin(Stdio::null());
    script.env("b", path()).env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
    // `CI` too: whoever sets it gets colours from any terminal.
    for name in
        ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "BLOOMSDAY_STORE", "BLOOMSDAY_CONFIG"]
    {
        script.env_remove(name);
    }
    let output =
        script.envs(variables.iter().copied()).output().expect("script is in every Debian");
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

/// The text without what colours it.
fn without_colours(text: &str) -> String {
    let mut parts = text.split(ESCAPE);
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').expect("a colour ends with m").1)
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn states_are_coloured_on_a_terminal_and_never_by_colour_alone() {
    let backend = store();
    let at = format!("--store {}", backend.store);
    for (words, coloured) in [
        ("status rt", &["\u{1b}[33mrolled_back\u{1b}[0m", "\u{1b}[33mrolled back\u{1b}[0m"][..]),
        ("history rt", &["\u{1b}[32mpublished\u{1b}[0m", "\u{1b}[31mrefused\u{1b}[0m"]),
    ] {
        let printed = on_a_terminal(&format!("$b {words} {at}"), &[]);
        for state in coloured {
            assert!(printed.contains(state), "{printed:?}");
        }
        let piped: Vec<&str> = words.split(' ').chain(at.split(' ')).collect();
        let piped = bloomsday(&piped).run().expect(0).stdout;
        assert!(!piped.contains(ESCAPE), "{piped:?}");
        assert_eq!(without_colours(&printed), piped);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn errors_are_coloured_on_a_terminal_too() {
    let backend = store();
    let printed = on_a_terminal(&format!("$b status none --store {}/none", backend.store), &[]);
    assert!(
        printed.contains(ESCAPE) && without_colours(&printed).starts_with("error: "),
        "{printed:?}"
    );
    let input = backend.folder.path().join("100.parquet");
    let (input, day) = (Path::display(&input), today().minus(1));
    let words = format!("build rt --day {day} --input {input} --column device_id -q");
    let printed =
        on_a_terminal(&format!("$b {words} --store {} 2>&1 >/dev/null", backend.store), &[]);
    assert!(printed.contains("\u{1b}[31mrefused\u{1b}[0m: "), "{printed:?}");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_pipe_json_and_no_color_switch_colours_off() {
    let backend = store();
    let line = format!("status rt --store {}", backend.store);
    let wrong = format!("status none --store {}/none", backend.store);
    let plain = |line: &str, variables: &[(&str, &str)]| {
        let printed = on_a_terminal(line, variables);
        assert!(
            !printed.is_empty() && !printed.contains(ESCAPE),
            "{line} {variables:?}: {printed:?}"
        );
    };
    for variables in [[("NO_COLOR", "1")], [("CLICOLOR", "0")], [("TERM", "dumb")]] {
        plain(&format!("$b {line}; $b {wrong}"), &variables);
    }
    plain(&format!("$b --json {line}"), &[]);
    // Each stream by itself: here one of the two is a terminal.
    plain(&format!("$b {line} | cat"), &[("CLICOLOR_FORCE", "1")]);
    plain(&format!("$b {wrong} 2>&1 >/dev/null | cat"), &[("CLICOLOR_FORCE", "1")]);
}
