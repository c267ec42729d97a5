//! `bloomsday serve`: the daemon around the library.

mod daemon;
mod live;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_server::http::{self, HttpConfig};
use bloomsday_server::{Config, FilterConfig, Tls, Token, open_store, start_on};
use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::daemon::{Daemon, Heartbeats, announce};
use self::live::LiveSettings;
use crate::config::{self, Settings, poll_interval};
use crate::defaults;
use crate::error::Error;
use crate::output::{Output, say};
use crate::remedy;
use crate::signals::Signals;

/// Look IDs up over HTTP, and follow the pointers; or keep live filters for Redis clients.
///
/// SIGHUP reloads. SIGTERM finishes the running requests and stops. With --resp alone, no store and
/// no configuration is needed.
///
/// Example: bloomsday serve --store s3://ads-filters/prod --filter rt
///
/// Example: bloomsday serve --resp 127.0.0.1:6380 --data-dir /var/lib/bloomsday
#[derive(Args)]
pub(crate) struct Serve {
    /// A filter to serve; may repeat [default: every filter of the configuration].
    #[arg(long, value_name = "NAME")]
    filter: Vec<FilterName>,
    /// The address for lookups [default: 127.0.0.1:8642]; with --resp alone, for the page,
    /// metrics and health [default: none].
    #[arg(long, value_name = "ADDRESS", value_parser = crate::config::address, env = "BLOOMSDAY_LISTEN")]
    listen: Option<SocketAddr>,
    /// The address for reloads and the operator's page [default: 127.0.0.1:8643].
    #[arg(long, value_name = "ADDRESS", value_parser = crate::config::address, env = "BLOOMSDAY_ADMIN")]
    admin: Option<SocketAddr>,
    /// A file with the token that reloads must present; required unless --admin is loopback.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// A file with the certificate chain, PEM: all addresses then speak only TLS. SIGHUP reads it
    /// again.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// A file with the private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// The time between two polls of the pointers, at most a day [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = poll_interval)]
    #[arg(env = "BLOOMSDAY_POLL_INTERVAL")]
    poll_interval: Option<Duration>,
    /// The folder for verified blobs, for a start without the store.
    #[arg(long, value_name = "DIR", env = "BLOOMSDAY_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    #[command(flatten)]
    live: self::live::LiveFlags,
}

/// What the environment says to `serve`: each variable that `--help` names.
pub(crate) struct ServeEnvironment(ArgMatches);

impl ServeEnvironment {
    /// # Errors
    /// A variable has a value that `serve` refuses.
    pub(crate) fn read() -> Result<ServeEnvironment, Error> {
        let command = Serve::augment_args(Command::new("serve"));
        let read = command.try_get_matches_from(["serve"]);
        read.map(ServeEnvironment).map_err(|error| {
            let text = error.to_string();
            let why = text.lines().next().unwrap_or_default();
            Error::Usage(format!("in the environment: {}", why.trim_start_matches("error: ")))
        })
    }

    /// Refuses what `serve` refuses with this environment and configuration, before it opens a
    /// store or an address. Reads the secrets and certificates.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), Error> {
        let serve =
            Serve::from_arg_matches(&self.0).expect("these are the matches of its arguments");
        let Checked { live, access, serves } = serve.checked(settings)?;
        live.check_address(access.admin_token.is_some())?;
        let names = match serves {
            Serves::RedisClients { .. } => {
                // With --filter, `serve` takes it.
                if serve.admin.is_some() {
                    say("warning", &format!("serve without --filter ends: {ADMIN_ALONE}"));
                }
                vec![]
            }
            Serves::Filters { names, .. } => names,
        };
        let mut live_filters = 0;
        for filter in names {
            let config = settings.follow(filter)?;
            config.check_streams(live.has_log())?;
            live_filters += usize::from(config.live_days.is_some());
            live.check_filters(&config.name, live_filters)?;
        }
        Ok(())
    }

    /// The value that a variable gives to this flag.
    pub(crate) fn text(&self, flag: &str) -> Option<String> {
        Some(self.0.get_raw(flag)?.next()?.to_string_lossy().into_owned())
    }
}

const ADMIN_ALONE: &str =
    "--admin is for filters that are followed: name one with --filter, or leave it out";

/// Flags, environment and configuration that fit together.
struct Checked {
    live: LiveSettings,
    access: Access,
    serves: Serves,
}

/// What is served, and where.
enum Serves {
    /// Live filters for Redis clients, without a store.
    RedisClients { listen: Option<SocketAddr> },
    /// Filters of the store, and Redis clients if they have an address.
    Filters { names: Vec<FilterName>, listen: SocketAddr, admin: SocketAddr },
}

