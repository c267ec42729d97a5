//! Pointers and pins of a [`Store`]: read, written conditionally, and followed.

use jiff::Timestamp;

use super::versioned::{SeenVersion, Versioned};
use super::{Following, Store, records};
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::pointer::{Pin, Pointer};
use crate::protocol::{self, FollowStep, RecordState};
use crate::remedy::Remedy;

impl Store {
    /// Reads the pointer of a day.
    ///
    /// Cost: two small reads, one after the other.
    ///
    /// # Errors
    /// The store's; [`Error::OtherPointers`]. An absent or unreadable pointer is a state, not an
    /// error.
    pub async fn pointer(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<Versioned<Pointer>, Error> {
        self.check_pointers(filter).await?;
        self.pointer_unchecked(filter, day).await
    }

    /// As [`Store::pointer`], for callers that have already checked that the pointers live here.
    pub(super) async fn pointer_unchecked(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<Versioned<Pointer>, Error> {
        let key = key::pointer(filter, day);
        let parse = |bytes: &[u8]| Pointer::parse(bytes, filter, &self.names);
        records::read(&*self.pointer_store, &key, parse).await
    }

    /// Reads the pin. Cost: one small read.
    ///
    /// # Errors
    /// The store's. An absent or unreadable pin is a state, not an error.
    pub async fn pin(&self, filter: &FilterName) -> Result<Versioned<Pin>, Error> {
        let parse = |bytes: &[u8]| Pin::parse(bytes, filter, &self.names);
        records::read(&*self.record_store, &key::pin(filter), parse).await
    }

    /// Writes the pointer of a day if it still is what was read.
    ///
    /// # Errors
    /// [`Error::Changed`] when it is not; [`Error::OtherPointers`]; [`Error::RecordTooLong`]; the
    /// store's when the write failed and a second read shows that nothing was written.
    pub async fn put_pointer(
        &self,
        filter: &FilterName,
        day: Day,
        pointer: &Pointer,
        seen: &SeenVersion,
    ) -> Result<(), Error> {
        let key = key::pointer(filter, day);
        let bytes = records::checked(&key, pointer.to_bytes())?;
        self.check_pointers(filter).await?;
        records::put_if(&*self.pointer_store, &key, bytes, seen).await
    }

    /// Writes the pin if it still is what was read.
    ///
    /// # Errors
    /// [`Error::Changed`] when it is not; [`Error::RecordTooLong`]; the store's when the write
    /// failed and a second read shows that nothing was written.
    pub async fn put_pin(
        &self,
        filter: &FilterName,
        pin: &Pin,
        seen: &SeenVersion,
    ) -> Result<(), Error> {
        let key = key::pin(filter);
        let bytes = records::checked(&key, pin.to_bytes())?;
        records::put_if(&*self.record_store, &key, bytes, seen).await
    }

    /// The state of a day's pointer, for reports: what is in its place in a local store and is no
    /// file there (a folder, a link to nothing or out of the store) counts as a pointer that cannot
    /// be read.
    ///
    /// # Errors
    /// The others of [`Store::pointer`].
    pub async fn pointer_state(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<RecordState<Pointer>, Error> {
        self.check_pointers(filter).await?;
        Ok(self.pointer_or_reason(filter, day).await?.state)
    }

    /// As [`Store::pointer_state`], with its version.
    pub(super) async fn pointer_or_reason(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<Versioned<Pointer>, Error> {
        match self.pointer_unchecked(filter, day).await {
            Err(error @ Error::StoreUrl { .. }) => {
                let state = RecordState::Unreadable(error.to_string());
                Ok(Versioned { state, version: SeenVersion::absent() })
            }
            read => read,
        }
    }

    /// Restores what was there before a pointer was written, whatever that was, unless somebody has
    /// changed the pointer since then. Where nothing was, the pointer is removed; no store can
    /// delete conditionally, so one that somebody writes at the same moment is removed, too.
    ///
    /// # Errors
    /// As [`Store::put_pointer`].
    pub async fn take_back_pointer(
        &self,
        filter: &FilterName,
        day: Day,
        written: &Pointer,
        before: &SeenVersion,
    ) -> Result<(), Error> {
        let now = self.pointer(filter, day).await?;
        if now.state.found() != Some(written) {
            return Ok(());
        }
        records::restore(&*self.pointer_store, &key::pointer(filter, day), &now.version, before)
            .await
    }

    /// Restores what was there before a pin was written, whatever that was, unless somebody has
    /// changed the pin since then.
    ///
    /// # Errors
    /// As [`Store::put_pin`].
    pub async fn take_back_pin(
        &self,
        filter: &FilterName,
        written: &Pin,
        before: &SeenVersion,
    ) -> Result<(), Error> {
        let now = self.pin(filter).await?;
        if now.state.found() != Some(written) {
            return Ok(());
        }
        records::restore(&*self.record_store, &key::pin(filter), &now.version, before).await
    }

    /// Removes the pin. No store can delete conditionally: a pin that somebody else writes at the
    /// same moment is removed, too.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_pin(&self, filter: &FilterName) -> Result<(), Error> {
        self.record_store.delete(&key::pin(filter)).await
    }

    /// The days that have a pointer, oldest first. Cost: a small read, then a listing.
    ///
    /// # Errors
    /// The store's; [`Error::OtherPointers`].
    pub async fn pointer_days(&self, filter: &FilterName) -> Result<Vec<Day>, Error> {
        self.check_pointers(filter).await?;
        self.pointer_store.pointer_days(filter).await
    }

    /// Finds the blob to load: by the pin, then by the newest pointer of `days`, which come from
    /// [`protocol::days_to_follow`].
    ///
    /// # Errors
    /// The store's: then nothing is known, and the current filter should stay.
    pub async fn follow(
        &self,
        filter: &FilterName,
        days: &[Day],
        now: Timestamp,
    ) -> Result<Following, Error> {
        let unreadable = |key: String, why: String, remedy: Remedy| {
            Following::Keep(Error::Record { key, why, remedy: remedy.into() })
        };
        // At the same time, so that the check adds no latency.
        let (pin, ()) = futures::try_join!(self.pin(filter), self.check_pointers(filter))?;
        match protocol::follow_pin(&pin.state, now) {
            FollowStep::Follow(followed) => return Ok(Following::Blob(followed)),
            FollowStep::Keep { why } => {
                let remedy = Remedy::RemovePin { filter: filter.to_string() };
                return Ok(unreadable(key::pin(filter), why, remedy));
            }
            FollowStep::ReadOlder => {}
        }
        for day in days {
            let read = self.pointer_unchecked(filter, *day).await?;
            match protocol::follow_pointer(*day, &read.state) {
                FollowStep::Follow(followed) => return Ok(Following::Blob(followed)),
                FollowStep::Keep { why } => {
                    let remedy = Remedy::ReplacePointer {
                        filter: filter.to_string(),
                        day: day.to_string(),
                        to: None,
                    };
                    return Ok(unreadable(key::pointer(filter, *day), why, remedy));
                }
                FollowStep::ReadOlder => {}
            }
        }
        Ok(Following::NotFound(days.to_vec()))
    }
}
