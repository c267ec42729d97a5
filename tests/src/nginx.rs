//! A real nginx that serves a folder's files, for servers that follow a store over HTTP.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::backend::free_port;

/// How long it may take to start.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running server. A drop kills it.
pub struct Nginx {
    process: Child,
    port: u16,
    own: TempDir,
}

impl Nginx {
    /// Serves the files of a folder on a free port.
    pub fn of(folder: &Path) -> Nginx {
        let port = free_port();
        let own = TempDir::new().expect("a temporary folder");
        let (at, root) = (own.path().display(), folder.display());
        // One process, as whoever runs the test: a temporary folder is for its owner only.
        let configuration = format!(
            "daemon off; master_process off; pid {at}/pid; events {{}}\n\
             http {{ access_log {at}/access.log; client_body_temp_path {at}/body;\n\
             proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
             server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
        );
        let file = own.path().join("nginx.conf");
        fs::write(&file, configuration).expect("its configuration is written");
        let process = Command::new("nginx")
            .arg("-c")
            .arg(&file)
            .args(["-e", &format!("{at}/error.log")])
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx runs (tests/run.sh installs it)");
        let nginx = Nginx { process, port, own };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < DEADLINE, "nginx does not listen: {}", nginx.errors());
            std::thread::yield_now();
        }
        nginx
    }

    /// The address of a path in its folder.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// The methods of all requests so far, each once, in the order of the alphabet.
    pub fn methods(&self) -> Vec<String> {
        let log = fs::read_to_string(self.own.path().join("access.log")).expect("its log");
        // … "GET /store/rt/pin HTTP/1.1" …
        let quoted = log.lines().filter_map(|line| line.split('"').nth(1));
        let mut methods: Vec<String> =
            quoted.filter_map(|request| request.split(' ').next()).map(str::to_owned).collect();
        methods.sort();
        methods.dedup();
        methods
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.own.path().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
