//! [`Settings`]: what the flags, the environment and the configuration file say. Flags beat the
//! environment, which beats the file, which beats the defaults. Unknown keys are refused.
//!
//! Commands read settings; nothing here knows a command.

mod file;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bloomsday_builder::source::{check_inputs, reads_live_ids};
use bloomsday_builder::{Deltas, Job, ShapeChoice, Window, segments};
use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::redact::redact_url;
use bloomsday_common::store::Store;
use bloomsday_server::FilterConfig;

pub(crate) use self::file::{
    File, FilterFile, LiveRole, MAX_CATCH_UP_DAYS, RespFile, WindowMissing, address, poll_interval,
};
use crate::defaults;
use crate::error::Error;
use crate::output::who;
use crate::remedy;
use crate::resources::Resources;
use crate::scheduling::rules::Rules;

/// The configuration files that are tried when none is named.
const FILES: [&str; 2] = ["./bloomsday.toml", "/etc/bloomsday/bloomsday.toml"];

/// Overrides `pointers` of the file, so that the file needs no password.
const POINTERS: &str = "BLOOMSDAY_POINTERS";

/// The value of [`POINTERS`]. An empty variable is as good as none; in one that is not UTF-8 the
/// address shows what is wrong.
fn pointers_variable() -> Option<String> {
    let value = std::env::var_os(POINTERS).filter(|value| !value.is_empty());
    value.map(|value| value.to_string_lossy().into_owned())
}

