//! Is a day's input there, and whole? One look, which [`super::decide`] compares with the one before.

use std::hash::{DefaultHasher, Hash, Hasher};

use bloomsday_builder::error::Error as BuilderError;
use bloomsday_builder::source;
use bloomsday_common::day::Day;
use bloomsday_common::error::Kind;

use super::decide::Found;

/// The file that Spark, Hadoop and many others write last.
pub(super) const MARKER: &str = "_SUCCESS";

/// Looks at every input of a day.
///
/// Cost: a listing an input, and a request for its marker.
///
/// # Errors
/// The store is unreachable, or refuses; an input that is not there is no error.
pub(super) async fn look(
    inputs: &[String],
    marker: Option<&str>,
    day: Day,
) -> Result<Found, BuilderError> {
    let Some(files) = find(inputs, day).await? else { return Ok(Found::Nothing) };
    let mut marked = 0;
    for input in inputs {
        let marker = vec![format!("{}/{}", folder(input), marker.unwrap_or(MARKER))];
        marked += usize::from(find(&marker, day).await?.is_some());
    }
    if marked == inputs.len() {
        return Ok(Found::Complete);
    }
    let mut hasher = DefaultHasher::new();
    for file in &files {
        (&file.name, file.meta.size, &file.meta.e_tag).hash(&mut hasher);
        file.meta.last_modified.timestamp_micros().hash(&mut hasher);
    }
    Ok(Found::Files(hasher.finish()))
}

async fn find(inputs: &[String], day: Day) -> Result<Option<Vec<source::InputFile>>, BuilderError> {
    match source::find(inputs, day).await {
        Ok(files) => Ok(Some(files)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The folder whose marker speaks for an input: itself, or what a glob's last part stands in.
fn folder(input: &str) -> &str {
    let input = input.trim_end_matches('/');
    let special = ['*', '?', '['];
    if !input.contains(special) {
        return input;
    }
    let names = input.rsplit_once('/').map_or("", |(folder, _)| folder);
    names.strip_suffix("/**").unwrap_or(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dir: &tempfile::TempDir, inputs: &[&str], marker: Option<&str>) -> Found {
        let root = dir.path().display().to_string();
        let inputs: Vec<String> = inputs.iter().map(|input| format!("{root}/{input}")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(look(&inputs, marker, "2026-11-19".parse().unwrap())).unwrap()
    }

    fn write(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_marker_beside_the_files_makes_them_whole_and_growth_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ["dt={day}/"];
        assert_eq!(found(&dir, &folder, None), Found::Nothing);
        write(&dir, "dt=2026-11-19/_SUCCESS", b"");
        assert_eq!(found(&dir, &folder, None), Found::Nothing, "a marker is no input");
        std::fs::remove_file(dir.path().join("dt=2026-11-19/_SUCCESS")).unwrap();
        write(&dir, "dt=2026-11-19/a.parquet", b"1");
        let one = found(&dir, &folder, None);
        assert_eq!(one, found(&dir, &folder, None));
        write(&dir, "dt=2026-11-19/a.parquet", b"12");
        assert_ne!(one, found(&dir, &folder, None));
        write(&dir, "dt=2026-11-19/_SUCCESS", b"");
        for input in ["dt={day}/", "dt={day}", "dt={day}/*.parquet", "dt={day}/**/*.parquet"] {
            assert_eq!(found(&dir, &[input], None), Found::Complete, "{input}");
        }
        assert!(matches!(found(&dir, &folder, Some("_DONE")), Found::Files(_)));
    }

    #[test]
    fn every_input_must_be_there_and_marked() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "a/x.parquet", b"1");
        write(&dir, "a/_SUCCESS", b"");
        assert_eq!(found(&dir, &["a", "b"], None), Found::Nothing);
        write(&dir, "b/y.parquet", b"1");
        assert!(matches!(found(&dir, &["a", "b"], None), Found::Files(_)));
        write(&dir, "b/_SUCCESS", b"");
        assert_eq!(found(&dir, &["a", "b"], None), Found::Complete);
    }
}
