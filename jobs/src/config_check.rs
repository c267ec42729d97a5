//! `bloomsday config check`: every value, where it came from, and whether the store honours
//! conditional writes.

mod folders;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_builder::gates::{Gate, Gates, Limits};
use bloomsday_builder::source::is_same_each_day;
use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::redact::redact_url;
use bloomsday_common::store::Store;
use bloomsday_server::live::{Ack, EngineUrl, FeedUrl, LiveConfig};
use bloomsday_server::{Config, FilterConfig};
use bytesize::ByteSize;
use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::{
    self, BuildOverrides, FilterFile, LiveRole, RespFile, Settings, WindowMissing,
};
use crate::defaults;
use crate::error::Error;
use crate::output::{self, Output};
use crate::serve::ServeEnvironment;

/// How many of the next runs are listed.
const MAX_LISTED_RUNS: usize = 3;

/// `bloomsday config …`
#[derive(Subcommand)]
pub(crate) enum ConfigJob {
    /// Show every value and where it came from; refuse unknown keys and impossible values.
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

/// One value, and where it came from.
#[derive(Serialize)]
struct Value {
    name: String,
    value: String,
    from: &'static str,
}

impl ConfigJob {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let ConfigJob::Check { dry_run } = self;
        let values = values(settings)?;
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
        if settings.store_and_source().is_some() {
            let (writes, from) = if dry_run {
                ("not tried (--dry-run)", "")
            } else {
                check_conditional_writes(settings).await?
            };
            let result = Value { name: "conditional writes".into(), value: writes.into(), from };
            output.show(&result, || format!("\nconditional writes: {writes}\n"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether the store honours conditional writes, in words, and how that is known.
async fn check_conditional_writes(
    settings: &Settings,
) -> Result<(&'static str, &'static str), Error> {
    let store = match settings.open_store() {
        Err(Error::Common(StoreError::NoStore { .. })) => {
            return Ok(("not tried: the folder is not there yet; the first build makes it", ""));
        }
        store => store?,
    };
    let words = match store.check_conditional_writes().await {
        Err(StoreError::ReadOnly { .. }) => {
            "none: over plain HTTP a store can only be read, which is enough for servers"
        }
        Ok(()) if config::is_hdfs(settings.store()?) => {
            "honoured by Redis; a pin on HDFS cannot be replaced: unpin first"
        }
        checked => checked.map(|()| "honoured")?,
    };
    Ok((words, "tried on a scratch key"))
}

/// Every value in the order of the documentation.
fn values(settings: &Settings) -> Result<Vec<Value>, Error> {
    let mut rows = Rows::default();
    let file = settings.path().map_or("none".into(), |path| path.display().to_string());
    rows.0.push(Value { name: "configuration file".into(), value: file, from: "" });
    let (store, from) = match settings.store_and_source() {
        Some((store, source)) => (Store::preview(store)?.name().to_owned(), source),
        None => ("none".to_owned(), "default"),
    };
    rows.0.push(Value { name: "store".into(), value: store, from });
    if let Some((name, from)) = settings.pointers_name()? {
        rows.0.push(Value { name: "pointers".into(), value: name, from });
        rows.add("pointers_key", settings.file().pointers_key.as_ref(), config::DEFAULT_KEY);
    }
    folders::check_store(settings)?;
    add_server(&mut rows, settings)?;
    for (name, file) in &settings.file().filters {
        FilterRows { settings, name, file, rows: &mut rows }.add()?;
    }
    Ok(rows.0)
}

/// The values so far.
#[derive(Default)]
struct Rows(Vec<Value>);

impl Rows {
    /// A setting of `serve`: of the environment, else of the file, else the default.
    fn add_flag(
        &mut self,
        name: &str,
        flag: Option<String>,
        file: Option<impl ToString>,
        default: impl ToString,
    ) {
        match flag {
            Some(value) => {
                self.0.push(Value { name: name.to_owned(), value, from: "environment" });
            }
            None => self.add(name, file, default),
        }
    }

    /// A value of the file, or the default.
    fn add(&mut self, name: &str, value: Option<impl ToString>, default: impl ToString) {
        let from = if value.is_some() { "file" } else { "default" };
        let value = value.map_or_else(|| default.to_string(), |value| value.to_string());
        self.0.push(Value { name: name.to_owned(), value, from });
    }
}

fn add_server(rows: &mut Rows, settings: &Settings) -> Result<(), Error> {
    let (file, env) = (settings.file(), ServeEnvironment::read()?);
    rows.add_flag("listen", env.text("listen"), file.listen, defaults::LISTEN);
    rows.add_flag("admin", env.text("admin"), file.admin, defaults::ADMIN);
    let admin_token = env.text("admin_token_file");
    let has_admin_token = admin_token.is_some() || file.admin_token_file.is_some();
    rows.add_flag("admin_token_file", admin_token, path(&file.admin_token_file), "none");
    rows.add_flag("tls_cert", env.text("tls_cert"), path(&file.tls_cert), "none");
    rows.add_flag("tls_key", env.text("tls_key"), path(&file.tls_key), "none");
    let interval = Config::new("", Vec::new()).poll_interval;
    let poll_interval = (env.text("poll_interval"), file.poll_interval.map(time));
    rows.add_flag("poll_interval", poll_interval.0, poll_interval.1, time(interval));
    rows.add("heartbeats", file.heartbeats, defaults::HEARTBEATS);
    let cache_dir = env.text("cache_dir");
    if let Some(folder) = cache_dir.as_ref().map(PathBuf::from).or(file.cache_dir.clone()) {
        folders::check_cache(settings, &folder)?;
    }
    rows.add_flag("cache_dir", cache_dir, path(&file.cache_dir), "none");
    add_resp(rows, &file.resp, &env, has_admin_token);
    env.check(settings)
}

/// Live filters, and the address for Redis clients.
fn add_resp(rows: &mut Rows, file: &RespFile, env: &ServeEnvironment, has_admin_token: bool) {
    let token = if has_admin_token { "admin_token_file" } else { "none" };
    rows.add_flag("resp.listen", env.text("resp"), file.listen, "none");
    rows.add_flag("resp.token_file", env.text("live_token_file"), path(&file.token_file), token);
    let data_dir = env.text("data_dir");
    let default = LiveConfig::new(data_dir.as_ref().map(PathBuf::from).or(file.data_dir.clone()));
    rows.add_flag("resp.data_dir", data_dir, path(&file.data_dir), "none");
    rows.add_flag("resp.ack", env.text("ack"), file.ack.map(Ack::name), default.ack.name());
    let memory = ByteSize::b(default.memory);
    rows.add_flag("resp.live_memory", env.text("live_memory"), file.live_memory, memory);
    rows.add("resp.max_filters", file.max_filters, default.max_filters);
    rows.add("resp.create", file.create, default.create);
    rows.add("resp.allow_flush", file.allow_flush, false);
}

/// Writes the rows of one filter. An error begins with `filters.NAME.`
struct FilterRows<'a> {
    settings: &'a Settings,
    name: &'a FilterName,
    file: &'a FilterFile,
    rows: &'a mut Rows,
}

impl FilterRows<'_> {
    fn add(mut self) -> Result<(), Error> {
        self.add_input()?;
        self.add_build();
        self.row("max_age_days", self.file.max_age_days, defaults::MAX_AGE_DAYS);
        self.row("keep_days", self.file.keep_days, Retention::default().keep_days);
        self.file.gates.check().map_err(|why| self.wrong(why))?;
        add_gates(self.rows, &format!("filters.{}.gates", self.name), &self.file.gates);
        self.add_schedule()?;
        self.add_serving();
        self.check_fpp()
    }

    fn row(&mut self, key: &str, value: Option<impl ToString>, default: impl ToString) {
        self.rows.add(&format!("filters.{}.{key}", self.name), value, default);
    }

    fn wrong(&self, why: impl Display) -> Error {
        Error::Usage(format!("filters.{}.{why}", self.name))
    }

    fn layout(&self) -> Layout {
        self.file.layout.unwrap_or(Layout::Blocked)
    }

    /// What a build reads.
    fn add_input(&mut self) -> Result<(), Error> {
        let file = self.file;
        let input = (!file.input.is_empty())
            .then(|| file.input.iter().map(|i| redact_url(i)).collect::<Vec<_>>().join(", "));
        self.row("input", input, "none (--input)");
        self.row("column", file.column.as_ref(), "none (--column)");
        self.row("id", file.id, IdForm::default());
        self.row("fpp", file.fpp, defaults::FPP);
        self.row("layout", file.layout, Layout::Blocked);
        let window = config::window(file, None, None);
        self.row("window_days", file.window_days, window.days);
        let missing = file.window_missing.map(WindowMissing::name);
        self.row("window_missing", missing, WindowMissing::default().name());
        let wrong = |error| self.wrong(format!("window_days: {error}"));
        window.check(&file.input).map_err(wrong)?;
        let (column, today) = (file.column.as_deref(), Day::of(Timestamp::now()));
        config::check_source(self.name, &file.input, column, (self.layout(), window), today)
    }

    /// What a build keeps of the days before, and what it may take.
    fn add_build(&mut self) {
        let file = self.file;
        self.row("deltas", file.deltas, defaults::DELTAS);
        let is_carried = file.deltas.unwrap_or(defaults::DELTAS) > 0;
        self.row("stable_shape", file.stable_shape, is_carried);
        self.row("memory", file.memory, "3/4 of what is left");
        self.row("spill", path(&file.spill), std::env::temp_dir().display());
        if let Some(spill) = file.spill.as_ref().filter(|spill| !spill.is_dir()) {
            let (name, spill) = (self.name, spill.display());
            let why = format!("filters.{name}.spill: there is no folder {spill} on this machine");
            output::say("warning", &why);
        }
    }

    /// Some layouts cannot reach some rates, whatever the number of IDs.
    fn check_fpp(&self) -> Result<(), Error> {
        let fpp = self.file.fpp.unwrap_or(defaults::FPP);
        let shape = Shape::for_ids(self.layout(), 1_000_000, fpp);
        shape.map(drop).map_err(|error| self.wrong(format!("fpp: {error}")))
    }

    fn add_schedule(&mut self) -> Result<(), Error> {
        let (file, now) = (self.file, Timestamp::now());
        self.row("schedule", file.schedule.as_ref(), "none");
        if file.schedule.is_none() {
            return Ok(());
        }
        let name = self.name.clone();
        self.settings.build_job(name, Day::of(now), BuildOverrides::default())?;
        warn_of_the_same_input_each_day(self.name, &file.input);
        self.row("day_offset", file.day_offset, defaults::DAY_OFFSET);
        self.row("catch_up_days", file.catch_up_days, defaults::CATCH_UP_DAYS);
        self.row("deadline", file.deadline.map(time), time(defaults::DEADLINE));
        self.row("settle", file.settle.map(time), time(defaults::SETTLE));
        let marker = "_SUCCESS, or files that stay unchanged";
        self.row("marker", file.marker.as_ref(), marker);
        let rules = self.settings.rules(self.name)?;
        let next = rules.upcoming(now).take(MAX_LISTED_RUNS);
        let next: Vec<String> = next.map(|(run, day)| format!("{day} at {run:.0}")).collect();
        self.row("next runs", None::<String>, next.join(", "));
        Ok(())
    }

    /// What a server does with the filter.
    fn add_serving(&mut self) {
        let (file, default) = (self.file, FilterConfig::new(self.name.clone()));
        let guard = |guard| format!("{guard:?}").to_lowercase();
        self.row("guard", file.guard.map(guard), guard(default.guard));
        self.row("guard_max_hold", file.guard_max_hold.map(time), time(default.guard_max_hold));
        self.row("live", file.live.map(LiveRole::name), LiveRole::Off.name());
        let days = |days: u32| format!("{days}days");
        self.row("live_for", file.live_for.map(days), days(defaults::LIVE_DAYS));
        let keeps = file.live_keep_confirmed.map(|keeps| keeps.to_string());
        self.row("live_keep_confirmed", keeps, "false");
        self.row("live_engine", file.live_engine.as_ref().map(EngineUrl::name), "store");
        self.row("live_from", file.live_from.as_ref().map(FeedUrl::name), "none");
        self.row("live_lease", file.live_lease.map(time), time(default.live_lease));
    }
}

/// Only warns: a folder that is written anew each night has no day in its path.
fn warn_of_the_same_input_each_day(name: &FilterName, inputs: &[String]) {
    if let Some(input) = inputs.iter().find(|input| is_same_each_day(input)) {
        let input = redact_url(input);
        output::say(
            "warning",
            &format!(
                "filters.{name}.input: `{input}` is the same each day, so a day that is made up for is built \
                 from what is there by then: write {{day}} where the path has the day, or `catch_up_days = 0`"
            ),
        );
    }
}

/// The limits of every gate, spelt as in the file.
fn add_gates(rows: &mut Rows, key: &str, gates: &Gates) {
    for gate in Gate::ALL {
        let (name, limits) = (gate.name(), gates.limits(gate));
        let default = Gates::default().limits(gate);
        let text = |Limits { floor, band, cap }: Limits| {
            format!("{{ floor = {floor}, band = {band}, cap = {cap} }}")
        };
        rows.add(
            &format!("{key}.{name}"),
            (limits != default).then(|| text(limits)),
            text(default),
        );
    }
}

fn path(path: &Option<PathBuf>) -> Option<String> {
    path.as_ref().map(|path| path.display().to_string())
}

fn time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The keys that the error about an unknown one lists.
    fn known_keys(section: &str, prefix: &str) -> Vec<String> {
        let text = format!("{section}\nzzz = 1");
        let error = toml::from_str::<config::File>(&text).unwrap_err().message().to_owned();
        let (_, known) = error.split_once("expected one of ").expect(&error);
        known.split(", ").map(|key| format!("{prefix}{}", key.trim_matches('`'))).collect()
    }

    /// The first two columns of the tables of `docs/configuration.md`: key and default.
    fn page() -> BTreeMap<String, String> {
        let page = include_str!("../../docs/configuration.md");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let (key, default) = (cells.next()?.strip_suffix('`')?, cells.next()?);
            let default = default.strip_prefix('`')?.strip_suffix('`')?;
            Some((key.to_owned(), default.to_owned()))
        });
        rows.collect()
    }