/// Whether a file is there, or may be: one in a folder that we may not search counts, so that
/// reading it says so. Taken for none, its settings would be missing in silence.
fn may_be_there(file: &Path) -> bool {
    match std::fs::metadata(file) {
        Ok(about) => about.is_file(),
        Err(e) => !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// What every job can be given besides its own flags.
#[derive(Default)]
pub(crate) struct Settings {
    store: Option<(String, &'static str)>,
    path: Option<PathBuf>,
    file: File,
}

/// What a command line says of a build; what it leaves out comes from the file, or is a default.
#[derive(Default)]
pub(crate) struct BuildOverrides {
    pub(crate) inputs: Vec<String>,
    pub(crate) column: Option<String>,
    pub(crate) id: Option<IdForm>,
    pub(crate) fpp: Option<f64>,
    pub(crate) layout: Option<Layout>,
    pub(crate) window_days: Option<u32>,
    pub(crate) window_missing: Option<WindowMissing>,
    pub(crate) deltas: Option<u32>,
    pub(crate) shape: Option<ShapeChoice>,
    pub(crate) resources: Resources,
    pub(crate) accept_change: Option<String>,
    pub(crate) dry_run: bool,
}

impl Settings {
    /// Reads the configuration file, and takes the store's address from the first that names one.
    pub(crate) fn load(
        path: Option<PathBuf>,
        store: Option<String>,
        store_is_flag: bool,
    ) -> Result<Settings, Error> {
        let found = || FILES.iter().map(PathBuf::from).find(|file| may_be_there(file));
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

    /// The store's address, and where it came from.
    pub(crate) fn store_and_source(&self) -> Option<(&str, &'static str)> {
        self.store.as_ref().map(|(store, source)| (store.as_str(), *source))
    }

    /// The store's folder, if it is a local one; it need not be there yet.
    pub(crate) fn store_folder(&self) -> Option<PathBuf> {
        match Store::open(self.store_and_source()?.0) {
            Ok(store) => store.folder().map(Path::to_owned),
            Err(bloomsday_common::error::Error::NoStore { path }) => Some(path.into()),
            Err(_) => None,
        }
    }

    /// The configuration file that was read.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Opens the store. A local folder must exist.
    pub(crate) fn open_store(&self) -> Result<Store, Error> {
        self.with_pointers(Store::open(self.store()?)?)
    }

    /// Opens the store of a command that writes. A local folder is created, but not in a `dry_run`.
    pub(crate) fn store_to_write(&self, dry_run: bool) -> Result<Store, Error> {
        let address = self.store()?;
        if dry_run {
            return self.with_pointers(Store::preview(address)?);
        }
        let is_new = self.store_folder().is_some_and(|folder| !has_filters(&folder));
        let store = Store::create(address)?;
        if is_new {
            tracing::warn!(
                "there was no store at {}: a new one is made; if its disk is not mounted, end this and mount it",
                store.name()
            );
        }
        self.with_pointers(store)
    }

    /// The same store with its pointers where this configuration has them.
    pub(crate) fn with_pointers(&self, store: Store) -> Result<Store, Error> {
        let address = self.store()?;
        let Some(pointers) = self.pointers() else {
            check_pointers_not_on_hdfs(address)?;
            return Ok(store);
        };
        in_redis(store, &pointers, self.file.pointers_key.as_deref())
    }

    /// The Redis with the pointers, as a name without its password; and where it came from.
    pub(crate) fn pointers_name(&self) -> Result<Option<(String, &'static str)>, Error> {
        let Some(pointers) = self.pointers() else { return Ok(None) };
        // Only a store knows how the address is written without its password. This one is never
        // used.
        let scratch = Store::open(&std::env::temp_dir().display().to_string())?;
        let opened = in_redis(scratch, &pointers, self.file.pointers_key.as_deref())?;
        let source = if pointers_variable().is_some() { POINTERS } else { "file" };
        Ok(Some((opened.pointers_name().unwrap_or_default().to_owned(), source)))
    }

    /// The address of the Redis with the pointers; with its password, so never for a message.
    fn pointers(&self) -> Option<String> {
        pointers_variable().or_else(|| self.file.pointers.clone())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file's section of a filter; the empty section if there is none.
    pub(crate) fn filter(&self, name: &FilterName) -> FilterFile {
        self.file.filters.get(name).cloned().unwrap_or_default()
    }

    /// How a filter is scheduled.
    pub(crate) fn rules(&self, name: &FilterName) -> Result<Rules, Error> {
        let filter = self.filter(name);
        let wrong = |what: &str| Error::Usage(format!("[filters.{name}] {what}"));
        let catch_up_days = filter.catch_up_days.unwrap_or(defaults::CATCH_UP_DAYS);
        let is_no_file = |marker: &String| {
            matches!(&**marker, "" | "." | "..") || marker.contains(['/', '*', '?', '[', '{'])
        };
        if filter.marker.as_ref().is_some_and(is_no_file) {
            return Err(wrong("marker is the name of one file, such as _SUCCESS"));
        }
        let expression = filter.schedule.ok_or_else(|| {
            wrong("has no `schedule`: write one, for example `schedule = \"0 2 * * *\"`")
        })?;
        Ok(Rules {
            expression,
            day_offset: filter.day_offset.unwrap_or(defaults::DAY_OFFSET),
            catch_up_days,
            deadline: filter.deadline.unwrap_or(defaults::DEADLINE),
            settle: filter.settle.unwrap_or(defaults::SETTLE).max(Duration::from_millis(1)),
            marker_only: filter.marker.is_some(),
        })
    }

    pub(crate) fn max_age_days(&self, name: &FilterName) -> u32 {
        self.filter(name).max_age_days.unwrap_or(defaults::MAX_AGE_DAYS)
    }

    pub(crate) fn id_form(&self, name: &FilterName) -> IdForm {
        self.filter(name).id.unwrap_or_default()
    }

    pub(crate) fn retention(&self, name: &FilterName) -> Retention {
        let default = Retention::default();
        let keep_days = self.filter(name).keep_days.unwrap_or(default.keep_days);
        Retention { keep_days, max_age_days: self.max_age_days(name) }
    }

    /// For how many days a server or a build may need the segments of live IDs.
    pub(crate) fn segment_days(&self, name: &FilterName) -> u32 {
        let filter = self.filter(name);
        let live_days = filter.live_for.unwrap_or(defaults::LIVE_DAYS);
        let built = if reads_live_ids(&filter.input) { filter.window_days.unwrap_or(1) } else { 0 };
        live_days.max(built).saturating_add(1)
    }

    /// The build of one day: what `overrides` says, else the file, else the defaults.
    ///
    /// # Errors
    /// No input or no column is named, or a value of the file is impossible.
    pub(crate) fn build_job(
        &self,
        filter: FilterName,
        day: Day,
        overrides: BuildOverrides,
    ) -> Result<Job, Error> {
        let configured = self.filter(&filter);
        let retention = self.retention(&filter);
        let wrong = |why| Error::Usage(format!("filters.{filter}.{why}"));
        configured.gates.check().map_err(wrong)?;
        let window = window(&configured, overrides.window_days, overrides.window_missing);
        let inputs = if overrides.inputs.is_empty() { configured.input } else { overrides.inputs };
        if inputs.is_empty() {
            return Err(missing(&filter, "input"));
        }
        let column = overrides.column.or(configured.column);
        let layout = overrides.layout.or(configured.layout).unwrap_or(Layout::Blocked);
        check_source(&filter, &inputs, column.as_deref(), (layout, window), day)?;
        // Segments of live IDs have no columns.
        let column =
            if reads_live_ids(&inputs) { column.or_else(|| Some(String::new())) } else { column };
        let column = column.ok_or_else(|| missing(&filter, "column"))?;
        let bases = overrides.deltas.or(configured.deltas).unwrap_or(defaults::DELTAS);
        let shape = match configured.stable_shape {
            None => Deltas::of(bases).shape,
            Some(true) => ShapeChoice::Carried,
            Some(false) => ShapeChoice::Exact,
        };
        Ok(Job {
            day,
            inputs,
            window,
            column,
            id_form: overrides.id.or(configured.id).unwrap_or_default(),
            fpp: overrides.fpp.or(configured.fpp).unwrap_or(defaults::FPP),
            layout,
            deltas: Deltas { bases, shape: overrides.shape.unwrap_or(shape) },
            memory: overrides.resources.memory(configured.memory),
            spill_folder: overrides.resources.spill_folder(configured.spill)?,
            threads: overrides.resources.threads(),
            by: who(),
            gates: configured.gates,
            accept_change: overrides.accept_change,
            retention,
            remedy_words: remedy::words,
            dry_run: overrides.dry_run,
            due: None,
            filter,
        })
    }

    /// How a server follows a filter.
    pub(crate) fn follow(&self, name: FilterName) -> Result<FilterConfig, Error> {
        let file = self.filter(&name);
        let mut filter = FilterConfig::new(name);
        filter.id_form = self.id_form(&filter.name);
        filter.max_age_days = file.max_age_days.unwrap_or(filter.max_age_days);
        filter.guard = file.guard.unwrap_or(filter.guard);
        filter.guard_max_hold = file.guard_max_hold.unwrap_or(filter.guard_max_hold);
        if let Some(role) = file.live.and_then(LiveRole::role) {
            let days = file.live_for.unwrap_or(defaults::LIVE_DAYS);
            filter.live_days = Some(u8::try_from(days).unwrap_or(u8::MAX));
            filter.live_keep_confirmed = file.live_keep_confirmed.unwrap_or(false);
            filter.live_role = role;
            (filter.live_engine, filter.live_from) = (file.live_engine, file.live_from);
            filter.live_lease = file.live_lease.unwrap_or(filter.live_lease);
            if let Some((store, _)) = self.store_and_source()
                && filter.takes_ids()
                && !filter.live_lease.is_zero()
            {
                check_lease_not_on_hdfs(store, &filter.name)?;
            }
        }
        Ok(filter)
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

/// Whether a local store has blobs or live IDs. The heartbeat of a server makes a folder in any.
fn has_filters(folder: &Path) -> bool {
    let mut filters = folder.read_dir().into_iter().flatten().flatten();
    filters.any(|filter| ["blobs", "live"].iter().any(|of| filter.path().join(of).is_dir()))
}

/// HDFS has no conditional replacement of a record, and its client refuses one: the first rollback
/// or the second build of a day would fail. So this fails before the first.
fn check_pointers_not_on_hdfs(address: &str) -> Result<(), Error> {
    if !is_hdfs(address) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} cannot hold pointers: HDFS has no conditional write over a record, so none could be \
         changed safely. Keep the blobs there and the pointers in Redis: `pointers = \"redis://HOST\"`",
        redact_url(address)
    )))
}

/// A lease is a record that is replaced: HDFS refuses the first renewal, and with it all adds.
fn check_lease_not_on_hdfs(address: &str, filter: &FilterName) -> Result<(), Error> {
    if !is_hdfs(address) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "[filters.{filter}] live_lease: HDFS has no conditional write over a record, so no lease can be \
         renewed in {}: set `live_lease = \"0s\"`, and let one server decide",
        redact_url(address)
    )))
}

