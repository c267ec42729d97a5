//! What an operator points at: finds and verifies the blob, and records what was done, for
//! `repoint` and `pin`.

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{HistoryEvent, Outcome, Pointer};
use bloomsday_common::protocol::{BlobOfDay, Past, RecordState, Retention, blob_of_day};
use bloomsday_common::store::Store;
use jiff::Timestamp;

use crate::error::Error;
use crate::filters::unknown;
use crate::output::say;

/// The next step if servers follow the pointer, and what would happen then.
pub(crate) const NEXT: &str = "servers follow at their next poll; at once: POST /admin/reload";
pub(crate) const NEXT_DRY: &str = "nothing was written; servers would follow at their next poll";

/// A blob that passed every check that a server makes. It is not in memory any more.
pub(crate) struct VerifiedBlob {
    pub(crate) key: BlobKey,
    pub(crate) bytes: u64,
    pub(crate) ids: u64,
}

/// Finds the blob that an operator means, and makes every check that a server makes. Refuses a blob
/// that prune may be about to delete. A day whose own blob was refused or rolled back is refused,
/// too, unless it is `pointer_day`, the day of the pointer. For a pin, which has none, a rollback
/// is only a warning.
pub(crate) async fn verified_target(
    store: &Store,
    filter: &FilterName,
    to: &str,
    pointer_day: Option<Day>,
    retention: Retention,
) -> Result<VerifiedBlob, Error> {
    let key = match to.parse::<Day>() {
        Err(_) if !to.contains('/') => {
            let why = format!(
                "`{to}` is no day, such as 2026-11-19, and no blob: {filter}/blobs/DAY-DIGEST.bloom"
            );
            return Err(Error::Usage(why));
        }
        Err(_) => store.blob_key(to, filter)?,
        Ok(day) => own_blob_of_day(store, filter, day, pointer_day, retention).await?,
    };
    store.ensure_retained(&key, retention).await?;
    let (header, filter) = store.open_blob(&key).await?;
    Ok(VerifiedBlob { key, bytes: filter.memory().len() as u64, ids: header.ids })
}

/// The blob that an operator means who names a day: its own one, if that was not rejected.
async fn own_blob_of_day(
    store: &Store,
    filter: &FilterName,
    day: Day,
    pointer_day: Option<Day>,
    retention: Retention,
) -> Result<BlobKey, Error> {
    let pointer = match store.pointer(filter, day).await {
        Ok(read) => read.state,
        Err(error) if error.is_inconclusive() => return Err(error.into()),
        Err(_) => RecordState::Absent,
    };
    let key = match blob_of_day(day, &pointer, &store.blobs(filter, Some(day)).await?) {
        BlobOfDay::One(key) => key,
        BlobOfDay::None => {
            let why = format!(
                "`{filter}` has no blob of {day} in {}: see `bloomsday status {filter}`",
                store.name()
            );
            return Err(unknown(store, filter).await.unwrap_or(Error::NotFound(why)));
        }
        BlobOfDay::Several(keys) => {
            let blobs = keys.iter().map(BlobKey::to_string).collect();
            return Err(StoreError::SeveralBlobs { day: day.to_string(), blobs }.into());
        }
    };
    if pointer_day == Some(day) {
        return Ok(key);
    }
    let own = format!("to use it all the same: --to {key}");
    let rejected = rejected(store, day, &pointer, &key, retention).await;
    let rejected = rejected.inspect_err(|_| {
        say("note", &format!("whether {key} was rejected is not known; {own}"));
    });
    match rejected? {
        // A pin holds servers on what the operator has chosen.
        Some(Rejected::RolledBack(why)) if pointer_day.is_none() => {
            say("warning", &format!("{why}; the pin is to its own one"));
        }
        Some(Rejected::RolledBack(why) | Rejected::Refused(why)) => {
            return Err(Error::Usage(format!("{why}; {own}")));
        }
        None => {}
    }
    Ok(key)
}

/// Why a day's own blob is hardly what an operator means who names the day.
enum Rejected {
    RolledBack(String),
    Refused(String),
}

/// Whether a day's own blob was rolled back, or refused by a gate.
async fn rejected(
    store: &Store,
    day: Day,
    pointer: &RecordState<Pointer>,
    blob: &BlobKey,
    retention: Retention,
) -> Result<Option<Rejected>, StoreError> {
    match pointer.found().map(|pointer| &pointer.blob) {
        Some(named) if named == blob => return Ok(None),
        Some(named) => {
            return Ok(Some(Rejected::RolledBack(format!(
                "{day} is rolled back itself: its pointer names the blob of {other} (--to {other})",
                other = named.day
            ))));
        }
        None => {}
    }
    let history = store.pointer_history(&blob.filter).await?;
    let past = Past::of(day, &history, pointer, Day::of(Timestamp::now()), retention);
    if past.was_rejected(blob) {
        let why = format!("{day} was rolled back from its only blob");
        return Ok(Some(Rejected::RolledBack(why)));
    }
    let newest = history.iter().find(|event| event.blob.as_ref() == Some(blob));
    let refused = newest.filter(|event| event.outcome == Outcome::Refused).map(|_| {
        let why = format!("a gate refused the only blob of {day} (see `bloomsday history`)");
        Rejected::Refused(why)
    });
    Ok(refused)
}

/// Checks that a blob is still there when no prune can delete it any more. A prune that runs now is
/// waited for, which is said: minutes, if it deletes much.
pub(crate) async fn check_survives_prune(
    store: &Store,
    blob: &BlobKey,
    retention: Retention,
) -> Result<(), StoreError> {
    store.check_survives_prune(blob, retention, |why| say("note", why)).await
}

/// Writes the record that says where the pointers of a filter live, if there is none yet.
pub(crate) async fn mark(store: &Store, filter: &FilterName) -> Result<(), StoreError> {
    if let Some(why) = store.mark_pointers(filter).await? {
        tracing::warn!("{why}");
    }
    Ok(())
}

/// Appends to the history. The pointer decides, so a failure here is only a warning.
pub(crate) async fn record(store: &Store, filter: &FilterName, event: &HistoryEvent) {
    if let Err(error) = store.append_event(filter, event).await {
        tracing::warn!("this cannot be recorded in the history: {error}");
    }
}
