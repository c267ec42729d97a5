//! [`Listing`]: the entries below one folder of an input: files to read, hidden files, folders, and
//! signs of a table.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bloomsday_common::redact::{redact_url, single_line};
use bloomsday_common::store::Location;
use futures::TryStreamExt;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::limits::{MAX_FILES, MAX_FOLDERS, MAX_LISTED, MAX_NAME_CHARS, MAX_NAMED, check_count};
use super::objects::{below, input_error, is_absent, modified};
use super::pattern::{InputPattern, has_hidden};
use crate::error::Error;

/// The folder of a Delta table's log.
pub(super) const DELTA_LOG: &str = "_delta_log";
/// The folder of an Iceberg table's metadata, and the suffix of its files.
pub(super) const ICEBERG_METADATA: &str = "metadata";
pub(super) const ICEBERG_TABLE: &str = ".metadata.json";
/// The folder for unfinished files of Spark and Hadoop.
pub(super) const TEMPORARY_FOLDER: &str = "_temporary";
/// The suffix of the empty object that Hadoop creates in place of a folder.
const FOLDER_MARK: &str = "_$folder$";
/// The most tables that are reported.
const MAX_TABLES: usize = 20;

/// What a listing found. Paths are relative to the listed folder.
#[derive(Debug)]
pub(super) struct Listing {
    /// The names that the input matches.
    pub(super) pattern: InputPattern,
    /// The input, for messages.
    input: String,
    /// The name of the folder.
    base: String,
    /// The name of the file that marks a folder as complete, if the caller needs it.
    marker: Option<String>,
    /// The files to read.
    pub(super) files: Vec<(String, ObjectMeta)>,
    /// Files that match, but have a hidden name.
    pub(super) passed_over: PassedOver,
    /// All folders that are not hidden. The listed folder itself is the empty path.
    pub(super) folders: BTreeSet<String>,
    /// When the marker of each folder was written.
    pub(super) markers: BTreeMap<String, Timestamp>,
    /// The folders that are tables.
    pub(super) tables: BTreeSet<(String, TableFormat)>,
    /// Whether a writer has unfinished files where matching files will be.
    pub(super) unfinished: bool,
    listed: usize,
}

/// Hidden files: a hash of each name, and some names.
#[derive(Clone, Debug, Default)]
pub(super) struct PassedOver {
    /// A hash of each name: millions of names would take too much memory.
    numbers: Vec<u64>,
    /// Names that other programs usually leave come last.
    names: BTreeSet<(bool, String)>,
}

impl PassedOver {
    fn add(&mut self, name: &str) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        self.numbers.push(hasher.finish());
        self.names.insert((is_common(name), single_line(name, MAX_NAME_CHARS)));
        if self.names.len() > MAX_NAMED {
            self.names.pop_last();
        }
    }

    pub(super) fn merge(&mut self, other: PassedOver) {
        self.numbers.extend(other.numbers);
        self.names.extend(other.names);
        while self.names.len() > MAX_NAMED {
            self.names.pop_last();
        }
    }

    /// The distinct hashes, sorted.
    pub(super) fn numbers(mut self) -> Vec<u64> {
        self.numbers.sort_unstable();
        self.numbers.dedup();
        self.numbers
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(_, name)| name.clone()).collect()
    }
}

