//! Near duplicates: fingerprints that resemble none of 50 million, added and looked up over Redis's
//! protocol.

use std::time::Instant;

use bloomsday_server::live::Ack;

use super::wire::{self, Wire, pipelines};
use crate::Options;
use crate::measure::{Bound, Outcome, contestant, race};

/// How many fingerprints are there.
const FINGERPRINTS: u64 = 50_000_000;
/// How many are added or looked up in a round.
const IN_ROUND: u64 = 51_200;
const DEPTH: usize = 1024;
/// How many are made before they are sent.
const CHUNK: u64 = 1 << 20;
const ROUNDS: usize = 9;
/// Of a thousand fingerprints, changed in three bits, all are found.
const CHANGED: u64 = 1_000;

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let runtime = wire::runtime();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = wire::serve(&runtime, Ack::Memory, folder.path());
    let address = ours.address;
    let mut wire = Wire::open(address);
    assert_eq!(
        wire.call(&["SIM.RESERVE", "texts", "CAPACITY", &FINGERPRINTS.to_string()]),
        "+OK\r\n"
    );
    let clock = Instant::now();
    for first in (0..FINGERPRINTS).step_by(CHUNK as usize) {
        let many = CHUNK.min(FINGERPRINTS - first);
        wire.time(&requests("SIM.ADD", first, many), NONE);
    }
    let filled = clock.elapsed();
    let (add, query) = ("SIM.ADD", "SIM.QUERY");
    let first = |round: usize| FINGERPRINTS + round as u64 * IN_ROUND;
    let contestants = vec![
        contestant(add, move |round| {
            Wire::open(address).time(&requests("SIM.ADD", first(round), IN_ROUND), NONE) / 1e3
        }),
        contestant(query, move |round| {
            let requests = requests("SIM.QUERY", first(round + ROUNDS), IN_ROUND);
            Wire::open(address).time(&requests, b"*0\r\n") / 1e3
        }),
    ];
    let name = "near duplicates among 50 million fingerprints, pipeline 1024";
    let mut outcome = race(name, "µs a fingerprint", options.rounds.min(ROUNDS), contestants);
    let micros = outcome.samples(add).cloned().unwrap_or_default();
    outcome.claim("µs for SIM.ADD", micros, Bound::AtMost(10.0));
    for number in 0..CHANGED {
        let changed = fingerprint(number) ^ 1 << (number % 21) ^ 1 << (21 + number % 20) ^ 1 << 63;
        let reply = wire.call(&["SIM.ADD", "texts", &format!("{changed:016x}")]);
        assert!(reply.starts_with("*2\r\n"), "{changed:x} is near another, and not found: {reply}");
    }
    outcome.note(format!("{CHANGED} of {CHANGED} that differ in three bits were found"));
    let bytes = wire.call(&["MEMORY", "USAGE", "texts"]);
    let bytes: f64 = bytes.trim_start_matches(':').trim().parse().expect("a number");
    outcome.note(format!(
        "{:.1} bytes a fingerprint; to add them all took {:.0} s",
        bytes / FINGERPRINTS as f64,
        filled.as_secs_f64()
    ));
    runtime.block_on(ours.stop());
    vec![outcome]
}

/// The answer to an add of what resembles nothing.
const NONE: &[u8] = b"$-1\r\n";

fn requests(command: &str, first: u64, many: u64) -> Vec<(Vec<u8>, usize)> {
    let texts = (first..first + many).map(|number| format!("{:016x}", fingerprint(number)));
    let texts: Vec<String> = texts.collect();
    pipelines(DEPTH, texts.iter().map(String::as_bytes), |fingerprint, out| {
        wire::command(&[command.as_bytes(), b"texts", fingerprint], out);
    })
}

/// The fingerprint with this number: a word of the extended Hamming code, so that any two differ in
/// four bits or more. Of 50 million random ones, three pairs would be near duplicates.
fn fingerprint(number: u64) -> u64 {
    // 57 bits of the number's hash, different for different numbers.
    let mut data = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << 57) - 1);
    data ^= data >> 29;
    let mut word = 0;
    for position in (3..64_u32).filter(|position| !position.is_power_of_two()) {
        word |= (data & 1) << position;
        data >>= 1;
    }
    // The bits at powers of two make the positions of all bits add up to 0.
    let positions = (3..64).filter(|position| word >> position & 1 == 1);
    let sum = positions.fold(0, |sum: u64, position: u64| sum ^ position);
    word |= (0..6).map(|i| (sum >> i & 1) << (1 << i)).fold(0, |bits, bit| bits | bit);
    word | u64::from(word.count_ones() & 1)
}
