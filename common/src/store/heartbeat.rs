//! Which server uses which blob: a small record for each server, next to the pointers. No
//! coordination service is needed.
//!
//! The age of a record is measured by the store's clock, from the moment of its upload. So a server
//! with a wrong clock does not look younger or older.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::local::check_folder_exists;
use super::{Store, records};
use crate::day::Day;
use crate::digest::Digest;
use crate::error::Error;
use crate::key::{self, FilterName};

/// A server that has not written for so long counts as gone. Servers write every 45 minutes.
pub const EXPIRES: Duration = Duration::from_secs(2 * 3600);
/// The most servers of a filter whose records are read; the others are counted.
pub const MAX_SERVERS: usize = 10_000;
/// A longer error is cut.
const MAX_ERROR_CHARS: usize = 300;
/// How many records are read at the same time.
const MAX_CONCURRENT_READS: usize = 64;
/// If a record was older than this when it was read, an unchanged upload time proves that it was
/// not written again: stores keep whole seconds, and clocks differ a little.
const SETTLED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// Which blob one server uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The server, by host and port.
    pub server: String,
    /// The version of its program.
    pub version: String,
    /// The blob that lookups use; none before the first load.
    pub digest: Option<Digest>,
    /// That blob's day.
    pub day: Option<Day>,
    /// When it was loaded, by the server's clock.
    pub loaded_at: Option<Timestamp>,
    /// The error of the last poll, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The servers of a filter that are alive, and how many more there are.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Servers {
    /// The servers that are alive, by name.
    pub servers: Vec<Heartbeat>,
    /// How many more are alive, but were not read.
    pub more: usize,
    /// How many records are of servers that are gone.
    pub expired: usize,
    /// How many records cannot be read.
    pub unreadable: usize,
    /// When each record was uploaded that need not be read again while that stays.
    #[serde(skip)]
    settled: BTreeMap<String, Timestamp>,
}

impl Store {
    /// Writes which blob a server uses, over its last record.
    ///
    /// # Errors
    /// The store's; [`Error::Forbidden`] with read-only credentials; [`Error::NoStore`] for a local
    /// store whose folder does not exist now.
    pub async fn put_heartbeat(&self, filter: &FilterName, beat: &Heartbeat) -> Result<(), Error> {
        let key = key::server(filter, &beat.server);
        let cut = |error: &String| error.chars().take(MAX_ERROR_CHARS).collect();
        let beat = Heartbeat { last_error: beat.last_error.as_ref().map(cut), ..beat.clone() };
        let bytes = serde_json::to_vec(&beat).expect("a heartbeat holds only strings");
        check_folder_exists(self.folder.as_deref()).await?;
        self.objects.put(&key, bytes.into()).await
    }

    /// Deletes the record of a server that ends. One that is not there is no error.
    ///
    /// # Errors
    /// The store's; [`Error::Forbidden`] with credentials that may not delete.
    pub async fn delete_heartbeat(&self, filter: &FilterName, server: &str) -> Result<(), Error> {
        self.objects.delete(&key::server(filter, server)).await
    }

    /// The servers of a filter that wrote within the last two hours.
    ///
    /// Cost: a listing, and a request for each server.
    ///
    /// # Errors
    /// The store's.
    pub async fn servers(&self, filter: &FilterName, now: Timestamp) -> Result<Servers, Error> {
        self.servers_again(filter, now, &Servers::default()).await
    }

    /// As [`Store::servers`], for a page that reads them again and again.
    ///
    /// Cost: a listing, and a request for each server that wrote since `before`.
    ///
    /// # Errors
    /// The store's.
    pub async fn servers_again(
        &self,
        filter: &FilterName,
        now: Timestamp,
        before: &Servers,
    ) -> Result<Servers, Error> {
        let folder = key::servers(filter);
        let listed = self.objects.list(&folder).await?;
        let all = listed.len();
        let mut found: Vec<(String, Timestamp)> = listed
            .into_iter()
            .filter(|object| !is_expired(object.uploaded, now))
            .map(|object| (object.name, object.uploaded))
            .collect();
        found.sort_unstable();
        let alive = found.len();
        found.truncate(MAX_SERVERS);
        let read = found.len();
        let is_settled = |uploaded: Timestamp| now.duration_since(uploaded) > SETTLED_FOR;
        let settled = found.iter().filter(|(_, uploaded)| is_settled(*uploaded)).cloned().collect();
        let known: BTreeMap<&str, &Heartbeat> =
            before.servers.iter().map(|beat| (&*beat.server, beat)).collect();
        let beats = futures::stream::iter(found).map(|(name, uploaded)| {
            let key = format!("{folder}/{name}");
            let unchanged = before.settled.get(&name) == Some(&uploaded);
            let known = known.get(&*name).filter(|_| unchanged).map(|beat| (*beat).clone());
            async move {
                if known.is_some() {
                    return Ok(known);
                }
                let parse = |bytes: &[u8]| {
                    serde_json::from_slice::<Heartbeat>(bytes).map_err(|e| e.to_string())
                };
                let beat =
                    records::read(&*self.record_store, &key, parse).await?.state.found().cloned();
                // Its name is that of its object, whatever the record says.
                Ok::<_, Error>(beat.map(|beat| Heartbeat { server: name, ..beat }))
            }
        });
        let beats: Vec<Option<Heartbeat>> =
            beats.buffered(MAX_CONCURRENT_READS).try_collect().await?;
        let servers: Vec<Heartbeat> = beats.into_iter().flatten().collect();
        let unreadable = read - servers.len();
        Ok(Servers { servers, more: alive - read, expired: all - alive, unreadable, settled })
    }

    /// Deletes the records of servers that are gone. Returns their number.
    ///
    /// # Errors
    /// The store's.
    pub async fn forget_servers(
        &self,
        filter: &FilterName,
        now: Timestamp,
        dry_run: bool,
    ) -> Result<usize, Error> {
        let folder = key::servers(filter);
        let listed = self.objects.list(&folder).await?;
        let gone = listed.into_iter().filter(|object| is_expired(object.uploaded, now));
        let gone: Vec<String> = gone.map(|object| format!("{folder}/{}", object.name)).collect();
        if !dry_run {
            for key in &gone {
                self.objects.delete(key).await?;
            }
        }
        Ok(gone.len())
    }
}

fn is_expired(written: Timestamp, now: Timestamp) -> bool {
    now.duration_since(written).unsigned_abs() > EXPIRES && written < now
}
