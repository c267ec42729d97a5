//! The status page in a real Chromium: it renders, follows swaps and rollbacks, answers, reloads
//! with the token only, and leaks nothing without it.
//!
//! With `BLOOMSDAY_PICTURES=DIR` it leaves screenshots (base64) for a person to look at.

use std::path::Path;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::browser::Browser;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::live::{LiveDaemon, Wire};
use bloomsday_tests::publisher::Publisher;

const TOKEN: &str = "correct-horse-battery";

/// How far apart two colours are in brightness alone (WCAG 2): 1 is not at all.
const CONTRAST: &str = r"const lum = (c) => c.match(/\d+/g).slice(0, 3).map((v) => v / 255)
           .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
           .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
         const contrast = (x, y) => { const a = lum(x), b = lum(y);
           return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };";

fn with_token(backend: &Backend) -> Daemon {
    let file = backend.folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    Daemon::ready(backend, &["--admin-token-file", file.to_str().unwrap()])
}

fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("BLOOMSDAY_PICTURES") {
        browser.picture(&Path::new(&folder).join(format!("{name}.b64")));
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_page_shows_what_happens_and_leaks_nothing_without_the_token() {
    let backend = Backend::local();
    (2..=9).rev().for_each(|back| {
        let n = u64::from(back);
        Publisher::days_ago(&backend, back).users(n * 400..20_000 + n * 200).publish();
    });
    let daemon = with_token(&backend);
    let all: String = (0..30_000).map(|n| user(n) + "\n").collect();
    daemon.post("/v1/filters/rt/query", all.as_bytes());
    let browser = Browser::open(1200, 1400, false);
    browser.go(&daemon.public);
    let before = browser.until("✓ ok");
    assert!(before.contains(&today().minus(2).to_string()), "{before}");
    picture(&browser, "public-light");

    // A swap and a rollback show by themselves.
    Publisher::days_ago(&backend, 1).users(300..20_300).publish();
    assert_eq!(reload(&daemon).0, 200);
    browser.until("20,000");
    let (day, before) = (today().minus(1).to_string(), today().minus(3).to_string());
    let why = "half of it was <b>missing</b>";
    let words = ["repoint", "rt", &day, "--to", &before, "--reason", why];
    backend.bloomsday(&words).run().expect(0);
    assert_eq!(reload(&daemon).0, 200);
    let public = browser.until("↩ rolled back");

    // Who and why are not for everybody; nor is the reload.
    assert!(!public.contains("missing") && !public.contains("Who did what"), "{public}");
    let data = daemon.get("/page.json").body;
    assert!(!data.contains("missing") && !data.contains("\"by\""), "{data}");
    assert_eq!(
        browser.run("return document.querySelector('.reload').offsetParent"),
        serde_json::Value::Null
    );
    browser.type_into(".ask input", &user(700));
    browser.press("\u{e007}");
    browser.until("No, not in the filter of");

    // The admin address reports nothing without the token.
    browser.go(&daemon.admin);
    browser.until("send the token");
    assert!(!browser.text().contains("rt"), "{}", browser.text());
    browser.type_into("#token", "wrong");
    browser.press("\u{e007}");
    browser.until("send the token");
    browser.type_into("#token", TOKEN);
    browser.press("\u{e007}");
    let admin = browser.until("Who did what");
    assert!(admin.contains(why), "a reason is printed as it was typed: {admin}");
    browser.type_into(".ask input", &user(1_700));
    browser.click(".ask button");
    let days = browser.until("chance that it is false");
    assert!(days.contains("Of the IDs that were never there, at most"), "{days}");
    picture(&browser, "admin-light");
    browser.click(".reload");
    browser.until("unchanged");
    // Any bytes are an ID and none is markup.
    browser.type_into(".ask input", "<img src=x onerror=document.title='owned'>&days=99 ✓");
    browser.click(".ask button");
    browser.until("In none of these days");
    assert_eq!(browser.run("return document.title"), "Bloomsday");
    let complaints = browser.complaints();
    let policy = complaints.iter().any(|line| line.contains("Content Security Policy"));
    assert!(!policy, "{complaints:?}");
    assert!(!browser.run("return document.documentElement.outerHTML").to_string().contains(TOKEN));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_page_shows_live_ids_and_names_the_day_only_for_what_it_knows() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..5_000).publish();
    let path = |name: &str| backend.folder.path().join(name).display().to_string();
    let (config, data) = (path("live.toml"), path("data"));
    std::fs::write(&config, "[filters.rt]\nlive = \"decide\"\n").unwrap();
    let more = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    let daemon = Daemon::ready(&backend, &more);
    let (added, seen, deleted) = (user(7_000), user(20), user(30));
    daemon.until("it takes IDs", |daemon| {
        daemon.post("/v1/filters/rt/add", format!("{added}\n{seen}").as_bytes()).status == 200
    });
    assert_eq!(daemon.post("/v1/filters/rt/forget", deleted.as_bytes()).status, 200);
    let browser = Browser::open(1200, 1400, false);
    browser.go(&daemon.public);
    let page = browser.until("adds a second");
    for fact in ["live IDs", "their memory", "adds since the start", "of them new\n50.0 %"] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    // Known at the second reading of the page.
    browser.until("adds a second\n0.0");
    for (id, says) in [(&added, "or among the live IDs."), (&deleted, "No: it is not known here")] {
        browser.run("document.querySelector('.ask input').value = ''");
        browser.type_into(".ask input", id);
        browser.click(".ask button");
        browser.until(says);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_page_shows_the_filters_of_redis_clients_also_without_any_filter_of_a_store() {
    let alone = LiveDaemon::start(&["--listen", "127.0.0.1:0"]);
    let mut client = alone.connect();
    let browser = Browser::open(1200, 900, false);
    browser.go(&format!("http://{}", alone.listen.as_ref().unwrap()));
    browser.until("filters\n0");
    // A key is never markup, and a long one is cut.
    let (odd, long) = ("<img/src=x/onerror=document.title='owned'>", "k".repeat(900));
    assert_eq!(client.call(&format!("BF.MADD {odd} a b a")), "*3|:1|:1|:0|");
    assert_eq!(client.call(&format!("SADD {long} a")), ":1|");
    let page = browser.until(odd);
    for text in ["filters\n2", "its limit\n1.0 GiB", "66.7 %", &format!("{}…", &long[..60])] {
        assert!(page.contains(text), "no {text:?} in {page}");
    }
    assert!(!page.contains(&long), "{page}");
    // Known at the second reading of the page.
    let rates =
        "return [...document.querySelectorAll('#live td:nth-child(6)')].map((x) => x.textContent)";
    browser.run_until(rates, &serde_json::json!(["0.0", "0.0"]));
    assert_eq!(browser.run("return document.title"), "Bloomsday");
    picture(&browser, "redis-clients");

    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let daemon = Daemon::ready(&backend, &["--resp", "127.0.0.1:0"]);
    let browser = Browser::open(1200, 1400, false);
    browser.go(&daemon.public);
    let page = browser.until("✓ ok");
    assert!(!page.contains("Filters of Redis clients"), "there are none: {page}");
    assert_eq!(Wire::connect(daemon.resp.as_ref().unwrap()).call("BF.ADD urls a"), ":1|");
    browser.until("Filters of Redis clients");
}

/// As an operator would, with the token.
fn reload(daemon: &Daemon) -> (u16, String) {
    let request = ureq::post(format!("{}/admin/reload", daemon.admin));
    let request = request.header("authorization", format!("Bearer {TOKEN}"));
    let mut answer = request.send_empty().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_phone_in_the_dark_shows_all_of_it_and_the_keyboard_reaches_everything() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 2).users(0..3_000).publish();
    Publisher::days_ago(&backend, 1).users(100..3_100).publish();
    let daemon = Daemon::ready(&backend, &[]);
    let browser = Browser::open(500, 900, true);
    browser.go(&daemon.public);
    browser.until("✓ ok");
    picture(&browser, "phone-dark");
    let wide = browser.run("return document.documentElement.scrollWidth <= window.innerWidth");
    assert_eq!(wide, true, "the page is wider than a phone");
    let dark = browser.run("return matchMedia('(prefers-color-scheme: dark)').matches");
    assert_eq!(dark, true);
    let mut reached = Vec::new();
    for _ in 0..8 {
        browser.press("\u{e004}");
        let tag =
            browser.run("return document.activeElement.tagName + document.activeElement.className");
        reached.push(tag.as_str().unwrap().to_owned());
    }
    for wanted in ["INPUT", "BUTTON", "DIVscroll"] {
        assert!(reached.iter().any(|tag| tag == wanted), "{wanted} is not reached: {reached:?}");
    }
    // Every text against what it stands on: 4.5 to 1 or more.
    let contrast = browser.run(&format!(
        "{CONTRAST}
         const back = (e) => {{ for (; e; e = e.parentElement) {{ const c = getComputedStyle(e).backgroundColor;
           if (!c.endsWith(', 0)')) return c; }} return 'rgb(255, 255, 255)'; }};
         let worst = 99;
         for (const e of document.querySelectorAll('h1, h2, h3, dt, dd, td, th, p, label, button, .state, figcaption'))
           if (e.offsetParent) worst = Math.min(worst, contrast(getComputedStyle(e).color, back(e)));
         return worst",
    ));
    assert!(contrast.as_f64().unwrap() >= 4.5, "contrast {contrast}");
    // Without any colour the two bars are as bright as each other: an edge must part them.
    let edge = browser.run(&format!(
        "{CONTRAST}
         const inner = getComputedStyle(document.querySelector('svg .two')), edge = inner.stroke;
         const outer = getComputedStyle(document.querySelector('svg .one'));
         return edge === 'none' ? 1 : Math.min(contrast(edge, inner.fill), contrast(edge, outer.fill))",
    ));
    assert!(edge.as_f64().unwrap() >= 3.0, "the edge between the bars {edge}");
}

#[test]
fn a_web_page_that_is_not_ours_cannot_reload_and_ours_cannot_without_the_token() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let daemon = with_token(&backend);
    let post = |origin: &str, token: Option<&str>| {
        let mut request = ureq::post(format!("{}/admin/reload", daemon.admin))
            .config()
            .http_status_as_error(false)
            .build()
            .header("origin", origin);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.send_empty().unwrap().status().as_u16()
    };
    assert_eq!(post("http://evil.example", Some(TOKEN)), 403);
    assert_eq!(post("null", Some(TOKEN)), 403);
    assert_eq!(post(&daemon.admin, None), 401);
    assert_eq!(post(&daemon.admin, Some("wrong")), 401);
    assert_eq!(post(&daemon.admin, Some(TOKEN)), 200);
    // Without a token configured no page may, whatever it says it is.
    let open = Daemon::ready(&backend, &[]);
    let own = ureq::post(format!("{}/admin/reload", open.admin))
        .config()
        .http_status_as_error(false)
        .build()
        .header("origin", &open.admin);
    assert_eq!(own.send_empty().unwrap().status().as_u16(), 403);
}

