//! [`LiveStatus`]: what is known of the live IDs over a filter. `/status` returns it and the metrics are made
//! of it.

use bloomsday_common::day::Day;
use serde::Serialize;

use super::domains::DomainShare;

/// The live IDs over one filter, in this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LiveStatus {
    /// How many IDs are hits by themselves.
    pub entries: u64,
    /// The bytes of their table.
    pub bytes: u64,
    /// Adds since the start that were answered "new".
    pub added_new: u64,
    /// Adds since the start that were answered "seen".
    pub added_seen: u64,
    /// How many of those because of the day's filter: no live ID was there.
    pub seen_by_day: u64,
    /// Of a filter whose IDs are URLs, the domains that most adds since the start belong to, and the
    /// share of each: at most [`MAX_DOMAINS`](crate::live::MAX_DOMAINS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainShare>,
    /// IDs that were deleted since the start.
    pub deleted: u64,
    /// How many IDs the day's filter had, when it was last compared: they were dropped from memory.
    pub confirmed: u64,
    /// How many IDs the day's filter lacks and should have, when it was last compared: the day's input lost them.
    pub unconfirmed: u64,
    /// The day of the filter that they were last compared with.
    pub absorbed_day: Option<Day>,
    /// Seconds since everything that was changed until then has been in the store; absent when nothing is shipped.
    pub lag_seconds: Option<f64>,
    /// How many segments this process wrote to the store.
    pub segments: u64,
    /// Why the last segment could not be written; absent when it was.
    pub ship_error: Option<String>,
}
