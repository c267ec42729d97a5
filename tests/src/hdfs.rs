//! A real HDFS: Hadoop's own NameNode and DataNodes (`tests/hdfs/Hdfs.java`), started, killed and
//! started again.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::backend::{Backend, free_port};
use crate::sources::{root, spark_jars};

/// A running cluster of a NameNode and two DataNodes in one process. It keeps its files when it is
/// killed; a drop kills it.
pub struct Hdfs {
    process: Option<Running>,
    port: u16,
    folder: TempDir,
}

struct Running {
    process: Child,
    /// It ends with its stdin, so also with this process.
    pipes: RefCell<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Hdfs {
    /// Starts one on a free port.
    pub fn start() -> Hdfs {
        let folder = TempDir::new().expect("a temporary folder");
        let mut javac = Command::new("javac");
        javac.args(["-cp", &class_path(folder.path()), "-d"]).arg(folder.path());
        let done = javac.arg(root().join("tests/hdfs/Hdfs.java")).status();
        assert!(done.expect("javac runs (tests/run.sh installs it)").success(), "Hdfs.java");
        let mut hdfs = Hdfs { process: None, port: free_port(), folder };
        hdfs.again();
        hdfs
    }

    /// Starts it again where it was, with what it had.
    pub fn again(&mut self) {
        let mut process = Command::new("java")
            // It lives for seconds: thorough compilation would not pay.
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m", "-cp"])
            .arg(class_path(self.folder.path()))
            .arg("Hdfs")
            .arg(self.folder.path().join("data"))
            .arg(self.port.to_string())
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.log()).expect("a log file is made"))
            .spawn()
            .expect("java runs (tests/run.sh installs it)");
        let stdin = process.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        self.process = Some(Running { process, pipes: RefCell::new((stdin, stdout)) });
        self.answer();
    }

    /// Kills NameNode and DataNodes at once, as a power failure would.
    pub fn kill(&mut self) {
        if let Some(Running { mut process, .. }) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Lets it take connections and answer nothing, as a machine that hangs.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it answer again.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let running = self.process.as_ref().expect("it runs");
        let kill = Command::new("kill").arg(signal).arg(running.process.id().to_string()).status();
        assert!(kill.expect("kill runs").success(), "kill {signal}");
    }

    /// Stops one of the two DataNodes.
    pub fn stop_datanode(&self) {
        self.command(&["stop-datanode"]);
    }

    /// Starts it again.
    pub fn start_datanode(&self) {
        self.command(&["start-datanode"]);
    }

    /// Copies a local file to a path, as `hdfs dfs -put` does.
    pub fn put(&self, file: &Path, path: &str) {
        self.command(&["put", file.to_str().expect("a path in UTF-8"), path]);
    }

    /// As [`Hdfs::put`], but leaves the file open, as a program that still writes it.
    pub fn put_open(&self, file: &Path, path: &str) {
        self.command(&["put-open", file.to_str().expect("a path in UTF-8"), path]);
    }

    /// Makes a file look as if it had been written so many days ago.
    pub fn age(&self, path: &str, days: u32) {
        self.command(&["age", &days.to_string(), path]);
    }

    /// Changes who may do what with a file or folder, as `hdfs dfs -chmod` does.
    pub fn chmod(&self, mode: &str, path: &str) {
        self.command(&["chmod", mode, path]);
    }

    /// Every file below a folder.
    pub fn files(&self, folder: &str) -> Vec<String> {
        self.command(&["list", folder])
    }

    /// The address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("hdfs://127.0.0.1:{}{path}", self.port)
    }

    /// A store in a folder.
    pub fn backend(&self, folder: &str) -> Backend {
        let own = TempDir::new().expect("a temporary folder");
        Backend { store: self.url(folder), env: Vec::new(), folder: own }
    }

    /// The same by the name of a service, with a client that waits less before it tries again: both
    /// are in the folder that `HADOOP_CONF_DIR` names.
    pub fn named_backend(&self, folder: &str) -> Backend {
        let own = TempDir::new().expect("a temporary folder");
        let settings = [
            ("dfs.ha.namenodes.ads", "one".to_owned()),
            ("dfs.namenode.rpc-address.ads.one", format!("127.0.0.1:{}", self.port)),
            ("dfs.client.failover.sleep.base.millis", "50".to_owned()),
        ];
        let properties = settings.map(|(name, value)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        });
        let text = format!("<configuration>{}</configuration>", properties.concat());
        fs::write(own.path().join("hdfs-site.xml"), text).expect("a file is written");
        let env = vec![("HADOOP_CONF_DIR", own.path().display().to_string())];
        Backend { store: format!("hdfs://ads{folder}"), env, folder: own }
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let running = self.process.as_ref().expect("it runs");
        let line = words.join("\t") + "\n";
        running.pipes.borrow_mut().0.write_all(line.as_bytes()).expect("it reads");
        self.answer()
    }

    /// The lines up to the one that says that all is done.
    fn answer(&self) -> Vec<String> {
        let running = self.process.as_ref().expect("it runs");
        let mut said = Vec::new();
        loop {
            match running.pipes.borrow_mut().1.next() {
                Some(Ok(line)) if line == "ok" => return said,
                Some(Ok(line)) if !line.starts_with("failed: ") => said.push(line),
                other => {
                    let log = fs::read_to_string(self.log()).unwrap_or_default();
                    panic!("HDFS: {other:?}; {said:?}\n{log}")
                }
            }
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Hdfs {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Our class, Hadoop's cluster for tests, and the rest of Hadoop, which Spark brings.
fn class_path(folder: &Path) -> String {
    let (ours, hadoop, spark) =
        (folder.display(), root().join("target/test-tools/hadoop"), spark_jars());
    format!("{ours}:{}/*:{}/*", hadoop.display(), spark.display())
}
