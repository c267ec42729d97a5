//! Runs `bloomsday serve --resp`, and talks to it as a Redis client does, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::program::bloomsday;
use crate::wait::DEADLINE;

/// A running daemon with live filters; dropped, it is killed with SIGKILL.
pub struct LiveDaemon {
    process: Child,
    /// The host and the port for Redis clients.
    pub address: String,
    /// Those for the page and metrics, with `--listen`.
    pub listen: Option<String>,
}

impl LiveDaemon {
    /// Starts it with these flags besides the address, and returns when it listens.
    pub fn start(more: &[&str]) -> LiveDaemon {
        LiveDaemon::try_start(more).expect("the daemon says where it listens")
    }

    /// As [`LiveDaemon::start`], with its data in a folder.
    pub fn on(folder: &Path, more: &[&str]) -> LiveDaemon {
        let folder = folder.to_str().expect("the folder's name is UTF-8");
        LiveDaemon::start(&[&["--data-dir", folder], more].concat())
    }

    /// `None` when it ends before it listens.
    pub fn try_start(more: &[&str]) -> Option<LiveDaemon> {
        LiveDaemon::spawn(LiveDaemon::command(more))
    }

    fn command(more: &[&str]) -> Command {
        // A configuration says where.
        let says = more.contains(&"--resp") || more.contains(&"--config");
        let resp: &[&str] = if says { &[] } else { &["--resp", "127.0.0.1:0"] };
        let words = [&["serve", "--json"], resp, more].concat();
        bloomsday(&words).into_command()
    }

    /// From now on no file may be longer: a write beyond it fails, as on a full disk.
    pub fn limit_files(&self, bytes: &str) {
        let id = self.id().to_string();
        let limit = format!("--fsize={bytes}:unlimited");
        let limited = Command::new("prlimit").args(["--pid", &id, &limit]).status();
        assert!(limited.expect("prlimit runs").success());
    }

    fn spawn(mut command: Command) -> Option<LiveDaemon> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the daemon starts");
        let stdout = process.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the daemon's output can be read");
        let Ok(at) = serde_json::from_str::<Value>(&line) else {
            let _ = process.wait();
            return None;
        };
        let address = at["resp"].as_str().expect("an address").to_owned();
        let listen = at["listen"].as_str().map(str::to_owned);
        Some(LiveDaemon { process, address, listen })
    }

    /// The port.
    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("an address has a port")
    }

    /// A new connection.
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.address)
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
    }

    /// Sends it SIGTERM; the exit status.
    pub fn stop(mut self) -> i32 {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(sent.expect("kill runs").success());
        self.process.wait().expect("it ends").code().unwrap_or(-1)
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for LiveDaemon {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection.
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    /// A connection to a host and port.
    pub fn connect(address: &str) -> Wire {
        Wire::try_connect(address).expect("the daemon accepts a connection")
    }

    /// As [`Wire::connect`], to a daemon that may be gone.
    pub fn try_connect(address: &str) -> std::io::Result<Wire> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Wire(BufReader::with_capacity(1 << 18, stream)))
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// One whole reply as it is on the wire, line ends as `|`.
    pub fn reply(&mut self) -> std::io::Result<String> {
        let mut text = String::new();
        self.read_into(&mut text)?;
        Ok(text)
    }

    fn read_into(&mut self, text: &mut String) -> std::io::Result<()> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end_matches("\r\n");
        *text += line;
        text.push('|');
        let (kind, rest) = line.split_at(1);
        let length: i64 = rest.parse().unwrap_or(0);
        let values = match kind {
            "$" | "=" if length >= 0 => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length as usize);
                *text += &String::from_utf8_lossy(&bytes).replace("\r\n", "|");
                text.push('|');
                0
            }
            "*" | "~" => length.max(0),
            "%" => 2 * length,
            _ => 0,
        };
        (0..values).try_for_each(|_| self.read_into(text))
    }

    /// Sends one request of words without spaces, and returns the reply.
    #[track_caller]
    pub fn call(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&encode(&words)).expect("a request is sent");
        self.reply().unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// Whether the other side has closed it.
    pub fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
    }
}

/// A request on the wire.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}
