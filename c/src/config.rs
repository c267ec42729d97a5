//! The JSON that `bloomsday_start` takes, and the library's configuration of it.

use std::path::PathBuf;
use std::time::Duration;

use bloomsday_server::{Config, FilterConfig, Guard};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    store: String,
    filters: Value,
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterSettings {
    id: Option<String>,
    max_age_days: Option<u32>,
    guard: Option<Guard>,
    guard_max_hold: Option<f64>,
}

fn yes() -> bool {
    true
}

/// How a server is started.
pub(crate) struct Start {
    pub(crate) config: Config,
    /// Whether to wait until every filter is loaded.
    pub(crate) wait: bool,
}

impl Start {
    pub(crate) fn parse(json: &str) -> Result<Start, Failure> {
        // A list of values without names would be taken, too.
        if !json.trim_start().starts_with('{') {
            return Err(Failure::usage("the configuration is a JSON object"));
        }
        let settings: Settings = serde_json::from_str(json)
            .map_err(|error| Failure::usage(format!("the configuration: {error}")))?;
        let mut config = Config::new(&settings.store, filters(settings.filters)?);
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
        if wait && answer_until_loaded {
            return Err(Failure::usage("`answer_until_loaded` needs `wait` to be false"));
        }
        config.answer_until_loaded = answer_until_loaded;
        Ok(Start { config, wait })
    }
}

fn filters(given: Value) -> Result<Vec<FilterConfig>, Failure> {
    let of_name = |name: Value| match name {
        Value::String(name) => filter(&name, FilterSettings::default()),
        other => Err(Failure::usage(format!("`filters` has {other}, which is no name"))),
    };
    match given {
        Value::Array(names) => names.into_iter().map(of_name).collect(),
        Value::Object(filters) => {
            let with_settings = |(name, settings): (String, Value)| {
                if !settings.is_object() {
                    let why = format!("the settings of `{name}` are an object, not {settings}");
                    return Err(Failure::usage(why));
                }
                let settings = serde_json::from_value(settings);
                let wrong = |error| Failure::usage(format!("the settings of `{name}`: {error}"));
                filter(&name, settings.map_err(wrong)?)
            };
            filters.into_iter().map(with_settings).collect()
        }
        _ => {
            let why = "`filters` is a list of names, or an object of names with their settings";
            Err(Failure::usage(why))
        }
    }
}

fn filter(name: &str, settings: FilterSettings) -> Result<FilterConfig, Failure> {
    let mut config = FilterConfig::new(name.parse()?);
    if let Some(id) = settings.id {
        let wrong = |why| Failure::usage(format!("the `id` of `{name}` is `{id}`: {why}"));
        config.id_form = id.parse().map_err(wrong)?;
    }
    if let Some(days) = settings.max_age_days {
        config.max_age_days = days;
    }
    if let Some(guard) = settings.guard {
        config.guard = guard;
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
