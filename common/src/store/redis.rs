//! Pointers in Redis: the small mutable records there, everything else in the object store.
//!
//! A key a day, made by a template. Its value is what a pointer in the store would be: the JSON record,
//! a blob's key, or a URL. A plain `SET rt_20261119 <yesterday's value>` is a rollback. Programs of
//! ours write only by one script that compares exact bytes first.
//!
//! Each call makes its own connection: a poll asks a few keys every ten minutes, and a connection made
//! for it is never a stale one after Redis was restarted or failed over.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, RedisError, Script};
use url::Url;

use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::MAX_RECORD_BYTES;

/// The key of a day's pointer when nothing else is configured.
pub const DEFAULT_TEMPLATE: &str = "{filter}_{day:%Y%m%d}";
/// How long connecting, and each answer, may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The first day whose pointer is listed: older than anything that anybody keeps. Days are asked one by
/// one: a SCAN would go through all of a Redis that others use too.
const FIRST_LISTED: &str = "2000-01-01";
/// How many days are asked about at once, so that others who use that Redis get their turn.
const LISTED_AT_ONCE: usize = 1_000;
/// How many days a template must give different keys: years come back in 28, but for their number.
const TRIED_DAYS: u32 = 30 * 366;
/// How many days ahead, for a pointer that somebody dated wrongly.
const LISTED_AHEAD: u32 = 7;

/// Compares exact bytes (of at most so many), then writes. `ARGV`: what must be there as `=BYTES`, or
/// nothing at all for a key that must be absent; what to write; how many bytes to compare.
const COMPARE_AND_SET: &str = r"
local there = redis.call('EXISTS', KEYS[1]) == 1
if ARGV[1] == '' then
  if there then return 0 end
