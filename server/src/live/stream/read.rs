//! [`EngineReader`]: the engine → entries for who follows. Entries that are lost on the way are
//! read from the store.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::redact::describe_source;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::FromEngine;
use super::address::EngineUrl;
use crate::live::replication::access::{StreamTask, WriteAccess};

/// How long connecting, and each response, may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a read waits for an entry, in milliseconds.
const BLOCK_MS: u64 = 1000;
/// The most entries that are read at once: each has at most 9 MiB.
const MAX_ENTRIES: usize = 16;
/// Fewer entries are read after a response of more bytes: entries of other writers have any size,
/// and a response has a deadline.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// An entry of a stream: its number, and its fields and values.
pub(super) type StreamEntry = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// The name of a filter's stream.
pub(super) fn stream(filter: &FilterName) -> String {
    format!("bloomsday:{filter}")
}

/// A new connection.
pub(super) async fn connect(engine: &EngineUrl) -> Result<MultiplexedConnection, RedisError> {
    connect_to(engine.secret()).await
}

pub(super) async fn connect_to(address: &str) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(DEADLINE))
        .set_response_timeout(Some(DEADLINE));
    Client::open(address)?.get_multiplexed_async_connection_with_config(&config).await
}

/// An error of Redis for people, without the password.
pub(super) fn describe(name: &str, error: &RedisError) -> String {
    format!("{name}: {}", describe_source(error))
}

/// The number of the last entry of a stream; `0-0` for none.
pub(super) async fn last_of(
    redis: &mut MultiplexedConnection,
    stream: &str,
) -> Result<String, RedisError> {
    let mut command = redis::cmd("XREVRANGE");
    command.arg(stream).arg("+").arg("-").arg("COUNT").arg(1);
    let found: Value = command.query_async(redis).await?;
    let Value::Array(entries) = found else { return Ok("0-0".into()) };
    let first = entries.into_iter().next().and_then(entry);
    Ok(first.map_or("0-0".into(), |(number, _)| number))
}

/// The end of a stream.
pub(super) struct StreamEnd {
    /// The number of its last entry; `0-0` for none.
    pub(super) last: String,
    /// The highest number that it ever gave, also to an entry that is gone.
    pub(super) highest: String,
    /// How many entries it was ever given; `None` where Redis does not say.
    pub(super) added: Option<u64>,
}

/// What the stream says of its end, both at one moment.
pub(super) async fn end_of(
    redis: &mut MultiplexedConnection,
    stream: &str,
) -> Result<StreamEnd, RedisError> {
    let mut command = redis::cmd("XINFO");
    command.arg("STREAM").arg(stream);
    // An error for a stream that is not there, or for a user who may not ask.
    let found: Result<Value, RedisError> = command.query_async(redis).await;
    let Ok(Value::Array(words)) = found else {
        let last = last_of(redis, stream).await?;
        return Ok(StreamEnd { highest: last.clone(), last, added: None });
    };
    let (pairs, _) = words.as_chunks();
    let field = |name: &str| {
        let is_it = |[word, _]: &&[Value; 2]| matches!(word, Value::BulkString(word) if word == name.as_bytes());
        pairs.iter().find(is_it).map(|[_, value]| value.clone())
    };
    let last = field("last-entry").and_then(entry).map(|(number, _)| number);
    let added = match field("entries-added") {
        Some(Value::Int(added)) => u64::try_from(added).ok(),
        _ => None,
    };
    let last = last.unwrap_or("0-0".into());
    let highest = match field("last-generated-id") {
        Some(Value::BulkString(number)) => String::from_utf8_lossy(&number).into_owned(),
        _ => last.clone(),
    };
    Ok(StreamEnd { last, highest, added })
}

/// The entries after a number, at most `count`: waits a second for the first.
pub(super) async fn entries_after(
    redis: &mut MultiplexedConnection,
    stream: &str,
    after: &str,
    most: usize,
) -> Result<Vec<StreamEntry>, RedisError> {
    let mut command = redis::cmd("XREAD");
    command.arg("COUNT").arg(most).arg("BLOCK").arg(BLOCK_MS);
    command.arg("STREAMS").arg(stream).arg(after);
    let found: Value = command.query_async(redis).await?;
    // An array of pairs: the name of a stream, and its entries.
    let Value::Array(streams) = found else { return Ok(Vec::new()) };
    let entries = streams.into_iter().filter_map(|stream| match stream {
        Value::Array(pair) => pair.into_iter().nth(1),
        _ => None,
    });
    let entries = entries.flat_map(|entries| match entries {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    });
    Ok(entries.filter_map(entry).collect())
}

