//! What keeps a blob from a prune that runs at the same time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use super::{Store, records};
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, BlobKey, FilterName};
use crate::pointer::{EventKind, HistoryEvent, Outcome};
use crate::protocol::{self, Retention};

/// The longest wait for a prune. One that was killed never ends; what it had requested has then
/// been done, or never will be.
const MAX_PRUNE_WAIT: Duration = Duration::from_secs(600);
const PRUNE_POLL: Duration = Duration::from_secs(1);
/// A prune that began before that, and has no end in the history, was killed.
const MAX_PRUNE_AGE: SignedDuration = SignedDuration::from_hours(24);

impl Store {
    /// Refuses a blob that prune may be about to delete: nobody should point at it.
    ///
    /// # Errors
    /// [`Error::Expiring`]; the store's.
    pub async fn ensure_retained(&self, blob: &BlobKey, retention: Retention) -> Result<(), Error> {
        let now = Timestamp::now();
        let uploaded = self.blob_info(blob).await?.uploaded;
        if !protocol::is_near_deletion(uploaded, now, retention) {
            return Ok(());
        }
        let days = self.pointer_days(&blob.filter).await?;
        let dropped = protocol::pointers_to_drop(&days, Day::of(now), retention);
        let references = self.references(&blob.filter, &dropped).await?;
        if protocol::is_expiring(blob, uploaded, now, &references, retention) {
            let keep_days = retention.keep_days;
            return Err(Error::Expiring { key: blob.to_string(), uploaded, keep_days });
        }
        Ok(())
    }

    /// Checks that a blob is there after a record was made to name it. If it is of an old day, a
    /// prune that looked at it, or at an earlier upload of it, may still delete it: then this waits
    /// for the end of that prune.
    ///
    /// # Errors
    /// [`Error::NotFound`]; the store's.
    pub async fn check_survives_prune(
        &self,
        blob: &BlobKey,
        retention: Retention,
        waits: impl FnOnce(&str),
    ) -> Result<(), Error> {
        if protocol::may_be_old(blob.day, Day::of(Timestamp::now()), retention) {
            self.wait_for_prune(&blob.filter, waits).await?;
        }
        self.blob_info(blob).await?;
        Ok(())
    }

    /// Waits until no prune is under way, at most ten minutes: one that begins later sees what the
    /// caller did before. If there is one, `waits` is called once, with a sentence for people.
    ///
    /// # Errors
    /// The store's.
    pub async fn wait_for_prune(
        &self,
        filter: &FilterName,
        waits: impl FnOnce(&str),
    ) -> Result<(), Error> {
        let (began, now) = (Instant::now(), Timestamp::now());
        let mut waits = Some(waits);
        while began.elapsed() < MAX_PRUNE_WAIT {
            match self.prune_under_way(filter, now).await {
                Ok(None) => break,
                Ok(Some(prune)) => {
                    if let Some(waits) = waits.take() {
                        let minutes = MAX_PRUNE_WAIT.as_secs() / 60;
                        waits(&format!(
                            "waiting for the prune of {filter} that began at {prune:.0}, at most {minutes} minutes"
                        ));
                    }
                }
                // Nobody knows: as if there was one.
                Err(error) if error.is_transient() && waits.is_none() => {}
                Err(error) => return Err(error),
            }
            sleep(PRUNE_POLL).await;
        }
        Ok(())
    }

    /// When the newest prune began that is under way, as far as the history says. One that began a
    /// day before `now` was killed.
    async fn prune_under_way(
        &self,
        filter: &FilterName,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let folder = key::histories(filter);
        let oldest = key::history(filter, now - MAX_PRUNE_AGE, "", None);
        let mut keys = self.objects.names(&folder).await?;
        keys.iter_mut().for_each(|name| *name = format!("{folder}/{name}"));
        keys.retain(|key| *key >= oldest && key.contains(EventKind::Prune.name()));
        keys.sort_unstable_by(|a, b| b.cmp(a));
        for key in keys {
            let read = records::read(&*self.record_store, &key, HistoryEvent::parse).await?;
            let is_under_way = |event: &&HistoryEvent| {
                event.kind == EventKind::Prune && event.outcome == Outcome::Pending
            };
            if let Some(event) = read.state.found().filter(is_under_way) {
                return Ok(Some(event.at));
            }
        }
        Ok(None)
    }
}
