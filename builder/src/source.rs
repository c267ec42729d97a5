//! Inputs → files: which objects a day's build reads, found through one listing an input.
//!
//! Nothing here looks inside a file: a file that is no Parquet is found out by `scan`.

use std::collections::BTreeMap;
use std::path::Component;
use std::sync::Arc;

use bloomsday_common::day::Day;
use bloomsday_common::shown::{address_without_secrets, plain};
use bloomsday_common::store::{Location, open_objects};
use futures::TryStreamExt;
use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::error::Error;

/// The most files of one build. Their footers are held in memory.
pub const MAX_FILES: usize = 1_000_000;

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

/// Finds the files of `inputs` for `day`, sorted by name, each of them once.
///
/// An input is a file, a folder (read with every folder below it) or a glob, as a local path or a
/// URL, and may hold `{day}` templates. In a glob, `*` and `?` stay within one name, `**` stands
/// for any folders, `[ab]` for one character, and `[[]` for a bracket itself.
///
/// Below a folder or a glob's fixed part, hidden names are left out: those that begin with `.`,
/// and those that begin with `_` unless they hold a `=`, as in `_hour=07`. Spark does the same.
///
/// Cost: one request for a file, one listing for a folder or a glob.
///
/// # Errors
/// [`Error::NoFiles`]: an input matches nothing. An input that matches nothing is never ignored.
/// [`Error::Glob`]: not a glob that can be used.
/// [`Error::TooMany`]: more than [`MAX_FILES`].
/// [`Error::Input`]: the store is unreachable, or refuses.
pub async fn find(inputs: &[String], day: Day) -> Result<Vec<InputFile>, Error> {
    // By identity, so that overlapping inputs give each object once.
    let mut files = BTreeMap::new();
    for template in inputs {
        let input = day.expand(template)?;
        let found = if input.contains(['*', '?', '[']) {
            in_glob(&input).await?
        } else {
            at_path(&input).await?
        };
        if found.is_empty() {
            return Err(Error::NoFiles { input: address_without_secrets(&input), day });
        }
        files.extend(found);
        check_count(&input, files.len())?;
    }
    let mut files: Vec<InputFile> = files.into_values().collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Which object a file is, whatever input named it.
///
/// For a URL its whole text, as typed: only that surely tells two accounts or containers apart,
/// and two spellings of one object merely read it twice.
type Identity = String;

/// The files that a glob matches, or an empty list.
async fn in_glob(input: &str) -> Result<Vec<(Identity, InputFile)>, Error> {
    let (folder, rest) = fixed_part(input)?;
    let pattern = Pattern::new(rest)
        .map_err(|e| Error::Glob { input: address_without_secrets(input), why: e.to_string() })?;
    let one_name_each = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    let Some(location) = open(folder)? else { return Ok(Vec::new()) };
    let all = below(&location, folder).await?;
    let matches = |relative: &str| pattern.matches_with(relative, one_name_each);
    Ok(all
        .into_iter()
        .filter(|(relative, _)| matches(relative))
        .map(|(relative, meta)| named(&location, folder, Some(&relative), meta))
        .collect())
}

/// The file at a path, or else every file below it, or an empty list.
async fn at_path(input: &str) -> Result<Vec<(Identity, InputFile)>, Error> {
    let Some(location) = open(input)? else { return Ok(Vec::new()) };
    let only_a_folder = input.ends_with('/') || location.path == Path::default();
    let head = if only_a_folder { None } else { Some(location.objects.head(&location.path).await) };
    if let Some(Ok(meta)) = &head
        && meta.size > 0
    {
        return Ok(vec![named(&location, input, None, meta.clone())]);
    }
    let listed = below(&location, input).await;
    match (head, listed) {
        (_, Ok(all)) if !all.is_empty() => Ok(all
            .into_iter()
            .map(|(relative, meta)| named(&location, input, Some(&relative), meta))
            .collect()),
        // Some stores mark a folder with an empty object, so an empty file is one only here.
        (Some(Ok(meta)), _) => Ok(vec![named(&location, input, None, meta)]),
        // A key may be forbidden to look at while its folder is not; so the listing went first.
        (Some(Err(source)), _) if !is_absent(&source) => {
            Err(input_error("look for", &location, source))
        }
        (_, listed) => listed.map(|_| Vec::new()),
    }
}

/// Opens an input; `None` when it cannot be there.
fn open(input: &str) -> Result<Option<Location>, Error> {
    let path = std::path::Path::new(input);
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    if input.contains("://") || !goes_up {
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
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::NotADirectory) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Everything below a location that is not hidden, by its path from there.
async fn below(location: &Location, input: &str) -> Result<Vec<(String, ObjectMeta)>, Error> {
    let prefix = (location.path != Path::default()).then_some(&location.path);
    let mut listing = location.objects.list(prefix);
    let mut found: Vec<(String, ObjectMeta)> = Vec::new();
    loop {
        let meta = match listing.try_next().await {
            Ok(Some(meta)) => meta,
            Ok(None) => break,
            Err(source) if is_absent(&source) => break,
            Err(source) => return Err(input_error("list", location, source)),
        };
        let Some(parts) = meta.location.prefix_match(&location.path) else { continue };
        let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
        if parts.is_empty() || parts.iter().any(|part| is_hidden(part)) {
            continue;
        }
        found.push((parts.join("/"), meta));
        check_count(input, found.len())?;
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(without_folder_marks(found))
}

/// Drops the empty objects that some tools leave in place of folders.
fn without_folder_marks(found: Vec<(String, ObjectMeta)>) -> Vec<(String, ObjectMeta)> {
    let is_folder = |name: &str| {
        let inside = format!("{name}/");
        let at = found.partition_point(|(other, _)| other.as_str() < inside.as_str());
        found.get(at).is_some_and(|(other, _)| other.starts_with(&inside))
    };
    let marks: Vec<bool> =
        found.iter().map(|(name, meta)| meta.size == 0 && is_folder(name)).collect();
    found.into_iter().zip(marks).filter(|(_, mark)| !mark).map(|(file, _)| file).collect()
}

fn is_hidden(part: &str) -> bool {
    part.starts_with('.') || (part.starts_with('_') && !part.contains('='))
}

/// Cuts a glob at the last `/` before its first special character.
fn fixed_part(input: &str) -> Result<(&str, &str), Error> {
    let first = input.find(['*', '?', '[']).unwrap_or(input.len());
    let cut = input[..first].rfind('/').map_or(0, |at| at + 1);
    let (folder, rest) = input.split_at(cut);
    if folder.ends_with("://") {
        let why = "a glob cannot stand in the name of a bucket; name each bucket as an input";
        return Err(Error::Glob { input: address_without_secrets(input), why: why.to_owned() });
    }
    Ok((if folder.is_empty() { "." } else { folder }, rest))
}

fn named(
    location: &Location,
    input: &str,
    relative: Option<&str>,
    meta: ObjectMeta,
) -> (Identity, InputFile) {
    let join = |base: &str| match relative {
        Some(relative) => format!("{}/{relative}", base.trim_end_matches('/')),
        None => base.to_owned(),
    };
    let identity = match location.folder {
        Some(_) => format!("/{}", meta.location),
        None => join(input),
    };
    // The name comes from the location, whose text is free of passwords and tokens.
    let file = InputFile {
        name: plain(&join(&location.name), MAX_NAME_CHARS),
        objects: Arc::clone(&location.objects),
        meta,
    };
    (identity, file)
}

fn check_count(input: &str, got: usize) -> Result<(), Error> {
    if got <= MAX_FILES {
        return Ok(());
    }
    Err(Error::TooMany {
        name: address_without_secrets(input),
        what: "files",
        got: got as u64,
        limit: MAX_FILES as u64,
        remedy: "write fewer, larger files",
    })
}

fn input_error(doing: &'static str, location: &Location, source: object_store::Error) -> Error {
    Error::Input { doing, name: location.name.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomsday_common::error::Kind;

    const DAY: &str = "2026-11-19";

    /// A folder with one byte in each of the files `names`.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"x").unwrap();
        }
        dir
    }

    /// What the inputs (relative to `dir`) find, relative to `dir`.
    fn found(dir: &tempfile::TempDir, inputs: &[&str]) -> Result<Vec<String>, Error> {
        let root = dir.path().to_str().unwrap();
        let inputs: Vec<String> = inputs.iter().map(|i| format!("{root}/{i}")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let files = runtime.block_on(find(&inputs, DAY.parse().unwrap()))?;
        Ok(files.iter().map(|f| f.name.strip_prefix(root).unwrap()[1..].to_owned()).collect())
    }

    #[test]
    fn a_folder_is_read_to_its_depths_without_hidden_names() {
        let dir = folder(&[
            "in/b.parquet",
            "in/a.parquet",
            "in/deep/er/c.parquet",
            "in/notes.txt",
            "in/_SUCCESS",
            "in/_hour=07/d.parquet",
            "in/.a.parquet.crc",
            "in/_temporary/0/e.parquet",
            "in/.hidden/f.parquet",
        ]);
        let all = [
            "in/_hour=07/d.parquet",
            "in/a.parquet",
            "in/b.parquet",
            "in/deep/er/c.parquet",
            "in/notes.txt",
        ];
        assert_eq!(found(&dir, &["in"]).unwrap(), all);
        assert_eq!(found(&dir, &["in/"]).unwrap(), all);
    }

    #[test]
    fn a_hidden_folder_named_by_the_input_itself_is_read() {
        let dir = folder(&["_in/.x/a.parquet", "_in/_SUCCESS"]);
        assert_eq!(found(&dir, &["_in/.x"]).unwrap(), ["_in/.x/a.parquet"]);
        assert_eq!(found(&dir, &["_in/.x/*"]).unwrap(), ["_in/.x/a.parquet"]);
        assert_eq!(found(&dir, &["_in/_SUCCESS"]).unwrap(), ["_in/_SUCCESS"]);
    }

    #[test]
    fn stars_stay_within_a_name_and_double_stars_do_not() {
        let dir = folder(&["in/a.parquet", "in/b.txt", "in/x/c.parquet", "in/x/y/_d.parquet"]);
        assert_eq!(found(&dir, &["in/*.parquet"]).unwrap(), ["in/a.parquet"]);
        assert_eq!(found(&dir, &["in/?.txt"]).unwrap(), ["in/b.txt"]);
        assert_eq!(found(&dir, &["in/[ac].parquet"]).unwrap(), ["in/a.parquet"]);
        assert_eq!(found(&dir, &["*/x/*.parquet"]).unwrap(), ["in/x/c.parquet"]);
        assert_eq!(found(&dir, &["in/**/*.parquet"]).unwrap(), ["in/a.parquet", "in/x/c.parquet"]);
    }

    #[test]
    fn overlapping_inputs_give_each_file_once_and_in_order() {
        let dir = folder(&["in/a.parquet", "in/b.parquet", "other/0.parquet"]);
        let inputs = ["other", "in/../in/a.parquet", "in/*.parquet", "in", "in/b.parquet"];
        let wanted = ["in/a.parquet", "in/b.parquet", "other/0.parquet"];
        assert_eq!(found(&dir, &inputs).unwrap(), wanted);
        assert_eq!(
            found(&dir, &["in/../in/*"]).unwrap(),
            ["in/../in/a.parquet", "in/../in/b.parquet"]
        );
    }

    #[test]
    fn the_day_is_filled_in() {
        let dir = folder(&["dt=2026-11-19/a.parquet", "dt=2026-11-18/b.parquet"]);
        assert_eq!(found(&dir, &["dt={day}"]).unwrap(), ["dt=2026-11-19/a.parquet"]);
        let glob = ["dt={day:%Y-%m}-1?/*"];
        assert_eq!(
            found(&dir, &glob).unwrap(),
            ["dt=2026-11-18/b.parquet", "dt=2026-11-19/a.parquet"]
        );
    }

    #[test]
    fn an_input_that_matches_nothing_fails_by_name_even_beside_one_that_does() {
        let dir = folder(&["in/a.parquet", "empty/_SUCCESS"]);
        for nothing in ["dt={day}", "in/*.orc", "in/a.parquet/x", "empty", "i*", "no/such/*"] {
            let error = found(&dir, &["in", nothing]).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound, "{nothing}: {error}");
            let expanded = nothing.replace("{day}", DAY);
            let text = error.to_string();
            assert!(text.contains(&format!("{expanded}`")) && text.contains(DAY), "{text}");
        }
    }

    #[test]
    fn unusable_globs_are_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for wrong in ["in/a**b", "in/[", "s3://buck*t/x.parquet"] {
            let error =
                runtime.block_on(find(&[wrong.to_owned()], DAY.parse().unwrap())).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{wrong}: {error}");
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn empty_objects_in_place_of_folders_are_left_out() {
        let meta = |name: &str, size| {
            let meta = ObjectMeta {
                location: name.into(),
                last_modified: Default::default(),
                size,
                e_tag: None,
                version: None,
            };
            (name.to_owned(), meta)
        };
        let mut found =
            vec![meta("a", 0), meta("a/b", 0), meta("a/b/c", 9), meta("a!", 1), meta("z", 0)];
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let names: Vec<String> =
            without_folder_marks(found).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a!", "a/b/c", "z"]);
    }
}
