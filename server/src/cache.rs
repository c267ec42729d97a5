//! The local copy: verified blobs and the record last followed, for a start without the store.
//!
//! Its folder has a store's own layout, so it is read as one, and checked as strictly.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bloomsday_common::blob::Fetched;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::error::Error;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::Pointer;
use bloomsday_common::store::Store;

use crate::loader::Spare;

/// The file with the record last followed, in a filter's folder.
const FOLLOWED: &str = "followed";

/// A folder with one blob a filter.
pub(crate) struct Cache {
    folder: PathBuf,
    store: Store,
}

impl Cache {
    /// Opens the folder, and makes it if need be.
    pub(crate) fn open(folder: &Path) -> Result<Cache, Error> {
        let store = Store::create(&folder.display().to_string())?;
        Ok(Cache { folder: folder.to_owned(), store })
    }

    /// The size of a blob, if it is here.
    pub(crate) async fn blob_bytes(&self, key: &BlobKey) -> Result<u64, Error> {
        Ok(self.store.look_at_blob(key).await?.0)
    }

    /// A blob's bytes, unchecked, if they are here; in `spare` memory if that fits.
    pub(crate) async fn fetch(
        &self,
        key: &BlobKey,
        limit: u64,
        spare: Spare,
    ) -> Result<Fetched, Error> {
        self.store.fetch_into(key, limit, spare).await
    }

    /// What was followed last.
    pub(crate) fn followed(&self, filter: &FilterName) -> Option<Pointer> {
        let bytes = fs::read(self.folder.join(filter.as_str()).join(FOLLOWED)).ok()?;
        Pointer::parse(&bytes, filter, &[]).ok()
    }

    /// Keeps a verified blob as what is followed, and drops the others of its filter.
    ///
    /// After a crash at any moment a start finds the old record or the new one, with its blob.
    pub(crate) fn keep(&self, key: &BlobKey, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(key.to_string());
        let blobs = path.parent().expect("a blob's key has a folder");
        fs::create_dir_all(blobs)?;
        if fs::metadata(&path).map_or(0, |file| file.len()) != bytes.len() as u64 {
            write_durably(&path, bytes)?;
        }
        let record = self.folder.join(key.filter.as_str()).join(FOLLOWED);
        write_durably(&record, &Pointer::to(key.clone()).to_bytes())?;
        for entry in fs::read_dir(blobs)? {
            let other = entry?.path();
            if other != path {
                fs::remove_file(other)?;
            }
        }
        Ok(())
    }

    /// Drops a blob that turned out damaged, so that it is fetched anew.
    pub(crate) fn forget(&self, key: &BlobKey) {
        // If it cannot be removed it is found damaged again, which costs time and nothing else.
        let _ = fs::remove_file(self.folder.join(key.to_string()));
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        crash_point("cache-staged");
        fs::rename(&temporary, path)?;
        crash_point("cache-renamed");
        Ok(())
    };
    write().inspect_err(|_: &io::Error| {
        // A full disk is not helped by half a blob; and if this fails too, the next write tries again.
        let _ = fs::remove_file(&temporary);
    })?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
