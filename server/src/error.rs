//! [`Error`]: why a server cannot start or reload.

use std::time::Duration;

use bloomsday_common::error::Kind;
use bloomsday_common::remedy::Remedy;

/// The error of this crate. [`Error::kind`] says what can be done about it; do not parse the text.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # fn main() {
/// # let (_folder, store) = store_with(&[b"alice"]);
/// use bloomsday_server::{Config, error::Error, start_unloaded};
///
/// let no_filters = start_unloaded(Config::new(&store, vec![]));
/// assert!(matches!(no_filters, Err(Error::NoFilters)));
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the store.
    #[error(transparent)]
    Common(#[from] bloomsday_common::error::Error),
    /// The configuration names no filter.
    #[error("there is no filter to serve: add one to the configuration's `filters`")]
    NoFilters,
    /// This server does not serve the filter.
    #[error("there is no filter `{name}` here; served are: {}", .served.join(", "))]
    UnknownFilter {
        /// The name that was given.
        name: String,
        /// The names of the filters that are served.
        served: Vec<String>,
    },
    /// A filter was not loaded before the deadline.
    #[error("`{filter}` is not loaded after {} s: {why}", .deadline.as_secs())]
    NotReady {
        /// The name of the filter.
        filter: String,
        /// The time limit.
        deadline: Duration,
        /// The last error of the filter.
        why: String,
    },
    /// Too many reloads wait.
    #[error("too many reloads wait already: try again when the running one is done")]
    Busy,
    /// The polling thread has ended, or one of those for live IDs.
    #[error("the thread that polls, or one that shares live IDs, has ended: restart this process")]
    Stopped,
    /// The system refused a thread, a socket or a folder.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The cache folder cannot be made.
    #[error(
        "the cache folder {folder} cannot be made: {source}; make it, or let this user write there"
    )]
    NoCache {
        /// The folder.
        folder: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The cache folder belongs to a store, or to the server of another store.
    #[error(
        "the cache folder {folder} cannot be used: {why}; give the cache a folder of its own, which no \
         store and no other store's server uses"
    )]
    Cache {
        /// The folder.
        folder: String,
        /// Why the folder cannot be used.
        why: String,
    },
    /// A setting outside its limits.
    #[error("{name} is {value}: give it {allowed}")]
    Setting {
        /// The name of the setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// Another process has the data folder.
    #[error(
        "another server uses the folder {folder}: stop it, or give this one a folder of its own"
    )]
    FolderInUse {
        /// The folder.
        folder: String,
    },
    /// Two folders have the log of one live filter.
    #[error(
        "{folder} has the log of the same filter as {other}: move the one that is a copy to another place"
    )]
    TwoLogs {
        /// One folder.
        folder: String,
        /// The other one.
        other: String,
    },
    /// A segment of a log is damaged.
    #[error(
        "{file} cannot be used: {why}; restore the file, or remove its folder and lose that filter"
    )]
    Segment {
        /// The path of the segment.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A filter is configured to take live IDs, and the process has no live layer.
    #[error(
        "`{filter}` is configured to take live IDs, and this process has no live layer: set `Config::live`, or \
         configure it to follow"
    )]
    NoLiveLayer {
        /// The name of the filter.
        filter: String,
    },
    /// A live filter is configured to follow only, and the data folder has IDs that were added to
    /// it.
    #[error(
        "`{filter}` is configured to follow, and this data folder has IDs that were added to it: use another data \
         folder, or `live = \"standby\"`, which ships what is in this one"
    )]
    FollowerWithLog {
        /// The name of the filter.
        filter: String,
    },
    /// A live filter is configured otherwise than when its log was begun.
    #[error(
        "`{filter}` has other settings in this data folder, where its log was begun or a client made a filter of \
         this name: use those (`live_for`, `id`; in the library `live_days`, `id_form`), or another data folder"
    )]
    OtherLiveSettings {
        /// The name of the filter.
        filter: String,
    },
    /// A live filter has an engine, and no log that could be sent there.
    #[error(
        "`{filter}` has a live_engine, and no log to send there: use a data folder (`ack` is not `memory`), or no \
         engine"
    )]
    EngineWithoutLog {
        /// The name of the filter.
        filter: String,
    },
    /// There are more live filters than a process may have.
    #[error(
        "`{filter}` is one live filter too many: a process has at most {max}: raise `max_filters`"
    )]
    TooManyLiveFilters {
        /// The name of the filter.
        filter: String,
        /// How many a process may have.
        max: usize,
    },
    /// The filter takes no IDs.
    #[error("`{filter}` takes no IDs: it is not a live filter of this process")]
    NotLive {
        /// The name of the filter.
        filter: String,
    },
    /// Another process decides which IDs are new, so that this one does not take any.
    #[error("`{filter}` is read-only here: {why}")]
    ReadOnly {
        /// The name of the filter.
        filter: String,
        /// Who decides, or why nobody knows.
        why: String,
    },
    /// This process is configured to decide, and another one holds the lease.
    #[error(
        "`{decider}` decides which live IDs of `{filter}` are new, until {until:.0} or longer: stop it first, or \
         give this server `live = \"standby\"` or `\"follow\"`"
    )]
    OtherDecider {
        /// The name of the filter.
        filter: String,
        /// The server that decides.
        decider: String,
        /// When its lease ends unless it is renewed.
        until: jiff::Timestamp,
    },
    /// The bytes to add or delete are not a valid ID; nothing was changed.
    #[error("an ID has 1 to 1,024 bytes, and this one has {}: nothing was added or deleted",
        if *.bytes == 0 { "none" } else { "more" })]
    InvalidId {
        /// How many bytes it has.
        bytes: usize,
    },
    /// The day's filter is not of the layout `blocked`, over which alone IDs can be live.
    #[error("`{filter}` takes no IDs: the day's filter is not of the layout `blocked`")]
    NotBlocked {
        /// The name of the filter.
        filter: String,
    },
    /// IDs were not added or deleted: the day's filter, or what other servers added before the
    /// start, is not loaded yet. A later try may succeed.
    #[error("`{filter}` does not take these IDs now: it is not loaded yet")]
    NotLoaded {
        /// The name of the filter.
        filter: String,
    },
    /// IDs were not added or deleted, or nobody knows. A later try may succeed.
    #[error("`{filter}` does not take these IDs now: {why}")]
    ChangeRefused {
        /// The name of the filter.
        filter: String,
        /// Why not.
        why: String,
    },
    /// The live filters need more memory than they may take.
    #[error("the live filters need more than the {limit} bytes they may take: raise `live_memory`")]
    LiveMemory {
        /// The limit.
        limit: u64,
    },
    /// A certificate or a key that cannot be used.
    #[error("TLS cannot use {file}: {why}")]
    Tls {
        /// The path of the certificate or the key.
        file: String,
        /// Why it cannot be used.
        why: String,
    },
    /// The address for Redis clients can be reached from other machines, and there is no token.
    #[error(
        "the address for Redis clients, {address}, is not a loopback address, so it needs a token: set one, or \
         listen on 127.0.0.1"
    )]
    OpenResp {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// The admin address can be reached from other machines, and there is no token.
    #[error(
        "the admin address {address} is not a loopback address, so it needs a token: set one, \
         or listen on 127.0.0.1"
    )]
    OpenAdmin {
        /// The address.
        address: std::net::SocketAddr,
    },
}

