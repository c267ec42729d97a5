//! Near duplicates over Redis's protocol: replies byte for byte, two alike at one moment, limits,
//! windows, restarts and
//! `kill -9`; and the program's simhash of files.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bloomsday_tests::campaign::{Campaign, Random, size};
use bloomsday_tests::live::{LiveDaemon, Wire, encode};
use bloomsday_tests::program::bloomsday;
use tempfile::TempDir;

const WRONGTYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[track_caller]
fn converse(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        assert_eq!(wire.call(line), *expected, "{line}");
    }
}

#[test]
fn an_add_answers_nothing_or_the_nearest_neighbour() {
    let daemon = LiveDaemon::start(&[]);
    let mut wire = daemon.connect();
    converse(
        &mut wire,
        &[
            ("SIM.ADD news 00000000000000ff", "$-1|"),
            ("SIM.ADD news 00000000000000FF", "*2|$16|00000000000000ff|:0|"),
            ("sim.add news 8000000000000ff8", "$-1|"),
            // Three bits, one in each of three blocks.
            ("SIM.ADD news 00010001000100ff", "*2|$16|00000000000000ff|:3|"),
            ("SIM.ADD news 00010001000100ff MAX 2", "$-1|"),
            // At a distance of 3 from one and of 1 from the other.
            ("SIM.ADD news 00010001000100fe", "*2|$16|00010001000100ff|:1|"),
            ("SIM.CARD news", ":3|"),
            (
                "SIM.QUERY news 00000001000100ff",
                "*2|*2|$16|00010001000100ff|:1|*2|$16|00000000000000ff|:2|",
            ),
            ("SIM.QUERY news 00000001000100ff COUNT 1", "*1|*2|$16|00010001000100ff|:1|"),
            ("SIM.QUERY news 00000001000100ff MAX 1", "*1|*2|$16|00010001000100ff|:1|"),
            ("SIM.QUERY news ffffffffffffffff", "*0|"),
            ("SIM.QUERY nothing 00000000000000ff", "*0|"),
            ("SIM.CARD nothing", ":0|"),
            ("TYPE news", "+simhash|"),
            ("SIM.RESERVE news", "-ERR item exists|"),
            ("SIM.RESERVE two WINDOW 172800 STEP 17280 CAPACITY 1000", "+OK|"),
            ("DEL news two", ":2|"),
            ("SIM.CARD news", ":0|"),
            ("HELLO 3", &wire_hello(&daemon)),
            ("SIM.ADD news 00000000000000ff", "_|"),
        ],
    );
    let info = wire.call("SIM.INFO news");
    let size = info.split("+Size|:").nth(1).and_then(|rest| rest.split('|').next()).unwrap();
    assert!(size.parse::<u64>().unwrap() > 6 << 20, "{info}");
    let expected = format!(
        "%5|+Capacity|:0|+Size|:{size}|+Number of fingerprints|:1|+Window seconds|_|+Step seconds|_|"
    );
    assert_eq!(info, expected);
}

/// What another connection is answered, but for its number.
fn wire_hello(daemon: &LiveDaemon) -> String {
    daemon.connect().call("HELLO 3").replace("|$2|id|:2|", "|$2|id|:1|")
}

#[test]
fn wrong_requests_have_errors_and_other_families_are_refused() {
    let daemon = LiveDaemon::start(&[]);
    let digits = "-ERR a fingerprint has 16 hex digits, with leading zeros|";
    converse(
        &mut daemon.connect(),
        &[
            ("SIM.ADD k", "-ERR wrong number of arguments for 'sim.add' command|"),
            ("SIM.ADD k ff", digits),
            ("SIM.ADD k +000000000000001", digits),
            ("SIM.QUERY k 0x000000000000ff", digits),
            ("SIM.ADD k 00000000000000ff MAX", "-ERR syntax error|"),
            (
                "SIM.ADD k 00000000000000ff MAX 4",
                "-ERR MAX is 0, 1, 2 or 3: how many bits may differ|",
            ),
            ("SIM.ADD k 00000000000000ff COUNT 4", "-ERR syntax error|"),
            ("SIM.QUERY k 00000000000000ff COUNT 1001", "-ERR COUNT is 1 to 1000|"),
            ("SIM.RESERVE k STEP 5", "-ERR STEP needs WINDOW|"),
            ("SIM.RESERVE k WINDOW", "-ERR syntax error|"),
            (
                "SIM.RESERVE k WINDOW 1000 STEP 1",
                "-ERR a window of 1000 s with steps of 1 s has more than 250 steps: take longer steps|",
            ),
            ("SIM.INFO k", "-ERR not found|"),
            ("EXISTS k", ":0|"),
            ("SIM.ADD k 00000000000000ff", "$-1|"),
            ("BF.ADD k a", WRONGTYPE),
            ("CF.ADD k a", WRONGTYPE),
            ("SADD k a", WRONGTYPE),
            ("SISMEMBER k a", WRONGTYPE),
            ("BLOOM.WHY k a", WRONGTYPE),
            ("BLOOM.UNION other k", WRONGTYPE),
            ("BLOOM.UNION k other", WRONGTYPE),
            ("BF.ADD b a", ":1|"),
            ("BLOOM.RESERVE any", "+OK|"),
            ("SIM.ADD b 00000000000000ff", WRONGTYPE),
            ("SIM.QUERY any 00000000000000ff", WRONGTYPE),
            ("SIM.CARD b", WRONGTYPE),
        ],
    );
}

