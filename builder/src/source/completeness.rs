//! [`check_complete`]: whether markers say that a day's input is complete. A marker covers its
//! folder.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::redact::redact_url;
use jiff::Timestamp;

use super::limits::MAX_NAMED;
use super::listing::TEMPORARY_FOLDER;
use super::lookup::{Found, at_path, look_at};
use super::objects::{below, modified};
use super::pattern::InputPattern;
use super::template::expand;
use crate::error::Error;

/// Whether one input of one day is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completeness {
    /// A fingerprint of the files and of the hidden names next to them; `None` if there is no file.
    pub files: Option<u64>,
    /// Why the input may be incomplete, for people; `None` if it is complete.
    pub lacks: Option<String>,
}

/// Lists one input of a day and checks whether markers say that it is complete.
///
/// Every folder that may contain files needs a marker. If the input has no glob in its folders,
/// that is one folder; for `dt={day}/hour=*/*.parquet` it is each folder `hour=…`. A marker in a
/// folder above also covers the folders below, but not a marker above the day's own folder, which
/// would cover every day. For `**`, folders with files need a marker, and folders without
/// subfolders.
///
/// With `settle`, a marker does not cover files that are newer than the marker by more than
/// `settle`, nor any file while a writer has unfinished files there: such a marker may be from an
/// earlier write. Without `settle`, its presence is enough.
///
/// Cost: one listing of the input.
///
/// # Errors
/// As [`super::find_window`]. An input that matches nothing is not an error here.
pub async fn check_complete(
    template: &str,
    day: Day,
    marker: &str,
    settle: Option<Duration>,
) -> Result<Completeness, Error> {
    let input = expand(template, day)?;
    let found = look_at(&input, Some(marker)).await?;
    if found.files.is_empty() {
        let input = redact_url(&input);
        return Ok(Completeness {
            files: None,
            lacks: Some(format!("nothing matches the input `{input}`")),
        });
    }
    let lacks = match &found.listed {
        // A single file: the marker is in the same folder.
        None => {
            let folder = input.rsplit_once('/').map_or(".", |(folder, _)| folder);
            let marked = at_path(&below(folder, marker), None).await?;
            let marked = marked.files.first().map(|(_, file)| modified(&file.meta));
            let newest = found.files.iter().map(|(_, file)| modified(&file.meta)).max();
            MissingMarkers::of(vec![(folder.to_owned(), marked, newest)], settle)
        }
        Some((location, slashes, listing)) => {
            let highest = day_level(template, day)?.saturating_sub(*slashes);
            let folders = needed(&found, highest).into_iter();
            let folders = folders
                .map(|(folder, marked, newest)| (below(&location.name, &folder), marked, newest));
            let lacks = MissingMarkers::of(folders.collect(), settle);
            MissingMarkers { unfinished: settle.is_some() && listing.unfinished, ..lacks }
        }
    };
    Ok(Completeness { files: Some(fingerprint(found)), lacks: lacks.describe(marker, settle) })
}

/// The folders that need a marker: the newest marker that covers each folder, and its newest file.
type Needed = Vec<(String, Option<Timestamp>, Option<Timestamp>)>;

