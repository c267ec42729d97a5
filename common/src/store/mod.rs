//! [`Store`]: every read and write of blobs, pointers, pins and history. It does what
//! [`crate::protocol`] decides and decides nothing itself.
//!
//! Blobs are content-addressed, so any writer may write them; only pointers and pins are written
//! conditionally. After a failed conditional write the record is read again: a time-out can mean
//! success, and a conflict can mean our own retried request.

mod day_lookup;
mod fetch;
pub mod heartbeat;
mod history;
mod local;
mod marker;
mod open;
mod prune;
mod records;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion, WriteMultipart,
};

use crate::blob::EncodedBlob;
use crate::crash_point::crash_point;
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, BlobKey, FilterName};
use crate::pointer::{MAX_RECORD_BYTES, Pin, Pointer};
use crate::protocol::{self, AmbiguousWrite, Followed, RecordState, Step};
pub use day_lookup::{DayLookup, chance_of_at_least};
pub use fetch::read_copy;
pub use open::{Location, open_objects};
pub use prune::Pruned;
#[cfg(feature = "redis")]
pub use redis::DEFAULT_TEMPLATE;

/// The size of one upload part and of one ranged download. S3 wants equal parts of at least 5 MiB.
const PART_BYTES: usize = 8 << 20;
/// The most parts an upload may have on S3: a larger blob goes in larger parts.
const MOST_PARTS: u64 = 10_000;
/// How many parts are under way at once.
const PARTS_AT_ONCE: usize = 4;
/// A blob larger than this is not loaded: 2^32 blocks of 64 bytes and a header.
pub const MAX_BLOB_BYTES: u64 = (1 << 38) + (1 << 20);
/// How often a conditional write is tried when the store fails without having written.
const WRITE_TRIES: u32 = 3;

/// The place where blobs and pointers live. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// Where in `objects` the store begins.
    root: Path,
    /// What people and pointers call the store; the first is for messages.
    names: Vec<String>,
    /// The folder of a local store, which has no conditional writes of its own.
    folder: Option<PathBuf>,
    /// A plain HTTP server: it gives files, and is asked for nothing else.
    read_only: bool,
    pointers_in: records::PointerStore,
}

/// A record as it was read, and what a conditional write is conditioned on.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// What was there.
    pub state: RecordState<T>,
    /// Exactly what was read.
    pub version: Precondition,
}

/// Exactly what a look at a record found: equal when nothing changed in between.
#[derive(Clone, Debug)]
pub struct Precondition(Option<Snapshot>);

#[derive(Clone, Debug)]
struct Snapshot {
    bytes: Bytes,
    tag: UpdateVersion,
}

impl PartialEq for Precondition {
    /// By content: a backend may give a new tag to the same bytes, and nothing is lost by that.
    fn eq(&self, other: &Precondition) -> bool {
        let bytes =
            |version: &Precondition| version.0.as_ref().map(|snapshot| snapshot.bytes.clone());
        bytes(self) == bytes(other)
    }
}

/// An object as a listing shows it.
struct Listed {
    name: String,
    /// By the store's clock.
    uploaded: Timestamp,
    bytes: u64,
}

/// Where a look for the blob to follow ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Following {
    /// At this blob.
    Blob(Followed),
    /// At a record that cannot be read: what answers now should go on.
    Keep(String),
    /// Nowhere: there is no pin, and none of these days has a pointer.
    NotFound(Vec<Day>),
}

impl Store {
    /// Opens the store at a URL or local path. No byte is read or written yet.
    ///
    /// Cloud credentials and settings come from `AWS_*`, `AZURE_*` and `GOOGLE_*` in the environment.
    ///
    /// # Errors
    /// [`Error::StoreUrl`] for an address that is none, or whose kind of store was not compiled in;
    /// [`Error::NoStore`] for a local folder that does not exist.
    pub fn open(address: &str) -> Result<Store, Error> {
        open::store(address, false)
    }

