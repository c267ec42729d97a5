//! Inputs → files: which objects a day's build reads, found through one listing an input.
//!
//! Nothing is left out in silence: what lies there is read, refused by name, or told in [`Input`]. Nothing
//! here looks inside a file: a file that is no Parquet is found out by `scan`.
//!
//! | module | does |
//! |---|---|
//! | `wanted` | which names an input means |
//! | `listing` | what lies below a folder, entry by entry |
//! | `walk` | the same of a local folder |
//! | `tables` | is the input a part of a table that deletes rows elsewhere? |
//! | `whole` | is a day's input complete? |

mod listing;
mod tables;
mod walk;
mod wanted;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Component;
use std::sync::Arc;

use bloomsday_common::day::Day;
use bloomsday_common::redact::{redact_url, single_line};
use bloomsday_common::store::{Location, open_objects};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use self::listing::{Listing, PassedOver};
pub use self::walk::MAX_DEPTH;
use self::wanted::Wanted;
pub use self::whole::{Whole, is_whole};
use crate::error::Error;

/// The most files of one build. Their footers are held in memory.
pub const MAX_FILES: usize = 1_000_000;
/// The most names that are looked at below one input's folder to find them, wanted or not.
pub const MAX_LISTED: usize = 20_000_000;
/// The most folders below one input's folder.
pub const MAX_FOLDERS: usize = 1_000_000;
/// The most days whose inputs one build can read together.
pub const MAX_WINDOW_DAYS: u32 = 400;
/// The most names in a list for people.
pub const MAX_NAMED: usize = 20;

/// How many inputs and days are listed at once.
const LISTINGS_AT_ONCE: usize = 8;
/// The most characters of a file's name in a message: what S3 allows for a key, and its bucket.
const MAX_NAME_CHARS: usize = 1200;

/// A file to read, as it was when it was listed.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its path or URL, for messages.
    pub name: String,
    /// The store that has it.
    pub objects: Arc<dyn ObjectStore>,
    /// Where in that store it lies, and its size.
    pub meta: ObjectMeta,
}

/// The days whose inputs a build reads: so many, up to and with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many; 1 is the day alone.
    pub days: u32,
    /// Whether the days before its own may have no input.
    pub may_lack_days: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window { days: 1, may_lack_days: false }
    }
}

impl Window {
    /// Says whether these inputs can have such a window.
    ///
    /// # Errors
    /// [`Error::Window`]: no days or too many, or an input that is the same on every day.
    pub fn check(self, inputs: &[String]) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Window { days: self.days, why });
        if self.days == 0 || self.days > MAX_WINDOW_DAYS {
            return wrong(format!("it has 1 to {MAX_WINDOW_DAYS}"));
        }
        match inputs.iter().find(|input| self.days > 1 && !input.contains("{day")) {
            None => Ok(()),
            Some(input) => wrong(format!(
                "the input `{}` holds no {{day}}, so it is the same on each of them: write {{day}} \
                 where its path has the day",
                redact_url(input)
            )),
        }
    }

    /// Its days, the newest first.
    pub fn days_up_to(self, day: Day) -> impl Iterator<Item = Day> {
        (0..self.days).map(move |back| day.minus(back))
    }
}

/// What the inputs of a day hold, or of a window of days.
#[derive(Debug, Default)]
pub struct Input {
    /// The files to read, sorted by name, each of them once.
    pub files: Vec<InputFile>,
    /// How many files were passed over because their name, or that of a folder they lie in, is hidden.
    pub passed_over: u64,
    /// At most [`MAX_NAMED`] of these, first those that look least like what other programs leave.
    pub passed_over_names: Vec<String>,
    /// Days of the window for which an input matched nothing, oldest first.
    pub missing: Vec<Day>,
    /// What somebody should know of the input, although it can be read.
    pub warnings: Vec<String>,
}

impl Input {
    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.meta.size).sum()
    }
}

/// The files of `inputs` for `day` alone; see [`find_window`].
///
/// # Errors
/// As [`find_window`].
pub async fn find(inputs: &[String], day: Day) -> Result<Vec<InputFile>, Error> {
    Ok(find_window(inputs, day, Window::default()).await?.files)
}

