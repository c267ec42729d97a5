//! Live filters over Redis's protocol, compared with Redis itself and SADD: one connection with new
//! IDs of 32 bytes in pipelines, for each promise of an answer; redis-benchmark with fifty
//! connections; and a server that scans the same requests and answers them without looking anything
//! up.

use std::net::SocketAddr;

use bloomsday_server::live::Ack;

use super::echo::Echo;
use super::wire::{self, Redis, Wire, pipelines, redis_benchmark};
use crate::Options;
use crate::measure::{Bound, Outcome, contestant, race};

/// IDs that a contestant adds in a round.
const IDS: usize = 200_000;
/// The requests of a pipeline.
const DEPTHS: [usize; 2] = [256, 1024];
/// The least share of the echo's rate, for each of these.
const OF_ECHO: [f64; 2] = [0.65, 0.40];
/// Rounds: each adds new IDs, so Redis grows.
const ROUNDS: usize = 9;
/// What redis-benchmark sends in a round, for each request of a pipeline.
const BENCHMARK_REQUESTS: usize = 20_000;

/// A promise of ours, Redis' nearest to it, and how many times faster it is to be.
const PROMISES: [(Ack, &[&str], [f64; 2]); 3] = [
    (Ack::Memory, &["--appendonly", "no"], [5.0, 5.0]),
    (Ack::Written, &["--appendonly", "yes", "--appendfsync", "everysec"], [4.0, 4.0]),
    (Ack::Synced, &["--appendonly", "yes", "--appendfsync", "always"], [2.0, 2.0]),
];

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let rounds = options.rounds.min(ROUNDS);
    let runtime = wire::runtime();
    let mut outcomes = Vec::new();
    for (ack, options, bounds) in PROMISES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ours = wire::serve(&runtime, ack, folder.path());
        let redis = Redis::start(options, folder.path());
        for (depth, bound) in DEPTHS.into_iter().zip(bounds) {
            outcomes.push(adds(ack, depth, bound, ours.address, &redis, rounds));
        }
        if ack == Ack::Memory {
            for (depth, bound) in [(1, 1.0), (16, 1.25), (128, 3.0)] {
                outcomes.push(benchmark(depth, bound, ours.address, &redis, rounds));
            }
            let echo = runtime.block_on(Echo::start());
            for (depth, share) in DEPTHS.into_iter().zip(OF_ECHO) {
                outcomes.push(of_echo(depth, share, ours.address, echo.address, rounds));
            }
        }
        runtime.block_on(ours.stop());
    }
    outcomes
}

/// IDs of 32 bytes, which differ for each salt.
fn ids(salt: &str) -> Vec<String> {
    (0..IDS).map(|i| format!("{salt:>16}{i:016x}")).collect()
}

fn requests(command: &str, depth: usize, salt: &str) -> Vec<(Vec<u8>, usize)> {
    let ids = ids(salt);
    pipelines(depth, ids.iter().map(String::as_bytes), |id, out| {
        wire::command(&[command.as_bytes(), b"seen", id], out);
    })
}

fn adds(
    ack: Ack,
    depth: usize,
    bound: f64,
    ours: SocketAddr,
    redis: &Result<Redis, String>,
    rounds: usize,
) -> Outcome {
    let (us, them) = ("bloomsday, SADD", "redis, SADD");
    let add = move |address, round| {
        // Before the clock runs.
        let requests = requests("SADD", depth, &format!("{depth}-{round}"));
        Wire::open(address).time(&requests, b":1\r\n")
    };
    let mut contestants = vec![contestant(us, move |round| add(ours, round))];
    let mut missing = None;
    match redis {
        Ok(redis) => contestants.push(contestant(them, move |round| add(redis.address, round))),
        Err(why) => missing = Some(why.clone()),
    }
    let name = format!("live adds on one connection, {}, pipeline {depth}", ack.name());
    let mut outcome = race(&name, "ns an ID", rounds, contestants);
    outcome.compare(them, us, Bound::AtLeast(bound));
    if let Some(samples) = outcome.samples(us) {
        outcome.note(format!("{:.2} million adds a second", 1e3 / samples.median()));
    }
    outcome.notes.extend(missing);
    outcome
}

fn benchmark(
    depth: usize,
    bound: f64,
    ours: SocketAddr,
    redis: &Result<Redis, String>,
    rounds: usize,
) -> Outcome {
    let (us, them) = ("bloomsday", "redis");
    let run =
        move |address| redis_benchmark(address, 50, depth, BENCHMARK_REQUESTS * depth.min(50));
    let mut contestants = vec![contestant(us, move |_| run(ours))];
    if let Ok(redis) = redis {
        contestants.push(contestant(them, move |_| run(redis.address)));
    }
    let name = format!("redis-benchmark -c 50 -P {depth} SADD, in memory");
    let mut outcome = race(&name, "ns an add", rounds, contestants);
    outcome.compare(them, us, Bound::AtLeast(bound));
    if let Some(samples) = outcome.samples(us) {
        outcome.note(format!("{:.0} thousand adds a second", 1e6 / samples.median()));
    }
    outcome
}

/// Adds of IDs that are there already: nothing but the protocol, the hash and the table, whose
/// lines are in the cache. Fresh ones also wait for memory.
fn of_echo(depth: usize, share: f64, ours: SocketAddr, echo: SocketAddr, rounds: usize) -> Outcome {
    let warm = requests("SADD", depth, "warm");
    let mut first = Wire::open(ours);
    for (request, many) in &warm {
        first.send(request, many * 4);
    }
    let warm = &warm;
    let (limit, adds) = ("echo: scans and answers", "bloomsday, SADD of IDs that are there");
    let (fresh, lookups) = ("bloomsday, SADD of new IDs", "bloomsday, SISMEMBER");
    let contestants = vec![
        contestant(limit, move |_| Wire::open(echo).time(warm, b":0\r\n")),
        contestant(adds, move |_| Wire::open(ours).time(warm, b":0\r\n")),
        contestant(lookups, move |_| {
            Wire::open(ours).time(&requests("SISMEMBER", depth, "warm"), b":1\r\n")
        }),
        contestant(fresh, move |round| {
            let salt = format!("e{depth}-{round}");
            Wire::open(ours).time(&requests("SADD", depth, &salt), b":1\r\n")
        }),
    ];
    let name = format!("live requests next to a server that looks nothing up, pipeline {depth}");
    let mut outcome = race(&name, "ns a request", rounds, contestants);
    outcome.compare(limit, adds, Bound::AtLeast(share));
    outcome.compare(limit, lookups, Bound::None);
    outcome.compare(limit, fresh, Bound::None);
    outcome
}
