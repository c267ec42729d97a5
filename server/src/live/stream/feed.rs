//! [`Feeding`]: a stream of others in Redis → adds, while this process decides. At least once: the place in the
//! stream is kept in the data folder after the IDs are as safe as promised, so that a crash reads some again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::atomic_file;
use bloomsday_common::hash::{IdHash, Xxh3, is_valid_len};
use bloomsday_common::key::FilterName;
use redis::RedisError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::address::FeedUrl;
use super::read::{StreamEntry, connect_to, describe, entries_after, is_before, last_of};
use crate::clock::Clock;
use crate::live::role::Gate;
use crate::live::set::{LiveSet, Refusal};

/// How many entries are read at once.
const MAX_ENTRIES: usize = 1000;
/// The pause after a failure, and while another server decides.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the place is kept.
const KEEP_INTERVAL: Duration = Duration::from_millis(500);

/// The feed of one set.
pub(in crate::live) struct Feeding {
    pub(in crate::live) filter: FilterName,
    pub(in crate::live) set: Arc<LiveSet>,
    pub(in crate::live) gate: Arc<Gate>,
    pub(in crate::live) feed: FeedUrl,
    /// The file with the place; without a data folder a start reads the stream from its beginning.
    pub(in crate::live) file: Option<PathBuf>,
    pub(in crate::live) clock: Clock,
}

/// Why nothing is read.
#[derive(Debug, thiserror::Error)]
enum NotFed {
    #[error("{0}")]
    Redis(String),
    #[error("{0}")]
    Refused(String),
    #[error("cannot keep the place in {0}: {1}")]
    Place(String, std::io::Error),
    /// Another server decides.
    #[error("not now")]
    NotNow,
}

impl Feeding {
    pub(in crate::live) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut at = self.place();
        loop {
            let ended = tokio::select! {
                ended = self.session(&mut at) => ended,
                // What was added since the place was kept last is read again by the next start.
                _ = stopping.changed() => return,
            };
            match ended {
                Ok(()) | Err(NotFed::NotNow) => {}
                Err(error) => self.gate.engine_failed("feed", Some(error.to_string())),
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                _ = stopping.changed() => return,
            }
        }
    }

    /// Reads over one connection, until that fails, or another server decides.
    async fn session(&self, at: &mut String) -> Result<(), NotFed> {
        if self.gate.check().is_err() {
            return Err(NotFed::NotNow);
        }
        let stream = self.feed.stream();
        let mut redis = connect_to(self.feed.secret()).await.map_err(|e| self.failed(&e))?;
        let (mut kept, mut keep_due) = (at.clone(), Instant::now());
        loop {
            let entries = entries_after(&mut redis, stream, at, MAX_ENTRIES).await;
            let entries = entries.map_err(|e| self.failed(&e))?;
            if entries.is_empty() {
                let last = last_of(&mut redis, stream).await.map_err(|e| self.failed(&e))?;
                if is_before(&last, at) {
                    tracing::warn!(filter = %self.filter, "{} began anew: so does its reading", self.feed.name());
                    *at = "0-0".into();
                }
            }
            if let Some((last, _)) = entries.last() {
                self.add(&entries).await?;
                last.clone_into(at);
            }
            self.gate.engine_failed("feed", None);
            if *at != kept && keep_due <= Instant::now() {
                self.keep(at)?;
                (kept, keep_due) = (at.clone(), Instant::now() + KEEP_INTERVAL);
            }
        }
    }

    /// Adds the IDs of entries, and returns when they are as safe as promised.
    async fn add(&self, entries: &[StreamEntry]) -> Result<(), NotFed> {
        let (mut hashes, mut skipped) = (Vec::new(), 0);
        for (_, fields) in entries {
            let named = fields.iter().find(|(name, _)| name == b"id");
            let id = named.or(fields.first().filter(|_| fields.len() == 1));
            match id.filter(|(_, id)| is_valid_len(id)) {
                Some((_, id)) => hashes.push(Xxh3::of(id).0),
                None => skipped += 1,
            }
        }
        if skipped > 0 {
            let (filter, stream) = (&self.filter, self.feed.name());
            tracing::warn!(%filter, "{skipped} entries of {stream} have no field `id` of 1 to 1,024 bytes");
        }
        let now = u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0);
        let (ticket, added) = self.set.add_each(now, &hashes, |_, _| ());
        added.map_err(|refusal| match refusal {
            Refusal::ReadOnly(_) => NotFed::NotNow,
            other => NotFed::Refused(format!("IDs of {} are refused: {other:?}", self.feed.name())),
        })?;
        ticket.wait().await.map_err(|why| NotFed::Refused(why.to_string()))
    }

    /// The place that was kept for this stream; its beginning if there is none.
    fn place(&self) -> String {
        let text = self.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let kept = text.as_deref().and_then(|text| text.trim().split_once(' '));
        let kept = kept.filter(|(_, feed)| *feed == self.feed.name());
        kept.map_or("0-0".to_owned(), |(at, _)| at.to_owned())
    }

    fn keep(&self, at: &str) -> Result<(), NotFed> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = format!("{at} {}\n", self.feed.name());
        let written = atomic_file::write(file, text.as_bytes(), |_| ());
        written.map_err(|error| NotFed::Place(file.display().to_string(), error))
    }

    fn failed(&self, error: &RedisError) -> NotFed {
        NotFed::Redis(describe(&self.feed.name(), error))
    }
}
