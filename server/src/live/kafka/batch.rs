//! [`batches`]: the bytes of a partition → batches of messages. Messages of transactions that were aborted
//! are left out, as are the marks of their ends.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::codec::unpack;
use super::crc::crc32c;
use super::wire::{Malformed, Reader};

/// The offset and the length of a batch, which the length does not count.
const HEAD_BYTES: usize = 12;
/// The only format of batches since Kafka 0.11.
const MAGIC: i8 = 2;
/// In the attributes of a batch: the number of its compression.
const CODEC: i16 = 0b111;
/// It belongs to a transaction.
const TRANSACTIONAL: i16 = 1 << 4;
/// It marks the end of a transaction.
const CONTROL: i16 = 1 << 5;
/// The mark of one that was aborted.
const ABORT: i16 = 0;

/// A transaction that was aborted: its producer, and its first offset.
pub(crate) type Aborted = (i64, i64);

/// A batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch<'a> {
    /// The offset after its last message.
    pub(crate) next: i64,
    /// Its messages, still packed; `None` for what nobody reads.
    records: Option<Records<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Records<'a> {
    first: i64,
    count: i32,
    unpacked: Cow<'a, [u8]>,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) offset: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// A batch that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch at offset {first} cannot be read: {why}")]
pub(crate) struct Damaged {
    pub(crate) first: i64,
    /// The offset after it, as it says itself.
    pub(crate) next: i64,
    pub(crate) why: String,
}

/// The complete batches in these bytes, in order. The last one may be cut, and is left out then.
pub(crate) fn batches<'a>(
    bytes: &'a [u8],
    aborted: &[Aborted],
) -> impl Iterator<Item = Result<Batch<'a>, Damaged>> {
    let mut reader = Reader::new(bytes);
    let mut transactions = Transactions::of(aborted);
    std::iter::from_fn(move || {
        let mut head = reader;
        let first = head.i64().ok()?;
        let len = usize::try_from(head.i32().ok()?).ok();
        let damaged = |why: String| Damaged { first, next: first.saturating_add(1), why };
        let Some(len) = len else {
            // Nothing after it can be found.
            reader = Reader::new(&[]);
            return Some(Err(damaged("its length is negative".into())));
        };
        reader.take(HEAD_BYTES.checked_add(len)?).ok()?;
        let body = head.take(len).ok()?;
        Some(batch(first, body, &mut transactions))
    })
}

fn batch<'a>(
    first: i64,
    body: &'a [u8],
    transactions: &mut Transactions,
) -> Result<Batch<'a>, Damaged> {
    let mut next = first.saturating_add(1);
    let mut read = || -> Result<Batch<'a>, String> {
        let wrong = |malformed: Malformed| malformed.to_string();
        let mut reader = Reader::new(body);
        reader.i32().map_err(wrong)?;
        let magic = reader.i8().map_err(wrong)?;
        if magic != MAGIC {
            return Err(format!("its format is {magic}; Kafka 0.11 and later write {MAGIC}"));
        }
        let crc = reader.u32().map_err(wrong)?;
        if crc32c(reader.rest()) != crc {
            return Err("its checksum is not that of its bytes".into());
        }
        let attributes = reader.i16().map_err(wrong)?;
        let last = i64::from(reader.i32().map_err(wrong)?);
        next = first.saturating_add(last.max(0)).saturating_add(1);
        reader.take(16).map_err(wrong)?; // two times
        let producer = reader.i64().map_err(wrong)?;
        reader.take(6).map_err(wrong)?; // its epoch and sequence
        let count = reader.i32().map_err(wrong)?;
        let records = || -> Result<Records<'a>, String> {
            let unpacked = unpack(attributes & CODEC, reader.rest())?;
            Ok(Records { first, count, unpacked })
        };
        let is_aborted = transactions.is_aborted(producer, next);
        let records = if attributes & CONTROL != 0 {
            transactions.end(producer, &records()?).map_err(wrong)?;
            None
        } else if attributes & TRANSACTIONAL != 0 && is_aborted {
            None
        } else {
            Some(records()?)
        };
        Ok(Batch { next, records })
    };
    read().map_err(|why| Damaged { first, next, why })
}

impl Batch<'_> {
    /// Its messages, or why one of them and all after it cannot be read.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record<'_>, Malformed>> {
        self.records.iter().flat_map(Records::each)
    }
}

impl Records<'_> {
    fn each(&self) -> impl Iterator<Item = Result<Record<'_>, Malformed>> {
        let mut reader = Reader::new(&self.unpacked);
        let mut left = self.count;
        std::iter::from_fn(move || {
            left = left.checked_sub(1).filter(|left| *left >= 0)?;
            let read = record(self.first, &mut reader);
            if read.is_err() {
                left = 0;
            }
            Some(read)
        })
    }
}

fn record<'a>(first: i64, reader: &mut Reader<'a>) -> Result<Record<'a>, Malformed> {
    // Its headers end it, and nobody reads them.
    let body = reader.varbytes()?.ok_or(Malformed("a message"))?;
    let mut reader = Reader::new(body);
    reader.i8()?;
    reader.varint()?; // its time
    let offset = first.saturating_add(reader.varint()?);
    let (key, value) = (reader.varbytes()?, reader.varbytes()?);
    Ok(Record { offset, key, value })
}

/// Which producers' transactions were aborted, at the place that is read.
struct Transactions {
    /// By their first offsets, those that come.
    coming: BTreeMap<i64, Vec<i64>>,
    /// The producers of those that have begun.
    open: BTreeSet<i64>,
}

impl Transactions {
    fn of(aborted: &[Aborted]) -> Transactions {
        let mut coming: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (producer, first) in aborted {
            coming.entry(*first).or_default().push(*producer);
        }
        Transactions { coming, open: BTreeSet::new() }
    }