/// A fingerprint with a few other bits.
fn near(print: u64, random: &mut Random) -> u64 {
    (0..random.below(4)).fold(print, |print, _| print ^ 1 << random.below(64))
}

fn add(key: &str, print: u64) -> Vec<u8> {
    encode(&[b"SIM.ADD", key.as_bytes(), format!("{print:016x}").as_bytes()])
}

#[test]
fn of_two_alike_at_the_same_moment_exactly_one_is_kept() {
    let daemon = LiveDaemon::start(&[]);
    let random = Random::new();
    let stories: Vec<u64> = (0..500).map(|n| random.branch(n).draw()).collect();
    let kept = Mutex::new(vec![0; stories.len()]);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (daemon, stories, kept) = (&daemon, &stories, &kept);
            let mut random = random.branch(1_000 + client);
            scope.spawn(move || {
                let mut wire = daemon.connect();
                for (story, print) in stories.iter().enumerate() {
                    // Two of them differ by at most two bits.
                    let alike = print ^ 1 << random.below(64);
                    wire.send(&add("news", alike)).unwrap();
                    let is_new = wire.reply().unwrap() == "$-1|";
                    kept.lock().unwrap()[story] += u64::from(is_new);
                }
            });
        }
    });
    let kept = kept.into_inner().unwrap();
    assert!(kept.iter().all(|many| *many == 1), "{kept:?}");
    assert_eq!(daemon.connect().call("SIM.CARD news"), format!(":{}|", stories.len()));
}

#[test]
fn past_the_memory_limit_adds_are_refused_and_queries_go_on() {
    let daemon = LiveDaemon::start(&["--live-memory", "7MiB"]);
    let (mut wire, mut random) = (daemon.connect(), Random::new());
    let mut kept = Vec::new();
    loop {
        let print = random.draw();
        wire.send(&add("news", print)).unwrap();
        match wire.reply().unwrap().as_str() {
            "$-1|" => kept.push(print),
            reply => break assert!(reply.starts_with("-OOM "), "{reply}"),
        }
    }
    assert!(kept.len() > 100, "{} fitted", kept.len());
    // One that is near is answered, because it takes nothing.
    let print = kept[50];
    wire.send(&add("news", print ^ 1)).unwrap();
    assert_eq!(wire.reply().unwrap(), format!("*2|$16|{print:016x}|:1|"));
    assert_eq!(wire.call("SIM.CARD news"), format!(":{}|", kept.len()));
    assert_eq!(
        wire.call("SIM.ADD more 0000000000000001"),
        "-OOM command not allowed when used memory > 'maxmemory'.|"
    );
    assert_eq!(wire.call("DEL news"), ":1|");
    assert_eq!(wire.call("SIM.ADD more 0000000000000001"), "$-1|");
}

#[test]
fn a_window_ends_and_a_restart_keeps_it() {
    let folder = TempDir::new().unwrap();
    let first = LiveDaemon::on(folder.path(), &[]);
    converse(
        &mut first.connect(),
        &[
            ("SIM.RESERVE short WINDOW 1 STEP 1", "+OK|"),
            ("SIM.RESERVE long WINDOW 172800", "+OK|"),
            ("SIM.ADD short 00000000000000ff", "$-1|"),
            ("SIM.ADD long 00000000000000ff", "$-1|"),
        ],
    );
    first.kill();
    let second = LiveDaemon::on(folder.path(), &[]);
    let (mut wire, began) = (second.connect(), Instant::now());
    while wire.call("SIM.QUERY short 00000000000000ff") != "*0|" {
        assert!(began.elapsed() < Duration::from_secs(60), "the window does not end");
    }
    converse(
        &mut wire,
        &[
            ("SIM.ADD long 01000000000000ff", "*2|$16|00000000000000ff|:1|"),
            ("SIM.CARD short", ":0|"),
            ("SIM.ADD short 00000000000000fe", "$-1|"),
        ],
    );
    assert!(wire.call("SIM.INFO long").ends_with("Window seconds|:172800|+Step seconds|:17280|"));
}

/// What clients were answered.
#[derive(Default)]
struct Answers {
    kept: BTreeSet<u64>,
    /// Sent, and not answered: each may be kept or not.
    unknown: BTreeSet<u64>,
}

