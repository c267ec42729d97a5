//! What teams do with Redis today, next to the same done here: scrapy-redis-bloomfilter's requests
//! for each new URL, and a script that keeps the clicks of a sliding window in seven Bloom filters.

use std::net::SocketAddr;

use bloomsday_common::hash::mix64;
use bloomsday_server::live::Ack;

use super::wire::{self, Redis, Wire, pipelines};
use crate::Options;
use crate::ids;
use crate::measure::{Bound, Outcome, Samples, contestant, race};

const ROUNDS: usize = 9;
const DEPTH: usize = 1024;

/// The filter of scrapy-redis-bloomfilter: 2^30 bits and six hashes, its defaults.
const CRAWL_BITS: u64 = 1 << 30;
const CRAWL_HASHES: u64 = 6;
/// URLs of a round; Redis takes fewer, because it is slow.
const URLS: usize = 200_000;
const REDIS_URLS: usize = 40_960;

/// The window: half an hour in steps of five minutes, in filters of 2·10⁹ bits with 16 hashes.
const WINDOW_SECONDS: u64 = 1_800;
const STEP_SECONDS: u64 = 300;
const WINDOW_BITS: u64 = 2_000_000_000;
const WINDOW_HASHES: u64 = 16;
/// Clicks of a round.
const CLICKS: usize = 200_000;
const REDIS_CLICKS: usize = 2_048;
/// Strings of 4 to 12 letters that are all different, and none of which may be taken for another.
const DISTINCT: u64 = 10_000_000;
const LETTERS: std::ops::RangeInclusive<u32> = 4..=12;
/// What a window and a step hold of a billion clicks a day.
const IN_WINDOW: u64 = 1_000_000_000 / 86_400 * (WINDOW_SECONDS + STEP_SECONDS);

/// A sighting of an ID: its bits are set in the filter of each step whose window will cover it, and
/// whether the filter of this step had them all before is the answer. The hash is Redis' own, the
/// cheapest that a script has; bits are apart by a second hash. The steps of keys are given, so
/// that no time passes here.
const SIGHTING: &str = "
local hex = redis.sha1hex(ARGV[1])
local at, apart = tonumber(string.sub(hex, 1, 12), 16), tonumber(string.sub(hex, 13, 24), 16)
local bits, hashes, filters = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local seen = 1
for filter = 0, filters - 1 do
  local name = KEYS[1] .. ':' .. filter
  for i = 1, hashes do
    local was = redis.call('SETBIT', name, (at + i * apart) % bits, 1)
    if filter == 0 and was == 0 then seen = 0 end
  end
end
return 1 - seen
";

pub(crate) fn crawl(options: &Options) -> Vec<Outcome> {
    let runtime = wire::runtime();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = wire::serve(&runtime, Ack::Memory, folder.path());
    let address = ours.address;
    let redis = Redis::start(&["--appendonly", "no"], folder.path());
    let (us, them) = ("bloomsday, BF.ADD", "redis, 6 GETBIT and 6 SETBIT");
    let mut contestants = vec![contestant(us, move |round| {
        let urls = fingerprints(round, URLS);
        let requests = pipelines(DEPTH, urls.iter().map(String::as_bytes), |id, out| {
            wire::command(&[b"BF.ADD", b"pages", id], out);
        });
        Wire::open(address).time(&requests, b":1\r\n")
    })];
    let mut missing = None;
    match &redis {
        Ok(redis) => contestants.push(contestant(them, move |round| {
            let urls = fingerprints(round, REDIS_URLS);
            let requests = pipelines(DEPTH, urls.iter().map(String::as_bytes), get_and_set);
            let mut wire = Wire::open(redis.address);
            let clock = std::time::Instant::now();
            for (request, many) in &requests {
                wire.send(request, many * 2 * CRAWL_HASHES as usize * b":0\r\n".len());
            }
            clock.elapsed().as_nanos() as f64 / REDIS_URLS as f64
        })),
        Err(why) => missing = Some(why.clone()),
    }
    let name = "new URLs of a crawl on a saturated server, in memory, pipeline 1024";
    let mut outcome = race(name, "ns a URL", options.rounds.min(ROUNDS), contestants);
    outcome.compare(them, us, Bound::AtLeast(50.0));
    outcome.notes.extend(missing);
    runtime.block_on(ours.stop());
    vec![outcome]
}

/// Fingerprints of requests, as Scrapy has them: 40 hex digits.
fn fingerprints(round: usize, many: usize) -> Vec<String> {
    let first = (round * URLS) as u64;
    (first..first + many as u64)
        .map(|n| format!("{:016x}{:016x}{:08x}", mix64(n), mix64(!n), n as u32))
        .collect()
}

/// First all bits are read and then all are set, as by `exists` and `insert`.
fn get_and_set(id: &[u8], out: &mut Vec<u8>) {
    let hash = id.iter().fold(7, |hash: u64, byte| mix64(hash ^ u64::from(*byte)));
    let bits: Vec<String> =
        (0..CRAWL_HASHES).map(|i| (mix64(hash ^ i) % CRAWL_BITS).to_string()).collect();
    bits.iter().for_each(|bit| wire::command(&[b"GETBIT", b"pages", bit.as_bytes()], out));
    bits.iter().for_each(|bit| wire::command(&[b"SETBIT", b"pages", bit.as_bytes(), b"1"], out));
}

