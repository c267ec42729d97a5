//! `bloomsday health`: asks a running server or scheduler whether it lives. For containers, which hold no
//! other program that could.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::error::{Error, exit};

/// How long connecting, and the answer, may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Ask a running server or scheduler whether it lives; ends with 0 if so, else with 1.
///
/// Example: bloomsday health 127.0.0.1:8642
#[derive(Args)]
pub(crate) struct Health {
    /// Where it listens, without TLS.
    #[arg(default_value = "127.0.0.1:8642")]
    address: SocketAddr,
    /// Ask whether every filter answers, too.
    #[arg(long)]
    ready: bool,
}

impl Health {
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        let path = if self.ready { "/readyz" } else { "/livez" };
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.address, DEADLINE)?;
            stream.set_read_timeout(Some(DEADLINE))?;
            stream.set_write_timeout(Some(DEADLINE))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.take(4096).read_to_end(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        let doing = format!("ask {} for {path}", self.address);
        let answer = asked().map_err(|source| Error::System { doing, source })?;
        let said = answer.lines().last().unwrap_or_default();
        crate::output::print(&format!("{said}\n"));
        let well = answer.starts_with("HTTP/1.1 200 ");
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
    }
}
