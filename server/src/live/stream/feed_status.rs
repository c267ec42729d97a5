//! [`FeedStatus`]: what is known of the stream that IDs are added from.

use std::time::Instant;

use serde::Serialize;

/// The stream that IDs are added from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FeedStatus {
    /// Its address, without user, password and options.
    pub from: String,
    /// How many IDs were read since the start, some of them more than once.
    pub read: u64,
    /// Messages since the start that had no ID, or could not be read.
    pub skipped: u64,
    /// Messages since the start that the stream dropped before they were read, at most.
    pub lost: u64,
    /// How many messages of a topic of Kafka are still to be read, as far as its partitions are
    /// known.
    pub behind: Option<u64>,
    /// Seconds since everything in the stream had been read. Absent where another server decides,
    /// and reads.
    pub lag_seconds: Option<f64>,
}

/// The same, while it is counted.
#[derive(Clone)]
pub(in crate::live) struct FeedState {
    name: String,
    pub(in crate::live) read: u64,
    pub(in crate::live) skipped: u64,
    pub(in crate::live) lost: u64,
    pub(in crate::live) behind: Option<u64>,
    pub(in crate::live) at_end: Instant,
}

impl FeedState {
    pub(in crate::live) fn new(name: String) -> FeedState {
        let (read, skipped, lost, behind) = (0, 0, 0, None);
        FeedState { name, read, skipped, lost, behind, at_end: Instant::now() }
    }

    /// What the status says, on a server that decides or does not.
    pub(in crate::live) fn status(&self, decides: bool) -> FeedStatus {
        let FeedState { name, read, skipped, lost, behind, at_end } = self.clone();
        let lag_seconds = decides.then(|| at_end.elapsed().as_secs_f64());
        FeedStatus { from: name, read, skipped, lost, behind, lag_seconds }
    }
}