    /// Opens a store to be written to: as [`Store::open`], but makes a local folder that is not there.
    ///
    /// # Errors
    /// As [`Store::open`], and [`Error::File`] when the folder cannot be made.
    pub fn create(address: &str) -> Result<Store, Error> {
        open::store(address, true)
    }

    /// Opens a store to be looked at only, perhaps before its first build: as [`Store::open`], but a
    /// local folder that is not there reads as an empty store.
    ///
    /// # Errors
    /// As [`Store::open`], but for [`Error::NoStore`].
    pub fn preview(address: &str) -> Result<Store, Error> {
        match Store::open(address) {
            Err(Error::NoStore { path }) => {
                Ok(Store::over(Arc::new(object_store::memory::InMemory::new()), &path))
            }
            opened => opened,
        }
    }

    /// A store in any [`ObjectStore`]: for a backend that has no address, and for tests that put one
    /// which fails, delays or lies in between.
    ///
    /// `objects` must honour conditional writes. `name` is for messages.
    pub fn over(objects: Arc<dyn ObjectStore>, name: &str) -> Store {
        let (root, names) = (Path::default(), vec![name.to_owned()]);
        let (folder, read_only, pointers_in) = (None, false, Default::default());
        Store { objects, root, names, folder, read_only, pointers_in }
    }

    /// What to call the store in a message; it holds no secret.
    pub fn name(&self) -> &str {
        &self.names[0]
    }

