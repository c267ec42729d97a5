//! `bloomsday repoint`: rolls a day back or forward, for the whole fleet.

use std::process::ExitCode;

use bloomsday_common::day::Day;
use bloomsday_common::error::{Error as StoreError, Kind};
use bloomsday_common::key::{self, BlobKey, FilterName};
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome, Pointer, reason};
use bloomsday_common::protocol::{FollowedBy, Retention, newest_buildable};
use bloomsday_common::store::{Store, Versioned};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::Settings;
use crate::error::{Error, exit};
use crate::followed::followed_blob;
use crate::output::{Output, or_dash, pairs, say, who};
use crate::pointing::{NEXT, NEXT_DRY, check_survives_prune, mark, record, verified_target};
use crate::remedy::flags;

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
        let (filter, to) = (&filter, to.as_str());
        let request = RepointRequest { filter, day, to, retention, reason, dry_run };
        let done = repoint(&store, request).await?;
        let not_followed = why_not_followed(&store, filter, day, retention, dry_run).await;
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
    let followed = match followed_blob(store, filter, None, days).await {
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
            "a pin keeps servers on {} until `bloomsday unpin {filter}{}`",
            followed.blob,
            flags()
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

/// What to repoint.
pub(crate) struct RepointRequest<'a> {
    pub(crate) filter: &'a FilterName,
    /// Whose pointer changes.
    pub(crate) day: Day,
    /// A day, or a blob's key or URL.
    pub(crate) to: &'a str,
    pub(crate) retention: Retention,
    pub(crate) reason: Option<String>,
    pub(crate) dry_run: bool,
}

/// Makes the day's pointer name the blob that `to` means, after the blob is verified.
pub(crate) async fn repoint(
    store: &Store,
    request: RepointRequest<'_>,
) -> Result<Repointed, Error> {
    let RepointRequest { filter, day, to, retention, reason, dry_run } = request;
    let read = store.pointer(filter, day).await?;
    let previous = read.state.found().map(|pointer| pointer.blob.clone());
    let verified = verified_target(store, filter, to, Some(day), retention).await?;
    let blob = verified.key;
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
        check_survives_prune(store, &blob, retention).await.inspect_err(|_| {
            tracing::warn!(
                "{} may name a blob that is gone: repoint it to another",
                key::pointer(filter, day)
            );
        })?;
    } else {
        let pointer = Pointer {
            bytes: Some(verified.bytes),
            ids: Some(verified.ids),
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
    let named = check_survives_prune(store, &pointer.blob, retention).await;
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
