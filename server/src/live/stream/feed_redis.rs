//! A stream of Redis as a feed: its entries in order, over one connection.

use std::fmt;

use redis::RedisError;
use tokio::time::Instant;

use super::address::RedisStream;
use super::feed::{FeedError, FeedReader, KEEP_INTERVAL};
use super::read::{StreamEntry, connect_to, describe, end_of, entries_after, is_before, most_next};
use crate::backoff::Backoff;
use crate::live::replication::access::StreamTask;

/// The most entries that are read at once.
const MAX_ENTRIES: usize = 1000;
/// The position before the first entry.
const BEGINNING: &str = "0-0";

/// How far a stream was read. In the file `NAME.from` it is the number of the entry, and after a
/// colon the count.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    /// The number of the last entry that was read.
    at: String,
    /// How many entries the stream had ever been given up to that one. Unknown before its end was
    /// reached once, and of a Redis before 7.0.
    count: Option<u64>,
}

impl Position {
    fn parse(text: &str) -> Position {
        match text.split_once(':') {
            Some((at, count)) => Position { at: at.to_owned(), count: count.parse().ok() },
            None => Position { at: text.to_owned(), count: None },
        }
    }

    /// At the end of the stream, which was given `added` entries so far: returns how many of them
    /// were dropped unread.
    fn reach_end(&mut self, added: u64) -> u64 {
        let lost = self.count.map_or(0, |count| added.saturating_sub(count));
        self.count = Some(added);
        lost
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at)?;
        self.count.map_or(Ok(()), |count| write!(f, ":{count}"))
    }
}

/// Reads over one connection, until that fails, or another server decides.
pub(super) async fn session(
    reader: &FeedReader,
    from: &RedisStream,
    position: &mut Option<String>,
    backoff: &mut Backoff,
) -> Result<(), FeedError> {
    reader.check()?;
    let name = reader.feed.name();
    let saved = match position {
        Some(saved) => saved,
        None => position.insert(reader.saved_position(&name)?.unwrap_or(BEGINNING.into())),
    };
    let mut now = Position::parse(saved);
    if reader.may_take_over() {
        // What another server has read since is not lost.
        now.count = None;
    }
    let failed = |error: RedisError| FeedError::Stream(describe(&name, &error));
    let mut redis = connect_to(&from.server).await.map_err(failed)?;
    let (mut kept, mut keep_due) = (now.clone(), Instant::now() + KEEP_INTERVAL);
    let mut most = 1;
    loop {
        let entries = entries_after(&mut redis, &from.stream, &now.at, most).await;
        let entries = entries.map_err(failed)?;
        let is_full = entries.len() >= most;
        most = most_next(most, &entries, MAX_ENTRIES);
        if let Some((last, _)) = entries.last() {
            add(reader, &entries).await?;
            last.clone_into(&mut now.at);
            now.count = now.count.map(|count| count + entries.len() as u64);
        }
        // On a busy stream, too, where a read rarely finds nothing.
        if !is_full && (entries.is_empty() || keep_due <= Instant::now()) {
            let end = end_of(&mut redis, &from.stream).await.map_err(failed)?;
            if is_before(&end.highest, &now.at) {
                tracing::warn!(filter = %reader.filter, "{name} began anew: so does its reading");
                now = Position { at: BEGINNING.into(), count: None };
            } else {
                reader.access.set_feed_at_end();
                // An entry that has come since is read first.
                if let Some(added) = end.added.filter(|_| !is_before(&now.at, &end.last)) {
                    let lost = now.reach_end(added);
                    note_lost(reader, &name, lost);
                }
            }
        }
        *saved = now.to_string();
        reader.take_turn();
        reader.access.set_stream_error(StreamTask::Feed, None);
        backoff.reset();
        if now != kept && keep_due <= Instant::now() {
            reader.save_position(&name, saved).await?;
            (kept, keep_due) = (now.clone(), Instant::now() + KEEP_INTERVAL);
        }
        reader.check()?;
    }
}

fn note_lost(reader: &FeedReader, name: &str, lost: u64) {
    if lost > 0 {
        reader.access.count_lost(lost);
        tracing::warn!(
            filter = %reader.filter,
            "{name}: up to {lost} entries were dropped before they were read: keep more of them (MAXLEN, MINID)"
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_back_also_one_without_a_count() {
        for position in [
            Position { at: "1700000000000-5".into(), count: Some(12) },
            Position { at: "0-0".into(), count: None },
        ] {
            assert_eq!(Position::parse(&position.to_string()), position);
        }
    }

    #[test]
    fn entries_that_were_dropped_unread_are_counted_once_the_end_is_known() {
        let mut position = Position { at: "5-0".into(), count: None };
        assert_eq!(position.reach_end(1_000), 0, "nobody knows how many came before");
        assert_eq!(position.reach_end(1_000), 0);
        position.count = position.count.map(|count| count + 10);
        assert_eq!(position.reach_end(1_500), 490);
        assert_eq!(position.reach_end(1_500), 0, "they are counted once");
    }
}
