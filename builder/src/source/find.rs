//! [`find_window`]: the inputs of a day, or of a window of days → their files.

use std::collections::{BTreeMap, BTreeSet};

use bloomsday_common::day::Day;
use bloomsday_common::redact::redact_url;
use futures::{StreamExt, TryStreamExt};

use super::input::{Input, InputFile, Window};
use super::limits::{MAX_FILES, MAX_NAMED, check_count};
use super::listing::PassedOver;
use super::lookup::{Found, look_at};
use super::tables;
use crate::error::Error;

/// How many inputs and days are listed at the same time.
const LISTINGS_AT_ONCE: usize = 8;

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
