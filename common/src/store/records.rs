//! [`RecordStore`]: where small records live (pointers, pins), and how they are written conditionally.
//!
//! The implementations are [`ObjectRecords`] here for every object store, `LocalRecords` for a local
//! folder, and `RedisRecords` for pointers in Redis. A read-only store is an [`ObjectRecords`] whose
//! [`Objects`] refuse to write.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::UpdateVersion;

use super::Store;
use super::objects::Objects;
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::protocol::{self, AmbiguousWrite, RecordState};

/// How often a conditional write is tried when the store fails without having written.
const WRITE_TRIES: u32 = 3;

/// A record as it was read, and what a conditional write is conditioned on.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// What was there.
    pub state: RecordState<T>,
    /// Exactly what was read.
    pub version: Precondition,
}

/// Exactly what a read of a record found. Two are equal when nothing changed in between.
#[derive(Clone, Debug)]
pub struct Precondition(Option<Snapshot>);

#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) bytes: Bytes,
    pub(super) tag: UpdateVersion,
}

impl Precondition {
    pub(super) fn absent() -> Precondition {
        Precondition(None)
    }

    pub(super) fn of(snapshot: Snapshot) -> Precondition {
        Precondition(Some(snapshot))
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.0.as_ref()
    }

    /// The bytes that were there.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        self.0.as_ref().map(|snapshot| &snapshot.bytes)
    }
}

impl PartialEq for Precondition {
    /// By content: a backend may give a new tag to the same bytes, which changes nothing.
    fn eq(&self, other: &Precondition) -> bool {
        self.bytes() == other.bytes()
    }
}

/// A place where small records live, by their key in the store.
pub(super) trait RecordStore: Send + Sync {
    /// Reads what is at `key`, at most one byte more than a record may have.
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Precondition, Error>>;

    /// Tries once to write `new` at `key` if `read` still is what is there. An error does not say whether
    /// it was written: see [`put_if`].
    fn try_put_if<'a>(
        &'a self,
        key: &'a str,
        new: Bytes,
        read: &'a Precondition,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Deletes the record. One that is not there is not an error.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// The days for which a filter has a pointer here, oldest first.
    fn pointer_days<'a>(&'a self, filter: &'a FilterName)
    -> BoxFuture<'a, Result<Vec<Day>, Error>>;
}

/// Records as objects of the store, next to the blobs.
pub(super) struct ObjectRecords(pub(super) Objects);

impl RecordStore for ObjectRecords {
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Precondition, Error>> {
        self.0.read_record(key).boxed()
    }

    fn try_put_if<'a>(
        &'a self,
        key: &'a str,
        new: Bytes,
        read: &'a Precondition,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.0.put_if(key, new, read).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.0.delete(key).boxed()
    }

    fn pointer_days<'a>(
        &'a self,
        filter: &'a FilterName,
    ) -> BoxFuture<'a, Result<Vec<Day>, Error>> {
        let days = async {
            let names = self.0.names(&key::pointers(filter)).await?;
            let mut days: Vec<Day> = names.iter().filter_map(|name| name.parse().ok()).collect();
            days.sort_unstable();
            Ok(days)
        };
        days.boxed()
    }
}

/// Reads and parses a record. An absent or unreadable one is a state, not an error.
pub(super) async fn read<T>(
    records: &dyn RecordStore,
    key: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<Versioned<T>, Error> {
    let version = records.read(key).await?;
    let state = match version.bytes() {
        None => RecordState::Absent,
        Some(bytes) => match parse(bytes) {
            Ok(record) => RecordState::Found(record),
            Err(why) => RecordState::Unreadable(why),
        },
    };
    Ok(Versioned { state, version })
}

/// Writes `new` at `key` if `read` still is what is there.
///
/// After an error the record is read again: only that shows whether it was written. It is tried again
/// when nothing was written, at most [`WRITE_TRIES`] times.
pub(super) async fn put_if(
    records: &dyn RecordStore,
    key: &str,
    new: Bytes,
    read: &Precondition,
) -> Result<(), Error> {
    let mut last = None;
    for _ in 0..WRITE_TRIES {
        match records.try_put_if(key, new.clone(), read).await {
            Ok(()) => return Ok(()),
            Err(error @ (Error::ReadOnly { .. } | Error::Locked { .. })) => return Err(error),
            Err(error) => {
                let now = records.read(key).await?;
                match protocol::after_ambiguous_write(read.bytes(), &new, now.bytes()) {
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

impl Store {
    /// Tests on a scratch key whether the store refuses a conditional write that it should refuse. Where
    /// pointers live in another place, it is tested there, too.
    ///
    /// # Errors
    /// The store's; [`Error::StoreUrl`] when it lets the second of two writers win.
    pub async fn check_conditional_writes(&self) -> Result<(), Error> {
        let key = format!(".bloomsday-check-{}", std::process::id());
        match Arc::ptr_eq(&self.records, &self.pointers) {
            true => self.check_writes(&*self.records, &key, true).await,
            false => {
                // Without pointers there, no record needs to be replaced. HDFS, for one, cannot do that.
                self.check_writes(&*self.records, &key, false).await?;
                // No filter's name begins or ends like this, and the day is long past.
                let key = "0-bloomsday-check-0/pointers/1970-01-01";
                self.check_writes(&*self.pointers, key, true).await
            }
        }
    }

    /// Two writers that both read no record; then, with `replace`, two that both read the same one: some
    /// gateways honour only the former condition.
    async fn check_writes(
        &self,
        records: &dyn RecordStore,
        key: &str,
        replace: bool,
    ) -> Result<(), Error> {
        let text = |n: u32| Bytes::from(format!("{n}: bloomsday config check; may be deleted\n"));
        let before = records.read(key).await?;
        put_if(records, key, text(1), &before).await?;
        let checked = async {
            self.must_refuse(put_if(records, key, text(2), &before).await)?;
            if replace {
                let written = records.read(key).await?;
                put_if(records, key, text(3), &written).await?;
                self.must_refuse(put_if(records, key, text(4), &written).await)?;
            }
            Ok(())
        };
        let checked = checked.await;
        records.delete(key).await?;
        checked
    }

    fn must_refuse(&self, second: Result<(), Error>) -> Result<(), Error> {
        match second {
            Err(Error::Changed { .. }) => Ok(()),
            Err(other) => Err(other),
            Ok(()) => Err(Error::StoreUrl {
                url: self.name().to_owned(),
                why: "it ignores conditional writes, so two builds could overwrite each other's \
                      pointer: use a store or gateway that honours If-Match and If-None-Match"
                    .into(),
            }),
        }
    }
}
