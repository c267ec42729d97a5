//! Filter → store: uploads the blob, reads it back, and moves the pointer if the protocol permits
//! it.

use std::time::Duration;

use bloomsday_common::blob::{EncodedBlob, Header, StreamedBlob};
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::error::{Error as StoreError, Kind};
use bloomsday_common::filter::Filter;
use bloomsday_common::key::{self, BlobKey, FilterName};
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome, Pointer};
use bloomsday_common::protocol::{self, Past, PublishDecision, Retention};
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::{Store, Versioned};
use jiff::Timestamp;

use crate::error::Error;

/// The most uploads of one blob: a blob that reads back damaged is uploaded again.
pub(crate) const MAX_UPLOADS: u32 = 2;
/// The most attempts to read a blob back while other builds replace it, and the pause between them.
const MAX_READ_BACKS: u32 = 20;
const READ_BACK_PAUSE: Duration = Duration::from_millis(50);

/// Uploads a blob and reads all of it back.
///
/// If the store already has a sound blob with this key, nothing is uploaded. A damaged one is
/// replaced.
///
/// # Errors
/// The store fails, or the bytes that were read back are damaged.
pub async fn upload(
    store: &Store,
    encoded: &EncodedBlob<'_>,
    progress: &dyn Fn(u64),
) -> Result<(Header, Filter), Error> {
    match read_back(store, encoded.key()).await {
        Ok(found) => return Ok(found),
        Err(error) if error.kind() == Kind::NotFound => {}
        Err(error) if error.kind() == Kind::Corrupt => {
            tracing::warn!("{error}; uploading it again");
        }
        Err(error) => return Err(error.into()),
    }
    upload_again(store, encoded, progress).await
}

/// Uploads a blob, whatever is there, and reads all of it back.
async fn upload_again(
    store: &Store,
    encoded: &EncodedBlob<'_>,
    progress: &dyn Fn(u64),
) -> Result<(Header, Filter), Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        store.put_blob(encoded, progress).await?;
        crash_point("uploaded");
        match read_back(store, encoded.key()).await {
            Err(error) if error.kind() == Kind::Corrupt && tries < MAX_UPLOADS => {
                tracing::warn!("{error}; uploading it again");
            }
            other => return Ok(other?),
        }
    }
}

async fn read_back(store: &Store, key: &BlobKey) -> Result<(Header, Filter), StoreError> {
    let opened = try_to_read(async || store.open_blob(key).await).await?;
    crash_point("read-back");
    Ok(opened)
}

/// Reads a blob by `read`, again where the next try may read all of it.
///
/// # Errors
/// Those of `read`.
pub(crate) async fn try_to_read<T>(
    read: impl AsyncFn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match read().await {
            // Other builds of the same IDs may replace it with the same blob, each of them once.
            Err(error) if error.was_replaced() && tries < MAX_READ_BACKS => {
                tokio::time::sleep(READ_BACK_PAUSE).await;
            }
            // The store's client does not retry a body that breaks off.
            Err(error) if error.is_transient() && tries == 1 => {}
            other => return other,
        }
    }
}

/// The result of the attempt to move a pointer.
#[derive(Debug)]
pub struct PointerUpdate {
    /// `Published`, `Unchanged` or `Superseded`.
    pub outcome: Outcome,
    /// The blob that the pointer named before.
    pub previous: Option<BlobKey>,
    /// Why the pointer did not move, and how to move it by hand.
    pub reason: Option<String>,
    /// The latter as data.
    pub remedy: Option<Remedy>,
}

/// A blob that was uploaded and read back.
#[derive(Clone, Copy, Debug)]
pub enum Uploaded<'a> {
    /// Its bytes are in memory.
    InMemory(&'a EncodedBlob<'a>),
    /// Its bytes were passed on in parts.
    Streamed(&'a StreamedBlob),
}

