//! The lease of a live filter in a [`Store`].

use super::local::check_folder_exists;
use super::versioned::{SeenVersion, Versioned};
use super::{Store, records};
use crate::error::Error;
use crate::key::{self, FilterName};
use crate::live::lease::Lease;

impl Store {
    /// The lease of a filter.
    ///
    /// # Errors
    /// The store's.
    pub async fn lease(&self, filter: &FilterName) -> Result<Versioned<Lease>, Error> {
        records::read(&*self.record_store, &key::lease(filter), Lease::parse).await
    }

    /// Writes a lease if `seen` still is what is there.
    ///
    /// # Errors
    /// [`Error::Changed`] when another server wrote it meanwhile; the store's; [`Error::NoStore`]
    /// for a local store whose folder is not there now.
    pub async fn put_lease(
        &self,
        filter: &FilterName,
        lease: &Lease,
        seen: &SeenVersion,
    ) -> Result<(), Error> {
        check_folder_exists(self.folder.as_deref()).await?;
        let bytes = lease.to_bytes().into();
        records::put_if(&*self.record_store, &key::lease(filter), bytes, seen).await
    }
}