/// Finds the files of `inputs` for `day` and the days of its window.
///
/// An input is a file, a folder (read with every folder below it) or a glob, as a local path or a
/// URL, and may hold `{day}` templates. In a glob, `*` and `?` stay within one name, `**` stands
/// for any folders, `[ab]` for one character, and `[[]` for a bracket itself. Where a store has an
/// object beside the folder of its name, an input without a `/` at its end means both.
///
/// Below a folder or a glob's fixed part, hidden names are passed over and counted: those that begin
/// with `.`, and those that begin with `_` unless they hold a `=`, as in `_hour=07`. Spark does the
/// same. The empty objects that some tools leave in place of folders are neither read nor counted.
///
/// Cost: one listing for a folder or a glob, and one request for a file; for an input and a day each.
/// Some more requests to see whether the folder is a part of a table.
///
/// # Errors
/// [`Error::NoFiles`]: an input matches nothing. An input that matches nothing is never ignored.
/// [`Error::NoDays`]: the same of earlier days of the window.
/// [`Error::NotAFile`]: something that is wanted can be no file, such as a link that leads nowhere.
/// [`Error::Glob`]: not a glob that can be used. [`Error::Window`]: see [`Window::check`].
/// [`Error::TooMany`]: more than [`MAX_FILES`], [`MAX_LISTED`], [`MAX_FOLDERS`] or [`MAX_DEPTH`].
/// [`Error::Input`]: the store is unreachable, or refuses.
pub async fn find_window(inputs: &[String], day: Day, window: Window) -> Result<Input, Error> {
    window.check(inputs)?;
    let mut wanted = Vec::new();
    for of in window.days_up_to(day) {
        for template in inputs {
            wanted.push((of, of.expand(template)?));
        }
    }
    let mut looks = futures::stream::iter(wanted)
        .map(|(of, input)| look_at_day(of, input, day))
        .buffered(LISTINGS_AT_ONCE);
    let mut all = Input::default();
    // By identity, so that overlapping inputs give each object once.
    let (mut files, mut missing) = (BTreeMap::new(), BTreeSet::new());
    let mut passed_over = PassedOver::default();
    while let Some((of, input, found, tables)) = looks.try_next().await? {
        let new = |warning: &String| !all.warnings.contains(warning);
        let warnings: Vec<String> = found.warnings.into_iter().chain(tables).filter(new).collect();
        all.warnings.extend(warnings);
        passed_over.merge(found.passed_over);
        if found.files.is_empty() {
            if of == day {
                return Err(Error::NoFiles { input: redact_url(&input), day });
            }
            missing.insert(of);
        }
        files.extend(found.files);
        let remedy = "write fewer, larger files";
        let input = redact_url(&input);
        check_count(&input, "files", files.len(), MAX_FILES, remedy)?;
    }
    drop(looks);
    all.missing = missing.into_iter().collect();
    if !all.missing.is_empty() && !window.may_lack_days {
        let days = all.missing.iter().take(MAX_NAMED).map(Day::to_string).collect::<Vec<_>>();
        let missing = all.missing.len();
        return Err(Error::NoDays { day, of: window.days, missing, days: days.join(", ") });
    }
    all.files = files.into_values().collect();
    all.files.sort_by(|a, b| a.name.cmp(&b.name));
    all.passed_over_names = passed_over.names();
    all.passed_over = passed_over.numbers().len() as u64;
    Ok(all)
}

/// Which object a file is, whatever input named it.
///
/// For a URL its whole text, as typed: only that surely tells two accounts or containers apart,
/// and two spellings of one object merely read it twice.
type Identity = String;

