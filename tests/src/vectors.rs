//! Blobs of each shape with the answers of the program, for the readers in other languages.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::backend::Backend;
use crate::input::{lines, today, user, write_rows};
use crate::program::bloomsday;
use crate::publisher::Publisher;

/// Layouts and fpp targets.
const SHAPES: [(&str, &str); 6] = [
    ("blocked", "0.5"),
    ("blocked", "0.03"),
    ("blocked", "1e-6"),
    ("guava", "0.03"),
    ("spark1", "0.03"),
    ("spark2", "1e-4"),
];

/// Publishes a blob of each shape. A folder for each has the blob `rt.bloom`, what `inspect --json`
/// says about it, and the program's answers, 1 or 0 a line, for `ids`, of which LF ends each.
pub fn blobs() -> &'static Path {
    static BLOBS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BLOBS.get_or_init(|| {
        let folder = tempfile::TempDir::new().unwrap();
        let special = ["Zoë", "Νίκος", "秋", "🦀🦀", " blank ", "cr\r"].map(String::from);
        let lengths = (1..=1024).map(|length| "p".repeat(length));
        let present: Vec<String> = (0..3_000).map(user).chain(lengths).chain(special).collect();
        let absent = (1_000_000..1_003_000).map(user).chain((0..1_100).map(|n| "q".repeat(n)));
        let mut ids = lines(present.iter().cloned().chain(absent));
        ids.extend_from_slice(b"\n\xff\xfe\x00\n \n\r\n");
        for (layout, fpp) in SHAPES {
            let backend = Backend::local();
            let input = backend.folder.path().join("in.parquet");
            write_rows(&input, present.iter().cloned().map(Some));
            let shape = ["--layout", layout, "--fpp", fpp];
            let blob = Publisher::day(&backend, today()).input(&input).with(&shape).blob();
            let blob = Path::new(&backend.store).join(blob);
            let place = folder.path().join(format!("{layout}-{fpp}"));
            fs::create_dir(&place).unwrap();
            fs::copy(&blob, place.join("rt.bloom")).unwrap();
            fs::write(place.join("ids"), &ids).unwrap();
            let inspected = bloomsday(&["inspect", blob.to_str().unwrap(), "--json"]).run();
            fs::write(place.join("inspect.json"), inspected.expect(0).stdout).unwrap();
            let answers =
                backend.answers(&ids).into_iter().map(|yes| if yes { "1\n" } else { "0\n" });
            fs::write(place.join("answers"), answers.collect::<String>()).unwrap();
        }
        folder
    });
    folder.path()
}
