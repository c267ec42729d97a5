//! [`Error`]: why a server could not start or reload.

use std::time::Duration;

use bloomsday_common::error::Kind;

/// The error of this crate. Ask [`Error::kind`] what to do; never parse the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the contract with the store says.
    #[error(transparent)]
    Common(#[from] bloomsday_common::error::Error),
    /// Nothing to serve.
    #[error("there is no filter to serve: name one with --filter, or in bloomsday.toml")]
    NoFilters,
    /// A filter that is not served here.
    #[error("there is no filter `{name}` here; served are: {}", .served.join(", "))]
    UnknownFilter {
        /// What was asked for.
        name: String,
        /// What there is.
        served: Vec<String>,
    },
    /// A filter that did not answer in time.
    #[error("`{filter}` does not answer after {} s: {why}", .deadline.as_secs())]
    NotReady {
        /// The filter.
        filter: String,
        /// How long was waited.
        deadline: Duration,
        /// What stood in the way last.
        why: String,
    },
    /// Too many reloads wait.
    #[error("too many reloads wait already: ask again when the running one is done")]
    Busy,
    /// The thread that polls is gone.
    #[error("the polling thread has ended: restart this process")]
    Stopped,
    /// A thread or listener could not be had from the system.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// A cache folder that is not this server's own.
    #[error(
        "the cache folder {folder} cannot be used: {why}; give --cache-dir a folder of its own, which \
         no store and no other store's server uses"
    )]
    Cache {
        /// The folder.
        folder: String,
        /// What speaks against it.
        why: String,
    },
    /// A setting that nobody can mean.
    #[error("{name} is {value}: give it {allowed}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// A certificate or key that cannot be used.
    #[error("TLS cannot use {file}: {why}")]
    Tls {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// An admin address that anybody could reach.
    #[error(
        "the admin address {address} is not a loopback address, so it needs a token: give \
         --admin-token-file, or listen on 127.0.0.1"
    )]
    OpenAdmin {
        /// The address.
        address: std::net::SocketAddr,
    },
}

impl Error {
    /// Sorts the error by what can be done about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Common(error) => error.kind(),
            Error::NoFilters
            | Error::OpenAdmin { .. }
            | Error::Tls { .. }
            | Error::Cache { .. }
            | Error::Setting { .. } => Kind::Usage,
            Error::UnknownFilter { .. } => Kind::NotFound,
            Error::NotReady { .. } | Error::Busy => Kind::Transient,
            Error::Stopped | Error::System { .. } => Kind::Failed,
        }
    }
}
