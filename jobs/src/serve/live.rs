//! The live filters of `bloomsday serve`: their flags, and the address for Redis clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use bloomsday_server::live::{Ack, Live, LiveConfig};
use bloomsday_server::resp::{self, Resp, RespConfig};
use bytesize::ByteSize;
use clap::Args;
use serde_json::json;

use super::{Signals, read_secret};
use crate::error::Error;
use crate::output::{Output, host};

/// Flags of live filters.
#[derive(Args)]
pub(super) struct LiveFlags {
    /// The address for Redis clients, whose IDs count from the moment they are added.
    #[arg(long, value_name = "ADDRESS", env = "BLOOMSDAY_RESP")]
    resp: Option<SocketAddr>,
    /// A file with the password of Redis clients; required unless --resp is loopback.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_RESP_PASSWORD_FILE", requires = "resp")]
    resp_password_file: Option<PathBuf>,
    /// The folder for what is added to live filters [default: none: it ends with the process].
    #[arg(long, value_name = "DIR", env = "BLOOMSDAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// What an answered add promises: synced, written or memory [default: synced].
    #[arg(long, value_name = "WHEN", env = "BLOOMSDAY_ACK", requires = "data_dir")]
    ack: Option<Ack>,
    /// The most memory of live filters; adds beyond it are refused [default: 1 GiB].
    #[arg(long, value_name = "SIZE", env = "BLOOMSDAY_LIVE_MEMORY")]
    live_memory: Option<ByteSize>,
    /// Let FLUSHDB and FLUSHALL delete every live filter.
    #[arg(long, requires = "resp")]
    allow_flush: bool,
}

impl LiveFlags {
    /// Whether Redis clients are served.
    pub(super) fn has_clients(&self) -> bool {
        self.resp.is_some()
    }

    /// Reads what was added before.
    pub(super) async fn open(&self) -> Result<Live, Error> {
        let mut config = LiveConfig::new(self.data_dir.clone());
        config.ack = self.ack.unwrap_or(config.ack);
        config.memory = self.live_memory.map_or(config.memory, |memory| memory.as_u64());
        config.name = host();
        if config.ack == Ack::Memory {
            tracing::warn!("what is added ends with this process: give --data-dir DIR");
        }
        let opening = tokio::task::spawn_blocking(move || Live::open(config));
        Ok(opening.await.expect("reading a log does not panic")?)
    }

    /// Listens for Redis clients, with `--resp`.
    pub(super) async fn listen(&self, live: Live) -> Result<Option<Resp>, Error> {
        let Some(address) = self.resp else { return Ok(None) };
        let mut front = RespConfig::new(address);
        front.allow_flush = self.allow_flush;
        let password = self.resp_password_file.as_deref();
        front.password = password.map(|path| read_secret("password", path)).transpose()?;
        Ok(Some(resp::serve(live, front).await?))
    }
}

/// Serves Redis clients and nothing else, until SIGTERM or Ctrl-C.
pub(super) async fn serve_alone(resp: Resp, output: &Output) -> Result<ExitCode, Error> {
    let signals = Signals::new()?;
    let at = json!({ "resp": resp.address.to_string() });
    output.show(&at, || format!("Redis clients at redis://{}\n", resp.address));
    signals.until_ended().await;
    tracing::info!("stopping: no new requests; the running ones are finished");
    resp.stop().await;
    Ok(ExitCode::SUCCESS)
}
