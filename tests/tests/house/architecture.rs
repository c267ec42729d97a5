//! The architecture: which crate may depend on which, which file may name what, no import circles,
//! and the limits on files and unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bloomsday_tests::other_programs::run;
use bloomsday_tests::sources::{root, rust_files};

/// What `cargo tree` prints, one crate a line.
fn cargo_tree(words: &[&str]) -> String {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(root()).args(["tree", "--offline", "--prefix", "none"]).args(words);
    String::from_utf8(run(&mut cargo).stdout).unwrap()
}

/// The names of all crates that `package` links with these features.
fn tree(package: &str, features: &str) -> BTreeSet<String> {
    let words = ["--edges", "normal", "--format", "{p}", "--package", package];
    let text = cargo_tree(&[&words[..], &["--features", features]].concat());
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Otherwise a run of the tests compiles libraries twice: for the tests, and for the program that
/// they drive.
#[test]
fn the_program_is_built_with_the_features_that_all_tests_have() {
    let crates = |edges: &str| -> BTreeSet<String> {
        let text = cargo_tree(&["--edges", edges, "--format", "{p} {f}"]);
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let (program, tests) = (crates("normal,build"), crates("normal,build,dev"));
    let only: Vec<_> = program.difference(&tests).collect();
    assert!(only.is_empty(), "name who enables more in tests/Cargo.toml: {only:?}");
}

/// A feature that is compiled together with others only may lack what these bring.
#[test]
fn run_sh_compiles_each_feature_alone() {
    let script = fs::read_to_string(root().join("tests/run.sh")).unwrap();
    let lines = script.lines().filter_map(|line| line.strip_prefix("alone "));
    let compiled: BTreeMap<&str, BTreeSet<&str>> = lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.collect()))
        })
        .collect();
    for name in ["common", "builder", "server", "jobs", "c", "python/bloomsday"] {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let section =
            manifest.split("\n[features]\n").nth(1).and_then(|rest| rest.split("\n[").next());
        let keys = section.unwrap_or_default().lines().filter_map(|line| line.split_once(" = "));
        let keys: Vec<_> = keys.filter(|(key, _)| *key != "default").collect();
        assert!(!keys.is_empty(), "no feature is found in {name}/Cargo.toml");
        let compiled_here = keys.iter().filter(|(key, of)| !is_passed_on(name, key, of));
        let declared: BTreeSet<&str> = compiled_here.map(|(key, _)| *key).collect();
        assert_eq!(compiled.get(name), Some(&declared), "the features of {name}");
    }
}

/// Whether this feature is a kind of store that only other crates of ours compile: its own crate is
/// the same with and without it, and so is all that it sees of the others.
fn is_passed_on(name: &str, feature: &str, of: &str) -> bool {
    let is_store = ["aws", "azure", "gcp", "hdfs", "http-store"].contains(&feature);
    let list = of.trim_start_matches('[').split(']').next().unwrap_or_default();
    let is_ours = |word: &str| {
        let word = word.trim().trim_matches('"');
        word.starts_with("bloomsday-") && word.ends_with(&format!("/{feature}"))
    };
    let named = format!("feature = \"{feature}\"");
    let folder = format!("{name}/src/");
    let is_named =
        sources().iter().any(|(path, text)| path.starts_with(&folder) && text.contains(&named));
    is_store && list.split(',').all(is_ours) && !is_named
}

#[test]
fn the_map_names_only_what_exists() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let names = text.split('`').skip(1).step_by(2).filter(|name| name.contains("/src/"));
    let mut checked = 0;
    for name in names {
        let (folder, file) = (root().join(name), root().join(format!("{name}.rs")));
        assert!(folder.exists() || file.exists(), "docs/architecture.md names {name}");
        checked += 1;
    }
    assert!(checked > 20, "only {checked} names were found");
}

