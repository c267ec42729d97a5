//! The file `bloomsday.toml`: its keys, their types, and its errors. The fuzz targets include this
//! file, so it uses only the limits of gates from the builder.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bloomsday_builder::MAX_DELTA_DAYS;
use bloomsday_builder::gates::Gates;
use bloomsday_common::filter::Layout;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{MAX_KEEP_DAYS, MAX_MAX_AGE_DAYS};
use bloomsday_common::redact::{redact_urls, single_line};
use bloomsday_server::live::{Ack, EngineUrl, FeedUrl, MAX_SETS};
use bloomsday_server::{Guard, limits};
use bytesize::ByteSize;
use serde::{Deserialize, Deserializer};

use crate::scheduling::cron::Expression;
use crate::size::WHAT_A_SIZE_IS;

/// The largest `catch_up_days`.
pub(crate) const MAX_CATCH_UP_DAYS: u32 = 31;
/// The largest `day_offset`: how many days before its own date a run may build.
const MAX_DAY_OFFSET: u32 = 366;

/// The file `bloomsday.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) store: Option<String>,
    /// A Redis that holds the pointers instead of the store.
    pub(crate) pointers: Option<String>,
    pub(crate) pointers_key: Option<String>,
    /// Whether servers write heartbeats to the store; by default they do.
    pub(crate) heartbeats: Option<bool>,
    #[serde(default, deserialize_with = "address_of")]
    pub(crate) listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "address_of")]
    pub(crate) admin: Option<SocketAddr>,
    #[serde(default, deserialize_with = "named_path")]
    pub(crate) admin_token_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "named_path")]
    pub(crate) tls_cert: Option<PathBuf>,
    #[serde(default, deserialize_with = "named_path")]
    pub(crate) tls_key: Option<PathBuf>,
    #[serde(default, deserialize_with = "poll_interval_of")]
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) cache_dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) resp: RespFile,
    #[serde(default)]
    pub(crate) filters: BTreeMap<FilterName, FilterFile>,
}

/// `[resp]` of the file: live filters, and the address for Redis clients.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RespFile {
    #[serde(default, deserialize_with = "address_of")]
    pub(crate) listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "named_path")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "named_path")]
    pub(crate) data_dir: Option<PathBuf>,
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) ack: Option<Ack>,
    #[serde(default, deserialize_with = "byte_size")]
    pub(crate) live_memory: Option<ByteSize>,
    /// The most filters, those of the file included.
    #[serde(default, deserialize_with = "max_filters")]
    pub(crate) max_filters: Option<usize>,
    /// Whether clients may make filters that the file does not name.
    pub(crate) create: Option<bool>,
    pub(crate) allow_flush: Option<bool>,
}

