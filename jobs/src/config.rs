//! Configuration: flags beat the environment, which beats the file, which beats defaults. Unknown keys
//! are refused. `bloomsday config check` shows each value and where it came from.

mod file;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_builder::Window;
use bloomsday_builder::gates::{Gates, Limits};
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::redact::redact_url;
use bloomsday_common::store::Store;
use bloomsday_server::FilterConfig;
use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use self::file::{File, FilterFile, MAX_CATCH_UP_DAYS, WindowMissing, poll_interval};
use crate::error::Error;
use crate::output::{self, Output};
use crate::schedule::Rules;

/// Where a configuration file is looked for when none is named.
const FILES: [&str; 2] = ["./bloomsday.toml", "/etc/bloomsday/bloomsday.toml"];

/// Overrides `pointers` of the file, so that a password need not be in it.
const POINTERS: &str = "BLOOMSDAY_POINTERS";

/// Everything a job can be told beside its own flags.
pub(crate) struct Settings {
    store: Option<(String, &'static str)>,
    path: Option<PathBuf>,
    file: File,
}

/// How many days back a server follows a pointer.
pub(crate) const MAX_AGE_DAYS: u32 = 3;
/// The false-positive probability of a filter whose target nobody stated.
pub(crate) const FPP: f64 = 0.03;
/// A run builds the day before its own.
const DAY_OFFSET: u32 = 1;
/// Runs missed on so many days before today's are made up for: what a server would still follow.
const CATCH_UP_DAYS: u32 = MAX_AGE_DAYS;
/// When a day that was due is late.
const DEADLINE: Duration = Duration::from_secs(6 * 3600);
/// How long input must hold still.
const SETTLE: Duration = Duration::from_secs(300);
/// How many of the next runs `config check` shows.
const SHOWN_RUNS: usize = 3;

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
        self.with_pointers(if create { Store::create(address)? } else { Store::open(address)? })
    }

    /// The store of a command that writes: made if need be, but only looked at when it is a `dry_run`.
    pub(crate) fn store_to_write(&self, dry_run: bool) -> Result<Store, Error> {
        let address = self.store()?;
        self.with_pointers(if dry_run { Store::preview(address)? } else { Store::create(address)? })
    }

    fn with_pointers(&self, store: Store) -> Result<Store, Error> {
        let address = self.store()?;
        let Some(pointers) = self.pointers() else {
            refuse_pointers_on_hdfs(address)?;
            return Ok(store);
        };
        in_redis(store, &pointers, self.file.pointers_key.as_deref())
    }

    /// The Redis that holds the pointers; with its password, so not for messages.
    fn pointers(&self) -> Option<String> {
        std::env::var(POINTERS).ok().or_else(|| self.file.pointers.clone())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What the file says of a filter, which may be nothing.
    pub(crate) fn filter(&self, name: &FilterName) -> FilterFile {
        self.file.filters.get(name).cloned().unwrap_or_default()
    }

    /// How a filter is scheduled.
    pub(crate) fn rules(&self, name: &FilterName) -> Result<Rules, Error> {
        let filter = self.filter(name);
        let wrong = |what: &str| Error::Usage(format!("[filters.{name}] {what}"));
        let catch_up_days = filter.catch_up_days.unwrap_or(CATCH_UP_DAYS);
        if filter.marker.as_ref().is_some_and(|m| m.is_empty() || m.contains(['/', '*', '?', '[']))
        {
            return Err(wrong("marker is the name of one file, such as _SUCCESS"));
        }
        let expression = filter.schedule.ok_or_else(|| {
            wrong("has no `schedule`: write one, for example `schedule = \"0 2 * * *\"`")
        })?;
        Ok(Rules {
            expression,
            day_offset: filter.day_offset.unwrap_or(DAY_OFFSET),
            catch_up_days,
            deadline: filter.deadline.unwrap_or(DEADLINE),
            settle: filter.settle.unwrap_or(SETTLE).max(Duration::from_millis(1)),
            marker_only: filter.marker.is_some(),
        })
    }

    pub(crate) fn max_age_days(&self, name: &FilterName) -> u32 {
        self.filter(name).max_age_days.unwrap_or(MAX_AGE_DAYS)
    }

    pub(crate) fn retention(&self, name: &FilterName) -> Retention {
        let default = Retention::default();
        let keep_days = self.filter(name).keep_days.unwrap_or(default.keep_days);
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
    file::parse(&text).map_err(|why| {
        Error::Usage(format!("the configuration {} is wrong: {why}", path.display()))
    })
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

/// HDFS cannot replace a pointer only if it is what was read, and the client refuses to pretend: the first
/// rollback or second build of a day would fail. Better to say so before the first.
fn refuse_pointers_on_hdfs(address: &str) -> Result<(), Error> {
    if !is_hdfs(address) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} cannot hold pointers: HDFS has no conditional write over a record, so none could be \
         changed safely. Keep the blobs there and the pointers in Redis: `pointers = \"redis://HOST\"`",
        redact_url(address)
    )))
}

