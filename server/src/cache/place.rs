//! Where a cache may be: not in a store, and with no store in it. Reads only; writes nothing.

use std::fs;
use std::path::Path;

use bloomsday_common::key::FilterName;

/// The most entries of a folder that are checked for filters; a larger store has some among the
/// first.
const MAX_ENTRIES: usize = 10_000;

/// Refuses a folder that is a store, is in a store, or has the folder of its own `store` in it.
pub(super) fn check(folder: &Path, store: Option<&Path>) -> Result<(), String> {
    if let Some(own) = store {
        if folder.starts_with(own) {
            return Err(format!("it is in the store {}", own.display()));
        }
        if own.starts_with(folder) {
            return Err(format!("the store {} is in it", own.display()));
        }
    }
    if has_filter(folder, |filter| filter.join("pointers").is_dir()) {
        return Err("it is a store: it has the pointers of a filter".into());
    }
    for around in folder.ancestors() {
        if is_filter(around) {
            return Err(format!("it is in a store, in the filter {}", around.display()));
        }
        if has_filter(around, is_filter) {
            return Err(format!("it is in the store {}", around.display()));
        }
    }
    Ok(())
}

/// Whether a folder is a filter's in a store.
fn is_filter(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_dir();
    has("blobs") && (has("pointers") || has("history"))
}

fn has_filter(folder: &Path, is_filter: impl Fn(&Path) -> bool) -> bool {
    // A folder that cannot be listed does not count as a store.
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut entries = entries.flatten().take(MAX_ENTRIES);
    entries.any(|entry| {
        let name = entry.file_name().to_str().and_then(|name| name.parse::<FilterName>().ok());
        name.is_some() && is_filter(&entry.path())
    })
}