/// A stranger begins there: it has every module, and nothing else.
#[test]
fn lib_rs_only_maps_and_exports() {
    for name in ["common", "builder", "server", "c", "python/bloomsday"] {
        let text = fs::read_to_string(root().join(name).join("src/lib.rs")).unwrap();
        let map = text.lines().filter(|line| line.starts_with("//! |"));
        let map = map.collect::<Vec<_>>().join("\n").to_lowercase();
        let code: Vec<&str> =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for (at, line) in code.iter().enumerate() {
            let item = line.trim_start().trim_start_matches("pub ").split(' ').next().unwrap_or("");
            let defines = ["fn", "struct", "enum", "trait", "impl", "const", "static", "type"]
                .contains(&item);
            assert!(!defines, "{name}/src/lib.rs defines something: {line}");
            let module = line
                .trim_start_matches("pub ")
                .strip_prefix("mod ")
                .and_then(|m| m.strip_suffix(';'));
            let is_test = at > 0 && code[at - 1] == "#[cfg(test)]";
            if let Some(module) = module.filter(|_| !is_test) {
                let is_mapped = [format!("`{module}"), format!("@{module}`")]
                    .iter()
                    .any(|m| map.contains(&**m));
                assert!(is_mapped, "the map of {name}/src/lib.rs has no line for `{module}`");
            }
        }
    }
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
    let builds = ["parquet", "arrow-array", "arrow-schema", "cron", "clap"];
    let serves = ["reqwest", "hyper", "prometheus", "tokio-rustls", "redis", "rdkafka"];
    for heavy in [&builds[..], &serves].concat() {
        assert!(!server.contains(heavy), "the server links {heavy}");
    }
    assert!(tree("bloomsday-server", "aws").contains("reqwest"), "the check sees no cloud at all");
}

/// `docs/decisions/0024-kafka-by-rdkafka.md`: else `cargo test` would need the headers of OpenSSL.
#[test]
fn the_program_links_openssl_only_for_kafka() {
    assert!(!tree("bloomsday-jobs", "").contains("openssl-sys"));
    assert!(tree("bloomsday-jobs", "kafka").contains("openssl-sys"), "the check sees no Kafka");
}

/// Every Rust file of ours, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let folders = ["c", "common", "builder", "server", "jobs", "python", "tests", "bench", "fuzz"];
    let files = rust_files(folders.map(|name| root().join(name)).into());
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    let found: Vec<_> = files.into_iter().map(read).collect();
    assert!(found.len() > 30, "the sources are somewhere else");
    found
}

/// The files that mention `word` in code, comments aside.
fn naming(word: &str) -> BTreeSet<String> {
    let mentions = |text: &str| {
        text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word))
    };
    let named = sources().into_iter().filter(|(_, text)| mentions(text));
    named.map(|(name, _)| name).filter(|name| name != "tests/tests/house/architecture.rs").collect()
}

#[test]
fn one_file_names_bincode_and_one_names_xxhash() {
    assert_eq!(naming("bincode"), BTreeSet::from(["common/src/blob/header.rs".to_owned()]));
    assert_eq!(naming("xxhash_rust"), BTreeSet::from(["common/src/hash.rs".to_owned()]));
}

#[test]
fn unsafe_code_stays_in_the_kernels_memory_and_interfaces_of_c() {
    let files = naming("unsafe {");
    assert!(!files.is_empty());
    for file in files {
        let among_kernels = file.starts_with("common/src/filter/kernel/");
        // Instructions, cache hints, words in mapped memory, and Arrow's C interface.
        let others = [
            "common/src/assembly.rs",
            "common/src/filter/kernel.rs",
            "common/src/memory/cache.rs",
            "common/src/memory/lines.rs",
            "python/bloomsday/src/ids/capsule.rs",
        ];
        let other = others.contains(&&*file) || file.starts_with("c/src/");
        assert!(among_kernels || other, "{file} has unsafe code");
    }
    for (name, text) in sources().iter().filter(|(name, _)| name.ends_with("src/lib.rs")) {
        let guard = match name.split('/').next() {
            // Every function of it takes pointers; `c/src/pointers.rs` checks them.
            Some("c") => "#![allow(unsafe_code)]",
            Some("common" | "python") => "#![deny(unsafe_code)]",
            _ => "#![forbid(unsafe_code)]",
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
            "common/src/store.rs",
            "common/src/store/",
            "common/src/error.rs",
            "builder/src/source",
            "builder/src/scan",
            "builder/src/error.rs",
            // A store in memory that is ill on purpose, for the server's own tests alone.
            "server/src/simulation/flaky_store.rs",
            "tests/src/faulty_store.rs",
        ];
        assert!(may.iter().any(|place| file.starts_with(place)), "{file} names object_store");
    }
}

