//! What the logs of live IDs in the store say of one ID.

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::Serialize;

use super::Store;
use crate::day::Day;
use crate::error::Error;
use crate::key::{FilterName, SegmentKey};
use crate::live::segment::{ChangeOrder, Frames, Op};

/// How many segments are fetched at the same time.
const MAX_CONCURRENT_FETCHES: usize = 16;

/// The newest change of an ID in the logs of its filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveChange {
    /// When the ID was added or deleted.
    pub at: Timestamp,
    /// Whether it was deleted.
    pub deleted: bool,
    /// The log that says so.
    pub node: u64,
}

impl Store {
    /// The newest change of an ID, by its hash, in the segments of the `n` days up to `today`.
    ///
    /// Cost: it fetches all segments of a day, the newest day first, until one of them has the
    /// hash.
    ///
    /// # Errors
    /// [`Error::Segment`] for a damaged one; the store's.
    pub async fn live_change(
        &self,
        filter: &FilterName,
        today: Day,
        n: u32,
        hash: u64,
    ) -> Result<Option<LiveChange>, Error> {
        for back in 0..n {
            let keys = self.segments(filter, today.minus(back)).await?;
            let fetching = futures::stream::iter(keys.iter().map(|(key, _)| async move {
                let bytes = self.segment(key).await?;
                newest(key, &bytes, hash)
            }));
            let mut fetching = fetching.buffered(MAX_CONCURRENT_FETCHES);
            let mut last = None;
            while let Some(found) = fetching.try_next().await? {
                last = last.max(found);
            }
            if let Some((ChangeOrder { ms, node, .. }, deleted)) = last {
                let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
                return Ok(at.map(|at| LiveChange { at, deleted, node }));
            }
        }
        Ok(None)
    }
}

/// The newest change of a hash in a segment, and whether it is a deletion.
fn newest(key: &SegmentKey, bytes: &[u8], hash: u64) -> Result<Option<(ChangeOrder, bool)>, Error> {
    let (header, frames) = Frames::of_named(key, bytes)
        .map_err(|bad| Error::Segment { key: key.to_string(), why: bad.to_string() })?;
    let changes = frames.map_while(Result::ok).filter_map(|frame| {
        let deleted = match frame.op {
            Op::Add => false,
            Op::Delete => true,
            Op::Reserve | Op::Drop | Op::Expire => return None,
        };
        let mut hashes = frame.hashes();
        let is_there = hashes.any(|other| other == hash);
        is_there.then(|| (ChangeOrder::of(&header, &frame), deleted))
    });
    Ok(changes.max())
}
