//! Which files an input means.

use super::*;
use crate::error::Error;
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
fn a_file_is_found_again_by_its_address_alone() {
    let dir = folder(&[
        "in/a[1].parquet",
        "in/a1.parquet",
        "in/b*.parquet",
        "in/bc.parquet",
        "in/d?.parquet",
        "in/e{day}.parquet",
        "in/ts=01%3A00/e f#.parquet",
    ]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let find = |input: String| runtime.block_on(find(&[input], DAY.parse().unwrap())).unwrap();
    let all = find(dir.path().join("in").display().to_string());
    assert_eq!(all.len(), 7);
    for file in &all {
        let again = find(file.address.clone());
        let places: Vec<_> = again.iter().map(|file| &file.meta.location).collect();
        assert_eq!(places, [&file.meta.location], "by {}", file.address);
    }
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
    assert_eq!(found(&dir, &["in/../in/*"]).unwrap(), ["in/../in/a.parquet", "in/../in/b.parquet"]);
}

#[test]
fn the_day_is_filled_in() {
    let dir = folder(&["dt=2026-11-19/a.parquet", "dt=2026-11-18/b.parquet"]);
    assert_eq!(found(&dir, &["dt={day}"]).unwrap(), ["dt=2026-11-19/a.parquet"]);
    let glob = ["dt={day:%Y-%m}-1?/*"];
    assert_eq!(found(&dir, &glob).unwrap(), ["dt=2026-11-18/b.parquet", "dt=2026-11-19/a.parquet"]);
}

#[test]
fn a_file_or_folder_with_a_bracket_in_its_name_is_found_by_it() {
    let dir = folder(&["one[1]/a.parquet", "b[2].parquet", "c1.parquet"]);
    assert_eq!(found(&dir, &["one[1]"]).unwrap().len(), 1);
    assert_eq!(found(&dir, &["b[2].parquet"]).unwrap().len(), 1);
    assert_eq!(found(&dir, &["c[1].parquet"]).unwrap(), ["c1.parquet"]);
}

#[test]
fn an_input_that_matches_nothing_fails_by_name_even_with_one_that_does() {
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
fn what_no_build_could_read_is_refused_without_a_look_at_it() {
    let check = |inputs: &[&str], days| {
        let inputs: Vec<String> = inputs.iter().map(|input| (*input).to_owned()).collect();
        check_inputs(&inputs, DAY.parse().unwrap(), Window { days, may_lack_input: false })
    };
    for (inputs, says) in [
        (&[""][..], "it is empty"),
        (&["in", "days/{day"], "no closing brace"),
        (&["in/{dya}/"], "`{dya}` is unknown"),
        (&["in/{date:%Y}/"], "`{date:%Y}` is unknown"),
        (&["in/{days}/"], "only `{day}`"),
        (&["a/[x"], "a/[x"),
        (&["s3://"], "s3://"),
        (&["ftp://x/{day}"], "ftp://x/2026-11-19"),
        (&["live:", "in"], "name no other"),
    ] {
        let error = check(inputs, 1).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{inputs:?}: {error}");
        assert!(error.to_string().contains(says), "{inputs:?}: {error}");
    }
    assert!(check(&["in"], 2).is_err(), "it is the same on both days");
    for good in ["live:", "in/{day:%Y%m%d}/*", "no/such/*", "x/{00,01}/{3F25-A}", "in/[{]dya}"] {
        assert!(check(&[good], 1).is_ok(), "{good}");
    }
}

#[test]
fn a_misspelt_placeholder_is_refused_and_matched_in_brackets() {
    let dir = folder(&["in/{dya}/a.parquet"]);
    let error = found(&dir, &["in/{dya}"]).unwrap_err().to_string();
    assert!(error.contains("`[{]dya}`"), "{error}");
    assert_eq!(found(&dir, &["in/[{]dya}/*"]).unwrap(), ["in/{dya}/a.parquet"]);
}

#[test]
fn unusable_globs_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for wrong in ["in/a**b", "in/[", "s3://buck*t/x.parquet"] {
        let error = runtime.block_on(find(&[wrong.to_owned()], DAY.parse().unwrap())).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{wrong}: {error}");
        assert!(error.to_string().contains(wrong), "{error}");
    }
}
