//! Live filters over Redis's protocol, byte for byte: replies in both versions, errors, names,
//! transactions, limits; and what a restart keeps.

use bloomsday_tests::live::{LiveDaemon, Wire, encode};
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::wait::until;
use tempfile::TempDir;

/// Sends each command in order, and compares its reply.
#[track_caller]
fn converse(daemon: &LiveDaemon, lines: &[(&str, &str)]) {
    let mut wire = daemon.connect();
    for (line, expected) in lines {
        assert_eq!(wire.call(line), *expected, "{line}");
    }
}

#[test]
fn filters_answer_in_version_2() {
    let daemon = LiveDaemon::start(&["--allow-flush"]);
    converse(
        &daemon,
        &[
            ("BF.ADD bf a", ":1|"),
            ("bf.add bf a", ":0|"),
            ("BF.MADD bf a b c", "*3|:0|:1|:1|"),
            ("BF.EXISTS bf a", ":1|"),
            ("BF.EXISTS bf x", ":0|"),
            ("BF.EXISTS nothing x", ":0|"),
            ("BF.MEXISTS bf a x", "*2|:1|:0|"),
            ("BF.CARD bf", ":3|"),
            ("BF.CARD nothing", ":0|"),
            ("BF.RESERVE bf 0.01 10", "-ERR item exists|"),
            ("BF.RESERVE fixed 0.01 2 NONSCALING", "+OK|"),
            ("BF.MADD fixed a b c d", "*3|:1|:1|-ERR non scaling filter is full|"),
            ("BF.ADD fixed a", ":0|"),
            ("BF.ADD fixed z", "-ERR non scaling filter is full|"),
            ("BF.INSERT new CAPACITY 50 ERROR 0.1 ITEMS a b", "*2|:1|:1|"),
            ("BF.INSERT nothing NOCREATE ITEMS a", "-ERR not found|"),
            ("BF.INFO new CAPACITY", "*1|:50|"),
            ("BF.INFO nothing", "-ERR not found|"),
            ("BF.INFO new WHAT", "-Invalid information value|"),
            ("TYPE bf", "+MBbloom--|"),
            ("CF.ADD bf a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("CF.ADD cf a", ":1|"),
            ("CF.ADD cf a", ":1|"),
            ("CF.ADDNX cf a", ":0|"),
            ("CF.COUNT cf a", ":2|"),
            ("CF.DEL cf a", ":1|"),
            ("CF.DEL cf stranger", ":0|"),
            ("CF.DEL nothing a", "-Not found|"),
            ("CF.INSERT cf ITEMS a b", "*2|:1|:1|"),
            ("CF.INSERTNX cf ITEMS a z", "*2|:0|:1|"),
            ("CF.MEXISTS cf a q", "*2|:1|:0|"),
            ("CF.COMPACT cf", "+OK|"),
            ("TYPE cf", "+MBbloomCF|"),
            ("SADD s 1 2 3 3", ":3|"),
            ("SADD s 1", ":0|"),
            ("SISMEMBER s 1", ":1|"),
            ("SMISMEMBER s 1 9", "*2|:1|:0|"),
            ("SCARD s", ":3|"),
            ("SREM s 1 2 9", ":2|"),
            ("TYPE s", "+set|"),
            ("SREM s 3", ":1|"),
            ("EXISTS s bf cf", ":2|"),
            ("BLOOM.UNION all bf new", ":3|"),
            ("BLOOM.RESERVE w WINDOW 60 STEP 10 REPEAT keep", "+OK|"),
            ("BF.ADD w x", ":1|"),
            ("SADD w x", ":0|"),
            (
                "BLOOM.RESERVE v WINDOW 60000 STEP 1",
                "-ERR a window of 60000 s with steps of 1 s \
              has more than 250 steps: take longer steps|",
            ),
            ("DBSIZE", ":6|"),
            ("FLUSHALL", "+OK|"),
            ("DBSIZE", ":0|"),
        ],
    );
}

#[test]
fn filters_answer_in_version_3() {
    let daemon = LiveDaemon::start(&[]);
    let mut wire = daemon.connect();
    let hello = wire.call("HELLO 3");
    let expected = "%7|$6|server|$9|bloomsday|$7|version|$5|7.4.0|$5|proto|:3|$2|id|:1|$4|mode|\
                    $10|standalone|$4|role|$6|master|$7|modules|*1|%4|$4|name|$2|bf|$3|ver|:80200|\
                    $4|path|$0||$4|args|*0|";
    assert_eq!(hello, expected);
    for (line, expected) in [
        ("BF.ADD bf a", "#t|"),
        ("BF.ADD bf a", "#f|"),
        ("BF.MADD bf a b", "*2|#f|#t|"),
        ("BF.INSERT bf ITEMS c", "*1|#t|"),
        ("BF.EXISTS bf a", "#t|"),
        ("BF.MEXISTS bf a x", "*2|#t|#f|"),
        ("BF.CARD bf", ":3|"),
        (
            "BF.INFO bf",
            "%5|+Capacity|:100|+Size|:32768|+Number of filters|:1|\
          +Number of items inserted|:3|+Expansion rate|:2|",
        ),
        ("CF.ADD cf a", "#t|"),
        ("CF.ADDNX cf a", "#f|"),
        ("CF.INSERT cf ITEMS a", "*1|#t|"),
        ("CF.INSERTNX cf ITEMS a z", "*2|:0|:1|"),
        ("CF.EXISTS cf a", "#t|"),
        ("CF.DEL cf a", "#t|"),
        ("SADD s a", ":1|"),
        ("SISMEMBER s a", ":1|"),
        ("CLIENT GETNAME", "_|"),
        ("COMMAND DOCS", "%0|"),
        ("CONFIG GET save", "%1|$4|save|$0||"),
        ("HELLO 4", "-NOPROTO unsupported protocol version|"),
    ] {
        assert_eq!(wire.call(line), expected, "{line}");
    }
}

#[test]
fn errors_are_worded_as_clients_expect_them() {
    let daemon = LiveDaemon::start(&[]);
    let long = "x".repeat(1_025);
    // With its quotes and the space, the first one takes 103 of 128 bytes.
    let (one, rest) = ("x".repeat(100), "x".repeat(25));
    let unknown =
        format!("-ERR unknown command 'FOO', with args beginning with: '{one}' '{rest}' |");
    converse(
        &daemon,
        &[
            ("FOO a b", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b' |"),
            (&format!("FOO {0} {0} a", "x".repeat(100)), &unknown),
            (
                "CONFIG SET maxmemory 1 MAXMEMORY 2",
                "-ERR CONFIG SET failed (possibly related to argument 'MAXMEMORY') - duplicate parameter|",
            ),
            ("FUNCTION FLUSH x", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option|"),
            (
                "FUNCTION FLUSH SYNC SYNC",
                "-ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.|",
            ),
            ("FUNCTION LIST foo", "-ERR Unknown argument foo|"),
            ("FUNCTION LIST LIBRARYNAME", "-ERR library name argument was not given|"),
            ("FUNCTION LIST WITHCODE LIBRARYNAME x", "*0|"),
            ("CLUSTER INFO", "-ERR This instance has cluster support disabled|"),
            ("CONFIG GET DataBases", "*2|$9|DataBases|$2|16|"),
            ("BF.ADD k", "-ERR wrong number of arguments for 'bf.add' command|"),
            ("BF.RESERVE k x 10", "-ERR bad error rate|"),
            ("BF.RESERVE k 1 10", "-ERR error rate must be in the range (0.000000, 1.000000)|"),
            ("BF.RESERVE k 0.1 x", "-ERR bad capacity|"),
            ("BF.RESERVE k 0.1 0", "-ERR capacity must be in the range [1, 1073741824]|"),
            ("BF.RESERVE k 0.1 9 EXPANSION", "-ERR no expansion|"),
            ("BF.RESERVE k 0.1 9 EXPANSION x", "-ERR bad expansion|"),
            (
                "BF.RESERVE k 0.1 9 EXPANSION 32769",
                "-ERR expansion must be in the range [0, 32768]|",
            ),
            ("BF.RESERVE k 0.1 9 NONSCALING EXPANSION 2", "-Nonscaling filters cannot expand|"),
            ("BF.INSERT k ERROR 2 ITEMS a", "-Bad error rate|"),
            ("BF.INSERT k CAPACITY x ITEMS a", "-Bad capacity|"),
            ("BF.INSERT k EXPANSION -1 ITEMS a", "-Bad expansion|"),
            ("BF.INSERT k WHAT 1 ITEMS a", "-Unknown argument received|"),
            ("CF.RESERVE k x", "-Bad capacity|"),
            ("CF.RESERVE k 100 BUCKETSIZE x", "-Couldn't parse BUCKETSIZE|"),
            ("CF.RESERVE k 100 MAXITERATIONS x", "-Couldn't parse MAXITERATIONS|"),
            ("CF.RESERVE k 100 EXPANSION x", "-Couldn't parse EXPANSION|"),
            ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.|"),
            ("SELECT 16", "-ERR DB index is out of range|"),
            ("EXEC", "-ERR EXEC without MULTI|"),
            ("DISCARD", "-ERR DISCARD without MULTI|"),
            (
                "AUTH x",
                "-ERR AUTH <password> called without any password configured for the \
              default user. Are you sure your configuration is correct?|",
            ),
            (
                "FLUSHALL",
                "-ERR FLUSHALL is off on this server, because it deletes every filter: \
                 allow_flush turns it on|",
            ),
            (&format!("BF.ADD k {long}"), "-ERR an item has 1 to 1024 bytes, this one 1025|"),
            ("EXISTS k", ":0|"),
            (
                "WAITAOF 1 0 0",
                "-ERR WAITAOF cannot be used when numlocal is set but appendonly \
              is disabled.|",
            ),
        ],
    );
    let mut wire = daemon.connect();
    wire.send(b"*1\r\n:5\r\n").unwrap();
    assert_eq!(wire.reply().unwrap(), "-ERR Protocol error: expected '$', got ':'|");
    assert!(wire.is_closed());
}

#[test]
fn names_have_databases_types_and_ends() {
    let daemon = LiveDaemon::start(&[]);
    converse(
        &daemon,
        &[
            ("SADD a x", ":1|"),
            ("SELECT 3", "+OK|"),
            ("EXISTS a", ":0|"),
            ("SADD b x", ":1|"),
            ("KEYS *", "*1|$1|b|"),
            ("SCAN 0", "*2|$1|0|*1|$1|b|"),
            ("SCAN 0 MATCH a* COUNT 5 TYPE set", "*2|$1|0|*0|"),
            ("TTL b", ":-1|"),
            ("TTL nothing", ":-2|"),
            ("EXPIRE b 100", ":1|"),
            ("EXPIRE b 200 LT", ":0|"),
            ("TTL b", ":100|"),
            ("PERSIST b", ":1|"),
            ("PERSIST b", ":0|"),
            ("EXPIRE b -1", ":1|"),
            ("EXISTS b", ":0|"),
            ("DEL b", ":0|"),
            ("SELECT 0", "+OK|"),
            ("UNLINK a nothing", ":1|"),
            ("TYPE a", "+none|"),
        ],
    );
    let mut wire = daemon.connect();
    wire.call("SADD brief x");
    wire.call("PEXPIRE brief 30");
    while wire.call("EXISTS brief") == ":1|" {}
    assert_eq!(wire.call("SADD brief x"), ":1|");
}

#[test]
fn a_transaction_runs_in_order_with_one_reply() {
    let daemon = LiveDaemon::start(&[]);
    converse(
        &daemon,
        &[
            ("MULTI", "+OK|"),
            ("SADD s 1", "+QUEUED|"),
            ("MULTI", "-ERR MULTI calls can not be nested|"),
            ("BF.ADD s 1", "+QUEUED|"),
            ("SCARD s", "+QUEUED|"),
            (
                "EXEC",
                "*3|:1|-WRONGTYPE Operation against a key holding the wrong kind of value|:1|",
            ),
            ("MULTI", "+OK|"),
            ("SADD s", "-ERR wrong number of arguments for 'sadd' command|"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ("MULTI", "+OK|"),
            ("SADD s 2", "+QUEUED|"),
            ("DISCARD", "+OK|"),
            ("SCARD s", ":1|"),
            ("MULTI", "+OK|"),
            ("RESET", "+RESET|"),
            ("PING", "+PONG|"),
        ],
    );
}

#[test]
fn a_pipeline_in_any_pieces_is_answered_in_order() {
    let daemon = LiveDaemon::start(&[]);
    let mut wire = daemon.connect();
    let mut bytes = Vec::new();
    for number in 0..2_000 {
        let id = format!("id-{}", number / 2);
        bytes.extend(encode(&[b"SADD", b"s", id.as_bytes()]));
        bytes.extend(encode(&[b"SISMEMBER", b"s", id.as_bytes()]));
    }
    bytes.extend(b"PING \"inline\"\r\n");
    for piece in bytes.chunks(1_237) {
        wire.send(piece).unwrap();
    }
    for number in 0..2_000 {
        assert_eq!(wire.reply().unwrap(), format!(":{}|", 1 - number % 2), "{number}");
        assert_eq!(wire.reply().unwrap(), ":1|", "{number}");
    }
    assert_eq!(wire.reply().unwrap(), "$6|inline|");
}

#[test]
fn past_the_memory_limit_adds_are_refused_and_lookups_go_on() {
    let daemon = LiveDaemon::start(&["--live-memory", "256KiB"]);
    let mut wire = daemon.connect();
    let ids: Vec<String> = (0..100_000).map(|number| format!("id-{number}")).collect();
    let mut replies = Vec::new();
    for some in ids.chunks(1_000) {
        let bytes = some.iter().flat_map(|id| encode(&[b"SADD", b"s", id.as_bytes()]));
        wire.send(&bytes.collect::<Vec<u8>>()).unwrap();
        replies.extend(some.iter().map(|_| wire.reply().unwrap()));
    }
    let full = "-OOM command not allowed when used memory > 'maxmemory'.|";
    let added = replies.iter().filter(|reply| *reply == ":1|").count();
    assert!(added > 10_000 && replies.iter().any(|reply| reply == full), "{added}");
    for (id, reply) in ids.iter().zip(&replies).step_by(100) {
        let there = wire.call(&format!("SISMEMBER s {id}")) == ":1|";
        assert_eq!(there, reply == ":1|", "{id}: {reply}");
    }
    // A transaction does all or nothing. What is deleted is enough for the next one.
    converse(
        &daemon,
        &[
            ("MULTI", "+OK|"),
            ("SREM s id-0", "+QUEUED|"),
            ("SADD s new", full),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ("SISMEMBER s id-0", ":1|"),
            ("MULTI", "+OK|"),
            ("SREM s id-0", "+QUEUED|"),
            ("EXEC", "*1|:1|"),
            ("MULTI", "+OK|"),
            ("SADD s id-0", "+QUEUED|"),
            ("SREM s id-1", "+QUEUED|"),
            ("EXEC", "*2|:1|:1|"),
        ],
    );
    // So is what leaves a window.
    converse(&daemon, &[("DEL s", ":1|"), ("BLOOM.RESERVE w WINDOW 4 STEP 1", "+OK|")]);
    let mut numbers = 0_u32..;
    // If a step ends in between, places are free again.
    until("a transaction is refused", || {
        let mut is_full = false;
        while !is_full {
            let some: Vec<u32> = numbers.by_ref().take(1_000).collect();
            let adds = some.iter().flat_map(|n| encode(&[b"SADD", b"w", n.to_string().as_bytes()]));
            wire.send(&adds.collect::<Vec<u8>>()).unwrap();
            is_full = some.iter().filter(|_| wire.reply().unwrap() == full).count() > 0;
        }
        wire.call("MULTI");
        let is_refused = wire.call("SADD w new") == full;
        wire.call("DISCARD");
        is_refused.then_some(())
    });
    until("the window has passed", || {
        wire.call("MULTI");
        let is_queued = wire.call("SADD w newer") == "+QUEUED|";
        let reply = wire.call(if is_queued { "EXEC" } else { "DISCARD" });
        (reply == "*1|:1|").then_some(())
    });
}

#[test]
fn a_password_is_asked_for_before_anything_else() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "correct horse\n").unwrap();
    let daemon = LiveDaemon::start(&["--live-token-file", file.to_str().unwrap()]);
    let mut wire = daemon.connect();
    for (words, expected) in [
        (vec!["PING"], "-NOAUTH Authentication required.|"),
        (vec!["AUTH", "wrong"], "-WRONGPASS invalid username-password pair or user is disabled.|"),
        (vec!["AUTH", "correct horse"], "+OK|"),
        (vec!["PING"], "+PONG|"),
        (vec!["RESET"], "+RESET|"),
        (vec!["PING"], "-NOAUTH Authentication required.|"),
    ] {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        wire.send(&encode(&bytes)).unwrap();
        assert_eq!(wire.reply().unwrap(), expected, "{words:?}");
    }
    let mut wire = daemon.connect();
    wire.send(b"*11\r\n").unwrap();
    assert_eq!(wire.reply().unwrap(), "-ERR Protocol error: unauthenticated multibulk length|");
    let open = LiveDaemon::try_start(&["--resp", "0.0.0.0:0"]);
    assert!(open.is_none(), "an address for all needs a password");
}

#[test]
fn a_connection_that_makes_and_deletes_filters_uses_up_no_memory() {
    let daemon = LiveDaemon::start(&["--live-memory", "1MiB"]);
    let mut wire = daemon.connect();
    for round in 0..100 {
        assert_eq!(wire.call("BF.RESERVE x 0.01 100"), "+OK|", "round {round}");
        assert_eq!(wire.call("DEL x"), ":1|");
    }
}

#[test]
fn an_idle_connection_keeps_no_memory_of_filters_that_others_deleted() {
    let daemon = LiveDaemon::start(&["--live-memory", "1MiB"]);
    let mut idle = Vec::new();
    // Each takes 32 KiB, and each connection has used many and one last.
    for round in 0..40 {
        let mut wire = daemon.connect();
        for name in ["x", "y"] {
            assert_eq!(wire.call(&format!("BF.ADD {name} a")), ":1|", "round {round}");
            assert_eq!(wire.call(&format!("BF.EXISTS {name} a")), ":1|");
        }
        assert_eq!(daemon.connect().call("DEL x y"), ":2|");
        idle.push(wire);
    }
}

#[test]
fn a_restart_keeps_filters_options_windows_and_ends() {
    for ack in ["synced", "written"] {
        let folder = TempDir::new().unwrap();
        let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
        converse(
            &daemon,
            &[
                ("BF.RESERVE bf 0.001 5000 EXPANSION 4", "+OK|"),
                ("BF.MADD bf a b", "*2|:1|:1|"),
                ("CF.ADD cf a", ":1|"),
                ("CF.ADD cf a", ":1|"),
                ("CF.ADD cf a", ":1|"),
                ("CF.DEL cf a", ":1|"),
                ("SADD s 1 2 3", ":3|"),
                ("SREM s 2", ":1|"),
                ("SADD gone 1", ":1|"),
                ("DEL gone", ":1|"),
                ("EXPIREAT cf 4000000000", ":1|"),
                ("SELECT 5", "+OK|"),
                ("BLOOM.RESERVE w WINDOW 1000 STEP 100", "+OK|"),
                ("SADD w x", ":1|"),
                ("WAITAOF 1 0 0", "*2|:1|:0|"),
                ("WAITAOF 0 0 0", "*2|:1|:0|"),
                ("MULTI", "+OK|"),
                ("WAITAOF 1 0 0", "+QUEUED|"),
                ("EXEC", "*1|*2|:1|:0|"),
            ],
        );
        daemon.kill();
        let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
        converse(
            &daemon,
            &[
                ("BF.MADD bf a b c", "*3|:0|:0|:1|"),
                ("BF.INFO bf CAPACITY", "*1|:5000|"),
                ("BF.INFO bf EXPANSION", "*1|:4|"),
                ("CF.COUNT cf a", ":2|"),
                ("EXPIRETIME cf", ":4000000000|"),
                ("SMISMEMBER s 1 2 3", "*3|:1|:0|:1|"),
                ("EXISTS gone", ":0|"),
                ("SELECT 5", "+OK|"),
                ("SADD w x", ":0|"),
            ],
        );
        let debug = daemon.connect().call("CF.DEBUG cf");
        assert!(debug.contains(" items:2 deletes:1 "), "{debug}");
        // A second process on the same folder would write over the first.
        let folder_name = folder.path().to_str().unwrap();
        assert!(LiveDaemon::try_start(&["--data-dir", folder_name]).is_none());
        assert_eq!(daemon.stop(), 0);
    }
}

/// A union copies an ID with the step in which its source saw it, which is before now.
#[test]
fn what_a_union_added_is_there_after_a_restart_also_in_a_window_that_keeps_the_first_sighting() {
    let folder = TempDir::new().unwrap();
    let daemon = LiveDaemon::on(folder.path(), &[]);
    let mut wire = daemon.connect();
    assert_eq!(wire.call("BLOOM.RESERVE kept WINDOW 4 STEP 1 REPEAT keep"), "+OK|");
    assert_eq!(wire.call("BF.ADD kept x"), ":1|");
    assert_eq!(wire.call("BLOOM.RESERVE source WINDOW 100 STEP 1"), "+OK|");
    // Just before its time is over in the one set, the other one sees it.
    let seen = |wire: &mut Wire| {
        let said = wire.call("BLOOM.WHY kept x");
        let (_, seconds) =
            said.split_once("seen_seconds_ago|:").unwrap_or_else(|| panic!("{said}"));
        seconds.split('|').next().unwrap().parse::<u64>().unwrap()
    };
    until("it is three seconds old", || (seen(&mut wire) >= 3).then_some(()));
    assert_eq!(wire.call("BF.ADD source x"), ":1|");
    until("its time is over", || (wire.call("BF.EXISTS kept x") == ":0|").then_some(()));
    assert_eq!(wire.call("BLOOM.UNION kept source"), ":1|");
    assert_eq!(wire.call("BF.EXISTS kept x"), ":1|");
    daemon.kill();
    let daemon = LiveDaemon::on(folder.path(), &[]);
    assert_eq!(daemon.connect().call("BF.EXISTS kept x"), ":1|");
}

#[test]
fn a_union_keeps_to_the_capacity_of_a_filter_that_does_not_grow() {
    let daemon = LiveDaemon::start(&[]);
    converse(
        &daemon,
        &[
            ("BF.RESERVE small 0.01 2 NONSCALING", "+OK|"),
            ("BF.MADD large a b c", "*3|:1|:1|:1|"),
            ("BLOOM.UNION small large", "-ERR non scaling filter is full|"),
            ("BLOOM.UNION both small large", ":3|"),
            ("BF.CARD small", ":2|"),
            ("BLOOM.RESERVE pages ID URL", "+OK|"),
            ("BLOOM.UNION pages nothing", ":0|"),
            (
                "BLOOM.UNION pages large",
                "-ERR a filter of URLs is united with others of URLs only|",
            ),
            ("BLOOM.RESERVE w WINDOW 10 STEP 11", "-ERR STEP is longer than WINDOW|"),
        ],
    );
}

#[test]
fn plan_says_how_much_memory_live_ids_take() {
    // The memory depends on how full the shards are: from just after they grew to just before.
    for ids in [20_000_u64, 130_000, 200_000] {
        let words = ["plan", "--ids", "1k", "--live", &ids.to_string(), "--sizes-only", "--json"];
        let planned = bloomsday(&words).run().expect(0).json()["live"].clone();
        let daemon = LiveDaemon::start(&[]);
        let mut wire = daemon.connect();
        for first in (0..ids).step_by(10_000) {
            let names: Vec<String> = (first..first + 10_000).map(|n| format!("id-{n}")).collect();
            let reply = wire.call(&format!("BF.MADD seen {}", names.join(" ")));
            assert!(!reply.contains(":0"), "{reply}");
        }
        let used = wire.call("BF.INFO seen SIZE");
        let used: u64 = used.trim_start_matches("*1|:").trim_end_matches('|').parse().unwrap();
        let field = |name: &str| planned[name].as_u64().unwrap();
        // The shards are not all of the same size.
        let range = field("memory_min") * 99 / 100..=field("memory_max") * 101 / 100;
        assert!(range.contains(&used), "{used} bytes for {ids}: {planned}");
    }
}
