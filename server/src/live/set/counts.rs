//! How much a set has, and what is known about it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{LiveSet, SetState};
use crate::live::lock::lock;
use crate::live::status::{LiveStatus, ShareStatus};

/// What a set takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) deleted: u64,
}

impl LiveSet {
    /// How far the time of the last change is in the future, in milliseconds.
    pub(in crate::live) fn clock_ahead_ms(&self, now: u64) -> u64 {
        lock(&self.state).last_ms.saturating_sub(now)
    }

    /// How many IDs are alive, the bytes of the table, and how many were deleted.
    pub(crate) fn size(&self, now: u64) -> Size {
        self.tick(now);
        let SetState { writer, deleted, .. } = &*lock(&self.state);
        let near = self.near(|near| (near.len(), near.bytes()));
        let (entries, bytes) = near.unwrap_or((writer.len(), 0));
        Size { entries, bytes: writer.bytes() + bytes, deleted: *deleted }
    }

    /// For `/status`, metrics and page.
    pub(crate) fn status(&self, now: u64) -> LiveStatus {
        let Size { entries, bytes, deleted } = self.size(now);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shipping = self.shipping.get();
        let access = self.access.get().map(|access| access.status());
        let ship_lag = shipping.map(|shipping| shipping.lag_seconds(now));
        let follows = access.as_ref().filter(|access| !access.decides);
        let follow_lag = follows.and_then(|access| access.lag_seconds(now));
        LiveStatus {
            entries,
            memory_bytes: bytes,
            added_new: count(&self.added.new),
            added_seen: count(&self.added.seen_live) + count(&self.added.seen_by_day),
            seen_by_day: count(&self.added.seen_by_day),
            domains: self.domains.as_ref().map_or_else(Vec::new, |domains| lock(domains).top()),
            deleted,
            confirmed: count(&self.absorb.confirmed),
            unconfirmed: count(&self.absorb.unconfirmed),
            absorbed_day: self.absorb.day(),
            clock_ahead_seconds: self.clock_ahead_ms(now) as f64 / 1e3,
            lag_seconds: ship_lag.into_iter().chain(follow_lag).reduce(f64::max),
            ship_lag_seconds: ship_lag,
            share: access.map(ShareStatus::of),
            segments: shipping.map_or(0, |shipping| shipping.segments()),
            ship_error: shipping.and_then(|shipping| shipping.error()),
        }
    }
}
