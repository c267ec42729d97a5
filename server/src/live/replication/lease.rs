//! [`LeaseRenewer`]: takes the lease of one set, renews it, and gives it back at the end. [`claim`]
//! makes the decision; who holds the lease may change the set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::live::lease::{Candidate, Claim, Lease, claim};
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::{SeenVersion, Store};
use jiff::Timestamp;
use tokio::sync::watch;

use super::access::WriteAccess;
use super::task_context::TaskContext;
use crate::clock::Clock;
use crate::live::set::LiveSet;

/// A lease is renewed this many times in its length.
const RENEWALS: u32 = 3;
/// After a failure it is tried again this many times in its length.
const RETRIES: u32 = 10;

/// The keeper of one set's lease.
pub(in crate::live) struct LeaseRenewer {
    filter: FilterName,
    access: Arc<WriteAccess>,
    store: Store,
    server: String,
    node: String,
    length: Duration,
    clock: Clock,
    /// Whose lease it is. It is left to others when the log of this set turns out to be an older
    /// copy, and kept to its end when not all of that log is in the store.
    set: Arc<LiveSet>,
    own_epoch: Option<u64>,
    /// What was read last, and since when it has been the same.
    seen: Option<(SeenVersion, Instant)>,
}

/// Who holds a lease: a server's name, for people, and the number of its log.
pub(in crate::live) struct Holder {
    pub(in crate::live) server: String,
    pub(in crate::live) node: u64,
}

impl LeaseRenewer {
    pub(in crate::live) fn new(
        context: TaskContext,
        holder: Holder,
        length: Duration,
    ) -> LeaseRenewer {
        let TaskContext { filter, set, access, store, clock } = context;
        let node = format!("{:016x}", holder.node);
        // People read it in errors: a server without a name has the number of its log there.
        let server = if holder.server.is_empty() { node.clone() } else { holder.server };
        let (own_epoch, seen) = (None, None);
        LeaseRenewer { filter, access, store, server, node, length, clock, set, own_epoch, seen }
    }

    /// Keeps the lease until `stopping`, then gives it back.
    pub(in crate::live) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        loop {
            let turn = tokio::time::timeout(self.length / RENEWALS, self.acquire_or_renew()).await;
            let failed = match turn {
                Ok(turn) => turn.err().map(|error| error.to_string()),
                Err(_) => Some("the store does not answer".to_owned()),
            };
            let parts = if failed.is_some() { RETRIES } else { RENEWALS };
            failed.into_iter().for_each(|why| self.access.lease_failed(why));
            let pause = self.length / parts;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = stopping.changed() => {
                    // A successor would take what is not in the store for new. A start on the same
                    // data folder knows it, and has the same lease.
                    if changed.is_ok() && (self.is_of_older_copy() || self.set.is_all_shipped()) {
                        let _ = tokio::time::timeout(pause, self.give_back()).await;
                    }
                    return;
                }
            }
        }
    }

    fn is_of_older_copy(&self) -> bool {
        self.set.log().is_some_and(|log| log.is_older_copy())
    }

    /// Reads the lease, and takes or renews it if that may be.
    async fn acquire_or_renew(&mut self) -> Result<(), StoreError> {
        // Nothing of such a log is shipped any more: no successor has to wait for that.
        if self.is_of_older_copy() {
            if self.own_epoch.is_some() {
                return self.give_back().await;
            }
            let there = self.store.lease(&self.filter).await?.state;
            let other = there.found().filter(|lease| lease.node != self.node);
            self.access.lease_not_acquired(other.cloned());
            return Ok(());
        }
        // From before the write: the store may take it at once, and answer late.
        let began = Instant::now();
        let there = self.store.lease(&self.filter).await?;
        let since = match &self.seen {
            Some((seen, since)) if *seen == there.version => *since,
            // From after the read: the holder may have renewed it while this waited for the answer.
            _ => self.seen.insert((there.version.clone(), Instant::now())).1,
        };
        let now = self.clock.now();
        let unchanged = began.saturating_duration_since(since);
        let by = Candidate { node: &self.node, own_epoch: self.own_epoch, unchanged };
        let epoch = match claim(&there.state, by, now) {
            Claim::Write { epoch } => epoch,
            Claim::Wait(lease) => {
                self.own_epoch = None;
                match &there.state {
                    RecordState::Unreadable(why) => self.access.lease_unreadable(why),
                    _ => self.access.lease_not_acquired(lease.cloned()),
                }
                return Ok(());
            }
        };
        let lease = self.lease(epoch, now.saturating_add(self.length).unwrap_or(Timestamp::MAX));
        match self.store.put_lease(&self.filter, &lease, &there.version).await {
            Ok(()) => {
                self.own_epoch = Some(epoch);
                self.access.lease_acquired(lease, began + self.length);
                Ok(())
            }
            Err(StoreError::Changed { .. }) => {
                // Another one was faster; the next turn says who.
                self.own_epoch = None;
                let there = self.store.lease(&self.filter).await?.state;
                self.access.lease_not_acquired(there.found().cloned());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn lease(&self, epoch: u64, until: Timestamp) -> Lease {
        let (decider, node) = (self.server.clone(), self.node.clone());
        // Rounded up: nobody may take it before this process stops.
        let seconds = self.length.as_secs() + u64::from(self.length.subsec_nanos() > 0);
        Lease { decider, node, epoch, until, seconds: seconds.max(1) }
    }

    /// Ends the lease now, so that a successor need not wait.
    async fn give_back(&mut self) -> Result<(), StoreError> {
        let Some(own_epoch) = self.own_epoch else { return Ok(()) };
        // Before the write: another process may take the lease at once.
        self.access.stop_deciding();
        let there = self.store.lease(&self.filter).await?;
        let is_ours = |lease: &Lease| lease.node == self.node && lease.epoch == own_epoch;
        if there.state.found().is_some_and(is_ours) {
            let lease = self.lease(own_epoch, self.clock.now());
            self.store.put_lease(&self.filter, &lease, &there.version).await?;
        }
        // Not before: what failed is tried again.
        self.own_epoch = None;
        self.access.lease_not_acquired(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::options::{Kind, Options};
    use crate::live::replication::role::LiveRole;
    use crate::live::{Key, Live, LiveConfig};

    #[test]
    fn a_lease_names_its_holder_and_is_no_shorter_than_the_holder_counts() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::create(folder.path().to_str().unwrap()).unwrap();
        let live = Live::open(LiveConfig::new(None)).unwrap();
        let key = Key { database: 0, name: b"rt".as_slice().into() };
        let set = live.make(&key, Options::of(Kind::Set), live.now()).unwrap();
        let filter: FilterName = "rt".parse().unwrap();
        let access = Arc::new(WriteAccess::new(filter.clone(), LiveRole::Decide, true));
        let context = TaskContext { filter, set, access, store, clock: Clock::system() };
        for (name, length_ms, stated) in [("", 1_900, 2), ("west-3", 3_000, 3)] {
            let holder = Holder { server: name.to_owned(), node: 0x1f };
            let length = Duration::from_millis(length_ms);
            let renewer = LeaseRenewer::new(context.clone(), holder, length);
            let lease = renewer.lease(1, Timestamp::MAX);
            let named = if name.is_empty() { "000000000000001f" } else { name };
            assert_eq!((lease.decider.as_str(), lease.seconds), (named, stated));
        }
    }
}
