//! [`Cache`]: a local copy of the verified blob that each filter used last, for a start without the
//! store.
//!
//! ```text
//! FOLDER/bloomsday-cache                 the marker: the address of its store, without secrets
//! FOLDER/FILTER/followed                 the record: the copy that was used last, and its store
//! FOLDER/FILTER/DAY-DIGEST.copy          the blob
//! ```
//!
//! The folder is not a store, is not in one, and belongs to the servers of one store. No poll waits
//! for it, whatever it contains: only regular files are opened, links are not followed, and reads
//! are bounded in bytes and time. Only files with the names above are deleted or replaced.

mod place;
pub(crate) mod writer;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bloomsday_common::atomic_file::{self, WriteStep};
use bloomsday_common::blob::RawBlob;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::memory::Buffer;
use bloomsday_common::store::{Store, read_copy, real_path};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The file that names the store of this cache.
const MARKER: &str = "bloomsday-cache";
/// The file with the record, in a filter's folder.
const FOLLOWED: &str = "followed";
/// The extension of a copy.
const COPY: &str = "copy";
/// What stands in a record between the names of the store and of the place of its pointers.
const WITH_POINTERS: &str = " with the pointers of ";
/// The version of the layout: no other is read.
const CACHE_VERSION: u32 = 1;
/// The longest record or marker.
const MAX_RECORD_BYTES: u64 = 16 << 10;
/// The time limit to read a record.
const RECORD_DEADLINE: Duration = Duration::from_secs(5);

/// The content of the marker; with a blob, that of a record.
#[derive(Serialize, Deserialize)]
struct Record {
    bloomsday_cache: u32,
    store: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pointer_day: Option<Day>,
}

/// What was followed last.
pub(crate) struct LastFollowed {
    pub(crate) blob: BlobKey,
    /// The day of the pointer that named it; a pin has none.
    pub(crate) pointer_day: Option<Day>,
}

/// A folder with one blob for each filter. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// The names of the store and of the place of its pointers.
    store: Arc<str>,
    /// A read took too long: the cache is not used any more.
    hangs: Arc<AtomicBool>,
    /// The filters of this process write one after the other.
    writing: Arc<Mutex<()>>,
}

/// Checks where a cache may be, and returns its real path. Neither the cache nor the store, where
/// that is a local folder, needs to be there yet. Writes nothing.
///
/// # Errors
/// [`Error::Cache`] for a folder that is a store, is in one, or has `store` in it.
pub fn check_cache_dir(folder: &Path, store: Option<&Path>) -> Result<PathBuf, Error> {
    let refused = |why| Error::Cache { folder: folder.display().to_string(), why };
    let real = real_path(folder).map_err(refused)?;
    let store = store.and_then(|store| real_path(store).ok());
    place::check(&real, store.as_deref()).map_err(refused)?;
    Ok(real)
}

/// Whether a cache has the copy of one of these filters, and is of this store, wherever its
/// pointers are.
pub(crate) fn has_copies_of(folder: &Path, store: &Store, filters: &[&FilterName]) -> bool {
    let Ok(Some(marker)) = read_record(&folder.join(MARKER)) else { return false };
    let rest = marker.store.strip_prefix(store.name());
    let is_of_store = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(WITH_POINTERS));
    let has_copy = |filter: &&FilterName| is_file(&folder.join(filter.as_str()).join(FOLLOWED));
    is_of_store && filters.iter().any(has_copy)
}

