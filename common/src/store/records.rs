//! [`RecordStore`]: where small records live (pointers, pins), and how they are written
//! conditionally.
//!
//! The implementations are `ObjectRecords` for every object store, `LocalRecords` for a local
//! folder, and `RedisRecords` for pointers in Redis. A read-only store is an `ObjectRecords` whose
//! `Objects` refuse to write.

use bytes::Bytes;
use futures::future::BoxFuture;

use super::versioned::{SeenVersion, Versioned};
use crate::day::Day;
use crate::error::Error;
use crate::key::FilterName;
use crate::pointer::MAX_RECORD_BYTES;
use crate::protocol::{self, AmbiguousWrite, RecordState};

/// How often a conditional write is tried when the store fails without having written.
const WRITE_TRIES: u32 = 3;

/// A place where small records live, by their key in the store.
pub(super) trait RecordStore: Send + Sync {
    /// Reads what is at `key`, at most one byte more than a record may have.
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<SeenVersion, Error>>;

    /// Tries once to write `new` at `key` if `seen` still is what is there. An error does not say
    /// whether it was written: see [`put_if`].
    fn try_put_if<'a>(
        &'a self,
        key: &'a str,
        new: Bytes,
        seen: &'a SeenVersion,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Deletes the record. One that is not there is not an error.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// The days for which a filter has a pointer here, oldest first.
    fn pointer_days<'a>(&'a self, filter: &'a FilterName)
    -> BoxFuture<'a, Result<Vec<Day>, Error>>;
}

/// Reads and parses a record. An absent or unreadable one is a state, not an error.
///
/// One that cannot be parsed is read twice: it may have been damaged on its way, and decisions
/// differ between a record that is damaged and one that is sound.
pub(super) async fn read<T>(
    records: &dyn RecordStore,
    key: &str,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<Versioned<T>, Error> {
    let parsed = |version: SeenVersion| {
        let state = match version.bytes() {
            None => RecordState::Absent,
            Some(bytes) => match parse(bytes) {
                Ok(record) => RecordState::Found(record),
                Err(why) => RecordState::Unreadable(why),
            },
        };
        Versioned { state, version }
    };
    let first = parsed(records.read(key).await?);
    match first.state {
        RecordState::Unreadable(_) => Ok(parsed(records.read(key).await?)),
        _ => Ok(first),
    }
}

/// The bytes of a record that is to be written at `key`.
///
/// # Errors
/// [`Error::RecordTooLong`]: written all the same, it would be unreadable for every reader.
pub(super) fn checked(key: &str, record: Vec<u8>) -> Result<Bytes, Error> {
    let (bytes, limit) = (record.len() as u64, MAX_RECORD_BYTES);
    if bytes > limit {
        return Err(Error::RecordTooLong { key: key.to_owned(), bytes, limit });
    }
    Ok(record.into())
}

/// Makes the record what it was `before`, or removes it if there was none, unless it has changed
/// since `now` was read. No store can delete conditionally: one that somebody writes at the same
/// moment is removed, too.
pub(super) async fn restore(
    records: &dyn RecordStore,
    key: &str,
    now: &SeenVersion,
    before: &SeenVersion,
) -> Result<(), Error> {
    match before.bytes() {
        Some(bytes) => put_if(records, key, bytes.clone(), now).await,
        None => records.delete(key).await,
    }
}

/// Writes `new` at `key` if `seen` still is what is there.
///
/// After an error the record is read again: only that shows whether it was written. It is tried
/// again when nothing was written, at most [`WRITE_TRIES`] times.
pub(super) async fn put_if(
    records: &dyn RecordStore,
    key: &str,
    new: Bytes,
    seen: &SeenVersion,
) -> Result<(), Error> {
    let mut last = None;
    for _ in 0..WRITE_TRIES {
        match records.try_put_if(key, new.clone(), seen).await {
            Ok(()) => return Ok(()),
            Err(error @ (Error::ReadOnly { .. } | Error::Locked { .. })) => return Err(error),
            Err(error) => {
                let now = records.read(key).await?;
                match protocol::after_ambiguous_write(seen.bytes(), &new, now.bytes()) {
                    AmbiguousWrite::Written => return Ok(()),
                    AmbiguousWrite::NotWritten => {}
                    AmbiguousWrite::Changed => {
                        let now = match now.bytes() {
                            Some(_) => "somebody wrote it",
                            None => "somebody removed it",
                        };
                        return Err(Error::Changed { key: key.into(), now: now.into() });
                    }
                }
                last = Some(error);
            }
        }
    }
    Err(last.expect("at least one try was made"))
}
