//! A topic of a real Kafka as a feed: every message of every partition becomes a live ID, whoever
//! is killed, and what cannot be read is counted and said.
#![cfg(feature = "integration")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bloomsday_server::live::{Live, LiveConfig};
use bloomsday_server::{Config, FilterConfig};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::user;
use bloomsday_tests::kafka::{Kafka, Message};
use bloomsday_tests::live::Wire;
use bloomsday_tests::publisher::Publisher;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;

/// One broker for all of this file, because it takes seconds to start.
#[test]
fn messages_become_live_ids_at_least_once_and_what_cannot_be_read_is_counted_and_said() {
    let began = Instant::now();
    let (authority, chain_and_key) = certificates();
    let mut kafka = Kafka::start(&chain_and_key, PASSWORD);
    println!("the broker is there after {:.1?}", began.elapsed());
    for (name, scenario) in SCENARIOS {
        let began = Instant::now();
        scenario(&mut kafka, &authority);
        println!("{name}: {:.1?}", began.elapsed());
    }
}

type Scenario = fn(&mut Kafka, &str);

const PASSWORD: &str = "p@ss/word";

const SCENARIOS: &[(&str, Scenario)] = &[
    ("every way to look up finds messages of all partitions and compressions", lookups),
    ("no message is lost when the program is killed", killed_program),
    ("no message is lost when adds are refused", refused),
    ("no message is lost when the broker is killed", killed_broker),
    ("messages that were dropped unread are counted, and reading goes on", retention),
    ("a topic that is not there is said, and read when it is", unknown_topic),
    ("a topic that is made anew is read from its beginning", topic_made_anew),
    ("messages without an ID are counted and said, and reading goes on", damaged),
    ("a batch that changed on the broker's disk is passed, message by message", flipped),
    ("so is the last batch of a partition", flipped_at_the_end),
    ("all of many partitions is read", wide),
    ("`latest` begins at the end, and new partitions at their beginning", latest),
    ("TLS and every login is spoken, and a wrong one is said", logins),
];

/// A certificate authority, and a chain with its key for `localhost`: PEM.
fn certificates() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose issuer has its own name for one that signs itself.
    params.distinguished_name.push(DnType::CommonName, "the authority of this test");
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let chain = params.signed_by(&key, &issuer).unwrap().pem();
    (authority, format!("{}{chain}", key.serialize_pem()))
}

fn backend() -> Backend {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    backend
}

fn start(backend: &Backend, from: &str, more: &str) -> Daemon {
    let path = |name: &str| backend.folder.path().join(name);
    let text = format!("[filters.rt]\nlive = \"decide\"\nlive_from = \"{from}\"\n{more}");
    std::fs::write(path("bloomsday.toml"), text).unwrap();
    let (config, data) = (path("bloomsday.toml"), path("data"));
    let [config, data] = [config, data].map(|path| path.display().to_string());
    let flags = ["--config", &config, "--resp", "127.0.0.1:0", "--data-dir", &data];
    let daemon = Daemon::logging(backend, &flags, &path("log"));
    daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
    daemon
}

fn log(backend: &Backend) -> String {
    std::fs::read_to_string(backend.folder.path().join("log")).unwrap()
}

fn hits(daemon: &Daemon, ids: &[String]) -> usize {
    let answer = daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.lines().filter(|line| *line == "1").count()
}

#[track_caller]
fn has(daemon: &Daemon, ids: &[String]) {
    daemon.until("it has all", |daemon| hits(daemon, ids) == ids.len());
}

fn feed(daemon: &Daemon, field: &str) -> Value {
    daemon.status()["live"]["feed"][field].clone()
}

fn error(daemon: &Daemon) -> String {
    daemon.status()["live"]["engine_error"].as_str().unwrap_or_default().to_owned()
}

fn users(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(user).collect()
}

/// Messages whose values are these, in turns over so many partitions.
fn messages(ids: &[String], partitions: u32) -> Vec<Message<'_>> {
    let turns = (0..partitions).cycle();
    ids.iter().zip(turns).map(|(id, partition)| (partition, None, Some(&**id))).collect()
}

