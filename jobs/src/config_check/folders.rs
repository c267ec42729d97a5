//! The local folders of a configuration: whether the store and the cache can be where it says.

use std::path::{Path, PathBuf};

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::store::Store;
use bloomsday_server::check_cache_dir;

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
    check_cache_dir(folder, settings.store_folder().as_deref())?;
    Ok(())
}