/// Whether a hidden name is one that programs usually leave next to their files.
fn is_common(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let is_known = ["_SUCCESS", "_metadata", "_common_metadata", ".DS_Store"].contains(&last)
        || last.ends_with(".crc")
        || last.starts_with("_committed_")
        || last.starts_with("_started_");
    is_known || name.split('/').any(|folder| [TEMPORARY_FOLDER, DELTA_LOG].contains(&folder))
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TableFormat {
    Delta,
    Iceberg,
}

impl Listing {
    pub(super) fn new(
        input: &str,
        base: &str,
        pattern: InputPattern,
        marker: Option<&str>,
    ) -> Listing {
        Listing {
            pattern,
            input: redact_url(input),
            marker: marker.map(str::to_owned),
            files: Vec::new(),
            base: base.to_owned(),
            passed_over: PassedOver::default(),
            folders: BTreeSet::from([String::new()]),
            markers: BTreeMap::new(),
            tables: BTreeSet::new(),
            unfinished: false,
            listed: 0,
        }
    }

    /// Lists everything below a location of a store.
    pub(super) async fn of_store(mut self, location: &Location) -> Result<Listing, Error> {
        let prefix = (location.path != Path::default()).then_some(&location.path);
        let mut listing = location.objects.list(prefix);
        loop {
            let meta = match listing.try_next().await {
                Ok(Some(meta)) => meta,
                Ok(None) => break,
                Err(source) if is_absent(&source) => break,
                Err(source) => return Err(input_error("list", location, source)),
            };
            let Some(parts) = meta.location.prefix_match(&location.path) else { continue };
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            if parts.is_empty() {
                self.refuse_object_at_folder_key(location, &meta)?;
                continue;
            }
            self.take(parts.join("/"), meta)?;
        }
        let mut listing = self.finish();
        // HDFS has folders, and a file that is being written has no bytes.
        if !listing.input.starts_with("hdfs://") {
            listing.pass_over_folder_marks();
        }
        Ok(listing)
    }

    /// Passes over the empty objects that S3's console creates for folders that have no file yet.
    /// Their keys end with `/`, which the store's client removes. A file of no bytes with an
    /// extension stays, and is an error.
    fn pass_over_folder_marks(&mut self) {
        let is_mark = |name: &str, meta: &ObjectMeta| {
            meta.size == 0 && !name.rsplit('/').next().unwrap_or(name).contains('.')
        };
        let marks = self.files.extract_if(.., |(name, meta)| is_mark(name, meta));
        for (name, _) in marks.collect::<Vec<_>>() {
            self.pass_over(&name);
        }
    }

    /// Refuses an object with bytes whose key ends with `/`. Such a key usually is an empty mark of
    /// the folder, and a request for its name without the `/` would not return it.
    fn refuse_object_at_folder_key(
        &self,
        location: &Location,
        meta: &ObjectMeta,
    ) -> Result<(), Error> {
        if meta.size == 0 || !matches!(self.pattern, InputPattern::All) {
            return Ok(());
        }
        Err(Error::NotAFile {
            file: format!("{}/", location.name.trim_end_matches('/')),
            why: format!("it is an object of {} bytes whose name ends with `/`", meta.size),
            remedy: "give it a name of its own in the folder, or delete it",
        })
    }

    /// Adds a file.
    pub(super) fn take(&mut self, relative: String, meta: ObjectMeta) -> Result<(), Error> {
        self.count()?;
        let (folder, name) = relative.rsplit_once('/').unwrap_or(("", &relative));
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.note_table(&folder, &name);
        self.note_unfinished(&folder);
        self.take_folder(&folder)?;
        if self.marker.as_deref() == Some(name.as_str()) && !has_hidden(&folder) {
            self.markers.insert(folder, modified(&meta));
        }
        if !self.pattern.matches(&relative) || (meta.size == 0 && name.ends_with(FOLDER_MARK)) {
            return Ok(());
        }
        if has_hidden(&relative) {
            self.pass_over(&relative);
            return Ok(());
        }
        self.files.push((relative, meta));
        check_count(&self.input, "files", self.files.len(), MAX_FILES, "write fewer, larger files")
    }

    /// Adds a file that matches, but is hidden.
    pub(super) fn pass_over(&mut self, relative: &str) {
        self.passed_over.add(&below(&self.base, relative));
    }

    /// Adds a folder and the folders above it.
    pub(super) fn take_folder(&mut self, folder: &str) -> Result<(), Error> {
        let mut folder = folder;
        while !has_hidden(folder) && !self.folders.contains(folder) {
            self.folders.insert(folder.to_owned());
            folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
        }
        let (got, remedy) = (self.folders.len(), "name the folders that are meant with a glob");
        check_count(&self.input, "folders", got, MAX_FOLDERS, remedy)
    }

    /// Counts an entry, whether it matches or not.
    pub(super) fn count(&mut self) -> Result<(), Error> {
        self.listed += 1;
        let remedy = "begin the glob in a folder further down";
        check_count(&self.input, "names below it", self.listed, MAX_LISTED, remedy)
    }

    /// Detects the metadata of a table.
    pub(super) fn note_table(&mut self, folder: &str, name: &str) {
        let parent = |path: &str, inner: &str| match path.strip_suffix(inner) {
            Some("") => Some(String::new()),
            Some(above) => above.strip_suffix('/').map(str::to_owned),
            None => None,
        };
        let found = if name.ends_with(ICEBERG_TABLE) {
            parent(folder, ICEBERG_METADATA).map(|table| (table, TableFormat::Iceberg))
        } else {
            parent(folder, DELTA_LOG).map(|table| (table, TableFormat::Delta))
        };
        if self.tables.len() < MAX_TABLES {
            self.tables.extend(found);
        }
    }

    /// Detects the folder of a writer that has not finished.
    pub(super) fn note_unfinished(&mut self, folder: &str) {
        let mut names = folder.split('/');
        if self.marker.is_none() || !names.any(|name| name == TEMPORARY_FOLDER) {
            return;
        }
        let parent: Vec<&str> =
            folder.split('/').take_while(|name| *name != TEMPORARY_FOLDER).collect();
        self.unfinished |= self.pattern.may_contain(&parent.join("/"));
    }

    /// Sorts the files and drops the empty objects that some tools create in place of folders.
    pub(super) fn finish(mut self) -> Listing {
        let folders = &self.folders;
        self.files.retain(|(name, meta)| meta.size > 0 || !folders.contains(name));
        self.files.sort_by(|a, b| a.0.cmp(&b.0));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[(&str, u64)]) -> Listing {
        let mut listing = Listing::new("in", "in", InputPattern::All, None);
        for (name, size) in names {
            let meta = ObjectMeta {
                location: (*name).into(),
                last_modified: Default::default(),
                size: *size,
                e_tag: None,
                version: None,
            };
            listing.take((*name).to_owned(), meta).unwrap();
        }
        listing.finish()
    }

    #[test]
    fn empty_objects_in_place_of_folders_are_left_out() {
        let found = listing(&[
            ("z", 0),
            ("a/b/c", 9),
            ("a!", 1),
            ("a", 0),
            ("a/b", 0),
            ("a_$folder$", 0),
            ("hour=00/x_$folder$", 0),
            ("full_$folder$", 1),
        ]);
        let names: Vec<&str> = found.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a!", "a/b/c", "full_$folder$", "z"]);
        assert!(found.passed_over.names().is_empty(), "{:?}", found.passed_over);
    }

    #[test]
    fn empty_objects_without_an_extension_are_marks_of_folders_and_are_reported() {
        let mut found =
            listing(&[("a/b.parquet", 9), ("sub", 0), ("deep.er/sub", 0), ("x.parquet", 0)]);
        found.pass_over_folder_marks();
        let names: Vec<&str> = found.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/b.parquet", "x.parquet"]);
        assert_eq!(found.passed_over.names(), ["in/deep.er/sub", "in/sub"]);
    }

    #[test]
    fn an_object_with_bytes_and_a_folder_of_its_name_are_both_read() {
        let found = listing(&[("a", 3), ("a/b", 4)]);
        assert_eq!(found.files.len(), 2);
    }

    #[test]
    fn tables_are_noticed_wherever_they_lie() {
        let found = listing(&[
            ("_delta_log/00000000000000000000.json", 1),
            ("deep/er/_delta_log/_last_checkpoint", 1),
            ("ice/metadata/00000-aa.metadata.json", 1),
            ("ice/data/x.parquet", 1),
            ("no/metadata/x.parquet", 1),
            ("no/my_delta_log/x.parquet", 1),
        ]);
        let tables: Vec<(&str, TableFormat)> =
            found.tables.iter().map(|(table, whose)| (table.as_str(), *whose)).collect();
        let expected = [
            ("", TableFormat::Delta),
            ("deep/er", TableFormat::Delta),
            ("ice", TableFormat::Iceberg),
        ];
        assert_eq!(tables, expected);
    }
}
