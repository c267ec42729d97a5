//! Lists a local folder. Nothing is skipped silently: a broken link, a pipe, and a name that the
//! store's client would hide are refused by name.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FilePath, PathBuf};

use bloomsday_common::store::Location;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta};

use super::limits::check_count;
use super::listing::{DELTA_LOG, ICEBERG_METADATA, ICEBERG_TABLE, Listing};
use super::objects::{below, input_error};
use super::pattern::is_hidden;
use crate::error::Error;

/// The deepest nesting of folders; links can make them deeper than they are on disk.
pub const MAX_DEPTH: usize = 100;
/// The most entries that are read of a folder `metadata` to see whether it is Iceberg's, whose
/// names begin with a digit or a `v`.
pub(super) const MAX_PEEKED: usize = 1000;

/// The path of a location in the file system.
pub(super) fn path(location: &Location) -> PathBuf {
    FilePath::new("/").join(location.path.as_ref())
}

/// Lists everything below an existing folder.
pub(super) fn walk(location: &Location, listing: Listing) -> Result<Listing, Error> {
    let mut walk = Walk { location, listing, names: LocalFileSystem::new(), above: Vec::new() };
    walk.folder(&path(location), "", false)?;
    Ok(walk.listing.finish())
}

/// The entry of a single file, as a listing would show it.
pub(super) fn file(location: &Location, metadata: &Metadata) -> Result<ObjectMeta, Error> {
    let path = path(location);
    if !metadata.is_file() {
        return Err(neither(location.name.clone()));
    }
    meta(&LocalFileSystem::new(), &path, metadata).ok_or_else(|| unnameable(location.name.clone()))
}

struct Walk<'a> {
    location: &'a Location,
    listing: Listing,
    names: LocalFileSystem,
    /// The folders above, with links followed, by device and inode.
    above: Vec<(u64, u64)>,
}

