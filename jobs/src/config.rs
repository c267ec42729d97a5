//! Configuration: flags beat the environment, which beats the file, which beats defaults. Unknown keys
//! are refused. `bloomsday config check` shows each value and where it came from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_builder::gates::{Gates, Limits};
use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::store::Store;
use bloomsday_server::{FilterConfig, Guard};
use clap::Subcommand;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Error;
use crate::output::{self, Output};

/// Where a configuration file is looked for when none is named.
const FILES: [&str; 2] = ["./bloomsday.toml", "/etc/bloomsday/bloomsday.toml"];

/// Everything a job can be told beside its own flags.
pub(crate) struct Settings {
    store: Option<(String, &'static str)>,
    path: Option<PathBuf>,
    file: File,
}

/// The file `bloomsday.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    store: Option<String>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) admin_token_file: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    #[serde(default, deserialize_with = "duration")]
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) cache_dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) filters: BTreeMap<FilterName, FilterFile>,
}

/// `[filters.NAME]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterFile {
    #[serde(default, deserialize_with = "one_or_more")]
    pub(crate) input: Vec<String>,
    pub(crate) column: Option<String>,
    pub(crate) fpp: Option<f64>,
    #[serde(default, deserialize_with = "layout")]
    pub(crate) layout: Option<Layout>,
    pub(crate) memory: Option<bytesize::ByteSize>,
    pub(crate) max_age_days: Option<u32>,
    keep_days: Option<NonZeroU32>,
    #[serde(default)]
    pub(crate) gates: Gates,
    // Read and checked, for the programs that act on them.
    schedule: Option<String>,
    day_offset: Option<u32>,
    guard: Option<Guard>,
    #[serde(default, deserialize_with = "duration")]
    guard_max_hold: Option<Duration>,
}

/// How many days back a server follows a pointer.
pub(crate) const MAX_AGE_DAYS: u32 = 3;
/// The false-positive probability of a filter whose target nobody stated.
pub(crate) const FPP: f64 = 0.03;

impl Settings {
    pub(crate) fn load(
        path: Option<PathBuf>,
        store: Option<String>,
        store_is_flag: bool,
    ) -> Result<Settings, Error> {
        let found = || FILES.iter().map(PathBuf::from).find(|file| file.is_file());
        let path = path.or_else(found);
        let file = path.as_deref().map(read).transpose()?.unwrap_or_default();
        let source = if store_is_flag { "--store" } else { "BLOOMSDAY_STORE" };
        let store = match (store, &file.store) {
            (Some(store), _) => Some((store, source)),
            (None, Some(store)) => Some((store.clone(), "file")),
            (None, None) => None,
        };
        Ok(Settings { store, path, file })
    }

    /// The store's address.
    pub(crate) fn store(&self) -> Result<&str, Error> {
        match &self.store {
            Some((store, _)) => Ok(store),
            None => Err(Error::Usage(
                "no store is named: give --store URL, set BLOOMSDAY_STORE, or write `store = \"URL\"` \
                 in bloomsday.toml"
                    .into(),
            )),
        }
    }

    /// The store, opened; a local folder is made if `create`.
    pub(crate) fn open_store(&self, create: bool) -> Result<Store, Error> {
        let address = self.store()?;
        Ok(if create { Store::create(address)? } else { Store::open(address)? })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What the file says of a filter, which may be nothing.
    pub(crate) fn filter(&self, name: &FilterName) -> FilterFile {
        self.file.filters.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn max_age_days(&self, name: &FilterName) -> u32 {
        self.filter(name).max_age_days.unwrap_or(MAX_AGE_DAYS)
    }

    pub(crate) fn retention(&self, name: &FilterName) -> Retention {
        let default = Retention::default();
        let keep_days = self.filter(name).keep_days.map_or(default.keep_days, NonZeroU32::get);
        Retention { keep_days, max_age_days: self.max_age_days(name) }
    }

    /// How a server follows a filter.
    pub(crate) fn follow(&self, name: FilterName) -> FilterConfig {
        let file = self.filter(&name);
        let defaults = FilterConfig::new(name);
        FilterConfig {
            max_age_days: file.max_age_days.unwrap_or(MAX_AGE_DAYS),
            guard: file.guard.unwrap_or(defaults.guard),
            guard_max_hold: file.guard_max_hold.unwrap_or(defaults.guard_max_hold),
            ..defaults
        }
    }
}

fn read(path: &Path) -> Result<File, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::Usage(format!("the configuration {} cannot be read: {e}", path.display()))
    })?;
    toml::from_str(&text)
        .map_err(|e| Error::Usage(format!("the configuration {} is wrong: {e}", path.display())))
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a string or a list of strings")]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(match OneOrMore::deserialize(from)? {
        OneOrMore::One(input) => vec![input],
        OneOrMore::More(inputs) => inputs,
    })
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}