#[test]
fn the_page_is_complete_and_loads_nothing_from_elsewhere() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let daemon = Daemon::ready(&backend, &[]);
    let mut answer = ureq::get(&daemon.public).call().unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let html = answer.body_mut().read_to_string().unwrap();
    assert!(!html.contains("NONCE"));
    for outside in ["src=\"http", "href=\"http", "url(", "@import", "//cdn"] {
        assert!(!html.contains(outside), "{outside}");
    }
    // A trace is bounded, only the admin address has it, and `why` is its alias.
    for name in ["trace", "why"] {
        let path = format!("/v1/filters/rt/{name}?id=x");
        assert_eq!(daemon.get(&path).status, 404);
        let found = ureq::get(&format!("{}{path}&days=1", daemon.admin)).call().unwrap();
        assert_eq!(found.status().as_u16(), 200, "{name}");
    }
    for wrong in ["", "?days=3", "?id=x&days=0", "?id=x&days=32", "?id=x&store=s3://evil"] {
        let url = format!("{}/v1/filters/rt/trace{wrong}", daemon.admin);
        let answer = ureq::get(&url).config().http_status_as_error(false).build().call().unwrap();
        assert_eq!(answer.status().as_u16(), 400, "{wrong}");
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn the_chart_of_days_is_readable_at_3_and_at_14_days() {
    let backend = Backend::local();
    let mut published = 0;
    for days in [3, 14] {
        for back in (1..=days - published).map(|back| back + published) {
            Publisher::days_ago(&backend, back).users(0..1_000 + u64::from(back)).publish();
        }
        published = days;
        let daemon = Daemon::ready(&backend, &[]);
        let browser = Browser::open(1200, 900, false);
        browser.go(&daemon.public);
        browser.until("✓ ok");
        let seen = browser.run(
            r"const boxes = (name) => [...document.querySelectorAll(('svg.days ' + name).trim())].map((x) => x.getBoundingClientRect());
              const labels = boxes('text.day'), bars = boxes('.one');
              const apart = (all) => all.every((x, i) => i === 0 || all[i - 1].right < x.left);
              const chart = boxes('')[0], inside = (x) => chart.left <= x.left && x.right <= chart.right;
              const texts = [...document.querySelectorAll('svg.days text.day')].map((x) => x.textContent);
              return [bars.length, apart(bars), apart(labels) && labels.every(inside), Math.min(...bars.map((x) => x.width)),
                      Math.min(...labels.map((x) => x.height)), texts.at(-1), labels.length];",
        );
        let number = |at: usize| seen[at].as_f64().unwrap();
        assert_eq!(seen[0], days, "a bar for each day: {seen}");
        assert_eq!((&seen[1], &seen[2]), (&true.into(), &true.into()), "nothing overlaps: {seen}");
        assert!(number(3) >= 10.0, "bars can be seen and pointed at: {seen}");
        assert!(number(4) >= 10.0, "labels can be read: {seen}");
        assert_eq!(
            seen[5],
            today().minus(1).to_string()[5..],
            "the newest day has a label: {seen}"
        );
        assert!(number(6) >= 3.0, "{seen}");
        picture(&browser, &format!("days-{days}"));
    }
}