pub(crate) fn window(options: &Options) -> Vec<Outcome> {
    let runtime = wire::runtime();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = wire::serve(&runtime, Ack::Memory, folder.path());
    let address = ours.address;
    let (window, step) = (WINDOW_SECONDS.to_string(), STEP_SECONDS.to_string());
    let reserve = ["BLOOM.RESERVE", "clicks", "WINDOW", &window, "STEP", &step, "REPEAT", "renew"];
    assert_eq!(Wire::open(address).call(&reserve), "+OK\r\n");
    let redis = Redis::start(&["--appendonly", "no"], folder.path());
    let redis = redis.and_then(|redis| {
        let empty = redis.used_memory();
        let loaded = Wire::open(redis.address).call(&["SCRIPT", "LOAD", SIGHTING]);
        let script = loaded.lines().nth(1).ok_or_else(|| format!("no Redis: {loaded}"))?;
        Ok((empty, script.to_owned(), redis))
    });

    let (us, them) = ("bloomsday, BF.ADD", "redis, script with seven filters");
    let mut contestants = vec![contestant(us, move |round| {
        let ids = ids::range((round * CLICKS) as u64, CLICKS);
        let requests = pipelines(DEPTH, ids.iter().map(|id| &id[..]), add_click);
        Wire::open(address).time(&requests, b":1\r\n")
    })];
    let mut notes = Vec::new();
    match &redis {
        Ok((_, script, redis)) => {
            // The strings get their size before the clock runs.
            time_script(redis, script, &ids::range(ids::ABSENT, 1));
            contestants.push(contestant(them, move |round| {
                time_script(redis, script, &ids::range((round * CLICKS) as u64, REDIS_CLICKS))
            }));
        }
        Err(why) => notes.push(why.clone()),
    }
    let name = "clicks of a sliding window, in memory";
    let rounds = options.rounds.min(ROUNDS);
    let mut outcome = race(name, "ns a click", rounds, contestants);
    outcome.compare(them, us, Bound::AtLeast(500.0));
    outcome.notes.append(&mut notes);

    let wrong = wrong_duplicates(address);
    outcome.note(format!(
        "{wrong} of {DISTINCT} distinct strings of 4 to 12 letters taken for another"
    ));
    assert_eq!(wrong, 0, "an exact set has none");
    // And as many as a window and a step have of a billion clicks a day.
    let there = DISTINCT + (rounds * CLICKS) as u64;
    let more = IN_WINDOW.saturating_sub(there) as usize;
    let mut wire = Wire::open(address);
    for first in (0..more).step_by(CLICKS) {
        let number = ids::ABSENT + first as u64;
        let ids = ids::range(number, CLICKS.min(more - first));
        wire.time(&pipelines(DEPTH, ids.iter().map(|id| &id[..]), add_click), b":1\r\n");
    }
    let mine = wire.call(&["MEMORY", "USAGE", "clicks"]);
    let mine: f64 = mine.trim_start_matches(':').trim().parse().expect("a number");
    if let Ok((empty, _, redis)) = &redis {
        let theirs = redis.used_memory() - empty;
        let (mib, name) = (f64::from(1 << 20), "memory: bloomsday / redis");
        outcome.claim(name, Samples(vec![mine / theirs]), Bound::AtMost(0.2));
        outcome.note(format!(
            "with {IN_WINDOW} IDs in the window {:.0} MiB, Redis {:.0} MiB whatever is in it",
            mine / mib,
            theirs / mib
        ));
    }
    runtime.block_on(ours.stop());
    vec![outcome]
}

fn add_click(id: &[u8], out: &mut Vec<u8>) {
    wire::command(&[b"BF.ADD", b"clicks", id], out);
}

fn time_script(redis: &Redis, script: &str, ids: &[ids::Id]) -> f64 {
    let filters = (WINDOW_SECONDS / STEP_SECONDS + 1).to_string();
    let (bits, hashes) = (WINDOW_BITS.to_string(), WINDOW_HASHES.to_string());
    let requests = pipelines(DEPTH, ids.iter().map(|id| &id[..]), |id, out| {
        let [bits, hashes, filters] = [&bits, &hashes, &filters].map(|word| word.as_bytes());
        let script = script.as_bytes();
        wire::command(&[b"EVALSHA", script, b"1", b"clicks", id, bits, hashes, filters], out);
    });
    Wire::open(redis.address).time(&requests, b":1\r\n")
}

/// Adds strings of letters that are all different, and returns how many were answered as seen.
fn wrong_duplicates(address: SocketAddr) -> u64 {
    let (mut wire, mut wrong, mut batch) = (Wire::open(address), 0, Vec::new());
    let (mut many, mut all) = (0, 0);
    let lengths = u64::from(LETTERS.end() - LETTERS.start() + 1);
    let mut left = DISTINCT;
    for (length, after) in LETTERS.zip((1..=lengths).rev()) {
        let possible = 26_u64.pow(length);
        // Each length its share; there are not so many strings of four letters.
        let these = (left / after).min(possible);
        left -= these;
        for i in 0..these {
            // A step without a common divisor with 26: no string comes twice.
            add_click(&letters(i.wrapping_mul(0x9e37_79b1) % possible, length), &mut batch);
            many += 1;
            if many == DEPTH || (length == *LETTERS.end() && i + 1 == these) {
                let replies = wire.send(&batch, many * b":1\r\n".len());
                wrong += replies.chunks(4).filter(|reply| *reply != b":1\r\n").count() as u64;
                all += many as u64;
                (many, batch) = (0, Vec::new());
            }
        }
    }
    assert_eq!(all, DISTINCT);
    wrong
}

/// A number as letters.
fn letters(mut number: u64, length: u32) -> Vec<u8> {
    let mut letters = Vec::new();
    for _ in 0..length {
        letters.push(b'a' + (number % 26) as u8);
        number /= 26;
    }
    letters
}
