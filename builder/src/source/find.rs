//! [`find_window`]: the inputs of a day, or of a window of days → their files.

use std::collections::{BTreeMap, BTreeSet};

use bloomsday_common::day::Day;
use bloomsday_common::redact::redact_url;
use futures::{StreamExt, TryStreamExt};

use super::input::{Input, InputFile, Window, check_live_is_alone, reads_live_ids};
use super::limits::{MAX_FILES, MAX_NAMED, check_count};
use super::listing::PassedOver;
use super::lookup::{Found, check, look_at};
use super::tables;
use super::template::expand;
use crate::error::Error;

/// How many inputs and days are listed at the same time.
const MAX_CONCURRENT_LISTINGS: usize = 8;

/// Finds the files of `inputs` for one day; see [`find_window`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// for name in ["a.parquet", "b.parquet", "_SUCCESS"] {
///     std::fs::write(folder.path().join(name), b"content")?;
/// }
/// let inputs = [format!("{}/*.parquet", folder.path().display())];
/// let files = bloomsday_builder::source::find(&inputs, "2026-11-19".parse()?).await?;
/// assert_eq!(files.len(), 2);
/// assert!(files[0].name.ends_with("/a.parquet"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`find_window`].
pub async fn find(inputs: &[String], day: Day) -> Result<Vec<InputFile>, Error> {
    Ok(find_window(inputs, day, Window::default()).await?.files)
}

/// Finds the files of `inputs` for `day` and the days of its window.
///
/// An input is a file, a folder (with all folders below it) or a glob, as a local path or a URL. It
/// may contain `{day}` templates. In a glob, `*` and `?` match within one name, `**` matches any
/// folders, `[ab]` matches one character, and `[[]` matches a bracket. If a store has an object and
/// a folder of the same name, an input without a `/` at its end means both.
///
/// Below a folder or a glob's fixed part, files with hidden names are counted, but not read: names
/// that begin with `.`, and names that begin with `_` and contain no `=`. Spark does the same.
/// Empty objects that some tools create in place of folders are neither read nor counted; one of a
/// folder without files is counted, but not read.
///
/// Cost: per input and day one listing for a folder or a glob, or one request for a file, and a few
/// requests to detect a table around the folder.
///
/// # Errors
/// [`Error::NoFiles`]: an input matches nothing on `day`. [`Error::NoDays`]: on an earlier day of
/// the window. [`Error::NotAFile`]: an input matches something that is not a file, such as a broken
/// link. [`Error::Glob`]: the glob is invalid. [`Error::Window`]: see [`Window::check`].
/// [`Error::TooMany`]: the input exceeds [`MAX_FILES`], [`MAX_LISTED`](super::MAX_LISTED),
/// [`MAX_FOLDERS`](super::MAX_FOLDERS) or [`MAX_DEPTH`](super::MAX_DEPTH). [`Error::Input`]: the
/// store is unreachable, or refuses access.
pub async fn find_window(inputs: &[String], day: Day, window: Window) -> Result<Input, Error> {
    window.check(inputs)?;
    let mut wanted = Vec::new();
    for of in window.days_up_to(day) {
        for template in inputs {
            wanted.push((of, expand(template, of)?));
        }
    }
    let mut looks = futures::stream::iter(wanted)
        .map(|(of, input)| look_at_day(of, input, day))
        .buffered(MAX_CONCURRENT_LISTINGS);
    let mut all = Input::default();
    // By identity, so overlapping inputs read each object once.
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
    if !all.missing.is_empty() && !window.may_lack_input {
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

/// Checks inputs as far as that needs no store: the window, each template, and each glob or
/// address.
///
/// # Errors
/// Those that [`find_window`] would return for them on this day, and
/// [`Error::LiveInput`] for [`LIVE`](super::LIVE) with another input.
pub fn check_inputs(inputs: &[String], day: Day, window: Window) -> Result<(), Error> {
    window.check(inputs)?;
    if reads_live_ids(inputs) {
        return check_live_is_alone(inputs);
    }
    inputs.iter().try_for_each(|template| check(&expand(template, day)?))
}

/// Finds the files of one input on the day `of` of a window. For the build's own day, also detects
/// tables.
async fn look_at_day(
    of: Day,
    input: String,
    day: Day,
) -> Result<(Day, String, Found, Vec<String>), Error> {
    let found = look_at(&input, None).await?;
    let tables = if of == day { tables::warnings(&input, &found).await } else { Vec::new() };
    Ok((of, input, found, tables))
}
