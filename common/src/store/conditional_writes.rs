//! The check that a store refuses a conditional write that it should refuse.

use std::sync::Arc;

use bytes::Bytes;

use super::Store;
use super::records::{RecordStore, put_if};
use crate::error::Error;
use crate::random::random;

impl Store {
    /// Tests on a scratch key whether the store refuses a conditional write that it should refuse.
    /// Where pointers live in another place, it is tested there, too.
    ///
    /// # Errors
    /// The store's; [`Error::StoreUrl`] when it lets the second of two writers win.
    pub async fn check_conditional_writes(&self) -> Result<(), Error> {
        // Another one each time: several may run at once, each with the same number as a process.
        let number = random();
        let key = format!(".bloomsday-check-{number:x}");
        if Arc::ptr_eq(&self.record_store, &self.pointer_store) {
            self.check_writes(&*self.record_store, &key, true).await
        } else {
            // Without pointers there, no record needs to be replaced. HDFS, for one, cannot do
            // that.
            self.check_writes(&*self.record_store, &key, false).await?;
            // No filter's name begins or ends like this, and the day is long past.
            let key = format!("0-bloomsday-check-{number:x}-0/pointers/1970-01-01");
            self.check_writes(&*self.pointer_store, &key, true).await
        }
    }

    /// Two writers that both read no record; then, with `replace`, two that both read the same one:
    /// some gateways honour only the former condition.
    async fn check_writes(
        &self,
        records: &dyn RecordStore,
        key: &str,
        replace: bool,
    ) -> Result<(), Error> {
        let text =
            |n: u32| Bytes::from(format!("{n}: a test of conditional writes; may be deleted\n"));
        let before = records.read(key).await?;
        put_if(records, key, text(1), &before).await?;
        let checked = async {
            self.must_refuse(put_if(records, key, text(2), &before).await)?;
            if replace {
                let written = records.read(key).await?;
                put_if(records, key, text(3), &written).await?;
                self.must_refuse(put_if(records, key, text(4), &written).await)?;
            }
            Ok(())
        };
        let checked = checked.await;
        records.delete(key).await?;
        checked
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
