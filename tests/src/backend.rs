//! The stores every test runs against: a local folder, and S3 as moto implements it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, Once, OnceLock};

use tempfile::TempDir;

use crate::INTEGRATION;
use crate::program::{Bloomsday, bloomsday};

/// The store of one test.
pub struct Backend {
    /// Its address, for `--store`.
    pub store: String,
    /// The environment variables with its credentials.
    pub env: Vec<(&'static str, String)>,
    /// Deleted with this value, and a local store with it; also a place for input.
    pub folder: TempDir,
}

impl Backend {
    /// A local folder.
    pub fn local() -> Backend {
        let folder = TempDir::new().expect("a temporary folder");
        let store = folder.path().join("store").display().to_string();
        Backend { store, env: Vec::new(), folder }
    }

    /// A new bucket on the S3 server that this test process shares, with a prefix.
    pub fn s3() -> Backend {
        static BUCKETS: Mutex<u32> = Mutex::new(0);
        let bucket = {
            let mut buckets = BUCKETS.lock().expect("counting does not panic");
            *buckets += 1;
            format!("bloomsday-{}", *buckets)
        };
        let server = s3_server();
        let made =
            ureq::put(format!("{server}/{bucket}")).send_empty().expect("moto makes a bucket");
        assert_eq!(made.status(), 200);
        let env = vec![
            ("AWS_ENDPOINT", server.to_owned()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test-secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        let folder = TempDir::new().expect("a temporary folder");
        Backend { store: format!("s3://{bucket}/prod/filters"), env, folder }
    }

    /// Every kind of store, each new; without the feature `integration` only a local folder.
    pub fn all() -> Vec<Backend> {
        static SKIPPED: Once = Once::new();
        if INTEGRATION {
            return vec![Backend::local(), Backend::s3()];
        }
        SKIPPED.call_once(|| eprintln!("skipped: S3, which needs a server (tests/run.sh)"));
        vec![Backend::local()]
    }

    /// Prepares `bloomsday WORDS… --store STORE --json`.
    pub fn bloomsday<S: AsRef<str>>(&self, words: &[S]) -> Bloomsday {
        let mut all: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        all.extend(["--store", &self.store, "--json"]);
        bloomsday(&all).envs(&self.env)
    }

    /// What `bloomsday query` answers for each of some IDs, of which LF ends each.
    pub fn answers(&self, ids: &[u8]) -> Vec<bool> {
        let query = bloomsday(&["query", "rt", "--store", &self.store]).envs(&self.env);
        // The IDs themselves may contain anything but a newline.
        let answers = query.stdin(ids).run().expect(0).stdout;
        answers.lines().map(|line| line.starts_with("1 ")).collect()
    }
}

/// Objects in a local store or in S3 without the program, as with `cp` or the bucket's own tools.
impl Backend {
    /// The bytes at a key, if there is anything.
    pub fn read(&self, key: &str) -> Option<Vec<u8>> {
        let Some(url) = self.url(key) else { return std::fs::read(self.path(key)).ok() };
        let get = ureq::get(url).header("Authorization", TEST_AUTHORIZATION);
        let got = get.config().http_status_as_error(false).build().call().expect("moto answers");
        let found = got.status() == 200;
        found.then(|| got.into_body().read_to_vec().expect("an object"))
    }

    /// Writes over whatever is at a key.
    pub fn write(&self, key: &str, bytes: &[u8]) {
        let Some(url) = self.url(key) else {
            return std::fs::write(self.path(key), bytes).expect("a file is written");
        };
        let put = ureq::put(url).header("Authorization", TEST_AUTHORIZATION).send(bytes);
        assert_eq!(put.expect("moto writes").status(), 200);
    }

    /// Removes what is at a key.
    pub fn remove(&self, key: &str) {
        let Some(url) = self.url(key) else {
            return std::fs::remove_file(self.path(key)).expect("a file is removed");
        };
        let gone = ureq::delete(url).header("Authorization", TEST_AUTHORIZATION).call();
        assert_eq!(gone.expect("moto deletes").status(), 204);
    }

    fn path(&self, key: &str) -> std::path::PathBuf {
        std::path::Path::new(&self.store).join(key)
    }

    fn url(&self, key: &str) -> Option<String> {
        let path = self.store.strip_prefix("s3://")?;
        Some(format!("{}/{path}/{key}", s3_server()))
    }
}

/// Moto requires credentials, and accepts any.
const TEST_AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=test/20261119/us-east-1/s3/aws4_request, \
                       SignedHeaders=host, Signature=none";

/// A port that nobody listens on, for a server that cannot choose one itself.
pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("an address").port()
}

/// The address of the S3 server, started at the first call and stopped with this process.
pub fn s3_server() -> &'static str {
    static SERVER: OnceLock<S3> = OnceLock::new();
    &SERVER.get_or_init(S3::start).address
}

struct S3 {
    address: String,
    /// Only the watcher below ends it; kept for its name in a debugger.
    _process: Child,
}

impl S3 {
    fn start() -> S3 {
        let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/test-tools/bin/python");
        let moto = concat!(env!("CARGO_MANIFEST_DIR"), "/python/s3_server.py");
        // Statics are not dropped: the shell stops moto when this process closes its stdin by
        // ending. It keeps no stderr of its own, so that the pipe ends with a moto that does not
        // start.
        let script =
            format!("{python} {moto} -H 127.0.0.1 -p 0 & exec 2>/dev/null; read _; kill $!");
        let mut process = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let stderr = process.stderr.take().expect("stderr is piped");
        let mut lines = BufReader::new(stderr).lines();
        let mut said = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("moto did not start (tests/run.sh installs it): {said}");
            };
            if let Some((_, address)) = line.split_once("Running on ") {
                break address.trim().to_owned();
            }
            said += &line;
        };
        // Moto logs every request: a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        S3 { address, _process: process }
    }
}