impl Walk<'_> {
    fn folder(&mut self, path: &FilePath, relative: &str, hidden: bool) -> Result<(), Error> {
        let failed = |error: io::Error| self.failed(relative, error);
        let metadata = fs::metadata(path).map_err(failed)?;
        let this = (metadata.dev(), metadata.ino());
        if self.above.contains(&this) {
            return Err(Error::NotAFile {
                file: self.name(relative),
                why: "it is a link to a folder that it lies in".to_owned(),
                remedy: "remove the link, or leave it out with a glob",
            });
        }
        let remedy = "name the folders that are meant with a glob";
        check_count(&self.name(relative), "folders above it", self.above.len(), MAX_DEPTH, remedy)?;
        let entries = match fs::read_dir(path) {
            // A hidden folder may be unreadable.
            Err(_) if hidden => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        self.above.push(this);
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(relative, error))?;
            let name = entry.file_name();
            let inside = match relative {
                "" => name.to_string_lossy().into_owned(),
                relative => format!("{relative}/{}", name.to_string_lossy()),
            };
            let kind = entry.file_type().map_err(|error| self.failed(&inside, error))?;
            self.entry(&entry.path(), inside, kind.is_symlink(), hidden)?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(
        &mut self,
        path: &FilePath,
        relative: String,
        is_link: bool,
        hidden: bool,
    ) -> Result<(), Error> {
        let name = relative.rsplit('/').next().unwrap_or(&relative);
        let hidden = hidden || is_hidden(name);
        if hidden && is_link {
            // A hidden link is not followed: its target is not part of the input.
            return self.pass_over(relative);
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            // It was deleted after the listing, as a writer's temporary file is.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link => return Ok(()),
            Err(_) if hidden => return self.pass_over(relative),
            Err(error) if is_link => return self.check_broken_link(path, relative, &error),
            Err(error) => return Err(self.failed(&relative, error)),
        };
        if metadata.is_dir() {
            self.note_table(path, &relative);
            self.listing.note_unfinished(&relative);
            if !self.listing.pattern.may_contain(&relative) {
                return self.listing.count();
            }
            self.listing.take_folder(&relative)?;
            return self.folder(path, &relative, hidden);
        }
        if metadata.is_file()
            && let Some(meta) = meta(&self.names, path, &metadata)
        {
            return self.listing.take(relative, meta);
        }
        if hidden {
            return self.pass_over(relative);
        }
        if !self.listing.pattern.matches(&relative) {
            self.listing.count()
        } else if metadata.is_file() {
            Err(unnameable(self.name(&relative)))
        } else {
            Err(neither(self.name(&relative)))
        }
    }

    /// Refuses a broken link that could be a matching file, or a folder with matching files.
    fn check_broken_link(
        &mut self,
        path: &FilePath,
        relative: String,
        error: &io::Error,
    ) -> Result<(), Error> {
        let pattern = &self.listing.pattern;
        if !pattern.matches(&relative) && !pattern.may_contain(&relative) {
            return self.listing.count();
        }
        let to = fs::read_link(path).map_or_else(|_| "?".into(), |to| to.display().to_string());
        Err(Error::NotAFile {
            file: self.name(&relative),
            why: format!("it is a link to {to}, which cannot be reached ({error})"),
            remedy: "bring back what it leads to, or remove the link",
        })
    }

    fn pass_over(&mut self, relative: String) -> Result<(), Error> {
        if self.listing.pattern.matches(&relative) {
            self.listing.pass_over(&relative);
        }
        self.listing.count()
    }

    /// Reads as much of a folder as shows whether it is the metadata of a table.
    fn note_table(&mut self, path: &FilePath, relative: &str) {
        match relative.rsplit('/').next() {
            Some(DELTA_LOG) => self.listing.note_table(relative, ""),
            Some(ICEBERG_METADATA) if has_iceberg_metadata(path) => {
                self.listing.note_table(relative, ICEBERG_TABLE);
            }
            _ => {}
        }
    }

    fn name(&self, relative: &str) -> String {
        below(&self.location.name, relative)
    }

    fn failed(&self, relative: &str, error: io::Error) -> Error {
        let path = self.name(relative);
        let source: StoreError = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                StoreError::PermissionDenied { path, source: error.into() }
            }
            io::ErrorKind::NotFound => StoreError::NotFound { path, source: error.into() },
            _ => StoreError::Generic {
                store: "local folder",
                source: format!("{path}: {error}").into(),
            },
        };
        input_error("list", self.location, source)
    }
}

/// Whether a folder contains the metadata of an Iceberg table.
pub(super) fn has_iceberg_metadata(metadata: &FilePath) -> bool {
    let entries = fs::read_dir(metadata).into_iter().flatten().flatten().take(MAX_PEEKED);
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(ICEBERG_TABLE))
}

/// A file as the store's client would list it; `None` if the client would hide or rename it.
fn meta(names: &LocalFileSystem, path: &FilePath, metadata: &Metadata) -> Option<ObjectMeta> {
    let location = Path::from_absolute_path(path).ok()?;
    if names.path_to_filesystem(&location).ok()? != path {
        return None;
    }
    let modified = metadata.modified().unwrap_or(std::time::SystemTime::UNIX_EPOCH);
    let since = modified.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The same tag as the client makes, so a replaced file is detected.
    let tag = format!("\"{:x}-{:x}-{:x}\"", metadata.ino(), since.as_micros(), metadata.len());
    Some(ObjectMeta {
        location,
        last_modified: modified.into(),
        size: metadata.len(),
        e_tag: Some(tag),
        version: None,
    })
}

fn neither(file: String) -> Error {
    let why = "it is neither a file nor a folder, but a pipe, a socket or a device".to_owned();
    Error::NotAFile { file, why, remedy: "remove it, or leave it out with a glob" }
}

fn unnameable(file: String) -> Error {
    let why = "its name is not UTF-8, ends with `#` and digits as an unfinished upload's does, or \
               has a character that no store's key can have"
        .to_owned();
    Error::NotAFile { file, why, remedy: "rename it" }
}