fn lookups(kafka: &mut Kafka, _: &str) {
    kafka.run("create clicks 2");
    let ids = users(100_000..101_000);
    for (codec, part) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().zip(ids.chunks(200)) {
        kafka.send("clicks", codec, &messages(part, 2));
    }
    let aborted = users(110_000..110_050);
    kafka.send_and_abort("clicks", &messages(&aborted, 2));
    let after = users(120_000..120_100);
    kafka.send("clicks", "zstd", &messages(&after, 2));
    let all = [ids, after].concat();

    let backend = backend();
    let daemon = start(&backend, &kafka.address("clicks"), "");
    has(&daemon, &all);
    // The day's filter knows some of them by false positives.
    daemon.until("they are counted", |daemon| feed(daemon, "read") == 1_100);
    let live = &daemon.status()["live"];
    let adds = ["added_new", "added_seen"].map(|field| live[field].as_u64().unwrap());
    assert_eq!(adds.iter().sum::<u64>(), 1_100, "{live}");
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    let reply = wire.call(&format!("BF.MEXISTS rt {}", all.join(" ")));
    assert_eq!(reply.matches(":1").count(), all.len(), "{reply}");
    // What is added later comes at once, and then nothing is left.
    let more = users(130_000..130_010);
    kafka.send("clicks", "none", &messages(&more, 2));
    has(&daemon, &more);
    daemon.until("they are counted", |daemon| feed(daemon, "read") == 1_110);
    daemon.until("nothing is left", |daemon| feed(daemon, "behind") == 0);
    let metrics = daemon.get("/metrics").body;
    for line in [
        "bloomsday_live_feed_messages_total{filter=\"rt\",result=\"read\"} 1110",
        "bloomsday_live_feed_messages_total{filter=\"rt\",result=\"lost\"} 0",
        "bloomsday_live_feed_behind{filter=\"rt\"} 0",
        "bloomsday_live_feed_lag_seconds{filter=\"rt\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    in_a_library(&kafka.address("clicks"), &all);
}

/// The feed and the lookups of a program that links the library.
fn in_a_library(from: &str, ids: &[String]) {
    let backend = backend();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut filter = FilterConfig::new("rt".parse().unwrap());
        (filter.live_days, filter.live_from) = (Some(3), Some(from.parse().unwrap()));
        let mut config = Config::new(&backend.store, vec![filter]);
        config.live = Some(Live::open(LiveConfig::new(None)).unwrap());
        let bloomsday = bloomsday_server::start(config).await.unwrap();
        let handle = bloomsday.filter("rt").unwrap();
        let began = Instant::now();
        while !ids.iter().all(|id| handle.contains(id.as_bytes())) {
            assert!(began.elapsed().as_secs() < 60, "not all is there");
            tokio::task::yield_now().await;
        }
    });
}

/// How much of a topic the place that was kept says is read.
fn kept(backend: &Backend) -> u64 {
    let place = std::fs::read_to_string(backend.folder.path().join("data/live/rt.from"));
    let place = place.unwrap_or_default();
    let at = place.split(' ').next().unwrap_or_default();
    at.split(',').filter_map(|pair| pair.split_once(':')?.1.parse::<u64>().ok()).sum()
}

fn killed_program(kafka: &mut Kafka, _: &str) {
    kafka.run("create killed 2");
    let (backend, from) = (backend(), kafka.address("killed"));
    let mut all = Vec::new();
    for _ in 0..3 {
        let daemon = start(&backend, &from, "");
        let (before, is_killed) = (kept(&backend), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut is_last = false;
                while !is_last {
                    is_last = is_killed.load(Ordering::Relaxed);
                    let first = 200_000 + all.len() as u64;
                    let part = users(first..first + 500);
                    kafka.send("killed", "lz4", &messages(&part, 2));
                    all.extend(part);
                }
            });
            daemon.until("some of it is kept", |_| kept(&backend) > before);
            daemon.signal("KILL");
            is_killed.store(true, Ordering::Relaxed);
        });
        println!("  killed after {} of {} messages", kept(&backend), all.len());
    }
    let before = kept(&backend);
    assert!(before < all.len() as u64, "no kill was in the middle");
    let daemon = start(&backend, &from, "");
    has(&daemon, &all);
    daemon.until("all is kept", |_| kept(&backend) == all.len() as u64);
    // Not everything was read once more.
    assert!(feed(&daemon, "read").as_u64().unwrap() <= all.len() as u64 - before);
    daemon.signal("TERM");
    daemon.wait();
    let daemon = start(&backend, &from, "");
    daemon.until("nothing is left", |daemon| feed(daemon, "behind") == 0);
    assert_eq!(feed(&daemon, "read"), 0, "it reads again what it had read");
    assert_eq!(hits(&daemon, &all), all.len());
}