/// `[filters.NAME]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterFile {
    #[serde(default, deserialize_with = "one_or_more")]
    pub(crate) input: Vec<String>,
    pub(crate) column: Option<String>,
    /// What is hashed of an ID.
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) id: Option<IdForm>,
    pub(crate) fpp: Option<f64>,
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) layout: Option<Layout>,
    /// From how many days' inputs a day's filter is built.
    pub(crate) window_days: Option<u32>,
    pub(crate) window_missing: Option<WindowMissing>,
    /// For how many earlier days' blobs a build makes deltas.
    #[serde(default, deserialize_with = "days::<0, MAX_DELTA_DAYS, _>")]
    pub(crate) deltas: Option<u32>,
    /// Whether the filter keeps the shape of the blob before while it fits; by default with
    /// `deltas`.
    pub(crate) stable_shape: Option<bool>,
    #[serde(default, deserialize_with = "byte_size")]
    pub(crate) memory: Option<ByteSize>,
    /// Where a build keeps what exceeds its memory.
    pub(crate) spill: Option<PathBuf>,
    #[serde(default, deserialize_with = "days::<0, MAX_MAX_AGE_DAYS, _>")]
    pub(crate) max_age_days: Option<u32>,
    #[serde(default, deserialize_with = "days::<1, MAX_KEEP_DAYS, _>")]
    pub(crate) keep_days: Option<u32>,
    #[serde(default)]
    pub(crate) gates: Gates,
    pub(crate) guard: Option<Guard>,
    #[serde(default, deserialize_with = "hold")]
    pub(crate) guard_max_hold: Option<Duration>,
    /// When the filter is built, in UTC.
    pub(crate) schedule: Option<Expression>,
    #[serde(default, deserialize_with = "days::<0, MAX_DAY_OFFSET, _>")]
    pub(crate) day_offset: Option<u32>,
    #[serde(default, deserialize_with = "days::<0, MAX_CATCH_UP_DAYS, _>")]
    pub(crate) catch_up_days: Option<u32>,
    #[serde(default, deserialize_with = "duration")]
    pub(crate) deadline: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    pub(crate) settle: Option<Duration>,
    /// Whether this process takes IDs for the filter.
    pub(crate) live: Option<LiveRole>,
    /// For how many days an ID that was added is a hit by itself.
    #[serde(default, deserialize_with = "live_for")]
    pub(crate) live_for: Option<u32>,
    /// Whether a live ID that the day's filter has stays in memory, too.
    pub(crate) live_keep_confirmed: Option<bool>,
    /// A Redis that tells other servers at once what is added.
    #[serde(default, deserialize_with = "engine")]
    pub(crate) live_engine: Option<EngineUrl>,
    /// A stream of Redis, or a topic of Kafka, whose IDs are added.
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) live_from: Option<FeedUrl>,
    /// The length of the lease of the server that decides; zero for none.
    #[serde(default, deserialize_with = "lease")]
    pub(crate) live_lease: Option<Duration>,
    /// The name of the success marker: input without it is incomplete.
    pub(crate) marker: Option<String>,
}

/// What a server does with IDs that are added to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LiveRole {
    /// It decides which are new. One server for each filter.
    Decide,
    /// It follows until no other server decides, and then decides.
    Standby,
    /// It reads from the store what others added, and takes none.
    Follow,
    /// It has no live IDs.
    Off,
}

impl LiveRole {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LiveRole::Decide => "decide",
            LiveRole::Standby => "standby",
            LiveRole::Follow => "follow",
            LiveRole::Off => "off",
        }
    }

    /// What the library calls it.
    pub(crate) fn role(self) -> Option<bloomsday_server::live::LiveRole> {
        match self {
            LiveRole::Decide => Some(bloomsday_server::live::LiveRole::Decide),
            LiveRole::Standby => Some(bloomsday_server::live::LiveRole::Standby),
            LiveRole::Follow => Some(bloomsday_server::live::LiveRole::Follow),
            LiveRole::Off => None,
        }
    }
}

/// What a build does when days of its window have no input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WindowMissing {
    /// It fails, and names them.
    #[default]
    Error,
    /// It goes on without them, and names them.
    Allow,
}

impl WindowMissing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            WindowMissing::Error => "error",
            WindowMissing::Allow => "allow",
        }
    }
}

impl FromStr for WindowMissing {
    type Err = String;

    fn from_str(text: &str) -> Result<WindowMissing, String> {
        let known = [WindowMissing::Error, WindowMissing::Allow];
        let found = known.into_iter().find(|missing| missing.name() == text);
        found.ok_or_else(|| "it is `error` or `allow`".to_owned())
    }
}

/// Parses the text of a file. An error names the line and the key, but redacts addresses: one may
/// contain a password.
pub(crate) fn parse(text: &str) -> Result<File, String> {
    let file: File = toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        let key = text.lines().nth(line).and_then(|line| line.split_once('='));
        let key =
            key.map_or(String::new(), |(key, _)| format!(", `{}`", single_line(key.trim(), 80)));
        let why = single_line(&redact_urls(e.message()), 300);
        format!("line {}{key}: {why}", line + 1)
    })?;
    for (name, filter) in &file.filters {
        let has_live_ids = !matches!(filter.live, None | Some(LiveRole::Off));
        if let Some(layout) = filter.layout.filter(|layout| *layout != Layout::Blocked)
            && has_live_ids
        {
            return Err(format!(
                "filters.{name}.live: live IDs need the layout `blocked`, not `{layout}`"
            ));
        }
    }
    Ok(file)
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

