//! [`look_at`]: one input of one day → the files that it matches.

use std::path::Component;
use std::sync::Arc;

use bloomsday_common::error::Kind;
use bloomsday_common::redact::{redact_url, single_line};
use bloomsday_common::store::{Location, open_objects};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::input::InputFile;
use super::limits::MAX_NAME_CHARS;
use super::listing::{Listing, PassedOver};
use super::objects::{below, input_error, is_absent, may_come_back, means_absent};
use super::pattern::InputPattern;
use super::walk;
use crate::error::Error;

/// Identifies an object, so that overlapping inputs read it once.
///
/// For a URL it is the text as typed: only that distinguishes two accounts or containers for
/// certain. If an object is spelled in two ways, the build reads it twice, which does no harm.
pub(super) type Identity = String;

/// What one input matches on one day.
pub(super) struct Found {
    pub(super) files: Vec<(Identity, InputFile)>,
    pub(super) passed_over: PassedOver,
    pub(super) warnings: Vec<String>,
    /// The folder that was listed, the number of `/` of the input in it, and its listing.
    pub(super) listed: Option<(Location, usize, Listing)>,
}

impl Found {
    fn nothing() -> Found {
        Found {
            files: Vec::new(),
            passed_over: PassedOver::default(),
            warnings: Vec::new(),
            listed: None,
        }
    }

    fn of(location: Location, folder: &str, mut listing: Listing) -> Found {
        let files = listing.files.iter();
        let files = files.map(|(relative, meta)| named(&location, folder, relative, meta.clone()));
        let files = files.collect();
        Found {
            files,
            passed_over: std::mem::take(&mut listing.passed_over),
            warnings: Vec::new(),
            listed: Some((location, folder.trim_end_matches('/').matches('/').count(), listing)),
        }
    }
}

/// Finds the files of one input, whose day is filled in. With `marker`, also finds the markers of
/// that name.
pub(super) async fn look_at(input: &str, marker: Option<&str>) -> Result<Found, Error> {
    if is_glob(input) { in_glob(input, marker).await } else { at_path(input, marker).await }
}

/// Checks that an input, whose day is filled in, is a glob or an address. Reads nothing.
pub(super) fn check(input: &str) -> Result<(), Error> {
    if is_glob(input) {
        let (folder, _) = parse_glob(input)?;
        open(folder)?;
    } else {
        open(input)?;
    }
    Ok(())
}

/// Whether an input is a glob, and not one path. A local file or folder may have a `[` in its name.
pub(super) fn is_glob(input: &str) -> bool {
    let is_there = || std::path::Path::new(input.strip_prefix("file://").unwrap_or(input)).exists();
    input.contains(['*', '?']) || input.contains('[') && !is_there()
}

/// The folder in which a glob begins, and what names below it match.
fn parse_glob(input: &str) -> Result<(&str, InputPattern), Error> {
    let (folder, rest) = fixed_part(input)?;
    let pattern = InputPattern::glob(rest)
        .map_err(|e| Error::Glob { input: redact_url(input), why: e.to_string() })?;
    Ok((folder, pattern))
}

/// Finds the files that a glob matches.
async fn in_glob(input: &str, marker: Option<&str>) -> Result<Found, Error> {
    let (folder, pattern) = parse_glob(input)?;
    let Some(location) = open(folder)? else { return Ok(Found::nothing()) };
    let listing = Listing::new(input, &location.name, pattern, marker);
    let listing = list(&location, listing).await?;
    Ok(Found::of(location, folder, listing))
}

/// Finds the file at a path, and all files below it.
pub(super) async fn at_path(input: &str, marker: Option<&str>) -> Result<Found, Error> {
    let Some(location) = open(input)? else { return Ok(Found::nothing()) };
    let listing = Listing::new(input, &location.name, InputPattern::All, marker);
    let only_a_folder = input.ends_with('/') || location.path == Path::default();
    let head = if only_a_folder { None } else { look_at_file(&location).await? };
    let one = |meta: ObjectMeta| named(&location, input, "", meta);
    let (mut found, own) = match head {
        // A local path is a file or a folder, and a plain HTTP server lists no folders.
        Some(Ok(meta)) if location.folder.is_some() || location.read_only => {
            return Ok(Found { files: vec![one(meta)], ..Found::nothing() });
        }
        None => (Found::of(location.clone(), input, list(&location, listing).await?), None),
        Some(Ok(meta)) => match list(&location, listing).await {
            Ok(listing) => (Found::of(location.clone(), input, listing), Some(one(meta))),
            Err(error) if error.kind() == Kind::Transient => return Err(error),
            Err(error) => {
                let what = format!(
                    "cannot list a folder with the name of the object {}: {error}",
                    location.name
                );
                let warnings = vec![what];
                return Ok(Found { files: vec![one(meta)], warnings, ..Found::nothing() });
            }
        },
        // The rights may permit the listing of a folder but not its key: so the listing decides.
        Some(Err(source)) => {
            let found = list(&location, listing).await;
            let found = found.map(|listing| Found::of(location.clone(), input, listing));
            match found {
                Ok(found) if !found.files.is_empty() && !may_come_back(&source) => (found, None),
                _ if !is_absent(&source) => {
                    return Err(input_error("look for", &location, source));
                }
                found => (found?, None),
            }
        }
    };
    // Some tools mark a folder with an empty object. It counts as a file only if nothing lies below
    // it.
    if let Some((identity, file)) = own
        && (file.meta.size > 0 || found.files.is_empty())
    {
        found.files.insert(0, (identity, file));
    }
    Ok(found)
}

