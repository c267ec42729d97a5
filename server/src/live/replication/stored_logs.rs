//! [`StoredLogs`]: the segments of other servers, read once more. After a rollback a set needs
//! again what it dropped because a later day's filter has it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::{FilterName, SegmentKey};
use bloomsday_common::live::segment::{Frames, Op};
use bloomsday_common::store::Store;
use bytes::Bytes;
use futures::StreamExt;

use super::segment_fetch::{MAX_CONCURRENT_FETCHES, fetch_all};
use crate::clock::Clock;
use crate::live::set::{AddVisitor, OtherLogs};

/// The most time for it: the swap waits for it.
const MAX_TIME: Duration = Duration::from_secs(120);

/// The segments of one filter in the store.
pub(in crate::live) struct StoredLogs {
    pub(in crate::live) filter: FilterName,
    pub(in crate::live) store: Store,
    pub(in crate::live) clock: Clock,
    /// The log of this process, which it reads itself.
    pub(in crate::live) own: Option<u64>,
    /// For how many days an ID is a hit.
    pub(in crate::live) days: u8,
    /// Set when not all could be read: who follows then begins anew.
    pub(in crate::live) is_incomplete: Arc<AtomicBool>,
}

impl OtherLogs for StoredLogs {
    fn for_each_add(&self, visit: AddVisitor<'_>) -> Result<(), String> {
        // In the poller's runtime, which runs in the poller's thread and drives the connections to
        // the store.
        let runtime = tokio::runtime::Handle::current();
        let read =
            runtime.block_on(async { tokio::time::timeout(MAX_TIME, self.read(visit)).await });
        let too_long = |_| Err(format!("it takes longer than {} s", MAX_TIME.as_secs()));
        let read = read.unwrap_or_else(too_long);
        self.is_incomplete.fetch_or(read.is_err(), Ordering::Relaxed);
        read
    }
}

impl StoredLogs {
    async fn read(&self, visit: AddVisitor<'_>) -> Result<(), String> {
        let (store, today) = (&self.store, Day::of(self.clock.now()));
        let text = |error: StoreError| error.to_string();
        let first = today.minus(u32::from(self.days));
        let nodes = store.head_nodes(&self.filter, Some(first.minus(1))).await.map_err(text)?;
        // What follows a segment that cannot be read is needed, too.
        let mut not_read = None;
        for node in nodes.into_iter().filter(|node| Some(*node) != self.own) {
            // The clock of another server may be ahead.
            for day in first.through(today.plus(1)) {
                let keys = store.segments_of(&self.filter, day, node, None).await.map_err(text)?;
                let mut fetched = pin!(fetch_all(store, keys, MAX_CONCURRENT_FETCHES));
                while let Some((key, bytes)) = fetched.next().await {
                    if let Err(why) = visit_adds(&key, bytes, visit)? {
                        not_read.get_or_insert(why);
                    }
                }
            }
        }
        not_read.map_or(Ok(()), Err)
    }
}

/// Visits what a segment adds. The inner error is of a segment that cannot be read, the outer one
/// the visitor's.
fn visit_adds(
    key: &SegmentKey,
    bytes: Result<Bytes, StoreError>,
    visit: AddVisitor<'_>,
) -> Result<Result<(), String>, String> {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let frames = match Frames::of_named(key, &bytes) {
        Ok((_, frames)) => frames,
        Err(why) => return Ok(Err(format!("{key} cannot be used: {why}"))),
    };
    for frame in frames.map_while(Result::ok).filter(|frame| frame.op == Op::Add) {
        let hashes: Vec<u64> = frame.hashes().collect();
        visit(frame.ms, &hashes)?;
    }
    Ok(Ok(()))
}
