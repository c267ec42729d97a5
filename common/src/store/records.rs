//! Pointers that live elsewhere than beside the blobs: whether they do, and the way there.
//!
//! [`super`] asks here first for every small record; without the feature `redis` the answer is always
//! "not elsewhere".

use bytes::Bytes;

use super::{Precondition, Store};
use crate::day::Day;
use crate::error::Error;
use crate::key::FilterName;

/// Where the pointers are, when not in the store.
#[derive(Clone, Default)]
pub(super) struct PointerStore {
    #[cfg(feature = "redis")]
    redis: Option<super::redis::Pointers>,
}

/// Stands for a Redis value that is no string: it names no blob, which is what people then read.
#[cfg(feature = "redis")]
const NO_STRING: &str = "(this key of Redis holds another type than a string)";

impl Store {
    /// The same store with its pointers in Redis. Nothing is connected to yet.
    ///
    /// `address` is `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, `template` the key of a day's
    /// pointer, by default [`super::DEFAULT_TEMPLATE`].
    ///
    /// # Errors
    /// [`Error::StoreUrl`] for an address that is none, or a template that would give two pointers
    /// one key.
    #[cfg(feature = "redis")]
    pub fn with_pointers(self, address: &str, template: &str) -> Result<Store, Error> {
        let redis = Some(super::redis::Pointers::open(address, template)?);
        Ok(Store { pointers_in: PointerStore { redis }, ..self })
    }

    /// What holds the pointers, when it is not the store itself; it holds no secret.
    pub fn pointers_name(&self) -> Option<&str> {
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.pointers_in.redis {
            return Some(redis.name());
        }
        None
    }

    /// What holds the pointers, and under which template, when it is not the store itself.
    pub(super) fn pointers_place(&self) -> Option<(&str, &str)> {
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.pointers_in.redis {
            return Some((redis.name(), redis.template()));
        }
        None
    }

    /// Tries on a scratch key whether the store really refuses a conditional write that it should;
    /// and where pointers are elsewhere, there too.
    ///
    /// # Errors
    /// The store's; [`Error::StoreUrl`] when it lets the second of two writers win.
    pub async fn check_conditional_writes(&self) -> Result<(), Error> {
        let elsewhere = self.pointers_name().is_some();
        // Where no pointers are kept, records need not be replaced.
        self.check_one(&format!(".bloomsday-check-{}", std::process::id()), !elsewhere).await?;
        if elsewhere {
            // No filter's name begins or ends like this, and the day is long past.
            self.check_one("0-bloomsday-check-0/pointers/1970-01-01", true).await?;
        }
        Ok(())
    }

    /// Two writers that both saw no record; then, if one `replaces` it, two that saw the same one. Some
    /// gateways honour only the former.
    async fn check_one(&self, key: &str, replaces: bool) -> Result<(), Error> {
        let before = self.version(key).await?;
        let text = |n: u32| Bytes::from(format!("{n}: bloomsday config check; may be deleted\n"));
        self.put_if(key, text(1), &before).await?;
        let tried = async {
            self.must_refuse(self.put_if(key, text(2), &before).await)?;
            if replaces {
                let written = self.version(key).await?;
                self.put_if(key, text(3), &written).await?;
                self.must_refuse(self.put_if(key, text(4), &written).await)?;
            }
            Ok(())
        };
        let tried = tried.await;
        self.delete(key).await?;
        tried
    }

    fn must_refuse(&self, second: Result<(), Error>) -> Result<(), Error> {
        match second {
            Err(Error::Changed { .. }) => Ok(()),
            Err(other) => Err(other),
            Ok(()) => Err(Error::StoreUrl {
                url: self.name().to_owned(),
                why: "it ignores conditional writes, so two builds could overwrite each other's \
                      pointer: use a store or gateway that honours If-Match and If-None-Match"
                    .into(),
            }),
        }
    }
}

#[cfg(feature = "redis")]
impl PointerStore {
    /// What a record is that lives elsewhere; `None` for one that does not.
    pub(super) async fn version(&self, key: &str) -> Option<Result<Precondition, Error>> {
        use super::redis::Value;
        let redis = self.redis.as_ref()?;
        let bytes = match redis.read(&redis.place(key)?).await {
            Ok(Value::Absent) => return Some(Ok(Precondition(None))),
            Ok(Value::Bytes(bytes)) => bytes,
            Ok(Value::NoString) => Bytes::from_static(NO_STRING.as_bytes()),
            Err(error) => return Some(Err(error)),
        };
        let tag = object_store::UpdateVersion { e_tag: None, version: None };
        Some(Ok(Precondition(Some(super::Snapshot { bytes, tag }))))
    }

    /// Writes a record that lives elsewhere if it is still what was read.
    pub(super) async fn put_if(
        &self,
        key: &str,
        new: &Bytes,
        read: &Precondition,
    ) -> Option<Result<(), Error>> {
        let redis = self.redis.as_ref()?;
        let place = redis.place(key)?;
        let expected = read.0.as_ref().map(|snapshot| snapshot.bytes.as_ref());
        Some(match redis.compare_and_set(&place, new, expected).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Changed {
                key: format!("{place} in {}", redis.name()),
                now: "it is not what was read; if it is no string, DEL it first".into(),
            }),
            Err(error) => Err(error),
        })
    }

    pub(super) async fn delete(&self, key: &str) -> Option<Result<(), Error>> {
        let redis = self.redis.as_ref()?;
        Some(redis.delete(&redis.place(key)?).await)
    }

    pub(super) async fn days(&self, filter: &FilterName) -> Option<Result<Vec<Day>, Error>> {
        Some(self.redis.as_ref()?.days(filter).await)
    }
}

#[cfg(not(feature = "redis"))]
impl PointerStore {
    pub(super) async fn version(&self, _: &str) -> Option<Result<Precondition, Error>> {
        None
    }

    pub(super) async fn put_if(
        &self,
        _: &str,
        _: &Bytes,
        _: &Precondition,
    ) -> Option<Result<(), Error>> {
        None
    }

    pub(super) async fn delete(&self, _: &str) -> Option<Result<(), Error>> {
        None
    }

    pub(super) async fn days(&self, _: &FilterName) -> Option<Result<Vec<Day>, Error>> {
        None
    }
}
