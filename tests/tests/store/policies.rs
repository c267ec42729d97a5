//! Each role's policy in `deploy/policies/aws` allows what its commands really send, and little
//! more: every request between program and S3 is recorded and put to the policy.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use bloomsday_tests::backend::{Backend, s3_server};
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_users};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

/// What was sent: method and target.
type Sent = Arc<Mutex<BTreeSet<(String, String)>>>;

/// Carries everything to the S3 server, and writes down each request's first line.
fn recorder(bucket: &str) -> (String, Sent) {
    let bucket = bucket.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let sent = Sent::default();
    let shared = sent.clone();
    let server = s3_server().trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&server).unwrap();
            let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || carry(from, to, |_| {}));
            let (shared, bucket) = (shared.clone(), bucket.clone());
            let mut text = Vec::new();
            let note = move |bytes: &[u8]| {
                text.extend_from_slice(bytes);
                // Deletions are sent many at once, with their keys in the body.
                for key in String::from_utf8_lossy(&text).split("<Key>").skip(1) {
                    if let Some((key, _)) = key.split_once("</Key>") {
                        shared
                            .lock()
                            .unwrap()
                            .insert(("DELETE".into(), format!("/{bucket}/{key}")));
                    }
                }
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let line = String::from_utf8_lossy(&line).into_owned();
                    let words: Vec<&str> = line.split_whitespace().collect();
                    // The end of the body before it may stand in front.
                    if let [.., method, target, "HTTP/1.1"] = words[..] {
                        let name = method.rfind(|c: char| !c.is_ascii_uppercase());
                        let method =
                            &method[name.map_or(0, |at| method.ceil_char_boundary(at + 1))..];
                        shared.lock().unwrap().insert((method.into(), target.into()));
                    }
                }
            };
            std::thread::spawn(move || carry(client, server, note));
        }
    });
    (address, sent)
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut bytes = [0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        note(&bytes[..n]);
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The action that S3 requires, and the resource or the prefix it is about.
fn action(method: &str, target: &str) -> (&'static str, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.trim_start_matches('/').trim_end_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let object = format!("arn:aws:s3:::{bucket}/{key}");
    let action = match (method, key.is_empty(), query.contains("uploadId")) {
        ("GET", true, _) => {
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
            let prefix = prefix.unwrap_or_default().replace("%2F", "/");
            return ("s3:ListBucket", format!("arn:aws:s3:::{bucket}?{prefix}"));
        }
        ("GET" | "HEAD", false, _) => "s3:GetObject",
        ("DELETE", false, true) => "s3:AbortMultipartUpload",
        ("PUT" | "POST", false, _) => "s3:PutObject",
        ("DELETE", false, _) => "s3:DeleteObject",
        _ => panic!("{method} {target} is an action nobody thought of"),
    };
    (action, object)
}

/// Whether a pattern with `*` fits.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            tail.is_empty()
                || (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(tail, &rest[at..]))
        }),
    }
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(all) => all.iter().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// A role's policy for the test's bucket.
struct Policy(Vec<Value>);

impl Policy {
    fn of(role: &str, bucket: &str) -> Policy {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/policies/aws");
        let text = fs::read_to_string(folder.join(format!("{role}.json"))).unwrap();
        let text = text.replace("INPUT_BUCKET", bucket).replace("INPUT_PREFIX", "dmp/");
        let text = text.replace("BUCKET", bucket).replace("PREFIX", "prod/filters");
        let policy: Value = serde_json::from_str(&text.replace("FILTER", "rt")).unwrap();
        assert_eq!(policy["Version"], "2012-10-17");
        Policy(policy["Statement"].as_array().unwrap().clone())
    }

