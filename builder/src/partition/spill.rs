//! The temporary file for hashes beyond the memory budget. Knows no partitions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::hash::IdHash;

/// A range of the file with hashes.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    offset: u64,
    pub(super) bytes: u64,
}

/// A file without a name. Each writer has its own offsets, so writing needs no lock.
pub(super) struct Spill {
    folder: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    end: AtomicU64,
}

impl Spill {
    pub(super) fn new(folder: &Path) -> Spill {
        Spill { folder: folder.to_owned(), file: Mutex::new(None), end: AtomicU64::new(0) }
    }

    pub(super) fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock().expect("opening a file does not panic");
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let made = Arc::new(tempfile::tempfile_in(&self.folder).map_err(|e| {
            io::Error::new(e.kind(), format!("no temporary file in {}: {e}", self.folder.display()))
        })?);
        *file = Some(made.clone());
        crash_point("spill-created");
        Ok(made)
    }

    /// Writes hashes at the end of the file.
    pub(super) fn append<H: IdHash>(&self, hashes: &[H]) -> io::Result<Extent> {
        let bytes: &[u8] = bytemuck::cast_slice(hashes);
        let extent = self.reserve::<H>(hashes.len());
        self.file()?.write_all_at(bytes, extent.offset).map_err(|e| self.named(e))?;
        Ok(extent)
    }

    /// Reads hashes and appends them to `hashes`.
    pub(super) fn read<H: IdHash>(
        &self,
        extents: &[Extent],
        hashes: &mut Vec<H>,
    ) -> io::Result<()> {
        let file = self.file()?;
        for extent in extents {
            let before = hashes.len();
            hashes.resize(before + extent.bytes as usize / size_of::<H>(), H::zeroed());
            file.read_exact_at(bytemuck::cast_slice_mut(&mut hashes[before..]), extent.offset)
                .map_err(|e| self.named(e))?;
        }
        Ok(())
    }

    /// Adds the folder to an error: the file has no name that an operator could look for.
    fn named(&self, e: io::Error) -> io::Error {
        io::Error::new(e.kind(), format!("the temporary file in {}: {e}", self.folder.display()))
    }

    fn reserve<H>(&self, n: usize) -> Extent {
        let bytes = (n * size_of::<H>()) as u64;
        Extent { offset: self.end.fetch_add(bytes, Ordering::Relaxed), bytes }
    }
}
