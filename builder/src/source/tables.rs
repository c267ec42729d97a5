//! Detects Delta and Iceberg tables around an input. Such a table deletes rows by removing their
//! files from its metadata, so a build that reads all files also reads deleted rows.

use bloomsday_common::store::Location;
use futures::StreamExt;
use object_store::ObjectStore;
use object_store::path::Path;

use super::listing::{DELTA_LOG, ICEBERG_METADATA, ICEBERG_TABLE, TableFormat};
use super::lookup::{Found, fixed_part, is_glob, open};
use super::objects::below;
use super::walk::{self, MAX_PEEKED};

/// The most folders above an input that are checked: a day's folder is a few levels below its
/// table.
const MAX_LEVELS_ABOVE: usize = 8;

/// Returns a warning for each table that the files of an input may belong to.
///
/// Cost: two short listings for each folder above the input. If the store refuses one, the search
/// ends: the input itself is readable, and this check is optional.
pub(super) async fn warnings(input: &str, found: &Found) -> Vec<String> {
    let mut tables: Vec<(String, TableFormat)> = Vec::new();
    if let Some((location, _, listing)) = &found.listed {
        let name = |table: &String| below(location.name.trim_end_matches('/'), table);
        tables.extend(listing.tables.iter().map(|(table, whose)| (name(table), *whose)));
    }
    if !found.files.is_empty()
        && let Some(above) = nearest_above(input).await
    {
        tables.push(above);
    }
    tables.into_iter().map(|(table, whose)| warning(&table, whose)).collect()
}

fn warning(table: &str, whose: TableFormat) -> String {
    let (whose, mark) = match whose {
        TableFormat::Delta => ("a Delta table (it has `_delta_log/`)", "run VACUUM on it first"),
        TableFormat::Iceberg => (
            "an Iceberg table (it has `metadata/*.metadata.json`)",
            "remove its orphan files first",
        ),
    };
    format!(
        "{table} is {whose}: its files are read as they lie there, so deleted rows would be read too; \
         export the day as plain Parquet, {mark}, or name the files that count"
    )
}

/// The nearest folder above an input that is a table.
async fn nearest_above(input: &str) -> Option<(String, TableFormat)> {
    let folder = if is_glob(input) { fixed_part(input).ok()?.0 } else { input };
    let location = open(folder).ok()??;
    if location.read_only {
        return None;
    }
    let names: Vec<String> = location.path.parts().map(|part| part.as_ref().to_owned()).collect();
    // The listing has already covered the folder itself. A bucket is never a table, and the rights
    // to the input may not include a listing of it.
    for up in 1..=MAX_LEVELS_ABOVE.min(names.len().saturating_sub(1)) {
        let path: Path = names[..names.len() - up].iter().map(String::as_str).collect();
        match table_at(&location, &path).await {
            Ok(None) => {}
            Ok(Some(table)) => return Some((folder_name(&location, &names, up), table)),
            Err(error) => {
                tracing::debug!("whether {} is a table is not known: {error}", location.name);
                return None;
            }
        }
    }
    None
}

async fn table_at(
    location: &Location,
    path: &Path,
) -> Result<Option<TableFormat>, object_store::Error> {
    let (delta, iceberg) = (path.clone().join(DELTA_LOG), path.clone().join(ICEBERG_METADATA));
    if location.folder.is_some() {
        let at = |path: &Path| walk::path(&Location { path: path.clone(), ..location.clone() });
        let is_delta = at(&delta).is_dir();
        let is_iceberg = || walk::has_iceberg_metadata(&at(&iceberg));
        return Ok(if is_delta {
            Some(TableFormat::Delta)
        } else {
            is_iceberg().then_some(TableFormat::Iceberg)
        });
    }
    if location.objects.list(Some(&delta)).next().await.transpose()?.is_some() {
        return Ok(Some(TableFormat::Delta));
    }
    let mut metadata = location.objects.list(Some(&iceberg)).take(MAX_PEEKED);
    while let Some(object) = metadata.next().await.transpose()? {
        if object.location.as_ref().ends_with(ICEBERG_TABLE) {
            return Ok(Some(TableFormat::Iceberg));
        }
    }
    Ok(None)
}

/// The name of the folder `up` levels above a location.
fn folder_name(location: &Location, names: &[String], up: usize) -> String {
    if location.folder.is_some() {
        return format!("/{}", names[..names.len() - up].join("/"));
    }
    let mut name = location.name.trim_end_matches('/');
    for _ in 0..up {
        name = name.rsplit_once('/').map_or(name, |(above, _)| above);
    }
    name.to_owned()
}
