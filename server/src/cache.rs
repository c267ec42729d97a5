//! The local copy: the verified blob of each filter that was followed last, for a start without the
//! store.
//!
//! ```text
//! FOLDER/bloomsday-cache                 whose it is: the store's address, without secrets
//! FOLDER/FILTER/followed                 which copy was followed last, and of which store
//! FOLDER/FILTER/DAY-DIGEST.copy          the blob
//! ```
//!
//! The folder is no store and lies in none, and no other store's server shares it. Whatever stands
//! in it, no look waits for it: only regular files are opened, links are not followed, reads are
//! bounded in bytes and time. Nothing is deleted or written over but what bears the names above.

mod place;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomsday_common::blob::RawBlob;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::memory::Buffer;
use bloomsday_common::store::{Store, read_copy};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The file that says whose cache this is.
const MARKER: &str = "bloomsday-cache";
/// The file with the record last followed, in a filter's folder.
const FOLLOWED: &str = "followed";
/// What the name of a copy ends with.
const COPY: &str = "copy";
/// The layout's number: another is not read.
const LAYOUT: u32 = 1;
/// A longer record or marker is not ours.
const MAX_RECORD_BYTES: u64 = 16 << 10;
/// How long a record may take to be read.
const RECORD_DEADLINE: Duration = Duration::from_secs(5);
/// How many names are tried for a file that is written, where somebody put other things under them.
const MAX_NAMES: u32 = 8;

/// What is in the marker, and with a blob in a record.
#[derive(Serialize, Deserialize)]
struct Record {
    bloomsday_cache: u32,
    store: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
}

/// A folder with one blob a filter. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// What the store is called, and what holds its pointers.
    store: Arc<str>,
    /// A read did not come back in time: nothing here is asked any more.
    hangs: Arc<AtomicBool>,
}

impl Cache {
    /// Opens the folder for the copies of a store, and makes it if need be.
    ///
    /// # Errors
    /// [`Error::Cache`] for a folder that is a store's, lies in one, or has the copies of another;
    /// [`Error::System`] when it cannot be made.
    pub(crate) fn open(folder: &Path, store: &Store) -> Result<Cache, Error> {
        let refused = |why| Error::Cache { folder: folder.display().to_string(), why };
        let real = place::real(folder).map_err(refused)?;
        place::check(&real, store).map_err(refused)?;
        fs::create_dir_all(&real).map_err(|source| {
            let doing = format!("make the cache folder {}", folder.display());
            Error::System { doing, source }
        })?;
        let name = match store.pointers_name() {
            Some(pointers) => format!("{} with the pointers of {pointers}", store.name()),
            None => store.name().to_owned(),
        };
        let cache = Cache { folder: real, store: name.into(), hangs: Arc::default() };
        match cache.check_marker() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(refused(error.to_string()));
            }
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("nothing can be cached in {folder} for the time being: {error}");
            }
        }
        Ok(cache)
    }

    /// What was followed last, if a copy of this very store is known to be here.
    pub(crate) async fn followed(&self, filter: &FilterName) -> Option<BlobKey> {
        let (cache, filter) = (self.clone(), filter.clone());
        self.in_time(RECORD_DEADLINE, move || cache.record(&filter)).await?
    }

    /// A copy that is here, and its size.
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
        spare: Option<Buffer>,
        deadline: Duration,
    ) -> Option<RawBlob> {
        let read = move || {
            let bytes = usize::try_from(bytes).ok()?;
            let memory = match spare {
                Some(spare) => spare.reuse(bytes),
                None => Buffer::zeroed(bytes),
            };
            read_copy(&file, memory.ok()?).ok()
        };
        self.in_time(deadline, read).await?
    }

    /// Drops a copy that turned out damaged, so that it is written anew.
    pub(crate) async fn forget(&self, key: &BlobKey) {
        let Some(path) = self.path_of(key) else { return };
        // If it cannot be removed it is found damaged again, which costs time and nothing else.
        let ours = |path: &Path| path.parent().is_some_and(is_folder) && is_file(path);
        let remove = move || ours(&path).then(|| fs::remove_file(path));
        self.in_time(RECORD_DEADLINE, remove).await;
    }

    /// Reads, on a thread that may wait for a disk for ever.
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
                tracing::warn!("the cache in {folder} does not answer: it is not asked any more");
                None
            }
        }
    }

    /// Keeps a verified blob as what is followed, and drops the copy before it.
    ///
    /// After a crash at any moment a start finds the old record or the new one, with its blob.
    pub(crate) fn keep(&self, key: &BlobKey, bytes: &[u8]) -> io::Result<()> {
        self.check_marker()?;
        // Beside another process one would delete what the other is about to name.
        let (marker, _) = open_file(&self.folder.join(MARKER))?;
        marker.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("another process is writing to it"),
        })?;
        let copy = self.path_of(key).ok_or_else(|| io::Error::other("a blob without a name"))?;
        let folder = copy.parent().expect("a copy lies in its filter's folder");
        make_folder(folder)?;
        if !is_file(&copy) || fs::symlink_metadata(&copy)?.len() != bytes.len() as u64 {
            write_durably(&copy, bytes, crash_point)?;
        }
        write_durably(&folder.join(FOLLOWED), &self.record_of(Some(key)), crash_point)?;
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
    /// Of the kind `InvalidData` when somebody else's is there, or something that is none.
    fn check_marker(&self) -> io::Result<()> {
        let path = self.folder.join(MARKER);
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return write_durably(&path, &self.record_of(None), |_| ());
            }
            about => about.map(drop)?,
        }
        match read_record(&path) {
            Ok(Some(Record { store, .. })) if *store == *self.store => Ok(()),
            Ok(Some(Record { store, .. })) => {
                Err(wrong(format!("it has the copies of {store}, not of {}", self.store)))
            }
            Ok(None) => Err(wrong(format!("its file {MARKER} is none of this version"))),
            Err(e) => Err(wrong(format!("its file {MARKER} cannot be read: {e}"))),
        }
    }

    /// What was followed last, by a record of this store.
    pub(crate) fn record(&self, filter: &FilterName) -> Option<BlobKey> {
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
        BlobKey::parse(&record.blob.filter(|_| own)?, filter, &[]).ok()
    }

    fn record_of(&self, key: Option<&BlobKey>) -> Vec<u8> {
        let blob = key.map(BlobKey::to_string);
        let record = Record { bloomsday_cache: LAYOUT, store: self.store.to_string(), blob };
        let mut bytes = serde_json::to_vec(&record).expect("a record holds only strings");
        bytes.push(b'\n');
        bytes
    }

    /// Where the copy of a blob lies.
    pub(crate) fn path_of(&self, key: &BlobKey) -> Option<PathBuf> {
        let key_path = PathBuf::from(key.to_string());
        let name = Path::new(key_path.file_name()?).with_extension(COPY);
        Some(self.folder.join(key.filter.as_str()).join(name))
    }
}

