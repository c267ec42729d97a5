//! [`FeedReader`]: a stream of others → adds, while this process decides. At least once: the
//! position in the stream is kept in the data folder after the IDs are as safe as promised, so that
//! a crash reads some again.
//!
//! Here is what all feeds share. `feed_run` reads a stream for as long as a process runs, by
//! `feed_redis` or `feed_kafka`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomsday_common::atomic_file;
use bloomsday_common::hash::is_valid_len;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use tokio::time::Instant;

use super::address::FeedUrl;
use crate::clock::Clock;
use crate::live::LiveRole;
use crate::live::lock::lock;
use crate::live::options::hash_of;
use crate::live::replication::access::{LeaseEpoch, WriteAccess};
use crate::live::replication::task_context::TaskContext;
use crate::live::set::{LiveSet, SetError};

/// How many IDs are added at once: others may add in between.
pub(super) const MAX_ADDED: usize = 1000;
/// The pause after a first failure, and while another server decides.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause after a failure.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(8);
/// How often the position is kept.
pub(super) const KEEP_INTERVAL: Duration = Duration::from_millis(500);
/// How often it is said in the log that messages were skipped.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The feed of one set.
pub(in crate::live) struct FeedReader {
    pub(in crate::live) filter: FilterName,
    pub(in crate::live) set: Arc<LiveSet>,
    pub(in crate::live) access: Arc<WriteAccess>,
    pub(in crate::live) feed: FeedUrl,
    /// The file with the position; without a data folder a start reads the stream from its
    /// beginning.
    pub(in crate::live) file: Option<PathBuf>,
    pub(in crate::live) clock: Clock,
    warned: Mutex<Warned>,
    turn: Mutex<Turn>,
}

/// Who has read the stream before.
#[derive(Default)]
struct Turn {
    /// In which epoch of the lease the last session of this process began.
    epoch: LeaseEpoch,
    /// Whether another server may have read since.
    is_new: bool,
}

/// What is said once in a while.
#[derive(Default)]
struct Warned {
    at: Option<Instant>,
    skipped: u64,
}

/// Why a feed reads no further.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    #[error("{0}")]
    Stream(String),
    #[error("{0}")]
    Refused(String),
    #[error("cannot keep the position in {0}: {1}")]
    Position(String, std::io::Error),
    #[error("cannot read the position in {0}: {1}; move the file away to begin anew")]
    Unreadable(String, std::io::Error),
    /// Another server decides.
    #[error("another server decides")]
    NotDecider,
    /// The day's filter is not loaded: nobody knows what is new.
    #[error("the day's filter is not loaded yet")]
    NotLoaded,
}

/// The IDs of some messages, hashed.
pub(super) struct FeedIds {
    form: IdForm,
    hashes: Vec<u64>,
    skipped: u64,
}

impl FeedIds {
    /// Adds the ID of a message; `None` for one that has none.
    pub(super) fn push(&mut self, id: Option<&[u8]>) {
        match id.filter(|id| is_valid_len(id)) {
            Some(id) => self.hashes.push(hash_of(self.form, id)),
            None => self.skipped += 1,
        }
    }

    /// How many messages these are.
    #[cfg(feature = "kafka")]
    pub(super) fn len(&self) -> usize {
        self.hashes.len() + usize::try_from(self.skipped).unwrap_or(usize::MAX)
    }

    /// Messages that cannot be read.
    #[cfg(feature = "kafka")]
    pub(super) fn skip(&mut self, messages: u64) {
        self.skipped += messages;
    }
}

impl FeedReader {
    /// The feed of a set; `folder` is where the logs are.
    pub(in crate::live) fn new(
        context: TaskContext,
        feed: FeedUrl,
        folder: Option<&Path>,
    ) -> FeedReader {
        let TaskContext { filter, set, access, clock, .. } = context;
        let file = folder.map(|folder| folder.join(format!("{filter}.from")));
        let (warned, turn) = Default::default();
        FeedReader { filter, set, access, feed, file, clock, warned, turn }
    }

