//! Live filters as real clients see them: redis-py in both versions of the protocol and with
//! asyncio, node-redis, redis-cli, redis-benchmark.

use std::process::Command;

use bloomsday_tests::live::LiveDaemon;
use tempfile::TempDir;

/// What a program printed, if it ended well.
#[track_caller]
fn output(command: &mut Command) -> String {
    let run = command.output().unwrap_or_else(|e| panic!("{command:?}: {e} (tests/run.sh)"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&run.stdout), text(&run.stderr));
    assert!(run.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn redis_py_works_in_both_versions_and_with_asyncio() {
    let folder = TempDir::new().unwrap();
    let daemon = LiveDaemon::on(folder.path(), &[]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let said = output(
        Command::new(format!("{root}/target/test-tools/bin/python"))
            .arg(format!("{root}/tests/python/resp_client.py"))
            .arg(daemon.port()),
    );
    assert_eq!(said.trim(), "passed");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn node_redis_works_in_both_versions() {
    let daemon = LiveDaemon::start(&[]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let said = output(
        Command::new("node")
            .arg(format!("{root}/tests/node/resp_client.mjs"))
            .args([&format!("{root}/target/test-tools"), daemon.port()]),
    );
    assert_eq!(said.trim(), "passed");
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn redis_cli_and_redis_benchmark_work() {
    let daemon = LiveDaemon::start(&[]);
    let cli = |words: &[&str]| {
        output(Command::new("redis-cli").args(["-p", daemon.port()]).args(words)).trim().to_owned()
    };
    assert_eq!(cli(&["BF.ADD", "bf", "a"]), "1");
    assert_eq!(cli(&["-3", "BF.EXISTS", "bf", "a"]), "(true)");
    assert_eq!(cli(&["--scan"]), "bf");
    for depth in ["1", "16", "128"] {
        let words = ["-c", "50", "-n", "20000", "-r", "1000000", "-q", "-P", depth];
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.args(["-p", daemon.port()]).args(words);
        let said = output(benchmark.args(["SADD", "s", "__rand_int__"]));
        assert!(said.contains("requests per second"), "{said}");
    }
    let added: u64 = cli(&["SCARD", "s"]).parse().unwrap();
    assert!((50_000..=60_000).contains(&added), "{added} of 60,000 random IDs");
}
