//! Who may connect and change live IDs, and what the configuration says of it: `[resp]` of the
//! file, TLS with real clients, and the token over both protocols.

use std::fs;
use std::path::Path;
use std::process::Command;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::live::{LiveDaemon, Wire};
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::publisher::Publisher;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

const NO_FILTER: &str =
    "-ERR there is no filter of this name, and clients may not make one on this server|";

#[test]
fn the_file_says_what_the_flags_say() {
    let folder = TempDir::new().unwrap();
    let (config, data) = (folder.path().join("live.toml"), folder.path().join("data"));
    let text = format!(
        "[resp]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nack = \"written\"\n\
         live_memory = \"4MiB\"\nmax_filters = 2\nallow_flush = true\n",
        data.display()
    );
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let daemon = LiveDaemon::start(&["--config", config]);
    let mut wire = daemon.connect();
    assert_eq!(wire.call("CONFIG GET maxmemory"), "*2|$9|maxmemory|$7|4194304|");
    assert_eq!(wire.call("CONFIG GET appendfsync"), "*2|$11|appendfsync|$8|everysec|");
    assert_eq!(wire.call("BF.ADD a x"), ":1|");
    assert_eq!(wire.call("SADD b x"), ":1|");
    let full = "-ERR there are 2 filters, which is the most: delete one|";
    assert_eq!(
        (wire.call("SADD c x"), wire.call("BF.RESERVE c 0.1 9")),
        (full.into(), full.into())
    );
    assert_eq!(wire.call("FLUSHALL"), "+OK|");
    assert_eq!(wire.call("SADD c x"), ":1|");
    daemon.kill();
    // A flag beats the file.
    let daemon = LiveDaemon::start(&["--config", config, "--live-memory", "8MiB"]);
    let mut wire = daemon.connect();
    assert_eq!(wire.call("CONFIG GET maxmemory"), "*2|$9|maxmemory|$7|8388608|");
    assert_eq!(wire.call("SISMEMBER c x"), ":1|");

    let check = bloomsday(&["config", "check", "--config", config, "--json"]).run().expect(0);
    let values: Vec<Value> =
        check.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| {
        let value = values.iter().find(|value| value["name"] == name).expect(name);
        format!("{} ({})", value["value"].as_str().unwrap(), value["from"].as_str().unwrap())
    };
    assert_eq!(of("resp.ack"), "written (file)");
    assert_eq!(of("resp.max_filters"), "2 (file)");
    assert_eq!(of("resp.create"), "true (default)");
    assert_eq!(of("resp.token_file"), "none (default)");
    // What is promised needs a folder.
    let run = bloomsday(&["serve", "--resp", "127.0.0.1:0", "--ack", "synced"]).run().expect(2);
    assert!(run.stderr.contains("--data-dir"), "{}", run.stderr);
}

#[test]
fn a_log_is_not_left_unread_by_an_ack_that_keeps_nothing() {
    let folder = TempDir::new().unwrap();
    let daemon = LiveDaemon::on(folder.path(), &[]);
    assert_eq!(daemon.connect().call("SADD s x"), ":1|");
    daemon.kill();
    let data = folder.path().to_str().unwrap();
    let words = ["serve", "--resp", "127.0.0.1:0", "--data-dir", data, "--ack", "memory"];
    let run = bloomsday(&words).run().expect(2);
    assert!(run.stderr.contains("would not read the live IDs in"), "{}", run.stderr);
}

/// A store with a filter of today.
fn backend() -> Backend {
    let backend = Backend::local();
    Publisher::day(&backend, today()).users(0..5_000).publish();
    backend
}