fn layout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Layout>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// `bloomsday config …`
#[derive(Subcommand)]
pub(crate) enum ConfigJob {
    /// Show every value and where it came from; refuse what is unknown or impossible.
    ///
    /// Also tries on a scratch key whether the store honours conditional writes.
    ///
    /// Example: bloomsday config check --store s3://ads-filters/prod
    Check {
        /// Do not write the scratch key.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Serialize)]
struct Value {
    name: String,
    value: String,
    from: &'static str,
}

impl ConfigJob {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let ConfigJob::Check { dry_run } = self;
        let values = settings.values()?;
        for value in &values {
            output.show(value, String::new);
        }
        let rows: Vec<Vec<String>> = values
            .iter()
            .map(|value| vec![value.name.clone(), value.value.clone(), value.from.into()])
            .collect();
        if !output.is_json() {
            output::print(&output::table(&["name", "value", "from"], &rows));
        }
        if settings.store.is_some() {
            let store = settings.open_store(false)?;
            let writes = if dry_run {
                "not tried (--dry-run)"
            } else {
                store.check_conditional_writes().await?;
                "honoured"
            };
            let result = Value {
                name: "conditional writes".into(),
                value: writes.into(),
                from: "tried on a scratch key",
            };
            output.show(&result, || format!("\nconditional writes: {writes}\n"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Settings {
    fn values(&self) -> Result<Vec<Value>, Error> {
        let mut values = Vec::new();
        let mut add = |name: String, value: Option<String>, default: &str| {
            let from = if value.is_some() { "file" } else { "default" };
            values.push(Value { name, value: value.unwrap_or_else(|| default.to_owned()), from });
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let file = &self.file;
        add("listen".into(), file.listen.map(|a| a.to_string()), "127.0.0.1:8642");
        add("admin".into(), file.admin.map(|a| a.to_string()), "127.0.0.1:8643");
        add("admin_token_file".into(), path(&file.admin_token_file), "none");
        add("tls_cert".into(), path(&file.tls_cert), "none");
        add("tls_key".into(), path(&file.tls_key), "none");
        let interval = file.poll_interval.map(|d| humantime::format_duration(d).to_string());
        add("poll_interval".into(), interval, "10m");
        add("cache_dir".into(), path(&file.cache_dir), "none");
        for (name, filter) in &file.filters {
            let key = |field: &str| format!("filters.{name}.{field}");
            let input = (!filter.input.is_empty()).then(|| filter.input.join(", "));
            add(key("input"), input, "none (--input)");
            add(key("column"), filter.column.clone(), "none (--column)");
            add(key("fpp"), filter.fpp.map(|fpp| fpp.to_string()), "0.03");
            add(key("layout"), filter.layout.map(|layout| layout.to_string()), "blocked");
            add(key("memory"), filter.memory.map(|memory| memory.to_string()), "4 GiB");
            add(key("max_age_days"), filter.max_age_days.map(|days| days.to_string()), "3");
            add(key("keep_days"), filter.keep_days.map(|days| days.to_string()), "14");
            filter.gates.check().map_err(|why| Error::Usage(format!("filters.{name}.{why}")))?;
            add_gates(&mut add, &key("gates"), &filter.gates);
            let unused =
                |value: Option<String>| value.map(|v| v + " (not acted on by this version)");
            add(key("schedule"), unused(filter.schedule.clone()), "none");
            add(key("day_offset"), unused(filter.day_offset.map(|days| days.to_string())), "1");
            let guard = filter.guard.map(|guard| format!("{guard:?}").to_lowercase());
            add(key("guard"), guard, "warn");
            let hold = filter.guard_max_hold.map(|d| humantime::format_duration(d).to_string());
            add(key("guard_max_hold"), hold, "6h");
            // Impossible together, whatever the number of IDs.
            let (layout, fpp) =
                (filter.layout.unwrap_or(Layout::Blocked), filter.fpp.unwrap_or(FPP));
            let impossible = |e| Error::Usage(format!("filters.{name}.fpp: {e}"));
            Shape::for_ids(layout, 1_000_000, fpp).map_err(impossible)?;
        }
        let (store, from) = match &self.store {
            Some((store, from)) => (Store::open(store)?.name().to_owned(), *from),
            None => ("none".to_owned(), "default"),
        };
        values.insert(0, Value { name: "store".into(), value: store, from });
        let file = self.path.as_ref().map_or("none".into(), |path| path.display().to_string());
        values.insert(0, Value { name: "configuration file".into(), value: file, from: "" });
        Ok(values)
    }
}

/// The limits of every gate, in the file's own spelling.
fn add_gates(add: &mut impl FnMut(String, Option<String>, &str), key: &str, gates: &Gates) {
    let Gates { ids, nulls, invalid, duplicates, overlap } = *gates;
    let Gates { ids: i, nulls: n, invalid: v, duplicates: d, overlap: o } = Gates::default();
    let all = [
        ("ids", ids, i),
        ("nulls", nulls, n),
        ("invalid", invalid, v),
        ("duplicates", duplicates, d),
        ("overlap", overlap, o),
    ];
    for (name, limits, default) in all {
        let show = |Limits { floor, band, cap }: Limits| {
            format!("{{ floor = {floor}, band = {band}, cap = {cap} }}")
        };
        let own = (limits != default).then(|| show(limits));
        add(format!("{key}.{name}"), own, &show(default));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn the_documented_file_is_understood() {
        let file = parse(
            r#"
            store = "s3://ads-filters/prod"
            poll_interval = "5m"
            [filters.rt]
            input = "s3://dmp/rt/dt={day}/"
            column = "device_id"
            fpp = 0.03
            schedule = "0 2 * * *"
            day_offset = 1
            max_age_days = 3
            keep_days = 14
            guard = "hold"
            guard_max_hold = "90m"
            "#,
        )
        .unwrap();
        let rt = &file.filters[&"rt".parse().unwrap()];
        assert_eq!(rt.guard, Some(Guard::Hold));
        assert_eq!(rt.guard_max_hold, Some(Duration::from_secs(5400)));
        assert_eq!(file.poll_interval, Some(Duration::from_secs(300)));
        assert_eq!(file.filters[&"rt".parse().unwrap()].input, ["s3://dmp/rt/dt={day}/"]);
    }

    #[test]
    fn what_is_unknown_or_of_the_wrong_type_is_refused_by_name() {
        for (text, expected) in [
            ("stroe = \"x\"", "stroe"),
            ("[filters.rt]\ncolunm = \"x\"", "colunm"),
            ("[filters.RT]", "RT"),
            ("[filters.rt]\nfpp = \"low\"", "fpp"),
            ("[filters.rt]\nlayout = \"cuckoo\"", "cuckoo"),
            ("[filters.rt]\nguard = \"maybe\"", "maybe"),
            ("[filters.rt]\nguard_max_hold = 6", "guard_max_hold"),
            ("poll_interval = \"soon\"", "poll_interval"),
            ("listen = \"everywhere\"", "listen"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
