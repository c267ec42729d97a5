//! The live filters of `bloomsday serve`: their flags, and the address for Redis clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use bloomsday_common::key::FilterName;
use bloomsday_common::store::real_path;
use bloomsday_server::http;
use bloomsday_server::live::{Ack, Live, LiveConfig};
use bloomsday_server::resp::{self, Resp, RespConfig};
use bloomsday_server::{Tls, Token};
use bytesize::ByteSize;
use clap::Args;
use serde_json::json;

use crate::config::{RespFile, Settings};
use crate::error::Error;
use crate::output::{Output, host};
use crate::signals::Signals;
use crate::size::size;

/// Flags of live filters.
#[derive(Args)]
pub(super) struct LiveFlags {
    /// The address for Redis clients, whose IDs count from the moment they are added.
    #[arg(long, value_name = "ADDRESS", value_parser = crate::config::address, env = "BLOOMSDAY_RESP")]
    resp: Option<SocketAddr>,
    /// A file with the token of those who add and delete IDs: Redis clients' password, and HTTP's
    /// Bearer token [default: the admin token; without one, only this machine may].
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_LIVE_TOKEN_FILE")]
    live_token_file: Option<PathBuf>,
    /// The folder for what is added to live filters [default: none: it ends with the process].
    #[arg(long, value_name = "DIR", env = "BLOOMSDAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// What an answered add promises: synced, written, shipped or memory [default: synced with
    /// --data-dir, else memory].
    #[arg(long, value_name = "WHEN", env = "BLOOMSDAY_ACK")]
    ack: Option<Ack>,
    /// The most memory of live filters; adds beyond it are refused [default: 1 GiB].
    #[arg(long, value_name = "SIZE", env = "BLOOMSDAY_LIVE_MEMORY", value_parser = size)]
    live_memory: Option<ByteSize>,
    /// Let FLUSHDB and FLUSHALL delete live filters, but not those of the configuration.
    #[arg(long)]
    allow_flush: bool,
}

/// What the flags say, else the file.
pub(super) struct LiveSettings {
    listen: Option<SocketAddr>,
    pub(super) token_file: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    ack: Option<Ack>,
    memory: u64,
    max_filters: usize,
    create: bool,
    allow_flush: bool,
}

impl LiveFlags {
    pub(super) fn resolve(&self, file: &RespFile) -> Result<LiveSettings, Error> {
        let default = LiveConfig::new(None);
        let settings = LiveSettings {
            listen: self.resp.or(file.listen),
            token_file: self.live_token_file.clone().or_else(|| file.token_file.clone()),
            data_dir: self.data_dir.clone().or_else(|| file.data_dir.clone()),
            ack: self.ack.or(file.ack),
            memory: self
                .live_memory
                .or(file.live_memory)
                .map_or(default.memory, |memory| memory.as_u64()),
            max_filters: file.max_filters.unwrap_or(default.max_filters),
            create: file.create.unwrap_or(default.create),
            allow_flush: self.allow_flush || file.allow_flush.unwrap_or(false),
        };
        let promises = settings.ack.filter(|ack| *ack != Ack::Memory);
        if let (Some(ack), None) = (promises, &settings.data_dir) {
            return Err(Error::Usage(format!(
                "`{}` needs a folder for what is added: give --data-dir DIR, or write `data_dir` \
                 under [resp] in bloomsday.toml",
                ack.name()
            )));
        }
        Ok(settings)
    }
}

impl LiveSettings {
    /// Whether Redis clients are served.
    pub(super) fn has_clients(&self) -> bool {
        self.listen.is_some()
    }

    /// Refuses an address for Redis clients that others reach without a token.
    pub(super) fn check_address(&self, has_admin_token: bool) -> Result<(), Error> {
        match self.listen {
            Some(address)
                if !address.ip().is_loopback() && self.token_file.is_none() && !has_admin_token =>
            {
                Err(bloomsday_server::error::Error::OpenResp { address }.into())
            }
            _ => Ok(()),
        }
    }