    /// Whether this server decides.
    pub(super) fn check(&self) -> Result<(), FeedError> {
        self.access.check().map_err(|_| FeedError::NotDecider)
    }

    /// Notes that a session begins.
    pub(super) fn begin_turn(&self) {
        let (epoch, mut turn) = (self.access.epoch(), lock(&self.turn));
        let is_same = epoch.is_some() && turn.epoch == epoch;
        // Also if sessions of this epoch ended before they had read anything.
        let is_new = self.access.role() == LiveRole::Standby && (!is_same || turn.is_new);
        *turn = Turn { epoch, is_new };
    }

    /// Notes that all of the stream is read by this server now.
    pub(super) fn take_turn(&self) {
        lock(&self.turn).is_new = false;
    }

    /// Whether another server may have read the stream since the session before this one: a standby
    /// that had to wait for the lease, or was just started, does not know.
    pub(super) fn may_take_over(&self) -> bool {
        lock(&self.turn).is_new
    }

    /// No IDs yet.
    pub(super) fn ids(&self) -> FeedIds {
        FeedIds { form: self.set.options().id_form, hashes: Vec::new(), skipped: 0 }
    }

    /// Adds IDs, and returns when they are as safe as promised.
    pub(super) async fn add(&self, ids: FeedIds) -> Result<(), FeedError> {
        let now = self.clock.now_ms();
        let mut last = None;
        for hashes in ids.hashes.chunks(MAX_ADDED) {
            let (ticket, added) = self.set.add_each(now, hashes, |_, _| ());
            added.map_err(|refusal| match refusal {
                SetError::ReadOnly(_) => FeedError::NotDecider,
                SetError::NotLoaded => FeedError::NotLoaded,
                other => FeedError::Refused(other.to_string()),
            })?;
            last = Some(ticket);
        }
        // It waits for those before it, too.
        if let Some(ticket) = last {
            ticket.wait().await.map_err(|why| FeedError::Refused(why.to_string()))?;
        }
        self.access.count_fed(ids.hashes.len() as u64, ids.skipped);
        self.warn(ids.skipped);
        Ok(())
    }

    /// Says once a minute that messages were skipped.
    fn warn(&self, skipped: u64) {
        let mut warned = lock(&self.warned);
        warned.skipped += skipped;
        let is_due = warned.at.is_none_or(|at| at.elapsed() >= WARN_INTERVAL);
        if warned.skipped > 0 && is_due {
            let (filter, name, skipped) = (&self.filter, self.feed.name(), warned.skipped);
            tracing::warn!(%filter, "{skipped} messages of {name} were skipped: they have no ID of 1 to 1,024 bytes where it should be, or are damaged");
            *warned = Warned { at: Some(Instant::now()), skipped: 0 };
        }
    }

    /// The position that was saved for the stream of this name. `None` only if there is none: to
    /// begin anew in place of one that cannot be read could lose messages.
    pub(super) fn saved_position(&self, name: &str) -> Result<Option<String>, FeedError> {
        let Some(file) = &self.file else { return Ok(None) };
        let unreadable = |error| FeedError::Unreadable(file.display().to_string(), error);
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(unreadable)?,
        };
        let damaged = || unreadable(ErrorKind::InvalidData.into());
        let (at, of) = text.trim().split_once(' ').ok_or_else(damaged)?;
        Ok((of == name).then(|| at.to_owned()))
    }

    /// Saves the position in the stream of this name, if there is a data folder.
    pub(super) async fn save_position(&self, name: &str, at: &str) -> Result<(), FeedError> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let failed = {
            let file = file.display().to_string();
            |error| FeedError::Position(file, error)
        };
        let text = format!("{at} {name}\n");
        // The thread of these tasks serves all filters, and must not wait for a disk.
        let write = move || atomic_file::write(&file, text.as_bytes(), |_| ());
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))).map_err(failed)
    }
}
