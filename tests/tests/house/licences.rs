//! Every dependency comes from crates.io under a licence that `deny.toml` allows: what `cargo deny
//! check licenses sources` says too, without a tool that takes minutes to install.

use std::collections::BTreeSet;
use std::process::Command;

use bloomsday_tests::sources::root;
use serde_json::Value;

/// The quoted strings of the list `allow` in `deny.toml`.
fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split_once("\nallow = [").unwrap().1.split_once(']').unwrap().0;
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression of names, AND, OR and brackets can be met with what is allowed. The
/// old form `MIT/Apache-2.0` means OR.
fn is_allowed(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = licence.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any_of(&words, &mut at, allowed);
    assert_eq!(at, words.len(), "{licence} is no expression");
    met
}

fn any_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(words, at, allowed);
    }
    met
}

fn all_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    if words.get(*at) == Some(&"(") {
        *at += 1;
        let met = any_of(words, at, allowed);
        *at += 1;
        return met;
    }
    let mut name = words[*at].to_owned();
    *at += 1;
    if words.get(*at) == Some(&"WITH") {
        name += &format!(" WITH {}", words[*at + 1]);
        *at += 2;
    }
    allowed.contains(&name)
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let allowed =
        BTreeSet::from(["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(String::from));
    for yes in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(GPL-3.0 OR ISC) AND MIT"] {
        assert!(is_allowed(yes, &allowed), "{yes}");
    }
    for no in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(GPL-3.0 OR ISC) AND GPL-2.0"] {
        assert!(!is_allowed(no, &allowed), "{no}");
    }
    assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR Apache-2.0", &allowed));
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_crates_io() {
    let allowed = allowed();
    assert!(allowed.contains("MIT") && allowed.len() > 5);
    for manifest in ["Cargo.toml", "python/bloomsday/Cargo.toml"] {
        check(manifest, &allowed);
    }
}

fn check(manifest: &str, allowed: &BTreeSet<String>) {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .current_dir(root())
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--manifest-path", manifest])
        // What other systems would link is not on this machine.
        .args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "these are not all");
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str());
        assert!(licence.is_some_and(|l| is_allowed(l, allowed)), "{name}: {licence:?}");
        if let Some(source) = package["source"].as_str() {
            assert!(source.starts_with("registry+https://github.com/rust-lang/crates.io-index"));
        }
    }
}