#[test]
fn live_ids_in_memory_know_no_files_and_their_log_knows_no_store() {
    let folders = [
        ("server/src/live/memory/", &["std::fs", "tokio", "crate::live::log", "::store::"][..]),
        ("server/src/live/log", &["::store::", "crate::live::replication", "crate::live::set"][..]),
        ("server/src/live/replication/", &["std::fs", "File::", "redis::", "rdkafka"][..]),
        ("server/src/live", &["crate::resp"][..]),
        ("server/src/resp", &["live::log", "std::fs"][..]),
    ];
    for (folder, never) in folders {
        let is_in = |file: &String| file.starts_with(folder) && !file.ends_with("/tests.rs");
        let names = |word: &&str| naming(word).into_iter().find(is_in);
        let found: Vec<_> = never.iter().filter_map(names).collect();
        assert!(found.is_empty(), "{found:?} name one of {never:?}");
    }
}

#[test]
fn one_file_has_inline_assembly() {
    assert_eq!(naming("asm!("), BTreeSet::from(["common/src/assembly.rs".to_owned()]));
}

#[test]
fn one_file_of_the_server_reads_the_time_of_day() {
    let users = naming("Timestamp::now").into_iter().filter(|file| file.starts_with("server/src/"));
    assert_eq!(users.collect::<Vec<_>>(), ["server/src/clock.rs"]);
    let users = naming("SystemTime").into_iter().filter(|file| file.starts_with("server/src/"));
    assert_eq!(users.count(), 0, "the clock that steps has one reader");
}