/// The longest duration of any key: a longer one is a typing error, and could overflow a date.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Parses a duration of at most `most`.
fn time_up_to(text: &str, most: Duration) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|e| format!("{e}: a time is such as 90s, 10m or 1h 30m"))?;
    if time > most {
        // humantime writes 250 days as months and hours.
        let days = most.as_secs() / DAY.as_secs();
        let most = match DAY.saturating_mul(u32::try_from(days).unwrap_or(0)) {
            whole if days > 1 && whole == most => format!("{days}days"),
            _ => humantime::format_duration(most).to_string(),
        };
        return Err(format!("it is at most {most}"));
    }
    Ok(time)
}

/// Parses the interval between two polls of the pointers.
pub(crate) fn poll_interval(text: &str) -> Result<Duration, String> {
    let interval = time_up_to(text, limits::MAX_POLL_INTERVAL)?;
    if interval.is_zero() { Err("it must be longer than zero".into()) } else { Ok(interval) }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    time_up_to(&text, MAX_DURATION).map(Some).map_err(serde::de::Error::custom)
}

/// The address that a flag or the file says.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let why = "an address is an IP address and a port, such as 127.0.0.1:6380 or [::1]:6380";
    text.parse().map_err(|_| why.to_owned())
}

fn address_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    address(&text).map(Some).map_err(serde::de::Error::custom)
}

/// An empty path would be the current folder.
fn named_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(from)?;
    if path.as_os_str().is_empty() {
        return Err(serde::de::Error::custom(
            "it is empty: name a file or folder, or leave it out",
        ));
    }
    Ok(Some(path))
}

fn byte_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    ByteSize::deserialize(from).map(Some).map_err(|_| serde::de::Error::custom(WHAT_A_SIZE_IS))
}

/// The store is always an engine.
fn engine<'de, D: Deserializer<'de>>(from: D) -> Result<Option<EngineUrl>, D::Error> {
    let text = String::deserialize(from)?;
    let other = (text != "store").then(|| text.parse()).transpose();
    other.map_err(serde::de::Error::custom)
}

/// Parses text whose error does not repeat it: an address may have a password.
fn parsed<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

fn lease<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let length = time_up_to(&text, limits::MAX_LEASE).map_err(serde::de::Error::custom)?;
    if !length.is_zero() && length < limits::MIN_LEASE {
        return Err(serde::de::Error::custom("it is 0s for none, or at least 1s"));
    }
    Ok(Some(length))
}

fn hold<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    time_up_to(&text, limits::MAX_HOLD).map(Some).map_err(serde::de::Error::custom)
}

fn poll_interval_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    poll_interval(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A number of days between `MIN` and `MAX`.
fn days<'de, const MIN: u32, const MAX: u32, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u32>, D::Error> {
    let days = u32::deserialize(from)?;
    if (MIN..=MAX).contains(&days) {
        return Ok(Some(days));
    }
    Err(serde::de::Error::custom(format!("{days} days: choose {MIN} to at most {MAX}")))
}

/// A duration of whole days.
fn live_for<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(from)?;
    let time = time_up_to(&text, u32::from(limits::MAX_LIVE_DAYS) * DAY)
        .map_err(serde::de::Error::custom)?;
    let days = time.as_secs() / DAY.as_secs();
    if days == 0 || time != days as u32 * DAY {
        let most = limits::MAX_LIVE_DAYS;
        let why = format!("whole days: choose `1day` to at most `{most}days`");
        return Err(serde::de::Error::custom(why));
    }
    Ok(Some(days as u32))
}

