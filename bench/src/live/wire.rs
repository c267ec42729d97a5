//! What races of live filters need: our server, a Redis, and a client that sends prepared requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bloomsday_server::live::{Ack, Live, LiveConfig};
use bloomsday_server::resp::{self, Resp, RespConfig};
use tokio::runtime::Runtime;

/// The memory that our filters may take.
const MEMORY: u64 = 4 << 30;
/// How long a server has for its start.
const START: Duration = Duration::from_secs(30);

pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

pub(super) fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Our server, with its logs in this folder.
pub(super) fn serve(runtime: &Runtime, ack: Ack, folder: &Path) -> Resp {
    let config = RespConfig::new(anywhere());
    runtime.block_on(resp::serve(live(ack, folder), config)).expect("it listens")
}

pub(super) fn live(ack: Ack, folder: &Path) -> Live {
    let mut config = LiveConfig::new(Some(folder.join("ours")));
    (config.ack, config.memory) = (ack, MEMORY);
    Live::open(config).expect("a folder with sound logs")
}

/// A command as servers read it.
pub(super) fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A connection.
pub(super) struct Wire {
    stream: TcpStream,
    replies: Vec<u8>,
}

impl Wire {
    pub(super) fn open(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Wire { stream, replies: Vec::new() }
    }

    /// Sends requests whose replies have `bytes` bytes in all, and returns these.
    pub(super) fn send(&mut self, requests: &[u8], bytes: usize) -> &[u8] {
        self.replies.resize(bytes, 0);
        self.stream.write_all(requests).expect("it is sent");
        self.stream.read_exact(&mut self.replies).expect("replies");
        &self.replies
    }

    /// Sends one command, and returns all that arrives at once.
    pub(super) fn call(&mut self, words: &[&str]) -> String {
        let (mut request, mut reply) = (Vec::new(), vec![0; 64 << 10]);
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        command(&words, &mut request);
        self.stream.write_all(&request).expect("it is sent");
        let read = self.stream.read(&mut reply).expect("a reply");
        String::from_utf8_lossy(&reply[..read]).into_owned()
    }

    /// Sends pipelines whose replies are all `expected`: nanoseconds a request.
    pub(super) fn time(&mut self, requests: &[(Vec<u8>, usize)], expected: &[u8]) -> f64 {
        let clock = Instant::now();
        let mut all = 0;
        for (request, many) in requests {
            let replies = self.send(request, many * expected.len());
            let other = replies.chunks(expected.len()).find(|reply| *reply != expected);
            if let Some(other) = other {
                panic!("an answer is {:?}", String::from_utf8_lossy(other));
            }
            all += many;
        }
        clock.elapsed().as_nanos() as f64 / all as f64
    }
}

/// Pipelines of so many requests each, with the number of requests in each.
pub(super) fn pipelines<'a>(
    depth: usize,
    ids: impl Iterator<Item = &'a [u8]>,
    mut request: impl FnMut(&[u8], &mut Vec<u8>),
) -> Vec<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    let mut ids = ids.peekable();
    while ids.peek().is_some() {
        let (mut bytes, mut many) = (Vec::new(), 0);
        for id in ids.by_ref().take(depth) {
            request(id, &mut bytes);
            many += 1;
        }
        all.push((bytes, many));
    }
    all
}

/// What redis-benchmark tells of SADD on `clients` connections: nanoseconds an add; no number when
/// it is not installed.
pub(super) fn redis_benchmark(
    address: SocketAddr,
    clients: usize,
    depth: usize,
    requests: usize,
) -> f64 {
    let run = Command::new("redis-benchmark")
        .args(["-p", &address.port().to_string()])
        .args(["-c", &clients.to_string(), "-P", &depth.to_string()])
        .args(["-n", &requests.to_string(), "-r", "1000000000", "--csv"])
        .args(["SADD", "bench", "__rand_int__"])
        .output();
    let Ok(run) = run else { return f64::NAN };
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    // The last line: the name of the test, quoted, and the requests a second.
    let line = text.lines().last().unwrap_or_default();
    let rate = line.split("\",\"").nth(1).and_then(|rate| rate.parse::<f64>().ok());
    rate.map_or(f64::NAN, |rate| 1e9 / rate)
}

/// A Redis of our own.
pub(super) struct Redis {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Redis {
    pub(super) fn start(options: &[&str], folder: &Path) -> Result<Redis, String> {
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
        let deadline = Instant::now() + START;
        while let Err(e) = TcpStream::connect(address) {
            if Instant::now() > deadline {
                return Err(format!("no Redis: {e}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(redis)
    }

    /// The bytes that it uses.
    pub(super) fn used_memory(&self) -> f64 {
        let info = Wire::open(self.address).call(&["INFO", "memory"]);
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        used.and_then(|used| used.trim().parse().ok()).unwrap_or(f64::NAN)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
