//! What strangers may try: pointers that lead to other stores, links out of the store, floods of
//! connections, bodies without end, clients that read nothing, and admin calls they have no right
//! to.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::program::high_water;
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

// ---- pointers
// ------------------------------------------------------------------------------------

#[test]
fn nothing_that_a_pointer_a_pin_or_an_operator_names_lies_outside_the_filters_own_folder() {
    let backend = Backend::local();
    let (before, day) = (today().minus(1).to_string(), today().to_string());
    Publisher::day(&backend, &before).users(0..1_000).blob();
    let own = Publisher::day(&backend, &day).users(0..1_000).blob();
    // Other places that hold a blob which is sound, and even called `rt`.
    let root = PathBuf::from(&backend.store);
    let outside = backend.folder.path().join("outside");
    let other = Backend { store: outside.display().to_string(), ..Backend::local() };
    let foreign = Publisher::day(&other, &day).users(5_000..6_000).blob();
    let name = foreign.rsplit('/').next().unwrap().to_owned();
    let optout = Publisher::day(&backend, &day).filter("opted-out").users(7_000..8_000).blob();
    fs::create_dir_all(root.join("opted-out/blobs")).unwrap();
    fs::copy(outside.join(&foreign), root.join("opted-out/blobs").join(&name)).unwrap();

    let up = root.parent().unwrap().join("outside/rt/blobs").join(&name);
    let targets = [
        optout,
        format!("opted-out/blobs/{name}"),
        format!("../opted-out/blobs/{name}"),
        format!("blobs/../../opted-out/blobs/{name}"),
        format!("rt/blobs/../../opted-out/blobs/{name}"),
        format!("rt/../opted-out/blobs/{name}"),
        format!("blobs/%2e%2e/%2e%2e/opted-out/blobs/{name}"),
        format!("rt/%2e%2e/opted-out/blobs/{name}"),
        format!("rt/blobs/..%2f..%2fopted-out%2fblobs%2f{name}"),
        format!("../{}/rt/blobs/{name}", "outside"),
        up.display().to_string(),
        format!("{}/../outside/rt/blobs/{name}", backend.store),
        format!("{}/rt/blobs/../../opted-out/blobs/{name}", backend.store),
        format!("{}/opted-out/blobs/{name}", backend.store),
        format!("{}x/rt/blobs/{name}", backend.store),
        format!("file://{}", up.display()),
        format!("file://evil.example{}/rt/blobs/{name}", backend.store),
        format!("http://169.254.169.254/rt/blobs/{name}"),
        format!("s3://elsewhere/rt/blobs/{name}"),
        format!("//evil.example/rt/blobs/{name}"),
        format!("\\\\evil.example\\rt\\blobs\\{name}"),
        format!("rt\\blobs\\{name}"),
        format!("rt/blobs/{name}/../../../../outside/rt/blobs/{name}"),
        format!("rt/blobs/{}\0", name),
        format!("/rt/blobs/{name}"),
        format!("rt//blobs/{name}"),
        format!("rt/blobs//{name}"),
        format!("./rt/blobs/{name}"),
        format!("rt/blobs/{}", name.to_uppercase()),
    ];
    let daemon = Daemon::ready(&backend, &[]);
    let digest = daemon.status()["digest"].clone();
    let (pointer, pin) = (root.join("rt/pointers").join(&day), root.join("rt/pin"));
    let sound = fs::read(&pointer).unwrap();
    let refused = |what: &str, target: &str| {
        let (code, body) = daemon.reload("");
        assert_eq!((code, &body["filters"]["rt"]["outcome"]), (502, &"failed".into()), "{target}");
        assert_eq!(daemon.status()["digest"], digest, "{what} was led to {target}");
        assert!(daemon.contains(&user(1)));
        let query = backend.bloomsday(&["query", "rt", &user(5_500)]).run();
        assert!(!matches!(query.code, 0 | 3), "{what} was led to {target}: {}", query.stdout);
    };
    for target in &targets {
        let json = serde_json::json!({ "blob": target }).to_string();
        for record in [target.as_bytes(), json.as_bytes()] {
            fs::write(&pointer, record).unwrap();
            refused("the pointer", target);
            fs::write(&pointer, &sound).unwrap();
            fs::write(&pin, record).unwrap();
            refused("the pin", target);
            fs::remove_file(&pin).unwrap();
        }
        // A hostile `previous` protects nothing and leads nowhere; the pointer itself is sound.
        let mut record: Value = serde_json::from_slice(&sound).unwrap();
        record["previous"] = target.as_str().into();
        fs::write(&pointer, record.to_string()).unwrap();
        let status = backend.bloomsday(&["status", "rt"]).run().expect(0).json();
        assert_eq!(status["pointers"][0]["previous"], Value::Null, "{target}");
        fs::write(&pointer, &sound).unwrap();
        if !target.contains('\0') {
            for words in
                [&["repoint", "rt", &day, "--to", target][..], &["pin", "rt", "--to", target]]
            {
                let run = backend.bloomsday(words).run();
                assert!(!matches!(run.code, 0), "{words:?} was done: {}", run.stdout);
            }
        }
        assert_eq!(fs::read(&pointer).unwrap(), sound, "{target}");
    }
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["day"], day);
    // The check itself works: the filter's own blob, named in any of the allowed ways, is followed.
    fs::write(&pointer, own.strip_prefix("rt/").unwrap()).unwrap();
    assert_eq!(daemon.reload("").0, 200);
}

