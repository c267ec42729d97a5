//! Prune: drops pointers and deletes blobs that no record needs. [`crate::protocol`] decides which.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;

use super::blobs::BlobInfo;
use super::deltas::DeltaInfo;
use super::objects::uploaded;
use super::versioned::SeenVersion;
use super::{Store, local};
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, BlobKey, DeltaKey, FilterName};
use crate::pointer::{EventKind, HistoryEvent, Outcome, Pin, Pointer};
use crate::protocol::{self, RecordState, References, Retention};

/// How often all references are read before prune fails for a filter that keeps changing.
const MAX_READS: u32 = 8;

/// What a prune deleted, or would delete.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Pruned {
    /// The days whose pointers were dropped.
    pub pointers: Vec<Day>,
    /// The blobs that were deleted.
    pub blobs: Vec<BlobKey>,
    /// The deltas that were deleted.
    pub deltas: Vec<DeltaKey>,
    /// The keys of files that killed uploads left in a local folder or on HDFS.
    pub abandoned: Vec<String>,
    /// The size of blobs, deltas and files.
    pub bytes: u64,
    /// Records that cannot be read. They may name any blob, so none was deleted.
    pub unreadable: Vec<String>,
}

/// What a prune deleted of live IDs, or would delete.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PrunedSegments {
    /// The days whose segments were deleted.
    #[serde(rename = "live_days")]
    pub days: Vec<Day>,
    /// How many segments they had.
    pub segments: u64,
}

impl Store {
    /// Drops the pointers of days that nobody follows any more, then deletes old blobs that no
    /// record names, and deltas that no server needs. References are read again before each delete
    /// of a blob.
    ///
    /// Cost: up to five listings of blobs and three of deltas, and for each delete of a blob at
    /// least two reads of every pointer. In a local folder and on HDFS also two listings of each
    /// day of live IDs.
    ///
    /// # Errors
    /// [`Error::NoPointers`] for a filter with blobs to delete and without any pointer: then nobody
    /// knows what is needed. [`Error::OtherPointers`]. The store's: what was deleted until then
    /// stays deleted, and the next prune continues.
    pub async fn prune(
        &self,
        filter: &FilterName,
        retention: Retention,
        by: &str,
        dry_run: bool,
    ) -> Result<Pruned, Error> {
        let due = self.due(filter, retention, Timestamp::now()).await?;
        if dry_run || due.is_empty() {
            return Ok(due);
        }
        let delete = async |now| self.delete_due(filter, retention, now).await;
        // Others wait for the end of a prune of blobs: `retained`.
        self.recorded(filter, by, Outcome::Pending, &due.to_string(), delete).await
    }

    /// Deletes something, with a record of it in the history, whose outcome is `until_done` until
    /// the deletion ends, and after a crash for ever. `delete` gets the time by the store's clock,
    /// with which the ages of objects are compared: the clock here may be wrong.
    async fn recorded<T: fmt::Display>(
        &self,
        filter: &FilterName,
        by: &str,
        until_done: Outcome,
        due: &str,
        delete: impl AsyncFnOnce(Timestamp) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Recorded before it is done, so that a person who misses something later finds out why.
        let mut event = HistoryEvent::new(EventKind::Prune, until_done, Timestamp::now(), by);
        event.reason = Some(format!("deleting {due}"));
        self.append_event(filter, &event).await?;
        let deleted = async {
            let key = key::history(filter, event.at, event.kind.name(), None);
            delete(uploaded(&self.objects.head(&key).await?)).await
        };
        let deleted = deleted.await;
        // Whatever happened, nobody needs to wait for this prune.
        (event.outcome, event.reason) = match &deleted {
            Ok(done) => (Outcome::Published, Some(format!("deleted {done}"))),
            Err(error) => (Outcome::Failed, Some(error.to_string())),
        };
        let recorded = self.append_event(filter, &event).await;
        deleted.and_then(|done| recorded.map(|()| done))
    }

