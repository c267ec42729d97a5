//! `kill -9` of a daemon while clients add: every ID whose add was answered is there after the
//! restart, and none is answered "new" twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use bloomsday_tests::campaign::{Campaign, Random, size};
use bloomsday_tests::live::{LiveDaemon, Wire, encode};
use tempfile::TempDir;

/// Clients that add at the same time.
const CLIENTS: u64 = 4;
/// How many filters they add to.
const FILTERS: u64 = 3;

/// What clients were answered.
#[derive(Default)]
struct Answers {
    /// The IDs whose add was answered, and how often with "new".
    added: BTreeMap<(u64, u64), u32>,
    /// The IDs whose add was sent, and not answered.
    unknown: BTreeSet<(u64, u64)>,
}

fn words(filter: u64, id: u64) -> Vec<u8> {
    encode(&[b"BF.ADD", format!("f{filter}").as_bytes(), format!("id-{id}").as_bytes()])
}

/// Adds until the daemon is killed.
fn add_until_killed(
    daemon: &LiveDaemon,
    random: &mut Random,
    round: u64,
    answers: &Mutex<Answers>,
) {
    // It may be killed before it accepts one.
    let Ok(mut wire) = Wire::try_connect(&daemon.address) else { return };
    loop {
        let depth = 1 << random.below(8);
        // Mostly new IDs, some that others add at the same time, some from before.
        let ids: Vec<(u64, u64)> = (0..depth)
            .map(|_| (random.below(FILTERS), round * 1_000 + random.below(3_000)))
            .collect();
        let bytes: Vec<u8> = ids.iter().flat_map(|(filter, id)| words(*filter, *id)).collect();
        let mut answered = 0;
        if wire.send(&bytes).is_ok() {
            for entry in &ids {
                match wire.reply() {
                    Ok(reply) if reply == ":1|" || reply == ":0|" => {
                        let new = u32::from(reply == ":1|");
                        *answers.lock().unwrap().added.entry(*entry).or_default() += new;
                        answered += 1;
                    }
                    Ok(reply) => panic!("an add was answered {reply}"),
                    Err(_) => break,
                }
            }
        }
        if answered < ids.len() {
            answers.lock().unwrap().unknown.extend(&ids[answered..]);
            return;
        }
    }
}

fn campaign(ack: &str, kills: u64) {
    let folder = TempDir::new().unwrap();
    let random = Random::new();
    let answers = Mutex::new(Answers::default());
    for round in 0..kills {
        let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
        check(&daemon, &answers.lock().unwrap(), round);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (daemon, answers) = (&daemon, &answers);
                let mut random = random.branch(round * CLIENTS + client);
                scope.spawn(move || add_until_killed(daemon, &mut random, round, answers));
            }
            // At a random time, which is what the test is about.
            let wait = random.branch(u64::MAX - round).below(40_000);
            std::thread::sleep(Duration::from_micros(wait));
            let id = daemon.id().to_string();
            let killed = std::process::Command::new("kill").args(["-9", &id]).status().unwrap();
            assert!(killed.success());
        });
    }
    let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
    let answers = answers.into_inner().unwrap();
    check(&daemon, &answers, kills);
    assert!(answers.added.len() as u64 > kills, "{} adds were answered", answers.added.len());
}

/// Whether the daemon has what it answered.
fn check(daemon: &LiveDaemon, answers: &Answers, round: u64) {
    let mut wire = daemon.connect();
    for entries in answers.added.keys().collect::<Vec<_>>().chunks(1_000) {
        let exists = |(filter, id): &(u64, u64)| {
            let (filter, id) = (format!("f{filter}"), format!("id-{id}"));
            encode(&[b"BF.EXISTS", filter.as_bytes(), id.as_bytes()])
        };
        wire.send(&entries.iter().flat_map(|entry| exists(entry)).collect::<Vec<u8>>()).unwrap();
        for entry in entries {
            assert_eq!(wire.reply().unwrap(), ":1|", "{entry:?} is lost after kill {round}");
        }
    }
    for (entry, new) in &answers.added {
        // An add that was not answered may have been the one that was new.
        assert!(*new <= 1, "{entry:?} was new {new} times");
        assert!(*new == 1 || answers.unknown.contains(entry), "{entry:?} was never new");
    }
}

#[test]
fn kill_9_at_random_times_loses_no_acknowledged_id() {
    for ack in ["synced", "written"] {
        let (clock, kills) = (Campaign::new(&format!("kill -9, {ack}")), size(12, 500));
        campaign(ack, kills);
        clock.passed(&format!("{kills} kills, {CLIENTS} clients"), "no acknowledged ID lost");
    }
}

#[test]
fn in_memory_nothing_is_kept_and_the_filters_work() {
    let daemon = LiveDaemon::start(&[]);
    assert_eq!(daemon.connect().call("SADD s a"), ":1|");
    daemon.kill();
    assert_eq!(LiveDaemon::start(&[]).connect().call("SADD s a"), ":1|");
}
