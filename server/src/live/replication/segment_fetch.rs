//! Segments of other logs: fetched from the store, and why one cannot be used.

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::SegmentKey;
use bloomsday_common::live::segment::SegmentError;
use bloomsday_common::store::Store;
use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::store_call::{CallError, in_time};

/// How many segments are fetched at the same time: at most 16 MiB each.
const MAX_CONCURRENT_FETCHES: usize = 8;

/// Why something was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error("{0}")]
    Store(#[from] CallError),
    #[error("{0} cannot be used: {1}; put back a sound copy; it is read again until then")]
    Damaged(String, String),
    #[error("{0}")]
    Incomplete(String),
    #[error("the frames {1} to {2} of the log {0:016x} are not in the store; it is read again")]
    Missing(u64, u64, u64),
    #[error("the limit on the memory of live filters is reached: raise it")]
    Memory,
    #[error("cannot read the log of this server: {0}")]
    OwnLog(String),
}

pub(super) async fn fetch(store: &Store, key: &SegmentKey) -> Result<Bytes, FollowError> {
    match in_time(store.segment(key)).await {
        Err(CallError::Store(error @ StoreError::TooManyBytes { .. })) => {
            Err(FollowError::Damaged(key.to_string(), error.to_string()))
        }
        other => Ok(other?),
    }
}

/// Fetches segments of a listing, in its order.
pub(super) fn fetch_all(
    store: &Store,
    keys: Vec<(SegmentKey, u64)>,
) -> impl Stream<Item = (SegmentKey, Result<Bytes, FollowError>)> + use<> {
    let store = store.clone();
    let fetches = futures::stream::iter(keys).map(move |(key, _)| {
        let store = store.clone();
        async move {
            let bytes = fetch(&store, &key).await;
            (key, bytes)
        }
    });
    fetches.buffered(MAX_CONCURRENT_FETCHES)
}

/// The error of a segment that cannot be used.
pub(super) fn damaged(key: &SegmentKey, why: &SegmentError) -> FollowError {
    FollowError::Damaged(key.to_string(), why.to_string())
}
