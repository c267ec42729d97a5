//! Runs `bloomsday serve` and sends it requests over HTTP.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::backend::Backend;
use crate::wait::{DEADLINE, PAUSE};

/// A running daemon. A drop kills it.
pub struct Daemon {
    process: Child,
    /// The address for lookups.
    pub public: String,
    /// The address for reloads.
    pub admin: String,
    /// The host and port for Redis clients, with `--resp`.
    pub resp: Option<String>,
}

/// An HTTP response.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// The header `Bloomsday-Day`.
    pub day: Option<String>,
}

impl Daemon {
    /// Starts serving `rt` from the backend's store, polling daily, and returns when it listens.
    pub fn start(backend: &Backend, more: &[&str]) -> Daemon {
        Daemon::of(Daemon::command(backend, more))
    }

    /// As [`Daemon::start`], with what it logs in a file.
    pub fn logging(backend: &Backend, more: &[&str], log: &Path) -> Daemon {
        let log = File::create(log).expect("a log file is made");
        Daemon::spawn(Daemon::command(backend, more), log.into())
    }

    fn command(backend: &Backend, more: &[&str]) -> Command {
        let mut words = vec!["serve", "--admin", "127.0.0.1:0"];
        if !more.contains(&"--listen") {
            words.extend(["--listen", "127.0.0.1:0"]);
        }
        if !more.contains(&"--filter") {
            words.extend(["--filter", "rt"]);
        }
        if !more.contains(&"--poll-interval") {
            words.extend(["--poll-interval", "24h"]);
        }
        words.extend(more);
        backend.bloomsday(&words).into_command()
    }

    /// Runs a command that serves, and returns when it listens.
    pub fn of(command: Command) -> Daemon {
        Daemon::spawn(command, Stdio::inherit())
    }

    fn spawn(mut command: Command, stderr: Stdio) -> Daemon {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the daemon starts");
        let stdout = process.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the daemon says where it listens");
        let at: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let url = |name: &str| format!("http://{}", at[name].as_str().expect("an address"));
        let resp = at["resp"].as_str().map(str::to_owned);
        Daemon { process, public: url("listen"), admin: url("admin"), resp }
    }

    /// Starts it and waits until every filter is loaded.
    pub fn ready(backend: &Backend, more: &[&str]) -> Daemon {
        let daemon = Daemon::start(backend, more);
        daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
        daemon
    }

    /// `GET` of the public address.
    pub fn get(&self, path: &str) -> Answer {
        let url = format!("{}{path}", self.public);
        let answer = ureq::get(&url).config().http_status_as_error(false).build().call();
        read(answer.unwrap_or_else(|e| panic!("GET {url}: {e}")))
    }

    /// `POST` of a body to the public address.
    pub fn post(&self, path: &str, body: &[u8]) -> Answer {
        let url = format!("{}{path}", self.public);
        let answer = ureq::post(&url).config().http_status_as_error(false).build().send(body);
        read(answer.unwrap_or_else(|e| panic!("POST {url}: {e}")))
    }

    /// `POST /admin/reload`, with more of a query if any.
    pub fn reload(&self, query: &str) -> (u16, Value) {
        let url = format!("{}/admin/reload{query}", self.admin);
        let answer = ureq::post(&url).config().http_status_as_error(false).build().send_empty();
        let answer = read(answer.unwrap_or_else(|e| panic!("POST {url}: {e}")));
        let body =
            serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.body));
        (answer.status, body)
    }

    /// The status of `rt`.
    pub fn status(&self) -> Value {
        self.status_of("rt")
    }

    /// The status of a filter.
    pub fn status_of(&self, filter: &str) -> Value {
        let answer = self.get("/status");
        assert_eq!(answer.status, 200);
        let status: Value = serde_json::from_str(&answer.body).expect("the status is JSON");
        status["filters"][filter].clone()
    }

    /// The number after these words in the metrics.
    pub fn metric(&self, line: &str) -> u64 {
        let metrics = self.get("/metrics").body;
        let found = metrics.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {line} in\n{metrics}"))
    }

    /// Whether the filter contains `id`.
    pub fn contains(&self, id: &str) -> bool {
        let answer = self.get(&format!("/v1/filters/rt/ids/{id}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).expect("the answer is JSON");
        answer["contains"].as_bool().expect("contains is true or false")
    }

    /// Waits until `holds` returns true.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn(&Daemon) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            let status = self.get("/status").body;
            assert!(start.elapsed() < DEADLINE, "waited in vain until {what}: {status}");
            std::thread::sleep(PAUSE);
        }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a signal, by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end. Returns the exit status.
    pub fn wait(mut self) -> i32 {
        self.process.wait().expect("the daemon can be waited for").code().unwrap_or(-1)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(mut answer: ureq::http::Response<ureq::Body>) -> Answer {
    let day = answer.headers().get("bloomsday-day").and_then(|day| day.to_str().ok());
    Answer {
        status: answer.status().as_u16(),
        day: day.map(str::to_owned),
        body: answer
            .body_mut()
            .with_config()
            .limit(256 << 20)
            .read_to_string()
            .expect("the body arrives complete"),
    }
}
