//! When a day's input is complete, and what is logged for one that is not.

use super::*;

const DAY: &str = "2026-11-19";
const SETTLE: Duration = Duration::from_secs(300);

fn nothing_live(dir: &tempfile::TempDir) -> (Store, FilterName) {
    (Store::open(&dir.path().display().to_string()).unwrap(), "rt".parse().unwrap())
}

fn checked(dir: &tempfile::TempDir, inputs: &[&str], marker: Option<&str>) -> InputState {
    let root = dir.path().display().to_string();
    let inputs: Vec<String> = inputs.iter().map(|input| format!("{root}/{input}")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (store, filter) = nothing_live(dir);
    runtime
        .block_on(check_input(
            &store,
            &filter,
            &inputs,
            marker,
            SETTLE,
            Window::default(),
            DAY.parse().unwrap(),
        ))
        .unwrap()
}

fn found(dir: &tempfile::TempDir, inputs: &[&str], marker: Option<&str>) -> Found {
    checked(dir, inputs, marker).found
}

/// What it waits for, without the folder of the test.
fn waits(dir: &tempfile::TempDir, input: &str, marker: Option<&str>) -> String {
    let waits = checked(dir, &[input], marker).waits.unwrap();
    waits.why.replace(&dir.path().display().to_string(), "")
}

fn write(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) {
    let path = dir.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Sets a file's time back by this many seconds.
fn age(dir: &tempfile::TempDir, name: &str, seconds: u64) {
    let file = std::fs::File::options().write(true).open(dir.path().join(name)).unwrap();
    let time = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
    file.set_modified(time).unwrap();
}

#[test]
fn a_marker_next_to_the_files_makes_them_complete_and_growth_is_noticed() {
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
    for input in [
        "dt={day}/",
        "dt={day}",
        "dt={day}/*.parquet",
        "dt={day}/**/*.parquet",
        "dt={day}/a.parquet",
        "dt=*/*.parquet",
    ] {
        assert_eq!(found(&dir, &[input], None), Found::Complete, "{input}");
    }
    assert!(matches!(found(&dir, &folder, Some("_DONE")), Found::Incomplete(_)));
}

#[test]
fn every_input_must_be_there_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "a/x.parquet", b"1");
    write(&dir, "a/_SUCCESS", b"");
    assert_eq!(found(&dir, &["a", "b"], None), Found::Nothing);
    write(&dir, "b/y.parquet", b"1");
    assert!(matches!(found(&dir, &["a", "b"], None), Found::Incomplete(_)));
    write(&dir, "b/_SUCCESS", b"");
    assert_eq!(found(&dir, &["a", "b"], None), Found::Complete);
}

#[test]
fn every_folder_that_a_glob_matches_needs_its_marker() {
    for marker in [Some("DONE"), None] {
        let name = marker.unwrap_or(MARKER);
        let globs = ["dt={day}/hour=*/*.parquet", "dt={day}/*/*.parquet", "dt={day}/**/*.parquet"];
        for input in globs {
            let dir = tempfile::tempdir().unwrap();
            write(&dir, "dt=2026-11-19/hour=00/a.parquet", b"1");
            write(&dir, "dt=2026-11-19/hour=01/a.parquet", b"1");
            write(&dir, &format!("dt=2026-11-19/hour=00/{name}"), b"");
            assert!(matches!(found(&dir, &[input], marker), Found::Incomplete(_)), "{input}");
            let why = waits(&dir, input, marker);
            assert!(why.contains("1 of 2 folders") && why.contains("/hour=01"), "{why}");
            // A folder that holds nothing yet is one that will.
            write(&dir, &format!("dt=2026-11-19/hour=01/{name}"), b"");
            std::fs::create_dir(dir.path().join("dt=2026-11-19/hour=02")).unwrap();
            assert!(matches!(found(&dir, &[input], marker), Found::Incomplete(_)), "{input}");
            assert!(waits(&dir, input, marker).contains("/hour=02"));
            write(&dir, &format!("dt=2026-11-19/hour=02/{name}"), b"");
            assert_eq!(found(&dir, &[input], marker), Found::Complete, "{input}");
        }
    }
}

