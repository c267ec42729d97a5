//! Filter → store: upload, read back, and let the protocol decide about the pointer.

use std::collections::BTreeSet;

use bloomsday_common::blob::{self, Header, Sealed};
use bloomsday_common::day::Day;
use bloomsday_common::error::{Error as StoreError, Kind};
use bloomsday_common::filter::Filter;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{Act, ActKind, Outcome, Pointer};
use bloomsday_common::protocol::{self, Publish};
use bloomsday_common::store::{Read, Store};
use jiff::Timestamp;

use crate::error::Error;

/// How often a blob that reads back damaged is uploaded again before the build gives up.
const UPLOADS: u32 = 2;

/// Brings a blob into the store and reads it back whole.
///
/// What already lies under its name is used if it is sound, and uploaded over if it is not.
///
/// # Errors
/// The store's; or why the bytes that came back were refused.
pub async fn upload(
    store: &Store,
    sealed: &Sealed<'_>,
    progress: &dyn Fn(u64),
) -> Result<(Header, Filter), Error> {
    match read_back(store, sealed.key()).await {
        Ok(found) => return Ok(found),
        Err(error) if error.kind() == Kind::NotFound => {}
        Err(error) if error.kind() == Kind::Corrupt => {
            tracing::warn!("{error}; uploading it again");
        }
        Err(error) => return Err(error.into()),
    }
    let mut tries = 0;
    loop {
        tries += 1;
        store.put_blob(sealed, progress).await?;
        match read_back(store, sealed.key()).await {
            Err(error) if error.kind() == Kind::Corrupt && tries < UPLOADS => {
                tracing::warn!("{error}; uploading it again");
            }
            other => return Ok(other?),
        }
    }
}

async fn read_back(store: &Store, key: &BlobKey) -> Result<(Header, Filter), StoreError> {
    let fetched = store.fetch(key, u64::MAX).await?;
    blob::open(fetched.memory, fetched.digest, key)
}

/// How the attempt to move a pointer ended.
pub struct Moved {
    /// `Published`, `Unchanged` or `Superseded`.
    pub outcome: Outcome,
    /// What the pointer named before.
    pub previous: Option<BlobKey>,
    /// Why it did not move, and how to move it by hand.
    pub reason: Option<String>,
}

/// The pointer of a day as it was when the build began.
pub struct Start {
    /// The filter.
    pub filter: FilterName,
    /// The day.
    pub day: Day,
    /// What the pointer said.
    pub read: Read<Pointer>,
}

/// Moves the day's pointer to a verified blob, if the protocol lets it.
///
/// `act` is the history record to be: it is written before the pointer moves, so that a crash in
/// between cannot hide which blobs the day has had; the caller writes it again with the outcome.
///
/// # Errors
/// The store's, with the pointer as it was or, when the outcome is unknown, as a second look tells.
pub async fn point(
    store: &Store,
    start: &Start,
    header: &Header,
    blob: &Sealed<'_>,
    act: &Act,
) -> Result<Moved, Error> {
    let (filter, day, key) = (&start.filter, start.day, blob.key());
    let now = store.pointer(filter, day).await?;
    let unchanged_since_start = now.version == start.read.version;
    // The history is needed only to tell a mended re-run from the data that was rolled back.
    let history = match now.seen {
        protocol::Seen::Found(_) => store.history(filter).await?,
        _ => Vec::new(),
    };
    let had: BTreeSet<BlobKey> = protocol::blobs_a_day_had(day, &history, &now.seen);
    let previous = match protocol::publish(day, key, &now.seen, unchanged_since_start, &had) {
        Publish::Unchanged => {
            return Ok(Moved { outcome: Outcome::Unchanged, previous: None, reason: None });
        }
        Publish::Point { previous } => previous,
        Publish::Superseded { now } => {
            return Ok(superseded(
                filter,
                day,
                key,
                &format!("changed while this build ran ({now})"),
            ));
        }
        Publish::RolledBack { to } => {
            let why = format!("was rolled back from this very blob to {to}");
            return Ok(superseded(filter, day, key, &why));
        }
        Publish::Unreadable { why } => {
            return Err(StoreError::Record {
                key: format!("{filter}/pointers/{day}"),
                why: format!("{why} (a build does not overwrite it)"),
                remedy: format!("repoint {filter} {day} --to {key}"),
            }
            .into());
        }
    };
    store.record_act(filter, act).await?;
    let pointer = Pointer {
        bytes: Some(blob.len()),
        ids: Some(header.ids),
        previous: previous.clone(),
        published_at: Some(Timestamp::now()),
        published_by: Some(act.by.clone()),
        act: Some(ActKind::Build),
        reason: act.reason.clone(),
        ..Pointer::to(key.clone())
    };
    match store.point(filter, day, &pointer, &now.version).await {
        Ok(()) => Ok(Moved { outcome: Outcome::Published, previous, reason: None }),
        Err(error) if error.kind() == Kind::Superseded => {
            Ok(superseded(filter, day, key, &format!("changed at the last moment: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn superseded(filter: &FilterName, day: Day, blob: &BlobKey, why: &str) -> Moved {
    let reason = format!(
        "{filter}/pointers/{day} {why}\n  \
         The blob is kept at {blob}; nothing was repointed.\n  \
         To use it: bloomsday repoint {filter} {day} --to {blob}"
    );
    Moved { outcome: Outcome::Superseded, previous: None, reason: Some(reason) }
}
