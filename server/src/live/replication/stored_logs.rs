//! [`StoredLogs`]: the segments of other servers, read once more. After a rollback a set needs again what it dropped
//! because a later day's filter has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::live::segment::{Frames, Op};
use bloomsday_common::store::Store;
use futures::StreamExt;

use crate::clock::Clock;
use crate::live::set::{OtherLogs, See};

/// The most time for it: the swap waits for it.
const MAX_TIME: Duration = Duration::from_secs(120);
/// How many segments are fetched at the same time: at most 16 MiB each.
const MAX_CONCURRENT_FETCHES: usize = 8;

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
    fn read_again(&self, see: See<'_>) -> Result<(), String> {
        // In the poller's runtime, which runs in the poller's thread and drives the connections to the store.
        let runtime = tokio::runtime::Handle::current();
        let read = runtime.block_on(async { tokio::time::timeout(MAX_TIME, self.read(see)).await });
        let too_long = |_| Err(format!("it takes longer than {} s", MAX_TIME.as_secs()));
        let read = read.unwrap_or_else(too_long);
        self.is_incomplete.fetch_or(read.is_err(), Ordering::Relaxed);
        read
    }
}

impl StoredLogs {
    async fn read(&self, see: See<'_>) -> Result<(), String> {
        let (store, clock) = (&self.store, &self.clock);
        let text = |error: StoreError| error.to_string();
        let (today, mut not_read) = (Day::of(clock.now()), None);
        let since = today.minus(u32::from(self.days) + 1);
        let nodes = store.head_nodes(&self.filter, Some(since)).await.map_err(text)?;
        for node in nodes.into_iter().filter(|node| Some(*node) != self.own) {
            let mut day = today.minus(u32::from(self.days));
            while day <= today.plus(1) {
                let keys = store.segments_of(&self.filter, day, node, None).await.map_err(text)?;
                let fetches: Vec<_> = keys
                    .into_iter()
                    .map(|(key, _)| {
                        let store = store.clone();
                        async move { (store.segment(&key).await, key) }
                    })
                    .collect();
                let mut fetched = futures::stream::iter(fetches).buffered(MAX_CONCURRENT_FETCHES);
                while let Some((bytes, key)) = fetched.next().await {
                    let bytes = match bytes {
                        Ok(bytes) => bytes,
                        // What follows it is needed, too.
                        Err(error) => {
                            not_read.get_or_insert(error.to_string());
                            continue;
                        }
                    };
                    let frames = match Frames::of_closed(&bytes) {
                        Ok((_, frames)) => frames,
                        Err(bad) => {
                            not_read.get_or_insert(format!("{key} cannot be used: {bad}"));
                            continue;
                        }
                    };
                    for frame in frames.map_while(Result::ok).filter(|frame| frame.op == Op::Add) {
                        let hashes: Vec<u64> = frame.hashes().collect();
                        see(frame.ms, &hashes)?;
                    }
                }
                day = day.plus(1);
            }
        }
        not_read.map_or(Ok(()), Err)
    }
}