#[test]
fn a_link_leads_no_record_and_no_blob_out_of_a_local_store() {
    let backend = Backend::local();
    let day = today().to_string();
    let blob = Publisher::day(&backend, &day).users(0..1_000).blob();
    let root = PathBuf::from(&backend.store);
    let daemon = Daemon::ready(&backend, &[]);
    // One line, as a token or a password has: an error would show it.
    let secret = backend.folder.path().join("secret");
    fs::write(&secret, "s3cret-0f-somebody-else").unwrap();
    let (pointer, pin) = (root.join("rt/pointers").join(&day), root.join("rt/pin"));
    let sound = fs::read(&pointer).unwrap();
    let leaks = |what: &str| {
        let (code, body) = daemon.reload("");
        assert_eq!(code, 502, "{what}: {body}");
        let status = daemon.get("/status").body;
        let run = backend.bloomsday(&["status", "rt"]).run();
        for said in [body.to_string(), status, run.stdout, run.stderr] {
            assert!(!said.contains("s3cret"), "{what} showed a file outside: {said}");
        }
        assert!(body.to_string().contains("out of the store"), "{what}: {body}");
    };
    fs::remove_file(&pointer).unwrap();
    symlink(&secret, &pointer).unwrap();
    leaks("a linked pointer");
    fs::remove_file(&pointer).unwrap();
    fs::write(&pointer, &sound).unwrap();
    symlink(&secret, &pin).unwrap();
    leaks("a linked pin");
    fs::remove_file(&pin).unwrap();
    // A blob that is sound, but lies in another folder.
    let away = backend.folder.path().join("away.bloom");
    fs::rename(root.join(&blob), &away).unwrap();
    symlink(&away, root.join(&blob)).unwrap();
    let query = backend.bloomsday(&["query", "rt", &user(1)]).run();
    assert!(query.code != 0 && query.stderr.contains("out of the store"), "{}", query.stderr);
    fs::remove_file(root.join(&blob)).unwrap();
    fs::rename(&away, root.join(&blob)).unwrap();
    // A writer does not write through a link either: neither a temporary file's nor a folder's.
    symlink(&secret, root.join("rt/pointers").join(format!(".{day}.tmp"))).unwrap();
    let line = format!("rt/blobs/{}", blob.rsplit('/').next().unwrap());
    fs::write(&pointer, line.replacen(&day, &today().minus(1).to_string(), 1)).unwrap();
    backend.bloomsday(&["repoint", "rt", &day, "--to", &blob]).run().expect(0);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "s3cret-0f-somebody-else");
    let outside = backend.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir_all(root.join("rt/pointers")).unwrap();
    symlink(&outside, root.join("rt/pointers")).unwrap();
    let run = backend.bloomsday(&["repoint", "rt", &day, "--to", &blob]).run();
    assert!(run.code != 0 && run.stderr.contains("out of the store"), "{}", run.stderr);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "something was written outside");
}

// ---- admin
// ---------------------------------------------------------------------------------------

