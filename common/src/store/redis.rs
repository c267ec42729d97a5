//! [`RedisRecords`]: pointers in Redis. Everything else is in the object store.
//!
//! A template makes the key of each day. Its value is what a pointer in the store would be: the
//! JSON record, a blob's key, or a URL. A plain `SET rt_20261119 <yesterday's value>` is a
//! rollback. Our programs write only with one script that compares the exact bytes first.
//!
//! Each call opens its own connection: a poll reads a few keys every ten minutes, and a new
//! connection is never stale after Redis was restarted or failed over.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, RedisError, Script};
use url::Url;

use super::records::RecordStore;
use super::versioned::{SeenVersion, Snapshot};
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::MAX_RECORD_BYTES;
use crate::redact::url_without_secrets;

/// The key of a day's pointer when nothing else is configured.
pub const DEFAULT_TEMPLATE: &str = "{filter}_{day:%Y%m%d}";
/// How long connecting, and each response, may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The first day whose pointer is listed: older than anything that anybody keeps. Each day's key is
/// tested: a SCAN would go through all keys of a Redis that others use, too.
const FIRST_LISTED: &str = "2000-01-01";
/// How many keys one request tests, so that other clients of that Redis are not delayed.
const MAX_LISTED_PER_REQUEST: usize = 1_000;
/// For how many days a template must give different keys: a calendar repeats after 28 years.
const CHECKED_DAYS: u32 = 30 * 366;
/// How many days after today are listed, for a pointer with a wrong date.
const LISTED_AHEAD: u32 = 7;

/// Compares exact bytes, then writes. `ARGV`: what must be there as `=BYTES`, or nothing for a key
/// that must be absent; what to write; the number of the last byte to compare, from 0.
const COMPARE_AND_SET: &str = r"
local there = redis.call('EXISTS', KEYS[1]) == 1
if ARGV[1] == '' then
  if there then return 0 end