fn max_filters<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let most = usize::deserialize(from)?;
    if (1..=MAX_SETS).contains(&most) {
        return Ok(Some(most));
    }
    Err(serde::de::Error::custom(format!("{most} filters: choose 1 to at most {MAX_SETS}")))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            gates.nulls = { floor = 0.2, band = 3, cap = 1 }
            [resp]
            listen = "127.0.0.1:6380"
            data_dir = "/var/lib/bloomsday"
            ack = "written"
            live_memory = "2GiB"
            max_filters = 20
            create = false
            "#,
        )
        .unwrap();
        let rt = &file.filters[&"rt".parse().unwrap()];
        assert_eq!((rt.guard, rt.gates.nulls.floor), (Some(Guard::Hold), 0.2));
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
            ("[filters.rt]\nid = \"uri\"", "`bytes` or `url`"),
            ("[filters.rt]\nguard = \"maybe\"", "maybe"),
            ("[filters.rt]\nguard_max_hold = 6", "guard_max_hold"),
            ("[filters.rt]\nkeep_days = 0", "keep_days"),
            ("[filters.rt]\nlive = \"lead\"", "live"),
            ("[filters.rt]\nlayout = \"guava\"\nlive = \"decide\"", "layout `blocked`"),
            ("[filters.rt]\nlive_engine = \"kafka://broker/topic\"", "begins with redis://"),
            ("[filters.rt]\nlive_engine = \"redis://u:secret@h/x/y\"", "HOST:PORT"),
            ("[filters.rt]\nlive_from = \"redis://host\"", "STREAM"),
            ("[filters.rt]\nlive_from = \"amqp://host/x\"", "/v1/filters/NAME/add"),
            ("[filters.rt]\nlive_lease = \"500ms\"", "at least 1s"),
            ("[filters.rt]\nlive_lease = \"2h\"", "at most 1h"),
            ("[filters.rt]\ndeltas = 15", "0 to at most 14"),
            ("[filters.rt]\nlive_for = \"251days\"", "at most 250days"),
            ("[filters.rt]\nlive_for = \"36h\"", "whole days"),
            ("[filters.rt]\nlive_for = \"0s\"", "whole days"),
            ("[filters.rt]\nkeep_days = 99999999", "1 to at most 36525"),
            ("[filters.rt]\nmax_age_days = 4294967295", "0 to at most 400"),
            ("[filters.rt]\nmax_age_days = 3000000", "max_age_days"),
            ("[filters.rt]\nday_offset = 4294967295", "0 to at most 366"),
            ("[filters.rt]\ncatch_up_days = 4294967295", "catch_up_days"),
            ("poll_interval = \"300000000000000000s\"", "at most 1day"),
            ("[filters.rt]\nsettle = \"300000000000000000s\"", "settle"),
            ("[filters.rt]\nwindow_days = -1", "window_days"),
            ("[filters.rt]\nwindow_missing = \"ignore\"", "window_missing"),
            ("[filters.rt.gates]\nids = 7", "ids"),
            ("[resp]\nlisten = \"everywhere\"", "an IP address and a port"),
            ("[resp]\nlive_memory = \"lots\"", "such as 512MiB"),
            ("[filters.rt]\nmemory = true", "such as 512MiB"),
            ("[resp]\nack = \"soon\"", "`synced`, `written`, `shipped` or `memory`"),
            ("[resp]\nmax_filters = 513", "1 to at most 512"),
            ("[resp]\nmax_filters = 0", "1 to at most 512"),
            ("[resp]\ncreate = \"maybe\"", "create"),
            ("[resp]\npassword = \"x\"", "password"),
            ("[resp]\ndata_dir = \"\"", "it is empty"),
            ("admin_token_file = \"\"", "it is empty"),
            ("poll_interval = \"soon\"", "such as 90s, 10m"),
            ("listen = \"localhost:80\"", "an IP address and a port"),
            ("[filters.rt]\nschedule = \"0 25 * * *\"", "0 25"),
            ("[filters.rt]\nschedule = \"0 2 * * 1\"", "Sunday or Monday"),
            ("[filters.rt]\nschedule = 2", "schedule"),
            ("[filters.rt]\nsettle = \"soon\"", "settle"),
            ("[filters.rt]\nmax_age_days = 401", "0 to at most 400"),
            ("[filters.rt]\nguard_max_hold = \"31days\"", "at most"),
            ("poll_interval = \"0s\"", "longer than zero"),
            ("poll_interval = \"25h\"", "at most 1day"),
            ("[filters.rt]\ndeadline = \"400days\"", "at most"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