/// How the key of a pointer in Redis is made when the configuration does not say.
#[cfg(feature = "redis")]
const DEFAULT_KEY: &str = bloomsday_common::store::DEFAULT_TEMPLATE;
#[cfg(not(feature = "redis"))]
const DEFAULT_KEY: &str = "none";

/// The store, with its pointers in the Redis at `address`.
#[cfg(feature = "redis")]
fn in_redis(store: Store, address: &str, template: Option<&str>) -> Result<Store, Error> {
    Ok(store.with_pointers(address, template.unwrap_or(DEFAULT_KEY))?)
}

#[cfg(not(feature = "redis"))]
fn in_redis(_: Store, address: &str, _: Option<&str>) -> Result<Store, Error> {
    Err(Error::Usage(format!(
        "pointers cannot be kept in {}: this program was compiled without the feature `redis`",
        redact_url(address)
    )))
}

fn is_hdfs(address: &str) -> bool {
    address.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("hdfs:"))
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
            let writes = if dry_run {
                "not tried (--dry-run)"
            } else {
                settings.check_conditional_writes().await?
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
    /// Whether the store honours conditional writes, in words.
    async fn check_conditional_writes(&self) -> Result<&'static str, Error> {
        let store = match self.open_store(false) {
            Err(Error::Common(StoreError::NoStore { .. })) => {
                return Ok("not tried: the folder is not there yet; the first build makes it");
            }
            store => store?,
        };
        match store.check_conditional_writes().await {
            Err(StoreError::ReadOnly { .. }) => {
                Ok("none: over plain HTTP a store can only be read, which is enough for servers")
            }
            Ok(()) if is_hdfs(self.store()?) => {
                Ok("honoured by Redis; a pin on HDFS cannot be replaced: unpin first")
            }
            checked => Ok(checked.map(|()| "honoured")?),
        }
    }

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
        add("heartbeats".into(), file.heartbeats.map(|on| on.to_string()), "true");
        add("cache_dir".into(), path(&file.cache_dir), "none");
        for (name, filter) in &file.filters {
            let key = |field: &str| format!("filters.{name}.{field}");
            let input = (!filter.input.is_empty())
                .then(|| filter.input.iter().map(|i| redact_url(i)).collect::<Vec<_>>().join(", "));
            add(key("input"), input, "none (--input)");
            add(key("column"), filter.column.clone(), "none (--column)");
            add(key("fpp"), filter.fpp.map(|fpp| fpp.to_string()), "0.03");
            add(key("layout"), filter.layout.map(|layout| layout.to_string()), "blocked");
            add(key("window_days"), filter.window_days.map(|days| days.to_string()), "1");
            let missing = filter.window_missing.map(|missing| missing.name().to_owned());
            add(key("window_missing"), missing, WindowMissing::default().name());
            window(filter, None, None)
                .check(&filter.input)
                .map_err(|error| Error::Usage(format!("filters.{name}.window_days: {error}")))?;
            add(
                key("memory"),
                filter.memory.map(|memory| memory.to_string()),
                "3/4 of what is left",
            );
            add(key("max_age_days"), filter.max_age_days.map(|days| days.to_string()), "3");
            add(key("keep_days"), filter.keep_days.map(|days| days.to_string()), "14");
            filter.gates.check().map_err(|why| Error::Usage(format!("filters.{name}.{why}")))?;
            add_gates(&mut add, &key("gates"), &filter.gates);
            add(key("schedule"), filter.schedule.as_ref().map(ToString::to_string), "none");
            if filter.schedule.is_some() {
                let rules = self.rules(name)?;
                let days = |days: Option<u32>| days.map(|days| days.to_string());
                let time =
                    |t: Option<Duration>| t.map(|t| humantime::format_duration(t).to_string());
                let next = rules.upcoming(Timestamp::now()).take(SHOWN_RUNS);
                let next: Vec<String> =
                    next.map(|(run, day)| format!("{day} at {run:.0}")).collect();
                add(key("day_offset"), days(filter.day_offset), "1");
                add(key("catch_up_days"), days(filter.catch_up_days), "3");
                add(key("deadline"), time(filter.deadline), "6h");
                add(key("settle"), time(filter.settle), "5m");
                add(key("marker"), filter.marker.clone(), "_SUCCESS, or files that hold still");
                add(key("next runs"), None, &next.join(", "));
            }
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
            Some((store, from)) => (Store::preview(store)?.name().to_owned(), *from),
            None => ("none".to_owned(), "default"),
        };
        if let Some(pointers) = self.pointers() {
            let template = self.file.pointers_key.as_deref();
            let scratch = Store::open(&std::env::temp_dir().display().to_string())?;
            let opened = in_redis(scratch, &pointers, template)?;
            let shown = opened.pointers_name().unwrap_or_default().to_owned();
            let from = if std::env::var(POINTERS).is_ok() { POINTERS } else { "file" };
            let key = template.unwrap_or(DEFAULT_KEY).to_owned();
            let key_from = if template.is_some() { "file" } else { "default" };
            values.insert(0, Value { name: "pointers_key".into(), value: key, from: key_from });
            values.insert(0, Value { name: "pointers".into(), value: shown, from });
        }
        values.insert(0, Value { name: "store".into(), value: store, from });
        let file = self.path.as_ref().map_or("none".into(), |path| path.display().to_string());
        values.insert(0, Value { name: "configuration file".into(), value: file, from: "" });
        Ok(values)
    }
}

