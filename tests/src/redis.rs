//! A real Redis, started for one test, stopped and killed as the test likes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::backend::free_port;

/// A running server. A drop kills it.
pub struct Redis {
    process: Option<Child>,
    port: u16,
    folder: TempDir,
}

impl Redis {
    /// Starts one on a free port.
    pub fn start() -> Redis {
        let port = free_port();
        let folder = TempDir::new().expect("a temporary folder");
        let mut redis = Redis { process: None, port, folder };
        redis.again(&[]);
        redis
    }

    /// Starts it again where it was, with more options.
    pub fn again(&mut self, options: &[&str]) {
        let port = self.port.to_string();
        let mut process = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--appendonly", "yes", "--dir"])
            .arg(self.folder.path())
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server runs (tests/run.sh installs it)");
        let stdout = process.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let ready = lines.find(|line| {
            line.as_ref().is_ok_and(|line| line.contains("Ready to accept connections"))
        });
        assert!(ready.is_some(), "redis-server did not start on port {port}");
        std::thread::spawn(move || lines.for_each(drop));
        self.process = Some(process);
    }

    /// Kills it, as a power failure would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Suspends it, with its connections open, until [`Redis::resume`].
    pub fn hang(&self) {
        self.signal("-STOP");
    }

    /// Ends a [`Redis::hang`].
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("it runs");
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs one command, as `redis-cli` does. Returns the raw response.
    pub fn command(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("Redis listens");
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        request += "*1\r\n$4\r\nQUIT\r\n";
        stream.write_all(request.as_bytes()).expect("Redis reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("Redis answers");
        response.strip_suffix("+OK\r\n").unwrap_or(&response).to_owned()
    }

    /// The value of a key that is there.
    pub fn get(&self, key: &str) -> String {
        let response = self.command(&["GET", key]);
        let (_, value) = response.split_once("\r\n").expect("a bulk string");
        value.strip_suffix("\r\n").expect("a bulk string").to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
