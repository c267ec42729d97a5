//! [`Store`]: every read and write of blobs, pointers, pins and history. It does what
//! [`crate::protocol`] decides, and decides nothing itself.
//!
//! Blobs are content-addressed, so any writer may write them. Only pointers and pins are written
//! conditionally. After a failed conditional write the record is read again: a time-out can mean
//! success, and a conflict can mean our own retried request.
//!
//! A store has three parts: its objects (`objects`), its small records (`records`: in objects, in a
//! local folder, or in Redis), and the operations on them, a file for each kind.

mod blobs;
mod conditional_writes;
mod day_lookup;
mod deltas;
mod fetch;
#[cfg(feature = "hdfs")]
mod hdfs;
pub mod heartbeat;
mod history;
mod lease;
mod live_lookup;
mod local;
mod marker;
mod objects;
mod open;
mod pointers;
mod prune;
mod records;
#[cfg(feature = "redis")]
mod redis;
mod retained;
mod segments;
mod versioned;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;

use crate::day::Day;
use crate::error::Error;
use crate::key::{BlobKey, FilterName};
use crate::protocol::Followed;
pub use blobs::{BlobInfo, MAX_BLOB_BYTES, Upload};
pub use day_lookup::{DEFAULT_TRACE_DAYS, DayLookup, Trace, TraceSummary};
pub use deltas::{ArrivingDelta, DeltaInfo, DeltaRequest};
pub use fetch::{open_file, open_url, read_copy};
pub use history::{HistoryRecords, UnreadableRecord};
pub use live_lookup::LiveChange;
use local::LocalRecords;
pub use local::real_path;
use objects::{ObjectRecords, Objects};
pub use open::{Location, RETRY_LOG, open_objects};
pub use prune::{Pruned, PrunedSegments};
use records::RecordStore;
#[cfg(feature = "redis")]
pub use redis::DEFAULT_TEMPLATE;
pub use segments::{HeadNow, MAX_HEADS, MAX_SEGMENT_BYTES, PutSegment};
pub use versioned::{SeenVersion, Versioned};

/// The place where blobs and pointers live. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use bloomsday_common::pointer::Pointer;
/// use bloomsday_common::protocol::RecordState;
/// use bloomsday_common::store::Store;
/// use object_store::memory::InMemory;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let store = Store::over(Arc::new(InMemory::new()), "memory");
/// let (filter, day) = ("rt".parse()?, "2026-11-19".parse()?);
/// let read = store.pointer(&filter, day).await?;
/// assert_eq!(read.state, RecordState::Absent);
///
/// let digest = "ab".repeat(32);
/// let blob = store.blob_key(&format!("blobs/2026-11-19-{digest}.bloom"), &filter)?;
/// store.put_pointer(&filter, day, &Pointer::to(blob), &read.version).await?;
/// assert_eq!(store.pointer_days(&filter).await?, [day]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    objects: Objects,
    /// What people and pointers call the store; the first is for messages.
    names: Vec<String>,
    /// The folder of a local store.
    folder: Option<PathBuf>,
    /// Where pins and other small records live.
    record_store: Arc<dyn RecordStore>,
    /// Where pointers live: with the other records, or in Redis.
    pointer_store: Arc<dyn RecordStore>,
    /// That other place, for messages and for the marker.
    pointers_place: Option<PointersPlace>,
}

/// A place for pointers other than the store.
#[derive(Clone)]
struct PointersPlace {
    /// Its address without user and password.
    address: String,
    /// How the key of a pointer is made from its filter and day.
    template: String,
}

/// What a search for the blob to follow found.
#[derive(Debug)]
pub enum Following {
    /// This blob.
    Blob(Followed),
    /// A record that cannot be read ([`Error::Record`]): the current filter should stay.
    Keep(Error),
    /// There is no pin, and none of these days has a pointer.
    NotFound(Vec<Day>),
}

impl Store {
    /// A store in any [`ObjectStore`]: for a backend that has no address, and for tests with a
    /// backend that fails or delays.
    ///
    /// `objects` must honour conditional writes. `name` is for messages.
    pub fn over(objects: Arc<dyn ObjectStore>, name: &str) -> Store {
        Store::of(Objects::new(objects, Path::default(), name, false), vec![name.to_owned()])
    }

    /// A store whose records are objects.
    fn of(objects: Objects, names: Vec<String>) -> Store {
        let record_store: Arc<dyn RecordStore> = Arc::new(ObjectRecords(objects.clone()));
        let pointer_store = record_store.clone();
        Store { objects, names, folder: None, record_store, pointer_store, pointers_place: None }
    }

    /// A store in a local folder.
    fn local(objects: Objects, names: Vec<String>, folder: PathBuf) -> Store {
        let record_store: Arc<dyn RecordStore> =
            Arc::new(LocalRecords::new(ObjectRecords(objects.clone()), folder.clone()));
        let pointer_store = record_store.clone();
        Store { folder: Some(folder), record_store, pointer_store, ..Store::of(objects, names) }
    }

    /// The same store with its pointers in Redis. Nothing is connected to yet.
    ///
    /// `address` is `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, `template` the key of a day's
    /// pointer, by default [`DEFAULT_TEMPLATE`].
    ///
    /// # Errors
    /// [`Error::StoreUrl`] for an invalid address, or a template that would give two pointers the
    /// same key.
    #[cfg(feature = "redis")]
    pub fn with_pointers(self, address: &str, template: &str) -> Result<Store, Error> {
        let redis = redis::RedisRecords::open(address, template)?;
        let (address, template) = (redis.name().to_owned(), template.to_owned());
        let pointers_place = Some(PointersPlace { address, template });
        Ok(Store { pointer_store: Arc::new(redis), pointers_place, ..self })
    }

    /// What to call the store in a message, without secrets.
    pub fn name(&self) -> &str {
        &self.names[0]
    }

    /// The place of the pointers, when it is not the store itself, without secrets.
    pub fn pointers_name(&self) -> Option<&str> {
        self.pointers_place.as_ref().map(|place| &*place.address)
    }

    fn is_hdfs(&self) -> bool {
        self.name().starts_with("hdfs:")
    }

    /// Whether it is behind a plain HTTP server, which only reads single objects.
    pub fn is_read_only(&self) -> bool {
        self.objects.is_read_only()
    }

    /// The real path of a local store.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_deref()
    }

    /// What the URLs in pointers may begin with.
    pub fn roots(&self) -> &[String] {
        &self.names
    }

    /// Reads what a person calls a blob of `filter`: a key or a URL.
    ///
    /// # Errors
    /// [`Error::BlobKey`] when it does not name one of this filter.
    pub fn blob_key(&self, text: &str, filter: &FilterName) -> Result<BlobKey, Error> {
        BlobKey::parse(text, filter, &self.names)
    }

    /// The filters that have anything in the store.
    ///
    /// # Errors
    /// The store's.
    pub async fn filters(&self) -> Result<Vec<FilterName>, Error> {
        let names = self.objects.folders("filters").await?;
        let mut filters = Vec::new();
        for filter in names.iter().filter_map(|name| name.parse::<FilterName>().ok()) {
            // A local folder stays when its last file is deleted: a server with a mistyped name had
            // its heartbeat there. What cannot be listed has something.
            let is_empty = self.folder.is_some()
                && matches!(self.objects.has_any(filter.as_str()).await, Ok(false));
            if !is_empty {
                filters.push(filter);
            }
        }
        Ok(filters)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: its own debug text has the credentials.
        write!(f, "Store({})", self.name())
    }
}

#[cfg(test)]
mod tests;
