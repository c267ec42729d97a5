//! Segments of other logs, fetched from the store a few at a time.

use bloomsday_common::error::Error;
use bloomsday_common::key::SegmentKey;
use bloomsday_common::store::Store;
use bytes::Bytes;
use futures::{Stream, StreamExt};

/// How many segments are fetched at the same time: at most 16 MiB each.
pub(super) const MAX_CONCURRENT_FETCHES: usize = 8;

/// Fetches segments of a listing in its order, so many at the same time.
pub(super) fn fetch_all(
    store: &Store,
    keys: Vec<(SegmentKey, u64)>,
    concurrent: usize,
) -> impl Stream<Item = (SegmentKey, Result<Bytes, Error>)> + use<> {
    let store = store.clone();
    let fetches = futures::stream::iter(keys).map(move |(key, _)| {
        let store = store.clone();
        async move {
            let bytes = store.segment(&key).await;
            (key, bytes)
        }
    });
    fetches.buffered(concurrent)
}
