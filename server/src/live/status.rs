//! [`LiveStatus`]: what is known of the live IDs over a filter, and [`LayerStatus`], of all live
//! filters of a process. `/status` returns both and the metrics are made of them.

use bloomsday_common::day::Day;
use bloomsday_common::live::lease::Lease;
use serde::Serialize;

use super::memory::domains::DomainShare;
use super::replication::access::AccessStatus;
use super::replication::role::LiveRole;
use super::stream::feed_status::FeedStatus;

/// The live IDs over one filter, in this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LiveStatus {
    /// How many IDs are hits by themselves.
    pub entries: u64,
    /// The bytes of their table.
    pub memory_bytes: u64,
    /// Adds since the start that were answered "new".
    pub added_new: u64,
    /// Adds since the start that were answered "seen".
    pub added_seen: u64,
    /// How many of those because of the day's filter: no live ID was there.
    pub seen_by_day: u64,
    /// Of a filter whose IDs are URLs, the domains that most adds since the start belong to, and
    /// the share of each: at most [`MAX_DOMAINS`](crate::live::MAX_DOMAINS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainShare>,
    /// IDs that were deleted since the start.
    pub deleted: u64,
    /// How many IDs the day's filter had, when it was last compared: they were dropped from memory.
    pub confirmed: u64,
    /// How many IDs the day's filter lacks and should have, when it was last compared: the day's
    /// input lost them.
    pub unconfirmed: u64,
    /// The day of the filter that they were last compared with.
    pub absorbed_day: Option<Day>,
    /// Seconds by which the time of this server's last change is ahead of its clock: until then all
    /// its adds get that time. More than a moment only after a clock that was wrong.
    pub clock_ahead_seconds: f64,
    /// Seconds since everything that was changed until then has been in the store; where another
    /// server decides, here. Absent when nothing is shared.
    pub lag_seconds: Option<f64>,
    /// Seconds since everything that this server added until then has been in the store; absent
    /// when it writes none there.
    pub ship_lag_seconds: Option<f64>,
    /// How many segments this process wrote to the store.
    pub segments: u64,
    /// Why the last segment could not be written; absent when it was.
    pub ship_error: Option<String>,
    /// What this server does with the IDs of others, and who decides.
    #[serde(flatten)]
    pub share: Option<ShareStatus>,
}

/// The live layer of a process: its memory, its logs, and the filters that Redis clients made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LayerStatus {
    /// The memory of all live filters, in bytes.
    pub memory_used_bytes: u64,
    /// The limit on that memory: adds beyond it are refused.
    pub memory_limit_bytes: u64,
    /// Why a log cannot be written or synced, so that adds to its filter are refused; absent when
    /// all can.
    pub log_error: Option<String>,
    /// How many filters Redis clients made.
    pub client_filters: usize,
    /// Those with the most IDs: at most [`MAX_LISTED_FILTERS`](crate::live::MAX_LISTED_FILTERS).
    pub largest: Vec<ClientFilterStatus>,
}

/// A filter that Redis clients made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClientFilterStatus {
    /// Its database.
    pub database: u8,
    /// Its key; what is not UTF-8 is replaced.
    pub filter: String,
    /// How many IDs it has.
    pub entries: u64,
    /// The bytes of their table.
    pub memory_bytes: u64,
    /// Adds since the start that were answered "new".
    pub added_new: u64,
    /// Adds since the start that were answered "seen".
    pub added_seen: u64,
}

/// How many filters of Redis clients a status lists.
pub const MAX_LISTED_FILTERS: usize = 100;

/// How this server shares the live IDs of one filter with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShareStatus {
    /// What it is configured to do.
    pub role: LiveRole,
    /// Whether it takes IDs now, and so decides which are new.
    pub decides: bool,
    /// Which server decides, and until when, as far as this one knows. Around a change two may
    /// decide, for at most the length of the lease.
    pub lease: Option<Lease>,
    /// Why the lease could not be read, taken or renewed; absent when it could.
    pub lease_error: Option<String>,
    /// How many logs of other servers are followed.
    pub followed_logs: usize,
    /// How many of their segments were read since the start.
    pub followed_segments: u64,
    /// Why not all that others added is here; absent when all is.
    pub follow_error: Option<String>,
    /// What is wrong with the engine, or the stream that IDs are added from; absent when nothing
    /// is.
    pub engine_error: Option<String>,
    /// The stream that IDs are added from; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedStatus>,
}

impl ShareStatus {
    pub(super) fn of(access: AccessStatus) -> ShareStatus {
        let AccessStatus { role, decides, lease, lease_error, follow_error, engine_error, .. } =
            access;
        let (segments, logs, feed) = (access.segments, access.logs, access.feed);
        ShareStatus {
            role,
            decides,
            lease,
            lease_error,
            followed_logs: logs,
            followed_segments: segments,
            follow_error,
            engine_error,
            feed,
        }
    }
}

impl AccessStatus {
    /// Seconds since all that others changed until then has been here. Before the first of it:
    /// since the start if it cannot be read, else unknown.
    pub(super) fn lag_seconds(&self, now_ms: u64) -> Option<f64> {
        let lag = match self.through_ms {
            0 => self.follow_error.is_some().then_some(self.running_ms)?,
            through => now_ms.saturating_sub(through),
        };
        Some(lag as f64 / 1e3)
    }
}
