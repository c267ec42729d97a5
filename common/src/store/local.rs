//! [`LocalRecords`]: records in a local folder. It has no conditional writes of its own, so they
//! are made of a lock, a comparison and an atomic write.
//!
//! Our programs take the lock. A person's editor does not: an edit between our comparison and our
//! rename, microseconds later, is lost.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::objects::ObjectRecords;
use super::records::RecordStore;
use super::versioned::SeenVersion;
use crate::atomic_file::{self, WriteStep};
use crate::crash_point::crash_point;
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::MAX_RECORD_BYTES;
use crate::redact::sanitize;

/// A record is written in milliseconds: a program that keeps the lock for so long has stopped.
const LOCK_WAIT: Duration = Duration::from_secs(20);
/// The pause between two tries to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// The most that is read of a lock file, in which its holder wrote who it is.
const MAX_HOLDER_BYTES: u64 = 200;

/// No upload takes so long, neither here nor to HDFS.
pub(super) const MAX_UPLOAD_AGE: Duration = Duration::from_secs(24 * 3600);

/// Records in a local folder, read as objects and written as files.
pub(super) struct LocalRecords {
    objects: ObjectRecords,
    folder: PathBuf,
}

impl LocalRecords {
    pub(super) fn new(objects: ObjectRecords, folder: PathBuf) -> LocalRecords {
        LocalRecords { objects, folder }
    }
}

impl RecordStore for LocalRecords {
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<SeenVersion, Error>> {
        let read = async {
            check_inside_store(&self.folder, key)?;
            self.objects.read(key).await
        };
        read.boxed()
    }

    fn try_put_if<'a>(
        &'a self,
        key: &'a str,
        new: Bytes,
        seen: &'a SeenVersion,
    ) -> BoxFuture<'a, Result<(), Error>> {
        put_if(self.folder.clone(), key.to_owned(), new, seen.bytes().cloned()).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.objects.delete(key)
    }

    fn pointer_days<'a>(
        &'a self,
        filter: &'a FilterName,
    ) -> BoxFuture<'a, Result<Vec<Day>, Error>> {
        let folder = self.folder.join(key::pointers(filter));
        let days = async move {
            let mut days = self.objects.pointer_days(filter).await?;
            let others = tokio::task::spawn_blocking(move || days_that_are_no_files(&folder)).await;
            days.extend(others.unwrap_or_default());
            days.sort_unstable();
            days.dedup();
            Ok(days)
        };
        days.boxed()
    }
}

/// The days whose pointers are folders or lead nowhere, which to an object store are nothing: what
/// they are to name is not known, so that a prune must not take it for unneeded.
fn days_that_are_no_files(folder: &Path) -> Vec<Day> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let others = entries.flatten().filter(|entry| !entry.path().is_file());
    others.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Writes `new` at `key` if the file contains `expected` (or is absent, for `None`).
///
/// After a crash at any moment the file is complete: the old one or the new one.
///
/// # Errors
/// [`Error::Changed`] when it contains something else; [`Error::Locked`]; [`Error::File`].
async fn put_if(
    folder: PathBuf,
    key: String,
    new: Bytes,
    expected: Option<Bytes>,
) -> Result<(), Error> {
    let task = tokio::task::spawn_blocking(move || put_if_now(&folder, &key, &new, expected));
    task.await.expect("writing a small file does not panic")
}

fn put_if_now(folder: &Path, key: &str, new: &[u8], expected: Option<Bytes>) -> Result<(), Error> {
    let path = folder.join(key);
    let parent = path.parent().expect("a key has a folder").to_owned();
    let failed = |doing| {
        let path = path.display().to_string();
        move |source| Error::File { doing, path, source }
    };
    fs::create_dir_all(&parent).map_err(failed("make the folder of"))?;
    check_inside_store(folder, key)?;
    // The lock is released when the file is closed, also when the process is killed.
    let _lock = lock(&parent.join(".lock"))?;
    crash_point("pointer-locked");

    let found = match read_record(&path) {
        Ok(bytes) => Some(Bytes::from(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(failed("read")(e)),
    };
    if found != expected {
        return Err(Error::Changed { key: key.to_owned(), now: "somebody wrote it".into() });
    }
    let done = |step| {
        crash_point(match step {
            WriteStep::Staged => "pointer-staged",
            WriteStep::Renamed => "pointer-renamed",
        });
    };
    atomic_file::write(&path, new, done).map_err(failed("write"))
}

/// A lock that is taken. It ends with this, and does not name its holder any more.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Only for people: the system ends the lock.
        let _ = self.0.set_len(0);
    }
}

