//! Runs programs that are not ours: compilers, and readers in other languages.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a program to its end, which must be a success.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    run_on(command, b"")
}

/// Runs a program on this standard input to its end, which must be a success.
#[track_caller]
pub fn run_on(command: &mut Command, stdin: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (mut pipe, stdin) = (child.stdin.take().expect("stdin is piped"), stdin.to_vec());
    // The program need not read all of its input.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().expect("a program can be waited for");
    writer.join().expect("writing does not panic");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n--- stdout\n{out}--- stderr\n{err}");
    output
}

/// Copies a folder into another one, or to a name that is not there yet.
#[track_caller]
pub fn copy_folder(from: &Path, into: &Path) {
    run(Command::new("cp").arg("-r").arg(from).arg(into));
}

/// What a program prints that writes 1 or 0 a line for each ID on its standard input.
#[track_caller]
pub fn answers(command: &mut Command, ids: &[u8]) -> Vec<bool> {
    text(&run_on(command, ids).stdout).lines().map(|line| line == "1").collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
