//! A real nginx that serves a folder's files, for servers that follow a store over HTTP; and the
//! relay of `deploy/nginx` in front of one.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::backend::free_port;
use crate::sources;

/// How long it may take to start.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running server. A drop kills it.
pub struct Nginx {
    process: Child,
    port: u16,
    own: TempDir,
}

/// A request in its log.
#[derive(Debug)]
pub struct Logged {
    /// Method, path, version.
    pub request: String,
    /// The status.
    pub status: u16,
    /// The length of the body of the response.
    pub bytes: u64,
}

impl Nginx {
    /// Serves the files of a folder on a free port.
    pub fn of(folder: &Path) -> Nginx {
        let root = folder.display();
        Nginx::run(|port, _| format!("server {{ listen 127.0.0.1:{port}; root {root}; }}"))
    }

    /// The relay of `deploy/nginx`, with the places that one adapts, in front of another nginx.
    pub fn relay(origin: &Nginx) -> Nginx {
        let file = sources::root().join("deploy/nginx/relay.conf");
        let file = fs::read_to_string(file).expect("it is there");
        Nginx::run(|port, own| {
            let places = [
                ("/var/cache/nginx/bloomsday", own.join("cache").display().to_string()),
                ("server 127.0.0.1:8080;", format!("server 127.0.0.1:{};", origin.port)),
                ("listen 127.0.0.1:8650;", format!("listen 127.0.0.1:{port};")),
                ("Host 127.0.0.1:8080;", format!("Host 127.0.0.1:{};", origin.port)),
            ];
            places.iter().fold(file.clone(), |text, (from, to)| {
                let times = if from.starts_with("Host") { 2 } else { 1 };
                assert_eq!(text.matches(from).count(), times, "{from} is to be adapted");
                text.replace(from, to)
            })
        })
    }

    fn run(servers: impl Fn(u16, &Path) -> String) -> Nginx {
        let port = free_port();
        let own = TempDir::new().expect("a temporary folder");
        let at = own.path().display();
        let servers = servers(port, own.path());
        // One process, as whoever runs the test: a temporary folder is for its owner only.
        let configuration = format!(
            "daemon off; master_process off; pid {at}/pid; events {{}}\n\
             http {{ access_log {at}/access.log; client_body_temp_path {at}/body;\n\
             proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
             {servers} }}\n"
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

    /// All requests so far.
    pub fn requests(&self) -> Vec<Logged> {
        // One process writes the line of a request before it reads the next one.
        let _ = ureq::get(self.url("mark")).call();
        let log = fs::read_to_string(self.own.path().join("access.log")).expect("its log");
        // … "GET /store/rt/pin HTTP/1.1" 200 12 "-" …
        let lines = log.lines().map(|line| {
            let mut parts = line.split('"').skip(1);
            let request = parts.next().expect("a request").to_owned();
            let mut numbers = parts.next().expect("numbers").split_ascii_whitespace();
            let mut number = || numbers.next().and_then(|n| n.parse().ok()).expect("a number");
            Logged { request, status: number() as u16, bytes: number() }
        });
        lines.filter(|logged| !logged.request.contains("/mark ")).collect()
    }

    /// The files of what a relay stores.
    pub fn stored(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.own.path().join("cache")).expect("a cache");
        files.map(|file| file.expect("a file").path()).collect()
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