fn refused(kafka: &mut Kafka, _: &str) {
    kafka.run("create refused 1");
    let all = users(270_000..290_000);
    kafka.send("refused", "none", &messages(&all, 1));
    let (backend, from) = (backend(), kafka.address("refused"));
    let daemon = start(&backend, &from, "[resp]\nlive_memory = \"100KiB\"\n");
    daemon.until("it says so", |daemon| error(daemon).contains("limit on the memory"));
    daemon.signal("TERM");
    daemon.wait();
    assert!(kept(&backend) < 20_000, "what was refused counts as read");
    let before = kept(&backend);
    let daemon = start(&backend, &from, "");
    has(&daemon, &all);
    daemon.until("all is kept", |_| kept(&backend) == 20_000);
    // What was added before the limit is not read again, and nothing else is left out.
    assert_eq!(feed(&daemon, "read"), 20_000 - before);
}

fn killed_broker(kafka: &mut Kafka, _: &str) {
    kafka.run("create broken 2");
    let backend = backend();
    let daemon = start(&backend, &kafka.address("broken"), "");
    let before = users(300_000..301_000);
    kafka.send("broken", "none", &messages(&before, 2));
    kafka.kill();
    daemon.until("it says so", |daemon| error(daemon).contains("127.0.0.1"));
    // Adds and lookups go on.
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    assert!(wire.call("SADD rt while-it-is-away").starts_with(':'));
    assert!(daemon.contains("while-it-is-away"));
    kafka.again();
    let after = users(301_000..302_000);
    kafka.send("broken", "none", &messages(&after, 2));
    has(&daemon, &[before, after].concat());
    daemon.until("nothing is wrong", |daemon| error(daemon).is_empty());
}

fn retention(kafka: &mut Kafka, _: &str) {
    kafka.run("create short 2");
    let (backend, from) = (backend(), kafka.address("short"));
    let first = users(400_000..400_100);
    kafka.send("short", "none", &messages(&first, 2));
    let daemon = start(&backend, &from, "");
    has(&daemon, &first);
    daemon.until("the place is kept", |_| kept(&backend) == 100);
    daemon.signal("TERM");
    daemon.wait();
    let second = users(400_100..400_200);
    kafka.send("short", "none", &messages(&second, 2));
    kafka.run("delete short 0 80");
    let daemon = start(&backend, &from, "");
    // The messages 0 to 79 of the first partition are gone; 50 to 79 had not been read.
    let left: Vec<String> = second
        .iter()
        .enumerate()
        .filter(|(i, _)| i % 2 == 1 || *i >= 60)
        .map(|(_, id)| id.clone())
        .collect();
    assert_eq!(left.len(), 70);
    has(&daemon, &left);
    daemon.until("the loss is counted", |daemon| feed(daemon, "lost") == 30);
    daemon.until("they are counted", |daemon| feed(daemon, "read") == 70);
    assert!(log(&backend).contains("up to 30 messages were dropped before they were read"));
}

fn unknown_topic(kafka: &mut Kafka, _: &str) {
    let backend = backend();
    let daemon = start(&backend, &kafka.address("later"), "");
    daemon
        .until("it says so", |daemon| error(daemon).contains("there is no such topic: create it"));
    kafka.run("create later 1");
    let ids = users(500_000..500_010);
    kafka.send("later", "none", &messages(&ids, 1));
    has(&daemon, &ids);
    daemon.until("nothing is wrong", |daemon| error(daemon).is_empty());
}

