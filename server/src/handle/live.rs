//! Adds and deletions of live IDs over a day's filter.

use std::sync::Arc;

use bloomsday_common::hash::is_valid_len;

use super::FilterHandle;
use crate::error::Error;
#[cfg(feature = "http")]
use crate::live::LiveState;
use crate::live::{Added, LiveSet, SetError, Ticket, hash_of};

impl FilterHandle {
    /// Adds an ID, and returns whether it is new: exactly one caller gets `true`. It
    /// counts from now on, and is as safe as [`Ack`](crate::live::Ack) promises when this returns.
    ///
    /// # Errors
    /// [`Error::NotLive`] for a filter that takes no IDs; [`Error::ReadOnly`] where another process
    /// decides which are new; [`Error::InvalidId`], [`Error::NotBlocked`],
    /// [`Error::ChangeRefused`].
    pub async fn add(&self, id: &[u8]) -> Result<bool, Error> {
        let mut is_new = [false];
        self.add_batch(&[id], &mut is_new).await?;
        Ok(is_new[0])
    }

    /// Adds many IDs at once: `is_new[i]` tells whether `ids[i]` is new.
    ///
    /// # Panics
    /// When `ids` and `is_new` differ in length.
    ///
    /// # Errors
    /// As [`FilterHandle::add`]. After an error any of them may have been added.
    pub async fn add_batch<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        is_new: &mut [bool],
    ) -> Result<(), Error> {
        assert_eq!(ids.len(), is_new.len(), "one answer for each ID");
        self.add_now(ids, is_new)?.wait().await.map_err(|why| self.refused(why.to_string()))
    }

    /// Deletes IDs: lookups miss them from now on, also if the day's filter has them. `was[i]`
    /// tells whether `ids[i]` was a hit.
    ///
    /// # Panics
    /// When `ids` and `was` differ in length.
    ///
    /// # Errors
    /// As [`FilterHandle::add`].
    pub async fn forget_batch<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        was: &mut [bool],
    ) -> Result<(), Error> {
        assert_eq!(ids.len(), was.len(), "one answer for each ID");
        self.forget_now(ids, was)?.wait().await.map_err(|why| self.refused(why.to_string()))
    }

    /// As [`FilterHandle::add_batch`]; what is added is safe when the ticket says so.
    pub(crate) fn add_now<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        is_new: &mut [bool],
    ) -> Result<Ticket, Error> {
        let live = self.live()?;
        let hashes = self.hashes(live, ids)?;
        live.count_domains(ids.iter().map(AsRef::as_ref));
        let (ticket, added) = live.add_each(self.served.now_ms(), &hashes, |i, added| {
            is_new[i] = added == Added::New;
        });
        added.map(|()| ticket).map_err(|why| self.not_made(why))
    }

    pub(crate) fn forget_now<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        was: &mut [bool],
    ) -> Result<Ticket, Error> {
        let live = self.live()?;
        let hashes = self.hashes(live, ids)?;
        let (ticket, forgotten) =
            live.forget_each(self.served.now_ms(), &hashes, |i, there| was[i] = there);
        forgotten.map(|_| ticket).map_err(|why| self.not_made(why))
    }

    /// For a trace: `added` for an ID that is alive here, `deleted` for one that is hidden, else
    /// `no`; `None` for a filter that takes no IDs.
    #[cfg(feature = "http")]
    pub(crate) fn live_state(&self, id: &[u8]) -> Option<&'static str> {
        Some(match self.served.live()?.state_of(self.served.now_ms(), id) {
            LiveState::Alive => "added",
            LiveState::Hidden => "deleted",
            LiveState::Unknown => "no",
        })
    }

    fn live(&self) -> Result<&Arc<LiveSet>, Error> {
        let filter = || self.name().to_string();
        self.served.live().ok_or_else(|| Error::NotLive { filter: filter() })
    }

    fn hashes<T: AsRef<[u8]>>(&self, live: &LiveSet, ids: &[T]) -> Result<Vec<u64>, Error> {
        let wrong = ids.iter().map(AsRef::as_ref).find(|id| !is_valid_len(id));
        if let Some(id) = wrong {
            return Err(Error::InvalidId { bytes: id.len() });
        }
        Ok(ids.iter().map(|id| hash_of(live.options().id_form, id.as_ref())).collect())
    }

    fn not_made(&self, refusal: SetError) -> Error {
        let filter = self.name().to_string();
        let why = match refusal {
            SetError::ReadOnly(why) => {
                return Error::ReadOnly { filter, why: why.to_string() };
            }
            SetError::Layout => return Error::NotBlocked { filter },
            SetError::NotLoaded => return Error::NotLoaded { filter },
            other => other.to_string(),
        };
        Error::ChangeRefused { filter, why }
    }

    fn refused(&self, why: String) -> Error {
        Error::ChangeRefused { filter: self.name().to_string(), why }
    }
}