/// Takes a lock, and writes into it who did.
///
/// # Errors
/// [`Error::Locked`] after [`LOCK_WAIT`]: its holder was stopped, or its disk hangs.
fn lock(path: &Path) -> Result<Lock, Error> {
    let failed = |source| Error::File { doing: "lock", path: path.display().to_string(), source };
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    let mut lock = options.open(path).map_err(failed)?;
    let began = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if began.elapsed() >= LOCK_WAIT => {
                let mut holder = String::new();
                let read = lock.take(MAX_HOLDER_BYTES).read_to_string(&mut holder);
                let known = read.is_ok() && !holder.trim().is_empty();
                let holder =
                    if known { sanitize(holder.trim()) } else { "another program".to_owned() };
                let (lock, seconds) = (path.display().to_string(), LOCK_WAIT.as_secs());
                return Err(Error::Locked { lock, holder, seconds });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (process, now) = (std::process::id(), jiff::Timestamp::now());
    let holder = format!("process {process} on {} since {now:.0}\n", host.trim());
    // Only for people: with a full disk, the lock must still work.
    let _ = lock.set_len(0).and_then(|()| lock.write_all(holder.as_bytes()));
    Ok(Lock(lock))
}

/// Files older than a day that uploads which never ended have left in the folder `objects` of a
/// store: key and size. `is_object` says whether a name is that of an object there.
///
/// An object is written to `{name}#{number}` and then renamed; `kill -9` leaves that file, which no
/// listing of a store returns.
pub(super) fn abandoned_uploads(
    folder: &Path,
    objects: &str,
    is_object: impl Fn(&str) -> bool,
) -> Result<Vec<(String, u64)>, Error> {
    let list = || -> io::Result<Vec<(String, u64)>> {
        let files = match fs::read_dir(folder.join(objects)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut abandoned = Vec::new();
        for file in files {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let Some((object, number)) = name.rsplit_once('#') else { continue };
            if !is_object(object) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let about = match file.metadata() {
                // An upload that ended since it was listed has renamed it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                about => about?,
            };
            let age = about.modified()?.elapsed().unwrap_or_default();
            if about.is_file() && age > MAX_UPLOAD_AGE {
                abandoned.push((format!("{objects}/{name}"), about.len()));
            }
        }
        abandoned.sort_unstable();
        Ok(abandoned)
    };
    list().map_err(|source| Error::File { doing: "list", path: objects.to_owned(), source })
}

/// Deletes one of the [`abandoned_uploads`]. Returns its size, or `None` if it is not there any
/// more: an upload that ended at this moment has renamed it.
pub(super) fn delete_abandoned(folder: &Path, key: &str) -> Result<Option<u64>, Error> {
    let path = folder.join(key);
    let delete = || {
        let bytes = fs::metadata(&path)?.len();
        fs::remove_file(&path).map(|()| bytes)
    };
    match delete() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        deleted => deleted.map(Some).map_err(|source| {
            let path = path.display().to_string();
            Error::File { doing: "delete", path, source }
        }),
    }
}

/// Removes a folder in which nothing is: object stores have no empty folders either. One that
/// cannot be removed does no harm.
pub(super) fn remove_if_empty(folder: &Path, key: &str) {
    let _ = fs::remove_dir(folder.join(key));
}

/// Reads at most one byte more than a record may have, as `Objects::read_record` does. So a file
/// that is too large compares equal to what was read of it and can be replaced.
fn read_record(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a key in whose place is a folder, a symbolic link to nothing, or one that leads out of
/// the store's folder.
///
/// # Errors
/// [`Error::StoreUrl`] naming the place. A file that does not exist is not an error.
pub(super) fn check_inside_store(folder: &Path, key: &str) -> Result<(), Error> {
    let path = folder.join(key);
    // To an object store a folder is nothing, and an older record would count in place of this one.
    if path.is_dir() {
        let why = format!("{key} is a folder, not a file: move it away");
        return Err(Error::StoreUrl { url: folder.display().to_string(), why });
    }
    if path.is_symlink() && !path.exists() {
        let why = format!("{key} is a link to a file that is not there: mend or remove it");
        return Err(Error::StoreUrl { url: folder.display().to_string(), why });
    }
    // What is not there yet is made in its folder.
    let real = path.canonicalize().or_else(|_| path.parent().unwrap_or(&path).canonicalize());
    let (Ok(real), Ok(root)) = (real, folder.canonicalize()) else {
        return Ok(());
    };
    if real.starts_with(&root) {
        return Ok(());
    }
    let why = format!("{key} is a link that leads out of the store, to {}", real.display());
    Err(Error::StoreUrl { url: root.display().to_string(), why })
}

/// Refuses to write to a local store whose folder is not there. A write makes the folders that it
/// needs, also the store's own: if the store is not mounted for a while, a new empty folder would
/// be in its way. A store without a folder always passes.
///
/// # Errors
/// [`Error::NoStore`].
pub(super) async fn check_folder_exists(folder: Option<&Path>) -> Result<(), Error> {
    let Some(folder) = folder.map(Path::to_owned) else { return Ok(()) };
    let path = folder.display().to_string();
    let looked = tokio::task::spawn_blocking(move || folder.is_dir()).await;
    let is_there = looked.expect("looking at a folder does not panic");
    if is_there { Ok(()) } else { Err(Error::NoStore { path }) }
}

/// How many links to what is not there are followed.
const MAX_DANGLING_LINKS: usize = 16;

/// The real path of a folder that may not exist yet. A link to what is not there, such as a disk
/// that is not mounted, is followed.
///
/// # Errors
/// Why it has none.
pub fn real_path(folder: &Path) -> Result<PathBuf, String> {
    let mut absolute = std::path::absolute(folder).map_err(|e| e.to_string())?;
    for _ in 0..MAX_DANGLING_LINKS {
        let there = absolute.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
        let there = there.ok_or("no part of its path exists")?;
        let rest = absolute.strip_prefix(there).expect("it is a prefix");
        if rest.components().any(|part| part == Component::ParentDir) {
            return Err("`..` leads through a folder that does not exist".into());
        }
        let failed = |e: io::Error| format!("{}: {e}", there.display());
        match there.canonicalize() {
            Ok(real) => return Ok(real.join(rest)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let target = fs::read_link(there).map_err(failed)?;
                absolute = there.parent().unwrap_or(there).join(target).join(rest);
            }
            Err(e) => return Err(failed(e)),
        }
    }
    Err("it leads through too many links".into())
}