fn needed(found: &Found, highest: usize) -> Needed {
    let Some((_, _, listing)) = &found.listed else { return Vec::new() };
    let folder_of = |name: &str| name.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let mut newest: BTreeMap<String, Timestamp> = BTreeMap::new();
    for (name, meta) in &listing.files {
        let newest = newest.entry(folder_of(name)).or_insert(Timestamp::MIN);
        *newest = (*newest).max(modified(meta));
    }
    let pattern = &listing.pattern;
    let is_on_the_way = |folder: &str| match folder {
        "" => listing.folders.len() > 1,
        folder => {
            let inside = format!("{folder}/");
            let next = listing.folders.range(inside.clone()..).next();
            next.is_some_and(|next| next.starts_with(&inside))
        }
    };
    let needs = |folder: &&String| match pattern {
        InputPattern::All => folder.is_empty(),
        _ if !pattern.may_hold_file(folder) => false,
        _ => !pattern.any_depth() || newest.contains_key(*folder) || !is_on_the_way(folder),
    };
    let all_of_it = listing.files.iter().map(|(_, meta)| modified(meta)).max();
    let folders = listing.folders.iter().filter(needs);
    folders
        .map(|folder| {
            let depth = if folder.is_empty() { 0 } else { folder.matches('/').count() + 1 };
            let own = listing.markers.get(folder);
            let above = (highest..depth).map(|depth| first_names(folder, depth));
            let above = above.filter_map(|folder| listing.markers.get(folder));
            let newest = match pattern {
                InputPattern::All => all_of_it,
                _ => newest.get(folder).copied(),
            };
            (folder.clone(), own.into_iter().chain(above).max().copied(), newest)
        })
        .collect()
}

/// The folder that the first `names` names of a path form.
fn first_names(folder: &str, names: usize) -> &str {
    match folder.match_indices('/').nth(names.saturating_sub(1)) {
        _ if names == 0 => "",
        Some((at, _)) => &folder[..at],
        None => folder,
    }
}

/// The number of names of an input before the name in which its day ends.
fn day_level(template: &str, day: Day) -> Result<usize, Error> {
    let Some(last) = template.rfind("{day") else { return Ok(0) };
    let end = template[last..].find('}').map_or(template.len(), |at| last + at + 1);
    Ok(day.expand(&template[..end])?.matches('/').count())
}

/// The folders without a valid marker.
struct MissingMarkers {
    of: usize,
    without: Vec<String>,
    older: Vec<String>,
    unfinished: bool,
}

impl MissingMarkers {
    fn of(folders: Needed, settle: Option<Duration>) -> MissingMarkers {
        let (of, mut without, mut older) = (folders.len(), Vec::new(), Vec::new());
        for (folder, marked, newest) in folders {
            let is_older = |marked: Timestamp| {
                let covers_until = settle.map(|settle| marked.saturating_add(settle));
                let covers_until =
                    covers_until.map_or(Timestamp::MAX, |time| time.unwrap_or(Timestamp::MAX));
                newest.is_some_and(|newest| newest > covers_until)
            };
            match marked {
                None => without.push(folder),
                Some(marked) if is_older(marked) => older.push(folder),
                Some(_) => {}
            }
        }
        MissingMarkers { of, without, older, unfinished: false }
    }

    fn describe(&self, marker: &str, settle: Option<Duration>) -> Option<String> {
        let list = |folders: &[String]| {
            let some: Vec<&str> = folders.iter().take(MAX_NAMED).map(String::as_str).collect();
            let more = if folders.len() > MAX_NAMED { ", …" } else { "" };
            format!("{} of {} folders: {}{more}", folders.len(), self.of, some.join(", "))
        };
        if !self.without.is_empty() {
            let folders = list(&self.without);
            return Some(match settle {
                // Nobody has said that there will be one.
                Some(_) => format!("no `{marker}` in {folders}"),
                None => format!("`{marker}` is missing in {folders}"),
            });
        }
        if !self.older.is_empty() {
            let folders = list(&self.older);
            return Some(format!("`{marker}` is older than files beside it in {folders}"));
        }
        self.unfinished
            .then(|| format!("a writer has unfinished files (`{TEMPORARY_FOLDER}`) there"))
    }
}

/// A fingerprint of the files: their names, sizes, tags and times.
fn fingerprint(found: Found) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (_, file) in &found.files {
        (&file.name, file.meta.size, &file.meta.e_tag).hash(&mut hasher);
        modified(&file.meta).as_microsecond().hash(&mut hasher);
    }
    // A writer keeps unfinished files under hidden names.
    found.passed_over.numbers().hash(&mut hasher);
    hasher.finish()
}
