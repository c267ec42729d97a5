//! A Google Cloud Storage server: fake-gcs-server behind `tests/gcs`, started, killed and started
//! again.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::backend::{Backend, free_port};
use crate::wait::until;

/// A running server, which keeps its objects when it is killed. A drop kills it.
pub struct Gcs {
    process: Option<Child>,
    port: u16,
    folder: TempDir,
}

impl Gcs {
    /// Starts one on a free port.
    pub fn start() -> Gcs {
        let folder = TempDir::new().expect("a temporary folder");
        let mut gcs = Gcs { process: None, port: free_port(), folder };
        gcs.again();
        gcs
    }

    /// Starts it again where it was, with what it had.
    pub fn again(&mut self) {
        let program =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../target/test-tools/bin/fake-gcs-server");
        let process = Command::new(program)
            .args(["-port", &self.port.to_string(), "-folder"])
            .arg(self.folder.path())
            // It ends with its stdin, so also with this process.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("fake-gcs-server runs (tests/run.sh builds it)");
        let process = self.process.insert(process);
        let stdout = process.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let ready =
            lines.next().is_some_and(|line| line.is_ok_and(|line| line.contains("listens")));
        assert!(ready, "fake-gcs-server did not start on port {}", self.port);
    }

    /// Kills it, as a power failure would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Kills it, calls `begin`, answers so many requests with 503, as a server with too many of
    /// them, and starts it again.
    pub fn throttle(&mut self, requests: usize, begin: impl FnOnce()) {
        self.kill();
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("its port is free");
        listener.set_nonblocking(true).expect("a listener can wait for a while only");
        begin();
        for n in 0..requests {
            let stream = until(&format!("request {n} comes"), || {
                listener.accept().ok().map(|(stream, _)| stream)
            });
            stream.set_nonblocking(false).expect("a stream can wait");
            let mut lines = BufReader::new(&stream).lines();
            let blank = |line: &io::Result<String>| line.as_ref().is_ok_and(String::is_empty);
            assert!(lines.any(|line| blank(&line)), "a request");
            let head = "HTTP/1.1 503 Service Unavailable";
            write!(&stream, "{head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .expect("an answer");
        }
        drop(listener);
        self.again();
    }

    /// A store in a new bucket.
    pub fn backend(&self, bucket: &str) -> Backend {
        let url = format!("http://127.0.0.1:{}", self.port);
        let made = ureq::post(format!("{url}/storage/v1/b"))
            .send(format!(r#"{{"name":"{bucket}"}}"#))
            .expect("a bucket is made");
        assert_eq!(made.status(), 200);
        let account = format!(
            r#"{{"gcs_base_url":"{url}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#
        );
        let env = vec![("GOOGLE_SERVICE_ACCOUNT_KEY", account)];
        let folder = TempDir::new().expect("a temporary folder");
        Backend { store: format!("gs://{bucket}/prod/filters"), env, folder }
    }
}

impl Drop for Gcs {
    fn drop(&mut self) {
        self.kill();
    }
}
