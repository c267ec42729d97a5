//! Crawls with the duplicate filters of `python/scrapy`: each test runs
//! tests/python/scrapy/crawls.py with one version of Scrapy, against the real daemon, a local site
//! and, for scrapy-redis, a real Redis.

use std::process::Command;

use bloomsday_tests::{program, sources};

/// Runs some cases with the Python of a folder of the tools, all of them in one process.
fn crawl(tools: &str, is_wanted: impl Fn(&str) -> bool) {
    let root = sources::root();
    let run = |cases: &[&str]| {
        let mut command =
            Command::new(root.join("target/test-tools").join(tools).join("bin/python"));
        command.arg("-B").arg(root.join("tests/python/scrapy/crawls.py")).arg(program::path());
        let run = command.args(cases).output();
        let run = run.unwrap_or_else(|e| panic!("{command:?}: {e} (tests/run.sh)"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&run.stdout), text(&run.stderr));
        assert!(run.status.success(), "{command:?}\n{stdout}\n{stderr}");
        stdout
    };
    let all = run(&[]);
    let cases: Vec<&str> = all.lines().filter(|case| is_wanted(case)).collect();
    let passed = run(&cases);
    let expected: Vec<String> = cases.iter().map(|case| format!("passed {case}")).collect();
    assert_eq!(passed.lines().collect::<Vec<_>>(), expected);
    assert!(expected.len() >= 4, "{all}");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn scrapy_2_12_crawls_each_page_once() {
    crawl("scrapy-2.12", |case| !case.starts_with("redis_"));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn scrapy_redis_crawls_each_page_once_with_either_scheduler() {
    crawl("scrapy-2.12", |case| case.starts_with("redis_"));
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn scrapy_2_19_crawls_each_page_once() {
    crawl("scrapy-2.19", |case| !case.starts_with("redis_"));
}