    /// Refuses an address for Redis clients that is for HTTP, too.
    pub(super) fn check_apart(&self, others: &[SocketAddr]) -> Result<(), Error> {
        match self.listen.filter(|address| address.port() != 0 && others.contains(address)) {
            Some(address) => Err(Error::Usage(format!(
                "{address} is the address for Redis clients and for HTTP: give each its own"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a data folder that is in the store, and a store in its folder of logs: commands
    /// would take logs for filters.
    pub(super) fn check_data_dir(&self, settings: &Settings) -> Result<(), Error> {
        let (Some(folder), Some(store)) = (&self.data_dir, settings.store_folder()) else {
            return Ok(());
        };
        let (Ok(real), Ok(store)) = (real_path(folder), real_path(&store)) else { return Ok(()) };
        let (inner, outer) = if real.starts_with(&store) {
            ("data folder", "store")
        } else if store.starts_with(real.join("live")) {
            ("store", "data folder")
        } else {
            return Ok(());
        };
        let (folder, store) = (folder.display(), store.display());
        Err(Error::Usage(format!(
            "the {inner} is in the {outer}: give each of {folder} and {store} a folder of its own"
        )))
    }

    /// Refuses more live filters than there may be: this is the last one of so many.
    pub(super) fn check_filters(&self, filter: &FilterName, many: usize) -> Result<(), Error> {
        if many > self.max_filters {
            Err(bloomsday_server::error::Error::TooManyLiveFilters {
                filter: filter.to_string(),
                max: self.max_filters,
            }
            .into())
        } else {
            Ok(())
        }
    }

    /// Whether what is added is written to a log.
    pub(super) fn has_log(&self) -> bool {
        self.data_dir.is_some() && self.ack != Some(Ack::Memory)
    }

    /// Refuses to leave a log unread: its IDs would be new again.
    fn check_unused_folder(&self) -> Result<(), Error> {
        let Some(folder) = &self.data_dir else { return Ok(()) };
        let entries = std::fs::read_dir(folder.join("live")).into_iter().flatten().flatten();
        let is_log = |path: PathBuf| path.is_dir() && path.extension().is_none();
        if !entries.map(|entry| entry.path()).any(is_log) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "--ack memory would not read the live IDs in {}: choose another --ack, or leave --data-dir out",
            folder.display()
        )))
    }

    /// Warns of a data folder if nothing can be added.
    pub(super) fn warn_of_unused_folder(&self) {
        if let Some(folder) = &self.data_dir {
            let folder = folder.display();
            tracing::warn!(
                "the data folder {folder} is not used: no served filter has `live` in bloomsday.toml, and there \
                 is no address for Redis clients (--resp)"
            );
        }
    }

    /// Reads what was added before. Warns if IDs are taken that end with the process.
    /// `not_served` has the filters of the configuration that clients get an error for.
    pub(super) async fn open(
        &self,
        token: Option<Token>,
        takes_ids: bool,
        not_served: Vec<FilterName>,
    ) -> Result<Live, Error> {
        let mut config = LiveConfig::new(self.data_dir.clone());
        config.ack = self.ack.unwrap_or(config.ack);
        config.memory = self.memory;
        (config.max_filters, config.create) = (self.max_filters, self.create);
        (config.token, config.name, config.reserved_names) = (token, host(), not_served);
        if config.ack == Ack::Memory {
            self.check_unused_folder()?;
        }
        if takes_ids && config.ack == Ack::Memory {
            let remedy = match self.data_dir {
                None => "give --data-dir DIR",
                Some(_) => "--ack memory does not use the data folder",
            };
            tracing::warn!("what is added ends with this process: {remedy}");
        }
        let opening = tokio::task::spawn_blocking(move || Live::open(config));
        Ok(opening.await.expect("reading a log does not panic")?)
    }

    /// Listens for Redis clients, if there is an address for them.
    pub(super) async fn listen(&self, live: Live, tls: Option<Tls>) -> Result<Option<Resp>, Error> {
        let Some(address) = self.listen else { return Ok(None) };
        let mut front = RespConfig::new(address);
        (front.tls, front.allow_flush) = (tls, self.allow_flush);
        Ok(Some(resp::serve(live, front).await?))
    }

    /// Serves Redis clients and no filter of a store, until SIGTERM or Ctrl-C. SIGHUP reads the
    /// certificate again. `listen` is for the page, scrapes and health checks.
    pub(super) async fn serve_alone(
        &self,
        token: Option<Token>,
        tls: Option<Tls>,
        listen: Option<SocketAddr>,
        output: &Output,
    ) -> Result<ExitCode, Error> {
        if self.ack == Some(Ack::Shipped) {
            tracing::warn!("nothing is shipped without a store: `shipped` is as `synced` here");
        }
        let live = self.open(token, true, Vec::new()).await?;
        let signals = Signals::new()?;
        let resp = self.listen(live.clone(), tls.clone()).await?;
        let resp = resp.expect("there is an address for clients");
        // After it: a client that finds this server ready can connect.
        let listen = match listen {
            Some(address) => Some(http::serve_live(live, address, tls.clone()).await?),
            None => None,
        };
        announce_alone(&resp, listen, tls.as_ref(), output);
        signals.until_ended(tls.as_ref()).await;
        tracing::info!("stopping: no new requests; the running ones are finished");
        resp.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints where a server without filters of a store listens.
fn announce_alone(resp: &Resp, listen: Option<SocketAddr>, tls: Option<&Tls>, output: &Output) {
    let mut at = json!({ "resp": resp.address.to_string() });
    if let Some(listen) = listen {
        at["listen"] = listen.to_string().into();
    }
    output.show(&at, || {
        let https = if tls.is_some() { "https" } else { "http" };
        let page = listen.map(|listen| format!(", the page at {https}://{listen}/"));
        let page = page.unwrap_or_default();
        format!("Redis clients at {}://{}{page}\n", scheme(tls), resp.address)
    });
}

/// The scheme of the address for Redis clients.
pub(super) fn scheme(tls: Option<&Tls>) -> &'static str {
    if tls.is_some() { "rediss" } else { "redis" }
}