#[test]
fn admin_is_on_loopback_by_default_and_nowhere_else_without_a_token() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..10).blob();
    let token = backend.folder.path().join("token");
    let serve = |more: &[&str]| {
        let words = ["serve", "--filter", "rt", "--listen", "127.0.0.1:0"];
        backend.bloomsday(&[&words[..], more].concat()).run()
    };
    let help = backend.bloomsday(&["serve", "--help"]).run().expect(0);
    // Help is wrapped at the width of the terminal.
    let words: Vec<&str> = help.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("[default: 127.0.0.1:8643]"), "{}", help.stdout);
    for public in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8643", "[::ffff:192.0.2.1]:8643"] {
        serve(&["--admin", public]).expect(2).complains(&["needs a token"]);
    }
    let file = token.display().to_string();
    let with = ["--admin", "0.0.0.0:0", "--admin-token-file", file.as_str()];
    serve(&with).expect(2).complains(&["token", "cannot be read"]);
    for (text, says) in [
        (&b""[..], "is empty"),
        (b" \n\t\n", "is empty"),
        (b"one\ntwo\n", "one line"),
        (b"caf\xc3\xa9", "ASCII"),
        (b"\xff\xfe", "cannot be read"),
        (&[b'x'; 5_000], "4,096"),
    ] {
        fs::write(&token, text).unwrap();
        serve(&with).expect(2).complains(&["the token file", says]);
    }
    // A file that everybody can read is warned about, and one that nobody else can is not.
    for (mode, warned) in [(0o644, true), (0o600, false), (0o640, false)] {
        fs::write(&token, "  correct horse \n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(mode)).unwrap();
        // An address that this machine does not have, so that it ends by itself.
        let with = ["--admin", "192.0.2.1:1", "--admin-token-file", file.as_str()];
        let run = serve(&with).expect(1);
        assert_eq!(run.stderr.contains("every user"), warned, "{mode:o}: {}", run.stderr);
        assert!(!run.stderr.contains("correct horse"), "{}", run.stderr);
    }
}

#[test]
fn only_a_post_with_the_complete_token_and_no_origin_reloads() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..10).blob();
    let token = backend.folder.path().join("token");
    fs::write(&token, "  correct-horse \r\n").unwrap();
    let file = token.display().to_string();
    let daemon = Daemon::ready(&backend, &["--admin-token-file", &file]);
    let reloads = || daemon.get("/metrics").body;
    let polls = |metrics: String| {
        let line = metrics.lines().find(|l| l.contains("polls_total") && l.contains("\"ok\""));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let address = daemon.admin.strip_prefix("http://").unwrap().to_owned();
    let send = |method: &str, path: &str, headers: &str| raw(&address, method, path, headers);
    let right = "Authorization: Bearer correct-horse\r\n";
    // It answers before its first round is counted.
    daemon.until("the first round is over", |daemon| {
        let metrics = daemon.get("/metrics").body;
        metrics.lines().any(|l| l.contains("polls_total") && l.ends_with(" 1"))
    });
    let before = polls(reloads());
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW"] {
        let answer = send(method, "/admin/reload", right);
        assert!(["400", "404", "405"].contains(&answer.as_str()), "{method}: {answer}");
    }
    for wrong in [
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer correct-hors\r\n",
        "Authorization: Bearer correct-horse-\r\n",
        "Authorization: Bearer CORRECT-HORSE\r\n",
        "Authorization: Basic correct-horse\r\n",
        "Authorization: correct-horse\r\n",
        "Authorization: Bearer\u{a0}correct-horse\r\n",
        "X-Authorization: Bearer correct-horse\r\n",
        "Cookie: token=correct-horse\r\n",
    ] {
        assert_eq!(send("POST", "/admin/reload", wrong), "401", "{wrong}");
    }
    assert_eq!(send("POST", "/admin/reload?token=correct-horse", ""), "401");
    // Without the token one does not even learn which paths there are.
    assert_eq!(send("POST", "/nowhere", ""), "401");
    for origin in ["http://evil.example", "null", "", "http://127.0.0.1:8643"] {
        let headers = format!("{right}Origin: {origin}\r\n");
        assert_eq!(send("POST", "/admin/reload", &headers), "403", "{origin:?}");
        let public = daemon.public.strip_prefix("http://").unwrap();
        let query = raw(public, "POST", "/v1/filters/rt/query", &format!("oRiGiN: {origin}\r\n"));
        assert_eq!(query, "403", "{origin:?}");
    }
    assert_eq!(polls(reloads()), before, "one of them did reload");
    for right in [right, "authorization: bearer correct-horse\r\n"] {
        assert_eq!(send("POST", "/admin/reload", right), "200", "{right}");
    }
    assert_eq!(polls(reloads()), before + 2);
    for query in ["?url=http://evil.example", "?filter=../x", "?filter=%2e%2e", "?path=/etc/passwd"]
    {
        let answer = send("POST", &format!("/admin/reload{query}"), right);
        assert!(["400", "404"].contains(&answer.as_str()), "{query}: {answer}");
    }
}

