//! `bloomsday serve`: the daemon around the library.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_server::http::{self, Token};
use bloomsday_server::{Bloomsday, Config, start_unloaded};
use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Settings;
use crate::error::Error;
use crate::output::Output;

/// Answer questions over HTTP, and follow the pointers.
///
/// SIGHUP reloads, SIGTERM finishes what is under way and stops.
///
/// Example: bloomsday serve --store s3://ads-filters/prod --filter rt
#[derive(Args)]
pub(crate) struct Serve {
    /// A filter to serve; may repeat [default: every filter of the configuration].
    #[arg(long, value_name = "NAME")]
    filter: Vec<FilterName>,
    /// Where questions are answered [default: 127.0.0.1:8642].
    #[arg(long, value_name = "ADDRESS", env = "BLOOMSDAY_LISTEN")]
    listen: Option<SocketAddr>,
    /// Where reloads are asked for [default: 127.0.0.1:8643].
    #[arg(long, value_name = "ADDRESS", env = "BLOOMSDAY_ADMIN")]
    admin: Option<SocketAddr>,
    /// A file with the token that reloads must present; required unless --admin is loopback.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// How long from one look at the pointers to the next [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    #[arg(env = "BLOOMSDAY_POLL_INTERVAL")]
    poll_interval: Option<Duration>,
    /// Where verified blobs are kept for a start without the store.
    #[arg(long, value_name = "DIR", env = "BLOOMSDAY_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
}

impl Serve {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let file = settings.file();
        let mut names = self.filter;
        if names.is_empty() {
            names = file.filters.keys().cloned().collect();
        }
        let filters = names.into_iter().map(|name| settings.follow(name)).collect();
        let mut config = Config::new(settings.store()?, filters);
        if let Some(interval) = self.poll_interval.or(file.poll_interval) {
            if interval.is_zero() {
                return Err(Error::Usage("the poll interval must be longer than zero".into()));
            }
            config.poll_interval = interval;
        }
        config.cache_dir = self.cache_dir.or_else(|| file.cache_dir.clone());
        let token = self.admin_token_file.or_else(|| file.admin_token_file.clone());
        let token = token.as_deref().map(read_token).transpose()?;
        let listen = self.listen.or(file.listen).unwrap_or(([127, 0, 0, 1], 8642).into());
        let admin = self.admin.or(file.admin).unwrap_or(([127, 0, 0, 1], 8643).into());

        // Not `start`: until a filter is loaded the daemon answers 503, which says more than waiting.
        let bloomsday = start_unloaded(config, false)?;
        let server = http::serve(bloomsday.clone(), listen, admin, token).await?;
        let at = json!({ "listen": server.public.to_string(), "admin": server.admin.to_string() });
        output.show(&at, || {
            format!("questions at http://{}, admin at http://{}\n", server.public, server.admin)
        });
        until_stopped(&bloomsday).await?;
        tracing::info!("stopping: no new requests; those under way are answered");
        server.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reloads at every SIGHUP; returns at SIGTERM or Ctrl-C.
pub(crate) async fn until_stopped(bloomsday: &Bloomsday) -> Result<(), Error> {
    let listen = |kind: SignalKind| {
        let doing = "listen for signals".to_owned();
        signal(kind).map_err(|source| Error::System { doing, source })
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => {
                // Its outcome is logged by the poller and shown by /status.
                let bloomsday = bloomsday.clone();
                tokio::spawn(async move { bloomsday.reload().await });
            }
        }
    }
}

fn read_token(path: &Path) -> Result<Token, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::Usage(format!("the token file {} cannot be read: {e}", path.display()))
    })?;
    match text.trim() {
        "" => Err(Error::Usage(format!("the token file {} is empty", path.display()))),
        token => Ok(Token::new(token)),
    }
}
