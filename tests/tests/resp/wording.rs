//! Every error text and limit that clients and their suites look for; and where Redis has the same
//! command, a real one says the same, in both versions.

use bloomsday_tests::live::{LiveDaemon, Wire, encode};
use bloomsday_tests::redis::Redis;
use tempfile::TempDir;

/// Requests that a real Redis answers with the same bytes. Each version begins with an empty
/// database.
const SHARED: &str = "\
sadd s a b|sadd s|sadd s a c|scard s|scard|scard nothing|sismember s a|sismember s|sismember nothing a
smismember s a z|smismember nothing a z|smismember s|srem s a z|srem s|srem nothing a|type s|type nothing|type
exists s s nothing|exists|del nothing|del|unlink nothing|expire s 100|expire s abc|expire s|expire s 10 FOO
expire s 10 NX XX|expire s 10 GT LT|expire s 10 NX GT|expire s abc NX XX|expire nothing 10 FOO|expire s 10 NX
expire s 200 GT|expire s 10 LT|expire s 10 XX|expire nothing 10|expire s 9223372036854775807
pexpire s 9223372036854775807|expire s -9223372036854775808|sadd s a|expireat s 4000000000|expiretime s
pexpiretime s|expiretime nothing|ttl s x|persist s|persist s|persist nothing|ttl s|ttl nothing|pttl s|pttl nothing
ping|ping a|ping a b|echo|echo a|echo a b|select abc|select 1.5|select 99|select -1|select|hello 1|hello x
hello 3 auth|hello 3 FOO|hello 2 AUTH a|auth a b c|auth a b|auth a|auth|client|client foo|client id a
client getname|client getname a|client setname|client setname conn|client getname|client no-evict maybe
client no-evict on|config|config foo|config get|config get maxmemory-policy|config get nothing|command count foo
command foo|command info nothing|command list foo|wait a b|wait 0 a|wait 0 -1|wait 0 0|wait|scan abc
scan 0 count 0|scan 0 count a|scan 0 foo|scan 0 match|scan|keys|keys a b|keys zz*|dbsize|dbsize a|flushdb foo
multi|multi|sadd|exec|exec|discard|multi|sadd s x|scard s|foo|exec|multi|sadd s x|scard s|exec|multi|discard
expire s 007|expire s -0|pexpire s 00|hello 02|select -0|select 9223372036854775000|select -9999999999
scan 0 count a foo|scan 0 count 5 match|memory usage|memory foo|memory usage nothing|memory usage nothing samples
memory usage nothing samples -1|memory usage nothing samples 5 samples 7|memory usage nothing samples x x
memory usage nothing foo 1|readonly|readwrite|touch s nothing|touch|randomkey a|randomkey|acl|acl foo|acl whoami
acl whoami a|client getredir|client getredir a|client list type x|client list type pubsub|client list type
client list id|client list id 0|client list id x|client list foo|client trackinginfo|config set a|config set a b c
config set foo bar|config set databases 5|config resetstat|config resetstat a|config rewrite|config rewrite a
module list a|module foo a|command getkeys sadd a b|command getkeys del a b|command getkeys foo a
command getkeys sadd a|command getkeys ping a|command getkeys|command list filterby pattern smism*
command list filterby|command list filterby module nosuch|command list filterby foo x|multi|client foo|exec
multi|client id a|exec|multi|exec a|exec|exec a|multi|config|exec|multi|memory usage|exec|multi|command getkeys|exec
hello 3 auth default x foo|hello 3 setname é foo|client reply|client reply on|client reply foo|client tracking
client tracking foo|client tracking off|client caching|client caching yes|client caching maybe|client unblock
client unblock x|client unblock 1|client unblock 1 error|client unblock 1 foo|client unpause|unwatch|unwatch a
multi|unwatch|exec
time a|role a|role|reset a|readonly a|foo|foo a b|FOO BAR|module|module foo|info nothing";

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn shared_commands_are_answered_as_by_redis() {
    let (daemon, redis) = (LiveDaemon::start(&[]), Redis::start());
    let theirs = redis.address().replace("redis://", "");
    let mut others = Vec::new();
    for version in ["2", "3"] {
        let (mut a, mut b) = (daemon.connect(), Wire::connect(&theirs));
        for wire in [&mut a, &mut b] {
            let hello = wire.call(&format!("HELLO {version}"));
            assert!(hello.starts_with(['*', '%']), "{hello}");
            // A database of its own, which both have.
            assert_eq!(wire.call(&format!("SELECT {version}")), "+OK|");
        }
        for line in SHARED.split(['|', '\n']) {
            let (ours, theirs) = (a.call(line), b.call(line));
            if ours != theirs {
                others.push(format!("{version} {line}\n  ours  {ours}\n  redis {theirs}"));
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// Sends each command, and compares its replies in both versions.
#[track_caller]
fn both(daemon: &LiveDaemon, lines: &[(&str, &str, &str)]) {
    for version in [2, 3] {
        let mut wire = daemon.connect();
        wire.call(&format!("HELLO {version}"));
        wire.call(&format!("SELECT {version}"));
        for (line, second, third) in lines {
            let expected = if version == 2 { second } else { third };
            assert_eq!(wire.call(line), *expected, "version {version}: {line}");
        }
    }
}

const WRONGTYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
const BF_EXPANSION: &str = "-ERR expansion must be in the range [0, 32768]|";
const RANGE: &str = "-ERR error rate must be in the range (0.000000, 1.000000)|";
const INSERT_ARGUMENTS: &str = "-ERR wrong number of arguments for 'bf.insert' command|";
const CF_CAPACITY: &str = "-Capacity must be in the range [2 * BUCKETSIZE, 1073741824]|";
const CF_INSERT_CAPACITY: &str = "-Capacity must be in the range [cf-bucket-size * 2, 1073741824]|";
const CF_BUCKETSIZE: &str = "-BUCKETSIZE: value must be in the range [1, 255]|";
const CF_MAXITERATIONS: &str = "-MAXITERATIONS: value must be in the range [1, 65535]|";
const CF_EXPANSION: &str = "-EXPANSION: value must be in the range [0, 32768]|";
const CAPACITY: &str = "-ERR capacity must be in the range [1, 1073741824]|";

#[test]
fn filters_and_cuckoo_filters_reply_as_redisbloom() {
    let daemon = LiveDaemon::start(&[]);
    let same: Vec<(&str, &str, &str)> = [
        ("BF.RESERVE bf x 9", "-ERR bad error rate|"),
        ("BF.RESERVE bf 0 9", RANGE),
        ("BF.RESERVE bf 1 9", RANGE),
        ("BF.RESERVE bf -0.5 9", RANGE),
        ("BF.RESERVE bf 0.1 x", "-ERR bad capacity|"),
        ("BF.RESERVE bf 0.1 1.5", "-ERR bad capacity|"),
        ("BF.RESERVE bf 0.1 0", CAPACITY),
        ("BF.RESERVE bf 0.1 -1", CAPACITY),
        ("BF.RESERVE bf 0.1 1073741825", CAPACITY),
        ("BF.RESERVE bf 0.1 9 EXPANSION", "-ERR no expansion|"),
        ("BF.RESERVE bf 0.1 9 EXPANSION x", "-ERR bad expansion|"),
        ("BF.RESERVE bf 0.1 9 EXPANSION 32769", BF_EXPANSION),
        ("BF.RESERVE bf 0.1 9 EXPANSION -1", BF_EXPANSION),
        ("BF.RESERVE bf 0.1 9 EXPANSION 2 NONSCALING", "-Nonscaling filters cannot expand|"),
        ("BF.RESERVE bf 0.1 9 NONSCALING EXPANSION -1", "-Nonscaling filters cannot expand|"),
        ("BF.RESERVE bf 0.1 9 WHAT", "-ERR syntax error|"),
        ("BF.RESERVE bf 0.1 9", "+OK|"),
        ("BF.RESERVE bf 0.1 9", "-ERR item exists|"),
        ("BF.INSERT new ERROR 2 ITEMS a", "-Bad error rate|"),
        ("BF.INSERT new CAPACITY x ITEMS a", "-Bad capacity|"),
        ("BF.INSERT new CAPACITY 0 ITEMS a", "-Bad capacity|"),
        ("BF.INSERT new EXPANSION x ITEMS a", "-Bad expansion|"),
        ("BF.INSERT new WHAT 1 ITEMS a", "-Unknown argument received|"),
        ("BF.RESERVE bf nan 9", "-ERR bad error rate|"),
        (
            "BF.RESERVE other 0.1 9 EXPANSION 2 a b",
            "-ERR wrong number of arguments for 'bf.reserve' command|",
        ),
        ("BF.INSERT new a CAPACITY", "-Unknown argument received|"),
        ("BF.INSERT new NOCREATE CAPACITY", INSERT_ARGUMENTS),
        ("BF.INSERT new NOCREATE ITEMS a", "-ERR not found|"),
        ("BF.INSERT new ITEMS", INSERT_ARGUMENTS),
        ("BF.ADD bf a b", "-ERR wrong number of arguments for 'bf.add' command|"),
        ("BF.EXISTS bf", "-ERR wrong number of arguments for 'bf.exists' command|"),
        ("BF.INFO nothing", "-ERR not found|"),
        ("BF.INFO bf WHAT", "-Invalid information value|"),
        ("BF.CARD nothing", ":0|"),
        ("CF.RESERVE cf x", "-Bad capacity|"),
        ("CF.RESERVE cf 0", CF_CAPACITY),
        ("CF.RESERVE cf -1", CF_CAPACITY),
        ("CF.RESERVE cf 9 BUCKETSIZE 5", CF_CAPACITY),
        ("CF.RESERVE cf 1073741825", CF_CAPACITY),
        ("CF.RESERVE cf 9 BUCKETSIZE x", "-Couldn't parse BUCKETSIZE|"),
        ("CF.RESERVE cf 9 BUCKETSIZE x MAXITERATIONS y", "-Couldn't parse MAXITERATIONS|"),
        // The second one would be refused: 9 is less than two buckets.
        ("CF.RESERVE twice 9 BUCKETSIZE 2 BUCKETSIZE 5", "+OK|"),
        ("CF.RESERVE cf 9 BUCKETSIZE 0", CF_BUCKETSIZE),
        ("CF.RESERVE cf 9 BUCKETSIZE 256", CF_BUCKETSIZE),
        ("CF.RESERVE cf 9 MAXITERATIONS x", "-Couldn't parse MAXITERATIONS|"),
        ("CF.RESERVE cf 9 MAXITERATIONS 0", CF_MAXITERATIONS),
        ("CF.RESERVE cf 9 MAXITERATIONS 65536", CF_MAXITERATIONS),
        ("CF.RESERVE cf 9 EXPANSION x", "-Couldn't parse EXPANSION|"),
        ("CF.RESERVE cf 9 EXPANSION 32769", CF_EXPANSION),
        ("CF.RESERVE cf 9 EXPANSION", "-ERR wrong number of arguments for 'cf.reserve' command|"),
        ("CF.RESERVE cf 4 EXPANSION 0", "+OK|"),
        ("CF.RESERVE cf 4", "-ERR item exists|"),
        ("CF.DEL nothing a", "-Not found|"),
        ("CF.INFO nothing", "-ERR not found|"),
        ("CF.COUNT nothing a", ":0|"),
        ("CF.INSERT nothing NOCREATE ITEMS a", "-ERR not found|"),
        ("CF.INSERT nothing CAPACITY x ITEMS a", "-Bad capacity|"),
        ("CF.INSERT nothing CAPACITY 3 ITEMS a", CF_INSERT_CAPACITY),
        ("CF.INSERT nothing ITEMS", "-ERR wrong number of arguments for 'cf.insert' command|"),
        ("CF.COMPACT nothing", "-Cuckoo filter was not found|"),
        ("BF.ADD cf a", WRONGTYPE),
        ("CF.ADD bf a", WRONGTYPE),
        ("CF.RESERVE bf 9", WRONGTYPE),
        ("BF.RESERVE cf 0.1 9", WRONGTYPE),
        // In a filter of another kind they find nothing.
        ("CF.COUNT bf a", ":0|"),
        ("CF.DEL bf a", "-Not found|"),
        ("CF.COMPACT bf", "-Cuckoo filter was not found|"),
        ("BF.CARD cf", WRONGTYPE),
        ("SADD bf a", WRONGTYPE),
    ]
    .map(|(line, reply)| (line, reply, reply))
    .into();
    both(&daemon, &same);
    both(
        &daemon,
        &[
            ("CF.INSERT cf ITEMS a b c d e", "*5|:1|:1|:1|:1|:-1|", "*5|#t|#t|#t|#t|#f|"),
            ("CF.INSERTNX cf ITEMS a z", "*2|:0|:-1|", "*2|:0|:-1|"),
            ("CF.ADD cf z", "-Filter is full|", "-Filter is full|"),
            ("CF.ADDNX cf a", ":0|", "#f|"),
            ("CF.COUNT cf a", ":1|", ":1|"),
            ("CF.DEL cf a", ":1|", "#t|"),
            ("CF.DEL cf a", ":0|", "#f|"),
            ("CF.MEXISTS cf a b", "*2|:0|:1|", "*2|#f|#t|"),
            ("CF.COMPACT cf", "+OK|", "+OK|"),
            // As in RedisBloom it is rounded up to a power of two.
            ("CF.RESERVE three 100 EXPANSION 3", "+OK|", "+OK|"),
            (
                "CF.DEBUG three",
                "$78|bktsize:2 buckets:64 items:0 deletes:0 filters:1 max_iterations:20 expansion:4|",
                "$78|bktsize:2 buckets:64 items:0 deletes:0 filters:1 max_iterations:20 expansion:4|",
            ),
            ("BF.MEXISTS cf a b", "*2|:0|:0|", "*2|#f|#f|"),
            ("CF.EXISTS bf a", ":0|", "#f|"),
            ("BF.INSERT both NONSCALING EXPANSION 2 ITEMS a", "*1|:1|", "*1|#t|"),
            ("MEMORY USAGE cf", ":32768|", ":32768|"),
            ("MEMORY USAGE cf SAMPLES 5", ":32768|", ":32768|"),
            ("MEMORY USAGE nothing", "$-1|", "_|"),
            (
                "CONFIG GET bf-initial-size",
                "*2|$15|bf-initial-size|$3|100|",
                "%1|$15|bf-initial-size|$3|100|",
            ),
            ("BF.MADD bf a a", "*2|:1|:0|", "*2|#t|#f|"),
            ("BF.MEXISTS bf a x", "*2|:1|:0|", "*2|#t|#f|"),
            ("BF.INFO bf CAPACITY", "*1|:9|", "%1|+Capacity|:9|"),
            (
                "BF.INSERT fixed CAPACITY 2 NONSCALING ITEMS a b c d",
                "*3|:1|:1|-ERR non scaling filter is full|",
                "*3|#t|#t|-ERR non scaling filter is full|",
            ),
            ("BF.INFO fixed EXPANSION", "*1|$-1|", "%1|+Expansion rate|_|"),
            (
                "WAITAOF 0 x 0",
                "-ERR value is out of range, must be positive|",
                "-ERR value is out of range, must be positive|",
            ),
            (
                "WAITAOF 2 x 0",
                "-ERR value is out of range, value must between 0 and 1|",
                "-ERR value is out of range, value must between 0 and 1|",
            ),
            (
                "WAITAOF 2 0 0",
                "-ERR value is out of range, value must between 0 and 1|",
                "-ERR value is out of range, value must between 0 and 1|",
            ),
        ],
    );
}

#[test]
fn a_client_sees_the_others_and_ends_them() {
    let daemon = LiveDaemon::start(&[]);
    let (mut a, mut b) = (daemon.connect(), daemon.connect());
    assert_eq!(a.call("CLIENT SETNAME killer"), "+OK|");
    assert_eq!(b.call("HELLO 3 SETNAME victim").chars().next(), Some('%'));
    assert_eq!(b.call("SELECT 7"), "+OK|");
    let list = a.call("CLIENT LIST");
    assert!(list.contains("name=killer") && list.contains("name=victim"), "{list}");
    let id = b.call("CLIENT ID")[1..].trim_end_matches('|').to_owned();
    let one = a.call(&format!("CLIENT LIST ID {id} 999999"));
    assert!(one.contains("name=victim") && !one.contains("name=killer"), "{one}");
    assert!(one.contains(" db=7 ") && one.contains(" resp=3"), "{one}");
    assert!(one.contains(" idle=0 ") && one.contains(" cmd=NULL "), "{one}");
    let own = a.call("CLIENT INFO");
    assert!(own.contains(" qbuf=26 ") && own.contains(" cmd=client|info "), "{own}");
    assert!(one.contains(" qbuf=0 "), "{one}");
    assert!(a.call("CLIENT REPLY OFF").starts_with("-ERR CLIENT REPLY OFF and SKIP are not"));
    assert!(a.call("CLIENT TRACKING ON").starts_with("-ERR CLIENT TRACKING ON is not supported"));
    for (line, reply) in [
        ("CLIENT TRACKING ON foo", "-ERR syntax error|"),
        ("CLIENT TRACKING ON BCAST PREFIX", "-ERR syntax error|"),
        ("CLIENT TRACKING OFF OPTOUT", "+OK|"),
    ] {
        assert_eq!(a.call(line), reply, "{line}");
    }
    b.call("MULTI");
    b.call("PING");
    let one = a.call(&format!("CLIENT LIST ID {id}"));
    assert!(one.contains(" flags=x ") && one.contains(" multi=1 "), "{one}");
    b.call("EXEC");
    let one = a.call(&format!("CLIENT LIST ID {id}"));
    assert!(one.contains(" flags=N ") && one.contains(" multi=-1 "), "{one}");
    let long = format!("CLIENT SETNAME {}", "x".repeat(257));
    assert_eq!(a.call(&long), "-ERR Client names have at most 256 bytes|");
    for (command, flags) in [
        ("sadd", "|*3|+write|+denyoom|+fast|"),
        ("del", "|*1|+write|"),
        ("scan", "|*1|+readonly|"),
        ("flushall", "|*1|+write|"),
        ("bf.add", "|*3|+write|+denyoom|+module|"),
        ("bf.exists", "|*3|+readonly|+module|+fast|"),
        ("auth", "|*4|+loading|+stale|+fast|+no_auth|"),
        ("exec", "|*2|+loading|+stale|"),
        ("config", "|*0|"),
    ] {
        let described = a.call(&format!("COMMAND INFO {command}"));
        assert!(described.contains(flags), "{described}");
    }
    let described = a.call("COMMAND INFO client|id client|foo foo|id");
    assert!(described.starts_with("*3|*10|$9|client|id|") && described.ends_with("|$-1|$-1|"));
    for (line, reply) in [
        ("CLIENT KILL 127.0.0.1:1", "-ERR No such client|"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0|"),
        ("CLIENT KILL USER nobody", "-ERR No such user 'nobody'|"),
        ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'|"),
        ("CLIENT KILL FOO 1", "-ERR syntax error|"),
        ("CLIENT KILL ID", "-ERR No such client|"),
        ("CLIENT KILL TYPE pubsub", ":0|"),
        ("CLIENT KILL MAXAGE 1000000", ":0|"),
        ("CLIENT KILL LADDR 127.0.0.1:1", ":0|"),
    ] {
        assert_eq!(a.call(line), reply, "{line}");
    }
    assert_eq!(b.call("PING"), "+PONG|");
    assert_eq!(a.call(&format!("CLIENT KILL ID {id} TYPE normal")), ":1|");
    assert!(b.is_closed());
    assert!(!a.call("CLIENT LIST").contains("name=victim"));
    assert_eq!(a.call(&format!("CLIENT KILL ID {id}")), ":0|");
    // Itself only when it is meant.
    assert_eq!(a.call("CLIENT KILL USER default"), ":0|");
    assert_eq!(a.call("CLIENT KILL SKIPME no"), ":1|");
    assert!(a.is_closed());
}

/// What one connection is answered to bytes that are no request, before it is closed.
fn refused(daemon: &LiveDaemon, bytes: &[u8]) -> String {
    let mut wire = daemon.connect();
    wire.send(bytes).unwrap();
    let reply = wire.reply().unwrap();
    assert!(wire.is_closed(), "{reply}");
    reply
}

#[test]
fn limits_are_errors_with_their_numbers() {
    let daemon = LiveDaemon::start(&[]);
    assert_eq!(refused(&daemon, b"*1048577\r\n"), "-ERR Protocol error: invalid multibulk length|");
    assert_eq!(
        refused(&daemon, b"*1\r\n$67108865\r\n"),
        "-ERR Protocol error: invalid bulk length|"
    );
    assert_eq!(refused(&daemon, b"*1\r\n$-2\r\n"), "-ERR Protocol error: invalid bulk length|");
    assert_eq!(refused(&daemon, b"*x\r\n"), "-ERR Protocol error: invalid multibulk length|");
    assert_eq!(
        refused(&daemon, b"ping \"a\r\n"),
        "-ERR Protocol error: unbalanced quotes in request|"
    );
    assert_eq!(refused(&daemon, &[b'a'; 70_000]), "-ERR Protocol error: too big inline request|");
    // The longest ID and name, and one byte more.
    let (longest, longer) = ("x".repeat(1_024), "x".repeat(1_025));
    let mut wire = daemon.connect();
    let id = "-ERR an item has 1 to 1024 bytes, this one 1025|";
    for command in ["BF.ADD", "CF.ADD", "SADD", "BF.MADD", "CF.ADDNX"] {
        let key = format!("{}-{}", &command[..2], command.len());
        assert!(!wire.call(&format!("{command} {key} {longest}")).starts_with('-'), "{command}");
        assert_eq!(wire.call(&format!("{command} {key} {longer}")), id, "{command}");
    }
    // What cannot be added is not there, and that is no error.
    assert_eq!(wire.call(&format!("BF.EXISTS BF-6 {longer}")), ":0|");
    assert_eq!(wire.call(&format!("SADD {longest} a")), ":1|");
    let key = "-ERR a key has at most 1024 bytes, this one 1025|";
    assert_eq!(wire.call(&format!("SADD {longer} a")), key);
    // One command more than a transaction has.
    wire.call("MULTI");
    let many: Vec<u8> = (0..=16_384).flat_map(|_| encode(&[b"PING"])).collect();
    wire.send(&many).unwrap();
    let replies: Vec<String> = (0..=16_384).map(|_| wire.reply().unwrap()).collect();
    assert!(replies[..16_384].iter().all(|reply| reply == "+QUEUED|"));
    assert_eq!(replies[16_384], "-ERR a transaction has at most 16384 commands|");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
    assert_eq!(wire.call("EXEC"), aborted);
    // What a transaction takes is more than the bytes of its words.
    wire.call("MULTI");
    let empty = vec![&b""[..]; 1_000_000];
    let many = encode(&[&[&b"EXISTS"[..]][..], &empty].concat());
    wire.send(&many).unwrap();
    assert_eq!(wire.reply().unwrap(), "+QUEUED|");
    wire.send(&many).unwrap();
    assert_eq!(wire.reply().unwrap(), "-ERR a transaction takes at most 67108864 bytes|");
    assert_eq!(wire.call("EXEC"), aborted);
    // A reply that is too long, and a transaction of such ones.
    let names = vec![&b"client"[..]; 200_000];
    wire.send(&encode(&[&[&b"COMMAND"[..], b"INFO"][..], &names].concat())).unwrap();
    let long = "-ERR a reply has at most 67108864 bytes: ask for less at once|";
    assert_eq!(wire.reply().unwrap(), long);
    // A pattern has as many bytes as a name.
    let pattern = "-ERR a pattern has at most 1024 bytes, this one 1025|";
    for command in ["KEYS", "SCAN 0 MATCH", "CONFIG GET", "COMMAND LIST FILTERBY PATTERN"] {
        assert_eq!(wire.call(&format!("{command} {longer}")), pattern, "{command}");
    }
    assert_eq!(wire.call(&format!("KEYS {longest}")), format!("*1|$1024|{longest}|"));
    // One filter more than there may be; some are there already.
    let there: usize = wire.call("DBSIZE")[1..].trim_end_matches('|').parse().unwrap();
    for number in there..512 {
        assert_eq!(wire.call(&format!("SADD more-{number} a")), ":1|");
    }
    let full = "-ERR there are 512 filters, which is the most: delete one|";
    assert_eq!(wire.call("SADD one-more a"), full);
    assert_eq!(wire.call("CF.RESERVE one-more 100"), full);
    drop(wire);
    // One connection more than there may be.
    let mut wires: Vec<Wire> = (0..1_024).map(|_| daemon.connect()).collect();
    assert_eq!(wires[1_023].call("PING"), "+PONG|");
    let mut last = daemon.connect();
    assert_eq!(last.reply().unwrap(), "-ERR max number of clients reached|");
}

#[test]
fn what_does_not_fit_into_memory_is_an_error_and_everything_else_goes_on() {
    let folder = TempDir::new().unwrap();
    let daemon = LiveDaemon::on(folder.path(), &["--live-memory", "256KiB"]);
    let mut wire = daemon.connect();
    let small = "-ERR Insufficient memory to create filter|";
    // A filter is made small and grows: what it is to hold is not taken in advance past the limit.
    for number in 0..16 {
        let made = wire.call(&format!("BF.RESERVE bf-{number} 0.01 100"));
        assert!(made == "+OK|" || made == small, "{made}");
    }
    assert_eq!(wire.call("BF.RESERVE more 0.01 100"), small);
    assert_eq!(
        wire.call("SADD more a"),
        "-OOM command not allowed when used memory > 'maxmemory'.|"
    );
    assert_eq!(wire.call("SCARD more"), ":0|");
}
