//! The files of this project, for tests that read them, and of its tools.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The first program in this language on a page of the documentation.
pub fn first_program(page: &str, language: &str) -> String {
    let begins = format!("```{language}\n");
    let (_, program) = page.split_once(&begins).expect("the page has a program");
    program.split_once("```").expect("it ends").0.to_owned()
}

/// The folder of jars that pyspark brings.
pub fn spark_jars() -> PathBuf {
    let lib = root().join("target/test-tools/lib");
    let pythons = fs::read_dir(lib).expect("tests/run.sh installs Python's packages");
    let jars = pythons
        .map(|python| python.expect("a folder").path().join("site-packages/pyspark/jars"))
        .find(|jars| jars.exists());
    jars.expect("tests/run.sh installs pyspark")
}

/// Every Rust file in `folders` and below, in order, but for what cargo wrote to a `target`.
pub fn rust_files(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The packages of another lock file that the workspace's has with another version only.
pub fn other_versions(file: &str) -> Vec<(String, String)> {
    let (ours, theirs) = (locked("Cargo.lock"), locked(file));
    let names: BTreeSet<&String> = ours.iter().map(|(name, _)| name).collect();
    let shared: Vec<_> = theirs.into_iter().filter(|(name, _)| names.contains(name)).collect();
    assert!(shared.len() > 100, "these are not all packages of {file}");
    shared.into_iter().filter(|package| !ours.contains(package)).collect()
}

/// Name and version of every package in a lock file.
fn locked(file: &str) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let value = |package: &str, key: &str| {
        let (_, rest) = package.split_once(&format!("\n{key} = \"")).expect("a package has it");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let packages = text.split("\n[[package]]").skip(1);
    packages.map(|package| (value(package, "name"), value(package, "version"))).collect()
}
