//! Redis Streams: the engine, which tells other servers at once what one adds, and feeds, from which IDs are
//! added. Without the feature `redis` only the addresses, which are then refused.
//!
//! | module | contents |
//! |---|---|
//! | `address` | where an engine or a feed is |
//! | `publish` | a log → the engine |
//! | `read` | the engine → entries for who follows |
//! | `feed` | a stream of others → adds |

mod address;
#[cfg(feature = "redis")]
mod feed;
#[cfg(feature = "redis")]
mod publish;
#[cfg(feature = "redis")]
mod read;

pub use self::address::{EngineUrl, FeedUrl};
#[cfg(feature = "redis")]
pub(super) use self::feed::Feeding;
#[cfg(feature = "redis")]
pub(super) use self::publish::Publishing;
#[cfg(feature = "redis")]
pub(super) use self::read::Reading;

/// A segment that came by an engine.
pub(super) type Entry = Vec<u8>;