    #[test]
    fn the_page_of_the_configuration_has_every_key() {
        let mut known: BTreeSet<String> = BTreeSet::new();
        known.extend(known_keys("", ""));
        known.extend(known_keys("[resp]", "resp."));
        known.extend(known_keys("[filters.rt]", ""));
        known.extend(known_keys("[filters.rt.gates]", "gates."));
        for section in ["resp", "filters", "gates"] {
            assert!(known.remove(section), "{section}: {known:?}");
        }
        assert_eq!(page().into_keys().collect::<BTreeSet<_>>(), known);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_page_of_the_configuration_has_every_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bloomsday.toml");
        let text = "pointers = \"redis://127.0.0.1:1\"\n[filters.rt]\nschedule = \"0 2 * * *\"\n\
                    input = \"dt={day}\"\ncolumn = \"id\"";
        std::fs::write(&path, text).unwrap();
        let settings = Settings::load(Some(path), None, false).unwrap();
        let page = page();
        let mut compared = BTreeSet::from(["pointers", "schedule", "input", "column"]);
        for value in values(&settings).unwrap() {
            let key = value.name.strip_prefix("filters.rt.").unwrap_or(&value.name);
            if let Some((key, default)) = page.get_key_value(key) {
                // Whoever runs the tests may have set a variable.
                assert!(
                    value.from != "default" || value.value == *default,
                    "{key}: {}",
                    value.value
                );
                compared.insert(key);
            }
        }
        let all: BTreeSet<&str> = page.keys().map(String::as_str).collect();
        assert_eq!(compared, all);
    }
}