/// What one input holds on one day.
struct Found {
    files: Vec<(Identity, InputFile)>,
    passed_over: PassedOver,
    warnings: Vec<String>,
    /// The folder that was listed, how many of the input's `/` it has, and what lies in it.
    listed: Option<(Location, usize, Listing)>,
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

/// Looks at one input on one day of a window, and whether it belongs to a table if that is `day`.
async fn look_at_day(
    of: Day,
    input: String,
    day: Day,
) -> Result<(Day, String, Found, Vec<String>), Error> {
    let found = look_at(&input, None).await?;
    let tables = if of == day { tables::warnings(&input, &found).await } else { Vec::new() };
    Ok((of, input, found, tables))
}

/// Looks at one input, its day filled in; and at the markers in its folders if they have a name.
async fn look_at(input: &str, marker: Option<&str>) -> Result<Found, Error> {
    if input.contains(['*', '?', '[']) {
        in_glob(input, marker).await
    } else {
        at_path(input, marker).await
    }
}

/// The files that a glob matches.
async fn in_glob(input: &str, marker: Option<&str>) -> Result<Found, Error> {
    let (folder, rest) = fixed_part(input)?;
    let wanted = Wanted::glob(rest)
        .map_err(|e| Error::Glob { input: redact_url(input), why: e.to_string() })?;
    let Some(location) = open(folder)? else { return Ok(Found::nothing()) };
    let listing = Listing::new(input, &location.name, wanted, marker);
    let listing = list(&location, listing).await?;
    Ok(Found::of(location, folder, listing))
}

/// The file at a path, and every file below it.
async fn at_path(input: &str, marker: Option<&str>) -> Result<Found, Error> {
    let Some(location) = open(input)? else { return Ok(Found::nothing()) };
    let listing = Listing::new(input, &location.name, Wanted::All, marker);
    let only_a_folder = input.ends_with('/') || location.path == Path::default();
    let head = if only_a_folder { None } else { look_at_file(&location).await? };
    let one = |meta: ObjectMeta| named(&location, input, "", meta);
    let (mut found, own) = match head {
        // A local file is no folder, and a plain HTTP server lists none.
        Some(Ok(meta)) if location.folder.is_some() || location.read_only => {
            return Ok(Found { files: vec![one(meta)], ..Found::nothing() });
        }
        None => (Found::of(location.clone(), input, list(&location, listing).await?), None),
        Some(Ok(meta)) => match list(&location, listing).await {
            Ok(listing) => (Found::of(location.clone(), input, listing), Some(one(meta))),
            Err(error) => {
                let what = format!(
                    "whether a folder lies beside the object {} is not known: {error}",
                    location.name
                );
                let warnings = vec![what];
                return Ok(Found { files: vec![one(meta)], warnings, ..Found::nothing() });
            }
        },
        // A key may be forbidden to look at while its folder is not; so the listing goes first.
        Some(Err(source)) => {
            let found = list(&location, listing).await;
            let found = found.map(|listing| Found::of(location.clone(), input, listing));
            match found {
                Ok(found) if !found.files.is_empty() => (found, None),
                _ if !is_absent(&source) => {
                    return Err(input_error("look for", &location, source));
                }
                found => (found?, None),
            }
        }
    };
    // Some stores mark a folder with an empty object, so an empty file is one only alone.
    if let Some((identity, file)) = own
        && (file.meta.size > 0 || found.files.is_empty())
    {
        found.files.insert(0, (identity, file));
    }
    Ok(found)
}

/// What lies at a path, if not a folder.
async fn look_at_file(
    location: &Location,
) -> Result<Option<Result<ObjectMeta, object_store::Error>>, Error> {
    if location.folder.is_none() {
        return Ok(Some(location.objects.head(&location.path).await));
    }
    // The client would open a pipe, and wait for somebody to write into it.
    match std::fs::metadata(walk::path(location)) {
        Ok(metadata) if metadata.is_dir() => Ok(None),
        Ok(metadata) => walk::file(location, &metadata).map(|meta| Some(Ok(meta))),
        // The listing says what is wrong.
        Err(_) => Ok(None),
    }
}

/// Everything below a location; nothing where there is nothing.
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

/// Opens an input; `None` when it cannot be there.
fn open(input: &str) -> Result<Option<Location>, Error> {
    if input.contains("://") {
        // In a key a `#` is a character like others, and not the begin of a fragment.
        return Ok(Some(open_objects(&input.replace('#', "%23"))?));
    }
    let path = std::path::Path::new(input);
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    if !goes_up {
        return Ok(Some(open_objects(input)?));
    }
    // A key has no `..`, and past a symbolic link only the file system knows where it leads.
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    let mut location = open_objects(&real.to_string_lossy())?;
    location.name = input.to_owned();
    Ok(Some(location))
}

/// Whether nothing is there; also where a part of a local path is a file and not a folder.
fn is_absent(error: &object_store::Error) -> bool {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return true;
    }
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<std::io::Error>().is_some_and(means_absent) {
            return true;
        }
        next = error.source();
    }
    false
}

fn means_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Cuts a glob at the last `/` before its first special character.
fn fixed_part(input: &str) -> Result<(&str, &str), Error> {
    let first = input.find(['*', '?', '[']).unwrap_or(input.len());
    let cut = input[..first].rfind('/').map_or(0, |at| at + 1);
    let (folder, rest) = input.split_at(cut);
    if folder.ends_with("://") {
        let why = "a glob cannot stand in the name of a bucket; name each bucket as an input";
        return Err(Error::Glob { input: redact_url(input), why: why.to_owned() });
    }
    Ok((if folder.is_empty() { "." } else { folder }, rest))
}

/// A path below another; nothing below is the other itself.
fn below(base: &str, relative: &str) -> String {
    match relative {
        "" => base.to_owned(),
        relative => format!("{}/{relative}", base.trim_end_matches('/')),
    }
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
    // The name comes from the location, whose text is free of passwords and tokens.
    let file = InputFile {
        name: single_line(&below(&location.name, relative), MAX_NAME_CHARS),
        objects: Arc::clone(&location.objects),
        meta,
    };
    (identity, file)
}

/// When an object was written, by its store's clock.
fn modified(meta: &ObjectMeta) -> Timestamp {
    Timestamp::from_microsecond(meta.last_modified.timestamp_micros()).unwrap_or(Timestamp::MAX)
}

fn check_count(
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

fn input_error(doing: &'static str, location: &Location, source: object_store::Error) -> Error {
    Error::Input { doing, name: location.name.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests;