    /// Whether what a producer wrote before this offset, and after that of the batch before, was aborted.
    fn is_aborted(&mut self, producer: i64, before: i64) -> bool {
        let later = self.coming.split_off(&before);
        let begun = std::mem::replace(&mut self.coming, later);
        self.open.extend(begun.into_values().flatten());
        self.open.contains(&producer)
    }

    /// A mark: the transaction of a producer ends.
    fn end(&mut self, producer: i64, marks: &Records<'_>) -> Result<(), Malformed> {
        for mark in marks.each() {
            let mut key = Reader::new(mark?.key.unwrap_or_default());
            key.i16()?;
            if key.i16()? == ABORT {
                self.open.remove(&producer);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::Writer;
    use super::*;

    fn varint(to: &mut Writer, number: i64) {
        let mut number = ((number << 1) ^ (number >> 63)) as u64;
        while number >= 0x80 {
            to.bytes(&[number as u8 | 0x80]);
            number >>= 7;
        }
        to.bytes(&[number as u8]);
    }

    /// One message of a key and a value for each.
    fn written(first: i64, attributes: i16, producer: i64, all: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut records = Writer::default();
        for (i, (key, value)) in all.iter().enumerate() {
            let mut record = Writer::default();
            record.i8(0);
            varint(&mut record, 0);
            varint(&mut record, i as i64);
            for bytes in [key, value] {
                varint(&mut record, bytes.len() as i64);
                record.bytes(bytes);
            }
            varint(&mut record, 0);
            varint(&mut records, record.0.len() as i64);
            records.bytes(&record.0);
        }
        let mut summed = Writer::default();
        summed.i16(attributes).i32(all.len() as i32 - 1).i64(0).i64(0);
        summed.i64(producer).i16(0).i32(0).i32(all.len() as i32).bytes(&records.0);
        let mut batch = Writer::default();
        batch.i64(first).size(summed.0.len() + 9).i32(0).i8(MAGIC);
        batch.i32(crc32c(&summed.0) as i32).bytes(&summed.0);
        batch.0
    }

    fn values(bytes: &[u8], aborted: &[Aborted]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for batch in batches(bytes, aborted) {
            let batch = batch.unwrap();
            all.extend(batch.records().map(|record| record.unwrap().value.unwrap().to_vec()));
        }
        all
    }

    #[test]
    fn messages_have_the_offsets_that_their_batch_begins_with() {
        let batch = written(40, 0, -1, &[(b"k", b"one"), (b"", b"two")]);
        let both = [batch, written(42, 0, -1, &[(b"", b"three")])].concat();
        let read: Vec<_> = batches(&both, &[]).map(Result::unwrap).collect();
        assert_eq!(read.iter().map(|batch| batch.next).collect::<Vec<_>>(), [42, 43]);
        let offsets: Vec<_> =
            read.iter().flat_map(Batch::records).map(|r| r.unwrap().offset).collect();
        assert_eq!(offsets, [40, 41, 42]);
        assert_eq!(read[0].records().next().unwrap().unwrap().key, Some(&b"k"[..]));
        // Cut in the second one: the first is whole.
        assert_eq!(batches(&both[..both.len() - 1], &[]).count(), 1);
    }

    #[test]
    fn what_an_aborted_transaction_wrote_is_left_out_and_what_its_producer_writes_next_is_not() {
        let abort = (&[0, 0, 0, 0][..], &[][..]);
        let log = [
            written(0, TRANSACTIONAL, 7, &[(b"", b"aborted")]),
            written(1, TRANSACTIONAL, 8, &[(b"", b"of another")]),
            written(2, 0, -1, &[(b"", b"of none")]),
            written(3, TRANSACTIONAL | CONTROL, 7, &[abort]),
            written(4, TRANSACTIONAL, 7, &[(b"", b"next")]),
        ]
        .concat();
        assert_eq!(values(&log, &[(7, 0)]), [&b"of another"[..], b"of none", b"next"]);
        assert_eq!(values(&log, &[]).len(), 4);
    }

    #[test]
    fn a_flipped_bit_is_damage_and_what_follows_is_read() {
        let (one, two) = (written(5, 0, -1, &[(b"", b"one")]), written(6, 0, -1, &[(b"", b"two")]));
        for at in 21..one.len() {
            let mut bytes = [one.clone(), two.clone()].concat();
            bytes[at] ^= 1;
            let read: Vec<_> = batches(&bytes, &[]).collect();
            let damaged = read[0].as_ref().unwrap_err();
            assert_eq!((damaged.first, damaged.next), (5, 6), "{at}");
            assert!(damaged.why.contains("checksum"), "{at}: {damaged}");
            assert_eq!(read[1].as_ref().unwrap().next, 7);
        }
        let mut old = one.clone();
        old[16] = 1;
        let damaged = batches(&old, &[]).next().unwrap().unwrap_err();
        assert!(damaged.why.contains("0.11"), "{damaged}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), codec in 0_i16..6) {
            let read = |bytes: &[u8]| {
                for batch in batches(bytes, &[(1, 2)]).flatten() {
                    batch.records().for_each(drop);
                }
            };
            read(&bytes);
            // With a sound head around them.
            let mut summed = Writer::default();
            summed.i16(codec).i32(3).i64(0).i64(0).i64(1).i16(0).i32(0).i32(i32::MAX).bytes(&bytes);
            let mut batch = Writer::default();
            batch.i64(i64::MAX).size(summed.0.len() + 9).i32(0).i8(MAGIC);
            batch.i32(crc32c(&summed.0) as i32).bytes(&summed.0);
            read(&batch.0);
        }
    }
}