impl Cache {
    /// Opens the folder for the copies of a store, and makes it if necessary.
    ///
    /// # Errors
    /// [`Error::Cache`] for a folder that belongs to a store, is in one, or has copies of another
    /// store; [`Error::NoCache`] when it cannot be made.
    pub(crate) fn open(folder: &Path, store: &Store) -> Result<Cache, Error> {
        let refused = |why| Error::Cache { folder: folder.display().to_string(), why };
        let real = check_cache_dir(folder, store.folder())?;
        fs::create_dir_all(&real)
            .map_err(|source| Error::NoCache { folder: folder.display().to_string(), source })?;
        let name = match store.pointers_name() {
            Some(pointers) => format!("{}{WITH_POINTERS}{pointers}", store.name()),
            None => store.name().to_owned(),
        };
        let cache = Cache {
            folder: real,
            store: name.into(),
            hangs: Arc::default(),
            writing: Arc::default(),
        };
        match cache.check_marker() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(refused(error.to_string()));
            }
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("nothing can be cached in {folder} for now: {error}");
            }
        }
        Ok(cache)
    }

    /// The blob that was used last, if its copy is from this store.
    pub(crate) async fn followed(&self, filter: &FilterName) -> Option<LastFollowed> {
        let (cache, filter) = (self.clone(), filter.clone());
        self.in_time(RECORD_DEADLINE, move || cache.record(&filter)).await?
    }

    /// The copy of a blob, if there is one, and its size.
    pub(crate) async fn copy(&self, key: &BlobKey) -> Option<(File, u64)> {
        let path = self.path_of(key)?;
        let open =
            move || path.parent().filter(|p| is_folder(p)).and_then(|_| open_file(&path).ok());
        self.in_time(RECORD_DEADLINE, open).await?
    }

    /// The bytes of a copy, unchecked.
    pub(crate) async fn read(
        &self,
        (file, bytes): (File, u64),
        spare_buffer: Option<Buffer>,
        deadline: Duration,
    ) -> Option<RawBlob> {
        let read = move || {
            let bytes = usize::try_from(bytes).ok()?;
            read_copy(&file, Buffer::reuse(spare_buffer, bytes).ok()?).ok()
        };
        self.in_time(deadline, read).await?
    }

    /// Removes a damaged copy, so that it is written again.
    pub(crate) async fn forget(&self, key: &BlobKey) {
        let Some(path) = self.path_of(key) else { return };
        // If it cannot be removed, the next start reads it once more, which only costs time.
        let is_removable = |path: &Path| path.parent().is_some_and(is_folder) && is_file(path);
        let remove = move || is_removable(&path).then(|| fs::remove_file(path));
        self.in_time(RECORD_DEADLINE, remove).await;
    }

    /// Reads on a thread of its own. After one timeout the cache is not used any more, because that
    /// thread may never return.
    async fn in_time<T: Send + 'static>(
        &self,
        deadline: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.hangs.load(Ordering::Relaxed) {
            return None;
        }
        match tokio::time::timeout(deadline, tokio::task::spawn_blocking(read)).await {
            Ok(read) => read.ok(),
            Err(_) => {
                self.hangs.store(true, Ordering::Relaxed);
                let folder = self.folder.display();
                tracing::warn!("the cache in {folder} does not answer: it is not used any more");
                None
            }
        }
    }

    /// Writes the copy and the record of a verified blob, which the pointer of `pointer_day` named,
    /// and removes the copy before it.
    ///
    /// After a crash at any moment a start finds the old record or the new one, with its blob.
    pub(crate) fn keep(
        &self,
        key: &BlobKey,
        pointer_day: Option<Day>,
        bytes: &[u8],
    ) -> io::Result<()> {
        // After a panic there is nothing to mend: each file is whole or not there.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have deleted it.
        make_folder(&self.folder)?;
        self.check_marker()?;
        // Otherwise one process could delete the copy that another one is about to record.
        let (marker, _) = open_file(&self.folder.join(MARKER))?;
        marker.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("another process is writing to it"),
        })?;
        let copy = self.path_of(key).ok_or_else(|| io::Error::other("a blob without a name"))?;
        let folder = copy.parent().expect("a copy lies in its filter's folder");
        make_folder(folder)?;
        if !is_file(&copy) || fs::symlink_metadata(&copy)?.len() != bytes.len() as u64 {
            write_durably(&copy, bytes, stop_for_tests)?;
        }
        let record = self.record_of(Some(key), pointer_day);
        write_durably(&folder.join(FOLLOWED), &record, stop_for_tests)?;
        for entry in fs::read_dir(folder)? {
            let other = entry?.path();
            if other != copy && is_copy(&other) && is_file(&other) {
                fs::remove_file(other)?;
            }
        }
        Ok(())
    }

    /// Writes the marker if there is none.
    ///
    /// # Errors
    /// The kind is `InvalidData` for the marker of another store, and for a file that is no marker.
    fn check_marker(&self) -> io::Result<()> {
        let path = self.folder.join(MARKER);
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return write_durably(&path, &self.record_of(None, None), |_| ());
            }
            about => about.map(drop)?,
        }
        match read_record(&path) {
            Ok(Some(Record { store, .. })) if *store == *self.store => Ok(()),
            Ok(Some(Record { store, .. })) => {
                Err(wrong(format!("it has the copies of {store}, not of {}", self.store)))
            }
            Ok(None) => Err(wrong(format!("its file {MARKER} is not of this version"))),
            Err(e) => Err(wrong(format!("its file {MARKER} cannot be read: {e}"))),
        }
    }

    /// The blob of the record, if it is from this store.
    pub(crate) fn record(&self, filter: &FilterName) -> Option<LastFollowed> {
        let folder = self.folder.join(filter.as_str());
        if !is_folder(&folder) {
            return None;
        }
        let path = folder.join(FOLLOWED);
        let record = match read_record(&path) {
            Ok(record) => record,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("{} is not read: {error}", path.display());
                return None;
            }
        };
        let Some(record) = record else {
            let folder = folder.display();
            tracing::warn!(
                "{folder}/{FOLLOWED} is not of this version and is not read; what an older one \
                 left in {folder}/blobs may be deleted"
            );
            return None;
        };
        let own = *record.store == *self.store;
        let blob = BlobKey::parse(&record.blob.filter(|_| own)?, filter, &[]).ok()?;
        Some(LastFollowed { blob, pointer_day: record.pointer_day })
    }

    fn record_of(&self, key: Option<&BlobKey>, pointer_day: Option<Day>) -> Vec<u8> {
        let record = Record {
            bloomsday_cache: CACHE_VERSION,
            store: self.store.to_string(),
            blob: key.map(BlobKey::to_string),
            pointer_day,
        };
        let mut bytes = serde_json::to_vec(&record).expect("a record holds only strings");
        bytes.push(b'\n');
        bytes
    }

    /// The path of the copy of a blob.
    pub(crate) fn path_of(&self, key: &BlobKey) -> Option<PathBuf> {
        let key_path = PathBuf::from(key.to_string());
        let name = Path::new(key_path.file_name()?).with_extension(COPY);
        Some(self.folder.join(key.filter.as_str()).join(name))
    }
}