    /// The real path of a local store.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_deref()
    }

    /// What a pointer's URLs may begin with.
    pub fn roots(&self) -> &[String] {
        &self.names
    }

    /// Reads what a person calls a blob of `filter`: a key or a URL.
    ///
    /// # Errors
    /// [`Error::BlobKey`] when it is none of this filter's.
    pub fn blob_key(&self, text: &str, filter: &FilterName) -> Result<BlobKey, Error> {
        BlobKey::parse(text, filter, &self.names)
    }

    // ---- records -----------------------------------------------------------------------------

    /// Reads the pointer of a day.
    ///
    /// # Errors
    /// The store's; [`Error::OtherPointers`]. An absent or unreadable pointer is not an error here.
    pub async fn pointer(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<Versioned<Pointer>, Error> {
        self.check_pointers(filter).await?;
        self.pointer_here(filter, day).await
    }

    /// As [`Store::pointer`], for one who has checked already that pointers live here.
    async fn pointer_here(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<Versioned<Pointer>, Error> {
        let key = key::pointer(filter, day);
        self.record(&key, |bytes| Pointer::parse(bytes, filter, &self.names)).await
    }

    /// Reads the pin.
    ///
    /// # Errors
    /// The store's. An absent or unreadable pin is not an error here.
    pub async fn pin(&self, filter: &FilterName) -> Result<Versioned<Pin>, Error> {
        self.record(&key::pin(filter), |bytes| Pin::parse(bytes, filter, &self.names)).await
    }

    /// Writes the pointer of a day if it still is what was read.
    ///
    /// # Errors
    /// [`Error::Changed`] when it is not; [`Error::OtherPointers`]; the store's when the write failed and
    /// a second look shows that nothing was written.
    pub async fn put_pointer(
        &self,
        filter: &FilterName,
        day: Day,
        pointer: &Pointer,
        read: &Precondition,
    ) -> Result<(), Error> {
        self.check_pointers(filter).await?;
        self.put_if(&key::pointer(filter, day), pointer.to_bytes().into(), read).await
    }

    /// Writes the pin if it still is what was read.
    ///
    /// # Errors
    /// As [`Store::put_pointer`].
    pub async fn put_pin(
        &self,
        filter: &FilterName,
        pin: &Pin,
        read: &Precondition,
    ) -> Result<(), Error> {
        self.put_if(&key::pin(filter), pin.to_bytes().into(), read).await
    }

    /// Puts back what was there before a pin was written, whatever that was, unless somebody has changed
    /// it since.
    ///
    /// # Errors
    /// As [`Store::put_pointer`].
    pub async fn take_back_pin(
        &self,
        filter: &FilterName,
        written: &Pin,
        before: &Precondition,
    ) -> Result<(), Error> {
        let now = self.pin(filter).await?;
        if now.state.found() != Some(written) {
            return Ok(());
        }
        match &before.0 {
            Some(before) => {
                self.put_if(&key::pin(filter), before.bytes.clone(), &now.version).await
            }
            None => self.remove_pin(filter).await,
        }
    }

    /// Removes the pin. No store can delete conditionally: a pin written at this very moment by
    /// somebody else is removed too.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_pin(&self, filter: &FilterName) -> Result<(), Error> {
        self.delete(&key::pin(filter)).await
    }

    /// The days that have a pointer, oldest first.
    ///
    /// # Errors
    /// The store's; [`Error::OtherPointers`].
    pub async fn pointer_days(&self, filter: &FilterName) -> Result<Vec<Day>, Error> {
        self.check_pointers(filter).await?;
        self.pointer_days_here(filter).await
    }

    async fn pointer_days_here(&self, filter: &FilterName) -> Result<Vec<Day>, Error> {
        if let Some(days) = self.pointers_in.days(filter).await {
            return days;
        }
        let names = self.list(&key::pointers(filter)).await?;
        let mut days: Vec<Day> = names.iter().filter_map(|name| name.parse().ok()).collect();
        days.sort_unstable();
        Ok(days)
    }

    /// Looks for the blob that should answer: the pin, then the newest pointer of `days`, which come
    /// from [`protocol::days_to_follow`].
    ///
    /// # Errors
    /// The store's: then nothing is known, and what answers now should go on.
    pub async fn follow(
        &self,
        filter: &FilterName,
        days: &[Day],
        now: Timestamp,
    ) -> Result<Following, Error> {
        let unreadable = |key: String, why: String, remedy: String| {
            Following::Keep(Error::Record { key, why, remedy }.to_string())
        };
        // At once, so that a look takes no longer for the one than for the other.
        let (pin, ()) = futures::try_join!(self.pin(filter), self.check_pointers(filter))?;
        match protocol::follow_pin(&pin.state, now) {
            Step::Follow(followed) => return Ok(Following::Blob(followed)),
            Step::Keep { why } => {
                return Ok(unreadable(key::pin(filter), why, format!("unpin {filter}")));
            }
            Step::Continue => {}
        }
        for day in days {
            match protocol::follow_pointer(*day, &self.pointer_here(filter, *day).await?.state) {
                Step::Follow(followed) => return Ok(Following::Blob(followed)),
                Step::Keep { why } => {
                    let remedy = format!("repoint {filter} {day} --to DAY");
                    return Ok(unreadable(key::pointer(filter, *day), why, remedy));
                }
                Step::Continue => {}
            }
        }
        Ok(Following::NotFound(days.to_vec()))
    }

    /// The filters that have anything in the store.
    ///
    /// # Errors
    /// The store's.
    pub async fn filters(&self) -> Result<Vec<FilterName>, Error> {
        self.ensure_writable("list", "filters")?;
        let listed = self.objects.list_with_delimiter(Some(&self.root)).await;
        let folders = match listed.map_err(|e| self.error("list", "filters", e)) {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            other => other?.common_prefixes,
        };
        let names = folders.iter().filter_map(|folder| folder.filename()?.parse().ok());
        Ok(names.collect())
    }

    // ---- blobs -------------------------------------------------------------------------------

    /// The blobs of a filter, or of one of its days, oldest day first.
    ///
    /// # Errors
    /// The store's.
    pub async fn blobs(
        &self,
        filter: &FilterName,
        day: Option<Day>,
    ) -> Result<Vec<BlobKey>, Error> {
        let names = self.list(&key::blobs(filter)).await?;
        let keys = names.iter().filter_map(|name| BlobKey::from_name(filter, name).ok());
        let mut keys: Vec<BlobKey> =
            keys.filter(|key| day.is_none_or(|day| key.day == day)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// The size of a blob, and when it was uploaded by the store's clock.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is not there; the store's.
    pub async fn head_blob(&self, blob: &BlobKey) -> Result<(u64, Timestamp), Error> {
        let head = self.head(&blob.to_string()).await?;
        Ok((head.size, uploaded(&head)))
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, Error> {
        let head = self.objects.head(&self.path(key)).await;
        head.map_err(|e| self.error("look at", key, e))
    }

    /// Uploads a blob under its own name, over whatever is there.
    ///
    /// `progress` is called with the bytes handed over so far.
    ///
    /// # Errors
    /// The store's; then nothing, or a blob that will not verify, may be there.
    pub async fn put_blob(
        &self,
        blob: &EncodedBlob<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<(), Error> {
        let key = blob.key().to_string();
        self.ensure_writable("write", &key)?;
        let path = self.path(&key);
        let failed = |e| self.error("write", &key, e);
        if blob.len() <= PART_BYTES as u64 {
            let bytes = Bytes::from(blob.parts().concat());
            self.objects.put(&path, bytes.into()).await.map_err(failed)?;
            progress(blob.len());
            return Ok(());
        }
        let upload = self.objects.put_multipart(&path).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, upload_part_bytes(blob.len()));
        let mut handed_over = 0;
        for chunk in blob.parts().iter().flat_map(|part| part.chunks(PART_BYTES)) {
            if let Err(e) = upload.wait_for_capacity(PARTS_AT_ONCE).await {
                // The upload's own error says more than a failed clean-up would.
                let _ = upload.abort().await;
                return Err(failed(e));
            }
            upload.write(chunk);
            handed_over += chunk.len() as u64;
            crash_point("part-uploaded");
            progress(handed_over);
        }
        upload.finish().await.map(drop).map_err(failed)
    }

    // ---- how -----------------------------------------------------------------------------------

    fn path(&self, key: &str) -> Path {
        self.root.parts().chain(Path::from(key).parts()).collect()
    }

    fn error(&self, doing: &'static str, key: &str, source: object_store::Error) -> Error {
        Error::from_store(doing, key, self.name(), source)
    }

    /// Refuses what no plain HTTP server can do, and what one that could should not be trusted with: its
    /// writes have no conditions.
    fn ensure_writable(&self, doing: &'static str, key: &str) -> Result<(), Error> {
        if self.read_only {
            let (key, store) = (key.to_owned(), self.name().to_owned());
            return Err(Error::ReadOnly { doing, key, store });
        }
        Ok(())
    }

    /// The names directly in a folder.
    async fn list(&self, folder: &str) -> Result<Vec<String>, Error> {
        Ok(self.list_objects(folder).await?.into_iter().map(|object| object.name).collect())
    }

    /// What lies directly in a folder.
    async fn list_objects(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        self.ensure_writable("list", folder)?;
        let path = self.path(folder);
        let depth = path.parts().count() + 1;
        let listed = self.objects.list(Some(&path));
        let here = listed.try_filter_map(|object| async move {
            let inside = object.location.parts().count() == depth;
            let name = object.location.filename().filter(|_| inside).map(str::to_owned);
            Ok(name.map(|name| Listed { name, uploaded: uploaded(&object), bytes: object.size }))
        });
        match here.try_collect().await.map_err(|e| self.error("list", folder, e)) {
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Deletes an object; one that is not there is no error.
    async fn delete(&self, key: &str) -> Result<(), Error> {
        if let Some(deleted) = self.pointers_in.delete(key).await {
            return deleted;
        }
        self.ensure_writable("delete", key)?;
        let deleted = self.objects.delete(&self.path(key)).await;
        match deleted.map_err(|e| self.error("delete", key, e)) {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    async fn record<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Versioned<T>, Error> {
        let version = self.version(key).await?;
        let state = match &version.0 {
            None => RecordState::Absent,
            Some(snapshot) => match parse(&snapshot.bytes) {
                Ok(record) => RecordState::Found(record),
                Err(why) => RecordState::Unreadable(why),
            },
        };
        Ok(Versioned { state, version })
    }

    /// Reads what is at `key`, at most one byte more than a record may have.
    async fn version(&self, key: &str) -> Result<Precondition, Error> {
        if let Some(version) = self.pointers_in.version(key).await {
            return version;
        }
        let failed = |e| self.error("read", key, e);
        if let Some(folder) = &self.folder {
            local::refuse_to_leave(folder, key)?;
        }
        let got = match self.objects.get(&self.path(key)).await.map_err(failed) {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(Precondition(None)),
            Err(other) => return Err(other),
        };
        let tag =
            UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
        let stated = got.meta.size;
        let mut bytes = Vec::new();
        let mut body = got.into_stream();
        while let Some(chunk) = body.next().await {
            let room = (MAX_RECORD_BYTES as usize + 1).saturating_sub(bytes.len());
            let chunk = chunk.map_err(failed)?;
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if bytes.len() as u64 > MAX_RECORD_BYTES {
                break;
            }
        }
        // A body that ended early would look like somebody's edit: a build would call itself
        // superseded, and a history would have lost a record.
        let got = bytes.len() as u64;
        if got < stated.min(MAX_RECORD_BYTES) {
            let source = format!("{got} of {stated} bytes arrived").into();
            return Err(failed(object_store::Error::Generic { store: "record", source }));
        }
        Ok(Precondition(Some(Snapshot { bytes: bytes.into(), tag })))
    }

    /// Writes `new` at `key` if `read` is still what is there.
    async fn put_if(&self, key: &str, new: Bytes, read: &Precondition) -> Result<(), Error> {
        let mut last = None;
        for _ in 0..WRITE_TRIES {
            match self.put_if_once(key, new.clone(), read).await {
                Ok(()) => return Ok(()),
                Err(error @ (Error::ReadOnly { .. } | Error::Locked { .. })) => return Err(error),
                Err(error) => {
                    let now = self.version(key).await?;
                    let bytes =
                        |version: &Precondition| version.0.as_ref().map(|v| v.bytes.clone());
                    let (before, found) = (bytes(read), bytes(&now));
                    match protocol::after_ambiguous_write(before.as_ref(), &new, found.as_ref()) {
                        AmbiguousWrite::Written => return Ok(()),
                        AmbiguousWrite::NotWritten => {}
                        AmbiguousWrite::Changed => {
                            let now = match found {
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

    async fn put_if_once(&self, key: &str, new: Bytes, read: &Precondition) -> Result<(), Error> {
        if let Some(put) = self.pointers_in.put_if(key, &new, read).await {
            return put;
        }
        self.ensure_writable("write", key)?;
        if let Some(folder) = &self.folder {
            let expected = read.0.as_ref().map(|snapshot| snapshot.bytes.clone());
            return local::put_if(folder.clone(), key.to_owned(), new, expected).await;
        }
        let mode = match &read.0 {
            None => PutMode::Create,
            Some(snapshot) => PutMode::Update(snapshot.tag.clone()),
        };
        let put = self.objects.put_opts(&self.path(key), new.into(), PutOptions::from(mode)).await;
        put.map(drop).map_err(|e| self.error("write", key, e))
    }
}

/// The size of the parts that a blob of so many bytes is uploaded in: whole MiB, and no more of them than
/// any store takes.
fn upload_part_bytes(blob: u64) -> usize {
    let needed = blob.div_ceil(MOST_PARTS).next_multiple_of(1 << 20);
    usize::try_from(needed).unwrap_or(usize::MAX).max(PART_BYTES)
}

/// When an object was written, by the store's clock.
fn uploaded(object: &ObjectMeta) -> Timestamp {
    // A time outside the calendar counts as its end, which is never old.
    Timestamp::from_second(object.last_modified.timestamp()).unwrap_or(Timestamp::MAX)
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: its own debug text holds the credentials.
        write!(f, "Store({})", self.name())
    }
}

#[cfg(test)]
mod tests;
