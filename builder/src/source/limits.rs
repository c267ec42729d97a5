//! The limits of an input, and the check of a count.

use crate::error::Error;

/// The most files of one build. Their footers are kept in memory.
pub const MAX_FILES: usize = 1_000_000;
/// The most names below one input's folder that are listed, whether the input matches them or not.
pub const MAX_LISTED: usize = 20_000_000;
/// The most folders below one input's folder.
pub const MAX_FOLDERS: usize = 1_000_000;
/// The most days whose inputs one build can read together.
pub const MAX_WINDOW_DAYS: u32 = 400;
/// The most names in a list for people.
pub const MAX_NAMED: usize = 20;

/// The most characters of a file's name in a message: what S3 allows for a key, and its bucket.
pub(super) const MAX_NAME_CHARS: usize = 1200;

/// # Errors
/// [`Error::TooMany`] if `got` exceeds `limit`.
pub(super) fn check_count(
    name: &str,
    what: &'static str,
    got: usize,
    limit: usize,
    remedy: &'static str,
) -> Result<(), Error> {
    if got <= limit {
        return Ok(());
    }
    let (got, limit) = (got as u64, limit as u64);
    Err(Error::TooMany { name: name.to_owned(), what, got, limit, remedy })
}
