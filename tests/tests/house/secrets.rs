//! No secret is in anything the program says, logs, serves or stores, whatever goes wrong and
//! however much it logs; and nothing that somebody wrote into a record can drive a terminal or a
//! log file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bloomsday_tests::backend::{Backend, s3_server};
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::program::bloomsday;
use serde_json::Value;

/// A text that is nowhere else, so that finding it anywhere is a leak.
const SECRET: &str = "hunter2-c0rrect-h0rse";

/// A store on S3 whose every credential holds the secret, and all that was ever said.
struct Ear {
    backend: Backend,
    store: String,
    env: Vec<(&'static str, String)>,
    heard: String,
}

impl Ear {
    fn new() -> Ear {
        let backend = Backend::s3();
        let store = backend.store.replace("s3://", &format!("s3://me:{SECRET}@"));
        let mut env = backend.env.clone();
        env.retain(|(name, _)| *name != "AWS_SECRET_ACCESS_KEY");
        env.push(("AWS_SECRET_ACCESS_KEY", format!("key-{SECRET}")));
        env.push(("AWS_SESSION_TOKEN", format!("session-{SECRET}")));
        env.push(("RUST_LOG", "trace".to_owned()));
        Ear { backend, store, env, heard: String::new() }
    }

    fn folder(&self) -> &Path {
        self.backend.folder.path()
    }

    /// Runs a command on the store, once for people and once for programs.
    #[track_caller]
    fn run(&mut self, words: &[&str], code: i32) -> String {
        let store = self.store.clone();
        self.run_on(&store, words, code)
    }