/// Looks at the object or file at a path. `None` if it is a folder.
async fn look_at_file(
    location: &Location,
) -> Result<Option<Result<ObjectMeta, object_store::Error>>, Error> {
    if location.folder.is_none() {
        return Ok(Some(location.objects.head(&location.path).await));
    }
    // The store's client would open a pipe and wait for a writer.
    match std::fs::metadata(walk::path(location)) {
        Ok(metadata) if metadata.is_dir() => Ok(None),
        Ok(metadata) => walk::file(location, &metadata).map(|meta| Some(Ok(meta))),
        // The listing reports the error.
        Err(_) => Ok(None),
    }
}

/// Lists everything below a location. The listing is empty if nothing is there.
async fn list(location: &Location, listing: Listing) -> Result<Listing, Error> {
    if location.folder.is_none() {
        return listing.of_store(location).await;
    }
    match std::fs::metadata(walk::path(location)) {
        Ok(metadata) if !metadata.is_dir() => return Ok(listing),
        Err(error) if means_absent(&error) => return Ok(listing),
        _ => {}
    }
    let location = location.clone();
    let walked = tokio::task::spawn_blocking(move || walk::walk(&location, listing)).await;
    walked.expect("looking through a folder does not panic")
}

/// Opens an input. `None` if it cannot exist.
pub(super) fn open(input: &str) -> Result<Option<Location>, Error> {
    if input.contains("://") {
        // In a key `#` is an ordinary character; a URL would begin a fragment there.
        return Ok(Some(open_objects(&input.replace('#', "%23"))?));
    }
    let path = std::path::Path::new(input);
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    if !goes_up {
        return Ok(Some(open_objects(input)?));
    }
    // A key has no `..`, and only the file system can resolve `..` after a symbolic link.
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    let mut location = open_objects(&real.to_string_lossy())?;
    location.name = input.to_owned();
    Ok(Some(location))
}

/// Splits a glob at the last `/` before its first special character.
pub(super) fn fixed_part(input: &str) -> Result<(&str, &str), Error> {
    let first = input.find(['*', '?', '[']).unwrap_or(input.len());
    let cut = input[..first].rfind('/').map_or(0, |at| at + 1);
    let (folder, rest) = input.split_at(cut);
    if folder.ends_with("://") {
        let why = "a glob cannot stand in the name of a bucket; name each bucket as an input";
        return Err(Error::Glob { input: redact_url(input), why: why.to_owned() });
    }
    Ok((if folder.is_empty() { "." } else { folder }, rest))
}

/// A path as an input that is no glob.
fn literal(path: &str) -> String {
    let letters = path.chars().map(|letter| match letter {
        // A brace may begin `{day}`.
        '*' | '?' | '[' | '{' => format!("[{letter}]"),
        other => other.to_string(),
    });
    letters.collect()
}

/// A part of a key as it stands in a URL, where it is no part of a glob either.
fn in_url(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~=:@!$&'()+,;".contains(&byte);
    let bytes = part.bytes().map(|byte| match byte {
        plain if is_plain(plain) => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    });
    bytes.collect()
}

fn named(
    location: &Location,
    input: &str,
    relative: &str,
    meta: ObjectMeta,
) -> (Identity, InputFile) {
    let identity = match location.folder {
        Some(_) => format!("/{}", meta.location),
        None => below(input, relative),
    };
    // The location's name has no passwords or tokens.
    let address = match location.folder {
        Some(_) => literal(&identity),
        None => below(&location.name, &in_url(relative)),
    };
    let file = InputFile {
        name: single_line(&below(&location.name, relative), MAX_NAME_CHARS),
        address,
        objects: Arc::clone(&location.objects),
        meta,
    };
    (identity, file)
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreScheme;
    use url::Url;

    use super::*;

    #[test]
    fn a_key_in_a_url_is_read_as_the_same_key() {
        for key in ["ts=2026-11-19 01%3A00/a.parquet", "a*b/[c]?d#e{day}.parquet", "ö/%/%25/+&=.x"]
        {
            let address = format!("s3://bucket/{}", in_url(key));
            assert!(!address.contains(['*', '?', '[', '#', '{']), "{address}");
            let (_, path) = ObjectStoreScheme::parse(&Url::parse(&address).unwrap()).unwrap();
            assert_eq!(path, Path::parse(key).unwrap());
        }
    }
}
