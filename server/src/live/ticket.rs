//! [`Ticket`]: what the answer to a change waits for.

use std::sync::Arc;

use super::log::Log;
use super::replication::access::{LeaseEpoch, WriteAccess};

/// Waits until a change is as safe as promised.
#[must_use]
pub(crate) struct Ticket(Option<PendingChange>);

/// A change in a log.
struct PendingChange {
    log: Arc<Log>,
    /// The number of its last frame.
    seq: u64,
    /// The lease under which it was made, if it is to be in the store or an engine before it is
    /// answered.
    lease: Option<(Arc<WriteAccess>, LeaseEpoch)>,
}

impl Ticket {
    /// Nothing to wait for.
    pub(crate) const NONE: Ticket = Ticket(None);

    /// Waits for the frames of a log up to a number. `access` is that of a set that is shared.
    pub(super) fn of(log: &Arc<Log>, seq: u64, access: Option<&Arc<WriteAccess>>) -> Ticket {
        let access = access.filter(|_| log.is_shipped_before_answers());
        let lease = access.map(|access| (access.clone(), access.epoch()));
        Ticket(Some(PendingChange { log: log.clone(), seq, lease }))
    }

    /// Whether `later` is a ticket of the same log, so that to wait for it is enough.
    pub(crate) fn is_covered_by(&self, later: &Ticket) -> bool {
        match (&self.0, &later.0) {
            (Some(one), Some(other)) => {
                let epoch = |change: &PendingChange| change.lease.as_ref().map(|(_, epoch)| *epoch);
                Arc::ptr_eq(&one.log, &other.log) && epoch(one) == epoch(other)
            }
            (None, _) => true,
            _ => false,
        }
    }

    /// Waits for as much as is promised.
    pub(crate) async fn wait(self) -> Result<(), Arc<str>> {
        let Some(PendingChange { log, seq, lease }) = self.0 else { return Ok(()) };
        log.wait(seq).await?;
        // Another server may have taken the lease meanwhile without having read this change, and
        // may have answered for the same ID.
        lease.map_or(Ok(()), |(access, epoch)| access.check_epoch(epoch))
    }

    /// Waits until it is synced, whatever is promised.
    pub(crate) async fn wait_synced(self) -> Result<(), Arc<str>> {
        match self.0 {
            Some(PendingChange { log, seq, .. }) => log.wait_synced(seq).await,
            None => Ok(()),
        }
    }
}