fn entry(value: Value) -> Option<StreamEntry> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let Some(Value::BulkString(number)) = parts.next() else { return None };
    let number = String::from_utf8(number).ok()?;
    let mut words = match parts.next() {
        Some(Value::Array(words)) => words.into_iter(),
        // An entry that was deleted meanwhile.
        _ => return Some((number, Vec::new())),
    };
    let mut fields = Vec::new();
    while let (Some(Value::BulkString(name)), Some(Value::BulkString(value))) =
        (words.next(), words.next())
    {
        fields.push((name, value));
    }
    Some((number, fields))
}

/// How many entries are read after these, of which `most` were to be read. A connection begins with
/// one, so that each makes some progress before its first deadline that passes.
pub(super) fn most_next(most: usize, entries: &[StreamEntry], limit: usize) -> usize {
    let fields = entries.iter().flat_map(|(_, fields)| fields);
    let bytes: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_RESPONSE_BYTES { (most / 2).max(1) } else { (most * 2).min(limit) }
}

/// Whether the number of an entry is before another one.
pub(super) fn is_before(number: &str, other: &str) -> bool {
    let parse = |text: &str| {
        let (ms, n) = text.split_once('-').unwrap_or((text, "0"));
        (ms.parse::<u64>().unwrap_or(0), n.parse::<u64>().unwrap_or(0))
    };
    parse(number) < parse(other)
}

/// The reading of one filter's stream.
pub(in crate::live) struct EngineReader {
    pub(in crate::live) filter: FilterName,
    pub(in crate::live) access: Arc<WriteAccess>,
    pub(in crate::live) engine: EngineUrl,
    /// Where segments go, and when all were read.
    pub(in crate::live) to: mpsc::Sender<FromEngine>,
}

impl EngineReader {
    /// Reads, over one connection after the other.
    pub(in crate::live) async fn run(self) {
        let mut after = None;
        loop {
            if let Err(error) = self.session(&mut after).await {
                let why = describe(&self.engine.name(), &error);
                self.access.set_stream_error(StreamTask::Read, Some(why));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads over one connection, until that fails.
    async fn session(&self, after: &mut Option<String>) -> Result<(), RedisError> {
        let stream = stream(&self.filter);
        let mut redis = connect(&self.engine).await?;
        let last = last_of(&mut redis, &stream).await?;
        let mut at = match after.take() {
            // All that is there: a server that ended a moment ago may not have written it to the
            // store.
            None => "0-0".to_owned(),
            // The stream was lost, and began anew.
            Some(before) if is_before(&last, &before) => "0-0".to_owned(),
            Some(before) => before,
        };
        let mut most = 1;
        loop {
            *after = Some(at.clone());
            let began = Instant::now();
            let entries = entries_after(&mut redis, &stream, &at, most).await?;
            self.access.set_stream_error(StreamTask::Read, None);
            if entries.is_empty() && is_before(&last_of(&mut redis, &stream).await?, &at) {
                at = "0-0".to_owned();
                continue;
            }
            let is_end = entries.len() < most;
            most = most_next(most, &entries, MAX_ENTRIES);
            for (number, fields) in entries {
                at = number;
                for (_, segment) in fields.into_iter().filter(|(name, _)| name == b"segment") {
                    // Who follows is slower than the engine: wait.
                    let _ = self.to.send(FromEngine::Entry(segment)).await;
                }
            }
            if is_end {
                let _ = self.to.send(FromEngine::End(began)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_compared_by_time_and_number() {
        for (one, other) in [("9-1", "10-0"), ("10-0", "10-1"), ("10-9", "10-10"), ("0-0", "1-0")] {
            assert!(is_before(one, other) && !is_before(other, one), "{one} {other}");
            assert!(!is_before(one, one));
        }
    }

    #[test]
    fn fewer_entries_are_read_at_once_when_they_are_large() {
        let large = vec![("1-0".to_owned(), vec![(b"id".to_vec(), vec![0; MAX_RESPONSE_BYTES])])];
        let small = vec![("1-0".to_owned(), vec![(b"id".to_vec(), b"a".to_vec())])];
        assert_eq!(most_next(1, &small, 1000), 2);
        assert_eq!(most_next(1000, &small, 1000), 1000);
        assert_eq!(most_next(600, &large, 1000), 300);
        assert_eq!(most_next(1, &large, 1000), 1);
    }
}