/// The window of a filter, as a command says, or the file.
pub(crate) fn window(
    filter: &FilterFile,
    days: Option<u32>,
    missing: Option<WindowMissing>,
) -> Window {
    let missing = missing.or(filter.window_missing).unwrap_or_default();
    let default = Window::default();
    Window {
        days: days.or(filter.window_days).unwrap_or(default.days),
        may_lack_days: missing == WindowMissing::Allow,
    }
}

/// The limits of every gate, in the file's own spelling.
fn add_gates(add: &mut impl FnMut(String, Option<String>, &str), key: &str, gates: &Gates) {
    let Gates { ids, nulls, invalid, duplicates, overlap, files, input_bytes } = *gates;
    let default = Gates::default();
    let all = [
        ("ids", ids, default.ids),
        ("nulls", nulls, default.nulls),
        ("invalid", invalid, default.invalid),
        ("duplicates", duplicates, default.duplicates),
        ("overlap", overlap, default.overlap),
        ("files", files, default.files),
        ("input_bytes", input_bytes, default.input_bytes),
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

    #[test]
    fn pointers_on_hdfs_are_refused_with_what_to_do() {
        for address in ["hdfs://u:secret@namenode:9000/ads", "HDFS://u:secret@namenode:9000/ads"] {
            let why = refuse_pointers_on_hdfs(address).unwrap_err().to_string();
            assert!(why.contains("namenode:9000/ads") && why.contains("redis://"), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
        for address in ["s3://hdfs/ads", "hdfs", "/hdfs:/ads", "ä://x"] {
            assert!(refuse_pointers_on_hdfs(address).is_ok(), "{address}");
        }
    }
}