/// Writes a file into the backend's folder; its path.
fn file(backend: &Backend, name: &str, text: &str) -> String {
    let path = backend.folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn clients_make_no_filters_where_the_file_forbids_it() {
    let backend = backend();
    let text =
        "[resp]\nlisten = \"127.0.0.1:0\"\ncreate = false\n[filters.rt]\nlive = \"decide\"\n";
    let daemon = Daemon::ready(&backend, &["--config", &file(&backend, "live.toml", text)]);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    assert_eq!(wire.call("SADD rt new-1"), ":1|");
    for line in [
        "BF.ADD other x",
        "BF.RESERVE other 0.1 9",
        "CF.ADD other x",
        "SADD other x",
        "BLOOM.RESERVE other",
        "BF.INSERT other ITEMS x",
    ] {
        assert_eq!(wire.call(line), NO_FILTER, "{line}");
    }
    assert_eq!(wire.call("BF.RESERVE rt 0.1 9"), "-ERR item exists|");
    assert_eq!(wire.call("BF.EXISTS other x"), ":0|");
}

/// `POST` to the public address, with a token if any; the status.
fn post(daemon: &Daemon, act: &str, token: Option<&str>) -> u16 {
    let url = format!("{}/v1/filters/rt/{act}", daemon.public);
    let mut request = ureq::post(&url);
    if let Some(token) = token {
        request = request.header("Authorization", &format!("Bearer {token}"));
    }
    let answer = request.config().http_status_as_error(false).build().send("new-1");
    answer.unwrap().status().as_u16()
}

#[test]
fn a_body_with_one_line_that_is_no_id_changes_nothing() {
    let backend = backend();
    let config = file(&backend, "live.toml", "[filters.rt]\nlive = \"decide\"\n");
    let daemon = Daemon::ready(&backend, &["--config", &config]);
    for act in ["add", "forget"] {
        for body in ["new-1\n\nnew-2\n", &format!("new-1\n{}\n", "x".repeat(1_025))] {
            let reply = daemon.post(&format!("/v1/filters/rt/{act}"), body.as_bytes());
            assert_eq!(reply.status, 400, "{act}: {}", reply.body);
            assert!(reply.body.contains("1 to 1,024 bytes"), "{}", reply.body);
        }
    }
    assert!(!daemon.contains("new-1"));
    let added = daemon.post("/v1/filters/rt/add", b"new-1\nnew-2\n");
    assert_eq!((added.status, added.body.as_str()), (200, "1\n1\n"));
    end(daemon);
}

#[test]
fn strangers_look_up_and_change_nothing() {
    let backend = backend();
    let text = "[filters.rt]\nlive = \"decide\"\n";
    let config = file(&backend, "live.toml", text);
    let admin = file(&backend, "admin", "the operator's\n");
    let live = file(&backend, "live", "correct horse\n");
    let everywhere = ["--config", &config, "--listen", "0.0.0.0:0"];
    let reachable = |daemon: &mut Daemon| {
        daemon.public = daemon.public.replace("0.0.0.0", "127.0.0.1");
        daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
    };
    // Without a token, an address that others reach only answers lookups.
    let mut daemon = Daemon::start(&backend, &everywhere);
    reachable(&mut daemon);
    assert_eq!((post(&daemon, "add", None), post(&daemon, "forget", Some("x"))), (403, 403));
    assert!(!daemon.contains("new-1"));
    end(daemon);
    // Any address with a token wants it, over either protocol; the operator's is another.
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let more = ["--config", &config, "--listen", address, "--resp", address];
        let tokens = ["--admin-token-file", &admin, "--live-token-file", &live];
        let mut daemon = Daemon::start(&backend, &[&more[..], &tokens].concat());
        reachable(&mut daemon);
        for wrong in [None, Some("the operator's"), Some("correct")] {
            let both = (post(&daemon, "add", wrong), post(&daemon, "forget", wrong));
            assert_eq!(both, (401, 401), "{wrong:?}");
        }
        assert_eq!(daemon.post("/v1/filters/rt/query", user(1).as_bytes()).body, "1\n");
        assert!(!daemon.contains("new-1"));
        assert_eq!(post(&daemon, "add", Some("correct horse")), 200);
        assert!(daemon.contains("new-1"));
        let resp = daemon.resp.as_ref().unwrap().replace("0.0.0.0", "127.0.0.1");
        let mut wire = Wire::connect(&resp);
        for (words, expected) in [
            (&["SADD", "rt", "new-2"][..], "-NOAUTH Authentication required.|"),
            (
                &["EXEC"],
                "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.|",
            ),
            (&["AUTH", "the operator's"], WRONGPASS),
            (&["AUTH", "default", "correct"], WRONGPASS),
            (&["AUTH", "root", "correct horse"], WRONGPASS),
            (&["HELLO", "3", "AUTH", "default", "x"], WRONGPASS),
            (&["AUTH", "default", "correct horse"], "+OK|"),
            (&["SADD", "rt", "new-2"], ":1|"),
        ] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            wire.send(&bloomsday_tests::live::encode(&words)).unwrap();
            assert_eq!(wire.reply().unwrap(), expected, "{words:?}");
        }
        let mut wire = Wire::connect(&resp);
        let hello: [&[u8]; 5] = [b"HELLO", b"3", b"AUTH", b"default", b"correct horse"];
        wire.send(&bloomsday_tests::live::encode(&hello)).unwrap();
        assert!(wire.reply().unwrap().starts_with("%7|"));
        assert_eq!(wire.call("BF.EXISTS rt new-2"), "#t|");
        end(daemon);
    }
    // With one token alone it is for both.
    let more = ["--config", &config, "--resp", "127.0.0.1:0", "--admin-token-file", &admin];
    let daemon = Daemon::ready(&backend, &more);
    assert_eq!(
        (post(&daemon, "add", None), post(&daemon, "add", Some("the operator's"))),
        (401, 200)
    );
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    assert_eq!(wire.call("PING"), "-NOAUTH Authentication required.|");
}