impl Uploaded<'_> {
    /// The blob's key.
    pub fn key(&self) -> &BlobKey {
        match self {
            Uploaded::InMemory(blob) => blob.key(),
            Uploaded::Streamed(blob) => blob.key(),
        }
    }

    /// The number of its bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Uploaded::InMemory(blob) => blob.len(),
            Uploaded::Streamed(blob) => blob.len(),
        }
    }
}

/// A day's pointer at the start of the build.
#[derive(Debug)]
pub struct PointerSnapshot {
    /// The filter whose pointer it is.
    pub filter: FilterName,
    /// The pointer's day.
    pub day: Day,
    /// The content and version of the pointer.
    pub read: Versioned<Pointer>,
}

impl PointerSnapshot {
    /// Reads a day's pointer.
    ///
    /// # Errors
    /// The store's.
    pub async fn take(
        store: &Store,
        filter: &FilterName,
        day: Day,
    ) -> Result<PointerSnapshot, Error> {
        let read = store.pointer(filter, day).await?;
        Ok(PointerSnapshot { filter: filter.clone(), day, read })
    }
}

/// What a build may do with a day's pointer, and the facts behind it.
#[derive(Debug)]
pub struct PublishPlan {
    /// What it may do.
    pub decision: PublishDecision,
    /// The newest records of the filter's history.
    pub history: Vec<HistoryEvent>,
    /// The pointer as it was read.
    pointer: Versioned<Pointer>,
}

/// Reads the pointer again and the history, and asks the protocol what a build may do with `blob`.
///
/// # Errors
/// The store's.
pub async fn plan(
    store: &Store,
    start: &PointerSnapshot,
    blob: &BlobKey,
    retention: Retention,
) -> Result<PublishPlan, Error> {
    let pointer = store.pointer(&start.filter, start.day).await?;
    let unchanged_since_start = pointer.version == start.read.version;
    let history = store.pointer_history(&start.filter).await?;
    let today = Day::of(Timestamp::now());
    let past = Past::of(start.day, &history, &pointer.state, today, retention);
    let decision = protocol::decide_publish(blob, &pointer.state, unchanged_since_start, &past);
    Ok(PublishPlan { decision, history, pointer })
}

impl PublishPlan {
    /// The result of this plan if nobody else moves the pointer at the same time.
    ///
    /// # Errors
    /// [`StoreError::Record`] for an unreadable pointer: a build does not overwrite it.
    pub fn preview(&self, start: &PointerSnapshot, blob: &BlobKey) -> Result<PointerUpdate, Error> {
        let PointerSnapshot { filter, day, .. } = start;
        let update =
            |outcome, previous| PointerUpdate { outcome, previous, reason: None, remedy: None };
        Ok(match &self.decision {
            PublishDecision::Unchanged { .. } => update(Outcome::Unchanged, None),
            PublishDecision::Advance { previous } => update(Outcome::Published, previous.clone()),
            PublishDecision::Superseded { now } => {
                superseded(start, blob, &format!("changed while this build ran ({now})"))
            }
            PublishDecision::RolledBack { to } => {
                let to = to
                    .as_ref()
                    .map_or("nothing now: it was removed".into(), |to| format!("{to} now"));
                superseded(
                    start,
                    blob,
                    &format!("was rolled back from this very blob, and names {to}"),
                )
            }
            PublishDecision::Unreadable { why, may_be_rollback } => {
                let (because, to) = if *may_be_rollback {
                    (": it may be a rollback from this build's blob", None)
                } else {
                    ("", Some(blob.to_string()))
                };
                return Err(StoreError::Record {
                    key: key::pointer(filter, *day),
                    why: format!("{why} (a build does not overwrite it{because})"),
                    remedy: Box::new(Remedy::ReplacePointer {
                        filter: filter.to_string(),
                        day: day.to_string(),
                        to,
                    }),
                }
                .into());
            }
        })
    }
}

