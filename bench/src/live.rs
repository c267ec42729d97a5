//! Live filters over Redis's protocol, compared with Redis itself and SADD: one connection with new IDs of 32
//! bytes in pipelines, for each promise of an answer; and redis-benchmark with fifty connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bloomsday_server::live::{Ack, Live, LiveConfig};
use bloomsday_server::resp::{self, Resp, RespConfig};
use tokio::runtime::Runtime;

use crate::Options;
use crate::measure::{Bound, Outcome, contestant, race};

/// IDs that a contestant adds in a round.
const IDS: usize = 200_000;
/// The requests of a pipeline.
const DEPTHS: [usize; 2] = [256, 1024];
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut outcomes = Vec::new();
    for (ack, options, bounds) in PROMISES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ours = serve(&runtime, ack, folder.path());
        let redis = Redis::start(options, folder.path());
        for (depth, bound) in DEPTHS.into_iter().zip(bounds) {
            outcomes.push(pipelines(ack, depth, bound, ours.address, &redis, rounds));
        }
        if ack == Ack::Memory {
            for (depth, bound) in [(1, 1.0), (16, 1.25), (128, 3.0)] {
                outcomes.push(benchmark(depth, bound, ours.address, &redis, rounds));
            }
        }
        runtime.block_on(ours.stop());
    }
    outcomes
}

fn serve(runtime: &Runtime, ack: Ack, folder: &Path) -> Resp {
    let mut config = LiveConfig::new(Some(folder.join("ours")));
    config.ack = ack;
    config.memory = 4 << 30;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let live = Live::open(config).expect("a new folder");
    runtime.block_on(resp::serve(live, RespConfig::new(anywhere))).expect("it listens")
}

fn pipelines(
    ack: Ack,
    depth: usize,
    bound: f64,
    ours: SocketAddr,
    redis: &Result<Redis, String>,
    rounds: usize,
) -> Outcome {
    let (us, them) = ("bloomsday, SADD", "redis, SADD");
    let mut contestants =
        vec![contestant(us, move |round| adds(ours, depth, &format!("{depth}-{round}")))];
    let mut missing = None;
    match redis {
        Ok(redis) => contestants.push(contestant(them, move |round| {
            adds(redis.address, depth, &format!("{depth}-{round}"))
        })),
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

/// Adds new IDs in pipelines: nanoseconds an ID.
fn adds(address: SocketAddr, depth: usize, salt: &str) -> f64 {
    // Before the clock runs.
    let requests: Vec<Vec<u8>> = (0..IDS / depth)
        .map(|batch| {
            let ids = (0..depth).map(|i| format!("{salt:>16}{:016x}", batch * depth + i));
            ids.flat_map(|id| {
                format!("*3\r\n$4\r\nSADD\r\n$4\r\nseen\r\n$32\r\n{id}\r\n").into_bytes()
            })
            .collect()
        })
        .collect();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let mut replies = vec![0; depth * ":1\r\n".len()];
    let clock = Instant::now();
    for request in &requests {
        stream.write_all(request).expect("it is sent");
        stream.read_exact(&mut replies).expect("replies");
        assert!(replies.chunks(4).all(|reply| reply == b":1\r\n"), "an ID was not new");
    }
    clock.elapsed().as_nanos() as f64 / (requests.len() * depth) as f64
}

fn benchmark(
    depth: usize,
    bound: f64,
    ours: SocketAddr,
    redis: &Result<Redis, String>,
    rounds: usize,
) -> Outcome {
    let (us, them) = ("bloomsday", "redis");
    let mut contestants = vec![contestant(us, move |_| redis_benchmark(ours, depth))];
    if let Ok(redis) = redis {
        contestants.push(contestant(them, move |_| redis_benchmark(redis.address, depth)));
    }
    let name = format!("redis-benchmark -c 50 -P {depth} SADD, in memory");
    let mut outcome = race(&name, "ns an add", rounds.min(5), contestants);
    outcome.compare(them, us, Bound::AtLeast(bound));
    if let Some(samples) = outcome.samples(us) {
        outcome.note(format!("{:.0} thousand adds a second", 1e6 / samples.median()));
    }
    outcome
}

/// What redis-benchmark tells: nanoseconds an add; no number when it is not installed.
fn redis_benchmark(address: SocketAddr, depth: usize) -> f64 {
    let requests = (BENCHMARK_REQUESTS * depth.min(50)).to_string();
    let run = Command::new("redis-benchmark")
        .args(["-p", &address.port().to_string(), "-c", "50", "-P", &depth.to_string()])
        .args(["-n", &requests, "-r", "1000000000", "--csv", "SADD", "bench", "__rand_int__"])
        .output();
    let Ok(run) = run else { return f64::NAN };
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    // The last line: the name of the test, quoted, and the requests a second.
    let line = text.lines().last().unwrap_or_default();
    let rate = line.split("\",\"").nth(1).and_then(|rate| rate.parse::<f64>().ok());
    rate.map_or(f64::NAN, |rate| 1e9 / rate)
}

/// A Redis of our own.
struct Redis {
    process: Child,
    address: SocketAddr,
}

impl Redis {
    fn start(options: &[&str], folder: &Path) -> Result<Redis, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port");
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(folder)
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("no Redis: redis-server: {e} (apt-get install redis-server)"))?;
        let redis = Redis { process, address };
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(e) = TcpStream::connect(address) {
            if Instant::now() > deadline {
                return Err(format!("no Redis: {e}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
