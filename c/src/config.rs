//! The JSON that `bloomsday_start` takes, and the library's configuration of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bloomsday_server::{Config, FilterConfig, Guard};
use serde::Deserialize;

use crate::failure::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    store: String,
    filters: Filters,
    poll_interval: Option<f64>,
    retry_interval: Option<f64>,
    load_deadline: Option<f64>,
    start_deadline: Option<f64>,
    cache_dir: Option<PathBuf>,
    #[serde(default = "yes")]
    wait: bool,
    #[serde(default)]
    answer_until_loaded: bool,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`filters` is a list of names, or an object of names with their settings"
)]
enum Filters {
    Names(Vec<String>),
    Settings(BTreeMap<String, FilterSettings>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterSettings {
    max_age_days: Option<u32>,
    guard: Option<GuardName>,
    guard_max_hold: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum GuardName {
    Off,
    Warn,
    Hold,
}

fn yes() -> bool {
    true
}

/// How a server is started.
pub(crate) struct Start {
    pub(crate) config: Config,
    /// Whether to wait until every filter is loaded.
    pub(crate) wait: bool,
    /// What is answered until then.
    pub(crate) answer_until_loaded: bool,
}

impl Start {
    pub(crate) fn parse(json: &str) -> Result<Start, Failure> {
        let settings: Settings = serde_json::from_str(json)
            .map_err(|error| Failure::usage(format!("the configuration: {error}")))?;
        let filters = match settings.filters {
            Filters::Names(names) => {
                names.into_iter().map(|name| (name, FilterSettings::default())).collect()
            }
            Filters::Settings(filters) => filters,
        };
        let filters = filters.into_iter().map(|(name, settings)| filter(&name, settings));
        let mut config = Config::new(&settings.store, filters.collect::<Result<_, Failure>>()?);
        let times = [
            ("poll_interval", settings.poll_interval, &mut config.poll_interval),
            ("retry_interval", settings.retry_interval, &mut config.retry_interval),
            ("load_deadline", settings.load_deadline, &mut config.load_deadline),
            ("start_deadline", settings.start_deadline, &mut config.start_deadline),
        ];
        for (name, given, place) in times {
            set_seconds(name, given, place)?;
        }
        config.cache_dir = settings.cache_dir;
        let Settings { wait, answer_until_loaded, .. } = settings;
        Ok(Start { config, wait, answer_until_loaded })
    }
}

fn filter(name: &str, settings: FilterSettings) -> Result<FilterConfig, Failure> {
    let mut config = FilterConfig::new(name.parse()?);
    if let Some(days) = settings.max_age_days {
        config.max_age_days = days;
    }
    if let Some(guard) = settings.guard {
        config.guard = match guard {
            GuardName::Off => Guard::Off,
            GuardName::Warn => Guard::Warn,
            GuardName::Hold => Guard::Hold,
        };
    }
    set_seconds("guard_max_hold", settings.guard_max_hold, &mut config.guard_max_hold)?;
    Ok(config)
}

fn set_seconds(name: &str, given: Option<f64>, place: &mut Duration) -> Result<(), Failure> {
    if let Some(seconds) = given {
        *place = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::usage(format!("{name} is a number of seconds, not {seconds}")))?;
    }
    Ok(())
}
