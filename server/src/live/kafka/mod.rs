//! A consumer of Kafka, as far as a feed needs one: it finds a topic's partitions and reads them from their
//! leaders, from an offset that the caller keeps. No consumer groups, and nothing is written.
//!
//! | module | contents |
//! |---|---|
//! | `address` | `kafka://…`: brokers, topic, options |
//! | `wire` | numbers, texts and lists of the protocol |
//! | `message` | the four requests and their responses |
//! | `connection` | one connection to a broker: TLS, login, a request and its response |
//! | `scram` | a login that does not send the password |
//! | `batch` | the bytes of a partition → messages |
//! | `codec`, `crc` | the compressions and the checksum of a batch |
//!
//! The versions of the requests are those of Kafka 2.1, which later brokers take, too.

mod address;
mod batch;
mod codec;
mod connection;
mod crc;
mod message;
mod scram;
mod wire;

pub(super) use self::address::{KafkaUrl, Start, Where};
pub(super) use self::batch::batches;
pub(super) use self::connection::{Connection, NotRead};
pub(super) use self::message::{At, Broker, Metadata, PartitionRecords};