/// Whether a file bears the name of a copy.
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

fn in_the_way(path: &Path, wanted: &str) -> io::Error {
    io::Error::other(format!("{} is no {wanted}: remove it", path.display()))
}

/// Makes a filter's folder, which must be one itself and no link to one.
fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match is_folder(path) {
            true => Ok(()),
            false => Err(in_the_way(path, "folder")),
        },
        made => made,
    }
}

/// Opens a regular file, and gives its size; opening never waits, as it would for a pipe.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    // Some devices do things when they are opened.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(in_the_way(path, "file"));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).expect("the flags fit, as they do in open(2)");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // What is opened may be another than what was looked at.
    let about = file.metadata()?;
    if about.is_file() { Ok((file, about.len())) } else { Err(in_the_way(path, "file")) }
}

/// Reads a record; nothing when it is none of this layout.
fn read_record(path: &Path) -> io::Result<Option<Record>> {
    let (file, _) = open_file(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
    let record = serde_json::from_slice::<Record>(&bytes).ok();
    Ok(record.filter(|record| record.bloomsday_cache == LAYOUT))
}

/// Writes a file in place of one that is there, whole or not at all. `step` is told how far it is.
fn write_durably(path: &Path, bytes: &[u8], step: fn(&'static str)) -> io::Result<()> {
    let (mut file, temporary) = create_beside(path)?;
    let mut write = || {
        file.write_all(bytes)?;
        file.sync_all()?;
        step("cache-staged");
        if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
            return Err(in_the_way(path, "file"));
        }
        fs::rename(&temporary, path)?;
        step("cache-renamed");
        Ok(())
    };
    write().inspect_err(|_: &io::Error| {
        // A full disk is not helped by half a blob; and if this fails too, the next write tries
        // again.
        let _ = fs::remove_file(&temporary);
    })?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Makes a new file beside `path`. One of its name that an earlier write left is written anew;
/// anything else is left alone, and another name is taken.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut last = None;
    for n in 0..MAX_NAMES {
        let temporary = path.with_extension(if n == 0 { "new".into() } else { format!("new{n}") });
        if is_file(&temporary) {
            fs::remove_file(&temporary)?;
        }
        match File::create_new(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.expect("at least one name was tried"))
}
