//! The house stays as it was built: who may depend on whom, which file may name what, and the limits
//! on files and unsafe code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The names of all crates that `package` links with these features.
fn tree(package: &str, features: &str) -> BTreeSet<String> {
    let tree = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .current_dir(root())
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package, "--features", features])
        .output()
        .unwrap();
    let text = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn builder_and_server_never_meet() {
    assert!(!tree("bloomsday-builder", "").contains("bloomsday-server"));
    assert!(!tree("bloomsday-server", "http").contains("bloomsday-builder"));
    let common = tree("bloomsday-common", "");
    assert!(!common.contains("bloomsday-builder") && !common.contains("bloomsday-server"));
}

#[test]
fn a_bidder_links_no_parquet_and_by_default_no_cloud() {
    let server = tree("bloomsday-server", "");
    for heavy in ["parquet", "arrow-array", "arrow-schema", "cron", "reqwest", "hyper", "clap"] {
        assert!(!server.contains(heavy), "the server links {heavy}");
    }
    assert!(tree("bloomsday-server", "aws").contains("reqwest"), "the check sees no cloud at all");
}

/// Every Rust file of ours, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["common", "builder", "server", "jobs", "tests", "bench"]
        .map(|name| root().join(name))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(found.len() > 30, "the sources are somewhere else");
    found
}

/// The files that mention `word` in code, comments aside.
fn naming(word: &str) -> BTreeSet<String> {
    let mentions = |text: &str| {
        text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word))
    };
    let named = sources().into_iter().filter(|(_, text)| mentions(text));
    named.map(|(name, _)| name).filter(|name| name != "tests/tests/house.rs").collect()
}

#[test]
fn one_file_names_bincode_and_one_names_xxhash() {
    assert_eq!(naming("bincode"), BTreeSet::from(["common/src/blob.rs".to_owned()]));
    assert_eq!(naming("xxhash_rust"), BTreeSet::from(["common/src/hash.rs".to_owned()]));
}

#[test]
fn unsafe_code_stays_in_the_kernels_the_cache_hints_and_the_hash_of_short_ids() {
    let files = naming("unsafe {");
    assert!(!files.is_empty());
    for file in files {
        let among_kernels = file.starts_with("common/src/filter/kernel/");
        let others = ["common/src/memory/cache.rs", "common/src/hash/xxh3_short.rs"];
        assert!(among_kernels || others.contains(&&*file), "{file} has unsafe code");
    }
    for (name, text) in sources().iter().filter(|(name, _)| name.ends_with("src/lib.rs")) {
        let guard = if name.starts_with("common") {
            "#![deny(unsafe_code)]"
        } else {
            "#![forbid(unsafe_code)]"
        };
        assert!(text.contains(guard), "{name} does not say {guard}");
    }
}

#[test]
fn only_the_follower_swaps_and_only_the_store_touches_objects() {
    let swaps = naming("served.swap(").into_iter().filter(|file| !file.ends_with("/tests.rs"));
    assert_eq!(swaps.collect::<Vec<_>>(), ["server/src/follower.rs"]);
    for file in naming("object_store::") {
        let may = [
            "common/src/store/",
            "common/src/error.rs",
            "builder/src/source",
            "builder/src/scan",
            "builder/src/error.rs",
            // A store in memory that is ill on purpose, for the server's own tests alone.
            "server/src/simulation/flaky_store.rs",
            "tests/src/liar.rs",
        ];
        assert!(may.iter().any(|place| file.starts_with(place)), "{file} names object_store");
    }
}

#[test]
fn one_file_of_the_server_asks_for_the_time_of_day() {
    let asks = naming("Timestamp::now").into_iter().filter(|file| file.starts_with("server/src/"));
    assert_eq!(asks.collect::<Vec<_>>(), ["server/src/clock.rs"]);
    let asks = naming("SystemTime").into_iter().filter(|file| file.starts_with("server/src/"));
    assert_eq!(asks.count(), 0, "the clock that steps has one reader");
}

#[test]
fn every_file_says_what_it_is_and_is_one_thing() {
    for (name, text) in sources() {
        assert!(text.starts_with("//! "), "{name} does not begin with what lives there");
        let lines = text.lines().count();
        assert!(lines <= 600, "{name} has {lines} lines: is it two things?");
    }
}
