//! Fetches segments of other logs from the store.

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::SegmentKey;
use bloomsday_common::live::segment::SegmentError;
use bloomsday_common::store::Store;
use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::FollowError;
use crate::live::replication::store_call::{CallError, in_time};

/// How many segments are fetched at the same time: at most 16 MiB each.
const MAX_CONCURRENT_FETCHES: usize = 8;

pub(super) async fn fetch(store: &Store, key: &SegmentKey) -> Result<Bytes, FollowError> {
    match in_time(store.segment(key)).await {
        Err(CallError::Store(error @ StoreError::TooManyBytes { .. })) => {
            Err(FollowError::Damaged(key.to_string(), error.to_string()))
        }
        other => Ok(other?),
    }
}

/// Fetches segments of a listing, in its order.
pub(in crate::live::replication) fn fetch_all(
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
pub(in crate::live::replication) fn damaged(key: &SegmentKey, why: &SegmentError) -> FollowError {
    FollowError::Damaged(key.to_string(), why.to_string())
}
