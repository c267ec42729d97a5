//! A stream of Redis as a feed: its entries in order, over one connection.

use redis::RedisError;
use tokio::time::Instant;

use super::address::RedisStream;
use super::feed::{FeedError, FeedReader, KEEP_INTERVAL};
use super::read::{StreamEntry, connect_to, describe, entries_after, is_before, last_of};
use crate::backoff::Backoff;
use crate::live::replication::access::StreamTask;

/// How many entries are read at once.
const MAX_ENTRIES: usize = 1000;
/// The position before the first entry.
const BEGINNING: &str = "0-0";

/// Reads over one connection, until that fails, or another server decides.
pub(super) async fn session(
    reader: &FeedReader,
    from: &RedisStream,
    position: &mut Option<String>,
    backoff: &mut Backoff,
) -> Result<(), FeedError> {
    reader.check()?;
    let name = reader.feed.name();
    let at =
        position.get_or_insert_with(|| reader.saved_position(&name).unwrap_or(BEGINNING.into()));
    let failed = |error: RedisError| FeedError::Stream(describe(&name, &error));
    let mut redis = connect_to(&from.server).await.map_err(failed)?;
    let (mut kept, mut keep_due) = (at.clone(), Instant::now());
    loop {
        let entries = entries_after(&mut redis, &from.stream, at, MAX_ENTRIES).await;
        let entries = entries.map_err(failed)?;
        if entries.is_empty() {
            let last = last_of(&mut redis, &from.stream).await.map_err(failed)?;
            if is_before(&last, at) {
                tracing::warn!(filter = %reader.filter, "{name} began anew: so does its reading");
                *at = BEGINNING.into();
            } else {
                reader.access.set_feed_at_end();
            }
        }
        if let Some((last, _)) = entries.last() {
            add(reader, &entries).await?;
            last.clone_into(at);
        }
        reader.access.set_stream_error(StreamTask::Feed, None);
        backoff.reset();
        if *at != kept && keep_due <= Instant::now() {
            reader.save_position(&name, at)?;
            (kept, keep_due) = (at.clone(), Instant::now() + KEEP_INTERVAL);
        }
        reader.check()?;
    }
}

async fn add(reader: &FeedReader, entries: &[StreamEntry]) -> Result<(), FeedError> {
    let mut ids = reader.ids();
    for (_, fields) in entries {
        let named = fields.iter().find(|(name, _)| name == b"id");
        let id = named.or(fields.first().filter(|_| fields.len() == 1));
        ids.push(id.map(|(_, id)| &**id));
    }
    reader.add(ids).await
}
