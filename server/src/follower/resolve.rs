//! [`resolve`]: which blob pin and pointers name.

use std::path::Path;

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Followed;
use bloomsday_common::store::Following;

use crate::loader::Loader;

/// Why pin and pointers name no blob.
pub(super) enum ResolveError {
    /// The store cannot be read.
    Unreachable(String),
    /// The store was read: there is no pointer of these days.
    NoPointer(String),
    /// The store was read, and its record cannot be used.
    NoTarget(String),
}

/// Reads the pin, and the pointers of these days, within the loader's deadline.
pub(super) async fn resolve(
    filter: &FilterName,
    loader: &Loader,
    days: &[Day],
) -> Result<Followed, ResolveError> {
    let resolving = async {
        let found = loader.store.follow(filter, days, loader.clock.now()).await;
        // A local store whose folder is missing has no pointers, either; that does not mean they
        // were deleted.
        match (&found, loader.store.folder()) {
            (Ok(Following::NotFound(_)), Some(folder)) if !is_folder(folder).await => {
                Err(format!("the folder of the store, {}, is not there", folder.display()))
            }
            _ => found.map_err(|e| loader.describe(&e)),
        }
    };
    let following = tokio::time::timeout(loader.deadline, resolving).await.map_err(|_| {
        ResolveError::Unreachable(format!("{} does not answer", loader.store.name()))
    })?;
    match following.map_err(ResolveError::Unreachable)? {
        Following::Blob(followed) => Ok(followed),
        Following::Keep(error) => Err(ResolveError::NoTarget(loader.describe(&error))),
        Following::NotFound(days) => {
            let newest = days.first().map_or(String::new(), Day::to_string);
            let oldest = days.last().map_or(String::new(), Day::to_string);
            let why = format!("`{filter}` has no pointer for any day from {oldest} to {newest}");
            Err(ResolveError::NoPointer(why))
        }
    }
}

async fn is_folder(path: &Path) -> bool {
    let path = path.to_owned();
    // A panic counts as a missing folder.
    tokio::task::spawn_blocking(move || path.is_dir()).await.unwrap_or(false)
}