/// The status that a request of these very bytes is answered with.
fn raw(address: &str, method: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    stream.write_all(format!("{head}Content-Length: 0\r\n{headers}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

// ---- floods
// --------------------------------------------------------------------------------------

/// How many connections an address serves at once, and how many more for one request each.
const CONNECTIONS: usize = 1024;
const SHORT_CONNECTIONS: usize = 32;

#[test]
fn in_a_flood_health_checks_are_answered_and_admin_and_lookups_go_on() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..1_000).blob();
    let daemon = Daemon::ready(&backend, &[]);
    let address = daemon.public.strip_prefix("http://").unwrap().to_owned();
    // A thousand clients that keep their connection and say something now and then, as slow as the
    // header's time limit lets them; one more than there is room for.
    let mut kept = TcpStream::connect(&address).unwrap();
    let mut flood: Vec<TcpStream> = Vec::new();
    let head = b"POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf";
    let hold = |start: &[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(start).unwrap();
        stream
    };
    flood.extend((1..CONNECTIONS).map(|_| hold(head)));
    // A connection from before the flood is served all the time.
    let mut look_up = |n: u64| {
        let head = format!("GET /v1/filters/rt/ids/{} HTTP/1.1\r\nHost: x\r\n\r\n", user(n));
        kept.write_all(head.as_bytes()).unwrap();
        let mut answer = vec![0; 4096];
        let n = kept.read(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer[..n]).contains("\"contains\":true"));
    };
    (0..1_000).for_each(&mut look_up);
    // Others get one request for each connection.
    let mut short = TcpStream::connect(&address).unwrap();
    short.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    short.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    // More bodies would be refused at once.
    flood.extend((0..SHORT_CONNECTIONS).map(|_| hold(b"GET /livez HTTP/1.1\r\n")));
    let mut waiting = TcpStream::connect(&address).unwrap();
    waiting.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let early = waiting.read(&mut [0; 1]);
    assert!(
        matches!(&early, Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
        "the connection beyond the last was served: {early:?}"
    );
    // Admin has connections of its own.
    assert_eq!(daemon.reload("").0, 200);
    (0..1_000).for_each(&mut look_up);
    // As soon as one of the flood ends, the one that waits is served.
    flood.pop();
    waiting.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Who comes when one of the others has gone keeps its connection.
    drop(std::mem::replace(&mut flood[0], hold(head)));
    flood.truncate(CONNECTIONS - 2);
    daemon.until("a connection is free", |_| {
        let mut client = TcpStream::connect(&address).unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = [0; 4096];
        let n = client.read(&mut answer).unwrap();
        !String::from_utf8_lossy(&answer[..n]).contains("connection: close")
    });
    flood.extend((flood.len()..CONNECTIONS + SHORT_CONNECTIONS).map(|_| hold(head)));
    // With all connections in use it still stops at SIGTERM, within the time for running requests.
    flood.push(TcpStream::connect(&address).unwrap());
    let start = Instant::now();
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
}

#[test]
fn heads_and_bodies_are_bounded_and_all_bodies_together_too() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..1_000).blob();
    let daemon = Daemon::ready(&backend, &[]);
    let address = daemon.public.strip_prefix("http://").unwrap().to_owned();
    // A head beyond its 16 KiB by more than one read, and one of very many fields.
    for junk in [format!("X: {}\r\n", "y".repeat(200_000)), "X: y\r\n".repeat(5_000)] {
        let answer = raw_or_cut(&address, format!("GET /livez HTTP/1.1\r\n{junk}\r\n").as_bytes());
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // A body that never says how long it is, in chunks.
    let chunk = [&b"100000\r\n"[..], &[b'x'; 1 << 20], b"\r\n"].concat();
    let head =
        "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let endless = [head.as_bytes(), &chunk.repeat(20)].concat();
    let answer = raw_or_cut(&address, &endless);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    // An answer of 96 MiB, six times as long as its body, is written as it is read.
    let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\
                Connection: close\r\nContent-Length: 16777216\r\n\r\n";
    let answer = raw_or_cut(&address, &[head.as_bytes(), &vec![b'\n'; 16 << 20]].concat());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    assert_eq!(body.len(), 6 * (16 << 20) + 2);
    assert!(body.starts_with("[false,false,") && body.ends_with(",false]\n"));
    // Twenty clients keep back the last byte of a body: five fit into memory, and the others get a
    // 503.
    let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\r\n";
    let body = &b"x\n".repeat(8 << 20)[1..];
    let mut clients: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let refused = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = [0; 64];
        let read = stream.read(&mut answer);
        sent.is_err() || read.is_ok_and(|n| answer[..n].starts_with(b"HTTP/1.1 503"))
    };
    let refused = clients.iter_mut().map(refused).filter(|refused| *refused).count();
    assert!((14..18).contains(&refused), "{refused} of 20 bodies were refused");
    drop(clients);
    // 64 clients that each send a full body of the shortest lines and read nothing of the response:
    // a gigabyte of bodies, and three of responses if all were accepted.
    let body = b"x\n".repeat(8 << 20);
    let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\
                Content-Length: 16777216\r\n\r\n";
    std::thread::scope(|scope| {
        let client = || {
            let mut stream = TcpStream::connect(&address).unwrap();
            // A body that is refused early is cut off in the middle.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            stream
        };
        // A handle keeps what its thread returned: connections stay open, and read nothing.
        let _clients: Vec<_> = (0..64).map(|_| scope.spawn(client)).collect();
        // Lookups continue at the same time, and are right.
        let start = Instant::now();
        let mut n_lookups = 0;
        while start.elapsed() < Duration::from_secs(8) {
            assert!(daemon.contains(&user(n_lookups % 1_000)));
            n_lookups += 1;
        }
        assert!(n_lookups > 50, "only {n_lookups} lookups in 8 seconds");
    });
    let peak = high_water(daemon.id()).expect("it still runs");
    // 96 MiB of bodies or results; the example deployments leave 256 MiB in addition to the
    // filters.
    assert!(peak < 160 << 20, "it took {} MiB", peak >> 20);
    // The memory is available again: the same body, read this time.
    let ids = "x\n".repeat(1_000);
    daemon.until("there is room for a body again", |daemon| {
        daemon.post("/v1/filters/rt/query", ids.as_bytes()).status == 200
    });
}