/// Who may use the addresses, and how they speak: the secrets, read from their files.
struct Access {
    admin_token: Option<Token>,
    live_token: Option<Token>,
    tls: Option<Tls>,
}

impl Serve {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        allow_open_files();
        // Before anything is opened.
        let Checked { live, access, serves } = self.checked(settings)?;
        let (names, listen, admin) = match serves {
            Serves::RedisClients { .. } if self.admin.is_some() => {
                return Err(Error::Usage(ADMIN_ALONE.into()));
            }
            Serves::RedisClients { listen } => {
                return live.serve_alone(access.live_token, access.tls, listen, output).await;
            }
            Serves::Filters { names, listen, admin } => (names, listen, admin),
        };
        let mut config = self.config(names, settings)?;
        access.warn_of_no_token(&config, listen);
        if has_live_ids(&config) || live.has_clients() {
            let takes_ids = takes_ids(&config) || live.has_clients();
            let is_served = |name: &&FilterName| config.filters.iter().any(|f| f.name == **name);
            let not_served = settings.file().filters.keys().filter(|name| !is_served(name));
            let not_served = not_served.cloned().collect();
            config.live = Some(live.open(access.live_token, takes_ids, not_served).await?);
        } else {
            live.warn_of_unused_folder();
        }
        let (sets, tls, signals) = (config.live.clone(), access.tls, Signals::new()?);
        // Not `start`: the daemon returns 503 until a filter is loaded, which says more than no
        // listener.
        let bloomsday = start_on(settings.with_pointers(open_store(&config)?)?, config)?;
        let mut http_config = HttpConfig::new(listen, admin);
        (http_config.admin_token, http_config.tls) = (access.admin_token, tls.clone());
        let server = http::serve(bloomsday.clone(), http_config).await?;
        let resp = match sets.clone() {
            Some(sets) => live.listen(sets, tls.clone()).await?,
            None => None,
        };
        announce(&server, resp.as_ref(), tls.as_ref(), output);
        let heartbeats = settings.file().heartbeats.unwrap_or(defaults::HEARTBEATS);
        let heartbeats = heartbeats.then(|| Heartbeats::start(&bloomsday, server.public.port()));
        let daemon = Daemon { bloomsday, server, resp, sets, heartbeats };
        let ended = daemon.until_stopped(signals, tls.as_ref()).await;
        tracing::info!("stopping: no new requests; the running ones are finished");
        daemon.stop().await;
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Refuses flags, variables and a configuration that contradict each other.
    fn checked(&self, settings: &Settings) -> Result<Checked, Error> {
        let file = settings.file();
        let live = self.live.resolve(&file.resp)?;
        let access = self.access(file, &live)?;
        live.check_data_dir(settings)?;
        let names = self.names(file);
        let serves = if names.is_empty() && live.has_clients() {
            let listen = self.listen.or(file.listen);
            live.check_apart(listen.as_slice())?;
            Serves::RedisClients { listen }
        } else {
            let (listen, admin) = self.addresses(file, &live, access.admin_token.is_some())?;
            Serves::Filters { names, listen, admin }
        };
        Ok(Checked { live, access, serves })
    }

    /// The filters to serve: those of the flags, else all of the file. A name that is given twice
    /// is served once.
    fn names(&self, file: &config::File) -> Vec<FilterName> {
        let mut known = BTreeSet::new();
        let given = self.filter.iter().filter(|name| known.insert(*name)).cloned();
        let given: Vec<FilterName> = given.collect();
        if given.is_empty() { file.filters.keys().cloned().collect() } else { given }
    }

    fn access(&self, file: &config::File, live: &LiveSettings) -> Result<Access, Error> {
        let read = |path: Option<&PathBuf>| path.map(|path| read_secret("token", path)).transpose();
        let admin_token = read(self.admin_token_file(file))?;
        let live_token = read(live.token_file.as_ref())?.or_else(|| admin_token.clone());
        let token = |text: Option<String>| text.map(|text| Token::new(&text));
        let tls = match self.tls_files(file)? {
            Some((cert, key)) => {
                warn_if_others_read("TLS key", key);
                Some(Tls::open(cert, key)?)
            }
            None => None,
        };
        Ok(Access { admin_token: token(admin_token), live_token: token(live_token), tls })
    }

    fn admin_token_file<'a>(&'a self, file: &'a config::File) -> Option<&'a PathBuf> {
        self.admin_token_file.as_ref().or(file.admin_token_file.as_ref())
    }

