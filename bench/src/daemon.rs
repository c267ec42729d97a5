//! The daemon over loopback, compared with what teams run today: Redis with one `GETBIT` a probe,
//! pipelined.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bloomsday_common::filter::shape;
use bloomsday_common::hash::{IdHash, Murmur3};
use bloomsday_common::store::Store;
use bloomsday_server::http::{self, HttpConfig};

use crate::Options;
use crate::fixtures::{self, FPP};
use crate::ids::FreshIds;
use crate::measure::{Bound, Outcome, contestant, race};

/// Batches a contestant sends in a round.
const BATCHES: usize = 64;
/// IDs of a batch: what a bidder gathers, and what a job sends.
const SIZES: [usize; 2] = [1024, 32_768];

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = runtime.block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let (header, filter) = fixtures::filter(0, options.ids);
        fixtures::publish(&store, &header, &filter).await;
        let bloomsday = fixtures::serve(folder.path()).await;
        http::serve(bloomsday, HttpConfig::new(anywhere, anywhere)).await.expect("it listens")
    });
    let redis = Redis::start(options.ids);
    let mut outcomes = Vec::new();
    for size in SIZES {
        outcomes.push(at(size, server.public, &redis, options));
    }
    runtime.block_on(server.stop());
    outcomes
}

fn at(
    size: usize,
    daemon: SocketAddr,
    redis: &Result<Redis, String>,
    options: &Options,
) -> Outcome {
    let fresh_ids = std::cell::RefCell::new(FreshIds::absent(size * BATCHES * 4));
    let each = |clock: Instant| clock.elapsed().as_nanos() as f64 / (size * BATCHES) as f64;
    let mut contestants = Vec::new();
    let fresh_ids = &fresh_ids;
    contestants.push(contestant("bloomsday, POST query", move |_| {
        let mut fresh_ids = fresh_ids.borrow_mut();
        let requests: Vec<Vec<u8>> = (0..BATCHES).map(|_| query(&fresh_ids.next(size).1)).collect();
        // A new one each round: the daemon closes a connection that idles while others take turns.
        let mut client = Client::open(daemon);
        let clock = Instant::now();
        for request in &requests {
            client.send(request, 2 * size);
        }
        each(clock)
    }));
    let mut missing = None;
    match redis {
        Ok(redis) => {
            let mut connection =
                BufReader::new(TcpStream::connect(redis.address).expect("it runs"));
            contestants.push(contestant("redis, GETBIT a probe, pipelined", move |_| {
                let mut fresh_ids = fresh_ids.borrow_mut();
                let requests: Vec<Vec<u8>> =
                    (0..BATCHES).map(|_| redis.pipeline(&fresh_ids.next(size).1)).collect();
                let clock = Instant::now();
                for request in &requests {
                    redis.send(&mut connection, request, size * redis.probes as usize);
                }
                each(clock)
            }));
        }
        Err(why) => missing = Some(why.clone()),
    }
    let name = format!("the daemon over loopback, {size} IDs a batch");
    let mut outcome = race(&name, "ns an ID", options.rounds.min(9), contestants);
    let (redis, bloomsday) = ("redis, GETBIT a probe, pipelined", "bloomsday, POST query");
    outcome.compare(redis, bloomsday, Bound::AtLeast(20.0));
    if let Some(samples) = outcome.samples(bloomsday) {
        outcome.note(format!("{:.1} million IDs a second, one client", 1e3 / samples.median()));
    }
    outcome.notes.extend(missing);
    outcome
}

/// A `POST` of one ID a line.
fn query(ids: &[&[u8]]) -> Vec<u8> {
    let body = ids.join(&b'\n');
    let mut request = format!(
        "POST /v1/filters/rt/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend(body);
    request
}

/// An HTTP connection that is kept.
struct Client {
    connection: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr) -> Client {
        let connection = TcpStream::connect(address).expect("it listens");
        connection.set_nodelay(true).expect("a socket");
        Client { connection: BufReader::new(connection), body: Vec::new() }
    }

    fn send(&mut self, request: &[u8], expected: usize) {
        self.connection.get_mut().write_all(request).expect("it is sent");
        let (mut line, mut length, mut first) = (String::new(), 0, true);
        loop {
            line.clear();
            self.connection.read_line(&mut line).expect("an answer");
            if std::mem::take(&mut first) {
                assert!(line.contains("200"), "{line}");
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
        }
        assert_eq!(length, expected, "one digit and a line end for each ID");
        self.body.resize(length, 0);
        self.connection.read_exact(&mut self.body).expect("the body");
    }
}

/// A Redis of our own, with a bit string of the classic filter's size.
struct Redis {
    process: Child,
    address: SocketAddr,
    bits: u64,
    probes: u32,
}

impl Redis {
    fn start(n: u64) -> Result<Redis, String> {
        // A string has at most 512 MiB.
        let bits = shape::classic_bits(n, FPP).min((1 << 32) - 1);
        let probes = shape::classic_probes(n, shape::classic_bits(n, FPP));
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port");
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("no Redis: redis-server: {e} (apt-get install redis-server)"))?;
        let redis = Redis { process, address, bits, probes };
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut connection = loop {
            match TcpStream::connect(address) {
                Ok(connection) => break BufReader::new(connection),
                Err(e) if Instant::now() > deadline => return Err(format!("no Redis: {e}")),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        // A GETBIT costs the same whatever the bit: the string is only given its size, and each of
        // its pages written once, as a filled one would have been.
        for at in (0..bits).step_by(4096 * 8) {
            redis.send(&mut connection, &command(&["SETBIT", "rt", &at.to_string(), "1"]), 1);
        }
        Ok(redis)
    }

    /// The probes of a classic filter, all in one pipeline; hashed before the clock runs.
    fn pipeline(&self, ids: &[&[u8]]) -> Vec<u8> {
        let mut request = Vec::new();
        for id in ids {
            let Murmur3(first, step) = Murmur3::of(id);
            for probe in 0..u64::from(self.probes) {
                let bit = (first.wrapping_add(probe.wrapping_mul(step)) >> 1) % self.bits;
                request.extend(command(&["GETBIT", "rt", &bit.to_string()]));
            }
        }
        request
    }

    /// Sends while it reads: neither side's buffers may fill up. Each answer is `:0` or `:1`.
    fn send(&self, connection: &mut BufReader<TcpStream>, request: &[u8], answers: usize) {
        let mut writer = connection.get_ref().try_clone().expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(request).expect("it is sent"));
            let mut left = answers;
            while left > 0 {
                let seen = connection.fill_buf().expect("answers");
                assert!(!seen.is_empty(), "Redis went away");
                let ends = seen.iter().filter(|byte| **byte == b'\n').count();
                let length = seen.len();
                connection.consume(length);
                left -= ends;
            }
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command as Redis reads it.
fn command(words: &[&str]) -> Vec<u8> {
    let words_ = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words_.collect::<String>()).into_bytes()
}