elseif not there or '=' .. redis.call('GETRANGE', KEYS[1], 0, ARGV[3]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1";

/// Where pointers live instead of beside the blobs.
#[derive(Clone)]
pub(super) struct Pointers {
    client: Client,
    /// The address without user and password.
    name: String,
    template: String,
}

/// What a look at a key found.
pub(super) enum Value {
    Absent,
    /// At most one byte more than a record may have.
    Bytes(Bytes),
    /// Another kind of thing than a string.
    NoString,
}

impl Pointers {
    /// Nothing is connected to yet.
    pub(super) fn open(address: &str, template: &str) -> Result<Pointers, Error> {
        let name = shown(address);
        let wrong = |why: String| Error::StoreUrl { url: name.clone(), why };
        let info = address.into_connection_info().map_err(|e| wrong(e.to_string()))?;
        let client = Client::open(info).map_err(|e| wrong(e.to_string()))?;
        if !template.contains("{filter}") || !template.contains("{day") {
            return Err(wrong(format!(
                "the key template `{template}` must hold {{filter}} and {{day}}, or else two \
                 pointers would share a key"
            )));
        }
        let pointers = Pointers { client, name: name.clone(), template: template.to_owned() };
        if let Some((one, other)) = same_key(template)? {
            return Err(wrong(format!(
                "the key template `{template}` gives {one} and {other} one key: write months and days \
                 with two digits, and years with four, as in `{DEFAULT_TEMPLATE}`"
            )));
        }
        Ok(pointers)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn template(&self) -> &str {
        &self.template
    }

    /// Redis's key of the pointer that lies at `path` in a store; `None` when no pointer does.
    pub(super) fn place(&self, path: &str) -> Option<String> {
        let (filter, rest) = path.split_once('/')?;
        let day: Day = rest.strip_prefix("pointers/")?.parse().ok()?;
        self.key(&filter.parse().ok()?, day).ok()
    }

    fn key(&self, filter: &FilterName, day: Day) -> Result<String, Error> {
        day.expand(&self.template.replace("{filter}", filter.as_str()))
    }

    pub(super) async fn read(&self, key: &str) -> Result<Value, Error> {
        let asked = async {
            let mut redis = self.connect().await?;
            let bytes: Vec<u8> = redis::cmd("GETRANGE")
                .arg(key)
                .arg(0)
                .arg(MAX_RECORD_BYTES)
                .query_async(&mut redis)
                .await?;
            // Redis gives the same answer for a key that is not there and for an empty one.
            let there = !bytes.is_empty()
                || redis::cmd("EXISTS").arg(key).query_async::<bool>(&mut redis).await?;
            Ok(if there { Value::Bytes(bytes.into()) } else { Value::Absent })
        };
        match asked.await {
            Err(error) if is_wrong_type(&error) => Ok(Value::NoString),
            other => other.map_err(|e| self.error("read", key, &e)),
        }
    }

    /// Writes `new` if the key holds `expected` (or is absent, for `None`); whether it did.
    pub(super) async fn compare_and_set(
        &self,
        key: &str,
        new: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let expected = expected.map_or_else(Vec::new, |bytes| [b"=", bytes].concat());
        let script = Script::new(COMPARE_AND_SET);
        let set = async {
            let mut redis = self.connect().await?;
            let mut call = script.key(key);
            call.arg(expected).arg(new).arg(MAX_RECORD_BYTES);
            call.invoke_async::<bool>(&mut redis).await
        };
        match set.await {
            Err(error) if is_wrong_type(&error) => Ok(false),
            other => other.map_err(|e| self.error("write", key, &e)),
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Error> {
        let deleted = async {
            let mut redis = self.connect().await?;
            redis::cmd("DEL").arg(key).query_async::<()>(&mut redis).await
        };
        deleted.await.map_err(|e| self.error("delete", key, &e))
    }

    /// The days of a filter that have a key, oldest first.
    ///
    /// Cost: some ten thousand keys are looked for, a thousand at once.
    pub(super) async fn days(&self, filter: &FilterName) -> Result<Vec<Day>, Error> {
        let newest = Day::of(Timestamp::now()).plus(LISTED_AHEAD);
        let oldest: Day = FIRST_LISTED.parse()?;
        let days: Vec<Day> =
            (0..).map(|n| oldest.plus(n)).take_while(|day| *day <= newest).collect();
        let mut there = Vec::new();
        for days in days.chunks(LISTED_AT_ONCE) {
            let mut asked = redis::pipe();
            for day in days {
                asked.cmd("EXISTS").arg(self.key(filter, *day)?);
            }
            let answers = async {
                let mut redis = self.connect().await?;
                asked.query_async::<Vec<bool>>(&mut redis).await
            };
            let answers =
                answers.await.map_err(|e| self.error("list", &key::pointers(filter), &e))?;
            there.extend(days.iter().zip(answers).filter(|(_, there)| *there).map(|(day, _)| *day));
        }
        Ok(there)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(DEADLINE))
            .set_response_timeout(Some(DEADLINE));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    fn error(&self, doing: &'static str, key: &str, source: &RedisError) -> Error {
        let code = source.code().unwrap_or_default();
        // Loading after a restart, a replica that was just promoted: these pass.
        let stranger = source.kind() == ErrorKind::AuthenticationFailed
            || matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM");
        let refused = stranger || code == "READONLY";
        let hint = match code {
            "READONLY" => " (this is a read-only replica: name the primary)",
            _ if stranger => " (check user and password in the address)",
            _ => "",
        };
        let why = format!("{source}{hint}").replace(['\r', '\n'], " ");
        let (key, store) = (key.to_owned(), self.name.clone());
        Error::Pointers { doing, key, store, why, transient: !refused }
    }
}

/// A day, and another filter or day that a template would give the same key.
///
/// Every day is tried for many years, and a filter whose name ends in digits, which may stand right
/// beside the day.
fn same_key(template: &str) -> Result<Option<(Day, Day)>, Error> {
    let first: Day = FIRST_LISTED.parse()?;
    let mut seen: HashMap<String, Day> = HashMap::new();
    for filter in ["rt", "rt1", "1rt"] {
        let template = template.replace("{filter}", filter);
        for day in (0..TRIED_DAYS).map(|n| first.plus(n)) {
            if let Some(other) = seen.insert(day.expand(&template)?, day) {
                return Ok(Some((other, day)));
            }
        }
    }
    Ok(None)
}

fn is_wrong_type(error: &RedisError) -> bool {
    // Straight from the command, or wrapped by the script that ran it.
    error.code() == Some("WRONGTYPE")
        || (error.kind() != ErrorKind::Io && error.to_string().contains("WRONGTYPE"))
}

/// An address for people: where, but not who or with which password.
fn shown(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return "redis://…".to_owned() };
    // A scheme that has neither is left as it is.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointers_place_follows_the_template_and_nothing_else_has_one() {
        let pointers = Pointers::open("redis://me:secret@redis:6379/2", DEFAULT_TEMPLATE).unwrap();
        assert_eq!(pointers.place("rt/pointers/2026-11-19").unwrap(), "rt_20261119");
        assert_eq!(pointers.place("opted-out/pointers/2026-01-02").unwrap(), "opted-out_20260102");
        for other in ["rt/pin", "rt/history/x.json", "rt/pointers/today", ".bloomsday-check-7"] {
            assert_eq!(pointers.place(other), None, "{other}");
        }
        assert!(!pointers.name().contains("secret") && !pointers.name().contains("me"));
    }

    #[test]
    fn templates_that_tell_every_day_apart_are_taken() {
        for template in [
            DEFAULT_TEMPLATE,
            "prod/{filter}/{day}",
            "{day:%Y%j}:{filter}",
            "{filter}{day:%Y%m%d}",
            "{filter}_{day:%Y-%-m-%-d}",
            "{filter}_{day:%y%m%d}",
            "{filter}_{day:%d%m}_{day:%Y}",
            "{filter}_{day:%G-W%V-%u}",
        ] {
            let opened = Pointers::open("redis://redis", template);
            assert!(opened.is_ok(), "{template}: {:?}", opened.err());
        }
    }

    #[test]
    fn templates_that_mix_pointers_up_and_addresses_that_are_none_are_refused() {
        for (address, template) in [
            ("redis://redis", "{filter}"),
            ("redis://redis", "x_{day}"),
            ("redis://redis", "{filter}_{day:%d}"),
            ("redis://redis", "{filter}_{day:%Y}"),
            ("redis://redis", "{filter}_{day:%m%d}"),
            ("redis://redis", "{filter}_{day"),
            ("redis://redis", "{filter}_{day:%Y%-m%-d}"),
            ("redis://redis", "{filter}_{day:%Y%-d%-m}"),
            ("redis://redis", "{filter}_{day:%G%m%d}"),
            ("redis://redis", "{filter}_{day:%Y%m}"),
            ("redis://redis", "{filter}_{day:%Y%U}"),
            ("redis://redis", "{filter}{day:%-d-%m-%Y}"),
            ("redis://redis", "{day:%Y-%m-%-d}{filter}"),
            ("redis://redis", "{filter}_{day:%Y-%B}"),
            ("s3://redis", DEFAULT_TEMPLATE),
            ("not a url with secret", DEFAULT_TEMPLATE),
        ] {
            let error = Pointers::open(address, template).err().map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{address} {template} passed"));
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
