//! [`ShipStatus`]: how far the log of a set is in the store, for the status.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bloomsday_common::key::FilterName;

use super::failure::is_another_failure;
use crate::live::lock::lock;

/// What is known of the shipping of a set.
pub(in crate::live) struct ShipStatus {
    /// What was changed before this time is in the store, in milliseconds since 1970; 0 for
    /// unknown.
    through_ms: AtomicU64,
    segments: AtomicU64,
    /// Whether the shipping has ended with nothing left.
    is_all_shipped: AtomicBool,
    error: Mutex<Option<String>>,
}

impl ShipStatus {
    pub(in crate::live) fn new(now_ms: u64) -> ShipStatus {
        ShipStatus {
            through_ms: AtomicU64::new(now_ms),
            segments: AtomicU64::new(0),
            is_all_shipped: AtomicBool::new(false),
            error: Mutex::default(),
        }
    }

    /// Seconds since everything was shipped that had been changed until then.
    pub(in crate::live) fn lag_seconds(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.through_ms.load(Ordering::Relaxed)) as f64 / 1e3
    }

    pub(in crate::live) fn segments(&self) -> u64 {
        self.segments.load(Ordering::Relaxed)
    }

    pub(in crate::live) fn error(&self) -> Option<String> {
        lock(&self.error).clone()
    }

    /// Remembers an error, and logs it if it is another one than before.
    pub(in crate::live) fn set_error(&self, filter: &FilterName, error: Option<String>) {
        let mut last = lock(&self.error);
        if let Some(why) = error.as_ref().filter(|why| is_another_failure(last.as_deref(), why)) {
            tracing::warn!(%filter, "live IDs are not in the store yet: {why}");
        }
        *last = error;
    }

    /// Everything that was changed before this time is in the store.
    pub(in crate::live) fn shipped_through(&self, ms: u64) {
        self.through_ms.fetch_max(ms, Ordering::Relaxed);
    }

    /// The shipping has ended, and nothing is left to ship.
    pub(in crate::live) fn shipped_all(&self) {
        self.is_all_shipped.store(true, Ordering::Relaxed);
    }

    pub(in crate::live) fn is_all_shipped(&self) -> bool {
        self.is_all_shipped.load(Ordering::Relaxed)
    }

    pub(in crate::live) fn shipped_segment(&self) {
        self.segments.fetch_add(1, Ordering::Relaxed);
    }
}
