//! The history of a filter: one record for each event.

use futures::{StreamExt, TryStreamExt};

use super::{Store, records};
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::{EventKind, HistoryEvent};
use crate::protocol::RecordState;
use crate::redact::sanitize;

/// How many records of a history are read; older ones are left out.
const MAX_HISTORY: usize = 1000;
/// The events that change pointers, or try to.
const POINTER_EVENTS: [EventKind; 2] = [EventKind::Build, EventKind::Repoint];
/// How many records are read at the same time.
const MAX_CONCURRENT_READS: usize = 16;

/// The newest records of a history, newest first.
#[derive(Debug, Default)]
pub struct HistoryRecords {
    /// Those that can be read.
    pub events: Vec<HistoryEvent>,
    /// The others.
    pub unreadable: Vec<UnreadableRecord>,
}

/// A record that cannot be read.
#[derive(Debug)]
pub struct UnreadableRecord {
    /// Its key in the store.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

impl Store {
    /// Writes a history record. Writing the same event again, with its outcome, replaces it.
    ///
    /// # Errors
    /// [`Error::RecordTooLong`]; the store's.
    pub async fn append_event(
        &self,
        filter: &FilterName,
        event: &HistoryEvent,
    ) -> Result<(), Error> {
        let digest = event.blob.as_ref().map(|blob| blob.digest);
        let key = key::history(filter, event.at, event.kind.name(), digest);
        let bytes = records::checked(&key, event.to_bytes())?;
        self.objects.put(&key, bytes).await
    }

    /// The newest records of the history, newest first: at most 1,000. Those that cannot be read
    /// are left out.
    ///
    /// Cost: a listing, and a read for each, 16 at a time.
    ///
    /// # Errors
    /// The store's.
    pub async fn history(&self, filter: &FilterName) -> Result<Vec<HistoryEvent>, Error> {
        self.recent_history(filter, MAX_HISTORY).await
    }

    /// As [`Store::history`], but only builds and repoints: what tells what pointers have named.
    /// Pins and prunes, of which there may be many, push none of them out.
    ///
    /// Cost: that of [`Store::history`].
    ///
    /// # Errors
    /// [`Error::Event`] for a record that cannot be read: without it a rollback could be undone.
    /// The store's.
    pub async fn pointer_history(&self, filter: &FilterName) -> Result<Vec<HistoryEvent>, Error> {
        let changes = |name: &str| POINTER_EVENTS.iter().any(|kind| is_of(name, *kind));
        let history = self.read_history(filter, MAX_HISTORY, changes).await?;
        match history.unreadable.into_iter().next() {
            Some(UnreadableRecord { key, why }) => Err(Error::Event { key, why: sanitize(&why) }),
            None => Ok(history.events),
        }
    }

    /// As [`Store::history`], with what cannot be read.
    ///
    /// # Errors
    /// The store's.
    pub async fn history_records(&self, filter: &FilterName) -> Result<HistoryRecords, Error> {
        self.read_history(filter, MAX_HISTORY, |_| true).await
    }

    /// As [`Store::history`], but at most `max` records, which costs as many reads.
    ///
    /// # Errors
    /// The store's.
    pub async fn recent_history(
        &self,
        filter: &FilterName,
        max: usize,
    ) -> Result<Vec<HistoryEvent>, Error> {
        Ok(self.read_history(filter, max, |_| true).await?.events)
    }

    /// Reads the newest records whose names are `wanted`.
    async fn read_history(
        &self,
        filter: &FilterName,
        max: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<HistoryRecords, Error> {
        let folder = key::histories(filter);
        let mut names = self.objects.names(&folder).await?;
        // Some file systems add files of their own, which begin with a dot.
        names.retain(|name| !name.starts_with('.') && name.ends_with(".json") && wanted(name));
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.truncate(max.min(MAX_HISTORY));
        let mut records = futures::stream::iter(names)
            .map(|name| {
                let key = format!("{folder}/{name}");
                async move {
                    let read = records::read(&*self.record_store, &key, HistoryEvent::parse);
                    match read.await?.state {
                        // It was listed a moment ago: leaving it out could undo a rollback.
                        RecordState::Absent => {
                            let source = "it was listed, and is not there".into();
                            let gone = object_store::Error::Generic { store: "record", source };
                            Err(self.objects.error("read", &key, gone))
                        }
                        state => Ok((key, state)),
                    }
                }
            })
            .buffered(MAX_CONCURRENT_READS);
        let mut history = HistoryRecords::default();
        while let Some((key, state)) = records.try_next().await? {
            match state {
                RecordState::Found(event) => history.events.push(event),
                RecordState::Unreadable(why) => {
                    history.unreadable.push(UnreadableRecord { key, why });
                }
                RecordState::Absent => {}
            }
        }
        Ok(history)
    }
}

/// Whether a record's name says that it is of such an event. See [`key::history`].
fn is_of(name: &str, kind: EventKind) -> bool {
    name.split('-').nth(1) == Some(kind.name())
}
