//! Guava, in a Java virtual machine of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const GUAVA: &str = "/usr/share/java/guava.jar";

/// A running `java/Race.java`; dropped, it ends.
pub(crate) struct Guava {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Guava {
    /// Starts it, or says what is missing.
    pub(crate) fn start(n: u64, fpp: f64) -> Result<Guava, String> {
        if !Path::new(GUAVA).exists() {
            return Err(format!("no Guava: {GUAVA} is missing (apt-get install libguava-java)"));
        }
        let missing = |program: &str, e: std::io::Error| {
            format!("no Guava: {program}: {e} (apt-get install default-jdk-headless)")
        };
        let classes = std::env::temp_dir().join(format!("bloomsday-bench-{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/java/Race.java");
        let compiled = Command::new("javac")
            .args(["-cp", GUAVA, "-d"])
            .arg(&classes)
            .arg(source)
            .stderr(Stdio::null())
            .status()
            .map_err(|e| missing("javac", e))?;
        if !compiled.success() {
            return Err(format!("no Guava: {source} does not compile"));
        }
        let mut process = Command::new("java")
            .arg("-cp")
            .arg(format!("{}:{GUAVA}", classes.display()))
            .args(["Race", &n.to_string(), &fpp.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| missing("java", e))?;
        let to = process.stdin.take();
        let from = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Ok(Guava { process, to, from })
    }

    /// What `put` of `count` IDs took, in nanoseconds an ID.
    pub(crate) fn put(&mut self, first: u64, count: u64) -> f64 {
        self.say("put", first, count).0 / count as f64
    }

    /// What asking them took, in nanoseconds an ID, and how many were answered "yes".
    pub(crate) fn ask(&mut self, first: u64, count: u64) -> (f64, u64) {
        let (nanos, hits) = self.say("ask", first, count);
        (nanos / count as f64, hits)
    }

    fn say(&mut self, what: &str, first: u64, count: u64) -> (f64, u64) {
        let to = self.to.as_mut().expect("open until it is dropped");
        writeln!(to, "{what} {first} {count}").and_then(|()| to.flush()).expect("java listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("java answers");
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>());
        let mut word = || words.next().and_then(Result::ok).expect("two numbers come back");
        (word() as f64, word())
    }
}

impl Drop for Guava {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.process.wait();
    }
}