#[test]
fn who_has_no_token_keeps_no_client_with_the_token_out() {
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "correct horse\n").unwrap();
    let daemon = LiveDaemon::start(&["--live-token-file", token.to_str().unwrap()]);
    let login = || {
        let mut wire = daemon.connect();
        assert_eq!(wire.call("AUTH correct"), WRONGPASS);
        wire.send(&bloomsday_tests::live::encode(&[b"AUTH", b"correct horse"])).unwrap();
        assert_eq!(wire.reply().unwrap(), "+OK|");
        wire
    };
    let mut first = login();
    let mut strangers: Vec<Wire> = (1..1_024).map(|_| daemon.connect()).collect();
    let mut others = [login(), login()];
    assert!(strangers[0].is_closed() && strangers[1].is_closed(), "the oldest made way");
    assert_eq!(strangers[2].call("PING"), "-NOAUTH Authentication required.|");
    others.iter_mut().for_each(|wire| assert_eq!(wire.call("PING"), "+PONG|"));
    let stats = first.call("INFO stats");
    assert!(stats.contains("rejected_connections:2"), "{stats}");
}

/// Ends a server, so that it gives its lease back.
fn end(daemon: Daemon) {
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
}

/// The value of a metric, which its whole name with labels begins.
fn metric(page: &str, name: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in\n{page}"))
}

