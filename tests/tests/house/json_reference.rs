//! docs/json.md has a table for each object of JSON, with every field in order.

use bloomsday_tests::sources::root;

/// The objects whose fields are public structs: their files, and the structs of one table.
const OBJECTS: [(&str, &[&str]); 16] = [
    ("server/src/status.rs", &["FilterStatus"]),
    ("server/src/status.rs", &["Judged"]),
    ("server/src/status.rs", &["Reloaded"]),
    ("server/src/live/status.rs", &["LiveStatus", "ShareStatus"]),
    ("server/src/live/status.rs", &["LayerStatus"]),
    ("server/src/live/status.rs", &["ClientFilterStatus"]),
    ("common/src/live/lease.rs", &["Lease"]),
    ("server/src/live/stream/feed_status.rs", &["FeedStatus"]),
    ("server/src/live/memory/domains.rs", &["DomainShare"]),
    ("builder/src/report.rs", &["Report"]),
    ("builder/src/report.rs", &["Seconds"]),
    ("builder/src/gates.rs", &["Verdict"]),
    ("builder/src/deltas.rs", &["PublishedDelta"]),
    ("common/src/pointer.rs", &["HistoryEvent"]),
    ("common/src/store/day_lookup.rs", &["DayLookup"]),
    ("common/src/store/day_lookup.rs", &["TraceSummary"]),
];

#[test]
fn every_field_of_json_is_described() {
    let page = std::fs::read_to_string(root().join("docs/json.md")).unwrap();
    let tables = tables(&page);
    for (file, structs) in OBJECTS {
        let code = std::fs::read_to_string(root().join(file)).unwrap();
        let fields: Vec<&str> = structs.iter().flat_map(|name| fields(&code, name)).collect();
        assert!(fields.len() > 1, "{structs:?} of {file}");
        assert!(
            tables.contains(&fields),
            "no table of docs/json.md is that of {structs:?}: {fields:?}"
        );
    }
}

/// What commands print that have no public struct.
#[cfg(feature = "integration")]
#[test]
fn every_field_that_a_command_prints_is_in_its_section() {
    use std::collections::BTreeSet;

    use bloomsday_tests::backend::Backend;
    use bloomsday_tests::input::today;
    use bloomsday_tests::publisher::Publisher;
    use serde_json::Value;

    let page = std::fs::read_to_string(root().join("docs/json.md")).unwrap();
    let backend = Backend::local();
    let build = |back: u32, first: u64| {
        let day = Publisher::days_ago(&backend, back).users(first..first + 5_000);
        day.with(&["--deltas", "1"]).run().expect(0).json()
    };
    let (earlier, report) = (build(1, 0), build(0, 50));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (day, blob) = (today().to_string(), text(&report["blob"]));
    let deltas = std::path::Path::new(&backend.store).join("rt/deltas");
    let delta = std::fs::read_dir(deltas).unwrap().next().unwrap().unwrap().path();
    let delta = delta.display().to_string();
    let commands: [(&str, &[&str]); 9] = [
        ("status", &["status", "rt"]),
        ("inspect", &["inspect", &blob]),
        ("inspect", &["inspect", &delta]),
        ("prune", &["prune", "rt", "--dry-run"]),
        (
            "repoint",
            &["repoint", "rt", &day, "--to", &text(&earlier["blob"]), "--reason", "a test"],
        ),
        ("repoint", &["pin", "rt", "--to", &blob, "--reason", "a test"]),
        ("status", &["status", "rt"]),
        ("repoint", &["unpin", "rt"]),
        ("plan", &["plan", "--ids", "1M", "--live", "1M", "--sizes-only"]),
    ];
    for (section, words) in commands {
        let printed = backend.bloomsday(words).run().expect(0).json();
        let (_, after) = page.split_once(&format!("\n## `bloomsday {section}`")).unwrap();
        let described: BTreeSet<&str> =
            tables(after.split("\n## ").next().unwrap()).into_iter().flatten().collect();
        let inner = printed["pointers"].get(0).and_then(Value::as_object);
        let fields = printed.as_object().unwrap().keys();
        for field in fields.chain(inner.into_iter().flat_map(|inner| inner.keys())) {
            assert!(described.contains(&**field), "`{field}` of {words:?} is not in docs/json.md");
        }
    }
}

/// The first column of each table.
fn tables(page: &str) -> Vec<Vec<&str>> {
    let mut tables = vec![Vec::new()];
    for line in page.lines() {
        match line.strip_prefix("| `").and_then(|rest| rest.split_once('`')) {
            Some((name, _)) => tables.last_mut().unwrap().push(name),
            None => tables.push(Vec::new()),
        }
    }
    tables
}

/// The names in JSON of the fields of a struct.
fn fields<'a>(code: &'a str, name: &str) -> Vec<&'a str> {
    let (_, after) = code.split_once(&format!("pub struct {name} {{")).unwrap();
    let (body, _) = after.split_once("\n}\n").unwrap();
    let (mut fields, mut is_skipped, mut renamed) = (Vec::new(), false, None);
    for line in body.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[serde(") {
            is_skipped |= attribute.starts_with("skip)") || attribute.starts_with("flatten");
            let name = attribute.strip_prefix("rename = \"").and_then(|rest| rest.split_once('"'));
            renamed = name.map(|(name, _)| name).or(renamed);
        } else if let Some((field, _)) = line.strip_prefix("pub ").and_then(|l| l.split_once(':')) {
            if !is_skipped {
                fields.push(renamed.unwrap_or(field));
            }
            (is_skipped, renamed) = (false, None);
        }
    }
    fields
}
