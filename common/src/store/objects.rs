//! [`Objects`]: the objects of a store below its root, by key, with errors that name store and key.
//!
//! Every read and write of an object goes through here. So this is the only place that knows
//! whether a store is read-only.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{
    MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

use super::records::RecordStore;
use super::versioned::{SeenVersion, Snapshot};
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::MAX_RECORD_BYTES;

/// The objects of a store. Cheap to clone.
#[derive(Clone)]
pub(super) struct Objects {
    backend: Arc<dyn ObjectStore>,
    /// The same past caches on the way, if requests can say so.
    uncached: Option<Arc<dyn ObjectStore>>,
    /// Where in `backend` the store begins.
    root: Path,
    /// What messages call the store.
    name: String,
    /// A plain HTTP server, which can only return files.
    read_only: bool,
}

/// Whether a name is one under which a file is written to HDFS before it is renamed,
/// `.NAME.tmp.NUMBER`. Other stores do not list what is unfinished.
fn is_unfinished(name: &str) -> bool {
    let number = name.strip_prefix('.').and_then(|name| name.rsplit_once(".tmp."));
    number.is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

/// An object in a listing.
pub(super) struct Listed {
    pub(super) name: String,
    /// By the store's clock.
    pub(super) uploaded: Timestamp,
    pub(super) bytes: u64,
}

impl Objects {
    pub(super) fn new(
        backend: Arc<dyn ObjectStore>,
        root: Path,
        name: &str,
        read_only: bool,
    ) -> Objects {
        Objects { backend, uncached: None, root, name: name.to_owned(), read_only }
    }

    /// With a backend whose requests go past caches on the way.
    pub(super) fn with_uncached(self, uncached: Option<Arc<dyn ObjectStore>>) -> Objects {
        Objects { uncached, ..self }
    }

    pub(super) fn backend(&self) -> &dyn ObjectStore {
        &*self.backend
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether something on the way may keep what it has.
    pub(super) fn may_be_cached(&self) -> bool {
        self.uncached.is_some()
    }

    /// The backend past caches, if there can be any.
    pub(super) fn uncached_backend(&self) -> &dyn ObjectStore {
        self.uncached.as_deref().unwrap_or(&*self.backend)
    }

    pub(super) fn path(&self, key: &str) -> Path {
        self.root.parts().chain(Path::from(key).parts()).collect()
    }

    pub(super) fn error(
        &self,
        doing: &'static str,
        key: &str,
        source: object_store::Error,
    ) -> Error {
        Error::from_store(doing, key, &self.name, source)
    }

    /// Refuses what a plain HTTP server cannot do. Some can write, but without conditions, so that
    /// this is refused, too.
    fn check_not_plain_http(&self, doing: &'static str, key: &str) -> Result<(), Error> {
        if self.read_only {
            let (key, store) = (key.to_owned(), self.name.clone());
            return Err(Error::ReadOnly { doing, key, store });
        }
        Ok(())
    }

    /// The size of an object, and when it was uploaded.
    pub(super) async fn head(&self, key: &str) -> Result<ObjectMeta, Error> {
        let head = self.backend.head(&self.path(key)).await;
        head.map_err(|e| self.error("look at", key, e))
    }

    /// Reads what is at `key`, at most one byte more than a record may have.
    pub(super) async fn read_record(&self, key: &str) -> Result<SeenVersion, Error> {
        let failed = |e| self.error("read", key, e);
        let got = match self.backend.get(&self.path(key)).await.map_err(failed) {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(SeenVersion::absent()),
            Err(other) => return Err(other),
        };
        let tag =
            UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
        let stated = got.meta.size;
        let mut bytes = Vec::new();
        let mut body = got.into_stream();
        while let Some(chunk) = body.next().await {
            let remaining = (MAX_RECORD_BYTES as usize + 1).saturating_sub(bytes.len());
            let chunk = chunk.map_err(failed)?;
            bytes.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
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
        Ok(SeenVersion::of(Snapshot { bytes: bytes.into(), tag }))
    }

    /// Writes an object, over whatever is there.
    pub(super) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), Error> {
        self.put_mode(key, bytes, PutMode::Overwrite).await
    }

    /// Writes an object if there is none at its key.
    pub(super) async fn create(&self, key: &str, bytes: Bytes) -> Result<(), Error> {
        self.put_mode(key, bytes, PutMode::Create).await
    }

    /// Writes an object if `seen` still is what is there.
    pub(super) async fn put_if(
        &self,
        key: &str,
        bytes: Bytes,
        seen: &SeenVersion,
    ) -> Result<(), Error> {
        let mode = match seen.snapshot() {
            None => PutMode::Create,
            Some(snapshot) => PutMode::Update(snapshot.tag.clone()),
        };
        self.put_mode(key, bytes, mode).await
    }

    async fn put_mode(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<(), Error> {
        self.check_not_plain_http("write", key)?;
        let options = PutOptions::from(mode);
        let put = self.backend.put_opts(&self.path(key), bytes.into(), options).await;
        put.map(drop).map_err(|e| self.error("write", key, e))
    }

    /// Begins an upload in parts.
    pub(super) async fn put_multipart(&self, key: &str) -> Result<Box<dyn MultipartUpload>, Error> {
        self.check_not_plain_http("write", key)?;
        let upload = self.backend.put_multipart(&self.path(key)).await;
        upload.map_err(|e| self.error("write", key, e))
    }

    /// Deletes an object. One that is not there is not an error.
    pub(super) async fn delete(&self, key: &str) -> Result<(), Error> {
        self.check_not_plain_http("delete", key)?;
        let deleted = self.backend.delete(&self.path(key)).await;
        match deleted.map_err(|e| self.error("delete", key, e)) {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// The names directly in a folder.
    pub(super) async fn names(&self, folder: &str) -> Result<Vec<String>, Error> {
        Ok(self.list(folder).await?.into_iter().map(|object| object.name).collect())
    }

    /// The path of a folder that is listed.
    pub(super) fn listed(&self, folder: &str) -> Result<Path, Error> {
        self.check_not_plain_http("list", folder)?;
        Ok(self.path(folder))
    }

    /// The objects directly in a folder.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let mut listed = self.list_all(folder).await?;
        listed.retain(|object| !is_unfinished(&object.name));
        Ok(listed)
    }

    /// The files that uploads to HDFS which were killed have left directly in a folder, and those
    /// that are being written.
    pub(super) async fn unfinished(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let mut listed = self.list_all(folder).await?;
        listed.retain(|object| is_unfinished(&object.name));
        Ok(listed)
    }

    async fn list_all(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let path = self.listed(folder)?;
        let depth = path.parts().count() + 1;
        let listed = self.backend.list(Some(&path));
        let here = listed.try_filter_map(|object| async move {
            let inside = object.location.parts().count() == depth;
            let name = object.location.filename().filter(|_| inside).map(str::to_owned);
            Ok(name.map(|name| Listed { name, uploaded: uploaded(&object), bytes: object.size }))
        });
        let mut listed: Vec<Listed> =
            match here.try_collect().await.map_err(|e| self.error("list", folder, e)) {
                Err(Error::NotFound { .. }) => return Ok(Vec::new()),
                other => other?,
            };
        // A store may list an object on two of its pages.
        let mut names = HashSet::new();
        listed.retain(|object| names.insert(object.name.clone()));
        Ok(listed)
    }

    /// The names of the folders directly below the root.
    pub(super) async fn folders(&self, what: &str) -> Result<Vec<String>, Error> {
        self.folders_at(&self.root, what).await
    }

    /// The names of the folders directly in a folder.
    pub(super) async fn folders_in(&self, folder: &str) -> Result<Vec<String>, Error> {
        self.folders_at(&self.path(folder), folder).await
    }

    /// Whether there is anything in a folder or below.
    pub(super) async fn has_any(&self, folder: &str) -> Result<bool, Error> {
        let first = self.backend.list(Some(&self.path(folder))).next().await.transpose();
        Ok(first.map_err(|e| self.error("list", folder, e))?.is_some())
    }

    async fn folders_at(&self, path: &Path, what: &str) -> Result<Vec<String>, Error> {
        self.check_not_plain_http("list", what)?;
        let listed = self.backend.list_with_delimiter(Some(path)).await;
        let folders = match listed.map_err(|e| self.error("list", what, e)) {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            other => other?.common_prefixes,
        };
        Ok(folders.iter().filter_map(|folder| folder.filename().map(str::to_owned)).collect())
    }
}

/// When an object was written, by the store's clock.
pub(super) fn uploaded(object: &ObjectMeta) -> Timestamp {
    // A time outside the calendar counts as its end, which is never old.
    Timestamp::from_second(object.last_modified.timestamp()).unwrap_or(Timestamp::MAX)
}

/// Records as objects of the store, next to the blobs.
pub(super) struct ObjectRecords(pub(super) Objects);

impl RecordStore for ObjectRecords {
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<SeenVersion, Error>> {
        self.0.read_record(key).boxed()
    }

    fn try_put_if<'a>(
        &'a self,
        key: &'a str,
        new: Bytes,
        seen: &'a SeenVersion,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.0.put_if(key, new, seen).boxed()
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
