//! Streams: the engine in Redis, which tells other servers at once what one adds; and feeds,
//! streams of others from which IDs are added. Without the features `redis-streams` and `kafka`
//! only the addresses, which are then refused.
//!
//! | module | contents |
//! |---|---|
//! | `address` | where an engine or a feed is |
//! | `publish` | a log → the engine |
//! | `read` | the engine → entries for who follows |
//! | `feed` | a stream of others → adds: what feeds have in common |
//! | `feed_run` | reads a stream for as long as a process runs |
//! | `feed_redis`, `feed_kafka` | the messages of a stream, in order |
//! | `json_field` | the ID in a message |
//! | `feed_status` | what is known of a feed, for people and metrics |
//! | `kafka_url`, `kafka_client`, `kafka_progress` | where a topic is; rdkafka, with the requests of a feed; how far it is read |

mod address;
#[cfg(any(feature = "redis-streams", feature = "kafka"))]
mod feed;
#[cfg(feature = "kafka")]
mod feed_kafka;
#[cfg(feature = "redis-streams")]
mod feed_redis;
#[cfg(any(feature = "redis-streams", feature = "kafka"))]
mod feed_run;
pub(super) mod feed_status;
#[cfg(feature = "kafka")]
mod json_field;
#[cfg(feature = "kafka")]
mod kafka_client;
#[cfg(feature = "kafka")]
mod kafka_progress;
#[cfg(feature = "kafka")]
mod kafka_url;
#[cfg(feature = "redis-streams")]
mod publish;
#[cfg(feature = "redis-streams")]
mod read;

pub use self::address::{EngineUrl, FeedUrl};
#[cfg(any(feature = "redis-streams", feature = "kafka"))]
pub(super) use self::feed::FeedReader;
#[cfg(feature = "redis-streams")]
pub(super) use self::publish::EnginePublisher;
#[cfg(feature = "redis-streams")]
pub(super) use self::read::EngineReader;

/// A segment that came by an engine.
pub(super) type Entry = Vec<u8>;

/// What is read of an engine.
#[cfg_attr(not(feature = "redis-streams"), allow(dead_code, reason = "nobody reads an engine"))]
pub(super) enum FromEngine {
    Entry(Entry),
    /// All that was in the engine at this moment came before this.
    End(tokio::time::Instant),
}