/// A library's error names things, and what to do as data; `jobs` turns it into what to type.
#[test]
fn no_text_of_a_library_names_a_command_or_a_flag() {
    let sources = sources();
    let mut checked = 0;
    for name in ["common", "builder", "server"] {
        for (module, code) in modules(name, &sources) {
            for text in string_literals(&code) {
                let begins_word = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric());
                let follows = |at: usize| text[at..].starts_with(|c: char| c.is_ascii_lowercase());
                let named = ["--", "bloomsday "].iter().find(|word| {
                    let mut places = text.match_indices(**word);
                    places.any(|(at, _)| begins_word(at) && follows(at + word.len()))
                });
                assert!(named.is_none(), "{name}: {module} names a command or a flag: {text:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "only {checked} texts were found");
}

/// The string literals of `code`, roughly: the quotes of a raw string end it.
fn string_literals(code: &str) -> Vec<&str> {
    let (mut found, mut opened) = (Vec::new(), None);
    let bytes = code.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], opened) {
            (b'\\', Some(_)) => at += 1,
            (b'"', Some(start)) => {
                found.push(&code[start..at]);
                opened = None;
            }
            // The character `"`.
            (b'\'', None) if bytes[at..].starts_with(b"'\"'") => at += 2,
            (b'"', None) => opened = Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    found
}

#[test]
fn every_file_says_what_it_is_and_is_one_thing() {
    for (name, text) in sources() {
        // What rustdoc includes into an example cannot begin with an inner comment.
        let begins = text.starts_with("//! ") || name.starts_with("server/doctest/");
        assert!(begins, "{name} does not begin with what lives there");
        let lines = text.lines().count();
        assert!(lines <= 600, "{name} has {lines} lines: is it two things?");
    }
}

/// Tables and examples aside.
#[test]
fn comments_are_as_wide_as_code() {
    const MAX_COLUMNS: usize = 100;
    let mut checked = 0;
    for (name, text) in sources() {
        let mut is_example = false;
        for (at, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let words = comment.trim_start_matches(['/', '!']).trim_start();
            is_example ^= words.starts_with("```");
            if is_example || words.starts_with('|') {
                continue;
            }
            checked += 1;
            let columns = line.chars().count();
            assert!(columns <= MAX_COLUMNS, "{name}:{} has {columns} columns", at + 1);
        }
    }
    assert!(checked > 5_000, "only {checked} lines of comments were found");
}

#[test]
fn no_file_imports_itself_through_others() {
    let sources = sources();
    for name in ["c", "common", "builder", "server", "jobs", "python/bloomsday", "tests", "bench"] {
        let modules = modules(name, &sources);
        assert!(modules.len() > 3, "{name} has its sources somewhere else");
        let imports: BTreeMap<&String, BTreeSet<String>> =
            modules.iter().map(|(path, text)| (path, imports(path, text, &modules))).collect();
        let edges: usize = imports.values().map(BTreeSet::len).sum();
        assert!(edges > 3, "no imports are found in {name}");
        let circle = circle(&imports).map(|files| files.join(" -> "));
        assert_eq!(circle, None, "an import circle in {name}");
    }
}

/// The modules of a crate without its root, by path (`filter::kernel`), with their code. Tests and
/// what only tests use are left out.
fn modules(name: &str, sources: &[(String, String)]) -> BTreeMap<String, String> {
    let within = format!("{name}/src/");
    let files = sources.iter().filter_map(|(file, text)| Some((file.strip_prefix(&within)?, text)));
    let modules = files.filter_map(|(file, text)| {
        let path = file.strip_suffix(".rs")?;
        let path = path.strip_suffix("/mod").unwrap_or(path).replace('/', "::");
        let is_test = path.split("::").any(|part| part == "tests" || part == "simulation");
        // Where the tests begin, for this file alone or for others too.
        let starts = ["mod tests", "pub(in crate::scan) mod tests"];
        let tests = starts.iter().filter_map(|start| text.find(&format!("#[cfg(test)]\n{start}")));
        let code = &text[..tests.min().unwrap_or(text.len())];
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: Vec<&str> = lines.collect();
        (!is_test && path != "lib" && path != "main").then(|| (path, code.join("\n")))
    });
    modules.collect()
}

/// The modules that this one names. A re-export (`pub use`) of a module's own child is no import.
fn imports(path: &str, code: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // Groups are written out: `crate::{a, b}` becomes `crate::a` and `crate::b`.
    for statement in code.split(';') {
        let statement = statement.trim_start();
        let attributes = statement.rfind("]\n").map_or(0, |at| at + 2);
        let line = statement[attributes..].trim_start();
        if let Some(tree) = line.strip_prefix("use ") {
            for used in written_out(tree) {
                found.extend(resolve(path, &used, modules));
            }
        } else if !(line.starts_with("pub") && line.contains(" use ")) {
            let prefixes = ["crate::", "super::", "self::"];
            for (at, _) in prefixes.iter().flat_map(|prefix| statement.match_indices(prefix)) {
                let before = statement[..at].chars().next_back();
                let is_visibility = statement[..at].ends_with("(in ");
                let is_path = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
                if !is_path && !is_visibility {
                    let end = statement[at..]
                        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
                    let used = &statement[at..end.map_or(statement.len(), |end| at + end)];
                    found.extend(resolve(path, used, modules));
                }
            }
        }
    }
    found.remove(path);
    found
}

/// Every path of a `use` tree.
fn written_out(tree: &str) -> Vec<String> {
    let tree: String = tree.chars().filter(|c| !c.is_whitespace()).collect();
    let Some((prefix, group)) = tree.split_once('{') else { return vec![tree] };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.iter().flat_map(|part| written_out(&format!("{prefix}{part}"))).collect()
}

/// The module that a path in the module `from` names.
fn resolve(from: &str, used: &str, modules: &BTreeMap<String, String>) -> Option<String> {
    let mut base: Vec<&str> = from.split("::").collect();
    let mut parts = used.split("::").peekable();
    match parts.peek().copied() {
        Some("crate") => {
            base.clear();
            parts.next();
        }
        Some("self") => drop(parts.next()),
        Some("super") => {
            while parts.peek() == Some(&"super") {
                base.pop();
                parts.next();
            }
        }
        // Without a prefix it is a child, or another crate.
        Some(child) if modules.contains_key(&format!("{from}::{child}")) => {}
        _ => return None,
    }
    let mut module = base.join("::");
    for part in parts {
        let longer = if module.is_empty() { part.to_owned() } else { format!("{module}::{part}") };
        if !modules.contains_key(&longer) {
            break;
        }
        module = longer;
    }
    modules.contains_key(&module).then_some(module)
}

/// A way from a module back to itself, if there is one.
fn circle(imports: &BTreeMap<&String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        module: &String,
        imports: &BTreeMap<&String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(at) = way.iter().position(|other| other == module) {
            return Some([&way[at..], std::slice::from_ref(module)].concat());
        }
        if !done.contains(module) {
            way.push(module.clone());
            for next in imports.get(module).into_iter().flatten() {
                if let Some(circle) = visit(next, imports, way, done) {
                    return Some(circle);
                }
            }
            way.pop();
            done.insert(module.clone());
        }
        None
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| visit(module, imports, &mut Vec::new(), &mut done))
}
