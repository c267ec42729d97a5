//! [`LiveStatus`]: what is known of the live IDs over a filter. `/status` returns it and the metrics are made
//! of it.

use serde::Serialize;

/// The live IDs over one filter, in this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LiveStatus {
    /// How many IDs are hits by themselves.
    pub entries: u64,
    /// The bytes of their table.
    pub bytes: u64,
    /// Seconds since everything that was changed until then has been in the store; absent when nothing is shipped.
    pub lag_seconds: Option<f64>,
    /// How many segments this process wrote to the store.
    pub segments: u64,
    /// Why the last segment could not be written; absent when it was.
    pub ship_error: Option<String>,
}