    fn allows(&self, action: &str, resource: &str) -> bool {
        let (resource, prefix) = resource.split_once('?').unwrap_or((resource, ""));
        self.0.iter().any(|statement| {
            let condition = &statement["Condition"]["StringLike"]["s3:prefix"];
            let in_prefix = strings(condition)
                .iter()
                .any(|pattern| fits(pattern, prefix) || fits(pattern, &format!("{prefix}/")));
            statement["Effect"] == "Allow"
                && strings(&statement["Action"]).iter().any(|a| a == action)
                && strings(&statement["Resource"]).iter().any(|r| fits(r, resource))
                && (condition.is_null() || in_prefix)
        })
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn each_role_may_do_what_its_commands_send_and_no_other_roles_work() {
    let backend = Backend::s3();
    let bucket = backend.store.split('/').nth(2).unwrap().to_owned();
    let (before, day) = (today().minus(1).to_string(), today().to_string());
    let file = backend.folder.path().join("in.parquet");
    write_users(&file, 0..1_000);
    let url = format!("{}/{bucket}/dmp/{day}/in.parquet", s3_server());
    let who = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request";
    ureq::put(url).header("Authorization", who).send(&fs::read(&file).unwrap()[..]).unwrap();
    Publisher::day(&backend, &before).input(&file).publish();

    // What a role sends, checked against its policy.
    let check = |role: &str, act: &dyn Fn(&Backend)| {
        let (address, sent) = recorder(&bucket);
        let mut through = Backend { store: backend.store.clone(), ..Backend::local() };
        through.env = backend.env.clone();
        let endpoint = through.env.iter_mut().find(|(name, _)| *name == "AWS_ENDPOINT");
        endpoint.unwrap().1 = address;
        act(&through);
        let policy = Policy::of(role, &bucket);
        let sent = sent.lock().unwrap().clone();
        assert!(sent.len() > 2, "{role}: nothing was recorded: {sent:?}");
        let named =
            |(method, target): &&(String, String)| method != "POST" || !target.contains("?delete");
        for (method, target) in sent.iter().filter(named) {
            let (action, resource) = action(method, target);
            println!("{role}: {method} {} {action}", target.split('?').next().unwrap());
            assert!(policy.allows(action, &resource), "{role} sends {method} {target}: {action}");
        }
    };
    let input = format!("s3://{bucket}/dmp/{{day}}/");
    check("builder", &|backend| {
        // Published, then unchanged.
        for _ in 0..2 {
            Publisher::day(backend, &day).input(&input).with(&["--deltas", "3"]).publish();
        }
        backend.bloomsday(&["config", "check"]).run().expect(0);
    });
    check("reader", &|backend| {
        let daemon = Daemon::ready(backend, &[]);
        assert!(daemon.contains(&user(1)));
        assert_eq!(daemon.reload("").0, 200);
        backend.bloomsday(&["query", "rt", &user(1)]).run().expect(0);
        // It deletes its heartbeat.
        daemon.signal("TERM");
        assert_eq!(daemon.wait(), 0);
    });
    check("operator", &|backend| {
        for words in [
            &["repoint", "rt", &day, "--to", &before][..],
            &["pin", "rt", "--to", &before],
            &["unpin", "rt"],
            &["status", "rt"],
            &["status"],
            &["history", "rt"],
            &["trace", "rt", &user(1)],
            &["config", "check"],
        ] {
            backend.bloomsday(words).run().expect(0);
        }
    });
    // Nothing is old enough to be deleted: this records what it reads.
    check("pruner", &|backend| {
        backend.bloomsday(&["prune", "rt"]).run().expect(0);
    });

    // And the bounds: what only one role may do, and what nobody may.
    let may = |role: &str, action: &str, key: &str| {
        Policy::of(role, &bucket).allows(action, &format!("arn:aws:s3:::{bucket}/{key}"))
    };
    let roles = ["reader", "builder", "operator", "pruner"];
    for (action, key, only) in [
        ("s3:PutObject", "prod/filters/rt/blobs/x", &["builder"][..]),
        ("s3:DeleteObject", "prod/filters/rt/blobs/x", &["pruner"]),
        ("s3:PutObject", "prod/filters/rt/deltas/x", &["builder"]),
        ("s3:DeleteObject", "prod/filters/rt/deltas/x", &["pruner"]),
        ("s3:GetObject", "prod/filters/rt/deltas/x", &roles),
        ("s3:PutObject", "prod/filters/rt/pointers/x", &["builder", "operator"]),
        ("s3:PutObject", "prod/filters/rt/pin", &["operator"]),
        ("s3:DeleteObject", "prod/filters/rt/pin", &["operator"]),
        ("s3:DeleteObject", "prod/filters/rt/pointers/x", &["operator", "pruner"]),
        ("s3:DeleteObject", "prod/filters/rt/history/x", &[]),
        ("s3:PutObject", "prod/filters/rt/servers/x", &["reader"]),
        ("s3:DeleteObject", "prod/filters/rt/servers/x", &["reader", "pruner"]),
        ("s3:PutObject", "prod/filters/opted-out/pointers/x", &[]),
        ("s3:GetObject", "prod/filters/opted-out/blobs/x", &[]),
        ("s3:PutObject", "dmp/x", &[]),
        ("s3:GetObject", "dmp/x", &["builder"]),
    ] {
        let allowed: Vec<&str> = roles.into_iter().filter(|role| may(role, action, key)).collect();
        assert_eq!(allowed, only, "{action} {key}");
    }
}
