//! The local folders of a configuration: whether the store and the cache can be where it says.

use std::path::{Component, Path, PathBuf};

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::store::Store;
use bloomsday_server::error::Error as ServerError;

use crate::config::Settings;
use crate::error::Error;

/// Refuses a store that is a file or lies below one: no build could make its folder.
pub(super) fn check_store(settings: &Settings) -> Result<(), Error> {
    let Some((address, _)) = settings.store_and_source() else { return Ok(()) };
    let Err(StoreError::NoStore { path }) = Store::open(address) else { return Ok(()) };
    let absolute = std::path::absolute(&path).unwrap_or_else(|_| PathBuf::from(&path));
    match absolute.ancestors().find(|above| above.symlink_metadata().is_ok()) {
        Some(there) if !there.is_dir() => Err(Error::Usage(format!(
            "the store {path} cannot be used: {} is no folder; name a folder, or move that away",
            there.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a cache that is in the store or around it, as a server does.
pub(super) fn check_cache(settings: &Settings, folder: &Path) -> Result<(), Error> {
    let Some((address, _)) = settings.store_and_source() else { return Ok(()) };
    let store = match Store::open(address) {
        Ok(store) => store.folder().map(Path::to_owned),
        Err(StoreError::NoStore { path }) => real(Path::new(&path)),
        Err(_) => None,
    };
    let (Some(store), Some(cache)) = (store, real(folder)) else { return Ok(()) };
    let why = if cache.starts_with(&store) {
        format!("it is in the store {}", store.display())
    } else if store.starts_with(&cache) {
        format!("the store {} is in it", store.display())
    } else {
        return Ok(());
    };
    Err(ServerError::Cache { folder: folder.display().to_string(), why }.into())
}

/// The real path of a folder that may not be there yet.
fn real(folder: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(folder).ok()?;
    let there = absolute.ancestors().find(|above| above.symlink_metadata().is_ok())?;
    let rest = absolute.strip_prefix(there).expect("it is an ancestor");
    let goes_up = rest.components().any(|part| part == Component::ParentDir);
    if goes_up { None } else { Some(there.canonicalize().ok()?.join(rest)) }
}
