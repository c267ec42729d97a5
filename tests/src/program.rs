//! Runs the program once and keeps its output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use serde_json::Value;

use crate::INTEGRATION;

/// How long one run may take, on the busiest machine and at full size.
const DEADLINE: Duration = Duration::from_secs(600);

/// The program, built from this checkout if need be.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        // Tests run in target/PROFILE/deps; the program is one folder up. It is built with the
        // features of all default members, so that nothing is compiled twice.
        let deps = std::env::current_exe().expect("a test has a path");
        let folder =
            deps.ancestors().nth(2).expect("a test lies in target/PROFILE/deps").to_owned();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        build.args(["build", "--quiet", "--bin", "bloomsday"]);
        if INTEGRATION {
            build.args(["--features", "bloomsday-tests/integration"]);
        }
        // The folder of this test, even if the environment names another target folder.
        build.arg("--target-dir").arg(folder.parent().expect("it is target/PROFILE"));
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status().expect("cargo runs");
        assert!(built.success(), "the program does not build");
        folder.join("bloomsday")
    })
}

/// The output of one run.
pub struct Run {
    /// The exit status.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it logged.
    pub stderr: String,
    line: String,
}

/// A prepared run.
pub struct Bloomsday {
    command: Command,
    line: String,
    stdin: Vec<u8>,
}

/// Prepares `bloomsday WORDS…`, with nothing of the caller's own configuration.
pub fn bloomsday<S: AsRef<str>>(words: &[S]) -> Bloomsday {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let mut command = Command::new(path());
    command.args(&words);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["AWS_", "AZURE_", "GOOGLE_", "HADOOP_", "BLOOMSDAY_", "RUST_LOG"]
            .iter()
            .any(|p| name.starts_with(p))
        {
            command.env_remove(name);
        }
    }
    Bloomsday { command, line: format!("bloomsday {}", words.join(" ")), stdin: Vec::new() }
}

impl Bloomsday {
    /// Sets variables of its environment.
    pub fn envs(mut self, variables: &[(&str, String)]) -> Bloomsday {
        self.command.envs(variables.iter().map(|(name, value)| (*name, value)));
        self
    }

    /// Runs it in this folder.
    pub fn current_dir(mut self, folder: &Path) -> Bloomsday {
        self.command.current_dir(folder);
        self
    }

    /// Sets its standard input.
    pub fn stdin(mut self, bytes: &[u8]) -> Bloomsday {
        self.stdin = bytes.to_vec();
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Run {
        self.run_watched(|_| ())
    }

    /// Runs it to its end. Also returns its peak memory in bytes.
    pub fn run_measured(self) -> (Run, u64) {
        let most = Arc::new(AtomicU64::new(0));
        let peak = Arc::clone(&most);
        let run = self.run_watched(move |process| {
            // It only grows, so the last read before the end counts.
            while let Some(bytes) = high_water(process) {
                peak.store(bytes, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        (run, most.load(Ordering::Relaxed))
    }

    fn run_watched(self, watch: impl FnOnce(u32) + Send + 'static) -> Run {
        let Bloomsday { mut command, line, stdin } = self;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
        let mut pipe = child.stdin.take().expect("stdin is piped");
        let writer = std::thread::spawn(move || pipe.write_all(&stdin));
        let (process, (ended, end)) = (child.id(), mpsc::channel());
        std::thread::spawn(move || watch(process));
        std::thread::spawn(move || ended.send(child.wait_with_output()));
        // A server that should have refused to start would run for ever.
        let end = end.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
            panic!("{line} still runs after {} s", DEADLINE.as_secs())
        });
        let Output { status, stdout, stderr } = end.expect("the program can be waited for");
        // The program need not read all of its input.
        let _ = writer.join().expect("writing does not panic");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let code = status.code().unwrap_or_else(|| panic!("{line} was killed: {status}"));
        Run { code, stdout: text(&stdout), stderr: text(&stderr), line }
    }

    /// The command itself, for a test that runs it in another way.
    pub fn into_command(self) -> Command {
        self.command
    }
}

/// The most memory a process has had, in bytes, while there is one.
pub fn high_water(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

impl Run {
    /// Fails the test unless it ended with this status.
    #[track_caller]
    pub fn expect(self, code: i32) -> Run {
        let Run { line, stdout, stderr, .. } = &self;
        assert_eq!(self.code, code, "{line}\n--- stdout\n{stdout}--- stderr\n{stderr}");
        self
    }

    /// Fails the test unless stderr contains every one of `parts`.
    #[track_caller]
    pub fn complains(self, parts: &[&str]) -> Run {
        for part in parts {
            let (line, stderr) = (&self.line, &self.stderr);
            assert!(stderr.contains(part), "{line}: no `{part}` in\n{stderr}");
        }
        self
    }

    /// The first line of its output, as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let line = self.stdout.lines().next().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}: {}", self.line, self.stdout))
    }
}
