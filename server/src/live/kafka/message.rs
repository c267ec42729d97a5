//! The requests that a feed sends, and their responses: [`Metadata`], offsets, and the messages of partitions.

use super::batch::Aborted;
use super::wire::{Malformed, Reader, Writer};

/// A kind of request, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Api {
    pub(super) key: i16,
    pub(super) version: i16,
    pub(super) name: &'static str,
}

pub(super) const FETCH: Api = Api { key: 1, version: 10, name: "Fetch" };
pub(super) const LIST_OFFSETS: Api = Api { key: 2, version: 2, name: "ListOffsets" };
pub(super) const METADATA: Api = Api { key: 3, version: 4, name: "Metadata" };
pub(super) const SASL_HANDSHAKE: Api = Api { key: 17, version: 1, name: "SaslHandshake" };
pub(super) const API_VERSIONS: Api = Api { key: 18, version: 0, name: "ApiVersions" };
pub(super) const SASL_AUTHENTICATE: Api = Api { key: 36, version: 0, name: "SaslAuthenticate" };

/// Messages of transactions that are not over are not sent.
const READ_COMMITTED: i8 = 1;
/// This client is no broker.
const NO_REPLICA: i32 = -1;
/// How long a broker waits for messages.
pub(super) const MAX_WAIT_MS: i32 = 500;
/// About how many bytes a response has at most.
const MAX_BYTES: i32 = 8 << 20;
/// About how many bytes of one partition. A larger batch comes whole all the same.
const MAX_PARTITION_BYTES: i32 = 1 << 20;

/// An end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Earliest,
    Latest,
}

/// Where a broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A cluster and the partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) cluster: String,
    pub(crate) brokers: Vec<(i32, Broker)>,
    /// The number of an error, or 0.
    pub(crate) error: i16,
    /// The partitions and their leaders.
    pub(crate) leaders: Vec<(i32, i32)>,
}

/// The offset at an end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) partition: i32,
    pub(crate) error: i16,
    pub(crate) offset: i64,
}

/// Messages of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecords<'a> {
    pub(crate) partition: i32,
    pub(crate) error: i16,
    /// The offset after the last message that can be read.
    pub(crate) end: i64,
    pub(crate) aborted: Vec<Aborted>,
    pub(crate) bytes: &'a [u8],
}

/// What comes before each request.
pub(super) fn header(api: Api, number: i32, client: &str) -> Writer {
    let mut header = Writer::default();
    header.i16(api.key).i16(api.version).i32(number).text(client);
    header
}

/// The first and the last version of each kind of request that a broker takes; an error's number.
pub(super) fn read_versions(body: &[u8]) -> Result<(i16, Vec<[i16; 3]>), Malformed> {
    let mut reader = Reader::new(body);
    let error = reader.i16()?;
    Ok((error, reader.list(|each| Ok([each.i16()?, each.i16()?, each.i16()?]))?))
}

pub(super) fn ask_metadata(topic: &str) -> Writer {
    let mut request = Writer::default();
    // A topic that is not there is not made.
    request.size(1).text(topic).i8(0);
    request
}

pub(super) fn read_metadata(body: &[u8]) -> Result<Metadata, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?; // for how long the broker has delayed the response
    let brokers = reader.list(|each| {
        let (node, host, port) = (each.i32()?, each.text()?, each.i32()?);
        each.text()?; // its rack
        let port = u16::try_from(port).map_err(|_| Malformed("a port"))?;
        Ok((node, Broker { host, port }))
    })?;
    let cluster = reader.text()?;
    reader.i32()?; // the controller
    let mut topics = reader.list(|each| {
        let error = each.i16()?;
        each.text()?;
        each.i8()?; // whether it is one of Kafka's own
        let leaders = each.list(|each| {
            each.i16()?; // a partition without a leader says so by that
            let (partition, leader) = (each.i32()?, each.i32()?);
            each.list(Reader::i32)?; // the replicas
            each.list(Reader::i32)?; // those in sync
            Ok((partition, leader))
        })?;
        Ok((error, leaders))
    })?;
    let (error, leaders) = topics.pop().ok_or(Malformed("a topic"))?;
    Ok(Metadata { cluster, brokers, error, leaders })
}

pub(super) fn ask_offsets(topic: &str, partitions: &[i32], at: At) -> Writer {
    let mut request = Writer::default();
    request.i32(NO_REPLICA).i8(READ_COMMITTED).size(1).text(topic).size(partitions.len());
    for partition in partitions {
        request.i32(*partition).i64(match at {
            At::Latest => -1,
            At::Earliest => -2,
        });
    }
    request
}

pub(super) fn read_offsets(body: &[u8]) -> Result<Vec<Offset>, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let topics = reader.list(|each| {
        each.text()?;
        each.list(|each| {
            let (partition, error) = (each.i32()?, each.i16()?);
            each.i64()?; // a time
            Ok(Offset { partition, error, offset: each.i64()? })
        })
    })?;
    Ok(topics.into_iter().flatten().collect())
}

/// Asks for messages of partitions from these offsets on.
pub(super) fn ask_records(topic: &str, from: &[(i32, i64)]) -> Writer {
    let mut request = Writer::default();
    request.i32(NO_REPLICA).i32(MAX_WAIT_MS).i32(1).i32(MAX_BYTES).i8(READ_COMMITTED);
    request.i32(0).i32(-1); // no session of fetches
    request.size(1).text(topic).size(from.len());
    for (partition, offset) in from {
        request.i32(*partition).i32(-1).i64(*offset).i64(-1).i32(MAX_PARTITION_BYTES);
    }
    request.size(0);
    request
}

/// The messages, and the number of an error or 0.
pub(super) fn read_records(body: &[u8]) -> Result<(i16, Vec<PartitionRecords<'_>>), Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let error = reader.i16()?;
    reader.i32()?;
    let topics = reader.list(|each| {
        each.text()?;
        each.list(|each| {
            let (partition, error) = (each.i32()?, each.i16()?);
            each.i64()?; // the end, without regard to transactions
            let end = each.i64()?;
            each.i64()?; // the beginning
            let aborted = each.list(|each| Ok((each.i64()?, each.i64()?)))?;
            let bytes = each.bytes()?.unwrap_or_default();
            Ok(PartitionRecords { partition, error, end, aborted, bytes })
        })
    })?;
    Ok((error, topics.into_iter().flatten().collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn metadata_is_read_as_a_broker_writes_it() {
        let mut body = Writer::default();
        body.i32(0).size(1).i32(1).text("kafka-1").i32(9092).i16(-1);
        body.text("cluster").i32(1).size(1).i16(0).text("clicks").i8(0);
        body.size(1).i16(5).i32(0).i32(-1).size(1).i32(1).size(0);
        let read = read_metadata(&body.0).unwrap();
        let broker = Broker { host: "kafka-1".into(), port: 9092 };
        let (cluster, brokers) = ("cluster".into(), vec![(1, broker)]);
        assert_eq!(read, Metadata { cluster, brokers, error: 0, leaders: vec![(0, -1)] });
        for cut in 0..body.0.len() {
            assert!(read_metadata(&body.0[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_response_panics(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_versions(&body);
            let _ = read_metadata(&body);
            let _ = read_offsets(&body);
            let _ = read_records(&body);
        }
    }
}