/// How the key of a pointer in Redis is made when the configuration does not say.
#[cfg(feature = "redis")]
pub(crate) const DEFAULT_KEY: &str = bloomsday_common::store::DEFAULT_TEMPLATE;
#[cfg(not(feature = "redis"))]
pub(crate) const DEFAULT_KEY: &str = "none";

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

/// Whether a store's address is one of HDFS.
pub(crate) fn is_hdfs(address: &str) -> bool {
    address.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("hdfs:"))
}

/// Refuses inputs and a column that no build can read, without a look at any store.
pub(crate) fn check_source(
    filter: &FilterName,
    inputs: &[String],
    column: Option<&str>,
    (layout, window): (Layout, Window),
    day: Day,
) -> Result<(), Error> {
    check_inputs(inputs, day, window)?;
    if reads_live_ids(inputs) {
        return Ok(segments::check_job(inputs, layout)?);
    }
    if column == Some("") { Err(missing(filter, "column")) } else { Ok(()) }
}

fn missing(filter: &FilterName, what: &str) -> Error {
    Error::Usage(format!(
        "no {what} is named: write `{what}` under [filters.{filter}] in bloomsday.toml, or give a build \
         --{what}"
    ))
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
        may_lack_input: missing == WindowMissing::Allow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_refused_with_an_example() {
        assert_eq!(address("[::1]:80").unwrap().port(), 80);
        for text in ["localhost:6380", "127.0.0.1", "127.0.0.1:99999", ""] {
            assert!(address(text).unwrap_err().contains("127.0.0.1:6380"), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let (circle, none) = (folder.path().join("circle"), folder.path().join("none"));
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        assert!(may_be_there(&circle) && !may_be_there(&none) && !may_be_there(folder.path()));
    }

    #[test]
    fn pointers_and_leases_on_hdfs_are_refused_with_what_to_do() {
        let filter = "rt".parse().unwrap();
        for address in ["hdfs://u:secret@namenode:9000/ads", "HDFS://u:secret@namenode:9000/ads"] {
            let why = check_pointers_not_on_hdfs(address).unwrap_err().to_string();
            assert!(why.contains("namenode:9000/ads") && why.contains("redis://"), "{why}");
            assert!(!why.contains("secret"), "{why}");
            let why = check_lease_not_on_hdfs(address, &filter).unwrap_err().to_string();
            let remedy =
                "so no lease can be renewed in hdfs://namenode:9000/ads: set `live_lease = \"0s\"`";
            assert!(why.to_lowercase().contains(remedy), "{why}");
        }
        for address in ["s3://hdfs/ads", "hdfs", "/hdfs:/ads", "ä://x"] {
            assert!(check_pointers_not_on_hdfs(address).is_ok(), "{address}");
            assert!(check_lease_not_on_hdfs(address, &filter).is_ok(), "{address}");
        }
    }
}