impl Error {
    /// What a person can do about it, where that takes more than words.
    pub fn remedy(&self) -> Option<Remedy> {
        let Error::Common(error) = self else { return None };
        error.remedy()
    }

    /// Sorts the error by what can be done about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Common(error) => error.kind(),
            Error::NoFilters
            | Error::OpenAdmin { .. }
            | Error::OpenResp { .. }
            | Error::NoLiveLayer { .. }
            | Error::FollowerWithLog { .. }
            | Error::OtherLiveSettings { .. }
            | Error::EngineWithoutLog { .. }
            | Error::TooManyLiveFilters { .. }
            | Error::Tls { .. }
            | Error::NoCache { .. }
            | Error::Cache { .. }
            | Error::LiveMemory { .. }
            | Error::NotBlocked { .. }
            | Error::InvalidId { .. }
            | Error::NotLive { .. }
            | Error::Setting { .. } => Kind::Usage,
            Error::Segment { .. } | Error::TwoLogs { .. } => Kind::Corrupt,
            Error::OtherDecider { .. } | Error::ReadOnly { .. } => Kind::Superseded,
            Error::UnknownFilter { .. } => Kind::NotFound,
            Error::NotReady { .. }
            | Error::Busy
            | Error::NotLoaded { .. }
            | Error::ChangeRefused { .. } => Kind::Transient,
            Error::Stopped | Error::FolderInUse { .. } | Error::System { .. } => Kind::Failed,
        }
    }
}
