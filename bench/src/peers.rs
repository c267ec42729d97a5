//! Peers that run in a process of their own: Guava in a Java virtual machine, Spark and DuckDB in
//! Python.
//!
//! Each does what a line says and prints a line of numbers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const GUAVA: &str = "/usr/share/java/guava.jar";

/// A running peer; dropped, it ends.
struct Peer {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(command: &mut Command) -> std::io::Result<Peer> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = process.stdin.take();
        let from = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Ok(Peer { process, to, from })
    }

    /// What it answers.
    fn say<const N: usize>(&mut self, line: &str) -> [u64; N] {
        let to = self.to.as_mut().expect("open until it is dropped");
        writeln!(to, "{line}").and_then(|()| to.flush()).expect("the peer listens");
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("the peer answers");
        let mut words = answer.split_whitespace().map(|word| word.parse::<u64>());
        [(); N].map(|()| {
            let word = words.next().and_then(Result::ok);
            word.unwrap_or_else(|| panic!("{N} numbers come back for {line:?}, and not {answer:?}"))
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.process.wait();
    }
}

/// `java/Race.java`.
pub(crate) struct Guava(Peer);

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
        let peer = Peer::start(
            Command::new("java").arg("-cp").arg(format!("{}:{GUAVA}", classes.display())).args([
                "Race",
                &n.to_string(),
                &fpp.to_string(),
            ]),
        );
        peer.map(Guava).map_err(|e| missing("java", e))
    }

    /// What `put` of `count` IDs took, in nanoseconds an ID.
    pub(crate) fn put(&mut self, first: u64, count: u64) -> f64 {
        let [nanos] = self.0.say(&format!("put {first} {count}"));
        nanos as f64 / count as f64
    }

    /// The time of their lookups, in nanoseconds an ID, and the number of hits.
    pub(crate) fn look_up(&mut self, first: u64, count: u64) -> (f64, u64) {
        let [nanos, hits] = self.0.say(&format!("lookup {first} {count}"));
        (nanos as f64 / count as f64, hits)
    }
}

/// A peer in Python. Its packages are looked for in the `python3` that is found first.
fn start_python(
    what: &str,
    package: &str,
    script: &str,
    arguments: &[&str],
) -> Result<Peer, String> {
    let python = || {
        let mut python = Command::new("python3");
        python.stderr(Stdio::null());
        python
    };
    let import = format!("import {package}");
    let found = python().args(["-c", &import]).status();
    if !found.map_err(|e| format!("no {what}: python3: {e}"))?.success() {
        return Err(format!("no {what}: python3 has no {package} (pip install {package})"));
    }
    let peer = Peer::start(python().arg(script).args(arguments));
    peer.map_err(|e| format!("no {what}: {e}"))
}

/// `python/duck.py`.
pub(crate) struct DuckDb {
    peer: Peer,
    rows: u64,
}

impl DuckDb {
    /// Starts it on a folder of Parquet and scans that once, so that its code is warm; or returns
    /// what is missing.
    pub(crate) fn start(folder: &Path, column: &str, rows: u64) -> Result<DuckDb, String> {
        let (folder, threads) =
            (folder.display().to_string(), crate::fixtures::threads().to_string());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/duck.py");
        let peer = start_python("DuckDB", "duckdb", script, &[&folder, column, &threads])?;
        let mut duckdb = DuckDb { peer, rows };
        duckdb.scan();
        Ok(duckdb)
    }

    /// The time to read and hash all IDs, in nanoseconds a row.
    pub(crate) fn scan(&mut self) -> f64 {
        let [nanos, rows] = self.peer.say("scan");
        assert_eq!(rows, self.rows, "DuckDB lost rows: its speed means nothing");
        nanos as f64 / self.rows as f64
    }
}

/// `python/spark.py`.
pub(crate) struct Spark {
    peer: Peer,
    rows: u64,
}

impl Spark {
    /// Starts it on a folder of Parquet and builds once, so that its code is warm; or returns what
    /// is missing.
    pub(crate) fn start(folder: &Path, column: &str, rows: u64, fpp: f64) -> Result<Spark, String> {
        // Before Python, whose errors nobody sees: without a virtual machine it would end without
        // an answer.
        let java = Command::new("java").arg("-version").stderr(Stdio::null()).status();
        java.map_err(|e| format!("no Spark: java: {e} (apt-get install default-jdk-headless)"))?;
        let (folder, threads) =
            (folder.display().to_string(), crate::fixtures::threads().to_string());
        let arguments = [&folder, column, &rows.to_string(), &fpp.to_string(), &threads];
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/spark.py");
        let mut spark = Spark { peer: start_python("Spark", "pyspark", script, &arguments)?, rows };
        spark.build();
        Ok(spark)
    }

    /// What building took, in nanoseconds a row.
    pub(crate) fn build(&mut self) -> f64 {
        let [nanos] = self.peer.say("build");
        nanos as f64 / self.rows as f64
    }

    /// Whether what was built is a filter at all: one that loses IDs, or whose every lookup is a
    /// hit, is not raced.
    pub(crate) fn check(&mut self) -> String {
        let [lookups, lost, wrong, bits] = self.peer.say("check 5000");
        assert_eq!(lost, 0, "Spark lost IDs: its speed means nothing");
        let fpp = wrong as f64 / lookups as f64;
        let each = bits as f64 / self.rows as f64;
        format!("checked Spark: 0 of {lookups} IDs lost, fpp {fpp:.3}, {each:.2} bits an ID")
    }
}