    #[track_caller]
    fn run_on(&mut self, store: &str, words: &[&str], code: i32) -> String {
        let mut stdout = String::new();
        for more in [&[][..], &["--json"]] {
            let run = bloomsday(&[words, &["--store", store], more].concat());
            let run = run.envs(&self.env).current_dir(self.folder()).run().expect(code);
            assert!(!run.stderr.contains(SECRET), "{words:?} said it:\n{}", run.stderr);
            assert!(!run.stdout.contains(SECRET), "{words:?} said it:\n{}", run.stdout);
            self.heard += &run.stderr;
            stdout = run.stdout;
        }
        stdout
    }
}

fn users(folder: &Path) -> String {
    let file = folder.join("in.parquet");
    write_users(&file, 0..1_000);
    file.display().to_string()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn no_command_says_a_secret_however_much_it_logs() {
    let mut ear = Ear::new();
    let input = users(ear.folder());
    let (before, day) = (today().minus(1).to_string(), today().to_string());
    for day in [&before, &day] {
        let words = ["build", "rt", "--day", day, "--input", &input, "--column", "device_id"];
        ear.run(&words, 0);
    }
    let text = ear.run(&["status", "rt"], 0);
    let report: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let blob = report["blob"].as_str().unwrap().to_owned();
    ear.run(&["history", "rt"], 0);
    ear.run(&["query", "rt", &user(1)], 0);
    ear.run(&["inspect", &blob], 0);
    ear.run(&["repoint", "rt", &day, "--to", &before, "--reason", "test"], 0);
    ear.run(&["pin", "rt", "--to", &before], 0);
    ear.run(&["unpin", "rt"], 0);
    ear.run(&["config", "check"], 0);
    // An input on the same bucket, named with a password, that is not there.
    let inputs = [
        format!("{}/nowhere/", ear.store),
        format!("{}/nowhere/*.parquet", ear.store),
        format!("{}/nowhere/x.parquet?X-Amz-Signature={SECRET}&x=1", ear.store),
    ];
    for input in &inputs {
        ear.run(&["build", "rt", "--day", &day, "--input", input, "--column", "x"], 4);
    }
    let glob = format!("s3://me:{SECRET}@buck*t/x");
    ear.run(&["build", "rt", "--day", &day, "--input", &glob, "--column", "x"], 2);
    let unclosed = format!("s3://me:{SECRET}@bucket/{{day");
    ear.run(&["build", "rt", "--day", &day, "--input", &unclosed, "--column", "x"], 2);
    let foreign = format!("https://me:{SECRET}@evil/rt/blobs/x.bloom");
    ear.run(&["repoint", "rt", &day, "--to", &foreign], 2);
    // The check hears what there is to hear: the program did log everything.
    assert!(ear.heard.contains("TRACE"), "{}", ear.heard);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn an_address_that_cannot_be_used_is_printed_without_its_password() {
    let ear = Ear::new();
    for address in [
        format!("s3://me:{SECRET}@bucket:99999/x"),
        format!("s3://me:{SECRET}@/x"),
        format!("s3://me:{SECRET}@a bucket/x"),
        format!("s3://[me:{SECRET}@bucket/x"),
        format!("s3://me:{SECRET}/@bucket/x"),
        format!("s3://me:a b{SECRET}@:/x"),
        format!("gopher://me:{SECRET}@host/x"),
        format!("https://me:{SECRET}@host/x"),
        format!("https://host/x?token={SECRET}"),
        format!("gs://me:{SECRET}@host/x?a={SECRET}"),
        format!("file://me:{SECRET}@host/x"),
    ] {
        for words in [&["status"][..], &["config", "check", "--dry-run"]] {
            let run = bloomsday(&[words, &["--store", &address]].concat()).envs(&ear.env).run();
            assert!(!(run.stdout + &run.stderr).contains(SECRET), "{address}: {}", run.stderr);
        }
    }
    // A server that refuses, and one that is not there.
    let bucket = format!("s3://me:{SECRET}@no-such-bucket-here/x?sig={SECRET}");
    let run = bloomsday(&["query", "rt", "x", "--store", &bucket]).envs(&ear.env).run();
    assert!(run.code != 0 && !run.stderr.contains(SECRET), "{}", run.stderr);
    assert!(run.stderr.contains("no-such-bucket-here"), "{}", run.stderr);
    // Nobody listens at this endpoint.
    let mut env = ear.env.clone();
    env.retain(|(name, _)| !name.starts_with("AWS_ENDPOINT"));
    env.push(("AWS_ENDPOINT", format!("http://me:{SECRET}@127.0.0.1:1")));
    let run = bloomsday(&["-vv", "status", "rt", "--store", "s3://bucket/x"]).envs(&env).run();
    assert!(run.stderr.contains("TRACE") && !run.stderr.contains(SECRET), "{}", run.stderr);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_configuration_and_the_help_show_addresses_without_their_passwords() {
    let ear = Ear::new();
    let file = ear.folder().join("bloomsday.toml");
    let inputs = format!("[\"s3://me:{SECRET}@dmp/{{day}}/\", \"https://h/x?sig={SECRET}\"]");
    let sound = format!("store = \"{}\"\n[filters.rt]\ninput = {inputs}\n", ear.store);
    let token = ear.folder().join("token");
    fs::write(&token, SECRET).unwrap();
    let sound = format!("admin_token_file = \"{}\"\n{sound}", token.display());
    let check = |text: &str, words: &[&str], code: i32| {
        fs::write(&file, text).unwrap();
        let run = bloomsday(words).envs(&ear.env).current_dir(ear.folder()).run().expect(code);
        assert!(!run.stdout.contains(SECRET), "{text}\n{}", run.stdout);
        assert!(!run.stderr.contains(SECRET), "{text}\n{}", run.stderr);
        run
    };
    let printed = check(&sound, &["config", "check"], 0).stdout;
    assert!(printed.contains("s3://dmp/{day}/"), "{printed}");
    check(&sound, &["config", "check", "--json"], 0);
    // What a parser cannot read it likes to repeat.
    for wrong in [
        format!("store = \"s3://me:{SECRET}@b\" oops\n"),
        format!("store = s3://me:{SECRET}@b\n"),
        format!("listen = \"s3://me:{SECRET}@b\"\n"),
        format!("[filters.rt]\nfpp = \"s3://me:{SECRET}@b\"\n"),
        format!("[filters.rt]\nlayout = \"s3://me:{SECRET}@b\"\n"),
        format!("[filters.rt]\nschedule = [\"s3://me:{SECRET}@b\"]\n"),
        format!("filters = \"s3://me:{SECRET}@b\"\n"),
        format!("store = \"s3://me:{SECRET}@b:99999\"\n"),
        format!("[filters.rt]\ninput = \"https://me:{SECRET}@h/x\"\n"),
        format!("[filters.rt]\ninput = \"s3://me:{SECRET}@b/{{dya}}\"\n"),
    ] {
        check(&wrong, &["config", "check"], 2);
    }
    fs::remove_file(&file).unwrap();
    for words in [&["--help"][..], &["serve", "--help"], &["build", "-h"]] {
        let env = [("BLOOMSDAY_STORE", ear.store.clone())];
        let run = bloomsday(words).envs(&env).run().expect(0);
        assert!(
            run.stdout.contains("BLOOMSDAY_STORE") && !run.stdout.contains(SECRET),
            "{words:?}"
        );
    }
}

/// A daemon whose every log line goes to a file.
struct Logged {
    process: Child,
    public: String,
    admin: String,
    log: PathBuf,
}

impl Logged {
    fn serve(env: &[(&str, String)], store: &str, folder: &Path, more: &[&str]) -> Logged {
        let log = folder.join("log");
        let words =
            ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let words = [&words, more, &["--store", store, "--json"]].concat();
        let mut command = bloomsday(&words).envs(env).into_command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at: Value = serde_json::from_str(&line)
            .unwrap_or_else(|e| panic!("{e}: {}", fs::read_to_string(&log).unwrap()));
        let url = |name: &str| format!("http://{}", at[name].as_str().unwrap());
        Logged { process, public: url("listen"), admin: url("admin"), log }
    }

    /// What an address answers to a `GET`, or to a `POST` with a token: all of it.
    fn get(&self, url: &str, token: Option<&str>) -> (u16, String) {
        let mut answer = match token {
            None => ureq::get(url).config().http_status_as_error(false).build().call(),
            Some(token) => ureq::post(url)
                .header("Authorization", format!("Bearer {token}"))
                .config()
                .http_status_as_error(false)
                .build()
                .send_empty(),
        }
        .unwrap();
        let head = format!("{:?}", answer.headers());
        (answer.status().as_u16(), head + &answer.body_mut().read_to_string().unwrap())
    }

    fn ready(&self) {
        let start = Instant::now();
        while self.get(&format!("{}/readyz", self.public), None).0 != 200 {
            assert!(start.elapsed() < Duration::from_secs(60), "never ready: {}", self.logged());
            std::thread::yield_now();
        }
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_daemon_says_no_secret_in_its_log_its_status_or_its_errors() {
    let mut ear = Ear::new();
    let (day, input) = (today().to_string(), users(ear.folder()));
    ear.run(&["build", "rt", "--day", &day, "--input", &input, "--column", "device_id"], 0);
    let token = ear.folder().join("token");
    fs::write(&token, format!("{SECRET}\n")).unwrap();
    let token = token.display().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let (cert_file, key_file) = (ear.folder().join("cert.pem"), ear.folder().join("key.pem"));
    fs::write(&cert_file, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let (cert_file, key_file) = (cert_file.display().to_string(), key_file.display().to_string());
    let serve = |more: &[&str]| {
        let words = [&["-vv", "--admin-token-file", &token], more].concat();
        Logged::serve(&ear.env, &ear.store, ear.folder(), &words)
    };
    {
        let daemon = serve(&["--tls-cert", &cert_file, "--tls-key", &key_file]);
        // A handshake, as a stranger would begin one.
        let address = daemon.public.strip_prefix("http://").unwrap();
        drop(std::net::TcpStream::connect(address).unwrap());
        let secret_lines = key.serialize_pem();
        let mut secret_lines = secret_lines.lines().filter(|line| line.len() > 20);
        let logged = daemon.logged();
        assert!(secret_lines.all(|line| line.starts_with("----") || !logged.contains(line)));
    }
    let daemon = serve(&[]);
    daemon.ready();
    let reload = format!("{}/admin/reload", daemon.admin);
    let mut said = daemon.get(&reload, Some(SECRET));
    assert_eq!(said.0, 200, "{}", said.1);
    for wrong in [format!("{SECRET}x"), SECRET[1..].to_owned(), String::new()] {
        let answer = daemon.get(&reload, Some(&wrong));
        assert_eq!(answer.0, 401);
        said.1 += &answer.1;
    }
    // A reload that fails, so that there is an error to show: the pointer is garbage.
    let (bucket, key) = ear.backend.store.strip_prefix("s3://").unwrap().split_once('/').unwrap();
    let url = format!("{}/{bucket}/{key}/rt/pointers/{day}", s3_server());
    let garbage = format!("https://me:{SECRET}@elsewhere/rt/blobs/x.bloom?sig={SECRET}");
    let who = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request";
    ureq::put(url).header("Authorization", who).send(garbage.as_bytes()).unwrap();
    let answer = daemon.get(&reload, Some(SECRET));
    assert_eq!(answer.0, 502, "{}", answer.1);
    said.1 += &answer.1;
    for path in ["/status", "/metrics", "/", "/version", "/readyz", "/nowhere"] {
        said.1 += &daemon.get(&format!("{}{path}", daemon.public), None).1;
    }
    assert!(said.1.contains("elsewhere"), "the error is not reported at all: {}", said.1);
    assert!(!said.1.contains(SECRET), "it was served: {}", said.1);
    let logged = daemon.logged();
    assert!(logged.contains("TRACE") && logged.contains("elsewhere"), "{logged}");
    assert!(!logged.contains(SECRET), "it was logged: {logged}");
    assert!(!logged.contains(&user(1)), "an ID was logged: {logged}");
}

#[test]
fn what_a_record_says_cannot_drive_a_terminal_or_begin_a_log_line() {
    let backend = Backend::local();
    let (day, input) = (today().to_string(), users(backend.folder.path()));
    let words = ["build", "rt", "--day", &day, "--input", &input, "--column", "device_id"];
    backend.bloomsday(&words).run().expect(0);
    let evil = "\u{1b}[2J\u{9b}31m\rx\n2026-11-21T00:00:00Z ERROR forged\u{7}\u{202e}";
    let long = "y".repeat(50_000);
    let reason = format!("{evil}{long}");
    let text = |words: &[&str]| {
        let words = [words, &["--store", &backend.store]].concat();
        let run = bloomsday(&words).run();
        run.stdout + &run.stderr
    };
    let check = |said: &str| {
        let wild = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!said.contains(wild), "control characters in {said:?}");
        assert!(!said.lines().any(|line| line.starts_with("2026-11-21T00:00:00Z ERROR")), "{said}");
        assert!(said.lines().all(|line| line.len() < 5_000), "a line of more than 5,000 bytes");
    };
    // Through the program, and past it.
    backend.bloomsday(&["pin", "rt", "--to", &day, "--reason", &reason]).run().expect(0);
    let status = text(&["status", "rt"]);
    assert!(status.contains("forged"), "the reason is not reported at all: {status}");
    check(&status);
    check(&text(&["history", "rt"]));
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);

    let pointer = PathBuf::from(&backend.store).join("rt/pointers").join(&day);
    let sound: Value = serde_json::from_slice(&fs::read(&pointer).unwrap()).unwrap();
    let mut records = vec![format!("{evil}"), format!("blobs/{evil}.bloom"), long.clone()];
    for field in ["blob", "day", "digest", "act", "published_at", "published_by", "bytes", "reason"]
    {
        let mut record = sound.clone();
        record[field] = Value::String(reason.clone());
        records.push(record.to_string());
    }
    // With a name that is no field at all, and JSON that breaks off in the middle of it.
    records.push(format!("{{\"blob\":{}", Value::String(reason.clone())));
    let daemon = Logged::serve(&[], &backend.store, backend.folder.path(), &[]);
    daemon.ready();
    for record in records {
        fs::write(&pointer, &record).unwrap();
        check(&text(&["status", "rt"]));
        check(&text(&["query", "rt", "x"]));
        let (_, answer) = daemon.get(&format!("{}/admin/reload", daemon.admin), Some("-"));
        assert!(answer.len() < 5_000, "{answer}");
        check(&daemon.get(&format!("{}/", daemon.public), None).1);
        check(&daemon.get(&format!("{}/metrics", daemon.public), None).1);
    }
    let logged = daemon.logged();
    assert!(logged.contains("cannot be read"), "{logged}");
    check(&logged);
    // A file among the input whose name is the attack.
    let folder = backend.folder.path().join("files");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a\u{1b}[2J\n2026-11-21T00:00:00Z ERROR forged"), "no Parquet").unwrap();
    let folder = folder.display().to_string();
    let said = text(&["build", "rt", "--day", &day, "--input", &folder, "--column", "device_id"]);
    assert!(said.contains("forged"), "{said}");
    check(&said);
}
