//! HTTP in detail, and who may request what: foreign pages, foreign host names, wrong requests.

use std::fs;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::user;
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::wire::{exchange, request, status};

fn ready(backend: &Backend, more: &[&str]) -> Daemon {
    Publisher::days_ago(backend, 1).users(0..1_000).publish();
    Daemon::ready(backend, more)
}

fn with_token(backend: &Backend) -> Daemon {
    let token = backend.folder.path().join("token");
    fs::write(&token, "correct-horse").unwrap();
    ready(backend, &["--admin-token-file", &token.display().to_string()])
}

const RIGHT: (&str, &str) = ("Authorization", "Bearer correct-horse");

/// Everything the admin address has, and some that it has not.
fn everything() -> Vec<(&'static str, String)> {
    let why = format!("/v1/filters/rt/why?id={}&days=31", user(1));
    let mut all: Vec<(&str, String)> = Vec::new();
    for method in ["GET", "HEAD", "POST", "OPTIONS", "PUT"] {
        for path in ["/", "/page.json", why.as_str(), "/admin/reload", "/nowhere"] {
            all.push((method, path.to_owned()));
        }
    }
    all
}

#[test]
fn a_strangers_page_and_a_strangers_name_get_nothing_from_the_admin_address() {
    let backend = Backend::local();
    let daemon = ready(&backend, &[]);
    for (method, path) in everything() {
        for foreign in [
            &[("Host", "evil.example")][..],
            &[("Host", "evil.example:8643"), ("Origin", "http://evil.example:8643")],
            &[("Host", "127.0.0.1.evil.example")],
            &[("Host", "localhost.evil.example")],
            &[("Host", "0.0.0.0:8643")],
            &[("Host", "192.0.2.1")],
            &[("Host", "user@127.0.0.1")],
            &[("Host", "[::2]")],
            &[("Origin", "http://evil.example")],
            &[("Origin", "null")],
            &[("Origin", "")],
            &[("Origin", "http://localhost:3000")],
            &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")],
            &[("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "no-cors")],
        ] {
            let answer = request(&daemon.admin, method, &path, foreign);
            let code = if foreign[0].1.contains('@') { 400 } else { 403 };
            assert_eq!(status(&answer), code, "{method} {path} {foreign:?}: {answer}");
            assert!(
                !answer.contains("days_searched") && !answer.contains("\"events\""),
                "{answer}"
            );
        }
    }
    // A name in the request's own line counts as well.
    let line = "GET http://evil.example/page.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&exchange(&daemon.admin, line.as_bytes())), 403);
    // Our own page, a program, and a tunnel from another port are as welcome as ever.
    for own in [
        &[][..],
        &[("Host", "127.0.0.1")],
        &[("Host", "127.0.0.1:9999")],
        &[("Host", "127.1.2.3:9999")],
        &[("Host", "localhost")],
        &[("Host", "LocalHost:9999")],
        &[("Host", "[::1]:9999")],
        &[("Sec-Fetch-Site", "same-origin")],
        &[("Sec-Fetch-Site", "none")],
    ] {
        for path in
            ["/".to_owned(), "/page.json".into(), format!("/v1/filters/rt/why?id={}", user(1))]
        {
            let answer = request(&daemon.admin, "GET", &path, own);
            assert_eq!(status(&answer), 200, "{path} {own:?}: {answer}");
        }
        let answer = request(&daemon.admin, "POST", "/admin/reload", own);
        assert_eq!(status(&answer), 200, "{own:?}: {answer}");
    }
}

#[test]
fn with_a_token_a_foreign_page_gets_nothing_either_and_ours_all() {
    let backend = Backend::local();
    let daemon = with_token(&backend);
    let address = daemon.admin.trim_start_matches("http://").to_owned();
    for (method, path) in everything() {
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1", ""] {
            let answer = request(&daemon.admin, method, &path, &[RIGHT, ("Origin", origin)]);
            assert_eq!(status(&answer), 403, "{method} {path} {origin}: {answer}");
        }
    }
    let origin = format!("http://{address}");
    for (method, path) in [("GET", "/page.json"), ("POST", "/admin/reload")] {
        let own = [RIGHT, ("Origin", &*origin), ("Sec-Fetch-Site", "same-origin")];
        assert_eq!(status(&request(&daemon.admin, method, path, &own)), 200, "{method} {path}");
        assert_eq!(status(&request(&daemon.admin, method, path, &own[1..])), 401);
        // By whatever name operators reach it.
        let named = [RIGHT, ("Host", "bloom-1.internal"), ("Origin", "https://bloom-1.internal")];
        assert_eq!(status(&request(&daemon.admin, method, path, &named)), 200);
    }
}

#[test]
fn the_format_of_a_reply_is_the_one_that_was_requested() {
    let backend = Backend::local();
    let daemon = ready(&backend, &[]);
    let json = |accept: &[&str]| {
        let headers: String = accept.iter().map(|a| format!("Accept: {a}\r\n")).collect();
        let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        let request = format!("{head}{headers}Content-Length: 2\r\n\r\nx\n");
        let answer = exchange(&daemon.public, request.as_bytes());
        assert_eq!(status(&answer), 200, "{answer}");
        answer.contains("content-type: application/json")
    };
    for accept in [
        &["application/json"][..],
        &["APPLICATION/JSON"],
        &["application/json;q=0.1"],
        &["application/json ; charset=utf-8 ; Q=1.000"],
        &["application/json, text/plain, */*"],
        &["text/plain;q=0.5, application/json"],
        &["text/plain;q=0.5,application/json;q=0.7"],
        &["application/*"],
        &["text/html", "application/json"],
        &["text/plain;q=0, */*"],
        &["text/*;q=0.1, application/json;q=0.2"],
    ] {
        assert!(json(accept), "{accept:?}");
    }
    for accept in [
        &[][..],
        &[""],
        &["*/*"],
        &["text/plain"],
        &["text/plain, application/json;q=0"],
        &["text/plain, application/json;q=0.000"],
        &["application/json;q=0"],
        &["application/json;q=0.5, text/plain"],
        &["application/json;q=0.5, */*"],
        &["application/jsonx"],
        &["application/json-seq, x/application/json"],
        &["text/plain, */*"],
        &["image/png"],
        &["*/*, application/json;q=0"],
    ] {
        assert!(!json(accept), "{accept:?}");
    }
}

/// An array of IDs would be one ID, and so would compressed ones.
#[test]
fn a_body_that_says_that_it_is_no_list_of_ids_is_refused() {
    let backend = Backend::local();
    let daemon = ready(&backend, &[]);
    for (header, expected) in [
        ("Content-Type: application/json", 415),
        ("Content-Type: Application/JSON; charset=utf-8", 415),
        ("Content-Type: application/x-www-form-urlencoded", 200),
        ("Content-Type: text/plain", 200),
        ("Content-Type: application/x-ndjson", 415),
        ("Content-Type: application/ld+json", 415),
        ("Content-Type: text/json", 415),
        ("Content-Type: application/json, text/plain", 415),
        ("Content-Type: text/plain\r\nContent-Type: application/json", 415),
        ("Content-Type: text/plain; name=json", 200),
        ("Content-Encoding: gzip", 415),
        ("Content-Encoding: Identity", 200),
        ("Content-Encoding: identity\r\nContent-Encoding: gzip", 415),
    ] {
        let head = "POST /v1/filters/rt/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        let request = format!("{head}{header}\r\nContent-Length: 2\r\n\r\nx\n");
        let answer = exchange(&daemon.public, request.as_bytes());
        assert_eq!(status(&answer), expected, "{header}: {answer}");
    }
}

#[test]
fn every_get_has_a_head_and_a_request_without_a_host_is_refused() {
    let backend = Backend::local();
    let daemon = ready(&backend, &[]);
    let id = format!("/v1/filters/rt/ids/{}", user(1));
    for path in
        ["/", "/status", "/metrics", "/version", "/livez", "/readyz", "/page.json", id.as_str()]
    {
        let head = request(&daemon.public, "HEAD", path, &[]);
        assert_eq!(status(&head), 200, "{path}: {head}");
        assert!(head.contains("content-length: ") && head.ends_with("\r\n\r\n"), "{path}: {head}");
        let refused = request(&daemon.public, "PUT", path, &[]);
        assert_eq!(status(&refused), 405, "{path}");
        assert!(refused.contains("allow: GET, HEAD\r\n"), "{path}: {refused}");
    }
    for path in ["/".to_owned(), "/page.json".into(), format!("/v1/filters/rt/why?id={}", user(1))]
    {
        assert_eq!(status(&request(&daemon.admin, "HEAD", &path, &[])), 200, "{path}");
    }
    for address in [&daemon.public, &daemon.admin] {
        for (request, code) in [
            ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
            (
                "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
                400,
            ),
            ("GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n", 400),
            ("GET / HTTP/1.0\r\n\r\n", 200),
            ("GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", 200),
        ] {
            let answer = exchange(address, request.as_bytes());
            assert_eq!(status(&answer), code, "{request:?}: {answer}");
        }
    }
}

#[test]
fn what_would_be_passed_over_in_a_request_is_refused() {
    let backend = Backend::local();
    let daemon = ready(&backend, &[]);
    for query in
        ["filter=zz&filter=rt", "filter=rt&filter=rt", "force=true&force=false", "filter", "x=1"]
    {
        let answer = request(&daemon.admin, "POST", &format!("/admin/reload?{query}"), &[]);
        assert_eq!(status(&answer), 400, "{query}: {answer}");
        assert!(answer.contains("\"error\":"), "{answer}");
    }
    for query in ["id=a&id=b", "id=a&days=1&days=2", "id=a&x=1", "days=3"] {
        let answer = request(&daemon.admin, "GET", &format!("/v1/filters/rt/why?{query}"), &[]);
        assert_eq!(status(&answer), 400, "{query}: {answer}");
    }
    for path in ["ids/x?y", "ids/x?", "ids/a?b=c"] {
        let answer = request(&daemon.public, "GET", &format!("/v1/filters/rt/{path}"), &[]);
        assert_eq!(status(&answer), 400, "{path}: {answer}");
        assert!(answer.contains("%3F"), "no remedy: {answer}");
    }
    let encoded = request(&daemon.public, "GET", "/v1/filters/rt/ids/x%3Fy", &[]);
    assert!(status(&encoded) == 200 && encoded.contains("\"x?y\""), "{encoded}");
    for (method, path) in [
        ("POST", "/v1/filters/rt/query?json=1"),
        ("GET", "/status?filter=rt"),
        ("GET", "/version?x"),
    ] {
        let answer = request(&daemon.public, method, path, &[]);
        assert_eq!(status(&answer), 400, "{path}: {answer}");
    }
    // Those who look whether it lives, and scrapers, add what they like.
    for path in ["/livez?verbose", "/readyz?x=1", "/metrics?name=x"] {
        assert_eq!(status(&request(&daemon.public, "GET", path, &[])), 200, "{path}");
    }
}

#[test]
fn lines_of_another_system_are_answered_rightly_or_refused_and_never_denied() {
    let backend = Backend::local();
    let daemon = ready(&backend, &[]);
    let post = |body: &str| {
        let answer = daemon.post("/v1/filters/rt/query", body.as_bytes());
        (answer.status, answer.body)
    };
    let (a, b) = (user(1), user(2));
    let yes = |n: usize| (200, "1\n".repeat(n));
    assert_eq!(post(&format!("{a}\r\n")), yes(1));
    assert_eq!(post(&format!("{a}\r\n{b}\r\n")), yes(2));
    assert_eq!(post(&format!("{a}\r\n{b}")), yes(2));
    assert_eq!(post(&format!("{a}\r\n\r\n{b}\r\n")), (200, "1\n0\n1\n".into()));
    let many = format!("{a}\r\n{b}\r\n").repeat(30_000);
    assert_eq!(post(&many), yes(60_000));
    for mixed in [
        format!("{a}\r\n{b}\n"),
        format!("{a}\n{b}\r\n"),
        format!("{a}\n").repeat(50_000) + &format!("{b}\r\n"),
        format!("{a}\r\n").repeat(50_000) + &format!("{b}\n"),
    ] {
        let (code, body) = post(&mixed);
        assert_eq!(code, 400, "{body}");
        assert!(body.contains("LF"), "no remedy: {body}");
    }
    assert_eq!(post(&format!("{a}\n{b}\n")), yes(2));
    // A long line keeps its place, whatever ends it.
    let long = "x".repeat(3_000);
    assert_eq!(post(&format!("{a}\r\n{long}\r\n{b}\r\n")), (200, "1\n0\n1\n".into()));
}

#[test]
fn a_filter_that_is_named_twice_is_served_once() {
    let backend = Backend::local();
    let daemon = ready(&backend, &["--filter", "rt", "--filter", "rt"]);
    (0..5).for_each(|n| assert!(daemon.contains(&user(n))));
    assert_eq!(daemon.status()["hits"], 5);
    assert_eq!(daemon.metric("bloomsday_lookups_total{filter=\"rt\",result=\"hit\"}"), 5);
    assert_eq!(daemon.metric("bloomsday_loads_total{filter=\"rt\",result=\"ok\",via=\"full\"}"), 1);
}

#[test]
fn absurd_values_are_refused_where_they_are_read() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..100).publish();
    let file = backend.folder.path().join("bloomsday.toml");
    let config = file.display().to_string();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", &config];
    for (name, text, says) in [
        ("max_age_days", "[filters.rt]\nmax_age_days = 4000000000\n", "at most"),
        ("max_age_days", "[filters.rt]\nmax_age_days = 3000000\n", "at most"),
        ("max_age_days", "[filters.rt]\nmax_age_days = 401\n", "at most"),
        ("guard_max_hold", "[filters.rt]\nguard_max_hold = \"300000000000000000s\"\n", "at most"),
        ("guard_max_hold", "[filters.rt]\nguard_max_hold = \"40days\"\n", "at most"),
        ("poll_interval", "poll_interval = \"300000000000000000s\"\n[filters.rt]\n", "at most"),
        ("poll_interval", "poll_interval = \"0s\"\n[filters.rt]\n", "longer than zero"),
        ("poll_interval", "poll_interval = \"2days\"\n[filters.rt]\n", "at most"),
        ("settle", "[filters.rt]\nsettle = \"300000000000000000s\"\n", "at most"),
        ("deadline", "[filters.rt]\ndeadline = \"300000000000000000s\"\n", "at most"),
    ] {
        fs::write(&file, text).unwrap();
        backend.bloomsday(&serve).run().expect(2).complains(&[name, says]);
        let check = ["config", "check", "--dry-run", "--config", &config];
        backend.bloomsday(&check).run().expect(2).complains(&[name]);
    }
    fs::write(&file, "[filters.rt]\n").unwrap();
    for interval in ["300000000000000000s", "2days", "0s"] {
        let words = [&serve[..], &["--poll-interval", interval]].concat();
        backend.bloomsday(&words).run().expect(2).complains(&["poll-interval"]);
    }
    // The largest that are allowed are served.
    fs::write(&file, "poll_interval = \"1day\"\n[filters.rt]\nmax_age_days = 366\n").unwrap();
    let daemon = Daemon::of(backend.bloomsday(&serve).into_command());
    daemon.until("it is ready", |daemon| daemon.get("/readyz").status == 200);
}