/// Whether a file has the name of a copy.
fn is_copy(path: &Path) -> bool {
    let filter: FilterName = "any".parse().expect("a name");
    let blob = path.with_extension("bloom");
    let name = blob.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.extension().is_some_and(|extension| extension == COPY)
        && BlobKey::parse(&format!("blobs/{name}"), &filter, &[]).is_ok()
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_file())
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

fn not_a(wanted: &str, path: &Path) -> io::Error {
    io::Error::other(format!("{} is not a {wanted}: remove it", path.display()))
}

/// Makes a filter's folder, which must be a folder and not a link to one.
fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ if is_folder(path) => Ok(()),
        _ => Err(not_a("folder", path)),
    }
}

/// Opens a regular file, and returns its size. It never waits, as to open a pipe would.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    // To open a device can have effects.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(not_a("file", path));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).expect("the flags fit, as they do in open(2)");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // The file may have been replaced between the two calls.
    let about = file.metadata()?;
    if about.is_file() { Ok((file, about.len())) } else { Err(not_a("file", path)) }
}

/// Reads a record; `None` when it is not of this layout.
fn read_record(path: &Path) -> io::Result<Option<Record>> {
    let (file, _) = open_file(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
    let record = serde_json::from_slice::<Record>(&bytes).ok();
    Ok(record.filter(|record| record.bloomsday_cache == CACHE_VERSION))
}

/// Writes or replaces a regular file, completely or not at all.
fn write_durably(path: &Path, bytes: &[u8], done: impl Fn(WriteStep)) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(not_a("file", path));
    }
    atomic_file::write(path, bytes, done)
}

fn stop_for_tests(step: WriteStep) {
    crash_point(match step {
        WriteStep::Staged => "cache-staged",
        WriteStep::Renamed => "cache-renamed",
    });
}
