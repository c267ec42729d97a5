//! The history of a filter: one record an act.

use futures::{StreamExt, TryStreamExt};

use super::{Store, records};
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::HistoryEvent;
use crate::protocol::RecordState;

/// How many records of a history are read; older ones are left out.
const MAX_HISTORY: usize = 1000;

impl Store {
    /// Writes a history record. Writing the same act again, with its outcome, replaces it.
    ///
    /// # Errors
    /// The store's.
    pub async fn append_event(&self, filter: &FilterName, act: &HistoryEvent) -> Result<(), Error> {
        let digest = act.blob.as_ref().map(|blob| blob.digest);
        let key = key::history(filter, act.at, act.act.name(), digest);
        self.objects.put(&key, act.to_bytes().into()).await
    }

    /// The newest records of the history, newest first; at most 1,000, and none that is no record.
    ///
    /// # Errors
    /// The store's.
    pub async fn history(&self, filter: &FilterName) -> Result<Vec<HistoryEvent>, Error> {
        self.recent_history(filter, MAX_HISTORY).await
    }

    /// As [`Store::history`], but at most so many records.
    ///
    /// # Errors
    /// The store's.
    pub async fn recent_history(
        &self,
        filter: &FilterName,
        most: usize,
    ) -> Result<Vec<HistoryEvent>, Error> {
        let folder = key::histories(filter);
        let mut names = self.objects.names(&folder).await?;
        names.retain(|name| name.ends_with(".json"));
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.truncate(most.min(MAX_HISTORY));
        let records = futures::stream::iter(names)
            .map(|name| {
                let key = format!("{folder}/{name}");
                async move {
                    let read = records::read(&*self.records, &key, |bytes| {
                        HistoryEvent::parse(bytes, &key).map_err(|e| e.to_string())
                    });
                    match read.await?.state {
                        // Listed a moment ago: to leave it out could undo a rollback.
                        RecordState::Absent => {
                            let source = "it was listed, and is not there".into();
                            let gone = object_store::Error::Generic { store: "record", source };
                            Err(self.objects.error("read", &key, gone))
                        }
                        seen => Ok(seen.found().cloned()),
                    }
                }
            })
            .buffered(16);
        records.try_filter_map(|act| async move { Ok(act) }).try_collect().await
    }
}