    /// Deletes what is due at `now`. Returns what was deleted.
    async fn delete_due(
        &self,
        filter: &FilterName,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Pruned, Error> {
        let due = self.due(filter, retention, now).await?;
        let mut pruned = Pruned { unreadable: due.unreadable, ..Pruned::default() };
        for day in due.pointers {
            self.pointer_store.delete(&key::pointer(filter, day)).await?;
            pruned.pointers.push(day);
        }
        for blob in due.blobs {
            if let Some(bytes) = self.delete_if_unneeded(filter, &blob, now, retention).await? {
                pruned.bytes += bytes;
                pruned.blobs.push(blob);
            }
        }
        for (delta, bytes) in self.deltas_due(filter, now, &pruned.blobs, retention).await? {
            self.objects.delete(&delta.to_string()).await?;
            pruned.bytes += bytes;
            pruned.deltas.push(delta);
        }
        for key in due.abandoned {
            let deleted = match &self.folder {
                Some(folder) => local::delete_abandoned(folder, &key)?,
                None => self.delete_unfinished(&key).await?,
            };
            if let Some(bytes) = deleted {
                pruned.bytes += bytes;
                pruned.abandoned.push(key);
            }
        }
        Ok(pruned)
    }

    /// Deletes segments of live IDs of days that nothing needs any more: older than `segment_days`,
    /// and than every blob that a record names. Heads of logs stay: a server that comes back after
    /// a long time goes on where it was.
    ///
    /// Cost: two listings of each day that goes, and a delete for each segment.
    ///
    /// # Errors
    /// [`Error::OtherPointers`]; the store's: the next prune continues.
    pub async fn prune_segments(
        &self,
        filter: &FilterName,
        retention: Retention,
        segment_days: u32,
        by: &str,
        dry_run: bool,
    ) -> Result<PrunedSegments, Error> {
        let now = Timestamp::now();
        let old = self.old_segment_days(filter, retention, segment_days, now).await?;
        let due = self.count_segments(filter, &old).await?;
        if dry_run {
            return Ok(due);
        }
        let delete = async |now| {
            let old = self.old_segment_days(filter, retention, segment_days, now).await?;
            let pruned = self.count_segments(filter, &old).await?;
            for day in &pruned.days {
                for (segment, _) in self.segments(filter, *day).await? {
                    self.objects.delete(&segment.to_string()).await?;
                }
            }
            Ok(pruned)
        };
        let pruned = if due.days.is_empty() {
            due
        } else {
            // Nobody waits for it: no record names a segment.
            self.recorded(filter, by, Outcome::Failed, &due.to_string(), delete).await?
        };
        if let Some(folder) = &self.folder {
            old.iter().for_each(|day| local::remove_if_empty(folder, &key::segments(filter, *day)));
        }
        Ok(pruned)
    }

    /// The days whose segments nothing needs at this time.
    async fn old_segment_days(
        &self,
        filter: &FilterName,
        retention: Retention,
        segment_days: u32,
        now: Timestamp,
    ) -> Result<Vec<Day>, Error> {
        let (today, days) = (Day::of(now), self.segment_days(filter).await?);
        if days.is_empty() {
            return Ok(days);
        }
        let pointers = self.pointer_days(filter).await?;
        let dropped = protocol::pointers_to_drop(&pointers, today, retention);
        let references = self.references(filter, &dropped).await?;
        Ok(protocol::segment_days_to_delete(&days, today, segment_days, &references))
    }

    /// How many segments these days have, and which of them have any. Some stores keep the folder
    /// of a day whose segments are gone.
    async fn count_segments(
        &self,
        filter: &FilterName,
        days: &[Day],
    ) -> Result<PrunedSegments, Error> {
        let mut counted = PrunedSegments::default();
        for day in days {
            let segments = self.segments(filter, *day).await?.len() as u64;
            if segments > 0 {
                counted.days.push(*day);
                counted.segments += segments;
            }
        }
        Ok(counted)
    }

    /// What a prune at `now` would delete.
    async fn due(
        &self,
        filter: &FilterName,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Pruned, Error> {
        let days = self.pointer_days(filter).await?;
        let pointers = protocol::pointers_to_drop(&days, Day::of(now), retention);
        let references = self.references(filter, &pointers).await?;
        let unreadable = references.unreadable().to_vec();
        let mut due = Pruned { pointers, unreadable, ..Pruned::default() };
        let lost = self.blobs_due(filter, retention, now, &references, &mut due).await?;
        if days.is_empty() && lost > 0 {
            return Err(self.no_pointers(filter, lost));
        }
        for (delta, bytes) in self.deltas_due(filter, now, &due.blobs, retention).await? {
            due.bytes += bytes;
            due.deltas.push(delta);
        }
        if let Some(folder) = &self.folder {
            abandoned_local(folder, &self.upload_folders(filter).await?, &mut due)?;
        }
        if self.is_hdfs() {
            self.abandoned_hdfs(filter, now, &mut due).await?;
        }
        Ok(due)
    }

    /// Adds the blobs to delete. Returns how many there would be without any pointer: nothing may
    /// be deleted then, so they are only counted.
    async fn blobs_due(
        &self,
        filter: &FilterName,
        retention: Retention,
        now: Timestamp,
        references: &References,
        due: &mut Pruned,
    ) -> Result<usize, Error> {
        let mut lost = 0;
        for object in self.objects.list(&key::blobs(filter)).await? {
            let Ok(blob) = BlobKey::from_name(filter, &object.name) else { continue };
            let uploaded = object.uploaded;
            lost += usize::from(protocol::is_expiring(&blob, uploaded, now, references, retention));
            if protocol::may_delete(&blob, uploaded, now, references, retention) {
                due.bytes += object.bytes;
                due.blobs.push(blob);
            }
        }
        due.blobs.sort_unstable();
        Ok(lost)
    }

    /// The folders in which a killed upload may leave a file, in every kind of store, and whether a
    /// name is that of an object there.
    async fn upload_folders(&self, filter: &FilterName) -> Result<Vec<(String, IsObject)>, Error> {
        let mut folders: Vec<(String, IsObject)> = vec![
            (key::blobs(filter), |name| name.ends_with(".bloom")),
            (key::deltas(filter), |name| name.ends_with(".delta")),
            (key::histories(filter), |name| name.ends_with(".json")),
            (key::servers(filter), key::is_server),
            (key::heads(filter), key::is_head),
        ];
        for day in self.segment_days(filter).await? {
            folders.push((key::segments(filter, day), |name| name.ends_with(".seg")));
        }
        Ok(folders)
    }

    /// Adds what killed uploads left on HDFS.
    async fn abandoned_hdfs(
        &self,
        filter: &FilterName,
        now: Timestamp,
        due: &mut Pruned,
    ) -> Result<(), Error> {
        for (folder, _) in self.upload_folders(filter).await? {
            for object in self.objects.unfinished(&folder).await? {
                if now.duration_since(object.uploaded).unsigned_abs() > local::MAX_UPLOAD_AGE
                    && object.uploaded < now
                {
                    due.bytes += object.bytes;
                    due.abandoned.push(format!("{folder}/{}", object.name));
                }
            }
        }
        Ok(())
    }

    /// Deletes what a killed upload left on HDFS. Returns its size, or `None` if it is not there
    /// any more.
    async fn delete_unfinished(&self, key: &str) -> Result<Option<u64>, Error> {
        let bytes = match self.objects.head(key).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            head => head?.size,
        };
        self.objects.delete(key).await?;
        Ok(Some(bytes))
    }

    /// The deltas that go when the blobs `going` go, with their sizes. A delta is only a saving, so
    /// that nothing is read again before its delete.
    async fn deltas_due(
        &self,
        filter: &FilterName,
        now: Timestamp,
        going: &[BlobKey],
        retention: Retention,
    ) -> Result<Vec<(DeltaKey, u64)>, Error> {
        // Deltas first: a build uploads a blob before its deltas.
        let deltas = self.deltas(filter).await?;
        if deltas.is_empty() {
            return Ok(Vec::new());
        }
        let mut blobs = self.blobs(filter, None).await?;
        blobs.retain(|blob| !going.contains(blob));
        let is_due = |delta: &DeltaInfo| {
            protocol::may_delete_delta(&delta.key, delta.uploaded, now, &blobs, retention)
        };
        let due = deltas.into_iter().filter(is_due);
        Ok(due.map(|delta| (delta.key, delta.bytes)).collect())
    }

    /// Deletes a blob if that is still right: a build may have uploaded it again, an operator may
    /// have pointed at it. Returns its size if it was deleted.
    async fn delete_if_unneeded(
        &self,
        filter: &FilterName,
        blob: &BlobKey,
        now: Timestamp,
        retention: Retention,
    ) -> Result<Option<u64>, Error> {
        let references = self.references(filter, &[]).await?;
        if references.pointers() == 0 {
            return Err(self.no_pointers(filter, 1));
        }
        let BlobInfo { bytes, uploaded } = match self.blob_info(blob).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            other => other?,
        };
        if !protocol::may_delete(blob, uploaded, now, &references, retention) {
            return Ok(None);
        }
        self.objects.delete(&blob.to_string()).await?;
        Ok(Some(bytes))
    }