fn topic_made_anew(kafka: &mut Kafka, _: &str) {
    kafka.run("create anew 1");
    let backend = backend();
    let daemon = start(&backend, &kafka.address("anew"), "");
    let ids = users(510_000..510_100);
    kafka.send("anew", "none", &messages(&ids, 1));
    has(&daemon, &ids);
    kafka.run("drop anew");
    daemon.until("it says so", |daemon| error(daemon).contains("there is no such topic"));
    kafka.run("create anew 1");
    let ids = users(510_100..510_110);
    kafka.send("anew", "none", &messages(&ids, 1));
    has(&daemon, &ids);
    assert!(log(&backend).contains("began anew"), "{}", log(&backend));
}

fn damaged(kafka: &mut Kafka, _: &str) {
    kafka.run("create json 2");
    let long = format!("{{\"user\":\"{}\"}}", "x".repeat(1_025));
    let mut all: Vec<Message<'_>> = [
        "not json",
        "{\"user\":",
        "[]",
        "{}",
        "{\"user\":\"\"}",
        "{\"user\":null}",
        "{\"user\":1.5}",
        "",
    ]
    .iter()
    .map(|value| (0, None, Some(*value)))
    .collect();
    all.extend([(0, Some("a tombstone"), None), (1, None, Some(&*long))]);
    all.push((0, None, Some("{\"a\":[1,{}],\"user\":\"some-user\",\"user2\":\"other\"}")));
    all.push((1, None, Some("{\"user\":18446744073709551615}")));
    kafka.send("json", "none", &all);
    let backend = backend();
    let daemon = start(&backend, &format!("{}?id=json:user", kafka.address("json")), "");
    has(&daemon, &["some-user".into(), "18446744073709551615".into()]);
    daemon.until("all are counted", |daemon| feed(daemon, "skipped") == 10);
    daemon.until("they are counted", |daemon| feed(daemon, "read") == 2);
    kafka.send(
        "json",
        "none",
        &[(0, None, Some("bad again")), (0, None, Some("{\"user\":\"good\"}"))],
    );
    has(&daemon, &["good".into()]);
    daemon.until("it is counted", |daemon| feed(daemon, "skipped") == 11);
    assert!(error(&daemon).is_empty());
    assert_eq!(
        log(&backend).matches("have no ID of 1 to 1,024 bytes").count(),
        1,
        "{}",
        log(&backend)
    );

    // Keys as IDs, of a filter whose IDs are URLs.
    kafka.run("create keys 1");
    kafka.send("keys", "none", &[(0, Some("http://Example.org:80/./a?y=2&x=1"), None)]);
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).with(&["--id", "url"]).users(0..5_000).publish();
    let daemon = start(&backend, &format!("{}?id=key", kafka.address("keys")), "id = \"url\"\n");
    daemon.until("it is read", |daemon| feed(daemon, "read") == 1);
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    assert_eq!(wire.call("BF.EXISTS rt https://example.org/a?x=1&y=2#top"), ":1|");
}

fn flipped(kafka: &mut Kafka, _: &str) {
    kafka.run("create flipped 1");
    let mut ids = users(700_000..700_050);
    let damaged = ids[20].clone();
    ids.insert(0, "the-first".into());
    ids.push("the-third".into());
    kafka.send("flipped", "none", &messages(&ids[..1], 1));
    kafka.send("flipped", "none", &messages(&ids[1..51], 1));
    kafka.send("flipped", "none", &messages(&ids[51..], 1));
    damage(kafka, "flipped", &damaged);
    let backend = backend();
    let daemon = start(&backend, &kafka.address("flipped"), "");
    daemon.until("it goes on", |daemon| feed(daemon, "behind") == 0 && error(daemon).is_empty());
    // The producer may have made more than one batch of the 50.
    let count = |field: &str| feed(&daemon, field).as_u64().unwrap();
    assert_eq!(count("read") + count("skipped"), 52, "{}", log(&backend));
    assert!((1..=50).contains(&count("skipped")), "{}", log(&backend));
    has(&daemon, &["the-first".into(), "the-third".into()]);
    let log = log(&backend);
    assert_eq!(log.matches("failed CRC32C check").count(), 2, "{log}");
}

/// Changes the bytes of a message on the broker's disk.
fn damage(kafka: &Kafka, topic: &str, id: &str) {
    let file = kafka.log(topic, 0);
    let bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(id.len()).position(|part| part == id.as_bytes()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"THE", at as u64).unwrap();
}