#[test]
fn a_marker_of_the_day_counts_for_all_of_it_and_one_above_the_day_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "logs/eu/dt=2026-11-19/hour=00/a.parquet", b"1");
    write(&dir, "logs/us/dt=2026-11-19/hour=00/a.parquet", b"1");
    write(&dir, "logs/us/dt=2026-11-18/hour=00/a.parquet", b"1");
    let input = "logs/*/dt={day}/hour=*/*.parquet";
    for above in ["logs/_SUCCESS", "logs/eu/_SUCCESS", "logs/us/_SUCCESS"] {
        write(&dir, above, b"");
    }
    assert!(matches!(found(&dir, &[input], None), Found::Incomplete(_)));
    write(&dir, "logs/eu/dt=2026-11-19/_SUCCESS", b"");
    assert!(waits(&dir, input, None).contains("1 of 2 folders: /logs/us/dt=2026-11-19/hour=00"));
    write(&dir, "logs/us/dt=2026-11-19/_SUCCESS", b"");
    assert_eq!(found(&dir, &[input], None), Found::Complete);
}

#[test]
fn only_a_marker_that_is_configured_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "dt=2026-11-19/a.parquet", b"1");
    assert_eq!(
        waits(&dir, "dt={day}/", None),
        "no `_SUCCESS` in 1 of 1 folders: /dt=2026-11-19/; it is built all the same, once nothing has \
         changed for 5m"
    );
    assert_eq!(
        waits(&dir, "dt={day}/", Some("_SUCCESS")),
        "`_SUCCESS` is missing in 1 of 1 folders: /dt=2026-11-19/"
    );
}

#[test]
fn a_folder_of_a_markers_name_is_none() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "dt=2026-11-19/a.parquet", b"1");
    write(&dir, "dt=2026-11-19/_SUCCESS/x", b"1");
    assert!(matches!(found(&dir, &["dt={day}/"], None), Found::Incomplete(_)));
}

#[test]
fn a_marker_that_an_earlier_append_left_says_nothing_of_newer_files() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "dt=2026-11-19/hour-00.parquet", b"1");
    write(&dir, "dt=2026-11-19/_SUCCESS", b"");
    age(&dir, "dt=2026-11-19/hour-00.parquet", 7200);
    age(&dir, "dt=2026-11-19/_SUCCESS", 7100);
    assert_eq!(found(&dir, &["dt={day}/"], None), Found::Complete);
    write(&dir, "dt=2026-11-19/hour-01.parquet", b"1");
    for input in ["dt={day}/", "dt={day}/*.parquet", "dt={day}/hour-01.parquet"] {
        assert!(matches!(found(&dir, &[input], None), Found::Incomplete(_)), "{input}");
        assert!(waits(&dir, input, None).contains("older than files beside it"));
        // Who names a marker says that its being there is enough.
        assert_eq!(found(&dir, &[input], Some("_SUCCESS")), Found::Complete, "{input}");
    }
    std::fs::remove_file(dir.path().join("dt=2026-11-19/hour-01.parquet")).unwrap();
    for input in ["dt={day}/", "dt={day}/*.parquet"] {
        write(&dir, "dt=2026-11-19/_temporary/0/part.parquet", b"1");
        assert!(matches!(found(&dir, &[input], None), Found::Incomplete(_)), "{input}");
        assert!(waits(&dir, input, None).contains("unfinished"));
    }
}

#[test]
fn what_can_be_no_file_is_waited_for_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "dt=2026-11-19/a.parquet", b"1");
    std::os::unix::fs::symlink("/gone", dir.path().join("dt=2026-11-19/b.parquet")).unwrap();
    let checked = checked(&dir, &["dt={day}/"], None);
    let waits = checked.waits.unwrap();
    assert_eq!((checked.found, waits.reason), (Found::Nothing, Reason::Unreadable));
    assert!(waits.why.contains("b.parquet") && waits.why.contains("/gone"), "{}", waits.why);
}

#[test]
fn the_other_days_of_a_window_must_be_there_unless_they_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let inputs = [format!("{root}/dt={{day}}/")];
    for day in ["2026-11-17", "2026-11-19"] {
        write(&dir, &format!("dt={day}/a.parquet"), b"1");
    }
    write(&dir, "dt=2026-11-19/_SUCCESS", b"");
    let check = |may_lack_input| {
        let window = Window { days: 3, may_lack_input };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (store, filter) = nothing_live(&dir);
        runtime
            .block_on(check_input(
                &store,
                &filter,
                &inputs,
                None,
                SETTLE,
                window,
                DAY.parse().unwrap(),
            ))
            .unwrap()
    };
    let strict = check(false);
    let waits = strict.waits.unwrap();
    assert_eq!((strict.found, waits.reason), (Found::Nothing, Reason::Window));
    assert!(
        waits.why.contains("2026-11-18") && !waits.why.contains("2026-11-17,"),
        "{}",
        waits.why
    );
    assert_eq!(check(true).found, Found::Complete, "the marker of the day itself is what counts");
}