/// Moves the day's pointer to a verified blob, if `plan` says so.
///
/// `event` is the history record of the build. It is written before the pointer moves, so a crash
/// in between cannot hide a blob of the day. The caller writes it again with the outcome.
///
/// # Errors
/// The store fails. The pointer is then unchanged; if the result of the write is unknown, the store
/// has read the pointer again.
pub async fn advance(
    store: &Store,
    start: &PointerSnapshot,
    plan: PublishPlan,
    header: &Header,
    blob: Uploaded<'_>,
    retention: Retention,
    event: &HistoryEvent,
) -> Result<PointerUpdate, Error> {
    let preview = plan.preview(start, blob.key())?;
    let (filter, day) = (&start.filter, start.day);
    if let Some(why) = store.mark_pointers(filter).await? {
        tracing::warn!("{why}");
    }
    let previous = match plan.decision {
        PublishDecision::Advance { previous } => previous,
        PublishDecision::Unchanged { unrecorded: true } => {
            // An earlier build ended right after it had moved the pointer, or a later one of the
            // day was refused: record the outcome now.
            record_unchanged(store, filter, event).await;
            return Ok(preview);
        }
        PublishDecision::Unchanged { unrecorded: false } => return Ok(preview),
        // Pointer and history may be of two moments: one that had not moved yet looks deleted.
        PublishDecision::Superseded { .. } | PublishDecision::RolledBack { .. } => {
            return Ok(unchanged_after_all(store, start, blob, event).await.unwrap_or(preview));
        }
        PublishDecision::Unreadable { .. } => unreachable!("the preview is an error"),
    };
    let event = HistoryEvent { outcome: Outcome::Pending, previous, ..event.clone() };
    store.append_event(filter, &event).await?;
    keep_from_prune(store, blob, retention).await?;
    crash_point("recorded");
    let pointer = pointer_to(blob, header, &event);
    match store.put_pointer(filter, day, &pointer, &plan.pointer.version).await {
        Ok(()) => {
            crash_point("pointed");
            Ok(preview)
        }
        Err(error) if error.kind() == Kind::Superseded => {
            let why = format!("changed at the last moment: {error}");
            let unchanged = unchanged_after_all(store, start, blob, &event).await;
            Ok(unchanged.unwrap_or_else(|| superseded(start, blob.key(), &why)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The pointer of a build that moves now.
fn pointer_to(blob: Uploaded<'_>, header: &Header, event: &HistoryEvent) -> Pointer {
    Pointer {
        bytes: Some(blob.bytes()),
        ids: Some(header.ids),
        previous: event.previous.clone(),
        published_at: Some(Timestamp::now()),
        published_by: Some(event.by.clone()),
        kind: Some(EventKind::Build),
        reason: event.reason.clone(),
        ..Pointer::to(blob.key().clone())
    }
}

/// The result for a build that lost the race, if the pointer names its blob: another build of the
/// same IDs made the same blob.
async fn unchanged_after_all(
    store: &Store,
    start: &PointerSnapshot,
    blob: Uploaded<'_>,
    event: &HistoryEvent,
) -> Option<PointerUpdate> {
    let now = store.pointer(&start.filter, start.day).await.ok()?;
    now.state.found().filter(|pointer| pointer.blob == *blob.key())?;
    record_unchanged(store, &start.filter, event).await;
    let outcome = Outcome::Unchanged;
    Some(PointerUpdate { outcome, previous: None, reason: None, remedy: None })
}

/// Records that the pointer names this build's blob, in place of a record that is pending or
/// missing.
async fn record_unchanged(store: &Store, filter: &FilterName, event: &HistoryEvent) {
    let event = HistoryEvent { outcome: Outcome::Unchanged, ..event.clone() };
    record(store, filter, &event).await;
}

/// How many of the newest records are searched for the end of a day's last build.
const RECENT: usize = 16;

/// Whether the newest recorded event of a day is a build that ended as this one did: with the same
/// outcome and blob, for the same reason. Who tries a refused day again and again, each minute,
/// must not push out what decides. One from before `due` is of another run of a schedule.
pub(crate) async fn is_recorded(
    store: &Store,
    filter: &FilterName,
    event: &HistoryEvent,
    due: Option<Timestamp>,
) -> bool {
    // Unknown: it is recorded again.
    let recent = store.recent_history(filter, RECENT).await.unwrap_or_default();
    let end = |event: &HistoryEvent| {
        (event.kind, event.outcome, event.blob.clone(), event.reason.clone())
    };
    let newest = recent.iter().find(|other| other.day == event.day);
    newest.is_some_and(|newest| end(newest) == end(event) && due.is_none_or(|due| newest.at >= due))
}

/// Appends a build to the history. What the build did is done, so a failure is only a warning.
pub(crate) async fn record(store: &Store, filter: &FilterName, event: &HistoryEvent) {
    if let Err(error) = store.append_event(filter, event).await {
        tracing::warn!("this build cannot be recorded in the history: {error}");
    }
}

/// Protects a blob from prune before the pointer moves to it. A prune that took an earlier upload
/// of the blob for old and unneeded may delete the new one, too: this waits for its end.
async fn keep_from_prune(
    store: &Store,
    blob: Uploaded<'_>,
    retention: Retention,
) -> Result<(), Error> {
    upload_if_old(store, blob, retention).await?;
    if protocol::may_be_old(blob.key().day, Day::of(Timestamp::now()), retention) {
        store.wait_for_prune(&blob.key().filter, |why| tracing::info!("{why}")).await?;
        upload_if_old(store, blob, retention).await?;
    }
    Ok(())
}

/// Uploads and reads back a blob that is missing, or old enough to be deleted within a day. One
/// that was streamed cannot be uploaded again: if it is missing, that is an error.
async fn upload_if_old(
    store: &Store,
    blob: Uploaded<'_>,
    retention: Retention,
) -> Result<(), Error> {
    match (store.blob_info(blob.key()).await, blob) {
        (Ok(there), _)
            if !protocol::is_near_deletion(there.uploaded, Timestamp::now(), retention) =>
        {
            Ok(())
        }
        (Err(error), _) if error.kind() != Kind::NotFound => Err(error.into()),
        (_, Uploaded::InMemory(blob)) => {
            upload_again(store, blob, &|_| {}).await?;
            Ok(())
        }
        // It was uploaded by this build, or was not old when it began to be checked.
        (Err(error), Uploaded::Streamed(_)) => Err(error.into()),
        (Ok(_), Uploaded::Streamed(_)) => Ok(()),
    }
}

fn superseded(start: &PointerSnapshot, blob: &BlobKey, why: &str) -> PointerUpdate {
    let PointerSnapshot { filter, day, .. } = start;
    let remedy = Remedy::UseBlob {
        filter: filter.to_string(),
        day: day.to_string(),
        blob: blob.to_string(),
    };
    let reason = format!(
        "{} {why}\n  \
         The blob is kept at {blob}; nothing was repointed.\n  \
         To use it: {remedy}",
        key::pointer(filter, *day)
    );
    let (outcome, previous) = (Outcome::Superseded, None);
    PointerUpdate { outcome, previous, reason: Some(reason), remedy: Some(remedy) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_read_that_breaks_off_is_tried_once_more() {
        let tries = Cell::new(0);
        let read = async |failures| {
            tries.set(0);
            let read = async || {
                tries.set(tries.get() + 1);
                let of = |text: &str| text.to_owned();
                let (key, store, why) = (of("rt/blobs/x"), of("memory"), of("it broke off"));
                let failed =
                    StoreError::Pointers { doing: "read", key, store, why, transient: true };
                if tries.get() <= failures { Err(failed) } else { Ok("all of it") }
            };
            try_to_read(read).await
        };
        assert_eq!(read(1).await.unwrap(), "all of it");
        assert!(read(9).await.unwrap_err().is_transient());
        assert_eq!(tries.get(), 2);
    }
}
