//! The limits of the settings: a value beyond them is a mistake. A start refuses it, and so should
//! a program that reads a configuration.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (_folder, store) = store_with(&[b"alice"]);
//! use bloomsday_server::{Config, FilterConfig, error::Error, limits, start_unloaded};
//!
//! let mut config = Config::new(&store, vec![FilterConfig::new("rt".parse()?)]);
//! config.filters[0].max_age_days = limits::MAX_AGE_DAYS + 1;
//! let refused = start_unloaded(config);
//! assert!(matches!(refused, Err(Error::Setting { name: "max_age_days", .. })));
//! # Ok(()) }
//! ```

use std::time::Duration;

use crate::config::Config;
use crate::error::Error;

/// The largest `max_age_days`: a poll may have to read the pointer of each day.
pub const MAX_AGE_DAYS: u32 = bloomsday_common::protocol::MAX_MAX_AGE_DAYS;
/// The longest time between two polls: a rollback takes that long to arrive.
pub const MAX_POLL_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The longest hold of a newer day.
pub const MAX_HOLD: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest time limit of a poll, a load or a start.
pub const MAX_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// The most filters of one name in memory.
pub const MAX_GENERATIONS: usize = 64;
/// The most days for which an added ID is a hit by itself.
#[cfg(feature = "live")]
pub const MAX_LIVE_DAYS: u8 = 250;
/// The shortest lease of live IDs: it is renewed three times in its length.
#[cfg(feature = "live")]
pub const MIN_LEASE: Duration = Duration::from_secs(1);
/// The longest lease of live IDs: a successor waits as long after a crash.
#[cfg(feature = "live")]
pub const MAX_LEASE: Duration = Duration::from_secs(3600);

impl Config {
    /// Refuses a setting outside its limits.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let time = |name, value: Duration, most: Duration, least: Duration| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let allowed = match least {
                Duration::ZERO => format!("at most {} s", most.as_secs()),
                _ => format!("more than 0 and at most {} s", most.as_secs()),
            };
            Err(Error::Setting { name, value: format!("{} s", value.as_secs_f64()), allowed })
        };
        let least = Duration::from_nanos(1);
        time("poll_interval", self.poll_interval, MAX_POLL_INTERVAL, least)?;
        time("retry_interval", self.retry_interval, MAX_POLL_INTERVAL, least)?;
        time("load_deadline", self.load_deadline, MAX_DEADLINE, least)?;
        time("start_deadline", self.start_deadline, MAX_DEADLINE, Duration::ZERO)?;
        // During a swap there are two.
        if !(2..=MAX_GENERATIONS).contains(&self.max_generations) {
            let value = self.max_generations.to_string();
            let allowed = format!("2 to {MAX_GENERATIONS}");
            return Err(Error::Setting { name: "max_generations", value, allowed });
        }
        for filter in &self.filters {
            time("guard_max_hold", filter.guard_max_hold, MAX_HOLD, Duration::ZERO)?;
            if filter.max_age_days > MAX_AGE_DAYS {
                let value = filter.max_age_days.to_string();
                let allowed = format!("at most {MAX_AGE_DAYS}");
                return Err(Error::Setting { name: "max_age_days", value, allowed });
            }
            #[cfg(feature = "live")]
            filter.check_live()?;
        }
        Ok(())
    }
}

#[cfg(feature = "live")]
impl crate::config::FilterConfig {
    fn check_live(&self) -> Result<(), Error> {
        if let Some(days) = self.live_days
            && !(1..=MAX_LIVE_DAYS).contains(&days)
        {
            let allowed = format!("1 to {MAX_LIVE_DAYS}");
            return Err(Error::Setting { name: "live_days", value: days.to_string(), allowed });
        }
        let lease = self.live_lease;
        if !lease.is_zero() && !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
            let value = format!("{} s", lease.as_secs_f64());
            let (least, most) = (MIN_LEASE.as_secs(), MAX_LEASE.as_secs());
            let allowed = format!("0 s for none, or {least} to {most} s");
            return Err(Error::Setting { name: "live_lease", value, allowed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FilterConfig;

    #[test]
    fn a_setting_outside_its_limits_is_refused_by_name() {
        let config = || Config::new("", vec![FilterConfig::new("rt".parse().unwrap())]);
        assert!(config().check().is_ok());
        let longest = Duration::MAX;
        let refused = |name: &str, change: &dyn Fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            let why = config.check().unwrap_err().to_string();
            assert!(why.contains(name), "{why}");
        };
        refused("poll_interval", &|config| config.poll_interval = longest);
        refused("poll_interval", &|config| config.poll_interval = Duration::ZERO);
        refused("retry_interval", &|config| config.retry_interval = longest);
        refused("load_deadline", &|config| config.load_deadline = longest);
        refused("start_deadline", &|config| config.start_deadline = longest);
        refused("max_generations", &|config| config.max_generations = usize::MAX);
        refused("max_generations", &|config| config.max_generations = 1);
        refused("guard_max_hold", &|config| config.filters[0].guard_max_hold = longest);
        refused("max_age_days", &|config| config.filters[0].max_age_days = 3_000_000);
    }

    #[cfg(feature = "live")]
    #[test]
    fn a_setting_of_live_ids_outside_its_limits_is_refused_by_name() {
        let check = |days, lease| {
            let mut filter = FilterConfig::new("rt".parse().unwrap());
            (filter.live_days, filter.live_lease) = (days, lease);
            Config::new("", vec![filter]).check().map_err(|why| why.to_string())
        };
        for lease in [Duration::ZERO, MIN_LEASE, MAX_LEASE] {
            assert_eq!(check(Some(MAX_LIVE_DAYS), lease), Ok(()));
        }
        for days in [0, MAX_LIVE_DAYS + 1] {
            let why = check(Some(days), MIN_LEASE).unwrap_err();
            assert!(why.contains("live_days") && why.contains("1 to 250"), "{why}");
        }
        for lease in [MIN_LEASE / 2, MAX_LEASE + MIN_LEASE] {
            let why = check(None, lease).unwrap_err();
            assert!(why.contains("live_lease") && why.contains("1 to 3600 s"), "{why}");
        }
    }
}