    /// The files with certificate and key, if TLS is spoken.
    fn tls_files<'a>(
        &'a self,
        file: &'a config::File,
    ) -> Result<Option<(&'a PathBuf, &'a PathBuf)>, Error> {
        let cert = self.tls_cert.as_ref().or(file.tls_cert.as_ref());
        let key = self.tls_key.as_ref().or(file.tls_key.as_ref());
        match (cert, key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (Some(_), None) => Err(Error::Usage("TLS needs a key too: give --tls-key FILE".into())),
            (None, Some(_)) => {
                Err(Error::Usage("TLS needs a certificate too: give --tls-cert FILE".into()))
            }
        }
    }

    /// The addresses for lookups and for reloads. Refuses one for both, or for Redis clients, too,
    /// and one for reloads that others reach without a token.
    fn addresses(
        &self,
        file: &config::File,
        live: &LiveSettings,
        has_token: bool,
    ) -> Result<(SocketAddr, SocketAddr), Error> {
        let listen = self.listen.or(file.listen).unwrap_or(defaults::LISTEN);
        let admin = self.admin.or(file.admin).unwrap_or(defaults::ADMIN);
        if listen == admin && listen.port() != 0 {
            return Err(Error::Usage(format!(
                "{listen} is the address for lookups and for reloads: give each its own"
            )));
        }
        live.check_apart(&[listen, admin])?;
        if !admin.ip().is_loopback() && !has_token {
            return Err(Error::Usage(format!(
                "the admin address {admin} is not a loopback address, so it needs a token: give \
                 --admin-token-file, or listen on 127.0.0.1"
            )));
        }
        Ok((listen, admin))
    }

    fn config(&self, names: Vec<FilterName>, settings: &Settings) -> Result<Config, Error> {
        let file = settings.file();
        let filters = names.into_iter().map(|name| settings.follow(name));
        let filters = filters.collect::<Result<Vec<_>, Error>>()?;
        let mut config = Config::new(settings.store()?, filters);
        if config.filters.is_empty() {
            let why = "there is no filter to serve: name one with --filter, or in bloomsday.toml";
            return Err(Error::Usage(why.into()));
        }
        if let Some(interval) = self.poll_interval.or(file.poll_interval) {
            config.poll_interval = interval;
        }
        config.remedy_words = remedy::words;
        config.cache_dir = self.cache_dir.clone().or_else(|| file.cache_dir.clone());
        Ok(config)
    }
}

impl Access {
    /// Warns if nobody may add IDs at the address for lookups.
    fn warn_of_no_token(&self, config: &Config, listen: SocketAddr) {
        if takes_ids(config) && self.live_token.is_none() && !listen.ip().is_loopback() {
            tracing::warn!(
                "{listen} is not a loopback address, so nobody may add IDs there without a token: give \
                 --live-token-file"
            );
        }
    }
}

/// Whether this process adds live IDs to a filter of the configuration, and does not only follow
/// others.
fn takes_ids(config: &Config) -> bool {
    config.filters.iter().any(FilterConfig::takes_ids)
}

fn has_live_ids(config: &Config) -> bool {
    config.filters.iter().any(|filter| filter.live_days.is_some())
}

/// The most bytes of a file with a token or a password.
const MAX_TOKEN_BYTES: u64 = 4 << 10;

fn read_secret(what: &str, path: &Path) -> Result<String, Error> {
    let wrong = |why: &str| Error::Usage(format!("the {what} file {} {why}", path.display()));
    let mut text = String::new();
    let read = File::open(path).and_then(|f| f.take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text));
    read.map_err(|e| wrong(&format!("cannot be read: {e}")))?;
    warn_if_others_read(what, path);
    match text.trim() {
        "" => Err(wrong("is empty")),
        _ if text.len() as u64 > MAX_TOKEN_BYTES => Err(wrong("has more than 4,096 bytes")),
        // No header can carry other characters.
        token if !token.bytes().all(|byte| matches!(byte, b' '..=b'~')) => {
            Err(wrong("must hold one line of printable ASCII"))
        }
        token => Ok(token.to_owned()),
    }
}

/// Only warns: Kubernetes mounts secrets this way, and a container has no other users.
fn warn_if_others_read(what: &str, path: &Path) {
    const OTHERS: u32 = 0o004;
    if std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & OTHERS != 0) {
        let path = path.display();
        tracing::warn!(
            "every user of this machine can read the {what} in {path}: chmod 600 {path}"
        );
    }
}

/// Raises the limit on open files as far as the system lets it: each connection and each log has
/// one.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Otherwise it stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