fn flipped_at_the_end(kafka: &mut Kafka, _: &str) {
    kafka.run("create flipped-last 1");
    let ids = users(710_000..710_050);
    kafka.send("flipped-last", "none", &messages(&ids, 1));
    damage(kafka, "flipped-last", ids.last().unwrap());
    let backend = backend();
    let daemon = start(&backend, &kafka.address("flipped-last"), "");
    daemon.until("it goes on", |daemon| feed(daemon, "behind") == 0 && error(daemon).is_empty());
    // The producer may have made more than one batch of them.
    let count = |field: &str| feed(&daemon, field).as_u64().unwrap();
    assert_eq!(count("read") + count("skipped"), 50, "{}", log(&backend));
    assert!(count("skipped") > 0 && kept(&backend) <= 50, "{}", log(&backend));
    let after = users(711_000..711_010);
    kafka.send("flipped-last", "none", &messages(&after, 1));
    has(&daemon, &after);
    daemon.until("the place is kept", |_| kept(&backend) == 60);
    assert_eq!(count("read") + count("skipped"), 60, "{}", log(&backend));
}

fn wide(kafka: &mut Kafka, _: &str) {
    kafka.run("create wide 40");
    let ids = users(720_000..724_000);
    kafka.send("wide", "gzip", &messages(&ids, 40));
    let backend = backend();
    let daemon = start(&backend, &kafka.address("wide"), "");
    has(&daemon, &ids);
    daemon.until("nothing is left", |daemon| feed(daemon, "behind") == 0);
    assert_eq!(feed(&daemon, "read"), 4_000);
}

fn latest(kafka: &mut Kafka, _: &str) {
    kafka.run("create late 1");
    let old = users(600_000..600_100);
    kafka.send("late", "none", &messages(&old, 1));
    let backend = backend();
    let daemon = start(&backend, &format!("{}?from=latest", kafka.address("late")), "");
    daemon.until("it reads", |daemon| feed(daemon, "behind") == 0);
    kafka.run("grow late 2");
    let new = users(601_000..601_100);
    kafka.send("late", "none", &messages(&new, 2));
    has(&daemon, &new);
    daemon.until("they are counted", |daemon| feed(daemon, "read") == 100);
}

fn logins(kafka: &mut Kafka, authority: &str) {
    kafka.run("create secret 1");
    let ids = users(700_000..700_010);
    kafka.send("secret", "none", &messages(&ids, 1));
    let login = |password: &str| format!("me:{}", password.replace('@', "%40").replace('/', "%2F"));
    let backend = backend();
    let ca = backend.folder.path().join("ca.pem");
    std::fs::write(&ca, authority).unwrap();
    let read = |password: &str, options: &str, check: &dyn Fn(&Daemon)| {
        let address = kafka.secure_address(&login(password), "secret");
        let daemon = start(&backend, &format!("{address}?{options}"), "");
        check(&daemon);
        let said = format!("{}{}", log(&backend), daemon.get("/status").body);
        assert!(!said.contains(password) && !said.contains(&login(password)), "{said}");
    };
    for sasl in ["", "&sasl=plain", "&sasl=scram-sha-256"] {
        let options = format!("ca={}{sasl}", ca.display());
        read(PASSWORD, &options, &|daemon| {
            daemon.until("it is read", |daemon| feed(daemon, "behind") == 0);
            assert!(error(daemon).is_empty());
        });
        if sasl.contains("256") {
            continue;
        }
        read("hunter2", &options, &|daemon| {
            let why = "refuses the login of `me`";
            daemon.until("it says so", |daemon| error(daemon).contains(why));
        });
    }
    let daemon = start(&backend, &kafka.secure_address(&login(PASSWORD), "secret"), "");
    assert_eq!(hits(&daemon, &ids), ids.len());
    daemon.until("it asks for TLS", |daemon| error(daemon).contains("tls=true"));
    drop(daemon);
    // A client that trusts only the system's authorities.
    read(PASSWORD, "tls=true", &|daemon| {
        daemon.until("it says so", |daemon| error(daemon).contains("TLS: "));
    });
}