    fn no_pointers(&self, filter: &FilterName, blobs: usize) -> Error {
        let place = self.pointers_name().unwrap_or(self.name()).to_owned();
        Error::NoPointers { filter: filter.to_string(), place, blobs }
    }

    /// What the pin and all pointers name, but for those of the days `without`.
    ///
    /// They are read until two reads in a row agree: then the store had exactly these records at
    /// one moment between the reads, and a blob that moves from one record to another is not
    /// missed.
    pub(super) async fn references(
        &self,
        filter: &FilterName,
        without: &[Day],
    ) -> Result<References, Error> {
        let mut before = None;
        for _ in 0..MAX_READS {
            let now = self.read_references(filter).await?;
            if before.as_ref() == Some(&now.versions) {
                let pointers = now.pointers.iter().filter(|(day, _)| !without.contains(day));
                return Ok(References::of(&now.pin, pointers.map(|(day, state)| (*day, state))));
            }
            before = Some(now.versions);
        }
        let now = format!("its pointers changed during each of {MAX_READS} reads");
        Err(Error::Changed { key: format!("{filter}/pointers"), now })
    }

    async fn read_references(&self, filter: &FilterName) -> Result<ReferenceSnapshot, Error> {
        self.check_pointers(filter).await?;
        let pin = self.pin(filter).await?;
        let (pointers, versions) = (Vec::new(), vec![(None, pin.version)]);
        let mut snapshot = ReferenceSnapshot { pin: pin.state, pointers, versions };
        for day in self.pointer_store.pointer_days(filter).await? {
            let read = self.pointer_or_reason(filter, day).await?;
            snapshot.pointers.push((day, read.state));
            snapshot.versions.push((Some(day), read.version));
        }
        Ok(snapshot)
    }
}

