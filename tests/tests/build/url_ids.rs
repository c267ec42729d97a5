//! URLs as IDs: filters made with `ID URL`, and the normalised form compared with the one of w3lib,
//! which Scrapy uses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use bloomsday_common::url_id::normalised;
use bloomsday_tests::campaign::Random;
use bloomsday_tests::live::LiveDaemon;
use tempfile::TempDir;

#[test]
fn a_filter_of_urls_takes_two_spellings_for_one_in_every_command_and_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let first = LiveDaemon::on(folder.path(), &[]);
    let mut wire = first.connect();
    for (line, expected) in [
        ("BLOOM.RESERVE pages ID URL CAPACITY 100", "+OK|"),
        ("BF.ADD pages https://example.org/a?x=1&y=2#top", ":1|"),
        ("BF.ADD pages http://EXAMPLE.org:80/./a?y=2&x=1", ":0|"),
        ("BF.MADD pages http://example.org/b https://example.org/%62", "*2|:1|:0|"),
        ("SADD pages http://example.org/b/ https://example.org/b#1", ":1|"),
        ("BF.EXISTS pages https://example.org/a?y=2&x=1&", ":1|"),
        ("BF.MEXISTS pages https://example.org/A example.org/b", "*2|:0|:1|"),
        ("SISMEMBER pages https://example.org/b", ":1|"),
        ("SREM pages https://EXAMPLE.org/b", ":1|"),
        ("BF.ADD pages user-1", ":1|"),
        ("BF.CARD pages", ":3|"),
        ("BLOOM.UNION copy pages", ":3|"),
        ("BF.ADD copy HTTP://example.org/b/", ":0|"),
        ("BF.ADD bytes http://example.org/", ":1|"),
        ("BF.ADD bytes https://example.org/", ":1|"),
        ("BLOOM.UNION bytes pages", "-ERR a filter of URLs is united with others of URLs only|"),
        (
            "BLOOM.UNION new pages bytes",
            "-ERR a filter of URLs is united with others of URLs only|",
        ),
        ("BLOOM.RESERVE x ID uri", "-ERR syntax error|"),
    ] {
        assert_eq!(wire.call(line), expected, "{line}");
    }
    first.kill();
    let second = LiveDaemon::on(folder.path(), &[]);
    let mut wire = second.connect();
    assert_eq!(wire.call("BF.ADD pages http://example.org/a?y=2&x=1"), ":0|");
    assert_eq!(wire.call("BF.ADD bytes http://example.org"), ":1|");
}

/// How many URLs are compared.
const URLS: usize = 100_000;

/// Pages as they are linked to, each in some spelling.
fn urls(random: &mut Random) -> Vec<String> {
    let mut pick = |from: &[&str]| from[random.below(from.len() as u64) as usize].to_owned();
    let mut all = Vec::with_capacity(URLS);
    while all.len() < URLS {
        let scheme = pick(&["http://", "https://", "https://", "HTTPS://"]);
        let host = pick(&[
            "www.example.org",
            "Example.ORG",
            "example.org",
            "shop.example.co.uk",
            "news.example.com.cn",
        ]);
        let port = pick(&["", "", "", "", ":80", ":443", ":8080"]);
        let mut url = format!("{scheme}{host}{port}");
        for _ in 0..pick(&["0", "1", "2", "3"]).parse::<u32>().unwrap() {
            url += &pick(&[
                "/",
                "/products",
                "/a",
                "/b",
                "/2026",
                "/11",
                "/.",
                "/..",
                "/%7Euser",
                "/~user",
                "/%41",
                "/a%2Fb",
                "/a%2fb",
                "/caf\u{e9}",
                "/caf%C3%A9",
                "/caf%c3%a9",
                "/新闻",
                "/a+b",
                "/a%20b",
                "/a;v=1",
                "/x.html",
                "/a%3Bb",
                "/a|b",
                "/a%7Cb",
                "/%E9",
            ]);
        }
        url += &pick(&["", "", "/"]);
        let parts = pick(&["0", "0", "1", "2", "3"]).parse::<u32>().unwrap();
        for i in 0..parts {
            url += if i == 0 { "?" } else { "&" };
            url += &pick(&[
                "id=1",
                "id=2",
                "ID=1",
                "page=3",
                "page=",
                "page",
                "q=a+b",
                "q=a%20b",
                "q=%61",
                "q=a",
                "q=caf\u{e9}",
                "q=caf%C3%A9",
                "q=caf%c3%a9",
                "utm_source=x",
                "",
                "u=http://example.org/",
                "u=http%3A%2F%2Fexample.org%2F",
                "a[]=1",
                "a%5B%5D=1",
            ]);
        }
        url += &pick(&["", "", "", "#top", "#", "#/route?x=1"]);
        all.push(url);
    }
    all
}

fn w3lib(urls: &[String]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new(root.join("../target/test-tools/bin/python"))
        .arg(root.join("python/canonical_urls.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python runs (tests/run.sh installs it)");
    let (mut pipe, text) = (child.stdin.take().unwrap(), urls.join("\n"));
    let writer = std::thread::spawn(move || pipe.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Which of the differences in docs/live.md a URL of w3lib's has, taken away one after the other.
fn without_known_differences(canonical: &str) -> String {
    let url = canonical.strip_prefix("http://").map(|url| (url, ":80"));
    let (url, port) = url.or(canonical.strip_prefix("https://").map(|url| (url, ":443"))).unwrap();
    let host_ends = url.find(['/', '?']).unwrap_or(url.len());
    let (host, rest) = url.split_at(host_ends);
    let host = host.strip_suffix(port).unwrap_or(host);
    format!("{host}{rest}")
}

#[test]
fn two_urls_are_one_if_and_only_if_w3lib_says_so_but_for_the_listed_differences() {
    let urls = urls(&mut Random::new());
    let theirs = w3lib(&urls);
    assert_eq!(theirs.len(), URLS);
    let (mut by_ours, mut by_theirs) = (BTreeMap::new(), BTreeMap::new());
    for (url, canonical) in urls.iter().zip(&theirs) {
        let ours = String::from_utf8(normalised(url.as_bytes()).into_owned()).unwrap();
        let known = without_known_differences(canonical);
        by_ours.entry(ours.clone()).or_insert_with(BTreeMap::new).insert(known.clone(), url);
        by_theirs.entry(known).or_insert_with(BTreeMap::new).insert(ours, url);
    }
    let united = by_ours.values().filter(|spellings| spellings.len() > 1);
    let divided = by_theirs.values().filter(|spellings| spellings.len() > 1);
    let show = |found: Vec<&BTreeMap<String, &String>>| {
        format!("{}: {:#?}", found.len(), &found[..found.len().min(12)])
    };
    let (united, divided) = (united.collect::<Vec<_>>(), divided.collect::<Vec<_>>());
    assert!(united.is_empty(), "one page here and several for w3lib: {}", show(united));
    assert!(divided.is_empty(), "several pages here and one for w3lib: {}", show(divided));
    let distinct: BTreeSet<&String> = urls.iter().collect();
    let (spellings, pages) = (distinct.len(), by_ours.len());
    println!("{spellings} spellings of {pages} pages");
    assert!(pages < spellings * 3 / 4, "{pages} pages of {spellings} spellings");
}