#[test]
fn connections_that_fill_all_that_they_may_take_no_more_than_they_are_given() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..1_000).blob();
    let daemon = Daemon::ready(&backend, &[]);
    let address = daemon.public.strip_prefix("http://").unwrap();
    let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\
                Content-Length: 49000\r\n\r\n";
    // Bodies, each without its last byte. Connections for the test's own requests are left.
    let mut clients: Vec<TcpStream> = (0..CONNECTIONS - 10)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&[b'\n'; 48_999]).unwrap();
            stream
        })
        .collect();
    // Then answers that nobody reads, six times as long, with most of a next head behind them.
    let next = format!("\nGET / HTTP/1.1\r\nX: {}", "y".repeat(60_000));
    for stream in &mut clients {
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write(next.as_bytes());
    }
    daemon.until("all IDs are looked up", |daemon| {
        let absent = format!("result=\"miss\"}} {}\n", (CONNECTIONS - 10) * 49_000);
        daemon.get("/metrics").body.contains(&absent)
    });
    for stream in &mut clients {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200", "each has a block");
    }
    let peak = high_water(daemon.id()).expect("it still runs");
    // For each a block of 96 KiB and some 32 KiB more, less what 49,000 bytes leave of a block.
    assert!(peak < 160 << 20, "it took {} MiB", peak >> 20);
}

/// Sends bytes and reads until the end or a reset; what was answered.
fn raw_or_cut(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A server that refuses the request need not read the rest.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("the server neither answered nor ended the connection");
        }
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..1_000).blob();
    let daemon = Daemon::ready(&backend, &[]);
    let address = daemon.public.strip_prefix("http://").unwrap();
    // The connection of the readiness check may still be closing: the lowest of several counts.
    let idle = (0..20).map(|_| (sockets(daemon.id()), daemon.get("/livez")).0).min().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'\n'; 16 << 20]).unwrap();
    // The answer is 32 MB: more than lies in between.
    let start = Instant::now();
    while sockets(daemon.id()) > idle {
        assert!(start.elapsed() < Duration::from_secs(60), "it is waited for for ever");
        std::thread::sleep(Duration::from_millis(100));
    }
    // It was the answer that was cut off, not a refusal.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..99]));
    assert!(answer.len() < 32 << 20, "all of it was there");
}

/// How many sockets a process has.
fn sockets(process: u32) -> usize {
    let listed = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let files = listed.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    files.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}