/// Adds what killed uploads left in the folder of a local store.
fn abandoned_local(
    store: &Path,
    folders: &[(String, IsObject)],
    due: &mut Pruned,
) -> Result<(), Error> {
    for (folder, is_object) in folders {
        for (key, bytes) in local::abandoned_uploads(store, folder, is_object)? {
            due.bytes += bytes;
            due.abandoned.push(key);
        }
    }
    Ok(())
}

/// Whether a name is that of an object in some folder.
type IsObject = fn(&str) -> bool;

/// Everything that may name a blob, as it was read once.
struct ReferenceSnapshot {
    pin: RecordState<Pin>,
    pointers: Vec<(Day, RecordState<Pointer>)>,
    /// The pin's, and that of each day's pointer.
    versions: Vec<(Option<Day>, SeenVersion)>,
}

impl Pruned {
    fn is_empty(&self) -> bool {
        self.pointers.is_empty()
            && self.blobs.is_empty()
            && self.deltas.is_empty()
            && self.abandoned.is_empty()
    }
}

impl fmt::Display for PrunedSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.days.first(), self.days.last()) {
            (Some(first), Some(last)) => write!(f, "the live segments of {first} to {last}"),
            _ => f.write_str("no live segments"),
        }
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pointers, blobs, mib) = (self.pointers.len(), self.blobs.len(), self.bytes >> 20);
        write!(f, "{pointers} pointers and {blobs} blobs")?;
        if !self.deltas.is_empty() {
            write!(f, " and {} deltas", self.deltas.len())?;
        }
        if !self.abandoned.is_empty() {
            write!(f, " and what {} killed uploads left", self.abandoned.len())?;
        }
        write!(f, " ({mib} MiB)")
    }
}
