//! One sync of a log, for all that wait (group commit).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bloomsday_common::crash_point::crash_point;

use super::Log;
use super::syncer::{Queued, SyncEnd};
use crate::live::lock::lock;

impl Queued for Log {
    fn sync(&self) -> SyncEnd {
        self.is_queued.store(false, Ordering::Release);
        if self.check_synced().is_err() {
            return SyncEnd::Done;
        }
        let mut files = lock(&self.files);
        // What was written before a write failed is synced all the same.
        let is_written = self.write_to(&mut files).is_ok();
        if self.check_synced().is_err() {
            return SyncEnd::Done;
        }
        let written = self.written.load(Ordering::Acquire);
        let bytes = files.open.as_ref().map_or(0, |open| open.bytes);
        let open = files.open.as_ref();
        let unsynced = open.map(|open| (open.unsynced_folders.clone(), open.file.clone()));
        // Others may write while this waits for the disk.
        drop(files);
        if let Some((folders, file)) = &unsynced {
            crash_point("live-syncing");
            let named = folders.iter().try_for_each(File::sync_all);
            if let Err(error) = named.and_then(|()| self.sync_data(file)) {
                self.fail("sync", &error, true);
                return SyncEnd::Done;
            }
            crash_point("live-synced");
        }
        if is_written {
            self.replace_failure(None);
        }
        // Another thread's sync of the same file may have got its error, which it notes under the
        // lock.
        let mut files = lock(&self.files);
        if self.check_synced().is_err() {
            return SyncEnd::Done;
        }
        if let (Some(open), Some((_, synced))) = (&mut files.open, &unsynced)
            && Arc::ptr_eq(&open.file, synced)
        {
            open.unsynced_folders = Arc::new([]);
        }
        self.synced.send_replace(written);
        drop(files);
        if is_written {
            self.rotate(bytes);
        }
        if is_written { SyncEnd::Done } else { SyncEnd::TryAgain }
    }

    fn give_up(&self) {
        self.fail("sync", &io::Error::other("it panicked, see the log of the process"), true);
    }
}
