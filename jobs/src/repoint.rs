//! `bloomsday repoint`: rolls a day back or forward, for the whole fleet.

use std::process::ExitCode;

use bloomsday_common::blob::Header;
use bloomsday_common::day::Day;
use bloomsday_common::error::{Error as StoreError, Kind};
use bloomsday_common::key::{self, BlobKey, FilterName};
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome, Pointer, reason};
use bloomsday_common::protocol::{
    FollowedBy, Past, RecordState, Retention, Target, newest_buildable, target_of_day,
};
use bloomsday_common::store::{Store, Versioned};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::Settings;
use crate::error::{Error, exit};
use crate::output::{Output, or_dash, pairs, say, who};
use crate::target::{target, unknown};

/// Roll a day back or forward, for the whole fleet. The blob is verified before the pointer names
/// it.
///
/// Servers follow at their next poll, or at once after POST /admin/reload.
///
/// Example: bloomsday repoint rt 2026-11-19 --to 2026-11-18 --reason 'half of the input was
/// missing'
#[derive(Args)]
pub(crate) struct Repoint {
    /// The name of the filter.
    filter: FilterName,
    /// The day whose pointer changes.
    day: Day,
    /// A day, meaning that day's own blob; or a blob's key or URL.
    #[arg(long, value_name = "DAY|BLOB")]
    to: String,
    /// Why, for the records.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    /// Verify, and print what would change, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Repoint {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let Repoint { filter, day, to, reason, dry_run } = self;
        let newest = newest_buildable(Timestamp::now());
        if day > newest {
            return Err(Error::Usage(format!(
                "{day} is in the future: no server follows a pointer dated later than today, and prune \
                 would never delete it; the newest day to repoint is {newest}"
            )));
        }
        let retention = settings.retention(&filter);
        let done = repoint(&store, &filter, day, &to, retention, reason, dry_run).await?;
        let not_followed = why_not_followed(&store, &filter, day, retention, dry_run).await;
        if let Some(why) = &not_followed {
            say("warning", why);
        }
        let next = if dry_run { NEXT_DRY } else { NEXT };
        let report = RepointReport { done: &done, not_followed: not_followed.as_deref() };
        output.show(&report, || {
            pairs(&[
                ("outcome", if dry_run { "dry run".into() } else { done.outcome.name().into() }),
                ("pointer", format!("{filter} {day}")),
                (if dry_run { "would name" } else { "now names" }, done.blob.to_string()),
                ("named before", or_dash(done.previous.as_ref())),
                ("next", not_followed.clone().unwrap_or_else(|| next.into())),
            ])
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// The next step if servers follow the pointer, and what would happen then.
pub(crate) const NEXT: &str = "servers follow at their next poll; at once: POST /admin/reload";
pub(crate) const NEXT_DRY: &str = "nothing was written; servers would follow at their next poll";

/// Why servers do not follow the pointer of `day`, if so: what they follow in its place.
async fn why_not_followed(
    store: &Store,
    filter: &FilterName,
    day: Day,
    retention: Retention,
    dry_run: bool,
) -> Option<String> {
    let (today, days) = (Day::of(Timestamp::now()), retention.max_age_days);
    let oldest = today.minus(days);
    if day < oldest {
        return Some(format!(
            "no server follows {day}: with max_age_days = {days} the oldest is {oldest}"
        ));
    }
    if day > today {
        return Some(format!("no server follows {day} before that day has begun"));
    }
    let followed = match target(store, filter, None, days).await {
        Ok(followed) => followed,
        // What this command would replace.
        Err(Error::Common(StoreError::Record { key, .. }))
            if dry_run && key == key::pointer(filter, day) =>
        {
            return None;
        }
        // A pin or a newer pointer that nobody can read: servers follow nothing older.
        Err(error) if error.exit_status() == exit::CORRUPT => {
            return Some(format!("servers keep what they have: {error}"));
        }
        // The pointer is written: a failure here is no failure of the command.
        Err(error) => return Some(format!("whether servers follow it is not known: {error}")),
    };
    match &followed.by {
        FollowedBy::Pin { .. } => Some(format!(
            "a pin keeps servers on {} until `bloomsday unpin {filter}`",
            followed.blob
        )),
        FollowedBy::Pointer { day: newer } if *newer > day => {
            Some(format!("servers follow the pointer of {newer}, which is newer"))
        }
        FollowedBy::Pointer { .. } => None,
    }
}

/// The report for programs.
#[derive(Serialize)]
struct RepointReport<'a> {
    #[serde(flatten)]
    done: &'a Repointed,
    not_followed: Option<&'a str>,
}

/// What a repoint did.
#[derive(Serialize)]
pub(crate) struct Repointed {
    filter: FilterName,
    day: Day,
    outcome: Outcome,
    blob: BlobKey,
    previous: Option<BlobKey>,
    rolled_back: bool,
    dry_run: bool,
}

/// Makes the pointer of `day` name the blob that `to` means, after the blob is verified.
pub(crate) async fn repoint(
    store: &Store,
    filter: &FilterName,
    day: Day,
    to: &str,
    retention: Retention,
    reason: Option<String>,
    dry_run: bool,
) -> Result<Repointed, Error> {
    let read = store.pointer(filter, day).await?;
    let previous = read.state.found().map(|pointer| pointer.blob.clone());
    let (blob, bytes, header) = verified_target(store, filter, to, Some(day), retention).await?;
    let unchanged = previous.as_ref() == Some(&blob);
    let done = Repointed {
        filter: filter.clone(),
        day,
        outcome: if unchanged { Outcome::Unchanged } else { Outcome::Published },
        rolled_back: blob.day != day,
        blob: blob.clone(),
        previous: previous.clone(),
        dry_run,
    };
    if dry_run {
        return Ok(done);
    }
    mark(store, filter).await?;
    if unchanged {
        // The command that wrote it may have been ended before it looked.
        ensure_named_in_time(store, &blob, retention).await.inspect_err(|_| {
            tracing::warn!(
                "{} may name a blob that is gone: repoint it to another",
                key::pointer(filter, day)
            );
        })?;
    } else {
        let pointer = Pointer {
            bytes: Some(bytes),
            ids: Some(header.ids),
            previous,
            published_at: Some(Timestamp::now()),
            published_by: Some(who()),
            kind: Some(EventKind::Repoint),
            reason,
            ..Pointer::to(blob)
        };
        point_and_record(store, filter, day, &pointer, &read, retention).await?;
    }
    Ok(done)
}

/// Writes the pointer, with an event in the history before and after.
async fn point_and_record(
    store: &Store,
    filter: &FilterName,
    day: Day,
    pointer: &Pointer,
    read: &Versioned<Pointer>,
    retention: Retention,
) -> Result<(), StoreError> {
    let (at, by) = (pointer.published_at.unwrap_or_else(Timestamp::now), who());
    let event = HistoryEvent {
        day: Some(day),
        blob: Some(pointer.blob.clone()),
        previous: pointer.previous.clone(),
        reason: pointer.reason.clone(),
        ids: pointer.ids,
        ..HistoryEvent::new(EventKind::Repoint, Outcome::Pending, at, &by)
    };
    // Recorded before the write: if this command is killed in between and somebody then edits the
    // pointer by hand, a build still finds in the history what the pointer named.
    record(store, filter, &event).await;
    let written = store.put_pointer(filter, day, pointer, &read.version).await;
    // Without the lock of a local folder nothing is written.
    let has_no_lock =
        matches!(&written, Err(StoreError::Locked { .. } | StoreError::File { doing: "lock", .. }));
    let moved = match written {
        Ok(()) => keep_or_restore(store, filter, day, pointer, read, retention).await,
        Err(error) => Err(error),
    };
    let ended = match &moved {
        Ok(()) => Some(Outcome::Published),
        Err(_) if has_no_lock => Some(Outcome::Failed),
        Err(error) if error.kind() == Kind::Superseded => Some(Outcome::Superseded),
        // The blob was deleted, and the pointer was restored.
        Err(error) if error.kind() == Kind::NotFound => Some(Outcome::Failed),
        // The outcome is unknown; the record stays `pending`.
        Err(_) => None,
    };
    if let Some(outcome) = ended {
        record(store, filter, &HistoryEvent { outcome, ..event }).await;
    }
    moved
}

/// Restores what was there before the pointer if its blob has been deleted: a prune that read the
/// records before the write may do that.
async fn keep_or_restore(
    store: &Store,
    filter: &FilterName,
    day: Day,
    pointer: &Pointer,
    read: &Versioned<Pointer>,
    retention: Retention,
) -> Result<(), StoreError> {
    let named = ensure_named_in_time(store, &pointer.blob, retention).await;
    let Err(gone @ StoreError::NotFound { .. }) = named else { return named };
    match store.take_back_pointer(filter, day, pointer, &read.version).await {
        // It is there still. The same repoint, run again, looks again.
        Err(error) if error.kind() != Kind::Superseded => {
            tracing::warn!("{} names a blob that is gone: {gone}", key::pointer(filter, day));
            Err(error)
        }
        // Restored, or somebody else has pointed it since.
        _ => Err(gone),
    }
}

/// Checks that a blob is still there when no prune can delete it any more. Says what it waits for.
pub(crate) async fn ensure_named_in_time(
    store: &Store,
    blob: &BlobKey,
    retention: Retention,
) -> Result<(), StoreError> {
    store.ensure_named_in_time(blob, retention, |why| say("note", why)).await
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

/// Finds the blob that an operator means, and makes every check that a server makes. Refuses a blob
/// that prune may be about to delete, and one that was rejected, unless its key names it or it is
/// for the pointer of its own day, `pointer_day`.
pub(crate) async fn verified_target(
    store: &Store,
    filter: &FilterName,
    to: &str,
    pointer_day: Option<Day>,
    retention: Retention,
) -> Result<(BlobKey, u64, Header), Error> {
    let key = match to.parse::<Day>() {
        Err(_) => store.blob_key(to, filter)?,
        Ok(day) => blob_of_day(store, filter, day, pointer_day, retention).await?,
    };
    store.ensure_retained(&key, retention).await?;
    let (header, filter) = store.open_blob(&key).await?;
    Ok((key, filter.memory().len() as u64, header))
}

/// The blob that an operator means who names a day: its own one, if that was not rejected.
async fn blob_of_day(
    store: &Store,
    filter: &FilterName,
    day: Day,
    pointer_day: Option<Day>,
    retention: Retention,
) -> Result<BlobKey, Error> {
    let pointer = match store.pointer(filter, day).await {
        Ok(read) => read.state,
        Err(error) if error.is_no_answer() => return Err(error.into()),
        Err(_) => RecordState::Absent,
    };
    let key = match target_of_day(day, &pointer, &store.blobs(filter, Some(day)).await?) {
        Target::Blob(key) => key,
        Target::None => {
            let why = format!(
                "`{filter}` has no blob of {day} in {}: see `bloomsday status {filter}`",
                store.name()
            );
            return Err(unknown(store, filter).await.unwrap_or(Error::NotFound(why)));
        }
        Target::Several(keys) => {
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
