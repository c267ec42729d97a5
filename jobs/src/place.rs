//! Where a command may write a file that a person names.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Refuses a file in a store: what is there belongs to builds, and a blob is never changed. Returns
/// the real path of its folder.
///
/// # Errors
/// The folder is not there, or is in the folder of a filter.
pub(crate) fn ensure_not_in_store(path: &Path) -> Result<PathBuf, Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let Ok(folder) = folder.canonicalize() else {
        let why = format!("there is no folder {}: create it", folder.display());
        return Err(Error::NotFound(why));
    };
    // Its first build writes `store.json`; pointers may be in Redis.
    let is_filter = |folder: &Path| {
        let has = |name: &str| folder.join(name).exists();
        has("blobs") && (has("pointers") || has("store.json")) || has("live/heads")
    };
    // A link may lead to a blob.
    let file = path.canonicalize().unwrap_or_else(|_| folder.clone());
    let is_in_store = folder.ancestors().chain(file.ancestors()).any(is_filter);
    if is_in_store { Err(in_store(path)) } else { Ok(folder) }
}

/// The file to write under this name: a link stays one, and the file that it names is replaced.
///
/// # Errors
/// The link names no file.
pub(crate) fn real_file(path: &Path) -> Result<PathBuf, Error> {
    match path.metadata() {
        _ if !path.is_symlink() => return Ok(path.to_owned()),
        Ok(about) if about.is_file() => path.canonicalize(),
        Err(why) => Err(why),
        // A pipe or a device has no other name.
        Ok(_) => return Ok(path.to_owned()),
    }
    .map_err(|source| {
        let path = path.display();
        let doing = format!(
            "find the file that the link {path} names (remove the link, or make that file)"
        );
        Error::System { doing, source }
    })
}

pub(crate) fn in_store(path: &Path) -> Error {
    Error::Usage(format!("{} is in a store: name a file in another place", path.display()))
}