fn add_until_killed(
    daemon: &LiveDaemon,
    random: &mut Random,
    stories: &[u64],
    answers: &Mutex<Answers>,
) {
    // It may be killed before it accepts one.
    let Ok(mut wire) = Wire::try_connect(&daemon.address) else { return };
    loop {
        let depth = 1 << random.below(7);
        let story = |random: &mut Random| stories[random.below(stories.len() as u64) as usize];
        let prints: Vec<u64> = (0..depth)
            .map(|_| {
                let print = story(random);
                near(print, random)
            })
            .collect();
        let bytes: Vec<u8> = prints.iter().flat_map(|print| add("news", *print)).collect();
        let mut answered = 0;
        if wire.send(&bytes).is_ok() {
            for print in &prints {
                match wire.reply() {
                    Ok(reply) if reply == "$-1|" => {
                        answers.lock().unwrap().kept.insert(*print);
                    }
                    Ok(reply) if reply.starts_with("*2|$16|") => {}
                    Ok(reply) => panic!("an add was answered {reply}"),
                    Err(_) => break,
                }
                answered += 1;
            }
        }
        if answered < prints.len() {
            answers.lock().unwrap().unknown.extend(&prints[answered..]);
            return;
        }
    }
}

/// Whether every fingerprint that was kept is there, and no two of them are near.
fn check(daemon: &LiveDaemon, answers: &Answers, round: u64) {
    let mut wire = daemon.connect();
    let mut there = BTreeSet::new();
    for print in answers.kept.iter().chain(&answers.unknown) {
        let reply = wire.call(&format!("SIM.QUERY news {print:016x} MAX 0"));
        let is_there = reply == format!("*1|*2|$16|{print:016x}|:0|");
        assert!(is_there || reply == "*0|", "{reply}");
        let is_known = answers.kept.contains(print);
        assert!(is_there || !is_known, "{print:016x} is lost after kill {round}");
        there.extend(is_there.then_some(*print));
    }
    for print in &there {
        let reply = wire.call(&format!("SIM.QUERY news {print:016x}"));
        assert_eq!(reply, format!("*1|*2|$16|{print:016x}|:0|"), "two near ones are kept");
    }
    assert_eq!(wire.call("SIM.CARD news"), format!(":{}|", there.len()));
}

#[test]
fn kill_9_at_random_times_loses_no_kept_fingerprint_and_keeps_no_two_near_ones() {
    for ack in ["synced", "written"] {
        let (clock, kills) = (Campaign::new(&format!("kill -9, SIM.ADD, {ack}")), size(8, 200));
        let (folder, random) = (TempDir::new().unwrap(), Random::new());
        let answers = Mutex::new(Answers::default());
        for round in 0..=kills {
            let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
            check(&daemon, &answers.lock().unwrap(), round);
            if round == kills {
                break;
            }
            let stories: Vec<u64> =
                (0..300).map(|n| random.branch(round << 32 | n).draw()).collect();
            std::thread::scope(|scope| {
                for client in 0..4 {
                    let (daemon, stories, answers) = (&daemon, &stories, &answers);
                    let mut random = random.branch(1 << 60 | round << 8 | client);
                    scope.spawn(move || add_until_killed(daemon, &mut random, stories, answers));
                }
                // At a random time, which is what the test is about.
                let wait = random.branch(u64::MAX - round).below(40_000);
                std::thread::sleep(Duration::from_micros(wait));
                let id = daemon.id().to_string();
                let killed = std::process::Command::new("kill").args(["-9", &id]).status().unwrap();
                assert!(killed.success());
            });
        }
        let kept = answers.into_inner().unwrap().kept.len();
        assert!(kept as u64 > kills, "{kept} fingerprints were kept");
        clock.passed(&format!("{kills} kills, 4 clients"), "no kept fingerprint lost, none twice");
    }
}

#[test]
fn the_program_prints_the_simhash_of_files_and_of_stdin() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let fox = "The quick brown fox jumps over the lazy dog";
    let english = write("english.txt", fox.as_bytes());
    let chinese = write("chinese.txt", "敏捷的棕色狐狸跳过了懒狗。\n".as_bytes());
    let bad = write("bad.txt", b"abc \xff");
    let empty = write("empty.txt", b"--\n");
    let run = bloomsday(&["simhash", &english, &chinese]).run().expect(0);
    assert_eq!(run.stdout, format!("6dc0c8020c2a40ba  {english}\n39f22928fcf751e9  {chinese}\n"));
    let run = bloomsday(&["simhash"]).stdin(fox.to_uppercase().as_bytes()).run().expect(0);
    assert_eq!(run.stdout, "6dc0c8020c2a40ba\n");
    let run = bloomsday(&["simhash", "--json", &english]).run().expect(0);
    let object: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(object["simhash"], "6dc0c8020c2a40ba");
    assert_eq!(object["file"], english.as_str());
    let nowhere = folder.path().join("nowhere").display().to_string();
    let run = bloomsday(&["simhash", &bad, &empty, &nowhere, &english]).run().expect(1);
    assert_eq!(run.stdout, format!("6dc0c8020c2a40ba  {english}\n"));
    run.complains(&["not UTF-8 at byte 4", "iconv", "no letter and no digit", "nowhere"]);
}