#[test]
fn a_server_for_redis_clients_alone_answers_scrapes_health_checks_and_its_status() {
    let folder = TempDir::new().unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--live-memory", "32MiB"];
    let daemon = LiveDaemon::on(folder.path(), &flags);
    let address = daemon.listen.clone().expect("it says where");
    let get = |path: &str| {
        let url = format!("http://{address}{path}");
        ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap()
    };
    let mut wire = daemon.connect();
    assert_eq!(wire.call("BF.MADD seen a b a"), "*3|:1|:1|:0|");
    for (line, reply) in [
        ("CF.ADD copies a", ":1|"),
        ("CF.ADD copies a", ":1|"),
        ("CF.ADDNX copies a", ":0|"),
        ("SIM.RESERVE near", "+OK|"),
        ("SIM.ADD near 00000000000000ff", "$-1|"),
        ("SIM.ADD near 00000000000000fe", "*2|$16|00000000000000ff|:1|"),
        ("SELECT 3", "+OK|"),
        ("SADD seen a", ":1|"),
    ] {
        assert_eq!(wire.call(line), reply, "{line}");
    }
    let page = get("/metrics");
    let of = |metric: &str, labels: &str| {
        self::metric(&page, &format!("bloomsday_resp_filter_{metric}{{{labels}}} "))
    };
    assert_eq!(of("entries", r#"database="0",filter="seen""#), 2.0);
    assert_eq!(of("entries", r#"database="3",filter="seen""#), 1.0);
    assert_eq!(of("adds_total", r#"database="0",filter="seen",result="new""#), 2.0);
    assert_eq!(of("adds_total", r#"database="0",filter="seen",result="seen""#), 1.0);
    let adds = |filter: &str, result: &str| {
        of("adds_total", &format!(r#"database="0",filter="{filter}",result="{result}""#))
    };
    assert_eq!((adds("copies", "new"), adds("copies", "seen")), (2.0, 1.0));
    assert_eq!((adds("near", "new"), adds("near", "seen")), (1.0, 1.0));
    let filters = [("0", "seen"), ("0", "copies"), ("0", "near"), ("3", "seen")];
    let bytes = filters.map(|(database, filter)| {
        of("memory_bytes", &format!(r#"database="{database}",filter="{filter}""#))
    });
    let used = metric(&page, "bloomsday_live_memory_used_bytes ");
    assert_eq!(used, bytes.iter().sum::<f64>());
    assert_eq!(metric(&page, "bloomsday_live_memory_limit_bytes "), f64::from(32 << 20));
    assert_eq!(metric(&page, "bloomsday_live_log_failed "), 0.0);
    let url = format!("http://{address}");
    assert_eq!(bloomsday(&["health", &url]).run().expect(0).stdout, "live\n");
    assert_eq!(bloomsday(&["health", &url, "--ready"]).run().expect(0).stdout, "ready\n");
    let status: Value = serde_json::from_str(&get("/status")).unwrap();
    assert_eq!(status["filters"], json!({}));
    let live = &status["live"];
    assert_eq!(
        (&live["memory_used_bytes"], &live["client_filters"]),
        (&json!(used as u64), &json!(4))
    );
    assert_eq!((&live["memory_limit_bytes"], &live["log_error"]), (&json!(32 << 20), &Value::Null));
    // Those with most IDs come first, then by database and name.
    let listed = live["largest"].as_array().unwrap();
    let listed: Vec<(&Value, &Value, &Value)> =
        listed.iter().map(|f| (&f["database"], &f["filter"], &f["entries"])).collect();
    let expected = [(0, "copies", 2), (0, "seen", 2), (0, "near", 1), (3, "seen", 1)];
    let expected = expected.map(|(database, filter, ids)| json!([database, filter, ids]));
    assert_eq!(json!(listed), json!(expected));
    let seen = &live["largest"][1];
    assert_eq!((&seen["added_new"], &seen["added_seen"]), (&json!(2), &json!(1)));
    let page: Value = serde_json::from_str(&get("/page.json")).unwrap();
    assert_eq!((&page["live"], &page["admin"]), (live, &json!(false)));
    let none = ureq::get(format!("{url}/v1/filters/seen/ids/a")).call().unwrap_err();
    assert!(matches!(none, ureq::Error::StatusCode(404)), "{none}");
    let only_read = ureq::post(format!("{url}/status")).send_empty().unwrap_err();
    assert!(matches!(only_read, ureq::Error::StatusCode(405)), "{only_read}");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn its_scrapes_and_health_checks_are_over_tls_if_there_is_a_certificate() {
    let folder = TempDir::new().unwrap();
    let [ca, cert, key] = certificates(folder.path());
    let daemon =
        LiveDaemon::start(&["--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key]);
    let address = daemon.listen.clone().expect("it says where").replace("127.0.0.1", "localhost");
    let health =
        |scheme: &str| bloomsday(&["health", &format!("{scheme}://{address}"), "--ca", &ca]).run();
    health("https").expect(0);
    let plain = ureq::get(format!("http://{address}/metrics")).call().unwrap_err();
    assert!(matches!(plain, ureq::Error::StatusCode(400)), "{plain}");
}

const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.|";

/// Writes an authority, and a certificate for `localhost` with its key.
fn certificates(folder: &Path) -> [String; 3] {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "an authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let texts = [authority.pem(), certificate.pem(), key.serialize_pem()];
    let named = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name));
    named.iter().zip(texts).for_each(|(path, text)| fs::write(path, text).unwrap());
    named.map(|path| path.display().to_string())
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn real_clients_speak_tls_with_the_token() {
    let folder = TempDir::new().unwrap();
    let [ca, cert, key] = certificates(folder.path());
    let token = folder.path().join("token");
    fs::write(&token, "correct horse\n").unwrap();
    let token = token.to_str().unwrap();
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--live-token-file", token];
    let daemon = LiveDaemon::on(&folder.path().join("data"), &tls);
    let cli = |more: &[&str], words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "localhost", "-p", daemon.port(), "--tls", "--cacert", &ca]);
        let run = command.args(more).args(words).output().expect("redis-cli runs (tests/run.sh)");
        String::from_utf8_lossy(&run.stdout).trim().to_owned()
    };
    let known = ["--no-auth-warning", "-a", "correct horse"];
    assert_eq!(cli(&known, &["BF.ADD", "bf", "a"]), "1");
    assert_eq!(cli(&[&known[..], &["-3"]].concat(), &["BF.EXISTS", "bf", "a"]), "(true)");
    assert_eq!(cli(&[], &["BF.EXISTS", "bf", "a"]), "NOAUTH Authentication required.");

    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let run = Command::new(format!("{root}/target/test-tools/bin/python"))
        .arg(format!("{root}/tests/python/resp_tls.py"))
        .args([daemon.port(), &ca, "correct horse"])
        .output()
        .expect("python runs (tests/run.sh)");
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(said.trim(), "passed", "{}", String::from_utf8_lossy(&run.stderr));

    // A client without TLS reads why.
    let mut wire = daemon.connect();
    wire.send(b"*1\r\n$4\r\nPING\r\n").unwrap();
    assert_eq!(wire.reply().unwrap(), "-ERR this address speaks TLS only|");
    assert!(wire.is_closed());
    assert_eq!(daemon.stop(), 0);
}