elseif not there or '=' .. redis.call('GETRANGE', KEYS[1], 0, ARGV[3]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1";

/// Stands for a value that is not a string: it names no blob, and people read this in the message.
const NOT_A_STRING: &[u8] = b"(this key of Redis holds another type than a string: DEL it first)";

/// Pointers in Redis. Other records stay in the object store.
#[derive(Clone)]
pub(super) struct RedisRecords {
    client: Client,
    /// The address without user and password.
    name: String,
    template: String,
}

impl RedisRecords {
    /// Nothing is connected to yet.
    pub(super) fn open(address: &str, template: &str) -> Result<RedisRecords, Error> {
        // Of what is not a URL, nobody knows where a password ends.
        let name =
            Url::parse(address).map_or("redis://…".to_owned(), |url| url_without_secrets(&url));
        let wrong = |why: String| Error::StoreUrl { url: name.clone(), why };
        let info = address.into_connection_info().map_err(|e| wrong(e.to_string()))?;
        let client = Client::open(info).map_err(|e| wrong(e.to_string()))?;
        if !template.contains("{filter}") || !template.contains("{day") {
            return Err(wrong(format!(
                "the key template `{template}` must hold {{filter}} and {{day}}, or else two \
                 pointers would share a key"
            )));
        }
        let pointers = RedisRecords { client, name: name.clone(), template: template.to_owned() };
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

    /// The key in Redis of the pointer that would have the key `record` in a store.
    fn redis_key(&self, record: &str) -> Result<String, Error> {
        let pointer = record.split_once('/').and_then(|(filter, rest)| {
            let day: Day = rest.strip_prefix("pointers/")?.parse().ok()?;
            Some((filter.parse().ok()?, day))
        });
        let Some((filter, day)) = pointer else {
            let (key, store) = (record.to_owned(), self.name.clone());
            let why = "only pointers live there".into();
            return Err(Error::Pointers { doing: "find", key, store, why, transient: false });
        };
        self.key(&filter, day)
    }

    fn key(&self, filter: &FilterName, day: Day) -> Result<String, Error> {
        day.expand(&self.template.replace("{filter}", filter.as_str()))
    }

    /// Reads a key, at most one byte more than a record may have.
    async fn get(&self, key: &str) -> Result<Option<Bytes>, Error> {
        let got = async {
            let mut redis = self.connect().await?;
            let bytes: Vec<u8> = redis::cmd("GETRANGE")
                .arg(key)
                .arg(0)
                .arg(MAX_RECORD_BYTES)
                .query_async(&mut redis)
                .await?;
            // Redis returns the same for a key that does not exist and for an empty one.
            let there = !bytes.is_empty()
                || redis::cmd("EXISTS").arg(key).query_async::<bool>(&mut redis).await?;
            Ok(there.then(|| bytes.into()))
        };
        match got.await {
            Err(error) if is_wrong_type(&error) => Ok(Some(Bytes::from_static(NOT_A_STRING))),
            other => other.map_err(|e| self.error("read", key, &e)),
        }
    }

    /// Writes `new` if the key's value is `expected` (or it is absent, for `None`). Returns whether
    /// it did.
    async fn compare_and_set(
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

    async fn del(&self, key: &str) -> Result<(), Error> {
        let deleted = async {
            let mut redis = self.connect().await?;
            redis::cmd("DEL").arg(key).query_async::<()>(&mut redis).await
        };
        deleted.await.map_err(|e| self.error("delete", key, &e))
    }

    /// The days of a filter that have a key, oldest first.
    ///
    /// Cost: it looks for some ten thousand keys, a thousand with each request.
    async fn days(&self, filter: &FilterName) -> Result<Vec<Day>, Error> {
        let newest = Day::of(Timestamp::now()).plus(LISTED_AHEAD);
        let oldest: Day = FIRST_LISTED.parse()?;
        let days: Vec<Day> =
            (0..).map(|n| oldest.plus(n)).take_while(|day| *day <= newest).collect();
        let mut there = Vec::new();
        for days in days.chunks(MAX_LISTED_PER_REQUEST) {
            let mut request = redis::pipe();
            for day in days {
                request.cmd("EXISTS").arg(self.key(filter, *day)?);
            }
            let response = async {
                let mut redis = self.connect().await?;
                request.query_async::<Vec<bool>>(&mut redis).await
            };
            let response =
                response.await.map_err(|e| self.error("list", &key::pointers(filter), &e))?;
            there
                .extend(days.iter().zip(response).filter(|(_, there)| *there).map(|(day, _)| *day));
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
        // The client keeps only the text of what refuses a connection.
        let says = |words: &str| source.to_string().contains(words);
        let stranger = stranger || says("Authentication required");
        let has_no_database = says("DB index is out of range");
        let refused = stranger || has_no_database || code == "READONLY";
        let hint = match code {
            "READONLY" => " (this is a read-only replica: name the primary)",
            _ if stranger => " (check user and password in the address)",
            _ if has_no_database => {
                " (the address ends with the number of a database that is not there)"
            }
            _ => "",
        };
        let why = format!("{source}{hint}").replace(['\r', '\n'], " ");
        let (key, store) = (key.to_owned(), self.name.clone());
        Error::Pointers { doing, key, store, why, transient: !refused }
    }
}

impl RecordStore for RedisRecords {
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<SeenVersion, Error>> {
        let read = async {
            let got = self.get(&self.redis_key(key)?).await?;
            let tag = object_store::UpdateVersion { e_tag: None, version: None };
            let found = |bytes| SeenVersion::of(Snapshot { bytes, tag });
            Ok(got.map_or_else(SeenVersion::absent, found))
        };
        read.boxed()
    }

    fn try_put_if<'a>(
        &'a self,
        key: &'a str,
        new: Bytes,
        seen: &'a SeenVersion,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let put = async move {
            let key = self.redis_key(key)?;
            let expected = seen.bytes().map(|bytes| bytes.as_ref());
            if self.compare_and_set(&key, &new, expected).await? {
                return Ok(());
            }
            Err(Error::Changed {
                key: format!("{key} in {}", self.name),
                now: "it is not what was read; if it is no string, DEL it first".into(),
            })
        };
        put.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async { self.del(&self.redis_key(key)?).await }.boxed()
    }

    fn pointer_days<'a>(
        &'a self,
        filter: &'a FilterName,
    ) -> BoxFuture<'a, Result<Vec<Day>, Error>> {
        self.days(filter).boxed()
    }
}

/// Two days to which a template would give the same key, perhaps for different filters.
///
/// It tries every day of many years, and filters whose names begin or end with digits, which may
/// stand next to those of the day.
fn same_key(template: &str) -> Result<Option<(Day, Day)>, Error> {
    let first: Day = FIRST_LISTED.parse()?;
    let mut days_of: HashMap<String, Day> = HashMap::new();
    for filter in ["rt", "rt1", "1rt"] {
        let template = template.replace("{filter}", filter);
        for day in (0..CHECKED_DAYS).map(|n| first.plus(n)) {
            if let Some(other) = days_of.insert(day.expand(&template)?, day) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointers_key_follows_the_template_and_no_other_record_has_one() {
        let pointers =
            RedisRecords::open("redis://me:secret@redis:6379/2", DEFAULT_TEMPLATE).unwrap();
        let key = |record| pointers.redis_key(record).unwrap();
        assert_eq!(key("rt/pointers/2026-11-19"), "rt_20261119");
        assert_eq!(key("opted-out/pointers/2026-01-02"), "opted-out_20260102");
        for other in ["rt/pin", "rt/history/x.json", "rt/pointers/today", ".bloomsday-check-7"] {
            assert!(pointers.redis_key(other).is_err(), "{other}");
        }
        assert!(!pointers.name().contains("secret") && !pointers.name().contains("me"));
    }

    #[test]
    fn templates_with_a_different_key_for_every_day_are_accepted() {
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
            let opened = RedisRecords::open("redis://redis", template);
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
            let error = RedisRecords::open(address, template).err().map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{address} {template} passed"));
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
