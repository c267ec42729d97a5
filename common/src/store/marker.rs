//! `{filter}/store.json`: a small record that says where the pointers of a filter live. The first
//! build writes it, so that a program with another configuration does not touch them.
//!
//! ```json
//! {
//!   "pointers": "redis",
//!   "key": "{filter}_{day:%Y%m%d}",
//!   "address": "redis://redis:6379/"
//! }
//! ```
//!
//! or `{"pointers": "store"}`. The address is only for people, because one Redis has many names; it
//! never contains a user or a password. A store without the record works; the next build, repoint
//! or pin writes one. A program writes it once and never changes it: a person who moves the
//! pointers deletes it. One that may not be read (a policy that does not know it) counts as absent.

use serde::{Deserialize, Serialize};

use super::versioned::SeenVersion;
use super::{Store, records};
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::{EventKind, HistoryEvent, Outcome};
use crate::protocol::RecordState;
use crate::redact::sanitize;
use crate::remedy::Remedy;

/// Where pointers live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Marker {
    /// `store` or `redis`.
    pointers: String,
    /// The template of a pointer's key in Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// How the program that wrote this reached Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl Marker {
    fn is_of_the_same_place(&self, other: &Marker) -> bool {
        (&self.pointers, &self.key) == (&other.pointers, &other.key)
    }

    fn describe(&self) -> String {
        match (self.pointers.as_str(), &self.key) {
            ("store", _) => "live in the store".into(),
            (_, Some(key)) => {
                format!("live in Redis under the key `{}`", sanitize(key))
            }
            (other, None) => format!("live in `{}`", sanitize(other)),
        }
    }

    /// What a program with the configuration `here` has to change.
    fn remedy(&self, here: &Marker) -> Remedy {
        let key = self.key.as_deref().map(sanitize).unwrap_or_default();
        match (self.pointers.as_str(), here.pointers.as_str()) {
            ("store", _) => Remedy::PointersInStore,
            ("redis", "redis") => Remedy::PointersKey { key },
            ("redis", _) => {
                let address = self.address.as_deref().map(sanitize);
                let address = address.unwrap_or_else(|| "redis://HOST".into());
                Remedy::PointersInRedis { address, key }
            }
            _ => Remedy::Upgrade,
        }
    }
}

impl Store {
    /// Fails if the store says that a filter's pointers live in another place.
    ///
    /// Cost: one small read.
    ///
    /// # Errors
    /// [`Error::OtherPointers`]; the store's.
    pub async fn check_pointers(&self, filter: &FilterName) -> Result<(), Error> {
        self.marker(filter).await.map(drop)
    }

    /// As [`Store::check_pointers`], and writes a marker where there is none yet.
    ///
    /// It writes none when the history has pointers and the configured place has none: a program
    /// that is not configured for Redis must not be the first to say where a filter's pointers
    /// live.
    ///
    /// Returns why no marker was written, if it is missing: that is not an error.
    ///
    /// # Errors
    /// As [`Store::check_pointers`].
    pub async fn mark_pointers(&self, filter: &FilterName) -> Result<Option<String>, Error> {
        if self.marker(filter).await?.is_some() {
            return Ok(None);
        }
        if !self.may_mark(filter).await? {
            let place = self.pointers_name().unwrap_or(self.name());
            return Ok(Some(format!(
                "the history of `{filter}` names pointers, and there was not one pointer in {place}: if \
                 they are in another place, name that place"
            )));
        }
        let (key, here) = (key::marker(filter), self.here());
        let mut bytes = serde_json::to_vec_pretty(&here).expect("a marker holds only strings");
        bytes.push(b'\n');
        let put = self.objects.put_if(&key, bytes.into(), &SeenVersion::absent()).await;
        let Err(error) = put else { return Ok(None) };
        // Another program may have written it first, or this one, whose response was lost.
        match (self.marker(filter).await?, error) {
            (Some(_), _) => Ok(None),
            (None, error @ Error::Forbidden { .. }) => Ok(Some(format!(
                "nothing says where the pointers of `{filter}` live, which would keep a command with \
                 another configuration from changing others: {error}"
            ))),
            (None, error) => Err(error),
        }
    }

    /// What the configuration says.
    fn here(&self) -> Marker {
        match &self.pointers_place {
            None => Marker { pointers: "store".into(), key: None, address: None },
            Some(place) => Marker {
                pointers: "redis".into(),
                key: Some(place.template.clone()),
                address: Some(place.address.clone()),
            },
        }
    }

    /// The marker, if there is one, and it agrees.
    async fn marker(&self, filter: &FilterName) -> Result<Option<Marker>, Error> {
        let key = key::marker(filter);
        let parse = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|e| e.to_string());
        let state = match records::read::<Marker>(&*self.record_store, &key, parse).await {
            // What may not be read counts as absent.
            Err(Error::Forbidden { .. }) => return Ok(None),
            read => read?.state,
        };
        let here = self.here();
        let other = |there: String, remedy: Remedy| Error::OtherPointers {
            key: key.clone(),
            store: self.name().to_owned(),
            there,
            here: here.describe(),
            remedy: remedy.into(),
        };
        match state {
            RecordState::Absent => Ok(None),
            RecordState::Found(marker) if marker.is_of_the_same_place(&here) => Ok(Some(marker)),
            RecordState::Found(marker) => Err(other(marker.describe(), marker.remedy(&here))),
            RecordState::Unreadable(why) => {
                let there = format!("live somewhere, but cannot be read ({})", sanitize(&why));
                Err(other(there, Remedy::MendMarker { key: key.clone() }))
            }
        }
    }

    async fn may_mark(&self, filter: &FilterName) -> Result<bool, Error> {
        if !self.pointer_store.pointer_days(filter).await?.is_empty() {
            return Ok(true);
        }
        let moved = |event: &HistoryEvent| {
            matches!(event.kind, EventKind::Build | EventKind::Repoint)
                && matches!(event.outcome, Outcome::Published | Outcome::Unchanged)
        };
        match self.pointer_history(filter).await {
            // What it says is not known, and a repoint must be possible.
            Err(Error::Event { .. }) => Ok(false),
            history => Ok(!history?.iter().any(moved)),
        }
    }
}
