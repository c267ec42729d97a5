//! [`KillableRun`]: a run of the program that is stopped at a named place, and killed there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use tempfile::TempDir;

use crate::program::Bloomsday;

/// How long a program may take to reach a place.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the program, pauses it at `place`, and calls `fault` with a function that lets it go on.
/// Returns the exit status and what it wrote to stderr.
#[track_caller]
pub fn with_fault_at(
    place: &str,
    program: Bloomsday,
    fault: impl FnOnce(&dyn Fn()),
) -> (Option<i32>, String) {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("go-on");
    let mut command = program.into_command();
    command.env("BLOOMSDAY_PAUSE_UNTIL", &file);
    let mut run = KillableRun::start(command, Some(place));
    assert!(run.paused(), "it ended before {place}: {}", run.said());
    let go_on = || fs::write(&file, "").expect("a file is written");
    fault(&go_on);
    go_on();
    run.finish();
    let said = run.said().to_owned();
    (run.wait(), said)
}

/// A running program whose stderr is read.
pub struct KillableRun {
    process: Child,
    lines: Receiver<String>,
    said: String,
}

impl KillableRun {
    /// Starts it, to stop at `place` (`name`, or `name:n` for the `n`th time).
    pub fn start(mut command: Command, place: Option<&str>) -> KillableRun {
        if let Some(place) = place {
            command.env("BLOOMSDAY_PAUSE_AT", place);
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = BufReader::new(process.stderr.take().expect("stderr is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        KillableRun { process, lines, said: String::new() }
    }

    /// Waits until it pauses at the place. Returns false if it ended before.
    #[track_caller]
    pub fn paused(&mut self) -> bool {
        self.says("paused at ")
    }

    /// Waits until it has written a line with `text` to stderr. Returns false if it ended before.
    #[track_caller]
    pub fn says(&mut self, text: &str) -> bool {
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => {
                    let found = line.contains(text);
                    self.said += &line;
                    self.said.push('\n');
                    if found {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => panic!("never said {text:?}:\n{}", self.said),
            }
        }
    }

    /// Reads all that it writes to stderr.
    #[track_caller]
    pub fn finish(&mut self) {
        while self.says("") {}
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The lines of stderr that have been read so far.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Waits for its end. Returns the exit status.
    pub fn wait(mut self) -> Option<i32> {
        self.process.wait().expect("the program can be waited for").code()
    }
}

impl Drop for KillableRun {
    /// `kill -9`.
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
